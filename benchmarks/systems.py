"""The systems under comparison: how their users filter, take and count.

A way takes the path and the question and returns the call to time. Each call opens the data that
it reads. "duckdb" is different: its connection is opened before, so it keeps decompressed data,
which makes it the harder competitor. If a system has several ways, the usually fastest is first.
Knows nothing of how calls are measured.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import formats
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq

# A choice of expert users; the default is 2^20.
SMALL_GROUP_ROWS = 1 << 17
FEATHER_BATCH_ROWS = 1 << 16


class Filter(NamedTuple):
    """The rows that match a condition, given for Arrow and in SQL."""

    columns: list[str]
    filtered: list[str]
    where: pc.Expression
    sql: str


class Take(NamedTuple):
    """These rows, each of them once."""

    columns: list[str]
    indices: np.ndarray


class Count(NamedTuple):
    """The number of rows that match a condition."""

    filtered: list[str]
    where: pc.Expression


Call = Callable[[], pa.Table | int]
Way = Callable[[Path, Any], Call]


class System(NamedTuple):
    """A system that stores a table, and its ways to answer each kind of question."""

    suffix: str
    write: Callable[[pa.Table, Path], object]
    ways: dict[type, dict[str, Way]]


def package(name: str) -> ModuleType:
    """Import a package only where it is measured: it may not be installed."""
    return importlib.import_module(name)


def blztable_filter(path: Path, asked: Filter) -> Call:
    blz = formats.blz()
    return lambda: blz.read_table(path, columns=asked.columns, filters=asked.where)


def blztable_take(path: Path, asked: Take) -> Call:
    blz = formats.blz()

    def take() -> pa.Table:
        with blz.open(path) as table:
            return table.take(asked.indices, columns=asked.columns)

    return take


def blztable_whole(path: Path, asked: Take) -> Call:
    """Read all rows of the columns, to compare with a take."""
    blz = formats.blz()
    return lambda: blz.read_table(path, columns=asked.columns)


def blztable_count(path: Path, asked: Count) -> Call:
    blz = formats.blz()

    def count() -> int:
        with blz.open(path) as table:
            return table.count(filters=asked.where)

    return count


def parquet_filter(path: Path, asked: Filter) -> Call:
    return lambda: pq.read_table(path, columns=asked.columns, filters=asked.where)


def dataset_filter(path: Path, asked: Filter) -> Call:
    return lambda: opened(path).to_table(columns=asked.columns, filter=asked.where)


def feather_filter(path: Path, asked: Filter) -> Call:
    needed = list(dict.fromkeys([*asked.columns, *asked.filtered]))

    def read() -> pa.Table:
        table = feather.read_table(path, columns=needed, memory_map=True)
        return table.filter(asked.where).select(asked.columns)

    return read


def dataset_take(path: Path, asked: Take) -> Call:
    return lambda: opened(path).take(pa.array(asked.indices), columns=asked.columns)


def dataset_count(path: Path, asked: Count) -> Call:
    return lambda: opened(path).count_rows(filter=asked.where)


def opened(path: Path) -> ds.Dataset:
    return ds.dataset(path, format=path.suffix.removeprefix("."))


def parquet_take(path: Path, asked: Take) -> Call:
    return lambda: pq.read_table(path, columns=asked.columns).take(pa.array(asked.indices))


def parquet_take_groups(path: Path, asked: Take) -> Call:
    """Read only the row groups that contain one of the rows."""

    def take() -> pa.Table:
        with pq.ParquetFile(path) as file:
            groups = file.num_row_groups
            rows = [file.metadata.row_group(group).num_rows for group in range(groups)]
            needed, positions = locate(np.cumsum(rows), asked.indices)
            parts = file.read_row_groups(needed.tolist(), columns=asked.columns)
        return parts.take(pa.array(positions))

    return take


def feather_take(path: Path, asked: Take) -> Call:
    def take() -> pa.Table:
        table = feather.read_table(path, columns=asked.columns, memory_map=True)
        return table.take(pa.array(asked.indices))

    return take


def feather_take_batches(path: Path, asked: Take) -> Call:
    """Read only the record batches that contain one of the rows."""

    def take() -> pa.Table:
        with pa.memory_map(str(path)) as file:
            schema = pa.ipc.open_file(file).schema
            fields = [schema.get_field_index(name) for name in asked.columns]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            reader = pa.ipc.open_file(file, options=options)
            ends = np.arange(1, reader.num_record_batches + 1) * FEATHER_BATCH_ROWS
            needed, positions = locate(ends, asked.indices)
            parts = pa.Table.from_batches([reader.get_batch(batch) for batch in needed.tolist()])
        return parts.take(pa.array(positions))

    return take


def locate(ends: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces that contain the rows, and the position of each row in these pieces."""
    needed, piece = np.unique(np.searchsorted(ends, indices, side="right"), return_inverse=True)
    starts = np.append(0, ends)[needed]
    before = np.cumsum(ends[needed] - starts) - (ends[needed] - starts)
    return needed, indices - starts[piece] + before[piece]


def lance_filter(path: Path, asked: Filter) -> Call:
    lance = package("lance")
    return lambda: lance.dataset(path).to_table(columns=asked.columns, filter=asked.sql)


def lance_filter_late(path: Path, asked: Filter) -> Call:
    lance = package("lance")
    options = {"columns": asked.columns, "filter": asked.sql, "late_materialization": True}
    return lambda: lance.dataset(path).scanner(**options).to_table()


def lance_take(path: Path, asked: Take) -> Call:
    lance = package("lance")
    return lambda: lance.dataset(path).take(asked.indices.tolist(), columns=asked.columns)


def write_lance(table: pa.Table, path: Path) -> None:
    package("lance").write_dataset(table, path)


def write_lance_indexed(table: pa.Table, path: Path) -> None:
    """Write, and make zone maps of the filtered columns, which Lance does on request."""
    data_set = package("lance").write_dataset(table, path)
    for name in {"l_orderkey", "l_shipdate"}.intersection(table.column_names):
        data_set.create_scalar_index(name, index_type="ZONEMAP")


def write_duckdb(table: pa.Table, path: Path) -> None:
    with package("duckdb").connect(path) as connection:
        connection.register("given", table)
        connection.execute("create table kept as select * from given")


def duckdb_filter(connection: Any, asked: Filter) -> pa.Table:
    query = f"select {', '.join(asked.columns)} from kept where {asked.sql}"
    return connection.sql(query).to_arrow_table()


def duckdb_take_join(connection: Any, asked: Take) -> pa.Table:
    connection.register("given", pa.table({"row": asked.indices}))
    columns = ", ".join(asked.columns)
    query = f"select {columns} from kept join given on kept.rowid = given.row"
    return connection.sql(query).to_arrow_table()


def duckdb_take_in(connection: Any, asked: Take) -> pa.Table:
    columns = ", ".join(asked.columns)
    query = f"select {columns} from kept where rowid in (select unnest($1))"
    return connection.sql(query, params=[asked.indices.tolist()]).to_arrow_table()


def kept_open(answer: Callable[[Any, Any], pa.Table]) -> Way:
    def way(path: Path, asked: Any) -> Call:
        connection = package("duckdb").connect(path, read_only=True)
        return lambda: answer(connection, asked)

    return way


def opened_anew(answer: Callable[[Any, Any], pa.Table]) -> Way:
    def way(path: Path, asked: Any) -> Call:
        duckdb = package("duckdb")

        def call() -> pa.Table:
            with duckdb.connect(path, read_only=True) as connection:
                return answer(connection, asked)

        return call

    return way


BLZTABLE = System(
    ".blz",
    formats.BLZTABLE.write,
    {
        Filter: {"read_table": blztable_filter},
        Take: {"take": blztable_take},
        Count: {"count": blztable_count},
    },
)
PARQUET = System(
    ".parquet",
    formats.PARQUET.write,
    {
        Filter: {"read_table": parquet_filter, "dataset": dataset_filter},
        Take: {
            "dataset.take": dataset_take,
            "read_table, take": parquet_take,
            "read_row_groups, take": parquet_take_groups,
        },
        Count: {"dataset.count_rows": dataset_count},
    },
)
FEATHER = System(
    ".feather",
    formats.FEATHER.write,
    {
        Filter: {"dataset": dataset_filter, "read_table, filter": feather_filter},
        Take: {
            "dataset.take": dataset_take,
            "read_table, take": feather_take,
            "get_batch, take": feather_take_batches,
        },
    },
)
LANCE = System(
    ".lance",
    write_lance,
    {
        Filter: {"late_materialization": lance_filter_late, "to_table": lance_filter},
        Take: {"take": lance_take},
    },
)
DUCKDB_ANSWERS: dict[type, dict[str, Callable[[Any, Any], pa.Table]]] = {
    Filter: {"where": duckdb_filter},
    Take: {"join": duckdb_take_join, "rowid in": duckdb_take_in},
}


def duckdb_ways(connected: Callable[[Callable], Way]) -> dict[type, dict[str, Way]]:
    return {
        kind: {name: connected(answer) for name, answer in answers.items()}
        for kind, answers in DUCKDB_ANSWERS.items()
    }


SYSTEMS = {
    "blztable": BLZTABLE,
    "touched pages": BLZTABLE._replace(ways={Take: {"read_table": blztable_whole}}),
    "parquet": PARQUET,
    "parquet, small groups": PARQUET._replace(
        suffix="-small.parquet",
        write=lambda table, path: pq.write_table(
            table, path, compression="lz4", row_group_size=SMALL_GROUP_ROWS
        ),
        ways={kind: PARQUET.ways[kind] for kind in (Filter, Take)},
    ),
    "feather": FEATHER,
    "lance": LANCE,
    "lance, indexed": LANCE._replace(suffix="-indexed.lance", write=write_lance_indexed),
    "duckdb": System(".duckdb", write_duckdb, duckdb_ways(kept_open)),
    "duckdb, opened": System(".duckdb", write_duckdb, duckdb_ways(opened_anew)),
}
