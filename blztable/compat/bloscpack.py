"""Files of Bloscpack, and arrays of our own: one array as a table of one column.

The first axis of the array are the rows. Knows nothing of the bytes of a file.
"""

from dataclasses import dataclass

import numpy as np

from blztable.arrays.superchunk import SuperChunk
from blztable.compat.arrays import OldColumn, OldFiles
from blztable.compat.numpy_types import check_dtype
from blztable.engine.run.limits import check_rows
from blztable.engine.version.versions import can_hold_table
from blztable.errors import FormatError
from blztable.format.metalayers import FIXED, VARIABLE, LayerKey, Layers
from blztable.storage.opening import first_bytes
from blztable.storage.store import Store

MAGIC = b"blpk"
SUFFIX = ".blp"
KIND = "Bloscpack file"
# Chunks of a file that a task decodes: those at its ends are decoded twice.
CHUNKS_PER_TASK = 8


@dataclass(frozen=True, slots=True)
class FileArray:
    """A SuperChunk: its rows are read in runs of a few chunks."""

    array: SuperChunk

    @property
    def dtype(self) -> np.dtype:
        """Type of the items."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and the shape of each; an array without axes is one row."""
        return self.array.shape or (1,)

    @property
    def cbytes(self) -> int:
        """Bytes of the file."""
        return self.array.cbytes

    @property
    def chunk_rows(self) -> int:
        """Number of rows of a run."""
        rows = max(self.shape[0], 1)
        if self.array.order == "F" and len(self.shape) > 1:
            # Each chunk has bytes of every row.
            return rows
        return max(rows * CHUNKS_PER_TASK // max(self.array.nchunks, 1), 1)

    def decode(self, chunk: int, start: int, stop: int, out: np.ndarray) -> None:
        """Decode rows of one run; raises as `StoredArray.decode`."""
        first = chunk * self.chunk_rows
        rows = self.array[first + start : first + stop] if self.array.shape else self.array[()]
        out[:] = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)


def is_file(store: Store) -> bool:
    """True if the path of the store is a file of Bloscpack, damaged or not.

    Its first bytes are read without a lock, so a writer of an array is not waited for.
    """
    return not can_hold_table(store) and first_bytes(store.name, len(MAGIC)) == MAGIC


def read_file(store: Store) -> OldFiles:
    """Open a file, without reading values.

    Raises
    ------
    CorruptError
        The file is damaged, or was never finished.
    FormatError
        Its dtype cannot be read.
    """
    array = SuperChunk.open(store.name)
    try:
        if array.dtype.hasobject:
            raise FormatError(
                f"{store.name} has items of variable length; read them with SuperChunk.open"
            )
        check_dtype(array.dtype, store.name)
        values = FileArray(array)
        rows = values.shape[0]
        check_rows(rows, store.name, 0)
    except BaseException:
        array.close()
        raise
    name = store.name.rpartition("/")[2].removesuffix(SUFFIX)

    def layers() -> Layers:
        kinds = {FIXED: array.meta, VARIABLE: array.vlmeta}
        return {
            LayerKey("", kind, name): content
            for kind, content_by_name in kinds.items()
            for name, content in content_by_name.items()
        }

    columns = [OldColumn(name, values)]
    return OldFiles(KIND, store, rows, columns, dict(array.attrs), layers, array.close)
