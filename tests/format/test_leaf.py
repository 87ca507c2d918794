"""Records of parts in leaves: what is written comes back, and no byte may change unnoticed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal.isal_zlib import crc32

from blztable.errors import CorruptError
from blztable.format.deletions import RUN_BITS
from blztable.format.leaf import COUNTED, GROUP, HEADER, Leaf, encode, records_together
from blztable.format.records import (
    CHUNK,
    KINDS,
    NUMBERS,
    PAGE,
    PART,
    PLAIN,
    STREAM,
    VALID,
    VALUES,
    WORD,
    Records,
    join,
    stack,
)

CHUNK_BYTES = 1 << 12


def one_part(rng, rows, file=1):
    """Return the records of a part with some streams, in a row group of so many rows."""
    nulls, codes = bool(rng.integers(2)), bool(rng.integers(2))
    prefix = rng.integers(0, 256, rng.integers(0, 5), dtype=np.uint8)
    pages = np.zeros(-(-rows // 8), PAGE)
    pages["min"], pages["max"] = rng.integers(-100, 0), rng.integers(0, 100)
    pages["nulls"] = nulls
    streams = np.zeros(1 + nulls, STREAM)
    if nulls:
        streams[0] = (-(-rows // 8), CHUNK_BYTES, 0, VALID, PLAIN, 0, 0, 0, 1, 0)
    words = rng.integers(-9, 9, len(pages) if codes else 0).astype(WORD)
    kind, nbytes = (NUMBERS, 2 * rows) if codes else (PLAIN, 8 * rows)
    width = 2 if codes else 0
    streams[-1] = (nbytes, CHUNK_BYTES, len(words), VALUES, kind, 0, 0, width, width or 8, 0)
    count = sum(-(-int(one["nbytes"]) // CHUNK_BYTES) for one in streams)
    chunks = np.zeros(count, CHUNK)
    chunks["size"] = 17
    chunks["crc"] = rng.integers(0, 1 << 32, count)
    part = np.zeros(1, PART)
    cbytes = int(chunks["size"].sum()) + 4 * count
    part[0] = (file, 100, rows, 8 * rows, cbytes, len(streams), 3, 0, len(prefix), len(pages))
    return Records(1, 1, part, streams, chunks, pages, words, prefix)


def described(seed, columns, entries):
    """Return random groups, words of deleted rows, and records of all columns and entries."""
    rng = np.random.default_rng(seed)
    groups = np.zeros(entries, GROUP)
    groups["stored"] = rng.integers(2, 2000, entries)
    groups["groups"] = 1
    groups["deleted"] = rng.integers(0, 2, entries)
    groups["rows"] = groups["stored"] - groups["deleted"]
    gone = rng.integers(0, groups["stored"].astype(np.int64))[groups["deleted"] > 0]
    deleted = (gone << RUN_BITS | 1).astype(WORD)
    stored = groups["stored"].tolist()
    records = [stack([one_part(rng, rows) for _ in range(columns)]) for rows in stored]
    return groups, deleted, records


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


@given(st.integers(0, 1 << 30), st.integers(1, 6), st.integers(1, 5), st.data())
def test_the_records_of_any_columns_come_back(seed, columns, entries, data):
    groups, deleted, records = described(seed, columns, entries)
    leaf = Leaf(encode(0, groups, deleted, join(records)))
    assert np.array_equal(leaf.groups, groups)
    assert np.array_equal(leaf.deleted, deleted)
    assert same(leaf.records(), join(records))
    chosen = data.draw(st.lists(st.integers(0, columns - 1), max_size=4))
    expected = [join([one_column(entry, number) for entry in records]) for number in chosen]
    got = leaf.records(chosen)
    assert got.columns == len(chosen)
    if chosen:
        assert same(got, stack(expected))


def one_column(records, number):
    """Return the records of a column, in one entry."""
    arrays = [
        array[of == number] for array, of in zip(records.arrays, records.owners(), strict=True)
    ]
    return Records(1, 1, *arrays)


def test_a_leaf_of_no_entries_and_one_of_no_columns_come_back():
    groups, deleted, _ = described(1, 2, 1)
    empty = Leaf(encode(0, groups[:0], deleted[:0], Records(2, 0, np.zeros(0, PART))))
    assert (empty.entries, empty.columns, len(empty.groups)) == (0, 2, 0)
    assert empty.records().columns == 2
    bare = Leaf(encode(0, groups, deleted, Records(0, 1, np.zeros(0, PART))))
    assert np.array_equal(bare.groups, groups)
    assert bare.records().columns == 0


def test_the_chunks_of_a_part_follow_each_other_from_its_offset():
    records = join([stack([one_part(np.random.default_rng(k), 4000)]) for k in range(3)])
    at = records.chunk_offset
    of = records.owners()[2]
    for part in range(3):
        mine = at[of == part]
        sizes = records.chunks["size"][of == part]
        assert mine[0] == 100
        assert np.array_equal(np.diff(mine), sizes[:-1] + 4)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.storm)])
def test_no_byte_of_a_leaf_changes_unnoticed(step):
    groups, deleted, records = described(5, 3, 2)
    data = encode(0, groups, deleted, join(records))
    for position in range(0, len(data), step):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        with pytest.raises(CorruptError):
            read_all(broken)


def test_a_leaf_that_is_cut_or_longer_is_refused():
    groups, deleted, records = described(6, 2, 2)
    data = encode(0, groups, deleted, join(records))
    for size in [*range(0, len(data), 7), len(data) - 1]:
        with pytest.raises(CorruptError):
            read_all(data[:size])
    with pytest.raises(CorruptError):
        read_all(data + b"\0" * 8)


def read_all(data):
    leaf = Leaf(bytes(data))
    return leaf.groups, leaf.records()


FIELDS = [
    (position, name)
    for position, kind in enumerate((PART, STREAM, CHUNK, PAGE))
    for name in kind.names
]


def resealed(data, position, name, value):
    """Return the leaf with a field of the last record of a kind changed, and right checksums."""
    leaf, data = Leaf(bytes(data)), bytearray(data)
    index = leaf.index.copy()
    counts = [leaf.entries, *(int(index[key][-1]) for key in COUNTED)]
    sizes = [kind.itemsize * count for kind, count in zip(KINDS, counts, strict=True)]
    kind, start = KINDS[position], int(index["offset"][-1])
    records = np.frombuffer(data, kind, counts[position], start + sum(sizes[:position]))
    records[name][-1] = value(int(records[name][-1]), np.iinfo(records.dtype[name]).max)
    index["crc"][-1] = crc32(data[start:])
    end = HEADER.size + index.nbytes
    data[HEADER.size : end] = index.tobytes()
    data[HEADER.size - 4 : HEADER.size] = crc32(data[HEADER.size : end], crc32(data[:20])).to_bytes(
        4, "little"
    )
    return bytes(data)


VALUES_IN_PLACE = pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda old, most: most, id="most"),
        pytest.param(lambda old, most: old + 1 if old < most else 0, id="one more"),
        pytest.param(lambda old, most: 0, id="zero"),
    ],
)


@VALUES_IN_PLACE
@pytest.mark.parametrize(("position", "name"), FIELDS)
def test_a_false_record_with_right_checksums_is_refused_or_harmless(position, name, value):
    groups, deleted, records = described(7, 3, 2)
    data = encode(0, groups, deleted, join(records))
    try:
        _, got = read_all(resealed(data, position, name, value))
    except CorruptError:
        return
    # Whatever is accepted has places and sizes for exactly the chunks there are.
    assert len(got.chunk_offset) == len(got.chunks) == len(got.chunk_nbytes)
    assert (got.chunk_nbytes > 0).all()
    assert (got.chunk_nbytes <= 8 << 20).all()


@VALUES_IN_PLACE
@pytest.mark.parametrize(("position", "name"), FIELDS)
def test_leaves_that_are_checked_together_are_refused_if_one_of_them_is(position, name, value):
    sound = [encode(0, groups, deleted, join(records)) for groups, deleted, records in drawn(3)]
    changed = resealed(sound[1], position, name, value)
    one, many = Leaf(changed), [Leaf(sound[0]), Leaf(changed), Leaf(sound[2])]
    # The changed record is one of the last column.
    for columns in ([one.columns - 1], range(one.columns)):
        if is_refused(Leaf(changed).records, columns):
            assert is_refused(records_together, many, columns)
            assert is_refused(many[1].records, columns)
        else:
            records_together(many, columns)
    records_together([Leaf(data) for data in sound], range(3))


def drawn(count):
    return [described(seed, 3, seed) for seed in range(2, 2 + count)]


def is_refused(call, *arguments):
    try:
        call(*arguments)
    except CorruptError:
        return True
    return False


def test_leaves_that_are_checked_together_have_the_records_that_each_has():
    leaves = [
        Leaf(encode(0, groups, deleted, join(records))) for groups, deleted, records in drawn(5)
    ]
    records_together(leaves, [2, 0])
    for leaf, (groups, deleted, records) in zip(leaves, drawn(5), strict=True):
        found, alone = leaf.records([2, 0]), Leaf(encode(0, groups, deleted, join(records)))
        assert same(found, alone.records([2, 0]))


def test_counts_that_agree_only_over_all_leaves_are_refused():
    data = [encode(0, groups, deleted, join(records)) for groups, deleted, records in drawn(5)]
    has_prefix = [bool(Leaf(one).records([2]).parts["prefix"][-1]) for one in data]
    less = has_prefix.index(True)
    more = less - 1
    data[less] = resealed(data[less], 0, "prefix", lambda old, most: old - 1)
    data[more] = resealed(data[more], 0, "prefix", lambda old, most: old + 1)
    assert is_refused(records_together, list(map(Leaf, data)), [2])
