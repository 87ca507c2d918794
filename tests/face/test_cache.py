"""What the process keeps of the tables that it reads is bounded by one number."""

import threading
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable import cached, tuning
from blztable.cached import Cache, set_cache, trim


@pytest.fixture(autouse=True)
def own_bound(own_process, tuned):
    """Begin with nothing kept, and give the bound back at the end."""
    tuned(kept_bytes=64 << 20)


def held():
    """Return the bytes that all owners of the process keep, about."""
    return sum(one.nbytes for one in cached._owners.values())


@pytest.fixture
def path(tmp_path, tuned):
    """Return the path of a table of leaves, whose row groups have a file for each column."""
    tuned(leaf_entries=4, leaf_few=2, bundled_bytes=0)
    rows = np.arange(400)
    data = pa.table({"n": rows, "s": pa.array(rows.astype(str)), "l": [[n] for n in rows]})
    path = tmp_path / "t.blz"
    blz.to_blz(data, path, storage=blz.Storage(row_group_rows=10))
    return path


def reads(path):
    with blz.open(path) as t:
        whole = t.to_arrow()
        assert t.to_arrow(filters=[("n", ">=", 390)]).equals(whole.slice(390))
        assert t.take([5, 395]).equals(whole.take([5, 395]))
        return whole


@pytest.mark.parametrize("nbytes", [0, 1, 20_000, 10**6])
def test_versions_leaves_and_parts_together_stay_below_the_bound(path, nbytes):
    set_cache(nbytes)
    with blz.open(path) as first, blz.open(path) as second:
        for table in (first, second, first):
            for name in ("n", "s", "l"):
                table.to_arrow(columns=[name])
                assert held() <= nbytes
    reads(path)
    assert held() <= nbytes


def test_all_that_is_read_is_the_same_whatever_is_kept(path):
    whole = reads(path)
    for nbytes in (0, 1, 5_000, 50_000):
        set_cache(nbytes)
        assert reads(path).equals(whole)


def test_a_lower_bound_frees_memory_at_once(path):
    reads(path)
    set_cache(0)
    set_cache(64 << 20)
    tracemalloc.start()
    with blz.open(path) as t:
        t.to_arrow()
        before, taken = held(), tracemalloc.get_traced_memory()[0]
        assert before > 100_000
        set_cache(before // 2)
        assert before // 4 < held() <= before // 2
        set_cache(0)
        assert held() == 0
        # The bytes that are said are about those that are taken.
        freed = taken - tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert before / 4 < freed < 2 * before
        assert len(t._snapshot._parts._parts) == len(t._snapshot.version.facts.leaves._read) == 0
        assert t.to_arrow().num_rows == 400
        assert held() == 0


def test_a_closed_table_keeps_its_version_alone(path):
    reads(path)
    (known,) = [one for one in cached._owners.values() if one]
    assert held() == known.nbytes > 0


def test_the_owner_of_most_gives_what_it_kept_first():
    small, large = Cache(), Cache()
    small.keep("a", 1, 1_000)
    for number in range(10):
        large.keep(number, number, 1_000)
    set_cache(8_500)
    assert list(small) == ["a"]
    assert list(large) == [3, 4, 5, 6, 7, 8, 9]
    # What is kept anew is the youngest.
    assert large.forget(3) == 3
    large.keep(3, 3, 1_000)
    set_cache(7_500)
    assert list(large) == [5, 6, 7, 8, 9, 3]
    del large
    assert held() == 1_000


def test_what_is_kept_already_stays():
    one = Cache()
    first, second = object(), object()
    assert one.keep("a", first, 10) is first
    assert one.keep("a", second, 10) is first
    assert one.nbytes == 10


def test_threads_that_keep_and_forget_leave_no_bytes_behind():
    tuning.current = tuning.replace(tuning.current, kept_bytes=5_000)
    owners = [Cache() for _ in range(3)]
    begin = threading.Barrier(4)
    failed = []

    def work(seed):
        draw = np.random.default_rng(seed)
        begin.wait()
        try:
            for number in draw.integers(0, 200, 3_000).tolist():
                owner = owners[number % 3]
                if number % 7:
                    owner.keep(number, str(number), 100)
                    assert owner.get(number) in (None, str(number))
                else:
                    owner.forget(number)
                trim()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    trim()
    assert held() <= 5_000
    for owner in owners:
        assert set(owner) <= set(owner._sizes)
    set_cache(0)
    assert [len(owner) for owner in owners] == [0, 0, 0]


def test_threads_read_right_while_the_bound_changes(path):
    whole = reads(path)
    failed = []
    is_done = threading.Event()

    def work(name):
        try:
            with blz.open(path) as t:
                for _ in range(15):
                    assert t.to_arrow(columns=[name]).equals(whole.select([name]))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("n", "s", "l")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for nbytes in (0, 10_000, 10**6):
            set_cache(nbytes)
            is_done.wait(0.001)
    assert failed == []


@pytest.mark.parametrize("nbytes", [-1, 1.5, "64", None, True])
def test_a_bound_that_is_no_number_of_bytes_is_refused(nbytes):
    with pytest.raises(ValueError, match="nbytes must be an integer from 0 on, found"):
        set_cache(nbytes)
    assert tuning.current.kept_bytes == 64 << 20


def test_a_number_of_numpy_is_a_bound():
    blz.set_cache(np.int64(1 << 20))
    assert tuning.current.kept_bytes == 1 << 20
