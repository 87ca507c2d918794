"""The command line: `blz info`, `schema`, `head`, `verify`, `versions`, `restore` and so on.

Knows nothing but the public names of blztable.
"""

from blztable.cli.command import main

__all__ = ["main"]
