"""The log: what `logging.getLogger("blztable")` tells of a table."""

import logging
import os
import random
import re

import pytest

import blztable as blz
from blztable.storage import opening
from blztable.storage.local import LocalStore
from support.operations import meanwhile


@pytest.fixture(autouse=True)
def all_levels(caplog):
    caplog.set_level(logging.DEBUG, "blztable")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": range(3000), "b": range(3000)}, path, storage=blz.Storage(row_group_rows=1000))
    return path


def told(caplog, level=logging.INFO):
    """Return the messages of a level since the last call."""
    messages = [one.getMessage() for one in caplog.records if one.levelno == level]
    caplog.clear()
    return messages


def test_every_record_is_of_the_package_and_names_the_table(path, caplog):
    with blz.open(path, mode="a") as t:
        t.append({"a": [1], "b": [2]})
        t.to_pandas()
        t.vacuum(keep=1)
    assert len(caplog.records) >= 5
    for record in caplog.records:
        assert record.name.startswith("blztable.")
        assert record.getMessage().startswith(f"{path}: ")


def test_a_commit_is_told_with_its_version_and_rows(tmp_path, caplog):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": range(3000), "b": range(3000)}, path, storage=blz.Storage(row_group_rows=1000))
    (line,) = told(caplog)
    message = f"{path}: version 1: create, 3,000 rows appended; 3000 rows, 3 row groups"
    assert re.fullmatch(rf"{re.escape(message)}; \d+\.\d+ s", line)
    with blz.open(path, mode="a") as t:
        t.delete([("a", "<", 1500)])
        message = f"{path}: version 2: delete, 1,500 rows deleted; 1500 rows, 2 row groups; "
        assert told(caplog)[0].startswith(message)
        for _ in range(40):
            t.append({"a": [1], "b": [2]})
    told_of = " | ".join(told(caplog))
    assert "version 3: append, 1 row appended; 1501 rows" in told_of
    assert ": merge; " in told_of


def test_a_read_tells_nothing_but_its_time(path, caplog):
    told(caplog)
    blz.read_blz(path, columns=["a"], filters=[("a", "<", 10)])
    [time] = [one for one in told(caplog, logging.DEBUG) if " read " in one]
    assert time.startswith(f"{path}: read 10 rows of 1 columns in 0.")
    assert not told(caplog)


def test_bytes_and_times_are_told_in_detail(tmp_path, caplog):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": range(3000)}, path)
    with blz.open(path) as t:
        cbytes = t.cbytes
    detail = told(caplog, logging.DEBUG)
    assert any(f"version 1: {cbytes} bytes in columns" in one for one in detail)
    assert any("flushed" in one and "new files in 0." in one for one in detail)


def changed_meanwhile(path, change):
    """Delete a row of the first row group, while another handle makes a change."""

    def theirs():
        with blz.open(path, mode="a") as other:
            change(other)

    with blz.open(meanwhile(LocalStore(path), theirs), mode="a") as t:
        t.delete([("a", "==", 1)])


def test_a_commit_before_this_one_is_told(path, caplog):
    changed_meanwhile(path, lambda t: t.append({"a": [-1], "b": [2]}))
    assert any(
        "version 2 came before this delete, which is applied to it" in one for one in told(caplog)
    )


def test_a_conflict_is_told_and_that_the_change_is_made_again(path, caplog):
    changed_meanwhile(path, lambda t: t.delete([("a", "==", 2)]))
    messages = told(caplog)
    assert f"{path}: version 2 conflicts with this delete" in messages
    message = f"{path}: version 3: delete, 1 row deleted; 2998 rows, 3 row groups; "
    assert messages[-1].startswith(message)


def test_removed_versions_are_told(path, caplog):
    with blz.open(path, mode="a") as t:
        t.configure(keep_versions=1)
        t.update({"b": 1})
        t.to_arrow()
    with blz.open(path, mode="a") as t:
        t.update({"b": 2})
        t.vacuum(keep=1)
    messages = told(caplog)
    assert any("removed versions [" in one and " files of theirs" in one for one in messages)
    assert any("vacuum removed versions [" in one and " bytes; " in one for one in messages)


def test_rows_that_are_left_out_are_told(path, caplog):
    words = ["".join(random.choices("abcdefghijk", k=9)) for _ in range(3000)]
    blz.to_blz({"a": words}, path, mode="w", storage=blz.Storage(row_group_rows=1000))
    told(caplog)
    for file in (path / "data").glob("*/*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.warns(UserWarning, match="left out") as warned:
        blz.read_blz(path, on_corrupt="skip")
    losses = [str(one.message) for one in warned]
    assert losses
    messages = told(caplog)
    assert all(f"{path}: {one}" in messages for one in losses)


def test_nothing_is_printed_by_default(path, capfd):
    logging.getLogger("blztable").setLevel(logging.NOTSET)
    blz.read_blz(path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [13, 1])
def test_a_file_that_may_not_be_read_is_a_permission_error(number):
    error = opening.unreadable(OSError(number, os.strerror(number)), "t.blz")
    assert isinstance(error, PermissionError)
    assert isinstance(error, blz.StorageError)
    assert (error.errno, error.filename) == (number, "t.blz")
