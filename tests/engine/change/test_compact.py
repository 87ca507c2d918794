"""Compaction: the same rows in fewer row groups or in another order, beside other writers."""

import blosc
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.change import merge_policy
from blztable.engine.change.compact import compact
from blztable.engine.version.versions import pin
from blztable.errors import ColumnNotFoundError, ConflictError, SchemaError
from blztable.format import layout
from blztable.format.data_file import DataFile
from blztable.storage.memory import RamStore
from support import arrow_strategies as types
from support import samples
from support.bit_equality import bits
from support.options import arguments
from support.stores import Hooked, bundle_numbers, changing, once, tree

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})
ALL = pa.table({"n": range(8), "text": map(str, range(8))}, SCHEMA)


def opened(store, **options):
    return blz.open(store, "a", durability="process", **options)


def row_groups(store):
    with blz.open(store) as table:
        return table._snapshot.version.row_groups


def categories(n, type_=None):
    """Return a row whose categories no other append has."""
    values = [f"{n} {i}" for i in range(40)]
    type_ = type_ or pa.dictionary(pa.int8(), pa.string())
    return pa.table({"c": pa.array(values).cast(pa.string()).dictionary_encode().cast(type_)})


def test_the_rows_of_a_row_group_are_set_later():
    store = RamStore()
    blz.to_blz(ALL, store, storage=blz.Storage(row_group_rows=2))
    with opened(store) as table:
        version = table.configure(storage=blz.Storage(row_group_rows=4)).version
        assert table.version == version == 2
        table.append(ALL)
        assert row_groups(store) == (2, 2, 2, 2, 4, 4)
        table.compact()
        assert row_groups(store) == (4, 4, 4, 4)
        # Within a transaction, the next verb knows it.
        with table.transaction() as tx:
            tx.configure(storage=blz.Storage(row_group_rows=8))
            tx.append(ALL)
            tx.compact()
        assert row_groups(store) == (8, 8, 8)
        version = table.version
        for wrong in (0, -1, 2**63):
            with pytest.raises(ValueError, match=r"row_group_rows|rows must be at least 1"):
                table.configure(storage=blz.Storage(row_group_rows=wrong))
        with pytest.raises(ValueError, match="row_group_rows must be an integer"):
            table.configure(storage=blz.Storage(row_group_rows=1.5))
        assert table.version == version
    # Another handle knows it; None is the default of the writer, and changes nothing twice.
    with opened(store) as table:
        table.append(ALL)
        assert row_groups(store) == (8, 8, 8, 8)
        version = table.configure(storage=blz.Storage()).version
        assert table.configure(storage=blz.Storage()).version == version
        table.compact()
        assert row_groups(store) == (32,)
        assert table.to_arrow() == pa.concat_tables([ALL] * 4).combine_chunks()


def test_row_group_rows_that_two_set_are_a_conflict():
    store = RamStore()
    blz.to_blz(ALL, store)
    with opened(store, retries=0) as first, opened(store) as second:
        second.configure(storage=blz.Storage(row_group_rows=4))
        with pytest.raises(ConflictError, match="'row_group_rows' was changed"):
            first.configure(storage=blz.Storage(row_group_rows=2))


@pytest.mark.parametrize("sizes", [[1] * 9, [5, 1, 1, 5, 5, 1], [10, 10, 1], [3, 9, 3, 9], [4]])
def test_compacting_leaves_what_fits_no_longer_together(sizes):
    store = RamStore()
    blz.create(store, SCHEMA, storage=blz.Storage(row_group_rows=10), durability="process").close()
    whole = pa.table({"n": range(sum(sizes)), "text": [None] * sum(sizes)}, SCHEMA)
    start = 0
    with opened(store) as table, table.transaction() as tx:
        for size in sizes:
            tx.append(whole.slice(start, size))
            start += size
        tx.compact()
    with opened(store) as table:
        groups = table._snapshot.version.row_groups
        assert merge_policy.small_spans(groups, 10) == []
        assert len(groups) <= 2 * -(-len(whole) // 10) + 1
        assert table.to_arrow() == whole
        version = table.version
        assert table.compact().version == version
        assert table.verify().is_intact
    assert len(blz.open(store).versions()) == 2 + (version == 3)


def test_a_join_of_a_compaction_keeps_the_row_groups_that_it_joins_and_no_others():
    # A list of all row groups for each run would take memory quadratic in their number.
    store = RamStore()
    blz.to_blz(ALL, store, storage=blz.Storage(row_group_rows=1), durability="process")
    with blz.open(store) as table:
        options = blz.Storage(row_group_rows=2)
        with changing(table._snapshot.version, options) as work:
            compact(work)
            joins = [change for change, _ in work._changes]
            assert [(join.start, len(join.joined)) for join in joins] == [
                (6, 2),
                (4, 2),
                (2, 2),
                (0, 2),
            ]
            work.publish()[1].close()
    assert row_groups(store) == (2, 2, 2, 2)
    assert blz.read_table(store) == ALL


def test_compacting_beside_an_appender_leaves_it_what_it_merged_itself():
    store = RamStore()
    blz.create(store, SCHEMA, storage=blz.Storage(row_group_rows=20), durability="process").close()
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
        assert table._snapshot.version.row_groups == (8, 20, 8)
        assert table.to_arrow() == whole.slice(0, start + 1)
        assert table.verify().is_intact
    with opened(store) as table:
        assert table.vacuum().files == 0


def write(store, rows):
    blz.to_blz(
        rows, store, mode="a", storage=blz.Storage(row_group_rows=len(rows)), durability="process"
    )


def test_what_others_append_while_a_table_is_sorted_lies_behind():
    store = RamStore()
    blz.to_blz(ALL, store, storage=blz.Storage(row_group_rows=3), durability="process")

    def theirs():
        with opened(store) as other:
            other.append({"n": [100, 99], "text": [None, None]})

    with opened(Hooked(store, before=once("lock", theirs, layout.LOCK))) as table:
        table.compact(sort_by=[("n", "descending")])
        assert table["n"].to_arrow().to_pylist() == [*reversed(range(8)), 100, 99]


def test_a_sort_of_rows_in_order_that_joins_row_groups_is_a_sort():
    store = RamStore()
    blz.to_blz(ALL, store, storage=blz.Storage(row_group_rows=1), durability="process")
    with opened(store) as table:
        table.configure(storage=blz.Storage(row_group_rows=8))
        table.compact(sort_by=["n"])
        assert table.versions()[-1].operation == "sort"
        assert table.storage.sort_by == [("n", "ascending")]
    assert row_groups(store) == (8,)


@pytest.mark.parametrize("theirs", ["update", "drop"])
def test_rows_found_in_order_must_still_be_there_when_the_order_is_recorded(theirs):
    store = RamStore()
    blz.to_blz(ALL, store, storage=blz.Storage(row_group_rows=3), durability="process")

    def change():
        with opened(store) as other:
            if theirs == "drop":
                other.drop_columns(["n"])
            else:
                other.update({"n": 9}, [("n", "==", 0)])

    hooked = Hooked(store, before=once("lock", change, layout.LOCK))
    with opened(hooked, retries=0) as table, pytest.raises(ConflictError):
        table.compact(sort_by=["n"])
    with blz.open(store) as table:
        assert table.storage.sort_by is None


def sort(table, keys, **options):
    store = RamStore()
    blz.to_blz(table, store, **arguments(durability="process", **options))
    with opened(store) as opened_:
        opened_.compact(sort_by=keys)
        assert opened_.verify().is_intact
        return opened_.to_arrow(), opened_._snapshot.version


def test_a_sort_is_stable_and_puts_nan_and_nulls_last():
    table = pa.table(
        {"x": [2.0, None, float("nan"), 1.0, 2.0, None, 1.0, float("nan"), -0.0, 0.0]}
    ).append_column("row", pa.array(range(10)))
    found, version = sort(table, "x", row_group_rows=3)
    assert found["row"].to_pylist() == [8, 9, 3, 6, 0, 4, 2, 7, 1, 5]
    assert version.row_groups == (3, 3, 3, 1)
    assert version.head.operation == "sort"
    found, _ = sort(table, [("x", "descending")], row_group_rows=3)
    assert found["row"].to_pylist() == [0, 4, 3, 6, 8, 9, 2, 7, 1, 5]


def test_a_sort_by_several_columns_goes_by_the_first_then_the_next():
    table = pa.table({"a": [2, 1, 2, 1, None], "b": ["x", "ä", "y", "z", "q"]})
    found, _ = sort(table, ["a", ("b", "descending")])
    assert found.to_pydict() == {"a": [1, 1, 2, 2, None], "b": ["ä", "z", "y", "x", "q"]}


def test_text_dictionaries_views_and_all_else_are_put_in_order():
    kinds = [*types.PLAIN, *samples.DICTIONARIES]
    data = samples.of(kinds, 30).append_column("row", pa.array([n * 7 % 30 for n in range(30)]))
    found, version = sort(data, "row", row_group_rows=8)
    assert version.row_groups == (8, 8, 8, 6)
    for name in data.column_names:
        before = bits(data[name])
        assert bits(found[name]) == [before[n * 13 % 30] for n in range(30)]


def test_categories_are_sorted_by_what_they_stand_for():
    table = pa.table({"c": pa.chunked_array([["b", None, "a"], ["c", "b"]]).dictionary_encode()})
    found, _ = sort(table, "c")
    assert [v for chunk in found["c"].chunks for v in chunk.to_pylist()] == [*"abbc", None]


@pytest.mark.parametrize("way", ["ascending", "descending"])
def test_ordered_categories_are_sorted_by_their_order_as_pandas_does(way):
    kind = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"c": pd.Series(["high", "low", None, "mid", "low", "high"], dtype=kind)})
    store = RamStore()
    blz.to_blz(frame[:3], store, storage=blz.Storage(row_group_rows=2), durability="process")
    with opened(store) as t:
        t.resize(4)  # By a row of a part without any categories.
        t.append(frame[3:], index=False)
        t.compact(sort_by=[("c", way)])
        expected = frame.sort_values("c", ascending=way == "ascending")["c"].tolist()
        assert t.to_pandas()["c"].tolist()[:5] == expected[:5]
        assert t["c"][5:].to_pylist() == [None, None]


def test_what_cannot_be_sorted_by_says_so_and_nothing_is_committed():
    table = pa.table({"i": pa.array([(1, 2, 3), (0, 1, 2)], pa.month_day_nano_interval())})
    store = RamStore()
    blz.to_blz(table, store, durability="process")
    before = tree(store)
    with opened(store) as t:
        with pytest.raises(SchemaError, match=r"cannot be sorted by 'i' \(month_day_nano"):
            t.compact(sort_by="i")
        with pytest.raises(ColumnNotFoundError, match="no column is named 'j'"):
            t.compact(sort_by=["i", "j"])
        with pytest.raises(ValueError, match="must be column names or"):
            t.compact(sort_by=[("i", "up")])
    assert tree(store) == before


def test_categories_that_have_no_room_together_are_not_sorted():
    store = RamStore()
    blz.create(store, {"c": categories(0).schema.field(0).type, "n": pa.int64()}).close()
    with opened(store) as table:
        for n in range(4):
            table.append(categories(n).append_column("n", pa.array(range(40))))
        with pytest.raises(SchemaError, match="column 'c': 160 rows do not fit into one array"):
            table.compact(sort_by="n")


@pytest.mark.parametrize("keys", [(), "n", None])
def test_a_table_that_is_tidy_is_left_as_it_is(keys):
    store = RamStore()
    table = pa.table({"n": [1, 1, 2, 3, None], "text": [*"edcba"]}, SCHEMA)
    blz.to_blz(
        table, store, storage=blz.Storage(row_group_rows=2), durability="process", sort_by="n"
    )
    before = tree(store)
    with opened(store) as t:
        assert t.compact(sort_by=keys).version == 1
    assert tree(store) == before


def test_row_groups_whose_categories_have_no_room_together_are_tidied_once():
    store = RamStore()
    blz.create(store, categories(0).schema, durability="process").close()
    with opened(store) as table:
        with table.transaction() as tx:
            for n in range(5):
                tx.append(categories(n))
            tx.compact()
        assert table._snapshot.version.row_groups == (120, 80)
        assert table.compact().version == table.version == 2


@pytest.mark.usefixtures("bundled")
@pytest.mark.parametrize("change", ["update", "drop"])
def test_compacting_leaves_no_value_of_a_column_that_was_written_again_or_dropped(change):
    """The columns of a small row group share a file, which the other columns still need."""
    store = RamStore()
    blz.to_blz({"n": [1, 2], "s": ["a", "secret"], "f": [0.5, 1.5]}, store)
    with blz.open(store, "a") as table:
        match change:
            case "update":
                table.update({"s": "x"}, where=[("n", "==", 2)])
            case "drop":
                table.drop_columns(["s"])
        rows = table.to_arrow()
        table.vacuum(keep=1)
        assert b"secret" in bytes_in_bundles(store)
        assert table.compact().version == table.version
        table.vacuum(keep=1)
        assert b"secret" not in bytes_in_bundles(store)
        assert table.to_arrow() == rows
        before = table.version
        assert table.compact().version == before


def bytes_in_bundles(store):
    """Return the decompressed bytes of the bundles of the newest version."""
    version, pinned = pin(store)
    found = b""
    with pinned:
        for number in bundle_numbers(version):
            data = store.get(layout.part(layout.SHARED, number))
            records = DataFile.decode(data).records
            for start, size in zip(records.chunk_offset, records.chunks["size"], strict=True):
                found += blosc.decompress(data[start : start + int(size)])
    return found
