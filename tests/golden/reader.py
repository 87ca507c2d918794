"""A reader of tables of format version 1, written from docs/format.md and nothing else.

It imports nothing of blztable, so any program can do the same. It needs numpy, python-blosc for the
chunks, and pyarrow for the schema message. A column comes back as a list with one entry a row: the
bytes of the value, or None for a null; a row of a dictionary column is the value of its code. A row
of a nested type is a tuple (struct), a list (of tuples for a map), or a pair of a type code and a
value (union); a row of a run is its value. Every
check that the page demands of a reader is made here, in the order of the page, before anything is
decompressed. A broken rule raises `Refused`.

The reader reads whole columns, one after the other, and each file in one call. It is written to be
read, not to be fast.
"""

import base64
import binascii
import hashlib
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, NoReturn

import blosc
import numpy as np
import pyarrow as pa

Row = Any

MAX_JSON_BYTES, MAX_DEPTH, MAX_BRACKETS = 64 << 20, 64, 1 << 20
MAX_DIGITS, MAX_NUMBER, MAX_ID = 4300, 1 << 62, 10**18 - 1
MAX_CHUNK_BYTES, MAX_RATIO, MAX_CHUNKS = 8 << 20, 1 << 15, 2 << 20
PACKINGS, MAX_ITEM_CHUNK_BYTES = ("packed", "per_item"), 256 << 20
MAX_METADATA_BYTES, MAX_LAYERS, MAX_LAYER_BYTES = 16 << 20, 16, 16 << 20
MAX_MADE_BYTES, MAX_ITEM_BYTES = 64 << 20, 1 << 18
MAX_VALUE_BYTES = 1 << 16
MAX_BOUND_BYTES, NO_BOUND, MAX_WIDTH = 64, 255, (1 << 28) - 1
MAX_DELETED = 1 << 20

FILE_HEADER = struct.Struct("<4sBBBBiiqII")
CHUNK_HEADER = struct.Struct("<BBBBIII")
TRAILER_HEAD = struct.Struct("<8sHHIQ")
LAYER_HEAD = struct.Struct("<BBHII")
TRAILER_FOOT = struct.Struct("<II8s")
ENTRY = struct.Struct("<6Iq")

HEAD_KEYS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("format", "uuid", "commit", "writer", "time", "operation", "schema"), str),
    **dict.fromkeys(("format_version", "version", "parent", "next_column", "rows"), int),
    **dict.fromkeys(("row_groups", "commit_ids", "history", "requires"), list),
    **dict.fromkeys(("fields", "properties", "attributes", "columns"), dict),
    "durable": bool,
    "pandas": (dict, type(None)),
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
BUNDLE_FACTS = ("k", "cbytes", "front_length", "trailer_length", "crc")
FACTS = ("k", "at", "rows", "page_rows", "cbytes", "front_length", "trailer_length", "crc")

CHECKSUMS = {
    1: lambda data: struct.pack("<I", zlib.adler32(data)),
    2: lambda data: struct.pack("<I", zlib.crc32(data)),
    **{
        number: lambda data, name=name: hashlib.new(name, data).digest()
        for number, name in enumerate(("md5", "sha1", "sha224", "sha256", "sha384", "sha512"), 3)
    },
}


class Refused(Exception):
    """Bytes that no table of format version 1 has."""


@dataclass(frozen=True)
class Statistics:
    """The stated facts of the rows of a row group, or of one of its pages."""

    nulls: int
    nans: int
    lowest: Row
    highest: Row


@dataclass(frozen=True)
class Layer:
    """A metalayer as it is stored."""

    codec: int
    nbytes: int
    stored: bytes


@dataclass(frozen=True)
class Column:
    """The rows of a column, its line, and the metalayers of each part to skip rows by.

    `nodes` has the stored rows of each node, in pre-order, and their type.
    """

    rows: list[Row]
    line: dict[str, Any]
    layers: list[dict[str, Layer]]
    nodes: list[tuple[pa.DataType, "Column"]]


@dataclass(frozen=True)
class Version:
    """One version of a table."""

    head: dict[str, Any]
    schema: pa.Schema
    columns: list[Column]


def versions(root: Path) -> list[int]:
    """Return the versions of a table, ascending."""
    names = [path.name for path in (root / "meta" / "manifest").iterdir()]
    return sorted(int(name) for name in names if re.fullmatch(r"[0-9]{20}", name) and int(name))


def read(root: Path, number: int | None = None) -> Version:
    """Return a version (default: the newest) of the table in this directory."""
    number = max(versions(root)) if number is None else number
    data = contents(root, "meta", "manifest", f"{number:020d}")
    first, sha, rest = (*data.split(b"\n", 2), b"", b"")[:3]
    need(hashlib.sha256(first).hexdigest().encode() == sha, "the head's sha256")
    head = checked_head(parsed(first), number)
    schema = pa.ipc.read_schema(pa.py_buffer(unbase64(head["schema"])))
    index = head["columns"]
    need(isinstance(index.get("path"), list), "paths")
    paths = [path_of(one) for one in index["path"]]
    need(len(set(paths)) == len(paths), "no column twice")
    is_flat = all(len(path) == 1 for path in paths)
    need(is_flat or "nested" in head["requires"], "a feature for nodes")
    for key in ("next_k", "nbytes", "cbytes"):
        array(index, key, len(paths))
    need(0 not in index["next_k"], "numbers of files from 1")
    offsets, lengths = (array(index, key, len(paths)) for key in ("offset", "length"))
    ends = list(accumulate((length + 1 for length in lengths), initial=0))
    need(offsets == ends[:-1], "lines one behind the other")
    digests = unbase64(index.get("sha256"))
    need(len(digests) == 32 * len(paths), "a sha256 a line")
    lines = []
    for place, path in enumerate(paths):
        line = rest[offsets[place] : ends[place + 1]]
        need(line[-1:] == b"\n", "a line that ends with a line feed")
        digest = hashlib.sha256(line[:-1]).digest()
        need(digest == digests[32 * place : 32 * place + 32], "a line's sha256")
        lines.append((path, parsed(line[:-1])))
    nodes = iter(lines)
    deleted = deleted_rows(head)
    both = zip(head["row_groups"], deleted, strict=True)
    head["stored_rows"] = [rows + len(gone) for rows, gone in both]
    columns = [column(root, arrow, nodes, head, (), head["stored_rows"]) for arrow in schema]
    need(next(nodes, None) is None, "no column that the schema does not have")
    firsts = accumulate(head["stored_rows"], initial=0)
    gone = {first + row for first, rows in zip(firsts, deleted, strict=False) for row in rows}
    if gone:
        columns = [
            replace(one, rows=[value for row, value in enumerate(one.rows) if row not in gone])
            for one in columns
        ]
    return Version(head, schema, columns)


def deleted_rows(head: dict[str, Any]) -> list[list[int]]:
    """Return the deleted rows of each row group, as numbers of its stored rows."""
    groups, entry = head["row_groups"], head.setdefault("deleted", {})
    need(isinstance(entry, dict), "an object of deleted rows")
    counts = array({"rows": [0] * len(groups)} | entry, "rows", len(groups))
    need(not any(counts) or "deletions" in head["requires"], "a feature for deleted rows")
    need(sum(counts) <= MAX_DELETED, "not too many deleted rows")
    data = inflated(Layer(1, 4 * sum(counts), unbase64(entry.get("gaps")))) if entry else b""
    gaps = iter(struct.unpack(f"<{sum(counts)}I", data))
    found = [list(accumulate(islice(gaps, count))) for count in counts]
    for rows, gone in zip(groups, found, strict=True):
        need(len(set(gone)) == len(gone), "no row deleted twice")
        need(not gone or gone[-1] < rows + len(gone) < 1 << 32, "deleted rows that are stored")
    return found


def checked_head(head: Any, number: int) -> dict[str, Any]:
    """Return the head, with all required fields."""
    need(isinstance(head, dict) and head.get("format") == "blztable", "a manifest of blztable")
    for key, kind in HEAD_KEYS.items():
        need(key in head and isinstance(head[key], kind), f"a key {key!r} of the head")
        if kind is int:
            whole(head[key])
    need(head["format_version"] == 1, "format version 1")
    known = {"bundles", "deletions", "nan_is_null", "nested", "per_item", "tags"}
    need(set(map(str, head["requires"])) <= known, "no features that are not known")
    need(head["version"] == number, "the manifest of this version")
    groups = array(head, "row_groups")
    need(0 not in groups and sum(groups) == head["rows"], "row groups that add up to the rows")
    head.setdefault("next_bundle", 1)
    need(whole(head["next_bundle"]) > 0, "a number of the next bundle")
    head.setdefault("bundles", {key: [0] * len(groups) for key in BUNDLE_FACTS})
    need(isinstance(head["bundles"], dict), "bundles")
    arrays = {key: array(head["bundles"], key, len(groups)) for key in BUNDLE_FACTS}
    files = [k for k in arrays["k"] if k]
    need(len(set(files)) == len(files) and max(files, default=0) <= MAX_ID, "no bundle twice")
    need(not files or "bundles" in head["requires"], "a feature for the bundles")
    tags = head.setdefault("tags", {})
    need(isinstance(tags, dict) and (not tags or "tags" in head["requires"]), "a feature for tags")
    for name, tagged in tags.items():
        need(0 < len(name) <= 255 and name.isprintable() and not name.isdecimal(), "a tag's name")
        need(0 < whole(tagged) < number, "a tag of an older version")
    names, types = head["fields"].get("name"), head["fields"].get("type")
    need(isinstance(names, list) and isinstance(types, list), "fields")
    need(len(names) == len(types) and set(map(type, names + types)) <= {str}, "names and types")
    for pair in head["commit_ids"] + head["history"]:
        need(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str), "a pair")
        whole(pair[1])
    times = [head["time"], *(pair[0] for pair in head["history"])]
    need(all(map(TIME.fullmatch, times)), "times of the one form")
    return head


# Columns


@dataclass(frozen=True)
class Stream:
    """A stream of a type; `bits` for each row, None if they vary."""

    name: str
    dtype: str
    typesize: int
    bits: int | None

    def nbytes(self, rows: int) -> int:
        """Return the bytes of `rows` rows."""
        assert self.bits is not None
        return -(-rows * self.bits // 8)


VALID = Stream("valid", "bitmap", 1, 1)
FIXED = (
    ("<i1", pa.types.is_int8),
    ("<u1", pa.types.is_uint8),
    ("<i2", pa.types.is_int16),
    ("<u2", pa.types.is_uint16),
    ("<f2", pa.types.is_float16),
    ("<i4", pa.types.is_int32, pa.types.is_decimal32, pa.types.is_date32, pa.types.is_time32),
    ("<u4", pa.types.is_uint32),
    ("<f4", pa.types.is_float32),
    ("<i8", pa.types.is_int64, pa.types.is_decimal64, pa.types.is_date64, pa.types.is_time64),
    ("<i8", pa.types.is_timestamp, pa.types.is_duration),
    ("<u8", pa.types.is_uint64),
    ("<f8", pa.types.is_float64),
    ("|V16", pa.types.is_decimal128, pa.types.is_interval),
    ("|V32", pa.types.is_decimal256),
)
NARROW = (pa.string(), pa.binary())
WIDE = (pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view())
TEXT = (pa.string(), pa.large_string(), pa.string_view())
# What the nodes of nested types have for themselves; the items of lists are rows of a child.
STRUCT, LIST, LARGE_LIST = pa.struct([]), pa.list_(pa.null()), pa.large_list(pa.null())
# Ends of lists are as those of text.
LISTS = {LIST: pa.string(), LARGE_LIST: pa.large_string()}


def streams_of(type_: pa.DataType) -> list[Stream]:
    """Return the streams of a type except `valid`; those of a dictionary's values are last."""
    if pa.types.is_dictionary(type_):
        need(not pa.types.is_dictionary(type_.value_type), "a dictionary of plain values")
        (codes,) = streams_of(type_.index_type)
        values = [VALID, *streams_of(type_.value_type)]
        values = [] if pa.types.is_null(type_.value_type) else values
        children = [
            Stream(f"dictionary.{one.name}", one.dtype, one.typesize, one.bits) for one in values
        ]
        return [Stream("codes", codes.dtype, codes.typesize, codes.bits), *children]
    if pa.types.is_null(type_):
        return []
    if type_ == STRUCT:
        return []
    if type_ in LISTS:
        (ends, _), values = streams_of(LISTS[type_]), Stream("values", "rows", 1, None)
        return [ends, values]
    if pa.types.is_boolean(type_):
        return [Stream("values", "|u1", 1, 8)]
    if type_ in NARROW or type_ in WIDE:
        width = 4 if type_ in NARROW else 8
        ends = Stream("ends", f"<i{width}", width, 8 * width)
        return [ends, Stream("values", "|u1", 1, None)]
    if pa.types.is_fixed_size_binary(type_) and not pa.types.is_decimal(type_):
        width = type_.byte_width
        need(width <= MAX_WIDTH, "bytes of a width that can be stored")
        typesize = width if width <= 255 else 1
        return [Stream("values", f"|V{width}", typesize, 8 * width)] if width else []
    for dtype, *kinds in FIXED:
        if any(is_kind(type_) for is_kind in kinds):
            width = np.dtype(dtype).itemsize
            return [Stream("values", dtype, width, 8 * width)]
    raise Refused(f"a column of {type_}, which version 1 does not store")


def column(
    root: Path,
    arrow: pa.Field,
    lines: Iterator[tuple[tuple[int, ...], Any]],
    head: dict[str, Any],
    parent: tuple[int, ...],
    needed: list[int] | None,
) -> Column:
    """Return all rows of a node, of which each row group needs so many; None for any number.

    The next line is that of the node; those of its children follow. `parent` is the path above.
    """
    # An extension type that Arrow knows is stored as its storage type.
    arrow = arrow.with_type(getattr(arrow.type, "storage_type", arrow.type))
    path, line = next(lines, ((), None))
    need(len(path) == len(parent) + 1 and path[:-1] == parent, "a path below that of its parent")
    flat, children = node_of(arrow.type)
    if needed is None:
        needed = array(line, "rows", len(head["row_groups"]))
        need(all(0 <= rows < 1 << 31 for rows in needed), "values that codes can count")
    own = flat_column(root, arrow.with_type(flat), path, line, head, needed)
    if children is not None:
        below = rows_below(arrow.type, own.rows, needed)
        columns = [column(root, child, lines, head, path, below) for child in children]
        if below is None:
            rows = coded(arrow.type, own, columns[0])
        else:
            rows = assembled(arrow.type, own.rows, [one.rows for one in columns])
        nodes = [node for child in columns for node in child.nodes]
        own = Column(rows, own.line, own.layers, [(arrow.type, own), *nodes])
    return own


def flat_column(
    root: Path,
    arrow: pa.Field,
    path: tuple[int, ...],
    line: Any,
    head: dict[str, Any],
    needed: list[int],
) -> Column:
    """Return the rows of one line, without those of its children."""
    streams_of(arrow.type)
    need(isinstance(line, dict) and path_of(line.get("path")) == path, "the line of this column")
    count = len(head["row_groups"])
    facts = {key: array({"at": [0] * count} | line, key, count) for key in FACTS}
    need(facts["rows"] == needed, "the rows that the row groups need")
    files = [k for k in facts["k"] if k]
    need(len(set(files)) == len(files) and max(files, default=0) <= MAX_ID, "no file twice")
    need(isinstance(line.get("streams"), dict), "streams")
    sizes = {name: array(line["streams"], name, count) for name in line["streams"]}
    nulled = array({"nan_is_null": [0] * count} | line, "nan_is_null", count)
    need(set(nulled) <= {0, 1}, "0 or 1 for each part")
    need(not any(nulled) or "nan_is_null" in head["requires"], "a feature for NaN that is null")
    need(not any(nulled) or pa.types.is_floating(arrow.type), "floats, which have NaN")
    items = array({"per_item": [0] * count} | line, "per_item", count)
    need(set(items) <= {0, 1}, "0 or 1 for each part")
    need(not any(items) or "per_item" in head["requires"], "a feature for items that are chunks")
    result = Column([], line, [], [])
    result.nodes.append((arrow.type, result))
    for group in range(count):
        own = {key: values[group] for key, values in facts.items()}
        stated = {name: values[group] for name, values in sizes.items() if values[group]}
        power_of_two(own["page_rows"])
        data, layers = b"", {}
        if own["at"]:
            known = {key: head["bundles"][key][group] for key in BUNDLE_FACTS}
            need(own["k"] == 0 < known["k"], "a part in the bundle alone")
            need(not items[group], "items that share chunks in a bundle")
            data = contents(root, "data", "group", f"__{known['k']}__.bin", size=known["cbytes"])
            rows_of_all = head["stored_rows"][group]
            power = max(8, 1 << (rows_of_all - 1).bit_length())
            known |= {"rows": rows_of_all, "page_rows": power}
            rows = bundled(data, known, own, stated, arrow.type)
        else:
            if own["k"]:
                name = f"__{own['k']}__.bin"
                folders = [f"col{number}" for number in path]
                data = contents(root, "data", *folders, name, size=own["cbytes"])
            rows, layers = part(data, own | {"per_item": items[group]}, stated, arrow.type)
        if nulled[group]:
            need("valid" not in stated, "no validity beside NaN that is null")
            floats = np.frombuffer(
                b"".join(row or b"" for row in rows), streams_of(arrow.type)[0].dtype
            )
            rows = [None if nan else row for row, nan in zip(rows, np.isnan(floats), strict=True)]
        result.rows.extend(rows)
        result.layers.append(layers)
    return result


# Nested types


def node_of(type_: pa.DataType) -> tuple[pa.DataType, list[pa.Field] | None]:
    """Return the type of a node's own streams, and the fields of its children; None for a leaf."""
    kinds = pa.types
    if kinds.is_struct(type_):
        return STRUCT, [type_.field(number) for number in range(type_.num_fields)]
    if kinds.is_union(type_):
        return pa.int8(), [type_.field(number) for number in range(type_.num_fields)]
    if kinds.is_fixed_size_list(type_):
        return STRUCT, [type_.value_field]
    if kinds.is_list(type_) or kinds.is_list_view(type_):
        return LIST, [type_.value_field]
    if kinds.is_large_list(type_) or kinds.is_large_list_view(type_):
        return LARGE_LIST, [type_.value_field]
    if kinds.is_map(type_):
        return LIST, [type_.key_field, type_.item_field]
    if kinds.is_run_end_encoded(type_):
        return LIST, [pa.field("values", type_.value_type)]
    if kinds.is_dictionary(type_) and node_of(type_.value_type)[1] is not None:
        return type_.index_type, [pa.field("values", type_.value_type)]
    return type_, None


def coded(type_: pa.DataType, codes: Column, values: Column) -> list[Row]:
    """Return the value of each code, which counts from 0 in each row group."""
    signed, rows, first = pa.types.is_signed_integer(type_.index_type), iter(codes.rows), 0
    found: list[Row] = []
    for count, size in zip(codes.line["rows"], values.line["rows"], strict=True):
        for row in islice(rows, count):
            code = None if row is None else int.from_bytes(row, "little", signed=signed)
            need(code is None or 0 <= code < size, "a code of a value")
            found.append(None if code is None else values.rows[first + code])
        first += size
    return found


def rows_below(type_: pa.DataType, rows: list[Row], counts: list[int]) -> list[int] | None:
    """Return the rows of each child in each row group, given those of the node; None for any."""
    if pa.types.is_dictionary(type_):
        return None
    if pa.types.is_fixed_size_list(type_):
        return [count * type_.list_size for count in counts]
    if node_of(type_)[0] not in LISTS:
        return counts
    left = iter(rows)
    groups = [list(islice(left, count)) for count in counts]
    if pa.types.is_run_end_encoded(type_):
        need({*rows} <= {0, 1}, "a row that begins a run, or continues one")
        need(all(group[0] == 1 for group in groups if group), "a run from the first row on")
    return [sum(items_in(row) for row in group) for group in groups]


def items_in(row: int) -> int:
    """Return the items of a row of a list, which is ~n if it is null and has n items."""
    return ~row if row < 0 else row


def assembled(type_: pa.DataType, rows: list[Row], children: list[list[Row]]) -> list[Row]:
    """Return the rows of a nested type, given those of its node and of its children."""
    if pa.types.is_struct(type_):
        values: Iterator[Row] = zip(*children, strict=True) if children else iter([()] * len(rows))
    elif pa.types.is_union(type_):
        need(None not in rows, "a type code in each row")
        codes = [int.from_bytes(row, "little", signed=True) for row in rows]
        need(set(codes) <= set(type_.type_codes), "type codes of the type")
        place = {code: number for number, code in enumerate(type_.type_codes)}
        values = ((code, children[place[code]][row]) for row, code in enumerate(codes))
    elif pa.types.is_run_end_encoded(type_):
        values = (children[0][run - 1] for run in accumulate(rows))
    elif pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        values = (children[0][row * size : (row + 1) * size] for row in range(len(rows)))
    else:
        items = iter(children[0] if len(children) == 1 else zip(*children, strict=True))
        values = iter([list(islice(items, items_in(row))) for row in rows])
        rows = [None if row < 0 else row for row in rows]
    return [None if row is None else value for row, value in zip(rows, values, strict=True)]


def path_of(value: Any) -> tuple[int, ...]:
    """Return the path of a column or a node: one id, or an array of more."""
    if not isinstance(value, list):
        value = [value]
    else:
        need(len(value) > 1, "a number for a path of one id")
    need(all(whole(one) <= MAX_ID for one in value), "ids of 18 digits")
    return tuple(value)


def statistics_of_row_groups(column: Column) -> list[Statistics]:
    """Return the facts of each row group in the line of a column."""
    line, count = column.line, len(column.layers)
    counts = [array(line, key, count) for key in ("nulls", "nans")]
    bounds = []
    for key in ("min", "max"):
        need(isinstance(line.get(key), list) and len(line[key]) == count, "bounds")
        bounds.append([None if bound is None else unbase64(bound) for bound in line[key]])
        need(max((len(bound or b"") for bound in bounds[-1]), default=0) <= MAX_BOUND_BYTES, "size")
    return [Statistics(*four) for four in zip(*counts, *bounds, strict=True)]


# Parts


@dataclass(frozen=True)
class Stored:
    """A stream in a file: its layout, the sizes of its chunks and of its pages, its encoding.

    Of an encoded stream, `layout` is that of the codes, and `values` that of the values.
    """

    layout: Stream
    chunks: list[int]
    pages: list[int] | None
    values: Stream
    encoding: dict[str, Any] | None = None


@dataclass(frozen=True)
class Block:
    """Rows and the streams that hold them."""

    rows: int
    page_rows: int
    streams: list[Stored]
    dictionary: "Block | None" = None
    is_per_item: bool = False

    @property
    def all_streams(self) -> list[Stored]:
        """Return the streams in the order of their chunks."""
        return self.streams + (self.dictionary.streams if self.dictionary else [])


def part(
    data: bytes, facts: dict[str, int], stated: dict[str, int], type_: pa.DataType
) -> tuple[list[Row], dict[str, Layer]]:
    """Return the rows of a column in one row group, and the metalayers of its file."""
    layouts = layouts_of(type_)
    if not facts["k"]:
        needed = [name for name in layouts if not name.endswith("valid")]
        has_none = not needed or not facts["rows"]
        need(has_none and not stated, "a file for a type that has streams")
        need(not facts["per_item"], "a file for items that are chunks")
        return [None if pa.types.is_null(type_) else b""] * facts["rows"], {}
    block, plain, layers = superchunk(data, facts, layouts, stated)
    need(block.is_per_item == bool(facts["per_item"]), "the packing that the line states")
    return rows_of(type_, block, values_of(block, plain)), layers


def superchunk(
    data: bytes, facts: dict[str, int], layouts: dict[str, Stream], stated: dict[str, int] | None
) -> tuple[Block, list[bytes], dict[str, Layer]]:
    """Return the block of a superchunk, its decompressed chunks, and its metalayers.

    The streams have the stated sizes; those of a bundle are not stated.
    """
    need(facts["front_length"] + facts["trailer_length"] <= len(data), "a front and a trailer")
    front, trailer = data[: facts["front_length"]], data[len(data) - facts["trailer_length"] :]
    header, digest_of = read_header(front)
    nchunks, size = header[7], len(digest_of(b""))
    layers, digests = read_trailer(front, trailer, facts["crc"], nchunks, size)
    offsets = [*struct.unpack_from(f"<{nchunks}q", front, len(front) - 8 * nchunks)]
    offsets.append(len(data) - len(trailer))
    need(offsets[0] == len(front), "chunks from the end of the front")
    rooms = [stop - start - size for start, stop in pairwise(offsets)]
    need(min(rooms, default=16) >= CHUNK_HEADER.size, "room for each chunk")
    block = read_block(front, header, facts, layouts)
    if stated is not None:
        check_streams(block, layouts, stated)
    chunks = [(one.layout.typesize, nbytes) for one in block.all_streams for nbytes in one.chunks]
    for room, (_, nbytes) in zip(rooms, chunks, strict=True):
        need(room <= nbytes + 16 and nbytes <= room * MAX_RATIO, "a chunk of a size it can have")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    need(sum(nbytes for _, nbytes in chunks) <= memory, "less than the memory of this machine")
    # From here on memory is allocated, for one chunk at a time.
    plain = []
    for number, (typesize, nbytes) in enumerate(chunks):
        chunk = data[offsets[number] : offsets[number + 1] - size]
        need(digest_of(chunk) == digests[number * size : (number + 1) * size], "a chunk's digest")
        plain.append(decompressed(chunk, typesize, nbytes) if nbytes else b"")
    return block, plain, layers


def bundled(
    data: bytes,
    known: dict[str, int],
    facts: dict[str, int],
    stated: dict[str, int],
    type_: pa.DataType,
) -> list[Row]:
    """Return the rows of a part that lies in a bundle."""
    bundle, chunks, _ = superchunk(data, known, {}, None)
    counts = [len(one.chunks) for one in bundle.streams]
    table, lines = b"".join(chunks[: counts[0]]), b"".join(chunks[counts[0] : sum(counts[:2])])
    need(len(table) % ENTRY.size == 0, "whole entries")
    entries = list(ENTRY.iter_unpack(table))[facts["at"] - 1 :]
    layouts = layouts_of(type_)
    has_nulls_only = pa.types.is_dictionary(type_) and pa.types.is_null(type_.value_type)
    need(len(entries) >= len(layouts) + has_nulls_only, "an entry for each stream")
    plain: list[bytes] = []
    blocks: dict[str, dict[str, Any]] = {}
    for (name, own), entry in zip(layouts.items(), entries, strict=False):
        chunk, start, nbytes, number, rows, page_rows, base = entry
        *prefix, name = name.split(".")
        sizes = {"rows": rows, "page_rows": page_rows, "packing": "packed"}
        block = blocks.setdefault(".".join(prefix), {**sizes, "streams": []})
        need(sizes.items() <= block.items() and rows <= page_rows, "one page for all streams")
        if name == "valid" and not nbytes and not number:
            continue
        stream = {"name": name, "dtype": own.dtype, "typesize": own.typesize, "nbytes": nbytes}
        stream["chunks"] = [nbytes] if nbytes else []
        if number:
            need(number <= lines.count(b"\n"), "a line for the encoding")
            encoding = parsed(lines.split(b"\n")[number - 1])
            need(isinstance(encoding, dict), "an encoding")
            stream |= {key: encoding.pop(key, None) for key in ("dtype", "typesize")}
            if encoding.get("kind") in ("narrow", "scaled"):
                encoding["bases"] = base64.b64encode(struct.pack("<q", base)).decode()
            stream["encoding"] = encoding
        if own.bits is None:
            stream["pages"] = [base if number else nbytes] if rows else []
        if nbytes:
            need(sum(counts[:2]) <= chunk < len(chunks), "a chunk of parts")
            need(start + nbytes <= len(chunks[chunk]), "an entry within its chunk")
            plain.append(chunks[chunk][start : start + nbytes])
        block["streams"].append(stream)
    if has_nulls_only:
        *_, rows, page_rows, _ = entries[len(layouts)]
        sizes = {"rows": rows, "page_rows": page_rows, "packing": "packed"}
        blocks["dictionary"] = {**sizes, "streams": []}
    metadata = blocks[""] | {key: block for key, block in blocks.items() if key}
    found = of_metadata(metadata, layouts, 1)
    need((found.rows, found.page_rows) == (facts["rows"], facts["page_rows"]), "rows of the line")
    check_streams(found, layouts, stated)
    return rows_of(type_, found, values_of(found, plain))


def values_of(block: Block, plain: list[bytes]) -> dict[str, bytes]:
    """Return the values of each stream, given the decompressed chunks."""
    streams, codes = {}, []
    for one in block.all_streams:
        if is_spelled(one):
            (ends,) = (other for other in block.streams if other.layout.name == "ends")
            items = items_of_dictionary(ends.encoding or {})
            need(max(codes) < len(items), "codes of the dictionary")
            streams["values"] = b"".join(items[code] for code in codes)
            continue
        streams[one.layout.name] = b"".join(plain[: len(one.chunks)])
        if one.encoding and one.layout.name == "ends":
            codes = np.frombuffer(streams["ends"], one.layout.dtype).tolist()
        if one.encoding:
            inner = one.layout.name.startswith("dictionary.")
            owner = block.dictionary if inner and block.dictionary else block
            streams[one.layout.name] = values_of_codes(one, streams[one.layout.name], owner)
        del plain[: len(one.chunks)]
    return streams


def is_spelled(one: Stored) -> bool:
    """True if the codes of the ends number the items of this stream."""
    return one.values.bits is None and (one.encoding or {}).get("kind") == "dictionary"


def layouts_of(type_: pa.DataType) -> dict[str, Stream]:
    """Return all streams that a part of this type may have, in order."""
    valid = [] if pa.types.is_null(type_) else [VALID]
    return {one.name: one for one in valid + streams_of(type_)}


def read_header(front: bytes) -> tuple[tuple[Any, ...], Any]:
    """Return the fields of the header, and the function that computes digests."""
    need(len(front) >= FILE_HEADER.size, "a header")
    header = FILE_HEADER.unpack_from(front)
    magic, version, _, checksum, _, _, _, nchunks, meta_size, _ = header
    need(magic == b"blpk" and version in (3, 4), "a superchunk of version 3 or 4")
    need(checksum in CHECKSUMS, "a checksum")
    need(bool(meta_size) == (version == 4) and meta_size <= MAX_METADATA_BYTES, "metadata")
    need(0 <= nchunks <= MAX_CHUNKS, "a number of chunks")
    need(FILE_HEADER.size + meta_size + 8 * nchunks == len(front), "a front of its length")
    return header, CHECKSUMS[checksum]


def read_trailer(
    front: bytes, trailer: bytes, crc: int, nchunks: int, size: int
) -> tuple[dict[str, Layer], bytes]:
    """Return the metalayers, and the digests of all chunks."""
    least = TRAILER_HEAD.size + nchunks * size + TRAILER_FOOT.size
    need(len(trailer) >= least, "a whole trailer")
    found, length, foot = TRAILER_FOOT.unpack(trailer[-TRAILER_FOOT.size :])
    body = trailer[: -TRAILER_FOOT.size]
    magic, version, nlayers, reserved, ndigests = TRAILER_HEAD.unpack_from(trailer)
    need((magic, foot, length) == (b"blztrail", b"blzt-end", len(trailer)), "a trailer's magics")
    need(found == crc == zlib.crc32(body, zlib.crc32(front)), "the crc32 of front and trailer")
    need((version, reserved, ndigests) == (1, 0, nchunks), "a trailer of version 1")
    need(nlayers <= MAX_LAYERS, "16 layers at most")
    layers: dict[str, Layer] = {}
    at, end = TRAILER_HEAD.size, len(body) - nchunks * size
    for _ in range(nlayers):
        need(at + LAYER_HEAD.size <= end, "a layer's head")
        name_length, codec, reserved, nbytes, stored = LAYER_HEAD.unpack_from(body, at)
        at += LAYER_HEAD.size
        need(1 <= name_length <= 31 and not reserved and codec in (0, 1), "a layer that is known")
        need(nbytes <= MAX_LAYER_BYTES and at + name_length + stored <= end, "a layer that fits")
        name = decoded(body[at : at + name_length])
        need(name not in layers, "no layer twice")
        at += name_length
        layers[name] = Layer(codec, nbytes, body[at : at + stored])
        at += stored
    need(at == end, "a trailer that is filled exactly")
    return layers, body[end:]


def inflated(layer: Layer) -> bytes:
    """Return the bytes of a metalayer, inflated to one byte more than expected at most."""
    result = layer.stored
    if layer.codec:
        inflater = zlib.decompressobj()
        try:
            result = inflater.decompress(layer.stored, layer.nbytes + 1)
        except zlib.error:
            refuse("a zlib stream")
        need(inflater.eof and not inflater.unused_data, "one whole zlib stream")
    need(len(result) == layer.nbytes, "a layer of the size it states")
    return result


def statistics_of_pages(column: Column, group: int) -> list[Statistics]:
    """Return the facts of each page in the layer `pages`; nothing without the layer."""
    if "pages" not in column.layers[group]:
        return []
    blob = inflated(column.layers[group]["pages"])
    count = -(-column.line["rows"][group] // column.line["page_rows"][group])
    need(len(blob) >= 10 * count, "a zone map of so many pages")
    nulls = struct.unpack_from(f"<{count}I", blob)
    nans = struct.unpack_from(f"<{count}I", blob, 4 * count)
    bounds: list[Row] = []
    at = 10 * count
    for length in blob[8 * count : 10 * count]:
        known = length != NO_BOUND
        need(not known or length <= MAX_BOUND_BYTES, "a bound of 64 bytes at most")
        bounds.append(blob[at : at + length] if known else None)
        at += length if known else 0
    need(at == len(blob), "a zone map that ends with its bounds")
    four = zip(nulls, nans, bounds[:count], bounds[count:], strict=True)
    return [Statistics(*one) for one in four]


# Blocks


def read_block(
    front: bytes, header: tuple[Any, ...], facts: dict[str, int], layouts: dict[str, Stream]
) -> Block:
    """Return the block of a superchunk, compared with the header and the line."""
    _, version, _, checksum, typesize, chunk_size, last_chunk, nchunks, meta_size, _ = header
    if version == 4:
        metadata = parsed(front[FILE_HEADER.size : FILE_HEADER.size + meta_size])
        if not layouts:
            layouts = streams_of_bundle(metadata)
        block = of_metadata(metadata, layouts, nchunks)
    else:
        need("values" in layouts and nchunks >= 1, "one stream `values`")
        need(0 < last_chunk <= chunk_size <= MAX_CHUNK_BYTES, "chunks of their sizes")
        need(typesize == layouts["values"].typesize, "values of the type's width")
        chunks = [*[chunk_size] * (nchunks - 1), last_chunk]
        values = Stored(layouts["values"], chunks, None, layouts["values"])
        block = Block(facts["rows"], facts["page_rows"], [values])
    need((block.rows, block.page_rows) == (facts["rows"], facts["page_rows"]), "rows of the line")
    need(header == header_of(block, version, checksum, meta_size), "the header of its block")
    return block


def header_of(block: Block, version: int, checksum: int, meta_size: int) -> tuple[Any, ...]:
    """Return the header of a superchunk with this block."""
    streams = block.all_streams
    has_ends = any(one.layout.name.removeprefix("dictionary.") == "ends" for one in streams)
    options = 1 if version == 3 else 7 if has_ends else 3
    size, last = -1, -1
    if len(streams) == 1 and is_even(streams[0].chunks):
        size, last = streams[0].chunks[0], streams[0].chunks[-1]
    typesize = streams[0].layout.typesize if streams else 1
    nchunks = sum(len(one.chunks) for one in streams)
    return b"blpk", version, options, checksum, typesize, size, last, nchunks, meta_size, 0


def streams_of_bundle(metadata: Any) -> dict[str, Stream]:
    """Return the streams that a bundle says it has."""
    need(isinstance(metadata, dict) and metadata.get("encoding") == "bundle", "a bundle")
    streams = metadata.get("streams")
    need(isinstance(streams, list) and all(isinstance(one, dict) for one in streams), "streams")
    need([one.get("name") for one in streams[:2]] == ["entries", "encodings"], "a directory")
    need(not any("pages" in one or "encoding" in one for one in streams), "plain bytes")
    need("dictionary" not in metadata, "no dictionary of a bundle")
    need(metadata.get("packing") == "packed", "a packed bundle")
    return {
        str(one.get("name")): Stream(
            str(one.get("name")), str(one.get("dtype")), one["typesize"], None
        )
        for one in streams
        if 1 <= whole(one.get("typesize")) <= 255
    }


def is_even(chunks: list[int]) -> bool:
    """True if all chunks have one size, except a smaller last one."""
    return bool(chunks) and 0 < chunks[-1] <= chunks[0] and set(chunks[:-1]) <= {chunks[0]}


def of_metadata(entry: Any, layouts: dict[str, Stream], nchunks: int, prefix: str = "") -> Block:
    """Return the block that the metadata describe."""
    need(isinstance(entry, dict) and entry.get("packing") in PACKINGS, "a packing that is known")
    is_per_item = entry["packing"] == "per_item"
    need(not (is_per_item and prefix), "no chunk for each item of a dictionary")
    rows, page_rows = whole(entry.get("rows")), whole(entry.get("page_rows"))
    power_of_two(page_rows)
    need(isinstance(entry.get("streams"), list), "streams")
    streams: list[Stored] = []
    for stream in entry["streams"]:
        need(isinstance(stream, dict), "a stream")
        layout = layouts.get(f"{prefix}{stream.get('name')}")
        need(layout is not None, "a stream of the type")
        values, encoding = layout, stream.get("encoding")
        need(encoding is not None or values.dtype != "rows", "an encoding of rows of a child")
        if encoding is not None:
            layout = layout_of_codes(stream, values, entry)
        need(stream.get("dtype") == layout.dtype, "a stream of its dtype")
        need(whole(stream.get("typesize")) == layout.typesize, "a stream of its typesize")
        nbytes = whole(stream.get("nbytes"))
        need(("chunks" in stream) != ("chunk_size" in stream), "chunks or chunk_size")
        if "chunks" in stream:
            chunks = array(stream, "chunks")
        else:
            size = whole(stream["chunk_size"])
            need(0 < nbytes <= size * nchunks, "as many chunks as there are")
            chunks = [min(size, nbytes - start) for start in range(0, nbytes, size)]
        need(sum(chunks) == nbytes, "chunks that add up to the stream")
        if is_per_item and stream["name"] == "values":
            need(encoding is None, "the bytes of items")
            need(len(chunks) == rows, "a chunk for each item")
            need(max(chunks, default=0) <= MAX_ITEM_CHUNK_BYTES, "items of 256 MiB at most")
        else:
            need(all(0 < size <= MAX_CHUNK_BYTES for size in chunks), "chunks of 8 MiB at most")
        pages = None
        if "pages" in stream:
            pages = array(stream, "pages", -(-rows // page_rows))
            need(encoding is not None or sum(pages) == nbytes, "pages that add up to the stream")
        streams.append(Stored(layout, chunks, pages, values, encoding))
    kinds = [one.encoding["kind"] for one in streams if one.encoding and one.values.name == "ends"]
    need((kinds == ["per_item"]) == is_per_item, "ends that follow from chunks")
    dictionary = None
    if "dictionary" in entry:
        need(not prefix, "no dictionary inside a dictionary")
        dictionary = of_metadata(entry["dictionary"], layouts, nchunks, "dictionary.")
    return Block(rows, page_rows, streams, dictionary, is_per_item)


def check_streams(block: Block, layouts: dict[str, Stream], stated: dict[str, int]) -> None:
    """Refuse streams that do not belong to the type, or have wrong sizes."""
    found = [one.layout.name for one in block.all_streams]
    need([name for name in layouts if name in found] == found, "the streams of its type, in order")
    needed = {name for name in layouts if not name.endswith("valid")}
    need(needed <= set(found), "all streams of its type")
    need(("codes" in layouts) == (block.dictionary is not None), "a dictionary for a dictionary")
    sizes: dict[str, int] = {}
    for one in block.all_streams:
        inner = one.layout.name.startswith("dictionary.")
        owner = block.dictionary if inner and block.dictionary else block
        varies = one.layout.bits is None
        need((one.pages is not None) == varies, "pages where the bits of a row vary")
        if not varies:
            rows = 0 if is_made(one.encoding) else owner.rows
            need(sum(one.chunks) == one.layout.nbytes(rows), "the bytes of its rows")
        is_cut = one.encoding and not is_made(one.encoding)
        if is_cut or one.layout.name.removeprefix("dictionary.") in ("ends", "codes"):
            entry = np.dtype(one.layout.dtype).itemsize
            kind = one.encoding["kind"] if one.encoding else "plain"
            by_page = one.layout.name == "ends" and kind == "dictionary"
            if by_page or kind in ("delta", "lengths"):
                entry *= owner.page_rows
            need(not any(size % entry for size in one.chunks[:-1]), "whole entries")
            need(not sum(one.chunks) % np.dtype(one.layout.dtype).itemsize, "whole entries")
        sizes[one.layout.name] = sum(one.chunks)
        if one.values.dtype == "rows":
            sizes[one.layout.name] = 0
        elif one.encoding:
            sizes[one.layout.name] = sum(one.pages) if one.pages else one.values.nbytes(owner.rows)
    sizes = {name: size for name, size in sizes.items() if size}
    need(sizes == stated, "streams of the sizes that the line states")


# Encodings


OF_NUMBERS, OF_ITEMS = ("narrow", "scaled", "delta"), ("lengths", "each", "dictionary", "per_item")
MADE = ("each", "constant", "runs", "rows", "per_item")


def is_made(encoding: dict[str, Any] | None) -> bool:
    """True if the values come from the parameters alone, without a byte in the file."""
    return encoding is not None and encoding["kind"] in MADE


def items_of_dictionary(encoding: dict[str, Any]) -> list[bytes]:
    """Return the items of a dictionary."""
    data, lengths = unbase64(encoding.get("items")), unbase64(encoding.get("lengths"))
    need(len(lengths) % 2 == 0 and 0 < len(lengths) <= 2 << 16, "a length for each item")
    ends = [0, *accumulate(np.frombuffer(lengths, "<u2").tolist())]
    need(ends[-1] == len(data) <= MAX_ITEM_BYTES, "items of their lengths")
    return [data[start:stop] for start, stop in pairwise(ends)]


def layout_of_codes(stream: dict[str, Any], values: Stream, block: dict[str, Any]) -> Stream:
    """Return the layout of the codes of an encoded stream; refuse what cannot be decoded."""
    encoding, dtype = stream["encoding"], stream.get("dtype")
    need(isinstance(encoding, dict), "an encoding")
    kind, pages = encoding.get("kind"), -(-block["rows"] // block["page_rows"])
    need(kind in (*OF_NUMBERS, *OF_ITEMS, "constant", "runs", "rows"), "an encoding that is known")
    need((kind == "rows") == (values.dtype == "rows"), "an encoding for the items of lists")
    if kind == "rows":
        need(not stream.get("nbytes"), "no bytes of rows")
        return values
    if kind == "runs":
        at = np.frombuffer(unbase64(encoding.get("at")), "<i8").tolist()
        need(values.dtype == "bitmap", "runs of validity")
        need(0 < len(at) <= 4096 and at == sorted(set(at)), "rows that ascend")
        need(at[0] >= 0 and at[-1] < block["rows"], "rows of the part")
        need(values.nbytes(block["rows"]) <= MAX_MADE_BYTES, "few bytes that are made of nothing")
        return values
    if kind == "constant":
        need(values.bits is not None and values.bits <= 8 * 255, "values of up to 255 bytes")
        need(values.name.removeprefix("dictionary.") != "ends", "no ends")
        need(len(unbase64(encoding.get("value"))) == values.nbytes(1), "the bytes of a value")
        need(values.nbytes(block["rows"]) <= MAX_MADE_BYTES, "few bytes that are made of nothing")
        return values
    if kind == "dictionary":
        if values.name.endswith("values") and values.bits is not None:
            items, width = unbase64(encoding.get("items")), values.bits // 8
            need(1 < width <= 255 and 0 < len(items) <= MAX_VALUE_BYTES, "values of some bytes")
            need(len(items) % width == 0, "whole values")
            need(dtype in ("|u1", "<u2", "<u4") and np.dtype(dtype).itemsize < width, "codes")
            return Stream(values.name, dtype, 4, 8 * np.dtype(dtype).itemsize)
        need(not values.name.startswith("dictionary."), "no items inside a dictionary")
        kinds = {one["name"]: one.get("encoding", {}).get("kind") for one in block["streams"]}
        need(kinds.get("ends") == kinds.get("values") == kind, "ends and values in a dictionary")
        if values.name == "values":
            need(not stream.get("nbytes"), "no bytes of items")
            return values
        items_of_dictionary(encoding)
    is_of_ends = values.name.removeprefix("dictionary.") == "ends"
    need(is_of_ends == (kind in OF_ITEMS), "an encoding for such a stream")
    need(values.dtype != "bitmap", "an encoding for numbers")
    number = np.dtype(values.dtype)
    need(
        number.kind in ("f" if kind == "scaled" else "iu")
        or (kind, values.dtype) == ("narrow", "|V16"),
        "an encoding for such values",
    )
    if kind == "per_item":
        need(values.name == "ends" and block["packing"] == kind, "ends of items that are chunks")
        return values
    if kind == "each":
        need(values.nbytes(block["rows"]) <= MAX_MADE_BYTES, "few bytes that are made of nothing")
        whole(encoding.get("length"))
        return values
    need(dtype in ("|u1", "<u2", "<u4") and np.dtype(dtype).itemsize < number.itemsize, "codes")
    if kind == "delta":
        need(len(unbase64(encoding.get("firsts"))) == 8 * pages, "a first value for each page")
        need(len(unbase64(encoding.get("least"))) == 8, "a least step")
    elif kind in ("narrow", "scaled"):
        need(len(unbase64(encoding.get("bases"))) in (8, 8 * pages), "one base, or one a page")
    if kind == "scaled":
        need(number.itemsize == 8 and encoding.get("form") in ("/", "*"), "doubles in a form")
        need(whole(encoding.get("power")) <= 18, "a power of ten to 18")
        need(whole(encoding.get("nan", 0)) < 256 ** np.dtype(dtype).itemsize, "a code")
        at = np.frombuffer(unbase64(encoding.get("at", "")), "<i8").tolist()
        need(len(unbase64(encoding.get("odd", ""))) == 8 * len(at) <= 8 * 4096, "odd values")
        need(at == sorted(set(at)) and set(at) <= set(range(block["rows"])), "rows that ascend")
    return Stream(values.name, dtype, 4, 8 * np.dtype(dtype).itemsize)


def values_of_codes(one: Stored, data: bytes, block: Block) -> bytes:
    """Return the bytes of the values, computed with Python's integers."""
    assert one.encoding is not None
    kind, result = one.encoding["kind"], []
    if kind == "rows":
        return b""
    if kind == "constant":
        value = unbase64(one.encoding["value"])
        return value * (one.values.nbytes(block.rows) // len(value))
    if kind == "runs":
        at = [*np.frombuffer(unbase64(one.encoding["at"]), "<i8").tolist(), block.rows]
        lengths = [stop - start for start, stop in pairwise([0, *at])]
        bits = [place % 2 == 0 for place, length in enumerate(lengths) for _ in range(length)]
        return np.packbits(bits, bitorder="little").tobytes()
    width = np.dtype(one.values.dtype).itemsize
    if kind == "dictionary" and one.layout.name.endswith("values"):
        values = unbase64(one.encoding["items"])
        items = [values[start : start + width] for start in range(0, len(values), width)]
        numbers = np.frombuffer(data, one.layout.dtype).tolist()
        need(max(numbers, default=0) < len(items), "codes of the dictionary")
        return b"".join(items[number] for number in numbers)
    if kind in OF_ITEMS:
        lengths = np.frombuffer(data, one.layout.dtype).tolist()
        if kind == "dictionary":
            items = items_of_dictionary(one.encoding)
            lengths = [len(items[code]) if code < len(items) else 0 for code in lengths]
        lengths = [one.encoding["length"]] * block.rows if kind == "each" else lengths
        if kind == "per_item":
            (lengths,) = (other.chunks for other in block.streams if other.layout.name == "values")
        need(sum(lengths) < 1 << (8 * width - 1), "ends that fit")
        return np.array([*accumulate(lengths)], one.values.dtype).tobytes()
    words = np.frombuffer(unbase64(one.encoding.get("firsts") or one.encoding["bases"]), "<i8")
    all_codes = np.frombuffer(data, one.layout.dtype)
    for page, start in enumerate(range(0, block.rows, block.page_rows)):
        codes = all_codes[start : start + block.page_rows].tolist()
        word = int(words[page if len(words) > 1 else 0])
        if kind == "delta":
            least = int(np.frombuffer(unbase64(one.encoding["least"]), "<i8")[0])
            numbers = accumulate([word, *(least + code for code in codes[1:])])
        else:
            numbers = (word + code for code in codes)
        if kind == "scaled":
            power, form = one.encoding["power"], one.encoding["form"]
            scale = 10.0**power if form == "/" else float(f"1e-{power}")
            doubles = (float(code) + float(word) for code in codes)
            scaled = [x / scale if form == "/" else x * scale for x in doubles]
            nan = one.encoding.get("nan")
            scaled = [
                float("nan") if code == nan else x for code, x in zip(codes, scaled, strict=True)
            ]
            result.append(struct.pack(f"<{len(scaled)}d", *scaled))
        else:
            most = 1 << (8 * width)
            if width == 16:
                numbers = ((number + (1 << 63)) % (1 << 64) - (1 << 63) for number in numbers)
            result += [(number % most).to_bytes(width, "little") for number in numbers]
    values = bytearray(b"".join(result))
    at = np.frombuffer(unbase64(one.encoding.get("at", "")), "<i8")
    np.frombuffer(values, f"V{width}")[at] = np.frombuffer(
        unbase64(one.encoding.get("odd", "")), "V8"
    )
    return bytes(values)


# Chunks and values


def decompressed(chunk: bytes, typesize: int, nbytes: int) -> bytes:
    """Return the bytes of a chunk; check its header before C-Blosc sees it."""
    version, version_lz, flags, width, claimed, blocksize, ctbytes = CHUNK_HEADER.unpack_from(chunk)
    need((version, version_lz) == (2, 1), "a chunk of version 2")
    need(not flags & 0x08 and flags & 0x05 != 0x05, "flags that are known")
    need((width, claimed, ctbytes) == (typesize, nbytes, len(chunk)), "the sizes of its stream")
    need(16 < ctbytes <= nbytes + 16 and 1 <= blocksize <= nbytes, "sizes that go together")
    if flags & 0x02:
        need(ctbytes == nbytes + 16, "a stored chunk of its size")
    else:
        need(flags >> 5 in (0, 1, 3, 4), "a codec that is known")
        need(16 + 4 * -(-nbytes // blocksize) <= ctbytes, "room for the places of the blocks")
    try:
        result: bytes = blosc.decompress(chunk)
    except Exception:
        # C-Blosc only reports that it failed.
        refuse("a chunk that can be decompressed")
    need(len(result) == nbytes, "a chunk of its size")
    return result


def rows_of(
    type_: pa.DataType, block: Block, streams: dict[str, bytes], prefix: str = ""
) -> list[Row]:
    """Return the value of each row, None for a null."""
    if pa.types.is_dictionary(type_):
        assert block.dictionary is not None
        values = rows_of(type_.value_type, block.dictionary, streams, "dictionary.")
        codes = np.frombuffer(streams["codes"], streams_of(type_.index_type)[0].dtype)
        # If the dictionary is empty, every row is null and has code 0.
        most = max(len(values), 1)
        need(codes.min(initial=0) >= 0 and codes.max(initial=0) < most, "codes of the dictionary")
        rows = [values[code] for code in codes.tolist()] if values else [b""] * block.rows
    elif pa.types.is_null(type_):
        rows = [None] * block.rows
    elif type_ == STRUCT:
        rows = [b""] * block.rows
    elif type_ in LISTS:
        (pages,) = (one.pages for one in block.streams if one.layout.name == "values")
        ends = ends_of(LISTS[type_], block, streams, "", sum(pages or ()))
        rows = [stop - start for start, stop in pairwise(ends)]
    elif type_ in NARROW or type_ in WIDE:
        rows = items_of(type_, block, streams, prefix)
    else:
        width = 1 if pa.types.is_boolean(type_) else type_.bit_width // 8
        data = streams.get(f"{prefix}values", b"")
        if pa.types.is_boolean(type_):
            need(not data.strip(b"\0\1"), "booleans of 0 and 1")
        rows = [data[row * width : (row + 1) * width] for row in range(block.rows)]
        if pa.types.is_decimal(type_):
            numbers = [int.from_bytes(row or b"", "little", signed=True) for row in rows]
            most = max(map(abs, numbers), default=0)
            need(most < 10**type_.precision, "decimals of no more digits than their precision")
    if f"{prefix}valid" in streams:
        bits = np.frombuffer(streams[f"{prefix}valid"], np.uint8)
        present = np.unpackbits(bits, count=block.rows, bitorder="little").tolist()
        rows = [
            row if flag else ~row if type_ in LISTS else None
            for row, flag in zip(rows, present, strict=True)
        ]
    if pa.types.is_dictionary(type_) and not values:
        need(set(rows) <= {None}, "nulls alone where the dictionary is empty")
    return rows


def items_of(type_: pa.DataType, block: Block, streams: dict[str, bytes], prefix: str) -> list[Row]:
    """Return text or bytes, cut at their ends."""
    data = streams[f"{prefix}values"]
    ends = ends_of(type_, block, streams, prefix, len(data))
    rows: list[Row] = [data[start:stop] for start, stop in pairwise(ends)]
    if type_ in TEXT:
        for row in rows:
            decoded(row or b"")
    return rows


def ends_of(
    type_: pa.DataType, block: Block, streams: dict[str, bytes], prefix: str, size: int
) -> list[int]:
    """Return where items begin and end, `size` bytes or rows of a child together."""
    dtype = "<i4" if type_ in NARROW else "<i8"
    ends = [0, *np.frombuffer(streams[f"{prefix}ends"], dtype).tolist()]
    need(ends == sorted(ends) and ends[-1] == size, "ends that ascend to the last item")
    (pages,) = (one.pages for one in block.all_streams if one.layout.name == f"{prefix}values")
    last = [*range(block.page_rows, block.rows, block.page_rows), block.rows] if block.rows else []
    need([ends[row] for row in last] == list(accumulate(pages or ())), "ends of pages")
    return ends


# Files and JSON


def contents(root: Path, *names: str, size: int | None = None) -> bytes:
    """Return the bytes of a regular file below the root; refuse symbolic links on the way."""
    place = root
    for name in names:
        place = place / name
        need(not place.is_symlink(), f"no symbolic link at {place}")
    need(place.exists() and stat.S_ISREG(place.stat().st_mode), f"a file at {place}")
    need(size is None or place.stat().st_size == size, f"{size} bytes in {place}")
    return place.read_bytes()


def parsed(data: bytes) -> Any:
    """Parse JSON as the format allows it."""
    need(len(data) <= MAX_JSON_BYTES, "64 MiB of JSON at most")
    need(data.count(b"[") + data.count(b"{") <= MAX_BRACKETS, "fewer brackets")
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=refuse,
        )
        # Only a lone surrogate cannot be encoded again.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        refuse("JSON")
    need(_depth(value) <= MAX_DEPTH, "JSON nested 64 deep at most")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len(dict(pairs)) == len(pairs), "no key twice")
    return dict(pairs)


def _integer(digits: str) -> int:
    need(len(digits.lstrip("-")) <= MAX_DIGITS, "a number of fewer digits")
    return int(digits)


def _finite(digits: str) -> float:
    need(abs(float(digits)) < float("inf"), "a finite number")
    return float(digits)


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner: Iterator[Any] = iter(value.values() if isinstance(value, dict) else value)
    return 1 + max(map(_depth, inner), default=0)


def whole(value: Any) -> int:
    """Return an integer of the format."""
    need(type(value) is int and 0 <= value <= MAX_NUMBER, "a whole number")
    return int(value)


def array(entry: Any, key: str, count: int | None = None) -> list[int]:
    """Return the array of integers under a key."""
    need(isinstance(entry, dict) and isinstance(entry.get(key), list), f"an array {key!r}")
    need(count is None or len(entry[key]) == count, f"{count} numbers in {key!r}")
    return [whole(value) for value in entry[key]]


def power_of_two(rows: int) -> None:
    """Refuse a page size that the format does not allow."""
    need(8 <= rows <= 1 << 30 and rows & (rows - 1) == 0, "rows of a page")


def unbase64(text: Any) -> bytes:
    """Decode base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        refuse("base64")


def decoded(data: bytes) -> str:
    """Decode UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        refuse("UTF-8")


def need(condition: bool, expected: str) -> None:
    """Raise `Refused` unless the rule holds."""
    if not condition:
        refuse(expected)


def refuse(expected: str) -> NoReturn:
    """Raise `Refused` with the broken rule."""
    raise Refused(f"expected {expected}")
