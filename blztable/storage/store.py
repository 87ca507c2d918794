"""The protocol of a store: bytes under keys. The engine needs nothing else of a medium.

Knows nothing of tables: the caller passes each name, and the bytes of a value have no meaning here.

A *key* is a path of plain names joined by "/", relative to the root of one table. A *prefix* is a
key above other keys; "" is the root. A missing prefix is created with the first value in it.

Durability. A value is *visible* to all processes when the call returns. It is *durable*, so it
survives a loss of power, only after a flush of its bytes and of each name in its path. Only
`publish`, `flush`, `flush_names` and `prepare` flush. A failed flush is never repeated.
Atomicity. `put`, `publish` and `reserve` happen as a whole or not at all, also in a crash. After a
crash `put_new` may leave a part of a value, and `delete` some of the keys.
Errors. KeyNotFound and KeyTaken are for the engine, which never passes them on. StorageError: the
medium failed. ReadOnlyError: the medium refuses changes. CorruptError: the key names something
other than a value or a prefix. BusyError: a lock was not granted in time. A call that fails removes
the part of a new value that it wrote, and does not change an old value.
Threads. All methods may be called from several threads at once.

In a table that is one file, another process sees the changes of a process that holds a writer's
lock only from its next `publish` on. Where `locks` is false, others see a new value from its
`flush` on, and only `flush` tells that its key was taken; there are no prefixes without values.

A caller never asks which store it has. What stores differ in is said by `locks`, `lists`,
`fetches`, `creates`, `has_one_writer`, `appends_only`, `publishes_all`, `nbytes`,
`may_be_foreign`, `in_one_file`, `lost_keys`, `unfinished_bytes`, `unfinished` and `earlier`; their
bodies here are those of a store on a disk that keeps each value by itself. `path` is None where
only this process has the store.

`tests/storage/test_store_contract.py` checks these promises for each store.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, Self

from blztable.closing import Closing
from blztable.errors import CorruptError

Buffer = bytes | bytearray | memoryview

# Prefixes within each other, more than a table has.
_DEPTH = 100


class ListedValue(NamedTuple):
    """A value as a listing shows it.

    Attributes
    ----------
    etag
        Names the content; "" where the medium does not say it.
    time
        When it was stored, in seconds since 1970 by the clock of the medium; 0 if nobody knows.
    """

    key: str
    size: int
    etag: str = ""
    time: float = 0


# A key, and where its bytes begin and end.
ByteRange = tuple[str, int, int]


class KeyNotFound(Exception):
    """No value or prefix has this key."""


class KeyTaken(Exception):
    """A value or prefix already has this key."""


class Damaged(CorruptError):
    """The store holds values, and what names them is damaged."""


class Reader(Protocol):
    """An open value. Several threads may read ranges of it; it closes itself when collected.

    It still reads the value that it opened after that value was replaced or deleted.
    """

    @property
    def size(self) -> int:
        """Length of the value in bytes when it was opened."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the value ends earlier."""

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


class Nothing(Closing):
    """A lock on a medium without locks, or ranges that nobody needs to ask for."""

    def close(self) -> None:
        """Do nothing."""


class Store(Protocol):
    """Bytes under keys. The module docstring has the promises of all methods.

    Attributes
    ----------
    locks : bool
        True if a lock excludes others. If not, a lock that was granted says nothing, and who needs
        to be alone must not take it for that.
    creates : bool
        True if of several callers who create one value exactly one succeeds. Otherwise nothing is
        written there.
    lists : bool
        True if the medium can say which keys there are.
    fetches : bool
        True if each read takes long, however few bytes it has: `fetch` what a task needs at once.
    has_one_writer : bool
        True if one process writes at a time. It meets everything that others wrote before, and what
        a killed one left is there until the next one writes.
    appends_only : bool
        True if a value that is replaced or removed keeps its room until `reclaim`.
    publishes_all : bool
        True if each publication stores all values anew. So what a commit removes is removed before
        it publishes. A lock excludes this process alone; a publication raises ConflictError if
        another process has published since this one began to write.
    """

    locks: bool = True
    creates: bool = True
    lists: bool = True
    fetches: bool = False
    has_one_writer: bool = False
    appends_only: bool = False
    publishes_all: bool = False

    @property
    def name(self) -> str:
        """Name of the store in messages, usually its path."""

    @property
    def path(self) -> str | None:
        """Path or URL by which another process opens the store; None if there is none."""
        return None

    def open(self, key: str, size: int | None = None) -> Reader:
        """Open the value under `key`, to read ranges of it.

        KeyNotFound if the key does not exist, CorruptError if it is not a plain value. A caller who
        knows that the value has at least `size` bytes may learn of this from the first read only.
        """

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of the value under `key`; by default the whole value.

        Returns fewer bytes if the value ends before the range. Errors as for `open`.
        """

    def fetch(self, ranges: Sequence[ByteRange], gap: int = 0) -> Lock:
        """Ask for ranges of values; reads of them find them there until the result is closed.

        Returns at once. Bytes between two ranges come too if they are at most `gap`. An error is
        raised by the read that needs the range.
        """
        return Nothing()

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key` atomically: a reader sees the old value or the new one.

        Not durable: after a loss of power the value may be the old one, the new one or damaged.
        """

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value, the buffers one after another; KeyTaken if the key exists.

        Not atomic and not durable: after a crash the key may have a part of the value.
        """

    def publish(self, key: str, data: Buffer, *, durable: bool) -> str:
        """Create a value atomically; KeyTaken if the key exists. Return its ETag, "" for none.

        If several processes publish one key at the same time, exactly one succeeds. With `durable`
        the bytes are flushed before the key appears. The key itself is durable only after
        `flush_names`. After a StorageError the caller does not know whether the key exists.
        """

    def flush(self, keys: Sequence[str], known: Collection[str] = ()) -> None:
        """Make the values under `keys` durable, and each name in their paths.

        `known` are prefixes whose own names are durable, as the caller knows.
        KeyNotFound if one of them does not exist. After an error none counts as durable.
        """

    def later(self, key: str, data: Buffer) -> None:
        """Set the value under `key` when there is time, at the latest when the store is closed.

        A failure is told by nobody: the value repeats what other values say.
        """
        self.put(key, data)

    def age(self, key: str) -> float:
        """Return the seconds since the value was stored, by the clock of the medium.

        0 if the medium has locks, which say more. KeyNotFound if it is gone.
        """
        return 0.0

    def flush_names(self, prefix: str) -> None:
        """Make the added and removed names directly under `prefix` durable."""

    def reserve(self, prefix: str) -> bool:
        """Create a prefix; return False if it exists and so belongs to another caller.

        Atomic: if several callers reserve one prefix, exactly one gets True.
        """

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix` ("" is the root), in no order.

        The list is empty if the prefix does not exist. It has all names except those of unfinished
        calls; a name that is added or removed meanwhile may be missing.
        """

    def entries(self, prefix: str, after: str = "") -> Iterator[ListedValue]:
        """Yield the values under `prefix` at any depth whose keys are above `after`, ascending."""
        found = _below(self, prefix, _DEPTH)
        yield from sorted(entry for entry in found if entry.key > after)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values and the empty prefixes under `keys`; skip other keys.

        Not durable: until `flush_names` is called, a loss of power may bring a value back.
        """

    def sweep(self, prefix: str) -> None:
        """Remove temporary values of killed calls directly under `prefix`.

        The caller makes sure that nobody writes under this prefix.
        """

    def problems(self, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Return what is wrong around the values under `keys`: the key, and what it is.

        No reader looks at it, so the values may be intact. A key without a value is skipped. What
        is wrong around all values has the key "".
        """

    @property
    def nbytes(self) -> int:
        """Bytes of everything in the store, also of what no caller can read."""
        return sum(entry.size for entry in self.entries(""))

    def may_be_foreign(self) -> bool:
        """Return True if what is there is too short to tell whose it is."""
        return False

    def use_cache(self, path: str, nbytes: int) -> None:
        """Keep bytes that never change in a directory; ValueError where that saves nothing."""
        raise ValueError(
            f"{self.name}: cache is of remote stores, such as s3://bucket/t.blz; leave it out"
        )

    def belongs_to(self, uuid: str) -> None:
        """Learn which table is there: only its own files have their numbers."""
        del uuid

    def forget_cache(self) -> bool:
        """Remove what was read from the cache, and may be of others; False if nothing was."""
        return False

    def in_one_file(self) -> "Store | None":
        """Return the store of the table in one file at this address; None if no file is there."""
        return None

    def lost_keys(self) -> list[str] | None:
        """Return the keys of the newest publication if it is damaged; None if it is not.

        Those that cannot be read are missing.
        """
        return None

    def unfinished_bytes(self) -> int:
        """Return how many bytes the next writer removes, if no writer is at work.

        They are of a publication that was never finished, or that is damaged.
        """
        return 0

    def unfinished(self) -> "Store | None":
        """Return what is whole of an unfinished publication, to be read; None if nothing is."""
        return None

    def earlier(self) -> "Iterator[Store]":
        """Yield what the store was after each publication that is whole, the newest first.

        Nothing is yielded where only the present values can be found.
        """
        return iter(())

    def rely_on_no_lock(self) -> None:
        """Set `locks` to False from here on, if the medium can do without; else do nothing."""
        return

    def reclaim(self) -> None:
        """Give back the room of removed values; the caller makes sure that nobody writes.

        No byte of a removed value stays.
        """

    def holders(self, key: str) -> list[int]:
        """Return the ids of processes that lock the value under `key`, as far as it is known."""

    def failures(self) -> Sequence[str]:
        """Return what failed after a publication and left no harm; each is returned once."""

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> Lock:
        """Lock the value or prefix under `key`; BusyError after `timeout` seconds.

        The lock is on the value that the key names when the call returns: a value that was replaced
        during the wait is looked up again. KeyNotFound if it is gone. ReadOnlyError if this process
        may not lock it exclusively. On a medium without locks, a shared lock has no effect.

        A forked child also holds its parent's shared locks until both close them, unless
        `inherited=False`. It never holds an exclusive lock.
        """

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Create the root, `prefixes` and empty values under `keys` if they are missing.

        Return True if the root did not exist. With `durable` all names are flushed, also existing
        ones, which the process that created them may not have flushed. The keys have one prefix.
        """

    def withdraw(self) -> None:
        """Remove the root if it is empty and this store created it; close the store.

        The caller makes sure that nobody else uses the store.
        """

    def close(self) -> None:
        """Close the descriptors of the store. A later call opens them again; readers stay open."""


def _below(store: Store, prefix: str, depth: int) -> Iterator[ListedValue]:
    """Yield the values below a prefix."""
    for name in store.list_names(prefix):
        key = f"{prefix}/{name}" if prefix else name
        try:
            with store.open(key) as value:
                yield ListedValue(key, value.size)
        except (CorruptError, KeyNotFound):
            # A prefix, or a link, or it is gone.
            with suppress(CorruptError, KeyNotFound):
                yield from _below(store, key, depth - 1) if depth else ()
