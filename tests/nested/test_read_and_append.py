"""Frames that were read from a table with nested columns are appended to it, and change nothing."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.convert.frames.arrow_objects import foreign_objects
from blztable.storage.memory import MemoryStore

LISTS = pa.list_(pa.int64())
CASES = {
    "integers": (LISTS, [[1, None], [2], None, []]),
    "large integers": (LISTS, [[(1 << 60) + 1, None], [1]]),
    "views": (pa.list_view(pa.int16()), [[1, None], [2]]),
    "a size": (pa.list_(pa.int32(), 2), [[1, None], [2, 3], None]),
    "floats": (pa.list_(pa.float32()), [[1.5, None], None, [float("inf")]]),
    "booleans": (pa.list_(pa.bool_()), [[True, None], [False], None]),
    "texts": (pa.list_(pa.string()), [["a", None], []]),
    "decimals": (pa.list_(pa.decimal128(5, 2)), [[decimal.Decimal("1.50"), None], []]),
    "dates": (pa.list_(pa.date32()), [[datetime.date(2020, 1, 1), None]]),
    "times": (pa.list_(pa.timestamp("us")), [[datetime.datetime(2020, 1, 1), None], []]),
    "lists": (pa.list_(LISTS), [[[1, None], [2]], None, [[], None], [[3]]]),
    "maps": (pa.map_(pa.string(), LISTS), [[("a", [1, None])], [], None, [("b", [2])]]),
    "structs": (
        pa.struct([("a", LISTS), ("b", pa.int32())]),
        [{"a": [1, None], "b": 1}, None, {"a": None, "b": None}, {"a": [5], "b": 3}],
    ),
    "lists of structs": (
        pa.list_(pa.struct([("x", pa.int64())])),
        [[{"x": 1}, {"x": None}], [None], None, [{"x": 2}]],
    ),
}


@pytest.mark.parametrize("row_group_rows", [1, 100])
@pytest.mark.parametrize("case", CASES)
def test_what_pandas_shows_of_a_nested_column_is_appended_as_it_was(case, row_group_rows):
    type_, values = CASES[case]
    table = pa.table({"x": pa.array(values, type_)})
    blz.to_blz(table, store := MemoryStore(), storage=blz.Storage(row_group_rows=row_group_rows))
    blz.read_blz(store).to_blz(store, mode="a")
    found = blz.read_table(store)["x"]
    assert found.type == type_
    assert found.to_pylist() == values * 2


def test_integers_of_a_field_become_floats_in_all_rows_or_in_none():
    values = [{"a": 1}, {"a": None}, {"a": 4}]
    table = pa.table({"x": pa.array(values, pa.struct([("a", pa.int64())]))})
    blz.to_blz(table, store := MemoryStore(), storage=blz.Storage(row_group_rows=1))
    frame = blz.read_blz(store)
    assert [type(value["a"]) for value in frame["x"]] == [float, type(None), float]
    frame.to_blz(copy := MemoryStore())
    assert blz.read_table(copy)["x"].to_pylist() == values


def test_chunks_that_arrow_cannot_join_are_read():
    values = pa.array(["a", None])
    chunks = [
        pa.ListArray.from_arrays([0, 1], pa.DictionaryArray.from_arrays([code], values[code:]))
        for code in (0, 0)
    ]
    other = pa.DictionaryArray.from_arrays(pa.array([1], pa.int64()), pa.array([None, "b"]))
    column = pa.chunked_array([*chunks, pa.ListArray.from_arrays([0, 1], other)])
    with pytest.raises(pa.ArrowInvalid):
        pa.concat_arrays(column.chunks)
    assert [list(value) for value in foreign_objects(column)] == [["a"], ["a"], ["b"]]


def test_nan_in_an_array_of_a_frame_is_missing_and_comes_back():
    arrays = [np.array([1.5, np.nan]), np.array([np.nan], "f4"), np.array(["NaT"], "M8[s]")]
    for array in arrays:
        frame = pd.DataFrame({"x": [array, None]})
        frame.to_blz(store := MemoryStore())
        assert blz.read_table(store)["x"].to_pylist()[0][-1] is None
        back = blz.read_blz(store)["x"][0]
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
