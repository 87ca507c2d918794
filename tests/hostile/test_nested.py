"""Nested columns from an attacker: nodes that contradict their type, their parent or each other.

As in `test_superchunks.py`, each table lies behind valid checksums and another process reads it.
Line 0 is the root of the column `x`; its children follow in pre-order.
"""

import base64
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.chunk import Compression
from blztable.storage.memory import RamStore
from golden import reader
from support import tamper
from support.hostile_reader import assert_read, assert_refused, make, outcomes

pytestmark = pytest.mark.usefixtures("own_files")

ROWS = 32
LIST = pa.array([[n, n + 1] for n in range(ROWS)])
STRUCT = pa.array([{"a": n, "b": f"b{n}"} for n in range(ROWS)])
FIXED = pa.array([[n, n, n] for n in range(ROWS)], pa.list_(pa.int32(), 3))
MAP = pa.array([[("k", n), ("l", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64()))
UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1] * 16, pa.int8()), [pa.array(range(ROWS)), pa.array(["s"] * ROWS)], ["n", "s"]
)
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([10, 20, 32], pa.int32()), ["a", "b", "c"])
CODED = pa.DictionaryArray.from_arrays(
    pa.array([row % 4 for row in range(ROWS)], pa.int8()),
    pa.array([{"a": n, "b": f"b{n}"} for n in range(4)]),
)
DEEP = pa.array([[{"a": [n]}, None] for n in range(ROWS)])
ARRAYS = {
    **{"list": LIST, "large list": LIST.cast(pa.large_list(pa.int64())), "struct": STRUCT},
    **{"fixed": FIXED, "map": MAP, "union": UNION, "runs": RUNS, "deep": DEEP},
    "coded": CODED,
}


def made(tmp_path, array: pa.Array, **options):
    return make(tmp_path / "t.blz", pa.table({"x": array}), **options)


def compress(values, dtype) -> bytes:
    array = np.asarray(values, dtype)
    return Compression().compress(array, array.itemsize)


def ends_of(count: int, length: int) -> np.ndarray:
    return np.arange(1, count + 1) * length


def assert_refused_by_both(path, words="", ways=None) -> None:
    """Check that each way of reading refuses it, and so do the reference reader and `verify`."""
    assert_refused(path, blz.CorruptError, words, **({} if ways is None else {"ways": ways}))
    with pytest.raises(reader.Refused):
        reader.read(path)
    # A head that is refused cannot be verified.
    with suppress(blz.BlzError), blz.open(path) as table:
        assert table.verify().problems


# Rows of children.


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("more", [1, -1, 1 << 40], ids=["more", "fewer", "many"])
def test_a_child_with_other_rows_than_its_parent_needs_is_refused(tmp_path, kind, more):
    path = made(tmp_path, ARRAYS[kind])
    with tamper.editing(path) as table:
        rows = table.lines[1]["rows"][0] + more
        table.lines[1]["rows"] = [rows]
        if isinstance(table.lines[1]["k"], list) and table.lines[1]["k"][0]:
            block = table.part(column=1).metadata
            if isinstance(block, dict):
                block["rows"] = rows
    assert_refused_by_both(path, "row")


@pytest.mark.parametrize("kind", ["struct", "fixed", "union"])
def test_a_child_that_is_short_in_one_row_group_only_is_refused(tmp_path, kind):
    """The sum over all row groups is right."""
    path = made(tmp_path, ARRAYS[kind], row_group_rows=16)
    with tamper.editing(path) as table:
        first, second = table.lines[1]["rows"]
        table.lines[1]["rows"] = [first + 8, second - 8]
    assert_refused_by_both(path, "row")


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_child_without_rows_is_refused(tmp_path, kind):
    path = made(tmp_path, ARRAYS[kind])
    with tamper.editing(path) as table:
        line = table.lines[1]
        line |= {"rows": [0], "k": [0], "cbytes": [0], "front_length": [0], "trailer_length": [0]}
        line |= {"crc": [0], "streams": {}}
    assert_refused_by_both(path, "row")


# Ends and pages of lists.


@pytest.mark.parametrize("kind", ["list", "large list", "map", "runs"])
@pytest.mark.parametrize(
    ("at", "end"),
    [(2, 1_500_000_000), (2, -1), (2, 0), (2, -(1 << 31)), (0, -1), (0, 9), (7, 15), (31, 63)],
)
def test_ends_that_leave_their_page_or_descend_are_refused(tmp_path, kind, at, end):
    array = (
        ARRAYS[kind]
        if kind != "runs"
        else pa.RunEndEncodedArray.from_arrays(
            pa.array(range(1, ROWS + 1), pa.int32()), list(range(ROWS))
        )
    )
    path = made(tmp_path, array)
    ends = ends_of(ROWS, 1 if kind == "runs" else 2)
    ends[at] = end
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress(ends, "i8" if kind == "large list" else "i4")
    page = (at // 8 * 8, at // 8 * 8 + 8)
    assert_refused(path, blz.CorruptError, "the item ends", rows=page)
    with pytest.raises(reader.Refused):
        reader.read(path)


@pytest.mark.parametrize(
    "pages", [[16, 16, 16], [0, 64, 0, 0], [17, 15, 16, 16], [-8, 24, 16, 32], [1 << 62] * 4]
)
def test_pages_that_are_not_those_of_the_ends_are_refused(tmp_path, pages):
    path = made(tmp_path, LIST)
    with tamper.editing(path) as table:
        table.part().metadata["streams"][1]["pages"] = pages
    assert_refused_by_both(path)


def test_pages_and_ends_that_agree_on_more_items_than_there_are_are_refused(tmp_path):
    path = made(tmp_path, LIST)
    with tamper.editing(path) as table:
        part = table.part()
        part.metadata["streams"][1]["pages"] = [24] * 4
        part.chunks[0] = compress(ends_of(ROWS, 3), "i4")
    assert_refused_by_both(path, "rows")


@pytest.mark.parametrize("change", ["no encoding", "plain bytes", "another dtype", "bytes"])
def test_items_of_a_list_are_rows_of_its_child_and_nothing_else(tmp_path, change):
    path = made(tmp_path, LIST)
    with tamper.editing(path) as table:
        stream = table.part().metadata["streams"][1]
        match change:
            case "no encoding":
                del stream["encoding"]
            case "plain bytes":
                del stream["encoding"]
                stream |= {"dtype": "|u1", "nbytes": 64, "chunks": [64]}
                table.part().chunks.append(compress(list(range(64)), "u1"))
            case "another dtype":
                stream["dtype"] = "|u1"
            case _:
                stream |= {"nbytes": 64, "chunks": [64]}
                table.part().chunks.append(compress(list(range(64)), "u1"))
    assert_refused_by_both(path)


@pytest.mark.parametrize(
    "encoding",
    [
        {"kind": "narrow", "bases": "AAAAAAAAAAA="},
        {"kind": "scaled", "bases": "AAAAAAAAAAA=", "power": 1, "form": "/"},
        {"kind": "delta", "firsts": "AAAAAAAAAAA=", "least": "AAAAAAAAAAA="},
        {"kind": "dictionary", "items": "YQ==", "lengths": "AQA="},
        {"kind": "constant", "value": "AA=="},
        {"kind": "runs", "at": "AAAAAAAAAAA="},
        {"kind": "lengths"},
        {"kind": "each", "length": 2},
    ],
    ids=lambda encoding: encoding["kind"],
)
def test_items_of_a_list_have_no_encoding_of_bytes(tmp_path, encoding):
    path = made(tmp_path, LIST)
    with tamper.editing(path) as table:
        table.part().metadata["streams"][1]["encoding"] = encoding
    assert_refused_by_both(path)


@pytest.mark.parametrize("array", [pa.array(["ab"] * ROWS), pa.array(range(ROWS))], ids=["s", "n"])
def test_values_that_are_no_list_have_no_rows_of_a_child(tmp_path, array):
    path = made(tmp_path, array, encoding=None)
    with tamper.editing(path) as table:
        (stream,) = [one for one in streams_of(table) if one["name"] == "values"]
        stream["encoding"] = {"kind": "rows"}
    assert_refused_by_both(path)


def streams_of(table):
    part = table.part()
    if not isinstance(part.metadata, dict):
        part.header |= {"version": 4, "options": 3, "chunk_size": 8 * ROWS, "last_chunk": 8 * ROWS}
        stream = {"name": "values", "dtype": "<i8", "typesize": 8, "nbytes": 8 * ROWS}
        stream["chunk_size"] = 8 * ROWS
        part.metadata = {"rows": ROWS, "page_rows": 8, "packing": "packed", "streams": [stream]}
    return part.metadata["streams"]


# Unions and runs.


@pytest.mark.parametrize("mode", ["sparse", "dense"])
@pytest.mark.parametrize("code", [2, 3, 127, -1, -128])
def test_a_type_code_of_no_type_is_refused(tmp_path, mode, code):
    array = UNION
    if mode == "dense":
        places = pa.array(range(ROWS), pa.int32())
        children = [UNION.field(0), UNION.field(1)]
        array = pa.UnionArray.from_dense(UNION.type_codes, places, children, ["n", "s"])
    path = made(tmp_path, array)
    codes = np.arange(ROWS) % 2
    codes[5] = code
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress(codes, "i1")
    assert_refused_by_both(path, "type code")


def nulls_at(table: tamper.Table, rows: list[int]) -> None:
    """Say that these rows of the root are null."""
    mask = np.ones(ROWS, np.bool_)
    mask[rows] = False
    streams = streams_of(table) if table.part().metadata else []
    if not streams:
        part = table.part()
        part.header |= {"version": 4, "options": 3, "chunk_size": -1, "last_chunk": -1}
        values = {"name": "values", "dtype": "<i1", "typesize": 1, "nbytes": ROWS}
        streams = [values | {"chunk_size": ROWS}]
        part.metadata = {"rows": ROWS, "page_rows": 8, "packing": "packed", "streams": streams}
    valid = {"name": "valid", "dtype": "bitmap", "typesize": 1, "nbytes": 4, "chunk_size": 4}
    table.part().metadata["streams"].insert(0, valid)
    table.part().header |= {"typesize": 1, "chunk_size": -1, "last_chunk": -1}
    table.part().chunks.insert(0, compress(np.packbits(mask, bitorder="little"), "u1"))
    table.lines[0]["streams"] = {"valid": [4], **table.lines[0]["streams"]}


@pytest.mark.parametrize("kind", ["union", "runs"])
def test_unions_and_runs_have_no_nulls_of_their_own(tmp_path, kind):
    path = made(tmp_path, ARRAYS[kind])
    with tamper.editing(path) as table:
        nulls_at(table, [3, 12])
    assert_refused_by_both(path, "null" if kind == "runs" else "type code")


@pytest.mark.parametrize("rows", [[0], [8], [0, 8, 16, 24]])
def test_the_first_row_of_a_part_begins_a_run(tmp_path, rows):
    """One run fewer, in every place that says so."""
    array = pa.RunEndEncodedArray.from_arrays(pa.array([8, 16, 24, 32], pa.int32()), [*"abcd"])
    path = made(tmp_path, array)
    begins = np.arange(ROWS) % 8 == 0
    begins[rows] = False
    kept = int(begins.sum())
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress(np.cumsum(begins), "i4")
        pages = np.add.reduceat(begins, range(0, ROWS, 8)).tolist()
        table.part().metadata["streams"][1]["pages"] = pages
        child = table.part(column=1)
        child.metadata["rows"] = table.lines[1]["rows"][0] = kept
        child.metadata["streams"][1]["pages"] = [kept] if kept else []
        child.set_stream(0, ends_of(kept, 1).astype("<i4").tobytes())
        child.metadata["streams"][1] |= {"nbytes": kept}
        child.chunks[1:] = [compress([120] * kept, "u1")] if kept else []
    if 0 in rows:
        assert_refused_by_both(path)
    else:
        assert_read(path)


def test_a_row_that_begins_two_runs_is_refused(tmp_path):
    array = pa.RunEndEncodedArray.from_arrays(pa.array([8, 16, 24, 32], pa.int32()), [*"abcd"])
    path = made(tmp_path, array)
    counts = np.where(np.arange(ROWS) % 8 == 0, 1, 0)
    counts[16] = 0
    counts[8] = 2
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress(np.cumsum(counts), "i4")
        table.part().metadata["streams"][1]["pages"] = [1, 2, 0, 1]
    assert_refused(path, blz.CorruptError, "run", rows=(8, 24))
    with pytest.raises(reader.Refused):
        reader.read(path)


# Dictionaries.


@pytest.mark.parametrize("code", [4, 127, -1, -128])
@pytest.mark.parametrize("row", [0, 13, ROWS - 1])
def test_a_code_of_no_value_is_refused(tmp_path, code, row):
    path = made(tmp_path, CODED)
    codes = np.arange(ROWS) % 4
    codes[row] = code
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress(codes, "i1")
    page = (row // 8 * 8, row // 8 * 8 + 8)
    assert_refused(path, blz.CorruptError, "dictionary code", rows=page)
    with pytest.raises(reader.Refused):
        reader.read(path)


def test_a_code_beyond_signed_numbers_is_refused(tmp_path):
    path = made(tmp_path, CODED.cast(pa.dictionary(pa.uint64(), CODED.type.value_type)))
    codes = (np.arange(ROWS) % 4).astype("u8")
    codes[9] = (1 << 64) - 1
    with tamper.editing(path) as table:
        table.part().chunks[0] = compress(codes, "u8")
    assert_refused(path, blz.CorruptError, "dictionary code", rows=(8, 16))
    with pytest.raises(reader.Refused):
        reader.read(path)


def test_codes_count_the_values_of_their_own_row_group(tmp_path):
    """The second row group has fewer values than the first."""
    few = pa.DictionaryArray.from_arrays(CODED.indices[:16].fill_null(0), CODED.dictionary)
    less = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 8, pa.int8()), CODED.dictionary[:2])
    path = make(tmp_path / "t.blz", pa.table({"x": few}), row_group_rows=16)
    with blz.open(path, "a") as opened:
        opened.append(pa.table({"x": less}))
    assert_read(path)
    with tamper.editing(path) as table:
        table.part(group=1).chunks[0] = compress(np.arange(16) % 4, "i1")
    assert_refused(path, blz.CorruptError, "dictionary code", rows=(16, 24))
    with pytest.raises(reader.Refused):
        reader.read(path)


@pytest.mark.parametrize("rows", [(1 << 31) - 1, 1 << 31, 1 << 61])
def test_values_without_bytes_take_no_memory(rows):
    values = pa.array([{"a": None}] * 2, pa.struct([("a", pa.null())]))
    store = RamStore()
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 16, pa.int8()), values)
    blz.to_blz(pa.table({"x": array}), store, storage=blz.Storage(encoding="plain"))
    with tamper.editing(store) as table:
        for line in table.lines[1:]:
            line["rows"] = [rows]
    before = pa.total_allocated_bytes()
    if rows >= 1 << 31:
        with pytest.raises(blz.CorruptError, match="a dictionary has at most"):
            blz.read_table(store)
    else:
        # Refused where their places take too much memory.
        with suppress(blz.LimitError):
            assert len(blz.read_table(store)["x"].chunk(0).dictionary) == rows
    assert pa.total_allocated_bytes() - before < 1 << 20


# The tree of nodes.


def without_line(table: tamper.Table, index: int) -> None:
    del table.lines[index], table._lines_were[index]
    for values in table.head["columns"].values():
        if isinstance(values, list):
            del values[index]


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_missing_node_is_refused(tmp_path, kind):
    path = made(tmp_path, ARRAYS[kind])
    with tamper.editing(path) as table:
        without_line(table, len(table.lines) - 1)
    assert_refused_by_both(path, "nodes", ways=["table", "frame"])


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_node_too_many_is_refused(tmp_path, kind):
    path = made(tmp_path, ARRAYS[kind])
    with tamper.editing(path) as table:
        line = table.lines[-1] | {"path": [0, 77]}
        table.lines.append(line)
        table._lines_were.append(line)
        table.head["next_column"] = 99
        for key, values in table.head["columns"].items():
            if isinstance(values, list):
                values.append([0, 77] if key == "path" else 1)
    assert_refused_by_both(path, "", ways=["table", "frame"])


@pytest.mark.parametrize(
    "path_of_child",
    [
        [1, 1],
        [0],
        [0, 0, 1],
        [0, 1, 2],
        [0, -1],
        [0, "1"],
        [0, 1 << 70],
        [0, True],
        [0, 1.0],
        1,
        [],
        None,
        [0, *range(1, 10_000)],
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_path_that_is_not_below_that_of_its_parent_is_refused(tmp_path, path_of_child):
    path = made(tmp_path, LIST)
    with tamper.editing(path) as table:
        table.lines[1]["path"] = path_of_child
        table.head["columns"]["path"][1] = path_of_child
    assert_refused_by_both(path, "", ways=["table", "frame"])


def test_two_nodes_of_one_path_are_refused(tmp_path):
    path = made(tmp_path, STRUCT)
    with tamper.editing(path) as table:
        for places in (table.head["columns"]["path"], [line["path"] for line in table.lines]):
            places[2] = places[1]
        table.lines[2]["path"] = table.lines[1]["path"]
    assert_refused_by_both(path, "", ways=["table", "frame"])


def test_a_feature_that_is_not_stated_is_refused(tmp_path):
    path = made(tmp_path, LIST)
    with tamper.editing(path) as table:
        table.head["requires"] = []
    assert_refused_by_both(path, "nested", ways=["table", "frame"])


def test_children_in_the_place_of_each_other_are_refused(tmp_path):
    """The file of a child is found by its path, so the lines may be exchanged, not the files."""
    path = made(tmp_path, STRUCT)
    with tamper.editing(path) as table:
        first, second = table.lines[1], table.lines[2]
        for key in first:
            if key != "path":
                first[key], second[key] = second[key], first[key]
    assert_refused_by_both(path)


def test_a_file_of_another_node_in_the_place_of_its_own_is_refused(tmp_path):
    path = made(tmp_path, pa.StructArray.from_arrays([range(32), range(32, 64)], ["a", "b"]))
    files = sorted((path / "data").glob("col0/*/*.bin"))
    first, second = (file.read_bytes() for file in files)
    files[0].write_bytes(second)
    files[1].write_bytes(first)
    assert_refused_by_both(path)


def test_a_schema_of_other_nodes_is_refused(tmp_path):
    path = made(tmp_path, LIST)
    other = pa.schema([("x", pa.struct([("a", pa.int64()), ("b", pa.int64())]))])
    with tamper.editing(path) as table:
        table.head["schema"] = base64.b64encode(other.serialize().to_pybytes()).decode()
    assert_refused_by_both(path, "nodes", ways=["table", "frame"])


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(pa.int32()),
        pa.large_list(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.list_(pa.int64(), 2),
        pa.list_(pa.int64(), (1 << 31) - 1),
        pa.dense_union([pa.field("a", pa.int64())]),
        pa.run_end_encoded(pa.int32(), pa.int64()),
    ],
    ids=str,
)
def test_a_schema_of_another_type_with_as_many_nodes_is_refused(tmp_path, type_):
    path = made(tmp_path, LIST)
    schema = pa.schema([("x", type_)])
    with tamper.editing(path) as table:
        table.head["schema"] = base64.b64encode(schema.serialize().to_pybytes()).decode()
    assert_refused_by_both(path)


def test_a_fixed_size_list_of_another_size_is_refused(tmp_path):
    path = made(tmp_path, FIXED)
    for size in (0, 2, 4, (1 << 31) - 1):
        schema = pa.schema([("x", pa.list_(pa.int32(), size))])
        with tamper.editing(path) as table:
            table.head["schema"] = base64.b64encode(schema.serialize().to_pybytes()).decode()
        assert_refused_by_both(path, "rows")


@pytest.mark.parametrize("depth", [33, 120, 10_000])
def test_a_type_that_is_nested_too_deep_is_refused(tmp_path, depth):
    path = made(tmp_path, LIST)
    type_ = pa.int64()
    for _ in range(depth):
        type_ = pa.list_(type_)
    with tamper.editing(path) as table:
        schema = pa.schema([("x", type_)]).serialize().to_pybytes()
        table.head["schema"] = base64.b64encode(schema).decode()
    found = outcomes(path)
    assert {one[0] for one in found.values()} <= {"FormatError", "CorruptError"}


def test_a_schema_whose_inner_names_are_no_text_is_refused(tmp_path):
    path = made(tmp_path, pa.array([{"name": [1]}] * ROWS))
    with tamper.editing(path) as table:
        data = base64.b64decode(table.head["schema"])
        assert data.count(b"name") == 1
        schema = data.replace(b"name", b"na\xff\xff")
        table.head["schema"] = base64.b64encode(schema).decode()
    assert_refused(path, blz.CorruptError, "the schema")


# Memory.


@pytest.mark.parametrize("rows", [1 << 45, 1 << 61])
def test_items_without_bytes_take_no_memory(rows):
    """A list of nulls may have any number of them; single rows of it are refused or read."""
    array = pa.array([[None] * 2] * ROWS, pa.large_list(pa.null()))
    store = RamStore()
    blz.to_blz(pa.table({"x": array}), store, storage=blz.Storage(encoding="plain", page_rows=8))
    with tamper.editing(store) as table:
        table.lines[1]["rows"] = [rows]
        ends = np.full(ROWS, 0)
        ends[5:] = rows
        table.part().chunks[0] = compress(ends, "i8")
        table.part().metadata["streams"][1]["pages"] = [rows, 0, 0, 0]
    before = pa.total_allocated_bytes()
    found = blz.read_table(store)["x"]
    assert len(found.chunk(0).values) == rows
    assert pa.total_allocated_bytes() - before < 1 << 20
    with blz.open(store) as table:
        assert table["x"][9:11].to_pylist() == [[], []]
        with pytest.raises(blz.LimitError):
            table.take([5])


@pytest.mark.parametrize("size", [1 << 20, (1 << 31) - 1])
def test_fixed_size_lists_of_nothing_take_no_memory(size):
    array = pa.array([[None] * 2] * ROWS, pa.list_(pa.null(), 2))
    store = RamStore()
    blz.to_blz(pa.table({"x": array}), store)
    schema = pa.schema([("x", pa.list_(pa.null(), size))]).serialize().to_pybytes()
    with tamper.editing(store) as table:
        table.lines[1]["rows"] = [size * ROWS]
        table.head["schema"] = base64.b64encode(schema).decode()
    before = pa.total_allocated_bytes()
    assert blz.read_table(store).num_rows == ROWS
    assert pa.total_allocated_bytes() - before < 1 << 20
    with blz.open(store) as table:
        if size > 1 << 30:
            with pytest.raises(blz.LimitError):
                table.take([0, 9])
        else:
            assert len(table.take([0, 9])["x"].chunk(0).values) == 2 * size
