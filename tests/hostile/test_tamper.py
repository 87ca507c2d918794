"""The tool that tampers with tables: its edits pass every checksum, and change nothing else."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.chunk import Compression
from blztable.format.records import LENGTHS, PER_ITEM, VALUES
from blztable.storage.memory import RamStore
from blztable.tuning import tuned
from support import tamper

DATA = pa.table(
    {
        "n": pa.array(range(40), "i8"),
        "text": pa.array([None, *(f"äö {i}" for i in range(39))]),
        "word": pa.array(["a", "b", None, "c"] * 10).dictionary_encode(),
        "list": pa.array([[1, 2], None, [], [3]] * 10, pa.list_(pa.int16())),
        "none": pa.nulls(40),
    }
)
NODES = 6
FORMS = {
    "files": {"row_group_rows": 24, "page_rows": 8},
    "bundles": {"row_group_rows": 24},
    "items": {"row_group_rows": 24, "packing": "per_item"},
}


def made(form, path):
    """Make a table of two row groups in a sealed leaf."""
    with tuned(leaf_entries=2, leaf_few=2):
        blz.to_blz(DATA, path, storage=blz.Storage(**FORMS[form], attrs={"ä": 0.1}))
    return path


@pytest.fixture(params=FORMS)
def path(request, tmp_path):
    return made(request.param, tmp_path / "t.blz")


@pytest.fixture
def files(tmp_path):
    return made("files", tmp_path / "t.blz")


def contents(path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_without_an_edit_every_byte_is_the_same(path):
    before = contents(path)
    with tamper.editing(path) as table:
        assert len(table.paths) == NODES
        for column in range(NODES):
            for group in range(2):
                table.part(column, group)
    assert contents(path) == before


def test_a_file_that_is_written_again_has_the_same_bytes(path):
    before = contents(path)
    with tamper.editing(path) as table:
        for column in range(NODES - 1):
            for group in range(2):
                table.file(column, group)
    assert contents(path) == before


def test_other_values_are_read_like_written_ones(path):
    with tamper.editing(path) as table:
        part = table.part(column=0, group=1)
        part.streams[VALUES].set_data(np.arange(100, 116, dtype="i8"))
        table.file(column=1).metadata["unknown"] = "keys are passed over"
    assert blz.read_table(path)["n"].to_pylist() == [*range(24), *range(100, 116)]
    assert blz.read_table(path).drop_columns("n") == DATA.drop_columns("n")


def test_a_lie_is_all_that_is_wrong(path):
    with tamper.editing(path) as table:
        stream = table.part().streams[VALUES]
        stream.chunks[0] = tamper.with_header(stream.chunks[0], nbytes=1 << 30)
    with pytest.raises(blz.CorruptError, match=f"a chunk header does not match.*{1 << 30}"):
        blz.read_table(path)
    assert blz.read_table(path, columns=["text"])["text"] == DATA["text"]


def test_what_is_set_stays(files):
    with tamper.editing(files) as table:
        part = table.part()
        part.record["offset"] += 1
        part.record["streams"] = 9
        table.file(column=1).offsets = [1, 2, 3]
    with pytest.raises(blz.CorruptError, match="streams"):
        blz.read_table(files, columns=["n"])


def test_records_are_edited_in_a_sealed_leaf(path):
    with tamper.editing(path) as table:
        assert table.leaf().number
        table.part(group=1).pages["max"] = 10**6
    assert blz.read_table(path) == DATA


def test_the_head_and_the_schema_are_edited_as_json_or_as_bytes(path):
    with tamper.editing(path) as table:
        table.head["operation"] = "told"
    assert blz.read_table(path) == DATA
    with tamper.editing(path) as table:
        assert table.head["operation"] == "told"
        table.head = b'{"format":"blztable","format":"blztable"}'
    with pytest.raises(blz.CorruptError, match="duplicate key"):
        blz.read_table(path)


def test_a_chunk_an_item_is_edited(tmp_path):
    path = made("items", tmp_path / "t.blz")
    with tamper.editing(path) as table:
        stream = table.part(column=1).streams[VALUES]
        assert stream.record["kind"] == PER_ITEM
        stream.chunks[1] = Compression().compress(np.frombuffer(b"\xc3\xa4?? 0", "u1"), 1)
    found = blz.read_table(path)["text"].to_pylist()
    assert found[:3] == [None, "ä?? 0", "äö 1"]
    with tamper.editing(path) as table:
        table.part(column=1).streams[VALUES].words[0] += 1
    with pytest.raises(blz.CorruptError, match="item"):
        blz.read_table(path)


def test_a_table_in_memory_is_edited_too():
    store = RamStore()
    blz.to_blz(DATA, store)
    with tamper.editing(store) as table:
        table.part(column=2).streams[LENGTHS].words[0] = 0
    with pytest.raises(blz.CorruptError):
        blz.read_table(store)


def test_a_copy_of_an_edited_table_is_edited(files, tmp_path):
    copy = shutil.copytree(files, tmp_path / "copy.blz")
    with tamper.editing(copy) as table:
        table.head["rows"] = 41
    assert blz.read_table(files) == DATA
    with pytest.raises(blz.CorruptError):
        blz.read_table(copy)
