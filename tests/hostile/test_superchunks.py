"""Superchunks from an attacker who computes valid checksums: our error and no other.

The model has thirty threats. Chunks and superchunks (11 to 19) are here, values and types (1, 10,
20 to 26) in `test_values.py`, documents (3 to 9, 18) in `test_documents.py`, files and locks (1, 2,
17, 27 to 30) in `test_files.py`, facts about pandas in `test_frame_facts.py`. Every table lies
behind valid checksums (`support/tamper.py`). Another process reads it
(`support/hostile_reader.py`), and that process must live.
"""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.format.chunk import CHUNK_HEADER, MAX_CHUNK_BYTES, ChunkHeader, Compression
from blztable.storage.memory import RamStore
from support import tamper
from support.hostile_reader import assert_read, assert_refused, make

pytestmark = pytest.mark.usefixtures("own_files")

NUMBERS = np.arange(1024, dtype="i8")
ZSTD = Compression("zstd", 9)
ZEROS = bytes(ZSTD.compress(np.zeros(MAX_CHUNK_BYTES, np.uint8), 8))
GIB = 1 << 30


@pytest.fixture
def path(tmp_path):
    """Make a version-3 file of one compressed chunk."""
    return make(tmp_path / "t.blz", pa.table({"x": NUMBERS}))


def compress(values) -> bytes:
    return Compression().compress(np.asarray(values), np.asarray(values).itemsize)


def stored(nbytes: int, typesize: int = 8) -> bytes:
    """Return a chunk that stores its data uncompressed."""
    flags = 0x02 | 0x10
    header = ChunkHeader(2, 1, flags, typesize, nbytes, nbytes, nbytes + 16)
    return header.encode() + bytes(nbytes)


# A chunk's own header: threats 13, 15.


@pytest.mark.parametrize(
    "lie",
    [
        {"nbytes": 0},
        {"nbytes": 8191},
        {"nbytes": 8193},
        {"nbytes": 1 << 31},
        {"nbytes": 0xFFFFFFFF},
        {"ctbytes": 0},
        {"ctbytes": 16},
        {"ctbytes": 17},
        {"ctbytes": 8208},
        {"ctbytes": 0xFFFFFFFF},
        {"blocksize": 0},
        {"blocksize": 8193},
        {"blocksize": 0xFFFFFFFF},
        {"typesize": 0},
        {"typesize": 4},
        {"typesize": 255},
        {"version": 0},
        {"version": 1},
        {"version": 3},
        {"version_lz": 0},
        {"version_lz": 2},
        {"flags": 0x21 | 0x04},
        {"flags": 0x21 | 0x08},
    ],
    ids=lambda lie: "-".join(f"{name}-{value:#x}" for name, value in lie.items()),
)
def test_a_chunk_header_that_lies_is_refused_before_it_is_decoded(path, lie):
    with tamper.editing(path) as table:
        part = table.part()
        part.chunks[0] = tamper.with_header(part.chunks[0], **lie)
    assert_refused(path, blz.CorruptError, "a chunk header does not match")


def test_more_blocks_than_a_chunk_has_room_for_are_refused_before_it_is_decoded(path):
    with tamper.editing(path) as table:
        part = table.part()
        part.chunks[0] = tamper.with_header(part.chunks[0], blocksize=1)
    assert_refused(path, blz.CorruptError, "cannot hold 8192 blocks")


@pytest.mark.parametrize("codec", [2, 5, 6, 7])
def test_a_codec_that_is_not_on_the_list_is_refused_before_it_is_decoded(path, codec):
    with tamper.editing(path) as table:
        part = table.part()
        part.chunks[0] = tamper.with_header(part.chunks[0], flags=codec << 5 | 0x01)
    assert_refused(path, blz.FormatError, f"codec {codec}")


@pytest.mark.parametrize("codec", [0, 3, 4])
def test_a_chunk_under_the_name_of_another_codec_does_not_decompress(path, codec):
    with tamper.editing(path) as table:
        part = table.part()
        part.chunks[0] = tamper.with_header(part.chunks[0], flags=codec << 5 | 0x01)
    assert_refused(path, blz.CorruptError, "does not decompress")


def test_a_chunk_that_claims_more_than_its_page_is_refused_before_it_is_decoded(path):
    """The chunk is valid and has 8 MiB, not 8 KiB; decoding it would crash the process."""
    with tamper.editing(path) as table:
        table.part().chunks[0] = ZEROS
    assert_refused(path, blz.CorruptError, "a chunk header does not match")


def test_a_chunk_that_says_it_is_stored_and_is_not_is_refused(path):
    with tamper.editing(path) as table:
        part = table.part()
        flags = ChunkHeader.decode(part.chunks[0]).flags | 0x02
        part.chunks[0] = tamper.with_header(part.chunks[0], flags=flags)
    assert_refused(path, blz.CorruptError, "an uncompressed chunk has")


def test_a_stored_chunk_that_is_longer_than_its_bytes_is_refused_unread(path):
    with tamper.editing(path) as table:
        table.part().chunks[0] = stored(8192) + bytes(1)
    assert_refused(path, blz.CorruptError, "longer in the file than its uncompressed contents")


def test_a_chunk_of_its_header_alone_is_refused(path):
    with tamper.editing(path) as table:
        header = ChunkHeader(2, 1, 0x01 | 1 << 5, 8, 8192, 8192, 16)
        table.part().chunks[0] = header.encode()
    assert_refused(path, blz.CorruptError, "a chunk header does not match")


def test_a_chunk_of_garbage_does_not_decompress(path):
    with tamper.editing(path) as table:
        part = table.part()
        for seed in range(3):
            noise = np.random.default_rng(seed).bytes(len(part.chunks[0]) - CHUNK_HEADER.size)
            part.chunks[0] = part.chunks[0][: CHUNK_HEADER.size] + noise
    assert_refused(path, blz.CorruptError, "does not decompress")


# The overflow of blosclz, C-Blosc #405: threat 14.


def endless_match(nbytes: int, ctbytes: int) -> bytes:
    """Return a blosclz chunk with one match, whose length is as many 0xff bytes as fit."""
    header = ChunkHeader(2, 1, 0x10, 1, nbytes, nbytes, ctbytes).encode()
    body = (20).to_bytes(4, "little") + (ctbytes - 24).to_bytes(4, "little") + b"\x20a\xe0"
    return header + body + b"\xff" * (ctbytes - len(header) - len(body))


@pytest.fixture
def bytes_path(tmp_path):
    return make(tmp_path / "t.blz", pa.table({"x": np.zeros(1 << 20, "u1")}))


def test_a_match_that_overflows_blosclz_is_refused_without_being_decoded(bytes_path):
    with tamper.editing(bytes_path) as table:
        table.part().chunks = [endless_match(1 << 20, 8_421_505 + 64)]
    assert_refused(
        bytes_path, blz.CorruptError, "longer in the file than its uncompressed contents"
    )


def test_the_longest_match_that_fits_a_chunk_cannot_overflow_blosclz(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": np.zeros(MAX_CHUNK_BYTES, "u1")}))
    with tamper.editing(path) as table:
        part = table.part()
        part.header["chunk_size"] = part.header["last_chunk"] = MAX_CHUNK_BYTES
        part.chunks = [endless_match(MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 16)]
    assert_refused(path, blz.CorruptError, "does not decompress")


# Places of chunks: threats 12, 16, 17, 19.


@pytest.fixture
def chunked(path):
    """Make a table with the same numbers in four chunks."""
    with tamper.editing(path) as table:
        part = table.part()
        part.header["chunk_size"] = part.header["last_chunk"] = 2048
        part.chunks = [compress(quarter) for quarter in np.split(NUMBERS, 4)]
    assert_read(path)
    return path


@pytest.mark.parametrize(
    "places",
    [
        lambda at: [at[0], at[0], at[0], at[0]],
        lambda at: [at[0], at[1], at[1], at[3]],
        lambda at: [at[0], at[2], at[1], at[3]],
        lambda at: [at[0], at[1], at[2], at[2] + 8],
        lambda at: [at[0] + 1, *at[1:]],
        lambda at: [at[0] - 8, *at[1:]],
        lambda at: [0, *at[1:]],
        lambda at: [-1, *at[1:]],
        lambda at: [*at[:3], -(1 << 63)],
        lambda at: [*at[:3], (1 << 63) - 1],
        lambda at: [at[0], -(1 << 63), (1 << 63) - 1, at[3]],
        lambda at: [*at[:3], 1 << 40],
    ],
    ids=[
        "all-one",
        "aliased",
        "descending",
        "overlapping",
        "late",
        "early",
        "zero",
        "negative",
        "least",
        "greatest",
        "wrapping",
        "outside",
    ],
)
def test_chunks_that_do_not_follow_each_other_are_refused(chunked, places):
    with tamper.editing(chunked) as table:
        part = table.part()
        part.offsets = places(part.offsets)
    assert_refused(chunked, blz.CorruptError, "the chunk offsets do not ascend")


def test_a_file_without_checksums_is_refused(path):
    with tamper.editing(path) as table:
        table.part().header["checksum"] = 0
    assert_refused(path, blz.CorruptError, "has no checksums")


def test_chunks_that_changed_places_are_told(chunked):
    with tamper.editing(chunked) as table:
        part = table.part()
        part.chunks[0], part.chunks[1] = part.chunks[1], part.chunks[0]
        part.digests = list(part.digests)
        part.digests[0] = bytes(4)
    assert_refused(chunked, blz.CorruptError, "chunk 0: crc32 is")


# Facts of the file in header, metadata and trailer: threats 11, 18.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", b"blpK"),
        ("version", 2),
        ("version", 4),
        ("options", 0x00),
        ("options", 0x03),
        ("options", 0x05),
        ("options", 0x81),
        ("checksum", 9),
        ("typesize", 0),
        ("typesize", 4),
        ("chunk_size", 4096),
        ("chunk_size", -1),
        ("chunk_size", (1 << 31) - 1),
        ("last_chunk", 0),
        ("last_chunk", 4096),
        ("last_chunk", -1),
        ("nchunks", 0),
        ("nchunks", -1),
        ("nchunks", 2),
        ("nchunks", (1 << 63) - 1),
        ("meta_size", 8),
        ("meta_size", 0xFFFFFFFF),
        ("reserved", 1),
    ],
)
def test_a_file_header_that_lies_is_refused(path, field, value):
    with tamper.editing(path) as table:
        table.part().header[field] = value
    error = blz.FormatError if field in ("version", "options") else blz.CorruptError
    assert_refused(path, error, "")


@pytest.mark.parametrize(
    ("field", "value"),
    [("magic", b"blztrai1"), ("version", 2), ("nlayers", 17), ("reserved", 1), ("nchunks", 2)],
)
def test_a_trailer_that_lies_is_refused(path, field, value):
    with tamper.editing(path) as table:
        table.part().trailer_head[field] = value
    error = blz.FormatError if field == "version" else blz.CorruptError
    assert_refused(path, error, "trailer")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", 1023),
        ("page_rows", 9),
        ("page_rows", 0),
        ("page_rows", 16),
        ("cbytes", 1),
        ("cbytes", 1 << 62),
        ("front_length", 0),
        ("front_length", 48),
        ("front_length", 1 << 40),
        ("trailer_length", 0),
        ("trailer_length", 48),
        ("trailer_length", 1 << 40),
        ("crc", 0),
        ("k", 0),
        ("k", 2),
    ],
)
def test_a_file_that_is_not_the_one_of_its_line_is_refused(tmp_path, name, value):
    """Uses version 4, because a version-3 file has its rows and pages in the manifest line."""
    numbers = pa.array([None, *range(1023)], "i8")
    path = make(tmp_path / "t.blz", pa.table({"x": numbers}))
    with tamper.editing(path) as table:
        table.lines[0][name] = [value]
    error = blz.LimitError if value == 1 << 40 else blz.CorruptError
    assert_refused(path, error, "", ways=("table", "frame"))


# Requested memory: threat 11.


def claim(path, chunks) -> None:
    """Give the file these chunks, and claim 8 MiB for each."""
    with tamper.editing(path) as table:
        part = table.part()
        part.header["chunk_size"] = part.header["last_chunk"] = MAX_CHUNK_BYTES
        part.chunks = chunks
        table.lines[0]["rows"] = table.head["row_groups"] = [rows := len(chunks) * (1 << 20)]
        table.head["rows"] = rows


def test_a_chunk_that_claims_more_than_a_codec_can_give_is_refused_unread(path):
    claim(path, [ZEROS[:255]] * 1000)
    assert_refused(path, blz.LimitError, "claims more than 32768 times its bytes")


def test_a_file_that_claims_gigabytes_is_decoded_aside_before_they_are_allocated(path):
    cut = tamper.with_header(ZEROS[:-16], ctbytes=len(ZEROS) - 16)
    claim(path, [ZEROS] + [cut] * 500)
    assert_refused(path, blz.CorruptError, "a chunk does not decompress", rows=(1 << 20, 2 << 20))


def test_an_item_that_claims_gigabytes_is_decoded_aside_before_they_are_allocated(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": pa.array([b"a"], pa.large_binary())}))
    zeros = bytes(ZSTD.compress(np.zeros(MAX_CHUNK_BYTES, np.uint8), 1))
    cut = tamper.with_header(zeros[:-16], ctbytes=len(zeros) - 16)
    nbytes = 501 * MAX_CHUNK_BYTES
    with tamper.editing(path) as table:
        part = table.part()
        part.chunks = [bytes(compress(np.array([nbytes]))), zeros, *[cut] * 500]
        values = part.metadata["streams"][1]
        values |= {"nbytes": nbytes, "pages": [nbytes], "chunk_size": MAX_CHUNK_BYTES}
        values.pop("chunks", None)
    assert_refused(path, blz.CorruptError, "a chunk does not decompress", rows=(0, 1))


def test_a_file_that_means_what_it_claims_is_read(path):
    """The file has more than a thousand times its size in data, more than is believed unchecked."""
    claim(path, [ZEROS] * 20)
    assert_read(path, rows=(1 << 20, (1 << 20) + 8))


def test_more_chunks_than_a_file_can_have_are_refused_before_they_are_listed(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": ["a", "b"] * 8}))
    with tamper.editing(path) as table:
        stream = table.part().metadata["streams"][0]
        other = {**stream, "nbytes": 1 << 21, "chunk_size": 1}
        table.part().metadata["streams"] = [{**other, "name": str(n)} for n in range(1000)]
    assert_refused(path, blz.CorruptError, "2097152 bytes in chunks of 1")


@pytest.mark.parametrize("rows", [1 << 48, 1 << 61])
def test_rows_without_a_file_are_counted_before_they_are_allocated(tmp_path, rows):
    """The values take no bytes; the first row group has nulls, the second has no file."""
    empty = pa.array([b"", None] * 4 + [b""] * 8, pa.binary(0))
    path = make(tmp_path / "t.blz", pa.table({"x": empty}), row_group_rows=8)
    with tamper.editing(path) as table:
        table.lines[0]["rows"] = table.head["row_groups"] = [8, rows]
        table.head["rows"] = rows + 8
    assert_refused(path, blz.LimitError, "bytes of memory", ways=("table", "frame"))


def test_a_read_that_the_memory_cannot_hold_is_refused_and_a_part_of_it_is_not(
    tmp_path, tuned, monkeypatch
):
    table = pa.table({"x": NUMBERS, "y": NUMBERS})
    path = make(tmp_path / "t.blz", table, row_group_rows=256)
    # Imitates a machine with one page of 9 KB.
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 9000}.__getitem__)
    for read in (blz.read_table, blz.read_blz):
        with pytest.raises(blz.LimitError, match=r"need 16384 bytes of memory.*to_batches"):
            read(path)
    assert blz.read_table(path, columns=["x"]) == table.select(["x"])
    tuned(window_bytes=1, window_rows=256)
    with blz.open(path) as opened:
        assert pa.RecordBatchReader.from_stream(opened).read_all() == table
        assert opened["y"][1000:].to_pylist() == NUMBERS[1000:].tolist()


def test_a_file_named_by_two_row_groups_is_refused(tmp_path):
    """Otherwise a small file could fill any memory."""
    path = make(tmp_path / "t.blz", pa.table({"x": NUMBERS}), row_group_rows=512)
    with tamper.editing(path) as table:
        assert table.lines[0]["k"] == [1, 2]
        for name in ("k", "cbytes", "crc", "front_length", "trailer_length"):
            table.lines[0][name] = [table.lines[0][name][0]] * 2
    assert_refused(path, blz.CorruptError, "two row groups have the same file")


ROWS_OF_NOTHING = [10**10, 1 << 37, 1 << 61]


def claiming(path, rows, column):
    """Return a table of a few hundred bytes that claims this number of rows without a file."""
    make(path, pa.table({"n": column}))
    with tamper.editing(path) as table:
        table.head["row_groups"] = table.lines[0]["rows"] = [rows]
        table.head["rows"] = rows
        if pa.types.is_null(column.type):
            table.lines[0]["nulls"] = [rows]
    return path


# Arrow stores null rows as a number, so these calls take no memory. The remaining rows.
CHEAP_OF_NULLS = {
    "verify": (lambda t: t.verify(), lambda rows: rows),
    "delete of all": (lambda t: t.delete(pc.field("n").is_null()), lambda rows: 0),
    "delete of none": (lambda t: t.delete(pc.field("n").is_valid()), lambda rows: rows),
    "truncate": (lambda t: t.resize(5), lambda rows: 5),
    "truncate of few": (lambda t: t.resize(len(t) - 5), lambda rows: rows - 5),
    "resize": (lambda t: t.resize(5), lambda rows: 5),
}


@pytest.mark.parametrize("rows", ROWS_OF_NOTHING)
@pytest.mark.parametrize(("verb", "left"), CHEAP_OF_NULLS.values(), ids=CHEAP_OF_NULLS)
def test_verbs_that_look_at_no_null_row_take_no_memory_for_it(tmp_path, verb, left, rows):
    with blz.open(claiming(tmp_path / "t.blz", rows, pa.nulls(8)), "a") as opened:
        tracemalloc.start()
        try:
            verb(opened)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        assert len(opened) == left(rows)
        assert opened.verify()


ANY = pc.coalesce(pc.field("n").is_null(), pc.scalar(True))
LOOKING = {
    "to_numpy": lambda t: t["n"].to_numpy(),
    "a column backwards": lambda t: t["n"][::-1],
    "rows backwards": lambda t: t[::-1],
    "filter": lambda t: t.to_arrow(filters=ANY),
    "filter of two": lambda t: t.to_arrow(filters=pc.field("n").is_null() & ANY),
    "count": lambda t: t.count(filters=ANY),
    "delete": lambda t: t.delete(ANY),
    "update": lambda t: t.update({"n": None}, where=ANY),
    "sort": lambda t: t.compact(sort_by="n"),
    "add_column": lambda t: t.add_column("more", 5),
    "new column": lambda t: t.append({"n": [None], "more": [1]}, evolve=True),
}


@pytest.mark.parametrize("rows", ROWS_OF_NOTHING)
@pytest.mark.parametrize("verb", LOOKING.values(), ids=LOOKING)
def test_null_rows_that_memory_cannot_hold_are_refused_where_each_is_looked_at(
    tmp_path, monkeypatch, verb, rows
):
    path = claiming(tmp_path / "t.blz", rows, pa.nulls(8))
    # Imitates a machine with 1 GB.
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 10**9}.__getitem__)
    with blz.open(path, "a") as opened:
        with pytest.raises(blz.LimitError, match="rows"):
            verb(opened)
        assert (opened.version, len(opened)) == (1, rows)


@pytest.mark.parametrize("rows", ROWS_OF_NOTHING)
def test_empty_values_that_memory_cannot_hold_are_refused_as_numpy_has_them(
    tmp_path, monkeypatch, rows
):
    path = claiming(tmp_path / "t.blz", rows, pa.array([b""] * 8, pa.binary(0)))
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 10**9}.__getitem__)
    with blz.open(path) as opened, pytest.raises(blz.LimitError, match="rows"):
        opened["n"].to_numpy()


def test_more_pages_than_memory_can_hold_are_refused(tmp_path):
    path = claiming(tmp_path / "t.blz", 1 << 61, pa.array([b""] * 8, pa.binary(0)))
    with blz.open(path, "a") as opened:
        with pytest.raises(blz.LimitError, match="statistics of pages"):
            opened.resize(len(opened) - 5)
        assert "statistics of pages" in str(opened.verify().problems[0])


CHANGES = {
    "add_column": lambda t: t.add_column("more", 5),
    "add_column by an expression": lambda t: t.add_column("more", pc.field("n").is_null()),
    "compact": lambda t: t.compact(sort_by="n"),
    "update": lambda t: t.update({"n": None}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_more_null_rows_than_memory_can_hold_is_refused(tmp_path, change):
    rows = 1 << 61
    path = make(tmp_path / "t.blz", pa.table({"n": pa.nulls(8)}))
    with tamper.editing(path) as table:
        table.head["row_groups"] = table.lines[0]["rows"] = table.lines[0]["nulls"] = [rows]
        table.head["rows"] = rows
    with blz.open(path, "a") as opened:
        with pytest.raises(
            blz.LimitError, match="rows can be read at once, found 2305843009213693952"
        ):
            change(opened)
        assert (opened.version, len(opened)) == (1, rows)


# Found by the fuzzer: metadata of a few kilobytes took gigabytes of memory.
@pytest.mark.parametrize("where", ["block", "dictionary"])
def test_streams_of_more_chunks_than_the_file_has_take_no_memory(where):
    store = RamStore()
    blz.to_blz(pa.table({"a": pa.array(["x", "y"]).dictionary_encode()}), store)
    with tamper.editing(store) as table:
        block = table.part().metadata
        block = block if where == "block" else block["dictionary"]
        many = {"dtype": "|u1", "typesize": 1, "nbytes": 1 << 21, "chunk_size": 1}
        block["streams"] = [{"name": str(number), **many} for number in range(100)]
    tracemalloc.start()
    with pytest.raises(blz.CorruptError, match="2097152 bytes in chunks of 1"):
        blz.read_table(store)
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()
