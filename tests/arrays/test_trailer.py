"""A trailer is complete or refused, and inflates only to the size it states."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.arrays.files.trailer import (
    FOOT_MAGIC,
    MAX_LAYER_BYTES,
    METALAYER_HEAD,
    TRAILER_FOOT,
    TRAILER_HEAD,
    Layer,
    Trailer,
)
from blztable.errors import CorruptError, FormatError

FRONT = b"the front of a file"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=7)
DIGESTS = bytes(range(12))
LAYERS = {"pages": b"some layer" * 20, "x": b"", "noise": bytes(range(64))}


@given(
    st.sampled_from([4, 16, 64]),
    st.integers(0, 5),
    st.dictionaries(NAMES, st.binary() | st.binary().map(lambda data: data * 50), max_size=16),
    st.binary(),
)
def test_a_trailer_comes_back(size, nchunks, layers, front):
    encoded = {name: Layer.encode(blob) for name, blob in layers.items()}
    trailer = Trailer(size, bytes(range(size)) * nchunks, encoded)
    data, crc = trailer.encode(front)
    assert Trailer.stored_crc(data) == crc == zlib.crc32(front + data[: -TRAILER_FOOT.size])
    found = Trailer.decode(front, data, nchunks, size)
    assert found == trailer
    assert {name: layer.decode() for name, layer in found.layers.items()} == layers


def whole():
    layers = {name: Layer.encode(blob) for name, blob in LAYERS.items()}
    return Trailer(4, DIGESTS, layers).encode(FRONT)[0]


def sealed(body, front=FRONT):
    """Return a trailer of this body with a valid foot."""
    crc = zlib.crc32(front + body)
    return body + TRAILER_FOOT.pack(crc, len(body) + TRAILER_FOOT.size, FOOT_MAGIC)


def head(nlayers=0, nchunks=3, magic=b"blztrail", version=1, reserved=0):
    return TRAILER_HEAD.pack(magic, version, nlayers, reserved, nchunks)


def layer(name=b"a", codec=0, reserved=0, nbytes=3, stored=b"abc", name_length=None, length=None):
    name_length = len(name) if name_length is None else name_length
    length = len(stored) if length is None else length
    return METALAYER_HEAD.pack(name_length, codec, reserved, nbytes, length) + name + stored


def refused(data, kind=CorruptError, nchunks=3, size=4, match=None):
    with pytest.raises(kind, match=match):
        Trailer.decode(FRONT, data, nchunks, size)


def decoded(*layers):
    body = head(len(layers)) + b"".join(layers) + DIGESTS
    layers = Trailer.decode(FRONT, sealed(body), 3, 4).layers
    return {name: layer.decode() for name, layer in layers.items()}


def layer_refused(*layers, kind=CorruptError, match=None):
    with pytest.raises(kind, match=match):
        decoded(*layers)


def test_the_good_layer_is_what_the_lies_are_made_from():
    assert decoded(layer(), layer(b"b", 1, 0, 3, zlib.compress(b"abc"))) == {
        "a": b"abc",
        "b": b"abc",
    }


def test_a_trailer_that_was_cut_is_refused_wherever_it_was():
    data = whole()
    for length in range(len(data)):
        refused(data[:length])
        refused(data[length + 1 :])


def test_every_flipped_bit_is_refused():
    data = whole()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        refused(bytes(flipped))


def test_a_file_that_ends_otherwise_is_damaged_or_incomplete():
    data = whole()
    with pytest.raises(CorruptError, match=f"a trailer of {len(data)} bytes; it is damaged or inc"):
        Trailer.decode(FRONT, data[:-1] + b"?", 3, 4)


def test_another_front_is_refused():
    with pytest.raises(CorruptError, match="crc32"):
        Trailer.decode(FRONT + b"!", whole(), 3, 4)


@pytest.mark.parametrize(("nchunks", "size"), [(2, 4), (4, 4), (3, 16), (0, 4)])
def test_other_digests_than_the_chunks_have_are_refused(nchunks, size):
    refused(whole(), nchunks=nchunks, size=size)


@pytest.mark.parametrize(
    "other",
    [{"magic": FOOT_MAGIC}, {"reserved": 1}, {"nchunks": 2}, {"nchunks": 2**64 - 1}],
    ids=str,
)
def test_a_head_of_another_kind_is_refused(other):
    assert Trailer.decode(FRONT, sealed(head() + DIGESTS), 3, 4).digests == DIGESTS
    refused(sealed(head(**other) + DIGESTS))


def test_another_version_is_a_format_error():
    refused(sealed(head(version=2) + DIGESTS), FormatError, match="version 2")


@pytest.mark.parametrize("length", [0, 1, 2**32 - 1])
def test_another_length_is_refused(length):
    body = head() + DIGESTS
    refused(body + TRAILER_FOOT.pack(zlib.crc32(FRONT + body), length, FOOT_MAGIC))


def test_bytes_that_belong_to_nothing_are_refused():
    refused(sealed(head() + b"?" + DIGESTS), match="too many")
    refused(sealed(head(1) + layer() + b"?" + DIGESTS), match="too many")


def test_layers_that_are_not_there_are_refused():
    refused(sealed(head(1) + DIGESTS))
    refused(sealed(head(2) + layer() + DIGESTS))
    refused(sealed(head(1) + layer()[:-1] + DIGESTS))


def test_more_layers_than_sixteen_are_refused():
    names = [bytes([65 + number]) for number in range(17)]
    assert len(decoded(*map(layer, names[:16]))) == 16
    layer_refused(*map(layer, names))
    refused(sealed(head(0xFFFF) + DIGESTS))


def test_a_layer_that_reaches_into_the_digests_is_refused():
    layer_refused(layer(nbytes=4, length=4))
    layer_refused(layer(length=2**32 - 1))


@pytest.mark.parametrize("name", [b"", b"x" * 32, b"\xff", b"\xed\xa0\x80"])
def test_a_layers_name_is_text_of_1_to_31_bytes(name):
    assert decoded(layer(b"x" * 31)) == {"x" * 31: b"abc"}
    layer_refused(layer(name))


def test_no_two_layers_share_a_name():
    layer_refused(layer(), layer(), match="two metalayers")


def test_a_layers_reserved_word_is_zero():
    layer_refused(layer(reserved=1))


@pytest.mark.parametrize("codec", [2, 255])
def test_another_codec_is_a_format_error(codec):
    layer_refused(layer(codec=codec), kind=FormatError, match="codec")


@pytest.mark.parametrize("nbytes", [0, 2, 4, 2**32 - 1])
def test_a_stored_layer_is_as_long_as_it_says(nbytes):
    layer_refused(layer(nbytes=nbytes))


@pytest.mark.parametrize("nbytes", [0, 2, 4, MAX_LAYER_BYTES])
def test_a_packed_layer_is_as_long_as_it_says(nbytes):
    layer_refused(layer(codec=1, nbytes=nbytes, stored=zlib.compress(b"abc")))


@pytest.mark.parametrize("stored", [b"", b"abc", zlib.compress(b"abc")[:-6], b"\x78\x9c\x00"])
def test_a_packed_layer_that_does_not_inflate_is_refused(stored):
    layer_refused(layer(codec=1, nbytes=3, stored=stored))


@pytest.mark.parametrize("blob", [b"", b"abc", bytes(100_000)])
def test_a_packed_layer_is_one_whole_zlib_stream(blob):
    stored = zlib.compress(blob)
    assert decoded(layer(codec=1, nbytes=len(blob), stored=stored)) == {"a": blob}
    for cut in (1, 4):
        layer_refused(layer(codec=1, nbytes=len(blob), stored=stored[:-cut]), match="whole zlib")
    for more in (b"?", stored):
        layer_refused(layer(codec=1, nbytes=len(blob), stored=stored + more), match="whole zlib")


def test_a_bomb_is_not_inflated():
    bomb = zlib.compress(bytes(64 << 20), 9)
    tracemalloc.start()
    try:
        layer_refused(layer(codec=1, nbytes=10, stored=bomb))
        layer_refused(layer(codec=1, nbytes=MAX_LAYER_BYTES + 1, stored=bomb), match="at most")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("name", ["", "x" * 32, "é" * 16])
def test_a_name_that_would_not_be_read_is_not_written(name):
    with pytest.raises(AssertionError):
        Trailer(4, b"", {name: Layer.encode(b"")}).encode(FRONT)
