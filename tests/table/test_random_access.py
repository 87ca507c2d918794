"""Random access: single rows and slices equal those of the whole table, read from few pages."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.read import parts
from blztable.errors import ClosedError, ColumnNotFoundError
from blztable.format import layout
from blztable.format.chunk import ChunkHeader
from blztable.storage.memory import RamStore
from blztable.storage.store import KeyNotFound
from support import arrow_strategies as own
from support import samples
from support.bit_equality import same, same_table
from support.recording_store import Recorded
from support.stores import Hooked, write

CUTS = {"row_group_rows": 24, "page_rows": 8, "chunk_bytes": 64}
ALL = [*own.PLAIN, *samples.DICTIONARIES]
ROWS = 60
TABLE = pa.table(
    {
        "n": np.arange(ROWS),
        "t": [f"word {row}" if row % 7 else None for row in range(ROWS)],
        "x": np.arange(ROWS) / 4,
    }
)


def stored(table, **options):
    store = RamStore()
    write(store, table, **{**CUTS, **options})
    return store


@pytest.fixture(scope="module")
def store():
    return stored(TABLE)


@pytest.fixture
def table(store):
    with blz.open(store) as opened:
        yield opened


def rows_of(table, rows):
    """Return these rows; Arrow cannot take rows of views."""
    return pa.concat_tables([table.slice(0, 0), *(table.slice(int(row), 1) for row in rows)])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_rows_of_any_type_come_in_any_order_to_the_bit(data):
    rows = data.draw(st.integers(0, 60))
    kinds = data.draw(st.lists(own.types(), min_size=1, max_size=3))
    arrays = [data.draw(own.arrays(kind, rows, stray_codes=False)) for kind in kinds]
    names = data.draw(st.lists(st.sampled_from("ab"), min_size=len(kinds), max_size=len(kinds)))
    whole = pa.Table.from_arrays(arrays, names=names)
    sizes = st.sampled_from([8, 16, 64])
    store = stored(
        whole,
        page_rows={name: data.draw(sizes) for name in names},
        row_group_rows=data.draw(st.sampled_from([None, 1, 7, 16, 20])),
        chunk_bytes=data.draw(st.sampled_from([8, 64, 200, 1 << 20])),
    )
    wanted = data.draw(st.lists(st.integers(0, rows - 1), max_size=30)) if rows else []
    with blz.open(store) as opened:
        found = opened.take(wanted)
        found.validate()
        assert same_table(found, rows_of(whole, wanted))
        slice_ = data.draw(st.slices(rows))
        assert same_table(opened[slice_], rows_of(whole, range(rows)[slice_]))


@pytest.mark.parametrize("type_", ALL, ids=lambda one: str(one).replace(" ", ""))
def test_rows_of_each_type(type_):
    whole = samples.of([type_])
    wanted = [39, 0, 3, 3, 17, 24, 23, 1]
    with blz.open(stored(whole)) as opened:
        assert same_table(opened.take(wanted), rows_of(whole, wanted))
        assert same_table(opened.take(sorted(set(wanted))), rows_of(whole, sorted(set(wanted))))
        assert same_table(opened[30:2:-3], rows_of(whole, range(30, 2, -3)))
        column = opened[str(type_)]
        for rows in (slice(3, 20), slice(None, None, 7), slice(30, 2, -3), slice(5, 5)):
            assert isinstance(column[rows], pa.Array)
            assert same(column[rows], rows_of(whole, range(40)[rows]).column(0))


AS_GIVEN = {
    "list": list,
    "tuple": tuple,
    "int8": lambda rows: np.array(rows, np.int8),
    "uint64": lambda rows: np.array(rows, np.uint64),
    "big-endian": lambda rows: np.array(rows, ">i4"),
    "strided": lambda rows: np.repeat(np.array(rows), 2)[::2],
    "numpy's": lambda rows: [np.int16(row) for row in rows],
    "Arrow": pa.array,
    "narrow Arrow": lambda rows: pa.array(rows, pa.uint8()),
    "Arrow's slice": lambda rows: pa.array([99, *rows]).slice(1),
    "chunked": lambda rows: pa.chunked_array([rows[:2], rows[2:]]),
    "Series": pd.Series,
    "masked Series": lambda rows: pd.Series(rows, dtype="Int64"),
    "Series of Arrow": lambda rows: pd.Series(rows, dtype="int64[pyarrow]"),
    "Index": pd.Index,
}


@pytest.mark.parametrize("given_", AS_GIVEN.values(), ids=AS_GIVEN)
def test_rows_are_named_by_anything_that_holds_numbers(table, given_):
    rows = [50, 3, 3, 24, 0]
    assert table.take(given_(rows)).equals(TABLE.take(rows))


@pytest.mark.parametrize("rows", [range(3), range(50, 5, -4), range(0)], ids=str)
def test_rows_are_named_by_a_range(table, rows):
    assert table.take(rows).equals(TABLE.take(pa.array(rows, pa.int64())))


@pytest.mark.parametrize(
    "rows",
    [[], (), np.zeros(0, np.int32), pa.array([], pa.int8()), pd.Index([]), pa.array([])],
    ids=lambda one: type(one).__name__,
)
def test_no_rows_are_a_table_without_rows(table, rows):
    found = table.take(rows)
    assert found.equals(TABLE.slice(0, 0))
    assert table.take(rows, columns=[]).num_rows == 0


@pytest.mark.parametrize(
    "rows", [[60], [0, -1], np.array([2**64 - 1], np.uint64), [0, 10**9], pa.array([-5])], ids=str
)
def test_a_row_that_is_not_there_is_told(table, rows):
    with pytest.raises(IndexError, match=r"row -?\d+ is out of range for a table of 60 rows"):
        table.take(rows)


def test_of_no_rows_there_is_none():
    with blz.open(stored(TABLE.slice(0, 0))) as empty:
        assert empty.take([]).equals(TABLE.slice(0, 0))
        with pytest.raises(IndexError):
            empty.take([0])
        assert empty[::-1].equals(TABLE.slice(0, 0))
        assert empty.head().equals(empty.tail())


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (np.ones(ROWS, np.bool_), TypeError),
        ([True, False], TypeError),
        (pa.array([True, False]), TypeError),
        ([1.0, 2.0], TypeError),
        (np.array([1.5]), TypeError),
        (pa.array([1.0]), TypeError),
        ([[1, 2], [3, 4]], TypeError),
        ([[1, 2], [3]], TypeError),
        ([[]], TypeError),
        (np.zeros((0, 2), np.int64), TypeError),
        (5, TypeError),
        (np.int64(5), TypeError),
        ("12", TypeError),
        (["1"], TypeError),
        (None, TypeError),
        ([1, None], TypeError),
        ({1, 2}, TypeError),
        (pd.Series([1, None], dtype="Int64"), TypeError),
        (pd.date_range("2026", periods=2), TypeError),
        (pa.array([1, None]), IndexError),
        (pa.chunked_array([[1], [None]], pa.int64()), IndexError),
        (pa.nulls(2), IndexError),
    ],
    ids=lambda one: f"{type(one).__name__}",
)
def test_what_names_no_rows_is_told_before_anything_is_read(store, rows, error):
    recorded = Recorded(store)
    with (
        blz.open(recorded) as table,
        pytest.raises(error, match=r"row numbers must|is null|out of range"),
    ):
        table.take(rows)
    assert recorded.data == []


def test_columns_of_rows(table):
    assert table.take([5, 2], columns=["x", "n", "x"]).equals(
        TABLE.take([5, 2]).select(["x", "n", "x"])
    )
    assert table.take([5, 2], columns=[]).num_rows == 2
    assert table[["t"]].take([5, 2]).equals(TABLE.take([5, 2]).select(["t"]))
    assert table[["t", "n"]].take([5, 2], columns=["n"]).column_names == ["n"]
    with pytest.raises(ColumnNotFoundError, match="no column is named 'x'"):
        table[["t"]].take([5], columns=["x"])
    with pytest.raises(ColumnNotFoundError, match="no column is named 'other'"):
        table.take([5], columns=["other"])


def test_dictionaries_that_differ_by_row_group():
    values = [[f"{group}-{row}" for row in range(5)] for group in range(40)]
    words = pa.array([word for group in values for word in group])
    # Together 200 values, too many for the codes.
    parts = [pa.DictionaryArray.from_arrays(pa.array(range(5), pa.int8()), one) for one in values]
    with blz.open(stored(pa.table({"d": pa.chunked_array(parts)}), row_group_rows=5)) as table:
        for rows in ([199, 0, 77, 77, 5], list(range(199, -1, -1)), [3, 2]):
            found = table.take(rows)
            found.validate(full=True)
            assert found["d"].type == parts[0].type
            assert found["d"].to_pylist() == words.take(pa.array(rows)).to_pylist()
        assert table[::-7]["d"].to_pylist() == words[::-7].to_pylist()
        assert table["d"][0:4].to_pylist() == words[0:4].to_pylist()


def test_rows_of_pages_without_a_byte():
    words = ["", None] * 8 + ["a"] * 8
    whole = pa.table({kind: pa.array(words, kind) for kind in ("string", "large_string")})
    with blz.open(stored(whole)) as table:
        for rows in ([3, 2], [0], [15, 16], [1, 23]):
            assert table.take(rows).equals(whole.take(rows))


BOUNDS = [None, 0, 1, 7, 8, 24, 30, 59, 60, 61, 1000, -1, -8, -30, -60, -61, -1000]
STEPS = [None, 1, 2, 7, 60, 1000, -1, -2, -9, -1000]


@pytest.mark.parametrize("step", STEPS)
def test_slices_are_those_of_python(table, step):
    numbers, narrowed, column = list(range(ROWS)), table[["n"]], table["n"]
    for start in BOUNDS:
        for stop in BOUNDS[:: 3 if step != 1 else 1]:
            rows = slice(start, stop, step)
            assert narrowed[rows]["n"].to_pylist() == numbers[rows], rows
            assert column[rows].to_pylist() == numbers[rows], rows


def test_a_slice_that_steps_by_nothing_is_told(table):
    for one in (table, table["n"]):
        with pytest.raises(ValueError, match="slice step cannot be zero"):
            one[::0]
        with pytest.raises(TypeError, match="slice indices must be integers"):
            one[1.5:]


@pytest.mark.parametrize("n", [0, 1, 5, 8, 24, 25, 59, 60, 61, 10**6, np.int8(5), np.uint8(200)])
def test_head_and_tail_are_the_first_rows_and_the_last(table, n):
    count = min(int(n), ROWS)
    assert table.head(n).equals(TABLE.slice(0, count))
    assert table.tail(n).equals(TABLE.slice(ROWS - count))
    assert table[["x"]].tail(n).equals(TABLE.select(["x"]).slice(ROWS - count))


def test_head_and_tail_say_what_is_not_possible(table):
    for read in (table.head, table.tail):
        with pytest.raises(ValueError, match="n must be at least 0, not -1"):
            read(-1)
        for n in (2.5, "2", None):
            with pytest.raises(TypeError):
                read(n)
    assert table.tail().equals(TABLE.slice(ROWS - 5))


@pytest.mark.usefixtures("own_files_here")
def test_rows_come_from_their_pages_alone_each_read_once():
    numbers = pa.table({"a": np.arange(ROWS), "b": np.arange(ROWS) * 2, "c": np.arange(ROWS)})
    with Recorded(stored(numbers)).recording() as store, blz.open(store) as table:
        reads = [
            (lambda: table.take([59, 3, 3, 4, 0, 16, 59, 25], columns=["b", "a"]), "ab"),
            (lambda: table[["c"]][59:2:-19], "c"),
            (lambda: table["c"][3:21:9], "c"),
            (lambda: table["c"][22:26], "c"),
            (lambda: table["c"][-1], "c"),
            (lambda: table.tail(13), "abc"),
            (lambda: table.head(3), "abc"),
            (lambda: table[20:20], ""),
            (lambda: table["c"][20:20], ""),
            (lambda: table["c"][30:20], ""),
            (lambda: table.head(0), ""),
            (lambda: table.tail(0), ""),
            (lambda: table.take([]), ""),
        ]
        rows = [
            [59, 3, 16, 25], [59, 40, 21], [3, 12], [22, 25], [59], range(47, 60), [0],
            [], [], [], [], [], [],
        ]  # fmt: skip
        for (read, names), touched in zip(reads, rows, strict=True):
            store.reads.clear()
            read()
            pages = {(row // 24, row % 24 // 8) for row in touched}
            assert store.chunks() == {(name, *page): 1 for name in names for page in pages}


def test_a_chunk_is_decompressed_once_however_many_rows_it_has(monkeypatch):
    store = stored(TABLE, chunk_bytes=1 << 20, encoding="plain")
    calls = Counter()

    def counted(real):
        def count(chunk, *args):
            calls[bytes(chunk)] += 1
            real(chunk, *args)

        return count

    monkeypatch.setattr(parts, "decompress_into", counted(parts.decompress_into))
    with blz.open(store) as table:
        table.take([*range(0, 24, 3), 30, 2, 2], columns=["n"])
    # One chunk of the first row group, one of the second.
    assert sorted(calls.values()) == [1, 1]


def test_a_transaction_takes_of_its_own_rows():
    store = stored(TABLE)
    with blz.open(store, "a") as table:
        with table.transaction() as tx:
            tx.append(TABLE.slice(0, 3))
            tx.delete([("n", "==", 1)])
            assert tx.take([60, 1, 0])["n"].to_pylist() == [2, 2, 0]
            assert tx[-1::-30]["n"].to_pylist() == [2, 31, 0]
            assert tx.tail(2)["n"].to_pylist() == [0, 2]
            assert tx["n"][-2:].to_pylist() == [0, 2]
            assert tx.count(filters=[("n", "<=", 2)]) == 4
            assert tx.count() == len(tx)
            with pytest.raises(IndexError):
                tx.take([len(tx)])
            # The view of other readers did not change.
            assert table.count(filters=[("n", "<=", 2)]) == 3
            assert table.take([1])["n"].to_pylist() == [1]
        assert table.count(filters=[("n", "<=", 2)]) == 4


def test_older_versions_have_their_rows():
    store = stored(TABLE)
    write(store, TABLE.slice(10, 20))
    with blz.open(store, version=1) as old, blz.open(store) as new:
        assert old.take([59])["n"].to_pylist() == [59]
        assert old.count(filters=pc.field("n") > 29) == 30
        assert new.take([0])["n"].to_pylist() == [10]
        assert new.count(filters=pc.field("n") > 29) == 0
        with pytest.raises(IndexError):
            new.take([59])


def test_a_closed_table_has_no_rows(store):
    table = blz.open(store)
    column = table["n"]
    table.close()
    for read in (
        lambda: table.take([0]),
        lambda: table.head(1),
        lambda: table.tail(1),
        lambda: table[::2],
        lambda: column[::2],
        lambda: column[0],
        lambda: table.count(filters=[("n", ">", 1)]),
        lambda: table.to_arrow(filters=[("n", ">", 1)]),
        lambda: table.to_batches(filters=[("n", ">", 1)]),
    ):
        with pytest.raises(ClosedError, match="was closed"):
            read()


def test_threads_take_rows_of_one_table_at_once(table):
    def take(seed):
        rows = np.random.default_rng(seed).integers(0, ROWS, 20)
        return table.take(rows).equals(TABLE.take(rows))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(take, range(100)))


IS_TWO = pc.field("a") == 2


# Bug: reads of a table that another thread closed reported damage.
@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.count(filters=IS_TWO),
        lambda table: table.take([2]),
        lambda table: table[::2],
        lambda table: table["a"][::2],
        lambda table: table["a"][1:3],
        lambda table: table.to_arrow(filters=IS_TWO),
        lambda table: next(table.to_batches(filters=IS_TWO)),
    ],
)
def test_a_table_that_is_closed_while_it_is_read_was_closed_and_is_not_damaged(read):
    def gone(name, args):
        if name == "open":
            table.close()
            raise KeyNotFound(args[0])  # As if a commit had removed the file now.

    store = RamStore("here")
    blz.to_blz({"a": range(32)}, store, storage=blz.Storage(page_rows=8))
    hooked = Hooked(store)
    table = blz.open(hooked)
    hooked._before = gone
    with pytest.raises(blz.ClosedError, match="here was closed"):
        read(table)


@pytest.mark.parametrize("nbytes", [300_000, 1_100_000])
def test_a_large_item_is_read_without_its_neighbours(monkeypatch, nbytes):
    items = pa.array([bytes([row]) * (nbytes + row) for row in range(20)])
    store = RamStore()
    blz.to_blz(pa.table({"blob": items}), store)
    sizes = []

    def measured(real):
        def measure(chunk, *args):
            sizes.append(ChunkHeader.decode(chunk).nbytes)
            real(chunk, *args)

        return measure

    with blz.open(store) as table:
        monkeypatch.setattr(parts, "decompress_into", measured(parts.decompress_into))
        assert table["blob"][7] == items[7].as_py()
    # The first and the last chunk have a part of its neighbours.
    assert nbytes + 7 <= sum(sizes) < nbytes + (1 << 19)


class CountedLeaves(RamStore):
    """A store that counts the leaves that are read."""

    leaves = 0

    def get(self, key, offset=0, length=None):
        self.leaves += key.startswith(layout.LEAVES)
        return super().get(key, offset, length)


@pytest.mark.parametrize("gone", [[], [3, 1005, 1006]])
def test_few_rows_read_the_leaves_of_their_row_groups_alone(tuned, gone):
    tuned(leaf_entries=4)
    store = CountedLeaves("leaves")
    values = np.arange(2000)
    data = pa.table({"n": values, "s": values.astype(str)})
    blz.to_blz(data, store, storage=blz.Storage(row_group_rows=10))
    with blz.open(store, "a") as table:
        table.delete(pc.field("n").isin(gone))
    data = data.filter(~pc.field("n").isin(gone))
    reads = [
        (lambda table: table.take([1004]), data.take([1004])),
        (lambda table: table.take([1990, 0, 1990]), data.take([1990, 0, 1990])),
        (lambda table: table[1003:1008], data[1003:1008]),
        (lambda table: table.head(), data[:5]),
        (lambda table: table[-3:], data[-3:]),
        (lambda table: table["s"][1001:1004], data["s"][1001:1004].combine_chunks()),
        (lambda table: pa.scalar(table["n"][1003]), data["n"][1003]),
        (lambda table: table.to_arrow(filters="n = 1004"), data.filter(pc.field("n") == 1004)),
    ]
    for read, expected in reads:
        with blz.open(store) as table:
            store.leaves = 0
            assert read(table).equals(expected)
            # One of 50 a level, of four levels, at two places.
            assert store.leaves <= 8
