"""Bounds are words: 64-bit integers that compare as the values do.

A page has the least and the greatest word of its values; a page without values has NONE, a page of
values without an order has ANY. Knows nothing of Arrow: a column says by its `Order` how its words
are made.
"""

import enum
from collections.abc import Sequence

import numpy as np

from blztable.format.leaf import GROUP, Leaf
from blztable.format.records import (
    EXACT_BOUNDS,
    MANY,
    MIN_PAGE,
    NUMBERS,
    PAGE,
    PART,
    TIMES,
    VALUES,
    WORD,
    Array,
    Records,
)

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
# (min, max) of a page without values, and of one of which nothing is known.
NONE, ANY = (GREATEST, LEAST), (LEAST, GREATEST)
WORD_BYTES = 8
MAX_PREFIX = 255
# Powers of ten from 0 to 18, then those from -18 to -1: an index below 0 counts from the end.
TENS = np.array([float(f"1e{power}") for power in (*range(19), *range(-18, 0))])


class Order(enum.Enum):
    """How the values of a column are compared."""

    NUMBER = "integers, times and decimals of at most 64 bits: the number"
    FLOAT = "doubles: their ordered bits, or the integers of an encoding"
    WIDE = "decimals above 64 bits: the number if bounds are values, otherwise its upper 64 bits"
    TEXT = "bytes: the 8 behind the prefix of the part"


def words_of_integers(values: Array) -> Array:
    """Return the word of each integer."""
    if values.dtype == np.uint64:
        return (values ^ np.uint64(1 << 63)).view(WORD)
    return values.astype(WORD)


def words_of_floats(values: Array) -> Array:
    """Return the word of each double: its bits, the lower 63 inverted where the sign is set."""
    bits = np.ascontiguousarray(values, "<f8").view(WORD)
    return bits ^ ((bits >> 63) & GREATEST)


def floats_of_words(words: Array) -> Array:
    """Return the double of each word."""
    return (words ^ ((words >> 63) & GREATEST)).view("<f8")


def word_of_bytes(value: bytes) -> int:
    """Return the word of the first eight bytes, filled with zeros."""
    return int.from_bytes(value[:WORD_BYTES].ljust(WORD_BYTES, b"\0"), "big") + LEAST


def bytes_of_word(word: int) -> bytes:
    """Return the eight bytes of a word."""
    return (word - LEAST).to_bytes(WORD_BYTES, "big")


def common_prefix(first: bytes, other: bytes) -> bytes:
    """Return the bytes that two items begin with, at most MAX_PREFIX."""
    for position, (left, right) in enumerate(zip(first, other, strict=False)):
        if left != right or position == MAX_PREFIX:
            return first[:position]
    return first[: min(len(first), len(other), MAX_PREFIX)]


def scales(records: Records) -> tuple[Array, Array]:
    """Return for each part whether its words are integers of an encoding, and the power of ten.

    The integers are divided by this power; if it is negative, they are multiplied by it.
    """
    owner = np.repeat(np.arange(len(records.parts)), records.parts["streams"])
    streams = records.streams
    encoded = (streams["name"] == VALUES) & (streams["kind"] == NUMBERS)
    whole = np.zeros(len(records.parts), bool)
    whole[owner[encoded]] = True
    powers = np.zeros(len(records.parts), np.int64)
    powers[owner[encoded]] = streams["power"][encoded]
    times = np.zeros(len(records.parts), bool)
    times[owner[encoded]] = streams["flags"][encoded] & TIMES != 0
    return whole, np.where(times, -powers, powers)


def values_of_floats(words: Array, whole: Array, powers: Array) -> Array:
    """Return the doubles of words; some are integers of an encoding with a power of ten."""
    integers = words.astype(np.float64)
    decimals = np.where(powers < 0, integers * TENS[powers], integers / TENS[np.abs(powers)])
    return np.where(whole, decimals, floats_of_words(words))


def summary(leaf: Leaf, number: int, orders: Sequence[Order]) -> tuple[Array, Records]:
    """Return the entry of a leaf in the level above: its group, and a part and a page a column."""
    records = leaf.records()
    group = np.zeros(1, GROUP)
    for name in ("rows", "stored", "groups", "deleted"):
        group[name] = leaf.groups[name].sum()
    group["changed"] = leaf.groups["changed"].max(initial=0)
    group["file"], group["size"], group["crc"] = number, len(leaf.data), leaf.crc
    parts, pages = np.zeros(records.columns, PART), np.zeros(records.columns, PAGE)
    parts["file"], parts["page"], parts["pages"] = number, MIN_PAGE, 1
    table = records.parts.reshape(records.columns, records.entries)
    for name in ("rows", "nbytes", "cbytes"):
        parts[name] = table[name].sum(1)
    first = records.first_page[np.arange(records.columns + 1) * records.entries]
    # A part without pages has the null type.
    parts_rows = table["rows"].astype(np.int64)
    unknown = {"nulls": np.where(table["pages"] == 0, parts_rows, 0).sum(1), "nans": 0}
    for name in ("nulls", "nans"):
        before = np.concatenate([[0], np.cumsum(records.pages[name].astype(np.int64))])
        pages[name] = np.minimum(np.diff(before[first]) + unknown[name], MANY)
    exact = (table["flags"] & EXACT_BOUNDS != 0).all(1)
    prefixes = []
    comparable = _comparable(records, orders)
    for column, order in enumerate(orders):
        begin, end = int(first[column]), int(first[column + 1])
        low, high = comparable["min"][begin:end], comparable["max"][begin:end]
        bounds, prefix = NONE, b""
        if begin < end:
            bounds = int(low.min()), int(high.max())
        if order is Order.TEXT and bounds[0] <= bounds[1]:
            bounds, prefix, exact[column] = _text(records, column, bool(exact[column]))
        pages["min"][column], pages["max"][column] = bounds
        parts["prefix"][column] = len(prefix)
        prefixes.append(prefix)
    parts["flags"] = np.where(exact, EXACT_BOUNDS, 0)
    bytes_ = np.frombuffer(b"".join(prefixes), np.uint8)
    return group, Records(records.columns, 1, parts, pages=pages, prefixes=bytes_)


def _comparable(records: Records, orders: Sequence[Order]) -> Array:
    """Return the pages with words that compare in the whole column, whatever a part's encoding."""
    pages = records.pages
    if not {Order.FLOAT, Order.WIDE} & set(orders):
        return pages
    pages = pages.copy()
    whole, powers = scales(records)
    exact = records.parts["flags"] & EXACT_BOUNDS != 0
    every = np.repeat(exact.reshape(records.columns, -1).all(1), max(records.entries, 1))
    of = np.repeat(np.arange(len(records.parts)), records.parts["pages"])
    order = np.array([order.name for order in orders])[of // max(records.entries, 1)]
    for name in ("min", "max"):
        words = records.pages[name]
        known = (words != LEAST) & (words != GREATEST)
        chosen = known & whole[of] & (order == Order.FLOAT.name)
        doubles = values_of_floats(words[chosen], whole[of[chosen]], powers[of[chosen]])
        pages[name][chosen] = words_of_floats(doubles)
        # Numbers, unless a part of the column has none.
        chosen = known & exact[of] & ~every[of] & (order == Order.WIDE.name)
        pages[name][chosen] = words[chosen] >> 63
    return pages


def _text(records: Records, column: int, exact: bool) -> tuple[tuple[int, int], bytes, bool]:
    """Return the bounds of a column of bytes, their prefix, and whether they are values."""
    lows, highs = [], []
    for part in range(column * records.entries, (column + 1) * records.entries):
        pages = records.pages[records.first_page[part] : records.first_page[part + 1]]
        pages = pages[pages["min"] <= pages["max"]]
        if not len(pages):
            continue
        if (pages["min"] == LEAST).any() and (pages["max"] == GREATEST).any():
            return ANY, b"", False
        start, end = records.first_prefix[part], records.first_prefix[part + 1]
        prefix = records.prefixes[start:end].tobytes()
        lows.append(prefix + bytes_of_word(int(pages["min"].min())))
        highs.append(prefix + bytes_of_word(int(pages["max"].max())))
    low, high = min(lows), max(highs)
    prefix = common_prefix(low, high)
    # Bytes behind the eight of a part are not known, so no bound may reach into them.
    prefix = prefix[: min(len(low) for low in lows + highs) - WORD_BYTES]
    longest = max(len(bound.rstrip(b"\0")) for bound in (low, high))
    exact = exact and longest <= len(prefix) + WORD_BYTES
    return (word_of_bytes(low[len(prefix) :]), word_of_bytes(high[len(prefix) :])), prefix, exact
