"""Exact cast: convert columns to another Arrow type, only if no value changes.

Knows only Arrow types; nothing of tables and pandas.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow_types import is_binary, is_text, recoded


def cast_exactly(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as this type; None for a type that could change a value.

    Raises one of REFUSALS if the type is suitable but a value does not fit.
    """
    source = column.type
    if source.equals(type_):
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), type_)])
    if pa.types.is_dictionary(source) and pa.types.is_dictionary(type_):
        if (source.value_type, source.ordered) == (type_.value_type, type_.ordered):
            return pa.chunked_array([_recoded(chunk, type_) for chunk in column.chunks], type_)
    elif pa.types.is_floating(source) and pa.types.is_floating(type_):
        if source.bit_width < type_.bit_width:
            return column.cast(type_)
    elif _is_checked_cast(source, type_):
        cast = column.cast(type_)
        # Arrow does not check the values of a cast to half floats.
        if not pa.types.is_float16(type_) or cast.cast(source).equals(column):
            return cast
    return None


def narrowed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return the result of an expression for a column of this type.

    Arrow computes with plain, wide values: a dictionary's values, half floats as wider floats.
    """
    computed = column.type
    if pa.types.is_dictionary(type_):
        return as_categories(column, type_)
    if pa.types.is_floating(type_) and pa.types.is_floating(computed):
        narrow = column.cast(type_)
        same = pc.or_(pc.equal(narrow.cast(computed), column), pc.is_nan(column))
        if pc.all(same, min_count=0).as_py():
            return narrow
    return column


def repeated(type_: pa.DataType, rows: int, value: pa.Scalar | None) -> pa.ChunkedArray:
    """Return `rows` rows of one value, or of nulls for None."""
    if value is None or not value.is_valid:
        return pa.chunked_array([pa.nulls(rows, type_)])
    if not pa.types.is_dictionary(type_):
        return pa.chunked_array([pa.repeat(value.cast(type_), rows)])
    code = pa.scalar(0, type_.index_type)
    if isinstance(value, pa.DictionaryScalar):
        code, values = value.index, value.dictionary
    else:
        values = pa.repeat(value.cast(type_.value_type), 1)
    codes = pa.repeat(code, rows)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered)])


def as_categories(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Encode plain values for an unordered dictionary type; return any others unchanged."""
    if not pa.types.is_dictionary(type_) or type_.ordered or pa.types.is_dictionary(column.type):
        return column
    chunks = []
    for chunk in column.chunks:
        codes = chunk.dictionary_encode()
        values = codes.dictionary.cast(type_.value_type)
        chunks.append(pa.DictionaryArray.from_arrays(codes.indices, values))
    return pa.chunked_array(chunks, pa.dictionary(pa.int32(), type_.value_type))


def _recoded(chunk: pa.DictionaryArray, type_: pa.DataType) -> pa.DictionaryArray:
    """Return the same values with codes of another width."""
    # Codes count from 0, so all fit if the last one fits.
    pa.scalar(max(len(chunk.dictionary) - 1, 0), type_.index_type)
    return recoded(chunk, type_)


_Kind = Callable[[pa.DataType], bool]
# Pairs of types between which Arrow's cast refuses the values that it would change.
_CHECKED_CASTS: tuple[tuple[_Kind, _Kind], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_duration, pa.types.is_duration),
    (pa.types.is_decimal, pa.types.is_decimal),
    (is_text, is_text),
    (is_binary, is_binary),
    (is_binary, pa.types.is_fixed_size_binary),
)


def _is_checked_cast(source: pa.DataType, type_: pa.DataType) -> bool:
    """True if Arrow's cast from `source` to `type_` changes no value without an error."""
    if getattr(source, "tz", None) != getattr(type_, "tz", None):
        return False
    return any(from_(source) and to(type_) for from_, to in _CHECKED_CASTS)
