"""Missing values of frames: through every verb beside pandas, and in SQL beside the frame."""

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.memory import RamStore
from support.options import arguments

FLOATS = ["f2", "f4", "f8"]
OPTIONS = st.fixed_dictionaries(
    {
        "encoding": st.sampled_from(["auto", "plain"]),
        "row_group_rows": st.sampled_from([5, 64]),
        "page_rows": st.sampled_from([8, 16]),
    }
)
# Returns decimals, few values, or any numbers.
KINDS = {
    "decimals": lambda rng, rows: rng.integers(-300, 300, rows) / 4,
    "few": lambda rng, rows: rng.choice([0.0, -0.0, 1.5, np.inf], rows),
    "any": lambda rng, rows: rng.normal(size=rows) * 10.0 ** rng.integers(-4, 4, rows),
}


@st.composite
def frames(draw, rows=None, dtypes=FLOATS):
    """Draw a frame with a key and columns of floats, of which some rows are missing."""
    rows = draw(st.integers(0, 24)) if rows is None else rows
    # Numbers drawn one by one would be too many for hypothesis.
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    data = {"key": np.arange(rows) % 3}
    for dtype in dtypes:
        column = KINDS[draw(st.sampled_from(sorted(KINDS)))](rng, rows).astype(dtype)
        column[rng.random(rows) < draw(st.sampled_from([0.0, 0.2, 1.0]))] = np.nan
        data[dtype] = column
    return pd.DataFrame(data)


VERBS = ["append", "update", "update with nan", "delete", "compact", "sort", "drop", "add", "merge"]


def changed(draw, verb, table, model):
    """Make a change to the table, and return the model with the same change."""
    pick = draw(st.integers(0, 2))
    rows = model["key"] == pick
    if verb == "append":
        more = draw(frames())
        if "new" in model:
            more["new"] = more["f8"] * 2
        if "f4" not in model:
            more = more.drop(columns="f4")
        more = more[list(model.columns)]
        table.append(more)
        return pd.concat([model, more], ignore_index=True) if len(more) else model
    if verb == "update":
        values = draw(frames(int(rows.sum()), ["f8"]))["f8"]
        table.update({"f8": values}, where=[("key", "==", pick)])
        return model.assign(f8=model["f8"].mask(rows, pd.Series(values.array, model.index[rows])))
    if verb == "update with nan":
        table.update({"f8": np.nan}, where=pc.field("f8") > 0)
        return model.assign(f8=model["f8"].mask(model["f8"] > 0))
    if verb == "delete":
        table.delete(pc.field("f8").is_null() & (pc.field("key") == pick))
        return model[~(model["f8"].isna() & rows)].reset_index(drop=True)
    if verb == "compact":
        table.compact()
    elif verb == "merge":
        with table.transaction() as tx:
            tx.append(model.iloc[:1])
            tx.resize(len(model))
    elif verb == "sort" and len(model):
        table.compact(sort_by="f8")
        return model.sort_values("f8", kind="stable", ignore_index=True)
    elif verb == "drop" and "f4" in model:
        table.drop_columns(["f4"])
        return model.drop(columns="f4")
    elif verb == "add" and "new" not in model:
        table.add_column("new", model["f8"] * 2)
        return model.assign(new=model["f8"] * 2)
    return model


def check(table, model):
    """Compare every way to see missing values with the model."""
    pd.testing.assert_frame_equal(table.to_pandas(), model, check_exact=True)
    counted = model.isna().sum().to_dict()
    arrow = table.to_arrow()
    assert {name: arrow[name].null_count for name in arrow.column_names} == counted
    for name in set(model.columns) - {"key"}:
        assert not pc.any(pc.is_nan(arrow[name])).as_py(), name
        assert table.count(filters=pc.field(name).is_null()) == counted[name]
    for backend in ("pyarrow", "numpy_nullable"):
        assert table.to_pandas(dtype_backend=backend).isna().sum().to_dict() == counted
    above = model[model["f8"] > 1]
    pd.testing.assert_frame_equal(table.to_pandas(filters=[("f8", ">", 1)]), above)
    assert (
        table.count(filters=[("f8", "!=", 1)]) == (model["f8"].notna() & (model["f8"] != 1)).sum()
    )
    assert table.verify()


@settings(deadline=None, max_examples=10)
@given(frames(), OPTIONS, st.lists(st.sampled_from(VERBS), max_size=4), st.data())
def test_missing_values_stay_missing_through_every_verb(frame, options, verbs, data):
    store, model = RamStore(), frame
    blz.to_blz(frame, store, **arguments(**options))
    with blz.open(store, "a") as table:
        check(table, model)
        for verb in verbs:
            model = changed(data.draw, verb, table, model)
            check(table, model)


@settings(deadline=None, max_examples=12)
@given(frames(dtypes=["f4", "f8"]), OPTIONS)
def test_sql_over_a_table_answers_what_it_answers_over_the_frame(frame, options):
    store = RamStore()
    blz.to_blz(frame.replace([np.inf, -np.inf], 1e3), store, **arguments(**options))
    with blz.open(store) as table, duckdb.connect() as engine:
        engine.register("stored", table.dataset())
        engine.register("frame", frame.replace([np.inf, -np.inf], 1e3))
        for query in (
            "select count(*), count(f4), count(f8), min(f8), max(f8), sum(f8), avg(f4) from {}",
            "select key, count(f8), sum(f8), max(f4) from {} group by key order by key",
            "select key from {} where f8 is null order by key",
            "select key, f8 from {} where f8 <> 1 order by all",
            "select f8 from {} order by f8 desc nulls last",
            "select f8, count(*) from {} group by f8 order by f8",
        ):
            found, wanted = (engine.sql(query.format(of)).fetchall() for of in ("stored", "frame"))
            assert found == wanted, query


def test_polars_counts_them():
    frame = pd.DataFrame({"x": [1.5, np.nan, 2.5]})
    store = RamStore()
    blz.to_blz(frame, store)
    with blz.open(store) as table:
        assert pl.DataFrame(table)["x"].null_count() == 1
        lazy = pl.scan_pyarrow_dataset(table.dataset())
        assert lazy.select(pl.col("x").mean()).collect().item() == 2.0


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(st.booleans(), frames(dtypes=["f8"])), min_size=1, max_size=4), OPTIONS)
def test_frames_and_arrow_data_stay_as_they_came(parts, options):
    store, wanted = RamStore(), []
    blz.to_blz(frames_of_none(), store, **arguments(**options))
    with blz.open(store, "a") as table:
        for is_arrow, frame in parts:
            array = pa.array(frame["f8"].to_numpy())
            table.append(pa.table({"key": frame["key"], "f8": array}) if is_arrow else frame)
            values = array.to_pylist()
            wanted += values if is_arrow else [None if one != one else one for one in values]
        assert str(table["f8"][:].to_pylist()) == str(wanted)
        rows = np.arange(len(wanted))[::-2]
        assert str(table.take(rows)["f8"].to_pylist()) == str([wanted[row] for row in rows])
        table.compact()
        assert str(table["f8"][:].to_pylist()) == str(wanted)
        assert table.verify()


def frames_of_none():
    return pd.DataFrame({"key": np.zeros(0, "i8"), "f8": np.zeros(0)})


@pytest.mark.parametrize("keep", [None, True, False])
def test_a_table_remembers_what_nan_is(keep):
    frame, store = pd.DataFrame({"x": [1.5, np.nan]}), RamStore()
    nan = "nan" if keep is False else "None"
    blz.to_blz(frame, store, storage=blz.Storage(nan_as_null=keep))
    blz.to_blz(frame, store, mode="a")
    with blz.open(store, "a") as table:
        table.append(frame)
        table.append({"x": np.array([1.5, np.nan])})
        with table.transaction() as tx, tx.appender() as columns:
            columns["x"].append([1.5, np.nan])
        assert str(table["x"][:].to_pylist()) == f"[{', '.join(['1.5', nan] * 5)}]"
        table.update({"x": np.nan})
        assert str(table["x"][:].to_pylist()) == f"[{', '.join([nan] * 10)}]"
        table.append(frame, storage=blz.Storage(nan_as_null=keep is False))
        assert str(table["x"][10:].to_pylist()) == f"[1.5, {'None' if keep is False else 'nan'}]"
        pd.testing.assert_frame_equal(table.to_pandas().tail(2).reset_index(drop=True), frame)


def test_streams_and_indexes_of_frames_have_missing_values():
    index = pd.Index([1.0, np.nan, 3.0], name="at")
    frame = pd.DataFrame({"x": [np.nan, 1.5, 2.5]}, index=index)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.blz"
        blz.to_blz(iter([frame, frame]), path)
        assert blz.read_table(path).column("at").null_count == 2
        assert blz.read_table(path).column("x").null_count == 2
        pd.testing.assert_frame_equal(blz.read_blz(path), pd.concat([frame, frame]))


def test_a_column_that_is_not_null_names_the_option():
    store = RamStore()
    blz.create(store, pa.schema([pa.field("x", pa.float64(), nullable=False)])).close()
    with blz.open(store, "a") as table:
        with pytest.raises(blz.SchemaError, match="nan_as_null=False"):
            table.append(pd.DataFrame({"x": [np.nan]}))
        table.append(pd.DataFrame({"x": [np.nan]}), storage=blz.Storage(nan_as_null=False))
        assert str(table["x"][:].to_pylist()) == "[nan]"


@pytest.mark.parametrize("wrong", ["yes", 1, 0.5, []])
def test_the_option_is_true_or_false(wrong):
    with pytest.raises(ValueError, match="nan_as_null must be True, False or None"):
        blz.to_blz(pd.DataFrame({"x": [1.5]}), RamStore(), storage=blz.Storage(nan_as_null=wrong))
