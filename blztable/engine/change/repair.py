"""Repair: commit the undamaged row groups of a damaged version as the next version.

Theory of operation. Leaves that are missing or damaged are made again from the data files, and
written to their places: they are the same to the byte, so all versions that name them have them
back. Then `verify` tells the row groups with damage. Each of them is read as far as it can be read,
and written again; the others stay as they are. The damaged version stays what it was.
"""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from blztable.arrow.types import Portion
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Rows
from blztable.engine.change.reliance import ReadSet
from blztable.engine.check.rebuild import Rebuilt, rebuild
from blztable.engine.check.verify import verify
from blztable.engine.query.salvage import salvaged
from blztable.engine.query.select import read_selected
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.damage import DamagedRows
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.projection import Projection
from blztable.engine.version.versions import Version
from blztable.errors import SchemaError


def repair(change_set: ChangeSet, on_corrupt: str) -> tuple[list[DamagedRows], list[str]]:
    """Write the damaged row groups again, without what is lost.

    Return the damage, and what was rebuilt.

    Parameters
    ----------
    change_set : ChangeSet
        A transaction without changes.
    on_corrupt : {"skip", "null"}
        Whether rows with a damaged value are left out, or the value becomes null.

    Raises
    ------
    CorruptError
        A leaf is lost, and cannot be rebuilt.
    SchemaError
        A value is lost in a column that allows no null.
    """
    base = change_set.staged.base
    assert base is not None, "there is a version to repair"
    rebuilt = [_put(base, leaf) for leaf in rebuild(base)]
    report = verify(base, range(len(base.schema)), full=True)
    groups = base.row_groups
    numbers = {problem.row_group for problem in report.problems}
    damaged = sorted(number for number in numbers if number is not None)
    if not damaged:
        return [], rebuilt
    damage: list[DamagedRows] = []
    left: list[int] = []

    def portions() -> Iterator[Portion]:
        for group in damaged:
            table, lost = _whole(base, group, on_corrupt)
            damage.extend(lost)
            if table.num_rows:
                left.append(group)
                yield table, table.num_rows

    counts, written = change_set.write(change_set.column_writers(), portions(), is_whole=True)
    new = {group: len(groups) + number for number, group in enumerate(left)}
    kept = [group for group in range(len(groups)) if group not in damaged or group in new]
    order = [new.get(group, group) for group in kept]
    change_set.add("repair", Rows(ReadSet.rows_of(change_set.staged), order, counts, written))
    rows = dict(zip(left, counts.rows, strict=True))
    change_set.count(deleted=sum(groups[group] - rows.get(group, 0) for group in damaged))
    return damage, rebuilt


def _put(version: Version, leaf: Rebuilt) -> str:
    """Write a leaf that was lost to its place; return what was done, as words."""
    version.store.put(leaf.key, leaf.data)
    version.store.flush([leaf.key])
    return str(leaf)


def _whole(version: Version, group: int, on_corrupt: str) -> tuple[pa.Table, list[DamagedRows]]:
    """Return what is whole of a row group, and what is lost."""
    columns, rows = range(len(version.schema)), version.row_groups[group]
    projection, span = Projection.of(version), [RowSpan(group, 0, rows)]
    read = partial(read_selected, OpenColumns(projection), columns, None, span, None)
    selected, lost = salvaged(
        read, projection, OpenColumns, columns, None, lambda: span, on_corrupt
    )
    for damaged in lost:
        if damaged.column is not None and not version.schema.field(damaged.column).nullable:
            raise SchemaError(
                f"{version.store.name}: {damaged}, but it allows no nulls; leave the rows out with "
                'on_corrupt="skip"'
            )
    return pa.Table.from_arrays(selected.arrays, names=version.schema.names), lost
