"""Columns appended one by one: they share row groups, and the memory is bounded."""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.errors import LimitError, SchemaError
from blztable.storage.memory import RamStore
from support.options import arguments
from support.stores import tree


def table(data, **options) -> blz.CTable:
    store = RamStore()
    blz.to_blz(data, store, **arguments(durability="process", **options))
    return blz.open(store, "a")


def entries(t) -> set[str]:
    return tree(t._snapshot.version.store)


def huge(nbytes) -> pa.Array:
    """Return one item of `size` bytes in untouched memory, which takes none."""
    ends = pa.array([0, nbytes], pa.int32()).buffers()[1]
    values = pa.py_buffer(np.zeros(nbytes, np.uint8))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, values])


def test_text_longer_than_was_guessed_is_written_before_it_fills_the_memory():
    t = table(pa.table({"x": pa.array([], pa.binary()), "n": pa.array([], pa.int64())}))
    before = entries(t)
    with t.transaction() as tx, tx.appender() as a:
        a["n"].append(np.arange(1000))
        for _ in range(10):
            a["x"].append(pa.array([bytes(1000)] * 7000))
        assert entries(t) > before
        assert a._append._columns[0]._waiting_rows < 65_536
        a["n"].append(np.arange(1000, 70_000))
    version = t._snapshot.version
    assert version.row_groups == (65_536, 70_000 - 65_536)
    assert t["n"].to_numpy().tolist() == [*range(70_000)]


def test_where_all_columns_together_are_much_all_are_written():
    t = table(pa.table({name: pa.array([], pa.binary()) for name in "abcdef"}))
    piece = pa.array([bytes(10_000)] * 5000)
    with t.transaction() as tx, tx.appender() as a:
        for name in "abcdef":
            a[name].append(piece)
        assert a._append._size is not None
    assert len(t) == 5000


def test_text_far_longer_than_what_was_decided_by_is_a_limit_error():
    t = table(pa.table({"x": pa.array([], pa.binary()), "n": pa.array([], pa.int64())}))
    before = entries(t)

    def feed():
        with t.transaction() as tx, tx.appender() as a:
            a["n"].append(np.zeros(1_000_000, np.int64))
            a["x"].append(huge(600_000_000))
            a["x"].append(huge(600_000_000))

    with pytest.raises(LimitError, match=r"column 'x': 2 rows take 12.* append whole rows"):
        feed()
    assert entries(t) == before


def test_of_huge_items_a_row_group_has_as_few_rows_as_memory_allows():
    t = table(pa.table({"x": pa.array([], pa.binary())}))

    def feed():
        with t.transaction() as tx, tx.appender() as a:
            a["x"].append(huge(300_000_000))
            assert a._append._size == 2
            raise LookupError

    with pytest.raises(LookupError):
        feed()


def test_categories_are_united_as_far_as_their_codes_have_room():
    def piece(start):
        codes, values = range(60), [f"v{n}" for n in range(start, start + 60)]
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), values)

    t = table(pa.table({"c": piece(0)}))
    with t.transaction() as tx, tx.appender() as a:
        a["c"].append(piece(30))
        a["c"].append(piece(60))
    assert len(t) == 180

    def feed():
        with t.transaction() as tx, tx.appender() as a:
            for start in range(0, 180, 60):
                a["c"].append(piece(start))

    with pytest.raises(SchemaError, match=r"column 'c': .* do not fit into one array"):
        feed()
    assert len(t) == 180


def test_row_groups_written_in_many_turns_keep_their_order_and_their_bounds():
    t = table({"x": [0]}, row_group_rows=8)
    with t.transaction() as tx, tx.appender() as a:
        for start in range(1, 199, 3):
            a["x"].append([start, start + 1, start + 2])
    assert t["x"].to_numpy().tolist() == [*range(199)]
    assert t.verify().is_intact
