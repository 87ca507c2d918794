"""docs/format.md agrees with the code: its tables, limits and dump are compared with both."""

import base64
import importlib
import importlib.util
import json
import re
import struct
import types
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable import tuning
from blztable.arrow.types import LARGE_OF_VIEW
from blztable.block_terms import VALID
from blztable.columns.blocks import VALIDITY
from blztable.columns.types import CODECS, is_storable, stream_layouts
from blztable.engine.change import columns
from blztable.engine.version import versions
from blztable.engine.write import parts
from blztable.format import chunk, header, layout, manifest, metadata
from blztable.format.bundle import ENTRY
from blztable.format.header import CHECKSUMS
from blztable.format.line import Statistics
from blztable.format.superchunk import PartMeta, unpack
from blztable.storage.memory import RamStore
from blztable.storage.one_file import records
from golden import reader
from support import tamper
from support.bit_equality import bits
from support.moved_first import moved_first

pytestmark = pytest.mark.usefixtures("own_files")

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "format.md").read_text(encoding="utf-8")

KINDS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q"}
JSON_KINDS = {bool: "boolean", int: "number", str: "text", list: "array", dict: "object"}
JSON_KINDS[(dict, type(None))] = "object or null"


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading of any level."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"format.md has no heading {title!r}"
    return match[1]


def table(title: str) -> list[dict[str, str]]:
    """Return the one table under a heading, as a dict for each row."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    names, _, *rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]
    assert rows, f"no table under {title!r}"
    return [dict(zip(names, row, strict=True)) for row in rows]


def words(cell: str) -> list[str]:
    """Return the words between backticks."""
    return re.findall(r"`([^`]*)`", cell)


def keys(title: str) -> list[str]:
    return [words(row["key"])[0] for row in table(title)]


def load_make_dump() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("make_dump", DOCS / "make_dump.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_dump = load_make_dump()

STRUCTS = {
    "Chunk header": (chunk.CHUNK_HEADER, [field.name for field in fields(chunk.ChunkHeader)]),
    "File header": (
        header.FILE_HEADER,
        ["magic", *(field.name for field in fields(header.FileHeader)), "reserved"],
    ),
    # These have no class of their own; they have the names in the dump.
    "Trailer head": (header.TRAILER_HEAD, list(make_dump.TRAILER_HEAD_FIELDS)),
    "Metalayer head": (header.METALAYER_HEAD, list(make_dump.METALAYER_FIELDS)),
    "Trailer foot": (header.TRAILER_FOOT, list(make_dump.TRAILER_FOOT_FIELDS)),
}
# The dumps show no table in one file.
ONE_FILE = {
    "Record head": (
        struct.Struct(records.HEAD.format + "I"),
        ["magic", "kind", "reserved", "key_length", "position", "length", "crc", "head_crc"],
    ),
    "Commit foot": (
        records.FOOT,
        ["magic", "block", "index", "previous", "front_crc", "crc", "last_magic"],
    ),
    "Seal": (records.SEAL, ["magic", "end", "reserved", "crc"]),
}


# Structs


@pytest.mark.parametrize("title", [*STRUCTS, *ONE_FILE])
def test_a_struct_has_the_fields_of_the_page_in_order_and_place(title):
    declared, names = {**STRUCTS, **ONE_FILE}[title]
    rows = table(title)
    assert [row["name"] for row in rows] == names
    form = "<"
    for row in rows:
        assert int(row["offset"]) == struct.calcsize(form), row
        kind = row["type"]
        form += KINDS.get(kind) or f"{kind.removesuffix(' bytes')}s"
        assert int(row["size"]) == struct.calcsize(form) - int(row["offset"]), row
    assert form == declared.format


def test_an_entry_of_a_bundle_has_the_fields_of_the_page():
    text = section("Entry").partition("\n\nThe column's line")[0]
    names = ("offset", "size", "type", "name", "meaning")
    cells = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    rows = [dict(zip(names, map(str.strip, one), strict=True)) for one in cells[2:]]
    found = [(row["name"], row["type"], int(row["offset"]), int(row["size"])) for row in rows]
    kinds = {np.dtype(f"<{code}"): name for code, name in {"u4": "u32", "i8": "i64"}.items()}
    assert found == [
        (name, kinds[dtype], offset, dtype.itemsize)
        for name, (dtype, offset) in ENTRY.fields.items()
    ]


@pytest.mark.usefixtures("bundled")
def test_the_bundle_of_the_page_is_read(tmp_path):
    """The example is put in the place of a bundle with the same columns."""
    expected = pa.table({"n": [1000, 1001, 1003], "s": ["a", None, "bc"]})
    blz.to_blz(expected, tmp_path / "t.blz")
    line = re.search(r"With a line `(.*?)`", section("Entry"))[1]
    columns = ("chunk", "start", "nbytes", "encoding", "rows", "page_rows", "base")
    example = [row for row in example_of("Entry") if row["entry"].isdigit()]
    entries = np.array([tuple(int(row[name]) for name in columns) for row in example], ENTRY)
    streams = [entries.tobytes(), f"{line}\n".encode()]
    streams += [bytes.fromhex(row["bytes"]) for row in example if row["bytes"]]
    with tamper.editing(tmp_path / "t.blz") as edit:
        bundle = edit.bundle()
        bundle.metadata["streams"] = [
            {
                "name": name,
                "dtype": "|u1",
                "typesize": 1,
                "nbytes": len(data),
                "chunk_size": len(data),
            }
            for name, data in zip(["entries", "encodings", *"0123"], streams, strict=True)
        ]
        bundle.header["typesize"] = 1
        bundle.chunks = [
            chunk.Compression().compress(np.frombuffer(data, "u1"), 1) for data in streams
        ]
        assert [one["at"] for one in edit.lines] == [[1], [3]]
    assert blz.read_table(tmp_path / "t.blz") == expected
    rows = [column.rows for column in reader.read(tmp_path / "t.blz").columns]
    assert rows == [bits(column) for column in expected.columns]


def example_of(title: str) -> list[dict[str, str]]:
    """Return the last table under a heading."""
    lines = section(title).splitlines()
    last = max(place for place, line in enumerate(lines) if line.startswith("| ---"))
    names = [cell.strip() for cell in lines[last - 1].split("|")[1:-1]]
    rows = [line for line in lines[last + 1 :] if line.startswith("|")]
    return [
        dict(zip(names, (cell.strip() for cell in line.split("|")[1:-1]), strict=True))
        for line in rows
    ]


@pytest.mark.parametrize(
    ("title", "name", "value"),
    [
        ("File header", "magic", header.MAGIC),
        ("Trailer head", "magic", header.HEAD_MAGIC),
        ("Trailer foot", "magic", header.FOOT_MAGIC),
    ],
)
def test_a_magic_is_the_one_of_the_page(title, name, value):
    (row,) = (row for row in table(title) if row["name"] == name)
    assert words(row["meaning"]) == [value.decode("ascii")]


@pytest.mark.parametrize(
    ("title", "name", "value"),
    [
        ("Chunk header", "version", f"{chunk.VERSION}"),
        ("Chunk header", "version_lz", f"{chunk.VERSION_LZ}"),
        ("File header", "version", f"{header.BLOSCPACK} or {header.EXTENDED}"),
        ("Trailer head", "version", f"{header.VERSION}"),
        (
            "Metalayer head",
            "codec",
            f"{header.STORED} stored as it is, {header.ZLIB} zlib",
        ),
    ],
)
def test_a_version_or_codec_is_the_one_of_the_page(title, name, value):
    (row,) = (row for row in table(title) if row["name"] == name)
    assert row["meaning"] == value


def test_the_bits_of_headers_are_those_of_the_page():
    assert re.findall(r"(0x\d\d) (there|metadata|a stream)", section("File header")) == [
        (f"{header.OFFSETS:#04x}", "there"),
        (f"{header.METADATA:#04x}", "metadata"),
        (f"{header.ITEM_ENDS:#04x}", "a stream"),
    ]
    assert re.findall(r"(0x\d\d) (byte|bit|stored|must)", section("Chunk header")) == [
        (f"{chunk.BYTE_SHUFFLE:#04x}", "byte"),
        (f"{chunk.BIT_SHUFFLE:#04x}", "bit"),
        (f"{chunk.MEMCPYED:#04x}", "stored"),
        (f"{chunk.RESERVED:#04x}", "must"),
    ]
    for number, name in chunk.CODEC_NAMES.items():
        assert f"{number} {name}" in section("Chunk header")
    assert f"bits {chunk.CODEC_SHIFT} to 7 the codec" in section("Chunk header")


# Tables of values


def test_the_checksums_are_those_of_the_page():
    found = [(int(row["id"]), row["name"], int(row["bytes"])) for row in table("Checksums")]
    assert found == [(checksum.id, checksum.name, checksum.size) for checksum in CHECKSUMS]
    assert all(len(checksum.digest(b"x")) == checksum.size for checksum in CHECKSUMS)


@pytest.mark.parametrize("row", table("Limits"), ids=lambda row: words(row["constant"])[0])
def test_a_limit_is_the_constant_of_the_code(row):
    module, _, name = words(row["constant"])[0].rpartition(".")
    assert int(row["value"]) == getattr(importlib.import_module(f"blztable.{module}"), name)


def test_every_limit_of_the_format_stands_on_the_page():
    declared = {
        name
        for path in Path(layout.__file__).parent.glob("*.py")
        for name in vars(importlib.import_module(f"blztable.format.{path.stem}"))
        if re.match("(MAX|MIN)_", name)
    }
    constants = [words(row["constant"])[0] for row in table("Limits")]
    assert declared == {name.rpartition(".")[2] for name in constants if name.startswith("format.")}


# Streams


ARROW = {
    name.removeprefix("Type_").lower(): value
    for name, value in vars(pa.lib).items()
    if name.startswith("Type_") and isinstance(value, int)
}
EXAMPLES = {
    "decimal32": pa.decimal32(5),
    "decimal64": pa.decimal64(5),
    "decimal128": pa.decimal128(5),
    "decimal256": pa.decimal256(5),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32": pa.time32("s"),
    "time64": pa.time64("us"),
    "timestamp": pa.timestamp("ns", "UTC"),
    "duration": pa.duration("s"),
    "half_float": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "na": pa.null(),
    "interval_month_day_nano": pa.month_day_nano_interval(),
    "list": pa.list_(pa.null()),
    "large_list": pa.large_list(pa.null()),
    "struct": pa.struct([]),
}


def stream_rows() -> list[dict[str, str]]:
    """Return the table of streams; an empty cell repeats the types above it."""
    rows, types_ = [], ""
    for row in table("Streams of each type"):
        types_ = row["types"] or types_
        rows.append({**row, "types": types_})
    return rows


def test_the_types_of_the_page_are_those_that_can_be_stored():
    named = [name for row in table("Streams of each type") for name in words(row["types"])]
    stored = {*LARGE_OF_VIEW, *(type_id for type_id, encoding in CODECS if encoding == "plain")}
    assert sorted(ARROW[name] for name in named) == sorted(stored)


PLAIN = sorted(
    {name for row in stream_rows() for name in words(row["types"])}
    - {"fixed_size_binary", "dictionary"}
)


@pytest.mark.parametrize("name", PLAIN)
def test_a_type_has_the_streams_of_the_page(name):
    type_ = EXAMPLES[name] if name in EXAMPLES else getattr(pa, name)()
    assert type_.id == ARROW[name]
    assert is_storable(type_)
    expected = []
    for row in stream_rows():
        if name in words(row["types"]) and row["stream"]:
            bits = re.match(r"\d+", row["bits a row"])
            cells = words(row["stream"])[0], words(row["dtype"])[0], int(row["typesize"])
            expected.append((*cells, int(bits[0]) if bits else None))
    found = [
        (stream.name, stream.dtype, stream.typesize, stream.bits)
        for stream in stream_layouts(type_).values()
        if stream.name != VALID
    ]
    assert found == expected


def test_validity_is_the_stream_of_the_page_and_comes_first():
    text = section("Streams of each type")
    assert f"`{VALIDITY.name}` before its own: `{VALIDITY.dtype}`, typesize 1, 1 bit a row" in text
    assert (VALIDITY.typesize, VALIDITY.bits) == (1, 1)
    assert next(iter(stream_layouts(pa.string()))) == VALID


def stream_row(name: str) -> dict[str, str]:
    (row,) = (row for row in stream_rows() if name in words(row["types"]))
    return row


@pytest.mark.parametrize("width", [1, 3, 255, 256])
def test_fixed_size_binary_has_the_stream_of_the_page(width):
    row = stream_row("fixed_size_binary")
    narrow = width <= int(re.search(r"1 where w > (\d+)", row["typesize"])[1])
    bits = int(row["bits a row"].partition(" w;")[0]) * width
    dtype = words(row["dtype"])[0].replace("w", str(width))
    (own,) = (stream for name, stream in stream_layouts(pa.binary(width)).items() if name != VALID)
    found = (own.name, own.dtype, own.typesize, own.bits)
    assert found == (words(row["stream"])[0], dtype, width if narrow else 1, bits)


def test_fixed_size_binary_of_width_0_has_no_stream():
    assert "no stream where w = 0" in stream_row("fixed_size_binary")["bits a row"]
    assert list(stream_layouts(pa.binary(0))) == [VALID]


def test_a_dictionary_has_the_streams_of_the_page():
    text = section("Streams of each type")
    (codes,) = words(stream_row("dictionary")["stream"])
    children = re.search(r"The manifest calls its streams (.*?)\.\.\.", text)[1]
    found = stream_layouts(pa.dictionary(pa.int16(), pa.string()))
    assert list(found) == [VALID, codes, "dictionary.valid", *words(children)]
    assert (found[codes].dtype, found[codes].typesize, found[codes].bits) == ("<i2", 2, 16)


# The documents


@pytest.fixture(scope="module")
def store() -> RamStore:
    """Make a table with every kind of part, among them text with pages of different sizes."""
    text = ["x" * (index % 7) for index in range(9)]
    data = pa.table(
        {
            "n": pa.array([1, None, *range(7)], pa.int32()),
            "s": text,
            "d": pa.array(text).dictionary_encode(),
        }
    )
    store = RamStore()
    blz.to_blz(data, store, storage=blz.Storage(attrs={"source": "till 7"}, page_rows=8))
    return store


def head_of(store: RamStore) -> dict:
    return json.loads(store.get(layout.manifest(1)).splitlines()[0])


def test_the_head_has_the_keys_of_the_page(store):
    assert [key for key in keys("Head") if key not in manifest.OPTIONAL_FIELDS] == list(
        head_of(store)
    )
    assert manifest.OPTIONAL_FIELDS.keys() <= set(keys("Head"))


def test_the_head_has_the_types_of_the_page(store):
    found = {words(row["key"])[0]: row["type"] for row in table("Head")}
    optional = {name: kind for name, (kind, _) in manifest.OPTIONAL_FIELDS.items()}
    for name, kind in (manifest.HEAD_FIELDS | optional).items():
        assert found[name] == JSON_KINDS[kind], name
    for name, value in head_of(store).items():
        if name not in manifest.HEAD_FIELDS:
            assert found[name] == JSON_KINDS[type(value)], name


def test_format_and_its_version_are_those_of_the_page():
    meanings = {words(row["key"])[0]: row["meaning"] for row in table("Head")}
    assert meanings["format"] == f"`{manifest.FORMAT}`"
    assert meanings["format_version"].startswith(f"{manifest.FORMAT_VERSION};")


def test_columns_and_their_lines_have_the_keys_and_types_of_the_page(store):
    lines = store.get(layout.manifest(1)).splitlines()
    documents = [("Columns", head_of(store)["columns"])]
    documents += [("A column's line", json.loads(line)) for line in lines[2:]]
    for title, document in documents:
        optional = {key for key, when in presences(title).items() if when.startswith("optional")}
        rows = [row for row in table(title) if words(row["key"])[0] not in optional - {*document}]
        assert [words(row["key"])[0] for row in rows] == list(document)
        kinds = [row["type"] for row in rows]
        assert kinds == [JSON_KINDS[type(value)] for value in document.values()]


def presences(title: str) -> dict[str, str]:
    return {words(row["key"])[0]: row["presence"] for row in table(title)}


def is_read(store: RamStore) -> bool:
    """True if all rows of the table can be read."""
    try:
        return blz.read_table(store).num_rows == 9
    except blz.BlzError:
        return False


@pytest.mark.parametrize("title", ["Head", "Properties", "Columns", "A column's line"])
def test_a_key_of_the_manifest_that_is_required_is_missed_and_no_other(store, title):
    for key, presence in presences(title).items():
        copy = RamStore()
        for name in ("data/col0", "data/col1", "data/col2", "data/group", "meta/manifest"):
            for file in store.list_names(name):
                copy.put(f"{name}/{file}", store.get(f"{name}/{file}"))
        with tamper.editing(copy) as edited:
            document = {
                "Head": edited.head,
                "Properties": edited.head["properties"],
                "Columns": edited.head["columns"],
                "A column's line": edited.lines[0],
            }[title]
            assert document.pop(key, None) is not None or presence != "required" or key == "pandas"
        assert is_read(copy) == (presence != "required"), (title, key)


def test_a_key_of_a_filter_is_missed_by_filters_only():
    keys_ = [key for key, presence in presences("A column's line").items() if "filters" in presence]
    assert keys_ == ["nulls", "nans", "min", "max"]
    for key in keys_:
        store = RamStore()
        blz.to_blz({"n": range(9)}, store, storage=blz.Storage(page_rows=8))
        with tamper.editing(store) as edited:
            del edited.lines[0][key]
        assert is_read(store)
        with pytest.raises(blz.CorruptError, match="statistics"):
            blz.read_table(store, filters=[("n", "==", 1)])


@pytest.mark.parametrize("title", ["Block", "Stream"])
def test_a_key_of_metadata_that_must_be_there_is_missed(title):
    text = ["x" * (index % 7) for index in range(9)]
    for key, presence in presences(title).items():
        store = RamStore()
        blz.to_blz(
            pa.table({"d": pa.array(text).dictionary_encode()}),
            store,
            storage=blz.Storage(page_rows=8),
        )
        with tamper.editing(store) as edited:
            block = edited.part().metadata
            documents = [block] if title == "Block" else block["dictionary"]["streams"]
            found = [document.pop(key) for document in documents if key in document]
        assert not found or not is_read(store), (key, presence)
        assert found or presence in ("without `chunk_size`", "optional")


def test_the_schema_message_has_the_form_of_the_page():
    data = base64.b64decode(head_of(make_dump.written())["schema"])
    kinds = [row["bytes"] for row in table_of_message()]
    assert kinds == ["4", "4", "size"]
    marker, size = struct.unpack_from("<Ii", data)
    assert data[:4].hex(" ") in table_of_message()[0]["what"]
    assert marker == 0xFFFFFFFF
    assert size % 8 == 0
    assert len(data) == 8 + size
    assert pa.ipc.read_schema(pa.py_buffer(data)).names == ["n", "s"]


def table_of_message() -> list[dict[str, str]]:
    """Return the first of the two tables of the section."""
    return [row for row in table("The schema") if row["bytes"] in ("4", "size")]


def test_every_type_of_the_page_has_its_place_in_the_schema():
    described = [
        name
        for line in section("The schema").splitlines()
        if line.startswith("| `")
        for name in words(line.split("|")[1])
    ]
    named = {name for row in table("Streams of each type") for name in words(row["types"])}
    named |= {name for row in table("Nested types") for name in words(row["types"])}
    assert sorted(described) == sorted(named)


def test_the_operations_are_those_of_the_page():
    store = RamStore()
    made = set()
    schema = pa.schema({"n": pa.int32()})

    def note():
        made.add(versions.load(store, versions.newest_number(store)).head.operation)

    for mode in ("x", "w"):
        blz.create(store, schema, mode=mode).close()
        note()
    with blz.open(store, "a") as t:
        for change in (
            lambda: t.append({"n": [3, 1]}),
            lambda: t.update({"n": 5}, where=[("n", "==", 1)]),
            lambda: t.delete([("n", "==", 5)]),
            lambda: t.resize(2),
            lambda: t.resize(1),
            lambda: t.upsert({"n": [1, 2]}, on="n"),
            lambda: t.append({"n": [7, 7]}, replace_where=[("n", ">", 0)]),
            lambda: t.deduplicate(),
            lambda: t.add_column("m", 1, default=2),
            lambda: t.alter_column("m", default=3),
            lambda: t.rename_columns({"m": "o"}),
            lambda: moved_first(t, ["o"]),
            lambda: t.attrs.update(a=1),
            lambda: t.vlmeta.add("a", b"1"),
            lambda: t.tags.update(a=t.version),
            lambda: t.configure(keep_versions=50),
            lambda: t.append({"n": [2]}),
            lambda: t.compact(),
            lambda: t.compact("n"),
            lambda: t.drop_columns(["o"]),
            lambda: t.restore(t.version - 1),
            *[lambda: t.append({"n": [4]})] * 9,
        ):
            change()
            note()
        with t.transaction() as tx:
            tx.append({"n": [5]})
            tx.attrs["a"] = 2
        note()
        with blz.open(store, "a", durability="process") as hasty:
            hasty.append({"n": [5]}, commit_id="job")
        t.append({"n": [5]}, commit_id="job")
        note()
    with blz.open(store, "a") as t:
        with t.transaction() as tx:
            columns.widen(tx._change_set, tx.schema.set(1, pa.field("n", pa.int64())), None)
        note()
    named = [name for row in table("Operations") for name in words(row["operation"])]
    assert sorted(made) == sorted(named)


def test_the_properties_are_those_of_the_page():
    store = RamStore()
    blz.to_blz(
        {"n": [1, 2]},
        store,
        storage=blz.Storage(
            optimize="size",
            clevel=1,
            shuffle="bit",
            encoding="auto",
            packing="per_item",
            row_group_rows=99,
            expectedlen=1000,
            nan_as_null=False,
            columns={"n": blz.Storage(page_rows=8)},
        ),
        compression="zstd",
        sort_by="n",
    )
    with blz.open(store, "a") as t:
        t.configure(keep_versions=5, keep_seconds=60, keep_bytes=10**9)
        t.add_column("m", pa.array([1, 2], "i4"), default=7)
        found = versions.load(store, t.version).head.properties
    named = [name for row in table("Properties") for name in words(row["key"])]
    assert sorted(named) == sorted(found)
    assert found["defaults"] == {"1": base64.b64encode(struct.pack("<i", 7)).decode()}


def blocks_of(store: RamStore) -> list[dict]:
    """Return the metadata of each column of the table."""
    blocks = []
    for column in range(3):
        data = store.get(layout.part((column,), 1))
        size = header.FileHeader.decode(data).meta_size
        blocks.append(json.loads(data[header.FILE_HEADER.size : header.FILE_HEADER.size + size]))
    return blocks


def test_what_is_required_of_metadata_is_in_all_of_them(store):
    blocks = blocks_of(store)
    blocks += [block["dictionary"] for block in blocks if "dictionary" in block]
    streams = [stream for block in blocks for stream in block["streams"]]
    streams.append(metadata.StreamInfo("values", "|u1", 1, (), ()).to_json())
    for title, documents in (("Block", blocks), ("Stream", streams)):
        for key, presence in presences(title).items():
            always = all(key in document for document in documents)
            assert always == (presence == "required"), (title, key)


def test_metadata_have_the_keys_of_the_page(store):
    blocks = blocks_of(store)
    always = [key for key in keys("Block") if presences("Block")[key] != "optional"]
    assert list(blocks[2]) == always
    assert [list(block) for block in blocks[:2]] == [always[:-1]] * 2
    # The sizes of a stream are written in one of two ways.
    encoding = {"kind": "narrow"}
    uneven = metadata.StreamInfo("values", "|u1", 1, (1, 2), (1, 2), encoding).to_json()
    even = metadata.StreamInfo("values", "|u1", 1, (2, 1), (1, 2)).to_json()
    assert keys("Stream") == [*list(even)[:5], *list(uneven)[4:]]


def test_statistics_of_pages_have_the_keys_of_the_page(store):
    front, facts = front_and_facts(store)
    data = store.get(layout.part((0,), 1))
    opened = unpack(front, data[facts.cbytes - facts.trailer_length :], facts)
    blob = opened.trailer.layers["pages"].decode()
    counts = [row["type"] for row in table("The layer `pages`")[:4]]
    assert counts == ["u32", "u32", "u8", "u8"]
    sizes = {"u32": 4, "u8": 1}
    pages = 2
    head = sum(sizes[kind] * pages for kind in counts)
    lengths = [length for length in blob[head - 2 * pages : head] if length != 255]
    assert len(blob) == head + sum(lengths)
    assert len(Statistics.decode(blob, pages)) == pages


def front_and_facts(store: RamStore) -> tuple[bytes, PartMeta]:
    data = store.get(layout.part((0,), 1))
    line = json.loads(store.get(layout.manifest(1)).splitlines()[2])
    names = ("rows", "page_rows", "cbytes", "front_length", "trailer_length", "crc")
    facts = PartMeta(*(line[name][0] for name in names))
    return data[: facts.front_length], facts


def test_mirrors_have_the_form_of_the_page(store):
    documents = re.findall(r"```json\n(.*?)\n```", section("Mirrors"), re.DOTALL)
    for document, key in zip(documents, ("sizes", "storage", "attributes"), strict=True):
        shown, found = json.loads(document), json.loads(store.get(f"meta/{key}"))
        assert list(shown) == list(found)
        assert shown.get("cparams") == found.get("cparams")
        assert json.dumps(shown, separators=(",", ":")) == document


def test_the_items_of_the_page_are_those_written_now():
    store, title = RamStore(), "One chunk an item"
    blz.to_blz(
        pa.table({"x": ["Oslo", None, "", "größer"]}),
        store,
        storage=blz.Storage(packing="per_item", page_rows=8),
    )
    with tamper.editing(store) as opened:
        part = opened.part()
        assert json.loads(re.search(r"```json\n(.*)\n```", section(title))[1]) == part.metadata
        chunks = [(int(row["offset"]), bytes.fromhex(row["bytes"])) for row in table(title)]
        assert chunks == list(zip(part.offsets, part.chunks, strict=True))
    assert "`" + chunk.EMPTY_CHUNK.hex(" ") + "`" in section(title)
    assert f"{parts.MOST_ITEMS:,} items" in section(title)


# The dumps


VERSION_3, VERSION_4, MANIFEST = "dump of version 3", "dump of version 4", "dump of the manifest"


def embedded_dump(name: str) -> str:
    pattern = rf"<!-- {name} -->\n```text\n(.*?)\n```\n<!-- end of dump -->"
    match = re.search(pattern, PAGE, re.DOTALL)
    assert match, f"format.md has no {name} between its markers"
    return match[1]


def dumped_bytes(name: str) -> bytes:
    """Return the bytes of an embedded dump; each line must be at its offset."""
    data = bytearray()
    for line in embedded_dump(name).splitlines()[1:]:
        assert int(line[:6], 16) == len(data), line
        if name == MANIFEST:
            data += b"\n" if line[8:] == "<LF>" else line[8:].encode()
        else:
            data += bytes.fromhex(line[8:55])
    return bytes(data)


def test_the_dumps_of_the_page_are_those_made_now():
    store = make_dump.written()
    made = {
        MANIFEST: make_dump.dump_of_text(make_dump.head_and_lines(store)),
        VERSION_3: make_dump.dump(make_dump.part(store, 0)),
        VERSION_4: make_dump.dump(make_dump.part(store, 1)),
    }
    assert {name: embedded_dump(name) for name in made} == made, (
        "run docs/make_dump.py and put what it prints between the markers"
    )


def dumped_head() -> manifest.Head:
    data = dumped_bytes(MANIFEST)
    return manifest.decode_head(data[: manifest.head_length(data)])


@pytest.mark.parametrize(("column", "name"), [(0, VERSION_3), (1, VERSION_4)])
def test_the_dump_of_a_superchunk_is_the_one_that_the_dump_of_the_manifest_names(column, name):
    head, data = dumped_head(), dumped_bytes(name)
    start, length = head.columns.offsets[column], head.columns.lengths[column]
    line = dumped_bytes(MANIFEST)[start : start + length]
    parts = manifest.decode_column(line, head, column)
    facts = parts.meta[0]
    assert len(data) == facts.cbytes
    opened = unpack(data[: facts.front_length], data[-facts.trailer_length :], facts)
    sizes = {stream.name: (stream.nbytes,) for stream in opened.info.streams}
    assert sizes == parts.streams
    streams, size = {}, opened.checksum.size
    for number, stream in enumerate(opened.info.streams):
        begin, end = opened.offsets[number : number + 2]
        raw, digest = data[begin : end - size], data[end - size : end]
        assert digest == opened.checksum.digest(raw)
        assert digest == opened.trailer.digests[number * size : (number + 1) * size]
        found = np.empty(stream.nbytes, np.uint8)
        chunk.decompress_into(raw, stream.typesize, found.ctypes.data, found.nbytes)
        streams[stream.name] = found
    if column == 0:
        assert tuple(streams["values"].view("<i4")) == make_dump.ROWS
        return
    ends = [0, *streams["ends"].view("<i4").tolist()]
    is_valid = np.unpackbits(streams["valid"], bitorder="little")
    items = [streams["values"][a:b].tobytes().decode() for a, b in pairwise(ends)]
    texts = (text if there else None for text, there in zip(items, is_valid, strict=False))
    assert tuple(texts) == make_dump.TEXTS


@pytest.mark.parametrize("dump", [VERSION_3, VERSION_4])
def test_the_names_in_the_dumps_are_those_of_the_tables(dump):
    shown = [line[57:69].strip() for line in embedded_dump(dump).splitlines()[1:]]
    shown = [name for name in shown if name]
    for title in STRUCTS:
        names = [row["name"] for row in table(title)]
        windows = [shown[start : start + len(names)] for start in range(len(shown))]
        assert names in windows, title


# Reads


class CountingStore(RamStore):
    """A store that counts the ranges that are read since the last reset."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def open(self, key: str):
        reader = super().open(key)
        return CountedReader(reader, key, self.reads)


class CountedReader:
    def __init__(self, reader, key: str, reads: list[str]) -> None:
        self._reader, self._key, self._reads = reader, key, reads
        self.size = reader.size

    def read(self, offset: int, length: int) -> bytes:
        self._reads.append(self._key)
        return self._reader.read(offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self._reads.append(self._key)
        return self._reader.read_into(offset, buffer)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def promised(what: str) -> list[int]:
    """Return the numbers of reads in the page's row with this beginning."""
    (row,) = (row for row in table("A reading strategy") if row["what"].startswith(what))
    return [
        int(number) for number in re.findall(r"\b(\d+)(?=:|\sfor|\sa part|\swhere)", row["reads"])
    ]


@pytest.fixture(scope="module")
def large() -> CountingStore:
    """Make files of more than 64 KiB, with pages of one chunk, and a small file."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 1 << 62, 1 << 18)
    store = CountingStore()
    data = pa.table({"n": numbers, "s": list(map(str, numbers)), "small": np.zeros(1 << 18)})
    blz.to_blz(data, store)
    return store


def test_opening_takes_the_reads_of_the_page(large):
    large.reads.clear()
    blz.open(large).close()
    assert len(large.reads) == promised("open the table")[0] == 2


def test_opening_a_wide_table_takes_the_reads_of_the_page():
    wide = CountingStore()
    blz.to_blz({f"column {number}": [number] for number in range(1000)}, wide)
    wide.reads.clear()
    blz.open(wide).close()
    assert len(wide.reads) == promised("open the table")[-1] == 3


def test_a_column_takes_the_reads_of_the_page(large):
    with blz.open(large) as opened:
        large.reads.clear()
        opened["small"].to_arrow()
        line, part = promised("one column, files of up to 64 KiB")
        assert len(large.reads) == line + part
        large.reads.clear()
        opened["n"].to_arrow()
        line, part, run = promised("one column, larger files")
        runs = -(-opened["n"].nbytes // tuning.current.span_bytes)
        assert len(large.reads) == line + part + runs * run


@pytest.mark.parametrize(
    ("column", "what"), [("n", "one page of fixed width"), ("s", "one page of text")]
)
def test_one_page_takes_the_reads_of_the_page(large, column, what):
    with blz.open(large) as opened:
        large.reads.clear()
        opened[[column]].head(1)
        assert [len(large.reads)] == promised(what)
