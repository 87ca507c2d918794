"""Explain: count the pages and bytes that a filtered read decodes, and those that it skips.

Reads only the manifest, fronts and trailers. It takes the same path as a scan until rows have to be
read. Savings that depend on the values of rows are not counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from blztable import tuning
from blztable.engine.query.blocks import morsels
from blztable.engine.query.expressions import text_of
from blztable.engine.query.morsel import unread
from blztable.engine.query.scan import Scan
from blztable.engine.query.select import windows
from blztable.engine.read.columns import OpenColumns, file_bytes
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.projection import Projection
from blztable.report import ColumnPlan, Explanation


@dataclass(slots=True)
class _PageCounts:
    """The pages and bytes of one column that would be read."""

    pages: int = 0
    nbytes: int = 0
    row_groups: set[int] = field(default_factory=set)
    # A dict keeps the order.
    encodings: dict[str, None] = field(default_factory=dict)


def explain(
    projection: Projection,
    positions: Sequence[int],
    selected: Sequence[RowSpan],
    scan: Scan | None,
) -> Explanation:
    """Return the plan of a read of these columns."""
    names, head = projection.schema.names, projection.version.head
    if scan is not None:
        # Behind the columns of the table, those of the filter.
        projection = scan.projection
        names += projection.schema.names[len(names) :]
    steps = [text_of(step.expression) for step in scan.steps] if scan else []
    filtered = scan.columns if scan else []
    if scan is not None and scan.is_decided:
        selected, scan = scan.within(selected), None
    counted = {position: _PageCounts() for position in dict.fromkeys([*filtered, *positions])}
    rows = 0
    groups: set[int] = set()
    read = scan.columns if scan else positions
    for window in windows(projection, read, selected, tuning.current.filter_bytes, scan):
        with OpenColumns(projection) as reader:
            for position, spans in _reads(window, positions, scan, reader):
                counts = counted[position]
                for line, pages in reader.pages(position, spans).items():
                    for span in pages:
                        part = reader.parts.open(line, span.group)
                        counts.pages += -(-span.count // part.page_rows)
                    counts.row_groups.update(span.group for span in pages)
                    counts.nbytes += file_bytes(reader.parts, line, pages)
            remaining = scan.blocks(window, reader).spans() if scan else window
            # A field of a filter may belong to a column of the result, too.
            of_line = {line: one for one in reversed(counted) for line in projection.nodes(one)}
            for (line, _), part in reader.parts.items():
                counts = counted[of_line[line]]
                counts.nbytes += part.nbytes_to_open
                kinds = (spec.kind for spec in part.root.walk())
                counts.encodings |= dict.fromkeys(kinds)
        rows += sum(span.count for span in remaining)
        groups.update(span.group for span in remaining)
    return Explanation(
        tuple(steps),
        rows,
        head.rows,
        len(groups),
        len(projection.version.row_groups),
        tuple(
            _plan(
                names[position],
                position,
                projection,
                counts,
                position in filtered,
                position in positions,
            )
            for position, counts in counted.items()
        ),
    )


def _reads(
    window: Sequence[RowSpan], positions: Sequence[int], scan: Scan | None, reader: OpenColumns
) -> Iterator[tuple[int, list[RowSpan]]]:
    """Yield (column, rows) to read, assuming that some rows of each page pass each step."""
    if scan is None:
        yield from ((position, list(window)) for position in dict.fromkeys(positions))
        return
    for morsel in morsels(scan.blocks(window, reader)):
        read: dict[int, np.ndarray] = {}
        for number, step in enumerate(scan.steps):
            chosen = morsel.open[number]
            for position in unread(step.columns, chosen, read):
                read[position] = chosen
                yield position, morsel[chosen].spans()
        for position in dict.fromkeys(positions):
            if position not in read or not read[position].all():
                yield position, morsel.spans()


def _plan(
    name: str,
    position: int,
    projection: Projection,
    counted: _PageCounts,
    is_filter: bool,
    is_returned: bool,
) -> ColumnPlan:
    nodes = [parts.meta for parts in projection.parts(position)]
    return ColumnPlan(
        name,
        position,
        is_filter,
        is_returned,
        len(counted.row_groups),
        counted.pages,
        sum(
            -(-rows // max(size, 1))
            for meta in nodes
            for rows, size in zip(meta.rows, meta.page_rows, strict=True)
        ),
        counted.nbytes,
        projection.cbytes(position),
        tuple(counted.encodings),
    )
