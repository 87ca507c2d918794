"""A week in a staging table: appends each day, a late correction, an erased tail number.

The data are the first flights of 2013 that left New York:

    pip install ".[examples]" && python examples/staging.py
"""

import tempfile
from pathlib import Path

import pandas as pd
from flights import read_flights

import blztable as blz

KEY = ["month", "day", "carrier", "flight", "origin"]


def main() -> None:
    flights = read_flights()
    week = flights[(flights["month"] == 1) & (flights["day"] <= 7)].drop_duplicates(KEY)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "staging.blz"
        fill(path, week)
        correct(path, week)
        erase(path)
        look(path)


def fill(path: Path, week: pd.DataFrame) -> None:
    """Append each day in a few pieces, each once, even if its job is run again."""
    for day, rows in week.groupby("day"):
        for part in range(3):
            piece = rows.iloc[part::3].reset_index(drop=True)
            job = f"2013-01-{day:02}/{part}"
            for _ in range(2):  # The second run finds that the first one has committed.
                blz.to_blz(piece, path, mode="a", commit_id=job)
    with blz.open(path, mode="a") as t:
        assert len(t) == len(week)
        print(f"seven days: {len(t):,} flights in {len(t.versions())} versions that are kept")
        t.tags["as delivered"] = t.version


def correct(path: Path, week: pd.DataFrame) -> None:
    """Take late corrections: new delays of some flights, and a whole day anew."""
    late = week[week["day"] == 6].head(100).assign(arr_delay=0.0)
    extra = late.head(1).assign(flight=99_999)
    anew = week[week["day"] == 7].assign(tailnum="N00000")
    with blz.open(path, mode="a") as t:
        print("corrections:", t.upsert(pd.concat([late, extra]), on=KEY, index=False))
        print("day 7 anew:", t.append(anew, replace_where="month = 1 and day = 7", index=False))
        found = t.diff("as delivered").rows()
        print(
            f"since delivery {found.removed.num_rows:,} flights went, {found.added.num_rows:,} came"
        )


def erase(path: Path) -> None:
    """Erase a tail number from all versions."""
    with blz.open(path, mode="a") as t:
        print("erased:", t.delete([("tailnum", "==", "N14228")]))
        t.tags.clear()
        t.vacuum(keep=1)
        assert t.count(filters=[("tailnum", "==", "N14228")]) == 0
        assert len(t.versions()) == 1


def look(path: Path) -> None:
    """Look at the table: what it holds, what it takes, and whether it is whole."""
    with blz.open(path) as t:
        print("\n" + t.describe(["day", "carrier", "tailnum", "arr_delay"]).to_string())
        print(f"\non disk: {t.disk_usage()}")
        assert t.verify().is_intact


if __name__ == "__main__":
    main()
