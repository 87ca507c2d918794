"""Commands: run one, print an error as one line, and return the exit code.

0: done. 1: an error. 2: arguments that cannot be parsed. 3: the table is damaged. 130: Ctrl-C. A
closed pipe or Ctrl-C ends a command without a message. But once a command has committed, Ctrl-C
says so and returns 0: a script that tries again would do the work twice. The module of a command is
imported when it runs, so `blz --version` does not wait for the others. A message of the package
has what was found first, and behind semicolons what mends it: calls that a command does become that
command, and advice that only Python can follow is left out. Knows nothing of the commands.
"""

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from blztable.cli.arguments import UsageError, parser
from blztable.cli.terminal import encodable, printable
from blztable.errors import BlzError, CorruptError

ERROR, USAGE, DAMAGE, INTERRUPTED = 1, 2, 3, 130
# Wrong arguments raise builtin errors in blztable. Arrow has no function for some types.
_EXPECTED = (
    BlzError,
    ImportError,
    LookupError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
)


_VERBS = "compact|diff|erase|recover|repair|restore|unpack|vacuum|verify|versions|pack"
_COMMANDS = (
    (r"\bevolve=True", "--evolve"),
    (r"(?:write one with )?to_blz\(\) or create\(\)", "make one with `blz import`"),
    (r"\bmake a table of it with blztable\.copy\(.*", "make a table of it: `blz import`"),
    (r"\bchange the column with alter_column\(.*", "convert the data"),
    (rf"\b(?:\w+\.)*({_VERBS})\([^()]*\)", r"`blz \1`"),
)
# A call, a name of a library of Python, or a parameter with a value.
_PYTHON = re.compile(
    r"\b[a-zA-Z_.]+\((?!s\))|\b(?:pa|pc|pd|np|pandas|blztable)\.\w+"
    r"|\b[a-z_]+=(?:True|False|None|\"|'|\[|\{|\d|\.\.\.)"
)
_OTHERS = re.compile(r", (?=(?:or|and|with) )")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with _commits() as commits:
        try:
            code = _run(sys.argv[1:] if argv is None else argv)
            if argv is None:
                # All is said; only Python itself has to end.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            if not commits:
                return INTERRUPTED
            print(f"interrupted after the commit of version {commits[-1]}", file=sys.stderr)
            return 0
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        if not arguments:
            parser().print_help(sys.stderr)
            return USAGE
        options = parser().parse_args(arguments)
        module, _, name = options.run.partition(":")
        code: int = getattr(import_module(f"blztable.cli.{module}"), name)(options) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again when it exits, and would print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    except UsageError as error:
        return _failed(str(error), USAGE)
    except CorruptError as error:
        return _failed(of_command_line(str(error)), DAMAGE)
    except _EXPECTED as error:
        return _failed(of_command_line(str(error)), ERROR)
    return code


class _Commits(logging.Handler):
    """Listens to the log, which tells of each commit before an interrupt is raised."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.versions: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the number of a version that was committed."""
        version = getattr(record, "committed", None)
        if version is not None:
            self.versions.append(version)


@contextmanager
def _commits() -> Iterator[list[int]]:
    """Yield the numbers of the versions that this process commits."""
    log, handler = logging.getLogger("blztable"), _Commits()
    level = log.level
    log.addHandler(handler)
    log.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield handler.versions
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def _failed(message: str, code: int) -> int:
    print(encodable(f"blz: {printable(message)}", sys.stderr.encoding), file=sys.stderr)
    return code


def of_command_line(message: str) -> str:
    """Return a message whose advice can be followed without Python."""
    fault, *advice = message.split("; ")
    return "; ".join([fault, *filter(None, map(_followed, advice))])


def _followed(advice: str) -> str:
    if advice.startswith("read it with "):
        # What another library stored is read by that library.
        return advice
    for call, command in _COMMANDS:
        advice = re.sub(call, command, advice)
    parts = [part for part in _OTHERS.split(advice) if not _PYTHON.search(part)]
    return re.sub("^(?:or|and|with) ", "", ", ".join(parts))
