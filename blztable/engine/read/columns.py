"""Read columns: spans of rows, or single rows, of the columns of a version.

Rows are live ones, until this file asks for pages: here they become rows as they are stored, and
what was deleted among them is left out of the result.

A column of a nested type is read as its nodes (`nested.py`), another one as one node. All nodes of
a read are decoded together (`phases.py`). Columns can also be read as codes, and shown as
dictionaries of what the codes stand for.
"""

from collections.abc import Container, Mapping, Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import is_nested
from blztable.block_terms import DICTIONARY
from blztable.columns.types import one_array
from blztable.engine.read import selection
from blztable.engine.read.alike import read_alike
from blztable.engine.read.nested import NestedRead
from blztable.engine.read.parts import OpenParts, Part
from blztable.engine.read.phases import ColumnRead, DictionaryRead, read_phases
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan
from blztable.engine.run.pool import run
from blztable.engine.run.progress import Progress
from blztable.engine.run.tasks import batches


def read_columns(
    parts: OpenParts,
    indices: Sequence[int],
    selected: Sequence[RowSpan],
    progress: Progress | None = None,
    with_nans: Container[int] = (),
) -> list[pa.ChunkedArray]:
    """Return spans of rows of the columns at these indices; a column named twice is read once.

    In the columns `with_nans`, nulls that are stored as NaN are NaN, which takes no bitmap.

    Raises
    ------
    CorruptError
        A file is missing or damaged; the message names the file, the column and the chunk.
    LimitError
        The result does not fit into the machine's memory.
    """
    deleted = parts.version.head.deleted
    selected = selection.stored_spans(deleted, selected)
    flat, nested = _flat(parts, indices), _nested(parts, indices, selected)
    nans = {line for index, line in flat.items() if index in with_nans}
    together = read_alike(parts, [*flat.values()], selected, progress, nans)
    found = {index: together[line] for index, line in flat.items() if line in together}
    flat = {index: line for index, line in flat.items() if line not in together}
    pages = _pages(parts, flat, nested, selected)
    columns = _read_by_line(parts, pages, progress, nans)
    found |= {index: one.array(columns) for index, one in nested.items()}
    for index, line in flat.items():
        spans = selection.of_spans(parts.flat.column(line), selected)
        found[index] = selection.cut_spans(columns[line], spans, selected)
    found = selection.without_deleted(found, deleted, selected)
    return [found[index] for index in indices]


def pages_of(
    parts: OpenParts, index: int, selected: Sequence[RowSpan]
) -> dict[int, Sequence[RowSpan]]:
    """Return the pages of each node that a read of these rows of a column decodes, by line."""
    selected = selection.stored_spans(parts.version.head.deleted, selected)
    pages = _pages(parts, _flat(parts, [index]), _nested(parts, [index], selected), selected)
    return {line: [one for one in of if isinstance(one, RowSpan)] for line, of in pages.items()}


def read_rows(
    parts: OpenParts,
    indices: Sequence[int],
    selected: Sequence[RowIndices],
    order: np.ndarray | None = None,
) -> list[pa.ChunkedArray]:
    """Return single rows of the columns at these indices; raise as `read_columns` does.

    `order` has, for each row of the result, its index among the selected rows.
    """
    selected = selection.stored_rows(parts.version.head.deleted, selected)
    flat, nested = _flat(parts, indices), _nested(parts, indices, selected)
    columns = _read_by_line(parts, _pages(parts, {}, nested, ()))
    found = {index: one.array(columns) for index, one in nested.items()}
    # Apart, because a line may be in both, with other rows.
    columns = _read_by_line(parts, dict.fromkeys(flat.values(), selected))
    found |= {index: columns[line] for index, line in flat.items()}
    if order is not None:
        found = {index: selection.reordered(one, order) for index, one in found.items()}
    return [found[index] for index in indices]


def read_nodes(
    parts: OpenParts, selected: Mapping[int, Sequence[RowSpan]]
) -> dict[int, pa.ChunkedArray]:
    """Return stored rows of nodes, by line, also deleted ones; raise as `read_columns` does."""
    return _read_by_line(parts, selected)


def _flat(parts: OpenParts, indices: Sequence[int]) -> dict[int, int]:
    """Return the line of each column among these whose type is not nested."""
    tree, schema = parts.version.tree, parts.version.schema
    return {
        index: tree.nodes(index)[0]
        for index in indices
        if tree.is_flat or not is_nested(schema.field(index).type)
    }


def _nested(
    parts: OpenParts, indices: Sequence[int], selected: Sequence[RowSelection]
) -> dict[int, NestedRead]:
    """Return the reads of the columns among these whose type is nested."""
    if parts.version.tree.is_flat:
        return {}
    return {
        index: NestedRead(parts, index, selected)
        for index in dict.fromkeys(indices)
        if is_nested(parts.version.schema.field(index).type)
    }


def _pages(
    parts: OpenParts,
    flat: Mapping[int, int],
    nested: Mapping[int, NestedRead],
    selected: Sequence[RowSpan],
) -> dict[int, Sequence[RowSelection]]:
    """Return the pages to decode of each node, by line."""
    pages: dict[int, Sequence[RowSelection]] = {
        line: selection.of_spans(parts.flat.column(line), selected) for line in flat.values()
    }
    for one in nested.values():
        pages |= one.pages
    return pages


def read_codes(
    parts: OpenParts, index: int, selected: Sequence[RowSpan]
) -> list[tuple[int, pa.ChunkedArray]]:
    """Return (row group, codes) of spans of rows of a column whose parts all have codes.

    The codes are unsigned integers, null where the row is null. Raise as `read_columns` does.
    """
    deleted = parts.version.head.deleted
    selected = selection.stored_spans(deleted, selected)
    groups = {span.group: [one for one in selected if one.group == span.group] for span in selected}
    (line,) = parts.version.tree.nodes(index)
    lines = parts.flat.column(line)
    pages = [selection.of_spans(lines, spans) for spans in groups.values()]
    codes = read_phases(parts, [ColumnRead(parts, line, rows, Part.as_codes) for rows in pages])
    columns = {
        group: selection.cut_spans(column, rows, spans)
        for (group, spans), rows, column in zip(groups.items(), pages, codes, strict=True)
    }
    return [
        (group, selection.without_deleted({group: column}, deleted, groups[group])[group])
        for group, column in columns.items()
    ]


def values_of_codes(parts: OpenParts, index: int, group: int, most: int) -> pa.Array | None:
    """Return what the codes of a part stand for, in order, if they are at most `most`.

    Return None if they are more, or if a code has no one value. Raise as `read_columns` does.
    """
    nodes, type_ = parts.version.tree.nodes(index), parts.version.schema.field(index).type
    if is_nested(type_):
        return None
    part = parts.open(nodes[0], group)
    if not pa.types.is_dictionary(part.type):
        values = part.values_of_codes(most)
        if values is None or not pa.types.is_dictionary(type_):
            return values
        codes = np.arange(len(values), dtype=np.int32)
        return pa.DictionaryArray.from_arrays(codes, values.cast(type_.value_type))
    dictionary = part.root.children.get(DICTIONARY)
    if dictionary is None or not 0 < dictionary.rows <= most:
        return None
    try:
        # A dictionary may have more values than its type has indices.
        indices = pa.array(np.arange(dictionary.rows)).cast(part.type.index_type)
    except pa.ArrowInvalid:
        return None
    column = ColumnRead(parts, nodes[0], [RowSpan(group, 0, dictionary.rows)], Part.dictionary)
    values = one_array(read_phases(parts, [column])[0])
    return pa.DictionaryArray.from_arrays(indices, values, ordered=part.type.ordered)


def read_array(parts: OpenParts, index: int, selected: Sequence[RowSpan]) -> pa.Array:
    """Return spans of rows of one column as one array; raise SchemaError if it cannot hold them."""
    return one_array(read_columns(parts, [index], selected)[0])


def file_bytes(parts: OpenParts, index: int, pages: Sequence[RowSpan]) -> int:
    """Return the number of bytes that a read of these pages takes from files not yet read."""
    column = ColumnRead(parts, index, pages)
    run(batches(column.opening()))
    return sum(one.cbytes for one in column.fill(None) if not one.part.is_small)


def _read_by_line(
    parts: OpenParts,
    selected: Mapping[int, Sequence[RowSelection]],
    progress: Progress | None = None,
    with_nans: Container[int] = (),
) -> dict[int, pa.ChunkedArray]:
    """Return the selected rows of each node."""
    readers = {
        index: _readers(parts, index, rows, index in with_nans) for index, rows in selected.items()
    }
    arrays = iter(read_phases(parts, [one for many in readers.values() for one in many], progress))
    columns = {}
    for index, of_index in readers.items():
        if len(of_index) == 1:
            columns[index] = next(arrays)
        else:
            chunks = [chunk for _ in of_index for chunk in next(arrays).chunks]
            columns[index] = pa.chunked_array(chunks, parts.flat.schema.field(index).type)
    return columns


def _readers(
    parts: OpenParts, index: int, selected: Sequence[RowSelection], with_nans: bool
) -> list["ColumnRead"]:
    """Return the reads of a column: one, or one a part if values are shown as dictionaries."""
    version = parts.flat
    if not version.shows_dictionary(index):
        view = Part.with_nans if with_nans and selected else None
        return [ColumnRead(parts, index, selected, view)]
    groups: dict[int, list[RowSelection]] = {}
    for one in selected:
        groups.setdefault(one.group, []).append(one)
    readers: list[ColumnRead] = []
    for group, rows in groups.items():
        field = parts.version.tree.field_of(index)
        values = values_of_codes(parts, field, group, version.head.row_groups[group])
        view = Part.itself if values is None else Part.as_codes
        readers.append(DictionaryRead(parts, index, rows, view, values))
    return readers
