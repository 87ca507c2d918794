"""Verify: check a whole version, the manifest and the leaves first, then the files of its parts.

Does not know how a part is decoded or compared (`engine/read`, `parts.py`).

Theory of operation. The version is read again, so nothing that is kept takes part. The calling
thread goes from leaf to leaf, and in each through windows of row groups: one, or several small
ones. For each window the records are compared with the types, and each data file with the records;
with `full`, all parts are decoded and compared with their page records, as tasks of the pool.
Damage becomes a `Problem`, and the checks go on. Memory is bounded by the decoded columns of one
window. A store that fetches is asked for all leaves at once, and for the files of windows ahead.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, groupby
from typing import NamedTuple

import numpy as np

from blztable.arrow.nested.assemble import rebuilt
from blztable.arrow.nested.nodes import Node
from blztable.engine.check.leaves import CheckedLeaf, leaves_of
from blztable.engine.check.parts import (
    CheckedNode,
    FileCheck,
    PartCheck,
    check_reading,
    checked_nodes,
    fits,
)
from blztable.engine.read.parts import OpenParts
from blztable.engine.run.ahead import one_by_one
from blztable.engine.run.pool import run
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version, read, why_behind
from blztable.errors import BlzError, CorruptError, StorageError
from blztable.format import layout
from blztable.format.deletions import unpack
from blztable.format.records import Records
from blztable.report import Problem, Report
from blztable.storage.store import ByteRange, KeyNotFound

# Limits of a window. Rows are limited too, because some rows take memory but no bytes in a file.
WINDOW_BYTES = 16_000_000
WINDOW_ROWS = 1 << 20


def verify(version: Version, indices: Sequence[int], *, full: bool) -> Report:
    """Check columns of a version: everything if `full`, else all but the chunks.

    Damage is reported; anything else (no memory, no permission, an interrupt) is raised.
    """
    head = version.head
    version, problems = _read_again(version)
    names = tuple(version.schema.field(index).name for index in indices)
    nodes = [node for index in indices for node in checked_nodes(version, index)]
    checked = _Checked(version, nodes, full)
    with version.facts.asked():
        windows = chain.from_iterable(map(checked.windows, leaves_of(version, nodes)))
        for window in one_by_one(version.store, windows, checked.wanted):
            checked.check(window)
    problems += checked.of_live_rows([*checked.problems, *checked.of_store()])
    problems.sort(key=_order)
    files = len(checked.files)
    return Report(
        head.version,
        head.rows,
        names,
        full,
        files,
        checked.chunks,
        checked.nbytes,
        tuple(problems),
    )


@dataclass
class _Checked:
    """What was checked so far. Rows are stored ones: numbers of rows are places in the parts."""

    version: Version
    nodes: Sequence[CheckedNode]
    full: bool
    problems: list[Problem] = field(default_factory=list)
    # The row group of each file, and its rows.
    files: dict[str, tuple[int | None, int, int]] = field(default_factory=dict)
    # The deleted rows of row groups.
    gone: list[np.ndarray] = field(default_factory=list)
    chunks: int = 0
    nbytes: int = 0

    def windows(self, leaf: CheckedLeaf) -> Iterator["_CheckedWindow"]:
        """Yield the row groups of a leaf of level 0, to be checked."""
        self.problems += leaf.problems
        if leaf.key:
            self.files[leaf.key] = None, leaf.first, leaf.first + leaf.rows
        stored = leaf.stored.tolist()
        firsts = [*accumulate(stored, initial=leaf.first)]
        self.gone += [
            unpack(words) + first
            for words, first in zip(leaf.deleted, firsts, strict=False)
            if words
        ]
        nodes = [
            (node, fits(node.type, leaf.records[node.line]))
            for node in self.nodes
            if node.line in leaf.records
        ]
        sizes = leaf.files(self.version) if self.version.store.fetches else {}
        for groups in _windows(leaf):
            parts = [
                self._part(leaf, node, all_fit, entry, firsts)
                for entry in groups
                for node, all_fit in nodes
            ]
            by_key: dict[tuple[str, int], list[PartCheck]] = {}
            for part in parts:
                part.compare_type()
                if part.key:
                    by_key.setdefault((part.key, part.group), []).append(part)
            files = [
                FileCheck(self.version, key, of_file, sizes.get(key))
                for (key, _), of_file in by_key.items()
            ]
            yield _CheckedWindow(parts, files)

    def wanted(self, window: "_CheckedWindow") -> tuple[list[ByteRange], bool]:
        """Return the ranges of files that the check of a window reads; those of chunks if full."""
        return [one for file in window.files for one in file.ranges(self.full)], not self.full

    def _part(
        self,
        leaf: CheckedLeaf,
        node: CheckedNode,
        all_fit: bool,
        entry: int,
        firsts: Sequence[int],
    ) -> PartCheck:
        records: Records = leaf.records[node.line].of([0], [entry])
        file, key = int(records.parts["file"][0]), ""
        if file:
            is_bundled = file == int(leaf.bundles[entry])
            key = layout.part(layout.SHARED if is_bundled else node.path, file)
        rows = firsts[entry + 1] - firsts[entry]
        group, first = leaf.group + entry, firsts[entry]
        return PartCheck(self.version, node, group, first, rows, records, key, all_fit)

    def check(self, window: "_CheckedWindow") -> None:
        """Check the parts of some row groups, and their files."""
        parts, files = window
        run(file.compare for file in files)
        if self.full:
            with OpenParts(self.version) as opened:
                # All at once; if a part is damaged, each one by itself.
                with suppress(BlzError):
                    lines = sorted({part.node.line for part in parts})
                    opened.describe(lines, sorted({part.group for part in parts}))
                run(partial(part.read, opened) for part in parts if part.is_readable)
            for _, of_group in groupby(parts, lambda part: part.group):
                _check_nested(self.version, list(of_group))
        for file in files:
            first = file.parts[0]
            if file.key in self.files:
                # Who reads both row groups is refused.
                first.note(CorruptError(f"row group {self.files[file.key][0]} has the same file"))
            self.files[file.key] = first.group, first.first, first.first + first.rows
            self.nbytes += file.nbytes
            if self.full:
                self.chunks += file.chunks
                self.nbytes += sum(int(part.records.parts["cbytes"][0]) for part in file.parts)
            # A file that is missing or not read is reported by each part that would be read.
            if file.is_readable or not self.full:
                self.problems += file.problems
        for part in parts:
            self.problems += part.problems

    def of_store(self) -> Iterator[Problem]:
        """Yield what the store says of the files of the version."""
        keys = [self.version.key, *sorted(self.files)] if self.full else []
        rows = self.version.facts.rows + self.version.deleted_rows
        try:
            for key, message in self.version.store.problems(keys):
                spec = self.files.get(key, (None, 0, rows))
                yield Problem(message, None, None, *spec, key or self.version.key, True)
        except StorageError as error:
            check_reading(error)
            yield Problem(str(error), None, None, None, 0, rows, "", False)

    def of_live_rows(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return problems of stored rows as problems of live rows."""
        if not self.gone:
            return list(problems)
        spans = [(problem.start, problem.stop) for problem in problems]
        ends = np.array(spans, np.int64).reshape(-1, 2)
        ends -= np.searchsorted(np.concatenate(self.gone), ends)
        return [
            replace(problem, start=start, stop=stop)
            for problem, (start, stop) in zip(problems, ends.tolist(), strict=True)
        ]


class _CheckedWindow(NamedTuple):
    """The parts and files of some row groups."""

    parts: Sequence[PartCheck]
    files: Sequence[FileCheck]


def _read_again(version: Version) -> tuple[Version, list[Problem]]:
    """Return the version as it is read anew, and the problems of its manifest.

    A staged version has none, so that of its base is checked.
    """
    if isinstance(version, StagedVersion):
        fresh, base = version.with_leaves_unread(), version.base
        return fresh, [] if base is None else _read_again(base)[1]
    head, store, problems = version.head, version.store, list[Problem]()

    def note(message: str, is_readable: bool) -> None:
        problems.append(Problem(message, None, None, None, 0, head.rows, version.key, is_readable))

    behind = why_behind(store)
    if behind:
        note(behind, True)
    try:
        # Nothing that is kept takes part.
        again = read(store, head.version)
        if again.head == head:
            return again, problems
        note("the manifest is not the one that was opened", False)
    except KeyNotFound:
        note("the manifest is missing", False)
    except BlzError as error:
        check_reading(error)
        note(str(error), False)
    return version, problems


def _windows(leaf: CheckedLeaf) -> Iterator[range]:
    """Yield the row groups of each window: one, or several small ones."""
    sizes = np.zeros(len(leaf.stored), np.int64)
    for records in leaf.records.values():
        sizes += records.parts["nbytes"].astype(np.int64)
    start = taken = rows = 0
    for entry, (more, nbytes) in enumerate(zip(leaf.stored.tolist(), sizes.tolist(), strict=True)):
        if entry > start and (taken + nbytes > WINDOW_BYTES or rows + more > WINDOW_ROWS):
            yield range(start, entry)
            start, taken, rows = entry, 0, 0
        taken, rows = taken + nbytes, rows + more
    if start < len(leaf.stored):
        yield range(start, len(leaf.stored))


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


def _order(problem: Problem) -> tuple[int, int, int, bool]:
    index = -1 if problem.position is None else problem.position
    return index, problem.start, problem.stop, problem.is_readable
