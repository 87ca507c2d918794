"""The asv suites of uncommon shapes: very many columns, very many row groups.

They measure costs that grow with the number of columns or row groups of the table, not with those
that are read: opening a table, the plan of a filter, pruning. `growth.py` has those of appends.
"""

from pathlib import Path

import growth
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from systems.arrow import Parquet
from systems.ours import Blztable
from systems.system import bytes_on_disk

OURS = Blztable()
SYSTEMS = {"blztable": OURS, "parquet": Parquet("lz4")}
PARAMS, PARAM_NAMES = [*SYSTEMS], ["system"]
COLUMNS, ROWS = 5_000, 1_000
GROUPS = 10_000
TIMEOUT = 600


class Wide:
    """A table of 5,000 columns: open it, read one column."""

    params = PARAMS
    param_names = PARAM_NAMES
    timeout = TIMEOUT

    def setup_cache(self):
        table = pa.table({f"column_{index}": np.arange(ROWS) + index for index in range(COLUMNS)})
        for name in SYSTEMS:
            SYSTEMS[name].write(table, path_of("wide", name))

    setup_cache.timeout = TIMEOUT

    def setup(self, name):
        self.path = path_of("wide", name)
        self.read = SYSTEMS[name].read
        self.open = pq.ParquetFile if name == "parquet" else OURS.blz.open

    def time_open(self, name):
        self.open(self.path).close()

    def time_open_and_read_one_column(self, name):
        self.read(self.path, [f"column_{COLUMNS // 2}"])

    def track_bytes_on_disk(self, name):
        return bytes_on_disk(self.path)

    track_bytes_on_disk.unit = "bytes"


class ManyGroups:
    """A table of 10,000 row groups of 16 columns: open it, plan a filter, read the facts."""

    timeout = TIMEOUT

    def setup_cache(self):
        growth.build(path_of("groups", "blztable"), GROUPS)

    setup_cache.timeout = TIMEOUT

    def setup(self):
        self.path = path_of("groups", "blztable")
        self.table = OURS.blz.open(self.path)

    def teardown(self):
        self.table.close()

    def time_open(self):
        OURS.blz.open(self.path).close()

    def time_open_and_plan(self):
        with OURS.blz.open(self.path) as table:
            table.count(filters=growth.one_per_cent(GROUPS))

    def peakmem_sizes_of_all_columns(self):
        self.table.info()


class PrunedCount:
    """Count a range of a sorted key in 10,000 row groups; both ends are inside a row group."""

    params = PARAMS
    param_names = PARAM_NAMES
    timeout = TIMEOUT
    where = (pc.field("key") >= 500_030) & (pc.field("key") <= 500_269)

    def setup_cache(self):
        rows, group_rows = 1_000_000, 100
        values = np.random.default_rng(0).random(rows)
        table = pa.table({"key": np.arange(rows), "value": values})
        path = path_of("count", "blztable")
        OURS.blz.to_blz(
            table, path, storage=OURS.blz.Storage(row_group_rows=group_rows), durability="process"
        )
        path = path_of("count", "parquet")
        pq.write_table(table, path, compression="lz4", row_group_size=group_rows)

    setup_cache.timeout = TIMEOUT

    def setup(self, name):
        self.path = path_of("count", name)

    def time_count(self, name):
        if name == "parquet":
            ds.dataset(self.path, format="parquet").count_rows(filter=self.where)
            return
        with OURS.blz.open(self.path) as table:
            table.count(filters=self.where)


def path_of(shape: str, name: str) -> Path:
    """Return a path in the working directory, which asv keeps until the last benchmark."""
    return Path(f"{shape}{SYSTEMS[name].suffix}").absolute()
