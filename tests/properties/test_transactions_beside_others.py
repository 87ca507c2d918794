"""Transactions of several operations beside every other commit: they land whole, or not at all.

A transaction has written its files and is about to take the writers' lock when another handle
commits. Then the transaction lands on that commit, and the table holds both, one after the other.
Or it raises ConflictError, and the table is as the other handle left it, to the last file.
"""

import random
from dataclasses import replace
from functools import cache

import pytest

from blztable.engine.version import versions
from blztable.errors import ColumnNotFoundError, ConflictError, SchemaError
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.operations import (
    BASE,
    CONFLICTS,
    OPERATIONS,
    SEEDS,
    Operation,
    base,
    commit,
    found,
    held,
    listed,
    meanwhile,
    numbered,
    opened,
    written,
)
from support.stores import entries

# The operations of a transaction. Replacement, restoration and tags are commits of their own, and a
# merge follows another commit.
MINE = {
    name: operation
    for name, operation in OPERATIONS.items()
    if name not in ("replace", "restore", "merge", "tag")
}
# One row fits into a row group with earlier rows, so a compaction joins them.
MINE["append one row"] = Operation(
    lambda t, who: t.append(numbered(SEEDS[who], SEEDS[who] + 1)),
    lambda m, who: m.with_rows(listed(numbered(SEEDS[who], SEEDS[who] + 1))),
)
VERBS = [*MINE]
MINE_CONFLICTS = {"append one row": CONFLICTS["append"], **CONFLICTS}
# Each first operation meets every sixth commit of others, with a random second operation, and
# each commit meets every sixth first one. The storm takes all.
PAIRS = [
    (first, theirs)
    for row, first in enumerate(VERBS)
    for column, theirs in enumerate(OPERATIONS)
    if (row + column) % 6 == 0
]
TRIPLES = 12
# Other commits that add rows.
GROWING = (
    "append",
    "append some columns",
    "append counting on",
    "resize",
    "upsert",
    "replace_where",
)


def means(model, verb, seen):
    """Return the table after my operation; `seen` is the number of rows that it sorted, if any."""
    if seen is None:
        return MINE[verb].means(model, "mine")
    # Rows that did not exist when it sorted stay behind the others.
    # Nulls come last.
    first = sorted(range(seen), key=lambda row: (model.n[row] is None, -(model.n[row] or 0)))
    name = "n" if "n" in model.columns else "m"
    model = model.rows([*first, *range(seen, len(model))])
    return replace(model, order=((name, "descending"),))


@cache
def alone(verbs):
    """Return the rows that each operation sorts alone; None if the operations do not combine."""
    store, seen = base(), []
    try:
        with opened(store) as table, table.transaction() as tx:
            for verb in verbs:
                # A sorted table is sorted again when it is compacted.
                sorts = verb == "sort" or (verb == "compact" and tx.storage.sort_by)
                seen.append(len(tx) if sorts else None)
                MINE[verb].act(tx, "mine")
    except (SchemaError, ColumnNotFoundError):
        return None
    expected = BASE
    for verb, rows in zip(verbs, seen, strict=True):
        expected = means(expected, verb, rows)
    assert found(store) == expected
    return seen


def run(table, verbs):
    with table.transaction() as tx:
        for verb in verbs:
            MINE[verb].act(tx, "mine")


def meet(store, verbs, theirs):
    """Return True if the transaction landed beside the other commit."""
    seen = alone(verbs)
    before, left = entries(store), set()

    def act():
        mine = entries(store) - before
        commit(store, theirs, "theirs")
        left.update(entries(store) - mine)

    with opened(meanwhile(store, act)) as table:
        try:
            run(table, verbs)
        except ConflictError:
            assert held(table) == BASE
            assert found(store) == OPERATIONS[theirs].means(BASE, "theirs")
            assert entries(store) == left
            return False
        if table.version == 2:
            # There was nothing to do, so nothing was committed.
            assert not left
            assert found(store) == BASE
            return True
    # Versions 3 and 4, one after the other; small row groups may be merged in a version 5.
    expected = OPERATIONS[theirs].means(BASE, "theirs")
    for verb, rows in zip(verbs, seen, strict=True):
        expected = means(expected, verb, rows)
    assert found(store) == expected
    assert versions.numbers(store)[-1] in (4, 5)
    return True


def land(first, theirs, seconds):
    """Check transactions of two operations beside a commit; return how many landed."""
    landed = 0
    for second in seconds:
        if alone((first, second)) is None:
            continue
        if meet(base(), (first, second), theirs):
            landed += 1
        else:
            assert may_conflict((first, second), theirs), second
    return landed


@pytest.mark.parametrize(("first", "theirs"), PAIRS)
def test_a_transaction_of_two_operations_lands_whole_on_any_commit_or_conflicts(first, theirs):
    land(first, theirs, [random.Random(f"{first}, {theirs}").choice(VERBS)])


@pytest.mark.storm
@pytest.mark.parametrize("theirs", OPERATIONS)
@pytest.mark.parametrize("first", VERBS)
def test_a_transaction_of_any_two_operations_lands_whole_or_conflicts(first, theirs):
    assert land(first, theirs, VERBS) or theirs in MINE_CONFLICTS[first]


def may_conflict(verbs, theirs):
    """True if an operation relies on a fact that the other commit changes, or their rows mix."""
    if any(theirs in MINE_CONFLICTS[verb] for verb in verbs):
        return True
    grown = "append" in verbs[0] or verbs[0] in GROWING
    return grown and "sort" in verbs[1:] and theirs in GROWING


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(2, 10))]
)
def test_transactions_of_three_random_operations_land_whole_or_conflict(seed):
    assert land_three(seed)


@pytest.mark.usefixtures("bundled", "batched")
@pytest.mark.parametrize("seed", range(100, 102))
def test_they_do_so_where_columns_are_written_and_read_together(seed):
    assert land_three(seed)


def land_three(seed):
    """Check transactions of three operations beside a commit; return how many landed."""
    draw, met, landed = random.Random(seed), 0, 0
    while met < TRIPLES:
        verbs = tuple(draw.choices(VERBS, k=3))
        if alone(verbs) is not None:
            landed += meet(base(), verbs, draw.choice([*OPERATIONS]))
            met += 1
    return landed


def test_a_compaction_that_is_dropped_gives_back_the_rows_appended_before_it(tmp_path):
    """A compaction joins the appended rows with others; it is dropped because of another append."""
    for store in (RamStore(), LocalStore(tmp_path / "t.blz")):
        written(store)
        assert meet(store, ("append one row", "compact"), "append")
