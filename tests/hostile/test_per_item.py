"""False claims about items that are a chunk each, behind valid checksums: refused, or harmless.

As in `test_superchunks.py`, another process reads each table.
"""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.chunk import EMPTY_CHUNK, LARGE_CHUNK_BYTES, Compression
from support import tamper
from support.hostile_reader import assert_read, assert_refused, make

# With one column more, a packed one would be in a bundle.
pytestmark = pytest.mark.usefixtures("own_files")

ITEMS = [b"item %d" % row * (row % 5) for row in range(20)]


@pytest.fixture
def path(tmp_path):
    return make(tmp_path / "t.blz", pa.table({"x": ITEMS}), packing="per_item")


def streams(path, edit) -> None:
    """Edit the streams `ends` and `values` in the metadata."""
    with tamper.editing(path) as table:
        edit(*table.part().metadata["streams"])


# Offsets and chunks.


@pytest.mark.parametrize("number", [0, 7, 19])
@pytest.mark.parametrize("move", [-1, 1, 1 << 40, -(1 << 40)])
def test_an_offset_that_leads_elsewhere_is_refused(path, number, move):
    with tamper.editing(path) as table:
        table.part().offsets[number] += move
    assert_refused(path, blz.CorruptError, "", ways=("table", "frame"))


def test_offsets_that_do_not_ascend_are_refused(path):
    with tamper.editing(path) as table:
        offsets = table.part().offsets
        offsets[3], offsets[4] = offsets[4], offsets[3]
    assert_refused(path, blz.CorruptError, "the chunk offsets do not ascend")


def test_two_items_of_one_chunk_are_refused(path):
    with tamper.editing(path) as table:
        offsets = table.part().offsets
        offsets[4] = offsets[3]
    assert_refused(path, blz.CorruptError, "the chunk offsets do not ascend")


@pytest.mark.parametrize("chunks", [ITEMS[:-1], [*ITEMS, b""], [b"".join(ITEMS)]], ids=len)
def test_another_number_of_chunks_than_of_rows_is_refused(path, chunks):
    def edit(ends, values):
        sizes = list(map(len, chunks))
        values.pop("chunk_size", None)
        pages = [sum(map(len, ITEMS[start : start + 8])) for start in (0, 8, 16)]
        pages[-1] += sum(sizes) - sum(pages)
        values |= {"chunks": sizes, "nbytes": sum(sizes), "pages": pages}

    streams(path, edit)
    assert_refused(path, blz.CorruptError, "expected one for each of 20 rows")


def test_fewer_chunks_in_the_file_than_in_the_metadata_are_refused(path):
    with tamper.editing(path) as table:
        del table.part().chunks[3]
    assert_refused(path, blz.CorruptError, "the header is")


@pytest.mark.parametrize("row", [0, 19])
@pytest.mark.parametrize("size", [-1, 1.0, None, LARGE_CHUNK_BYTES + 1, 1 << 64])
def test_a_size_that_no_item_has_is_refused(path, row, size):
    def edit(ends, values):
        values["chunks"][row] = size
        if type(size) is int:
            values["nbytes"] = sum(values["chunks"])

    streams(path, edit)
    assert_refused(path, blz.CorruptError, "")


@pytest.mark.parametrize("rows", [(1, 2), (0, 1)])
def test_sizes_that_their_chunks_do_not_have_are_refused(path, rows):
    def edit(ends, values):
        one, other = rows
        chunks = values["chunks"]
        chunks[one], chunks[other] = chunks[other], chunks[one]

    streams(path, edit)
    assert_refused(path, blz.CorruptError, "", rows=rows, ways=("table", "frame", "rows"))


def test_an_item_that_claims_far_more_than_its_chunk_is_refused(path):
    def edit(ends, values):
        values["chunks"][1] = LARGE_CHUNK_BYTES
        values["nbytes"] = sum(values["chunks"])
        values["pages"][0] += LARGE_CHUNK_BYTES - len(ITEMS[1])

    streams(path, edit)
    assert_refused(path, blz.LimitError, "a chunk claims more than 32768 times its bytes")


def test_items_that_ends_of_32_bits_do_not_reach_are_refused(path):
    with tamper.editing(path) as table:
        part = table.part()
        _, values = part.metadata["streams"]
        sizes = [LARGE_CHUNK_BYTES] * 9 + [0] * 11
        values |= {"chunks": sizes, "nbytes": sum(sizes)}
        values["pages"] = [sum(sizes[start : start + 8]) for start in (0, 8, 16)]
        part.chunks[:] = [bytes(8208)] * 9 + [EMPTY_CHUNK] * 11
    assert_refused(path, blz.CorruptError, "and ends of 4 bytes")


@pytest.mark.parametrize("chunk", [EMPTY_CHUNK, b"", bytes(40)])
def test_a_chunk_that_is_not_that_of_its_item_is_refused(path, chunk):
    with tamper.editing(path) as table:
        table.part().chunks[4] = chunk
    assert_refused(path, blz.CorruptError, "")


@pytest.mark.parametrize("lie", [{"nbytes": 1 << 31}, {"nbytes": 7}, {"ctbytes": 1 << 31}])
def test_the_header_of_an_item_is_not_trusted(path, lie):
    with tamper.editing(path) as table:
        chunks = table.part().chunks
        chunks[4] = tamper.with_header(chunks[4], **lie)
    assert_refused(path, blz.CorruptError, "a chunk header does not match")


def test_nobody_looks_at_the_chunk_of_an_empty_item(path):
    with tamper.editing(path) as table:
        table.part().chunks[5] = bytes(16)
    assert_read(path)
    with blz.open(path) as table:
        (problem,) = table.verify().problems
        assert (problem.start, problem.stop, problem.is_readable) == (5, 6, True)
        assert "the chunk of an empty item is another one" in problem.message


def test_the_chunk_of_an_empty_item_has_no_room_for_more(path):
    with tamper.editing(path) as table:
        table.part().chunks[5] = Compression().compress(np.zeros(4, np.uint8), 1)
    assert_refused(path, blz.CorruptError, "a chunk is longer in the file")


# Pages and encodings.


@pytest.mark.parametrize("page", [0, 2])
def test_pages_that_are_not_those_of_the_chunks_are_refused(path, page):
    def edit(ends, values):
        values["pages"][page] -= 1
        values["pages"][page - 1] += 1

    streams(path, edit)
    assert_refused(path, blz.CorruptError, "the chunks of items do not match")


@pytest.mark.parametrize(
    "encoding",
    [None, {}, {"kind": "each", "length": 0}, {"kind": "lengths"}, {"kind": "rows"}, {"kind": "?"}],
)
def test_ends_that_follow_from_anything_but_the_chunks_are_refused(path, encoding):
    def edit(ends, values):
        ends["encoding"] = encoding
        if encoding is None:
            del ends["encoding"]

    streams(path, edit)
    error = blz.FormatError if encoding in ({}, {"kind": "?"}) else blz.CorruptError
    assert_refused(path, error, "")


@pytest.mark.parametrize("kind", ["per_item", "dictionary", "rows"])
def test_items_that_are_encoded_are_refused(path, kind):
    streams(path, lambda ends, values: values.update(encoding={"kind": kind}))
    assert_refused(path, blz.CorruptError, "")


@pytest.mark.parametrize(
    "array",
    [
        pa.array(range(16)),
        pa.array(["a"] * 16),
        pa.array(["a"] * 16).dictionary_encode(),
        pa.array([[1]] * 16),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize("claim", [True, False])
def test_a_block_that_is_packed_does_not_become_another(tmp_path, array, claim):
    path = make(tmp_path / "t.blz", pa.table({"x": array, "y": array}))
    with tamper.editing(path) as table:
        part = table.part()
        if isinstance(part.metadata, dict):
            part.metadata["packing"] = "per_item"
        if claim:
            table.lines[0]["per_item"] = [1]
            table.head["requires"].append("per_item")
    if claim or isinstance(part.metadata, dict):
        assert_refused(path, blz.CorruptError, "")
    else:
        assert_read(path)


def test_the_dictionary_of_a_dictionary_is_packed(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": pa.array(["a", "b"]).dictionary_encode()}))
    with tamper.editing(path) as table:
        block = table.part().metadata["dictionary"]
        block["packing"] = "per_item"
        ends, values = block["streams"]
        ends |= {"nbytes": 0, "chunks": [], "encoding": {"kind": "per_item"}}
        ends.pop("chunk_size")
        values |= {"chunks": [1, 1]}
        values.pop("chunk_size")
        table.lines[0]["streams"]["dictionary.ends"] = [8]
        del table.part().chunks[-2:]
        table.part().chunks += [Compression().compress(np.full(1, 97, "u1"), 1)] * 2
    assert_refused(path, blz.CorruptError, "encoding 'per_item' of stream 'ends'")


def test_ends_in_the_file_of_items_that_are_chunks_are_refused(path):
    def edit(ends, values):
        del ends["encoding"]
        ends |= {"nbytes": 80, "chunks": [80]}

    with tamper.editing(path) as table:
        part = table.part()
        edit(*part.metadata["streams"])
        ends = np.cumsum([len(item) for item in ITEMS]).astype("<i4")
        part.chunks.insert(0, Compression().compress(ends, 4))
        part.header["typesize"] = 4
    assert_refused(path, blz.CorruptError, "packing 'per_item' of streams")


def test_ends_of_chunks_in_a_packed_block_are_refused(path):
    with tamper.editing(path) as table:
        table.part().metadata["packing"] = "packed"
        sizes = [len(item) for item in ITEMS if item]
        table.part().metadata["streams"][1]["chunks"] = sizes
        table.part().chunks[:] = [one for one in table.part().chunks if one != EMPTY_CHUNK]
        table.lines[0]["per_item"] = [0]
    assert_refused(path, blz.CorruptError, "encoding 'per_item' of stream 'ends'")


# The manifest.


def test_what_the_line_claims_is_what_the_file_has(path):
    with tamper.editing(path) as table:
        table.lines[0]["per_item"] = [0]
    assert_refused(path, blz.CorruptError, "the line of the column says 'packed'")


@pytest.mark.parametrize("values", [[2], [False], [1, 1], None])
def test_a_claim_is_0_or_1_for_each_part(path, values):
    with tamper.editing(path) as table:
        table.lines[0]["per_item"] = values
    assert_refused(path, blz.CorruptError, "")


def test_a_program_that_does_not_know_it_must_refuse_the_table(path):
    with tamper.editing(path) as table:
        table.head["requires"] = []
    assert_refused(path, blz.CorruptError, "'requires' lacks 'per_item'")


@pytest.mark.parametrize("array", [pa.nulls(3), pa.array([{}] * 3, pa.struct([]))], ids=str)
def test_a_part_without_bytes_has_no_chunks(tmp_path, array):
    path = make(tmp_path / "t.blz", pa.table({"x": array}))
    with tamper.editing(path) as table:
        table.lines[0]["per_item"] = [1]
        table.head["requires"].append("per_item")
    assert_refused(path, blz.CorruptError, "packing 'packed'")
