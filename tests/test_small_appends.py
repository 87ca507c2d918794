"""Small appends stay cheap for ever, and what tidies a table says what it does.

Merges are commits of their own: one that is late is dropped without a word, one that fails leaves
the append as it was committed.
"""

from math import log2

import numpy as np
import pyarrow as pa
import pytest
import samples
from columns import strategies as types
from engine.stores import Hooked, once, tree
from sameness import bits, same

import blztable as blz
from blztable.engine import merging
from blztable.errors import ColumnNotFoundError, SchemaError, StorageError
from blztable.format import layout
from blztable.storage.memory import MemoryStore

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})


def opened(store):
    return blz.open(store, "a", durability="process")


def row_groups(store):
    with blz.open(store) as table:
        return table._snapshot.version.head.row_groups


class Counted(Hooked):
    """A store that adds up the bytes of the files put in it."""

    def __init__(self, store):
        super().__init__(store, before=self._count)
        self.nbytes = 0

    def _count(self, name, args):
        if name == "put_new":
            self.nbytes += sum(memoryview(piece).nbytes for piece in args[1])


def noise(n):
    """Rows that do not shrink, so that bytes count rows."""
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
    store = Counted(MemoryStore())
    blz.create(store, SCHEMA, durability="process").close()
    first = 0
    with opened(store) as table:
        for n in range(1, 301):
            table.append(noise(n))
            first = first or store.nbytes
            assert len(table._snapshot.version.head.row_groups) <= 8 * log2(n) + 8
            assert store.nbytes <= 3 * n * max(log2(n), 1) * first
        assert table.to_arrow() == pa.concat_tables(map(noise, range(1, 301)))
        assert table.verify().is_intact


# What a merge is


def eighth_append(store, **options):
    """A store of seven small row groups, and what appends an eighth, so that all are merged."""
    blz.create(store, SCHEMA, durability="process", **options).close()
    with opened(store) as table:
        for n in range(7):
            table.append({"n": [n], "text": [str(n)]})


ALL = pa.table({"n": range(8), "text": map(str, range(8))}, SCHEMA)
EIGHTH = {"n": [7], "text": ["7"]}


def test_a_merge_is_a_commit_of_its_own():
    store = MemoryStore()
    eighth_append(store)
    with opened(store) as table:
        assert table.append(EIGHTH) == 9
        assert table.version == 10
        assert [one.operation for one in table.versions()][-3:] == ["append", "append", "merge"]
        assert table._snapshot.version.head.row_groups == (8,)
        assert table.to_arrow() == ALL
    with blz.open(store, version=9) as table:
        assert (len(table._snapshot.version.head.row_groups), table.to_arrow()) == (8, ALL)


def test_a_merge_that_lost_is_dropped_without_a_word_or_a_file():
    store = MemoryStore()
    eighth_append(store)
    left, base, place = set(), set(), []

    def theirs():
        with opened(store) as other:
            mine = tree(store) - base
            other.compact()
            left.update(tree(store) - mine)

    def second_lock(name, args):
        """The append locks, then the merge, and there another one was faster."""
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
    store = MemoryStore()
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
        assert table.append(EIGHTH) == 9
    assert len(told) == 1
    assert told[0].filename == __file__
    with opened(store) as table:
        assert (table.version, table.to_arrow()) == (9, ALL)
        assert table.vacuum().files == 0
        # The next append does what was left undone.
        table.append({"n": [8], "text": ["8"]})
        assert table._snapshot.version.head.row_groups == (9,)


def test_merges_respect_the_rows_of_a_row_group():
    store = MemoryStore()
    blz.create(store, SCHEMA, row_group_rows=20, durability="process").close()
    with opened(store) as table:
        for n in range(100):
            table.append({"n": [n], "text": [None]})
        groups = table._snapshot.version.head.row_groups
    assert max(groups) <= 20
    assert len(groups) < 20
    assert sum(2 * rows < 20 for rows in groups) <= 8


def test_what_has_a_commit_id_is_known_by_it_after_the_merge():
    store = MemoryStore()
    eighth_append(store)
    with opened(store) as table:
        table.append(EIGHTH, commit_id="eighth")
        assert table.version == 10
        assert table.append(EIGHTH, commit_id="eighth") == 9
        assert table.to_arrow() == ALL


def test_a_transaction_of_many_appends_is_merged_as_well():
    store = MemoryStore()
    blz.create(store, SCHEMA, durability="process").close()
    with opened(store) as table:
        with table.transaction() as tx:
            for n in range(8):
                tx.append(ALL.slice(n, 1))
            assert len(tx._work.edition.head.row_groups) == 8
        assert table._snapshot.version.head.row_groups == (8,)
        for n in range(9, 16):
            table.resize(n)
        assert len(table._snapshot.version.head.row_groups) <= 8


# Types that do not join by themselves


def categories(n, type_=None):
    """A row of categories that no other append has."""
    values = [f"{n} {i}" for i in range(40)]
    type_ = type_ or pa.dictionary(pa.int8(), pa.string())
    return pa.table({"c": pa.array(values).cast(pa.string()).dictionary_encode().cast(type_)})


@pytest.mark.parametrize("index", [pa.int8(), pa.int32()], ids=str)
def test_categories_that_differ_in_every_append_do_not_keep_it_from_being_cheap(index):
    store = Counted(MemoryStore())
    type_ = pa.dictionary(index, pa.string())
    blz.create(store, {"c": type_}, durability="process").close()
    first = 0
    with opened(store) as table:
        for n in range(1, 65):
            table.append(categories(n, type_))
            first = first or store.nbytes
            assert store.nbytes <= 3 * n * max(log2(n), 1) * first
        groups = table._snapshot.version.head.row_groups
        found = [value for chunk in table["c"].to_arrow().chunks for value in chunk.to_pylist()]
    assert found == [f"{n} {i}" for n in range(1, 65) for i in range(40)]
    # Of codes of one byte no more than three appends go together.
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
    store = MemoryStore()
    blz.create(store, types, durability="process").close()
    with opened(store) as table:
        for part in parts:
            table.append(part)
        # Merged as soon as there were 8 rows or more, and then the rest.
        assert table._snapshot.version.head.row_groups == (9, 9, 3, 3)
        table.compact()
        assert table._snapshot.version.head.row_groups == (24,)
        found = table.to_arrow()
        assert table.verify().is_intact
    whole = pa.concat_tables(parts)
    assert all(same(found[name], whole[name]) for name in types)


# compact


@pytest.mark.parametrize("sizes", [[1] * 9, [5, 1, 1, 5, 5, 1], [10, 10, 1], [3, 9, 3, 9], [4]])
def test_compacting_leaves_what_fits_no_longer_together(sizes):
    store = MemoryStore()
    blz.create(store, SCHEMA, row_group_rows=10, durability="process").close()
    whole = pa.table({"n": range(sum(sizes)), "text": [None] * sum(sizes)}, SCHEMA)
    start = 0
    with opened(store) as table, table.transaction() as tx:
        for size in sizes:
            tx.append(whole.slice(start, size))
            start += size
        tx.compact()
    with opened(store) as table:
        groups = table._snapshot.version.head.row_groups
        assert merging.small_runs(groups, 10) == []
        assert len(groups) <= 2 * -(-len(whole) // 10) + 1
        assert table.to_arrow() == whole
        version = table.version
        assert table.compact() == version
        assert table.verify().is_intact
    assert len(blz.open(store).versions()) == 2 + (version == 3)


def test_compacting_beside_an_appender_leaves_it_what_it_merged_itself():
    store = MemoryStore()
    blz.create(store, SCHEMA, row_group_rows=20, durability="process").close()
    sizes = [4, 4, 20, *[1] * 7]
    whole = pa.table({"n": range(60), "text": [None] * 60}, SCHEMA)
    start = 0
    for size in sizes:
        write(store, whole.slice(start, size))
        start += size
    assert row_groups(store) == (4, 4, 20, *[1] * 7)

    def theirs():
        with opened(store) as other:
            other.append(whole.slice(start, 1))
        assert row_groups(store) == (4, 4, 20, 8)

    with opened(Hooked(store, before=once("lock", theirs, layout.LOCK))) as table:
        table.compact()
        assert table._snapshot.version.head.row_groups == (8, 20, 8)
        assert table.to_arrow() == whole.slice(0, start + 1)
        assert table.verify().is_intact
    with opened(store) as table:
        assert table.vacuum().files == 0


def write(store, rows):
    blz.to_blz(rows, store, mode="a", row_group_rows=len(rows), durability="process")


def test_what_others_append_while_a_table_is_sorted_lies_behind():
    store = MemoryStore()
    blz.to_blz(ALL, store, row_group_rows=3, durability="process")

    def theirs():
        with opened(store) as other:
            other.append({"n": [100, 99], "text": [None, None]})

    with opened(Hooked(store, before=once("lock", theirs, layout.LOCK))) as table:
        table.compact(sort_by=[("n", "descending")])
        assert table["n"].to_arrow().to_pylist() == [*reversed(range(8)), 100, 99]


def sort(table, keys, **options):
    store = MemoryStore()
    blz.to_blz(table, store, durability="process", **options)
    with opened(store) as opened_:
        opened_.compact(sort_by=keys)
        assert opened_.verify().is_intact
        return opened_.to_arrow(), opened_._snapshot.version.head


def test_a_sort_is_stable_and_puts_nan_and_nulls_last():
    table = pa.table(
        {"x": [2.0, None, float("nan"), 1.0, 2.0, None, 1.0, float("nan"), -0.0, 0.0]}
    ).append_column("row", pa.array(range(10)))
    found, head = sort(table, "x", row_group_rows=3)
    assert found["row"].to_pylist() == [8, 9, 3, 6, 0, 4, 2, 7, 1, 5]
    assert head.row_groups == (3, 3, 3, 1)
    assert head.operation == "sort"
    found, _ = sort(table, [("x", "descending")], row_group_rows=3)
    assert found["row"].to_pylist() == [0, 4, 3, 6, 8, 9, 2, 7, 1, 5]


def test_a_sort_by_several_columns_goes_by_the_first_then_the_next():
    table = pa.table({"a": [2, 1, 2, 1, None], "b": ["x", "ä", "y", "z", "q"]})
    found, _ = sort(table, ["a", ("b", "descending")])
    assert found.to_pydict() == {"a": [1, 1, 2, 2, None], "b": ["ä", "z", "y", "x", "q"]}


def test_text_dictionaries_views_and_all_else_are_put_in_order():
    kinds = [*types.PLAIN, *samples.DICTIONARIES]
    data = samples.of(kinds, 30).append_column("row", pa.array([n * 7 % 30 for n in range(30)]))
    found, head = sort(data, "row", row_group_rows=8)
    assert head.row_groups == (8, 8, 8, 6)
    for name in data.column_names:
        before = bits(data[name])
        assert bits(found[name]) == [before[n * 13 % 30] for n in range(30)]


def test_categories_are_sorted_by_what_they_stand_for():
    table = pa.table({"c": pa.chunked_array([["b", None, "a"], ["c", "b"]]).dictionary_encode()})
    found, _ = sort(table, "c")
    assert [v for chunk in found["c"].chunks for v in chunk.to_pylist()] == [*"abbc", None]


def test_what_cannot_be_sorted_by_says_so_and_nothing_is_committed():
    table = pa.table({"i": pa.array([(1, 2, 3), (0, 1, 2)], pa.month_day_nano_interval())})
    store = MemoryStore()
    blz.to_blz(table, store, durability="process")
    before = tree(store)
    with opened(store) as t:
        with pytest.raises(SchemaError, match=r"cannot be sorted by: 'i' \(month_day_nano"):
            t.compact(sort_by="i")
        with pytest.raises(ColumnNotFoundError, match="no column is named 'j'"):
            t.compact(sort_by=["i", "j"])
        with pytest.raises(ValueError, match="names with a direction"):
            t.compact(sort_by=[("i", "up")])
    assert tree(store) == before


def test_categories_that_have_no_room_together_are_not_sorted():
    store = MemoryStore()
    blz.create(store, {"c": categories(0).schema.field(0).type, "n": pa.int64()}).close()
    with opened(store) as table:
        for n in range(4):
            table.append(categories(n).append_column("n", pa.array(range(40))))
        with pytest.raises(SchemaError, match="column 'c': 160 rows have no room in one array"):
            table.compact(sort_by="n")


@pytest.mark.parametrize("keys", [(), "n"])
def test_a_table_that_is_tidy_is_left_as_it_is(keys):
    store = MemoryStore()
    table = pa.table({"n": [1, 1, 2, 3, None], "text": [*"edcba"]}, SCHEMA)
    blz.to_blz(table, store, row_group_rows=2, durability="process")
    before = tree(store)
    with opened(store) as t:
        assert t.compact(sort_by=keys) == 1
    assert tree(store) == before


def test_row_groups_whose_categories_have_no_room_together_are_tidied_once():
    store = MemoryStore()
    blz.create(store, categories(0).schema, durability="process").close()
    with opened(store) as table:
        with table.transaction() as tx:
            for n in range(5):
                tx.append(categories(n))
            tx.compact()
        assert table._snapshot.version.head.row_groups == (120, 80)
        assert table.compact() == table.version == 2
