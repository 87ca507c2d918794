"""Joined: concatenate nested arrays, and unite their dictionaries.

Theory of operation. Arrow concatenates neither all nested types nor dictionaries of nested values.
So arrays are flattened and each node is joined by itself. Codes of a dictionary count from 0 in
each array; if the dictionaries differ, the distinct values of all become one, and codes are
replaced. Rows are the same if their *marks* are: numbers that are found from the leaves up, for a
leaf from the bits of its values, for any other node from its own rows and the marks below. Knows no
files.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.assemble import rebuilt
from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import CODES, ITEMS, RUNS, SIZE, Node
from blztable.arrow.types import offset_dtype, offsets_of, stored_type
from blztable.columns.dictionaries import numbered, room
from blztable.errors import SchemaError

# Returns flat arrays as one.
MakeJoined = Callable[[pa.ChunkedArray], pa.Array]


def joined(chunks: Sequence[pa.Array], join: MakeJoined) -> pa.Array:
    """Return nested arrays of one type as one array; `join` does the same with flat arrays."""
    node = Node.of(chunks[0].type)
    flats = [flatten(node, chunk) for chunk in chunks]
    return rebuilt(node, joined_flats(node, flats, join))


def joined_flats(
    node: Node, chunks: Sequence[Sequence[pa.Array]], join: MakeJoined
) -> Iterator[pa.Array]:
    """Return the flat arrays of the nodes of several arrays as those of one, in pre-order.

    Raises
    ------
    SchemaError
        The codes of a dictionary have no room for the values of all arrays.
    """
    return _joined(node, [iter(chunk) for chunk in chunks], join)


def changes(column: pa.ChunkedArray, join: MakeJoined) -> list[int]:
    """Return the rows where a new array must begin because codes have no room for more values.

    The column is a dictionary of nested values.
    """
    most, child = room(column.type), Node.of(column.type.value_type)
    # Arrow takes 0.0 for -0.0.
    are_exact = not any(pa.types.is_floating(node.flat) for node in child.walk())
    rows, row = [], 0
    distinct: list[pa.Array] = []
    for chunk in column.chunks:
        values = chunk.dictionary
        if not (are_exact and any(map(values.equals, distinct))):
            distinct.append(values)
            if sum(map(len, distinct)) > most:
                flats, _ = _united(
                    child, [flatten(child, dictionary) for dictionary in distinct], join
                )
                distinct = [rebuilt(child, iter(flats))]
                if len(distinct[0]) > most:
                    rows.append(row)
                    distinct = [values]
        row += len(chunk)
    return rows


def _joined(
    node: Node, chunks: Sequence[Iterator[pa.Array]], join: MakeJoined
) -> Iterator[pa.Array]:
    flats = [next(chunk) for chunk in chunks]
    if node.rows != CODES:
        yield join(pa.chunked_array(flats, stored_type(node.flat)))
        for child in node.children:
            yield from _joined(child, chunks, join)
        return
    (child,) = node.children
    below = [list(islice(chunk, child.count)) for chunk in chunks]
    values, codes_of = _united(child, below, join)
    if len(values[0]) > room(node.type):
        raise SchemaError(f"codes of {node.flat} have no room for {len(values[0])} values")
    valid = np.concatenate([_valid(flat) for flat in flats])
    codes = [_coded(new_codes, flat) for new_codes, flat in zip(codes_of, flats, strict=True)]
    yield pa.array(np.concatenate(codes), mask=~valid).cast(node.flat)
    yield from values


def _united(
    node: Node, chunks: Sequence[Sequence[pa.Array]], join: MakeJoined
) -> tuple[Sequence[pa.Array], list[np.ndarray]]:
    """Return the flat arrays of the values of all dictionaries, and the new code of each value."""
    rows = [len(chunk[0]) for chunk in chunks]
    whole = list(joined_flats(node, chunks, join))
    marks = _marks(node, iter(whole))
    parts = np.split(marks, np.cumsum(rows)[:-1])
    first = max(range(len(rows)), key=rows.__getitem__)
    if all(not len(part) or np.array_equal(part, parts[first]) for part in parts):
        return chunks[first], [np.arange(len(part)) for part in parts]
    _, firsts, numbers = np.unique(marks, return_index=True, return_inverse=True)
    # In the order in which they come.
    kept, codes = np.unique(firsts[numbers], return_inverse=True)
    values = flatten(node, rebuilt(node, iter(whole)), kept)
    return values, np.split(codes, np.cumsum(rows)[:-1])


def _marks(node: Node, flats: Iterator[pa.Array]) -> np.ndarray:
    """Return a number for each row; rows have the same if they are the same to the bit."""
    flat = next(flats)
    if not node.rows:
        return numbered(flat)
    below = [_marks(child, flats) for child in node.children]
    if node.rows == RUNS:
        return below[0][np.cumsum(_lengths(flat)) - 1]
    if node.rows == CODES:
        own = [_valid(flat), np.where(_valid(flat), _coded(below[0], flat), 0)]
    elif node.rows == ITEMS:
        items = np.ascontiguousarray(_numbers_of(below) if len(below) > 1 else below[0], "<i8")
        ends = pa.py_buffer(np.cumsum([0, *_lengths(flat) * 8], dtype="<i8"))
        lists = [None, ends, pa.py_buffer(items)]
        own = [_valid(flat), numbered(pa.Array.from_buffers(pa.large_binary(), len(flat), lists))]
    elif node.rows == SIZE:
        own = [_valid(flat), *below[0].reshape(len(flat), node.type.list_size).T]
    elif pa.types.is_union(node.type):
        own = [flat.to_numpy(), *below]
    else:
        own = [_valid(flat), *below]
    return _numbers_of(own)


def _numbers_of(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return a number for each row of several columns of numbers."""
    rows = np.ascontiguousarray(np.stack(columns, axis=1), "<i8")
    width = pa.binary(rows.shape[1] * rows.itemsize)
    return numbered(pa.Array.from_buffers(width, len(rows), [None, pa.py_buffer(rows)]))


def _lengths(flat: pa.Array) -> np.ndarray:
    return np.diff(offsets_of(flat, offset_dtype(flat.type)))


def _coded(values: np.ndarray, codes: pa.Array) -> np.ndarray:
    """Return what each code stands for; anything for null."""
    numbers = codes.fill_null(0).to_numpy()
    return values[numbers] if len(values) else np.zeros(len(numbers), np.int64)


def _valid(flat: pa.Array) -> np.ndarray:
    return np.asarray(flat.is_valid())
