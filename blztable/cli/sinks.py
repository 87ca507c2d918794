"""Sinks: record batches as a file of one of several formats, or as standard output.

Knows nothing of tables. A file appears under its name when it is complete.
"""

import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as parquet

from blztable.cli.arguments import UsageError
from blztable.cli.plain import plain_values
from blztable.cli.sources import SUFFIXES
from blztable.cli.terminal import Json, check_stdout, printable
from blztable.ownership import share

# Rows of a row group of Parquet, and the bytes from which it is written earlier.
PARQUET_ROWS, PARQUET_BYTES = 1 << 20, 64 << 20
_ENCODE = json.JSONEncoder(allow_nan=False).encode
_TEXTUAL = ("csv", "tsv", "ndjson")
# The types that the CSV writer of Arrow knows, as text that its reader takes.
_IN_CSV: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_large_string,
)


def format_of(format: str | None, output: str | None) -> str:
    """Return the format of an option, or of the name of a file; csv by default."""
    suffix = SUFFIXES.get(Path(output or "-").suffix.lower(), "csv")
    return format or {"feather": "arrow"}.get(suffix, suffix)


def write(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: str, output: str | None
) -> None:
    """Write batches as a file, or to standard output."""
    with _file(output, format) as file:
        _WRITERS[format](batches, schema, file, output not in (None, "-"))


@contextmanager
def _file(output: str | None, format: str) -> Iterator[IO[bytes]]:
    if output in (None, "-"):
        check_stdout()
        if not sys.stdout.isatty():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif format in _TEXTUAL:
            yield _Screen()  # type: ignore[misc]
        else:
            raise UsageError(f"{format} is not text; send it to a file or a pipe")
        return
    assert output is not None
    path = Path(os.path.realpath(output))
    old = path.stat() if path.exists() else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        # A pipe or a device is no file to be replaced.
        with path.open("wb") as file:
            yield file
        return
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")
    with draft.open("xb") as file:
        try:
            yield file
            file.flush()
            if old is not None:
                share(file.fileno(), old)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


class _Screen:
    """A terminal as a binary file, with escapes for the control characters of values."""

    closed = False

    def write(self, data: Any) -> int:
        """Print the lines of some text."""
        lines = bytes(data).decode(errors="backslashreplace").split("\n")
        sys.stdout.write("\n".join(map(printable, lines)))
        return len(data)

    def flush(self) -> None:
        """Print what was not printed yet."""
        sys.stdout.flush()

    def close(self) -> None:
        """Leave standard output open."""


def _csv(delimiter: str) -> Callable[..., None]:
    def write(
        batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: IO[bytes], _: bool
    ) -> None:
        types = [type_ if _is_in_csv(type_) else pa.string() for type_ in schema.types]
        written_schema = pa.schema(list(zip(schema.names, types, strict=True)))
        options = pa_csv.WriteOptions(delimiter=delimiter)
        with pa_csv.CSVWriter(file, written_schema, write_options=options) as writer:
            for batch in batches:
                columns = map(_in_csv, batch.columns, types)
                writer.write_batch(pa.RecordBatch.from_arrays(list(columns), schema=written_schema))

    return write


def _is_in_csv(type_: pa.DataType) -> bool:
    return any(is_one(type_) for is_one in _IN_CSV)


def _in_csv(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return values as a type that CSV has: text for most, JSON for nested ones."""
    if values.type == type_:
        return values
    if pa.types.is_string_view(values.type):
        return values.cast(type_)
    if pa.types.is_dictionary(values.type) and _is_in_csv(values.type.value_type):
        return values.cast(values.type.value_type).cast(type_)
    texts = plain_values(pa.chunked_array([values]))
    return pa.array(
        [text if text is None or isinstance(text, str) else json.dumps(text) for text in texts],
        type_,
    )


def _ndjson(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: IO[bytes], _: bool) -> None:
    names = schema.names
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"several columns are named {name!r}; an object has each name once")
    keys = (json.dumps(name).replace("%", "%%") for name in names)
    line = "{" + ", ".join(f"{key}: %s" for key in keys) + "}\n"
    for batch in batches:
        columns = [plain_values(pa.chunked_array([column])) for column in batch.columns]
        texts = [map(_json_text, column) for column in columns]
        rows = zip(*texts, strict=True) if columns else [()] * batch.num_rows
        file.write("".join(map(line.__mod__, rows)).encode())


def _json_text(value: Json) -> str:
    """Return a value as JSON; most are texts and numbers, for which the encoder is slow."""
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    return repr(value) if kind is int or kind is float else _ENCODE(value)


def _parquet(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: IO[bytes], _: bool
) -> None:
    with parquet.ParquetWriter(file, schema) as writer:
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            rows = sum(batch.num_rows for batch in held)
            nbytes = sum(batch.nbytes for batch in held)
            if rows >= PARQUET_ROWS or nbytes >= PARQUET_BYTES:
                writer.write_table(pa.Table.from_batches(held, schema), rows)
                held = []
        if held:
            writer.write_table(pa.Table.from_batches(held, schema), PARQUET_ROWS)


def _arrow(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: IO[bytes], is_file: bool
) -> None:
    # A pipe has no places to go back to: its form of Arrow is a stream.
    made = pa.ipc.new_file(file, schema) if is_file else pa.ipc.new_stream(file, schema)
    with made as writer:
        for batch in batches:
            writer.write_batch(batch)


_WRITERS: dict[str, Callable[..., None]] = {
    "csv": _csv(","),
    "tsv": _csv("\t"),
    "ndjson": _ndjson,
    "parquet": _parquet,
    "arrow": _arrow,
}
