"""Schema changes: renamed and dropped columns leave the table a valid DataFrame."""

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from blztable.convert.frames.frame import dropped, renamed, to_frame
from blztable.convert.gateway import ingest
from support.bit_equality import assert_same
from support.frame_strategies import frames, rebuilt

F = pd.DataFrame


def after_rename(data, names) -> F:
    """Return the DataFrame of a table whose columns were renamed."""
    stored = ingest(data)
    table = stored.table.rename_columns(
        [names.get(name, name) for name in stored.table.schema.names]
    )
    return to_frame(rebuilt(table), stored.rows, renamed(stored.frame, names), stored.attrs)


@pytest.mark.parametrize(
    "names",
    [{"a": "x"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}, {"c": "_"}, {}],
    ids=str,
)
def test_columns_are_renamed_as_in_pandas(names):
    values = {"a": [1], "b": pd.array([2], "Int8"), "c": pd.Categorical(["x"])}
    for header in (None, "letters"):
        frame = F(values).rename_axis(columns=header)
        assert_same(after_rename(frame, names), frame.rename(columns=names))


def test_labels_that_are_no_text_become_the_new_names():
    frame = F([[1.5, 2.5, 3.5]], columns=pd.RangeIndex(3))
    found = after_rename(frame, {"1": "one"})
    pd.testing.assert_frame_equal(found, frame.rename(columns={1: "one"}))
    assert found.columns.tolist() == [0, "one", 2]
    assert after_rename(frame, {"1": "1"}).columns.tolist() == [0, 1, 2]
    found = after_rename(frame, {"0": "1", "1": "0"})
    assert found.columns.tolist() == ["1", "0", 2]


def test_a_label_of_levels_becomes_one_of_the_new_name():
    frame = F(
        [[1.5, 2.5]],
        columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["p", "q"]),
    )
    found = after_rename(frame, {"('a', 1)": "new"})
    assert found.columns.tolist() == [("new", ""), ("b", 2)]
    assert found.columns.names == ["p", "q"]


def test_an_index_is_renamed_with_its_column():
    frame = F({"a": [1.5]}, index=pd.Index([7], name="key"))
    assert_same(
        after_rename(frame, {"key": "a", "a": "key"}),
        frame.rename(columns={"a": "key"}).rename_axis("a"),
    )
    unnamed = F({"a": [1.5]}, index=[7])
    assert_same(after_rename(unnamed, {"__index_level_0__": "id"}), unnamed)
    levels = pd.MultiIndex.from_arrays([[1], ["x"]], names=["n", ("k", 1)])
    frame = F({"a": [1.5]}, index=levels)
    assert after_rename(frame, {"n": "m", "__index_level_1__": "k"}).index.names == ["m", ("k", 1)]


def test_dtypes_of_pandas_metadata_follow_the_new_names():
    table = pa.Table.from_pandas(F({"a": pd.array([1], "Int8"), "b": [2]}))
    assert ingest(table).frame["dtypes"]
    for names in ({"a": "x"}, {"a": "b", "b": "a"}):
        found = after_rename(table, names).dtypes
        assert found[names["a"]] == "Int8"
        assert found[names.get("b", "b")] == "int64"


def test_a_table_of_no_frame_has_nothing_to_rename():
    assert renamed(None, {"a": "b"}) is None
    assert dropped(None, ["a"]) is None


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames(rows_max=4), st.data())
def test_values_and_labels_follow_any_rename(frame, data):
    stored = ingest(frame)
    fields = stored.table.schema.names
    assume(len(set(fields)) == len(fields))
    some = data.draw(st.lists(st.sampled_from(fields), unique=True) if fields else st.just([]))
    fresh = [f"new {number}" for number in range(len(some))]
    names = dict(zip(some, data.draw(st.permutations([*some, *fresh])), strict=False))
    assume(len({names.get(field, field) for field in fields}) == len(fields))
    found = after_rename(frame, names)
    width = frame.shape[1]
    labels = [
        _label(names[field], frame.columns) if names.get(field, field) != field else label
        for field, label in zip(fields[:width], frame.columns.tolist(), strict=True)
    ]
    assert found.columns.tolist() == labels
    assert list(map(type, found.columns.tolist())) == list(map(type, labels))
    assert found.columns.names == frame.columns.names
    if len(fields) > width:
        assert found.index.names == [
            names.get(field, name) if name == field else name
            for field, name in zip(fields[width:], frame.index.names, strict=True)
        ]
    found = found.set_axis(frame.columns, axis=1).rename_axis(index=frame.index.names)
    assert_same(found, frame)


def _label(name, columns):
    return (name, *[""] * (columns.nlevels - 1)) if isinstance(columns, pd.MultiIndex) else name


# Names that are used again


def test_a_new_field_has_not_the_label_of_one_that_was_dropped():
    frame = F([[1.5, 2.5]], columns=pd.RangeIndex(2))
    stored = ingest(frame)
    again = pa.table({"0": [1.5], "1": ["new"]})
    found = to_frame(rebuilt(again), 1, dropped(stored.frame, ["1"]), {})
    assert found.columns.tolist() == [0, "1"]
    # The DataFrame facts of a table that does not mention the rename.
    taken = renamed(stored.frame, {"0": "1"})
    assert to_frame(rebuilt(again.select(["1"])), 1, taken, {}).columns.tolist() == ["1"]
    later = pa.table({"1": ["new"]})
    assert to_frame(rebuilt(later), 1, renamed(stored.frame, {"x": "1"}), {}).columns.tolist() == [
        "1"
    ]


def test_a_new_field_has_not_the_dtype_of_one_that_was_dropped():
    table = pa.Table.from_pandas(F({"a": pd.array([1], "Int8"), "b": ["x"]}))
    frame = ingest(table).frame
    for after in (dropped(frame, ["a"]), renamed(frame, {"b": "a"})):
        found = to_frame(rebuilt(pa.table({"a": ["y"]})), 1, after, {})
        assert found["a"].tolist() == ["y"]


def test_a_new_field_is_not_the_index_that_was_dropped():
    levels = pd.MultiIndex.from_arrays([[1], ["x"]], names=["n", "k"])
    frame = ingest(F({"a": [1.5]}, index=levels)).frame
    table = pa.table({"a": [1.5], "n": [7], "k": ["y"]})
    found = to_frame(rebuilt(table), 1, dropped(frame, ["n", "k"]), {})
    assert found.columns.tolist() == ["a", "n", "k"]
    assert_same(found, F({"a": [1.5], "n": [7], "k": ["y"]}))
    one = to_frame(rebuilt(table), 1, dropped(frame, ["k"]), {})
    assert one.index.names == ["n"]
    assert one.columns.tolist() == ["a", "k"]
