"""The files of a read: opened once, shared by its threads, a bounded number of them at a time."""

from collections import OrderedDict
from typing import Self

from blztable.storage.store import Reader, Store

# Well below what a process may open, for several reads may go on at once.
MOST_OPEN = 128


class OpenFiles:
    """Readers by their keys; the one opened first goes when there are too many.

    One that goes is not closed here but let go: who still reads from it may finish. The owner
    closes the others when its read ends: an exception that somebody keeps holds the frames of the
    read, and with them everything that the read had open.
    """

    def __init__(self, store: Store) -> None:
        """Open nothing yet."""
        self._store = store
        self._readers: OrderedDict[str, Reader] = OrderedDict()

    def open(self, key: str) -> Reader:
        """The reader of `key`; KeyNotFound as from the store."""
        reader = self._readers.get(key)
        if reader is None:
            # No lock: one that is held when another thread forks stays locked in the child. Each
            # call here is whole; of two threads that open one file, the second lets go of its own.
            reader = self._readers.setdefault(key, self._store.open(key))
            if len(self._readers) > MOST_OPEN:
                self._readers.popitem(last=False)
        return reader

    def close(self) -> None:
        """Close all readers, which no thread may be reading from; `open` opens them again."""
        while self._readers:
            self._readers.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
