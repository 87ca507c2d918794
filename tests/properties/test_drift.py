"""Drift: frames of other dtypes appended with `evolve=True` hold what `pd.concat` makes of them.

The appends stand among updates and deletes, and among appends of another writer.
"""

import datetime
import decimal
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.types import is_number
from blztable.errors import SchemaError
from blztable.storage.memory import MemoryStore

few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
WORDS = ["x", "", "ü", "long enough"]
START = datetime.datetime(2020, 1, 2)


def whole(rows):
    return [number * 7 - 3 for number in range(rows)]


def objects(values):
    return pd.Series(values, dtype=object)


# For each column, the dtypes in which its values may come, by the number of rows.
DRIFTS = {
    "number": [
        lambda n: pd.Series(whole(n), dtype="int64"),
        lambda n: pd.Series(whole(n), dtype="int8") if n < 9 else pd.Series(whole(n), dtype="i4"),
        lambda n: pd.Series(whole(n), dtype="float64"),
        lambda n: pd.Series(whole(n), dtype="float64") + 0.5,
        lambda n: pd.Series([*whole(n - 1), None] if n else [], dtype="Int64"),
        lambda n: pd.Series([*whole(n - 1), np.nan] if n else [], dtype="float32"),
        lambda n: objects([*whole(n - 1), None] if n else []),
        lambda n: objects([None] * n),
        lambda n: pd.Series([np.nan] * n, dtype="float64"),
        lambda n: pd.array(whole(n), dtype="double[pyarrow]"),
    ],
    "word": [
        lambda n: pd.Series(WORDS * n, dtype="str")[:n],
        lambda n: pd.Categorical((WORDS * n)[:n], [*WORDS, "never"]),
        lambda n: objects([*WORDS * n][:n]),
        lambda n: pd.Series([None, *WORDS * n][:n], dtype="string[python]"),
        lambda n: objects([None] * n),
        lambda n: pd.Series([np.nan] * n, dtype="float64"),
        lambda n: pd.array((WORDS * n)[:n], dtype="string[pyarrow]"),
    ],
    "at": [
        lambda n: pd.date_range(START, periods=n, freq="D", unit="s"),
        lambda n: pd.date_range(START, periods=n, freq="us", unit="us"),
        lambda n: pd.date_range(START, periods=n, freq="ns", unit="ns"),
        lambda n: pd.Series([pd.NaT] * n, dtype="M8[us]"),
        lambda n: objects([START + datetime.timedelta(hours=hour) for hour in range(n)]),
        lambda n: objects([pd.Timestamp(START), None][:n] * 9)[:n],
    ],
    "price": [
        lambda n: objects([decimal.Decimal("1.5")] * n),
        lambda n: objects([decimal.Decimal("-1234567.25"), None][:n] * 9)[:n],
        lambda n: objects([decimal.Decimal("0.001")] * n),
        lambda n: objects([None] * n),
    ],
    "items": [
        lambda n: objects([[1, 2], [], None][:n] * 9)[:n],
        lambda n: objects([[3], None][:n] * 9)[:n],
        lambda n: objects([[]] * n),
        lambda n: objects([None] * n),
    ],
}


@st.composite
def frames(draw, rows=None):
    """Draw a frame with a key and some of the columns, each in one of its dtypes."""
    rows = draw(st.integers(1, 9)) if rows is None else rows
    names = draw(st.lists(st.sampled_from(sorted(DRIFTS)), unique=True, min_size=1))
    data = {name: draw(st.sampled_from(DRIFTS[name]))(rows) for name in names}
    columns = {}
    for name, values in data.items():
        columns[name] = pd.Series(values).reset_index(drop=True)
    return pd.DataFrame({"key": np.arange(rows) % 3, **columns})


def rows_of(frame, name):
    """Return the values of a column such that equal ones compare equal, None for missing."""
    if name not in frame:
        return [None] * len(frame)
    return [
        None if not isinstance(value, list | np.ndarray) and pd.isna(value) else plain(value)
        for value in frame[name]
    ]


def plain(value):
    if isinstance(value, list | np.ndarray):
        return list(value)
    return pd.Timestamp(value) if isinstance(value, datetime.datetime) else value


def takes_numbers(store):
    """True if the column is one of numbers; a column of None is one of text until then."""
    with blz.open(store) as table:
        names = table.columns
        return "number" in names and is_number(table.schema.field("number").type)


def tried(store, act):
    """Make a change through a new table object; once more if another writer was faster."""
    for last in (False, True):
        with blz.open(store, "a") as table:
            try:
                return act(table)
            except blz.ConflictError:
                assert not last
    return None


def step(draw, store, model):
    """Make one change to the table and to the model."""
    key = draw(st.integers(0, 2))
    match draw(st.sampled_from(["append", "append", "update", "delete", "compact", "two writers"])):
        case "append":
            more = draw(frames())
            tried(store, lambda table: table.append(more, evolve=True))
            return pd.concat([model, more], ignore_index=True)
        case "two writers":
            one, other = draw(frames()), draw(frames())
            with blz.open(store, "a") as late:
                tried(store, lambda table: table.append(one, evolve=True))
                try:
                    late.append(other, evolve=True)
                except blz.ConflictError:
                    tried(store, lambda table: table.append(other, evolve=True))
            return pd.concat([model, one, other], ignore_index=True)
        case "update" if takes_numbers(store):
            tried(store, lambda table: table.update({"number": 5}, where=[("key", "==", key)]))
            return model.assign(number=model["number"].astype(object).mask(model["key"] == key, 5))
        case "delete":
            tried(store, lambda table: table.delete([("key", "==", key)]))
            return model[model["key"] != key].reset_index(drop=True)
        case "compact":
            tried(store, lambda table: table.compact())
    return model


def drifts(frame, data):
    store, model = MemoryStore(), frame
    frame.to_blz(store)
    for _ in range(data.draw(st.integers(1, 5))):
        model = step(data.draw, store, model)
        with blz.open(store) as table:
            found = table.to_pandas()
            assert table.verify()
        assert set(found.columns) == set(model.columns)
        for name in model.columns:
            assert rows_of(found, name) == rows_of(model, name), name


# pandas says that it will look at empty columns, too.
@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation")
@few
@given(frames(), st.data())
def test_appends_that_drift_hold_what_concat_makes_of_the_frames(frame, data):
    drifts(frame, data)


@pytest.mark.storm
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation")
@settings(few, max_examples=2000)
@given(frames(), st.data())
def test_many_appends_that_drift_hold_what_concat_makes_of_the_frames(frame, data):
    drifts(frame, data)


# Remedies of refused appends

KINDS = {
    "int8": pd.Series([1, 2], dtype="int8"),
    "int64": [1, 2],
    "float": [1.5, 2.5],
    "text": ["a", "b"],
    "category": pd.Series(["a", "b"], dtype="category"),
    "bool": [True, False],
    "moment": pd.to_datetime(["2020-01-01", "2021-01-01"]).tz_localize("UTC"),
    "duration": pd.to_timedelta([1, 2], "s"),
    "bytes": [b"a", b"b"],
    "decimal": [decimal.Decimal("1.25"), None],
    "list": [[1], [2]],
    "dict": [{"a": 1}, {"a": 2}],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_remedy_that_a_refused_append_names_works(kind):
    for values in KINDS.values():
        store, frame = MemoryStore(), pd.DataFrame({"x": values})
        pd.DataFrame({"x": KINDS[kind]}).to_blz(store)
        with blz.open(store, "a") as table:
            try:
                table.append(frame)
                continue
            except SchemaError as error:
                message = str(error)
            altered = re.search(r"alter_column\('x', type=(.*), safe=False\)", message)
            if altered is not None:
                table.alter_column("x", dtype=eval(altered[1], {"pa": pa}), safe=False)
            if altered is not None or "pass evolve=True" in message:
                table.append(frame, evolve=altered is None)
                assert len(table) == 4


@pytest.mark.parametrize(
    ("values", "more"),
    [
        (pd.period_range("2020", periods=2, freq="Y"), [1.5]),
        (pd.period_range("2020", periods=2, freq="Y"), [1]),
        (pd.interval_range(0, 2), [{"a": 1}]),
        ([1j, 2j], [{"a": 1}]),
    ],
    ids=str,
)
@pytest.mark.parametrize("evolve", [False, True])
def test_values_that_stand_for_others_are_widened_by_none(values, more, evolve):
    store, frame = MemoryStore(), pd.DataFrame({"x": values})
    frame.to_blz(store)
    with blz.open(store, "a") as table:
        with pytest.raises(SchemaError, match=r"'x'.*without change"):
            table.append(pd.DataFrame({"x": more}), evolve=evolve)
        pd.testing.assert_frame_equal(table.to_pandas(), frame)


def test_dicts_are_of_one_kind_in_any_order_of_their_keys():
    store = MemoryStore()
    pd.DataFrame({"x": [{"z": 1, "y": [{"p": 1, "q": {2}}]}]}).to_blz(store)
    with blz.open(store, "a") as table:
        table.append(pd.DataFrame({"x": [{"y": [{"q": {3}, "p": 4}], "z": 5}]}))
        found = table.to_pandas()["x"].tolist()
    assert found == [{"z": 1, "y": [{"p": 1, "q": {2}}]}, {"z": 5, "y": [{"p": 4, "q": {3}}]}]
