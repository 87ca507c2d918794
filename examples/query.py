"""Asking a table: who of one carrier's flights on one day came more than two hours late, and where?

Of the flights that left New York in 2013 only those rows are read that may be of the answer:

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
        # What belongs together lies together, so statistics can tell what need not be read. So few
        # rows in a row group and a page are for a table as small as this one.
        order = ["carrier", "month", "day"]
        blz.to_blz(read_flights(), path, sort_by=order, row_group_rows=1 << 14, page_rows=1024)

        with blz.open(path) as t:
            that_day = [("carrier", "==", CARRIER), ("month", "==", MONTH), ("day", "==", DAY)]
            late = [*that_day, ("arr_delay", ">", 120)]
            columns = ["flight", "dest", "arr_delay"]
            found = t.to_pandas(columns, filters=late)
            print(f"{len(found)} of {t.count(filters=that_day)} flights of {CARRIER} came late:\n")
            print(found.nlargest(5, "arr_delay").to_string(index=False))
            print("\nby destination, in minutes:\n")
            delays = found.groupby("dest")["arr_delay"].agg(["count", "mean"]).round()
            print(delays.nlargest(5, "count").to_string())

            print("\nwhat was read for it at most:\n")
            print(t.explain(columns, filters=late))


if __name__ == "__main__":
    main()
