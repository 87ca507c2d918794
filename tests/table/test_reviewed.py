"""What a second pair of eyes found in streams, commits and memory, each as a test of its own."""

import gc
import os
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.check import examine
from blztable.engine.run.pool import run
from blztable.engine.version import versions
from blztable.engine.write import row_groups
from blztable.storage.local import LocalStore
from blztable.storage.memory import MemoryStore


def categories(values, labels=None, ordered=False) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Categorical(values, labels, ordered=ordered)})


def test_categories_of_another_frequency_do_not_fit():
    months, days = (pd.PeriodIndex(["2020-01-01"], freq=freq) for freq in "MD")
    store = MemoryStore()
    with pytest.raises(blz.SchemaError, match=r"item 1, column 'a': .*period D.*period M"):
        blz.to_blz([categories(months), categories(days)], store)
    assert store.list_names("meta/manifest") == []


def test_ordered_categories_in_another_order_do_not_fit():
    first, other = (categories(["a"], list(order), ordered=True) for order in ("abc", "cba"))
    with pytest.raises(blz.SchemaError, match=r"item 1, column 'a': ordered.*'c', 'b', 'a'"):
        blz.to_blz([first, other], MemoryStore())
    store = MemoryStore()
    blz.to_blz([first, first], store)
    assert blz.read_blz(store)["a"].cat.categories.tolist() == ["a", "b", "c"]


def test_later_frames_may_have_many_more_categories():
    labels = [str(label) for label in range(300)]
    store = MemoryStore()
    blz.to_blz([categories(labels[:100]), categories(labels[50:])], store)
    assert blz.read_blz(store)["a"].tolist() == labels[:100] + labels[50:]
    with blz.open(store) as table:
        assert table["a"][50:150].to_pylist() == (labels[:100] + labels[50:])[50:150]


def test_very_many_small_items_are_joined_while_they_wait(monkeypatch):
    monkeypatch.setattr(row_groups, "MOST_SMALL", 10)
    pending = row_groups._Pending()
    for number in range(1000):
        pending.add(pa.table({"a": [number], "b": [str(number)]}), 1)
    chunks = sum(table["a"].num_chunks for table in pending._tables + pending._small)
    assert chunks <= 110
    (group,) = pending.cut(None)
    assert group[0].to_pydict() == {"a": list(range(1000)), "b": list(map(str, range(1000)))}


def test_small_and_large_items_keep_their_order(monkeypatch):
    monkeypatch.setattr(row_groups, "MOST_SMALL", 3)
    monkeypatch.setattr(row_groups, "SMALL_BYTES", 100)
    sizes = [1, 2, 50, 1, 1, 1, 1, 60, 70, 3, 1]
    numbers = iter(range(sum(sizes)))
    items = [pa.table({"a": [next(numbers) for _ in range(size)]}) for size in sizes]
    store = MemoryStore()
    blz.to_blz(items, store, row_group_rows=20)
    assert blz.read_table(store)["a"].to_pylist() == list(range(sum(sizes)))


def test_items_of_one_row_take_little_memory(tmp_path):
    """A child of its own, whose peak memory is not that of other tests."""
    code = """
        import resource, sys
        import pyarrow as pa
        import blztable as blz

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

        def items(count):
            for number in range(count):
                yield pa.record_batch({f"c{i}": pa.array([number]) for i in range(16)})

        blz.to_blz(items(100), sys.argv[1], durability="process")
        before = peak()
        blz.to_blz(items(8000), sys.argv[1], durability="process")
        print(peak() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), tmp_path / "t.blz"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    # Kept as they came they took more than 100 MB.
    assert int(done.stdout) < 48 << 20


def test_what_a_failed_run_held_is_let_go_at_once():
    class Held:
        pass

    def fail(held):
        raise ValueError("of a task")

    def attempt():
        held = Held()
        alive.append(weakref.ref(held))
        run([lambda: fail(held)])

    alive = []
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="of a task") as caught:
            attempt()
        del caught
        assert alive[0]() is None
    finally:
        gc.enable()


def test_a_commit_that_cannot_be_opened_is_not_said_to_have_failed(tmp_path, monkeypatch):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    pin = versions.pin

    def fail_after(store, number=None):
        if number is not None:
            raise blz.StorageError(24, "Too many open files")
        return pin(store, number)

    monkeypatch.setattr(versions, "pin", fail_after)
    with pytest.raises(blz.CommitUnknownError, match=r"version 2 is committed, .*Too many"):
        blz.to_blz({"a": [2]}, path)
    monkeypatch.undo()
    assert blz.read_table(path)["a"].to_pylist() == [2]
    assert versions.numbers(LocalStore(path)) == [1, 2]


@pytest.mark.parametrize("wrap", [memoryview, lambda buffer: pd.Index(buffer, copy=False)])
def test_a_buffer_that_is_filled_again_is_copied_however_it_is_wrapped(wrap):
    def items():
        buffer = np.zeros(4, np.int64)
        for number in range(3):
            buffer[:] = number
            yield {"a": wrap(buffer)}

    store = MemoryStore()
    blz.to_blz(items(), store)
    assert blz.read_table(store)["a"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4


def test_a_table_of_ours_is_copied_with_its_errors_and_without_rows(tmp_path):
    path, copy = tmp_path / "t.blz", tmp_path / "copy.blz"
    blz.to_blz(pa.schema({"a": pa.int8()}).empty_table(), path)
    for source in (blz.open(path), blz.open(path).to_batches()):
        blz.to_blz(source, copy)
        assert blz.read_table(copy).schema == pa.schema({"a": pa.int8()})
    blz.to_blz({"a": range(100)}, path)
    with blz.open(path) as table:
        blz.to_blz(table, path)  # Over itself.
    assert blz.read_table(path)["a"].to_pylist() == list(range(100))
    for part in (path / "data").glob("col*/__1__.bin"):
        part.write_bytes(b"damaged")
    with pytest.raises(blz.CorruptError, match="__1__"):
        blz.to_blz(blz.open(path), copy)


def test_an_empty_frame_among_others_is_passed_over():
    frame, store = pd.DataFrame({"a": [1, 2]}, index=["x", "y"]), MemoryStore()
    blz.to_blz([frame, pd.DataFrame(), frame], store)
    assert blz.read_blz(store).equals(pd.concat([frame, frame]))


@pytest.mark.parametrize("columns", [iter, tuple, lambda names: (name for name in names)])
def test_columns_may_come_from_an_iterator(columns):
    store = MemoryStore()
    blz.to_blz({"a": [1], "b": [2], "c": [3]}, store)
    assert blz.read_table(store, columns=columns(["c", "a"])).column_names == ["c", "a"]
    with blz.open(store) as table:
        assert table.to_arrow(columns(["b"])).column_names == ["b"]
        assert next(table.to_batches(columns(["b"]))).schema.names == ["b"]
        with pytest.raises(blz.ColumnNotFoundError, match="'d'"):
            table.to_arrow(columns(["a", "d"]))


def test_batches_are_a_stream_for_others():
    store = MemoryStore()
    blz.to_blz({"a": range(100), "b": range(100)}, store, row_group_rows=30)
    with blz.open(store) as table:
        assert pa.table(table.to_batches(["a"])).to_pydict() == {"a": list(range(100))}
        assert pa.schema(table.to_batches(["b"])).names == ["b"]
        rest = table.to_batches(batch_rows=60)
        next(rest)
        assert pa.table(rest).num_rows == 40


@pytest.mark.parametrize("place", [4, 5])
def test_a_flipped_version_or_option_is_damage_and_no_other_format(tmp_path, place):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": range(100)}, path)
    file = path / "data/col0/__1__.bin"
    data = bytearray(file.read_bytes())
    data[place] ^= 0x10
    file.write_bytes(data)
    with pytest.raises(blz.CorruptError, match="crc32"):
        blz.read_table(path)


def limited(code: str, *arguments: object) -> str:
    """What a child prints that may open 64 files."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n" + code
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_too_few_descriptors_are_no_damage(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({f"c{i}": [i] for i in range(200)}, path, durability="process")
    code = """
import sys
import blztable as blz
try:
    print(blz.open(sys.argv[1]).verify().is_intact)
except blz.StorageError as error:
    print(error.strerror)
"""
    assert limited(code, path).strip() in ("True", "Too many open files")


def test_a_verification_keeps_few_files_open(tmp_path, monkeypatch):
    path = tmp_path / "t.blz"
    blz.to_blz({f"c{i}": range(20_000) for i in range(200)}, path, durability="process")
    with blz.open(path) as table:
        most = []
        gc.collect()
        before = len(os.listdir("/dev/fd"))
        compare = examine.Part.compare

        def counting(part):
            most.append(len(os.listdir("/dev/fd")) - before)
            compare(part)

        monkeypatch.setattr(examine.Part, "compare", counting)
        assert table.verify()
    assert max(most) < 150


def test_a_closed_standard_output_is_one_line(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"exec '{sys.executable}' -m blztable info '{path}' >&-"
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (1, "blz: standard output is closed\n")
