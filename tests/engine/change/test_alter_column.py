"""alter_column: the type, the nulls and the default of one column, without the others."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.errors import ColumnNotFoundError, ConflictError, SchemaError
from blztable.format.layout import DATA
from blztable.storage.memory import RamStore
from support.bit_equality import bits
from support.options import arguments
from support.stored import files
from support.stores import Hooked

F = pd.DataFrame


def table(data, **options) -> blz.CTable:
    store = RamStore()
    blz.to_blz(data, store, **arguments(**{"row_group_rows": 3, "page_rows": 8, **options}))
    return blz.open(store, "a")


def watched(data) -> tuple[blz.CTable, list[tuple[str, str]]]:
    """Return a table, and a list of the files that are read and written, with the call."""
    touched: list[tuple[str, str]] = []

    def hook(name, args):
        if name in ("open", "get", "put_new") and args[0].startswith(DATA):
            touched.append((name, args[0]))

    store = RamStore()
    blz.to_blz(data, store, storage=blz.Storage(row_group_rows=2), durability="process")
    return blz.open(Hooked(store, before=hook), "a"), touched


def numbers(values, precision, scale=0):
    return pa.array([decimal.Decimal(value) for value in values], pa.decimal128(precision, scale))


TEXT = ["x", None, "é" * 70, "y" * 70]
IN_PLACE = {
    "digits": (numbers([1, 2, 3, -4], 9, 2), pa.decimal128(18, 2)),
    "zone": (pa.array([1, 2, None, 4], pa.timestamp("s", "UTC")), pa.timestamp("s", "Asia/Tokyo")),
    "text as bytes": (pa.array(TEXT), pa.binary()),
    "large text as bytes": (pa.array(TEXT, pa.large_string()), pa.large_binary()),
    "view as large": (pa.array(TEXT, pa.string_view()), pa.large_string()),
    "order": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], "i1"), ["x", "y"], ordered=True),
        pa.dictionary(pa.int8(), pa.string()),
    ),
}


@pytest.mark.usefixtures("own_files_here")
@pytest.mark.parametrize("case", IN_PLACE)
def test_a_type_of_the_same_bytes_touches_no_file(case):
    array, type_ = IN_PLACE[case]
    t, touched = watched(pa.table({"a": array, "b": [1, 2, 3, 4]}))
    t.alter_column("a", dtype=type_)
    assert touched == []
    assert t.schema.field("a").type == type_
    plain = array.dictionary_decode() if pa.types.is_dictionary(type_) else array.cast(type_)
    assert t["a"][:].to_pylist() == plain.to_pylist()
    t.append(pa.table({"a": plain, "b": [1, 2, 3, 4]}))
    for n in range(4):
        assert t.count(filters=pc.field("a") == plain[n]) == 2 * plain.is_valid()[n].as_py() * (
            plain.to_pylist().count(plain[n].as_py())
        )
    assert t.verify().is_intact, t.verify().problems
    t.compact()
    assert t.verify().is_intact


@pytest.mark.usefixtures("own_files_here")
def test_only_the_column_is_read_and_written_where_its_bytes_change():
    t, touched = watched({"a": [1, 2, 3], "b": [4, 5, 6], "c": ["x", "y", "z"]})
    t.alter_column("b", dtype="double")
    assert {key.split("/")[1] for _, key in touched} == {"col1"}
    written = [key for name, key in touched if name == "put_new"]
    numbers = files(t._snapshot.version, 1)
    assert written == [f"data/col1/__{number}__.bin" for number in numbers]
    touched.clear()
    t.alter_column("b", nullable=False)
    t.alter_column("b", nullable=True, default=7)
    t.alter_column("b", default=None)
    assert touched == []


EXACT = [
    (pa.array([1, None, 255], "i8"), pa.uint8()),
    (pa.array([1, None, 1 << 53], "i8"), pa.float64()),
    (pa.array([1.0, None, -0.5], "f8"), pa.float32()),
    (pa.array([1.0, None, -7.0], "f4"), pa.int16()),
    (pa.array([True, None], "bool"), pa.bool_()),
    (pa.array(["x", None, "x"]), pa.large_string()),
    (pa.array(["x", None, "x"], pa.large_string()), pa.string_view()),
    (pa.array(["x", None, "x"]), pa.dictionary(pa.int8(), pa.string())),
    (pa.array(["x", None, "x"]).dictionary_encode(), pa.string()),
    (pa.array([1, None], pa.timestamp("s")), pa.timestamp("ns")),
    (pa.array([1000, None], pa.timestamp("ms")), pa.timestamp("s")),
    (pa.array([1, None], pa.time32("s")), pa.time64("us")),
    (pa.array([1, None], pa.date32()), pa.date64()),
    (numbers(["1.25", "3"], 5, 2), pa.decimal128(38, 10)),
    (numbers(["1.20", "3"], 5, 2), pa.decimal32(3, 1)),
    (pa.array([1, None, -3]), pa.decimal128(4, 2)),
    (numbers(["700", "-30000"], 5, -2), pa.decimal128(20, 0)),
    (numbers(["700", "-30000"], 5, -2), pa.decimal64(4, -1)),
    (numbers(["700", "-30000"], 5, -2).cast(pa.decimal32(5, -2)), pa.int64()),
    (numbers(["700", "-30000"], 5, -2), pa.dictionary(pa.int8(), pa.decimal128(9, 2))),
    (pa.nulls(3), pa.string()),
    (pa.nulls(3, "i8"), pa.bool_()),
]


@pytest.mark.parametrize(("array", "type_"), EXACT, ids=str)
def test_every_row_group_gets_the_new_type(array, type_):
    rows = pa.chunked_array([array] * 4)
    t = table(pa.table({"a": rows, "b": range(len(rows))}))
    t.alter_column("a", dtype=type_)
    found = t["a"][:]
    assert found.type == type_
    assert found.to_pylist() == rows.to_pylist()
    assert t.count(filters=pc.field("a").is_null()) == rows.null_count
    assert t.verify().is_intact
    t.append({"a": array})
    assert t["a"][:].to_pylist() == rows.to_pylist() + array.to_pylist()
    t.restore(1)
    assert t["a"][:].type == array.type


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_zone_changes_together_with_the_unit_and_in_the_default_too(unit):
    in_oslo = pa.array([0, None, 1_791_702_000_000_000], pa.timestamp("us", "Europe/Oslo"))
    t = table(pa.table({"at": in_oslo, "n": [1, 2, 3]}))
    t.alter_column("at", default=in_oslo[2])
    t.alter_column("at", dtype=pa.timestamp(unit, "UTC"))
    t.append({"n": [4]})
    moments = in_oslo.cast(pa.timestamp(unit, "UTC"))
    assert t["at"][:].equals(pa.concat_arrays([moments, moments[2:]]))


LOSSY = [
    ([1, 2, 3, 4, 300], pa.int8(), r"int64 cannot become int8 without loss: row 4 is 300"),
    ([1, (1 << 53) + 1], "double", "row 1 is 9007199254740993"),
    ([1.0, 2.0, 3.0, 0.1], "float", r"row 3 is 0\.1"),
    ([1.0, 2.0, 3.0, 3.5], "int64", r"row 3 is 3\.5"),
    (["1", "2", "x", "4"], "int64", "row 0 is '1'"),
    ([1, 2, 3, 4], "string", "row 0 is 1"),
    (pa.array([0, 1, 2, 3], pa.timestamp("ms")), "timestamp[s]", "row 1 is datetime"),
    (pa.array([0], pa.timestamp("s")), pa.timestamp("s", "UTC"), "row 0 is"),
    (pa.array([1 << 40], pa.timestamp("s")), "timestamp[ns]", "row 0 is"),
    (numbers(["1.25"], 5, 2), pa.decimal128(5, 1), "row 0 is Decimal"),
]


# What each refusal advises; none of it changes an old value.
HEEDED = (
    "(update the value, or choose another type|call alter_column with safe=False|add the times)"
)


@pytest.mark.parametrize(("values", "type_", "message"), LOSSY, ids=str)
def test_a_value_that_would_change_is_told_and_nothing_is_committed(values, type_, message):
    t = table(pa.table({"a": values}))
    with pytest.raises(SchemaError, match=f"^column 'a': .*{message}.*; {HEEDED}"):
        t.alter_column("a", dtype=type_)
    assert t.version == 1
    assert t.verify().is_intact


UNSAFE = [
    ([1, None, 3], "string", ["1", None, "3"]),
    (["1", None, "-3"], "int8", [1, None, -3]),
    ([1.5, None, -2.5], "int64", [1, None, -2]),
    ([1.5, 0.1], "float", [1.5, float(np.float32(0.1))]),
    ([(1 << 53) + 1], "double", [2.0**53]),
    ([0, 2], "bool", [False, True]),
    (["2020-01-02"], pa.date32(), [datetime.date(2020, 1, 2)]),
    (
        pa.array([1999], pa.timestamp("ms")),
        "timestamp[s]",
        [datetime.datetime(1970, 1, 1, 0, 0, 1)],
    ),
    (numbers(["1.25"], 5, 2), pa.decimal128(5, 1), None),
    ([1, 2, 1], pa.dictionary(pa.int8(), pa.string()), ["1", "2", "1"]),
    (pa.array(["7", "8"]).dictionary_encode(), "int64", [7, 8]),
]


@pytest.mark.parametrize(("values", "type_", "wanted"), UNSAFE, ids=str)
def test_anything_else_is_converted_on_request(values, type_, wanted):
    t = table(pa.table({"a": values, "b": values}))
    t.alter_column("a", dtype=type_, safe=False)
    if wanted is not None:
        assert t["a"][:].to_pylist() == wanted
    assert t["b"][:].to_pylist() == pa.array(values).to_pylist()
    assert t.verify().is_intact


@pytest.mark.parametrize(
    ("values", "type_", "message"),
    [
        (["1", "2", "3", "x"], "int64", "string cannot become int64: row 3 is 'x'"),
        ([1.0, float("nan")], "int64", "row 1 is nan"),
        ([1.0, 1e300], "int64", r"row 1 is 1e\+300"),
        ([b"ok", b"\xff"], "string", "UTF-8"),
    ],
    ids=str,
)
def test_what_has_no_counterpart_is_told_in_any_case(values, type_, message):
    t = table(pa.table({"a": values}))
    with pytest.raises(SchemaError, match=f"column 'a': .*{message}"):
        t.alter_column("a", dtype=type_, safe=False)
    assert t.version == 1


class TestNulls:
    def test_a_row_that_is_null_is_told(self):
        t = table({"a": [1, 2, 3, 4, None, 6], "b": [None] * 6})
        with pytest.raises(SchemaError, match=r"column 'a': row 4 is null.*update\({'a'"):
            t.alter_column("a", nullable=False)
        assert t.version == 1

    def test_the_remedy_of_the_error_works(self):
        t = table({"a": [1, None]})
        t.update({"a": 0}, where=pc.field("a").is_null())
        t.alter_column("a", nullable=False)
        assert not t.schema.field("a").nullable
        with pytest.raises(SchemaError, match=r"row 1; fill .*alter_column\('a', nullable=True\)"):
            t.append({"a": [2, None]})
        t.add_column("b", [1, 2])
        with pytest.raises(SchemaError, match=r"call alter_column\('a', default=...\)"):
            t.append({"b": [3]})
        t.drop_columns(["b"])
        t.alter_column("a", nullable=True)
        t.append({"a": [2, None]})
        assert t["a"][:].to_pylist() == [1, 0, 2, None]

    def test_only_the_statistics_are_read(self):
        t, touched = watched({"a": [1, 2, 3, 4, 5, 6]})
        t.alter_column("a", nullable=False)
        assert touched == []

    def test_the_type_and_the_nulls_change_together(self):
        t = table({"a": [1, 2, 3, 4]})
        t.alter_column("a", dtype="double", nullable=False, default=0.5)
        assert t.schema.field("a") == pa.field("a", pa.float64(), nullable=False)
        t.resize(5)
        assert t["a"][:].to_pylist() == [1, 2, 3, 4, 0.5]


class TestDefaults:
    def test_a_default_is_for_rows_that_come_later(self):
        t = table({"a": [1], "b": [2]})
        t.alter_column("a", default=7)
        t.append({"b": [3]})
        t.alter_column("a", default=None)
        t.append({"b": [4]})
        assert t["a"][:].to_pylist() == [1, 7, None]
        assert t._snapshot.version.head.properties["defaults"] == {}

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t.append({"b": ["z"]}),
            lambda t: t.resize(9),
            lambda t: t.alter_column("a", dtype="double"),
        ],
    )
    def test_a_change_that_used_a_former_default_is_a_conflict(self, change):
        store = RamStore()
        blz.to_blz({"a": [1], "b": ["x"]}, store)
        with blz.open(store, "a", retries=0) as late, blz.open(store, "a") as first:
            first.alter_column("a", default=7)
            with pytest.raises(ConflictError, match="the default values of version 1"):
                change(late)

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t.append({"a": [2], "b": ["z"]}),
            lambda t: t.alter_column("b", dtype="binary"),
            lambda t: t.update({"b": "z"}),
        ],
    )
    def test_a_change_that_used_no_default_meets_a_new_one(self, change):
        store = RamStore()
        blz.to_blz({"a": [1], "b": ["x"]}, store)
        with blz.open(store, "a") as late, blz.open(store, "a") as first:
            first.alter_column("a", default=7)
            change(late)
            late.resize(len(late) + 1)
            assert late["a"][-1:].to_pylist() == [7]

    def test_a_default_goes_with_the_type(self):
        t = table({"a": [1], "b": [2]})
        t.alter_column("a", default=7)
        t.alter_column("a", dtype="double")
        t.append({"b": [3]})
        assert t["a"][:].to_pylist() == [1.0, 7.0]
        t.alter_column("a", dtype="string", safe=False)
        t.append({"b": [4]})
        assert t["a"][:].to_pylist() == ["1", "7", "7"]

    def test_a_default_that_does_not_fit_is_told(self):
        t = table({"a": [1], "b": [2]})
        t.alter_column("a", default=700)
        with pytest.raises(SchemaError, match="the default value 700 cannot become int8"):
            t.alter_column("a", dtype="int8")
        t.alter_column("a", dtype="int8", default=7)
        t.append({"b": [3]})
        assert t["a"][:].to_pylist() == [1, 7]
        with pytest.raises(SchemaError, match="the default of column 'a'"):
            t.alter_column("a", default="x")

    def test_the_default_of_an_ordered_column_is_one_of_its_categories(self):
        t = table(F({"a": pd.Categorical(["lo"], ["lo", "hi"], ordered=True), "b": [1]}))
        with pytest.raises(SchemaError, match="'mid' is not one of the ordered categories"):
            t.alter_column("a", default="mid")
        t.alter_column("a", default="hi")
        t.append({"b": [2]})
        assert t.to_pandas()["a"].tolist() == ["lo", "hi"]


class TestFrames:
    @pytest.mark.parametrize(
        ("values", "type_", "dtype"),
        [
            ([1, 2], "Int64", "Int64"),
            ([1, 2], np.float32, "float32"),
            ([1, 2], float, "float64"),
            (pd.array([1, None], "Int64"), "double", "Float64"),
            (pd.array([1, None], "Int64"), pa.int8(), "Int8"),
            (pd.array([1, 2], "int64[pyarrow]"), pa.int8(), "int8[pyarrow]"),
            (["x", "y"], "category", "category"),
            (pd.Categorical(["x", "y"]), "str", "str"),
            (pd.Categorical([1, 2]), "int64", "int64"),
            (pd.Series(["x", None], dtype=object), pa.string(), "object"),
            (pd.Series(["x", None], dtype=object), "category", "category"),
            (pd.array(["x"], "string"), pa.large_string(), "string"),
            (pd.to_datetime(["2020"]), "datetime64[s]", "datetime64[s]"),
            (pd.to_datetime(["2020"], utc=True), "datetime64[ns, UTC]", "datetime64[ns, UTC]"),
            (pd.Series([None, None], dtype=object), "double", "float64"),
        ],
        ids=str,
    )
    def test_a_column_is_read_as_its_new_dtype(self, values, type_, dtype):
        frame = F({"a": values, "b": 1})
        t = table(frame)
        t.alter_column("a", dtype=type_)
        found = t.to_pandas()
        assert found["a"].dtype == dtype
        expected = frame["a"].astype(dtype)
        pd.testing.assert_series_equal(found["a"], expected, check_categorical=False)
        pd.testing.assert_series_equal(found["b"], frame["b"])

    def test_the_dtypes_of_pandas_metadata_go_as_well(self):
        frame = F({"a": pd.array([1, 2], "Int64"), "b": pd.Categorical(["x", "y"])})
        t = table(pa.Table.from_pandas(frame))
        assert t.to_pandas()["a"].dtype == "Int64"
        t.alter_column("a", dtype="double")
        t.alter_column("b", dtype="string")
        assert t.to_pandas().dtypes.astype(str).tolist() == ["Float64", "str"]

    def test_an_index_is_altered_like_a_column(self):
        t = table(F({"a": [1, 2]}, index=pd.Index([7, 9], name="k")))
        t.alter_column("k", dtype="int8")
        assert t.to_pandas().index.dtype == "int8"
        assert t.to_pandas().index.tolist() == [7, 9]

    def test_a_sorted_table_stays_sorted_by_it(self):
        t = table(F({"a": [3, 1, 2]}), sort_by="a")
        t.alter_column("a", dtype="double")
        t.append(F({"a": [1.5]}))
        t.compact()
        assert t.storage.sort_by == [("a", "ascending")]
        assert t["a"][:].to_pylist() == [1, 1.5, 2, 3]


class TestMistakes:
    def test_nothing_to_change_is_told(self):
        with pytest.raises(ValueError, match="one of dtype, nullable, default and position"):
            table({"a": [1]}).alter_column("a")

    def test_a_column_that_is_not_there_is_told(self):
        with pytest.raises(ColumnNotFoundError):
            table({"a": [1]}).alter_column("b", dtype="int8")

    @pytest.mark.parametrize("type_", ["no type", 7, [1], "category[x]"], ids=repr)
    def test_what_is_no_type_is_told(self, type_):
        t = table({"a": [1]})
        with pytest.raises(SchemaError, match="column 'a': expected a type such as"):
            t.alter_column("a", dtype=type_)
        assert t.version == 1

    def test_a_type_that_cannot_be_stored_is_told(self):
        with pytest.raises(SchemaError, match="column 'a'"):
            table({"a": [1]}).alter_column("a", dtype=pa.month_day_nano_interval())


ARRAYS = st.sampled_from(
    [
        pa.array([1, None, 255, -1, 300]),
        pa.array([0.5, None, 2.0, 1e30, -0.0]),
        pa.array(["1", None, "x", "2.5", "2020-01-01"]),
        pa.array([True, None, False]),
        pa.array([0, 1, None, 86_400_000], pa.timestamp("ms")),
        pa.array([0, 1, None, 86_400_000], pa.duration("ms")),
        pa.array([1, None], pa.date32()),
        numbers(["1.25", "300"], 9, 2),
    ]
)
TYPES = st.sampled_from(
    [
        pa.int8(),
        pa.int64(),
        pa.uint16(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("ns"),
        pa.decimal128(12, 2),
        pa.decimal128(20, 4),
        pa.duration("s"),
        pa.dictionary(pa.int8(), pa.string()),
    ]
)


@settings(deadline=None, max_examples=60)
@given(ARRAYS, TYPES, st.data())
def test_a_column_becomes_what_arrow_casts_it_to_or_stays(array, type_, data):
    picked = data.draw(st.lists(st.integers(0, len(array) - 1), max_size=8))
    rows = array.take(pa.array(picked, pa.int64()))
    t = table(pa.table({"a": rows, "k": range(len(rows))}))
    before = t.to_arrow()
    try:
        t.alter_column("a", dtype=type_)
    except SchemaError:
        assert t.version == 1
        assert t.to_arrow().equals(before)
    else:
        back = t["a"][:]
        assert back.null_count == rows.null_count
        if rows.null_count < len(rows):
            plain = back.cast(pa.string()) if pa.types.is_dictionary(type_) else back
            # Arrow makes decimals of integers only with room for each integer.
            is_decimal = pa.types.is_decimal(array.type)
            first = pa.decimal128(38, 2) if is_decimal else array.type
            assert plain.cast(first, safe=False).to_pylist() == rows.to_pylist()
        return
    try:
        wanted = rows.cast(type_.value_type if pa.types.is_dictionary(type_) else type_)
    except pa.ArrowInvalid:
        return
    except pa.ArrowNotImplementedError:
        with pytest.raises(SchemaError):
            t.alter_column("a", dtype=type_, safe=False)
        return
    # What Arrow's own safe cast takes, the unsafe one of the table takes as well.
    t.alter_column("a", dtype=type_, safe=False)
    found = t["a"][:]
    found = found.cast(wanted.type) if pa.types.is_dictionary(type_) else found
    assert bits(found) == bits(wanted)
    assert t["k"][:].to_pylist() == list(range(len(rows)))
    assert t.verify().is_intact
