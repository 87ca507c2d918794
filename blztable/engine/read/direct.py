"""Direct reads: a whole part of numbers in a bundle becomes an Arrow array without a decoder.

A decoder joins the pages of many parts, which takes longer than the few kilobytes of such a part.
Knows no spans of rows, and only types of which any bytes are values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from blztable.block_terms import VALID, VALUES
from blztable.columns.blocks import Decoder, Piece
from blztable.columns.codecs.fixed import NUMPY_TYPES
from blztable.columns.codecs.validity import Validity
from blztable.engine.read.chunks import BundledRun, Run
from blztable.engine.read.parts import Part
from blztable.engine.read.requests import PartRows, SpanRows
from blztable.engine.run.tasks import Task

# A part of more bytes gains nothing.
MOST_BYTES = 8 << 20


class DirectColumn:
    """The read of a column of one part; its phases are those of any other column."""

    picked = 0
    rows: Sequence[PartRows] = ()
    decoder: Decoder | None = None

    def __init__(self, field: pa.Field, part: Part) -> None:
        """Decode nothing yet."""
        self._field = field
        self._part = part
        self._made: dict[str, np.ndarray] = {}

    def locate(self) -> Iterator[Run]:
        """Return nothing: the size of each row is known."""
        return iter(())

    def plan(self) -> int:
        """Return the bytes of the result."""
        return _nbytes(self._part)

    def doubted(self) -> Iterator[PartRows]:
        """Return nothing: the part is small, whatever it claims."""
        return iter(())

    def allocate(self) -> None:
        """Allocate nothing: each stream is decoded to memory of its own."""

    def fill(self, decoder: Decoder | None) -> Iterator[Run]:
        """Yield a run for each stream."""
        for place in self._part.root.streams.values():
            yield _StreamRun(self._part, place, (), 0, 1, 0, self._made)

    def checks(self) -> Iterator[Task]:
        """Return nothing: any bytes are values."""
        return iter(())

    def finish(self) -> pa.ChunkedArray:
        """Return the rows."""
        made, rows, is_nan = self._made, self._part.rows, self._part.root.nan_is_null
        sizes = {name: len(data) for name, data in made.items()}
        validity = Validity([Piece(rows, sizes, nan_is_null=is_nan)])
        if VALID in made:
            validity.target(0).buffer[:] = made[VALID]
        elif is_nan:
            values = made[VALUES].view(NUMPY_TYPES[self._field.type.id])
            validity.bits(0)[:] = np.packbits(values == values, bitorder="little")
        bitmap, nulls = validity.finish()
        buffers = [bitmap, pa.py_buffer(made[VALUES])]
        return pa.chunked_array([pa.Array.from_buffers(self._field.type, rows, buffers, nulls)])


@dataclass(frozen=True, slots=True)
class _StreamRun(BundledRun):
    """A stream that is decoded to memory of its own."""

    made: dict[str, np.ndarray] = field(default_factory=dict)

    def give(self, contents: np.ndarray) -> None:
        """Decode the stream's bytes of a chunk."""
        (_, start), place = self.slot, self.place
        raw = contents[start : start + place.info.nbytes]
        # A copy, so that the column does not keep the bytes of the others.
        values = raw.copy() if place.encoding is None else np.empty(place.nbytes, np.uint8)
        if place.encoding is not None:
            with self.part.error_context(place.name):
                place.encoding.decode(0, raw, values)
        self.made[place.name] = values


def _nbytes(part: Part) -> int:
    """Return the bytes of the values of a part, which may be more than those of its codes."""
    return sum(place.nbytes for place in part.root.streams.values())


def direct(field: pa.Field, rows: Sequence[PartRows]) -> DirectColumn | None:
    """Return the direct read of an opened column; None unless it is one whole part of numbers."""
    if len(rows) != 1 or not isinstance(rows[0], SpanRows):
        return None
    part = rows[0].part
    if part.bundle is None or not rows[0].is_whole or _nbytes(part) > MOST_BYTES:
        return None
    # A decimal may have too many digits.
    is_number = field.type.id in NUMPY_TYPES and not pa.types.is_decimal(field.type)
    has_bytes = all(place.info.nbytes for place in part.root.streams.values())
    return DirectColumn(field, part) if is_number and has_bytes else None
