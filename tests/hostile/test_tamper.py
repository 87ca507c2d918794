"""The tool that tampers with tables: its edits pass every checksum, and change nothing else."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version.versions import pin
from blztable.format.chunk import Compression
from blztable.storage.memory import RamStore
from support import tamper
from support.stores import read, write

DATA = pa.table(
    {
        "n": pa.array(range(40), "i8"),
        "text": pa.array([None, *(f"äö {i}" for i in range(39))]),
        "word": pa.array(["a", "b", None, "c"] * 10).dictionary_encode(),
        "none": pa.nulls(40),
    }
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "t.blz"
    blz.to_blz(
        DATA,
        path,
        storage=blz.Storage(row_group_rows=24, page_rows=8, checksum="sha256", attrs={"ä": 0.1}),
    )
    return path


@pytest.fixture
def path(intact, tmp_path):
    return shutil.copytree(intact, tmp_path / "t.blz")


def contents(path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_without_an_edit_every_byte_is_the_same(path):
    before = contents(path)
    with tamper.editing(path) as table:
        for column in range(3):
            for group in range(2):
                table.part(column, group)
    assert contents(path) == before


def test_other_chunks_are_read_like_written_ones(path):
    with tamper.editing(path) as table:
        part = table.part(column=0, group=1)
        raw = np.arange(100, 116, dtype="i8")
        part.chunks = [Compression().compress(raw, 8)]
        table.part(column=1).metadata["unknown"] = "keys are passed over"
    assert blz.read_table(path)["n"].to_pylist() == [*range(24), *range(100, 116)]
    assert blz.read_table(path).drop_columns("n") == DATA.drop_columns("n")


def test_a_lie_is_all_that_is_wrong(path):
    with tamper.editing(path) as table:
        part = table.part(column=0)
        part.chunks[0] = tamper.with_header(part.chunks[0], nbytes=1 << 30)
    with pytest.raises(blz.CorruptError, match=f"a chunk header does not match.*{1 << 30}"):
        blz.read_table(path)


def test_what_is_set_stays(path):
    with tamper.editing(path) as table:
        table.part(column=0).offsets[0] += 1
        table.part(column=1).trailer_head["nlayers"] = 0
    with pytest.raises(blz.CorruptError, match="chunk offsets"):
        blz.read_table(path, columns=["n"])
    with pytest.raises(blz.CorruptError, match=r"a trailer has [0-9]+ bytes too many"):
        blz.read_table(path, columns=["text"])


def test_the_manifest_is_edited_as_json_or_as_bytes(path):
    with tamper.editing(path) as table:
        table.head["operation"] = "told"
        table.lines[0]["nulls"] = [1, 2]
    assert blz.read_table(path) == DATA
    with tamper.editing(path) as table:
        assert table.head["operation"] == "told"
        table.head = b'{"format":"blztable","format_version":1,"format":"blztable"}'
    with pytest.raises(blz.CorruptError, match="duplicate key"):
        blz.read_table(path)


def test_a_line_in_bytes_has_its_place_and_its_sha256(path):
    with tamper.editing(path) as table:
        table.lines[1] = b"NaN"
    with pytest.raises(blz.CorruptError, match="NaN is not allowed"):
        blz.read_table(path)


def test_a_table_in_memory_is_edited_too():
    store = RamStore()
    write(store, DATA, page_rows=8)
    with tamper.editing(store) as table:
        table.part(column=2).metadata["dictionary"]["rows"] = 2
    version, pinned = pin(store)
    with pinned, pytest.raises(blz.CorruptError, match=r"dictionary\.ends"):
        read(version)
