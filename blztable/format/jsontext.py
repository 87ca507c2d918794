"""JSON as the format allows it: UTF-8, no duplicate keys, no NaN, bounded size and depth.

A document of a stranger may be anything; what passes here is plain data that can be written again.
"""

import json
import re
from itertools import chain

from blztable.errors import CorruptError, LimitError
from blztable.strict_json import strict_decoder

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_BYTES = 64 << 20
MAX_DEPTH = 64
# Lists and objects take most memory for their bytes: 64 MiB of empty lists are more than 1 GB.
MAX_BRACKETS = 1 << 20
# Each key of an object takes some 200 bytes, and may be only two bytes long.
MAX_MEMBERS = 1 << 20
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# The largest whole number any document of the format holds.
MAX_NUMBER = 1 << 62
# Only attributes hold longer ones. Reading a number takes time that grows faster than its digits.
MAX_DIGITS = 4300
_NESTING = {list, dict}


def dumps(value: object) -> bytes:
    """The shortest UTF-8 text of `value`; LimitError past a limit, ValueError for NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = text.encode("utf-8")
    _check_size(data, "a JSON text")
    return data


def loads(data: bytes, what: str) -> Json:
    """Parse `data`; CorruptError naming `what` for anything the format does not allow."""
    _check_size(data, what)
    try:
        decoder = _COUNTING if _may_have_long_numbers(data) else _DECODER
        value: Json = decoder.decode(data.decode("utf-8"))
        # Few brackets cannot nest deeply, and only an escape can stand for a lone surrogate.
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
            _check_depth(value)
        if b"\\" in data and b"\\u" in data:
            _check_text(value)
    except RecursionError:
        raise CorruptError(f"{what}: JSON nested too deeply") from None
    except ValueError as error:
        raise CorruptError(f"{what}: not JSON as the format allows it: {error}") from None
    return value


def number(value: Json, what: str) -> int:
    """A whole number from 0, CorruptError for anything else; True is none."""
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise CorruptError(f"{what}: {str(value)[:40]!r} where a whole number is expected")
    return value


def numbers(value: Json, what: str, count: int | None = None) -> tuple[int, ...]:
    """A list of whole numbers from 0, of `count` where that is known."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise CorruptError(f"{what}: a list of {'' if count is None else count} numbers is missing")
    # All at once: there may be one a row group.
    if value and (set(map(type, value)) != {int} or min(value) < 0 or max(value) > MAX_NUMBER):  # type: ignore[type-var,operator]
        raise CorruptError(f"{what}: a list of numbers holds something else")
    return tuple(value)  # type: ignore[arg-type]


def text(value: Json, what: str) -> str:
    """A text, CorruptError for anything else."""
    if not isinstance(value, str):
        raise CorruptError(f"{what}: a text is expected")
    return value


def _check_size(data: bytes, what: str) -> None:
    """LimitError for a text that would take too much memory, told from its bytes alone."""
    if len(data) > MAX_BYTES:
        raise LimitError(f"{what}: {len(data)} bytes of JSON; at most {MAX_BYTES} are kept")
    # Those inside of texts count as well: to tell them apart is to parse.
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > MAX_BRACKETS:
        raise LimitError(f"{what}: {brackets} brackets in JSON; at most {MAX_BRACKETS} are kept")
    # Each member has a colon. Few texts have many colons, so it is seldom needed to look closely.
    if data.count(b":") > MAX_MEMBERS:
        members = _TEXT.sub(b"", data).count(b":")
        if members > MAX_MEMBERS:
            raise LimitError(f"{what}: {members} members in JSON; at most {MAX_MEMBERS} are kept")


def _short(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a whole number of more than {MAX_DIGITS} digits")
    return int(digits)


def _may_have_long_numbers(data: bytes) -> bool:
    """True where more than `MAX_DIGITS` digits could stand side by side."""
    # A run that long holds a whole window, wherever it begins; most windows end with their first
    # byte, so this costs far less than to look at every number.
    window = MAX_DIGITS // 2
    return any(data[at : at + window].isdigit() for at in range(0, len(data) - window, window))


_DECODER = strict_decoder()
# A call of Python for every whole number makes a large document several times slower to read.
_COUNTING = strict_decoder(parse_int=_short)


def _check_text(value: Json) -> None:
    """ValueError for a lone surrogate, in a key or a text."""
    match value:
        case dict():
            for key, item in value.items():
                key.encode("utf-8")
                _check_text(item)
        case list():
            for item in value:
                _check_text(item)
        case str():
            value.encode("utf-8")


def _check_depth(value: Json) -> None:
    """ValueError for more than `MAX_DEPTH` levels, counted level by level."""
    level = [value] if type(value) in _NESTING else []
    for _ in range(MAX_DEPTH):
        arrays = [item for item in level if isinstance(item, list)]
        objects = [item.values() for item in level if isinstance(item, dict)]
        below = list(chain(chain.from_iterable(arrays), *objects))
        # Of most levels all are numbers or texts: telling so at once keeps opening fast.
        if _NESTING.isdisjoint(map(type, below)):
            return
        level = [item for item in below if type(item) in _NESTING]
    raise ValueError(f"nested more than {MAX_DEPTH} deep")
