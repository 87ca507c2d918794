"""JSON lines: NDJSON, or an array of objects, in blocks of whole lines, and their values.

Knows nothing of files and tables.

Theory of operation. Arrow parses a block, and is told which places have texts, so that it does not
take them for times. What it makes of numbers is exact while they are small. If they are not, or if
Arrow cannot parse the block, it parses the block again with each number and boolean as a text.
Arrow's parser is recursive and would end the process, so the depth of a block is checked before.
"""

import codecs
import io
import re
from collections.abc import Callable, Iterator, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from blztable.arrow.types import float_limit, is_number, is_text
from blztable.cli.inference import DOUBLE_LIMIT, MOMENT, NUMBER, TextKind, TextKinds

_TEXTS = TextKind.TEXT | MOMENT
# More than a table allows, and less than Python's recursion does.
DEPTH_MAX = 100
_SLICE_BYTES = 1 << 18
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
# A text, with the colon behind a key; or a number; or a boolean.
_TOKEN = re.compile(
    rb"(" + _TEXT + rb")(\s*:)?"
    rb"|(true|false|-?(?:NaN|Inf(?:inity)?|(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))(?=[\s,}\]]|$)",
    re.DOTALL,
)
_MIXED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)", re.DOTALL)
# Kinds as Arrow names them, and as the first letter of spelled values.
_WORDS = {"number": "numbers", "boolean": "booleans", "string": "texts"}
_WORDS |= {"array": "lists", "object": "objects", "N": "numbers", "B": "booleans", "T": "texts"}
# Kinds that a column of text can hold.
_SINGLE = {"numbers", "booleans", "texts"}
_BLANKS = re.compile("[ \t\r\n]*")


# A double holds what was found so far.
_EXACT = TextKind.INTEGER | TextKind.NEGATIVE | TextKind.REAL | TextKind.EXPONENT


class _Mixed(Exception):
    """A column has values of two kinds; `place` are the names of the column and of fields in it."""

    def __init__(self, here: str, before: str, place: Sequence[str] = ()) -> None:
        super().__init__(f"{here} here, and {before} before")
        self.here, self.before, self.place = here, before, place


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
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def read(block: bytes, rows: TextKinds) -> pa.RecordBatch:
    """Return the rows of a block as the types of the fields of `rows`, which it may widen.

    Raises ArrowInvalid. `first_error` returns the row.
    """
    _check_depth(block)
    try:
        return _read(block, rows)
    except _Mixed as error:
        raise pa.ArrowInvalid(_mixed(error, rows)) from None


def _read(block: bytes, rows: TextKinds) -> pa.RecordBatch:
    unparsed: Exception | None = None
    while True:
        try:
            table = _parse(block, _explicit(rows))
        except (pa.ArrowInvalid, _Mixed) as error:
            unparsed = error
            break
        try:
            return _batch(table, rows, is_spelled=False)
        except _IsText:
            continue
        except _NeedsDigits:
            break
    try:
        table = _parse(_spelled(block), None)
    except (pa.ArrowInvalid, _Mixed) as error:
        raise unparsed or error from None
    return _batch(table, rows, is_spelled=True)


def _mixed(error: _Mixed, rows: TextKinds) -> str:
    name, remedy = error.place[0], "make the values alike"
    kinds = rows.fields.get(name) or rows.expected.get(name) or TextKinds()
    if len(error.place) == 1 and {error.here, error.before} <= _SINGLE and kinds.fixed is None:
        remedy = f"`--dtype {name}=string` reads both as text"
    return f"column {'.'.join(error.place)!r}: {error}; {remedy}"


def _check_depth(block: bytes) -> None:
    """Raise ArrowInvalid for a block with values nested deeper than DEPTH_MAX."""
    depth = 0
    data = np.frombuffer(block, np.uint8)
    for start in range(0, len(data), _SLICE_BYTES):
        # [ and { differ in one bit, and so do ] and }.
        some = data[start : start + _SLICE_BYTES] | 0x20
        opened, closed = _counts(some == ord("{")), _counts(some == ord("}"))
        # Of 64 bytes, all that open may come before all that close.
        most = depth + np.cumsum(opened - closed) + closed
        if most.max() > DEPTH_MAX:
            break
        depth = int(most[-1] - closed[-1])
    else:
        return
    plain = np.frombuffer(re.sub(_TEXT, b"", block, flags=re.DOTALL), np.uint8) | 0x20
    steps = (plain == ord("{")).view(np.int8) - (plain == ord("}")).view(np.int8)
    deepest = int(np.cumsum(steps, dtype=np.int64).max(initial=0))
    if deepest > DEPTH_MAX:
        raise pa.ArrowInvalid(f"nested {deepest:,} deep, and {DEPTH_MAX} is the most; flatten it")


def _counts(mask: np.ndarray) -> np.ndarray:
    """Return how many of each 64 values are true."""
    bits = np.packbits(mask)
    words = np.zeros(-(-len(bits) // 8), np.uint64)
    words.view(np.uint8)[: len(bits)] = bits
    return np.bitwise_count(words).astype(np.int32)


def first_error(block: bytes, read: Callable[[bytes], object]) -> tuple[int, str]:
    """Return the number of the first line that cannot be read, and why."""
    lines = [line for line in block.splitlines(keepends=True) if line.strip()]
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
    except pa.ArrowInvalid as error:
        if match := _MIXED.search(str(error)):
            path = [name for name in match[1].split("/") if name != "[]"]
            raise _Mixed(_WORDS[match[3]], _WORDS[match[2]], path) from None
        raise


def _explicit(rows: TextKinds) -> pa.Schema:
    """Return the types of the places where Arrow must not infer one: texts."""
    types = {name: _explicit_type(kinds) for name, kinds in rows.fields.items()}
    return pa.schema([(name, type_) for name, type_ in types.items() if type_ is not None])


def _explicit_type(kinds: TextKinds) -> pa.DataType | None:
    if kinds.items is not None:
        item = _explicit_type(kinds.items)
        return None if item is None else pa.list_(item)
    if kinds.fields:
        fields = {name: _explicit_type(each) for name, each in kinds.fields.items()}
        known = [(name, type_) for name, type_ in fields.items() if type_ is not None]
        return pa.struct(known) if known else None
    return pa.string() if kinds.is_text else None


def _spelled(block: bytes) -> bytes:
    """Return a block of texts: behind an N for each number, a B for a boolean, and else a T."""

    def spell(match: re.Match[bytes]) -> bytes:
        text, colon, plain = match.groups()
        if plain:
            return (b'"B' if plain in (b"true", b"false") else b'"N') + plain + b'"'
        return match[0] if colon else b'"T' + text[1:]

    return _TOKEN.sub(spell, block)


def _batch(table: pa.Table, rows: TextKinds, is_spelled: bool) -> pa.RecordBatch:
    columns = dict(zip(table.column_names, map(_single, table.columns), strict=True))
    arrays = _fields(columns, rows, table.num_rows, is_spelled)
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * table.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, list(rows.fields))


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _fields(
    columns: dict[str, pa.Array], kinds: TextKinds, length: int, is_spelled: bool
) -> list[pa.Array]:
    """Return the values of all fields, in their order; nulls for those that are not there."""
    made = {}
    for name, values in columns.items():
        try:
            made[name] = _values(values, kinds.child(name), is_spelled)
        except _Mixed as error:
            raise _Mixed(error.here, error.before, [name, *error.place]) from None
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"column {name!r}: {error}") from None
    return [
        made[name] if name in made else pa.nulls(length, each.type)
        for name, each in kinds.fields.items()
    ]


def _values(values: pa.Array, kinds: TextKinds, is_spelled: bool) -> pa.Array:
    """Return values as Arrow parsed them as the type of a place, which they may widen."""
    type_, types = values.type, pa.types
    if types.is_null(type_):
        return pa.nulls(len(values), kinds.type)
    if types.is_struct(type_):
        _add(TextKind.STRUCT, kinds, type_)
        children = [values.field(index) for index in range(type_.num_fields)]
        arrays = _fields(
            dict(zip([each.name for each in type_], children, strict=True)),
            kinds,
            len(values),
            is_spelled,
        )
        if not arrays:
            return values
        return pa.StructArray.from_arrays(arrays, list(kinds.fields), mask=values.is_null())
    if types.is_list(type_):
        _add(TextKind.LIST, kinds, type_)
        kinds.items = kinds.items or TextKinds()
        items = _values(values.values, kinds.items, is_spelled)
        return pa.ListArray.from_arrays(values.offsets, items, mask=values.is_null())
    if types.is_boolean(type_):
        return _booleans(values, kinds)
    if types.is_timestamp(type_):
        # Beside lists or objects, Arrow would take them for times again and again.
        _check_texts(kinds)
        raise _IsText
    if not types.is_string(type_):
        return _numbers(values, kinds)
    return _spelled_values(values, kinds) if is_spelled else _texts(values, kinds)


def _spelled_values(values: pa.Array, kinds: TextKinds) -> pa.Array:
    texts = pc.utf8_slice_codeunits(values, 1)
    if kinds.fixed is not None and is_text(kinds.fixed):
        return texts.cast(kinds.fixed)
    first, *others = pc.unique(pc.utf8_slice_codeunits(values.drop_null(), 0, 1)).to_pylist() or [
        "T"
    ]
    if others:
        raise _Mixed(_WORDS[others[0]], _WORDS[first])
    if first == "B":
        return _booleans(pc.equal(texts, "true"), kinds)
    if first == "T":
        return _texts(texts, kinds)
    _check(kinds, NUMBER, pa.float64(), _is_numeric)
    return kinds.read(texts, NUMBER)


def _booleans(values: pa.Array, kinds: TextKinds) -> pa.Array:
    if kinds.fixed is not None and is_text(kinds.fixed):
        return values.cast(kinds.fixed)
    _check(kinds, TextKind.BOOLEAN, values.type, pa.types.is_boolean)
    kinds.flags |= TextKind.BOOLEAN
    return values


def _check_texts(kinds: TextKinds) -> None:
    def is_right(type_: pa.DataType) -> bool:
        return not (is_number(type_) or pa.types.is_boolean(type_))

    _check(kinds, _TEXTS, pa.string(), is_right)
    kinds.is_text = True


def _texts(texts: pa.Array, kinds: TextKinds) -> pa.Array:
    _check_texts(kinds)
    values = kinds.read(texts, MOMENT)
    if TextKind.DATE in kinds.flags:
        # JSON has no dates of its own: they are times, at midnight.
        kinds.flags |= TextKind.NAIVE
    return values


def _numbers(values: pa.Array, kinds: TextKinds) -> pa.Array:
    """Return numbers as a type; raise _NeedsDigits if Arrow may have changed one of them."""
    _check(kinds, NUMBER, values.type, lambda type_: _is_numeric(type_) or is_text(type_))
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
    if largest >= DOUBLE_LIMIT and not (
        is_whole and kinds.flags in TextKind.INTEGER | TextKind.NEGATIVE
    ):
        raise _NeedsDigits
    kinds.flags |= TextKind.INTEGER if is_whole else TextKind.REAL
    if is_whole and bounds["min"] < 0:
        kinds.flags |= TextKind.NEGATIVE
    return values.cast(kinds.type)


def _add(kind: TextKind, kinds: TextKinds, type_: pa.DataType) -> None:
    _check(kinds, kind, type_, lambda fixed: False)
    kinds.flags |= kind


def _check(
    kinds: TextKinds, group: TextKind, type_: pa.DataType, is_right: Callable[[pa.DataType], bool]
) -> None:
    """Raise ArrowInvalid unless values of one group of kinds go to a place."""
    if kinds.fixed is not None:
        if not is_right(kinds.fixed):
            raise pa.ArrowInvalid(f"{type_} cannot become {kinds.fixed}")
    elif kinds.flags and (not kinds.flags & group or (group == _TEXTS and kinds.flags & NUMBER)):
        raise _Mixed(_word(type_), _word(kinds.type))


def _is_numeric(type_: pa.DataType) -> bool:
    return is_number(type_) or pa.types.is_decimal(type_)


def _word(type_: pa.DataType) -> str:
    """Return what the values of a type are in JSON."""
    types = pa.types
    if types.is_struct(type_) or types.is_list(type_):
        return "objects" if types.is_struct(type_) else "lists"
    if types.is_boolean(type_):
        return "booleans"
    return "numbers" if _is_numeric(type_) else "texts"
