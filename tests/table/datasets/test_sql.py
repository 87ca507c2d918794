"""SQL over tables: the rows are those of any other read, and DuckDB knows how many there are."""

import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.table.datasets import sql

ROWS = 20_000
SALES = pa.table(
    {
        "shop": pa.array([n % 50 for n in range(ROWS)], "i8"),
        "word": [f"word {n % 7}" for n in range(ROWS)],
        "sold": [None if n % 11 == 0 else n % 100 for n in range(ROWS)],
    }
)
SHOPS = pa.table({"shop": pa.array(range(50), "i8"), "city": [f"city {n % 3}" for n in range(50)]})


@pytest.fixture(params=["directory", "file", "memory"])
def sales(request, tmp_path):
    place = blz.MemoryStore() if request.param == "memory" else tmp_path / "sales.blz"
    layout = "file" if request.param == "file" else None
    blz.to_blz(SALES, place, storage=blz.Storage(layout=layout))
    return place


def test_a_table_is_queried_as_itself(sales):
    with blz.open(sales, "a") as table:
        found = table.sql("select word, sum(sold) as s from self group by word order by word")
        expected = SALES.to_pandas().groupby("word", as_index=False).agg(s=("sold", "sum"))
        pd.testing.assert_frame_equal(found.df(), expected, check_dtype=False)
        table.delete("word = 'word 3'")
        assert table.sql("select count(*) from self where word like '%3'").fetchall() == [(0,)]
        with table.transaction() as changes:
            changes.delete("sold > 50")
            assert changes.sql("select max(sold) from self").fetchall() == [(50,)]


def test_tables_and_paths_are_joined_by_their_names(sales, tmp_path):
    blz.to_blz(SHOPS, tmp_path / "shops.blz")
    query = "select city, count(*) from s join c using (shop) where word = 'word 1' group by 1"
    frame = SALES.to_pandas().merge(SHOPS.to_pandas())
    expected = frame[frame["word"] == "word 1"].groupby("city").size().to_dict()
    with blz.open(sales) as table:
        assert dict(blz.sql(query, s=table, c=tmp_path / "shops.blz").fetchall()) == expected
    # The version of a path stays as long as the result.
    found = blz.sql("select max(shop) from c", c=tmp_path / "shops.blz")
    with blz.open(tmp_path / "shops.blz", "a") as table:
        table.delete("shop > 10")
        table.vacuum(keep=1)
    assert found.fetchall() == [(49,)]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_join_builds_from_the_smaller_side_where_duckdb_asks_for_the_rows(
    tmp_path, is_known, monkeypatch
):
    blz.to_blz(SALES, tmp_path / "s.blz")
    blz.to_blz(SHOPS, tmp_path / "c.blz")
    if not is_known:
        usual = sql.importlib.import_module

        def imported(name):
            if name != "duckdb":
                raise ImportError(name)
            return usual(name)

        monkeypatch.setattr(sql.importlib, "import_module", imported)
    tables = {"s": tmp_path / "s.blz", "c": tmp_path / "c.blz"}
    found = blz.sql("select count(*) from s join c using (shop)", **tables)
    assert found.fetchall() == [(ROWS,)]
    plan = blz.sql("select * from s join c using (shop)", **tables).explain()
    assert ("20,000" in plan) == is_known


def test_what_cannot_be_queried_is_told(tmp_path, monkeypatch):
    half = pa.table({"h": pa.nulls(2, pa.float16()), "k": [1, 2]})
    blz.to_blz(half, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as table:
        with pytest.raises(blz.SchemaError, match=r"t.blz: DuckDB lacks a type of this table"):
            table.sql("select k from self")
        assert table[["k"]].sql("select sum(k) from self").fetchall() == [(3,)]
        monkeypatch.setattr(sql.importlib, "import_module", missing)
        with pytest.raises(ImportError, match=r"pip install 'blztable\[sql\]'"):
            table.sql("select k from self")
    with pytest.raises(blz.TableNotFoundError):
        blz.sql("select 1 from x", x=tmp_path / "nothing.blz")


def missing(name):
    raise ImportError(name)
