"""What docs/format.md promises of statistics, compared with the rows that the page's reader read.

It imports nothing of blztable. The counts are exact, and bounds enclose the values.
"""

from collections.abc import Callable
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from golden import reader

TEXTS = (*reader.NARROW, *reader.WIDE)


def check_column(column: reader.Column) -> None:
    """Check what is stated of the row groups and of the pages of all nodes."""
    for type_, node in column.nodes:
        starts = pairwise(accumulate(node.line["rows"], initial=0))
        groups = reader.statistics_of_row_groups(node)
        for number, ((start, stop), group) in enumerate(zip(starts, groups, strict=True)):
            rows, size = node.rows[start:stop], node.line["page_rows"][number]
            check(type_, rows, group)
            pages = reader.statistics_of_pages(node, number)
            assert len(pages) in (0, -(-len(rows) // size))
            for page, stated in enumerate(pages):
                check(type_, rows[page * size : (page + 1) * size], stated)
                enclose(type_, group, stated)


def check(type_: pa.DataType, rows: list[reader.Row], stated: reader.Statistics) -> None:
    """Compare the statistics of a run of rows with its rows."""
    if reader.node_of(type_)[0] in reader.LISTS:  # A null row is ~n.
        rows = [None if row < 0 else row for row in rows]
    values = [row for row in rows if row is not None]
    assert stated.nulls == len(rows) - len(values)
    key = key_of(type_)
    nans = 0
    if key is not None:
        keys = [key(value) for value in values]
        nans = sum(one != one for one in keys)
        keys = [one for one in keys if one == one]
        if stated.lowest is not None:
            assert all(key(stated.lowest) <= one for one in keys)
        if stated.highest is not None:
            assert all(key(stated.highest) >= one for one in keys)
        if None is not stated.lowest == stated.highest:
            assert len(set(keys)) <= 1
    else:
        assert (stated.lowest, stated.highest) == (None, None)
    assert stated.nans == nans


def enclose(type_: pa.DataType, group: reader.Statistics, page: reader.Statistics) -> None:
    """The bounds of a row group enclose those of its pages."""
    key = key_of(type_)
    if key is None:
        return
    if group.lowest is not None and page.lowest is not None:
        assert key(group.lowest) <= key(page.lowest)
    if group.highest is not None and page.highest is not None:
        assert key(group.highest) >= key(page.highest)
    if page.lowest is not None and page.highest is None:
        assert group.highest is None


def key_of(type_: pa.DataType) -> Callable[[bytes], float | int | bytes] | None:
    """Return the function that makes bytes of a value comparable; None for types without bounds."""
    kinds = pa.types
    if kinds.is_union(type_):
        type_ = pa.int8()
    if reader.node_of(type_)[1] is not None:
        return None
    if kinds.is_dictionary(type_):
        type_ = type_.value_type
    if type_ in TEXTS:
        return bytes
    if kinds.is_floating(type_):
        return lambda data: float(np.frombuffer(data, f"<f{type_.bit_width // 8}")[0])
    if kinds.is_null(type_) or kinds.is_interval(type_):
        return None
    if kinds.is_fixed_size_binary(type_) and not kinds.is_decimal(type_):
        return None
    is_signed = not (kinds.is_unsigned_integer(type_) or kinds.is_boolean(type_))
    width = max(type_.bit_width // 8, 1)

    def number(data: bytes) -> int:
        assert len(data) == width
        return int.from_bytes(data, "little", signed=is_signed)

    return number
