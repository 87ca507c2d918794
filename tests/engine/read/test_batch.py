"""Small parts that are decoded together are what they are one by one."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.engine.read import batch, columns
from blztable.engine.run import pool
from blztable.format.records import VALUES
from blztable.storage.memory import RamStore
from support.bit_equality import same_table

pytestmark = pytest.mark.usefixtures("bundled")

DTYPES = ["?", "<i1", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<M8[ms]", "<m8[us]"]
SPECIAL = [0.0, -0.0, np.nan, np.inf, 1e300, 5e-324, 0.1, 1 / 3]


@st.composite
def arrays(draw, rows):
    """Draw a column of numbers: of decimals or near a base, with nulls, NaN or odd values."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    seed = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    if dtype.kind == "f":
        decimals = seed.integers(-(10**5), 10**5, rows) / 10.0 ** draw(st.integers(0, 3))
        with np.errstate(over="ignore"):
            values = decimals.astype(dtype)
            for place in draw(st.lists(st.integers(0, rows - 1), max_size=3)):
                values[place] = draw(st.sampled_from(SPECIAL))
    elif dtype.kind == "b":
        values = seed.random(rows) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    else:
        numbers = np.dtype(f"i{dtype.itemsize}") if dtype.kind in "mM" else dtype
        limits = np.iinfo(numbers)
        low = draw(st.integers(limits.min, limits.max))
        high = min(limits.max, low + draw(st.sampled_from([0, 200, 60_000, 1 << 40])))
        values = seed.integers(low, high, rows, numbers, endpoint=True)
        # Those that ascend are stored as sums.
        values = (np.sort(values) if draw(st.booleans()) else values).view(dtype)
    mask = seed.random(rows) < draw(st.sampled_from([0.0, 0.0, 0.3, 1.0]))
    return pa.array(values, mask=mask if mask.any() else None)


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 200))
    some = draw(st.lists(arrays(rows), min_size=1, max_size=6))
    # Some columns are alike.
    chosen = draw(st.lists(st.sampled_from(range(len(some))), min_size=1, max_size=12))
    return pa.table({f"c{n}": some[index] for n, index in enumerate(chosen)})


def one_by_one(store, **asked):
    with tuning.tuned(matrix_columns_read=1 << 30):
        return blz.read_table(store, **asked)


@given(tables(), st.sampled_from([7, 64, 1000]), st.integers(1, 4), st.data())
def test_columns_read_together_are_what_they_are_one_by_one(table, group_rows, least, data):
    store = RamStore()
    nbytes = data.draw(st.sampled_from([1, 3000, 1 << 20]))
    with tuning.tuned(matrix_columns_read=1, matrix_bytes=nbytes, matrix_columns_written=least):
        blz.to_blz(
            table, store, storage=blz.Storage(row_group_rows=group_rows), durability="process"
        )
        found = blz.read_table(store)
        assert same_table(found, one_by_one(store))
        assert same_table(found, table)
        names = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
        assert same_table(blz.read_table(store, columns=names), table.select(names))
        frame = blz.read_blz(store)
    assert frame.equals(one_by_one(store).to_pandas())


def test_a_wide_table_is_read_without_describing_its_parts(monkeypatch):
    rng = np.random.default_rng(1)
    table = pa.table({f"c{n}": np.round(rng.normal(size=300), 2) for n in range(200)})
    store, opened = RamStore(), []
    blz.to_blz(table, store, durability="process")

    def note(self, line, group, call=columns.OpenParts.open):
        opened.append(line)
        return call(self, line, group)

    monkeypatch.setattr(columns.OpenParts, "open", note)
    assert same_table(blz.read_table(store), table)
    assert not opened


@pytest.mark.parametrize("change", ["delete", "update", "add", "rename", "compact"])
def test_columns_are_read_together_after_a_change(change):
    rng = np.random.default_rng(2)
    frame = {f"c{n}": rng.integers(0, 1000, 90) for n in range(20)}
    store, together = RamStore(), {}

    def note(*args):
        together.update(batch.read_batches(*args))
        return together

    blz.to_blz(frame, store)
    with blz.open(store, "a") as table:
        table.append(frame)
        match change:
            case "delete":
                table.delete([("c0", ">", 900)])
            case "update":
                table.update({"c1": 5}, where=[("c0", ">", 900)])
            case "add":
                table.add_column("d", rng.random(180))
            case "rename":
                table.rename_columns({"c3": "z"})
            case "compact":
                table.compact()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "read_batches", note)
            found = table.to_arrow()
    assert same_table(found, one_by_one(store))
    assert len(together) >= 18


@pytest.mark.parametrize("rows", [1, 100])
def test_many_small_row_groups_are_decoded_together(rows, monkeypatch):
    rng = np.random.default_rng(5)
    count = 40 * rows + rows // 2
    table = pa.table(
        {
            "up": np.cumsum(rng.integers(0, 9, count)),
            "near": rng.integers(0, 200, count),
            "money": np.round(rng.normal(size=count), 2),
            "gone": pa.array(rng.normal(size=count), mask=rng.random(count) < 0.3),
            "flag": rng.random(count) < 0.5,
        }
    )
    store = RamStore()
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=rows), durability="process")
    opened = []

    def note(self, line, group, call=columns.OpenParts.open):
        opened.append(line)
        return call(self, line, group)

    monkeypatch.setattr(columns.OpenParts, "open", note)
    assert same_table(blz.read_table(store), table)
    for name in table.column_names:
        assert same_table(blz.read_table(store, columns=[name]), table.select([name]))
    assert not opened


@pytest.mark.parametrize("place", [20, -1])
def test_a_damaged_chunk_among_many_is_named(place):
    rng = np.random.default_rng(6)
    store = RamStore()
    table = pa.table({f"c{n}": rng.random(50) for n in range(30)})
    blz.to_blz(table, store, durability="process")
    with blz.open(store) as opened, opened._snapshot.opened(opened._snapshot.projection) as reader:
        part = reader.parts.open(17, 0)
        at = part.streams[VALUES]._offsets[0] + place
    data = bytearray(store.get(part.key))
    data[at if place > 0 else at + 1 + part.streams[VALUES]._sizes[0] - 1] ^= 1
    store.put(part.key, bytes(data))
    with pytest.raises(blz.CorruptError, match=r"column 'c17', stream 'values', chunk 0: crc32"):
        blz.read_table(store)
    rest = [name for name in table.column_names if name != "c17"]
    assert same_table(blz.read_table(store, columns=rest), table.select(rest))


def test_the_progress_of_parts_that_are_read_together_counts_all_rows():
    store, told = RamStore(), []
    table = pa.table({f"c{n}": np.random.default_rng(n).random(500) for n in range(40)})
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=100), durability="process")
    with blz.open(store) as opened:
        opened.to_arrow(progress=lambda done, rows: told.append((done, rows)))
    assert told[-1] == (500, 500)
    assert told == sorted(told)


@pytest.mark.parametrize("is_shared", [False, True])
def test_few_bytes_of_numbers_are_read_by_the_caller_alone(is_shared, tuned, monkeypatch):
    """Another thread would take longer to wake."""
    table = pa.table({f"c{n}": np.random.default_rng(n).random(2000) for n in range(100)})
    store, threads = RamStore(), set()
    blz.to_blz(table, store, durability="process")

    def note(self, cells, decode=batch._MatrixReader._decode):
        threads.add(threading.get_ident())
        time.sleep(0.01)  # Others would come.
        return decode(self, cells)

    tuned(matrix_shared_bytes=table.nbytes + (not is_shared))
    monkeypatch.setattr(pool, "_processors", lambda: 4)
    monkeypatch.setattr(batch._MatrixReader, "_decode", note)
    assert blz.read_table(store) == table
    assert (threads == {threading.get_ident()}) == (not is_shared)


# Found by the fuzzer: an AssertionError.
def test_dictionaries_of_floats_with_nulls_and_nan_are_read_together():
    noise = np.random.default_rng(0)
    few = noise.random(20)
    values = [None if k % 5 == 0 else few[k % 20] if k % 7 else float("nan") for k in range(3000)]
    table = pa.table({f"c{number}": pa.array(values, pa.float64()) for number in range(40)})
    store = RamStore()
    blz.to_blz(table, store)
    assert same_table(blz.read_table(store), table)
