"""Strategies of tables with columns of any type: pyarrow's own, and ours for what those lack.

Ours have decimals, naive timestamps, NaN beside null, views, unions, runs, slices with offsets,
many chunks, and nulls in dictionaries, at any level of nested types. Fields at every level have
names, metadata and promises of no nulls, which the data need not keep.
"""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import reject
from hypothesis import strategies as st
from pyarrow.tests import strategies as of_pyarrow

from blztable.columns.types import is_storable
from support import arrow_strategies, nested_arrays, samples

LEAVES = [*arrow_strategies.PLAIN, *samples.DICTIONARIES, *nested_arrays.LEAVES]
# Appends to a column of ordered categories must have the same ones.
FLAT = [one for one in LEAVES if not (pa.types.is_dictionary(one) and one.ordered)]
TYPES = st.sampled_from(FLAT) | nested_arrays.types_of(LEAVES)
METADATA = st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)


@st.composite
def pyarrow_tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table of pyarrow's strategies."""
    try:
        table = draw(of_pyarrow.all_tables)
    except (pytest.skip.Exception, pa.ArrowNotImplementedError):
        # It has no values of timestamps without a zone, and Arrow does not make all that it asks.
        reject()
    # Extension types.
    if not all(map(is_storable, table.schema.types)):
        reject()
    return table


@st.composite
def own_tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table of slices of arrays of any type, in chunks."""
    types = draw(st.lists(TYPES, min_size=1, max_size=3))
    rows, seed = draw(st.integers(0, 60)), draw(st.integers(0, 1 << 32))
    chance = random.Random(seed)
    fields, columns = [], []
    for number, type_ in enumerate(types):
        type_ = promising(type_, chance)
        cuts = np.cumsum([0, *(chance.randrange(rows + 1) for _ in range(3)), rows])
        cuts = sorted({0, *cuts[cuts < rows].tolist(), rows})
        chunks = []
        for start, stop in pairwise(cuts):
            before, behind = chance.randrange(10), chance.randrange(3)
            array = nested_arrays.array_of(type_, before + stop - start + behind, seed + start)
            chunks.append(array.slice(before, stop - start))
        column = pa.chunked_array(chunks, type_)
        nullable = chance.random() < 0.5 or pa.types.is_null(type_)
        fields.append(pa.field(f"x{number}", type_, nullable, draw(METADATA)))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, draw(METADATA)))


def promising(type_: pa.DataType, chance: random.Random) -> pa.DataType:
    """Return a type whose inner fields have metadata, and promise no nulls, by chance."""

    def field(one: pa.Field) -> pa.Field:
        metadata = {"a": "b"} if chance.random() < 0.3 else None
        nullable = chance.random() < 0.5 or pa.types.is_null(one.type)
        return pa.field(one.name, promising(one.type, chance), nullable, metadata)

    kinds = pa.types
    if kinds.is_struct(type_):
        return pa.struct([field(type_.field(number)) for number in range(type_.num_fields)])
    if kinds.is_union(type_):
        fields = [field(type_.field(number)) for number in range(type_.num_fields)]
        return pa.union(fields, type_.mode, type_.type_codes)
    if kinds.is_fixed_size_list(type_):
        return pa.list_(field(type_.value_field), type_.list_size)
    for is_kind, make in (
        (kinds.is_list, pa.list_),
        (kinds.is_large_list, pa.large_list),
        (kinds.is_list_view, pa.list_view),
        (kinds.is_large_list_view, pa.large_list_view),
    ):
        if is_kind(type_):
            return make(field(type_.value_field))
    if kinds.is_map(type_):
        return pa.map_(type_.key_field, field(type_.item_field), chance.random() < 0.5)
    return type_
