"""The verbs: defined once, for a table and for a transaction; each says what it did."""

import inspect
import sys
from functools import partialmethod
from pathlib import Path

import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.change.change_set import ChangeSet
from blztable.storage.memory import RamStore
from blztable.table.verbs import Verbs
from support.operations import meanwhile, opened

PACKAGE = Path(blz.__file__).parent
# Each verb, and what it does to the rows of the table: appended, updated, deleted.
VERBS = {
    "append": (lambda t: t.append({"n": [5], "x": [0.5]}), (1, 0, 0)),
    "update": (lambda t: t.update({"x": pc.field("x") * 2}, where="n > 1"), (0, 3, 0)),
    "delete": (lambda t: t.delete("n = 1"), (0, 0, 1)),
    "upsert": (lambda t: t.upsert({"n": [3, 9], "x": [1.0, 2.0]}, on="n"), (1, 1, 0)),
    "append in place": (
        lambda t: t.append({"n": [1], "x": [7.0]}, replace_where="n < 3"),
        (1, 0, 3),
    ),
    "deduplicate": (lambda t: t.deduplicate("n"), (0, 0, 1)),
    "resize to fewer": (lambda t: t.resize(3), (0, 0, 1)),
    "resize": (lambda t: t.resize(6), (2, 0, 0)),
    "add_column": (lambda t: t.add_column("y", pc.field("x") + 1), (0, 0, 0)),
    "alter_column": (lambda t: t.alter_column("n", dtype="double"), (0, 0, 0)),
    "drop_columns": (lambda t: t.drop_columns(["x"]), (0, 0, 0)),
    "rename_columns": (lambda t: t.rename_columns({"x": "y"}), (0, 0, 0)),
    "alter_column to the front": (lambda t: t.alter_column("x", position=0), (0, 0, 0)),
    "compact": (lambda t: t.compact(sort_by="x"), (0, 0, 0)),
    "configure": (lambda t: t.configure(keep_versions=3), (0, 0, 0)),
}
# Frames of `table/` from a verb, included, to the engine.
MOST_FRAMES = 4


@pytest.fixture
def store() -> RamStore:
    store = RamStore()
    data = {"n": [1, 2, 2, 3], "x": [4.0, 3.0, 2.0, 1.0]}
    blz.to_blz(data, store, storage=blz.Storage(row_group_rows=2), durability="process")
    return store


def test_each_verb_is_one_definition_for_a_table_and_a_transaction():
    defined = {name for name, member in vars(Verbs).items() if inspect.isfunction(member)}
    public = {name for name in defined if not name.startswith("_")}
    assert public == {verb.split()[0] for verb in VERBS}
    for name in public:
        assert getattr(blz.CTable, name) is getattr(blz.Transaction, name) is vars(Verbs)[name]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_says_what_it_did_on_a_table_and_in_a_transaction(verb, store):
    act, rows = VERBS[verb]
    with opened(store) as t:
        tx = t.transaction().__enter__()
        tx.append({"n": [2], "x": [9.0]})
        tx.delete("x = 9")
        assert act(tx) == blz.Changed(*rows)
        tx.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert act(t) == blz.Changed(*rows, version=2)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_a_commit_that_was_made_before_does_nothing(verb, store):
    with opened(store) as t:
        t.append({"n": [4], "x": [0.0]}, commit_id="job")
        with t.transaction(commit_id="job") as tx:
            assert VERBS[verb][0](tx) == blz.Changed()
        assert tx.is_repeated
        assert t.version == 2


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_a_table_is_few_frames_away_from_the_engine(verb, store, monkeypatch):
    """Each frame between is one more place to look at."""
    found = []

    def counted(self, *args, add, **options):
        frame = sys._getframe()
        while frame is not None:
            if Path(frame.f_code.co_filename).is_relative_to(PACKAGE / "table"):
                found.append(frame.f_code.co_qualname)
            frame = frame.f_back
        monkeypatch.undo()
        return add(self, *args, **options)

    for name in ("add", "add_reliance"):
        add = getattr(ChangeSet, name)
        monkeypatch.setattr(ChangeSet, name, partialmethod(counted, add=add))
    with opened(store) as t:
        VERBS[verb][0](t)
    assert found[-1] == f"Verbs.{verb.split()[0]}"
    assert len(found) <= MOST_FRAMES, found


def test_a_name_of_a_commit_is_refused_in_a_transaction_that_has_its_own(store):
    with opened(store) as t, t.transaction() as tx:
        with pytest.raises(
            ValueError, match=r"commit_id='job' names the whole commit.*transaction"
        ):
            tx.append({"n": [1], "x": [1.0]}, commit_id="job")
        assert len(tx) == 4


@pytest.mark.parametrize("retries", [0, 1])
def test_an_append_of_to_blz_is_made_again_as_often_as_asked(store, retries):
    def theirs():
        with opened(store) as other:
            other.add_column("y", 1)

    data, place = {"n": [7], "x": [7.0]}, meanwhile(store, theirs)
    if retries:
        blz.to_blz(data, place, mode="a", retries=retries, durability="process")
    else:
        with pytest.raises(blz.ConflictError, match="nothing was appended"):
            blz.to_blz(data, place, mode="a", retries=retries, durability="process")
    assert len(blz.open(store)) == 4 + retries


def test_a_change_of_an_attribute_is_not_made_again(store):
    def theirs():
        with opened(store) as other:
            other.attrs["a"] = 1

    with opened(meanwhile(store, theirs)) as t, pytest.raises(blz.ConflictError):
        t.attrs["a"] = 2
    assert blz.open(store).attrs == {"a": 1}
