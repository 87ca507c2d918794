"""Directories: read-only ones, directories that are no tables, links, missing parents."""

import errno
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from support.processes import as_ordinary_user

OLD = pa.table({"n": [1, 2], "text": ["a", None]})
NEW = pa.table({"x": np.arange(40_000), "y": np.arange(40_000) * 0.5, "b": [True] * 40_000})


def check_read_only(path: Path) -> None:
    """Check that reads and pins work, and that every method that writes raises ReadOnlyError."""
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
    # Not below pytest's own folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.blz"
        blz.to_blz(OLD, path)
        blz.read_blz(path)  # An ordinary user cannot import the modules of a first use.
        directories = [Path(folder), path, *(found for found in path.rglob("*") if found.is_dir())]
        for found in (Path(folder), *Path(folder).rglob("*")):
            found.chmod(0o555)  # Files, too: the umask may forbid others to read them.
        before = snapshot(path)
        try:
            as_ordinary_user(lambda: check_read_only(path))
        finally:
            for directory in directories:
                directory.chmod(0o755)
        assert snapshot(path).keys() == before.keys()
        assert blz.read_table(path) == OLD


# Foreign files


def snapshot(path: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return each path at and below `path` with its mode, inode, time of change and bytes."""
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
