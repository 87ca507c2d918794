"""Completion: the script that completes commands, options and paths in a shell.

Knows the arguments and shtab, which writes the script.
"""

import argparse
import importlib
from collections.abc import Iterator

from blztable.cli.arguments import PATHS, parser


def completion(options: argparse.Namespace) -> None:
    """Print the script."""
    try:
        shtab = importlib.import_module("shtab")
    except ImportError:
        raise ImportError("completion needs shtab: pip install 'blztable[cli]'") from None
    made = parser()
    for action in _actions(made):
        if action.metavar in PATHS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(made, options.shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
