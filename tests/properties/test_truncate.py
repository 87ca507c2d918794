"""Columns of which some digits are kept: through every verb, beside a model in exact fractions."""

import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.memory import RamStore
from support.options import arguments

KEPT = {"f2": 2, "f4": 3, "f8": 4}
TYPES = {"f2": pa.float16(), "f4": pa.float32(), "f8": pa.float64()}
VERBS = ["append", "stream", "appender", "update", "expression", "delete", "sort", "compact"]


def rounded(value, digits, dtype):
    """Return a number rounded to a multiple of its step, in exact fractions."""
    if value is None or value != value:
        return value
    info = np.finfo(dtype)
    exact = Fraction(float(value)) if np.isfinite(value) else None
    if exact is None or abs(exact) < Fraction(float(info.tiny)):
        return value
    power = Fraction(2) ** (np.frexp(np.float64(value))[1].item() - 1)
    # One unit of the last digit of the power of two, and the greatest power of two below it.
    last = Fraction(Decimal(1).scaleb(exponent_of(power) - digits + 1))
    step = Fraction(2) ** (math.frexp(float(last))[1] - 1)
    step = max(step, power / 2**info.nmant)
    result = round(exact / step) * step
    return value if abs(result) > Fraction(float(info.max)) else float(result)


def exponent_of(number):
    """Return the power of ten at the first digit of a number."""
    return (Decimal(number.numerator) / Decimal(number.denominator)).adjusted()


@st.composite
def tables(draw):
    """Draw rows with nulls, NaN, infinities and zeros of either sign in columns of floats."""
    rows = draw(st.integers(0, 12))
    data = {"key": pa.array(np.arange(rows) % 3)}
    for name, type_ in TYPES.items():
        width = type_.bit_width
        numbers = st.one_of(
            st.none(),
            st.floats(width=width),
            st.floats(-1000, 1000, width=width),
            st.integers(-2000, 2000).map(lambda number: number / 4),
        )
        values = draw(st.lists(numbers, min_size=rows, max_size=rows))
        values = [None if value is None else np.dtype(name).type(value) for value in values]
        data[name] = pa.array(values, type_)
    return pa.table(data)


def digits_of(opened):
    """Return the digits that an open table keeps, by name."""
    columns = opened.storage.columns or {}
    return {name: own.digits for name, own in columns.items() if own.digits is not None}


def with_digits(table):
    """Return Arrow data with each float rounded by the model."""
    for index, name in enumerate(table.column_names):
        if name in KEPT:
            values = [rounded(value, KEPT[name], name) for value in table[name].to_pylist()]
            values = [None if value is None else np.dtype(name).type(value) for value in values]
            table = table.set_column(index, name, pa.array(values, TYPES[name]))
    return table


def changed(draw, verb, table, model):
    """Make a change to the table; return the model with the same change."""
    hit = pc.equal(model["key"], 1)
    if verb in ("append", "stream", "appender"):
        more = draw(tables())
        if verb == "append":
            table.append(more)
        elif verb == "stream":
            table.append(iter([more.slice(0, 3), more.slice(3)]))
        else:
            with table.transaction() as tx, tx.appender() as columns:
                for name in more.column_names:
                    columns[name].append(more[name])
        return pa.concat_tables([model, with_digits(more)])
    if verb == "update":
        table.update({"f8": 1.23456789}, where=[("key", "==", 1)])
        new = pc.if_else(hit, 1.23456789, model["f8"])
        return with_digits(model.set_column(3, "f8", new))
    if verb == "expression":
        table.update({"f8": pc.field("f8") / 3.0}, where=[("key", "==", 1)])
        new = pc.if_else(hit, pc.divide(model["f8"], 3.0), model["f8"])
        return with_digits(model.set_column(3, "f8", new))
    if verb == "delete":
        table.delete([("key", "==", 1)])
        return model.filter(pc.invert(hit))
    if verb == "compact":
        table.compact(sort_by=())
    elif verb == "sort":
        table.compact(sort_by=["f8", "key"])
        order = pc.sort_indices(model, [("f8", "ascending"), ("key", "ascending")])
        return model.take(order)
    return model


def text(table):
    """Return the rows as text, in which NaN equals NaN and zeros have signs."""
    return [str(row) for row in table.to_pylist()]


@settings(deadline=None, max_examples=40)
@given(
    tables(),
    st.lists(st.sampled_from(VERBS), max_size=5),
    st.sampled_from([{}, {"encoding": "plain"}, {"row_group_rows": 5}, {"page_rows": 8}]),
    st.data(),
)
def test_every_verb_keeps_as_many_digits(table, verbs, options, data):
    store, model = RamStore(), with_digits(table)
    blz.to_blz(table, store, **arguments(truncate=KEPT, **options))
    with blz.open(store, "a") as opened:
        for verb in verbs:
            model = changed(data.draw, verb, opened, model)
        assert text(opened.to_arrow()) == text(model)
        assert digits_of(opened) == KEPT
        above = pc.sum(pc.greater(model["f8"], 1)).as_py() or 0
        assert opened.count(filters=[("f8", ">", 1)]) == above
        assert opened.verify()


@settings(deadline=None, max_examples=20)
@given(tables(), st.sampled_from([None, False]))
def test_frames_have_the_missing_values_that_they_have_without(table, nan_as_null):
    frame = table.select(["f4", "f8"]).to_pandas()
    whole, store = RamStore(), RamStore()
    blz.to_blz(frame, whole, storage=blz.Storage(nan_as_null=nan_as_null))
    blz.to_blz(
        frame,
        store,
        storage=blz.Storage(
            nan_as_null=nan_as_null,
            columns={"f4": blz.Storage(digits=3), "f8": blz.Storage(digits=4)},
        ),
    )
    assert text(blz.read_table(store)) == text(with_digits(blz.read_table(whole)))
    assert blz.read_blz(store).dtypes.equals(frame.dtypes)


@settings(deadline=None, max_examples=20)
@given(tables(), st.booleans())
def test_rows_are_sorted_by_the_digits_that_are_kept(table, is_stream):
    store = RamStore()
    data = iter([table, table.slice(1)]) if is_stream else table
    blz.to_blz(data, store, **arguments(truncate=KEPT, sort_by=["f4", "key"]))
    found = blz.read_table(store)
    order = pc.sort_indices(found, [("f4", "ascending"), ("key", "ascending")])
    assert text(found) == text(found.take(order))


def test_rows_with_equal_digits_are_sorted_by_the_next_column():
    store = RamStore()
    data = {"a": [1.50001, 1.50002, 1.50003], "key": [3, 2, 1]}
    blz.to_blz(
        data, store, storage=blz.Storage(columns={"a": blz.Storage(digits=3)}), sort_by=["a", "key"]
    )
    assert blz.read_table(store).to_pydict() == {"a": [1.5] * 3, "key": [1, 2, 3]}


def test_other_columns_keep_all_digits():
    store = RamStore()
    blz.to_blz(
        {"a": [1 / 3], "b": [1 / 3]},
        store,
        storage=blz.Storage(columns={"a": blz.Storage(digits=3)}),
    )
    with blz.open(store) as table:
        assert table.to_arrow().to_pylist() == [{"a": 341 / 1024, "b": 1 / 3}]
        assert (table["a"].digits, table["b"].digits) == (3, None)
        assert "double, 3 digits kept, 1 rows" in repr(table["a"])
        assert table.schema.field("a").metadata == {b"blz:truncate": b"3"}
        assert digits_of(table[["b"]]) == {}


def test_a_renamed_or_restored_column_keeps_as_many_digits():
    store = RamStore()
    blz.to_blz({"a": [1.5]}, store, storage=blz.Storage(columns={"a": blz.Storage(digits=3)}))
    with blz.open(store, "a") as table:
        table.rename_columns({"a": "b"})
        table.append({"b": [1 / 3]})
        table.restore(2)
        table.append({"b": [2 / 3]})
        assert table["b"][:].to_pylist() == [1.5, 683 / 1024]
        table.resize(3)
        assert table["b"][:].to_pylist() == [1.5, 683 / 1024, None]


def test_a_new_column_may_keep_fewer_digits():
    store = RamStore()
    blz.to_blz({"a": [1 / 3]}, store)
    with blz.open(store, "a") as table:
        table.add_column("b", [1 / 3], default=2 / 3, storage=blz.Storage(digits=3))
        table.add_column("c", pc.field("a") * 2, storage=blz.Storage(digits=1))
        with table.transaction() as tx:
            tx.add_column("d", 1 / 3, storage=blz.Storage(digits=2))
        table.append({"a": [1 / 3]})
        assert digits_of(table) == {"b": 3, "c": 1, "d": 2}
        assert table.to_arrow().to_pylist() == [
            {"a": 1 / 3, "b": 341 / 1024, "c": 11 / 16, "d": 43 / 128},
            {"a": 1 / 3, "b": 683 / 1024, "c": None, "d": None},
        ]
        with pytest.raises(blz.SchemaError, match="column 'e': only digits of floats"):
            table.add_column("e", [1, 2], storage=blz.Storage(digits=3))


def test_a_column_that_becomes_wider_keeps_as_many_digits():
    store = RamStore()
    blz.to_blz(
        {"a": np.array([1 / 3], "f4")},
        store,
        storage=blz.Storage(columns={"a": blz.Storage(digits=3)}),
    )
    with blz.open(store, "a") as table:
        table.append({"a": np.array([1 / 3])}, evolve=True)
        assert table.schema.types == [pa.float64()]
        assert table["a"][:].to_pylist() == [341 / 1024] * 2


def test_an_empty_table_has_the_setting():
    with blz.create(
        RamStore(),
        {"a": pa.float32()},
        storage=blz.Storage(columns={"a": blz.Storage(digits=np.int64(2))}),
    ) as table:
        table.append({"a": np.array([1 / 3], "f4")})
        assert table["a"][:].to_pylist() == [43 / 128]


def test_a_table_made_of_the_arrow_data_of_another_has_its_setting():
    store, copy = RamStore(), RamStore()
    blz.to_blz({"a": [1 / 3]}, store, storage=blz.Storage(columns={"a": blz.Storage(digits=3)}))
    blz.to_blz(blz.read_table(store), copy)
    with blz.open(copy) as table:
        assert digits_of(table) == {"a": 3}


@pytest.mark.parametrize("text", [b"", b"x", b"0", b"18", b"-1", b"003", b"1_0", "\u0663".encode()])
def test_foreign_metadata_that_are_no_number_of_digits_mean_nothing(text):
    store = RamStore()
    field = pa.field("a", pa.float64(), metadata={b"blz:truncate": text})
    table = pa.table([pa.array([1 / 3])], schema=pa.schema([field]))
    blz.to_blz(table, store)
    assert blz.read_table(store).equals(table, check_metadata=True)
    with blz.open(store) as opened:
        assert digits_of(opened) == {}


def test_an_append_cannot_change_the_setting():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.blz"
        blz.to_blz(
            {"a": [1 / 3]},
            path,
            mode="a",
            storage=blz.Storage(columns={"a": blz.Storage(digits=3)}),
        )
        blz.to_blz(
            {"a": [1 / 3]},
            path,
            mode="a",
            storage=blz.Storage(columns={"a": blz.Storage(digits=3)}),
        )
        blz.to_blz({"a": [1 / 3]}, path, mode="a")
        with pytest.raises(blz.SchemaError, match="column 'a': digits is 2, but the table keeps 3"):
            blz.to_blz(
                {"a": [1 / 3]},
                path,
                mode="a",
                storage=blz.Storage(columns={"a": blz.Storage(digits=2)}),
            )
        assert blz.read_table(path)["a"].to_pylist() == [341 / 1024] * 3
        pd.DataFrame({"a": [1 / 3]}).to_blz(
            path, storage=blz.Storage(columns={"a": blz.Storage(digits=2)})
        )
        assert blz.read_table(path)["a"].to_pylist() == [43 / 128]


@pytest.mark.parametrize(
    ("truncate", "error", "message"),
    [
        ({"a": 0}, ValueError, "from 1 to 17.*not 0"),
        ({"a": 18}, ValueError, "not 18"),
        ({"a": True}, ValueError, "not True"),
        ({"a": 2.5}, ValueError, "not 2.5"),
        (
            {"n": 2},
            blz.SchemaError,
            "column 'n': only digits of floats are left out, not of int64; cast the column to",
        ),
        ({"z": 2}, blz.ColumnNotFoundError, "no column is named 'z'"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(truncate, error, message):
    store = RamStore()
    with pytest.raises(error, match=message):
        blz.to_blz({"a": [1.5], "n": [1]}, store, **arguments(truncate=truncate))
    with pytest.raises(error, match=message):
        blz.create(store, {"a": pa.float64(), "n": pa.int64()}, **arguments(truncate=truncate))
    with pytest.raises(blz.TableNotFoundError):
        blz.open(store)


def test_a_truncated_column_takes_fewer_bytes():
    numbers = np.random.default_rng(0).normal(100, 15, 100_000)
    sizes = {}
    for digits in (None, 7, 5, 3):
        store = RamStore()
        blz.to_blz({"a": numbers}, store, **arguments(truncate=digits and {"a": digits}))
        with blz.open(store) as table:
            sizes[digits] = table.cbytes
    assert sizes[7] < sizes[None] / 2
    assert sizes[5] < sizes[None] / 3
    assert sizes[3] < sizes[None] / 4
