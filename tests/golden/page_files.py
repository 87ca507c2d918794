"""Files and JSON, as docs/format.md describes them and nothing else.

It imports nothing of blztable. A table in a directory or in one file is a store: names and bytes
under keys. A broken rule raises `Refused`.
"""

import json
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

MAX_JSON_BYTES, MAX_DEPTH, MAX_BRACKETS, MAX_MEMBERS = 64 << 20, 64, 1 << 20, 1 << 20
MAX_DIGITS, MAX_NUMBER = 4300, 1 << 62


class Refused(Exception):
    """Bytes that no table of format version 1 has."""


def need(condition: Any, expected: str) -> None:
    """Raise `Refused` unless the rule holds."""
    if not condition:
        refuse(expected)


def refuse(expected: str) -> NoReturn:
    """Raise `Refused` with the broken rule."""
    raise Refused(f"expected {expected}")


# Stores


def store_of(root: Path) -> Any:
    """Return the files of a table in a directory or in one file."""
    return OneFile(root) if root.is_file() else Directory(root)


@dataclass(frozen=True)
class Directory:
    """The files of a table in a directory."""

    root: Path

    def names(self, key: str) -> list[str]:
        """Return the names below a key."""
        return [path.name for path in (self.root / key).iterdir()]

    def get(self, key: str) -> bytes:
        """Return the bytes of a regular file; refuse symbolic links on the way."""
        place = self.root
        for name in key.split("/"):
            place = place / name
            need(not place.is_symlink(), f"no symbolic link at {place}")
        need(place.exists() and stat.S_ISREG(place.stat().st_mode), f"a file at {place}")
        return place.read_bytes()


FRONT, FOOT, SEAL = (
    struct.Struct("<4sBBBBiiqII"),
    struct.Struct("<8sQQQII8s"),
    struct.Struct("<8sQII"),
)
RECORD = struct.Struct("<4sBBHQQII")


class OneFile:
    """The values of a table in one file: those that the last foot names."""

    def __init__(self, path: Path) -> None:
        data = self.data = path.read_bytes()
        need(len(data) >= FRONT.size, "a front")
        *start, size, _ = FRONT.unpack_from(data)
        need(start == [b"blpk", 4, 2, 2, 1, -1, -1, -1], "the front of a table")
        front = data[: FRONT.size + size]
        holds = parsed(front[FRONT.size :])
        need(isinstance(holds, dict) and holds.get("holds") == "table", "a table")
        sealed, at = 0, len(data)
        while (at := data.rfind(b"blzseal!", 0, at)) >= 0:
            _, end, zero, crc = SEAL.unpack(data[at : at + SEAL.size].ljust(SEAL.size, b"\0"))
            if end == at and zero == 0 and zlib.crc32(data[at : at + 20]) == crc:
                sealed = end
                break
        end = len(data)
        while (end := data.rfind(b"blzf-end", 0, end) + 8) >= 8:
            foot = data[end - FOOT.size : end].rjust(FOOT.size, b"\0")
            magic, block, index, _, front_crc, crc, _ = FOOT.unpack(foot)
            inside = block <= index - RECORD.size and index <= end - FOOT.size
            is_foot = magic == b"blzcomit" and inside and self._has_head(index, end - FOOT.size)
            if is_foot and zlib.crc32(data[block : end - 12]) == crc:
                break
            end -= 1
        need(end >= 8, "a commit that is whole")
        need(end >= sealed, "the commit that was sealed")
        need(front_crc == zlib.crc32(front), "the front of this foot")
        self.values = self._index(data[index : end - FOOT.size], end - FOOT.size)

    def _has_head(self, index: int, end: int) -> bool:
        """Return whether a record head says that an index begins and ends at these places."""
        head = RECORD.unpack_from(self.data, index - RECORD.size)
        return head[:6] == (b"blzr", 2, 0, 0, index - RECORD.size, end - index)

    def _index(self, data: bytes, end: int) -> dict[str, tuple[int, int]]:
        first, *lines = data.split(b"\n")
        prefixes, values = parsed(first), {}
        columns = [prefixes.get(key) for key in ("prefix", "line", "bytes")]
        need(all(isinstance(one, list) and len(one) == len(lines) for one in columns), "lines")
        need(sum(map(whole, columns[2])) <= len(self.data), "no more bytes than the file")
        need(len(set(columns[0])) == len(lines), "no prefix twice")
        for prefix, length, total, line in zip(*columns, lines, strict=True):
            need(len(line) == length, "the length of a line")
            entry = parsed(line)
            names, *places = (entry.get(key) for key in ("name", "position", "length"))
            need(len(set(names)) == len(names) == len(places[0]) == len(places[1]), "lists")
            need(sum(map(whole, places[1])) == total, "the bytes of a prefix")
            for name, at, size in zip(names, *places, strict=True):
                need(whole(at) + size <= end, "a value before the foot")
                values[f"{prefix}/{name}".strip("/")] = (at, size)
        return values

    def names(self, key: str) -> list[str]:
        """Return the names below a key."""
        found = (one.rpartition("/") for one in self.values)
        return [name for prefix, _, name in found if prefix == key]

    def get(self, key: str) -> bytes:
        """Return a value."""
        need(key in self.values, f"a value {key}")
        at, size = self.values[key]
        return self.data[at : at + size]


# JSON


def parsed(data: bytes) -> Any:
    """Parse JSON as the format allows it."""
    need(len(data) <= MAX_JSON_BYTES, "64 MiB of JSON at most")
    need(data.count(b"[") + data.count(b"{") <= MAX_BRACKETS, "fewer brackets")
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=partial(_unique, [0]),
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=refuse,
        )
        # Only a lone surrogate cannot be encoded again.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        refuse("JSON")
    need(_depth(value) <= MAX_DEPTH, "JSON nested 64 deep at most")
    return value


def _unique(members: list[int], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members[0] += len(pairs)
    need(members[0] <= MAX_MEMBERS and len(dict(pairs)) == len(pairs), "no key twice")
    return dict(pairs)


def _integer(digits: str) -> int:
    need(len(digits.lstrip("-")) <= MAX_DIGITS, "a number of fewer digits")
    return int(digits)


def _finite(digits: str) -> float:
    need(abs(float(digits)) < float("inf"), "a finite number")
    return float(digits)


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner: Iterator[Any] = iter(value.values() if isinstance(value, dict) else value)
    return 1 + max(map(_depth, inner), default=0)


def whole(value: Any) -> int:
    """Return an integer of the format."""
    need(type(value) is int and 0 <= value <= MAX_NUMBER, "a whole number")
    return int(value)
