"""A part without rows states no bytes, and codes of nested values have no bounds."""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from golden import reader
from support.options import arguments

WORDS = pa.dictionary(pa.int32(), pa.string())
PAIR = pa.struct([("x", pa.int8())])
# Of each type, rows without an item in the first row group, and one item in the second.
EMPTY = {
    "list": (pa.list_(WORDS), []),
    "large list": (pa.large_list(WORDS), []),
    "map": (pa.map_(pa.string(), WORDS), []),
    "list of lists": (pa.list_(pa.list_(WORDS)), [[]]),
    "struct": (pa.struct([("f", pa.list_(WORDS))]), {"f": []}),
    "null": (pa.list_(WORDS), None),
}


@pytest.mark.parametrize("own_files", [True, False])
@pytest.mark.parametrize("kind", EMPTY)
def test_a_dictionary_below_empty_lists_states_no_bytes(tmp_path, request, kind, own_files):
    if own_files:
        request.getfixturevalue("own_files_here")
    type_, nothing = EMPTY[kind]
    item = {"list of lists": [["x"]], "struct": {"f": ["x"]}, "map": [("k", "x")]}.get(kind, ["x"])
    table = pa.table({"a": pa.array([nothing] * 5 + [item], type_)})
    path = tmp_path / "t.blz"
    blz.to_blz(table, path, storage=blz.Storage(row_group_rows=3))
    assert reader.read(path).head["rows"] == 6
    with blz.open(path) as t:
        assert t.to_arrow() == table
        assert t.verify().is_intact
        version = t._snapshot.version
        last = len(version.paths) - 1
        empty, full = (version.records([last], [group]) for group in range(2))
        assert (version.parts(last).rows, full.parts["nbytes"][0] > 0) == ([0, 1], True)
        assert [empty.parts[name][0] for name in ("nbytes", "cbytes", "file", "streams")] == [0] * 4
        assert t.nbytes == sum(map(version.nbytes, range(last + 1)))


def test_a_dictionary_that_appends_and_updates_leave_empty_states_no_bytes(tmp_path):
    path, type_ = tmp_path / "t.blz", pa.list_(WORDS)
    blz.to_blz(pa.table({"k": [1, 2], "a": pa.array([["x"], ["y"]], type_)}), path)
    with blz.open(path, "a") as t:
        t.append(pa.table({"k": [3], "a": pa.array([[]], type_)}))
        t.update({"a": pa.array([[], []], type_)}, where=[("k", "<", 3)])
        assert t.verify().is_intact
        for number in (info.number for info in t.versions()):
            reader.read(path, number)


CODED = {
    "list": (pa.list_(pa.int64()), [[7], []]),
    "struct": (PAIR, [{"x": 1}, None]),
    "map": (pa.map_(pa.string(), pa.int8()), [[("a", 1)], []]),
}


def coded(kind, rows=40):
    type_, values = CODED[kind]
    codes = pa.array([place % 2 for place in range(rows)], pa.int8())
    return pa.DictionaryArray.from_arrays(codes, pa.array(values, type_))


@pytest.mark.parametrize("form", [{}, {"page_rows": 8}, {"encoding": "plain"}])
@pytest.mark.parametrize("kind", CODED)
def test_codes_of_nested_values_have_no_bounds(tmp_path, kind, form):
    path, table = tmp_path / "t.blz", pa.table({"a": coded(kind)})
    blz.to_blz(table, path, **arguments(**form))
    with blz.open(path, "a") as t:
        t.append(table)
        assert t.verify().is_intact
        assert t.to_arrow()["a"].to_pylist() == table["a"].to_pylist() * 2
        assert_unbounded(t, 0)


def assert_unbounded(table, line):
    """Check that the pages of a node say nothing of its values."""
    pages = table._snapshot.version.records([line]).pages
    assert len(pages)
    bounds = np.iinfo(np.int64)
    assert (pages["min"] == bounds.min).all()
    assert (pages["max"] == bounds.max).all()
    assert not pages["nulls"].any()


@pytest.mark.usefixtures("batched")
def test_columns_of_codes_that_are_written_together_have_no_bounds(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({name: coded("list") for name in "abc"}), path)
    with blz.open(path) as t:
        version = t._snapshot.version
        for index in range(3):
            assert_unbounded(t, version.nodes(index)[0])
