"""Boxes of arrays, decompressed into memory of our own.

Knows nothing of fronts and trailers.
"""

import math
import os

import numpy as np

from blztable.arrays.files.chunks import Chunks
from blztable.arrays.files.foreign import Foreign
from blztable.arrays.files.grid import Box, shape_of
from blztable.arrays.files.info import STR, ArrayInfo
from blztable.errors import CorruptError, LimitError


def read_own(chunks: Chunks, info: ArrayInfo, box: Box) -> np.ndarray:
    """Return a box of an array of ours."""
    if info.items:
        return items_of(chunks, range(box[0].start, box[0].stop), info.items)
    shape = shape_of(box)
    check_memory(math.prod(shape) * info.dtype.itemsize, chunks.source.name)
    out = np.empty(shape, info.dtype)
    grid = info.grid
    for number, inside, place in grid.overlapping(box):
        whole = shape_of(grid.box(number))
        target = out[place]
        is_straight = info.order == "C" or len(whole) == 1
        if shape_of(inside) == whole and is_straight and target.flags.c_contiguous:
            chunks.decode_into(number, target.reshape(-1).view(np.uint8))
        else:
            target[...] = read_chunk(chunks, info, number)[inside]
    return out


def read_chunk(chunks: Chunks, info: ArrayInfo, number: int) -> np.ndarray:
    """Return a chunk of an array of ours."""
    raw = np.empty(info.raw_size(number), np.uint8)
    chunks.decode_into(number, raw)
    return raw.view(info.dtype).reshape(shape_of(info.grid.box(number)), order=info.order)  # type: ignore[call-overload]


def items_of(chunks: Chunks, numbers: range, kind: str) -> np.ndarray:
    """Return items of variable length; CorruptError for text that is not UTF-8."""
    out = np.empty(len(numbers), object)
    for index, number in enumerate(numbers):
        item = chunks.item(number)
        try:
            out[index] = item.decode("utf-8") if kind == STR else item
        except UnicodeDecodeError:
            raise CorruptError(f"{chunks.source.name}: item {number} is not UTF-8") from None
    return out


def read_foreign_box(foreign: Foreign, box: Box) -> np.ndarray:
    """Return a box of an array of another program."""
    if foreign.is_items:
        return items_of(foreign.chunks, range(box[0].start, box[0].stop), "")
    # An array in order F is one in order C whose axes are reversed.
    is_reversed = foreign.order == "F"
    shape = foreign.shape[::-1] if is_reversed else foreign.shape
    cuts = box[::-1] if is_reversed else box
    rows = cuts[0] if cuts else slice(0, 1)
    row_bytes = math.prod(shape[1:]) * foreign.dtype.itemsize
    raw = _read_bytes(foreign, rows.start * row_bytes, rows.stop * row_bytes)
    found = raw.view(foreign.dtype).reshape((rows.stop - rows.start, *shape[1:]) if cuts else ())
    found = found[(slice(None), *cuts[1:])] if cuts else found
    return found.T if is_reversed else found


def _read_bytes(foreign: Foreign, start: int, stop: int) -> np.ndarray:
    """Return some of the uncompressed bytes of a file."""
    starts = foreign.starts
    check_memory(stop - start, foreign.chunks.source.name)
    out = np.empty(stop - start, np.uint8)
    number = int(np.searchsorted(starts, start, "right")) - 1
    while start < stop:
        first, last = int(starts[number]), int(starts[number + 1])
        low, high = max(first, start), min(last, stop)
        if low == first and high == last:
            foreign.chunks.decode_into(number, out[low - stop + len(out) :][: high - low])
        else:
            whole = np.empty(last - first, np.uint8)
            foreign.chunks.decode_into(number, whole)
            out[low - stop + len(out) :][: high - low] = whole[low - first : high - first]
        start = high
        number += 1
    return out


def check_memory(nbytes: int, name: str) -> None:
    """LimitError if the machine has less memory."""
    memory = None
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if memory is not None and nbytes > memory:
        raise LimitError(f"{name}: {nbytes} bytes, and the machine has {memory}; read fewer rows")
