"""Writing row groups: the numbers of their files, and what the files and the records say."""

from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.nested.nodes import Node
from blztable.engine.run.pool import Progress
from blztable.engine.version.schema import paths_of
from blztable.engine.write.column_writer import ColumnWriter, writers_of
from blztable.engine.write.columns import write_groups
from blztable.format import layout
from blztable.format.data_file import DataFile
from blztable.format.records import stack
from blztable.storage.memory import RamStore
from support import arrow_strategies

ROWS = pa.table({"n": [1, 2, 3]})
UUID = "a table"


class Numbers:
    """The numbers of files, from the first one on."""

    def __init__(self, first=1):
        self._numbers = count(first)

    def next(self):
        return next(self._numbers)


def written(store, columns, tables, first=1, bundles=None, storage=None):
    """Write these tables as row groups."""
    groups = [(table, table.num_rows) for table in tables]
    progress = Progress(None, None, len(columns))
    storage = storage or blz.Storage()
    return write_groups(
        store, UUID, columns, groups, storage, progress, Numbers(first), None, bundles
    )


def writers(schema):
    columns, first = [], 0
    for field in schema:
        columns += writers_of(field, paths_of(field.type, (first,)))
        first += Node.of(field.type).count
    return columns


def of_one_column(store, tables, type_=None, **options):
    column = ColumnWriter((7,), "n", type_ or pa.int64())
    written(store, [column], tables, **options)
    return column


def test_files_are_numbered_one_after_the_other_over_all_columns():
    store = RamStore()
    table = pa.table({"n": [1, 2, 3], "m": [1, 2, 3]})
    columns = writers(table.schema)
    new = written(store, columns, [table, table], first=5)
    assert [column.finish().parts["file"].tolist() for column in columns] == [[5, 7], [6, 8]]
    assert store.list_names("data/col0") == ["__5__.bin", "__7__.bin"]
    assert (new.rows, new.bundles) == ([3, 3], [0, 0])


def test_parts_without_bytes_have_no_file():
    for tables in [], [pa.table({"n": pa.nulls(3)})]:
        column = of_one_column(RamStore(), tables, pa.null())
        assert column.file_numbers == []
        assert column.finish().parts["file"].tolist() == [0] * len(tables)
        assert column.finish().entries == len(tables)


def test_a_number_that_another_writer_took_is_passed_over():
    store = RamStore()
    store.put_new("data/col7/__5__.bin", [b"another writer's"])
    column = of_one_column(store, [ROWS], first=5)
    assert column.finish().parts["file"].tolist() == [6]
    assert store.get("data/col7/__5__.bin") == b"another writer's"
    assert DataFile.decode(store.get("data/col7/__6__.bin")).number == 6


def test_a_bundle_has_a_number_like_any_file():
    store, bundles = RamStore(), []
    table = pa.table({"n": [1, 2, 3], "m": [1, 2, 3]})
    store.put_new(layout.part(layout.SHARED, 5), [b"another writer's"])
    columns = writers(table.schema)
    new = written(store, columns, [table, table], first=5, bundles=bundles)
    assert sorted(new.bundles) == sorted(bundles) == [6, 7]
    assert [column.finish().parts["file"].tolist() for column in columns] == [new.bundles] * 2


TYPES = [type_ for type_ in arrow_strategies.PLAIN if not pa.types.is_null(type_)]


@given(
    st.data(),
    st.lists(st.sampled_from(TYPES), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([None, "per_item"]),
)
def test_files_say_the_same_records_as_the_writers(data, types, is_bundled, packing):
    rows = data.draw(st.integers(1, 20))
    arrays = [data.draw(arrow_strategies.arrays(type_, rows)) for type_ in types]
    table = pa.table(arrays, [f"c{number}" for number in range(len(arrays))])
    store, bundles, columns = RamStore(), [] if is_bundled else None, writers(table.schema)
    storage = blz.Storage(packing=packing)
    written(store, columns, [table], bundles=bundles, storage=storage)
    files = [(column.path, number) for column in columns for number in column.file_numbers]
    files += [(layout.SHARED, number) for number in bundles or ()]
    named = 0
    for path, number in files:
        file = DataFile.decode(store.get(layout.part(path, number)))
        own = [one for one in columns if one.parts[0].parts["file"][0] == number]
        assert (file.uuid, file.number) == (UUID, number)
        assert file.nodes == tuple(column.path for column in own)
        records = stack([column.finish().check() for column in own])
        for said, known in zip(file.records.arrays, records.arrays, strict=True):
            assert np.array_equal(said, known)
        named += len(own)
    unnamed = [one for one in columns if one.parts[0].parts["file"][0] == 0]
    assert named + len(unnamed) == len(columns)


@pytest.mark.parametrize(("rows", "chunks"), [(1, 1), (20_000, 1), (80_000, 5), (100_001, 6)])
def test_chunks_have_about_one_size(rows, chunks):
    values = np.random.default_rng(0).random(rows)
    column = of_one_column(RamStore(), [pa.table({"n": values})], pa.float64())
    records = column.finish()
    (stream,) = records.streams
    assert len(records.chunks) == chunks
    assert stream["chunk"] % 64 == 0 or chunks == 1
    assert stream["nbytes"] - stream["chunk"] * (chunks - 1) > stream["chunk"] * 0.9
