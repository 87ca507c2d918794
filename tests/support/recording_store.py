"""A store that records the files and chunks that each read takes.

The chunks of a part lie one after another. For a column of numbers without nulls, written with
`chunk_bytes` of one page, a chunk is a page.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from blztable.engine.read.parts import OpenParts
from blztable.engine.version import versions
from blztable.format.records import ITEM_CHUNKS, VALUES


class Recorded:
    """A store whose readers record each read: key, offset and length."""

    def __init__(self, store):
        self._store = store
        self.reads = []
        # How often each data file was opened.
        self.opens = Counter()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def open(self, key, size=None):
        self.opens.update([key] if key.startswith("data/") else [])
        return _Reader(self._store.open(key), key, self.reads)

    def get(self, key, offset=0, length=None):
        data = self._store.get(key, offset, length)
        self.reads.append((key, offset, len(data)))
        return data

    @property
    def data(self):
        """Return the column files that were read, once for each read."""
        return [key for key, _, _ in self.reads if key.startswith("data/")]

    @contextmanager
    def recording(self) -> Iterator["Recorded"]:
        """Clear the record."""
        self.reads.clear()
        self.opens.clear()
        yield self

    def opened(self) -> set[tuple[str, int]]:
        """Return the parts that were read: column name and index of the row group."""
        keys = {key: (name, group) for name, group, key, _ in self._parts()}
        return {keys[key] for key in self.data}

    def chunks(self) -> Counter[tuple[str, int, int]]:
        """Return the number of reads of each chunk: column name, row group and chunk index."""
        result: Counter[tuple[str, int, int]] = Counter()
        for name, group, key, offsets in self._parts():
            found = [(at, at + length) for one, at, length in self.reads if one == key]
            for number, offset in enumerate(offsets):
                times = sum(low <= offset < high for low, high in found)
                if times:
                    result[name, group, number] = times
        return result

    def _parts(self):
        """Yield column name, row group, key and offsets of chunks of each part of the table."""
        version = versions.load(self._store, versions.newest_number(self._store))
        for line in range(len(version.paths)):
            parts = version.parts(line)
            first = parts.records.first_chunk[parts.records.first_stream].tolist()
            offsets = parts.records.chunk_offset.tolist()
            name = version.schema.names[version.field_of(line)]
            for group in range(version.group_count):
                if not parts.has_bytes(group):
                    continue
                key, chunks = parts.key(group), offsets[first[group] : first[group + 1]]
                if parts.records.parts["flags"][group] & ITEM_CHUNKS:
                    chunks = _items(version, line, group)
                yield name, group, key, chunks


def _items(version, line: int, group: int) -> list[int]:
    """Return where the chunk of each item begins."""
    with OpenParts(version) as parts:
        return parts.open(line, group).streams[VALUES].places[:-1].tolist()


class _Reader:
    def __init__(self, reader, key, reads):
        self._reader, self._key, self._reads = reader, key, reads
        self.size = reader.size

    def read(self, offset, length):
        self._reads.append((self._key, offset, length))
        return self._reader.read(offset, length)

    def read_into(self, offset, buffer):
        self._reads.append((self._key, offset, len(buffer)))
        return self._reader.read_into(offset, buffer)

    def close(self):
        self._reader.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
