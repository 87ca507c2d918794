"""Schemas and names from an attacker: no class is made, no code runs, no path is followed.

As in `test_chunks.py`, each table lies behind valid checksums and another process reads it.
"""

import pickle
import struct
from contextlib import suppress
from importlib import import_module

import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support import tamper
from support.hostile_reader import assert_refused, make, outcomes
from support.nested_arrays import TOO_DEEP

pytestmark = pytest.mark.usefixtures("own_files")


def with_schema(path, schema) -> None:
    with tamper.editing(path) as table:
        table.schema = schema if isinstance(schema, bytes) else schema.serialize().to_pybytes()


@pytest.fixture
def path(tmp_path):
    return make(tmp_path / "t.blz", pa.table({"x": range(16)}))


@pytest.mark.parametrize("type_", TOO_DEEP, ids=str)
def test_a_type_that_is_not_on_the_list_is_refused(path, type_):
    with_schema(path, pa.schema({"x": type_}))
    assert_refused(path, blz.FormatError, "which this version cannot read")


class Eager(pa.ExtensionType):
    """An extension type that this process has registered."""

    def __init__(self):
        super().__init__(pa.int64(), "blztable.eager")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        if serialized:
            raise KeyError("the stranger chose this")
        return cls()


@pytest.mark.parametrize(("parameters", "type_"), [("", Eager()), ("!", pa.int64())], ids=str)
def test_an_error_of_the_class_of_an_extension_type_leaves_the_storage(path, parameters, type_):
    names = {"ARROW:extension:name": "blztable.eager", "ARROW:extension:metadata": parameters}
    with_schema(path, pa.schema([pa.field("x", pa.int64(), metadata=names)]))
    pa.register_extension_type(Eager())
    try:
        assert blz.read_table(path).schema.field("x").type == type_
        assert blz.read_table(path)["x"].to_pylist() == list(range(16))
    finally:
        pa.unregister_extension_type("blztable.eager")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("arrow.uuid", ""),
        ("arrow.bool8", ""),
        ("arrow.json", ""),
        ("arrow.fixed_shape_tensor", '{"shape": [1000000000000]}'),
        ("arrow.fixed_shape_tensor", "[[[[[[[["),
        ("arrow.variable_shape_tensor", "{}"),
        ("arrow.opaque", "{"),
        ("arrow.parquet.variant", ""),
        ("pandas.period", '{"freq": "../../x"}'),
        ("pandas.interval", "{}"),
        ("", ""),
        ("x" * 10_000, "y" * 10_000),
    ],
)
def test_an_extension_type_that_contradicts_its_storage_is_its_storage(path, name, parameters):
    names = {"ARROW:extension:name": name, "ARROW:extension:metadata": parameters}
    with_schema(path, pa.schema([pa.field("x", pa.int64(), metadata=names)]))
    found = blz.read_table(path)["x"].combine_chunks()
    if name == "pandas.period" and found.type != pa.int64():
        # pandas registers its class once it is asked for a period, and the class takes any text.
        found = found.storage
        with suppress(blz.FormatError, blz.SchemaError):
            blz.read_blz(path)
    else:
        assert blz.read_blz(path)["x"].tolist() == list(range(16))
    assert found.type == pa.int64()
    assert found.to_pylist() == list(range(16))


class Trap:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return open, (self.marker, "w")


def test_a_pickle_is_never_loaded_wherever_it_stands(path, tmp_path):
    # The extension types of pandas, which read what a schema says of them.
    import_module("pandas.core.arrays.arrow.extension_types")
    marker = tmp_path / "ran"
    trap = pickle.dumps(Trap(marker), protocol=0)
    text = trap.decode("latin-1")
    for name in ("arrow.py_extension_type", "pandas.period", "anything"):
        field = {"ARROW:extension:name": name, "ARROW:extension:metadata": trap, "blz:pandas": trap}
        whole = {"pandas": trap, "blz:pandas": trap}
        with_schema(path, pa.schema([pa.field("x", pa.int64(), metadata=field)], whole))
        for read in (blz.read_blz, blz.read_table, lambda path: blz.open(path)["x"][:]):
            with suppress(blz.FormatError, blz.CorruptError):
                read(path)
    with_schema(path, pa.schema({"x": pa.int64()}))
    with tamper.editing(path) as table:
        table.head["attributes"] = {"a": text, text: 1}
        table.head["pandas"] = {"index": [text]}
    with pytest.raises(blz.FormatError):
        blz.read_blz(path)
    assert blz.read_table(path).num_rows
    assert not marker.exists()
    pickle.loads(trap).close()
    assert marker.exists()


@pytest.mark.parametrize("cut", [0, 1, 4, 8, 60, -8, -1])
def test_a_schema_that_is_cut_is_refused(path, cut):
    with tamper.editing(path) as table:
        schema = table.schema
    with_schema(path, schema[:cut])
    assert_refused(path, blz.CorruptError, "schema")


def test_a_schema_with_any_word_changed_is_read_or_refused(path):
    manifest = path / "meta" / "manifest" / f"{1:020d}"
    before = manifest.read_bytes()
    with tamper.editing(path) as table:
        data = table.schema
    for at in range(0, len(data), 4):
        for word in (0, 0xFFFFFFFF, 0x7FFFFFFF):
            manifest.write_bytes(before)
            with_schema(path, data[:at] + struct.pack("<I", word) + data[at + 4 :])
            found = [one for one in outcomes(path).values() if one and one[0].startswith("!")]
            assert not found, (at, word, found)


@pytest.mark.parametrize(
    "name",
    ["../../evil", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "a\0b", "C:evil", "x" * 5000],
    ids=lambda name: repr(name[:12]),
)
def test_the_name_of_a_column_is_never_a_path(tmp_path, name):
    table = pa.table({name: range(16)})
    (tmp_path / "a/b").mkdir(parents=True)
    path = make(tmp_path / "a/b/t.blz", table)
    files = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*")}
    assert {file for file in files if not file.startswith("a/b/t.blz/")} == {
        "a",
        "a/b",
        "a/b/t.blz",
    }
    assert {file for file in files if "/data/" in file} == {
        "a/b/t.blz/data/col0",
        "a/b/t.blz/data/col0/__1__.bin",
    }
    assert blz.read_table(path) == table
    assert blz.open(path)[name][8:].to_pylist() == list(range(8, 16))


# Found by the fuzzer: a scale beyond Python's decimals was a foreign error in pandas.
def test_decimals_of_a_scale_that_python_does_not_know_are_refused_by_pandas_alone():
    type_ = pa.decimal128(38, 1 << 30)
    column = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(bytes([1] * 16))])
    store = RamStore()
    blz.to_blz(pa.table({"a": column}), store)
    assert blz.read_table(store)["a"].type == type_
    with pytest.raises(blz.SchemaError, match="'a': pandas cannot hold decimal128"):
        blz.read_blz(store)


@pytest.mark.parametrize("depth", [33, 120, 10_000])
def test_a_type_that_is_nested_too_deep_is_refused(tmp_path, depth):
    path = make(tmp_path / "t.blz", pa.table({"x": [[1], [2, 3]]}))
    type_ = pa.int64()
    for _ in range(depth):
        type_ = pa.list_(type_)
    with_schema(path, pa.schema([("x", type_)]))
    found = outcomes(path)
    assert {one[0] for one in found.values()} <= {"FormatError", "CorruptError"}


def test_a_schema_whose_inner_names_are_no_text_is_refused(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": [{"name": [1]}] * 9}))
    with tamper.editing(path) as table:
        assert table.schema.count(b"name") == 1
        table.schema = table.schema.replace(b"name", b"na\xff\xff")
    assert_refused(path, blz.CorruptError, "schema")
