"""JSON as the format restricts it: UTF-8, no duplicate keys, no NaN, bounded size and depth.

A document may come from anyone. A document that passes here is plain data that can be written
again. Knows nothing of what a document means.
"""

import json
import re
from itertools import chain

from blztable.errors import CorruptError, LimitError
from blztable.strict_json import strict_decoder

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_BYTES = 64 << 20
MAX_DEPTH = 64
# Lists and objects take the most memory per byte: 64 MiB of empty lists take more than 1 GB.
MAX_BRACKETS = 1 << 20
# A member of an object takes about 200 bytes of memory, even if its key is two bytes long.
MAX_MEMBERS = 1 << 20
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# The largest whole number in any document of the format.
MAX_NUMBER = 1 << 62
# Only attributes may have longer numbers. The time to parse a number grows faster than its digits.
MAX_DIGITS = 4300
_NESTING = {list, dict}
# Made once: `json.dumps` makes an encoder at each call, which takes as long as a short text.
# To look for values that contain themselves would take as long again.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
)


def dumps(value: object) -> bytes:
    """Return the shortest UTF-8 text of `value`; LimitError beyond a limit, ValueError for NaN."""
    try:
        data = _ENCODER.encode(value).encode("utf-8")
    except RecursionError:
        raise ValueError("a value that contains itself, or is nested too deeply") from None
    _check_size(data, "a JSON text")
    return data


def loads(data: bytes, context: str) -> Json:
    """Parse `data`; CorruptError that begins with `context` if the format does not allow it."""
    _check_size(data, context)
    try:
        decoder = _COUNTING if _may_have_long_numbers(data) else _DECODER
        value: Json = decoder.decode(data.decode("utf-8"))
        # Few brackets cannot nest deeply, and only an escape can encode a lone surrogate.
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
            _check_depth(value)
        if b"\\" in data and b"\\u" in data:
            _check_text(value)
    except RecursionError:
        raise CorruptError(f"{context}: JSON is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise CorruptError(f"{context}: not valid JSON of the format: {error}") from None
    return value


def number(value: Json, context: str) -> int:
    """Return a whole number from 0; CorruptError for anything else, also for True."""
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise CorruptError(f"{context}: expected a whole number, not {str(value)[:40]!r}")
    return value


def numbers(value: Json, context: str, count: int | None = None) -> tuple[int, ...]:
    """Return a list of whole numbers from 0; CorruptError unless it has `count` entries."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise CorruptError(
            f"{context}: expected a list of {'' if count is None else f'{count} '}numbers"
        )
    # Check all entries at once: there may be one for each row group.
    if value and (set(map(type, value)) != {int} or min(value) < 0 or max(value) > MAX_NUMBER):  # type: ignore[type-var,operator]
        raise CorruptError(f"{context}: expected a list of whole numbers from 0 to {MAX_NUMBER}")
    return tuple(value)  # type: ignore[arg-type]


def text(value: Json, context: str) -> str:
    """Return a text; CorruptError for anything else."""
    if not isinstance(value, str):
        raise CorruptError(f"{context}: expected a text")
    return value


def _check_size(data: bytes, context: str) -> None:
    """LimitError if the text would take too much memory; parses nothing."""
    if len(data) > MAX_BYTES:
        raise LimitError(f"{context}: {len(data)} bytes of JSON; at most {MAX_BYTES} are allowed")
    # Brackets inside texts count too: only parsing can tell them apart.
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > MAX_BRACKETS:
        raise LimitError(f"{context}: {brackets} brackets in JSON; at most {MAX_BRACKETS} are kept")
    # Each member has a colon. Few documents have many colons, so the exact count is seldom needed.
    if data.count(b":") > MAX_MEMBERS:
        members = _TEXT.sub(b"", data).count(b":")
        if members > MAX_MEMBERS:
            raise LimitError(
                f"{context}: {members} members in JSON; at most {MAX_MEMBERS} are kept"
            )


def _bounded_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a whole number of more than {MAX_DIGITS} digits")
    return int(digits)


def _may_have_long_numbers(data: bytes) -> bool:
    """True if `data` may contain a number of more than `MAX_DIGITS` digits."""
    # A number that long contains a whole window, wherever it begins. Most windows fail at their
    # first byte, so this is far cheaper than checking every number.
    window = MAX_DIGITS // 2
    return any(data[at : at + window].isdigit() for at in range(0, len(data) - window, window))


_DECODER = strict_decoder()
# A Python call for every whole number makes reading a large document several times slower.
_COUNTING = strict_decoder(parse_int=_bounded_int)


def _check_text(value: Json) -> None:
    """ValueError if a key or a text has a lone surrogate."""
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
    """ValueError if `value` has more than `MAX_DEPTH` levels."""
    level = [value] if type(value) in _NESTING else []
    for _ in range(MAX_DEPTH):
        arrays = [item for item in level if isinstance(item, list)]
        objects = [item.values() for item in level if isinstance(item, dict)]
        below = list(chain(chain.from_iterable(arrays), *objects))
        # Most levels have only numbers or texts; one check for all of them keeps opening fast.
        if _NESTING.isdisjoint(map(type, below)):
            return
        level = [item for item in below if type(item) in _NESTING]
    raise ValueError(f"nested more than {MAX_DEPTH} deep")
