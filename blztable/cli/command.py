"""Commands: parse arguments, run a command, print errors and return exit codes.

An error is one line on stderr and exit code 1. `verify` also exits with 1 if the table is damaged,
`vacuum` exits with 1 if damage prevented every removal. A closed pipe or Ctrl-C ends a command
without a message. Knows nothing of the layout of the output.
"""

import argparse
import importlib.util
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
    """Arguments that cannot be parsed."""


# Wrong arguments raise builtin errors in blztable.
_EXPECTED = (_UsageError, blz.BlzError, OSError, LookupError, TypeError, ValueError)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        options = _parser().parse_args(argv)
        if "" in (getattr(options, name, None) for name in ("path", "target")):
            raise _UsageError("the path is empty; pass that of a table")
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again when it exits, and would print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except _EXPECTED as error:
        print(_encodable(f"blz: {printable(str(error))}", sys.stderr.encoding), file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="blz", description="Inspect and maintain blztable tables.")
    parser.add_argument("--version", action="version", version=f"blztable {blz.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> _Parser:
        parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        parser.add_argument("path", metavar="PATH", help="directory or file of the table")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.set_defaults(run=run)
        return parser

    info = command("info", _info, "show version, rows, sizes and attributes")
    schema = command("schema", _schema, "show names and types of the columns")
    streams = command("streams", _streams, "show encodings, codecs and sizes of the columns")
    head = command("head", _head, "show the first rows")
    head.add_argument("-n", type=_count, default=5, metavar="N", help="number of rows, default 5")
    head.add_argument("--columns", metavar="A,B", help="columns to show, in this order")
    verify = command("verify", _verify, "check for damage; exit code 1 if there is any")
    verify.add_argument(
        "--quick", action="store_true", help="check only file sizes and trailers, not the chunks"
    )
    for one in (info, schema, streams, head, verify):
        one.add_argument(
            "--at", "--version-number", type=int, metavar="N", help="version, default the newest"
        )
    command("versions", _versions, "list the versions that exist, damaged ones too")
    restore = command("restore", _restore, "commit the contents of an older version again")
    restore.add_argument("number", type=int, metavar="VERSION", help="number of the version")
    compact = command("compact", _compact, "merge small row groups")
    compact.add_argument("--sort-by", metavar="A,B", help="sort all rows by these columns")
    imported = command("import", _import, "make a table of one of BLZ, bcolz or Bloscpack")
    imported.add_argument("new", metavar="NEW", help="directory of the new table")
    imported.add_argument("--columns", metavar="A,B", help="columns to convert, in this order")
    vacuum = command("vacuum", _vacuum, "remove old versions, and files that killed writers left")
    vacuum.add_argument("--keep", type=_versions_kept, metavar="N", help="versions to keep at most")
    vacuum.add_argument(
        "--older-than", type=_seconds, metavar="SECONDS", help="remove only older versions"
    )
    vacuum.add_argument(
        "--wait", type=_seconds, default=30.0, metavar="SECONDS", help="for writers, default 30"
    )

    def moving(name: str, run: Callable[[argparse.Namespace], int], text: str) -> None:
        parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name != "load":
            parser.add_argument("path", metavar="PATH", help="directory or file of the table")
        if name != "cat":
            parser.add_argument("target", metavar="TARGET", help="a path where nothing is yet")
        parser.set_defaults(run=run)

    moving("pack", _pack, "write the table as one file")
    moving("unpack", _unpack, "write a table in one file as a directory")
    moving("recover", _recover, "write the whole row groups of a file that was never finished")
    moving("cat", _cat, "write the table as one file to standard output")
    moving("load", _load, "write the table in one file from standard input as a directory")
    return parser


def _pack(options: argparse.Namespace) -> int:
    blz.pack(options.path, options.target)
    return 0


def _unpack(options: argparse.Namespace) -> int:
    blz.unpack(options.path, options.target)
    return 0


def _recover(options: argparse.Namespace) -> int:
    blz.recover(options.path, options.target)
    with blz.open(options.target) as table:
        print(f"recovered: rows 0 to {table.nrows:,}")
    return 0


def _cat(options: argparse.Namespace) -> int:
    if sys.stdout is None or sys.stdout.isatty():
        raise _UsageError("a table is not text; send it to a file or to blz load")
    blz.pack(options.path, sys.stdout.buffer)
    return 0


def _load(options: argparse.Namespace) -> int:
    blz.unpack(sys.stdin.buffer, options.target)
    return 0


def _info(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        result = show.info(table)
    return _print(options, result, show.info_lines(result))


def _schema(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        result = show.schema(table)
    return _print(options, result, show.schema_lines(result))


def _streams(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        result = show.streams(table)
    return _print(options, result, show.streams_lines(result))


def _head(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        shown = table if options.columns is None else table[_names(table, options.columns)]
        result = show.head(shown.head(options.n))
    return _print(options, result, show.head_lines(result, shutil.get_terminal_size().columns))


def _verify(options: argparse.Namespace) -> int:
    with blz.open(options.path, version=options.at) as table:
        report = table.verify(full=not options.quick)
        result = {"path": table.path, **report.to_json()}
    _print(options, result, str(report).split("\n"))
    return 0 if report.is_intact else 1


def _versions(options: argparse.Namespace) -> int:
    with _open_intact(options.path) as table:
        result = show.versions(table)
    return _print(options, result, show.versions_lines(result))


def _restore(options: argparse.Namespace) -> int:
    # Open the table at this version, because the newest one may be damaged.
    with blz.open(options.path, "a", version=options.number) as table:
        table.restore(options.number)
        result = {
            "path": table.path,
            "version": table.version,
            "restored": options.number,
            "rows": table.nrows,
        }
    line = f"version {table.version} has the contents of version {options.number}"
    return _print(options, result, [f"{line}; rows: {table.nrows:,}"])


def _compact(options: argparse.Namespace) -> int:
    with blz.open(options.path, "a") as table:
        before = table.version
        table.compact(sort_by=_names(table, options.sort_by) if options.sort_by else None)
        result = {
            "path": table.path,
            "version": table.version,
            "row_groups": show.facts(table).row_groups,
        }
    line = f"version {before} is compact already"
    if result["version"] != before:
        line = f"compacted as version {result['version']}"
    return _print(options, result, [f"{line}; row groups: {result['row_groups']:,}"])


def _import(options: argparse.Namespace) -> int:
    with blz.open(options.path) as table:
        names = None if options.columns is None else _names(table, options.columns)
        result: Json = {"path": table.path}
    # The bar is an extra, and for people.
    has_bar = sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
    rows = blz.convert(options.path, options.new, columns=names, progress=has_bar)
    with blz.open(options.new) as made:
        result |= {"new": made.path, "rows": rows, "columns": len(made.column_names)}
        result |= {"nbytes": made.nbytes, "cbytes": made.cbytes}
    line = f"{result['new']} has the {rows:,} rows of {result['path']}, compared value by value"
    return _print(options, result, [line])


def _vacuum(options: argparse.Namespace) -> int:
    with blz.open(options.path, "a") as table:
        removed = table.vacuum(keep=options.keep, older_than=options.older_than, wait=options.wait)
        result = show.vacuumed(table, removed)
    _print(options, result, show.vacuumed_lines(result))
    return 1 if removed.damaged else 0


def _open_intact(path: str) -> blz.CTable:
    """Open the newest version whose manifest is intact."""
    try:
        return blz.open(path)
    except blz.BlzError as error:
        return blz.open(path, version=error.intact_version)


def _names(table: blz.CTable, columns: str) -> list[str]:
    # A name may contain a comma.
    return [columns] if columns in table.column_names else columns.split(",")


def _print(options: argparse.Namespace, result: Json, lines: Iterable[str]) -> int:
    if sys.stdout is None:
        raise OSError("standard output is closed")
    for line in [json_text(result)] if options.json else lines:
        text = line if options.json else printable(line)
        print(_encodable(text, sys.stdout.encoding))
    return 0


def _encodable(text: str, encoding: str | None) -> str:
    """Return the text with an escape for each character that the encoding lacks."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of rows of at least 0, not {text!r}")
    return int(text)


def _versions_kept(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1 version, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds of at least 0, not {text!r}")
    return seconds
