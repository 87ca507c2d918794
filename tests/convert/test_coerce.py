"""Coercion: items become rows of a table that exists, or are refused."""

import itertools
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from blztable.convert.append_source import new_source
from blztable.convert.coerce import _match
from blztable.convert.frames.frame import to_frame
from blztable.errors import SchemaError
from support.append_target import Table
from support.counted_names import Counted, counted
from support.frame_strategies import rebuilt

F = pd.DataFrame


def first_run(given):
    """Return the parts of a new table before it becomes wider."""
    return list(next(given.segments).parts)


def streamed(items, index=None) -> pa.Table:
    """Return all parts of a stream as one Arrow table."""
    return pa.concat_tables([table for table, _ in first_run(new_source(items, index=index))])


def frame_of(items, index=None) -> F:
    """Return all parts of a stream as one DataFrame, with the facts that a reader has."""
    given = new_source(items, index=index)
    parts = first_run(given)
    rows = sum(rows for _, rows in parts)
    whole = rebuilt(pa.concat_tables([table for table, _ in parts]).combine_chunks())
    return to_frame(whole, rows, given.frame(rows), given.attrs)


def check_frames(expected: F, *items: F, **options) -> None:
    pd.testing.assert_frame_equal(frame_of(items, **options), expected, check_column_type=False)


def column(first, second) -> pa.ChunkedArray:
    """Return a column of a table after an append of two items."""
    return Table({"a": first}).append([{"a": first[:0]}, {"a": second}]).arrow()["a"]


# The index


WHOLE = F({"a": range(9), "b": list("abcdefghi")})


def pieces(frame: F, *cuts: int) -> list[F]:
    """Cut the DataFrame at these rows; each piece keeps its part of the index."""
    bounds = [0, *cuts, len(frame)]
    return [frame[start:stop] for start, stop in itertools.pairwise(bounds)]


RANGES = {
    "usual": pd.RangeIndex(9),
    "from 5 by 3": pd.RangeIndex(5, 32, 3),
    "backward": pd.RangeIndex(20, 2, -2),
    "named": pd.RangeIndex(9, name="row"),
    "named by a tuple": pd.RangeIndex(9, name=("a", 1)),
    "values": pd.Index([3, 1, 4, 1, 5, 9, 2, 6, 5], name="pi"),
    "text": pd.Index(list("ihgfedcba")),
    "times": pd.DatetimeIndex(["2020-01-01"] * 9, name="at"),
    "levels": pd.MultiIndex.from_product([[1, 2, 3], list("xyz")], names=["n", None]),
    "categories": pd.CategoricalIndex(list("xyxyxyxyx"), name="c"),
}


@pytest.mark.parametrize("index", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("cuts", [(4,), (0, 1, 1, 8, 9)], ids=str)
def test_the_pieces_of_a_frame_are_that_frame_again(index, cuts):
    frame = WHOLE.set_axis(index)
    check_frames(frame, *pieces(frame, *cuts))


@pytest.mark.parametrize("step", ["2D", "h"])
def test_the_frequency_of_times_is_that_of_all_rows(step):
    index = pd.date_range("2020-01-01", periods=9, freq=step, unit="us")
    frame = WHOLE.set_axis(index)
    found = frame_of(pieces(frame, 4))
    assert found.index.freq == index.freq
    gap = frame_of([frame[:4], frame[6:]])
    assert gap.index.freq is None
    assert list(gap.index) == [*index[:4], *index[6:]]


def test_frames_that_each_count_from_zero_are_counted_on():
    check_frames(WHOLE, *(piece.reset_index(drop=True) for piece in pieces(WHOLE, 2, 5)))


def test_filtered_frames_keep_their_labels_also_where_no_row_is_missing():
    frame = WHOLE.drop([1, 6])
    # Without gaps, pandas sees a part as a range; the same holds for regular gaps.
    parts = [frame[:3], frame[3:5], frame[5:5], frame[5:]]
    parts[1] = parts[1].set_axis(pd.RangeIndex(4, 6))
    check_frames(frame, *parts)
    every_other = WHOLE[::2]
    check_frames(pd.concat([frame, every_other]), frame, every_other)


def test_a_part_with_nothing_left_fits_whatever_its_index_is():
    indexes = [pd.RangeIndex(0), pd.RangeIndex(7, 7), pd.Index([], dtype="str", name="a key")]
    empties = [WHOLE[WHOLE.a > 100], *(WHOLE[:0].set_axis(index) for index in indexes)]
    for index in RANGES.values():
        frame = WHOLE.set_axis(index)
        for empty in empties:
            check_frames(frame, frame[:5], empty, frame[5:])


def test_index_true_keeps_and_index_false_drops_that_of_each_item():
    twice = [WHOLE[:2], WHOLE[:2]]
    check_frames(pd.concat(twice), *twice, index=True)
    others = [WHOLE[:2].set_axis(list("xy")), WHOLE[5:7], WHOLE[7:].rename_axis("z")]
    check_frames(pd.concat(others, ignore_index=True), *others, index=False)


def test_arrow_data_go_on_where_frames_counted_and_the_other_way():
    table = pa.table({"a": [9, 10], "b": ["j", "k"]})
    counted = [*range(11)]
    assert list(frame_of([WHOLE, table]).index) == counted
    found = frame_of([table, WHOLE, table, WHOLE.set_axis(range(13, 22))])
    assert list(found.index) == [*range(22)]


THREE = F({"a": [1, 2, 3]})


@pytest.mark.parametrize(
    ("first", "second", "found", "before"),
    [
        (range(1, 4), range(2, 5), "a RangeIndex (2..5)", "a RangeIndex (1..4)"),
        (range(0, 6, 2), range(6, 9), "a RangeIndex (6..9)", "a RangeIndex (0..6, step 2)"),
        (range(3), list("xyz"), "a stored index", "a RangeIndex (0..3)"),
        (
            pd.RangeIndex(3, name="n"),
            pd.RangeIndex(3, 6),
            "a RangeIndex (3..6)",
            "a RangeIndex (0..3) named 'n'",
        ),
        (pd.Index([3, 1, 2], name="n"), [1, 2, 4], "a stored index", "a stored index named 'n'"),
        (
            pd.Index([3, 1, 2], name="n"),
            range(3),
            "a RangeIndex (0..3)",
            "a stored index named 'n'",
        ),
        (
            pd.MultiIndex.from_arrays([[1, 2, 3], [1, 2, 3]], names=["p", "q"]),
            pd.Index([1, 2, 4], name="p"),
            "a stored index named 'p'",
            "a stored index named ['p', 'q']",
        ),
    ],
)
def test_an_index_that_does_not_go_on_is_told_with_both(first, second, found, before):
    with pytest.raises(SchemaError) as caught:
        streamed([THREE.set_axis(first), THREE.set_axis(second)])
    text = str(caught.value)
    assert text.startswith(f"item 1: the DataFrame has {found}, the table {before}. ")
    assert text.endswith(
        "or pass index=False" if "RangeIndex" in before else "df.index.set_names()"
    )


def test_an_index_of_other_values_is_told_by_its_column():
    first, second = THREE.set_axis(list("xyz")), THREE.set_axis([1, 2, 4])
    with pytest.raises(SchemaError, match="item 1, column '__index_level_0__': type int64"):
        streamed([first, second])
    with pytest.raises(SchemaError, match="item 1, column '__index_level_0__': type int64"):
        streamed([first, THREE])


# The columns


def test_columns_go_by_name():
    table = streamed([F({"a": [1], "b": ["x"]}), F({"b": ["y"], "a": [2]}), {"b": ["z"], "a": [3]}])
    assert table.to_pydict() == {"a": [1, 2, 3], "b": ["x", "y", "z"]}


def test_columns_of_one_name_go_by_place():
    two = pa.table([[1], ["x"]], names=["a", "a"])
    assert streamed([two, two.to_batches()[0]]).num_rows == 2
    with pytest.raises(SchemaError, match=r"item 1: .* found \['a', 'b', 'a'\]; .*duplicate"):
        streamed([two, pa.table([[1], ["x"], [2]], names=["a", "b", "a"])])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"a": [1]}, "expected the columns ['a', 'b'], found ['a']; missing: ['b']"),
        ({"a": [1], "c": [1]}, "missing: ['b']; unknown: ['c']"),
        ({"a": [1], "b": [1], "c": [1]}, "found ['a', 'b', 'c']; unknown: ['c']; drop them"),
        (F({"a": [1], "b": [1], "c": [1]}), "unknown: ['c']"),
        (pl.DataFrame({"a": [1]}), "missing: ['b']"),
        (pa.table({}), "expected the columns ['a', 'b'], found []; missing: ['a', 'b']"),
    ],
    ids=str,
)
def test_missing_and_unknown_columns_are_told(second, message):
    first = {"a": [1], "b": [2]}
    with pytest.raises(SchemaError, match=re.escape(message)) as caught:
        streamed([first, first, second])
    assert str(caught.value).startswith("item 2: ")


# Types and values


def array(values, type_):
    return pa.array(values, type_)


FITTING = [
    (array([1], "i8"), array([2, None], "i1")),
    (array([1], "i1"), array([127, -128, None], "i8")),
    (array([1], "u1"), array([255, 0], "i8")),
    (array([1], "i8"), array([2**63 - 1], "u8")),
    (array([1.5], "f8"), array([2**53, -(2**53)], "i8")),
    (array([1.5], "f4"), array([2**24, None], "i8")),
    (array([1.5], "f2"), array([2048, None, -2048, 4096], "i8")),
    (array([1.5], "f8"), array([0.1, np.inf, -0.0, None], "f4")),
    (array([1.5], "f8"), array([65504.0], "f2")),
    (array([1.5], "f8"), array([2**60, -(2**63)], "i8")),
    (array([1.5], "f2"), array([65504], "i8")),
    (array([1.5], "f4"), array([0.25, np.inf, None], "f8")),
    (array([1], "i8"), array([3.0, -(2.0**63), None], "f8")),
    (array([1], "u1"), array([255.0], "f2")),
    (array([1], pa.decimal128(6, 2)), array([1234, -1, None], "i8")),
    (array([1], pa.decimal32(6, 0)), array([123456], pa.decimal256(70, 0))),
    (array([1], pa.time32("s")), array([3_000_000_000], pa.time64("ns"))),
    (array([1], pa.date64()), array([7, None], pa.date32())),
    (array(["x"], "large_string"), array(["é", None], "string")),
    (array(["x"], "string"), array(["é", None], "string").dictionary_encode()),
    (array(["x"], "string_view"), array(["é", None], "string_view").dictionary_encode()),
    (array([1], "i8"), array([2, None], "i1").dictionary_encode()),
    (array(["x"], "string").dictionary_encode(), array(["é", None], "large_string")),
    (array(["x"], "string"), array(["é" * 20, None], "string_view")),
    (array(["x"], "string_view"), array(["é" * 20, None, ""], "large_string")),
    (array([b"x"], "large_binary"), array([b"\xff", None], "binary")),
    (array([b"x"], "binary_view"), array([b"\xff" * 20, None], "binary")),
    (array([b"xyz"], pa.binary(3)), array([b"\xff\0 ", None], "binary")),
    (array([b""], pa.binary(0)), array([b"", None], "binary_view")),
]


@pytest.mark.parametrize(("first", "second"), FITTING, ids=str)
def test_a_type_changes_where_no_value_does(first, second):
    found = column(first, second)
    assert found.type == first.type
    assert found.to_pylist() == first.to_pylist() + second.to_pylist()


NOT_FITTING = [
    (array([1.5], "f8"), array([1, 2**53 + 1], "i8"), "row 1 is 9007199254740993"),
    (array([1.5], "f8"), array([2**53 + 1], "u8"), "row 0 is 9007199254740993"),
    (array([1.5], "f8"), array([2**63 - 1], "i8"), "row 0 is 9223372036854775807"),
    (array([1.5], "f8"), array([2**64 - 1], "u8"), "row 0 is 18446744073709551615"),
    (array([1.5], "f4"), array([None, 2**24 + 1], "i8"), "row 1 is 16777217"),
    (
        array([1.5], "f2"),
        array([2049], "i8"),
        "type int64 cannot be appended to halffloat without loss",
    ),
    (array([1.5], "f2"), array([70_000], "i8"), ""),
    (array([1], "i1"), array([300], "i8"), "row 0 is 300"),
    (array([1], "u8"), array([-1], "i8"), "row 0 is -1"),
    (array([1], "i8"), array([1.0, None, 1.5, 2.5], "f8"), "row 2 is 1.5"),
    (array([1], "i8"), array([1.0, np.nan], "f8"), "row 1 is nan"),
    (array([1], "i8"), array([2.0**63], "f8"), "row 0 is 9.223372036854776e+18"),
    (array([1], "i8"), array([np.inf], "f8"), "row 0 is inf"),
    (array([1.5], "f4"), array([0.5, 0.1], "f8"), "row 1 is 0.1"),
    (array([1.5], "f4"), array([1e300], "f8"), "row 0 is 1e+300"),
    (array([1], pa.decimal32(9, 0)), array([12345678901], pa.decimal128(15, 0)), "row 0 is "),
    (array([1], pa.decimal128(3, 1)), array([100], "i8"), "row 0 is 100"),
    (array([1], pa.time32("s")), array([1], pa.time64("ns")), "row 0 is "),
    (array([1], "i8"), array([True], "bool"), "type bool cannot be appended to int64"),
    (array(["x"], "string"), array([b"x"], "binary"), "type binary cannot be appended to string"),
    (array([b"xyz"], pa.binary(3)), array([b"abc", b"xy"], "binary"), "row 1 is b'xy'"),
    (array(["1"], "string"), array([1], "i8"), "type int64 cannot be appended to string"),
    (
        array(["1"], "string"),
        array([1], "i8").dictionary_encode(),
        "type dictionary<values=int64, indices=int32, ordered=0> cannot be appended to string",
    ),
    (
        pa.DictionaryArray.from_arrays(array([0], "i1"), ["x"], ordered=True),
        array(["x"], "string"),
        "row 0 is 'x'; give the data the same ordered categories",
    ),
    (
        array([0], pa.timestamp("us")),
        array([0], pa.timestamp("us", "UTC")),
        "times in the zone UTC (type timestamp[us, tz=UTC]) cannot be appended to times without a "
        "time zone (type timestamp[us])",
    ),
]


@pytest.mark.parametrize(("first", "second", "message"), NOT_FITTING, ids=str)
def test_values_that_would_change_are_told(first, second, message):
    with pytest.raises(SchemaError, match=r"^item 1, column 'a': .*" + re.escape(message)):
        column(first, second)


def codes(count: int, type_: pa.DataType, rows=(0,)) -> pa.DictionaryArray:
    words = [f"w{i}" for i in range(count)]
    return pa.DictionaryArray.from_arrays(pa.array(rows, type_), words)


def test_a_dictionary_takes_the_codes_that_are_there_while_they_have_room():
    narrow, wide = codes(2, pa.int8()), codes(128, pa.int32(), [127, None, 0])
    found = column(narrow, wide)
    assert found.type.index_type == pa.int8()
    assert found.to_pylist() == ["w0", "w127", None, "w0"]
    assert column(wide, narrow).to_pylist() == ["w127", None, "w0", "w0"]
    with pytest.raises(SchemaError, match=r"item 1, column 'a': .* codes of int8 have no room"):
        column(narrow, codes(129, pa.int16(), [0]))
    other = pa.array([1], "i8").dictionary_encode()
    with pytest.raises(SchemaError, match="item 1, column 'a': type dictionary<values=int6"):
        column(narrow, other)
    ordered = pa.DictionaryArray.from_arrays(pa.array([0], "i1"), ["w0"], ordered=True)
    assert column(narrow, ordered).type == narrow.type
    with pytest.raises(SchemaError, match=r"ordered=0> cannot be appended to .*ordered=1>"):
        column(ordered, narrow)


def test_codes_below_nulls_may_lead_anywhere():
    stray = pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), pa.string()),
        2,
        [pa.py_buffer(b"\1"), pa.py_buffer(np.array([0, 2**31 - 1], "i4"))],
        pa.array(["x"]),
    )
    assert column(codes(1, pa.int8()), stray).to_pylist() == ["w0", "x", None]


@pytest.mark.parametrize(
    "nulls",
    [
        pa.nulls(2),
        pa.nulls(2, pa.int8()),
        pa.nulls(2, pa.dictionary(pa.int8(), pa.int64())),
        np.array([None, None]),
        pd.Categorical([None, None]),
        pd.array([None, None], "Int64"),
    ],
    ids=lambda nulls: str(getattr(nulls, "type", None) or nulls.dtype),
)
def test_nulls_alone_fit_any_type(nulls):
    for first, _ in FITTING:
        assert column(first, nulls).to_pylist() == [*first.to_pylist(), None, None]
    assert column(codes(1, pa.int8()), nulls).to_pylist() == ["w0", None, None]


def test_no_rows_fit_any_type():
    for first, second in FITTING:
        assert column(first, second[:0]).to_pylist() == first.to_pylist()
    empty = F(columns=["b", "a"])
    check_frames(WHOLE, WHOLE, empty)


# Dtypes of pandas


def masked(*values):
    return pd.array(values, "Int64")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            pd.PeriodIndex(["2020-01"], freq="M"),
            pd.PeriodIndex(["2020-01"], freq="D"),
            "dtype period D cannot be appended to dtype period M",
        ),
        (
            [1],
            pd.PeriodIndex(["2020-01"], freq="M"),
            "dtype period M cannot be appended to dtype plain",
        ),
        (
            pd.PeriodIndex(["2020-01"], freq="M"),
            [1],
            "dtype plain cannot be appended to dtype period M",
        ),
    ],
    ids=str,
)
def test_dtypes_by_which_values_differ_are_told(first, second, message):
    with pytest.raises(SchemaError, match=f"^item 1, column 'a': {re.escape(message)}"):
        streamed([F({"a": first}), F({"a": second})])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1], masked(2, 3)),
        (pd.Categorical(["x"]), np.array(["x", None], object)),
        (pd.Categorical(["x"]), pd.array(["x", None], "string")),
        (np.array(["x"], object), pd.Categorical(["x", "y"])),
        (np.array(["x"], object), pd.Categorical(["x", "y"], ordered=True)),
        (pd.Categorical(pd.array(["x"], "string")), np.array(["x"], object)),
        (np.array(["x"], object), pd.Categorical(pd.array(["x"], "string"))),
        (masked(1, None), [2]),
        (masked(1, None), pd.array([2, None], "int64[pyarrow]")),
        (pd.array(["x"], "str"), pd.array(["y", None], "string")),
        (pd.array(["x"], "string"), np.array(["y", None], object)),
        ([1.5], pd.array([1.5, None], "Float64")),
    ],
    ids=str,
)
def test_dtypes_told_apart_but_not_by_a_value_become_that_of_the_first(first, second):
    frames = [F({"a": first}), F({"a": second})]
    found = frame_of(frames)["a"]
    assert found.dtype == frames[0]["a"].dtype
    assert found.isna().tolist() == [*frames[0]["a"].isna(), *frames[1]["a"].isna()]
    expected = [*frames[0]["a"].dropna(), *frames[1]["a"].dropna()]
    assert found.dropna().tolist() == expected


def test_labels_and_attributes_are_those_of_the_first():
    first = F([[1, 2]], columns=pd.Index(["a", "b"], name="letters"))
    first.attrs["unit"] = "m"
    found = frame_of([first, {"b": [3], "a": [4]}])
    assert found.columns.name == "letters"
    assert found.attrs == {"unit": "m"}
    assert found.to_numpy().tolist() == [[1, 2], [4, 3]]


# Items


@pytest.mark.parametrize("item", [None, 7, "text", [1, 2]], ids=repr)
def test_what_is_no_table_is_told_with_its_place(item):
    good = F({"a": [1]})
    for items in ([item], [good, good, item]):
        with pytest.raises(
            TypeError, match=f"^item {len(items) - 1}: expected a pandas .*; found "
        ):
            streamed(items)


@pytest.mark.parametrize(
    "items", [[], (), iter(()), (item for item in ())], ids=lambda items: type(items).__name__
)
def test_no_items_are_no_table(items):
    with pytest.raises(SchemaError, match="without items has no columns; for a table without"):
        streamed(items)


def test_a_column_that_cannot_be_stored_is_told_with_its_item():
    with pytest.raises(SchemaError, match=r"^item 1: column 'a', row 1: "):
        streamed([{"a": [1]}, {"a": [1, "x"]}])
    with pytest.raises(SchemaError, match=r"^item 1: columns of different lengths"):
        streamed([{"a": [1], "b": [1]}, {"a": [1], "b": [1, 2]}])


def test_series_of_polars_keep_their_type():
    series = pl.Series([1, None, 2**53 + 1])
    found = column(series, series)
    assert found.type == pa.int64()
    assert found.to_pylist() == [1, None, 2**53 + 1] * 2


def test_each_name_is_looked_up_where_columns_go_by_name():
    names = [f"c{number}" for number in range(400)]
    found, wanted = counted(names[::-1]), list(map(Counted, names))
    assert _match(found, wanted, "the data", True, "") == list(range(399, -1, -1))
    assert Counted.compared < 20 * len(names)


def ordered(*orders):
    """Return columns of the categories `a`, `b`, `c`, each column with another order."""
    type_ = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    return [
        pa.chunked_array(
            [pa.DictionaryArray.from_arrays(pa.array([0], "i1"), list(order), ordered=True)], type_
        )
        for order in orders
    ]


def tables(*columns):
    return [pa.table({"n": [1], "a": column}) for column in columns]


CBA = {
    "tables": lambda first, other: tables(first, other),
    "a reader": lambda first, other: pa.concat_tables(tables(first, other)).to_reader(),
    "a capsule": lambda first, other: pl_like(pa.concat_tables(tables(first, other))),
    "one table": lambda first, other: pa.concat_tables(tables(first, other)),
    "frames": lambda first, other: [one.to_pandas() for one in tables(first, other)],
}


def pl_like(table):
    """An object with an Arrow stream interface and nothing else."""

    class Capsule:
        def __arrow_c_stream__(self, requested_schema=None):
            return table.__arrow_c_stream__(requested_schema)

    return Capsule()


@pytest.mark.parametrize("given", CBA.values(), ids=CBA)
def test_ordered_categories_are_the_same_in_all_rows_of_any_source(given):
    (same, other) = ordered("abc", "cba")
    none = pa.chunked_array([pa.nulls(1, same.type)])
    assert len(streamed(given(same, same))) == 2
    if given is not CBA["frames"]:  # pandas has no categories where there is no value.
        for first, second in ((same, none), (none, same)):
            assert len(streamed(given(first, second))) == 2
    with pytest.raises(SchemaError, match=r"column 'a': ordered categories \['c', 'b', 'a'\]"):
        streamed(given(same, other))


@pytest.mark.parametrize(
    "index", [range(7, 10), range(0, 6, 2), pd.RangeIndex(3, name="n")], ids=str
)
def test_a_default_index_continues_any_other_of_numbers(index):
    frame = THREE.set_axis(pd.RangeIndex(index.start, index.stop, index.step), axis=0)
    frame.index.name = getattr(index, "name", None)
    found = frame_of([frame, THREE.reset_index(drop=True)]).index
    step = frame.index.step
    wanted = pd.RangeIndex(index.start, index.start + 6 * step, step, name=frame.index.name)
    assert found.equals(wanted)
    assert found.name == wanted.name


# Bug: lists and dicts of a DataFrame were refused, which those of Arrow were not.
@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([[1], None], pa.list_(pa.int64())),
        ([{"a": 1}, None], pa.struct({"a": pa.int64()})),
        ([[{"a": [1]}], []], pa.list_(pa.struct({"a": pa.list_(pa.int64())}))),
    ],
)
def test_objects_are_values_of_an_arrow_dtype_and_the_other_way_round(values, type_):
    objects, arrow = F({"a": values}), F({"a": pd.Series(values, dtype=pd.ArrowDtype(type_))})
    for first, second in ((objects, arrow), (arrow, objects)):
        table = Table(first).append([first[:0], second])
        assert table.arrow()["a"].to_pylist() == values * 2
        assert table.pandas()["a"].dtype == first["a"].dtype


def test_sets_are_no_values_of_an_arrow_dtype():
    lists = F({"a": pd.Series([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))})
    with pytest.raises(SchemaError, match='object \\["set", "int"\\] cannot be appended'):
        Table(lists).append([lists[:0], F({"a": [{1}]})])
