"""The goal: whatever frame goes in, the same frame comes out, to the last bit."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from blztable.convert.frames.frame import to_frame
from blztable.convert.gateway import ingest
from blztable.errors import FormatError
from support.frame_strategies import frames, rebuilt

EXACT = {
    "check_dtype": True,
    "check_index_type": "equiv",
    "check_column_type": "equiv",
    "check_exact": True,
    "check_freq": True,
    "check_flags": True,
    "check_categorical": True,
    "check_names": True,
}


def returned(frame, **options):
    """The frame after a stay in the store, where the descriptor is JSON."""
    stored = ingest(frame, **options)
    facts = json.loads(json.dumps(stored.frame, allow_nan=False))
    return to_frame(rebuilt(stored.table), stored.rows, facts, stored.attrs)


def assert_same(found, expected):
    pd.testing.assert_frame_equal(found, expected, **EXACT)
    assert type(found.index) is type(expected.index)
    assert type(found.columns) is type(expected.columns)
    assert found.columns.dtype == expected.columns.dtype
    assert [type(label) for label in found.columns] == [type(label) for label in expected.columns]
    assert list(map(type, found.index.names)) == list(map(type, expected.index.names))
    assert found.attrs == expected.attrs
    for i in range(expected.shape[1]):
        one, other = found.iloc[:, i].array, expected.iloc[:, i].array
        assert type(one) is type(other)
        if one.dtype.kind == "f" and isinstance(one.dtype, np.dtype):
            assert one.to_numpy().tobytes() == other.to_numpy().tobytes()
        if isinstance(one.dtype, pd.StringDtype):
            assert one.dtype.storage == other.dtype.storage
            assert one.dtype.na_value is other.dtype.na_value
        if isinstance(one.dtype, pd.CategoricalDtype):
            assert type(one.categories) is type(other.categories)
            assert one.codes.dtype == other.codes.dtype
        if one.dtype == object:
            assert list(map(type, one)) == list(map(type, other)) or mixed_markers(other)


def mixed_markers(values):
    return len({type(v) for v in values if pd.isna(v)}) > 1


@settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
@given(frames())
def test_any_frame_comes_back_exactly(frame):
    assert_same(returned(frame), frame)


def test_levels_that_pandas_cannot_look_at_are_told():
    """Days beyond the year 9999 are none of Python's; a frame of pandas has none."""
    days = pd.array(pa.array([0, 86_400_000], pa.date64()), dtype=pd.ArrowDtype(pa.date64()))
    index = pd.MultiIndex.from_arrays([days, ["x", "y"]], names=["day", "b"])
    given = ingest(pd.DataFrame({"n": [1, 2]}, index=index))
    far = pa.array([86_400_000 << 30, 86_400_000 << 31], pa.date64())
    place = given.table.column_names.index("day")
    table = given.table.set_column(place, given.table.schema.field(place), far)
    with pytest.raises(FormatError, match="pandas cannot make an index of these levels"):
        to_frame(table, 2, given.frame, {})
