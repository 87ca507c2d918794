"""Remote store: values in a bucket as a store, which is read only so far.

Knows nothing of the values, and no library. It keeps the promises of `store.Store` for readers. A
value is never replaced by another one, as long as a reader has it: its keys are those of a table.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NoReturn

from blztable.closing import Closing
from blztable.errors import ReadOnlyError, StorageError
from blztable.storage.remote.bucket import Bucket
from blztable.storage.remote.fetched import Asked, Fetched
from blztable.storage.store import Buffer, ByteRange, ListedValue, Nothing, Store


class RemoteStore(Store):
    """Values in a bucket."""

    locks = False
    fetches = True

    def __init__(self, bucket: Bucket) -> None:
        """Ask for nothing yet."""
        self._bucket = bucket
        self.lists = bucket.lists
        self._fetched = Fetched(bucket.get)

    def __reduce__(self) -> tuple[type["RemoteStore"], tuple[Bucket]]:
        return RemoteStore, (self._bucket,)

    @property
    def name(self) -> str:
        """The address of the bucket, and the path in it."""
        return self._bucket.name

    def open(self, key: str, size: int | None = None) -> "RemoteReader":
        """Open the value under `key`; nothing is asked for if its size is known."""
        if size is None:
            size = self._bucket.size(key)
        return RemoteReader(self, key, size)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of the value under `key`; by default the whole value."""
        if length is None:
            return bytes(self._bucket.get(key, offset))
        return b"".join(self.pieces(key, offset, length))

    def pieces(self, key: str, offset: int, length: int) -> Iterator[memoryview]:
        """Yield the bytes of a range one after another; fewer if the value ends earlier."""
        stop = offset + length
        while offset < stop:
            piece = self._fetched.find(key, offset)
            if piece is None:
                some = memoryview(self._bucket.get(key, offset, stop))
                is_last = True
            else:
                some = piece.bytes()[offset - piece.start : stop - piece.start]
                is_last = offset + len(some) < min(piece.stop, stop)
            yield some
            offset += len(some)
            if is_last:
                return

    def fetch(self, ranges: Sequence[ByteRange], gap: int = 0) -> Asked:
        """Ask for ranges of values side by side."""
        return self._fetched.ask(ranges, gap)

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix`, in no order."""
        return self._bucket.names(prefix)

    def entries(self, prefix: str, after: str = "") -> Iterator[ListedValue]:
        """Yield the values under `prefix` at any depth whose keys are above `after`, ascending."""
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

    def withdraw(self) -> None:
        """Do nothing: there is no root."""

    def close(self) -> None:
        """Do nothing: connections belong to the library."""

    # What changes something.

    def put(self, key: str, data: Buffer) -> None:
        """Refuse."""
        self._refuse()

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Refuse."""
        self._refuse()

    def publish(self, key: str, data: Buffer, *, durable: bool) -> None:
        """Refuse."""
        self._refuse()

    def flush(self, keys: Sequence[str], known: Collection[str] = ()) -> None:
        """Refuse."""
        self._refuse()

    def flush_names(self, prefix: str) -> None:
        """Refuse."""
        self._refuse()

    def reserve(self, prefix: str) -> bool:
        """Refuse."""
        self._refuse()

    def delete(self, keys: Iterable[str]) -> None:
        """Refuse."""
        self._refuse()

    def sweep(self, prefix: str) -> None:
        """Refuse."""
        self._refuse()

    def reclaim(self) -> None:
        """Refuse."""
        self._refuse()

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReadOnlyError(
            f"{self.name}: tables in remote stores are only read; write the table to a local path "
            "and upload its directory"
        )


class RemoteReader(Closing):
    """An open value of a bucket."""

    __slots__ = ("_key", "_store", "size")

    def __init__(self, store: RemoteStore, key: str, size: int) -> None:
        """Ask for nothing yet; the value has at least `size` bytes."""
        self._store: RemoteStore | None = store
        self._key = key
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the value ends earlier."""
        return b"".join(self._pieces(offset, length))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        view, filled = memoryview(buffer).cast("B"), 0
        for piece in self._pieces(offset, len(view)):
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled

    def close(self) -> None:
        """Close the value."""
        self._store = None

    def _pieces(self, offset: int, length: int) -> Iterator[memoryview]:
        assert offset >= 0
        assert length >= 0
        if self._store is None:
            raise StorageError("the value was closed; open it again")
        return self._store.pieces(self._key, offset, length)
