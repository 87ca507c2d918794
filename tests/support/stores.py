"""Stores for the tests of the engine: with hooks, counted locks and complete listings."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import blztable as blz
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Keys
from blztable.engine.change.creation import create
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import spans
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import StagedColumn, StagedVersion
from blztable.engine.version.versions import Version
from blztable.format import layout
from blztable.format.records import Records
from blztable.format.version_file import Tail, encode_version
from blztable.storage.files import File, MemoryFile
from blztable.storage.memory import RamStore
from blztable.storage.one_file.store import OneFileStore
from support.new_tables import Stream
from support.options import tiny

Hook = Callable[[str, tuple[Any, ...]], None]


class Hooked:
    """A store that calls `before` and `after` around every call, with its name and arguments.

    Without `locks` the writers' lock excludes nobody.
    """

    def __init__(self, store, *, before: Hook | None = None, after: Hook | None = None, locks=True):
        self._store = store
        self._before = before
        self._after = after
        self._locks = locks

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            if self._before:
                self._before(name, args)
            if name == "lock" and args[0] == layout.LOCK and not self._locks:
                return ExitStack()
            result = value(*args, **options)
            if self._after:
                self._after(name, args)
            return result

        return call


class CountedLocks:
    """A store that counts the locks held at a time; `most` is the highest count."""

    def __init__(self, store):
        self._store = store
        self._now = 0
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def lock(self, *args: Any, **options: Any) -> ExitStack:
        lock = self._store.lock(*args, **options)
        self._now += 1
        self.most = max(self.most, self._now)
        held = ExitStack()
        held.callback(self._let_go)
        held.push(lock)
        return held

    def _let_go(self) -> None:
        self._now -= 1


def fork() -> int:
    """Fork without the interpreter's warning about threads, which these tests accept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def said_by_a_child(work: Callable[[Callable[[], int]], object]) -> str:
    """Return the exception by which a child ends that `work` makes with the fork it is given.

    The parent waits for the child before it goes on.
    """
    reading, writing = os.pipe()
    child = None

    def forked() -> int:
        nonlocal child
        child = fork()
        if child:
            os.waitpid(child, 0)
        return child

    try:
        work(forked)
    except BaseException as error:
        if child != 0:
            raise
        os.write(writing, f"{type(error).__name__} {error}".encode())
    finally:
        if child == 0:
            os._exit(0)
        os.close(writing)
    with os.fdopen(reading) as said:
        return said.read()


def once(wanted: str, action: Callable[[], object], key: str | None = None) -> Hook:
    """Return a hook that acts at the first call of this name, on this key."""
    done = False

    def hook(name: str, args: tuple[Any, ...]) -> None:
        nonlocal done
        if not done and name == wanted and (key is None or args[0] == key):
            done = True
            action()

    return hook


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def tree(store) -> set[str]:
    """Return every entry of a store, temporary ones too."""
    if isinstance(store, RamStore):
        return set(store._entries) - {""}
    if isinstance(store, OneFileStore):
        listing = store._listing()
        keys = {key for key, _ in listing.values()} | set(listing.prefixes())
        above = {key.rsplit("/", depth)[0] for key in keys for depth in range(key.count("/") + 1)}
        return (keys | above) - {""}
    root = Path(store.name)
    found = [Path(top, name) for top, *names in os.walk(root) for name in names[0] + names[1]]
    return {path.relative_to(root).as_posix() for path in found}


class FileInMemory(File):
    """The file of a table in one file, in memory."""

    def __init__(self) -> None:
        # Each is a file of its own, which readers keep after it was replaced.
        self._now: MemoryFile | None = None

    @property
    def size(self) -> int:
        return self._now.size

    def read(self, offset: int, length: int) -> bytes:
        return self._now.read(offset, length)

    def current(self) -> MemoryFile | None:
        return self._now

    def create(self) -> bool:
        is_new = self._now is None
        self._now = self._now or MemoryFile()
        return is_new

    def lock(self, timeout: float, **options: bool) -> None: ...

    def write(self, offset: int, data) -> None:
        self._now.write(offset, data)

    def cut(self, size: int) -> int:
        return self._now.cut(size)

    def beside(self, nbytes: int = 0) -> "FileInMemory":
        new = FileInMemory()
        new.create()
        new.take_place = lambda: setattr(self, "_now", new._now)
        return new

    def discard(self) -> None: ...

    def remove(self) -> None:
        self._now = None


def files_named(version: Version) -> set[str]:
    """Return the keys of all files that a version names, bundles too."""
    bundles = {layout.part(layout.SHARED, number) for number in bundle_numbers(version)}
    leaves = {layout.leaf(one[0]) for one in version.facts.unseen(set()) if isinstance(one, tuple)}
    files = {
        layout.part(path, number)
        for line, path in enumerate(version.paths)
        for number, bundle in zip(version.parts(line).files.tolist(), version.bundles, strict=True)
        if number and number != bundle
    }
    return files | bundles | leaves


def bundle_numbers(version: Version) -> set[int]:
    """Return the numbers of the bundles that a version names."""
    return {*version.bundles} - {0}


def changed_by(version: Version) -> list[int]:
    """Return for each row group the newest version that put rows there, no blind append."""
    return np.maximum(version.facts.groups["changed"], version.head.changed).tolist()


def directories_named(version: Version) -> set[str]:
    """Return the directories of a version's columns and of the bundles; some need not exist."""
    return {layout.BUNDLES, *map(layout.column, version.paths)}


def copied(store: RamStore) -> RamStore:
    """Return a store in memory with the same entries, to be changed alone."""
    copy = RamStore(store.name)
    copy._entries = {key: replace(entry) for key, entry in store._entries.items()}
    return copy


def entries(store) -> set[str]:
    """Return all entries of a store but the directories that a version names.

    A change that fails leaves these once they are made, because others may write there.
    """
    there = (versions.read(store, number) for number in versions.numbers(store))
    return tree(store).difference(*map(directories_named, there))


def write(store, table: pa.Table, *, mode: str = "w", attrs=None, **options) -> int:
    """Commit a table; return the new version."""
    is_durable = options.pop("durability", "full") == "full"
    version, pinned = create(
        store,
        Stream(table),
        tiny(**options),
        attributes=attrs,
        replace_existing=mode == "w",
        is_durable=is_durable,
    )
    pinned.close()
    return version.head.version


def read(version: Version) -> pa.Table:
    indices = range(len(version.schema))
    rows = spans(version.row_groups, 0, version.head.rows)
    with OpenColumns.whole(version) as parts:
        return pa.table(parts.columns(indices, rows), schema=version.schema)


def set_properties(store, **properties) -> int:
    """Commit properties of the table, among them the retention of versions."""

    def rebased(newest: Version | None) -> StagedVersion:
        assert newest is not None
        staged = StagedVersion.of(newest)
        return staged.with_head(properties={**newest.head.properties, **properties})

    with Commit(CommitPlan(store, is_durable=False)) as transaction:
        version, pinned = transaction.publish("properties", rebased)
    pinned.close()
    return version.head.version


def put_head(store, number: int, **fields) -> None:
    """Write a manifest again with other fields in its head."""
    version = versions.read(store, number)
    head = replace(version.head, **fields)
    # The runs of a version that was read are its tails, the highest level first.
    tails = [run.encoded() for run in reversed(version.facts.runs)]
    if not tails:
        tails = [Tail.empty(len(version.paths)).encode(0)]
    store.put(version.key, encode_version(head.to_json(), version.schema_bytes, tails))


def with_files(staged: StagedVersion, line: int, numbers) -> StagedVersion:
    """Return a version in which the parts of a node say that they have other files."""
    records = staged.records([line])
    parts = records.parts.copy()
    parts["file"] = numbers
    column = StagedColumn(staged.paths[line], replace(records, parts=parts))
    return staged.with_parts({line: column}, range(staged.group_count))


def without_files(staged: StagedVersion, line: int) -> StagedVersion:
    """Return a version in which the parts of a node have no streams, and so no files."""
    records = staged.records([line])
    parts = records.parts.copy()
    for name in ("file", "offset", "cbytes", "nbytes", "streams", "prefix"):
        parts[name] = 0
    bare = Records(1, records.entries, parts, pages=records.pages)
    return staged.with_parts(
        {line: StagedColumn(staged.paths[line], bare)}, range(staged.group_count)
    )


@contextmanager
def changing(
    base: Version, storage: blz.Storage | None = None, *, is_durable: bool = False
) -> Iterator[ChangeSet]:
    """Begin a commit on this version, and give a change set for it."""
    with Commit(CommitPlan(base.store, is_durable, base=base)) as commit:
        yield ChangeSet(commit, storage or blz.Storage())


def set_attributes(store, base, changes, removed=(), *, is_durable=True):
    """Set and remove attributes in a commit on this version."""
    with changing(base, is_durable=is_durable) as work:
        change = Keys.of(work.staged, "attributes", changes, removed)
        work.add("attributes", change)
        return work.publish()
