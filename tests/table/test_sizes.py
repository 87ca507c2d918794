"""Tables of unusual sizes: very wide, very long, no row, one row, one value of 3 GiB."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage.local import LocalStore
from blztable.table.names import named_with_fields
from support.arrow_strategies import PLAIN
from support.bit_equality import same, same_table


class CountingStore(LocalStore):
    """A store that counts the column files that are opened."""

    def __init__(self, path):
        super().__init__(path)
        # A list, because threads that increment a number lose counts.
        self._keys = []

    @property
    def opened(self):
        return len(self._keys)

    def open(self, key, size=None):
        # An open that fails for want of descriptors is repeated.
        file = super().open(key)
        if key.startswith("data/"):
            self._keys.append(key)
        return file


# Width and length


def wide(columns: int) -> pa.Table:
    return pa.table({f"c{i}": pa.array([i, i + 1], "i4") for i in range(columns)})


def check_width(path, columns: int) -> None:
    table = wide(columns)
    blz.to_blz(table, path, durability="process")
    store = CountingStore(path)
    with blz.open(store) as opened:
        assert opened.schema == table.schema
        assert len(repr(opened).splitlines()) < 50
        name = f"c{columns // 2}"
        assert opened[name].to_arrow() == table[name]
        assert store.opened == 1
        assert opened.to_arrow([name, "c0"]) == table.select([name, "c0"])


def test_a_table_of_5_000_columns_is_written_and_read(tmp_path):
    check_width(tmp_path / "t.blz", 5000)
    assert blz.read_table(tmp_path / "t.blz") == wide(5000)
    with blz.open(tmp_path / "t.blz") as table:
        assert table.head(1) == wide(5000).slice(0, 1)
        assert table.to_pandas().shape == (2, 5000)


@pytest.mark.storm
class CountedSchema:
    """A schema that counts how often its names are listed, which takes time for each column."""

    def __init__(self, names):
        self._names = names
        self.lists = 0

    @property
    def names(self):
        self.lists += 1
        return list(self._names)


# Bug: one column of 5,000 took seconds, because the names were listed once for each column.
def test_the_names_are_not_listed_once_for_each_column():
    schema = CountedSchema([f"c{i}" for i in range(100)])
    version = SimpleNamespace(schema=schema)
    assert named_with_fields(version, ["c7", "c3"], range(100)) == ([], [7, 3])
    assert schema.lists < 5


def test_a_table_of_50_000_columns_is_written_and_one_is_read(tmp_path):
    check_width(tmp_path / "t.blz", 50_000)


def check_groups(path, columns: int) -> None:
    table = pa.table({f"c{i}": np.arange(10_000) * (i + 1) for i in range(columns)})
    blz.to_blz(table, path, storage=blz.Storage(row_group_rows=1), durability="process")
    store = CountingStore(path)
    with blz.open(store) as opened:
        assert opened["c0"].to_arrow().combine_chunks() == table["c0"].combine_chunks()
        assert store.opened == 10_000
        assert opened["c0"][9_998:].to_pylist() == [9_998, 9_999]
        # Files that were opened are known.
        assert store.opened <= 10_002
        assert len(opened) == 10_000


def test_a_table_of_10_000_row_groups_is_written_and_read(tmp_path):
    check_groups(tmp_path / "t.blz", 1)


@pytest.mark.storm
def test_a_table_of_10_000_row_groups_of_16_columns_is_written_and_one_column_read(tmp_path):
    check_groups(tmp_path / "t.blz", 16)


# No rows, one row


def value_of(type_: pa.DataType) -> pa.Array:
    """Return an array of one non-null value, with all bytes 0x01 if the type allows any bytes."""
    if pa.types.is_null(type_):
        return pa.nulls(1)
    if type_ in (pa.string(), pa.large_string(), pa.string_view()):
        return pa.array(["ä"], type_)
    if type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return pa.array([b"\xff"], type_)
    width = max(type_.bit_width // 8, 1)
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(b"\1" + bytes(width - 1))])


def all_kinds(rows: int) -> pa.Table:
    """Return a table with a value, a null and a dictionary column of every type."""
    columns = {}
    for number, type_ in enumerate(PLAIN):
        value = value_of(type_)
        columns[f"value {number}"] = value
        columns[f"null {number}"] = pa.nulls(1, type_)
        code = pa.array([0], "i1")
        columns[f"dictionary {number}"] = pa.DictionaryArray.from_arrays(code, value)
    return pa.table(columns).slice(0, rows)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_row_or_one_is_read_by_every_verb(tmp_path, rows):
    table, path = all_kinds(rows), tmp_path / "t.blz"
    blz.to_blz(table, path)
    assert same_table(blz.read_table(path), table)
    with blz.open(path) as opened:
        assert len(opened) == len(opened) == rows
        assert ("0 rows", "1 row")[rows] in repr(opened)
        assert same_table(opened.to_arrow(), table)
        assert same_table(opened.head(), table)
        assert same_table(opened.head(0), table.slice(0, 0))
        assert same_table(opened[table.column_names].to_arrow(), table)
        assert same_table(pa.table(opened), table)
        for name in table.column_names:
            wanted, column = table[name], opened[name]
            assert same(column.to_arrow(), wanted)
            assert len(column) == rows
            assert same(column[:], wanted.combine_chunks())
            assert same(column[1:], wanted.combine_chunks().slice(rows))
            for row in (rows, -rows - 1):
                with pytest.raises(IndexError):
                    column[row]
            assert rows == 0 or column[0] == wanted[0].as_py()


@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_row_or_one_becomes_the_frame_that_arrow_makes_of_it(tmp_path, rows, backend):
    frame = pd.DataFrame(
        {
            "i": [1],
            "f": [0.5],
            "b": [True],
            "s": ["ä"],
            "o": [b"x"],
            "t": [pd.Timestamp("2020-01-02", tz="UTC")],
            "d": [pd.Timedelta(1)],
            "c": pd.Categorical(["x"]),
            "m": pd.array([None], "Int64"),
        }
    ).iloc[:rows]
    options = {} if backend is None else {"dtype_backend": backend}
    for index in (None, "s", ["s", "t"]):
        indexed = frame if index is None else frame.set_index(index)
        indexed.to_blz(tmp_path / "t.blz")
        back = blz.read_blz(tmp_path / "t.blz", **options)
        assert back.shape == indexed.shape
        assert back.index.names == indexed.index.names
        if backend is None:
            pd.testing.assert_frame_equal(back, indexed)
        with blz.open(tmp_path / "t.blz") as table:
            for name in indexed.columns:
                series = table[name].to_pandas(**options)
                pd.testing.assert_series_equal(series, back[name])
                assert len(table[name].to_numpy()) == rows


def test_a_table_without_rows_and_columns_is_a_table(tmp_path):
    for data in (pa.table({}), pd.DataFrame(), {}):
        blz.to_blz(data, tmp_path / "t.blz")
        assert blz.read_table(tmp_path / "t.blz").shape == (0, 0)
        assert blz.read_blz(tmp_path / "t.blz").shape == (0, 0)


# One value larger than 32-bit offsets can count


HUGE = 3 << 30


@pytest.mark.storm
@pytest.mark.parametrize("type_", [pa.large_string(), pa.large_binary()], ids=str)
def test_a_value_of_3_gib_among_small_ones_comes_back(tmp_path, type_):
    data = np.full(HUGE + 8, ord("a"), np.uint8)
    data[HUGE - 5 :: 7] = ord("z")
    ends = np.array([0, 3, 3, HUGE + 3, HUGE + 3, HUGE + 8], "<i8")
    present = pa.py_buffer(bytes([0b10111]))
    column = pa.Array.from_buffers(type_, 5, [present, pa.py_buffer(ends), pa.py_buffer(data)])
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({"n": range(5), "a": column}), path, durability="process")
    with blz.open(path) as table:
        assert table.schema.field("a").type == type_
        back = table["a"].to_arrow()
        assert back.is_null().to_pylist() == [False, False, False, True, False]
        lengths = pa.compute.binary_length(back).to_pylist()
        assert lengths == [3, 0, HUGE, None, 5]
        assert b"".join(as_bytes(back.slice(row, 1)) for row in (0, 1)) == b"aaa"
        assert as_bytes(back.slice(4, 1)) == data[-5:].tobytes()
        rows = itertools.accumulate([0, *map(len, back.chunks)])
        chunk, first = next(
            (chunk, first)
            for chunk, first in zip(back.chunks, rows, strict=False)
            if first <= 2 < first + len(chunk)
        )
        start = np.frombuffer(chunk.buffers()[1], "<i8")[chunk.offset + 2 - first]
        assert np.array_equal(
            np.frombuffer(chunk.buffers()[2], np.uint8, HUGE, start), data[3 : HUGE + 3]
        )
        del back, chunk
        assert as_bytes(table["a"][4:]) == data[-5:].tobytes()


def as_bytes(column) -> bytes:
    return b"".join(column.cast(pa.large_binary()).to_pylist())


@pytest.mark.storm
def test_a_list_with_a_value_of_3_gib_is_refused_before_anything_is_there(tmp_path):
    with pytest.raises(blz.SchemaError, match=r"column 'a'.*bytes"):
        blz.to_blz({"a": [bytes(HUGE)]}, tmp_path / "t.blz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", ["directory", "file"])
@pytest.mark.parametrize("encoding", ["auto", "plain"])
def test_row_groups_are_listed_with_their_rows_and_sizes(tmp_path, layout, encoding):
    rows = pa.table({"n": range(100), "s": [{"a": i, "b": ["x"] * (i % 3)} for i in range(100)]})
    path = tmp_path / "t.blz"
    blz.to_blz(rows, path, storage=blz.Storage(row_group_rows=40, layout=layout, encoding=encoding))
    with blz.open(path, mode="a") as t:
        assert [(one.start, one.stop) for one in t.row_groups] == [(0, 40), (40, 80), (80, 100)]
        for shown in (t, t[["s"]], t[["s.b", "n"]]):
            groups = shown.row_groups
            assert sum(one.nbytes for one in groups) == shown.nbytes
            assert sum(one.cbytes for one in groups) == shown.cbytes
        assert t[["n"]].row_groups[2].nbytes == 160
        t.delete([("n", "<", 10)])
        assert [(one.start, one.stop) for one in t.row_groups] == [(0, 30), (30, 70), (70, 90)]
        found = [t[one.start : one.stop]["n"].to_pylist() for one in t.row_groups]
        assert found == [[*range(10, 40)], [*range(40, 80)], [*range(80, 100)]]
        t.resize(0)
        assert t.row_groups == []
