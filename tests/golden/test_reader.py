"""The reader written from docs/format.md accepts and refuses the same tables as blztable.

`reader.py` is that reader. Where the two differ, the page decides which one is wrong.
"""

import ast
import base64
import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format import layout
from blztable.format.chunk import Compression
from golden import reader
from golden.make.v1 import CASES, FACTS
from golden.tables import ROOT, expected, facts
from support import tamper
from support.bit_equality import bits
from support.samples import numbers_table

# The libraries that the page requires besides the standard library.
MAY_IMPORT = {"numpy", "blosc", "pyarrow"}


def test_the_reader_imports_nothing_of_the_package():
    imported = set()
    for node in ast.walk(ast.parse(Path(reader.__file__).read_bytes())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, node.lineno
            imported.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Name):
            assert node.id not in ("__import__", "exec", "eval"), node.lineno
    assert imported - sys.stdlib_module_names == MAY_IMPORT
    assert not imported & {"importlib", "runpy", "subprocess"}


def test_the_reader_takes_of_pyarrow_the_schema_and_its_types():
    tree = ast.parse(Path(reader.__file__).read_bytes())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "pa"
    }
    types = {"string", "binary", "large_string", "large_binary", "string_view", "binary_view"}
    types |= {"struct", "list_", "large_list", "null", "int8", "field"}
    assert used == {"ipc", "py_buffer", "types", "Schema", "Field", "DataType", *types}


@pytest.mark.parametrize("case", CASES)
def test_every_version_is_read_to_the_same_values(case):
    place = ROOT / f"{case}.blz"
    assert reader.versions(place) == list(facts(case))
    for number, known in facts(case).items():
        found, wanted = reader.read(place, number), expected(case, number)
        assert {key: found.head[key] for key in FACTS} == known
        assert found.schema.names == wanted.schema.names
        assert found.schema.types == wanted.schema.types
        for name, column, other in zip(
            wanted.column_names, found.columns, wanted.columns, strict=True
        ):
            assert column.rows == bits(other), (number, name)


def test_encoded_numbers_are_read_to_the_same_values(tmp_path):
    path, table = tmp_path / "t.blz", numbers_table(500)
    blz.to_blz(table, path, storage=blz.Storage(encoding="auto", row_group_rows=300, page_rows=64))
    found = reader.read(path)
    for name, column, other in zip(table.column_names, found.columns, table.columns, strict=True):
        assert column.rows == bits(other), name


@pytest.mark.parametrize("case", CASES)
def test_what_is_stated_of_row_groups_and_pages_is_true(case):
    found = reader.read(ROOT / f"{case}.blz")
    for arrow, column in zip(found.schema, found.columns, strict=True):
        start = 0
        groups = reader.statistics_of_row_groups(column)
        for number, (rows, group) in enumerate(zip(found.head["row_groups"], groups, strict=True)):
            check_statistics(arrow.type, column.rows[start : start + rows], group)
            size = column.line["page_rows"][number]
            pages = reader.statistics_of_pages(column, number)
            assert len(pages) in (0, -(-rows // size))
            for page, stated in enumerate(pages):
                first, stop = page * size, min((page + 1) * size, rows)
                check_statistics(arrow.type, column.rows[start + first : start + stop], stated)
            start += rows


def check_statistics(type_: pa.DataType, rows: list[bytes | None], stated) -> None:
    """Compare the counts, and the bounds of text, bytes and integers."""
    values = [row for row in rows if row is not None]
    assert stated.nulls == len(rows) - len(values)
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_floating(type_):
        floats = np.frombuffer(b"".join(values), f"<f{type_.bit_width // 8}")
        assert stated.nans == np.isnan(floats).sum()
        return
    assert stated.nans == 0
    if pa.types.is_integer(type_):
        is_signed = pa.types.is_signed_integer(type_)
        numbers = [int.from_bytes(value, "little", signed=is_signed) for value in values]
        for bound, most in ((stated.lowest, min), (stated.highest, max)):
            if numbers:
                assert int.from_bytes(bound, "little", signed=is_signed) == most(numbers)
    elif type_ in reader.NARROW or type_ in reader.WIDE:
        assert all(value >= stated.lowest for value in values if stated.lowest is not None)
        assert all(value <= stated.highest for value in values if stated.highest is not None)


# Damage


def copied(case: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / f"{case}.blz", tmp_path / "t.blz"))


# Of all bytes, which take minutes.
STEP = 5


def test_every_flipped_byte_is_refused_but_for_the_digests_behind_chunks(tmp_path):
    place = copied("types-texts", tmp_path)
    with tamper.editing(place) as table:
        assert len(table.lines) > 1
    wanted = [column.rows for column in reader.read(place).columns]
    files = [place / layout.manifest(1)]
    files += [place / layout.part((column,), 1) for column in (0, 1, 16)]
    unnoticed = {}
    for file in files:
        data = file.read_bytes()
        for at in range(0, len(data), STEP):
            file.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
            try:
                found = reader.read(place)
            except reader.Refused:
                continue
            unnoticed.setdefault(file, set()).add(at)
            assert [column.rows for column in found.columns] == wanted
        file.write_bytes(data)
    for file in files[1:]:
        wanted_unnoticed = {at for at in digests_behind_chunks(file) if at % STEP == 0}
        assert unnoticed.pop(file, set()) == wanted_unnoticed
    assert not unnoticed


def digests_behind_chunks(file: Path) -> set[int]:
    """Return the places of the second copies of a superchunk's digests, all of four bytes."""
    data = file.read_bytes()
    nchunks, meta_size = struct.unpack_from("<qI", data, 16)
    offsets = struct.unpack_from(f"<{nchunks}q", data, 32 + meta_size)
    (trailer,) = struct.unpack_from("<I", data, len(data) - 12)
    ends = [*offsets[1:], len(data) - trailer]
    return {at for end in ends for at in range(end - 4, end)}


@pytest.mark.parametrize("cut", [1, 16, 100])
@pytest.mark.parametrize("more", [b"", b"?", bytes(16)])
def test_a_file_of_another_length_is_refused(tmp_path, cut, more):
    place = copied("sort-by", tmp_path)
    file = place / layout.part((0,), 1)
    data = file.read_bytes()
    for changed in (data[:-cut] + more, data + b"?" * cut):
        file.write_bytes(changed)
        with pytest.raises(reader.Refused):
            reader.read(place)


@pytest.mark.parametrize("name", ["data", "data/col0", "data/col0/__1__.bin", "meta/manifest"])
def test_a_symbolic_link_below_the_root_is_refused(tmp_path, name):
    place = copied("sort-by", tmp_path)
    (place / name).rename(tmp_path / "elsewhere")
    (place / name).symlink_to(tmp_path / "elsewhere")
    both_refuse(place)


def test_a_symbolic_link_to_the_root_is_followed(tmp_path):
    (tmp_path / "link.blz").symlink_to(copied("sort-by", tmp_path))
    assert reader.read(tmp_path / "link.blz").head["rows"] == 5
    assert blz.read_table(tmp_path / "link.blz").num_rows == 5


# Lies: the checksums are right, and the content is wrong.

DATA = pa.table(
    {
        "n": pa.array([1, None, *range(7)], pa.int32()),
        "s": [None, "b", "äö", "", "c" * 9, "d", "e", "f", "g"],
        "d": pa.array(["x", "y", None] * 3).dictionary_encode(),
        "b": [True, False, True] * 3,
        "plain": pa.array(range(9), pa.int64()),
    }
)
N, S, D, B, PLAIN = range(5)
Edit = Callable[[tamper.Table], None]


def both_refuse(place: Path) -> None:
    with pytest.raises(reader.Refused):
        reader.read(place)
    with pytest.raises(blz.BlzError):
        blz.read_table(place)


def head(**keys) -> Edit:
    return lambda table: table.head.update(keys)


def index(**keys) -> Edit:
    return lambda table: table.head["columns"].update(keys)


def schema(*first: pa.Field) -> Edit:
    """Replace the first field by other fields."""
    data = pa.schema([*first, *list(DATA.schema)[1:]]).serialize().to_pybytes()
    return head(schema=base64.b64encode(data).decode())


def line(column: int, **keys) -> Edit:
    return lambda table: table.lines[column].update(keys)


def raw_line(column: int, old: bytes, new: bytes) -> Edit:
    def edit(table: tamper.Table) -> None:
        text = tamper.as_text(table.lines[column])
        assert text.count(old) == 1
        table.lines[column] = text.replace(old, new)

    return edit


def of_header(column: int, **keys) -> Edit:
    return lambda table: table.part(column).header.update(keys)


def block(column: int, **keys) -> Edit:
    return lambda table: table.part(column).metadata.update(keys)


def stream(column: int, number: int, **keys) -> Edit:
    return lambda table: table.part(column).metadata["streams"][number].update(keys)


def chunk_header(column: int, number: int, **keys) -> Edit:
    def edit(table: tamper.Table) -> None:
        chunks = table.part(column).chunks
        chunks[number] = tamper.with_header(chunks[number], **keys)

    return edit


def values(column: int, number: int, array: np.ndarray) -> Edit:
    def edit(table: tamper.Table) -> None:
        chunks = table.part(column).chunks
        chunks[number] = Compression().compress(array, array.dtype.itemsize)

    return edit


def of_layer(*layers: tamper.RawLayer) -> Edit:
    return lambda table: setattr(table.part(PLAIN), "layers", list(layers))


def empty_dictionary(table: tamper.Table) -> None:
    """Leave no value in the dictionary, and only codes 0."""
    part = table.part(D)
    for one in part.metadata["dictionary"]["streams"]:
        one.update(nbytes=0, chunks=[])
        one.pop("chunk_size", None)
    part.metadata["dictionary"]["rows"] = 0
    part.metadata["dictionary"]["streams"][-1]["pages"] = []
    del part.chunks[2:]
    part.chunks[1] = Compression().compress(np.zeros(9, "<i4"), 4)


LIES: dict[str, Edit] = {
    "format": head(format="other"),
    "format version": head(format_version=2),
    "format version true": head(format_version=True),
    "feature": head(requires=["later"]),
    "version": head(version=2),
    "rows": head(rows=8),
    "time": head(time="2026-11-22"),
    "history": head(history=[["2026-11-22T09:30:00.000000+00:00", -1]]),
    "no attributes": lambda table: table.head.pop("attributes"),
    "fields": head(fields={"name": ["n"], "type": []}),
    "a column twice": index(path=[0, 0, 2, 3, 4]),
    "path of head": index(path=[0.0, 1, 2, 3, 4]),
    "next_k": index(next_k=[0, 2, 2, 2, 2]),
    "places of lines": index(offset=[0, 1, 2, 3, 4]),
    "path of line": raw_line(N, b'"path":0', b'"path":0.0'),
    "a key twice": raw_line(N, b'"path":0', b'"path":0,"path":0'),
    "another type": schema(pa.field("n", pa.float32())),
    "a type that is not stored": schema(pa.field("n", pa.list_(pa.int32()))),
    "a field too few": schema(),
    "too many digits": raw_line(N, b'"path":0', b'"path":0,"?":' + b"1" * 4301),
    "infinity": raw_line(N, b'"path":0', b'"path":0,"?":1e999'),
    "surrogate": raw_line(N, b'"path":0', b'"path":0,"?":"\\ud800"'),
    "deep": raw_line(N, b'"path":0', b'"path":0,"?":' + b"[" * 65 + b"]" * 65),
    "rows of line": line(N, rows=[8]),
    "page_rows": line(PLAIN, page_rows=[12]),
    "streams of line": line(PLAIN, streams={"values": [71]}),
    "no such stream": line(PLAIN, streams={"values": [72], "other": [1]}),
    "crc": line(PLAIN, crc=[1]),
    "front": line(PLAIN, front_length=[48]),
    "no file": line(PLAIN, k=[0]),
    "version of header": of_header(N, version=3),
    "options": of_header(N, options=0x07),
    "typesize of header": of_header(PLAIN, typesize=4),
    "chunk_size of header": of_header(N, chunk_size=36),
    "reserved": of_header(N, reserved=1),
    "checksum none": of_header(PLAIN, checksum=0),
    "rows of block": block(N, rows=8),
    "pages of block": block(N, page_rows=16),
    "packing": block(N, packing="other"),
    "a dictionary for text": lambda table: table.part(S).metadata.update(
        dictionary=table.part(D).metadata["dictionary"]
    ),
    "no dictionary": lambda table: table.part(D).metadata.pop("dictionary"),
    "dtype": stream(N, 1, dtype="<u4"),
    "name": stream(N, 1, name="other"),
    "chunks and chunk_size": stream(N, 1, chunks=[36]),
    "chunks that cut ends": stream(S, 1, chunk_size=7),
    "pages of a number": stream(N, 1, pages=[32, 4]),
    "no pages": lambda table: table.part(S).metadata["streams"][2].pop("pages"),
    "pages that do not add up": stream(S, 2, pages=[1, 1]),
    "order of streams": lambda table: table.part(N).metadata["streams"].reverse(),
    "offsets": lambda table: setattr(table.part(PLAIN), "offsets", [41]),
    "layer twice": of_layer(*[tamper.RawLayer(b"a", 0, 0, b"")] * 2),
    "codec of layer": of_layer(tamper.RawLayer(b"a", 2, 0, b"")),
    "reserved of layer": of_layer(tamper.RawLayer(b"a", 0, 0, b"", reserved=1)),
    "more layers than 16": of_layer(*(tamper.RawLayer(b"%d" % n, 0, 0, b"") for n in range(17))),
    "version of trailer": lambda table: table.part(PLAIN).trailer_head.update(version=2),
    "chunk's version_lz": chunk_header(PLAIN, 0, version_lz=2),
    "a chunk not stored": chunk_header(PLAIN, 0, flags=0x31),
    "a dictionary inside": lambda table: (
        table.part(D)
        .metadata["dictionary"]
        .update(dictionary=table.part(D).metadata["dictionary"].copy())
    ),
    "values in an empty dictionary": empty_dictionary,
    "chunk's version": chunk_header(PLAIN, 0, version=3),
    "chunk's typesize": chunk_header(PLAIN, 0, typesize=4),
    "chunk's nbytes": chunk_header(PLAIN, 0, nbytes=1 << 30),
    "chunk's ctbytes": chunk_header(PLAIN, 0, ctbytes=1 << 30),
    "chunk's blocksize": chunk_header(PLAIN, 0, blocksize=0),
    "chunk's flags": chunk_header(PLAIN, 0, flags=0x0A),
    "both shuffles": chunk_header(PLAIN, 0, flags=0x07),
    "codec": chunk_header(PLAIN, 0, flags=2 << 5),
    "ends that descend": values(S, 1, np.array([0, 1, 5, 4, 14, 15, 16, 17, 18], "<i4")),
    "ends that end early": values(S, 1, np.array([0, 1, 5, 5, 14, 15, 16, 17, 17], "<i4")),
    "ends of pages": values(S, 1, np.array([0, 1, 5, 5, 14, 15, 16, 16, 18], "<i4")),
    "code of no value": values(D, 1, np.array([0, 1, 0, 0, 1, 0, 0, 2, 0], "<i4")),
    "code of a null row": values(D, 1, np.array([0, 1, 7, 0, 1, 0, 0, 1, 0], "<i4")),
    "boolean 2": values(B, 0, np.array([1, 0, 1, 1, 0, 2, 1, 0, 1], "u1")),
    "no UTF-8": values(S, 2, np.frombuffer(b"b\xc3\xa4\xc3\xb6ccccccccc\xffefg", "u1")),
}


def write(place: Path) -> None:
    blz.to_blz(DATA, place, storage=blz.Storage(page_rows=8))


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.usefixtures("own_files_here")
def test_a_lie_behind_right_checksums_is_refused_by_both(tmp_path, lie):
    place = tmp_path / "t.blz"
    write(place)
    assert [column.rows for column in reader.read(place).columns] == list(map(bits, DATA.columns))
    with tamper.editing(place) as table:
        LIES[lie](table)
    both_refuse(place)


def in_version_4(chunk_bytes: int) -> Edit:
    """Write a column that could have version 3 in version 4, in chunks of `chunk_bytes` bytes."""

    def edit(table: tamper.Table) -> None:
        part = table.part(PLAIN)
        raw = np.arange(9, dtype="<i8").view("u1")
        pieces = [raw[start : start + chunk_bytes] for start in range(0, 72, chunk_bytes)]
        part.chunks = [Compression().compress(piece, 8) for piece in pieces]
        part.header.update(version=4, options=3, chunk_size=chunk_bytes, last_chunk=len(pieces[-1]))
        sizes = {"typesize": 8, "nbytes": 72, "chunk_size": chunk_bytes}
        streams = [{"name": "values", "dtype": "<i8", **sizes}]
        part.metadata = {"rows": 9, "page_rows": 8, "packing": "packed", "streams": streams}

    return edit


def with_valid(table: tamper.Table) -> None:
    """Claim that every row has a value, in a column without nulls."""
    in_version_4(72)(table)
    part = table.part(PLAIN)
    part.chunks.insert(0, Compression().compress(np.array([0xFF, 0x01], "u1"), 1))
    part.header.update(typesize=1, chunk_size=-1, last_chunk=-1)
    sizes = {"typesize": 1, "nbytes": 2, "chunk_size": 2}
    part.metadata["streams"].insert(0, {"name": "valid", "dtype": "bitmap", **sizes})


@pytest.mark.parametrize("number", [1000, -1000])
def test_a_decimal_of_more_digits_than_its_precision_is_refused_by_both(tmp_path, number):
    place = tmp_path / "t.blz"
    blz.to_blz(pa.table({"x": pa.array([Decimal(1), Decimal(999)], pa.decimal128(3, 0))}), place)
    assert reader.read(place).head["rows"] == 2
    data = (number % (1 << 128)).to_bytes(16, "little") + bytes(16)
    with tamper.editing(place) as table:
        raw = np.frombuffer(data, "u1")
        table.part().chunks = [Compression().compress(raw, 16)]
    both_refuse(place)


UNSEEN: dict[str, Edit] = {
    "validity without a null": with_valid,
    "version 4 where version 3 would do": in_version_4(72),
    "a number that is cut between two chunks": in_version_4(30),
    "nbytes": index(nbytes=[0] * 5),
    "cbytes": index(cbytes=[0] * 5),
    "a later k": index(next_k=[1] * 5),
    "a later id": head(next_column=0),
    "fields": head(fields={"name": ["?"] * 5, "type": ["?"] * 5}),
    "facts": head(uuid="", commit="", writer="", operation="", parent=9, history=[], pandas={}),
    "keys": head(later={"?": [1.5]}),
    "keys of a line": line(N, later=[None]),
    "keys of a block": block(N, later=-1),
    "layers": of_layer(tamper.RawLayer(b"later", 0, 3, b"abc")),
    "statistics": line(N, nulls=[9], min=[None]),
    "no statistics": lambda table: table.lines[N].pop("nulls"),
    "a layer that is cut": of_layer(tamper.RawLayer(b"later", 1, 3, zlib.compress(b"abc")[:-1])),
    "a layer with more": of_layer(tamper.RawLayer(b"pages", 1, 3, zlib.compress(b"abc") + b"?")),
    "null slots": values(N, 1, np.array([1, 77, *range(7)], "<i4")),
    "bits behind the last row": values(N, 0, np.array([0xFD, 0xFF], "u1")),
}


@pytest.mark.parametrize("change", UNSEEN)
def test_what_a_reader_need_not_check_changes_no_value(tmp_path, change):
    place = tmp_path / "t.blz"
    write(place)
    with tamper.editing(place) as table:
        UNSEEN[change](table)
    assert [column.rows for column in reader.read(place).columns] == list(map(bits, DATA.columns))
    assert list(map(bits, blz.read_table(place).columns)) == list(map(bits, DATA.columns))


VERIFIED = {
    "nbytes",
    "cbytes",
    "a later k",
    "a later id",
    "statistics",
    "no statistics",
    "a layer that is cut",
    "a layer with more",
}


@pytest.mark.parametrize("change", UNSEEN)
@pytest.mark.usefixtures("own_files_here")
def test_verify_finds_what_the_page_says_that_it_finds(tmp_path, change):
    place = tmp_path / "t.blz"
    write(place)
    with tamper.editing(place) as table:
        UNSEEN[change](table)
    with blz.open(place) as opened:
        assert bool(opened.verify()) == (change not in VERIFIED)


ITEMS = pa.table({"x": [b"one", b"", None, b"three", *[b"more"] * 5]})
LIES_OF_ITEMS: dict[str, Edit] = {
    "no claim": line(0, per_item=[0]),
    "no such claim": line(0, per_item=[2]),
    "not required": head(requires=[]),
    "packed": block(0, packing="packed"),
    "ends without an encoding": lambda table: table.part().metadata["streams"][1].pop("encoding"),
    "ends of another encoding": stream(0, 1, encoding={"kind": "each", "length": 3}),
    "an item too few": stream(0, 2, chunks=[3, 0, 0, 5, 4, 4, 4, 8]),
    "items of other sizes": stream(0, 2, chunks=[0, 3, 0, 5, 4, 4, 4, 4, 4]),
    "other pages": stream(0, 2, pages=[23, 5]),
    "an encoding of items": stream(0, 2, encoding={"kind": "per_item"}),
    "a large item": stream(0, 2, chunks=[(256 << 20) + 3, *[0] * 8], nbytes=(256 << 20) + 3),
    "a chunk too few": lambda table: table.part().chunks.pop(2),
    "offsets": lambda table: table.part().offsets.reverse(),
}


@pytest.mark.parametrize("lie", LIES_OF_ITEMS)
def test_a_lie_about_items_that_are_chunks_is_refused_by_both(tmp_path, lie):
    place = tmp_path / "t.blz"
    blz.to_blz(ITEMS, place, storage=blz.Storage(packing="per_item", page_rows=8))
    assert reader.read(place).columns[0].rows == bits(ITEMS["x"])
    with tamper.editing(place) as table:
        LIES_OF_ITEMS[lie](table)
    both_refuse(place)
