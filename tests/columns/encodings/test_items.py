"""Encodings of item ends: the very same ends come back, and no lengths lead out of the items."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from blztable.columns.blocks import Block, Stream, StreamLayout
from blztable.columns.encodings.choose import encoded
from blztable.columns.encodings.items import MAX_MADE_BYTES
from blztable.columns.encodings.parse import StreamContext, parse
from blztable.columns.paging import page_bytes
from blztable.errors import CorruptError

BYTES = StreamLayout("values", "|u1", 1, None)


def block_of(lengths, width=8, page_rows=8) -> Block:
    """Return a block of items of these lengths; their bytes do not matter."""
    ends = np.cumsum(lengths, dtype=np.int64).astype(f"<i{width}")
    layout = StreamLayout("ends", f"<i{width}", width, 8 * width)
    pages = page_bytes(ends, page_rows)
    streams = Stream(layout, ends.view("u1")), Stream(BYTES, np.empty(0, "u1"), pages)
    return Block(len(ends), page_rows, streams)


def decoded(block: Block, width: int, order=None) -> np.ndarray:
    """Return the ends that a reader makes of the encoded block, page by page."""
    stream, values = block.streams
    written = json.loads(json.dumps(stream.encoding.to_json()))
    layout = StreamLayout("ends", f"<i{width}", width, 8 * width)
    owner = StreamContext(layout, block.rows, block.page_rows, values.pages)
    read = parse(written, owner, stream.layout.dtype)
    assert read.to_json() == written
    codes = stream.data if read.has_codes else np.zeros(block.rows * width, "u1")
    code = read.stored.bits // 8
    out = np.empty(block.rows, f"<i{width}")
    for start in order or range(0, block.rows, block.page_rows):
        stop = min(start + block.page_rows, block.rows)
        read.decode(start, codes[start * code : stop * code], out[start:stop].view("u1"))
    return out


@given(st.data())
def test_item_ends_come_back(data):
    width, page_rows = data.draw(st.sampled_from([4, 8])), data.draw(st.sampled_from([8, 16, 64]))
    most = data.draw(st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**21]))
    lengths = data.draw(st.lists(st.integers(0, most), min_size=1, max_size=200))
    plain = block_of(lengths, width, page_rows)
    block = encoded(plain)
    if block.streams[0].encoding is None:
        return
    pages = data.draw(st.permutations(range(0, len(lengths), page_rows)))
    ends = plain.streams[0].data.view(f"<i{width}")
    assert decoded(block, width, pages).tolist() == ends.tolist()


@pytest.mark.parametrize(
    ("lengths", "width", "kind", "dtype"),
    [
        ([1, 2, 255], 8, "lengths", "|u1"),
        ([1, 2, 256], 4, "lengths", "<u2"),
        ([1, 2, 65_536], 8, "lengths", "<u4"),
        ([1, 2, 65_536], 4, None, "<i4"),
        ([3, 3, 3], 4, "each", "<i4"),
        ([0, 0], 8, "each", "<i8"),
        ([2**33, 1], 8, None, "<i8"),
    ],
)
def test_lengths_are_as_narrow_as_the_longest_item(lengths, width, kind, dtype):
    stream = encoded(block_of(lengths, width)).streams[0]
    assert (stream.encoding.kind if stream.encoding else None, stream.layout.dtype) == (kind, dtype)
    assert (kind == "each") == (not stream.data.nbytes)


def test_many_items_of_one_length_have_lengths():
    stream = encoded(block_of(np.ones(MAX_MADE_BYTES // 8 + 1, "i8"), 8, 1 << 20)).streams[0]
    assert stream.encoding.kind == "lengths"


def test_a_page_whose_lengths_fill_more_than_a_chunk_has_plain_ends():
    lengths = np.arange(2**20 + 1) % 3
    assert encoded(block_of(lengths, 8, 1 << 20)).streams[0].encoding.kind == "lengths"
    assert encoded(block_of(lengths, 8, 1 << 21)).streams[0].encoding is None


@given(np_st.arrays("<u2", st.integers(1, 40)), st.sampled_from([4, 8]), st.data())
def test_lengths_that_are_not_those_of_their_page_are_corrupt(lengths, width, data):
    layout = StreamLayout("ends", f"<i{width}", width, 8 * width)
    sums = [int(lengths[start : start + 8].sum(dtype="i8")) for start in range(0, len(lengths), 8)]
    page = data.draw(st.integers(0, len(sums) - 1))
    more = data.draw(st.sampled_from([1, -1, 2**32, 2**33]))
    pages = [nbytes + more * (at == page) for at, nbytes in enumerate(sums)]
    if pages[page] < 0:
        return
    encoding = parse({"kind": "lengths"}, StreamContext(layout, len(lengths), 8, pages), "<u2")
    with pytest.raises(CorruptError, match=f"of page {page} do not add up"):
        encoding.decode(0, lengths.view("u1"), np.empty(len(lengths) * width, "u1"))


def test_the_example_of_the_format_page():
    block = block_of([2, 0, 5, 1], 8)
    assert encoded(block).streams[0].data.tolist() == [2, 0, 5, 1]
    assert decoded(encoded(block), 8).tolist() == [2, 2, 7, 8]
