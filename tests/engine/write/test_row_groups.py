"""Row groups: how the items of a stream are joined and cut."""

import os
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.write import row_groups
from blztable.storage.memory import MemoryStore


# Bug: waiting items of a few rows were kept one by one, each with its overhead.
def test_very_many_small_items_are_joined_while_they_wait(monkeypatch):
    monkeypatch.setattr(row_groups, "MOST_SMALL", 10)
    pending = row_groups._Pending()
    for number in range(1000):
        pending.add(pa.table({"a": [number], "b": [str(number)]}), 1)
    chunks = sum(table["a"].num_chunks for table in pending._tables + pending._small)
    assert chunks <= 110
    (group,) = pending.cut(None)
    assert group[0].to_pydict() == {"a": list(range(1000)), "b": list(map(str, range(1000)))}


# Guards the joining of small items: rows must keep their order.
def test_small_and_large_items_keep_their_order(monkeypatch):
    monkeypatch.setattr(row_groups, "MOST_SMALL", 3)
    monkeypatch.setattr(row_groups, "SMALL_BYTES", 100)
    sizes = [1, 2, 50, 1, 1, 1, 1, 60, 70, 3, 1]
    numbers = iter(range(sum(sizes)))
    items = [pa.table({"a": [next(numbers) for _ in range(size)]}) for size in sizes]
    store = MemoryStore()
    blz.to_blz(items, store, row_group_rows=20)
    assert blz.read_table(store)["a"].to_pylist() == list(range(sum(sizes)))


# Bug: a stream of one-row items took more than 100 MB.
def test_items_of_one_row_take_little_memory(tmp_path):
    """Uses a child process, whose peak memory other tests do not change."""
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
    # Kept one by one, they took more than 100 MB.
    assert int(done.stdout) < 48 << 20


# Bug: each slice of a view column was counted with the whole buffer it points into.
@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
def test_views_of_a_large_buffer_do_not_make_groups_of_single_rows(type_):
    column = pa.array(["x" * 1000] * 1000, type_)
    table = pa.table({"a": column})
    assert row_groups.bytes_taken(table["a"].slice(0, 10)) == 10 * 1008
    assert list(row_groups.row_ranges(table, 1000, None)) == [(0, 1000)]
