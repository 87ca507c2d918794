"""Tables and arrays of other programs, to be read: BLZ, bcolz, Bloscpack. Never changes a file."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.compat import table as table

__getattr__ = door(__name__)
