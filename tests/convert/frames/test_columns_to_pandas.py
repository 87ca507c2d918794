"""To pandas: an Arrow column becomes the same Series as in pandas, without copying its memory."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blztable.convert.arrays import whole
from blztable.convert.frames.arrow_objects import foreign_objects
from blztable.convert.frames.descriptor import FIELD_KEY
from blztable.convert.frames.frame import to_frame
from blztable.errors import ColumnNotFoundError, FormatError, SchemaError
from support.frame_strategies import rebuilt


def frame_of(array, *, descriptor=None, **options):
    metadata = None if descriptor is None else {FIELD_KEY: descriptor}
    column = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    schema = pa.schema([pa.field("x", column.type, metadata=metadata)])
    table = pa.Table.from_arrays([column], schema=schema)
    return to_frame(rebuilt(table), table.num_rows, None, {}, **options)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3], pa.int16()),
        pa.array([1, 2, 3], pa.uint64()),
        pa.array([True, None, False]),
        pa.array([True, False]),
        pa.array([1.5, None], pa.float32()),
        pa.array([1, None], pa.timestamp("s")),
        pa.array([1, None], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([1, None], pa.timestamp("ms", "+01:00")),
        pa.array([1, None], pa.duration("ms")),
        pa.array(["a", None], pa.string()),
        pa.array(["a", None], pa.large_string()),
        pa.array(["a", None], pa.string_view()),
        pa.array([b"a", None], pa.binary()),
        pa.array([b"ab", None], pa.binary(2)),
        pa.array([datetime.date(2020, 1, 1), None]),
        pa.array([datetime.time(1, 2), None]),
        pa.array([decimal.Decimal("1.25"), None]),
        pa.array([None, None]),
        pa.array(["b", None, "a", "b"]).dictionary_encode(),
        pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize("cut", [False, True], ids=["one chunk", "sliced chunks"])
def test_a_column_without_descriptor_becomes_what_pandas_makes_of_it(array, cut):
    column = pa.chunked_array([array[1:], array[:1], array[:0]] if cut else [array])
    expected = pa.table({"x": column}).to_pandas()
    pd.testing.assert_frame_equal(frame_of(column), expected)


def address(values):
    return values.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "f8", "M8[us]", "m8[s]"])
def test_plain_values_are_the_stores_own_memory_and_can_be_written(dtype):
    values = np.arange(1, 9).astype(dtype)
    table = rebuilt(pa.table({"x": pa.array(values), "y": pa.array(values)}))
    frame = to_frame(table.slice(2), 6, None, {})
    found = np.asarray(frame["x"])
    width = found.dtype.itemsize
    assert address(found) == table.column(0).chunk(0).buffers()[1].address + 2 * width
    frame.iloc[0, 0] = frame.iloc[3, 0]
    assert frame.iloc[0, 0] == frame.iloc[3, 0] != frame.iloc[0, 1]


def test_zoned_times_and_masked_values_and_codes_are_not_copied():
    zoned = pa.array([1, 2, 3], pa.timestamp("us", "Europe/Berlin"))
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), ["a", "b"])
    masked = pa.field("m", pa.int64(), metadata={FIELD_KEY: b'{"dtype":"masked"}'})
    schema = pa.schema([pa.field("z", zoned.type), pa.field("c", codes.type), masked])
    table = rebuilt(pa.Table.from_arrays([zoned, codes, pa.array([1, 2, None])], schema=schema))
    frame = to_frame(table, 3, None, {})
    addresses = [column.chunk(0).buffers()[1].address for column in table.columns]
    assert address(frame["z"].array.asi8) == addresses[0]
    assert address(frame["c"].array.codes) == addresses[1]
    assert address(frame["m"].array._data) == addresses[2]
    frame.iloc[0, 0] = frame.iloc[1, 0]
    frame.iloc[0, 1] = "b"
    frame.iloc[0, 2] = 7
    assert frame["m"].tolist() == [7, 2, pd.NA]
    assert frame["c"].tolist()[:2] == ["b", "b"]


def test_text_shares_its_bytes_with_the_table():
    table = rebuilt(pa.table({"x": pa.array(["a", "b", None], pa.large_string())}))
    found = to_frame(table, 3, None, {})["x"].array._pa_array
    assert found.chunk(0).buffers()[2].address == table["x"].chunk(0).buffers()[2].address


def test_memory_that_is_not_writable_is_copied():
    data = pa.py_buffer(np.arange(3).tobytes())
    assert not data.is_mutable
    table = pa.table({"x": pa.Array.from_buffers(pa.int64(), 3, [None, data])})
    frame = to_frame(table, 3, None, {})
    frame.iloc[0, 0] = 9
    assert table["x"].to_pylist() == [0, 1, 2]


def test_a_column_asked_for_twice_is_two_memories():
    table = rebuilt(pa.table({"x": [1, 2]}))
    frame = to_frame(table, 2, None, {}, columns=["x", "x"])
    frame.iloc[0, 0] = 9
    assert frame.iloc[:, 1].tolist() == [1, 2]


def test_dictionaries_that_differ_are_united_in_their_order():
    parts = [pa.array(v).dictionary_encode() for v in (["b", "a"], ["c", None, "a"])]
    found = frame_of(pa.chunked_array(parts))["x"]
    assert found.tolist() == ["b", "a", "c", np.nan, "a"]
    assert found.cat.categories.tolist() == ["b", "a", "c"]


def test_many_small_dictionaries_may_need_wider_codes():
    names = [f"n{i}" for i in range(200)]
    type_ = pa.dictionary(pa.int8(), pa.string())
    parts = [pa.array(names[:100], type_), pa.array(names[100:], type_)]
    found = frame_of(pa.chunked_array(parts))["x"]
    assert found.tolist() == names
    assert found.array.codes.dtype == np.int16


@pytest.mark.parametrize("code", [pa.int8(), pa.uint32(), pa.int64()])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(["a", None, "b"]), ["a", np.nan, "b", np.nan]),
        (pa.array(["a", "b", "a"]), ["a", "b", "a", np.nan]),
        (pa.array([1.5, np.nan, 2.5]), [1.5, np.nan, 2.5, np.nan]),
    ],
    ids=["null", "duplicate", "nan"],
)
def test_dictionaries_may_hold_what_categories_may_not(code, values, expected):
    codes = pa.array([0, 1, 2, None], code)
    array = pa.DictionaryArray.from_arrays(codes, values, ordered=True)
    found = frame_of(array)["x"]
    assert found.cat.categories.is_unique
    assert found.cat.ordered
    pd.testing.assert_extension_array_equal(
        found.array, pd.Categorical(expected, found.cat.categories, ordered=True)
    )


def test_the_pyarrow_backend_keeps_every_arrow_type():
    types = [pa.string(), pa.string_view(), pa.int8(), pa.dictionary(pa.int8(), pa.string())]
    for type_ in types:
        array = pa.array([None, None], type_)
        assert frame_of(array, dtype_backend="pyarrow").dtypes.iloc[0] == pd.ArrowDtype(type_)


def test_the_nullable_backend_gives_masked_numbers_and_strings():
    for array, dtype in [
        (pa.array([1, None], pa.int8()), "Int8"),
        (pa.array([1.0, None]), "Float64"),
        (pa.array([True, None]), "boolean"),
        (pa.array(["a", None]), "string"),
    ]:
        found = frame_of(array, dtype_backend="numpy_nullable")["x"]
        assert found.dtype == dtype
        assert found[1] is pd.NA


def test_a_backend_that_pandas_does_not_know_is_a_value_error():
    with pytest.raises(ValueError, match="dtype_backend"):
        frame_of(pa.array([1]), dtype_backend="polars")


@pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable"])
def test_periods_stay_periods_in_every_backend(backend):
    found = frame_of(
        pa.array([600]), descriptor=b'{"dtype":"period","freq":"M"}', dtype_backend=backend
    )
    assert found["x"].tolist() == [pd.Period("2020-01", "M")]


@pytest.mark.parametrize(
    "descriptor",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"dtype":"masked","dtype":"arrow"}',
        b'{"dtype":"int64"}',
        b'{"dtype":["masked"]}',
        b'{"dtype":"masked","more":1}',
        b'{"dtype":"string","storage":"disk","na":"NA"}',
        b'{"dtype":"string","storage":"python","na":"NA"}',
        b'{"dtype":"object","missing":"zero"}',
        b'{"dtype":"object","missing":[]}',
        b'{"dtype":"period","freq":"__import__"}',
        b'{"dtype":"period","freq":"Y-XXX"}',
        b'{"dtype":"period","freq":7}',
        b'{"dtype":"period","freq":"M","more":NaN}',
        b'{"dtype":"category","categories":{}}',
        b'{"dtype":"zoned","library":"os"}',
        b'{"dtype":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"dtype":"' + b"x" * 100_000 + b'"}',
        b"\xff",
    ],
    ids=lambda descriptor: repr(descriptor[:40]),
)
def test_a_descriptor_we_did_not_write_is_a_format_error(descriptor):
    array = pa.array([1.5]) if b"period" not in descriptor else pa.array([1])
    with pytest.raises(FormatError, match="column 'x'"):
        frame_of(array, descriptor=descriptor)


def test_a_zone_that_is_not_known_is_a_format_error():
    for name in ("Mars/Base", "../../etc/passwd", "/etc/passwd", "", "x" * 1000, "+99:00"):
        with pytest.raises(FormatError, match="time zone"):
            frame_of(pa.array([1], pa.timestamp("us", name or " ")))


def test_columns_come_in_the_order_they_were_asked_for():
    table = pa.table([[1], [2], [3]], names=["a", "b", "a"])
    frame = to_frame(rebuilt(table), 1, None, {}, columns=["b", "a"])
    assert frame.columns.tolist() == ["b", "a", "a"]
    assert frame.iloc[0].tolist() == [2, 1, 3]
    with pytest.raises(ColumnNotFoundError, match="no column is named 'c'"):
        to_frame(table, 1, None, {}, columns=["c"])


def test_run_ends_are_decoded():
    array = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8]))
    table = pa.table({"x": array})
    assert to_frame(table, 3, None, {})["x"].tolist() == [7, 7, 8]


@pytest.mark.parametrize(
    "values",
    [pa.string(), pa.string_view(), pa.decimal128(5, 2), pa.date32(), pa.binary(3)],
    ids=str,
)
def test_a_column_of_categories_without_any_rows_or_chunks_is_read(values):
    column = pa.chunked_array([], pa.dictionary(pa.int8(), values))
    assert len(whole(column)) == 0
    assert whole(column).type == column.type


# The days of the first and the last date of Python.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896


@given(st.lists(st.none() | st.integers(-3, 3)), st.integers(FIRST_DAY, LAST_DAY), st.data())
@example([0, 1, None, 3], FIRST_DAY, None)
@example([-3, None, 0, -1], LAST_DAY, None)
@example([None, None], 0, None)
def test_dates_become_the_objects_that_arrow_makes_of_them(steps, start, data):
    days = [None if day is None else min(max(start + day, FIRST_DAY), LAST_DAY) for day in steps]
    array = pa.array(days, pa.int32()).view(pa.date32())
    cut = data.draw(st.integers(0, len(days))) if data else 1
    column = pa.chunked_array([array[:cut], array[cut:]])
    found, expected = foreign_objects(column), column.to_pandas().to_numpy()
    assert found.dtype == object
    assert found.flags.writeable
    assert found.tolist() == expected.tolist()
    assert list(map(type, found)) == list(map(type, expected))


def test_the_value_below_a_null_is_no_date():
    validity, days = pa.py_buffer(b"\x0d"), np.array([10, -(2**31), 11, 12], np.int32)
    array = pa.Array.from_buffers(pa.date32(), 4, [validity, pa.py_buffer(days)])
    assert foreign_objects(pa.chunked_array([array])).tolist() == array.to_pylist()


@pytest.mark.parametrize("day", [FIRST_DAY - 1, LAST_DAY + 1])
def test_a_day_that_python_has_no_date_for_is_refused(day):
    column = pa.chunked_array([pa.array([day, day], pa.int32()).view(pa.date32())])
    with pytest.raises(SchemaError, match="pandas cannot hold date32"):
        foreign_objects(column)
