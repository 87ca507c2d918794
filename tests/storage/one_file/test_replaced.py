"""A handle of a table in one file whose path leads to another file, or to none.

What it has opened it goes on reading. It never sees the other table, and never changes it.
"""

import os
import pickle
import shutil
import subprocess
import sys

import pytest

import blztable as blz

REFUSED = r"removed or replaced.*open it again"
OURS, OTHER = {"a": [1, 2, 3]}, {"a": [7, 8]}


@pytest.fixture
def path(tmp_path):
    """A table of two versions."""
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2]}, path, storage=blz.Storage(layout="file", encoding="plain"))
    blz.to_blz({"a": [3]}, path, mode="a")
    return path


def replaced(path):
    blz.to_blz(
        OTHER, path.with_name("other.blz"), storage=blz.Storage(layout="file", encoding="plain")
    )
    os.replace(path.with_name("other.blz"), path)


def renamed(path):
    path.rename(path.with_name("moved.blz"))


def deleted(path):
    path.unlink()


def written_after(remove):
    def away(path):
        remove(path)
        blz.to_blz(OTHER, path, storage=blz.Storage(layout="file", encoding="plain"))
        blz.to_blz({"a": [9]}, path, mode="a")

    return away


def packed(path):
    renamed(path)
    blz.to_blz(OTHER, path.with_name("other"), storage=blz.Storage(encoding="plain"))
    blz.copy(path.with_name("other"), path, layout="file")


def put_back(path):
    """An older copy has the id of the file."""
    shutil.copy(path, path.with_name("copy"))
    blz.to_blz({"a": [4]}, path, mode="a")
    os.replace(path.with_name("copy"), path)


def made_a_directory(path):
    path.unlink()
    blz.to_blz(OTHER, path, storage=blz.Storage(layout="directory"))


AWAY = {
    "replaced": replaced,
    "renamed": renamed,
    "deleted": deleted,
    "renamed and written": written_after(renamed),
    "deleted and written": written_after(deleted),
    "packed": packed,
    "put back": put_back,
    "made a directory": made_a_directory,
}

CHANGES = {
    "append": lambda t: t.append({"a": [4]}),
    "update": lambda t: t.update(where=[("a", "==", 1)], values={"a": 0}),
    "delete": lambda t: t.delete([("a", "==", 1)]),
    "truncate": lambda t: t.resize(1),
    "compact": lambda t: t.compact(),
    "restore": lambda t: t.restore(1),
    "attrs": lambda t: t.attrs.update(x=1),
    "vlmeta": lambda t: t.vlmeta.add("x", b"1"),
    "add_column": lambda t: t.add_column("b", 0),
    "vacuum": lambda t: t.vacuum(keep=1),
}

READS = {
    "to_arrow": lambda t: t.to_arrow()["a"].to_pylist(),
    "to_pandas": lambda t: t.to_pandas()["a"].tolist(),
    "to_batches": lambda t: [n for b in t.to_batches() for n in b["a"].to_pylist()],
    "take": lambda t: t.take([0, 1, 2])["a"].to_pylist(),
    "filter": lambda t: t.to_arrow(filters=[("a", ">", 0)])["a"].to_pylist(),
    "head": lambda t: t.head(3)["a"].to_pylist(),
    "dataset": lambda t: t.dataset().to_table()["a"].to_pylist(),
    "scalar": lambda t: [t["a"][row] for row in range(3)],
}


@pytest.mark.parametrize("away", AWAY)
def test_reads_go_on_with_the_table_that_was_opened(path, away):
    handles = {name: blz.open(path) for name in READS}
    warm = blz.open(path)
    assert warm.to_arrow().to_pydict() == OURS
    AWAY[away](path)
    for name, read in READS.items():
        assert read(handles[name]) == OURS["a"], name
    if away not in ("renamed", "deleted", "put back"):
        assert blz.open(path).to_arrow().to_pydict() != OURS
    for name, read in READS.items():
        assert read(handles[name]) == OURS["a"], name
        assert read(warm) == OURS["a"], name
    assert warm.verify().is_intact
    assert [one.number for one in warm.versions()][:2] == [1, 2]


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("away", AWAY)
def test_changes_are_refused_in_one_way_and_change_no_table(path, away, is_seen):
    handles = {name: blz.open(path, "a") for name in CHANGES}
    AWAY[away](path)
    is_there = path.exists()
    if is_seen and is_there:
        blz.open(path).close()
    before = path.read_bytes() if path.is_file() else None
    for name, change in CHANGES.items():
        with pytest.raises(blz.ConflictError, match=REFUSED):
            change(handles[name])
        assert handles[name].to_arrow().to_pydict() == OURS, name
    assert path.exists() == is_there
    assert before is None or path.read_bytes() == before


def change_around(table, move):
    with table.transaction() as changes:
        changes.append({"a": [4]})
        move()
        changes.append({"a": [5]})


def move_away(path, away, before):
    if away == "put back":
        # Without a change by another handle, which would wait for the transaction.
        shutil.copy(path, path.with_name("copy"))
        os.replace(path.with_name("copy"), path)
    else:
        AWAY[away](path)
    if path.is_file():
        before.append(path.read_bytes())


@pytest.mark.parametrize("away", AWAY)
def test_an_open_transaction_is_not_committed_to_another_table(path, away):
    table, before = blz.open(path, "a"), []
    with pytest.raises(blz.ConflictError, match=REFUSED):
        change_around(table, lambda: move_away(path, away, before))
    assert not before or path.read_bytes() == before[0]
    assert table.to_arrow().to_pydict() == OURS
    if away == "renamed":
        assert blz.read_table(path.with_name("moved.blz")).to_pydict() == OURS


@pytest.mark.parametrize("away", AWAY)
def test_a_pickled_handle_is_of_no_other_table(path, away):
    table = blz.open(path, "a")
    copy = pickle.dumps(table)
    AWAY[away](path)
    if away == "put back":
        # The copy has the version that was pickled.
        assert pickle.loads(copy).to_arrow().to_pydict() == OURS
        return
    errors = (blz.ConflictError, blz.TableNotFoundError)
    with pytest.raises(blz.CorruptError if away == "made a directory" else errors):
        pickle.loads(copy)


@pytest.mark.parametrize("away", ["renamed", "deleted"])
def test_a_path_that_is_free_again_takes_a_new_table(path, away):
    old = blz.open(path, "a")
    source = path.with_name("source")
    blz.to_blz(OTHER, source, storage=blz.Storage(encoding="plain"))
    AWAY[away](path)
    blz.copy(source, path, layout="file")
    with blz.open(path, "a") as new:
        new.add_column("b", 0)
        new.append({"a": [9], "b": [1]})
    assert old.to_arrow().to_pydict() == OURS
    assert blz.read_table(path)["a"].to_pylist() == [7, 8, 9]


REWRITE = """
import sys, blztable as blz
with blz.open(sys.argv[1], "a") as t:
    t.delete([("a", "==", 2)])
    t.vacuum(keep=1)
    t.append({"a": [5]})
    t.delete([("a", "==", 3)])
    t.vacuum(keep=1)
"""


def test_handles_follow_a_file_that_another_process_rewrites(path):
    table, reader = blz.open(path, "a"), blz.open(path)
    inode = path.stat().st_ino
    subprocess.run([sys.executable, "-c", REWRITE, path], check=True)
    assert path.stat().st_ino != inode
    table.append({"a": [6]})
    assert table.to_arrow()["a"].to_pylist() == [1, 5, 6]
    assert reader.to_arrow().to_pydict() == OURS
    assert blz.read_table(path)["a"].to_pylist() == [1, 5, 6]


def test_a_table_that_is_written_anew_in_its_file_is_no_other_file(path):
    table = blz.open(path, "a", retries=0)
    blz.to_blz(OTHER, path, mode="w")
    assert table.to_arrow().to_pydict() == OURS
    with pytest.raises(blz.ConflictError, match="open the table again"):
        table.append({"a": [4]})
    assert blz.read_table(path).to_pydict() == OTHER
