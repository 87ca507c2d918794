"""Upsert, replace_where and deduplicate: changes of rows that are found by their values."""

import datetime
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.version import versions
from blztable.errors import ColumnNotFoundError, ConflictError, SchemaError
from blztable.storage.memory import RamStore
from support.operations import meanwhile, opened
from support.options import arguments
from support.stored import files

NAN = math.nan


def table(data, **options) -> blz.CTable:
    store = RamStore()
    blz.to_blz(data, store, **arguments(durability="process", **{"row_group_rows": 4} | options))
    return opened(store)


def cells(t):
    return t.to_arrow().to_pydict()


class TestUpsert:
    def test_rows_whose_key_is_there_are_updated_and_others_are_appended_in_one_commit(self):
        t = table({"id": range(10), "x": [0.5] * 10})
        done = t.upsert({"x": [1.5, 2.5, 3.5], "id": [9, 77, 2]}, on="id")
        assert done == blz.Changed(rows_appended=1, rows_updated=2, version=2)
        assert t.versions()[-1].operation == "upsert"
        x = {2: 3.5, 9: 1.5, 77: 2.5}
        ids = [*range(10), 77]
        assert cells(t) == {"id": ids, "x": [x.get(one, 0.5) for one in ids]}

    def test_only_row_groups_with_a_key_are_written_again_and_only_the_given_columns(self):
        t = table({"id": range(12), "x": range(12), "y": range(12)}, encoding="plain")
        before = t._snapshot.version
        t.upsert({"id": [5], "x": [50]}, on="id")
        after = t._snapshot.version
        kept = [np.equal(files(before, n), files(after, n)).tolist() for n in range(3)]
        assert kept == [[True] * 3, [True, False, True], [True] * 3]

    def test_columns_that_the_data_lack_keep_their_values_and_are_default_in_new_rows(self):
        fields = [("id", pa.int64()), pa.field("n", pa.int64(), nullable=False), ("s", pa.string())]
        rows = [{"id": 1, "n": 7, "s": "a"}, {"id": 2, "n": 8, "s": "b"}]
        t = table(pa.Table.from_pylist(rows, pa.schema(fields)))
        t.upsert({"id": [2], "s": ["c"]}, on="id")
        with pytest.raises(SchemaError, match=r"column 'n': the data lack it, and 1 of the keys"):
            t.upsert({"id": [1, 3], "s": ["d", "e"]}, on="id")
        t.alter_column("n", default=-1)
        t.upsert({"id": [1, 3], "s": ["d", "e"]}, on="id")
        assert cells(t) == {"id": [1, 2, 3], "n": [7, 8, -1], "s": ["d", "c", "e"]}

    def test_ordered_categories_that_are_not_null_are_needed_by_new_rows_only(self):
        codes = pa.array([0, 1], pa.int8())
        grades = pa.DictionaryArray.from_arrays(codes, pa.array(["lo", "hi"]), ordered=True)
        fields = [("id", pa.int64()), pa.field("grade", grades.type, nullable=False)]
        rows = pa.table([[1, 2], grades], pa.schema(fields))
        t = table(rows.append_column("n", pa.array([7, 8])))
        t.upsert({"id": [2], "n": [9]}, on="id")
        t.upsert({"id": [3], "n": [1], "grade": grades[:1]}, on="id")
        with pytest.raises(SchemaError, match=r"the data lack it, and 1 of the keys are new"):
            t.upsert({"id": [2, 4], "n": [0, 0]}, on="id")
        assert cells(t) == {"id": [1, 2, 3], "grade": ["lo", "hi", "lo"], "n": [7, 9, 1]}

    def test_several_columns_are_one_key(self):
        t = table({"day": [1, 1, 2], "id": ["a", "b", "a"], "n": [1, 2, 3]})
        done = t.upsert({"day": [2, 2, 1], "id": ["b", "a", "a"], "n": [4, 5, 6]}, on=["id", "day"])
        assert (done.rows_updated, done.rows_appended) == (2, 1)
        assert cells(t) == {"day": [1, 1, 2, 2], "id": ["a", "b", "a", "b"], "n": [6, 2, 5, 4]}

    def test_all_rows_of_the_table_with_a_key_are_updated(self):
        t = table({"id": [1, 2, 1, 3, 3, 1], "n": range(6)})
        assert t.upsert({"id": [1], "n": [9]}, on="id").rows_updated == 3
        assert cells(t)["n"] == [9, 1, 9, 3, 4, 9]

    def test_a_key_twice_in_the_data_is_refused_by_name_and_nothing_is_done(self):
        t = table({"day": [1], "id": ["a"], "n": [1]})
        data = {"day": [5, 6, 5], "id": ["x", "x", "x"], "n": [1, 2, 3]}
        with pytest.raises(ValueError, match=r"row 2 .* key \{'day': 5, 'id': 'x'\} of an earlier"):
            t.upsert(data, on=["day", "id"])
        assert t.version == 1

    @pytest.mark.parametrize(
        "keys",
        [
            pa.array([1, None, 3]),
            pa.array([1.5, float("nan"), 0.0]),
            pa.array([1.5, None, float("inf")], pa.float32()),
            pa.array(["a", None, ""]),
            pa.array(["a", None, ""], pa.string_view()),
            pa.array([b"a", None, b""], pa.large_binary()),
            pa.array([True, None, False]),
            pa.array([datetime.date(2026, 1, 1), None, datetime.date(2026, 1, 2)]),
            pa.array(["a", None, "b"]).dictionary_encode(),
            pa.array([1, None, 3], pa.timestamp("us", "UTC")),
            pa.array([1, None, 3], pa.decimal128(5, 1)),
            pa.array([1.5, None, 2.5], pa.float16()),
        ],
        ids=lambda keys: str(keys.type),
    )
    def test_keys_of_any_plain_type_are_found_null_and_nan_too(self, keys):
        t = table(pa.table({"id": keys, "n": [1, 2, 3]}), row_group_rows=2)
        turned = pa.concat_arrays([keys[2:], keys[1:2], keys[:1]])
        done = t.upsert(pa.table({"id": turned, "n": [10, 20, 30]}), on="id")
        assert (done.rows_updated, done.rows_appended) == (3, 0)
        assert cells(t)["n"] == [30, 20, 10]

    @pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.float16()], ids=str)
    @pytest.mark.parametrize(
        ("stored", "key"), [(0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0), (NAN, -NAN), (-NAN, NAN)]
    )
    def test_zero_is_minus_zero_and_a_nan_is_one_of_other_bits(self, type_, stored, key):
        stored = pa.array([stored, 1.0]).cast(type_)
        t = table(pa.table({"id": stored, "n": [1, 2]}))
        new = pa.table({"id": pa.array([key]).cast(type_), "n": [3]})
        assert t.upsert(new, on="id").rows_updated == 1
        assert cells(t)["n"] == [3, 2]
        t.append(new)
        assert t.deduplicate(on="id").rows_deleted == 1
        assert len(t) == 2

    def test_nested_columns_travel(self):
        structs = [{"a": 1, "b": ["x"]}, None, {"a": 3, "b": []}, {"a": 4, "b": None}]
        t = table({"id": [1, 2, 3, 4], "deep": structs}, row_group_rows=2)
        new = [{"a": 9, "b": ["y", "z"]}, {"a": 7, "b": None}, None]
        t.upsert({"id": [3, 5, 1], "deep": new}, on="id")
        assert cells(t) == {"id": [1, 2, 3, 4, 5], "deep": [None, None, new[0], structs[3], new[1]]}

    def test_a_frame_with_its_stored_index_as_key(self):
        frame = pd.DataFrame({"n": [1, 2]}, index=pd.Index(["a", "b"], name="id"))
        t = table(frame)
        t.upsert(pd.DataFrame({"n": [3, 4]}, index=pd.Index(["b", "c"], name="id")), on="id")
        expected = pd.DataFrame({"n": [1, 3, 4]}, index=pd.Index(["a", "b", "c"], name="id"))
        pd.testing.assert_frame_equal(t.to_pandas(), expected)

    def test_items_of_an_iterable_are_one_upsert(self):
        t = table({"id": [1, 2], "n": [1, 2]})
        parts = ({"id": [one], "n": [one * 10]} for one in (2, 3))
        assert t.upsert(parts, on="id") == blz.Changed(1, 1, 0, 2)
        mixed = iter([{"id": [1], "n": [5]}, {"id": [2]}])
        with pytest.raises(SchemaError, match="item 1 has other columns"):
            t.upsert(mixed, on="id")
        assert cells(t) == {"id": [1, 2, 3], "n": [1, 20, 30]}

    @pytest.mark.parametrize(
        ("on", "error", "message"),
        [
            ("nope", ColumnNotFoundError, "nope"),
            ([], ValueError, "on must be"),
            (["id", "id"], ValueError, "on must be"),
            (7, TypeError, "not iterable"),
            ("deep", SchemaError, "cannot be found by"),
            ("n", SchemaError, "the data lack the key 'n'"),
        ],
    )
    def test_a_key_that_cannot_be_used_is_refused(self, on, error, message):
        t = table({"id": [1], "n": [1], "deep": [[1]]})
        with pytest.raises(error, match=message):
            t.upsert({"id": [1], "deep": [[2]]}, on=on)

    def test_nothing_is_nothing(self):
        t = table({"id": [1], "n": [1]})
        assert t.upsert({"id": pa.array([], "int64")}, on="id") == blz.Changed(version=1)
        # The rows are there, and no column is given that could change.
        assert t.upsert({"id": [1]}, on="id") == blz.Changed(version=1)

    def test_an_empty_table_takes_all_rows(self):
        t = table({"id": pa.array([], "int64"), "n": pa.array([], "int64")})
        assert t.upsert({"id": [1], "n": [2]}, on="id") == blz.Changed(1, 0, 0, 2)

    def test_two_that_add_the_same_key_at_once_add_it_once(self):
        t = table({"id": [1], "n": [1]})
        store = t._snapshot.version.store

        def theirs():
            with opened(store) as other:
                other.upsert({"id": [2], "n": [5]}, on="id")

        with opened(meanwhile(store, theirs)) as mine:
            assert mine.upsert({"id": [2], "n": [6]}, on="id") == blz.Changed(0, 1, 0, 3)
        assert cells(opened(store)) == {"id": [1, 2], "n": [1, 6]}

    @pytest.mark.parametrize("on", ["id", ["id", "day"]])
    def test_keys_that_others_add_are_no_conflict(self, on):
        t = table({"id": [1], "day": [1], "n": [1]})
        store = t._snapshot.version.store

        def theirs():
            with opened(store) as other:
                other.upsert({"id": [2, 3], "day": [2, 1], "n": [5, 6]}, on=on)

        with opened(meanwhile(store, theirs), retries=0) as mine:
            mine.upsert({"id": [3, 4] if on != "id" else [4, 5], "day": [2, 2]}, on=on)
        assert versions.newest_number(store) == 3

    def test_data_that_can_be_read_once_are_not_read_again(self):
        t = table({"id": [1], "n": [1]})
        store = t._snapshot.version.store

        def theirs():
            with opened(store) as other:
                other.upsert({"id": [1], "n": [5]}, on="id")

        parts = iter([{"id": [1], "n": [7]}])
        with opened(meanwhile(store, theirs)) as mine, pytest.raises(ConflictError):
            mine.upsert(parts, on="id")

    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def test_it_is_what_a_dict_does(self, data):
        keys = st.tuples(st.sampled_from([None, 1, 2, 3, 4]), st.sampled_from(["a", "b", None]))
        there = data.draw(st.lists(keys, unique=True, max_size=12))
        new = data.draw(st.lists(keys, unique=True, max_size=8))
        both = pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int64())])

        def rows(keys, first):
            columns = [[k for k, _ in keys], [s for _, s in keys], range(first, first + len(keys))]
            return pa.table(
                [pa.array(c, t) for c, t in zip(columns, both.types, strict=True)], schema=both
            )

        t = table(rows(there, 0), row_group_rows=data.draw(st.integers(1, 5)))
        t.upsert(rows(new, 100), on=["k", "s"])
        expected = {key: n for n, key in enumerate(there)}
        expected |= {key: n for n, key in enumerate(new, 100)}
        found = cells(t)
        pairs = zip(found["k"], found["s"], strict=True)
        assert dict(zip(pairs, found["n"], strict=True)) == expected
        assert len(t) == len(expected)


class TestReplaceWhere:
    def test_a_day_is_replaced_in_one_commit(self):
        t = table({"day": [1, 1, 2, 2, 3], "n": range(5)})
        done = t.append({"day": [2], "n": [9]}, replace_where=[("day", "==", 2)])
        assert done == blz.Changed(rows_appended=1, rows_deleted=2, version=2)
        assert t.versions()[-1].operation == "replace_where"
        assert cells(t) == {"day": [1, 1, 3, 2], "n": [0, 1, 4, 9]}

    def test_rows_that_do_not_meet_the_condition_are_refused_with_their_number(self):
        t = table({"day": [1, 2], "n": [0, 1]})
        data = {"day": [2, None, 3, 2, 3, 2], "n": range(6)}
        with pytest.raises(ValueError, match=r"3 of 6 rows .* the first is row 1;"):
            t.append(data, replace_where=[("day", "==", 2)])
        assert (t.version, cells(t)["n"]) == (1, [0, 1])
        with t.transaction() as tx:
            tx.append({"day": [5], "n": [5]})
            with pytest.raises(ValueError, match="3 of 6"):
                tx.append(data, replace_where=[("day", "==", 2)])
        assert cells(t)["n"] == [0, 1, 5]

    def test_the_condition_may_be_an_expression_of_fields(self):
        t = table({"at": [{"day": 1}, {"day": 2}], "n": [0, 1]})
        t.append({"at": [{"day": 2}], "n": [7]}, replace_where=pc.field("at", "day") == 2)
        with pytest.raises(ValueError, match="1 of 1"):
            t.append({"at": [{"day": 2}], "n": [7]}, replace_where=pc.field("at", "day") == 1)
        assert cells(t)["n"] == [0, 7]

    def test_no_rows_in_the_place_of_some_and_some_in_the_place_of_none(self):
        t = table({"day": [1, 2], "n": [0, 1]})
        none = pa.table({"day": pa.array([], "int64"), "n": pa.array([], "int64")})
        assert t.append(none, replace_where=[("day", "==", 2)]).rows_deleted == 1
        assert t.append({"day": [3], "n": [3]}, replace_where=[("day", "==", 3)]).rows_appended == 1
        assert t.append(none, replace_where=[("day", "==", 4)]) == blz.Changed(version=3)

    def test_a_stream_is_streamed(self):
        t = table({"day": [1, 2], "n": [0, 1]})
        parts = ({"day": [2], "n": [n]} for n in range(9))
        assert t.append(parts, replace_where=[("day", "==", 2)]).rows_appended == 9

    @pytest.mark.parametrize("there", [True, False])
    def test_two_jobs_that_replace_a_day_at_once_leave_it_once(self, there):
        t = table({"day": [1, 2 if there else 1], "n": [0, 1]})
        store = t._snapshot.version.store

        def theirs():
            with opened(store) as other:
                other.append({"day": [2, 2], "n": [5, 6]}, replace_where=[("day", "==", 2)])

        with opened(meanwhile(store, theirs)) as mine:
            done = mine.append({"day": [2, 2], "n": [7, 8]}, replace_where=[("day", "==", 2)])
        assert (done.rows_deleted, done.rows_appended, done.version) == (2, 2, 3)
        assert cells(opened(store))["n"] == [0, 7, 8] if there else [0, 1, 7, 8]


class TestDeduplicate:
    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def test_it_is_what_pandas_does(self, data):
        rows = data.draw(st.integers(0, 25))
        column = st.lists(st.sampled_from([None, 1.0, 2.0, 3.0]), min_size=rows, max_size=rows)
        frame = pd.DataFrame({name: data.draw(column) for name in "abc"}, dtype="float64")
        on = data.draw(st.sampled_from([None, "a", ["a", "b"]]))
        keep = data.draw(st.sampled_from(["first", "last"]))
        order_by = data.draw(st.sampled_from([None, "c", [("c", "descending"), "b"]]))
        t = table(frame, row_group_rows=data.draw(st.integers(1, 9)))
        done = t.deduplicate(on, keep=keep, order_by=order_by)
        ordered = frame
        if order_by == "c":
            ordered = frame.sort_values("c", kind="stable")
        elif order_by:
            ordered = frame.sort_values(["c", "b"], ascending=[False, True], kind="stable")
        left = ordered.drop_duplicates([on] if isinstance(on, str) else on, keep=keep).sort_index()
        pd.testing.assert_frame_equal(t.to_pandas(), left.reset_index(drop=True))
        assert done.rows_deleted == rows - len(left)

    def test_a_row_group_without_a_duplicate_is_left_as_it_is(self):
        t = table({"id": [1, 2, 3, 4, 1, 5], "n": range(6)}, row_group_rows=2)
        before = t._snapshot.version.bundles
        assert t.deduplicate("id") == blz.Changed(rows_deleted=1, version=2)
        assert cells(t)["n"] == [0, 1, 2, 3, 5]
        assert t._snapshot.version.bundles[:2] == before[:2]
        assert t.deduplicate("id").version == 2

    def test_arguments_are_checked(self):
        t = table({"id": [1], "deep": [[1]]})
        with pytest.raises(ValueError, match="keep"):
            t.deduplicate("id", keep="any")
        with pytest.raises(SchemaError, match="cannot be found by"):
            t.deduplicate()
        with pytest.raises(ColumnNotFoundError):
            t.deduplicate("id", order_by="at")

    def test_rows_that_a_producer_appends_meanwhile_are_left_alone(self):
        t = table({"id": [1, 1], "n": [0, 1]})
        store = t._snapshot.version.store

        def theirs():
            with opened(store) as other:
                other.append({"id": [1], "n": [2]})

        with opened(meanwhile(store, theirs), retries=0) as mine:
            mine.deduplicate("id")
        assert cells(opened(store))["n"] == [0, 2]


def test_all_of_them_in_one_transaction_and_what_it_did():
    t = table({"id": [1, 2, 2], "n": [0, 1, 2]})
    with t.transaction() as tx:
        assert tx.deduplicate("id").rows_deleted == 1
        assert tx.upsert({"id": [2, 3], "n": [5, 6]}, on="id") == blz.Changed(1, 1)
        assert tx.append({"id": [9], "n": [9]}, replace_where=[("id", ">", 2)]) == blz.Changed(
            1, 0, 1
        )
        assert tx.changed == blz.Changed(2, 1, 2, 1)
    assert tx.changed == blz.Changed(2, 1, 2, 2)
    assert str(tx.changed) == "version 2: 2 rows appended, 1 row updated, 2 rows deleted"
    assert cells(t) == {"id": [1, 2, 9], "n": [0, 5, 9]}


def test_a_transaction_that_was_made_before_did_nothing():
    t = table({"id": [1], "n": [0]})
    for _ in range(2):
        with t.transaction(commit_id="day") as tx:
            tx.upsert({"id": [1], "n": [5]}, on="id")
            tx.deduplicate("id")
            tx.append({"id": [2], "n": [np.int64(3)]}, replace_where=[("id", "==", 2)])
    assert tx.changed == blz.Changed(version=2)


def test_an_upsert_names_the_value_of_an_item_that_the_type_of_later_ones_does_not_hold():
    with blz.create(RamStore(), {"k": "int8", "v": "int64"}) as t:
        items = [pa.table({"k": [1], "v": [2**60 + 1]}), pa.table({"k": [2], "v": [0.5]})]
        with pytest.raises(blz.SchemaError, match=rf"'v'.* {2**60 + 1} does not fit double"):
            t.upsert(iter(items), on="k", evolve=True)
        assert len(t) == 0


OF_VIEWS = [
    pa.array(["t", None, "a text that is longer than a view"] * 100, pa.string_view()),
    pa.array([b"t", None, b"bytes that are longer than a view"] * 100, pa.binary_view()),
    pa.array([["t"], None, []] * 100, pa.list_(pa.string_view())),
    pa.array([[1], None, []] * 100, pa.list_view(pa.int8())),
    pa.array([{"x": "t"}, None, {"x": None}] * 100, pa.struct([("x", pa.string_view())])),
    pa.array(["t", None, "u"] * 100).dictionary_encode(),
    pc.run_end_encode(pa.array([1, 1, None] * 100)),
    pa.array([b"0" * 16, None, b"1" * 16] * 100, pa.uuid()),
]


# Bug: views of rows that moved met new rows of the stored type: ArrowTypeError.
@pytest.mark.parametrize("values", OF_VIEWS, ids=lambda values: str(values.type))
@pytest.mark.parametrize("new", [[2], [2, 300], list(range(0, 310, 3))], ids=len)
def test_rows_that_move_keep_the_values_of_columns_that_the_data_leave_out(values, new):
    store = RamStore()
    blz.to_blz(pa.table({"id": range(300), "v": values, "s": ["x"] * 300}), store)
    with blz.open(store, "a") as t:
        t.upsert({"id": new, "s": ["q"] * len(new)}, on="id")
        found = t.to_pandas(columns=["id", "s"]).merge(
            pd.DataFrame({"id": t["id"].to_numpy(), "at": np.arange(len(t))})
        )
        kept = t["v"].to_arrow()
    assert kept.type == values.type
    place = dict(zip(found["id"], found["at"], strict=True))
    expected = values.to_pylist()
    assert [kept[place[number]].as_py() for number in range(300)] == expected
    assert sorted(place) == sorted({*range(300), *new})
    assert set(found.loc[found["id"].isin(new), "s"]) == {"q"}
