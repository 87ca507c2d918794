"""Nested columns from an attacker who computes valid checksums: children that do not fit.

As in `test_chunks.py`, each table lies behind valid checksums and another process reads it.
"""

import numpy as np
import pyarrow as pa
import pytest

from blztable.format.records import LENGTHS, VALID, VALUES
from support import tamper
from support.hostile_reader import WAYS, make, outcomes

pytestmark = pytest.mark.usefixtures("own_files")

ROWS = 100
LISTS = [None if row % 7 == 0 else [row] * (row % 4) for row in range(ROWS)]
CASES = {
    "list": pa.array(LISTS),
    "large list": pa.array(LISTS, pa.large_list(pa.int64())),
    "view": pa.array(LISTS, pa.list_view(pa.int64())),
    "fixed": pa.array([[row, row + 1] for row in range(ROWS)], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": row, "b": str(row)} for row in range(ROWS)]),
    "map": pa.array([[(str(row), row)] * (row % 3) for row in range(ROWS)], pa.map_("str", "i8")),
    "lists of lists": pa.array([[[row] * (row % 3)] * (row % 2) for row in range(ROWS)]),
    "runs": pa.RunEndEncodedArray.from_arrays([30, 60, ROWS], ["a", "b", "c"]),
    "dense union": pa.UnionArray.from_dense(
        pa.array([row % 2 for row in range(ROWS)], pa.int8()),
        pa.array([row // 2 for row in range(ROWS)], pa.int32()),
        [pa.array(range(50)), pa.array(map(str, range(50)))],
    ),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([row % 2 for row in range(ROWS)], pa.int8()),
        [pa.array(range(ROWS)), pa.array(map(str, range(ROWS)))],
    ),
    "dictionary of lists": pa.DictionaryArray.from_arrays(
        pa.array([row % 3 for row in range(ROWS)]), pa.array([[1], [2, 3], []])
    ),
}


def refused(path, ways=("table", "frame")):
    found = outcomes(path, rows=(0, ROWS))
    assert all(found[way] and not found[way][0].startswith("!") for way in ways), found


def is_safe(path):
    found = outcomes(path, rows=(0, ROWS))
    assert not any(one and one[0].startswith("!") for one in found.values()), found


def made(tmp_path, name):
    tmp_path.mkdir(exist_ok=True)
    return make(tmp_path / "t.blz", pa.table({"x": CASES[name]}))


def nodes_of(path):
    with tamper.editing(path) as table:
        return len(table.leaf().columns)


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_changed_is_read(tmp_path, name):
    path = made(tmp_path, name)
    with tamper.editing(path):
        pass
    assert set(outcomes(path, rows=(0, ROWS)).values()) == {None}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("more", [-1, 1, 8, 1 << 20, 1 << 38])
def test_a_child_of_other_rows_is_refused(tmp_path, name, more):
    path = made(tmp_path, name)
    for node in range(1, nodes_of(path)):
        path = made(tmp_path / str(node), name)
        with tamper.editing(path) as table:
            record = table.part(node).record
            record["rows"] = max(int(record["rows"]) + more, 0)
        if name.startswith("dictionary"):
            # It may have values that no row has.
            is_safe(path)
        else:
            refused(path)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_streams_of_noise_are_refused_or_safe(tmp_path, name, seed):
    count = nodes_of(made(tmp_path, name))
    noise = np.random.default_rng(seed)
    for node in range(count):
        path = made(tmp_path / str(node), name)
        with tamper.editing(path) as table:
            for stream in table.part(node).streams.values():
                size = len(stream.data())
                stream.set_data(noise.integers(0, noise.choice([3, 256]), size).astype("u1"))
        is_safe(path)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("value", [-1, 0, 1, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_words_that_lie_are_refused_or_safe(tmp_path, name, value):
    count = nodes_of(made(tmp_path, name))
    for node in range(count):
        path = made(tmp_path / str(node), name)
        with tamper.editing(path) as table:
            for stream in table.part(node).streams.values():
                stream.words[:] = value
        is_safe(path)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stream", [VALID, VALUES, LENGTHS])
def test_a_node_without_a_stream_is_refused_or_safe(tmp_path, name, stream):
    count = nodes_of(made(tmp_path, name))
    for node in range(count):
        path = made(tmp_path / str(node), name)
        with tamper.editing(path) as table:
            had = table.part(node).streams.pop(stream, None)
        if had is not None and stream != VALID:
            refused(path)
        else:
            is_safe(path)


@pytest.mark.parametrize("code", [2, 3, 127, 255])
@pytest.mark.parametrize("name", ["dense union", "sparse union", "dictionary of lists"])
def test_a_code_of_no_child_is_refused(tmp_path, name, code):
    path = made(tmp_path, name)
    with tamper.editing(path) as table:
        stream = table.part().streams[VALUES]
        data = stream.data()
        data[8] = code if name != "dictionary of lists" or code > 2 else 3
        stream.set_data(data)
    refused(path)


def test_all_ways_are_tried():
    assert WAYS == ("table", "frame", "rows", "taken")
