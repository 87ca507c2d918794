"""Data that are neither pandas nor Arrow: numpy arrays, rows, readers of other programs."""

import datetime
from collections import OrderedDict

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.convert.foreign import numpy_arrays
from blztable.convert.foreign.rows import ROWS_AT_ONCE
from blztable.convert.source import is_repeatable
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.options import arguments

MIXED = np.dtype(
    [
        ("n", ">i4"),
        ("x", "<f8"),
        ("b", "?"),
        ("word", "U3"),
        ("raw", "S2"),
        ("half", "f2"),
        ("at", "M8[ms]"),
        ("day", "M8[D]"),
        ("took", "m8[ns]"),
        ("bits", "V3"),
    ]
)
# A view: giving a value to a dtype without a unit is deprecated.
NO_UNIT = np.array([np.iinfo(np.int64).min]).view("M8")
LETTERS = st.text(st.characters(codec="utf-8"), max_size=3)
INT32 = st.integers(-(2**31), 2**31 - 1)
ROW = st.tuples(
    INT32,
    st.floats(),
    st.booleans(),
    LETTERS,
    st.binary(max_size=2),
    st.floats(width=16),
    INT32.map(lambda number: np.datetime64(number, "ms")),
    INT32.map(lambda number: np.datetime64(number, "D")),
    INT32.map(lambda number: np.timedelta64(number, "ns")),
    st.binary(min_size=3, max_size=3),
)


def stored(data, **options):
    """Return data as they come back from a table, as Arrow."""
    store = RamStore()
    blz.to_blz(data, store, **arguments(**options))
    return blz.read_table(store)


def refused(data, message):
    store = RamStore()
    with pytest.raises(blz.SchemaError, match=message):
        blz.to_blz(data, store)
    with pytest.raises(blz.TableNotFoundError):
        blz.open(store)


# Structured arrays


@settings(deadline=None, max_examples=50)
@given(st.lists(ROW, max_size=9), st.sampled_from([slice(None), slice(None, None, -2)]))
def test_a_structured_array_comes_back_equal(values, rows):
    array, store = np.array(values, MIXED)[rows], RamStore()
    blz.to_blz(array, store, storage=blz.Storage(row_group_rows=4))
    with blz.open(store) as table:
        found = table.to_numpy(structured=True)
    assert found.dtype.names == array.dtype.names
    for name in array.dtype.names:
        assert str(found[name].tolist()) == str(array[name].tolist())
        if name not in ("word", "raw"):
            assert found.dtype[name] == array.dtype[name].newbyteorder("=")


def test_zeros_in_text_and_bytes_are_kept_but_for_those_at_the_end():
    data = {"raw": np.array([b"\0a", b"b\0c\0"]), "word": np.array(["\0a", "b\0c\0"])}
    assert stored(data).to_pydict() == {"raw": [b"\0a", b"b\0c"], "word": ["\0a", "b\0c"]}
    empty = stored({name: values[:0] for name, values in data.items()})
    assert empty.schema.types == [pa.binary(), pa.string()]


def test_a_masked_field_is_null_whatever_is_below_the_mask():
    array = np.ma.zeros(3, [("n", ">i2"), ("at", "M8[h]"), ("word", "U2")])
    array["n"] = [1, 2, 3]
    array["n"][1] = array["at"][0] = array["word"][2] = np.ma.masked
    assert stored(array).to_pydict() == {
        "n": [1, None, 3],
        "at": [None, datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1)],
        "word": ["", "", None],
    }


def test_a_value_below_the_mask_is_not_looked_at():
    times = np.ma.masked_array(np.array([1000, 5], "M8[ps]"), [False, True])
    words = np.ma.masked_array(np.array(["a", 7], object), [False, True])
    found = stored({"at": times, "word": words})
    assert found["at"].cast("int64").to_pylist() == [1, None]
    assert found["word"].to_pylist() == ["a", None]


def test_a_structured_array_is_one_item_of_a_stream_that_may_be_filled_again():
    def items():
        array = np.zeros(2, [("n", "i8")])
        for number in range(3):
            array["n"] = number
            yield array

    assert stored(items())["n"].to_pylist() == [0, 0, 1, 1, 2, 2]


NESTED = np.dtype(
    [
        ("at", [("x", "i4"), ("y", ">f8", (2,)), ("deep", [("b", "?")])]),
        ("f", "f4", (3,)),
        ("matrix", "i2", (2, 3)),
        ("word", "U2"),
        ("n", "i8"),
    ]
)


@given(st.integers(0, 9), st.integers(0, 2**32))
def test_a_structured_array_in_a_structured_array_comes_back(rows, seed):
    array = np.zeros(rows, NESTED)
    rng = np.random.default_rng(seed)
    array["at"]["x"], array["at"]["y"] = rng.integers(0, 99, rows), rng.normal(size=(rows, 2))
    array["at"]["deep"]["b"], array["f"] = rng.random(rows) < 0.5, rng.normal(size=(rows, 3))
    array["matrix"], array["n"] = rng.integers(0, 99, (rows, 2, 3)), rng.integers(0, 99, rows)
    array["word"] = rng.choice(["", "a", "bc"], rows)
    store = RamStore()
    blz.to_blz(array, store, storage=blz.Storage(row_group_rows=4))
    with blz.open(store) as table:
        assert table["at"].type.field("y").type == pa.list_(pa.float64(), 2)
        assert table["at.deep.b"].type == pa.bool_()
        assert table["matrix"].type == pa.fixed_shape_tensor(pa.int16(), [2, 3])
        found = table.to_numpy(structured=True)
    assert found.shape == array.shape
    # As text: the rows have arrays in them, which numpy does not compare. Byte orders differ.
    assert repr(found.tolist()) == repr(array.astype(found.dtype).tolist())
    assert found.dtype["at"]["y"].shape == (2,)
    assert found.dtype["matrix"].shape == (2, 3)


SHAPES = st.lists(st.integers(0, 4), min_size=2, max_size=4).map(tuple)


@given(SHAPES, st.sampled_from(["i1", ">u2", "f2", "f4", "f8", "?", "M8[s]", "U2"]), st.booleans())
def test_an_array_of_more_dimensions_comes_back_as_it_was(shape, dtype, is_fortran):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    values = np.asfortranarray(values) if is_fortran else values
    store = RamStore()
    blz.to_blz({"a": values}, store, storage=blz.Storage(row_group_rows=2))
    with blz.open(store, "a") as table:
        found = table["a"].to_numpy()
        assert found.shape == shape
        assert found.tolist() == values.tolist()
        if dtype != "U2":
            assert found.dtype == values.dtype.newbyteorder("=")
        table.append({"a": values[:1]})
        last = table["a"][len(table) - 1 :] if shape[0] else None
        assert last is None or numpy_arrays.decode(last, "").tolist() == values[:1].tolist()


def test_numbers_of_two_dimensions_are_read_over_the_memory_that_was_decoded():
    values = np.random.default_rng(0).normal(size=(500, 768)).astype(np.float32)
    store = RamStore()
    blz.to_blz({"emb": values}, store)
    with blz.open(store) as table:
        found = table["emb"].to_numpy()
    assert not found.flags.owndata
    np.testing.assert_array_equal(found, values)


def test_masked_values_of_more_dimensions_are_null():
    values = np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    assert stored({"a": values})["a"].to_pylist() == [[1, None], [3, 4]]


def test_columns_of_several_values_are_no_columns_of_one_array():
    store = RamStore()
    blz.to_blz({"a": np.zeros((2, 3)), "b": [1, 2]}, store)
    with blz.open(store) as table, pytest.raises(SchemaError, match=r"'a' has values of shape"):
        table.to_numpy()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros(3),
            r"columns with names, found an array of shape \(3,\).*pass {\"name\": array}",
        ),
        (np.zeros((3, 2)), r"shape \(3, 2\).*dict\(zip\(names, array.T\)\)"),
        (np.zeros((2, 2), MIXED), r"one dimension.*array.reshape\(-1\)"),
        ({"a": np.zeros((3, 2), complex)}, r"column 'a': .*complex128.*array\[:, 0\]"),
        ({"a": np.zeros(2, np.clongdouble)}, r"column 'a': dtype complex256.*complex128"),
        ({"a": np.zeros(2, np.longdouble)}, r'column \'a\': dtype .*; use astype\("float64"\)'),
    ],
    ids=str,
)
def test_arrays_that_are_no_columns_are_told_what_to_pass(array, message):
    refused(array, message)


def test_the_remedies_for_arrays_work():
    array, parts = np.arange(6.0).reshape(3, 2), np.array([1 + 2j])
    assert stored(dict(zip("ab", array.T, strict=True)))["b"].to_pylist() == [1, 3, 5]
    assert stored({"a": np.real(parts), "b": np.imag(parts)}).to_pylist() == [{"a": 1, "b": 2}]
    frame = pd.DataFrame({"c": parts})
    assert stored({"a": np.real(frame["c"])})["a"].to_pylist() == [1]
    assert stored({"a": np.array([1.5], np.longdouble).astype("float64")})["a"].to_pylist() == [1.5]


# Times


UNITS = {"h": "s", "m": "s", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
UNITS |= {"ps": "ns", "fs": "ns", "as": "ns"}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("unit", [*UNITS, "Y", "M", "W", "D", "5m"])
def test_times_of_every_unit_are_stored(unit, order):
    times = np.array(["NaT", "1970-01-01"], f"{order}M8[{unit}]")
    found = stored({"at": times})["at"]
    if unit in "YMWD":
        assert (found.type, found.to_pylist()) == (pa.date32(), [None, datetime.date(1970, 1, 1)])
    else:
        assert found.type == pa.timestamp(UNITS.get(unit, "s"))
        assert found.cast("int64").to_pylist() == [None, 0]


@given(st.sampled_from(["W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs"]), st.data())
@settings(deadline=None)
def test_durations_are_stored_without_change_or_refused(unit, data):
    numbers = data.draw(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=3))
    values = np.array(numbers).astype(f"m8[{unit}]")
    unit_of_arrow = {"ms": "ms", "us": "us"}.get(unit, "s" if unit in "WDhms" else "ns")
    try:
        near = values.astype(f"m8[{unit_of_arrow}]")
        fits = (near.astype(values.dtype) == values).all()
    except OverflowError:  # Since numpy 2.5; numpy before it wraps.
        fits = False
    if not fits:
        refused({"took": values}, rf"of timedelta64\[{unit}\] cannot be stored")
    else:
        found = stored({"took": values})["took"].to_numpy()
        assert found.dtype == near.dtype
        assert found.tolist() == near.tolist()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([0, 5], "M8[ps]"), r"row 1: .* of datetime64\[ps\].*astype\('M8\[ns\]'\)"),
        (np.array([10**17], "M8[h]"), r"row 0: .* cannot be stored in s without change"),
        (np.array([2**31], "M8[D]"), r"row 0: .* cannot be stored in D.*astype\('M8\[s\]'\)"),
        (np.array([1], "m8[Y]"), r"no fixed length.*astype\(\"m8\[D\]\"\)"),
        (NO_UNIT, r"no unit; choose one, array.astype\(\"M8\[ns\]\"\)"),
    ],
    ids=str,
)
def test_times_that_would_change_are_refused(values, message):
    refused({"at": values}, "column 'at'.*" + message)


# Rows


ROWS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-9, 9)), min_size=1),
    min_size=1,
    max_size=9,
)


@settings(deadline=None)
@given(ROWS, st.sampled_from([list, tuple, iter]))
def test_rows_come_back_with_none_for_what_they_lack(rows, kind):
    found = stored(kind(rows))
    names = list(dict.fromkeys(name for row in rows for name in row))
    assert found.column_names == names
    assert found.to_pylist() == [{name: row.get(name) for name in names} for row in rows]


def test_rows_of_an_iterator_are_taken_in_groups():
    count = ROWS_AT_ONCE + 10
    rows = (OrderedDict(n=number, word=str(number)) for number in range(count))
    found = stored(rows)
    assert found["n"].to_pylist() == list(range(count))
    assert found["word"][count - 1].as_py() == str(count - 1)


def test_rows_and_tables_may_take_turns_in_a_stream():
    items = iter([{"n": 1}, {"n": 2}, {"n": [3, 4]}, pa.table({"n": [5]}), {"n": 6}])
    assert stored(items)["n"].to_pylist() == [1, 2, 3, 4, 5, 6]


def test_rows_are_appended_and_missing_names_are_filled():
    store = RamStore()
    blz.to_blz([{"n": 1, "word": "a"}], store)
    with blz.open(store, "a") as table:
        table.append([{"n": 2}, {"word": "b"}])
        table.append([{"n": 3, "new": 0.5}], evolve=True)
        assert table.to_arrow().to_pylist() == [
            {"n": 1, "word": "a", "new": None},
            {"n": 2, "word": None, "new": None},
            {"n": None, "word": "b", "new": None},
            {"n": 3, "word": None, "new": 0.5},
        ]


def test_values_of_a_row_may_be_anything_that_is_one_value():
    row = {"at": pd.Timestamp("2020"), "n": np.int8(3), "raw": b"ab", "m": None}
    assert stored([row]).to_pylist() == [row]


def test_one_row_without_a_list_is_refused_and_the_remedy_works():
    row = {"n": 1, "x": 2.5}
    refused(row, r"column 'n': .*found 1 of type int; for a single row pass it in a list, \[data\]")
    assert stored([row]).to_pylist() == [row]
    refused({"n": [1, 2], "x": 2.5}, "column 'x': .*repeat the value for each row")


def test_a_bad_value_is_told_with_its_row():
    rows = [{"n": number} for number in range(100)]
    refused([*rows, {"n": "x"}, {"n": 1}], r"column 'n', row 100: .*'x'")
    refused([*rows, 7], "row 100: expected a dict of names to values.*found int")


def test_data_that_can_be_read_twice_are_known():
    assert is_repeatable([{"n": 1}, {"n": 2}])
    assert is_repeatable(np.zeros(2, MIXED))
    assert is_repeatable(pd.Series([1]))
    assert not is_repeatable({"n": number} for number in range(3))


# Series


@pytest.mark.parametrize("name", ["n", None, 7, ("a", 1)], ids=str)
def test_a_series_comes_back_as_its_frame(name):
    series, store = pd.Series([1.5, None], index=["x", "y"], name=name), RamStore()
    series.to_blz(store)
    pd.testing.assert_frame_equal(blz.read_blz(store), series.to_frame())


def test_a_series_of_polars_is_a_column_and_one_of_structs_is_columns():
    assert stored(pl.Series("n", [1, None])).to_pydict() == {"n": [1, None]}
    assert stored(pl.Series("s", [{"a": 1, "b": 2}])).to_pydict() == {"a": [1], "b": [2]}


def test_an_index_is_refused_and_the_remedy_works():
    index = pd.Index([1, 2], name="n")
    refused(index, r"pass index.to_frame\(index=False\)")
    assert stored(index.to_frame(index=False)).to_pydict() == {"n": [1, 2]}


# Readers of other programs


@pytest.mark.parametrize("wrap", [lambda frame: frame, pl.DataFrame.lazy, nw.from_native])
def test_python_objects_of_polars_are_refused(wrap):
    frame = pl.DataFrame({"n": [1], "o": pl.Series([object()], dtype=pl.Object)})
    refused(wrap(frame), r"the columns \['o'\] have the dtype Object of Polars.*leave it out")
    assert stored(wrap(frame.drop("o"))).to_pydict() == {"n": [1]}
    refused({"o": frame["o"]}, "column 'o': it has the dtype Object of Polars")
    refused(iter([wrap(frame)]) if wrap is not pl.DataFrame.lazy else frame, "dtype Object")


@pytest.mark.parametrize("rows", [0, 1, 100_000])
def test_a_lazy_frame_is_streamed(rows):
    lazy = pl.LazyFrame({"n": range(rows)}, schema={"n": pl.Int32}).with_columns(m=pl.col("n") * 2)
    found = stored(lazy, row_group_rows=10_000)
    assert found.schema.types == [pa.int32(), pa.int32()]
    assert found["m"].to_pylist() == [2 * number for number in range(rows)]


@pytest.mark.parametrize("rows", [0, 1, 10])
def test_a_parquet_file_is_streamed_with_its_schema(rows, tmp_path):
    frame = pd.DataFrame({"n": range(rows)}, index=pd.Index(range(rows), name="key"))
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=3)
    store = RamStore()
    with pq.ParquetFile(tmp_path / "t.parquet") as file:
        blz.to_blz(file, store)
    pd.testing.assert_frame_equal(blz.read_blz(store), pd.read_parquet(tmp_path / "t.parquet"))


def test_batches_are_drawn_while_earlier_ones_are_written():
    class Reader:
        drawn = written = 0

        def iter_batches(self):
            for number in range(50):
                self.drawn += 1
                # About two row groups of one batch, and the batch that fills the next.
                assert self.drawn - self.written <= 6
                yield pa.record_batch({"n": np.full(1000, number)})

        def done(self, rows, _):
            self.written = rows // 1000

    reader = Reader()
    found = stored(reader, row_group_rows=1000, progress=reader.done)
    assert (reader.drawn, found.num_rows) == (50, 50_000)


def test_a_file_of_arrow_batches_is_streamed(tmp_path):
    table = pa.table({"n": [1, 2, 3]})
    path = str(tmp_path / "t.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table, max_chunksize=2)
    with pa.ipc.open_file(path) as reader:
        assert stored(reader).equals(table)


# Tables as arrays


def test_a_table_becomes_one_array():
    store = RamStore()
    data = {"n": [1, 2, None], "x": [0.5, None, 2.5], "word": ["a", "bcd", None], "b": [True] * 3}
    blz.to_blz(data, store)
    with blz.open(store) as table:
        found = table.to_numpy(["n", "x"])
        np.testing.assert_array_equal(found, [[1, 0.5], [2, np.nan], [np.nan, 2.5]])
        assert table.to_numpy(["word", "n"]).dtype == object
        one = table.to_numpy(filters=[("n", "<", 3)], structured=True)
        assert one.dtype.descr == [("n", "<i8"), ("x", "<f8"), ("word", "<U3"), ("b", "|b1")]
        assert table.to_numpy(structured=True)["word"].tolist() == ["a", "bcd", None]
        assert table.to_numpy([]).shape == (3, 0)


def test_text_that_numpy_would_cut_stays_python_objects():
    store = RamStore()
    blz.to_blz({"word": ["a\0", "b"], "raw": [b"a\0", b""]}, store)
    with blz.open(store) as table:
        found = table.to_numpy(structured=True)
    assert found.tolist() == [("a\0", b"a\0"), ("b", b"")]


def test_dictionaries_and_views_become_text():
    store = RamStore()
    words = pa.array(["a", "bc", "a"])
    table = {"d": words.dictionary_encode(), "v": words.cast(pa.string_view())}
    blz.to_blz(table, store)
    with blz.open(store) as opened:
        found = opened.to_numpy(structured=True)
    assert found.dtype.descr == [("d", "<U2"), ("v", "<U2")]
    assert found["d"].tolist() == found["v"].tolist() == ["a", "bc", "a"]


def test_two_columns_of_one_name_are_no_fields():
    store = RamStore()
    blz.to_blz(pa.table([pa.array([1]), pa.array([2])], names=["n", "n"]), store)
    with blz.open(store) as table:
        with pytest.raises(blz.SchemaError, match="two columns are named 'n'"):
            table.to_numpy(structured=True)
        assert table.to_numpy().tolist() == [[1, 2]]
