"""Settings: the bodies of the verbs that change no rows and no columns. Writes no file."""

from collections.abc import Mapping, Sequence
from typing import Any

from blztable.convert.objects.tagged import checked_attrs
from blztable.format.manifest import TAGS
from blztable.format.metalayers import LayerKey
from blztable.table.changing.target import Target
from blztable.table.names import checked_count


def set_attributes(target: Target, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
    """Set and remove attributes; a conflict is told, because another program set the same one."""
    target.change_set.only_once = True
    target.change_set.set_keys("attributes", checked_attrs(dict(changes)), removed)


def set_layers(target: Target, changes: Mapping[LayerKey, bytes | None]) -> None:
    """Set and remove metalayers; a conflict is told, as one of attributes."""
    target.change_set.only_once = True
    for key, content in changes.items():
        target.change_set.set_layer(key, content)


def set_tags(target: Target, changes: Mapping[str, int], removed: Sequence[str]) -> None:
    """Set and remove tags."""
    target.change_set.set_keys(TAGS, changes, removed)


def set_retention(
    target: Target, versions: int | None, seconds: int | None, nbytes: int | None
) -> None:
    """Set how long superseded versions are kept; None leaves a limit as it is."""
    chosen = {"versions": versions, "seconds": seconds, "bytes": nbytes}
    kept = {f"keep_{k}": checked_count(v, k) for k, v in chosen.items() if v is not None}
    if kept.get("keep_versions") == 0:
        raise ValueError("versions must be at least 1: the newest version is always kept")
    target.change_set.set_keys("properties", kept, ())


def set_row_group_rows(target: Target, rows: int | None) -> None:
    """Set the number of rows of new row groups; None for the usual number."""
    count = rows if rows is None else checked_count(rows, "rows", least=1)
    target.change_set.set_row_group_rows(count)
