"""Sources: files of several formats as one stream of record batches, in bounded memory.

Knows nothing of tables.

Theory of operation. Parquet and Arrow files have types. In CSV and NDJSON a column has the type
that all of its values have in common, in all files. It begins with the first block of each file,
and a value that does not fit widens it. Then `Widened` is raised and the caller reads again from
the beginning, so that types do not depend on the size of a block. A type that an option gives, or
the table, is never widened: a value that does not fit is an error with its file, column and row.
Standard input and pipes are copied to temporary files, so that they can be read again.
"""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as parquet

from blztable.cli import json_lines
from blztable.cli.arguments import UsageError
from blztable.cli.widening import csv_type, type_of_text, wider

BLOCK_BYTES = 8 << 20
BATCH_ROWS = 1 << 17
SUFFIXES = {
    **dict.fromkeys((".csv", ".txt"), "csv"),
    **dict.fromkeys((".tsv", ".tab"), "tsv"),
    **dict.fromkeys((".ndjson", ".jsonl", ".json"), "ndjson"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".ipc", ".arrows"), "arrow"),
    ".feather": "feather",
}
# Suffixes of compressed files, as Arrow knows them.
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
_CSV_ERROR = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?"
    r"(CSV conversion error to .*?: (?:invalid value '(.*)')?.*)",
    re.DOTALL,
)
_CSV_ROW = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)


class Widened(Exception):
    """A value does not fit into the type of its column: the type is wider now; read again."""


@dataclass
class Files:
    """Files to read, and what is known of the types of their columns.

    Attributes
    ----------
    given
        Types that an option gives: columns of all formats are cast to them.
    fixed
        Types of the table: columns of CSV and NDJSON are read as these.
    types
        Types of the columns of CSV and NDJSON, as wide as the values so far need.
    name, rows
        The file that is read, and the number of its rows that were read.
    """

    names: Sequence[str]
    format: str | None = None
    columns: Sequence[str] | None = None
    nulls: Sequence[str] = ()
    delimiter: str | None = None
    encoding: str | None = None
    given: Mapping[str, pa.DataType] = field(default_factory=dict)
    fixed: Mapping[str, pa.DataType] = field(default_factory=dict)
    types: dict[str, pa.DataType] = field(default_factory=dict)
    name: str = ""
    rows: int = 0
    # Copies of what can be read once.
    _copies: dict[str, IO[bytes]] = field(default_factory=dict)
    _formats: list[str] = field(default_factory=list)
    # The types of `fixed` and `given` that Arrow can read from each format.
    _csv_types: dict[str, pa.DataType] = field(default_factory=dict)
    _json_types: dict[str, pa.DataType] = field(default_factory=dict)
    # The names of the columns of each CSV file.
    _headers: dict[str, list[str]] = field(default_factory=dict)

    def __enter__(self) -> "Files":
        """Copy pipes, find the formats, and look at the first block of each file."""
        pinned = {**self.fixed, **self.given}
        for name, type_ in pinned.items():
            if readable := csv_type(type_):
                self._csv_types[name] = readable
        self._json_types = json_lines.readable(pinned)
        if self.names.count("-") > 1:
            raise UsageError("standard input can be read once; pass `-` once")
        try:
            for name in self.names:
                if name == "-" or stat.S_ISFIFO(os.stat(name).st_mode):
                    self._copy(name)
            self._formats = [self.format or self._format_of(name) for name in self.names]
            for name, format in zip(self.names, self._formats, strict=True):
                self.name, self.rows = name, 0
                if format in ("csv", "tsv"):
                    self._begin_csv(name, format)
                elif format == "ndjson":
                    self._begin_ndjson(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the copies."""
        for file in self._copies.values():
            file.close()

    def _copy(self, name: str) -> None:
        copy = self._copies[name] = tempfile.NamedTemporaryFile()  # noqa: SIM115
        with ExitStack() as stack:
            file = sys.stdin.buffer if name == "-" else stack.enter_context(open(name, "rb"))
            shutil.copyfileobj(file, copy, BLOCK_BYTES)
        copy.flush()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files; raise Widened once a type turns out to be too narrow."""
        readers = {
            **{"csv": self._csv, "tsv": self._csv, "ndjson": self._ndjson},
            **{"parquet": self._parquet, "arrow": self._arrow, "feather": self._arrow},
        }
        for name, format in zip(self.names, self._formats, strict=True):
            self.name, self.rows = name, 0
            types = {**self.given}
            if format == "ndjson":
                types |= {k: v for k, v in self.fixed.items() if k not in self._json_types}
            try:
                for batch in readers[format](name, format):
                    yield self._cast(self._chosen(batch), types)
                    self.rows += batch.num_rows
            except pa.ArrowInvalid as error:
                raise self._error(str(error)) from None
            except OSError as error:
                # Arrow's own errors about the content of a file name none.
                if error.filename is None:
                    raise self._error(str(error)) from None
                raise

    @property
    def place(self) -> str:
        """The file that is read, for errors."""
        return "standard input" if self.name == "-" else self.name

    def _error(self, message: str) -> ValueError:
        return ValueError(f"{self.place}: {message}")

    def _path(self, name: str) -> str:
        return self._copies[name].name if name in self._copies else name

    def _open(self, name: str) -> Any:
        """Open a file, decompressed."""
        return pa.input_stream(self._path(name), compression="detect")

    def _format_of(self, name: str) -> str:
        """Return the format that the name says, or else the first bytes."""
        path = Path(name.lower())
        suffix = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
        if suffix in SUFFIXES:
            return SUFFIXES[suffix]
        with self._open(name) as file:
            begin = file.read(64)
        known = (format for magic, format in MAGIC.items() if begin.startswith(magic))
        return next(known, "ndjson" if begin.lstrip()[:1] == b"{" else "csv")

    def _wanted(self, names: Sequence[str]) -> list[str] | None:
        """Return the columns to read of those in a file; None for all, or if one is missing."""
        if self.columns is None or not {*self.columns} <= {*names}:
            return None
        return list(self.columns)

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.columns is None:
            return batch
        for name in self.columns:
            if name not in batch.schema.names:
                raise self._error(f"no column is named {name!r}; there are {batch.schema.names}")
        return batch.select(list(self.columns))

    def _cast(self, batch: pa.RecordBatch, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        """Return a batch with columns of other types."""
        for index, column in enumerate(batch.schema):
            type_ = types.get(column.name, column.type)
            if type_ != column.type:
                try:
                    values = batch.column(index).cast(type_)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    row = self._misfit(batch.column(index), type_)
                    raise self._error(f"column {column.name!r}, row {row:,}: {error}") from None
                batch = batch.set_column(index, column.with_type(type_), values)
        return batch

    def _misfit(self, values: pa.Array, type_: pa.DataType) -> int:
        """Return the number of the first row that cannot be cast."""
        for row in range(len(values)):
            try:
                values.slice(row, 1).cast(type_)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return self.rows + row + 1
        return self.rows + 1

    def _widen(self, name: str, type_: pa.DataType, otherwise: pa.DataType | None) -> None:
        """Make the type of a column wide enough for values of another type."""
        known = self.types.get(name, pa.null())
        wide = wider(known, type_) or otherwise
        if wide is None:
            raise self._error(
                f"column {name!r}: {type_} from row {self.rows + 1:,} on, and {known} before; make "
                "the values alike, or leave the column out with --columns"
            )
        self.types[name] = wide

    def _begin_csv(self, name: str, format: str) -> None:
        with self._csv_reader(name, format, {}) as reader:
            self._headers[name] = reader.schema.names
            wanted = self._wanted(reader.schema.names) or reader.schema.names
            for column in reader.schema:
                if column.name in self._csv_types or column.name not in wanted:
                    continue
                if pa.types.is_binary(column.type):
                    raise self._error(
                        f"column {column.name!r} is no UTF-8; pass --encoding, for example latin1, "
                        f"or --dtype {column.name}=binary"
                    )
                self._widen(column.name, column.type, pa.string())

    def _csv(self, name: str, format: str) -> Iterator[pa.RecordBatch]:
        types = {**self.types, **self._csv_types}
        try:
            with self._csv_reader(name, format, types) as reader:
                yield from _or_empty(reader, reader.schema)
        except pa.ArrowInvalid as error:
            raise self._csv_error(name, str(error)) from None

    def _csv_reader(
        self, name: str, format: str, types: Mapping[str, pa.DataType], is_single: bool = False
    ) -> pa_csv.CSVStreamingReader:
        read = pa_csv.ReadOptions(
            # One thread tells the row of an error, and is as fast: the writer has the others.
            block_size=BLOCK_BYTES,
            use_threads=False,
            encoding=self.encoding or "utf8",
        )
        parse = pa_csv.ParseOptions(
            delimiter=self.delimiter or ("\t" if format == "tsv" else ","),
            newlines_in_values=True,
            # In a single column, an empty line is a missing value.
            ignore_empty_lines=not is_single,
        )
        convert = pa_csv.ConvertOptions(
            column_types=types,
            null_values=["", *self.nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            # A column that is not wanted may hold anything.
            include_columns=self._wanted(self._headers.get(name, [])),
        )
        try:
            reader = pa_csv.open_csv(
                self._open(name), read_options=read, parse_options=parse, convert_options=convert
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                raise self._error("it is empty; CSV begins with the names of the columns") from None
            raise self._csv_error(name, str(error)) from None
        if len(reader.schema) > 1 or is_single:
            return reader
        reader.close()
        return self._csv_reader(name, format, types, is_single=True)

    def _csv_error(self, name: str, message: str) -> Exception:
        """Widen the type of a column for a value, or return the error about the place."""
        if parsed := _CSV_ROW.fullmatch(message):
            return self._error(f"row {int(parsed[1]) - 1:,}: {parsed[2]}")
        found = _CSV_ERROR.fullmatch(message)
        if found is None:
            return self._error(message)
        number, row, text, value = found.groups()
        column = self._headers[name][int(number)]
        known = self.types.get(column)
        if column not in self._csv_types and known not in (None, pa.string()):
            type_ = pa.string() if value is None else type_of_text(value)
            self._widen(column, type_, pa.string())
            if self.types[column] == known:
                # A time that its unit cannot hold.
                self.types[column] = pa.string()
            return Widened()
        place = f"row {int(row) - 1:,}" if row else f"after row {self.rows:,}"
        return self._error(f"column {column!r}, {place}: {text}")

    def _begin_ndjson(self, name: str) -> None:
        with self._open(name) as file:
            for block in json_lines.blocks(file, BLOCK_BYTES):
                self._widen_for(self._parsed(block))
                return

    def _ndjson(self, name: str, format: str) -> Iterator[pa.RecordBatch]:
        with self._open(name) as file:
            for block in json_lines.blocks(file, BLOCK_BYTES):
                table = self._parsed(block)
                if self._widen_for(table):
                    raise Widened
                schema = pa.schema(self.types)
                if table.schema != schema:
                    table = json_lines.parse(block, schema)
                yield from table.to_batches()

    def _widen_for(self, table: pa.Table) -> bool:
        """Widen the types for the rows of NDJSON; True if that changed one."""
        before = dict(self.types)
        for column in table.schema:
            if column.name in self._json_types:
                self.types[column.name] = self._json_types[column.name]
            else:
                self._widen(column.name, column.type, None)
        return self.types != before

    def _parsed(self, block: bytes) -> pa.Table:
        # A column that no row has stays missing, so that the table fills it with its default.
        known = {name: type_ for name, type_ in self._json_types.items() if name in self.types}
        try:
            return json_lines.parse(block, pa.schema(known))
        except pa.ArrowInvalid:
            row, message = json_lines.first_error(block, pa.schema(known))
            raise self._error(f"row {self.rows + row + 1:,}: {message}") from None

    def _parquet(self, name: str, format: str) -> Iterator[pa.RecordBatch]:
        with parquet.ParquetFile(self._path(name)) as file:
            wanted = self._wanted(file.schema_arrow.names)
            batches = file.iter_batches(BATCH_ROWS, columns=wanted)
            yield from _or_empty(batches, file.schema_arrow)

    def _arrow(self, name: str, format: str) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self._path(name)) as file:
            begin = file.read(6)
            file.seek(0)
            if begin == b"ARROW1":
                with pa.ipc.open_file(file) as reader:
                    batches = map(reader.get_batch, range(reader.num_record_batches))
                    yield from _or_empty(batches, reader.schema)
            else:
                with pa.ipc.open_stream(file) as stream:
                    yield from _or_empty(stream, stream.schema)


def _or_empty(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches, or one without rows, which has the columns."""
    empty = True
    for batch in batches:
        yield batch
        empty = False
    if empty:
        yield pa.RecordBatch.from_pylist([], schema=schema)
