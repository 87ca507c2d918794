"""Arguments: every command of `blz` with its arguments, and which function runs it.

docs/cli.md is made from these, and so are completions. Knows only text: no tables.
"""

import argparse
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from blztable.version import VERSION

FORMATS_IN = ("csv", "tsv", "ndjson", "parquet", "arrow", "feather")
FORMATS_OUT = ("csv", "tsv", "ndjson", "parquet", "arrow")
SHELLS = ("bash", "zsh", "fish", "tcsh")
# Arguments that are paths, by their metavar; `-` is standard input or output.
PATHS = ("PATH", "FILE", "TABLE", "TARGET", "[NAME=]TABLE")


def column_names(known: Sequence[str], columns: str | None) -> list[str] | None:
    """Return the names in an argument `A,B`, of columns that are known; None for all columns."""
    if columns is None:
        return None
    # A name may contain a comma.
    return [columns] if columns in known else columns.split(",")


class UsageError(Exception):
    """Arguments that cannot be parsed, or that do not go together."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    _is_parsing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Let options stand between the arguments of a command, `import a.csv --append t.blz`."""
        if self._is_parsing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_parsing = False

    def error(self, message: str) -> NoReturn:
        """Raise UsageError in place of an exit."""
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parser() -> Parser:
    """Return the parser of all commands."""
    made = Parser(prog="blz", description="Tables of blztable: move data, look, change, maintain.")
    made.add_argument("--version", action="version", version=f"blztable {VERSION}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (_move, _look, _change, _maintain):
        group(commands)
    verb = _command(commands, "completion", "completing:completion", "print a completion script")
    verb.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    return made


def _move(commands: Any) -> None:
    verb = _command(commands, "import", "moving:import_", "make a table of files, or append them")
    _files(
        verb, "files to read, `-` for standard input; or one old table of BLZ, bcolz or Bloscpack"
    )
    way = verb.add_mutually_exclusive_group()
    way.add_argument("--append", action="store_true", help="append to the table, if it exists")
    way.add_argument("--replace", action="store_true", help="replace the table, if it exists")
    _evolve(verb)
    _commit_id(verb)
    verb.add_argument("--sort-by", metavar="A,B", help="sort the rows by these columns")
    text = "codec: lz4, lz4hc, zlib or zstd; by default each column gets the one that suits it"
    verb.add_argument("--compression", metavar="CODEC", help=text)
    text = "make a new table a directory, the default, or one file"
    verb.add_argument("--layout", choices=("directory", "file"), metavar="LAYOUT", help=text)
    _json(verb)

    verb = _path_command(commands, "export", "moving:export", "write rows to a file")
    _rows(verb)
    _format(verb, "by default what the name of the file says, or csv")
    _output(verb, required=True)
    verb = _path_command(commands, "cat", "moving:export", "write rows to standard output")
    _rows(verb)
    _format(verb, "default csv")
    verb.set_defaults(output="-")
    verb = _command(commands, "sql", "moving:sql", "query tables with DuckDB")
    verb.add_argument("query", metavar="QUERY", help="a query in DuckDB's SQL")
    text = "tables; each is named in the query by its file without suffix, or by NAME"
    verb.add_argument("tables", nargs="+", type=_path, metavar="[NAME=]TABLE", help=text)
    text = "by default what FILE says; without both options, rows as `head` shows them"
    _format(verb, text)
    _output(verb, required=False)
    _json(verb)


def _evolve(parser: Any) -> None:
    text = "let later data bring new columns and wider types"
    parser.add_argument("--evolve", action="store_true", help=text)


def _look(commands: Any) -> None:
    for name, text in (("head", "show the first rows"), ("tail", "show the last rows")):
        verb = _path_command(commands, name, f"looking:{name}", text)
        verb.add_argument("-n", type=_count, default=5, metavar="N", help="rows to show, default 5")
        _rows(verb)
        _json(verb)
    verb = _path_command(commands, "count", "looking:count", "count rows")
    _where(verb)
    _at(verb)
    _json(verb)
    verb = _path_command(commands, "explain", "looking:explain", "show what a read reads and skips")
    _rows(verb)
    _json(verb)
    for name, text in (
        ("info", "show version, rows, sizes and attributes"),
        ("schema", "show names and types of the columns"),
        ("streams", "show encodings, codecs and sizes of the columns"),
    ):
        verb = _path_command(commands, name, f"looking:{name}", text)
        _at(verb)
        _json(verb)
    text = "list the versions that exist, damaged ones too"
    _json(_path_command(commands, "versions", "looking:versions", text))
    verb = _path_command(commands, "diff", "looking:diff", "show what changed between two versions")
    text = "number or tag of the older version"
    verb.add_argument("old", type=_named_version, metavar="V1", help=text)
    text = "number or tag of the newer version, default the newest"
    verb.add_argument("new", type=_named_version, nargs="?", metavar="V2", help=text)
    _json(verb)


def _change(commands: Any) -> None:
    verb = _path_command(commands, "delete", "changing:delete", "delete the rows of a condition")
    _where(verb, required=True)
    _json(verb)
    text = "delete rows for good, with the older versions; the exit code is 1 while any are left"
    verb = _path_command(commands, "erase", "changing:erase", text)
    _where(verb, required=True)
    _wait(verb)
    _json(verb)
    text = "update the rows whose key is in the table, and append the others"
    verb = _command(commands, "upsert", "moving:upsert", text)
    _files(verb, "files to read into memory, `-` for standard input")
    text = "columns of the key; each key may occur once in the files"
    verb.add_argument("--on", required=True, metavar="A,B", help=text)
    _evolve(verb)
    _commit_id(verb)
    _json(verb)
    text = "commit the contents of an older version again"
    verb = _path_command(commands, "restore", "changing:restore", text)
    text = "number or tag of the version"
    verb.add_argument("number", type=_named_version, metavar="VERSION", help=text)
    _json(verb)
    text = "name a version, which is kept until its name is removed"
    verb = _path_command(commands, "tag", "changing:tag", text)
    verb.add_argument("name", metavar="NAME", help="name of the version")
    text = "number of the version, default the newest"
    verb.add_argument("number", type=int, nargs="?", metavar="VERSION", help=text)
    verb.add_argument("--remove", action="store_true", help="remove the name")
    _json(verb)
    text = "remove a table, so that no writer who has it open can bring it back"
    _json(_path_command(commands, "drop", "changing:drop", text))
    verb = _path_command(commands, "compact", "changing:compact", "merge small row groups")
    verb.add_argument("--sort-by", metavar="A,B", help="sort all rows by these columns")
    _json(verb)


def _maintain(commands: Any) -> None:
    text = "check for damage; the exit code is 3 if there is any"
    verb = _path_command(commands, "verify", "looking:verify", text)
    text = "check the manifest, the leaves and what each file says of itself, not the chunks"
    verb.add_argument("--quick", action="store_true", help=text)
    _at(verb)
    _json(verb)
    text = "commit a version with the undamaged rows of a damaged one"
    verb = _path_command(commands, "repair", "changing:repair", text)
    text = "keep all rows, with nulls for damaged values, instead of leaving rows out"
    verb.add_argument("--null", action="store_true", help=text)
    _json(verb)
    text = "remove old versions, and files that killed writers left"
    verb = _path_command(commands, "vacuum", "changing:vacuum", text)
    verb.add_argument("--keep", type=_versions_kept, metavar="N", help="versions to keep at most")
    text = "remove only older versions"
    verb.add_argument("--older-than", type=_seconds, metavar="SECONDS", help=text)
    _wait(verb)
    _json(verb)
    for name, text, target in (
        ("pack", "write a table as one file", "a path where nothing is yet, or `-`"),
        ("unpack", "write a table in one file as a directory", "a path where nothing is yet"),
        (
            "recover",
            "write the readable rows of an unfinished or damaged file",
            "a path where nothing is yet",
        ),
    ):
        verb = _path_command(commands, name, f"changing:{name}", text)
        verb.add_argument("target", type=_path, metavar="TARGET", help=target)
        text = "number or tag of the version to write, default the newest"
        if name == "recover":
            text += " that is whole"
        verb.add_argument("--version", type=_named_version, metavar="VERSION", help=text)


def _command(commands: Any, name: str, run: str, text: str) -> Parser:
    made: Parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    made.set_defaults(run=run)
    return made


def _path_command(commands: Any, name: str, run: str, text: str) -> Parser:
    made = _command(commands, name, run, text)
    stdin = ", or `-`" if name == "unpack" else ""
    text = f"directory or file of the table{stdin}"
    made.add_argument("path", type=_path, metavar="PATH", help=text)
    return made


def _files(parser: Parser, text: str) -> None:
    """Add the arguments of a command that reads files into a table."""
    parser.add_argument("files", nargs="+", type=_path, metavar="FILE", help=text)
    parser.add_argument("table", type=_path, metavar="TABLE", help="directory or file of the table")
    text = f"one of {', '.join(FORMATS_IN)}; by default what the name or the first bytes say"
    parser.add_argument("--format", choices=FORMATS_IN, metavar="FORMAT", help=text)
    _columns(parser, "columns to import, in this order")
    text = "type of a column, for example zip=string, price=decimal(12,2), at=timestamp[us,UTC]"
    parser.add_argument(
        "--dtype", action="append", default=[], type=_pair, metavar="A=TYPE", help=text
    )
    text = "a text that stands for a missing value in CSV, beside the empty one"
    parser.add_argument("--null", action="append", default=[], metavar="TEXT", help=text)
    text = "between the values of a row in CSV, default a comma"
    parser.add_argument("--delimiter", type=_character, metavar="C", help=text)
    text = "before the places of a number in CSV, default a point"
    parser.add_argument("--decimal", type=_character, default=".", metavar="C", help=text)
    text = "the first line of CSV has values; the columns are named f0, f1, f2"
    parser.add_argument("--no-header", action="store_true", help=text)
    text = "lines to skip at the start of each CSV file"
    parser.add_argument("--skip", type=_count, default=0, metavar="N", help=text)
    parser.add_argument("--encoding", metavar="NAME", help="encoding of CSV, default utf8")


def _commit_id(parser: Parser) -> None:
    text = "name of this work, for example its date; work that was committed once is not repeated"
    parser.add_argument("--commit-id", metavar="ID", help=text)


def _rows(parser: Parser) -> None:
    """Add the options of a read of rows."""
    _columns(parser, "columns to read, in this order")
    _where(parser)
    _at(parser)


def _columns(parser: Parser, text: str) -> None:
    parser.add_argument("--columns", metavar="A,B", help=text)


def _where(parser: Parser, required: bool = False) -> None:
    text = "only rows that meet a condition, for example \"amt > 3 and day = '2026-01-02'\""
    parser.add_argument("--where", required=required, metavar="CONDITION", help=text)


def _at(parser: Parser) -> None:
    text = "number, tag or time of a version, default the newest"
    names = ("--at", "--version-number")
    parser.add_argument(*names, type=_version, default={}, metavar="VERSION", help=text)


def _format(parser: Parser, default: str) -> None:
    text = f"one of {', '.join(FORMATS_OUT)}; {default}"
    parser.add_argument("--format", choices=FORMATS_OUT, metavar="FORMAT", help=text)


def _output(parser: Parser, required: bool) -> None:
    text = "file to write, `-` for standard output; it is replaced when all rows are written"
    parser.add_argument("-o", "--output", type=_path, required=required, metavar="FILE", help=text)


def _json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; pass that of a table or a file")
    return text


def _pair(text: str) -> Sequence[str]:
    name, equals, type_ = text.rpartition("=")
    if not equals or not name or not type_:
        raise argparse.ArgumentTypeError(f"expected COLUMN=TYPE, not {text!r}")
    return name, type_


def _character(text: str) -> str:
    text = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(text) != 1 or not text.isascii():
        raise argparse.ArgumentTypeError(f"expected one character of ASCII, not {text!r}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of rows of at least 0, not {text!r}")
    return int(text)


def _version(text: str) -> dict[str, Any]:
    """Return the options of `open` for a number, a time or a tag."""
    named = _named_version(text)
    if isinstance(named, int):
        return {"version": named}
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return {"version": named}
    return {"at": text}


def _named_version(text: str) -> int | str:
    """Return a number or a tag."""
    try:
        return int(text)
    except ValueError:
        return text


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


def _wait(parser: Parser) -> None:
    text = "wait for writers, default 30"
    parser.add_argument("--wait", type=_seconds, default=30.0, metavar="SECONDS", help=text)
