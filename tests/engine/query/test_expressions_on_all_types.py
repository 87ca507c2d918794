"""Filters on every type that can be stored, in every form, compared by their bytes."""

import operator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.engine.query import expressions
from blztable.errors import SchemaError
from support import arrow_strategies as own
from support.bit_equality import bits

quick = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
COLUMN = pc.field("a")
TYPES = [*own.PLAIN, *(pa.dictionary(pa.uint8(), type_) for type_ in own.PLAIN)]
# Arrow cannot order these types, or compare them for equality.
UNORDERED = (pa.month_day_nano_interval(), pa.null())
UNSIGNED = (*own.INTEGERS[4:], pa.bool_())


def plain(type_):
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def key(row, type_):
    """Return the sort key of a row, made from its bytes."""
    if row is None or type_ in (*own.TEXTS, *own.FIXED_BINARIES, *UNORDERED):
        return row
    if pa.types.is_floating(type_):
        return np.frombuffer(row, f"<f{len(row)}")[0].item()
    return int.from_bytes(row, "little", signed=type_ not in UNSIGNED)


def kept(expression, column):
    schema = pa.schema([("b", pa.int8()), ("a", column.type)])
    assert expressions.check(expression, schema) == (1,)
    return expressions.evaluate(expression, {"a": column}, len(column)).to_pylist()


@pytest.mark.parametrize("type_", TYPES, ids=str)
@quick
@given(data=st.data())
def test_nulls_are_found(type_, data):
    column = data.draw(own.columns(type_))
    rows = bits(column)
    assert kept(COLUMN.is_null(), column) == [row is None for row in rows]
    assert kept(COLUMN.is_valid(), column) == [row is not None for row in rows]


@pytest.mark.parametrize("type_", [t for t in TYPES if plain(t) not in UNORDERED], ids=str)
@quick
@given(data=st.data())
def test_values_are_compared_by_their_order(type_, data):
    column = data.draw(own.columns(type_))
    rows = [key(row, plain(type_)) for row in bits(column)]
    there = [at for at, row in enumerate(rows) if row is not None]
    if not there:
        return
    at = data.draw(st.sampled_from(there))
    value = expressions.evaluate(COLUMN, {"a": column}, len(rows))[at]
    for compare in (operator.eq, operator.lt, operator.ge):
        expected = [None if row is None else compare(row, rows[at]) for row in rows]
        assert kept(compare(COLUMN, value), column) == expected


@pytest.mark.parametrize("type_", [t for t in TYPES if plain(t) != pa.null()], ids=str)
@quick
@given(data=st.data())
def test_values_are_found_in_a_set(type_, data):
    column = data.draw(own.columns(type_))
    rows = [key(row, plain(type_)) for row in bits(column)]
    # Arrow's sets hold NaN, and one of the two zeros.
    there = [at for at, row in enumerate(rows) if row is not None and row == row and row != 0.0]
    if not there:
        return
    at = data.draw(st.sampled_from(there))
    values = expressions.evaluate(COLUMN, {"a": column}, len(rows)).slice(at, 1).combine_chunks()
    assert kept(COLUMN.isin(values), column) == [row == rows[at] for row in rows]


@pytest.mark.parametrize("type_", UNORDERED, ids=str)
def test_what_has_no_order_is_refused(type_):
    with pytest.raises(SchemaError, match="does not match the types"):
        expressions.check(COLUMN < COLUMN, pa.schema([("a", type_)]))
