"""Systems of arrays that compress with Blosc or beside it: blosc2's CTable, PyTables."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from questions import OPERATORS, Condition, Question
from systems.system import Append, Ask, System, dated


class Blosc2(System):
    """blosc2's CTable in a directory. It has no dates, so they are stored as timestamps."""

    suffix = ".b2d"
    package = "blosc2"

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        import blosc2

        known = dated(table)
        options = {"urlpath": str(path), "capacity_hint": table.num_rows}
        blosc2.CTable.from_arrow(known.schema, known.to_batches(), **options).close()

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        opened = self._open(path)
        return (opened.select(columns) if columns else opened).to_arrow()

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return self._open(path).to_pandas()

    def filtering(self, path: Path, asked: Question) -> Ask:
        def ask() -> pa.Table:
            opened, wanted = self._open(path), None
            for name, sign, value in asked.conditions:
                value = np.datetime64(value, "ns") if hasattr(value, "year") else value
                one = OPERATORS[sign](opened[name], value)
                wanted = one if wanted is None else wanted & one
            return opened.where(wanted, columns=asked.columns).to_arrow()

        return ask

    def taking(self, path: Path, asked: Question) -> Ask:
        def take() -> pa.Table:
            opened = self._open(path)
            return (
                (opened.select(asked.columns) if asked.columns else opened)
                .take(asked.rows)
                .to_arrow()
            )

        return take

    def appending(self, path: Path) -> Append:
        import blosc2

        def append(rows: pa.Table) -> None:
            known = dated(rows)
            # Before it is closed, no one else sees the rows.
            opened = blosc2.CTable.open(str(path), mode="a")
            opened.extend({name: known[name].to_numpy() for name in known.column_names})
            opened.close()

        return append

    @staticmethod
    def _open(path: Path) -> Any:
        import blosc2

        return blosc2.CTable.open(str(path))


class PyTables(System):
    """A PyTables table with Blosc and lz4: times as integers, text as bytes of one width."""

    suffix = ".h5"
    package = "tables"

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        import tables

        if any(column.null_count for column in table.columns):
            raise NotImplementedError("has no nulls")
        rows = structured(table)
        filters = tables.Filters(complevel=5, complib="blosc:lz4", shuffle=True)
        with tables.open_file(str(path), "w") as file:
            kept = file.create_table(
                "/", "kept", rows.dtype, filters=filters, expectedrows=len(rows)
            )
            kept.append(rows)
            kept.attrs.schema = table.schema.serialize().to_pybytes().hex()

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        with self._open(path) as file:
            kept = file.root.kept
            if columns is None:
                return self._arrow(kept, kept.read(), None)
            arrays = [self._column(kept, name, kept.read(field=name)) for name in columns]
            return pa.table(dict(zip(columns, arrays, strict=True)))

    def filtering(self, path: Path, asked: Question) -> Ask:
        def ask() -> pa.Table:
            with self._open(path) as file:
                kept = file.root.kept
                known = self._schema(kept)
                names = {f"value_{i}": stored(one, known) for i, one in enumerate(asked.conditions)}
                text = " & ".join(
                    f"({one.column} {one.operator} {name})"
                    for name, one in zip(names, asked.conditions, strict=True)
                )
                return self._arrow(kept, kept.read_where(text, names), asked.columns)

        return ask

    def taking(self, path: Path, asked: Question) -> Ask:
        def take() -> pa.Table:
            with self._open(path) as file:
                kept = file.root.kept
                return self._arrow(kept, kept.read_coordinates(asked.rows), asked.columns)

        return take

    def appending(self, path: Path) -> Append:
        import tables

        def append(rows: pa.Table) -> None:
            with tables.open_file(str(path), "a") as file:
                file.root.kept.append(structured(rows, file.root.kept.dtype))

        return append

    @staticmethod
    def _open(path: Path) -> Any:
        import tables

        return tables.open_file(str(path))

    @staticmethod
    def _schema(kept: Any) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(kept.attrs.schema)))

    def _arrow(self, kept: Any, rows: np.ndarray, columns: list[str] | None) -> pa.Table:
        names = columns or list(rows.dtype.names)
        return pa.table({name: self._column(kept, name, rows[name]) for name in names})

    def _column(self, kept: Any, name: str, values: np.ndarray) -> pa.Array:
        type_ = self._schema(kept).field(name).type
        if values.dtype.kind == "S":
            return pa.array(values, pa.binary()).cast(type_)
        return pa.array(np.ascontiguousarray(values)).view(type_)


def structured(table: pa.Table, dtype: np.dtype | None = None) -> np.ndarray:
    """Return the rows as a structured array."""
    arrays = {name: plain(table[name]) for name in table.column_names}
    dtype = dtype or np.dtype([(name, values.dtype) for name, values in arrays.items()])
    rows = np.empty(table.num_rows, dtype)
    for name, values in arrays.items():
        rows[name] = values
    return rows


def plain(column: pa.ChunkedArray) -> np.ndarray:
    """Return numbers as they are, times as integers, text as bytes."""
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary()).to_numpy().astype("S")
    if pa.types.is_temporal(column.type):
        return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_numpy()
    return column.to_numpy()


def stored(condition: Condition, schema: pa.Schema) -> Any:
    """Return the value of a condition as it is stored."""
    return plain(
        pa.chunked_array([pa.array([condition.value], schema.field(condition.column).type)])
    )[0]
