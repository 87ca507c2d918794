"""Dictionary types: a stream of codes, and the dictionary of the part as a block of its own.

Each part has its own dictionary. Parts whose dictionaries are equal come back as one array, others
as arrays of their own. A null row has code 0.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.columns.fixed import NUMPY_TYPES, width_of
from blztable.columns.memory import allocate, bytes_of, view
from blztable.columns.nulls import Validity, whole_items
from blztable.columns.paging import page_rows_for
from blztable.columns.plain import family_of, stored_type
from blztable.columns.stream import (
    CODES,
    DICTIONARY,
    VALID,
    Decoder,
    Piece,
    Stream,
    StreamLayout,
    Target,
)
from blztable.errors import CorruptError, SchemaError


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """The codes; the dictionary's streams are those of its own type."""
    width = width_of(type_.index_type)
    return (StreamLayout(CODES, NUMPY_TYPES[type_.index_type.id], width, 8 * width),)


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """The rows of a page, and the codes."""
    stream = layout(array.type)[0]
    codes = bytes_of(array.buffers()[1]).view(stream.dtype)
    codes = codes[array.offset : array.offset + len(array)]
    if mask is not None:
        codes = np.where(mask, codes, codes.dtype.type(0))
    size = len(array.dictionary)
    used = codes if mask is None else codes[mask]
    if len(used) and (used.min() < 0 or used.max() >= size):
        raise SchemaError(f"dictionary indices from {used.min()} to {used.max()} of {size} values")
    return page_rows or page_rows_for(stream.typesize), (Stream(stream, codes.view(np.uint8)),)


class DictionaryDecoder:
    """Codes decoded into one buffer, each part's dictionary by the decoder of its type."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Make room for all pieces."""
        self._type = type_
        self._pieces = pieces
        self._starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        self._validity = Validity(pieces)
        self._width = width_of(type_.index_type)
        self._codes = allocate(self._starts[-1] * self._width)
        self._items = view(self._codes).view(NUMPY_TYPES[type_.index_type.id])
        stored = stored_type(type_.value_type)
        self._dictionaries: list[Decoder] = [
            family_of(stored).decoder(stored, [piece.dictionary or Piece(0, {})])
            for piece in pieces
        ]

    def target(self, piece: int, stream: str) -> Target:
        """Where this stream of this piece goes."""
        if stream.startswith(DICTIONARY):
            return self._dictionaries[piece].target(0, stream.removeprefix(DICTIONARY))
        if stream == VALID:
            return self._validity.target(piece)
        codes = self._items[self._starts[piece] : self._starts[piece + 1]]
        dictionary = self._pieces[piece].dictionary
        size = dictionary.rows if dictionary else 0

        def check(start: int, stop: int) -> None:
            part = codes[whole_items(start, stop, self._width)]
            # Null rows have code 0, also where the dictionary is empty.
            if part.min() < 0 or part.max() >= max(size, 1):
                raise CorruptError(f"dictionary codes outside of {size} values")

        return Target(codes.view(np.uint8), check)

    def checks(self) -> Iterable[Callable[[], None]]:
        """Those of the dictionaries."""
        for dictionary in self._dictionaries:
            yield from dictionary.checks()

    def finish(self) -> pa.ChunkedArray:
        """The column, an array for each run of parts with equal dictionaries."""
        bitmap, nulls = self._validity.finish()
        values = [
            decoder.finish().combine_chunks().cast(self._type.value_type)
            for decoder in self._dictionaries
        ]
        runs: list[tuple[int, int, pa.Array]] = []
        for index, dictionary in enumerate(values):
            start, stop = self._starts[index], self._starts[index + 1]
            if len(dictionary) == 0 and start < stop:
                self._check_all_null(bitmap, start, stop)
            if runs and _same(runs[-1][2], dictionary):
                runs[-1] = (runs[-1][0], stop, runs[-1][2])
            else:
                runs.append((start, stop, dictionary))
        arrays = [
            pa.DictionaryArray.from_buffers(
                self._type,
                stop - start,
                [bitmap, self._codes],
                dictionary,
                nulls if len(runs) == 1 else -1,
                start,
            )
            for start, stop, dictionary in runs
        ]
        return pa.chunked_array(arrays, self._type)

    def _check_all_null(self, bitmap: pa.Buffer | None, start: int, stop: int) -> None:
        if bitmap is not None:
            bits = np.unpackbits(view(bitmap), bitorder="little", count=stop)[start:]
            if not bits.any():
                return
        raise CorruptError("rows with a value in a part whose dictionary is empty")


decoder = DictionaryDecoder


def _same(left: pa.Array, right: pa.Array) -> bool:
    """Whether two dictionaries are equal to the bit: NaN, and the sign of zero, included."""
    return bool(left.equals(right)) and _bits(left) == _bits(right)


def _bits(array: pa.Array) -> list[bytes | None]:
    """The raw bytes of a float dictionary; equality alone decides for the other types."""
    if not pa.types.is_floating(array.type):
        return []
    return [None if buffer is None else buffer.to_pybytes() for buffer in array.buffers()]
