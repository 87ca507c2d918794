"""What no reader of a table in one file looks at: the heads of records, and their checksums.

Knows nothing of the meaning of keys and values.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from blztable.storage.one_file.commits import Commit
from blztable.storage.one_file.records import VALUE, Place, crc32, decode_head, record_bytes
from blztable.storage.store import KeyNotFound

# Bytes of a value that are compared at a time.
_STEP_BYTES = 4 << 20


def problems_around(
    keys: Iterable[str], find: Callable[[str], tuple[Commit, Place]]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong around values: their keys, and what it is."""
    for key in keys:
        with suppress(KeyNotFound):
            message = _record_problem(*find(key), key)
            if message is not None:
                yield key, message


def _record_problem(commit: Commit, place: Place, key: str) -> str | None:
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
