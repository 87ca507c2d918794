"""Python objects as Arrow arrays, and back."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.convert.objects import merge as merge
    from blztable.convert.objects import reshape as reshape

__getattr__ = door(__name__)
