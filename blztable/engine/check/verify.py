"""Verify: check a whole version, the manifest and the leaves first, then the files of its parts.

Does not know how a part is decoded or compared (`engine/read`, `parts.py`).

Theory of operation. The version is read again, so nothing that is kept takes part. The calling
thread goes through windows of row groups: one, or several small ones. For each window the records
are compared with the types, and each data file with the records; with `full`, all parts are decoded
and compared with their page records, as tasks of the pool. Damage becomes a `Problem`, and the
checks go on. Memory is bounded by the decoded columns of one window.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby

import numpy as np

from blztable.arrow.nested.assemble import rebuilt
from blztable.arrow.nested.nodes import Node
from blztable.engine.check.parts import (
    CheckedNode,
    FileCheck,
    PartCheck,
    check_reading,
    checked_nodes,
)
from blztable.engine.read.parts import OpenParts
from blztable.engine.run.pool import run
from blztable.engine.version.versions import Version, load, why_behind
from blztable.errors import BlzError, CorruptError, StorageError
from blztable.format import layout
from blztable.format.deletions import Deleted, unpack
from blztable.format.records import Records
from blztable.report import Problem, Report
from blztable.storage.store import KeyNotFound

# Limits of a window. Rows are limited too, because some rows take memory but no bytes in a file.
WINDOW_GROUPS = 256
WINDOW_BYTES = 16_000_000
WINDOW_ROWS = 1 << 20
_LEAF = re.compile(r"meta/leaf/[0-9]{20}")


def verify(version: Version, indices: Sequence[int], *, full: bool) -> Report:
    """Check columns of a version: everything if `full`, else all but the chunks.

    Damage is reported; anything else (no memory, no permission, an interrupt) is raised.
    """
    head = version.head
    version, problems = _read_again(version)
    names = tuple(version.schema.field(index).name for index in indices)
    files: dict[str, tuple[int | None, int, int]] = {}
    chunks = nbytes = 0
    stored: Sequence[int] = ()
    deleted: Deleted = ()
    try:
        stored, deleted = version.stored_rows, version.deleted
    except BlzError as error:
        problems.append(_of_leaf(version, error, None, None, 0, head.rows))
    # Parts are checked with their deleted rows: row numbers are places in the parts.
    nodes = [node for index in indices for node in checked_nodes(version, index)]
    found: list[Problem] = []
    firsts = [*accumulate(stored, initial=0)]
    for groups in _windows(version, nodes, stored):
        parts, lost = _parts(version, nodes, groups, firsts)
        found += lost
        by_key: dict[str, list[PartCheck]] = {}
        for part in parts:
            part.compare_type()
            if part.key:
                by_key.setdefault(part.key, []).append(part)
        checked = [FileCheck(version, key, of_file) for key, of_file in by_key.items()]
        run(one.compare for one in checked)
        if full:
            with OpenParts(version) as opened:
                run(partial(part.read, opened) for part in parts if part.is_readable)
            for _, of_group in groupby(parts, lambda part: part.group):
                _check_nested(version, list(of_group))
        for file in checked:
            first = file.parts[0]
            files[file.key] = first.group, first.first, first.first + first.rows
            chunks += file.chunks if full else 0
            nbytes += file.nbytes
            if full:
                nbytes += sum(int(part.records.parts["cbytes"][0]) for part in file.parts)
            # A missing file is reported by each part that would be read.
            if not (full and file.is_missing):
                found += file.problems
        for part in parts:
            found += part.problems
    found += _problems_of_store(version, files if full else {}, sum(stored))
    problems += _of_live_rows(found, stored, deleted)
    problems.sort(key=_order)
    return Report(head.version, head.rows, names, full, len(files), chunks, nbytes, tuple(problems))


def _read_again(version: Version) -> tuple[Version, list[Problem]]:
    """Return the version as it is read anew, and the problems of its manifest."""
    head, store, found = version.head, version.store, list[Problem]()

    def note(message: str, is_readable: bool) -> None:
        found.append(Problem(message, None, None, None, 0, head.rows, version.key, is_readable))

    behind = why_behind(store)
    if behind:
        note(behind, True)
    try:
        again = load(store, head.version)
        if again.head == head:
            return again, found
        note("the manifest is not the one that was opened", False)
    except KeyNotFound:
        note("the manifest is missing", False)
    except BlzError as error:
        check_reading(error)
        note(str(error), False)
    return version, found


def _of_leaf(
    version: Version,
    error: BlzError,
    node: CheckedNode | None,
    group: int | None,
    start: int,
    stop: int,
) -> Problem:
    """Return the problem that the records of row groups cannot be read."""
    check_reading(error)
    named = _LEAF.search(str(error))
    key = named[0] if named else version.key
    message = str(error).removeprefix(f"{version.store.name}/{key}: ")
    name, position = (None, None) if node is None else (node.name, node.position)
    return Problem(message, name, position, group, start, stop, key, False)


def _parts(
    version: Version, nodes: Sequence[CheckedNode], groups: range, firsts: Sequence[int]
) -> tuple[list[PartCheck], list[Problem]]:
    """Return the parts of row groups, group by group, and the problems of their records."""
    found: dict[int, list[PartCheck]] = {group: [] for group in groups}
    problems: list[Problem] = []
    bundles = version.bundles
    for node in nodes:
        for some, records in _records(version, node, groups):
            if isinstance(records, BlzError):
                start, stop = firsts[some[0]], firsts[some[-1] + 1]
                group = some[0] if len(some) == 1 else None
                problems.append(_of_leaf(version, records, node, group, start, stop))
                continue
            for entry, group in enumerate(some):
                one = records if len(some) == 1 else records.of([0], [entry])
                file, key = int(one.parts["file"][0]), ""
                if file:
                    is_bundled = bool(bundles) and bundles[group] == file
                    key = layout.part(layout.SHARED if is_bundled else node.path, file)
                first, rows = firsts[group], firsts[group + 1] - firsts[group]
                found[group].append(PartCheck(version, node, group, first, rows, one, key))
    return [part for of_group in found.values() for part in of_group], problems


def _records(
    version: Version, node: CheckedNode, groups: range
) -> Iterator[tuple[range, Records | BlzError]]:
    """Yield the records of a node in row groups; where they cannot be read, in half of them."""
    try:
        yield groups, version.records([node.line], list(groups))
    except BlzError as error:
        if len(groups) == 1:
            yield groups, error
            return
        middle = len(groups) // 2
        yield from _records(version, node, groups[:middle])
        yield from _records(version, node, groups[middle:])


def _windows(
    version: Version, nodes: Sequence[CheckedNode], stored: Sequence[int]
) -> Iterator[range]:
    """Yield the row groups of each window: one, or several small ones."""
    sizes = np.zeros(len(stored), np.int64)
    for node in nodes:
        try:
            sizes += version.records([node.line]).parts["nbytes"].astype(np.int64)
        except BlzError:
            # The records of single row groups tell which of them are damaged.
            sizes += WINDOW_BYTES
    start = taken = rows = 0
    for group, (more, nbytes) in enumerate(zip(stored, sizes.tolist(), strict=True)):
        is_full = taken + nbytes > WINDOW_BYTES or rows + more > WINDOW_ROWS
        if group > start and (is_full or group - start == WINDOW_GROUPS):
            yield range(start, group)
            start, taken, rows = group, 0, 0
        taken, rows = taken + nbytes, rows + more
    if start < len(stored):
        yield range(start, len(stored))


def _check_nested(version: Version, parts: Sequence[PartCheck]) -> None:
    """Put the nodes of nested columns together, in one row group."""
    for position, of_column in groupby(parts, lambda part: part.node.position):
        nodes = list(of_column)
        arrays = [part.array for part in nodes if part.array is not None]
        root = Node.of(version.schema.field(position).type)
        if root.children and len(arrays) == root.count:
            try:
                rebuilt(root, iter(arrays))
            except CorruptError as error:
                nodes[0].note(error)


def _problems_of_store(
    version: Version, files: dict[str, tuple[int | None, int, int]], rows: int
) -> Iterator[Problem]:
    """Yield what the store says of the files of the version."""
    keys = [version.key, *sorted(files)] if files else []
    try:
        for key, message in version.store.problems(keys):
            spec = files.get(key, (None, 0, rows))
            yield Problem(message, None, None, *spec, key or version.key, True)
    except StorageError as error:
        check_reading(error)
        yield Problem(str(error), None, None, None, 0, rows, "", False)


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


def _order(problem: Problem) -> tuple[int, int, int]:
    index = -1 if problem.position is None else problem.position
    return index, problem.start, problem.stop
