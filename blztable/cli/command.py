"""Arguments, errors and exit codes.

What goes wrong is one line on stderr and exit code 1. `verify` exits with 1 too where anything is
wrong with the table. Whoever closes the pipe or presses Ctrl-C hears nothing more.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

import blztable as blz
from blztable.cli import show
from blztable.cli.plain import Json, json_text, printable

INTERRUPTED = 130


class _UsageError(Exception):
    """Arguments that say nothing we know."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        code = _run(_parser().parse_args(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except (_UsageError, blz.BlzError, OSError) as error:
        print(_encodable(f"blz: {printable(str(error))}", sys.stderr.encoding), file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="blz", description="Look into tables written by blztable.")
    parser.add_argument("--version", action="version", version=f"blztable {blz.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("info", "what a table is: version, rows, sizes, attributes"),
        ("schema", "names and types of the columns"),
        ("head", "the first rows"),
        ("verify", "whether all is intact; exit code 1 where anything is wrong"),
    ):
        command = commands.add_parser(name, help=text, description=f"Show {text}.")
        command.add_argument("path", metavar="PATH", help="the table's directory")
        command.add_argument("--json", action="store_true", help="one JSON document")
        command.add_argument(
            "--at", "--version-number", type=int, metavar="N", help="a version; default the newest"
        )
        if name == "head":
            command.add_argument("-n", type=_count, default=5, metavar="N", help="rows, default 5")
            command.add_argument("--columns", metavar="A,B", help="columns to show, in this order")
        if name == "verify":
            command.add_argument(
                "--quick", action="store_true", help="leave out the chunks: sizes and trailers only"
            )
    return parser


def _run(options: argparse.Namespace) -> int:
    if not options.path:
        raise _UsageError("an empty path; the directory of the table is expected")
    with blz.open(options.path, version=options.at) as table:
        if options.command == "verify":
            report = table.verify(full=not options.quick)
            found = {"path": table.path, **report.to_json()}
            _print(options, found, str(report).split("\n"))
            return 0 if report.is_intact else 1
        if options.command == "info":
            found = show.info(table)
            _print(options, found, show.info_lines(found))
        elif options.command == "schema":
            found = show.schema(table)
            _print(options, found, show.schema_lines(found))
        else:
            found = show.head(_narrowed(table, options.columns).head(options.n))
            _print(options, found, show.head_lines(found, shutil.get_terminal_size().columns))
    return 0


def _narrowed(table: blz.CTable, columns: str | None) -> blz.CTable:
    if columns is None:
        return table
    # A name may have a comma itself.
    return table[[columns] if columns in table.column_names else columns.split(",")]


def _print(options: argparse.Namespace, found: Json, lines: Iterable[str]) -> None:
    if sys.stdout is None:
        raise OSError("standard output is closed")
    for line in [json_text(found)] if options.json else lines:
        text = line if options.json else printable(line)
        print(_encodable(text, sys.stdout.encoding))


def _encodable(text: str, encoding: str | None) -> str:
    """The text, what the encoding lacks escaped."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number of rows from 0, not {text!r}")
    return int(text)
