"""Facts: the records of all parts of a version, in a tree of leaves that versions share.

The row groups of a version are runs of entries, one after the other. An entry of level 0 is a row
group; one of a level above is a leaf of the level below, which is read at its first use and kept.
Runs of a version that is read are its tails, the highest level first. A change makes a run of
level 0 from the entries that it touches, and keeps the leaves around it unread; a commit packs the
runs into leaves and tails again (`packing.py`). Knows nothing of types and heads.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import repeat
from typing import Self

import numpy as np

from blztable.cached import Cache, cached_property, trim
from blztable.errors import CorruptError, ErrorContext, LimitError
from blztable.format import layout
from blztable.format.leaf import GROUP, MAX_GROUPS, Leaf, encode, records_together
from blztable.format.records import PART, WORD, Array, Records, join
from blztable.format.version_file import Tail
from blztable.storage.store import KeyNotFound, Lock, Nothing, Store

# What a leaf takes in memory, about, beside its bytes.
LEAF_BYTES = 4_000
# Sums of more nodes are made for all nodes at once, and their records leaf by leaf.
FEW_NODES = 16
# Leaves that are judged together.
TOGETHER = 64
# The fields of an entry that are sums over the entries of its leaf.
_FIELDS = GROUP.names or ()
_SUMS = {name: _FIELDS.index(name) for name in ("rows", "stored", "groups", "deleted")}
_CHANGED = _FIELDS.index("changed")


class Run:
    """Neighbouring entries of one level: those of a leaf, or some in memory. It never changes."""

    __slots__ = ("_records", "_start", "count", "deleted", "groups", "leaf", "level", "name")

    def __init__(
        self,
        level: int,
        groups: Array,
        deleted: Array,
        records: Records | None = None,
        leaf: tuple[Leaf, int] | None = None,
        name: str = "",
    ) -> None:
        """Join groups, words of deleted rows, and records; or those of a leaf from an entry on."""
        self.level = level
        self.groups = groups
        self.deleted = deleted
        self._records = records
        self.leaf = leaf[0] if leaf else None
        self._start = leaf[1] if leaf else 0
        # Of the leaf, for messages.
        self.name = name
        # The number of row groups.
        self.count = int(groups["groups"].sum()) if level else len(groups)

    @classmethod
    def of_leaf(cls, leaf: Leaf, name: str) -> Self:
        """Return the entries of a leaf, whose records are not read."""
        with ErrorContext(name):
            return cls(leaf.level, leaf.groups, leaf.deleted, leaf=(leaf, 0), name=name)

    @classmethod
    def of_tail(cls, tail: Tail, level: int = 0) -> Self:
        """Return entries in memory."""
        return cls(level, tail.groups, tail.deleted, tail.records)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def nbytes(self) -> int:
        """Bytes of the records, of a part of a leaf about."""
        if self.leaf is not None:
            return len(self.leaf.data) * len(self) // max(self.leaf.entries, 1)
        return self.records().nbytes

    def records(self, lines: Sequence[int] | Array | None = None) -> Records:
        """Return the checked records of some nodes; None means all."""
        if self.leaf is None:
            assert self._records is not None
            if lines is None:
                return self._records
            return self._records.of(lines, range(len(self)))
        with ErrorContext(self.name):
            records = self.leaf.records(lines)
        if len(self) == records.entries:
            return records
        return records.of(range(records.columns), range(self._start, self._start + len(self)))

    def cut(self, start: int, stop: int) -> "Run":
        """Return the entries from `start` to `stop`."""
        if (start, stop) == (0, len(self)):
            return self
        words = np.cumsum(self.groups["deleted"]) if len(self.deleted) else ()
        first = int(words[start - 1]) if start and len(words) else 0
        last = int(words[stop - 1]) if stop > start and len(words) else first
        groups, deleted = self.groups[start:stop], self.deleted[first:last]
        if self.leaf is not None:
            leaf = (self.leaf, self._start + start)
            return Run(self.level, groups, deleted, leaf=leaf, name=self.name)
        records = self.records()
        records = records.of(range(records.columns), range(start, stop))
        return Run(self.level, groups, deleted, records)

    def with_groups(self, groups: Array, deleted: Array | None = None) -> "Run":
        """Return these entries with other groups, and the same parts."""
        words = self.deleted if deleted is None else deleted
        return Run(self.level, groups, words, self.records())

    def encoded(self) -> bytes:
        """Return the bytes of a leaf with these entries."""
        leaf = self.leaf
        if leaf is not None and len(self) == leaf.entries:
            return bytes(leaf.data)
        return encode(self.level, self.groups, self.deleted, self.records())

    def words(self) -> list[bytes]:
        """Return the words that name the deleted rows of each row group."""
        if not len(self.deleted):
            return [b""] * len(self)
        ends = (np.cumsum(self.groups["deleted"]) * WORD.itemsize).tolist()
        data = self.deleted.tobytes()
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def records_of(runs: Sequence[Run], lines: Sequence[int]) -> list[Records]:
    """Return the checked records of some nodes in each of some runs."""
    of_level: dict[int, dict[Leaf, None]] = {}
    for run in runs:
        if run.leaf is not None and len(lines) <= FEW_NODES:
            of_level.setdefault(run.level, {})[run.leaf] = None
    known: dict[Leaf, Records] = {}
    for leaves in of_level.values():
        # What is wrong, `Run.records` says: it names the leaf.
        with suppress(CorruptError):
            known |= records_together(list(leaves), lines)
    records = []
    for run in runs:
        whole = known.get(run.leaf) if run.leaf is not None else None
        if whole is None or whole.entries != len(run):
            whole = run.records(lines)
        records.append(whole)
    return records


def joined(runs: Sequence[Run], level: int, columns: int) -> Run:
    """Return the entries of runs of one level as one run."""
    if len(runs) == 1:
        return runs[0]
    if not runs:
        return Run.of_tail(Tail.empty(columns), level)
    groups = np.concatenate([run.groups for run in runs])
    deleted = np.concatenate([run.deleted for run in runs])
    return Run(level, groups, deleted, join([run.records() for run in runs]))


class Leaves:
    """The leaves of a table that were read last, by their numbers; versions share them."""

    def __init__(self, store: Store) -> None:
        """Begin without leaves."""
        self.store = store
        self._read: Cache[int, Leaf] = Cache()

    def keep(self, number: int, leaf: Leaf) -> None:
        """Keep a leaf that was just read or written."""
        if self._read.get(number) is not leaf:
            self._read.forget(number)
            self._read.keep(number, leaf, len(leaf.data) + LEAF_BYTES)
            trim()

    def asked(self, entries: Iterable[tuple[Run, int]]) -> Lock:
        """Ask for the leaves that entries name, if the store fetches; those kept are left out."""
        if not self.store.fetches:
            return Nothing()
        some = [run.groups[entry] for run, entry in entries]
        leaves = [(int(group["file"]), int(group["size"])) for group in some]
        return self.store.fetch(
            [(layout.leaf(leaf), 0, size + 1) for leaf, size in leaves if leaf not in self._read]
        )

    def open(self, level: int, columns: int, entry: Array) -> Run:
        """Return the leaf that an entry of a level names; CorruptError unless it is that one."""
        number = int(entry["file"])
        name = f"{self.store.name}/{layout.leaf(number)}"
        leaf, named = self._read.get(number), (int(entry["size"]), int(entry["crc"]))
        # A number is given again if the commit that wrote it first did not land.
        if leaf is None or (len(leaf.data), leaf.crc) != named:
            try:
                data = self.store.get(layout.leaf(number), 0, named[0] + 1)
            except KeyNotFound:
                raise CorruptError(f"{name}: the leaf is missing") from None
            with ErrorContext(name):
                # One that goes on is another leaf, and was not read to its end.
                leaf = Leaf(data) if len(data) <= named[0] else None
        if leaf is None or (len(leaf.data), leaf.crc) != named:
            raise CorruptError(f"{name}: the leaf is not the one that the level above names")
        if (leaf.level, leaf.columns) != (level - 1, columns):
            raise CorruptError(
                f"{name}: a leaf of level {leaf.level} and {leaf.columns} columns; expected level "
                f"{level - 1} and {columns} columns"
            )
        run = Run.of_leaf(leaf, name)
        stated, groups = entry.item(), run.groups
        has_sums = groups["changed"].max() == stated[_CHANGED]
        for field, place in _SUMS.items():
            has_sums = has_sums and groups[field].sum() == stated[place]
        if not has_sums:
            raise CorruptError(f"{name}: the leaf has other rows than the level above says")
        self.keep(number, leaf)
        return run


class Facts:
    """The records of all parts of a version. It never changes."""

    def __init__(self, leaves: Leaves, runs: Iterable[Run], columns: int) -> None:
        """Join runs in the order of the rows; each level may come anywhere."""
        self.leaves = leaves
        self.runs = tuple([run for run in runs if len(run)])
        self.columns = columns
        self._totals: dict[int, tuple[int, int]] = {}
        # The number of row groups.
        self.count = sum([run.count for run in self.runs])

    def check_count(self) -> None:
        """Raise LimitError if a version can have no such number of row groups."""
        if self.count > MAX_GROUPS:
            raise LimitError(
                f"{self.leaves.store.name}: {self.count} row groups; a table has at most "
                f"{MAX_GROUPS}; write larger row groups, and join small ones with compact()"
            )

    def _total(self, field: str) -> int:
        return sum([int(run.groups[field].sum()) for run in self.runs])

    @cached_property
    def rows(self) -> int:
        """Number of live rows."""
        return self._total("rows")

    @cached_property
    def deleted_rows(self) -> int:
        """Number of rows that parts hold, and that are no rows of the table."""
        return self._total("stored") - self.rows

    @cached_property
    def totals(self) -> tuple[Array, Array]:
        """The decoded bytes of each node, and those on disk."""
        totals = np.zeros((2, self.columns), np.int64)
        for run in self.runs:
            parts = run.records().parts.reshape(self.columns, len(run))
            for total, field in zip(totals, ("nbytes", "cbytes"), strict=True):
                total += parts[field].astype(np.int64).sum(1)
        return totals[0], totals[1]

    def total(self, line: int) -> tuple[int, int]:
        """Return `totals` of one node; only its records are read, or all if many are asked for."""
        if "totals" in self.__dict__ or len(self._totals) >= FEW_NODES:
            decoded, stored = self.totals
            return int(decoded[line]), int(stored[line])
        totals = self._totals.get(line)
        if totals is None:
            parts = [run.records([line]).parts for run in self.runs]
            nbytes, cbytes = (
                sum([int(part[field].sum()) for part in parts]) for field in ("nbytes", "cbytes")
            )
            totals = self._totals[line] = nbytes, cbytes
        return totals

    def sizes(self, lines: Sequence[int]) -> tuple[Array, Array]:
        """Return how many live rows, and decoded bytes of some nodes, lie before each entry.

        The entries are those that the version itself has, so no leaf is read; at the end are the
        rows and bytes of all.
        """
        rows, nbytes = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        for run in self.runs:
            parts = run.records(lines).parts.reshape(len(lines), len(run))
            rows.append(run.groups["rows"].astype(np.int64))
            nbytes.append(parts["nbytes"].astype(np.int64).sum(0))
        return np.concatenate(rows).cumsum(), np.concatenate(nbytes).cumsum()

    def walk(
        self, wanted: Array | None = None, *, are_rows: bool = False
    ) -> Iterator[tuple[int, int, Run]]:
        """Return the runs of level 0 with the number of row groups and of rows before each.

        Of leaves only those are read that have one of the row groups `wanted`, or of the live rows
        with these numbers; both ascend.
        """
        if self.leaves.store.fetches:
            return self._walk_fetched(wanted, are_rows)
        return self._walk(wanted, are_rows)

    def _walk_fetched(self, wanted: Array | None, are_rows: bool) -> Iterator[tuple[int, int, Run]]:
        with self._fetched(lambda _, groups, rows: _entries(rows if are_rows else groups, wanted)):
            yield from self._walk(wanted, are_rows)

    def _walk(self, wanted: Array | None, are_rows: bool) -> Iterator[tuple[int, int, Run]]:
        group = rows = 0
        met: set[int] = set()
        for run in self.runs:
            yield from self._below(run, group, rows, wanted, are_rows, met)
            group += run.count
            rows += int(run.groups["rows"].sum())

    def asked(self) -> ExitStack:
        """Ask for all leaves, if the store fetches, until the result is closed."""
        if not self.leaves.store.fetches:
            return ExitStack()
        return self._fetched(lambda run, *_: range(len(run)))

    def _fetched(self, entries: Callable[[Run, Array, Array], Sequence[int]]) -> ExitStack:
        """Ask for the leaves that a walk reads, all of a level at once.

        They stay until the result is closed. `entries` gets a run, and the row groups and the rows
        before each of its entries, and says which of these are wanted.
        """
        with ExitStack() as asked:
            level, group, rows, met = [], 0, 0, set[int]()
            for run in self.runs:
                level.append((run, group, rows))
                group += run.count
                rows += int(run.groups["rows"].sum())
            while level := [pair for pair in level if pair[0].level]:
                below = []
                for run, group, rows in level:
                    groups = _before(run.groups["groups"], group)
                    before = _before(run.groups["rows"], rows)
                    # The walk refuses a leaf that is named twice.
                    for entry in entries(run, groups, before):
                        number = int(run.groups["file"][entry])
                        if number not in met:
                            met.add(number)
                            below.append((run, entry, int(groups[entry]), int(before[entry])))
                asked.enter_context(self.leaves.asked([(pair[0], pair[1]) for pair in below]))
                # Those of the lowest level are opened when the walk comes to them.
                level = []
                for run, entry, group, rows in below:
                    if run.level > 1:
                        # The walk tells of one that is damaged.
                        with suppress(CorruptError):
                            level.append((self.below(run, entry), group, rows))
            return asked.pop_all()

    def _below(
        self,
        run: Run,
        group: int,
        rows: int,
        wanted: Array | None,
        are_rows: bool,
        met: set[int],
    ) -> Iterator[tuple[int, int, Run]]:
        if wanted is not None:
            begin = rows if are_rows else group
            count = int(run.groups["rows"].sum()) if are_rows else run.count
            first, last = wanted.searchsorted([begin, begin + count])
            wanted = wanted[first:last]
            if not len(wanted):
                return
        if run.level == 0:
            yield group, rows, run
            return
        groups = _before(run.groups["groups"], group)
        before = _before(run.groups["rows"], rows)
        for entry in _entries(before if are_rows else groups, wanted):
            leaf = self.below(run, entry, met)
            group, rows = int(groups[entry]), int(before[entry])
            yield from self._below(leaf, group, rows, wanted, are_rows, met)

    def below(self, run: Run, entry: int, met: set[int] | None = None) -> Run:
        """Return the leaf that an entry of a run names; CorruptError if it is among those met."""
        if met is not None:
            # Leaves within each other many times would take any memory.
            number = int(run.groups["file"][entry])
            if number in met:
                raise CorruptError(f"{self.leaves.store.name}: leaf {number} is named twice")
            met.add(number)
        return self.leaves.open(run.level, self.columns, run.groups[entry])

    @cached_property
    def groups(self) -> Array:
        """The record of each row group."""
        return self.group_records(None)

    def group_records(self, groups: Array | None) -> Array:
        """Return the record of each of some row groups, which ascend; None means all."""
        records = [np.zeros(0, GROUP)]
        for first, _, run in self.walk(groups):
            records.append(
                run.groups if groups is None else run.groups[_within(groups, first, run)]
            )
        return np.concatenate(records)

    def first_rows(self, groups: Array) -> Array:
        """Return the number of live rows before each of some row groups, which ascend."""
        firsts = [np.zeros(0, np.int64)]
        for first, rows, run in self.walk(groups):
            firsts.append(_before(run.groups["rows"], rows)[_within(groups, first, run)])
        return np.concatenate(firsts)

    def located(self, rows: Array) -> tuple[Array, Array]:
        """Return the row group of each of some live rows, and the number of rows before it.

        The numbers of the rows ascend.
        """
        groups, firsts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for group, first, run in self.walk(rows, are_rows=True):
            before = _before(run.groups["rows"], first)
            low, high = rows.searchsorted([first, before[-1]])
            places = before.searchsorted(rows[low:high], "right") - 1
            groups.append(group + places)
            firsts.append(before[places])
        return np.concatenate(groups), np.concatenate(firsts)

    def words(self, groups: Array | None = None) -> list[bytes]:
        """Return the words that name the deleted rows of row groups, which ascend; None: of all."""
        texts: list[bytes] = []
        for first, _, run in self.walk(groups):
            words = run.words()
            if groups is not None:
                words = [words[entry] for entry in _within(groups, first, run)]
            texts += words
        return texts

    def records(self, lines: Sequence[int], groups: Array | None = None) -> Records:
        """Return the records of some nodes in some row groups, which ascend; None means all."""
        records_of_runs, runs = [], list(self.walk(groups))
        of_runs = records_of([run for *_, run in runs], lines)
        for (first, _, run), records in zip(runs, of_runs, strict=True):
            if groups is not None:
                within = _within(groups, first, run)
                if len(within) < len(run):
                    records = records.of(range(len(lines)), within)
            records_of_runs.append(records)
        return (
            join(records_of_runs) if records_of_runs else Records(len(lines), 0, np.zeros(0, PART))
        )

    def pruned(
        self, lines: Sequence[int], keep: Callable[[Records], Array]
    ) -> Iterator[tuple[int, int, Run]]:
        """Return what `walk` does, but only below the leaves that are kept.

        `keep` gets the records of some nodes over leaves, and says which of these may have a wanted
        row. Only they are read when their turn comes, some together.
        """
        if self.leaves.store.fetches:
            return self._pruned_fetched(lines, keep)
        return self._pruned(lines, keep)

    def _pruned_fetched(
        self, lines: Sequence[int], keep: Callable[[Records], Array]
    ) -> Iterator[tuple[int, int, Run]]:
        with self._fetched(lambda run, *_: np.flatnonzero(keep(run.records(lines))).tolist()):
            yield from self._pruned(lines, keep)

    def _pruned(
        self, lines: Sequence[int], keep: Callable[[Records], Array]
    ) -> Iterator[tuple[int, int, Run]]:
        # What is next comes last: runs, and the leaves that an entry of a run names.
        waiting: list[tuple[int, int, Run, int | None]] = []
        group = rows = 0
        for run in self.runs:
            waiting.append((group, rows, run, None))
            group += run.count
            rows += int(run.groups["rows"].sum())
        waiting.reverse()
        met: set[int] = set()
        while waiting:
            together = waiting[: -TOGETHER - 1 : -1]
            del waiting[-TOGETHER:]
            opened = self._opened(together, met)
            runs = [run for *_, run in opened if run.level]
            if not runs:
                yield from opened
                continue
            kept = np.flatnonzero(keep(join(records_of(runs, lines))))
            begin = 0
            together = []
            for first, before, run in opened:
                if not run.level:
                    together.append((first, before, run, None))
                    continue
                low, high = kept.searchsorted([begin, begin + len(run)])
                entries = kept[low:high] - begin
                begin += len(run)
                groups = _before(run.groups["groups"], first)[entries].tolist()
                of_rows = _before(run.groups["rows"], before)[entries].tolist()
                together += zip(groups, of_rows, repeat(run), entries.tolist(), strict=False)
            waiting += reversed(together)

    def _opened(
        self, waiting: Iterable[tuple[int, int, Run, int | None]], met: set[int]
    ) -> list[tuple[int, int, Run]]:
        """Return the runs, and the leaves that entries of runs name."""
        return [
            (group, rows, run if entry is None else self.below(run, entry, met))
            for group, rows, run, entry in waiting
        ]

    def backwards(self) -> Iterator[Run]:
        """Yield the runs of level 0 from the last to the first; leaves are read when needed."""
        waiting, met = list(self.runs), set[int]()
        while waiting:
            run = waiting.pop()
            if run.level == 0:
                yield run
            else:
                # One leaf at a time.
                last = len(run) - 1
                waiting += [run.cut(0, last)] if last else []
                waiting.append(self.below(run, last, met))

    def changed_after(self, number: int) -> list[int]:
        """Return the row groups whose record says a higher version than this in `changed`."""
        groups: list[int] = []
        group, met = 0, set[int]()
        for top in self.runs:
            waiting = [(group, top)]
            while waiting:
                first, run = waiting.pop()
                touched = np.flatnonzero(run.groups["changed"] > number)
                if run.level == 0:
                    groups += (first + touched).tolist()
                    continue
                before = _before(run.groups["groups"], first)
                waiting += [
                    (int(before[e]), self.below(run, e, met)) for e in touched[::-1].tolist()
                ]
            group += top.count
        return groups

    def unseen(self, seen: set[int], least: int = 0) -> Iterator[tuple[int, int] | Run]:
        """Yield the number and size of each leaf that is not in `seen`, and its run of level 0.

        `seen` gets all leaves that were yielded. A leaf whose number is below `least` names no file
        from there on, and is left out, too.
        """
        waiting = [*reversed(self.runs)]
        while waiting:
            run = waiting.pop()
            if run.level == 0:
                yield run
                continue
            numbers, sizes = run.groups["file"].tolist(), run.groups["size"].tolist()
            new = [
                entry
                for entry, number in enumerate(numbers)
                if number not in seen and number >= least
            ]
            with self.leaves.asked([(run, entry) for entry in new]):
                for entry in new:
                    waiting.append(self.below(run, entry))
                    seen.add(numbers[entry])
                    yield numbers[entry], sizes[entry]

    def between(self, start: int, stop: int) -> list[Run]:
        """Return the runs of the row groups from `start` to `stop`; leaves within are not read."""
        runs, first = [], 0
        for run in self.runs:
            runs += self._between(run, start - first, stop - first)
            first += run.count
        return runs

    def _between(self, run: Run, start: int, stop: int) -> list[Run]:
        start, stop = max(start, 0), min(stop, run.count)
        if start >= stop:
            return []
        if stop - start == run.count:
            return [run]
        if run.level == 0:
            return [run.cut(start, stop)]
        first = _before(run.groups["groups"], 0)
        left = int(np.searchsorted(first, start, "right")) - 1
        right = int(np.searchsorted(first, stop, "left")) - 1
        if left == right:
            at = int(first[left])
            return self._between(self.below(run, left), start - at, stop - at)
        runs: list[Run] = []
        whole, last = left, right + 1
        if first[left] < start:
            leaf = self.below(run, left)
            runs += self._between(leaf, start - int(first[left]), leaf.count)
            whole += 1
        if first[right + 1] > stop:
            last -= 1
        if whole < last:
            runs.append(run.cut(whole, last))
        if last == right:
            runs += self._between(self.below(run, right), 0, stop - int(first[right]))
        return runs

    def edited(self, wanted: Array, edit: Callable[[int, Run], Run]) -> "Facts":
        """Return facts in which each run that has one of the row groups `wanted` is edited.

        `edit` gets the run of level 0 and the number of row groups before it.
        """
        runs: list[Run] = []
        first = 0
        for run in self.runs:
            runs += self._edited(run, first, wanted, edit)
            first += run.count
        return Facts(self.leaves, runs, self.columns)

    def _edited(
        self, run: Run, first: int, wanted: Array, edit: Callable[[int, Run], Run]
    ) -> list[Run]:
        low, high = wanted.searchsorted([first, first + run.count])
        if low == high:
            return [run]
        if run.level == 0:
            return [edit(first, run)]
        before = _before(run.groups["groups"], first)
        entries = np.unique(np.searchsorted(before, wanted[low:high], "right") - 1).tolist()
        runs: list[Run] = []
        at = 0
        for entry in entries:
            runs += [run.cut(at, entry)] if at < entry else []
            runs += self._edited(self.below(run, entry), int(before[entry]), wanted, edit)
            at = entry + 1
        return [*runs, run.cut(at, len(run))] if at < len(run) else runs

    def mapped(self, edit: Callable[[int, Run], Run], columns: int | None = None) -> "Facts":
        """Return facts in which all runs are of level 0 and edited as by `edited`."""
        runs = [edit(first, run) for first, _, run in self.walk()]
        return Facts(self.leaves, runs, self.columns if columns is None else columns)

    def followed_by(self, run: Run) -> "Facts":
        """Return facts with more row groups at the end.

        Runs in memory are joined with shorter ones, so that thousands of appends leave few.
        """
        runs = [*self.runs]
        while runs and runs[-1].level == 0 and len(runs[-1]) <= len(run):
            run = joined([runs.pop(), run], 0, self.columns)
        return Facts(self.leaves, [*runs, run], self.columns)


def _before(counts: Array, first: int) -> Array:
    """Return how much lies before each entry, and behind the last one, given what lies before."""
    before = np.full(len(counts) + 1, first, np.int64)
    counts.astype(np.int64).cumsum(out=before[1:])
    before[1:] += first
    return before


def _entries(before: Array, wanted: Array | None) -> Sequence[int]:
    """Return the entries that have some wanted numbers, given the number where each begins."""
    if wanted is None:
        return range(len(before) - 1)
    low, high = wanted.searchsorted([before[0], before[-1]])
    entries: list[int] = np.unique(before.searchsorted(wanted[low:high], "right") - 1).tolist()
    return entries


def _within(groups: Array, first: int, run: Run) -> Array:
    """Return which entries of a run of level 0 are among these row groups."""
    low, high = groups.searchsorted([first, first + len(run)])
    return groups[low:high] - first
