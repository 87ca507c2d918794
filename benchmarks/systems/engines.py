"""Systems that come with an engine: polars, DuckDB, Vortex, Lance."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from questions import OPERATORS, Question, sql
from systems.system import Append, Ask, System


class Polars(System):
    """polars with the Parquet file that it writes by default."""

    suffix = ".polars"
    package = "polars"

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
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

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        import duckdb

        with duckdb.connect(path) as connection:
            connection.register("given", table)
            connection.execute("create table kept as select * from given")

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return self._connecting(path, self._query(Question(columns)))()

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return self._connecting(path, lambda one: one.sql(selecting(None)).df())()

    def filtering(self, path: Path, asked: Question) -> Ask:
        return self._connecting(path, self._query(asked))

    def taking(self, path: Path, asked: Question) -> Ask:
        return self._connecting(path, self._query(asked))

    def keeping(self, path: Path, asked: Question) -> Ask:
        import duckdb

        return functools.partial(self._query(asked), duckdb.connect(path, read_only=True))

    def appending(self, path: Path) -> Append:
        import duckdb

        connection = duckdb.connect(path)

        def append(rows: pa.Table) -> None:
            connection.register("given", rows)
            connection.execute("insert into kept select * from given")

        return append

    @staticmethod
    def _query(asked: Question) -> Callable[[Any], pa.Table]:
        """Return a function of a connection that answers."""
        if asked.rows is None:
            where = f" where {sql(asked.conditions)}" if asked.conditions else ""
            query = selecting(asked.columns) + where
            return lambda one: one.sql(query).to_arrow_table()
        wanted = pa.table({"row": asked.rows})
        columns = ", ".join(asked.columns) if asked.columns else "kept.*"
        query = f"select {columns} from kept join given on kept.rowid = given.row"

        def take(connection: Any) -> pa.Table:
            connection.register("given", wanted)
            return connection.sql(query).to_arrow_table()

        return take

    @staticmethod
    def _connecting(path: Path, ask: Callable[[Any], Any]) -> Callable[[], Any]:
        import duckdb

        def call() -> Any:
            with duckdb.connect(path, read_only=True) as connection:
                return ask(connection)

        return call


class Vortex(System):
    """A Vortex file. Its arrays count when they are Arrow: a scan alone decodes nothing."""

    suffix = ".vortex"
    package = "vortex"

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        import vortex

        vortex.io.write(table, str(path))

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        import vortex

        return vortex.open(str(path)).to_arrow(columns).read_all()

    def filtering(self, path: Path, asked: Question) -> Ask:
        import vortex

        asking = self._asking(path, asked)
        return lambda: vortex.open(str(path)).to_arrow(**asking).read_all()

    def taking(self, path: Path, asked: Question) -> Ask:
        return self.filtering(path, asked)

    def keeping(self, path: Path, asked: Question) -> Ask:
        import vortex

        opened, asking = vortex.open(str(path)), self._asking(path, asked)
        return lambda: opened.to_arrow(**asking).read_all()

    @staticmethod
    def _asking(path: Path, asked: Question) -> dict[str, Any]:
        """Return a question as arguments of `to_arrow`."""
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
        found: dict[str, Any] = {"projection": asked.columns}
        if wanted:
            found["expr"] = functools.reduce(ve.and_, wanted)
        if asked.rows is not None:
            # It takes rows in ascending order only.
            found["indices"] = vortex.array(pa.array(np.sort(asked.rows).astype("u8")))
        return found


class Lance(System):
    """A Lance data set."""

    suffix = ".lance"
    package = "lance"

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        import lance

        lance.write_dataset(table, path)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        import lance

        return lance.dataset(path).to_table(columns=columns)

    def filtering(self, path: Path, asked: Question) -> Ask:
        import lance

        options = self._scanning(asked)
        return lambda: lance.dataset(path).scanner(**options).to_table()

    def taking(self, path: Path, asked: Question) -> Ask:
        import lance

        return lambda: lance.dataset(path).take(asked.rows.tolist(), columns=asked.columns)

    def keeping(self, path: Path, asked: Question) -> Ask:
        import lance

        opened = lance.dataset(path)
        if asked.rows is not None:
            return lambda: opened.take(asked.rows.tolist(), columns=asked.columns)
        if not asked.conditions:
            return lambda: opened.to_table(columns=asked.columns)
        options = self._scanning(asked)
        return lambda: opened.scanner(**options).to_table()

    def appending(self, path: Path) -> Append:
        import lance

        return lance.dataset(path).insert

    @staticmethod
    def _scanning(asked: Question) -> dict[str, Any]:
        where = sql(asked.conditions)
        return {"columns": asked.columns, "filter": where, "late_materialization": True}


def selecting(columns: list[str] | None) -> str:
    return f"select {', '.join(columns) if columns else '*'} from kept"
