"""Explain: count the pages and bytes that a filtered read decodes, and those that it skips.

Reads only the records of parts, and of nested columns the lengths. It takes the same path as a scan
until rows have to be read. Savings that depend on the values of rows are not counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from blztable.engine.query.blocks import morsels
from blztable.engine.query.expressions import text_of
from blztable.engine.query.morsel import is_unread
from blztable.engine.query.scan import Scan
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.projection import Projection
from blztable.format.records import (
    DIGEST_BYTES,
    ITEMS_VALID,
    LENGTHS,
    NUMBERS,
    VALUES,
    Records,
    encoding_of,
)
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
    names, version = projection.schema.names, projection.version
    groups_in_all = version.group_count
    groups_in_leaves = groups_in_all
    steps: list[str] = []
    filtered: list[int] = []
    if scan is not None:
        # Behind the columns of the table, those of the filter.
        projection = scan.projection
        names += projection.schema.names[len(names) :]
        steps = [text_of(step.expression) for step in scan.steps]
        filtered, groups_in_leaves = scan.columns, scan.plan.groups_in_leaves
        selected = scan.blocks(selected).spans
        scan = None if scan.plan.is_decided else scan
    counted = {position: _PageCounts() for position in dict.fromkeys([*filtered, *positions])}
    with OpenColumns(projection) as reader:
        for position, spans in _reads(selected, positions, scan):
            for line, pages in reader.pages(position, spans).items():
                _count(counted[position], projection, line, pages)
    return Explanation(
        tuple(steps),
        sum(span.count for span in selected),
        version.head.rows,
        len({span.group for span in selected}),
        groups_in_all,
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
        groups_in_leaves,
    )


def _reads(
    selected: Sequence[RowSpan], positions: Sequence[int], scan: Scan | None
) -> Iterator[tuple[int, list[RowSpan]]]:
    """Yield (column, rows) to read, assuming that some rows of each page pass each step."""
    if scan is None:
        yield from ((position, list(selected)) for position in dict.fromkeys(positions))
        return
    for morsel in morsels(scan.blocks(selected)):
        read: dict[int, np.ndarray] = {}
        for number, step in enumerate(scan.steps):
            chosen = morsel.open[number]
            for position in step.columns:
                if position not in read or is_unread(chosen, read[position]):
                    read[position] = chosen
                    yield position, morsel[chosen].spans
        for position in dict.fromkeys(positions):
            if position not in read or not read[position].all():
                yield position, morsel.spans


def _count(
    counts: _PageCounts, projection: Projection, line: int, pages: Sequence[RowSpan]
) -> None:
    """Count stored rows of a node, which are whole pages."""
    groups = sorted({span.group for span in pages})
    counts.row_groups.update(groups)
    records = projection.version.records([line], groups)
    counts.encodings |= dict.fromkeys(map(encoding_of, records.streams))
    for entry, group in enumerate(groups):
        part = records.of([0], [entry])
        page_rows = 1 << int(part.parts["page"][0])
        touched = np.zeros(len(part.chunks), np.bool_)
        for span in pages:
            if span.group == group:
                counts.pages += -(-span.count // page_rows)
                touched |= _touched(part, span)
        sizes = part.chunks["size"].astype(np.int64) + DIGEST_BYTES
        counts.nbytes += int(sizes[touched].sum())
        if not len(sizes):
            counts.nbytes += int(part.parts["cbytes"][0])


def _touched(records: Records, span: RowSpan) -> np.ndarray:
    """Return which chunks of a part a read of these pages needs; of a dictionary's items all."""
    streams, rows = records.streams, max(int(records.parts["rows"][0]), 1)
    nbytes = streams["nbytes"].astype(np.int64)
    starts, stops = nbytes * span.start // rows, -(-nbytes * span.stop // rows)
    page = int(records.parts["page"][0])
    for number, stream in enumerate(streams):
        if stream["name"] == LENGTHS and stream["kind"] == NUMBERS:
            # Where the items of each page begin.
            words = records.words[records.first_word[number] :]
            values = streams["name"] == VALUES
            starts[values] = words[span.start >> page]
            stops[values] = words[(span.stop - 1 >> page) + 1]
    items = streams["name"] >= ITEMS_VALID
    starts[items], stops[items] = 0, nbytes[items]
    of = np.arange(len(streams)).repeat(records.stream_chunks)
    begin = (np.arange(len(of)) - records.first_chunk[of]) * streams["chunk"][of]
    return (begin < stops[of]) & (begin + records.chunk_nbytes > starts[of])


def _plan(
    name: str,
    position: int,
    projection: Projection,
    counted: _PageCounts,
    is_filter: bool,
    is_returned: bool,
) -> ColumnPlan:
    pages = 0
    for line in projection.nodes(position):
        parts = projection.version.records([line]).parts
        log2 = parts["page"].astype(np.int64)
        pages += int(((parts["rows"].astype(np.int64) + (1 << log2) - 1) >> log2).sum())
    return ColumnPlan(
        name,
        position,
        is_filter,
        is_returned,
        len(counted.row_groups),
        counted.pages,
        pages,
        counted.nbytes,
        projection.cbytes(position),
        tuple(counted.encodings),
    )
