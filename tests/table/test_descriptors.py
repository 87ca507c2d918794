"""Descriptors: a read closes all its files when it ends, however it ends.

Each test keeps the exceptions. They hold the frames of the read, like an exception in a reference
cycle before garbage collection. So only an explicit close frees the files.
"""

import gc
import os
import stat
import warnings
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from support.options import arguments

pytestmark = pytest.mark.usefixtures("own_files")

COLUMNS = [f"c{number}" for number in range(5)]
# Too large to be read at once and closed.
LARGE_FILES = {"row_group_rows": 20_000, "clevel": 0, "durability": "process"}
# A filter that statistics do not decide, so that the rows are read.
EVEN = pc.bit_wise_and(pc.field("c3"), 1) == 0


@pytest.fixture(autouse=True)
def _no_collector():
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def table(tmp_path):
    """Make a table of four row groups, one file of which gets damaged."""
    path = tmp_path / "t.blz"
    blz.to_blz(rows(80_000), path, **arguments(**LARGE_FILES))
    return path


@pytest.fixture
def pieces(tmp_path):
    """Make a table of three row groups that the next append merges."""
    path = tmp_path / "pieces.blz"
    for _ in range(3):
        blz.to_blz(rows(9_500), path, **arguments(mode="a", **LARGE_FILES))
    return path


def rows(count):
    """Return rows of small numbers, so that their columns can be widened; they follow no rule."""
    values = pa.array((number * 2_654_435_761 % (2**31 - 1) for number in range(count)), pa.int64())
    return pa.table(dict.fromkeys(COLUMNS, values)).set_column(3, "c3", values.cast(pa.int32()))


def open_files():
    """Return the number of regular files this process has open."""
    count = 0
    for fd in os.listdir("/dev/fd"):
        with suppress(OSError):  # The descriptor of the listing is closed by now.
            count += stat.S_ISREG(os.fstat(int(fd)).st_mode)
    return count


def files_of(path):
    """Return the number of data files of a table."""
    return len(list(path.glob("data/*/*.bin")))


def second_part(path):
    """Return the file of column c3 in the second row group."""
    return sorted((path / "data/col3").iterdir(), key=lambda file: int(file.name.strip("_.bin")))[1]


def lose(path):
    """Remove a file of column c3."""
    second_part(path).unlink()


def flip(path):
    """Flip a bit in the middle of a file of column c3."""
    file = second_part(path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _changed(table, path):
    with table.transaction() as changes:
        changes.update({"c0": pc.field("c3") + 1})


READS = {
    "read_blz": lambda table, path: blz.read_blz(path),
    "read_table": lambda table, path: blz.read_table(path),
    "read_blz with filters": lambda table, path: blz.read_blz(path, filters=EVEN),
    "read_table with filters": lambda table, path: blz.read_table(path, filters=EVEN),
    "a slice": lambda table, path: table[10:79_000],
    "take": lambda table, path: table.take([1, 30_000]),
    "a column": lambda table, path: table["c3"].to_numpy(),
    "to_batches": lambda table, path: list(table.to_batches(batch_rows=10_000)),
    "to_batches with filters": lambda table, path: list(table.to_batches(filters=EVEN)),
    "a stream": lambda table, path: pa.table(table),
    "a dataset": lambda table, path: table.dataset().to_table(filter=EVEN),
    "a scan": lambda table, path: list(table.dataset().scanner(columns=["c3"]).to_batches()),
    "count": lambda table, path: table.count(filters=EVEN),
    "update": lambda table, path: table.update({"c3": 1}, where=EVEN),
    "update of another column": lambda table, path: table.update({"c0": pc.field("c3") + 1}),
    "a transaction": _changed,
    "delete": lambda table, path: table.delete(EVEN),
    "truncate": lambda table, path: table.resize(30_000),
    "add_column": lambda table, path: table.add_column("new", pc.field("c3") + 1),
    "append of wider numbers": lambda table, path: table.append({"c3": [1 << 40]}, evolve=True),
    "compact by order": lambda table, path: table.compact(sort_by="c3"),
}


@pytest.mark.parametrize("damage", [lose, flip])
@pytest.mark.parametrize("read", READS)
def test_failed_reads_leave_no_descriptors(table, read, damage):
    damage(table)
    before, kept = open_files(), []
    for _ in range(2):
        with blz.open(table, mode="a") as opened:
            with pytest.raises((blz.CorruptError, pa.ArrowInvalid), match="col3") as failure:
                READS[read](opened, table)
            kept.append(failure)
            # A lock on its manifest pins the version; the table keeps the files that it read.
            assert open_files() <= before + 1 + files_of(table)
        assert open_files() == before


@pytest.mark.parametrize("damage", [lose, flip])
def test_row_groups_that_cannot_be_joined_leave_no_descriptors(pieces, damage):
    damage(pieces)
    before = open_files()
    with blz.open(pieces, mode="a", durability="process") as opened:
        with pytest.raises(blz.CorruptError, match="col3") as kept:
            opened.compact()
        assert open_files() == before + 1
        with pytest.warns(UserWarning, match="not merged: .*col3"):
            opened.append(rows(9_500))
        assert open_files() == before + 1
    del kept


@pytest.mark.parametrize("damage", [lose, flip])
@pytest.mark.parametrize("full", [True, False])
def test_a_verification_of_a_damaged_table_leaves_no_descriptors(table, full, damage):
    damage(table)
    before = open_files()
    with blz.open(table) as opened:
        reports = [opened.verify(full=full) for _ in range(3)]
        assert open_files() == before + 1
    assert all(bool(report) == (not full and damage is flip) for report in reports)


@pytest.mark.parametrize("damage", [lose, flip])
def test_a_read_that_skips_damage_leaves_no_descriptors(table, damage):
    damage(table)
    before = open_files()
    with warnings.catch_warnings(record=True, action="always") as told:
        frame = blz.read_blz(table, on_corrupt="skip")
    assert (len(frame), len(told)) == (60_000, 1)
    assert open_files() == before


def test_an_explanation_opens_no_file(table):
    lose(table)
    before = open_files()
    with blz.open(table) as opened:
        assert opened.explain(filters=EVEN)
        assert open_files() == before + 1


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_batches_read_in_part_leave_no_descriptors(table, end):
    before = open_files()
    with blz.open(table) as opened:
        batches = opened.to_batches(batch_rows=1000)
        next(batches)
        if end == "closed":
            batches.close()
        else:
            batches = None
        del batches
        assert open_files() <= before + 1 + files_of(table)
    assert open_files() == before


def test_batches_that_failed_hold_no_descriptors(table):
    lose(table)
    before = open_files()
    with blz.open(table) as opened:
        batches = opened.to_batches(batch_rows=20_000)
        with pytest.raises(blz.CorruptError, match="missing"):
            list(batches)
        assert open_files() <= before + 1 + files_of(table)
        del batches
    assert open_files() == before


def test_a_handle_closed_while_a_transaction_is_open_stays_closed_and_holds_nothing(table):
    before = len(os.listdir("/dev/fd"))
    handle = blz.open(table, "a")
    with handle.transaction() as tx:
        tx.append(rows(1))
        handle.close()
    assert len(os.listdir("/dev/fd")) == before
    with pytest.raises(blz.ClosedError, match="was closed"):
        handle.to_arrow()
    assert blz.read_table(table).num_rows == 80_001


def failing_stream():
    yield {"n": [1]}
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "call",
    [
        lambda path: blz.open(path, version=77),
        lambda path: blz.read_blz(path, version=77),
        lambda path: blz.create(path, {"n": "int64"}),
        lambda path: blz.to_blz({"n": [1]}, path, mode="x"),
        lambda path: blz.to_blz({"n": [1]}, path, mode="a"),
        lambda path: blz.to_blz(failing_stream(), path),
        lambda path: blz.to_blz(failing_stream(), path.with_name("new.blz")),
    ],
)
def test_calls_that_fail_at_once_leave_no_descriptors(table, call):
    before = len(os.listdir("/dev/fd"))
    with pytest.raises((blz.BlzError, ZeroDivisionError)) as kept:
        call(table)
    assert len(os.listdir("/dev/fd")) == before
    del kept
