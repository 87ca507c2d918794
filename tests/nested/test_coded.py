"""Dictionaries of nested values: codes in the rows, and the values as rows of a child."""

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import Node
from blztable.columns.joined import _marks
from blztable.columns.types import changes, one_array
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.bit_equality import bits
from support.nested_arrays import KINDS, TYPES, array_of, rows_of
from support.options import arguments

SEEDS = st.integers(0, 1 << 32)
POINTS = pa.array([{"x": 1, "y": "a"}, None, {"x": 3, "y": "b"}])
CODED = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 0], pa.int8()), POINTS)


def numbered(start: int, rows: int = 100, index: pa.DataType = None) -> pa.Array:
    """Return a dictionary with a value for each row."""
    values = pa.array([{"x": number} for number in range(start, start + rows)])
    return pa.DictionaryArray.from_arrays(pa.array(range(rows)).cast(index or pa.int8()), values)


def coded(type_: pa.DataType, rows: int, seed: int) -> pa.Array:
    return array_of(pa.dictionary(pa.int8(), type_), rows, seed)


@pytest.mark.parametrize("layout", [{}, {"row_group_rows": 2, "page_rows": 8}], ids=str)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_table_comes_back_with_its_codes_and_values(layout, ordered):
    array = pa.DictionaryArray.from_arrays(CODED.indices, POINTS, ordered=ordered)
    table = pa.table({"a": array, "l": pa.ListArray.from_arrays([0, 2, 2, 4, 5, 5], array)})
    blz.to_blz(table, store := RamStore(), **arguments(**layout))
    found = blz.read_table(store)
    found.validate(full=True)
    assert found.schema.equals(table.schema)
    assert found["a"].chunk(0).dictionary.equals(POINTS)
    assert found["a"].chunk(0).indices.equals(CODED.indices[: len(found["a"].chunk(0))])
    assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_values_passes_every_change(kind):
    array, more = coded(KINDS[kind], 30, 1), coded(KINDS[kind], 30, 2)
    table = pa.table({"k": range(30), "a": array})
    blz.to_blz(table, store := RamStore(), storage=blz.Storage(row_group_rows=12, page_rows=8))
    rows = array.to_pylist()
    with blz.open(store, "a") as opened:
        opened.append(pa.table({"k": range(30, 60), "a": more}))
        rows += more.to_pylist()
        assert rows_of(opened.to_arrow()["a"]) == repr(rows)
        assert rows_of(opened["a"][25:35]) == repr(rows[25:35])
        found = opened.take([40, 3, 40])["a"]
        found.validate(full=True)
        assert rows_of(found) == repr([rows[40], rows[3], rows[40]])
        missing = sum(row is None for row in rows)
        assert opened.count(filters=pc.field("a").is_null()) == missing
        opened.update({"a": array[2]}, where=pc.field("k") == 7)
        opened.update({"a": None}, where=pc.field("k") == 8)
        opened.delete(pc.field("k") < 5)
        opened.compact()
        rows[7], rows[8] = rows[2], None
        whole = opened.to_arrow()
        whole.validate(full=True)
        assert rows_of(whole["a"]) == repr(rows[5:])
        opened.add_column("b", array[1])
        opened.compact(sort_by=[("k", "descending")])
        assert rows_of(opened.to_arrow()["a"]) == repr(rows[:4:-1])
        assert rows_of(opened.to_arrow()["b"]) == repr([array[1].as_py()] * 55)
        assert opened.verify()


@settings(max_examples=30)
@given(TYPES, st.integers(1, 12), SEEDS, st.lists(st.integers(0, 11), max_size=12))
def test_marks_are_the_same_where_rows_are(type_, rows, seed, picked):
    array = array_of(type_, rows, seed)
    picked = [*range(rows), *(row % rows for row in picked)]
    node = Node.of(type_)
    marks = _marks(node, iter(flatten(node, array, np.array(picked, np.int64))))
    texts = [repr(array[row].as_py()) for row in picked]
    same = {(one, other) for one, other in zip(texts, marks.tolist(), strict=True)}
    # A union may have a row of the same text in another child.
    assert len({text for text, _ in same}) <= len({mark for _, mark in same})
    assert marks[rows:].tolist() == [marks[row] for row in picked[rows:]]
    assert len({mark for _, mark in same}) == len(same)


def test_values_of_other_bits_are_other_values():
    nan = np.array([0x7FF8000000000001], "u8").view("f8")[0]
    floats = pa.array([0.0, -0.0, float("nan"), nan, None])
    values = pa.StructArray.from_arrays([floats], ["f"])
    array = pa.DictionaryArray.from_arrays(pa.array(range(5), pa.int8()), values)
    other = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), values[::-1][:3])
    whole = one_array(pa.chunked_array([array, other]))
    assert len(whole.dictionary) == 5
    assert bits(whole.dictionary.flatten()[0]) == bits(floats)
    assert whole.indices.to_pylist() == [0, 1, 2, 3, 4, 4, 3, 2]
    blz.to_blz(pa.table({"a": pa.chunked_array([array, other])}), store := RamStore())
    found = blz.read_table(store)["a"].chunk(0)
    assert bits(found.dictionary.flatten()[0]) == bits(floats)


def test_dictionaries_that_are_equal_stay_as_they_are():
    # With a value that occurs twice, and one that no row has.
    values = pa.array([[1], [1], [2], None])
    array = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), values)
    empty = pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), values[:0])
    blz.to_blz(pa.table({"a": pa.chunked_array([array, empty, array])}), store := RamStore())
    found = blz.read_table(store)["a"].chunk(0)
    assert found.dictionary.equals(values)
    assert found.indices.to_pylist() == [1, 0, None, None, 1, 0, None]


def test_a_row_group_ends_where_codes_have_no_room():
    column = pa.chunked_array([numbered(start) for start in (0, 20, 100, 0)])
    assert changes(column) == [200, 300]
    blz.to_blz(pa.table({"a": column}), store := RamStore())
    with blz.open(store, "a") as opened:
        found = opened.to_arrow()["a"]
        assert [len(chunk) for chunk in found.chunks] == [200, 100, 100]
        assert found.to_pylist() == column.to_pylist()
        for start in (0, 60, 120, 180):
            opened.append(pa.table({"a": numbered(start)}))
        opened.compact()
        found = opened.to_arrow()["a"]
        assert found.to_pylist()[400:] == [
            {"x": start + row} for start in (0, 60, 120, 180) for row in range(100)
        ]
        order = np.arange(len(found))[::-1].copy()
        assert opened.take(order)["a"].to_pylist() == found.to_pylist()[::-1]
        with pytest.raises(SchemaError, match=r"codes of int8 have no room for \d+ values"):
            opened["a"][:]
        opened.alter_column("a", dtype=pa.dictionary(pa.int32(), found.type.value_type))
        opened.compact()
        assert opened["a"][:].to_pylist() == found.to_pylist()
        assert opened.verify()


@pytest.mark.parametrize("form", ["list", "struct", "flat"])
def test_a_row_group_ends_where_codes_below_have_no_room(form):
    def below(start: int) -> pa.Array:
        array = numbered(start)
        if form == "flat":
            texts = pa.array([str(number) for number in range(start, start + 100)])
            array = pa.DictionaryArray.from_arrays(array.indices, texts)
        if form == "struct":
            return pa.StructArray.from_arrays([array], ["d"])
        return pa.ListArray.from_arrays([0, 50, 100], array)

    column = pa.chunked_array([below(start) for start in (0, 0, 20, 100, 200)])
    rows = len(column.chunk(0))
    assert changes(column) == [3 * rows, 4 * rows]
    blz.to_blz(pa.table({"a": column}), store := RamStore())
    with blz.open(store, "a") as opened:
        assert opened.to_arrow()["a"].to_pylist() == column.to_pylist()
        for start in (300, 360, 420, 480):
            opened.append(pa.table({"a": below(start)}))
        opened.compact()
        found = opened.to_arrow()["a"].to_pylist()
        assert found[: len(column)] == column.to_pylist()
        assert found[len(column) :] == [
            row for start in (300, 360, 420, 480) for row in below(start).to_pylist()
        ]
        assert opened.verify()


def test_codes_that_have_no_value_are_refused():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 3], pa.int8()), POINTS, safe=False)
    below = pa.DictionaryArray.from_arrays(pa.array([-1, 0], pa.int8()), POINTS, safe=False)
    for one in (array, below):
        with pytest.raises(SchemaError, match=r"'a': dictionary indices .*; expected 0 to 2"):
            blz.to_blz({"a": one}, RamStore())


def test_fields_of_values_are_read_dropped_and_renamed():
    blz.to_blz(pa.table({"k": range(5), "d": CODED}), store := RamStore())
    with blz.open(store, "a") as opened:
        found = opened.to_arrow(["d.value.x"])["d"]
        assert found.type == pa.dictionary(pa.int8(), pa.struct([("x", pa.int64())]))
        assert found.to_pylist() == [{"x": 1}, None, {"x": 3}, None, {"x": 1}]
        # Arrow looks into no dictionary; this one is decoded.
        for condition in (pc.field("d", "x") == 1, pc.field("d", "y") == "a"):
            assert opened.to_arrow(["k"], filters=condition)["k"].to_pylist() == [0, 4]
        opened.rename_columns({"d.value.x": "n"})
        opened.drop_columns(["d.value.y"])
        assert opened["d"][:].to_pylist() == [{"n": 1}, None, {"n": 3}, None, {"n": 1}]
        with pytest.raises(SchemaError, match="has not one value for each row"):
            opened["d.value.n"]
        assert opened.verify()


def test_values_are_appended_widened_and_altered():
    blz.to_blz(pa.table({"k": range(5), "d": CODED}), store := RamStore())
    rows = CODED.to_pylist()
    with blz.open(store, "a") as opened:
        opened.append({"k": [5, 6], "d": [{"x": 9, "y": "q"}, None]})
        opened.append(pa.table({"k": [7, 8], "d": POINTS[:2]}))
        rows += [{"x": 9, "y": "q"}, None, rows[0], None]
        opened.update({"d": {"x": 5, "y": "u"}}, where=pc.field("k") == 0)
        rows[0] = {"x": 5, "y": "u"}
        assert opened.to_arrow()["d"].to_pylist() == rows
        wide = pa.DictionaryArray.from_arrays([0], pa.array([{"x": 1, "y": "a", "z": 2}]))
        with pytest.raises(SchemaError, match="pass evolve=True"):
            opened.append(pa.table({"k": [9], "d": wide}))
        opened.append(pa.table({"k": [9], "d": wide}), evolve=True)
        rows = [row and row | {"z": None} for row in rows] + wide.to_pylist()
        assert opened.to_arrow()["d"].to_pylist() == rows
        assert pa.types.is_dictionary(opened["d"].type)
        with pytest.raises(SchemaError, match=r"row 1 is null"):
            opened.alter_column("d", nullable=False)
        for type_ in (wide.type.value_type, pa.dictionary(pa.uint16(), wide.type.value_type)):
            opened.alter_column("d", dtype=type_)
            assert opened["d"].type == type_
            assert opened.to_arrow()["d"].to_pylist() == rows
        assert opened.verify()


def test_ordered_values_keep_their_order():
    values = pa.array([[2], [1]])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values, ordered=True)
    other = pa.DictionaryArray.from_arrays(array.indices, values[::-1], ordered=True)
    blz.to_blz(pa.table({"d": array}), store := RamStore())
    with blz.open(store, "a") as opened:
        opened.append(pa.table({"d": array}))
        with pytest.raises(SchemaError, match="ordered categories"):
            opened.append(pa.table({"d": other}))
        opened.update({"d": pa.scalar([1], values.type)}, where=pc.field("d").is_valid())
        opened.compact()
        found = opened["d"][:]
        assert found.type.ordered
        assert found.dictionary.equals(values)
        assert found.to_pylist() == [[1]] * 4


def test_pandas_gets_the_values_and_engines_the_dictionary():
    values = pa.array([{"x": 1, "y": [1]}, {"x": 3, "y": []}])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), values)
    table = pa.table({"k": range(4), "d": array})
    blz.to_blz(table, store := RamStore())
    with blz.open(store) as opened, duckdb.connect() as engine:
        frame = opened.to_pandas()
        assert [one and one["x"] for one in frame["d"]] == [1, 3, None, 1]
        assert frame["d"][0] is frame["d"][3]
        engine.register("ours", opened.dataset())
        found = engine.execute("select d from ours where k > 0").fetchall()
        assert found == [(one,) for one in array.to_pylist()[1:]]
        assert pa.table(opened).equals(table)
    frame = pd.DataFrame({"d": pd.array(array, pd.ArrowDtype(array.type))})
    frame.to_blz(store)
    pd.testing.assert_frame_equal(blz.read_blz(store), frame)


@example(seed=0)
@settings(max_examples=15)
@given(SEEDS)
def test_dictionaries_below_others_are_united(seed):
    """A list of codes, and codes of values with codes in them, from several arrays."""
    inner = pa.dictionary(pa.int16(), pa.struct([("x", pa.list_(pa.int8()))]))
    for type_ in (pa.list_(inner), pa.dictionary(pa.int32(), pa.struct([("d", inner)]))):
        chunks = [array_of(type_, 9, seed + number) for number in range(3)]
        whole = one_array(pa.chunked_array(chunks))
        whole.validate(full=True)
        rows = [row for chunk in chunks for row in chunk.to_pylist()]
        assert rows_of(whole) == repr(rows)
        blz.to_blz(pa.table({"a": pa.chunked_array(chunks)}), store := RamStore())
        assert rows_of(blz.read_table(store)["a"]) == repr(rows)


def test_a_dictionary_of_too_many_values_is_refused(monkeypatch):
    monkeypatch.setattr("blztable.arrow.nested.flatten.MAX_VALUES", 2)
    with pytest.raises(blz.LimitError, match="a dictionary has 3 values; at most 2 are kept"):
        blz.to_blz({"a": CODED}, RamStore())
