"""A dictionary of items: the same items come back, and no code leads out of it."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable import tuning
from blztable.columns.blocks import StreamLayout
from blztable.columns.encodings.dictionary import (
    MAX_BYTES,
    MAX_LENGTH,
    TRIED_BYTES,
    Dictionary,
)
from blztable.columns.encodings.dictionary import encode_few_items as encode_if_worth
from blztable.columns.encodings.numbers import codes_layout
from blztable.columns.encodings.parse import StreamContext, parse
from blztable.columns.statistics.compute import statistics
from blztable.columns.types import encode
from blztable.errors import CorruptError, SchemaError

ENDS = StreamLayout("ends", "<i8", 8, 64)
VALUES = StreamLayout("values", "|u1", 1, None)
TYPES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())

FEW_ITEMS = tuning.current.few_items


def encode_few_items(array, page_rows, worth=float("inf")):
    return encode_if_worth(array, page_rows, lambda data: worth)


def dictionary_of(items, pages, page_rows=8, code=1) -> Dictionary:
    starts = np.cumsum([0, *pages])
    return Dictionary(
        codes_layout("ends", code), 8, pa.array(items, pa.binary()), starts, page_rows
    )


def spelled(one: Dictionary, codes: np.ndarray) -> tuple[list[int], bytes]:
    """Return the ends and the bytes of all pages."""
    dtype = f"<i{one.width}"
    ends, values = np.empty(len(codes), dtype), np.empty(int(one.starts[-1]), "u1")
    for page, start in enumerate(range(0, len(codes), one.page_rows)):
        part = codes[start : start + one.page_rows]
        low, high = one.starts[page : page + 2].tolist()
        one.spell(page, part, ends[start : start + len(part)], values[low:high])
    decoded = np.empty(len(codes), dtype)
    one.decode(0, codes.view("u1"), decoded.view("u1"))
    assert decoded.tolist() == ends.tolist()
    return ends.tolist(), values.tobytes()


@st.composite
def items_and_codes(draw):
    """Draw items of few lengths, and codes of them; enough rows for each size of lookup."""
    count = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 9, 16, 17, 100, 128, 129, 256, 300]))
    length = draw(st.sampled_from([None, 0, 1, 2, 3, 4, 8, 15, 300]))
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 6, count) if length is None else np.full(count, length)
    items = [rng.bytes(size) for size in sizes]
    rows = draw(st.sampled_from([1, 7, 100, 5000, 140_000]))
    return items, rng.integers(0, count, rows)


@settings(deadline=None, max_examples=60)
@given(items_and_codes(), st.sampled_from([8, 1024, 1 << 17]))
def test_items_are_spelled_as_arrow_takes_them(drawn, page_rows):
    items, numbers = drawn
    if sum(map(len, items)) > MAX_BYTES:
        return
    width = 1 if len(items) <= 256 and page_rows != 1024 else 2
    codes = numbers.astype(f"<u{width}")
    lengths = np.array([len(item) for item in items])[numbers]
    pages = [lengths[at : at + page_rows].sum() for at in range(0, len(codes), page_rows)]
    one = dictionary_of(items, pages, page_rows, width)
    # What the metadata say makes the same dictionary.
    written = json.loads(json.dumps(one.to_json()))
    owner = StreamContext(ENDS, len(codes), page_rows, pages)
    read = parse(written, owner, one.stored.dtype)
    assert read.to_json() == written
    ends, values = spelled(read, codes)
    assert ends == np.cumsum(lengths).tolist()
    assert values == b"".join(items[number] for number in numbers)
    assert read.lengths_of(codes[:9]).tolist() == lengths[:9].tolist()
    assert read.items_of(codes[:9]).tobytes() == b"".join(items[one] for one in numbers[:9])


@pytest.mark.parametrize("rows", [8, 4096])
@pytest.mark.parametrize("count", [1, 3, 5, 200])
def test_a_code_outside_of_the_dictionary_is_corrupt(rows, count):
    codes = np.zeros(rows, "u1")
    one = dictionary_of([b"a"] * count, [rows], rows)
    assert spelled(one, codes)[1] == b"a" * rows
    for place in (0, rows // 2, rows - 1):
        codes[:] = 0
        codes[place] = count
        with pytest.raises(CorruptError, match=f"outside of a dictionary of {count} items"):
            spelled(one, codes)
        with pytest.raises(CorruptError, match="outside of a dictionary"):
            one.check(codes)


@pytest.mark.parametrize("more", [1, -1, 10**6, -(10**6)])
def test_items_of_other_sizes_than_their_page_are_corrupt(more):
    rows = 1 << 17
    codes = np.arange(rows, dtype="u1") % 4
    items = [b"", b"ab", b"abc", b"abcd"]
    nbytes = 9 * rows // 4
    for room in (True, False):
        one = dictionary_of(items, [nbytes + more], rows)
        values = np.zeros(max(nbytes + more, 0) + 16, "u1")
        target = values[: nbytes + more] if room else None
        with pytest.raises(CorruptError, match="page 0 do not have the bytes of the page"):
            one.spell(0, codes, np.empty(rows, "i8"), target)
        assert not values[-16:].any()


def block_and_plain(array, page_rows=None):
    found = encode_few_items(array, page_rows)
    assert found is not None
    return found[0], encode(array, found[0].page_rows), found[1]


@given(
    st.sampled_from(TYPES),
    st.sampled_from([["a", "", "ää", "long", None], ["x", "b", "z"], ["ä", "cd", "ab", "ö"], ["a"]])
    .map(st.sampled_from)
    .flatmap(lambda item: st.lists(item, min_size=48, max_size=200)),
    st.integers(0, 7),
    st.sampled_from([8, 64]),
)
def test_text_of_few_items_is_stored_with_the_facts_of_plain_text(type_, items, start, page_rows):
    items = [item if item is None or "string" in str(type_) else item.encode() for item in items]
    array = pa.array(items, type_)[start:]
    found = encode_few_items(array, page_rows)
    if found is None:
        assert array.null_count == len(array)
        return
    block, as_dictionary = found
    plain = encode(array, page_rows)
    assert {one.layout.name: one.nbytes for one in block.streams} == {
        one.layout.name: one.nbytes for one in plain.streams
    }
    assert block.streams[-1].pages == plain.streams[-1].pages
    assert statistics(as_dictionary, page_rows) == statistics(array, page_rows)
    ends, values = spelled(block.streams[-2].encoding, block.streams[-2].data)
    width = plain.streams[-2].layout.typesize
    assert ends == plain.streams[-2].data.view(f"<i{width}").tolist()
    assert values == plain.streams[-1].data.tobytes()


def test_the_bytes_of_null_rows_are_not_stored():
    array = pa.array(["a", "b", "c", "a"] * 20)
    nulls = np.arange(80) % 4 == 2
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    array = pa.Array.from_buffers(pa.string(), 80, [validity, *array.buffers()[1:]])
    block, plain, as_dictionary = block_and_plain(array, 16)
    assert as_dictionary.null_count == 20
    assert block.streams[1].encoding.items.to_pylist() == [b"a", b"b", b""]
    assert block.streams[2].pages == plain.streams[2].pages == (12,) * 5
    assert statistics(as_dictionary, 16) == statistics(array, 16)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([], pa.string()),
        pa.array(["a", "b"]),
        pa.array([None] * 100, pa.string()),
        pa.array([str(n) for n in range(FEW_ITEMS + 1)] * 7),
        # Few in the sample, many in all.
        pa.array(["a"] * 600 + [str(n) for n in range(9000)] + ["a"] * 60_000),
        pa.array(["a" * (MAX_LENGTH + 1), "b"] * 50),
        pa.array(
            ["a" * MAX_LENGTH, "b" * MAX_LENGTH, "c" * MAX_LENGTH, "d" * MAX_LENGTH, "e" * 5] * 9
        ),
        # Few items in the first eighth.
        pa.array(["a", "b"] * 10_000 + ["b" * MAX_BYTES]),
        pa.array([1, 2] * 50),
        pa.array([True, False] * 50),
    ],
)
def test_other_columns_have_no_dictionary(array):
    assert encode_few_items(array, None) is None


@pytest.mark.parametrize(("count", "width"), [(FEW_ITEMS, 1), (255, 1), (256, 2), (5000, 2)])
def test_items_have_codes_of_one_byte_or_two(count, width):
    items = [str(n) for n in range(count)]
    rows = np.random.default_rng(1).permutation(np.arange(20 * count) % count)
    array = pa.array(items).take(pa.array(rows))
    # The item of a null row needs a code, too.
    for nulls in (array, pa.concat_arrays([array, pa.array([None], pa.string())])):
        block, plain, as_dictionary = block_and_plain(nulls)
        ends, values = spelled(block.streams[-2].encoding, block_codes(block))
        assert block.streams[-2].data.nbytes == width * len(nulls)
        assert ends == plain.streams[-2].data.view("<i4").tolist()
        assert values == plain.streams[-1].data.tobytes()
        assert statistics(as_dictionary, block.page_rows) == statistics(nulls, block.page_rows)


def block_codes(block):
    return block.streams[-2].data.view(block.streams[-2].encoding.stored.dtype)


def test_many_items_have_a_dictionary_only_if_their_codes_are_small_enough():
    names = [f"{n * 7919 % 100_003:010}" for n in range(500)]
    array = pa.array(names * 100)
    tried = []

    def worth(share):
        return lambda data: tried.append(len(data)) or share * len(data)

    # Nine bits instead of ten bytes, and the items.
    assert encode_if_worth(array, None, worth(0.135)) is not None
    assert encode_if_worth(array, None, worth(0.11)) is None
    assert set(tried) == {TRIED_BYTES}
    assert encode_if_worth(pa.array(names[:100] * 100), None, worth(0)) is not None
    # Those of few items are not tried.
    assert len(tried) == 3


def test_the_longest_items_there_may_be_have_a_dictionary():
    items = [letter * MAX_LENGTH for letter in "abcd"]
    block, plain, _ = block_and_plain(pa.array([*items, "four"] * 9))
    ends, values = spelled(block.streams[0].encoding, block_codes(block))
    assert ends == plain.streams[0].data.view("<i4").tolist()
    assert values == plain.streams[1].data.tobytes()
    written = json.loads(json.dumps(block.streams[0].encoding.to_json()))
    owner = StreamContext(ENDS, 45, block.page_rows, block.streams[1].pages, is_text=True)
    assert parse(written, owner, "|u1").items.to_pylist() == [
        one.encode() for one in (*items, "four")
    ]


def test_text_that_is_no_text_is_refused_as_plain_text_is():
    rows = 20_000
    # The sample does not have the row.
    data = b"ab" * 700 + b"\xffb" + b"ab" * (rows - 701)
    offsets = pa.py_buffer(np.arange(0, 2 * rows + 1, 2, dtype="<i4"))
    array = pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(data)])
    with pytest.raises(SchemaError, match="the text is not UTF-8"):
        encode_few_items(array, None)


def test_item_ends_that_lead_out_of_the_bytes_are_refused():
    rows = 20_000
    offsets = np.arange(0, 2 * rows + 1, 2, dtype="<i4")
    offsets[700] = -(2**31)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"ab" * rows)]
    array = pa.Array.from_buffers(pa.binary(), rows, buffers)
    with pytest.raises(SchemaError, match="offsets of an Arrow array do not ascend"):
        encode_few_items(array, None)
    offsets[1] = -(2**31)
    assert encode_few_items(array, None) is None


def of_json(**changes):
    encoding = {"kind": "dictionary", "items": "YWI=", "lengths": "AQABAA=="} | changes
    return parse(encoding, StreamContext(ENDS, 4, 8, (4,), is_text=True), "|u1")


def test_the_items_of_a_dictionary_are_checked():
    assert of_json().items.to_pylist() == [b"a", b"b"]
    for changes in (
        {"items": None},
        {"items": "?"},
        {"items": "YWJj"},
        {"lengths": 7},
        {"lengths": "AQA=="},
        {"lengths": "AQAC"},
        {"lengths": ""},
        {"lengths": "", "items": ""},
        {"lengths": "AgABAA=="},
        # Half a character in each item.
        {"items": "w6Q="},
        {"items": "//8="},
    ):
        with pytest.raises(CorruptError, match=r"a dictionary|of a dictionary"):
            of_json(**changes)


def test_a_dictionary_is_of_items_and_not_within_another():
    encoding = {"kind": "dictionary", "items": "YWI=", "lengths": "AQABAA=="}
    for layout, dtype in ((ENDS, "<i8"), (StreamLayout("codes", "<i8", 8, 64), "|u1")):
        with pytest.raises(CorruptError, match="encoding 'dictionary' of stream"):
            parse(encoding, StreamContext(layout, 4, 8, (4,)), dtype)
    for layout in (ENDS, VALUES):
        with pytest.raises(CorruptError, match="of items within a dictionary"):
            parse(encoding, StreamContext(layout, 4, 8, (4,), is_child=True), "|u1")


def test_the_example_of_the_format_page():
    read = of_json(items="YWlycmFpbA==", lengths="AwAEAA==")
    codes = np.array([1, 0, 0, 1], "u1")
    one = dictionary_of([b"air", b"rail"], [14], 4)
    assert one.to_json() == read.to_json()
    assert spelled(one, codes) == ([4, 7, 10, 14], b"railairairrail")


def test_large_items_are_counted_before_they_are_made():
    rows = 1 << 15
    items = [b"", b"a" * 60_000]
    codes = np.ones(rows, "<u2")
    one = dictionary_of(items, [8], rows, 2)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptError, match="page 0 do not have the bytes of the page"):
        one.spell(0, codes, np.empty(rows, "i8"), np.empty(8, "u1"))
    assert pa.default_memory_pool().max_memory() - before < 1 << 24
