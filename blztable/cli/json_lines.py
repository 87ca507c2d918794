"""JSON lines: NDJSON, or an array of objects, in blocks of whole lines, and their values.

Knows nothing of files and tables.

Theory of operation. Arrow parses a block, and is told which places have texts, so that it does not
take them for times. What it makes of numbers is exact while they are small. If they are not, or if
Arrow cannot parse the block, it parses the block again with each number as a text.
"""

import codecs
import io
import re
from collections.abc import Callable, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from blztable.cli.inference import DOUBLE_LIMIT, MOMENT, NUMBER, Kind, Kinds, float_limit

_TEXTS = Kind.TEXT | MOMENT
# A text, with the colon behind a key; or a number.
_TOKEN = re.compile(
    rb'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?'
    rb"|(-?(?:NaN|Inf(?:inity)?|(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))(?=[\s,}\]]|$)",
    re.DOTALL,
)
_MIXED = re.compile(
    r"Column\(/([^/]*)\) changed from (?:number to string|string to number)", re.DOTALL
)
_BLANKS = re.compile("[ \t\r\n]*")


# A double holds what was found so far.
_EXACT = Kind.INTEGER | Kind.NEGATIVE | Kind.REAL | Kind.EXPONENT
_REMEDY = "make the values alike"


class _IsText(Exception):
    """Arrow took the texts of a place for times."""


class _NeedsDigits(Exception):
    """What Arrow made of numbers may not be exact."""


def blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the lines of a file in blocks of about `size` bytes; none for a file of blanks."""
    begin = b""
    while not begin and (data := file.read(size)):
        begin = data.removeprefix(codecs.BOM_UTF8).lstrip()
    if begin[:1] == b"[":
        yield from _lines_of_array(begin[1:], file, size)
        return
    rest = b""
    while data:
        # JSON has no line feed within a text.
        end = data.rfind(b"\n") + 1
        block, rest = (rest + data[:end], data[end:]) if end else (b"", rest + data)
        if block.strip():
            yield block
        data = file.read(size)
    if rest.strip():
        yield rest


def _lines_of_array(begin: bytes, file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the items of an array as lines, in blocks; raise ArrowInvalid for what is no array."""
    decoder = codecs.getincrementaldecoder("utf-8")()

    def decode(data: bytes) -> str:
        try:
            return decoder.decode(data)
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(f"after row {row:,}: JSON is UTF-8: {error}") from None

    scan = JSONDecoder(parse_int=str, parse_float=str).raw_decode
    row = 0
    text, at = decode(begin), 0
    lines: list[str] = []
    nchars = 0
    while True:
        try:
            start = _after_blanks(text, at)
            if text[start : start + 1] == "]":
                break
            if row and text[start : start + 1] != ",":
                raise JSONDecodeError("Expecting ',' delimiter", text, start)
            item = _after_blanks(text, start + 1 if row else start)
            _, end = scan(text, item)
        except JSONDecodeError as error:
            # What is cut by the end of the block is told there, or where its text began.
            is_cut = error.pos >= len(text) - 16 or error.msg.startswith("Unterminated string")
            more = file.read(size) if is_cut else b""
            if not more:
                raise pa.ArrowInvalid(f"row {row + 1:,}: JSON parse error: {error.msg}") from None
            text, at = text[at:] + decode(more), 0
            continue
        except RecursionError:
            raise pa.ArrowInvalid(f"row {row + 1:,}: JSON parse error: nested too deep") from None
        # A line has no line feed; outside of texts it is a blank.
        lines.append(text[item:end].replace("\n", " ").replace("\r", " "))
        nchars += end - item
        row, at = row + 1, end
        if nchars >= size:
            yield "\n".join([*lines, ""]).encode()
            lines, nchars = [], 0
    if text[start + 1 :].strip() or file.read(size).strip():
        raise pa.ArrowInvalid(f"row {row + 1:,}: JSON parse error: more follows the array")
    if lines:
        yield "\n".join([*lines, ""]).encode()


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


def read(block: bytes, rows: Kinds) -> pa.RecordBatch:
    """Return the rows of a block as the types of the fields of `rows`, which it may widen.

    Raises ArrowInvalid. `first_error` returns the row.
    """
    unparsed: pa.ArrowInvalid | None = None
    while True:
        try:
            table = _parse(block, _explicit(rows))
        except pa.ArrowInvalid as error:
            unparsed = error
            break
        try:
            return _batch(table, rows, is_spelled=False)
        except _IsText:
            continue
        except _NeedsDigits:
            break
    try:
        return _batch(_parse(_spelled(block), None), rows, is_spelled=True)
    except pa.ArrowInvalid as error:
        if unparsed is None:
            raise
        remedy = ""
        if found := _MIXED.search(str(unparsed)):
            remedy = f"; `--dtype {found[1]}=string` reads both as text"
        raise pa.ArrowInvalid(f"{unparsed}{remedy}") from error


def first_error(block: bytes, read: Callable[[bytes], object]) -> tuple[int, str]:
    """Return the number of the first line that cannot be read, and why."""
    lines = block.splitlines(keepends=True)
    good, bad, message = 0, len(lines), ""
    while bad - good > 1 or not message:
        middle = (good + bad + 1) // 2 if message else bad
        try:
            read(b"".join(lines[:middle]))
            good = middle
        except pa.ArrowInvalid as error:
            bad, message = middle, re.sub(r" in row \d+(?=;|$)", "", str(error))
    return bad - 1, message


def is_readable(type_: pa.DataType) -> bool:
    """True for a type that values of JSON can be read as, one by one or below lists and structs."""
    types = pa.types
    if types.is_struct(type_):
        return all(is_readable(field.type) for field in type_)
    if types.is_list(type_):
        return is_readable(type_.value_type)
    if types.is_dictionary(type_):
        return is_readable(type_.value_type)
    if types.is_null(type_):
        return True
    try:
        pa.nulls(0, pa.string()).cast(type_)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _parse(block: bytes, schema: pa.Schema | None) -> pa.Table:
    """Return the rows of a block; the types of columns that the schema lacks are inferred."""
    try:
        return pa_json.read_json(
            io.BytesIO(block),
            pa_json.ReadOptions(block_size=len(block) + 1),
            pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
        )
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"JSON is UTF-8: {error}") from None


def _explicit(rows: Kinds) -> pa.Schema:
    """Return the types of the places where Arrow must not infer one: texts."""
    types = {name: _explicit_type(kinds) for name, kinds in rows.fields.items()}
    return pa.schema([(name, type_) for name, type_ in types.items() if type_ is not None])


def _explicit_type(kinds: Kinds) -> pa.DataType | None:
    if kinds.items is not None:
        item = _explicit_type(kinds.items)
        return None if item is None else pa.list_(item)
    if kinds.fields:
        fields = {name: _explicit_type(each) for name, each in kinds.fields.items()}
        known = [(name, type_) for name, type_ in fields.items() if type_ is not None]
        return pa.struct(known) if known else None
    return pa.string() if kinds.is_text else None


def _spelled(block: bytes) -> bytes:
    """Return a block with each number as a text, after an N, and a T before each text."""

    def spell(found: re.Match[bytes]) -> bytes:
        text, colon, number = found.groups()
        if number:
            return b'"N' + number + b'"'
        return found[0] if colon else b'"T' + text[1:]

    return _TOKEN.sub(spell, block)


def _batch(table: pa.Table, rows: Kinds, is_spelled: bool) -> pa.RecordBatch:
    found = dict(zip(table.column_names, map(_single, table.columns), strict=True))
    arrays = _fields(found, rows, table.num_rows, is_spelled)
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * table.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, list(rows.fields))


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _fields(
    found: dict[str, pa.Array], kinds: Kinds, length: int, is_spelled: bool
) -> list[pa.Array]:
    """Return the values of all fields, in their order; nulls for those that are not there."""
    made = {}
    for name, values in found.items():
        try:
            made[name] = _values(values, kinds.child(name), is_spelled)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"column {name!r}: {error}") from None
    return [
        made[name] if name in made else pa.nulls(length, each.type)
        for name, each in kinds.fields.items()
    ]


def _values(values: pa.Array, kinds: Kinds, is_spelled: bool) -> pa.Array:
    """Return values as Arrow parsed them as the type of a place, which they may widen."""
    type_, types = values.type, pa.types
    if types.is_null(type_):
        return pa.nulls(len(values), kinds.type)
    if types.is_struct(type_):
        _add(Kind.STRUCT, kinds, type_)
        children = [values.field(index) for index in range(type_.num_fields)]
        arrays = _fields(
            dict(zip([each.name for each in type_], children, strict=True)),
            *(kinds, len(values), is_spelled),
        )
        if not arrays:
            return values
        return pa.StructArray.from_arrays(arrays, list(kinds.fields), mask=values.is_null())
    if types.is_list(type_):
        _add(Kind.LIST, kinds, type_)
        kinds.items = kinds.items or Kinds()
        items = _values(values.values, kinds.items, is_spelled)
        return pa.ListArray.from_arrays(values.offsets, items, mask=values.is_null())
    if types.is_boolean(type_):
        if kinds.fixed is None or not types.is_boolean(kinds.fixed):
            _add(Kind.BOOLEAN, kinds, type_)
        return values
    if types.is_timestamp(type_):
        kinds.is_text = True
        raise _IsText
    if not types.is_string(type_):
        return _numbers(values, kinds)
    return _spelled_values(values, kinds) if is_spelled else _texts(values, kinds)


def _spelled_values(values: pa.Array, kinds: Kinds) -> pa.Array:
    texts = pc.utf8_slice_codeunits(values, 1)
    is_number = pc.starts_with(values, "N")
    if kinds.fixed is not None and _is_text(kinds.fixed):
        return texts.cast(kinds.fixed)
    if not pc.any(is_number).as_py():
        return _texts(texts, kinds)
    _check(kinds, NUMBER, pa.float64(), _is_number)
    if not pc.all(is_number).as_py():
        raise pa.ArrowInvalid("numbers and texts")
    return kinds.read(texts, NUMBER)


def _texts(texts: pa.Array, kinds: Kinds) -> pa.Array:
    _check(kinds, _TEXTS, pa.string(), lambda type_: not _is_machine_number(type_))
    kinds.is_text = True
    values = kinds.read(texts, MOMENT)
    if Kind.DATE in kinds.flags:
        # JSON has no dates of its own: they are times, at midnight.
        kinds.flags |= Kind.NAIVE
    return values


def _numbers(values: pa.Array, kinds: Kinds) -> pa.Array:
    """Return numbers as a type; raise _NeedsDigits if Arrow may have changed one of them."""
    _check(kinds, NUMBER, values.type, lambda type_: _is_number(type_) or _is_text(type_))
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is None:
        return pa.nulls(len(values), kinds.type)
    largest = max(-bounds["min"], bounds["max"])
    is_whole = pa.types.is_integer(values.type)
    if kinds.fixed is not None:
        if pa.types.is_floating(kinds.fixed):
            if kinds.is_given or largest < float_limit(kinds.fixed):
                return values.cast(kinds.fixed, safe=False)
        elif pa.types.is_integer(kinds.fixed) and (is_whole or largest < DOUBLE_LIMIT):
            return values.cast(kinds.fixed)
        raise _NeedsDigits
    if kinds.flags not in _EXACT:
        raise _NeedsDigits
    if largest >= DOUBLE_LIMIT and not (is_whole and kinds.flags in Kind.INTEGER | Kind.NEGATIVE):
        raise _NeedsDigits
    kinds.flags |= Kind.INTEGER if is_whole else Kind.REAL
    if is_whole and bounds["min"] < 0:
        kinds.flags |= Kind.NEGATIVE
    return values.cast(kinds.type)


def _add(kind: Kind, kinds: Kinds, type_: pa.DataType) -> None:
    _check(kinds, kind, type_, lambda fixed: False)
    kinds.flags |= kind


def _check(
    kinds: Kinds, group: Kind, type_: pa.DataType, is_right: Callable[[pa.DataType], bool]
) -> None:
    """Raise ArrowInvalid unless values of one group of kinds go to a place."""
    if kinds.fixed is not None:
        if not is_right(kinds.fixed):
            raise pa.ArrowInvalid(f"{type_} cannot become {kinds.fixed}")
    elif kinds.flags and (not kinds.flags & group or (group == _TEXTS and kinds.flags & NUMBER)):
        raise pa.ArrowInvalid(f"{type_} here, and {kinds.type} before; {_REMEDY}")


def _is_machine_number(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_))


def _is_number(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_))


def _is_text(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    )
