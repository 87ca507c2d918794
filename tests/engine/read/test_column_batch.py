"""Columns of numbers that are read together are what they are one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.engine.read import column_batch, columns
from blztable.storage.memory import RamStore
from support.bit_equality import same_table

pytestmark = pytest.mark.usefixtures("bundled")

DTYPES = ["<i1", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<M8[ms]", "<m8[us]"]
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
    else:
        numbers = np.dtype(f"i{dtype.itemsize}") if dtype.kind in "mM" else dtype
        limits = np.iinfo(numbers)
        low = draw(st.integers(limits.min, limits.max))
        high = min(limits.max, low + draw(st.sampled_from([0, 200, 60_000, 1 << 40])))
        values = seed.integers(low, high, rows, numbers, endpoint=True).view(dtype)
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


def test_a_wide_table_is_read_without_decoding_its_lines(monkeypatch):
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
    frame = {f"c{n}": rng.integers(0, 1000, 90) for n in range(10)}
    store, together = RamStore(), {}

    def note(*args):
        together.update(column_batch.read_batches(*args))
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
    assert len(together) >= 8


def test_the_bundle_of_a_damaged_chunk_is_named():
    rng = np.random.default_rng(3)
    store = RamStore()
    blz.to_blz({f"c{n}": rng.random(500) for n in range(10)}, store)
    (key,) = [name for name in store._entries if name.endswith(".bin")]
    data = bytearray(store.get(key))
    data[len(data) // 2] ^= 1
    store.put(key, bytes(data))
    with pytest.raises(
        blz.CorruptError, match=rf"{key}, column 'c0', stream 'values', chunk \d+: crc32"
    ):
        blz.read_table(store)


def test_each_line_is_read_once_for_all_reads_of_a_handle(monkeypatch):
    rng = np.random.default_rng(4)
    table = pa.table({f"c{n}": rng.integers(0, 9, 50) for n in range(300)})
    store, starts = RamStore(), []
    blz.to_blz(table, store)

    def note(self, key, start=0, *args, get=RamStore.get):
        if "manifest" in key:
            starts.append(start)
        return get(self, key, start, *args)

    with blz.open(store) as handle:
        monkeypatch.setattr(RamStore, "get", note)
        assert handle.to_arrow() == table
        assert starts == sorted(set(starts)) != []
        starts.clear()
        assert handle.to_arrow() == table
        assert not starts


def test_a_line_that_was_damaged_when_it_was_read_is_read_again():
    store = RamStore()
    blz.to_blz({f"c{n}": [1, 2] for n in range(10)}, store)
    with blz.open(store) as handle:
        key = handle._snapshot.version.key
        data = store.get(key)
        at = data.rindex(b'"rows":[2]')
        store.put(key, data[:at] + data[at:].replace(b"2", b"3", 1))
        with pytest.raises(blz.CorruptError, match="does not have its sha256"):
            handle.to_arrow()
        store.put(key, data)
        assert handle.to_arrow().num_rows == 2
