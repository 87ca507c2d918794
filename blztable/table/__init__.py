"""The open table: where frames and disk meet."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.table import snapshot as snapshot
    from blztable.table import table as table

__getattr__ = door(__name__)
