"""Compact: write the same rows in fewer and larger row groups, or in another order.

A merge after an append is a commit of its own. If it conflicts, it is dropped silently, because
another writer has already merged.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import Portion
from blztable.caller import stack_level
from blztable.columns.types import NARROW_CODES, changes
from blztable.engine.change import categories, merge_policy
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Join, Keys, NoJoin
from blztable.engine.change.sorting import Unsorted
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.ahead import one_by_one
from blztable.engine.run.pool import Progress
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import NewGroups, StagedColumn, StagedVersion
from blztable.engine.version.versions import DAMAGED, Version
from blztable.engine.write import sort_keys
from blztable.engine.write.options import Storage, group_rows_of
from blztable.engine.write.row_groups import row_groups, rows_per_group
from blztable.engine.write.sort_keys import SORT_BY, Key
from blztable.errors import BlzError, ConflictError, CorruptError
from blztable.format import layout
from blztable.format.data_file import DataFile
from blztable.format.layout import Path
from blztable.storage.store import ByteRange, KeyNotFound, Lock


def merge_after(
    version: Version, storage: Storage, *, is_durable: bool
) -> tuple[Version, Lock] | None:
    """Merge trailing row groups after an append if the policy says so.

    Return the new version, pinned, or None. A failure is only a warning: the append is committed.
    """
    commit = Commit(CommitPlan(version.store, is_durable, base=version))
    change_set = ChangeSet(commit, storage)
    full = _full(change_set)
    count = merge_policy.trailing_groups(version.rows_backwards(), full)
    if not count:
        return None
    try:
        stop = version.group_count
        lengths = _joinable(change_set.staged, range(stop - 1, stop - 1 - count, -1))
        count = merge_policy.trailing_groups(islice(version.rows_backwards(), lengths[0]), full)
        if not count:
            return None
        with commit:
            change_set.begin()
            _join(change_set, "merge", change_set.staged, stop - count, stop)
            merged = change_set.publish()
    except ConflictError:
        return None
    except BlzError as error:
        number, name = version.head.version, version.store.name
        warnings.warn(
            f"{name}: version {number} is committed, but its small row groups were not "
            f"merged: {error}",
            stacklevel=stack_level(),
        )
        return None
    commit.emit_warnings()
    return merged


def compact(change_set: ChangeSet, sort_by: Sequence[tuple[str, str]] | None = None) -> None:
    """Sort all rows, or join small row groups if there is no sort order.

    `sort_by` holds names with directions; by default it is the sort order that the table keeps.
    """
    staged = change_set.staged
    if sort_by is None:
        keys = sort_keys.kept(staged.head.properties, staged.paths)
    else:
        keys = sort_keys.placed(sort_by, staged.schema, staged.store.name)
    if keys:
        _sort(change_set, keys)
    else:
        _join_small(change_set)


def _sort(change_set: ChangeSet, keys: Sequence[Key]) -> None:
    """Rewrite all rows in the order of these columns, and record the order.

    The memory holds the order of all rows, and a few columns at a time.
    """
    staged = change_set.staged
    unsorted = Unsorted.of_version(staged)
    order = unsorted.order(keys)
    record = sort_keys.to_json(keys, staged.paths)
    if order is None and record == staged.head.properties.get(SORT_BY):
        _join_small(change_set)
        return
    with change_set.named("sort"):
        if order is None:
            change_set.add_reliance(NoJoin.of(staged))
            _join_small(change_set)
        else:
            rewrite(change_set, unsorted, order)
        # Record the order again if another commit changed the record.
        change_set.add("sort", Keys.of(change_set.staged, "properties", {SORT_BY: record}))


def rewrite(
    change_set: ChangeSet, unsorted: Unsorted, order: np.ndarray, progress: Progress | None = None
) -> None:
    """Write all rows of the staged version in this order."""
    staged = change_set.staged
    groups, written = write_ordered(change_set, unsorted, order, progress)
    change_set.add("sort", Join.of(staged, 0, staged.group_count, groups, written))


def write_ordered(
    change_set: ChangeSet, unsorted: Unsorted, order: np.ndarray, progress: Progress | None = None
) -> tuple[NewGroups, list[StagedColumn]]:
    """Write rows in this order, a few columns at a time; return row groups and columns."""
    groups = NewGroups()
    written: list[StagedColumn] = []
    for indices in unsorted.batches():
        groups, parts = change_set.write(
            change_set.column_writers(indices),
            unsorted.groups(indices, order, group_rows_of(change_set.storage)),
            progress,
            is_whole=len(indices) == len(change_set.staged.schema),
        )
        written += parts
    return groups, written


def _join_small(change_set: ChangeSet) -> None:
    """Join all small row groups with their neighbours, and rewrite those that keep old values.

    A join is droppable: it is left out if another commit changes its row groups meanwhile. It is a
    conflict only if no join is left.
    """
    staged, full = change_set.staged, _full(change_set)
    groups = staged.row_groups
    lengths = _joinable(staged, range(len(groups)))
    firsts = [0, *accumulate(lengths)]
    spans = [
        (first + start, first + stop)
        for first, length in zip(firsts, lengths, strict=False)
        for start, stop in merge_policy.small_spans(groups[first : first + length], full)
    ]
    joined = {group for start, stop in spans for group in range(start, stop)}
    alone = set(range(len(groups))) - joined
    spans = sorted([*spans, *((group, group + 1) for group in _with_old_values(staged, alone))])
    # Join from the end, so that the indices of earlier row groups stay valid. All joins read this
    # staged version: a new one for each join would hold all row groups again.
    for start, stop in _asked(staged, spans[::-1]):
        _join(change_set, "compact", staged, start, stop, is_droppable=True)


def rewrite_old_values(change_set: ChangeSet, gone: categories.PartValues) -> None:
    """Write again each row group that keeps values which no row of the table has.

    Such are also the categories in `gone`. Other than in a compaction, none may be left out.
    """
    staged = change_set.staged
    groups = range(staged.group_count)
    old = {*_with_old_values(staged, groups)}
    with OpenColumns.whole(staged) as opened:
        old.update(categories.groups_with(opened, groups, gone))
    spans = [(group, group + 1) for group in sorted(old, reverse=True)]
    for start, stop in _asked(staged, spans):
        _join(change_set, "compact", staged, start, stop, gone=gone)


def _asked(staged: StagedVersion, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans of row groups; a store that fetches is asked for small ones ahead.

    The read of a large one asks for its own bytes.
    """
    columns = range(len(staged.schema))
    with OpenColumns.whole(staged) as opened:

        def wanted(span: tuple[int, int]) -> tuple[list[ByteRange], bool]:
            rows = [RowSpan(group, 0, staged.row_groups[group]) for group in range(*span)]
            ranges, _ = opened.ranges(columns, rows)
            nbytes = sum([stop - start for _, start, stop in ranges])
            return ranges if nbytes <= tuning.current.spare_bytes else [], False

        yield from one_by_one(staged.store, spans, wanted)


def has_old_values(staged: StagedVersion) -> bool:
    """True if a row group keeps values which no row of the table has."""
    return any(True for _ in _with_old_values(staged, range(staged.group_count)))


def _with_old_values(staged: StagedVersion, groups: Iterable[int]) -> Iterator[int]:
    """Yield those of the row groups that have deleted rows, or parts that no column names.

    A bundle keeps the parts of columns that were written again, or dropped.
    """
    lines = range(len(staged.paths))

    def front(group: int) -> tuple[list[ByteRange], bool]:
        bundle = staged.bundles[group]
        if staged.all_deleted[group] or not bundle:
            return [], True
        parts = staged.records(lines, [group]).parts
        # The front ends before the first part that is named.
        stop = int(parts["offset"][parts["file"] == bundle].min(initial=1 << 62))
        return [(layout.part(layout.SHARED, bundle), 0, stop % (1 << 62))], True

    for group in one_by_one(staged.store, groups, front):
        bundle = staged.bundles[group]
        if staged.all_deleted[group]:
            yield group
        elif bundle:
            files = staged.records(lines, [group]).parts["file"].tolist()
            named = {path for path, file in zip(staged.paths, files, strict=True) if file == bundle}
            if named != {*_nodes_of(staged, bundle)}:
                yield group


def _nodes_of(version: Version, bundle: int) -> Sequence[Path]:
    """Return the paths of the nodes whose parts are in a bundle."""
    key = layout.part(layout.SHARED, bundle)
    try:
        with version.store.open(key, 0) as reader:
            return DataFile.front(reader.read)[0].nodes
    except KeyNotFound:
        raise CorruptError(f"{version.store.name}/{key}: the file is missing") from None
    except DAMAGED as error:
        raise type(error)(f"{version.store.name}/{key}: {error}") from None


def _join(
    change_set: ChangeSet,
    operation: str,
    staged: StagedVersion,
    start: int,
    stop: int,
    *,
    is_droppable: bool = False,
    gone: categories.PartValues | None = None,
) -> None:
    """Join row groups `start` to `stop` of a staged version into larger ones.

    The categories in `gone` are left out.
    """
    full = _full(change_set)
    columns = change_set.column_writers()
    size = merge_policy.rows_per_group(sum(staged.row_groups[start:stop]), full)
    with OpenColumns.whole(staged) as opened:
        portions = _portions(opened, start, stop, size)
        if gone is not None:
            portions = ((categories.dropped(staged, table, gone), rows) for table, rows in portions)
        groups, written = change_set.write(columns, row_groups(portions, size), is_whole=True)
    change_set.add(
        operation, Join.of(staged, start, stop, groups, written), is_droppable=is_droppable
    )


def _joinable(staged: StagedVersion, groups: Sequence[int]) -> list[int]:
    """Cut these row groups, in this order, into spans that can be joined; return their lengths.

    Row groups cannot be joined if a dictionary with codes of few bits has no room for the values of
    both. An attempt would rewrite them unchanged after each append.
    """
    cuts: set[int] = set()
    with OpenColumns.whole(staged) as opened:
        for index, field in enumerate(staged.schema):
            type_ = field.type
            if pa.types.is_dictionary(type_) and type_.index_type.bit_width <= NARROW_CODES:
                # One row of each row group has its dictionary.
                rows = [
                    opened.columns([index], [RowSpan(group, 0, 1)])[0].chunk(0)
                    for group in opened.ahead(groups, [index], rows=1)
                ]
                cuts.update(changes(pa.chunked_array(rows, type_)))
    return [stop - start for start, stop in pairwise(sorted({0, *cuts, len(groups)}))]


def _portions(opened: OpenColumns, start: int, stop: int, full: int) -> Iterator[Portion]:
    """Yield the rows of row groups `start` to `stop`, about `full` rows at a time."""
    staged = opened.version
    indices = range(len(staged.schema))
    waiting: list[RowSpan] = []
    rows = 0
    for group in range(start, stop):
        waiting.append(RowSpan(group, 0, staged.row_groups[group]))
        rows += waiting[-1].count
        if rows >= full or group + 1 == stop:
            opened.forget_before(waiting[0].group)
            arrays = opened.columns(indices, waiting)
            yield pa.Table.from_arrays(arrays, names=staged.schema.names), rows
            del arrays
            waiting, rows = [], 0


def _full(change_set: ChangeSet) -> int:
    """Return the rows of a full row group, computed from the bytes of the present rows."""
    staged = change_set.staged
    nbytes, _ = staged.facts.totals
    return rows_per_group(nbytes.tolist(), staged.head.rows, group_rows_of(change_set.storage))
