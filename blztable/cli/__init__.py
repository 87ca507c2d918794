"""Command line: the program `blz`.

Knows only the public names of blztable.
"""

from blztable.cli.command import main

__all__ = ["main"]
