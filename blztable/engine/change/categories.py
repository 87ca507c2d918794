"""Categories: the values in the dictionaries of a version, and which of them no row has.

Theory of operation. Each row group has dictionaries of its own, and a row group without an erased
row may have its category too. So the values that rows use are compared over the whole table, node
by node: with the rows that are to be erased, and without them. Values of one node are equal if they
have the same bits. Dictionaries of nested values are no categories: of them, nothing stays that no
row of the row group has. Writes nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.assemble import rebuilt, without_unused
from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import Node
from blztable.arrow.types import as_stored
from blztable.columns.dictionaries import numbered
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version

# Values of nodes, by the id of the column, which a rename keeps, and the number of the node in
# pre-order.
PartValues = Mapping[tuple[int, int], pa.Array]
# Returns the values of a dictionary array that are wanted.
Pick = Callable[[pa.DictionaryArray], pa.Array]


def used(version: Version) -> PartValues:
    """Return the values that rows use."""
    return _values(version, _used)


def used_with_deleted(staged: StagedVersion) -> PartValues:
    """Return the values that rows use or deleted rows used, as far as these are stored."""
    groups = [group for group, deleted in enumerate(staged.deleted) if deleted]
    return used(staged.with_deleted(dict.fromkeys(groups, b"")))


def unused(version: Version) -> PartValues:
    """Return the values that no row uses."""
    return without(_values(version, lambda flat: flat.dictionary), used(version))


def everything(version: Version) -> PartValues:
    """Return all values."""
    return _values(version, lambda flat: flat.dictionary)


def of_defaults(staged: StagedVersion) -> PartValues:
    """Return the values that default values of columns use."""
    defaults, values = staged.default_values(), {}
    for index, column, node in _coded(staged):
        if index in defaults:
            flats = flatten(node, pa.repeat(defaults[index], 1))
            for number, flat in enumerate(flats):
                if pa.types.is_dictionary(flat.type):
                    values[column, number] = _distinct([_used(flat)])
    return values


def without(values: PartValues, others: PartValues) -> PartValues:
    """Return the values that are not among the others; no node without any."""
    left = {}
    for key, array in values.items():
        other = others.get(key, array[:0])
        kept = array.filter(pa.array(~_among(array, other)))
        if len(kept):
            left[key] = kept
    return left


def _has_values(opened: OpenColumns, group: int, gone: PartValues) -> bool:
    """True if a row group has one of the values, or a nested value that none of its rows has."""
    for index, column, node in _coded(opened.version):
        for chunk in _read(opened, index, group).chunks:
            flats = flatten(node, chunk)
            slim = list(without_unused(node, iter(flats)))
            if any(len(flat) != len(other) for flat, other in zip(flats, slim, strict=True)):
                return True
            for number, flat in enumerate(slim):
                key = column, number
                if key in gone and _among(as_stored(flat.dictionary), gone[key]).any():
                    return True
    return False


def dropped(version: Version, table: pa.Table, gone: PartValues) -> pa.Table:
    """Return rows of a version without these values, and without nested values that no row has."""
    for index, column, node in _coded(version):
        field = table.schema.field(index)
        chunks = [_dropped(column, node, chunk, gone) for chunk in table[index].chunks]
        table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table


def _dropped(column: int, node: Node, array: pa.Array, gone: PartValues) -> pa.Array:
    flats = list(without_unused(node, iter(flatten(node, array))))
    for number, flat in enumerate(flats):
        if (column, number) in gone:
            flats[number] = _recoded(flat, gone[column, number])
    return rebuilt(node, iter(flats))


def _recoded(array: pa.DictionaryArray, gone: pa.Array) -> pa.DictionaryArray:
    """Return the same rows with a dictionary without these values, which no row has."""
    values = as_stored(array.dictionary)
    stays = ~_among(values, gone)
    codes = array.indices.fill_null(0).to_numpy().astype(np.int64)
    moved = np.cumsum(stays) - 1
    mask = np.asarray(array.indices.is_null())
    new = pa.array(moved[codes] if len(moved) else codes, mask=mask).cast(array.indices.type)
    kept = values.filter(pa.array(stays))
    if kept.type != array.dictionary.type:
        kept = kept.cast(array.dictionary.type)
    return pa.DictionaryArray.from_arrays(new, kept, ordered=array.type.ordered, safe=False)


def _values(version: Version, pick: Pick) -> PartValues:
    """Return picked values of each node that is a dictionary, each once."""
    by_node: dict[tuple[int, int], list[pa.Array]] = {}
    with OpenColumns.whole(version) as opened:
        for index, column, node in _coded(version):
            for group in opened.ahead(range(version.group_count), [index]):
                for chunk in _read(opened, index, group).chunks:
                    flats = without_unused(node, iter(flatten(node, chunk)))
                    for number, flat in enumerate(flats):
                        if pa.types.is_dictionary(flat.type):
                            values = as_stored(pick(flat))
                            by_node.setdefault((column, number), []).append(values)
    return {key: _distinct(arrays) for key, arrays in by_node.items()}


def groups_with(opened: OpenColumns, groups: Iterable[int], gone: PartValues) -> Iterator[int]:
    """Yield the row groups that have one of the values; see `_has_values`."""
    indices = [index for index, *_ in _coded(opened.version)]
    return (one for one in opened.ahead(groups, indices) if _has_values(opened, one, gone))


def _read(opened: OpenColumns, index: int, group: int) -> pa.ChunkedArray:
    rows = opened.version.row_groups[group]
    return opened.columns([index], [RowSpan(group, 0, rows)])[0]


def _coded(version: Version) -> Iterator[tuple[int, int, Node]]:
    """Yield the index, the id and the tree of each column that has dictionaries."""
    paths = version.paths
    for index, field in enumerate(version.schema):
        node = Node.of(field.type)
        if any(pa.types.is_dictionary(part.type) for part in node.walk()):
            yield index, paths[version.nodes(index)[0]][0], node


def _used(array: pa.DictionaryArray) -> pa.Array:
    codes = np.unique(array.indices.drop_null().to_numpy())
    return as_stored(array.dictionary).take(pa.array(codes.astype(np.int64)))


def _distinct(arrays: Sequence[pa.Array]) -> pa.Array:
    whole = pa.concat_arrays(arrays)
    _, firsts = np.unique(numbered(whole), return_index=True)
    return whole.take(pa.array(firsts))


def _among(values: pa.Array, others: pa.Array) -> np.ndarray:
    """Return True for each value that is among the others."""
    if values.type != others.type:
        # The column has another type now.
        return np.zeros(len(values), np.bool_)
    numbers = numbered(pa.concat_arrays([values, others]))
    return np.isin(numbers[: len(values)], numbers[len(values) :])
