"""The contract of stores: every promise, checked for each store."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from blztable.errors import BusyError, ConflictError, CorruptError, ReadOnlyError
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from blztable.storage.one_file import store as one_file
from blztable.storage.remote import object_bucket
from blztable.storage.remote import one_file as object_store
from blztable.storage.resolve import store_at
from blztable.storage.store import KeyNotFound, KeyTaken, ListedValue, Store
from support.remote_places import options_of

KEY = "data/col5/__1__.bin"


STORES = {
    "local": LocalStore,
    "memory": lambda path: RamStore(),
    "one file": one_file.at,
    "one file in a bucket": lambda path: _in_bucket(),
}


def _in_bucket():
    objects = MemoryStore()
    return object_store.BucketFileStore(object_store.BucketFile(object_bucket.of(objects)))


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    store: Store = STORES[request.param](tmp_path / "t.blz")
    store.prepare(*layout.PREPARED)
    yield store
    store.close()


BUCKETS = {
    "obstore memory": lambda request: store_at(MemoryStore()),
    "obstore on a server": lambda request: _in_s3(request.getfixturevalue("s3")),
    "fsspec memory": lambda request: _in_fsspec(request),
}
# They tell at once whether a value is new, as those with locks.
WITHOUT_LOCKS = {
    "local without locks": lambda request: _without_locks(request.getfixturevalue("tmp_path"))
}


def _without_locks(path):
    store = LocalStore(path / "t.blz")
    store.rely_on_no_lock()
    store.prepare(*layout.PREPARED)
    return store


def _in_s3(server):
    return store_at("s3://bucket/t.blz", options=options_of(server))


def _in_fsspec(request):
    # All tests share the files in memory, and an upload may outlive the test that began it.
    files, root = fsspec.filesystem("memory"), f"/contract-{uuid4()}"
    request.addfinalizer(lambda: files.exists(root) and files.rm(root, recursive=True))
    return store_at(f"memory:/{root}/t.blz")


@pytest.fixture(params=[*STORES, *BUCKETS, *WITHOUT_LOCKS])
def any_store(request, tmp_path):
    made = BUCKETS | WITHOUT_LOCKS
    if request.param in made:
        store: Store = made[request.param](request)
    else:
        store = STORES[request.param](tmp_path / "t.blz")
        store.prepare(*layout.PREPARED)
    yield store
    store.close()


# Values


def test_a_new_value_is_the_buffers_one_after_the_other(any_store):
    any_store.put_new(KEY, [b"one", bytearray(b"two"), b"", memoryview(b"three")])
    assert any_store.get(KEY) == b"onetwothree"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(buffers=st.lists(st.binary(max_size=50), max_size=20), data=st.data())
def test_any_range_of_any_value_comes_back(any_store, buffers, data):
    whole = b"".join(buffers)
    offset = data.draw(st.integers(0, len(whole) + 5))
    length = data.draw(st.none() | st.integers(0, len(whole) + 5))
    any_store.delete([KEY])
    any_store.put_new(KEY, buffers)
    end = None if length is None else offset + length
    assert any_store.get(KEY, offset, length) == whole[offset:end]
    with any_store.open(KEY) as reader:
        assert reader.size == len(whole)
        target = bytearray(b"\xff" * (length or 0))
        count = reader.read_into(offset, memoryview(target))
        assert target[:count] == whole[offset : offset + (length or 0)]
        assert target[count:] == b"\xff" * (len(target) - count)


def test_more_buffers_than_one_call_takes_are_written(any_store):
    buffers = [bytes([i % 251]) * (i % 7) for i in range(5000)]
    any_store.put_new(KEY, buffers)
    assert any_store.get(KEY) == b"".join(buffers)


def test_buffers_of_wide_items_are_written_as_their_bytes(any_store):
    any_store.put_new(KEY, [memoryview(b"12345678").cast("I"), memoryview(b"").cast("d")])
    assert any_store.get(KEY) == b"12345678"


def test_a_new_value_does_not_replace_one(store):
    store.put_new(KEY, [b"first"])
    with pytest.raises(KeyTaken):
        store.put_new(KEY, [b"second"])
    assert store.get(KEY) == b"first"


def test_a_new_value_does_not_replace_a_prefix(store):
    store.reserve("data/col5")
    with pytest.raises(KeyTaken):
        store.put_new("data/col5", [b"x"])


def test_put_sets_and_replaces(any_store):
    any_store.put("meta/sizes", b"a longer first value")
    any_store.put("meta/sizes", memoryview(b"second"))
    assert any_store.get("meta/sizes") == b"second"
    assert "sizes" in any_store.list_names("meta")


@pytest.mark.parametrize("durable", [False, True])
def test_publish_creates_a_value(any_store, durable):
    any_store.publish("meta/manifest/1", b"one", durable=durable)
    assert any_store.get("meta/manifest/1") == b"one"
    assert any_store.list_names("meta/manifest") == ["1"]


def test_publish_does_not_replace_a_value(any_store):
    any_store.publish("meta/manifest/1", b"one", durable=True)
    with pytest.raises(KeyTaken):
        any_store.publish("meta/manifest/1", b"two", durable=True)
    assert any_store.get("meta/manifest/1") == b"one"
    assert any_store.list_names("meta/manifest") == ["1"]


def test_of_many_publishers_of_one_key_exactly_one_wins(any_store):
    def publish(i):
        try:
            any_store.publish("meta/manifest/1", b"%d" % i, durable=False)
        except KeyTaken:
            return None
        return i

    with ThreadPoolExecutor(8) as pool:
        winners = [i for i in pool.map(publish, range(64)) if i is not None]
    assert len(winners) == 1
    assert any_store.get("meta/manifest/1") == b"%d" % winners[0]


def test_a_missing_value_is_not_found(any_store):
    for call in (any_store.open, any_store.get):
        with pytest.raises(KeyNotFound):
            call("data/col5/__1__.bin")
        with pytest.raises(KeyNotFound):
            call("data/missing")


def test_a_prefix_is_no_plain_value(store):
    with pytest.raises(CorruptError, match=r"meta/manifest: expected .* found"):
        store.open("meta/manifest")


def test_nothing_lies_under_a_value(store):
    store.put("meta/sizes", b"{}")
    for call in (
        lambda: store.open("meta/sizes/x"),
        lambda: store.put("meta/sizes/x", b""),
        lambda: store.put_new("meta/sizes/x", [b""]),
        lambda: store.reserve("meta/sizes/x"),
    ):
        with pytest.raises(CorruptError, match="meta/sizes: expected"):
            call()


def test_a_value_may_be_replaced_or_removed_while_it_is_open(store):
    store.put("meta/sizes", b"old")
    store.put_new(KEY, [b"kept"])
    with store.open("meta/sizes") as replaced, store.open(KEY) as removed:
        store.put("meta/sizes", b"new")
        store.delete([KEY])
        assert replaced.read(0, 3) == b"old"
        assert removed.read(0, 4) == b"kept"


def test_reading_a_closed_value_is_an_error(any_store):
    any_store.put_new(KEY, [b"x"])
    reader = any_store.open(KEY)
    reader.close()
    reader.close()
    with pytest.raises(OSError, match="closed"):
        reader.read(0, 1)
    with pytest.raises(OSError, match="closed"):
        reader.read_into(0, memoryview(bytearray(1)))


def test_one_reader_serves_many_threads(any_store):
    data = bytes(range(256)) * 64
    any_store.put_new(KEY, [data])
    with any_store.open(KEY) as reader, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda i: reader.read(i * 16, 16), range(1024)))
    assert b"".join(parts) == data


# Names


def test_names_are_those_one_level_below(store):
    store.put_new("data/col5/__1__.bin", [b""])
    store.put_new("data/col5/col6/__1__.bin", [b""])
    store.reserve("data/col50")
    assert sorted(store.list_names("data")) == ["col5", "col50"]
    assert sorted(store.list_names("data/col5")) == ["__1__.bin", "col6"]
    assert sorted(store.list_names("")) == ["data", "meta"]
    assert store.list_names("data/col50") == []
    assert store.list_names("data/col7/col8") == []


def test_many_threads_list_whole_lists(any_store):
    for i in range(300):
        any_store.put_new(f"data/{i}", [b""])
    with ThreadPoolExecutor(8) as pool:
        for names in pool.map(any_store.list_names, ["data"] * 200):
            assert len(names) == 300


def test_a_prefix_is_reserved_once(store):
    assert store.reserve("data/col5")
    assert not store.reserve("data/col5")


def test_a_used_prefix_cannot_be_reserved(store):
    store.put_new(KEY, [b"x"])
    assert not store.reserve("data/col5")


def test_of_many_threads_exactly_one_reserves_a_prefix(store):
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(store.reserve, ["data/col5"] * 64)) == 1


def test_delete_removes_values_and_passes_over_missing_ones(any_store):
    any_store.put_new(KEY, [b"x"])
    any_store.put_new("data/col5/__2__.bin", [b"y"])
    any_store.delete(["data/col9/__1__.bin", "data/col5/__9__.bin", KEY])
    assert any_store.list_names("data/col5") == ["__2__.bin"]
    with pytest.raises(KeyNotFound):
        any_store.open(KEY)


def test_delete_removes_an_empty_prefix_and_leaves_one_in_use(store):
    store.put_new("data/col5/__1__.bin", [b"x"])
    store.reserve("data/col6")
    store.delete(["data/col5", "data/col6"])
    assert store.list_names("data") == ["col5"]
    assert store.get("data/col5/__1__.bin") == b"x"
    assert store.reserve("data/col6")


def test_flush_takes_what_is_there_and_names_what_is_not(store):
    keys = [f"data/col{i % 3}/__{i}__.bin" for i in range(30)]
    for key in keys:
        store.put_new(key, [b"x"])
    store.flush(keys)
    store.flush([])
    store.flush_names("data/col0")
    store.flush_names("")
    with pytest.raises(KeyNotFound):
        store.flush(["data/col0/missing"])
    with pytest.raises(KeyNotFound):
        store.flush_names("data/missing")


def test_prepare_can_be_repeated_and_changes_nothing(store):
    store.put("meta/sizes", b"{}")
    store.prepare(*layout.PREPARED)
    assert store.get("meta/sizes") == b"{}"
    assert store.get("meta/lock") == store.get("meta/flight") == b""
    assert sorted(store.list_names("meta")) == ["flight", "lock", "manifest", "sizes"]


@pytest.mark.parametrize("key", ["meta/lock", "meta/flight"])
def test_prepare_makes_a_missing_file_again_and_leaves_the_other(store, key):
    store.delete([key])
    [other] = {"meta/lock", "meta/flight"} - {key}
    with store.lock(other, shared=False, timeout=0):
        store.prepare(*layout.PREPARED, durable=False)
        assert store.get(key) == b""
        with pytest.raises(BusyError):
            store.lock(other, shared=True, timeout=0)


def test_a_store_goes_on_working_after_close(any_store):
    any_store.put("meta/sizes", b"{}")
    any_store.close()
    any_store.close()
    assert any_store.get("meta/sizes") == b"{}"


def test_sweep_leaves_values_alone(any_store):
    any_store.put("meta/manifest/1", b"x")
    any_store.sweep("meta/manifest")
    assert any_store.list_names("meta/manifest") == ["1"]


# Locks


LOCKABLE = ["meta/lock", "meta/flight", "meta/manifest"]


@pytest.mark.parametrize("key", LOCKABLE)
@pytest.mark.parametrize("inherited", [False, True])
def test_shared_locks_are_held_together(store, key, inherited):
    with (
        store.lock(key, shared=True, timeout=0, inherited=inherited),
        store.lock(key, shared=True, timeout=0),
        pytest.raises(BusyError, match=key),
    ):
        store.lock(key, shared=False, timeout=0)


@pytest.mark.parametrize("key", LOCKABLE)
@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
def test_an_exclusive_lock_is_held_alone(store, key, first, second):
    with (
        store.lock(key, shared=first, timeout=0),
        pytest.raises(BusyError, match=key),
    ):
        store.lock(key, shared=second, timeout=0)
    store.lock(key, shared=second, timeout=0).close()


def test_waiting_for_a_lock_ends_with_its_timeout(store):
    with store.lock("meta/lock", shared=False, timeout=0):
        start = time.monotonic()
        with pytest.raises(BusyError):
            store.lock("meta/lock", shared=True, timeout=0.15)
        assert 0.15 <= time.monotonic() - start < 2


def test_a_lock_is_got_as_soon_as_it_is_free(store):
    held = store.lock("meta/lock", shared=False, timeout=0)
    release = threading.Timer(0.05, held.close)
    release.start()
    start = time.monotonic()
    with store.lock("meta/lock", shared=False, timeout=30):
        release.join()
    assert time.monotonic() - start < 10


def test_closing_a_lock_twice_lets_go_of_no_other(store):
    first = store.lock("meta/lock", shared=False, timeout=0)
    first.close()
    with store.lock("meta/lock", shared=False, timeout=0):
        first.close()
        with pytest.raises(BusyError):
            store.lock("meta/lock", shared=True, timeout=0)


def test_a_lock_nobody_refers_to_is_let_go(store):
    store.lock("meta/lock", shared=False, timeout=0)
    store.lock("meta/lock", shared=False, timeout=0).close()


def test_a_lock_on_what_is_not_there_is_not_found(store):
    with pytest.raises(KeyNotFound):
        store.lock("meta/manifest/7", shared=True, timeout=0)


def test_waiting_for_a_value_that_is_removed_ends_with_not_found(store):
    store.put("meta/manifest/1", b"x")
    held = store.lock("meta/manifest/1", shared=False, timeout=0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.lock, "meta/manifest/1", shared=True, timeout=30)
        store.delete(["meta/manifest/1"])
        held.close()
        with pytest.raises(KeyNotFound):
            waiting.result().close()


def test_a_lock_is_on_the_value_not_on_its_key(store):
    store.put("meta/sizes", b"old")
    with store.lock("meta/sizes", shared=False, timeout=0):
        store.put("meta/sizes", b"new")
        store.lock("meta/sizes", shared=False, timeout=0).close()


def test_locks_of_different_keys_do_not_meet(store):
    with (
        store.lock("meta/lock", shared=False, timeout=0),
        store.lock("meta/manifest", shared=False, timeout=0),
        store.lock("meta", shared=False, timeout=0),
    ):
        store.put("meta/manifest/1", b"locks are advice")


def test_a_lock_keeps_two_threads_apart(store):
    inside, most = 0, 0

    def work(_):
        nonlocal inside, most
        with store.lock("meta/lock", shared=False, timeout=30):
            inside += 1
            most = max(most, inside)
            store.put("meta/sizes", b"")
            inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(40)))
    assert most == 1


# What a store says of itself


def test_the_bytes_of_a_store_are_at_least_those_of_its_values(any_store):
    before = any_store.nbytes
    any_store.put_new(KEY, [b"x" * 5000])
    any_store.put("meta/sizes", b"y" * 1000)
    assert before + 6000 <= any_store.nbytes <= before + 6000 + 2000


def test_a_replaced_value_takes_room_only_where_values_are_appended(store):
    store.put("meta/sizes", b"x" * 100_000)
    before = store.nbytes
    for _ in range(3):
        store.put("meta/sizes", b"y" * 100_000)
    assert (store.nbytes > before) == store.appends_only
    store.reclaim()
    assert store.nbytes <= before


def test_a_store_with_a_publication_has_nothing_lost_or_unfinished(any_store):
    any_store.put_new(KEY, [b"x"])
    any_store.publish("meta/manifest/1", b"one", durable=True)
    assert any_store.lost_keys() is None
    assert any_store.unfinished_bytes() == 0
    assert not any_store.may_be_foreign()
    assert list(any_store.problems([KEY, "meta/manifest/1", "data/missing"])) == []


def test_each_earlier_publication_is_a_store_to_be_read(store):
    for number in (1, 2, 3):
        store.publish(f"meta/manifest/{number}", b"x" * number, durable=False)
    found = list(store.earlier())
    if not store.appends_only:
        # A file that is replaced has one.
        assert [max(one.list_names("meta/manifest")) for one in found] == ["3"] * len(found)
        assert len(found) == store.publishes_all
        return
    assert [max(one.list_names("meta/manifest")) for one in found] == ["3", "2", "1"]
    assert found[1].get("meta/manifest/2") == b"xx"
    with pytest.raises(ReadOnlyError):
        found[1].put("meta/sizes", b"")


def test_values_without_a_publication_are_unfinished_where_one_process_writes(store):
    assert store.unfinished() is None
    with store.lock("meta/lock", shared=False, timeout=0):
        store.put_new(KEY, [b"x"])
        found = store.unfinished()
        # A writer at work is no unfinished one.
        assert store.unfinished_bytes() == 0
        assert (found is not None) == store.has_one_writer
        if found is not None:
            assert found.get(KEY) == b"x"


# Ranges and listings


def test_entries_are_all_values_below_a_prefix_in_order(any_store):
    for number in (3, 1, 2):
        any_store.put_new(f"data/col{number}/__1__.bin", [b"x" * number])
    any_store.put("meta/sizes", b"{}")
    any_store.flush([f"data/col{number}/__1__.bin" for number in (1, 2, 3)])
    found = list(any_store.entries("data"))
    keys = [f"data/col{number}/__1__.bin" for number in (1, 2, 3)]
    assert [(one.key, one.size) for one in found] == list(zip(keys, (1, 2, 3), strict=True))
    assert all(isinstance(one, ListedValue) for one in found)
    assert [one.key for one in any_store.entries("data", keys[0])] == keys[1:]
    assert "meta/sizes" in [one.key for one in any_store.entries("")]
    assert list(any_store.entries("nothing")) == []


def test_ranges_that_are_asked_for_are_read_as_all_others(any_store):
    data = bytes(range(256)) * 40
    any_store.put_new(KEY, [data])
    any_store.flush([KEY])
    ranges = [(KEY, 0, 100), (KEY, 110, 120), (KEY, 9_000, 20_000), ("data/missing", 0, 4)]
    with any_store.fetch(ranges, gap=20) as asked, any_store.open(KEY, 1) as reader:
        assert reader.read(50, 8_990) == data[50:9_040]
        assert any_store.get(KEY, 9_500, 5_000) == data[9_500:]
        assert any_store.get(KEY, 95, 20) == data[95:115]
        with pytest.raises(KeyNotFound):
            any_store.get("data/missing", 0, 4)
        asked.close()
        assert reader.read(0, 10) == data[:10]


def test_a_new_value_does_not_replace_one_where_that_is_told_later(request):
    for make in BUCKETS.values():
        store = make(request)
        store.put_new(KEY, [b"first"])
        store.flush([KEY])
        store.put_new(KEY, [b"second"])
        with pytest.raises(ConflictError, match="another writer"):
            store.flush([KEY])
        # It is not ours, so it is not removed.
        store.delete([KEY])
        assert store.get(KEY) == b"first"
        # The same bytes are taken for ours: a reply may have been lost.
        store.put_new("data/again", [b"same"])
        store.put_new("data/again", [b"same"])
        store.flush(["data/again"])
