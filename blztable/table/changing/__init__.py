"""Changing: what the verbs of a transaction do with the data of users."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.table.changing import appender as appender
    from blztable.table.changing import columns as columns
    from blztable.table.changing import keyed as keyed
    from blztable.table.changing import rows as rows
    from blztable.table.changing import settings as settings
    from blztable.table.changing import target as target

__getattr__ = door(__name__)
