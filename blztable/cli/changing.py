"""Changing: the commands that change a table, or copy it.

Knows the public names of blztable, and nothing of the layout of the output.
"""

import sys
from argparse import Namespace
from dataclasses import asdict

import blztable as blz
from blztable.cli import show
from blztable.cli.arguments import UsageError, column_names
from blztable.cli.command import DAMAGE
from blztable.cli.terminal import check_stdout, print_result


def delete(options: Namespace) -> None:
    """Delete the rows of a condition."""
    with blz.open(options.path, "a") as table:
        done = table.delete(options.where)
        result = {
            "path": table.path,
            "version": table.version,
            "rows_deleted": done.rows_deleted,
            "rows": len(table),
        }
    line = f"deleted rows: {result['rows_deleted']:,}; rows left: {result['rows']:,}"
    print_result(options, result, [line])


def erase(options: Namespace) -> int:
    """Delete the rows of a condition for good."""
    try:
        with blz.open(options.path, "a") as table:
            done = table.erase(options.where, wait=options.wait)
            result = {"path": table.path, **asdict(done), "rows_left": len(table)}
    except KeyboardInterrupt:
        # Its commit erases nothing: the older versions go after it.
        raise InterruptedError("interrupted: the rows may be left; erase again") from None
    print_result(options, result, str(done).split("\n"))
    return 1 if done.left else 0


def restore(options: Namespace) -> None:
    """Commit the contents of an older version again."""
    # Open the table at this version, because the newest one may be damaged.
    with blz.open(options.path, "a", version=options.number) as table:
        table.restore(options.number)
        result = {
            "path": table.path,
            "version": table.version,
            "restored": options.number,
            "rows": len(table),
        }
    line = f"version {table.version} has the contents of version {options.number}"
    print_result(options, result, [f"{line}; rows: {len(table):,}"])


def tag(options: Namespace) -> None:
    """Name a version, or remove a name."""
    with blz.open(options.path, "a") as table:
        if options.remove:
            if options.name not in table.tags:
                raise UsageError(f"there is no tag {options.name!r}")
            del table.tags[options.name]
        else:
            # The newest version, before the tag makes one more.
            table.tags[options.name] = options.number or table.version
        tags = dict(table.tags)
        result = {"path": table.path, "version": table.version, "tags": tags}
    lines = [f"{name}: version {number}" for name, number in tags.items()]
    print_result(options, result, lines or ["no version has a tag"])


def repair(options: Namespace) -> None:
    """Commit a version with the undamaged rows of a damaged one."""
    with blz.open(options.path, "a") as table:
        done = table.repair("null" if options.null else "skip")
        result = {"path": table.path, **asdict(done), "rows": len(table)}
    print_result(options, result, str(done).split("\n"))


def compact(options: Namespace) -> None:
    """Merge small row groups, or sort all rows."""
    with blz.open(options.path, "a") as table:
        before = table.version
        table.compact(sort_by=column_names(table.columns, options.sort_by or None))
        result = {
            "path": table.path,
            "version": table.version,
            "row_groups": show.version_info(table).row_groups,
        }
    line = f"version {before} is compact already"
    if result["version"] != before:
        line = f"compacted as version {result['version']}"
    print_result(options, result, [f"{line}; row groups: {result['row_groups']:,}"])


def drop(options: Namespace) -> None:
    """Remove a table."""
    blz.drop(options.path)
    path = show.resolved(options.path)
    print_result(options, {"path": path}, [f"dropped: {path}"])


def vacuum(options: Namespace) -> int:
    """Remove old versions, and files that killed writers left."""
    removed = blz.vacuum(
        options.path, keep=options.keep, older_than=options.older_than, wait=options.wait
    )
    result = show.vacuumed(options.path, removed)
    print_result(options, result, show.vacuumed_lines(result))
    return DAMAGE if removed.damaged else 0


def pack(options: Namespace) -> None:
    """Write a table as one file."""
    if options.target == "-":
        check_stdout()
        if sys.stdout.isatty():
            raise UsageError("a table is not text; send it to a file or to `blz unpack -`")
        target = sys.stdout.buffer
    else:
        target = options.target
    blz.copy(options.path, target, layout="file", version=options.version)


def unpack(options: Namespace) -> None:
    """Write a table in one file as a directory."""
    source = sys.stdin.buffer if options.path == "-" else options.path
    blz.copy(source, options.target, layout="directory", version=options.version)


def recover(options: Namespace) -> None:
    """Write the readable rows of an unfinished or damaged file."""
    done = blz.copy(options.path, options.target, version=options.version, on_corrupt="skip")
    print(f"recovered: rows 0 to {done.rows:,}")
