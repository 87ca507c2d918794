"""Fields of objects: a change of one field leaves the Python values of the others as they were."""

import datetime
import decimal
import uuid

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import blztable as blz
from blztable.convert.frames.descriptor import FIELD_KEY
from blztable.convert.frames.frame import described
from blztable.convert.frames.objects import decode_objects, encode_objects, reshaped
from blztable.convert.objects.containers import as_objects

LARGE = (1 << 53) + 1
UUID = uuid.UUID(int=7)
FULL = {
    **{"a": LARGE, "tags": {1, 2}, "pair": (1, "x"), "numbers": {1: decimal.Decimal("1.5")}},
    "list": [{"id": UUID, "pairs": {(1, "a")}}],
}
ROWS = [FULL, {}, None, {"b": 1}]


@pytest.fixture
def table(tmp_path):
    pd.DataFrame({"q": ROWS}).to_blz(tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", mode="a") as opened:
        yield opened


def rows_of(opened, *names):
    rows = opened.to_pandas(*names)["q"].tolist()
    assert repr(rows) == repr(opened["q"].to_pandas().tolist() if not names else rows)
    return rows


def test_a_renamed_field_is_another_key_and_nothing_else(table):
    table.rename_columns({"q.b": "c", "q.list.item.id": "key"})
    inner = [{"key": UUID, "pairs": {(1, "a")}}]
    assert rows_of(table) == [{**FULL, "list": inner}, {}, None, {"c": 1}]
    table.rename_columns({"q.c": "a", "q.a": "c"})
    others = {key: value for key, value in FULL.items() if key != "a"}
    assert rows_of(table) == [{**others, "c": LARGE, "list": inner}, {}, None, {"a": 1}]


def test_a_renamed_field_keeps_the_kind_of_its_objects(table):
    table.rename_columns({"q.tags": "pair", "q.pair": "tags", "q.list.item.pairs": "set"})
    found = rows_of(table)[0]
    assert found["pair"] == {1, 2}
    assert found["tags"] == (1, "x")
    assert found["list"] == [{"id": UUID, "set": {(1, "a")}}]


def test_a_dropped_field_is_a_key_that_dicts_lack(table):
    table.drop_columns(["q.b", "q.list.item.id"])
    assert rows_of(table) == [{**FULL, "list": [{"pairs": {(1, "a")}}]}, {}, None, {}]
    table.compact()
    table.append(pd.DataFrame({"q": [{"a": 1, "tags": {5}}]}))
    table.delete([("q.a", "==", 1)])
    assert rows_of(table) == [{**FULL, "list": [{"pairs": {(1, "a")}}]}, {}, None, {}]


def test_fields_that_are_read_alone_hold_what_they_hold_in_the_whole(table):
    assert rows_of(table, ["q.a"]) == [{"a": LARGE}, {}, None, {}]
    assert rows_of(table, ["q.tags"]) == [{"tags": {1, 2}}, {}, None, {}]
    found = rows_of(table, ["q.list.item.pairs"])
    assert found == [{"list": [{"pairs": {(1, "a")}}]}, {}, None, {}]


def test_a_tuple_with_other_fields_is_a_dict(table):
    assert rows_of(table, ["q.pair.1"]) == [{"pair": {"1": "x"}}, {}, None, {}]
    table.rename_columns({"q.pair.0": "first"})
    table.drop_columns(["q.list.item.pairs.item.0"])
    inner = [{"id": UUID, "pairs": [{"1": "a"}]}]
    pair = {"first": 1, "1": "x"}
    assert rows_of(table) == [{**FULL, "pair": pair, "list": inner}, {}, None, {"b": 1}]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([UUID, None, UUID, UUID], [{"n": UUID}, {}, None, {"n": UUID}]),
        (pd.Categorical(["x", "y", None, None]), [{"n": "x"}, {"n": "y"}, None, {}]),
        ([[1], [], None, None], [{"n": [1]}, {"n": []}, None, {}]),
        ([{"m": 2}, None, None, {"m": None}], [{"n": {"m": 2}}, {}, None, {"n": {"m": None}}]),
        (pa.array([LARGE, None, 3, 4]), [{"n": LARGE}, {}, None, {"n": 4}]),
        (
            pd.Series(pd.to_datetime([5, 6, 7, None], unit="s")),
            [{"n": datetime.datetime(1970, 1, 1, 0, 0, 5)}, {"n": pd.Timestamp(6, unit="s")}],
        ),
    ],
    ids=["uuid", "category", "list", "struct", "int", "time"],
)
def test_a_new_field_is_a_new_key_of_what_arrow_makes_of_it(table, values, found):
    table.add_column("q.n", values)
    rows = rows_of(table)
    pairs = zip(ROWS, found, strict=False)
    wanted = [None if row is None else {**row, **new} for row, new in pairs]
    assert rows[: len(wanted)] == wanted
    assert "n" not in (rows[2] or {})


def test_dicts_are_appended_to_a_column_that_got_a_field(table):
    table.add_column("q.n", [UUID] * 4)
    new = {"n": uuid.UUID(int=9), "tags": {3}}
    table.append(pd.DataFrame({"q": [new, {"a": 1}]}))
    assert rows_of(table)[-2:] == [new, {"a": 1}]
    table.append(pa.table({"q": [{"a": 4, "score": 2.5}]}), evolve=True)
    assert rows_of(table)[-3:] == [new, {"a": 1}, {"a": 4, "score": 2.5}]
    table.append(pd.DataFrame({"q": [{"n": UUID, "b": 5, "score": 0.5}]}), evolve=True)
    assert rows_of(table)[-1] == {"n": UUID, "b": 5, "score": 0.5}
    assert rows_of(table)[0] == {**FULL, "n": UUID}


def test_another_type_of_one_field_changes_no_other(table):
    type_ = table.schema.field("q").type
    fields = [field.with_type(pa.float64()) if field.name == "b" else field for field in type_]
    table.alter_column("q", dtype=pa.struct(fields))
    assert repr(rows_of(table)[-1]) == "{'b': 1.0}"
    assert rows_of(table)[:3] == ROWS[:3]


def test_the_facts_of_a_version_are_not_those_of_another(table):
    first = table.version
    table.rename_columns({"q.a": "z"})
    with blz.open(table.path, version=first) as old:
        assert rows_of(old) == ROWS
    table.restore(first)
    assert rows_of(table) == ROWS


NAMES = st.sampled_from("abcd")
VALUES = st.recursive(
    st.integers(-9, 9) | st.text("xy", max_size=2),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)


def stored_type(values):
    try:
        array, descriptor = encode_objects(as_objects(values), "x")
    except blz.SchemaError:
        return None
    return array, descriptor


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=3), NAMES)
@example([{"a": 1, "b": (1, "x")}, {"b": (2, "y")}], "b")
def test_a_key_is_dropped_from_any_dicts(rows, name):
    found = stored_type(rows)
    if found is None or not pa.types.is_struct(found[0].type):
        return
    array, descriptor = found
    left = [field for field in array.type if field.name != name]
    new = (
        pa.StructArray.from_arrays(
            [array.field(field.name) for field in left], fields=left, mask=array.is_null()
        )
        if left
        else pa.array([{}] * len(rows), pa.struct([]))
    )
    facts = reshaped(descriptor, array.type, new.type, False)
    wanted = [{key: value for key, value in row.items() if key != name} for row in rows]
    assert decode_objects(pa.chunked_array([new]), facts).tolist() == wanted


@pytest.mark.parametrize(
    "kind", [["record", "int"], {"b": "int"}, {"x": "int"}, ["list", "int"], 5]
)
def test_facts_that_were_false_stay_without_effect(tmp_path, kind):
    field = described(
        pa.field("x", pa.struct([("a", pa.int64())])), {"dtype": "object", "kind": kind}
    )
    assert FIELD_KEY in field.metadata
    type_ = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    assert reshaped({"dtype": "object", "kind": kind}, field.type, type_, False) is None
