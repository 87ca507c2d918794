"""Rebuild: leaves of a version that are missing or damaged, from the data files of the table.

Theory of operation. The level above says of a lost leaf how many row groups and rows it had, and
the crc32 of its header, which covers the slices of all columns. The data files say the records of
their parts. Their numbers ascend with the row groups of a commit, so the files of a node that no
other leaf names are its parts in order. What other versions say of a row group, in their tails and
leaves, is taken from there, with its deleted rows. Leaves are made of these row groups in turn; one
that has the crc32 is the lost leaf, to the byte. So no value comes back beside those of another
row.

A leaf of leaves is made in the same way of the leaves below it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blztable.columns.parts.encode import encode as encode_part
from blztable.engine.version import versions
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import BlzError, CorruptError
from blztable.format import layout
from blztable.format.bounds import summary
from blztable.format.data_file import DataFile
from blztable.format.layout import Path
from blztable.format.leaf import GROUP, Leaf, encode
from blztable.format.records import LENGTHS, PART, WORD, Array, Records, join, stack
from blztable.storage.store import KeyNotFound, Store


@dataclass(frozen=True)
class Rebuilt:
    """A leaf that was lost, and the rows of its row groups."""

    number: int
    data: bytes
    start: int
    stop: int

    @property
    def key(self) -> str:
        """Return the key of its file."""
        return layout.leaf(self.number)

    def __str__(self) -> str:
        """Return what was rebuilt."""
        return (
            f"{self.key}, which was lost, is rebuilt from the data files: rows {self.start:,} to "
            f"{self.stop:,}"
        )


def rebuild(version: Version) -> list[Rebuilt]:
    """Make the lost leaves of a version again, and let it have them; nothing is written.

    Raises
    ------
    CorruptError
        A leaf cannot be rebuilt; the error says what the data files hold.
    """
    rebuilt: list[Rebuilt] = []
    # A leaf of leaves shows which of those below are lost.
    while lost := _all_lost(version):
        unnamed = _Unnamed(version)
        for level, entry, start in lost:
            data = unnamed.leaf(level - 1, entry)
            number, stop = int(entry["file"]), start + int(entry["rows"])
            if data is None:
                raise CorruptError(
                    f"{version.store.name}/{layout.leaf(number)}: the leaf of rows {start:,} to "
                    f"{stop:,} is lost, and cannot be rebuilt; {told(version.store, version)}"
                )
            version.facts.leaves.keep(number, Leaf(data))
            rebuilt.append(Rebuilt(number, data, start, stop))
    return rebuilt


def told(store: Store, version: Version | None = None) -> str:
    """Return what the data files of a table hold, column by column, as words."""
    lines = []
    for path, number, file in _files(store, _paths(store)):
        for node, dtype, part in zip(file.nodes, file.dtypes, file.records.parts, strict=True):
            lines.append((node, layout.part(path, number), int(part["rows"]), dtype))
    if not lines:
        return "there are no data files that can be read"
    columns: dict[Path, list[tuple[str, int, str]]] = {}
    for node, key, rows, dtype in lines:
        columns.setdefault(node, []).append((key, rows, dtype))
    names = {}
    if version is not None:
        names = {path: version.node(line).name for line, path in enumerate(version.paths)}
    said = []
    for node, parts in sorted(columns.items()):
        name = repr(names[node]) if node in names else "column " + ".".join(map(str, node))
        rows = sum(rows for _, rows, _ in parts)
        kinds = ", ".join(sorted({dtype or "nulls" for *_, dtype in parts}))
        said.append(f"{name} has {rows:,} rows ({kinds}) in {len(parts)} files, {parts[0][0]}")
    most = 20
    more = f"; and {len(said) - most} more" if len(said) > most else ""
    return "SuperChunk.open reads data files one by one: " + "; ".join(said[:most]) + more


def _all_lost(version: Version) -> list[tuple[int, Array, int]]:
    with version.facts.asked():
        return list(_lost(version))


def _lost(version: Version) -> Iterator[tuple[int, Array, int]]:
    """Yield the level of a run, its entry whose leaf is lost, and the rows before it."""
    rows = 0
    for run in version.facts.runs:
        waiting = [run]
        while waiting:
            entries = waiting.pop(0)
            if entries.level == 0:
                rows += int(entries.groups["rows"].sum())
                continue
            for entry_number in range(len(entries)):
                entry = entries.groups[entry_number]
                try:
                    below = version.facts.below(entries, entry_number)
                    below.records()
                except BlzError:
                    yield entries.level, entry, rows
                    rows += int(entry["rows"])
                    continue
                waiting.insert(0, below)
                after = entry_number + 1
                waiting[1:1] = [entries.cut(after, len(entries))] if after < len(entries) else []
                break


@dataclass(frozen=True)
class _UnnamedGroup:
    """A row group that was found; `changed` of its record may not be known."""

    record: Array
    deleted: Array
    records: Records
    is_known: bool = True

    @property
    def files(self) -> tuple[int, ...]:
        """Return the number of the file of each node."""
        return tuple(self.records.parts["file"].tolist())

    @property
    def number(self) -> int:
        """Return the least number of its files: they ascend with the row groups."""
        return min(filter(None, self.files), default=0)


class _Unnamed:
    """The row groups and leaves of a table that no leaf of a version names."""

    def __init__(self, version: Version) -> None:
        """Look through the other versions, the leaves and the data files."""
        self.version, self.store = version, version.store
        self.columns = len(version.paths)
        self.orders = version.orders()
        own = {group.files for group in _groups_of(version)}
        known = {group.files: group for group in self._of_others() if group.files not in own}
        files = own | known.keys()
        named = [{numbers[line] for numbers in files} for line in range(self.columns)]
        groups = [*known.values(), *self._of_files(named)]
        self.groups = sorted(groups, key=lambda group: group.number)

    def leaf(self, level: int, entry: Array) -> bytes | None:
        """Return the bytes of the leaf that an entry names; None if it cannot be made."""
        return self._of_groups(entry) if level == 0 else self._of_leaves(level, entry)

    def _of_others(self) -> Iterator[_UnnamedGroup]:
        """Yield the row groups that other versions with the same columns name."""
        for number in versions.each(self.store, versions.numbers(self.store)):
            with suppress(*DAMAGED, KeyNotFound):
                other = versions.read(self.store, number)
                if other.paths == self.version.paths and number != self.version.head.version:
                    yield from _groups_of(other)

    def _of_files(self, named: Sequence[set[int]]) -> Iterator[_UnnamedGroup]:
        """Yield the row groups of data files that no version names."""
        lines = {path: line for line, path in enumerate(self.version.paths)}
        alone: dict[int, list[Records]] = {}
        for path, number, file in _files(self.store, [*lines, layout.SHARED]):
            if not lines.keys() >= set(file.nodes):
                continue
            of = {lines[node]: number for number, node in enumerate(file.nodes)}
            if any(number in named[line] for line in of):
                continue
            parts = {line: file.records.of([number], [0]) for line, number in of.items()}
            if path == layout.SHARED:
                yield from self._group(parts, number)
            else:
                alone.setdefault(next(iter(of)), []).append(*parts.values())
        if len({len(parts) for parts in alone.values()}) == 1:
            for row in zip(*alone.values(), strict=True):
                yield from self._group(dict(zip(alone, row, strict=True)), 0)

    def _group(self, parts: dict[int, Records], bundle: int) -> Iterator[_UnnamedGroup]:
        """Yield the row group of parts by line, with those that have no file."""
        page = int(next(iter(parts.values())).parts["page"][0])
        roots = [records for line, records in parts.items() if len(self.version.paths[line]) == 1]
        rows = {int(root.parts["rows"][0]) for root in roots}
        if len(rows) != 1:
            return
        [stored] = rows
        for line in range(self.columns):
            if line not in parts:
                count = self._rows_without_file(line, parts, stored)
                if count is None:
                    return
                parts[line] = _without_file(self.version.node(line).type, count, page)
        record = np.zeros(1, GROUP)
        record["rows"] = record["stored"] = stored
        record["file"], record["groups"] = bundle, 1
        records = stack(parts[line] for line in range(self.columns))
        yield _UnnamedGroup(record, np.zeros(0, WORD), records, is_known=False)

    def _rows_without_file(self, line: int, parts: dict[int, Records], stored: int) -> int | None:
        """Return the rows of a node without a file: of its parent's, or all its items."""
        paths = self.version.paths
        if len(paths[line]) == 1:
            return stored
        above = parts[paths.index(paths[line][:-1])]
        lengths = np.flatnonzero(above.streams["name"] == LENGTHS)
        if len(lengths):
            return int(above.words[above.first_word[lengths[0] + 1] - 2])
        type_ = self.version.node(paths.index(paths[line][:-1])).type
        if pa.types.is_fixed_size_list(type_):
            return int(above.parts["rows"][0]) * type_.list_size
        return int(above.parts["rows"][0]) if pa.types.is_struct(type_) else None

    def _of_groups(self, entry: Array) -> bytes | None:
        """Return the leaf of as many of the row groups as the entry says."""
        count = int(entry["groups"])
        for start in range(len(self.groups) - count + 1):
            some = self.groups[start : start + count]
            if sum(int(group.record["stored"][0]) for group in some) != int(entry["stored"]):
                continue
            records = join([group.records for group in some])
            deleted = np.concatenate([group.deleted for group in some])
            groups = np.concatenate([group.record for group in some])
            unknown = np.flatnonzero([not group.is_known for group in some])
            # The first of a table may be of a commit that was no blind append.
            for first in range(len(unknown) + 1):
                groups["changed"][unknown] = 0
                groups["changed"][unknown[:first]] = entry["changed"]
                data = encode(0, groups, deleted, records)
                if Leaf(data).crc == int(entry["crc"]):
                    return data
        return None

    def _of_leaves(self, level: int, entry: Array) -> bytes | None:
        """Return the leaf of leaves of the level below."""
        below: list[tuple[Array, Records]] = []
        for number in sorted(
            filter(None, map(layout.leaf_number, _names(self.store, layout.LEAVES)))
        ):
            with suppress(*DAMAGED, KeyNotFound):
                leaf = Leaf(self.store.get(layout.leaf(number)))
                if (leaf.level, leaf.columns) == (level - 1, self.columns):
                    below.append(summary(leaf, number, self.orders))
        for start in range(len(below)):
            for stop in range(start + 1, len(below) + 1):
                groups = np.concatenate([group for group, _ in below[start:stop]])
                if int(groups["groups"].sum()) > int(entry["groups"]):
                    break
                records = join([records for _, records in below[start:stop]])
                data = encode(level, groups, np.zeros(0, WORD), records)
                if Leaf(data).crc == int(entry["crc"]):
                    return data
        return None


def _groups_of(version: Version) -> Iterator[_UnnamedGroup]:
    """Yield the row groups of the leaves and the tail of a version that can be read."""
    waiting = [*version.facts.runs]
    while waiting:
        run = waiting.pop()
        if run.level:
            for number in range(len(run)):
                with suppress(BlzError):
                    waiting.append(version.facts.below(run, number))
            continue
        with suppress(BlzError):
            for number in range(len(run)):
                entry_run = run.cut(number, number + 1)
                yield _UnnamedGroup(entry_run.groups.copy(), entry_run.deleted, entry_run.records())


def _without_file(type_: pa.DataType, rows: int, page: int) -> Records:
    """Return the records of a part that has no file."""
    if pa.types.is_null(type_) or not rows:
        array = pa.nulls(rows)
    else:
        array = pa.Array.from_buffers(pa.struct([]), rows, [None])
    part = encode_part(array, page)
    record = np.zeros(1, PART)
    record["rows"], record["page"], record["nbytes"] = rows, page, part.nbytes
    record["flags"], record["pages"] = part.flags, len(part.pages)
    return Records(1, 1, record, pages=part.pages)


def _paths(store: Store) -> list[Path]:
    """Return the paths that have folders of data files, and that of bundles."""
    paths: list[Path] = [layout.SHARED]
    waiting: list[Path] = [(number,) for number in _ids(store, layout.DATA)]
    while waiting:
        path = waiting.pop()
        paths.append(path)
        waiting += [(*path, number) for number in _ids(store, layout.column(path))]
    return sorted(paths)


def _ids(store: Store, prefix: str) -> list[int]:
    names = map(layout.column_id, _names(store, prefix))
    return [number for number in names if number is not None]


def _names(store: Store, prefix: str) -> list[str]:
    with suppress(KeyNotFound, BlzError):
        return store.list_names(prefix)
    return []


def _files(store: Store, paths: Sequence[Path]) -> Iterator[tuple[Path, int, DataFile]]:
    """Yield each data file that can be read, of these columns, by its number."""
    for path in paths:
        numbers = map(layout.part_number, _names(store, layout.column(path)))
        for number in sorted(filter(None, numbers)):
            with suppress(*DAMAGED, KeyNotFound):
                with store.open(layout.part(path, number)) as reader:
                    file, _ = DataFile.read(reader.read, reader.size)
                if file.number == number:
                    yield path, number, file
