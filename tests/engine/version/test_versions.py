"""Opening is recovery: the newest manifest is the table, and foreign files are left alone."""

import errno
import os
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

from blztable.engine.version import versions
from blztable.errors import (
    BlzError,
    BusyError,
    CorruptError,
    FormatError,
    ReadOnlyError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from blztable.format import layout
from blztable.format.leaf import Leaf
from blztable.storage.disk import Disk
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.stores import Hooked, once, read, tree, write

pytestmark = pytest.mark.usefixtures("own_files", "ten_copies")

DATA = pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]})


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    store = LocalStore(tmp_path / "t.blz") if request.param == "local" else RamStore()
    yield store
    store.close()


def table(store, number=None):
    version, pinned = versions.pin(store, number)
    with pinned:
        return read(version)


def content(number):
    return pa.table({"n": [number]})


def damage(store, number, how):
    data = store.get(layout.manifest(number))
    store.put(layout.manifest(number), how(data))


DAMAGES = {
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "cut in its head": lambda data: data[: len(data) // 4],
    "one bit": lambda data: bytes([*data[:40], data[40] ^ 1, *data[41:]]),
    "another number": lambda data: data.replace(b'"version":3', b'"version":2'),
    "no manifest": lambda data: b"{}\n" + b"0" * 64 + b"\n",
}


def test_the_newest_version_is_opened_or_the_one_asked_for(store):
    for number in range(1, 4):
        write(store, content(number))
    assert versions.numbers(store) == [1, 2, 3]
    assert versions.newest_number(store) == 3
    assert table(store) == content(3)
    for number in range(1, 4):
        assert table(store, number) == content(number)


@pytest.mark.parametrize("number", [4, 0, -1, 10**25])
def test_a_version_that_is_not_there_is_not_found(store, number):
    for one in range(1, 4):
        write(store, content(one))
    with pytest.raises(TableNotFoundError, match=f"no version {number} of "):
        versions.pin(store, number)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_newest_manifest_is_an_error_that_names_the_newest_intact_one(store, how):
    for number in range(1, 4):
        write(store, content(number))
    damage(store, 3, DAMAGES[how])
    with pytest.raises(CorruptError) as caught:
        versions.pin(store)
    assert f"{store.name}/{layout.manifest(3)}: " in str(caught.value)
    assert str(caught.value).endswith("; version 2 is intact, open it with version=2")
    assert caught.value.intact_version == 2
    assert table(store, 2) == content(2)


def test_a_manifest_of_another_version_is_told(store):
    write(store, content(1))
    write(store, content(2))
    store.put(layout.manifest(2), store.get(layout.manifest(1)))
    with pytest.raises(CorruptError, match=r"0+2: the manifest is of version 1; version 1 is"):
        versions.pin(store)


def test_the_hint_passes_over_versions_that_are_damaged_too(store):
    for number in range(1, 4):
        write(store, content(number))
    damage(store, 3, DAMAGES["empty"])
    damage(store, 2, DAMAGES["empty"])
    with pytest.raises(CorruptError, match="version 1 is intact, open it with version=1"):
        versions.pin(store)
    damage(store, 1, DAMAGES["empty"])
    with pytest.raises(CorruptError) as caught:
        versions.pin(store)
    assert "intact" not in str(caught.value)


def test_an_exclusive_creation_on_top_of_a_damaged_manifest_is_an_error(store):
    write(store, content(1))
    write(store, content(2))
    damage(store, 2, DAMAGES["one bit"])
    before = tree(store)
    with pytest.raises(CorruptError):
        write(store, content(3), mode="x")
    assert tree(store) == before


def test_a_table_with_a_damaged_newest_manifest_can_be_replaced(store):
    write(store, content(1))
    write(store, content(2))
    damage(store, 2, DAMAGES["one bit"])
    assert write(store, content(3)) == 3
    assert table(store) == content(3)


def test_a_replacement_of_a_damaged_version_keeps_the_intact_ones(store):
    write(store, content(1))
    write(store, content(2))
    damage(store, 2, DAMAGES["one bit"])
    write(store, content(3))
    assert table(store, 1) == content(1)


def test_damaged_records_of_a_column_are_an_error_of_that_column_only(store):
    write(store, DATA)
    version, pinned = versions.pin(store)
    leaf = version.facts.runs[0].encoded()
    index = Leaf(leaf).index
    place = store.get(layout.manifest(1)).index(leaf) + int(index["offset"][2])
    damage(store, 1, lambda data: data[: place + 5] + b"#" + data[place + 6 :])
    with pinned:
        # The manifest was read whole.
        assert version.parts(1).files.tolist() == [2]
    version = versions.read(store, 1)
    assert version.parts(0).files.tolist() == [1]
    with pytest.raises(CorruptError, match=r"meta/manifest/0+1: .*crc32 of column 1"):
        version.parts(1)


def test_names_that_are_no_versions_are_passed_over(store):
    write(store, DATA)
    for name in ("x", "1", "0" * 20, "+" + "1" * 19, "2".zfill(21)):
        store.put_new(f"meta/manifest/{name}", [b"?"])
    assert versions.numbers(store) == [1]
    assert table(store) == DATA


def test_a_manifest_that_goes_before_it_is_pinned_is_looked_for_again(store):
    write(store, content(1))

    def superseded():
        write(store, content(2))
        store.delete([layout.manifest(1)])

    racing = Hooked(store, before=once("lock", superseded, layout.manifest(1)))
    version, pinned = versions.pin(racing)
    with pinned:
        assert read(version) == content(2)


def test_a_pin_is_a_lock_on_the_manifest(store):
    write(store, content(1))
    _, first = versions.pin(store)
    _, second = versions.pin(store, 1)
    for pinned in (first, second):
        with pytest.raises(BlzError):
            store.lock(layout.manifest(1), shared=False, timeout=0)
        pinned.close()
    store.lock(layout.manifest(1), shared=False, timeout=0).close()


# States before a table exists


def test_nothing_there_is_no_table(store):
    with pytest.raises(TableNotFoundError, match=f"no table at {store.name}; write one"):
        versions.pin(store)


def test_an_unfinished_creation_is_no_table_and_is_taken_over(store):
    store.prepare(*layout.PREPARED)
    for key in ("data/col0/__1__.bin", "data/col7/col1/__3__.bin", "data/col7/__2__.bin"):
        store.put_new(key, [b"half"])
    store.reserve("data/col9")
    with pytest.raises(TableNotFoundError, match="nothing is committed there"):
        versions.pin(store)
    assert write(store, DATA, mode="x") == 1
    assert table(store) == DATA
    assert {key for key in tree(store) if key.startswith("data/")} == {
        "data/col0",
        "data/col0/__1__.bin",
        "data/col1",
        "data/col1/__2__.bin",
    }


def test_temporary_files_of_a_killed_creation_are_swept(tmp_path):
    store = LocalStore(tmp_path / "t.blz")
    store.prepare(*layout.PREPARED)
    for name in ("meta/.tmp-1", "meta/manifest/.tmp-2"):
        (tmp_path / "t.blz" / name).write_bytes(b"half")
    assert write(store, DATA) == 1
    assert not [key for key in tree(store) if ".tmp-" in key]


def test_files_of_a_creation_in_flight_are_not_taken_for_debris(store):
    store.prepare(*layout.PREPARED)
    store.put_new("data/col0/__1__.bin", [b"in flight"])
    with store.lock(layout.MANIFESTS, shared=True, timeout=0):
        assert write(store, DATA) == 1
    assert store.get("data/col0/__1__.bin") == b"in flight"
    assert table(store) == DATA


@pytest.mark.parametrize(
    "key",
    ["x.txt", "data2/x", ".hidden", "meta/x.txt", "data/x.txt", "data/col01/x", "data/notes/x"],
)
def test_a_directory_with_something_foreign_is_never_touched(store, key):
    if isinstance(store, LocalStore):
        os.mkdir(store.name)
    store.put_new(key, [b"mine"])
    before = tree(store)
    for mode in ("w", "x"):
        with pytest.raises(TableExistsError, match=r"is not a table.* left as it is") as caught:
            write(store, DATA, mode=mode)
        assert repr(key.split("/")[1 if key.startswith(("meta/", "data/")) else 0]) in str(
            caught.value
        )
    assert tree(store) == before
    assert store.get(key) == b"mine"
    with pytest.raises(TableNotFoundError):
        versions.pin(store)


def test_what_users_put_beside_a_table_does_not_disturb_it(store):
    write(store, content(1))
    foreign = ["README.txt", "meta/notes", "data/x.txt", "data/col0/x.txt"]
    for key in foreign:
        store.put_new(key, [b"mine"])
    for number in range(2, 14):
        write(store, content(number), durability="process")
    assert table(store) == content(13)
    for key in foreign:
        assert store.get(key) == b"mine"


def test_an_empty_directory_is_taken(tmp_path):
    (tmp_path / "t.blz").mkdir()
    store = LocalStore(tmp_path / "t.blz")
    with pytest.raises(TableNotFoundError):
        versions.pin(store)
    assert write(store, DATA, mode="x") == 1
    assert table(store) == DATA


def test_a_path_that_is_a_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "t.blz"
    path.write_text("mine")
    for action in (lambda s: write(s, DATA), versions.pin):
        with pytest.raises((TableExistsError, FormatError), match=r"t\.blz is a file"):
            action(LocalStore(path))
    assert path.read_text() == "mine"


def test_a_missing_parent_is_told_by_its_name(tmp_path):
    with pytest.raises(StorageError, match="no such directory") as caught:
        write(LocalStore(tmp_path / "no" / "t.blz"), DATA)
    assert str(tmp_path / "no") in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TableNotFoundError):
        versions.pin(LocalStore(tmp_path / "no" / "t.blz"))


def test_a_link_to_a_table_is_the_table(tmp_path):
    write(LocalStore(tmp_path / "t.blz"), DATA)
    (tmp_path / "link").symlink_to("t.blz")
    assert table(LocalStore(tmp_path / "link")) == DATA


class ReadOnlyDisk(Disk):
    """A disk that is mounted read-only."""

    def mkdir(self, name, dir_fd):
        raise OSError(errno.EROFS, "read-only file system")

    create = link = rename = rename_new = unlink = rmdir = sync_file = sync_directory = mkdir


def test_a_table_on_a_read_only_disk_is_read_and_pinned(tmp_path):
    write(LocalStore(tmp_path / "t.blz"), DATA)
    store = LocalStore(tmp_path / "t.blz", disk=ReadOnlyDisk())
    version, pinned = versions.pin(store)
    with pinned:
        assert read(version) == DATA
        with pytest.raises(BusyError):
            store.lock(version.key, shared=False, timeout=0)


def test_a_table_on_a_read_only_disk_refuses_writers(tmp_path):
    write(LocalStore(tmp_path / "t.blz"), DATA)
    store = LocalStore(tmp_path / "t.blz", disk=ReadOnlyDisk())
    before = tree(store)
    with pytest.raises(ReadOnlyError, match="read-only file system"):
        write(store, DATA)
    assert tree(store) == before
    with pytest.raises(ReadOnlyError):
        write(LocalStore(tmp_path / "new.blz", disk=ReadOnlyDisk()), DATA)


def test_files_and_directories_without_write_permission_are_read_and_pinned(tmp_path):
    path = tmp_path / "t.blz"
    write(LocalStore(path), DATA)
    for top, _, files in os.walk(path, topdown=False):
        for name in files:
            os.chmod(Path(top, name), 0o444)
        os.chmod(top, 0o555)
    assert table(LocalStore(path)) == DATA


def test_opening_warns_of_nothing(store):
    write(store, DATA)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table(store)
    assert caught == []
