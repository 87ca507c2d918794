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


class Parquet(System):
    """Parquet with a codec."""

    suffix = ".parquet"
    module = "pyarrow.parquet"

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def write(self, table: pa.Table, path: Path) -> None:
        pq.write_table(table, path, compression=self.codec)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return pq.read_table(path, columns=columns)

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return pd.read_parquet(path)

    def filtering(self, path: Path, asked: Question) -> Ask:
        where = expression(asked.conditions, pq.read_schema(path))
        return lambda: pq.read_table(path, columns=asked.columns, filters=where)

    def taking(self, path: Path, asked: Question) -> Ask:
        """Read only the row groups that contain one of the rows."""

        def take() -> pa.Table:
            with pq.ParquetFile(path) as file:
                groups = file.num_row_groups
                rows = [file.metadata.row_group(group).num_rows for group in range(groups)]
                needed, positions = locate(np.cumsum(rows), asked.rows)
                parts = file.read_row_groups(needed.tolist(), columns=asked.columns)
            return parts.take(pa.array(positions))

        return take


class Feather(System):
    """Arrow's IPC file, compressed or not, mapped into memory."""

    suffix = ".feather"
    module = "pyarrow.feather"

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def write(self, table: pa.Table, path: Path) -> None:
        feather.write_feather(table, str(path), compression=self.codec)

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return feather.read_table(path, columns=columns, memory_map=True)

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return pd.read_feather(path)

    def filtering(self, path: Path, asked: Question) -> Ask:
        opened = ds.dataset(path, format="feather")
        where = expression(asked.conditions, opened.schema)
        return lambda: ds.dataset(path, format="feather").to_table(asked.columns, filter=where)

    def taking(self, path: Path, asked: Question) -> Ask:
        """Read only the record batches that contain one of the rows."""

        def take() -> pa.Table:
            with pa.memory_map(str(path)) as file:
                reader = pa.ipc.open_file(file)
                if asked.columns:
                    names = [reader.schema.get_field_index(name) for name in asked.columns]
                    options = pa.ipc.IpcReadOptions(included_fields=names)
                    reader = pa.ipc.open_file(file, options=options)
                ends = np.arange(1, reader.num_record_batches + 1) * FEATHER_BATCH_ROWS
                needed, positions = locate(ends, asked.rows)
                parts = pa.Table.from_batches([reader.get_batch(int(batch)) for batch in needed])
            return parts.take(pa.array(positions))

        return take


class FastParquet(System):
    """fastparquet, which knows frames only: to and from Arrow by way of pandas."""

    suffix = ".parq"
    package = "fastparquet"

    def write(self, table: pa.Table, path: Path) -> None:
        import fastparquet

        fastparquet.write(str(path), dated(table).to_pandas(), compression="SNAPPY")

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


def locate(ends: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces that contain the rows, and the position of each row in these pieces."""
    needed, piece = np.unique(np.searchsorted(ends, rows, side="right"), return_inverse=True)
    starts = np.append(0, ends)[needed]
    before = np.cumsum(ends[needed] - starts) - (ends[needed] - starts)
    return needed, rows - starts[piece] + before[piece]
