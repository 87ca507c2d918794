"""An open array, whichever program wrote it: its facts, and reading of boxes.

Knows nothing of indices of numpy.
"""

import math
from typing import Self

import numpy as np

from blztable.arrays.chunks import Source
from blztable.arrays.foreign import Foreign, read_foreign
from blztable.arrays.front import is_ours, read_metadata
from blztable.arrays.grid import Box
from blztable.arrays.header import ARRAY_HEADER, ArrayHeader
from blztable.arrays.own import Own
from blztable.arrays.reading import read_foreign_box, read_own
from blztable.closing import Closing
from blztable.errors import BlzError, ClosedError, ReadOnlyError
from blztable.format.checksum import crc32
from blztable.format.jsontext import Json
from blztable.report import Problem, Report
from blztable.storage import journal
from blztable.storage.in_place import READ, InPlaceFile, open_in_place


class Opened(Closing):
    """An open array: what `SuperChunk` shows, without indices of numpy."""

    def __init__(self, file: InPlaceFile, source: Source, array: Own | Foreign) -> None:
        self.file = file
        self.source = source
        self.array = array
        self.chunks = array.chunks(source) if isinstance(array, Own) else array.chunks
        self.is_closed = False

    @classmethod
    def at(cls, place: object, mode: str) -> Self:
        """Open the array at a place of the user."""
        file = open_in_place(place, mode)
        try:
            if mode != READ:
                journal.finish(file, crc32)
            pending = journal.find(file, crc32)
            source = file if pending is None else journal.Patched(file, pending)
            return cls(file, source, read_array(source, mode))
        except BaseException:
            file.close()
            raise

    @property
    def name(self) -> str:
        """The file in messages."""
        return self.file.name

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the array."""
        return self.array.front.info.dtype if isinstance(self.array, Own) else self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.front.info.shape if isinstance(self.array, Own) else self.array.shape

    @property
    def order(self) -> str:
        """Order of the items in a chunk."""
        return self.array.front.info.order if isinstance(self.array, Own) else self.array.order

    @property
    def attrs(self) -> dict[str, Json]:
        """Attributes of the user."""
        return self.array.attrs

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return len(self.chunks.offsets)

    @property
    def nbytes(self) -> int:
        """Uncompressed bytes."""
        if self.dtype.hasobject:
            return sum(self.chunks.header(number).nbytes for number in range(self.nchunks))
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def cbytes(self) -> int:
        """Bytes of the file."""
        return self.source.size

    def read_box(self, box: Box) -> np.ndarray:
        """Return a box of the array."""
        if self.is_closed:
            raise ClosedError(f"{self.name} was closed; open the array again")
        if isinstance(self.array, Own):
            return read_own(self.chunks, self.array.front.info, box)
        return read_foreign_box(self.array, box)

    def verify(self) -> Report:
        """Read every chunk."""
        problems = []
        checked = 0
        size = self.chunks.checksum.size
        for number in range(self.nchunks):
            start, stop = self.rows_of(number)
            try:
                self._read_chunk(number)
            except BlzError as error:
                problem = Problem(str(error), None, None, None, start, stop, self.name, False)
                problems.append(problem)
            checked += self.chunks.lengths[number] if size else 0
        rows = self.shape[0] if self.shape else 1
        version = self.array.front.version if isinstance(self.array, Own) else self.array.version
        return Report(version, rows, (), True, 1, self.nchunks, checked, tuple(problems))

    def rows_of(self, number: int) -> tuple[int, int]:
        """Return the rows that a chunk has bytes of."""
        if isinstance(self.array, Own):
            cut = self.array.front.info.grid.box(number)[0]
            return cut.start, cut.stop
        if self.array.is_items:
            return number, number + 1
        starts = self.array.starts
        row_bytes = max(self.nbytes // max(self.shape[0] if self.shape else 1, 1), 1)
        return int(starts[number]) // row_bytes, -(-int(starts[number + 1]) // row_bytes)

    def _read_chunk(self, number: int) -> None:
        if self.dtype.hasobject:
            self.chunks.item(number)
            return
        if isinstance(self.array, Own):
            size = self.array.front.info.raw_size(number)
        else:
            size = int(self.array.starts[number + 1] - self.array.starts[number])
        self.chunks.decode_into(number, np.empty(size, np.uint8))

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.is_closed = True
        self.file.close()


def read_array(source: Source, mode: str) -> Own | Foreign:
    """Read the facts of an array; each is checked."""
    header = ArrayHeader.decode(source.read(0, ARRAY_HEADER.size))
    _, metadata, at, _ = read_metadata(header, source.read)
    if is_ours(metadata):
        return Own.read(source, header)
    if mode != READ:
        raise ReadOnlyError(
            f"{source.name}: SuperChunk did not write this file and cannot change it; make a new "
            "array of it with SuperChunk.create"
        )
    return read_foreign(source, header, metadata, at)
