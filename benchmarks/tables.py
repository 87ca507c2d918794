"""The asv suites: write, read all, two numeric columns, key + text, to pandas.

Each runs on lineitem (scale factor 1) and flights, in blztable, Parquet and Feather (both lz4).
The data sets are made once; every commit writes its own files.
"""

import sys
from pathlib import Path

import data_sets
import formats
import tasks

PARAMS = [[*data_sets.DATA_SETS], ["blztable", "parquet", "feather"]]
PARAMS_FULL = [[*data_sets.DATA_SETS], ["blztable full"]]
PARAM_NAMES = ["data", "format"]
TIMEOUT = 600


def file_of(data: str, format_: formats.Format) -> Path:
    """Return a path in the working directory, which asv keeps until the last benchmark."""
    return Path(f"{data}{format_.suffix}").absolute()


class Write:
    """Write a whole new table, with durability "process"."""

    params = PARAMS
    param_names = PARAM_NAMES
    timeout = TIMEOUT
    number = 1
    warmup_time = 0

    def setup(self, data, name):
        self.format = formats.FORMATS[name]
        self.path = file_of(f"written-{data}", self.format)
        formats.remove(self.path)
        # asv calls setup before every repeat.
        if not hasattr(self, "table"):
            self.table = data_sets.load(data)

    def teardown(self, data, name):
        formats.remove(self.path)

    def time_write(self, data, name):
        tasks.writer(self.table, self.format, self.path)()


class WriteFull(Write):
    """Write with the default of blztable, which survives a loss of power, as no other does."""

    params = PARAMS_FULL


class Read:
    """Read the files of setup_cache, and touch every memory page of the result."""

    params = PARAMS
    param_names = PARAM_NAMES
    timeout = TIMEOUT

    def setup_cache(self):
        for data in data_sets.DATA_SETS:
            table = data_sets.load(data)
            for name in PARAMS[1]:
                format_ = formats.FORMATS[name]
                try:
                    format_.write(table, file_of(data, format_))
                except Exception as error:  # a commit that cannot write must not stop the others
                    print(f"{name} {data}: {error!r}", file=sys.stderr)

    setup_cache.timeout = TIMEOUT

    def setup(self, data, name):
        format_ = formats.FORMATS[name]
        path = file_of(data, format_)
        if not path.exists():
            raise NotImplementedError  # asv's word for "skip"
        self.calls = {
            task: tasks.reader(task, data_sets.DATA_SETS[data], format_, path)
            for task in [*tasks.READS, tasks.TO_PANDAS]
        }

    def time_read_all(self, data, name):
        self.calls["read all"]()

    def time_two_numeric_columns(self, data, name):
        self.calls["two numeric columns"]()

    def time_key_and_text(self, data, name):
        self.calls["key + text"]()

    def time_to_pandas(self, data, name):
        self.calls["to pandas"]()

    def track_bytes_on_disk(self, data, name):
        return formats.bytes_on_disk(file_of(data, formats.FORMATS[name]))

    track_bytes_on_disk.unit = "bytes"
