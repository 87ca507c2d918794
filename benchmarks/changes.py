"""Changes of rows, for asv and as a command: delete, update, upsert and replacement of a day.

    asv run --python=same --bench changes
    PYTHONPATH=. python benchmarks/changes.py

2,000,000 rows of four columns that grow by `id`; 1,500 keys are the newest ones, of which 500 are
new, or lie anywhere. The clock of the wall is what counts; that of the processor tells on a busy
machine how much of it is work.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

import blztable as blz

ROWS, KEYS, DAYS = 2_000_000, 1_500, 200


def table(ids: np.ndarray, seed: int = 0) -> pa.Table:
    """Return rows with these ids; a day has 10,000 of them."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": ids,
            "day": ids // (ROWS // DAYS),
            "price": rng.integers(0, 4000, len(ids)) / 4,
            "stock": rng.integers(0, 1 << 20, len(ids)),
        }
    )


RNG = np.random.default_rng(1)
NEWEST = table(np.arange(ROWS - 1000, ROWS + 500), 1)
ANYWHERE = table(np.sort(RNG.choice(ROWS, KEYS, replace=False)), 2)
ONE_DAY = table(np.arange(ROWS - ROWS // DAYS, ROWS), 3)
LAST = [("day", "==", DAYS - 1)]
FEW = [("id", "in", RNG.choice(ROWS, 100, replace=False).tolist())]

CHANGES: dict[str, Callable[[blz.CTable], object]] = {
    "upsert 1,500 newest keys": lambda t: t.upsert(NEWEST, on="id"),
    "upsert 1,500 keys anywhere": lambda t: t.upsert(ANYWHERE, on="id"),
    "replace the last day": lambda t: t.append(ONE_DAY, replace_where=LAST),
    "update the last day": lambda t: t.update({"price": 1.0}, LAST),
    "delete 100 rows anywhere": lambda t: t.delete(FEW),
    "deduplicate": lambda t: t.deduplicate("id"),
}


class Changes:
    """One change of a table, made anew for each round."""

    param_names = ("change",)
    params = (list(CHANGES),)
    number = 1

    def setup(self, name: str) -> None:
        """Write the table."""
        self._directory = tempfile.TemporaryDirectory()
        self.path = Path(self._directory.name) / "t.blz"
        blz.to_blz(table(np.arange(ROWS)), self.path)
        self.table = blz.open(self.path, mode="a")

    def teardown(self, name: str) -> None:
        """Remove the table."""
        self.table.close()
        self._directory.cleanup()

    def time_change(self, name: str) -> None:
        """Make the change."""
        CHANGES[name](self.table)


def main(rounds: int = 5) -> None:
    """Print the best of some rounds, in milliseconds."""
    print("| change | wall | processor |\n| --- | ---: | ---: |")
    for name, change in CHANGES.items():
        times = []
        for _ in range(rounds):
            suite = Changes()
            suite.setup(name)
            wall, work = perf_counter(), process_time()
            change(suite.table)
            times.append((perf_counter() - wall, process_time() - work))
            suite.teardown(name)
        best = (f"{1000 * min(column):.0f}" for column in zip(*times, strict=True))
        print(f"| {name} | {' | '.join(best)} |")


if __name__ == "__main__":
    main()
