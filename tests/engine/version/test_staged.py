"""A staged version: untouched columns keep their bytes and are not read."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.change import compact, rows, update
from blztable.engine.change.columns import drop_columns, move_column, rename_columns
from blztable.engine.read.columns import OpenColumns
from blztable.engine.version import versions
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version
from blztable.errors import ColumnNotFoundError
from blztable.format import manifest
from blztable.format.line import ColumnParts, PartMetaArrays, Statistics, appended
from blztable.storage.memory import RamStore
from support.stores import changing, read, write

pytestmark = pytest.mark.usefixtures("own_files")

TABLE = pa.table({"n": range(10), "text": [*"abcdefghi", None], "x": np.arange(10) / 4})


def loaded(store, number=None):
    version, pinned = versions.pin(store, number)
    pinned.close()
    return version


@pytest.fixture
def store():
    store = RamStore()
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
    streams = {name: numbers() for name in names} if groups else {}
    # A stream is named because a part has it.
    streams = {name: sizes for name, sizes in streams.items() if any(sizes) or name != "valid"}
    bounds = st.lists(st.none() | st.binary(max_size=8), min_size=groups, max_size=groups)
    return ColumnParts(
        (7,),
        numbers(),
        PartMetaArrays(*(numbers() for _ in PartMetaArrays.__slots__)),
        streams,
        Statistics(numbers(), numbers(), tuple(draw(bounds)), tuple(draw(bounds))).to_json(),
    )


@st.composite
def arrangements(draw):
    before, after = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    places = st.integers(0, max(before + after - 1, 0))
    order = draw(st.lists(places, max_size=9 if before + after else 0))
    return draw(parts(before)), draw(parts(after)), order


@given(st.integers(0, 4), st.integers(0, 4), st.booleans(), st.data())
def test_a_line_gets_parts_as_text_as_it_gets_them_by_decoding(before, after, is_same, data):
    path = data.draw(st.sampled_from([(7,), (7, 1), (7, 0, 2)]))
    mine = replace(data.draw(parts(before)), path=path)
    theirs = replace(data.draw(parts(after)), path=path)
    if is_same:
        theirs = replace(
            theirs, streams={name: tuple(range(1, 1 + after)) for name in mine.streams}
        )
    joined = mine.arranged(theirs, range(before + after)).encode()
    has_same_arrays = before and after and list(mine.streams) == list(theirs.streams)
    found = appended(mine.encode(), theirs.encode(), before)
    assert found == (joined if has_same_arrays else None)


@pytest.mark.parametrize(
    "line",
    [
        b'{"path":8,"k":[1],"rows":[4]}',  # another column
        b'{"path":7,"k":[1],"rows":[4,4]}',  # an array of another length
        b'{"path":7,"rows":[4],"k":[1]}',  # another order
        b'{"path":7,"k":[1]}',
        b'{"path":7,"k":[1],"nulls":[4]}',
        b'{"path":7,"k":[1],"rows":4}',
        b'{"path":7,"k":[1],"rows":[4],"more":1}',
        b'{"path":7,"k":[1],"ro]ws":[4]}',
        b'{"path":7, "k": [1], "rows": [4]}',
        b"",
    ],
)
def test_a_line_of_another_form_is_not_joined_as_text(line):
    good, new = b'{"path":7,"k":[1],"rows":[4]}', b'{"path":7,"k":[2],"rows":[3]}'
    assert appended(good, new, 1) == b'{"path":7,"k":[1,2],"rows":[4,3]}'
    assert appended(line, new, 1) is None


def test_an_array_with_an_odd_name_is_not_joined_as_text():
    odd = b'{"path":7,"k":[1,2],"ro]ws":[4,4]}'
    assert appended(odd, odd, 2) is None


def test_an_append_does_not_decode_lines_nor_read_those_it_has_just_published(store, monkeypatch):
    more = pa.table({"n": [10], "text": [None], "x": [0.5]}, schema=TABLE.schema)
    expected, version = TABLE, loaded(store)
    for number in range(3):
        with monkeypatch.context() as patch, changing(version) as work:
            patch.setattr(ColumnParts, "decode", None)
            if number:
                patch.setattr(Version, "_range", None)
            rows.append(work, [(version.schema, None, [(more, 1)])])
            version, pinned = work.publish()
        pinned.close()
        expected = pa.concat_tables([expected, more])
        assert read(loaded(store)).equals(expected)
    assert read(version).equals(expected)


@given(arrangements())
def test_parts_are_arranged_as_each_of_their_arrays_is(case):
    before, after, order = case
    found = before.arranged(after, order)

    def chosen(mine, theirs):
        both = np.array([*mine, *theirs], object)
        return list(both[np.array(order, int)])

    assert found.path == before.path
    assert list(found.k) == chosen(before.k, after.k)
    for name in PartMetaArrays.__slots__:
        both = getattr(before.meta, name), getattr(after.meta, name)
        assert list(getattr(found.meta, name)) == chosen(*both)
    # A stream that one side does not have counts as empty there.
    for name in {*before.streams, *after.streams}:
        mine = before.streams.get(name, [0] * len(before.k))
        sizes = chosen(mine, after.streams.get(name, [0] * len(after.k)))
        # Without bytes, only validity is known to be in no part.
        is_named = any(sizes) or (sizes and name != "valid")
        assert list(found.streams.get(name, [])) == (sizes if is_named else [])
        assert (name in found.streams) == bool(is_named)
    for name in Statistics.KEYS:
        assert list(found.statistics_json[name]) == chosen(
            before.statistics_json[name], after.statistics_json[name]
        )


@given(st.data(), st.integers(0, 4), st.integers(0, 4))
def test_parts_that_come_and_go_leave_the_line_as_it_was(data, before, after):
    mine = data.draw(parts(before))
    names = [*mine.streams, "valid"]
    theirs = replace(data.draw(parts(after)), streams=dict.fromkeys(names, (9,) * after))
    joined = mine.arranged(theirs, range(before + after))
    nothing = mine.arranged(mine, [])
    assert joined.arranged(nothing, range(before)).encode() == mine.encode()


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
    return ColumnParts(column.path, tuple(k), column.meta, column.streams, column.statistics_json)


def with_page_rows(column, page_rows):
    arrays = {name: getattr(column.meta, name) for name in PartMetaArrays.__slots__}
    facts = PartMetaArrays(**arrays | {"page_rows": (page_rows,) * len(column.k)})
    return ColumnParts(column.path, column.k, facts, column.streams, column.statistics_json)


# Lines


def set_values(work):
    with OpenColumns.whole(work.staged) as opened:
        masks, predicate = update.selected(opened, None)
        update.set_values(work, opened, {1: pa.scalar("z")}, masks, predicate)


CHANGES = {
    "update": (set_values, {1}),
    "delete": (lambda work: rows.delete(work, [("n", "==", 1)]), {0, 1, 2}),
    "truncate": (lambda work: rows.resize(work, 6, list), {0, 1, 2}),
    "drop": (lambda work: drop_columns(work, ["n"], None), set()),
    "rename": (lambda work: rename_columns(work, {"x": "y"}, None), set()),
    "reorder": (lambda work: move_column(work, work.staged.index_of("x"), 0), set()),
    "compact": (compact.compact, set()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_lines_of_columns_not_touched_are_published_byte_for_byte(store, name):
    change, touched = CHANGES[name]
    base = loaded(store)
    before = dict(zip(base.head.columns.paths, base.lines(), strict=True))
    with changing(base, blz.Storage(row_group_rows=4)) as work:
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
    with changing(loaded(store)) as work:
        CHANGES[name][0](work)
        work.staged.lines()
    assert parsed == asked


def test_an_edition_is_read_like_the_version_it_becomes(store):
    with changing(loaded(store), blz.Storage(row_group_rows=3)) as work:
        rows.delete(work, [("n", "in", [0, 5])])
        move_column(work, work.staged.index_of("text"), 0)
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
    with changing(loaded(store)) as work:
        rows.resize(work, 2, list)
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
