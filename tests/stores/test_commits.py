"""Commits without locks: rounds, races, lost replies, and what is never removed."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pandas as pd
import pytest
from obstore.store import MemoryStore as ObjectsInMemory

import blztable as blz
from blztable.engine.version import unlocked, versions
from blztable.engine.version.new_files import FileNumbers
from blztable.format import layout
from blztable.format.latest import Latest
from blztable.format.version_file import REMOVED
from blztable.storage.remote.object_bucket import ObjectBucket
from blztable.storage.resolve import store_at
from support.remote_places import options_of, put, put_table
from support.s3_server import Fault, nth, share

URL = "s3://bucket/t.blz"


def frame(first, rows=10):
    return pd.DataFrame({"n": np.arange(first, first + rows), "word": ["ab"] * rows})


@pytest.fixture
def place(s3):
    """Return the options to reach a table of ten rows in the server."""
    options = {"storage_options": options_of(s3)}
    frame(0).to_blz(URL, **options)
    return options


def numbers(options):
    return sorted(blz.read_table(URL, **options)["n"].to_pylist())


def test_every_verb_works_on_a_store(place):
    with blz.open(URL, "a", **place) as t:
        t.append(frame(10))
        assert t.delete([("n", "in", [3, 12])]).rows_deleted == 2
        t.update({"word": "cd"}, [("n", "==", 4)])
        t.upsert(frame(19, 2), on="n")
        t.add_column("half", t["n"].to_pandas() / 2)
        t.rename_columns({"word": "text"})
        t.attrs["source"] = "test"
        t.tags["first"] = 1
        t.compact()
        with t.transaction() as tx:
            tx.delete([("n", "==", 0)])
            tx.append({"n": [100], "text": ["z"], "half": [50.0]})
        kept = t.to_pandas().sort_values("n")
        assert not t.verify().problems
        version = t.version
    expected = [n for n in range(1, 21) if n not in (3, 12)] + [100]
    assert numbers(place) == expected
    assert kept["n"].tolist() == expected
    with blz.open(URL, "a", **place) as t:
        assert (t.version, t.attrs["source"], t.tags["first"]) == (version, "test", 1)
        t.restore(1)
    assert numbers(place) == list(range(10))
    assert blz.read_table(URL, version="first", **place)["n"].to_pylist() == list(range(10))


def test_an_append_is_two_rounds_from_an_open_table_and_three_by_its_path(s3, place):
    s3.latency = 0.2
    with blz.open(URL, "a", **place) as t, s3.recorded() as log:
        t.append(frame(10))
        t.append(frame(20))
    waited = [one for one in log if "latest" not in one.key]
    assert [one.verb for one in waited] == ["PUT"] * 4
    with s3.recorded() as log:
        frame(30).to_blz(URL, mode="a", **place)
    waited = type(log)(one for one in log if one.verb != "PUT" or "latest" not in one.key)
    assert (len(waited), waited.rounds) == (4, 3)
    # It returned before the last one had its reply.
    assert log.of("PUT", "latest") == []
    s3.latency = 0
    assert numbers(place) == list(range(40))


@pytest.mark.parametrize("mode", ["w", "x"])
def test_a_table_is_created_in_three_rounds(s3, mode):
    s3.latency = 0.2
    with s3.recorded() as log:
        frame(0).to_blz(URL, mode=mode, storage_options=options_of(s3))
    # The list of versions, that of the place, the newest version and a table in one file; a try of
    # creations beside the data; the manifest.
    assert [len(log.of(verb)) for verb in ("LIST", "GET", "PUT")] == [2, 2, 4]
    assert log.rounds == 3
    s3.latency = 0
    blz.open(URL, storage_options=options_of(s3)).close()
    assert numbers({"storage_options": options_of(s3)}) == list(range(10))


def test_a_change_that_fails_leaves_no_try_of_creations(s3):
    def rows():
        yield frame(10)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        blz.to_blz(rows(), URL, storage_options=options_of(s3))
    assert not list(s3.keys)


def test_a_table_is_opened_in_one_round(s3, place):
    blz.open(URL, **place).close()
    s3.latency = 0.2
    with s3.recorded() as log:
        blz.open(URL, **place).close()
    assert (len(log), log.rounds) == (2, 1)


@pytest.mark.parametrize("kind", ["older", "of another table", "damaged", "missing"])
def test_a_latest_that_is_wrong_is_not_believed(s3, place, kind):
    key = f"t.blz/{layout.LATEST}"
    blz.open(URL, **place).close()
    store_at(URL, options=options_of(s3)).close()
    old = s3.keys[key].data if key in s3.keys else b""
    with blz.open(URL, "a", **place) as t:
        t.append(frame(10))
        t._snapshot.version.store.close()
    if kind == "older":
        put(s3, key, old)
    elif kind == "of another table":
        put(s3, key, s3.keys[key].data.replace(b'"etag":"', b'"etag":"other'))
    elif kind == "damaged":
        put(s3, key, s3.keys[key].data[:20])
    else:
        s3.keys.pop(key)
    assert numbers(place) == list(range(20))


def test_after_a_thousand_versions_the_newest_is_still_found(s3, place):
    with blz.open(URL, "a", **place) as t:
        t._snapshot.version.store.close()
    manifest = s3.keys[f"t.blz/{layout.manifest(1)}"].data
    for number in range(1, 1200):
        put(s3, f"t.blz/{layout.manifest(number)}", REMOVED if number < 1199 else manifest)
    found = unlocked.newest(store_at(URL, options=options_of(s3)))
    assert (found.number, found.is_removed) == (1199, False)
    assert versions.numbers(store_at(URL, options=options_of(s3))) == [1199]
    # Also where a document of another table says that there are more.
    latest = Latest.of(5_000, "other", "other", manifest).encode()
    put(s3, f"t.blz/{layout.LATEST}", latest)
    assert unlocked.newest(store_at(URL, options=options_of(s3))).number == 1199


def test_chunks_are_smaller_where_each_byte_comes_from_afar(tmp_path):
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=100_000)})
    most = []
    for place in (ObjectsInMemory(), tmp_path / "t.blz"):
        rows.to_blz(place)
        with blz.open(place) as t:
            most.append(int(t._snapshot.version.records([0]).chunk_nbytes.max()))
    assert most[0] < 70_000 < 120_000 < most[1]


# Other writers.


def test_a_writer_that_comes_late_is_told_and_goes_on_from_the_newest_version(place):
    with blz.open(URL, "a", **place) as one, blz.open(URL, "a", **place) as other:
        one.append(frame(10))
        other.append(frame(20))
        one.delete([("n", "<", 5)])
        transaction = other.transaction()
        tx = transaction.__enter__()
        tx.update({"word": "x"}, [("n", "<", 7)])
        one.update({"word": "y"}, [("n", "==", 6)])
        with pytest.raises(blz.ConflictError):
            transaction.__exit__(None, None, None)
    assert numbers(place) == list(range(5, 30))


def test_a_change_of_an_old_version_is_not_published_under_a_number_that_is_free(s3, tmp_path):
    path, options = tmp_path / "t.blz", {"storage_options": options_of(s3)}
    frame(0).to_blz(path)
    with blz.open(path, "a") as t:
        t.tags["first"] = 1
        for first in (10, 20, 30):
            t.append(frame(first))
        t.vacuum(keep=1)
        assert [one.number for one in t.versions()] == [1, 5]
    put_table(s3, path, "t.blz")
    with blz.open(URL, "a", version="first", **options) as t:
        t.append(frame(40))
        assert t.version == 6
    with blz.open(URL, "a", **options) as t:
        t.restore("first")
        assert t.version == 7
    assert numbers(options) == list(range(10))


def test_of_racing_writers_none_is_lost_and_none_is_doubled(place):
    def write(first):
        with blz.open(URL, "a", **place) as t:
            for number in range(first, first + 50, 10):
                t.append(frame(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [100, 200, 300, 400]))
    expected = [n for start in (100, 200, 300, 400) for n in range(start, start + 50)]
    assert numbers(place) == [*range(10), *expected]
    with blz.open(URL, **place) as t:
        assert not t.verify().problems


def test_of_two_creations_one_wins(s3):
    options = {"storage_options": options_of(s3)}
    gate = threading.Barrier(4)

    def create(first):
        gate.wait()
        try:
            frame(first).to_blz(URL, mode="x", **options)
        except blz.TableExistsError:
            return None
        return first

    with ThreadPoolExecutor(4) as pool:
        won = [one for one in pool.map(create, [0, 100, 200, 300]) if one is not None]
    assert len(won) == 1
    assert numbers(options) == list(range(won[0], won[0] + 10))


def test_a_commit_id_is_committed_once(place):
    for _ in range(2):
        frame(10).to_blz(URL, mode="a", commit_id="job 1", **place)
    assert numbers(place) == list(range(20))


def test_a_transaction_reads_what_it_has_just_written(s3, place):
    s3.latency = 0.05
    with blz.open(URL, "a", **place) as t, t.transaction() as tx:
        tx.append(frame(10))
        tx.delete([("n", "in", [3, 14])])
        assert sorted(tx["n"][:].to_pylist()) == [n for n in range(20) if n not in (3, 14)]
    s3.latency = 0
    assert numbers(place) == [n for n in range(20) if n not in (3, 14)]


# Replies that do not come.


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSED, Fault.CONFLICT, Fault.DROPPED])
@pytest.mark.parametrize("where", ["data/", "meta/manifest/"])
def test_a_reply_that_is_lost_is_no_lost_and_no_doubled_change(s3, place, fault, where):
    with blz.open(URL, "a", **place) as t:
        with s3.failing(nth(fault, "PUT", where)):
            t.append(frame(10))
        t.append(frame(20))
        assert t.version == 3
    assert numbers(place) == list(range(30))


@pytest.mark.parametrize("number", [1, 2])
def test_a_lost_reply_of_the_probe_does_no_harm(s3, number):
    options = {"storage_options": options_of(s3)}
    with s3.failing(nth(Fault.LOST, "PUT", "probe", number)):
        frame(0).to_blz(URL, **options)
    assert numbers(options) == list(range(10))
    assert not [key for key in s3.keys if "probe" in key]


def test_a_lost_reply_of_the_probe_that_tells_the_time_does_no_harm(s3, place):
    store = store_at(URL, options=options_of(s3))
    with s3.failing(nth(Fault.LOST, "PUT", "probe")):
        assert store.age(layout.manifest(1)) >= 0


def test_with_many_faults_nothing_is_lost_or_doubled(s3, place):
    faults = [Fault.LOST, Fault.REFUSED, Fault.DROPPED, Fault.CUT]
    with s3.failing(share(0.1, faults, seed=3)), ThreadPoolExecutor(3) as pool:

        def write(first):
            for number in range(first, first + 40, 10):
                frame(number).to_blz(URL, mode="a", **place)

        list(pool.map(write, [100, 200, 300]))
    expected = [n for start in (100, 200, 300) for n in range(start, start + 40)]
    assert numbers(place) == [*range(10), *expected]


def test_a_change_that_fails_removes_its_own_files_and_no_others(s3, place):
    before = set(s3.keys)

    def rows():
        yield frame(10)
        raise RuntimeError("no more")

    with blz.open(URL, "a", **place) as t, pytest.raises(RuntimeError):
        t.append(rows())
    assert set(s3.keys) - before <= {f"t.blz/{layout.LATEST}"}
    assert numbers(place) == list(range(10))


def test_files_that_a_vacuum_may_have_taken_are_not_committed(s3, place, tuned):
    tuned(unasked_seconds=0)
    with blz.open(URL, "a", **place) as t:
        transaction = t.transaction()
        tx = transaction.__enter__()
        count = len(s3.keys)
        tx.append(frame(10))
        while len(s3.keys) == count:
            time.sleep(0.001)
        s3.advance(6.5 * 86_400)
        with pytest.raises(blz.ConflictError, match=r"6\.5 days old"):
            transaction.__exit__(None, None, None)
        t.append(frame(20))
    assert numbers(place) == [*range(10), *range(20, 30)]


def test_writers_behind_a_clock_that_is_ahead_begin_with_different_numbers():
    ahead = unlocked.number_of_now() + (1 << 40)
    firsts = {FileNumbers(ahead, by_clock=True).next() for _ in range(20)}
    assert len(firsts) == 20
    assert min(firsts) >= ahead
    numbers = FileNumbers(1, by_clock=True)
    numbers.next()
    numbers.skip_to(ahead)
    given = [numbers.next() for _ in range(3)]
    assert given[0] >= ahead
    assert given == list(range(given[0], given[0] + 3))


def test_a_number_is_never_given_out_twice():
    given = [unlocked.number_of_now() for _ in range(1000)]
    assert max(given) <= layout.MAX_ID
    assert given[-1] >= given[0]


# Where nothing may be written.


def test_a_server_that_ignores_the_condition_is_refused(s3, monkeypatch):
    def create(self, key, data):
        self.put(key, data)
        return ""

    monkeypatch.setattr(ObjectBucket, "create", create)
    with pytest.raises(blz.ReadOnlyError, match="If-None-Match"):
        frame(0).to_blz(URL, storage_options=options_of(s3))
    assert not [key for key in s3.keys if "manifest" in key]


def test_a_dropped_table_is_made_anew_under_the_next_number(s3, place):
    store = store_at(URL, options=options_of(s3))
    store.publish(layout.manifest(2), REMOVED, durable=True)
    assert not blz.exists(URL, **place)
    with pytest.raises(blz.TableNotFoundError, match="dropped"):
        blz.open(URL, **place)
    frame(50).to_blz(URL, **place)
    with blz.open(URL, **place) as t:
        assert t.version == 3
    assert numbers(place) == list(range(50, 60))


def test_a_writer_that_is_late_for_a_drop_commits_nothing(s3, place):
    with blz.open(URL, "a", **place) as t:
        store_at(URL, options=options_of(s3)).publish(layout.manifest(2), REMOVED, durable=True)
        with pytest.raises(blz.TableNotFoundError, match="dropped"):
            t.append(frame(10))
    assert not blz.exists(URL, **place)


@pytest.mark.parametrize("make", [ObjectsInMemory, lambda: "memory://written/t.blz"])
def test_other_stores_are_written_as_well(make, request):
    place = make()
    if isinstance(place, str):
        files = fsspec.filesystem("memory")
        request.addfinalizer(lambda: files.rm("/written", recursive=True))
    frame(0).to_blz(place)
    with blz.open(place, "a") as t:
        t.append(frame(10))
        t.delete([("n", "==", 4)])
    assert blz.read_blz(place)["n"].tolist() == [n for n in range(20) if n != 4]
