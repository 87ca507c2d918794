"""The formats under comparison: how users write and read each, and how a result is touched."""

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

MEMORY_PAGE = 4096


class Format(NamedTuple):
    """A file format with its functions; each function takes the path behind the data."""

    name: str
    suffix: str
    write: Callable[[pa.Table, Path], None]
    read: Callable[[Path, list[str] | None], pa.Table]
    read_pandas: Callable[[Path], pd.DataFrame]


def blz():
    """Import the package only where it is measured: importing costs time."""
    return importlib.import_module("blztable")


# "blztable full" differs from "blztable" only in writing.
BLZTABLE = Format(
    "blztable",
    ".blz",
    lambda table, path: blz().to_blz(table, path, durability="process"),
    lambda path, columns: blz().read_table(path, columns=columns),
    lambda path: blz().read_blz(path),
)
BLZTABLE_FULL = BLZTABLE._replace(
    name="blztable full",
    write=lambda table, path: blz().to_blz(table, path, durability="full"),
)
PARQUET = Format(
    "parquet",
    ".parquet",
    lambda table, path: pq.write_table(table, path, compression="lz4"),
    lambda path, columns: pq.read_table(path, columns=columns),
    pd.read_parquet,
)
FEATHER = Format(
    "feather",
    ".feather",
    lambda table, path: feather.write_feather(table, str(path), compression="lz4"),
    lambda path, columns: feather.read_table(path, columns=columns, memory_map=True),
    pd.read_feather,
)
FORMATS = {format_.name: format_ for format_ in (BLZTABLE, BLZTABLE_FULL, PARQUET, FEATHER)}


def bytes_on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path))


def files_of(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
