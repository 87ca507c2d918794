"""Changes of rows work one row group at a time, with little memory."""

import gc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.change.rows import Condition, RowMask
from blztable.engine.change.update import evaluated
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.parts import OpenParts
from blztable.engine.version.staged import StagedVersion
from blztable.storage.memory import RamStore
from support.stores import Hooked


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_a_selection_gives_back_its_rows(rows):
    selected = RowMask.of(np.array(rows))
    mask = selected.unpacked()
    assert (selected.rows, selected.count, selected.is_all) == (len(rows), sum(rows), all(rows))
    assert (mask is None) == (all(rows) or not any(rows))
    if mask is not None:
        assert mask.dtype == np.bool_
        assert mask.tolist() == rows
    others = selected.others()
    assert (others.rows, others.count) == (len(rows), len(rows) - sum(rows))
    assert (others.unpacked() is None) == (mask is None)
    if mask is not None:
        assert others.unpacked().tolist() == (~mask).tolist()


def test_a_selection_takes_a_bit_a_row_and_nothing_for_all_or_none():
    assert RowMask.of(np.arange(8000) % 3 == 0).bits.nbytes == 1000
    assert RowMask.of(np.ones(8000, np.bool_)).bits is None
    assert RowMask.of(np.zeros(8000, np.bool_)).bits is None
    assert RowMask(1 << 61, 5).bits is None


@pytest.mark.parametrize(
    "step",
    [
        # Statistics cannot decide a sum.
        lambda opened: Condition(opened, pc.field("n") + 1 > 3).rows,
        lambda opened: lambda group: evaluated(opened, pc.field("n") + 1, group),
    ],
    ids=["condition", "expression"],
)
def test_parts_of_row_groups_that_are_done_are_forgotten(step):
    store = RamStore()
    blz.to_blz(
        pa.table({"n": range(20)}),
        store,
        storage=blz.Storage(row_group_rows=2),
        durability="process",
    )
    with blz.open(store) as table:
        opened = OpenColumns.whole(StagedVersion.of(table._snapshot.version))
        of_group = step(opened)
        for group in range(10):
            of_group(group)
            assert set(opened.parts._parts) == {(0, group)}


GROUPS = 40
CHANGES = {
    "update": lambda t: t.update({"n": pc.field("n") + 1}, pc.field("n") > 500),
    "update by values": lambda t: t.update({"n": 0}, pc.field("n") > 500),
    "update of all": lambda t: t.update({"n": 0}),
    "delete": lambda t: t.delete(pc.field("n") > 500),
    "add_column": lambda t: t.add_column("m", pc.field("n") + 1),
    "widen": lambda t: t.append(pa.table({"n": pa.array([0.5])}), evolve=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_keeps_the_parts_of_all_row_groups(change):
    puts, most = [], []

    def count(name, _):
        if name != "put_new":
            return
        puts.append(name)
        if len(puts) % (GROUPS // 4) == 0:
            found = [o for o in gc.get_objects() if isinstance(o, OpenParts)]
            most.append(max((len(list(opened._parts)) for opened in found), default=0))

    store = RamStore()
    # So many rows that only a few row groups are written at a time.
    rows = pa.array(np.arange(GROUPS * 10_000) % 1000, pa.int32())
    blz.to_blz(
        pa.table({"n": rows}),
        store,
        storage=blz.Storage(row_group_rows=10_000),
        durability="process",
    )
    with blz.open(Hooked(store, before=count), "a", durability="process") as table:
        CHANGES[change](table)
    assert len(most) >= 4
    assert max(most) < GROUPS // 2
