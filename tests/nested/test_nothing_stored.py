"""A part without rows states no bytes, and codes of nested values have no bounds."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.format import layout, manifest
from blztable.storage.memory import RamStore
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


def lines(path, version=1):
    data = (path / "meta/manifest" / f"{version:020d}").read_bytes()
    return [json.loads(line) for line in data.splitlines()[2:]]


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
    leaf = lines(path)[-1]
    assert leaf["rows"] == [0, 1]
    assert {name: sizes[0] for name, sizes in leaf["streams"].items()} == {
        "codes": 0,
        "dictionary.ends": 0,
        "dictionary.values": 0,
    }
    assert reader.read(path).head["rows"] == 6
    with blz.open(path) as t:
        assert t.to_arrow() == table
        assert t.verify().is_intact
        assert t.nbytes == sum(sum(map(sum, one["streams"].values())) for one in lines(path))


def test_a_dictionary_that_appends_and_updates_leave_empty_states_no_bytes(tmp_path):
    path, type_ = tmp_path / "t.blz", pa.list_(WORDS)
    blz.to_blz(pa.table({"k": [1, 2], "a": pa.array([["x"], ["y"]], type_)}), path)
    with blz.open(path, "a") as t:
        t.append(pa.table({"k": [3], "a": pa.array([[]], type_)}))
        t.update({"a": pa.array([[], []], type_)}, where=[("k", "<", 3)])
        assert t.verify().is_intact
        for number in (info.number for info in t.versions()):
            reader.read(path, number)


def restated(store, change):
    """Publish the table again, with the lines of its columns changed."""
    with blz.open(store) as t:
        version = t._snapshot.version
    texts = [json.dumps(change(json.loads(line))).encode() for line in version.lines()]
    head = replace(version.head, version=2, parent=1, changed=())
    store.publish(layout.manifest(2), manifest.encode(head, texts), durable=False)


def test_verify_tells_of_bytes_that_are_stored_nowhere():
    store = RamStore()
    array = pa.array([[]] * 3 + [["x"]], pa.list_(WORDS))
    blz.to_blz(pa.table({"a": array}), store, storage=blz.Storage(row_group_rows=3))

    def change(line):
        if line["rows"] == [0, 1]:
            line["streams"]["dictionary.values"][0] = 7
        return line

    restated(store, change)
    with blz.open(store) as t:
        assert t.to_arrow()["a"].combine_chunks() == array
        found = [problem.message for problem in t.verify().problems]
    assert "streams of 7 bytes in row group 0, where the part is not stored" in found
    assert versions.read(store, 2).head.version == 2


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
    (column,) = reader.read(path).columns
    for group, one in enumerate(reader.statistics_of_row_groups(column)):
        assert (one.lowest, one.highest, one.nulls) == (None, None, 0)
        pages = reader.statistics_of_pages(column, group)
        assert {(page.lowest, page.highest) for page in pages} <= {(None, None)}


@pytest.mark.usefixtures("batched")
def test_columns_of_codes_that_are_written_together_have_no_bounds(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({name: coded("list") for name in "abc"}), path)
    assert {line["min"][0] for line in lines(path) if isinstance(line["path"], int)} == {None}
