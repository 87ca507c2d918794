"""The chunks of a file: where each lies, and its checked, decompressed bytes.

Knows nothing of arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blztable.errors import CorruptError
from blztable.format.checksums import Checksum
from blztable.format.chunk import (
    CHUNK_HEADER,
    LARGE_CHUNK_BYTES,
    MAX_RATIO,
    ChunkHeader,
    decompress_into,
)


class ByteSource(Protocol):
    """A file, as a reader of chunks needs it."""

    name: str

    @property
    def size(self) -> int:
        """Length of the file."""

    def read(self, at: int, length: int) -> bytes:
        """Return the bytes at a position, fewer at the end of the file."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks in a file.

    Attributes
    ----------
    source
        The file.
    checksum
        The checksum behind each chunk.
    offsets, lengths
        Where each chunk lies, and its compressed bytes.
    typesize
        The typesize of each chunk; None if each header says its own.
    digests
        A second copy of the checksums; None if there is none.
    """

    source: ByteSource
    checksum: Checksum
    offsets: Sequence[int]
    lengths: Sequence[int]
    typesize: int | None = None
    digests: bytes | None = None

    def read(self, number: int) -> bytes:
        """Return a compressed chunk, after comparing its checksum."""
        size, length = self.checksum.size, self.lengths[number]
        data = self.source.read(self.offsets[number], length + size)
        chunk, digest = data[:length], data[length:]
        if len(data) < length + size:
            raise CorruptError(f"{self.source.name}: chunk {number}: the file ends within it")
        copy = digest if self.digests is None else self.digests[number * size :][:size]
        if not self.checksum.digest(chunk) == digest == copy:
            raise CorruptError(
                f"{self.source.name}: chunk {number}: its {self.checksum.name} does not match"
            )
        return chunk

    def header(self, number: int) -> ChunkHeader:
        """Return the header of a chunk."""
        return ChunkHeader.decode(self.source.read(self.offsets[number], CHUNK_HEADER.size))

    def decode_into(self, number: int, out: np.ndarray) -> None:
        """Decompress a chunk to contiguous bytes of exactly its size."""
        self._decode(number, self.read(number), out)

    def _decode(self, number: int, chunk: bytes, out: np.ndarray) -> None:
        try:
            typesize = self.typesize
            if typesize is None:
                typesize = ChunkHeader.decode(chunk).typesize
            decompress(chunk, typesize, out)
        except CorruptError as error:
            raise CorruptError(f"{self.source.name}: chunk {number}: {error}") from None

    def item(self, number: int) -> bytes:
        """Return the bytes of a chunk that alone says how many there are."""
        chunk = self.read(number)
        nbytes = ChunkHeader.decode(chunk).nbytes
        if nbytes > min(len(chunk) * MAX_RATIO, LARGE_CHUNK_BYTES):
            raise CorruptError(f"{self.source.name}: chunk {number} claims {nbytes} bytes")
        out = np.empty(nbytes, np.uint8)
        self._decode(number, chunk, out)
        return out.tobytes()


def decompress(chunk: bytes, typesize: int, out: np.ndarray) -> None:
    """Decompress a chunk to contiguous bytes of exactly its size, which may be 0."""
    if out.nbytes:
        decompress_into(chunk, typesize, out.ctypes.data, out.nbytes, LARGE_CHUNK_BYTES)
    elif ChunkHeader.decode(chunk).nbytes or len(chunk) != CHUNK_HEADER.size:
        raise CorruptError(f"a chunk of {len(chunk)} bytes; expected an empty one")
