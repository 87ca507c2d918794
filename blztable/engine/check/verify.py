"""Verify: check a whole version, the manifest first, then all parts row group by row group.

Does not know how a part is decoded or compared (`engine/read`, `examine.py`).

Theory of operation. The calling thread goes through windows of row groups: one, or several small
ones. For each window three phases run as tasks of the pool: open all parts, decode all columns
together as a read does, compare the values with statistics and sizes. If decoding together fails,
each row group is decoded alone, then each part. Damage becomes a `Problem`, and the checks go on.
Memory is bounded by the decoded columns of one window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, repeat

import pyarrow as pa

from blztable.columns.types import one_array
from blztable.engine.check.bundles import bundle_problems
from blztable.engine.check.examine import ColumnCheck, PartCheck
from blztable.engine.read.columns import read_columns
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.pool import run
from blztable.engine.version.versions import Version, load
from blztable.errors import BlzError
from blztable.report import Problem, Report
from blztable.storage.store import KeyNotFound

# Limits of a window. Rows are limited too, because some rows take memory but no bytes in a file.
WINDOW_GROUPS = 256
WINDOW_BYTES = 16_000_000
WINDOW_ROWS = 1 << 20


def verify(version: Version, indices: Sequence[int], *, full: bool) -> Report:
    """Check columns of a version: everything if `full`, else manifest, fronts and trailers.

    Damage is reported; anything else (no memory, an interrupt) is raised.
    """
    head = version.head
    # Without the cached lines, so that they are read again.
    version = replace(version, _lines={})
    problems = list(_manifest(version))
    columns = [ColumnCheck(version, index) for index in indices]
    files: set[str] = set()
    chunks = nbytes = first = 0
    for groups in _windows(columns, head.row_groups):
        with OpenParts(version) as opened:
            rows = [head.row_groups[group] for group in groups]
            firsts = accumulate(rows, initial=first)
            by_group = [
                [PartCheck(one, one.parts, group, first) for one in columns if one.parts]
                for group, first in zip(groups, firsts, strict=False)
            ]
            parts = list(chain.from_iterable(by_group))
            run(partial(part.open, full, opened) for part in parts)
            if full:
                _read(opened, by_group, [RowSpan(*one) for one in zip(groups, repeat(0), rows)])
                run(part.compare for part in parts)
            for part in parts:
                problems += part.problems
                facts = part.facts
                if part.opened and part.opened.superchunk:
                    files.add(part.key)
                    chunks += part.chunks if full else 0
                    nbytes += facts.cbytes if full else facts.front_length + facts.trailer_length
            for group in sorted({one.group for one in parts if one.opened and one.opened.bundle}):
                start = first + sum(head.row_groups[groups[0] : group])
                bundle = opened.bundle(group)
                key, stop = bundle.reader.key, start + head.row_groups[group]
                files.add(key)
                chunks += len(bundle.sizes) if full else 0
                nbytes += bundle.facts.cbytes if full else bundle.nbytes_to_open
                for message in bundle_problems(bundle) if full else ():
                    problems.append(Problem(message, None, None, group, start, stop, key, True))
            first += sum(rows)
    for column in columns:
        problems += column.problems
    names = tuple(column.name for column in columns)
    problems.sort(key=_order)
    return Report(head.version, head.rows, names, full, len(files), chunks, nbytes, tuple(problems))


def _manifest(version: Version) -> Iterator[Problem]:
    """Yield the problems of the manifest, except those of its column lines."""
    head, columns = version.head, version.head.columns

    def problem(message: str, is_readable: bool) -> Problem:
        return Problem(message, None, None, None, 0, head.rows, version.key, is_readable)

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
        yield problem(str(error), False)


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


def _read(
    opened: OpenParts, by_group: Sequence[Sequence[PartCheck]], spans: Sequence[RowSpan]
) -> None:
    """Decode row groups together; if that fails, each alone; if that fails, each part alone."""
    parts = [[part for part in of_group if part.opened] for of_group in by_group]
    is_whole = all(map(len, parts)) and len(set(map(len, parts))) == 1
    if len(parts) > 1:
        if not is_whole or not _read_together(opened, parts, spans):
            for of_group, span in zip(parts, spans, strict=True):
                _read(opened, [of_group], [span])
    elif parts[0] and not _read_together(opened, parts, spans):
        for part in parts[0]:
            part.read_alone(opened)


def _read_together(
    opened: OpenParts, by_group: Sequence[Sequence[PartCheck]], spans: Sequence[RowSpan]
) -> bool:
    """Decode the same columns of several row groups; False if that fails."""
    columns = [part.column.index for part in by_group[0]]
    try:
        arrays = read_columns(opened, columns, spans)
        for place, array in enumerate(arrays):
            start = 0
            for parts, span in zip(by_group, spans, strict=True):
                parts[place].array = one_array(array.slice(start, span.count))
                start += span.count
    except BlzError:
        return False
    return True


def _order(problem: Problem) -> tuple[int, int, int]:
    index = -1 if problem.position is None else problem.position
    return index, problem.start, problem.stop
