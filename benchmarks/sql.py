"""Queries of DuckDB and Polars over a dataset, beside the same over Parquet, as a command.

    PYTHONPATH=. python benchmarks/sql.py [ROWS]

Sales of a shop, in the order of their days: 10,000,000 rows of seven columns. Each query is made
over all forms in turn, some rounds; the table has the median time of each, and in brackets that of
the processor. The last form is what a dataset hands over, read beforehand: no dataset of text can
be faster than an engine is there.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import blztable as blz

ROWS, ROUNDS = 10_000_000, 5
FORMS = ("blztable", "dictionaries", "views", "Parquet", "Arrow in memory")
REGIONS = ["north", "south", "east", "west", "centre", "overseas", "islands", "abroad"]


def sales(rows: int) -> pa.Table:
    """Return the rows."""
    rng = np.random.default_rng(0)
    day = np.sort(rng.integers(0, 365, rows)).astype("M8[D]") + np.timedelta64(20_000, "D")
    skus = pa.array([f"SKU-{number:05d}" for number in range(5_000)])
    picked = pa.DictionaryArray.from_arrays(rng.integers(0, 8, rows).astype("i4"), REGIONS)
    sold = pa.DictionaryArray.from_arrays(rng.integers(0, 5_000, rows).astype("i4"), skus)
    return pa.table(
        {
            "day": day,
            "cust": rng.integers(0, 200_000, rows),
            "region": picked.cast(pa.string()),
            "sku": sold.cast(pa.string()),
            "qty": rng.integers(1, 20, rows).astype("i4"),
            "price": rng.integers(100, 50_000, rows) / 100,
            "paid": rng.random(rows) < 0.97,
        }
    )


DAY = "date '2025-01-15'"
SQL = {
    "count(*)": "select count(*) from {t}",
    "sum by region (text)": "select region, sum(price) from {t} group by region",
    "count by sku (text)": "select sku, count(*) from {t} group by sku",
    "like 'SKU-001%'": "select count(*) from {t} where sku like 'SKU-001%'",
    "join with 200,000 customers": "select sum(price * c.rate) from {t} join c using (cust)",
    "order by price limit 5": "select * from {t} order by price desc limit 5",
    "distinct customers": "select count(distinct cust) from {t}",
    "filter by day": f"select sum(price) from {{t}} where day = {DAY}",
    "one customer": "select * from {t} where cust = 77",
}
FRAMES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "Polars: sum by region": lambda f: f.group_by("region").agg(pl.col("price").sum()),
    "Polars: count by sku": lambda f: f.group_by("sku").len(),
    "Polars: filter by day": lambda f: f.filter(pl.col("day") == pl.date(2025, 1, 15)).select(
        pl.col("price").sum()
    ),
    "Polars: one customer": lambda f: f.filter(pl.col("cust") == 77),
}


def queries(folder: Path) -> dict[str, dict[str, Callable[[], object]]]:
    """Return each query over each form of the table."""
    connection = duckdb.connect()
    cust = np.arange(200_000)
    connection.register("c", pa.table({"cust": cust, "rate": cust % 7 / 7}))
    path = folder / "sales.blz"
    whole, coded = blz.dataset(path), blz.dataset(path, dictionaries="auto")
    views = blz.dataset(path, views=True)
    kept = whole.to_table()
    for name, data in (("whole", whole), ("coded", coded), ("views", views), ("kept", kept)):
        connection.register(name, data)
    parquet = folder / "sales.parquet"
    places = dict(zip(FORMS, ("whole", "coded", "views", f"'{parquet}'", "kept"), strict=True))
    frames = (
        *map(pl.scan_pyarrow_dataset, (whole, coded, views)),
        pl.scan_parquet(parquet),
        pl.DataFrame(kept).lazy(),
    )

    def asked(sql: str) -> Callable[[], object]:
        return lambda: connection.sql(sql).fetchall()

    def collected(frame: pl.LazyFrame) -> Callable[[], object]:
        return frame.collect

    found: dict[str, dict[str, Callable[[], object]]] = {
        name: {form: asked(sql.format(t=place)) for form, place in places.items()}
        for name, sql in SQL.items()
    }
    for name, query in FRAMES.items():
        found[name] = {
            form: collected(query(frame)) for form, frame in zip(FORMS, frames, strict=True)
        }
    return found


def main(rows: int = ROWS) -> None:
    """Print the table of times, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = sales(rows)
        blz.to_blz(table, folder / "sales.blz")
        pq.write_table(table, folder / "sales.parquet", compression="zstd")
        del table
        print("| query |", " | ".join(FORMS), "|\n| --- |", "---: |" * len(FORMS))
        for query, asks in queries(folder).items():
            times: dict[str, list[tuple[float, float]]] = {form: [] for form in asks}
            for _ in range(ROUNDS):
                for form, ask in asks.items():
                    start, work = perf_counter(), process_time()
                    ask()
                    times[form].append((perf_counter() - start, process_time() - work))
            cells = (np.median(one, axis=0) * 1e3 for one in times.values())
            print(
                f"| {query} |", " | ".join("{:.1f} ({:.0f})".format(*cell) for cell in cells), "|"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
