"""The code of tables in stores, in every order of the requests of all who are at work.

Whoever reads meets one version as a whole, or is told that it was removed. What a writer was told
is in the newest version, once.
"""

import secrets
import uuid
from concurrent.futures import Future
from datetime import datetime

import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.run import pool
from blztable.engine.version import begin, commit, leases, new_files, unlocked, unlocked_vacuum
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.storage.remote import fetched, uploads
from blztable.storage.remote.store import RemoteStore
from support.interleaved.bucket import MEDIUM, MemoryBucket
from support.interleaved.walk import drawn, walk

OLD, NEW = ({"x": numbers, "word": ["a", "b"]} for numbers in ([1, 2], [7, 2]))


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Let each actor make its requests in its own thread, one after another."""

    def requested(call, *arguments):
        future = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    for module in (fetched, uploads, begin, unlocked_vacuum):
        monkeypatch.setattr(module, "requested", requested)
    monkeypatch.setattr(pool, "_processors", lambda: 1)


def replaced():
    """Return the values of a table, and of the one that replaced it, with both versions."""
    memory = blz.MemoryStore()

    def values():
        entries = memory._ram_store._entries.items()
        return {key: bytes(one.data) for key, one in entries if one.data}

    blz.to_blz(OLD, memory)
    before = values()
    blz.to_blz(NEW, memory, mode="w")
    return before, values()


BEFORE, AFTER = replaced()
FIRST, SECOND = layout.manifest(1), layout.manifest(2)
OLD_FILES = [key for key in BEFORE if key.startswith("data/")]


def publishing(bucket):
    """Replace the table: data, then the manifest."""
    for key in sorted(AFTER.keys() - BEFORE.keys()):
        bucket.create(key, AFTER[key])


def burying(bucket):
    """Remove the first version, as a vacuum does."""
    bucket.put(FIRST, REMOVED)
    for key in OLD_FILES:
        bucket.delete([key])


def dropping(bucket):
    """Drop the table."""
    bucket.create(SECOND, REMOVED)


def one_after_another(*steps):
    """Return an actor that does all of these, one after another."""

    def prepared(bucket):
        def work():
            for step in steps:
                step(bucket)

        return work

    return prepared


def reading(bucket):
    def work():
        with blz.open(RemoteStore(bucket)) as table:
            return table.to_arrow().to_pydict()

    return work


def reading_what_is_open(bucket):
    table = blz.open(RemoteStore(bucket))

    def work():
        with table:
            return table.to_arrow().to_pydict()

    return work


def ends(other, reader):
    """Return what a reader gets in all orders: "old", "new", or the kind of an error."""
    found = set()

    def judge(_, actors):
        end = actors[1]
        if end is None:
            return None
        if end.raised is None:
            found.add("old" if end.returned == OLD else "new")
            return None if end.returned in (OLD, NEW) else f"{end.returned}"
        found.add(type(end.raised).__name__)
        return (
            None
            if "removed" in f"{end.raised}" or "dropped" in f"{end.raised}"
            else (f"{end.raised!r}")
        )

    explored = walk(MEDIUM, lambda: MemoryBucket(BEFORE), [other, reader], judge)
    assert not explored.problems, explored.problems
    return found


def test_a_reader_beside_a_replacement_meets_one_of_the_tables():
    assert ends(one_after_another(publishing), reading) == {"old", "new"}


def test_a_reader_beside_a_vacuum_meets_a_version_or_is_told_that_it_was_removed():
    found = ends(one_after_another(publishing, burying), reading)
    assert found == {"old", "new", "TableNotFoundError"}


def test_an_open_table_beside_a_vacuum_is_read_or_told_to_be_removed():
    found = ends(one_after_another(publishing, burying), reading_what_is_open)
    assert found == {"old", "TableNotFoundError"}


def test_a_reader_beside_a_drop_meets_the_table_or_none():
    assert ends(one_after_another(dropping), reading) == {"old", "Dropped"}


# Writers.

ROWS = {"id": [0, 1, 2, 3], "word": ["a", "b", "c", "d"]}


@pytest.fixture
def same_each_time(monkeypatch):
    """Let each actor draw the same names and times in each run."""

    class Then(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime(2026, 1, 1, tzinfo=zone)

    token_hex = secrets.token_hex

    def token(nbytes=None):
        number = drawn()
        return token_hex(nbytes) if number is None else f"{number:032x}"

    number_of_now = unlocked.number_of_now

    def number():
        number = drawn()
        return number_of_now() if number is None else 10**17 + number

    monkeypatch.setattr(unlocked, "number_of_now", number)
    monkeypatch.setattr(secrets, "token_hex", token)
    monkeypatch.setattr(uuid, "uuid4", lambda: token(16))
    randbelow = secrets.randbelow
    monkeypatch.setattr(secrets, "randbelow", lambda most: drawn() or randbelow(most))
    monkeypatch.setattr(commit, "datetime", Then)
    for module in (commit, new_files):
        monkeypatch.setattr(module, "monotonic", lambda: 0.0)
    # No lease is renewed in so short a time.
    monkeypatch.setattr(leases, "repeated", lambda *_: lambda: None)


@pytest.fixture(scope="module")
def begun():
    """Return the values of a table of two versions; the first one is not named by the second."""
    bucket = MemoryBucket()
    with tuning.tuned(leaf_entries=2, leaf_few=1):
        store = RemoteStore(bucket)
        blz.to_blz({"id": [9], "word": ["z"]}, store)
        blz.to_blz(ROWS, store, mode="w", storage=blz.Storage(row_group_rows=2))
        store.close()
    return bucket.values


def changing(change, what=None):
    """Return an actor that opens the table, makes a change, and returns `what` it has done."""

    def prepared(bucket):
        table = blz.open(RemoteStore(bucket), "a")

        def work():
            with table:
                change(table)
            return what

        return work

    return prepared


def appending(*numbers):
    rows = {"id": list(numbers), "word": ["new"] * len(numbers)}
    return changing(lambda table: table.append(rows), {"appended": set(numbers)})


def deleting(number):
    return changing(lambda table: table.delete([("id", "==", number)]), {"deleted": {number}})


# It may be there or not while its delete is at work.
DELETED = 1


def vacuuming(table):
    table.vacuum(keep=1)


def tagging(table):
    table.tags["first"] = 1


def restoring(table):
    table.restore(1)


def holding(bucket):
    """Return what opens the first version with a lease: then it is read, whoever removes it."""

    def work():
        with blz.open(RemoteStore(bucket), version=1, hold=600) as table:
            try:
                assert table.to_arrow()["id"].to_pylist() == [9]
            except blz.BlzError as error:
                raise AssertionError(f"not held: {error}") from None

    return work


def dropping_it(bucket):
    """Return what drops the table."""

    def work():
        store = RemoteStore(bucket)
        blz.drop(store)
        store.close()
        return {"dropped": {0}}

    return work


def creating_anew(bucket):
    """Return what drops the table and makes another one there."""

    def work():
        dropping_it(bucket)()
        store = RemoteStore(bucket)
        blz.to_blz({"id": [100], "word": ["new"]}, store, mode="x")
        store.close()
        return {"created": {100}}

    return work


def told(actors, what):
    """Return what the actors that have ended were told to be done."""
    done = [one.returned for one in actors if one is not None and one.returned]
    return set().union(*(one.get(what, set()) for one in done))


def wrong(bucket, actors):
    """Return what is otherwise in the newest version than the writers were told."""
    for one in actors:
        if one is not None and one.raised is not None and not _is_fair(one.raised):
            return f"{type(one.raised).__name__}: {one.raised}"
    try:
        with blz.open(RemoteStore(bucket.copy())) as table:
            ids = table.to_arrow()["id"].to_pylist()
            for version in dict(table.tags).values():
                blz.read_table(RemoteStore(bucket.copy()), version=version)
            problems = table.verify(full=True).problems
    except blz.TableNotFoundError as error:
        return None if "dropped" in str(error) else f"no table: {error}"
    if problems:
        return f"{problems}"
    if 100 in ids:
        return None if ids == [100] else f"of another table: {ids}"
    if told(actors, "dropped") | told(actors, "created"):
        return f"not dropped: {ids}"
    restored = {9} & set(ids)
    least = {*(restored or ROWS["id"]), *told(actors, "appended")} - {DELETED}
    if not least <= set(ids):
        return f"lost: {least - set(ids)}"
    if len(ids) > len(set(ids)):
        return f"doubled: {ids}"
    back = told(actors, "deleted") & set(ids)
    return f"back: {back}" if back else None


def _is_fair(error):
    """True for what a writer is told if its table was dropped, or its version removed."""
    words = ("no longer has version", "removed", "dropped")
    is_known = isinstance(error, blz.ConflictError | blz.TableNotFoundError)
    return is_known and any(one in str(error) for one in words)


SCENES = {
    "a hold and a vacuum": [holding, changing(vacuuming)],
    "two appends": [appending(4), appending(5)],
    "an append and a delete": [appending(4), deleting(DELETED)],
    "an append and a vacuum": [appending(4), changing(vacuuming)],
    "a tag and a vacuum": [changing(tagging), changing(vacuuming)],
    "a restore and a vacuum": [changing(restoring), changing(vacuuming)],
    "a drop and an append": [dropping_it, appending(4)],
    "a drop and a creation, and an append": [creating_anew, appending(4)],
    "a drop and a creation, and a delete": [creating_anew, deleting(DELETED)],
    "a drop and a restore": [dropping_it, changing(restoring)],
    "a drop and a tag": [dropping_it, changing(tagging)],
    "a drop and a vacuum": [dropping_it, changing(vacuuming)],
    "two drops": [dropping_it, dropping_it],
    "an append and the sealing of a leaf": [appending(4), appending(*range(5, 15))],
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_writers_are_told_is_true_in_every_order(same_each_time, begun, scene):
    explored = walk(MEDIUM, lambda: MemoryBucket(begun), SCENES[scene], wrong)
    print(f"{explored.runs} runs, {explored.states} states")
    assert not explored.problems, explored.problems
