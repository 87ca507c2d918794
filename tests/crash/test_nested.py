"""Every change of a table with nested columns, stopped at every storage operation.

As in `test_changes`: the old version or the new one, each with all nodes of its columns.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from support.crash.checks import (
    RETURNED,
    Commit,
    Held,
    broken_promise,
    broken_promises,
    changing,
    recorded,
)
from support.crash.model import killed_state

TYPE = pa.list_(pa.string())
INT = pa.int32()


def rows(n, x):
    return pa.table({"n": pa.array(n, INT), "x": pa.array(x, TYPE)})


FIRST = rows([3, 1], [["p", None], None])
# Its lists have no items, so the children have no rows.
SECOND = rows([None, 2], [[], None])
BOTH = pa.concat_tables([FIRST, SECOND])
MORE = rows([5], [["", None]])
OTHER = pa.array([{"y": n} for n in range(4)])


def two_row_groups(path):
    """Make a table: version 1 has one row group, version 2 has two."""
    blz.to_blz(FIRST, path)
    with blz.open(path, mode="a") as table:
        table.append(SECOND)


def several(table):
    with table.transaction() as tx:
        tx.append(MORE)
        tx.update({"x": MORE["x"][0]}, where=pc.field("n") == 2)
        tx.delete(pc.field("n") == 1)
        tx.rename_columns({"x": "y"})


def fields(table):
    with table.transaction() as tx:
        tx.add_column("o", OTHER)
        tx.add_column("o.z", [1, 2, 3, 4])
        tx.rename_columns({"o.y": "w"})


LARGE = pa.large_list(pa.large_string())
CHANGES = {
    "append": (lambda t: t.append(MORE), pa.concat_tables([BOTH, MORE])),
    "update": (
        lambda t: t.update({"x": None}, where=pc.field("n") == 3),
        BOTH.set_column(1, "x", pa.array([None, None, [], None], TYPE)),
    ),
    "delete": (lambda t: t.delete(pc.field("n") == 1), BOTH.take([0, 2, 3])),
    "resize": (lambda t: t.resize(5), pa.concat_tables([BOTH, rows([None], [None])])),
    "add_column": (lambda t: t.add_column("o", OTHER), BOTH.append_column("o", OTHER)),
    "alter_column": (
        lambda t: t.alter_column("x", dtype=LARGE),
        BOTH.set_column(1, "x", pa.array(BOTH["x"].to_pylist(), LARGE)),
    ),
    "fields": (
        fields,
        BOTH.append_column("o", pa.array([{"w": n, "z": n + 1} for n in range(4)])),
    ),
    "drop_columns": (lambda t: t.drop_columns(["x"]), BOTH.drop_columns(["x"])),
    "rename_columns": (lambda t: t.rename_columns({"x": "y"}), BOTH.rename_columns(["n", "y"])),
    "compact": (lambda t: t.compact(), BOTH),
    "restore": (lambda t: t.restore(1), FIRST),
    "transaction": (
        several,
        rows(
            [3, None, 2, 5],
            [FIRST["x"][0].as_py(), [], *MORE["x"].to_pylist() * 2],
        ).rename_columns(["n", "y"]),
    ),
}


def commit(name, durability="full"):
    change, table = CHANGES[name]
    return Commit(two_row_groups, changing(change, durability), {3: Held(table, {})})


# A transaction writes many files, and power may have kept any of them.
LONG = pytest.param("transaction", marks=[pytest.mark.storm, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("name", [*sorted({*CHANGES} - {"transaction"}), LONG])
@pytest.mark.usefixtures("own_files_here")
def test_power_lost_anywhere_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name))
    assert recording.before.keys() == {1, 2}
    assert not list(broken_promises(tmp_path, recording, all_of_it=False))


@pytest.mark.parametrize("name", CHANGES)
def test_a_process_killed_anywhere_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name, "process"))
    for stop in range(len(recording.log) + 1):
        state = killed_state(recording.log, stop)
        returned = RETURNED in recording.log.marked(stop)
        broken = broken_promise(state, tmp_path / "state", recording, returned=returned)
        assert broken is None, state.story
