"""Datasets: tables as query engines scan them."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.table.datasets import dataset as dataset
    from blztable.table.datasets import finding as finding
    from blztable.table.datasets import ranges as ranges
    from blztable.table.datasets import several as several
    from blztable.table.datasets import sql as sql
    from blztable.table.datasets import text as text

__getattr__ = door(__name__)
