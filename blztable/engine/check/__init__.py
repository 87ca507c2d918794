"""Check: find and report the damage of a version."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.engine.check import usage as usage
    from blztable.engine.check import verify as verify

__getattr__ = door(__name__)
