"""Defaults of nested columns: any value, through every change of the column and its fields."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.errors import ConflictError, CorruptError, SchemaError
from blztable.storage.memory import RamStore
from support import tamper
from support.bit_equality import bits
from support.nested_arrays import ALL, array_of

POINT = {"x": 1.5, "tags": ["a", None], "at": {"city": "Bern", "zip": None}}
ROWS = [None, {"x": None, "tags": None, "at": None}, {"x": 0.5, "tags": [], "at": {"city": "Rome"}}]
TYPE = pa.struct(
    [
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("city", pa.dictionary(pa.int8(), pa.string())), ("zip", pa.int32())])),
    ]
)


@pytest.fixture
def table():
    store = RamStore()
    rows = pa.table({"k": range(3), "p": pa.array(ROWS, TYPE)})
    blz.to_blz(rows, store, durability="process", storage=blz.Storage(row_group_rows=2))
    with blz.open(store, "a", durability="process") as opened:
        opened.alter_column("p", default=POINT)
        yield opened


def filled(t, **values):
    """Append a row without the column; return its value there."""
    t.append({"k": [9], **values})
    assert t.verify().is_intact
    return t["p"][-1:].to_pylist()[0]


@pytest.mark.parametrize("kind", ALL)
def test_a_default_of_any_nested_type_fills_rows_that_come_without(kind):
    array = array_of(ALL[kind], 9, 1)
    row = next(row for row, value in enumerate(array) if value.is_valid)
    wanted = bits(array.slice(row, 1))
    blz.to_blz(pa.table({"k": range(9), "x": array}), store := RamStore())
    with blz.open(store, "a") as t:
        t.alter_column("x", default=array[row])
        t.add_column("y", array, default=array[row])
        t.append({"k": [1, 2]})
        t.append(pd.DataFrame({"k": [3]}))
        t.append(pa.table({"k": pa.array([], pa.int64())}))
        t.append(iter([{"k": [4]}, {"k": [5]}]), evolve=True)
        with t.transaction() as tx:
            tx.append({"k": [6]})
            tx.compact()
        t.resize(16)
        for name in "xy":
            assert bits(t[name][:]) == bits(array) + wanted * 7
        assert t.verify().is_intact


@pytest.mark.parametrize(
    ("data", "default"),
    [
        ([[1, 2]], [3, None]),
        ([[1, 2]], (3,)),
        ([[1, 2]], np.array([3, 4])),
        ([{"a": 1, "b": ["x"]}], {"a": 5, "b": []}),
        ([{"a": 1, "b": "x"}], {"b": "y"}),
        (np.ones((1, 3), "f4"), np.arange(3)),
        (np.ones((1, 2, 2), "f4"), np.ones((2, 2), "f4")),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), {"z": 9, "y": None}),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), [("z", 9)]),
        ([{1, 2}], {3}),
        (pd.Series([pd.Interval(1, 2)]), pd.Interval(3, 4)),
    ],
)
def test_a_default_is_a_value_of_python_too(data, default):
    blz.to_blz({"k": [1]}, store := RamStore())
    with blz.open(store, "a") as t:
        t.add_column("x", data, default=default)
        t.append({"k": [2]})
        found = t["x"][1:].to_pylist()[0]
        if isinstance(default, dict) and isinstance(found, dict):
            assert found == dict.fromkeys(found) | default
        elif isinstance(default, dict | set | tuple):
            assert found == [*(default.items() if isinstance(default, dict) else default)]
        elif isinstance(default, pd.Interval):
            assert found == {"left": 3, "right": 4}
        else:
            assert np.array_equal(np.ravel(found), np.ravel(default))


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        (pa.list_(pa.int8()), [300]),
        (pa.list_(pa.int8()), 3),
        (pa.list_(pa.int8(), 2), [1]),
        (pa.struct([("a", pa.int8())]), {"a": 1, "b": 2}),
        (pa.struct([("a", pa.int8())]), [1]),
        (pa.map_(pa.string(), pa.int8()), 5),
        (pa.map_(pa.string(), pa.int8()), {"a": 1.5}),
        (pa.map_(pa.string(), pa.struct([("a", pa.int8())])), {"k": {"a": 1, "b": 2}}),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_no_default(type_, default):
    blz.create(store := RamStore(), pa.schema({"x": type_})).close()
    with blz.open(store, "a") as t:
        with pytest.raises(SchemaError, match="the default of column 'x'"):
            t.alter_column("x", default=default)
        assert t.version == 1


def test_fields_of_a_column_with_a_default_come_and_go(table):
    assert filled(table) == POINT
    version = table.version
    table.configure(keep_versions=99)
    table.rename_columns({"p.at.city": "town", "p": "q"})
    table.rename_columns({"q": "p"})
    assert filled(table)["at"] == {"town": "Bern", "zip": None}
    table.drop_columns(["p.x", "p.at.zip"])
    assert filled(table) == {"tags": ["a", None], "at": {"town": "Bern"}}
    table.add_column("p.at.floor", 3)
    table.add_column("p.more", [[{"n": row}] for row in range(len(table))])
    with table.transaction() as tx:
        tx.add_column("p.late", pc.field("k"))
        tx.drop_columns(["p.tags"])
    assert filled(table) == {"at": {"town": "Bern", "floor": None}, "more": None, "late": None}
    table.alter_column("p", default=table["p"][2])
    assert filled(table) == table["p"][2]
    table.restore(version)
    assert filled(table) == POINT
    table.drop_columns(["p"])
    table.add_column("p", 1)
    assert filled(table) is None


def test_a_default_follows_the_type_of_its_column(table):
    table.append({"k": [4], "p": [{"x": 2.5, "new": 1, "at": {"zip": 1 << 40}}]}, evolve=True)
    assert table.schema.field("p").type.field("at").type.field("zip").type == pa.int64()
    assert filled(table) == {**POINT, "new": None}
    fields = [field for field in table.schema.field("p").type if field.name != "x"]
    wide = pa.struct([pa.field("x", pa.float64()), *fields, pa.field("z", pa.list_(pa.bool_()))])
    table.alter_column("p", dtype=wide)
    assert filled(table) == {**POINT, "new": None, "z": None}
    table.alter_column("p", nullable=True, default=None)
    assert filled(table) is None
    table.alter_column("p", default={"x": 0.5})
    text = pa.struct([pa.field("x", pa.int64()), *list(wide)[1:]])
    table.update({"p": pa.scalar(None, wide)})
    with pytest.raises(SchemaError, match=r"the default value .* cannot become .*alter_column"):
        table.alter_column("p", dtype=text)
    table.alter_column("p", dtype=text, default={"x": 3})
    assert filled(table)["x"] == 3


def test_a_not_null_column_is_filled_with_its_default(table):
    table.update({"p": pa.scalar(POINT, TYPE)}, where=pc.field("p").is_null())
    table.alter_column("p", nullable=False, default=None)
    with pytest.raises(SchemaError, match=r"call alter_column\('p', default=...\)"):
        table.append({"k": [1]})
    table.alter_column("p", default={"x": 7.0})
    assert filled(table) == {"x": 7.0, "tags": None, "at": None}


@pytest.mark.parametrize(
    "null",
    [
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None], pa.string())),
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None], TYPE)),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([None], pa.int8())]),
        pa.RunEndEncodedArray.from_arrays(pa.array([1]), pa.array([None], pa.string())),
    ],
    ids=lambda null: str(null.type)[:20],
)
def test_a_null_among_the_values_is_no_default(null):
    blz.to_blz(pa.table({"x": null, "k": [0]}), store := RamStore())
    with blz.open(store, "a") as t:
        t.alter_column("x", default=null[0])
        t.add_column("y", null, default=null[0])
        t.append({"k": [1]})
        assert t["x"][:].to_pylist() == t["y"][:].to_pylist() == [None, None]
        assert t._snapshot.version.head.properties.get("defaults", {}) == {}


def test_another_writer_meets_a_default_that_changes(table):
    store = table._snapshot.version.store
    with table.transaction() as tx:
        # A field that goes relies on the columns, and not on their defaults.
        tx.drop_columns(["p.x"])
        with blz.open(store, "a", durability="process") as other:
            other.alter_column("p", default={"x": 3.0, "tags": ["b"]})
    assert filled(table) == {"tags": ["b"], "at": None}
    tx = table.transaction().__enter__()
    tx.alter_column("p", default={"tags": ["c"]})
    with blz.open(store, "a", durability="process") as other:
        other.rename_columns({"p.tags": "words"})
    with pytest.raises(ConflictError):
        tx.__exit__(None, None, None)
    with blz.open(store, "a", durability="process") as other:
        assert filled(other) == {"words": ["b"], "at": None}


def lengths(*numbers):
    return np.array(numbers, "<i8").tobytes()


def test_the_property_holds_each_node(table):
    table.alter_column("p", default={"x": 1.5, "tags": ["ab", None]})
    found = table._snapshot.version.head.properties["defaults"]["1"]
    decoded = [{k: base64.b64decode(v) for k, v in node.items()} for node in found]
    assert decoded == [
        {},
        {"values": np.array([1.5]).tobytes()},
        {"lengths": lengths(2)},
        {"valid": b"\1", "lengths": lengths(2, 0), "values": b"ab"},
        {"valid": b"\0"},
        {"valid": b"\0", "lengths": lengths(0), "values": b""},
        {"valid": b"\0", "values": b"\0\0\0\0"},
    ]


def test_the_example_of_the_page_is_what_is_stored():
    page = (Path(__file__).parents[2] / "docs" / "writing.md").read_text()
    pattern = r"For example, `(.*)` of a column `struct<a: .* is `(.*)`"
    example, nodes = re.search(pattern, page).groups()
    type_ = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])
    blz.create(store := RamStore(), pa.schema({"x": type_})).close()
    with blz.open(store, "a") as t:
        t.alter_column("x", default=json.loads(example))
        assert t._snapshot.version.head.properties["defaults"]["0"] == json.loads(nodes)


@pytest.mark.parametrize(
    "wrong",
    ["AA==", 5, {}, [], [1], [{}], [{}] * 7, [{"values": "!"}] * 7, [{"valid": "AA=="}] * 7],
)
def test_a_false_default_is_told_with_its_column(table, wrong):
    store = table._snapshot.version.store
    with tamper.editing(store) as edit:
        edit.head["properties"]["defaults"]["1"] = wrong
    with blz.open(store, "a") as t:
        assert t.to_arrow().num_rows == 3
        with pytest.raises(CorruptError, match="the default value of column 'p'"):
            t.append({"k": [1]})
        t.alter_column("p", default=POINT)
        assert filled(t) == POINT
