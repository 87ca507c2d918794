"""Copy: the files of one version in another store, byte for byte, as a table of its own.

Nothing is compressed again. Each file is compared with the records of the version on the way, and
each chunk with its checksum. Memory has no more than one file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from blztable.engine.run.ahead import one_by_one
from blztable.engine.run.pool import Progress
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError, TableExistsError
from blztable.format import layout
from blztable.format.data_file import DataFile
from blztable.format.layout import Path
from blztable.format.leaf import GROUP
from blztable.format.manifest import LOCKS
from blztable.format.records import WORD, Records
from blztable.format.version_file import Tail
from blztable.storage.store import ByteRange, KeyNotFound, Lock, Store

ANOTHER = "the file is not the one that the version describes"


class Steps(Protocol):
    """What is done between the files of a copy."""

    def copied(self, version: Version, group: int) -> None:
        """Called behind the files of each row group."""

    def remove(self) -> None:
        """Called before the commit."""


def copy(
    version: Version,
    target: Store,
    operation: str,
    progress: Progress,
    *,
    is_durable: bool,
    steps: Steps | None = None,
    is_strict: bool = True,
) -> tuple[Version, Lock]:
    """Write a version to a store without a table; return it there, pinned.

    Unless `is_strict`, damaged chunks are copied as they are.

    Raises
    ------
    TableExistsError
        The target has a table, or other data.
    CorruptError
        A file is missing or damaged; nothing is committed.
    """

    def rebased(newest: Version | None) -> StagedVersion:
        _check_absent(target, newest)
        # Who copies a table to another place says anew whether locks hold there.
        properties = {name: one for name, one in version.head.properties.items() if name != LOCKS}
        did = {"rows_appended": version.head.rows}
        head = replace(version.head, tags={}, did=did, properties=properties)
        return StagedVersion.of_tail(target, head, version.schema, tail_of(version))

    with Commit(CommitPlan(target, is_durable, may_create=True)) as commit:
        _check_absent(target, commit.base)
        if not commit.is_first:
            raise TableExistsError(
                f"a table was dropped at {target.name}, and the files of a copy would have its "
                'numbers; copy the rows with mode="w", or choose another path'
            )
        keys = []
        for file, group in _all_files(version):
            if file is None:
                if steps is not None:
                    steps.copied(version, group)
                continue
            data = _read(version, file, is_strict)
            target.put_new(file.key, [data])
            keys.append(file.key)
            progress.add(file.cbytes)
            progress.report()
        if steps is not None:
            steps.remove()
        if is_durable:
            target.flush(keys)
        published = commit.publish(operation, rebased)
    commit.emit_warnings()
    return published


def tail_of(version: Version, groups: Sequence[int] | None = None) -> Tail:
    """Return row groups of a version, by default all, as the tail of another one."""
    chosen = range(version.group_count) if groups is None else groups
    deleted = [version.all_deleted[group] for group in chosen]
    record = np.zeros(len(chosen), GROUP)
    record["rows"] = [version.row_groups[group] for group in chosen]
    record["stored"] = [version.stored_rows[group] for group in chosen]
    record["file"] = [version.bundles[group] for group in chosen]
    record["deleted"] = [len(words) // WORD.itemsize for words in deleted]
    record["groups"] = 1
    records = version.records(range(len(version.paths)), groups)
    return Tail(record, np.frombuffer(b"".join(deleted), WORD), records)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A data file of a version: the nodes whose parts it has, and their records."""

    key: str
    uuid: str
    number: int
    nodes: Sequence[Path]
    records: Records

    @property
    def cbytes(self) -> int:
        """Bytes of the parts."""
        return int(self.records.parts["cbytes"].sum())

    @property
    def size(self) -> int:
        """Bytes of the file: the chunks of a part are its end."""
        parts = self.records.parts
        return int((parts["offset"] + parts["cbytes"]).max())

    def check(self, data: bytes, *, is_strict: bool = True) -> None:
        """Raise CorruptError unless these bytes are the file that the records describe.

        Unless `is_strict`, its chunks may be damaged.
        """
        file = DataFile.decode(data) if is_strict else _front(data)
        numbers = {path: number for number, path in enumerate(file.nodes)}
        is_same = (file.uuid, file.number) == (self.uuid, self.number)
        is_same &= numbers.keys() >= {*self.nodes}
        if is_same:
            parts = file.records.of([numbers[path] for path in self.nodes], [0])
            pairs = list(zip(parts.arrays, self.records.arrays, strict=True))
            # Parts say where they are, and a front does not.
            pairs = pairs if is_strict else [pairs[1], *pairs[3:]]
            is_same = all(np.array_equal(*pair) for pair in pairs)
        if not is_same:
            raise CorruptError(ANOTHER)


def _front(data: bytes) -> DataFile:
    """Return what the front of a file says, whatever its chunks are."""
    try:
        return DataFile.front(lambda at, length: data[at : at + length])[0]
    except DAMAGED as error:
        raise CorruptError(f"{ANOTHER}: {error}") from None


def files(version: Version, group: int) -> Iterator[CopiedFile]:
    """Yield each data file of a row group."""
    records = version.records(range(len(version.paths)), [group])
    numbers, bundle, uuid = records.parts["file"], version.bundles[group], version.head.uuid
    for line in np.flatnonzero((numbers != 0) & (numbers != bundle)).tolist():
        path, number = version.paths[line], int(numbers[line])
        yield CopiedFile(layout.part(path, number), uuid, number, [path], records.of([line], [0]))
    if bundle:
        lines = np.flatnonzero(numbers == bundle).tolist()
        key, nodes = layout.part(layout.SHARED, bundle), [version.paths[line] for line in lines]
        yield CopiedFile(key, uuid, bundle, nodes, records.of(lines, [0]))


def _all_files(version: Version) -> Iterator[tuple[CopiedFile | None, int]]:
    """Yield each data file with its row group, and None behind those of a row group.

    A store that fetches is asked for the files ahead.
    """

    def all_files() -> Iterator[tuple[CopiedFile | None, int]]:
        for group in range(version.group_count):
            for file in files(version, group):
                yield file, group
            yield None, group

    def wanted(one: tuple[CopiedFile | None, int]) -> tuple[list[ByteRange], bool]:
        file, _ = one
        return [] if file is None else [(file.key, 0, file.size + 1)], False

    return one_by_one(version.store, all_files(), wanted)


def is_whole(version: Version) -> bool:
    """True if all files of a version are there, with the bytes that its records describe."""
    try:
        for file, _ in _all_files(version):
            if file is not None:
                file.check(version.store.get(file.key))
    except (*DAMAGED, KeyNotFound):
        return False
    return True


def _read(version: Version, file: CopiedFile, is_strict: bool) -> bytes:
    """Return the bytes of a file, compared with the records if `is_strict`."""
    name = f"{version.store.name}/{file.key}"
    try:
        data = version.store.get(file.key)
        file.check(data, is_strict=is_strict)
    except KeyNotFound:
        raise CorruptError(f"{name}: the file is missing") from None
    except DAMAGED as error:
        raise type(error)(f"{name}: {error}") from None
    return data


def _check_absent(target: Store, newest: Version | None) -> None:
    if newest is not None:
        raise TableExistsError(f"a table already exists at {target.name}; choose another path")
