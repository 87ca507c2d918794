"""Memory store: a store in memory, and the value by which users name one.

Knows nothing of the values. It keeps the promises of `store.Store` for one process, but nothing is
durable. Values and prefixes are entries, so both can be locked.
"""

import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from blztable.closing import Closing
from blztable.errors import BusyError, CorruptError, StorageError
from blztable.storage.held import HeldLock, Holder, StoreCondition
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken, Store


@dataclass(slots=True, eq=False)
class _MemoryValue:
    """A value, or a prefix if `data` is None. Locks are on the entry, not on its key."""

    data: bytes | None
    holder: Holder = field(default_factory=Holder)


class RamStore(Store):
    """Values in memory, which are gone with the store. Other processes do not see them."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._entries: dict[str, _MemoryValue] = {"": _MemoryValue(None)}
        self._renew()
        _stores.add(self)

    def _renew(self) -> None:
        """Make the condition; a thread that held it during a fork is not in the child."""
        # A Condition is reentrant: garbage collection may close a lock while this thread holds it.
        self._changed = StoreCondition()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"{self._name}: a table in memory belongs to its process and cannot be copied or "
            "pickled; write it to a path, or copy() it to one"
        )

    @property
    def name(self) -> str:
        """Name of the store in messages."""
        return self._name

    def open(self, key: str, size: int | None = None) -> "MemoryReader":
        """Open the value under `key`."""
        with self._changed:
            data = self._find(key).data
        if data is None:
            raise CorruptError(f"{self._name}/{key}: expected a value, found a prefix")
        return MemoryReader(data)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of the value under `key`; by default the whole value."""
        with self.open(key) as reader:
            return reader.read(offset, reader.size if length is None else length)

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key`; replace an old one."""
        with self._changed:
            old = self._entries.get(key)
            if old is not None and old.data is None:
                raise StorageError(f"{self._name}/{key}: a value cannot replace a prefix")
            self._add(key, _MemoryValue(bytes(data)))

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value."""
        with self._changed:
            if key in self._entries:
                raise KeyTaken(key)
            self._add(key, _MemoryValue(b"".join(buffers)))

    def publish(self, key: str, data: Buffer, *, durable: bool) -> str:
        """Create a value atomically."""
        self.put_new(key, [data])
        return ""

    def flush(self, keys: Sequence[str], known: Collection[str] = ()) -> None:
        """Check that the values exist; memory does not become durable."""
        with self._changed:
            for key in keys:
                self._find(key)

    def flush_names(self, prefix: str) -> None:
        """Check that the prefix exists; memory does not become durable."""
        with self._changed:
            self._find(prefix)

    def reserve(self, prefix: str) -> bool:
        """Create a prefix; return False if it exists."""
        with self._changed:
            if prefix in self._entries:
                return False
            self._add(prefix, _MemoryValue(None))
            return True

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix`, in no order."""
        start = prefix + "/" if prefix else ""
        with self._changed:
            return [
                key[len(start) :]
                for key in self._entries
                if key and key.startswith(start) and "/" not in key[len(start) :]
            ]

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values and the empty prefixes under `keys`; skip other keys."""
        with self._changed:
            for key in keys:
                if key in self._entries and not self.list_names(key):
                    del self._entries[key]
            self._changed.notify_all()

    def sweep(self, prefix: str) -> None:
        """Do nothing: no call leaves temporary values."""

    def problems(self, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Return nothing: there are no bytes around a value."""
        return ()

    def reclaim(self) -> None:
        """Do nothing: a removed value leaves no room behind."""

    def failures(self) -> Sequence[str]:
        """Return nothing: memory does not fail."""
        return ()

    def holders(self, key: str) -> list[int]:
        """Return this process if it locks the value; others do not see the store."""
        with self._changed:
            entry = self._entries.get(key)
            return [os.getpid()] if entry and not entry.holder.admits(shared=False) else []

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> HeldLock:
        """Lock the value or prefix under `key`; BusyError after `timeout` seconds."""
        del inherited  # A forked child has its own memory.
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                # Look it up each time: the key may have another entry by now.
                entry = self._find(key)
                if entry.holder.admits(shared=shared):
                    break
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise BusyError(
                        f"{self._name}/{key}: still locked after {timeout:g} seconds; try again"
                    )
                self._changed.wait(remaining)
            return HeldLock(entry.holder, shared, lambda: self._changed)

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Create `prefixes` and empty values under `keys` if they are missing."""
        del durable
        with self._changed:
            is_new = not self._entries.keys() - {""}
            for prefix in prefixes:
                self.reserve(prefix)
            for key in keys:
                if key not in self._entries:
                    self.put_new(key, [])
            return is_new

    def withdraw(self) -> None:
        """Do nothing: the root stays."""

    def close(self) -> None:
        """Do nothing: the values stay."""

    def _find(self, key: str) -> _MemoryValue:
        self._check_prefixes(key)
        if key not in self._entries:
            raise KeyNotFound(key)
        return self._entries[key]

    def _add(self, key: str, entry: _MemoryValue) -> None:
        self._check_prefixes(key)
        for prefix in _prefixes(key):
            self._entries.setdefault(prefix, _MemoryValue(None))
        self._entries[key] = entry
        self._changed.notify_all()

    def _check_prefixes(self, key: str) -> None:
        for prefix in _prefixes(key):
            entry = self._entries.get(prefix)
            if entry is not None and entry.data is not None:
                raise CorruptError(f"{self._name}/{prefix}: expected a prefix, found a value")


class MemoryStore:
    """Memory that holds one table; pass it where a path is expected.

    All functions and methods work on it as on a directory: versions, transactions, filters, threads
    that read and write. Its table is gone with the store. Other processes do not see it. It has no
    methods of its own: `copy` brings its table to a file, and a table into it.

    Parameters
    ----------
    name : str, default "memory"
        Name of the store in messages, and `CTable.path`.

    Examples
    --------
    >>> import blztable as blz
    >>> store = blz.MemoryStore()
    >>> blz.to_blz({"city": ["Rome", "Oslo"], "people": [2_748_000, 717_000]}, store)
    >>> with blz.open(store, mode="a") as t:
    ...     t.delete([("people", "<", 1_000_000)])
    Changed(rows_deleted=1, version=2)
    >>> blz.read_table(store)["city"].to_pylist()
    ['Rome']
    """

    def __init__(self, name: str = "memory") -> None:
        # What the package works on: `resolve.store_at` returns it.
        self._ram_store = RamStore(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._ram_store.__reduce__()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._ram_store.name!r})"


class MemoryReader(Closing):
    """A value in memory. Later changes of the key do not affect it."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the value ends earlier."""
        assert offset >= 0
        assert length >= 0
        if self._data is None:
            raise StorageError("the value was closed; open it again")
        return self._data[offset : offset + length]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        view = memoryview(buffer).cast("B")
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the value."""
        self._data = None


_stores: WeakSet[RamStore] = WeakSet()


def _renew_all() -> None:
    for store in list(_stores):
        store._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def _prefixes(key: str) -> list[str]:
    """Return the prefixes of `key`, without the root."""
    parts = key.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]
