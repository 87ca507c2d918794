"""The schema of a manifest: opening a table refuses a type that this version cannot store."""

import pyarrow as pa
import pytest

import blztable as blz
from blztable.arrow.extensions import NAME, registered_schema
from blztable.engine.version import schema
from blztable.errors import CorruptError, FormatError
from blztable.storage.memory import RamStore
from support.nested_arrays import TOO_DEEP


class Celsius(pa.ExtensionType):
    """A registered extension type; like all extension types made in Python it has no hash."""

    def __init__(self):
        super().__init__(pa.float64(), "test.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


@pytest.fixture(params=["known", "unknown"])
def celsius(request):
    """Register the type, so that Arrow reads it as an extension type and not as its storage."""
    type_ = Celsius()
    with pytest.raises(TypeError):
        hash(type_)
    if request.param == "known":
        pa.register_extension_type(type_)
    yield type_, request.param == "known"
    if request.param == "known":
        pa.unregister_extension_type("test.celsius")


def test_an_extension_type_is_read_as_its_storage_whether_arrow_knows_it_or_not(celsius):
    type_, is_known = celsius
    fields = pa.schema([("a", pa.int8()), ("b", type_), ("c", pa.int8())])
    found = schema.decode(fields.serialize().to_pybytes())
    assert found.types == [pa.int8(), pa.float64(), pa.int8()]
    assert schema.encode(found) == fields.serialize().to_pybytes()
    assert (registered_schema(found) == fields) == is_known


def test_metadata_that_only_mention_an_extension_type_are_read():
    key = NAME
    fields = pa.schema(
        [pa.field("a", pa.int8(), metadata={"note": key}), pa.field(key.decode(), pa.int8())],
        {key: "of the whole schema"},
    )
    found = schema.decode(fields.serialize().to_pybytes())
    assert found.names == fields.names
    assert schema.decode(schema.encode(found)).equals(found, check_metadata=True)
    assert registered_schema(found).equals(fields, check_metadata=True)


@pytest.mark.parametrize("type_", TOO_DEEP, ids=["lists", "structs"])
@pytest.mark.parametrize("place", [0, 700, 999])
def test_a_type_that_is_not_known_is_refused_wherever_it_stands(type_, place):
    fields = [(f"c{index}", pa.timestamp("ns", "UTC")) for index in range(1000)]
    fields[place] = ("x", type_)
    with pytest.raises(FormatError, match="column 'x' has type"):
        schema.decode(pa.schema(fields).serialize().to_pybytes())


def test_text_that_is_not_utf_8_is_refused():
    fields = pa.schema([("name", pa.int8()), ("b", pa.timestamp("ns", "Zone"))])
    data = fields.serialize().to_pybytes()
    assert schema.decode(data) == fields
    for found in (b"name", b"Zone"):
        with pytest.raises(CorruptError):
            schema.decode(data.replace(found, b"\xff" * 4))


def test_a_name_that_is_not_utf_8_is_the_name_of_no_column():
    fields = pa.schema([("a", pa.int8())])
    assert schema.index_of(fields, "a", "shelf") == 0
    for name in ("b", "\udcff"):
        with pytest.raises(blz.ColumnNotFoundError, match=r"no column is named .* in shelf"):
            schema.index_of(fields, name, "shelf")


class Late(Exception):
    """The exception of the caller's signal handler."""


FOREIGN = [
    MemoryError("no more"),
    pa.lib.ArrowMemoryError("no more"),
    TimeoutError("too late"),
    Late(),
    RecursionError(),
    KeyboardInterrupt(),
]


def raising_once(monkeypatch, error):
    """Make the next read of a schema raise this exception, and later ones succeed."""
    real = pa.ipc.read_schema

    def read_schema(data):
        monkeypatch.setattr(pa.ipc, "read_schema", real)
        raise error

    monkeypatch.setattr(pa.ipc, "read_schema", read_schema)


@pytest.mark.parametrize("error", FOREIGN, ids=repr)
def test_an_exception_that_says_nothing_of_the_schema_passes_unchanged(monkeypatch, error):
    data = pa.schema([("a", pa.int8())]).serialize().to_pybytes()
    raising_once(monkeypatch, error)
    with pytest.raises(type(error)) as caught:
        schema.decode(data)
    assert caught.value is error


@pytest.mark.parametrize("error", FOREIGN, ids=repr)
def test_a_table_is_not_replaced_when_reading_it_was_interrupted(monkeypatch, error):
    """If the interrupt were taken for damage, it would be lost, and the commit ids with it."""
    store = RamStore()
    blz.to_blz({"n": [1]}, store, commit_id="day 1")
    raising_once(monkeypatch, error)
    with pytest.raises(type(error)) as caught:
        blz.to_blz({"n": [2]}, store)
    assert caught.value is error
    blz.to_blz({"n": [2]}, store, commit_id="day 1")
    assert blz.read_table(store).to_pydict() == {"n": [1]}


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 64, bytes(64)], ids=repr)
def test_bytes_that_are_no_schema_are_damage(data):
    with pytest.raises(CorruptError, match="the schema of a manifest cannot be read"):
        schema.decode(data)


# Bug: a commit published a schema that Arrow writes but refuses to read.
def test_a_schema_that_arrow_would_not_read_back_is_refused(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    with pytest.raises(blz.SchemaError, match="column 'w'"):
        blz.create(path, {"w": pa.binary(1 << 29)}, mode="w")
    assert blz.read_table(path).to_pydict() == {"a": [1]}


def test_an_extension_type_that_arrow_does_not_know_keeps_its_name(tmp_path):
    field = pa.field("a", pa.int8(), metadata={NAME: b"mine"})
    table = pa.table([pa.array([1], pa.int8())], pa.schema([field]))
    blz.to_blz(table, tmp_path / "t.blz")
    found = blz.read_table(tmp_path / "t.blz")
    assert found.schema.equals(table.schema, check_metadata=True)
