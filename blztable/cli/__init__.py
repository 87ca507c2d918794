"""The command line: `blz info`, `schema`, `head` and `verify`. A guest: uses only the face."""

from blztable.cli.command import main

__all__ = ["main"]
