"""Transactions: several changes in one commit, or none; only the transaction sees them early."""

import gc
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.engine.version.versions import Version
from blztable.errors import ConflictError, SchemaError
from blztable.format import layout
from blztable.storage.memory import RamStore
from support.moved_first import moved_first
from support.options import arguments
from support.stores import directories_named, files_named, raising, said_by_a_child, tree


def table(data, **options) -> blz.CTable:
    """Return a table in memory, in small pages and row groups."""
    store = RamStore()
    options = {"page_rows": 8, "row_group_rows": 4, "durability": "process", **options}
    blz.to_blz(data, store, **arguments(**options))
    return blz.open(store, "a")


def store_of(t) -> RamStore:
    return t._snapshot.version.store


def data_files(t) -> set[str]:
    """Return the files and directories of columns."""
    return {key for key in tree(store_of(t)) if key.startswith(f"{layout.DATA}/")}


def named(t) -> set[str]:
    """Return the files that any version names, and those of its directories that are there."""
    keys = set()
    for number in versions.numbers(store_of(t)):
        version = versions.read(store_of(t), number)
        keys |= files_named(version) | (directories_named(version) & data_files(t))
    return keys


def test_several_changes_are_one_commit_that_nobody_sees_before():
    t = table({"day": [1], "sold": [7]}, attrs={"until": 1})
    with t.transaction() as tx:
        tx.append({"day": [2, 3], "sold": [9, 4]})
        assert tx.update({"sold": 0}, pc.field("day") == 3).rows_updated == 1
        assert tx.delete(pc.field("day") == 1).rows_deleted == 1
        tx.add_column("double", pc.field("sold") * 2)
        tx.rename_columns({"double": "twice"})
        tx.resize(3)
        tx.attrs["until"] = 3
        expected = {"day": [2, 3, None], "sold": [9, 0, None], "twice": [18, 0, None]}
        assert tx.to_arrow().to_pydict() == expected
        assert tx[["twice"]].to_arrow().to_pydict() == {"twice": [18, 0, None]}
        assert tx["sold"][0] == 9
        assert (len(tx), tx.attrs["until"]) == (3, 3)
        assert (len(t), t.attrs["until"], t.columns) == (1, 1, ["day", "sold"])
        assert blz.open(store_of(t)).version == 1
    assert t.version == tx.version
    assert t.to_arrow().to_pydict() == expected
    assert t.verify().is_intact
    assert [one.operation for one in t.versions()][1] == "transaction"


def test_an_exception_takes_all_of_it_back():
    t = table({"a": range(10)})
    before = tree(store_of(t))

    def work():
        with t.transaction() as tx:
            tx.append({"a": range(20)})
            tx.add_column("b", 1)
            tx.delete(pc.field("a") < 5)
            tx.compact()
            tx.attrs["x"] = 1
            assert tree(store_of(t)) > before
            raise LookupError

    with pytest.raises(LookupError):
        work()
    # The directory of the bundles stays once it is made.
    assert tree(store_of(t)) - {layout.BUNDLES} == before
    assert (t.version, len(t), dict(t.attrs)) == (1, 10, {})


FAILING = {
    "append": lambda tx: tx.append(iter([{"a": range(8)}, {"a": ["x"]}])),
    "evolving append": lambda tx: tx.append(
        iter([{"a": [1]}, {"a": [2], "new": [1]}, {"a": ["x"], "new": [1]}]), evolve=True
    ),
    "update": lambda tx: tx.update({"a": pc.field("a").cast("string")}),
    "add_column": lambda tx: tx.add_column("new", pc.field("a") / pc.field("zero")),
    "appender": lambda tx: feed(tx, [1, 2, 3, 4, 5], ["x"]),
}


def feed(tx, *pieces):
    with tx.appender() as a:
        for piece in pieces:
            a["a"].append(piece)


@pytest.mark.parametrize("verb", FAILING)
def test_a_verb_that_fails_and_is_caught_leaves_what_the_others_did(verb):
    t = table({"a": range(6), "zero": [0] * 6})
    with t.transaction() as tx:
        tx.delete(pc.field("a") == 0)
        shown, files = tx.to_arrow(), data_files(t)
        with pytest.raises((SchemaError, ValueError)):
            FAILING[verb](tx)
        assert tx.to_arrow().equals(shown)
        assert data_files(t) == files
        tx.attrs["done"] = True
    assert t["a"][:].to_pylist() == [1, 2, 3, 4, 5]
    assert t.attrs["done"] is True
    assert t.version == 2
    assert data_files(t) == named(t)


def test_an_appender_that_fails_and_is_caught_leaves_no_file_beside_one_change():
    t = table({"a": [0]}, row_group_rows=2)
    with t.transaction() as tx:
        with pytest.raises(SchemaError):
            FAILING["appender"](tx)
        tx.append({"a": [1]})
    assert t["a"][:].to_pylist() == [0, 1]
    assert data_files(t) == named(t)


def test_files_written_and_superseded_are_gone_and_those_named_stay():
    t = table({"a": range(10)})
    with t.transaction() as tx:
        tx.append({"a": range(10, 18)})
        tx.update({"a": pc.field("a") + 100}, pc.field("a") >= 12)
        tx.delete(pc.field("a") == 3)
        tx.add_column("b", 1)
        tx.add_column("c", 2)
        tx.drop_columns(["b"])
        tx.compact()
    assert t["a"][:].to_pylist() == [n if n < 12 else n + 100 for n in range(18) if n != 3]
    assert data_files(t) == named(t)
    assert t.verify().is_intact


def test_row_groups_are_joined_after_rows_went():
    t = table({"a": range(16)})
    with t.transaction() as tx:
        tx.delete(~pc.is_in(pc.field("a"), pa.array([0, 4, 8, 12])))
        tx.compact()
        assert tx["a"][:].to_pylist() == [0, 4, 8, 12]
    assert t._snapshot.version.row_groups == (4,)


def test_changes_land_on_top_of_the_others():
    t = table({"a": [1]}, attrs={"x": 0})
    other = blz.open(store_of(t), "a")
    with t.transaction() as tx:
        tx.append({"a": [2]})
        tx.append({"a": [3]})
        tx.attrs["y"] = 1
        other.append({"a": [9]})
        other.attrs["x"] = 5
    assert sorted(t["a"][:].to_pylist()) == [1, 2, 3, 9]
    assert t["a"][:].to_pylist()[:2] == [1, 9]
    assert dict(t.attrs) == {"x": 5, "y": 1}


CONFLICTS = {
    "rows": (lambda tx: tx.delete(pc.field("a") == 1), lambda t: t.update({"a": 1})),
    "columns": (lambda tx: tx.append({"a": [2]}), lambda t: t.rename_columns({"a": "b"})),
    "keys": (lambda tx: tx.attrs.update(x=1), lambda t: t.attrs.update(x=2)),
    "replaced": (lambda tx: tx.append({"a": [2]}), None),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_what_others_changed_below_it_is_a_conflict_and_all_goes(case):
    mine, others = CONFLICTS[case]
    t = table({"a": [1]})
    store = store_of(t)

    def work():
        with t.transaction() as tx:
            tx.attrs["z"] = 1
            mine(tx)
            if others is None:
                blz.to_blz({"a": [7]}, store, durability="process")
            else:
                others(blz.open(store, "a"))

    with pytest.raises(ConflictError, match="open the table again"):
        work()
    newest = blz.open(store)
    assert newest.version == 2
    assert "z" not in newest.attrs
    assert {key for key in data_files(t) if key.endswith(".bin")} <= named(t)


def test_attributes_keep_their_types_and_go_with_the_data():
    t = table({"a": [1]})
    values = {
        "scalar": np.int16(4),
        "array": np.array([1.5, 2], "f4"),
        "days": np.array(["2026-01-01"], "M8[D]"),
        "time": pd.Timestamp("2026-01-01", tz="Europe/Berlin"),
        "plain": {"list": [1, None, "x"]},
    }
    with t.transaction() as tx:
        tx.append({"a": [2]})
        tx.attrs.update(values)
        del tx.attrs["plain"]
    assert t.version == 2
    found = dict(t.attrs)
    assert sorted(found) == sorted(values.keys() - {"plain"})
    assert type(found["scalar"]) is np.int16
    assert found["array"].dtype == "f4"
    assert found["array"].tolist() == [1.5, 2]
    assert found["days"].dtype == "M8[D]"
    assert found["time"] == values["time"]
    assert dict(blz.open(store_of(t), version=1).attrs) == {}


def test_nothing_done_is_no_commit():
    t = table({"a": [1]})
    with t.transaction() as tx:
        tx.resize(1)
    assert (t.version, tx.version) == (1, 1)


def test_a_transaction_that_was_made_before_does_nothing():
    t = table({"a": [1]})
    for run in range(2):
        with t.transaction(commit_id="night") as tx:
            tx.append({"a": [2]})
            tx.attrs["run"] = run
            with tx.appender() as a:
                a["a"].append([3])
            assert tx.update({"a": 5}, pc.field("a") == 2).rows_updated == (1 - run)
        assert tx.is_repeated == (run == 1)
    assert t["a"][:].to_pylist() == [1, 5, 3]
    assert t.attrs["run"] == 0


def test_two_that_do_the_same_work_at_once_do_it_once():
    t = table({"a": [1]})
    other = blz.open(store_of(t), "a")
    with t.transaction(commit_id="night") as tx:
        tx.append({"a": [2]})
        assert other.append({"a": [2]}, commit_id="night").version == 2
    assert tx.is_repeated
    assert tx.version == 2
    assert blz.open(store_of(t))["a"][:].to_pylist() == [1, 2]
    assert {key for key in data_files(t) if key.endswith(".bin")} <= named(t)


def test_it_takes_changes_inside_of_its_with_only():
    t = table({"a": [1]})
    tx = t.transaction()
    with pytest.raises(blz.BlzError, match="inside of its `with`"):
        tx.append({"a": [2]})
    with tx:
        pass
    with pytest.raises(blz.BlzError, match="inside of its `with`"):
        tx.attrs["x"] = 1


# A change without matches relies on the facts that it looked at


def two_handles(rows):
    store = RamStore()
    data = {"day": pa.array(rows, pa.int64()), "sold": pa.array([0] * len(rows), pa.int64())}
    blz.to_blz(data, store, durability="process")
    return store, blz.open(store, "a"), blz.open(store, "a")


@pytest.mark.parametrize("days", [[4], [4, 5]])
def test_two_jobs_that_replace_a_day_at_once_never_double_its_rows(days):
    store, first, second = two_handles(days)

    def replace_day(table, meanwhile=None):
        with table.transaction() as tx:
            tx.delete(pc.field("day") == 5)
            tx.append({"day": [5, 5], "sold": [1, 2]})
            if meanwhile:
                meanwhile()

    with pytest.raises(blz.ConflictError, match="relies on the rows of version 1"):
        replace_day(first, lambda: replace_day(second))
    assert blz.read_table(store)["day"].to_pylist() == [4, 5, 5]


@pytest.mark.parametrize(
    "change",
    [
        lambda tx: tx.delete(pc.field("day") == 5),
        lambda tx: tx.update({"sold": 1}, where=pc.field("day") == 5),
        lambda tx: tx.resize(1),
    ],
)
def test_a_change_that_found_nothing_conflicts_with_rows_that_came_meanwhile(change):
    store, first, second = two_handles([4])
    second.append({"day": [5], "sold": [7]}, replace_where=pc.field("day") == 5)
    with pytest.raises(blz.ConflictError), first.transaction(commit_id="job") as tx:
        change(tx)

    def flagged():
        with first.transaction() as tx:
            change(tx)
            tx.attrs["done"] = True

    with pytest.raises(blz.ConflictError):
        flagged()
    assert blz.read_table(store).to_pydict() == {"day": [4, 5], "sold": [0, 7]}
    assert dict(blz.open(store).attrs) == {}


@pytest.mark.parametrize("files", ["own_files_here", "bundled"])
@pytest.mark.parametrize("there", [[4, 5], []])
def test_rows_that_came_and_went_meanwhile_are_no_conflict(files, there, request):
    request.getfixturevalue(files)
    store, first, second = two_handles(there)
    second.append({"day": [6], "sold": [None]})
    second.delete(pc.field("sold").is_null())
    first.resize(3)
    assert blz.read_table(store)["day"].to_pylist() == [*there, None, None, None][:3]


def test_a_change_that_found_nothing_and_stands_alone_commits_nothing():
    _, first, second = two_handles([4])
    assert first.delete(pc.field("day") == 5).version == 1
    second.attrs["a"] = 1
    assert first.delete(pc.field("day") == 5).version == 1
    assert len(second.versions()) == 2


def test_a_change_that_found_nothing_and_stands_alone_conflicts_with_rows_that_came_meanwhile():
    store, first, second = two_handles([4])
    second.append({"day": [5], "sold": [7]}, replace_where=pc.field("day") == 5)
    with (
        blz.open(store, "a", version=1, retries=0) as once,
        pytest.raises(blz.ConflictError),
    ):
        once.delete(pc.field("day") == 5)
    first.delete(pc.field("day") == 5)
    assert blz.read_table(store)["day"].to_pylist() == [4]


def test_a_transaction_that_has_ended_does_not_end_again():
    store, t, _ = two_handles([4])
    with t.transaction() as tx:
        tx.append({"day": [5], "sold": [7]})
    with pytest.raises(blz.TransactionError, match="has ended"):
        tx.__exit__(None, None, None)

    def ends_twice():
        with t.transaction() as tx:
            tx.append({"day": [6], "sold": [7]})
            tx.__exit__(None, None, None)

    with pytest.raises(blz.TransactionError, match="has ended"):
        ends_twice()
    with pytest.raises(blz.TransactionError, match="has ended"):
        t.transaction(commit_id="never entered").__exit__(None, None, None)
    assert blz.read_table(store)["day"].to_pylist() == [4, 5, 6]
    assert blz.open(store).verify()


def test_an_interrupt_at_the_ends_of_a_transaction_leaves_the_table_free_to_change(monkeypatch):
    _, t, _ = two_handles([4])
    kept = []
    for name in ("_show", "_check_process"):
        tx = t.transaction()
        kept.append(tx)
        with monkeypatch.context() as patch:
            patch.setattr(tx, name, raising(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt), tx:
                pass
        assert not tx.is_open
        t.append({"day": [5], "sold": [7]})
        assert t.vacuum(wait=0).pinned == ()


def test_columns_that_a_stream_changes_under_its_own_append_are_told():
    _, t, _ = two_handles([4])

    def items(tx):
        yield {"day": [5], "sold": [7]}
        tx.add_column("x", 1)
        yield {"day": [6], "sold": [7]}

    with (
        t.transaction() as tx,
        pytest.raises(blz.ConflictError, match="changed its own columns while an append"),
    ):
        tx.append(items(tx))


def test_a_transaction_of_many_appends_keeps_no_version_for_each():
    _, table, _ = two_handles([4])
    with table.transaction() as tx:
        for day in range(30):
            tx.append({"day": [day], "sold": [1]})
        kept = [
            value
            for change, _ in tx._change_set._changes
            for value in (change, *(getattr(change, name) for name in change.__slots__))
        ]
        assert not [value for value in kept if isinstance(value, Version)]


def append_by_column(tx, row):
    with tx.appender() as appender:
        for name, values in row.items():
            appender[name].append(values)


@pytest.mark.parametrize(
    ("change", "most", "layout"),
    [
        (lambda tx, row: tx.append(row), 40_000, "directory"),
        (lambda tx, row: tx.append(row), 40_000, "file"),
        (lambda tx, row: tx.append(row, evolve=True), 40_000, "directory"),
        (lambda tx, row: tx.append(pd.DataFrame(row), index=False), 40_000, "file"),
        (lambda tx, row: tx.upsert(row, on="c0"), 80_000, "directory"),
        (append_by_column, 50_000, "file"),
    ],
    ids=[
        "append",
        "one file",
        "append of other columns",
        "append of a frame",
        "upsert",
        "appender",
    ],
)
def test_the_memory_of_a_transaction_grows_by_as_much_for_the_last_change_as_for_the_first(
    tmp_path, own_process, change, most, layout
):
    """800 appends of a row of 16 columns took 322 MB; now they take less than 40 MB."""
    columns = [f"c{number}" for number in range(16)]
    blz.to_blz(
        {name: [0] for name in columns}, tmp_path / "t.blz", storage=blz.Storage(layout=layout)
    )
    with blz.open(tmp_path / "t.blz", "a", durability="process") as t, t.transaction() as tx:
        taken = []
        for number in range(41):
            if number == 10:
                tracemalloc.start(1)
            change(tx, {name: [number] for name in columns})
            if number in (10, 25, 40):
                gc.collect()
                taken.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        begin, middle, end = taken
        assert end - middle < 1.5 * (middle - begin)  # 1.86 if each change costs one more
        assert (end - begin) / 30 < most


def test_an_exception_in_a_child_made_by_fork_is_the_one_that_its_transaction_ends_with(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"n": [1]}, path)

    def work(forked):
        with blz.open(path, "a") as t, t.transaction() as tx:
            tx.append({"n": [2]})
            if forked() == 0:
                raise SystemExit(3)

    assert said_by_a_child(work) == "SystemExit 3"
    assert blz.read_table(path)["n"].to_pylist() == [1, 2]


# Changes through the table while a transaction of it is open

CHANGES_OF_THE_TABLE = {
    "append": lambda t: t.append({"day": [5], "sold": [1]}),
    "update": lambda t: t.update({"sold": 1}),
    "delete": lambda t: t.delete(pc.field("day") == 4),
    "truncate": lambda t: t.resize(0),
    "resize": lambda t: t.resize(3),
    "add_column": lambda t: t.add_column("x", 1),
    "drop_columns": lambda t: t.drop_columns(["sold"]),
    "rename_columns": lambda t: t.rename_columns({"sold": "x"}),
    "reorder_columns": lambda t: moved_first(t, ["sold"]),
    "compact": lambda t: t.compact("sold"),
    "configure": lambda t: t.configure(keep_versions=1),
    "attrs": lambda t: t.attrs.update(a=1),
    "restore": lambda t: t.restore(1),
    "vacuum": lambda t: t.vacuum(),
}


@pytest.mark.parametrize("change", CHANGES_OF_THE_TABLE.values(), ids=CHANGES_OF_THE_TABLE)
def test_a_change_through_the_table_raises_while_its_transaction_is_open(change):
    store, t, _ = two_handles([4])
    with t.transaction() as tx:
        tx.append({"day": [6], "sold": [6]})
        with pytest.raises(blz.TransactionError, match="the name after `as`"):
            change(t)
        assert len(t) == 1
    assert blz.read_table(store).to_pydict() == {"day": [4, 6], "sold": [0, 6]}
    t.append({"day": [7], "sold": [7]})
    assert len(t) == 3


def test_a_delete_in_a_transaction_that_fails_deletes_nothing():
    store, t, _ = two_handles([4])

    def fails():
        with t.transaction():
            t.delete(pc.field("day") == 4)

    with pytest.raises(RuntimeError):
        fails()
    assert blz.read_table(store).num_rows == 1


def test_a_transaction_that_failed_or_was_dropped_keeps_no_change_from_the_table():
    _, t, _ = two_handles([4])
    with pytest.raises(ZeroDivisionError), t.transaction():
        raise ZeroDivisionError
    t.attrs["a"] = 1
    t.transaction().__enter__()
    gc.collect()
    t.attrs["a"] = 2
    assert t.version == 3


def test_threads_that_share_a_table_change_it_side_by_side():
    store, t, _ = two_handles([4])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda day: t.append({"day": [day], "sold": [0]}), range(8)))
    assert sorted(blz.read_table(store)["day"].to_pylist()) == [0, 1, 2, 3, 4, 4, 5, 6, 7]


@pytest.fixture
def two_columns(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2], "b": [3, 4]}, path, durability="process")
    return path


# Bug: data of an append that changed the transaction's columns were written by the old columns.
@pytest.mark.parametrize(
    "change",
    [
        lambda tx: tx.add_column("c", 0),
        lambda tx: moved_first(tx, ["b"]),
        lambda tx: tx.rename_columns({"a": "x"}),
        lambda tx: tx.drop_columns(["a"]),
    ],
)
def test_an_iterator_that_changes_the_columns_it_is_appended_to_is_a_conflict(two_columns, change):
    with blz.open(two_columns, "a") as t, t.transaction() as tx:

        def items():
            yield {"a": [5], "b": [6]}
            change(tx)
            yield {"a": [7], "b": [8]}

        with pytest.raises(blz.ConflictError):
            tx.append(items())
        tx.attrs["kept"] = 1
    with blz.open(two_columns) as t:
        assert t.to_arrow().to_pydict() == {"a": [1, 2], "b": [3, 4]}
        assert dict(t.attrs) == {"kept": 1}
        assert t.verify()


# Guards nested appends: the data of one append may append to the same transaction.
def test_an_iterator_may_append_to_the_transaction_that_draws_it(two_columns):
    with blz.open(two_columns, "a") as t:
        with t.transaction() as tx:

            def items():
                yield {"a": [5], "b": [6]}
                tx.append({"a": [9], "b": [9]})

            tx.append(items())
        assert sorted(t["a"][:].to_pylist()) == [1, 2, 5, 9]
        assert t.verify()


# Bug: a column of a transaction was pickled as the column of the last version.
def test_what_a_transaction_shows_is_not_pickled_as_what_is_below_it(two_columns):
    with blz.open(two_columns, "a") as t, t.transaction() as tx:
        tx.update({"a": 7})
        with pytest.raises(TypeError, match="an open transaction cannot be pickled"):
            pickle.dumps(tx["a"])


# Bug: a column of a transaction was still readable after the transaction.
def test_what_was_taken_from_a_transaction_is_closed_with_it(two_columns):
    with blz.open(two_columns, "a") as t:
        with t.transaction() as tx:
            tx.update({"a": 7})
            column = tx["a"]
            tx.update({"a": 8})
            assert column[:].to_pylist() == [7, 7]
        with pytest.raises(blz.ClosedError, match="closed"):
            column[:]


@pytest.fixture
def numbers(tmp_path):
    blz.to_blz({"a": [1, 2, 3]}, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", "a") as numbers:
        yield numbers


def test_a_change_of_nothing_commits_nothing(numbers):
    numbers.update({})
    numbers.attrs.update({})
    numbers.configure()
    numbers.update({"a": 0}, where=[("a", ">", 3)])
    numbers.delete([("a", ">", 3)])
    numbers.resize(3)
    numbers.append({"a": []})
    numbers.compact()
    with numbers.transaction():
        pass
    assert numbers.version == 1


def test_a_transaction_is_entered_once(numbers):
    with numbers.transaction() as transaction:
        transaction.append({"a": [4]})
        with pytest.raises(blz.BlzError, match="entered before"):
            transaction.__enter__()
        transaction.append({"a": [5]})
    with pytest.raises(blz.BlzError, match="entered before"):
        transaction.__enter__()
    assert (numbers.version, len(numbers)) == (2, 5)


def test_a_transaction_sorts_by_names_as_a_table_does(numbers):
    with numbers.transaction() as transaction:
        transaction.append({"a": [0]})
        transaction.rename_columns({"a": "size"})
        transaction.compact("size")
        assert transaction["size"][:].to_pylist() == [0, 1, 2, 3]
        transaction.compact([("size", "descending")])
        assert transaction["size"][:].to_pylist() == [3, 2, 1, 0]
    with pytest.raises(ValueError, match="sort_by must be column names or"):
        numbers.compact([("a", "up")])


def test_a_transaction_reads_columns_in_bundles_as_it_has_left_them():
    """Columns of numbers are read together by the text of their lines, also of staged ones."""
    store, names = RamStore(), list("abcdef")
    blz.to_blz({name: range(10) for name in names}, store)
    with blz.open(store, "a") as table:
        with table.transaction() as tx:
            tx.append({name: range(10, 20) for name in names})
            tx.delete("a = 12")
            tx.add_column("g", pc.field("a") * 2)
            tx.update({"b": 0}, "a = 1")
            tx.drop_columns(["c"])
            tx.rename_columns({"d": "z"})
            inside = tx.to_arrow()
        assert table.to_arrow().equals(inside)
    rows = [*range(12), *range(13, 20)]
    assert inside.to_pydict() == {
        "a": rows,
        "b": [0 if row == 1 else row for row in rows],
        "z": rows,
        "e": rows,
        "f": rows,
        "g": [2 * row for row in rows],
    }
