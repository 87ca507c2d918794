"""Items as chunks: compressed, and padded to the slot that the chunk has in the file.

Knows nothing of where a chunk lies.
"""

import math
from dataclasses import replace

import numpy as np

from blztable.arrays.files.info import BYTES, STR, ArrayInfo
from blztable.errors import LimitError, SchemaError
from blztable.format.chunk import (
    CHUNK_HEADER,
    EMPTY_CHUNK,
    LARGE_CHUNK_BYTES,
    MEMCPYED,
    ChunkHeader,
)

_KINDS: dict[str, type] = {BYTES: bytes, STR: str}


def encode_chunk(info: ArrayInfo, values: np.ndarray) -> bytes:
    """Return the chunk of some items, with the room that is kept free in it."""
    if info.dtype.names:
        # Numpy copies no padding: it would be whatever the memory held.
        clean = np.zeros(values.shape, info.dtype)
        clean[...] = values
        values = clean
    # Arrays that numpy joined have the byte order of the machine.
    values = values.astype(info.dtype, copy=False)
    flat = values.reshape(-1, order=info.order)  # type: ignore[call-overload]
    return _with_reserve(info, np.ascontiguousarray(flat).view(np.uint8))


def encode_item(info: ArrayInfo, item: object) -> bytes:
    """Return the chunk of an item of variable length."""
    data = item_bytes(info.items, item)
    return _with_reserve(info, np.frombuffer(data, np.uint8)) if data else EMPTY_CHUNK


def item_bytes(items: str, item: object) -> bytes:
    """Return the bytes of an item of variable length; an error if it cannot be kept."""
    if not isinstance(item, _KINDS[items]):
        raise SchemaError(f"an item is {type(item).__name__}; the array holds {items}")
    try:
        data = item.encode("utf-8") if isinstance(item, str) else bytes(item)  # type: ignore[call-overload]
    except UnicodeEncodeError as error:
        raise SchemaError(f"an item is text that UTF-8 lacks: {error}") from None
    if len(data) > LARGE_CHUNK_BYTES:
        raise LimitError(f"an item has {len(data)} bytes; at most {LARGE_CHUNK_BYTES} are kept")
    return data


def _with_reserve(info: ArrayInfo, raw: np.ndarray) -> bytes:
    chunk = info.compression.compress(raw, info.typesize, LARGE_CHUNK_BYTES)
    reserve = info.reserve if info.reserve >= 1 else info.reserve * len(chunk)
    padded = in_slot(chunk, min(len(chunk) + int(reserve), raw.nbytes + CHUNK_HEADER.size))
    return chunk if padded is None else padded


def in_slot(chunk: bytes, size: int) -> bytes | None:
    """Return the chunk with zeros behind it, as a chunk of `size` bytes; None if it cannot be.

    A chunk never has more bytes than its items and its header, so that each reader takes it.
    """
    header = ChunkHeader.decode(chunk)
    if len(chunk) == size:
        return chunk
    largest = header.nbytes + CHUNK_HEADER.size
    if not len(chunk) < size <= largest or header.flags & MEMCPYED or not header.nbytes:
        return None
    return replace(header, ctbytes=size).encode() + chunk[CHUNK_HEADER.size :].ljust(
        size - CHUNK_HEADER.size, b"\0"
    )


def truncated(values: np.ndarray, digits: int | None) -> np.ndarray:
    """Return floats rounded to a multiple of a power of two that keeps some decimal digits.

    NaN, infinities and zeros are kept, and so are numbers without digits behind the point.
    """
    if digits is None:
        return values
    with np.errstate(all="ignore"):
        scale = values.dtype.type(2.0 ** math.ceil(digits * math.log2(10)))
        result = np.round(values * scale) / scale
        far = abs(result - values) * 2 > values.dtype.type(10.0**-digits)
    # A product that overflows, or a float that has no such digits.
    kept = np.where(np.isfinite(result) & ~far, result, values)
    # The result of arithmetic has the byte order of the machine.
    return kept.astype(values.dtype, copy=False)
