"""Dictionary types: a stream of codes, and the dictionary of the part as a child block.

Each part has its own dictionary. Neighbouring parts with equal dictionaries are read as one array,
other parts as separate arrays. A null row has code 0.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.arrow.types import allocate, view
from blztable.block_terms import CODES, DICTIONARY, VALID
from blztable.columns.blocks import (
    Codec,
    Decoder,
    MakeDecoder,
    Piece,
    Stream,
    StreamBuffer,
    StreamLayout,
)
from blztable.columns.codecs.fixed import width_of
from blztable.columns.codecs.validity import Validity, whole_items
from blztable.columns.dictionaries import (
    check_codes,
    codes_of,
    is_same,
)
from blztable.columns.paging import page_rows_for
from blztable.columns.parts.physical import NUMPY_TYPES
from blztable.errors import CorruptError

TYPE_IDS = (pa.lib.Type_DICTIONARY,)
# Stands for the dictionary of a part without a dictionary.
_EMPTY = Piece(0, {})


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """Return the stream of codes; the dictionary is a child."""
    width = width_of(type_.index_type)
    return (StreamLayout(CODES, NUMPY_TYPES[type_.index_type.id], width, 8 * width),)


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """Return the number of rows of a page, and the stream of codes."""
    stream = layout(array.type)[0]
    codes = codes_of(array, mask)
    check_codes(codes, mask, len(array.dictionary))
    return page_rows or page_rows_for(stream.typesize), (Stream(stream, codes.view(np.uint8)),)


class DictionaryDecoder(Decoder):
    """A decoder of codes into one buffer, and of each part's dictionary by its own decoder."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece], make: MakeDecoder) -> None:
        """Allocate memory for all pieces."""
        self._type = type_
        self._pieces = pieces
        self._starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        self._validity = Validity(pieces)
        self._width = width_of(type_.index_type)
        self._codes = allocate(self._starts[-1] * self._width)
        self._items = view(self._codes).view(NUMPY_TYPES[type_.index_type.id])
        # Pieces of one part share one dictionary, which is decoded once.
        children = [piece.children.get(DICTIONARY, _EMPTY) for piece in pieces]
        decoders = {id(child): make(type_.value_type, [child]) for child in children}
        self._dictionaries: list[Decoder] = [decoders[id(child)] for child in children]

    def target(self, piece: int, stream: str) -> StreamBuffer:
        """Return the buffer for this stream of this piece."""
        if stream == VALID:
            return self._validity.target(piece)
        codes = self._items[self._starts[piece] : self._starts[piece + 1]]
        size = self._pieces[piece].children.get(DICTIONARY, _EMPTY).rows

        def check(start: int, stop: int) -> None:
            # A negative code is a large number without a sign. Null rows have code 0, even if the
            # dictionary is empty.
            part = codes[whole_items(start, stop, self._width)].view(f"<u{self._width}")
            if part.max() >= max(size, 1):
                raise CorruptError(f"a dictionary code is outside of {size} values")

        return StreamBuffer(codes.view(np.uint8), check)

    def child(self, piece: int, name: str) -> tuple[Decoder, int]:
        """Return the decoder of the dictionary of this piece."""
        assert name == DICTIONARY, name
        return self._dictionaries[piece], 0

    def checks(self) -> Iterable[Callable[[], None]]:
        """Return the checks of the dictionaries."""
        for dictionary in dict.fromkeys(self._dictionaries):
            yield from dictionary.checks()

    def finish(self) -> pa.ChunkedArray:
        """Return the column: one array for each run of parts with equal dictionaries."""
        bitmap, nulls = self._validity.finish()
        finished = {
            decoder: decoder.finish().chunk(0) for decoder in dict.fromkeys(self._dictionaries)
        }
        values = [finished[decoder] for decoder in self._dictionaries]
        runs: list[tuple[int, int, pa.Array]] = []
        # An all-null part may have an empty dictionary: with a neighbour's, its code 0 is valid.
        usable = next((dictionary for dictionary in values if len(dictionary)), None)
        for index, dictionary in enumerate(values):
            start, stop = self._starts[index], self._starts[index + 1]
            if len(dictionary) == 0 and start < stop:
                self._check_all_null(bitmap, start, stop)
                dictionary = dictionary if usable is None else usable
            usable = dictionary
            if runs and is_same(runs[-1][2], dictionary):
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
        raise CorruptError("the dictionary is empty, but some rows are not null")


def _child_types(type_: pa.DataType) -> dict[str, pa.DataType]:
    return {DICTIONARY: type_.value_type}


def _child_arrays(array: pa.DictionaryArray) -> dict[str, pa.Array]:
    return {DICTIONARY: array.dictionary}


CODEC = Codec(layout, encode, DictionaryDecoder, _child_types, _child_arrays)
