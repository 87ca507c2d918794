"""The code of tables in stores, in every order of the requests of all who are at work.

Whoever reads meets one version as a whole, or is told that it was removed.
"""

from concurrent.futures import Future

import pytest

import blztable as blz
from blztable.engine.run import pool
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.storage.remote import fetched
from blztable.storage.remote.store import RemoteStore
from support.interleaved.bucket import MEDIUM, MemoryBucket
from support.interleaved.walk import walk

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

    monkeypatch.setattr(fetched, "requested", requested)
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
