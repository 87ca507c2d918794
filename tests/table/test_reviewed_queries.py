"""What a second pair of eyes found in filters and random access, each as a test of its own."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import MemoryStore
from blztable.storage.store import KeyNotFound
from support.stores import Hooked


@pytest.mark.parametrize("as_dictionary", [False, True])
@pytest.mark.parametrize(("type_", "width"), [(pa.decimal32(1, 0), 4), (pa.decimal64(3, 0), 8)])
def test_decimals_of_more_digits_than_their_type_has_are_refused_by_their_column(
    type_, width, as_dictionary
):
    """Arrow makes them without a look, and refuses them when it validates."""
    numbers = np.array([7, 123456, -7, 1], f"<i{width}")
    array = pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])
    if as_dictionary:
        array = pa.DictionaryArray.from_arrays(pa.array(range(4), pa.int8()), array)
    store = MemoryStore()
    message = "column 'a': a value with more digits than decimal"
    for options in ({}, {"sort_by": "a"}):
        with pytest.raises(blz.SchemaError, match=message):
            blz.to_blz(pa.table({"a": array, "n": numbers}), store, **options)
    assert store.list_names("meta/manifest") == []


IS_TWO = pc.field("a") == 2


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.count(filters=IS_TWO),
        lambda table: table.explain(filters=IS_TWO),
        lambda table: table.take([2]),
        lambda table: table[::2],
        lambda table: table["a"][::2],
        lambda table: table["a"][1:3],
        lambda table: table.to_arrow(filters=IS_TWO),
        lambda table: next(table.to_batches(filters=IS_TWO)),
    ],
)
def test_a_table_that_is_closed_while_it_is_read_was_closed_and_is_not_damaged(read):
    def gone(name, args):
        if name == "open":
            table.close()
            raise KeyNotFound(args[0])  # As if a commit had removed it now.

    store = MemoryStore("here")
    blz.to_blz({"a": range(32)}, store, page_rows=8)
    hooked = Hooked(store)
    table = blz.open(hooked)
    hooked._before = gone
    with pytest.raises(blz.ClosedError, match="here was closed"):
        read(table)


def test_a_filter_whose_text_arrow_cuts_within_a_character_is_explained():
    store = MemoryStore()
    blz.to_blz({"a": ["x", "y"]}, store)
    for length in range(30, 34):
        given = pc.field("a").isin(["b" * length + "\U0010ffff" * 40])
        assert "is_in(a" in str(blz.open(store).explain(filters=given))
