"""Filters on damaged tables: unneeded damage goes unnoticed, and skipped rows are reported.

Statistics are read before rows, so statistics that cannot be are damage too. `verify` finds false
statistics that have a valid checksum.
"""

import contextlib
import json
import random
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.query import expressions
from blztable.errors import CorruptError
from blztable.format.records import EXACT_BOUNDS
from blztable.storage.memory import RamStore
from support import arrow_strategies as own
from support import places, samples, tamper
from support.options import arguments
from support.stores import write

pytestmark = pytest.mark.usefixtures("own_files")

ROWS, GROUP, PAGE = 96, 32, 8
CUTS = {"row_group_rows": GROUP, "page_rows": PAGE}
FRAME = pd.DataFrame(
    {
        "key": np.arange(ROWS),
        "few": np.arange(ROWS) * 7 % 32,
        "t": [f"{r:02}" for r in range(ROWS)],
    },
    index=pd.RangeIndex(100, 100 + 2 * ROWS, 2, name="label"),
)
KEY, FEW, TEXT = range(3)


@pytest.fixture
def store():
    memory = RamStore("memory")
    blz.to_blz(FRAME, memory, **arguments(**CUTS))
    return memory


def damage(store, column, group, at=0):
    """Flip a bit of a chunk of a part."""
    places.flip(store, column, group, at)


def skipped(read):
    """Read with `on_corrupt="skip"`; return the data and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return read(on_corrupt="skip"), [str(one.message) for one in caught]


def check_a_skip(store, given_, columns, lost):
    """Check the rows of the other groups, with true labels, and the warnings about lost groups."""
    kept = expressions.mask(given_, {name: pa.chunked_array([FRAME[name]]) for name in FRAME}, ROWS)
    is_lost = np.isin(np.arange(ROWS) // GROUP, lost)
    wanted = FRAME[kept & ~is_lost][columns]
    missing = [[group * GROUP, (group + 1) * GROUP] for group in lost]
    for read in (blz.read_blz, lambda store, **o: blz.open(store).to_pandas(**o)):
        with pytest.raises(CorruptError):
            read(store, columns=columns, filters=given_)
        found, told = skipped(
            lambda read=read, **o: read(store, columns=columns, filters=given_, **o)
        )
        assert found.attrs.pop("blz:missing_rows") == missing
        pd.testing.assert_frame_equal(found, wanted, check_index_type="equiv")
        assert len(told) == len(lost)
    table, told = skipped(lambda **o: blz.read_table(store, columns=columns, filters=given_, **o))
    assert json.loads(table.schema.metadata[b"blz:missing_rows"]) == missing
    assert table.to_pydict() == wanted.to_dict("list")
    assert all("are left out" in message for message in told)


BOTH = (pc.field("few") < 9) & (pc.field("key") > 5)


@pytest.mark.parametrize("group", range(3))
@pytest.mark.parametrize("column", [FEW, TEXT])
@pytest.mark.parametrize("columns", [["t"], ["few", "t"]])
def test_a_damaged_row_group_is_left_out(store, group, column, columns):
    damage(store, column, group)
    check_a_skip(store, BOTH, columns, [group])


def test_row_groups_damaged_in_different_columns_are_left_out(store):
    damage(store, FEW, 0)
    damage(store, TEXT, 2)
    check_a_skip(store, BOTH, ["t"], [0, 2])


def test_all_row_groups_may_be_left_out(store):
    for group in range(3):
        damage(store, FEW, group)
    check_a_skip(store, BOTH, ["t"], [0, 1, 2])


def test_damage_that_is_not_touched_is_not_noticed():
    store = RamStore("memory")
    write(store, pa.Table.from_pandas(FRAME, preserve_index=False), **CUTS, chunk_bytes=64)
    damage(store, KEY, 1, at=0)  # Rows 32 to 40 of key.
    damage(store, FEW, 2, at=3)  # Rows 88 to 96 of few.
    damage(store, FEW, 0)  # A whole row group.
    whole = pa.Table.from_pandas(FRAME, preserve_index=False)
    with blz.open(store) as table:
        for given_, rows in (
            ([("key", ">", 41), ("key", "<", 44)], range(42, 44)),
            ([("key", ">=", 32), ("key", "<", 44)], range(32, 44)),
            ([("key", ">", 70), ("key", "<", 75)], range(71, 75)),
        ):
            assert table.to_arrow(["few"], filters=given_).equals(
                whole.select(["few"]).slice(rows[0], len(rows))
            )
            assert table.count(filters=given_) == len(rows)
        assert table.take([40, 87], columns=["key", "few"]).num_rows == 2
        assert table["few"][32:88].to_pylist() == FRAME["few"][32:88].tolist()
        for read in (
            lambda: table.to_arrow(["few"], filters=[("key", ">", 33), ("key", "<", 44)]),
            lambda: table.to_arrow(["few"], filters=[("key", ">", 90)]),
            lambda: list(table.to_batches(["few"], filters=[("key", "<", 3)])),
            lambda: table.count(filters=[("key", "==", 35)]),
            lambda: table.take([88]),
            lambda: table["key"][39],
            lambda: table["few"][::50],
        ):
            with pytest.raises(CorruptError):
                read()


def test_damage_elsewhere_is_no_warning(store):
    damage(store, TEXT, 2)
    damage(store, KEY, 0)
    found, told = skipped(lambda **o: blz.read_blz(store, filters=[("key", "==", 40)], **o))
    assert told == []
    assert found.index.tolist() == [180]
    assert "blz:missing_rows" not in found.attrs


def test_records_that_only_the_filter_needs_leave_nothing_to_skip(store):
    with tamper.editing(store) as table:
        table.part(FEW, 0).record["page"] = 99
    # Statistics cannot decide a sum.
    given_ = pc.field("few") + 0 < 9
    with pytest.raises(CorruptError, match="rows of a page"):
        blz.read_blz(store, columns=["t"], filters=given_, on_corrupt="skip")


def test_progress_ends_with_all_rows_where_some_are_left_out(store):
    damage(store, FEW, 1)
    calls = []
    skipped(
        lambda **o: blz.read_blz(
            store, filters=BOTH, progress=lambda *told: calls.append(told), **o
        )
    )
    assert calls[-1] == (ROWS, ROWS)
    assert calls == sorted(calls)


def set_pages(table, name, value):
    for group in range(ROWS // GROUP):
        table.part(KEY, group).pages[name] = value


def leave_out_a_page(table):
    part = table.part(KEY, 1)
    part.pages = part.pages[1:]


LIES = {
    "more nulls than rows": lambda t: set_pages(t, "nulls", PAGE + 1),
    "more NaNs than rows": lambda t: set_pages(t, "nans", PAGE + 1),
    "more nulls and NaNs": lambda t: (set_pages(t, "nulls", 5), set_pages(t, "nans", 5)),
    "too few pages": leave_out_a_page,
}
READS = {
    "read": lambda store, given_: blz.read_table(store, columns=[], filters=given_),
    "batches": lambda store, given_: list(blz.open(store).to_batches(filters=given_)),
    "count": lambda store, given_: blz.open(store).count(filters=given_),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_statistics_that_cannot_be_are_damage(store, read, lie):
    with tamper.editing(store) as table:
        lie(table)
    with pytest.raises(CorruptError, match=r"of a (page|part)"):
        read(store, [("key", "==", 7)])
    # Statistics of a column that the filter does not use are not read.
    assert blz.open(store).count(filters=[("few", "==", 7)]) == 3


TYPES = [
    pa.bool_(),
    *own.INTEGERS,
    *own.FLOATS,
    *own.DECIMALS,
    *own.TIMES,
    *own.TEXTS,
    *samples.DICTIONARIES,
]


WORDS = [-(1 << 63), (1 << 63) - 1, 0, 1, -1, 1 << 32, -(1 << 40), *range(100, 1 << 60, 1 << 55)]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(TYPES), st.integers(0, 2**40))
def test_whatever_words_are_bounds_a_filter_is_evaluated_or_they_are_damage(type_, seed):
    drawn = random.Random(seed)
    store = RamStore("memory")
    whole = pa.table({"a": samples.array(type_, 40)})
    write(store, whole, row_group_rows=24, page_rows=8)
    with tamper.editing(store) as table:
        for group in drawn.choice([(), (0,), (0, 1)]):
            part = table.part(0, group)
            for name in drawn.choice([("min",), ("max",), ("min", "max")]):
                words = drawn.choices(WORDS, k=len(part.pages))
                part.pages[name] = words
            part.record["flags"] ^= drawn.choice([0, EXACT_BOUNDS])
    values = expressions.comparable(whole["a"])
    literal = values[drawn.randrange(40)]
    for given_ in (
        pc.field("a") == literal,
        pc.field("a") < literal,
        pc.field("a").isin([literal]),
        pc.field("a").is_null(),
    ):
        for read in [*READS.values(), lambda store, given_: blz.read_table(store, filters=given_)]:
            with contextlib.suppress(CorruptError):
                read(store, given_)
