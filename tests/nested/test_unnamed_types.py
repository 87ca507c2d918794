"""Types without a field: extension types in dictionaries and runs, and run ends of 16 bits."""

import pickle
import uuid

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.extension_names import NAME
from blztable.arrow.extensions import plain_schema, registered_schema
from blztable.arrow.run_ends import MOST_ROWS, narrowed, widened
from blztable.arrow.unnamed import VALUES_NAME
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.nested_arrays import array_of, rows_of
from support.options import arguments

UUIDS = pa.ExtensionArray.from_storage(
    pa.uuid(), pa.array([uuid.UUID(int=7).bytes, None, uuid.UUID(int=9).bytes], pa.binary(16))
)
CODED = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 0], pa.int8()), UUIDS)
ENDS = pa.array([1, 3, 5], pa.int16())
ARRAYS = {
    "dictionary": CODED,
    "ordered": pa.DictionaryArray.from_arrays(CODED.indices, UUIDS, ordered=True),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3, 5], pa.int64()), UUIDS),
    "short runs": pa.RunEndEncodedArray.from_arrays(ENDS, UUIDS),
    "short runs of text": pa.RunEndEncodedArray.from_arrays(ENDS, ["a", None, "b"]),
    "runs of a dictionary": pa.RunEndEncodedArray.from_arrays(ENDS, CODED[:3]),
    "list": pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 5, 5], pa.int32()), CODED),
    "struct": pa.StructArray.from_arrays(
        [CODED, pa.RunEndEncodedArray.from_arrays(ENDS, [1, 2, 3]), UUIDS.take([0, 1, 2, 1, 0])],
        fields=[
            pa.field("d", CODED.type, nullable=False, metadata={"k": "v"}),
            pa.field("r", pa.run_end_encoded(pa.int16(), pa.int64())),
            pa.field("u", pa.uuid()),
        ],
        mask=pa.array([False, True, False, False, False]),
    ),
    "map": pa.MapArray.from_arrays(pa.array([0, 1, 1, 3, 3, 5], pa.int32()), list("abcde"), CODED),
}
NARROW = pa.run_end_encoded(pa.int16(), pa.string())
NARROWS = [
    NARROW,
    pa.list_(NARROW),
    pa.large_list_view(NARROW),
    pa.list_view(pa.list_(NARROW)),
    pa.map_(pa.string(), NARROW),
    pa.list_(NARROW, 2),
    pa.dense_union([pa.field("a", NARROW), pa.field("b", pa.int8())]),
    pa.sparse_union([pa.field("a", NARROW), pa.field("b", pa.int8())]),
    pa.struct([pa.field("a", pa.list_(NARROW)), pa.field("b", NARROW)]),
    pa.run_end_encoded(pa.int32(), pa.list_(NARROW)),
]


def table_of(array: pa.Array) -> pa.Table:
    field = pa.field("a", array.type, metadata={"mine": "kept"})
    rows = pa.array(range(len(array)))
    return pa.table([rows, array], schema=pa.schema([pa.field("k", pa.int64()), field]))


@pytest.mark.parametrize("layout", [{}, {"row_group_rows": 2}, {"encoding": "plain"}], ids=str)
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_through_every_read_and_change(name, layout):
    table = table_of(ARRAYS[name])
    rows = table["a"].to_pylist()
    blz.to_blz(table, store := RamStore(), **arguments(**layout))
    with blz.open(store, "a") as opened:
        found = opened.to_arrow()
        found.validate(full=True)
        assert found.schema.equals(table.schema, check_metadata=True)
        assert found["a"].to_pylist() == rows
        opened.append(table)
        assert opened["a"].type == table["a"].type
        assert opened["a"][3:7].to_pylist() == (rows * 2)[3:7]
        assert opened.take([7, 0, 7])["a"].to_pylist() == [rows[2], rows[0], rows[2]]
        batches = pa.Table.from_batches(opened.to_batches(batch_rows=4))
        assert batches.schema.equals(table.schema)
        opened.delete(pc.field("k") == 1)
        opened.update({"a": ARRAYS[name][2]}, where=pc.field("k") == 4)
        opened.compact()
        wanted = [rows[0], rows[2], rows[3], rows[2]] * 2
        assert opened.to_arrow()["a"].to_pylist() == wanted
        opened.add_column("b", ARRAYS[name][0])
        assert opened.dataset().to_table(columns=["b"]).schema.types == [table["a"].type]
        assert opened["b"][:].to_pylist() == [rows[0]] * 8
        assert opened.verify()


@pytest.mark.parametrize("name", ARRAYS)
def test_a_plain_schema_and_the_shown_one_are_opposites(name):
    schema = table_of(ARRAYS[name]).schema
    plain = plain_schema(schema)
    assert pa.ipc.read_schema(plain.serialize()).equals(plain, check_metadata=True)
    assert "extension" not in str(plain.types)
    assert "int16" not in str(plain.types)
    assert registered_schema(plain).equals(schema, check_metadata=True)
    assert plain_schema(plain) is plain


@settings(max_examples=30)
@given(st.sampled_from(NARROWS), st.integers(0, 30), st.integers(0, 9), st.integers(0, 1 << 32))
def test_run_ends_are_widened_and_narrowed_without_a_change_of_rows(type_, rows, before, seed):
    array = array_of(type_, before + rows + 3, seed).slice(before, rows)
    wide = widened(array)
    wide.validate(full=True)
    assert "int16" not in str(wide.type)
    assert rows_of(wide) == rows_of(array)
    (back,) = narrowed(wide, type_)
    back.validate(full=True)
    assert back.type == type_
    assert rows_of(back) == rows_of(array)


def long_runs(rows: int) -> pa.Array:
    """Return runs of two rows each, with ends of 32 bits."""
    ends = np.arange(2, rows + 2, 2).clip(max=rows)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), ends.astype(str))


@pytest.mark.parametrize("form", ["root", "struct", "list"])
def test_a_column_of_short_runs_is_cut_where_their_ends_stop(form):
    rows = 2 * MOST_ROWS + 10
    runs, type_ = long_runs(rows), NARROW
    if form == "struct":
        runs, type_ = pa.StructArray.from_arrays([runs], ["a"]), pa.struct([("a", NARROW)])
    if form == "list":
        offsets = np.append(np.arange(0, rows, 10_000), rows).astype("i4")
        runs, type_ = pa.ListArray.from_arrays(offsets, runs), pa.list_(NARROW)
    pieces = list(narrowed(runs, type_))
    assert [piece.validate(full=True) for piece in pieces] == [None] * len(pieces)
    assert len(pieces) == 3
    wanted = pa.chunked_array(pieces).to_pylist()
    assert wanted == runs.to_pylist()
    # A row group that grew of many arrays has more rows than the ends of each reach.
    table = pa.table({"a": pa.chunked_array(pieces)})
    blz.to_blz(table, store := RamStore())
    with blz.open(store, "a") as opened:
        assert len(opened._snapshot.version.row_groups) == 1
        found = opened.to_arrow()
        found.validate(full=True)
        assert found.schema == table.schema
        assert found["a"].to_pylist() == wanted
        opened.update({"a": pieces[0][0]})
        opened.append(table)
        opened.compact()
        found = opened.to_arrow()
        found.validate(full=True)
        assert found["a"].to_pylist() == [wanted[0]] * len(wanted) + wanted
        order = np.arange(len(found))[::-1].copy()
        assert opened.take(order)["a"].to_pylist() == found["a"].to_pylist()[::-1]
        if form != "list":
            with pytest.raises(SchemaError, match=r"do not fit into one array .* with to_arrow"):
                opened["a"][:]
            assert sum(len(one) for one in opened.to_batches()) == 2 * rows
            assert len(opened.to_pandas()) == 2 * rows
        assert opened.verify()


def test_a_list_with_more_runs_than_their_ends_reach_is_refused():
    lists = pa.ListArray.from_arrays([0, MOST_ROWS + 1], long_runs(MOST_ROWS + 1))
    with pytest.raises(SchemaError, match="more items than run ends of 16 bits reach"):
        list(narrowed(lists, pa.list_(NARROW)))


def test_run_ends_change_their_width_without_a_file_that_is_written(tmp_path):
    blz.to_blz(pa.table({"a": ARRAYS["short runs of text"]}), tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", "a") as opened:
        files = sorted(tmp_path.rglob("*.bin"))
        opened.alter_column("a", dtype=pa.run_end_encoded(pa.int32(), pa.string()))
        assert opened.to_arrow().schema.field("a").metadata == {}
        assert opened.schema.types == [pa.run_end_encoded(pa.int32(), pa.string())]
        opened.alter_column("a", dtype=NARROW)
        assert opened.schema.types == [NARROW]
        assert sorted(tmp_path.rglob("*.bin")) == files
        opened.append({"a": ["plain", "values"]})
        for type_ in (pa.string(), pa.dictionary(pa.int8(), pa.string()), NARROW):
            opened.alter_column("a", dtype=type_)
            assert opened.schema.types == [type_]
            assert opened["a"][:].to_pylist() == ["a", None, None, "b", "b", "plain", "values"]


def test_values_of_an_extension_type_may_be_coded_or_not():
    blz.to_blz(pa.table({"a": CODED}), store := RamStore())
    with blz.open(store, "a") as opened:
        opened.append({"a": UUIDS})
        opened.update({"a": UUIDS[2]}, where=pc.field("a").is_null())
        assert opened["a"].type == CODED.type
        wanted = [uuid.UUID(int=number) for number in (7, 9, 9, 9, 7, 7, 9, 9)]
        assert opened["a"][:].to_pylist() == wanted
        assert opened.count(filters=pc.field("a") == uuid.UUID(int=9).bytes) == 5
        opened.alter_column("a", default=UUIDS[0])
        opened.add_column("n", range(8))
        opened.append({"n": [8]})
        assert opened["a"][8:].to_pylist() == [uuid.UUID(int=7)]
        other = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1"]))
        with pytest.raises(SchemaError, match=r"arrow\.json cannot be stored as arrow\.uuid"):
            opened.append({"a": other.storage.dictionary_encode().dictionary.cast(pa.json_())})
        opened.alter_column("a", dtype=pa.uuid())
        assert opened["a"].type == pa.uuid()
        opened.alter_column("a", dtype=CODED.type)
        assert opened["a"].type == CODED.type
        assert opened["a"][:].to_pylist() == [*wanted, uuid.UUID(int=7)]


def test_a_field_is_read_dropped_and_added_with_its_type():
    blz.to_blz(table_of(ARRAYS["struct"]), store := RamStore())
    with blz.open(store, "a") as opened:
        for name in ("d", "r", "u"):
            field = ARRAYS["struct"].type.field(name)
            assert opened.to_arrow([f"a.{name}"]).schema.field("a").type == pa.struct([field])
            assert opened[f"a.{name}"].type == field.type
        opened.rename_columns({"a.r": "runs"})
        opened.drop_columns(["a.u"])
        opened.add_column("a.more", CODED)
        types = [opened.schema.field("a").type.field(number).type for number in range(3)]
        assert types == [CODED.type, pa.run_end_encoded(pa.int16(), pa.int64()), CODED.type]


def test_an_unknown_extension_type_of_values_leaves_its_name():
    class Known(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.int8(), "tests.known")

        def __arrow_ext_serialize__(self):
            return b"parameters"

        @classmethod
        def __arrow_ext_deserialize__(cls, storage, serialized):
            assert serialized == b"parameters"
            return cls()

    pa.register_extension_type(Known())
    try:
        values = pa.ExtensionArray.from_storage(Known(), pa.array([1, 2], pa.int8()))
        coded = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), values)
        blz.to_blz(pa.table({"a": coded}), store := RamStore())
        assert blz.read_table(store)["a"].type == coded.type
    finally:
        pa.unregister_extension_type("tests.known")
    found = blz.read_table(store)
    assert found.schema.types == [pa.dictionary(pa.int8(), pa.int8())]
    assert found.schema.field("a").metadata[VALUES_NAME] == b"tests.known"
    assert NAME not in found.schema.field("a").metadata
    blz.to_blz(found, again := RamStore())
    pa.register_extension_type(Known())
    try:
        assert blz.read_table(again)["a"].type == coded.type
    finally:
        pa.unregister_extension_type("tests.known")


def test_pandas_and_engines_see_the_values():
    runs = ARRAYS["short runs of text"]
    blz.to_blz(pa.table({"d": CODED, "r": runs}), store := RamStore())
    one, other = uuid.UUID(int=7), uuid.UUID(int=9)
    with blz.open(store) as opened, duckdb.connect() as engine:
        frame = opened.to_pandas()
        assert frame["d"].tolist() == [one, None, other, None, one]
        assert frame["r"].isna().tolist() == [False, True, True, False, False]
        engine.register("ours", opened.dataset())
        found = engine.execute("select d, r from ours where r = 'b'").fetchall()
        assert found == [(None, "b"), (one, "b")]
        assert isinstance(opened.to_pandas(dtype_backend="pyarrow")["d"].dtype, pd.ArrowDtype)


# Arrow's own nulls of runs inside of nested types are invalid.
@pytest.mark.parametrize("ends", [pa.int16(), pa.int32()], ids=str)
def test_nulls_of_runs_within_other_types_are_taken(ends):
    runs = pa.run_end_encoded(ends, pa.int8())
    blz.to_blz({"k": range(3)}, store := RamStore())
    with blz.open(store, "a") as opened:
        for number, type_ in enumerate(
            [
                runs,
                pa.struct([("a", runs)]),
                pa.list_(runs, 2),
                pa.dense_union([pa.field("a", runs)]),
            ]
        ):
            opened.add_column(f"x{number}", pa.nulls(3, type_))
            found = opened.to_arrow([f"x{number}"])
            found.validate(full=True)
            assert found.schema.types == [type_]
            assert found[f"x{number}"].to_pylist() == [None] * 3


@pytest.mark.parametrize("beside", [{}, {"u": UUIDS[:1]}], ids=["alone", "beside"])
@pytest.mark.parametrize("is_deep", [False, True])
def test_a_dictionary_of_dictionaries_is_refused_with_a_remedy_that_works(beside, is_deep):
    inner = pa.array(["a"]).dictionary_encode()
    array = pa.DictionaryArray.from_arrays(pa.array([0]), inner)
    wrap = (lambda one: pa.StructArray.from_arrays([one], ["x"])) if is_deep else (lambda one: one)
    with pytest.raises(SchemaError, match=r"'a'.*dictionary of dictionaries; .*dictionary_decode"):
        blz.to_blz({**beside, "a": wrap(array)}, RamStore())
    decoded = wrap(array.dictionary_decode())
    blz.to_blz({**beside, "a": decoded}, store := RamStore())
    assert blz.read_table(store)["a"].to_pylist() == decoded.to_pylist()


def test_an_extension_type_of_short_runs_is_refused_with_a_remedy_that_works():
    runs = ARRAYS["short runs of text"]
    array = pa.ExtensionArray.from_storage(pa.opaque(runs.type, "a", "b"), runs)
    with pytest.raises(SchemaError, match=r"'a'.*pass its storage, such as array\.storage"):
        blz.to_blz({"a": array}, RamStore())
    blz.to_blz({"a": array.storage}, store := RamStore())
    assert blz.read_table(store)["a"].type == runs.type


@pytest.mark.parametrize("values", [pa.int8(), pa.string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("kind", ["list", "view", "map"])
def test_rows_without_items_of_short_runs_enter_by_each_verb(tmp_path, kind, values):
    ends = pa.array([2, 3], pa.int16())
    runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array([1, 2]).cast(pa.string()).cast(values))
    if kind == "map":
        items = pa.MapArray.from_arrays([0, 3, 3], pa.array(["x", "y", "z"]), runs)
    elif kind == "list":
        items = pa.ListArray.from_arrays([0, 3, 3], runs)
    else:
        items = pa.ListViewArray.from_arrays([0, 3], [3, 0], runs)
    table, path = pa.table({"k": [1, 2], "items": items}), tmp_path / "t.blz"
    blz.to_blz(table, path)
    with blz.open(path, "a") as t:
        t.append(table[1:].set_column(0, "k", [[3]]))
        t.upsert(t.to_arrow()[1:].set_column(0, "k", [[4, 5]]), on="k")
        found = t.to_arrow()
    for row in range(5):
        found[row : row + 1].validate(full=True)
        pickle.dumps(found[row : row + 1])
    assert [len(row) for row in found["items"].to_pylist()] == [3, 0, 0, 0, 0]
    assert found["items"][0] == table["items"][0]
