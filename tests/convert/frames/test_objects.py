"""Columns of Python objects: those of one kind come back as they were, and others as JSON.

What cannot come back is refused: all columns at once, and each remedy that an error names works.
"""

import datetime
import decimal
import enum
import ipaddress
import json
import re
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.convert.frames.frame import to_frame
from blztable.convert.gateway import IngestOptions, ingest
from blztable.convert.objects.find import find, parse
from blztable.engine.write.options import Storage
from blztable.errors import FormatError, SchemaError
from support.bit_equality import assert_same
from support.frame_strategies import rebuilt
from support.object_strategies import ROME, kinds, objects, same

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def frame_of(*values, name="x"):
    return pd.DataFrame({name: pd.Series(objects(values), dtype=object)})


def returned(frame, choice="infer"):
    stored = ingest(frame, options=IngestOptions(objects=choice))
    return to_frame(rebuilt(stored.table), stored.rows, stored.frame, stored.attrs)


@quick
@given(st.data())
def test_objects_of_one_kind_come_back_as_they_were(data):
    of = data.draw(kinds())
    values = objects(data.draw(st.lists(of | st.none(), max_size=5)))
    kind = find(values)
    array = kind.encode(values)
    array.validate(full=True)
    back = parse(json.loads(json.dumps(kind.as_json))).decode(pa.concat_arrays([array, array]))
    assert same(list(back), [*values, *values])


@quick
@given(st.data())
def test_a_slice_of_an_array_of_objects_is_the_same_slice_of_them(data):
    values = objects(data.draw(st.lists(data.draw(kinds()) | st.none(), max_size=6)))
    first, rows = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    kind = find(values)
    back = kind.decode(kind.encode(values).slice(first, rows))
    assert same(list(back), list(values[first : first + rows]))


MIXED = st.recursive(
    kinds(0).flatmap(lambda of: of),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.text("ab", max_size=2) | st.integers(), inner, max_size=2)
    ),
    max_leaves=4,
)


@quick
@given(st.lists(MIXED | st.sampled_from([None, np.nan, pd.NA, pd.NaT]), max_size=5))
def test_mixed_objects_come_back_from_json(values):
    assert_same(returned(frame_of(*values), "json"), frame_of(*values))


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None], pa.int64()),
        ([1 << 63, np.nan], pa.uint64()),
        ([1.5, pd.NA], pa.float64()),
        ([datetime.datetime(2020, 1, 1), pd.NaT], pa.timestamp("us")),
        ([datetime.datetime(2020, 1, 1, tzinfo=ROME)], pa.timestamp("us", "Europe/Rome")),
        ([pd.Timestamp("2020").as_unit("s"), None], pa.timestamp("s")),
        ([datetime.timedelta(1)], pa.duration("us")),
        ([uuid.UUID(int=7)], pa.binary(16)),
        ([ipaddress.ip_address("::1")], pa.large_string()),
        ([1j, None], pa.struct({"real": pa.float64(), "imag": pa.float64()})),
        ([[1], [], None], pa.list_(pa.int64())),
        ([{"a"}, None], pa.list_(pa.large_string())),
        ([(1, "a"), (2, "b")], pa.struct({"0": pa.int64(), "1": pa.large_string()})),
        ([{"a": 1}, {"b": "x"}], pa.struct({"b": pa.large_string(), "a": pa.int64()})),
        ([{"a": None}, {}], pa.map_(pa.large_string(), pa.null())),
        ([{1: "x"}], pa.map_(pa.int64(), pa.large_string())),
        ([np.zeros(2, "f4"), np.zeros(3, "f4")], pa.list_(pa.float32())),
    ],
    ids=str,
)
def test_engines_see_the_type_that_arrow_infers(values, type_):
    table = ingest(frame_of(*values)).table
    assert table["x"].type == type_ or {f.name for f in type_} == {"a", "b"}
    assert table["x"].null_count == pd.isna(np.array([*values, 0], object)).sum()
    assert_same(returned(frame_of(*values)), frame_of(*values))


def test_a_key_that_a_dict_lacks_is_not_a_key_that_is_none():
    for values in (
        [{"a": 1, "b": None}, {"b": "x"}],
        [{"a": 1, "b": None}, {"b": 2}],
        [{"a": None}, {"b": 2}, {}],
        [{}, {}],
    ):
        assert_same(returned(frame_of(*values)), frame_of(*values))


def test_both_hours_of_a_night_in_october_come_back():
    hours = [datetime.datetime(2020, 10, 25, 2, 30, fold=fold, tzinfo=ROME) for fold in (0, 1)]
    for choice in ("infer", "json"):
        back = returned(frame_of(*hours, *([1] if choice == "json" else [])), choice)["x"].tolist()
        assert [moment.fold for moment in back[:2]] == [0, 1]
        assert [moment.utcoffset() for moment in back[:2]] == [h.utcoffset() for h in hours]


@pytest.mark.parametrize("values", [["1.5", "NaN"], ["NaN"], ["NaN", "NaN", "2"]])
@pytest.mark.parametrize("choice", ["infer", "json"])
def test_a_decimal_that_is_nan_is_missing(values, choice):
    frame = frame_of(*map(decimal.Decimal, values))
    assert ingest(frame, options=IngestOptions(objects=choice)).table[
        "x"
    ].null_count == values.count("NaN")
    assert_same(returned(frame, choice), frame)


@pytest.mark.parametrize(
    "value",
    [np.bytes_(b"a\0"), np.complex64(1j), np.complex128(2), np.str_("x")],
    ids=ascii,
)
def test_scalars_of_numpy_come_back_as_scalars_of_numpy(value):
    frame = frame_of(value, None, value)
    assert_same(returned(frame), frame)
    assert_same(returned(frame, "json"), frame)


def test_a_clock_without_a_zone_shows_an_hour_twice():
    hours = [datetime.datetime(2020, 10, 25, 2, 30, fold=fold) for fold in (0, 1)]
    frame = frame_of(*hours)
    with pytest.raises(SchemaError, match=r'pass storage=blz.Storage\(objects="json"\)'):
        ingest(frame)
    assert [hour.fold for hour in returned(frame, "json")["x"]] == [0, 1]
    assert_same(returned(frame, "json"), frame)


class Colour(enum.StrEnum):
    RED = "red"


class Words(list):
    pass


class Thing:
    def __repr__(self):
        return "Thing()"  # Without an address, which differs between processes.


NEVER = [Thing(), Colour.RED, Words(["a"]), bytearray(b"a"), np.void(b"a"), range(3)]
BAD = [
    ["a", 1],
    [1, 2.5],
    [1 << 64],
    [b"a", "a"],
    [True, 1],
    [[1], (1,)],
    [[1, "a"]],
    [{"a": 1}, {"a": "x"}],
    [{"a": None, "b": 1}, {"b": "x"}],
    [{None: 1}],
    [{"a\ud800": 1}],
    ["b\ud800"],
    [["b\ud800"]],
    [decimal.Decimal("inf")],
    [decimal.Decimal("1e40"), decimal.Decimal("1e-40")],
    [datetime.time(1, tzinfo=datetime.UTC)],
    [datetime.time(1, fold=1)],
    [datetime.datetime(2020, 3, 29, 2, 30, tzinfo=ROME)],
    [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=ROME)],
    [pd.Timestamp("2020"), pd.Timestamp("2020").as_unit("s")],
    [datetime.timedelta.max],
    [np.zeros((2, 2))],
    [np.zeros(2), np.zeros(2, "f4")],
    [pd.Interval(0, 1), pd.Period("2020", "D")],
    *([value] for value in NEVER),
]


def replaced(value):
    """Return a value whose texts are what UTF-8 can encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {replaced(key): replaced(one) for key, one in value.items()}
    return [replaced(one) for one in value] if isinstance(value, list) else value


REMEDIES = {
    r'text\.encode\("utf-8", "replace"\)': lambda column: (column.map(replaced), "infer"),
    r'pass storage=blz.Storage\(objects="json"\)': lambda column: (column, "json"),
    r'pass storage=blz.Storage\(objects="infer"\)': lambda column: (column, "infer"),
    r"convert it with astype\(str\)": lambda column: (column.astype(str), "infer"),
    r'with \.str\.encode\("utf-8", "surrogatepass"\)': (
        lambda column: (column.str.encode("utf-8", "surrogatepass"), "infer")
    ),
}


def check_remedies(frame, message, count=1):
    named = [remedy for words, remedy in REMEDIES.items() if re.search(words, message)]
    assert len(named) >= count
    for remedy in named:
        column, choice = remedy(frame["x"])
        changed = pd.DataFrame({"x": column})
        assert_same(returned(changed, choice), changed)


@pytest.mark.parametrize("values", BAD, ids=ascii)
def test_each_remedy_that_a_refusal_names_works(values):
    frame = frame_of(*values)
    with pytest.raises(SchemaError, match=r"column 'x', row \d+: .* cannot be stored: ") as caught:
        ingest(frame)
    check_remedies(frame, str(caught.value))


@pytest.mark.parametrize("values", NEVER, ids=ascii)
def test_no_choice_takes_what_json_cannot_say(values):
    for choice in ("infer", "json", "error"):
        with pytest.raises(SchemaError, match=r"'x', row 1: .*astype\(str\)"):
            ingest(frame_of(None, values), options=IngestOptions(objects=choice))


def test_one_refusal_names_every_bad_column_and_index_level():
    frame = pd.DataFrame(
        {"a": ["x", 1, "y"], "good": [1, 2, 3], "b": pd.Categorical([(1,), 2.5, None])},
        index=pd.MultiIndex.from_arrays([[1, 2, 3], ["k", b"k", "l"]], names=["i", "j"]),
    )
    frame["c"] = np.zeros(3, np.longdouble)
    with pytest.raises(SchemaError) as caught:
        ingest(frame)
    lines = str(caught.value).splitlines()
    starts = ["column 'a', row 1: 1 ", "column 'b', categories, row ", "column 'c': dtype "]
    assert len(lines) == 4
    assert all(map(str.startswith, lines, [*starts, "index level 'j', row 1: b'k' "])), lines
    frame = frame.drop(columns="c")
    assert_same(returned(frame, "json"), frame)


@pytest.mark.parametrize("values", [[1], [b"a"], [[1]], ["a", 1], [datetime.date(2020, 1, 1)]])
def test_error_takes_text_only(values):
    frame = frame_of(None, *values)
    with pytest.raises(SchemaError, match=r"row 1: .*it is no text|row 2: 1 ") as caught:
        ingest(frame, options=IngestOptions(objects="error"))
    check_remedies(frame, str(caught.value), count=2)
    for values in (["a", None], [None], []):
        assert_same(returned(frame_of(*values), "error"), frame_of(*values))


def test_an_unknown_choice_is_refused_by_name():
    with pytest.raises(ValueError, match=r"objects must be one of .*infer.*not 'pickle'"):
        Storage(objects="pickle")


def test_a_list_that_contains_itself_is_refused():
    endless = []
    endless.append(endless)
    for choice in ("infer", "json"):
        with pytest.raises(SchemaError, match="nested deeper"):
            ingest(frame_of(endless), options=IngestOptions(objects=choice))


def test_levels_come_back_to_the_deepest_that_is_taken():
    value = 1
    for depth in range(24):
        value = {"a": value} if depth % 2 else [value]
    assert_same(returned(frame_of(value, None)), frame_of(value, None))
    with pytest.raises(SchemaError, match="nested deeper"):
        ingest(frame_of([value]))


def test_dicts_with_many_keys_are_maps():
    values = [{str(row): row} for row in range(1000)]
    assert pa.types.is_map(ingest(frame_of(*values)).table["x"].type)
    assert_same(returned(frame_of(*values)), frame_of(*values))


@pytest.mark.parametrize(
    ("facts", "array"),
    [
        ("text", pa.array([1])),
        ("IPv4Address", pa.array(["x"])),
        ("uuid", pa.array([b"x"])),
        ("pickle", pa.array(["x"])),
        (["list", "int"], pa.array([1])),
        (["list"], pa.array([[1]])),
        (["list", "int", "int"], pa.array([[1]])),
        (["set", ["list", "int"]], pa.array([[[1]]])),
        (["map", ["list", "int"], "int"], pa.array([[1]])),
        (["map", "int", "int"], pa.array([[1]])),
        (["array", "V8"], pa.array([[1]])),
        (["array", "int64"], pa.array([["a"]])),
        (["datetime", "os"], pa.array([0], pa.timestamp("us"))),
        ("datetime", pa.array([0], pa.timestamp("ns"))),
        (["record"], pa.array([{}])),
        (["record", "int"], pa.array([{"a": 1}])),
        ({"a": "int"}, pa.array([{"b": 1}])),
        ({"a": ["absent"]}, pa.array([{"a": 1}])),
        ({"a": None}, pa.array([{"a": 1}])),
        ("complex", pa.array([{"real": 1, "imag": 1}])),
        ([], pa.array([1])),
        (7, pa.array([1])),
        ("json", pa.array([1])),
        ("json", pa.array(["{"])),
        ("json", pa.array(["NaN"])),
        ("json", pa.array(['{"blz:value":["set",[[]]]}'])),
        ("json", pa.array(['{"blz:value":["Decimal","x"]}'])),
        ("json", pa.array(['{"blz:value":["pickle","x"]}'])),
        ("json", pa.array(['{"blz:value":["dict",[[{},1]]]}'])),
        ("json", pa.array(["[" * 100_000])),
    ],
    ids=lambda value: str(value)[:40],
)
def test_facts_that_are_not_those_of_the_array_are_refused(facts, array):
    field = pa.field("x", array.type)
    text = json.dumps({"dtype": "object", "kind": facts})
    table = pa.table([array], pa.schema([field.with_metadata({"blz:pandas": text})]))
    with pytest.raises(FormatError):
        to_frame(table, len(array), None, {})


def test_nulls_that_take_no_bytes_are_not_expanded_into_all_memory():
    with pytest.raises((MemoryError, ValueError)):
        parse("null").decode(pa.nulls(1 << 60))
