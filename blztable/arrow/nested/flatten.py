"""Flatten: a nested array as the flat arrays of its nodes, in pre-order.

Theory of operation. The tree of the type is walked from the root. Each node gets the rows that are
wanted of its array, as indices, and which of them are visible: a row below a null is not. Item ends
and offsets are read from the buffers, because Arrow's own functions ignore slices or do not know
all types; a view of a list is never cast. The result is normal: equal arrays give equal nodes,
however they were sliced, shared or hidden. An item of a null list is dropped; any other hidden row
is null.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.nodes import (
    CODES,
    ITEMS,
    MAX_VALUES,
    RUNS,
    SIZE,
    STRUCT,
    Node,
)
from blztable.arrow.types import (
    LISTS_OF_VIEWS,
    bitmap,
    mask_of,
    nulls,
    numbers_in,
    offset_dtype,
    without_views,
)
from blztable.errors import LimitError, SchemaError

# Rows of an array: all of them, or those at these indices.
_WantedRows = np.ndarray | None
# Which of the wanted rows are visible; None if all are.
_Visible = np.ndarray | None


def flatten(
    node: Node,
    array: pa.Array,
    rows: np.ndarray | None = None,
    visible: np.ndarray | None = None,
) -> list[pa.Array]:
    """Return the flat array of each node of an array, in pre-order.

    Parameters
    ----------
    node
        The tree of the array's type.
    array
        The array; it may be a slice.
    rows
        The indices of the wanted rows; None for all.
    visible
        Which of the wanted rows are visible, the others are null; None if all are.

    Raises
    ------
    SchemaError
        The array contradicts itself, or has more than 2**31 - 1 items in a list of 32 bits.
    LimitError
        A dictionary has more values than a part can have.
    """
    return list(_flattened(node, array, rows, visible))


def _flattened(
    node: Node, array: pa.Array, rows: _WantedRows, visible: _Visible
) -> Iterator[pa.Array]:
    """Yield the flat arrays of the wanted rows."""
    count = len(array) if rows is None else len(rows)
    if rows is not None and not len(array):
        # All wanted rows are hidden, and there is none to stand for them.
        array, rows = nulls(count, node.type), None
    if not node.rows:
        yield _leaf(array, rows, visible)
        return
    if pa.types.is_union(node.type):
        yield from _union(node, array, rows, visible)
        return
    if node.rows == RUNS:
        yield from _runs(node, array, rows, visible)
        return
    if node.rows == CODES:
        codes = _leaf(array.indices, rows, visible)
        if len(array.dictionary) > MAX_VALUES:
            values = len(array.dictionary)
            raise LimitError(f"a dictionary has {values} values; at most {MAX_VALUES} are kept")
        _check_codes(codes, len(array.dictionary))
        yield codes
        # Rows of a list that has none have no values.
        values = array.dictionary if count else array.dictionary[:0]
        yield from _flattened(node.children[0], values, None, None)
        return
    mask = _both(_picked(mask_of(array), rows), visible)
    if node.rows == ITEMS:
        starts, lengths = _items(array)
        if rows is not None:
            starts, lengths = starts[rows], lengths[rows]
        lengths = lengths if mask is None else np.where(mask, lengths, 0)
        yield list_array(node.flat, lengths, mask)
        below = _ranges(starts, lengths)
        for child, values in zip(node.children, _values(array), strict=True):
            if isinstance(below, slice):
                yield from _flattened(child, values[below], None, None)
            else:
                yield from _flattened(child, values, below, None)
        return
    yield struct_array(count, mask)
    if node.rows == SIZE:
        size = node.type.list_size
        values = array.values[array.offset * size : (array.offset + len(array)) * size]
        if rows is not None:
            rows = (rows[:, np.newaxis] * size + np.arange(size)).reshape(-1)
        visible_items = None if mask is None else np.repeat(mask, size)
        yield from _flattened(node.children[0], values, rows, visible_items)
        return
    for number, child in enumerate(node.children):
        yield from _flattened(child, array.field(number), rows, mask)


def _union(node: Node, array: pa.Array, rows: _WantedRows, visible: _Visible) -> Iterator[pa.Array]:
    """Yield the type codes of a union, and each child with all rows: null where it is not used."""
    buffers = array.buffers()
    codes = numbers_in(buffers[1], "i1", array.offset, len(array))
    starts = None
    if node.type.mode == "dense":
        starts = numbers_in(buffers[2], "<i4", array.offset, len(array))
    if rows is not None:
        codes, starts = codes[rows], None if starts is None else starts[rows]
    known = np.array(node.type.type_codes, "i1")
    if not np.isin(codes, known).all():
        raise SchemaError("a type code of an Arrow union is not one of its type's")
    if visible is not None:
        codes = np.where(visible, codes, known[0])
    yield pa.array(codes, pa.int8())
    for number, child in enumerate(node.children):
        used = codes == known[number]
        used = used if visible is None else used & visible
        values, below = array.field(number), rows
        if starts is not None:
            below = np.where(used, starts, 0)
            if len(below) and (below.min() < 0 or (len(values) and below.max() >= len(values))):
                raise SchemaError("an offset of an Arrow union leads out of its child")
        yield from _flattened(child, values, below, used)


def _runs(node: Node, array: pa.Array, rows: _WantedRows, visible: _Visible) -> Iterator[pa.Array]:
    """Yield which rows begin a run, and the value of each run."""
    ends = np.asarray(array.run_ends).astype(np.int64)
    wanted = np.arange(len(array)) if rows is None else rows
    runs = np.searchsorted(ends, wanted + array.offset, "right")
    begins = np.ones(len(runs), np.bool_)
    begins[1:] = runs[1:] != runs[:-1]
    if visible is not None:
        # A run ends where rows are hidden.
        begins[1:] |= visible[1:] != visible[:-1]
    yield list_array(node.flat, begins.astype(np.int64), None)
    visible_runs = None if visible is None else visible[begins]
    yield from _flattened(node.children[0], array.values, runs[begins], visible_runs)


def _check_codes(codes: pa.Array, size: int) -> None:
    lowest, highest = pc.min_max(codes).values()
    if lowest.is_valid and (lowest.as_py() < 0 or highest.as_py() >= size):
        raise SchemaError(
            f"dictionary indices from {lowest} to {highest}; expected 0 to {size - 1}"
        )


def _leaf(array: pa.Array, rows: _WantedRows, visible: _Visible) -> pa.Array:
    """Return the wanted rows of a flat array; hidden ones are null."""
    array = without_views(array)
    if pa.types.is_null(array.type):
        return array if rows is None else pa.nulls(len(rows))
    if rows is not None:
        array = array.take(pa.array(rows))
    if visible is None or visible.all():
        return array
    own = mask_of(array)
    mask = visible if own is None else own & visible
    if pa.types.is_dictionary(array.type):
        type_, indices = array.type, _masked(array.indices, mask)
        return pa.DictionaryArray.from_arrays(
            indices, array.dictionary, ordered=type_.ordered, safe=False
        )
    return _masked(array, mask)


def _masked(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """Return a flat array that is null where the mask is False."""
    bits = np.concatenate([np.zeros(array.offset, np.bool_), mask])
    buffers = [bitmap(bits), *array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)


def list_array(flat: pa.DataType, lengths: np.ndarray, mask: np.ndarray | None) -> pa.Array:
    """Return the flat array of a list with these numbers of items."""
    total = int(lengths.sum(dtype=np.int64))
    dtype = offset_dtype(flat)
    if dtype == "<i4" and total >= 1 << 31:
        raise SchemaError(f"{total} items in one array of a list; use a large list")
    offsets = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=offsets[1:])
    items = pa.Array.from_buffers(pa.null(), total, [None])
    buffers = [None if mask is None else bitmap(mask), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(flat, len(lengths), buffers, children=[items])


def struct_array(rows: int, mask: np.ndarray | None) -> pa.Array:
    """Return the flat array of a struct."""
    return pa.Array.from_buffers(STRUCT, rows, [None if mask is None else bitmap(mask)])


def _items(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of a list where its items begin, and how many there are."""
    type_, buffers = array.type, array.buffers()
    dtype, first, rows = offset_dtype(type_), array.offset, len(array)
    if type_.id in LISTS_OF_VIEWS:
        starts = numbers_in(buffers[1], dtype, first, rows)
        lengths = numbers_in(buffers[2], dtype, first, rows)
    else:
        offsets = numbers_in(buffers[1], dtype, first, rows + 1)
        starts, lengths = offsets[:-1], np.diff(offsets)
    starts, lengths = starts.astype(np.int64), lengths.astype(np.int64)
    mask = mask_of(array)
    seen = slice(None) if mask is None else mask
    low, sizes, most = starts[seen], lengths[seen], len(_values(array)[0])
    if len(low) != len(sizes) or (len(low) and (low.min() < 0 or sizes.min() < 0)):
        raise SchemaError("the offsets of an Arrow list do not ascend within its items")
    if len(low) and int((low + sizes).max()) > most:
        raise SchemaError("the offsets of an Arrow list do not ascend within its items")
    return starts, lengths


def _values(array: pa.Array) -> list[pa.Array]:
    """Return the children of a list, whole, however the list is sliced."""
    return [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> slice | np.ndarray:
    """Return the indices of items, as one slice if they lie one behind the other."""
    filled = lengths > 0
    if not filled.any():
        return slice(0, 0)
    starts, lengths = starts[filled], lengths[filled]
    ends = starts + lengths
    if (starts[1:] == ends[:-1]).all():
        return slice(int(starts[0]), int(ends[-1]))
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _picked(values: np.ndarray | None, rows: _WantedRows) -> np.ndarray | None:
    return values if values is None or rows is None else values[rows]


def _both(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
