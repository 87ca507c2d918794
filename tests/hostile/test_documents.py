"""Documents from an attacker: our error, in bounded time and memory.

Threats 3 to 9 and 18 of the model. As in `test_superchunks.py`, each table lies behind valid
checksums and another process reads it.
"""

import base64
import copy
import json
import zlib

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.format import jsontext, manifest
from blztable.storage.memory import RamStore
from support import tamper
from support.hostile_reader import WAYS, assert_read, assert_refused, make, outcomes
from support.stores import read, write

NUMBERS = pa.table({"x": pa.array([None, *range(15)], "i8")})


@pytest.fixture
def path(tmp_path):
    """Make a version-4 file, which has metadata."""
    return make(tmp_path / "t.blz", NUMBERS, attrs={"a": 1})


# JSON: threats 3 to 8.

PLACES = ["head", "line", "metadata"]


def put_json(path, place: str, value: bytes) -> None:
    """Put the value under an unknown key into one of the three documents."""
    with tamper.editing(path) as table:
        part = table.part()
        document = {"head": table.head, "line": table.lines[0], "metadata": part.metadata}[place]
        text = json.dumps(document, separators=(",", ":")).encode()[:-1] + b',"?":' + value + b"}"
        if place == "head":
            table.head = text
        elif place == "line":
            table.lines[0] = text
        else:
            part.metadata = text


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"[[1.5,-1e999]]",
        b"9" * 5000,
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"",
        b"'a'",
        b'"\x01"',
        b"0x10",
        b"01",
        b"1,",
        b"// 1",
        b'1} {"a":1',
    ],
    ids=lambda value: repr(value[:16])[2:-1],
)
def test_json_that_the_format_does_not_allow_is_refused(path, place, value):
    put_json(path, place, value)
    assert_refused(path, blz.CorruptError, "JSON")


@pytest.mark.parametrize("place", PLACES)
def test_json_that_the_format_allows_is_passed_over(path, place):
    put_json(path, place, b'{"a":[1,-1.5e300,"\\ud83d\\ude00",null,{"a":[]}]}')
    assert_read(path)


@pytest.mark.parametrize("place", PLACES)
def test_a_bomb_of_brackets_is_refused_before_it_is_parsed(path, place):
    many = 5_000_000 if place == "metadata" else 20_000_000
    put_json(path, place, b"[" + b"[]," * many + b"1]")
    assert_refused(path, blz.LimitError, "brackets in JSON; at most 1048576")


@pytest.mark.parametrize("opening", ["[", "{"])
def test_brackets_are_bounded_alike_when_written_and_when_read(opening):
    empty = {"[": [], "{": {}}[opening]
    most = [empty] * (jsontext.MAX_BRACKETS - 1)
    assert jsontext.loads(jsontext.dumps(most), "it") == most
    with pytest.raises(blz.LimitError, match=r"1048577 brackets"):
        jsontext.dumps([*most, empty])
    with pytest.raises(blz.LimitError, match=r"it: 1048577 brackets"):
        jsontext.loads(json.dumps([*most, empty]).encode(), "it")


@pytest.mark.parametrize("place", PLACES[:2])
def test_a_document_beyond_64_mib_is_refused(path, place):
    put_json(path, place, b'"' + b"a" * jsontext.MAX_BYTES + b'"')
    error = blz.CorruptError if place == "head" else blz.LimitError
    assert_refused(path, error, "")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_json_in_another_encoding_than_utf_8_is_refused(path, place, encoding):
    with tamper.editing(path) as table:
        part = table.part()
        document = {"head": table.head, "line": table.lines[0], "metadata": part.metadata}[place]
        text = json.dumps(document).encode(encoding)
        if b"\n" in text:
            text = text.replace(b"\n", b"")
        if place == "head":
            table.head = text
        elif place == "line":
            table.lines[0] = text
        else:
            part.metadata = text
    assert_refused(path, blz.CorruptError, "")


# Keys and types: threats 9, 18.

STRANGE = [
    None,
    True,
    -1,
    1.0,
    1 << 63,
    "",
    "?",
    [],
    {},
    [None],
    [True],
    [1.0],
    [-1],
    [[]],
    {"": 0},
]


@pytest.fixture
def told() -> tuple[RamStore, bytes]:
    store = RamStore()
    write(store, NUMBERS, page_rows=8, row_group_rows=8)
    return store, store.get("meta/manifest/00000000000000000001")


def refused_or_same(store) -> None:
    """Check for our error or an unchanged table, in this process, because no chunk is decoded."""
    try:
        version, pinned = versions.pin(store)
        with pinned:
            assert read(version).num_rows == NUMBERS.num_rows
    except blz.BlzError:
        pass


@pytest.mark.parametrize("key", ["format", "format_version", *manifest.HEAD_FIELDS, "schema"])
def test_a_head_without_a_key_or_with_a_strange_value_is_refused_or_read(told, key):
    store, before = told
    refused = 0
    for value in [*STRANGE, "gone"]:
        store.put("meta/manifest/00000000000000000001", before)
        with tamper.editing(store) as table:
            if value == "gone":
                del table.head[key]
            else:
                table.head[key] = value
        try:
            refused_or_same(store)
            versions.pin(store)[1].close()
        except blz.BlzError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    "key", ["path", "next_k", "nbytes", "cbytes", "offset", "length", "sha256"]
)
def test_columns_of_the_head_with_strange_values_are_refused_or_read(told, key):
    store, before = told
    for value in [*STRANGE, [1 << 62], [(1 << 62) + 1], [[1 << 70]], "gone"]:
        store.put("meta/manifest/00000000000000000001", before)
        with tamper.editing(store) as table:
            table.head["columns"][key] = value
            if value == "gone":
                del table.head["columns"][key]
        refused_or_same(store)


@pytest.mark.parametrize(
    "key",
    [
        "path",
        "k",
        "rows",
        "page_rows",
        "cbytes",
        "front_length",
        "trailer_length",
        "crc",
        "streams",
    ],
)
def test_a_line_with_strange_values_is_refused(told, key):
    store, before = told
    two = [[1 << 62] * 2, [(1 << 62) + 1] * 2, [0, 0], {"values": [1, 2]}, {"?": [1, 1]}]
    for value in [*STRANGE, *two, "gone"]:
        store.put("meta/manifest/00000000000000000001", before)
        with tamper.editing(store) as table:
            table.lines[0][key] = value
            if value == "gone":
                del table.lines[0][key]
        version, pinned = versions.pin(store)
        with pinned, pytest.raises(blz.BlzError):
            read(version)


@pytest.mark.parametrize(("key", "value"), [("format_version", 2), ("requires", ["later"])])
def test_a_table_of_a_later_writer_is_refused_as_such(path, key, value):
    with tamper.editing(path) as table:
        table.head[key] = value
    assert_refused(path, blz.FormatError, "newer blztable")


def test_rows_that_do_not_add_up_are_refused(path):
    with tamper.editing(path) as table:
        table.head["rows"] += 1
    assert_refused(path, blz.CorruptError, "row groups that do not add up")


def test_a_column_listed_twice_is_refused(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": range(8), "y": range(8)}))
    with tamper.editing(path) as table:
        table.lines[1] = copy.deepcopy(table.lines[0])
        table.head["columns"]["path"] = [0, 0]
    assert_refused(path, blz.CorruptError, "one column twice")


@pytest.mark.parametrize(
    ("field", "value"),
    [("typesize", 8), ("chunk_size", 1), ("last_chunk", 1), ("options", 0x07), ("nchunks", 1)],
)
def test_a_header_that_differs_from_its_metadata_is_refused(path, field, value):
    with tamper.editing(path) as table:
        assert table.part().header[field] != value
        table.part().header[field] = value
    assert_refused(path, blz.CorruptError, "" if field == "nchunks" else "the metadata need")


def test_a_metalayer_that_inflates_to_more_than_it_says_is_never_inflated(path):
    bomb = zlib.compress(bytes(64 << 20), 9)
    with tamper.editing(path) as table:
        table.part().layers = [tamper.RawLayer(b"pages", 1, 16 << 20, bomb)]
    assert_read(path)
    with tamper.editing(path) as table:
        table.part().layers = [tamper.RawLayer(b"pages", 1, (16 << 20) + 1, bomb)]
    assert_refused(path, blz.CorruptError, "at most 16777216 are read")


DESCRIPTORS = (
    {},
    {"version": 1},
    {"version": 1, "index": "x"},
    {"index": [{"kind": "range"}]},
    {"version": 2, "index": []},
    {"version": True, "index": []},
    {"x": 1},
)


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=str)
def test_a_pandas_descriptor_that_is_not_known_stops_frames_only(path, descriptor):
    """Readers of the Arrow table do not look at the description of a DataFrame."""
    with tamper.editing(path) as table:
        table.head["pandas"] = descriptor
    assert outcomes(path) | {"frame": None} == dict.fromkeys(WAYS)
    assert_refused(path, blz.FormatError, "pandas", ways=["frame"])
    assert blz.read_table(path) == NUMBERS
    with blz.open(path) as t:
        assert t.schema == NUMBERS.schema
        assert t.to_arrow(filters=[("x", ">", 12)])["x"].to_pylist() == [13, 14]
        assert pa.table(t) == pa.Table.from_batches(t.to_batches()) == NUMBERS
        assert t.dataset().to_table() == NUMBERS
        assert "int64" in repr(t)
        assert t.verify()


def test_a_pandas_descriptor_of_a_later_version_is_refused_by_its_version(path):
    with tamper.editing(path) as table:
        table.head["pandas"] = {"version": 2, "index": []}
    words = "pandas descriptor has version 2, and this blztable knows version 1; read the table"
    assert_refused(path, blz.FormatError, words, ways=["frame"])


def test_a_pandas_descriptor_of_a_field_that_is_not_known_stops_frames_only(path):
    for descriptor in (b"?", b"{}", b'{"dtype":"later"}'):
        with tamper.editing(path) as table:
            field = pa.field("x", pa.int64(), metadata={"blz:pandas": descriptor})
            schema = pa.schema([field]).serialize().to_pybytes()
            table.head["schema"] = base64.b64encode(schema).decode()
            table.head["pandas"] = {
                "version": 1,
                "index": [{"kind": "range", "start": 0, "step": 1}],
            }
        assert_refused(path, blz.FormatError, "", ways=["frame"])
        assert blz.read_table(path) == NUMBERS


def test_an_attribute_of_an_unknown_tag_stops_attributes_only(path):
    with tamper.editing(path) as table:
        table.head["attributes"] = {"known": 1, "later": {"blz:value": ["later", 1]}}
    assert blz.read_table(path) == NUMBERS
    with blz.open(path) as t:
        assert t["x"].to_arrow().to_pylist() == NUMBERS["x"].to_pylist()
        with pytest.raises(blz.FormatError, match="later"):
            dict(t.attrs)


def test_base64_that_is_none_is_refused(path):
    for text in ("?", "AA", "AAAA\n", base64.b64encode(b"").decode()):
        with tamper.editing(path) as table:
            table.head["schema"] = text
        assert_refused(path, blz.CorruptError, "")
        with tamper.editing(path) as table:
            table.head["schema"] = base64.b64encode(NUMBERS.schema.serialize()).decode()
    assert_read(path)
