"""The goal: facts from a stranger's file end in a frame or in a FormatError, in nothing else."""

import contextlib
import copy
import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.convert.frames.descriptor import FIELD_KEY, from_bytes
from blztable.convert.frames.frame import to_frame
from blztable.convert.frames.pandas_metadata import arrow_metadata, from_metadata
from blztable.convert.gateway import ingest
from blztable.errors import FormatError
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


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
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
        b'{"dtype":"object","x":' + b"[" * 17 + b"]" * 17 + b"}",
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
    """The labels of several levels are texts of tuples there; others are left as they are."""
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
    """Replace one value anywhere below, or take it away where the new one is None."""
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
