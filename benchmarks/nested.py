"""Nested and text columns beside Parquet and Feather, for asv: time to write and read, and bytes.

    asv run --python=same --bench nested

The columns are those that frames of today have: embeddings, lists of structs, categories, and
numbers of which 30 % are null. The files lie in the page cache.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

import blztable as blz

# Of the flat tables. With a million rows, opening a table is a third of the time of a read.
ROWS = 5_000_000
TAKEN = 1000
WIDTH = 768


def embeddings(rows: int) -> pa.Table:
    """Return a vector of 768 floats for each of a hundredth of the rows."""
    values = np.random.default_rng(0).normal(size=(rows // 100, WIDTH)).astype(np.float32)
    return pa.table({"emb": pa.FixedSizeListArray.from_arrays(values.reshape(-1), WIDTH)})


def lists_of_floats(rows: int) -> pa.Table:
    """Return the same vectors as lists, whose lengths could differ."""
    return pa.table({"emb": embeddings(rows)["emb"].cast(pa.list_(pa.float32()))})


def lists_of_structs(rows: int) -> pa.Table:
    """Return an order for each of ten rows: zero to six items with a name, a price and a number."""
    rng = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 7, rows // 10))]).astype(np.int32)
    count = int(offsets[-1])
    names = pa.array([f"article {n:05}" for n in range(5000)])
    items = pa.StructArray.from_arrays(
        [
            names.take(pa.array(rng.integers(0, 5000, count))),
            pa.array(np.round(rng.gamma(2, 20, count), 2)),
            pa.array(rng.integers(1, 9, count), pa.int32()),
        ],
        ["name", "price", "count"],
    )
    return pa.table({"items": pa.ListArray.from_arrays(pa.array(offsets), items)})


def dictionary_text(rows: int) -> pa.Table:
    """Return categories of 200 texts, in four columns."""
    rng = np.random.default_rng(2)
    texts = pa.array([f"category {n}" for n in range(200)])
    return pa.table(
        {
            f"c{n}": pa.DictionaryArray.from_arrays(
                pa.array(rng.integers(0, 200, rows), pa.int32()), texts
            )
            for n in range(4)
        }
    )


def nulls(rows: int) -> pa.Table:
    """Return four columns of numbers, of which 30 % are null."""
    rng = np.random.default_rng(3)
    return pa.table(
        {
            f"n{n}": pa.array(np.round(rng.normal(100, 20, rows), 2), mask=rng.random(rows) < 0.3)
            for n in range(4)
        }
    )


TABLES: dict[str, Callable[[int], pa.Table]] = {
    "embeddings": embeddings,
    "lists of floats": lists_of_floats,
    "lists of structs": lists_of_structs,
    "dictionary text": dictionary_text,
    "30 % nulls": nulls,
}
SYSTEMS = ["blztable", "Parquet zstd", "Parquet snappy", "Feather lz4"]


class Nested:
    """The verbs of a table, by each system."""

    param_names = ("table", "system")
    params = (list(TABLES), SYSTEMS)
    timeout = 600

    def setup(self, name, system):
        """Write the table, once: a table that is replaced keeps its old versions for a while."""
        self._directory = tempfile.TemporaryDirectory()
        self.table = TABLES[name](ROWS)
        self.path = Path(self._directory.name) / "t"
        self.time_write(name, system)

    def teardown(self, name, system):
        """Remove the table."""
        self._directory.cleanup()

    def time_write(self, name, system):
        """Write a table."""
        if system == "blztable":
            blz.to_blz(self.table, self.path, durability="process")
        elif system == "Feather lz4":
            feather.write_feather(self.table, self.path, compression="lz4")
        else:
            pq.write_table(self.table, self.path, compression=system.split()[1])

    def time_read(self, name, system):
        """Read all rows into Arrow."""
        if system == "blztable":
            return blz.read_table(self.path)
        if system == "Feather lz4":
            return feather.read_table(self.path)
        return pq.read_table(self.path)

    def track_bytes(self, name, system):
        """Return the bytes of all files."""
        files = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return sum(one.stat().st_size for one in files if one.is_file())

    track_bytes.unit = "bytes"


class NestedRows:
    """Single rows, fields and filters of a nested column."""

    def setup(self):
        """Write lists of structs, and structs."""
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name)
        table = lists_of_structs(ROWS)
        blz.to_blz(table, path / "lists.blz", durability="process")
        structs = table["items"].combine_chunks().values
        blz.to_blz(pa.table({"item": structs}), path / "structs.blz", durability="process")
        self.lists, self.structs = blz.open(path / "lists.blz"), blz.open(path / "structs.blz")
        rng = np.random.default_rng(4)
        self.rows = np.sort(rng.choice(len(self.lists), min(TAKEN, len(self.lists) // 2)))

    def teardown(self):
        """Remove the tables."""
        self.lists.close()
        self.structs.close()
        self._directory.cleanup()

    def time_take_of_lists(self):
        """Read 1,000 rows of lists of structs."""
        self.lists.take(self.rows)

    def time_take_of_structs(self):
        """Read 1,000 rows of structs."""
        self.structs.take(self.rows)

    def time_one_field(self):
        """Read one field of structs."""
        self.structs.to_arrow(["item.count"])

    def time_filter_on_a_field(self):
        """Read the rows whose field has a value."""
        self.structs.to_arrow(["item.price"], filters=[("item.name", "==", "article 00017")])
