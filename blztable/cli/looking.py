"""Looking: the commands that show a table and change nothing.

Knows the public names of blztable, and nothing of the layout of the output.
"""

import shutil
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import asdict

import pyarrow as pa

import blztable as blz
from blztable.cli import show
from blztable.cli.arguments import column_names
from blztable.cli.command import DAMAGE
from blztable.cli.terminal import Json, print_result


def info(options: Namespace) -> None:
    """Show version, rows, sizes and attributes."""
    _show(options, show.info, show.info_lines)


def schema(options: Namespace) -> None:
    """Show names and types of the columns."""
    _show(options, show.schema, show.schema_lines)


def streams(options: Namespace) -> None:
    """Show encodings, codecs and sizes of the columns."""
    _show(options, show.streams, show.streams_lines)


def _show(
    options: Namespace,
    values: Callable[[blz.CTable], Json],
    lines: Callable[[Json], Iterable[str]],
) -> None:
    with blz.open(options.path, **options.at) as table:
        result = values(table)
    print_result(options, result, lines(result))


def head(options: Namespace) -> None:
    """Show the first rows."""
    with blz.open(options.path, **options.at) as table:
        names = column_names(table.columns, options.columns)
        if options.where is None:
            rows = (table if names is None else table[names]).head(options.n)
        else:
            with table.to_batches(names, filters=options.where) as batches:
                rows = _first(batches, batches.schema, options.n)
    show_rows(options, rows)


def tail(options: Namespace) -> None:
    """Show the last rows."""
    with blz.open(options.path, **options.at) as table:
        names = column_names(table.columns, options.columns)
        selected = table if names is None else table[names]
        if options.where is None:
            rows = selected.tail(options.n)
        else:
            with table.to_batches(names, filters=options.where) as batches:
                rows = selected.head(0)
                for batch in batches:
                    rows = pa.concat_tables([rows, pa.Table.from_batches([batch])])
                    rows = rows.slice(max(rows.num_rows - options.n, 0))
    show_rows(options, rows)


def _first(batches: Iterable[pa.RecordBatch], schema: pa.Schema, count: int) -> pa.Table:
    taken, rows = [], 0
    for batch in batches:
        taken.append(batch)
        rows += batch.num_rows
        if rows >= count:
            break
    return pa.Table.from_batches(taken, schema).slice(0, count)


def show_rows(options: Namespace, rows: pa.Table) -> None:
    """Show rows under the names of their columns."""
    result = show.head(rows)
    print_result(options, result, show.head_lines(result, shutil.get_terminal_size().columns))


def count(options: Namespace) -> None:
    """Count the rows, or those of a condition."""
    with blz.open(options.path, **options.at) as table:
        result = {"path": table.path, "rows": table.count(filters=options.where)}
    print_result(options, result, [str(result["rows"])])


def explain(options: Namespace) -> None:
    """Show what a read reads and skips."""
    with blz.open(options.path, **options.at) as table:
        plan = table.explain(column_names(table.columns, options.columns), filters=options.where)
        result = {"path": table.path, **asdict(plan)}
    print_result(options, result, str(plan).split("\n"))


def verify(options: Namespace) -> int:
    """Check for damage."""
    with blz.open(options.path, **options.at) as table:
        report = table.verify(full=not options.quick)
        result = {"path": table.path, **report.to_json()}
    print_result(options, result, str(report).split("\n"))
    return 0 if report.is_intact else DAMAGE


def versions(options: Namespace) -> None:
    """List the versions that exist."""
    with _open_intact(options.path) as table:
        result = show.versions(table)
    print_result(options, result, show.versions_lines(result))


def diff(options: Namespace) -> None:
    """Show what changed between two versions."""
    with blz.open(options.path) as table:
        difference = table.diff(options.old, options.new)
        result = {"path": table.path, **difference.to_json()}
    print_result(options, result, str(difference).split("\n"))


def _open_intact(path: str) -> blz.CTable:
    """Open the newest version whose manifest is intact."""
    try:
        return blz.open(path)
    except blz.BlzError as error:
        return blz.open(path, version=error.intact_version)
