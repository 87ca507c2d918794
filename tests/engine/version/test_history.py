"""The list of versions, also with damaged manifests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from blztable.engine.version import versions
from blztable.engine.version.commit import WRITER, Commit, CommitPlan
from blztable.engine.version.history import DID, list_versions
from blztable.engine.version.staged import StagedVersion
from blztable.errors import FormatError, StorageError
from blztable.format import layout
from blztable.report import VersionInfo
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.stores import Hooked, once, put_head, raising, set_attributes, write


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    store = LocalStore(tmp_path / "t.blz") if request.param == "local" else RamStore()
    yield store
    store.close()


def three_versions(store):
    write(store, pa.table({"n": [1, 2, 3]}))
    write(store, pa.table({"n": [1, 2], "text": ["a", "b"]}))
    base, pinned = versions.pin(store)
    with pinned:
        set_attributes(store, base, {"a": 1}, (), is_durable=False)[1].close()


def test_each_version_is_listed_with_what_made_it(store):
    before = datetime.now(UTC)
    three_versions(store)
    found = list_versions(store)
    assert all(one.seconds > 0 for one in found)
    did = [dict(zip(DID, rows, strict=True)) for rows in ((3, 0, 0), (2, 0, 3), (0, 0, 0))]
    assert [replace(one, time=None, seconds=None) for one in found] == [
        VersionInfo(1, None, "create", 3, 1, 1, 0, (), WRITER, deleted_rows=0, **did[0]),
        VersionInfo(2, None, "replace", 2, 2, 1, 1, (), WRITER, deleted_rows=0, **did[1]),
        VersionInfo(3, None, "attributes", 2, 2, 1, 2, (), WRITER, deleted_rows=0, **did[2]),
    ]
    times = [one.time for one in found]
    assert before <= times[0] < times[1] < times[2] <= datetime.now(UTC)
    assert times[0].utcoffset() == timedelta(0)


def test_where_there_is_no_table_the_list_is_empty(store, tmp_path):
    assert list_versions(store) == []
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FormatError):
        list_versions(LocalStore(tmp_path / "file"))


def test_names_of_commits_are_those_of_the_version_they_made(store):
    three_versions(store)

    def draft(newest):
        ids = (("first", 1), ("monday", 4), ("again", 4))
        return StagedVersion.of(newest).with_head(commit_ids=ids)

    with Commit(CommitPlan(store, is_durable=False)) as transaction:
        transaction.publish("named", draft)[1].close()
    assert [one.commit_ids for one in list_versions(store)] == [(), (), (), ("monday", "again")]


@pytest.mark.parametrize("number", [1, 3])
def test_a_damaged_version_is_listed_with_its_damage_alone(store, number):
    three_versions(store)
    whole = list_versions(store)
    data = store.get(layout.manifest(number))
    store.put(layout.manifest(number), data.replace(b'"operation"', b'"0peration"'))
    found = list_versions(store)
    damaged = found[number - 1]
    assert damaged == VersionInfo(number, damage=damaged.damage)
    assert damaged.damage == "section 0 of a version does not match its checksum"
    assert found[: number - 1] + found[number:] == whole[: number - 1] + whole[number:]


def test_a_version_that_cannot_be_read_is_listed_with_the_reason(store):
    three_versions(store)
    failing = once("get", raising(StorageError("the disk fails")), layout.manifest(2))
    found = list_versions(Hooked(store, before=failing))
    assert [one.damage for one in found] == [None, "the disk fails", None]


def test_a_version_that_goes_meanwhile_is_not_listed(store):
    three_versions(store)
    going = once("get", lambda: store.delete([layout.manifest(2)]), layout.manifest(2))
    assert [one.number for one in list_versions(Hooked(store, before=going))] == [1, 3]


def test_a_time_that_no_calendar_has_is_none(store):
    three_versions(store)
    put_head(store, 2, time="2026-13-32T25:61:61.000000+00:00")
    found = list_versions(store)
    assert found[1].time is None
    assert found[1].rows == 2
    assert found[1].damage is None


def test_only_manifests_are_read(store):
    three_versions(store)
    calls = []
    found = list_versions(Hooked(store, after=lambda name, args: calls.append((name, args[0]))))
    assert [one.rows for one in found] == [3, 2, 2]
    looked = [("get", layout.SIZES), ("list_names", layout.MANIFESTS)]
    assert calls == looked + [("get", layout.manifest(number)) for number in (1, 2, 3)]
