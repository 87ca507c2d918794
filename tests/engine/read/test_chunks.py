"""Runs of chunks: each needed chunk is decoded once, into every place that needs it."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable import tuning
from blztable.block_terms import VALUES
from blztable.columns.blocks import StreamBuffer
from blztable.columns.sinks import Memory, Sink
from blztable.engine.read import requests as reading
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.requests import ByteRequest, chunk_spans, joined
from blztable.engine.version.versions import pin
from blztable.errors import CorruptError
from blztable.storage.memory import RamStore
from support.stores import write

BYTES = 400


def stream_of(chunks):
    """Return the place of a stream that is cut in chunks of these sizes."""
    return SimpleNamespace(info=SimpleNamespace(chunks=chunks), has_chunks=True)


@st.composite
def ranges(draw, total):
    """Draw non-empty byte ranges in order; some are adjacent, some have gaps."""
    ends = sorted(draw(st.sets(st.integers(0, total), min_size=2, max_size=9)))
    pairs = list(pairwise(ends))
    kept = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    return [pair for pair, is_kept in zip(pairs, kept, strict=True) if is_kept] or pairs[:1]


@given(
    st.data(), st.lists(st.integers(1, 30), min_size=1, max_size=12), st.sampled_from([1, 40, 999])
)
def test_runs_are_the_chunks_that_hold_wanted_bytes_each_once(data, chunks, span_bytes):
    requests = [ByteRequest(low, high, Sink()) for low, high in data.draw(ranges(sum(chunks)))]
    begins = np.cumsum([0, *chunks]).tolist()
    needed = [
        number
        for number, (begin, end) in enumerate(pairwise(begins))
        if any(one.low < end and begin < one.high for one in requests)
    ]
    with tuning.tuned(span_bytes=span_bytes):
        found = list(chunk_spans(SimpleNamespace(bundle=None), stream_of(chunks), requests))
    assert [number for one in found for number in range(one.first, one.last)] == needed
    for one in found:
        begin, end = begins[one.first], begins[one.last]
        assert one.begin == begin
        assert one.nbytes == end - begin
        assert list(one.requests) == [r for r in requests if r.low < end and begin < r.high]
        # No more chunks than needed for this number of bytes.
        assert begins[one.last - 1] - begin < span_bytes
    # A run ends only if the next chunk is not needed, or if the run has enough bytes.
    for one, other in pairwise(found):
        assert one.last < other.first or one.nbytes >= span_bytes


@pytest.fixture(scope="module")
def opened():
    """Open a part of 400 bytes in ten requests, alone in its file."""
    store = RamStore()
    write(store, pa.table({"a": np.arange(BYTES) % 251}).cast(pa.schema({"a": pa.uint8()})),
          page_rows=8, chunk_bytes=40)  # fmt: skip
    version, pinned = pin(store)
    yield OpenParts(version).open(0, 0)
    pinned.close()


@settings(max_examples=40, deadline=None)
@given(ranges(BYTES), st.sampled_from([1, 100, 999]), st.data())
def test_bytes_come_to_their_places_and_are_looked_at_once(opened, wanted, span_bytes, data):
    assert len(opened.streams[VALUES].info.chunks) == 10
    buffers = [np.zeros(high - low, np.uint8) for low, high in wanted]
    looked_at = [[] for _ in wanted]
    # For some streams only their presence is checked.
    targeted = data.draw(st.lists(st.booleans(), min_size=len(wanted), max_size=len(wanted)))
    requests = [
        ByteRequest(
            low,
            high,
            Memory(StreamBuffer(buffer, lambda *r, seen=seen: seen.append(r)), low)
            if is_
            else Sink(),
        )
        for (low, high), buffer, seen, is_ in zip(wanted, buffers, looked_at, targeted, strict=True)
    ]
    decoded = []

    def watch(name):
        real = getattr(reading, name)

        def decompress(chunk, *rest):
            decoded.append(bytes(chunk))
            real(chunk, *rest)

        patch.setattr(reading, name, decompress)

    task_bytes = data.draw(st.sampled_from([1, 1000]))
    small = tuning.tuned(span_bytes=span_bytes, read_task_bytes=task_bytes)
    with pytest.MonkeyPatch.context() as patch, small:
        watch("decompress_into")
        watch("decompress_blocks")
        tasks = list(joined(chunk_spans(opened, opened.streams[VALUES], requests)))
        # In any order.
        for task in data.draw(st.permutations(tasks)):
            task()
    whole = np.arange(BYTES) % 251
    for (low, high), buffer, seen, is_ in zip(wanted, buffers, looked_at, targeted, strict=True):
        assert buffer.tolist() == (whole[low:high].tolist() if is_ else [0] * (high - low))
        assert [row for part in sorted(seen) for row in range(*part)] == (
            list(range(high - low)) if is_ else []
        )
    touched = {at // 40 for low, high in wanted for at in range(low, high)}
    assert len(decoded) == len(set(decoded)) == len(touched)


def test_a_check_that_fails_names_the_stream_and_the_chunk(opened):
    def check(start, stop):
        raise CorruptError("not what it should be")

    request = ByteRequest(85, 90, Memory(StreamBuffer(np.zeros(5, np.uint8), check), 85))
    (one,) = chunk_spans(opened, opened.streams[VALUES], [request])
    with pytest.raises(CorruptError, match=r"'a', stream 'values', chunk 2: not what it should"):
        one.decode()


def test_small_runs_are_one_task_and_large_ones_their_own(opened, tuned):
    tuned(read_task_bytes=80)
    requests = [ByteRequest(at, at + 1, Sink()) for at in (0, 100, 200, 300, 390)]
    found = list(chunk_spans(opened, opened.streams[VALUES], requests))
    assert [one.nbytes for one in found] == [40] * 5
    assert [len(task.args[0]) for task in joined(found)] == [2, 2, 1]
    assert list(joined([])) == []
