"""A trial finds the codec and the shuffle of a stream; what the caller says goes before it."""

import random
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.columns.blocks import VALIDITY, Stream, StreamLayout
from blztable.columns.encodings.choose import encoded
from blztable.columns.types import encode
from blztable.engine.read.parts import OpenParts
from blztable.engine.version import versions
from blztable.engine.write.options import CompressionOptions, asked_of
from blztable.engine.write.trial import LEAST_BYTES, TRIED_BYTES, compression_of
from blztable.errors import ColumnNotFoundError
from blztable.format.chunk import (
    BIT_SHUFFLE,
    BYTE_SHUFFLE,
    CODEC_NAMES,
    CODEC_SHIFT,
    MEMCPYED,
    ChunkHeader,
    Compression,
)
from blztable.storage.memory import RamStore

RANDOM = random.Random(7)
RNG = np.random.default_rng(7)
ROWS = 40_000
WORDS = ["time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world"]

UUIDS = [str(uuid.UUID(int=RANDOM.getrandbits(128))) for _ in range(ROWS)]
PHONES = [f"{RANDOM.randint(10, 34)}-{RANDOM.randint(10**9, 10**10 - 1)}" for _ in range(ROWS)]
SENTENCES = [" ".join(RANDOM.choices(WORDS, k=6)) for _ in range(ROWS)]
NOISE = [RANDOM.randbytes(30) for _ in range(ROWS)]
LZ4, LZ4HC, ZSTD = ("lz4", 5), ("lz4hc", 1), ("zstd", 1)
SMALL = ("zstd", 2)


def of(values, type_=None, **asked):
    """Return the compression of the last stream of an array: the items, or the numbers."""
    array = values if isinstance(values, pa.Array) else pa.array(values, type_)
    return compression_of(encode(array).streams[-1], CompressionOptions(**asked))


def codec(compression):
    return compression.codec, compression.clevel


@pytest.mark.parametrize(
    ("items", "expected"),
    [(SENTENCES, LZ4HC), (UUIDS, ZSTD), (PHONES, ZSTD), (NOISE, LZ4), (["a"] * 100_000, LZ4HC)],
    ids=["sentences", "uuids", "telephone numbers", "noise", "one letter"],
)
def test_text_is_lz4hc_unless_lz4_finds_nothing(items, expected):
    assert codec(of(items)) == expected


NUMBERS = {
    "doubles": (RNG.normal(size=ROWS), LZ4, "byte"),
    "floats as doubles": (RNG.normal(size=ROWS).astype("f4").astype("f8"), LZ4, "bit"),
    "keys": (np.arange(ROWS) * 3, LZ4, "byte"),
    "sparse": (np.where(RNG.random(ROWS) < 0.02, RNG.normal(size=ROWS), 0.0), LZ4, "none"),
    "a few large numbers": (RNG.choice(RNG.integers(0, 1 << 50, 20), ROWS), ZSTD, "none"),
    "constant": (np.full(ROWS, 7), LZ4, "byte"),
    "booleans": (RNG.random(10 * ROWS) < 0.3, LZ4, "bit"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_get_the_shuffle_that_saves_most_for_its_time(name):
    values, expected, shuffle = NUMBERS[name]
    found = of(values)
    assert (codec(found), found.shuffle) == (expected, shuffle)


def test_codes_of_encoded_numbers_are_tried_as_codes():
    block = encoded(encode(pa.array(RNG.integers(0, 11, 10 * ROWS))))
    (stream,) = block.streams
    assert stream.layout.dtype == "|u1"
    assert compression_of(stream, CompressionOptions()) == Compression("lz4", 5, "bit")


def test_codes_that_repeat_are_zstd_although_as_many_values_would_not_be():
    # Rising numbers in groups of one to seven, as the lines of orders.
    counts = RNG.integers(1, 8, 4 * ROWS)
    lines = np.concatenate([np.arange(count) for count in counts])
    (stream,) = encoded(encode(pa.array(lines))).streams
    assert compression_of(stream, CompressionOptions()) == Compression("zstd", 1, "none")
    assert compression_of(stream, CompressionOptions(shuffle="bit")).shuffle == "bit"
    assert compression_of(stream, CompressionOptions(optimize="speed")).codec == "lz4"
    plain = Stream(stream.layout, stream.data)
    assert compression_of(plain, CompressionOptions()).codec == "lz4"


def test_a_bitmap_is_not_shuffled():
    bits = Stream(VALIDITY, np.packbits(RNG.random(1 << 21) < 0.9))
    assert compression_of(bits, CompressionOptions()) == Compression("lz4", 5, "none")


@pytest.mark.parametrize("values", [SENTENCES, UUIDS, NUMBERS["doubles"][0], NUMBERS["sparse"][0]])
def test_for_speed_everything_is_lz4(values):
    assert codec(of(values, optimize="speed")) == LZ4


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (SENTENCES, SMALL),
        (UUIDS, SMALL),
        (SENTENCES[:10], SMALL),
        (np.arange(10), SMALL),
        (NUMBERS["sparse"][0], SMALL),
        (RNG.integers(0, 1 << 62, ROWS).view("f8"), LZ4),
    ],
)
def test_for_size_text_is_zstd_and_numbers_are_what_is_smaller(values, expected):
    assert codec(of(values, optimize="size")) == expected


def test_a_codec_of_the_caller_is_taken_as_it_is():
    assert of(UUIDS, codec="lz4") == Compression("lz4", 5, "none")
    assert of(UUIDS, codec="lz4", optimize="size") == Compression("lz4", 5, "none")
    assert of(range(ROWS), codec="zstd", clevel=7) == Compression("zstd", 7, "byte")
    assert of(range(ROWS), codec="zstd") == Compression("zstd", 2, "byte")
    assert of(range(ROWS), codec="lz4hc", shuffle="bit") == Compression("lz4hc", 5, "bit")


def test_a_shuffle_of_the_caller_is_kept_beside_a_trial():
    few, expected, best = NUMBERS["a few large numbers"]
    assert best == "none"
    assert of(few, shuffle="none") == Compression(*expected, "none")
    assert of(few, shuffle="byte") == Compression(*LZ4, "byte")
    assert of(UUIDS, shuffle="bit") == Compression(*ZSTD, "bit")


def test_a_small_stream_is_not_tried(monkeypatch):
    def compress(*_):
        raise AssertionError("tried")

    monkeypatch.setattr(Compression, "compress", compress)
    few = NUMBERS["sparse"][0][: LEAST_BYTES // 8 - 1]
    assert of(few) == Compression("lz4", 5, "byte")
    assert of(UUIDS[:1000]) == Compression("lz4hc", 1, "none")
    with pytest.raises(AssertionError, match="tried"):
        of(np.append(few, 0.0))


def test_a_trial_compresses_a_small_part_of_the_stream(monkeypatch):
    tried, compress = [], Compression.compress

    def counted(self, raw, typesize):
        tried.append(raw.nbytes)
        return compress(self, raw, typesize)

    monkeypatch.setattr(Compression, "compress", counted)
    of(np.zeros(LEAST_BYTES // 8))
    assert tried == [LEAST_BYTES // 8] * 3
    tried.clear()
    of(np.zeros(1 << 20))
    assert tried == [TRIED_BYTES] * 3


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 255),
    st.integers(0, 3 << 16),
    st.sampled_from([None, "speed", "size"]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_any_stream_gets_a_compression(typesize, rows, optimize, is_text, choice):
    data = np.frombuffer(choice.randbytes(64) * (rows // 8), np.uint8)
    data = data[: len(data) // typesize * typesize]
    layout = StreamLayout("values", "|V1", typesize, None if is_text else 8 * typesize)
    found = compression_of(Stream(layout, data), CompressionOptions(optimize=optimize))
    assert found.codec in ("lz4", "lz4hc", "zstd")
    if len(data):
        assert found.compress(data, typesize)


# Through the face


def written(store, name, group=-1):
    """Return codec and shuffle of the last stream of a column in a row group."""
    version = versions.read(store, versions.newest_number(store))
    index = version.schema.get_field_index(name)
    part = OpenParts(version).open(index, range(len(version.row_groups))[group])
    flags = ChunkHeader.decode(part.reader.read(part.offsets[-2], 16)).flags
    assert not flags & MEMCPYED
    shuffle = "byte" if flags & BYTE_SHUFFLE else "bit" if flags & BIT_SHUFFLE else "none"
    return CODEC_NAMES[flags >> CODEC_SHIFT], shuffle


def test_each_row_group_is_tried_by_itself():
    store = RamStore()
    blz.to_blz({"x": UUIDS}, store)
    with blz.open(store, "a") as t:
        t.append({"x": SENTENCES})
    assert [written(store, "x", group)[0] for group in (0, 1)] == ["zstd", "lz4"]
    assert blz.read_table(store)["x"].to_pylist() == UUIDS + SENTENCES


def test_optimize_is_kept_by_column_and_only_if_it_was_given():
    data = {"a": SENTENCES, "b": SENTENCES}
    store = RamStore()
    blz.to_blz(data, store)
    with blz.open(store, "a") as t:
        kept = t._snapshot.version.head.properties
        assert kept.keys().isdisjoint({"optimize", "compression", "clevel", "shuffle"})
    blz.to_blz(data, store, storage=blz.Storage(columns={"a": blz.Storage(optimize="size")}))
    with blz.open(store, "a") as t:
        t.rename_columns({"a": "c"})
        t.append({"c": SENTENCES, "b": SENTENCES})
    assert [written(store, name)[0] for name in "cb"] == ["zstd", "lz4"]
    with pytest.raises(ColumnNotFoundError, match="storage: no column is named 'z'"):
        blz.to_blz(data, store, storage=blz.Storage(columns={"z": blz.Storage(optimize="size")}))


def test_an_update_and_a_compaction_are_tried_again():
    store = RamStore()
    blz.to_blz({"x": UUIDS, "n": range(ROWS)}, store, storage=blz.Storage(row_group_rows=ROWS // 2))
    with blz.open(store, "a") as t:
        t.update({"x": "time and time again, all day"}, where=pc.field("n") < ROWS // 2)
        assert [written(store, "x", group)[0] for group in (0, 1)] == ["lz4", "zstd"]
        t.compact(sort_by=[("n", "descending")])
        assert t.verify()
        assert t["x"][0] == UUIDS[-1]


def test_optimize_of_a_call_goes_before_the_codec_of_the_table():
    store = RamStore()
    blz.to_blz({"x": SENTENCES}, store, compression="zlib", storage=blz.Storage(clevel=1))
    blz.to_blz({"x": SENTENCES}, store, mode="a", storage=blz.Storage(optimize="size"))
    blz.to_blz({"x": SENTENCES}, store, mode="a")
    assert [written(store, "x", group)[0] for group in range(3)] == ["zlib", "zstd", "zlib"]


def test_a_codec_goes_before_optimize_where_both_are_given():
    store = RamStore()
    blz.to_blz(
        {"x": SENTENCES, "y": SENTENCES},
        store,
        storage=blz.Storage(optimize="size", columns={"x": blz.Storage(compression="lz4")}),
    )
    assert [written(store, name)[0] for name in "xy"] == ["lz4", "zstd"]


def test_a_level_without_a_codec_is_one_of_lz4():
    storage = blz.Storage(columns={"y": blz.Storage(clevel=9)})
    assert asked_of(storage.of("y")) == CompressionOptions("lz4", 9)
    assert asked_of(storage.of("x")) == CompressionOptions()


def test_create_takes_optimize():
    store = RamStore()
    with blz.create(store, {"x": pa.string()}, storage=blz.Storage(optimize="size")) as t:
        t.append({"x": SENTENCES})
    assert written(store, "x")[0] == "zstd"


def test_bits_of_a_chunk_that_blosc_does_not_shuffle_by_bits_are_shuffled_by_bytes():
    values = RNG.normal(size=ROWS).astype("f4").astype("f8").view("u1")
    bit = Compression("lz4", 5, "bit")
    whole, odd = bit.compress(values, 8), bit.compress(values[:-8], 8)
    assert ChunkHeader.decode(whole).flags & BIT_SHUFFLE
    assert ChunkHeader.decode(odd).flags & BYTE_SHUFFLE
    assert len(odd) < 0.6 * len(values)


@pytest.mark.parametrize(
    "values", [RNG.integers(0, 1000, 70_001), np.cumsum(RNG.integers(0, 9, 200_001))]
)
def test_codes_of_any_number_of_rows_are_shuffled_by_bits(values):
    store = RamStore()
    blz.to_blz({"x": values}, store, storage=blz.Storage(encoding="auto"))
    with blz.open(store) as t:
        (stream,) = t["x"].streams()
        assert stream.codecs == ("lz4, bit",)
        assert t["x"].to_numpy().tolist() == values.tolist()
        assert t["x"][-3:].to_pylist() == values[-3:].tolist()
        assert t.take([0, 69_999, 70_000])["x"].to_pylist() == values[[0, 69_999, 70_000]].tolist()
        assert t.verify()
