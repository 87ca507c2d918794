"""New files: what a transaction has written and reserved so far, to be flushed or removed.

Knows nothing of versions: whoever publishes one says which files it names.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from blztable.engine.version import first_commit
from blztable.errors import BlzError, CorruptError, LimitError
from blztable.format import layout
from blztable.interrupts import DeferInterrupt
from blztable.storage.store import KeyNotFound, Store

# Gives keys of files.
Keys = Callable[[], Collection[str]]


class NewFiles:
    """Files and directories of columns that nobody else writes to, and no manifest names yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Asked when it matters: Ctrl-C may come between a file and a line that remembers it.
        self._written: list[Callable[[], Sequence[str]]] = []
        self._reserved: list[str] = []
        self._flushed: set[str] = set()
        self._pid = os.getpid()

    def note(self, keys: Callable[[], Sequence[str]]) -> None:
        """Remember who knows which files are written, before they are: to flush or remove them."""
        self._written.append(keys)

    def reserve_column(self, lowest: int) -> int:
        """An id from `lowest` on that no column has or had, claimed for this transaction."""
        number = lowest
        with DeferInterrupt():
            while number <= layout.MAX_ID and not self._store.reserve(layout.column((number,))):
                names = self._store.list_names(layout.DATA)
                taken = (layout.column_id(name) for name in names)
                number = max([number, *(other for other in taken if other is not None)]) + 1
            if number > layout.MAX_ID:
                raise LimitError(f"{self._store.name}: no ids of columns are left from {lowest}")
            self._reserved.append(layout.column((number,)))
        return number

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A part of the transaction: what it wrote is removed if it fails, the rest goes on."""
        written, reserved = len(self._written), len(self._reserved)
        try:
            yield
        except BaseException:
            with DeferInterrupt():
                self._remove(_keys(self._written[written:]), self._reserved[reserved:])
                del self._written[written:], self._reserved[reserved:]
            raise

    def flush(self, named: Keys | None) -> None:
        """Flush the files that are named, each once; None: all that were written."""
        wanted = [key for key in _keys(self._written) if key not in self._flushed]
        if named is not None:
            names = named()
            wanted = [key for key in wanted if key in names]
        try:
            self._store.flush(wanted)
        except KeyNotFound as error:
            name = self._store.name
            raise CorruptError(f"{name}: a file just written is gone: {error}") from None
        self._flushed.update(wanted)

    def discard(self) -> None:
        """Remove all that was written and reserved."""
        self._remove(_keys(self._written), self._reserved)

    def discard_unnamed(self, named: Collection[str], columns: Collection[str]) -> None:
        """Remove what the version that was published does not name."""
        self._remove(
            [key for key in _keys(self._written) if key not in named],
            [prefix for prefix in self._reserved if prefix not in columns],
        )

    def _remove(self, written: Sequence[str], reserved: Sequence[str]) -> None:
        if self._pid != os.getpid():
            return  # A forked child that ends: the files are its parent's.
        # The first error is the news; what cannot be removed is an orphan for vacuum.
        with suppress(BlzError, OSError):
            self._store.delete(written)
            # Nobody else writes there, so what nobody noted is ours as well.
            for prefix in reversed(reserved):
                first_commit.remove_column(self._store, prefix)


def _keys(written: Sequence[Callable[[], Sequence[str]]]) -> list[str]:
    return [key for keys in written for key in keys()]
