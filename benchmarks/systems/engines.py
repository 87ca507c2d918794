"""Systems that come with an engine: polars, DuckDB, Vortex, Lance."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from questions import CLUSTERED, OPERATORS, SCATTERED, TAKE_FEW, TAKE_MANY, Question, sql
from systems.system import Append, Ask, System


class Polars(System):
    """polars with the Parquet file that it writes by default."""

    suffix = ".polars"
    package = "polars"

    def write(self, table: pa.Table, path: Path) -> None:
        import polars

        polars.from_arrow(table).write_parquet(path)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        import polars

        return polars.read_parquet(path, columns=columns).to_arrow()

    def read_pandas(self, path: Path) -> pd.DataFrame:
        import polars

        return polars.read_parquet(path).to_pandas()

    def filtering(self, path: Path, asked: Question) -> Ask:
        import polars

        # Without its type, a time would be compared in microseconds.
        types = polars.scan_parquet(path).collect_schema()
        wanted = [
            OPERATORS[sign](polars.col(name), polars.lit(value, types[name]))
            for name, sign, value in asked.conditions
        ]
        return lambda: (
            polars.scan_parquet(path).filter(*wanted).select(asked.columns).collect().to_arrow()
        )

    def taking(self, path: Path, asked: Question) -> Ask:
        import polars

        def take() -> pa.Table:
            read = polars.read_parquet(path, columns=asked.columns)
            return read[asked.rows.tolist()].to_arrow()

        return take


class DuckDB(System):
    """DuckDB's own file; each call connects."""

    suffix = ".duckdb"
    package = "duckdb"

    def write(self, table: pa.Table, path: Path) -> None:
        import duckdb

        with duckdb.connect(path) as connection:
            connection.register("given", table)
            connection.execute("create table kept as select * from given")

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return self._asking(path, lambda one: one.sql(selecting(columns)).to_arrow_table())()

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return self._asking(path, lambda one: one.sql(selecting(None)).df())()

    def filtering(self, path: Path, asked: Question) -> Ask:
        query = f"{selecting(asked.columns)} where {sql(asked.conditions)}"
        return self._asking(path, lambda one: one.sql(query).to_arrow_table())

    def taking(self, path: Path, asked: Question) -> Ask:
        wanted = pa.table({"row": asked.rows})

        def take(connection: Any) -> pa.Table:
            connection.register("given", wanted)
            columns = ", ".join(asked.columns) if asked.columns else "kept.*"
            query = f"select {columns} from kept join given on kept.rowid = given.row"
            return connection.sql(query).to_arrow_table()

        return self._asking(path, take)

    def appending(self, path: Path) -> Append:
        import duckdb

        connection = duckdb.connect(path)

        def append(rows: pa.Table) -> None:
            connection.register("given", rows)
            connection.execute("insert into kept select * from given")

        return append

    def _asking(self, path: Path, ask: Callable[[Any], Any]) -> Callable[[], Any]:
        import duckdb

        def call() -> Any:
            with duckdb.connect(path, read_only=True) as connection:
                return ask(connection)

        return call


class DuckDBKeptOpen(DuckDB):
    """DuckDB with a connection from before, so its later calls find decompressed data."""

    tasks = frozenset({CLUSTERED, SCATTERED, TAKE_MANY, TAKE_FEW})

    def _asking(self, path: Path, ask: Callable[[Any], Any]) -> Callable[[], Any]:
        import duckdb

        return functools.partial(ask, duckdb.connect(path, read_only=True))


class Vortex(System):
    """A Vortex file."""

    suffix = ".vortex"
    package = "vortex"

    def write(self, table: pa.Table, path: Path) -> None:
        import vortex

        vortex.io.write(table, str(path))

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        import vortex

        return vortex.open(str(path)).to_arrow(columns).read_all()

    def filtering(self, path: Path, asked: Question) -> Ask:
        import vortex
        import vortex.expr as ve

        # A literal needs a type, and the file knows the column's.
        types = {field.name: field.type for field in vortex.open(str(path)).dtype.to_arrow_schema()}
        wanted = [
            OPERATORS[sign](
                ve.column(name),
                ve.literal(vortex.DType.from_arrow(types[name]), value),
            )
            for name, sign, value in asked.conditions
        ]
        where = functools.reduce(ve.and_, wanted)
        return lambda: vortex.open(str(path)).to_arrow(asked.columns, expr=where).read_all()

    def taking(self, path: Path, asked: Question) -> Ask:
        import vortex

        # It takes rows in ascending order only.
        ascending = vortex.array(pa.array(np.sort(asked.rows).astype("u8")))
        return lambda: vortex.open(str(path)).to_arrow(asked.columns, indices=ascending).read_all()


class Lance(System):
    """A Lance data set."""

    suffix = ".lance"
    package = "lance"

    def write(self, table: pa.Table, path: Path) -> None:
        import lance

        lance.write_dataset(table, path)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        import lance

        return lance.dataset(path).to_table(columns=columns)

    def filtering(self, path: Path, asked: Question) -> Ask:
        import lance

        where = sql(asked.conditions)
        options = {"columns": asked.columns, "filter": where, "late_materialization": True}
        return lambda: lance.dataset(path).scanner(**options).to_table()

    def taking(self, path: Path, asked: Question) -> Ask:
        import lance

        return lambda: lance.dataset(path).take(asked.rows.tolist(), columns=asked.columns)

    def appending(self, path: Path) -> Append:
        import lance

        return lance.dataset(path).insert


def selecting(columns: list[str] | None) -> str:
    return f"select {', '.join(columns) if columns else '*'} from kept"
