"""Rebase: a change whose base is no longer the newest version when it is published.

Every operation meets every other one. My operation has written its files and is about to take the
writers' lock when another handle commits. Then my operation lands, and the table holds both
changes. Or it raises ConflictError, and the table is as the other handle left it, to the last file.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.engine.version.history import list_versions
from blztable.errors import BusyError, ConflictError
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.moved_first import moved_first
from support.operations import (
    BASE,
    CONFLICTS,
    FIRST,
    OPERATIONS,
    Dropped,
    Model,
    base,
    commit,
    found,
    held,
    listed,
    meanwhile,
    merge,
    more,
    numbered,
    opened,
    renamed,
    written,
)
from support.stores import Hooked, entries, once


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    store = RamStore() if request.param == "memory" else LocalStore(tmp_path / "t.blz")
    written(store)
    yield store
    store.close()


# The operations that conflict with each one. Of those that conflict with the same operations the
# suite has one, and two of those that conflict with themselves alone; of the pairs that do not
# conflict it has every second one. The storm has all.
CONFLICTING = {
    name: frozenset(mine for mine in OPERATIONS if name in CONFLICTS[mine]) for name in OPERATIONS
}
SOME = {*{among: name for name, among in CONFLICTING.items()}.values()}
SOME -= {"attrs b", "vlmeta", "vlmeta of text", "configure"}


PAIRS = [
    pytest.param(
        mine,
        theirs,
        marks=()
        if mine == theirs
        or (theirs in SOME and (theirs in CONFLICTS[mine] or (row + column) % 2 == 0))
        else pytest.mark.storm,
    )
    for (row, mine), (column, theirs) in product(enumerate(OPERATIONS), enumerate(OPERATIONS))
]


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_a_change_lands_on_what_others_committed_or_conflicts(mine, theirs):
    meet(base(), mine, theirs)


def meet(store, mine, theirs):
    before, left = entries(store), set()

    def act():
        mine = entries(store) - before
        commit(store, theirs, "theirs")
        left.update(entries(store) - mine)

    after_theirs = OPERATIONS[theirs].means(BASE, "theirs")
    with opened(meanwhile(store, act), retries=0) as table:
        if theirs in CONFLICTS[mine]:
            with pytest.raises(Dropped if mine == "merge" else ConflictError):
                OPERATIONS[mine].act(table, "mine")
            assert held(table) == BASE
            assert (found(store), entries(store)) == (after_theirs, left)
            return
        OPERATIONS[mine].act(table, "mine")
    assert left
    assert found(store) == OPERATIONS[mine].means(after_theirs, "mine")
    assert versions.numbers(store)[-1] == 4


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("append", "append"),
        ("append", "merge"),
        ("append", "rename"),
        ("append counting on", "append"),
        ("merge", "append"),
        ("merge", "merge"),
        ("add_column", "delete"),
        ("update", "attrs a"),
        ("replace", "restore"),
        ("restore", "replace"),
    ],
)
def test_on_a_disk_it_is_the_same(mine, theirs, tmp_path):
    store = LocalStore(tmp_path / "t.blz")
    written(store)
    meet(store, mine, theirs)
    store.close()


def test_after_a_conflict_the_change_can_be_repeated_on_what_is_there(store):
    place = meanwhile(store, lambda: commit(store, "rename", "theirs"))
    message = "open the table again and rep"
    with opened(place, retries=0) as table, pytest.raises(ConflictError, match=message):
        table.delete([("n", "==", 3)])
    with opened(store) as table:
        table.delete([("m", "==", 3)])
    assert found(store) == renamed(BASE, "theirs").where(lambda n: n != 3)


def test_a_merge_moves_with_its_row_groups_and_minds_no_update_elsewhere(store):
    def theirs():
        with opened(store) as other:
            other.delete([("n", "<", 3)])  # The whole first row group.
            other.update({"text": "new"}, where=[("n", "==", 4)])
            other.append(more("theirs"))

    with opened(meanwhile(store, theirs)) as table:
        merge(table, "mine")
    assert row_groups(store) == (3, 2, 4, 4, 2)
    after = BASE.where(lambda n: n > 2).with_rows(listed(more("theirs")))
    after.columns["text"][1] = "new"
    assert found(store) == after


def row_groups(store):
    with blz.open(store) as table:
        return table._snapshot.version.row_groups


def test_three_that_began_on_one_version_land_one_after_the_other(store):
    third = meanwhile(store, lambda: commit(store, "append", "theirs"))
    second = meanwhile(store, lambda: commit(third, "attrs b", "theirs"))
    with opened(second) as table:
        table.append(numbered(300, 301))
    expected = BASE.with_rows(listed(more("theirs")))
    expected = replace(expected, attrs={"a": 1, "b": "theirs"})
    assert found(store) == expected.with_rows(listed(numbered(300, 301)))
    assert [one.operation for one in list_versions(store)][-3:] == [
        "append",
        "attributes",
        "append",
    ]


def test_a_transaction_lands_whole(store):
    """Each change relies on the changes before it, as they are in the version it lands on."""
    with opened(meanwhile(store, lambda: commit(store, "attrs b", "theirs"))) as table:
        several(table, with_delete=True)
    expected = replace(BASE, attrs={"a": 1, "b": "theirs"})
    assert found(store) == several_mean(expected.where(lambda n: n != 3))


def test_a_transaction_of_what_goes_with_an_append_lands_on_one(store):
    with opened(meanwhile(store, lambda: commit(store, "append", "theirs"))) as table:
        several(table, with_delete=False)
    assert found(store) == several_mean(BASE.with_rows(listed(more("theirs"))))


def test_a_transaction_conflicts_whole(store):
    base, left = entries(store), set()

    def theirs():
        mine = entries(store) - base
        commit(store, "delete", "theirs")
        left.update(entries(store) - mine)

    with opened(meanwhile(store, theirs)) as table, pytest.raises(ConflictError, match="rows of"):
        several(table, with_delete=True)
    assert found(store) == BASE.where(lambda n: n not in (4, 11))
    assert entries(store) == left


def several(table, *, with_delete):
    with table.transaction() as tx:
        tx.append(more("mine"))
        tx.attrs["until"] = 1
        tx.rename_columns({"text": "words"})
        tx.append({"n": [7], "words": ["last"], "x": np.array([0.5], "f4")})
        tx.attrs["until"] = 2
        moved_first(tx, ["words"])
        if with_delete:
            tx.delete([("n", "==", 3)])


def several_mean(model):
    model = model.with_rows(listed(more("mine")))
    model = model.with_rows({"n": [7], "text": ["last"], "x": [0.5]})
    rest = {name: model.columns[name] for name in ("x", "deep")}
    columns = {"words": model.columns["text"], "n": model.n, **rest}
    return replace(model, columns=columns, attrs=model.attrs | {"until": 2})


# If the writers' lock excludes nobody, as on some network disks, the number decides


def racing(store, act):
    """A store that lets others publish under the number that my commit is about to take."""
    return Hooked(store, before=once("publish", act), locks=False)


def test_two_appends_that_race_for_a_number_both_land(store):
    unlocked = Hooked(store, locks=False)
    with opened(racing(store, lambda: commit(unlocked, "append", "theirs"))) as table:
        assert table.append(more("mine")).version == 4
    after_theirs = BASE.with_rows(listed(more("theirs")))
    assert found(store) == after_theirs.with_rows(listed(more("mine")))


def test_a_change_that_lost_the_race_for_a_number_conflicts_as_any_other(store):
    place = racing(store, lambda: commit(Hooked(store, locks=False), "delete", "theirs"))
    with opened(place, retries=0) as table, pytest.raises(ConflictError):
        table.update({"text": "mine"})
    assert found(store) == BASE.where(lambda n: n not in (4, 11))


# The same job twice


@pytest.mark.parametrize("race", [meanwhile, racing])
def test_a_job_that_another_process_did_meanwhile_leaves_no_second_copy(store, race):
    left = set()

    def theirs():
        mine = entries(store) - base
        with opened(Hooked(store, locks=race is meanwhile)) as other:
            assert other.append(more("theirs"), commit_id="day 2").version == 3
        left.update(entries(store) - mine)

    base = entries(store)
    with opened(race(store, theirs)) as table:
        with table.transaction(commit_id="day 2") as tx:
            tx.append(more("theirs"))
            assert not tx.is_repeated
        assert (tx.is_repeated, tx.version) == (True, 3)
    assert found(store) == BASE.with_rows(listed(more("theirs")))
    assert entries(store) == left


def test_a_replacement_that_another_process_did_meanwhile_is_not_made_again(store):
    def theirs():
        blz.to_blz(more("theirs"), store, commit_id="all of it", durability="process")

    blz.to_blz(more("mine"), meanwhile(store, theirs), commit_id="all of it", durability="process")
    assert found(store) == Model(listed(more("theirs")))
    # A replacement keeps the version before it.
    assert versions.numbers(store) == [2, 3]


# A writer that sleeps between its base and its publication


def test_a_writer_that_slept_while_others_committed_and_vacuumed_loses_and_doubles_nothing(store):
    with opened(store) as table:
        table.configure(keep_versions=1)
    days = range(20, 40)

    def others():
        for day in days:
            with opened(store) as other:
                other.append(numbered(day, day + 1))
        with opened(store) as other:
            other.compact()
            with pytest.raises(BusyError, match="a writer or a transaction was active"):
                other.vacuum(keep=1, wait=0)

    with opened(meanwhile(store, others)) as table:
        base = table.version
        table.append(more("mine"))
        # All versions between the base, which it had pinned, and the newest are removed.
        assert len(set(versions.numbers(store)) - {base, table.version}) <= 1
    expected = BASE.with_rows(listed(numbered(20, 40)))
    expected = replace(expected.with_rows(listed(more("mine"))), keep=1)
    assert found(store) == expected
    with opened(store) as table:
        removed = table.vacuum(keep=1)
        assert table.to_arrow().num_rows == len(expected)
    assert removed.files >= len(removed.versions)
    assert found(store) == expected


def test_a_sleeper_whose_rows_were_replaced_and_vacuumed_conflicts_and_is_gone(store):
    with opened(store) as table:
        table.configure(keep_versions=1)

    def others():
        blz.to_blz(more("theirs"), store, durability="process")
        commit(store, "append", "theirs")

    before = Model(listed(more("theirs")), keep=1)
    with opened(meanwhile(store, others), retries=0) as table:
        with pytest.raises(ConflictError, match="relies on the columns"):
            table.append(more("mine"))
        # The version it shows is pinned and complete.
        assert held(table) == replace(BASE, keep=1)
    with opened(store) as table:
        table.vacuum(keep=1)
    assert found(store) == before.with_rows(listed(more("theirs")))
    assert versions.numbers(store) == [5]


def test_a_table_that_is_gone_and_made_anew_takes_no_change_of_the_old_one(store):
    def others():
        store.delete([layout.manifest(2), layout.manifest(1)])
        blz.to_blz(FIRST, store, durability="process")
        blz.to_blz(FIRST, store, durability="process")

    with (
        opened(meanwhile(store, others)) as table,
        pytest.raises(ConflictError, match="dropped or replaced"),
    ):
        table.attrs["a"] = "mine"
    with blz.open(store) as table:
        # `meta/sizes` mentions version 2: its number is not used again.
        assert (held(table), table.version) == (Model(listed(FIRST)), 4)
