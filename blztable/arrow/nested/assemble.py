"""Assemble: a nested array from the arrays of its node and of its children.

The opposite of `flatten`. The arrays come from files, whose item ends and type codes were checked
or are checked here, before Arrow reads them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import CODES, ITEMS, RUNS, SIZE, Node
from blztable.arrow.types import LISTS_OF_VIEWS, bitmap, numbers_in, offset_dtype, offsets_of
from blztable.errors import CorruptError


def assemble(node: Node, flat: pa.Array, children: Sequence[pa.Array]) -> pa.Array:
    """Return the array of a node.

    Parameters
    ----------
    node
        The node.
    flat
        The node's own array.
    children
        The arrays of the children, with the rows that `flat` needs.

    Raises
    ------
    CorruptError
        The children do not have the rows that the node needs, or a type code is unknown.
    """
    if not node.rows:
        return flat.cast(node.type) if flat.type.id != node.type.id else flat
    if node.rows == CODES:
        return _coded(node.type, flat, children[0])
    needed = rows_of_children(node, flat)
    if any(len(child) != needed for child in children):
        counts = [len(child) for child in children]
        raise CorruptError(f"the children of {node.type} have {counts} rows; expected {needed}")
    rows = len(flat)
    if pa.types.is_union(node.type):
        return _union(node.type, flat, children)
    if node.rows == RUNS:
        begins = np.diff(offsets_of(flat, offset_dtype(flat.type)))
        if flat.null_count or (begins > 1).any():
            raise CorruptError("a row of runs is null, or begins more than one run")
        # The first row continues a run, or begins one.
        ends = np.append(np.flatnonzero(begins[1:]) + 1, rows)[:needed]
        run_ends = pa.array(ends, node.type.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(run_ends, children[0], type=node.type)
    validity = _validity(flat)
    if node.rows != ITEMS:
        return pa.Array.from_buffers(node.type, rows, [validity], children=list(children))
    offsets = offsets_of(flat, offset_dtype(flat.type))
    offsets = offsets - offsets[0] if offsets[0] else offsets
    if pa.types.is_map(node.type):
        entries = pa.struct([node.type.key_field, node.type.item_field])
        child = pa.Array.from_buffers(entries, needed, [None], children=list(children))
    else:
        (child,) = children
    buffers = [validity, pa.py_buffer(offsets)]
    if node.type.id in LISTS_OF_VIEWS:
        buffers = [validity, pa.py_buffer(offsets[:-1].copy()), pa.py_buffer(np.diff(offsets))]
    return pa.Array.from_buffers(node.type, rows, buffers, children=[child])


def rows_of_children(node: Node, flat: pa.Array) -> int:
    """Return the rows that each child has; of a dictionary, the fewest values that codes need."""
    if node.rows == CODES:
        highest = pc.max(flat).as_py()
        return 0 if highest is None else max(int(highest) + 1, 0)
    if node.rows == SIZE:
        return len(flat) * int(node.type.list_size)
    if node.rows not in (ITEMS, RUNS):
        return len(flat)
    offsets = offsets_of(flat, offset_dtype(flat.type))
    count = int(offsets[-1] - offsets[0])
    # A run that began before the first row has a value, too.
    return count + int(node.rows == RUNS and len(flat) > 0 and offsets[0] == offsets[1])


def taken(array: pa.Array, rows: np.ndarray) -> pa.Array:
    """Return rows of a nested array by index; Arrow's `take` does not know all types."""
    if pa.types.is_dictionary(array.type):
        return array.take(pa.array(rows))
    node = Node.of(array.type)
    # Unsigned indices would become floats.
    return rebuilt(node, iter(flatten(node, array, rows.astype(np.int64))))


def decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the nested values of a dictionary; Arrow's `take` does not know all types."""
    node = Node.of(array.type.value_type)
    codes = array.indices.fill_null(0).to_numpy().astype(np.int64)
    flats = flatten(node, array.dictionary, codes, np.asarray(array.indices.is_valid()))
    return rebuilt(node, iter(flats))


def relisted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return lists as views of lists, or views as lists; the items have one type.

    Arrow's own cast of a view to a list is wrong.
    """
    return rebuilt(Node.of(type_), iter(flatten(Node.of(array.type), array)))


def rebuilt(node: Node, flats: Iterator[pa.Array]) -> pa.Array:
    """Return the array of a tree from its flat arrays, in pre-order."""
    flat = next(flats)
    return assemble(node, flat, [rebuilt(child, flats) for child in node.children])


def _union(type_: pa.UnionType, flat: pa.Array, children: Sequence[pa.Array]) -> pa.Array:
    codes = numbers_in(flat.buffers()[1], "i1", flat.offset, len(flat))
    if flat.null_count or not np.isin(codes, np.array(type_.type_codes, "i1")).all():
        raise CorruptError(f"a type code is none of {type_}")
    buffers = [None, pa.py_buffer(codes.copy())]
    if type_.mode == "dense":
        # Each child has all rows, of which the union uses some.
        buffers.append(pa.py_buffer(np.arange(len(flat), dtype="<i4")))
    return pa.Array.from_buffers(type_, len(flat), buffers, children=list(children))


def _coded(type_: pa.DictionaryType, codes: pa.Array, values: pa.Array) -> pa.Array:
    numbers = codes.drop_null().to_numpy()
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(values):
        raise CorruptError(f"a dictionary code is outside of {len(values)} values")
    return pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered, safe=False)


def _validity(flat: pa.Array) -> pa.Buffer | None:
    """Return the bits of validity from bit 0 on."""
    if not flat.null_count:
        return None
    buffer = flat.buffers()[0]
    if flat.offset % 8 == 0:
        return buffer.slice(flat.offset // 8)
    return bitmap(flat.is_valid().to_numpy(zero_copy_only=False))


def without_unused(node: Node, flats: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Yield the flat arrays of a tree, whose dictionaries have only the values that rows have."""
    flat = next(flats)
    if node.rows != CODES:
        yield flat
        for child in node.children:
            yield from without_unused(child, flats)
        return
    (child,) = node.children
    values = rebuilt(child, flats)
    used = np.unique(flat.drop_null().to_numpy())
    codes = np.searchsorted(used, flat.fill_null(0).to_numpy())
    yield pa.array(codes, mask=np.asarray(flat.is_null())).cast(flat.type)
    yield from without_unused(child, iter(flatten(child, values, used.astype(np.int64))))
