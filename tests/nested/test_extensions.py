"""Extension types: stored as their storage, and shown as what is registered here."""

import json
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
from blztable.arrow.extensions import KEPT_NAME, NAME, PARAMETERS, plain_schema, registered_schema
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.nested_arrays import TYPES, array_of
from support.options import arguments


class Meters(pa.ExtensionType):
    """Integers with a parameter; the class refuses some."""

    def __init__(self, scale, storage=None):
        self.scale = scale
        super().__init__(storage or pa.int64(), "tests.meters")

    def __arrow_ext_serialize__(self):
        return self.scale.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        if serialized == b"refused":
            raise KeyError(serialized)
        return cls(serialized.decode(), storage)


@pytest.fixture
def meters():
    pa.register_extension_type(Meters("cm"))
    yield Meters
    pa.unregister_extension_type("tests.meters")


def of(type_, values) -> pa.Array:
    storage = pa.array(values, type_.storage_type)
    return pa.ExtensionArray.from_storage(type_, storage)


UUIDS = of(pa.uuid(), [uuid.UUID(int=7).bytes, None, uuid.UUID(int=9).bytes])
ARRAYS = {
    "uuid": UUIDS,
    "json": of(pa.json_(), ['{"a": 1}', None, "[2]"]),
    "bool8": of(pa.bool8(), [1, None, 0]),
    "opaque": of(pa.opaque(pa.string(), "geometry", "tests"), ["x", None, "y"]),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.arange(18, dtype="f4").reshape(3, 2, 3)
    ),
    "list of uuids": pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), UUIDS),
    "struct of uuid and json": pa.StructArray.from_arrays(
        [UUIDS, of(pa.json_(), ["1", "2", None])],
        fields=[
            pa.field("id", pa.uuid(), nullable=False, metadata={"k": "v"}),
            pa.field("j", pa.json_()),
        ],
        mask=pa.array([False, True, False]),
    ),
    "storage that is nested": of(
        pa.opaque(pa.struct([("x", pa.float64()), ("y", pa.float64())]), "point", "tests"),
        [{"x": 1.0, "y": 2.0}, None, {"x": None, "y": 3.0}],
    ),
    "storage that is a dictionary": pa.ExtensionArray.from_storage(
        pa.opaque(pa.dictionary(pa.int32(), pa.string()), "word", "tests"),
        pa.array(["a", None, "b"]).dictionary_encode(),
    ),
}
LAYOUTS = [{}, {"row_group_rows": 2}, {"encoding": "plain"}]


def table_of(array, name="a") -> pa.Table:
    field = pa.field(name, array.type, metadata={"mine": "kept"})
    return pa.table([array], schema=pa.schema([field], metadata={"of": "all"}))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_through_every_read_and_change(name, layout):
    table = table_of(ARRAYS[name])
    store = RamStore()
    blz.to_blz(table, store, **arguments(**layout))
    with blz.open(store, "a") as opened:
        assert opened.schema.equals(table.schema, check_metadata=True)
        opened.append(table)
        twice = pa.concat_tables([table, table])
        assert opened.to_arrow().equals(twice, check_metadata=True)
        assert opened["a"].type == table["a"].type
        assert opened["a"][:].to_pylist() == twice["a"].to_pylist()
        assert opened.take([5, 0])["a"].to_pylist() == [
            twice["a"][5].as_py(),
            twice["a"][0].as_py(),
        ]
        batches = list(opened.to_batches(batch_rows=4))
        assert pa.Table.from_batches(batches).equals(twice)
        opened.delete(pc.field("a").is_null())
        opened.compact()
        assert opened.to_arrow().equals(twice.filter(twice["a"].is_valid()))
        opened.add_column("b", ARRAYS[name].slice(0, 1).take(pa.array([0] * len(opened))))
        assert opened["b"].type == table["a"].type
        opened.update({"b": opened["a"][:]})
        assert opened["b"][:].to_pylist() == opened["a"][:].to_pylist()
        assert opened.verify()


def test_a_class_that_is_not_registered_leaves_the_storage_with_its_name(meters):
    both = pa.struct([pa.field("m", meters("km"), metadata={"k": "v"})])
    inner = of(meters("km"), [1, None])
    table = pa.table(
        {
            "a": of(meters("mm"), [3, None]),
            "s": pa.StructArray.from_arrays([inner], fields=list(both)),
        }
    )
    store = RamStore()
    blz.to_blz(table, store)
    assert blz.read_table(store).equals(table)
    assert blz.open(store)["a"].type.scale == "mm"
    pa.unregister_extension_type("tests.meters")
    try:
        found = blz.read_table(store)
    finally:
        pa.register_extension_type(meters("cm"))
    named = {NAME: b"tests.meters", PARAMETERS: b"mm"}
    assert found.schema.field("a").equals(
        pa.field("a", pa.int64(), metadata=named), check_metadata=True
    )
    assert found.schema.field("s").type.field(0).metadata == {
        b"k": b"v",
        NAME: b"tests.meters",
        PARAMETERS: b"km",
    }
    assert found["a"].to_pylist() == [3, None]
    again = RamStore()
    blz.to_blz(found, again)
    assert blz.read_table(again).equals(table)


def test_a_class_that_refuses_its_parameters_leaves_the_storage(meters):
    store = RamStore()
    field = pa.field("a", pa.int64(), metadata={NAME: b"tests.meters", PARAMETERS: b"refused"})
    table = pa.table([[1, 2], UUIDS[:2]], schema=pa.schema([field, ("u", pa.uuid())]))
    blz.to_blz(table, store)
    found = blz.read_table(store)
    assert found.schema.equals(table.schema, check_metadata=True)
    assert found.equals(table)


def test_no_class_is_called_before_a_schema_is_shown(meters, monkeypatch):
    store = RamStore()
    blz.to_blz(pa.table({"a": of(meters("mm"), [3, None])}), store)

    def called(*_):
        raise AssertionError("called")

    with blz.open(store, "a") as opened:
        monkeypatch.setattr(Meters, "__arrow_ext_deserialize__", called)
        assert opened.verify()
        opened.delete(pc.field("a") == 3)
        opened.compact()
        assert len(opened) == 1


def test_values_of_another_extension_type_are_refused(meters):
    store = RamStore()
    blz.to_blz(pa.table({"a": of(meters("mm"), [3])}), store)
    with blz.open(store, "a") as opened:
        for other in (of(meters("km"), [1]), of(pa.opaque(pa.int64(), "a", "b"), [1])):
            for change in (
                lambda values=other: opened.append(pa.table({"a": values})),
                lambda values=other: opened.append({"a": values}),
                lambda values=other: opened.update({"a": values}),
            ):
                with pytest.raises(SchemaError, match=r"'a': values of .* array\.storage"):
                    change()
        opened.append({"a": of(meters("km"), [1]).storage})
        opened.append({"a": of(meters("mm"), [2])})
        assert opened["a"][:].equals(of(meters("mm"), [3, 1, 2]))
        opened.add_column("n", [1, 2, 3])
        with pytest.raises(SchemaError, match="cannot be stored as a plain type"):
            opened.update({"n": of(meters("mm"), [1, 2, 3])})


def test_a_filter_compares_the_storage():
    store = RamStore()
    blz.to_blz(table_of(UUIDS), store)
    with blz.open(store) as opened:
        one = uuid.UUID(int=9).bytes
        assert opened.count(filters=pc.field("a") == one) == 1
        assert opened.count(filters=[("a", "in", [one])]) == 1
        assert opened.count(filters=[("a", "==", uuid.UUID(int=9))]) == 1
        assert opened.count(filters=[("a", "in", [uuid.UUID(int=9), uuid.UUID(int=7)])]) == 2
        assert opened.count(filters=[("a", "!=", UUIDS[0])]) == 1
        assert opened.count(filters=pc.field("a") == UUIDS[2]) == 1
        assert opened.count(filters=pc.field("a").isin(UUIDS)) == 3
        data = opened.dataset()
        assert data.to_table(filter=pc.field("a") == one).num_rows == 1


def test_the_uuids_of_a_frame_are_uuids_for_engines():
    values = [uuid.UUID(int=7), None, uuid.UUID(int=9)]
    frame = pd.DataFrame(
        {"u": values, "l": [values[:2], [], None], "d": [{"id": one} for one in values]}
    )
    frame["c"] = frame["u"].astype("category")
    store = RamStore()
    frame.to_blz(store)
    with blz.open(store, "a") as opened:
        assert opened.schema.types[:3] == [
            pa.uuid(),
            pa.list_(pa.uuid()),
            pa.struct([("id", pa.uuid())]),
        ]
        opened.append(frame)
        opened.update({"u": uuid.UUID(int=1)}, pc.field("u").is_null())
        wanted = pd.concat([frame, frame], ignore_index=True)
        wanted["u"] = wanted["u"].fillna(uuid.UUID(int=1))
        pd.testing.assert_frame_equal(opened.to_pandas(), wanted)
        with duckdb.connect() as engine:
            engine.register("ours", opened.dataset())
            found = engine.execute("select distinct u from ours order by u").fetchall()
        assert found == [(uuid.UUID(int=number),) for number in (1, 7, 9)]


def test_an_engine_sees_the_types():
    store = RamStore()
    table = pa.table({"u": ARRAYS["uuid"], "j": ARRAYS["json"], "b": ARRAYS["bool8"]})
    blz.to_blz(table, store)
    with blz.open(store) as opened, duckdb.connect() as engine:
        for name, data in (("ours", opened.dataset()), ("theirs", table)):
            engine.register(name, data)
        found = engine.execute("select u, j, b from ours").fetchall()
        assert [str(one[1]) for one in engine.description] == ["UUID", "JSON", "BOOLEAN"]
        assert found == engine.execute("select u, j, b from theirs").fetchall()
        assert json.loads(found[0][1]) == {"a": 1}


def test_a_frame_has_what_pyarrow_makes_of_a_type():
    store = RamStore()
    blz.to_blz(pa.table({name: ARRAYS[name] for name in ("json", "list of uuids")}), store)
    frame = blz.read_blz(store)
    assert frame["json"].tolist()[::2] == ['{"a": 1}', "[2]"]
    assert frame["list of uuids"].tolist() == [
        [uuid.UUID(int=7).bytes, None],
        [],
        [uuid.UUID(int=9).bytes],
    ]
    periods = pd.period_range("2020", periods=3, freq="M")
    arrow = pa.table({"p": pa.array(periods.array)})
    blz.to_blz(arrow, store)
    assert blz.read_table(store).equals(arrow)
    pd.testing.assert_series_equal(blz.read_blz(store)["p"], pd.Series(periods, name="p"))


def test_a_field_of_an_extension_type_is_read_with_its_type():
    table = table_of(ARRAYS["struct of uuid and json"])
    store = RamStore()
    blz.to_blz(table, store)
    with blz.open(store) as opened:
        assert opened["a.id"].type == pa.uuid()
        assert opened.to_arrow(["a.j"]).schema.field("a").type == pa.struct([("j", pa.json_())])


def test_some_fields_of_an_extension_type_are_its_storage():
    table = table_of(ARRAYS["storage that is nested"])
    store = RamStore()
    blz.to_blz(table, store)
    field = blz.read_table(store, columns=["a.x"]).schema.field("a")
    assert field.type == pa.struct([("x", pa.float64())])
    assert field.metadata == {b"mine": b"kept"}


def test_a_table_is_created_with_extension_types():
    store = RamStore()
    with blz.create(store, {"u": pa.uuid(), "n": pa.int64()}) as opened:
        opened.append({"u": [uuid.UUID(int=1).bytes], "n": [1]})
        assert opened["u"][:].to_pylist() == [uuid.UUID(int=1)]


@pytest.mark.parametrize("type_", [pa.uuid(), pa.bool8()], ids=str)
def test_a_column_becomes_one_of_an_extension_type_and_back(type_):
    storage = type_.storage_type
    values = [bytes(16), None] if type_ == pa.uuid() else [1, None]
    blz.to_blz(pa.table({"a": pa.array(values, storage)}), store := RamStore())
    with blz.open(store, "a") as opened:
        opened.alter_column("a", dtype=type_)
        assert opened.to_arrow().schema.field("a").equals(pa.field("a", type_), check_metadata=True)
        assert opened["a"][:].equals(of(type_, values))
        opened.alter_column("a", dtype=storage)
        assert (
            opened.to_arrow().schema.field("a").equals(pa.field("a", storage), check_metadata=True)
        )


def test_one_value_with_a_uuid_in_it_fills_rows():
    array = ARRAYS["struct of uuid and json"]
    blz.to_blz(table_of(array), store := RamStore())
    with blz.open(store, "a") as opened:
        opened.update({"a": array[0]})
        assert opened["a"][:].to_pylist() == [array[0].as_py()] * 3


@given(TYPES, st.integers(0, 2**32), st.binary(max_size=9))
@settings(max_examples=25)
def test_any_nested_type_can_be_the_storage(type_, seed, parameters):
    metadata = {NAME: b"of.nobody", PARAMETERS: parameters, b"more": b"kept"}
    field = pa.field("a", type_, metadata=metadata)
    outer = pa.field("s", pa.struct([field]), nullable=False)
    array = array_of(type_, 9, seed)
    struct = pa.StructArray.from_arrays([array], fields=[field])
    table = pa.table([array, struct], schema=pa.schema([field, outer]))
    store = RamStore()
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=4))
    found = blz.read_table(store)
    assert found.schema.equals(table.schema, check_metadata=True)
    assert repr(found.to_pylist()) == repr(table.to_pylist())


@given(TYPES)
@settings(max_examples=30)
def test_a_plain_schema_and_the_shown_one_are_opposites(type_):
    schema = pa.schema([pa.field("a", type_), pa.field("u", pa.uuid(), metadata={"k": "v"})])
    plain = plain_schema(schema)
    assert plain.field("u").type == pa.binary(16)
    assert plain.field("u").metadata[KEPT_NAME] == b"arrow.uuid"
    assert registered_schema(plain).equals(schema, check_metadata=True)
    assert plain_schema(plain) is plain


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()])
def test_an_empty_slice_of_views_is_taken_beside_an_extension(view):
    values = pa.array(["a", "b", "c"]).cast(view)
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2", "3"]))
    table = pa.table({"view": values, "json": json})
    store = RamStore()
    blz.to_blz(table.slice(2, 0), store)
    with blz.open(store, "a") as opened:
        opened.append(pa.concat_tables([table.slice(3), table.slice(1, 1)]))
        opened.append(table.slice(2, 0))
        assert opened.to_arrow().to_pylist() == table.slice(1, 1).to_pylist()


def test_fields_are_compared_by_name_and_new_or_missing_ones_are_no_other_type():
    ids = pa.array([bytes(16)], pa.binary(16)).cast(pa.uuid())
    both = pa.StructArray.from_arrays([ids, ids, pa.array([1])], ["a", "b", "n"])
    blz.to_blz(pa.table({"s": both}), store := RamStore())
    with blz.open(store, "a") as t:
        t.append(pa.table({"s": pa.StructArray.from_arrays([ids], ["b"])}))
        more = pa.StructArray.from_arrays([pa.array([2]), ids, ids], ["n", "c", "a"])
        with pytest.raises(blz.SchemaError, match="pass evolve=True"):
            t.append(pa.table({"s": more}))
        t.append(pa.table({"s": more}), evolve=True)
        assert t.schema.field("s").type.field("c").type == pa.uuid()
        wrong = pa.StructArray.from_arrays([ids], ["n"])
        for evolve in (False, True):
            with pytest.raises(blz.SchemaError, match=r"arrow\.uuid cannot be stored as a plain"):
                t.append(pa.table({"s": wrong}), evolve=evolve)
        assert [row["b"] is None for row in t["s"][:].to_pylist()] == [False, False, True]
