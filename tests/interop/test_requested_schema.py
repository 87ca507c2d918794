"""A stream in the types its reader requests, or an error that names the impossible type."""

import datetime

import pyarrow as pa
import pytest

import blztable as blz
from support.samples import array

UTC = datetime.UTC
TIMES = (datetime.datetime, datetime.time, datetime.timedelta)
TIME = pa.timestamp
TEXT = pa.dictionary(pa.int16(), pa.string_view())
# The stored type, and the requested type.
REQUESTS = [
    (pa.string_view(), pa.string()),
    (pa.string_view(), pa.large_string()),
    (pa.binary_view(), pa.binary()),
    (pa.large_string(), pa.string()),
    (pa.string(), pa.large_string()),
    (pa.string(), pa.string_view()),
    (pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
    (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())),
    (pa.dictionary(pa.int64(), TIME("ms", "UTC")), TIME("ms", "UTC")),
    (pa.dictionary(pa.int32(), pa.bool_()), pa.bool_()),
    (TEXT, pa.string()),
    (TEXT, pa.large_string()),
    (TEXT, TEXT),
    (pa.dictionary(pa.int16(), pa.binary_view()), pa.binary()),
    (pa.string(), pa.dictionary(pa.int32(), pa.string())),
    (pa.decimal32(9, 2), pa.decimal128(9, 2)),
    (pa.decimal64(18, 4), pa.decimal128(20, 4)),
    (pa.decimal32(9, 2), pa.decimal256(40, 2)),
    (pa.float16(), pa.float32()),
    (pa.float16(), pa.float64()),
    (pa.int8(), pa.int64()),
    (pa.uint32(), pa.int32()),
    (TIME("s"), TIME("ns")),
    (TIME("us", "Europe/Berlin"), TIME("ms", "UTC")),
    (pa.date64(), pa.date32()),
    (pa.duration("s"), pa.duration("us")),
    (pa.time32("s"), pa.time64("us")),
    (pa.null(), pa.string()),
]


class Capsule:
    """A stream requested with a schema, by a library that does not use pyarrow."""

    def __init__(self, table, schema: pa.Schema) -> None:
        self.stream = table.__arrow_c_stream__(schema.__arrow_c_schema__())

    def __arrow_c_stream__(self, requested_schema=None):
        return self.stream


def opened(table: pa.Table, path) -> blz.CTable:
    blz.to_blz(
        table, path, storage=blz.Storage(row_group_rows=16, page_rows=8), durability="process"
    )
    return blz.open(path)


@pytest.mark.parametrize(("stored", "asked"), REQUESTS, ids=str)
def test_a_stream_comes_in_the_types_asked_for(tmp_path, stored, asked):
    table = pa.table({"n": range(40), "x": array(stored)})
    schema = pa.schema([("n", pa.int32()), ("x", asked)])
    with opened(table, tmp_path / "t.blz") as t:
        for found in (
            pa.RecordBatchReader.from_stream(t, schema=schema).read_all(),
            pa.RecordBatchReader.from_stream(t.to_batches(), schema=schema).read_all(),
            pa.RecordBatchReader.from_stream(Capsule(t, schema)).read_all(),
            pa.table(t, schema=schema),
        ):
            assert found.schema.types == [pa.int32(), asked]
            assert found["n"].to_pylist() == list(range(40))
            assert values(found["x"]) == values(table["x"])


def values(column: pa.ChunkedArray) -> list:
    """Return the values whatever type holds them; times are in UTC."""
    found = column.to_pylist()
    zoned = [one.astimezone(UTC) if getattr(one, "tzinfo", None) else one for one in found]
    return [str(one) if isinstance(one, TIMES) else one for one in zoned]


TABLE = pa.table({"a": [1, 2, 300], "b": ["x", "y", None]})


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        (pa.schema({"b": pa.string(), "a": pa.int64()}), ValueError, r"\['a', 'b'\], \['b', 'a'\]"),
        (pa.schema({"a": pa.int64()}), ValueError, r"\['a', 'b'\], \['a'\]"),
        (pa.schema({"a": pa.int64(), "c": pa.string()}), ValueError, r"\['a', 'c'\]"),
        (pa.schema({"a": pa.date32(), "b": pa.list_(pa.int8())}), TypeError, "cannot be cast"),
        (pa.schema({"a": pa.int8(), "b": pa.string()}), ValueError, "300 not in range"),
        (pa.schema({"a": pa.int64(), "b": pa.int64()}), ValueError, "Failed to parse string"),
    ],
)
def test_what_cannot_be_had_is_told(tmp_path, schema, error, message):
    with opened(TABLE, tmp_path / "t.blz") as t, pytest.raises(error, match=message):
        pa.RecordBatchReader.from_stream(t, schema=schema).read_all()


def test_a_dictionary_of_views_stays_one_for_who_asks_for_nothing(tmp_path):
    table = pa.table({"x": array(TEXT)})
    with opened(table, tmp_path / "t.blz") as t:
        assert pa.RecordBatchReader.from_stream(t).schema.types == [TEXT]
        assert pa.table(t, schema=t.schema).schema == t.schema
