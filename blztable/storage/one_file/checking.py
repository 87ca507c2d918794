"""What no reader of a table in one file looks at: the front, and the heads of records.

Knows nothing of the meaning of keys and values.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from blztable.storage.one_file.commits import Commit
from blztable.storage.one_file.records import (
    FOOT_BYTES,
    HEADER_BYTES,
    VALUE,
    Place,
    crc32,
    decode_foot,
    decode_head,
    front_length,
    record_bytes,
)
from blztable.storage.store import KeyNotFound

# Bytes of a value that are compared at a time.
_STEP_BYTES = 4 << 20


def problems_around(
    keys: Iterable[str], find: Callable[[str], tuple[Commit, Place]]
) -> list[tuple[str, str]]:
    """Return what is wrong around values: their keys, "" for the file, and what it is."""
    found: list[tuple[str, str | None]] = []
    # Versions may lie in several files: one that was rewritten is still read.
    fronts: dict[int, Commit] = {}
    for key in keys:
        with suppress(KeyNotFound):
            commit, place = find(key)
            fronts[id(commit.source)] = commit
            found.append((key, _record_problem(commit, key, place)))
    found += [("", _front_problem(commit)) for commit in fronts.values()]
    return [(key, message) for key, message in found if message is not None]


def _front_problem(commit: Commit) -> str | None:
    """Return what is wrong with the front of the file of a commit; None if nothing is."""
    source, start = commit.source, commit.end - FOOT_BYTES
    foot = decode_foot(source.read(start, FOOT_BYTES), commit.end) if start >= 0 else None
    if foot is None:
        return None  # The file was never finished.
    length = front_length(source.read(0, HEADER_BYTES))
    if length is None:
        return "the file does not begin with a front"
    found = crc32(source.read(0, length))
    if found == foot.front_crc:
        return None
    return f"the crc32 of the front is {found:08x}, the commit says {foot.front_crc:08x}"


def _record_problem(commit: Commit, key: str, place: Place) -> str | None:
    """Return what is wrong with the record of a value; None if nothing is."""
    length = record_bytes(key, 0)
    start = place.position - length
    head = decode_head(commit.source.read(start, length), start) if start >= 0 else None
    if head is None or (head.kind, head.key, head.value) != (VALUE, key, place):
        return "the head of its record is damaged, or that of another value"
    found = 0
    for data in _pieces(commit, place):
        found = crc32(data, found)
    if found == head.crc:
        return None
    return f"its crc32 is {found:08x}, the record says {head.crc:08x}"


def _pieces(commit: Commit, place: Place) -> Iterator[bytes]:
    for offset in range(0, place.length, _STEP_BYTES):
        yield commit.source.read(place.position + offset, min(_STEP_BYTES, place.length - offset))
