"""Sorted writes: the rows are in order, in one commit, with little memory."""

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.engine.change import sorting
from blztable.errors import ColumnNotFoundError, ConflictError, SchemaError
from blztable.format import layout
from blztable.storage.memory import RamStore
from support import arrow_strategies as own
from support import samples
from support.bit_equality import bits
from support.moved_first import moved_first
from support.operations import files_named, files_there
from support.options import arguments
from support.stores import Hooked, once, raising, set_properties, tree

pytestmark = pytest.mark.usefixtures("own_files")

UNSORTED = pa.month_day_nano_interval()
KINDS = [kind for kind in [*own.PLAIN, *samples.DICTIONARIES] if kind != UNSORTED]
WAYS = ["ascending", "descending"]
SMALL = {"page_rows": 8, "row_group_rows": 16, "durability": "process"}
# Rows 0 to 29 in another order.
NUMBERS = [row * 7 % 30 for row in range(30)]
TABLE = pa.table({"n": NUMBERS, "text": [f"row {n}" for n in NUMBERS]})


def batches(table, rows=7):
    """Yield batches of a stream of unknown length."""
    return (table.slice(start, rows) for start in range(0, max(len(table), 1), rows))


SOURCES = {
    "memory": lambda table: table,
    "stream": batches,
    "reader": lambda table: table.to_reader(max_chunksize=7),
}
everywhere = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def put(data, sort_by, **options):
    store = RamStore("shelf")
    blz.to_blz(data, store, **arguments(sort_by=sort_by, **SMALL | options))
    return store


def opened(store, **options):
    return blz.open(store, "a", durability="process", **options)


def checked(store):
    """Check the newest version and that no other file exists; return its content."""
    assert files_there(store) == files_named(store)
    with blz.open(store) as table:
        report = table.verify()
        assert report.is_intact, report.problems
        return table.to_arrow()


def in_python(column):
    """Return values that compare like the rows; NaN and null are kept apart."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in in_python(chunk)]
    if pa.types.is_dictionary(column.type):
        codes = column.indices.to_pylist()
        if column.type.ordered:
            return codes
        values = in_python(column.dictionary)
        return [None if code is None else values[code] for code in codes]
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column.to_pylist()


def order_of(table, keys):
    """Return the order of the rows by Python's own sort."""
    rows = list(range(len(table)))
    for name, way in reversed(keys):
        values = in_python(table[name])
        nulls = [row for row in rows if values[row] is None]
        nans = [row for row in rows if values[row] is not None and values[row] != values[row]]
        others = set(rows).difference(nulls, nans)
        kept = [row for row in rows if row in others]
        kept.sort(key=values.__getitem__, reverse=way == "descending")
        rows = [*kept, *nans, *nulls]
    return rows


def assert_in_order(found, table, order):
    assert found.schema.equals(table.schema, check_metadata=True)
    for mine, theirs in zip(found.columns, table.columns, strict=True):
        before = bits(theirs)
        assert bits(mine) == [before[row] for row in order]


# The order of the rows


@everywhere
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_are_sorted_by_every_type_and_equal_ones_stay_as_they_were(kind, way, source):
    table = pa.table({"x": samples.array(kind), "row": range(samples.ROWS)})
    found = checked(put(source(table), [("x", way)]))
    assert_in_order(found, table, order_of(table, [("x", way)]))


@everywhere
def test_nan_comes_before_null_and_both_last_whichever_way(source):
    table = pa.table({"x": [2.0, None, float("nan"), -0.0, 3.0, None, 0.0], "row": range(7)})
    for way, rows in ("ascending", [3, 6, 0, 4, 2, 1, 5]), ("descending", [4, 0, 3, 6, 2, 1, 5]):
        assert checked(put(source(table), [("x", way)]))["row"].to_pylist() == rows


@everywhere
def test_the_second_column_decides_where_the_first_is_equal(source):
    table = pa.table({"a": [2, 1, 2, 1, None], "b": ["x", "ä", "y", "z", "q"]})
    found = checked(put(source(table), ["a", ("b", "descending")]))
    assert found.to_pydict() == {"a": [1, 1, 2, 2, None], "b": ["ä", "z", "y", "x", "q"]}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_table_is_its_rows_in_the_order_of_any_columns(data):
    table = data.draw(own.tables())
    names = [f"column {index}" for index in range(table.num_columns)]
    table = table.rename_columns(names)
    sortable = [
        name
        for name in names
        if table.schema.field(name).type != UNSORTED
        and getattr(table.schema.field(name).type, "value_type", None) != UNSORTED
        and not getattr(table.schema.field(name).type, "ordered", False)
    ]
    keys = (
        data.draw(st.lists(st.sampled_from(sortable), max_size=3, unique=True)) if sortable else []
    )
    keys = [(name, data.draw(st.sampled_from(WAYS))) for name in keys]
    source = SOURCES[data.draw(st.sampled_from(sorted(SOURCES)))]
    rows = data.draw(st.sampled_from([None, 1, 5, 16]))
    found = checked(put(source(table), keys, row_group_rows=rows))
    assert_in_order(found, table, order_of(table, keys))


# The index


def test_the_labels_of_an_index_go_along_with_their_rows():
    frame = TABLE.to_pandas().assign(day=pd.date_range("2026", periods=30)[::-1])
    one, two = frame.set_index("day"), frame.set_index(["day", "text"])
    for made in one, two:
        pd.testing.assert_frame_equal(blz.read_blz(put(made, "n")), made.sort_values("n"))
        by_level = made.sort_index(level="day").rename_axis(index=made.index.names)
        found = blz.read_blz(put(made, "day"))
        pd.testing.assert_frame_equal(found, by_level, check_freq=False)


@pytest.mark.parametrize("index", [pd.RangeIndex(30), pd.RangeIndex(5, 65, 2, name="at")])
def test_a_range_counts_the_rows_as_they_are_stored_and_as_after_compacting(index):
    frame = TABLE.to_pandas().set_index(index)
    expected = frame.sort_values("n").set_index(index)
    pd.testing.assert_frame_equal(blz.read_blz(put(frame, "n")), expected)
    store = put(frame, ())
    with opened(store) as table:
        table.compact(sort_by="n")
    pd.testing.assert_frame_equal(blz.read_blz(store), expected)
    stored = blz.read_blz(put(frame, "n", index=True))
    assert stored.index.tolist() == frame.sort_values("n").index.tolist()


# One commit, little memory, nothing left behind


@everywhere
def test_sorted_rows_come_in_one_commit_and_nobody_sees_them_in_another_order(source):
    store = put(TABLE, ())
    seen = []

    def look(name, args):
        if name == "put_new":
            seen.append(blz.read_table(store) == TABLE)

    blz.to_blz(source(TABLE), Hooked(store, before=look), **arguments(sort_by="n", **SMALL))
    assert len(seen) >= 4
    assert all(seen)
    with blz.open(store) as table:
        assert [one.operation for one in table.versions()] == ["create", "replace"]
    assert checked(store)["n"].to_pylist() == list(range(30))


def test_a_stream_is_read_again_a_few_columns_at_a_time(tuned):
    """Each column is written in order before the next one is read."""
    tuned(group_bytes=1)
    table = pa.table(dict.fromkeys("abcd", NUMBERS))
    calls = []

    def note(name, args):
        if name in ("put_new", "open") and args[0].startswith("data/"):
            calls.append((name, args[0].split("/")[1]))

    store = RamStore("shelf")
    blz.to_blz(batches(table), Hooked(store, before=note), **arguments(sort_by="a", **SMALL))
    again = calls[calls.index(("open", "col1")) :]
    steps = list(dict.fromkeys(again))
    assert steps == [(name, f"col{n}") for n in (1, 2, 3) for name in ("open", "put_new")]
    checked(store)


def test_columns_are_put_in_order_together_up_to_what_a_row_group_takes():
    def together(*nbytes):
        return [list(some) for some in sorting.Unsorted(None, 1, nbytes, None).batches()]

    most = tuning.current.group_bytes
    assert together(1, 2, 3) == [[0, 1, 2]]
    assert together(most - 1, 1, 1, most, 2 * most, 5, 6) == [[0, 1], [2], [3], [4], [5, 6]]


def test_data_in_memory_are_written_once_and_what_is_in_order_is_not_written_again():
    def files(data, sort_by):
        made = []
        store = Hooked(
            RamStore(), before=lambda name, args: name == "put_new" and made.append(args[0])
        )
        blz.to_blz(data, store, **arguments(sort_by=sort_by, **SMALL))
        return len(made)

    ordered = TABLE.sort_by("n")
    assert files(TABLE, "n") == files(ordered, "n") == files(batches(ordered), "n") == 4
    assert files(batches(TABLE), "n") == 8


@pytest.mark.parametrize(
    ("source", "number"),
    [("memory", 0), ("memory", 3), ("stream", 0), ("stream", 3), ("stream", 4), ("stream", 7)],
)
def test_a_failure_while_sorted_rows_are_written_leaves_nothing(source, number):
    store = put(TABLE, ())
    before = tree(store)
    put_new = []

    def fail(name, args):
        if name == "put_new":
            put_new.append(args)
            if len(put_new) > number:
                raise blz.StorageError("full")

    with pytest.raises(blz.StorageError, match="full"):
        blz.to_blz(
            SOURCES[source](TABLE), Hooked(store, before=fail), **arguments(sort_by="n", **SMALL)
        )
    assert tree(store) == before
    assert checked(store) == TABLE


def test_what_a_stream_raises_leaves_nothing():
    def failing():
        yield from batches(TABLE)
        raising(ZeroDivisionError("theirs"))()

    store = RamStore("shelf")
    with pytest.raises(ZeroDivisionError, match="theirs"):
        blz.to_blz(failing(), store, **arguments(sort_by="n", **SMALL))
    assert not files_there(store)


@everywhere
@pytest.mark.parametrize(
    ("sort_by", "error", "message"),
    [
        ("m", ColumnNotFoundError, "no column is named 'm' in the data; the columns are"),
        (["n", "interval"], SchemaError, r"cannot be sorted by 'n' \(int64\), 'interval' \(month"),
        ([("n", "up")], ValueError, r"column names or .* pairs, not \('n', 'up'\)"),
        ([("n", "ascending", 1)], ValueError, "column names or"),
        ([3], ValueError, "column names or .* pairs, not 3"),
        (["n", ("n", "descending")], ValueError, "a column twice"),
    ],
)
def test_what_cannot_be_sorted_by_is_told_before_a_row_is_written(source, sort_by, error, message):
    interval = pa.array([(n, 0, 0) for n in NUMBERS], UNSORTED)
    table = TABLE.append_column("interval", interval)

    def no_write(name, args):
        assert name != "put_new"

    store = RamStore("shelf")
    with pytest.raises(error, match=message):
        blz.to_blz(
            source(table), Hooked(store, before=no_write), **arguments(sort_by=sort_by, **SMALL)
        )
    assert not files_there(store)
    with pytest.raises(blz.TableNotFoundError):
        blz.open(store)


def test_categories_that_have_no_room_together_leave_nothing():
    narrow = pa.dictionary(pa.int8(), pa.string())
    items = [
        pa.table(
            {"c": pa.array([f"{n} {i}" for i in range(100)]).dictionary_encode().cast(narrow)}
        ).append_column("n", pa.array(range(100, 0, -1)))
        for n in range(2)
    ]
    store = RamStore("shelf")
    for data in items, pa.concat_tables(items):
        with pytest.raises(SchemaError, match="column 'c': 200 rows do not fit into one array"):
            blz.to_blz(data, store, sort_by="n", durability="process")
        assert not files_there(store)


def test_codes_outside_of_their_dictionary_are_told():
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 5]), pa.array(["a"]), safe=False)
    with pytest.raises(SchemaError, match="rows cannot be sorted by 'c'"):
        put(pa.table({"c": codes}), "c")


# What it is for


def bounds(store):
    """Return the bounds of the row groups, and of their pages."""
    with blz.open(store) as table:
        version = table._snapshot.version
        groups = [version.records([0], [group]).pages for group in range(2)]
    pages = [list(zip(one["min"].tolist(), one["max"].tolist(), strict=True)) for one in groups]
    return [(min(low for low, _ in one), max(high for _, high in one)) for one in pages], pages


@everywhere
def test_bounds_of_row_groups_and_pages_do_not_meet_once_rows_are_sorted(source):
    in_order = [(0, 15), (16, 29)], [[(0, 7), (8, 15)], [(16, 23), (24, 29)]]
    assert bounds(put(source(TABLE), "n")) == in_order
    store = put(source(TABLE), ())
    assert bounds(store)[0] == [(0, 28), (2, 29)]
    with opened(store) as table:
        table.compact(sort_by="n")
    assert bounds(store) == in_order


def test_mode_a_sorts_a_table_that_it_makes_and_no_other():
    store = put(TABLE, "n", mode="a")
    assert checked(store)["n"].to_pylist() == list(range(30))
    before = tree(store)
    with pytest.raises(ValueError, match=r"sort all rows with CTable.compact"):
        blz.to_blz(TABLE, store, **arguments(mode="a", sort_by="n", **SMALL))
    assert tree(store) == before
    blz.to_blz(TABLE, store, **arguments(mode="a", **SMALL))
    assert checked(store)["n"].to_pylist() == [*range(30), *NUMBERS]


def test_a_job_that_is_run_again_does_nothing_though_its_table_is_there():
    options = SMALL | {"mode": "a", "sort_by": "n", "commit_id": "job 1"}
    store = RamStore("shelf")
    for _ in range(2):
        blz.to_blz(TABLE, store, **arguments(**options))
    assert checked(store)["n"].to_pylist() == list(range(30))


def test_a_frame_sorts_itself_too():
    store = RamStore("shelf")
    TABLE.to_pandas().to_blz(store, **arguments(sort_by=[("n", "descending")], **SMALL))
    assert checked(store)["n"].to_pylist() == list(reversed(range(30)))


def sort_by(store):
    with blz.open(store) as table:
        return table.storage.sort_by


def test_a_table_keeps_its_order_by_its_columns_whatever_they_are_called():
    keys = [("text", "descending"), ("n", "ascending")]
    store = put(TABLE, ())
    # The ids of its columns differ from their positions.
    blz.to_blz(TABLE, store, **arguments(sort_by=keys, **SMALL))
    assert sort_by(store) == keys
    with opened(store) as table:
        assert table[["n"]].storage.sort_by == keys
        table.rename_columns({"text": "n", "n": "text"})
        moved_first(table, ["n"])
        assert table.storage.sort_by == [("n", "descending"), ("text", "ascending")]
        table.add_column("x", NUMBERS)
        table.drop_columns(["x"])
        assert len(table.storage.sort_by) == 2
        table.drop_columns(["text"])
        assert table.storage.sort_by is None
        assert "sort_by" not in table._snapshot.version.head.properties
        table.restore(2)
        assert table.storage.sort_by == keys
        moved_first(table, ["text"])
        table.compact(sort_by="n")
        assert table.storage.sort_by == [("n", "ascending")]
    blz.to_blz(TABLE, store, **arguments(**SMALL))
    with blz.open(store) as table:
        assert "sort_by" not in table._snapshot.version.head.properties


def test_compacting_keeps_the_order_also_of_rows_that_lay_in_it():
    store = put(TABLE.sort_by("n"), ())
    with opened(store) as table:
        assert table.storage.sort_by is None
        assert table.compact(sort_by="n").version == 2
        assert table.storage.sort_by == [("n", "ascending")]
        assert table.compact(sort_by="n").version == 2
        assert table.compact(sort_by=[("n", "descending")]).version == 3
        assert table.storage.sort_by == [("n", "descending")]
        assert [one.operation for one in table.versions()] == ["create", "sort", "sort"]
    assert checked(store)["n"].to_pylist() == list(reversed(range(30)))


def test_what_was_appended_is_sorted_when_the_table_is_compacted():
    store = put(TABLE, [("n", "descending")])
    with opened(store) as table:
        table.append({"n": [100, -1], "text": [None, "last"]})
        assert table["n"].to_arrow().to_pylist() == [*reversed(range(30)), 100, -1]
        assert table.compact(sort_by=()).version == table.version
        assert table["n"][30:].to_pylist() == [100, -1]
        assert table.storage.sort_by == [("n", "descending")]
        made = table.compact().version
        assert table["n"].to_arrow().to_pylist() == [100, *reversed(range(30)), -1]
        before = tree(store)
        assert table.compact().version == made
    assert tree(store) == before
    checked(store)


def test_an_order_that_others_gave_meanwhile_is_a_conflict():
    """Rows in one order would be described by the other one."""
    store = put(TABLE, "n")
    blz.to_blz({"n": [-1], "text": ["last"]}, store, **arguments(mode="a", **SMALL))
    theirs = lambda: set_properties(store, sort_by=[[1, "ascending"]])  # noqa: E731
    hooked = Hooked(store, before=once("lock", theirs, layout.LOCK))
    message = "property 'sort_by' was changed"
    with opened(hooked, retries=0) as table, pytest.raises(ConflictError, match=message):
        table.compact()
    with opened(store) as table:
        assert table.storage.sort_by == [("text", "ascending")]
        assert table["n"][30:].to_pylist() == [-1]


@pytest.mark.parametrize(
    "damage",
    [
        "n",
        1,
        None,
        True,
        {"0": "ascending"},
        [["n", "ascending"]],
        [0, "ascending"],
        [[0]],
        [[0, "up"]],
        [[True, "ascending"]],
        [[[0], "ascending"]],
        [[0, ["ascending"]]],
        [[0, "ascending"], [0, "descending"]],
        [[0, "ascending"], [9, "ascending"]],
        [[-1, "up"]],
    ],
    ids=repr,
)
def test_an_order_that_is_none_is_no_order(damage):
    store = put(TABLE, ())
    set_properties(store, sort_by=damage)
    with opened(store) as table:
        assert table.storage.sort_by is None
        table.compact()
        assert table["n"].to_arrow().to_pylist() == NUMBERS
        table.drop_columns(["text"])
        table.compact(sort_by="n")
        assert table.storage.sort_by == [("n", "ascending")]
