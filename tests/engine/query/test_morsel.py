"""A morsel's remaining rows, decoded whole or picked, are the rows of the filter."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.engine.query import expressions
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.bit_equality import same
from support.random_conditions import Drawn

ALWAYS, NEVER = 0, 1 << 30


@pytest.mark.parametrize("sparse", [ALWAYS, 2, NEVER])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_whenever_rows_are_picked_the_same_are_left(sparse, seed):
    drawn = Drawn(seed)
    table = drawn.table.append_column("n", pa.array(range(len(drawn.table))))
    condition = drawn.condition(1) & drawn.condition(1) & (pc.bit_wise_and(pc.field("n"), 3) != 1)
    try:
        expressions.check(condition, table.schema)
        expressions.decided(condition, table.schema)
        columns = {name: table[name] for name in table.column_names}
        left = np.flatnonzero(expressions.mask(condition, columns, len(table)))
    except SchemaError:
        return
    store = RamStore()
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=drawn.pick(9, 30), page_rows=8))
    with tuning.tuned(rows_per_selected=sparse):
        for names in (["n"], ["b", "n", "a"]):
            found = blz.read_table(store, columns=names, filters=condition)
            for name in names:
                rows = [chunk for row in left for chunk in table[name].slice(row, 1).chunks]
                assert same(found[name], pa.chunked_array(rows, found[name].type))
        assert blz.open(store).count(filters=condition) == len(left)


def test_where_few_rows_are_left_the_next_step_looks_at_these_alone(monkeypatch):
    store = RamStore()
    numbers = np.arange(4096)
    blz.to_blz(
        {"few": numbers % 512, "wide": numbers / 2, "n": numbers},
        store,
        storage=blz.Storage(page_rows=64),
    )
    looked = []
    mask = expressions.mask

    def counting(expression, columns, rows):
        looked.append((sorted(columns), rows))
        return mask(expression, columns, rows)

    monkeypatch.setattr(expressions, "mask", counting)
    found = blz.read_table(
        store, columns=["n", "few"], filters=[("wide", ">", 500.0), ("few", "==", 500)]
    )
    assert found["n"].to_pylist() == list(range(1012, 4096, 512))
    assert found["few"].to_pylist() == [500] * 7
    steps = {names[0]: rows for names, rows in looked}
    assert steps["wide"] == 1


@pytest.mark.parametrize("tuned_to", [{}, {"filter_bytes": 1 << 12, "morsel_rows": 100}])
def test_a_filter_that_is_asked_again_answers_again(tuned_to):
    """A plan keeps windows, morsels, pages, and which codes pass: by row group, and by version."""
    store, rows = RamStore(), np.arange(3000)
    # The codes of each row group stand for other words.
    words = pa.array([f"{row // 500}{row % 3}" for row in rows])
    table = pa.table({"word": words, "n": rows, "third": rows % 7, "fifth": rows % 5})
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=500, page_rows=64))
    condition = pc.field("word").isin(["01", "12", "30", "52"]) & (pc.field("third") < 5)
    with tuning.tuned(**tuned_to), blz.open(store, "a") as opened:
        for _ in range(2):
            left = table.filter(condition)
            for columns in (["n"], ["word", "n"], ["n", "third", "word"]):
                assert opened.to_arrow(columns, filters=condition).equals(left.select(columns))
                assert opened.count(filters=condition) == len(left)
            # The same row groups have fewer rows in the next version.
            opened.delete(pc.field("fifth") == 0)
            table = table.filter(pc.field("fifth") != 0)
