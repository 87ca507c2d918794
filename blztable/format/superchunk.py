"""A superchunk: front, chunks with their checksums, trailer.

`pack` makes the bytes of a superchunk from compressed chunks. `unpack` reads front and trailer: it
returns where each chunk lies, its size and its checksum, after every check that needs no chunk.
Both are pure: the engine reads and writes files.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub

from blztable.block_terms import ENDS, PLAIN, VALUES
from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format.bundle import BundleMeta
from blztable.format.chunk import CHUNK_HEADER
from blztable.format.header import (
    BLOSCPACK,
    CHECKSUMS,
    EXTENDED,
    FILE_HEADER,
    ITEM_ENDS,
    MAX_CHUNKS,
    METADATA,
    OFFSETS,
    Checksum,
    FileHeader,
    Layer,
    Trailer,
)
from blztable.format.metadata import BlockInfo, StreamInfo, even_chunks, uniform_size

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class PartMeta:
    """What is known of one superchunk in the manifest: enough to read it and to recognise it."""

    rows: int
    page_rows: int
    cbytes: int
    front_length: int
    trailer_length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Superchunk:
    """A superchunk whose front and trailer were decoded: the offsets and contents of its chunks."""

    header: FileHeader
    info: BlockInfo
    checksum: Checksum
    # nchunks + 1 offsets from the first byte of the superchunk; the trailer begins at the last.
    offsets: list[int]
    trailer: Trailer


def pack(
    info: BlockInfo,
    chunks: Sequence[bytes],
    digests: Sequence[bytes],
    checksum: Checksum,
    layers: Mapping[str, Layer],
) -> tuple[list[bytes], PartMeta]:
    """Return the bytes of the superchunk that holds `chunks`, in pieces, and its metadata."""
    front = _front(info, chunks, checksum)
    trailer, crc = Trailer(checksum.size, b"".join(digests), layers).encode(front)
    pieces = [front]
    for chunk, digest in zip(chunks, digests, strict=True):
        pieces += (chunk, digest)
    pieces.append(trailer)
    cbytes = sum(map(len, pieces))
    return pieces, PartMeta(info.rows, info.page_rows, cbytes, len(front), len(trailer), crc)


def unpack(front: bytes, trailer: bytes, meta: PartMeta) -> Superchunk:
    """Read front and trailer; raise CorruptError unless the manifest describes them."""
    try:
        header = FileHeader.decode(front)
    except FormatError:
        # Damaged bytes may look like another version: report the damage.
        Trailer.check_crc(front, trailer)
        raise
    if not len(front) == header.front_length == meta.front_length:
        raise CorruptError(
            f"a front of {len(front)} bytes; its header says {header.front_length}, "
            f"the manifest {meta.front_length}"
        )
    if len(trailer) != meta.trailer_length or Trailer.stored_crc(trailer) != meta.crc:
        raise CorruptError("the trailer is not the one that the manifest describes")
    checksum = CHECKSUMS[header.checksum]
    if checksum.size == 0:
        raise CorruptError("the superchunk has no checksums; expected one for each chunk")
    decoded = Trailer.decode(front, trailer, header.nchunks, checksum.size)
    offsets = chunk_offsets(front, header, meta)
    if header.meta_size:
        metadata = front[FILE_HEADER.size : len(front) - 8 * header.nchunks]
        info = BlockInfo.decode(metadata, header.nchunks)
    else:
        info = _genuine(header, meta)
    if (info.rows, info.page_rows) != (meta.rows, meta.page_rows):
        raise CorruptError(
            f"{info.rows} rows in pages of {info.page_rows}; "
            f"the manifest says {meta.rows} in pages of {meta.page_rows}"
        )
    expected = _header(info, header.version == BLOSCPACK, checksum, header.meta_size)
    if header != expected:
        raise CorruptError(f"the header is {header}; the metadata need {expected}")
    return Superchunk(header, info, checksum, offsets, decoded)


def chunk_offsets(front: bytes, header: FileHeader, meta: PartMeta | BundleMeta) -> list[int]:
    """Return where each chunk begins, and the trailer; CorruptError unless they ascend."""
    at = len(front) - 8 * header.nchunks
    # Python integers do not wrap around, and most files have few chunks.
    offsets = [
        *struct.unpack_from(f"<{header.nchunks}q", front, at),
        meta.cbytes - meta.trailer_length,
    ]
    least = CHUNK_HEADER.size + CHECKSUMS[header.checksum].size
    if header.nchunks and (offsets[0] != len(front) or min(map(sub, offsets[1:], offsets)) < least):
        raise CorruptError("the chunk offsets do not ascend from the front to the trailer")
    return offsets


def _front(info: BlockInfo, chunks: Sequence[bytes], checksum: Checksum) -> bytes:
    """Return the bytes of header, metadata and offsets; a Bloscpack file has no metadata."""
    if len(chunks) > MAX_CHUNKS:
        raise LimitError(f"{len(chunks)} chunks in one superchunk; at most {MAX_CHUNKS} are kept")
    is_genuine = _is_genuine(info)
    metadata = b"" if is_genuine else info.encode()
    header = _header(info, is_genuine, checksum, len(metadata))
    lengths = [len(chunk) + checksum.size for chunk in chunks[:-1]]
    offsets = accumulate(lengths, initial=header.front_length) if chunks else ()
    return header.encode() + metadata + struct.pack(f"<{len(chunks)}q", *offsets)


def _is_genuine(info: BlockInfo) -> bool:
    """True if the header alone describes the block, so that the file is plain Bloscpack."""
    streams = info.streams
    is_plain = info.encoding == PLAIN and not info.children
    if not is_plain or len(streams) != 1 or streams[0].name != VALUES:
        return False
    if streams[0].pages is not None or streams[0].encoding is not None:
        return False
    return uniform_size(streams[0].chunks) is not None


def _header(info: BlockInfo, is_genuine: bool, checksum: Checksum, meta_size: int) -> FileHeader:
    """Return the header for a block."""
    streams = [stream for _, stream in info.walk()]
    options = OFFSETS if is_genuine else OFFSETS | METADATA
    if any(stream.name == ENDS for stream in streams):
        options |= ITEM_ENDS
    chunks = streams[0].chunks if len(streams) == 1 else ()
    size = uniform_size(chunks)
    return FileHeader(
        BLOSCPACK if is_genuine else EXTENDED,
        options,
        checksum.id,
        streams[0].typesize if streams else 1,
        UNKNOWN if size is None else size,
        UNKNOWN if size is None else chunks[-1],
        sum(len(stream.chunks) for stream in streams),
        meta_size,
    )


def _genuine(header: FileHeader, meta: PartMeta) -> BlockInfo:
    """Return the block of a version-3 file, from its header and the manifest's rows."""
    if not header.nchunks or not 0 < header.last_chunk <= header.chunk_size:
        raise CorruptError(
            f"{header.nchunks} chunks of {header.chunk_size} bytes, the last of "
            f"{header.last_chunk}; expected a last chunk of 1 byte to the chunk size"
        )
    nbytes = header.chunk_size * (header.nchunks - 1) + header.last_chunk
    chunks = even_chunks(nbytes, header.chunk_size)
    stream = StreamInfo(VALUES, "", header.typesize, chunks)
    return BlockInfo(meta.rows, meta.page_rows, (stream,))
