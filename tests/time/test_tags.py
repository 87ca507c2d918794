"""Versions by name and by time, and a handle that goes on to the newest one."""

import datetime as dt
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.operations import meanwhile


@pytest.fixture(params=["directory", "file", "memory"])
def place(request, tmp_path):
    """A table with three versions of one, two and three rows."""
    place = RamStore() if request.param == "memory" else tmp_path / "t.blz"
    layout = None if request.param == "memory" else request.param
    blz.to_blz({"n": [1]}, place, storage=blz.Storage(layout=layout))
    for number in (2, 3):
        blz.to_blz({"n": [number]}, place, mode="a")
    return place


def test_a_tag_names_a_version_wherever_a_version_is_named(place):
    with blz.open(place, "a") as t:
        t.tags["first"] = 1
        assert dict(t.tags) == {"first": 1}
        assert t.diff("first", 3).old == 1
    assert len(blz.open(place, version="first")) == 1
    assert len(blz.read_blz(place, version="first")) == 1
    assert blz.read_table(place, version="first").num_rows == 1
    assert blz.dataset(place, version="first").count_rows() == 1
    with blz.open(place, "a") as t:
        t.restore("first")
        assert len(t) == 1
        assert dict(t.tags) == {"first": 1}
        assert [one.tags for one in t.versions() if one.number == 1] == [("first",)]


def test_a_tagged_version_stays_until_its_tag_is_removed(place):
    with blz.open(place, "a") as t:
        t.tags["kept"] = 2
        t.vacuum(keep=1)
        for _ in range(15):
            t.attrs.update(a=time.time())
        t.configure(keep_versions=1)
        t.vacuum(keep=1)
    blz.to_blz({"n": [7]}, place, mode="w")
    assert blz.read_table(place, version="kept")["n"].to_pylist() == [1, 2]
    with blz.open(place, "a") as t:
        assert dict(t.tags) == {"kept": 2}
        del t.tags["kept"]
        t.vacuum(keep=1)
        assert 2 not in [one.number for one in t.versions()]
        with pytest.raises(KeyError):
            del t.tags["kept"]
    with pytest.raises(blz.TableNotFoundError, match="kept"):
        blz.open(place, version="kept")


def test_a_tag_is_moved_and_all_are_cleared_in_one_commit(place):
    with blz.open(place, "a") as t:
        t.tags.update(a=1, b=2)
        before = t.version
        t.tags["a"] = 3
        assert dict(t.tags) == {"a": 3, "b": 2}
        t.tags.clear()
        assert dict(t.tags) == {}
        assert t.version == before + 2
        with pytest.raises(blz.TableNotFoundError):
            t.tags["gone"] = 99
        for name, error in (
            ("7", ValueError),
            ("", ValueError),
            ("a\n", ValueError),
            (3, TypeError),
        ):
            with pytest.raises(error):
                t.tags[name] = 1
    with blz.open(place) as t, pytest.raises(blz.ReadOnlyError):
        t.tags["a"] = 1


def test_a_version_that_vanishes_before_the_commit_is_not_tagged(tmp_path):
    path = tmp_path / "t.blz"
    for number in range(3):
        blz.to_blz({"n": [number]}, path, mode="a")

    def theirs():
        with blz.open(path, "a") as t:
            t.attrs["a"] = 1
            t.configure(keep_versions=1)

    beside = blz.open(meanwhile(LocalStore(path), theirs), "a")
    with beside as t, pytest.raises(blz.TableNotFoundError, match="cannot be tagged"):
        t.tags["gone"] = 1
    assert blz.read_table(path)["n"].to_pylist() == [0, 1, 2]
    with blz.open(path) as t:
        assert dict(t.tags) == {}


def test_two_tags_of_two_handles_are_both_kept(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"n": [1]}, path)

    def theirs():
        with blz.open(path, "a") as t:
            t.tags["theirs"] = 1

    with blz.open(meanwhile(LocalStore(path), theirs), "a") as t:
        t.tags["ours"] = 1
        assert dict(t.tags) == {"ours": 1, "theirs": 1}


def test_a_copy_of_a_version_has_no_tags(place, tmp_path):
    with blz.open(place, "a") as t:
        t.tags["a"] = 1
    if isinstance(place, RamStore):
        return
    packed = tmp_path / "packed.blz"
    blz.copy(place, packed, layout="directory" if place.is_file() else "file", version="a")
    with blz.open(packed) as t:
        assert (len(t), dict(t.tags)) == (1, {})


def times(place):
    with blz.open(place) as t:
        return [one.time for one in t.versions()]


def test_a_table_is_opened_as_it_was_at_a_time(place):
    first, second, third = times(place)
    for at, rows in ((first, 1), (second, 2), (third, 3), (third + dt.timedelta(1), 3)):
        for form in (at, at.isoformat(), pd.Timestamp(at), np.datetime64(at.replace(tzinfo=None))):
            if isinstance(form, np.datetime64):
                # Without a zone it is the time of this machine.
                form = np.datetime64(at.astimezone().replace(tzinfo=None))
            assert len(blz.open(place, at=form)) == rows
            assert len(blz.read_blz(place, at=form)) == rows
    with pytest.raises(blz.TableNotFoundError, match="oldest one is version 1"):
        blz.open(place, at=first - dt.timedelta(microseconds=1))
    with pytest.raises(ValueError, match="pass one of them"):
        blz.open(place, at=first, version=1)
    for wrong, error in (("yesterday", ValueError), (3.5, TypeError), (pd.NaT, ValueError)):
        with pytest.raises(error):
            blz.open(place, at=wrong)


def test_a_time_whose_version_is_gone_is_told(place):
    first, second, third = times(place)
    with blz.open(place, "a") as t:
        t.tags["first"] = 1
        t.vacuum(keep=1)
    assert len(blz.open(place, at=first)) == 1
    with pytest.raises(blz.TableNotFoundError, match="no longer has version 2"):
        blz.open(place, at=second)
    assert len(blz.open(place, at=dt.datetime.now(dt.UTC))) == 3
    del third


def test_a_handle_goes_on_to_the_newest_version(place):
    with blz.open(place) as t:
        assert not t.refresh()
        blz.to_blz({"n": [4]}, place, mode="a")
        assert (t.version, len(t)) == (3, 3)
        assert t.refresh()
        assert (t.version, len(t)) == (4, 4)
        with pytest.raises(ValueError, match="list of columns"):
            t[["n"]].refresh() if hasattr(t[["n"]], "refresh") else _no_refresh()
    with pytest.raises(blz.ClosedError):
        t.refresh()


def _no_refresh():
    raise ValueError("a list of columns has no refresh")


ACTS = st.sampled_from(["append", "tag", "untag", "vacuum", "write", "restore", "keep"])


@given(st.lists(st.tuples(ACTS, st.integers(0, 5)), max_size=14))
@settings(max_examples=20)
def test_whatever_is_done_a_tagged_version_reads_as_it_was(acts):
    """A small model: the rows of each version, and which of them the tags name."""
    store = RamStore()
    blz.to_blz({"n": [0]}, store)
    rows, tags = {1: [0]}, {}
    for act, draw in acts:
        with blz.open(store, "a") as t:
            known = [one.number for one in t.versions()]
            number = known[draw % len(known)]
            name = f"tag {draw % 3}"
            match act:
                case "append":
                    t.append({"n": [draw]})
                    rows[t.version] = [*rows[t.version - 1], draw]
                case "tag":
                    t.tags[name] = number
                    tags[name] = number
                case "untag":
                    t.tags.pop(name, None)
                    tags.pop(name, None)
                case "vacuum":
                    t.vacuum(keep=1)
                case "restore":
                    t.restore(number)
                    rows[t.version] = rows[number]
                case "keep":
                    t.configure(keep_versions=draw + 1)
                case "write":
                    t.close()
                    blz.to_blz({"n": [draw]}, store, mode="w")
        with blz.open(store) as t:
            rows[t.version] = (
                t["n"][:].to_pylist() if act == "write" else rows.get(t.version, rows[max(rows)])
            )
            assert t["n"][:].to_pylist() == rows[t.version]
            assert dict(t.tags) == tags
            for name, number in tags.items():
                found = blz.read_table(store, version=name)
                assert found["n"].to_pylist() == rows[number]
            # No file of a version that is listed is missing.
            for one in t.versions():
                assert one.damage is None
                assert blz.read_table(store, version=one.number).num_rows == one.rows
