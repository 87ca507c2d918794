"""Moving: the commands that move rows between tables and files.

Knows the public names of blztable. The rows are never all in memory.
"""

import importlib
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa

import blztable as blz
from blztable.arrow.types import is_number
from blztable.cli import sinks, sources
from blztable.cli.arguments import UsageError, column_names
from blztable.cli.looking import show_rows
from blztable.cli.terminal import Json, bar, print_result
from blztable.cli.type_names import type_named

R = TypeVar("R")


def import_(options: Namespace) -> None:
    """Make a table of files, or append them, in one commit."""
    is_old = len(options.files) == 1 and _is_old(options.files[0])
    made = _version_made(options)
    rows = 0 if made else (_convert if is_old else _import_files)(options)
    with blz.open(options.table) as table:
        result: Json = {"table": table.path, "version": made or table.version}
        result |= {"is_repeated": made is not None, "rows_appended": rows}
        result |= {"rows": len(table), "columns": len(table.columns)}
        result |= {"nbytes": table.nbytes, "cbytes": table.cbytes}
    if made:
        print_result(options, result, [_told(options, made)])
        return
    line = f"imported rows: {rows:,}; version {result['version']}; rows in all: {result['rows']:,}"
    print_result(options, result, [f"{line}; compared value by value" if is_old else line])


def _version_made(options: Namespace) -> int | None:
    """Return the version of the commit with the name that an option gives; None without one."""
    if options.commit_id is None or not blz.exists(options.table):
        return None
    with (
        blz.open(options.table, "a") as table,
        suppress(_NotMade),
        table.transaction(commit_id=options.commit_id) as tx,
    ):
        if tx.is_repeated:
            return tx.version
        # A transaction with a name commits, even without changes.
        raise _NotMade
    return None


class _NotMade(Exception):
    """There is no commit of a name."""


def _told(options: Namespace, version: int) -> str:
    return f"nothing is done: {options.commit_id!r} was committed before, as version {version}"


def _is_old(path: str) -> bool:
    """True for what another program may have stored as a table, and for tables of our own."""
    if os.path.isdir(path):
        return True
    return os.path.isfile(path) and _has_magic(path)


def _has_magic(path: str | Path) -> bool:
    """True for a file that begins as tables in one file, arrays and files of Bloscpack do."""
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
        "commit_id": None,
    }
    for name, value in allowed.items():
        if getattr(options, name) != value:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for files; convert the old table first")
    (path,) = options.files
    with blz.open(path) as old:
        if old.versions():
            raise UsageError(
                f"{path} is a table of blztable; copy it with `blz pack` or `blz unpack`"
            )
        names = column_names(old.columns, options.columns)
        total = len(old)
    mode: Literal["w", "x"] = "w" if options.replace else "x"
    with bar("importing", total) as advance:
        seen = 0

        def report(done: int, _: int | None) -> None:
            # The write and then the comparison; the bar shows the write.
            nonlocal seen
            advance(max(done - seen, 0))
            seen = max(done, seen)

        return blz.copy(path, options.table, columns=names, mode=mode, progress=report).rows


def _import_files(options: Namespace) -> int:
    with ExitStack() as stack:
        table = _to_append_to(options)
        fixed = {}
        if table is not None:
            stack.enter_context(table)
            fixed = _types_kept(options, table)
        files = stack.enter_context(_files(options, fixed))
        try:
            return _until_wide_enough(files, lambda: _import_once(options, files, table))
        except blz.TableExistsError as error:
            raise blz.TableExistsError(f"{error}; here: --append or --replace") from None


def _files(options: Namespace, fixed: dict[str, pa.DataType]) -> sources.SourceFiles:
    return sources.SourceFiles(
        options.files,
        format=options.format,
        columns=options.columns,
        nulls=options.null,
        delimiter=options.delimiter,
        encoding=options.encoding,
        decimal=options.decimal,
        has_header=not options.no_header,
        skip=options.skip,
        given={name: type_named(type_) for name, type_ in options.dtype},
        fixed=fixed,
    )


def _until_wide_enough(files: sources.SourceFiles, read: Callable[[], R]) -> R:
    """Return what `read` returns when the types of all columns are wide enough."""
    while True:
        try:
            return read()
        except sources.Widened:
            # Nothing was committed; the type of a column is wider now.
            continue
        except blz.SchemaError as error:
            where = f"{files.place}, from row {files.rows + 1:,} on"
            raise blz.SchemaError(f"{where}: {error}") from None


def _types_kept(options: Namespace, table: blz.CTable) -> dict[str, pa.DataType]:
    """Return the types of the columns whose type the files have to have."""
    return {
        column.name: column.type
        for column in table.schema
        # Only numbers can become wider; a column of nulls takes any type.
        if not (pa.types.is_null(column.type) or (options.evolve and is_number(column.type)))
    }


def _to_append_to(options: Namespace) -> blz.CTable | None:
    """Return the table to append to; None if a new one is to be made."""
    if not options.append:
        return None
    try:
        return blz.open(options.table, "a")
    except blz.TableNotFoundError:
        return None


def _import_once(options: Namespace, files: sources.SourceFiles, table: blz.CTable | None) -> int:
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
        sort_by = column_names(first.schema.names, options.sort_by or None)
        if table is not None and sort_by:
            if options.compression:
                raise UsageError(
                    "--compression goes with --append or with --sort-by, not with both"
                )
            with table.transaction(commit_id=options.commit_id) as tx:
                tx.append(data, evolve=options.evolve)
                tx.compact(sort_by=sort_by)
        else:
            mode: Literal["w", "a", "x"]
            mode = "w" if options.replace else "a" if options.append and not sort_by else "x"
            blz.to_blz(
                data,
                options.table,
                mode=mode,
                evolve=options.evolve,
                compression=options.compression,
                sort_by=sort_by,
                storage=blz.Storage(layout=options.layout),
                commit_id=options.commit_id,
            )
    return rows


def upsert(options: Namespace) -> None:
    """Update the rows whose key is in the table, and append the others."""
    if made := _version_made(options):
        with blz.open(options.table) as table:
            result: Json = {"table": table.path, "version": made, "is_repeated": True}
            result |= {"rows_appended": 0, "rows_updated": 0, "rows": len(table)}
        print_result(options, result, [_told(options, made)])
        return
    with blz.open(options.table, "a") as table:
        types = _types_kept(options, table)
        with _files(options, types) as files, bar("reading") as advance:

            def read() -> list[pa.Table]:
                # In memory, because a conflict repeats the upsert. A file has one schema.
                parts: dict[str, list[pa.RecordBatch]] = {}
                for batch in _with_progress(files.batches(), advance):
                    parts.setdefault(files.name, []).append(batch)
                return list(map(pa.Table.from_batches, parts.values()))

            data = _until_wide_enough(files, read)
        on = column_names(table.columns, options.on)
        assert on is not None
        try:
            if options.commit_id is None:
                done = table.upsert(data, on, evolve=options.evolve)
            else:
                with table.transaction(commit_id=options.commit_id) as tx:
                    tx.upsert(data, on, evolve=options.evolve)
                done = tx.changed
        except blz.SchemaError as error:
            raise blz.SchemaError(f"{', '.join(options.files)}: {error}") from None
        result = {"table": table.path, "is_repeated": False, **asdict(done), "rows": len(table)}
    print_result(options, result, [str(done)])


def export(options: Namespace) -> None:
    """Write rows to a file or to standard output."""
    with blz.open(options.path, **options.at) as table:
        names = column_names(table.columns, options.columns)
        with table.to_batches(names, filters=options.where) as batches:
            total = len(table) if options.where is None else None
            _write(options, batches, batches.schema, total)


def _write(
    options: Namespace, batches: Iterable[pa.RecordBatch], schema: pa.Schema, total: int | None
) -> None:
    format = sinks.format_of(options.format, options.output)
    with ExitStack() as stack:
        if options.output not in (None, "-"):
            _check_target(options.output)
            batches = _with_progress(batches, stack.enter_context(bar("exporting", total)))
        sinks.write(batches, schema, format, options.output)


def _check_target(output: str) -> None:
    """Raise FileExistsError for a file that would take the place of a table or an array."""
    path = Path(os.path.realpath(output))
    found = None
    if path.is_dir():
        found = "a table" if blz.exists(path) else "a directory"
    elif path.is_file() and _has_magic(path):
        found = "a table, or an array"
    elif any(map(blz.exists, path.parents)):
        found = "inside of a table"
    if found:
        raise FileExistsError(f"{output} is {found}: it is left as it is; choose another path")


def _with_progress(
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
    try:
        relation = blz.sql(options.query, **dict(map(_named, options.tables)))
        if relation is None:
            raise ValueError("the query returns no rows; begin it with select")
        reader = pa.RecordBatchReader.from_stream(relation)
        if options.format is None and options.output is None:
            show_rows(options, reader.read_all())
        else:
            _write(options, reader, reader.schema, None)
    except blz.SchemaError as error:
        raise ValueError(
            f"{error}; or write the other columns to Parquet with blz export --columns, and query "
            "that file"
        ) from None
    except duckdb.Error as error:
        raise ValueError(str(error)) from None


def _named(table: str) -> tuple[str, str]:
    """Return the name of a table in a query, and its path."""
    name, equals, path = table.partition("=")
    if equals and name.isidentifier() and not os.path.exists(table):
        return name, path
    return Path(table).name.partition(".")[0], table
