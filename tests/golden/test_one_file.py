"""Tables in one file of earlier versions of blztable are read, also by a program of the page alone.

The files in `one_file.zip` are never written again; `make/one_file.py` describes how they were
made.
"""

import ast
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import blztable as blz
from golden import one_file, reader
from golden.make.one_file import CASES, UNFINISHED
from golden.sets import unpacked
from support.bit_equality import same_table

ROOT = unpacked("one_file")


def expected(name: str) -> pa.Table:
    with pa.ipc.open_stream(ROOT / f"{name}.arrows") as stream:
        return stream.read_all()


@pytest.mark.filterwarnings("ignore:.*never finished, or damaged")
@pytest.mark.parametrize("name", CASES)
def test_a_table_in_one_file_is_read_and_is_intact(name):
    assert same_table(blz.read_table(ROOT / f"{name}.blz"), expected(name))
    with blz.open(ROOT / f"{name}.blz") as table:
        problems = [one.message for one in table.verify().problems]
    # One of them ends with what a killed writer left.
    assert len(problems) == (name == "changed")
    assert all("the last 104 bytes are of a commit" in one for one in problems)


def test_what_is_whole_of_an_unfinished_file_is_read():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = blz.read_table(ROOT / f"{UNFINISHED}.blz", on_corrupt="skip")
    assert found.replace_schema_metadata() == expected(UNFINISHED)


@pytest.mark.parametrize("name", CASES)
def test_a_program_of_the_page_alone_makes_a_directory_that_is_the_table(name, tmp_path):
    one_file.unpack(ROOT / f"{name}.blz", tmp_path / "t.blz")
    assert same_table(blz.read_table(tmp_path / "t.blz"), expected(name))
    assert reader.read(tmp_path / "t.blz").head["rows"] == expected(name).num_rows


def test_a_program_of_the_page_alone_finds_the_drafts(tmp_path):
    one_file.unpack(ROOT / f"{UNFINISHED}.blz", tmp_path / "t.blz")
    drafts = sorted((tmp_path / "t.blz/meta/draft").iterdir())
    assert [int(path.name) for path in drafts] == [1, 2]


def test_the_program_imports_nothing_of_the_package():
    tree = ast.parse(Path(one_file.__file__).read_bytes())
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)
