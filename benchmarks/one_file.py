"""Tables in one file beside tables in a directory, for asv.

asv run --python=same --bench one_file
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import blztable as blz

LAYOUTS = ["directory", "file"]
# Rows and columns.
SHAPES = {
    "1,000 x 16": (1_000, 16),
    "2,000,000 x 9": (2_000_000, 9),
    "2,000 x 5,000": (2_000, 5_000),
}
PARAMS, NAMES = [list(SHAPES), LAYOUTS], ["shape", "layout"]


def table(rows: int, columns: int) -> pa.Table:
    """Return columns of integers and floats in turn."""
    rng = np.random.default_rng(0)
    return pa.table(
        {
            f"c{number}": rng.integers(0, 1000, rows) if number % 2 else rng.random(rows)
            for number in range(columns)
        }
    )


class OneFile:
    """Write, read, open and copy a table of each shape and layout."""

    params = PARAMS
    param_names = NAMES
    number = 1
    timeout = 600

    def setup(self, shape, layout):
        """Write the table."""
        self.table = table(*SHAPES[shape])
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "t.blz"
        self.time_write(shape, layout)

    def teardown(self, shape, layout):
        """Remove the tables."""
        shutil.rmtree(self.folder)

    def time_write(self, shape, layout):
        """Replace the table."""
        blz.to_blz(self.table, self.path, storage=blz.Storage(layout=layout), durability="process")

    def time_read(self, shape, layout):
        """Read all columns."""
        blz.read_table(self.path)

    def time_read_one_column(self, shape, layout):
        """Open the table and read its last column."""
        blz.read_table(self.path, columns=self.table.column_names[-1:])

    def time_copy(self, shape, layout):
        """Pack a directory, or unpack a file."""
        target = Path(tempfile.mkdtemp(dir=self.folder)) / "copy.blz"
        other = "file" if layout == "directory" else "directory"
        blz.copy(self.path, target, layout=other, durability="process")
