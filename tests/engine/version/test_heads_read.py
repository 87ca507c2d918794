"""Heads read: a commit reads that of the newest version once, if no other commit comes between."""

import pytest

import blztable as blz
from blztable.format import layout
from blztable.storage.memory import RamStore


class CountingStore(RamStore):
    """A store in memory that notes which heads of manifests are read."""

    def __init__(self):
        super().__init__()
        self.heads = []

    def get(self, key, offset=0, length=None):
        if key.startswith(layout.MANIFESTS) and offset == 0:
            self.heads.append(key)
        return super().get(key, offset, length)


def append(t, commit_id=None):
    t.append({"n": [3]}, commit_id=commit_id)


ACTS = {
    "append": append,
    "append with an id": lambda t: append(t, "hour 7"),
    "update": lambda t: t.update({"n": 5}, where="n = 1"),
    "attribute": lambda t: t.attrs.update(unit="m"),
}


@pytest.fixture
def store():
    store = CountingStore()
    blz.to_blz({"n": [1, 2]}, store)
    return store


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_commit_reads_the_head_of_the_newest_version_once(store, act):
    with blz.open(store, "a") as t:
        for version in (1, 2):
            store.heads.clear()
            act(t)
            assert store.heads == [layout.manifest(version)]
            if act is not append:
                return


def test_an_overwrite_reads_the_head_of_the_newest_version_once(store):
    store.heads.clear()
    blz.to_blz({"n": [3]}, store, mode="w")
    assert store.heads.count(layout.manifest(1)) == 1


@pytest.mark.parametrize("commit_id", [None, "hour 7"])
def test_a_commit_reads_the_head_of_a_version_that_came_between(store, commit_id):
    with blz.open(store, "a") as t:
        with t.transaction(commit_id=commit_id) as tx:
            tx.append({"n": [3]})
            blz.to_blz({"n": [4]}, store, mode="a")
            store.heads.clear()
        assert store.heads == [layout.manifest(2)]
        assert t[:].to_pydict() == {"n": [1, 2, 4, 3]}
