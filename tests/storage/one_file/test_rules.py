"""Rules of a table in one file that nothing else breaks when they are taken out."""

import errno
import fcntl
import os
from dataclasses import replace

import pytest

import blztable as blz
from blztable.storage.disk import Disk
from blztable.storage.files import LocalFile, MemoryFile
from blztable.storage.one_file import commits, identity, records
from blztable.storage.one_file.listing import Listing
from blztable.storage.one_file.records import Extent
from blztable.storage.one_file.store import OneFileStore, at
from blztable.storage.one_file.writing import Writing
from blztable.storage.store import Damaged
from support.stores import fork

FILE = blz.Storage(layout="file")


def foot_of(data):
    end = len(data) - records.SEAL_BYTES
    return end, records.decode_foot(data[end - records.FOOT_BYTES : end], end)


@pytest.fixture
def path(tmp_path):
    blz.to_blz({"n": [1, 2]}, tmp_path / "t.blz", storage=FILE)
    return tmp_path / "t.blz"


@pytest.fixture
def other(tmp_path):
    blz.to_blz({"n": [7]}, tmp_path / "other.blz", storage=FILE)
    return tmp_path / "other.blz"


def test_a_foot_whose_block_begins_at_an_earlier_record_is_no_foot(path):
    data = path.read_bytes()
    end, foot = foot_of(data)
    first = len(records.new_front("0" * records.ID_DIGITS))
    block = data[first : end - records.FOOT_BYTES]
    lied = records.encode_foot(replace(foot, block=first, previous=0), [block])
    assert first < foot.block
    with pytest.raises(blz.BlzError):
        blz.read_table(data[:first] + block + lied + data[end:])


def test_a_seal_behind_the_damaged_head_of_an_index_is_found_before_torn_bytes(path):
    with blz.open(path, "a") as t:
        t.append({"n": [3]})
    data = bytearray(path.read_bytes())
    _, foot = foot_of(data)
    data[foot.index - records.HEAD_BYTES] ^= 1
    for torn in (b"", b"torn" * 99):
        with pytest.raises(blz.CorruptError, match="the newest commit of the file is damaged"):
            blz.read_table(bytes(data) + torn)


def test_a_file_that_takes_the_path_right_before_the_lock_is_not_written(path, other, monkeypatch):
    store, theirs, lock = at(path), other.read_bytes(), LocalFile.lock
    assert store.list_names("")

    def replaced_first(self, *args, **options):
        if other.exists():
            os.replace(other, path)
        return lock(self, *args, **options)

    monkeypatch.setattr(LocalFile, "lock", replaced_first)
    with pytest.raises(blz.ConflictError, match="replaced by another file"):
        store.put("meta/more", b"1")
    assert path.read_bytes() == theirs


def test_a_rewrite_takes_not_the_place_of_another_file(path, other, monkeypatch):
    theirs, rewrite = other.read_bytes(), Writing.rewrite
    blz.to_blz({"n": [3]}, path, mode="w")

    def replaced_first(self):
        os.replace(other, path)
        rewrite(self)

    monkeypatch.setattr(Writing, "rewrite", replaced_first)
    with blz.open(path, "a") as t, pytest.raises(blz.ConflictError, match="replaced by another"):
        t.vacuum(keep=1)
    assert path.read_bytes() == theirs


def test_a_record_that_names_another_position_is_no_record():
    front = records.new_front("0" * records.ID_DIGITS)
    for moved in (0, 8):
        file = MemoryFile(front + b"".join(records.record(len(front) + moved, "data/a", [b"1"])))
        assert [one.key for one in commits.records(file, len(front))] == ["data/a"] * (not moved)


def listed(**values):
    listing = Listing()
    for key, extent in values.items():
        listing.add(f"{key}/v", extent)
    return listing.encode()


def test_an_index_that_names_bytes_behind_its_end_is_damaged():
    data = listed(a=Extent(10, 5))
    assert Listing.decode(data, 15).find("a/v") == (10, 5)
    with pytest.raises(Damaged, match="behind its end"):
        Listing.decode(data, 14).find("a/v")


def test_an_index_whose_values_are_more_than_the_bytes_before_it_is_damaged_at_once():
    data = listed(a=Extent(0, 10), b=Extent(0, 10))
    assert Listing.decode(data, 20).nbytes == 20
    with pytest.raises(Damaged, match="do not belong together"):
        Listing.decode(data, 19)


def test_an_index_with_two_equal_names_is_damaged():
    listing = Listing()
    listing.add("a/x", Extent(1, 2))
    listing.add("a/y", Extent(3, 2))
    data = listing.encode()
    assert b'["x","y"]' in data
    with pytest.raises(Damaged, match="texts that differ"):
        Listing.decode(data.replace(b'["x","y"]', b'["x","x"]'), 10).find("a/x")


def test_a_damaged_value_is_still_told_after_a_rewrite(path):
    at(path).put("meta/mine", b"whole value" * 9)
    # A value of the newest commit is covered by its foot.
    at(path).put("meta/next", b"")
    data = path.read_bytes()
    damaged = path.with_name("damaged.blz")
    damaged.write_bytes(data.replace(b"whole value", b"whole-value", 1))
    store = at(damaged)
    for _ in range(2):
        assert [key for key, _ in store.problems(["meta/mine"])] == ["meta/mine"]
        store.put("meta/dead", b"1" * 9999)
        store.delete(["meta/dead"])
        store.reclaim()
    assert damaged.stat().st_size < len(data) + 2000


def test_a_file_of_which_a_twentieth_are_old_indexes_is_rewritten_though_no_value_was_removed(path):
    store = at(path)
    store.reclaim()
    for number in range(20):
        store.put(f"meta/{number}", b"1" * 50)
    size, live = path.stat().st_size, store._listing().nbytes
    assert size - live > size // 20
    store.reclaim()
    assert path.stat().st_size < size // 2
    assert store.get("meta/7") == b"1" * 50


INDEXES = {
    "a value": lambda at, text: records.record(at, "", [text], records.VALUE),
    "a key": lambda at, text: records.record(at, text.decode(), [], records.INDEX),
    "shorter": lambda at, text: [*records.record(at, "", [text[:-1]], records.INDEX), text[-1:]],
}


@pytest.mark.parametrize("case", ["nothing", "previous", *INDEXES])
def test_a_foot_behind_an_index_that_is_no_record_of_an_index_is_no_foot(path, case):
    data = path.read_bytes()
    end, foot = foot_of(data)
    begin, behind = foot.index - records.HEAD_BYTES, end - records.FOOT_BYTES
    block = data[foot.block : behind]
    if case in INDEXES:
        index = b"".join(INDEXES[case](begin, data[foot.index : behind]))
        block = data[foot.block : begin] + index
    elif case == "previous":
        foot = replace(foot, previous=foot.block + 1)
    lied = data[: foot.block] + block + records.encode_foot(foot, [block]) + data[end:]
    if case == "nothing":
        assert lied == data
        return
    with pytest.raises(blz.BlzError):
        blz.read_table(lied)


def test_a_creation_that_fails_leaves_the_empty_file_that_was_there(tmp_path):
    def failing():
        yield {"n": [1]}
        raise LookupError

    path = tmp_path / "mine.blz"
    path.touch()
    with pytest.raises(LookupError):
        blz.to_blz(failing(), path, storage=FILE)
    assert path.exists()


def test_a_child_that_lives_on_keeps_no_lock_of_the_file(path, tuned):
    tuned(lock_seconds=0.5)
    reading, writing = os.pipe()
    with blz.open(path, "a") as t, t.transaction() as tx:
        tx.append({"n": [3]})
        child = fork()
        if child == 0:
            os.read(reading, 1)
            os._exit(0)
    try:
        blz.to_blz({"n": [4]}, path, mode="a")
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
    assert blz.read_table(path)["n"].to_pylist() == [1, 2, 3, 4]


def test_a_rewritten_file_ends_with_a_seal_so_damage_of_its_commit_is_told(path):
    blz.to_blz({"n": [3]}, path, mode="w")
    with blz.open(path, "a") as t:
        t.vacuum(keep=1)
    data = bytearray(path.read_bytes())
    end, _ = foot_of(data)
    assert records.decode_seal(data[end:], end) == end
    data[end - 20] ^= 1
    with pytest.raises(blz.CorruptError, match="the newest commit"):
        blz.read_table(bytes(data) + b"torn" * 99)


def test_an_empty_prefix_stays_through_a_rewrite(path):
    store = at(path)
    assert store.reserve("data/col77")
    size = path.stat().st_size
    store.put("meta/dead", b"1" * 9999)
    store.delete(["meta/dead"])
    store.reclaim()
    assert path.stat().st_size < size + 999
    assert not store.reserve("data/col77")
    assert "col77" in store.list_names("data")


class Unflushed(Disk):
    """A disk whose first flush fails."""

    calls = 0

    def sync_file(self, fd):
        self.calls += 1
        if self.calls == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_file(fd)


def test_a_file_whose_flush_failed_is_not_rewritten_before_its_writer_has_ended(path):
    store = OneFileStore(LocalFile(path, disk=Unflushed()))
    inode = path.stat().st_ino
    with blz.open(store, "a") as t:
        transaction = t.transaction()
        transaction.__enter__().append({"n": [3] * 999})
        with pytest.raises(blz.StorageError, match="flushing"):
            store.flush_names("data")
        with pytest.raises(blz.StorageError, match="a write or a flush failed"):
            store.reclaim()
        transaction.__exit__(ValueError, ValueError(), None)
    assert path.stat().st_ino == inode
    assert blz.read_table(path)["n"].to_pylist() == [1, 2]


def test_a_reader_that_finds_no_commit_while_a_writer_cuts_the_file_looks_again(path, monkeypatch):
    found, newest = [], identity.newest

    def cut_meanwhile(*args):
        found.append(None if not found else newest(*args))
        if len(found) == 1:
            with path.open("ab") as file:
                file.write(b"torn")
        return found[-1]

    monkeypatch.setattr(identity, "newest", cut_meanwhile)
    assert OneFileStore(LocalFile(path)).list_names("data")
    assert len(found) == 2


def test_no_byte_is_written_before_the_file_is_locked(tmp_path, tuned):
    tuned(lock_seconds=0.2)
    path = tmp_path / "empty.blz"
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(blz.BusyError):
            blz.to_blz({"n": [1]}, path, storage=FILE)
        assert path.stat().st_size == 0
    blz.to_blz({"n": [1]}, path, storage=FILE)
    assert blz.read_table(path).to_pydict() == {"n": [1]}


def test_a_file_that_has_a_value_is_not_withdrawn(tmp_path):
    path = tmp_path / "new.blz"
    store = at(path)
    assert store.prepare(["data"], [], durable=False)
    store.put("meta/mine", b"1")
    store.withdraw()
    assert path.exists()
    store.delete(["meta/mine"])
    store.withdraw()
    assert not path.exists()
