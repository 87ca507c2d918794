"""Commits in a file: find the newest one, and read a value that it names.

Knows nothing of writing and of the meaning of keys.

The last foot of the file is the newest commit, and a seal behind it says that the commit must be
whole. If the file ends with neither, a writer is at work or was killed: the records behind the last
known commit are followed, and then the bytes that no record explains are searched for a foot and a
seal, so that damage hides no later commit. If a sealed commit is damaged, the last whole one before
it is returned and says so (`FileCommit.damage`): its versions can be read, and a writer appends
behind the damaged bytes.

What no reader of a table in one file looks at: the heads of records, and their checksums.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from blztable import tuning
from blztable.closing import Closing
from blztable.errors import CorruptError, StorageError
from blztable.storage.one_file.listing import Listing, check_size
from blztable.storage.one_file.records import (
    FOOT_BYTES,
    FOOT_MAGIC,
    HEAD_BYTES,
    HEAD_MAGIC,
    HEADER_BYTES,
    INDEX,
    SEAL_BYTES,
    SEAL_MAGIC,
    VALUE,
    Extent,
    Foot,
    RecordHead,
    crc32,
    decode_foot,
    decode_head,
    decode_seal,
    front_length,
    has_header,
    is_part_of_front,
    is_whole,
    key_length,
    record_bytes,
)
from blztable.storage.store import Damaged, KeyNotFound, Reader

T = TypeVar("T")

# Bytes that one step of a search takes.
_SEARCH_BYTES = 4 << 20
# More bytes than a creation writes before its first flush.
_MOST_UNBORN = 4 << 10
# A file of a stranger may have many false feet; each costs a read of its block.
_FALSE_FEET = 100
# More bytes of a commit are not kept in memory.
_MOST_TAIL = 8 << 20


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FileCommit:
    """A commit as it lies in a file.

    Attributes
    ----------
    end : int
        Where its foot ends; the length of the front if there is no foot yet.
    behind : int
        Where the next record begins: behind the foot and its seal.
    tail : bytes
        The last bytes before `end`; from the manifest of the commit on, unless that is very long.
    front_crc : int
        The crc32 of the front, as the foot says.
    damage : str
        What is wrong with a newer commit, whose seal is behind this one; empty if nothing is.
    """

    source: Reader
    listing: Listing
    end: int
    tail: bytes
    behind: int
    front_crc: int
    damage: str = ""

    def read(self, extent: Extent, offset: int, length: int) -> bytes:
        """Return bytes of a value; fewer if the value ends earlier."""
        length = max(min(length, extent.length - offset), 0)
        start = extent.position + offset
        begin = self.end - len(self.tail)
        if begin <= start < self.end:
            return self.tail[start - begin : start - begin + length]
        return self.source.read(start, length)

    def read_into(self, extent: Extent, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes of a value; return their number."""
        view = memoryview(buffer).cast("B")[: max(extent.length - offset, 0)]
        return self.source.read_into(extent.position + offset, view)


class ValueReader(Closing):
    """An open value."""

    __slots__ = ("_commit", "_extent", "size")

    def __init__(self, commit: FileCommit, extent: Extent) -> None:
        self._commit: FileCommit | None = commit
        self._extent = extent
        self.size = extent.length

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the value ends earlier."""
        return self._opened().read(self._extent, offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        return self._opened().read_into(self._extent, offset, buffer)

    def close(self) -> None:
        """Close the value."""
        self._commit = None

    def _opened(self) -> FileCommit:
        commit = self._commit
        if commit is None:
            raise StorageError("the value was closed; open it again")
        return commit


def is_unborn(source: Reader) -> bool:
    """True for a file that a killed creation left before it flushed the front.

    A loss of power may leave a part of the front, or zeros.
    """
    if source.size > _MOST_UNBORN:
        return False
    data = source.read(0, source.size)
    return is_part_of_front(data) or not data.strip(b"\0")


def is_anyones(source: Reader | None) -> bool:
    """True for what a killed creation may have left, if others may have written it as well."""
    if source is None or not source.size or not is_unborn(source):
        return False
    return not has_header(source.read(0, HEADER_BYTES))


def front_of(source: "Reader | _FileEnd", name: str) -> bytes:
    """Return the front of a file; CorruptError if it is not a table in one file."""
    length = front_length(source.read(0, HEADER_BYTES))
    front = b"" if length is None else source.read(0, length)
    if length is None or len(front) < length:
        raise CorruptError(f"{name}: expected a table, found another file")
    return front


def check_front(source: "Reader | _FileEnd", commit: "FileCommit", name: str) -> None:
    """Raise Damaged if the front of a file is not the one that the commit was written behind."""
    try:
        is_intact = crc32(front_of(source, name)) == commit.front_crc
    except CorruptError:
        is_intact = False
    if not is_intact:
        raise Damaged(
            f"{name}: the first bytes of the file are damaged; write the table to a new one with "
            'blztable.copy(source, target, on_corrupt="skip")'
        )


def newest(source: Reader, name: str, cached: FileCommit | None = None) -> FileCommit | None:
    """Return the newest commit of a file; None if there is none.

    `known` is a commit of this file, found before. The front is compared with the newest commit
    where its bytes are read anyway.
    """
    size = source.size
    tail = _FileEnd(source, max(size - tuning.current.tail_bytes, 0), size)
    sealed = _seal_at(tail, size - SEAL_BYTES)
    found = _commit(tail, size if sealed is None else sealed, name)
    if found is None:
        found = cached
        start = cached.behind if cached is not None else len(front_of(source, name))
        at = start
        for head in records(source, start):
            at = behind_record(source, head)
            if head.kind == INDEX:
                sealed = max(sealed or 0, _seal_at(source, head.end + FOOT_BYTES) or 0)
                commit = _commit(source, head.end + FOOT_BYTES, name)
                if commit is None:
                    # The search finds what is behind. A stranger may have many such indexes.
                    break
                found = commit
        found = _search(source, FOOT_MAGIC, _commit_of_foot, at, name) or found
        sealed = max(sealed or 0, _search(source, SEAL_MAGIC, _seal_of, at, name) or 0)
    if sealed and (found is None or found.end < sealed):
        damage = f"{name}: the newest commit, which ends at byte {sealed}, is damaged"
        if found is None or not found.listing.nbytes:
            raise Damaged(
                f"{damage}; write what is whole to a new table with "
                'blztable.copy(source, target, on_corrupt="skip")'
            )
        # Nothing behind it is cut off, so nothing is lost that another program could still read.
        found = replace(found, behind=size, damage=damage)
    if found is not None and found is not cached and size <= tuning.current.tail_bytes:
        check_front(tail, found, name)
    return found


def check_first_bytes(source: Reader | None, name: str) -> None:
    """Raise Damaged if the front of a file is damaged, which no value covers."""
    commit = None if source is None else newest(source, name)
    if source is not None and commit is not None:
        check_front(source, commit, name)


class _FileEnd:
    """Bytes up to a position, read at once; those before are read as they are asked for."""

    def __init__(self, source: "Reader | _FileEnd", start: int, stop: int) -> None:
        self.source: Reader = source.source if isinstance(source, _FileEnd) else source
        self._start = start
        self.data = source.read(start, stop - start)

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the tail ends earlier."""
        if offset < self._start:
            return self.source.read(offset, length)
        return self.data[offset - self._start : offset - self._start + length]


def whole_commits(source: Reader, name: str) -> Iterator[FileCommit]:
    """Yield the commits of a file whose feet are whole, the newest first."""
    return _found(source, FOOT_MAGIC, _commit_of_foot, HEADER_BYTES, name)


def keys_behind(source: Reader, start: int, name: str) -> Iterator[str]:
    """Yield the keys of the values whose records begin behind a position, the last first."""
    for head in _found(source, HEAD_MAGIC, _head_at, start, name):
        if head.kind == VALUE:
            yield head.key


def everything(source: Reader, name: str) -> FileCommit:
    """Return all whole records of a file as one commit, whether a commit names them or not."""
    listing, front = Listing(), front_of(source, name)
    end = len(front)
    for head in records(source, end):
        if head.kind == VALUE:
            listing.add(head.key, head.value)
        end = behind_record(source, head)
    return FileCommit(source, listing, end, b"", end, crc32(front))


def records(source: Reader, start: int) -> Iterator[RecordHead]:
    """Yield the heads of the whole records from a position on, up to the first that is damaged.

    The values are not compared with their checksums.
    """
    window, begin = b"", start
    at = start
    while True:
        needed = HEAD_BYTES
        head = None
        while head is None:
            if at < begin or at + needed > begin + len(window):
                window, begin = source.read(at, max(tuning.current.tail_bytes, needed)), at
            data = window[at - begin : at - begin + needed]
            named = key_length(data, at)
            if named is None or len(data) < needed:
                return
            if needed == HEAD_BYTES + named:
                head = decode_head(data, at)
                if head is None or head.end > source.size:
                    return
            needed = HEAD_BYTES + named
        yield head
        at = behind_record(source, head)


def behind_record(source: Reader, head: RecordHead) -> int:
    """Return where the record behind this one begins."""
    if head.kind != INDEX:
        return head.end
    at = head.end + FOOT_BYTES
    return at if _seal_at(source, at) is None else at + SEAL_BYTES


def _seal_at(source: Reader | _FileEnd, position: int) -> int | None:
    return decode_seal(source.read(max(position, 0), SEAL_BYTES), position)


def _commit(source: Reader | _FileEnd, end: int, name: str) -> FileCommit | None:
    """Return the commit whose foot ends at this position; None if there is none."""
    begin, foot_at = max(end - tuning.current.tail_bytes, 0), end - FOOT_BYTES
    tail = _FileEnd(source, begin, end)
    foot = decode_foot(tail.data[-FOOT_BYTES:], end)
    if foot is None:
        return None
    if foot.block < begin:
        tail = _FileEnd(source, max(foot.block, end - _MOST_TAIL), end)
    if not _has_block(tail, foot, end):
        return None
    if not is_whole(tail.data[-FOOT_BYTES:], _crc(tail, foot.block, foot_at)):
        return None
    try:
        check_size(foot_at - foot.index)
        listing = Listing.decode(tail.read(foot.index, foot_at - foot.index), foot_at)
    except Damaged as error:
        raise Damaged(f"{name}: {error}") from None
    behind = end if _seal_at(source, end) != end else end + SEAL_BYTES
    return FileCommit(tail.source, listing, end, tail.data, behind, foot.front_crc)


def _has_block(source: _FileEnd, foot: Foot, end: int) -> bool:
    """True if the block of a foot is the record of a value, or none, and that of an index."""
    at = foot.index - HEAD_BYTES
    index = _head(source, at)
    if index is None or index.kind != INDEX or index.value.position != foot.index:
        return False
    if index.end != end - FOOT_BYTES:
        return False
    manifest = _head(source, foot.block)
    return at == foot.block or (manifest is not None and manifest.end == at)


def _head(source: "Reader | _FileEnd", position: int) -> RecordHead | None:
    """Return the head of the record at this position; None if there is none."""
    if position < 0:
        return None
    named = key_length(source.read(position, HEAD_BYTES), position)
    if named is None:
        return None
    return decode_head(source.read(position, HEAD_BYTES + named), position)


def _crc(source: _FileEnd, start: int, stop: int) -> int:
    """Return the crc32 of these bytes, which may be more than the memory holds."""
    crc = 0
    for at in range(start, stop, _SEARCH_BYTES):
        crc = crc32(source.read(at, min(_SEARCH_BYTES, stop - at)), crc)
    return crc


def _commit_of_foot(source: Reader, position: int, name: str) -> FileCommit | None:
    return _commit(source, position + FOOT_BYTES, name)


def _head_at(source: Reader, position: int, name: str) -> RecordHead | None:
    del name
    return _head(source, position)


def _seal_of(source: Reader, position: int, name: str) -> int | None:
    del name
    return _seal_at(source, position)


def _search(
    source: Reader,
    magic: bytes,
    read: Callable[[Reader, int, str], T | None],
    start: int,
    name: str,
) -> T | None:
    """Return what `read` finds at the last place of a magic behind a position; else None."""
    return next(_found(source, magic, read, start, name), None)


def _found(
    source: Reader,
    magic: bytes,
    read: Callable[[Reader, int, str], T | None],
    start: int,
    name: str,
) -> Iterator[T]:
    """Yield what `read` finds at the places of a magic behind a position, the last first."""
    end, tries = source.size, 0
    while end > start:
        begin = max(start, end - _SEARCH_BYTES)
        # The magic may lie across two steps.
        data = source.read(begin, min(end + len(magic) - 1, source.size) - begin)
        at = data.rfind(magic)
        while at >= 0 and tries < _FALSE_FEET:
            tries += 1
            found = read(source, begin + at, name)
            if found is not None:
                tries = 0
                yield found
            at = data.rfind(magic, 0, at + len(magic) - 1)
        end = begin


# Bytes of a value that are compared at a time.
_STEP_BYTES = 4 << 20


def problems_around(
    keys: Iterable[str], find: Callable[[str], tuple[FileCommit, Extent]]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong around values: their keys, and what it is."""
    for key in keys:
        with suppress(KeyNotFound):
            message = _record_problem(*find(key), key)
            if message is not None:
                yield key, message


def _record_problem(commit: FileCommit, extent: Extent, key: str) -> str | None:
    """Return what is wrong with the record of a value; None if nothing is."""
    length = record_bytes(key, 0)
    start = extent.position - length
    head = decode_head(commit.source.read(start, length), start) if start >= 0 else None
    if head is None or (head.kind, head.key, head.value) != (VALUE, key, extent):
        return "the head of its record is damaged, or that of another value"
    found = 0
    for data in _pieces(commit, extent):
        found = crc32(data, found)
    if found == head.crc:
        return None
    return f"its crc32 is {found:08x}, the record says {head.crc:08x}"


def _pieces(commit: FileCommit, extent: Extent) -> Iterator[bytes]:
    for offset in range(0, extent.length, _STEP_BYTES):
        yield commit.source.read(extent.position + offset, min(_STEP_BYTES, extent.length - offset))
