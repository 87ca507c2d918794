"""Commits in a file: find the newest one, and read a value that it names.

Knows nothing of writing and of the meaning of keys.

The last foot of the file is the newest commit. If the file does not end with a foot, a writer is
at work or was killed: the records behind the last known commit are followed, and then the bytes
that no record explains are searched for a foot, so that damage hides no later commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from blztable.closing import Closing
from blztable.errors import CorruptError, StorageError
from blztable.storage.one_file.listing import Listing
from blztable.storage.one_file.records import (
    FOOT_BYTES,
    FOOT_MAGIC,
    FRONT,
    HEAD_BYTES,
    HEADER_BYTES,
    INDEX,
    VALUE,
    Head,
    Place,
    decode_foot,
    decode_head,
    front_length,
    is_whole,
    key_length,
)
from blztable.storage.store import Reader

# One read of the end of a file has the whole commit, except for very wide tables.
TAIL_BYTES = 64 << 10
# Bytes that one step of a search takes.
_SEARCH_BYTES = 4 << 20
# More bytes than a creation writes before its first flush.
_MOST_UNBORN = 4 << 10
# A file of a stranger may have many false feet; each costs a read of its block.
_FALSE_FEET = 100


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Commit:
    """A commit as it lies in a file.

    Attributes
    ----------
    end : int
        Where its foot ends; the length of the front if there is no foot yet.
    tail : bytes
        The last bytes before `end`, at least from the manifest of the commit on.
    """

    source: Reader
    listing: Listing
    end: int
    tail: bytes

    def read(self, place: Place, offset: int, length: int) -> bytes:
        """Return bytes of a value; fewer if the value ends earlier."""
        length = max(min(length, place.length - offset), 0)
        start = place.position + offset
        begin = self.end - len(self.tail)
        if begin <= start < self.end:
            return self.tail[start - begin : start - begin + length]
        return self.source.read(start, length)

    def read_into(self, place: Place, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes of a value; return their number."""
        view = memoryview(buffer).cast("B")[: max(place.length - offset, 0)]
        return self.source.read_into(place.position + offset, view)


class ValueReader(Closing):
    """An open value."""

    __slots__ = ("_commit", "_place", "size")

    def __init__(self, commit: Commit, place: Place) -> None:
        self._commit: Commit | None = commit
        self._place = place
        self.size = place.length

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the value ends earlier."""
        return self._opened().read(self._place, offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        return self._opened().read_into(self._place, offset, buffer)

    def close(self) -> None:
        """Close the value."""
        self._commit = None

    def _opened(self) -> Commit:
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
    return data != FRONT and (FRONT.startswith(data) or not data.strip(b"\0"))


def front_end(source: Reader, name: str) -> int:
    """Return where the front of a file ends; CorruptError if it is not a table in one file."""
    length = front_length(source.read(0, HEADER_BYTES))
    if length is None or length > source.size:
        raise CorruptError(f"{name}: expected a table, found another file")
    return length


def newest(source: Reader, name: str, known: Commit | None = None) -> Commit | None:
    """Return the newest commit of a file; None if there is none.

    `known` is a commit of this file, found before.
    """
    size = source.size
    found = _commit(source, size, name)
    if found is not None:
        return found
    start = known.end if known is not None else front_end(source, name)
    at = start
    for head in records(source, start):
        at = head.end
        if head.kind == INDEX:
            at += FOOT_BYTES
            found = _commit(source, at, name) or found
    return _search(source, at, name) or found or known


def everything(source: Reader, name: str) -> Commit:
    """Return all whole records of a file as one commit, whether a commit names them or not."""
    listing, end = Listing(), front_end(source, name)
    for head in records(source, end):
        if head.kind == VALUE:
            listing.add(head.key, head.value)
        end = head.end + (FOOT_BYTES if head.kind == INDEX else 0)
    return Commit(source, listing, end, b"")


def records(source: Reader, start: int) -> Iterator[Head]:
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
                window, begin = source.read(at, max(TAIL_BYTES, needed)), at
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
        at = head.end + (FOOT_BYTES if head.kind == INDEX else 0)


def _commit(source: Reader, end: int, name: str) -> Commit | None:
    """Return the commit whose foot ends at this position; None if there is none."""
    begin = max(end - TAIL_BYTES, 0)
    tail = source.read(begin, end - begin)
    foot = decode_foot(tail[-FOOT_BYTES:], end)
    if foot is None:
        return None
    if foot.block < begin:
        tail = source.read(foot.block, begin - foot.block) + tail
        begin = foot.block
    block = memoryview(tail)[foot.block - begin :]
    if len(block) != end - foot.block or not is_whole(block):
        return None
    index = tail[foot.index - begin : -FOOT_BYTES]
    try:
        return Commit(source, Listing.decode(index, end - FOOT_BYTES), end, tail)
    except CorruptError as error:
        raise CorruptError(f"{name}: {error}") from None


def _search(source: Reader, start: int, name: str) -> Commit | None:
    """Return the last commit whose foot lies behind a position; None if there is none."""
    end, tries = source.size, 0
    while end > start:
        begin = max(start, end - _SEARCH_BYTES)
        # A foot may lie across two steps.
        data = source.read(begin, min(end + FOOT_BYTES, source.size) - begin)
        at = data.rfind(FOOT_MAGIC, 0, end - begin + len(FOOT_MAGIC) - 1)
        while at >= 0 and tries < _FALSE_FEET:
            tries += 1
            found = _commit(source, begin + at + FOOT_BYTES, name)
            if found is not None:
                return found
            at = data.rfind(FOOT_MAGIC, 0, at)
        end = begin
    return None
