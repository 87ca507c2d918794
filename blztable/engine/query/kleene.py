"""Three-valued logic over runs of rows: whether a condition may be true, false or null.

Knows nothing of expressions and statistics. A flag is set unless no row of the run can have that
value, so setting more flags is always sound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np


@dataclass(frozen=True, slots=True)
class Kleene:
    """For each run: True if some row may be true, may be false, may be null."""

    true: np.ndarray
    false: np.ndarray
    null: np.ndarray


def anything(runs: int) -> Kleene:
    """Return the flags of a condition about which nothing is known."""
    everywhere = np.ones(runs, np.bool_)
    return Kleene(everywhere, everywhere, everywhere)


def always(value: bool | None, runs: int) -> Kleene:
    """Return the flags of a condition that has the same value for all rows."""
    return Kleene(*(np.full(runs, value is each) for each in (True, False, None)))


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
