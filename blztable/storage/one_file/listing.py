"""The listing of a commit: which values there are, and where they lie in the file.

Knows nothing of files and of the meaning of keys. As bytes it is the index of a commit: lines of
JSON, one for each prefix, which are decoded at their first use.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Self

from blztable.errors import CorruptError, LimitError
from blztable.storage.one_file.records import Extent
from blztable.storage.store import Damaged
from blztable.strict_json import strict_decoder

# Bytes of the lines of an index. A name takes about 40, so a prefix may have 400,000 names.
MOST_LINE = 16 << 20
# Bytes of an index, which is read as a whole.
MOST_INDEX = 256 << 20
_DECODER = strict_decoder()
_KEYS = {"name", "position", "length"}
_DIRECTORY_KEYS = {"prefix", "line", "bytes"}


class Listing:
    """The names of values and where they lie, by prefix. A line is decoded at its first use."""

    def __init__(self) -> None:
        # A line is None once its names have changed.
        self._lines: dict[str, bytes | None] = {"": None}
        self._names: dict[str, dict[str, Extent]] = {"": {}}
        # The bytes of the values under each prefix.
        self._bytes: dict[str, int] = {"": 0}
        # No value ends behind this position.
        self._limit = 0
        # The prefixes above those in `_lines`; None until they are needed.
        self._above: set[str] | None = None

    @classmethod
    def decode(cls, data: bytes, limit: int) -> Self:
        """Return the listing of an index; each value of the file ends before `limit`."""
        first, *_ = data.split(b"\n", 1)
        index = _parsed(first, _DIRECTORY_KEYS)
        prefixes, lengths, sizes = index["prefix"], index["line"], index["bytes"]
        _check_texts(prefixes, unique=True)
        _check_numbers([*lengths, *sizes])
        if not len(prefixes) == len(lengths) == len(sizes) or sum(sizes) > limit:
            raise Damaged("the index of the file: its lists do not belong together")
        listing = cls()
        listing._limit = limit
        at = len(first) + 1
        for prefix, length, size in zip(prefixes, lengths, sizes, strict=True):
            listing._lines[prefix] = data[at : at + length]
            listing._bytes[prefix] = size
            listing._names.pop(prefix, None)
            at += length + 1
        if at != len(data) + 1 and at != len(data):
            raise Damaged("the index of the file: its lines have another length")
        return listing

    def copy(self) -> "Listing":
        """Return a listing that can change without this one."""
        other = Listing()
        other._lines, other._names = dict(self._lines), dict(self._names)
        other._bytes, other._limit = dict(self._bytes), self._limit
        return other

    def encode(self) -> bytes:
        """Return the index."""
        lines = [self._line(prefix) for prefix in self._lines]
        index = {
            "prefix": list(self._lines),
            "line": list(map(len, lines)),
            "bytes": [self._bytes[prefix] for prefix in self._lines],
        }
        data = b"\n".join([_text(index), *lines])
        if len(data) > MOST_INDEX:
            raise LimitError("the table has more values than one file can name; use a directory")
        return data

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(self._bytes.values())

    def find(self, key: str) -> Extent | None:
        """Return where the value of a key lies; None if there is none."""
        prefix, name = _parts(key)
        return self.names(prefix).get(name)

    def names(self, prefix: str) -> dict[str, Extent]:
        """Return the values directly under a prefix; empty if there is no such prefix."""
        names = self._names.get(prefix)
        if names is None:
            if prefix not in self._lines:
                return {}
            names = self._decode(prefix)
            self._names[prefix] = names
        return names

    def prefixes(self) -> list[str]:
        """Return all prefixes that have values or were made."""
        return list(self._lines)

    def has_prefix(self, key: str) -> bool:
        """True if the key is a prefix, also an empty one."""
        if self._above is None:
            self._above = set().union(*map(_above, self._lines))
        return key in self._lines or key in self._above

    def check_above(self, name: str, key: str) -> None:
        """Raise CorruptError if a value lies where a key needs a prefix, in the file `name`."""
        for above in _above(key):
            if self.find(above) is not None:
                raise CorruptError(f"{name}/{above}: expected a prefix, found a value")

    def children(self, prefix: str) -> set[str]:
        """Return the names one level under a prefix, of values and prefixes."""
        start = prefix + "/" if prefix else ""
        below = (other[len(start) :] for other in self._lines if other.startswith(start))
        return {name.partition("/")[0] for name in below if name} | set(self.names(prefix))

    def values(self) -> Iterator[tuple[str, Extent]]:
        """Yield each key with its extent."""
        for prefix in self._lines:
            for name, extent in self.names(prefix).items():
                yield (f"{prefix}/{name}" if prefix else name), extent

    def add(self, key: str, extent: Extent) -> None:
        """Name a value; it replaces one of the same key."""
        prefix, name = _parts(key)
        names = self._changed(prefix)
        self._bytes[prefix] += extent.length - names.get(name, Extent(0, 0)).length
        names[name] = extent

    def make(self, prefix: str) -> None:
        """Add an empty prefix."""
        if prefix not in self._lines:
            self._lines[prefix], self._names[prefix], self._bytes[prefix] = None, {}, 0
            if self._above is not None:
                self._above.update(_above(prefix))

    def remove(self, key: str) -> bool:
        """Remove a value or an empty prefix; return False if there is none."""
        prefix, name = _parts(key)
        if name in self.names(prefix):
            self._bytes[prefix] -= self._changed(prefix).pop(name).length
            return True
        if key in self._lines and not self.children(key):
            del self._lines[key], self._bytes[key]
            self._names.pop(key, None)
            self._above = None
            return True
        return False

    def _changed(self, prefix: str) -> dict[str, Extent]:
        self.make(prefix)
        if self._lines[prefix] is not None or prefix in self._names:
            self._names[prefix] = dict(self.names(prefix))
        self._lines[prefix] = None
        return self._names[prefix]

    def _line(self, prefix: str) -> bytes:
        line = self._lines[prefix]
        if line is None:
            names = self._names[prefix]
            line = _text(
                {
                    "name": list(names),
                    "position": [extent.position for extent in names.values()],
                    "length": [extent.length for extent in names.values()],
                }
            )
            if len(line) > MOST_LINE:
                raise LimitError(f"{prefix}: {len(names)} values are more than one file can name")
            self._lines[prefix] = line
        return line

    def _decode(self, prefix: str) -> dict[str, Extent]:
        line = self._lines[prefix]
        assert line is not None, prefix
        lists = _parsed(line, _KEYS)
        names, positions, lengths = lists["name"], lists["position"], lists["length"]
        _check_texts(names, unique=True)
        _check_numbers([*positions, *lengths])
        extents = list(map(Extent, positions, lengths))
        if not len(names) == len(positions) == len(lengths):
            raise Damaged(f"the index of the file: the lists of {prefix!r} differ in length")
        if sum(lengths) != self._bytes[prefix] or any(sum(one) > self._limit for one in extents):
            raise Damaged(f"the index of the file: values of {prefix!r} lie behind its end")
        return dict(zip(names, extents, strict=True))


def check_size(nbytes: int) -> None:
    """Raise Damaged if an index claims more bytes than a reader takes."""
    if nbytes > MOST_INDEX:
        raise Damaged(f"the index of the file has {nbytes} bytes; at most {MOST_INDEX}")


def _above(key: str) -> Iterator[str]:
    """Yield the prefixes above a key, the longest first."""
    while key := key.rpartition("/")[0]:
        yield key


def _parts(key: str) -> tuple[str, str]:
    prefix, _, name = key.rpartition("/")
    return prefix, name


def _text(lists: Mapping[str, object]) -> bytes:
    return json.dumps(lists, separators=(",", ":")).encode()


def _parsed(line: bytes, keys: set[str]) -> dict[str, list[Any]]:
    """Return the lists of a line of the index."""
    # Brackets take the most memory; a line has a few of them.
    if len(line) > MOST_LINE or line.count(b"[") + line.count(b"{") > len(keys) + 1:
        raise Damaged("the index of the file: a line is too long or too deep")
    try:
        lists = _DECODER.decode(line.decode())
    except ValueError as error:
        raise Damaged(f"the index of the file is not valid: {error}") from None
    if not isinstance(lists, dict) or set(lists) != keys:
        raise Damaged(f"the index of the file: expected {sorted(keys)}")
    if not all(isinstance(one, list) for one in lists.values()):
        raise Damaged("the index of the file: expected lists")
    return lists


def _check_texts(texts: list[Any], *, unique: bool) -> None:
    if not set(map(type, texts)) <= {str} or (unique and len(set(texts)) != len(texts)):
        raise Damaged("the index of the file: expected texts that differ")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise Damaged("the index of the file: a name is not valid UTF-8") from None


def _check_numbers(numbers: list[Any]) -> None:
    if numbers and (set(map(type, numbers)) != {int} or min(numbers) < 0):
        raise Damaged("the index of the file: expected whole numbers from 0")
