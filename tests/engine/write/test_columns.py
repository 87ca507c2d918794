"""Writing row groups: the numbers of their files."""

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.run.pool import Progress
from blztable.engine.write.column_writer import ColumnWriter
from blztable.engine.write.columns import write_groups
from blztable.storage.memory import RamStore

ROWS = pa.table({"n": [1, 2, 3]})


def written(store, column, parts):
    """Write these tables as row groups of one column."""
    groups = [(table, table.num_rows) for table in parts]
    write_groups(store, [column], groups, blz.Storage(), Progress(None, None, 1))
    return column


def test_the_files_of_a_new_column_are_numbered_from_1():
    store = RamStore()
    column = written(store, ColumnWriter((7,), "n", pa.int64()), [ROWS, ROWS])
    assert store.list_names("data/col7") == ["__1__.bin", "__2__.bin"]
    assert column.next_k == 3


def test_a_column_that_is_there_goes_on_at_its_next_number():
    store = RamStore()
    column = written(store, ColumnWriter((7,), "n", pa.int64(), first_k=5), [ROWS, ROWS])
    assert sorted(store.list_names("data/col7")) == ["__5__.bin", "__6__.bin"]
    assert column.finish().k == (5, 6)
    assert column.next_k == 7


@pytest.mark.parametrize("parts", [[], [pa.table({"n": pa.nulls(3)})]])
def test_numbers_are_not_given_back_by_a_write_that_used_none(parts):
    column = written(RamStore(), ColumnWriter((7,), "n", pa.null(), first_k=5), parts)
    assert column.file_numbers == []
    assert column.next_k == 5


def test_a_number_that_another_writer_took_is_passed_over():
    store = RamStore()
    store.put_new("data/col7/__5__.bin", [b"another writer's"])
    column = written(store, ColumnWriter((7,), "n", pa.int64(), first_k=5), [ROWS])
    assert column.finish().k == (6,)
    assert column.next_k == 7
    assert store.get("data/col7/__5__.bin") == b"another writer's"
