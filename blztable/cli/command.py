"""Arguments, errors and exit codes.

What goes wrong is one line on stderr and exit code 1. `verify` exits with 1 too where anything is
wrong with the table, `vacuum` where damage kept it from removing anything. Whoever closes the pipe
or presses Ctrl-C hears nothing more.
"""

import argparse
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import blztable as blz
from blztable.cli import show
from blztable.cli.plain import Json, json_text, printable

INTERRUPTED = 130


class _UsageError(Exception):
    """Arguments that say nothing we know."""


# The face raises a builtin error for an argument that is wrong.
_EXPECTED = (_UsageError, blz.BlzError, OSError, LookupError, TypeError, ValueError)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        options = _parser().parse_args(argv)
        if not options.path:
            raise _UsageError("an empty path; the directory of the table is expected")
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except _EXPECTED as error:
        print(_encodable(f"blz: {printable(str(error))}", sys.stderr.encoding), file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="blz", description="Look into tables written by blztable, and tend them.")
    parser.add_argument("--version", action="version", version=f"blztable {blz.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> _Parser:
        made = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        made.add_argument("path", metavar="PATH", help="the table's directory")
        made.add_argument("--json", action="store_true", help="one JSON document")
        made.set_defaults(run=run)
        return made

    info = command("info", _info, "show what a table is: version, rows, sizes, attributes")
    schema = command("schema", _schema, "show names and types of the columns")
    head = command("head", _head, "show the first rows")
    head.add_argument("-n", type=_count, default=5, metavar="N", help="rows, default 5")
    head.add_argument("--columns", metavar="A,B", help="columns to show, in this order")
    verify = command("verify", _verify, "show whether all is intact; exit code 1 where it is not")
    verify.add_argument(
        "--quick", action="store_true", help="leave out the chunks: sizes and trailers only"
    )
    for one in (info, schema, head, verify):
        one.add_argument(
            "--at", "--version-number", type=int, metavar="N", help="a version; default the newest"
        )
    command("versions", _versions, "list the versions that are there, also beside a damaged one")
    restore = command("restore", _restore, "commit what an older version held as the newest one")
    restore.add_argument("number", type=int, metavar="VERSION", help="its number")
    compact = command("compact", _compact, "write small row groups together")
    compact.add_argument("--sort-by", metavar="A,B", help="sort all rows by these columns")
    vacuum = command("vacuum", _vacuum, "remove old versions, and files that killed writers left")
    vacuum.add_argument("--keep", type=_versions_kept, metavar="N", help="versions to keep")
    vacuum.add_argument(
        "--older-than",
        type=_seconds,
        metavar="SECONDS",
        help="keep those that were superseded more recently",
    )
    vacuum.add_argument(
        "--wait", type=_seconds, default=30.0, metavar="SECONDS", help="for writers; default 30"
    )
    return parser


def _info(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        found = show.info(table)
    return _print(options, found, show.info_lines(found))


def _schema(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        found = show.schema(table)
    return _print(options, found, show.schema_lines(found))


def _head(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        shown = table if options.columns is None else table[_names(table, options.columns)]
        found = show.head(shown.head(options.n))
    return _print(options, found, show.head_lines(found, shutil.get_terminal_size().columns))


def _verify(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        report = table.verify(full=not options.quick)
        found = {"path": table.path, **report.to_json()}
    _print(options, found, str(report).split("\n"))
    return 0 if report.is_intact else 1


def _versions(options: argparse.Namespace) -> int:
    with _beside_damage(options.path) as table:
        found = show.versions(table)
    return _print(options, found, show.versions_lines(found))


def _restore(options: argparse.Namespace) -> int:
    # Opened by the version itself: the newest may be damaged.
    with blz.open(options.path, "a", version=options.number) as table:
        table.restore(options.number)
        found = {
            "path": table.path,
            "version": table.version,
            "restored": options.number,
            "rows": table.nrows,
        }
    line = f"version {table.version} holds what version {options.number} held"
    return _print(options, found, [f"{line}; rows: {table.nrows:,}"])


def _compact(options: argparse.Namespace) -> int:
    with blz.open(options.path, "a") as table:
        before = table.version
        table.compact(sort_by=_names(table, options.sort_by) if options.sort_by else None)
        found = {
            "path": table.path,
            "version": table.version,
            "row_groups": show.facts(table).row_groups,
        }
    is_same = found["version"] == before
    line = f"version {before} is compact" if is_same else f"version {found['version']} was made"
    return _print(options, found, [f"{line}; row groups: {found['row_groups']:,}"])


def _vacuum(options: argparse.Namespace) -> int:
    with blz.open(options.path, "a") as table:
        removed = table.vacuum(keep=options.keep, older_than=options.older_than, wait=options.wait)
        found = show.vacuumed(table, removed)
    _print(options, found, show.vacuumed_lines(found))
    return 1 if removed.damaged else 0


def _beside_damage(path: str) -> blz.CTable:
    """The newest version that can be opened: this is where one looks when the newest cannot."""
    try:
        return blz.open(path)
    except blz.BlzError as error:
        return blz.open(path, version=error.intact_version)


def _names(table: blz.CTable, columns: str) -> list[str]:
    # A name may have a comma itself.
    return [columns] if columns in table.column_names else columns.split(",")


def _print(options: argparse.Namespace, found: Json, lines: Iterable[str]) -> int:
    if sys.stdout is None:
        raise OSError("standard output is closed")
    for line in [json_text(found)] if options.json else lines:
        text = line if options.json else printable(line)
        print(_encodable(text, sys.stdout.encoding))
    return 0


def _encodable(text: str, encoding: str | None) -> str:
    """The text, what the encoding lacks escaped."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number of rows from 0, not {text!r}")
    return int(text)


def _versions_kept(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of versions from 1, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds from 0, not {text!r}")
    return seconds
