"""Versions and their leaves: tails are sealed on every level, and no commit writes much."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.errors import BlzError, FormatError
from blztable.format.bounds import Order
from blztable.format.leaf import GROUP, Leaf
from blztable.format.records import PAGE, PART, WORD, Records, stack
from blztable.format.version_file import (
    DRAFT,
    MOST_ENTRIES,
    Tail,
    VersionFile,
    appended,
    encode_version,
)

ORDERS = [Order.NUMBER, Order.FLOAT]


def row_groups(first, count):
    """Return a tail of row groups whose first column counts: each has 8 rows."""
    groups = np.zeros(count, GROUP)
    groups["rows"] = groups["stored"] = 8
    groups["groups"] = 1
    numbers = np.arange(first, first + count)
    columns = []
    for scale in (1, -1):
        parts, pages = np.zeros(count, PART), np.zeros(count, PAGE)
        parts["rows"], parts["page"], parts["pages"] = 8, 3, 1
        pages["min"] = pages["max"] = scale * numbers
        columns.append(Records(1, count, parts, pages=pages))
    return Tail(groups, np.zeros(0, WORD), stack(columns))


def numbers_of(tails, leaves):
    """Return the values of the first column in the order of the rows."""
    found = []

    def walk(level, tail):
        if level == 0:
            pages = tail.records.pages[: len(tail)]
            found.extend(pages["min"].tolist())
            return
        for entry, number in enumerate(tail.groups["file"].tolist()):
            leaf = Leaf(leaves[number])
            before = len(found)
            walk(level - 1, Tail.of(leaf))
            page = tail.records.pages[entry]
            assert (page["min"], page["max"]) == (found[before], found[-1])
            assert tail.groups["rows"][entry] == 8 * (len(found) - before)

    for level in reversed(range(len(tails))):
        walk(level, tails[level])
    return found


@settings(max_examples=30)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=30))
def test_the_rows_stay_in_order_however_they_are_appended(counts):
    tails, leaves, number, total = (), {}, 1, 0
    for count in counts:
        sealed = appended(tails, row_groups(total, count), ORDERS, number)
        assert set(sealed.leaves) == set(range(number, sealed.next_number))
        tails, number, total = sealed.tails, sealed.next_number, total + count
        leaves |= sealed.leaves
        assert all(len(tail) < MOST_ENTRIES for tail in tails)
    assert numbers_of(tails, leaves) == list(range(total))


def test_a_commit_writes_the_same_beside_few_and_many_row_groups():
    tails, number, written = (), 1, []
    for total in range(3000):
        sealed = appended(tails, row_groups(total, 1), ORDERS, number)
        tails, number = sealed.tails, sealed.next_number
        leaves = sum(map(len, sealed.leaves.values()))
        written.append(leaves + len(encode_version({}, b"", tails)))
    few, many = written[100 : 100 + 32 * 32], written[-32 * 32 :]
    assert sum(many) < 1.3 * sum(few)
    assert max(many) < 1.5 * max(few)
    assert len(tails) == 3


def test_a_version_of_many_columns_is_sealed_by_its_bytes():
    groups = np.zeros(1, GROUP)
    groups["rows"] = groups["stored"] = 8
    groups["groups"] = 1
    parts = np.zeros(5000, PART)
    parts["rows"], parts["page"] = 8, 3
    one = Tail(groups, np.zeros(0, WORD), Records(5000, 1, parts))
    tails, number, entries = (), 1, []
    for _ in range(12):
        sealed = appended(tails, one, [Order.NUMBER] * 5000, number)
        tails, number = sealed.tails, sealed.next_number
        entries.append(len(tails[0]))
    assert entries == [1, 2, 3, 0] * 3


def version():
    sealed = appended((), row_groups(0, 40), ORDERS, 9)
    return encode_version({"uuid": "ü", "version": 3}, b"schema", sealed.tails)


def read_all(data):
    read = VersionFile.decode(data)
    return read, [Tail.of(leaf) for leaf in read.leaves]


def test_a_version_comes_back():
    read, tails = read_all(version())
    assert read.head == {"uuid": "ü", "version": 3}
    assert bytes(read.schema) == b"schema"
    assert [len(tail) for tail in tails] == [8, 1]
    assert tails[1].groups["file"].tolist() == [9]


def test_no_byte_of_a_version_changes_unnoticed():
    data = version()
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        with pytest.raises(BlzError):
            read_all(bytes(broken))


def test_a_version_that_is_cut_or_longer_is_refused():
    data = version()
    for size in range(0, len(data), 5):
        with pytest.raises(BlzError):
            read_all(data[:size])
    with pytest.raises(BlzError):
        read_all(data + bytes(8))


def test_a_draft_of_the_format_is_refused_by_name():
    with pytest.raises(FormatError, match="unreleased draft of the format"):
        VersionFile.decode(DRAFT + b',"format_version":1,...')
