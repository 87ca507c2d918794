"""Remote store: values in a bucket as a store.

Knows nothing of the values, and no library. It keeps the promises of `store.Store` for a medium
without locks. A value that is open is never replaced: the keys are those of a table.

Theory of operation. What a reader asks for ahead is kept in `fetched.py`. New values are uploaded
by threads (`uploads.py`), so `put_new` returns before they are stored, and `flush` waits for them.
`publish` waits for itself alone. A value that the medium has stored is durable.
"""

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from blztable.closing import Closing
from blztable.errors import ReadOnlyError, StorageError
from blztable.storage.remote import one_file
from blztable.storage.remote.blocks import BlockCache
from blztable.storage.remote.bucket import Bucket
from blztable.storage.remote.fetched import Asked, Fetched
from blztable.storage.remote.uploads import PROBES, Uploads, created
from blztable.storage.store import (
    Buffer,
    ByteRange,
    KeyNotFound,
    KeyTaken,
    ListedValue,
    Nothing,
    Store,
)

# Values below these prefixes never change, and their keys have a number of their own.
_LASTING = ("data/", "meta/leaf/")
# Keys of one request that removes.
_KEYS_AT_ONCE = 1000


class RemoteStore(Store):
    """Values in a bucket."""

    locks = False
    fetches = True

    def __init__(self, bucket: Bucket, blocks: BlockCache | None = None) -> None:
        """Ask for nothing yet; keep bytes of values that never change in blocks."""
        self._bucket, self._blocks = bucket, blocks
        # The table whose values these are.
        self._uuid = ""
        self.lists, self.creates = bucket.lists, bucket.creates
        self._uploads = Uploads(bucket)
        self._fetched = Fetched(self._get)

    def __reduce__(self) -> tuple[type["RemoteStore"], tuple[Bucket, BlockCache | None]]:
        return RemoteStore, (self._bucket, self._blocks)

    @property
    def name(self) -> str:
        """The address of the bucket, and the path in it."""
        return self._bucket.name

    @property
    def path(self) -> str | None:
        """The URL; None for an object that the user made."""
        return self._bucket.name if "://" in self._bucket.name else None

    def open(self, key: str, size: int | None = None) -> "RemoteReader":
        """Open the value under `key`; nothing is asked for if its size is known."""
        if size is None:
            size = self._fetched.size(key)
        if size is None:
            self._uploads.arrived(key)
            size = self._bucket.size(key)
        return RemoteReader(self._fetched, key, size)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of the value under `key`; by default the whole value."""
        return b"".join(self._fetched.read(key, offset, length))

    def _get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        self._uploads.arrived(key)
        if self._blocks is None or stop is None or not self._uuid or not key.startswith(_LASTING):
            return self._bucket.get(key, start, stop)
        # Two tables at one address may have used one number.
        value = f"{self._bucket.name}\n{self._uuid}\n{key}"
        return self._blocks.read(value, start, stop, partial(self._bucket.get, key))

    def fetch(self, ranges: Sequence[ByteRange], gap: int = 0) -> Asked:
        """Ask for ranges of values side by side."""
        return self._fetched.ask(ranges, gap)

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix`, in no order."""
        self._uploads.arrived()
        return self._bucket.names(prefix)

    def entries(self, prefix: str, after: str = "") -> Iterator[ListedValue]:
        """Yield the values under `prefix` at any depth whose keys are above `after`, ascending."""
        self._uploads.arrived()
        return self._bucket.entries(prefix, after)

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> Nothing:
        """Grant a lock that excludes nobody."""
        return Nothing()

    def holders(self, key: str) -> list[int]:
        """Return nothing: nobody knows who reads."""
        return []

    def failures(self) -> Sequence[str]:
        """Return nothing: nothing is done after a publication."""
        return ()

    def problems(self, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Return nothing: there are no bytes around a value."""
        return ()

    def in_one_file(self) -> Store | None:
        """Return the store of the object at the address of the bucket, if one is there."""
        return one_file.found(self._bucket, self._blocks)

    def use_cache(self, path: str, nbytes: int) -> None:
        """Keep bytes of data files and leaves in a directory."""
        self._blocks = BlockCache(path, nbytes)

    def belongs_to(self, uuid: str) -> None:
        """Keep bytes under the name of this table from now on."""
        self._uuid = uuid

    def forget_cache(self) -> bool:
        """Remove what was read from the cache; False if nothing was."""
        return self._blocks is not None and self._blocks.forget()

    def withdraw(self) -> None:
        """Do nothing: there is no root."""

    def close(self) -> None:
        """Wait for what was to be set later; connections belong to the library."""
        self._uploads.close()

    # What changes something.

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key`."""
        self._check_writable()
        self._bucket.put(key, data)

    def later(self, key: str, data: Buffer) -> None:
        """Set the value under `key` when there is time, at the latest when the store is closed."""
        self._uploads.later(key, data)

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Begin to upload a new value; `flush` tells if the key was taken by another one."""
        self._check_writable()
        self._uploads.begin(key, b"".join(buffers))

    def publish(self, key: str, data: Buffer, *, durable: bool) -> str:
        """Create a value; KeyTaken if there is one, which may be ours.

        ReadOnlyError if `prepare` found that creations replace values.
        """
        self._check_writable()
        if self._uploads.probed() == PROBES:
            raise ReadOnlyError(
                f"{self.name}: the server creates a value where one is, so two writers could lose "
                "rows; write to a server that keeps to If-None-Match"
            )
        return created(self._bucket, key, data)

    def flush(self, keys: Sequence[str], known: Collection[str] = ()) -> None:
        """Wait until the values under `keys` are stored; StorageError if one is not."""
        self._uploads.wait(keys)

    def flush_names(self, prefix: str) -> None:
        """Do nothing: a name is stored with its value."""

    def reserve(self, prefix: str) -> bool:
        """Return True: there are no prefixes, and who reserves one has a number of the clock."""
        return True

    def delete(self, keys: Iterable[str]) -> None:
        """Remove values, but none that may be another one's, because its upload failed."""
        self._check_writable()
        removed = self._uploads.known(keys)
        for start in range(0, len(removed), _KEYS_AT_ONCE):
            self._bucket.delete(removed[start : start + _KEYS_AT_ONCE])

    def sweep(self, prefix: str) -> None:
        """Do nothing: no call leaves temporary values."""

    def reclaim(self) -> None:
        """Do nothing: a removed value leaves no room behind."""

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Begin to try whether of two creations one fails; `publish` waits for the answer.

        Return True: nothing has to be made here.
        """
        self._check_writable()
        self._uploads.probe(f"meta/probe-{secrets.token_hex(16)}")
        return True

    def age(self, key: str) -> float:
        """Return the seconds since the value was stored, by the clock of the medium."""
        probe = f"meta/probe-{secrets.token_hex(16)}"
        with suppress(KeyTaken):  # It is ours, and the reply was lost.
            self._bucket.create(probe, b"")
        try:
            now, then = (self._time(one) for one in (probe, key))
        finally:
            self._bucket.delete([probe])
        return now - then

    def _time(self, key: str) -> float:
        for entry in self._bucket.entries(key.rpartition("/")[0], ""):
            if entry.key == key:
                return entry.time
        raise KeyNotFound(key)

    def _check_writable(self) -> None:
        if not self.creates:
            raise ReadOnlyError(f"{self.name} is only read; choose another place to write to")


class RemoteReader(Closing):
    """An open value of a bucket."""

    __slots__ = ("_fetched", "_key", "size")

    def __init__(self, fetched: Fetched, key: str, size: int) -> None:
        """Ask for nothing yet; the value has at least `size` bytes."""
        self._fetched: Fetched | None = fetched
        self._key = key
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the value ends earlier."""
        return b"".join(self._opened().read(self._key, offset, length))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        return self._opened().read_into(self._key, offset, buffer)

    def close(self) -> None:
        """Close the value."""
        self._fetched = None

    def _opened(self) -> Fetched:
        if self._fetched is None:
            raise StorageError("the value was closed; open it again")
        return self._fetched
