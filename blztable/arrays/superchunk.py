"""SuperChunk: one numpy array in one file, as users see it.

Knows nothing of the bytes of a file.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from itertools import count
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import pyarrow as pa

from blztable.arrays.arrow import to_arrow
from blztable.arrays.attributes import ArrayAttributes, plain
from blztable.arrays.creating import ArrayOptions, checked_reserve, fresh_front, lengths, new_front
from blztable.arrays.files.front import Front, is_genuine
from blztable.arrays.files.own import Own
from blztable.arrays.files.trailer import Layer
from blztable.arrays.items import as_items, as_values, by_number
from blztable.arrays.opened import Opened
from blztable.arrays.opening import (
    APPEND,
    CREATE,
    READ,
    file_at,
    open_for_changes,
    open_for_reading,
    open_recovered,
)
from blztable.arrays.selection import bounding_box
from blztable.arrays.writable import Writable
from blztable.closing import Closing
from blztable.errors import ReadOnlyError
from blztable.format.bloscpack import BLOSCPACK, EXTENDED
from blztable.metalayers import FixedMetalayers, VariableMetalayers, check_fixed
from blztable.report import Report

# Items that an iteration reads at a time have about this many bytes.
WINDOW_BYTES = 8 << 20

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def in_turn(
    method: Callable[Concatenate["SuperChunk", _Given], _Found],
) -> Callable[Concatenate["SuperChunk", _Given], _Found]:
    """Make a method wait until no other thread uses the array."""

    @wraps(method)
    def waiting(self: "SuperChunk", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        with self._opened.turn():
            return method(self, *args, **kwargs)

    return waiting


class SuperChunk(Closing):
    """A numpy array in a file of compressed chunks; `create` and `open` return one.

    Reading decompresses only the chunks that hold the selected items, and checks their checksums.
    Where it can, the file is a genuine file of Bloscpack 3 with the metadata of an ndarray. A file
    is locked while it is open: by any number of readers, or by one writer.

    A method names only the errors of its own. Each method that reads raises:

    - CorruptError if a chunk is damaged;
    - LimitError if the result would need more memory than the machine has.

    Each method that changes the array raises ReadOnlyError if it was opened for reading. After
    `close` all raise ClosedError.

    Examples
    --------
    >>> import blztable as blz
    >>> import numpy as np
    >>> with blz.SuperChunk.create("a.blp", "f8", (0, 3)) as sc:
    ...     sc.append(np.ones((1000, 3)))
    >>> with blz.SuperChunk.open("a.blp") as sc:
    ...     sc[998:, 1]
    ...     sc.shape, sc.dtype, sc.order, sc.chunk_shape, sc.nchunks, sc.nbytes, dict(sc.attrs)
    array([1., 1.])
    ((1000, 3), dtype('float64'), 'C', (43690, 3), 1, 24000, {})
    """

    __slots__ = ("_opened",)

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    @classmethod
    def create(
        cls,
        path: Any,
        dtype: Any,
        shape: tuple[int, ...] = (0,),
        *,
        chunk_shape: tuple[int, ...] | None = None,
        order: str = "C",
        compression: str = "lz4",
        clevel: int = 5,
        shuffle: str | None = None,
        checksum: str = "crc32",
        reserve: float = 0,
        expectedlen: int | None = None,
        decimals: int | None = None,
        meta: Mapping[str, bytes] | None = None,
        attrs: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> Self:
        """Create an array, and open it for appends and changes.

        The file is marked as unfinished until `close`. If the block of a ``with`` raises an error,
        it stays so: `open` refuses it, and `recover` reads its whole chunks.

        Parameters
        ----------
        path : str, PathLike, binary file or None
            The file, which must not exist; an open file; or None for an array in memory. A file
            that cannot seek, such as a pipe, is written from its start to its end.
        dtype : numpy.dtype or str
            A dtype of fixed width without objects, or ``"bytes"`` or ``"str"`` for items of any
            length, each of which is a chunk.
        shape : tuple of int
            Shape of the array. The first length is the number of rows of zeros to begin with.
        chunk_shape : tuple of int, optional
            The shape of a chunk; by default whole rows of about 1 MiB together, or parts of longer
            rows.
        order : {"C", "F"}
            Order of the items in a chunk.
        compression : {"lz4", "lz4hc", "zlib", "zstd"}
            The codec of Blosc.
        clevel : int
            Level of the compression, from 0 (none) to 9.
        shuffle : {"byte", "bit", "none"}, optional
            How Blosc rearranges the bytes of a chunk; by default ``"byte"``.
        checksum : str
            A checksum of Bloscpack: ``"none"``, ``"adler32"``, ``"crc32"``, ``"md5"``, ``"sha1"``,
            ``"sha224"``, ``"sha256"``, ``"sha384"`` or ``"sha512"``.
        reserve : float
            Bytes to keep free in each chunk for changed items; below 1, a share of the chunk.
        expectedlen : int, optional
            Rows to keep room for in the table of offsets; by default room for 1,024 chunks.
        decimals : int, optional
            Number of digits after the decimal point that floats keep; all by default.
        meta : mapping of str to bytes, optional
            Fixed metalayers; see `SuperChunk.meta`.
        attrs : mapping, optional
            Attributes of JSON; see `SuperChunk.attrs`.
        version : {3, 4}, optional
            The version of the file: 3 for Bloscpack, 4 for what Bloscpack cannot describe.

        Returns
        -------
        SuperChunk
            The new array.

        Raises
        ------
        TableExistsError
            The file exists.
        SchemaError
            The dtype cannot be stored.
        ValueError
            An option has another value than those above.

        Examples
        --------
        >>> import blztable as blz
        >>> import numpy as np
        >>> with blz.SuperChunk.create("a.blp", "i4", checksum="sha256") as sc:
        ...     sc.append(np.arange(10))
        >>> blz.SuperChunk.open("a.blp")
        <SuperChunk ...a.blp: int32, shape (10,)>
        """
        options = ArrayOptions(
            chunk_shape=None if chunk_shape is None else lengths("chunk_shape", chunk_shape),
            order=order,
            compression=compression,
            clevel=clevel,
            shuffle=shuffle,
            checksum=checksum,
            reserve=checked_reserve(reserve),
            expectedlen=expectedlen,
            decimals=decimals,
            meta=check_fixed({} if meta is None else meta),
            version=version,
        )
        shape = lengths("shape", shape)
        attributes = plain({} if attrs is None else attrs)
        new_front(dtype, shape, options, is_stream=False)
        file = file_at(path, CREATE)
        try:
            front = new_front(dtype, shape, options, is_stream=file.is_sequential)
            own = Own(front, [], front.length, [], attrs=attributes)
            writable = Writable(file, own, is_new=True)
            if shape[0]:
                writable.resize(shape[0])
        except BaseException:
            file.close()
            raise
        return cls(writable)

    @classmethod
    def open(cls, path: Any, mode: str = "r") -> Self:
        """Open an array: one of ours, or a file of Bloscpack 1, 2 or 3.

        A file of Bloscpack without the metadata of an array is an array of bytes, and so is a part
        of a table that consists of plain values.

        Parameters
        ----------
        path : str, PathLike, bytes or binary file
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
        ReadOnlyError
            The mode is ``"a"``, and another program wrote the file, or it must not be written.
        BusyError
            Another process changes the file, or reads it while this one wants to change it.

        Examples
        --------
        >>> import blztable as blz
        >>> with blz.SuperChunk.create("a.blp", "f8") as sc:
        ...     sc.append([1.5, 2.5])
        >>> with blz.SuperChunk.open("a.blp", "a") as sc:
        ...     sc.append([3.5])
        ...     sc.to_numpy()
        array([1.5, 2.5, 3.5])
        """
        if mode not in (READ, APPEND):
            raise ValueError(f"mode is {mode!r}; expected 'r' or 'a'")
        return cls(open_for_reading(path) if mode == READ else open_for_changes(path))

    @classmethod
    def recover(cls, path: Any) -> Self:
        """Open the whole chunks of a file that was never finished, to read them.

        This also works for a file that was written to a pipe and whose end is damaged.

        Parameters
        ----------
        path : str, PathLike, bytes or binary file
            The file, which is not changed.

        Returns
        -------
        SuperChunk
            The array of all rows whose chunks are whole.

        Raises
        ------
        FormatError
            The file is not an array of ours, or it was finished.
        TableNotFoundError
            As in `open`.

        Examples
        --------
        >>> import blztable as blz
        >>> import numpy as np
        >>> try:
        ...     with blz.SuperChunk.create("a.blp", "i8", chunk_shape=(100,)) as sc:
        ...         sc.append(np.arange(250))
        ...         raise OSError("the source failed")
        ... except OSError:
        ...     pass
        >>> blz.SuperChunk.recover("a.blp").shape
        (200,)
        """
        return cls(open_recovered(path))

    @property
    @in_turn
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._opened.shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the array; `object` for items of any length."""
        return self._opened.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...] | None:
        """Shape of a chunk; None if another program cut the bytes of the array."""
        array = self._opened.array
        return array.front.info.chunk_shape if isinstance(array, Own) else None

    @property
    def order(self) -> str:
        """Order of the items within a chunk: C or F."""
        return self._opened.order

    @property
    @in_turn
    def nchunks(self) -> int:
        """Number of chunks in the file.

        Rows that do not fill a chunk are counted once the array is read or closed.
        """
        return self._opened.nchunks

    @property
    @in_turn
    def nbytes(self) -> int:
        """Uncompressed bytes of the array."""
        return self._opened.nbytes

    @property
    @in_turn
    def cbytes(self) -> int:
        """Bytes of the file, with metadata and checksums."""
        return self._opened.cbytes

    @property
    def attrs(self) -> ArrayAttributes:
        """Attributes of the user; in a file of Bloscpack, its metadata.

        A mapping of names to values of JSON; each change is written at once.
        """
        return ArrayAttributes(
            lambda: self._opened.attrs,
            lambda values: self._writable().set_attrs(values),
            self._opened.turn,
        )

    @property
    def meta(self) -> FixedMetalayers:
        """Fixed metalayers: named bytes in the front of the file.

        They are added before the first chunk, with `create` or here, and keep their length, so a
        change moves nothing else in the file. At most 16, with 65,535 bytes together. A mapping
        with the verbs ``add``, ``get``, ``exists`` and ``update``.
        """
        opened = self._opened

        def get() -> Mapping[str, bytes]:
            return opened.array.front.info.meta if isinstance(opened.array, Own) else {}

        def put(changes: Mapping[str, bytes | None]) -> None:
            added = {name: content for name, content in changes.items() if content is not None}
            assert len(added) == len(changes), "a fixed metalayer is never removed"
            self._writable().set_meta({**get(), **added})

        def refusal() -> str | None:
            is_late = not isinstance(opened, Writable) or opened.has_chunks
            return "added before the first chunk" if is_late else None

        return FixedMetalayers(opened.name, get, put, opened.turn, refusal)

    @property
    def vlmeta(self) -> VariableMetalayers:
        """Variable metalayers: named bytes in the trailer of the file.

        They may be added, resized and removed at any time. At most 16, of 16 MiB each. A mapping
        with the verbs ``add``, ``get``, ``exists``, ``update`` and ``delete``.
        """
        opened = self._opened

        def layers() -> Mapping[str, Layer]:
            return opened.array.layers if isinstance(opened.array, Own) else {}

        def get() -> Mapping[str, bytes]:
            return {name: layer.decode() for name, layer in layers().items()}

        def put(changes: Mapping[str, bytes | None]) -> None:
            changed: dict[str, Layer | None] = dict(layers())
            for name, content in changes.items():
                changed[name] = None if content is None else Layer.encode(content)
            self._writable().set_layers(
                {name: layer for name, layer in changed.items() if layer is not None}
            )

        return VariableMetalayers(opened.name, get, put, opened.turn)

    def append(self, values: Any) -> None:
        """Add rows. In a finished file they are durable when the call returns.

        Parameters
        ----------
        values : array_like
            Rows; for items of any length, a sequence of items.

        Raises
        ------
        SchemaError
            A value would change in the dtype of the array; nothing is added.
        ValueError
            The rows have another shape than those of the array.
        LimitError
            The array would have too many chunks.

        Examples
        --------
        >>> import blztable as blz
        >>> sc = blz.SuperChunk.create(None, "str")
        >>> sc.append(["a", "a text of any length"])
        >>> sc[1]
        'a text of any length'
        """
        writable = self._writable()
        rows = as_items(writable.array.front.info, values)
        if rows.ndim != len(self.shape) or rows.shape[1:] != self.shape[1:]:
            expected = ", ".join(["rows", *map(str, self.shape[1:])])
            raise ValueError(f"expected an array of shape ({expected}), found {rows.shape}")
        with writable.turn():
            writable.append(rows)

    @in_turn
    def resize(self, rows: int) -> None:
        """Remove rows at the end, or add rows of zeros or of empty items.

        Parameters
        ----------
        rows : int
            The length of the first axis.

        Raises
        ------
        ValueError
            The number is negative.
        LimitError
            The array would have too many chunks, or the change would need more memory than the
            machine has; nothing is changed.
        StorageError
            The file can only be written, so it cannot be cut.

        Examples
        --------
        >>> import blztable as blz
        >>> sc = blz.SuperChunk.create(None, "i4")
        >>> sc.append([1, 2, 3])
        >>> sc.resize(2)
        >>> sc.resize(4)
        >>> sc[:]
        array([1, 2, 0, 0], dtype=int32)
        """
        rows = operator.index(rows)
        if rows < 0:
            raise ValueError(f"an array cannot have {rows} rows")
        self._writable().resize(rows)

    def update_chunk(self, number: int, values: Any) -> None:
        """Replace the items of a chunk, in its place in the file.

        An item of any length that does not fit there moves those behind it.

        Parameters
        ----------
        number : int
            Number of the chunk, from 0.
        values : array_like
            Items of the shape of the chunk; in an array of items of any length, one item in a list.

        Raises
        ------
        IndexError
            There is no such chunk.
        ValueError
            The items have another shape.
        LimitError
            The compressed items do not fit; nothing was changed. `rewrite` makes room.

        Examples
        --------
        >>> import blztable as blz
        >>> sc = blz.SuperChunk.create(None, "i4", chunk_shape=(2,))
        >>> sc.append([1, 2, 3])
        >>> sc.update_chunk(0, [7, 8])
        >>> sc[:]
        array([7, 8, 3], dtype=int32)
        """
        writable = self._writable()
        items = as_items(writable.array.front.info, values)
        with writable.turn():
            writable.settle()
            if not 0 <= (number := operator.index(number)) < self.nchunks:
                raise IndexError(f"chunk {number} of {self.nchunks}")
            box = writable.array.front.info.grid.box(number)
            expected = tuple(cut.stop - cut.start for cut in box)
            if items.shape != expected:
                raise ValueError(
                    f"chunk {number} has the shape {expected}, the items {items.shape}"
                )
            if writable.array.front.info.items:
                writable.exchange({number: items[0]})
            else:
                writable.assign(box, items)

    @in_turn
    def rewrite(self, *, reserve: float | None = None, expectedlen: int | None = None) -> None:
        """Write the array again, without unused bytes and with room for changes.

        A file is written beside the old one and then takes its place.

        Parameters
        ----------
        reserve : float, optional
            As for `create`; by default as before.
        expectedlen : int, optional
            As for `create`.

        Raises
        ------
        ConflictError
            The path now leads to another file, or to none; no file was changed.
        StorageError
            The disk is full; the array is as before. If it fails when the new file takes the
            place of the old one, the array is closed.

        Examples
        --------
        >>> import blztable as blz
        >>> import numpy as np
        >>> sc = blz.SuperChunk.create(None, "i8", chunk_shape=(1000,))
        >>> sc.append(np.zeros(5000))
        >>> sc.rewrite(reserve=8000)
        >>> sc[:500] = np.random.default_rng(0).integers(0, 1 << 60, 500)
        """
        opened = self._writable()
        rows = len(self)

        def change(front: Front) -> Front:
            info = replace(
                front.info,
                reserve=front.info.reserve if reserve is None else checked_reserve(reserve),
                trailer=0,
                trailer_length=0,
            )
            version = BLOSCPACK if is_genuine(info) else EXTENDED
            return fresh_front(version, front.checksum.name, info, expectedlen, rows, False)

        opened.rewrite(change)

    def chunks(self) -> Iterator[np.ndarray]:
        """Yield the items of each chunk.

        Yields
        ------
        numpy.ndarray
            The items in the shape of the chunk; in a file of another program, bytes.

        Examples
        --------
        >>> import blztable as blz
        >>> sc = blz.SuperChunk.create(None, "i4", chunk_shape=(2,))
        >>> sc.append([1, 2, 3])
        >>> [chunk.tolist() for chunk in sc.chunks()]
        [[1, 2], [3]]
        """
        opened = self._opened
        opened.check_open()
        for number in count():
            with opened.turn():
                if isinstance(opened, Writable):
                    opened.settle()
                if number >= opened.nchunks:
                    return
                chunk = opened.read_chunk(number)
            yield chunk

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Yield the items of axis 0, some MiB at a time."""
        step = max(WINDOW_BYTES // max(self.nbytes // max(len(self), 1), 1), 1)
        for start in range(0, len(self), step):
            yield from self[start : start + step]

    @in_turn
    def __getitem__(self, key: Any) -> Any:
        box, local = bounding_box(key, self.shape)
        selected: Any = local
        return self._opened.read_box(box)[selected]

    def __setitem__(self, key: Any, values: Any) -> None:
        writable = self._writable()
        info = writable.array.front.info
        bounding_box(key, self.shape)
        # Before the turn: the values may be those of another array, which has a turn of its own.
        values = as_values(info, values)
        with writable.turn():
            box, local = bounding_box(key, self.shape)
            selected: Any = local
            if info.items:
                numbers = np.arange(box[0].start, box[0].stop)[selected]
                writable.exchange(by_number(numbers, values))
                return
            block = writable.read_box(box)
            block[selected] = values
            writable.assign(box, block)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array in a file cannot be shown without a copy")
        return self.to_numpy().astype(dtype or self.dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy opens the file for itself: descriptors and locks belong to one handle.
        verb = type(self).recover if self._opened.is_recovered else type(self).open
        return verb, (self._opened.reopened_at(),)

    @in_turn
    def __repr__(self) -> str:
        return f"<SuperChunk {self._opened.name}: {self.dtype}, shape {self.shape}>"

    @in_turn
    def to_numpy(self) -> np.ndarray:
        """Return the whole array.

        Returns
        -------
        numpy.ndarray
            A new array.

        Examples
        --------
        >>> import blztable as blz
        >>> sc = blz.SuperChunk.create(None, "f8", (2, 2))
        >>> sc.to_numpy()
        array([[0., 0.],
               [0., 0.]])
        """
        return self._opened.read_box(tuple(slice(0, size) for size in self.shape))

    def to_arrow(self) -> pa.Array:
        """Return the array as Arrow: rows of more axes are lists of fixed size.

        Returns
        -------
        pyarrow.Array
            A new array.

        Raises
        ------
        SchemaError
            Arrow has no such type.

        Examples
        --------
        >>> import blztable as blz
        >>> sc = blz.SuperChunk.create(None, "f4", (2, 3))
        >>> sc.to_arrow().type
        FixedSizeListType(fixed_size_list<item: float>[3])
        """
        return to_arrow(self.to_numpy())

    def tobytes(self) -> bytes:
        r"""Return the bytes of the array in C order.

        Returns
        -------
        bytes
            As `numpy.ndarray.tobytes`; items of any length one after another.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.SuperChunk.create(None, "i2", (2,)).tobytes()
        b'\x00\x00\x00\x00'
        """
        array = self.to_numpy()
        if array.dtype.hasobject:
            return b"".join(item.encode() if isinstance(item, str) else item for item in array)
        return array.tobytes()

    @in_turn
    def verify(self) -> Report:
        """Read every chunk, and report what is damaged.

        Returns
        -------
        Report
            True if nothing is damaged. Its ``nbytes`` are the bytes that have a checksum. Chunks
            with ``checksum="none"`` are decompressed, but changed bytes in them may go unnoticed.

        Raises
        ------
        StorageError
            The file cannot be read.

        Examples
        --------
        >>> import blztable as blz
        >>> bool(blz.SuperChunk.create(None, "i2", (2,)).verify())
        True
        """
        if isinstance(self._opened, Writable):
            self._opened.settle()
        return self._opened.verify()

    @in_turn
    def close(self) -> None:
        """Close the file, and finish a new one; closing twice is harmless.

        Raises
        ------
        StorageError
            A new file could not be finished.

        Examples
        --------
        >>> import blztable as blz
        >>> sc = blz.SuperChunk.create("a.blp", "i2")
        >>> sc.close()
        """
        self._opened.close()

    @in_turn
    def __exit__(self, *error: object) -> None:
        # Rows may be missing after an error, so a new file stays unfinished.
        if error[0] is not None and isinstance(self._opened, Writable):
            self._opened.abandon()
        self.close()

    def _writable(self) -> Writable:
        if not isinstance(self._opened, Writable):
            raise ReadOnlyError(
                f"{self._opened.name} was opened for reading; open it with mode='a'"
            )
        return self._opened
