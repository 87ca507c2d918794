"""Filtered reads: the same rows and labels as filtering the whole table, to the bit."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pandas.testing as tm
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.engine.query import expressions
from blztable.errors import ColumnNotFoundError, SchemaError
from blztable.storage.memory import RamStore
from support import arrow_strategies as own
from support import samples
from support.bit_equality import same_table
from support.random_conditions import Drawn
from support.recording_store import Recorded
from support.stores import write

ALL = [*own.PLAIN, *samples.DICTIONARIES]


def rows_of(table, kept):
    """Return the rows whose flag is set; Arrow cannot filter views."""
    rows = [table.slice(int(row), 1) for row in np.flatnonzero(kept)]
    return pa.concat_tables([table.slice(0, 0), *rows])


def mask_of(table, expression):
    """Return the mask of the rows that an expression keeps, evaluated on the whole table."""
    expression = expressions.as_expression(expression, table.schema)
    needed = expressions.check(expression, table.schema)
    columns = {table.schema.names[at]: table.column(at) for at in needed}
    return expressions.mask(expression, columns, len(table))


def stored(table, **options):
    store = RamStore("memory")
    write(store, table, **{"page_rows": 8, "row_group_rows": 24, "chunk_bytes": 64, **options})
    return store


@st.composite
def filtered(draw):
    """Draw a table, maybe with duplicate column names, a condition, and the rows it keeps."""
    drawn = Drawn(draw(st.integers(0, 2**40)))
    table = pa.concat_tables([drawn.table] * draw(st.sampled_from([1, 1, 3])))
    for _ in range(draw(st.integers(0, 3))):
        array = samples.array(draw(st.sampled_from(ALL)), len(table))
        table = table.append_column(draw(st.sampled_from("xxy")), array)
    expression = drawn.condition(draw(st.integers(0, 3)))
    try:
        kept = mask_of(table, expression)
    except SchemaError:
        assume(False)
    return table.append_column("row", pa.array(range(len(table)))), expression, kept


@settings(max_examples=20, deadline=None)
@given(filtered(), st.data())
def test_a_filter_leaves_the_rows_that_filtering_the_whole_table_does(given_, data):
    table, expression, kept = given_
    sizes = st.sampled_from([8, 16, 32])
    store = stored(
        table,
        page_rows={name: data.draw(sizes) for name in table.column_names},
        row_group_rows=data.draw(st.sampled_from([None, 4, 9, 16, 30])),
        chunk_bytes=data.draw(st.sampled_from([8, 64, 200, 1 << 20])),
    )
    columns = data.draw(st.none() | st.lists(st.sampled_from(table.column_names), max_size=4))
    positions = list(range(table.num_columns))
    if columns is not None:
        positions = [at for one in columns for at in positions if table.column_names[at] == one]
    wanted = rows_of(table.select(positions), kept) if positions else None
    count = int(kept.sum())
    with tuning.tuned(
        morsel_rows=data.draw(st.sampled_from([8, 1 << 19])),
        filter_bytes=data.draw(st.sampled_from([100, 1 << 28])),
        window_rows=data.draw(st.sampled_from([8, 1 << 17])),
        window_bytes=data.draw(st.sampled_from([100, 1 << 25])),
    ):
        found = blz.read_table(store, columns=columns, filters=expression)
        with blz.open(store) as opened:
            batches = list(
                opened.to_batches(columns, filters=expression, batch_rows=data.draw(sizes))
            )
            assert opened.count(filters=expression) == count
    assert found.num_rows == sum(batch.num_rows for batch in batches) == count
    if wanted is not None:
        found.validate()
        assert same_table(found, wanted)
        assert same_table(pa.Table.from_batches(batches, found.schema), wanted)


@settings(max_examples=20, deadline=None)
@given(filtered(), st.sampled_from([None, 9, 16]))
def test_a_frame_is_filtered_as_its_table_is(given_, row_group_rows):
    table, expression, kept = given_
    table = table.select([0, 1, table.num_columns - 1])
    store = stored(table, row_group_rows=row_group_rows)
    try:
        whole = blz.read_blz(store, dtype_backend="pyarrow")
    except (pa.ArrowException, SchemaError):
        assume(False)  # pandas does not have all types.
    frame = blz.read_blz(store, filters=expression, dtype_backend="pyarrow")
    assert frame.index.tolist() == np.flatnonzero(kept).tolist()
    wanted = rows_of(pa.Table.from_pandas(whole, preserve_index=False), kept)
    found = pa.Table.from_pandas(frame, schema=wanted.schema, preserve_index=False)
    assert found["row"].equals(wanted["row"])
    assert same_table(found, wanted)


NUMBERS = pa.table({"n": range(100), "t": [f"{row:03}" for row in range(100)]})
BETWEEN = [("n", ">=", 40), ("n", "<", 43)]


@pytest.mark.parametrize(
    ("given_", "rows"),
    [
        ([("n", "=", 7)], [7]),
        ([("n", "==", 7)], [7]),
        ([("n", "!=", 7), ("n", "<=", 8)], [0, 1, 2, 3, 4, 5, 6, 8]),
        (BETWEEN, [40, 41, 42]),
        ([BETWEEN], [40, 41, 42]),
        ([[("n", ">", 97)], BETWEEN, [("t", "==", "004")]], [4, 40, 41, 42, 98, 99]),
        ([("n", "in", [5, 3, 1000])], [3, 5]),
        ([("n", "in", {5, 3})], [3, 5]),
        ([("n", "not in", range(2, 100))], [0, 1]),
        ([("t", "in", ("050", "x"))], [50]),
        (pc.field("n") == 7, [7]),
        (pc.field("n") * 2 == 14, [7]),
        (pc.field("t").cast(pa.int64()) == pc.field("n"), list(range(100))),
        (pc.scalar(True), list(range(100))),
        (pc.scalar(False), []),
        (pc.field(0) == 7, [7]),
    ],
    ids=str,
)
def test_filters_are_tuples_or_expressions(given_, rows):
    store = stored(NUMBERS)
    with blz.open(store) as table:
        assert blz.read_table(store, filters=given_)["n"].to_pylist() == rows
        assert table.to_arrow(["t"], filters=given_)["t"].to_pylist() == [f"{r:03}" for r in rows]
        assert blz.read_blz(store, filters=given_).index.tolist() == rows
        assert [r for b in table.to_batches(["n"], filters=given_) for r in b["n"].to_pylist()] == (
            rows
        )
        assert table.count(filters=given_) == len(rows)
        assert table.to_arrow([], filters=given_).num_rows == len(rows)
        assert table[["t"]].to_arrow(filters=given_).column_names == ["t"]
        assert table[["t"]].to_arrow(filters=given_).num_rows == len(rows)


WORDS = ["", "a", None, "äö", "more than twelve bytes", "a"]
BY_VALUE = [
    (pa.array(WORDS).dictionary_encode(), "a", [1, 5]),
    (pa.DictionaryArray.from_arrays([0, 1, None, 1, 2, 0], [1.5, None, 2.5]), 1.5, [0, 5]),
    (pa.array(WORDS, pa.string_view()), "more than twelve bytes", [4]),
    (pa.array(WORDS).cast(pa.binary()).cast(pa.binary_view()), b"a", [1, 5]),
    (pa.array(np.array([0, -0.0, 1.5, np.nan, 2, 1.5], "f2")), 1.5, [2, 5]),
    (
        pa.array([decimal.Decimal("1.25"), None], pa.decimal128(9, 2)).cast(pa.decimal32(9, 2)),
        decimal.Decimal("1.25"),
        [0],
    ),
    (
        pa.array([None, decimal.Decimal("-3.0000")], pa.decimal128(18, 4)).cast(
            pa.decimal64(18, 4)
        ),
        decimal.Decimal("-3.0000"),
        [1],
    ),
    (pa.array([datetime.date(2026, 1, day) for day in (1, 2, 3)]), datetime.date(2026, 1, 2), [1]),
    (pa.array([b"abc", b"xyz", None], pa.binary(3)), b"xyz", [1]),
]


@pytest.mark.parametrize(("array", "value", "rows"), BY_VALUE, ids=lambda one: str(one)[:20])
def test_columns_are_compared_as_their_values(array, value, rows):
    table = pa.table({"a": array, "row": range(len(array))})
    store = stored(table)
    for given_ in (pc.field("a") == value, [("a", "==", value)], [("a", "in", [value])]):
        for columns in (["row"], ["a", "row"], None):
            found = blz.read_table(store, columns=columns, filters=given_)
            assert found["row"].to_pylist() == rows
        assert same_table(found, rows_of(table, np.isin(np.arange(len(array)), rows)))


HALF = pa.scalar(np.float16(1.5), pa.float16())


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array(np.array([0, 1.5, 2], "f2")), HALF),
        (pa.array([0, 1.5, 2], pa.float64()), HALF),
        (
            pa.array([decimal.Decimal(text) for text in ("0.5", "1.25", "2")], pa.decimal32(9, 2)),
            pa.scalar(decimal.Decimal("1.25"), pa.decimal32(9, 2)),
        ),
        (pa.array([b"a", b"b", b"c"], pa.binary_view()), pa.scalar(b"b", pa.binary_view())),
        (pa.array([0, 1, 2], pa.time64("ns")), pa.scalar(1, pa.time64("ns"))),
    ],
    ids=lambda one: str(one.type),
)
def test_an_arrow_value_of_any_type_is_compared(array, value):
    store = stored(pa.table({"a": array, "row": range(3)}))
    for operator, operand, rows in (
        ("==", value, [1]),
        (">", value, [2]),
        ("in", [value], [1]),
        ("in", array[1:2], [1]),
    ):
        found = blz.read_table(store, filters=[("a", operator, operand)])
        assert found["row"].to_pylist() == rows


VERBS = {
    "read_blz": lambda store, given_: blz.read_blz(store, filters=given_),
    "read_table": lambda store, given_: blz.read_table(store, filters=given_),
    "to_pandas": lambda store, given_: blz.open(store).to_pandas(filters=given_),
    "to_arrow": lambda store, given_: blz.open(store).to_arrow(filters=given_),
    "to_batches": lambda store, given_: blz.open(store).to_batches(filters=given_),
    "count": lambda store, given_: blz.open(store).count(filters=given_),
    "update": lambda store, given_: blz.open(store, "a").update({"n": 0}, given_),
    "delete": lambda store, given_: blz.open(store, "a").delete(given_),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize(
    ("given_", "error", "words"),
    [
        (pc.field("other") == 1, ColumnNotFoundError, r"no column is named 'other'.*'n'"),
        ([("other", "==", 1)], ColumnNotFoundError, r"no column is named 'other'.*'n'"),
        (pc.field("n") == "text", SchemaError, "the value .text. is text"),
        ([("t", ">", 1)], SchemaError, "the value 1 is a number"),
        (pc.field("n") + 1, SchemaError, "is int64"),
        ([("n", "~", 1)], ValueError, "operator of a filter must be one of"),
        ([], ValueError, "at least one tuple"),
        ([("n", "in", "12")], ValueError, "list of values"),
        (b"n == 1", TypeError, "not bytes"),
        ("n ==", ValueError, "is no condition"),
        (np.ones(100, np.bool_), TypeError, "not ndarray"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_a_filter_that_cannot_be_is_told_before_anything_is_read(verb, given_, error, words):
    store = Recorded(stored(NUMBERS))
    with pytest.raises(error, match=words):
        verb(store, given_)
    assert store.data == []


def test_a_filter_on_a_name_that_is_there_twice_is_told():
    twice = pa.Table.from_arrays([pa.array([1, 2])] * 3, names=["a", "a", "b"])
    store = stored(twice)
    with pytest.raises(SchemaError, match="several columns are named 'a'"):
        blz.read_table(store, filters=[("a", "==", 1)])
    found = blz.read_table(store, filters=[("b", "==", 2)])
    assert same_table(found, twice.slice(1))


def test_a_value_that_cannot_be_evaluated_is_told():
    store = stored(pa.table({"a": [1, 0]}))
    with pytest.raises(SchemaError, match="cannot be evaluated: divide by zero"):
        blz.read_table(store, filters=pc.scalar(4) / pc.field("a") > 1)


NO_NUMBER = pc.scalar(pa.scalar(None, pa.int32()))
TOO_LARGE = pc.field("a").cast("int16") > 0


@pytest.mark.parametrize(
    "never",
    [pc.utf8_length(pc.field("text")) == NO_NUMBER, pc.field("a") + NO_NUMBER > 1],
    ids=["other column", "same column"],
)
def test_a_filter_has_an_answer_where_arrow_leaves_out_a_part_that_fails(never):
    table = pa.table({"a": [1, 70_000] * 20, "text": ["a text wider than a number"] * 40})
    store = stored(table)
    # Arrow evaluates no `and` with one side that is always null.
    expression = pc.Expression._call("and", [never, TOO_LARGE])
    assert not mask_of(table, expression).any()
    with pytest.raises(SchemaError, match="70000 not in range"):
        mask_of(table, TOO_LARGE)
    assert blz.read_table(store, filters=expression).num_rows == 0
    with blz.open(store) as opened:
        assert opened.count(filters=expression) == 0
        assert opened.count(filters=~expression.is_valid()) == 40


def test_the_part_of_a_filter_that_cannot_be_evaluated_is_told():
    store = stored(pa.table({"a": [1, 70_000], "b": [1.5, 2.5]}))
    with pytest.raises(SchemaError, match=r"^\(cast\(a, [^>]*> 0\) cannot be evaluated"):
        blz.read_table(store, filters=(pc.field("b") != 0.0) & TOO_LARGE)


LETTERS = list("abcd")
DAYS = pd.date_range("2026-01-31", periods=60, freq="D", name="day")
INDICES = {
    "default": pd.RangeIndex(60),
    "stepping": pd.RangeIndex(100, 100 - 3 * 60, -3, name="i"),
    "named": pd.Index([f"row {row}" for row in range(60)], name="key"),
    "unnamed": pd.Index(np.arange(60.0)[::-1]),
    "two": pd.MultiIndex.from_product([range(15), LETTERS], names=["number", "letter"]),
    "days": DAYS,
    "zoned": DAYS.tz_localize("Europe/Berlin"),
    "period": pd.period_range("2026-01", periods=60, freq="M", name="month"),
    "category": pd.CategoricalIndex(LETTERS * 15, name="c"),
}


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("rows", [slice(13, 31), slice(5, 6), slice(0, 60), slice(7, 7), [3, 50]])
def test_rows_that_are_left_keep_their_labels(kind, rows):
    frame = pd.DataFrame({"n": np.arange(60), "m": np.arange(60.0)}).set_axis(INDICES[kind])
    frame.attrs = {"source": "till 7"}
    store = RamStore()
    blz.to_blz(frame, store, storage=blz.Storage(row_group_rows=24, page_rows=8))
    chosen = np.arange(60)[rows].tolist()
    for columns in (None, ["m"], []):
        found = blz.read_blz(store, columns=columns, filters=[("n", "in", chosen)])
        wanted = frame.iloc[chosen] if columns is None else frame[columns].iloc[chosen]
        tm.assert_frame_equal(found, wanted, check_freq=False, check_index_type="equiv")
        assert found.attrs == frame.attrs
        if kind in ("days", "zoned"):
            # Raises if the frequency of the index is false.
            pd.DatetimeIndex(wanted.index, freq=found.index.freq)
            assert len(chosen) < 60 or found.index.freqstr == "D"


@pytest.mark.parametrize("filters", [[("n", "<", 0)], [("n", ">", 3), ("n", "<", 3)]], ids=str)
def test_where_a_filter_leaves_nothing_there_are_categories_all_the_same(filters):
    store = RamStore()
    frame = pd.DataFrame({"c": pd.Categorical(LETTERS * 8, ordered=True), "n": list(range(4)) * 8})
    blz.to_blz(frame, store, storage=blz.Storage(page_rows=8))
    found = blz.read_blz(store, filters=filters)
    assert (len(found), found["c"].dtype) == (0, frame["c"].dtype)


@pytest.mark.parametrize(
    ("kind", "given_", "rows"),
    [
        ("named", [("key", "==", "row 7")], [7]),
        ("two", [("letter", "==", "b"), ("number", "<", 3)], [1, 5, 9]),
        ("days", [("day", ">", pd.Timestamp("2026-03-29"))], [58, 59]),
        ("zoned", pc.field("day") == pd.Timestamp("2026-02-01", tz="Europe/Berlin"), [1]),
        ("category", [("c", "==", "d")], list(range(3, 60, 4))),
    ],
)
def test_an_index_is_filtered_by_its_name(kind, given_, rows):
    frame = pd.DataFrame({"n": np.arange(60)}).set_axis(INDICES[kind])
    store = RamStore()
    blz.to_blz(frame, store, storage=blz.Storage(row_group_rows=24, page_rows=8))
    for columns in (None, ["n"]):
        found = blz.read_blz(store, columns=columns, filters=given_)
        tm.assert_frame_equal(found, frame.iloc[rows], check_freq=False)


def test_a_filtered_frame_is_writable():
    store = RamStore()
    frame = pd.DataFrame({"n": np.arange(60), "x": np.arange(60.0), "b": np.arange(60) > 3})
    blz.to_blz(frame, store, storage=blz.Storage(row_group_rows=24, page_rows=8))
    for given_ in ([("n", ">", 50)], [("n", ">=", 0)], [("n", "in", [3, 40])]):
        found = blz.read_blz(store, filters=given_)
        before = found.copy()
        found.iloc[0, 1] = -1.0
        found.loc[found.index[-1], "n"] = 99
        assert found.iloc[0, 1] == -1
        tm.assert_frame_equal(blz.read_blz(store, filters=given_), before)


@pytest.mark.parametrize("given_", [[("n", "<", 7)], [("n", ">=", 0)], [("n", "<", -1)]])
def test_progress_of_a_filtered_read_ends_with_all_rows(given_):
    store = stored(NUMBERS)
    for read in (
        lambda told: blz.read_blz(store, filters=given_, progress=told),
        lambda told: blz.open(store).to_arrow(["t"], filters=given_, progress=told),
        lambda told: blz.open(store).to_arrow([], filters=given_, progress=told),
    ):
        calls = []
        read(lambda done, total, calls=calls: calls.append((done, total)))
        assert calls[-1] == (100, 100)
        assert [total for _, total in calls] == [100] * len(calls)
        assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_what_pandas_says_of_a_table_is_true_of_its_rows_that_are_left():
    store = RamStore()
    blz.to_blz(
        pd.DataFrame({"n": range(60)}, pd.RangeIndex(5, 125, 2)),
        store,
        storage=blz.Storage(row_group_rows=24),
    )
    found = blz.read_table(store, filters=[("n", ">", 50)])
    frame = found.to_pandas()
    assert frame["n"].tolist() == list(range(51, 60))
    assert json.loads(found.schema.metadata[b"pandas"])["columns"]
