"""Tables of earlier versions of blztable are read bit for bit.

The tables in `v1.zip` are never written again; `make/v1.py` describes how they were made. Reads
open them in place; changes use a copy.
"""

import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from golden import edge_values
from golden.frames import FRAMES
from golden.make.v1 import CASES, SUMS, without_pandas
from golden.tables import ROOT, expected, facts
from support.bit_equality import bits, same_table

FRAME = "frame-"
# An append cannot tell two columns of one name apart; a table without columns has no rows.
NOT_APPENDED = {"schemas", "no-columns", "frame-no-columns", "frame-empty"}
NOT_APPENDED |= {f"frame-labels-{name}" for name in ("numbers", "categories", "twice")}


def test_every_case_is_there_and_no_other():
    kinds = ("blz", "expected")
    assert {path.name for path in ROOT.iterdir()} == {
        SUMS,
        *(f"{case}.{kind}" for case in CASES for kind in kinds),
    }


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
        assert report, report.problems


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
            version = table._snapshot.version
            head = version.head
        for key in ("attributes", "properties", "pandas"):
            assert getattr(head, key) == one[key], (number, key)
        assert list(version.row_groups) == one["row_groups"]
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
    return Path(shutil.copytree(ROOT / f"{case}.blz", tmp_path / f"{case}.blz"))


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_APPENDED])
def test_a_table_takes_more_rows(case, tmp_path):
    place = copied(case, tmp_path)
    before = without_pandas(expected(case, max(facts(case))))
    with blz.open(place, "a") as table:
        # NaN of a frame was a value when these tables were written.
        table.append(rows_again(case, before), storage=blz.Storage(nan_as_null=False))
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
    assert list((place / "data").glob("*")) == []
    with blz.open(place, "a") as table:
        table.append(more(), storage=blz.Storage(nan_as_null=False))
        assert same_table(without_pandas(table.to_arrow()), wanted())


def rows_again(case: str, table: pa.Table) -> pa.Table | pd.DataFrame:
    """Return all rows of a table, as a DataFrame if its index can be continued."""
    if not case.startswith(FRAME):
        return table
    frame = FRAMES[case.removeprefix(FRAME)]()
    counts = isinstance(frame.index, pd.RangeIndex)
    return table if counts and frame.index.step != 1 else frame
