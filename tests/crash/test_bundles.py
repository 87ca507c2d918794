"""Changes that write bundles, stopped at every storage operation: the old version or the new one.

`test_changes` is the same for parts with files of their own.
"""

import pytest

import blztable as blz
from support.crash.changes import CHANGES, two_row_groups
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
    nothing,
    recorded,
    replaced,
    where_it_shows,
)
from support.crash.model import FLUSHES, killed_state

pytestmark = pytest.mark.usefixtures("bundled", "ten_copies")

# The files that each change writes, commit by commit. A transaction has a change of one column.
FILES = {
    "append": [["group/__n__.bin"]],
    "append and merge": [["group/__n__.bin"], ["group/__n__.bin"]],
    "delete": [["group/__n__.bin"]],
    "truncate": [["group/__n__.bin"]],
    "resize": [["group/__n__.bin"]],
    "update": [["col0/__n__.bin"]],
    "transaction": [["group/__n__.bin", "col0/__n__.bin", "group/__n__.bin"]],
    "drop_columns": [[]],
    "restore": [[]],
    "creation": [["group/__n__.bin"]],
    "replacement": [["group/__n__.bin"]],
}
WRITES = {"creation": (nothing, 1), "replacement": (replaced(2), 3)}
ROOT, DATA = "sync_directory t.blz", "sync_directory t.blz/data"
MANIFEST, NAMES = "sync_file t.blz/meta/manifest/.tmp", "sync_directory t.blz/meta/manifest"


def commit(name, durability="full"):
    if name in WRITES:
        before, number = WRITES[name]

        def write(store):
            blz.to_blz(content(number), store, durability=durability)

        return Commit(before, write, {number: Held(content(number))})
    change, makes = CHANGES[name]
    return Commit(two_row_groups, changing(change, durability), makes)


def flushes(files):
    """Return the flushes of a commit of these files: content, then names from the bottom up."""
    directories = sorted({file.partition("/")[0] for file in files}, reverse=True)
    # The version before is durable, and has a bundle.
    above = [DATA] if any("col" in name for name in directories) else []
    content = [f"sync_file t.blz/data/{file}" for file in files]
    return [*content, *(f"{DATA}/{name}" for name in directories), *above, MANIFEST, NAMES]


EXPECTED = {name: [one for files in FILES[name] for one in flushes(files)] for name in FILES}
# The place of a new table.
EXPECTED["creation"][:0] = [
    "sync_directory ",
    "sync_file t.blz/meta/lock",
    "sync_directory t.blz/meta",
    ROOT,
]
names = EXPECTED["creation"].index(MANIFEST)
EXPECTED["creation"][names:names] = [DATA, ROOT]
# The directory of a column without a file may be one that a killed writer did not flush.
NEEDLESS = {DATA}
NEEDLESS_IN_CREATION = {ROOT, "sync_file t.blz/meta/lock"}
NEEDED = [
    (name, flush, all_of_them[:position].count(flush))
    for name, all_of_them in EXPECTED.items()
    for position, flush in enumerate(all_of_them)
    if flush not in (NEEDLESS_IN_CREATION if name == "creation" else NEEDLESS)
]


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_bundles_makes_these_flushes(tmp_path, name):
    log = recorded(tmp_path, commit(name)).log
    done = [described(one) for one in log.operations if one.kind in FLUSHES]
    assert sorted(done) == sorted(EXPECTED[name])


@pytest.mark.parametrize("name", FILES)
def test_power_lost_anywhere_in_it_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name))
    assert not list(broken_promises(tmp_path, recording, all_of_it=False))


@pytest.mark.parametrize("name", FILES)
def test_a_process_killed_anywhere_in_it_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name, "process"))
    assert [one for one in recording.log.operations if one.kind in FLUSHES] == []
    for stop in range(len(recording.log) + 1):
        state = killed_state(recording.log, stop)
        returned = RETURNED in recording.log.marked(stop)
        broken = broken_promise(state, tmp_path / "state", recording, returned=returned)
        assert broken is None, state.story


@pytest.mark.parametrize(("name", "flush", "which"), NEEDED)
def test_leaving_out_any_one_of_its_flushes_breaks_the_promise(tmp_path, name, flush, which):
    assert broken_without(tmp_path, commit(name), flush, which) is not None


@pytest.mark.parametrize("flush", sorted(NEEDLESS))
def test_the_flushes_that_alone_could_be_left_out_are_known(tmp_path, flush):
    assert broken_without(tmp_path, commit("update"), flush, 0, where_it_shows) is None


@pytest.mark.parametrize("flush", sorted(NEEDLESS_IN_CREATION))
def test_the_flushes_that_alone_a_creation_could_leave_out_are_known(tmp_path, flush):
    assert broken_without(tmp_path, commit("creation"), flush, 0, where_it_shows) is None


@pytest.mark.storm
@pytest.mark.parametrize(
    ("name", "flush", "which"),
    [
        (name, flush, all_of_them[:position].count(flush))
        for name, all_of_them in EXPECTED.items()
        for position, flush in enumerate(all_of_them)
        if (name, flush, all_of_them[:position].count(flush)) not in NEEDED
    ],
)
def test_they_could_be_left_out_wherever_power_is_lost(tmp_path, name, flush, which):
    assert broken_without(tmp_path, commit(name), flush, which) is None
