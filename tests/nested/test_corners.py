"""Corners of nested columns that were wrong once."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.errors import SchemaError
from blztable.storage.memory import MemoryStore


def test_a_default_may_have_as_many_values_as_its_codes():
    type_ = pa.list_(pa.dictionary(pa.uint8(), pa.int16()))
    store, rows = MemoryStore(), pa.table({"x": pa.array([None], type_)})
    blz.to_blz(rows, store)
    with blz.open(store, "a") as table:
        table.alter_column("x", default=list(range(256)))
        table.append(rows)
        table.resize(3)
        assert table["x"][:].to_pylist() == [None, None, list(range(256))]


def test_a_field_of_any_size_is_added_where_no_default_needs_it():
    vectors = pa.FixedSizeListArray.from_arrays(np.zeros(1 << 15, np.float32), 1 << 14)
    store = MemoryStore()
    blz.to_blz(pa.table({"s": [{"a": 1}, None]}), store)
    with blz.open(store, "a") as table:
        table.add_column("s.vector", vectors)
        assert table["s.vector"][:].null_count == 1
        assert table.verify()


@pytest.mark.parametrize(
    "type_", [pa.list_view(pa.int64()), pa.list_(pa.large_list_view(pa.int64()))], ids=str
)
def test_a_frame_without_rows_may_have_views_of_lists(type_):
    store = MemoryStore()
    blz.to_blz(pa.table({"k": [1], "x": pa.array([None], type_)}), store)
    # Arrow ends the process if it gets no array.
    assert len(blz.read_blz(store, filters=[("k", ">", 5)])) == 0


def test_runs_within_runs_are_refused_where_arrow_cannot_move_them():
    inner = pc.run_end_encode(pa.array([1, 1, 2]))
    outer = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int16()), inner)
    with pytest.raises(SchemaError, match="decode runs within runs"):
        blz.to_blz(pa.table({"x": outer}), MemoryStore())


def test_a_union_of_nulls_keeps_its_type_codes():
    children = [pa.array([1, 2]), pa.nulls(2, pa.string())]
    union = pa.UnionArray.from_sparse(pa.array([1, 1], pa.int8()), children)
    store = MemoryStore()
    blz.to_blz(pa.table({"k": [1, 2]}), store)
    with blz.open(store, "a") as table:
        table.add_column("u", union)
        assert table["u"][:].type_codes.to_pylist() == [1, 1]


def test_dictionaries_of_both_zeros_are_told_apart():
    codes = pa.array(range(128), pa.int8())
    values = [pa.array([[zero]] + [[float(n)] for n in range(1, 128)]) for zero in (0.0, -0.0)]
    chunks = [pa.DictionaryArray.from_arrays(codes, one) for one in values]
    store = MemoryStore()
    blz.to_blz(pa.table({"x": pa.chunked_array(chunks)}), store)
    found = blz.read_table(store)["x"].to_pylist()
    assert [str(found[row][0]) for row in (0, 128)] == ["0.0", "-0.0"]


EMPTY = pa.list_(pa.int8(), 0)


@pytest.mark.parametrize(
    ("type_", "rows"),
    [
        (EMPTY, [[], None, []]),
        (pa.list_(EMPTY, 2), [[[], None], None, [[], []]]),
        (pa.list_(pa.list_(pa.int8(), 2), 0), [[], None, []]),
        (pa.struct([("x", EMPTY)]), [{"x": []}, {"x": None}, None]),
    ],
    ids=str,
)
def test_lists_of_size_0_are_made_of_python_s_lists(type_, rows):
    """Arrow's own constructor of them divides by the size, which ends the process."""
    store = blz.MemoryStore()
    blz.to_blz(pa.table({"a": pa.array(rows, type_)}), store)
    with blz.open(store, "a") as t:
        t.append({"a": rows})
        t.append(t.to_pandas())
        t.update({"a": rows * 4})
        assert t["a"].type == type_
        assert t["a"][:].to_pylist() == rows * 4
