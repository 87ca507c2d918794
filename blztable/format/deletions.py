"""Deleted rows: rows of a row group that its parts hold, and that are no rows of the table.

In memory, the deleted rows of a row group are the ascending numbers of stored rows, as bytes, which
can be compared. A live row has two numbers: its number among the live rows, which is what users and
`row_groups` count, and its number among the stored rows, which is its place in the parts.

Knows neither the head of the manifest nor files.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from blztable.errors import CorruptError, LimitError
from blztable.format import jsontext
from blztable.format.jsontext import Json

# The deleted rows of each row group, b"" for none; empty if no row group has any.
Deleted = tuple[bytes, ...]
# The numbers of rows in memory, and their differences in the file.
ROW, GAP = np.dtype("<i8"), np.dtype("<u4")
# A row group that has deleted rows has at most so many stored rows, so each gap fits.
MAX_STORED_ROWS = (1 << 32) - 1
# Deleted rows of a version: 4 MiB of gaps.
MAX_DELETED = 1 << 20


def pack(rows: np.ndarray) -> bytes:
    """Return ascending numbers of stored rows as the deleted rows of a row group."""
    return rows.astype(ROW).tobytes()


def unpack(deleted: bytes) -> np.ndarray:
    """Return the numbers of the deleted rows of a row group."""
    return np.frombuffer(deleted, ROW)


def count(deleted: bytes) -> int:
    """Return the number of deleted rows of a row group."""
    return len(deleted) // ROW.itemsize


def compacted(deleted: Iterable[bytes]) -> Deleted:
    """Return the deleted rows of each row group; empty if there are none."""
    groups = tuple(deleted)
    return groups if any(groups) else ()


def stored(deleted: bytes, live: np.ndarray) -> np.ndarray:
    """Return the numbers among the stored rows of ascending live rows."""
    gone = unpack(deleted)
    return live + _steps(np.searchsorted(live, gone - np.arange(len(gone)), "left"), len(live))


def live(deleted: bytes, stored: np.ndarray) -> np.ndarray:
    """Return the number of live rows before each of these ascending stored rows."""
    return stored - _steps(np.searchsorted(stored, unpack(deleted), "right"), len(stored))


def _steps(cuts: np.ndarray, length: int) -> np.ndarray:
    """Return an array that rises by one at each of these indices."""
    return np.repeat(np.arange(len(cuts) + 1), np.diff(cuts, prepend=0, append=length))


def live_range(deleted: bytes, start: int, stop: int) -> tuple[int, int]:
    """Return the first live row of a range of stored rows, and the one after its last."""
    first, last = live(deleted, np.array([start, stop])).tolist()
    return first, last


def to_json(deleted: Deleted) -> Json:
    """Return the deleted rows as the head has them."""
    return {"rows": list(map(count, deleted)), "gaps": _zipped(tuple(filter(None, deleted)))}


@lru_cache(maxsize=4)
def _zipped(deleted: Deleted) -> str:
    """Return the gaps of row groups; each commit writes them again, and few change them."""
    gaps = b"".join(np.diff(unpack(one), prepend=0).astype(GAP).tobytes() for one in deleted)
    return base64.b64encode(zlib.compress(gaps, level=1)).decode("ascii")


def from_json(value: Json, row_groups: Sequence[int]) -> Deleted:
    """Read the deleted rows of row groups with these numbers of live rows.

    Raises
    ------
    CorruptError
        The rows are not ascending, or not all of them are stored rows.
    LimitError
        They are too many.
    """
    if not value:
        return ()
    if not isinstance(value, dict):
        raise CorruptError("the head of a manifest: 'deleted' is not an object")
    counts = jsontext.numbers(value.get("rows"), "deleted rows", len(row_groups))
    total = sum(counts)
    if total > MAX_DELETED:
        raise LimitError(f"{total} deleted rows; a version has at most {MAX_DELETED}")
    gaps = np.frombuffer(_unzipped(value.get("gaps"), total * GAP.itemsize), GAP).astype(ROW)
    # Each at most 2^32, so the sum of 2^20 of them fits.
    sums, stops = np.cumsum(gaps), list(accumulate(counts, initial=0))
    groups = [b""] * len(counts)
    for group in np.flatnonzero(counts).tolist():
        start, stop = stops[group : group + 2]
        numbers = sums[start:stop] - (sums[start - 1] if start else 0)
        if not numbers[-1] < row_groups[group] + len(numbers) <= MAX_STORED_ROWS:
            raise CorruptError("the head of a manifest: deleted rows that are not stored")
        if not gaps[start + 1 : stop].all():
            raise CorruptError("the head of a manifest: a row is deleted twice")
        groups[group] = pack(numbers)
    return compacted(groups)


def _unzipped(value: Json, nbytes: int) -> bytes:
    """Return so many bytes from base64 of a zlib stream; no memory is made for more."""
    try:
        packed = base64.b64decode(value, validate=True)  # type: ignore[arg-type]
        stream = zlib.decompressobj()
        data = stream.decompress(packed, nbytes + 1)
    except (binascii.Error, TypeError, ValueError, zlib.error):
        raise CorruptError("the head of a manifest: the gaps are no base64 of zlib") from None
    if len(data) != nbytes or not stream.eof or stream.unused_data:
        raise CorruptError(f"the head of a manifest: the gaps do not have {nbytes} bytes")
    return data
