"""Sources: files of several formats as one stream of record batches, in bounded memory.

Knows nothing of tables.

Theory of operation. Parquet and Arrow files have types. Columns of CSV are read as text, and those
of NDJSON as Arrow infers them; `inference.py` says which type holds all of their values without a
change. A type begins with the first block of each file, and a value that does not fit widens it.
Then `Widened` is raised and the caller reads again from the beginning, so types do not depend on
the size of a block. A type that an option gives, or the table, is never widened: a value that does
not fit is an error with its file, column and row. Standard input and pipes are copied to temporary
files, so that they can be read again.
"""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as parquet

from blztable import tuning
from blztable.cli import json_lines
from blztable.cli.arguments import UsageError, column_names
from blztable.cli.inference import TextKind, TextKinds
from blztable.cli.type_names import csv_type

# Enough for the names of the columns, and a row.
HEADER_BYTES = 64 << 10
# So small a part of a block has nearly all kinds of values. If not, reading begins again early.
SAMPLE = 16
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
    r"(.*)",
    re.DOTALL,
)
_CSV_ROW = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)
_ENCODING = "pass --encoding, for example --encoding latin-1"


class Widened(Exception):
    """A value does not fit into the type of its column: the type is wider now; read again."""


@dataclass
class SourceFiles:
    """Files to read, and what is known of the types of their columns.

    Attributes
    ----------
    given
        Types that an option gives: columns of all formats are cast to them.
    fixed
        Types of the table: columns of CSV and NDJSON are read as these.
    kinds
        Kinds of the values so far, in the columns of CSV and NDJSON.
    name, rows
        The file that is read, and the number of its rows that were read.
    """

    names: Sequence[str]
    format: str | None = None
    # Names in one text, `A,B`.
    columns: str | None = None
    nulls: Sequence[str] = ()
    delimiter: str | None = None
    encoding: str | None = None
    given: Mapping[str, pa.DataType] = field(default_factory=dict)
    fixed: Mapping[str, pa.DataType] = field(default_factory=dict)
    decimal: str = "."
    has_header: bool = True
    skip: int = 0
    kinds: TextKinds = field(default_factory=TextKinds)
    name: str = ""
    rows: int = 0
    # Copies of what can be read once.
    _copies: dict[str, IO[bytes]] = field(default_factory=dict)
    _formats: list[str] = field(default_factory=list)
    # The types of `fixed` and `given` that Arrow can read from CSV.
    _csv_types: dict[str, pa.DataType] = field(default_factory=dict)
    # The names of the columns of each CSV file.
    _headers: dict[str, list[str]] = field(default_factory=dict)

    def __enter__(self) -> "SourceFiles":
        """Copy pipes, find the formats, and look at the first block of each file."""
        pinned = {**self.fixed, **self.given}
        for name, type_ in pinned.items():
            if readable := csv_type(type_):
                self._csv_types[name] = readable
        expected = {
            name: TextKinds.of(type_, is_given=name in self.given)
            for name, type_ in pinned.items()
            if json_lines.is_readable(type_)
        }
        self.kinds = TextKinds(TextKind.STRUCT, expected=expected)
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
            shutil.copyfileobj(file, copy, tuning.current.block_bytes)
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
                types |= {k: v for k, v in self.fixed.items() if not json_lines.is_readable(v)}
            try:
                for batch in readers[format](name, format):
                    yield self._cast(self._chosen(batch), types)
                    self.rows += batch.num_rows
            except pa.ArrowInvalid as error:
                raise self._error(str(error)) from None
            except UnicodeError as error:
                raise self._error(f"after row {self.rows:,}: {error}; {_ENCODING}") from None
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
        return next(known, "ndjson" if begin.lstrip()[:1] in (b"{", b"[") else "csv")

    def _wanted(self, names: Sequence[str]) -> list[str] | None:
        """Return the columns to read of those in a file; None for all, or if one is missing."""
        wanted = column_names(names, self.columns)
        return None if wanted is None or not {*wanted} <= {*names} else wanted

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        wanted = column_names(batch.schema.names, self.columns)
        if wanted is None:
            return batch
        for name in wanted:
            if name not in batch.schema.names:
                raise self._error(f"no column is named {name!r}; there are {batch.schema.names}")
        return batch.select(wanted)

    def _cast(self, batch: pa.RecordBatch, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        """Return a batch with columns of other types."""
        for index, column in enumerate(batch.schema):
            type_ = types.get(column.name, column.type)
            if type_ != column.type:
                try:
                    values = batch.column(index).cast(type_)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    row = self._misfit(batch.column(index), partial(pc.cast, target_type=type_))
                    raise self._error(f"column {column.name!r}, row {row:,}: {error}") from None
                batch = batch.set_column(index, column.with_type(type_), values)
        return batch

    def _misfit(self, values: pa.Array, read: Callable[[pa.Array], object]) -> int:
        """Return the number of the first row that cannot be read."""
        good, bad = 0, len(values)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                read(values.slice(good, middle - good))
                good = middle
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                bad = middle
        return self.rows + bad

    def _begin_csv(self, name: str, format: str) -> None:
        try:
            reader = self._csv_reader(name, format, {}, block_size=HEADER_BYTES)
        except ValueError:
            reader = self._csv_reader(name, format, {})
        with reader:
            self._headers[name] = reader.schema.names
        try:
            next(self._csv_rows(name, format, tuning.current.block_bytes // SAMPLE))
        except ValueError:
            # A row may be larger.
            next(self._csv_rows(name, format))

    def _csv(self, name: str, format: str) -> Iterator[pa.RecordBatch]:
        yield from self._unless_widened(self._csv_rows(name, format))

    def _unless_widened(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before = self.kinds.type
        for batch in batches:
            if self.kinds.type != before:
                raise Widened
            yield batch

    def _csv_rows(
        self, name: str, format: str, block_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, for which the kinds of columns may have been widened."""
        types = dict.fromkeys(self._headers[name], pa.string())
        for column, type_ in self._csv_types.items():
            if not self._is_typed_here(column):
                types[column] = type_
        try:
            with self._csv_reader(name, format, types, block_size) as reader:
                for batch in _or_empty(reader, reader.schema):
                    yield self._typed(batch)
        except pa.ArrowInvalid as error:
            raise self._csv_error(name, str(error)) from None

    def _is_typed_here(self, column: str) -> bool:
        """True for columns without a type, and for numbers, as Arrow takes others than we do."""
        if column not in self.fixed and column not in self.given:
            return True
        fixed = self.kinds.expected.get(column, TextKinds()).fixed
        if fixed is None:
            return False
        types = pa.types
        return types.is_integer(fixed) or types.is_floating(fixed) or types.is_decimal(fixed)

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return columns of texts as the types that hold all of their values."""
        columns = []
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            columns.append(self._read(name, values) if self._is_typed_here(name) else values)
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def _read(self, name: str, texts: pa.Array) -> pa.Array:
        kinds = self.kinds.child(name)

        def read(texts: pa.Array) -> pa.Array:
            return kinds.read(texts, point=self.decimal)

        try:
            return read(texts)
        except pa.ArrowInvalid as error:
            row = self._misfit(texts, read)
            value = texts[row - self.rows - 1]
            message = f"CSV conversion error to {kinds.type}: invalid value '{value}'"
            if not str(error).startswith("Failed to parse"):
                message = str(error)
            raise self._error(f"column {name!r}, row {row:,}: {message}") from None

    def _csv_reader(
        self,
        name: str,
        format: str,
        types: Mapping[str, pa.DataType],
        block_size: int | None = None,
        is_single: bool = False,
    ) -> pa_csv.CSVStreamingReader:
        read = pa_csv.ReadOptions(
            # One thread tells the row of an error, and is as fast: the writer has the others.
            block_size=block_size or tuning.current.block_bytes,
            use_threads=False,
            encoding=self.encoding or "utf8",
            skip_rows=self.skip,
            autogenerate_column_names=not self.has_header,
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
            decimal_point=self.decimal,
            # A column that is not wanted may hold anything.
            include_columns=self._wanted(self._headers.get(name, [])),
        )
        try:
            reader = pa_csv.open_csv(
                self._open(name), read_options=read, parse_options=parse, convert_options=convert
            )
            names = reader.schema.names
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                raise self._error("it is empty; CSV begins with the names of the columns") from None
            raise self._csv_error(name, str(error)) from None
        except UnicodeError as error:
            line = self.skip + 1
            raise self._error(f"line {line:,}, or its block: {error}; {_ENCODING}") from None
        if len(names) > 1 or is_single:
            return reader
        reader.close()
        return self._csv_reader(name, format, types, block_size, is_single=True)

    def _csv_error(self, name: str, message: str) -> Exception:
        """Return the error about the place that a message of Arrow tells."""
        # Arrow counts lines that were skipped, and that of the names.
        before = self.skip + self.has_header
        if parsed := _CSV_ROW.fullmatch(message):
            return self._error(f"row {int(parsed[1]) - before:,}: {parsed[2]}")
        found = _CSV_ERROR.fullmatch(message)
        if found is None:
            return self._error(message)
        number, row, text = found.groups()
        column = self._headers[name][int(number)]
        where = f"row {int(row) - before:,}" if row else f"after row {self.rows:,}"
        if "invalid UTF8" in text:
            text = f"{text}; {_ENCODING}, or --dtype {column}=binary"
        return self._error(f"column {column!r}, {where}: {text}")

    def _begin_ndjson(self, name: str) -> None:
        next(self._ndjson_rows(name, tuning.current.block_bytes // SAMPLE), None)

    def _ndjson(self, name: str, format: str) -> Iterator[pa.RecordBatch]:
        yield from self._unless_widened(self._ndjson_rows(name))

    def _ndjson_rows(self, name: str, block_size: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, for which the kinds of columns may have been widened."""

        def read(block: bytes) -> pa.RecordBatch:
            return json_lines.read(block, self.kinds)

        try:
            with self._open(name) as file:
                for block in json_lines.blocks(file, block_size or tuning.current.block_bytes):
                    try:
                        batch = read(block)
                    except pa.ArrowInvalid:
                        row, message = json_lines.first_error(block, read)
                        raise self._error(f"row {self.rows + row + 1:,}: {message}") from None
                    yield batch
        except pa.ArrowInvalid as error:
            raise self._error(str(error)) from None

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
