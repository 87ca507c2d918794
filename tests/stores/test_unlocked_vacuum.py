"""A vacuum where locks exclude nobody: what it removes, what stays, and its requests."""

import math

import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.version import leases
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.storage.remote.object_bucket import ObjectBucket
from blztable.storage.resolve import store_at
from support.remote_places import options_of, put
from support.s3_server import Fault, nth

URL = "s3://bucket/t.blz"
DAY = 86_400


@pytest.fixture
def place(s3):
    """Return the options to reach a table of five versions that share no file."""
    options = {"storage_options": options_of(s3)}
    for number in range(5):
        blz.to_blz({"n": [number]}, URL, mode="w", **options)
    return options


def vacuum(place, **options):
    with blz.open(URL, "a", **place) as table:
        return table.vacuum(**options)


def files(s3):
    return sorted(key.removeprefix("t.blz/") for key in s3.keys if "/data/" in key)


def manifests(s3):
    """Return the bytes of each manifest, by the number of the version."""
    prefix = f"t.blz/{layout.MANIFESTS}/"
    found = {key.removeprefix(prefix): one for key, one in s3.keys.items() if prefix in key}
    return {int(name): one.data for name, one in sorted(found.items())}


def left(s3):
    """Return the keys that a vacuum or a lease may leave behind."""
    kinds = ("lease", "going", "probe")
    return [key for key in s3.keys if key.split("/")[2].startswith(kinds)]


def test_a_removed_version_leaves_its_number_and_none_of_its_files(s3, place):
    done = vacuum(place, keep=2)
    assert (done.versions, done.files, done.pinned) == ((1, 2, 3), 3, ())
    found = manifests(s3)
    assert [number for number, data in found.items() if data == REMOVED] == [1, 2, 3]
    assert len(files(s3)) == 2
    assert not left(s3)
    with blz.open(URL, **place) as table:
        assert (table.version, table.to_arrow()["n"].to_pylist()) == (5, [4])
        assert not table.verify(full=True).problems
    with pytest.raises(blz.TableNotFoundError, match=r"version 2 .*removed"):
        blz.open(URL, version=2, **place)
    assert blz.read_table(URL, version=4, **place)["n"].to_pylist() == [3]


def test_versions_stay_for_seven_days_however_many_they_are(s3, place):
    for _ in range(8):
        blz.to_blz({"n": [9]}, URL, mode="a", **place)
    assert vacuum(place).versions == ()
    with blz.open(URL, **place) as table:
        older = tuple(range(1, table.version))
    assert vacuum(place, older_than=0).versions == older


def test_nothing_is_removed_by_a_commit(s3, place):
    assert [len(data) > len(REMOVED) for data in manifests(s3).values()] == [True] * 5
    assert len(files(s3)) == 5


def requests(log):
    """Return how many requests there were beside those for manifests, leaves and `meta/latest`."""
    kinds = ("meta/manifest/", "meta/leaf/", "meta/latest")
    return len([one for one in log if not any(kind in one.key for kind in kinds)])


def test_a_vacuum_makes_four_requests_beside_those_for_manifests(s3, place):
    """Two lists, the mark, and one deletion of the files and the mark."""
    s3.latency = 0.2
    with s3.recorded() as log:
        blz.vacuum(URL, keep=1, **place)
    s3.latency = 0
    # The newest manifest is read again behind the mark, because it has the tags.
    assert len(log.of("GET", "meta/manifest/")) == 5 + 1
    assert len(log.of("PUT", "meta/manifest/")) == 4
    assert requests(log) == 4
    # All versions are read, and all tombstones put, at once.
    assert log.rounds == 8
    with s3.recorded() as log:
        blz.vacuum(URL, **place)
    assert (requests(log), len(log.of("GET", "meta/manifest/"))) == (4, 2)


def test_a_vacuum_of_many_keys_makes_two_requests_for_a_thousand(s3, place):
    for number in range(1, 2_501):
        put(s3, f"t.blz/{layout.part(layout.SHARED, number)}", b"")
    s3.advance(8 * DAY)
    keys = len(s3.keys)
    with s3.recorded() as log:
        assert blz.vacuum(URL, keep=1, **place).files == 2_504
    assert requests(log) == 1 + 3 + 1 + 3 <= 2 + 2 * math.ceil(keys / 1000)


def test_a_tombstone_that_cannot_be_put_leaves_all_files(s3, place):
    def refused(self, key, data, put=ObjectBucket.put):
        if key.endswith(f"{2:020d}"):
            raise blz.StorageError("refused")
        put(self, key, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectBucket, "put", refused)
        with pytest.raises(blz.StorageError, match="refused"):
            blz.vacuum(URL, keep=1, **place)
    assert len(files(s3)) == 5
    assert not left(s3)
    blz.vacuum(URL, keep=1, **place)
    s3.advance(8 * DAY)
    blz.vacuum(URL, keep=1, **place)
    assert len(files(s3)) == 1


def test_a_tagged_version_stays(s3, place):
    with blz.open(URL, "a", **place) as table:
        table.tags["kept"] = 2
    assert vacuum(place, keep=1).versions == (1, 3, 4, 5)
    assert blz.read_table(URL, version="kept", **place)["n"].to_pylist() == [1]
    assert not left(s3)


def test_a_version_with_a_lease_stays_until_it_is_closed(s3, place):
    store = store_at(URL, options=options_of(s3))
    with leases.lease(store, 2):
        done = vacuum(place, keep=1)
        assert (done.versions, done.pinned) == ((1, 3, 4), (2,))
    assert vacuum(place, keep=1).versions == (2,)


def test_a_lease_of_a_killed_process_counts_for_an_hour(s3, place):
    store = store_at(URL, options=options_of(s3))
    leases.lease(store, 2)
    s3.advance(tuning.current.lease_seconds + 60)
    assert vacuum(place, keep=1).versions == (1, 2, 3, 4)
    assert not left(s3)


def test_a_version_that_a_vacuum_is_about_to_remove_is_not_leased(s3, place):
    store = store_at(URL, options=options_of(s3))
    with leases.mark(store, [2, 3]):
        with pytest.raises(blz.TableNotFoundError, match="about to remove"):
            leases.lease(store, 2)
        leases.lease(store, 4).close()
    leases.lease(store, 2).close()
    assert not left(s3)


def test_a_mark_of_a_killed_vacuum_counts_for_an_hour(s3, place):
    store = store_at(URL, options=options_of(s3))
    leases.mark(store, [2, 3])
    s3.advance(tuning.current.lease_seconds + 60)
    leases.lease(store, 2).close()


def test_a_vacuum_that_took_too_long_removes_no_more(s3, place, tuned):
    tuned(lease_seconds=0)
    with pytest.raises(blz.ConflictError, match="took more than"):
        vacuum(place, keep=1)
    assert [number for number, data in manifests(s3).items() if data == REMOVED] == []
    assert len(files(s3)) == 5


def test_an_orphan_is_removed_when_it_is_seven_days_old(s3, place):
    for key in (layout.part(layout.SHARED, 77), layout.part((3, 1), 78), layout.leaf(79)):
        put(s3, f"t.blz/{key}", b"orphan")
    put(s3, "t.blz/data/notes.txt", b"foreign")
    assert vacuum(place).files == 0
    s3.advance(6 * DAY)
    assert vacuum(place, keep=9, older_than=99 * DAY).files == 0
    s3.advance(1.1 * DAY)
    done = vacuum(place, keep=9, older_than=99 * DAY)
    assert (done.files, done.nbytes) == (3, 18)
    assert f"t.blz/{layout.leaf(79)}" not in s3.keys
    assert "t.blz/data/notes.txt" in s3.keys
    assert len(files(s3)) == 6


def test_nothing_is_removed_if_a_version_is_damaged(s3, place):
    put(s3, f"t.blz/{layout.manifest(2)}", b"x" * 100)
    assert vacuum(place, keep=1).damaged == (2,)
    assert len(files(s3)) == 5
    assert not left(s3)


def test_all_of_a_dropped_table_is_removed(s3, place):
    put(s3, f"t.blz/{layout.manifest(6)}", REMOVED)
    store = store_at(URL, options=options_of(s3))
    done = blz.engine.version.vacuum.vacuum(store, keep=1)
    assert done.versions == (1, 2, 3, 4, 5)
    assert not files(s3)
    with pytest.raises(blz.TableNotFoundError, match="dropped"):
        blz.open(URL, **place)


@pytest.mark.parametrize(
    "number", [3, 8, *(pytest.param(one, marks=pytest.mark.storm) for one in range(1, 16))]
)
def test_a_vacuum_that_is_cut_off_anywhere_leaves_what_the_next_one_removes(s3, place, number):
    seen = iter(range(1, 1000))

    def cut(_):
        return Fault.REFUSED if next(seen) >= number else None

    with s3.failing(cut), pytest.raises((blz.StorageError, blz.TableNotFoundError)):
        vacuum(place, keep=2)
    assert blz.read_table(URL, **place)["n"].to_pylist() == [4]
    s3.advance(tuning.current.orphan_seconds + DAY)
    vacuum(place, keep=2, older_than=99 * DAY)
    assert len(files(s3)) == 2
    assert not left(s3)
    assert blz.read_table(URL, version=4, **place)["n"].to_pylist() == [3]


def test_a_lost_reply_of_a_vacuum_changes_nothing(s3, place):
    with s3.failing(nth(Fault.LOST, "PUT", "meta/manifest"), nth(Fault.LOST, "DELETE")):
        vacuum(place, keep=2)
    assert len(files(s3)) == 2
    assert blz.read_table(URL, **place)["n"].to_pylist() == [4]
