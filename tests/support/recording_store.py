"""A store that records the files and chunks that each read takes.

The chunks of a part lie one after another. For a column of numbers without nulls, written with
`chunk_bytes` of one page, a chunk is a page.
"""

import base64
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from blztable.tuning import tuned
from support import tamper


class Recorded:
    """A store whose readers record each read: key, offset and length."""

    def __init__(self, store):
        self._store = store
        self.reads = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def open(self, key):
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
        """Clear the record, and read small files in pieces like large ones."""
        with tuned(small_part_bytes=0):
            self.reads.clear()
            yield self

    def opened(self) -> set[tuple[str, int]]:
        """Return the parts that were read: column name and index of the row group."""
        with tamper.editing(_Fixed(self._store)) as table:
            keys = {table.key(*at): at for at in _parts(table)}
            names = _names(table)
        return {(names[keys[key][0]], keys[key][1]) for key in self.data}

    def chunks(self) -> Counter[tuple[str, int, int]]:
        """Return the number of reads of each chunk: column name, row group and chunk index."""
        result: Counter[tuple[str, int, int]] = Counter()
        with tamper.editing(_Fixed(self._store)) as table:
            names = _names(table)
            for column, group in _parts(table):
                key = table.key(column, group)
                found = [(at, at + length) for one, at, length in self.reads if one == key]
                for number, offset in enumerate(table.part(column, group).offsets):
                    times = sum(low <= offset < high for low, high in found)
                    if times:
                        result[names[column], group, number] = times
        return result


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


class _Fixed:
    """A store for an edit that only looks: the edit must write the same bytes."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, key, data):
        assert bytes(data) == self._store.get(key)


def _parts(table):
    return [
        (column, group)
        for column, line in enumerate(table.lines)
        for group, number in enumerate(line["k"])
        if number
    ]


def _names(table):
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(table.head["schema"]))).names
