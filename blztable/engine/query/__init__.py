"""Which rows a filter leaves, and reading them."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.engine.query import cuts as cuts
    from blztable.engine.query import explain as explain
    from blztable.engine.query import salvage as salvage
    from blztable.engine.query import statistics as statistics

__getattr__ = door(__name__)
