"""Trees of leaves against a list of row groups, for changes of all kinds in any order."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable import tuning
from blztable.engine.version import versions
from blztable.engine.version.facts import LEAF_BYTES, Facts, Leaves, Run
from blztable.engine.version.named_files import named, only
from blztable.engine.version.staged import CHANGED, NewGroups, StagedColumn, StagedVersion
from blztable.errors import CorruptError, LimitError
from blztable.format import deletions, layout
from blztable.format.bounds import summary
from blztable.format.leaf import Leaf
from blztable.format.manifest import Head
from blztable.format.records import PAGE, PART, WORD, Records
from blztable.format.version_file import Tail, encode_version
from blztable.storage.memory import RamStore
from support.stores import changed_by

TIME = "2026-11-27T16:00:00.000000+00:00"


@dataclass(frozen=True)
class Group:
    """A row group of the model: its rows, bundle, deleted rows, version, and file of each node."""

    stored: int
    bundle: int
    deleted: tuple[int, ...]
    changed: int
    files: tuple[int, ...]


def records(rows, files):
    """Return the parts of one node, whose bounds are the numbers of its files."""
    parts, pages = np.zeros(len(rows), PART), np.zeros(len(rows), PAGE)
    parts["rows"], parts["page"], parts["pages"], parts["file"] = rows, 30, 1, files
    parts["nbytes"] = np.array(rows) * 8
    parts["offset"], parts["cbytes"] = 100, 10
    pages["min"] = pages["max"] = files
    return Records(1, len(rows), parts, pages=pages)


class Table:
    """A version and its model, side by side; each change is made to both."""

    def __init__(self, columns):
        self.store = RamStore("facts")
        self.number = 0
        self.next_file = 1
        self.ids = columns
        paths = tuple((n,) for n in range(columns))
        head = Head(uuid="u", time=TIME, paths=paths, next_column=columns)
        self.staged = StagedVersion.of_tail(self.store, head, self.schema(paths), empty(columns))
        self.model = []

    @staticmethod
    def schema(paths):
        return pa.schema([(str(path[0]), pa.int64()) for path in paths])

    def files(self, count):
        first, self.next_file = self.next_file, self.next_file + count
        return list(range(first, first + count))

    def new(self, rows, is_bundled):
        """Return new row groups as a change has them, and as the model has them."""
        columns = len(self.staged.paths)
        bundles = self.files(len(rows)) if is_bundled else [0] * len(rows)
        files = [bundles if is_bundled else self.files(len(rows)) for _ in range(columns)]
        written = [
            StagedColumn(path, records(rows, of))
            for path, of in zip(self.staged.paths, files, strict=True)
        ]
        groups = [
            Group(*one, (), CHANGED, of)
            for *one, of in zip(rows, bundles, zip(*files, strict=True), strict=True)
        ]
        return NewGroups(rows, bundles), written, groups

    def append(self, rows, is_bundled=False):
        new, written, groups = self.new(rows, is_bundled)
        self.staged = self.staged.with_row_groups(None, new, written)
        self.model = self.model + groups

    def arrange(self, order, rows):
        new, written, groups = self.new(rows, False)
        both = self.model + groups
        self.staged = self.staged.with_row_groups(order, new, written)
        self.model = [both[one] for one in order]

    def delete(self, chosen):
        for group, gone in chosen.items():
            self.model[group] = replace(self.model[group], deleted=gone)
        packed = {group: deletions.pack(np.array(gone)) for group, gone in chosen.items()}
        self.staged = self.staged.with_deleted(packed)

    def update(self, line, groups):
        files = self.files(len(groups))
        rows = [self.model[group].stored for group in groups]
        column = StagedColumn(self.staged.paths[line], records(rows, files))
        self.staged = self.staged.with_parts({line: column}, groups)
        for group, file in zip(groups, files, strict=True):
            old = self.model[group]
            new = (*old.files[:line], file, *old.files[line + 1 :])
            bundle = old.bundle if old.bundle in new else 0
            self.model[group] = replace(old, files=new, bundle=bundle, changed=CHANGED)

    def add_column(self, place):
        files = self.files(len(self.model))
        path = (self.ids,)
        self.ids += 1
        column = StagedColumn(path, records([one.stored for one in self.model], files))
        columns = [*self.staged.columns[:place], column, *self.staged.columns[place:]]
        self.select(columns)
        self.model = [
            replace(one, files=(*one.files[:place], file, *one.files[place:]))
            for one, file in zip(self.model, files, strict=True)
        ]

    def keep_columns(self, lines):
        self.select([self.staged.columns[line] for line in lines])
        for group, one in enumerate(self.model):
            files = tuple(one.files[line] for line in lines)
            bundle = one.bundle if one.bundle in files else 0
            self.model[group] = replace(one, files=files, bundle=bundle)

    def select(self, columns):
        schema = self.schema([column.path for column in columns])
        self.staged = self.staged.with_columns(columns, schema=schema, next_column=self.ids)

    def commit(self):
        """Publish the staged version as a commit does; return the version as a reader reads it."""
        self.number += 1

        def put(leaf):
            (number,) = self.files(1)
            self.store.put_new(layout.leaf(number), [leaf.data])
            return number

        tails = self.staged.packed(self.number, put)
        head = replace(
            self.staged.head,
            version=self.number,
            next_file=self.next_file,
            requires=self.staged.features,
        )
        leaves = [tail.encoded() for tail in tails]
        data = encode_version(head.to_json(), self.staged.schema_bytes, leaves)
        self.store.publish(layout.manifest(self.number), data, durable=False)
        version = versions.read(self.store, self.number)
        self.staged = StagedVersion.of(version)
        self.model = [
            replace(one, changed=self.number) if one.changed == CHANGED else one
            for one in self.model
        ]
        return version

    def check(self, version):
        """Compare a version with the model, all of it and some row groups."""
        model, lines = self.model, range(len(version.paths))
        gone = [np.array(one.deleted, np.int64) for one in model]
        assert version.group_count == len(model)
        assert version.stored_rows == tuple(one.stored for one in model)
        live = [one.stored - len(one.deleted) for one in model]
        assert version.row_groups == tuple(live)
        assert version.head.rows == sum(live)
        assert version.bundles == tuple(one.bundle for one in model)
        assert version.all_deleted == tuple(map(deletions.pack, gone))
        assert version.deleted_rows == sum(map(len, gone))
        assert changed_by(version) == [one.changed for one in model]
        assert list(version.rows_backwards()) == live[::-1]
        for line in lines:
            assert version.parts(line).files.tolist() == [one.files[line] for one in model]
            assert version.nbytes(line) == 8 * sum(one.stored for one in model)
            assert version.cbytes(line) == 10 * len(model)
        some = np.arange(0, len(model), 3)
        found = version.records(lines, some)
        assert found.parts["file"].reshape(len(lines), -1).T.tolist() == [
            list(model[group].files) for group in some
        ]
        assert version.group_records(some)["stored"].tolist() == [
            model[group].stored for group in some
        ]
        before = np.cumsum([0, *live])
        assert version.first_rows(some).tolist() == before[some].tolist()
        rows = np.arange(0, before[-1], 7)
        groups, firsts = version.located(rows)
        assert groups.tolist() == (before.searchsorted(rows, "right") - 1).tolist()
        assert firsts.tolist() == before[groups].tolist()
        for wanted in ([], some[:1].tolist(), [*range(len(model))]):
            deleted = version.deleted_in(iter(wanted))
            assert [deleted[one] if deleted else b"" for one in wanted] == [
                deletions.pack(gone[one]) for one in wanted
            ]
        every = [*version.pruned(lines, lambda records: np.ones(records.entries, bool))]
        assert groups_of(every) == list(range(len(model)))
        assert [rows for _, rows, _ in every] == [int(before[first]) for first, *_ in every]
        runs = [run for *_, run in every]
        assert version.records_of(lines, runs).arrays[0].tolist() == (
            version.records(lines).arrays[0].tolist()
        )


def groups_of(found):
    """Return the numbers of the row groups of runs that were found."""
    return [first + place for first, _, run in found for place in range(len(run))]


def empty(columns):
    return Tail.empty(columns)


GROUP_ROWS = st.lists(st.integers(1, 50), min_size=1, max_size=9)


@st.composite
def steps(draw, table):
    """Make one change that the table allows."""
    count, columns = len(table.model), len(table.staged.paths)
    kinds = ["append", "append", "commit", "arrange", "delete", "update", "add", "keep"]
    kind = draw(st.sampled_from(kinds if count else kinds[:3]))
    some = st.sets(st.integers(0, count - 1), min_size=1, max_size=4) if count else st.nothing()
    match kind:
        case "append":
            table.append(draw(GROUP_ROWS), draw(st.booleans()))
        case "commit":
            table.commit()
        case "arrange":
            gone = draw(some)
            rows = draw(st.lists(st.integers(1, 50), max_size=3))
            order = [one for one in range(count) if one not in gone]
            place = draw(st.integers(0, len(order)))
            order[place:place] = range(count, count + len(rows))
            table.arrange(draw(st.sampled_from([order, np.array(order, np.int64)])), rows)
        case "delete":
            chosen = {}
            for group in draw(some):
                stored = table.model[group].stored
                gone = draw(st.sets(st.integers(0, stored - 1), max_size=max(stored - 1, 0)))
                chosen[group] = tuple(sorted(gone))
            table.delete(chosen)
        case "update":
            groups = draw(st.permutations(sorted(draw(some))))
            table.update(draw(st.integers(0, columns - 1)), groups)
        case "add":
            table.add_column(draw(st.integers(0, columns)))
        case "keep" if columns > 1:
            lines = draw(st.permutations(range(columns)))
            table.keep_columns(lines[: draw(st.integers(1, columns))])


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(2, 5))
def test_a_tree_has_the_row_groups_of_a_list_whatever_changes_them(data, entries):
    with tuning.tuned(leaf_entries=entries, leaf_few=2):
        table = Table(2)
        for _ in range(data.draw(st.integers(1, 25))):
            data.draw(steps(table))
            table.check(table.staged)
        version = table.commit()
        table.check(version)
        table.check(table.staged)
        # Above level 0, rows of a higher level come first.
        levels = [run.level for run in version.facts.runs]
        assert levels == sorted(set(levels), reverse=True)
        assert all(len(run) <= entries for run in version.facts.runs)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_the_files_that_only_one_of_two_versions_names_are_found_without_their_common_leaves(data):
    with tuning.tuned(leaf_entries=3, leaf_few=2):
        table = Table(2)
        made = []
        for _ in range(data.draw(st.integers(2, 5))):
            for _ in range(data.draw(st.integers(1, 5))):
                data.draw(steps(table))
            made.append(table.commit())
        for one in made:
            for other in made:
                whole, theirs = named(one), named(other)
                found = only(one, other)
                assert found == {key: whole[key] for key in whole.keys() - theirs.keys()}
                least = min((file.number for file in found.values()), default=0)
                again = named(one, set(), least)
                assert {key for key in whole if whole[key].number >= least} <= again.keys()


def many(count, columns=16):
    """Return a table of so many committed row groups, each appended to the leaves before."""
    table = Table(columns)
    table.append([1000] * count)
    table.commit()
    return table


class Counted(RamStore):
    """A store that notes which keys are read, and the bytes that are written."""

    read: list
    written = 0

    def get(self, key, offset=0, length=None):
        self.read.append(key)
        return super().get(key, offset, length)

    def put_new(self, key, buffers):
        self.written += sum(map(len, buffers))
        super().put_new(key, buffers)


def counted(table):
    store = Counted("facts")
    for key in named(table.staged):
        if key.startswith(layout.LEAVES):
            store.put_new(key, [table.store.get(key)])
    store.publish(layout.manifest(1), table.store.get(layout.manifest(1)), durable=False)
    store.read, store.written = [], 0
    table.store = store
    table.staged = StagedVersion.of(versions.read(store, 1))
    return store


@pytest.mark.parametrize("count", [100, 10_000])
def test_an_append_reads_the_manifest_alone_and_writes_little(count):
    table = many(count)
    store = counted(table)
    written = []
    for _ in range(40):
        store.read.clear()
        before = store.written
        table.append([1000])
        table.commit()
        assert set(store.read) <= {layout.manifest(n) for n in range(1, 100)}
        written.append(store.written - before)
    assert np.mean(written) < 80_000
    assert max(written) < 150_000


def test_an_update_of_one_row_group_writes_one_leaf_a_level():
    table = many(3000)
    store = counted(table)
    table.update(3, [1234])
    table.commit()
    leaves = [key for key in store.read if key.startswith(layout.LEAVES)]
    assert len(leaves) == 2
    assert [run.level for run in table.staged.facts.runs] == [2, 1, 0]
    new = only(versions.read(store, 2), versions.read(store, 1))
    assert sum(key.startswith(layout.LEAVES) for key in new) == 2
    table.check(table.staged)


def test_a_row_group_of_many_is_read_with_the_leaves_above_it_alone():
    table = many(3000)
    store = counted(table)
    found = table.staged.records([5], [1234])
    assert found.parts["file"].tolist() == [table.model[1234].files[5]]
    assert len(store.read) == 3
    # Once they are read, they are kept.
    table.staged.records([6], [1235])
    assert len(store.read) == 3


def test_leaves_that_are_pruned_are_not_read():
    table = many(3000)
    store = counted(table)
    wanted = table.model[77].files[5]

    def keep(records):
        return (records.pages["min"] <= wanted) & (records.pages["max"] >= wanted)

    assert groups_of(table.staged.pruned([5], keep)) == [*range(64, 96), *range(2976, 3000)]
    assert len(store.read) == 3
    every = table.staged.pruned([], lambda records: np.ones(records.entries, bool))
    assert groups_of(every) == [*range(3000)]


def replaced(data, **fields):
    """Return the entries of a leaf of leaves whose groups have other fields."""
    groups = data.groups.copy()
    for name, value in fields.items():
        groups[name] = value
    return groups


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crc": 1}, "not the one that the level above names"),
        ({"size": 200}, "not the one that the level above names"),
        ({"rows": 7, "stored": 7}, "other rows than the level above says"),
        ({"groups": 7}, "other rows than the level above says"),
    ],
)
def test_a_leaf_that_is_not_the_one_above_it_is_refused(fields, message):
    table = many(40)
    (above, _) = table.staged.facts.runs
    entry = replaced(above, **fields)[0]
    leaves = Leaves(table.store)
    with pytest.raises(CorruptError, match=message):
        leaves.open(1, 16, entry)
    # Also where the leaf is known.
    leaves.open(1, 16, above.groups[0])
    with pytest.raises(CorruptError, match=message):
        leaves.open(1, 16, entry)


def test_a_leaf_of_another_level_or_other_columns_is_refused():
    table = many(40)
    entry = table.staged.facts.runs[0].groups[0]
    for level, columns in ((2, 16), (1, 15)):
        with pytest.raises(CorruptError, match="a leaf of level 0 and 16 columns; expected level"):
            Leaves(table.store).open(level, columns, entry)


def test_a_leaf_that_is_gone_or_damaged_is_named():
    table = many(40)
    key = layout.leaf(int(table.staged.facts.runs[0].groups["file"][0]))
    data = bytearray(table.store.get(key))
    table.store.delete([key])
    with pytest.raises(CorruptError, match=f"{key}: the leaf is missing"):
        _ = versions.read(table.store, 1).row_groups
    leaf = Leaf(bytes(data))
    data[int(leaf.index["offset"][3])] ^= 1
    table.store.put_new(key, [bytes(data)])
    version = versions.read(table.store, 1)
    assert version.parts(5).rows == [1000] * 40
    with pytest.raises(CorruptError, match=f"{key}: a leaf: the crc32 of column 2"):
        version.parts(2)


def test_a_column_of_other_rows_than_the_table_is_refused():
    table = Table(2)
    table.append([5, 6])
    wrong = StagedColumn((0,), records([5, 7], [1, 2]))
    table.staged = table.staged.with_parts({0: wrong}, [0, 1])
    version = table.commit()
    assert version.parts(1).rows == [5, 6]
    with pytest.raises(CorruptError, match="the rows of a column differ from the table's"):
        version.parts(0)


def test_row_groups_changed_since_a_version_are_found_in_leaves_that_changed_alone():
    table = many(3000)
    table.update(0, [5])
    table.commit()
    table.append([8])
    table.commit()
    table.arrange([*range(3001)], [])
    table.delete({1000: (1,)})
    version = table.commit()
    again = StagedVersion.of(versions.read(table.store, version.head.version))
    assert again.changed_after(1) == [5, 3000]
    assert again.changed_after(2) == [3000]
    assert again.changed_after(3) == []
    assert len(again.changed_after(0)) == 3001
    restored = again.with_head(changed=4)
    assert len(restored.changed_after(3)) == 3001
    assert restored.changed_after(4) == []
    assert set(changed_by(restored)) == {4}


def test_a_leaf_whose_number_another_commit_took_is_read_again():
    ours, theirs = many(40), many(41)
    (above, _), (other, _) = ours.staged.facts.runs, theirs.staged.facts.runs
    number = int(other.groups["file"][0])
    leaves = Leaves(theirs.store)
    # Ours was written first, and its commit did not land.
    leaves.keep(number, Leaf(ours.store.get(layout.leaf(int(above.groups["file"][0])))))
    assert leaves.open(1, 16, other.groups[0]).groups["rows"].tolist() == [1000] * 32
    # It is found among those that are kept from then on.
    theirs.store.delete([layout.leaf(number)])
    assert len(leaves.open(1, 16, other.groups[0])) == 32


def test_leaves_that_are_named_many_times_take_no_memory():
    table = many(32)
    (above,) = table.staged.facts.runs
    store, leaf = table.store, Leaf(above.encoded())
    # Each level names the leaf below it 1,000 times.
    for number in (900_001, 900_002):
        records = leaf.records().of(range(16), [0] * 1000)
        one = Tail(np.repeat(leaf.groups[:1], 1000), leaf.deleted, records)
        data = one.encode(leaf.level)
        store.put_new(layout.leaf(number), [data])
        groups, records = summary(Leaf(data), number, table.staged.orders())
        leaf = Leaf(Tail(groups, np.zeros(0, WORD), records).encode(leaf.level + 1))
    tails = [empty(16).encode(level) for level in range(leaf.level)]
    head = replace(table.staged.head, rows=int(leaf.groups["rows"][0]))
    data = encode_version(head.to_json(), table.staged.schema_bytes, [*tails, bytes(leaf.data)])
    with pytest.raises(LimitError, match="32000000 row groups"):
        versions.decode(store, "key", data)
    version = Facts(Leaves(store), [Run.of_leaf(leaf, "")], 16)
    ways = [
        lambda: version.groups,
        lambda: version.changed_after(-1),
        lambda: [*version.backwards()],
        lambda: [*version.pruned([0], lambda some: np.ones(some.entries, bool))],
    ]
    for way in ways:
        with pytest.raises(CorruptError, match="is named twice"):
            way()


def test_a_table_keeps_some_of_its_leaves(tuned):
    table = many(3000)
    leaves = [key for key in named(table.staged) if key.startswith(layout.LEAVES)]
    sizes = [len(table.store.get(key)) for key in leaves]
    most = 10 * (max(sizes) + LEAF_BYTES)
    tuned(kept_bytes=most)
    store = counted(table)
    facts = table.staged.facts
    assert len(facts.groups) == 3000
    assert 0 < facts.leaves._read.nbytes <= most
    assert len(store.read) == 1 + len(leaves)
    table.check(table.staged)
    # Those that a commit has just written stay, too.
    leaf = Leaf(store.get(leaves[0]))
    for number in range(10**6, 10**6 + 100):
        facts.leaves.keep(number, leaf)
    assert 10**6 + 99 in facts.leaves._read
    assert facts.leaves._read.nbytes <= most


def leaf_numbers(version):
    """Return the numbers of the leaves of a version, by level."""
    found = {}
    waiting = [run for run in version.facts.runs if run.level]
    while waiting:
        run = waiting.pop()
        found.setdefault(run.level - 1, []).extend(run.groups["file"].tolist())
        if run.level > 1:
            waiting += [version.facts.below(run, entry) for entry in range(len(run))]
    return found


def test_leaves_that_lose_their_row_groups_are_joined(tuned):
    tuned(leaf_entries=8)
    table = many(400, columns=2)
    # One of eight stays, so each leaf would have one.
    left = list(range(400))
    removed = [one for one in np.random.default_rng(0).permutation(400).tolist() if one % 8]
    for gone in removed:
        table.arrange([place for place, one in enumerate(left) if one != gone], [])
        left.remove(gone)
        version = table.commit()
        leaves = leaf_numbers(version)
        assert len(leaves.get(0, ())) <= 4 * -(-len(left) // 8)
        assert len(leaves.get(1, ())) <= 4 * -(-len(left) // 64)
    table.check(version)


def test_a_damaged_leaf_beside_one_that_loses_row_groups_stays(tuned):
    tuned(leaf_entries=8)
    for how in ("lost", "changed"):
        table = many(64, columns=2)
        version = table.staged.base
        assert [len(one) for one in leaf_numbers(version).values()] == [1, 8]
        number = leaf_numbers(version)[0][3]
        data = bytearray(table.store.get(layout.leaf(number)))
        table.store.delete([layout.leaf(number)])
        if how == "changed":
            data[int(Leaf(bytes(data)).index["offset"][2])] ^= 1
            table.store.put_new(layout.leaf(number), [bytes(data)])
        table.staged = StagedVersion.of(versions.read(table.store, 1))
        # The fifth leaf keeps one row group.
        table.arrange([*range(33), *range(40, 64)], [])
        version = table.commit()
        assert number in leaf_numbers(version)[0]
        assert version.group_count == 57
        found = version.records([0, 1], [0, 32, 56]).parts["file"].reshape(2, 3)
        assert found.T.tolist() == [list(table.model[group].files) for group in (0, 32, 56)]
