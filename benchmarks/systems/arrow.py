"""pyarrow's Parquet and Feather files, and the Parquet files of polars and fastparquet."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
from questions import Question, expression
from systems.system import Append, Ask, System, dated

FEATHER_BATCH_ROWS = 1 << 16
# Rows of all record batches but the last, in the metadata of a file: the footer has none.
BATCH_ROWS = b"batch_rows"


class Parquet(System):
    """Parquet with a codec."""

    suffix = ".parquet"
    module = "pyarrow.parquet"

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        pq.write_table(table, path, compression=self.codec, row_group_size=row_group_rows)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return pq.read_table(path, columns=columns)

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return pd.read_parquet(path)

    def filtering(self, path: Path, asked: Question) -> Ask:
        where = expression(asked.conditions, pq.read_schema(path))
        return lambda: pq.read_table(path, columns=asked.columns, filters=where)

    def taking(self, path: Path, asked: Question) -> Ask:

        def take() -> pa.Table:
            with pq.ParquetFile(path) as file:
                return self._taken(file, ends_of(file), asked)

        return take

    def keeping(self, path: Path, asked: Question) -> Ask:
        if asked.conditions:
            opened, where = ds.dataset(path), expression(asked.conditions, pq.read_schema(path))
            return lambda: opened.to_table(asked.columns, filter=where)
        file = pq.ParquetFile(path)
        if asked.rows is None:
            return lambda: file.read(asked.columns)
        ends = ends_of(file)
        return lambda: self._taken(file, ends, asked)

    @staticmethod
    def _taken(file: pq.ParquetFile, ends: np.ndarray, asked: Question) -> pa.Table:
        """Read only the row groups that contain one of the rows."""
        needed, positions = locate(ends, asked.rows)
        return file.read_row_groups(needed.tolist(), columns=asked.columns).take(
            pa.array(positions)
        )


class Feather(System):
    """Arrow's IPC file, compressed or not, mapped into memory."""

    suffix = ".feather"
    module = "pyarrow.feather"

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        rows = row_group_rows or FEATHER_BATCH_ROWS
        known = (table.schema.metadata or {}) | {BATCH_ROWS: str(rows)}
        marked = table.replace_schema_metadata(known)
        feather.write_feather(marked, str(path), compression=self.codec, chunksize=rows)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return feather.read_table(path, columns=columns, memory_map=True)

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return pd.read_feather(path)

    def filtering(self, path: Path, asked: Question) -> Ask:
        opened = ds.dataset(path, format="feather")
        where = expression(asked.conditions, opened.schema)
        return lambda: ds.dataset(path, format="feather").to_table(asked.columns, filter=where)

    def taking(self, path: Path, asked: Question) -> Ask:

        def take() -> pa.Table:
            with pa.memory_map(str(path)) as file:
                return self._taken(self._reader(file, asked.columns), asked)

        return take

    def keeping(self, path: Path, asked: Question) -> Ask:
        if asked.conditions:
            opened = ds.dataset(path, format="feather")
            where = expression(asked.conditions, opened.schema)
            return lambda: opened.to_table(asked.columns, filter=where)
        reader = self._reader(pa.memory_map(str(path)), asked.columns)
        if asked.rows is None:
            return reader.read_all
        return lambda: self._taken(reader, asked)

    @staticmethod
    def _reader(
        file: pa.MemoryMappedFile, columns: list[str] | None
    ) -> pa.ipc.RecordBatchFileReader:
        reader = pa.ipc.open_file(file)
        if not columns:
            return reader
        names = [reader.schema.get_field_index(name) for name in columns]
        return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=names))

    @staticmethod
    def _taken(reader: pa.ipc.RecordBatchFileReader, asked: Question) -> pa.Table:
        """Read only the record batches that contain one of the rows."""
        rows = int(reader.schema.metadata[BATCH_ROWS])
        ends = np.arange(1, reader.num_record_batches + 1) * rows
        needed, positions = locate(ends, asked.rows)
        parts = pa.Table.from_batches([reader.get_batch(int(batch)) for batch in needed])
        return parts.take(pa.array(positions))


class FastParquet(System):
    """fastparquet, which knows frames only: to and from Arrow by way of pandas."""

    suffix = ".parq"
    package = "fastparquet"

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        import fastparquet

        options = {"row_group_offsets": row_group_rows} if row_group_rows else {}
        fastparquet.write(str(path), dated(table).to_pandas(), compression="SNAPPY", **options)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return pa.Table.from_pandas(self._frame(path, columns), preserve_index=False)

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return self._frame(path, None)

    def filtering(self, path: Path, asked: Question) -> Ask:
        wanted = [
            (name, sign, np.datetime64(value, "ns") if hasattr(value, "year") else value)
            for name, sign, value in asked.conditions
        ]

        def ask() -> pa.Table:
            frame = self._frame(path, asked.columns, [wanted])
            return pa.Table.from_pandas(frame, preserve_index=False)

        return ask

    def appending(self, path: Path) -> Append:
        import fastparquet

        return lambda rows: fastparquet.write(
            str(path), dated(rows).to_pandas(), compression="SNAPPY", append=True
        )

    @staticmethod
    def _frame(path: Path, columns: list[str] | None, filters: list | None = None) -> pd.DataFrame:
        import fastparquet

        file = fastparquet.ParquetFile(str(path))
        return file.to_pandas(columns, filters=filters or [], row_filter=bool(filters))


def ends_of(file: pq.ParquetFile) -> np.ndarray:
    """Return where each row group ends, in rows of the table."""
    groups = range(file.num_row_groups)
    return np.cumsum([file.metadata.row_group(group).num_rows for group in groups])


def locate(ends: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces that contain the rows, and the position of each row in these pieces."""
    needed, piece = np.unique(np.searchsorted(ends, rows, side="right"), return_inverse=True)
    starts = np.append(0, ends)[needed]
    before = np.cumsum(ends[needed] - starts) - (ends[needed] - starts)
    return needed, rows - starts[piece] + before[piece]
