"""One column of a table, converted to pandas and numpy."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage.memory import MemoryStore


# Found by the fuzzer: Arrow does not convert a dictionary of views to numpy.
@pytest.mark.parametrize("value_type", [pa.string_view(), pa.binary_view()], ids=str)
def test_a_column_of_a_dictionary_of_views_becomes_a_numpy_array(value_type):
    values = pa.array([b"a", b"b"]).cast(value_type)
    store = MemoryStore()
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), values)
    blz.to_blz(pa.table({"a": column}), store)
    with blz.open(store) as table:
        assert table["a"].to_numpy().tolist() == column.to_pylist()


# Found by the fuzzer: such values were a foreign error without the column's name.
@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (pa.time32("s"), b"\x7f" * 4),
        (pa.time64("ns"), b"\x7f" * 8),
        (pa.decimal128(38, 500), b"\x01" * 16),
    ],
)
def test_values_that_python_does_not_know_are_refused_by_numpy_with_their_column(type_, data):
    column = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(data)])
    store = MemoryStore()
    blz.to_blz(pa.table({"a": column}), store)
    with blz.open(store) as table, pytest.raises(blz.SchemaError, match="column 'a': numpy"):
        table["a"].to_numpy()


# Found by the fuzzer: one level of a MultiIndex came back as tuples of all levels.
def test_a_row_number_that_is_no_integer_is_refused():
    store = MemoryStore()
    blz.to_blz({"x": [1]}, store)
    for wrong, found in (("a", "'a' of type str"), (True, "True of type bool")):
        with pytest.raises(TypeError, match=f"^a row number must be an integer, not {found}$"):
            blz.open(store)["x"][wrong]


def test_a_column_that_is_a_level_of_an_index_is_that_level_alone():
    days = pd.date_range("2026", periods=4, tz="Europe/Berlin", name="day")
    index = pd.MultiIndex.from_arrays([days, list("aabb")], names=["day", None])
    store = MemoryStore()
    blz.to_blz(pd.DataFrame({"x": range(4)}, index), store)
    with blz.open(store) as table:
        pd.testing.assert_series_equal(table["day"].to_pandas(), pd.Series(days))
        assert table["__index_level_1__"].to_pandas().tolist() == list("aabb")


def test_the_streams_of_a_column_say_how_each_row_group_is_stored():
    store = MemoryStore()
    x = [number * 37 % 1000 for number in range(20_000)]
    data = {"x": x, "s": ["a", "bcd", None, "e"] * 5_000, "n": pa.nulls(20_000)}
    blz.to_blz(
        data,
        store,
        storage=blz.Storage(encoding="plain", row_group_rows=20_000),
        compression="zlib",
    )
    blz.to_blz(data, store, mode="a", storage=blz.Storage(encoding="auto"), compression="zstd")
    with blz.open(store) as t:
        (x,) = t["x"].streams()
        assert x.encodings == ("plain", "numbers")
        assert x.codecs == ("zlib, byte", "zstd, bit")
        assert (x.nbytes, x.nbytes_encoded) == (2 * 8 * 20_000, 8 * 20_000 + 2 * 20_000)
        assert x.cbytes == t["x"].cbytes
        assert str(x).startswith(
            "values: plain | numbers | zlib, byte | zstd, bit, 320.0 kB in 200.0"
        )
        streams = {one.name: one for one in t["s"].streams()}
        assert list(streams) == ["valid", "values", "lengths", "items.lengths", "items.values"]
        assert streams["lengths"].encodings == ("numbers, sum", "dictionary")
        assert streams["values"].nbytes == 5_000 * 5
        assert t["n"].streams() == ()


def test_chunks_that_do_not_shrink_are_shown_as_stored():
    store = MemoryStore()
    noise = np.random.default_rng(1).integers(0, 1 << 62, 10_000)
    blz.to_blz({"x": noise}, store, storage=blz.Storage(encoding="plain", shuffle="none"))
    with blz.open(store) as t:
        assert t["x"].streams()[0].codecs == ("stored",)
    with pytest.raises(blz.ClosedError):
        t["x"].streams()
