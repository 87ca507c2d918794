"""Choose the compression of streams by a trial: compress a small part of them in several ways.

Numbers and codes are tried in lz4 with each shuffle. Text is compressed with lz4hc, which is read
as fast as lz4. zstd takes three to five times longer to read, so it is chosen only where it saves
much: for UUIDs, telephone numbers and numbers as text, in which lz4 finds little that repeats.

At most an eighth of the bytes is tried, so a trial costs little beside the compression. Knows the
bytes of streams, and neither types nor files.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from blztable.columns.parts.stream import Stream
from blztable.engine.write.options import SIZE, SPEED, CompressionOptions
from blztable.format.chunk import BIT, BYTE, UNSHUFFLED, Compression
from blztable.format.records import DICTIONARY, NUMBERS, VALID, Array

# Most bytes that are tried. With more, the trial takes 5 % of a write of numbers.
TRIED_BYTES = 1 << 16
# Fewer bytes are not tried: the trial would take as long as the compression.
LEAST_BYTES = 1 << 16

LZ4 = Compression("lz4", 5)
# Level 1 of lz4hc is the fast one that LZ4 1.10 has.
LZ4HC = Compression("lz4hc", 1)
# Text in which nothing repeats is written twice as fast as with level 2, and as small.
ZSTD = Compression("zstd", 1)
# Blosc's level 2 is zstd's own default, 3. Blosc's level 5 takes seven times longer to write.
SMALL = Compression("zstd", 2)
# Text takes 5 % less than with level 2, and is read as fast; numbers take as much.
SMALL_TEXT = Compression("zstd", 3)
# The levels of codecs that are given without a level.
LEVELS = {setting.codec: setting.clevel for setting in (LZ4, SMALL)} | {"lz4hc": 5, "zlib": 5}

# What a shuffle has to save more than "byte", as a share of all bytes: it is read more slowly.
SHUFFLE_COSTS = {UNSHUFFLED: 0.03, BYTE: 0.0, BIT: 0.05}
# What the codes of a dictionary of many items may leave of text: lz4hc is read twice as fast.
DICTIONARY_LEAVES = 0.5
# The share of all bytes that zstd has to save. Of text it saves at most 0.15, or at least 0.25.
ZSTD_SAVES = 0.2
# With numbers it also has to halve what lz4 makes of them.
ZSTD_HALVES = 0.5
# Codes are a fraction of the values that are read, so zstd takes less of the time.
ZSTD_SAVES_OF_CODES = 0.05
# zstd takes long with numbers of which lz4 leaves more than this, and does not halve them.
LZ4_HELPS = 0.75
# Text of which lz4 leaves more than this is not worth the time of lz4hc.
LZ4_FAILS = 0.99


def compression_of(
    stream: Stream, streams: Sequence[Array], options: CompressionOptions
) -> Compression:
    """Return how to compress streams of one form: as the options say, otherwise by a trial.

    `stream` is one of the streams, and `streams` are the bytes of all.
    """
    shuffle = options.shuffle
    usual = shuffle or (BYTE if stream.typesize > 1 else UNSHUFFLED)
    are_codes = stream.kind in (NUMBERS, DICTIONARY)
    if are_codes:
        usual = shuffle or BIT
    if options.codec is not None:
        level = LEVELS[options.codec] if options.clevel is None else options.clevel
        return Compression(options.codec, level, usual)
    # Texts that are all empty have no bytes.
    streams = [data for data in streams if len(data)]
    total = sum(map(len, streams))
    sample = _Sample(stream, streams, total) if total >= LEAST_BYTES else None
    if stream.is_text:
        return replace(_of_text(sample, options.optimize), shuffle=usual)
    if sample is None:
        small = SMALL if options.optimize == SIZE else LZ4
        return Compression(small.codec, small.clevel, usual)
    shuffles = (shuffle,) if shuffle else _shuffles(stream)
    return _of_numbers(sample, options.optimize, shuffles, are_codes)


def dictionary_worth(data: Array, options: CompressionOptions) -> float:
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
    """Some bytes of streams, and how many there are once they are compressed."""

    def __init__(self, stream: Stream, streams: Sequence[Array], total: int) -> None:
        self._typesize = stream.typesize
        # Blosc shuffles only multiples of this.
        unit, most = 8 * self._typesize, min(TRIED_BYTES, total // 8)
        if len(streams) == 1:
            (data,) = streams
            half = most // 2 // unit * unit
            starts = (len(data) // 4 // unit * unit, len(data) * 3 // 4 // unit * unit)
            self._pieces = [np.concatenate([data[start : start + half] for start in starts])]
        else:
            # Each stream is compressed by itself.
            count = max(min(most * len(streams) // total, len(streams)), 1)
            places = [(2 * number + 1) * len(streams) // (2 * count) for number in range(count)]
            each = max(most // count // unit, 1) * unit
            self._pieces = [np.ascontiguousarray(streams[place][:each]) for place in places]
        self._pieces = [piece for piece in self._pieces if len(piece)]
        self.nbytes = sum(map(len, self._pieces))

    def leaves(self, compression: Compression) -> float:
        """Return the share of the bytes that is left."""
        sizes = (len(compression.compress(piece, self._typesize)) for piece in self._pieces)
        return sum(sizes) / self.nbytes


def _of_text(sample: _Sample | None, optimize: str | None) -> Compression:
    if optimize == SIZE:
        return SMALL_TEXT
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
        codecs = (LZ4, ZSTD, SMALL)
        tried = [replace(codec, shuffle=shuffle) for codec in codecs for shuffle in shuffles]
        return min(tried, key=sample.leaves)
    left = {shuffle: sample.leaves(replace(LZ4, shuffle=shuffle)) for shuffle in shuffles}
    best = min(shuffles, key=lambda shuffle: left[shuffle] + SHUFFLE_COSTS[shuffle])
    if are_codes:
        # zstd finds repeated codes, whose bits a shuffle would tear apart.
        most = left[best] - ZSTD_SAVES_OF_CODES
        zstd = replace(ZSTD, shuffle=UNSHUFFLED if UNSHUFFLED in shuffles else best)
    else:
        most = min(left[best] * ZSTD_HALVES, left[best] - ZSTD_SAVES)
        zstd = replace(ZSTD, shuffle=best)
    if optimize is None and most > 0 and left[best] < LZ4_HELPS and sample.leaves(zstd) < most:
        return zstd
    return replace(LZ4, shuffle=best)


def _shuffles(stream: Stream) -> tuple[str, ...]:
    """Return the shuffles that may help."""
    if stream.typesize > 1:
        return UNSHUFFLED, BYTE, BIT
    # A bit of a validity bitmap stands for a row of its own.
    return (UNSHUFFLED, BIT) if stream.name != VALID else (UNSHUFFLED,)
