"""Small row groups, for asv: time to write, append and read them, and their bytes.

    asv run --python=same --bench bundles

A small row group is a bundle: most of its time is Python for each column, and not bytes. So there
are tables of one row, of some thousand values, and of 5,000 columns.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import blztable as blz


def table(columns: int, rows: int) -> pa.Table:
    """Return numbers of three decimals."""
    rng = np.random.default_rng(columns)
    return pa.table({f"c{n}": np.round(rng.normal(100, 20, rows), 3) for n in range(columns)})


def mixed(rows: int) -> pa.Table:
    """Return sixteen columns of numbers, text, times and categories, a third of them with nulls."""
    rng = np.random.default_rng(rows)
    words = np.array([f"word {n}" for n in range(100)])
    columns = {}
    for n in range(0, 16, 4):
        mask = rng.random(rows) < 0.1 if n else None
        columns |= {
            f"number {n}": pa.array(rng.integers(0, 1000, rows), mask=mask),
            f"text {n}": pa.array(words[rng.integers(0, 100, rows)], mask=mask),
            f"time {n}": pa.array(np.arange(rows) * 60_000, pa.timestamp("ms")),
            f"category {n}": pa.array(words[rng.integers(0, 9, rows)]).dictionary_encode(),
        }
    return pa.table(columns)


TABLES = {
    "one row x 100": lambda: table(100, 1),
    "1,000 x 16": lambda: table(16, 1000),
    "1,000 x 16, mixed": lambda: mixed(1000),
    "1,000 x 100": lambda: table(100, 1000),
    "2,000 x 5,000": lambda: table(5000, 2000),
}


class Bundles:
    """The verbs of a small row group."""

    param_names = ("table",)
    params = (list(TABLES),)

    def setup(self, name):
        """Write the table."""
        self._directory = tempfile.TemporaryDirectory()
        self.table = TABLES[name]()
        self.path = Path(self._directory.name) / "t.blz"
        self.write()
        if not list(self.path.glob("data/group/*")):
            self.teardown(name)
            raise ValueError(f"{name} is not in a bundle")

    def teardown(self, name):
        """Remove the table."""
        self._directory.cleanup()

    def write(self):
        """Write the table in place of the one there is."""
        blz.to_blz(self.table, self.path, durability="process")

    def time_write(self, name):
        """Write a table."""
        self.write()

    def time_append(self, name):
        """Append the rows, with the merges that follow."""
        with blz.open(self.path, "a", durability="process") as opened:
            opened.append(self.table)

    def time_read(self, name):
        """Read all columns into Arrow."""
        blz.read_table(self.path)

    def time_read_frame(self, name):
        """Read all columns into pandas."""
        blz.read_blz(self.path)

    def time_read_one_column(self, name):
        """Read one column into Arrow."""
        blz.read_table(self.path, columns=self.table.column_names[-1:])

    def time_take(self, name):
        """Take a row of all columns."""
        with blz.open(self.path) as opened:
            opened.take([self.table.num_rows - 1])

    def track_bytes(self, name):
        """Return the bytes of the files."""
        return sum(file.stat().st_size for file in self.path.glob("data/**/*.bin"))

    track_bytes.unit = "bytes"
