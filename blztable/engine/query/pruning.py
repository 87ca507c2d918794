"""Pruning: find the zones that a filter can skip or keep whole, from statistics alone.

A zone is a row group or a page. Knows nothing of files, nor of the origin of the statistics.

Theory of operation. `Pruner` compiles the term of a filter once, into a tree of rules; a rule maps
the statistics of all zones to three flags a zone (`Kleene`): a row may be true, false, null. A
function that is not understood sets all three, which prunes nothing and is never wrong.
Connectives combine flags. Arrow itself evaluates a comparison, with columns of bounds in the place
of the columns, all zones in one call: the types and literals are the same as for rows, so Arrow
inserts the same casts. These casts preserve the order of values, so what holds for
both bounds holds for each value between them. The caller's thread does all of it; time and memory
are bounded by the number of zones, not of rows.

Operands of a comparison: a column, a literal, or an order-preserving cast of one of them. Knows
which types share an order, and which kinds of values a zone may have: nulls, NaNs, values
between two bounds. Does not know the functions that use an operand.

Three-valued logic over zones: whether a condition may be true, false or null. A flag is set
unless no row of the zone can have that value, so setting more flags is always sound.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.nodes import counts_nulls
from blztable.arrow.types import REFUSALS, bits_of, bytes_of, compared_type, mask_of
from blztable.columns.statistics.bounds import Zones, above_prefix
from blztable.engine.query.expression_tree import Call, Field, Literal, Term, tree
from blztable.engine.query.expressions import project
from blztable.engine.query.literals import kind


@dataclass(frozen=True, slots=True)
class Kleene:
    """For each zone: True if some row may be true, may be false, may be null."""

    true: np.ndarray
    false: np.ndarray
    null: np.ndarray

    @property
    def may(self) -> np.ndarray:
        """For each zone: True if a row may match the filter."""
        return self.true

    @property
    def must(self) -> np.ndarray:
        """For each zone: True if all rows must match the filter."""
        return ~(self.false | self.null)


def anything(zones: int) -> Kleene:
    """Return the flags of a condition about which nothing is known."""
    everywhere = np.ones(zones, np.bool_)
    return Kleene(everywhere, everywhere, everywhere)


def always(value: bool | None, zones: int) -> Kleene:
    """Return the flags of a condition that has the same value for all rows."""
    return Kleene(*(np.full(zones, value is each) for each in (True, False, None)))


def invert(a: Kleene) -> Kleene:
    """Swap true and false; null stays null."""
    return Kleene(a.false, a.true, a.null)


def and_kleene(operands: Sequence[Kleene]) -> Kleene:
    """Combine: false if any operand is false, otherwise null if any is null."""
    return reduce(_and_kleene, operands)


def or_kleene(operands: Sequence[Kleene]) -> Kleene:
    """Combine: true if any operand is true, otherwise null if any is null."""
    return invert(and_kleene([invert(each) for each in operands]))


def and_(operands: Sequence[Kleene]) -> Kleene:
    """Combine: null if any operand is null, otherwise false if any is false."""
    return reduce(_and, operands)


def or_(operands: Sequence[Kleene]) -> Kleene:
    """Combine: null if any operand is null, otherwise true if any is true."""
    return invert(and_([invert(each) for each in operands]))


def if_else(condition: Kleene, left: Kleene, right: Kleene) -> Kleene:
    """Choose `left` where the condition is true, `right` where it is false; null where null."""
    return Kleene(
        condition.true & left.true | condition.false & right.true,
        condition.true & left.false | condition.false & right.false,
        condition.true & left.null | condition.false & right.null | condition.null,
    )


def _and_kleene(a: Kleene, b: Kleene) -> Kleene:
    null = a.null & (b.true | b.null) | b.null & (a.true | a.null)
    return Kleene(a.true & b.true, a.false | b.false, null)


def _and(a: Kleene, b: Kleene) -> Kleene:
    false = a.false & (b.true | b.false) | b.false & (a.true | a.false)
    return Kleene(a.true & b.true, false, a.null | b.null)


# Casts that preserve the order of values; Arrow compares these pairs of types by such a cast. A
# cast of decimals to floats is missing because Arrow rounds it in several steps.
_ORDER_PRESERVING = {("integer", "float"), ("integer", "decimal"), ("date", "timestamp")}


@dataclass(frozen=True, slots=True)
class ZoneStatistics:
    """Statistics of `zones` zones, by column index; a column may be missing."""

    zones: int
    columns: Mapping[int, Zones]


@dataclass(frozen=True, slots=True)
class ValueKinds:
    """For each zone: True if some row may be null, may be NaN, may have any other value."""

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

    def value_kinds(self, statistics: ZoneStatistics) -> ValueKinds:
        """Return the kinds of values that each zone may hold."""
        if not isinstance(self.source, int):
            nan = self.kind == "float" and bool(pc.is_nan(self.source).as_py())
            flags = not self.source.is_valid, nan, self.source.is_valid and not nan
            return ValueKinds(*(np.full(statistics.zones, flag) for flag in flags))
        zones = statistics.columns.get(self.source)
        if zones is None:
            everywhere = np.ones(statistics.zones, np.bool_)
            return ValueKinds(everywhere, everywhere, everywhere)
        return ValueKinds(zones.nulls > 0, zones.nans > 0, zones.values)

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
    expressions: Sequence[pc.Expression], operands: Sequence[Operand], statistics: ZoneStatistics
) -> list[pa.Array] | None:
    """Evaluate expressions over the operands' bounds: one value a zone, null for an unknown bound.

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


Rule = Callable[[ZoneStatistics], Kleene]
# Two lists of conditions on the bounds of two operands: if a row may be true, all conditions of the
# first list hold; if a row may be false, at least one of the second.
Tests = tuple[list[pc.Expression], list[pc.Expression]]

_CONNECTIVES: dict[str, Callable[[Sequence[Kleene]], Kleene]] = {
    "and_kleene": and_kleene,
    "or_kleene": or_kleene,
    "and": and_,
    "or": or_,
    "invert": lambda operands: invert(*operands),
    "if_else": lambda operands: if_else(*operands),
}
_COMPARISONS: dict[str, Callable[[Operand, Operand], Tests]] = {
    "less": lambda a, b: ([a.lowest < b.highest], [a.highest >= b.lowest]),
    "less_equal": lambda a, b: ([a.lowest <= b.highest], [a.highest > b.lowest]),
    "greater": lambda a, b: ([a.highest > b.lowest], [a.lowest <= b.highest]),
    "greater_equal": lambda a, b: ([a.highest >= b.lowest], [a.lowest < b.highest]),
    "equal": lambda a, b: (
        [a.lowest <= b.highest, a.highest >= b.lowest],
        [a.lowest < b.highest, a.highest > b.lowest],
    ),
}


class _NullTest(enum.Enum):
    """How `is_in` treats a null: the numbers of Arrow's SetLookupOptions."""

    MATCH = 0
    SKIP = 1
    EMIT_NULL = 2
    INCONCLUSIVE = 3


@dataclass(frozen=True, slots=True)
class _Set:
    """The value set of `is_in`: the members that have an order, and flags for null and NaN."""

    members: pa.Array
    has_null: bool
    has_nan: bool
    nulls: _NullTest


class Pruner:
    """A filter, compiled for one schema; `columns` are the indices of the columns it compares."""

    def __init__(
        self, expression: pc.Expression, schema: pa.Schema, term: Term | None = None
    ) -> None:
        """Compile the filter; `term` spares parsing the expression again."""
        used: set[int] = set()
        term = term or tree(expression)
        self._rule = _anything if term is None else _rule(term, schema, used)
        self.columns = tuple(sorted(used))

    def evaluate(self, zones: int, columns: Mapping[int, Zones]) -> Kleene:
        """Match each of `zones` zones, none empty, given the statistics by column index."""
        return self._rule(ZoneStatistics(zones, columns))


def _rule(term: Term, schema: pa.Schema, used: set[int]) -> Rule:
    """Return the rule of a term, and add the columns that it compares to `used`."""
    match term:
        case Literal(value) if not value.is_valid or pa.types.is_boolean(value.type):
            return partial(_always, value.as_py())
        case Field():
            return _leaf(Call("equal", (term, Literal(pa.scalar(True)))), schema, used)
        case Call(function, arguments) if function in _CONNECTIVES:
            rules = [_rule(argument, schema, used) for argument in arguments]
            return partial(_connected, _CONNECTIVES[function], rules)
        case Call("not_equal", arguments):
            return _rule(Call("invert", (Call("equal", arguments),)), schema, used)
        case Call("is_valid", arguments):
            return _rule(Call("invert", (Call("is_null", arguments),)), schema, used)
        case Call("is_null", (argument,)) if operand(argument, schema) is None:
            # The argument is a condition, which is never NaN.
            return partial(_is_null_condition, _rule(argument, schema, used))
        case Call():
            return _leaf(term, schema, used)
    return _anything


def _leaf(call: Call, schema: pa.Schema, used: set[int]) -> Rule:
    """Return the rule of a function whose arguments are operands."""
    operands = [side for each in call.arguments if (side := operand(each, schema)) is not None]
    if len(operands) < len(call.arguments):
        return _anything
    try:
        rule = _function(call, operands)
    except (*REFUSALS, KeyError, ValueError):
        # An option with another name, or a value set that does not fit the type of the column.
        rule = None
    if rule is None:
        return _anything
    used.update(each.source for each in operands if isinstance(each.source, int))
    return rule


def _function(call: Call, operands: list[Operand]) -> Rule | None:
    """Return the rule of a function; None if the function or its types are not supported."""
    options = call.options or {}
    match call.function, operands:
        case "is_null", (one,):
            return partial(_is_null, one, bool(options and options["nan_is_null"].as_py()))
        case "is_nan", (one,) if one.kind in ("float", "integer"):
            return partial(_is_nan, one)
        case "is_in", (one,) if one.kind:
            return _membership(one, options)
        case "starts_with", (one,) if one.kind == "item" and not options["ignore_case"].as_py():
            return partial(_compared, [one], _starts(one, options["pattern"]))
        case name, (one, other) if name in _COMPARISONS:
            if any(_is_null_literal(each) for each in operands):
                return partial(_always, None)
            if one.is_comparable_with(other.type):
                return partial(_compared, [one, other], _COMPARISONS[name](one, other))
    return None


def _starts(operand: Operand, pattern: pa.Scalar) -> Tests:
    """Return the tests for a prefix: its items lie between the prefix and its successor."""
    start = pattern.as_buffer().to_pybytes()
    lowest, highest = (
        operand.lowest.cast(pa.large_binary()),
        operand.highest.cast(pa.large_binary()),
    )
    above = above_prefix(start)
    if above is None:
        return [highest >= start], [lowest < start]
    return [highest >= start, lowest < above], [lowest < start, highest >= above]


def _membership(operand: Operand, options: Mapping[str, pa.Scalar]) -> Rule | None:
    values = options["value_set"].values
    if values.type != operand.type:
        return None
    members = values.drop_null()
    if operand.kind == "float":
        members = members.filter(pc.invert(pc.is_nan(members)))
    has_null = values.null_count > 0
    has_nan = len(members) + values.null_count < len(values)
    matching = _NullTest(options["null_matching_behavior"].as_py())
    return partial(_is_in, operand, _Set(members, has_null, has_nan, matching))


def _anything(statistics: ZoneStatistics) -> Kleene:
    return anything(statistics.zones)


def _always(value: bool | None, statistics: ZoneStatistics) -> Kleene:
    return always(value, statistics.zones)


def _connected(
    connective: Callable[[Sequence[Kleene]], Kleene],
    rules: Sequence[Rule],
    statistics: ZoneStatistics,
) -> Kleene:
    return connective([rule(statistics) for rule in rules])


def _is_null_condition(rule: Rule, statistics: ZoneStatistics) -> Kleene:
    flags = rule(statistics)
    return Kleene(flags.null, flags.true | flags.false, np.zeros_like(flags.null))


def _is_null_literal(operand: Operand) -> bool:
    return not isinstance(operand.source, int) and not operand.source.is_valid


def _is_null(operand: Operand, with_nan: bool, statistics: ZoneStatistics) -> Kleene:
    kinds = operand.value_kinds(statistics)
    never = np.zeros_like(kinds.null)
    if with_nan:
        return Kleene(kinds.null | kinds.nan, kinds.value, never)
    return Kleene(kinds.null, kinds.nan | kinds.value, never)


def _is_nan(operand: Operand, statistics: ZoneStatistics) -> Kleene:
    kinds = operand.value_kinds(statistics)
    return Kleene(kinds.nan, kinds.value, kinds.null)


def _is_in(operand: Operand, values: _Set, statistics: ZoneStatistics) -> Kleene:
    kinds = operand.value_kinds(statistics)
    bounds = project_bounds([operand.lowest, operand.highest], [operand], statistics)
    may, must = (True, False) if bounds is None else _among(values.members, *bounds)
    is_matched = values.nulls is _NullTest.MATCH and values.has_null
    is_null = values.nulls in (_NullTest.EMIT_NULL, _NullTest.INCONCLUSIVE)
    true = kinds.value & may | kinds.nan & values.has_nan | kinds.null & is_matched
    false = (
        kinds.value & ~np.bool_(must) | kinds.nan | kinds.null & (not is_matched and not is_null)
    )
    null = kinds.null & is_null
    if values.nulls is _NullTest.INCONCLUSIVE and values.has_null:
        # A value that is not among the members might equal the null.
        return Kleene(true, np.zeros_like(false), null | false)
    return Kleene(true, false, null)


def _among(members: pa.Array, lowest: pa.Array, highest: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """For each zone: True if a member lies within the bounds, True if all values are one member."""
    ranks = pc.rank(pa.concat_arrays([members, lowest, highest]), tiebreaker="dense").to_numpy()
    of_members, low, high = np.split(ranks, np.cumsum([len(members), len(lowest)]))
    # Ranks count from 1. An unknown bound ranks last, which is correct for an upper bound only.
    low = np.where(np.asarray(lowest.is_valid()), low, 0)
    of_members = np.append(np.sort(of_members), len(ranks) + 1)
    may = of_members[np.searchsorted(of_members, low)] <= high
    must = may & (low == high)
    return may, must


def _may_hold(test: pa.Array) -> np.ndarray:
    """Return for each zone whether a test is true, or null because a bound is not known."""
    bits = bits_of(bytes_of(test.buffers()[1]), test.offset, len(test)).view(np.bool_)
    valid = mask_of(test)
    return bits if valid is None else bits | ~valid


def _compared(operands: Sequence[Operand], tests: Tests, statistics: ZoneStatistics) -> Kleene:
    """Evaluate a comparison; it is false for a NaN."""
    kinds = [each.value_kinds(statistics) for each in operands]
    value = np.logical_and.reduce([each.value for each in kinds])
    nan = np.logical_or.reduce([each.nan for each in kinds])
    null = np.logical_or.reduce([each.null for each in kinds])
    if_true, if_false = tests
    results = project_bounds([*if_true, *if_false], operands, statistics)
    if results is None:
        return Kleene(value, value | nan, null)
    holds = list(map(_may_hold, results))
    true = np.logical_and.reduce(holds[: len(if_true)])
    false = np.logical_or.reduce(holds[len(if_true) :])
    return Kleene(value & true, value & false | nan, null)
