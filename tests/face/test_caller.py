"""Warnings name the line of the user's code that called the package."""

import warnings
from contextlib import contextmanager

import pyarrow as pa
import pytest

import blztable as blz
from blztable.errors import StorageError
from blztable.storage.memory import RamStore
from support.stores import Hooked, once, raising, tree

ROW = {"n": [1], "word": ["a"]}


def changed(store, change) -> None:
    with blz.open(store, "a") as t:
        change(t)


def in_a_transaction(t) -> None:
    with t.transaction() as tx:
        tx.append(ROW)
        tx.attrs["till"] = 8


def by_an_appender(t) -> None:
    with t.transaction() as tx, tx.appender() as columns:
        columns["n"].append([2])
        columns["word"].append(["b"])


def assign(t) -> None:
    t.attrs["till"] = 8


CHANGES = {
    "append": lambda t: t.append(ROW),
    "update": lambda t: t.update({"n": 5}),
    "delete": lambda t: t.delete([("n", "==", 1)]),
    "upsert": lambda t: t.upsert(ROW, on="n"),
    "replace_where": lambda t: t.append(ROW, replace_where=[("n", "==", 1)]),
    "deduplicate": lambda t: t.deduplicate(on="word", keep="last", order_by="n"),
    "truncate": lambda t: t.resize(0),
    "alter_column": lambda t: t.alter_column("n", dtype="double"),
    "sort": lambda t: t.compact(sort_by="n"),
    "configure": lambda t: t.configure(keep_versions=7),
    "tags": lambda t: t.tags.update(first=1),
    "resize": lambda t: t.resize(7),
    "add_column": lambda t: t.add_column("more", 1),
    "rename_columns": lambda t: t.rename_columns({"n": "m"}),
    "attrs[...] =": assign,
    "attrs.update": lambda t: t.attrs.update(till=8),
    "restore": lambda t: t.restore(1),
    "transaction": in_a_transaction,
    "appender": by_an_appender,
}
WRITES = {
    "to_blz": lambda store: blz.to_blz(ROW, store),
    "to_blz sorted": lambda store: blz.to_blz(ROW, store, sort_by="n"),
    "to_blz, mode a": lambda store: blz.to_blz(ROW, store, mode="a"),
    "to_blz of a stream": lambda store: blz.to_blz(iter([ROW]), store),
    **{
        name: lambda store, change=change: changed(store, change)
        for name, change in CHANGES.items()
    },
}


@contextmanager
def warned():
    """Collect the warnings; exactly one must come, and it must name a line of this file."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield told
    assert [(one.category, one.filename) for one in told] == [(UserWarning, __file__)]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_warning_after_a_commit_names_the_line_that_committed(write):
    store = RamStore()
    blz.to_blz({"n": [1, 0], "word": ["a", "a"]}, store)
    store.delete(["meta/sizes"])  # So that any commit creates it again.
    failing = once("put", raising(StorageError("disk full")))
    with warned() as told:
        write(Hooked(store, before=failing))
    assert "version 2 is committed, but disk full" in str(told[0].message)


@pytest.mark.parametrize("append", ["append", "transaction", "appender"])
def test_a_warning_of_a_merge_that_failed_names_the_line_that_appended(append):
    store = RamStore()
    for _ in range(7):
        blz.to_blz(ROW, store, mode="a", durability="process")
    committed = []

    def fail_after_the_commit(name, args):
        if name == "put_new" and committed:
            raise StorageError("disk full")

    def note(name, args):
        if name == "publish":
            committed.append(args[0])

    with warned() as told:
        changed(Hooked(store, before=fail_after_the_commit, after=note), CHANGES[append])
    assert "its small row groups were not merged: disk full" in str(told[0].message)


READS = {
    "read_blz": lambda store: blz.read_blz(store, on_corrupt="skip"),
    "read_table": lambda store: blz.read_table(store, on_corrupt="skip"),
    "to_arrow": lambda store: blz.open(store).to_arrow(on_corrupt="skip"),
    "to_pandas": lambda store: blz.open(store).to_pandas(on_corrupt="skip"),
    "to_batches": lambda store: list(blz.open(store).to_batches(on_corrupt="skip")),
    "dataset": lambda store: blz.dataset(store, on_corrupt="skip").to_table(),
    "count_rows": lambda store: blz.dataset(store, on_corrupt="skip").count_rows(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_warning_of_rows_left_out_names_the_line_that_read(read):
    store = RamStore()
    blz.to_blz(pa.table({"n": range(16)}), store, storage=blz.Storage(row_group_rows=8))
    store.delete([min(key for key in tree(store) if key.endswith(".bin"))])
    with warned() as told:
        read(store)
    assert "rows 0 to 8 are left out" in str(told[0].message)
