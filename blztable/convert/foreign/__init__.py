"""Foreign: data that is neither pandas nor Arrow: numpy arrays, rows, readers of other programs."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.convert.foreign import python_values as python_values
    from blztable.convert.foreign import structured as structured

__getattr__ = door(__name__)
