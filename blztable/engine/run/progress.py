"""How far a write or a read has come, told in rows.

ChangeSet is done in any order and by any thread; the callback is called by the caller's own thread.
"""

import threading
from collections.abc import Callable

# Called with the rows done, and the rows in all where they are known.
Callback = Callable[[int, int | None], object]


class Progress:
    """Cells done out of rows and columns, as rows."""

    def __init__(self, callback: Callback | None, rows: int | None, columns: int) -> None:
        """Begin at 0."""
        self._callback = callback
        self._rows = rows
        self._columns = max(columns, 1)
        self._cells = 0.0
        self._told: tuple[int, int | None] | None = None
        self._lock = threading.Lock()

    def add(self, cells: float) -> None:
        """So many more rows of one column are done."""
        with self._lock:
            self._cells += cells

    def tell(self) -> None:
        """Call the callback, if there is news."""
        done = int(self._cells / self._columns)
        if self._callback is not None and (done, self._rows) != self._told:
            self._told = done, self._rows
            self._callback(done, self._rows)

    def go_on(self, rows: int, columns: int) -> None:
        """Continue behind the first `rows` rows, which are done, with rows of `columns` columns."""
        with self._lock:
            self._columns = max(columns, 1)
            self._cells = float(rows * self._columns)

    def finish(self, rows: int) -> None:
        """Say that all rows are done."""
        self._cells, self._rows = rows * self._columns, rows
        self.tell()
