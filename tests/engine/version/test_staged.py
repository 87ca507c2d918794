"""A staged version: untouched columns keep their bytes and are not read."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.engine.change import compact, rows, update
from blztable.engine.change.columns import drop_columns, rename_columns, reorder_columns
from blztable.engine.version import versions
from blztable.engine.version.staged import StagedVersion
from blztable.engine.write.options import WriteOptions
from blztable.errors import ColumnNotFoundError
from blztable.format import manifest
from blztable.format.line import ColumnParts, FactArrays
from blztable.format.statistics import Statistics
from blztable.storage.memory import MemoryStore
from support.stores import changing, read, write

pytestmark = pytest.mark.usefixtures("own_files")

TABLE = pa.table({"n": range(10), "text": [*"abcdefghi", None], "x": np.arange(10) / 4})


def loaded(store, number=None):
    version, pinned = versions.pin(store, number)
    pinned.close()
    return version


@pytest.fixture
def store():
    store = MemoryStore()
    write(store, TABLE, row_group_rows=4, attrs={"a": 1})
    return store


# Parts


NUMBERS = st.integers(0, 2**40)
STREAMS = ("valid", "ends", "values")


@st.composite
def parts(draw, groups):
    def numbers():
        return tuple(draw(st.lists(NUMBERS, min_size=groups, max_size=groups)))

    names = draw(st.sets(st.sampled_from(STREAMS)))
    bounds = st.lists(st.none() | st.binary(max_size=8), min_size=groups, max_size=groups)
    return ColumnParts(
        (7,),
        numbers(),
        FactArrays(*(numbers() for _ in FactArrays.__slots__)),
        {name: numbers() for name in names},
        Statistics(numbers(), numbers(), tuple(draw(bounds)), tuple(draw(bounds))).to_json(),
    )


@st.composite
def arrangements(draw):
    before, after = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    places = st.integers(0, max(before + after - 1, 0))
    order = draw(st.lists(places, max_size=9 if before + after else 0))
    return draw(parts(before)), draw(parts(after)), order


@given(arrangements())
def test_parts_are_arranged_as_each_of_their_arrays_is(case):
    before, after, order = case
    found = before.arranged(after, order)

    def chosen(mine, theirs):
        both = np.array([*mine, *theirs], object)
        return list(both[np.array(order, int)])

    assert found.path == before.path
    assert list(found.k) == chosen(before.k, after.k)
    for name in FactArrays.__slots__:
        both = getattr(before.facts, name), getattr(after.facts, name)
        assert list(getattr(found.facts, name)) == chosen(*both)
    # A stream that one side does not have counts as empty there.
    assert set(found.streams) == {*before.streams, *after.streams}
    for name, sizes in found.streams.items():
        mine = before.streams.get(name, [0] * len(before.k))
        assert list(sizes) == chosen(mine, after.streams.get(name, [0] * len(after.k)))
    for name in Statistics.KEYS:
        assert list(found.known[name]) == chosen(before.known[name], after.known[name])


@given(arrangements())
def test_what_was_arranged_is_a_line_that_reads_back(case):
    before, after, order = case
    numbered = range(1, 1 + len(before.k) + len(after.k))
    before = replaced_k(before, numbered[: len(before.k)])
    after = replaced_k(after, numbered[len(before.k) :])
    found = before.arranged(after, list(dict.fromkeys(order)))
    found = with_page_rows(found, 8)
    assert ColumnParts.decode(found.encode(), found.path, len(found.k)) == found


def replaced_k(column, k):
    return ColumnParts(column.path, tuple(k), column.facts, column.streams, column.known)


def with_page_rows(column, page_rows):
    arrays = {name: getattr(column.facts, name) for name in FactArrays.__slots__}
    facts = FactArrays(**arrays | {"page_rows": (page_rows,) * len(column.k)})
    return ColumnParts(column.path, column.k, facts, column.streams, column.known)


# Lines


def fit(index, array):
    return array


CHANGES = {
    "update": (lambda work: update.update(work, {1: pa.scalar("z")}, None, fit), {1}),
    "delete": (lambda work: rows.delete(work, [("n", "==", 1)]), {0, 1, 2}),
    "truncate": (lambda work: rows.truncate(work, 6), {0, 1, 2}),
    "drop": (lambda work: drop_columns(work, ["n"], None), set()),
    "rename": (lambda work: rename_columns(work, {"x": "y"}, None), set()),
    "reorder": (lambda work: reorder_columns(work, ["x"]), set()),
    "compact": (compact.compact, set()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_lines_of_columns_not_touched_are_published_byte_for_byte(store, name):
    change, touched = CHANGES[name]
    base = loaded(store)
    before = dict(zip(base.head.columns.paths, base.lines(), strict=True))
    with changing(base, WriteOptions(row_group_rows=4)) as work:
        change(work)
        lines = work.staged.lines()
        published = work.publish()
    if published is None:
        assert name == "compact"
        assert lines == base.lines()
        return
    version, pinned = published
    pinned.close()
    assert version.lines() == lines
    paths = version.head.columns.paths
    assert {
        path[0] for path, line in zip(paths, lines, strict=True) if line != before[path]
    } == touched


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("update", {1}),
        ("drop", set()),
        ("rename", set()),
        ("reorder", set()),
        ("delete", {0, 1, 2}),
    ],
)
def test_lines_of_columns_not_touched_are_not_parsed(store, name, asked, monkeypatch):
    parsed = set()
    decode_column = manifest.decode_column

    def recording(line, head, index):
        parsed.add(index)
        return decode_column(line, head, index)

    monkeypatch.setattr(manifest, "decode_column", recording)
    with changing(loaded(store), WriteOptions()) as work:
        CHANGES[name][0](work)
        work.staged.lines()
    assert parsed == asked


def test_an_edition_is_read_like_the_version_it_becomes(store):
    with changing(loaded(store), WriteOptions(row_group_rows=3)) as work:
        rows.delete(work, [("n", "in", [0, 5])])
        reorder_columns(work, ["text"])
        rename_columns(work, {"n": "m"}, None)
        seen, head = read(work.staged), work.staged.head
        version, pinned = work.publish()
    with pinned:
        assert read(version) == read(loaded(store)) == seen
        assert version.head.row_groups == head.row_groups
        assert version.head.columns.nbytes == head.columns.nbytes
        assert version.head.columns.cbytes == head.columns.cbytes
    assert read(loaded(store, 1)) == TABLE
    assert seen.column_names == ["text", "m", "x"]


def test_what_pandas_wrote_in_a_schema_goes_with_the_columns_it_was_true_of(store):
    frame = pa.Table.from_pandas(TABLE.to_pandas())
    schema = frame.schema.with_metadata({**frame.schema.metadata, b"source": b"till"})
    write(store, frame.cast(schema))
    assert b"pandas" in loaded(store).schema.metadata
    with changing(loaded(store), WriteOptions()) as work:
        rows.truncate(work, 2)
        work.publish()[1].close()
    assert loaded(store).schema.metadata == {b"source": b"till"}


def test_a_name_is_one_column(store):
    twice = pa.Table.from_arrays([[1], [2], [3]], ["a", "a", "b"])
    write(store, twice)
    staged = StagedVersion.of(loaded(store))
    assert staged.index_of("b") == 2
    with pytest.raises(ColumnNotFoundError, match="2 columns are named 'a' in memory"):
        staged.index_of("a")
    with pytest.raises(ColumnNotFoundError, match=r"no column is named 'c' .* \['a', 'a', 'b'\]"):
        staged.index_of("c")
