"""The tail journal: whatever a loss of power leaves, a file has all of a change or none."""

import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.storage import journal
from blztable.storage.files import MemoryFile
from support.crash.in_place import RecordedFile, crash_states

OLD = bytes(range(64)) * 10
writes_of = st.lists(st.tuples(st.integers(0, 700), st.binary(max_size=300)), max_size=4)


def apart(writes):
    """Return the writes that overlap none before them and leave no gap behind the old end."""
    kept, end = [], len(OLD)
    for at, data in sorted(writes):
        if all(at >= start + len(old) for start, old in kept) and at <= end:
            kept.append((at, data))
            end = max(end, at + len(data))
    return kept, end


def changed(writes, new_end):
    data = bytearray(OLD)
    for at, new in writes:
        data[at : at + len(new)] = new
    return bytes(data[:new_end])


def seen(data):
    """Return what a reader sees: through the journal, or the file as long as it says to be."""
    file = MemoryFile(data)
    found = journal.find(file, zlib.crc32)
    if found is None:
        return data
    return journal.Patched(file, found).read(0, 1 << 20)


@given(writes_of, st.integers(0, 900))
def test_a_change_is_made_as_if_the_bytes_were_written(writes, new_end):
    writes, end = apart(writes)
    new_end = min(new_end, end)
    file = MemoryFile(OLD)
    inside = [(at, data) for at, data in writes if at + len(data) <= new_end]
    journal.commit(file, inside, len(OLD), new_end, zlib.crc32)
    assert file.read(0, 1 << 20) == changed(inside, new_end)


@pytest.mark.parametrize("new_end", [100, len(OLD), 1000])
def test_every_crash_leaves_the_old_bytes_or_the_new_ones(new_end):
    writes = [(0, b"a" * 40), (90, b"b" * (new_end - 90))]
    file = RecordedFile(OLD)
    journal.commit(file, writes, len(OLD), new_end, zlib.crc32)
    new = changed(writes, new_end)
    outcomes = set()
    for data in crash_states(OLD, file.log, seed=1):
        view = seen(data)
        # Without a whole journal, bytes behind the old end mean nothing.
        outcomes.add("new" if view == new else "old" if view[: len(OLD)] == OLD else "torn")
        # What the next writer finishes is what a reader saw.
        finished = MemoryFile(data)
        journal.finish(finished, zlib.crc32)
        assert finished.read(0, 1 << 20) == view
    assert outcomes == {"old", "new"}


def test_the_model_finds_a_change_without_the_first_flush():
    class Hasty(RecordedFile):
        flushes = itertools.count()

        def flush(self):
            if next(self.flushes):
                super().flush()

    writes = [(0, b"a" * 40), (len(OLD), b"b" * 2000)]
    file = Hasty(OLD)
    journal.commit(file, writes, len(OLD), len(OLD) + 2000, zlib.crc32)
    new = changed(writes, len(OLD) + 2000)
    states = [seen(data) for data in crash_states(OLD, file.log, seed=1)]
    assert any(view != new and view[: len(OLD)] != OLD for view in states)


@given(st.data())
def test_a_damaged_journal_is_none(data):
    file = RecordedFile(OLD)
    journal.commit(file, [(10, b"new")], len(OLD), len(OLD), zlib.crc32)
    whole = max((bytes(state) for state in crash_states(OLD, file.log, seed=1)), key=len)
    start = len(OLD)
    assert journal.find(MemoryFile(whole), zlib.crc32) is not None
    place = data.draw(st.integers(start, len(whole) - 1))
    broken = bytearray(whole)
    broken[place] ^= data.draw(st.integers(1, 255))
    found = journal.find(MemoryFile(broken), zlib.crc32)
    # Four bytes of the foot have no meaning.
    assert found is None or len(whole) - 12 <= place < len(whole) - 8


def with_journal(*writes):
    """Return the old bytes with a journal of some writes behind them."""
    body = journal.HEAD.pack(journal.HEAD_MAGIC, len(writes), len(OLD))
    body += b"".join(journal.ENTRY.pack(at, len(new)) + new for at, new in writes)
    crc = zlib.crc32(body)
    return OLD + body + journal.FOOT.pack(len(OLD), len(OLD), crc, journal.FOOT_MAGIC)


@given(st.lists(st.integers(0, 600), unique=True), st.integers(0, 640), st.integers(0, 640))
def test_any_bytes_are_read_through_writes_in_any_order(places, at, length):
    writes = [(place, b"\xee") for place in places]
    source = journal.read_through(MemoryFile(with_journal(*writes)), zlib.crc32)
    assert source.read(at, length) == changed(writes, len(OLD))[at : at + length]


@pytest.mark.parametrize(
    "writes", [[(0, b"")], [(5, b"abc"), (7, b"x")], [(7, b"x"), (5, b"abc")], [(5, b"a")] * 2]
)
def test_a_journal_whose_writes_are_empty_or_overlap_is_none(writes):
    assert journal.find(MemoryFile(with_journal(*writes)), zlib.crc32) is None
    assert journal.find(MemoryFile(with_journal((writes[0][0], b"x"))), zlib.crc32) is not None


def test_a_read_looks_only_at_the_writes_to_its_bytes():
    class Counted(tuple):
        def __getitem__(self, key):
            looked.extend(found := super().__getitem__(key))
            return found

    looked = []
    writes = Counted((place, b"x") for place in range(0, 600, 2))
    patched = journal.Patched(MemoryFile(OLD), journal.Journal(writes, len(OLD)))
    # A loop over all of them would be an error.
    Counted.__iter__ = None
    assert patched.read(298, 4) == b"x" + OLD[299:300] + b"x" + OLD[301:302]
    assert looked == [(298, b"x"), (300, b"x")]


@pytest.mark.parametrize(
    ("count", "entries", "new_end"),
    [(1, [(1 << 63, 1 << 63)], 9), (9, [], 9), (0, [], 1 << 60), (1, [(0, 10)], 5)],
)
def test_a_journal_that_lies_is_none(count, entries, new_end):
    body = journal.HEAD.pack(journal.HEAD_MAGIC, count, new_end)
    body += b"".join(journal.ENTRY.pack(*entry) for entry in entries) + bytes(10)
    foot = journal.FOOT.pack(len(OLD), new_end, zlib.crc32(body), journal.FOOT_MAGIC)
    assert journal.find(MemoryFile(OLD + body + foot), zlib.crc32) is None
