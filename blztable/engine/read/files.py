"""The files of a read: opened once, shared by its threads, and only a bounded number at a time.

All reads of the process share one bound. Each read keeps an equal share of open files, but always a
few while it runs, so very many reads at once exceed the bound. If the process cannot open another
file, all reads drop their files, and the file is opened again. A file that a thread reads from at
that moment stays open until the thread has finished, so there may be a few such rounds. There is no
lock: a lock that is held when another thread forks stays locked in the child.

Knows nothing of what is in the files.
"""

import errno
import sys
import time
from collections import OrderedDict
from contextlib import suppress
from weakref import WeakValueDictionary

from blztable.closing import Closing
from blztable.errors import CorruptError, StorageError
from blztable.storage.store import KeyNotFound, Reader, Store

if sys.platform != "win32":
    import resource

# Open files of all reads together; well below the limit of a process, which has other files too.
MOST_OPEN = 128
# A read that runs keeps so many files however many there are, because it returns to them.
LEAST_OPEN = 8
# Seconds before each new attempt to open a file; about one second in total.
PAUSES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4)
_NO_MORE = {errno.EMFILE, errno.ENFILE}


# What is said of a file that is not there.
GONE = "the file is missing"


class FileGoneError(CorruptError):
    """A file that the version names is not there: a shard that was taken away, for example."""


class OpenFiles(Closing):
    """Readers by key; the one opened first is dropped when there are too many.

    A dropped reader is not closed here: a thread that still reads from it may finish. The owner
    closes the others when its read ends. Otherwise an exception that is kept would keep the frames
    of the read, and with them its open files.
    """

    def __init__(self, store: Store) -> None:
        """Open nothing yet."""
        self._store = store
        self.readers: OrderedDict[str, Reader] = OrderedDict()
        _reads[id(self)] = self

    def open(self, key: str, size: int | None = None) -> Reader:
        """Return the reader of `key`; raise CorruptError if there is no file.

        The file has at least `size` bytes, if the version says so.
        """
        reader = self.readers.get(key)
        if reader is None:
            try:
                opened = self._opened(key, size)
            except KeyNotFound:
                raise FileGoneError(GONE) from None
            # `setdefault` is atomic: of two threads that open one file, the second drops its own.
            reader = self.readers.setdefault(key, opened)
            self._drop(down_to=_share())
        return reader

    def rest(self) -> None:
        """Drop what is beyond an equal share; the files of a table that nobody reads from."""
        if len(_reads) > MOST_OPEN // LEAST_OPEN:
            self._drop(down_to=MOST_OPEN // len(_reads))

    def close(self) -> None:
        """Close all readers, once no thread reads from them; `open` opens them again."""
        # Another read that runs out of descriptors may drop some at the same time.
        with suppress(KeyError):
            while self.readers:
                self.readers.popitem()[1].close()

    def _opened(self, key: str, size: int | None) -> Reader:
        for pause in PAUSES:
            try:
                return self._store.open(key, size)
            except StorageError as error:
                if error.errno not in _NO_MORE:
                    raise
            for files in _all_reads():
                files._drop(down_to=0)
            time.sleep(pause)
        return self._store.open(key, size)

    def _drop(self, *, down_to: int) -> None:
        while len(self.readers) > down_to:
            try:
                self.readers.popitem(last=False)
            except KeyError:
                return  # Another thread was faster.


_reads: WeakValueDictionary[int, OpenFiles] = WeakValueDictionary()


def _all_reads() -> list[OpenFiles]:
    # `valuerefs` copies in one step; reads that begin or end would disturb a loop over the values.
    return [files for reference in _reads.valuerefs() if (files := reference()) is not None]


def _share() -> int:
    """Return the number of files that one read keeps open: its share of the bound."""
    return max(LEAST_OPEN, min(MOST_OPEN, _limit() // 4) // max(len(_reads), 1))


def _limit() -> int:
    """Return the number of descriptors that the process may have."""
    if sys.platform == "win32":
        return 4 * MOST_OPEN
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4 * MOST_OPEN if soft == resource.RLIM_INFINITY else soft
