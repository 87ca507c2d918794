"""Merging after appends: trailing row groups are merged, so small appends stay cheap.

A merge is a commit of its own. A late merge is dropped silently; a failed merge leaves the append
committed.
"""

from math import log2

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.errors import StorageError
from blztable.format import layout
from blztable.storage.memory import RamStore
from support.bit_equality import same
from support.options import arguments
from support.stores import Hooked, tree

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})


def opened(store):
    return blz.open(store, "a", durability="process")


def row_groups(store):
    with blz.open(store) as table:
        return table._snapshot.version.row_groups


class Counted(Hooked):
    """A store that adds up the bytes of the files written to it."""

    def __init__(self, store):
        super().__init__(store, before=self._count)
        self.nbytes = 0

    def _count(self, name, args):
        if name == "put_new":
            self.nbytes += sum(memoryview(piece).nbytes for piece in args[1])


def noise(n):
    """Return rows that do not compress, so that bytes are proportional to rows."""
    return pa.table(
        {
            "n": np.random.default_rng(n).integers(0, 1 << 62, 50),
            "text": pa.array(
                np.random.default_rng(n).bytes(800).hex()[i : i + 32] for i in range(50)
            ),
        },
        SCHEMA,
    )


def test_after_n_appends_there_are_few_row_groups_and_few_bytes_were_written():
    store = Counted(RamStore())
    blz.create(store, SCHEMA, durability="process").close()
    first = 0
    with opened(store) as table:
        for n in range(1, 151):
            table.append(noise(n))
            first = first or store.nbytes
            assert len(table._snapshot.version.row_groups) <= 8 * log2(n) + 8
            assert store.nbytes <= 3 * n * max(log2(n), 1) * first
        assert table.to_arrow() == pa.concat_tables(map(noise, range(1, 151)))
        assert table.verify().is_intact


# The properties of a merge


def eighth_append(store, **options):
    """Return a store of seven small row groups, and the eighth append, which merges all."""
    blz.create(store, SCHEMA, **arguments(durability="process", **options)).close()
    with opened(store) as table:
        for n in range(7):
            table.append({"n": [n], "text": [str(n)]})


ALL = pa.table({"n": range(8), "text": map(str, range(8))}, SCHEMA)
EIGHTH = {"n": [7], "text": ["7"]}


def test_a_merge_is_a_commit_of_its_own():
    store = RamStore()
    eighth_append(store)
    with opened(store) as table:
        assert table.append(EIGHTH).version == 9
        assert table.version == 10
        assert [one.operation for one in table.versions()][-3:] == ["append", "append", "merge"]
        assert table._snapshot.version.row_groups == (8,)
        assert table.to_arrow() == ALL
    with blz.open(store, version=9) as table:
        assert (len(table._snapshot.version.row_groups), table.to_arrow()) == (8, ALL)


def test_a_merge_that_lost_is_dropped_without_a_word_or_a_file():
    store = RamStore()
    eighth_append(store)
    left, base, place = set(), set(), []

    def theirs():
        with opened(store) as other:
            mine = tree(store) - base
            other.compact()
            left.update(tree(store) - mine)

    def second_lock(name, args):
        """The append takes the lock, then the merge; another commit comes before the merge."""
        if name == "publish":
            place.append(name)
        if name == "lock" and args[0] == layout.LOCK and place == ["publish"]:
            place.append("merged")
            theirs()

    def after(name, args):
        if name == "publish":
            base.update(tree(store) | {"meta/sizes"})

    with opened(Hooked(store, before=second_lock, after=after)) as table:
        table.append(EIGHTH)
        assert table.version == 9
    assert place == ["publish", "merged"]
    assert tree(store) == left
    with blz.open(store) as table:
        assert (table.version, table.to_arrow()) == (10, ALL)


@pytest.mark.parametrize("call", ["put_new", "publish", "open"])
def test_a_merge_that_fails_is_a_warning_and_the_append_stays(call):
    store = RamStore()
    eighth_append(store)
    is_committed = []

    def failing(name, args):
        if name == call and is_committed:
            raise StorageError("no space left")

    def after(name, args):
        if name == "publish":
            is_committed.append(True)

    with (
        opened(Hooked(store, before=failing, after=after)) as table,
        pytest.warns(
            UserWarning, match="version 9 is committed, but .* merged: .*no space"
        ) as told,
    ):
        assert table.append(EIGHTH).version == 9
    assert len(told) == 1
    assert told[0].filename == __file__
    with opened(store) as table:
        assert (table.version, table.to_arrow()) == (9, ALL)
        assert table.vacuum().files == 0
        # The next append does the missed merge.
        table.append({"n": [8], "text": ["8"]})
        assert table._snapshot.version.row_groups == (9,)


def test_merges_respect_the_rows_of_a_row_group():
    store = RamStore()
    blz.create(store, SCHEMA, storage=blz.Storage(row_group_rows=20), durability="process").close()
    with opened(store) as table:
        for n in range(100):
            table.append({"n": [n], "text": [None]})
        groups = table._snapshot.version.row_groups
    assert max(groups) <= 20
    assert len(groups) < 20
    assert sum(2 * rows < 20 for rows in groups) <= 8


def test_what_has_a_commit_id_is_known_by_it_after_the_merge():
    store = RamStore()
    eighth_append(store)
    with opened(store) as table:
        table.append(EIGHTH, commit_id="eighth")
        assert table.version == 10
        assert table.append(EIGHTH, commit_id="eighth").version == 9
        assert table.to_arrow() == ALL


def test_a_transaction_of_many_appends_is_merged_as_well():
    store = RamStore()
    blz.create(store, SCHEMA, durability="process").close()
    with opened(store) as table:
        with table.transaction() as tx:
            for n in range(8):
                tx.append(ALL.slice(n, 1))
            assert len(tx._change_set.staged.row_groups) == 8
        assert table._snapshot.version.row_groups == (8,)
        for n in range(9, 25):
            table.resize(n)
        assert table._snapshot.version.row_groups == (8, 8, 8)


# Types that Arrow cannot join directly


def categories(n, type_=None):
    """Return a row whose categories no other append has."""
    values = [f"{n} {i}" for i in range(40)]
    type_ = type_ or pa.dictionary(pa.int8(), pa.string())
    return pa.table({"c": pa.array(values).cast(pa.string()).dictionary_encode().cast(type_)})


@pytest.mark.parametrize("index", [pa.int8(), pa.int32()], ids=str)
def test_categories_that_differ_in_every_append_do_not_keep_it_from_being_cheap(index):
    store = Counted(RamStore())
    type_ = pa.dictionary(index, pa.string())
    blz.create(store, {"c": type_}, durability="process").close()
    first = 0
    with opened(store) as table:
        for n in range(1, 65):
            table.append(categories(n, type_))
            first = first or store.nbytes
            assert store.nbytes <= 3 * n * max(log2(n), 1) * first
        groups = table._snapshot.version.row_groups
        found = [value for chunk in table["c"].to_arrow().chunks for value in chunk.to_pylist()]
    assert found == [f"{n} {i}" for n in range(1, 65) for i in range(40)]
    # With codes of one byte, only three appends can be joined.
    assert len(groups) <= (8 * log2(64) + 8 if index == pa.int32() else 64)


def test_text_nulls_views_and_dictionaries_come_through_a_merge_as_they_are():
    types = {
        "text": pa.string(),
        "view": pa.string_view(),
        "words": pa.dictionary(pa.int8(), pa.large_string()),
        "null": pa.null(),
        "float": pa.float32(),
        "flag": pa.bool_(),
    }
    rows = [
        {
            "text": [None, "", f"word {n}"],
            "view": ["x" * n, None, "short"],
            "words": [f"category {n % 3}", None, "all"],
            "null": [None] * 3,
            "float": [float("nan"), -0.0, None],
            "flag": [True, None, False],
        }
        for n in range(8)
    ]
    parts = [
        pa.table(
            {
                name: pa.array(row[name]).cast(type_)
                if "dict" not in str(type_)
                else pa.array(row[name]).dictionary_encode().cast(type_)
                for name, type_ in types.items()
            }
        )
        for row in rows
    ]
    store = RamStore()
    blz.create(store, types, durability="process").close()
    with opened(store) as table:
        for part in parts:
            table.append(part)
        # Merged as soon as 8 rows or more were there, and then the rest.
        assert table._snapshot.version.row_groups == (9, 9, 3, 3)
        table.compact()
        assert table._snapshot.version.row_groups == (24,)
        found = table.to_arrow()
        assert table.verify().is_intact
    whole = pa.concat_tables(parts)
    assert all(same(found[name], whole[name]) for name in types)
