"""Text and binary before they are encoded: sound offsets, empty nulls, UTF-8. Knows no streams."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import bytes_of, offsets_of
from blztable.columns.parts.physical import Physical
from blztable.errors import SchemaError
from blztable.format.records import Array


def sound_items(
    array: pa.Array, form: Physical, valid: Array | None
) -> tuple[pa.Array, Array, Array, Array]:
    """Return the array with empty items as nulls; its offsets, and lengths and bytes of its items.

    Raises
    ------
    SchemaError
        The offsets lead out of the bytes.
    """
    offsets = offsets_of(array, f"<i{form.width}")
    lengths = np.diff(offsets)
    if valid is not None and lengths[~valid].any():
        array = pc.fill_null(array, pa.scalar("", array.type))
        offsets = offsets_of(array, f"<i{form.width}")
        lengths = np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    values = bytes_of(array.buffers()[2])[first:last]
    if first < 0 or len(values) != last - first or (len(lengths) and lengths.min() < 0):
        raise SchemaError("the offsets of an Arrow array do not ascend within its data")
    return array, offsets, lengths, values


def check_utf8(array: pa.Array, data: Array) -> None:
    """Raise SchemaError if an item of text, whose bytes are given, is not UTF-8."""
    if not is_ascii(data):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the text is not UTF-8: {error}") from None


def is_ascii(data: Array) -> bool:
    """True if no byte is above 127."""
    return len(data) == 0 or bool(data.view(np.int8).min() >= 0)
