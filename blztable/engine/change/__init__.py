"""What makes one version out of another."""

from typing import TYPE_CHECKING

from blztable.late import door

if TYPE_CHECKING:
    from blztable.engine.change import change_set as change_set
    from blztable.engine.change import column_append as column_append
    from blztable.engine.change import columns as columns
    from blztable.engine.change import compact as compact
    from blztable.engine.change import creation as creation
    from blztable.engine.change import drafts as drafts
    from blztable.engine.change import erase as erase
    from blztable.engine.change import fields as fields
    from blztable.engine.change import fragments as fragments
    from blztable.engine.change import keyed as keyed
    from blztable.engine.change import repair as repair
    from blztable.engine.change import retype as retype
    from blztable.engine.change import rows as rows
    from blztable.engine.change import update as update
    from blztable.engine.change import upsert as upsert

__getattr__ = door(__name__)
