"""Moving: the commands that move rows between tables and files.

Knows the public names of blztable. The rows are never all in memory.
"""

import importlib
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa

import blztable as blz
from blztable.cli import sinks, sources
from blztable.cli.arguments import UsageError
from blztable.cli.looking import column_names, show_rows
from blztable.cli.terminal import Json, bar, print_result
from blztable.cli.type_names import type_named

R = TypeVar("R")


def import_(options: Namespace) -> None:
    """Make a table of files, or append them, in one commit."""
    is_old = len(options.files) == 1 and _is_old(options.files[0])
    rows = (_convert if is_old else _import_files)(options)
    with blz.open(options.table) as table:
        result: Json = {"table": table.path, "version": table.version, "rows_appended": rows}
        result |= {"rows": table.nrows, "columns": len(table.column_names)}
        result |= {"nbytes": table.nbytes, "cbytes": table.cbytes}
    line = f"imported rows: {rows:,}; version {result['version']}; rows in all: {result['rows']:,}"
    print_result(options, result, [f"{line}; compared value by value" if is_old else line])


def _is_old(path: str) -> bool:
    """True for what another program may have stored as a table, and for tables of our own."""
    if os.path.isdir(path):
        return True
    if not os.path.isfile(path):
        return False
    with Path(path).open("rb") as file:
        return file.read(4) == b"blpk"


def _convert(options: Namespace) -> int:
    """Make a table of one of BLZ, bcolz or Bloscpack, compared value by value."""
    allowed: Json = {
        "append": False,
        "sort_by": None,
        "dtype": [],
        "compression": None,
        "layout": None,
    }
    for name, value in allowed.items():
        if getattr(options, name) != value:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for files; convert the old table first")
    (path,) = options.files
    with blz.open(path) as old:
        names = column_names(old, options.columns)
        total = old.nrows
    mode: Literal["w", "x"] = "w" if options.replace else "x"
    with bar("importing", total) as advance:
        seen = 0

        def report(done: int, _: int | None) -> None:
            # The write and then the comparison; the bar shows the write.
            nonlocal seen
            advance(max(done - seen, 0))
            seen = max(done, seen)

        return blz.convert(path, options.table, columns=names, mode=mode, progress=report)


def _import_files(options: Namespace) -> int:
    with ExitStack() as stack:
        table = _to_append_to(options)
        fixed = {}
        if table is not None:
            stack.enter_context(table)
            fixed = {
                column.name: column.type
                for column in table.schema
                # Only these can become wider.
                if not (options.evolve and _is_number_or_null(column.type))
            }
        files = stack.enter_context(_files(options, fixed))
        try:
            return _until_wide_enough(files, lambda: _import_once(options, files, table))
        except blz.TableExistsError as error:
            raise blz.TableExistsError(f"{error}; here: --append or --replace") from None


def _files(options: Namespace, fixed: dict[str, pa.DataType]) -> sources.Files:
    return sources.Files(
        options.files,
        format=options.format,
        columns=None if options.columns is None else options.columns.split(","),
        nulls=options.null,
        delimiter=options.delimiter,
        encoding=options.encoding,
        given={name: type_named(type_) for name, type_ in options.dtype},
        fixed=fixed,
    )


def _until_wide_enough(files: sources.Files, read: Callable[[], R]) -> R:
    """Return what `read` returns when the types of all columns are wide enough."""
    while True:
        try:
            return read()
        except sources.Widened:
            # Nothing was committed; the type of a column is wider now.
            continue
        except blz.SchemaError as error:
            place = f"{files.place}, from row {files.rows + 1:,} on"
            message = str(error).replace("evolve=True", "--evolve")
            raise blz.SchemaError(f"{place}: {message}") from None


def _is_number_or_null(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_null(type_))


def _to_append_to(options: Namespace) -> blz.CTable | None:
    """Return the table to append to; None if a new one is to be made."""
    if not options.append:
        return None
    try:
        return blz.open(options.table, "a")
    except blz.TableNotFoundError:
        return None


def _import_once(options: Namespace, files: sources.Files, table: blz.CTable | None) -> int:
    rows = 0
    with bar("importing") as advance:

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in files.batches():
                rows += batch.num_rows
                advance(batch.num_rows)
                yield batch

        batches = counted()
        first = next(batches, None)
        if first is None and table is not None:
            return 0
        if first is None:
            raise ValueError(f"{files.place}: no rows, and no names of columns")
        data = chain([first], batches)
        sort_by = options.sort_by and options.sort_by.split(",")
        if table is not None and sort_by:
            if options.compression:
                raise UsageError(
                    "--compression goes with --append or with --sort-by, not with both"
                )
            with table.transaction() as tx:
                tx.append(data, evolve=options.evolve)
                tx.compact(sort_by=sort_by)
        else:
            mode: Literal["w", "a", "x"]
            mode = "w" if options.replace else "a" if options.append and not sort_by else "x"
            blz.to_blz(
                *(data, options.table),
                mode=mode,
                evolve=options.evolve,
                layout=options.layout,
                compression=options.compression,
                sort_by=sort_by,
            )
    return rows


def upsert(options: Namespace) -> None:
    """Update the rows whose key is there, and append the others."""
    with blz.open(options.table, "a") as table:
        types = {
            field.name: field.type
            for field in table.schema
            if not (options.evolve and _is_number_or_null(field.type))
        }
        with _files(options, types) as files, bar("reading") as advance:

            def read() -> list[pa.RecordBatch]:
                return list(_shown(files.batches(), advance))

            tables = [pa.Table.from_batches([one]) for one in _until_wide_enough(files, read)]
        on = column_names(table, options.on)
        assert on is not None
        data = pa.concat_tables(tables, promote_options="permissive")
        done = table.upsert(data, on, evolve=options.evolve)
        result = {"table": table.path, **asdict(done), "rows": table.nrows}
    print_result(options, result, [str(done)])


def export(options: Namespace) -> None:
    """Write rows to a file or to standard output."""
    with blz.open(options.path, **options.at) as table:
        names = column_names(table, options.columns)
        with table.to_batches(names, filters=options.where) as batches:
            total = table.nrows if options.where is None else None
            _write(options, batches, batches.schema, total)


def _write(
    options: Namespace, batches: Iterable[pa.RecordBatch], schema: pa.Schema, total: int | None
) -> None:
    format = sinks.format_of(options.format, options.output)
    with ExitStack() as stack:
        if options.output not in (None, "-"):
            batches = _shown(batches, stack.enter_context(bar("exporting", total)))
        sinks.write(batches, schema, format, options.output)


def _shown(
    batches: Iterable[pa.RecordBatch], advance: Callable[[int], object]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        advance(batch.num_rows)


def sql(options: Namespace) -> None:
    """Query tables with DuckDB."""
    try:
        duckdb = importlib.import_module("duckdb")
    except ImportError:
        raise ImportError("sql needs DuckDB: pip install 'blztable[sql]'") from None
    with ExitStack() as stack:
        connection = stack.enter_context(duckdb.connect())
        for each in options.tables:
            name, path = _named(each)
            table = stack.enter_context(blz.open(path))
            connection.register(name, table.dataset())
        try:
            relation = connection.sql(options.query)
            if relation is None:
                raise ValueError("the query returns no rows; begin it with select")
            reader = pa.RecordBatchReader.from_stream(relation)
            if options.format is None and options.output is None:
                show_rows(options, reader.read_all())
            else:
                _write(options, reader, reader.schema, None)
        except duckdb.Error as error:
            raise ValueError(str(error)) from None


def _named(table: str) -> tuple[str, str]:
    """Return the name of a table in a query, and its path."""
    name, equals, path = table.partition("=")
    if equals and name.isidentifier() and not os.path.exists(table):
        return name, path
    return Path(table).name.partition(".")[0], table
