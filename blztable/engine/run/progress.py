"""Progress: report the number of rows done by a write or a read.

Knows nothing of tables. Any thread adds cells, in any order. Only the caller's thread calls the
user's callback.
"""

import threading
from collections.abc import Callable

# Called with the number of rows done and the number of all rows (None: not known).
Callback = Callable[[int, int | None], object]


class Progress:
    """Counts cells (rows times columns) and reports them as rows."""

    def __init__(
        self, callback: Callback | None, rows: int | None, columns: int, writes: int = 1
    ) -> None:
        """Start at 0; each row is written so many times."""
        self._callback = callback
        self._rows = rows
        self._writes = writes
        self._columns = max(columns, 1) * writes
        self._cells = 0.0
        self._reported: tuple[int, int | None] | None = None
        self._lock = threading.Lock()

    def add(self, cells: float) -> None:
        """Add cells that are done: rows of one column."""
        with self._lock:
            self._cells += cells

    def report(self) -> None:
        """Call the callback if the number of rows has changed since the last call."""
        done = int(self._cells / self._columns)
        if self._callback is not None and (done, self._rows) != self._reported:
            self._reported = done, self._rows
            self._callback(done, self._rows)

    def resume(self, rows: int, columns: int) -> None:
        """Continue with a new number of columns; `rows` rows are done."""
        with self._lock:
            self._columns = max(columns, 1) * self._writes
            self._cells = float(rows * max(columns, 1))

    def finish(self, rows: int) -> None:
        """Report that all rows are done."""
        self._cells, self._rows = rows * self._columns, rows
        self.report()
