"""The asv suites of the tasks that peers.py compares, on lineitem and flights.

Parquet and Feather beside ours show whether a change of the machine made a difference. The data
sets are made once; every commit writes its own files. appends.py has the suites of appends.
"""

import sys
from pathlib import Path

import data_sets
import measure
import questions
from systems.registry import system as system_of
from systems.system import bytes_on_disk, is_installed, remove, touch

DATA = ["lineitem", "flights"]
SYSTEMS = ["blztable", "blztable, whole pages", "parquet lz4", "feather lz4", "duckdb", "lance"]
ASKED = [task for task in questions.TASKS if task not in (questions.WRITE, questions.APPEND)]
WRITERS = ["blztable", "blztable, durable", "parquet lz4", "feather lz4"]
WRITE_PARAMS, WRITE_NAMES = [DATA, WRITERS], ["data", "system"]
ASK_PARAMS, ASK_NAMES = [DATA, SYSTEMS, ASKED], ["data", "system", "task"]
TIMEOUT = 1800


def file_of(data: str, name: str) -> Path:
    """Return a path in the working directory, which asv keeps until the last benchmark."""
    return Path(f"{data}-{name.replace(' ', '-')}{system_of(name).suffix}").absolute()


class Write:
    """Write a whole new table; only "blztable, durable", the default, survives a loss of power."""

    params = WRITE_PARAMS
    param_names = WRITE_NAMES
    timeout = TIMEOUT
    number = 1
    warmup_time = 0

    def setup(self, data, name):
        self.path = file_of(f"written-{data}", name)
        remove(self.path)
        # asv calls setup before every repeat.
        if not hasattr(self, "table"):
            self.table = data_sets.load(data)
            touch(self.table)

    def teardown(self, data, name):
        remove(self.path)

    def time_write(self, data, name):
        system_of(name).write(self.table, self.path)

    def track_bytes_on_disk(self, data, name):
        system_of(name).write(self.table, self.path)
        return bytes_on_disk(self.path)

    track_bytes_on_disk.unit = "bytes"


class Ask:
    """Each task that reads, and the touch of every memory page of its result."""

    params = ASK_PARAMS
    param_names = ASK_NAMES
    timeout = TIMEOUT

    def setup_cache(self):
        for data in DATA:
            for name in SYSTEMS:
                if not is_installed(system_of(name)):
                    continue
                try:
                    system_of(name).write(data_sets.load(data), file_of(data, name))
                except Exception as error:  # a commit that cannot write must not stop the others
                    print(f"{name} {data}: {error!r}", file=sys.stderr)

    setup_cache.timeout = TIMEOUT

    def setup(self, data, name, task):
        path = file_of(data, name)
        asked = data_sets.questions(data_sets.DATA_SETS[data], data_sets.mapped(data))
        only = system_of(name).tasks
        if not path.exists() or task not in asked or (only is not None and task not in only):
            raise NotImplementedError  # asv's word for "skip"
        self.call = measure.call_of(task, system_of(name), path, asked[task])

    def time_task(self, data, name, task):
        touch(self.call())
