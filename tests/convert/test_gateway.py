"""The gateway: it accepts every kind of table, and leaves Arrow data as they are."""

import datetime

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from blztable.convert.frames.frame import to_frame
from blztable.convert.gateway import ingest
from blztable.errors import SchemaError
from support.frame_strategies import rebuilt


def chunked():
    field = pa.field("a", pa.int8(), nullable=False, metadata={"k": "v"})
    schema = pa.schema([field, pa.field("a", pa.string_view())], metadata={"s": "t"})
    column = pa.chunked_array([[1], [2, 3]], pa.int8())
    text = pa.chunked_array([["a", "b", None]], pa.string_view())
    return pa.Table.from_arrays([column, text], schema=schema)


def test_an_arrow_table_passes_unchanged():
    table = chunked()
    stored = ingest(table)
    assert stored.table is table
    assert (stored.rows, stored.frame, stored.attrs) == (3, None, {})


def test_readers_batches_and_capsules_keep_types_chunks_and_metadata():
    table = chunked()
    found = ingest(table.to_reader()).table
    assert found.equals(table, check_metadata=True)
    batch = table.combine_chunks().to_batches()[0]
    assert ingest(batch).table.equals(table, check_metadata=True)

    class Capsule:
        def __init__(self, name, data):
            setattr(self, name, getattr(data, name))

    for capsule in (Capsule("__arrow_c_stream__", table), Capsule("__arrow_c_array__", batch)):
        assert ingest(capsule).table.equals(table, check_metadata=True)
    structs = batch.to_struct_array()
    assert ingest(structs).table.column_names == ["a", "a"]


def test_rows_without_columns_are_counted():
    batch = pa.record_batch(pa.StructArray.from_arrays([], fields=[], mask=pa.array([False] * 3)))
    assert batch.num_rows == 3
    assert ingest(batch).rows == 3
    assert to_frame(ingest(batch).table, 3, None, {}).shape == (3, 0)
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])
    assert ingest(reader).rows == 6
    assert ingest(pd.DataFrame(index=range(4))).rows == 4


def test_polars_comes_in_with_its_own_types():
    frame = pl.DataFrame(
        {
            "s": ["a", None],
            "l": [[1], None],
            "c": pl.Series(["x", "y"], dtype=pl.Categorical),
            "d": [datetime.date(2020, 1, 1), None],
        }
    )
    stored = ingest(frame)
    types = [str(type_) for type_ in stored.table.schema.types]
    assert types[:2] == ["string_view", "large_list<item: int64>"]
    assert types[2].startswith("dictionary<values=string_view, indices=uint32")
    found = to_frame(rebuilt(stored.table), stored.rows, stored.frame, stored.attrs)
    assert found["c"].tolist() == ["x", "y"]
    assert found["s"].tolist() == ["a", np.nan]
    assert stored.frame is None


def test_a_duckdb_relation_comes_in():
    relation = duckdb.connect().sql("select range a, 'x' || range b from range(3)")
    stored = ingest(relation)
    assert stored.rows == 3
    found = to_frame(rebuilt(stored.table), 3, None, {})
    assert found.to_dict("list") == {"a": [0, 1, 2], "b": ["x0", "x1", "x2"]}


def test_a_mapping_takes_arrays_of_every_kind():
    data = {
        "numpy": np.array([1.5, np.nan]),
        "text": np.array(["a", "b"]),
        "days": np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        "masked": np.ma.masked_array([1, 2], [False, True]),
        "list": [1, None],
        "tuple": ("a", None),
        "arrow": pa.array([1, 2], pa.int8()),
        "chunks": pa.chunked_array([[1], [2]]),
        "series": pd.Series([1, None], dtype="Int8"),
        "index": pd.date_range("2020", periods=2),
        "category": pd.Categorical(["a", None]),
        "strided": np.arange(4)[::2],
        "": pd.Series([b"a", None], dtype=object),
    }
    stored = ingest(data)
    assert stored.table.column_names == list(data)
    assert (stored.rows, stored.frame, stored.attrs) == (2, None, {})
    assert stored.table["numpy"].null_count == 0
    assert stored.table["masked"].to_pylist() == [1, None]
    assert stored.table["days"].type == pa.date32()
    assert stored.table["chunks"].num_chunks == 2
    found = to_frame(rebuilt(stored.table), 2, None, {})
    assert found["series"].dtype == "Int8"
    assert found["strided"].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"a": [1], "b": [1, 2]},
            "lengths: expected one length for all columns, found {'a': 1, 'b': 2}",
        ),
        ({"a": np.array(1)}, "'a': expected an array with one value per row, found array(1)"),
        ({"a": 7}, "'a': expected an array with one value per row, found 7 of type int"),
        ({"a": "text"}, "'a': expected an array with one value per row, found 'text' of type str"),
        ({"a": [1, "x"]}, "'a', row 1: "),
        ({"a": [object()]}, "'a', row 0: "),
        ({"a": pd.Series([1, "x"], dtype=object)}, "'a', row 1"),
        ({1: [1]}, "name must be str; found 1"),
    ],
)
def test_a_mapping_that_is_no_table_is_a_schema_error(data, message):
    with pytest.raises(SchemaError) as caught:
        ingest(data)
    assert message in str(caught.value)


@pytest.mark.parametrize("data", [None, 7, "path", [1, 2], pd.Timestamp("2020")])
def test_anything_else_is_told_what_is_accepted(data):
    with pytest.raises(TypeError, match=r"pandas DataFrame.*mapping"):
        ingest(data)


def test_a_stream_that_is_no_table_is_a_schema_error():
    for column in (pa.array([1, 2]), pa.chunked_array([[1, 2]])):
        with pytest.raises(SchemaError, match=r"^the data: expected a table.*{\"name\": data}"):
            ingest(column)


def test_a_mapping_may_be_empty():
    assert ingest({}).rows == 0
