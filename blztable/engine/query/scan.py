"""Scan: a filter over one version, evaluated by reading as little as possible.

Knows neither the meaning of an expression (`expressions`, `pruning`) nor how a part is decoded.

Theory of operation. A filter is split into steps: its conjuncts, those over the same columns
together, cheap and selective steps first. The records of the version answer each step before a file
is opened: first leaf by leaf, then page by page of the row groups of the leaves that are left.
Where all rows must match, the step is closed; where none may match, the rows are dropped; elsewhere
the step is open, and rows have to be read. All of this is a `Plan`, which depends on nothing but
the version and the filter, and is kept with the projection. `morsels` of the rows that remain are
run as tasks of the pool, and each applies the steps in order. The calling thread makes the plan and
joins the results. Rows in memory are bounded by the window, which the caller chooses (`select`).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.types import REFUSALS
from blztable.columns.statistics.bounds import Zones, zones_of_groups, zones_of_pages
from blztable.engine.query import blocks as cutting
from blztable.engine.query import expressions
from blztable.engine.query.blocks import Blocks
from blztable.engine.query.expression_tree import Call, Term, names, parts
from blztable.engine.query.fields import as_columns
from blztable.engine.query.morsel import FilteredRows, Morsel, Step
from blztable.engine.query.pruning import Pruner
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.selection import RowSpan, stored_spans
from blztable.engine.run.pool import run
from blztable.engine.version.facts import Run
from blztable.engine.version.projection import Projection
from blztable.errors import CorruptError, SchemaError
from blztable.format.records import Records

# Assumed share of rows for which a function is true.
_SELECTIVITY = {"equal": 0.02, "is_in": 0.05, "starts_with": 0.05, "is_null": 0.1}
_SELECTIVITY_ELSE = 0.4
# Row groups whose pages are judged together, and plans that a projection keeps.
_GROUPS_AT_ONCE, _KEPT_PLANS = 4096, 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What the records of a version say about a filter.

    Attributes
    ----------
    expression
        The whole filter.
    projection
        The columns of the version, and behind them the fields of nested ones that the filter refers
        to; None if it refers to none.
    steps
        Its conjuncts, in the order in which they are applied.
    columns
        Indices of the columns that it refers to.
    blocks
        The stored rows in which a row may match.
    groups, firsts, rows
        The row groups that have these, the live rows of the table before each, and its live rows.
    groups_in_leaves
        How many row groups the leaves have that may match.
    uncoded
        The columns that were asked for codes, and have none.
    is_decided
        True if the records alone answer the filter, for all rows.
    """

    expression: pc.Expression
    projection: Projection | None
    steps: tuple[Step, ...]
    columns: list[int]
    blocks: Blocks
    groups: np.ndarray
    firsts: np.ndarray
    rows: np.ndarray
    groups_in_leaves: int
    is_decided: bool
    uncoded: set[int] = field(default_factory=set)
    # The windows of the last read, and their morsels (`select`).
    windows: dict[tuple[range, int], list[tuple[list[RowSpan], list[Blocks]]]] = field(
        default_factory=dict
    )


class Scan:
    """A filter over one projection."""

    def __init__(self, projection: Projection, filters: object) -> None:
        """Split the filter into steps and prune pages; raises as `expressions.check` does."""
        self.plan = _plan(projection, filters)
        # The last columns of this projection are fields that the filter refers to.
        self.projection = self.plan.projection or projection

    @property
    def steps(self) -> tuple[Step, ...]:
        """The conjuncts of the filter, in the order in which they are applied."""
        return self.plan.steps

    @property
    def columns(self) -> list[int]:
        """Indices of the columns that the filter refers to."""
        return self.plan.columns

    def spans(self, start: int, stop: int) -> list[RowSpan]:
        """Return the rows from `start` to `stop` of the table, in row groups that may match."""
        plan = self.plan
        begins = np.maximum(start - plan.firsts, 0).tolist()
        ends = np.minimum(stop - plan.firsts, plan.rows).tolist()
        groups = zip(plan.groups.tolist(), begins, ends, strict=True)
        return [RowSpan(*span) for span in groups if span[1] < span[2]]

    def first_rows(self, groups: Sequence[int]) -> list[int]:
        """Return the live rows of the table before each of some row groups that may match."""
        firsts: list[int] = self.plan.firsts[self.plan.groups.searchsorted(groups)].tolist()
        return firsts

    def within(self, spans: Sequence[RowSpan]) -> list[RowSpan]:
        """Return the spans of row groups in which a row may match."""
        groups = set(self.plan.groups.tolist())
        return [span for span in spans if span.group in groups]

    def morsels(self, spans: Sequence[RowSpan]) -> list[Blocks]:
        """Return the rows of these spans that may match, cut into morsels."""
        return list(cutting.morsels(self.blocks(spans)))

    def filter(
        self, morsels: Sequence[Blocks], reader: ColumnReader, columns: Sequence[int] = ()
    ) -> FilteredRows:
        """Return the rows of these morsels that match, and these columns of them."""
        reader = reader.of(self.projection)
        # A context manager would make calls of Python where nothing is fetched.
        is_far = reader.fetches and bool(morsels)
        asked = self._fetched(Blocks.joined(morsels), reader, columns) if is_far else None
        try:
            if len(morsels) == 1:
                return self._apply(morsels[0], reader).result(columns)
            results: list[FilteredRows] = [FilteredRows([], {})] * len(morsels)

            def filter_morsel(number: int) -> None:
                results[number] = self._apply(morsels[number], reader).result(columns)

            run(partial(filter_morsel, number) for number in range(len(morsels)))
            schema = self.projection.schema
            joined = {
                index: pa.chunked_array(
                    [chunk for result in results for chunk in result.columns[index].chunks],
                    schema.field(index).type,
                )
                for index in columns
            }
            return FilteredRows([rows for result in results for rows in result.selection], joined)
        finally:
            if asked is not None:
                asked.close()

    def _fetched(self, blocks: Blocks, reader: ColumnReader, columns: Sequence[int]) -> ExitStack:
        """Ask for the columns of the filter where it is open, and for the others if it is little.

        All of it comes in one round. Otherwise the other columns are asked for when the filter has
        told which rows are wanted.
        """
        with ExitStack() as asked:
            asked.enter_context(reader.fetched(self.columns, _open_spans(blocks)))
            most = tuning.current.spare_bytes
            asked.enter_context(reader.fetched(columns, blocks.spans, most))
            return asked.pop_all()

    def open_spans(self, spans: Sequence[RowSpan]) -> Sequence[RowSpan]:
        """Return the rows of these spans whose columns of the filter have to be read."""
        morsels = self.morsels(spans)
        return _open_spans(Blocks.joined(morsels)) if morsels else []

    def _apply(self, blocks: Blocks, reader: ColumnReader) -> Morsel:
        """Apply all steps; if a step cannot be evaluated, apply the filter as one step."""
        try:
            return self._applied(self.plan.steps, blocks, reader)
        except SchemaError as error:
            failure = error
        # Arrow does not evaluate y in `false and y`, so the whole filter may have a value although
        # one of its conjuncts fails on its own.
        whole = _step(self.plan.expression, self.columns, self.projection.schema)
        is_open = np.logical_or.reduce(blocks.open, axis=0, keepdims=True)
        try:
            return self._applied([whole], replace(blocks, open=is_open), reader)
        except SchemaError:
            # The conjunct that failed is more helpful than the whole filter.
            raise failure from None
        finally:
            # Otherwise its traceback and this frame would form a cycle that keeps the table open.
            del failure

    def _applied(self, steps: Sequence[Step], blocks: Blocks, reader: ColumnReader) -> Morsel:
        """Return the blocks as a morsel to which these steps were applied in order."""
        morsel = Morsel(blocks, reader, self.plan.uncoded)
        for number, step in enumerate(steps):
            morsel.apply(number, step)
        return morsel

    def blocks(self, spans: Sequence[RowSpan]) -> Blocks:
        """Return the live rows of these spans in which a row may match."""
        deleted = self.projection.version.deleted_in(span.group for span in spans)
        # Pages are of stored rows.
        return self.plan.blocks.within(stored_spans(deleted, spans)).live(deleted)


def _open_spans(blocks: Blocks) -> Sequence[RowSpan]:
    is_open: np.ndarray = np.logical_or.reduce(blocks.open)
    return blocks[is_open].spans


def _plan(projection: Projection, filters: object) -> Plan:
    """Return the plan of a filter: the one that the projection keeps, or a new one."""
    if not isinstance(filters, pc.Expression):
        filters = expressions.as_expression(filters, projection.whole_columns)
    try:
        reduced: Any = filters.__reduce__()
        key = reduced[1][0].to_pybytes()
    except REFUSALS:
        # Arrow gives no bytes of references by index.
        return _new_plan(projection, filters)
    # Other tables of the same bytes may use a plan that refers to no projection.
    shared: dict[bytes, Plan] = projection.version.made("plans", dict)
    is_whole = not projection.fields and not projection.dictionaries
    plan = (shared.get(key) if is_whole else None) or projection.plans.get(key)
    if not isinstance(plan, Plan):
        plan = _new_plan(projection, filters)
        known = shared if is_whole and plan.projection is None else projection.plans
        if len(known) >= _KEPT_PLANS:
            known.clear()
        known[key] = plan
    return plan


def _new_plan(projection: Projection, filters: pc.Expression) -> Plan:
    """Split a filter into steps, and judge pages by their records."""
    schema = projection.whole_columns
    expression = expressions.as_expression(filters, schema)
    expressions.check_type(expression, schema)
    wider, expression = as_columns(projection, expression)
    steps = list(_steps(expression, wider.schema))
    if len(steps) > 1:
        steps.sort(key=partial(_rank, wider))
    columns = sorted({index for step in steps for index in step.columns})
    compared = sorted({index for step in steps for index in step.pruner.columns})
    count, judged = 0, []
    for runs in _runs(wider, steps, compared):
        judged.append(_judged(wider, steps, compared, runs))
        count += sum(len(run) for *_, run in runs)
    blocks = Blocks.joined([blocks_of_runs for blocks_of_runs, _ in judged])
    groups, firsts, rows = np.concatenate([places for _, places in judged], axis=1)
    return Plan(
        expression,
        None if wider is projection else wider,
        tuple(steps),
        columns,
        blocks,
        groups,
        firsts,
        rows,
        count,
        is_decided=not blocks.open.any(),
    )


# A run of row groups, and the row groups and rows before it.
_Placed = tuple[int, int, Run]


def _runs(
    projection: Projection, steps: Sequence[Step], compared: Sequence[int]
) -> Iterator[list[_Placed]]:
    """Yield the runs of the leaves in which a row may match, about `_GROUPS_AT_ONCE` together."""
    types = [projection.schema.field(index).type for index in compared]

    def may_match(records: Records) -> np.ndarray:
        entries = np.arange(records.entries)
        zones = {
            index: zones_of_groups(type_, records.of([place], entries))
            for place, (index, type_) in enumerate(zip(compared, types, strict=True))
        }
        return evaluate(steps, records.entries, zones)[0]

    lines = [projection.nodes(index)[0] for index in compared]
    together: list[_Placed] = []
    count = 0
    for first, rows, whole in projection.version.pruned(lines, may_match):
        ends = whole.groups["rows"].astype(np.int64).cumsum()
        for start in range(0, len(whole), _GROUPS_AT_ONCE):
            before = rows + int(ends[start - 1]) if start else rows
            cut = whole.cut(start, min(start + _GROUPS_AT_ONCE, len(whole)))
            together.append((first + start, before, cut))
            count += len(cut)
            if count >= _GROUPS_AT_ONCE:
                yield together
                together, count = [], 0
    # At least once: then all is there, for no rows.
    yield together


def _judged(
    projection: Projection, steps: Sequence[Step], compared: Sequence[int], runs: list[_Placed]
) -> tuple[Blocks, np.ndarray]:
    """Return the pages of row groups in which a row may match.

    And of these row groups: their numbers, the live rows before each, and its live rows.
    """
    stored = _numbers(run.groups["stored"] for *_, run in runs)
    groups = _numbers(first + np.arange(len(run)) for first, _, run in runs)
    live = [(first, run.groups["rows"].astype(np.int64)) for _, first, run in runs]
    firsts = _numbers(first + of.cumsum() - of for first, of in live)
    read = [run for *_, run in runs]
    records = {index: records_of(projection, index, read) for index in compared}
    sizes = np.maximum(stored, 1)
    for of_column in records.values():
        has_pages = of_column.parts["pages"] > 1
        page_rows = np.left_shift(1, of_column.parts["page"], dtype=np.int64)
        sizes = np.where(has_pages, np.minimum(sizes, page_rows), sizes)
    is_open = np.ones((len(steps), len(groups)), np.bool_)
    blocks, which = Blocks(groups, np.zeros_like(stored), stored, is_open).pages(sizes)
    zones = {
        index: _zones(projection.schema.field(index).type, of_column, which, blocks.starts)
        for index, of_column in records.items()
    }
    may_match, is_open = evaluate(steps, len(blocks), zones)
    blocks = replace(blocks, open=is_open)[may_match].merged()
    kept = groups.searchsorted(np.unique(blocks.groups))
    rows = _numbers(of for _, of in live)
    return blocks, np.stack([groups[kept], firsts[kept], rows[kept]])


def _zones(type_: pa.DataType, records: Records, which: np.ndarray, starts: np.ndarray) -> Zones:
    """Return the zone of each block: the page that has it, or its row group."""
    if not (records.parts["pages"] > 0).all():
        return zones_of_groups(type_, records).take(which)
    zones = zones_of_pages(type_, records)
    pages = records.first_page[which] + (starts >> records.parts["page"].astype(np.int64)[which])
    is_each = len(pages) == len(zones) and bool((pages == np.arange(len(pages))).all())
    return zones if is_each else zones.take(pages)


def evaluate(
    steps: Sequence[Step], zones: int, columns: dict[int, Zones]
) -> tuple[np.ndarray, np.ndarray]:
    """For each zone: True if a row may match; for each step and zone: True if it is open."""
    may_match = np.ones(zones, np.bool_)
    is_open = np.ones((len(steps), zones), np.bool_)
    for number, step in enumerate(steps):
        match = step.pruner.evaluate(zones, columns)
        may_match &= match.may
        is_open[number] = ~match.must
    return may_match, is_open


def records_of(projection: Projection, index: int, runs: Sequence[Run] | None = None) -> Records:
    """Return the records of the root of a column, in the row groups of some runs or in all."""
    version, lines = projection.version, [projection.nodes(index)[0]]
    records = version.records(lines) if runs is None else version.records_of(lines, runs)
    if projection.is_field(index):
        known = [version.facts.groups] if runs is None else [run.groups for run in runs]
        if (records.parts["rows"] != _numbers(of["stored"] for of in known)).any():
            name = projection.schema.field(index).name
            raise CorruptError(
                f"{version.store.name}: the rows of column {name!r} differ from the table's"
            )
    return records


def _numbers(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Return integers one behind the other."""
    return np.concatenate([np.zeros(0, np.int64), *arrays]).astype(np.int64)


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


def _rank(projection: Projection, step: Step) -> float:
    """Return the cost of a step: bytes of its columns per row that it removes."""
    rows = projection.version.head.rows
    row_bytes = sum(projection.nbytes(index) for index in step.columns) / (rows or 1)
    share = 1.0
    for term in step.terms or (None,):
        function = term.function if isinstance(term, Call) else ""
        share *= _SELECTIVITY.get(function, _SELECTIVITY_ELSE)
    return row_bytes / (1 - share)
