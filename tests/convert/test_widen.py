"""Widening: with evolve=True a table takes new columns and wider numbers."""

import decimal
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.convert.categories import with_room
from blztable.convert.frames.frame import FrameInfo
from blztable.convert.gateway import ingest
from blztable.convert.widen import evolved
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.append_target import Table, source_of, spec_of

F = pd.DataFrame


def decimals(text: str, precision: int, scale: int) -> pa.Array:
    type_ = pa.decimal128 if precision <= 38 else pa.decimal256
    return pa.array([decimal.Decimal(text)], type_(precision, scale))


def types(table: Table) -> list[str]:
    return [str(type_) for type_ in table.schema.types]


@pytest.mark.parametrize(
    ("first", "second", "wide"),
    [
        (pa.array([1], "i1"), pa.array([127], "i8"), "int8"),
        (pa.array([1], "i1"), pa.array([128], "i8"), "int64"),
        (pa.array([1], "i1"), pa.array([128], "i2"), "int16"),
        (pa.array([1], "u1"), pa.array([-1], "i1"), "int16"),
        (pa.array([1], "u4"), pa.array([-1], "i1"), "int64"),
        (pa.array([1], "u8"), pa.array([2**40], "i8"), "uint64"),
        (pa.array([1], "i4"), pa.array([2**40], "u8"), "int64"),
        (pa.array([1], "i2"), pa.array([40_000], "u8"), "int32"),
        (pa.array([1.5], "f4"), pa.array([0.1], "f8"), "double"),
        (pa.array([1.5], "f4"), pa.array([2**24], "i8"), "float"),
        (pa.array([1.5], "f4"), pa.array([2**24 + 1], "i8"), "double"),
        (pa.array([1], "i1"), pa.array([0.1], "f2"), "float"),
        (pa.array([1], "i4"), pa.array([0.1], "f4"), "double"),
        (pa.array([1], "u2"), pa.array([0.1], "f4"), "float"),
        (pa.array([1], "i8"), pa.nulls(1, "f8"), "int64"),
        (pa.array([1], "i8"), pa.array([0.5], "f8"), "double"),
        (pa.array([1], "i8"), pa.array([2.0, None], "f8"), "int64"),
        (pa.array([1], "u8"), pa.array([-1], "i8"), "int64"),
        (pa.array([1], "i8"), pa.array([2**63], "u8"), "uint64"),
        (pa.array([0.5], "f8"), pa.array([2**60], "i8"), "double"),
        (pa.nulls(2), pa.array(["x"]), "string"),
        (pa.nulls(2, "f8"), pa.array([True]), "bool"),
        (pa.array([0], pa.timestamp("s")), pa.array([1], pa.timestamp("ms")), "timestamp[ms]"),
        (
            pa.array([0], pa.timestamp("ns", "UTC")),
            pa.array([1 << 34], pa.timestamp("s", "UTC")),
            "timestamp[us, tz=UTC]",
        ),
        (pa.array([0], pa.duration("ms")), pa.array([1], pa.duration("ns")), "duration[ns]"),
        (pa.array([0], pa.time32("s")), pa.array([1], pa.time32("ms")), "time32[ms]"),
        (pa.array([0], pa.time32("ms")), pa.array([1], pa.time64("ns")), "time64[ns]"),
        (pa.array([0], pa.date32()), pa.array([86_400_000], pa.date64()), "date32[day]"),
        (decimals("1.2", 3, 1), decimals("100.25", 5, 2), "decimal128(5, 2)"),
        (decimals("99.9", 3, 1), decimals("0.25", 3, 3), "decimal128(5, 3)"),
        (decimals("1.2", 3, 1), decimals("1.2", 9, 2), "decimal128(3, 1)"),
        (decimals("1.2", 38, 1), decimals("0.25", 38, 38), "decimal256(75, 38)"),
        (decimals("1.2", 3, 1), pa.array([12345]), "decimal128(6, 1)"),
        (pa.array(["x"]), pa.array(["y"]).dictionary_encode(), "string"),
        (
            pa.array(["x"]).dictionary_encode(),
            pa.array(["y", None]),
            "dictionary<values=string, indices=int32, ordered=0>",
        ),
        (pa.array(["x"]), pa.array(["y" * 99], "large_string"), "string"),
    ],
    ids=str,
)
def test_numbers_widen_where_values_do_not_fit(first, second, wide):
    table = Table({"a": first}).append({"a": second}, evolve=True)
    assert types(table) == [wide]
    assert table.arrow()["a"].to_pylist() == first.to_pylist() + second.to_pylist()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([2**63], "u8"), pa.array([-1], "i8")),
        (pa.array([-1], "i8"), pa.array([2**63], "u8")),
        (pa.array([2**53 + 1], "i8"), pa.array([0.5], "f8")),
        (pa.array([2**40], pa.timestamp("s")), pa.array([1], pa.timestamp("ns"))),
        (pa.array([0], pa.timestamp("s")), pa.array([0], pa.timestamp("s", "UTC"))),
        (decimals("1.2", 76, 1), decimals("1.25", 76, 75)),
        (pa.array([0.5], "f8"), pa.array([2**53 + 1], "i8")),
        (pa.array([1], "i8"), pa.array(["1"])),
        (pa.array(["1"]), pa.array([1])),
        (pa.array([True]), pa.array([1])),
    ],
    ids=str,
)
def test_what_no_type_holds_is_told(first, second):
    with pytest.raises(SchemaError, match=r"the data, column 'a': |a row before does not fit"):
        Table({"a": first}).append({"a": second}, evolve=True)


NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


@st.composite
def numbers(draw):
    dtype = np.dtype(draw(st.sampled_from(NUMBERS)))
    if dtype.kind == "f":
        value = st.floats(width=8 * dtype.itemsize, allow_nan=False)
    else:
        ends = np.iinfo(dtype)
        value = st.integers(-2, 200) | st.integers(ends.min, ends.max)
        value = value.filter(lambda number: ends.min <= number <= ends.max)
    return pa.array(np.array(draw(st.lists(value, min_size=1, max_size=3)), dtype))


@given(numbers(), st.lists(numbers(), max_size=3))
def test_no_number_changes_however_types_widen(first, others):
    table = Table({"a": first})
    try:
        table.append([{"a": values} for values in others], evolve=True)
    except SchemaError:
        return
    expected = [value for values in (first, *others) for value in values.to_pylist()]
    assert table.arrow()["a"].to_pylist() == expected


def test_an_item_that_does_not_fit_begins_a_segment():
    items = [{"a": pa.array([value], type_)} for value, type_ in [
        (1, "i1"), (2, "i8"), (300, "i2"), (4, "i1"), (70_000, "i4"), (5, "i8"),
    ]]  # fmt: skip
    target = spec_of(pa.schema({"a": pa.int8()}))
    found = [
        (str(segment.schema.field("a").type), [part["a"].to_pylist() for part, _ in segment.parts])
        for segment in source_of(iter(items), target, evolve=True).segments
    ]
    assert found == [
        ("int8", [[1], [2]]),
        ("int16", [[300], [4]]),
        ("int32", [[70_000], [5]]),
    ]


def test_parts_that_nobody_drew_are_not_passed_over():
    target = spec_of(pa.schema({"a": pa.int64()}))
    with pytest.raises(AssertionError, match="all parts are drawn"):
        list(source_of({"a": [1]}, target).segments)


def test_data_that_do_not_fit_at_once_begin_with_the_wider_schema():
    target = spec_of(pa.schema({"a": pa.int8()}), 5)
    segment = next(source_of({"a": [300]}, target, evolve=True).segments)
    assert segment.schema.field("a").type == pa.int64()
    segment = next(source_of({"a": [30]}, target).segments)
    assert segment.schema is target.schema


def test_new_columns_come_last_and_keep_their_metadata():
    field = pa.field("new", pa.float32(), nullable=False, metadata={"unit": "m"})
    data = pa.table([[2.5], [7]], schema=pa.schema([field, ("a", pa.int64())]))
    table = Table(pa.table({"a": [1]})).append(data, evolve=True).append({"a": [3]})
    assert table.schema.names == ["a", "new"]
    assert table.schema.field("new").nullable
    assert table.schema.field("new").metadata == {b"unit": b"m"}
    assert table.arrow()["new"].to_pylist() == [None, 2.5, None]


@pytest.mark.parametrize("first", [F, pa.table], ids=["frame", "arrow"])
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pd.array([1], "Int16"), "Int16"),
        (pd.array(["x"], "string"), "string"),
        (pd.Categorical(["x"]), "category"),
        (pd.PeriodIndex(["2020"], freq="Y"), "period[Y-DEC]"),
        (pd.to_datetime(["2020"], utc=True), "datetime64[us, UTC]"),
        (np.array([b"x"], object), "object"),
        (np.array([1.5], "f4"), "float32"),
    ],
    ids=str,
)
def test_a_new_column_of_a_frame_keeps_its_dtype(first, values, dtype):
    found = Table(first({"a": [1.5]})).append(F({"a": [2.5], "new": values}), evolve=True).pandas()
    assert found["new"].dtype == dtype
    assert found["new"].isna().tolist() == [True, False]
    assert found["new"][1] == values[0]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(np.int64(2**53 + 1), "Int64"), (np.uint8(7), "float64"), (np.bool_(True), "object")],
    ids=str,
)
def test_a_new_plain_column_is_nullable_for_the_rows_before_it(value, dtype):
    later = [F({"a": [2], "new": [value]}), {"a": [3]}, pa.table({"a": [4], "new": [value]})]
    found = Table(F({"a": [1]})).append(later, evolve=True).pandas()
    assert found["new"].dtype == dtype
    assert found["new"].isna().tolist() == [True, False, True, False]
    assert found["new"].dropna().tolist() == [value, value]
    found = Table(F({"a": [1]})).append(pa.table({"a": [4], "new": [value]}), evolve=True).pandas()
    assert found["new"].dtype == dtype


def test_a_new_category_has_room_for_those_of_later_frames():
    many = F({"a": [2] * 200, "new": pd.Categorical([f"w{i}" for i in range(200)])})
    few = F({"a": [1], "new": pd.Categorical(["x"])})
    table = Table(F({"a": [0]})).append(few, evolve=True)
    schema = table.schema
    table.append(many, evolve=True)
    assert table.schema.equals(schema)
    assert table.pandas()["new"].tolist()[1:] == ["x", *many["new"]]


def test_codes_widen_where_a_table_evolves():
    few, many = (pd.Categorical([f"w{i}" for i in range(count)]) for count in (2, 200))
    with pytest.raises(SchemaError, match=r"column 'c': .* have no room .*; pass evolve=True"):
        Table(F({"c": few})).append(F({"c": many}))
    found = Table(F({"c": few})).append(F({"c": many}), evolve=True).pandas()["c"]
    assert found.tolist() == [*few, *many]


def test_new_columns_have_their_labels():
    first = F([[0.5, 1.5]], columns=pd.RangeIndex(2))
    second = F([[0.5, 1.5, 2.5]], columns=pd.RangeIndex(3))
    table = Table(first)
    found = table.append(second, evolve=True).pandas()
    pd.testing.assert_frame_equal(found, pd.concat([first, second], ignore_index=True))
    multi = [F([[1.5] * n], columns=[list("xyz")[:n], list("pqr")[:n]]) for n in (2, 3)]
    found = Table(multi[0]).append(multi[1], evolve=True).pandas()
    pd.testing.assert_frame_equal(found, pd.concat(multi, ignore_index=True))


def test_labels_of_other_levels_are_the_names():
    data = F([[1.5]], columns=pd.MultiIndex.from_tuples([("x", 1)]))
    table = Table(F([[0.5]], columns=pd.RangeIndex(1))).append(data, evolve=True)
    assert table.pandas().columns.tolist() == [0, "('x', 1)"]


def test_a_new_column_has_not_the_label_of_one_that_was_dropped():
    table = Table(F([[0.5, 1.5]], columns=pd.RangeIndex(2)))
    table.parts = [(table.parts[0][0].select(["0"]), 1)]
    table.schema = table.schema.remove(1)
    table.append(F([[0.5, 1.5]], columns=pd.Index([0, "1"], dtype=object)), evolve=True)
    assert table.pandas().columns.tolist() == [0, "1"]


def test_an_index_is_no_new_column():
    for other in (F({"a": [1.5]}, index=["x"]), F({"a": [1.5]}, index=["x"])[:0]):
        table = Table(F({"a": [0.5]}))
        if len(other):
            with pytest.raises(SchemaError, match="the DataFrame has a stored index"):
                table.append(other, evolve=True)
        else:
            table.append(other, evolve=True)
        assert table.schema.names == ["a"]


def test_columns_come_and_go_item_by_item():
    frames = [F({"a": [1.5]}), F({"b": ["x"]}), F({"c": [1]}), F({"a": [2.5], "c": [2]})]
    found = Table(frames[0]).append(frames[1:], evolve=True).pandas()
    expected = pd.concat(frames, ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)


def test_a_new_ordered_column_is_ordered_as_its_first_item():
    def item(categories):
        return F({"a": [1], "new": pd.Categorical(["x"], categories, ordered=True)})

    table = Table(F({"a": [0]})).append([item(["y", "x"]), item(["y", "x"])], evolve=True)
    assert table.pandas()["new"].cat.categories.tolist() == ["y", "x"]
    with pytest.raises(SchemaError, match="item 1, column 'new': ordered categories"):
        Table(F({"a": [0]})).append([item(["y", "x"]), item(["x", "y"])], evolve=True)


class Passes:
    """A schema that counts the passes over all its fields."""

    def __init__(self, schema: pa.Schema, count: list[str]):
        self._schema, self._count = schema, count

    def __iter__(self):
        self._count.append("iter")
        return iter(self._schema)

    def field(self, place):
        return self._schema.field(place)

    def __getattr__(self, name):
        self._count.append(name)
        value = getattr(self._schema, name)
        if not callable(value):
            return value
        return lambda *args: Passes(value(*args), self._count)


def test_a_schema_is_gone_through_a_few_times_whatever_the_number_of_columns():
    """Changing one field of an Arrow schema copies all its fields."""
    schema = pa.schema([(f"c{number}", pa.int8()) for number in range(100)])
    more = pa.schema([(f"m{number}", pa.int8()) for number in range(100)])
    data = ingest({name: [1000] for name in (schema.names + more.names)})
    passes = []
    wide, _ = evolved(data, Passes(schema, passes), None)
    assert wide.names == schema.names + more.names
    assert set(wide.types) == {pa.int64()}
    assert len(passes) < 10


def test_codes_of_many_columns_are_given_room_in_one_new_schema():
    narrow = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([(f"c{number}", narrow) for number in range(100)], {"k": "v"})
    passes = []
    wide = with_room(Passes(schema, passes), FrameInfo.decode(None))
    assert set(wide.types) == {pa.dictionary(pa.int32(), pa.string())}
    assert wide.metadata == {b"k": b"v"}
    assert len(passes) < 10


# Columns of nulls


def none(dtype=object, **labels) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series([None], dtype=dtype, **labels)})


# Bug: the column took the type of UUIDs without its name, so that the append was refused. Of other
# dtypes it kept what it stored, and the append was refused.
@pytest.mark.parametrize(
    "nulls",
    [none(), none()[:0], none("Float64"), none("Int64"), none("period[M]"), none("category")],
)
@pytest.mark.parametrize(
    "values",
    [
        [uuid.UUID(int=1)],
        pd.Categorical([uuid.UUID(int=1)]),
        pd.period_range("2026", periods=1, freq="D"),
        pd.interval_range(0.5, 1.5),
        pd.Categorical(pd.interval_range(0.5, 1.5)),
        pd.Categorical([None, *pd.interval_range(1, 2)]),
        [1j],
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_nulls_take_the_type_and_dtype_of_the_first_values(nulls, values, is_stream):
    given, store = pd.DataFrame({"a": values}), RamStore()
    if is_stream:
        blz.to_blz(iter([nulls, given]), store)
    else:
        blz.to_blz(nulls, store)
        blz.to_blz(given, store, mode="a", evolve=True)
    found, missing = blz.read_blz(store)["a"], len(nulls)
    assert found.dtype == given["a"].dtype
    assert found[missing:].tolist() == given["a"].tolist()
    with blz.open(store) as t:
        assert found[:missing].isna().all()
        blz.to_blz(iter([given]), other := RamStore())
        with blz.open(other) as alone:
            assert t.schema.field("a").type == alone.schema.field("a").type


def test_nulls_of_categories_take_the_categories_of_other_intervals():
    nulls = pd.DataFrame({"a": pd.Categorical([None], pd.interval_range(0, 1))})
    given = pd.DataFrame({"a": pd.Categorical(pd.interval_range(0.5, 1.5))})
    blz.to_blz(iter([nulls, given]), store := RamStore())
    assert blz.read_blz(store)["a"].tolist() == [np.nan, pd.Interval(0.5, 1.5)]
    assert blz.read_blz(store)["a"].cat.categories.dtype == "interval[float64, right]"


def test_a_uuid_column_of_nulls_that_becomes_numbers_is_no_uuid_column():
    blz.to_blz({"a": pa.nulls(1, pa.uuid())}, store := RamStore())
    with blz.open(store, "a") as t:
        t.append({"a": [1]}, evolve=True)
        assert t.schema.equals(pa.schema({"a": pa.int64()}), check_metadata=True)
