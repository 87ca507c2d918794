"""Tables that hold their version where no lock does: nothing removes it, and nothing stays."""

import gc
import math
import os
import pickle
import threading
import time
from contextlib import suppress

import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.version import leases
from blztable.format import layout
from blztable.storage.remote.object_bucket import ObjectBucket
from blztable.table.snapshot import Snapshot
from support.remote_places import options_of, put
from support.stores import fork

URL = "s3://bucket/t.blz"


@pytest.fixture
def place(s3):
    """Return the options to reach a table of three versions that share no file."""
    options = {"storage_options": options_of(s3)}
    for number in range(3):
        blz.to_blz({"n": [number]}, URL, mode="w", **options)
    return options


@pytest.fixture(autouse=True)
def no_thread_stays():
    """Fail a test that leaves a thread which renews."""
    yield
    gc.collect()
    assert in_time(lambda: not renewing())


def renewing():
    return [one for one in threading.enumerate() if one.name == "blztable-repeated"]


def in_time(holds, seconds=20):
    """Return True as soon as something holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def held(s3):
    """Return the versions with a lease."""
    keys = [key.removeprefix("t.blz/") for key in s3.keys]
    return sorted(filter(None, map(layout.leased_version, keys)))


def vacuum(place):
    return blz.vacuum(URL, keep=1, **place)


def values(table):
    return table.to_arrow()["n"].to_pylist()


@pytest.mark.parametrize("version", [None, 1])
def test_a_version_that_is_held_is_read_until_the_table_is_closed(s3, place, version):
    with blz.open(URL, version=version, hold=600, **place) as table:
        number = table.version
        assert held(s3) == [number]
        blz.to_blz({"n": [9]}, URL, mode="w", **place)
        assert vacuum(place).pinned == (number,)
        assert values(table) == [number - 1]
        assert not table.verify(full=True).problems
    assert held(s3) == []
    assert vacuum(place).versions == (number,)


def test_a_table_without_hold_is_told_that_its_version_was_removed(place):
    with blz.open(URL, version=1, **place) as table:
        vacuum(place)
        with pytest.raises(blz.TableNotFoundError, match="was removed while it was read"):
            values(table)


def puts(s3):
    return [one for one in s3.log if one.verb == "PUT" and layout.LEASES in one.key]


def test_a_lease_is_renewed_while_nobody_reads(s3, place, tuned):
    tuned(lease_seconds=3)
    with blz.open(URL, version=1, hold=600, **place) as table:
        assert len(puts(s3)) == 1
        assert in_time(lambda: len(puts(s3)) > 2)
        assert len({one.key for one in puts(s3)}) == 1
        assert values(table) == [0]


def test_a_renewal_that_fails_is_made_again(s3, place, tuned):
    tuned(lease_seconds=3)
    fails = iter([False, True, False])

    def put(self, key, data, put=ObjectBucket.put):
        if layout.LEASES in key and next(fails, False):
            raise blz.StorageError("no reply")
        put(self, key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectBucket, "put", put)
        with blz.open(URL, version=1, hold=600, **place) as table:
            assert in_time(lambda: len(puts(s3)) > 1)
            assert values(table) == [0]
    assert next(fails, None) is None


def test_a_lease_that_stopped_to_count_is_told_by_the_next_read(s3, place, tuned):
    with blz.open(URL, version=1, hold=600, **place) as table:
        assert values(table) == [0]
        tuned(lease_seconds=0)
        for read in (values, len_of_take, lambda t: t.to_pandas(), lambda t: t[:1], dict_of):
            with pytest.raises(blz.ConflictError, match="version 1 is not held any more"):
                read(table)
    assert held(s3) == []


def len_of_take(table):
    return len(table.take([0]))


def dict_of(table):
    return table["n"][:].to_pylist()


def test_what_was_lost_once_is_not_mended_by_a_later_renewal(place, tuned):
    with blz.open(URL, version=1, hold=600, **place) as table:
        with tuning.tuned(lease_seconds=0), pytest.raises(blz.ConflictError):
            values(table)
        with pytest.raises(blz.ConflictError, match="open the table again"):
            values(table)


def test_a_hold_ends_after_its_time_and_the_table_reads_on(s3, place):
    with blz.open(URL, version=1, hold=0.05, **place) as table:
        assert in_time(lambda: not held(s3))
        assert values(table) == [0]
        vacuum(place)
        with pytest.raises(blz.TableNotFoundError, match="was removed"):
            values(table)


def test_nothing_stays_of_a_table_that_was_not_closed(s3, place):
    table = blz.open(URL, hold=math.inf, **place)
    column, stream = table["n"], table.to_batches()
    assert len(renewing()) == 1
    del table
    gc.collect()
    assert held(s3) == [3]
    del column
    stream.close()
    del stream
    gc.collect()
    assert in_time(lambda: not held(s3))


def test_a_table_that_shows_a_newer_version_holds_that(s3, place):
    with blz.open(URL, "a", hold=600, **place) as table:
        assert held(s3) == [3]
        table.append({"n": [7]})
        gc.collect()
        assert in_time(lambda: held(s3) == [4])
        blz.to_blz({"n": [8]}, URL, mode="a", **place)
        table.refresh()
        gc.collect()
        assert in_time(lambda: held(s3) == [5])
        assert values(table) == [2, 7, 8]


def test_a_hold_that_cannot_be_taken_after_a_commit_is_told_by_the_next_read(place, monkeypatch):
    def lease(*_):
        raise blz.StorageError("no lease")

    with blz.open(URL, "a", hold=600, **place) as table:
        with monkeypatch.context() as patch:
            patch.setattr(leases, "lease", lease)
            assert table.append({"n": [7]}).version == 4
        with pytest.raises(blz.StorageError, match="no lease"):
            values(table)
    assert blz.read_table(URL, **place)["n"].to_pylist() == [2, 7]


def test_a_version_that_a_vacuum_is_about_to_remove_is_not_opened(s3, place):
    put(s3, f"t.blz/{layout.mark('x')}", b"[1]")
    with pytest.raises(blz.TableNotFoundError, match="about to remove"):
        blz.open(URL, version=1, hold=600, **place)
    assert (held(s3), renewing()) == ([], [])


def test_the_newest_version_is_opened_again_if_it_was_removed_before_it_was_held(
    place, monkeypatch
):
    keep, times = Snapshot.keep, iter(range(10))

    def kept(self, seconds, **options):
        if next(times) == 0:
            blz.to_blz({"n": [9]}, URL, mode="w", **place)
            vacuum(place)
        return keep(self, seconds, **options)

    monkeypatch.setattr(Snapshot, "keep", kept)
    with blz.open(URL, hold=600, **place) as table:
        assert (table.version, values(table)) == (4, [9])


def test_a_held_version_is_restored_and_tagged_beside_vacuums(place):
    with blz.open(URL, version=1, hold=600, **place) as reader:
        vacuum(place)
        with blz.open(URL, "a", **place) as table:
            table.tags["kept"] = 1
            table.restore(1)
            table.append({"n": [5]})
        vacuum(place)
        assert values(reader) == [0]
    vacuum(place)
    assert blz.read_table(URL, **place)["n"].to_pylist() == [0, 5]
    assert blz.read_table(URL, version="kept", **place)["n"].to_pylist() == [0]


def test_a_dropped_table_is_read_on_by_who_holds_it(place):
    with blz.open(URL, hold=600, **place) as reader:
        blz.drop(URL, **place)
        assert blz.vacuum(URL, **place).pinned == (3,)
        assert values(reader) == [2]
    assert blz.vacuum(URL, **place).versions == (3,)


def test_a_copy_of_a_table_holds_its_version_too(s3, place, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with blz.open(URL, version=1, hold=600, **place) as table:
        with pickle.loads(pickle.dumps(table)) as other:
            assert held(s3) == [1, 1]
            assert values(other) == [0]
        assert held(s3) == [1]


def test_a_fork_keeps_the_hold_of_the_parent_and_has_no_thread(s3, place):
    table = blz.open(URL, hold=600, **place)
    child = fork()
    if child == 0:
        code = len(renewing())
        with suppress(BaseException):
            table.close()
        del table
        gc.collect()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert held(s3) == [3]
    assert values(table) == [2]
    table.close()
    assert held(s3) == []


def test_with_locks_an_open_table_holds_its_version_anyway(tmp_path):
    for number in range(2):
        blz.to_blz({"n": [number]}, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", version=1, hold=0.001) as table:
        assert renewing() == []
        assert blz.vacuum(tmp_path / "t.blz", keep=1).pinned == (1,)
        assert values(table) == [0]


@pytest.mark.parametrize("hold", [0, -1, math.nan])
def test_a_hold_is_a_positive_number_of_seconds(place, hold):
    with pytest.raises(ValueError, match="positive number of seconds"):
        blz.open(URL, hold=hold, **place)


def test_where_nothing_can_be_written_nothing_is_held(s3, place):
    with pytest.raises(blz.ReadOnlyError, match="open it without hold="):
        blz.open(f"{s3.url}/bucket/t.blz", hold=600)
    assert renewing() == []
