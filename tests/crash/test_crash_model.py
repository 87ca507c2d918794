"""The crash model itself: it loses everything that may be lost, and keeps the rest."""

import os
from pathlib import Path

import pytest

from blztable.format import layout
from blztable.storage.local import LocalStore
from support.crash.model import RecordingDisk, crash_states, killed_state, read_state, write_state

OLD, NEW = b"the old content", b"the new content"
FILE = "t.blz/meta/sizes"


def recording(tmp_path, *, drop=None):
    """Return a prepared store with a flushed old value, and the disk that records from then on."""
    parent = tmp_path / "parent"
    parent.mkdir()
    before = LocalStore(parent / "t.blz")
    before.prepare(*layout.PREPARED)
    before.put("meta/sizes", OLD)
    disk = RecordingDisk(parent, drop=drop)
    return LocalStore(parent / "t.blz", disk=disk), disk


def replace_durably(store, disk):
    """Replace a file the safe way: temporary file, flush, rename, flush of the directory."""
    meta = store._directories._keep("meta").fd
    file = disk.create("new", meta)
    disk.write(file.fd, [NEW])
    disk.sync_file(file.fd)
    disk.close(file)
    disk.rename("new", "sizes", meta)
    disk.sync_directory(meta)
    disk.mark("returned")


def contents(disk, *, acknowledged, path=FILE):
    """Return all possible contents of `path` after a loss of power, before and after the return."""
    log = disk.log
    return {
        state.entries.get(path)
        for stop in range(len(log) + 1)
        if ("returned" in log.marked(stop)) is acknowledged
        for state in crash_states(log, stop)
    }


def test_a_file_replaced_with_all_flushes_is_always_old_or_new(tmp_path):
    store, disk = recording(tmp_path)
    replace_durably(store, disk)
    assert contents(disk, acknowledged=False) == {OLD, NEW}
    assert contents(disk, acknowledged=True) == {NEW}


def test_without_the_flush_of_the_file_its_content_may_be_lost(tmp_path):
    store, disk = recording(tmp_path, drop=lambda operation: operation.kind == "sync_file")
    replace_durably(store, disk)
    lost = contents(disk, acknowledged=True)
    assert lost == {NEW, b"", NEW[: len(NEW) // 2], bytes(len(NEW))}


def test_without_the_flush_of_the_directory_the_old_file_may_be_back(tmp_path):
    store, disk = recording(tmp_path, drop=lambda operation: operation.kind == "sync_directory")
    replace_durably(store, disk)
    assert contents(disk, acknowledged=True) == {OLD, NEW}


@pytest.mark.parametrize("dropped", [None, "sync_file", "sync_directory"])
def test_a_published_value_is_there_whole_after_the_acknowledgment(tmp_path, dropped):
    store, disk = recording(tmp_path, drop=lambda operation: operation.kind == dropped)
    store.publish("meta/manifest/1", NEW, durable=True)
    store.flush_names("meta/manifest")
    disk.mark("returned")
    found = contents(disk, acknowledged=True, path="t.blz/meta/manifest/1")
    before = contents(disk, acknowledged=False, path="t.blz/meta/manifest/1")
    if dropped is None:
        assert found == {NEW}
        assert before == {None, NEW}
    elif dropped == "sync_file":
        assert {b"", bytes(len(NEW)), NEW} < found
    else:
        assert found == {None, NEW}


def test_new_values_are_durable_after_a_flush_down_to_a_new_directory(tmp_path):
    store, disk = recording(tmp_path)
    store.put_new("data/col1/col2/x", [NEW])
    store.flush(["data/col1/col2/x"])
    disk.mark("returned")
    path = "t.blz/data/col1/col2/x"
    assert contents(disk, acknowledged=True, path=path) == {NEW}
    assert {None, b"", NEW} < contents(disk, acknowledged=False, path=path)


@pytest.mark.parametrize("level", ["t.blz/data", "t.blz/data/col1", "t.blz/data/col1/col2"])
def test_every_directory_on_the_way_needs_its_flush(tmp_path, level):
    store, disk = recording(tmp_path, drop=lambda operation: operation.path == level)
    store.put_new("data/col1/col2/x", [NEW])
    store.flush(["data/col1/col2/x"])
    disk.mark("returned")
    assert contents(disk, acknowledged=True, path="t.blz/data/col1/col2/x") == {None, NEW}


def test_a_flush_of_everything_makes_everything_durable(tmp_path):
    store, disk = recording(tmp_path)
    keys = [f"data/col1/{i}" for i in range(65)]
    for key in keys:
        store.put_new(key, [NEW])
    store.flush(keys)
    assert disk.log.operations[-1].kind == "sync_all"
    (state,) = crash_states(disk.log, len(disk.log))
    assert state.entries == read_state(disk.parent)


@pytest.mark.parametrize("dropped", [None, "", "t.blz", "t.blz/meta"])
def test_a_prepared_root_survives_and_needs_each_of_its_flushes(tmp_path, dropped):
    disk = RecordingDisk(tmp_path, drop=lambda operation: operation.path == dropped)
    LocalStore(tmp_path / "t.blz", disk=disk).prepare(*layout.PREPARED)
    whole = {
        "t.blz": None,
        "t.blz/data": None,
        "t.blz/meta": None,
        "t.blz/meta/manifest": None,
        "t.blz/meta/lock": b"",
        "t.blz/meta/flight": b"",
    }
    states = [state.entries for state in crash_states(disk.log, len(disk.log))]
    assert (states == [whole]) is (dropped is None)


def test_a_root_left_unflushed_by_a_killed_process_is_flushed_by_the_next_prepare(tmp_path):
    first = RecordingDisk(tmp_path, drop=lambda operation: True)
    LocalStore(tmp_path / "t.blz", disk=first).prepare(*layout.PREPARED)
    unflushed = first.log
    second = RecordingDisk(tmp_path)
    LocalStore(tmp_path / "t.blz", disk=second).prepare(*layout.PREPARED)
    unflushed.operations.extend(second.log.operations)
    (state,) = crash_states(unflushed, len(unflushed))
    assert state.entries == read_state(tmp_path)


def test_a_removed_name_may_be_back_until_the_directory_is_flushed(tmp_path):
    store, disk = recording(tmp_path)
    store.delete(["meta/sizes"])
    disk.mark("returned")
    assert contents(disk, acknowledged=True) == {OLD, None}
    store.flush_names("meta")
    (state,) = crash_states(disk.log, len(disk.log))
    assert FILE not in state.entries


def busy(store):
    store.reserve("data/col1")
    store.put_new("data/col1/a", [b"a", b"b"])
    store.put("meta/sizes", NEW)
    store.publish("meta/manifest/1", b"one", durable=True)
    store.flush(["data/col1/a"])
    store.put_new("data/col2/b", [b"b"])
    store.delete(["data/col1/a", "data/col1"])
    store.put("meta/sizes", b"once more")


def test_the_death_of_the_process_alone_leaves_what_is_really_there(tmp_path):
    store, disk = recording(tmp_path)
    busy(store)
    assert killed_state(disk.log, len(disk.log)).entries == read_state(disk.parent)
    states = list(crash_states(disk.log, len(disk.log)))
    assert states[0].entries == read_state(disk.parent)
    assert len(states) > 10


def test_states_are_different_and_the_same_every_time(tmp_path):
    store, disk = recording(tmp_path)
    busy(store)
    for stop in range(len(disk.log) + 1):
        states = list(crash_states(disk.log, stop))
        assert states == list(crash_states(disk.log, stop))
        assert all(a != b for i, a in enumerate(states) for b in states[:i])


def test_a_written_state_is_read_back_and_can_be_carried_on(tmp_path):
    store, disk = recording(tmp_path)
    busy(store)
    for number, state in enumerate(crash_states(disk.log, len(disk.log))):
        top = write_state(state, tmp_path / str(number))
        assert read_state(top) == state.entries
        again = RecordingDisk(top)
        assert [s.entries for s in crash_states(again.log, 0)] == [state.entries]


def test_a_dropped_flush_is_neither_done_nor_recorded(tmp_path, monkeypatch):
    done = []
    store, disk = recording(tmp_path, drop=lambda operation: operation.kind == "sync_directory")
    monkeypatch.setattr(os, "fsync", done.append)
    store.flush(["meta/sizes"])
    assert [operation.kind for operation in disk.log.operations] == ["sync_file"]
    assert len(done) == 1


def test_marks_say_what_was_acknowledged_at_a_stop(tmp_path):
    store, disk = recording(tmp_path)
    disk.mark("begun")
    store.reserve("data/col1")
    disk.mark("returned")
    assert len(disk.log) == 1
    assert disk.log.marked(0) == ["begun"]
    assert disk.log.marked(1) == ["begun", "returned"]


def test_paths_are_relative_to_the_directory_above_the_table(tmp_path):
    disk = RecordingDisk(Path(tmp_path))
    LocalStore(tmp_path / "t.blz", disk=disk).prepare(*layout.PREPARED)
    first, second, *_ = disk.log.operations
    assert (first.kind, first.path) == ("mkdir", "t.blz")
    assert (second.kind, second.path) == ("sync_directory", "")
