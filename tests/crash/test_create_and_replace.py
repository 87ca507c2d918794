"""Creation, replacement and attributes, stopped at every storage operation.

Each test records a real commit with `RecordingDisk`. Then it opens every state that the disk may
hold after a loss of power at any point. Each version opens and holds exactly the data written to
it. No version that must stay is missing, and the new version exists once the call has returned.
Another writer then commits on top. `test_changes` does the same with every other change.
"""

from collections.abc import Callable

import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage.local import LocalStore
from support.crash.checks import (
    RETURNED,
    Commit,
    Held,
    broken_promise,
    broken_promises,
    broken_without,
    changing,
    content,
    described,
    leaving_out,
    nothing,
    recorded,
    replaced,
    set_attribute,
    where_it_shows,
)
from support.crash.model import FLUSHES, killed_state
from support.options import arguments

pytestmark = pytest.mark.usefixtures("own_files", "ten_copies")


def writing(number: int, **options) -> Callable[[LocalStore], None]:
    return lambda store: blz.to_blz(content(number), store, **arguments(**options))


def making(number: int) -> dict[int, Held]:
    return {number: Held(content(number))}


def sorting(number: int, **options) -> Callable[[LocalStore], None]:
    """A stream that is written twice: as it comes, and then in order."""
    return lambda store: blz.to_blz(
        iter([content(number)]), store, **arguments(sort_by="n", **options)
    )


def in_order(number: int) -> dict[int, Held]:
    return {number: Held(content(number).take([0, 2, 1]))}


CHECKED = {3: Held(content(2), {"checked": 1})}
COMMITS = {
    "creation": Commit(nothing, writing(1, mode="x"), making(1)),
    "replacement": Commit(replaced(2), writing(3), making(3)),
    "replacement that makes one too many": Commit(
        replaced(10), writing(11), making(11), frozenset({1})
    ),
    "replacement where an old version goes": Commit(
        replaced(2, is_old=True), writing(3), making(3), frozenset({1})
    ),
    "sorted replacement": Commit(replaced(2), sorting(3), in_order(3)),
    "attributes": Commit(replaced(2), changing(set_attribute), CHECKED),
}
PROCESS_COMMITS = {
    "creation": Commit(nothing, writing(1, mode="x", durability="process"), making(1)),
    "replacement": Commit(replaced(2), writing(3, durability="process"), making(3)),
    "sorted replacement": Commit(replaced(2), sorting(3, durability="process"), in_order(3)),
    "replacement that makes one too many": Commit(
        replaced(10), writing(11, durability="process"), making(11), frozenset({1})
    ),
}


@pytest.mark.parametrize("name", COMMITS)
def test_power_lost_anywhere_in_a_commit_leaves_the_old_table_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, COMMITS[name])
    assert len(recording.log) > 8
    # States that differ only in files the engine never reads are checked here, with few versions.
    all_of_it = name in ("creation", "replacement")
    assert not list(broken_promises(tmp_path, recording, all_of_it=all_of_it))


@pytest.mark.parametrize("name", PROCESS_COMMITS)
def test_a_process_killed_anywhere_in_a_commit_leaves_the_old_table_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, PROCESS_COMMITS[name])
    for stop in range(len(recording.log) + 1):
        state = killed_state(recording.log, stop)
        returned = RETURNED in recording.log.marked(stop)
        assert broken_promise(state, tmp_path / "state", recording, returned=returned) is None


def test_a_replacement_with_durability_process_flushes_nothing(tmp_path):
    log = recorded(tmp_path, PROCESS_COMMITS["replacement"]).log
    assert [one for one in log.operations if one.kind in FLUSHES] == []


def test_a_version_that_was_flushed_goes_after_a_flush_of_the_names_that_stay(tmp_path):
    log = recorded(tmp_path, PROCESS_COMMITS["replacement that makes one too many"]).log
    assert [described(one) for one in log.operations if one.kind in FLUSHES] == [MANIFEST[1]]


# The flushes of each commit, in their order.
FILES = [
    "sync_file t.blz/data/col{0}/__n__.bin",
    "sync_file t.blz/data/col{1}/__n__.bin",
    "sync_directory t.blz/data/col{1}",
    "sync_directory t.blz/data/col{0}",
    "sync_directory t.blz/data",
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
        "sync_directory t.blz",
        *MANIFEST,
    ],
    "replacement": [*files(4), *MANIFEST],
    "replacement where an old version goes": [
        *files(4),
        *MANIFEST,
        "sync_directory t.blz/meta/manifest",
    ],
    # The first written files are removed by then.
    "sorted replacement": [text.replace("__1__", "__2__") for text in files(4)] + MANIFEST,
    "attributes": MANIFEST,
}

# The flushes that may be left out one at a time, and why the promise holds without each.
ROOT, LOCK = "sync_directory t.blz", "sync_file t.blz/meta/lock"
NEEDLESS = {
    ("creation", LOCK, 0): "the file is empty, so it has no content to lose",
    ("creation", ROOT, 0): "flushed again with the first files",
    ("creation", ROOT, 1): "flushed before, when the place was prepared",
    ("replacement where an old version goes", MANIFEST[1], 0): "done again when version 1 goes",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_commit_makes_these_flushes(tmp_path, name):
    log = recorded(tmp_path, COMMITS[name]).log
    assert [described(one) for one in log.operations if one.kind in FLUSHES] == EXPECTED[name]


FLUSHES_OF = [
    (name, flush, flushes[:position].count(flush))
    for name, flushes in EXPECTED.items()
    for position, flush in enumerate(flushes)
]


@pytest.mark.parametrize(
    ("name", "flush", "which"), [one for one in FLUSHES_OF if one not in NEEDLESS]
)
def test_leaving_out_any_one_flush_breaks_the_promise(tmp_path, name, flush, which):
    assert broken_without(tmp_path, COMMITS[name], flush, which) is not None


@pytest.mark.parametrize(("name", "flush", "which"), NEEDLESS)
def test_the_flushes_that_alone_could_be_left_out_are_known(tmp_path, name, flush, which):
    assert broken_without(tmp_path, COMMITS[name], flush, which, where_it_shows) is None


@pytest.mark.parametrize(
    ("name", "flush"),
    [("creation", ROOT), ("replacement where an old version goes", MANIFEST[1])],
)
def test_leaving_out_a_flush_that_is_done_twice_breaks_the_promise(tmp_path, name, flush):
    assert broken_without(tmp_path, COMMITS[name], flush, None) is not None


def hasty_then_attribute(store: LocalStore) -> None:
    blz.to_blz(content(1), store, durability="process")
    changing(set_attribute)(store)


HASTY = Commit(
    nothing,
    hasty_then_attribute,
    {1: Held(content(1)), 2: Held(content(1), {"checked": 1})},
)
INHERITED = [
    "sync_directory ",
    "sync_directory t.blz",
    "sync_directory t.blz/meta",
    "sync_file t.blz/data/col0/__n__.bin",
    "sync_directory t.blz/data/col1",
    "sync_directory t.blz/data",
]


@pytest.mark.parametrize("left_out", [None, *INHERITED])
def test_a_commit_that_is_to_last_flushes_what_it_inherits_from_one_that_was_not(
    tmp_path, left_out
):
    drop = leaving_out(left_out, None) if left_out else None
    recording = recorded(tmp_path, HASTY, drop=drop)
    broken = next(broken_promises(tmp_path, recording, [len(recording.log)]), None)
    assert (broken is None) is (left_out is None)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_many_files_are_safe_by_one_flush_of_the_file_system(tmp_path, is_flushed):
    wide = pa.table({f"c{i}": [i] for i in range(65)})
    commit = Commit(replaced(1), lambda store: blz.to_blz(wide, store), {2: Held(wide)})
    flush = "sync_all t.blz"
    drop = None if is_flushed else leaving_out(flush, None)
    recording = recorded(tmp_path, commit, drop=drop)
    log = recording.log
    assert (flush in map(described, log.operations)) is is_flushed
    # Before the publication the new version does not count: check the end and the publication.
    stops = len(log), [one.kind for one in log.operations].index("link") + 1
    broken = next(broken_promises(tmp_path, recording, stops), None)
    assert (broken is None) is is_flushed
