"""Late materialisation: a filtered read takes only the chunks that the remaining rows need."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support.recording_store import Recorded
from support.stores import write

pytestmark = pytest.mark.usefixtures("own_files", "own_process")

ROWS, GROUP, PAGE = 128, 64, 8
# A chunk is one page: eight rows of eight bytes.
CUTS = {"row_group_rows": GROUP, "page_rows": PAGE, "chunk_bytes": 64}
# Sorted, scattered, wide and scattered, and not requested.
TABLE = pa.table(
    {
        "key": np.arange(ROWS),
        "few": np.arange(ROWS) * 7 % 64,
        "other": np.arange(ROWS) * 11 % 64,
        "rest": np.arange(ROWS) * 5,
        "idle": np.arange(ROWS),
    }
)


@pytest.fixture
def store():
    memory = RamStore()
    write(memory, TABLE, **CUTS)
    with Recorded(memory).recording() as recorded:
        yield recorded


def pages(store, column):
    """Return the pages of a column that were read, by first row; each was read once."""
    found = store.chunks()
    assert set(found.values()) <= {1}, found
    return sorted(group * GROUP + page * PAGE for name, group, page in found if name == column)


def pages_of(rows):
    return sorted({row // PAGE * PAGE for row in rows})


ALL_PAGES = list(range(0, ROWS, PAGE))


def rows_where(flags):
    return np.flatnonzero(flags).tolist()


def read(store, given_, columns):
    """Return the remaining rows, read as one table."""
    return blz.read_table(store, columns=columns, filters=given_)


def streamed(store, given_, columns):
    with blz.open(store) as table, table.to_batches(columns, filters=given_) as batches:
        return pa.Table.from_batches(batches, batches.schema)


READS = pytest.mark.parametrize("read", [read, streamed])


@READS
def test_the_filters_column_is_read_where_its_statistics_leave_it_open(store, read):
    found = read(store, [("key", ">=", 13), ("key", "<=", 30)], ["rest"])
    assert found["rest"].to_pylist() == [row * 5 for row in range(13, 31)]
    # In the second page, 16 to 24, and in the others, statistics decide all rows.
    assert pages(store, "key") == [8, 24]
    assert pages(store, "rest") == [8, 16, 24]
    assert store.opened() == {("key", 0), ("rest", 0)}


@READS
def test_other_columns_are_read_in_pages_that_hold_a_row_left(store, read):
    few = TABLE["few"].to_numpy()
    left = rows_where(few == 3)
    found = read(store, [("few", "==", 3)], ["rest"])
    assert found["rest"].to_pylist() == [row * 5 for row in left]
    assert pages(store, "rest") == pages_of(left)
    assert pages(store, "idle") == pages(store, "key") == []


@READS
def test_a_step_is_evaluated_where_those_before_it_left_a_row(store, read):
    few, other = TABLE["few"].to_numpy(), TABLE["other"].to_numpy()
    left = rows_where((few == 3) & (other > 20))
    assert left
    # The step of `other` leaves more rows, so it is later, whichever is written first.
    for given_ in (
        [("few", "==", 3), ("other", ">", 20)],
        [("other", ">", 20), ("few", "==", 3)],
        (pc.field("other") > 20) & (pc.field("few") == 3),
    ):
        store.reads.clear()
        assert read(store, given_, ["rest"])["rest"].to_pylist() == [row * 5 for row in left]
        assert set(pages(store, "other")) <= set(pages_of(rows_where(few == 3)))
        assert set(pages(store, "few")) > set(pages(store, "other"))
        assert pages(store, "rest") == pages_of(left)


@READS
def test_of_steps_that_leave_as_much_the_narrower_column_is_first(read):
    table = TABLE.set_column(1, "few", TABLE["few"].cast(pa.int16()))
    memory = RamStore()
    write(memory, table, **CUTS)
    few = TABLE["few"].to_numpy()
    for given_ in (
        [("few", "==", 3), ("other", "==", 33)],
        [("other", "==", 33), ("few", "==", 3)],
    ):
        with Recorded(memory).recording() as store:
            read(store, given_, ["rest"])
            assert set(pages(store, "other")) <= set(pages_of(rows_where(few == 3)))


@READS
def test_where_no_row_is_left_nothing_else_is_read(store, read):
    given_ = [("few", "==", 3), ("other", "==", 3), ("key", "<", 100)]
    assert read(store, given_, ["rest", "idle"]).num_rows == 0
    assert {name for name, _ in store.opened()} == {"few", "other"}
    assert pages(store, "rest") == []


@READS
def test_steps_of_one_column_are_one(store, read):
    given_ = [("few", ">", 2), ("other", ">", 60), ("few", "<", 5), ("few", "!=", 4)]
    few, other = TABLE["few"].to_numpy(), TABLE["other"].to_numpy()
    left = rows_where((few == 3) & (other > 60))
    assert read(store, given_, ["key"])["key"].to_pylist() == left
    assert set(store.chunks().values()) == {1}
    with blz.open(store) as table:
        assert len(table.explain(filters=given_).steps) == 2


@READS
def test_a_column_that_the_filter_reads_and_that_is_returned_is_read_once(store, read):
    few, other = TABLE["few"].to_numpy(), TABLE["other"].to_numpy()
    left = rows_where((few < 9) & (other > 20))
    found = read(store, [("few", "<", 9), ("other", ">", 20)], ["other", "few", "rest"])
    assert found["other"].to_pylist() == other[left].tolist()
    assert found["few"].to_pylist() == few[left].tolist()
    # Each page was read once, which `pages` checks.
    assert pages(store, "few") == pages_of(rows_where(TABLE["key"].to_numpy() >= 0))
    assert pages(store, "rest") == pages_of(left)


@READS
@pytest.mark.parametrize("given_", [None, [("few", "<", 9)], [("rest", ">=", 0)]])
def test_a_column_asked_for_twice_is_read_once(store, read, given_):
    found = read(store, given_, ["rest", "key", "rest"])
    assert found.column_names == ["rest", "key", "rest"]
    assert found.column(0).equals(found.column(2))
    assert pages(store, "rest")


@pytest.mark.parametrize(
    ("given_", "rows"),
    [
        ([("key", "<", 0)], 0),
        ([("key", "<", GROUP)], GROUP),
        ([("key", ">=", 0)], ROWS),
        (pc.field("few").is_null(), 0),
        (pc.field("few").is_valid() & (pc.field("key") < GROUP), GROUP),
        ([[("key", "<", -5)], [("few", ">", 100)]], 0),
        (pc.scalar(True), ROWS),
    ],
    ids=str,
)
def test_where_the_records_decide_the_filters_columns_are_not_read(store, given_, rows):
    with blz.open(store) as table:
        assert table.count(filters=given_) == rows
        assert store.data == []
        assert table.to_arrow([], filters=given_).num_rows == rows
        assert store.data == []
        assert table.to_arrow(["rest"], filters=given_).num_rows == rows
        assert len(pages(store, "rest")) == rows // PAGE
        assert {name for name, _ in store.opened()} <= {"rest"}


def test_where_pages_decide_a_count_opens_no_file(store):
    with blz.open(store) as table:
        assert table.count(filters=[("key", ">=", 16), ("key", "<", 40)]) == 24
    assert store.opened() == set()


def test_a_count_reads_the_pages_that_are_open_of_the_filters_columns(store):
    with blz.open(store) as table:
        assert table.count(filters=[("key", ">=", 16), ("key", "<", 37)]) == 21
    assert store.opened() == {("key", 0)}
    assert store.chunks() == {("key", 0, 4): 1}


def test_a_count_of_all_reads_nothing(store):
    with blz.open(store) as table:
        store.reads.clear()
        assert table.count() == ROWS
    assert store.reads == []


def test_files_are_opened_once(store):
    read(store, [("few", "==", 3), ("other", ">", 20)], ["few", "other", "rest"])
    assert set(store.opens.values()) == {1}
    assert len(store.opens) == 6


def test_a_stream_opens_files_once_for_all_its_windows(store, tuned):
    tuned(window_rows=PAGE, window_bytes=1)
    found = streamed(store, [("few", "<", 60)], ["rest"])
    assert found["rest"].num_chunks > 2 * 2
    assert set(store.opens.values()) == {1}
    assert len(store.opens) == 4
    assert set(store.chunks().values()) == {1}


@READS
def test_a_chunk_of_several_pages_is_read_once(read):
    memory = RamStore()
    write(memory, TABLE, **{**CUTS, "chunk_bytes": 256})
    with Recorded(memory).recording() as store:
        few = TABLE["few"].to_numpy()
        found = read(store, [("few", "in", [3, 17, 40])], ["few", "key", "other"])
        assert found["key"].to_pylist() == rows_where(np.isin(few, [3, 17, 40]))
        assert set(store.chunks().values()) == {1}
