"""A commit stopped at every storage operation: the old table or the new one, whole.

Each test records a real commit with `RecordingDisk`, then looks at everything the disk may hold
after a loss of power at any point of it: every version that is there opens and holds exactly what
was written, none of those to be kept is missing, and once the call has returned the new one is
there. On top of what was found another writer commits.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from crash import (
    FLUSHES,
    Log,
    Operation,
    RecordingDisk,
    State,
    crash_states,
    killed_state,
    write_state,
)

import blztable as blz
from blztable.engine import versions
from blztable.format import layout, manifest
from blztable.storage.local import LocalStore

NAME = "t.blz"
RETURNED = "returned"


def content(number: int) -> pa.Table:
    """What the test's version `number` holds: unlike every other one."""
    rows = [number, None, number * 7]
    return pa.table({"n": rows, "text": [f"v{number}", None, "é" * number]})


LATER = content(99)


@dataclass(frozen=True)
class Commit:
    """A commit to record: the versions before it, what it does, and the version it makes."""

    before: int
    run: Callable[[LocalStore], None]
    makes: int
    # Versions that may be gone, because the commit lets them go.
    going: frozenset[int] = frozenset()
    # Whether those before it are past the hour that versions are kept for.
    is_old: bool = False
    holds: pa.Table | None = None
    attrs: tuple[tuple[str, int], ...] = ()


def writing(number: int, **options) -> Callable[[LocalStore], None]:
    return lambda store: blz.to_blz(content(number), store, **options)


def set_attribute(store: LocalStore) -> None:
    with blz.open(store, mode="a") as table:
        table.attrs["checked"] = 1


COMMITS = {
    "creation": Commit(0, writing(1, mode="x"), 1),
    "replacement": Commit(2, writing(3), 3),
    "replacement that makes one too many": Commit(10, writing(11), 11, frozenset({1})),
    "replacement where an old version goes": Commit(2, writing(3), 3, frozenset({1}), is_old=True),
    "attributes": Commit(2, set_attribute, 3, holds=content(2), attrs=(("checked", 1),)),
}
PROCESS_COMMITS = {
    "creation": Commit(0, writing(1, mode="x", durability="process"), 1),
    "replacement": Commit(2, writing(3, durability="process"), 3),
    "replacement that makes one too many": Commit(
        10, writing(11, durability="process"), 11, frozenset({1})
    ),
}


def recorded(tmp_path, commit: Commit, *, drop=None) -> Log:
    """The log of the commit, on versions that are safe; and the call has returned at its end."""
    parent = tmp_path / "parent"
    parent.mkdir()
    for number in range(1, commit.before + 1):
        blz.to_blz(content(number), parent / NAME)
        if commit.is_old:
            make_old(parent / NAME / layout.manifest(number))
    disk = RecordingDisk(parent, drop=drop)
    commit.run(LocalStore(parent / NAME, disk=disk))
    disk.mark(RETURNED)
    return disk.log


def make_old(path: Path) -> None:
    """Write a manifest again as if the commit had been made long ago."""
    data = path.read_bytes()
    end = manifest.head_length(data)
    head = manifest.decode_head(data[:end])
    long_ago = replace(head, time="2020-01-01T00:00:00.000000+00:00")
    path.write_bytes(manifest.encode(long_ago, data[end:].splitlines()))


def broken_promise(state: State, directory, commit: Commit, *, returned: bool) -> str | None:
    """What is wrong with the table in this state; None if it keeps what was promised."""
    path = write_state(state, directory) / NAME
    try:
        found = {}
        for number in versions.numbers(LocalStore(path)):
            with blz.open(path, version=number) as table:
                found[number] = table.to_arrow(), dict(table.attrs)
        needed = set(range(1, commit.before + 1)) - commit.going
        if returned:
            needed.add(commit.makes)
        if not needed <= set(found):
            return f"versions {needed - set(found)} are gone"
        for number, (table, attrs) in found.items():
            is_new = number == commit.makes
            expected = commit.holds if is_new and commit.holds else content(number)
            if not table.equals(expected):
                return f"version {number} holds {table.to_pydict()}"
            if attrs != dict(commit.attrs if is_new else ()):
                return f"version {number} has the attributes {attrs}"
        if found:
            with blz.open(path) as table:
                if table.version != max(found):
                    return f"opened version {table.version} of {sorted(found)}"
            blz.to_blz(LATER, path, durability="process")
            if not blz.read_table(path).equals(LATER):
                return "another commit on top did not hold"
            return None
        # An unfinished creation: not a table, until the same script has run again.
        try:
            blz.open(path)
        except blz.TableNotFoundError:
            commit.run(LocalStore(path))
            if not blz.read_table(path).equals(content(commit.makes)):
                return "running the script again did not complete it"
            return None
        return "a table without a manifest was opened"
    except blz.BlzError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(directory)


def states(log: Log, stops) -> Iterator[tuple[State, bool]]:
    """The states after these stops, each once before and once after the return."""
    seen = set()
    for stop in stops:
        returned = RETURNED in log.marked(stop)
        for state in crash_states(log, stop):
            key = frozenset(state.entries.items()), returned
            if key not in seen:
                seen.add(key)
                yield state, returned


def broken_promises(tmp_path, log: Log, commit: Commit, stops=None) -> Iterator[str]:
    """Each state that breaks the promise, and how."""
    for state, returned in states(log, range(len(log) + 1) if stops is None else stops):
        broken = broken_promise(state, tmp_path / "state", commit, returned=returned)
        if broken is not None:
            yield f"{state.story}: {broken}"


@pytest.mark.parametrize("name", COMMITS)
def test_power_lost_anywhere_in_a_commit_leaves_the_old_table_or_the_new_one(tmp_path, name):
    log = recorded(tmp_path, COMMITS[name])
    assert len(log) > 10
    assert not list(broken_promises(tmp_path, log, COMMITS[name]))


@pytest.mark.parametrize("name", PROCESS_COMMITS)
def test_a_process_killed_anywhere_in_a_commit_leaves_the_old_table_or_the_new_one(tmp_path, name):
    commit = PROCESS_COMMITS[name]
    log = recorded(tmp_path, commit)
    for stop in range(len(log) + 1):
        state = killed_state(log, stop)
        returned = RETURNED in log.marked(stop)
        assert broken_promise(state, tmp_path / "state", commit, returned=returned) is None, state


def test_a_replacement_with_durability_process_flushes_nothing(tmp_path):
    log = recorded(tmp_path, PROCESS_COMMITS["replacement that makes one too many"])
    assert [one for one in log.operations if one.kind in FLUSHES] == []


# The flushes of each commit, in their order.
FILES = [
    "sync_file t.blz/data/col{0}/__1__.bin",
    "sync_file t.blz/data/col{1}/__1__.bin",
    "sync_directory t.blz/data/col{1}",
    "sync_directory t.blz/data/col{0}",
    "sync_directory t.blz/data",
    "sync_directory t.blz",
]
MANIFEST = ["sync_file t.blz/meta/manifest/.tmp", "sync_directory t.blz/meta/manifest"]


def files(first: int) -> list[str]:
    return [text.format(first, first + 1) for text in FILES]


EXPECTED = {
    "creation": [
        "sync_directory ",
        "sync_file t.blz/meta/lock",
        "sync_directory t.blz/meta",
        "sync_directory t.blz",
        *files(0),
        *MANIFEST,
    ],
    "replacement": [*files(4), *MANIFEST],
    "replacement where an old version goes": [
        *files(4),
        *MANIFEST,
        "sync_directory t.blz/meta/manifest",
    ],
    "attributes": MANIFEST,
}

# The flushes that may be left out one at a time, and why none of them breaks the promise.
ROOT, LOCK = "sync_directory t.blz", "sync_file t.blz/meta/lock"
NEEDLESS = {
    ("creation", LOCK, 0): "the file is empty, so it has no content to lose",
    ("creation", ROOT, 0): "flushed again with the first files",
    ("creation", ROOT, 1): "flushed before, when the place was prepared",
    ("replacement", ROOT, 0): "no name was added to the root",
    ("replacement where an old version goes", ROOT, 0): "no name was added to the root",
    ("replacement where an old version goes", MANIFEST[1], 0): "done again when version 1 goes",
}


def described(operation: Operation) -> str:
    path, dot, _ = operation.path.partition(".tmp-")
    return f"{operation.kind} {path}{'.tmp' if dot else ''}"


def leaving_out(flush: str, which: int | None):
    """Drop that flush, the one of this number or all of them."""
    met = 0

    def drop(operation: Operation) -> bool:
        nonlocal met
        if described(operation) != flush:
            return False
        met += 1
        return which is None or met == which + 1

    return drop


@pytest.mark.parametrize("name", EXPECTED)
def test_a_commit_makes_these_flushes(tmp_path, name):
    log = recorded(tmp_path, COMMITS[name])
    assert [described(one) for one in log.operations if one.kind in FLUSHES] == EXPECTED[name]


FLUSHES_OF = [
    (name, flush, flushes[:position].count(flush))
    for name, flushes in EXPECTED.items()
    for position, flush in enumerate(flushes)
]


def broken_without(tmp_path, name: str, flush: str, which: int | None) -> str | None:
    """How the promise is broken if that flush is left out."""
    log = recorded(tmp_path, COMMITS[name], drop=leaving_out(flush, which))
    # Backwards: most show once the call has returned.
    stops = range(len(log), -1, -1)
    return next(broken_promises(tmp_path, log, COMMITS[name], stops), None)


@pytest.mark.parametrize(
    ("name", "flush", "which"), [one for one in FLUSHES_OF if one not in NEEDLESS]
)
def test_leaving_out_any_one_flush_breaks_the_promise(tmp_path, name, flush, which):
    assert broken_without(tmp_path, name, flush, which) is not None


@pytest.mark.parametrize(("name", "flush", "which"), NEEDLESS)
def test_the_flushes_that_alone_could_be_left_out_are_known(tmp_path, name, flush, which):
    assert broken_without(tmp_path, name, flush, which) is None


@pytest.mark.parametrize(
    ("name", "flush"),
    [("creation", ROOT), ("replacement where an old version goes", MANIFEST[1])],
)
def test_leaving_out_a_flush_that_is_done_twice_breaks_the_promise(tmp_path, name, flush):
    assert broken_without(tmp_path, name, flush, None) is not None


def hasty_then_attribute(store: LocalStore) -> None:
    blz.to_blz(content(1), store, durability="process")
    set_attribute(store)


HASTY = Commit(0, hasty_then_attribute, 2, holds=content(1), attrs=(("checked", 1),))
INHERITED = [
    "sync_directory ",
    "sync_directory t.blz",
    "sync_directory t.blz/meta",
    "sync_file t.blz/data/col0/__1__.bin",
    "sync_directory t.blz/data/col1",
    "sync_directory t.blz/data",
]


@pytest.mark.parametrize("left_out", [None, *INHERITED])
def test_a_commit_that_is_to_last_flushes_what_it_inherits_from_one_that_was_not(
    tmp_path, left_out
):
    drop = leaving_out(left_out, None) if left_out else None
    log = recorded(tmp_path, HASTY, drop=drop)
    broken = next(broken_promises(tmp_path, log, HASTY, [len(log)]), None)
    assert (broken is None) is (left_out is None)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_many_files_are_safe_by_one_flush_of_the_file_system(tmp_path, is_flushed):
    wide = pa.table({f"c{i}": [i] for i in range(65)})
    commit = Commit(1, lambda store: blz.to_blz(wide, store), 2, holds=wide)
    flush = "sync_all t.blz"
    drop = None if is_flushed else leaving_out(flush, None)
    log = recorded(tmp_path, commit, drop=drop)
    assert (flush in map(described, log.operations)) is is_flushed
    # Before it nothing of the new version counts: look at the end, and where it is published.
    stops = len(log), [one.kind for one in log.operations].index("link") + 1
    broken = next(broken_promises(tmp_path, log, commit, stops), None)
    assert (broken is None) is is_flushed
