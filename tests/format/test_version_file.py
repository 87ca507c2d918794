"""The file of a version: head, schema and tails come back, and no byte changes unnoticed."""

import numpy as np
import pytest

from blztable.errors import BlzError, CorruptError, FormatError
from blztable.format.bounds import Order, summary
from blztable.format.leaf import GROUP, Leaf
from blztable.format.records import PAGE, PART, WORD, Records, stack
from blztable.format.version_file import (
    DRAFT,
    REMOVED,
    Tail,
    VersionFile,
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


def version():
    leaf = Leaf(row_groups(0, 32).encode(0))
    groups, records = summary(leaf, 9, ORDERS)
    above = Tail(groups, np.zeros(0, WORD), records)
    tails = [row_groups(32, 8).encode(0), above.encode(1)]
    return encode_version({"uuid": "ü", "version": 3}, b"schema", tails)


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


def test_a_tombstone_is_no_version_and_no_byte_of_it_changes_unnoticed():
    assert len(REMOVED) == 24
    with pytest.raises(CorruptError, match="removed"):
        VersionFile.decode(REMOVED)
    for position in range(24):
        broken = bytearray(REMOVED)
        broken[position] ^= 1 << position % 8
        with pytest.raises(BlzError, match=r"^(?!.*removed)"):
            VersionFile.decode(bytes(broken))
