"""We understand the metadata that pyarrow writes, and pyarrow understands ours."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from blztable.arrow.extensions import plain_table
from blztable.convert.frames.frame import index_fields, to_frame
from blztable.convert.frames.pandas_metadata import arrow_metadata
from blztable.convert.gateway import ingest
from blztable.convert.objects.tagged import plain_attrs
from support.frame_strategies import frames, rebuilt

VALUES = {
    "a": [1, 2],
    "t": pd.date_range("2020", periods=2, tz="Europe/Berlin"),
    "i": pd.array([1, None], dtype="Int16"),
    "s": ["x", None],
    "n": pd.array(["x", None], dtype="string"),
    "o": pd.Series(["x", None], dtype=object),
    "c": pd.Categorical(["b", "a"], ["b", "a", "c"], ordered=True),
    "p": pd.period_range("2020", periods=2, freq="M"),
    "w": pd.array([1, None], dtype="int8[pyarrow]"),
    "l": pd.arrays.ArrowExtensionArray(pa.array([[1], None])),
    "f": np.array([1.5, 2], dtype="f4"),
    "b": pd.Series([True, False], dtype=object),
}
INDEXES = [
    pd.RangeIndex(3, 7, 2),
    pd.RangeIndex(2, name="r"),
    pd.Index(["u", "v"]),
    pd.Index([1, 2], name="a"),
    pd.date_range("2020", periods=2, name="t2", tz="UTC"),
    pd.MultiIndex.from_arrays([[1, 2], ["u", "v"]], names=["k", None]),
]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
def test_a_table_made_by_pyarrow_is_the_frame_it_was(index):
    frame = pd.DataFrame(VALUES).set_axis(index)
    frame.attrs = {"k": [1]}
    table = pa.Table.from_pandas(frame)
    stored = ingest(table)
    assert stored.table.equals(plain_table(table))
    facts = json.loads(json.dumps(stored.frame))
    found = to_frame(rebuilt(table), stored.rows, facts, stored.attrs)
    pd.testing.assert_frame_equal(found, frame, check_freq=False)
    assert found.attrs == frame.attrs


@pytest.mark.parametrize(
    "columns",
    [
        pd.Index(["x", "y"], name="n"),
        pd.Index([1, 2], dtype="int16"),
        pd.Index([1.5, 2.5]),
        pd.DatetimeIndex(["2020", "2021"], name="d"),
        pd.DatetimeIndex(["2020", "2021"], tz="Europe/Berlin"),
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["p", "q"]),
    ],
    ids=repr,
)
def test_labels_survive_both_ways(columns):
    frame = pd.DataFrame([[1, 2]], columns=columns)
    stored = ingest(pa.Table.from_pandas(frame))
    found = to_frame(rebuilt(stored.table), 1, stored.frame, {})
    pd.testing.assert_frame_equal(found, frame)
    pd.testing.assert_frame_equal(through_arrow(frame), frame)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b"\xff",
        b'{"columns":[{}],"index_columns":[]}',
        b'{"columns":[],"index_columns":[{"kind":"x"}]}',
        b'{"columns":[],"index_columns":[7]}',
    ],
    ids=lambda metadata: repr(metadata[:30]),
)
def test_metadata_nobody_understands_are_kept_and_ignored(metadata):
    table = pa.table({"x": [1]}).replace_schema_metadata({b"pandas": metadata})
    stored = ingest(table)
    assert stored.table.schema.metadata == {b"pandas": metadata}
    found = to_frame(rebuilt(table), 1, stored.frame, stored.attrs)
    pd.testing.assert_frame_equal(found, pd.DataFrame({"x": [1]}))


def test_a_range_that_does_not_fit_the_rows_is_ignored():
    table = pa.Table.from_pandas(pd.DataFrame({"x": [1, 2, 3]}, index=pd.RangeIndex(5, 8)))
    stored = ingest(table.slice(1))
    found = to_frame(rebuilt(stored.table), 2, stored.frame, {})
    assert found.index.tolist() == [0, 1]


def through_arrow(frame):
    """Return the DataFrame that pyarrow makes without knowing blztable."""
    stored = ingest(frame)
    text = arrow_metadata(stored.frame, stored.table.schema, stored.rows, stored.attrs)
    return stored.table.replace_schema_metadata({b"pandas": text}).to_pandas()


@pytest.mark.parametrize("index", INDEXES, ids=repr)
def test_pyarrow_restores_a_frame_of_ours(index):
    # No objects that are text and no lists: pyarrow does not keep these.
    values = {key: value for key, value in VALUES.items() if key not in "olb"}
    frame = pd.DataFrame(values).set_axis(index)
    frame.attrs = {"k": [1]}
    found = through_arrow(frame)
    pd.testing.assert_frame_equal(found, frame, check_freq=False)
    assert found.attrs == frame.attrs


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames(rows_max=3))
def test_pyarrow_takes_the_metadata_of_any_frame(frame):
    stored = ingest(frame)
    text = arrow_metadata(stored.frame, stored.table.schema, stored.rows, stored.attrs)
    known = json.loads(text)
    names = [name for name in known["index_columns"] if isinstance(name, str)]
    assert names == index_fields(stored.frame)
    assert len(known["columns"]) == stored.table.num_columns
    assert plain_attrs(known["attributes"]) == frame.attrs


def test_no_frame_has_no_metadata():
    assert arrow_metadata(None, pa.schema([]), 0, {}) is None
