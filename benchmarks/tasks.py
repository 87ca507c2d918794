"""The five tasks that compare.py measures, each one call of a format."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from data_sets import DataSet
from formats import Format, touch

WRITE = "write"
READS = {
    "read all": lambda data: None,
    "two numeric columns": lambda data: data.two_numeric,
    "key + text": lambda data: data.key_and_text,
}
TO_PANDAS = "to pandas"
TASKS = [WRITE, *READS, TO_PANDAS]


def reader(task: str, data: DataSet, format_: Format, path: Path) -> Callable[[], None]:
    """Return the call to time: it reads from `path` and touches the result."""
    if task == TO_PANDAS:
        return lambda: touch(format_.read_pandas(path))
    columns = READS[task](data)
    return lambda: touch(format_.read(path, columns))


def writer(table: pa.Table, format_: Format, path: Path) -> Callable[[], None]:
    """Return the call to time: it writes to `path`, which must not exist."""
    return lambda: format_.write(table, path)
