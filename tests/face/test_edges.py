"""The edges: very wide, very long, empty, huge; full and read-only disks; strangers' directories.

Threads, forks and pickles of one handle too. Interrupts have a file of their own.
"""

import errno
import fcntl
import itertools
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage import descriptors
from blztable.storage.disk import Disk
from blztable.storage.local import LocalStore
from storage.test_local import as_ordinary_user
from support.arrow_strategies import PLAIN
from support.bit_equality import same, same_table

OLD = pa.table({"n": [1, 2], "text": ["a", None]})
NEW = pa.table({"x": np.arange(40_000), "y": np.arange(40_000) * 0.5, "b": [True] * 40_000})
# What a creation makes first and leaves behind.
PREPARED = {"data", "meta", "meta/flight", "meta/lock", "meta/manifest"}


class CountingStore(LocalStore):
    """Counts the files of columns that are opened."""

    def __init__(self, path):
        super().__init__(path)
        # A list, for threads that add to a number at the same time lose some.
        self._keys = []

    @property
    def opened(self):
        return len(self._keys)

    def open(self, key):
        if key.startswith("data/"):
            self._keys.append(key)
        return super().open(key)


# Width and length


def wide(columns: int) -> pa.Table:
    return pa.table({f"c{i}": pa.array([i, i + 1], "i4") for i in range(columns)})


def check_width(path, columns: int) -> None:
    table = wide(columns)
    blz.to_blz(table, path, durability="process")
    store = CountingStore(path)
    with blz.open(store) as opened:
        assert opened.schema == table.schema
        assert len(repr(opened).splitlines()) < 50
        name = f"c{columns // 2}"
        assert opened[name].to_arrow() == table[name]
        assert store.opened == 1
        assert opened.to_arrow([name, "c0"]) == table.select([name, "c0"])


def test_a_table_of_5_000_columns_is_written_and_read(tmp_path):
    check_width(tmp_path / "t.blz", 5000)
    assert blz.read_table(tmp_path / "t.blz") == wide(5000)
    with blz.open(tmp_path / "t.blz") as table:
        assert table.head(1) == wide(5000).slice(0, 1)
        assert table.to_pandas().shape == (2, 5000)


@pytest.mark.storm
def test_a_table_of_50_000_columns_is_written_and_one_is_read(tmp_path):
    check_width(tmp_path / "t.blz", 50_000)


def check_groups(path, columns: int) -> None:
    table = pa.table({f"c{i}": np.arange(10_000) * (i + 1) for i in range(columns)})
    blz.to_blz(table, path, row_group_rows=1, durability="process")
    store = CountingStore(path)
    with blz.open(store) as opened:
        assert opened["c0"].to_arrow().combine_chunks() == table["c0"].combine_chunks()
        assert store.opened == 10_000
        assert opened["c0"][9_998:].to_pylist() == [9_998, 9_999]
        assert store.opened == 10_002
        assert opened.nrows == 10_000


def test_a_table_of_10_000_row_groups_is_written_and_read(tmp_path):
    check_groups(tmp_path / "t.blz", 1)


@pytest.mark.storm
def test_a_table_of_10_000_row_groups_of_16_columns_is_written_and_one_column_read(tmp_path):
    check_groups(tmp_path / "t.blz", 16)


# No rows, one row


def value_of(type_: pa.DataType) -> pa.Array:
    """An array of one value that is not null, all its bytes 0x01 where any bytes are a value."""
    if pa.types.is_null(type_):
        return pa.nulls(1)
    if type_ in (pa.string(), pa.large_string(), pa.string_view()):
        return pa.array(["ä"], type_)
    if type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return pa.array([b"\xff"], type_)
    width = max(type_.bit_width // 8, 1)
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(b"\1" + bytes(width - 1))])


def all_kinds(rows: int) -> pa.Table:
    """A column of every type that can be stored, one of nulls and a dictionary of each."""
    columns = {}
    for number, type_ in enumerate(PLAIN):
        value = value_of(type_)
        columns[f"value {number}"] = value
        columns[f"null {number}"] = pa.nulls(1, type_)
        code = pa.array([0], "i1")
        columns[f"dictionary {number}"] = pa.DictionaryArray.from_arrays(code, value)
    return pa.table(columns).slice(0, rows)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_row_or_one_is_read_by_every_verb(tmp_path, rows):
    table, path = all_kinds(rows), tmp_path / "t.blz"
    blz.to_blz(table, path)
    assert same_table(blz.read_table(path), table)
    with blz.open(path) as opened:
        assert len(opened) == opened.nrows == rows
        assert f"{rows} rows" in repr(opened)
        assert same_table(opened.to_arrow(), table)
        assert same_table(opened.head(), table)
        assert same_table(opened.head(0), table.slice(0, 0))
        assert same_table(opened[table.column_names].to_arrow(), table)
        assert same_table(pa.table(opened), table)
        for name in table.column_names:
            wanted, column = table[name], opened[name]
            assert same(column.to_arrow(), wanted)
            assert len(column) == rows
            assert same(column[:], wanted.combine_chunks())
            assert same(column[1:], wanted.combine_chunks().slice(rows))
            for row in (rows, -rows - 1):
                with pytest.raises(IndexError):
                    column[row]
            assert rows == 0 or column[0] == wanted[0].as_py()


@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_row_or_one_becomes_the_frame_that_arrow_makes_of_it(tmp_path, rows, backend):
    frame = pd.DataFrame(
        {
            "i": [1],
            "f": [0.5],
            "b": [True],
            "s": ["ä"],
            "o": [b"x"],
            "t": [pd.Timestamp("2020-01-02", tz="UTC")],
            "d": [pd.Timedelta(1)],
            "c": pd.Categorical(["x"]),
            "m": pd.array([None], "Int64"),
        }
    ).iloc[:rows]
    options = {} if backend is None else {"dtype_backend": backend}
    for index in (None, "s", ["s", "t"]):
        indexed = frame if index is None else frame.set_index(index)
        indexed.to_blz(tmp_path / "t.blz")
        back = blz.read_blz(tmp_path / "t.blz", **options)
        assert back.shape == indexed.shape
        assert back.index.names == indexed.index.names
        if backend is None:
            pd.testing.assert_frame_equal(back, indexed)
        with blz.open(tmp_path / "t.blz") as table:
            for name in indexed.columns:
                series = table[name].to_pandas(**options)
                pd.testing.assert_series_equal(series, back[name])
                assert len(table[name].to_numpy()) == rows


def test_a_table_without_rows_and_columns_is_a_table(tmp_path):
    for data in (pa.table({}), pd.DataFrame(), {}):
        blz.to_blz(data, tmp_path / "t.blz")
        assert blz.read_table(tmp_path / "t.blz").shape == (0, 0)
        assert blz.read_blz(tmp_path / "t.blz").shape == (0, 0)


# One value above what most libraries count in


HUGE = 3 << 30


@pytest.mark.storm
@pytest.mark.parametrize("type_", [pa.large_string(), pa.large_binary()], ids=str)
def test_a_value_of_3_gib_among_small_ones_comes_back(tmp_path, type_):
    data = np.full(HUGE + 8, ord("a"), np.uint8)
    data[HUGE - 5 :: 7] = ord("z")
    ends = np.array([0, 3, 3, HUGE + 3, HUGE + 3, HUGE + 8], "<i8")
    present = pa.py_buffer(bytes([0b10111]))
    column = pa.Array.from_buffers(type_, 5, [present, pa.py_buffer(ends), pa.py_buffer(data)])
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({"n": range(5), "a": column}), path, durability="process")
    with blz.open(path) as table:
        assert table.schema.field("a").type == type_
        back = table["a"].to_arrow()
        assert back.is_null().to_pylist() == [False, False, False, True, False]
        lengths = pa.compute.binary_length(back).to_pylist()
        assert lengths == [3, 0, HUGE, None, 5]
        assert b"".join(as_bytes(back.slice(row, 1)) for row in (0, 1)) == b"aaa"
        assert as_bytes(back.slice(4, 1)) == data[-5:].tobytes()
        rows = itertools.accumulate([0, *map(len, back.chunks)])
        chunk, first = next(
            (chunk, first)
            for chunk, first in zip(back.chunks, rows, strict=False)
            if first <= 2 < first + len(chunk)
        )
        start = np.frombuffer(chunk.buffers()[1], "<i8")[chunk.offset + 2 - first]
        assert np.array_equal(
            np.frombuffer(chunk.buffers()[2], np.uint8, HUGE, start), data[3 : HUGE + 3]
        )
        del back, chunk
        assert as_bytes(table["a"][4:]) == data[-5:].tobytes()


def as_bytes(column) -> bytes:
    return b"".join(column.cast(pa.large_binary()).to_pylist())


@pytest.mark.storm
def test_a_list_with_a_value_of_3_gib_is_refused_before_anything_is_there(tmp_path):
    with pytest.raises(blz.SchemaError, match=r"column 'a'.*bytes"):
        blz.to_blz({"a": [bytes(HUGE)]}, tmp_path / "t.blz")
    assert list(tmp_path.iterdir()) == []


# A disk that is full, or breaks


class FailingDisk(Disk):
    """Fails at the call of that number that writes or flushes, once or from then on."""

    def __init__(self, at: int, number: int, *, for_ever: bool = False) -> None:
        self.calls: list[str] = []
        self._at = at
        self._number = number
        self._for_ever = for_ever
        self._counting = threading.Lock()

    @property
    def has_failed(self) -> bool:
        return len(self.calls) > self._at

    def _met(self, name: str) -> None:
        with self._counting:
            self.calls.append(name)
            met = len(self.calls) - 1
        if met == self._at or (self._for_ever and met > self._at):
            raise OSError(self._number, os.strerror(self._number))

    def close(self, fd):
        super().close(fd)
        self._met("close")

    def write(self, fd, buffers):
        # Some of it gets through.
        super().write(fd, [b"".join(map(bytes, buffers))[:5]])
        self._met("write")
        os.truncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        super().write(fd, buffers)


def _failing(name):
    def call(self, *args):
        self._met(name)
        return getattr(super(FailingDisk, self), name)(*args)

    return call


for _name in ("mkdir", "create", "sync_file", "sync_directory", "sync_all"):
    setattr(FailingDisk, _name, _failing(_name))
for _name in ("link", "rename", "rename_new"):
    setattr(FailingDisk, _name, _failing(_name))


def entries(path: Path) -> set[str]:
    """All names but those of the mirrors, which may be there or not."""
    mirrors = {"meta/sizes", "meta/storage", "meta/attributes"}
    return {found.relative_to(path).as_posix() for found in path.rglob("*")} - mirrors


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("is_there", [False, True], ids=["creation", "replacement"])
def test_a_disk_that_is_full_at_any_call_leaves_the_table_and_nothing_else(
    tmp_path, is_there, number, for_ever
):
    reason, outcomes = os.strerror(number), []
    for at in itertools.count():
        path = tmp_path / f"{at}.blz"
        if is_there:
            blz.to_blz(OLD, path, durability="process")
        before = entries(path) if is_there else set()
        disk = FailingDisk(at, number, for_ever=for_ever)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                blz.to_blz(NEW, LocalStore(path, disk=disk), row_group_rows=20_000)
            except (blz.StorageError, blz.CommitUnknownError) as error:
                caught = error
            else:
                caught = None
        assert all(
            reason in str(message)
            for message in [*(one.message for one in warned), caught or reason]
        )
        if isinstance(caught, blz.StorageError):
            assert caught.errno == number
            assert str(tmp_path) in str(caught)
            outcomes.append("failed")
        elif caught:
            outcomes.append("unknown")
        else:
            outcomes.append("warned" if warned else "done")
        if outcomes[-1] == "failed":
            if is_there:
                assert entries(path) == before, disk.calls
                assert blz.read_table(path) == OLD
            else:
                assert entries(path) <= PREPARED, disk.calls
                with pytest.raises(blz.TableNotFoundError):
                    blz.open(path)
        else:
            assert blz.read_table(path) == NEW
            assert not [name for name in entries(path) if ".tmp-" in name]
        if not disk.has_failed:
            break
        blz.to_blz(OLD, path, durability="process")
        assert blz.read_table(path) == OLD
    story = [outcome for outcome, _ in itertools.groupby(outcomes)]
    assert story == ["failed", "unknown", "warned", "done"]
    assert len(outcomes) > 20


# What a table asks of the operating system: calls that look, and calls that may have done their
# work when they say that they failed.
LOOKS = ["open", "fstat", "stat", "listdir", "pread", "preadv", "flock", "fcntl"]
CHANGES = ["mkdir", "link", "rename", "unlink", "writev", "fsync"]


class FailingCall:
    """One function of the system, whose call number `at` from our code fails.

    With `is_done` the call does its work before it says that it failed.
    """

    def __init__(self, monkeypatch, module, name, at, *, is_done):
        self._real = getattr(module, name)
        self._left = at
        self._is_done = is_done
        self.has_failed = False
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args, **options):
        if not sys._getframe(1).f_globals["__name__"].startswith("blztable."):
            return self._real(*args, **options)
        self._left -= 1
        if self._left != -1:
            return self._real(*args, **options)
        self.has_failed = True
        if self._is_done:
            result = self._real(*args, **options)
            if self._real in (os.open, fcntl.fcntl):
                os.close(result)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture(scope="module")
def with_old_versions(tmp_path_factory):
    """A table whose next commit merges row groups and removes a version with its files."""
    path = tmp_path_factory.mktemp("old") / "t.blz"
    for rows in (NEW[:5], OLD):
        blz.to_blz(rows, path, clevel=1)
    with blz.open(path, "a") as t, blz.open(path, version=1):
        t.set_retention(versions=1)
        t.attrs["a"] = 1
    return path


@pytest.mark.parametrize(
    ("name", "is_done"),
    [
        *((name, False) for name in LOOKS + CHANGES),
        *((name, True) for name in ["close", *CHANGES]),
    ],
)
def test_any_call_of_the_system_may_fail_and_the_outcome_is_told(
    with_old_versions, tmp_path, monkeypatch, name, is_done
):
    # A new column needs a directory; a file of that size is not read at once.
    noise = np.random.default_rng(0).integers(0, 1 << 62, 9_000)
    more = pa.table({"n": np.arange(9_000), "text": ["b"] * 9_000, "more": noise})
    both = pa.concat_tables([OLD, more], promote_options="default")
    module = fcntl if hasattr(fcntl, name) else os
    if name == "fcntl":
        # Every file that is created gets a number that counts as one of a standard stream.
        above = max(map(int, os.listdir("/dev/fd"))) + 50
        monkeypatch.setattr(descriptors, "FIRST_NUMBER", above)
    for at in itertools.count():
        path = tmp_path / f"{at}.blz"
        shutil.copytree(with_old_versions, path)
        has_returned, error = False, None
        with warnings.catch_warnings(), monkeypatch.context() as patch:
            warnings.simplefilter("ignore")  # Of what failed behind a commit.
            call = FailingCall(patch, module, name, at, is_done=is_done)
            try:
                with blz.open(path, "a") as t:
                    t.append(more, evolve=True)
                    has_returned = True
                    assert t.to_arrow() == both
            except blz.BlzError as raised:
                error = raised
        found = blz.read_table(path)
        assert found == both or (found == OLD and not has_returned), (at, error)
        if not has_returned and found == both:
            assert isinstance(error, blz.CommitUnknownError), (at, error)
        if not call.has_failed:
            break
        shutil.rmtree(path)
    assert (found, error) == (both, None)
    assert at > 0


@pytest.mark.parametrize("most", [0, 300, 20_000])
@pytest.mark.parametrize("is_there", [False, True], ids=["creation", "replacement"])
def test_a_system_that_takes_no_larger_files_leaves_the_table_as_it_was(tmp_path, is_there, most):
    path = tmp_path / "t.blz"
    if is_there:
        blz.to_blz(OLD, path)
    before = entries(path) if is_there else set()
    large = pa.table({"a": np.arange(40_000)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(blz.StorageError, match=os.strerror(errno.EFBIG)) as caught:
            blz.to_blz(large, path, compression="zlib", clevel=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert entries(path) == before
    if is_there:
        assert blz.read_table(path) == OLD
    blz.to_blz(large, path)
    assert blz.read_table(path) == large


# A directory that takes no writes


def check_read_only(path: Path) -> None:
    """Reading and pinning work there, and every verb that writes says that it may not."""
    assert blz.read_table(path) == OLD
    assert blz.read_blz(path, version=1)["n"].tolist() == [1, 2]
    with blz.open(path) as first, blz.open(path, mode="a") as second:
        assert first.to_arrow() == second.to_arrow() == OLD
        with pytest.raises(blz.ReadOnlyError):
            second.attrs["a"] = 1
        assert second.to_arrow() == OLD
    for mode in ("w", "x"):
        for place in (path, path.with_name("new.blz")):
            error = blz.TableExistsError if mode == "x" and place == path else blz.ReadOnlyError
            with pytest.raises(error, match=str(place)):
                blz.to_blz(NEW, place, mode=mode)
    with pytest.raises(blz.ReadOnlyError):
        blz.create(path, {"a": "i8"}, mode="w")


def test_a_directory_that_takes_no_writes_is_read_and_says_so_to_writers():
    # Not below pytest's own folder, which nobody but its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.blz"
        blz.to_blz(OLD, path)
        blz.read_blz(path)  # An ordinary user could not import what is imported on first use.
        directories = [Path(folder), path, *(found for found in path.rglob("*") if found.is_dir())]
        for directory in directories:
            directory.chmod(0o555)
        before = snapshot(path)
        try:
            as_ordinary_user(lambda: check_read_only(path))
        finally:
            for directory in directories:
                directory.chmod(0o755)
        assert snapshot(path).keys() == before.keys()
        assert blz.read_table(path) == OLD


# What is not ours


def snapshot(path: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything at and below a path: kind and rights, inode, time of change, bytes."""
    found = {}
    for entry in (path, *path.rglob("*")):
        status = entry.lstat()
        data = entry.read_bytes() if entry.is_file() else b""
        if entry.is_symlink():
            data += os.fsencode(os.readlink(entry))
        found[str(entry)] = status.st_mode, status.st_ino, status.st_mtime_ns, data
    return found


FOREIGN = {
    "a file": {"": b"mine"},
    "another directory": {"notes.txt": b"mine", "src/x.py": b"mine"},
    "a file in the root": {"data/col0/__1__.bin": b"", "meta/lock": b"", "x": b"mine"},
    "a hidden file": {".gitignore": b"mine"},
    "a file in meta": {"data/col0/__1__.bin": b"", "meta/lock": b"", "meta/x": b"mine"},
    "a file among the manifests": {"meta/lock": b"", "meta/manifest/x": b"mine"},
    "a file in data": {"data/x": b"mine", "meta/lock": b""},
    "a file like a column": {"data/col0": b"mine"},
    "a file in a column": {"data/col0/__1__.bin": b"mine", "data/col0/x": b"mine"},
    "a file in a child of a column": {"data/col0/col1/x": b"mine"},
    "a file like data": {"data": b"mine"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_what_is_not_a_table_is_never_touched(tmp_path, files):
    path = tmp_path / "t.blz"
    for name, data in files.items():
        file = path / name if name else path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    before = snapshot(path)
    for write in (
        lambda: blz.to_blz(OLD, path),
        lambda: blz.to_blz(OLD, path, mode="x"),
        lambda: blz.create(path, {"a": "i8"}),
        lambda: blz.create(path, {"a": "i8"}, mode="w"),
    ):
        with pytest.raises(blz.TableExistsError, match=r"t\.blz.* left as it is"):
            write()
        assert snapshot(path) == before
    for read in (
        lambda: blz.read_blz(path),
        lambda: blz.read_table(path),
        lambda: blz.open(path),
        lambda: blz.open(path, mode="a"),
        lambda: blz.open(path, version=1),
    ):
        with pytest.raises(blz.BlzError, match=r"t\.blz"):
            read()
        assert snapshot(path) == before


def test_a_file_like_meta_is_left_as_it_is(tmp_path):
    (tmp_path / "t.blz").mkdir()
    (tmp_path / "t.blz/meta").write_bytes(b"mine")
    before = snapshot(tmp_path)
    for action in (
        lambda: blz.to_blz(OLD, tmp_path / "t.blz"),
        lambda: blz.open(tmp_path / "t.blz"),
    ):
        with pytest.raises(blz.BlzError, match=r"meta: expected a directory"):
            action()
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("level", ["data", "meta", "meta/manifest", "data/col0"])
def test_a_link_within_what_looks_like_a_table_is_not_followed(tmp_path, level):
    path, other = tmp_path / "t.blz", tmp_path / "other"
    other.mkdir()
    (path / level).parent.mkdir(parents=True)
    (path / level).symlink_to(other, target_is_directory=True)
    before = snapshot(tmp_path)
    for mode in ("w", "x"):
        with pytest.raises(blz.BlzError, match=r"t\.blz"):
            blz.to_blz(OLD, path, mode=mode)
        assert snapshot(tmp_path) == before


def test_a_table_is_made_in_a_directory_that_exists(tmp_path):
    path = tmp_path / "no" / "t.blz"
    for write in (lambda: blz.to_blz(OLD, path), lambda: blz.create(path, {"a": "i8"})):
        with pytest.raises(blz.StorageError, match="no such directory") as caught:
            write()
        assert caught.value.errno == errno.ENOENT
        assert caught.value.filename == str(path.parent)
    for mode in ("r", "a"):
        with pytest.raises(blz.TableNotFoundError, match=r"no.t\.blz"):
            blz.open(path, mode=mode)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_resolved_when_the_table_is_opened_and_stays_a_link(tmp_path):
    first, second, link = tmp_path / "first.blz", tmp_path / "second.blz", tmp_path / "link"
    blz.to_blz(OLD, first)
    blz.to_blz(NEW, second)
    link.symlink_to("first.blz")
    with blz.open(link) as table:
        column = table["n"]
        link.unlink()
        link.symlink_to("second.blz")
        assert table.path == str(first)
        assert table.to_arrow() == OLD
        assert column.to_arrow() == OLD["n"]
        assert pickle.loads(pickle.dumps(table)).to_arrow() == OLD
    assert blz.read_table(link) == NEW
    blz.to_blz(OLD, link)
    assert link.is_symlink()
    assert blz.read_table(second) == OLD
    assert blz.read_table(second, version=1) == NEW
    link.unlink()
    link.symlink_to("third.blz")
    blz.to_blz(NEW, link, mode="x")
    assert blz.read_table(tmp_path / "third.blz") == NEW


# Threads, forks, pickles


def test_a_handle_shared_by_threads_gives_each_of_them_the_same(tmp_path):
    table = pa.table(
        {
            "n": np.arange(200_000),
            "text": [f"é{i}" for i in range(200_000)],
            "same": pa.array(["a", "b"] * 100_000).dictionary_encode(),
        }
    )
    blz.to_blz(table, tmp_path / "t.blz", row_group_rows=70_000, durability="process")
    wrong, barrier = [], threading.Barrier(8)
    with blz.open(tmp_path / "t.blz") as opened:

        def read(number: int) -> None:
            barrier.wait()
            for turn in range(3):
                name = table.column_names[(number + turn) % 3]
                start = 60_000 + number
                results = [
                    opened[name].to_arrow().combine_chunks() == table[name].combine_chunks(),
                    opened[name][start : start + 20_000].to_pylist()
                    == table[name].slice(start, 20_000).to_pylist(),
                    opened[["n", name]].to_arrow() == table.select(["n", name]),
                    opened.head(number) == table.slice(0, number),
                    opened.to_pandas([name]).equals(table.select([name]).to_pandas()),
                ]
                wrong.extend(
                    (number, turn, at) for at, is_right in enumerate(results) if not is_right
                )

        def replace() -> None:
            for _ in range(12):
                blz.to_blz(OLD, tmp_path / "t.blz", durability="process")

        run_in_threads([lambda n=n: read(n) for n in range(8)] + [replace], wrong)
        assert wrong == []
        assert opened.to_arrow() == table


def run_in_threads(actions, failures: list) -> None:
    def with_safe_literals(action):
        try:
            action()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=with_safe_literals, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


FORKS = """
import os, signal, sys, threading
import pyarrow as pa
import blztable as blz

path = sys.argv[1]
table = pa.table({"n": range(300_000), "m": pa.array(range(300_000), "f8")})
blz.to_blz(table, path, durability="process", page_rows=8192)
held = blz.open(path, mode="a")
column, narrowed = held["m"], held[["m"]]
is_over = threading.Event()

def read():
    while not is_over.is_set():
        assert held.to_arrow() == table

def write():
    while not is_over.is_set():
        blz.to_blz(table, path + ".other", durability="process")

def child(number):
    assert held.to_arrow() == table
    assert column.to_arrow() == table["m"]
    assert narrowed.to_arrow() == table.select(["m"])
    assert blz.read_table(path) == table
    try:
        held.attrs["a"] = 1
    except blz.ReadOnlyError:
        pass
    else:
        raise AssertionError("an inherited handle writes")
    blz.to_blz(table, f"{path}.{number}", durability="process")
    assert blz.read_table(f"{path}.{number}") == table

threads = [threading.Thread(target=action) for action in (read, read, write)]
for thread in threads:
    thread.start()
statuses = []
for number in range(12):
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        status = 1
        try:
            child(number)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    statuses.append(os.waitpid(pid, 0)[1])
is_over.set()
for thread in threads:
    thread.join()
assert held.to_arrow() == table
print(statuses)
"""


def script(text: str, *args, timeout: float = 120) -> str:
    """What a script prints that runs with this package in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # The interpreter warns of forks with threads, and that is what some are about.
    command = [sys.executable, "-W", "ignore", "-c", text, *map(str, args)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_child_forked_while_threads_read_and_write_reads_and_writes_for_itself(tmp_path):
    assert script(FORKS, tmp_path / "t.blz") == str([0] * 12)


LOAD = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    table, narrowed, column = pickle.load(file)
assert table.version == 1 and table.column_names == ["n", "text"]
assert narrowed.column_names == ["text"] and column.name == "n"
try:
    table.attrs["a"] = 1
    print("written")
except Exception as error:
    print(type(error).__name__, table.to_arrow().to_pydict(), narrowed.to_arrow().to_pydict(),
          column.to_pandas().tolist())
"""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_handle_is_a_path_and_a_version(tmp_path, protocol):
    blz.to_blz(OLD, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as table:
        narrowed = table[["text"]]
        data = pickle.dumps((table, narrowed, table["n"], narrowed["text"]), protocol)
        assert len(data) < 2000
        blz.to_blz(NEW, tmp_path / "t.blz")
        opened, narrow, column, text = pickle.loads(data)
        assert opened.version == narrow.version == 1
        assert opened.to_arrow() == OLD
        assert narrow.to_arrow() == OLD.select(["text"])
        assert column.to_arrow() == OLD["n"]
        assert text.to_arrow() == OLD["text"]
    # Each holds its version for itself.
    assert opened.to_arrow() == OLD
    opened.close()
    for number in range(11):
        blz.to_blz(NEW.slice(number), tmp_path / "t.blz", durability="process")
    with pytest.raises(blz.TableNotFoundError, match="no version 1"):
        pickle.loads(data)


def test_a_pickle_is_loaded_by_another_process_which_does_not_write_with_it(tmp_path):
    blz.to_blz(OLD, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", mode="a") as table:
        data = pickle.dumps((table, table[["text"]], table["n"]))
        (tmp_path / "pickle").write_bytes(data)
        blz.to_blz(NEW, tmp_path / "t.blz")
        values = OLD.to_pydict()
        wanted = f"ReadOnlyError {values} { ({'text': values['text']}) } {values['n']}"
        assert script(LOAD, tmp_path / "pickle") == wanted
    assert blz.read_table(tmp_path / "t.blz") == NEW


def test_a_pickle_of_a_closed_handle_opens_its_version_again(tmp_path):
    blz.to_blz(OLD, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as table:
        pass
    with pickle.loads(pickle.dumps(table)) as again:
        assert again.to_arrow() == OLD
