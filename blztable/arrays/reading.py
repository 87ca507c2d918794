"""Boxes of arrays, decompressed into memory of our own.

The chunks of a box are decompressed by all threads of the pool, each into its place. Knows nothing
of fronts and trailers.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice

import numpy as np

from blztable import tuning
from blztable.arrays.files.chunks import Chunks
from blztable.arrays.files.foreign import Foreign
from blztable.arrays.files.grid import Box, shape_of
from blztable.arrays.files.info import STR, ArrayInfo
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import batches, run
from blztable.errors import CorruptError

# The remedy where the memory does not suffice.
FEWER = "read fewer rows"


def read_own(chunks: Chunks, info: ArrayInfo, box: Box) -> np.ndarray:
    """Return a box of an array of ours."""
    if info.items:
        return items_of(chunks, range(box[0].start, box[0].stop), info.items)
    shape = shape_of(box)
    check_memory(math.prod(shape) * info.dtype.itemsize, chunks.source.name, FEWER)
    out = np.empty(shape, info.dtype)
    _run(
        (
            partial(_fill, chunks, info, number, inside, out[region])
            for number, inside, region in info.grid.overlapping(box)
        ),
        math.prod(info.chunk_shape) * info.dtype.itemsize,
    )
    return out


def _fill(chunks: Chunks, info: ArrayInfo, number: int, inside: Box, target: np.ndarray) -> None:
    """Decompress a part of a chunk to its place."""
    whole = shape_of(info.grid.box(number))
    is_straight = info.order == "C" or len(whole) == 1
    if shape_of(inside) == whole and is_straight and target.flags.c_contiguous:
        chunks.decode_into(number, target.reshape(-1).view(np.uint8))
    else:
        target[...] = read_chunk(chunks, info, number)[inside]


def _run(calls: Iterable[Callable[[], None]], nbytes: int) -> None:
    """Call all in the threads of the pool; chunks of so many bytes that are small together."""
    calls = iter(calls)
    first = list(islice(calls, 2))
    if len(first) < 2:
        # The pool costs more than a chunk.
        for call in first:
            call()
        return
    run(batches(chain(first, calls), tuning.current.read_task_bytes // max(nbytes, 1)))


def read_chunk(chunks: Chunks, info: ArrayInfo, number: int) -> np.ndarray:
    """Return a chunk of an array of ours."""
    raw = np.empty(info.raw_size(number), np.uint8)
    chunks.decode_into(number, raw)
    return raw.view(info.dtype).reshape(shape_of(info.grid.box(number)), order=info.order)  # type: ignore[call-overload]


def items_of(chunks: Chunks, numbers: range, kind: str) -> np.ndarray:
    """Return items of variable length; CorruptError for text that is not UTF-8."""
    out = np.empty(len(numbers), object)

    def fill(index: int) -> None:
        item = chunks.item(numbers[index])
        try:
            out[index] = item.decode("utf-8") if kind == STR else item
        except UnicodeDecodeError:
            raise CorruptError(
                f"{chunks.source.name}: item {numbers[index]} is not UTF-8"
            ) from None

    mean = sum(chunks.lengths[number] for number in numbers) // max(len(numbers), 1)
    _run((partial(fill, index) for index in range(len(numbers))), mean)
    return out


def read_foreign_box(foreign: Foreign, box: Box) -> np.ndarray:
    """Return a box of an array of another program."""
    if foreign.decoded is not None:
        return foreign.decoded(box[0])
    if foreign.is_items:
        return items_of(foreign.chunks, range(box[0].start, box[0].stop), "")
    # An array in order F is one in order C whose axes are reversed.
    is_reversed = foreign.order == "F"
    shape = foreign.shape[::-1] if is_reversed else foreign.shape
    cuts = box[::-1] if is_reversed else box
    rows = cuts[0] if cuts else slice(0, 1)
    row_bytes = math.prod(shape[1:]) * foreign.dtype.itemsize
    raw = _read_bytes(foreign, rows.start * row_bytes, rows.stop * row_bytes)
    array = raw.view(foreign.dtype).reshape((rows.stop - rows.start, *shape[1:]) if cuts else ())
    array = array[(slice(None), *cuts[1:])] if cuts else array
    return array.T if is_reversed else array


def _read_bytes(foreign: Foreign, start: int, stop: int) -> np.ndarray:
    """Return some of the uncompressed bytes of a file."""
    starts = foreign.starts
    check_memory(stop - start, foreign.chunks.source.name, FEWER)
    out = np.empty(stop - start, np.uint8)

    def fill(number: int) -> None:
        first, last = int(starts[number]), int(starts[number + 1])
        low, high = max(first, start), min(last, stop)
        target = out[low - start : high - start]
        if low == first and high == last:
            foreign.chunks.decode_into(number, target)
        else:
            whole = np.empty(last - first, np.uint8)
            foreign.chunks.decode_into(number, whole)
            target[:] = whole[low - first : high - first]

    number = int(np.searchsorted(starts, start, "right")) - 1
    end = int(np.searchsorted(starts, stop, "left")) if stop > start else number
    mean = (stop - start) // max(end - number, 1)
    _run((partial(fill, chunk) for chunk in range(number, end)), mean)
    return out
