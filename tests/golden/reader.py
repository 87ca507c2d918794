"""A reader of tables of format version 1, written from docs/format.md and nothing else.

It imports nothing of blztable, so any program can do the same. It needs numpy, python-blosc for the
chunks, and pyarrow for the schema message. A column comes back as a list with one entry a row: the
bytes of the value, or None for a null; a row of a dictionary column is the value of its code. A row
of a nested type is a tuple (struct), a list (of tuples for a map), or a pair of a type code and a
value (union); a row of a run is its value. Every check that the page demands of a reader is made
here. A broken rule raises `Refused`.

The reader reads whole columns, one after the other. It is written to be read, not to be fast.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import pyarrow as pa

from golden.page_files import (
    FOOT,
    FRONT,
    RECORD,
    SEAL,
    OneFile,
    Refused,
    need,
    parsed,
    refuse,
    store_of,
    whole,
)

Row = Any

MAX_ID = 10**18 - 1
MAX_CHUNK_BYTES, MAX_ITEM_BYTES, MAX_RATIO = 8 << 20, 256 << 20, 1 << 15
MAX_STREAM_BYTES, MAX_ROWS, MAX_OFFSET = 1 << 44, 1 << 40, 1 << 48
MAX_LEVEL, MAX_COLUMNS, MAX_ENTRIES, MAX_DEPTH_OF_TYPE = 6, 1 << 20, 1 << 20, 32
MAX_ITEMS, MAX_VALUES, MAX_WIDTH = 1 << 16, (1 << 31) - 1, (1 << 28) - 1
MANY = (1 << 32) - 1
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1

MANIFEST, SECTION = struct.Struct("<8sII"), struct.Struct("<QII")
LEAF, INDEX = struct.Struct("<8sIIII"), struct.Struct("<Q6I")
CHUNK_HEADER = struct.Struct("<BBBBIII")


def record(text: str) -> np.dtype[Any]:
    """Return a struct: `u8 a b, u1 c` has two fields of 8 bytes and one of a byte."""
    groups = [group.split() for group in text.split(",")]
    return np.dtype([(name, f"<{kind}") for kind, *names in groups for name in names])


GROUP = record("u8 rows stored changed file, u4 size crc groups deleted")
PART = record("u8 file offset rows nbytes cbytes, u1 streams page flags prefix, u4 pages")
STREAM = record("u8 nbytes, u4 chunk words, u1 name kind flags power width typesize, u2 exceptions")
CHUNK, PAGE = record("u4 size crc"), record("i8 min max, u4 nulls nans")

VALID, VALUES, LENGTHS, ITEMS_VALID, ITEMS_LENGTHS, ITEMS_VALUES = range(6)
PLAIN, NUMBERS, DICTIONARY, CONSTANT, PER_ITEM = range(5)
SUM, TIMES, NAN_CODE, UNSORTED = 1, 2, 4, 8
NAN_IS_NULL, EXACT, ITEM_CHUNKS = 1, 2, 4
KINDS = ["", "numbers", "dictionary", "constant", "item_chunks"]
FEATURES = {"deletions", "nested", "tags", "unlocked", *KINDS[1:]}
EMPTY_CHUNK = bytes.fromhex("02011301000000000100000010000000")

HEAD_KEYS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("format", "uuid", "commit", "writer", "time", "operation"), str),
    **dict.fromkeys(("version", "parent", "lasting", "changed", "rows"), int),
    **dict.fromkeys(("next_column", "next_file"), int),
    **dict.fromkeys(("ids", "commit_ids", "history", "requires"), list),
    **dict.fromkeys(("did", "properties", "attributes", "metalayers", "tags"), dict),
    "durable": bool,
    "pandas": (dict, type(None)),
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)


# A version


@dataclass(frozen=True)
class Column:
    """The rows of a column, and its nodes in pre-order: their type, their parts, their stored rows.

    The rows of a node are those that its records count: a list has its length, or ~n if it is null.
    """

    rows: list[Row]
    nodes: list[tuple[pa.DataType, list["Part"], list[Row]]]


@dataclass(frozen=True)
class Version:
    """One version of a table."""

    head: dict[str, Any]
    schema: pa.Schema
    columns: list[Column]
    tails: list["Leaf"]

    def first_group(self, level: int) -> int:
        """Return the number of row groups before those of a tail."""
        return sum(int(leaf.groups["groups"].sum()) for leaf in self.tails[level + 1 :])


def versions(root: Path) -> list[int]:
    """Return the versions of a table, ascending."""
    names = store_of(root).names("meta/manifest")
    return sorted(int(name) for name in names if re.fullmatch(r"[0-9]{20}", name) and int(name))


def read(root: Path, number: int | None = None) -> Version:
    """Return a version (default: the newest) of the table in this directory or file."""
    store = store_of(root)
    number = max(versions(root)) if number is None else number
    head, schema, tails = manifest(store.get(f"meta/manifest/{number:020d}"), number)
    return rows_of_version(store, head, schema, tails)


def manifest(data: bytes, number: int) -> tuple[dict[str, Any], pa.Schema, list["Leaf"]]:
    """Return the head, the schema and the tails of a manifest."""
    need(len(data) >= MANIFEST.size, "a manifest")
    magic, version, count = MANIFEST.unpack_from(data)
    need(magic == b"blztable" and version == 1, "a manifest of format 1")
    need(3 <= count <= 9 or len(data) == 24, "3 to 9 sections, or a tombstone")
    end = MANIFEST.size + count * SECTION.size
    need(len(data) >= end + 8, "a table of sections")
    need(struct.unpack_from("<II", data, end) == (zlib.crc32(data[:end]), 0), "the crc32 of it")
    need(count > 0, "a version; this one was removed")
    sections, at = [], end + 8
    for entry in range(count):
        offset, size, crc = SECTION.unpack_from(data, MANIFEST.size + entry * SECTION.size)
        stop = at + size + -size % 8
        need(offset == at and stop <= len(data), "sections one behind the other")
        section = data[at : at + size]
        need(not any(data[at + size : stop]), "zeros behind a section")
        need(crc == (zlib.crc32(section) if entry < 2 else 0), "the crc32 of a section")
        sections.append(section)
        at = stop
    need(at == len(data), "a manifest of the size of its sections")
    head = checked_head(parsed(sections[0]), number)
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(sections[1]))
    except (pa.ArrowInvalid, OSError):
        refuse("an Arrow schema")
    tails = [Leaf(section) for section in sections[2:]]
    need([leaf.level for leaf in tails] == list(range(len(tails))), "tails of all levels")
    need(len({leaf.columns for leaf in tails}) == 1, "tails of the same columns")
    return head, schema, tails


def checked_head(head: Any, number: int) -> dict[str, Any]:
    """Return the head, with all required fields."""
    need(isinstance(head, dict) and head.get("format") == "blztable", "a manifest of blztable")
    for key, kind in HEAD_KEYS.items():
        need(key in head and isinstance(head[key], kind), f"a key {key!r} of the head")
        if kind is int:
            whole(head[key])
    need(head["version"] == number, "this version")
    need(set(map(str, head["requires"])) <= FEATURES, "no features that are not known")
    need(not head["tags"] or "tags" in head["requires"], "a feature for tags")
    for name, tagged in head["tags"].items():
        need(0 < len(name) <= 255 and name.isprintable() and not name.isdecimal(), "a tag's name")
        need(0 < whole(tagged) < number, "a tag of an older version")
    for pair in head["commit_ids"] + head["history"]:
        need(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str), "a pair")
        whole(pair[1])
    times = [head["time"], *(pair[0] for pair in head["history"])]
    need(all(map(TIME.fullmatch, times)), "times of the one form")
    need(all(whole(one) < head["next_column"] for one in head["ids"]), "ids below the next one")
    return head


def rows_of_version(
    store: Any, head: dict[str, Any], schema: pa.Schema, tails: list["Leaf"]
) -> Version:
    """Return a version whose columns are read."""
    types = [storage(one.type) for one in schema]
    nodes = [node for type_ in types for node in nodes_of(type_)]
    need(len(nodes) == len(head["ids"]) == tails[0].columns, "an id for each node")
    need(len(nodes) == len(types) or "nested" in head["requires"], "a feature for nodes")
    paths: list[tuple[int, ...]] = []
    above: list[int] = []
    for one, (depth, _, _) in zip(head["ids"], nodes, strict=True):
        need(depth <= MAX_DEPTH_OF_TYPE, "a type that is not too deep")
        above = [*above[:depth], one]
        paths.append(tuple(above))
    need(len(set(paths)) == len(paths), "no path twice")
    leaves = [leaf for tail in reversed(tails) for leaf in below(store, tail)]
    groups = [group for leaf in leaves for group in leaf.groups]
    need(sum(int(group["rows"]) for group in groups) == head["rows"], "the rows of the head")
    deleted = [gone for leaf in leaves for gone in leaf.deleted()]
    need(not any(deleted) or "deletions" in head["requires"], "a feature for deleted rows")
    firsts = accumulate((int(group["stored"]) for group in groups), initial=0)
    gone = {first + row for first, rows in zip(firsts, deleted, strict=False) for row in rows}
    numbers = iter(range(len(nodes)))
    reader = Nodes(store, head, leaves, groups, paths)
    columns = []
    for type_ in types:
        column = reader.column(type_, numbers, [int(group["stored"]) for group in groups])
        rows = column.rows
        kept = [value for row, value in enumerate(rows) if row not in gone] if gone else rows
        columns.append(Column(kept, column.nodes))
    return Version(head, schema, columns, tails)


def below(store: Any, leaf: "Leaf") -> Iterator["Leaf"]:
    """Yield the leaves of level 0 that a leaf leads to, in the order of the rows."""
    if leaf.level == 0:
        yield leaf
        return
    for group in leaf.groups:
        data = store.get(f"meta/leaf/{group['file']:020d}")
        child = Leaf(data)
        need(len(data) == group["size"] and child.crc == group["crc"], "the leaf of the group")
        need(child.level == leaf.level - 1 and child.columns == leaf.columns, "the level below")
        for name in ("rows", "stored", "groups"):
            need(child.groups[name].sum() == group[name], "sums of the leaf below")
        yield from below(store, child)


# Leaves


@dataclass
class Part:
    """The records of one node in one row group."""

    record: Any
    streams: dict[int, "Stream"]
    pages: Any
    prefix: bytes

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.record["rows"])


@dataclass
class Stream:
    """A stream: its record, its words, the records of its chunks, and its bytes once decoded."""

    record: Any
    words: Any
    chunks: Any
    data: bytes = b""
    sizes: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> int:
        return int(self.record[name])


class Leaf:
    """A leaf whose header and index are checked."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        need(len(data) >= LEAF.size, "a leaf")
        magic, self.level, self.entries, self.columns, self.crc = LEAF.unpack_from(data)
        need(magic == b"blz-leaf" and self.level <= MAX_LEVEL, "a leaf")
        need(self.columns <= MAX_COLUMNS and self.entries <= MAX_ENTRIES, "a leaf in its limits")
        self.end = LEAF.size + (self.columns + 1) * INDEX.size
        need(len(data) >= self.end, "an index")
        need(zlib.crc32(data[:20] + data[LEAF.size : self.end]) == self.crc, "the crc of an index")
        self.index = list(INDEX.iter_unpack(data[LEAF.size : self.end]))
        self.slices, at = [], self.end
        need(self.index[0][2:5] == (0, 0, 0) and self.index[0][6] == 0, "words alone")
        for offset, _, streams, chunks, pages, words, prefixes in self.index:
            size = 48 * self.entries + 24 * streams + 8 * chunks + 24 * pages + 8 * words
            size += prefixes + -prefixes % 8
            need(offset == at, "slices one behind the other")
            self.slices.append((at, at + size))
            at += size
        need(at == len(data), "slices that fill the leaf")
        self.groups = self._groups()

    def slice(self, number: int) -> bytes:
        """Return a slice, compared with its checksum."""
        start, stop = self.slices[number]
        data = self.data[start:stop]
        need(zlib.crc32(data) == self.index[number][1], "the crc32 of a slice")
        return data

    def _groups(self) -> Any:
        groups = np.frombuffer(self.slice(0), GROUP, self.entries)
        need((groups["rows"] > 0).all() and (groups["stored"] < MAX_ROWS).all(), "rows of groups")
        need((groups["rows"] <= groups["stored"]).all(), "rows that are stored")
        if self.level:
            need((groups["file"] > 0).all() and (groups["groups"] > 0).all(), "leaves below")
        else:
            need((groups["groups"] == 1).all() and not groups["size"].any(), "row groups")
        return groups

    def deleted(self) -> list[list[int]]:
        """Return the deleted rows of each row group, as numbers of its stored rows."""
        words = np.frombuffer(self.slice(0), "<i8", -1, 48 * self.entries).tolist()
        need(len(words) == self.groups["deleted"].sum(), "words of deleted rows")
        found, at = [], 0
        for group in self.groups:
            rows, end = [], -1
            for word in words[at : at + int(group["deleted"])]:
                first, count = word >> 24, word & (1 << 24) - 1
                need(count > 0 and end < first and first + count <= group["stored"], "a run")
                rows += range(first, first + count)
                end = first + count
            need(len(rows) == group["stored"] - group["rows"], "all deleted rows")
            at += int(group["deleted"])
            found.append(rows)
        return found

    def parts(self, column: int) -> list[Part]:
        """Return the records of a node, checked without its type."""
        data, at = self.slice(column + 1), 0
        counts = (self.entries, *self.index[column + 1][2:])
        arrays = []
        for dtype, count in zip((PART, STREAM, CHUNK, PAGE, "<i8", "u1"), counts, strict=True):
            arrays.append(np.frombuffer(data, dtype, count, at))
            at += arrays[-1].nbytes
        records, *others = arrays
        took = [0] * 5

        def take(kind: int, count: int) -> Any:
            took[kind] += int(count)
            need(took[kind] <= len(others[kind]), "records that are there")
            return others[kind][took[kind] - int(count) : took[kind]]

        parts = []
        for record in records:
            streams: dict[int, Stream] = {}
            for one in take(0, record["streams"]):
                check_stream(one)
                need(one["name"] > max(streams, default=-1), "names that ascend")
                count = -(-int(one["nbytes"]) // int(one["chunk"])) if one["chunk"] else 0
                stream = streams[int(one["name"])] = Stream(one, None, take(1, count))
                for number, (size, _) in enumerate(stream.chunks.tolist()):
                    nbytes = min(stream.chunk, stream.nbytes - number * stream.chunk)
                    need(16 < size <= nbytes + 16 and nbytes <= size * MAX_RATIO, "a chunk's size")
                    stream.sizes.append(nbytes)
            pages = take(2, record["pages"])
            for stream in streams.values():
                stream.words = take(3, stream.record["words"])
            check_part(record, pages, self.level)
            need(not self.level or not streams, "no streams of leaves")
            parts.append(Part(record, streams, pages, take(4, record["prefix"]).tobytes()))
        need(took == list(map(len, others)), "no records that are left over")
        return parts


def check_part(record: Any, pages: Any, level: int) -> None:
    """Check the record of a part and its pages."""
    rows, log2 = int(record["rows"]), int(record["page"])
    need(3 <= log2 <= 30 and rows < MAX_ROWS and record["nbytes"] < MAX_STREAM_BYTES, "a part")
    need(record["offset"] < MAX_OFFSET and record["flags"] < 8, "a part")
    need(record["cbytes"] < MAX_STREAM_BYTES and record["file"] <= MAX_ID, "a part")
    need(len(pages) in ([1] if level else [0, -(-rows >> log2)]), "pages of all rows")
    sizes = [min(1 << log2, rows - first) for first in range(0, rows, 1 << log2)]
    sums = () if level else pages["nulls"].astype("i8") + pages["nans"]
    need(all(one <= size for one, size in zip(sums, sizes, strict=False)), "nulls of a page")


def check_stream(one: Any) -> None:
    """Check the record of a stream."""
    need(one["nbytes"] < MAX_STREAM_BYTES and one["chunk"] <= MAX_CHUNK_BYTES, "a stream's bytes")
    need(one["name"] <= 5 and one["kind"] <= 4 and one["flags"] < 16, "a stream that is known")
    need(one["power"] <= 18 and one["width"] in (0, 1, 2, 4, 8), "an encoding in its limits")
    has_chunks = one["nbytes"] > 0 and one["kind"] != PER_ITEM
    need((one["chunk"] > 0) == has_chunks and one["typesize"] > 0, "chunks of bytes")
    need(one["kind"] != CONSTANT or one["nbytes"] == 0, "no bytes of a constant")


# Types

TEXT = (pa.string(), pa.large_string(), pa.string_view())
BYTES = (*TEXT, pa.binary(), pa.large_binary(), pa.binary_view())
# What the nodes of nested types have for themselves.
STRUCT, LIST = pa.struct([]), pa.list_(pa.null())


def storage(type_: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type that Arrow knows, else the type."""
    return getattr(type_, "storage_type", type_)


def width_of(type_: pa.DataType) -> int:
    """Return the bytes of a value of fixed width."""
    kinds = pa.types
    if kinds.is_boolean(type_):
        return 1
    if kinds.is_fixed_size_binary(type_) and not kinds.is_decimal(type_):
        need(type_.byte_width <= MAX_WIDTH, "a width that can be stored")
        return int(type_.byte_width)
    if kinds.is_primitive(type_) or kinds.is_decimal(type_) or kinds.is_interval(type_):
        return int(type_.bit_width) // 8
    raise Refused(f"a column of {type_}, which version 1 does not store")


def value_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, else the type."""
    return storage(type_.value_type) if pa.types.is_dictionary(type_) else type_


def node_of(type_: pa.DataType) -> tuple[pa.DataType, list[pa.DataType]]:
    """Return the type of a node's own streams, and the types of its children."""
    kinds = pa.types
    if kinds.is_struct(type_) or kinds.is_union(type_):
        children = [storage(type_.field(number).type) for number in range(type_.num_fields)]
        return (STRUCT if kinds.is_struct(type_) else pa.int8()), children
    if kinds.is_fixed_size_list(type_):
        return STRUCT, [storage(type_.value_type)]
    if kinds.is_map(type_):
        return LIST, [storage(type_.key_type), storage(type_.item_type)]
    lists = kinds.is_list, kinds.is_large_list, kinds.is_list_view, kinds.is_large_list_view
    if any(is_kind(type_) for is_kind in (*lists, kinds.is_run_end_encoded)):
        return LIST, [storage(type_.value_type)]
    if kinds.is_dictionary(type_):
        need(not kinds.is_dictionary(type_.value_type), "a dictionary of plain values")
        value = storage(type_.value_type)
        if node_of(value)[1] or kinds.is_struct(value):
            return type_.index_type, [value]
    elif type_ not in BYTES and not kinds.is_null(type_):
        width_of(type_)
    return type_, []


def nodes_of(type_: pa.DataType, depth: int = 0) -> Iterator[tuple[int, pa.DataType, int]]:
    """Yield the depth and the type of each node in pre-order."""
    need(depth <= MAX_DEPTH_OF_TYPE, "a type that is not too deep")
    _, children = node_of(type_)
    yield depth, type_, len(children)
    for child in children:
        yield from nodes_of(child, depth + 1)


# Nodes


@dataclass
class Nodes:
    """Reads nodes of a version, in pre-order."""

    store: Any
    head: dict[str, Any]
    leaves: list[Leaf]
    groups: list[Any]
    paths: list[tuple[int, ...]]

    def column(
        self, type_: pa.DataType, numbers: Iterator[int], needed: list[int] | None
    ) -> Column:
        """Return all rows of the next node, of which each row group needs so many."""
        flat, children = node_of(type_)
        own_rows, parts = self._own(flat, next(numbers), needed)
        rows = [row for group in own_rows for row in group]
        nodes = [(type_, parts, rows)]
        if not children and not pa.types.is_struct(type_):
            return Column(rows, nodes)
        counts = rows_below(type_, own_rows)
        columns = [self.column(child, numbers, counts) for child in children]
        nodes += [node for child in columns for node in child.nodes]
        if counts is None:
            sizes = [part.rows for part in columns[0].nodes[0][1]]
            rows = coded(type_, own_rows, columns[0].rows, sizes)
        else:
            rows = assembled(type_, rows, [one.rows for one in columns])
        return Column(rows, nodes)

    def _own(
        self, type_: pa.DataType, number: int, needed: list[int] | None
    ) -> tuple[list[list[Row]], list[Part]]:
        """Return the rows of a node in each row group, without those of its children."""
        parts = [part for leaf in self.leaves for part in leaf.parts(number)]
        rows, keys = [], list[str]()
        for group, part in enumerate(parts):
            need(needed is None or part.rows == needed[group], "the rows that the parent needs")
            need(part.rows <= MAX_VALUES or needed is not None, "values that codes can count")
            data = b""
            for stream in part.streams.values():
                name = KINDS[stream.kind]
                need(not name or name in self.head["requires"], "features for encodings")
            if any(len(one.chunks) or one.kind == PER_ITEM for one in part.streams.values()):
                need(part.record["file"], "a file of the chunks")
                bundled = part.record["file"] == self.groups[group]["file"]
                folder = "group" if bundled else "/".join(f"col{one}" for one in self.paths[number])
                keys.append(f"data/{folder}/__{part.record['file']}__.bin")
                data = self.store.get(keys[-1])
            claimed = 8 * part.rows + sum(one.nbytes for one in part.streams.values())
            need(claimed <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "memory")
            decompress(part, data)
            rows.append(rows_of(type_, part))
        need(len(set(keys)) == len(keys), "no two row groups with the same file")
        return rows, parts


def rows_below(type_: pa.DataType, groups: list[list[Row]]) -> list[int] | None:
    """Return the rows of each child in each row group, given those of the node; None for any."""
    if pa.types.is_dictionary(type_):
        return None
    if pa.types.is_fixed_size_list(type_):
        return [len(group) * type_.list_size for group in groups]
    if node_of(type_)[0] != LIST:
        return list(map(len, groups))
    if pa.types.is_run_end_encoded(type_):
        need(all({*group} <= {0, 1} for group in groups), "rows that begin a run or continue one")
        need(all(group[0] == 1 for group in groups if group), "a run from the first row on")
    return [sum(map(items_in, group)) for group in groups]


def items_in(row: int) -> int:
    """Return the items of a row of a list, which is ~n if it is null and has n items."""
    return ~row if row < 0 else row


def coded(
    type_: pa.DataType, groups: list[list[Row]], values: list[Row], sizes: list[int]
) -> list[Row]:
    """Return the value of each code, which counts from 0 in each row group."""
    found: list[Row] = []
    firsts = accumulate(sizes, initial=0)
    for group, size, first in zip(groups, sizes, firsts, strict=False):
        for row in group:
            code = None if row is None else int.from_bytes(row, "little")
            need(code is None or code < size, "a code of a value")
            found.append(None if code is None else values[first + code])
    return found


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
        items = children[0] if len(children) == 1 else list(zip(*children, strict=True))
        ends = accumulate(map(items_in, rows), initial=0)
        values = (items[start:stop] for start, stop in pairwise(ends))
        rows = [None if row < 0 else row for row in rows]
    return [None if row is None else value for row, value in zip(rows, values, strict=True)]


# Chunks


def decompress(part: Part, data: bytes) -> None:
    """Set the bytes of all streams of a part, given its data file."""
    at = int(part.record["offset"])
    for stream in part.streams.values():
        if stream.kind == PER_ITEM:
            at = items_of_file(part, stream, data, at)
            continue
        pieces = []
        for (size, crc), nbytes in zip(stream.chunks.tolist(), stream.sizes, strict=True):
            chunk = data[at : at + size]
            need(zlib.crc32(chunk) == crc, "the crc32 of a chunk")
            pieces.append(decompressed(chunk, stream.typesize, nbytes))
            at += size + 4
        stream.data = b"".join(pieces)
    need(not data or at <= len(data), "a file with all chunks")


def items_of_file(part: Part, stream: Stream, data: bytes, at: int) -> int:
    """Set the bytes of a stream of one chunk an item; return where the next chunk begins."""
    begin, rows = int(part.record["offset"]), part.rows
    before = sum(len(one.chunks) for name, one in part.streams.items() if name == VALID)
    behind = [one.chunks for name, one in part.streams.items() if name > VALUES]
    chunks = before + rows + sum(map(len, behind))
    need(64 + 8 * chunks <= begin <= len(data), "offsets of all items")
    need(len(stream.words) == 1, "a word of all items")
    offsets = np.frombuffer(data, "<i8", chunks, begin - 8 * chunks)[before : before + rows]
    need(zlib.crc32((offsets - begin).tobytes()) == stream.words[0] & MANY, "places of the items")
    end = (
        begin
        + int(part.record["cbytes"])
        - sum(int(one["size"].sum()) + 4 * len(one) for one in behind)
    )
    places = [*offsets.tolist(), end]
    need(places[0] == at, "items from the first on")
    for start, stop in pairwise(places):
        need(stop - start >= 20 and stop <= len(data), "room for an item")
        chunk = data[start : stop - 4]
        need(zlib.crc32(chunk) == int.from_bytes(data[stop - 4 : stop], "little"), "an item's crc")
        nbytes = CHUNK_HEADER.unpack_from(chunk)[4]
        need(nbytes <= MAX_ITEM_BYTES and nbytes <= len(chunk) * MAX_RATIO, "an item of a size")
        stream.sizes.append(nbytes)
        item = decompressed(chunk, stream.typesize, nbytes) if nbytes else b""
        need(nbytes or chunk == EMPTY_CHUNK, "the chunk of an empty item")
        stream.data += item
    need(len(stream.data) == stream.nbytes, "bytes of all items")
    return end


def decompressed(chunk: bytes, typesize: int, nbytes: int) -> bytes:
    """Return the bytes of a chunk; check its header before C-Blosc sees it."""
    need(len(chunk) >= CHUNK_HEADER.size, "a chunk")
    version, version_lz, flags, width, claimed, blocksize, ctbytes = CHUNK_HEADER.unpack_from(chunk)
    need((version, version_lz) == (2, 1), "a chunk of version 2")
    need(not flags & 0x08 and flags & 0x05 != 0x05, "flags that are known")
    need((width, claimed, ctbytes) == (typesize, nbytes, len(chunk)), "the sizes of its stream")
    need(16 < ctbytes <= nbytes + 16 and 1 <= blocksize <= nbytes, "sizes that go together")
    if flags & 0x02:
        need(ctbytes == nbytes + 16, "a stored chunk of its size")
    else:
        need(flags >> 5 in (0, 1, 3, 4), "a codec that is known")
        need(flags >> 5 or ctbytes <= MAX_CHUNK_BYTES + 16, "no large chunk in blosclz")
        need(16 + 4 * -(-nbytes // blocksize) <= ctbytes, "room for the places of the blocks")
    try:
        result: bytes = blosc.decompress(chunk)
    except Exception:
        # C-Blosc only reports that it failed.
        refuse("a chunk that can be decompressed")
    need(len(result) == nbytes, "a chunk of its size")
    return result


# Values


def rows_of(type_: pa.DataType, part: Part) -> list[Row]:
    """Return the rows of a part without its children, None for a null."""
    rows, streams = part.rows, part.streams
    flags = int(part.record["flags"])
    need(not flags & ITEM_CHUNKS or type_ in BYTES, "items of text or binary")
    if rows == 0:
        need(not streams, "no streams without rows")
        return []
    names = set(streams) - {VALID}
    if pa.types.is_null(type_):
        need(not streams, "no streams of nulls")
        return [None] * rows
    if pa.types.is_dictionary(type_):
        found = dictionary_rows(storage(type_.value_type), part)
    elif type_ == STRUCT:
        need(not names, "no values of a struct")
        found = [b""] * rows
    elif type_ == LIST:
        need(names == {LENGTHS}, "lengths")
        found = lengths_of(streams[LENGTHS], rows, int(part.record["page"]))
    elif type_ in BYTES:
        found = items_of(type_, part)
    else:
        found = fixed_rows(type_, part, names)
    if flags & NAN_IS_NULL:
        need(pa.types.is_floating(type_) and VALID not in streams, "floats, which have NaN")
        floats = np.frombuffer(b"".join(found), f"<f{width_of(type_)}")
        return [None if nan else row for row, nan in zip(found, np.isnan(floats), strict=True)]
    if VALID in streams:
        present = bits_of(streams[VALID], rows)
        absent = (lambda row: ~row) if type_ == LIST else (lambda row: None)
        found = [row if flag else absent(row) for row, flag in zip(found, present, strict=True)]
    if pa.types.is_boolean(value_type(type_)) or pa.types.is_decimal(value_type(type_)):
        check_values(value_type(type_), found)
    return found


def bits_of(stream: Stream, rows: int) -> list[bool]:
    """Return which rows have a value."""
    if stream.kind == CONSTANT:
        need(stream.words.tolist() == [0], "one word of nulls")
        return [False] * rows
    need(stream.kind == PLAIN and len(stream.data) == -(-rows // 8), "a bit a row")
    need(len(stream.words) == 0, "no words of bits")
    data = np.frombuffer(stream.data, np.uint8)
    return np.unpackbits(data, count=rows, bitorder="little").astype(bool).tolist()


def check_cut(stream: Stream, width: int) -> None:
    """Refuse chunks that end inside of a value."""
    is_whole = stream.nbytes <= stream.chunk or width > 255 or not stream.chunk % max(width, 1)
    need(is_whole, "chunks of whole values")


def codes_of(stream: Stream, rows: int) -> list[int]:
    """Return the codes of all rows."""
    need(stream.nbytes == (rows + -rows % 8) * stream.width, "codes of all rows")
    check_cut(stream, stream.width)
    if stream.width == 0:
        return [0] * rows
    codes: list[int] = np.frombuffer(stream.data, f"<u{stream.width}")[:rows].tolist()
    return codes


def lengths_of(stream: Stream, rows: int, page: int) -> list[int]:
    """Return the lengths of items."""
    need(stream.kind == NUMBERS and stream.flags == SUM and not stream.exceptions, "lengths")
    words = stream.words.tolist()
    need(len(words) == -(-rows >> page) + 2, "words of each page")
    *starts, least = words
    need(least >= 0 and starts[0] == 0 and starts == sorted(starts), "words that ascend")
    need(starts[-1] < MAX_STREAM_BYTES, "a total that can be stored")
    lengths = [least + code for code in codes_of(stream, rows)]
    for number, first in enumerate(range(0, rows, 1 << page)):
        total = sum(lengths[first : first + (1 << page)])
        need(total == starts[number + 1] - starts[number], "the lengths of a page")
    return lengths


def items_of(type_: pa.DataType, part: Part) -> list[Row]:
    """Return text or binary."""
    streams, rows = part.streams, part.rows
    need(LENGTHS in streams, "lengths")
    if streams[LENGTHS].kind == DICTIONARY:
        need(not int(part.record["flags"]) & ITEM_CHUNKS, "items that share chunks")
        return dictionary_rows(type_, part, is_sorted=True)
    need(set(streams) - {VALID} == {LENGTHS, VALUES}, "values and lengths")
    lengths = lengths_of(streams[LENGTHS], rows, int(part.record["page"]))
    values = streams[VALUES]
    is_per_item = bool(int(part.record["flags"]) & ITEM_CHUNKS)
    need(values.kind == (PER_ITEM if is_per_item else PLAIN), "items as the part says")
    need(not is_per_item or values.sizes == lengths, "the lengths of the chunks")
    need(len(values.words) == is_per_item, "no words of values")
    return cut(type_, lengths, values.data)


def cut(type_: pa.DataType, lengths: list[int], data: bytes) -> list[Row]:
    """Return items of these lengths."""
    need(sum(lengths) == len(data), "bytes of all items")
    items = [data[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]
    if type_ in TEXT:
        for item in items:
            try:
                item.decode("utf-8")
            except UnicodeDecodeError:
                refuse("UTF-8")
    return items


def dictionary_rows(type_: pa.DataType, part: Part, *, is_sorted: bool = False) -> list[Row]:
    """Return the item of each code; `type_` is that of the items."""
    streams = part.streams
    name = LENGTHS if type_ in BYTES else VALUES
    need(name in streams and streams[name].kind == DICTIONARY, "codes")
    stream = streams[name]
    need(stream.flags == (0 if is_sorted else UNSORTED), "items that are sorted or not")
    need(len(stream.words) == 1 and not stream.exceptions, "the number of items")
    count = int(stream.words[0])
    need(is_sorted <= count <= (MAX_ITEMS if is_sorted else MAX_VALUES), "not too many items")
    expected = {ITEMS_VALUES, ITEMS_LENGTHS} if type_ in BYTES else {ITEMS_VALUES}
    if pa.types.is_null(type_):
        expected = set()
    has = set(streams) - {VALID, name, ITEMS_VALID}
    need(has == expected, "streams of items")
    items: list[Row] = [b""] * count
    if pa.types.is_null(type_):
        items = [None] * count
    elif type_ in BYTES:
        lengths = lengths_of(streams[ITEMS_LENGTHS], count, 30)
        items = cut(type_, lengths, streams[ITEMS_VALUES].data)
    else:
        items = plain_rows(type_, streams[ITEMS_VALUES], count)
    if ITEMS_VALID in streams:
        need(not is_sorted, "items that are there")
        present = bits_of(streams[ITEMS_VALID], count)
        items = [item if flag else None for item, flag in zip(items, present, strict=True)]
    codes = codes_of(stream, part.rows)
    if count == 0:
        need(not any(codes) and VALID in streams, "nulls alone without items")
        need(not any(bits_of(streams[VALID], part.rows)), "nulls alone without items")
        return [None] * part.rows
    need(max(codes) < count, "codes of items")
    return [items[code] for code in codes]


def plain_rows(type_: pa.DataType, stream: Stream, rows: int) -> list[bytes]:
    """Return the values of a plain stream."""
    width = width_of(type_)
    need(stream.kind == PLAIN and stream.nbytes == rows * width, "values of all rows")
    check_cut(stream, width)
    need(len(stream.words) == 0, "no words of plain values")
    return [stream.data[row * width :][:width] for row in range(rows)]


def check_values(type_: pa.DataType, rows: list[Row]) -> None:
    """Check values of types that have rules for them; null rows may have any."""
    values = {row for row in rows if row is not None}
    if type_ == pa.bool_():
        need(values <= {b"\0", b"\1"}, "booleans of 0 and 1")
    if pa.types.is_decimal(type_):
        numbers = [abs(int.from_bytes(value, "little", signed=True)) for value in values]
        need(max(numbers, default=0) < 10**type_.precision, "decimals within their precision")


def fixed_rows(type_: pa.DataType, part: Part, names: set[int]) -> list[bytes]:
    """Return values of fixed width."""
    width, rows = width_of(type_), part.rows
    need(VALUES in names, "values")
    stream = part.streams[VALUES]
    if stream.kind == DICTIONARY:
        need(width > 1, "values of more than a byte")
        return dictionary_rows(type_, part, is_sorted=True)
    need(names == {VALUES}, "values alone")
    if stream.kind == PLAIN:
        return plain_rows(type_, stream, rows)
    if stream.kind == CONSTANT:
        need(8 * len(stream.words) == width + -width % 8, "the bytes of a value")
        return [stream.words.tobytes()[:width]] * rows
    need(stream.kind == NUMBERS, "an encoding of values")
    need(type_ == pa.float64() or not stream.flags & (TIMES | NAN_CODE), "flags of doubles")
    need(type_ == pa.float64() or not stream.power + stream.exceptions, "powers of doubles")
    words = words_of(part, stream)
    if type_ == pa.float64():
        return doubles(part, stream, words)
    kinds = pa.types
    need(not kinds.is_floating(type_) and not kinds.is_interval(type_), "numbers")
    need(kinds.is_decimal(type_) or not kinds.is_fixed_size_binary(type_), "numbers")
    if type_ == pa.uint64():
        words = [word + (1 << 63) for word in words]
    signed = not kinds.is_unsigned_integer(type_) and not kinds.is_boolean(type_)
    values = [(word % (1 << 8 * width)).to_bytes(width, "little") for word in words]
    present = bits_of(part.streams[VALID], rows) if VALID in part.streams else [True] * rows
    for word, value, flag in zip(words, values, present, strict=True):
        is_same = int.from_bytes(value, "little", signed=signed) == word
        need(is_same or not flag, "words that are values of the type")
    return values


def wrapped(word: int) -> int:
    """Return a sum modulo 2^64 as an i64."""
    return (word + (1 << 63)) % (1 << 64) - (1 << 63)


def words_of(part: Part, stream: Stream) -> list[int]:
    """Return the word of each row of numbers."""
    codes, size = codes_of(stream, part.rows), 1 << int(part.record["page"])
    said, pages = stream.words.tolist(), -(-part.rows // size)
    exceptions = 2 * stream.exceptions
    if stream.flags & SUM:
        need(stream.flags == SUM and not exceptions and len(said) == pages + 1, "words of sums")
        least, found = said[-1], []
        for number, first in enumerate(range(0, part.rows, size)):
            steps = [said[number], *(least + code for code in codes[first + 1 : first + size])]
            found += map(wrapped, accumulate(steps))
        return found
    if not said:
        need(len(part.pages) == pages, "a base of each page")
        said = [low if low <= high else 0 for low, high, *_ in part.pages.tolist()]
    need(len(said) == pages + exceptions, "a base of each page")
    return [wrapped(said[row // size] + code) for row, code in enumerate(codes)]


def doubles(part: Part, stream: Stream, words: list[int]) -> list[bytes]:
    """Return the doubles of words."""
    need(not stream.flags & (UNSORTED | SUM) and stream.width <= 4, "codes of doubles")
    values = np.array(words, "<i8").astype("<f8")
    if stream.power:
        power = float(f"1e{stream.power}")
        values = values * float(f"1e-{stream.power}") if stream.flags & TIMES else values / power
    if stream.flags & NAN_CODE:
        need(stream.width > 0, "a code of NaN")
        last = (1 << 8 * stream.width) - 1
        nans = np.array([code == last for code in codes_of(stream, part.rows)])
        values.view("<u8")[nans] = 0x7FF8 << 48
    if stream.exceptions:
        rows, odd = stream.words[-2 * stream.exceptions :].reshape(2, -1)
        need(rows[0] >= 0 and rows[-1] < part.rows and (np.diff(rows) > 0).all(), "rows ascending")
        values.view("<i8")[rows] = odd
    data = values.tobytes()
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def drafts(path: Path) -> list[Version]:
    """Return the row groups of a file that was never finished, each as a version."""
    data = path.read_bytes()
    at, values = FRONT.size + FRONT.unpack_from(data)[8], {}
    while at + RECORD.size <= len(data):
        magic, kind, _, length, position, size, crc, head_crc = RECORD.unpack_from(data, at)
        key, begin = data[at + 32 : at + 32 + length], at + 32 + length
        value = data[begin : begin + size]
        if magic != b"blzr" or position != at or zlib.crc32(value) != crc:
            break
        if zlib.crc32(data[at : at + 28] + key) != head_crc:
            break
        at = begin + size
        if kind == 2:
            at += FOOT.size
            at += SEAL.size if data[at : at + 8] == b"blzseal!" else 0
        else:
            values[key.decode()] = (begin, size)
    store: Any = OneFile.__new__(OneFile)
    store.data, store.values, found = data, values, []
    while (key := f"meta/draft/{len(found) + 1:020d}") in values:
        found.append(rows_of_version(store, *manifest(store.get(key), len(found) + 1)))
    return found
