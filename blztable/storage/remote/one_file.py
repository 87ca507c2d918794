"""One file in a bucket: a table in one file, which each publication replaces by a new object.

Knows nothing of the values, and no library. It is the store of a table in one file over an
`BucketFile`, with these differences.

Reads. Nothing is asked twice of an object: its end is read by one request when it is looked at, and
values by ranges of it. It is looked at again when names are listed again that were listed since.

Changes. What is written is in memory until `publish`, which stores one object: the values that
live, the new one behind them, their names and a foot. It takes the place of the object that was
looked at, and of no other, so two writers never lose each other's commits: the later one gets a
ConflictError, and its change is made again. Locks are a matter of this process.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from blztable import tuning
from blztable.closing import Closing
from blztable.errors import CommitUnknownError, ConflictError, StorageError, TableExistsError
from blztable.storage.files import File
from blztable.storage.held import StoreCondition
from blztable.storage.one_file.commits import (
    FileCommit,
    check_front,
    front_of,
    newest,
)
from blztable.storage.one_file.listing import Listing
from blztable.storage.one_file.records import (
    FOOT_BYTES,
    INDEX,
    SEAL_BYTES,
    Foot,
    crc32,
    encode_foot,
    encode_seal,
    new_front,
    record,
    record_bytes,
)
from blztable.storage.one_file.store import OneFileStore
from blztable.storage.one_file.writing import Writing, new_id, replaced
from blztable.storage.remote.blocks import BlockCache
from blztable.storage.remote.bucket import Bucket
from blztable.storage.remote.bucket_file import SPARE_BYTES, BucketFile, Draft, ObjectReader
from blztable.storage.store import Buffer, ByteRange, KeyNotFound, Lock, Nothing

# More bytes than most fronts have.
_FRONT_BYTES = 512
# How often an object is looked at again that was replaced meanwhile.
_ATTEMPTS = 5
# More bytes of the end of an object are not kept in memory.
_MOST_END = 8 << 20


class ObjectWriting(Writing):
    """What this process writes, until it replaces the object."""

    _file: BucketFile

    @classmethod
    def begin(cls, file: File, cached: FileCommit | None) -> Self:
        """Begin with the newest commit of the object that was looked at."""
        assert isinstance(file, BucketFile)
        draft = file.drafted
        commit = cached if cached is not None and cached.source in (draft, draft.base) else None
        if commit is None and draft.base is not None and draft.base.size:
            commit = newest(draft.base, file.name)
        if commit is None:
            if draft.base is None or not draft.base.size:
                draft.append([new_front(new_id())])
            front = front_of(draft, file.name)
            commit = FileCommit(draft, Listing(), len(front), b"", len(front), crc32(front))
        return cls(file, replace(commit, source=draft))

    def _see(self, commit: FileCommit) -> None:
        super()._see(commit)
        # Behind all bytes of the object, also those that no commit names.
        self._end = self._file.size

    def publish(self, key: str, data: Buffer) -> None:
        """Replace the object by one that has this value, too."""
        before = self.listing.copy()
        try:
            self.add(key, [data])
            try:
                self._replace(key)
            except ConflictError:
                if not self._has_landed(key, data):
                    raise
        except BaseException:
            self.listing = before
            raise

    def publish_names(self) -> None:
        """Replace the object, if there is one with other names."""
        if self._has_changed and self._file.seen() is not None:
            self._replace(None)

    def reclaim(self) -> None:
        """Replace the object if it has bytes that nobody needs, or removed names."""
        base = self._file.seen()
        if self._has_changed or (base is not None and base.size != self._live_bytes()):
            self._replace(None)

    @property
    def is_due(self) -> bool:
        """Return False: each publication leaves out what is dead."""
        return False

    def end(self) -> None:
        """Forget what was not published, unless nothing was published yet."""
        base = self._file.seen()
        if base is None:
            self._see(replace(self.commit, listing=self.listing, behind=self._file.size))
        else:
            self.commit = replace(self.commit, source=base)

    def _live_bytes(self) -> int:
        """Return the length of an object that has only what this one needs."""
        values = sum(record_bytes(key, extent.length) for key, extent in self.listing.values())
        front = len(front_of(self.commit.source, self._file.name))
        index = record_bytes("", len(self.listing.encode()))
        return front + values + index + FOOT_BYTES + SEAL_BYTES

    def _replace(self, key: str | None) -> None:
        """Replace the object by one with the values that live, that of the key at the end."""
        source, file = self.commit.source, self._file
        assert isinstance(source, Draft)
        image = bytearray()

        def append(buffers: Sequence[Buffer]) -> None:
            for buffer in buffers:
                image.extend(buffer)

        with _asked(source, [(0, _FRONT_BYTES), *self._extents()], tuning.current.gap_bytes):
            check_front(source, self.commit, file.name)
            append([front_of(source, file.name)])
            # The same front: it tells that this is the same table.
            listing, end = self._copy_values(append, len(image))
        block = end
        if key is not None:
            # A read of the end has the newest version, too.
            extent = listing.find(key)
            assert extent is not None
            block = extent.position - record_bytes(key, 0)
        append(record(end, "", [listing.encode()], INDEX))
        foot = Foot(block, end + record_bytes("", 0), 0, self.commit.front_crc)
        append([encode_foot(foot, [bytes(image[block:])])])
        append([encode_seal(len(image))])
        kept = max(min(len(image) - block, _MOST_END), tuning.current.tail_bytes) + SPARE_BYTES
        file.replace(image, min(kept, len(image)))
        commit = newest(file.drafted, file.name)
        assert commit is not None
        self._see(replace(commit, source=file.drafted))

    def _has_landed(self, key: str, data: Buffer) -> bool:
        """True if an object that replaced ours has this value: a reply was lost, and others came.

        CommitUnknownError if that is not known.
        """
        file, message = self._file, "the value is gone, or was never there"
        for _ in range(_ATTEMPTS):
            try:
                reader = file.look()
                commit = None if reader is None else newest(reader, file.name)
                if reader is None or commit is None or commit.front_crc != self.commit.front_crc:
                    return False
                extent = commit.listing.find(key)
                if extent is None:
                    # The commit of whoever came first had the same key.
                    break
                if commit.read(extent, 0, extent.length) != data:
                    return False
            except ConflictError as error:
                # It was replaced between two requests.
                message = str(error)
            except StorageError as error:
                message = str(error)
                break
            else:
                file.take(reader)
                file.lock(0)
                self._see(replace(commit, source=file.drafted))
                return True
        raise CommitUnknownError(
            f"{file.name}: another writer has replaced the file, and it is not known whether this "
            f"change was stored before; open the table again and look at its version: {message}"
        )

    def _extents(self) -> Iterator[tuple[int, int]]:
        """Yield where the records of the values lie that live."""
        for key, extent in self.listing.values():
            end = extent.position + extent.length
            yield extent.position - record_bytes(key, 0), end


class _AskedOfObjects(Closing):
    """What one call has asked of several objects."""

    def __init__(self, asked: Sequence[Lock]) -> None:
        self._asked = asked

    def close(self) -> None:
        """Drop all of it."""
        for one in self._asked:
            one.close()


class BucketFileStore(OneFileStore):
    """Bytes under keys in one object of a bucket."""

    has_one_writer = False
    appends_only = False
    fetches = True
    publishes_all = True
    _writing_kind = ObjectWriting
    _file: BucketFile

    def __init__(self, file: BucketFile) -> None:
        """Ask for nothing yet."""
        super().__init__(file)
        self.creates = file.bucket.creates
        # The prefixes that were listed since the last look.
        self._listed: set[str] = set()
        # True once another table, or none, was found there.
        self._is_gone = False

    @property
    def path(self) -> str | None:
        """The URL; None for an object that the user made."""
        return self.name if "://" in self.name else None

    def __reduce__(self) -> tuple[Callable[..., OneFileStore], tuple[object, ...]]:
        return at, (self._file.bucket, self._file.blocks)

    def use_cache(self, path: str, nbytes: int) -> None:
        """Keep bytes of objects in a directory."""
        self._file.blocks = BlockCache(path, nbytes)

    def forget_cache(self) -> bool:
        """Remove what was read from the cache; False if nothing was."""
        return self._file.blocks is not None and self._file.blocks.forget()

    def _forget_locks(self) -> None:
        super()._forget_locks()
        self._pins = StoreCondition()

    def _pin_condition(self) -> StoreCondition:
        """Return a condition that nobody holds who waits for a reply.

        Garbage collection may release a pin in any thread, also in the one that reads the reply.
        """
        return self._pins

    def fetch(self, ranges: Sequence[ByteRange], gap: int = 0) -> Lock:
        """Ask for ranges of values side by side, as ranges of the object."""
        by_source: dict[int, tuple[ObjectReader | Draft, list[tuple[int, int]]]] = {}
        for key, start, stop in ranges:
            with suppress(KeyNotFound):
                commit, (position, length) = self._find(key)
                source = commit.source
                assert isinstance(source, ObjectReader | Draft)
                _, some = by_source.setdefault(id(source), (source, []))
                some.append((position + start, position + min(stop, length)))
        return _AskedOfObjects([_asked(source, some, gap) for source, some in by_source.values()])

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix`, in no order."""
        with self._changed:
            if self._writing is None:
                if prefix in self._listed:
                    self._look()
                self._listed.add(prefix)
            return super().list_names(prefix)

    def problems(self, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Compare the record of each value with its checksums, some at a time."""
        some: list[str] = []
        nbytes = 0
        for key in [*keys, None]:
            if key is not None:
                some.append(key)
                with suppress(KeyNotFound):
                    nbytes += self._find(key)[1].length
            if key is None or nbytes > tuning.current.ahead_bytes // 4:
                with self._records(some):
                    yield from super().problems(some)
                some, nbytes = [], 0

    def _records(self, keys: Iterable[str]) -> Lock:
        """Ask for the records of values."""
        source: ObjectReader | Draft | None = None
        extents = [(0, _FRONT_BYTES)]
        for key in keys:
            with suppress(KeyNotFound):
                commit, extent = self._find(key)
                assert isinstance(commit.source, ObjectReader | Draft)
                source = commit.source
                start = max(extent.position - record_bytes(key, 0), 0)
                extents.append((start, extent.position + extent.length))
        return Nothing() if source is None else _asked(source, extents, tuning.current.gap_bytes)

    def publish(self, key: str, data: Buffer, *, durable: bool) -> str:
        """Replace the object by one that has the value, too: a commit."""
        etag = super().publish(key, data, durable=durable)
        # What is there now is known.
        self._listed.clear()
        return etag

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Begin a draft with these names, if no object is there; publish nothing."""
        if self._file.current() is None:
            self._check_no_directory()
        return super().prepare(prefixes, keys, durable=durable)

    def _check_no_directory(self) -> None:
        """Raise TableExistsError if the address is that of a table in a directory."""
        bucket = self._file.bucket
        if bucket.lists and any(name != "" for name in bucket.names("meta")):
            raise TableExistsError(
                f"{self.name} is a directory, and a file cannot replace it at one stroke; remove "
                "it first, or choose another path"
            )

    def unfinished(self) -> OneFileStore | None:
        """Return what is whole of an object that was cut; a draft is nobody else's."""
        return None if isinstance(self._file.current(), Draft) else super().unfinished()

    def withdraw(self) -> None:
        """Do nothing: what was not published is nowhere."""

    @property
    def is_current(self) -> bool:
        """True if the same table is there, as far as it was looked at."""
        return not self._is_gone

    def _check_attached(self) -> None:
        """Raise ConflictError if another table was found there, or none any more."""
        if self._is_gone:
            raise replaced(self.name)

    def _current(self) -> FileCommit | None:
        """Return the newest commit of the object that was looked at, or of what replaced it."""
        try:
            return super()._current()
        except ConflictError:
            self._look()
            return super()._current()

    def _look(self) -> None:
        """Look at the object again; a store stays with its table, which has one front."""
        self._listed.clear()
        if self._is_gone:
            return
        before, reader = self._known.newest, self._file.look()
        now = None
        for left in reversed(range(_ATTEMPTS)):
            try:
                now = None if reader is None else newest(reader, self.name)
                break
            except ConflictError:
                # It was replaced between two requests.
                if not left:
                    raise
                reader = self._file.look()
        if before is None or (isinstance(before.source, Draft) and before.source.base is None):
            # Nothing was there.
            self._file.take(reader)
        elif now is None or now.front_crc != before.front_crc:
            self._is_gone = True
        else:
            self._file.take(reader)


def _asked(source: ObjectReader | Draft, ranges: Iterable[tuple[int, int]], gap: int) -> Lock:
    """Ask for ranges of an object."""
    return source.fetch(ranges, gap) or Nothing()


def at(bucket: Bucket, blocks: BlockCache | None = None) -> BucketFileStore:
    """Return the store of the object at the address of a bucket."""
    return BucketFileStore(BucketFile(bucket, blocks))


def found(bucket: Bucket, blocks: BlockCache | None = None) -> BucketFileStore | None:
    """Return the store of the object at the address of a bucket; None if none is there."""
    if not bucket.has_root:
        return None
    store = at(bucket, blocks)
    source = store._file.seen()
    return store if source is not None and source.size else None
