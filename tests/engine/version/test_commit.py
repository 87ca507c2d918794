"""The commit: complete or without effect, whoever else commits and whatever fails."""

import json
import threading

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from blztable.storage.store import KeyTaken
from support import tamper
from support.moved_first import moved_first
from support.options import arguments
from support.stores import Hooked, once, raising, read, set_attributes, tree, write
from support.stores import files_named as named_by

pytestmark = pytest.mark.usefixtures("own_files", "ten_copies")

OLD = pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]})
NEW = pa.table({"n": [4, 5], "text": ["d", "e"]})
OTHER = pa.table({"x": [0.5]})


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    store = LocalStore(tmp_path / "t.blz") if request.param == "local" else RamStore()
    yield store
    store.close()


def loaded(store, number=None):
    version, pinned = versions.pin(store, number)
    pinned.close()
    return version


def table(store, number=None):
    return read(loaded(store, number))


def attributes(store):
    return dict(loaded(store).head.attributes)


def set_keys(store, base, removed=(), **changes):
    version, pinned = set_attributes(store, base, changes, removed, is_durable=True)
    pinned.close()
    return version.head.version


def files_named(store):
    """Return the files that any existing version names."""
    named = set()
    for number in versions.numbers(store):
        named |= named_by(loaded(store, number))
    return named


def files_there(store):
    return {key for key in tree(store) if key.startswith("data/") and key.endswith(".bin")}


# Other writers


def test_a_replacement_lands_on_top_of_one_that_was_faster(store):
    write(store, OLD)
    faster = once("lock", lambda: write(store, OTHER), layout.LOCK)
    assert write(Hooked(store, before=faster), NEW) == 3
    assert [table(store, number) for number in (1, 2, 3)] == [OLD, OTHER, NEW]
    assert loaded(store, 3).head.parent == 2
    assert loaded(store, 1).head.uuid == loaded(store, 3).head.uuid
    assert files_there(store) == files_named(store)


def test_writers_side_by_side_all_land_with_files_of_their_own(store):
    write(store, OLD)
    tables = [pa.table({"n": [i], "who": [f"w{i}"]}) for i in range(8)]
    landed, start = {}, threading.Barrier(len(tables))

    def work(i):
        start.wait()
        landed[write(store, tables[i], durability="process")] = i

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(tables))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(landed) == list(range(2, 2 + len(tables)))
    paths = []
    for number, i in landed.items():
        assert table(store, number) == tables[i]
        paths += loaded(store, number).paths
    assert len(set(paths)) == len(paths)
    assert loaded(store).head.next_column > max(path[0] for path in paths)
    assert files_there(store) == files_named(store)


def test_two_creations_side_by_side_are_versions_1_and_2(store):
    faster = once("lock", lambda: write(store, OTHER), layout.LOCK)
    assert write(Hooked(store, before=faster), NEW) == 2
    assert [table(store, number) for number in (1, 2)] == [OTHER, NEW]
    assert files_there(store) == files_named(store)


def test_an_exclusive_creation_that_lost_raises_and_leaves_no_file(store):
    faster = once("lock", lambda: write(store, OTHER), layout.LOCK)
    with pytest.raises(TableExistsError, match=r"already exists at .* \(version 1\)") as caught:
        write(Hooked(store, before=faster), NEW, mode="x")
    assert isinstance(caught.value, FileExistsError)
    assert store.name in str(caught.value)
    assert table(store) == OTHER
    assert versions.numbers(store) == [1]
    assert files_there(store) == files_named(store)
    assert store.list_names("data") == ["col2"]


def test_an_exclusive_creation_where_a_table_is_writes_nothing(store):
    write(store, OLD)
    before, calls = tree(store), []
    with pytest.raises(TableExistsError):
        write(Hooked(store, before=lambda name, args: calls.append(name)), NEW, mode="x")
    assert tree(store) == before
    assert "put_new" not in calls


def test_where_the_writers_lock_holds_nothing_the_number_decides(store):
    write(store, OLD)
    unlocked = Hooked(store, locks=False)
    faster = once("publish", lambda: write(unlocked, OTHER))
    assert write(Hooked(store, before=faster, locks=False), NEW) == 3
    assert [table(store, number) for number in (1, 2, 3)] == [OLD, OTHER, NEW]
    assert loaded(store, 3).head.parent == 2


def test_without_the_writers_lock_an_exclusive_creation_still_loses(store):
    unlocked = Hooked(store, locks=False)
    faster = once("publish", lambda: write(unlocked, OTHER))
    with pytest.raises(TableExistsError):
        write(Hooked(store, before=faster, locks=False), NEW, mode="x")
    assert table(store) == OTHER
    assert files_there(store) == files_named(store)


def test_a_writers_lock_that_is_held_too_long_is_busy_and_nothing_is_left(store, tuned):
    write(store, OLD)
    before = tree(store)
    tuned(lock_seconds=0.01)
    with store.lock(layout.LOCK, shared=False, timeout=0), pytest.raises(BusyError):
        write(store, NEW)
    assert tree(store) == before
    assert table(store) == OLD


# Attributes


def test_attributes_of_other_keys_all_land(store):
    write(store, OLD, attrs={"a": 1, "b": 1, "c": 1})
    base = loaded(store)
    assert set_keys(store, base, a=2) == 2
    assert set_keys(store, base, ["b"]) == 3
    assert set_keys(store, base, new=None) == 4
    assert attributes(store) == {"a": 2, "c": 1, "new": None}
    assert table(store) == OLD
    assert loaded(store).paths == base.paths


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 2}, {"a": 3}),
        ({"a": 2}, {"removed": ["a"]}),
        ({"removed": ["a"]}, {"a": 3}),
        ({"removed": ["a"]}, {"removed": ["a"]}),
        ({"new": 1}, {"new": 2}),
        ({"new": None}, {"new": 2}),
    ],
)
def test_attributes_of_one_key_conflict(store, first, second):
    write(store, OLD, attrs={"a": 1})
    base = loaded(store)
    set_keys(store, base, **first)
    after, before = attributes(store), tree(store)
    key = "a" if "new" not in first else "new"
    with pytest.raises(ConflictError, match=f"attribute '{key}' was changed by version 2"):
        set_keys(store, base, **second)
    assert attributes(store) == after
    assert tree(store) == before


def test_attributes_land_on_top_of_a_replacement_that_left_the_key_alone(store):
    write(store, OLD)
    base = loaded(store)
    write(store, NEW)
    set_keys(store, base, a=1)
    assert table(store) == NEW
    assert attributes(store) == {"a": 1}


# Failures


def calls_of(store, action):
    """Return the calls of a commit in order; failures of mirrors raise nothing."""
    calls = []

    def before(name, args):
        if not is_mirror(args):
            calls.append(name)

    action(Hooked(store, before=before))
    return calls


def is_mirror(args):
    return args[:1] == (layout.SIZES,)


def at_call(number, error):
    met = -1

    def hook(name, args):
        nonlocal met
        met += not is_mirror(args)
        if met == number:
            raise error

    return hook


def replaced(store):
    return write(store, NEW, mode="w")


def fresh(store, tmp_path, number):
    if isinstance(store, RamStore):
        return RamStore()
    return LocalStore(tmp_path / f"{number}.blz")


FAILURES = [
    StorageError("the medium failed"),
    KeyboardInterrupt(),
    MemoryError(),
    ZeroDivisionError(),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_replacement_that_fails_before_its_publication_leaves_nothing(store, tmp_path, error):
    write(store, OLD)
    trial = fresh(store, tmp_path, "trial")
    write(trial, OLD)
    # Threads may swap their calls, but not with later calls.
    until = calls_of(trial, replaced).index("publish")
    before = tree(store)
    assert until > 10
    for number in range(until + 1):
        with pytest.raises(type(error)) as caught:
            replaced(Hooked(store, before=at_call(number, error)))
        # An error of reading a manifest may name the manifest.
        assert caught.value is error or str(caught.value).endswith(f": {error}")
        assert tree(store) == before
        assert table(store) == OLD
    assert replaced(store) == 2


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_creation_that_fails_before_its_publication_leaves_no_table(store, tmp_path, error):
    until = calls_of(fresh(store, tmp_path, "trial"), replaced).index("publish")
    for number in range(until + 1):
        place = fresh(store, tmp_path, number)
        with pytest.raises(type(error)) as caught:
            replaced(Hooked(place, before=at_call(number, error)))
        assert caught.value is error
        assert tree(place) <= {"data", "meta", "meta/flight", "meta/lock", "meta/manifest"}
        with pytest.raises(TableNotFoundError):
            versions.pin(place)
        assert replaced(place) == 1
        assert table(place) == NEW


def test_a_failure_right_after_any_call_leaves_the_old_table_or_the_new_one(store, tmp_path):
    trial = fresh(store, tmp_path, "trial")
    write(trial, OLD)
    calls = calls_of(trial, replaced)
    for number in range(len(calls)):
        place = fresh(store, tmp_path, number)
        write(place, OLD)
        if calls[number] == "lock":
            continue  # Only the garbage collector would release it.
        with pytest.raises(KeyboardInterrupt):
            replaced(Hooked(place, after=at_call(number, KeyboardInterrupt())))
        found = loaded(place).head.version
        assert table(place) == {1: OLD, 2: NEW}[found]
        assert files_named(place) <= files_there(place)
        assert replaced(place) == found + 1


def test_a_publication_that_says_taken_though_it_was_ours_is_a_success(store):
    write(store, OLD)
    late = once("publish", raising(KeyTaken("a retry met its first try")))
    assert write(Hooked(store, after=late), NEW) == 2
    assert versions.numbers(store) == [1, 2]
    assert table(store) == NEW


def test_a_number_that_another_took_is_not_ours_though_its_manifest_cannot_be_read(store):
    """Without effective locks, another writer's commit may have the same version number."""
    write(store, OLD)
    taken = []

    def theirs():
        write(Hooked(store, locks=False), OTHER)
        taken.append(layout.manifest(2))

    def before(name, args):
        act(name, args)
        if taken and name == "get" and args[0] == taken[0]:
            raise StorageError("connection lost")

    act = once("publish", theirs)
    with pytest.raises(CommitUnknownError, match="by this commit or by another one"):
        write(Hooked(store, before=before, locks=False), NEW)
    assert table(store) == OTHER


def test_a_publication_that_fails_after_it_happened_removes_nothing(store):
    write(store, OLD)
    late = once("publish", raising(StorageError("connection lost")))
    with pytest.raises((StorageError, CommitUnknownError)):
        write(Hooked(store, after=late), NEW)
    assert table(store, 2) == NEW
    assert files_there(store) == files_named(store)


def test_a_publication_whose_manifest_cannot_be_read_back_removes_nothing(store):
    write(store, OLD)
    state = []

    def before(name, args):
        if state and name == "get" and args[0] == layout.manifest(2):
            raise StorageError("connection lost")

    def after(name, args):
        if name == "publish":
            state.append(True)
            raise StorageError("connection lost")

    with pytest.raises((StorageError, CommitUnknownError)):
        write(Hooked(store, before=before, after=after), NEW)
    assert table(store, 2) == NEW


def test_a_manifest_whose_name_could_not_be_flushed_is_an_unknown_commit(store):
    write(store, OLD)
    failing = once("flush_names", raising(StorageError("input/output error")), layout.MANIFESTS)
    with pytest.raises(CommitUnknownError, match=r"version 2 was published but .*input/output"):
        write(Hooked(store, before=failing), NEW)
    assert table(store) == NEW
    assert table(store, 1) == OLD
    assert files_there(store) == files_named(store)


def test_a_failed_flush_is_not_tried_again(store):
    write(store, OLD)
    before, calls = tree(store), []

    def failing(name, args):
        calls.append(name)
        if name == "flush":
            raise StorageError("input/output error")

    with pytest.raises(StorageError, match="input/output error"):
        write(Hooked(store, before=failing), NEW)
    assert calls.count("flush") == 1
    assert "publish" not in calls
    assert tree(store) == before


def test_what_cannot_be_removed_after_a_failure_does_not_hide_it(store):
    write(store, OLD)

    def failing(name, args):
        if name == "flush":
            raise StorageError("the news")
        if name == "delete":
            raise StorageError("noise")

    with pytest.raises(StorageError, match="the news"):
        write(Hooked(store, before=failing), NEW)
    assert table(store) == OLD
    assert write(store, NEW) == 2
    assert table(store) == NEW


def test_durability_process_flushes_nothing_of_a_replacement(store):
    write(store, OLD)
    calls = calls_of(store, lambda hooked: write(hooked, NEW, durability="process"))
    assert {"flush", "flush_names"}.isdisjoint(calls)
    calls = calls_of(store, lambda hooked: write(hooked, NEW))
    assert calls.index("flush") < calls.index("publish") < calls.index("flush_names")


# Mirrors


def mirror(store, key):
    return json.loads(store.get(key))


def test_the_mirrors_say_what_the_newest_version_holds(store):
    write(store, OLD, attrs={"till": 7}, compression="zstd", clevel=3, shuffle="bit")
    version = loaded(store)
    sizes = {
        "version": 1,
        "shape": [3],
        "nbytes": version.nbytes(0) + version.nbytes(1),
        "cbytes": version.cbytes(0) + version.cbytes(1),
    }
    assert mirror(store, "meta/sizes") == sizes
    assert mirror(store, "meta/attributes") == {"till": 7}
    assert mirror(store, "meta/storage") == {
        "dtype": [["n", "int64"], ["text", "string"]],
        "cparams": {"cname": "zstd", "clevel": 3, "shuffle": "bit"},
        "chunklen": 16_384,
        "superchunksize": None,
        "expectedlen": 4,
        "dflt": [None, None],
        "filters": ["shuffle"],
        "endianness": "little",
        "order": "C",
    }
    write(store, NEW, attrs={"till": 8})
    assert mirror(store, "meta/sizes")["shape"] == [2]
    assert mirror(store, "meta/attributes") == {"till": 8}
    set_keys(store, loaded(store), ["till"], done=True)
    assert mirror(store, "meta/attributes") == {"done": True}


def test_the_mirrors_say_how_columns_are_stored(store):
    data = pa.table({"n": [1, 2, 3], "x": [1.5, 2.5, 3.5]})
    options = {"shuffle": "none", "page_rows": 16, "row_group_rows": 2, "truncate": {"x": 3}}
    blz.to_blz(data, store, **arguments(**options))
    storage = mirror(store, "meta/storage")
    assert (storage["chunklen"], storage["superchunksize"]) == (16, 2)
    assert (storage["filters"], storage["cparams"]["shuffle"]) == (["truncate"], "none")
    # Columns whose pages differ have no one length.
    blz.to_blz(
        data,
        store,
        storage=blz.Storage(
            columns={"n": blz.Storage(page_rows=16), "x": blz.Storage(page_rows=32)}
        ),
    )
    assert mirror(store, "meta/storage")["chunklen"] is None
    blz.to_blz(data.slice(0, 0), store, storage=blz.Storage(page_rows=16))
    assert mirror(store, "meta/storage")["chunklen"] is None


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        (pa.float64(), 2.5, 2.5),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.bool_(), True, True),
        (pa.string(), "né", "né"),
        (pa.dictionary(pa.int8(), pa.string()), "né", "né"),
        (pa.float64(), float("-inf"), {"blz:value": ["float", "-inf"]}),
        (pa.binary(), b"\0\1", {"blz:value": ["stored", "AAE="]}),
        (pa.timestamp("us"), 7, {"blz:value": ["stored", "BwAAAAAAAAA="]}),
        (pa.date32(), -(2**31), {"blz:value": ["stored", "AAAAgA=="]}),
        (pa.timestamp("s"), -(2**63), {"blz:value": ["stored", "AAAAAAAAAIA="]}),
        (
            pa.list_(pa.int8()),
            [7],
            {"blz:value": ["stored", [{"lengths": "AQAAAAAAAAA="}, {"values": "Bw=="}]]},
        ),
    ],
)
def test_the_mirrors_say_the_default_of_each_column(store, type_, value, shown):
    blz.to_blz({"n": [1, 2]}, store)
    with blz.open(store, mode="a", durability="process") as t:
        column = pa.array([value] * 2, type_)
        t.add_column("more", column, default=column[0])
        assert mirror(store, "meta/storage")["dflt"] == [None, shown]
        # A commit that writes no line of the column.
        t.append({"n": [3]})
        t.rename_columns({"more": "other"})
        moved_first(t, ["other", "n"])
    assert mirror(store, "meta/storage")["dflt"] == [shown, None]


def test_a_false_default_keeps_no_commit_from_its_end(store):
    blz.to_blz({"n": [1]}, store, durability="process")
    with tamper.editing(store) as edit:
        edit.head["properties"]["defaults"] = {"0": "!"}
    with blz.open(store, mode="a", durability="process") as t:
        t.delete([("n", "==", 1)])
    assert mirror(store, "meta/storage")["dflt"] == [None]


def test_a_mirror_that_fails_is_a_warning_and_the_commit_stands(store):
    write(store, OLD)
    failing = once("put", raising(StorageError("disk full")))
    with pytest.warns(UserWarning, match="version 2 is committed, but disk full"):
        assert write(Hooked(store, before=failing), NEW) == 2
    assert table(store) == NEW


def test_a_removal_of_old_versions_that_fails_is_a_warning_and_the_commit_stands(store):
    for _ in range(10):
        write(store, OLD, durability="process")
    failing = once("delete", raising(StorageError("disk full")))
    with pytest.warns(UserWarning, match="version 11 is committed, but disk full"):
        assert write(Hooked(store, before=failing), NEW) == 11
    assert table(store) == NEW
    assert write(store, NEW) == 12
    assert versions.numbers(store) == list(range(3, 13))


# Bug: a published commit was reported as failed when its version could not be opened afterwards.
def test_a_commit_that_cannot_be_opened_is_not_said_to_have_failed(tmp_path, monkeypatch):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    lock = LocalStore.lock

    def fail_after(store, key, **options):
        if key == layout.manifest(2):
            raise blz.StorageError(24, "Too many open files")
        return lock(store, key, **options)

    monkeypatch.setattr(LocalStore, "lock", fail_after)
    with pytest.raises(blz.CommitUnknownError, match=r"version 2 is committed, .*Too many"):
        blz.to_blz({"a": [2]}, path)
    monkeypatch.undo()
    assert blz.read_table(path)["a"].to_pylist() == [2]
    assert versions.numbers(LocalStore(path)) == [1, 2]
