"""Maps of Python's pairs, as `to_pylist` and pandas give them, go where maps are."""

import pyarrow as pa
import pytest

import blztable as blz
from blztable.errors import SchemaError
from blztable.storage.memory import MemoryStore

COUNTS = pa.map_(pa.string(), pa.int64())
NO_KEY = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None], pa.string()))
CASES = {
    "of two types": (COUNTS, [[("a", 1)], None, [], [("b", None), ("c", 2)]]),
    "of one type": (pa.map_(pa.int64(), pa.int64()), [[(1, 2), (3, None)], [], [(4, 5)]]),
    "of lists": (pa.map_(pa.int32(), pa.list_(pa.string())), [[(1, ["x"])], [(2, None)], []]),
    "of maps": (pa.map_(pa.string(), COUNTS), [[("x", [("a", 1)])], [("y", [])]]),
    "in a struct": (
        pa.struct([("m", pa.list_(COUNTS))]),
        [{"m": [[("a", 1)], None]}, None, {"m": []}],
    ),
    "in a view": (pa.list_view(COUNTS), [[[("a", 1)], []], None]),
}
WAYS = {
    "rows": lambda t, values: t.append([{"x": value, "k": 0} for value in values]),
    "a mapping": lambda t, values: t.append({"x": values, "k": [0] * len(values)}),
    "a frame": lambda t, values: t.append(t.to_pandas()),
    "a stream": lambda t, values: t.append({"x": [value], "k": [0]} for value in values),
    "a stream that may evolve": lambda t, values: t.append(iter([{"x": values}]), evolve=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_pairs_of_python_are_appended_to_maps(case, way):
    type_, values = CASES[case]
    table = pa.table({"x": pa.array(values, type_), "k": [0] * len(values)})
    blz.to_blz(table, store := MemoryStore())
    with blz.open(store, "a") as t:
        WAYS[way](t, values)
        assert t["x"][:].type == type_
        assert t["x"][:].to_pylist() == values * 2


@pytest.mark.parametrize("case", CASES)
def test_pairs_of_python_replace_maps_and_are_their_default(case):
    type_, values = CASES[case]
    blz.to_blz(
        pa.table({"x": pa.array(values, type_), "k": range(len(values))}), s := MemoryStore()
    )
    with blz.open(s, "a") as t:
        t.update({"x": values[::-1]})
        t.alter_column("x", default=values[0])
        t.append({"k": [9]})
        assert t["x"][:].to_pylist() == [*values[::-1], values[0]]


@pytest.mark.parametrize(
    "wrong",
    [
        [[("a", 1, 2)]],
        [[(None, 1)]],
        [["a"]],
        [[["a"]]],
        [[("a", "b")]],
        [[None]],
        [{"a": 1}],
        [[(1, 2), None]],
        [[(1, 2, 3, 4)]],
        [[(1,), (2, 3, 4)]],
        [[{"lat": 1, "lon": 2}]],
        [[{"value": 1, "key": 2}]],
        pa.array([[{"0": 1, "1": 2}]]).cast(pa.list_(pa.struct({"1": "i8", "0": "i8"}))),
        pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([NO_KEY, [1]], ["0", "1"])),
    ],
    ids=lambda wrong: str(getattr(wrong, "type", wrong)),
)
@pytest.mark.parametrize("type_", [COUNTS, pa.map_(pa.int64(), pa.int64())], ids=str)
def test_what_is_no_pair_of_the_types_is_refused(wrong, type_):
    blz.to_blz(pa.table({"x": pa.array([[]], type_)}), store := MemoryStore())
    with blz.open(store, "a") as t:
        with pytest.raises(SchemaError, match="column 'x'"):
            t.append({"x": wrong})
        assert t.version == 1


@pytest.mark.parametrize(
    ("narrow", "wide", "value"),
    [
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.large_string(), pa.int64()), [("a", 1)]),
        (pa.map_("int8", pa.list_(pa.int8())), pa.map_("int32", pa.list_(pa.int16())), [(1, [2])]),
        (pa.list_(pa.map_("int8", "float")), pa.list_(pa.map_("int8", "double")), [[(1, 0.5)]]),
    ],
    ids=str,
)
def test_maps_become_maps_of_wider_types(narrow, wide, value):
    values = [[], value, None, value * 3]
    rows = pa.array([value, *values], narrow)[1:]
    blz.to_blz(pa.table({"x": rows}), store := MemoryStore(), storage=blz.Storage(row_group_rows=2))
    with blz.open(store, "a") as t:
        t.append(pa.table({"x": pa.array(values, wide)}))
        assert t["x"].type == narrow
        t.alter_column("x", dtype=wide)
        t.append(pa.table({"x": rows}))
        assert t["x"].type == wide
        assert t["x"][:].to_pylist() == values * 3


def test_values_of_maps_widen_by_appended_rows():
    rows = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8()))
    blz.to_blz(pa.table({"x": rows}), store := MemoryStore())
    with blz.open(store, "a") as t:
        t.append(pa.table({"x": pa.array([[("b", 1 << 40)]], COUNTS)}), evolve=True)
        assert t["x"].type == COUNTS
        assert t["x"][:].to_pylist() == [[("a", 1)], None, [("b", 1 << 40)]]
