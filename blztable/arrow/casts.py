"""Arrow casts: convert columns to another Arrow type, only if no value changes.

Knows only Arrow types; nothing of tables and pandas. A value is the same if it compares equal: -0.0
may become 0, and one NaN another. A time with a zone is the same in another zone, and a date is the
same as its midnight without a zone.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.casts import Cast, cast_nested, numbered, revalued
from blztable.arrow.types import (
    REFUSALS,
    abbreviated,
    float_limit,
    is_binary,
    is_number,
    is_text,
    is_zoned,
    nulls,
    recoded,
    without_view,
)
from blztable.errors import SchemaError


def cast_exactly(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as this type; None if the type could change a value, or if one changes."""
    return _cast_by(cast_exactly, column, type_)


def cast_rounded(
    column: pa.ChunkedArray, type_: pa.DataType, largest: int = 0
) -> pa.ChunkedArray | None:
    """Return the column as `cast_exactly` does, but with floats rounded to a narrower float type.

    It is for floats of Python, which have no width. None if a float is too large for the type, or
    if a whole number changes, up to the largest integer among the floats.
    """
    if not (pa.types.is_floating(column.type) and pa.types.is_floating(type_)):
        return _cast_by(partial(cast_rounded, largest=largest), column, type_)
    rounded = column.cast(type_, safe=False)
    # Arrow does not look at half floats.
    before, after = column.cast(pa.float64()), rounded.cast(pa.float64())
    is_right = pc.or_(pc.is_finite(after), pc.invert(pc.is_finite(before)))
    if largest > float_limit(type_):
        may_round = pc.or_(
            pc.not_equal(pc.floor(before), before),
            pc.greater(pc.abs(before), float(min(largest, 1 << 1000))),
        )
        is_right = pc.and_(is_right, pc.or_(pc.equal(before, after), may_round))
    return rounded if pc.all(is_right, min_count=0).as_py() else None


def cast_anyhow(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as this type, with other values where Arrow's unsafe cast makes them.

    Return None if Arrow has no such cast, or for a value that has no counterpart: a text that is no
    number, a NaN or a number out of range for an integer.
    """
    exact = cast_exactly(column, type_)
    if exact is not None:
        return exact
    try:
        if pa.types.is_dictionary(column.type):
            return cast_anyhow(_decoded(column), type_)
        if pa.types.is_dictionary(type_):
            plain = cast_anyhow(column, type_.value_type)
            return None if plain is None else cast_exactly(plain, type_)
        if pa.types.is_integer(type_) and pa.types.is_floating(column.type):
            return pc.trunc(column.cast(pa.float64())).cast(type_)
        return column.cast(type_, safe=False)
    except REFUSALS:
        return None


def keeps_anyhow(type_: pa.DataType, other: pa.DataType) -> bool:
    """True if `cast_anyhow` makes different values of all different values of a type."""
    kinds = pa.types
    if kinds.is_boolean(type_):
        return is_text(other) or is_number(other)
    has_text = kinds.is_integer(type_) or kinds.is_decimal(type_) or kinds.is_float64(type_)
    return is_text(other) and bool(has_text or kinds.is_date32(type_) or kinds.is_time(type_))


def misfit(
    column: pa.ChunkedArray, cast: Callable[[pa.ChunkedArray], pa.ChunkedArray | None]
) -> tuple[int, str]:
    """Return the first row that `cast` refuses, and its value as text; a row must be refused."""
    first, stop = 0, len(column)
    while stop - first > 1:
        middle = (first + stop) // 2
        if cast(column.slice(first, middle - first)) is None:
            stop = middle
        else:
            first = middle
    return first, short_text_of(column[first])


def widened(
    column: pa.ChunkedArray, type_: pa.DataType, context: str, remedy: str
) -> pa.ChunkedArray:
    """Return the column as a wider type; SchemaError for a value that it does not hold."""
    wide = cast_exactly(column, type_)
    if wide is None:
        _, value = misfit(column, partial(cast_exactly, type_=type_))
        raise SchemaError(f"{context}: {value} does not fit {abbreviated(type_)}; {remedy}")
    return wide


def short_text_of(value: pa.Scalar) -> str:
    """Return a value as text for an error."""
    try:
        return f"{value.as_py()!r:.100}"
    except (ValueError, OverflowError):
        # Python has no such time.
        return f"{value.cast(pa.int64()).as_py()} of type {value.type}"


def narrowed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return the result of an expression for a column of this type.

    Arrow computes with plain, wide values: a dictionary's values, half floats as wider floats.
    """
    is_float = pa.types.is_floating(type_) and pa.types.is_floating(column.type)
    if is_float or pa.types.is_dictionary(type_):
        cast = cast_exactly(column, type_)
        return column if cast is None else cast
    return column


def repeated(type_: pa.DataType, rows: int, value: pa.Scalar | None) -> pa.ChunkedArray:
    """Return `rows` rows of one value, or of nulls for None."""
    # Arrow cannot repeat a list 0 times.
    if not rows or value is None or not value.is_valid:
        return pa.chunked_array([nulls(rows, type_)])
    if not pa.types.is_dictionary(type_):
        # Arrow casts no unions, runs and views of lists, not even to their own type.
        cast = value if value.type.equals(type_) else value.cast(type_)
        return pa.chunked_array([pa.repeat(cast, rows)])
    code = pa.scalar(0, type_.index_type)
    if isinstance(value, pa.DictionaryScalar):
        code, values = value.index, value.dictionary
    else:
        is_same = value.type.equals(type_.value_type)
        values = pa.repeat(value if is_same else value.cast(type_.value_type), 1)
    codes = pa.repeat(code, rows)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered)])


def _cast_by(cast: Cast, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as a type; values within others go to `cast`."""
    if column.type.equals(type_):
        return column
    without_values = column.null_count == len(column)
    # Categories without rows are kept if the other type can have them.
    if not without_values or (
        pa.types.is_dictionary(column.type) and pa.types.is_dictionary(type_)
    ):
        try:
            result = _cast(cast, column, type_)
        except REFUSALS:
            result = None
        if result is not None or not without_values:
            return result
    return pa.chunked_array([nulls(len(column), type_)])


def _cast(cast: Cast, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as another type; raise one of REFUSALS, or return None, if it changes."""
    source = column.type
    are_both = pa.types.is_dictionary(source) and pa.types.is_dictionary(type_)
    if are_both and source.value_type == type_.value_type and source.ordered >= type_.ordered:
        return pa.chunked_array([_recoded(chunk, type_) for chunk in column.chunks], type_)
    if pa.types.is_run_end_encoded(source):
        chunks = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return cast(pa.chunked_array(chunks, source.value_type), type_)
    if are_both and pa.types.is_nested(type_.value_type) and source.ordered >= type_.ordered:
        # Codes stay: Arrow would not find equal values again.
        coded = [revalued(chunk, type_.value_type, cast) for chunk in column.chunks]
        chunks = [_recoded(chunk, type_) for chunk in coded if chunk is not None]
        return pa.chunked_array(chunks, type_) if len(chunks) == len(coded) else None
    if pa.types.is_dictionary(source):
        return cast(_decoded(column), type_)
    if pa.types.is_run_end_encoded(type_):
        plain = cast(column, type_.value_type)
        return None if plain is None else _in_runs(plain, type_)
    if pa.types.is_dictionary(type_):
        return None if type_.ordered else _encoded(cast, column, type_)
    if pa.types.is_nested(source) and pa.types.is_nested(type_):
        return cast_nested(column, type_, cast)
    if pa.types.is_decimal(source) and source.scale < 0:
        # Arrow neither compares such values nor makes integers of all of them.
        return cast(column.cast(pa.decimal256(76, 0)), type_)
    if _is_any(source, type_, _TRUSTED):
        return column.cast(type_)
    if pa.types.is_integer(source) and pa.types.is_decimal(type_):
        # Arrow wants room for all values of the type; 20 digits hold each integer.
        return cast(column.cast(pa.decimal128(20, 0)), type_)
    if _is_any(source, type_, _KINDS) and not is_zoned(source) ^ is_zoned(type_):
        # Arrow refuses some integers that a float holds, and takes some decimals that change.
        same = column.cast(type_, safe=not pa.types.is_floating(type_))
        return same if _is_same(column, same) else None
    return None


def _is_same(column: pa.ChunkedArray, cast: pa.ChunkedArray) -> bool:
    """True if each value of a column is the same after a cast."""
    source = column.type
    back = cast.cast(source, safe=False)
    if pa.types.is_floating(source):
        # Arrow does not compare half floats.
        back, column = back.cast(pa.float64()), column.cast(pa.float64())
        same = pc.or_(pc.equal(back, column), pc.and_(pc.is_nan(back), pc.is_nan(column)))
    else:
        same = pc.equal(back, column)
    if pa.types.is_integer(source) and pa.types.is_floating(cast.type):
        # A float beyond the integers may come back as the last one.
        end = 2.0 ** (source.bit_width - pa.types.is_signed_integer(source))
        same = pc.and_(same, pc.less(cast.cast(pa.float64()), end))
    return bool(pc.all(same, min_count=0).as_py())


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a dictionary column."""
    type_ = column.type.value_type
    # Arrow takes no rows of views.
    plain = without_view(type_)
    # Nor does it cast each nested type to itself.
    values = [chunk.dictionary for chunk in column.chunks]
    values = values if plain == type_ else [dictionary.cast(plain) for dictionary in values]
    pairs = zip(values, column.chunks, strict=True)
    return pa.chunked_array([dictionary.take(chunk.indices) for dictionary, chunk in pairs], plain)


def _in_runs(column: pa.ChunkedArray, type_: pa.RunEndEncodedType) -> pa.ChunkedArray:
    """Return plain values as runs; each row is one where Arrow finds no equal values."""
    try:
        return pc.run_end_encode(column, run_end_type=type_.run_end_type)
    except pa.ArrowNotImplementedError:
        chunks = [
            pa.RunEndEncodedArray.from_arrays(
                pa.array(np.arange(1, len(chunk) + 1), type_.run_end_type), chunk, type_
            )
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, type_)


def _encoded(cast: Cast, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return plain values as an unordered dictionary type."""
    plain = cast(column, type_.value_type)
    if plain is None:
        return None
    if pa.types.is_nested(type_.value_type):
        # Arrow finds no equal values of these types, so each row is a value.
        chunks = [numbered(chunk, type_.index_type) for chunk in plain.chunks]
        return pa.chunked_array(chunks, type_)
    chunks = [_recoded(chunk.dictionary_encode(), type_) for chunk in plain.chunks]
    return pa.chunked_array(chunks, type_)


def _recoded(chunk: pa.DictionaryArray, type_: pa.DataType) -> pa.DictionaryArray:
    """Return the same values with codes of another width."""
    # Codes count from 0, so all fit if the last one fits.
    pa.scalar(max(len(chunk.dictionary) - 1, 0), type_.index_type)
    return recoded(chunk, type_)


_TypeTest = Callable[[pa.DataType], bool]
# Pairs of kinds between which Arrow's cast refuses each value that it would change.
_TRUSTED: tuple[tuple[_TypeTest, _TypeTest], ...] = (
    (is_text, is_text),
    (is_binary, is_binary),
    (is_binary, pa.types.is_fixed_size_binary),
    (pa.types.is_fixed_size_binary, is_binary),
    (pa.types.is_decimal, pa.types.is_integer),
)
# Pairs of kinds with values in common.
_KINDS: tuple[tuple[_TypeTest, _TypeTest], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_floating, pa.types.is_integer),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_duration, pa.types.is_duration),
    (pa.types.is_time, pa.types.is_time),
    (pa.types.is_date, pa.types.is_date),
    # A date is its midnight.
    (pa.types.is_date, pa.types.is_timestamp),
    (pa.types.is_timestamp, pa.types.is_date),
)


def _is_any(
    source: pa.DataType, type_: pa.DataType, pairs: tuple[tuple[_TypeTest, _TypeTest], ...]
) -> bool:
    return any(from_(source) and to(type_) for from_, to in pairs)
