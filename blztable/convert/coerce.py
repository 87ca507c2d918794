"""Fit: data that come after others, as more rows of the same table.

Columns go by name, in any order; a type changes only where no value does. Knows nothing of where
the table is.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_binary, is_text
from blztable.convert.categories import one_in_order
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts, descriptor_of
from blztable.convert.frames.index import DEFAULT
from blztable.convert.frames.labels import decode_label
from blztable.convert.gateway import Ingested
from blztable.convert.values import values_of
from blztable.errors import SchemaError

# Dtypes of pandas that are told apart, but not by a value.
_ALIKE = {None, "arrow", "masked", "object", "string"}

# So many rows for a column, by its place, that the data have not.
Fill = Callable[[int, int], pa.ChunkedArray]


def fitted(
    data: Ingested,
    schema: pa.Schema,
    frame: Descriptor | None,
    rows: int,
    what: str,
    *,
    drawn: int | None = None,
    fill: Fill | None = None,
) -> pa.Table:
    """`data` with the columns and types of a table that has so many rows before them.

    `drawn` of these rows came from the same source, which may count its own. Without `fill` all
    columns must be there.

    Raises
    ------
    SchemaError
        Columns, a type, a dtype or an index that do not go on what is there; `what` begins the
        message.
    """
    mine, theirs = Facts.decode(frame), Facts.decode(data.frame)
    table = data.table
    if data.frame is not None and data.rows:
        table = _indexed(data, mine, theirs, rows, drawn, what)
    elif data.frame is not None:
        table = _indexed_empty(table, mine, theirs)
    columns = []
    for place, found in enumerate(_places(table.schema.names, schema.names, fill is None, what)):
        field = schema.field(place)
        where = f"{what}, column {field.name!r}"
        if found is None:
            assert fill is not None
            if field.name in mine.index_fields():
                raise SchemaError(f"{where}: missing, and it is the table's index")
            columns.append(_filled(fill(place, data.rows), field, mine, frame is not None, where))
            continue
        descriptor = descriptor_of(table.schema.field(found), theirs)
        column = table.column(found)
        columns.append(_fit(column, descriptor, field, mine, frame is not None, where))
    if table.schema.equals(schema, check_metadata=True):
        return table  # Arrow refuses some arrays of its own, as those of empty views.
    return pa.Table.from_arrays(columns, schema=schema)


def fit_column(
    array: pa.Array | pa.ChunkedArray | pa.Scalar,
    descriptor: Descriptor | None,
    schema_field: pa.Field,
    frame: Descriptor | None,
    what: str,
) -> pa.ChunkedArray:
    """Values, a scalar as one row, fitted to one column of a table with this frame descriptor.

    Raises
    ------
    SchemaError
        A type or a dtype by which values would change, or missing ones where the column has none;
        `what` begins the message.
    """
    if isinstance(array, pa.Scalar):
        column = _one_row(array, schema_field.type)
    else:
        column = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
        if is_text(column.type):
            column = _as_categories(column, schema_field.type)
    return _fit(column, descriptor, schema_field, Facts.decode(frame), frame is not None, what)


def as_computed_for(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """What an expression made, for a column of this type: Arrow computes with plain, wide values.

    Of a dictionary type with its values, of half floats with wider ones.
    """
    found = column.type
    if pa.types.is_dictionary(type_):
        return _as_categories(column, type_)
    if pa.types.is_floating(type_) and pa.types.is_floating(found):
        narrow = column.cast(type_)
        same = pc.or_(pc.equal(narrow.cast(found), column), pc.is_nan(column))
        if pc.all(same, min_count=0).as_py():
            return narrow
    return column


def filled(type_: pa.DataType, rows: int, value: pa.Scalar | None) -> pa.ChunkedArray:
    """So many rows of one value; of nulls where there is none."""
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


def may_be_null(field: pa.Field, frame: Descriptor | None) -> bool:
    """Whether the column can hold missing values: numpy's plain integers and booleans cannot."""
    is_plain = frame is not None and descriptor_of(field, Facts.decode(frame)) is None
    return bool(field.nullable) and not (is_plain and _has_no_nulls(field.type))


def needs_exact_rows(data: Ingested, frame: Descriptor | None, drawn: int | None) -> bool:
    """Whether `data`, which fit, have an index by which they go on so many rows and no others."""
    here, there = Facts.decode(frame).levels[0], Facts.decode(data.frame).levels[0]
    if data.frame is None or not data.rows or here["kind"] != "range" or there["kind"] != "range":
        return False
    return not _is_usual(here, there, drawn)


def _fit(
    column: pa.ChunkedArray,
    descriptor: Descriptor | None,
    field: pa.Field,
    mine: Facts,
    is_frame: bool,
    what: str,
) -> pa.ChunkedArray:
    """The column as this field has it, in a table whose frame has these facts."""
    try:
        fit = cast_exactly(column, field.type)
        words = _word(descriptor_of(field, mine)), _word(descriptor)
        if fit.null_count and is_frame and words[0] is None and _has_no_nulls(field.type):
            raise SchemaError(
                f"it has missing values; the table has plain {field.type}, without any"
            )
        if fit.null_count and not field.nullable:
            raise SchemaError(f"it has missing values; the table has {field.type}, not nullable")
        _check_words(fit, *words)
    except (SchemaError, *REFUSALS) as error:
        raise SchemaError(f"{what}: {error}") from None
    return fit


def _one_row(value: pa.Scalar, type_: pa.DataType) -> pa.ChunkedArray:
    """A scalar as a column, for which the value counts and not how wide it came in."""
    if pa.types.is_dictionary(type_):
        inner = type_.value_type
        if value.type == inner or (is_text(value.type) and is_text(inner)):
            return filled(type_, 1, value)
    if pa.types.is_floating(value.type) and value.is_valid:
        is_nan = value.as_py() != value.as_py()
        if is_nan and not pa.types.is_floating(type_):
            # Users of pandas write it for none in any column.
            return filled(pa.null(), 1, None)
        if pa.types.is_floating(type_) and (is_nan or value.cast(type_).as_py() == value.as_py()):
            return filled(type_, 1, value)
    return filled(value.type, 1, value)


def _as_categories(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Plain values as those of a dictionary type whose order is not declared; else as they are."""
    found = column.type
    if not pa.types.is_dictionary(type_) or type_.ordered or pa.types.is_dictionary(found):
        return column
    chunks = []
    for chunk in column.chunks:
        codes = chunk.dictionary_encode()
        values = codes.dictionary.cast(type_.value_type)
        chunks.append(pa.DictionaryArray.from_arrays(codes.indices, values))
    return pa.chunked_array(chunks, pa.dictionary(pa.int32(), type_.value_type))


def _filled(
    column: pa.ChunkedArray, field: pa.Field, mine: Facts, is_frame: bool, what: str
) -> pa.ChunkedArray:
    """Rows for a column that the data have not, if it can hold them."""
    try:
        return _fit(column, descriptor_of(field, mine), field, mine, is_frame, what)
    except SchemaError:
        raise SchemaError(
            f"{what}: missing, without a default, and {field.type} here cannot be null"
        ) from None


def _indexed(
    data: Ingested, mine: Facts, theirs: Facts, rows: int, drawn: int | None, what: str
) -> pa.Table:
    """The table of a frame whose index goes on where the index that is there ends."""
    here, there = mine.levels, theirs.levels
    if here[0]["kind"] == "field":
        if there[0]["kind"] == "range" and len(here) == 1 and _name(here[0]) == _name(there[0]):
            # Of an index with gaps, a piece without any is a range to pandas.
            start, step = there[0]["start"], there[0]["step"]
            values = pa.array(start + step * np.arange(data.rows))
            return data.table.append_column(here[0]["field"], values)
        same = [(level.get("field"), _name(level)) for level in here]
        if [(level.get("field"), _name(level)) for level in there] == same:
            return data.table
    elif there[0]["kind"] == "range":
        start, step = here[0]["start"], here[0]["step"]
        continues_index = {**here[0], "start": start + step * rows}
        if there[0] == continues_index or _is_usual(here[0], there[0], drawn):
            return data.table
    raise SchemaError(
        f"{what}: its index is {_shown(there)}; the one before is {_shown(here)} and has {rows} "
        "rows. Reset it, or give index=False"
    )


def _is_usual(here: Descriptor, there: Descriptor, drawn: int | None) -> bool:
    """Whether both are the range that everybody has: of all rows, or of those of one source."""
    starts = (0,) if drawn is None else (0, drawn)
    return here == DEFAULT and there in [{**DEFAULT, "start": start} for start in starts]


def _indexed_empty(table: pa.Table, mine: Facts, theirs: Facts) -> pa.Table:
    """The table of a frame without rows: an index without labels goes on any other."""
    for name in set(theirs.index_fields()) & set(table.schema.names):
        table = table.drop_columns(name)
    for name in mine.index_fields():
        table = table.append_column(name, pa.nulls(0))
    return table


def _name(level: Descriptor) -> object:
    return decode_label(level.get("name"))


def _shown(levels: list[Descriptor]) -> str:
    """An index in words."""
    if levels[0]["kind"] == "range":
        name = f" named {_name(levels[0])!r}" if "name" in levels[0] else ""
        return f"a range from {levels[0]['start']} by {levels[0]['step']}{name}"
    return f"columns {[level['field'] for level in levels]!r:.200}"


def places_by_name(found: Sequence[str], names: Sequence[str]) -> list[int | None] | None:
    """Where each of `names` is among the columns found, None for what is not there.

    None instead where a name is there twice and the order is another.
    """
    if found == names:
        return list(range(len(names)))
    if len(set(names)) < len(names) or len(set(found)) < len(found):
        return None
    where = {name: place for place, name in enumerate(found)}
    return [where.get(name) for name in names]


def _places(found: list[str], names: list[str], need_all: bool, what: str) -> list[int | None]:
    """Where each column of the table is in the data, if there are no others."""
    places = places_by_name(found, names)
    there, known = set(found), set(names)
    missing = [name for name in names if name not in there]
    strange = [name for name in found if name not in known]
    if places is not None and not strange and not (missing and need_all):
        return places
    raise SchemaError(
        f"{what}: columns {found!r:.300}; the table has {names!r:.300}"
        + (f"; missing: {missing!r:.200}" if missing and need_all else "")
        + (f"; unknown: {strange!r:.200}" if strange else "")
        + ("" if need_all or not strange else "; evolve=True adds columns")
    )


def cast_exactly(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """The column as this type, where that changes no value."""
    found = column.type
    if found.equals(type_):
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), type_)])
    if pa.types.is_dictionary(found) and pa.types.is_dictionary(type_):
        if (found.value_type, found.ordered) == (type_.value_type, type_.ordered):
            return pa.chunked_array([_recoded(chunk, type_) for chunk in column.chunks], type_)
    elif pa.types.is_floating(found) and pa.types.is_floating(type_):
        if found.bit_width < type_.bit_width:
            return column.cast(type_)
    elif any(_is_widening(found, type_, kinds) for kinds in _WIDENINGS):
        cast = column.cast(type_)
        # The one cast of which Arrow does not check the values.
        if pa.types.is_float16(type_) and not cast.cast(found).equals(column):
            raise SchemaError(f"it has {found} values that do not fit {type_}")
        return cast
    raise SchemaError(
        f"its type is {found}; the table has {type_} in the rows before: give all that type"
    )


def _recoded(chunk: pa.DictionaryArray, type_: pa.DataType) -> pa.DictionaryArray:
    """The same values by codes of another width."""
    # A code counts from 0, so the last has to fit.
    pa.scalar(max(len(chunk.dictionary) - 1, 0), type_.index_type)
    indices = chunk.indices.cast(type_.index_type, safe=False)
    return pa.DictionaryArray.from_arrays(
        indices, chunk.dictionary, ordered=type_.ordered, safe=False
    )


_Kind = Callable[[pa.DataType], bool]
# From one kind to another; Arrow refuses the values that would change.
_WIDENINGS: tuple[tuple[_Kind, _Kind], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_duration, pa.types.is_duration),
    (pa.types.is_decimal, pa.types.is_decimal),
    (is_text, is_text),
    (is_binary, is_binary),
)


def _is_widening(found: pa.DataType, type_: pa.DataType, kinds: tuple[_Kind, _Kind]) -> bool:
    same_zone = getattr(found, "tz", None) == getattr(type_, "tz", None)
    return kinds[0](found) and kinds[1](type_) and same_zone


def _has_no_nulls(type_: pa.DataType) -> bool:
    """Whether numpy has no missing value for it: one would turn the others into floats."""
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_))


def _check_words(column: pa.ChunkedArray, mine: str | None, theirs: str | None) -> None:
    """SchemaError where values would come back as something else than they were."""
    if mine == theirs or column.null_count == len(column):
        return
    if not _ALIKE.issuperset((mine, theirs)):
        raise SchemaError(f"its dtype is {theirs or 'plain'}; the table has {mine or 'plain'}")


def _word(descriptor: object) -> str | None:
    """The dtype a descriptor speaks of, without what depends on the values."""
    if not isinstance(descriptor, dict):
        return None
    if descriptor.get("dtype") == "category":
        facts = descriptor.get("categories")
        inner = _word(facts.get("values")) if isinstance(facts, dict) else None
        # Of most categories the Arrow type says all.
        return None if inner is None else f"categories of {inner}"
    words = [str(descriptor[key]) for key in ("dtype", "freq", "library") if key in descriptor]
    return " ".join(words)


def default_of(default: Any, field: pa.Field, frame: Any, order: Any) -> pa.Scalar | None:
    """The default as a value of the field's type; None where there is none, or it is null."""
    if default is None:
        return None
    what = f"the default of column {field.name!r}"
    value, its = values_of(default, what)
    if not isinstance(value, pa.Scalar):
        raise SchemaError(f"{what} is one value")
    fit = fit_column(value, its, field, frame, what)
    return None if fit.null_count else one_in_order(fit, order, what)[0]
