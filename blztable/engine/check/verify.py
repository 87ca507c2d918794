"""Verify: check a whole version, the manifest first, then all parts row group by row group.

Does not know how a part is decoded or compared (`engine/read`, `usage.py`).

Theory of operation. The calling thread goes through windows of row groups: one, or several small
ones. For each window three phases run as tasks of the pool: open all parts, decode all columns
together as a read does, compare the values with statistics and sizes. If decoding together fails,
each row group is decoded alone, then each part. Damage becomes a `Problem`, and the checks go on.
Memory is bounded by the decoded columns of one window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, groupby

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.assemble import rebuilt
from blztable.arrow.nested.nodes import Node
from blztable.columns.types import one_array
from blztable.engine.check.usage import ColumnCheck, PartCheck, check_reading
from blztable.engine.read.columns import read_nodes
from blztable.engine.read.parts import OpenBundle, OpenParts, check_digest_behind
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.pool import run
from blztable.engine.version.versions import Version, load, why_behind
from blztable.errors import BlzError, CorruptError, StorageError
from blztable.format.deletions import Deleted, unpack
from blztable.report import Problem, Report
from blztable.storage.store import KeyNotFound

# Limits of a window. Rows are limited too, because some rows take memory but no bytes in a file.
WINDOW_GROUPS = 256
WINDOW_BYTES = 16_000_000
WINDOW_ROWS = 1 << 20


def verify(version: Version, indices: Sequence[int], *, full: bool) -> Report:
    """Check columns of a version: everything if `full`, else manifest, fronts and trailers.

    Damage is reported; anything else (no memory, no permission, an interrupt) is raised.
    """
    # Without the cached lines, so that they are read again.
    version = replace(version, _lines={}, _read_ahead={})
    of_manifest, live = list(_manifest(version)), version
    # Parts are checked with their deleted rows: row numbers are places in the parts.
    version = version.with_deleted_rows()
    head, problems = version.head, list[Problem]()
    columns = [
        ColumnCheck(version, line, index, has_rows_of_table=has_rows)
        for index in indices
        for line, has_rows in zip(
            version.nodes(index),
            Node.of(version.schema.field(index).type).share_rows(),
            strict=True,
        )
    ]
    # The row group of each file, and its rows.
    files: dict[str, tuple[int | None, int, int]] = {}
    chunks = nbytes = first = 0
    for groups in _windows(columns, version.row_groups):
        with OpenParts(version) as opened:
            rows = [version.row_groups[group] for group in groups]
            firsts = accumulate(rows, initial=first)
            by_group = [
                [PartCheck(one, one.parts, group, first) for one in columns if one.parts]
                for group, first in zip(groups, firsts, strict=False)
            ]
            parts = list(chain.from_iterable(by_group))
            run(partial(part.open, full, opened) for part in parts)
            if full:
                _read(opened, by_group)
                run(part.compare for part in parts)
                for of_group in by_group:
                    _check_nested(version, of_group)
            for part in parts:
                problems += part.problems
                meta = part.meta
                if part.opened and part.opened.superchunk:
                    stop = part.first + version.row_groups[part.group]
                    files[part.key] = part.group, part.first, stop
                    chunks += part.chunks if full else 0
                    nbytes += meta.cbytes if full else meta.front_length + meta.trailer_length
            for group in sorted({one.group for one in parts if one.opened and one.opened.bundle}):
                start = first + sum(version.row_groups[groups[0] : group])
                bundle = opened.bundle(group)
                key, stop = bundle.reader.key, start + version.row_groups[group]
                files[key] = group, start, stop
                chunks += len(bundle.sizes) if full else 0
                nbytes += bundle.meta.cbytes if full else bundle.nbytes_to_open
                for message in _bundle_problems(bundle) if full else ():
                    problems.append(Problem(message, None, None, group, start, stop, key, True))
            first += sum(rows)
    try:
        keys = [version.key, *sorted(files)] if full else []
        for key, message in version.store.problems(keys):
            spec = files.get(key, (None, 0, head.rows))
            problems.append(Problem(message, None, None, *spec, key or version.key, True))
    except StorageError as error:
        check_reading(error)
        problems.append(Problem(str(error), None, None, None, 0, head.rows, "", False))
    for column in columns:
        problems += column.problems
    problems = [*of_manifest, *_of_live_rows(problems, version.row_groups, live.deleted)]
    names = tuple(version.schema.field(index).name for index in indices)
    problems.sort(key=_order)
    return Report(
        head.version, live.head.rows, names, full, len(files), chunks, nbytes, tuple(problems)
    )


def _manifest(version: Version) -> Iterator[Problem]:
    """Yield the problems of the manifest and of what names it, except those of column lines."""
    head, columns = version.head, version.head.columns

    def problem(message: str, is_readable: bool) -> Problem:
        return Problem(message, None, None, None, 0, head.rows, version.key, is_readable)

    behind = why_behind(version.store)
    if behind:
        yield problem(behind, True)
    try:
        if load(version.store, head.version).head != head:
            yield problem("the manifest is not the one that was opened", False)
        elif columns.offsets:
            end = columns.offsets[-1] + columns.lengths[-1] + 1
            with version.store.open(version.key) as reader:
                if reader.size > end:
                    yield problem(f"{reader.size - end} bytes after the last line", True)
    except KeyNotFound:
        yield problem("the manifest is missing", False)
    except BlzError as error:
        check_reading(error)
        yield problem(str(error), False)


def _of_live_rows(
    problems: Sequence[Problem], stored_rows: Sequence[int], deleted: Deleted
) -> list[Problem]:
    """Return problems of stored rows as problems of live rows."""
    if not deleted:
        return list(problems)
    firsts = accumulate(stored_rows, initial=0)
    gone = [unpack(one) + first for one, first in zip(deleted, firsts, strict=False)]
    ends = np.array([(one.start, one.stop) for one in problems], np.int64).reshape(-1, 2)
    ends -= np.searchsorted(np.concatenate(gone), ends)
    return [
        replace(one, start=start, stop=stop)
        for one, (start, stop) in zip(problems, ends.tolist(), strict=True)
    ]


def _windows(columns: Sequence[ColumnCheck], row_groups: Sequence[int]) -> Iterator[range]:
    """Yield the row groups of each window: one, or several small ones."""
    streams = [sizes for one in columns if one.parts for sizes in one.parts.streams.values()]
    # In a joint read, an all-null part may get the dictionary of its neighbour.
    most = 1 if any(pa.types.is_dictionary(one.type) for one in columns) else WINDOW_GROUPS
    start = taken = rows = 0
    for group, more in enumerate(row_groups):
        nbytes = sum(sizes[group] for sizes in streams)
        is_full = taken + nbytes > WINDOW_BYTES or rows + more > WINDOW_ROWS
        if group > start and (is_full or group - start == most):
            yield range(start, group)
            start, taken, rows = group, 0, 0
        taken, rows = taken + nbytes, rows + more
    if start < len(row_groups):
        yield range(start, len(row_groups))


def _check_nested(version: Version, parts: Sequence[PartCheck]) -> None:
    """Put the nodes of nested columns together, in one row group."""
    for position, of_column in groupby(parts, lambda part: part.column.position):
        nodes = list(of_column)
        arrays = [part.array for part in nodes if part.array is not None]
        root = Node.of(version.schema.field(position).type)
        if root.children and len(arrays) == root.count:
            try:
                rebuilt(root, iter(arrays))
            except CorruptError as error:
                nodes[0].note(error)


def _read(opened: OpenParts, by_group: Sequence[Sequence[PartCheck]]) -> None:
    """Decode row groups together; if that fails, each alone; if that fails, each part alone."""
    parts = [[part for part in of_group if part.opened] for of_group in by_group]
    is_whole = all(map(len, parts)) and len(set(map(len, parts))) == 1
    if len(parts) > 1:
        if not is_whole or not _read_together(opened, parts):
            for of_group in parts:
                _read(opened, [of_group])
    elif parts[0] and not _read_together(opened, parts):
        for part in parts[0]:
            part.read_alone(opened)


def _read_together(opened: OpenParts, by_group: Sequence[Sequence[PartCheck]]) -> bool:
    """Decode the same nodes of several row groups; False if that fails."""
    nodes = list(zip(*by_group, strict=True))
    spans = {
        parts[0].column.index: [RowSpan(part.group, 0, part.meta.rows) for part in parts]
        for parts in nodes
    }
    try:
        arrays = read_nodes(opened, spans)
        for parts in nodes:
            array, start = arrays[parts[0].column.index], 0
            for part in parts:
                part.array = one_array(array.slice(start, part.meta.rows))
                start += part.meta.rows
    except BlzError:
        return False
    return True


def _order(problem: Problem) -> tuple[int, int, int]:
    index = -1 if problem.position is None else problem.position
    return index, problem.start, problem.stop


def _bundle_problems(bundle: OpenBundle) -> Iterator[str]:
    """Yield a message for each problem of an open bundle that changes no row which is read.

    These are the checksums behind its chunks, and that no two streams share bytes.
    """
    superchunk, reader = bundle.superchunk, bundle.reader
    for chunk in range(len(superchunk.offsets) - 1):
        try:
            check_digest_behind(superchunk, reader, chunk)
        except CorruptError as error:
            yield f"chunk {chunk}: {error}"
    entries = bundle.directory.entries
    held = np.sort(entries[entries["nbytes"] > 0], order=["chunk", "start"])
    begins = held["chunk"].astype(np.int64) << 32 | held["start"]
    for entry in np.flatnonzero(begins[1:] < begins[:-1] + held["nbytes"][:-1]).tolist():
        chunk, start = (int(held[name][entry + 1]) for name in ("chunk", "start"))
        yield f"the stream at byte {start} of chunk {chunk} overlaps another one"
