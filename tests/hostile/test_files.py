"""Files and locks from an attacker: our error, no endless wait, no read of another file.

Threats 1, 2, 17 and 27 to 30 of the model. See also `damage/test_each_file.py` for damaged files,
and `storage/test_local.py` for opening and locks; names of columns are in `test_schemas.py`.
"""

import os
import socket
import threading
import zipfile

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.storage.local import LocalStore
from support.hostile_reader import assert_read, assert_refused, make
from support.stores import read

pytestmark = pytest.mark.usefixtures("own_files")

NUMBERS = pa.table({"x": pa.array([None, *range(15)], "i8")})


@pytest.fixture
def path(tmp_path):
    return make(tmp_path / "t.blz", NUMBERS)


# Files: threats 1, 2, 17, 27 to 29.


def a_socket(file) -> None:
    at = os.getcwd()
    os.chdir(file.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(file.name)
    finally:
        os.chdir(at)


@pytest.mark.parametrize(
    "what",
    [
        lambda file: file.symlink_to(file.parent / "kept"),
        lambda file: file.symlink_to("/dev/zero"),
        lambda file: file.symlink_to("/etc/passwd"),
        os.mkfifo,
        os.mkdir,
        a_socket,
    ],
    ids=["link", "device", "outside", "fifo", "directory", "socket"],
)
@pytest.mark.parametrize("key", ["data/col0/__1__.bin", "meta/manifest/00000000000000000001"])
def test_what_is_no_file_of_the_table_is_neither_read_nor_waited_for(path, key, what):
    file = path / key
    file.rename(file.parent / "kept")
    what(file)
    assert_refused(path, blz.CorruptError, key)


def test_a_file_swapped_for_another_of_its_size_is_told(tmp_path):
    """Each file is intact, and has the rows and stream sizes of the other one."""
    path = make(tmp_path / "t.blz", pa.table({"x": range(8), "y": range(1, 9)}))
    [one] = (path / "data/col0").iterdir()
    [other] = (path / "data/col1").iterdir()
    first, second = one.read_bytes(), other.read_bytes()
    assert len(first) == len(second)
    one.write_bytes(second)
    other.write_bytes(first)
    assert_refused(path, blz.CorruptError, "crc32 is")


class Moving(LocalStore):
    """A table that changes between the read of a file's front and the read of its chunks."""

    def __init__(self, root, change) -> None:
        super().__init__(root)
        self._change = change

    def open(self, key, size=None):
        if not key.startswith("data/"):
            return super().open(key)
        return MovingReader(super().open(key), lambda: self._change(os.path.join(self.name, key)))


class MovingReader:
    def __init__(self, reader, change) -> None:
        self._reader, self._change = reader, change
        self.size, self.read, self.close = reader.size, reader.read, reader.close

    def read_into(self, offset, buffer):
        self._change()
        return self._reader.read_into(offset, buffer)


def overwrite(file) -> None:
    with open(file, "r+b") as opened:
        opened.seek(-9000, os.SEEK_END)
        opened.write(os.urandom(4096))


@pytest.mark.parametrize("length", [0, 1, 64, 40_000])
def test_a_file_cut_while_it_is_read_is_an_error_and_no_signal(tmp_path, length):
    noise = np.random.default_rng(1).integers(0, 1 << 62, 50_000)
    path = make(tmp_path / "t.blz", pa.table({"x": noise}))
    version, pinned = versions.pin(Moving(path, lambda file: os.truncate(file, length)))
    with pinned, pytest.raises(blz.CorruptError, match="the file has"):
        read(version)


def test_a_file_changed_while_it_is_read_is_told(tmp_path):
    noise = np.random.default_rng(1).integers(0, 1 << 62, 50_000)
    path = make(tmp_path / "t.blz", pa.table({"x": noise}))
    version, pinned = versions.pin(Moving(path, overwrite))
    with pinned, pytest.raises(blz.CorruptError, match="crc32 is"):
        read(version)


def test_an_archive_in_place_of_a_table_is_not_opened(tmp_path):
    path = tmp_path / "t.blz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../evil", b"")
    assert_refused(path, blz.FormatError, "holds no table")
    assert [file.name for file in tmp_path.iterdir()] == ["t.blz"]


# Locks: threat 30.


@pytest.mark.parametrize("key", ["meta/lock", "meta/flight"])
def test_a_reader_makes_no_lock(path, key):
    (path / key).unlink()
    assert_read(path)
    assert not (path / key).exists()


@pytest.mark.parametrize("key", ["meta/lock", "meta/flight"])
def test_a_lock_that_is_a_link_is_not_followed(path, tmp_path, key):
    (path / key).unlink()
    (path / key).symlink_to(tmp_path / "made")
    with pytest.raises(blz.BlzError, match=key):
        blz.to_blz(NUMBERS, path)
    assert not (tmp_path / "made").exists()
    assert_read(path)


def test_a_lock_that_is_never_let_go_is_waited_for_so_long_and_no_longer(path, tuned):
    tuned(lock_seconds=0.05)
    key = "meta/manifest/00000000000000000001"
    with LocalStore(path).lock(key, shared=False, timeout=1):
        done = []
        reader = threading.Thread(target=lambda: done.append(outcome_of(path)))
        reader.start()
        reader.join(20)
    assert done == [blz.BusyError]


def outcome_of(path):
    try:
        blz.read_table(path)
    except blz.BlzError as error:
        return type(error)
    return None
