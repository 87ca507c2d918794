"""A part: rows of it by slices and one by one, from chunks that are read as few times as can be."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.arrow.types import as_stored
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.versions import pin
from blztable.errors import CorruptError
from blztable.format.records import ITEMS_VALUES, LENGTHS, VALUES
from blztable.storage.memory import RamStore
from support import arrow_strategies
from support.bit_equality import same
from support.recording_store import Recorded
from support.stores import write

pytestmark = pytest.mark.usefixtures("own_files")

ROWS = 300
WORDS = pa.array([f"word {n % 13}" * (n % 5) for n in range(ROWS)])
LONG = pa.array(["x" * (n % 3 * 90) + str(n) for n in range(ROWS)])
TABLE = pa.table(
    {
        "n": pa.array(np.random.default_rng(1).permutation(ROWS)),
        "s": WORDS,
        "d": WORDS.dictionary_encode(),
        "z": pa.nulls(ROWS),
        "long": LONG,
        "b": pa.array([None if n % 7 == 0 else n % 3 == 0 for n in range(ROWS)]),
    }
)


def opened(store):
    """Return the parts of a store."""
    version, pinned = pin(store)
    with pinned:
        return OpenParts(version)


@pytest.fixture
def store():
    store = RamStore()
    with tuning.tuned(encoded_bytes=1, rows_per_item=2):
        write(store, TABLE, page_rows=64, chunk_bytes=64)
    return store


def key_of(store, line):
    """Return the key of the file of a column."""
    with opened(store) as parts:
        return parts.open(line, 0).key


@pytest.mark.parametrize("type_", arrow_strategies.PLAIN, ids=str)
@given(data=st.data())
def test_a_part_of_any_type_is_read_in_slices_and_row_by_row(type_, data):
    array = data.draw(arrow_strategies.arrays(type_).filter(len))
    store = RamStore()
    packing = data.draw(st.sampled_from(["packed", "per_item"]))
    options = {"packing": packing} if pa.types.is_string(type_) else {}
    write(store, pa.table({"a": array}), page_rows=8, chunk_bytes=64, **options)
    expected, rows = as_stored(array), len(array)
    with opened(store) as parts:
        part = parts.open(0, 0)
        assert same(part.array(), expected)
        cuts = sorted(data.draw(st.sets(st.integers(0, rows), min_size=2, max_size=6)) | {0})
        spans = [slice(*pair) for pair in pairwise(cuts)][::2]
        wanted = [row for span in spans for row in range(span.start, span.stop)]
        if not pa.types.is_dictionary(type_) or array.dictionary:
            assert same(part.array(spans), expected.take(pa.array(wanted, pa.int64())))
        chosen = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), np.int64)
        assert same(part.array(chosen), expected.take(pa.array(chosen)))


def test_a_stream_gives_its_bytes_in_runs_in_a_whole_and_by_ranges(store):
    rng = np.random.default_rng(0)
    with opened(store) as parts, tuning.tuned(span_bytes=100):
        stream = parts.open(4, 0).streams[VALUES]
        whole = "".join(LONG.to_pylist()).encode()
        assert len(stream.sizes) > 50
        assert bytes(stream.data(0, stream.nbytes)) == whole
        assert b"".join(bytes(stream.chunk(n)) for n in range(len(stream.sizes))) == whole
        for _ in range(20):
            cuts = np.unique(rng.integers(0, len(whole), 9))
            low, high = int(cuts[0]), int(cuts[-1])
            runs = [(at, bytes(data)) for at, data in stream.runs(low, high)]
            assert b"".join(data for _, data in runs) == whole[low:high]
            assert [at for at, _ in runs] == (
                low + np.cumsum([0, *map(len, [d for _, d in runs])])
            )[:-1].tolist()
            assert bytes(stream.data(low, high)) == whole[low:high]
            starts, stops = cuts[:-1:2], cuts[1::2]
            picked = [
                bytearray(int(stop - start)) for start, stop in zip(starts, stops, strict=False)
            ]
            for at, first, last, data in stream.pick(starts[: len(picked)], stops[: len(picked)]):
                for number in range(first, last):
                    start, stop = int(starts[number]), int(stops[number])
                    one, other = max(start, at), min(stop, at + len(data))
                    picked[number][one - start : other - start] = bytes(data[one - at : other - at])
            assert [bytes(one) for one in picked] == [
                whole[start:stop]
                for start, stop in zip(starts.tolist(), stops.tolist(), strict=False)
            ]


def test_nothing_is_read_before_rows_are(store):
    recorded = Recorded(store)
    with opened(recorded) as parts:
        recorded.reads.clear()
        part = parts.open(4, 0)
        assert (part.rows, part.page_rows, len(part.array([]))) == (ROWS, 64, 0)
        assert not recorded.data


def test_chunks_side_by_side_are_read_by_one_call_and_single_rows_by_their_chunks(store):
    recorded = Recorded(store)
    with opened(recorded) as parts:
        part = parts.open(4, 0)
        whole = part.streams[VALUES].cbytes
        recorded.reads.clear()
        part.array()
        assert len(recorded.data) == 2
        assert sum(length for _, _, length in recorded.reads) >= whole
        recorded.reads.clear()
        assert part.array(np.array([5, 290])).to_pylist() == LONG.take([5, 290]).to_pylist()
        assert sum(length for _, _, length in recorded.reads) < whole // 4


def test_a_file_that_ends_before_its_chunks_is_corrupt(store):
    key = key_of(store, 0)
    data = store.get(key)
    store.put(key, data[:-40])
    with (
        opened(store) as parts,
        pytest.raises(
            CorruptError, match=rf"{key}, column 'n': the file has {len(data) - 40} bytes; expected"
        ),
    ):
        parts.open(0, 0).array()


def test_a_file_that_is_gone_says_which_rows_are_lost(store):
    store.delete([key_of(store, 1)])
    version, pinned = pin(store)
    message = r"column 's': the file is missing; it has rows 0 to 300"
    with pinned, OpenColumns.whole(version) as columns:
        with pytest.raises(CorruptError, match=message):
            columns.check(1, 0)
        with pytest.raises(CorruptError, match=message):
            columns.columns([1], [RowSpan(0, 0, 300)])
        columns.check(0, 0)


@pytest.mark.parametrize("chunk", [0, 3])
@pytest.mark.parametrize("way", ["whole", "rows"])
def test_a_damaged_chunk_is_named_by_its_file_column_stream_and_number(store, chunk, way):
    with opened(store) as parts:
        stream = parts.open(4, 0).streams[VALUES]
        at, begin = stream._offsets[chunk] + 20, sum(stream.sizes[:chunk])
        key = parts.open(4, 0).key
    data = bytearray(store.get(key))
    data[at] ^= 1
    store.put(key, bytes(data))
    ends = np.cumsum([len(one) for one in LONG.to_pylist()])
    row = int(np.searchsorted(ends, begin, "right"))
    rows = slice(None) if way == "whole" else np.array([row])
    message = rf"{key}, column 'long', stream 'values', chunk {chunk}: crc32 is \w{{8}}, expected"
    with opened(store) as parts, pytest.raises(CorruptError, match=message):
        parts.open(4, 0).array(rows)


def test_the_values_of_codes_are_those_that_they_stand_for(store):
    with opened(store) as parts:
        text = parts.open(1, 0)
        assert (text.streams[LENGTHS].width, ITEMS_VALUES in text.streams) == (1, True)
        values = text.values_of_codes(1000)
        codes = text.codes([slice(0, ROWS)])
        assert values.take(pa.array(codes)).to_pylist() == WORDS.to_pylist()
        assert text.values_of_codes(len(values) - 1) is None
        assert parts.open(4, 0).values_of_codes(1000) is None


def test_a_slice_of_a_dictionary_has_its_items_once(store):
    with blz.open(store) as table:
        found = table.to_arrow(columns=["d"])["d"]
        assert found.num_chunks == 1
        assert found.to_pylist() == WORDS.to_pylist()
