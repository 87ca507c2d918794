"""Versions: an open reader sees one version for its life, and each kept version comes back.

A handle on a version holds all of its files, whatever other writers append, replace, compact or
remove.
"""

import errno
import os
import pickle
import threading

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.errors import (
    ClosedError,
    CorruptError,
    ReadOnlyError,
    TableNotFoundError,
)
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support import stored
from support.moved_first import moved_first
from support.options import arguments
from support.stores import Hooked, tree
from support.worker_process import WorkerProcess

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    store = RamStore() if request.param == "memory" else LocalStore(tmp_path / "t.blz")
    yield store
    store.close()


def rows(start, stop):
    return pa.table({"n": range(start, stop), "text": map(str, range(start, stop))}, SCHEMA)


def opened(store, **options):
    return blz.open(store, "a", durability="process", **options)


def write(store, table, **options):
    blz.to_blz(table, store, **arguments(durability="process", **options))


def files(store):
    return {key for key in tree(store) if key.endswith(".bin")}


def number_of(key):
    return int(key.split("__")[1])


def all_that_changes(store):
    """Make every kind of change; the last version has no file of the first one."""
    with opened(store) as table:
        table.append(rows(100, 102))
        table.update({"text": "new"}, where=[("n", "<", 5)])
        table.add_column("more", 1)
        table.rename_columns({"n": "m"})
        table.drop_columns(["text"])
        table.delete([("m", "==", 101)])
        table.compact(sort_by=[("m", "descending")])
        table.resize(3)
    write(store, rows(200, 205))
    with opened(store) as table:
        return table.vacuum(keep=1)


# One version for the life of a reader


def test_a_reader_sees_its_version_whatever_others_do(store):
    write(store, rows(0, 40), row_group_rows=7, attrs={"a": 1})
    with blz.open(store) as reader:
        narrowed, column = reader[["text"]], reader["n"]
        batches = reader.to_batches(batch_rows=5)
        got = [next(batches)]
        names = files(store)
        removed = all_that_changes(store)
        assert removed.pinned == (1,)
        assert names <= files(store)
        got += batches
        assert pa.Table.from_batches(got) == rows(0, 40)
        assert reader.to_arrow() == rows(0, 40)
        assert reader.to_pandas().equals(rows(0, 40).to_pandas())
        assert narrowed.to_arrow() == rows(0, 40).select(["text"])
        assert column[3:33] == rows(0, 40)["n"].combine_chunks()[3:33]
        assert column[20] == 20
        assert (reader.version, dict(reader.attrs), reader.head(2)) == (1, {"a": 1}, rows(0, 2))
        assert reader.verify().is_intact
    with opened(store) as table:
        assert table.vacuum(keep=1).versions == (1,)
        assert table.to_arrow() == rows(200, 205)
    assert not names & files(store)


def test_a_column_or_a_stream_holds_the_version_its_table_let_go(store):
    write(store, rows(0, 40), row_group_rows=7)
    with opened(store) as table:
        column, narrowed, batches = table["n"], table[["n"]], table.to_batches(batch_rows=5)
        next(batches)
        table.append(rows(40, 50))
        all_that_changes(store)
        assert len(table) == 50
        assert column[:].to_pylist() == list(range(40))
        assert len(narrowed) == 40
        assert sum(batch.num_rows for batch in batches) == 35


def test_readers_in_threads_see_whole_versions_while_their_handle_appends(store):
    write(store, rows(0, 10))
    seen, failures, done = set(), [], threading.Event()

    def reading(table):
        try:
            is_last = False
            while not is_last:
                is_last = done.is_set()
                found = table.to_arrow()
                assert found == rows(0, found.num_rows)
                assert table["n"][:].to_pylist()[:10] == list(range(10))
                seen.add(found.num_rows)
        except BaseException as error:
            failures.append(error)

    with opened(store) as table:
        threads = [threading.Thread(target=reading, args=(table,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for start in range(10, 60, 2):
            table.append(rows(start, start + 2))
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert 60 in seen <= set(range(10, 61, 2))


READING = {
    "to_arrow": lambda t, names: t.to_arrow(names)["n"].to_pylist(),
    "to_pandas": lambda t, names: t.to_pandas(names)["n"].tolist(),
    "to_batches": lambda t, names: [v for b in t.to_batches(names) for v in b["n"].to_pylist()],
}


@pytest.mark.parametrize("how", READING)
def test_a_read_is_of_one_version_though_its_handle_commits_in_the_middle(store, how):
    write(store, rows(0, 3), row_group_rows=3)

    class Asked(list):
        """Names that are iterated after the read has begun."""

        def __iter__(self):
            table.delete([("n", "==", 0)])
            return super().__iter__()

    with opened(store) as table:
        assert READING[how](table, Asked(["n"])) in ([0, 1, 2], [1, 2])


# Versions


def several(store):
    """Make four versions, the last one with other columns."""
    write(store, rows(0, 3), attrs={"by": "me"})
    with opened(store) as table:
        table.append(rows(3, 5), commit_id="day 2")
        table.attrs["by"] = "you"
        table.drop_columns(["text"])


def test_each_version_is_opened_by_its_number(store):
    several(store)
    with blz.open(store, version=1) as table:
        assert (table.to_arrow(), dict(table.attrs)) == (rows(0, 3), {"by": "me"})
    assert blz.read_table(store, version=2) == rows(0, 5)
    assert blz.read_blz(store, version=3).attrs == {"by": "you"}
    assert blz.read_table(store, version=4) == rows(0, 5).select(["n"])
    for number in (0, -1, 5):
        with pytest.raises(
            TableNotFoundError, match=rf"no version {number} of .*; the versions are \[1, 2, 3, 4\]"
        ):
            blz.open(store, version=number)


def test_a_version_that_is_no_integer_is_refused_by_name(store):
    several(store)
    with pytest.raises(TypeError, match=r"^version must be an integer, not '1' of type str$"):
        blz.open(store, version="1")
    with blz.open(store, "a") as t:
        with pytest.raises(TypeError, match=r"^version must be an integer, not '1' of type str$"):
            t.restore("1")
        with pytest.raises(TypeError, match=r"^n must be an integer, not 1\.5 of type float$"):
            t.head(1.5)


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        ({"keep": 0}, ValueError, "^keep=0: "),
        ({"keep": "1"}, TypeError, "^keep must be an integer, not '1' of type str"),
        ({"older_than": -1}, ValueError, "^older_than=-1: "),
    ],
    ids=str,
)
def test_a_vacuum_names_the_argument_that_it_refuses(store, option, error, message):
    several(store)
    with blz.open(store, "a") as t, pytest.raises(error, match=message):
        t.vacuum(**option)


def test_versions_say_what_made_them_and_what_they_hold(store):
    several(store)
    with blz.open(store) as table:
        found = table.versions()
    assert [
        (one.number, one.operation, one.rows, one.columns, one.commit_ids) for one in found
    ] == [
        (1, "create", 3, 2, ()),
        (2, "append", 5, 2, ("day 2",)),
        (3, "attributes", 5, 2, ()),
        (4, "drop_columns", 5, 1, ()),
    ]
    times = [one.time for one in found]
    assert times == sorted(times)


def test_a_change_of_an_older_version_is_made_on_the_newest(store):
    several(store)
    with opened(store, version=2) as table:
        table.attrs["checked"] = True
        assert table.version == 5
        assert dict(table.attrs) == {"by": "you", "checked": True}
        assert table.to_arrow() == rows(0, 5).select(["n"])


# Restore


def test_a_version_restored_is_the_newest_with_all_it_held(store):
    several(store)
    with opened(store) as table:
        assert table.restore(1).version == table.version == 5
        assert (table.to_arrow(), dict(table.attrs)) == (rows(0, 3), {"by": "me"})
        assert table.versions()[-1].operation == "restore"
        table.append(rows(3, 4))
        assert table.to_arrow() == rows(0, 4)
        table.restore(4)
        assert table.to_arrow() == rows(0, 5).select(["n"])
        assert table.verify().is_intact
        table.vacuum(keep=1)
        assert table.to_arrow() == rows(0, 5).select(["n"])
        with pytest.raises(TableNotFoundError, match="no version 1 of"):
            table.restore(1)


def test_a_job_undone_by_a_restore_may_run_again(store):
    several(store)
    with opened(store) as table:
        table.restore(2)
        assert table.append(rows(3, 5), commit_id="day 2").version == 2
        table.restore(1)
        assert table.append(rows(3, 5), commit_id="day 2").version == 7
        assert table.to_arrow() == rows(0, 5)


@pytest.mark.usefixtures("own_files_here")
def test_what_comes_after_a_restore_takes_no_id_and_no_number_a_second_time(store):
    write(store, rows(0, 3))
    with opened(store) as table:
        table.append(rows(3, 5))
        table.add_column("more", 1)
        first = column_ids(table)["more"]
        numbers = files(store)
        table.restore(1)
        table.append(rows(3, 4))
        table.add_column("more", 2)
        assert column_ids(table)["more"] > first
        version = table._snapshot.version
        added = files(store) - numbers
        assert (
            added
            == {
                layout.part(path, k)
                for index, path in enumerate(version.paths)
                for k in stored.files(version, index)
            }
            - numbers
        )
        assert table.to_arrow().to_pydict() == {
            "n": [0, 1, 2, 3],
            "text": list("0123"),
            "more": [2] * 4,
        }
        for number, held in ((2, rows(0, 5)), (1, rows(0, 3))):
            assert blz.read_table(store, version=number) == held


@pytest.mark.usefixtures("own_files_here")
def test_ids_and_numbers_are_not_given_out_again_though_their_files_are_gone():
    store = RamStore()
    write(store, rows(0, 3))
    with opened(store) as table:
        table.append(rows(3, 5))
        table.add_column("more", 1)
        table.restore(1)
        table.vacuum(keep=1)
        kept = files(store)
        table.append(rows(3, 4))
        table.add_column("more", 2)
        assert column_ids(table) == {"n": 0, "text": 1, "more": 3}
    # Three files of the version that is gone had numbers of their own.
    assert min(map(number_of, files(store) - kept)) > max(map(number_of, kept)) + 3


def column_ids(table):
    version = table._snapshot.version
    return dict(zip(table.columns, (path[0] for path in version.paths), strict=True))


@pytest.mark.usefixtures("own_files_here")
def test_a_restored_column_that_was_dropped_gives_out_no_number_again(store):
    """The version in the middle still exists, and names more numbers than the restored one."""
    write(store, rows(0, 3))
    with opened(store) as table:
        table.append(rows(3, 5))
        table.drop_columns(["text"])
        table.restore(1)
        table.append(rows(7, 9))
        assert table.to_arrow() == pa.concat_tables([rows(0, 3), rows(7, 9)])
        appended = [stored.files(table._snapshot.version, line)[1] for line in range(2)]
    middle = versions.read(store, 2)
    assert min(appended) > max(max(stored.files(middle, line)) for line in range(2))
    assert blz.read_table(store, version=2) == rows(0, 5)


def damage(store, number):
    data = bytearray(store.get(layout.manifest(number)))
    data[len(data) // 3] ^= 4
    store.put(layout.manifest(number), bytes(data))


def test_a_version_is_restored_beside_a_damaged_newest_one(store):
    several(store)
    damage(store, 4)
    with pytest.raises(CorruptError, match="version 3 is intact, open it with version=3"):
        blz.open(store)
    with opened(store, version=3) as table:
        assert [one.damage is None for one in table.versions()] == [True, True, True, False]
        with pytest.raises(CorruptError, match="version 3 is intact"):
            table.append(rows(5, 6))
        assert table.restore(3).version == 5
        table.append(rows(5, 6))
        assert table.to_arrow() == rows(0, 6)
    assert blz.read_table(store) == rows(0, 6)


def test_damaged_older_versions_are_in_nobodys_way(store):
    several(store)
    damage(store, 2)
    with opened(store) as table:
        with pytest.raises(CorruptError, match="version 1 is intact"):
            table.restore(2)
        table.append({"n": [5]})
        table.restore(1)
        assert table.to_arrow() == rows(0, 3)
    with opened(store) as table:
        assert table.vacuum(keep=1).versions == (1, 2, 3, 4, 5)
        assert table.to_arrow() == rows(0, 3)


# Handles that can no longer write


WRITING = {
    "append": lambda t: t.append(rows(0, 1)),
    "update": lambda t: t.update({"n": 1}),
    "delete": lambda t: t.delete([("n", "==", 1)]),
    "truncate": lambda t: t.resize(1),
    "resize": lambda t: t.resize(9),
    "add_column": lambda t: t.add_column("more", 1),
    "drop_columns": lambda t: t.drop_columns(["text"]),
    "rename_columns": lambda t: t.rename_columns({"n": "m"}),
    "reorder_columns": lambda t: moved_first(t, ["text"]),
    "compact": lambda t: t.compact(),
    "attrs": lambda t: t.attrs.update(a=1),
    "configure": lambda t: t.configure(keep_versions=3),
    "restore": lambda t: t.restore(1),
    "vacuum": lambda t: t.vacuum(),
    "transaction": lambda t: t.transaction().__enter__(),
}


@pytest.mark.parametrize("verb", WRITING)
def test_a_table_opened_for_reading_or_closed_or_narrowed_changes_nothing(store, verb):
    write(store, rows(0, 3))
    before = tree(store)
    with blz.open(store) as table, pytest.raises(ReadOnlyError, match="opened for reading"):
        WRITING[verb](table)
    with (
        opened(store) as table,
        pytest.raises(ReadOnlyError, match="change the table that"),
    ):
        WRITING[verb](table[["n", "text"]])
    with pytest.raises(ClosedError, match="was closed"):
        WRITING[verb](table)
    assert tree(store) == before


def test_a_pickled_table_shows_its_version_and_writes_as_it_may(tmp_path):
    store = tmp_path / "t.blz"
    write(store, rows(0, 3))
    with opened(store) as table, table[["text"]] as narrowed:
        data = pickle.dumps((table, narrowed))
        table.append(rows(3, 5))
    table, narrowed = pickle.loads(data)
    with table:
        assert (table.version, table.to_arrow()) == (1, rows(0, 3))
        assert narrowed.columns == ["text"]
        assert table.append(rows(5, 6)).version == 3
        assert table.to_arrow() == rows(0, 6)
    with blz.open(store) as reader:
        copy = pickle.loads(pickle.dumps(reader))
        with pytest.raises(ReadOnlyError):
            copy.append(rows(0, 1))


def forking(place):
    """Return the results of a child process that uses a handle opened before the fork."""

    def answer(_):
        table = blz.open(place, "a", durability="process")
        transaction = table.transaction()
        transaction.__enter__().append({"n": [7], "text": ["7"]})
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            told = [f"read {table.to_arrow().num_rows}"]
            for name, verb in WRITING.items():
                try:
                    verb(table)
                except ReadOnlyError:
                    told.append(name)
            for act in (lambda: transaction.append({"n": [8]}), transaction.__exit__):
                try:
                    act(None, None, None) if act == transaction.__exit__ else act()
                except ReadOnlyError:
                    told.append("transaction refused")
            os.write(writing, "\n".join(told).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = pipe.read().split("\n")
        transaction.__exit__(None, None, None)
        return told, table.to_arrow().num_rows, table.version

    return answer


def test_after_a_fork_a_handle_reads_and_refuses_to_write(tmp_path):
    place = tmp_path / "t.blz"
    write(place, rows(0, 3))
    with WorkerProcess(forking, str(place)) as process:
        told, count, version = process.ask(None)
    assert told == ["read 3", *WRITING, "transaction refused", "transaction refused"]
    assert (count, version) == (4, 2)
    assert blz.read_table(place)["n"].to_pylist() == [0, 1, 2, 7]


# A newest manifest that others have removed


@pytest.fixture(params=["memory", "local"])
def lost(request, tmp_path):
    """Return a store of two versions without the manifest of the second one."""
    store = RamStore() if request.param == "memory" else LocalStore(tmp_path / "t.blz")
    blz.to_blz({"n": [1]}, store, commit_id="day 1")
    with blz.open(store, "a") as t:
        t.append({"n": [2, 3]}, commit_id="day 2")
    store.delete([layout.manifest(2)])
    yield store
    store.close()


@pytest.mark.parametrize(
    "use",
    [
        blz.read_table,
        lambda store: blz.open(store, "a"),
        lambda store: blz.to_blz({"n": [4]}, store, mode="a"),
        lambda store: blz.to_blz({"n": [4]}, store, mode="x"),
        lambda store: blz.open(store, "a", version=1).append({"n": [4]}),
    ],
)
def test_a_newest_manifest_that_is_gone_is_told_and_nothing_is_written(lost, use):
    before = tree(lost)
    with pytest.raises(blz.CorruptError, match="manifest is gone, although meta/sizes") as told:
        use(lost)
    assert told.value.intact_version == 1
    assert tree(lost) == before


def test_the_version_before_one_that_is_gone_is_restored_under_a_number_of_its_own(lost):
    with blz.open(lost, "a", version=1) as t:
        assert [(one.number, one.damage is None) for one in t.versions()] == [(1, True), (2, False)]
        assert t.restore(1).version == 3
        assert t.append({"n": [4]}).version == 4
    assert blz.read_table(lost)["n"].to_pylist() == [1, 4]
    with blz.open(lost, "a") as t:
        # Files that only the lost version named are removed now.
        assert t.vacuum(keep=1).files == 1
        assert t.verify()


def test_a_replacement_goes_on_after_the_number_of_a_version_that_is_gone(lost):
    blz.to_blz({"n": [9]}, lost)
    with blz.open(lost) as t:
        assert (t.version, t["n"][:].to_pylist()) == (3, [9])


def test_a_vacuum_beside_a_manifest_that_is_gone_removes_nothing(lost):
    before = tree(lost)
    with blz.open(lost, "a", version=1) as t:
        assert t.vacuum(keep=1).damaged == (2,)
    assert tree(lost) == before


def test_where_all_manifests_are_gone_an_append_does_not_begin_anew(lost):
    lost.delete([layout.manifest(1)])
    before = tree(lost)
    for use in (blz.open, lambda store: blz.to_blz({"n": [4]}, store, mode="a")):
        with pytest.raises(blz.CorruptError, match="no other version can be read"):
            use(lost)
    assert tree(lost) == before
    blz.to_blz({"n": [4]}, lost)
    assert blz.open(lost).version == 3


def test_a_listing_that_lags_behind_is_no_lost_manifest():
    """A network file system may list from its cache."""
    store = RamStore()
    for day in (1, 2):
        blz.to_blz({"n": [day]}, store)

    class Lagging(Hooked):
        def list_names(self, prefix):
            return [name for name in store.list_names(prefix) if not name.endswith("02")]

    assert blz.read_table(Lagging(store))["n"].to_pylist() == [2]


@pytest.mark.parametrize("sizes", [b"", b"{", b"[]", b'{"version":-1}', b'{"version":"2"}', None])
def test_sizes_that_tell_no_version_are_passed_over(sizes):
    store = RamStore()
    blz.to_blz({"n": [1]}, store)
    if sizes is None:
        store.delete([layout.SIZES])
    else:
        store.put(layout.SIZES, sizes)
    assert blz.read_table(store)["n"].to_pylist() == [1]


def test_mirrors_that_cannot_be_read_keep_nobody_from_the_table():
    store = RamStore()
    blz.to_blz({"n": [1]}, store)

    def before(name, args):
        if args and args[0] == layout.SIZES and name in ("get", "open"):
            raise blz.StorageError(errno.EIO, os.strerror(errno.EIO), layout.SIZES)

    assert blz.read_table(Hooked(store, before=before))["n"].to_pylist() == [1]


def test_a_handle_on_a_version_that_others_removed_tells_of_it(lost):
    blz.open(lost, "a", version=1).restore(1)
    with blz.open(lost, "a") as t:
        lost.delete([layout.manifest(3)])
        with pytest.raises(blz.CorruptError, match="manifest is gone, although meta/sizes"):
            t.append({"n": [4]})
