"""What the engine asks of a place that keeps bytes under keys.

A key is a path of plain names joined by "/", relative to the root of one table; what lies under it
has no meaning here. Ranges, `put_new` and `list_names` are all that correctness rests on, so that
an object store can be one more implementation.

Two words about time: a value is *visible* as soon as a call returns, and *durable* (it survives a
loss of power) only after it was flushed together with the name that leads to it.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self

Buffer = bytes | bytearray | memoryview


class KeyNotFound(Exception):
    """Nothing lies under this key."""


class KeyTaken(Exception):
    """Something lies under this key already."""


class Reader(Protocol):
    """One stored value, opened for reading ranges of it; usable from several threads.

    It closes itself when nobody holds it any more.
    """

    @property
    def size(self) -> int:
        """Length of the value in bytes, as it was when it was opened."""

    def read(self, offset: int, length: int) -> bytes:
        """The `length` bytes from `offset`; fewer where the value ends before."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; the count is smaller where the value ends."""

    def close(self) -> None:
        """Give the value back; reading afterwards is an error."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Lock(Protocol):
    """A lock that is held until it is closed, or the process ends."""

    def close(self) -> None:
        """Let go; closing twice is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Store(Protocol):
    """Bytes under keys. A medium that fails is `StorageError`, one that refuses `ReadOnlyError`."""

    @property
    def name(self) -> str:
        """What to call this place in a message, usually its path."""

    def open(self, key: str) -> Reader:
        """Open the value under `key`; `KeyNotFound`, or `CorruptError` if it is no plain value."""

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """A range of the value under `key`, all of it by default."""

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key`, replacing another one at a stroke; not durable by itself."""

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value, `KeyTaken` if there is one; after a crash it may be there in part."""

    def publish(self, key: str, data: Buffer, *, durable: bool) -> None:
        """Create a value that is there whole or not at all; `KeyTaken` if there is one.

        With `durable`, the content is flushed before the key appears. The key itself is durable
        only after `flush_names`.
        """

    def flush(self, keys: Sequence[str]) -> None:
        """Make the values under `keys` durable, and every name on the way to them."""

    def flush_names(self, prefix: str) -> None:
        """Make the names directly under `prefix` durable: those added and those removed."""

    def reserve(self, prefix: str) -> bool:
        """Claim an unused prefix for the caller alone; False where anyone claimed or used it."""

    def list_names(self, prefix: str) -> list[str]:
        """The names one level under `prefix` ("" is the root), in no order; empty if none."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values under `keys`; those not there are passed over."""

    def sweep(self, prefix: str) -> None:
        """Remove what killed calls left directly under `prefix`; only while nobody writes there."""

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> Lock:
        """Lock the value or prefix under `key`; `BusyError` when `timeout` seconds were not enough.

        The lock is on what the key names when the call returns: if the value was removed in the
        meantime it is looked up again, and `KeyNotFound` says that it is gone for good. Where the
        medium cannot lock at all, a shared lock is granted and holds nothing.

        A child made by fork holds a shared lock of its parent as well, until both let go; with
        `inherited=False` it does not. It never holds an exclusive one.
        """

    def prepare(self, *, durable: bool = True) -> bool:
        """Make the place ready for its first write; harmless where it is.

        With `durable` its own names are flushed, whoever made them. True if nothing was there
        before, so nothing is there now that anybody left.
        """

    def withdraw(self) -> None:
        """Undo `prepare` as far as nothing was kept since: remove what it made and is empty.

        The root goes only if this store made it. Call it while nobody else can be at work.
        """

    def close(self) -> None:
        """Give back what the store holds open."""
