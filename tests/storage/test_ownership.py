"""What is written in a table of a user belongs to that user, also if root writes.

Root gives the tables of these tests to another user first. Anyone else keeps them, and sees that
the permissions are those of the table.
"""

import os
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.cli.command import main
from blztable.ownership import shared_by
from blztable.storage.files import LocalFile
from blztable.storage.local import LocalStore

IS_ROOT = os.geteuid() == 0
USER = (12345, 23456) if IS_ROOT else (os.getuid(), os.getgid())
ROWS = {"k": list(range(300)), "deep": [{"x": [n]} for n in range(300)]}


def give(path: Path, mode: int) -> None:
    """Give a file, or a folder with all in it, to the user, and nobody else."""
    for one in [path, *path.rglob("*")]:
        os.chown(one, *USER)
        one.chmod(mode | 0o100 if one.is_dir() else mode)


def check(path: Path, mode: int) -> None:
    """All belongs to the user, with the permissions that `give` gave."""
    found = {
        str(one.relative_to(path)): (
            one.stat().st_uid,
            one.stat().st_gid,
            stat.S_IMODE(one.stat().st_mode),
        )
        for one in [path, *path.rglob("*")]
    }
    expected = {
        name: (*USER, mode | 0o100 if path.joinpath(name).is_dir() else mode) for name in found
    }
    assert found == expected


def in_transaction(t):
    with t.transaction() as tx:
        tx.append(pa.table(ROWS)[:3])
        tx.update({"k": 5}, where=pc.field("k") < 5)


def by_columns(t):
    with t.transaction() as tx, tx.appender() as a:
        a["k"].append([1, 2])
        a["deep"].append([None, {"x": []}])


CHANGES = {
    "append": lambda t: t.append(pa.table(ROWS)),
    "append, evolving": lambda t: t.append({"k": [1], "new": ["x"]}, evolve=True),
    "appender": by_columns,
    "update": lambda t: t.update({"k": 5}, where=pc.field("k") < 5),
    "update of structs": lambda t: t.update({"deep": [{"x": [7]}]}, where=pc.field("k") == 5),
    "delete": lambda t: t.delete(pc.field("k") == 5),
    "upsert": lambda t: t.upsert({"k": [5, 999]}, on="k"),
    "add column": lambda t: t.add_column("new", 1),
    "add field": lambda t: t.add_column("deep.new", 1),
    "sort": lambda t: t.compact(sort_by=[("k", "descending")]),
    "attributes": lambda t: t.attrs.update(a=1),
    "tag": lambda t: t.tags.__setitem__("first", 1),
    "transaction": in_transaction,
    "restore": lambda t: (t.append(pa.table(ROWS)), t.restore(1)),
    "vacuum": lambda t: (t.delete(pc.field("k") > 5), t.vacuum(keep=1)),
}


@pytest.fixture(params=[0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize("mode", [0o600, 0o660], ids=oct)
@pytest.mark.parametrize("layout", ["directory", "file"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_table_belongs_to_the_owner_of_the_table(
    tmp_path, umask, layout, change, mode
):
    path = tmp_path / "t.blz"
    blz.to_blz(
        pa.table(ROWS),
        path,
        storage=blz.Storage(layout=layout, row_group_rows=100),
        durability="process",
    )
    give(path, mode)
    with blz.open(path, "a", durability="process") as t:
        CHANGES[change](t)
    check(path, mode)


@pytest.mark.parametrize("layout", ["directory", "file"])
def test_a_replacement_of_a_table_belongs_to_the_owner_of_the_table(tmp_path, umask, layout):
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table(ROWS), path, storage=blz.Storage(layout=layout))
    give(path, 0o600)
    blz.to_blz({"other": [1]}, path)
    blz.to_blz(pa.table(ROWS), path, storage=blz.Storage(packing="per_item", page_rows=8))
    check(path, 0o600)


def test_a_rewritten_file_of_a_table_belongs_to_its_owner(tmp_path, umask):
    path = tmp_path / "t.blz"
    blz.to_blz(
        {"x": np.random.default_rng(1).random(30_000)}, path, storage=blz.Storage(layout="file")
    )
    give(path, 0o640)
    inode = path.stat().st_ino
    with blz.open(path, "a") as t:
        t.delete(pc.field("x") > 0.1)
        t.vacuum(keep=1)
    assert path.stat().st_ino != inode
    check(path, 0o640)


def test_files_that_are_locked_belong_to_the_owner_of_the_table(tmp_path, umask):
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table(ROWS), path)
    give(path, 0o600)
    for name in ("lock", "flight", "sizes", "storage", "attributes"):
        (path / "meta" / name).unlink()
    with blz.open(path, "a") as t:
        t.append(pa.table(ROWS))
    assert {"lock", "flight", "sizes", "storage"} <= {one.name for one in path.glob("meta/*")}
    check(path, 0o600)


def test_a_table_in_a_folder_that_a_user_made_belongs_to_the_user(tmp_path, umask):
    path = tmp_path / "t.blz"
    path.mkdir()
    give(path, 0o600)
    blz.to_blz(pa.table(ROWS), path)
    check(path, 0o600)


@pytest.mark.parametrize("mode", [0o600, 0o664], ids=oct)
def test_a_rewritten_array_belongs_to_the_owner_of_the_array(tmp_path, umask, mode):
    path = tmp_path / "a.blp"
    blz.SuperChunk.create(path, dtype="i8", shape=(0,), chunk_shape=(10,)).close()
    give(path, mode)
    inode = path.stat().st_ino
    with blz.SuperChunk.open(path, "a") as a:
        a.append(np.arange(50))
        a.rewrite()
    assert path.stat().st_ino != inode
    check(path, mode)


def test_a_file_beside_another_one_is_like_it_before_it_takes_its_place(tmp_path, umask):
    path = tmp_path / "a"
    file = LocalFile(path)
    file.create()
    give(path, 0o600)
    file.lock(0)
    beside = file.beside()
    [other] = set(tmp_path.iterdir()) - {path}
    check(other, 0o600)
    beside.discard()
    file.close()
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_of_an_export_that_replaces_another_one_belongs_to_its_owner(tmp_path, umask):
    table, path = tmp_path / "t.blz", tmp_path / "out.csv"
    blz.to_blz(pa.table({"k": [1]}), table)
    path.write_text("old")
    give(path, 0o640)
    assert main(["export", str(table), "-o", str(path)]) == 0
    assert path.read_text() == '"k"\n1\n'
    check(path, 0o640)


@pytest.mark.parametrize("kind", ["directory", "file", "array"])
def test_what_is_new_belongs_to_its_writer_with_the_permissions_of_the_umask(tmp_path, umask, kind):
    folder = tmp_path / "all"
    folder.mkdir()
    folder.chmod(0o1777)
    path = folder / "new"
    if kind == "array":
        blz.SuperChunk.create(path, dtype="i8", shape=(0,), chunk_shape=(10,)).close()
    else:
        blz.to_blz({"a": [1]}, path, storage=blz.Storage(layout=kind))
    found = path.stat()
    allowed = 0o777 if kind == "directory" else 0o666
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.getuid(), allowed & ~umask)


def test_no_call_is_made_for_what_belongs_to_its_user_already(tmp_path, umask, monkeypatch):
    made = []
    for name in ("fchown", "fchmod"):
        monkeypatch.setattr(os, name, lambda *given: made.append(given))
    tmp_path.chmod(0o777 & ~umask)
    LocalStore(tmp_path).put_new("data/col0/__1__.bin", [b"x"])
    assert made == []


def test_anyone_but_root_keeps_the_owner_and_hands_on_the_group_of_a_file(monkeypatch, tmp_path):
    def status(mode, uid, gid):
        return os.stat_result((mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))

    new, folder, old = status(0o100644, 7, 70), status(0o40750, 8, 80), status(0o100600, 9, 90)
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    assert shared_by(new, folder) == (7, 70, 0o100640)
    assert shared_by(new, old) == (7, 90, 0o100600)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert shared_by(new, folder) == (8, 80, 0o100640)
    assert shared_by(new, old) == (9, 90, 0o100600)
