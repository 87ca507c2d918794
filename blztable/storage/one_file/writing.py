"""Writing: what a process appends to a table in one file while it holds the lock of the file.

Knows nothing of other threads; the store calls it under its own lock.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from blztable import tuning
from blztable.errors import BlzError, ConflictError, CorruptError, StorageError
from blztable.storage.files import File
from blztable.storage.one_file.commits import (
    FileCommit,
    behind_record,
    check_front,
    front_of,
    is_unborn,
    newest,
    records,
)
from blztable.storage.one_file.listing import Listing
from blztable.storage.one_file.records import (
    FOOT_BYTES,
    ID_DIGITS,
    INDEX,
    VALUE,
    Extent,
    Foot,
    crc32,
    decode_head,
    encode_foot,
    encode_seal,
    new_front,
    next_front,
    record,
    record_bytes,
    record_head,
)
from blztable.storage.store import Buffer, Damaged, KeyNotFound

_COPY_BYTES = 8 << 20


class Writing:
    """What this process appends, while it holds the lock of the file.

    Attributes
    ----------
    commit : Commit
        The newest commit.
    listing : Listing
        Its names, with those that were added and without those that were removed.
    users : set of object
        One for each lock of a writer that is held, and for each change that is made.
    """

    def __init__(self, file: File, commit: FileCommit) -> None:
        self._file = file
        self._see(commit)
        self.users: set[object] = set()
        # The bytes before this position are durable; what others wrote may not be.
        self._flushed = 0
        # True after a flush that failed, or a write whose bytes could not be removed.
        self._has_failed = False
        # Where the last commit of this process ends that published a value.
        self._published = 0

    @classmethod
    def begin(cls, file: File, cached: FileCommit | None) -> Self:
        """Find the newest commit, and cut off what killed writers left behind it."""
        source = file.current()
        if source is None:
            raise KeyNotFound(file.name)
        if is_unborn(source):
            file.cut(0)
            file.append([new_front(new_id())])
        if cached is not None and cached.source is not source:
            cached = None
        commit = newest(source, file.name, cached)
        if commit is None:
            front = front_of(source, file.name)
            commit = FileCommit(source, Listing(), len(front), b"", len(front), crc32(front))
        writing = cls(file, commit)
        if source.size > commit.behind:
            writing._end = file.cut(commit.behind)
        return writing

    @property
    def locks(self) -> int:
        """Number of locks that writers hold, and of changes that are made."""
        return len(self.users)

    def _see(self, commit: FileCommit) -> None:
        self.commit, self.listing = commit, commit.listing.copy()
        self._end = commit.behind
        # What was removed from the names of the commit since then.
        self._removed: list[str] = []
        self._has_changed = False

    def sync(self) -> None:
        """Make all bytes durable, if they may not be."""
        self._check()
        if self._flushed < self._end:
            try:
                self._file.flush()
            except BlzError:
                # The kernel takes the pages for clean now, so another flush would succeed.
                self._has_failed = True
                raise
            self._flushed = self._end

    def add(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Append a record, and name its value."""
        written = record(self._end, key, buffers)
        start = self._end + sum(map(_length, written[:3]))
        self._append(written)
        self.listing.add(key, Extent(start, self._end - start))
        self._has_changed = True

    def make(self, prefix: str) -> None:
        """Name an empty prefix."""
        if not self.listing.has_prefix(prefix):
            self.listing.make(prefix)
            self._has_changed = True

    def remove(self, key: str) -> bool:
        """Take a value or an empty prefix out of the names; return False if there is none."""
        is_there = self.listing.remove(key)
        if is_there:
            self._removed.append(key)
            self._has_changed = True
        return is_there

    def publish(self, key: str, data: Buffer) -> None:
        """Append a value, all names and a foot, in one write."""
        before, base = self.listing.copy(), self.commit
        written = record(self._end, key, [data])
        start = self._end + sum(map(_length, written[:3]))
        self.listing.add(key, Extent(start, memoryview(data).nbytes))
        try:
            self._publish(written)
        finally:
            if self.commit is base:
                self.listing = before
            else:
                self._published = self.commit.end

    def check_place(self) -> None:
        """Raise ConflictError if the name is that of another file by now."""
        if not self._file.is_there():
            raise replaced(self._file.name)

    def publish_names(self) -> None:
        """Append the names and a foot, if they differ from those of the commit."""
        if self._has_changed:
            if self.commit.damage:
                # Only a new version takes the place of a damaged one.
                raise Damaged(self.commit.damage)
            self._publish([])

    def reclaim(self) -> None:
        """Rewrite the file if it has a removed value, or if a twentieth of it is dead."""
        if self._has_removed() or (self._end - self.listing.nbytes) * 20 > self._end:
            self.rewrite()

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._end

    @property
    def is_due(self) -> bool:
        """True if so much of the file is dead that the end of a commit rewrites it."""
        live = self.listing.nbytes
        return (
            not self._has_failed
            and live <= tuning.current.rewritten_bytes
            and self._end - live > max(live, tuning.current.dead_bytes)
        )

    def rewrite(self) -> None:
        """Copy the values that live to a new file, which takes the place of this one."""
        self._check()
        self.check_place()
        new = self._file.beside(self.listing.nbytes)
        if new is None:
            return
        try:
            self._copy(new.append)
            new.flush()
            new.take_place()
        finally:
            new.discard()
        source = self._file.current()
        commit = None if source is None else newest(source, self._file.name)
        if commit is None:
            raise StorageError(f"{self._file.name}: the file that was written is gone")
        self._see(commit)

    def end(self) -> None:
        """Cut off what no commit names; seal the commit, and publish the removals since it.

        Only a flushed commit is sealed. So if a loss of power leaves the seal, it leaves the
        commit. The removals are not flushed, so they come behind the seal. After a failure there is
        neither: a later writer takes the names of removed values away.
        """
        commit, removed = self.commit, self._removed
        end = self._file.cut(commit.behind) if self._end > commit.behind else commit.behind
        self._see(commit)
        self._end = end
        if self._has_failed:
            return
        is_flushed = commit.end == self._published and commit.end <= self._flushed
        if is_flushed and end == commit.behind:
            self._append([encode_seal(commit.end)])
            self._see(replace(commit, behind=self._end))
        for key in removed:
            self.remove(key)
        self.publish_names()

    def _has_removed(self) -> bool:
        """True if the file has a value that is not named any more, or bytes that are no record."""
        source = self.commit.source
        check_front(source, self.commit, self._file.name)
        live = {extent for _, extent in self.listing.values()}
        end = len(front_of(source, self._file.name))
        for head in records(source, end):
            if head.kind == VALUE and head.value not in live:
                return True
            end = behind_record(source, head)
        return end < self._end

    def _publish(self, block: list[Buffer]) -> None:
        begin = self._end
        at = begin + sum(map(_length, block))
        index = record(at, "", [self.listing.encode()], INDEX)
        block = [*block, *index]
        front_crc = self.commit.front_crc
        previous = self.commit.end if self.commit.tail else 0
        foot = Foot(begin, at + sum(map(_length, index[:3])), previous, front_crc)
        block.append(encode_foot(foot, block))
        try:
            self._append(block)
        finally:
            if self._end > begin:
                self._see(
                    replace(
                        self.commit,
                        listing=self.listing,
                        end=self._end,
                        tail=b"".join(block),
                        behind=self._end,
                        damage="",
                    )
                )

    def _append(self, buffers: Sequence[Buffer]) -> None:
        """Append bytes, or leave the file as it was.

        An exception of a signal handler may come when all bytes are written. They stay then: a
        reader may have read a commit.
        """
        self._check()
        end = self._end + sum(map(_length, buffers))
        try:
            self._file.append(buffers)
        except BaseException:
            self._has_failed = True
            with suppress(BlzError):
                if self._file.size == end:
                    self._end, self._has_failed = end, False
                else:
                    self._has_failed = self._file.cut(self._end) != self._end
            raise
        self._end = end

    def _check(self) -> None:
        """Refuse to write behind bytes that may be lost."""
        if self._has_failed:
            raise StorageError(
                f"{self._file.name}: a write or a flush failed, so what this process wrote since "
                "it locked the file may be lost; end its transactions, and write again"
            )

    def _copy(self, append: Callable[[Sequence[Buffer]], None]) -> None:
        """Append the front, the values that live, their names and a foot to a new file."""
        source = self.commit.source
        check_front(source, self.commit, self._file.name)
        front = next_front(front_of(source, self._file.name), new_id())
        append([front])
        listing, end = self._copy_values(append, len(front))
        index = record(end, "", [listing.encode()], INDEX)
        foot = Foot(end, end + sum(map(_length, index[:3])), 0, crc32(front))
        append([*index, encode_foot(foot, index)])
        append([encode_seal(end + sum(map(_length, index)) + FOOT_BYTES)])

    def _copy_values(
        self, append: Callable[[Sequence[Buffer]], None], end: int
    ) -> tuple[Listing, int]:
        """Append the values that live to a new file; return their names, and where they end."""
        source, listing = self.commit.source, Listing()
        for key, extent in sorted(self.listing.values(), key=lambda value: value[1]):
            # The checksum is that of the old record, so damage stays visible.
            at = extent.position - record_bytes(key, 0)
            head = None if at < 0 else decode_head(source.read(at, extent.position - at), at)
            if head is None or (head.key, head.value) != (key, extent):
                raise CorruptError(f"{self._file.name}/{key}: the head of the record is damaged")
            start = record_head(end, key, extent.length, head.crc)
            append(start)
            end += sum(map(_length, start))
            listing.add(key, Extent(end, extent.length))
            for offset in range(0, extent.length, _COPY_BYTES):
                size = min(_COPY_BYTES, extent.length - offset)
                append([self.commit.read(extent, offset, size)])
            end += extent.length
        for prefix in self.listing.prefixes():
            listing.make(prefix)
        return listing, end


def replaced(name: str) -> ConflictError:
    """Return the error of a change to a table whose path leads to another file, or to none."""
    return ConflictError(
        f"{name}: the table was removed or replaced by another file; open it again"
    )


def new_id() -> str:
    """Return a number that no other file has, for its front."""
    return secrets.token_hex(ID_DIGITS // 2)


def _length(buffer: Buffer) -> int:
    return memoryview(buffer).nbytes
