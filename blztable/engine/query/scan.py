"""Scan: a filter over one version, evaluated by reading as little as possible.

Knows neither the meaning of an expression (`expressions`, `pruning`) nor how a part is decoded.

Theory of operation. A filter is split into steps: its conjuncts, those over the same columns
together, cheap and selective steps first. Statistics answer each step on two levels: the lines of
the manifest for row groups, when the `Scan` is made; the zone maps in the trailers for pages,
when a window of rows is filtered. Where all rows must match, the step is closed; where none may
match, the rows are dropped; elsewhere the step is open, and rows have to be read. `blocks` are
the rows that remain, `morsels` of them are run as tasks of the pool, and each applies the steps
in order. The calling thread makes the plan and joins the results. Zone maps and rows in memory
are bounded by the window, which the caller chooses (`select`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.statistics import bounds
from blztable.columns.statistics.bounds import Zones
from blztable.engine.query import blocks as cutting
from blztable.engine.query import expressions
from blztable.engine.query.blocks import Blocks
from blztable.engine.query.expression_tree import Call, Term, names, parts
from blztable.engine.query.fields import as_columns
from blztable.engine.query.morsel import FilteredRows, Morsel, Step
from blztable.engine.query.pruning import Pruner
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.selection import RowSpan, stored_spans
from blztable.engine.run.pool import batches, run
from blztable.engine.version.projection import Projection
from blztable.errors import CorruptError, SchemaError

# Assumed share of rows for which a function is true.
_SELECTIVITY = {"equal": 0.02, "is_in": 0.05, "starts_with": 0.05, "is_null": 0.1}
_SELECTIVITY_ELSE = 0.4


class Scan:
    """A filter over one projection."""

    def __init__(self, projection: Projection, filters: object) -> None:
        """Split the filter into steps and prune row groups; raises as `expressions.check` does."""
        schema = projection.whole_columns
        expression = expressions.as_expression(filters, schema)
        expressions.check_type(expression, schema)
        # The last columns of this projection are fields that the filter refers to.
        self.projection, expression = as_columns(projection, expression)
        steps = list(_steps(expression, self.projection.schema))
        self.steps = sorted(steps, key=partial(_rank, self.projection)) if len(steps) > 1 else steps
        self._expression = expression
        compared = {index for step in self.steps for index in step.pruner.columns}
        statistics = {index: statistics_of_groups(self.projection, index) for index in compared}
        # By column; those without statistics are missing.
        self._group_statistics = {
            index: zones for index, zones in statistics.items() if zones is not None
        }
        # Per row group: True if a row may match. Per step and row group: True if statistics do not
        # prove that all rows match.
        self.may_match, self.open = self._evaluate(
            len(projection.version.row_groups), self._group_statistics
        )
        # Per column and row group: the page size if zone maps may prune more, otherwise 0.
        self._page_sizes = {index: self._page_sizes_of(index) for index in self._group_statistics}

    @property
    def columns(self) -> list[int]:
        """Indices of the columns that the filter refers to."""
        return sorted({index for step in self.steps for index in step.columns})

    @property
    def is_decided(self) -> bool:
        """True if the manifest alone answers the filter, for all row groups."""
        return not self.open[:, self.may_match].any()

    def within(self, spans: Sequence[RowSpan]) -> list[RowSpan]:
        """Return the spans of row groups in which a row may match."""
        return [span for span in spans if self.may_match[span.group]]

    def filter(
        self, spans: Sequence[RowSpan], reader: ColumnReader, columns: Sequence[int] = ()
    ) -> FilteredRows:
        """Return the rows of these spans that match, and these columns of them."""
        reader = reader.of(self.projection)
        morsels = list(cutting.morsels(self.blocks(spans, reader)))
        results: list[FilteredRows] = [FilteredRows([], {})] * len(morsels)

        def filter_morsel(number: int) -> None:
            results[number] = self._apply(morsels[number], reader).result(columns)

        run(partial(filter_morsel, number) for number in range(len(morsels)))
        schema = self.projection.schema
        joined = {
            index: pa.chunked_array(
                [chunk for one in results for chunk in one.columns[index].chunks],
                schema.field(index).type,
            )
            for index in columns
        }
        return FilteredRows([rows for one in results for rows in one.selection], joined)

    def _apply(self, blocks: Blocks, reader: ColumnReader) -> Morsel:
        """Apply all steps; if a step cannot be evaluated, apply the filter as one step."""
        try:
            return _applied(self.steps, blocks, reader)
        except SchemaError as error:
            failure = error
        # Arrow does not evaluate y in `false and y`, so the whole filter may have a value although
        # one of its conjuncts fails on its own.
        whole = _step(self._expression, self.columns, self.projection.schema)
        is_open = np.logical_or.reduce(blocks.open, axis=0, keepdims=True)
        try:
            return _applied([whole], replace(blocks, open=is_open), reader)
        except SchemaError:
            # The conjunct that failed is more helpful than the whole filter.
            raise failure from None
        finally:
            # Otherwise its traceback and this frame would form a cycle that keeps the table open.
            del failure

    def blocks(self, spans: Sequence[RowSpan], reader: ColumnReader) -> Blocks:
        """Return the rows of these spans in which a row may match, by the zone maps too."""
        deleted = self.projection.version.deleted
        # Pages are of stored rows.
        spans = stored_spans(deleted, self.within(spans))
        page_rows = [self._page_rows(span.group) for span in spans]
        blocks, are_pages = cutting.cut(spans, page_rows, self.open)
        if not are_pages.any():
            return blocks.live(deleted)
        statistics = self._statistics_of_pages(blocks[are_pages], reader.of(self.projection))
        may_match, is_open = self._evaluate(int(are_pages.sum()), statistics)
        blocks.open[:, are_pages] = is_open
        kept = ~are_pages
        kept[are_pages] = may_match
        return blocks[kept].live(deleted)

    def _evaluate(self, zones: int, columns: Mapping[int, Zones]) -> tuple[np.ndarray, np.ndarray]:
        """For each zone: True if a row may match; for each step and zone: True if it is open."""
        may_match = np.ones(zones, np.bool_)
        is_open = np.ones((len(self.steps), zones), np.bool_)
        for number, step in enumerate(self.steps):
            match = step.pruner.evaluate(zones, columns)
            may_match &= match.may
            is_open[number] = ~match.must
        return may_match, is_open

    def _page_sizes_of(self, index: int) -> np.ndarray:
        parts = self.projection.root(index)
        page_rows = np.array(parts.meta.page_rows, np.int64)
        rows = np.array(parts.meta.rows, np.int64)
        # A part without bytes has no zone map.
        page_rows *= np.array(parts.meta.cbytes, np.int64) != 0
        steps = [index in step.pruner.columns for step in self.steps]
        return page_rows * (page_rows < rows) * self.open[steps].any(axis=0)

    def _columns_with_pages(self, group: int) -> list[int]:
        """Return the columns whose zone maps may prune more of a row group."""
        return [index for index, sizes in self._page_sizes.items() if sizes[group]]

    def _page_rows(self, group: int) -> int | None:
        """Return the smallest page size whose zone maps may prune more; None without any."""
        sizes = [int(self._page_sizes[index][group]) for index in self._columns_with_pages(group)]
        return min(sizes, default=None)

    def _statistics_of_pages(self, blocks: Blocks, reader: ColumnReader) -> dict[int, Zones]:
        """Return for each block the statistics of its page; of its row group without a zone map."""
        groups, firsts = np.unique(blocks.groups, return_index=True)
        zone_maps: dict[tuple[int, int], Zones | None] = {}

        def read(index: int, group: int) -> None:
            zone_maps[index, group] = reader.zone_map(index, group)

        run(
            batches(
                partial(read, index, group)
                for group in groups.tolist()
                for index in self._columns_with_pages(group)
            )
        )
        statistics: dict[int, list[Zones]] = {index: [] for index in self._group_statistics}
        for group, starts in zip(groups.tolist(), np.split(blocks.starts, firsts[1:]), strict=True):
            for index, zones in statistics.items():
                pages = zone_maps.get((index, group))
                if pages is None:
                    zones.append(self._group_statistics[index].take(np.full(len(starts), group)))
                else:
                    zones.append(pages.take(starts // self._page_sizes[index][group]))
        return {index: Zones.joined(zones) for index, zones in statistics.items()}


def _steps(expression: pc.Expression, schema: pa.Schema) -> Iterator[Step]:
    """Yield the conjuncts of a filter, those over the same columns as one step."""
    by_columns: dict[tuple[int, ...], list[tuple[pc.Expression, Term | None]]] = {}
    for part, term in parts(expression):
        if term is None:
            columns = expressions.columns_of(part, schema)
        else:
            columns = tuple(sorted({schema.get_field_index(name) for name in names(term)}))
        by_columns.setdefault(columns, []).append((part, term))
    for columns, conjuncts in by_columns.items():
        terms = tuple(term for _, term in conjuncts if term is not None)
        whole = reduce(and_, (part for part, _ in conjuncts))
        term = Call("and_kleene", terms) if len(terms) == len(conjuncts) else None
        yield _step(whole, columns, schema, term, terms)


def _step(
    expression: pc.Expression,
    columns: Sequence[int],
    schema: pa.Schema,
    term: Term | None = None,
    terms: tuple[Term, ...] = (),
) -> Step:
    fields = tuple(schema.field(index).name for index in columns)
    return Step(expression, tuple(columns), fields, Pruner(expression, schema, term), terms)


def _applied(steps: Sequence[Step], blocks: Blocks, reader: ColumnReader) -> Morsel:
    """Return the blocks as a morsel to which these steps were applied in order."""
    morsel = Morsel(blocks, reader)
    for number, step in enumerate(steps):
        morsel.apply(number, step)
    return morsel


def _rank(projection: Projection, step: Step) -> float:
    """Return the cost of a step: bytes of its columns per row that it removes."""
    rows = projection.version.head.rows
    row_bytes = sum(projection.nbytes(index) for index in step.columns) / (rows or 1)
    share = 1.0
    for term in step.terms or (None,):
        function = term.function if isinstance(term, Call) else ""
        share *= _SELECTIVITY.get(function, _SELECTIVITY_ELSE)
    return row_bytes / (1 - share)


def statistics_of_groups(projection: Projection, index: int) -> Zones | None:
    """Return the statistics of a column's row groups; None if there are none."""
    parts, field = projection.root(index), projection.schema.field(index)
    if not parts.statistics_json:
        return None
    try:
        return bounds.zones(field.type, parts.meta.rows, parts.statistics)
    except CorruptError as error:
        store = projection.version.store
        raise CorruptError(f"{store.name}, column {field.name!r}: {error}") from None
