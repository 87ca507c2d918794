"""Values from an attacker: invalid values are found before Arrow or pandas use them.

Threats 20 to 26 of the model, and the names and schema of the values (1, 10, 26). As in
`test_superchunks.py`, each table lies behind valid checksums and another process reads it.
"""

import base64
import pickle
import struct
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.chunk import Compression
from blztable.storage.memory import RamStore
from support import tamper
from support.hostile_reader import assert_read, assert_refused, make, outcomes
from support.nested_arrays import TOO_DEEP

pytestmark = pytest.mark.usefixtures("own_files")

WORDS = pa.array([f"word {n:02}" for n in range(32)])  # 7 bytes each


def compress(values, dtype) -> bytes:
    array = np.asarray(values, dtype)
    return Compression().compress(array, array.itemsize)


def ends_of(count: int, length: int) -> np.ndarray:
    return np.arange(1, count + 1) * length


# Item ends: threats 20, 23.


@pytest.mark.parametrize("type_", ["string", "binary", "large_string", "string_view"])
@pytest.mark.parametrize(
    ("at", "end"),
    [(2, 1_500_000_000), (2, -1), (2, 0), (2, -(1 << 31)), (0, -1), (0, 15), (7, 55), (31, 223)],
)
def test_item_ends_that_leave_their_bytes_or_descend_are_refused(tmp_path, type_, at, end):
    path = make(tmp_path / "t.blz", pa.table({"x": WORDS.cast(type_)}))
    ends = ends_of(32, 7)
    ends[at] = end
    with tamper.editing(path) as table:
        part = table.part()
        width = "i4" if type_ in ("string", "binary") else "i8"
        part.chunks[0] = compress(ends, width)
    page = (at // 8 * 8, at // 8 * 8 + 8)
    assert_refused(path, blz.CorruptError, "the item ends", rows=page)
    if type_ == "large_string":
        with tamper.editing(path) as table:
            ends[at] = (1 << 63) - 1
            table.part().chunks[0] = compress(ends, width)
        assert_refused(path, blz.CorruptError, "the item ends", rows=page)


def test_item_ends_that_descend_from_one_chunk_to_the_next_are_refused(tmp_path):
    """The ends descend inside of a page, between chunks that two tasks decode."""
    path = make(tmp_path / "t.blz", pa.table({"x": pa.array(["a"] * 262_160, "large_string")}))
    ends = ends_of(262_160, 1)
    ends[262_147] += 2
    with tamper.editing(path) as table:
        stream = table.part().metadata["streams"][0]
        del stream["chunk_size"]
        stream["chunks"] = [262_148 * 8, 12 * 8]
        pieces = [compress(ends[:262_148], "i8"), compress(ends[262_148:], "i8")]
        table.part().chunks[:-1] = pieces
    page = (262_144, 262_152)
    assert_refused(path, blz.CorruptError, "the item ends", rows=page)


def test_a_chunk_that_cuts_an_item_end_is_refused(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": WORDS}))
    data = ends_of(32, 7).astype("<i4").view("u1")
    with tamper.editing(path) as table:
        part = table.part()
        part.metadata["streams"][0].pop("chunk_size")
        part.metadata["streams"][0]["chunks"] = [62, 66]
        part.chunks[:1] = [Compression().compress(piece, 4) for piece in (data[:62], data[62:])]
    assert_refused(path, blz.CorruptError, "stream 'ends': a chunk boundary lies within an entry")


@pytest.mark.parametrize(
    "pages", [[56, 56, 56], [0, 224, 0, 0], [57, 55, 56, 56], [-8, 64, 56, 112], [1 << 62] * 4]
)
def test_pages_that_are_not_those_of_the_items_are_refused(tmp_path, pages):
    path = make(tmp_path / "t.blz", pa.table({"x": WORDS}))
    with tamper.editing(path) as table:
        table.part().metadata["streams"][1]["pages"] = pages
    assert_refused(path, blz.CorruptError, "pages")


# Text: threat 21.


@pytest.mark.parametrize(
    "item",
    [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\x80", b"\xe2\x82"],
    ids=lambda item: item.hex(),
)
@pytest.mark.parametrize("type_", ["string", "large_string", "string_view", "dictionary"])
def test_text_that_is_not_utf_8_is_refused(tmp_path, item, type_):
    items = WORDS.dictionary_encode() if type_ == "dictionary" else WORDS.cast(type_)
    path = make(tmp_path / "t.blz", pa.table({"x": items}))
    raw = bytearray(b"".join(word.encode() for word in WORDS.to_pylist()))
    raw[7 : 7 + len(item)] = item
    with tamper.editing(path) as table:
        part = table.part()
        part.chunks[-1] = compress(raw, "u1")
    assert_refused(path, blz.CorruptError, "the text is not UTF-8")


@pytest.mark.parametrize("row", [3, 7], ids=["within-a-page", "between-pages"])
def test_an_item_that_begins_inside_a_character_is_refused(tmp_path, row):
    """All bytes together are UTF-8, the single items are not."""
    path = make(tmp_path / "t.blz", pa.table({"x": WORDS}))
    raw = bytearray(b"".join(word.encode() for word in WORDS.to_pylist()))
    raw[row * 7 + 6 : row * 7 + 8] = "ä".encode()
    with tamper.editing(path) as table:
        table.part().chunks[-1] = compress(raw, "u1")
    assert_refused(path, blz.CorruptError, "text")


# Codes: threat 22.


@pytest.mark.parametrize("code", [32, 1 << 20, -1, -(1 << 31)])
@pytest.mark.parametrize("is_null", [False, True], ids=["at-a-value", "at-a-null"])
def test_codes_outside_of_the_dictionary_are_refused_also_at_nulls(tmp_path, code, is_null):
    rows = WORDS.to_pylist()
    rows[5] = None if is_null else rows[5]
    path = make(tmp_path / "t.blz", pa.table({"x": pa.array(rows).dictionary_encode()}))
    codes = np.arange(32)
    codes[5] = code
    with tamper.editing(path) as table:
        part = table.part()
        names = [stream["name"] for stream in part.metadata["streams"]]
        part.chunks[names.index("codes")] = compress(codes, "i4")
    assert_refused(path, blz.CorruptError, "a dictionary code is outside of")


def test_unsigned_codes_are_never_taken_for_negative_ones(tmp_path):
    codes = pa.array(range(32), "u1")
    values = pa.DictionaryArray.from_arrays(codes, WORDS)
    path = make(tmp_path / "t.blz", pa.table({"x": values}))
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress([*range(31), 255], "u1")
    assert_refused(path, blz.CorruptError, "a dictionary code is outside of", rows=(24, 32))


def test_rows_with_a_value_need_a_dictionary_with_one(tmp_path):
    empty = pa.DictionaryArray.from_arrays(pa.nulls(8, "i4"), pa.array([], "string"))
    path = make(tmp_path / "t.blz", pa.table({"x": empty}))
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress([255], "u1")
    words = "column 'x': the dictionary is empty, but some rows are not null"
    assert_refused(path, blz.CorruptError, words)


def test_a_dictionary_of_other_rows_than_its_streams_is_refused(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": WORDS.dictionary_encode()}))
    with tamper.editing(path) as table:
        table.part().metadata["dictionary"]["rows"] = 1 << 40
    assert_refused(path, blz.CorruptError, "")


# Bitmaps, values and booleans: threats 24, 25.


@pytest.mark.parametrize(("stream", "typesize"), [("valid", 1), ("values", 8)])
def test_a_stream_too_short_for_its_rows_is_refused(tmp_path, stream, typesize):
    path = make(tmp_path / "t.blz", pa.table({"x": pa.array([None, *range(63)], "i8")}))
    with tamper.editing(path) as table:
        part = table.part()
        at = ["valid", "values"].index(stream)
        info = part.metadata["streams"][at]
        info["nbytes"] -= typesize
        info["chunk_size"] -= typesize
        short = np.zeros(info["nbytes"], "u1")
        part.chunks[at] = Compression().compress(short, typesize)
    assert_refused(path, blz.CorruptError, f"stream '{stream}' has")


@pytest.mark.parametrize("value", [2, 255])
def test_booleans_other_than_0_and_1_are_refused(tmp_path, value):
    path = make(tmp_path / "t.blz", pa.table({"x": [True, False] * 8}))
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress([0, value] * 8, "u1")
    assert_refused(path, blz.CorruptError, "expected 0 or 1")


@pytest.mark.parametrize(
    "type_", [pa.decimal32(5), pa.decimal64(5), pa.decimal128(5), pa.decimal256(5)], ids=str
)
@pytest.mark.parametrize("number", [10**5, -(10**5), 1 << 30])
@pytest.mark.parametrize("place", ["values", "dictionary"])
def test_decimals_with_more_digits_than_their_type_are_refused(tmp_path, type_, number, place):
    values = pa.array([Decimal(number) for number in range(16)], type_)
    if place == "dictionary":
        values = pa.DictionaryArray.from_arrays(pa.array([*range(15), 15], "i1"), values)
    path = make(tmp_path / "t.blz", pa.table({"x": values}))
    width = type_.byte_width
    with tamper.editing(path) as table:
        chunks = table.part().chunks
        data = b"".join(
            n.to_bytes(width, "little", signed=True) for n in [0, number, *range(2, 16)]
        )
        chunks[-1] = Compression().compress(np.frombuffer(data, f"V{width}"), width)
    assert_refused(path, blz.CorruptError, f"a value has more digits than {type_}")


def test_statistics_that_lie_do_no_harm_to_a_read(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": pa.array([None, *range(63)], "i8")}))
    with tamper.editing(path) as table:
        table.lines[0] |= {"nulls": [1 << 62], "nans": "?", "min": [{}], "max": None}
    assert_read(path)


# Streams: threats 10, 18.


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "O"},
        {"dtype": "S1000000000"},
        {"dtype": "(1000,1000)f8"},
        {"dtype": "f8,f8"},
        {"dtype": "<i8"},
        {"dtype": 8},
        {"typesize": 0},
        {"typesize": 256},
        {"typesize": True},
        {"typesize": 8},
        {"name": "values"},
        {"name": "../values"},
        {"name": None},
        {"nbytes": -1},
        {"nbytes": 1 << 62},
        {"nbytes": 1 << 63},
        {"nbytes": 128.0},
        {"chunk_size": 0},
        {"chunk_size": (8 << 20) + 1},
        {"chunk_size": 127},
        {"chunks": [128]},
        {"pages": [32, 32, 32, 32]},
    ],
    ids=str,
)
def test_a_stream_that_is_not_laid_out_like_its_type_is_refused(tmp_path, change):
    path = make(tmp_path / "t.blz", pa.table({"x": WORDS}))
    with tamper.editing(path) as table:
        table.part().metadata["streams"][0] |= change
        if change == {"typesize": 8}:
            table.part().header["typesize"] = 8
    assert_refused(path, blz.CorruptError, "")


@pytest.mark.parametrize("key", ["packing", "rows", "page_rows", "streams", "dictionary"])
@pytest.mark.parametrize("value", [None, "packed ", [], {}, [[]], True, -1, 1.5])
def test_metadata_of_wrong_types_are_refused(tmp_path, key, value):
    path = make(tmp_path / "t.blz", pa.table({"x": WORDS}))
    with tamper.editing(path) as table:
        table.part().metadata[key] = value
    error = blz.FormatError if key == "packing" else blz.CorruptError
    assert_refused(path, error, "")


# The schema and its names: threats 1, 10, 26.


def schema_of(head) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(head["schema"])))


def with_schema(path, schema) -> None:
    with tamper.editing(path) as table:
        data = schema if isinstance(schema, bytes) else schema.serialize().to_pybytes()
        table.head["schema"] = base64.b64encode(data).decode()


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
        schema = schema_of(table.head).serialize().to_pybytes()
    with_schema(path, schema[:cut])
    assert_refused(path, blz.CorruptError, "schema")


def test_a_schema_with_any_word_changed_is_read_or_refused(path):
    with tamper.editing(path) as table:
        data = schema_of(table.head).serialize().to_pybytes()
    for at in range(0, len(data), 4):
        for word in (0, 0xFFFFFFFF, 0x7FFFFFFF):
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
