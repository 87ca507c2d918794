"""Commands: run one, print an error as one line, and return the exit code.

0: done. 1: an error. 2: arguments that cannot be parsed. 3: the table is damaged. 130: Ctrl-C. A
closed pipe or Ctrl-C ends a command without a message. But once a command has committed, Ctrl-C
says so and returns 0: a script that tries again would do the work twice. The module of a command is
imported when it runs, so `blz --version` does not wait for the others. Knows nothing of the
commands.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from blztable.cli.advice import of_command_line
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
