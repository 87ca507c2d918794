"""An open array, whichever program wrote it: its facts, and reading of boxes.

Knows nothing of indices of numpy.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from blztable.arrays.files.chunks import ByteSource, Chunks
from blztable.arrays.files.dtypes import is_text
from blztable.arrays.files.foreign import Foreign
from blztable.arrays.files.grid import Box
from blztable.arrays.files.own import Own
from blztable.arrays.reading import items_of, read_chunk, read_foreign_box, read_own
from blztable.closing import Closing
from blztable.errors import ClosedError, CorruptError, FormatError
from blztable.format.jsontext import Json
from blztable.report import Problem, Report
from blztable.storage.files import File


class Opened(Closing):
    """An open array: what `SuperChunk` shows, without indices of numpy."""

    def __init__(self, file: File, source: ByteSource, array: Own | Foreign) -> None:
        self.file = file
        self.source = source
        self.array = array
        self.is_closed = False
        self.is_recovered = False
        # What a thread holds while it reads or changes. Readers wait for nobody.
        self.turn: Callable[[], AbstractContextManager[object]] = nullcontext
        self._chunks: Chunks | None = None

    @property
    def chunks(self) -> Chunks:
        """The chunks in the file."""
        if isinstance(self.array, Foreign):
            return self.array.chunks
        if self._chunks is None:
            self._chunks = self.array.chunks(self.source)
        return self._chunks

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

    def reopened_at(self) -> str:
        """Return the path where a copy opens the array again; TypeError if it cannot."""
        self.check_open()
        if not self.file.has_path:
            raise TypeError(
                f"{self.name}: an array in memory or in a file object cannot be copied or pickled; "
                "only one that was opened by its path, or its to_numpy()"
            )
        return self.name

    def check_open(self) -> None:
        """ClosedError after `close`."""
        if self.is_closed:
            raise ClosedError(f"{self.name} was closed; open the array again")

    def read_box(self, box: Box) -> np.ndarray:
        """Return a box of the array."""
        self.check_open()
        if isinstance(self.array, Own):
            values = read_own(self.chunks, self.array.front.info, box)
        else:
            values = read_foreign_box(self.array, box)
        return self._checked(values)

    def _checked(self, values: np.ndarray) -> np.ndarray:
        if not is_text(values):
            raise CorruptError(f"{self.name}: a number in a text is no character")
        return values

    def verify(self) -> Report:
        """Read every chunk."""
        problems = []
        checked = 0
        size = self.chunks.checksum.size
        for number in range(self.nchunks):
            start, stop = self.rows_of(number)
            try:
                self.read_chunk(number)
            except (CorruptError, FormatError) as error:
                problem = Problem(str(error), None, None, None, start, stop, self.name, False)
                problems.append(problem)
            checked += self.chunks.lengths[number] if size else 0
        rows = self.shape[0] if self.shape else 1
        if isinstance(self.array, Foreign) and self.array.decoded is not None and not problems:
            try:
                self.array.decoded(slice(0, rows))
            except CorruptError as error:
                problems.append(Problem(str(error), None, None, None, 0, rows, self.name, False))
        version = self.array.front.version if isinstance(self.array, Own) else self.array.version
        return Report(version, rows, (), True, 1, self.nchunks, checked, tuple(problems))

    def rows_of(self, number: int) -> tuple[int, int]:
        """Return the rows that a chunk has bytes of."""
        if isinstance(self.array, Own):
            cut = self.array.front.info.grid.box(number)[0]
            return cut.start, cut.stop
        if self.array.is_items:
            return number, number + 1
        if self.array.decoded is not None:
            return 0, self.shape[0]
        starts = self.array.starts
        row_bytes = max(self.nbytes // max(self.shape[0] if self.shape else 1, 1), 1)
        return int(starts[number]) // row_bytes, -(-int(starts[number + 1]) // row_bytes)

    def read_chunk(self, number: int) -> np.ndarray:
        """Return the items of a chunk; bytes in a file of another program."""
        self.check_open()
        if isinstance(self.array, Own):
            info = self.array.front.info
            if info.items:
                return items_of(self.chunks, range(number, number + 1), info.items)
            return self._checked(read_chunk(self.chunks, info, number))
        if self.array.is_items:
            return items_of(self.chunks, range(number, number + 1), "")
        raw = np.empty(int(self.array.starts[number + 1] - self.array.starts[number]), np.uint8)
        self.chunks.decode_into(number, raw)
        return raw

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.is_closed = True
        self.file.close()
