"""Whole DataFrames: any DataFrame comes back the same, to the last bit."""

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from blztable.convert.frames.frame import to_frame
from blztable.convert.gateway import ingest
from blztable.errors import FormatError
from support.bit_equality import assert_same
from support.frame_strategies import frames, returned


@settings(
    max_examples=75,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
@given(frames())
def test_any_frame_comes_back_exactly(frame):
    assert_same(returned(frame), frame)


def test_levels_that_pandas_cannot_look_at_are_told():
    """Python has no dates after the year 9999; a DataFrame of pandas has none either."""
    days = pd.array(pa.array([0, 86_400_000], pa.date64()), dtype=pd.ArrowDtype(pa.date64()))
    index = pd.MultiIndex.from_arrays([days, ["x", "y"]], names=["day", "b"])
    given = ingest(pd.DataFrame({"n": [1, 2]}, index=index))
    far = pa.array([86_400_000 << 30, 86_400_000 << 31], pa.date64())
    place = given.table.column_names.index("day")
    table = given.table.set_column(place, given.table.schema.field(place), far)
    with pytest.raises(FormatError, match="pandas cannot make an index of these levels"):
        to_frame(table, 2, given.frame, {})
