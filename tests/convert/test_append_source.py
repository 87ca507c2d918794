"""Append sources: data become rows of an existing table, or the error says why not."""

import decimal
import itertools
import re
import weakref

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import SchemaError
from support.append_target import Table, source_of, spec_of

F = pd.DataFrame


# Accepted data


AB = {"a": [3, 4], "b": ["z", "w"]}
ABLE = {
    "a frame": lambda: F(AB),
    "a table": lambda: pa.table(AB),
    "a batch": lambda: pa.record_batch(AB),
    "a reader": lambda: pa.table(AB).to_reader(1),
    "a dataset": lambda: pa.dataset.dataset(pa.table(AB)),
    "a mapping": lambda: AB,
    "arrays": lambda: {"a": np.array([3, 4]), "b": pd.Series(["z", "w"])},
    "polars": lambda: pl.DataFrame(AB),
    "pandas' table": lambda: pa.Table.from_pandas(F(AB)),
    "frames": lambda: [F(AB)[:1], F(AB)[1:]],
    "mixed": lambda: iter([pa.table(AB)[:1], {"b": ["w"], "a": [4]}]),
}


@pytest.mark.parametrize("made", ABLE.values(), ids=ABLE)
@pytest.mark.parametrize("first", [F, pa.table, dict], ids=["frame", "arrow", "mapping"])
def test_whatever_is_tabular_goes_on_whatever_was(first, made):
    table = Table(first({"a": [1, 2], "b": ["x", "y"]}))
    found = table.append(made()).pandas()
    expected = F({"a": [1, 2, 3, 4], "b": list("xyzw")})
    pd.testing.assert_frame_equal(found, expected, check_column_type=False)


def test_the_rows_are_known_where_the_end_is():
    table = Table(AB)
    assert table.append(F(AB)).appended.rows == 2
    assert table.append(pa.table(AB).to_reader()).appended.rows is None
    assert table.append([AB, AB]).appended.rows is None


def test_nothing_appends_nothing():
    table = Table(F(AB))
    schema = table.schema
    for nothing in ([], iter(()), F(), [F(), F()], F(AB)[:0], F(columns=["b"])):
        for evolve in (False, True):
            table.append(nothing, evolve=evolve)
            assert table.schema.equals(schema, check_metadata=True)
            assert table.rows == 2


def test_a_table_without_columns_takes_rows():
    target = spec_of(pa.schema([]), 3)
    segment = next(source_of(F(index=range(2)), target).segments)
    assert [rows for _, rows in segment.parts] == [2]


def test_nothing_is_held_of_one_item_when_the_next_is_asked_for():
    class Held(F):
        pass

    given, drawn = [], []

    def items():
        for number in range(4):
            item = Held({"a": [number]})
            given.append(weakref.ref(item))
            yield item
            del item
            assert [ref() for ref in given] == [None] * (number + 1)
            assert [ref() for ref in drawn] == [None] * (number + 1)

    # The other type makes a part a new array, not the item itself.
    segment = next(source_of(items(), spec_of(pa.schema({"a": pa.float64()}))).segments)
    for part, _ in segment.parts:
        drawn.append(weakref.ref(part))
        del part
    assert len(given) == len(drawn) == 4


# Columns


def test_columns_go_by_name_and_missing_ones_are_filled():
    table = Table(pa.table({"a": [1], "b": ["x"], "c": [1.5]}), b="none")
    found = table.append({"c": [2.5], "a": [2]}).append({"a": [3]}).arrow()
    assert found.to_pydict() == {"a": [1, 2, 3], "b": ["x", "none", "none"], "c": [1.5, 2.5, None]}


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        (pd.array([1], "Int64"), pd.NA),
        (np.array([1.5]), np.nan),
        (np.array([b"x"], object), None),
        (pd.array(["x"], "str"), np.nan),
        (pd.Categorical(["x"]), np.nan),
        (pd.to_datetime(["2020"]), pd.NaT),
        (pd.PeriodIndex(["2020"], freq="Y"), pd.NaT),
        (pd.array([True], "boolean"), pd.NA),
        (pd.array([[1]], pd.ArrowDtype(pa.list_(pa.int8()))), pd.NA),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_a_missing_column_of_a_frame_is_missing_values_of_its_dtype(values, missing):
    frame = F({"k": [0], "v": values})
    found = Table(frame).append(F({"k": [1]})).pandas()
    assert found["v"].dtype == frame["v"].dtype
    assert repr(found["v"].tolist()[1]) == repr(missing)
    assert found["v"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("values", "dtype", "nullable"),
    [
        ([1], "float64", "Int64"),
        (np.array([1], "u1"), "float64", "UInt8"),
        ([True], "object", "boolean"),
    ],
    ids=str,
)
def test_a_missing_column_of_numbers_reads_as_pandas_would_read_it(values, dtype, nullable):
    frame = F({"k": [0], "v": values})
    found = Table(frame).append({"k": [1]})
    expected = pd.concat([frame, F({"k": [1]})], ignore_index=True)
    pd.testing.assert_series_equal(found.pandas()["v"].fillna(0), expected["v"].fillna(0))
    assert found.pandas()["v"].dtype == dtype
    assert found.pandas(dtype_backend="numpy_nullable")["v"].dtype == nullable
    default = frame["v"][0]
    assert Table(frame, v=default).append({"k": [1]}).pandas()["v"].tolist() == [default] * 2


def test_integers_that_no_float_holds_stay_integers_beside_nulls():
    big = [(1 << 53) + 1, -(1 << 63)]
    found = Table(F({"a": big})).append({"a": [None]}).pandas()["a"]
    assert found.dtype == "Int64"
    assert found.tolist() == [*big, pd.NA]
    fits = Table(F({"a": [1 << 53, -(1 << 53)]})).append({"a": [None]}).pandas()["a"]
    assert fits.dtype == "float64"


def test_a_missing_column_that_cannot_be_null_is_told():
    text = "the data, column 'v': missing, not nullable and without a default; add it to the data"
    strict = pa.schema([("k", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    with pytest.raises(SchemaError, match=text):
        Table(strict.empty_table()).append({"k": [1]})
    with pytest.raises(
        SchemaError, match="'v': missing values cannot be appended to string, which is not"
    ):
        Table(strict.empty_table()).append({"k": [1], "v": pa.array([None], "string")})


def test_columns_of_numbers_take_nulls_from_anywhere():
    for first in (F({"a": [1]}), pa.table({"a": [1]})):
        for nulls in (pa.array([None, 2]), pa.array([None, 2.0]), pd.array([None, 2], "Int64")):
            found = Table(first).append({"a": nulls}).append(F({"a": [np.nan, 3.0]}))
            assert found.schema.field("a") == pa.field("a", pa.int64())
            assert found.arrow()["a"].to_pylist() == [1, None, 2, None, 3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (F({"a": [1], "c": [1]}), "the data: expected the columns ['a', 'b'], found ['a', 'c']"),
        (
            {"c": [1]},
            "found ['c']; unknown: ['c']; drop them, or pass evolve=True",
        ),
        ([{"a": [1]}, {"B": ["x"]}], "item 1: expected the columns ['a', 'b'], found ['B']"),
        (pa.table({"x": [1]}).to_reader(), "batch 0: expected the columns ['a', 'b'], found ['x']"),
        (
            pa.table([[1], ["x"], ["y"]], ["a", "b", "b"]),
            "found ['a', 'b', 'b']; duplicate names need the order",
        ),
        (
            {"a": ["1"]},
            "the data, column 'a': type string cannot be appended to int64 without loss",
        ),
        (
            {"a": [1.5]},
            "the data, column 'a': type double cannot be appended to int64 without loss: "
            "row 0 is 1.5; pass evolve=True",
        ),
        (
            [{"a": [1]}, {"a": [1.0, 0.5]}],
            "item 1, column 'a': type double cannot be appended to int64 without loss: row 1 is ",
        ),
        (
            {"a": pa.array([None, 2**63], "u8")},
            "column 'a': type uint64 cannot be appended to int64 without loss: "
            "row 1 is 9223372036854775808; pass evolve=True",
        ),
    ],
)
def test_what_does_not_fit_is_told(data, message):
    with pytest.raises(SchemaError, match=re.escape(message)):
        Table({"a": [1], "b": ["x"]}).append(data)


@pytest.mark.parametrize(
    ("type_", "values", "message"),
    [
        (
            pa.int32(),
            [1.5],
            "type double cannot be appended to int32 without loss: row 0 is 1.5; pass evolve=True",
        ),
        (pa.int8(), [300], "row 0 is 300; pass evolve=True"),
        (pa.int64(), [1.5], "pass evolve=True"),
        (pa.uint64(), [1.5], "pass evolve=True"),
        (pa.int64(), pa.array([1 << 63], "u8"), "pass evolve=True"),
        (pa.float64(), ["a"], "pass evolve=True"),
        (
            pa.dictionary(pa.int8(), pa.string()),
            pa.array(map(str, range(200))).dictionary_encode(),
            "pass evolve=True",
        ),
    ],
    ids=str,
)
def test_evolve_is_offered_where_it_works(type_, values, message):
    first = pa.table({"a": pa.nulls(1, type_)})
    with pytest.raises(SchemaError) as caught:
        Table(first).append({"a": values})
    assert str(caught.value).endswith(message)
    assert Table(first).append({"a": values}, evolve=True).rows == 1 + len(values)


@pytest.mark.parametrize(
    ("first", "values", "message"),
    [
        (["x"], [1], "row 0 is 1; cast the data to string"),
        ([True], [1], "cast the data to bool, or change the column with alter_column("),
        ([0.5], [(1 << 53) + 1], "row 0 is 9007199254740993; convert the data, or add them as"),
        ([1], ["1", "a"], "row 0 is '1'; change the column with alter_column("),
    ],
    ids=str,
)
@pytest.mark.parametrize("evolve", [False, True])
def test_evolve_is_not_offered_where_it_fails(first, values, message, evolve):
    with pytest.raises(SchemaError) as caught:
        Table({"a": first}).append({"a": values}, evolve=evolve)
    assert message in str(caught.value)
    assert "evolve" not in str(caught.value)


def test_every_column_that_does_not_fit_is_named_at_once():
    data = {"a": [1, 2.5], "b": [1], "c": [None], "d": [1.5]}
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "d": pa.float64()})
    target = schema.append(pa.field("c", pa.int64(), nullable=False))
    with pytest.raises(SchemaError) as caught:
        Table(target.empty_table()).append({name: v * (3 - len(v)) for name, v in data.items()})
    lines = str(caught.value).split("\n")
    assert [line[:20] for line in lines] == [f"the data, column {n!r}" for n in "abc"]
    assert "row 1 is 2.5" in lines[0]
    many = pa.schema({f"c{number}": pa.int8() for number in range(50)})
    with pytest.raises(SchemaError, match=r"\n... and 30 more columns$"):
        Table(many.empty_table()).append({name: ["x"] for name in many.names})


def test_evolve_is_not_offered_for_duplicate_names():
    with pytest.raises(SchemaError, match="need the order of the table") as caught:
        Table(pa.table([[1], [2]], ["a", "a"])).append(pa.table([[1], [2]], ["a", "b"]))
    assert "evolve" not in str(caught.value)


def test_columns_of_one_name_go_by_their_order():
    two = pa.table([[1], ["x"]], ["a", "a"])
    assert Table(two).append(two).append(two, evolve=True).rows == 3
    for other in (pa.table([["x"], [1]], ["a", "a"]), pa.table([[1]], ["a"])):
        for evolve in (False, True):
            with pytest.raises(SchemaError, match="'a'"):
                Table(two).append(other, evolve=evolve)


def test_decimals_of_another_precision_go_where_no_digit_is_lost():
    def decimals(text):
        return F({"a": [decimal.Decimal(text)]})

    table = Table(decimals("123.45")).append(decimals("1.5"))
    assert table.pandas()["a"].tolist() == [decimal.Decimal("123.45"), decimal.Decimal("1.50")]
    for text in ("1.234", "1234.5"):
        with pytest.raises(SchemaError, match="column 'a'"):
            table.append(decimals(text))


def test_attributes_of_appended_frames_do_not_matter():
    frame = F(AB)
    frame.attrs["odd"] = "x"
    assert Table(F(AB)).append(frame).rows == 4


# Categories


def ordered(values, categories):
    return F({"c": pd.Categorical(values, categories, ordered=True)})


def test_categories_differ_freely_where_they_are_not_ordered():
    table = Table(F({"c": pd.Categorical(["x", "y"])}))
    found = table.append(F({"c": pd.Categorical(["z", None, "x"])})).pandas()["c"]
    assert found.tolist() == ["x", "y", "z", np.nan, "x"]
    assert list(found.cat.categories) == ["x", "y", "z"]


@pytest.mark.parametrize("evolve", [False, True])
def test_ordered_categories_are_those_of_the_table(evolve):
    table = Table(ordered(["lo"], ["lo", "hi"]))
    table.append(ordered(["hi"], ["lo", "hi"]), evolve=evolve)
    table.append(F(index=range(2)), evolve=evolve)
    for categories in (["hi", "lo"], ["lo", "mid", "hi"]):
        text = re.escape(f"the data, column 'c': ordered categories {categories}; the table has")
        with pytest.raises(SchemaError, match=text):
            table.append(ordered(["hi"], categories), evolve=evolve)


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize("dtype", ["str", object, "string[pyarrow]"])
def test_text_is_taken_by_ordered_categories_as_the_refusal_advises(dtype, evolve):
    table = Table(ordered(["lo"], ["lo", "hi"]))
    text = pd.Series(["hi", None], dtype=dtype)
    advice = r"give the data the same ordered categories, with pd\.Categorical"
    with pytest.raises(SchemaError, match=rf"the data, column 'c': .*row 0 is 'hi'; {advice}"):
        table.append(F({"c": text}), evolve=evolve)
    found = table.append(ordered(text, ["lo", "hi"]), evolve=evolve).pandas()["c"]
    assert found.tolist() == ["lo", "hi", np.nan]
    assert found.dtype == pd.CategoricalDtype(["lo", "hi"], ordered=True)


def test_of_a_table_without_rows_the_first_item_orders_the_categories():
    empty = ordered(["lo"], ["lo", "hi"])[:0]
    assert Table(empty).append([ordered(["hi"], ["lo", "hi"])] * 2).rows == 2
    with pytest.raises(SchemaError, match="item 1, column 'c': ordered categories"):
        Table(empty).append([ordered(["hi"], ["lo", "hi"]), ordered(["hi"], ["hi", "lo"])])


# The index


FROM_5 = pd.RangeIndex(5, 8, name="n")


@pytest.mark.parametrize(
    ("first", "others", "labels", "continues_index"),
    [
        (range(3), [range(2)], range(5), False),
        # Any integers without a name go into a default RangeIndex.
        (range(3), [range(3, 5)], range(5), False),
        (range(3), [range(2), range(2)], range(7), False),
        (range(3), [range(2), range(2, 4), range(4, 5)], range(8), False),
        (range(3), [range(4, 6)], range(5), False),
        (range(3), [[7, 5], [5]], range(6), False),
        (range(3), [range(9, 0, -3)], range(6), False),
        (range(3), [pd.Index([2**63], dtype="uint64")], range(4), False),
        (FROM_5, [pd.RangeIndex(8, 9, name="n")], range(5, 9), True),
        (range(0, 6, 2), [range(6, 10, 2)], range(0, 10, 2), True),
        ([3, 1, 2], [[7, 7]], [3, 1, 2, 7, 7], False),
        ([3, 1, 2], [range(2)], [3, 1, 2, 0, 1], False),
    ],
    ids=str,
)
def test_an_index_goes_on_where_it_stops(first, others, labels, continues_index):
    table = Table(F({"a": 0.5}, index=first))
    table.append([F({"a": 1.5}, index=other) for other in others])
    assert list(table.pandas().index) == list(labels)
    assert table.appended.continues_index() is continues_index
    if len(others) == 1:
        table = Table(F({"a": 0.5}, index=first)).append(F({"a": 1.5}, index=others[0]))
        assert table.appended.continues_index() is continues_index


@pytest.mark.parametrize(
    ("first", "others", "found", "there"),
    [
        (range(3), [["x"]], "a stored index", "a RangeIndex (0..3)"),
        (range(3), [[0.5]], "a stored index", "a RangeIndex (0..3)"),
        (range(3), [[True]], "a stored index", "a RangeIndex (0..3)"),
        (range(3), [pd.PeriodIndex(["2026"], freq="Y")], "a stored index", "a RangeIndex (0..3)"),
        (range(3), [pd.Index([7], name="n")], "a stored index named 'n'", "a RangeIndex (0..3)"),
        (
            range(3),
            [pd.RangeIndex(7, 9, name="n")],
            "a RangeIndex (7..9) named 'n'",
            "a RangeIndex (0..3)",
        ),
        (range(1, 4), [[7]], "a stored index", "a RangeIndex (1..4)"),
        (FROM_5, [range(8, 9)], "a RangeIndex (8..9)", "a RangeIndex (5..8) named 'n'"),
        (pd.Index([1, 9], name="k"), [[3]], "a stored index", "a stored index named 'k'"),
    ],
    ids=str,
)
def test_another_index_is_told_with_the_one_there(first, others, found, there):
    frames = [F({"a": 1.5}, index=other) for other in others]
    pattern = re.escape(f"the DataFrame has {found}, the table {there}. ")
    for evolve in (False, True):
        with pytest.raises(SchemaError, match=pattern):
            Table(F({"a": 0.5}, index=first)).append(frames, evolve=evolve)


def test_index_false_leaves_any_index_away():
    table = Table(F({"a": [1.5]})).append(F({"a": [2.5]}, index=["x"]), index=False)
    assert list(table.pandas().index) == [0, 1]


def test_an_index_of_columns_takes_arrow_data_that_have_them():
    frame = F({"a": [1.5, 2.5]}, pd.MultiIndex.from_arrays([[1, 2], list("xy")], names=["n", "k"]))
    table = Table(frame).append(pl.DataFrame({"k": ["z"], "a": [3.5], "n": [3]}))
    assert table.pandas().index.tolist() == [(1, "x"), (2, "y"), (3, "z")]
    text = "the data, column 'k': missing, and it is the table's index"
    with pytest.raises(SchemaError, match=text):
        table.append({"a": [1.5], "n": [1]}, evolve=True)


def test_a_table_of_arrow_data_counts_as_its_rows():
    table = Table(pa.table({"a": [1, 2]}))
    assert not table.append(F({"a": [3]})).appended.continues_index()
    assert not table.append(F({"a": [4]}, index=range(3, 4))).appended.continues_index()
    with pytest.raises(
        SchemaError, match="the DataFrame has a stored index, the table a RangeIndex"
    ):
        table.append(F({"a": [4]}, index=["x"]))


PIECES = st.lists(st.integers(0, 9), max_size=4).map(sorted)


@given(PIECES, st.booleans(), st.sampled_from(["default", "range", "values"]))
def test_a_frame_in_pieces_is_that_frame_again(cuts, evolve, kind):
    index = {"default": range(9), "range": range(5, 32, 3), "values": list("ihgfedcba")}[kind]
    frame = F(
        {"a": range(9), "b": list("abcdefghi"), "c": pd.Categorical(list("xyzxyzxyz"))}, index
    )
    pieces = [frame[a:b] for a, b in itertools.pairwise([0, *cuts, 9])]
    table = Table(pieces[0])
    table.append(pieces[1:], evolve=evolve)
    pd.testing.assert_frame_equal(table.pandas(), frame)
