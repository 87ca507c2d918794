"""A table that was dropped, in every place that a table may have."""

import gc
import os

import pytest

import blztable as blz
from blztable.engine.version import unlocked, versions
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.storage.resolve import store_at
from support.remote_places import options_of

PLACES = ["directory", "file", "memory", "store"]


@pytest.fixture(params=PLACES)
def place(request, tmp_path, s3):
    """Return a path where a table may be, and the options to reach it."""
    if request.param == "store":
        return "s3://bucket/t.blz", {"storage_options": options_of(s3)}
    if request.param == "memory":
        return blz.MemoryStore(), {}
    return tmp_path / "t.blz", {}


@pytest.fixture
def made(place, request):
    """Make a table of two versions; return its path and options."""
    path, options = place
    kind = "file" if "[file" in request.node.name else None
    blz.to_blz({"n": [1, 2]}, path, storage=blz.Storage(layout=kind, attrs={"old": 1}), **options)
    blz.to_blz({"n": [3]}, path, mode="a", **options)
    return place


def is_told(call):
    with pytest.raises(blz.TableNotFoundError, match=r"no table at .*: it was dropped"):
        call()


def rows(place, **which):
    return blz.read_table(place[0], **which, **place[1])["n"].to_pylist()


def test_a_dropped_table_is_not_there(made):
    path, options = made
    blz.drop(path, **options)
    assert not blz.exists(path, **options)
    for call in (blz.open, blz.read_blz, blz.read_table, blz.dataset, blz.drop):
        is_told(lambda call=call: call(path, **options))
    is_told(lambda: blz.open(path, "a", **options))


@pytest.mark.parametrize("which", [{"version": 1}, {"version": 2}, {"at": "2099-01-01"}])
def test_no_older_version_is_there_either(made, which):
    path, options = made
    with blz.open(path, version=1, **options), blz.open(path, **options):
        blz.drop(path, **options)
        is_told(lambda: blz.open(path, **which, **options))


@pytest.mark.parametrize("mode", ["x", "a", "w"])
def test_a_table_made_there_later_has_the_numbers_behind_it_and_nothing_else_of_it(made, mode):
    path, options = made
    with blz.open(path, "a", **options) as table:
        table.tags["kept"] = 1
        table.configure(keep_versions=3)
        uuid = table._snapshot.version.head.uuid
    blz.to_blz({"n": [4]}, path, mode="a", commit_id="job", **options)
    blz.drop(path, **options)
    blz.to_blz({"n": [5]}, path, mode=mode, commit_id="job", **options)
    with blz.open(path, "a", **options) as table:
        head = table._snapshot.version.head
        assert (table.version, dict(table.tags), dict(table.attrs)) == (7, {}, {})
        assert (head.parent, head.history, head.operation) == (0, (), "create")
        assert "keep_versions" not in head.properties
        assert head.uuid != uuid
        assert [one.number for one in table.versions()] == [7]
        table.append({"n": [6]})
        assert not table.verify(full=True).problems
    assert rows(made) == [5, 6]


def test_versions_of_the_table_before_are_not_of_the_table_made_there_later(made):
    path, options = made
    with blz.open(path, version=1, **options):
        blz.drop(path, **options)
        blz.to_blz({"n": [4]}, path, **options)
        with blz.open(path, "a", **options) as table:
            with pytest.raises(blz.TableNotFoundError, match=r"version 1 .* is of a table that"):
                table.tags["old"] = 1
            if options:
                assert [one.number for one in table.versions()] == [4]
                for call in (table.restore, table.diff):
                    with pytest.raises(blz.TableNotFoundError, match="is of a table that was drop"):
                        call(1)
                with pytest.raises(blz.TableNotFoundError, match="is of a table that was dropped"):
                    blz.open(path, version=2, **options)
        assert rows(made) == [4]


def test_where_there_is_no_table_nothing_is_dropped(place, tmp_path):
    path, options = place
    with pytest.raises(blz.TableNotFoundError, match="no table at"):
        blz.drop(path, **options)
    with pytest.raises(blz.TableNotFoundError, match="no table at"):
        blz.vacuum(path, **options)
    if not isinstance(path, blz.MemoryStore | str):
        assert not os.path.lexists(path)


def test_whoever_has_the_table_open_reads_on(made):
    path, options = made
    with blz.open(path, **options) as table, blz.open(path, version=1, **options) as old:
        blz.drop(path, **options)
        assert table.to_arrow()["n"].to_pylist() == [1, 2, 3]
        assert old.to_arrow()["n"].to_pylist() == [1, 2]
        assert not table.verify(full=True).problems
        is_told(table.refresh)
        assert table.to_arrow()["n"].to_pylist() == [1, 2, 3]


CHANGES = {
    "append": lambda t: t.append({"n": [9]}),
    "delete": lambda t: t.delete("n = 1"),
    "compact": lambda t: t.compact(),
    "attribute": lambda t: t.attrs.update(x=1),
    "tag": lambda t: t.tags.update(x=2),
    "restore": lambda t: t.restore(1),
    "erase": lambda t: t.erase("n = 1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_late_change_is_told_and_commits_nothing(made, change):
    path, options = made
    with blz.open(path, "a", **options) as table, blz.open(path, version=1, **options):
        blz.drop(path, **options)
        is_told(lambda: CHANGES[change](table))
    assert not blz.exists(path, **options)


@pytest.mark.parametrize("change", CHANGES)
def test_a_late_change_never_lands_in_the_table_made_there_later(made, change):
    path, options = made
    with blz.open(path, "a", **options) as table, blz.open(path, version=1, **options):
        blz.drop(path, **options)
        blz.to_blz({"n": [1, 2, 3]}, path, **options)
        with pytest.raises((blz.ConflictError, blz.TableNotFoundError), match=r"dropped|replac"):
            CHANGES[change](table)
    assert rows(made) == [1, 2, 3]
    with blz.open(path, **options) as table:
        assert (table.version, dict(table.attrs), dict(table.tags)) == (4, {}, {})


def test_a_late_change_never_lands_in_a_copy_that_took_the_place(made, tmp_path):
    """The files of a copy have the id and the numbers of those of its source."""
    path, options = made
    blz.to_blz({"n": [1, 2]}, tmp_path / "source.blz")
    blz.to_blz({"n": [4]}, tmp_path / "source.blz", mode="a")
    with blz.open(path, "a", **options) as table:
        blz.drop(path, **options)
        if not options:
            with pytest.raises(blz.TableExistsError, match="a table was dropped at"):
                blz.copy(tmp_path / "source.blz", path)
            blz.copy(tmp_path / "source.blz", path, mode="w")
            with pytest.raises(blz.ConflictError):
                table.append({"n": [9]})
            assert rows(made) == [1, 2, 4]


def test_a_transaction_that_is_open_meanwhile_is_told(made):
    path, options = made
    with blz.open(path, "a", **options) as table:
        transaction = table.transaction()
        tx = transaction.__enter__()
        tx.append({"n": [9]})
        blz.drop(path, **options)
        assert tx["n"][:].to_pylist() == [1, 2, 3, 9]
        is_told(lambda: transaction.__exit__(None, None, None))
    assert not blz.exists(path, **options)
    blz.vacuum(path, **options)
    blz.to_blz({"n": [4]}, path, **options)
    assert rows(made) == [4]


def test_a_replacement_that_was_under_way_is_told(made):
    path, options = made

    def stream():
        yield {"n": [7]}
        blz.drop(path, **options)
        yield {"n": [8]}

    with pytest.raises(blz.ConflictError, match="dropped or replaced meanwhile"):
        blz.to_blz(stream(), path, **options)
    assert not blz.exists(path, **options)


def test_an_append_by_path_beside_a_drop_makes_the_table_anew(made, monkeypatch):
    path, options = made
    pin, drops = versions.pin, iter([path])

    def pinned(*arguments):
        found = pin(*arguments)
        for one in drops:
            blz.drop(one, **options)
        return found

    monkeypatch.setattr(versions, "pin", pinned)
    blz.to_blz({"n": [9]}, path, mode="a", **options)
    monkeypatch.undo()
    assert rows(made) == [9]


@pytest.mark.parametrize("place", ["store"], indirect=True)
@pytest.mark.parametrize("mode", ["x", "a", "w"])
def test_a_table_that_another_one_makes_first_is_met_as_it_is(made, mode, monkeypatch):
    path, options = made
    blz.drop(path, **options)
    blz.vacuum(path, **options)
    newest, makes = unlocked.newest, iter([7])

    def listed(store):
        found = newest(store)
        for number in makes:
            blz.to_blz({"n": [number]}, path, **options)
        return found

    monkeypatch.setattr(unlocked, "newest", listed)
    if mode == "x":
        with pytest.raises(blz.TableExistsError, match=r"version 4"):
            blz.to_blz({"n": [8]}, path, mode=mode, **options)
    else:
        blz.to_blz({"n": [8]}, path, mode=mode, **options)
    monkeypatch.undo()
    assert rows(made) == {"x": [7], "a": [7, 8], "w": [8]}[mode]


def opened_store(path, options):
    return store_at(path, options=options.get("storage_options"))


def left(path, options):
    """Return the keys in a store, without the files that are locked."""
    store = opened_store(path, options)
    keys = {one.key: one.size for one in store.entries("") if one.size}
    store.close()
    return keys


def test_nothing_but_the_number_stays_of_a_table_that_nobody_has_open(made):
    path, options = made
    blz.drop(path, **options)
    if options:
        assert len(left(path, options)) > 3
        assert blz.vacuum(path, **options).versions == (1, 2)
        keys = {layout.manifest(1): 24, layout.manifest(2): 24, layout.manifest(3): 24}
        found = left(path, options)
        assert found.pop(layout.LATEST) < 300
        assert found == keys
        return
    assert left(path, options) == {layout.manifest(3): len(REMOVED)}
    assert blz.vacuum(path).versions == ()
    if isinstance(path, os.PathLike) and path.is_file():
        assert path.stat().st_size < 3_000


def test_what_was_open_is_removed_by_a_later_vacuum(made):
    path, options = made
    with blz.open(path, version=1, **options):
        blz.drop(path, **options)
        if not options:
            done = blz.vacuum(path)
            assert (done.versions, done.pinned) == ((), (1,))
    gc.collect()
    assert 1 in blz.vacuum(path, **options).versions
    assert blz.vacuum(path, **options).versions == ()


def test_versions_that_stayed_open_go_with_those_of_the_table_made_there_later(made):
    path, options = made
    with blz.open(path, version=1, **options):
        blz.drop(path, **options)
        blz.to_blz({"n": [4]}, path, **options)
    blz.to_blz({"n": [5]}, path, **options)
    blz.vacuum(path, keep=1, **options)
    assert versions.numbers(opened_store(path, options)) == [5]
    assert rows(made) == [5]
    with blz.open(path, **options) as table:
        assert not table.verify(full=True).problems


@pytest.mark.parametrize("place", ["directory", "memory"], indirect=True)
def test_a_damaged_table_is_dropped(made):
    path, _ = made
    store_at(path).put(layout.manifest(2), b"x" * 100)
    blz.drop(path)
    assert not blz.exists(path)
    blz.to_blz({"n": [4]}, path)
    assert rows(made) == [4]


def test_what_is_only_read_is_not_dropped(tmp_path):
    blz.to_blz({"n": [1]}, tmp_path / "t.blz", storage=blz.Storage(layout="file"))
    data = (tmp_path / "t.blz").read_bytes()
    for call in (blz.drop, blz.vacuum):
        with pytest.raises(blz.ReadOnlyError):
            call(data)


def test_a_drop_says_what_else_is_at_a_path(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1" * 10)
    with pytest.raises(blz.TableNotFoundError, match="a Parquet file"):
        blz.drop(tmp_path / "t.parquet")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with pytest.raises(blz.TableNotFoundError, match="no table at"):
        blz.drop(tmp_path / "other")
    assert (tmp_path / "other/notes.txt").read_text() == "mine"
