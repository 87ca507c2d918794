"""What conditions may be for the rows of runs - true, false, null - and Arrow's connectives.

Each flag is set unless it is known that no row of the run is so: more flags are always sound. Knows
nothing of expressions and statistics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np


@dataclass(frozen=True, slots=True)
class Truth:
    """Of each run: whether a row may be true, may be false, may be null."""

    true: np.ndarray
    false: np.ndarray
    null: np.ndarray


def anything(runs: int) -> Truth:
    """Of what nothing is known."""
    everywhere = np.ones(runs, np.bool_)
    return Truth(everywhere, everywhere, everywhere)


def always(value: bool | None, runs: int) -> Truth:
    """Of one value for all rows."""
    return Truth(*(np.full(runs, value is each) for each in (True, False, None)))


def invert(a: Truth) -> Truth:
    """Null stays null."""
    return Truth(a.false, a.true, a.null)


def and_kleene(operands: Sequence[Truth]) -> Truth:
    """False where any is, else null where any is."""
    return reduce(_and_kleene, operands)


def or_kleene(operands: Sequence[Truth]) -> Truth:
    """True where any is, else null where any is."""
    return invert(and_kleene([invert(each) for each in operands]))


def and_(operands: Sequence[Truth]) -> Truth:
    """Null where any is."""
    return reduce(_and, operands)


def or_(operands: Sequence[Truth]) -> Truth:
    """Null where any is."""
    return invert(and_([invert(each) for each in operands]))


def if_else(condition: Truth, left: Truth, right: Truth) -> Truth:
    """One or the other; null where the condition is."""
    return Truth(
        condition.true & left.true | condition.false & right.true,
        condition.true & left.false | condition.false & right.false,
        condition.true & left.null | condition.false & right.null | condition.null,
    )


def _and_kleene(a: Truth, b: Truth) -> Truth:
    null = a.null & (b.true | b.null) | b.null & (a.true | a.null)
    return Truth(a.true & b.true, a.false | b.false, null)


def _and(a: Truth, b: Truth) -> Truth:
    false = a.false & (b.true | b.false) | b.false & (a.true | a.false)
    return Truth(a.true & b.true, false, a.null | b.null)
