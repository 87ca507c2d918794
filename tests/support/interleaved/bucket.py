"""A bucket in memory, and what its calls touch: the medium of walks over tables in stores."""

import time
from collections.abc import Iterator
from typing import NoReturn

from blztable.storage.store import Buffer, KeyNotFound, KeyTaken, ListedValue
from support.interleaved.walk import Medium, Touched


class MemoryBucket:
    """Values under keys; each call happens at one moment. All values are of the same time."""

    name = "bucket"
    lists = True
    creates = True
    has_root = False

    def __init__(self, values: dict[str, bytes] | None = None) -> None:
        self.values = dict(values or {})

    def copy(self) -> "MemoryBucket":
        """Return a bucket with the same values."""
        return MemoryBucket(self.values)

    def get(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        """Return the bytes from `start` to `stop`."""
        return self._value(key)[start:stop]

    def size(self, key: str) -> int:
        """Return the bytes of a value."""
        return len(self._value(key))

    def create(self, key: str, data: Buffer) -> str:
        """Create a value; KeyTaken if there is one."""
        if key in self.values:
            raise KeyTaken(key)
        return self.put(key, data)

    def put(self, key: str, data: Buffer) -> str:
        """Set a value; return its ETag."""
        self.values[key] = bytes(data)
        return _etag(self.values[key])

    def delete(self, keys: list[str]) -> None:
        """Remove values."""
        for key in keys:
            self.values.pop(key, None)

    def entries(self, prefix: str, after: str = "") -> Iterator[ListedValue]:
        """Yield the values below a prefix whose keys are above `after`, ascending."""
        start = f"{prefix}/" if prefix else ""
        for key in sorted(self.values):
            if key.startswith(start) and key > after:
                value = self.values[key]
                yield ListedValue(key, len(value), _etag(value), _TIME)

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below a prefix."""
        start = f"{prefix}/" if prefix else ""
        below = (key[len(start) :] for key in self.values if key.startswith(start))
        return sorted({key.partition("/")[0] for key in below})

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bucket in memory belongs to its process")

    def _value(self, key: str) -> bytes:
        if key not in self.values:
            raise KeyNotFound(key)
        return self.values[key]


_TIME = time.time()


def _etag(data: bytes) -> str:
    return f'"{hash(data):x}"'


def _reading(key: str, *_: object) -> Touched:
    return Touched((key,), is_changed=False)


def _changing(key: str, *_: object) -> Touched:
    return Touched((key,), is_changed=True)


def _listing(prefix: str, *_: object) -> Touched:
    return Touched((f"{prefix}/" if prefix else "",), is_changed=False)


MEDIUM = Medium(
    touches={
        "get": _reading,
        "size": _reading,
        "create": _changing,
        "put": _changing,
        "delete": lambda keys: Touched(tuple(keys), is_changed=True),
        "entries": _listing,
        "names": _listing,
    },
    content=lambda bucket: frozenset(bucket.values.items()),
)
