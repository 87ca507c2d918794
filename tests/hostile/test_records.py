"""Records from an attacker: each field set to wrong values and resealed.

Whoever reads such a table gets an error of ours, or a valid table of the rows that the head says;
never a crash, a foreign error or memory for a claim. Without the seal, each flipped byte of a
version is refused.
"""

import random
import tracemalloc
from collections.abc import Callable
from copy import deepcopy

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.format import layout
from blztable.storage.memory import RamStore
from support import tamper
from support.copied_stores import copied, values
from support.record_edits import all_edits
from support.small_tables import FORMS, rows_of, store_of

# A table has a few kilobytes; what a reader takes must not follow a claim.
MOST_BYTES = 64 << 20
# Of the edits and bytes, a few in each run of the suite; a storm makes all.
FEW = 101
EVERY = pytest.param(1, marks=[pytest.mark.storm, pytest.mark.timeout(3600)])


def outcome(store: RamStore) -> pa.Table | None:
    """Return the rows of a table, which must be valid; None if an error of ours refuses it."""
    try:
        found = blz.read_table(store)
        found.validate(full=True)
    except blz.BlzError:
        return None
    return found


def is_intact(store: RamStore) -> bool:
    """True if verify, which reads also what no row needs, finds nothing."""
    try:
        with blz.open(store) as table:
            return bool(table.verify())
    except blz.BlzError:
        return False


def also_in_other_ways(store: RamStore) -> None:
    """Read rows, filter, and verify; errors of ours are welcome."""
    ways: list[Callable[[blz.CTable], object]] = [
        lambda table: table.verify(),
        lambda table: table.take([0, 5]),
        lambda table: table.describe(),
        lambda table: [info.number for info in table.versions()],
        lambda table: blz.read_table(store, filters=pc.field(table.columns[0]).is_null()),
    ]
    for way in ways:
        try:
            with blz.open(store) as table:
                way(table)
        except (blz.BlzError, ValueError):
            pass


@pytest.mark.parametrize("step", [FEW, EVERY])
@pytest.mark.parametrize("name", FORMS)
def test_each_field_of_a_resealed_record_is_refused_or_harmless(name, step):
    store, rows = store_of(name), rows_of(name).num_rows
    with tamper.editing(copied(store)) as table:
        edits = list(all_edits(table))
    assert len(edits) > 300
    edits = edits[random.Random(name).randrange(step) :: step]
    refused = 0
    tracemalloc.start()
    try:
        for number, (what, edit) in enumerate(edits):
            copy = copied(store)
            with tamper.editing(copy) as table:
                edit(table)
            tracemalloc.reset_peak()
            before = pa.total_allocated_bytes()
            found = outcome(copy)
            assert found is None or found.num_rows == rows, what
            refused += found is None
            if number % 7 == 0:
                also_in_other_ways(copy)
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES, what
            assert pa.total_allocated_bytes() - before < MOST_BYTES, what
    finally:
        tracemalloc.stop()
    assert refused > len(edits) / 4


@pytest.mark.parametrize("step", [FEW, EVERY])
@pytest.mark.parametrize("name", FORMS)
def test_no_flipped_byte_of_a_version_or_a_leaf_gives_other_rows(name, step):
    store, wanted = store_of(name), rows_of(name)
    with tamper.editing(copied(store)) as table:
        keys = [layout.leaf(leaf.number) for leaf in table.leaves if leaf.number]
    keys.append(max(values(store, layout.MANIFESTS)))
    unnoticed = []
    for key in keys:
        data = store.get(key)
        for at in range(random.Random(key).randrange(step), len(data), step):
            copy = copied(store)
            copy.put(key, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
            found = outcome(copy)
            assert found is None or found == wanted, (key, at)
            if found is not None and is_intact(copy):
                unnoticed.append((key, at))
    assert not unnoticed


HEADS = {
    "format": ["other", 1, None],
    "version": [0, 2, -1, 1 << 63, "1", True],
    "uuid": [1],
    "parent": [1, -1, "0"],
    "commit": [1],
    "time": ["2026-11-22", 5],
    "writer": [1],
    "operation": [5],
    "did": [[], {"a": "b"}, {"seconds": -1}],
    "durable": [1, None],
    "lasting": [9, -1],
    "changed": [9, -1],
    "rows": [0, 21, -1, 1 << 62, 20.0],
    "ids": [[], [0], [0, 0], "0", {}, [0] * 100],
    "next_column": [0, -1, 10**30],
    "next_file": [0, -1, 10**30],
    "properties": [[], None],
    "attributes": [[], None],
    "pandas": [[], 5],
    "commit_ids": [{}, [["a"]], [["a", -1]], [[1, 1]]],
    "history": [{}, [["a", 1]], [["2026-11-22T09:30:00.000000+00:00", -1]]],
    "requires": [["later"], "x", None, [5]],
    "metalayers": [[], {"9": {"fixed": {"a": "AA=="}}}],
    "tags": [[], {"a": 1}, {"1": 0}, {"a": -1}],
}


def test_every_key_of_the_head_is_tried():
    with tamper.editing(copied(store_of("numbers"))) as table:
        assert set(table.head) == set(HEADS)


@pytest.mark.parametrize("key", HEADS)
def test_a_key_of_the_head_that_is_wrong_or_missing_is_refused(key):
    store = store_of("numbers")
    for value in [*HEADS[key], "missing"]:
        copy = copied(store)
        with tamper.editing(copy) as table:
            if value == "missing":
                del table.head[key]
            else:
                table.head[key] = value
        assert outcome(copy) is None, (key, value)


@pytest.mark.parametrize(
    "head", [b"", b"[]", b"5", b"{", b"{}", b"null", b'{"format":"blztable"}', b"\xff"]
)
def test_a_head_that_is_no_object_of_a_version_is_refused(head):
    copy = copied(store_of("numbers"))
    with tamper.editing(copy) as table:
        table.head = head
    assert outcome(copy) is None


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"\xff" * 64,
        pa.schema({"n": pa.int64()}).serialize().to_pybytes(),
        pa.schema([(f"c{n}", pa.list_(pa.int8())) for n in range(8)]).serialize().to_pybytes(),
        pa.schema([(f"c{n}", pa.string()) for n in range(8)]).serialize().to_pybytes(),
    ],
    ids=range(5),
)
def test_another_schema_is_refused(schema):
    copy = copied(store_of("numbers"))
    with tamper.editing(copy) as table:
        table.schema = schema
    assert outcome(copy) is None


@pytest.mark.parametrize("section", range(3))
@pytest.mark.parametrize("name", ["offset", "size", "crc"])
@pytest.mark.parametrize("value", [0, 1, 8, 72, (1 << 32) - 1])
def test_a_section_that_lies_elsewhere_is_refused(section, name, value):
    store = store_of("numbers")
    copy = copied(store)
    with tamper.editing(copy) as table:
        table.sections[section] = {name: value}
    key = layout.manifest(1)
    is_same = copy.get(key) == store.get(key)
    assert is_same or outcome(copy) is None


def named_twice(store, *, is_bundled, across):
    """Make the last row group name the file of the first one, in column 1 or in all."""
    with tamper.editing(store) as table:
        groups = sum(len(leaf.groups) for leaf in table.leaves if leaf.level == 0)
        first, last = table.leaf(0), table.leaf(groups - 1)
        assert (first is not last) == across
        for column in (0, 1) if is_bundled else (1,):
            assert bool(first.groups["file"][0]) == is_bundled
            last.columns[column][-1] = deepcopy(first.columns[column][0])
        last.groups["file"][-1] = first.groups["file"][0]


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("is_bundled", [False, True])
def test_a_file_that_two_row_groups_name_is_refused_by_who_reads_both(is_bundled, across, tuned):
    """Otherwise a small file could fill any memory."""
    tuned(bundled_bytes=(64 << 10) * is_bundled, leaf_entries=4 if across else 32)
    store = RamStore()
    table = pa.table({"a": range(60), "b": [str(n) for n in range(60)]})
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=10))
    named_twice(store, is_bundled=is_bundled, across=across)
    for read in (
        lambda: blz.read_table(store),
        lambda: blz.read_blz(store, columns=["b"]),
        lambda: blz.read_table(store, filters="b >= '0'"),
        lambda: blz.open(store).take([0, 55]),
    ):
        with pytest.raises(blz.CorruptError, match="two row groups have the same file"):
            read()
    # Each of them can be read, and what names other files.
    with blz.open(store) as opened:
        assert opened.take(range(10)) == table[:10]
        assert opened.take(range(50, 60), columns=["b"]) == table.select(["b"])[:10]
    if not is_bundled:
        assert blz.read_table(store, columns=["a"]) == table.select(["a"])
    for full in (False, True):
        with blz.open(store) as opened:
            problems = opened.verify(full=full).problems
        found = [one for one in problems if "row group 0 has the same file" in one.message]
        assert found
        assert {(one.row_group, one.start, one.stop) for one in found} == {(5, 50, 60)}


def test_a_column_and_a_bundle_may_have_one_number(tuned):
    """Two writers at a time may give out the same number."""
    tuned(bundled_bytes=0)
    store = RamStore()
    blz.to_blz({"a": range(10), "b": range(10)}, store)
    with blz.open(store, "a") as table, table.transaction() as ours:
        ours.append({"a": range(10, 20), "b": range(10)})
        tuned(bundled_bytes=64 << 10)
        with blz.open(store, "a") as other:
            other.append({"a": range(20, 30), "b": range(10)})
    with blz.open(store) as table:
        version = table._snapshot.version
        numbers = [version.parts(line).files.tolist() for line in (0, 1)]
        assert version.bundles == (0, 3, 0)
        assert 3 in (numbers[0][2], numbers[1][2])
        assert table.verify()
        assert table.to_arrow()["a"].to_pylist() == [*range(10), *range(20, 30), *range(10, 20)]
