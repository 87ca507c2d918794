"""What docs/format.md promises of statistics, compared with the rows that the page's reader read.

It imports nothing of blztable. The counts are exact, bounds enclose the values, and bounds that say
so are values.
"""

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from golden import reader

LEAST, GREATEST = reader.LEAST, reader.GREATEST
Word = Callable[[bytes], int]


def check_version(version: reader.Version, *, has_deleted: bool = False) -> None:
    """Check what is stated of the pages of all nodes, and of the leaves above them.

    Deleted rows may have any values, so bounds need not be values then.
    """
    number = 0
    for column in version.columns:
        for type_, parts, rows in column.nodes:
            if reader.node_of(type_)[0] == reader.LIST:  # A null row is ~n.
                rows = [None if row < 0 else row for row in rows]
            firsts = list(accumulate((part.rows for part in parts), initial=0))
            for part, (start, stop) in zip(parts, pairwise(firsts), strict=True):
                check_part(type_, part, rows[start:stop])
            for tail in version.tails[1:]:
                check_leaf(version, tail, number, type_, [rows, firsts])
            number += 1


def check_part(type_: pa.DataType, part: reader.Part, rows: list[reader.Row]) -> None:
    """Compare the pages of a part with its rows."""
    size = 1 << int(part.record["page"])
    is_exact = bool(int(part.record["flags"]) & reader.EXACT)
    assert len(part.pages) in (0, -(-len(rows) // size))
    for page, at in zip(part.pages, range(0, len(rows), size), strict=False):
        check(word_of(type_, part), part.prefix, page, rows[at : at + size], is_exact)
        assert page["nans"] == sum(map(is_nan(type_), rows[at : at + size]))


def check_leaf(
    version: reader.Version, tail: reader.Leaf, number: int, type_: pa.DataType, rows: list[Any]
) -> None:
    """Compare the entries of a level with the rows below them."""
    values, firsts = rows
    first = version.first_group(tail.level)
    for group, part in zip(tail.groups, tail.parts(number), strict=True):
        last = first + int(group["groups"])
        found = values[firsts[first] : firsts[last]]
        page, is_exact = part.pages[0], bool(int(part.record["flags"]) & reader.EXACT)
        assert part.rows == len(found)
        check(word_of(type_, part), part.prefix, page, found, is_exact)
        assert page["nans"] == sum(map(is_nan(type_), found))
        first = last


def check(
    word: Word | None, prefix: bytes, page: Any, rows: list[reader.Row], is_exact: bool
) -> None:
    """Compare counts and bounds with rows."""
    values = [row for row in rows if row is not None]
    assert page["nulls"] == len(rows) - len(values)
    low, high = int(page["min"]), int(page["max"])
    if word is None:
        assert (low, high) == (LEAST, GREATEST) or (not values and low > high)
        return
    assert all(not isinstance(row, bytes) or row.startswith(prefix) for row in values) or not prefix
    words = [found for found in map(word, values) if found is not None]
    if not words:
        assert low > high or (low, high) == (LEAST, GREATEST)
        return
    if is_exact:
        assert (low, high) == (min(words), max(words))
    else:
        assert low == LEAST or low <= min(words)
        assert high == GREATEST or high >= max(words)


def is_nan(type_: pa.DataType) -> Callable[[reader.Row], bool]:
    """Return the function that tells whether a value is NaN."""
    type_ = reader.value_type(type_)
    if not pa.types.is_floating(type_):
        return lambda row: False
    dtype = f"<f{type_.bit_width // 8}"
    return lambda row: row is not None and bool(np.isnan(np.frombuffer(row, dtype)[0]))


def word_of(type_: pa.DataType, part: reader.Part) -> Any:
    """Return the function that gives the word of a value, None of a NaN; None without bounds."""
    kinds = pa.types
    if kinds.is_union(type_):
        type_ = pa.int8()
    flat, children = reader.node_of(type_)
    if children or flat == reader.STRUCT:
        return None
    type_ = reader.value_type(type_)
    if type_ in reader.BYTES:
        size = len(part.prefix)
        return lambda row: int.from_bytes(row[size : size + 8].ljust(8, b"\0"), "big") + LEAST
    if kinds.is_floating(type_):
        return _floats(type_, part)
    if kinds.is_null(type_) or kinds.is_interval(type_):
        return None
    if kinds.is_decimal(type_) and type_.bit_width > 64:
        if int(part.record["flags"]) & reader.EXACT:
            return lambda row: int.from_bytes(row, "little", signed=True)
        return lambda row: int.from_bytes(row[-8:], "little", signed=True)
    if kinds.is_fixed_size_binary(type_):
        return None
    if type_ == pa.uint64():
        return lambda row: int.from_bytes(row, "little") + LEAST
    is_signed = not (kinds.is_unsigned_integer(type_) or kinds.is_boolean(type_))
    return lambda row: int.from_bytes(row, "little", signed=is_signed)


def _floats(type_: pa.DataType, part: reader.Part) -> Any:
    stream = part.streams.get(reader.VALUES)
    dtype = f"<f{type_.bit_width // 8}"

    def of_bits(row: bytes) -> int | None:
        value = float(np.frombuffer(row, dtype)[0])
        bits = int(np.frombuffer(np.float64(value).tobytes(), "<i8")[0])
        return None if value != value else bits ^ GREATEST if bits < 0 else bits

    if stream is None or stream.kind != reader.NUMBERS:
        return of_bits
    power, is_times = stream.power, stream.flags & reader.TIMES

    def number_of(word: int) -> float:
        if not power:
            return float(word)
        return word * float(f"1e-{power}") if is_times else word / 10.0**power

    def of_number(row: bytes) -> float | None:
        value = float(np.frombuffer(row, dtype)[0])
        if value != value:
            return None
        scaled = value * 10.0**power
        if abs(scaled) < 2**62:
            # The product is rounded, so the integer that gives the value may be a neighbour.
            for whole in (round(scaled) + step for step in (0, -1, 1)):
                if number_of(whole) == value:
                    return whole
        return scaled

    return of_number
