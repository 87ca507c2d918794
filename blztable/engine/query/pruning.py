"""Which runs of rows a filter may pass over, and which it takes whole, from statistics alone.

A run is a row group or a page. Knows nothing of files, nor where the statistics come from.

What a condition may be for the rows of a run - true, false, null - are three flags, all set of what
is not understood. Connectives combine them (`truth`). Comparisons are made by Arrow, of bounds in
the place of columns, all runs at once: the same types and literals, hence the same casts. They
keep the order of values (`operands`), so what holds for the bounds holds for what is between.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow_errors import REFUSALS
from blztable.columns.statistics.bounds import Runs
from blztable.columns.statistics.prefixes import above_prefix
from blztable.engine.query import kleene
from blztable.engine.query.expression_tree import Call, Field, Literal, Term, tree
from blztable.engine.query.kleene import Truth
from blztable.engine.query.operands import Known, Operand, of_bounds, operand

Rule = Callable[[Known], Truth]
# Of two operands' bounds: what all hold where a row may be true, and where one may be false any.
Tests = tuple[list[pc.Expression], list[pc.Expression]]

_CONNECTIVES: dict[str, Callable[[Sequence[Truth]], Truth]] = {
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
    """What `is_in` makes of a null, as Arrow numbers it."""

    MATCH = 0
    SKIP = 1
    EMIT_NULL = 2
    INCONCLUSIVE = 3


@dataclass(frozen=True, slots=True)
class _Set:
    """The values that are looked for: those that have an order, and whether there are others."""

    members: pa.Array
    has_null: bool
    has_nan: bool
    nulls: _Nulls


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of each run: whether the filter may be true for a row, and whether it is true for all."""

    some: np.ndarray
    every: np.ndarray


class Pruner:
    """A filter, ready to judge runs of rows of tables of one schema.

    `columns` are the positions of the columns whose statistics help.
    """

    def __init__(
        self, expression: pc.Expression, schema: pa.Schema, term: Term | None = None
    ) -> None:
        """Understand the filter, whose tree may be known already."""
        used: set[int] = set()
        term = term or tree(expression)
        self._rule = _anything if term is None else _rule(term, schema, used)
        self.columns = tuple(sorted(used))

    def judge(self, count: int, known: Mapping[int, Runs]) -> Verdict:
        """The verdict on so many runs, none empty, by what is known of columns, by position."""
        found = self._rule(Known(count, known))
        return Verdict(found.true, ~(found.false | found.null))


def _rule(term: Term, schema: pa.Schema, used: set[int]) -> Rule:
    """How to judge what a term may be; columns whose statistics help are added to those used."""
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
            # Of a condition: NaN it is not.
            return partial(_is_null_condition, _rule(argument, schema, used))
        case Call():
            return _leaf(term, schema, used)
    return _anything


def _leaf(call: Call, schema: pa.Schema, used: set[int]) -> Rule:
    """How to judge what a function of operands may be."""
    found = [operand(argument, schema) for argument in call.arguments]
    operands = [each for each in found if each is not None]
    if len(operands) < len(found):
        return _anything
    try:
        rule = _function(call, operands)
    except (*REFUSALS, KeyError, ValueError):
        # Options of another name, a set of values that the column's type does not hold.
        rule = None
    if rule is None:
        return _anything
    used.update(each.source for each in operands if isinstance(each.source, int))
    return rule


def _function(call: Call, operands: list[Operand]) -> Rule | None:
    """The rule of a function that is understood."""
    options = call.options or {}
    match call.function, operands:
        case "is_null", (one,):
            return partial(_is_null, one, bool(options and options["nan_is_null"].as_py()))
        case "is_nan", (one,) if one.kind in ("float", "integer"):
            return partial(_is_nan, one)
        case "is_in", (one,) if one.kind:
            return _of_set(one, options)
        case "starts_with", (one,) if one.kind == "item" and not options["ignore_case"].as_py():
            return partial(_compared, [one], _starts(one, options["pattern"]))
        case name, (one, other) if name in _COMPARISONS:
            if any(_is_null_literal(each) for each in operands):
                return partial(_always, None)
            if one.goes_with(other.type):
                return partial(_compared, [one, other], _COMPARISONS[name](one, other))
    return None


def _starts(one: Operand, pattern: pa.Scalar) -> Tests:
    """Items that start alike are those from the start itself to the next that does not have it."""
    start = pattern.as_buffer().to_pybytes()
    lowest, highest = one.lowest.cast(pa.large_binary()), one.highest.cast(pa.large_binary())
    above = above_prefix(start, is_text=False)
    if above is None:
        return [highest >= start], [lowest < start]
    return [highest >= start, lowest < above], [lowest < start, highest >= above]


def _of_set(one: Operand, options: Mapping[str, pa.Scalar]) -> Rule | None:
    values = options["value_set"].values
    if not pa.types.is_null(values.type) and not one.goes_with(values.type):
        return None
    # As Arrow does.
    values = values.cast(one.type)
    members = values.drop_null()
    if one.kind == "float":
        members = members.filter(pc.invert(pc.is_nan(members)))
    has_null = values.null_count > 0
    has_nan = len(members) + values.null_count < len(values)
    matching = _Nulls(options["null_matching_behavior"].as_py())
    return partial(_is_in, one, _Set(members, has_null, has_nan, matching))


def _anything(known: Known) -> Truth:
    return kleene.anything(known.count)


def _always(value: bool | None, known: Known) -> Truth:
    return kleene.always(value, known.count)


def _connected(
    connective: Callable[[Sequence[Truth]], Truth], rules: Sequence[Rule], known: Known
) -> Truth:
    return connective([rule(known) for rule in rules])


def _is_null_condition(rule: Rule, known: Known) -> Truth:
    found = rule(known)
    return Truth(found.null, found.true | found.false, np.zeros_like(found.null))


def _is_null_literal(one: Operand) -> bool:
    return not isinstance(one.source, int) and not one.source.is_valid


def _is_null(one: Operand, with_nan: bool, known: Known) -> Truth:
    rows = one.rows(known)
    never = np.zeros_like(rows.null)
    if with_nan:
        return Truth(rows.null | rows.nan, rows.value, never)
    return Truth(rows.null, rows.nan | rows.value, never)


def _is_nan(one: Operand, known: Known) -> Truth:
    rows = one.rows(known)
    return Truth(rows.nan, rows.value, rows.null)


def _is_in(one: Operand, values: _Set, known: Known) -> Truth:
    rows = one.rows(known)
    bounds = of_bounds([one.lowest, one.highest], [one], known)
    some, only = (True, False) if bounds is None else _among(values.members, *bounds)
    is_matched = values.nulls is _Nulls.MATCH and values.has_null
    is_null = values.nulls in (_Nulls.EMIT_NULL, _Nulls.INCONCLUSIVE)
    true = rows.value & some | rows.nan & values.has_nan | rows.null & is_matched
    false = rows.value & ~np.bool_(only) | rows.nan | rows.null & (not is_matched and not is_null)
    null = rows.null & is_null
    if values.nulls is _Nulls.INCONCLUSIVE and values.has_null:
        # Who is not among the others might be the null.
        return Truth(true, np.zeros_like(false), null | false)
    return Truth(true, false, null)


def _among(members: pa.Array, lowest: pa.Array, highest: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Of each run: whether a member lies between the bounds, and whether all is one member."""
    ranks = pc.rank(pa.concat_arrays([members, lowest, highest]), tiebreaker="dense").to_numpy()
    of_members, low, high = np.split(ranks, np.cumsum([len(members), len(lowest)]))
    # Ranks count from 1, and a bound that is not known ranks last, which is right for an upper one.
    low = np.where(np.asarray(lowest.is_valid()), low, 0)
    of_members = np.append(np.sort(of_members), len(ranks) + 1)
    some = of_members[np.searchsorted(of_members, low)] <= high
    only = some & (low == high)
    if pa.types.is_floating(lowest.type):
        # A bound of zero is of either sign, a set is of one.
        only &= np.asarray(pc.fill_null(pc.not_equal(lowest, 0), False))
    return some, only


def _compared(operands: Sequence[Operand], tests: Tests, known: Known) -> Truth:
    """A comparison, which is false of a NaN."""
    rows = [each.rows(known) for each in operands]
    value = np.logical_and.reduce([each.value for each in rows])
    nan = np.logical_or.reduce([each.nan for each in rows])
    null = np.logical_or.reduce([each.null for each in rows])
    if_true, if_false = tests
    found = of_bounds([*if_true, *if_false], operands, known)
    if found is None:
        return Truth(value, value | nan, null)
    held = [np.asarray(pc.fill_null(test, True)) for test in found]
    true = np.logical_and.reduce(held[: len(if_true)])
    false = np.logical_or.reduce(held[len(if_true) :])
    return Truth(value & true, value & false | nan, null)
