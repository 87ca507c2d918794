"""Fields of structs are added, dropped and renamed; other fields keep their files."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.casts import cast_exactly
from blztable.errors import ColumnNotFoundError, ConflictError, SchemaError
from blztable.storage.memory import RamStore
from support.nested_arrays import TYPES, array_of
from support.options import arguments
from support.stores import tree

ROWS = [
    {"city": "Bern", "zip": 1, "inner": {"x": 1}, "items": [{"n": 1, "m": 2}]},
    None,
    {"city": None, "zip": 3, "inner": None, "items": []},
    {"city": "Oslo", "zip": None, "inner": {"x": None}, "items": None},
]
LAYOUTS = [{}, {"row_group_rows": 2}, {"encoding": "plain"}]


@pytest.fixture(params=LAYOUTS, ids=str)
def table(request):
    store = RamStore()
    blz.to_blz(pa.table({"k": range(4), "a": pa.array(ROWS)}), store, **arguments(**request.param))
    with blz.open(store, "a") as opened:
        yield opened


def test_fields_are_dropped_at_any_depth_and_the_others_stay(table):
    table.drop_columns(["a.zip", ("a", "items", "item", "m"), "k"])
    assert table.columns == ["a"]
    assert table["a"][:].to_pylist() == [
        row
        and {
            "city": row["city"],
            "inner": row["inner"],
            "items": row["items"] and [{"n": item["n"]} for item in row["items"]],
        }
        for row in ROWS
    ]
    table.drop_columns(["a.inner.x"])
    assert table["a"].type.field("inner").type == pa.struct([])
    assert table.verify()


def test_fields_change_their_names_at_once(table):
    new = {"a.zip": "city", "a.city": "zip", "a.items.item.n": "m", "a.items.item.m": "n", "a": "b"}
    table.rename_columns(new)
    assert table["b.city"][:].to_pylist() == [1, None, 3, None]
    assert table["b.zip"][:].to_pylist() == ["Bern", None, None, "Oslo"]
    assert table["b"][0]["items"] == [{"m": 1, "n": 2}]


def test_fields_are_renamed_and_keep_their_values(table):
    table.rename_columns(
        {"a.inner.x": "y", "a.items.item.n": "number", "k": "key", "a.zip": "post"}
    )
    assert table.columns == ["key", "a"]
    assert table["a.inner.y"][:].to_pylist() == [1, None, None, None]
    assert table["a.post"][:].to_pylist() == [1, None, 3, None]
    assert table["a"][0]["items"] == [{"number": 1, "m": 2}]
    assert table.verify()


def test_fields_of_the_keys_of_maps_are_read_dropped_and_renamed():
    type_ = pa.map_(pa.struct([("x", pa.int64()), ("y", pa.string())]), pa.float64())
    rows = pa.array([[({"x": 1, "y": "a"}, 0.5)], None], type_)
    blz.to_blz(pa.table({"m": rows}), store := RamStore())
    with blz.open(store, "a") as table:
        assert table.to_arrow(["m.key.x"])["m"].to_pylist() == [[({"x": 1}, 0.5)], None]
        table.rename_columns({"m.key.y": "z"})
        assert table["m"][:].to_pylist() == [[({"x": 1, "z": "a"}, 0.5)], None]
        table.drop_columns(["m.key.x"])
        assert table["m"][:].to_pylist() == [[({"z": "a"}, 0.5)], None]
        assert table.verify()


VALUES = {
    "an array": (["a", "b", "c", "d"], ["a", "b", "c", "d"]),
    "a scalar": (7, [7] * 4),
    "lists": ([[1], None, [2, 3], []], [[1], None, [2, 3], []]),
    "structs": ([{"p": 1}, {"p": 2}, None, {"p": None}], [{"p": 1}, {"p": 2}, None, {"p": None}]),
    "an expression": (pc.field("k") * 2, [0, 2, 4, 6]),
    "a category": (pa.array(["x", "y", "x", None]).dictionary_encode(), ["x", "y", "x", None]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("parent", ["a", "a.inner"])
def test_a_new_field_has_a_value_where_its_struct_is_no_null(table, parent, name):
    values, rows = VALUES[name]
    table.add_column(f"{parent}.new", values)
    has_struct = table[parent][:].is_valid().to_pylist()
    wanted = [row if is_there else None for row, is_there in zip(rows, has_struct, strict=True)]
    assert table[f"{parent}.new"][:].to_pylist() == wanted
    found = [row and (row if parent == "a" else row["inner"]) for row in table["a"][:].to_pylist()]
    assert [row and row["new"] for row in found] == wanted
    assert table[f"{parent}.new"].streams()
    assert table.verify()
    table.compact()
    assert table[f"{parent}.new"][:].to_pylist() == wanted
    table.drop_columns([f"{parent}.new"])
    assert table["a"][:].to_pylist() == ROWS


def test_other_fields_are_neither_read_nor_written(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({"a": pa.array(ROWS)}), path, storage=blz.Storage(page_rows=8))
    with blz.open(path, "a") as opened:
        before = set(path.rglob("*.bin"))
        opened.add_column("a.new", [1, 2, 3, 4])
        after = set(path.rglob("*.bin"))
        assert len(after - before) == 1
        opened.rename_columns({"a.new": "newer"})
        opened.drop_columns(["a.city"])
        assert set(path.rglob("*.bin")) == after
        opened.vacuum(keep=1)
        assert before - set(path.rglob("*.bin"))
        assert opened["a.newer"][:].to_pylist() == [1, None, 3, 4]


REFUSED = {
    "the items of a list": (lambda t: t.drop_columns(["a.items.item"]), "only fields of structs"),
    "a name that is taken": (lambda t: t.rename_columns({"a.zip": "city"}), "already has a field"),
    "a field that is there": (lambda t: t.add_column("a.zip", 1), "already has a field 'zip'"),
    "a field in a list": (lambda t: t.add_column("a.items.item.q", 1), "a value for each row"),
    "too few values": (lambda t: t.add_column("a.q", [1]), "1 values for a table of 4 rows"),
    "a type not stored": (
        lambda t: t.add_column("a.q", pa.nulls(4, pa.binary(1 << 28))),
        "'q'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_told_and_nothing_of_it_stays(table, case):
    verb, message = REFUSED[case]
    before = tree(table._snapshot.version.store)
    with pytest.raises(SchemaError, match=message):
        verb(table)
    assert tree(table._snapshot.version.store) == before
    assert table["a"][:].to_pylist() == ROWS


def test_a_field_that_does_not_exist_is_told(table):
    for verb in (
        lambda: table.drop_columns(["k", "a.nope"]),
        lambda: table.rename_columns({"a.nope": "x"}),
    ):
        with pytest.raises(ColumnNotFoundError, match=r"a\.nope"):
            verb()
    assert table.columns == ["k", "a"]
    with pytest.raises(ColumnNotFoundError, match=r"a\.zip"):
        table.alter_column("a.zip", position=0)


def test_a_tuple_is_a_path_also_of_one_name(table):
    table.rename_columns({("a", "zip"): "code", ("k",): "key"})
    assert table["a"].type.get_field_index("code") >= 0
    assert table[("key",)][:] == table["key"][:]
    assert table.to_arrow(columns=[("key",), ("a", "code")]).column_names == ["key", "a"]
    table.drop_columns([("key",)])
    assert table.columns == ["a"]


def test_a_field_is_told_where_a_whole_column_is_needed(table):
    for act in (
        lambda: table.update({"a.zip": 1}),
        lambda: table.compact(sort_by="a.zip"),
    ):
        with pytest.raises(ColumnNotFoundError, match=r"'a\.zip' is a field .*whole column"):
            act()


def test_a_name_with_a_dot_behind_no_struct_is_that_of_a_column(table):
    table.add_column("b.c", 1)
    assert table.columns == ["k", "a", "b.c"]


def test_changes_of_fields_rely_on_the_columns_and_a_new_one_on_the_rows(table):
    store = table._snapshot.version.store
    behind = [blz.open(store, "a", retries=0) for _ in range(3)]
    table.append({"k": [9], "a": [None]})
    with pytest.raises(ConflictError, match="rows of version"):
        behind[1].add_column("a.new", [1, 2, 3, 4])
    behind[0].drop_columns(["a.city"])
    with pytest.raises(ConflictError, match="columns of version"):
        behind[2].rename_columns({"a.zip": "post"})
    with blz.open(store) as newest:
        assert newest["a.zip"][:].to_pylist() == [1, None, 3, None, None]


def test_several_changes_of_fields_are_one_transaction(table):
    with table.transaction() as tx:
        tx.add_column("a.new", pc.field("k") + 1)
        tx.rename_columns({"a.new": "next"})
        tx.delete(pc.field("a", "next") == 3)
        tx.append(
            {"k": [8], "a": [{"city": "Rom", "zip": 5, "inner": None, "items": [], "next": 9}]}
        )
        tx.drop_columns(["a.city", "a.items"])
        tx.update({"k": -1}, pc.field("a", "next") == 9)
    assert table.to_arrow().to_pylist() == [
        {"k": 0, "a": {"zip": 1, "inner": {"x": 1}, "next": 1}},
        {"k": 1, "a": None},
        {"k": 3, "a": {"zip": None, "inner": {"x": None}, "next": 4}},
        {"k": -1, "a": {"zip": 5, "inner": None, "next": 9}},
    ]
    assert table.verify()
    table.restore(1)
    assert table["a"][:].to_pylist() == ROWS


def test_a_frame_loses_a_field_of_its_dicts():
    import pandas as pd

    store = RamStore()
    blz.to_blz(pd.DataFrame({"d": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]}), store)
    with blz.open(store, "a") as opened:
        opened.drop_columns(["d.b"])
        assert opened.to_pandas()["d"].tolist() == [{"a": 1}, {"a": 2}]


@given(TYPES, st.integers(0, 2**32), st.integers(0, 9))
@settings(max_examples=12)
def test_a_field_of_any_type_is_added_and_dropped(type_, seed, rows):
    if pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_):
        return
    values = array_of(type_, rows, seed)
    mask = np.random.default_rng(seed).random(rows) < 0.3
    struct = pa.StructArray.from_arrays([pa.array(range(rows))], ["n"], mask=pa.array(mask))
    store = RamStore()
    blz.to_blz(pa.table({"a": struct}), store, storage=blz.Storage(row_group_rows=4))
    with blz.open(store, "a") as opened:
        opened.add_column("a.new", values)
        wanted = [
            None if gone else value for gone, value in zip(mask, values.to_pylist(), strict=True)
        ]
        assert repr(opened["a.new"][:].to_pylist()) == repr(wanted)
        assert opened.verify()
        opened.drop_columns(["a.n"])
        assert opened["a"].type == pa.struct([("new", type_)])
        assert repr(opened["a.new"].to_arrow().to_pylist()) == repr(wanted)


# Values of nested types


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([[1], [], None], pa.list_(pa.int8())),
        ([[], None], pa.list_(pa.struct([("x", pa.int64())]))),
        ([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
        ([[1], [2]], pa.large_list(pa.decimal128(5, 0))),
        ([[1], [], None], pa.list_view(pa.int8())),
        ([{"a": [1]}], pa.struct([("a", pa.large_list_view(pa.int8()))])),
        ([{"a": 1}, None, {"a": None}], pa.struct([("b", pa.string()), ("a", pa.float64())])),
        ([{"a": [{"b": 1}]}], pa.struct([("a", pa.list_(pa.struct([("b", pa.int8())])))])),
        ([{"a": None}], pa.struct([("a", pa.map_(pa.string(), pa.int8()))])),
    ],
    ids=str,
)
def test_python_values_fit_the_type_of_a_nested_column_if_none_changes(values, type_):
    store = RamStore()
    with blz.create(store, {"a": type_}) as opened:
        opened.append({"a": values})
        found = opened["a"][:]
    assert found.type == type_
    assert found.to_pylist() == pa.array(values, type_).to_pylist()


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([[1], [300]], pa.list_(pa.int8())),
        ([[1, 2], [3]], pa.list_(pa.int8(), 2)),
        ([{"a": 1, "b": 2}], pa.struct([("a", pa.int64())])),
        ([{"a": 1.5}], pa.struct([("a", pa.int64())])),
        ([[1]], pa.struct([("a", pa.int64())])),
    ],
    ids=str,
)
def test_python_values_that_would_change_in_a_nested_column_are_refused(values, type_):
    store = RamStore()
    with blz.create(store, {"a": type_}) as opened:
        with pytest.raises(SchemaError, match=r"'a'.*without loss"):
            opened.append({"a": values})
        assert len(opened) == 0


# Drift


# What needs no `evolve`: nothing new, or values where there were only nulls.
TAKEN = ("a field that lacks", "empty lists", "nulls", "nulls and structs")
DRIFT = {
    "nulls": ([None, None], [[1, 2], None], pa.list_(pa.int64())),
    "nulls and structs": ([None], [{"a": [1]}], pa.struct([("a", pa.list_(pa.int64()))])),
    "empty lists": ([[], []], [[1]], pa.list_(pa.int64())),
    "wider items": (pa.array([[1]], pa.list_(pa.int8())), [[300]], pa.list_(pa.int64())),
    "wider items of one size": (
        pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
        [[300, None], None],
        pa.list_(pa.int64(), 2),
    ),
    "wider items of views": (
        pa.array([[1], None], pa.list_view(pa.int8())),
        [[300]],
        pa.list_view(pa.int64()),
    ),
    "a new field": ([{"a": 1}, None], [{"a": 2, "b": "x"}], None),
    "a field that lacks": ([{"a": 1, "b": "x"}], [{"b": "y"}], None),
    "a field in a list": ([[{"a": 1}]], [[{"a": 2, "b": 0.5}], None], None),
    "a wider field": ([{"a": 1}], [{"a": 1.5}], pa.struct([("a", pa.float64())])),
}


@pytest.mark.parametrize("layout", [{}, {"row_group_rows": 1}], ids=str)
@pytest.mark.parametrize("case", DRIFT)
def test_nested_columns_drift_as_others_do(case, layout):
    first, more, type_ = DRIFT[case]
    store = RamStore()
    blz.to_blz({"a": first}, store, **arguments(**layout))
    both = [*pa.array(first).to_pylist(), *more]
    with blz.open(store, "a") as opened:
        if case not in TAKEN:
            with pytest.raises(SchemaError, match="pass evolve=True"):
                opened.append({"a": more})
        opened.append({"a": more}, evolve=case not in TAKEN)
        assert opened["a"][:].to_pylist() == pa.array(both).to_pylist()
        assert type_ is None or opened["a"].type == type_
        assert opened.verify()
        opened.compact()
        opened.vacuum(keep=1)
        assert opened["a"][:].to_pylist() == pa.array(both).to_pylist()
        assert opened.verify()


def test_a_column_of_a_nested_type_gets_another_one(table):
    wide = pa.struct(
        [
            ("more", pa.float64()),
            ("zip", pa.float32()),
            ("items", pa.large_list(pa.struct([("m", pa.int8()), ("n", pa.int8())]))),
            ("inner", pa.struct([("x", pa.int8())])),
            ("city", pa.large_string()),
        ]
    )
    table.alter_column("a", dtype=wide)
    assert table["a"].type == wide
    assert table["a"][:].to_pylist() == [row and {"more": None, **row} for row in ROWS]
    assert table.verify()
    with pytest.raises(SchemaError, match=r"'a'.*cannot become"):
        table.alter_column("a", dtype=pa.struct([("city", pa.string())]))
    with table.transaction() as tx:
        tx.alter_column("a", dtype=table["a"].type, nullable=True)
        tx.rename_columns({"a.more": "less"})
        tx.append({"k": [9], "a": [{"less": 0.5}]})
        tx.delete(pc.field("a", "zip") == 1)
    assert table["a.less"][:].to_pylist() == [None, None, None, 0.5]
    assert table.verify()


LIST_KINDS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


@pytest.mark.parametrize("kind", LIST_KINDS)
@pytest.mark.parametrize("other", LIST_KINDS)
def test_lists_of_any_kind_become_those_of_any_other(kind, other):
    values = [[1, None], None, [], [2]]
    store = RamStore()
    blz.to_blz(pa.table({"a": pa.array([[7], *values], kind(pa.int8()))[1:]}), store)
    with blz.open(store, "a") as opened:
        opened.alter_column("a", dtype=other(pa.int32()))
        opened.append({"a": [[300], []]})
        assert opened["a"].type == other(pa.int32())
        assert opened["a"][:].to_pylist() == [*values, [300], []]
        assert opened.verify()


def _wider(type_: pa.DataType) -> pa.DataType:
    """Return the type with large lists and wide integers."""
    kinds = pa.types
    if kinds.is_struct(type_):
        return pa.struct([field.with_type(_wider(field.type)) for field in type_])
    if kinds.is_list(type_):
        return pa.large_list(_wider(type_.value_type))
    if kinds.is_map(type_):
        return pa.map_(type_.key_type, _wider(type_.item_type))
    return pa.int64() if type_ == pa.int8() else type_


@given(TYPES, st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 9))
@settings(max_examples=20)
def test_a_cast_of_a_nested_type_changes_no_value_and_its_opposite_gives_it_back(
    type_, seed, rows, start
):
    column = pa.chunked_array([array_of(type_, rows, seed).slice(start)])
    wide = _wider(type_)
    found = cast_exactly(column, wide)
    assert found is not None
    found.validate(full=True)
    assert found.type == wide
    assert repr(found.to_pylist()) == repr(column.to_pylist())
    back = cast_exactly(found, type_)
    assert back is not None
    assert repr(back.to_pylist()) == repr(column.to_pylist())


# Arrow aborts the process where it gives a union the nulls of its struct.
def test_fields_of_unions_and_runs_are_added_and_widened_below_nulls():
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    )
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), ["r", None])
    mask = pa.array([False, True, False])
    first = pa.array([1, 2, 3], pa.int8())
    structs = pa.StructArray.from_arrays([first, union, runs], ["n", "u", "r"], mask=mask)
    blz.to_blz({"a": structs}, store := RamStore())
    with blz.open(store, "a") as table:
        table.add_column("a.more", union)
        table.add_column("a.runs", runs)
        big = pa.array([1, 2, 300])
        wide = pa.StructArray.from_arrays([big, union, runs], ["n", "u", "r"], mask=mask)
        table.append({"a": wide}, evolve=True)
        rows = structs.to_pylist()
        more = [row and row | {"more": row["u"], "runs": row["r"]} for row in rows]
        less = [row and row | {"more": None, "runs": None} for row in wide.to_pylist()]
        assert table["a"][:].to_pylist() == more + less
        assert table["a"].type.field("n").type == pa.int64()
        assert table.verify()


@pytest.mark.parametrize("ends", [pa.int16(), pa.int32(), pa.int64()], ids=str)
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "b"]),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), ["a", "b"]),
        pa.array([[1, 2], None, []]),
        pa.array([{"a": 1}, None, {"a": 2}]),
        pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda values: str(values.type)[:20],
)
def test_plain_values_are_appended_to_runs_of_any_type(values, ends):
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], ends), values)
    blz.to_blz(pa.table({"x": runs, "k": range(5)}), store := RamStore())
    with blz.open(store, "a") as t:
        t.append({"x": values.to_pylist(), "k": [5, 6, 7]})
        t.append(t.to_arrow().to_pylist())
        assert t["x"][:].type == runs.type
        assert t["x"][:].to_pylist() == (runs.to_pylist() + values.to_pylist()) * 2
