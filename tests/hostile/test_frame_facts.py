"""Facts about a DataFrame from an attacker's file: a DataFrame or a FormatError, no other error."""

import base64
import contextlib
import copy
import json

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.convert.frames.descriptor import FIELD_KEY, from_bytes
from blztable.convert.frames.frame import to_frame
from blztable.convert.frames.pandas_metadata import arrow_metadata, from_metadata
from blztable.convert.gateway import ingest
from blztable.errors import FormatError
from blztable.format.records import VALUES
from blztable.storage.memory import RamStore
from support import tamper
from support.frame_strategies import frames, rebuilt

WORDS = "range field kind numpy M8[us] period M tuple float nan masked category object string zoned"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(WORDS.split()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


DESCRIPTOR = st.dictionaries(st.sampled_from(["dtype", "freq"]), JSON)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames(rows_max=4), st.integers(0, 1000), st.none() | JSON, DESCRIPTOR)
def test_changed_facts_are_read_or_refused(frame, spot, value, descriptor):
    stored = ingest(frame)
    facts = {"frame": copy.deepcopy(stored.frame), "fields": {}}
    for place, field in enumerate(stored.table.schema):
        if field.metadata:
            facts["fields"][str(place)] = json.loads(field.metadata[FIELD_KEY])
    change(facts, spot, value, descriptor)
    fields = []
    for place, field in enumerate(stored.table.schema):
        found = facts["fields"].get(str(place))
        fields.append(field.with_metadata({FIELD_KEY: json.dumps(found)} if found else None))
    table = rebuilt(pa.Table.from_arrays(stored.table.columns, schema=pa.schema(fields)))
    with contextlib.suppress(FormatError):
        assert len(to_frame(table, stored.rows, facts["frame"], {})) == len(frame)
    arrow_metadata(facts["frame"], table.schema, stored.rows, {})


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b'{"dtype":"object","dtype":"string"}',
        b'{"dtype":"object","x":NaN}',
        b'{"dtype":"object","x":-Infinity}',
        b'{"dtype":"object","x":1e999}',
        b'{"dtype":"object","x":' + b"9" * 5000 + b"}",
        b'{"dtype":"object","x":"\\ud800"}',
        b'{"dtype":"object","x":"\xff"}',
        b'{"dtype":"object","x":' + b"[" * 65 + b"]" * 65 + b"}",
        b'{"dtype":"object","x":' + b"[" * 30000 + b"]" * 30000 + b"}",
        b'{"dtype":"object","x":"' + b"a" * 65536 + b'"}',
        b'\xef\xbb\xbf{"dtype":"object"}',
        '{"dtype":"object"}'.encode("utf-16"),
        '{"dtype":"object"}'.encode("utf-16-le"),
        '{"dtype":"object"}'.encode("utf-32"),
        b"cbuiltins\neval\n(V1\ntR.",
        b"\x80\x04.",
    ],
    ids=lambda text: repr(text[:40])[2:-1],
)
def test_a_descriptor_that_is_not_plain_json_is_refused(text):
    with pytest.raises(FormatError, match="pandas"):
        from_bytes(text)
    table = pa.table({"x": ["a"]})
    field = table.schema.field(0).with_metadata({FIELD_KEY: text})
    with pytest.raises(FormatError, match="pandas"):
        to_frame(table.cast(pa.schema([field])), 1, None, {})


@pytest.mark.parametrize(
    "text",
    [
        "eval(1)",
        "__import__('os').system('true')",
        "(" * 500,
        "(" + "-" * 900 + "1,2)",
        "['a', 'b']",
        "('a', 'b', 'c')",
        "('a', " + "9" * 5000 + ")",
    ],
    ids=lambda text: text[:16],
)
def test_labels_in_anybodys_metadata_are_never_run(text):
    """pyarrow stores labels of several levels as texts of tuples; other texts stay unchanged."""
    level = {"name": None, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    column = {"name": text, "field_name": text, "numpy_type": "int64", "pandas_type": "int64"}
    known = {"index_columns": [], "column_indexes": [level, level], "columns": [column]}
    schema = pa.schema([pa.field(text, pa.int64())], {"pandas": json.dumps(known)})
    assert from_metadata(schema, 1) == (None, {})


@pytest.mark.parametrize(
    ("numpy_type", "label"), [("int8", "300"), ("int64", "9" * 30), ("float64", "?"), ("int8", "x")]
)
def test_labels_that_are_not_of_their_dtype_are_left_as_they_are(numpy_type, label):
    level = {"name": None, "pandas_type": numpy_type, "numpy_type": numpy_type, "metadata": None}
    known = {"index_columns": [], "column_indexes": [level], "columns": []}
    schema = pa.schema([pa.field(label, pa.int64())], {"pandas": json.dumps(known)})
    assert from_metadata(schema, 1) == (None, {})


@pytest.mark.parametrize("bound", [10**40, -(10**40), 1.5, None, "0", [], True])
def test_a_range_that_is_none_is_left_out_or_ignored(bound):
    counted = {"kind": "range", "name": None, "start": 0, "stop": bound, "step": 1}
    known = {"index_columns": [counted], "column_indexes": [], "columns": []}
    schema = pa.schema({"x": pa.int64()}, {"pandas": json.dumps(known)})
    frame, attrs = from_metadata(schema, 5)
    assert frame is None or frame["index"] == [{"kind": "range", "start": 0, "step": 1}]
    assert attrs == {}


@pytest.mark.parametrize("text", [b"\xff", b"[" * 100_000, b"{}", b"[]", b"1e999", b"\x80\x04."])
def test_anybodys_metadata_that_are_not_understood_are_ignored(text):
    assert from_metadata(pa.schema({"x": pa.int64()}, {"pandas": text}), 1) == (None, {})


ZONED = {
    "a label": {"columns": {"labels": [["x", ["timestamp", "s", 1, ["UTC", None]]]]}},
    "a level of the index": {"index": {"name": ["timestamp", "s", 1, ["UTC", None]]}},
    "a dtype of labels": {"columns": {"levels": [{"dtype": ["zoned", "s", "UTC", None]}]}},
}


@pytest.mark.parametrize("library", [False, "", 0, [], "later", True])
@pytest.mark.parametrize("place", ZONED)
def test_a_zone_of_a_library_that_is_none_is_refused(place, library):
    stated = json.loads(json.dumps(ZONED[place]).replace("null", json.dumps(library)))
    header = {"multi": False, "names": [None], "levels": [{"dtype": ["numpy", "object"]}]}
    index = {"kind": "range", "start": 0, "step": 1, **stated.get("index", {})}
    columns = {**header, "labels": [], **stated.get("columns", {})}
    facts = {"version": 1, "index": [index], "columns": columns}
    table = pa.table({"x": [1]})
    with pytest.raises(FormatError):
        to_frame(table, 1, facts, {})
    assert arrow_metadata(facts, table.schema, 1, {}) is None


def change(facts, spot, value, descriptor):
    """Draw a copy with one value below replaced, or removed if the new value is None."""
    spots = [(facts[part], key) for part in facts for key in facts[part]]
    for parent, key in spots:
        below = parent[key]
        if isinstance(below, dict | list):
            spots += [(below, k) for k in (below if isinstance(below, dict) else range(len(below)))]
    parent, key = spots[spot % len(spots)]
    if parent is facts["fields"]:
        parent[key] = descriptor
    elif value is not None:
        parent[key] = value
    else:
        del parent[key]


FAR = pd.Timestamp(1 << 40, unit="s")  # in the year 36812


# Found by the fuzzer: NotImplementedError of pandas.
def test_a_frequency_is_dropped_where_zoned_times_leave_the_years_of_python():
    days = pd.date_range("2026", periods=3, tz="Europe/Berlin", unit="s", name="day")
    store = RamStore()
    blz.to_blz(pd.DataFrame({"a": [1, 2, 3]}, days), store, storage=blz.Storage(encoding="plain"))
    far = pd.DatetimeIndex([FAR] * 3).as_unit("s").asi8
    with tamper.editing(store) as table:
        table.part(column=1).streams[VALUES].set_data(far.tobytes())
    index = blz.read_blz(store).index
    assert index.freq is None
    assert index.asi8.tolist() == [1 << 40] * 3


# Found by the fuzzer: NotImplementedError of pandas.
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_labels_that_are_zoned_times_outside_of_the_years_of_python_are_refused(zone):
    store = RamStore()
    column = pd.DatetimeIndex([pd.Timestamp("2026")], tz="Europe/Berlin").as_unit("s")
    blz.to_blz(pd.DataFrame([[1]], columns=column), store)
    with tamper.editing(store) as table:
        label = ["timestamp", "s", 1 << 40, [zone, None]]
        table.head["pandas"]["columns"]["labels"][0][1] = label
    with contextlib.suppress(blz.FormatError):
        assert blz.read_blz(store).columns[0] == FAR.tz_localize("UTC")


# Found by the fuzzer: pandas warned of the frequency B.
def test_a_label_of_business_days_is_read_without_a_warning():
    store = RamStore()
    blz.to_blz(pd.DataFrame({"a": [1]}), store)
    with tamper.editing(store) as table:
        labels = [["a", ["period", "B", 14_600]]]
        level = {"dtype": ["numpy", "object"]}
        header = {"multi": False, "names": [None], "levels": [level], "labels": labels}
        table.head["pandas"]["columns"] = header
    assert str(blz.read_blz(store).columns[0]) == "2025-12-18"


# Found by the fuzzer: UnicodeDecodeError.
def test_held_categories_with_a_name_that_is_not_utf8_are_refused():
    empty = pd.DataFrame({"a": pd.Categorical([], categories=["x", "y"])})
    store = RamStore()
    blz.to_blz(empty, store)
    with tamper.editing(store) as table:
        schema = pa.ipc.read_schema(pa.py_buffer(table.schema))
        descriptor = json.loads(schema.field(0).metadata[FIELD_KEY])
        held = base64.b64decode(descriptor["held"]).replace(b"categories", b"categorie\xff")
        descriptor["held"] = base64.b64encode(held).decode()
        field = schema.field(0).with_metadata({FIELD_KEY: json.dumps(descriptor)})
        data = pa.schema([field]).serialize().to_pybytes()
        table.schema = data
    with pytest.raises(blz.FormatError, match="categories cannot be read"):
        blz.read_blz(store)


# Found by the fuzzer: a frequency of an index without times was a foreign error.
def test_a_frequency_of_an_index_that_cannot_have_one_is_refused():
    store = RamStore()
    days = pd.date_range("2026-01-01", periods=4, freq="D", name="day")
    blz.to_blz(pd.DataFrame({"a": range(4)}, index=days), store)
    with tamper.editing(store) as edited:
        schema = pa.ipc.read_schema(pa.py_buffer(edited.schema))
        place = schema.get_field_index("day")
        field = schema.field(place).with_metadata({b"blz:pandas": b'{"dtype":"arrow"}'})
        changed = schema.set(place, field).serialize().to_pybytes()
        edited.schema = changed
    with pytest.raises(blz.FormatError, match="cannot have a frequency"):
        blz.read_blz(store)


# Found by the fuzzer: categories of an unknown description were a foreign error.
@pytest.mark.parametrize("facts", ["false", "0", "[]", '"values"', '{"other":1}'])
def test_categories_described_by_anything_else_are_refused(facts):
    store = RamStore()
    blz.to_blz(pd.DataFrame({"a": pd.Categorical([1, 2])}), store)
    with tamper.editing(store) as edited:
        schema = pa.ipc.read_schema(pa.py_buffer(edited.schema))
        text = f'{{"dtype":"category","categories":{facts}}}'.encode()
        field = schema.field(0).with_metadata({b"blz:pandas": text})
        changed = schema.set(0, field).serialize().to_pybytes()
        edited.schema = changed
    with pytest.raises(blz.FormatError):
        blz.read_blz(store)


# Found by the fuzzer: pandas cannot tell whether an index in an unknown zone is unique.
def test_an_index_in_a_zone_that_is_not_known_here_is_read_by_its_backend():
    type_ = pa.timestamp("ns", "no/zone")
    index = pd.Index(pd.arrays.ArrowExtensionArray(pa.array([1, 2], type_)), name="when")
    frame = pd.DataFrame({"a": [1, 2]}, index=index)
    store = RamStore()
    blz.to_blz(frame, store)
    with tamper.editing(store) as edited:
        edited.head["pandas"]["allows_duplicate_labels"] = False
    found = blz.read_blz(store, dtype_backend="pyarrow")
    assert found["a"].tolist() == [1, 2]
    assert found.index.dtype == pd.ArrowDtype(type_)


@pytest.mark.parametrize("levels", [1, 2])
def test_objects_without_a_hash_make_no_levels_and_are_not_unique(levels):
    """Without its facts, a complex number is a dict, which pandas cannot hash."""
    index = pd.Index([2j, 1j], name="z")
    if levels == 2:
        index = pd.MultiIndex.from_arrays([index, ["a", "b"]], names=["z", "letter"])
    frame = pd.DataFrame({"n": [1, 2]}, index=index)
    frame.flags.allows_duplicate_labels = False
    stored = ingest(frame)
    fields = [field.remove_metadata() for field in stored.table.schema]
    table = stored.table.cast(pa.schema(fields))
    if levels == 2:
        with pytest.raises(FormatError, match="cannot make an index of these levels"):
            to_frame(table, 2, stored.frame, {})
    else:
        found = to_frame(table, 2, stored.frame, {})
        assert found.index[0] == {"real": 0.0, "imag": 2.0}
        assert found.flags.allows_duplicate_labels
