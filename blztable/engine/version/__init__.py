"""Versions of a table: read, pinned, committed, kept and removed."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.engine.version import drop as drop
    from blztable.engine.version import vacuum as vacuum

__getattr__ = door(__name__)
