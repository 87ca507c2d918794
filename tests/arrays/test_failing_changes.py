"""A change that fails: whatever stops it, the file has the old array or the new one."""

import io
import os
import signal
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import blztable as blz
from blztable.arrays.writable import Writable
from blztable.format.chunk import ChunkHeader
from blztable.storage.disk import REAL_DISK
from blztable.storage.files import LocalFile
from blztable.storage.opening import open_file

VALUES = np.arange(5000)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "i8", chunk_shape=(1000,)) as array:
        array.append(VALUES)
    return path


def failing(monkeypatch, call, error, *, at):
    """Let one call of the disk fail, counted from 1; the calls before succeed."""
    real, calls = getattr(type(REAL_DISK), call), []

    def fail(self, *args):
        calls.append(args)
        if len(calls) == at:
            raise error
        return real(self, *args)

    monkeypatch.setattr(type(REAL_DISK), call, fail)


def is_whole(path):
    with blz.SuperChunk.open(path) as array:
        return array.verify() and np.array_equal(array, VALUES)


# A rewrite flushes the directory for the new file, and again after the rename.
@pytest.mark.parametrize("error", [OSError(5, "EIO"), KeyboardInterrupt()], ids=["EIO", "Ctrl-C"])
@pytest.mark.parametrize(
    ("call", "at"),
    [("sync_directory", 1), ("sync_directory", 2), ("rename", 1), ("sync_file", 1), ("close", 1)],
)
def test_a_rewrite_that_fails_never_removes_the_array(path, monkeypatch, call, at, error):
    array = blz.SuperChunk.open(path, "a")
    failing(monkeypatch, call, error, at=at)
    with suppress(blz.StorageError, KeyboardInterrupt):
        array.rewrite(reserve=100)
    monkeypatch.undo()
    array.close()
    assert [name.name for name in path.parent.iterdir()] == ["a.blp"]
    assert is_whole(path)


def test_a_rewrite_that_may_have_happened_closes_the_array(path, monkeypatch):
    array = blz.SuperChunk.open(path, "a")
    failing(monkeypatch, "sync_directory", OSError(5, "EIO"), at=2)
    with pytest.raises(blz.StorageError, match=r"a\.blp"):
        array.rewrite(reserve=100)
    with pytest.raises(blz.ClosedError):
        array.append(VALUES)


def test_a_rewrite_that_fails_before_the_rename_leaves_the_array_open(path, monkeypatch):
    with blz.SuperChunk.open(path, "a") as array:
        failing(monkeypatch, "sync_file", OSError(28, "no space left"), at=1)
        with pytest.raises(blz.StorageError):
            array.rewrite(reserve=100)
        array[4999] = 7
        assert array[-2:].tolist() == [4998, 7]


def test_ctrl_c_while_a_rewritten_file_takes_its_place_is_raised_behind_it(path, monkeypatch):
    real = type(REAL_DISK).rename

    def rename(self, *args):
        real(self, *args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(type(REAL_DISK), "rename", rename)
    with blz.SuperChunk.open(path, "a") as array:
        with pytest.raises(KeyboardInterrupt):
            array.rewrite(reserve=100)
        array[4999] = 4999
        array.append([1])
    assert blz.SuperChunk.open(path)[-2:].tolist() == [4999, 1]


@pytest.mark.parametrize("when", ["before", "while it writes"])
@pytest.mark.parametrize("other", ["a file", "nothing", "another directory"])
def test_a_rewrite_replaces_no_other_file(tmp_path, monkeypatch, when, other):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "a.blp"
    with blz.SuperChunk.create(path, "i8", chunk_shape=(1000,)) as array:
        array.append(VALUES)

    def move():
        if other == "another directory":
            folder.rename(tmp_path / "moved")
            folder.mkdir()
        else:
            path.rename(tmp_path / "moved.blp")
        if other != "nothing":
            with blz.SuperChunk.create(path, "i8") as new:
                new.append([7])

    array = blz.SuperChunk.open(path, "a")
    if when == "before":
        move()
    else:
        finish = Writable.finish

        def finishing(self):
            finish(self)
            monkeypatch.undo()
            move()

        monkeypatch.setattr(Writable, "finish", finishing)
    with pytest.raises(blz.ConflictError, match="removed, or replaced by another file"):
        array.rewrite()
    # It is still the array that was moved.
    array.append([1])
    array.close()
    [moved] = tmp_path.rglob("moved/*.blp" if other == "another directory" else "moved.blp")
    assert blz.SuperChunk.open(moved)[-2:].tolist() == [*VALUES[-1:], 1]
    if other != "nothing":
        assert blz.SuperChunk.open(path)[:].tolist() == [7]
    assert not [name for name in folder.iterdir() if name != path]


def test_an_array_that_is_replaced_while_it_is_opened_is_not_mixed_up(path, tmp_path, monkeypatch):
    with blz.SuperChunk.create(tmp_path / "b.blp", "i8") as array:
        array.append([7])

    def opening(name, dir_fd, where):
        (tmp_path / "b.blp").replace(path)
        return open_file(name, dir_fd, where)

    monkeypatch.setattr("blztable.storage.files.open_file", opening)
    with pytest.raises(blz.ConflictError, match="open it again"):
        blz.SuperChunk.open(path, "a")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("is_new", [True, False])
def test_a_forked_child_changes_nothing(path, tmp_path, is_new):
    if is_new:
        path = tmp_path / "b.blp"
        array = blz.SuperChunk.create(path, "i8", chunk_shape=(1000,))
        array.append(VALUES)
    else:
        array = blz.SuperChunk.open(path, "a")
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # The warning about forks with threads.
        child = os.fork()
    if not child:
        refused = 0
        try:
            for change in (
                lambda: array.append([1]),
                lambda: array.__setitem__(0, 1),
                lambda: array.resize(0),
                lambda: array.rewrite(),
                lambda: array.vlmeta.add("a", b""),
                lambda: array[0],
            ):
                try:
                    change()
                except blz.ReadOnlyError:
                    refused += 1
            array.close()
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
    assert path.read_bytes() == before
    array.close()
    assert is_whole(path)


class Pipe(io.BytesIO):
    """A file that can only be written."""

    def seekable(self):
        return False


def streamed(**options):
    """Return the bytes of an array that was written to a pipe."""
    file = Pipe()
    with blz.SuperChunk.create(
        file, "i8", chunk_shape=(1000,), attrs={"unit": "mm"}, **options
    ) as array:
        array.append(VALUES)
    return file.getvalue()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_stream_whose_change_fails_is_the_old_array(path, monkeypatch, at):
    path.write_bytes(streamed())
    array = blz.SuperChunk.open(path, "a")
    real, calls = LocalFile.write, []

    def write(self, place, data):
        calls.append(place)
        if len(calls) == at:
            raise blz.StorageError(28, "no space left")
        real(self, place, data)

    monkeypatch.setattr(LocalFile, "write", write)
    with pytest.raises(blz.StorageError):
        array.append(np.random.default_rng(0).integers(0, 1 << 60, 3000))
    monkeypatch.undo()
    for mode in ("r", "a"):
        with blz.SuperChunk.open(path, mode) as array:
            assert np.array_equal(array, VALUES)
            assert dict(array.attrs) == {"unit": "mm"}
    # The writer cut off what lay behind the trailer.
    assert path.read_bytes() == streamed()


@pytest.mark.parametrize("checksum", ["none", "crc32"])
def test_a_stream_is_found_before_whatever_lies_behind_it(checksum):
    data = streamed(checksum=checksum)
    other = streamed(checksum=checksum, meta={"pet": b"cat"})
    for rest in (b"x", bytes(40), other[-150:], data[-16:], b"blztrail" * 9):
        with blz.SuperChunk.open(data + rest) as array:
            assert np.array_equal(array, VALUES)
        with pytest.raises(blz.FormatError, match="it was finished"):
            blz.SuperChunk.recover(data + rest)


@pytest.mark.parametrize("place", [-1, -9, -13, -17, -150])
def test_a_stream_with_a_damaged_trailer_is_recovered(place):
    data = bytearray(streamed())
    data[place] ^= 1
    with pytest.raises(blz.CorruptError, match="never finished; 5 chunks are whole"):
        blz.SuperChunk.open(bytes(data))
    assert np.array_equal(blz.SuperChunk.recover(bytes(data)), VALUES)


@pytest.mark.parametrize("nbytes", [0, 7, 799, 808, 8000, 1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("chunk_shape", [(100, 3), (100, 2)])
def test_rows_are_recovered_only_from_chunks_of_the_right_sizes(nbytes, chunk_shape):
    file = io.BytesIO()
    options = {"chunk_shape": chunk_shape, "checksum": "none"}
    array = blz.SuperChunk.create(file, "i8", (0, 3), **options)
    array.append(VALUES[:750].reshape(250, 3))
    array.append(array[:50])
    offsets = array._opened.array.offsets
    data = bytearray(file.getvalue())
    assert blz.SuperChunk.recover(bytes(data)).shape == (300, 3)
    header = ChunkHeader.decode(data[offsets[-1] :])
    lie = replace(header, nbytes=nbytes).encode()
    data[offsets[-1] : offsets[-1] + len(lie)] = lie
    with blz.SuperChunk.recover(bytes(data)) as found:
        assert np.array_equal(found, VALUES[:600].reshape(200, 3))
        assert found.verify()
