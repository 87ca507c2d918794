"""SuperChunk: one numpy array in one file, as users see it.

Knows nothing of the bytes of a file.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Self

import numpy as np

from blztable.arrays.opened import Opened
from blztable.arrays.selection import bounding_box
from blztable.closing import Closing
from blztable.report import Report

Place = str | bytes | BinaryIO | None
# Items that an iteration reads at a time have about this many bytes.
WINDOW_BYTES = 8 << 20


class SuperChunk(Closing):
    """A numpy array in a file of compressed chunks; `open` returns one.

    Reading decompresses only the chunks that hold the selected items. Each chunk has a checksum.

    Examples
    --------
    >>> import blztable as blz
    >>> import numpy as np
    """

    __slots__ = ("_opened",)

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    @classmethod
    def open(cls, place: Place, mode: str = "r") -> Self:
        """Open an array: one of ours, or a file of Bloscpack 1, 2 or 3.

        A file of Bloscpack without the metadata of an array is an array of bytes, and so is a part
        of a table that consists of plain values.

        Parameters
        ----------
        place : str, PathLike, bytes or binary file
            The file, its content, or an open file that can seek.
        mode : {"r", "a"}
            ``"r"`` to read, ``"a"`` to change the array, too.

        Returns
        -------
        SuperChunk
            The array. It holds a lock on the file until it is closed.

        Raises
        ------
        TableNotFoundError
            There is no such file.
        FormatError
            The file is not an array, or of a version or dtype that is not supported.
        CorruptError
            The file is damaged, or was never finished.
        BusyError
            Another process changes the file, or reads it while this one wants to change it.

        Examples
        --------
        >>> import blztable as blz
        """
        return cls(Opened.at(place, mode))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array.

        Returns
        -------
        tuple of int
            The length of each axis.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the array.

        Returns
        -------
        numpy.dtype
            The dtype; `object` for items of variable length.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.dtype

    @property
    def order(self) -> str:
        """Order of the items within a chunk.

        Returns
        -------
        str
            C or F.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.order

    @property
    def nchunks(self) -> int:
        """Number of chunks.

        Returns
        -------
        int
            The number of chunks in the file.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.nchunks

    @property
    def nbytes(self) -> int:
        """Uncompressed bytes of the array.

        Returns
        -------
        int
            The bytes of all items.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.nbytes

    @property
    def cbytes(self) -> int:
        """Bytes of the file.

        Returns
        -------
        int
            The bytes of the file, metadata and checksums included.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.cbytes

    @property
    def attrs(self) -> Mapping[str, object]:
        """Attributes of the user; in a file of Bloscpack, its metadata.

        Returns
        -------
        Mapping
            Names and values of JSON.

        Examples
        --------
        >>> import blztable as blz
        """
        return MappingProxyType(self._opened.attrs)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[object]:
        """Yield the items of axis 0, some MiB at a time."""
        step = max(WINDOW_BYTES // max(self.nbytes // max(len(self), 1), 1), 1)
        for start in range(0, len(self), step):
            yield from self[start : start + step]

    def __getitem__(self, key: Any) -> Any:
        box, local = bounding_box(key, self.shape)
        selected: Any = local
        return self._opened.read_box(box)[selected]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array in a file cannot be shown without a copy")
        return self.to_numpy().astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<SuperChunk {self._opened.name}: {self.dtype}, shape {self.shape}>"

    def to_numpy(self) -> np.ndarray:
        """Return the whole array.

        Returns
        -------
        numpy.ndarray
            A new array.

        Raises
        ------
        CorruptError
            A chunk is damaged.
        LimitError
            The machine has less memory.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.read_box(tuple(slice(0, size) for size in self.shape))

    def tobytes(self) -> bytes:
        """Return the bytes of the array in C order.

        Returns
        -------
        bytes
            As `numpy.ndarray.tobytes`.

        Raises
        ------
        CorruptError
            A chunk is damaged.
        LimitError
            The machine has less memory.

        Examples
        --------
        >>> import blztable as blz
        """
        return self.to_numpy().tobytes()

    def verify(self) -> Report:
        """Read every chunk, and report what is damaged.

        Returns
        -------
        Report
            True if nothing is damaged. ``nbytes`` counts the bytes that have a checksum: chunks of
            a file with ``checksum="none"`` are decompressed, but nothing tells whether they are
            what was written.

        Raises
        ------
        StorageError
            The file cannot be read.

        Examples
        --------
        >>> import blztable as blz
        """
        return self._opened.verify()

    def close(self) -> None:
        """Close the file; closing twice is harmless.

        Examples
        --------
        >>> import blztable as blz
        """
        self._opened.close()
