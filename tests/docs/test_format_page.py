"""docs/format.md agrees with the code: its tables, limits, examples and dumps are compared."""

import importlib
import importlib.util
import json
import re
import struct
import types
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.nested.nodes import Node
from blztable.columns.parts.encode import EncodingOptions, encode
from blztable.format import (
    bloscpack,
    bounds,
    chunk,
    data_file,
    deletions,
    layout,
    leaf,
    manifest,
    records,
    version_file,
)
from blztable.storage.memory import RamStore
from blztable.storage.one_file import records as one_file
from blztable.tuning import tuned
from golden import reader
from support import arrow_strategies
from support.bit_equality import bits

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "format.md").read_text(encoding="utf-8")
MOST_WORDS = 11_100

KINDS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q"}


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading of any level."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"format.md has no heading {title!r}"
    return match[1]


def tables(title: str) -> list[list[dict[str, str]]]:
    """Return the tables under a heading, each as a dict for each row."""
    found = []
    for text in re.findall(r"(?:^\|.*\n)+", section(title), re.MULTILINE):
        names, _, *rows = [
            [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in text.splitlines()
        ]
        assert rows, f"an empty table under {title!r}"
        found.append([dict(zip(names, row, strict=True)) for row in rows])
    return found


def table(title: str) -> list[dict[str, str]]:
    """Return the first table under a heading."""
    return tables(title)[0]


def words(cell: str) -> list[str]:
    """Return the words between backticks."""
    return re.findall(r"`([^`]*)`", cell)


def load_make_dump() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("make_dump", DOCS / "make_dump.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_dump = load_make_dump()


def test_the_page_is_short_enough_to_be_read():
    assert len(PAGE.split()) <= MOST_WORDS


# Structs

HEADER_NAMES = ["magic", "version", "options", "checksum", "typesize", "chunk_size", "last_chunk"]
SECTION_NAMES = ["magic", "options", "checksum", "codec", "level", "size", "room", "stored"]
CHUNK_NAMES = ["version", "version_lz", "flags", "typesize", "nbytes", "blocksize", "ctbytes"]
# A heading, the number of the table under it, and the struct with the names of its fields.
STRUCTS = {
    ("The manifest", 0): (version_file.HEADER, ["magic", "format", "sections"]),
    ("The manifest", 1): (version_file.SECTION, None),
    ("Leaf", 0): (leaf.HEADER, ["magic", "level", "entries", "columns", "crc"]),
    ("Leaf", 1): (leaf.INDEX, None),
    ("Group", 0): (leaf.GROUP, None),
    ("Part", 0): (records.PART, None),
    ("Stream", 0): (records.STREAM, None),
    ("Chunk record", 0): (records.CHUNK, None),
    ("Page", 0): (records.PAGE, None),
    ("File header", 0): (bloscpack.HEADER, [*HEADER_NAMES, "nchunks", "max_app_chunks"]),
    ("Metadata header", 0): (struct.Struct("<8sBBBBIII8s"), [*SECTION_NAMES, "reserved"]),
    ("Chunk header", 0): (chunk.CHUNK_HEADER, CHUNK_NAMES),
    ("Record head", 0): (
        struct.Struct(one_file.HEAD.format + "I"),
        ["magic", "kind", "reserved", "key_length", "position", "length", "crc", "head_crc"],
    ),
    ("Commit foot", 0): (
        one_file.FOOT,
        ["magic", "block", "index", "previous", "front_crc", "crc", "last_magic"],
    ),
    ("Seal", 0): (one_file.SEAL, ["magic", "end", "reserved", "crc"]),
}


@pytest.mark.parametrize(("title", "number"), STRUCTS)
def test_a_struct_has_the_fields_of_the_page_in_order_and_place(title, number):
    declared, names = STRUCTS[title, number]
    rows = tables(title)[number]
    form = "<"
    for row in rows:
        assert int(row["offset"]) == struct.calcsize(form), row
        form += KINDS.get(row["type"]) or f"{row['type'].removesuffix(' bytes')}s"
        assert int(row["size"]) == struct.calcsize(form) - int(row["offset"]), row
    found = [row["name"] for row in rows]
    if names is None:
        codes = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i8": "q"}
        fields = [(name, codes[declared[name].str[1:]]) for name in declared.names]
        assert found == [name for name, _ in fields]
        assert form == "<" + "".join(code for _, code in fields)
        assert struct.calcsize(form) == declared.itemsize
    else:
        assert found == names
        assert form.replace("8x", "8s") == declared.format.replace("8x", "8s")


@pytest.mark.parametrize(
    ("title", "name", "value"),
    [
        ("The manifest", "magic", version_file.MAGIC),
        ("Leaf", "magic", leaf.MAGIC),
        ("File header", "magic", bloscpack.MAGIC),
        ("Metadata header", "magic", bloscpack.JSON_MAGIC),
        ("Record head", "magic", one_file.HEAD_MAGIC),
        ("Commit foot", "magic", one_file.FOOT_MAGIC),
        ("Seal", "magic", one_file.SEAL_MAGIC),
    ],
)
def test_a_magic_is_the_one_of_the_page(title, name, value):
    (row,) = (row for row in table(title) if row["name"] == name)
    assert words(row["meaning"]) == [value.rstrip(b"\0").decode("ascii")]


def test_the_versions_are_those_of_the_page():
    meanings = {
        (title, row["name"]): row["meaning"]
        for title in ("The manifest", "File header", "Chunk header")
        for row in table(title)
    }
    assert meanings["The manifest", "format"].startswith(f"{version_file.FORMAT};")
    most = version_file.TAILS + leaf.MAX_LEVEL
    assert meanings["The manifest", "sections"] == f"n, from 3 to {most}; 0 in a tombstone, below"
    assert meanings["File header", "version"] == str(bloscpack.BLOSCPACK)
    assert meanings["Chunk header", "version"] == str(chunk.VERSION)
    assert meanings["Chunk header", "version_lz"] == str(chunk.VERSION_LZ)
    assert f"`{version_file.DRAFT.decode()}`" in section("The manifest")
    tombstone = re.search(r"```text\n((?:[0-9a-f]{2}\s+)+)```", section("The manifest"))
    assert bytes.fromhex(tombstone[1]) == version_file.REMOVED


def numbered(title: str, name: str, texts: dict[str, int]) -> dict[str, int]:
    """Return the number before each of these texts in the meaning of a field."""
    (row,) = (row for row in table(title) if row["name"] == name)
    return {
        text: int(re.search(rf"(\d+) [`\[]*{re.escape(text)}", row["meaning"])[1]) for text in texts
    }


NUMBERED = {
    ("Part", "flags"): {
        "NaN is null": records.NAN_IS_NULL,
        "bounds are values": records.EXACT_BOUNDS,
        "one chunk an item": records.ITEM_CHUNKS,
    },
    ("Stream", "name"): {
        "valid": records.VALID,
        "values": records.VALUES,
        "lengths": records.LENGTHS,
        "items.valid": records.ITEMS_VALID,
        "items.lengths": records.ITEMS_LENGTHS,
        "items.values": records.ITEMS_VALUES,
    },
    ("Stream", "kind"): {
        "plain": records.PLAIN,
        "numbers": records.NUMBERS,
        "dictionary": records.DICTIONARY,
        "constant": records.CONSTANT,
        "one chunk an item": records.PER_ITEM,
    },
    ("Stream", "flags"): {
        "sum": records.SUM,
        "times": records.TIMES,
        "the last code is NaN": records.NAN_CODE,
        "items are not sorted": records.UNSORTED,
    },
    ("Metadata header", "codec"): {"as they are": bloscpack.STORED, "zlib": bloscpack.ZLIB},
}


@pytest.mark.parametrize(("title", "name"), NUMBERED)
def test_flags_names_and_kinds_have_the_numbers_of_the_page(title, name):
    assert numbered(title, name, NUMBERED[title, name]) == NUMBERED[title, name]


def test_the_bits_of_a_chunk_header_are_those_of_the_page():
    assert re.findall(r"(0x\d\d) (byte|bit|stored|must)", section("Chunk header")) == [
        (f"{chunk.BYTE_SHUFFLE:#04x}", "byte"),
        (f"{chunk.BIT_SHUFFLE:#04x}", "bit"),
        (f"{chunk.MEMCPYED:#04x}", "stored"),
        (f"{chunk.RESERVED:#04x}", "must"),
    ]
    for number, name in chunk.CODEC_NAMES.items():
        assert f"{number} {name}" in section("Chunk header")
    assert f"bits {chunk.CODEC_SHIFT} to 7 the codec" in section("Chunk header")
    assert f"`{chunk.EMPTY_CHUNK.hex(' ')}`" in section("One chunk an item")


# Limits


@pytest.mark.parametrize("row", table("Limits"), ids=lambda row: words(row["constant"])[0])
def test_a_limit_is_the_constant_of_the_code(row):
    module, _, name = words(row["constant"])[0].rpartition(".")
    assert int(row["value"]) == getattr(importlib.import_module(f"blztable.{module}"), name)


def test_every_limit_of_the_format_stands_on_the_page():
    declared = {
        (path.stem, name)
        for path in Path(layout.__file__).parent.glob("*.py")
        for name in re.findall(
            r"^((?:MAX|MIN)_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    constants = [words(row["constant"])[0] for row in table("Limits")]
    assert declared <= {tuple(name.split(".")[1:]) for name in constants if "format." in name} | {
        ("chunk", "LARGE_CHUNK_BYTES")
    }


# Types

ARROW = {
    name.removeprefix("Type_").lower(): value
    for name, value in vars(pa.lib).items()
    if name.startswith("Type_") and isinstance(value, int)
}
FLAT = [type_ for type_ in arrow_strategies.PLAIN if not pa.types.is_dictionary(type_)]


def test_the_types_of_the_page_are_those_that_can_be_stored():
    named = {ARROW[name] for row in table("Types") for name in words(row["types"])}
    assert named == {*(type_.id for type_ in FLAT), pa.lib.Type_DICTIONARY}
    nested = {ARROW[name] for row in table("Nested types") for name in words(row["types"])}
    assert nested == {
        pa.lib.Type_STRUCT,
        pa.lib.Type_FIXED_SIZE_LIST,
        pa.lib.Type_LIST,
        pa.lib.Type_LARGE_LIST,
        pa.lib.Type_LIST_VIEW,
        pa.lib.Type_LARGE_LIST_VIEW,
        pa.lib.Type_MAP,
        pa.lib.Type_RUN_END_ENCODED,
        pa.lib.Type_SPARSE_UNION,
        pa.lib.Type_DENSE_UNION,
        pa.lib.Type_DICTIONARY,
    }


def row_of(type_: pa.DataType) -> dict[str, str]:
    (row,) = (
        row for row in table("Types") for name in words(row["types"]) if ARROW[name] == type_.id
    )
    return row


@pytest.mark.parametrize("type_", FLAT, ids=str)
@pytest.mark.parametrize(
    "options", [EncodingOptions(), EncodingOptions(plain=True)], ids=["auto", "plain"]
)
@given(data=st.data())
def test_a_type_has_the_streams_and_kinds_of_the_page(type_, options, data):
    array = data.draw(arrow_strategies.arrays(type_))
    row = row_of(type_)
    with tuned(encoded_bytes=1, sampled_values=4, rows_per_item=3, rows_per_exception=2):
        streams = {stream.name: stream for stream in encode(array, 3, options).streams}
    streams.pop(records.VALID, None)
    if row["kinds"].startswith("`values`"):
        kinds = dict(re.findall(r"`(\w+)` ([\d, ]+)", row["kinds"]))
        by_name = {records.VALUES: kinds["values"], records.LENGTHS: kinds["lengths"]}
    else:
        by_name = {records.VALUES: row["kinds"]}
    for name, stream in streams.items():
        if name in by_name:
            assert str(stream.kind) in re.findall(r"\d", by_name[name])
        else:
            assert name >= records.ITEMS_VALID
        is_plain = name == records.VALUES and stream.kind == records.PLAIN
        if is_plain and re.fullmatch(r"\d+", row["bytes of a value"]):
            assert len(stream.data) == len(array) * int(row["bytes of a value"])


def test_nodes_of_nested_types_are_those_of_the_page():
    of = {
        "struct": pa.struct({"a": pa.int8(), "b": pa.int8()}),
        "fixed_size_list": pa.list_(pa.int8(), 2),
        "list": pa.list_(pa.int8()),
        "map": pa.map_(pa.int8(), pa.int8()),
        "run_end_encoded": pa.run_end_encoded(pa.int32(), pa.int8()),
        "sparse_union": pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.int8())]),
        "dictionary": pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    }
    for row in table("Nested types"):
        node = Node.of(of[words(row["types"])[0]])
        array = pa.array([], node.flat)
        many = row["children"].startswith("one for each") or "and" in row["children"]
        assert len(node.children) == (2 if many else 1)
        whole = encode(
            pa.nulls(1, array.type)
            if not pa.types.is_integer(array.type)
            else pa.array([1], array.type),
            3,
        )
        names = {stream.name for stream in whole.streams} - {records.VALID}
        wanted = {"`lengths`": records.LENGTHS, "`values`": records.VALUES}
        assert names == {
            number for text, number in wanted.items() if text in row["streams of the node"]
        }


# Bounds and deleted rows


def test_the_examples_of_the_page_are_true():
    found = encode(pa.array(["2026-11-01", "2026-12-24"]), 3)
    assert found.prefix == b"2026-1"
    assert [bounds.bytes_of_word(int(found.pages[name][0])) for name in ("min", "max")] == [
        b"1-01".ljust(8, b"\0"),
        b"2-24".ljust(8, b"\0"),
    ]
    text = section("Deleted rows")
    numbers = [int(one) for one in re.search(r"words (\d+), (\d+) and (\d+)", text).groups()]
    assert numbers == [(row << deletions.RUN_BITS) + 1 for row in (0, 4, 19)]
    lengths = {one.name: one for one in encode(pa.array(["Oslo", None, "", "Bern"]), 3).streams}[
        records.LENGTHS
    ]
    assert lengths.words.tolist() == [0, 8, 0]
    assert lengths.data.tolist() == [4, 0, 0, 4, 0, 0, 0, 0]


# Documents

JSON_KINDS = {bool: "boolean", int: "number", str: "text", list: "array", dict: "object"}


@pytest.fixture(scope="module")
def store() -> RamStore:
    """Make a table with a bundle and two versions."""
    store = RamStore()
    data = pa.table({"n": pa.array([1, None], pa.int32()), "s": ["a", "b"]})
    blz.to_blz(data, store, storage=blz.Storage(attrs={"source": "till 7"}))
    with blz.open(store, "a") as opened:
        opened.tags["first"] = 1
        opened.vlmeta.add("a", b"1")
    return store


def head_of(store: RamStore, version: int | None = None) -> dict:
    names = sorted(store.list_names(layout.MANIFESTS))
    key = layout.manifest(version or int(names[-1]))
    return dict(version_file.VersionFile.decode(store.get(key)).head)


def test_the_head_has_the_keys_and_types_of_the_page(store):
    rows = {words(row["key"])[0]: row for row in table("Head")}
    required = {key for key, row in rows.items() if row["presence"] == "required"}
    found = head_of(store)
    assert required <= set(found) <= set(rows)
    assert {"tags", "metalayers"} <= set(found)
    for key, value in found.items():
        kind = rows[key]["type"]
        assert kind == "object or null" if key == "pandas" else JSON_KINDS[type(value)], key
    assert [key for key in rows if key in found] == list(found)


def test_the_features_are_those_that_the_program_knows():
    named = {words(row["name"])[0] for row in table("Features")}
    assert named == set(manifest.KNOWN_FEATURES)


def test_the_metadata_of_a_data_file_have_the_keys_of_the_page(store):
    (name,) = store.list_names(layout.BUNDLES)
    data = store.get(f"{layout.BUNDLES}/{name}")
    stored = struct.unpack_from("<I", data, 52)[0]
    said = json.loads(data[64 : 64 + stored])
    rows = tables("Metadata header")[1]
    assert list(said) == [words(row["key"])[0] for row in rows]
    for row in rows:
        key = words(row["key"])[0]
        if key in data_file.SAID:
            assert words(row["meaning"]) == list(said[key])


# Dumps


def embedded(name: str) -> str:
    match = make_dump.pattern(name).search(PAGE)
    assert match, f"format.md has no dump of {name} between its markers"
    return match[2]


def test_the_dumps_of_the_page_are_those_made_now():
    made = make_dump.made()
    assert {name: embedded(name) for name in made} == made, "run docs/make_dump.py --write"


def test_the_page_has_no_other_dumps():
    assert set(re.findall(r"<!-- dump of (.*?) -->", PAGE)) == set(make_dump.made())


def test_the_reader_of_the_page_reads_the_tables_of_the_dumps(tmp_path):
    for number, data in enumerate((make_dump.NUMBERS, make_dump.SMALL, make_dump.BOTH)):
        path = tmp_path / f"{number}.blz"
        blz.to_blz(data, path)
        found = reader.read(path)
        assert [column.rows for column in found.columns] == [bits(one) for one in data.columns]
