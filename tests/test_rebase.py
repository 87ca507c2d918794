"""Rebase: what becomes of a change when someone else commits between its base and its publication.

Every operation meets every other one. Mine has written its files and is about to take the writers'
lock when theirs is committed by another handle. Then mine lands with what both together mean, or
it is a ConflictError and the table is as theirs left it, to the last file.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest
from engine.stores import Hooked, once, tree

import blztable as blz
from blztable.engine import versions
from blztable.engine.history import listed
from blztable.engine.maintain import merge_after
from blztable.engine.options import WriteOptions
from blztable.errors import BusyError, ConflictError
from blztable.format import layout
from blztable.format.line import NO_FILE
from blztable.storage.local import LocalStore
from blztable.storage.memory import MemoryStore


@dataclass(frozen=True)
class Model:
    """What a table holds: columns in their order, attributes, how many versions are kept."""

    columns: dict[str, list]
    attrs: dict = field(default_factory=dict)
    keep: int | None = None

    def rows(self, order) -> "Model":
        columns = {name: [cells[row] for row in order] for name, cells in self.columns.items()}
        return replace(self, columns=columns)

    @property
    def n(self) -> list[int]:
        return next(iter(self.columns[name] for name in ("n", "m") if name in self.columns))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def where(self, kept: Callable[[int], bool]) -> "Model":
        return self.rows([row for row, n in enumerate(self.n) if kept(n)])

    def with_rows(self, more: dict) -> "Model":
        """More rows; a column that they have not is null there."""
        count = len(next(iter(more.values())))
        return replace(
            self,
            columns={
                name: cells + list(more.get(name, [None] * count))
                for name, cells in self.columns.items()
            },
        )


def numbered(start, stop):
    numbers = range(start, stop)
    return pd.DataFrame(
        {
            "n": list(numbers),
            "text": [f"row {n}" for n in numbers],
            "x": np.array(numbers, "f4") / 2,
        }
    )


FIRST = numbered(0, 8)
# 16 rows: 3, 3 and 2, then eight of one, which are to be merged.
ROWS = 16
BASE = Model(numbered(0, ROWS).to_dict("list"), {"a": 1})
SEEDS = {"mine": 100, "theirs": 200}


def more(who):
    start = SEEDS[who]
    return numbered(start, start + 2)


def with_index(who):
    return more(who).set_index(pd.RangeIndex(ROWS, ROWS + 2))


def wider(who):
    return more(who).assign(x=[0.1, 0.2], extra=["new", who])


def evolved(model, who):
    """More columns first, then rows."""
    wide = replace(model, columns=model.columns | {"extra": [None] * len(model)})
    return wide.with_rows(wider(who).to_dict("list"))


def new_values(who, rows):
    return [SEEDS[who] + row for row in range(rows)]


def reordered(model):
    return replace(model, columns={name: model.columns[name] for name in ("x", "n", "text")})


def renamed(model, who):
    names = {"n": "m", "text": f"{who}'s text"}
    return replace(model, columns={names.get(k, k): v for k, v in model.columns.items()})


def dropped(model, name):
    return replace(model, columns={k: v for k, v in model.columns.items() if k != name})


def updated(model, who):
    text = [who if n == 12 else t for n, t in zip(model.n, model.columns["text"], strict=True)]
    return replace(model, columns=model.columns | {"text": text})


def resized(model, rows):
    count = rows - len(model)
    return model.with_rows({"n": [0] * count, "text": [None] * count})


def merge(table, who):
    """What follows an append, when it is time."""
    made = merge_after(table._snapshot.version, WriteOptions(row_group_rows=4))
    if made is None:
        raise Dropped
    made[1].close()


class Dropped(Exception):
    """A merge came too late and said nothing."""


@dataclass(frozen=True)
class Operation:
    act: Callable
    # What it makes of a table.
    means: Callable[[Model, str], Model] = lambda model, who: model


OPERATIONS = {
    "append": Operation(
        lambda t, who: t.append(more(who)),
        lambda m, who: m.with_rows(more(who).to_dict("list")),
    ),
    "append counting on": Operation(
        lambda t, who: t.append(with_index(who)),
        lambda m, who: m.with_rows(more(who).to_dict("list")),
    ),
    "append evolving": Operation(lambda t, who: t.append(wider(who), evolve=True), evolved),
    "merge": Operation(merge),
    "compact": Operation(lambda t, who: t.compact()),
    "sort": Operation(
        lambda t, who: t.compact(sort_by=[("n", "descending")]),
        # What was appended meanwhile lies behind.
        lambda m, who: m.rows([*reversed(range(ROWS)), *range(ROWS, len(m))]),
    ),
    "add_column": Operation(
        lambda t, who: t.add_column("new", new_values(who, t.nrows)),
        lambda m, who: replace(m, columns=m.columns | {"new": new_values(who, len(m))}),
    ),
    "drop": Operation(lambda t, who: t.drop_columns(["text"]), lambda m, who: dropped(m, "text")),
    "rename": Operation(
        lambda t, who: t.rename_columns({"n": "m", "text": f"{who}'s text"}), renamed
    ),
    "reorder": Operation(lambda t, who: t.reorder_columns(["x"]), lambda m, who: reordered(m)),
    "update": Operation(lambda t, who: t.update({"text": who}, where=[("n", "==", 12)]), updated),
    "delete": Operation(
        lambda t, who: t.delete([("n", "in", [4, 11])]),
        lambda m, who: m.where(lambda n: n not in (4, 11)),
    ),
    "truncate": Operation(lambda t, who: t.truncate(10), lambda m, who: m.rows(range(10))),
    "resize": Operation(lambda t, who: t.resize(18), lambda m, who: resized(m, 18)),
    "replace": Operation(
        lambda t, who: blz.to_blz(
            more(who), t._snapshot.version.store, attrs={"by": who}, durability="process"
        ),
        lambda m, who: Model(more(who).to_dict("list"), {"by": who}, m.keep),
    ),
    "restore": Operation(
        lambda t, who: t.restore(1),
        lambda m, who: Model(FIRST.to_dict("list"), {"a": 1}, m.keep),
    ),
    "attrs a": Operation(
        lambda t, who: t.attrs.update(a=who),
        lambda m, who: replace(m, attrs=m.attrs | {"a": who}),
    ),
    "attrs b": Operation(
        lambda t, who: t.attrs.update(b=who),
        lambda m, who: replace(m, attrs=m.attrs | {"b": who}),
    ),
    "set_retention": Operation(
        lambda t, who: t.set_retention(versions=SEEDS[who]),
        lambda m, who: replace(m, keep=SEEDS[who]),
    ),
}

# What each relies on, by the operations of others that change it (DESIGN 3.3).
COLUMNS = {"append evolving", "add_column", "drop", "rename", "reorder", "replace"}
COUNT = {"append", "append counting on", "delete", "truncate", "resize", "restore"}
ROW_GROUPS = COUNT | {"merge", "compact", "sort", "update"}
# The row groups that are joined, all of those that were there: more behind them do no harm.
JOINED = {"merge", "compact", "sort", "update", "delete", "truncate", "restore"}
CONFLICTS = {
    "append": COLUMNS,
    "append counting on": COLUMNS | COUNT,
    "append evolving": COLUMNS | ROW_GROUPS,
    "merge": COLUMNS | JOINED,
    # Where only some of its row groups were changed, the others are joined.
    "compact": COLUMNS | {"merge", "compact", "sort", "truncate", "restore"},
    "sort": COLUMNS | JOINED,
    "add_column": COLUMNS | ROW_GROUPS,
    "drop": COLUMNS,
    "rename": COLUMNS,
    "reorder": COLUMNS,
    "update": COLUMNS | ROW_GROUPS,
    "delete": COLUMNS | ROW_GROUPS,
    "truncate": COLUMNS | ROW_GROUPS,
    "resize": COLUMNS | ROW_GROUPS,
    "replace": set(),
    "restore": set(),
    "attrs a": {"attrs a", "replace"},
    "attrs b": {"attrs b"},
    "set_retention": {"set_retention"},
}


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "t.blz")
    written(store)
    yield store
    store.close()


def written(store):
    blz.to_blz(FIRST, store, attrs={"a": 1}, row_group_rows=3, durability="process")
    blz.to_blz(numbered(8, ROWS), store, mode="a", row_group_rows=1, durability="process")


def opened(store):
    return blz.open(store, "a", durability="process")


def commit(store, name, who):
    with opened(store) as table:
        OPERATIONS[name].act(table, who)


def found(store):
    """The newest version, found whole, with no file that no version names."""
    assert files_there(store) == files_named(store)
    with blz.open(store) as table:
        assert table.verify().is_intact
        return held(table)


def held(table):
    columns = table.to_arrow().to_pydict()
    keep = table._snapshot.version.head.properties.get("keep_versions")
    return Model(columns, dict(table.attrs), keep)


def files_named(store):
    named = set()
    for number in versions.numbers(store):
        version = versions.read(store, number)
        for index, path in enumerate(version.head.columns.paths):
            named |= {layout.part(path, k) for k in version.column(index).k if k != NO_FILE}
    return named


def files_there(store):
    return {key for key in tree(store) if key.startswith("data/") and key.endswith(".bin")}


def meanwhile(store, act, **options):
    """A store that lets others act once, when the first writer is about to publish."""
    return Hooked(store, before=once("lock", act, layout.LOCK), **options)


@pytest.mark.parametrize("theirs", OPERATIONS)
@pytest.mark.parametrize("mine", OPERATIONS)
def test_a_change_lands_on_what_others_committed_or_conflicts(mine, theirs):
    store = MemoryStore()
    written(store)
    meet(store, mine, theirs)


def meet(store, mine, theirs):
    base, left = tree(store), set()

    def act():
        mine = tree(store) - base
        commit(store, theirs, "theirs")
        left.update(tree(store) - mine)

    after_theirs = OPERATIONS[theirs].means(BASE, "theirs")
    with opened(meanwhile(store, act)) as table:
        if theirs in CONFLICTS[mine]:
            with pytest.raises(Dropped if mine == "merge" else ConflictError):
                OPERATIONS[mine].act(table, "mine")
            assert held(table) == BASE
            assert (found(store), tree(store)) == (after_theirs, left)
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
    with opened(place) as table, pytest.raises(ConflictError, match="open the table again and rep"):
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
    after = BASE.where(lambda n: n > 2).with_rows(more("theirs").to_dict("list"))
    after.columns["text"][1] = "new"
    assert found(store) == after


def row_groups(store):
    with blz.open(store) as table:
        return table._snapshot.version.head.row_groups


def test_three_that_began_on_one_version_land_one_after_the_other(store):
    third = meanwhile(store, lambda: commit(store, "append", "theirs"))
    second = meanwhile(store, lambda: commit(third, "attrs b", "theirs"))
    with opened(second) as table:
        table.append(numbered(300, 301))
    expected = BASE.with_rows(more("theirs").to_dict("list"))
    expected = replace(expected, attrs={"a": 1, "b": "theirs"})
    assert found(store) == expected.with_rows(numbered(300, 301).to_dict("list"))
    assert [one.operation for one in listed(store)][-3:] == ["append", "attributes", "append"]


def test_a_transaction_lands_whole(store):
    """Each of its changes relies on those before it, as they are in the version it lands on."""
    with opened(meanwhile(store, lambda: commit(store, "attrs b", "theirs"))) as table:
        several(table, with_delete=True)
    expected = replace(BASE, attrs={"a": 1, "b": "theirs"})
    assert found(store) == several_mean(expected.where(lambda n: n != 3))


def test_a_transaction_of_what_goes_with_an_append_lands_on_one(store):
    with opened(meanwhile(store, lambda: commit(store, "append", "theirs"))) as table:
        several(table, with_delete=False)
    assert found(store) == several_mean(BASE.with_rows(more("theirs").to_dict("list")))


def test_a_transaction_conflicts_whole(store):
    base, left = tree(store), set()

    def theirs():
        mine = tree(store) - base
        commit(store, "append", "theirs")
        left.update(tree(store) - mine)

    with opened(meanwhile(store, theirs)) as table, pytest.raises(ConflictError, match="rows of"):
        several(table, with_delete=True)
    assert found(store) == BASE.with_rows(more("theirs").to_dict("list"))
    assert tree(store) == left


def several(table, *, with_delete):
    with table.transaction() as tx:
        tx.append(more("mine"))
        tx.attrs["until"] = 1
        tx.rename_columns({"text": "words"})
        tx.append({"n": [7], "words": ["last"], "x": np.array([0.5], "f4")})
        tx.attrs["until"] = 2
        tx.reorder_columns(["words"])
        if with_delete:
            tx.delete([("n", "==", 3)])


def several_mean(model):
    model = model.with_rows(more("mine").to_dict("list"))
    model = model.with_rows({"n": [7], "text": ["last"], "x": [0.5]})
    columns = {"words": model.columns["text"], "n": model.n, "x": model.columns["x"]}
    return replace(model, columns=columns, attrs=model.attrs | {"until": 2})


# Where the writers' lock holds nothing, as on some network disks, the number decides


def racing(store, act):
    """A store that lets others publish under the number that mine is about to take."""
    return Hooked(store, before=once("publish", act), locks=False)


def test_two_appends_that_race_for_a_number_both_land(store):
    unlocked = Hooked(store, locks=False)
    with opened(racing(store, lambda: commit(unlocked, "append", "theirs"))) as table:
        assert table.append(more("mine")) == 4
    after_theirs = BASE.with_rows(more("theirs").to_dict("list"))
    assert found(store) == after_theirs.with_rows(more("mine").to_dict("list"))


def test_a_change_that_lost_the_race_for_a_number_conflicts_as_any_other(store):
    place = racing(store, lambda: commit(Hooked(store, locks=False), "delete", "theirs"))
    with opened(place) as table, pytest.raises(ConflictError):
        table.update({"text": "mine"})
    assert found(store) == BASE.where(lambda n: n not in (4, 11))


# The same job twice


@pytest.mark.parametrize("race", [meanwhile, racing])
def test_a_job_that_another_process_did_meanwhile_leaves_no_second_copy(store, race):
    left = set()

    def theirs():
        mine = tree(store) - base
        with opened(Hooked(store, locks=race is meanwhile)) as other:
            assert other.append(more("theirs"), commit_id="day 2") == 3
        left.update(tree(store) - mine)

    base = tree(store)
    with opened(race(store, theirs)) as table:
        with table.transaction(commit_id="day 2") as tx:
            tx.append(more("theirs"))
            assert not tx.is_repeated
        assert (tx.is_repeated, tx.version) == (True, 3)
    assert found(store) == BASE.with_rows(more("theirs").to_dict("list"))
    assert tree(store) == left


def test_a_replacement_that_another_process_did_meanwhile_is_not_made_again(store):
    def theirs():
        blz.to_blz(more("theirs"), store, commit_id="all of it", durability="process")

    blz.to_blz(more("mine"), meanwhile(store, theirs), commit_id="all of it", durability="process")
    assert found(store) == Model(more("theirs").to_dict("list"))
    assert versions.numbers(store) == [1, 2, 3]


# A writer that sleeps between its base and its publication


def test_a_writer_that_slept_while_others_committed_and_vacuumed_loses_and_doubles_nothing(store):
    with opened(store) as table:
        table.set_retention(versions=1)
    days = range(20, 40)

    def others():
        for day in days:
            with opened(store) as other:
                other.append(numbered(day, day + 1))
        with opened(store) as other:
            other.compact()
            with pytest.raises(BusyError, match="a writer or a transaction is at work"):
                other.vacuum(keep=1, wait=0)

    with opened(meanwhile(store, others)) as table:
        base = table.version
        table.append(more("mine"))
        # All between the base, which it had pinned, and the newest are gone.
        assert len(set(versions.numbers(store)) - {base, table.version}) <= 1
    expected = BASE.with_rows(numbered(20, 40).to_dict("list"))
    expected = replace(expected.with_rows(more("mine").to_dict("list")), keep=1)
    assert found(store) == expected
    with opened(store) as table:
        removed = table.vacuum(keep=1)
        assert table.to_arrow().num_rows == len(expected)
    assert removed.files >= len(removed.versions)
    assert found(store) == expected


def test_a_sleeper_whose_rows_were_replaced_and_vacuumed_conflicts_and_is_gone(store):
    with opened(store) as table:
        table.set_retention(versions=1)

    def others():
        blz.to_blz(more("theirs"), store, durability="process")
        commit(store, "append", "theirs")

    before = Model(more("theirs").to_dict("list"), keep=1)
    with opened(meanwhile(store, others)) as table:
        with pytest.raises(ConflictError, match="relies on the columns"):
            table.append(more("mine"))
        # The version it shows is held, and whole.
        assert held(table) == replace(BASE, keep=1)
    with opened(store) as table:
        table.vacuum(keep=1)
    assert found(store) == before.with_rows(more("theirs").to_dict("list"))
    assert versions.numbers(store) == [5]


def test_a_table_that_is_gone_and_made_anew_takes_no_change_of_the_old_one(store):
    def others():
        store.delete([layout.manifest(2), layout.manifest(1)])
        blz.to_blz(FIRST, store, durability="process")
        blz.to_blz(FIRST, store, durability="process")

    with opened(meanwhile(store, others)) as table, pytest.raises(ConflictError, match="is gone"):
        table.attrs["a"] = "mine"
    with blz.open(store) as table:
        assert (held(table), table.version) == (Model(FIRST.to_dict("list")), 2)
