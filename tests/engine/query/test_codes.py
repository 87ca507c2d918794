"""Conditions on the codes of encoded parts let pass the rows that conditions on values do."""

import operator
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.query import codes, expressions
from blztable.engine.read.columns import OpenColumns
from blztable.format.records import LENGTHS
from blztable.storage.memory import RamStore
from support import arrow_strategies as types
from support import samples, tamper
from support.bit_equality import bits, same_table
from support.options import arguments
from support.recording_store import Recorded
from support.samples import numbers_table

pytestmark = pytest.mark.usefixtures("own_files")

TABLE = numbers_table(3000, 11)
CUTS = {"row_group_rows": 1700, "page_rows": 512}
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
# These columns have codes of one or two bytes with one base.
CODED = ["near", "price", "product", "day", "unsigned", "cents"]
CODED += [f"{name} or null" for name in CODED]


@cache
def stores():
    plain, encoded = RamStore("plain"), RamStore("encoded")
    blz.to_blz(TABLE, plain, **arguments(encoding="plain", **CUTS))
    blz.to_blz(TABLE, encoded, **arguments(encoding="auto", **CUTS))
    return plain, encoded


@cache
def one_page():
    """Return a table of which each part is one page, so that its codes have one base."""
    store = RamStore("one page")
    blz.to_blz(TABLE, store, **arguments(encoding="auto", **CUTS | {"page_rows": 2048}))
    return store


@pytest.fixture(autouse=True)
def codes_of_any_size(tuned):
    # Otherwise these row groups are too small for codes of two bytes.
    tuned(rows_per_code=1 / 100)


@st.composite
def conditions(draw, name):
    """Draw a condition on one column."""
    field, column = pc.field(name), TABLE[name]
    if draw(st.integers(0, 3)) == 0:
        left, right = draw(conditions(name)), draw(conditions(name))
        return draw(st.sampled_from([left & right, left | right, ~left]))
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "valid", "computed"]))
    rows = st.integers(0, len(column) - 1)
    value = column[draw(rows)]
    compare = draw(st.sampled_from(COMPARISONS))
    match kind:
        case "in":
            values = [column[row].as_py() for row in draw(st.lists(rows, max_size=5))]
            return field.isin(pa.array(values, column.type))
        case "null":
            return field.is_null()
        case "valid":
            return field.is_valid()
        case "computed" if name.split()[0] in ("near", "price", "unsigned"):
            # Some codes that no row has stand for values that cannot be added.
            return compare(field + field, pa.scalar(value.as_py() or 0, column.type))
    return compare(field, value)


def check(data, names):
    plain, encoded = stores()
    condition = data.draw(conditions(data.draw(st.sampled_from(names))))
    if data.draw(st.booleans()):
        condition &= data.draw(conditions(data.draw(st.sampled_from(names))))
    start, stop = sorted(data.draw(st.tuples(*2 * [st.integers(0, len(TABLE))])))
    with blz.open(plain) as one, blz.open(encoded) as other:
        try:
            expected = one.to_arrow(filters=condition)
        except blz.SchemaError:
            with pytest.raises(blz.SchemaError):
                other.to_arrow(filters=condition)
            return
        assert same_table(other.to_arrow(filters=condition), expected)
        assert other.count(filters=condition) == len(expected)
        batches = other.to_batches(columns=["near"], filters=condition, batch_rows=stop - start + 1)
        assert sum(map(len, batches)) == len(expected)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_filter_on_codes_is_the_filter_on_values(data):
    check(data, TABLE.column_names)


@pytest.mark.storm
@pytest.mark.timeout(4 * 3600)
@settings(max_examples=50_000, deadline=None)
@given(st.data())
def test_fifty_thousand_filters_on_codes_are_the_filters_on_values(data):
    check(data, TABLE.column_names)


@pytest.mark.parametrize("name", CODED)
def test_a_condition_on_one_column_decodes_no_rows(name, monkeypatch):
    store, looked = one_page(), []
    real = expressions.mask
    monkeypatch.setattr(expressions, "mask", lambda *args: looked.append(args[2]) or real(*args))
    monkeypatch.setattr(OpenColumns, "columns", lambda *_: pytest.fail("rows are decoded"))
    value = TABLE[name][16]
    with blz.open(store) as table:
        found = table.count(filters=pc.field(name) <= value)
    assert found == pc.sum(pc.less_equal(TABLE[name], value)).as_py()
    # The values of all codes and a null, once in each row group in which rows may match.
    assert set(looked) <= {257, 65_537}
    assert 1 <= len(looked) <= 2


@pytest.mark.parametrize("type_", ["int8", "uint16", "int32", "int64"])
@pytest.mark.parametrize("encoding", ["auto", "plain"])
def test_a_condition_on_a_dictionary_looks_at_each_value_once(type_, encoding, monkeypatch):
    words = pa.array([*["b", None, "a", "c", "a"] * 200, None])
    column = words.dictionary_encode().cast(pa.dictionary(getattr(pa, type_)(), pa.string()))
    store, looked = RamStore(), []
    blz.to_blz(
        {"word": column},
        store,
        storage=blz.Storage(encoding=encoding, row_group_rows=600, page_rows=128),
    )
    real = expressions.mask
    monkeypatch.setattr(expressions, "mask", lambda *args: looked.append(args[2]) or real(*args))
    with blz.open(store) as table:
        for condition, rows in (
            (pc.field("word") == "a", 400),
            (pc.field("word") != "a", 400),
            (pc.field("word") > "a", 400),
            (pc.field("word").isin(["a", "c"]), 600),
            (pc.field("word").is_null(), 201),
            (pc.field("word") < "a", 0),
        ):
            found = table.to_arrow(filters=condition)["word"].cast("string")
            expected = pa.table({"word": words}).filter(condition)["word"]
            assert found.to_pylist() == expected.to_pylist()
            assert len(found) == rows
    # Three values and a null in each row group, unless statistics decide.
    assert set(looked) == {4}


def test_a_condition_on_text_of_few_items_looks_at_each_item_once(monkeypatch):
    store, looked = stores()[1], []
    real = expressions.mask
    monkeypatch.setattr(expressions, "mask", lambda *args: looked.append(args[2]) or real(*args))
    monkeypatch.setattr(OpenColumns, "columns", lambda *_: pytest.fail("rows are decoded"))
    with blz.open(store) as table:
        for name in ("mode", "mode or null"):
            for condition in (
                pc.field(name) == TABLE[name][0],
                pc.field(name) > TABLE[name][0],
                pc.field(name).is_null(),
            ):
                found = table.count(filters=condition)
                assert found == len(TABLE.filter(condition))
    items = len(TABLE["mode"].unique())
    # An item for null rows, and a null.
    assert set(looked) <= {items + 1, items + 2}
    assert looked


def test_a_code_outside_of_the_dictionary_is_refused_by_a_filter(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"word": pa.array(["a", "b"] * 50).dictionary_encode()}, path)
    with tamper.editing(path) as table:
        codes = table.part().streams[LENGTHS]
        data = codes.data()
        data[99] = 2
        codes.set_data(data)
    with blz.open(path) as table:
        for condition in (pc.field("word") == "b", pc.field("word") != "b"):
            with pytest.raises(blz.CorruptError, match=r"t\.blz.*codes: one numbers no item"):
                table.count(filters=condition)


@pytest.mark.parametrize("name", ["near", "price or null", "word", "word or null", "mode"])
def test_a_column_of_the_filter_and_of_the_result_is_read_once(name):
    store = Recorded(stores()[1])
    with blz.open(store) as table:
        plan = table.explain([name], filters=pc.field(name) != TABLE[name][16])
        with store.recording():
            found = table.to_arrow([name], filters=pc.field(name) != TABLE[name][16])
    assert same_table(found, TABLE.select([name]).filter(pc.field(name) != TABLE[name][16]))
    taken = sum(length for key, _, length in store.reads if key.startswith("data/"))
    assert 0 < taken <= plan.nbytes


def test_small_row_groups_do_not_look_at_the_values_of_all_codes(tuned, monkeypatch):
    tuned(rows_per_code=4)
    read = []
    real = OpenColumns.codes

    def noted(*args):
        found = real(*args)
        if found is not None:
            read.append(args)
        return found

    monkeypatch.setattr(OpenColumns, "codes", noted)
    for rows, calls in ((1023, 0), (1024, 1)):
        store = RamStore()
        blz.to_blz(
            {"n": np.arange(rows) % 200},
            store,
            storage=blz.Storage(encoding="auto", row_group_rows=rows),
        )
        with blz.open(store) as table:
            assert table.count(filters=[("n", "<", 100)]) == (np.arange(rows) % 200 < 100).sum()
        assert len(read) == calls


@pytest.mark.parametrize("type_", types.PLAIN, ids=str)
def test_rows_of_every_type_come_back_from_codes(type_):
    column = pa.concat_arrays([samples.array(type_)] * 40)
    there = bits(column)
    store = RamStore()
    blz.to_blz(pa.table({"a": column, "i": range(len(column))}), store)
    rows, is_there = np.arange(len(there)), np.array([value is not None for value in there])
    for condition, passing in (
        (pc.field("a").is_valid(), is_there),
        (pc.field("a").is_null(), ~is_there),
        (
            pc.field("a").is_valid() & (pc.field("i") >= 100),
            is_there & (rows > 99),
        ),
        (pc.field("a").is_null() | pc.field("a").is_valid(), rows >= 0),
    ):
        found = blz.read_table(store, filters=condition)
        assert found["i"].to_pylist() == rows[passing].tolist()
        assert bits(found["a"]) == [there[row] for row in rows[passing]]


@given(st.data())
def test_codes_pass_by_ranges_as_by_a_table(data):
    size = data.draw(st.sampled_from([1, 2, 5, 256]))
    dtype = data.draw(st.sampled_from(["u1", "u2"]))
    passing = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    if data.draw(st.booleans()):
        low, high = sorted(data.draw(st.tuples(*2 * [st.integers(0, size)])))
        passing[:] = data.draw(st.booleans())
        passing[low:high] ^= True
    drawn = np.array(data.draw(st.lists(st.integers(0, size - 1))), dtype)
    assert (codes.lookup(passing, drawn) == passing[drawn]).all()
