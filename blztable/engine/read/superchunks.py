"""Superchunks: read and check front and trailer, and the bytes of a chunk.

Knows neither types nor columns; its errors have no context.
"""

from itertools import chain
from operator import sub

from blztable.engine.read.open_files import PartReader
from blztable.errors import CorruptError, LimitError
from blztable.format.chunk import CHUNK_HEADER, EMPTY_CHUNK, MAX_RATIO
from blztable.format.header import FILE_HEADER, MAX_CHUNKS, MAX_METADATA_BYTES
from blztable.format.superchunk import PartFacts, Superchunk, unpack
from blztable.format.trailer import MAX_LAYER_BYTES, MAX_LAYERS

# Each is the sum of the limits of its contents.
MAX_FRONT_BYTES = FILE_HEADER.size + MAX_METADATA_BYTES + 8 * MAX_CHUNKS
MAX_TRAILER_BYTES = (MAX_LAYERS + 1) * MAX_LAYER_BYTES + 64 * MAX_CHUNKS


def open_superchunk(reader: PartReader, facts: PartFacts, small: int) -> Superchunk:
    """Read front and trailer, after a check of their lengths, which decide the memory they take.

    A superchunk of at most `small` bytes is read at once, and the reader keeps the bytes.
    """
    front, trailer, length = facts.front_length, facts.trailer_length, facts.cbytes
    if front > MAX_FRONT_BYTES or trailer > MAX_TRAILER_BYTES:
        raise LimitError(
            f"the front has {front} bytes, the trailer {trailer}; "
            f"at most {MAX_FRONT_BYTES} and {MAX_TRAILER_BYTES} are read"
        )
    if front + trailer > length:
        raise CorruptError(
            f"front and trailer have {front + trailer} bytes; the superchunk has {length}"
        )
    # Opened once: between two calls other threads may open so many files that this one is closed.
    file = reader.open()
    if file.size != length:
        raise CorruptError(f"the file has {file.size} bytes; the manifest says {length}")
    if length <= small:
        data = reader.kept = file.read(0, length)
        superchunk = unpack(data[:front], data[len(data) - trailer :], facts)
    else:
        start = file.read(0, front)
        superchunk = unpack(start, file.read(length - trailer, trailer), facts)
    _check_room(superchunk)
    return superchunk


def chunk_at(superchunk: Superchunk, reader: PartReader, index: int) -> bytes:
    """Return the bytes of a chunk; CorruptError if they do not have their checksum."""
    checksum, (start, stop) = superchunk.checksum, superchunk.offsets[index : index + 2]
    chunk, expected = reader.read(start, stop - checksum.size - start), _digest(superchunk, index)
    found = checksum.digest(chunk)
    if found != expected:
        raise CorruptError(f"{checksum.name} is {found.hex()}, expected {expected.hex()}")
    return chunk


def check_digest_behind(superchunk: Superchunk, reader: PartReader, index: int) -> None:
    """Check the checksum behind a chunk, which only Bloscpack reads; CorruptError if it differs."""
    checksum, stop = superchunk.checksum, superchunk.offsets[index + 1]
    found, expected = reader.read(stop - checksum.size, checksum.size), _digest(superchunk, index)
    if found != expected:
        raise CorruptError(
            f"{checksum.name} behind the chunk is {found.hex()}, in the trailer {expected.hex()}"
        )


def check_empty(superchunk: Superchunk, reader: PartReader, index: int) -> None:
    """Check the chunk of an empty item, which no reader looks at; CorruptError if it differs."""
    if chunk_at(superchunk, reader, index) != EMPTY_CHUNK:
        raise CorruptError("the chunk of an empty item is another one")


def _digest(superchunk: Superchunk, index: int) -> bytes:
    """Return the checksum of a chunk as the trailer has it."""
    size = superchunk.checksum.size
    return superchunk.trailer.digests[index * size : (index + 1) * size]


def _check_room(superchunk: Superchunk) -> None:
    """Check the sizes that chunks claim, before memory for them is allocated."""
    offsets, digest = superchunk.offsets, superchunk.checksum.size
    claims = list(chain.from_iterable(one.chunks for _, one in superchunk.info.walk()))
    # There may be a million chunks: without a line of Python for each.
    rooms = list(map(sub, offsets[1:], offsets))
    if max(map(sub, rooms, claims), default=0) > CHUNK_HEADER.size + digest:
        raise CorruptError("a chunk is longer in the file than its uncompressed contents")
    if max(claims, default=0) > (min(rooms, default=0) - digest) * MAX_RATIO and any(
        size > (room - digest) * MAX_RATIO for size, room in zip(claims, rooms, strict=True)
    ):
        raise LimitError(f"a chunk claims more than {MAX_RATIO} times its bytes")
