"""Command line: `blz info`, `schema`, `head`, `verify`, `versions`, `restore` and so on.

Knows only the public names of blztable.
"""

from blztable.cli.command import main

__all__ = ["main"]
