"""What the first reviewers found, each as a small test of its own."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.block_terms import ENDS, VALUES
from blztable.columns.blocks import Piece
from blztable.columns.codecs import text
from blztable.columns.types import stream_layouts
from blztable.engine.read.open_files import OpenFiles
from blztable.engine.read.parts import open_column_part
from blztable.engine.version import versions
from blztable.engine.write import row_groups
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import MemoryStore
from support.crash_model import RecordingDisk, crash_states, write_state


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_attributes_do_not_make_a_damaged_line_look_sound(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2, 3]}, path)
    manifest = path / layout.manifest(1)
    flip(manifest, manifest.read_bytes().rindex(b'"min"') + 9)
    with blz.open(path, "a") as table, pytest.raises(blz.CorruptError, match="sha256"):
        table.attrs["x"] = 1
    assert versions.numbers(LocalStore(path)) == [1]


@pytest.mark.parametrize("what", ["part", "line"])
def test_a_damaged_table_that_was_never_flushed_can_be_replaced(tmp_path, what):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2, 3]}, path, durability="process")
    if what == "part":
        (path / layout.part((0,), 1)).unlink()
    else:
        flip(path / layout.manifest(1), -20)
    blz.to_blz({"a": [4]}, path)
    assert blz.read_table(path).to_pydict() == {"a": [4]}


def test_a_lasting_replacement_of_a_damaged_hasty_table_flushes_the_way_to_it(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    path = parent / "t.blz"
    disk = RecordingDisk(parent)
    store = LocalStore(path, disk=disk)
    blz.to_blz({"a": [1, 2, 3]}, store, durability="process")
    (path / layout.manifest(1)).write_bytes(b"")
    blz.to_blz({"a": [4]}, store)
    for number, state in enumerate(crash_states(disk.log, len(disk.log))):
        found = write_state(state, tmp_path / str(number)) / "t.blz"
        assert blz.read_table(found).to_pydict() == {"a": [4]}, state


def test_a_small_part_that_was_forgotten_is_read_again(tmp_path):
    blz.to_blz({"a": [1, 2, 3]}, tmp_path / "t.blz")
    version, pinned = versions.pin(LocalStore(tmp_path / "t.blz"))
    with pinned:
        part = open_column_part(version, 0, version.column(0), 0, OpenFiles(version.store))
        whole = part.read(0, part.cbytes)
        part.forget()
        assert part.read(0, part.cbytes) == whole


def test_a_commit_on_a_table_that_lost_an_unflushed_file_is_told(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2, 3]}, path, durability="process")
    (path / layout.part((0,), 1)).unlink()
    with blz.open(path, "a") as table, pytest.raises(blz.CorruptError, match="missing"):
        table.attrs["x"] = 1


def test_a_schema_that_arrow_would_not_read_back_is_refused(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    with pytest.raises(blz.SchemaError, match="column 'w'"):
        blz.create(path, {"w": pa.binary(1 << 29)}, mode="w")
    assert blz.read_table(path).to_pydict() == {"a": [1]}


def test_a_null_column_has_no_stream_of_validity():
    assert stream_layouts(pa.null()) == {}
    assert "dictionary.valid" not in stream_layouts(pa.dictionary(pa.int8(), pa.null()))


def test_a_table_without_its_empty_lock_file_is_written_all_the_same(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    (path / layout.LOCK).unlink()
    blz.to_blz({"a": [2]}, path)
    assert blz.read_table(path).to_pydict() == {"a": [2]}


def test_attributes_of_a_table_that_is_gone_make_no_new_one():
    store = MemoryStore()
    blz.to_blz({"a": [1]}, store)
    with blz.open(store, "a") as table:
        store.delete([layout.manifest(1)])
        with pytest.raises(blz.TableNotFoundError):
            table.attrs["x"] = 1


def test_setting_attributes_leaves_columns_and_narrowed_tables_open(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2], "b": [3, 4]}, path)
    with blz.open(path, "a") as table:
        narrowed, column = table[["a"]], table["b"]
        table.attrs["x"] = 1
        assert narrowed.to_arrow().to_pydict() == {"a": [1, 2]}
        assert column[0] == 3


def test_views_are_cut_into_arrays_that_their_offsets_can_count():
    pieces = [Piece(2, {ENDS: 16, VALUES: 10}), Piece(1, {ENDS: 8, VALUES: 10})]
    decoder = text.TextDecoder(pa.large_string(), pieces, 15)
    for piece, ends in enumerate(([5, 10], [10])):
        target = decoder.target(piece, ENDS)
        target.buffer[:] = np.array(ends, "<i8").view(np.uint8)
        target.check(0, len(target.buffer))
        decoder.target(piece, VALUES).buffer[:] = ord("a")
    assert list(decoder.checks()) == []
    assert [chunk.to_pylist() for chunk in decoder.finish().chunks] == [["aaaaa"] * 2, ["a" * 10]]


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
def test_views_of_a_large_buffer_do_not_make_groups_of_single_rows(type_):
    column = pa.array(["x" * 1000] * 1000, type_)
    table = pa.table({"a": column})
    assert row_groups.bytes_taken(table["a"].slice(0, 10)) == 10 * 1008
    assert list(row_groups.row_ranges(table, 1000, None)) == [(0, 1000)]


def test_a_dictionary_may_fill_its_index_type():
    values = [f"{number:03}" for number in range(256)]
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([0, 127], pa.uint8()), half)
        for half in (values[:128], values[128:])
    ]
    store = MemoryStore()
    blz.to_blz(pa.table({"a": pa.chunked_array(chunks)}), store)
    with blz.open(store) as table:
        assert len(table._snapshot.version.head.row_groups) == 1
        assert table["a"][:].to_pylist() == ["000", "127", "128", "255"]


def test_columns_may_be_any_iterable_of_names(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1], "b": [2]}, path)
    assert list(blz.read_blz(path, columns=iter(["b", "a"])).columns) == ["b", "a"]
    with pytest.raises(TypeError, match=r"\['a'\]"):
        blz.read_blz(path, columns="a")


def test_a_missing_label_stays_missing(tmp_path):
    frame = pd.DataFrame([[1, 2]], columns=["x", None])
    frame.to_blz(tmp_path / "t.blz")
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz"), frame)


def test_an_extension_type_that_arrow_does_not_know_is_refused(tmp_path):
    field = pa.field("a", pa.int8(), metadata={b"ARROW:extension:name": b"mine"})
    with pytest.raises(blz.SchemaError, match="column 'a'"):
        blz.to_blz(pa.table([pa.array([1], pa.int8())], pa.schema([field])), tmp_path / "t.blz")


def test_an_empty_path_is_no_place_for_a_table():
    with pytest.raises(ValueError, match="empty path"):
        blz.to_blz({"a": [1]}, "")


INTERRUPTED = """
import _thread, sys, threading
import blztable as blz
from blztable.engine.run import pool

started = threading.Event()

def task():
    started.set()
    _thread.interrupt_main()
    for _ in range(100_000):
        pass

for _ in range(200):
    try:
        pool.run([task] * 8)
    except KeyboardInterrupt:
        pass
try:
    blz.to_blz({"a": [1]}, sys.argv[1])
except KeyboardInterrupt:
    blz.to_blz({"a": [1]}, sys.argv[1])
print(blz.read_table(sys.argv[1]).num_rows)
"""


def test_an_interrupt_anywhere_in_a_run_ends_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, tmp_path / "t.blz"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) in {(0, "1\n"), (-signal.SIGINT, "")}, done.stderr
