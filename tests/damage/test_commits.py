"""Commits on a damaged table: the damage is reported or replaced, never sealed as sound."""

import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.format import layout
from blztable.storage.local import LocalStore
from support.crash.model import RecordingDisk, crash_states, write_state

pytestmark = pytest.mark.usefixtures("own_files")


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# Bug: a commit of attributes copied damaged records and gave them a valid checksum.
def test_attributes_do_not_make_damaged_records_look_sound(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2, 3]}, path)
    manifest = path / layout.manifest(1)
    flip(manifest, -9)
    with blz.open(path, "a") as table, pytest.raises(blz.CorruptError, match="crc32"):
        table.attrs["x"] = 1
    assert versions.numbers(LocalStore(path)) == [1]


# Bug: a replacement with durability="full" failed to flush the lost files of the version before it.
@pytest.mark.parametrize("what", ["part", "line"])
def test_a_damaged_table_that_was_never_flushed_can_be_replaced(tmp_path, what):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2, 3]}, path, durability="process")
    if what == "part":
        (path / layout.part((0,), 1)).unlink()
    else:
        flip(path / layout.manifest(1), -20)
    blz.to_blz({"a": [4]}, path)
    assert blz.read_table(path).to_pydict() == {"a": [4]}


# Bug: such a replacement did not flush the directories that lead to the table.
def test_a_lasting_replacement_of_a_damaged_hasty_table_flushes_the_way_to_it(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    path = parent / "t.blz"
    disk = RecordingDisk(parent)
    store = LocalStore(path, disk=disk)
    blz.to_blz({"a": [1, 2, 3]}, store, durability="process")
    (path / layout.manifest(1)).write_bytes(b"")
    blz.to_blz({"a": [4]}, store)
    for number, state in enumerate(crash_states(disk.log, len(disk.log))):
        found = write_state(state, tmp_path / str(number)) / "t.blz"
        assert blz.read_table(found).to_pydict() == {"a": [4]}, state


# Bug: a commit that needs a lost file ended in KeyNotFound, not in CorruptError.
def test_a_commit_on_a_table_that_lost_an_unflushed_file_is_told(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2, 3]}, path, durability="process")
    (path / layout.part((0,), 1)).unlink()
    with blz.open(path, "a") as table, pytest.raises(blz.CorruptError, match="missing"):
        table.attrs["x"] = 1


# Bug: a table whose empty lock file was not copied could not be written.
def test_a_table_without_its_empty_lock_file_is_written_all_the_same(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    (path / layout.LOCK).unlink()
    blz.to_blz({"a": [2]}, path)
    assert blz.read_table(path).to_pydict() == {"a": [2]}
