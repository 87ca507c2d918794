"""Frames of every dtype: exact through a file and every verb, and in SQL as over the frame."""

import decimal
import math
import re

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.memory import RamStore
from support import frame_strategies as own
from support.bit_equality import assert_same
from support.object_strategies import INT64, TEXT
from support.options import arguments

few = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
many = settings(few, max_examples=2000)
OPTIONS = st.fixed_dictionaries(
    {
        "encoding": st.sampled_from(["auto", "plain"]),
        "row_group_rows": st.sampled_from([3, 64]),
        "page_rows": st.sampled_from([None, 8]),
    }
)


def comes_back(frame, options):
    store = RamStore()
    frame.to_blz(
        store, **arguments(**{name: value for name, value in options.items() if value is not None})
    )
    assert_same(blz.read_blz(store), frame)
    with blz.open(store) as table:
        assert table.verify()


@few
@given(own.frames(), OPTIONS)
def test_any_frame_comes_back_exactly(frame, options):
    comes_back(frame, options)


@pytest.mark.storm
@pytest.mark.timeout(3600)
@many
@given(own.frames(), OPTIONS)
def test_any_of_many_frames_comes_back_exactly(frame, options):
    comes_back(frame, options)


# Kinds of objects of which DuckDB makes the type that Arrow infers; of others it makes text.
OBJECTS = [
    TEXT,
    INT64.filter(lambda value: abs(value) < 1 << 31),
    st.booleans(),
    st.dates(),
    st.binary(max_size=3),
    st.floats(-9, 9),
    st.lists(st.integers(0, 9), max_size=2),
]


@st.composite
def answerable(draw, rows):
    """Draw a column of which DuckDB makes, in a frame, what it makes of Arrow data."""
    kind = draw(st.sampled_from([*sorted(own.KINDS), "of one kind"]))
    if kind == "of one kind":
        # DuckDB looks at the values, and has no type for none.
        value = draw(st.sampled_from(OBJECTS))
        values = np.empty(rows, object)
        values[:] = [*draw(st.lists(value | st.none(), min_size=rows, max_size=rows))]
        return values
    values = draw(own.KINDS[kind](rows))
    # DuckDB has no half floats, and of frames no periods, intervals and complex numbers.
    unknown = ("periods", "intervals", "complexes", "sparse", "objects", "kinds_of_objects")
    assume(kind not in unknown and values.dtype != np.float16)
    if kind == "categoricals":
        # It takes other categories for text.
        assume(isinstance(values.categories.dtype, pd.StringDtype))
    if kind == "zoned":
        # It cuts nanoseconds off.
        assume(values.dtype.unit != "ns")
    if kind == "masked" and values.dtype.kind == "f":
        # It takes NaN beside NA for NA; `pyarrow.Table.from_pandas` does not, and nor do we.
        assume(not np.isnan(values._data).any())
    return values


QUERIES = [
    "select count(*), count(x), count(*) - count(x) from {}",
    "select x, count(*), min(k), sum(k) from {} group by x order by x",
    "select k, count(x), min(x), max(x) from {} group by k order by k",
]
DAY = 86_400_000_000_000
SUMS = "select sum(x), avg(x) from {}"


def answer(engine, query, relation):
    # Through Arrow, because DuckDB makes times with a zone by pytz.
    found = engine.sql(query.format(relation)).to_arrow_table()
    return [[plain(value) for value in row.values()] for row in found.to_pylist()]


def plain(value):
    """Return a value such that equal values of both relations compare equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else round(value, 6)
    if isinstance(value, pa.MonthDayNano):
        # A day of 24 hours.
        return (value.months * 30 + value.days) * DAY + value.nanoseconds
    return float(value) if isinstance(value, decimal.Decimal) else value


def answers_alike(values, options):
    data = pd.Series(values, dtype=object) if values.dtype == object else values
    frame = pd.DataFrame({"x": data, "k": np.arange(len(values)) % 3})
    store = RamStore()
    frame.to_blz(
        store, **arguments(**{name: value for name, value in options.items() if value is not None})
    )
    with blz.open(store) as table, duckdb.connect() as engine:
        engine.register("stored", table.dataset())
        engine.register("frame", frame)
        number = isinstance(values.dtype, np.dtype) and values.dtype.kind in "iuf"
        for query in QUERIES + [SUMS] * number:
            if isinstance(values.dtype, pd.CategoricalDtype):
                # Over a frame, DuckDB takes the categories for ENUM, and sorts by their order.
                query = re.sub(r"\bx\b", "x::varchar", query)
            assert answer(engine, query, "stored") == answer(engine, query, "frame"), query


@few
@given(st.integers(0, 12).flatmap(answerable), OPTIONS)
def test_sql_over_a_table_answers_what_it_answers_over_the_frame(values, options):
    answers_alike(values, options)


@pytest.mark.storm
@pytest.mark.timeout(3600)
@many
@given(st.integers(0, 12).flatmap(answerable), OPTIONS)
def test_sql_over_many_tables_answers_what_it_answers_over_the_frames(values, options):
    answers_alike(values, options)


@few
@given(st.integers(0, 8).flatmap(own.columns), OPTIONS)
def test_engines_count_the_missing_values_of_every_dtype_as_pandas_does(values, options):
    assume(values.dtype != np.float16)
    data = pd.Series(values, dtype=object) if values.dtype == object else values
    frame = pd.DataFrame({"x": data})
    store = RamStore()
    frame.to_blz(
        store, **arguments(**{name: value for name, value in options.items() if value is not None})
    )
    is_missing = frame["x"].isna()
    if values.dtype.kind == "c":
        # Only the one that pandas makes of None; other numbers have a part that is one.
        is_missing &= np.array([repr(value) == "(nan+0j)" for value in values], bool)
    with blz.open(store) as table, duckdb.connect() as engine:
        assert table.to_arrow()["x"].null_count == is_missing.sum()
        assert table.count(filters=pc.field("x").is_null()) == is_missing.sum()
        engine.register("stored", table.dataset())
        found = engine.sql("select count(*) - count(x) from stored").fetchall()
        assert found == [(is_missing.sum(),)]


@few
@given(st.integers(1, 8).flatmap(own.columns), OPTIONS)
def test_a_table_of_any_dtype_is_copied_through_arrow_and_appended_to_itself(values, options):
    data = pd.Series(values, dtype=object) if values.dtype == object else values
    frame = pd.DataFrame({"x": data})
    store, copy = RamStore(), RamStore()
    options = {name: value for name, value in options.items() if value is not None}
    frame.to_blz(store, **arguments(**options))
    blz.to_blz(blz.read_table(store), copy, **arguments(**options))
    assert_same(blz.read_blz(copy), frame)
    with blz.open(store, "a") as table:
        table.append(table)
    twice = blz.read_blz(store)
    assert_same(twice[: len(frame)], frame)
    assert_same(twice[len(frame) :].reset_index(drop=True), frame)
