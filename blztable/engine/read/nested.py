"""Nested columns: which rows of which nodes a read needs, and arrays of these nodes.

Theory of operation. The rows of a child follow from those of its parent. Of a struct they are the
same; of a list the pages say how many items they have, so no item end is decoded before it is
known which items to read; of a dictionary all values of a part are read. So the rows of all nodes
are planned from the root down by records alone, and the chunks of all nodes are decoded together,
as if they were columns. Then the arrays are put together from the leaves up. A list is read in
whole pages and cut afterwards.

Of structs and lists of one size, single rows are those of their nodes, so only these are read.
Single rows of other lists, and of runs, are read with the pages that have them. Decodes nothing
itself.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.nested.assemble import assemble, rows_of_children, taken
from blztable.arrow.nested.nodes import CODES, ITEMS, MAX_VALUES, RUNS, SIZE, Node
from blztable.arrow.types import nulls
from blztable.columns.types import one_array
from blztable.engine.read import selection
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan
from blztable.engine.run.limits import check_rows
from blztable.engine.version.node_parts import NodeParts
from blztable.errors import CorruptError

# An index of a row that is picked.
INDEX_BYTES = 8


class NestedRead:
    """The read of the selected rows of a column of a nested type.

    Attributes
    ----------
    pages
        The rows to read of each node, by line.
    """

    def __init__(
        self,
        parts: OpenParts,
        type_: pa.DataType,
        lines: Sequence[int],
        selected: Sequence[RowSelection],
    ) -> None:
        """Plan the rows of all nodes, given their lines, which opens the parts of lists."""
        self._type = type_
        self._selected = selected
        node, line_parts = Node.of(type_), parts.version.parts(lines[0])
        picked = [rows for rows in selected if isinstance(rows, RowIndices)]
        self._exact: _NodeOfRows | None = None
        self.pages: dict[int, Sequence[RowSelection]] = {}
        if picked and _is_exact(node, picked, line_parts):
            self._exact = _NodeOfRows.of(parts, node, deque(lines), picked, self.pages)
            return
        whole = [span for span in selected if isinstance(span, RowSpan)]
        # Pages of a struct may be large, and those of its fields small.
        self._spans: Sequence[RowSpan] = (
            whole if not picked else selection.of_rows(line_parts, picked)
        )
        pages: dict[int, Sequence[RowSpan]] = {}
        self._root = _NodeRead.of(parts, node, deque(lines), self._spans, pages)
        self.pages |= pages
        for line, spans in pages.items() if picked else ():
            _check_indices(parts, line, spans)

    def array(self, columns: Mapping[int, pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the selected rows, given those of each node."""
        if self._exact is not None:
            return pa.chunked_array(self._exact.arrays(columns), self._type)
        arrays = self._root.arrays(columns)
        picked = [rows for rows in self._selected if isinstance(rows, RowIndices)]
        if picked:
            arrays = list(_picked(arrays, self._spans, picked))
        return pa.chunked_array(arrays, self._type)


@dataclass(frozen=True, slots=True)
class _NodeRead:
    """The rows that are wanted of a node.

    Attributes
    ----------
    node, line
        The node, and its number among all nodes of the version.
    spans
        The wanted rows, ascending.
    pages
        The rows that are read.
    inner
        The rows that are put together with those of the children: `pages` of a list.
    children
        The reads of the children.
    context
        The table and the node, for errors.
    """

    node: Node
    line: int
    spans: Sequence[RowSpan]
    pages: Sequence[RowSpan]
    inner: Sequence[RowSpan]
    children: Sequence["_NodeRead"]
    context: str

    @classmethod
    def of(
        cls,
        parts: OpenParts,
        node: Node,
        lines: deque[int],
        spans: Sequence[RowSpan],
        planned: dict[int, Sequence[RowSpan]],
    ) -> "_NodeRead":
        """Plan the read of a node and of its children, whose lines follow in pre-order."""
        line = lines.popleft()
        line_parts = parts.version.parts(line)
        pages = selection.of_spans(line_parts, [span for span in spans if span.count])
        planned[line] = pages
        inner = pages if node.rows in (ITEMS, RUNS) else spans
        if node.rows == CODES:
            below = _values(parts, lines[0], spans)
        else:
            below = [_rows_below(parts, node, line, span) for span in inner]
        children = []
        for child in node.children:
            _check_rows(parts, node, line, lines[0], inner)
            children.append(cls.of(parts, child, lines, below, planned))
        if node.rows == CODES:
            # Values without bytes may be any number, and are compared by their places.
            _check_indices(parts, children[0].line, below)
        name = parts.version.node(line).name
        context = f"{parts.version.store.name}, column {name!r}"
        return cls(node, line, spans, pages, inner, children, context)

    def arrays(self, columns: Mapping[int, pa.ChunkedArray]) -> list[pa.Array]:
        """Return an array of each wanted span."""
        flats = _cut(columns[self.line], self.pages, self.inner)
        children = [child.arrays(columns) for child in self.children]
        built = []
        for number, flat in enumerate(flats):
            below = [arrays[number] for arrays in children]
            if self.node.rows == RUNS:
                # The run before the first row is not needed if that row begins one.
                spare = len(below[0]) - rows_of_children(self.node, flat)
                below = [below[0][max(spare, 0) :]]
            try:
                built.append(assemble(self.node, flat, below))
            except CorruptError as error:
                raise CorruptError(f"{self.context}: {error}") from None
        if self.inner is self.spans:
            return built
        return _cut(pa.chunked_array(built, self.node.type), self.inner, self.spans)


@dataclass(frozen=True, slots=True)
class _NodeOfRows:
    """Single rows of a node, each of which has a known number of rows in the children.

    Attributes
    ----------
    node, line
        The node, and its number among all nodes of the version.
    picked
        The wanted rows, by row group.
    children
        The rows of the children.
    """

    node: Node
    line: int
    picked: Sequence[RowIndices]
    children: Sequence["_NodeOfRows"]

    @classmethod
    def of(
        cls,
        parts: OpenParts,
        node: Node,
        lines: deque[int],
        picked: Sequence[RowIndices],
        planned: dict[int, Sequence[RowSelection]],
    ) -> "_NodeOfRows":
        """Plan the read of a node and of its children, whose lines follow in pre-order."""
        line = lines.popleft()
        planned[line] = picked
        below: Sequence[RowIndices] = picked
        if node.rows == SIZE:
            size = int(node.type.list_size)
            check_rows(sum(rows.count for rows in picked) * size, "the items of lists", INDEX_BYTES)
            below = [RowIndices(rows.group, _spread(rows.rows, size)) for rows in picked]
        children = []
        for child in node.children:
            _check_rows(parts, node, line, lines[0], [RowSpan(rows.group, 0, 0) for rows in picked])
            children.append(cls.of(parts, child, lines, below, planned))
        return cls(node, line, picked, children)

    def arrays(self, columns: Mapping[int, pa.ChunkedArray]) -> list[pa.Array]:
        """Return an array for each row group."""
        children = [child.arrays(columns) for child in self.children]
        built, start = [], 0
        for number, rows in enumerate(self.picked):
            flat = one_array(columns[self.line].slice(start, rows.count))
            built.append(assemble(self.node, flat, [arrays[number] for arrays in children]))
            start += rows.count
        return built


def _is_exact(node: Node, picked: Sequence[RowIndices], line_parts: NodeParts) -> bool:
    """True if single rows of all nodes are known, and fewer bytes are read than in whole pages."""
    ways = {child.rows for child in node.walk()}
    if ways & {ITEMS, RUNS, CODES}:
        return False
    rows = sum(line_parts.rows[chosen.group] for chosen in picked)
    count = sum(chosen.count for chosen in picked)
    return SIZE not in ways or count * tuning.current.rows_per_list <= rows


def _spread(rows: np.ndarray, size: int) -> np.ndarray:
    """Return the indices of the items of lists of one size."""
    return (rows[:, np.newaxis] * size + np.arange(size)).reshape(-1)


def _rows_below(parts: OpenParts, node: Node, line: int, span: RowSpan) -> RowSpan:
    """Return the rows of the children that these rows of a node need."""
    if node.rows == SIZE:
        size = int(node.type.list_size)
        return RowSpan(span.group, span.start * size, span.stop * size)
    if node.rows not in (ITEMS, RUNS) or not span.count:
        return span
    low, high = parts.open(line, span.group).items_of_pages(span.start, span.stop)
    if node.rows == RUNS and span.start and low:
        # The run of the first row may have begun before it.
        low -= 1
    return RowSpan(span.group, low, high)


def _values(parts: OpenParts, line: int, spans: Sequence[RowSpan]) -> list[RowSpan]:
    """Return the values of a dictionary that rows of it need: all of the part."""
    rows = parts.version.parts(line).rows
    most = max((rows[span.group] for span in spans), default=0)
    if most > MAX_VALUES:
        name = parts.version.node(line).name
        raise CorruptError(
            f"{parts.version.store.name}, column {name!r}: {most} rows; a dictionary has at most "
            f"{MAX_VALUES} values"
        )
    return [RowSpan(span.group, 0, rows[span.group] if span.count else 0) for span in spans]


def _check_indices(parts: OpenParts, line: int, pages: Sequence[RowSpan]) -> None:
    """Raise LimitError if there is no memory for the indices of rows that take no bytes."""
    line_parts = parts.version.parts(line)
    rows = sum(span.count for span in pages if not line_parts.has_bytes(span.group))
    name = parts.version.node(line).name
    check_rows(rows, f"{parts.version.store.name}, column {name!r}", INDEX_BYTES)


def _check_rows(
    parts: OpenParts, node: Node, line: int, child: int, spans: Sequence[RowSpan]
) -> None:
    """Raise CorruptError unless the child has the rows that the node's parts need."""
    if node.rows == CODES:
        return
    own, below = parts.version.parts(line), parts.version.parts(child)
    for group in dict.fromkeys(span.group for span in spans):
        rows = own.rows[group]
        needed = _rows_below(parts, node, line, RowSpan(group, 0, rows)).stop if rows else 0
        if below.rows[group] != needed:
            name = parts.version.node(child).name
            raise CorruptError(
                f"{parts.version.store.name}, column {name!r}: {below.rows[group]} rows in row "
                f"group {group}; expected {needed}"
            )


def _cut(
    column: pa.ChunkedArray, pages: Sequence[RowSpan], spans: Sequence[RowSpan]
) -> list[pa.Array]:
    """Return the rows of each span as one array, of a column that has all rows of the pages."""
    arrays, at, before = [], 0, 0
    for span in spans:
        if not span.count:
            arrays.append(nulls(0, column.type))
            continue
        while pages[at].group != span.group or pages[at].stop < span.stop:
            before += pages[at].count
            at += 1
        start = before + span.start - pages[at].start
        arrays.append(one_array(column.slice(start, span.count)))
    return arrays


def _picked(
    arrays: Sequence[pa.Array], spans: Sequence[RowSpan], picked: Sequence[RowIndices]
) -> Iterator[pa.Array]:
    """Yield single rows of spans."""
    for indices in picked:
        for array, span in zip(arrays, spans, strict=True):
            if span.group == indices.group:
                rows = indices.rows[(indices.rows >= span.start) & (indices.rows < span.stop)]
                if len(rows):
                    yield taken(array, rows - span.start)
