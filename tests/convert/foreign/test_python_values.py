"""Python values in lists and rows are stored as in a column of a DataFrame, or refused by name."""

import datetime
import decimal
import ipaddress
import uuid

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.convert.foreign import python_values
from blztable.errors import SchemaError
from blztable.storage.memory import MemoryStore

UUID, ADDRESS = uuid.UUID(int=1), ipaddress.ip_address("10.0.0.1")

OBJECTS = [
    [[UUID], None, [None]],
    [ADDRESS, None],
    [5j, 1j],
    [{5: "z"}, {}],
    [(9, "z"), (1, "a")],
    [{1, 2}, set()],
    [{"tags": {1}}, {}],
    [[frozenset({1})], []],
    [pd.Period("2020-01", "M")],
    [pd.Interval(0, 1)],
    [pd.NaT, pd.Timestamp(5)],
    [pd.NA, 1],
    [decimal.Decimal("NaN"), decimal.Decimal("1.5")],
]


@pytest.mark.parametrize("values", OBJECTS, ids=ascii)
def test_python_values_come_back_as_from_a_frame(values):
    frame = pd.DataFrame({"x": values})
    stores = [MemoryStore() for _ in range(4)]
    frame.to_blz(stores[0])
    blz.to_blz({"x": values}, stores[1])
    blz.to_blz([{"x": value, "row": row} for row, value in enumerate(values)], stores[2])
    blz.to_blz(iter([{"x": value, "row": row} for row, value in enumerate(values)]), stores[3])
    found = [blz.read_blz(store)[["x"]] for store in stores]
    for other in found:
        pd.testing.assert_frame_equal(other, found[0])
    assert repr(found[0]["x"].tolist()) == repr(frame["x"].tolist())
    types = {blz.read_table(store).schema.field("x").type for store in stores}
    assert len(types) == 1


@pytest.mark.parametrize("values", OBJECTS[:8], ids=ascii)
def test_python_values_are_appended_and_updated(values):
    store = MemoryStore()
    frame = pd.DataFrame({"id": range(len(values)), "x": values})
    frame.to_blz(store)
    with blz.open(store, mode="a") as t:
        t.append({"id": [7] * len(values), "x": values})
        t.append([{"id": 8, "x": value} for value in values])
        t.update({"x": [values[0]] * t.count(filters=[("id", "==", 7)])}, [("id", "==", 7)])
        t.compact()
        found = t.to_pandas()["x"].tolist()
        assert t.verify()
    assert repr(found) == repr([*values, *[values[0]] * len(values), *values])


@pytest.mark.parametrize("value", [{1, 2}, frozenset({3})], ids=repr)
def test_a_set_is_one_value_of_a_column_of_sets(value):
    store = MemoryStore()
    pd.DataFrame({"x": [type(value)({1}), None], "n": [1, 2]}).to_blz(store)
    with blz.open(store, mode="a") as t:
        t.update({"x": value}, [("n", "==", 2)])
        assert t.to_pandas()["x"].tolist() == [type(value)({1}), value]
        with pytest.raises(SchemaError, match="have no order; pass a list"):
            t.update({"n": value})


def test_mixed_values_are_refused_with_a_remedy_that_works():
    store = MemoryStore()
    message = (
        r"column 'x', row 1: 'a' of type str cannot be stored: .*; "
        r"pass storage=blz.Storage\(objects=\"json\"\), or"
    )
    for data in ({"x": [1, "a"]}, [{"x": 1}, {"x": "a"}]):
        with pytest.raises(SchemaError, match=message):
            blz.to_blz(data, store)
        blz.to_blz(data, store, storage=blz.Storage(objects="json"))
        assert blz.read_blz(store)["x"].tolist() == [1, "a"]
    with blz.open(store, mode="a") as t:
        t.append({"x": [[1], {2}]}, storage=blz.Storage(objects="json"))
        t.update({"x": {5}}, pa.compute.field("x") == "1")
        assert t.to_pandas()["x"].tolist() == [{5}, "a", [1], {2}]
    with pytest.raises(SchemaError, match=r"row 0: .*surrogate.*; make it bytes with encode"):
        blz.to_blz({"x": ["\ud800", "b"]}, store)


def test_the_choice_of_objects_holds_for_lists():
    found, descriptor = python_values.encode([[1], None], "x", False, "json")
    assert found.to_pylist() == ["[1]", None]
    assert descriptor == {"dtype": "object", "kind": "json"}
    with pytest.raises(SchemaError, match=r"x, row 1: \[1\] .*only text is taken"):
        python_values.encode([None, [1]], "x", False, "error")
    for choice in ("infer", "json", "error"):
        assert python_values.encode([1, 2.5], "x", False, choice) == (pa.array([1, 2.5]), None)


def test_plain_lists_stay_what_arrow_makes_of_them():
    for values in ([1, None], ["a"], [[1.5], None], [{"a": 1}, {}], [(1, 2)]):
        assert python_values.encode(values, "x", False) == (pa.array(values), None)


@pytest.mark.parametrize("rows", [[{}, {}], [{}]])
def test_empty_rows_are_rows(rows):
    store = MemoryStore()
    blz.to_blz({"a": [1], "b": ["x"]}, store)
    with blz.open(store, mode="a") as t:
        t.alter_column("a", default=7)
        t.append(rows)
        wanted = [{"a": 1, "b": "x"}, *[{"a": 7, "b": None}] * len(rows)]
        assert t.to_arrow().to_pylist() == wanted
    blz.to_blz(rows, store)
    assert len(blz.open(store)) == len(rows)


def test_none_for_a_key_that_other_dicts_lack_is_said():
    rows = [{"name": "Ada", "age": 36}, {"name": "Bo"}, {"name": "Cy", "age": None}]
    with pytest.raises(SchemaError, match=r"row 2: .* its key 'age' is None, and other dicts lack"):
        pd.DataFrame({"who": rows}).to_blz(MemoryStore())
    store = MemoryStore()
    pd.DataFrame({"who": [{**row, "age": row.get("age")} for row in rows]}).to_blz(store)
    assert blz.read_blz(store)["who"].tolist()[1:] == [
        {"name": "Bo", "age": None},
        {"name": "Cy", "age": None},
    ]


def test_given_categories_are_refused_with_a_remedy_that_works():
    store, dtype = MemoryStore(), pd.CategoricalDtype(["z", "b"], ordered=True)
    pd.DataFrame({"x": ["b", "z"]}).to_blz(store)
    with blz.open(store, mode="a") as t:
        with pytest.raises(SchemaError, match=r"has those of its values; pass dtype=\"category\""):
            t.alter_column("x", dtype=dtype)
        t.add_column("new", t["x"].to_pandas().astype(dtype))
        assert t.to_pandas()["new"].dtype == dtype
        t.alter_column("x", dtype="category")
        assert t.to_pandas()["x"].tolist() == ["b", "z"]


NANOSECOND = pd.Timestamp(1)
CHANGED = {
    "date and time": [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5)],
    "with a zone and without": [
        datetime.datetime(2020, 1, 1),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    ],
    "time with a zone": [datetime.time(1, tzinfo=datetime.UTC)],
    "text and bytes": ["a", b"b"],
    "bytes and text": [b"b", "a"],
}


@pytest.mark.parametrize("values", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("inside", [lambda v: v, lambda v: [v], lambda v: {"a": v}], ids=range(3))
def test_values_that_arrow_would_change_are_refused(values, inside):
    for data in ({"x": list(map(inside, values))}, [{"x": inside(one), "y": 1} for one in values]):
        with pytest.raises(SchemaError, match=r"'x', row \d: .*cannot be stored"):
            blz.to_blz(data, MemoryStore())


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (NANOSECOND, pa.timestamp("ns")),
        (pd.Timedelta(1), pa.duration("ns")),
        ([NANOSECOND, None], pa.list_(pa.timestamp("ns"))),
    ],
    ids=str,
)
def test_nanoseconds_of_pandas_are_kept(value, type_):
    store = MemoryStore()
    blz.to_blz(pa.table({"k": [0], "x": pa.array([None], type_)}), store)
    with blz.open(store, "a") as table:
        table.append({"k": [1], "x": [value]})
        table.append([{"k": 2, "x": value}])
        table.update({"x": [value]}, where=pc.field("k") == 0)
        assert table["x"].type == type_
        assert table["x"][:].to_pylist() == [value] * 3
        table.add_column("y", [value] * 3)
        assert table["y"][:].to_pylist() == [value] * 3
