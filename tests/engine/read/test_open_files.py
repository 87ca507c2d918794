"""Open files of reads: their number is limited, and a full process is handled."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import blztable as blz
from blztable.engine.read import files
from blztable.engine.read.files import LEAST_OPEN, MOST_OPEN, OpenFiles
from blztable.errors import StorageError
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore

pytestmark = pytest.mark.usefixtures("own_process")


def stored(count: int) -> RamStore:
    store = RamStore()
    for number in range(count):
        store.put_new(f"data/{number}", [b"content"])
    return store


class FullProcess:
    """A store with at most `most` open files; one more raises EMFILE until one is closed."""

    def __init__(self, most: int, number: int = errno.EMFILE):
        self._most = most
        self._number = number
        self.opened: list[FullProcess.File] = []

    class File:
        size = 7

        def __init__(self, opened):
            self._opened = opened
            opened.append(id(self))

        def __del__(self):
            self._opened.remove(id(self))

    def open(self, key, size=None):
        if len(self.opened) >= self._most:
            raise StorageError(self._number, os.strerror(self._number), key)
        return self.File(self.opened)


@pytest.fixture
def pauses(monkeypatch):
    """Return the seconds of each wait; nothing sleeps."""
    noted: list[float] = []
    monkeypatch.setattr(files.time, "sleep", noted.append)
    return noted


def test_a_file_is_opened_once():
    read = OpenFiles(stored(1))
    assert read.open("data/0") is read.open("data/0")


def test_a_read_alone_keeps_as_many_files_as_all_reads_may():
    store = FullProcess(1000)
    read = OpenFiles(store)
    for number in range(3 * MOST_OPEN):
        read.open(str(number))
    assert len(store.opened) == MOST_OPEN


@pytest.mark.parametrize("reads", [2, 3, 12])
def test_reads_at_the_same_time_share_the_bound(reads):
    store = FullProcess(10_000)
    together = [OpenFiles(store) for _ in range(reads)]
    for number in range(MOST_OPEN):
        for read in together:
            read.open(str(number))
    assert len(store.opened) == reads * (MOST_OPEN // reads)


def test_a_read_keeps_a_few_files_beside_any_number_of_others():
    store = FullProcess(10_000)
    together = [OpenFiles(store) for _ in range(100)]
    for number in range(50):
        together[0].open(str(number))
    assert len(store.opened) == LEAST_OPEN


@pytest.mark.parametrize(("reads", "left"), [(12, LEAST_OPEN), (20, 6), (100, 1), (200, 0)])
def test_reads_that_rest_keep_no_more_than_the_bound_together(reads, left):
    store = FullProcess(10_000)
    together = [OpenFiles(store) for _ in range(reads)]
    for read in together:
        for number in range(LEAST_OPEN):
            read.open(str(number))
        read.rest()
    assert len(store.opened) == reads * left <= MOST_OPEN


def test_a_read_that_is_over_has_no_share(monkeypatch):
    store = FullProcess(10_000)
    before = files._share()
    OpenFiles(store)
    OpenFiles(store)
    assert files._share() == before == MOST_OPEN


@pytest.mark.parametrize(("limit", "share"), [(256, 64), (64, 16), (20, LEAST_OPEN)])
def test_all_reads_together_keep_a_quarter_of_what_the_process_may_open(monkeypatch, limit, share):
    monkeypatch.setattr(files.resource, "getrlimit", lambda which: (limit, limit))
    assert files._share() == share


def test_without_a_limit_the_bound_is_the_usual_one(monkeypatch):
    unlimited = files.resource.RLIM_INFINITY
    monkeypatch.setattr(files.resource, "getrlimit", lambda which: (unlimited, unlimited))
    assert files._share() == MOST_OPEN


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_where_no_more_files_can_be_opened_all_reads_let_go_of_theirs(number, pauses):
    store = FullProcess(20, number)
    one, other = OpenFiles(store), OpenFiles(store)
    for name in range(10):
        one.open(str(name))
        other.open(str(name))
    other.open("more")
    assert len(store.opened) == 1
    assert pauses == [0]


def test_a_file_that_is_read_from_stays_open(pauses):
    store = FullProcess(3)
    read = OpenFiles(store)
    used = read.open("used")
    for name in range(10):
        read.open(str(name))
    assert id(used) in store.opened


def test_who_waits_for_a_file_gets_it_as_soon_as_another_is_closed(monkeypatch):
    store = FullProcess(1)
    elsewhere = [store.open("elsewhere")]
    waited: list[float] = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            elsewhere.clear()

    monkeypatch.setattr(files.time, "sleep", sleep)
    OpenFiles(store).open("mine")
    assert len(waited) == 3


def test_a_wait_for_files_that_others_never_close_ends_with_the_error(pauses):
    store = FullProcess(1)
    elsewhere = store.open("elsewhere")
    with pytest.raises(StorageError, match="Too many open files") as caught:
        OpenFiles(store).open("mine")
    assert caught.value.errno == errno.EMFILE
    assert 0.5 < sum(pauses) < 2
    assert store.opened == [id(elsewhere)]


def test_another_error_is_raised_at_once(pauses):
    store = FullProcess(0, errno.EIO)
    with pytest.raises(StorageError, match=os.strerror(errno.EIO)):
        OpenFiles(store).open("mine")
    assert pauses == []


LIMITED = """
    import resource
    import sys
    import threading

    import blztable as blz

    path, limit, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    outcomes = []
    barrier = threading.Barrier(threads)

    def read():
        barrier.wait()
        try:
            outcomes.append(blz.read_table(path).num_columns)
        except blz.BlzError as error:
            outcomes.append(str(error))

    workers = [threading.Thread(target=read) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(set(outcomes), len(outcomes))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    path = tmp_path_factory.mktemp("wide") / "t.blz"
    table = {f"c{number}": [number, number + 1] for number in range(300)}
    blz.to_blz(table, path, durability="process")
    return path


@pytest.mark.parametrize(("limit", "threads"), [(1024, 12), (256, 2), (64, 1)])
def test_a_wide_table_is_read_whatever_the_limit_of_open_files(wide, limit, threads):
    root = str(Path(blz.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r})\n" + textwrap.dedent(LIMITED)
    command = [sys.executable, "-W", "error", "-c", code, str(wide), str(limit), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (f"{{300}} {threads}", "")


def test_reads_of_more_files_than_the_process_may_open_go_on_together(tmp_path):
    store = LocalStore(tmp_path)
    for number in range(100):
        store.put_new(f"data/{number}", [b"%d" % number])
    soft, hard = files.resource.getrlimit(files.resource.RLIMIT_NOFILE)
    # The descriptors open now, and 40 more.
    files.resource.setrlimit(files.resource.RLIMIT_NOFILE, (highest_descriptor() + 40, hard))
    try:
        together = [OpenFiles(store) for _ in range(12)]
        for number in range(100):
            for read in together:
                assert read.open(f"data/{number}").read(0, 3) == b"%d" % number
    finally:
        files.resource.setrlimit(files.resource.RLIMIT_NOFILE, (soft, hard))


def highest_descriptor() -> int:
    return max(map(int, os.listdir("/dev/fd")))
