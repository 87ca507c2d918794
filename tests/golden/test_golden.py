"""Tables of earlier versions of blztable are read bit for bit.

The tables in `v1.zip` are never written again; `make/v1.py` describes how they were made. Reads
open them in place; changes use a copy.
"""

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from golden import edge_values, make, reader
from golden.frames import FRAMES
from golden.make.v1 import CASES, FACTS, SUMS, UNFINISHED, sums, without_pandas
from golden.sets import HERE, unpacked
from golden.tables import ROOT, expected, facts
from support.bit_equality import bits, same_table

FRAME = "frame-"
# An append cannot tell two columns of one name apart; a table without columns has no rows.
NOT_APPENDED = {"schemas", "no-columns", "frame-no-columns", "frame-empty"}
NOT_APPENDED |= {f"frame-labels-{name}" for name in ("numbers", "categories", "twice")}


# A file with bytes of a killed writer behind its end.
pytestmark = pytest.mark.filterwarnings("ignore:.*the last 104 bytes are of a commit")


def test_every_case_is_there_and_no_other():
    kinds = ("blz", "expected")
    assert {path.name for path in ROOT.iterdir()} == {
        SUMS,
        f"{UNFINISHED}.blz",
        *(f"{case}.{kind}" for case in CASES for kind in kinds),
    }


def test_every_file_is_there_as_it_was_written_and_no_other():
    lines = (ROOT / SUMS).read_text(encoding="utf-8").splitlines()
    listed = {path: digest for digest, _, path in (line.partition("  ") for line in lines)}
    assert sums(ROOT) == listed


def test_each_script_has_its_archive_and_a_missing_one_fails():
    scripts = {
        path.stem
        for path in Path(make.__file__).parent.glob("*.py")
        if 'if __name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    assert scripts == {"v1", "arrays"}
    assert scripts <= {path.stem for path in HERE.glob("*.zip")}
    with pytest.raises(FileNotFoundError):
        unpacked("missing")


@pytest.mark.parametrize("case", CASES)
def test_every_version_is_read_bit_for_bit(case):
    for number, known in facts(case).items():
        found = blz.read_table(ROOT / f"{case}.blz", version=number)
        wanted = expected(case, number)
        assert found.num_rows == known["rows"]
        if case.startswith(FRAME) or case == "frames-appended":
            found = without_pandas(found)
        assert found.schema.equals(wanted.schema, check_metadata=True), number
        for name, column, other in zip(
            found.column_names, found.columns, wanted.columns, strict=True
        ):
            assert bits(column) == bits(other), (number, name)


@pytest.mark.parametrize("case", CASES)
def test_every_version_is_intact(case):
    for number in facts(case):
        with blz.open(ROOT / f"{case}.blz", version=number) as table:
            report = table.verify()
        assert report or case == "one-file", report.problems


@pytest.mark.parametrize("case", CASES)
def test_the_facts_of_every_version_are_read(case):
    known = facts(case)
    with blz.open(ROOT / f"{case}.blz") as table:
        assert [
            (one.number, one.time.isoformat(timespec="microseconds"), one.operation, one.rows)
            for one in table.versions()
        ] == [
            (one["version"], one["time"], one["operation"], one["rows"]) for one in known.values()
        ]
    for number, one in known.items():
        with blz.open(ROOT / f"{case}.blz", version=number) as table:
            head = table._snapshot.version.head
        for key in ("attributes", "properties", "pandas"):
            assert getattr(head, key) == one[key], (number, key)
        assert [list(pair) for pair in head.commit_ids] == one["commit_ids"]


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_back_equal(name):
    found, wanted = blz.read_blz(ROOT / f"{FRAME}{name}.blz"), FRAMES[name]()
    pd.testing.assert_frame_equal(found, wanted, check_exact=True, check_freq=True)
    assert found.flags == wanted.flags
    # The text distinguishes equal values of different types: -0.0 and 0.0, int8 and int64.
    assert repr(found.attrs) == repr(wanted.attrs)


def test_a_frame_that_grew_comes_back_equal():
    numbers = pd.DataFrame({"n": range(5), "m": pd.array([None] * 5, "Int8")})
    words = numbers.assign(word=list("abcde"))
    for number, wanted in enumerate((numbers[:3], numbers, words), start=1):
        found = blz.read_blz(ROOT / "frames-appended.blz", version=number)
        pd.testing.assert_frame_equal(found, wanted)


def test_a_frame_that_pyarrow_converted_comes_back_equal():
    wanted = FRAMES["index-days"]().assign(m=pd.array([None, 1, 2] * 4, "Int8"))
    found = blz.read_blz(ROOT / "arrow-of-frame.blz")
    # pyarrow's metadata does not have the frequency.
    pd.testing.assert_frame_equal(found, wanted, check_freq=False)


def copied(case: str, tmp_path: Path) -> Path:
    """Return a copy of the table that may be changed."""
    place, copy = ROOT / f"{case}.blz", tmp_path / f"{case}.blz"
    return Path(shutil.copy(place, copy) if place.is_file() else shutil.copytree(place, copy))


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_APPENDED])
def test_a_table_takes_more_rows(case, tmp_path):
    place = copied(case, tmp_path)
    before = without_pandas(expected(case, max(facts(case))))
    with blz.open(place, "a") as table:
        table.append(rows_again(case, before))
        found = without_pandas(table.to_arrow())
        report = table.verify()
    assert report, report.problems
    assert same_table(found, pa.concat_tables([before, before]))


@pytest.mark.parametrize(
    ("case", "more", "wanted"),
    [
        ("no-rows", edge_values.everything, edge_values.everything),
        ("frame-no-rows", FRAMES["numpy"], lambda: expected("frame-numpy", 1)),
    ],
)
def test_a_table_without_rows_takes_rows(case, more, wanted, tmp_path):
    place = copied(case, tmp_path)
    # git and many object stores keep no empty directories.
    for one in (place / "data").glob("*"):
        one.rmdir()
    with blz.open(place, "a") as table:
        table.append(more())
        assert same_table(without_pandas(table.to_arrow()), wanted())


def rows_again(case: str, table: pa.Table) -> pa.Table | pd.DataFrame:
    """Return all rows of a table, as a DataFrame if its index can be continued."""
    if not case.startswith(FRAME):
        return table
    frame = FRAMES[case.removeprefix(FRAME)]()
    counts = isinstance(frame.index, pd.RangeIndex)
    return table if counts and frame.index.step != 1 else frame


@pytest.mark.parametrize("case", CASES)
def test_a_table_is_copied_to_the_same_values(case, tmp_path):
    found = ROOT / f"{case}.blz"
    for layout in ("file", "directory"):
        copy = tmp_path / f"{layout}.blz"
        blz.copy(found, copy, layout=layout)
        assert same_table(blz.read_table(copy), blz.read_table(found))


@pytest.mark.filterwarnings("ignore")
def test_the_whole_row_groups_of_an_unfinished_file_are_read():
    found = blz.read_table(ROOT / f"{UNFINISHED}.blz", on_corrupt="skip")
    rows = [{"n": number, "x": number / 4} for number in range(20)]
    assert found.to_pylist() == rows
    drafts = reader.drafts(ROOT / f"{UNFINISHED}.blz")
    assert [draft.head["rows"] for draft in drafts] == [10, 10]


def test_the_facts_are_those_of_the_script():
    known = json.loads((ROOT / "sort-by.expected" / "versions.json").read_bytes())
    assert set(known["1"]) == set(FACTS)
