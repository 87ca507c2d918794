"""Commands: run one, print an error as one line, and return the exit code.

0: done. 1: an error. 2: arguments that cannot be parsed. 3: the table is damaged. 130: Ctrl-C. A
closed pipe or Ctrl-C ends a command without a message. The module of a command is imported when it
runs, so `blz --version` does not wait for the others. Knows nothing of the commands.
"""

import os
import sys
from collections.abc import Sequence
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
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
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        return _failed(error, USAGE)
    except CorruptError as error:
        return _failed(error, DAMAGE)
    except _EXPECTED as error:
        return _failed(error, ERROR)
    return code


def _failed(error: Exception, code: int) -> int:
    print(encodable(f"blz: {printable(str(error))}", sys.stderr.encoding), file=sys.stderr)
    return code
