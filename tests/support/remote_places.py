"""Tables in remote stores: upload the directory of a table, and the options to reach it."""

import zlib
from pathlib import Path

import numpy as np
import obstore
import pandas as pd

from blztable.storage.remote.fetched import joined
from support.s3_objects import Stored

# The rows of the tables that are read in remote stores.
ROWS = 3_000
FRAME = pd.DataFrame(
    {
        "n": np.arange(ROWS),
        "x": np.random.default_rng(0).normal(size=ROWS),
        "word": np.random.default_rng(1).choice(["a", "bb", "ccc"], ROWS),
        "text": [f"text {n}" for n in range(ROWS)],
    }
)


def upload(path: Path, objects, prefix: str = "") -> None:
    """Put all files of a table into an object of obstore."""
    for file in sorted(Path(path).rglob("*")):
        if file.is_file():
            key = "/".join(filter(None, (prefix, file.relative_to(path).as_posix())))
            obstore.put(objects, key, file.read_bytes())


def put(server, key: str, data: bytes) -> None:
    """Put an object into the bucket of the local S3 server."""
    server.keys[key] = Stored(data, f'"{zlib.crc32(data):08x}"', server.now())


def put_table(server, path: Path, prefix: str) -> None:
    """Put all files of a table below a prefix of the bucket of the local S3 server."""
    for file in Path(path).rglob("*"):
        if file.is_file():
            put(server, f"{prefix}/{file.relative_to(path).as_posix()}", file.read_bytes())


def options_of(server) -> dict[str, str]:
    """Return the options of the local S3 server."""
    return {"key": "a", "secret": "b", "endpoint_url": server.url, "region": "us-east-1"}


class Planned:
    """A store that records what is read of data files and was not asked for."""

    locks = True
    fetches = True

    def __init__(self, store):
        self._store = store
        self._asked = []
        self.unplanned = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def fetch(self, ranges, gap=0):
        by_key = {}
        for key, *one in ranges:
            by_key.setdefault(key, []).append(one)
        asked = [(key, *one) for key, some in by_key.items() for one in joined(some, gap)]
        self._asked.append(asked)
        return _Asked(self._asked, asked)

    def open(self, key, size=None):
        reader = self._store.open(key)
        # The version knows how long its files are.
        assert size is None or size <= reader.size
        return _PlannedReader(self, key, reader)

    def note(self, key, start, length):
        """Note a read, unless it lies in what is asked for at this moment."""
        ranges = [one for asked in self._asked for one in asked if one[0] == key]
        at = start
        for _, low, high in sorted(ranges):
            if low <= at:
                at = max(at, high)
        if at < start + length and key.startswith("data/"):
            self.unplanned.append((key, start, length))


class _Asked:
    def __init__(self, all_asked, asked):
        self._all, self._own = all_asked, asked

    def close(self):
        self._all[:] = [one for one in self._all if one is not self._own]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _PlannedReader:
    def __init__(self, store, key, reader):
        self._store, self._key, self._reader = store, key, reader
        self.size = reader.size

    def read_into(self, offset, buffer):
        self._store.note(self._key, offset, len(buffer))
        return self._reader.read_into(offset, buffer)

    def read(self, offset, length):
        self._store.note(self._key, offset, length)
        return self._reader.read(offset, length)

    def close(self):
        self._reader.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
