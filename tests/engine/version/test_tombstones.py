"""Tombstones: a version that was removed keeps its number, and is as if it were not listed."""

import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.format import layout
from blztable.format.manifest import UNLOCKED
from blztable.format.version_file import REMOVED
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.stores import put_head


@pytest.fixture
def place(tmp_path):
    """Return a table of three versions, of which the second was removed."""
    path = tmp_path / "t.blz"
    for value in (1, 2, 3):
        blz.to_blz({"n": [value]}, path, mode="a" if value > 1 else "w")
    LocalStore(path).put(layout.manifest(2), REMOVED)
    return path


def test_a_removed_version_is_gone_and_all_others_are_there(place):
    with pytest.raises(blz.TableNotFoundError, match=r"version 2 .* was removed"):
        blz.open(place, version=2)
    with blz.open(place) as table:
        assert [one.number for one in table.versions()] == [1, 3]
        assert table.to_arrow()["n"].to_pylist() == [1, 2, 3]
        assert not table.verify().problems
    assert blz.read_table(place, version=1)["n"].to_pylist() == [1]


def test_a_table_with_a_removed_version_is_changed_and_vacuumed(place):
    with blz.open(place, "a") as table:
        table.append({"n": [4]})
        assert not table.vacuum(keep=1).damaged
        assert [one.number for one in table.versions()] == [4]
        assert table.to_arrow()["n"].to_pylist() == [1, 2, 3, 4]
    assert versions.numbers(LocalStore(place)) == [4]


def test_a_tombstone_that_is_the_newest_says_that_the_table_was_dropped(place):
    LocalStore(place).put(layout.manifest(4), REMOVED)
    with pytest.raises(blz.TableNotFoundError, match="it was dropped"):
        blz.open(place)
    assert not blz.exists(place)
    blz.to_blz({"m": [5]}, place)
    with blz.open(place) as table:
        assert table.version == 5
        assert table.columns == ["m"]


def test_an_empty_manifest_is_damage_and_no_tombstone(place):
    (place / layout.manifest(4)).write_bytes(b"")
    with pytest.raises(blz.CorruptError, match="0 bytes"):
        blz.open(place)


def test_a_table_without_locks_is_read_and_not_changed_where_it_cannot_do_without():
    store = RamStore()
    blz.to_blz({"n": [1]}, store)
    put_head(store, 1, requires=(UNLOCKED,))
    assert blz.read_table(store)["n"].to_pylist() == [1]
    with pytest.raises(blz.ReadOnlyError, match="without locks"):
        blz.to_blz({"n": [4]}, store, mode="a")
