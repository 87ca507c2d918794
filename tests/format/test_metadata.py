"""The metadata of a superchunk: they come back as written, and contradictions are refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, FormatError
from blztable.format.chunk import MAX_CHUNK_BYTES
from blztable.format.jsontext import MAX_NUMBER
from blztable.format.metadata import (
    MAX_DEPTH,
    BlockInfo,
    StreamInfo,
    even_chunks,
    uniform_size,
)

SIZES = st.lists(st.integers(1, MAX_CHUNK_BYTES), max_size=6).map(tuple)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@st.composite
def streams(draw, name, npages):
    chunks = draw(SIZES | st.builds(lambda n, size: (size,) * n, st.integers(0, 5), st.just(64)))
    pages = None
    if npages and draw(st.booleans()):
        pages = (sum(chunks), *(0,) * (npages - 1))
    return StreamInfo(name, draw(NAMES), draw(st.integers(1, 255)), chunks, pages)


@st.composite
def blocks(draw, depth=3):
    page_rows = 1 << draw(st.integers(3, 30))
    npages = draw(st.integers(0, 4))
    rows = max(npages * page_rows - draw(st.integers(0, 7)), 0)
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    below = st.just({})
    if depth > 1:
        below |= st.fixed_dictionaries({"dictionary": blocks(depth - 1)})
    own = tuple(draw(streams(n, npages)) for n in names)
    return BlockInfo(rows, page_rows, own, draw(below), draw(st.just("plain") | NAMES))


@given(blocks())
def test_a_block_comes_back(block):
    assert BlockInfo.decode(block.encode()) == block


@given(SIZES)
def test_chunks_of_one_size_are_told_by_size_and_bytes(chunks):
    size = uniform_size(chunks)
    if size is not None:
        assert even_chunks(sum(chunks), size) == chunks


def test_a_dictionarys_streams_come_last():
    block = decoded(good())
    assert [name for name, _ in block.walk()] == [
        "valid",
        "codes",
        "dictionary.ends",
        "dictionary.values",
    ]


def good():
    """Return complete metadata: twenty rows in pages of eight."""
    dictionary = {
        "rows": 2,
        "page_rows": 8,
        "packing": "packed",
        "streams": [
            {"name": "ends", "dtype": "<i4", "typesize": 4, "nbytes": 8, "chunks": [8]},
            {
                "name": "values",
                "dtype": "|u1",
                "typesize": 1,
                "nbytes": 30,
                "chunks": [10, 20],
                "pages": [30],
            },
        ],
    }
    return {
        "rows": 20,
        "page_rows": 8,
        "packing": "packed",
        "streams": [
            {"name": "valid", "dtype": "bitmap", "typesize": 1, "nbytes": 3, "chunk_size": 3},
            {"name": "codes", "dtype": "<i1", "typesize": 1, "nbytes": 20, "chunk_size": 8},
        ],
        "dictionary": dictionary,
    }


def decoded(value):
    return BlockInfo.decode(json.dumps(value).encode())


def refused(value, kind=CorruptError):
    with pytest.raises(kind):
        decoded(value)


def test_the_good_metadata_are_what_the_lies_are_made_from():
    block = decoded(good())
    assert block.streams[1].chunks == (8, 8, 4)
    assert block.children["dictionary"].streams[1].pages == (30,)


@pytest.mark.parametrize("key", ["rows", "page_rows", "packing", "streams"])
def test_a_block_lacks_nothing(key):
    value = good()
    del value[key]
    refused(value)


@pytest.mark.parametrize("key", ["name", "dtype", "typesize", "nbytes", "chunk_size"])
def test_a_stream_lacks_nothing(key):
    value = good()
    del value["streams"][1][key]
    refused(value)


NO_SIZES = [True, False, None, -1, 1.0, "1", [], {}, MAX_NUMBER + 1, 10**300, -(10**300)]


@pytest.mark.parametrize("found", NO_SIZES, ids=lambda found: str(found)[:20])
@pytest.mark.parametrize("key", ["rows", "page_rows", "typesize", "nbytes", "chunk_size"])
def test_a_size_is_a_whole_number_within_the_limit(key, found):
    value = good()
    place = value if key in value else value["streams"][1]
    place[key] = found
    refused(value)


@pytest.mark.parametrize("found", NO_SIZES, ids=lambda found: str(found)[:20])
@pytest.mark.parametrize("key", ["chunks", "pages"])
def test_so_is_every_size_of_a_list(key, found):
    value = good()
    value["dictionary"]["streams"][1][key] = [found, 30]
    refused(value)


@pytest.mark.parametrize("page_rows", [0, 1, 4, 7, 9, 12])
def test_pages_have_a_power_of_two_from_eight_rows(page_rows):
    refused(good() | {"page_rows": page_rows})


@pytest.mark.parametrize("typesize", [0, 256])
def test_a_typesize_is_one_byte(typesize):
    value = good()
    value["streams"][0]["typesize"] = typesize
    refused(value)


@pytest.mark.parametrize("chunks", [[10, 19], [10, 21], [30, 0], [0, 30], [31, -1], [], 30, None])
def test_chunks_add_up(chunks):
    value = good()
    value["dictionary"]["streams"][1]["chunks"] = chunks
    refused(value)


def test_a_chunk_is_not_above_the_limit():
    for sizes in ({"chunks": [MAX_CHUNK_BYTES + 1]}, {"chunk_size": MAX_CHUNK_BYTES + 1}):
        value = good()
        stream = value["dictionary"]["streams"][1]
        del stream["chunks"]
        stream |= sizes | {"nbytes": MAX_CHUNK_BYTES + 1, "pages": [MAX_CHUNK_BYTES + 1]}
        refused(value)


@pytest.mark.parametrize("chunk_size", [0, 1])
def test_a_list_of_chunks_is_never_made_larger_than_a_file_can_hold(chunk_size):
    value = good()
    value["streams"][1] |= {"nbytes": MAX_NUMBER, "chunk_size": chunk_size}
    refused(value)


@pytest.mark.parametrize("pages", [[29], [31], [10, 20], [], [15, 15, 0], 30])
def test_pages_add_up_and_are_as_many_as_the_rows_make(pages):
    value = good()
    value["dictionary"]["streams"][1]["pages"] = pages
    refused(value)


@pytest.mark.parametrize("found", [None, 1, [], True])
@pytest.mark.parametrize("key", ["name", "dtype"])
def test_names_are_text(key, found):
    value = good()
    value["streams"][0][key] = found
    refused(value)


def test_no_two_streams_share_a_name():
    value = good()
    value["streams"][0]["name"] = "codes"
    refused(value)


@pytest.mark.parametrize("found", [None, 1, [], True])
def test_an_encoding_is_text(found):
    refused(good() | {"encoding": found})


def test_a_plain_block_does_not_spell_its_encoding():
    assert "encoding" not in json.loads(decoded(good()).encode())
    named = good() | {"encoding": "delta"}
    assert json.loads(decoded(named).encode())["encoding"] == "delta"


def test_a_tree_of_blocks_has_a_bounded_depth():
    value = good()["dictionary"]
    for _ in range(MAX_DEPTH - 1):
        value = good()["dictionary"] | {"dictionary": value}
    assert len(list(decoded(value).walk())) == 2 * MAX_DEPTH
    refused(good()["dictionary"] | {"dictionary": value})


@pytest.mark.parametrize("found", [None, 1, "x", True])
def test_streams_are_a_list_of_objects(found):
    refused(good() | {"streams": found})
    refused(good() | {"streams": [found]})
    refused(good() | {"dictionary": found})
    refused(found)


@pytest.mark.parametrize("packing", ["other", "", None, 1, [], {}])
def test_another_packing_is_a_format_error(packing):
    refused(good() | {"packing": packing}, FormatError)


@pytest.mark.parametrize(
    "sizes", [(3, 0, 5), (0, 0, 0), (4, 4, 0), (4, 4, 4), (4, 4, 1), (9 << 20, 1, 1)]
)
def test_the_sizes_of_items_come_back(sizes):
    ends = StreamInfo("ends", "<i4", 4, (), None, {"kind": "per_item"})
    values = StreamInfo("values", "|u1", 1, sizes, (sum(sizes),))
    block = BlockInfo(3, 8, (ends, values), packing="per_item")
    assert BlockInfo.decode(block.encode(), 3) == block
    packed = replace(block, packing="packed")
    if 0 in sizes or max(sizes) > MAX_CHUNK_BYTES:
        refused(packed.to_json())
    else:
        assert decoded(packed.to_json()) == packed


@pytest.mark.parametrize("rows", [2, 4])
def test_items_that_are_not_as_many_as_the_rows_are_corrupt(rows):
    values = StreamInfo("values", "|u1", 1, (3, 0, 5), (8,))
    refused(BlockInfo(rows, 8, (values,), packing="per_item").to_json())
