"""Arrays from a stranger: each flip, cut and lie is an error or the same values."""

import functools
import io
import json
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.arrays.files.trailer import TRAILER_FOOT
from blztable.format.checksums import crc32

VALUES = np.arange(30, dtype="i4").reshape(10, 3) % 5
ITEMS = ["", "a", "é" * 30]
FORMS = {
    "bloscpack": {"expectedlen": 12},
    "no checksum": {"expectedlen": 12, "checksum": "none"},
    "grid": {"expectedlen": 12, "chunk_shape": (4, 2), "order": "F"},
    "full": {"expectedlen": 1, "chunk_shape": (3, 3)},
    "items": {"expectedlen": 3},
    "stream": {},
}


class Pipe(io.BytesIO):
    """A file that can only be written."""

    def seekable(self):
        return False


@functools.cache
def made(form):
    file = Pipe() if form == "stream" else io.BytesIO()
    options = {"chunk_shape": (4, 3)} | FORMS[form]
    if form == "items":
        with blz.SuperChunk.create(file, "str", expectedlen=3) as array:
            array.append(ITEMS)
    else:
        with blz.SuperChunk.create(file, "i4", (0, 3), meta={"a": b"x"}, **options) as array:
            array.append(VALUES)
            array.vlmeta["b"] = b"y"
    return file.getvalue()


def seen(data):
    """Return the values and metalayers, or None for an error of ours."""
    try:
        with blz.SuperChunk.open(data) as array:
            return array.to_numpy().tolist(), dict(array.meta), dict(array.vlmeta)
    except blz.BlzError:
        return None


@pytest.mark.parametrize("form", FORMS)
def test_each_flipped_bit_is_seen(form):
    data = made(form)
    whole = seen(data)
    first = blz.SuperChunk.open(data)._opened.array.offsets[0]
    trailer = data.rindex(b"blztrail")
    for place in range(len(data)):
        for bit in range(8):
            if form == "no checksum" and first <= place < trailer:
                continue
            broken = bytearray(data)
            broken[place] ^= 1 << bit
            assert seen(bytes(broken)) in (None, whole), (place, bit)


@pytest.mark.parametrize("form", FORMS)
def test_each_cut_is_seen_and_whole_chunks_are_recovered(form):
    data = made(form)
    for size in range(len(data)):
        assert seen(data[:size]) is None
        try:
            array = blz.SuperChunk.recover(data[:size])
        except blz.BlzError:
            continue
        found = array.to_numpy().tolist()
        assert found == VALUES[: len(found)].tolist()


@pytest.mark.parametrize("form", FORMS)
@given(st.data())
def test_random_damage_is_an_error_or_the_same_values(form, data):
    broken = bytearray(made(form))
    trailer = broken.rindex(b"blztrail") if form == "no checksum" else 0
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(trailer, len(broken) - 1))
        broken[place] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))
    assert seen(bytes(broken)) in (None, seen(made(form)))


def resealed(data, change):
    """Change the metadata of a file of version 4, and make its checksum right again."""
    header = struct.unpack_from("<4sBBBBiiqq", data)
    size = header[-1]
    value = json.loads(data[32 : 32 + size])
    trailer, length = value["blz"]["trailer"]
    front_length = 32 + size + 8 * value["blz"]["room"]
    change(value)
    text = json.dumps(value, separators=(",", ":")).encode()
    assert len(text) <= size
    broken = bytearray(data)
    broken[32 : 32 + size] = text.ljust(size)
    end = trailer + length - TRAILER_FOOT.size
    crc = crc32(bytes(broken[trailer:end]), crc32(bytes(broken[:front_length])))
    struct.pack_into("<I", broken, end, crc)
    return bytes(broken)


def setting(*path):
    *parents, value = path
    *parents, key = parents

    def change(metadata):
        for parent in parents:
            metadata = metadata[parent]
        metadata[key] = value

    return change


def test_a_resealed_file_is_read():
    assert seen(resealed(made("grid"), lambda value: None)) == seen(made("grid"))


@pytest.mark.parametrize(
    "lie",
    [
        setting("shape", [10, 2]),
        setting("shape", [9, 3]),
        setting("shape", [11, 3]),
        setting("shape", [1 << 60, 3]),
        setting("shape", [10]),
        setting("shape", [-10, -3]),
        setting("shape", []),
        setting("dtype", "<i8"),
        setting("dtype", "O"),
        setting("dtype", "varchar"),
        setting("dtype", None),
        setting("chunkshape", [0, 0]),
        setting("chunkshape", [1 << 40, 1 << 40]),
        setting("chunkshape", [2, 4]),
        setting("chunkshape", [4]),
        setting("order", "A"),
        setting("meta", []),
        setting("meta", {"a": "*"}),
        setting("blz", "trailer", [1, 2]),
        setting("blz", "trailer", [0, 0]),
        setting("blz", "trailer", [1 << 62, 9]),
        setting("blz", "room", 1 << 21),
        setting("blz", "room", 1 << 61),
        setting("blz", "items", "str"),
        setting("blz", "items", []),
        setting("blz", "codec", "snappy"),
        setting("blz", "codec", []),
        setting("blz", "shuffle", 7),
        setting("blz", "shuffle", []),
        setting("blz", "clevel", 99),
        setting("blz", "reserve", -1),
        setting("blz", "truncate", -1),
        setting("blz", "truncate", 2),
        setting("blz", None),
        lambda value: value["blz"].clear(),
        lambda value: value.pop("order"),
    ],
)
def test_metadata_that_lie_with_a_right_checksum_are_refused(lie):
    data = resealed(made("grid"), lie)
    tracemalloc.start()
    try:
        assert seen(data) is None
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused_before_memory_is_made():
    data = made("grid")
    huge = resealed(data, lambda value: value.update(shape=[1 << 30, 1 << 28]))
    assert seen(huge) is None
    part = struct.pack("<BBBBIII", 2, 1, 0x30, 8, 1 << 31, 1 << 20, 40) + bytes(24)
    for version, head in {
        1: struct.pack("<4sB3xq", b"blpk", 1, 1),
        3: struct.pack("<4sBBBBiiqq", b"blpk", 3, 0, 0, 8, -1, -1, 1, 0),
    }.items():
        with pytest.raises(blz.CorruptError, match="claims"):
            blz.SuperChunk.open(head + part)
        assert version


def test_a_foreign_header_cannot_claim_more_than_its_file():
    for nchunks, room in ((1 << 60, 0), (0, 1 << 60), (1 << 40, 1 << 40)):
        head = struct.pack("<4sBBBBiiqq", b"blpk", 3, 1, 0, 8, 8, 8, nchunks, room)
        with pytest.raises(blz.CorruptError):
            blz.SuperChunk.open(head + bytes(100))


def test_offsets_into_the_front_or_over_each_other_are_refused():
    chunk = struct.pack("<BBBBIII", 2, 1, 2, 1, 4, 4, 20) + b"abcd"
    for offsets in ((0, 68), (48, 48), (68, 48), (48, 60), (48, 1 << 60)):
        head = struct.pack("<4sBBBBiiqq", b"blpk", 3, 1, 0, 1, 4, 4, 2, 0)
        with pytest.raises(blz.CorruptError):
            blz.SuperChunk.open(head + struct.pack("<2q", *offsets) + chunk * 2)
    head = struct.pack("<4sBBBBiiqq", b"blpk", 3, 1, 0, 1, 4, 4, 2, 0)
    whole = head + struct.pack("<2q", 48, 68) + chunk * 2
    assert blz.SuperChunk.open(whole).tobytes() == b"abcdabcd"


def test_the_journal_of_a_stranger_is_bounded():
    body = struct.pack("<8sI4xQ", b"blzredo1", 1 << 31, 10)
    foot = struct.pack("<QQI4x8s", len(made("grid")), 10, zlib.crc32(body), b"blzredo!")
    data = made("grid") + body + foot
    assert seen(data) in (None, seen(made("grid")))


# Found by the fuzzer: the next change was an OverflowError.
def test_more_digits_than_a_float_has_are_refused():
    file = io.BytesIO()
    with blz.SuperChunk.create(file, "f8", decimals=17, version=4) as array:
        array.append([1.5])
    lie = resealed(file.getvalue(), setting("blz", "truncate", 18))
    with pytest.raises(blz.CorruptError, match="18 decimal digits"):
        blz.SuperChunk.open(lie)


# Found by the fuzzer: numpy raised SystemError, when an item was looked at.
@pytest.mark.parametrize(
    ("dtype", "lie"), [("<U1", "<u4"), (">U1", ">u4"), ([("a", "<U1", (2,))], [("a", "<u4", (2,))])]
)
def test_text_that_is_no_text_is_refused(dtype, lie):
    file = io.BytesIO()
    with blz.SuperChunk.create(file, lie, version=4) as array:
        numbers = np.zeros(3, lie)
        numbers[1] = 0x110000
        array.append(numbers)
    data = resealed(
        file.getvalue(), lambda value: value.update(dtype=value["dtype"].replace("u4", "U1"))
    )
    with blz.SuperChunk.open(data) as array:
        with pytest.raises(blz.CorruptError, match="no character"):
            array[1]
        assert not array.verify()
    with pytest.raises(blz.SchemaError, match="no character"):
        blz.SuperChunk.create(None, dtype).append(numbers.view(dtype))


# Found by the fuzzer: the chunks were divided by those of a row, which are none.
def test_chunks_of_rows_without_items_are_not_recovered():
    file = io.BytesIO()
    array = blz.SuperChunk.create(file, "f8", (0, 4), chunk_shape=(10, 4), version=4)
    array.append(np.ones((25, 4)))
    data = file.getvalue()
    assert blz.SuperChunk.recover(data).shape == (20, 4)
    assert blz.SuperChunk.recover(data.replace(b'"shape":[0,4]', b'"shape":[0,0]')).shape == (0, 0)


# Found by the fuzzer: a UnicodeDecodeError of Arrow.
def test_half_a_character_is_an_item_but_no_arrow_text():
    with blz.SuperChunk.create(None, "<U1") as array:
        array.append(["\ud800"])
        assert array[0] == "\ud800"
        with pytest.raises(blz.SchemaError, match="Arrow has no such text"):
            array.to_arrow()
