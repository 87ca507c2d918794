"""Rows are chosen by flags in chunks of any length, whichever way is the faster one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.engine.read import selection
from support import arrow_strategies as types
from support import nested_arrays, samples
from support.bit_equality import bits

KINDS = [*types.PLAIN, *samples.DICTIONARIES]
KINDS += [kind for name, kind in nested_arrays.ALL.items() if name != "short runs"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("begin", [0, 5])
@settings(max_examples=5, deadline=None)
@given(
    lengths=st.lists(st.integers(20, 60), min_size=1, max_size=3),
    share=st.sampled_from([0.97, 0.5, 0.1, 0, 1]),
    seed=st.integers(0, 1 << 32),
)
def test_of_each_chunk_the_flagged_rows_are_chosen(begin, kind, lengths, share, seed):
    chunks = [
        nested_arrays.array_of(kind, rows, seed)
        if kind in nested_arrays.ALL.values()
        else samples.array(kind, rows)
        for rows in lengths
    ]
    column = pa.chunked_array(chunks, kind)
    flags = np.random.default_rng(seed).random(begin + len(column)) < share
    found = selection.chosen(column, flags, np.flatnonzero(flags), begin)
    assert found.type == kind
    rows = bits(column)
    assert bits(found) == [row for row, flag in zip(rows, flags[begin:], strict=True) if flag]
