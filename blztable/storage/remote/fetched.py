"""Fetched: ranges of values that were asked for, and are read when they are needed.

Theory of operation. Ranges that lie near each other become one piece, and long ones several. Each
piece is asked for by a thread of its own (`threads.requested`), so the caller goes on, and waits
when it reads a byte that has not come yet. A piece is dropped when the `Asked` that it belongs to
is closed. All reads of a store look for their bytes here first. Knows nothing of the bytes.
"""

import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

from blztable import tuning
from blztable.closing import Closing
from blztable.storage.store import Buffer, ByteRange
from blztable.storage.threads import Future, requested

# Returns bytes of a value: key, start, stop; None for its end.
Get = Callable[[str, int, int | None], Buffer]
_start = attrgetter("start")


class Piece:
    """Bytes of a value that were asked for."""

    __slots__ = ("_future", "key", "start", "stop")

    def __init__(self, get: Get, key: str, start: int, stop: int) -> None:
        """Ask for the bytes."""
        self.key, self.start, self.stop = key, start, stop
        self._future: Future[Buffer] = requested(get, key, start, stop)

    def bytes(self) -> memoryview:
        """Wait for the bytes; fewer have come if the value ends earlier."""
        return memoryview(self._future.result())

    def cancel(self) -> None:
        """Do not ask, if that has not been done yet."""
        self._future.cancel()


class Fetched:
    """The pieces of a store, by key."""

    def __init__(self, get: Get) -> None:
        """Begin without pieces."""
        self._get = get
        self._pieces: dict[str, list[Piece]] = {}
        self._lock = threading.Lock()

    def ask(self, ranges: Iterable[ByteRange], gap: int) -> "Asked":
        """Ask for what is not there yet; the pieces stay until the result is closed."""
        by_key: dict[str, list[tuple[int, int]]] = {}
        for key, start, stop in ranges:
            if start < stop:
                by_key.setdefault(key, []).append((start, stop))
        new: list[Piece] = []
        for key, some in by_key.items():
            missing = [one for one in some if not self._covers(key, *one)]
            new += [Piece(self._get, key, *one) for one in cut(joined(missing, gap))]
        with self._lock:
            for piece in new:
                insort(self._pieces.setdefault(piece.key, []), piece, key=_start)
        return Asked(self, new)

    def drop(self, pieces: Iterable[Piece]) -> None:
        """Forget pieces; who waits for one still gets it."""
        with self._lock:
            for piece in pieces:
                some = self._pieces.get(piece.key, [])
                some.remove(piece)
                if not some:
                    del self._pieces[piece.key]
        for piece in pieces:
            piece.cancel()

    def read(self, key: str, offset: int, length: int | None) -> Iterator[memoryview]:
        """Yield the bytes of a range one after another; fewer if the value ends earlier."""
        stop = None if length is None else offset + length
        while stop is None or offset < stop:
            piece = self.find(key, offset)
            if piece is None:
                yield memoryview(self._get(key, offset, stop))
                return
            end = piece.stop if stop is None else min(piece.stop, stop)
            some = piece.bytes()[offset - piece.start : end - piece.start]
            yield some
            offset += len(some)
            if offset < end:
                return

    def read_into(self, key: str, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        view, filled = memoryview(buffer).cast("B"), 0
        for piece in self.read(key, offset, len(view)):
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled

    def find(self, key: str, offset: int) -> Piece | None:
        """Return a piece that has the byte at `offset`; None if it was not asked for."""
        with self._lock:
            some = self._pieces.get(key)
            if not some:
                return None
            at = bisect_right(some, offset, key=_start)
            # The one that begins last has it, unless several reads asked for the same bytes.
            for piece in reversed(some[:at]):
                if offset < piece.stop:
                    return piece
            return None

    def size(self, key: str) -> int | None:
        """Return the bytes of a value that was asked for beyond its end; None if none was."""
        with self._lock:
            last = self._pieces.get(key, [None])[-1]
        if last is None:
            return None
        end = last.start + len(last.bytes())
        return end if last.start < end < last.stop else None

    def _covers(self, key: str, start: int, stop: int) -> bool:
        while start < stop:
            piece = self.find(key, start)
            if piece is None:
                return False
            start = piece.stop
        return True


class Asked(Closing):
    """What one call has asked for."""

    def __init__(self, fetched: Fetched, pieces: Sequence[Piece]) -> None:
        """Keep the pieces."""
        self._fetched, self._pieces = fetched, pieces

    def close(self) -> None:
        """Drop the pieces; closing twice is harmless."""
        pieces, self._pieces = self._pieces, ()
        self._fetched.drop(pieces)


def joined(ranges: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Return ranges of which those that lie near each other are one."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if found and start - found[-1][1] <= gap:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return found


def cut(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of which long ones are several of about the same size."""
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        count = -(-(stop - start) // tuning.current.piece_bytes)
        ends = [start + (stop - start) * number // count for number in range(count + 1)]
        found += pairwise(ends)
    return found
