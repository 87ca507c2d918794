"""Scan: which rows a filter leaves, by reading as little as that takes; and columns of those rows.

On levels: the manifest's lines say of which row groups nothing can be left, and of which all of
it; the zone maps in the trailers say the same of pages. What they leave open is read: the parts of
a conjunction one after the other, the cheapest and most selective first, and each only in the pages
where those before it left a row. Columns that are only returned are read in the pages with a hit.

Nothing is written here, and what an expression means is for `filters` and `pruning` to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns import bounds
from blztable.columns.bounds import Runs
from blztable.engine import filters
from blztable.engine.pages import Picked, Span
from blztable.engine.parts import OpenParts
from blztable.engine.pruning import Pruner
from blztable.engine.read import read_columns
from blztable.engine.terms import Call, conjuncts, tree
from blztable.engine.threads import run
from blztable.engine.versions import Version
from blztable.errors import CorruptError
from blztable.format.statistics import Statistics

# Rows that one thread looks at at a time, if pages are not larger.
MORSEL_ROWS = 1 << 19
# The share of rows that a comparison leaves, where nothing else is known.
_LEAVES = {"equal": 0.02, "is_in": 0.05, "starts_with": 0.05, "is_null": 0.1}
_LEAVES_ELSE = 0.4

# Rows that are left of a row group, one after another or some of them.
Left = Span | Picked


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a conjunction: what must be true too."""

    expression: pc.Expression
    # The columns it is evaluated from.
    positions: tuple[int, ...]
    names: tuple[str, ...]
    pruner: Pruner


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of which some may be left, a page or a row group each, in the order of the rows."""

    groups: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    # By step and block: whether the step has to be evaluated there.
    open: np.ndarray

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, chosen: np.ndarray | slice) -> "Blocks":
        """Some of them."""
        return Blocks(
            self.groups[chosen], self.starts[chosen], self.stops[chosen], self.open[:, chosen]
        )

    @property
    def rows(self) -> np.ndarray:
        """Rows of each."""
        return self.stops - self.starts

    @classmethod
    def joined(cls, parts: Sequence["Blocks"]) -> "Blocks":
        """Those of several."""
        return cls(
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.stops for part in parts]),
            np.concatenate([part.open for part in parts], axis=1),
        )

    def spans(self) -> list[Span]:
        """Their rows, those of neighbours together."""
        cuts = np.flatnonzero(
            (self.groups[1:] != self.groups[:-1]) | (self.starts[1:] != self.stops[:-1])
        )
        firsts, lasts = np.append(0, cuts + 1), np.append(cuts, -1)
        return [
            Span(group, start, stop)
            for group, start, stop in zip(
                self.groups[firsts].tolist(),
                self.starts[firsts].tolist(),
                self.stops[lasts].tolist(),
                strict=True,
            )
        ]


class Scan:
    """A filter over one version."""

    def __init__(self, version: Version, where: object) -> None:
        """Find out which columns it needs; raises what `filters.check` does."""
        expression = filters.as_expression(where)
        schema = version.schema
        filters.check(expression, schema)
        steps = [_step(part, schema) for part in conjuncts(expression)]
        self.version = version
        self.steps = sorted(steps, key=partial(_rank, version))
        self._known = {
            position: _of_groups(version, position)
            for step in steps
            for position in step.pruner.columns
        }
        # Of each row group, and of each step: what is to be told from the manifest.
        self.some, self.open = self._judge(len(version.head.row_groups), self._known)

    @property
    def positions(self) -> list[int]:
        """The columns that the filter is evaluated from."""
        return sorted({position for step in self.steps for position in step.positions})

    @property
    def is_decided(self) -> bool:
        """Whether the manifest tells it of all row groups."""
        return not self.open[:, self.some].any()

    def within(self, wanted: Sequence[Span]) -> list[Span]:
        """The rows of those row groups in which some may be left."""
        return [span for span in wanted if self.some[span.group]]

    def blocks(self, wanted: Sequence[Span], parts: OpenParts) -> Blocks:
        """The rows that fronts and trailers, too, leave of these."""
        given = self.within(wanted)
        paged = [self._page_rows(span.group) for span in given]
        blocks = _blocks(given, paged, self.open)
        there = np.repeat([rows is not None for rows in paged], _counts(given, paged))
        if there.any():
            known = self._known_of_pages(blocks[there], parts)
            some, is_open = self._judge(int(there.sum()), known)
            blocks.open[:, there] = is_open
            there[there] = ~some
            blocks = blocks[~there]
        return blocks

    def left(self, wanted: Sequence[Span], parts: OpenParts) -> list[Left]:
        """The rows for which the filter is true, of these; in their order."""
        if not self.within(wanted):
            return []
        blocks = self.blocks(wanted, parts)
        morsels = list(_morsels(blocks, self._seams(blocks)))
        found: list[list[Left]] = [[] for _ in morsels]

        def look(number: int) -> None:
            found[number] = self._evaluated(morsels[number], parts)

        run(partial(look, number) for number in range(len(morsels)))
        return [left for lefts in found for left in lefts]

    def _evaluated(self, blocks: Blocks, parts: OpenParts) -> list[Left]:
        """The rows left of some blocks, after the steps that are open there."""
        offsets = np.cumsum(np.append(0, blocks.rows))
        # Of each row; None while nothing was evaluated.
        alive: np.ndarray | None = None
        # Whether a row of the block is left.
        has_left = np.ones(len(blocks), np.bool_)
        for number, step in enumerate(self.steps):
            chosen = blocks.open[number] & has_left
            if not chosen.any():
                continue
            spans = blocks[chosen].spans()
            columns = read_columns(self.version, step.positions, spans, parts=parts)
            rows = int(blocks.rows[chosen].sum())
            true = filters.mask(step.expression, dict(zip(step.names, columns, strict=True)), rows)
            if chosen.all():
                alive = true if alive is None else alive & true
            else:
                alive = np.ones(offsets[-1], np.bool_) if alive is None else alive
                alive[np.repeat(chosen, blocks.rows)] &= true
            has_left = np.logical_or.reduceat(alive, offsets[:-1])
        if alive is None:
            return list(blocks.spans())
        places = np.flatnonzero(alive)
        block = np.searchsorted(offsets, places, "right") - 1
        rows_left = places + (blocks.starts - offsets[:-1])[block]
        groups = blocks.groups[block]
        cuts = np.flatnonzero(np.diff(groups)) + 1
        return [
            Picked(int(blocks.groups[block[first]]), rows)
            for first, rows in zip([0, *cuts.tolist()], np.split(rows_left, cuts), strict=True)
            if len(rows)
        ]

    def _judge(self, count: int, known: Mapping[int, Runs]) -> tuple[np.ndarray, np.ndarray]:
        """Of so many runs: whether a row may be left; and by step, whether it is open."""
        some = np.ones(count, np.bool_)
        is_open = np.ones((len(self.steps), count), np.bool_)
        for number, step in enumerate(self.steps):
            if step.pruner.columns:
                verdict = step.pruner.judge(count, known)
                some &= verdict.some
                is_open[number] = ~verdict.every
        return some, is_open

    def _page_rows(self, group: int) -> int | None:
        """The rows of the smallest pages whose statistics help; None where there are no more."""
        sizes = [
            facts.page_rows[group]
            for facts in (self.version.column(position).facts for position in self._known)
            if facts.page_rows[group] < facts.rows[group]
        ]
        return min(sizes, default=None)

    def _seams(self, blocks: Blocks) -> np.ndarray:
        """Whether a block begins with a page of all columns, so that no page is decoded twice."""
        groups, which = np.unique(blocks.groups, return_inverse=True)
        facts = [self.version.column(position).facts for position in self.positions]
        largest = [max((one.page_rows[group] for one in facts), default=1) for group in groups]
        page = blocks.starts // np.array(largest, np.int64)[which]
        return (np.diff(blocks.groups, prepend=-1) != 0) | (np.diff(page, prepend=-1) != 0)

    def _known_of_pages(self, blocks: Blocks, parts: OpenParts) -> dict[int, Runs]:
        """What zone maps say of the pages in which these blocks are."""
        groups, firsts = np.unique(blocks.groups, return_index=True)
        known: dict[int, list[Runs]] = {position: [] for position in self._known}
        opened = [(position, int(group)) for group in groups for position in known]
        run(partial(_open, parts, *one) for one in opened)
        for group, starts in zip(groups.tolist(), np.split(blocks.starts, firsts[1:]), strict=True):
            for position, runs in known.items():
                part = parts.open(position, group)
                of_pages = part.zone_map()
                if of_pages is None:
                    runs.append(self._known[position].take(np.full(len(starts), group)))
                else:
                    type_ = self.version.schema.field(position).type
                    with part.blame():
                        found = _runs(type_, of_pages, part.rows_of_pages)
                    runs.append(found.take(starts // part.page_rows))
        return {position: Runs.joined(runs) for position, runs in known.items()}


def _open(parts: OpenParts, position: int, group: int) -> None:
    parts.open(position, group)


def _step(expression: pc.Expression, schema: pa.Schema) -> Step:
    positions = filters.positions(expression, schema)
    names = tuple(schema.field(position).name for position in positions)
    return Step(expression, positions, names, Pruner(expression, schema))


def _rank(version: Version, step: Step) -> float:
    """What a step costs for each row that it spares those after it."""
    head = version.head
    row_bytes = sum(head.columns.nbytes[position] for position in step.positions) / (head.rows or 1)
    term = tree(step.expression)
    leaves = _LEAVES.get(term.function, _LEAVES_ELSE) if isinstance(term, Call) else _LEAVES_ELSE
    return row_bytes / (1 - leaves)


def _of_groups(version: Version, position: int) -> Runs:
    """What the manifest says of a column's row groups."""
    parts, type_ = version.column(position), version.schema.field(position).type
    try:
        return _runs(type_, parts.statistics, parts.facts.rows)
    except CorruptError as error:
        name = version.schema.field(position).name
        raise CorruptError(f"{version.store.name}, column {name!r}: {error}") from None


def _runs(type_: pa.DataType, known: Statistics, rows: Sequence[int]) -> Runs:
    return bounds.runs(type_, rows, known.nulls, known.nans, known.lowest, known.highest)


def _counts(given: Sequence[Span], paged: Sequence[int | None]) -> list[int]:
    """The blocks of each span."""
    return [
        1 if rows is None else -(-span.stop // rows) - span.start // rows
        for span, rows in zip(given, paged, strict=True)
    ]


def _blocks(given: Sequence[Span], paged: Sequence[int | None], is_open: np.ndarray) -> Blocks:
    """The pages of so many rows, or all rows, of each span."""
    counts = np.array(_counts(given, paged), np.int64)
    which = np.repeat(np.arange(len(given)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins, ends = np.array([(span.start, span.stop) for span in given], np.int64).reshape(-1, 2).T
    sizes = np.array([rows or span.stop for span, rows in zip(given, paged, strict=True)], np.int64)
    starts = (begins // sizes)[which] * sizes[which] + number * sizes[which]
    groups = np.array([span.group for span in given], np.int64)[which]
    return Blocks(
        groups,
        np.maximum(starts, begins[which]),
        np.minimum(starts + sizes[which], ends[which]),
        is_open[:, groups],
    )


def _morsels(blocks: Blocks, seams: np.ndarray) -> Iterator[Blocks]:
    """The blocks, so many at a time as one thread looks at; cut at seams only."""
    if not len(blocks):
        return
    before = np.cumsum(blocks.rows) - blocks.rows
    number = before[seams][np.cumsum(seams) - 1] // MORSEL_ROWS
    cuts = np.flatnonzero(np.diff(number)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(blocks)]):
        yield blocks[first:last]
