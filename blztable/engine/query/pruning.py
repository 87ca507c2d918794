"""Pruning: find the runs of rows that a filter can skip or keep whole, from statistics alone.

A run is a row group or a page. Knows nothing of files, nor of the origin of the statistics.

Theory of operation. `Pruner` compiles the term of a filter once, into a tree of rules; a rule maps
the statistics of all runs to three flags a run (`kleene`): a row may be true, false, null. A
function that is not understood sets all three, which prunes nothing and is never wrong.
Connectives combine flags. Arrow itself evaluates a comparison, with columns of bounds in the place
of the columns, all runs in one call: the types and literals are the same as for rows, so Arrow
inserts the same casts. These casts preserve the order of values (`operands`), so what holds for
both bounds holds for each value between them. The caller's thread does all of it; time and memory
are bounded by the number of runs, not of rows.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.errors import REFUSALS
from blztable.columns.statistics.bounds import Runs
from blztable.columns.statistics.prefixes import above_prefix
from blztable.engine.query import kleene
from blztable.engine.query.expression_tree import Call, Field, Literal, Term, tree
from blztable.engine.query.kleene import Kleene
from blztable.engine.query.operands import Operand, RunStatistics, operand, project_bounds

Rule = Callable[[RunStatistics], Kleene]
# Two lists of conditions on the bounds of two operands: if a row may be true, all conditions of the
# first list hold; if a row may be false, at least one of the second.
Tests = tuple[list[pc.Expression], list[pc.Expression]]

_CONNECTIVES: dict[str, Callable[[Sequence[Kleene]], Kleene]] = {
    "and_kleene": kleene.and_kleene,
    "or_kleene": kleene.or_kleene,
    "and": kleene.and_,
    "or": kleene.or_,
    "invert": lambda operands: kleene.invert(*operands),
    "if_else": lambda operands: kleene.if_else(*operands),
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


class _Nulls(enum.Enum):
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
    nulls: _Nulls


@dataclass(frozen=True, slots=True)
class Match:
    """For each run: True if a row may match the filter, True if all rows must match it."""

    may: np.ndarray
    must: np.ndarray


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

    def evaluate(self, runs: int, columns: Mapping[int, Runs]) -> Match:
        """Match each of `runs` runs, none empty, given the statistics by column index."""
        flags = self._rule(RunStatistics(runs, columns))
        return Match(flags.true, ~(flags.false | flags.null))


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
    operands = [one for each in call.arguments if (one := operand(each, schema)) is not None]
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


def _starts(one: Operand, pattern: pa.Scalar) -> Tests:
    """Return the tests for a prefix: its items lie between the prefix and its successor."""
    start = pattern.as_buffer().to_pybytes()
    lowest, highest = one.lowest.cast(pa.large_binary()), one.highest.cast(pa.large_binary())
    above = above_prefix(start, is_text=False)
    if above is None:
        return [highest >= start], [lowest < start]
    return [highest >= start, lowest < above], [lowest < start, highest >= above]


def _membership(one: Operand, options: Mapping[str, pa.Scalar]) -> Rule | None:
    values = options["value_set"].values
    if values.type != one.type:
        return None
    members = values.drop_null()
    if one.kind == "float":
        members = members.filter(pc.invert(pc.is_nan(members)))
    has_null = values.null_count > 0
    has_nan = len(members) + values.null_count < len(values)
    matching = _Nulls(options["null_matching_behavior"].as_py())
    return partial(_is_in, one, _Set(members, has_null, has_nan, matching))


def _anything(statistics: RunStatistics) -> Kleene:
    return kleene.anything(statistics.runs)


def _always(value: bool | None, statistics: RunStatistics) -> Kleene:
    return kleene.always(value, statistics.runs)


def _connected(
    connective: Callable[[Sequence[Kleene]], Kleene],
    rules: Sequence[Rule],
    statistics: RunStatistics,
) -> Kleene:
    return connective([rule(statistics) for rule in rules])


def _is_null_condition(rule: Rule, statistics: RunStatistics) -> Kleene:
    flags = rule(statistics)
    return Kleene(flags.null, flags.true | flags.false, np.zeros_like(flags.null))


def _is_null_literal(one: Operand) -> bool:
    return not isinstance(one.source, int) and not one.source.is_valid


def _is_null(one: Operand, with_nan: bool, statistics: RunStatistics) -> Kleene:
    kinds = one.value_kinds(statistics)
    never = np.zeros_like(kinds.null)
    if with_nan:
        return Kleene(kinds.null | kinds.nan, kinds.value, never)
    return Kleene(kinds.null, kinds.nan | kinds.value, never)


def _is_nan(one: Operand, statistics: RunStatistics) -> Kleene:
    kinds = one.value_kinds(statistics)
    return Kleene(kinds.nan, kinds.value, kinds.null)


def _is_in(one: Operand, values: _Set, statistics: RunStatistics) -> Kleene:
    kinds = one.value_kinds(statistics)
    bounds = project_bounds([one.lowest, one.highest], [one], statistics)
    may, must = (True, False) if bounds is None else _among(values.members, *bounds)
    is_matched = values.nulls is _Nulls.MATCH and values.has_null
    is_null = values.nulls in (_Nulls.EMIT_NULL, _Nulls.INCONCLUSIVE)
    true = kinds.value & may | kinds.nan & values.has_nan | kinds.null & is_matched
    false = (
        kinds.value & ~np.bool_(must) | kinds.nan | kinds.null & (not is_matched and not is_null)
    )
    null = kinds.null & is_null
    if values.nulls is _Nulls.INCONCLUSIVE and values.has_null:
        # A value that is not among the members might equal the null.
        return Kleene(true, np.zeros_like(false), null | false)
    return Kleene(true, false, null)


def _among(members: pa.Array, lowest: pa.Array, highest: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """For each run: True if a member lies within the bounds, True if all values are one member."""
    ranks = pc.rank(pa.concat_arrays([members, lowest, highest]), tiebreaker="dense").to_numpy()
    of_members, low, high = np.split(ranks, np.cumsum([len(members), len(lowest)]))
    # Ranks count from 1. An unknown bound ranks last, which is correct for an upper bound only.
    low = np.where(np.asarray(lowest.is_valid()), low, 0)
    of_members = np.append(np.sort(of_members), len(ranks) + 1)
    may = of_members[np.searchsorted(of_members, low)] <= high
    must = may & (low == high)
    return may, must


def _compared(operands: Sequence[Operand], tests: Tests, statistics: RunStatistics) -> Kleene:
    """Evaluate a comparison; it is false for a NaN."""
    kinds = [each.value_kinds(statistics) for each in operands]
    value = np.logical_and.reduce([each.value for each in kinds])
    nan = np.logical_or.reduce([each.nan for each in kinds])
    null = np.logical_or.reduce([each.null for each in kinds])
    if_true, if_false = tests
    results = project_bounds([*if_true, *if_false], operands, statistics)
    if results is None:
        return Kleene(value, value | nan, null)
    holds = [np.asarray(pc.fill_null(test, True)) for test in results]
    true = np.logical_and.reduce(holds[: len(if_true)])
    false = np.logical_or.reduce(holds[len(if_true) :])
    return Kleene(value & true, value & false | nan, null)
