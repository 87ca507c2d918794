"""The files of a read: opened once, shared by its threads, a bounded number of them at a time.

The bound is one for all reads of the process. Each keeps an equal share, but always a few files, so
very many reads pass the bound. Where the process can open no more files, all reads let go of
theirs, and the file is opened again. Files that are being read from just then stay open until that
is done, so there may be a few such rounds.

There is no lock: one that is held when another thread forks stays locked in the child.
"""

import errno
import sys
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Self
from weakref import WeakValueDictionary

from blztable.errors import StorageError
from blztable.storage.store import Reader, Store

if sys.platform != "win32":
    import resource

# Of all reads together; well below what a process may open, for that has other files, too.
MOST_OPEN = 128
# A read keeps this many however many others there are: it comes back to them.
LEAST_OPEN = 8
# Seconds before each new attempt to open a file; about one second in all.
PAUSES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4)
_NO_MORE = {errno.EMFILE, errno.ENFILE}


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
        _reads[id(self)] = self

    def open(self, key: str) -> Reader:
        """The reader of `key`; KeyNotFound as from the store."""
        reader = self._readers.get(key)
        if reader is None:
            # Each call here is whole; of two threads that open one file, the second lets go of its
            # own.
            reader = self._readers.setdefault(key, self._opened(key))
            self._let_go(down_to=_share())
        return reader

    def close(self) -> None:
        """Close all readers, which no thread may be reading from; `open` opens them again."""
        # Another read that runs out of descriptors may let go of some at the same time.
        with suppress(KeyError):
            while self._readers:
                self._readers.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, key: str) -> Reader:
        for pause in PAUSES:
            try:
                return self._store.open(key)
            except StorageError as error:
                if error.errno not in _NO_MORE:
                    raise
            for files in _all_reads():
                files._let_go(down_to=0)
            time.sleep(pause)
        return self._store.open(key)

    def _let_go(self, *, down_to: int) -> None:
        while len(self._readers) > down_to:
            try:
                self._readers.popitem(last=False)
            except KeyError:
                return  # Another thread was faster.


_reads: WeakValueDictionary[int, OpenFiles] = WeakValueDictionary()


def _all_reads() -> list[OpenFiles]:
    # Copied in one step, unlike a loop over the dictionary itself: others begin and end meanwhile.
    return [files for reference in _reads.valuerefs() if (files := reference()) is not None]


def _share() -> int:
    """How many files one read keeps: its part of the bound, or of a quarter of the limit."""
    return max(LEAST_OPEN, min(MOST_OPEN, _limit() // 4) // max(len(_reads), 1))


def _limit() -> int:
    """How many descriptors the process may have."""
    if sys.platform == "win32":
        return 4 * MOST_OPEN
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4 * MOST_OPEN if soft == resource.RLIM_INFINITY else soft
