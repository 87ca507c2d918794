"""Everyday manners of a handle: what users of pandas type without thinking."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz

ZONE = "Europe/Berlin"
FRAME = pd.DataFrame(
    {
        "n": range(10),
        "day": pd.date_range("2026-01-01", periods=10),
        "local": pd.date_range("2026-01-01", periods=10, tz=ZONE),
        "date": [datetime.date(2026, 1, 1 + n) for n in range(10)],
        "word": list("abcdefghij"),
    }
)


@pytest.fixture
def path(tmp_path):
    FRAME.to_blz(tmp_path / "t.blz", durability="process")
    return tmp_path / "t.blz"


@pytest.fixture
def table(path):
    with blz.open(path) as t:
        yield t


def test_a_table_has_the_shape_and_the_columns_of_a_frame(table):
    assert table.shape == FRAME.shape
    assert table.columns == list(table) == list(FRAME)
    assert "n" in table
    assert "no" not in table
    assert 3 not in table
    part = table[["word", "n"]]
    assert (part.shape, list(part)) == ((10, 2), ["word", "n"])
    assert "day" not in part


@pytest.mark.parametrize("number", [3, -1, np.int64(3), np.uint8(9), -10])
def test_a_number_gives_a_row(table, number):
    assert table[number] == table.to_arrow().slice(number % 10, 1).to_pylist()[0]
    assert table[["n"]][number] == {"n": int(number) % 10}


@pytest.mark.parametrize("number", [10, -11, 1 << 70, np.uint64(2**64 - 1)])
def test_a_row_that_is_not_there_is_an_index_error(table, number):
    with pytest.raises(IndexError, match="of a table of 10 rows"):
        table[number]


@pytest.mark.parametrize("key", [True, 1.0, None, np.float64(1), np.bool_(True)])
def test_what_is_no_number_of_a_row_is_refused(table, key):
    with pytest.raises(TypeError, match="indexed by a column name"):
        table[key]


def test_a_row_of_columns_that_share_a_name_is_refused(tmp_path):
    blz.to_blz(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as t, pytest.raises(blz.SchemaError, match="share a name"):
        t[0]


def test_numpy_takes_a_table_for_a_matrix(table):
    numbers = table[["n"]]
    assert np.asarray(numbers).tolist() == [[n] for n in range(10)]
    assert np.asarray(numbers, dtype="f4").dtype == "f4"
    with pytest.raises(ValueError, match="always a copy"):
        np.asarray(numbers, copy=False)


def test_a_sample_has_each_row_at_most_once_in_stored_order(table):
    whole = table.to_arrow()
    for n in (0, 1, 4, 10, 1000):
        sample = table.sample(n, seed=n)
        rows = sample["n"].to_pylist()
        assert rows == sorted(set(rows))
        assert sample == whole.take(rows) if rows else sample.num_rows == 0
        assert len(rows) == min(n, 10)
    assert table.sample(4, ["word"], seed=1) == table.sample(4, seed=1).select(["word"])
    with pytest.raises(ValueError, match="n must"):
        table.sample(-1)


def test_exists_is_true_where_open_finds_a_table(tmp_path, path):
    assert blz.exists(path)
    assert blz.exists(str(path))
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_bytes(b"no table")
    for name in ("none", "other", "file"):
        assert not blz.exists(tmp_path / name)
        with pytest.raises(blz.BlzError):
            blz.open(tmp_path / name)
    FRAME.to_blz(tmp_path / "one.blz", storage=blz.Storage(layout="file"), durability="process")
    assert blz.exists(tmp_path / "one.blz")
    with pytest.raises(TypeError):
        blz.to_blz(object(), tmp_path / "half.blz")
    assert not blz.exists(tmp_path / "half.blz")


# Filters


def test_one_condition_needs_no_list(path):
    for filters in (("n", ">", 7), [("n", ">", 7)]):
        assert blz.read_blz(path, filters=filters)["n"].tolist() == [8, 9]
    with blz.open(path) as t:
        assert t.count(filters=("word", "in", ["a", "b"])) == 2


@pytest.mark.parametrize("column", ["day", "local", "date"])
@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
def test_a_text_stands_for_a_date_as_in_pandas(path, column, operator):
    found = blz.read_blz(path, filters=[(column, operator, "2026-01-08")])["n"]
    moments = pd.to_datetime(FRAME[column]) if column == "date" else FRAME[column]
    moment = pd.Timestamp("2026-01-08", tz=ZONE if column == "local" else None)
    name = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[operator]
    assert found.tolist() == FRAME["n"][getattr(moments, name)(moment)].tolist()


def test_texts_stand_for_dates_in_a_list_too(path):
    found = blz.read_blz(path, filters=[("local", "in", ["2026-01-08", "2026-01-02T00:00"])])
    assert found["n"].tolist() == [1, 7]
    found = blz.read_blz(path, filters=[("day", "not in", ["2026-01-08"])])
    assert len(found) == 9


@pytest.mark.parametrize("text", ["soon", "2026-13-01", ""])
def test_a_text_that_is_no_date_is_refused(path, text):
    with pytest.raises((blz.SchemaError, ValueError)):
        blz.read_blz(path, filters=[("day", ">", text)])


# Sort keys


def test_short_words_stand_for_directions(path):
    with blz.open(path, mode="a") as t:
        t.compact(sort_by=[("n", "desc")])
        assert t.storage.sort_by == [("n", "descending")]
        assert t["n"].to_numpy().tolist() == list(range(9, -1, -1))
        t.compact(sort_by=[("word", "asc")])
        assert t.storage.sort_by == [("word", "ascending")]


def test_attributes_are_cleared_by_one_commit(path):
    with blz.open(path, mode="a") as t:
        t.attrs.update(a=1, b=2)
        before = t.version
        t.attrs.clear()
        assert (dict(t.attrs), t.version) == ({}, before + 1)
