"""Maps whose fields have other names, as those that a Parquet file gives them."""

import io

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import blztable as blz
from blztable.storage.memory import MemoryStore

MAP = pa.map_(pa.string(), pa.int64())
TABLE = pa.table(
    {
        "map": pa.array([[("a", 1)], None], MAP),
        "list": pa.array([[[("a", 1)]], []], pa.list_(MAP)),
        "struct": pa.array([{"m": [("k", 2)]}, None], pa.struct([("m", MAP)])),
    }
)
NAMED = pa.map_(pa.field("kk", pa.string(), nullable=False), pa.field("vv", pa.int64()))


@pytest.fixture
def file():
    buffer = io.BytesIO()
    pq.write_table(TABLE, buffer)
    buffer.seek(0)
    return buffer


def is_normal(schema):
    """True if maps have the names that Arrow writes."""
    again = pa.ipc.read_schema(schema.serialize())
    return schema.equals(again, check_metadata=True)


def test_a_table_that_was_parquet_is_stored(file):
    found = pq.read_table(file)
    assert not is_normal(found.schema)
    store = MemoryStore()
    blz.to_blz(found, store)
    with blz.open(store, "a") as table:
        assert is_normal(table.schema)
        table.append(found)
        table.add_column("more", pa.concat_tables([found, found])["map"])
        table.alter_column("map", dtype=found.schema.field("map").type)
        assert table.to_arrow().select(TABLE.column_names).equals(pa.concat_tables([TABLE, TABLE]))
        assert table["more"][:].to_pylist() == 2 * TABLE["map"].to_pylist()
        assert is_normal(table.schema)
        assert table.verify()


def test_a_file_of_parquet_streams_in(file):
    store = MemoryStore()
    blz.to_blz(pq.ParquetFile(file), store)
    assert blz.read_table(store).equals(TABLE)


def test_other_names_of_any_maker_are_made_normal():
    values = pa.array([[("a", 1)]], NAMED)
    series = pd.Series(values, dtype=pd.ArrowDtype(NAMED))
    for data in (pa.table({"x": values}), pd.DataFrame({"x": series})):
        store = MemoryStore()
        blz.to_blz(data, store)
        assert blz.read_table(store)["x"].to_pylist() == [[("a", 1)]]
    with blz.create(MemoryStore(), pa.schema([("x", NAMED)])) as table:
        table.append({"x": values})
        assert is_normal(table.schema)
        assert table["x"][:].to_pylist() == [[("a", 1)]]
