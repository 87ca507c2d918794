"""Operands of a comparison: a column, a literal, or an order-preserving cast of one of them.

Knows which types share an order, and which kinds of values a run of rows may have: nulls, NaNs,
values between two bounds. Does not know the functions that use an operand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.errors import REFUSALS
from blztable.arrow.nested.nodes import counts_nulls
from blztable.columns.statistics.bounds import Runs
from blztable.columns.stored import compared_type
from blztable.engine.query.expression_tree import Call, Field, Literal, Term
from blztable.engine.query.expressions import project
from blztable.engine.query.literals import kind

# Casts that preserve the order of values; Arrow compares these pairs of types by such a cast. A
# cast of decimals to floats is missing because Arrow rounds it in several steps.
_ORDER_PRESERVING = {("integer", "float"), ("integer", "decimal"), ("date", "timestamp")}


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Statistics of `runs` runs of rows, by column index; a column may be missing."""

    runs: int
    columns: Mapping[int, Runs]


@dataclass(frozen=True, slots=True)
class ValueKinds:
    """For each run: True if some row may be null, may be NaN, may have any other value."""

    null: np.ndarray
    nan: np.ndarray
    value: np.ndarray


@dataclass(frozen=True, slots=True)
class Operand:
    """A column (its index) or a literal, and the type as which it is compared."""

    type: pa.DataType
    source: int | pa.Scalar
    casts: tuple[pa.DataType, ...] = ()

    @property
    def kind(self) -> str | None:
        """Name of the family of types that share this operand's order; None without an order."""
        return kind(self.type)

    def is_comparable_with(self, type_: pa.DataType) -> bool:
        """True if Arrow compares the operand with this type by their common order."""
        pair = self.kind, kind(type_)
        return None not in pair and (
            pair[0] == pair[1] or pair in _ORDER_PRESERVING or pair[::-1] in _ORDER_PRESERVING
        )

    def value_kinds(self, statistics: RunStatistics) -> ValueKinds:
        """Return the kinds of values that each run may hold."""
        if not isinstance(self.source, int):
            nan = self.kind == "float" and bool(pc.is_nan(self.source).as_py())
            flags = not self.source.is_valid, nan, self.source.is_valid and not nan
            return ValueKinds(*(np.full(statistics.runs, flag) for flag in flags))
        runs = statistics.columns.get(self.source)
        if runs is None:
            everywhere = np.ones(statistics.runs, np.bool_)
            return ValueKinds(everywhere, everywhere, everywhere)
        return ValueKinds(runs.nulls > 0, runs.nans > 0, runs.nulls + runs.nans < runs.rows)

    @property
    def lowest(self) -> pc.Expression:
        """The lower bound, as an expression over the columns that `project_bounds` supplies."""
        return self._bound("lowest")

    @property
    def highest(self) -> pc.Expression:
        """The upper bound, as an expression over the columns that `project_bounds` supplies."""
        return self._bound("highest")

    def _bound(self, side: str) -> pc.Expression:
        if not isinstance(self.source, int):
            return pc.scalar(self.source)
        bound = pc.field(f"{side} {self.source}")
        for type_ in self.casts:
            bound = bound.cast(type_)
        return bound


def operand(term: Term, schema: pa.Schema) -> Operand | None:
    """Return a term as an operand; None if it is anything else, such as arithmetic."""
    match term:
        case Literal(value):
            return Operand(value.type, value)
        case Field(name):
            indices = schema.get_all_field_indices(name)
            if len(indices) != 1:
                return None
            type_ = schema.types[indices[0]]
            if not counts_nulls(type_):
                # Statistics are those of the root, and its rows are null where a child says so.
                return None
            return Operand(compared_type(type_), indices[0])
        case Call("cast", (argument,), options) if options and _is_safe(options):
            inner = operand(argument, schema)
            return inner and _cast(inner, options["to_type"].type)
    return None


def project_bounds(
    expressions: Sequence[pc.Expression], operands: Sequence[Operand], statistics: RunStatistics
) -> list[pa.Array] | None:
    """Evaluate expressions over the operands' bounds: one value a run, null for an unknown bound.

    None if a column has no statistics, or if Arrow refuses the expression.
    """
    columns = {each.source for each in operands if isinstance(each.source, int)}
    if not columns or not columns <= statistics.columns.keys():
        return None
    arrays = {}
    for index in columns:
        arrays[f"lowest {index}"] = statistics.columns[index].lowest
        arrays[f"highest {index}"] = statistics.columns[index].highest
    try:
        return [column.combine_chunks() for column in project(expressions, pa.table(arrays))]
    except REFUSALS:
        return None


def _cast(inner: Operand, type_: pa.DataType) -> Operand | None:
    pair = inner.kind, kind(type_)
    if None in pair or not (pair[0] == pair[1] or pair in _ORDER_PRESERVING):
        return None
    if isinstance(inner.source, int):
        return Operand(type_, inner.source, (*inner.casts, type_))
    try:
        return Operand(type_, inner.source.cast(type_))
    except REFUSALS:
        return None


def _is_safe(options: Mapping[str, pa.Scalar]) -> bool:
    """True if the cast refuses values that the target type cannot hold."""
    return not any(value.as_py() for name, value in options.items() if name.startswith("allow_"))
