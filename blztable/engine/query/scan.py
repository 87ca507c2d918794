"""Scan: which rows a filter leaves, by reading as little as that takes.

On levels: the manifest's lines say of which row groups nothing can be left, and of which all of
it; the zone maps in the trailers say the same of pages. What they leave open is read: the steps of
a conjunction one after the other, the cheapest and most selective first, and each only in the
pages where those before it left a row.

What an expression means is for `filters` and `pruning` to say; columns that are only returned are
read elsewhere, when it is known which rows are left.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.statistics import bounds
from blztable.columns.statistics.bounds import Runs
from blztable.engine.query import blocks as cutting
from blztable.engine.query import expressions
from blztable.engine.query.blocks import Blocks
from blztable.engine.query.expression_tree import Call, Term, names, parts
from blztable.engine.query.morsel import Found, Morsel, Step
from blztable.engine.query.pruning import Pruner
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.pool import run
from blztable.engine.run.tasks import batches
from blztable.engine.version.versions import Version
from blztable.errors import CorruptError, SchemaError
from blztable.format.line import NO_FILE

# The share of rows that a comparison leaves, where nothing else is known.
_LEAVES = {"equal": 0.02, "is_in": 0.05, "starts_with": 0.05, "is_null": 0.1}
_LEAVES_ELSE = 0.4


class Scan:
    """A filter over one version."""

    def __init__(self, version: Version, where: object) -> None:
        """Find out which columns it needs; raises what `filters.check` does."""
        expression = expressions.as_expression(where, version.schema)
        expressions.check_type(expression, version.schema)
        self.version = version
        steps = list(_steps(expression, version.schema))
        self.steps = sorted(steps, key=partial(_rank, version)) if len(steps) > 1 else steps
        self._expression = expression
        self._known = {
            position: _of_groups(version, position)
            for step in self.steps
            for position in step.pruner.columns
        }
        # Of each row group, and by step: what the manifest tells.
        self.some, self.open = self._judge(len(version.head.row_groups), self._known)
        # Of each row group, the rows of the pages that may tell more; 0 where they do not.
        self._pages = {position: self._paged(position) for position in self._known}

    @property
    def positions(self) -> list[int]:
        """The columns that the filter is evaluated from."""
        return sorted({position for step in self.steps for position in step.positions})

    @property
    def is_decided(self) -> bool:
        """Whether the manifest tells it of all row groups."""
        return not self.open[:, self.some].any()

    def within(self, wanted: Sequence[RowSpan]) -> list[RowSpan]:
        """The rows of those row groups in which some may be left."""
        return [span for span in wanted if self.some[span.group]]

    def find(
        self, wanted: Sequence[RowSpan], parts: OpenParts, returned: Sequence[int] = ()
    ) -> Found:
        """The rows left of these, and these columns of them."""
        morsels = list(cutting.morsels(self.blocks(wanted, parts)))
        found: list[Found] = [Found([], {})] * len(morsels)

        def look(number: int) -> None:
            found[number] = self._left(morsels[number], parts).found(returned)

        run(partial(look, number) for number in range(len(morsels)))
        types = self.version.schema.types
        columns = {
            position: pa.chunked_array(
                [chunk for one in found for chunk in one.columns[position].chunks], types[position]
            )
            for position in returned
        }
        return Found([left for one in found for left in one.left], columns)

    def _left(self, blocks: Blocks, parts: OpenParts) -> Morsel:
        """The blocks after all steps; after the whole filter where a step cannot be evaluated."""
        try:
            return _applied(self.steps, blocks, parts)
        except SchemaError as error:
            failed = error
        # Arrow leaves out what cannot change the result, as y in `false and y`: the whole filter
        # may have a value where a part of it fails on its own.
        whole = _step(self._expression, self.positions, self.version.schema)
        is_open = np.logical_or.reduce(blocks.open, axis=0, keepdims=True)
        try:
            return _applied([whole], replace(blocks, open=is_open), parts)
        except SchemaError:
            # The part that failed says more than the whole.
            raise failed from None

    def blocks(self, wanted: Sequence[RowSpan], parts: OpenParts) -> Blocks:
        """The rows that fronts and trailers, too, leave of these."""
        given = self.within(wanted)
        page_rows = [self._page_rows(span.group) for span in given]
        blocks, are_pages = cutting.cut(given, page_rows, self.open)
        if not are_pages.any():
            return blocks
        known = self._known_of_pages(blocks[are_pages], parts)
        some, is_open = self._judge(int(are_pages.sum()), known)
        blocks.open[:, are_pages] = is_open
        kept = ~are_pages
        kept[are_pages] = some
        return blocks[kept]

    def _judge(self, count: int, known: Mapping[int, Runs]) -> tuple[np.ndarray, np.ndarray]:
        """Of so many runs: whether a row may be left; and by step, whether it is open."""
        some = np.ones(count, np.bool_)
        is_open = np.ones((len(self.steps), count), np.bool_)
        for number, step in enumerate(self.steps):
            verdict = step.pruner.judge(count, known)
            some &= verdict.some
            is_open[number] = ~verdict.every
        return some, is_open

    def _paged(self, position: int) -> np.ndarray:
        parts = self.version.column(position)
        page_rows = np.array(parts.facts.page_rows, np.int64)
        rows = np.array(parts.facts.rows, np.int64)
        # Without a file there is no zone map.
        page_rows *= np.array(parts.k, np.int64) != NO_FILE
        steps = [position in step.pruner.columns for step in self.steps]
        return page_rows * (page_rows < rows) * self.open[steps].any(axis=0)

    def _helpful(self, group: int) -> list[int]:
        """The columns of which pages of a row group may tell more than the manifest does."""
        return [position for position, pages in self._pages.items() if pages[group]]

    def _page_rows(self, group: int) -> int | None:
        """The rows of the smallest pages that may tell more; None where none do."""
        sizes = [int(self._pages[position][group]) for position in self._helpful(group)]
        return min(sizes, default=None)

    def _known_of_pages(self, blocks: Blocks, parts: OpenParts) -> dict[int, Runs]:
        """What zone maps say of the pages in which these blocks are."""
        groups, firsts = np.unique(blocks.groups, return_index=True)
        helpful = {group: self._helpful(group) for group in groups.tolist()}
        wanted = [(position, group) for group, those in helpful.items() for position in those]
        run(batches(partial(_open, parts, *one) for one in wanted))
        known: dict[int, list[Runs]] = {position: [] for position in self._known}
        for group, starts in zip(helpful, np.split(blocks.starts, firsts[1:]), strict=True):
            for position, runs in known.items():
                part = parts.open(position, group) if position in helpful[group] else None
                of_pages = part.zone_map() if part else None
                if part is None or of_pages is None:
                    runs.append(self._known[position].take(np.full(len(starts), group)))
                    continue
                type_ = self.version.schema.field(position).type
                with part.error_context():
                    found = bounds.runs(type_, part.rows_of_pages, of_pages)
                runs.append(found.take(starts // part.page_rows))
        return {position: Runs.joined(runs) for position, runs in known.items()}


def _steps(expression: pc.Expression, schema: pa.Schema) -> Iterator[Step]:
    """The parts of a conjunction, those of the same columns together."""
    by_columns: dict[tuple[int, ...], list[tuple[pc.Expression, Term | None]]] = {}
    for part, term in parts(expression):
        if term is None:
            positions = expressions.positions(part, schema)
        else:
            positions = tuple(sorted({schema.get_field_index(name) for name in names(term)}))
        by_columns.setdefault(positions, []).append((part, term))
    for positions, of_them in by_columns.items():
        terms = tuple(term for _, term in of_them if term is not None)
        whole = reduce(and_, (part for part, _ in of_them))
        known = Call("and_kleene", terms) if len(terms) == len(of_them) else None
        yield _step(whole, positions, schema, known, terms)


def _step(
    expression: pc.Expression,
    positions: Sequence[int],
    schema: pa.Schema,
    known: Term | None = None,
    terms: tuple[Term, ...] = (),
) -> Step:
    fields = tuple(schema.field(position).name for position in positions)
    return Step(expression, tuple(positions), fields, Pruner(expression, schema, known), terms)


def _applied(steps: Sequence[Step], blocks: Blocks, parts: OpenParts) -> Morsel:
    """The blocks after these steps, one after the other."""
    morsel = Morsel(blocks, parts)
    for number, step in enumerate(steps):
        morsel.apply(number, step)
    return morsel


def _rank(version: Version, step: Step) -> float:
    """What a step costs for each row that it spares those after it."""
    head = version.head
    row_bytes = sum(head.columns.nbytes[position] for position in step.positions) / (head.rows or 1)
    leaves = 1.0
    for term in step.terms or (None,):
        leaves *= _LEAVES.get(term.function if isinstance(term, Call) else "", _LEAVES_ELSE)
    return row_bytes / (1 - leaves)


def _of_groups(version: Version, position: int) -> Runs:
    """What the manifest says of a column's row groups."""
    parts, type_ = version.column(position), version.schema.field(position).type
    try:
        return bounds.runs(type_, parts.facts.rows, parts.statistics)
    except CorruptError as error:
        name = version.schema.field(position).name
        raise CorruptError(f"{version.store.name}, column {name!r}: {error}") from None


def _open(parts: OpenParts, position: int, group: int) -> None:
    parts.open(position, group)
