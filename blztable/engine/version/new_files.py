"""New files: record, flush and discard the files of a commit; which versions are durable.

The commit passes the files that the published version names.

Durability: which versions survive a loss of power, and which files to flush for that. All files of
a durable version were flushed before it was published. Files of another version may be in the page
cache only; `lasting` in its head is the number of the newest durable version below. The versions
that the tags of a durable version name are durable as well.
"""

import logging
import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from time import monotonic, time

from blztable import tuning
from blztable.engine.version import unlocked, versions
from blztable.engine.version.named_files import files_of_run, named
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import BlzError, ConflictError, CorruptError, LimitError
from blztable.format import layout
from blztable.format.layout import Path
from blztable.format.leaf import Leaf
from blztable.interrupts import DeferInterrupt
from blztable.storage.store import KeyNotFound, KeyTaken, Store


def newest(store: Store, base: Version | None, base_number: int | None) -> int:
    """Return the number of the newest durable version up to the base; 0 if there is none.

    `base` is None if there is no version yet, or if the version `base_number` is damaged.
    """
    if base_number is None:
        return 0
    known = base or versions.latest(store)
    if known is None:
        # All versions are damaged, and any of them may be durable.
        return base_number
    return known.head.version if known.head.durable else known.head.lasting


def flush_whole(version: Version) -> None:
    """Flush all files of a version that was committed without a flush.

    Called before a durable version that names these files is published.
    """
    try:
        version.store.flush([*named(version), version.key])
    except KeyNotFound as error:
        raise CorruptError(f"a file of the table is missing: {error}") from None


def flush_base(store: Store, newest: Version | None, base: Version | None) -> None:
    """Flush the directories and files that a new durable version builds on, if not done yet.

    `newest` is None if it is damaged. `base` is None if the new version names no older files.
    """
    if newest is None or not newest.head.durable:
        store.prepare(*layout.PREPARED)
    if base is not None and not base.head.durable:
        flush_whole(base)


def flush_tagged(store: Store, newest: Version | None, tags: Mapping[str, int]) -> None:
    """Flush the versions that the tags of a new durable version name, if not done yet.

    The tags of the newest durable version were flushed with it, so only other ones are read.
    """
    numbers = set(tags.values())
    if numbers and newest is not None:
        numbers -= _flushed_tags(store, newest)
    for number in sorted(numbers):
        # Nothing can be done for a version that is gone or damaged; its tag stays as it is.
        with suppress(*DAMAGED, KeyNotFound):
            version = versions.read(store, number)
            if not version.head.durable:
                flush_whole(version)


def _flushed_tags(store: Store, newest: Version) -> set[int]:
    """Return the versions that the tags of the newest durable version name."""
    head = newest.head
    if not head.durable:
        if not head.lasting:
            return set()
        try:
            head = versions.read(store, head.lasting).head
        except (*DAMAGED, KeyNotFound):
            return set()
    return set(head.tags.values())


def durable_prefixes(base: Version | None) -> set[str]:
    """Return the prefixes whose names are durable, as far as a durable base shows it.

    A directory counts if the base has a file there: without one, its name may come from a writer
    that was killed before its flush. No leaf is read: the row groups of the tail say enough.
    """
    if base is None or not base.head.durable:
        return set()
    # The manifest of the base is below `META`.
    known = {layout.DATA, layout.META}
    for run in base.facts.runs:
        if run.level:
            known.add(layout.LEAVES)
        else:
            known.update(key.rpartition("/")[0] for key in files_of_run(run, base.paths))
    return known


_log = logging.getLogger(__name__)

# The path of each column that a write has files of, and the numbers of the files so far.
Written = list[tuple[Path, list[int]]]


class FileNumbers:
    """The numbers of new files of one commit: parts, bundles and leaves. Threads share them."""

    def __init__(self, first: int, *, by_clock: bool = False) -> None:
        """Begin with the first number that no file of the base has, or with that of the clock."""
        self._following = first
        self._by_clock = by_clock
        # True if the number that follows is one that others know, too.
        self._is_known = True
        self._lock = threading.Lock()

    @property
    def following(self) -> int:
        """The number that the next file gets."""
        return self._following

    def next(self) -> int:
        """Return a number that this commit has not given out."""
        with self._lock:
            if self._by_clock and self._is_known:
                self._following = unlocked.number_above(self._following)
            elif self._by_clock:
                self._following = max(self._following, unlocked.number_of_now())
            self._is_known = False
            number = self._following
            if number > layout.MAX_ID:
                raise LimitError(
                    f"all numbers of files up to {layout.MAX_ID} are used; write the data to a new "
                    "table"
                )
            self._following += 1
            return number

    def skip_to(self, number: int) -> None:
        """Give out no number below this one any more."""
        with self._lock:
            if number > self._following:
                self._following, self._is_known = number, True


class NewFiles:
    """Files and columns that only this commit writes to, and that no manifest names yet."""

    def __init__(self, store: Store, next_column: int, next_file: int = 1) -> None:
        """Begin without files; the numbers are the lowest that a column and a file may get."""
        self._store = store
        self._next_column = next_column
        self.numbers = FileNumbers(next_file, by_clock=not store.locks)
        self._writes: list[Written] = []
        self._leaves: list[int] = []
        self._reserved: list[Path] = []
        self._flushed: set[str] = set()
        self._pid = os.getpid()
        self._began = monotonic(), time()

    def check_age(self) -> None:
        """Raise ConflictError if a vacuum may have taken the new files for those of a dead writer.

        Where locks exclude nobody, a vacuum goes by the age of a file, by the clock of the medium.
        """
        keys = self._keys(self._all)
        began, at = self._began
        limits = tuning.current
        # A machine that slept counts by one clock only.
        if self._store.locks or not keys:
            return
        if max(monotonic() - began, time() - at) < limits.unasked_seconds:
            return
        try:
            age = self._store.age(keys[0])
        except KeyNotFound:
            age = limits.orphan_seconds
        if age > limits.orphan_seconds - limits.orphan_margin:
            raise ConflictError(
                f"{self._store.name}: the files of this change are {age / 86_400:.1f} days old, "
                "and a vacuum may have removed them; make the change again"
            )

    def put_leaf(self, leaf: Leaf) -> int:
        """Write a leaf; return its number, which is above those of all files that it names."""
        while True:
            number = self.numbers.next()
            try:
                with DeferInterrupt():
                    self._store.put_new(layout.leaf(number), [leaf.data])
                    self._leaves.append(number)
                return number
            except KeyTaken:
                # It is a leaf of another commit.
                continue

    def record(self, written: Written) -> None:
        """Record a write before it begins, so that its files are flushed or removed.

        The writers add the numbers: Ctrl-C may come between writing a file and recording it. Pass
        the list to `finish` after they have written.
        """
        self._writes.append(written)

    def finish(self, written: Written) -> None:
        """Keep only the columns with files; a transaction may have thousands of writes."""
        # One step: Ctrl-C may come before or after it.
        written[:] = [file for file in written if file[1]]

    def reserve_columns(self, count: int) -> list[Path]:
        """Reserve the next unused column ids, one after the other; return the paths.

        Two directories claim them all: that of the last id, then that of the first. They count only
        if no directory with the first id or a higher one exists besides them. Of two writers whose
        ids overlap, one lists the directories after the other has made its own, and sees the last.
        """
        if not self._store.locks:
            first = unlocked.number_above(self._next_column)
            self._next_column = first + count
            return [(number,) for number in range(first, first + count)]
        with DeferInterrupt():
            # Above all directories there are, so that only a race makes one in vain.
            first = max([self._next_column, *(number + 1 for number in self._column_ids())])
            while count:
                last = first + count - 1
                if last > layout.MAX_ID:
                    raise LimitError(
                        f"{self._store.name}: all column ids up to {layout.MAX_ID} are used; write "
                        "the data to a new table"
                    )
                if self._claim(sorted({first, last}, reverse=True)):
                    break
                # Vacuum removes directories made in vain. This commit does not: one may lie within
                # the ids of another writer, which is about to make a file in it.
                first = max([last, *self._column_ids()]) + 1
            paths: list[Path] = [(number,) for number in range(first, first + count)]
            self._reserved += paths
        self._next_column = first + count
        return paths

    def _claim(self, ends: Sequence[int]) -> bool:
        """Make the directories of the last and the first id; True if no other one is above."""
        made = []
        try:
            for number in ends:
                if not self._store.reserve(layout.column((number,))):
                    return False
                made.append(layout.column((number,)))
            return all(number < ends[-1] or number in ends for number in self._column_ids())
        except BaseException:
            with suppress(BlzError, OSError):
                self._store.delete(made)
            raise

    def _column_ids(self) -> list[int]:
        """Return the ids of all columns that have a directory."""
        names = map(layout.column_id, self._store.list_names(layout.DATA))
        return [number for number in names if number is not None]

    def flush(self, named: Collection[str], base: Version | None) -> None:
        """Flush the new files that `named` contains, each only once; `base` is pinned."""
        files = [key for key in self._keys(self._all) if key in named and key not in self._flushed]
        # Leaves are written for one manifest, so it names all of them that are new.
        leaves = [key for key in map(layout.leaf, self._leaves) if key not in self._flushed]
        files += leaves
        if not files:
            return
        started = monotonic()
        try:
            self._store.flush(files, durable_prefixes(base))
        except KeyNotFound as error:
            raise CorruptError(
                f"{self._store.name}: file {error} was written by this commit and is missing; "
                "check what else removes files there, and repeat the change"
            ) from None
        self._flushed.update(files)
        seconds = monotonic() - started
        _log.debug("%s: flushed %d new files in %.4f s", self._store.name, len(files), seconds)

    def count(self) -> tuple[int, int]:
        """Return the numbers of writes and of reserved columns, for `discard`."""
        return len(self._writes), len(self._reserved)

    def discard(self, kept: tuple[int, int] = (0, 0)) -> None:
        """Discard the new files and reserved columns; keep those of an earlier `count`."""
        writes, columns = kept
        with DeferInterrupt():
            new = list(chain.from_iterable(self._writes[writes:]))
            reserved = self._reserved[columns:]
            files = [*self._keys(new), *self._taken_leaves()]
            self._discard(files, [*reserved, *_nodes(new, reserved)])
            del self._writes[writes:], self._reserved[columns:]

    def discard_leaves(self) -> None:
        """Discard the leaves of a manifest that was not published."""
        self._discard(self._taken_leaves(), [])

    def discard_unnamed(self, named: Collection[str], columns: Collection[int]) -> None:
        """Discard new files that are not in `named`, and reserved columns not in `columns`."""
        files = [key for key in self._keys(self._all) if key not in named]
        self._discard(files, [path for path in self._reserved if path[0] not in columns])

    def _taken_leaves(self) -> list[str]:
        """Forget the leaves that were written; return their keys."""
        keys = [layout.leaf(number) for number in self._leaves]
        self._leaves.clear()
        return keys

    @property
    def _all(self) -> Iterable[tuple[Path, list[int]]]:
        return chain.from_iterable(self._writes)

    @staticmethod
    def _keys(written: Iterable[tuple[Path, list[int]]]) -> list[str]:
        return [layout.part(path, k) for path, numbers in written for k in numbers]

    def _discard(self, keys: Sequence[str], columns: Sequence[Path]) -> None:
        if self._pid != os.getpid():
            return  # A forked child ends here; the files belong to its parent.
        # The error that led here matters more. Vacuum removes a file that cannot be removed now.
        with suppress(BlzError, OSError):
            if keys:
                self._store.delete(keys)
            # Only this commit writes to a reserved column, so its unrecorded files go as well.
            for path in reversed(columns):
                remove_column(self._store, layout.column(path))


def remove_column(store: Store, prefix: str) -> None:
    """Remove the directory of a column with its part files and child columns."""
    for name in store.list_names(prefix):
        if layout.column_id(name) is not None:
            remove_column(store, f"{prefix}/{name}")
        elif layout.part_number(name) is not None:
            store.delete([f"{prefix}/{name}"])
    store.delete([prefix])


def _nodes(written: Written, reserved: Sequence[Path]) -> list[Path]:
    """Return the paths of nodes with reserved ids in columns that exist, parents first."""
    ids = {path[0] for path in reserved}
    # A bundle has no path.
    paths = {path for path, _ in written if path}
    return sorted(path for path in paths if path[-1] in ids and path[0] not in ids)
