"""What is asked of a system, and how a result is touched."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from questions import Question

MEMORY_PAGE = 4096

Ask = Callable[[], pa.Table]
Append = Callable[[pa.Table], object]


class System:
    """A way to keep a table on disk; paths do not exist before `write`."""

    suffix: str
    # The package that must be installed.
    package: str = "pyarrow"
    # What its user imports, if that is not the package.
    module: str | None = None
    # None for all tasks; a variant may differ from its base in a few tasks only.
    tasks: frozenset[str] | None = None

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        """Write a whole new table, in row groups of so many rows if the system has such."""
        raise NotImplementedError

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        """Open the table and read these columns, or all."""
        raise NotImplementedError

    def read_pandas(self, path: Path) -> pd.DataFrame:
        """Open the table and read all of it."""
        return self.read(path, None).to_pandas()

    def filtering(self, path: Path, asked: Question) -> Ask:
        """Return a call that opens the table and answers, unless the system is kept open."""
        raise NotImplementedError("has no filter on disk")

    def taking(self, path: Path, asked: Question) -> Ask:
        """Return a call that opens the table and reads the rows."""
        raise NotImplementedError("has no access to single rows")

    def keeping(self, path: Path, asked: Question) -> Ask:
        """Open the table; return a call that reads, filters or takes, as the question says."""
        raise NotImplementedError("keeps nothing open")

    def appending(self, path: Path) -> Append:
        """Open the table; return a call that appends rows, seen by the next to open it."""
        raise NotImplementedError("has no append")


def is_installed(system: System) -> bool:
    return importlib.util.find_spec(system.package) is not None


def bytes_on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path))


def files_of(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy(source: Path, target: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


def dated(table: pa.Table) -> pa.Table:
    """Turn dates into timestamps, for systems that have no dates."""
    fields = [
        field.with_type(pa.timestamp("ns")) if pa.types.is_date(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def touch(result: pa.Table | pd.DataFrame) -> None:
    """Read a byte of every memory page, so that lazy or mapped data do not look fast."""
    if isinstance(result, pa.Table):
        for column in result.columns:
            touch_arrow(column)
        return
    for position in range(result.shape[1]):
        values = result.iloc[:, position].array
        if hasattr(values, "__arrow_array__"):
            touch_arrow(pa.chunked_array(values.__arrow_array__()))
        else:
            # As a numpy array, dates with a time zone would become Python objects.
            numbers = values.asi8 if hasattr(values, "asi8") else np.asarray(values)
            numbers[:: max(1, MEMORY_PAGE // numbers.itemsize)].copy()


def touch_arrow(column: pa.ChunkedArray) -> None:
    for chunk in column.chunks:
        buffers = chunk.buffers()
        if pa.types.is_dictionary(chunk.type):
            buffers += chunk.dictionary.buffers()
        for buffer in buffers:
            if buffer is not None and buffer.size:
                np.frombuffer(buffer, np.uint8)[::MEMORY_PAGE].copy()
