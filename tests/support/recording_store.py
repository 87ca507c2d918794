"""What a read took from a store: which files, and which chunks of them, each time it did.

The chunks of a part lie one after another; of a column of numbers without nulls, written with
`chunk_bytes` of a page, chunk and page are the same.
"""

import base64
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from blztable.engine.read import parts
from support import tamper


class Recorded:
    """A store whose readers note what is read from them: key, offset and length."""

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
        """The keys of the columns' files that were read from, as often as they were."""
        return [key for key, _, _ in self.reads if key.startswith("data/")]

    @contextmanager
    def recording(self, monkeypatch) -> Iterator["Recorded"]:
        """Forget what was, and have small files read in pieces as large ones are."""
        with monkeypatch.context() as patch:
            patch.setattr(parts, "SMALL_PART", 0)
            self.reads.clear()
            yield self

    def opened(self) -> set[tuple[str, int]]:
        """The parts that were read from, by name of the column and number of the row group."""
        with tamper.editing(_Fixed(self._store)) as table:
            keys = {table.key(*at): at for at in _parts(table)}
            names = _names(table)
        return {(names[keys[key][0]], keys[key][1]) for key in self.data}

    def chunks(self) -> Counter[tuple[str, int, int]]:
        """How often each chunk was read, by name of the column, row group and number."""
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
    """A store that is only looked at: what an edit would write is not."""

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
