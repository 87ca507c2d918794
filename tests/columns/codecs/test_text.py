"""Text reaches Arrow only if it is UTF-8 and its item ends are sound."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.block_terms import ENDS, VALUES
from blztable.columns.blocks import Block, Piece
from blztable.columns.codecs import text
from blztable.columns.codecs.text import _segment
from blztable.columns.types import decoder, encode
from blztable.errors import CorruptError, SchemaError
from support import arrow_strategies as own
from support.bit_equality import same

WIDTHS = {pa.string(): 4, pa.large_string(): 8, pa.binary(): 4, pa.large_binary(): 8}
MIB = 1 << 20
STRING = pa.string()


def part(ends, values, type_=STRING):
    """Return a part with these item ends and bytes, sound or not."""
    return len(ends), {"ends": np.array(ends, f"<i{WIDTHS[type_]}").tobytes(), "values": values}


def refused(ends, values, type_=STRING, chunk=MIB, match=None):
    with pytest.raises(CorruptError, match=match):
        decoded(type_, [part(ends, values, type_)], chunk)


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(WIDTHS)), st.sampled_from([8, 16, 64]))
def test_parts_come_back_as_one_column_however_they_are_cut(data, type_, chunk):
    arrays = data.draw(st.lists(own.arrays(type_), min_size=1, max_size=3))
    parts = [(len(array), streams_of(encode(array, 8))) for array in arrays]
    assert same(decoded(type_, parts, chunk), pa.chunked_array(arrays))


def test_item_ends_count_from_the_parts_first_byte():
    block = encode(pa.array(["xx", "ab", "", "c", "y"])[1:4], 8)
    ends, values = block.streams
    assert ends.data.view("<i4").tolist() == [2, 2, 3]
    assert values.data.tobytes() == b"abc"
    assert values.pages == (3,)


def test_pages_from_the_middle_of_a_part_are_raised_to_the_columns_first_byte():
    streams = {"ends": np.array([12, 15], "<i4").tobytes(), "values": b"abcde"}
    column = decoded(pa.string(), [(2, streams)], first_byte=10)
    assert column.to_pylist() == ["ab", "cde"]
    for ends in ([9, 15], [12, 16], [2, 5]):
        streams["ends"] = np.array(ends, "<i4").tobytes()
        with pytest.raises(CorruptError):
            decoded(pa.string(), [(2, streams)], first_byte=10)


@pytest.mark.parametrize("type_", WIDTHS, ids=str)
@pytest.mark.parametrize(
    "ends",
    [
        [1, 3, 2, 4],
        [4, 3, 2, 1],
        [1, 2, 3, 5],
        [1, 2, 3, 2**31 - 1],
        [-1, 2, 3, 4],
        [-(2**31), 2, 3, 4],
        [1, 2, 3, 3],
        [0, 0, 0, 0],
        [1, -1, 3, 4],
    ],
    ids=str,
)
@pytest.mark.parametrize("items", [1, 2, 4])
def test_item_ends_that_do_not_ascend_to_the_end_are_refused(ends, type_, items):
    assert decoded(type_, [part([1, 1, 2, 4], b"abcd", type_)])[3].as_py() in ("cd", b"cd")
    refused(ends, b"abcd", type_, chunk=items * WIDTHS[type_], match="item ends")


@pytest.mark.parametrize("type_", WIDTHS, ids=str)
@pytest.mark.parametrize("ends", [[-1, 2, 3, 4], [1, 2, 3, 5], [1, 3, 2, 4]], ids=str)
def test_a_range_of_item_ends_is_refused_before_the_rest_is_decoded(ends, type_):
    rows, streams = part(ends, b"abcd", type_)
    column = decoder(type_, [Piece(rows, {name: len(data) for name, data in streams.items()})])
    target = column.target(0, "ends")
    target.buffer[:] = np.frombuffer(streams["ends"], np.uint8)
    with pytest.raises(CorruptError, match="within 4 bytes"):
        target.check(0, len(streams["ends"]))


@pytest.mark.parametrize("end", [2**31, 2**62, -(2**63)])
def test_no_item_end_of_64_bits_wraps(end):
    refused([1, 2, 3, end], b"abcd", pa.large_string())
    refused([end, 2, 3, 4], b"abcd", pa.large_string())


def test_a_part_does_not_reach_into_the_next():
    good, short = part([2, 4], b"abcd"), part([2, 3], b"abcd")
    assert decoded(pa.string(), [good, good]).to_pylist() == ["ab", "cd"] * 2
    for parts in ([short, good], [good, short], [part([2, 5], b"abcd"), good]):
        with pytest.raises(CorruptError):
            decoded(pa.string(), parts)


def test_a_chunk_does_not_cut_an_item_end():
    refused([1, 2, 3, 4], b"abcd", chunk=6, match="cut an item")


@pytest.mark.parametrize("chunk", [4, 8, 12])
def test_a_character_may_be_split_over_chunks(chunk):
    words = ["aé中😀", "é" * 9, "", "😀😀x"]
    data = "".join(words).encode()
    ends = np.cumsum([len(word.encode()) for word in words]).tolist()
    assert decoded(pa.string(), [part(ends, data)], chunk).to_pylist() == words


BROKEN = [
    b"\xff",
    b"\x80",
    b"\xc3",
    b"a\xe4\xb8",
    b"\xf0\x9f\x98",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
]


@pytest.mark.parametrize("chunk", [4, MIB])
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_text_that_is_not_utf_8_is_refused(type_, broken, chunk):
    chunk = max(chunk, WIDTHS[type_])
    for before, after in ((b"", b""), (b"fine", b""), (b"", b"fine"), ("é".encode(), b"fine")):
        data = before + broken + after
        ends = [len(before), len(before + broken), len(data)]
        refused(ends, data, type_, chunk, match="UTF-8|character")
        refused([len(data)], data, type_, chunk, match="UTF-8")
    binary = pa.binary() if WIDTHS[type_] == 4 else pa.large_binary()
    assert decoded(binary, [part([len(broken)], broken, binary)])[0].as_py() == broken


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_is_not_split_over_items(cut):
    refused([cut, 4], "😀".encode(), match="inside a character")
    refused([2 + cut, 6, 8], b"ab" + "😀".encode() + b"cd", match="inside a character")


def test_a_character_is_not_split_over_parts():
    one, two = part([1], b"\xc3"), part([1], b"\xa9")
    with pytest.raises(CorruptError):
        decoded(pa.string(), [one, two])


@pytest.mark.parametrize("row", [0, 699, 700, 701, 1399, 1400, 2099])
def test_every_item_of_much_text_is_looked_at(row):
    # Three checks of 4 MiB; the bad item is in each of them, also at their borders.
    items = ["é".encode() * 3000] * 2100
    ends = np.cumsum([len(item) for item in items]).tolist()
    items[row] = items[row][:-2] + b"\xc3x"
    refused(ends, b"".join(items), match="UTF-8")


def test_a_continuation_byte_at_the_start_of_any_item_of_much_text_is_refused():
    items = ["é".encode() * 3000] * 2100
    ends = np.cumsum([len(item) for item in items])
    for row in (0, 700, 1399, 2098):
        shifted = ends.copy()
        shifted[row] += 1
        refused(shifted.tolist(), b"".join(items), match="inside a character")


@given(st.lists(st.integers(0, 10), max_size=12))
def test_pieces_are_cut_below_the_limit_and_no_more_than_needed(sizes):
    ranges = _segment(sizes, 10)
    assert [at for start, stop in ranges for at in range(start, stop)] == list(range(len(sizes)))
    totals = [sum(sizes[start:stop]) for start, stop in ranges]
    assert all(total <= 10 for total in totals)
    for (start, _), total in zip(ranges[1:], totals, strict=False):
        assert total + sizes[start] > 10


def test_wide_offsets_are_never_cut():
    assert _segment([1 << 40] * 3, None) == [(0, 3)]
    assert _segment([], None) == [(0, 0)]


def test_a_part_above_the_limit_is_refused():
    with pytest.raises(CorruptError):
        _segment([1, 11], 10)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_bytes_that_are_no_text_are_not_encoded(type_):
    array = own.varying(pa.large_string(), [b"fine", b"\xff"], None)
    if type_ == pa.string():
        array = own.varying(type_, [b"fine", b"\xff"], None)
    elif type_ == pa.string_view():
        views = own.varying(pa.large_binary(), [b"fine", b"\xff"], None).cast(pa.binary_view())
        array = pa.Array.from_buffers(type_, 2, views.buffers())
    with pytest.raises(SchemaError):
        encode(array)


@pytest.mark.parametrize("ends", [[3, 1], [-1, 2]], ids=str)
def test_item_ends_that_are_not_sound_are_not_encoded(ends):
    offsets = pa.py_buffer(np.array([0, *ends], "<i4"))
    array = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(SchemaError, match="offsets"):
        encode(array)


def test_a_few_huge_items_do_not_make_pages_small():
    words = ["a word"] * 100_000
    usual = encode(pa.array(words)).page_rows
    assert encode(pa.array([*words, "x" * 10_000_000])).page_rows == usual
    assert encode(pa.array(["x" * 10_000_000])).page_rows == 8


# Bug: text beyond the range of 32-bit offsets was put into one array.
def test_views_are_cut_into_arrays_that_their_offsets_can_count():
    pieces = [Piece(2, {ENDS: 16, VALUES: 10}), Piece(1, {ENDS: 8, VALUES: 10})]
    decoder = text.TextDecoder(pa.large_string(), pieces, 15)
    for piece, ends in enumerate(([5, 10], [10])):
        target = decoder.target(piece, ENDS)
        target.buffer[:] = np.array(ends, "<i8").view(np.uint8)
        target.check(0, len(target.buffer))
        decoder.target(piece, VALUES).buffer[:] = ord("a")
    assert list(decoder.checks()) == []
    assert [chunk.to_pylist() for chunk in decoder.finish().chunks] == [["aaaaa"] * 2, ["a" * 10]]


def streams_of(block: Block) -> dict[str, bytes]:
    """Return the bytes of each stream, by its name in the file."""
    return {name: stream.data.tobytes() for name, stream in block.walk()}


def decoded(
    type_: pa.DataType,
    parts: list[tuple[int, dict[str, bytes]]],
    chunk: int = 1 << 20,
    first_byte: int = 0,
) -> pa.ChunkedArray:
    """Decode a column from the rows and streams of its parts; fill and check it chunk by chunk."""
    pieces = [
        Piece(rows, {name: len(data) for name, data in streams.items()}, first_byte)
        for rows, streams in parts
    ]
    column = decoder(type_, pieces)
    for index, (_, streams) in enumerate(parts):
        for name, data in streams.items():
            target = column.target(index, name)
            assert len(target.buffer) == len(data)
            for start in range(0, len(data), chunk):
                stop = min(start + chunk, len(data))
                target.buffer[start:stop] = np.frombuffer(data[start:stop], np.uint8)
                if target.check is not None:
                    target.check(start, stop)
    for check in column.checks():
        check()
    return column.finish()
