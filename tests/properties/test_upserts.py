"""Upserts beside a model of rows by key: rows keep their places or move, never their values."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.storage.memory import RamStore
from blztable.storage.one_file.store import OneFileStore
from support.stores import FileInMemory

few = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
WORDS = st.none() | st.sampled_from(["", "a", "é", "long " * 9])
KEYS = st.integers(-3, 30)
SCHEMA = pa.schema(
    {
        "k": pa.int32(),
        "word": pa.string(),
        "x": pa.float64(),
        "kind": pa.dictionary(pa.int8(), pa.string()),
        "doc": pa.struct({"a": pa.list_(pa.int64())}),
    }
)
VALUES = {
    "word": WORDS,
    "x": st.none() | st.sampled_from([0.5, -1.0, 1e300]),
    "kind": st.none() | st.sampled_from(["u", "v", "w"]),
    "doc": st.none() | st.builds(lambda a: {"a": a}, st.lists(st.integers(0, 9), max_size=2)),
}
NAMES = list(VALUES)


@st.composite
def rows(draw, keys, names=NAMES):
    return [{"k": key} | {name: draw(VALUES[name]) for name in names} for key in keys]


def table(found, names=NAMES):
    return pa.Table.from_pylist(found, pa.schema([SCHEMA.field(n) for n in ["k", *names]]))


def upserted(model, new, names):
    """Return the rows of the model with those of the data, in an order of their own."""
    by_key = {one["k"]: one for one in new}
    there = {one["k"] for one in model}
    empty = dict.fromkeys(NAMES)
    return [
        *(one | by_key.get(one["k"], {}) for one in model),
        *(empty | one for one in new if one["k"] not in there),
    ]


def in_order(found):
    return sorted(repr([one[name] for name in SCHEMA.names]) for one in found)


@few
@pytest.mark.parametrize("share", [1, 4, 16, 1 << 60])
@pytest.mark.parametrize("new_store", [RamStore, lambda: OneFileStore(FileInMemory())])
@given(data=st.data())
def test_a_table_has_the_rows_of_the_model_after_any_upserts(share, new_store, data):
    store = new_store()
    # Keys may be there several times: all their rows are updated.
    model = data.draw(rows(data.draw(st.lists(KEYS, max_size=40))))
    blz.to_blz(
        table(model), store, storage=blz.Storage(row_group_rows=data.draw(st.sampled_from([8, 64])))
    )
    most = data.draw(st.sampled_from([2, 1 << 14]))
    with tuning.tuned(rows_per_deleted=share, deleted_rows=most), blz.open(store, "a") as t:
        for move in data.draw(st.lists(st.sampled_from("uuda"), min_size=1, max_size=4)):
            before, version = model, t.version
            if move == "u":
                names = data.draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
                keys = data.draw(st.lists(KEYS, max_size=6, unique=True))
                new = data.draw(rows(keys, names))
                there = [one["k"] for one in model if one["k"] in keys]
                done = t.upsert(table(new, names), on="k")
                assert done.rows_appended == len(set(keys) - set(there))
                assert done.rows_updated == (len(there) if names else 0)
                assert done.rows_deleted == 0
                model = upserted(model, new, names)
            elif move == "d":
                key = data.draw(KEYS)
                assert t.delete(pc.field("k") == key).rows_deleted == sum(
                    one["k"] == key for one in model
                )
                model = [one for one in model if one["k"] != key]
            else:
                new = data.draw(rows(data.draw(st.lists(KEYS, max_size=4))))
                t.append(table(new))
                model = [*model, *new]
            assert in_order(t.to_arrow().to_pylist()) == in_order(model)
            assert t.count(filters=pc.field("k") > 9) == sum(one["k"] > 9 for one in model)
            changes = t.diff(version).rows()
            gone, come = changes.removed.to_pylist(), changes.added.to_pylist()
            assert in_order([*before, *come]) == in_order([*model, *gone])
            assert not {*in_order(gone)} & {*in_order(come)}
        assert t.verify().is_intact


@few
@given(data=st.data())
def test_upserts_of_two_handles_and_in_transactions_are_made_one_after_the_other(data):
    store, keys = RamStore(), list(range(30))
    model = data.draw(rows(keys))
    blz.to_blz(table(model), store, storage=blz.Storage(row_group_rows=10))
    with tuning.tuned(rows_per_deleted=data.draw(st.sampled_from([1, 5]))):
        handles = blz.open(store, "a"), blz.open(store, "a")
        for which in data.draw(st.lists(st.integers(0, 1), min_size=2, max_size=4)):
            some = st.lists(st.integers(0, 33), min_size=1, max_size=3, unique=True)
            batches = [data.draw(rows(data.draw(some))) for _ in range(2)]
            t = handles[which]
            if data.draw(st.booleans()):
                for new in batches:
                    t.upsert(table(new), on="k")
            else:
                t.refresh()
                with t.transaction() as tx:
                    for new in batches:
                        tx.upsert(table(new), on="k")
            for new in batches:
                model = upserted(model, new, NAMES)
        assert in_order(blz.read_table(store).to_pylist()) == in_order(model)
        for one in handles:
            one.close()


def test_rows_that_move_come_behind_the_others_in_the_order_of_the_data():
    store = RamStore()
    blz.to_blz({"k": range(64), "v": [0] * 64, "w": range(64)}, store)
    with blz.open(store, "a") as t:
        done = t.upsert({"k": [70, 5, 60], "v": [1, 2, 3]}, on="k")
        assert str(done) == "version 2: 1 row appended, 2 rows updated"
        found = t.to_arrow().to_pydict()
        assert found["k"] == [*(n for n in range(64) if n not in (5, 60)), 70, 5, 60]
        assert found["v"][-3:] == [1, 2, 3]
        assert found["w"][-3:] == [None, 5, 60]
        # The row groups were joined afterwards, without the deleted rows.
        assert [one.deleted_rows for one in t.versions()] == [0, 2, 0]
        # Many rows keep their places.
        t.upsert({"k": range(40), "v": [9] * 40}, on="k")
        assert t.to_arrow()["k"].to_pylist() == found["k"]
