"""Isolation: blind appends disturb nobody; a change with a condition is never blind to another one.

Each test lets another handle commit when my change has written its files and is about to take the
writers' lock.
"""

from contextlib import nullcontext

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.engine.version.staged import StagedVersion
from blztable.errors import ColumnNotFoundError, ConflictError, CorruptError
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from blztable.storage.one_file.store import OneFileStore
from blztable.table import table
from support import tamper
from support.moved_first import moved_first
from support.operations import meanwhile, opened
from support.stores import FileInMemory, Hooked, changed_by

DAY_5 = [("day", "==", 5)]


@pytest.fixture(params=["memory", "local", "one file"])
def store(request, tmp_path):
    stores = {
        "memory": RamStore,
        "local": lambda: LocalStore(tmp_path / "t.blz"),
        "one file": lambda: OneFileStore(FileInMemory()),
    }
    store = stores[request.param]()
    days = {"day": [1, 1, 2, 2, 5, 5], "n": [0, 1, 2, 3, 4, 5]}
    blz.to_blz(days, store, storage=blz.Storage(row_group_rows=2), durability="process")
    yield store
    store.close()


def rows(store):
    return blz.read_table(store).to_pylist()


def numbers(store):
    return [row["n"] for row in rows(store)]


def beside(store, theirs, **options):
    """Return a handle beside which `theirs` changes the table once, through another handle."""

    def act():
        with opened(store) as other:
            theirs(other)

    return opened(meanwhile(store, act), **options)


def day_5_again(t, first):
    """Replace day 5, as a job does."""
    with t.transaction() as tx:
        tx.delete(DAY_5)
        tx.append({"day": [5, 5], "n": [first, first + 1]})


def looked(t, where=DAY_5):
    """Delete rows, of which there may be none, and commit that this was done."""
    with t.transaction() as tx:
        done = tx.delete(where)
        tx.attrs["looked"] = 1
    return done.rows_deleted


def grown(t):
    t.append({"day": [5], "n": [6]})


def test_rows_that_a_producer_appends_beside_a_delete_are_kept(store):
    with beside(store, grown, retries=0) as t:
        assert t.delete(DAY_5) == blz.Changed(0, 0, 2, 3)
    assert numbers(store) == [0, 1, 2, 3, 6]


def test_rows_that_a_producer_appends_beside_an_update_are_kept_as_they_are(store):
    with beside(store, grown, retries=0) as t:
        assert t.update({"n": 9}) == blz.Changed(0, 6, 0, 3)
    assert numbers(store) == [9] * 6 + [6]


def test_a_delete_of_one_row_group_and_an_update_of_another_land_both(store):
    with beside(store, lambda t: t.update({"n": 9}, where=[("day", "==", 2)]), retries=0) as t:
        t.delete(DAY_5)
    assert numbers(store) == [0, 1, 9, 9]


@pytest.mark.parametrize("found", [True, False])
def test_two_jobs_that_replace_a_day_at_once_do_not_double_it(store, found):
    if not found:
        with opened(store) as t:
            t.delete(DAY_5)
    with (
        beside(store, lambda t: day_5_again(t, 10)) as t,
        pytest.raises(ConflictError, match="relies on the rows"),
    ):
        day_5_again(t, 20)
    assert numbers(store) == [0, 1, 2, 3, 10, 11]
    with opened(store) as t:
        day_5_again(t, 20)
    assert numbers(store) == [0, 1, 2, 3, 20, 21]


@pytest.mark.parametrize("where", [DAY_5, pc.field("day") == 5])
def test_a_delete_that_found_nothing_conflicts_with_a_row_that_an_update_made_match(store, where):
    with opened(store) as t:
        t.delete(where)
    with beside(store, lambda t: t.update({"day": 5}, where=[("n", "==", 3)])) as t:
        with pytest.raises(ConflictError, match="looked for"):
            looked(t, where)
        assert t.delete(where).rows_deleted == 1
    assert numbers(store) == [0, 1, 2]


def test_it_minds_no_rows_that_do_not_match(store):
    def theirs(t):
        with t.transaction() as tx:
            tx.delete([("day", "==", 1)])
            tx.append({"day": [4, 6], "n": [7, 8]})

    with beside(store, theirs, retries=0) as t:
        t.delete(DAY_5)
    assert numbers(store) == [2, 3, 7, 8]


def test_what_was_joined_and_what_versions_are_gone_does_not_matter(store):
    """The head of the newest version tells; no version between is read."""

    def theirs(t):
        t.configure(keep_versions=1)
        t.append({"day": [5], "n": [6]})
        t.append({"day": [5], "n": [7]})
        day_5_again(t, 10)
        t.compact()

    with opened(store) as t:
        t.delete(DAY_5)
    with beside(store, theirs) as t, pytest.raises(ConflictError, match="looked for"):
        looked(t)

    def more_producers(t):
        t.append({"day": [5], "n": [20]})
        t.append({"day": [5], "n": [21]})
        t.compact()

    with opened(store) as t:
        t.delete(DAY_5)
    with beside(store, more_producers) as t:
        assert looked(t) == 0
    assert numbers(store) == [0, 1, 2, 3, 20, 21]


def test_a_restore_brings_rows_back_as_another_change_would(store):
    with opened(store) as t:
        t.delete(DAY_5)
    with (
        beside(store, lambda t: t.restore(1)) as t,
        pytest.raises(ConflictError, match="looked for"),
    ):
        looked(t)
    assert numbers(store) == [0, 1, 2, 3, 4, 5]


def test_rows_in_another_type_and_back_may_have_other_values():
    store = RamStore()
    blz.to_blz({"x": [1.5, 3.0]}, store, durability="process")

    def theirs(t):
        t.alter_column("x", dtype="int64", safe=False)
        t.alter_column("x", dtype="double")

    with beside(store, theirs) as t, pytest.raises(ConflictError, match="looked for"):
        looked(t, [("x", "==", 1)])


def test_an_append_whose_index_continues_the_tables_is_not_blind():
    store = RamStore()
    first = pd.DataFrame({"day": [1]}, index=pd.RangeIndex(10, 11))
    blz.to_blz(first, store, durability="process")
    more = pd.DataFrame({"day": [5]}, index=pd.RangeIndex(11, 12))
    with beside(store, lambda t: t.append(more)) as t, pytest.raises(ConflictError):
        looked(t)
    assert list(blz.read_blz(store)["day"]) == [1, 5]


def test_an_append_to_a_default_index_is_blind_whatever_its_index_is():
    store = RamStore()
    blz.to_blz(pd.DataFrame({"day": [1]}), store, durability="process")
    more = pd.DataFrame({"day": [5]}, index=pd.RangeIndex(1, 2))
    with beside(store, lambda t: t.append(more)) as t:
        looked(t)
        t.append(more)
    pd.testing.assert_frame_equal(blz.read_blz(store), pd.DataFrame({"day": [1, 5, 5]}))


def test_a_version_says_of_each_row_group_when_rows_last_came_by_more_than_an_append(store):
    def changed(number):
        with blz.open(store) as t:
            return StagedVersion.of(t._snapshot.version).changed_after(number)

    with opened(store) as t:
        assert changed(0) == [0, 1, 2]
        assert changed(1) == []
        t.append({"day": [6, 6], "n": [6, 7]})
        assert changed(1) == []
        t.update({"n": 9}, where=[("day", "==", 2)])
        assert (changed(1), changed(2), changed(3)) == ([1], [1], [])
        t.delete([("n", "==", 0)])
        assert changed(3) == []
        with t.transaction() as tx:
            tx.append({"day": [7], "n": [8]})
            tx.delete(DAY_5)
        assert changed(4) == [3]
        t.restore(1)
        assert changed(5) == [0, 1, 2]
        assert changed(6) == []
        t.append({"day": [6], "n": [6]})
        assert changed(6) == []


def test_row_groups_that_a_later_version_changed_are_refused(store):
    version = versions.read(store, versions.newest_number(store))
    assert version.facts.runs[0].groups["changed"].tolist() == [0, 0, 0]
    with tamper.editing(store) as edit:
        edit.leaf().groups["changed"][1] = version.head.version + 1
    with pytest.raises(CorruptError, match="rows changed by a later version"):
        blz.open(store)


# Made again after a conflict


def twice(store, theirs, **options):
    """Return a handle beside which `theirs` changes the table each time that it commits."""

    left = [theirs, theirs]

    def before(name, args):
        if name == "lock" and args[0] == layout.LOCK and left:
            with opened(store) as other:
                left.pop()(other)

    return opened(Hooked(store, before=before), **options)


def rewritten(t):
    t.update({"n": pc.field("n") + 10}, where=DAY_5)


def test_a_change_is_made_again_on_the_newest_version(store):
    with twice(store, rewritten) as t:
        assert t.update({"n": pc.field("n") + 1}, where=DAY_5) == blz.Changed(0, 2, 0, 4)
        assert t.version == 4
    assert numbers(store) == [0, 1, 2, 3, 25, 26]


def test_it_is_made_again_as_often_as_asked_and_then_the_table_is_as_before(store):
    with twice(store, rewritten, retries=1) as t:
        with pytest.raises(ConflictError):
            t.delete(DAY_5)
        assert t.version == 1
        assert t["n"][:].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert numbers(store) == [0, 1, 2, 3, 24, 25]


def test_made_again_it_may_find_nothing_to_do_and_shows_what_it_has_seen(store):
    with beside(store, lambda t: t.delete(DAY_5)) as t:
        assert t.delete(DAY_5) == blz.Changed(version=2)
        assert (t.version, len(t)) == (2, 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"n": [7, 8]}, where=DAY_5),
        lambda t: t.add_column("x", range(6)),
    ],
)
def test_values_that_belong_to_single_rows_are_not_put_on_the_rows_of_others(store, change):
    with beside(store, rewritten) as t, pytest.raises(ConflictError):
        change(t)
    assert numbers(store) == [0, 1, 2, 3, 14, 15]


def test_a_column_is_computed_again(store):
    with beside(store, rewritten) as t:
        t.add_column("x", pc.field("n") * 2)
    assert [row["x"] for row in rows(store)] == [0, 2, 4, 6, 28, 30]


def test_an_append_is_made_again_beside_a_new_column(store):
    with twice(store, lambda t: t.add_column(f"new {t.version}", 0)) as t:
        assert t.append({"day": [7], "n": [6]}, commit_id="day 7") == blz.Changed(1, 0, 0, 4)
        assert t.columns == ["day", "n", "new 1", "new 2"]
        assert t.append({"day": [7], "n": [6]}, commit_id="day 7") == blz.Changed(version=4)
    assert numbers(store) == [0, 1, 2, 3, 4, 5, 6]


def test_an_append_of_a_job_that_another_process_did_meanwhile_is_not_made_again(store):
    def theirs(t):
        if t.version == 1:
            t.add_column("new", 0)
        else:
            t.append({"day": [7], "n": [6]}, commit_id="day 7")

    with twice(store, theirs) as t:
        assert t.append({"day": [7], "n": [6]}, commit_id="day 7") == blz.Changed(version=3)
        # As where nobody was in the way, which needs no version that may be gone.
        assert t.version == 1
    assert numbers(store) == [0, 1, 2, 3, 4, 5, 6]


ONE = pd.DataFrame({"day": [7], "n": [6]})


@pytest.mark.parametrize("data", [iter([ONE]), ONE.set_index(pd.RangeIndex(11, 12))])
def test_rows_that_are_read_once_or_continue_an_index_are_not_appended_again(data):
    store = RamStore()
    blz.to_blz(pd.DataFrame({"day": [5], "n": [0]}, index=pd.RangeIndex(10, 11)), store)
    with beside(store, lambda t: t.add_column("new", 0)) as t, pytest.raises(ConflictError):
        t.append(data)
    assert numbers(store) == [0]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda t: t.drop_columns(iter(["n"])), ["day", "new"]),
        (lambda t: t.rename_columns({"n": "m"}), ["day", "m", "new"]),
        (lambda t: moved_first(t, iter(["n"])), ["n", "day", "new"]),
    ],
    ids=["drop", "rename", "reorder"],
)
def test_changes_of_columns_are_made_again(store, change, names):
    with beside(store, lambda t: t.add_column("new", 0)) as t:
        assert change(t).version == 3
        assert t.columns == names


def test_rows_are_sorted_again(store):
    with beside(store, rewritten) as t:
        t.compact(sort_by=[("n", "descending")])
    assert numbers(store) == [15, 14, 3, 2, 1, 0]


def test_settings_are_made_again(store):
    with beside(store, lambda t: t.configure(keep_versions=5)) as t:
        t.configure(keep_versions=7)
    with beside(store, lambda t: t.configure(storage=blz.Storage(row_group_rows=5))) as t:
        t.configure(storage=blz.Storage(row_group_rows=7))
    properties = blz.open(store)._snapshot.version.head.properties
    assert (properties["keep_versions"], properties["row_group_rows"]) == (7, 7)


def test_what_fails_when_it_is_made_again_fails_as_on_that_version(store):
    with beside(store, lambda t: t.drop_columns(["day"])) as t, pytest.raises(ColumnNotFoundError):
        t.delete(DAY_5)


def test_a_table_that_is_gone_and_made_anew_is_not_changed():
    store = RamStore()
    blz.to_blz({"n": [1]}, store, durability="process")

    def theirs():
        store.delete([layout.manifest(1)])
        blz.to_blz({"n": [1]}, store, durability="process")

    with opened(meanwhile(store, theirs)) as t, pytest.raises(ConflictError, match="replaced"):
        t.delete([("n", "==", 1)])
    assert numbers(store) == [1]


@pytest.mark.parametrize("retries", [-1, 1.5, True])
def test_the_number_of_retries_is_checked(store, retries):
    with pytest.raises((TypeError, ValueError), match=r"retries|integer"):
        blz.open(store, "a", retries=retries)
    with pytest.raises((TypeError, ValueError), match=r"retries|integer"):
        blz.to_blz({"n": [1]}, store, mode="a", retries=retries)


# What each verb relies on


def keyed_store(columns):
    store = RamStore()
    blz.to_blz(columns, store, storage=blz.Storage(row_group_rows=64), durability="process")
    return store


@pytest.mark.parametrize("found", [1, 8], ids=["rows that move", "rows in place"])
def test_an_upsert_relies_on_there_being_no_more_rows_of_its_keys(found):
    keys = [7] * found + [1] * (64 - found) + [2] * 64
    store = keyed_store({"k": keys, "v": [0] * 128})
    with (
        beside(store, lambda t: t.update({"k": 7}, where=pc.field("k") == 2), retries=0) as t,
        pytest.raises(ConflictError, match="looked for"),
    ):
        t.upsert({"k": [7], "v": [9]}, on="k")
    with opened(store) as t:
        t.upsert({"k": [7], "v": [9]}, on="k")
    found_rows = blz.read_table(store)
    assert found_rows.filter(pc.field("k") == 7)["v"].unique().to_pylist() == [9]


def test_an_upsert_of_new_keys_relies_on_nobody_having_them():
    store = keyed_store({"k": list(range(128)), "v": [0] * 128})
    with (
        beside(store, lambda t: t.update({"k": 999}, where=pc.field("k") == 100), retries=0) as t,
        pytest.raises(ConflictError, match="looked for"),
    ):
        t.upsert({"k": [999], "v": [9]}, on="k")


def test_a_deduplicate_relies_on_all_rows_that_it_compared():
    store = keyed_store({"k": [1, 1, 2, *range(10, 71), *range(100, 164)]})
    with (
        beside(store, lambda t: t.update({"k": 2}, where=pc.field("k") == 150), retries=0) as t,
        pytest.raises(ConflictError),
    ):
        t.deduplicate(on="k")
    with opened(store) as t:
        t.deduplicate(on="k")
    keys = blz.read_table(store)["k"].to_pylist()
    assert len(keys) == len(set(keys)) == 126


def test_a_deduplicate_relies_on_the_rows_for_which_others_go():
    """Else the first copy goes by a delete, and the second by the deduplicate."""
    store = RamStore()
    rows = {"k": [1, *range(10, 73), 1, *range(100, 163)], "n": range(128)}
    blz.to_blz(rows, store, durability="process", storage=blz.Storage(row_group_rows=64))
    with (
        beside(store, lambda t: t.delete("n = 0"), retries=0) as t,
        pytest.raises(ConflictError),
    ):
        t.deduplicate(on="k")
    with opened(store) as t:
        t.deduplicate(on="k")
    assert blz.read_table(store)["k"].to_pylist().count(1) == 1


def test_an_append_relies_on_the_defaults_that_it_filled_in():
    store = RamStore()
    blz.to_blz({"a": [1], "b": [1]}, store, durability="process")
    with opened(store) as t:
        t.alter_column("b", default=5)
    with (
        beside(store, lambda t: t.alter_column("b", default=6), retries=0) as t,
        pytest.raises(ConflictError),
    ):
        t.append({"a": [2]})
    with opened(store) as t:
        t.append({"a": [2]})
    assert blz.read_table(store)["b"].to_pylist() == [1, 6]


@pytest.mark.parametrize("verb", ["update", "delete", "replace_where"])
def test_a_change_with_a_condition_relies_on_no_other_row_meeting_it(verb):
    store = keyed_store({"k": [7] + [1] * 63 + [2] * 64, "v": [0] * 128})
    seven = pc.field("k") == 7
    changes = {
        "update": lambda t: t.update({"v": 9}, where=seven),
        "delete": lambda t: t.delete(seven),
        "replace_where": lambda t: t.append({"k": [7], "v": [9]}, replace_where=seven),
    }
    with (
        beside(store, lambda t: t.update({"k": 7}, where=pc.field("k") == 2), retries=0) as t,
        pytest.raises(ConflictError, match="looked for"),
    ):
        changes[verb](t)


def test_row_groups_that_are_joined_remember_when_rows_last_came():
    store = keyed_store({"day": [1, 2], "n": [0, 1]})
    with opened(store) as t:
        t.append({"day": [3], "n": [2]})
        t.update({"n": 7}, where=[("day", "==", 1)])
        changed = max(changed_by(t._snapshot.version))

    def theirs(t):
        t.update({"day": 5}, where=[("day", "==", 2)])
        t.compact()

    with beside(store, theirs) as t, pytest.raises(ConflictError, match="looked for"):
        looked(t)
    with opened(store) as t:
        assert len(t._snapshot.version.row_groups) == 1
        assert max(changed_by(t._snapshot.version)) > changed


def in_a_transaction(t, act):
    with t.transaction() as tx:
        act(tx)


def test_a_table_that_is_short_enough_relies_on_no_rows_that_come(store):
    """Else it would have more rows than were asked for."""

    def both(tx):
        tx.resize(6)
        with opened(store) as other:
            other.append({"day": [9], "n": [9]})

    with opened(store) as t, pytest.raises(ConflictError, match="relies on the rows"):
        in_a_transaction(t, both)


def test_a_column_that_was_made_anew_under_its_name_is_another_one(store):
    def theirs(t):
        t.drop_columns(["n"])
        t.add_column("n", pa.scalar(0))

    with (
        beside(store, theirs, retries=0) as t,
        pytest.raises(ConflictError, match="relies on the columns"),
    ):
        t.append({"day": [9], "n": [9]})


def test_an_append_with_an_attribute_in_one_transaction_is_blind(store):
    def theirs(t):
        with t.transaction() as tx:
            tx.append({"day": [5], "n": [6]})
            tx.attrs["unit"] = "m"

    with beside(store, theirs, retries=0) as t:
        t.delete(DAY_5)
    assert numbers(store) == [0, 1, 2, 3, 6]


def test_rows_that_a_restore_gives_back_as_they_were_may_be_changed(store):
    with beside(store, lambda t: t.restore(1), retries=0) as t:
        t.update({"n": 9}, where=DAY_5)
    assert numbers(store) == [0, 1, 2, 3, 9, 9]


def test_a_change_of_all_rows_relies_on_no_other_rows(store):
    def theirs(t):
        with t.transaction() as tx:
            tx.delete([("day", "==", 99)])
            tx.append({"day": [7], "n": [7]})

    with (
        beside(store, theirs, retries=0) as t,
        pytest.raises(ConflictError, match="looked for"),
    ):
        t.update({"n": 0})


@pytest.mark.parametrize(("keys", "is_conflict"), [([7, 999], True), ([7], False)])
def test_an_upsert_relies_on_the_defaults_of_new_rows_only(keys, is_conflict):
    """The row of key 7 moves, as most rows of its row group stay."""
    store = keyed_store({"k": range(128), "v": [1] * 128, "w": [1] * 128})
    with opened(store) as t:
        t.alter_column("w", default=5)
    told = pytest.raises(ConflictError, match="default values") if is_conflict else nullcontext()
    with beside(store, lambda t: t.alter_column("w", default=6), retries=0) as t, told:
        t.upsert({"k": keys, "v": [9] * len(keys)}, on="k")
    assert blz.read_table(store)["v"].to_pylist().count(9) == (not is_conflict)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.add_column("mine", 0),
        lambda t: t.add_column("s.mine", 0),
        lambda t: t.alter_column("n", dtype="float64"),
    ],
    ids=["a column", "a field", "a type"],
)
@pytest.mark.usefixtures("own_files")
def test_no_number_of_a_column_or_a_file_is_used_twice(change):
    store = RamStore()
    rows = {"n": [1, 2], "s": [{"a": 1}, {"a": 2}]}
    blz.to_blz(rows, store, durability="process")
    used = []

    def theirs(t):
        with t.transaction() as tx:
            for _ in range(3):
                tx.append({"n": [3], "s": [{"a": 3}]})
            tx.resize(2)
        t.add_column("theirs", pa.array([{"a": 1}, {"a": 2}]))
        t.drop_columns(["theirs"])
        used.append(t._snapshot.version.head)

    with beside(store, theirs, retries=0) as t:
        change(t)
        head = t._snapshot.version.head
    assert head.next_column >= used[0].next_column
    assert head.next_file >= used[0].next_file


def test_an_erase_leaves_out_no_row_group_that_others_changed():
    """A compaction would leave it out, with the value of the row that was deleted before."""
    store = keyed_store({"k": range(128), "v": [0] * 128})
    with opened(store) as t:
        t.delete("k = 100")
    with (
        beside(store, lambda t: t.update({"v": 1}, where="k = 101"), retries=0) as t,
        pytest.raises(ConflictError, match="row groups to join were changed"),
    ):
        t.erase("k = 3")


def test_columns_that_a_transaction_changes_under_its_own_appender_are_told(store):
    def change(tx):
        with tx.appender() as rows:
            rows["day"].append([9])
            rows["n"].append([9])
            tx.rename_columns({"day": "n", "n": "day"})

    with opened(store) as t, pytest.raises(ConflictError, match="changed its own columns"):
        in_a_transaction(t, change)
    assert numbers(store) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.delete("k = 3"),
        lambda t: t.update({"v": 9}, where="k = 3"),
        lambda t: t.resize(100),
    ],
    ids=["delete", "update", "truncate"],
)
def test_as_many_deleted_rows_need_not_be_the_same_rows(change):
    store = keyed_store({"k": range(128), "v": [0] * 128})
    with opened(store) as t:
        t.delete("k = 1")

    def theirs(t):
        t.restore(1)
        t.delete("k = 2")

    with beside(store, theirs, retries=0) as t, pytest.raises(ConflictError):
        change(t)
    assert blz.read_table(store)["k"].to_pylist() == [0, 1, *range(3, 128)]


def test_a_change_is_not_made_again_when_its_time_is_over(store, monkeypatch):
    monkeypatch.setattr(table, "RETRY_SECONDS", -1.0)

    def theirs(t):
        t.update({"n": 7}, where=DAY_5)

    with beside(store, theirs) as t, pytest.raises(ConflictError, match="relies on the rows"):
        t.update({"n": 8}, where=DAY_5)
    assert numbers(store) == [0, 1, 2, 3, 7, 7]
