"""Files of Bloscpack 1, 2 and 3, and of the proposals: bytes, maybe of an array.

Their chunks are read one after another, as Bloscpack does, or where their offsets say. The sizes
come from the headers of the chunks, and must be those of the file's header and metadata.
Knows nothing of files of ours.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from blztable.arrays.files.chunks import ByteSource, Chunks
from blztable.arrays.files.dtypes import dtype_of
from blztable.arrays.files.info import NUMPY, VARCHAR, order_of_json, shape_of_json
from blztable.errors import CorruptError, FormatError
from blztable.format.bloscpack import BLOSCPACK, EXTENDED, ITEM_ENDS, OFFSETS, UNKNOWN, Header
from blztable.format.checksums import CHECKSUMS
from blztable.format.chunk import CHUNK_HEADER, LARGE_CHUNK_BYTES, MAX_RATIO, ChunkHeader
from blztable.format.jsontext import Json

_BYTES = np.dtype(np.uint8)
# The keys of the metadata that describe an array.
_DESCRIBED = ("dtype", "shape", "order", "container", "others")


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file of another program: chunks of bytes, and the array that they are.

    Attributes
    ----------
    version
        The version of the file.
    chunks
        The chunks.
    starts
        Where each chunk begins in the uncompressed bytes, and the end of the last.
    dtype, shape, order
        The array.
    is_items
        True if each chunk is an item of variable length.
    attrs
        The metadata that do not describe the array.
    decoded
        Gives some rows of the array; None if the chunks have them as they are.
    """

    version: int
    chunks: Chunks
    starts: np.ndarray
    dtype: np.dtype
    shape: tuple[int, ...]
    order: str
    is_items: bool
    attrs: dict[str, Json]
    decoded: Callable[[slice], np.ndarray] | None = None


def read_foreign(source: ByteSource, header: Header, metadata: Json, at: int) -> Foreign:
    """Find all chunks of a file whose header and metadata end at a position."""
    offsets, at = _offsets(source, header, at)
    checksum = CHECKSUMS[header.checksum]
    begins, lengths, sizes = _walk(source, header, checksum.size, offsets, at)
    _check_sizes(header, sizes)
    starts = np.fromiter(accumulate(sizes, initial=0), np.int64, len(sizes) + 1)
    chunks = Chunks(source, checksum, begins, lengths)
    return _described(header, metadata, chunks, starts)


def _offsets(source: ByteSource, header: Header, at: int) -> tuple[list[int], int]:
    """Return the offsets, empty if one is not known, and where the chunks may begin."""
    count = header.nchunks
    if not header.options & OFFSETS or count == UNKNOWN:
        return [], at
    room = count + (header.tail if header.version == BLOSCPACK else 0)
    # Each chunk takes more bytes than its offset.
    if at + 8 * room > source.size:
        raise CorruptError(f"{count} chunks and room for {room} in {source.size} bytes")
    offsets = list(struct.unpack(f"<{count}q", source.read(at, 8 * count)))
    return [] if UNKNOWN in offsets else offsets, at + 8 * room


def _walk(
    source: ByteSource, header: Header, digest_size: int, offsets: list[int], at: int
) -> tuple[list[int], list[int], list[int]]:
    """Return the position, the compressed and the uncompressed size of each chunk."""
    begins: list[int] = []
    lengths: list[int] = []
    sizes: list[int] = []
    while len(begins) != header.nchunks:
        number = len(begins)
        position = offsets[number] if offsets else at
        if header.nchunks == UNKNOWN and position == source.size:
            break
        if position < at:
            raise CorruptError(f"chunk {number} begins within what is before it")
        head = source.read(position, CHUNK_HEADER.size)
        if len(head) < CHUNK_HEADER.size:
            raise CorruptError(f"the file ends before chunk {number} of {header.nchunks}")
        chunk = ChunkHeader.decode(head)
        at = position + chunk.ctbytes + digest_size
        if chunk.ctbytes < CHUNK_HEADER.size or at > source.size:
            raise CorruptError(f"chunk {number} has {chunk.ctbytes} bytes, more than the file")
        if chunk.nbytes > min(chunk.ctbytes * MAX_RATIO, LARGE_CHUNK_BYTES):
            raise CorruptError(f"chunk {number} claims {chunk.nbytes} bytes")
        begins.append(position)
        lengths.append(chunk.ctbytes)
        sizes.append(chunk.nbytes)
    return begins, lengths, sizes


def _check_sizes(header: Header, sizes: list[int]) -> None:
    """CorruptError unless the chunks have the sizes that the header states."""
    if header.options & ITEM_ENDS or not sizes:
        return
    if header.chunk_size != UNKNOWN and any(size != header.chunk_size for size in sizes[:-1]):
        raise CorruptError(f"chunks of other sizes than the {header.chunk_size} bytes stated")
    if header.last_chunk != UNKNOWN and sizes[-1] != header.last_chunk:
        raise CorruptError(f"the last chunk has {sizes[-1]} bytes; expected {header.last_chunk}")


def _described(header: Header, metadata: Json, chunks: Chunks, starts: np.ndarray) -> Foreign:
    """Return the array that the metadata describe; bytes if they describe none."""
    nbytes = int(starts[-1])
    version = header.version
    value: dict[str, Json] = metadata if isinstance(metadata, dict) else {"metadata": metadata}
    if version == EXTENDED and "streams" in value:
        raise FormatError("a part of a table, written by an unreleased draft of the format")
    if version == EXTENDED and "chunkshape" in value:
        raise FormatError("the metadata describe a grid of chunks, but lack what reads it")
    if version == EXTENDED and value.get("dtype") == VARCHAR:
        shape = shape_of_json(value.get("shape"))
        if shape != (len(chunks.offsets),):
            raise CorruptError(f"{len(chunks.offsets)} items; the metadata state {shape}")
        items = np.dtype(object)
        return Foreign(version, chunks, starts, items, shape, "C", True, _others(value))
    if value.get("container") == NUMPY or (version == EXTENDED and "dtype" in value):
        dtype = dtype_of(value.get("dtype"))
        shape = shape_of_json(value.get("shape"))
        expected = math.prod(shape) * dtype.itemsize
        if expected != nbytes:
            raise CorruptError(
                f"an array of shape {shape} and dtype {dtype} has {expected} bytes; "
                f"the chunks have {nbytes}"
            )
        order = order_of_json(value.get("order", "C"))
        return Foreign(version, chunks, starts, dtype, shape, order, False, _others(value))
    attrs = {} if metadata is None else value
    return Foreign(version, chunks, starts, _BYTES, (nbytes,), "C", False, attrs)


def _others(value: dict[str, Json]) -> dict[str, Json]:
    return {key: item for key, item in value.items() if key not in _DESCRIBED}
