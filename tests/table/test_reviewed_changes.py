"""What a review of the changes found, each as it was found."""

import os
import pickle
import warnings

import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import MemoryStore
from blztable.table import transaction


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2], "b": [3, 4]}, path, durability="process")
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda tx: tx.add_column("c", 0),
        lambda tx: tx.reorder_columns(["b"]),
        lambda tx: tx.rename_columns({"a": "x"}),
        lambda tx: tx.drop_columns(["a"]),
    ],
)
def test_an_iterator_that_changes_the_columns_it_is_appended_to_is_a_conflict(path, change):
    with blz.open(path, "a") as t, t.transaction() as tx:

        def items():
            yield {"a": [5], "b": [6]}
            change(tx)
            yield {"a": [7], "b": [8]}

        with pytest.raises(blz.ConflictError):
            tx.append(items())
        tx.attrs["kept"] = 1
    with blz.open(path) as t:
        assert t.to_arrow().to_pydict() == {"a": [1, 2], "b": [3, 4]}
        assert dict(t.attrs) == {"kept": 1}
        assert t.verify()


def test_an_iterator_may_append_to_the_transaction_that_draws_it(path):
    with blz.open(path, "a") as t:
        with t.transaction() as tx:

            def items():
                yield {"a": [5], "b": [6]}
                tx.append({"a": [9], "b": [9]})

            tx.append(items())
        assert sorted(t["a"][:].to_pylist()) == [1, 2, 5, 9]
        assert t.verify()


@pytest.mark.parametrize("durability", ["process", "full"])
def test_a_forked_child_that_ends_in_an_append_leaves_its_parents_files(path, durability):
    parent = os.getpid()

    def items():
        yield {"a": [5], "b": [6]}
        if os.fork() == 0:
            # Unwinds through the transaction, as a worker does that ends by an exception.
            raise SystemExit
        os.wait()
        yield {"a": [7], "b": [8]}

    try:
        # A row group an item, so that the first is written when the child is made.
        blz.to_blz(items(), path, mode="a", row_group_rows=1, durability=durability)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert blz.read_table(path)["a"].to_pylist() == [1, 2, 5, 7]


def test_what_a_transaction_shows_is_not_pickled_as_what_is_below_it(path):
    with blz.open(path, "a") as t, t.transaction() as tx:
        tx.update({"a": 7})
        with pytest.raises(TypeError, match="an open transaction cannot be pickled"):
            pickle.dumps(tx["a"])


def test_what_was_taken_from_a_transaction_is_closed_with_it(path):
    with blz.open(path, "a") as t:
        with t.transaction() as tx:
            tx.update({"a": 7})
            column = tx["a"]
            tx.update({"a": 8})
            assert column[:].to_pylist() == [7, 7]
        with pytest.raises(blz.ClosedError, match="closed"):
            column[:]


def test_a_warning_that_is_an_error_does_not_keep_a_handle_from_its_commit(path):
    with blz.open(path, "a") as t, warnings.catch_warnings():
        warnings.simplefilter("error")
        os.remove(path / "meta" / "sizes")
        os.mkdir(path / "meta" / "sizes")
        with pytest.raises(UserWarning, match="version 2 is committed, but"):
            t.append({"a": [5], "b": [6]})
        assert (t.nrows, t.version) == (3, 2)


def test_an_attribute_that_became_true_was_changed_though_it_was_1():
    store = MemoryStore()
    blz.to_blz({"a": [1]}, store, attrs={"flag": 1})
    mine, theirs = blz.open(store, "a"), blz.open(store, "a")
    theirs.attrs["flag"] = True
    with pytest.raises(blz.ConflictError):
        mine.attrs["flag"] = 2
    assert blz.open(store).attrs["flag"] is True


def test_an_append_that_meets_a_replacement_is_made_again_on_the_new_table(path, monkeypatch):
    stream = transaction.append_source
    seen = []

    def replaced_meanwhile(*args, **options):
        if not seen:
            seen.append(1)
            blz.to_blz({"a": [0], "b": [0]}, path)
        return stream(*args, **options)

    monkeypatch.setattr(transaction, "append_source", replaced_meanwhile)
    blz.to_blz({"a": [5], "b": [6]}, path, mode="a")
    assert blz.read_table(path).to_pydict() == {"a": [0, 5], "b": [0, 6]}
    seen.clear()
    with pytest.raises(blz.ConflictError):
        blz.to_blz(iter([{"a": [5], "b": [6]}]), path, mode="a")


def test_mistakes_are_told_in_words_of_the_caller(path):
    with blz.open(path, "a") as t:
        with pytest.raises(TypeError, match="a column name must be text, not 0 of type int"):
            t.update({0: 5})
        with pytest.raises(TypeError, match="a column name must be text, not 5 of type int"):
            t.rename_columns({"a": 5})
        with pytest.raises(blz.SchemaError, match="divide by zero"):
            t.update({"a": pc.divide(pc.field("a"), 0)})
        with pytest.raises(blz.ReadOnlyError, match="change the table that it was made from"):
            t[["a"]].append({"a": [1]})
