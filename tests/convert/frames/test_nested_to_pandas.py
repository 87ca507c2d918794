"""Nested to pandas: a null struct and a null item change no integer beside them."""

import decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blztable.convert.frames.arrow_objects import EXACT_MAX, foreign_objects

LARGE = EXACT_MAX + 1
STRUCT = pa.struct(
    [
        ("x", pa.int64()),
        ("u", pa.uint64()),
        ("small", pa.int8()),
        ("is", pa.bool_()),
        ("money", pa.decimal128(20, 2)),
        ("at", pa.timestamp("ns")),
        ("took", pa.duration("ns")),
        ("below", pa.struct([("y", pa.int64())])),
        ("pair", pa.list_(pa.int64(), 2)),
        ("some", pa.large_list(pa.struct([("y", pa.int64())]))),
        ("code", pa.dictionary(pa.int8(), pa.int64())),
    ]
)
ROW = {
    **{"x": LARGE, "u": (1 << 64) - 1, "small": 3, "is": True, "money": decimal.Decimal("1.25")},
    **{"at": LARGE, "took": LARGE, "below": {"y": LARGE}, "pair": [LARGE, 1]},
    **{"some": [{"y": LARGE}, None], "code": LARGE},
}


def stored(array):
    """Return an array as a table keeps it: what is below a null struct is null."""
    type_ = array.type
    if pa.types.is_struct(type_):
        fields = [stored(field) for field in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=array.is_null())
    if pa.types.is_fixed_size_list(type_):
        values = stored(array.values.slice(array.offset * type_.list_size))
        return pa.FixedSizeListArray.from_arrays(values, type=type_, mask=array.is_null())
    if pa.types.is_nested(type_):
        assert array.offset == 0
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(type_, len(array), buffers, children=[stored(array.values)])
    return array


def objects_of(*arrays):
    return foreign_objects(pa.chunked_array(arrays)).tolist()


@pytest.mark.parametrize(
    ("rows", "type_"),
    [
        ([ROW, None, ROW], STRUCT),
        ([{"in": ROW}, {"in": None}, None], pa.struct([("in", STRUCT)])),
        ([[ROW, None], None, [ROW]], pa.list_(STRUCT)),
        ([[ROW, None], None, [ROW]], pa.large_list(STRUCT)),
        ([[ROW, None], None, [ROW, ROW]], pa.list_(STRUCT, 2)),
    ],
    ids=lambda one: str(one).split("<")[0][:20],
)
def test_a_null_struct_makes_no_floats_of_the_integers_beside_it(rows, type_):
    array = pa.array(rows, type_)
    assert repr(objects_of(stored(array))) == repr(array.to_pandas().tolist())
    assert str(LARGE) in repr(objects_of(stored(array)))
    cut = stored(array).slice(1)
    expected = array.to_pandas().tolist()
    assert repr(objects_of(cut, stored(array)[:1])) == repr(expected[1:] + expected[:1])


def test_a_null_struct_hides_what_is_below_the_structs_in_it():
    mask, outer = pa.array([False, True, False]), pa.array([False, False, True])
    inner = pa.StructArray.from_arrays([pa.array([3, None, None])], ["y"], mask=mask)
    array = pa.StructArray.from_arrays([inner], ["in"], mask=outer)
    assert repr(objects_of(array)) == "[{'in': {'y': 3}}, {'in': None}, None]"


def test_a_null_struct_in_a_map_makes_no_floats():
    items = stored(pa.array([{"x": LARGE}, None]))
    maps = pa.MapArray.from_arrays([0, 2, 2], ["a", "b"], items)
    assert objects_of(maps) == [[("a", {"x": LARGE}), ("b", None)], []]
    assert objects_of(maps.slice(1)) == [[]]


def test_a_null_struct_in_list_views_and_runs_makes_no_floats():
    items = stored(pa.array([{"x": LARGE}, None, {"x": 3}]))
    views = pa.ListViewArray.from_arrays([1, 0], [2, 2], items)
    assert list(map(list, objects_of(views))) == [[None, {"x": 3}], [{"x": LARGE}, None]]
    runs = pa.RunEndEncodedArray.from_arrays([2, 3, 4], items)
    found = objects_of(pa.StructArray.from_arrays([runs], ["r"]).slice(1))
    assert found == [{"r": {"x": LARGE}}, {"r": None}, {"r": {"x": 3}}]
    ends = pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([LARGE, None]))
    mask = pa.array([False, True])
    assert objects_of(pa.StructArray.from_arrays([ends], ["r"], mask=mask)) == [{"r": LARGE}, None]


@pytest.mark.parametrize(
    ("value", "found"), [(7, float), (EXACT_MAX, float), (LARGE, int), (-LARGE, int)]
)
def test_an_integer_beside_a_null_is_a_float_only_if_that_is_the_same_number(value, found):
    (row, _), (items,) = (
        objects_of(pa.array([{"x": value}, {"x": None}])),
        objects_of(pa.array([[value, None]])),
    )
    item, none = items.tolist()
    assert [row["x"], item] == [value, value]
    assert [type(row["x"]), type(item)] == [found, found]
    assert (none is None) == (found is int)


INTEGERS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)
ROWS = st.none() | st.fixed_dictionaries(
    {"x": INTEGERS, "in": st.none() | st.fixed_dictionaries({"y": INTEGERS})}
)
TYPE = pa.struct([("x", pa.int64()), ("in", pa.struct([("y", pa.int64())]))])


@given(st.lists(ROWS, min_size=1, max_size=6), st.integers(0, 5))
@example([{"x": LARGE, "in": None}, None, {"x": None, "in": {"y": LARGE}}], 1)
def test_no_integer_of_a_struct_becomes_another_number(rows, start):
    array = pa.array(rows, TYPE)[start:]
    assert objects_of(stored(array), stored(array)) == rows[start:] * 2
