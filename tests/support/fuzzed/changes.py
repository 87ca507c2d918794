"""Random changes of numbers, bytes and JSON, of the kinds that break decoders.

Knows nothing of files.
"""

import json
import random
from copy import deepcopy
from typing import Any

from blztable.format.jsontext import MAX_DEPTH

Random = random.Random

NUMBERS = [0, 1, 2, 3, 7, 8, 9, 16, 24, 40, 63, 64, 127, 128, 255, 256, 1 << 16, (1 << 20) - 1]
NUMBERS += [(1 << bits) + more for bits in (23, 24, 31, 32, 61, 62, 63, 64) for more in (-1, 0, 1)]
NUMBERS += [-1, -2, -8, -(1 << 31), -(1 << 63), 10**30]
WORDS = ["", "x", "values", "ends", "valid", "codes", "dictionary.values", "packed", "|u1", "<i8"]
WORDS += ["bitmap", "|V16", "lz4", "\0", "ä" * 40, "2026-01-01T00:00:00.000000+00:00", "blztable"]
WORDS += ["range", "field", "numpy", "M8[us]", "m8[ns]", "period", "M", "tuple", "float", "nan"]
WORDS += ["masked", "category", "object", "string", "zoned", "arrow", "Europe/Berlin", "UTC", "D"]
WORDS += ["date", "time", "decimal", "bytes", "pytz", "dateutil", "MS", "Int16", "int64", "0x1p+9"]
TEXTS = [b"NaN", b"-Infinity", b"1e999", b"-0", b"1.0", b"1E2", b"9" * 5000, b'"\\ud800"', b"null"]
TEXTS += [b"\xef\xbb\xbf", b"\xff", b"\n", b"[" * 100_000, b'{"a":1,"a":2}', b"{}", b"[]", b","]


def as_text(value: Any) -> bytes:
    """Return JSON as the writer writes it, but of any value; bytes are returned unchanged."""
    if isinstance(value, bytes):
        return value
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def number(random: Random, near: int) -> int:
    """Return a number that often causes trouble, or one near this number."""
    if type(near) is not int or random.random() < 0.5:
        return random.choice(NUMBERS)
    return random.choice(
        [near + 1, near - 1, near * 2, near // 2, -near, near ^ 1 << random.randrange(33)]
    )


def bytes_in(random: Random, raw: bytearray, may_resize: bool = False) -> str:
    """Change some bytes in place."""
    if not raw:
        raw += b"\0" if may_resize else b""
        return "nothing"
    at = random.randrange(len(raw))
    kind = random.randrange(8 if may_resize else 6)
    match kind:
        case 0:
            raw[at] ^= 1 << random.randrange(8)
        case 1:
            raw[at] = random.choice(b"\x00\x01\x7f\x80\xff\xc0\xed\xf4")
        case 2:
            for _ in range(random.randrange(1, 9)):
                raw[random.randrange(len(raw))] = random.randrange(256)
        case 3:
            size = random.choice([2, 4, 8])
            value = random.choice(NUMBERS) % (1 << 8 * size)
            at -= at % size
            raw[at : at + size] = value.to_bytes(size, "little")[: len(raw) - at]
        case 4:
            stop = random.randrange(at, len(raw)) + 1
            raw[at:stop] = random.choice([b"\0", b"\xff"]) * (stop - at)
        case 5:
            other = random.randrange(len(raw))
            size = min(random.randrange(1, 17), len(raw) - max(at, other))
            raw[at : at + size] = bytes(raw[other : other + size])
        case 6:
            del raw[at:]
        case 7:
            raw[at:at] = bytes(random.randrange(256) for _ in range(random.randrange(1, 9)))
    return f"kind {kind} at {at}"


def json_value(random: Random, value: Any) -> tuple[Any, str]:
    """Return a copy with one value replaced, removed, added or moved."""
    root = [deepcopy(value)]
    spots: list[tuple[Any, Any]] = [(root, 0)]
    for parent, key in spots:
        below = parent[key]
        if isinstance(below, dict | list):
            # The first and last entries of a long list.
            keys = list(below) if isinstance(below, dict) else [*range(len(below))][:4]
            spots += [(below, k) for k in keys]
    parent, key = random.choice(spots)
    old = parent[key]
    match random.randrange(8):
        case 0 | 1 | 2:
            new: Any = number(random, old) if type(old) in (int, bool) else other_value(random, old)
        case 3:
            new = other_value(random, old)
        case 4:
            other, place = random.choice(spots)
            new = deepcopy(other[place])
        case 5 if parent is not root:
            del parent[key]
            return root[0], f"no {key!r}"
        case 6 if isinstance(old, list):
            new = [*old, *(old[-1:] or [0])] if random.random() < 0.5 else old[::-1]
        case 7 if isinstance(old, dict):
            new = {**old, random.choice(WORDS): other_value(random, old)}
        case _:
            new = [old]
    parent[key] = new
    return root[0], f"{key!r}: {new!s:.80}"


def other_value(random: Random, old: Any) -> Any:
    nested: Any = []
    for _ in range(random.choice([9, 17, MAX_DEPTH + 1])):
        nested = [nested]
    choices = [
        None,
        True,
        False,
        "",
        [],
        {},
        0,
        1.5,
        -1e308,
        float("nan"),
        nested,
        [[]],
        [0],
        "\ud800",
    ]
    choices += [
        [1] * 1000,
        {"a": {}},
        random.choice(WORDS),
        random.choice(WORDS),
        random.choice(NUMBERS),
    ]
    if isinstance(old, str):
        choices += [old + "x", old[:-1], old * 2, old.upper(), random.choice(WORDS)] * 2
    return random.choice(choices)


def json_text(random: Random, value: Any) -> tuple[bytes, str]:
    """Return the JSON text with a change that `json` would not write."""
    text = bytearray(as_text(value))
    at = random.randrange(len(text) + 1)
    match random.randrange(4):
        case 0:
            said = bytes_in(random, text, may_resize=True)
        case 1:
            word = random.choice(TEXTS)
            text[at:at] = word
            said = f"{word[:20]!r} at {at}"
        case 2:
            # Replacements of a value.
            colon = text.find(b":", at)
            word = random.choice(TEXTS)
            end = min(
                (p for p in (text.find(b",", colon), text.find(b"}", colon)) if p > 0), default=-1
            )
            text[colon + 1 : end] = word
            said = f"{word[:20]!r} behind {colon}"
        case _:
            text[:] = random.choice([*TEXTS, text.decode("utf-8", "replace").encode("utf-16")])
            said = bytes(text[:20]).hex()
    return bytes(text).replace(b"\n", b" "), said


def pieces_of(random: Random, data: bytes) -> bytes:
    """Return a file with a few changes: flips, cuts, moved and repeated pieces."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(changed) or 1)
        length = min(random.choice([1, 8, 48, 512, 4096]), len(changed) - start)
        match random.randrange(7):
            case 0:
                changed[start : start + 1] = bytes([random.randrange(256)])
            case 1:
                del changed[start:]
            case 2:
                del changed[start : start + length]
            case 3:
                other = random.randrange(len(changed) or 1)
                changed[other:other] = changed[start : start + length]
            case 4:
                changed[start : start + length] = bytes(length)
            case 5:
                changed += changed[start : start + length]
            case _:
                bytes_in(random, changed)
    return bytes(changed)
