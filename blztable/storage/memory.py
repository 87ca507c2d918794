"""A store in memory: for tests, and for tables that never reach a disk.

Keeps the promises of `Store` for one process. A key is an entry, and a prefix is one too once
something was put or reserved under it, so both can be locked. Nothing is ever durable.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Self

from blztable.errors import BusyError, CorruptError, StorageError
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken


@dataclass(slots=True, eq=False)
class _Entry:
    """A value, or a prefix where there are no bytes; locks are on the entry, not on its key."""

    data: bytes | None
    shared: int = 0
    exclusive: bool = False


class MemoryStore:
    """Bytes under keys, in a dict."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._entries: dict[str, _Entry] = {"": _Entry(None)}
        # Reentrant: a lock may be collected, and so closed, while this thread is in here.
        self._changed = Condition()

    @property
    def name(self) -> str:
        """What to call this place in a message."""
        return self._name

    def open(self, key: str) -> "MemoryReader":
        """The value under `key`, for reading ranges of it."""
        with self._changed:
            data = self._find(key).data
        if data is None:
            raise CorruptError(f"{self._name}/{key}: expected a value, found a prefix")
        return MemoryReader(data)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """A range of the value under `key`, all of it by default."""
        with self.open(key) as reader:
            return reader.read(offset, reader.size if length is None else length)

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key`, replacing another one."""
        with self._changed:
            old = self._entries.get(key)
            if old is not None and old.data is None:
                raise StorageError(f"{self._name}/{key}: cannot replace a prefix by a value")
            self._add(key, _Entry(bytes(data)))

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value, `KeyTaken` if there is one."""
        with self._changed:
            if key in self._entries:
                raise KeyTaken(key)
            self._add(key, _Entry(b"".join(buffers)))

    def publish(self, key: str, data: Buffer, *, durable: bool) -> None:
        """Create a value that is there whole or not at all; `KeyTaken` if there is one."""
        self.put_new(key, [data])

    def flush(self, keys: Sequence[str]) -> None:
        """Check that the values are there; memory does not become durable."""
        with self._changed:
            for key in keys:
                self._find(key)

    def flush_names(self, prefix: str) -> None:
        """Check that the prefix is there; memory does not become durable."""
        with self._changed:
            self._find(prefix)

    def reserve(self, prefix: str) -> bool:
        """Claim an unused prefix; False where anyone claimed or used it."""
        with self._changed:
            if prefix in self._entries:
                return False
            self._add(prefix, _Entry(None))
            return True

    def list_names(self, prefix: str) -> list[str]:
        """The names one level under `prefix`, in no order."""
        start = prefix + "/" if prefix else ""
        with self._changed:
            return [
                key[len(start) :]
                for key in self._entries
                if key and key.startswith(start) and "/" not in key[len(start) :]
            ]

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values, and prefixes with nothing under them."""
        with self._changed:
            for key in keys:
                if key in self._entries and not self.list_names(key):
                    del self._entries[key]
            self._changed.notify_all()

    def sweep(self, prefix: str) -> None:
        """Do nothing: no call leaves anything half done here."""

    def lock(
        self, key: str, *, shared: bool, timeout: float, inherited: bool = True
    ) -> "MemoryLock":
        """Lock the value or prefix under `key`; `BusyError` after `timeout` seconds."""
        del inherited  # A child made by fork has a memory of its own.
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                # Looked up each time: what the key names may be another entry by now.
                entry = self._find(key)
                if not entry.exclusive and (shared or not entry.shared):
                    break
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise BusyError(f"{self._name}/{key}: still locked after {timeout:g} seconds")
                self._changed.wait(remaining)
            if shared:
                entry.shared += 1
            else:
                entry.exclusive = True
            return MemoryLock(entry, shared, self._changed)

    def prepare(self, *, durable: bool = True) -> bool:
        """Make what the first write needs; nothing here is durable. True if nothing was there."""
        del durable
        with self._changed:
            was_empty = not self._entries.keys() - {""}
            self._entries.setdefault("data", _Entry(None))
            self._entries.setdefault("meta", _Entry(None))
            self._entries.setdefault("meta/manifest", _Entry(None))
            self._entries.setdefault("meta/lock", _Entry(b""))
            self._entries.setdefault("meta/flight", _Entry(b""))
            return was_empty

    def withdraw(self) -> None:
        """Remove what `prepare` made, as far as nothing lies below it."""
        self.delete(["data", "meta/lock", "meta/flight", "meta/manifest", "meta"])

    def close(self) -> None:
        """Hold nothing; the values stay."""

    def _find(self, key: str) -> _Entry:
        self._check_prefixes(key)
        if key not in self._entries:
            raise KeyNotFound(key)
        return self._entries[key]

    def _add(self, key: str, entry: _Entry) -> None:
        self._check_prefixes(key)
        for prefix in _prefixes(key):
            self._entries.setdefault(prefix, _Entry(None))
        self._entries[key] = entry
        self._changed.notify_all()

    def _check_prefixes(self, key: str) -> None:
        for prefix in _prefixes(key):
            entry = self._entries.get(prefix)
            if entry is not None and entry.data is not None:
                raise CorruptError(f"{self._name}/{prefix}: expected a prefix, found a value")


class MemoryReader:
    """One value in memory, as it was when it was opened."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        """The `length` bytes from `offset`; fewer where the value ends before."""
        assert offset >= 0
        assert length >= 0
        if self._data is None:
            raise StorageError("reading a value that was closed")
        return self._data[offset : offset + length]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; the count is smaller where the value ends."""
        view = memoryview(buffer).cast("B")
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Give the value back."""
        self._data = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryLock:
    """A lock on an entry, held until it is closed or collected."""

    def __init__(self, entry: _Entry, shared: bool, changed: Condition) -> None:
        self._entry: _Entry | None = entry
        self._shared = shared
        self._changed = changed

    def close(self) -> None:
        """Let go; closing twice is harmless."""
        with self._changed:
            entry, self._entry = self._entry, None
            if entry is None:
                return
            if self._shared:
                entry.shared -= 1
            else:
                entry.exclusive = False
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _prefixes(key: str) -> list[str]:
    """The prefixes on the way to `key`, without the root."""
    parts = key.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]
