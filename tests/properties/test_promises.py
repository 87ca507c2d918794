"""Promises: a schema that says not null where the data have nulls all the same.

Arrow does not check the flag, so both come back as they were given. All answers go by the nulls.
"""

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support import nested_arrays, samples
from support.bit_equality import bits
from support.options import arguments

INT, TEXT, FLOAT = pa.int64(), pa.string(), pa.float64()
POINT = pa.struct([pa.field("x", INT, nullable=False)])
CODES = pa.dictionary(pa.int8(), TEXT)
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        *(
            pa.field(name, type_, nullable=False, metadata={"promise": "none"})
            for name, type_ in {"n": INT, "f": FLOAT, "s": TEXT, "d": CODES, "p": POINT}.items()
        ),
    ]
)
COLUMNS = SCHEMA.names[1:]
SIZES = [{"page_rows": 8, "row_group_rows": 16}, {"encoding": "plain", "page_rows": 8}, {}]
SIZED = pytest.mark.parametrize("options", SIZES, ids=["small", "plain", "usual"])


def lying(rows: int, first: int = 0) -> pa.Table:
    """Return rows of which every third is null, whatever the schema says."""
    keys = range(first, first + rows)

    def some(make):
        return [None if key % 3 == 1 else make(key) for key in keys]

    values = [
        pa.array(keys, INT),
        pa.array(some(int), INT),
        pa.array(some(lambda key: float("nan") if key % 2 else key / 2), FLOAT),
        pa.array(some(str), TEXT),
        pa.array(some(lambda key: str(key % 4)), TEXT).dictionary_encode().cast(CODES),
        pa.array(some(lambda key: {"x": None if key % 2 else key}), POINT),
    ]
    return pa.Table.from_arrays(values, schema=SCHEMA)


def table(data, **options) -> blz.CTable:
    store = RamStore()
    blz.to_blz(data, store, **arguments(durability="process", **options))
    return blz.open(store, "a", durability="process")


def assert_holds(t: blz.CTable, expected: pa.Table) -> None:
    found = t.to_arrow()
    assert found.schema.equals(expected.schema, check_metadata=True)
    # Text, because a NaN is not equal to itself.
    assert str(found.to_pylist()) == str(expected.to_pylist())
    assert t.verify().is_intact


@SIZED
def test_nulls_and_the_flag_come_back_through_every_verb(options):
    first, more = lying(20), lying(20, 20)
    t = table(first, **options)
    assert_holds(t, first)
    t.append(more.to_reader(7))
    with t.transaction() as tx:
        tx.append(more.slice(0, 0))
        tx.delete(pc.field("k") >= 38)
    whole = pa.concat_tables([first, more])[:38]
    assert_holds(t, whole)
    version = t.version
    t.update({"s": "new"}, where=pc.field("n").is_null())
    texts = pc.if_else(whole["n"].is_null(), "new", whole["s"])
    assert_holds(t, whole.set_column(3, SCHEMA.field("s"), texts))
    t.delete(pc.field("k") < 2)
    t.compact()
    assert t["n"][:].null_count == whole[2:]["n"].null_count
    t.restore(version)
    t.vacuum()
    assert_holds(t, whole)
    assert t.take([1, 37, 1]).to_pydict()["s"] == [None, None, None]
    assert t["p"][4:6].to_pylist() == [None, {"x": None}]


@SIZED
@pytest.mark.parametrize("name", COLUMNS)
def test_a_filter_goes_by_the_nulls(name, options):
    rows = lying(40)
    t, one = table(rows, **options), pc.field(name)
    for condition in (one.is_null(), one.is_valid(), ~one.is_null(), one.is_null() | (one == one)):
        if name == "p" and "==" in str(condition):
            continue
        assert t.to_arrow(["k"], filters=condition) == rows.filter(condition).select(["k"])
        assert t.count(filters=condition) == rows.filter(condition).num_rows
    if name not in ("p", "d"):
        value = rows[name][6]
        for condition in (one > value, ~(one > value), one != value):
            assert t.to_arrow(["k"], filters=condition) == rows.filter(condition).select(["k"])
    assert t.to_arrow(["k"], filters=pc.field("p", "x").is_null()).num_rows == 26


@SIZED
def test_engines_see_the_nulls(options):
    rows = lying(40)
    t = table(rows, **options)
    stored, plain = t.dataset(), rows  # noqa: F841
    assert stored.schema == SCHEMA
    for query in (
        "select count(*), count(n), count(f), count(s), count(d), count(p), sum(n) from {}",
        "select k from {} where n is null order by k",
        "select k from {} where s <> '3' order by k",
        "select d, count(*), min(n) from {} where n is not null or k > 30 group by d order by d",
        "select coalesce(n, -1) from {} order by k",
    ):
        assert duckdb.sql(query.format("stored")).fetchall() == (
            duckdb.sql(query.format("plain")).fetchall()
        )
    pd.testing.assert_frame_equal(t.to_pandas(), rows.to_pandas().astype({"s": "str"}))
    assert t.to_pandas(dtype_backend="pyarrow")["n"].isna().sum() == 13


@SIZED
def test_a_promise_of_the_user_is_kept(options):
    # Their own schema allows nulls, or they have none: the table's promise holds.
    t = table(lying(20), **options)
    open_ = pa.schema([field.with_nullable(True) for field in SCHEMA])
    refused = pa.Table.from_arrays(lying(20, 20).columns, schema=open_)
    words = "missing values cannot be appended.*the first is in row 2"
    with pytest.raises(blz.SchemaError, match=words):
        t.append(refused)
    with pytest.raises(blz.SchemaError, match="cannot be appended"):
        t.append(refused.to_pandas())
    with pytest.raises(blz.SchemaError, match="cannot be appended"):
        t.append(refused.to_pylist())
    with pytest.raises(blz.SchemaError, match="missing, not nullable"):
        t.append({"k": [1]})
    with pytest.raises(blz.SchemaError, match="missing values cannot be stored"):
        t.update({"n": None})
    with pytest.raises(blz.SchemaError, match="missing values cannot be stored"):
        t.update({"n": pc.field("n") + 1})
    with (
        pytest.raises(blz.SchemaError, match="missing values"),
        t.transaction() as tx,
        tx.appender() as a,
    ):
        a["n"].append([1, None])
    assert_holds(t, lying(20))
    t.append(refused.filter(pc.field("n").is_valid() & pc.field("d").is_valid()))
    assert len(t) == 34


def test_the_flag_of_a_table_that_is_new_holds_for_the_stream():
    t = table(lying(40).to_reader(6), page_rows=8)
    assert_holds(t, lying(40))
    blz.to_blz(lying(9), t._snapshot.version.store, mode="w", durability="process")
    t = blz.open(t._snapshot.version.store, "a")
    t.append(iter([lying(3, 9), lying(3, 12)]), evolve=True)
    assert_holds(t, lying(15))


@pytest.mark.parametrize("kind", [*samples.DICTIONARIES, *nested_arrays.ALL.values()], ids=str)
def test_a_column_of_any_type_keeps_both(kind):
    schema = pa.schema([pa.field("x", kind, nullable=False)])
    is_flat = kind in samples.DICTIONARIES
    array = samples.array if is_flat else nested_arrays.array_of
    more = () if is_flat else (7,)
    rows = pa.Table.from_arrays([array(kind, 40, *more)], schema=schema)
    t = table(rows, page_rows=8, row_group_rows=16)
    t.append(rows)
    t.compact()
    found = t.to_arrow()
    assert found.schema == schema
    assert bits(found["x"]) == bits(rows["x"]) * 2


HIDDEN = {
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([1, None])),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 0, 1, 0], pa.int8()),
        [pa.array([1, 2, None, 4]), pa.array([None, None, None, "a"])],
    ),
    "dense": pa.UnionArray.from_dense(
        pa.array([1, 0, 1, 0], pa.int8()),
        pa.array([0, 1, 1, 1], pa.int32()),
        [pa.array([None, 2]), pa.array(["a", None])],
    ),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 0]), pa.array(["a", None])),
    "coded": pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 0]), pa.array([["a"], None])),
}


@pytest.mark.parametrize("kind", HIDDEN)
@SIZED
def test_nulls_among_values_keep_a_column_from_being_not_null(kind, options):
    values = HIDDEN[kind]
    assert values.null_count == 0
    t = table(pa.table({"k": range(8), "x": pa.chunked_array([values[:1], values, values[:3]])}))
    with pytest.raises(blz.SchemaError, match="column 'x': row 3 is null") as refusal:
        t.alter_column("x", nullable=False)
    assert "update({'x': ...}, where=pc.field('x').is_null())" in str(refusal.value)
    t.update({"x": values[0]}, where=pc.field("x").is_null())
    t.alter_column("x", nullable=False)
    assert not t.schema.field("x").nullable
    with pytest.raises(blz.SchemaError, match=r"missing values cannot be appended.* row 2"):
        t.append(pa.table({"k": range(4), "x": values}))
    with pytest.raises(blz.SchemaError, match="missing values cannot be stored"):
        t.update({"x": values[2]})
    t.append(pa.table({"k": range(2), "x": values[:2]}))
    assert t["x"][:].null_count == 0
    assert np.asarray(pc.is_null(t["x"][:])).sum() == 0
