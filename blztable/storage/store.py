"""The protocol of a store: bytes under keys. It is all that the engine asks of a medium.

Knows nothing of tables: it is told each name, and the bytes of a value have no meaning here.

A *key* is a path of plain names joined by "/", relative to the root of one table. A *prefix* is a
key under which other keys lie; "" is the root. A missing prefix is made with the first value in it.

Durability. A value is *visible* to all processes when the call returns. It is *durable*, so it
survives a loss of power, only after a flush of its bytes and of each name on the way to it. Only
`publish`, `flush`, `flush_names` and `prepare` flush. A failed flush is never repeated.
Atomicity. `put`, `publish` and `reserve` happen as a whole or not at all, also in a crash. After a
crash `put_new` may leave a part of a value, and `delete` some of the keys.
Errors. KeyNotFound and KeyTaken answer a question; the engine never passes them on. StorageError:
the medium failed. ReadOnlyError: the medium refuses changes. CorruptError: something other than a
value or a prefix lies under the key. BusyError: a lock was not granted in time. A call that fails
removes the part of a new value that it wrote, and leaves an old value as it was.
Threads. All methods may be called from several threads at once.

Correctness rests on ranges, `put_new`, `publish` and `list_names`, so an object store can be one
more implementation. `tests/storage/test_store_contract.py` holds each store to these promises.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self

Buffer = bytes | bytearray | memoryview


class KeyNotFound(Exception):
    """No value or prefix lies under this key."""


class KeyTaken(Exception):
    """A value or prefix lies under this key already."""


class Reader(Protocol):
    """An open value. Several threads may read ranges of it; it closes itself when collected.

    It goes on reading the value that it opened after that is replaced or deleted.
    """

    @property
    def size(self) -> int:
        """Length of the value in bytes when it was opened."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the value ends before."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""

    def close(self) -> None:
        """Close the value; a later read raises StorageError. Closing twice is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Lock(Protocol):
    """A lock, held until it is closed or collected, or the process ends."""

    def close(self) -> None:
        """Release the lock; closing twice is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Store(Protocol):
    """Bytes under keys; see the module for what all methods promise."""

    @property
    def name(self) -> str:
        """Name of the store in messages, usually its path."""

    def open(self, key: str) -> Reader:
        """Open the value under `key` to read ranges of it, for example those of an `Address`.

        KeyNotFound if nothing lies under the key, CorruptError if it is not a plain value.
        """

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of the value under `key`; by default the whole value.

        Fewer bytes where the value ends before the range does. Errors as for `open`.
        """

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key`. Atomic: a reader sees the old value or the new one.

        Not durable: after a loss of power the value may be the old one, the new one or damaged.
        """

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value, the buffers one after the other; KeyTaken if the key exists.

        Not atomic and not durable: after a crash a part of the value may lie under the key.
        """

    def publish(self, key: str, data: Buffer, *, durable: bool) -> None:
        """Create a value atomically; KeyTaken if the key exists.

        Of all processes that publish one key at the same time exactly one succeeds. With `durable`
        the bytes are flushed before the key appears. The key itself is durable only after
        `flush_names`. After a StorageError the caller does not know whether the key exists.
        """

    def flush(self, keys: Sequence[str]) -> None:
        """Make the values under `keys` durable, and each name on the way to them.

        KeyNotFound if one of them does not exist. After an error none of them is taken for durable.
        """

    def flush_names(self, prefix: str) -> None:
        """Make the names directly under `prefix` durable: the added and the removed ones."""

    def reserve(self, prefix: str) -> bool:
        """Create an unused prefix. False if it exists: it belongs to another caller.

        Atomic: of all callers that reserve one prefix exactly one gets True.
        """

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix` ("" is the root), in no order.

        Empty if the prefix does not exist. A name that is added or removed meanwhile may be in the
        list or not; all others are in it. Names of unfinished calls are not.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values and the empty prefixes under `keys`; skip other keys.

        Not durable: after a loss of power a value may be back, until `flush_names` is called.
        """

    def sweep(self, prefix: str) -> None:
        """Remove what killed calls left directly under `prefix`.

        The caller makes sure that nobody writes there.
        """

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> Lock:
        """Lock the value or prefix under `key`; BusyError after `timeout` seconds.

        The lock is on the value that the key names when the call returns. If the value was removed
        while the call waited, it is looked up again; KeyNotFound if it is gone. ReadOnlyError if
        this process may not lock it exclusively. Where the medium has no locks, a shared lock is
        granted and holds nothing.

        A child made by fork also holds its parent's shared locks, until both close them; with
        `inherited=False` it does not. It never holds an exclusive one.
        """

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Make the root, `prefixes` and empty values under `keys`, where they are missing.

        True if nothing existed before, so nothing is left from another creation. With `durable` the
        names are flushed, also those that existed: their maker may not have flushed them. The keys
        lie under one prefix.
        """

    def withdraw(self) -> None:
        """Remove the root if it is empty and this store made it; close the store.

        The caller makes sure that nobody else uses the store.
        """

    def close(self) -> None:
        """Release what the store holds open. A later call opens it again; readers stay open."""
