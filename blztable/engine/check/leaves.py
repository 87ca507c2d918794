"""The leaves of a version, level by level: each is what the level above says of it, or a problem.

Knows nothing of data files.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.statistics.bounds import Zones, zones_of_groups
from blztable.engine.check.parts import CheckedNode, check_reading
from blztable.engine.version.facts import Run
from blztable.engine.version.named_files import Files, files_of_run
from blztable.engine.version.versions import Version
from blztable.errors import BlzError
from blztable.format import layout
from blztable.format.bounds import summary
from blztable.format.leaf import Leaf
from blztable.format.records import Array, Records
from blztable.report import Problem


@dataclass
class CheckedLeaf:
    """What is known of a leaf, or its row groups.

    Attributes
    ----------
    key
        The key of the leaf, "" for its row groups.
    group, first, rows
        How many row groups and stored rows lie before it, and how many stored rows it has.
    stored, bundles, deleted
        Of each row group the stored rows, the number of its bundle, and the words of deleted rows.
    records
        Of each node, by line, if they can be read.
    run
        The row groups.
    """

    key: str
    group: int
    first: int
    rows: int
    stored: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    bundles: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    deleted: Sequence[bytes] = ()
    records: dict[int, Records] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    run: Run | None = None

    def files(self, version: Version) -> Files:
        """Return the files of its row groups with their sizes; none if a record is damaged."""
        with suppress(BlzError):
            return {} if self.run is None else files_of_run(self.run, version.paths)
        return {}


def leaves_of(version: Version, nodes: Sequence[CheckedNode]) -> Iterator[CheckedLeaf]:
    """Yield what is known of each leaf, then its row groups, and of the tails alike.

    One that cannot be read has no row groups.
    """
    group = first = 0
    for run in version.facts.runs:
        yield from _below(version, nodes, run, "", group, first)
        group, first = group + run.count, first + int(run.groups["stored"].sum())


def _below(
    version: Version, nodes: Sequence[CheckedNode], run: Run, key: str, group: int, first: int
) -> Iterator[CheckedLeaf]:
    """Yield the leaves of level 0 below a run, which has a key if it is no tail."""
    rows = int(run.groups["stored"].sum())
    if run.level == 0:
        leaf = CheckedLeaf(
            "",
            group,
            first,
            rows,
            run.groups["stored"].astype(np.int64),
            run.groups["file"],
            run.words(),
            run=run,
        )
        for node in nodes:
            try:
                leaf.records[node.line] = run.records([node.line])
            except BlzError as error:
                leaf.problems.append(_problem(version, error, node, key, first, rows))
        yield leaf
        return
    firsts = first + np.cumsum(run.groups["stored"]) - run.groups["stored"]
    groups = group + np.cumsum(run.groups["groups"]) - run.groups["groups"]
    damaged: list[Problem] = []
    for node in nodes:
        try:
            run.records([node.line])
        except BlzError as error:
            damaged.append(_problem(version, error, node, key, first, rows))
    for entry in range(len(run)):
        own = layout.leaf(int(run.groups["file"][entry]))
        start, count = int(firsts[entry]), int(run.groups["stored"][entry])
        problems, damaged = damaged, []
        try:
            below = version.facts.below(run, entry)
        except BlzError as error:
            problems.append(_problem(version, error, None, own, start, count))
            yield CheckedLeaf(own, int(groups[entry]), start, count, problems=problems)
            continue
        for node in nodes:
            try:
                message = _belied(version, run, entry, below, node)
            except BlzError:
                # Both report their own damage.
                continue
            if message:
                problems.append(_problem(version, message, node, key, start, count))
        yield CheckedLeaf(own, int(groups[entry]), start, count, problems=problems)
        yield from _below(version, nodes, below, own, int(groups[entry]), start)


def _belied(version: Version, run: Run, entry: int, below: Run, node: CheckedNode) -> str:
    """Return what a run says of a node in a leaf below it, unless the leaf says the same."""
    leaf = Leaf(below.encoded())
    _, own = summary(leaf, 1, version.orders())
    own = own.of([node.line], [0])
    said = run.records([node.line]).of([0], [entry])
    for name in ("rows", "nbytes", "cbytes"):
        if said.parts[name] != own.parts[name]:
            return f"{said.parts[name][0]} {name} in a leaf of {own.parts[name][0]}"
    for name in ("nulls", "nans"):
        if said.pages[name] != own.pages[name]:
            return f"{said.pages[name][0]} {name} in a leaf of {own.pages[name][0]}"
    wide, narrow = zones_of_groups(node.type, said), zones_of_groups(node.type, own)
    return "" if _holds(wide, narrow) else "bounds that do not belong to the leaf"


def _holds(wide: Zones, narrow: Zones) -> bool:
    """True if the bounds of a zone lie within those of another, or are the same values."""
    if not narrow.values[0]:
        return True
    if not wide.values[0]:
        return False
    if wide.exact[0]:
        same = wide.lowest.equals(narrow.lowest) and wide.highest.equals(narrow.highest)
        return same and bool(narrow.exact[0])
    low = wide.lowest.null_count or _is_at_most(wide.lowest, narrow.lowest)
    high = wide.highest.null_count or _is_at_most(narrow.highest, wide.highest)
    return bool(low) and bool(high)


def _is_at_most(low: pa.Array, other: pa.Array) -> bool:
    """True if the value of an array of one is not above that of another."""
    if pa.types.is_decimal(low.type):
        # Arrow compares no decimals of negative scale.
        return bool(low[0].as_py() <= other[0].as_py())
    return bool(pc.less_equal(low, other)[0].as_py())


def _problem(
    version: Version,
    cause: str | BlzError,
    node: CheckedNode | None,
    key: str,
    first: int,
    rows: int,
) -> Problem:
    """Return a problem of a leaf; what another leaf says of it costs no row."""
    if isinstance(cause, BlzError):
        check_reading(cause)
    key = key or version.key
    message = str(cause).removeprefix(f"{version.store.name}/{key}: ")
    name, position = (None, None) if node is None else (node.name, node.position)
    is_readable = isinstance(cause, str)
    return Problem(message, name, position, None, first, first + rows, key, is_readable)
