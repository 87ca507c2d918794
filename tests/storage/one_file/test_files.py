"""A table in one file: other processes, rewrites, and files that are no table."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.version import versions
from blztable.storage.one_file import records
from blztable.storage.one_file.listing import Listing
from blztable.storage.resolve import store_at
from support.processes import script

ROWS = {"n": [1, 2, 3], "text": ["a", None, "é"]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(ROWS, path, storage=blz.Storage(layout="file"))
    return path


def rows(path, **options):
    return blz.read_table(path, **options).to_pydict()


def test_a_table_is_one_file_and_stays_one(path):
    assert path.is_file()
    blz.to_blz({"n": [4], "text": ["d"]}, path, mode="a")
    blz.to_blz(ROWS, path)
    assert path.is_file()
    assert sorted(os.listdir(path.parent)) == ["t.blz"]
    assert [one.rows for one in blz.open(path).versions()] == [4, 3]


def test_a_table_keeps_its_layout(path, tmp_path):
    with pytest.raises(blz.TableExistsError, match="is a file, and a directory cannot replace it"):
        blz.to_blz(ROWS, path, storage=blz.Storage(layout="directory"))
    blz.to_blz(ROWS, tmp_path / "d.blz")
    with pytest.raises(blz.TableExistsError, match="is a directory, and a file cannot replace it"):
        blz.to_blz(ROWS, tmp_path / "d.blz", storage=blz.Storage(layout="file"))
    assert rows(path) == rows(tmp_path / "d.blz") == ROWS


def test_a_layout_is_one_of_two(tmp_path):
    with pytest.raises(ValueError, match="layout"):
        blz.to_blz(ROWS, tmp_path / "t.blz", storage=blz.Storage(layout="zip"))


# What is said of a file that is not replaced.
KEPT = r"is a file|is a Parquet file and is left as it is"


@pytest.mark.parametrize("content", [b"PAR1" * 100, b"text\n", b"blzr" + bytes(28), bytes(5000)])
def test_a_file_that_is_no_table_is_never_touched(tmp_path, content):
    path = tmp_path / "t.blz"
    path.write_bytes(content)
    with pytest.raises(blz.FormatError, match=r"holds no table|is a Parquet file"):
        blz.read_table(path)
    for mode in ("w", "a", "x"):
        with pytest.raises((blz.TableExistsError, blz.FormatError), match=KEPT):
            blz.to_blz(ROWS, path, mode=mode, storage=blz.Storage(layout="file"))
    assert path.read_bytes() == content


# Bug: mode="x" and pack replaced such files.
@pytest.mark.parametrize(
    "content", [b"b", b"blpk", bytes(4096), records.new_front("0" * records.ID_DIGITS)[:31]]
)
def test_a_few_bytes_that_anyone_may_have_written_are_not_replaced(tmp_path, content):
    path = tmp_path / "t.blz"
    path.write_bytes(content)
    blz.to_blz(ROWS, tmp_path / "source.blz")
    with pytest.raises(blz.TableExistsError, match="is a file"):
        blz.to_blz(ROWS, path, mode="x")
    with pytest.raises(blz.TableExistsError, match="is a file"):
        blz.create(path, {"n": "int64"})
    with pytest.raises(blz.TableExistsError, match="is a file"):
        blz.copy(tmp_path / "source.blz", path, layout="file")
    assert path.read_bytes() == content


@pytest.mark.parametrize("mode", ["w", "a", "x"])
def test_what_a_killed_creation_left_of_the_front_is_replaced(tmp_path, mode):
    path = tmp_path / "t.blz"
    path.write_bytes(records.new_front("0" * records.ID_DIGITS)[:40])
    blz.to_blz(ROWS, path, mode=mode)
    assert rows(path) == ROWS


def test_an_empty_file_is_taken_for_a_new_table(tmp_path):
    path = tmp_path / "t.blz"
    path.touch()
    with pytest.raises(blz.TableNotFoundError):
        blz.read_table(path)
    blz.to_blz(ROWS, path)
    assert rows(path) == ROWS


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(blz.StorageError, match="no such directory"):
        blz.to_blz(ROWS, tmp_path / "none" / "t.blz", storage=blz.Storage(layout="file"))


def test_a_creation_that_fails_leaves_no_file(tmp_path):
    def stream():
        yield pa.table(ROWS)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        blz.to_blz(stream(), tmp_path / "t.blz", storage=blz.Storage(layout="file"))
    assert os.listdir(tmp_path) == []


def test_a_change_that_fails_leaves_the_file_as_it_was(path):
    def failing(table):
        with table.transaction() as tx:
            tx.append(ROWS)
            raise RuntimeError

    before = path.read_bytes()
    with blz.open(path, "a") as table, pytest.raises(RuntimeError):
        failing(table)
    assert path.read_bytes() == before


READER = """
import sys
import blztable as blz
with blz.open(sys.argv[1]) as table:
    print("open", flush=True)
    sys.stdin.readline()
    print(table.to_arrow().to_pydict()["n"], table.version, flush=True)
    print(len(blz.open(sys.argv[1])), flush=True)
"""


def test_a_reader_keeps_its_version_while_another_process_rewrites_the_file(path):
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with reader:
        assert reader.stdout.readline() == "open\n"
        inode = path.stat().st_ino
        with blz.open(path, "a") as table:
            table.delete([("n", ">", 1)])
            assert table.vacuum(keep=1).versions == (1,)
        assert path.stat().st_ino != inode
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == "[1, 2, 3] 1\n"
        assert reader.stdout.readline() == "1\n"


def test_a_version_that_is_open_in_this_process_stays_through_a_rewrite(path):
    first = blz.open(path)
    with blz.open(path, "a") as table:
        table.delete([("n", ">", 1)])
        table.delete([("n", "==", 1)])
        assert table.vacuum(keep=1).pinned == (1,)
    assert first.to_arrow().to_pydict() == ROWS
    first.close()
    with blz.open(path, "a") as table:
        assert table.vacuum(keep=1).versions == (1,)


REMOVER = """
import sys
import blztable as blz
with blz.open(sys.argv[1], "a") as table:
    table.delete([("n", "==", 3)])
    table.vacuum(keep=1)
"""


# Bug: a handle whose version another process had removed could not commit any more.
def test_a_handle_commits_though_another_process_removed_its_version(path):
    with blz.open(path, "a") as table:
        script(REMOVER, path)
        assert table.to_arrow().to_pydict() == ROWS
        with pytest.raises(blz.TableNotFoundError, match="cannot be restored"):
            table.restore(1)
        table.append({"n": [4], "text": ["d"]})
        assert table.to_arrow()["n"].to_pylist() == [1, 2, 4]
        assert table.verify().is_intact


WRITER = """
import sys
import blztable as blz
with blz.open(sys.argv[1], "a") as table:
    with table.transaction() as tx:
        tx.append({"n": [9], "text": ["x"]})
        print("writing", flush=True)
        sys.stdin.readline()
"""


def test_one_process_writes_at_a_time_and_the_next_one_waits(path, monkeypatch):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer:
        assert writer.stdout.readline() == "writing\n"
        assert rows(path) == ROWS
        with pytest.raises(blz.BusyError, match="still locked"):
            store_at(path).lock("meta/lock", shared=False, timeout=0.05)
        writer.stdin.write("\n")
        writer.stdin.flush()
        blz.to_blz({"n": [10], "text": ["y"]}, path, mode="a")
    assert rows(path)["n"] == [1, 2, 3, 9, 10]


# Bug: a change that waited for another process held the lock of all threads of its own, so no
# thread could read, and vacuum waited longer than it was told.
def test_readers_go_on_while_a_thread_waits_for_another_process(path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with writer, ThreadPoolExecutor(2) as pool:
        assert writer.stdout.readline() == "writing\n"
        store = store_at(path)
        waiting = pool.submit(store.put, "meta/attributes", b"{}")
        while not store._changed._waiters:
            assert not waiting.done()
        assert rows(path) == ROWS
        assert not waiting.done()
        with blz.open(path, "a") as table, pytest.raises(blz.BusyError, match="for all 0"):
            table.vacuum(wait=0.2)
        writer.stdin.write("\n")
        writer.stdin.flush()
        waiting.result()
    assert store_at(path).get("meta/attributes") == b"{}"


def test_two_handles_of_a_process_write_as_in_a_directory(path):
    with blz.open(path, "a") as one, blz.open(path, "a") as other, one.transaction() as tx:
        tx.append({"n": [4], "text": ["d"]})
        other.append({"n": [5], "text": ["e"]})
    assert rows(path)["n"] == [1, 2, 3, 5, 4]


def test_a_forked_child_holds_no_lock_of_its_parent(path):
    assert script(FORKED, path) == "[1, 2, 3, 7, 8]"


FORKED = """
import os, sys
import blztable as blz
table = blz.open(sys.argv[1], "a")
tx = table.transaction()
tx.__enter__()
tx.append({"n": [7], "text": ["x"]})
pid = os.fork()
if pid == 0:
    try:
        tx.commit() if hasattr(tx, "commit") else tx.__exit__(None, None, None)
        os._exit(1)
    except blz.BlzError:
        os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
tx.__exit__(None, None, None)
pid = os.fork()
if pid == 0:
    blz.to_blz({"n": [8], "text": ["y"]}, sys.argv[1], mode="a")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(blz.read_table(sys.argv[1])["n"].to_pylist())
"""


def test_dead_bytes_go_when_they_are_most_of_the_file(path, tuned):
    tuned(dead_bytes=0)
    table = pa.table({"n": range(100_000)})
    blz.to_blz(table, path)
    size = path.stat().st_size
    with blz.open(path, "a") as handle:
        handle.configure(keep_versions=1, keep_seconds=0)
    for _ in range(20):
        blz.to_blz(table, path)
    assert path.stat().st_size < 3 * size
    assert blz.read_table(path) == table
    assert blz.open(path).verify().is_intact


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_rewrite_keeps_owner_group_and_mode_of_the_file(path):
    os.chown(path, 1234, 5678)
    path.chmod(0o640)
    with blz.open(path, "a") as table:
        table.delete([("n", ">", 1)])
        inode = path.stat().st_ino
        table.vacuum(keep=1)
    found = path.stat()
    assert found.st_ino != inode
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1234, 5678, 0o640)


KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.tuples(st.sampled_from(["add", "make", "remove", "copy"]), KEYS)))
def test_a_listing_knows_its_prefixes_after_any_changes(changes):
    listing = Listing()
    for change, key in changes:
        if change == "add":
            listing.add(key, records.Extent(100, 0))
        elif change == "make":
            listing.make(key)
        elif change == "remove":
            listing.remove(key)
        else:
            listing = listing.copy()
        for one in ("a", "b/c", key):
            there = [other for other in listing.prefixes() if f"{other}/".startswith(f"{one}/")]
            assert listing.has_prefix(one) == bool(there)


def test_a_copy_of_the_file_is_the_table(path, tmp_path):
    shutil.copy(path, tmp_path / "copy.blz")
    assert rows(tmp_path / "copy.blz") == ROWS


# Bug: damage in a record before a torn end would have hidden the commits behind it, and the next
# writer would have cut them off.
def test_damage_and_a_torn_end_hide_no_commit(path):
    for number in range(4, 8):
        blz.to_blz({"n": [number], "text": ["x"]}, path, mode="a")
    data = bytearray(path.read_bytes())
    data[len(records.new_front("0" * 32)) + 40] ^= 1
    path.write_bytes(bytes(data) + b"torn" * 1000)
    with pytest.warns(UserWarning, match="the last 4,000 bytes .* never finished, or damaged"):
        assert rows(path)["n"] == list(range(1, 8))
    blz.to_blz({"n": [8], "text": ["x"]}, path, mode="a")
    assert rows(path)["n"] == list(range(1, 9))


def test_a_commit_is_found_though_its_block_is_longer_than_the_first_read(tmp_path, tuned):
    tuned(tail_bytes=100)
    path = tmp_path / "t.blz"
    blz.to_blz(ROWS, path, storage=blz.Storage(layout="file"))
    blz.to_blz(ROWS, path, mode="a")
    assert rows(path)["n"] == [1, 2, 3, 1, 2, 3]


def test_opening_reads_two_ranges_at_most(path):
    blz.to_blz({"n": list(range(100_000)), "text": ["x"] * 100_000}, path)
    reads = []

    class Counted:
        def __init__(self, data):
            self.data = data

        def read_at(self, length, offset):
            reads.append((offset, length))
            return self.data[offset : offset + length]

        def size(self):
            return len(self.data)

        def read(self):
            raise AssertionError

    with blz.open(Counted(path.read_bytes())) as table:
        assert len(table) == 100_000
        assert table.schema.names == ["n", "text"]
        assert len(reads) <= 2
        table[:10]


def test_the_store_of_a_file_is_pickled_by_its_path(path):
    import pickle

    table = blz.open(path)
    again = pickle.loads(pickle.dumps(table))
    assert again.to_arrow().to_pydict() == ROWS
    assert versions.numbers(again._snapshot.version.store) == [1]


# Bug: the numbers were chosen before the lock was taken. Another process then made and removed
# files of these numbers, and readers of its versions found those of this process under them.
def test_a_transaction_gives_its_files_numbers_that_no_version_used(path):
    other = """
import sys
import blztable as blz
with blz.open(sys.argv[1], mode="a") as table:
    for _ in range(3):
        table.append({"n": [7], "text": ["x"]})
    table.compact()
    table.vacuum(keep=1)
    print(table._snapshot.version.head.next_file)
"""
    with blz.open(path, mode="a") as table:
        waiting = table.transaction()
        used = int(script(other, path))
        with waiting as tx:
            tx.append(ROWS)
            _, mine = tx._change_set.staged.bundles
        assert mine >= used > 2
