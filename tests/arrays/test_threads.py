"""One array, several threads: changes and reads take turns, and nothing is lost."""

import io
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import blztable as blz
from blztable.engine.run import pool
from blztable.storage.files import MemoryFile
from support.bloscpack_reference import import_bloscpack

THREADS = 4


@pytest.fixture(autouse=True)
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=["new", "finished"])
def array(request, tmp_path):
    path = tmp_path / "a.blp"
    array = blz.SuperChunk.create(path, "i8", (0, 2), chunk_shape=(7, 2), reserve=200)
    if request.param == "finished":
        array.close()
        array = blz.SuperChunk.open(path, "a")
    yield array
    array.close()
    with blz.SuperChunk.open(path) as again:
        assert again.verify()


def at_once(*jobs):
    """Run each job in a thread of its own; an error of one is raised."""
    with ThreadPoolExecutor(len(jobs)) as threads:
        for done in [threads.submit(job) for job in jobs]:
            done.result()


def appending(array, thread, times=12):
    def job():
        for time in range(times):
            array.append(np.full((5, 2), thread * times + time))

    return job


def test_threads_that_append_lose_no_row(array):
    at_once(*(appending(array, thread) for thread in range(THREADS)))
    found = array[:, 0].reshape(-1, 5)
    assert (found == found[:, :1]).all(), "the rows of one append are together"
    assert sorted(found[:, 0]) == list(range(THREADS * 12))


def test_an_append_beside_an_assignment_keeps_both(array):
    array.append(np.zeros((20, 2)))

    def assign():
        for value in range(20):
            array[3:17] = value

    at_once(appending(array, 0), assign, appending(array, 1))
    assert (array[3:17] == 19).all()
    assert len(array) == 20 + 2 * 12 * 5


def test_a_resize_beside_appends_loses_only_what_it_cuts(array):
    def resize():
        for _ in range(20):
            array.resize(3)
            array.resize(40)

    at_once(appending(array, 1), resize)
    assert len(array) % 5 == 0
    assert len(array) >= 40


def test_a_read_sees_one_state(array):
    array.append(np.zeros((30, 2)))
    seen = []

    def read():
        for _ in range(60):
            found = array[:]
            seen.append(len(found))
            assert len(set(found[:30].flat)) == 1
            assert array.shape[0] >= len(found)
            assert sum(map(len, array.chunks())) >= len(found)

    def assign():
        for value in range(30):
            array[:30] = value

    at_once(read, assign, appending(array, 5))
    assert seen == sorted(seen)
    assert all((rows - 30) % 5 == 0 for rows in seen)


def test_attributes_and_metalayers_of_threads_are_all_kept(array):
    def change(thread):
        def job():
            for time in range(4):
                array.attrs[f"{thread}-{time}"] = time
                array.vlmeta[f"{thread}-{time}"] = b"x"

        return job

    at_once(*map(change, range(THREADS)))
    assert len(array.attrs) == len(array.vlmeta) == THREADS * 4


def test_an_array_is_rewritten_beside_appends(array):
    def rewrite():
        for _ in range(5):
            array.rewrite(reserve=100)

    at_once(appending(array, 0), rewrite)
    assert len(array) == 60


def test_a_path_and_a_file_object_have_one_writer(tmp_path, tuned):
    tuned(array_lock_seconds=0.05)
    for place in (tmp_path / "a.blp", io.BytesIO()):
        with (
            blz.SuperChunk.create(place, "i8", (3,)) as array,
            pytest.raises(blz.BusyError),
        ):
            blz.SuperChunk.open(place, "a")
        with blz.SuperChunk.open(place, "a") as array:
            with pytest.raises(blz.BusyError):
                blz.SuperChunk.open(place, "a")
            array.append([1])
        with blz.SuperChunk.open(place, "a") as array:
            assert array[:].tolist() == [0, 0, 0, 1]


class Meeting(MemoryFile):
    """A file of which two threads must read at a time."""

    def __init__(self, data):
        super().__init__(data, is_writable=False)
        self.barrier = None

    def read(self, at, length):
        if self.barrier is not None:
            self.barrier.wait(20)
        return super().read(at, length)


@pytest.mark.parametrize("kind", ["grid", "order F", "items", "bloscpack"])
def test_the_chunks_of_a_read_are_decompressed_by_several_threads(kind, tuned, monkeypatch):
    monkeypatch.setattr(pool, "_processors", lambda: 2)
    monkeypatch.setattr(pool, "_pool", None)
    tuned(read_task_bytes=0)
    file = io.BytesIO()
    if kind == "items":
        values = np.array(["a" * 50, "", "b", "c" * 90], object)
        with blz.SuperChunk.create(file, "str") as array:
            array.append(values)
    else:
        values = np.arange(4000.0).reshape(100, 40)
        shape, order = ((25, 40), "F") if kind == "order F" else ((50, 20), "C")
        options = {"chunk_shape": shape, "order": order}
        with blz.SuperChunk.create(file, "f8", (0, 40), **options) as array:
            array.append(values)
    data = file.getvalue()
    if kind == "bloscpack":
        data = import_bloscpack().pack_ndarray_to_bytes(values, chunk_size=8000)
    meeting = Meeting(data)
    with blz.SuperChunk.open(meeting) as array:
        meeting.barrier = threading.Barrier(2)
        found = array.to_numpy()
    assert found.reshape(-1).tolist() == values.reshape(-1).tolist()
