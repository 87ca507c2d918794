"""Errors of commands advise what a command line can do, and no call of Python."""

from datetime import date

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import blztable as blz
from blztable.cli import main
from blztable.cli.command import _PYTHON

UTC, NAIVE = pa.array([0], pa.timestamp("us", "UTC")), pa.array([0], pa.timestamp("us"))
REFUSED = [
    (pa.array([1]), pa.array(["x"]), "convert the data"),
    (pa.array([1]), pa.array([0.5]), "pass --evolve"),
    (pa.array([True]), pa.array(["x"]), "convert the data"),
    (UTC, NAIVE, "say in which zone they are"),
    (NAIVE, UTC, "take the times without the zone"),
    (pa.array([date(2026, 1, 1)]), UTC, "take the times without the zone"),
    (pa.array([{"a": 1}]), pa.array([{"b": 1}]), "pass --evolve"),
    (pa.array([1]), pa.array([None], pa.int64()), "fill or drop them"),
]


@pytest.mark.parametrize("verb", [["import", "--append"], ["upsert", "--on", "k"]])
@pytest.mark.parametrize(("old", "new", "advice"), REFUSED)
def test_a_refusal_of_data_advises_no_python(tmp_path, capsys, verb, old, new, advice):
    field = pa.field("v", old.type, new.null_count == 0)
    blz.to_blz(pa.table([[1], old], pa.schema([("k", pa.int64()), field])), tmp_path / "t.blz")
    parquet.write_table(pa.table({"k": [2], "v": new}), tmp_path / "d.parquet")
    paths = [str(tmp_path / "d.parquet"), str(tmp_path / "t.blz")]
    assert main([verb[0], *paths, *verb[1:]]) == 1
    said = capsys.readouterr().err
    assert said.endswith(f"; {advice}\n")
    assert not _PYTHON.search(said.partition("; ")[2])


def test_an_error_about_a_path_advises_a_command(tmp_path, capsys):
    assert main(["cat", str(tmp_path / "t.blz")]) == 1
    assert capsys.readouterr().err.endswith("; make one with `blz import`\n")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "d.parquet")
    assert main(["info", str(tmp_path / "d.parquet")]) == 1
    # What another library stored is read by that library.
    assert "; read it with pandas.read_parquet(" in capsys.readouterr().err
