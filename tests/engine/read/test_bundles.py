"""Bundles: parts of a row group that share a file are read like parts with files of their own."""

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.read import open_files
from blztable.engine.read.columns import read_columns
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.versions import pin
from blztable.format import layout, manifest
from blztable.storage.memory import MemoryStore
from support import tamper
from support.stores import Hooked, bundle, read, write

WORDS = pa.array([None if n % 7 == 0 else f"word {n % 13}" * (n % 5) for n in range(300)])
TABLE = pa.table(
    {"n": pa.array(range(300)), "s": WORDS, "d": WORDS.dictionary_encode(), "z": pa.nulls(300)}
)
BUNDLE = layout.part(layout.SHARED, 1)


@pytest.fixture
def store():
    store = MemoryStore()
    write(store, TABLE, page_rows=64, row_group_rows=128, encoding="plain")
    bundle(store)
    return store


def files(store):
    return {key for key in store._entries if key.endswith(".bin")}


def test_a_table_of_bundles_is_read_and_intact(store):
    assert files(store) == {layout.part(layout.SHARED, k) for k in (1, 2, 3)}
    with blz.open(store) as table:
        assert table.to_arrow() == TABLE
        assert table.to_arrow(filters=[("n", ">=", 250)]) == TABLE.slice(250)
        assert table.take([5, 299]).num_rows == 2
        report = table.verify()
    assert report.is_intact, report.problems
    assert report.files == 3


@pytest.mark.parametrize("columns", [[0], [1, 2], []])
def test_some_parts_of_a_row_group_may_have_files_of_their_own(columns):
    store = MemoryStore()
    write(store, TABLE, page_rows=64, row_group_rows=128, encoding="plain")
    bundle(store, groups=[0, 2], columns=columns)
    with blz.open(store) as table:
        assert table.to_arrow() == TABLE
        assert table.verify().is_intact


def test_a_program_that_does_not_know_bundles_refuses_the_table_by_name(store, monkeypatch):
    monkeypatch.setattr(manifest, "KNOWN_FEATURES", frozenset())
    with pytest.raises(blz.FormatError, match=r"requires \['bundles'\].*upgrade"):
        blz.read_table(store)


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_a_small_bundle_is_read_once_and_a_large_one_opened_once(store, most, monkeypatch):
    monkeypatch.setattr(open_files, "SMALL_BUNDLE", most)
    opened = []

    def note(name, args):
        if name == "open" and args[0].startswith(layout.BUNDLES):
            opened.append(args[0])

    version, pinned = pin(Hooked(store, before=note))
    with pinned:
        assert read(version) == TABLE
    assert sorted(opened) == [layout.part(layout.SHARED, k) for k in (1, 2, 3)]


def edit(column, **changes):
    def act(table):
        for key, value in changes.items():
            table.lines[column][key][0] = value

    return act


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(0, at=10**6), r"the file has \d+ bytes; the manifest says"),
        (edit(0, at=2**62), r"the file has \d+ bytes; the manifest says"),
        (edit(0, at=9), "begins with"),
        (edit(1, cbytes=2**40), r"the file has \d+ bytes; the manifest says"),
        (edit(0, k=1), "a part has a file and lies in a bundle"),
        (lambda table: table.head["bundles"].__setitem__(0, 0), "row group 0 has no bundle"),
        (lambda table: table.head["bundles"].__setitem__(0, 9), "the file is missing"),
        (lambda table: table.head["bundles"].__setitem__(0, 2), "two row groups have the same"),
        (lambda table: table.head["bundles"].pop(), "expected a list of 3 numbers"),
        (lambda table: table.head.update(requires=[]), "'requires' lacks 'bundles'"),
        (lambda table: table.head.update(next_bundle=0), "the next bundle has number 0"),
        (lambda table: table.lines[0]["at"].pop(), "expected a list of 3 numbers"),
        (lambda table: table.lines[0].update(at=[0, 0, 0]), "no stream 'values'"),
    ],
)
def test_a_false_place_is_corrupt(store, change, message):
    with tamper.editing(store) as table:
        change(table)
    with pytest.raises(blz.CorruptError, match=message):
        blz.read_table(store)


def test_a_part_at_the_place_of_another_column_is_corrupt(store):
    with tamper.editing(store) as table:
        first, other = table.lines[0], table.lines[1]
        for key in ("at", "cbytes"):
            first[key][0] = other[key][0]
    with pytest.raises(blz.CorruptError, match="column 'n'"):
        blz.read_table(store)
    assert blz.read_table(store, columns=["s"]) == TABLE.select(["s"])


def test_parts_that_overlap_are_reported(store):
    """The lines of two columns of one type lead to the same bytes."""
    twice = pa.table({"a": range(300), "b": range(300)})
    store = MemoryStore()
    write(store, twice, encoding="plain")
    bundle(store)
    with tamper.editing(store) as table:
        table.lines[1]["at"] = table.lines[0]["at"]
    with blz.open(store) as table:
        assert table.to_arrow() == twice
        report = table.verify()
    assert [problem.message for problem in report.problems] == ["column 'b' overlaps column 'a'"]
    assert {problem.file for problem in report.problems} == {BUNDLE}


def test_other_first_bytes_of_a_bundle_are_reported_and_change_no_row(store):
    store.put(BUNDLE, b"blzgroue" + store.get(BUNDLE)[8:])
    with blz.open(store) as table:
        assert table.to_arrow() == TABLE
        report = table.verify()
    (problem,) = report.problems
    assert problem.is_readable
    assert problem.file == BUNDLE
    assert "blzgroup" in problem.message


def test_a_bundle_that_ends_early_loses_only_the_parts_behind_the_end(store):
    data = store.get(BUNDLE)
    store.put(BUNDLE, data[:-1])
    with blz.open(store) as table:
        assert table.to_arrow(columns=["n", "s"]) == TABLE.select(["n", "s"])
        lost = {
            (problem.column, problem.start, problem.stop) for problem in table.verify().problems
        }
    assert lost == {("d", 0, 128)}


def test_a_part_of_a_bundle_is_picked_and_read_in_spans(store):
    version, pinned = pin(store)
    with pinned, OpenParts(version) as parts:
        for span in (RowSpan(1, 0, 64), RowSpan(1, 64, 128)):
            (column,) = read_columns(parts, [1], [span])
            assert (
                column.combine_chunks().to_pylist()
                == WORDS[128 + span.start : 128 + span.stop].to_pylist()
            )
