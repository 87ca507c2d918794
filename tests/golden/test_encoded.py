"""Tables with encodings of earlier versions of blztable are read bit for bit.

The tables in `encoded.zip` are never written again; `make/encoded.py` describes how they were made.
"""

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.read.parts import OpenParts
from golden import reader
from golden.make.encoded import BUNDLES, CASES, FLOATS, MANY
from golden.sets import unpacked
from support.bit_equality import bits

ROOT = unpacked("encoded")


NAMES = [*CASES, MANY, FLOATS, *BUNDLES]


def expected(kind: str) -> pa.Table:
    with pa.ipc.open_stream(ROOT / f"{kind}.expected" / "1.arrows") as stream:
        return stream.read_all()


@pytest.mark.parametrize("kind", CASES)
def test_the_columns_of_a_case_have_its_encoding(kind):
    with blz.open(ROOT / f"{kind}.blz") as table:
        version = table._snapshot.version
        for index, name in enumerate(CASES[kind]):
            streams = OpenParts(version).open(index, 0).root.streams
            stream = streams.get("valid") if kind == "runs" else streams.get("ends")
            stream = stream or streams.get("values") or streams["codes"]
            assert stream.encoding.kind == kind.partition("-")[0], name


@pytest.mark.parametrize("kind", BUNDLES)
def test_the_columns_of_a_case_are_in_bundles(kind):
    assert {path.parent.name for path in ROOT.glob(f"{kind}.blz/data/*/*")} == {"group"}


@pytest.mark.parametrize("kind", NAMES)
def test_an_encoded_table_is_read_bit_for_bit(kind):
    wanted = expected(kind)
    found = blz.read_table(ROOT / f"{kind}.blz")
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert [bits(column) for column in found.columns] == [bits(column) for column in wanted.columns]
    with blz.open(ROOT / f"{kind}.blz") as table:
        assert table.verify()


@pytest.mark.parametrize("kind", NAMES)
def test_the_reader_that_was_written_from_the_page_reads_encodings(kind):
    found = reader.read(ROOT / f"{kind}.blz").columns
    assert [column.rows for column in found] == [bits(column) for column in expected(kind).columns]


def test_the_floats_have_no_bitmap_but_for_the_column_with_both():
    with blz.open(ROOT / f"{FLOATS}.blz") as table:
        version = table._snapshot.version
        claims = {
            name: version.parts(index).flags.get("nan_is_null", ())
            for index, name in enumerate(version.schema.names)
        }
        assert claims.pop("turns") == (1, 0, 1)
        assert claims.pop("both") == claims.pop("nan") == ()
        assert set(claims.values()) == {(1, 1, 1)}
        bitmaps = [one.name for one in table["both"].streams()]
        assert bitmaps == ["valid", "values"]
        streams = OpenParts(version).open(version.schema.names.index("price"), 0).root.streams
        assert streams["values"].encoding.nan == 0
