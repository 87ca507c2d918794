"""Choose the compression of a stream by a trial: compress a small part of it in several ways.

Numbers and codes are tried in lz4 with each shuffle. Text is compressed with lz4hc, which is read
as fast as lz4. zstd takes three to five times longer to read, so it is chosen only where it saves
much: for UUIDs, telephone numbers and numbers as text, in which lz4 finds little that repeats.

At most an eighth of a stream is tried, so a trial costs little beside the compression. Knows the
bytes of a stream, and neither types nor files.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from blztable.columns.blocks import Stream
from blztable.engine.write.options import SIZE, SPEED, CompressionOptions
from blztable.format.chunk import BIT, BYTE, UNSHUFFLED, Compression

# Most bytes that are tried, in two runs. With more, the trial takes 5 % of a write of numbers.
TRIED_BYTES = 1 << 16
# Smaller streams are not tried: the trial would take as long as the compression.
LEAST_BYTES = 1 << 16

LZ4 = Compression("lz4", 5)
# Level 1 of lz4hc is the fast one that LZ4 1.10 has.
LZ4HC = Compression("lz4hc", 1)
# Text in which nothing repeats is written twice as fast as with level 2, and as small.
ZSTD = Compression("zstd", 1)
# Blosc's level 2 is zstd's own default, 3. Blosc's level 5 takes seven times longer to write.
SMALL = Compression("zstd", 2)
# The levels of codecs that are given without a level.
LEVELS = {one.codec: one.clevel for one in (LZ4, SMALL)} | {"lz4hc": 5, "zlib": 5}

# What a shuffle has to save more than "byte", as a share of all bytes: it is read more slowly.
SHUFFLE_COSTS = {UNSHUFFLED: 0.03, BYTE: 0.0, BIT: 0.05}
# What the codes of a dictionary of many items may leave of text: lz4hc is read twice as fast.
DICTIONARY_LEAVES = 0.5
# The share of all bytes that zstd has to save. Of text it saves at most 0.15, or at least 0.25.
ZSTD_SAVES = 0.2
# With numbers it also has to halve what lz4 makes of them.
ZSTD_HALVES = 0.5
# Codes are a fraction of the values that are read, so zstd takes less of the time.
ZSTD_SAVES_OF_CODES, ZSTD_HALVES_CODES = 0.1, 0.6
# zstd takes long with numbers of which lz4 leaves more than this, and does not halve them.
LZ4_HELPS = 0.75
# Text of which lz4 leaves more than this is not worth the time of lz4hc.
LZ4_FAILS = 0.99


def compression_of(stream: Stream, options: CompressionOptions) -> Compression:
    """Return how to compress a stream: as the options say, otherwise by a trial."""
    layout, shuffle = stream.layout, options.shuffle
    usual = shuffle or layout.shuffle or (BYTE if layout.typesize > 1 else UNSHUFFLED)
    if options.codec is not None:
        level = LEVELS[options.codec] if options.clevel is None else options.clevel
        return Compression(options.codec, level, usual)
    is_tried = stream.data.nbytes >= LEAST_BYTES
    sample = _Sample(stream) if is_tried else None
    if layout.bits is None:
        return replace(_of_text(sample, options.optimize), shuffle=usual)
    if sample is None:
        small = SMALL if options.optimize == SIZE else LZ4
        # `replace` takes ten times longer, for each part of a wide table.
        return Compression(small.codec, small.clevel, usual)
    shuffles = (shuffle,) if shuffle else _shuffles(stream)
    return _of_numbers(sample, options.optimize, shuffles, stream.encoding is not None)


def dictionary_worth(data: np.ndarray, options: CompressionOptions) -> float:
    """Return how many bytes the codes of many items may have that replace this text."""
    if options.optimize == SPEED or not len(data):
        return 0
    if options.codec is not None:
        level = LEVELS[options.codec] if options.clevel is None else options.clevel
        usual = Compression(options.codec, level)
    else:
        usual = SMALL if options.optimize == SIZE else LZ4HC
    nbytes = len(usual.compress(np.ascontiguousarray(data), 1))
    return nbytes if options.optimize == SIZE else nbytes * DICTIONARY_LEAVES


class _Sample:
    """Some bytes of a stream, and how many there are once they are compressed."""

    def __init__(self, stream: Stream) -> None:
        data, self._typesize = stream.data, stream.layout.typesize
        # Blosc shuffles only multiples of this.
        unit = 8 * self._typesize
        half = min(TRIED_BYTES, data.nbytes // 8) // 2 // unit * unit
        starts = (data.nbytes // 4 // unit * unit, data.nbytes * 3 // 4 // unit * unit)
        self._data = np.concatenate([data[start : start + half] for start in starts])
        self.nbytes = self._data.nbytes

    def leaves(self, compression: Compression) -> float:
        """Return the share of the bytes that is left."""
        return len(compression.compress(self._data, self._typesize)) / self.nbytes


def _of_text(sample: _Sample | None, optimize: str | None) -> Compression:
    if optimize == SIZE:
        return SMALL
    if optimize == SPEED:
        return LZ4
    if sample is None:
        return LZ4HC
    by_lz4, by_zstd = sample.leaves(LZ4), sample.leaves(ZSTD)
    enough = by_zstd + ZSTD_SAVES
    # lz4hc takes longest: it is tried last, and only if it can make a difference.
    if by_lz4 >= enough and sample.leaves(LZ4HC) >= enough:
        return ZSTD
    return LZ4HC if by_lz4 < LZ4_FAILS else LZ4


def _of_numbers(
    sample: _Sample, optimize: str | None, shuffles: Sequence[str], are_codes: bool
) -> Compression:
    if optimize == SIZE:
        tried = [replace(one, shuffle=shuffle) for one in (LZ4, SMALL) for shuffle in shuffles]
        return min(tried, key=sample.leaves)
    left = {shuffle: sample.leaves(replace(LZ4, shuffle=shuffle)) for shuffle in shuffles}
    best = min(shuffles, key=lambda shuffle: left[shuffle] + SHUFFLE_COSTS[shuffle])
    if are_codes:
        # zstd finds repeated codes, whose bits a shuffle would tear apart.
        most = min(left[best] * ZSTD_HALVES_CODES, left[best] - ZSTD_SAVES_OF_CODES)
        zstd = replace(ZSTD, shuffle=UNSHUFFLED if UNSHUFFLED in shuffles else best)
    else:
        most = min(left[best] * ZSTD_HALVES, left[best] - ZSTD_SAVES)
        zstd = replace(ZSTD, shuffle=best)
    if optimize is None and most > 0 and left[best] < LZ4_HELPS and sample.leaves(zstd) < most:
        return zstd
    return replace(LZ4, shuffle=best)


def _shuffles(stream: Stream) -> tuple[str, ...]:
    """Return the shuffles that may help."""
    if stream.layout.typesize > 1:
        return UNSHUFFLED, BYTE, BIT
    # A bit of a validity bitmap stands for a row of its own.
    return (UNSHUFFLED, BIT) if stream.layout.bits == 8 else (UNSHUFFLED,)
