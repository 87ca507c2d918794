"""Tables of earlier versions that name deleted rows are read bit for bit.

The tables in `deletions/` are never written again; `make/deletions.py` says how they were made.
"""

from pathlib import Path

import pyarrow as pa
import pytest

import blztable as blz
from golden import one_file, reader
from golden.make.deletions import CASES
from golden.make.v1 import SUMS, sums
from support.bit_equality import bits, same_table

ROOT = Path(__file__).parent / "deletions"


def expected(name: str) -> pa.Table:
    with pa.ipc.open_stream(ROOT / f"{name}.arrows") as stream:
        return stream.read_all()


def test_every_file_is_there_as_it_was_written_and_no_other():
    lines = (ROOT / SUMS).read_text(encoding="utf-8").splitlines()
    assert sums(ROOT) == {
        path: digest for digest, _, path in (one.partition("  ") for one in lines)
    }
    assert {path.stem for path in ROOT.iterdir()} == {*CASES, SUMS}


@pytest.mark.parametrize("name", CASES)
def test_a_table_with_deleted_rows_is_read_bit_for_bit(name):
    with blz.open(ROOT / f"{name}.blz") as table:
        assert same_table(table.to_arrow(), expected(name))
        assert "deletions" in table._snapshot.version.head.requires
        assert table.versions()[-1].deleted_rows > 0
        assert table.verify()


@pytest.mark.parametrize("name", CASES)
def test_the_reader_that_was_written_from_the_page_leaves_deleted_rows_out(name, tmp_path):
    path = ROOT / f"{name}.blz"
    if path.is_file():
        path = tmp_path / "t.blz"
        one_file.unpack(ROOT / f"{name}.blz", path)
    found = reader.read(path).columns
    assert [column.rows for column in found] == [bits(column) for column in expected(name).columns]
