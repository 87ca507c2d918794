"""One handle shared by threads, with a forked child, or as a pickle."""

import pickle
import threading

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from support.processes import script

OLD = pa.table({"n": [1, 2], "text": ["a", None]})
NEW = pa.table({"x": np.arange(40_000), "y": np.arange(40_000) * 0.5, "b": [True] * 40_000})


def test_a_handle_shared_by_threads_gives_each_of_them_the_same(tmp_path):
    table = pa.table(
        {
            "n": np.arange(200_000),
            "text": [f"é{i}" for i in range(200_000)],
            "same": pa.array(["a", "b"] * 100_000).dictionary_encode(),
        }
    )
    blz.to_blz(
        table, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=70_000), durability="process"
    )
    wrong, barrier = [], threading.Barrier(8)
    with blz.open(tmp_path / "t.blz") as opened:

        def read(number: int) -> None:
            barrier.wait()
            for turn in range(3):
                name = table.column_names[(number + turn) % 3]
                start = 60_000 + number
                results = [
                    opened[name].to_arrow().combine_chunks() == table[name].combine_chunks(),
                    opened[name][start : start + 20_000].to_pylist()
                    == table[name].slice(start, 20_000).to_pylist(),
                    opened[["n", name]].to_arrow() == table.select(["n", name]),
                    opened.head(number) == table.slice(0, number),
                    opened.to_pandas([name]).equals(table.select([name]).to_pandas()),
                ]
                wrong.extend(
                    (number, turn, at) for at, is_right in enumerate(results) if not is_right
                )

        def replace() -> None:
            for _ in range(12):
                blz.to_blz(OLD, tmp_path / "t.blz", durability="process")

        run_in_threads([lambda n=n: read(n) for n in range(8)] + [replace], wrong)
        assert wrong == []
        assert opened.to_arrow() == table


def run_in_threads(actions, failures: list) -> None:
    def with_safe_literals(action):
        try:
            action()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=with_safe_literals, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


FORKS = """
import os, signal, sys, threading
import pyarrow as pa
import blztable as blz

path = sys.argv[1]
table = pa.table({"n": range(300_000), "m": pa.array(range(300_000), "f8")})
blz.to_blz(table, path, durability="process", storage=blz.Storage(page_rows=8192))
held = blz.open(path, mode="a")
column, narrowed = held["m"], held[["m"]]
# A fork amid the first import of a file would leave its lock to the child.
assert held.to_arrow() == table
is_over = threading.Event()

def read():
    while not is_over.is_set():
        assert held.to_arrow() == table

def write():
    while not is_over.is_set():
        blz.to_blz(table, path + ".other", durability="process")

def child(number):
    assert held.to_arrow() == table
    assert column.to_arrow() == table["m"]
    assert narrowed.to_arrow() == table.select(["m"])
    assert blz.read_table(path) == table
    try:
        held.attrs["a"] = 1
    except blz.ReadOnlyError:
        pass
    else:
        raise AssertionError("an inherited handle writes")
    blz.to_blz(table, f"{path}.{number}", durability="process")
    assert blz.read_table(f"{path}.{number}") == table

threads = [threading.Thread(target=action) for action in (read, read, write)]
for thread in threads:
    thread.start()
statuses = []
for number in range(12):
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        status = 1
        try:
            child(number)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    statuses.append(os.waitpid(pid, 0)[1])
is_over.set()
for thread in threads:
    thread.join()
assert held.to_arrow() == table
print(statuses)
"""


def test_a_child_forked_while_threads_read_and_write_reads_and_writes_for_itself(tmp_path):
    assert script(FORKS, tmp_path / "t.blz") == str([0] * 12)


LOAD = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    table, narrowed, column = pickle.load(file)
assert table.version == 1 and table.columns == ["n", "text"]
assert narrowed.columns == ["text"] and column.name == "n"
try:
    table.attrs["a"] = 1
    print("written")
except Exception as error:
    print(type(error).__name__, table.to_arrow().to_pydict(), narrowed.to_arrow().to_pydict(),
          column.to_pandas().tolist())
"""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_handle_is_a_path_and_a_version(tmp_path, protocol):
    blz.to_blz(OLD, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as table:
        narrowed = table[["text"]]
        data = pickle.dumps((table, narrowed, table["n"], narrowed["text"]), protocol)
        assert len(data) < 2000
        blz.to_blz(NEW, tmp_path / "t.blz")
        opened, narrow, column, text = pickle.loads(data)
        assert opened.version == narrow.version == 1
        assert opened.to_arrow() == OLD
        assert narrow.to_arrow() == OLD.select(["text"])
        assert column.to_arrow() == OLD["n"]
        assert text.to_arrow() == OLD["text"]
    # Each handle pins its version by itself.
    assert opened.to_arrow() == OLD
    opened.close()
    for number in range(11):
        blz.to_blz(NEW.slice(number), tmp_path / "t.blz", durability="process")
    with pytest.raises(blz.TableNotFoundError, match="no version 1"):
        pickle.loads(data)


def test_a_pickle_is_loaded_by_another_process_which_does_not_write_with_it(tmp_path):
    blz.to_blz(OLD, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", mode="a") as table:
        data = pickle.dumps((table, table[["text"]], table["n"]))
        (tmp_path / "pickle").write_bytes(data)
        blz.to_blz(NEW, tmp_path / "t.blz")
        values = OLD.to_pydict()
        wanted = f"ReadOnlyError {values} { ({'text': values['text']}) } {values['n']}"
        assert script(LOAD, tmp_path / "pickle") == wanted
    assert blz.read_table(tmp_path / "t.blz") == NEW


def test_a_pickle_of_a_closed_handle_opens_its_version_again(tmp_path):
    blz.to_blz(OLD, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as table:
        pass
    with pickle.loads(pickle.dumps(table)) as again:
        assert again.to_arrow() == OLD
