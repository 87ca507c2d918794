"""Appends: data go behind the existing rows, by column name, without loss, or not at all."""

import math
import os
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import StagedVersion
from blztable.errors import ConflictError, SchemaError
from blztable.storage.memory import RamStore
from blztable.table.changing import rows as changing_rows
from support import arrow_strategies as types
from support import samples
from support.bit_equality import bits, same
from support.operations import meanwhile
from support.options import arguments
from support.stores import tree

KINDS = [*types.PLAIN, *samples.DICTIONARIES]


def table(data, **options) -> blz.CTable:
    """Return a table in memory, in small pages and row groups."""
    store = RamStore()
    blz.to_blz(data, store, **arguments(durability="process", **{"page_rows": 8, **options}))
    return blz.open(store, "a")


def set_head(t, **fields) -> None:
    """Commit a change of the head that users cannot make."""
    store = t._snapshot.version.store

    def draft(newest):
        return StagedVersion.of(newest).with_head(**fields)

    with Commit(CommitPlan(store, is_durable=False)) as transaction:
        transaction.publish("test", draft)[1].close()


def entries(t) -> set[str]:
    return tree(t._snapshot.version.store)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_type_is_appended_to(kind):
    first, more = samples.array(kind, 12), samples.array(kind, 29)
    t = table(pa.table({"x": first}))
    t.append(pa.table({"x": more}))
    with t.transaction() as tx, tx.appender() as a:
        a["x"].append(more[:5])
        a["x"].append(more[5:])
    assert t.schema.types == [kind]
    assert bits(t.to_arrow().column("x")) == bits(first) + bits(more) * 2
    assert t.verify().is_intact


FORMS = {
    "frame": lambda data: data.to_pandas(),
    "table": lambda data: data,
    "batch": lambda data: data.to_batches()[0],
    "reader": lambda data: data.to_reader(),
    "iterator": lambda data: iter([data[:1], data[1:].to_pandas(), {"a": [], "b": []}]),
    "mapping": lambda data: data.to_pydict(),
}


@pytest.mark.parametrize("form", FORMS)
def test_columns_go_by_name_in_whatever_the_data_come(form):
    t = table({"a": [1], "b": ["x"]})
    t.append(FORMS[form](pa.table({"b": ["y", None], "a": [2, 3]})))
    assert t.to_arrow().to_pydict() == {"a": [1, 2, 3], "b": ["x", "y", None]}


def test_a_column_that_is_missing_has_its_default_or_null():
    t = table(pa.table({"a": [1]}))
    t.add_column("b", ["x"])
    t.add_column("c", pa.array([1], pa.int8()), default=7)
    t.append({"a": [2]})
    assert t.to_arrow().to_pydict() == {"a": [1, 2], "b": ["x", None], "c": [1, 7]}


REFUSED = {
    "unknown column": {"a": [1], "s": ["x"], "z": [1]},
    "lossy type": {"a": [1.5], "s": ["x"]},
    "other type": {"a": ["x"], "s": ["x"]},
    "number for text": {"a": [1], "s": [1]},
    "lossy in a later item": iter([{"a": [1], "s": ["x"]}, {"a": [1.5], "s": ["y"]}]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_data_that_do_not_fit_commit_nothing(case):
    t = table(pd.DataFrame({"a": [1, 2], "s": ["x", "y"]}), row_group_rows=2)
    before, data = entries(t), REFUSED[case]
    with pytest.raises(SchemaError, match=r"column|missing"):
        t.append(list(data) if case.startswith("lossy in") else data)
    assert entries(t) == before
    assert (t.version, len(t)) == (1, 2)


def test_no_rows_are_no_commit():
    t = table({"a": [1]})
    for nothing in ({"a": []}, pa.table({"a": pa.array([], pa.int64())}), iter([])):
        assert t.append(nothing).version == 1
    with t.transaction() as tx, tx.appender():
        pass
    assert t.version == 1


def test_a_longer_text_is_never_cut():
    t = table({"s": ["a"]})
    long = "ä" * 100_000
    t.append({"s": [long, ""]})
    assert t["s"][:].to_pylist() == ["a", long, ""]


def test_dictionaries_may_differ_from_part_to_part():
    t = table({"c": pd.Categorical(["a", "b"])})
    t.append({"c": pd.Categorical(["z", None, "b"])})
    with t.transaction() as tx, tx.appender() as a:
        a["c"].append(pd.Categorical(["q"]))
        a["c"].append(pd.Categorical(["b"]))
        a["c"].append("one value")
    found = t.to_pandas()["c"]
    assert found.tolist()[:3] == ["a", "b", "z"]
    assert found.tolist()[4:] == ["b", "q", "b", "one value"]
    assert found.cat.categories.tolist() == ["a", "b", "z", "q", "one value"]


class TestEvolving:
    def test_columns_are_added_and_numbers_widened_in_one_commit(self):
        t = table(pa.table({"i": pa.array([1], pa.int8()), "f": pa.array([0.5], pa.float32())}))
        t.append(pa.table({"f": [0.1], "i": [300], "new": ["x"]}), evolve=True)
        assert t.version == 2
        assert t.schema.types[:2] == [pa.int64(), pa.float64()]
        assert t.to_arrow().to_pydict() == {"i": [1, 300], "f": [0.5, 0.1], "new": [None, "x"]}
        assert t.verify().is_intact

    def test_a_table_without_rows_takes_new_columns_too(self):
        t = table(pa.table({"i": pa.array([], pa.int8())}))
        t.append(pa.table({"i": [1000], "c": pd.Categorical(["x"])}), evolve=True)
        assert t.to_arrow().to_pydict() == {"i": [1000], "c": ["x"]}

    def test_columns_without_rows_are_added_as_well(self):
        t = table({"i": [1]})
        t.append(pa.table({"i": pa.array([], pa.int64()), "n": pa.array([], "f8")}), evolve=True)
        assert t.to_arrow().to_pydict() == {"i": [1], "n": [None]}

    def test_a_default_widens_with_its_column(self):
        t = table(pa.table({"i": [1]}))
        t.add_column("n", pa.array([1], pa.int8()), default=-7)
        t.append(pa.table({"i": [2], "n": [300]}), evolve=True)
        t.append({"i": [3]})
        assert t["n"][:].to_pylist() == [1, 300, -7]

    def test_what_cannot_be_widened_commits_nothing(self):
        t = table({"i": [1]})
        before = entries(t)
        pieces = [{"i": [2], "new": [1]}, {"i": ["x"], "new": [1]}]
        with pytest.raises(SchemaError, match="item 1"):
            t.append(iter(pieces), evolve=True)
        assert entries(t) == before
        assert t.columns == ["i"]


class TestIndex:
    def test_the_usual_index_counts_on(self):
        frame = pd.DataFrame({"a": [1, 2]})
        t = table(frame)
        t.append(frame)
        t.append(frame.set_axis([4, 5], axis=0).set_axis(pd.RangeIndex(4, 6), axis=0))
        expected = pd.concat([frame] * 3, ignore_index=True)
        pd.testing.assert_frame_equal(t.to_pandas(), expected, check_index_type="exact")

    def test_a_range_is_extended_where_it_stops_and_nowhere_else(self):
        frame = pd.DataFrame({"a": [1, 2]}, pd.RangeIndex(10, 14, 2, name="at"))
        t = table(frame)
        more = frame.set_axis(pd.RangeIndex(14, 18, 2, name="at"))
        t.append(more)
        pd.testing.assert_frame_equal(t.to_pandas(), pd.concat([frame, more]))
        with pytest.raises(SchemaError, match=r"(?s)\(14..18, step 2\).*\(10..18, step 2\)"):
            t.append(more)

    def test_an_index_of_columns_goes_by_their_names(self):
        days = pd.date_range("2026-01-01", periods=2, name="day")
        frame = pd.DataFrame({"a": [1, 2]}, pd.MultiIndex.from_arrays([days, ["x", "y"]]))
        t = table(frame)
        t.append(frame)
        pd.testing.assert_frame_equal(t.to_pandas(), pd.concat([frame, frame]))
        with pytest.raises(SchemaError, match=r"a RangeIndex \(0..1\), the table a stored index"):
            t.append(pd.DataFrame({"a": [1]}))

    def test_an_index_that_counts_on_relies_on_the_rows_before(self):
        t = table(pd.DataFrame({"a": [1, 2]}, pd.RangeIndex(5, 7)))
        behind = blz.open(t._snapshot.version.store, "a")
        more = pd.DataFrame({"a": [3]}, pd.RangeIndex(7, 8))
        t.append(more)
        with pytest.raises(ConflictError, match=r"continues from row 2; version 2 has 3 rows"):
            behind.append(more)
        assert t.to_pandas().index.equals(pd.RangeIndex(5, 8))

    def test_the_usual_index_relies_on_nothing(self):
        t = table(pd.DataFrame({"a": [1]}))
        behind = blz.open(t._snapshot.version.store, "a")
        t.append(pd.DataFrame({"a": [2]}))
        behind.append(pd.DataFrame({"a": [3]}))
        assert behind.to_pandas()["a"].tolist() == [1, 2, 3]


def test_a_frame_keeps_its_dtypes_as_pandas_own_concat_does():
    frame = samples.frame()
    t = table(frame, row_group_rows=8)
    t.append(frame)
    with t.transaction() as tx, tx.appender() as a:
        for name in frame:
            a[name].append(frame[name])
        for level, name in enumerate(["day", "__index_level_1__"]):
            a[name].append(frame.index.get_level_values(level))
    expected = pd.concat([frame] * 3)
    pd.testing.assert_frame_equal(t.to_pandas(), expected, check_freq=False)


class TestOrder:
    """Ordered categories must have the table's order."""

    FRAME = pd.DataFrame({"c": pd.Categorical(["lo", "hi"], ["lo", "mid", "hi"], ordered=True)})
    OTHER = pd.Categorical(["hi"], ["hi", "lo"], ordered=True)

    def test_other_ones_are_refused_wherever_they_come(self):
        t = table(self.FRAME)
        with pytest.raises(SchemaError, match="ordered categories"):
            t.append({"c": self.OTHER})
        with (
            pytest.raises(SchemaError, match="ordered categories"),
            t.transaction() as tx,
            tx.appender() as a,
        ):
            a["c"].append(self.OTHER)
        with pytest.raises(SchemaError, match="ordered categories"):
            t.update({"c": self.OTHER}, pc.field("c") == "hi")
        with pytest.raises(SchemaError, match="'zz' is not one of the ordered categories"):
            t.update({"c": "zz"})
        assert t.version == 1

    def test_a_default_that_is_none_of_them_hinders_only_the_rows_that_need_it(self):
        t = table(self.FRAME[:0])
        t.alter_column("c", default="zz")
        t.append(self.FRAME)
        t.append(self.FRAME)
        t.append(self.FRAME, evolve=True)
        with pytest.raises(SchemaError, match=r"'zz' is not one .*alter_column\('c', default="):
            t.append(pd.DataFrame({"d": [1]}), evolve=True)
        assert t.to_pandas()["c"].tolist() == ["lo", "hi"] * 3

    def test_a_category_may_be_a_time_that_python_does_not_have(self):
        times = pa.array([1 << 60, 5], pa.timestamp("s"))
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), times, ordered=True)
        t = table({"c": column})
        t.update({"c": column[0]}, pc.field("c") == pa.scalar(5, pa.timestamp("s")))
        assert t.to_arrow()["c"].combine_chunks().indices.to_pylist() == [0, 0]
        with pytest.raises(SchemaError, match=r"983 of type .* is not one of the ordered"):
            t.update({"c": pa.scalar((1 << 60) + 7, pa.timestamp("s"))})

    def test_single_values_take_their_place_in_the_order(self):
        t = table(self.FRAME)
        t.update({"c": "mid"}, pc.field("c") == "lo")
        with t.transaction() as tx, tx.appender() as a:
            a["c"].append("hi")
        found = t.to_pandas()["c"]
        assert found.tolist() == ["mid", "hi", "hi"]
        assert found.cat.categories.tolist() == ["lo", "mid", "hi"]

    def test_the_first_that_an_appender_is_fed_decide_where_there_are_none(self):
        t = table(self.FRAME[:0])
        with t.transaction() as tx, tx.appender() as a:
            a["c"].append(self.OTHER)
            with pytest.raises(SchemaError, match="ordered categories"):
                a["c"].append(self.FRAME["c"])
        assert t.to_pandas()["c"].cat.categories.tolist() == ["hi", "lo"]

    def test_two_orders_in_one_piece_are_refused_where_there_are_none(self):
        t = table(self.FRAME[:0])
        pieces = [pa.array(self.OTHER), pa.array(self.FRAME["c"])]
        both = pa.chunked_array([piece.cast(pieces[0].type) for piece in pieces])
        with t.transaction() as tx, tx.appender() as a:
            with pytest.raises(SchemaError, match="ordered categories"):
                a["c"].append(both)
            a["c"].append(self.FRAME["c"])
        assert t.to_pandas()["c"].cat.categories.tolist() == ["lo", "mid", "hi"]


class TestAppender:
    def test_columns_are_fed_in_any_order_and_pieces(self):
        t = table({"x": [0], "y": ["a"]}, row_group_rows=4)
        with t.transaction() as tx, tx.appender() as a:
            for start in range(1, 11, 3):
                a["y"].append([str(n) for n in range(start, min(start + 3, 11))])
            a["x"].append(np.arange(1, 10))
            a["x"].append(10)
        assert t.version == 2
        assert t["x"][:].to_pylist() == [*range(11)]
        assert t["y"][:].to_pylist() == ["a", *map(str, range(1, 11))]

    def test_row_groups_are_cut_alike_in_all_columns(self):
        t = table({"x": [0], "y": ["a"]}, row_group_rows=4)
        with t.transaction() as tx, tx.appender() as a:
            a["x"].append(np.arange(10))
            for n in range(10):
                a["y"].append(str(n))
        version = blz.open(t._snapshot.version.store, version=2)._snapshot.version
        assert version.row_groups == (1, 4, 4, 2)
        assert [version.parts(index).rows for index in (0, 1)] == [[1, 4, 4, 2]] * 2

    def test_unequal_lengths_name_the_columns_and_commit_nothing(self):
        t = table({"x": [0], "y": ["a"]}, row_group_rows=2)
        before = entries(t)

        def feed():
            with t.transaction() as tx, tx.appender() as a:
                a["x"].append([1, 2, 3, 4, 5])
                a["y"].append(list("bcde"))

        with pytest.raises(SchemaError, match="'x' 5, 'y' 4"):
            feed()
        assert entries(t) == before
        assert t.version == 1

    def test_an_exception_leaves_no_file(self):
        t = table({"x": [0], "y": ["a"]}, row_group_rows=2)
        before = entries(t)

        def feed():
            with t.transaction() as tx, tx.appender() as a:
                a["x"].append([1, 2, 3, 4, 5])
                assert entries(t) > before
                raise LookupError

        with pytest.raises(LookupError):
            feed()
        assert entries(t) == before

    def test_a_value_that_does_not_fit_leaves_what_was_fed_before(self):
        t = table({"x": [0]})
        with t.transaction() as tx, tx.appender() as a:
            a["x"].append([1])
            with pytest.raises(SchemaError, match="column 'x'"):
                a["x"].append(["text"])
            a["x"].append([2])
        assert t["x"][:].to_pylist() == [0, 1, 2]

    def test_arrays_may_be_overwritten_once_they_were_fed(self):
        t = table({"x": np.zeros(1), "s": pd.Series(["a"], dtype=object)})
        numbers, series = np.arange(8.0), pd.Series(list("bcdefghi"), dtype=object)
        with t.transaction() as tx, tx.appender() as a:
            a["x"].append(numbers)
            a["s"].append(series)
            numbers[:] = -1
            series[:] = "?"
        assert t["x"][:].to_pylist() == [0, *range(8)]
        assert t["s"][:].to_pylist() == list("abcdefghi")

    def test_it_holds_about_a_row_group(self):
        t = table({"x": np.zeros(1), "y": np.zeros(1)}, row_group_rows=1000, page_rows=256)
        with t.transaction() as tx, tx.appender() as a:
            for _ in range(100):
                a["x"].append(np.ones(777))
                waiting = a._append._columns[0]
                assert waiting._waiting_rows < 1000
                assert len(waiting._waiting) < 100
            a["y"].append(np.ones(77_700))
        assert len(t) == 77_701

    def test_it_takes_rows_inside_of_its_with_only(self):
        t = table({"x": [0]})
        with t.transaction() as tx, tx.appender() as a:
            column = a["x"]
        with pytest.raises(blz.TransactionError, match="inside of its `with`"):
            column.append([1])


class TestCommitId:
    def test_a_job_that_is_run_again_does_no_harm_and_draws_nothing(self):
        t = table({"x": [0]})

        def job():
            drawn.append(1)
            yield {"x": [1]}

        drawn: list[int] = []
        assert t.append(job(), commit_id="monday").version == 2
        with blz.open(t._snapshot.version.store, "a") as again:
            assert again.append(job(), commit_id="monday").version == 2
            with again.transaction(commit_id="monday") as tx, tx.appender() as a:
                a["x"].append([5, 6])
            assert again["x"][:].to_pylist() == [0, 1]
        assert len(drawn) == 1

    def test_a_job_that_had_nothing_to_append_was_done_all_the_same(self):
        t = table({"x": [0]})
        done = t.append({"x": []}, commit_id="sunday").version
        assert t.append({"x": [1]}, commit_id="sunday").version == done == 2
        assert len(t) == 1

    def test_a_handle_whose_twin_was_faster_shows_its_version_until_it_is_opened_again(self):
        t = table({"x": [0]})
        with blz.open(t._snapshot.version.store, "a") as twin:
            twin.append({"x": [1]}, commit_id="monday")
        assert t.append({"x": [1]}, commit_id="monday").version == 2
        assert (t.version, len(t)) == (1, 1)

    def test_ids_outlive_a_replacement(self):
        t = table({"x": [0]})
        t.append({"x": [1]}, commit_id="monday")
        store = t._snapshot.version.store
        blz.to_blz({"x": [7]}, store, durability="process")
        with blz.open(store, "a") as later:
            assert later.append({"x": [1]}, commit_id="monday").version == 2
            assert len(later) == 1

    def test_the_1001st_id_forgets_the_first(self):
        t = table({"x": [0]})
        set_head(t, commit_ids=tuple((f"job {number}", 1) for number in range(1000)))
        t.append({"x": [1]}, commit_id="job 0")
        assert len(t) == 1
        t.append({"x": [1]}, commit_id="one more")
        t.append({"x": [1]}, commit_id="job 1")
        assert len(t) == 2
        t.append({"x": [1]}, commit_id="job 0")
        assert len(t) == 3


@pytest.mark.parametrize("n", [100, 300])
def test_many_small_appends_leave_few_row_groups(n):
    t = table({"x": [0]}, compression="zstd")
    for number in range(1, n):
        t.append(pa.table({"x": [number]}))
        groups = t._snapshot.version.row_groups
        assert len(groups) <= 8 * math.log2(number + 1) + 8
    assert same(t["x"].to_arrow().combine_chunks(), pa.array(range(n)))
    assert t.verify().is_intact


# An append that meets a replacement


class Drawn:
    """Five rows that can be read once; another job replaces the table during the read."""

    def __init__(self, store):
        self.store = store
        self.left = 5

    def batches(self):
        while self.left:
            self.left -= 1
            if self.left == 2:
                blz.to_blz({"n": [100]}, self.store, durability="process")
            yield pa.record_batch({"n": pa.array([7])})


class Cursor(Drawn):
    """The stream of a database cursor, as a capsule."""

    def __arrow_c_stream__(self, requested_schema=None):
        schema = pa.schema([("n", pa.int64())])
        return pa.RecordBatchReader.from_batches(schema, self.batches()).__arrow_c_stream__()


class Queue(Drawn):
    """An iterable that is not an iterator."""

    def __iter__(self):
        return self.batches()


@pytest.mark.parametrize("kind", [Cursor, Queue, lambda store: iter(Queue(store))])
def test_data_that_can_be_drawn_once_are_not_drawn_again_after_a_conflict(kind):
    store = RamStore()
    blz.to_blz({"n": [1]}, store, durability="process")
    with pytest.raises(blz.ConflictError, match="Repeat the call with all of the data"):
        blz.to_blz(kind(store), store, mode="a", durability="process")
    assert blz.read_table(store)["n"].to_pylist() == [100]


@pytest.mark.parametrize("kind", [Cursor, Queue])
def test_data_that_can_be_drawn_once_are_not_drawn_again_where_another_made_the_table(kind):
    store = RamStore()
    with pytest.raises(blz.ConflictError, match="Repeat the call with all of the data"):
        blz.to_blz(kind(store), store, mode="a", durability="process")
    assert blz.read_table(store)["n"].to_pylist() == [100]


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame({"n": [7]}),
        pa.table({"n": [7]}),
        pa.record_batch({"n": [7]}),
        {"n": [7]},
        [{"n": np.array([7])}],
        pl.DataFrame({"n": [7]}),
    ],
    ids=["frame", "table", "batch", "mapping", "list", "polars"],
)
def test_data_in_memory_are_appended_to_the_table_that_another_made_meanwhile(data):
    store = RamStore()
    blz.to_blz({"n": [1]}, store, durability="process")
    theirs = meanwhile(store, lambda: blz.to_blz({"n": [100]}, store, durability="process"))
    blz.to_blz(data, theirs, mode="a", durability="process")
    assert blz.read_table(store)["n"].to_pylist() == [100, 7]


@pytest.fixture
def two_columns(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2], "b": [3, 4]}, path, durability="process")
    return path


# Bug: a forked child that ended inside of an append removed its parent's files.
@pytest.mark.parametrize("durability", ["process", "full"])
def test_a_forked_child_that_ends_in_an_append_leaves_its_parents_files(two_columns, durability):
    parent = os.getpid()

    def items():
        yield {"a": [5], "b": [6]}
        if os.fork() == 0:
            # Unwinds through the transaction, like a worker that ends by an exception.
            raise SystemExit
        os.wait()
        yield {"a": [7], "b": [8]}

    try:
        # One row group an item, so that the first is written before the fork.
        blz.to_blz(
            items(),
            two_columns,
            mode="a",
            storage=blz.Storage(row_group_rows=1),
            durability=durability,
        )
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert blz.read_table(two_columns)["a"].to_pylist() == [1, 2, 5, 7]


# Bug: a warning raised as an error left the handle at the version before its own commit.
def test_a_warning_that_is_an_error_does_not_keep_a_handle_from_its_commit(two_columns):
    with blz.open(two_columns, "a") as t, warnings.catch_warnings():
        warnings.simplefilter("error")
        os.remove(two_columns / "meta" / "sizes")
        os.mkdir(two_columns / "meta" / "sizes")
        with pytest.raises(UserWarning, match="version 2 is committed, but"):
            t.append({"a": [5], "b": [6]})
        assert (len(t), t.version) == (3, 2)


# Bug: to_blz(mode="a") failed when another writer replaced the table meanwhile.
def test_an_append_that_meets_a_replacement_is_made_again_on_the_new_table(
    two_columns, monkeypatch
):
    stream = changing_rows.append_source
    seen = []

    def replaced_meanwhile(*args, **options):
        if not seen:
            seen.append(1)
            blz.to_blz({"a": [0], "b": [0]}, two_columns)
        return stream(*args, **options)

    monkeypatch.setattr(changing_rows, "append_source", replaced_meanwhile)
    blz.to_blz({"a": [5], "b": [6]}, two_columns, mode="a")
    assert blz.read_table(two_columns).to_pydict() == {"a": [0, 5], "b": [0, 6]}
    seen.clear()
    with pytest.raises(blz.ConflictError):
        blz.to_blz(iter([{"a": [5], "b": [6]}]), two_columns, mode="a")
