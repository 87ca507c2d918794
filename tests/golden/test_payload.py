"""The chunk payload of docs/format.md suffices to read a chunk without C-Blosc.

The decoder below is written from "Chunk payload" of that page. It uses the codecs of Python and of
pyarrow.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator

import blosc
import numpy as np
import pyarrow as pa
import pytest

from golden.tables import ROOT

HEADER = struct.Struct("<BBBBIII")
LZ4, ZLIB, ZSTD = 1, 3, 4


CODECS: dict[int, Callable[[bytes, int], bytes]] = {
    LZ4: lambda data, nbytes: pa.decompress(data, nbytes, "lz4_raw", asbytes=True),
    ZLIB: lambda data, nbytes: zlib.decompress(data),
    ZSTD: lambda data, nbytes: pa.decompress(data, nbytes, "zstd", asbytes=True),
}


def payload(chunk: bytes) -> bytes:
    """Return the bytes of a chunk."""
    _, _, flags, typesize, nbytes, blocksize, _ = HEADER.unpack_from(chunk)
    if flags & 0x02:
        return chunk[HEADER.size : HEADER.size + nbytes]
    count = -(-nbytes // blocksize)
    result = b""
    for number, start in enumerate(struct.unpack_from(f"<{count}I", chunk, HEADER.size)):
        size = min(blocksize, nbytes - number * blocksize)
        is_split = not flags & 0x10 and typesize <= 16 and blocksize // typesize >= 128
        npieces = typesize if is_split and size == blocksize else 1
        block, at = b"", start
        for _ in range(npieces):
            (stored,) = struct.unpack_from("<i", chunk, at)
            piece = chunk[at + 4 : at + 4 + stored]
            given = size // npieces
            block += piece if stored == given else CODECS[flags >> 5](piece, given)
            at += 4 + stored
        result += unshuffled(block, flags, typesize)
    return result


def unshuffled(block: bytes, flags: int, typesize: int) -> bytes:
    """Return the bytes of a Blosc block in their order."""
    n = len(block) // typesize
    shuffled = np.frombuffer(block, np.uint8)[: n * typesize]
    rest = block[n * typesize :]
    if flags & 0x01 and typesize > 1:
        return shuffled.reshape(typesize, n).T.tobytes() + rest
    if flags & 0x04 and n % 8 == 0:
        bits = np.unpackbits(shuffled.reshape(typesize * 8, n // 8), axis=1, bitorder="little")
        return np.packbits(bits.T.copy(), axis=1, bitorder="little").tobytes() + rest
    return block


def chunks(case: str) -> Iterator[bytes]:
    """Yield every chunk of a table."""
    for file in sorted((ROOT / f"{case}.blz" / "data").rglob("*.bin")):
        data = file.read_bytes()
        (nchunks,), (stored,) = (
            struct.unpack_from("<q", data, 16),
            struct.unpack_from("<I", data, 52),
        )
        for offset in struct.unpack_from(f"<{nchunks}q", data, 64 + stored + 4):
            (ctbytes,) = struct.unpack_from("<I", data, offset + 12)
            yield data[offset : offset + ctbytes]


def kind(chunk: bytes) -> str:
    """Return the steps of decoding a chunk."""
    flags, typesize = chunk[2], chunk[3]
    if flags & 0x02:
        return "stored"
    codec = {LZ4: "lz4", ZLIB: "zlib", ZSTD: "zstd"}[flags >> 5]
    shuffle = "byte" if flags & 0x01 and typesize > 1 else "bit" if flags & 0x04 else "no"
    return f"{codec}, {shuffle} shuffle, {'whole' if flags & 0x10 else 'split'}"


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("codec-lz4", ("byte shuffle, split", "bit shuffle, split", "no shuffle, split")),
        ("codec-lz4hc", ("byte shuffle, split", "bit shuffle, split", "no shuffle, split")),
        ("codec-zlib", ("byte shuffle, split", "bit shuffle, split", "no shuffle, split")),
        ("codec-zstd", ("byte shuffle, whole", "bit shuffle, whole", "no shuffle, whole")),
        ("long-columns", ("bit shuffle", "no shuffle")),
        ("long-texts", ("bit shuffle", "no shuffle, whole")),
        ("long-items", ("no shuffle",)),
    ],
)
def test_a_chunk_is_read_by_the_page_alone(case, wanted):
    found = Counter()
    for chunk in chunks(case):
        assert payload(chunk) == blosc.decompress(chunk)
        found[kind(chunk)] += 1
    # The table still has the kinds of chunks that it was chosen for.
    for words in wanted:
        assert any(words in one for one in found), (words, found)


@pytest.mark.parametrize("codec", ["lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize("shuffle", [blosc.NOSHUFFLE, blosc.SHUFFLE, blosc.BITSHUFFLE])
def test_any_chunk_that_blosc_makes_is_read_by_the_page_alone(codec, shuffle):
    for typesize in (1, 2, 3, 4, 8, 12, 16, 17, 32, 255):
        for nbytes in (1, 7, 128, 1000, 4096, 100_003, 1 << 19):
            raw = (np.arange(nbytes) // 97 % 251).astype(np.uint8).tobytes()
            for level in (1, 9):
                chunk = blosc.compress(raw, typesize, level, shuffle, codec)
                assert payload(chunk) == raw, (typesize, nbytes, level)


@pytest.mark.parametrize(("typesize", "nbytes"), [(17, 100_000), (8, 1000), (4, 500)])
def test_a_block_of_wide_or_few_elements_is_one_piece_whatever_its_flag_says(typesize, nbytes):
    raw = (np.arange(nbytes) // 97 % 251).astype(np.uint8).tobytes()
    chunk = bytearray(blosc.compress(raw, typesize, 5, blosc.SHUFFLE, "zlib"))
    assert chunk[2] & 0x10
    chunk[2] ^= 0x10
    assert payload(bytes(chunk)) == blosc.decompress(bytes(chunk)) == raw
