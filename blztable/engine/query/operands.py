"""What is compared: a column, a literal, or a cast of one that keeps the order of its values.

Knows which types have an order in common, and what the rows of a run may be: null, NaN, a value
between two bounds. Knows nothing of what is done with an operand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow_errors import REFUSALS
from blztable.columns.statistics.bounds import Runs
from blztable.columns.stored import compared_type
from blztable.engine.query.expression_tree import Call, Field, Literal, Term
from blztable.engine.query.expressions import project

_TYPES_TOGETHER = {
    "boolean": [pa.types.is_boolean],
    "integer": [pa.types.is_integer],
    "float": [pa.types.is_floating],
    "decimal": [pa.types.is_decimal],
    "date": [pa.types.is_date],
    "time": [pa.types.is_time],
    "duration": [pa.types.is_duration],
    "item": [
        *(pa.types.is_string, pa.types.is_large_string),
        *(pa.types.is_binary, pa.types.is_large_binary),
    ],
}
# Casts that keep the order, and types that Arrow compares by such a cast. Not of decimals to
# floats: they are rounded in several steps.
_KEEPS_ORDER = {("integer", "float"), ("integer", "decimal"), ("date", "timestamp")}


@dataclass(frozen=True, slots=True)
class Known:
    """So many runs, and what is known of their rows in some columns, by position.

    A column may be known by larger runs, in which these are.
    """

    count: int
    columns: Mapping[int, Runs]


@dataclass(frozen=True, slots=True)
class Rows:
    """Of each run: whether a row may be null, may be NaN, may have any other value."""

    null: np.ndarray
    nan: np.ndarray
    value: np.ndarray


@dataclass(frozen=True, slots=True)
class Operand:
    """A column or a literal, as a type."""

    type: pa.DataType
    source: int | pa.Scalar
    """The column's position, or the literal."""
    casts: tuple[pa.DataType, ...] = ()

    @property
    def kind(self) -> str | None:
        """What its order is of; None for a type that has none here."""
        return _kind(self.type)

    def goes_with(self, type_: pa.DataType) -> bool:
        """Whether Arrow compares it with this type by the order of both."""
        pair = self.kind, _kind(type_)
        return None not in pair and (
            pair[0] == pair[1] or pair in _KEEPS_ORDER or pair[::-1] in _KEEPS_ORDER
        )

    def rows(self, known: Known) -> Rows:
        """What its rows may be."""
        if not isinstance(self.source, int):
            nan = self.kind == "float" and bool(pc.is_nan(self.source).as_py())
            flags = not self.source.is_valid, nan, self.source.is_valid and not nan
            return Rows(*(np.full(known.count, flag) for flag in flags))
        runs = known.columns.get(self.source)
        if runs is None:
            everywhere = np.ones(known.count, np.bool_)
            return Rows(everywhere, everywhere, everywhere)
        return Rows(runs.nulls > 0, runs.nans > 0, runs.nulls + runs.nans < runs.rows)

    @property
    def lowest(self) -> pc.Expression:
        """The lower bound, over the columns that `of_bounds` gives."""
        return self._bound("lowest")

    @property
    def highest(self) -> pc.Expression:
        """The upper bound."""
        return self._bound("highest")

    def _bound(self, side: str) -> pc.Expression:
        if not isinstance(self.source, int):
            return pc.scalar(self.source)
        bound = pc.field(f"{side} {self.source}")
        for type_ in self.casts:
            bound = bound.cast(type_)
        return bound


def operand(term: Term, schema: pa.Schema) -> Operand | None:
    """What this is; None where it is no operand."""
    match term:
        case Literal(value):
            return Operand(value.type, value)
        case Field(name):
            positions = schema.get_all_field_indices(name)
            if len(positions) != 1:
                return None
            return Operand(compared_type(schema.types[positions[0]]), positions[0])
        case Call("cast", (argument,), options) if options and _is_safe(options):
            inner = operand(argument, schema)
            return inner and _cast(inner, options["to_type"].type)
    return None


def of_bounds(
    expressions: Sequence[pc.Expression], operands: Sequence[Operand], known: Known
) -> list[pa.Array] | None:
    """Expressions of the operands' bounds, a value a run; null where a bound is not known.

    None where nothing is known of a column, and where Arrow refuses.
    """
    columns = {each.source for each in operands if isinstance(each.source, int)}
    if not columns or not columns <= known.columns.keys():
        return None
    arrays = {}
    for position in columns:
        arrays[f"lowest {position}"] = known.columns[position].lowest
        arrays[f"highest {position}"] = known.columns[position].highest
    try:
        found = project(expressions, pa.table(arrays))
    except REFUSALS:
        return None
    return [column.combine_chunks() for column in found]


def _kind(type_: pa.DataType) -> str | None:
    if pa.types.is_timestamp(type_):
        # Instants have no order in common with what a clock shows somewhere.
        return "timestamp" if type_.tz is None else "instant"
    for kind, tests in _TYPES_TOGETHER.items():
        if any(test(type_) for test in tests):
            return kind
    return None


def _cast(inner: Operand, type_: pa.DataType) -> Operand | None:
    pair = inner.kind, _kind(type_)
    if None in pair or not (pair[0] == pair[1] or pair in _KEEPS_ORDER):
        return None
    if isinstance(inner.source, int):
        return Operand(type_, inner.source, (*inner.casts, type_))
    try:
        return Operand(type_, inner.source.cast(type_))
    except REFUSALS:
        return None


def _is_safe(options: Mapping[str, pa.Scalar]) -> bool:
    """Whether the cast refuses values that it cannot hold."""
    return not any(value.as_py() for name, value in options.items() if name.startswith("allow_"))
