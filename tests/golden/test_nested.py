"""Nested columns of earlier versions of blztable are read bit for bit.

The tables in `nested.zip` are never written again; `make/nested.py` describes how they were made.
"""

import json

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.read.parts import OpenParts
from golden import reader
from golden.make.nested import CHANGED, CODED, EXTENDED, FORMS
from golden.sets import unpacked
from support.bit_equality import bits
from support.nested_arrays import KINDS

ROOT = unpacked("nested")
CASES = [*FORMS, CHANGED, EXTENDED, CODED]
VERSIONS = [
    (case, int(path.stem))
    for case in CASES
    for path in sorted((ROOT / f"{case}.expected").glob("*.arrows"))
]


def expected(case: str, version: int) -> pa.Table:
    with pa.ipc.open_stream(ROOT / f"{case}.expected" / f"{version}.arrows") as stream:
        return stream.read_all()


def test_each_case_has_a_version():
    assert {case for case, _ in VERSIONS} == set(CASES)


@pytest.mark.parametrize(("case", "number"), VERSIONS)
def test_nested_columns_are_read_bit_for_bit(case, number):
    wanted = expected(case, number)
    with blz.open(ROOT / f"{case}.blz", version=number) as table:
        found = table.to_arrow()
        assert table.verify()
    found.validate(full=True)
    assert found.schema.equals(wanted.schema, check_metadata=True)
    for name, column, other in zip(wanted.column_names, found.columns, wanted.columns, strict=True):
        assert bits(column) == bits(other), name


@pytest.mark.parametrize(("case", "number"), VERSIONS)
def test_the_reader_that_was_written_from_the_page_reads_nested_columns(case, number):
    wanted, found = expected(case, number), reader.read(ROOT / f"{case}.blz", number)
    assert found.schema.equals(wanted.schema, check_metadata=True)
    for name, column, other in zip(wanted.column_names, found.columns, wanted.columns, strict=True):
        assert column.rows == bits(other), name


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_on_disk_what_it_is_named_after(form):
    place = ROOT / f"{form}.blz"
    folders = {path.parent.name for path in place.glob("data/**/*.bin")}
    assert (folders == {"group"}) == (form == "bundle")
    with blz.open(place) as table:
        version = table._snapshot.version
        parts = OpenParts(version)
        streams = [
            stream
            for line in range(len(version.paths))
            if version.parts(line).has_bytes(0)
            for stream in parts.open(line, 0).streams.values()
        ]
    kinds = {stream.encoding.kind for stream in streams if stream.encoding}
    assert kinds == {"rows"} if form == "plain" else {"rows", "narrow", "lengths"} <= kinds
    assert set(expected(form, 1).column_names) == {"k", *KINDS}


def test_children_without_rows_have_no_file():
    data = (ROOT / f"{CHANGED}.blz" / "meta" / "manifest" / f"{2:020d}").read_bytes()
    lines = [json.loads(line) for line in data.splitlines()[2:]]
    ends = {tuple(line["path"]): line for line in lines if isinstance(line["path"], list)}
    of_view = list(KINDS).index("view") + 1
    (root,) = [line["path"] for line in lines if isinstance(line["path"], int)][
        of_view : of_view + 1
    ]
    child = ends[root, root + 1]
    assert child["rows"][0] > 0
    assert child["rows"][-1] == child["k"][-1] == child["cbytes"][-1] == 0
