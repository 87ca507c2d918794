"""The command line: `blz info`, `schema`, `head`, `verify`, `versions`, `restore` and so on.

A guest: uses only the face.
"""

from blztable.cli.command import main

__all__ = ["main"]
