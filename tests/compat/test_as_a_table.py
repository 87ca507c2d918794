"""Every verb that reads: tables of other programs, beside tables of ours with the same data."""

from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable import tuning
from golden.old_writer import write_table
from support.bit_equality import same_table

ROWS = 30_000
RANDOM = np.random.default_rng(3)
ITEM = np.zeros(ROWS, [("a", ">i4"), ("t", "<U3"), ("s", [("x", "u1"), ("when", "M8[s]")])])
ITEM["a"], ITEM["t"] = np.arange(ROWS)[::-1], RANDOM.choice(["äö", "", "z"], ROWS)
ITEM["s"]["x"], ITEM["s"]["when"] = np.arange(ROWS), np.arange(ROWS)
ITEM["s"]["when"][::3] = "NaT"
COLUMNS = {
    "key": np.arange(ROWS),
    "price": np.where(np.arange(ROWS) % 7, RANDOM.normal(size=ROWS), np.nan),
    "name": RANDOM.choice(np.array(["Oslo", "Zürich", "", "東京"]), ROWS),
    "code": RANDOM.choice(np.array([b"a", b"bc", b""]), ROWS),
    "at": np.where(np.arange(ROWS) % 5, RANDOM.integers(0, 9**9, ROWS), -(2**63)).view("M8[s]"),
    "pair": RANDOM.integers(0, 9, (ROWS, 2)).astype("i2"),
    "item": ITEM,
    "z": np.arange(ROWS) * (1 - 1j),
}
CHUNKS = dict.fromkeys(COLUMNS, 1000) | {"name": 777, "at": 50_000, "item": 300}
FILTERS = {
    "few": pc.field("price") > 3,
    "none": pc.field("key") < 0,
    "all": pc.field("key") >= 0,
    "many": [("name", "in", ["Oslo", ""]), ("key", ">", 500)],
    "null": pc.field("at").is_null(),
    "or": [[("code", "==", b"bc"), ("key", "<", 4000)], [("price", "<", -2)]],
    "text": "name == 'Oslo' and key < 9000",
    "field": pc.field("item", "s", "x") == 7,
    "two fields": (pc.field("item", "a") < 2000) & pc.field("item", "s", "when").is_valid(),
    "one row": [("key", "==", 12_345)],
}
SOME = ["name", "item.s.x", "key"]


@pytest.fixture(scope="module", params=["bcolz", "blz"])
def both(request, tmp_path_factory):
    """Return the table of another program, and the one that `convert` makes of it."""
    folder = tmp_path_factory.mktemp("both")
    old, new = folder / "old", folder / "new"
    write_table(old, COLUMNS, CHUNKS, {"till": 7}, is_blz=request.param == "blz", default=None)
    assert blz.copy(old, new).rows == ROWS
    with blz.open(old) as one, blz.open(new) as other:
        yield one, other


@pytest.fixture(params=["one window", "many windows"])
def _cut(request, tuned):
    """Read old files in one window, or in windows that cut chunks, streams and filters."""
    if request.param == "many windows":
        tuned(window_bytes=100_000, filter_bytes=100_000, window_rows=1024)


def values(read):
    """Return what a verb returned in a form that can be compared."""
    if isinstance(read, pa.ChunkedArray | pa.Array):
        return read.type, read.to_pylist()
    if isinstance(read, pa.Table):
        return read.schema, read.to_pylist()
    return read


def assert_same(old, new):
    if isinstance(new, pa.Table):
        # Ours may have fewer chunks.
        assert same_table(old, new)
    elif isinstance(new, pd.DataFrame):
        pd.testing.assert_frame_equal(old, new)
    elif isinstance(new, pd.Series):
        pd.testing.assert_series_equal(old, new)
    elif isinstance(new, np.ndarray):
        np.testing.assert_array_equal(old, new)
        assert old.dtype == new.dtype
    else:
        assert repr(values(old)) == repr(values(new))


def batches(table, *args, **options):
    with table.to_batches(*args, **options) as found:
        return pa.Table.from_batches(found, found.schema)


TAKEN = [29_999, 3, 3, 12_345, 0, 776, 777]
VERBS = {
    "to_arrow": lambda t: t.to_arrow(),
    "to_arrow, some": lambda t: t.to_arrow(SOME),
    "to_arrow, none": lambda t: t.to_arrow([]).num_rows,
    "to_pandas": lambda t: t.to_pandas(["key", "price", "name", "code", "at", "z"]),
    "to_pandas, Arrow": lambda t: t.to_pandas(dtype_backend="pyarrow"),
    "to_numpy": lambda t: t[["key"]].to_numpy(),
    "to_batches": lambda t: batches(t, batch_rows=4096),
    "slice": lambda t: t[700:20_000],
    "step": lambda t: t[29_000:5:-777],
    "row": lambda t: t[-3],
    "head": lambda t: t.head(),
    "tail": lambda t: t.tail(1200),
    "take": lambda t: t.take(TAKEN),
    "take, fields": lambda t: t.take(TAKEN, ["item.s.when", "z.imag", "item.t"]),
    "take, nothing": lambda t: t.take([]),
    "sample": lambda t: t.sample(40, seed=1),
    "count": lambda t: t.count(),
    "describe": lambda t: t.describe(),
    "column": lambda t: t["name"].to_arrow(),
    "column, row": lambda t: t["at"][777],
    "column, slice": lambda t: t["item"][299:902],
    "column, step": lambda t: t["code"][::-1201],
    "column, pandas": lambda t: t["price"].to_pandas(),
    "column, numpy": lambda t: t["key"].to_numpy(),
    "field": lambda t: t["item.s.when"].to_arrow(),
    "field, rows": lambda t: t["z.imag"][3:2000:9],
    "nulls": lambda t: [t[name].null_count() for name in [*COLUMNS, "item.s.when"]],
    "extremes": lambda t: [(t[name].min(), t[name].max()) for name in [*COLUMNS, "item.t"]],
    "dictionaries": lambda t: t.to_arrow(["name", "key"], dictionaries=["name"])["name"].cast(
        pa.string()
    ),
    "dictionaries, pandas": lambda t: t.to_pandas(["name", "code"], dictionaries=["code", "name"]),
    "dictionaries, batches": lambda t: batches(t, ["name"], dictionaries=["name"])["name"].cast(
        pa.string()
    ),
    "dataset": lambda t: t.dataset().to_table(columns=["name", "key"]),
    "dataset, filter": lambda t: t.dataset().to_table(filter=pc.field("key") > 29_000),
    "dataset, dictionaries": lambda t: (
        t.dataset(dictionaries=["name"]).to_table(columns=["name"])["name"].cast(pa.string())
    ),
    "dataset, count": lambda t: t.dataset().count_rows(filter=pc.field("price") > 1),
}


@pytest.mark.usefixtures("_cut")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reads_what_it_reads_of_a_table(both, verb):
    old, new = both
    assert_same(VERBS[verb](old), VERBS[verb](new))


@pytest.mark.usefixtures("_cut")
@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_selects_what_it_selects_of_a_table(both, name):
    old, new = both
    filters = FILTERS[name]
    for read in (
        lambda t: t.to_arrow(filters=filters),
        lambda t: t.to_arrow(SOME, filters=filters),
        lambda t: t.to_pandas(["name", "at"], filters=filters),
        lambda t: batches(t, ["item.a", "price"], filters=filters),
        lambda t: t.to_pandas(["name"], filters=filters, dictionaries=["name"]).astype(str),
        lambda t: t.count(filters=filters),
    ):
        assert_same(read(old), read(new))
    plan = old.explain(["name"], filters=filters)
    assert (plan.rows_in_all, plan.row_groups) == (ROWS, 1)


@pytest.mark.parametrize("filters", [None, *FILTERS.values()], ids=["all rows", *FILTERS])
def test_progress_reaches_the_end_and_never_goes_back(both, filters, tuned):
    tuned(window_bytes=100_000)
    told = []
    both[0].to_arrow(SOME, filters=filters, progress=lambda *rows: told.append(rows))
    assert told[-1] == (ROWS, ROWS)
    assert told == sorted(told)
    # While it is read, too.
    assert filters is not None or len(set(told)) > 2


# The chunks that are lost, by column, and the rows of each.
LOST = {"name": (3, (2331, 3108)), "item": (50, (15_000, 15_300)), "key": (3, (3000, 4000))}
# Columns, a filter, and the column of the filter that has lost rows.
READS = {
    "everything": (["name", "item", "key", "price"], None, ""),
    "whole columns": (["price", "z"], None, ""),
    "a field": (["item.s.x", "price"], None, ""),
    "by a lost column": (["price", "name"], [("key", ">=", 2500), ("key", "<", 16_000)], "key"),
    "by a whole column": (["name", "price"], pc.field("price") > 0, ""),
    "by a lost field": (["key"], pc.field("item", "a") < 20_000, "item"),
    "dictionaries": (["name"], None, ""),
}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Return a table of bcolz that has lost chunks, and a whole one of ours."""
    folder = tmp_path_factory.mktemp("damaged")
    write_table(folder / "old", COLUMNS, CHUNKS, default=None)
    blz.copy(folder / "old", folder / "new")
    for name, (chunk, _) in LOST.items():
        (folder / "old" / name / "data" / f"__{chunk}.blp").unlink()
    with blz.open(folder / "old") as old, blz.open(folder / "new") as new:
        yield old, new


@pytest.fixture(scope="module")
def expected(damaged):
    """Return a function that tells the rows that a damaged table still has, as text."""
    return cache(lambda read, on_corrupt: repr(expected_of(damaged[1], read, on_corrupt)))


def expected_of(new, read, on_corrupt):
    """Return the rows that a damaged table still has, given a whole one."""
    columns, filters, by = READS[read]
    roots = [name.partition(".")[0] for name in columns]
    kept = new.to_arrow(["key"], filters=filters)["key"].to_numpy()
    lost = {}
    for name, (_, (start, stop)) in LOST.items():
        if name == by or (on_corrupt == "skip" and name in roots):
            kept = kept[(kept < start) | (kept >= stop)]
        lost[name] = range(start, stop)
    found = new.take(kept, columns).to_pydict()
    for root in roots:
        gone = lost.get(root, ())
        found[root] = [
            None if row in gone else value
            for row, value in zip(kept.tolist(), found[root], strict=True)
        ]
    return found


@pytest.mark.usefixtures("_cut")
@pytest.mark.parametrize("damage_reads", [tuning.current.damage_reads, 3])
@pytest.mark.parametrize("on_corrupt", ["skip", "null"])
@pytest.mark.parametrize("read", READS)
@pytest.mark.filterwarnings("ignore:rows ")
def test_what_is_whole_of_damaged_files_is_read(
    damaged, expected, read, on_corrupt, damage_reads, tuned
):
    tuned(damage_reads=damage_reads)
    old, _ = damaged
    columns, filters, _ = READS[read]
    options = {"filters": filters, "on_corrupt": on_corrupt}
    if read == "dictionaries":
        options["dictionaries"] = columns
    found = old.to_arrow(columns, **options)
    assert repr(found.to_pydict()) == expected(read, on_corrupt)
    streamed = batches(old, columns, **options)
    assert same_table(streamed.replace_schema_metadata(), found.replace_schema_metadata())
    if read != "whole columns":
        with pytest.raises(blz.CorruptError, match="the file is missing"):
            old.to_arrow(columns, filters=filters)


@pytest.mark.usefixtures("_cut")
def test_values_that_are_lost_are_told(damaged):
    old, _ = damaged
    with pytest.warns(UserWarning, match="of column 'name' are null") as told:
        frame = old.to_pandas(["name", "price"], on_corrupt="null")
    assert len(told) == 1
    assert frame.attrs["blz:missing_values"] == {"name": [[2331, 3108]]}
    assert frame["name"].isna().sum() == 777
    with pytest.warns(UserWarning, match="are left out"):
        frame = old.to_pandas(["name", "item"], on_corrupt="skip")
    assert frame.attrs["blz:missing_rows"] == [[2331, 3108], [15_000, 15_300]]
    with pytest.warns(UserWarning, match="left out"):
        scanned = old.dataset(on_corrupt="skip").to_table(columns=["name"])
    assert scanned.num_rows == ROWS - 777


@pytest.mark.usefixtures("_cut")
@pytest.mark.parametrize("name", LOST)
def test_rows_beside_a_lost_chunk_are_taken(damaged, name):
    old, new = damaged
    _, (start, stop) = LOST[name]
    # Nearly all chunks are needed, or few.
    for step in (250, 9000):
        rows = np.arange(start % step, ROWS, step)
        rows = rows[(rows < start) | (rows >= stop)]
        assert_same(old.take(rows, [name]), new.take(rows, [name]))
    with pytest.raises(blz.CorruptError, match="the file is missing"):
        old.take([0, start, ROWS - 1], [name])
