"""Settings: the bodies of the verbs that change no rows and no columns. Writes no file."""

from collections.abc import Mapping, Sequence
from typing import Any

from blztable.convert.objects.tagged import checked_attrs
from blztable.engine.write import sort_keys
from blztable.engine.write.options import (
    KEPT,
    Storage,
    check_columns,
    check_digits,
    check_taken,
    given_storage,
    sort_order,
)
from blztable.engine.write.sort_keys import SORT_BY
from blztable.format.manifest import TAGS
from blztable.format.metalayers import LayerKey
from blztable.table.changing.target import ChangeTarget
from blztable.table.names import checked_count


def set_attributes(
    target: ChangeTarget, changes: Mapping[str, Any], removed: Sequence[str]
) -> None:
    """Set and remove attributes; a conflict is told, because another program set the same one."""
    target.change_set.only_once = True
    target.change_set.set_keys("attributes", checked_attrs(dict(changes)), removed)


def set_layers(target: ChangeTarget, changes: Mapping[LayerKey, bytes | None]) -> None:
    """Set and remove metalayers; a conflict is told, as one of attributes."""
    target.change_set.only_once = True
    for key, content in changes.items():
        target.change_set.set_layer(key, content)


def set_tags(target: ChangeTarget, changes: Mapping[str, int], removed: Sequence[str]) -> None:
    """Set and remove tags."""
    target.change_set.set_keys(TAGS, changes, removed)


def configure(
    target: ChangeTarget, storage: Storage | None, limits: Mapping[str, int | None]
) -> None:
    """Set how rows are stored and versions kept; None leaves a setting as it is."""
    kept: dict[str, Any] = {
        name: checked_count(value, name) for name, value in limits.items() if value is not None
    }
    if kept.get("keep_versions") == 0:
        raise ValueError("keep_versions must be at least 1: the newest version is always kept")
    if storage is not None:
        given, schema = given_storage(storage), target.staged.schema
        check_taken(given, (*KEPT, "columns", "sort_by"), "configure")
        check_columns(given, schema.names)
        check_digits(schema, given)
        target.change_set.keep_storage(given)
        keys = sort_keys.placed(sort_order(given), schema, target.path)
        if keys:
            kept[SORT_BY] = sort_keys.to_json(keys, target.staged.paths)
    unsorted = storage is not None and SORT_BY not in kept
    removed = {SORT_BY} & target.staged.head.properties.keys() if unsorted else ()
    target.change_set.set_keys("properties", kept, removed)
