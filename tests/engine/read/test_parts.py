"""A part: a superchunk whose tree of blocks is that of its type."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.block_terms import PLAIN
from blztable.columns.types import CODECS, decoder
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.parts import OpenFiles, OpenParts, PartReader, open_part
from blztable.engine.read.requests import PickedRows, SpanRows, joined
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.versions import pin
from blztable.errors import CorruptError, FormatError
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support import tamper
from support.stores import write

pytestmark = pytest.mark.usefixtures("own_files")

WORDS = pa.array([f"word {n % 13}" * (n % 5) for n in range(300)])
TABLE = pa.table(
    {"n": pa.array(range(300)), "s": WORDS, "d": WORDS.dictionary_encode(), "z": pa.nulls(300)}
)


@pytest.fixture
def store():
    store = RamStore()
    write(store, TABLE, page_rows=64)
    return store


@pytest.mark.parametrize("index", range(3))
def test_a_part_is_read_in_spans_and_in_single_rows(store, index):
    version, pinned = pin(store)
    with pinned:
        parts, field = version.parts(index), version.schema.field(index)
        reader = PartReader(OpenFiles(store), parts.files[0])
        sizes = {name: size[0] for name, size in parts.streams.items()}
        part = open_part(reader, parts.meta[0], field.type, sizes, "here")
    chosen = np.array([0, 5, 64, 299])
    for rows, taken in [
        (SpanRows(part, [RowSpan(0, 0, 300)]), slice(None)),
        (PickedRows(part, chosen, [RowSpan(0, 0, 128), RowSpan(0, 256, 300)]), chosen),
    ]:
        for task in joined(rows.locate()):
            task()
        rows.plan()
        column = decoder(field.type, rows.pieces)
        for task in joined(rows.fill(column, 0)):
            task()
        rows.copy_out()
        for check in column.checks():
            check()
        expected = np.array(TABLE[index].to_pylist(), object)[taken].tolist()
        assert column.finish().to_pylist() == expected


@pytest.mark.parametrize("more", [-1, 1])
def test_a_file_of_another_length_is_corrupt(store, more):
    version, pinned = pin(store)
    with pinned:
        parts = version.parts(0)
        facts = replace(parts.meta[0], cbytes=parts.meta.cbytes[0] + more)
        sizes = {name: size[0] for name, size in parts.streams.items()}
        reader = PartReader(OpenFiles(store), parts.files[0])
        with pytest.raises(CorruptError, match=r"here: .* bytes"):
            open_part(reader, facts, pa.int64(), sizes, "here")


@pytest.mark.parametrize("where", ["the block", "its dictionary"])
def test_an_encoding_that_is_not_known_is_refused_by_name(store, where):
    with tamper.editing(store) as table:
        block = table.part(2).metadata
        (block if where == "the block" else block["dictionary"])["encoding"] = "delta"
    version, pinned = pin(store)
    with (
        pinned,
        pytest.raises(FormatError, match=r"column 'd': encoding 'delta' of .* upgrade blz"),
    ):
        OpenColumns.whole(version).columns([2], [RowSpan(0, 0, 300)])


def test_an_encoding_is_looked_up_by_type_and_name(store):
    with tamper.editing(store) as table:
        table.part(2).metadata["encoding"] = PLAIN
    version, pinned = pin(store)
    with pinned:
        (column,) = OpenColumns.whole(version).columns([2], [RowSpan(0, 0, 300)])
    assert column.to_pylist() == TABLE["d"].to_pylist()
    assert {encoding for _, encoding in CODECS} == {PLAIN}


def test_a_dictionary_has_no_dictionary(store):
    with tamper.editing(store) as table:
        block = table.part(2).metadata
        empty = {"rows": 0, "page_rows": 8, "packing": "packed", "streams": []}
        block["dictionary"]["dictionary"] = empty
    version, pinned = pin(store)
    with pinned, pytest.raises(CorruptError, match=r"children \['dictionary'\].*string has \[\]"):
        OpenColumns.whole(version).columns([2], [RowSpan(0, 0, 300)])


def test_codes_without_a_dictionary_are_corrupt(store):
    with tamper.editing(store) as table:
        del table.part(2).metadata["dictionary"]
    version, pinned = pin(store)
    with pinned, pytest.raises(CorruptError):
        OpenColumns.whole(version).columns([2], [RowSpan(0, 0, 300)])


# Bug: a race: one thread forgot the bytes of a small part while another read them.
def test_a_small_part_that_was_forgotten_is_read_again(tmp_path):
    blz.to_blz({"a": [1, 2, 3]}, tmp_path / "t.blz")
    version, pinned = pin(LocalStore(tmp_path / "t.blz"))
    with pinned:
        part = OpenParts(version).open(0, 0)
        whole = part.reader.read(0, part.cbytes)
        part.forget()
        assert part.reader.read(0, part.cbytes) == whole
