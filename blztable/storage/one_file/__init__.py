"""A table in one file: a store whose values lie one after another."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.storage.one_file import store as store

__getattr__ = door(__name__)
