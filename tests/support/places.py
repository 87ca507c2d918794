"""Where the chunks of a part lie in its file, and how to damage one."""

import os

from blztable.engine.version import versions
from blztable.storage.local import LocalStore


def version_at(place):
    """Return the newest version of a table."""
    store = store_at(place)
    return versions.load(store, versions.newest_number(store))


def chunks_of(place, column: int, group: int = 0) -> tuple[str, list[tuple[int, int]]]:
    """Return the key of the file of a part, and where each of its chunks begins and ends."""
    parts = version_at(place).parts(column)
    one = parts.records.of([0], [group])
    begins, sizes = one.chunk_offset.tolist(), one.chunks["size"].tolist()
    return parts.key(group), [(at, at + size) for at, size in zip(begins, sizes, strict=True)]


def flip(place, column: int, group: int = 0, chunk: int = 0, byte: int = 20) -> str:
    """Flip a bit of a chunk; return the key of the file."""
    key, chunks = chunks_of(place, column, group)
    flip_byte(place, key, chunks[chunk][0] + byte)
    return key


def flip_byte(place, key: str, offset: int) -> None:
    """Flip a bit of a file."""
    store = store_at(place)
    data = bytearray(store.get(key))
    data[offset] ^= 1
    if isinstance(store, LocalStore):
        with open(os.path.join(os.fspath(place), key), "r+b") as file:
            file.write(data)
    else:
        store.put(key, bytes(data))


def store_at(place):
    """Return the store at a path; a store is returned as it is."""
    return LocalStore(place) if isinstance(place, str | os.PathLike) else place
