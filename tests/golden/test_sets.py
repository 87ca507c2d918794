"""Each golden set has the files that were written, and tables of one version are read bit for bit.

The archives are never written again; the scripts of `make/` say how their files were made.
"""

from pathlib import Path

import pyarrow as pa
import pytest

import blztable as blz
from golden import make, one_file, reader
from golden.make import deletions, encoded, items, nested, v1
from golden.make import one_file as one_files
from golden.make.v1 import SUMS, sums
from golden.sets import HERE, unpacked
from support.bit_equality import bits, same_table

SETS = {
    "deletions": deletions.CASES,
    "encoded": [*encoded.CASES, encoded.MANY, encoded.FLOATS, *encoded.BUNDLES],
    "items": items.CASES,
    "nested": [*nested.FORMS, nested.CHANGED, nested.EXTENDED, nested.CODED],
    "one_file": [*one_files.CASES, one_files.UNFINISHED],
    "v1": v1.CASES,
}
# Sets of one version each, which lies beside the table.
READ = [(name, case) for name in ("deletions", "items") for case in SETS[name]]


def expected(name: str, case: str) -> pa.Table:
    with pa.ipc.open_stream(unpacked(name) / f"{case}.arrows") as stream:
        return stream.read_all()


@pytest.mark.parametrize("name", SETS)
def test_every_file_is_there_as_it_was_written_and_no_other(name):
    lines = (unpacked(name) / SUMS).read_text(encoding="utf-8").splitlines()
    listed = {path: digest for digest, _, path in (line.partition("  ") for line in lines)}
    assert sums(unpacked(name)) == listed
    assert {path.stem for path in unpacked(name).iterdir()} == {*SETS[name], SUMS}


def test_each_script_has_its_archive_and_a_missing_one_fails():
    scripts = {path.stem for path in Path(make.__file__).parent.glob("*.py")} - {"__init__"}
    assert scripts <= {path.stem for path in HERE.glob("*.zip")}
    with pytest.raises(FileNotFoundError):
        unpacked("missing")


@pytest.mark.parametrize(("name", "case"), READ)
def test_a_table_is_read_bit_for_bit(name, case):
    with blz.open(unpacked(name) / f"{case}.blz") as table:
        assert same_table(table.to_arrow(), expected(name, case))
        requires = table._snapshot.version.head.requires
        if name == "deletions":
            assert "deletions" in requires
            assert table.versions()[-1].deleted_rows > 0
        else:
            assert "per_item" in requires
            kinds = {one.encodings for one in table["data"].streams() if one.name == "ends"}
            assert any("per_item" in one for one in kinds)
        assert table.verify()


@pytest.mark.parametrize(("name", "case"), READ)
def test_the_reader_that_was_written_from_the_page_reads_it(name, case, tmp_path):
    path = unpacked(name) / f"{case}.blz"
    if path.is_file():
        path = tmp_path / "t.blz"
        one_file.unpack(unpacked(name) / f"{case}.blz", path)
    found = reader.read(path).columns
    wanted = expected(name, case).columns
    assert [column.rows for column in found] == [bits(column) for column in wanted]
