"""Changes of rows: update, delete, truncate, resize and sort, for every type."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.errors import ConflictError, SchemaError
from blztable.storage.memory import RamStore
from support import arrow_strategies as types
from support import samples
from support.arrow_strategies import arrays
from support.bit_equality import bits
from support.options import arguments
from support.stored import chunks, files
from support.stores import Hooked, tree

KINDS = [*types.PLAIN, *samples.DICTIONARIES]
UNSORTED = {pa.month_day_nano_interval()}
ROWS = samples.ROWS
THIRDS = [row for row in range(ROWS) if row % 3 == 1]
IS_THIRD = pc.is_in(pc.field("row"), pa.array(THIRDS))


def table(data, **options) -> blz.CTable:
    """Return a table in memory, in small pages and row groups."""
    store = RamStore()
    options = {"page_rows": 8, "row_group_rows": 16, "durability": "process", **options}
    blz.to_blz(data, store, **arguments(**options))
    return blz.open(store, "a")


def with_grades(order: list[str], codes: list[int]) -> pa.Table:
    """Return rows of an ordered column that is not nullable and has no default."""
    codes = pa.array(codes, pa.int8())
    grades = pa.DictionaryArray.from_arrays(codes, pa.array(order), ordered=True)
    return pa.table([grades], pa.schema([pa.field("grade", grades.type, nullable=False)]))


def of(kind: pa.DataType) -> tuple[blz.CTable, list]:
    """Return a table with a column of this type and row numbers, and the bits of the column."""
    array = samples.array(kind)
    return table(pa.table({"x": array, "row": range(ROWS)})), bits(array)


def found(t) -> list:
    """Check all the other data, and return the bits of the column."""
    report = t.verify()
    assert report.is_intact, report.problems
    column = t.to_arrow().column("x")
    column.validate()
    return bits(column)


@pytest.mark.parametrize("kind", KINDS, ids=str)
class TestEveryType:
    def test_is_updated_by_arrays_values_nulls_and_itself(self, kind):
        t, there = of(kind)
        t.update({"x": samples.array(kind)[: len(THIRDS)]}, IS_THIRD)
        for place, row in enumerate(THIRDS):
            there[row] = bits(samples.array(kind))[place]
        assert found(t) == there
        t.update({"x": samples.array(kind)[1]}, [("row", ">=", 30)])
        there[30:] = [bits(samples.array(kind))[1]] * 10
        assert found(t) == there
        t.update({"x": None}, IS_THIRD)
        there = [None if row in THIRDS else value for row, value in enumerate(there)]
        assert found(t) == there
        if not (pa.types.is_dictionary(kind) and kind.ordered):
            t.update({"x": pc.field("x")})
            assert found(t) == there

    def test_loses_rows(self, kind):
        t, there = of(kind)
        t.delete(IS_THIRD)
        left = [value for row, value in enumerate(there) if row not in THIRDS]
        assert found(t) == left
        t.resize(13)
        assert found(t) == left[:13]
        t.compact()
        assert found(t) == left[:13]
        t.resize(0)
        assert found(t) == []

    def test_is_resized_with_nulls_or_what_was_declared(self, kind):
        t, there = of(kind)
        t.resize(ROWS + 20)
        assert found(t) == there + [None] * 20
        t.resize(5)
        assert found(t) == there[:5]
        default = samples.array(kind)[1]
        t.drop_columns(["x"])
        t.add_column("x", samples.array(kind, 5), default=default if default.is_valid else None)
        t.resize(7)
        t.append({"row": [7]})
        assert found(t) == there[:5] + [bits(samples.array(kind))[1]] * 3

    def test_is_sorted_and_carried_along(self, kind):
        t, there = of(kind)
        t.compact(sort_by=[("row", "descending")])
        assert found(t) == there[::-1]
        if kind in UNSORTED:
            with pytest.raises(SchemaError, match="cannot be sorted"):
                t.compact(sort_by="x")
        else:
            t.compact(sort_by=["x", "row"])
            order = t["row"][:].to_pylist()
            assert sorted(order) == [*range(ROWS)]
            assert found(t) == [there[row] for row in order]
            assert None not in found(t)[: ROWS - there.count(None)]


@settings(max_examples=20, deadline=None)
@given(data=st.data(), kind=types.types())
def test_any_rows_of_any_type_are_updated_and_deleted(data, kind):
    rows = data.draw(st.integers(1, 40))
    array = data.draw(arrays(kind, rows, stray_codes=False))
    chosen = data.draw(st.lists(st.integers(0, rows - 1), unique=True).map(sorted))
    new = data.draw(arrays(kind, len(chosen), stray_codes=False))
    if pa.types.is_dictionary(kind) and kind.ordered:
        new = array[: len(chosen)]
    t = table(pa.table({"x": array, "row": range(rows)}))
    where = pc.is_in(pc.field("row"), pa.array(chosen, pa.int64()))
    t.update({"x": new}, where)
    expected = bits(array)
    for row, value in zip(chosen, bits(new), strict=True):
        expected[row] = value
    assert found(t) == expected
    t.delete(where)
    assert found(t) == [value for row, value in enumerate(expected) if row not in chosen]


class TestUpdate:
    def test_sees_the_values_before_it(self):
        t = table({"a": [1, 2, 3], "b": [10, 20, 30]})
        t.update({"a": pc.field("b"), "b": pc.field("a")}, pc.field("a") > 1)
        assert t.to_arrow().to_pydict() == {"a": [1, 20, 30], "b": [10, 2, 3]}

    def test_leaves_rows_for_which_the_condition_is_null(self):
        t = table(pa.table({"a": [1, None, 3]}))
        t.update({"a": 0}, pc.field("a") < 9)
        assert t["a"][:].to_pylist() == [0, None, 0]

    def test_text_may_grow(self):
        t = table({"s": [str(n) for n in range(40)]})
        t.update({"s": "ä" * 9999}, [("s", "in", ["7", "20"])])
        lengths = [len(s) for s in t["s"][:].to_pylist()]
        assert lengths[7] == lengths[20] == 9999
        assert sum(lengths) == 2 * 9999 + 10 + 30 * 2 - 3

    def test_nan_and_none_are_two_things(self):
        t = table(pa.table({"f": [1.0, 2.0, 3.0]}))
        t.update({"f": [float("nan"), None]}, pc.field("f") > 1)
        assert repr(t["f"][:].to_pylist()) == "[1.0, nan, None]"

    @pytest.mark.parametrize("kind", [pa.int8(), pa.float16(), pa.float32(), pa.uint64()], ids=str)
    def test_a_single_value_counts_by_its_value(self, kind):
        t = table(pa.table({"x": pa.array([1], pa.int8()).cast(kind)}))
        t.update({"x": 2})
        assert t["x"][:].to_pylist() == [2]
        if pa.types.is_floating(kind):
            t.update({"x": 2.5})
            assert t["x"][:].to_pylist() == [2.5]
        else:
            with pytest.raises(SchemaError, match="column 'x'"):
                t.update({"x": 2.5})

    def test_an_expression_of_another_type_fits_where_its_values_do(self):
        small = pa.array([1, 2], pa.int8())
        t = table(pa.table({"i": small, "f": pa.array([0.5, 1], pa.float16()), "c": ["a", "b"]}))
        t.update({"i": pc.field("i") + pa.scalar(100), "f": pc.field("f") * 2})
        assert t.schema.types[:2] == [pa.int8(), pa.float16()]
        assert t[["i", "f"]].to_arrow().to_pydict() == {"i": [101, 102], "f": [1, 2]}
        before = tree(t._snapshot.version.store)
        for wrong in (pc.field("i").cast("int64") * 100, pc.field("f") * 1.5, pc.field("c")):
            with pytest.raises(SchemaError, match="column 'i'"):
                t.update({"i": wrong})
        assert tree(t._snapshot.version.store) == before

    def test_the_wrong_number_of_values_is_told_before_anything_is_written(self):
        t = table({"a": range(40)})
        before = tree(t._snapshot.version.store)
        for values in ([1, 2], pa.chunked_array([[1], [2, 3, 4]]), pd.Series(range(40))):
            with pytest.raises(SchemaError, match=r"'a': expected 3 values, .* found \d+"):
                t.update({"a": values}, pc.field("a") < 3)
        assert tree(t._snapshot.version.store) == before

    def test_nothing_to_update_is_no_commit(self):
        t = table({"a": [1]})
        assert t.update({"a": 5}, pc.field("a") > 1).version == 1
        assert t.update({}).version == 1

    @pytest.mark.usefixtures("own_files_here")
    def test_writes_the_touched_columns_of_the_touched_row_groups(self):
        written: list[str] = []

        def hook(name, args):
            if name == "put_new":
                written.append(args[0])

        store = RamStore()
        data = {"a": range(40), "b": range(40), "c": range(40)}
        blz.to_blz(data, store, storage=blz.Storage(row_group_rows=10), durability="process")
        with blz.open(Hooked(store, before=hook), "a") as t:
            before = [files(t._snapshot.version, line) for line in range(3)]
            t.update({"b": 0}, [("a", "in", [3, 25])])
            after = [files(t._snapshot.version, line) for line in range(3)]
            assert [before[0], before[2]] == [after[0], after[2]]
            assert [one == other for one, other in zip(before[1], after[1], strict=True)] == [
                False,
                True,
                False,
                True,
            ]
            assert written == [f"data/col1/__{after[1][group]}__.bin" for group in (0, 2)]

    def test_copies_the_chunks_that_do_not_change(self):
        data = {"a": np.arange(1 << 18) // 3, "row": np.arange(1 << 18)}
        t = table(data, row_group_rows=None, page_rows=1 << 13, encoding="plain")
        before = chunks(t._snapshot.version, 0)
        # Chunks that are encoded again are not compressed, so that they differ.
        t.configure(storage=replace(t.storage, clevel=0))
        t.update({"a": 0}, [("row", "==", 5)])
        after = chunks(t._snapshot.version, 0)
        assert len(before) == len(after) > 1
        assert [one == other for one, other in zip(before, after, strict=True)] == [
            False,
            *[True] * (len(before) - 1),
        ]


class TestDelete:
    def test_touches_the_row_groups_that_lose_rows_only(self):
        t = table({"a": range(40)}, row_group_rows=10)
        before = files(t._snapshot.version, 0)
        t.delete((pc.field("a") == 3) | ((pc.field("a") >= 20) & (pc.field("a") < 30)))
        version = t._snapshot.version
        assert version.row_groups == (9, 10, 10)
        written, *kept = files(version, 0)
        assert written not in before
        assert kept == [before[1], before[3]]
        assert t["a"][:].to_pylist() == [n for n in range(40) if n != 3 and not 20 <= n < 30]

    def test_nothing_to_delete_is_no_commit(self):
        t = table({"a": [1, 2]})
        assert t.delete(pc.field("a") > 2).version == 1
        assert t.resize(2).version == t.resize(len(t)).version == 1

    def test_a_range_index_counts_the_rows_that_are_left(self):
        frame = pd.DataFrame({"a": range(5)}, pd.RangeIndex(10, 20, 2, name="at"))
        t = table(frame)
        t.delete(pc.field("a") == 1)
        expected = frame[frame["a"] != 1].set_axis(pd.RangeIndex(10, 18, 2, name="at"))
        pd.testing.assert_frame_equal(t.to_pandas(), expected)
        t.resize(2)
        pd.testing.assert_frame_equal(t.to_pandas(), expected[:2])

    def test_an_index_of_columns_keeps_its_labels_and_dtypes(self):
        frame = samples.frame()
        t = table(frame, row_group_rows=8)
        t.delete(pc.field("int") == 3)
        left = frame[frame["int"] != 3]
        pd.testing.assert_frame_equal(t.to_pandas(), left, check_freq=False)
        t.resize(4)
        pd.testing.assert_frame_equal(t.to_pandas(), left[:4], check_freq=False)


class TestResize:
    def test_columns_that_cannot_be_null_have_zero(self):
        fields = [pa.field("i", pa.int64(), False), pa.field("s", pa.string(), False)]
        t = table(pa.table({"i": [1], "s": ["x"]}, schema=pa.schema(fields)))
        t.resize(3)
        assert t.to_arrow().to_pydict() == {"i": [1, 0, 0], "s": ["x", "", ""]}

    def test_the_rows_of_a_frame_are_missing_values(self):
        frame = pd.DataFrame({"i": [1], "b": [True], "s": ["x"], "f": [1.5]})
        t = table(frame)
        t.resize(2)
        more = pd.DataFrame({"i": [np.nan], "b": [None], "s": [None], "f": [np.nan]})
        expected = pd.concat([frame.astype({"b": object}), more], ignore_index=True)
        expected = expected.astype({"s": "str"})
        pd.testing.assert_frame_equal(t.to_pandas(), expected, check_index_type="exact")

    def test_ordered_categories_take_their_default_in_their_order(self):
        order = pd.Categorical(["lo", "hi"], ["lo", "mid", "hi"], ordered=True)
        t = table(pd.DataFrame({"x": [1, 2]}))
        t.add_column("c", order, default="mid")
        t.resize(3)
        assert t.to_pandas()["c"].cat.categories.tolist() == ["lo", "mid", "hi"]
        assert t.to_pandas()["c"].tolist() == ["lo", "hi", "mid"]

    def test_ordered_categories_without_a_zero_begin_with_the_first_of_them(self):
        t = table(with_grades(["lo", "hi"], [0, 1]))
        t.resize(1)
        t.resize(2)
        assert t["grade"][:].to_pylist() == ["lo", "lo"]

    def test_fewer_rows_need_no_default(self):
        t = blz.create(RamStore(), with_grades(["lo"], []).schema)
        t.alter_column("grade", default="none")
        t.append(with_grades(["lo", "hi"], [0, 1]))
        t.resize(1)
        with pytest.raises(
            SchemaError, match=r"'none' is not one .*alter_column\('grade', default"
        ):
            t.resize(2)
        assert t["grade"][:].to_pylist() == ["lo"]

    def test_relies_on_the_rows(self):
        t = table({"a": [1]})
        behind = blz.open(t._snapshot.version.store, "a", retries=0)
        t.append({"a": [2]})
        with pytest.raises(ConflictError, match="relies on the rows of version 1"):
            behind.resize(3)
        assert len(blz.open(t._snapshot.version.store)) == 2

    def test_many_rows_are_cut_like_others(self):
        t = table({"a": [1]}, row_group_rows=1000)
        t.resize(2500)
        assert sum(t._snapshot.version.row_groups) == 2500
        assert max(t._snapshot.version.row_groups) <= 1000


def test_a_number_of_rows_is_a_number_from_0():
    t = table({"a": [1]})
    with pytest.raises(ValueError, match="at least 0"):
        t.resize(-1)
    for wrong, found in (
        (True, "True of type bool"),
        (1.5, "1.5 of type float"),
        ("5", "'5' of type str"),
    ):
        with pytest.raises(TypeError, match=f"^n must be an integer, not {found}$"):
            t.resize(wrong)


def test_more_rows_than_a_table_can_have_are_refused_at_once():
    t = table({"a": pa.array([1], pa.int64())})
    with pytest.raises(blz.LimitError, match=f"at most {1 << 62} rows, found {(1 << 62) + 1}"):
        t.resize((1 << 62) + 1)
    assert len(t) == 1


def test_a_table_without_columns_has_rows_all_the_same():
    t = table(pd.DataFrame(index=range(20)))
    t.resize(18)
    t.resize(25)
    t.append(pd.DataFrame(index=range(2)))
    t.compact()
    assert t.to_pandas().shape == (27, 0)
    t.delete(pc.scalar(True))
    assert len(t) == 0


def test_columns_of_one_name_change_together_or_not_at_all():
    columns = [pa.array([1, 2]), pa.array(["a", "b"]), pa.array([3, 4])]
    t = table(pa.Table.from_arrays(columns, names=["x", "y", "x"]))
    t.append(t.to_arrow())
    t.delete(pc.field("y") == "a")
    t.resize(3)
    assert [column.to_pylist() for column in t.to_arrow().columns] == [
        [2, 2, None],
        ["b", "b", None],
        [4, 4, None],
    ]
    with pytest.raises(blz.ColumnNotFoundError, match="2 columns are named 'x'"):
        t.update({"x": 1})


@pytest.fixture
def two_columns(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2], "b": [3, 4]}, path, durability="process")
    return path


# Bug: these mistakes ended in errors of Python or Arrow that do not name the argument.
def test_mistakes_are_told_in_words_of_the_caller(two_columns):
    with blz.open(two_columns, "a") as t:
        with pytest.raises(TypeError, match="a column name must be text, not 0 of type int"):
            t.update({0: 5})
        with pytest.raises(TypeError, match="a column name must be text, not 5 of type int"):
            t.rename_columns({"a": 5})
        with pytest.raises(
            TypeError, match=r"^values must be a mapping of column names to values, not list$"
        ):
            t.update([1])
        with pytest.raises(
            TypeError, match=r"^columns must be a mapping of old names to new names, not list$"
        ):
            t.rename_columns(["a"])
        for verb in (t.drop_columns, t.to_arrow):
            with pytest.raises(TypeError, match=r"must be a list of (column )?names, not int"):
                verb(5)
        with pytest.raises(blz.SchemaError, match="divide by zero"):
            t.update({"a": pc.divide(pc.field("a"), 0)})
        with pytest.raises(blz.ReadOnlyError, match="change the table that it was made from"):
            t[["a"]].append({"a": [1]})


def test_a_category_is_given_as_a_plain_value(tmp_path):
    pd.DataFrame({"c": pd.Categorical(["x", "y"]), "n": pd.Categorical([1, 2])}).to_blz(
        tmp_path / "c"
    )
    with blz.open(tmp_path / "c", "a") as table:
        table.update({"c": "z", "n": 7}, where=[("c", "==", "x")])
        table.add_column("d", pd.Categorical(["p", "q"]), default="r")
        table.append({"n": pd.Categorical([2])})
        with pytest.raises(blz.SchemaError, match="column 'c': type int64 cannot be stored as"):
            table.update({"c": 5})
        assert table["c"][:].to_pylist() == ["z", "y", None]
        assert table["n"][:].to_pylist() == [7, 2, 2]
        assert table["d"][:].to_pylist() == ["p", "q", "r"]
        assert table.to_pandas()["c"].dtype == "category"


def test_a_list_of_texts_goes_into_a_category(tmp_path):
    pd.DataFrame({"c": pd.Categorical(["x", "y"])}).to_blz(tmp_path / "c")
    with blz.open(tmp_path / "c", "a") as table:
        table.update({"c": ["z", None]})
        with table.transaction() as tx, tx.appender() as rows:
            rows["c"].append(["x", "z"])
        assert table["c"][:].to_pylist() == ["z", None, "x", "z"]
        assert table.to_pandas()["c"].dtype == "category"
