"""A commit stopped at every storage operation, and the checks of every state of the disk.

A test gives the table before the commit, the call, and the versions that it makes. `recorded` runs
the call on a recording disk. `broken_promises` opens each state that the disk may hold after a loss
of power, and yields the faults.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

import blztable as blz
from blztable import tuning
from blztable.engine.version import versions
from blztable.format import layout
from blztable.storage.files import LocalFile
from blztable.storage.local import LocalStore
from blztable.storage.one_file.store import OneFileStore
from blztable.storage.resolve import store_at
from blztable.storage.store import Store
from support.crash.model import Log, Operation, RecordingDisk, State, crash_states, write_state
from support.stores import directories_named, files_named, put_head

NAME = "t.blz"
RETURNED = "returned"
MIRRORS = {f"{NAME}/{key}" for key in (layout.SIZES, layout.STORAGE, layout.ATTRIBUTES)}
MANIFESTS, FILES = f"{NAME}/{layout.MANIFESTS}/", f"{NAME}/{layout.DATA}/"
# Everything in a folder: path to content, None for a directory.
Entries = Mapping[str, bytes | None]


@dataclass(frozen=True)
class Held:
    """The content of a version."""

    table: pa.Table
    attrs: Mapping[str, Any] = field(default_factory=dict)
    # Metalayers: the fixed and variable ones of the table, and those of all columns by name.
    layers: tuple[dict, ...] = ({}, {}, {})


@dataclass(frozen=True)
class Commit:
    """A call to record: the versions before it, the call, and the versions it makes."""

    before: Callable[[Path], None]
    run: Callable[[Store], None]
    makes: Mapping[int, Held]
    # Versions that may be missing, because the commit removes them.
    going: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Recording:
    """A recorded commit, with the content of each version before and after it."""

    commit: Commit
    before: Mapping[int, Held]
    log: Log


def layers_of(table: blz.CTable) -> tuple[dict, ...]:
    """Return the metalayers of a table and of its columns."""
    columns = {
        name: (dict(table[name].meta), dict(table[name].vlmeta)) for name in table.schema.names
    }
    of_columns = {name: both for name, both in columns.items() if any(both)}
    return dict(table.meta), dict(table.vlmeta), of_columns


def content(number: int) -> pa.Table:
    """Return the content of version `number`; no two versions are equal."""
    rows = [number, None, number * 7]
    return pa.table({"n": rows, "text": [f"v{number}", None, "é" * number]})


def nothing(path: Path) -> None:
    """Make no table."""


def replaced(count: int, *, is_old: bool = False) -> Callable[[Path], None]:
    """Make `count` versions with the content of their number, maybe past the retention time."""

    def before(path: Path) -> None:
        for number in range(1, count + 1):
            blz.to_blz(content(number), path)
            if is_old:
                make_old(path / layout.manifest(number))

    return before


def make_old(path: Path) -> None:
    """Rewrite a manifest with a commit time long ago."""
    long_ago = "2020-01-01T00:00:00.000000+00:00"
    put_head(LocalStore(path.parents[2]), int(path.name), time=long_ago)


def changing(
    change: Callable[[blz.CTable], object], durability: str = "full"
) -> Callable[[Store], None]:
    """Return a function that changes the table by a new handle."""

    def run(store: Store) -> None:
        with blz.open(store, mode="a", durability=durability) as table:
            change(table)

    return run


def set_attribute(table: blz.CTable) -> None:
    """Make the smallest possible commit."""
    table.attrs["checked"] = 1


def recorded(
    tmp_path: Path, commit: Commit, *, drop: Callable[[Operation], bool] | None = None
) -> Recording:
    """Record the commit on flushed versions; the log ends with the return of the call."""
    parent = tmp_path / "parent"
    parent.mkdir()
    commit.before(parent / NAME)
    before = held_versions(parent / NAME)
    disk = RecordingDisk(parent, drop=drop)
    commit.run(store_on(parent / NAME, disk))
    disk.mark(RETURNED)
    return Recording(commit, before, disk.log)


def store_on(path: Path, disk: RecordingDisk) -> Store:
    """Return the store of the usual layout at a path of this disk."""
    if tuning.current.layout == "file":
        return OneFileStore(LocalFile(path, disk=disk))
    return LocalStore(path, disk=disk)


def held_versions(path: Path) -> dict[int, Held]:
    """Return the content of every version; each must open."""
    found = {}
    for number in versions.numbers(store_at(path)):
        with blz.open(path, version=number) as table:
            found[number] = Held(table.to_arrow(), dict(table.attrs), layers_of(table))
    return found


def states(log: Log, stops, *, all_of_it: bool = True) -> Iterator[tuple[State, bool]]:
    """Yield the states after these stops, each once before and once after the return.

    Without `all_of_it`, states that differ only in what the engine never reads are yielded once.
    """
    seen = set()
    for stop in stops:
        returned = RETURNED in log.marked(stop)
        for state in crash_states(log, stop):
            entries = state.entries if all_of_it else _as_read(state.entries, log.initial)
            key = frozenset(entries.items()), returned
            if key not in seen:
                seen.add(key)
                yield state, returned


def _as_read(entries: Entries, initial: Entries) -> dict[str, object]:
    """Return entries without mirrors, temporary files, and bytes of files that no version names."""
    new = {path: data for path, data in entries.items() if path not in initial}
    has_version = any(path.startswith(MANIFESTS) and ".tmp-" not in path for path in new)
    read: dict[str, object] = {
        path: data for path, data in entries.items() if path not in MIRRORS and ".tmp-" not in path
    }
    if not has_version:
        read |= {path: data is None for path, data in new.items() if path.startswith(FILES)}
    return read


def broken_promises(
    tmp_path: Path, recording: Recording, stops=None, *, all_of_it: bool = True
) -> Iterator[str]:
    """Yield each state that breaks the promise, and its fault."""
    if stops is None:
        stops = range(len(recording.log) + 1)
    for state, returned in states(recording.log, stops, all_of_it=all_of_it):
        broken = broken_promise(state, tmp_path / "state", recording, returned=returned)
        if broken is not None:
            yield f"{state.story}: {broken}"


def broken_promise(
    state: State, directory: Path, recording: Recording, *, returned: bool
) -> str | None:
    """Return the fault of the table in this state; None if every promise holds."""
    path = write_state(state, directory) / NAME
    commit = recording.commit
    expected = {**recording.before, **commit.makes}
    try:
        found = held_versions(path)
        needed = set(recording.before) - commit.going
        if returned:
            needed |= set(commit.makes)
        if not needed <= set(found):
            return f"versions {needed - set(found)} are gone"
        made = sorted(set(found) & set(commit.makes))
        if made != list(islice(commit.makes, len(made))):
            return f"of the new versions {made} are there"
        for number, held in found.items():
            if not held.table.equals(expected[number].table):
                return f"version {number} holds {held.table.to_pydict()}"
            if held.layers != expected[number].layers:
                return f"version {number} has the metalayers {held.layers}"
            if held.attrs != expected[number].attrs:
                return f"version {number} has the attributes {held.attrs}"
        if found:
            return broken_beyond(path, max(found), found[max(found)].table)
        # An unfinished creation is not a table until the same script has run again.
        try:
            blz.open(path)
        except (blz.TableNotFoundError, blz.CorruptError) as error:
            if isinstance(error, blz.CorruptError) and "was never finished" not in str(error):
                raise
            commit.run(store_at(path))
            if held_versions(path).keys() != commit.makes.keys():
                return "running the script again did not complete it"
            return None
        return "a table without a manifest was opened"
    except blz.BlzError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(directory)


def broken_beyond(path: Path, newest: int, there: pa.Table) -> str | None:
    """Return the fault of opening the newest version and appending rows to it."""
    nulls = [pa.nulls(1, field.type) for field in there.schema]
    more = pa.Table.from_arrays(nulls, schema=there.schema)
    with blz.open(path, mode="a", durability="process") as table:
        if table.version != newest:
            return f"opened version {table.version}, not {newest}"
        table.append(more)
    if not blz.read_table(path).equals(pa.concat_tables([there, more])):
        return "another commit on top did not hold"
    return None


def debris_of(path: Path) -> set[str]:
    """Return the files of the table that are neither of its newest version nor documents."""
    store = store_at(path)
    return unnamed(path, [versions.newest_number(store)])


def unnamed(path: Path, numbers: Iterable[int] | None = None) -> set[str]:
    """Return the files and column directories that none of these versions (default: all) names."""
    store = store_at(path)
    if path.is_file():
        # What no version names is dead bytes; a writer left no file beside the table.
        return set(os.listdir(path.parent)) - {path.name}
    named, columns = set(), {layout.BUNDLES}
    for number in versions.numbers(store) if numbers is None else numbers:
        version = versions.load(store, number)
        named.add(version.key)
        columns |= directories_named(version)
        named |= files_named(version)
    there = {file.relative_to(path).as_posix(): file.is_dir() for file in path.rglob("*")}
    documents = {layout.LOCK, layout.FLIGHT, layout.SIZES, layout.STORAGE, layout.ATTRIBUTES}
    files = {file for file, is_directory in there.items() if not is_directory}
    directories = {file for file, is_directory in there.items() if is_directory}
    known = {layout.DATA, layout.META, layout.MANIFESTS, layout.LEAVES}
    return (files - named - documents) | (directories - columns - known)


def described(operation: Operation) -> str:
    """Return an operation as one line; temporary names and numbers of files look the same."""
    path = re.sub(r"__\d+__", "__n__", operation.path)
    path, dot, _ = re.sub(r"leaf/\d+", "leaf/n", path).partition(".tmp-")
    return f"{operation.kind} {path}{'.tmp' if dot else ''}"


def leaving_out(flush: str, which: int | None) -> Callable[[Operation], bool]:
    """Return a function that drops one flush: the occurrence `which`, or every one for None."""
    met = 0

    def drop(operation: Operation) -> bool:
        nonlocal met
        if described(operation) != flush:
            return False
        met += 1
        return which is None or met == which + 1

    return drop


def everywhere(log: Log) -> list[int]:
    """Return all stops: first those where most faults show, then the others from the end."""
    first = where_it_shows(log)
    return [*first, *(stop for stop in range(len(log), -1, -1) if stop not in first)]


def where_it_shows(log: Log) -> list[int]:
    """Return the stop at the end, and the stops right after each publication."""
    published = [stop for stop, one in enumerate(log.operations, 1) if one.kind == "link"]
    return [len(log), *published]


def broken_without(
    tmp_path: Path,
    commit: Commit,
    flush: str,
    which: int | None,
    stops: Callable[[Log], list[int]] = everywhere,
) -> str | None:
    """Return the fault that shows if this flush is left out."""
    recording = recorded(tmp_path, commit, drop=leaving_out(flush, which))
    return next(broken_promises(tmp_path, recording, stops(recording.log)), None)
