"""`rows=`: a run of rows of a version, in every form of a table and with every other option."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from golden.old_writer import write_table
from support import remote_places, small_tables, stored
from support.bit_equality import same_table

CUTS = blz.Storage(row_group_rows=24, page_rows=8)
ROWS = 60
# Whole row groups, parts of pages, nothing, and everything.
RUNS = [(0, 60), (0, 24), (5, 7), (20, 50), (24, 24), (59, 60), (60, 60), (0, 0)]


def frame():
    rows = np.arange(ROWS)
    return pd.DataFrame(
        {
            "n": rows,
            "x": np.where(rows % 5, rows / 4, np.nan),
            "word": pd.Categorical.from_codes(rows % 3, ["c", "a", "b"]),
            "text": [None if row % 7 == 3 else f"text {row}" for row in rows],
            "at": pd.date_range("2026-01-01", periods=ROWS, freq="h"),
        }
    )


INDICES = {
    "numbers": lambda one: one,
    "a step": lambda one: one.set_index(pd.RangeIndex(10, 10 + 3 * ROWS, 3, name="row")),
    "backwards": lambda one: one.set_index(pd.RangeIndex(ROWS, 0, -1)),
    "times": lambda one: one.set_index("at"),
    "levels": lambda one: one.set_index(["word", "n"]),
}
PLACES = ["directory", "file", "memory"]


def place_of(kind, tmp_path):
    return blz.MemoryStore() if kind == "memory" else tmp_path / "t.blz"


def storage_of(kind):
    return blz.Storage(row_group_rows=24, page_rows=8, layout="file" if kind == "file" else None)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("kind", PLACES)
def test_a_frame_of_some_rows_has_their_labels(tmp_path, kind, index):
    whole, place = INDICES[index](frame()), place_of(kind, tmp_path)
    blz.to_blz(whole, place, storage=storage_of(kind))
    for start, stop in RUNS:
        read = blz.read_blz(place, rows=(start, stop))
        pd.testing.assert_frame_equal(read, whole.iloc[start:stop], check_freq=False)
    with blz.open(place) as table:
        read = table.to_pandas(["text"], rows=(20, 50), filters=[("x", ">", 7)])
        expected = whole.iloc[20:50]
        pd.testing.assert_frame_equal(read, expected[expected["x"] > 7][["text"]])


@pytest.mark.parametrize("kind", PLACES)
def test_every_way_to_read_takes_the_same_rows(tmp_path, kind):
    whole, place = pa.Table.from_pandas(frame()), place_of(kind, tmp_path)
    blz.to_blz(whole, place, storage=storage_of(kind))
    where = (pc.field("x") > 3) & pc.field("text").is_valid()
    with blz.open(place) as table:
        for start, stop in RUNS:
            run = whole.slice(start, stop - start)
            for filters, kept in ((None, run), (where, run.filter(where))):
                options = {"filters": filters, "rows": (start, stop)}
                assert same_table(table.to_arrow(**options), kept)
                assert same_table(blz.read_table(place, **options), kept)
                assert table.count(**options) == kept.num_rows
                with table.to_batches(["n"], batch_rows=7, **options) as batches:
                    sizes, numbers = [], []
                    for batch in batches:
                        sizes.append(batch.num_rows)
                        numbers += batch["n"].to_pylist()
                assert numbers == kept["n"].to_pylist()
                assert max(sizes, default=0) <= 7


@pytest.mark.parametrize("name", ["numbers", "texts", "plain", "nested"])
def test_rows_of_any_type_are_those_of_the_whole_table(name):
    whole = small_tables.rows_of(name)
    with blz.open(small_tables.store_of(name)) as table:
        for start, stop in [(0, 3), (7, 31), (len(table) - 1, len(table))]:
            read = table.to_arrow(rows=(start, stop))
            assert same_table(read, whole.slice(start, stop - start))


def test_rows_are_those_that_are_not_deleted_of_the_version_that_is_open(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"n": range(ROWS), "k": [n % 4 for n in range(ROWS)]}, path, storage=CUTS)
    with blz.open(path, "a") as table:
        table.delete("k = 1 and n > 10")
        left = [n for n in range(ROWS) if not (n % 4 == 1 and n > 10)]
        for start, stop in RUNS:
            assert table.to_arrow(rows=(start, stop))["n"].to_pylist() == left[start:stop]
            among = [n for n in left[start:stop] if n >= 30]
            assert table.count(filters="n >= 30", rows=(start, stop)) == len(among)
            read = table.to_arrow(filters="n >= 30", rows=(start, stop))
            assert read["n"].to_pylist() == among
    assert blz.read_blz(path, rows=(11, 13), version=1)["n"].tolist() == [11, 12]


def test_a_transaction_reads_rows_that_it_has_changed(tmp_path):
    blz.to_blz({"n": range(ROWS)}, tmp_path / "t.blz", storage=CUTS)
    with blz.open(tmp_path / "t.blz", "a") as table, table.transaction() as changes:
        changes.delete("n < 30")
        changes.append({"n": range(100, 110)})
        assert changes.to_arrow(rows=(28, 33))["n"].to_pylist() == [58, 59, 100, 101, 102]
        assert changes.to_pandas(rows=(30, 31))["n"].tolist() == [100]
        assert changes.count(filters="n > 58", rows=(0, 32)) == 3
        assert table.to_arrow(rows=(28, 30))["n"].to_pylist() == [28, 29]


def test_a_field_of_a_struct_and_a_table_with_some_columns_take_rows():
    store = blz.MemoryStore()
    rows = pa.array([{"city": f"city {row}", "n": row} for row in range(ROWS)])
    blz.to_blz(pa.table({"at": rows, "x": range(ROWS)}), store, storage=CUTS)
    with blz.open(store) as table:
        assert table.to_arrow(["at.n"], rows=(23, 25))["at"].to_pylist() == [{"n": 23}, {"n": 24}]
        assert table[["x"]].to_pandas(rows=(23, 25)).index.tolist() == [23, 24]


def test_rows_of_a_remote_table_ask_for_their_pages_only(tmp_path, s3):
    draw = np.random.default_rng(0)
    whole = pa.table({"n": draw.integers(0, 1 << 60, 400_000)})
    blz.to_blz(whole, tmp_path / "t.blz")
    remote_places.put_table(s3, tmp_path / "t.blz", "t.blz")
    url, options = "s3://bucket/t.blz", remote_places.options_of(s3)
    with blz.open(url, storage_options=options) as table, s3.recorded() as log:
        assert table.to_arrow(rows=(200_000, 200_010)).equals(whole.slice(200_000, 10))
    assert log.rounds == 1
    assert log.sent < 400_000


def test_damage_outside_of_the_rows_is_not_met(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"n": range(90)}, path, storage=blz.Storage(row_group_rows=30, encoding="plain"))
    with blz.open(path) as table:
        (path / stored.key(table, "n", 1)).unlink()
        assert table.to_arrow(rows=(60, 90))["n"].to_pylist() == [*range(60, 90)]
        assert table.count(filters="n >= 0", rows=(0, 30)) == 30
        with pytest.raises(blz.CorruptError, match="the file is missing"):
            table.to_arrow(rows=(59, 61))
        with pytest.warns(UserWarning, match="30 to 60"):
            read = table.to_pandas(rows=(20, 70), on_corrupt="skip")
    assert read.index.tolist() == [*range(20, 30), *range(60, 70)]


def test_rows_of_a_table_of_another_program_are_those_of_its_frame(tmp_path):
    columns = {"n": np.arange(ROWS), "x": np.arange(ROWS) / 4}
    write_table(tmp_path / "old", columns, {"n": 7, "x": 11}, {}, is_blz=False, default=None)
    with blz.open(tmp_path / "old") as table:
        for start, stop in RUNS:
            read = table.to_pandas(rows=(start, stop))
            pd.testing.assert_frame_equal(read, pd.DataFrame(columns).iloc[start:stop])
        assert table.count(filters="n > 20", rows=(10, 30)) == 9
        with table.to_batches(["n"], rows=(5, 9)) as batches:
            assert pa.Table.from_batches(batches)["n"].to_pylist() == [5, 6, 7, 8]


def test_rows_behind_the_end_are_left_out_and_others_are_refused():
    store = blz.MemoryStore()
    blz.to_blz({"n": range(ROWS)}, store)
    with blz.open(store) as table:
        assert table.to_arrow(rows=(58, 1 << 70))["n"].to_pylist() == [58, 59]
        assert table.count(rows=(np.int64(70), 80)) == 0
        for read in (table.to_arrow, table.to_pandas, table.to_batches, table.count):
            for wrong in ((-1, 5), (5, 4)):
                with pytest.raises(ValueError, match="0 <= first <= after"):
                    read(rows=wrong)
            for wrong in (5, (1,), (1, 2, 3), slice(1, 2), range(5), "12", (1, 2.5), (True, 2)):
                with pytest.raises(TypeError, match=r"rows must be|must be an integer"):
                    read(rows=wrong)
