"""The command line: its text output, its JSON output, and its error messages."""

import datetime
import decimal
import json
import math
import os
import re
import subprocess
import sys
import tomllib
import uuid
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings

import blztable as blz
from blztable.cli import main, show
from blztable.cli.plain import plain_values
from golden.sets import unpacked
from support import arrow_strategies as own
from support import stored

ROOT = Path(__file__).parents[2]
DATA = pa.table(
    {
        "city": ["Oslo", "Bern", None],
        "visits": pa.array([7, 11, 2], "i8"),
        "rating": [4.5, float("nan"), None],
    },
    schema=pa.schema(
        [
            pa.field("city", pa.string()),
            pa.field("visits", pa.int64(), nullable=False),
            pa.field("rating", pa.float64()),
        ]
    ),
)
# What errors about arguments say: these have the exit code 2.
USAGE = (
    "expected",
    "required",
    "invalid",
    "unrecognized",
    "the path is empty",
    "not allowed",
    "can be read once",
    "no type is named",
)
EVIL = "red\x1b[31m\nblz: all is well\r\u202e\x7f"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(DATA.slice(0, 1), path)
    blz.to_blz(DATA, path, storage=blz.Storage(attrs={"source": "the  front desk"}))
    return str(path)


@pytest.fixture
def run(capsys):
    """Run a command in this process; return exit code, standard output and standard error."""

    def run(*arguments) -> tuple[int, str, str]:
        code = main([str(one) for one in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def run_json(run):
    def run_json(*arguments):
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, "")
        return strictly(out)

    return run_json


def strictly(text: str):
    """Parse one JSON document of printable ASCII; NaN is an error."""

    def refuse(word):
        raise ValueError(f"{word} is no JSON")

    assert text.rstrip("\n").isprintable()
    assert text.isascii()
    return json.loads(text, parse_constant=refuse)


def made(table, number: int) -> str:
    """Return the time of a version's commit, to the second."""
    (time,) = (one.time for one in table.versions() if one.number == number)
    return f"{time:%Y-%m-%dT%H:%M:%S}Z"


def damage(path, number: int) -> None:
    """Flip a bit in the head of a version."""
    manifest = Path(path, "meta/manifest", f"{number:020}")
    data = bytearray(manifest.read_bytes())
    data[20] ^= 1
    manifest.write_bytes(data)


def test_info_says_what_a_table_is(run, run_json, path):
    code, out, err = run("info", path)
    assert (code, err) == (0, "")
    assert f"path:       {path}\nversion:    2\n" in out
    assert "operation:  replace\nrows:       3\ncolumns:    3\nrow groups: 1\n" in out
    assert 'attribute source: "the  front desk"\n' in out
    with blz.open(path) as table:
        assert run_json("info", path) == {
            "path": path,
            "version": 2,
            "time": made(table, 2),
            "operation": "replace",
            "rows": 3,
            "columns": 3,
            "row_groups": 1,
            "deleted_rows": 0,
            "sort_by": [],
            "digits": {},
            "nbytes": table.nbytes,
            "cbytes": table.cbytes,
            "ratio": round(table.nbytes / table.cbytes, 3),
            "tags": {},
            "disk": {**asdict(table.disk_usage()), "total": table.disk_usage().total},
            "attributes": {"source": "the  front desk"},
        }


def test_tags_name_versions_in_the_shell(run, run_json, path):
    assert run("tag", path, "first", 1) == (0, "first: version 1\n", "")
    assert run_json("tag", path, "newest")["tags"] == {"first": 1, "newest": 3}
    assert run("count", path, "--at", "first") == (0, "1\n", "")
    assert run_json("info", path)["tags"] == {"first": 1, "newest": 3}
    assert [one["tags"] for one in run_json("versions", path)["versions"]][:3] == [
        ["first"],
        [],
        ["newest"],
    ]
    assert run("restore", path, "first")[1].endswith("the contents of version first; rows: 1\n")
    assert run("diff", path, "first", "newest") == run("diff", path, 1, 3)
    assert run("tag", path, "first", "--remove")[0] == 0
    code, _, err = run("tag", path, "first", "--remove")
    assert (code, "there is no tag 'first'" in err) == (2, True)
    assert "has no tag 'first'" in run("head", path, "--at", "first")[2]


def test_a_table_is_shown_as_it_was_at_a_time(run, path):
    with blz.open(path) as t:
        first = t.versions()[0].time
    assert run("count", path, "--at", first.isoformat()) == (0, "1\n", "")
    assert "has no version of" in run("count", path, "--at", "2001-01-01")[2]


def test_repair_tells_what_is_lost(run, run_json, path):
    assert run("repair", path) == (0, "version 2: nothing is lost\n", "")
    for file in Path(path).rglob("__*__.bin"):
        file.write_bytes(b"x" * file.stat().st_size)
    assert run("verify", path)[0] == 3
    assert "are left out" in run("repair", path)[1]
    assert run("verify", path)[0] == 0
    assert run_json("repair", path, "--null")["lost"] == []


def test_info_shows_attributes_that_are_no_json(run, run_json, tmp_path):
    attrs = {
        "seen": np.datetime64("2020-01-02T03", "ms"),
        "counts": np.array([1, 2], "u1"),
        "means": [np.float32(0.1), float("nan"), {"deep": np.inf}],
        "flag": np.bool_(True),
        "at": pd.Timestamp("2020-01-02"),
    }
    blz.to_blz({"a": [1]}, tmp_path / "t.blz", storage=blz.Storage(attrs=attrs))
    assert run_json("info", str(tmp_path / "t.blz"))["attributes"] == {
        "seen": "2020-01-02T03:00:00.000",
        "counts": [1, 2],
        "means": [0.1, "NaN", {"deep": "Infinity"}],
        "flag": True,
        "at": "2020-01-02 00:00:00",
    }
    assert 'attribute means: [0.1, "NaN"' in run("info", str(tmp_path / "t.blz"))[1]


def test_schema_says_names_and_types(run, run_json, path):
    assert run("schema", path)[1] == ("city    string\nvisits  int64   not null\nrating  double\n")
    assert run_json("schema", path)["columns"][1] == {
        "name": "visits",
        "type": "int64",
        "nullable": False,
        "digits": None,
    }


def test_info_and_schema_say_how_many_digits_are_kept(run, run_json, tmp_path):
    path = str(tmp_path / "t.blz")
    blz.to_blz(
        {"volts": [1.5], EVIL: [2.5], "n": [1]},
        path,
        storage=blz.Storage(columns={"volts": blz.Storage(digits=3), EVIL: blz.Storage(digits=2)}),
    )
    assert run_json("info", path)["digits"] == {"volts": 3, EVIL: 2}
    assert "\ndigits:     volts 3, " in run("info", path)[1]
    assert [one["digits"] for one in run_json("schema", path)["columns"]] == [3, 2, None]
    lines = run("schema", path)[1].splitlines()
    assert [line.split("double")[-1].strip() for line in lines[:2]] == ["3 digits", "2 digits"]


def test_head_shows_rows_under_their_names(run, run_json, path):
    assert run("head", path)[1] == (
        "city  visits  rating\nOslo  7       4.5\nBern  11      NaN\n      2\n"
    )
    assert (
        run("head", path, "-n", 1, "--columns", "visits,city")[1] == "visits  city\n7       Oslo\n"
    )
    assert run_json("head", path) == {
        "columns": ["city", "visits", "rating"],
        "types": ["string", "int64", "double"],
        "rows": [["Oslo", 7, 4.5], ["Bern", 11, "NaN"], [None, 2, None]],
    }


def test_head_shows_values_within_others_as_it_shows_them_alone(run_json, tmp_path):
    day = datetime.datetime(2020, 1, 1)
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array([b"a", b"b"])]
    )
    numbers = pa.array([uuid.UUID(int=1).bytes, None], pa.binary(16))
    table = pa.table(
        {
            "struct": [{"d": decimal.Decimal("1.5"), "b": b"\x01", "f": math.nan, "t": day}, None],
            "list": [[math.inf, None], []],
            "map": pa.array([[(b"k", 1.5)], []], pa.map_(pa.binary(), pa.float64())),
            "view": pa.array([[0.1], None], pa.list_view(pa.float32())),
            "union": union,
            "runs": pc.run_end_encode(pa.array([b"r", b"r"])),
            "uuid": pa.ExtensionArray.from_storage(pa.uuid(), numbers),
            "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())),
            "empty": pa.array([{}, None], pa.struct([])),
        }
    )
    path = str(tmp_path / "t.blz")
    blz.to_blz(table, path)
    first = {"d": "1.5", "b": "01", "f": "NaN", "t": "2020-01-01T00:00:00.000000"}
    assert run_json("head", path)["rows"] == [
        [first, ["Infinity", None], [["6b", 1.5]], [0.1], 1, "72", str(uuid.UUID(int=1)), True, {}],
        [None, [], [], None, "62", "72", None, False, None],
    ]


def test_another_version_can_be_asked_for(run_json, path):
    assert run_json("info", path, "--at", 1)["rows"] == 1
    assert run_json("head", path, "--version-number", 1)["rows"] == [["Oslo", 7, 4.5]]


def test_a_column_whose_name_has_a_comma_can_be_asked_for(run, tmp_path):
    blz.to_blz({"a,b": [1], "a": [2]}, tmp_path / "t.blz")
    assert run("head", tmp_path / "t.blz", "--columns", "a,b")[1] == "a,b\n1\n"


def test_wide_tables_and_long_values_are_elided(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    blz.to_blz({f"column{at}": ["x" * 100] for at in range(30)}, tmp_path / "t.blz")
    lines = run("head", tmp_path / "t.blz")[1].splitlines()
    assert lines[1] == "x" * (show.CELL - 3) + "..."
    assert lines[-1] == "... and 29 more columns"
    assert max(map(len, lines)) <= 40


def test_tables_without_rows_or_columns_are_shown(run, run_json, tmp_path):
    blz.to_blz(DATA.slice(0, 0), tmp_path / "rows.blz")
    blz.to_blz(DATA.select([]), tmp_path / "columns.blz")
    for name in ("rows.blz", "columns.blz"):
        for command in ("info", "schema", "head", "verify", "versions"):
            assert run(command, tmp_path / name)[0] == 0
            run_json(command, tmp_path / name)
    assert run_json("info", tmp_path / "columns.blz")["ratio"] is None
    assert run_json("head", tmp_path / "columns.blz")["rows"] == [[], [], []]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(own.tables())
def test_any_value_is_valid_json(table):
    found = strictly(show.json_text(show.head(table)))
    assert len(found["rows"]) == table.num_rows
    for column in table:
        assert plain_values(column).count(None) == len(column) - sum(
            scalar.is_valid and _known(scalar) for chunk in column.chunks for scalar in chunk
        )
    for line in show.head_lines(show.head(table), 80):
        assert line.isprintable()


def _known(scalar) -> bool:
    return not isinstance(scalar, pa.DictionaryScalar) or scalar.value.is_valid


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (float("-inf"), pa.float64(), "-Infinity"),
        (0.1, pa.float32(), 0.1),
        (2**64 - 1, pa.uint64(), 2**64 - 1),
        (decimal.Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (b"\x00\xff", pa.binary(), "00ff"),
        (datetime.date(2013, 1, 2), pa.date32(), "2013-01-02"),
        (datetime.time(1, 2, 3, 4), pa.time64("us"), "01:02:03.000004"),
        (1, pa.timestamp("ns"), "1970-01-01T00:00:00.000000001"),
        (1, pa.timestamp("ms", "Europe/Oslo"), "1970-01-01T00:00:00.001Z"),
        (1, pa.timestamp("s", "No/Where"), "1970-01-01T00:00:01Z"),
        (-1500, pa.duration("ms"), "PT-1.500S"),
        ((1, -2, 3), pa.month_day_nano_interval(), "P1M-2DT0.000000003S"),
        (True, pa.bool_(), True),
    ],
)
def test_values_that_json_has_no_word_for_are_text(value, type_, expected):
    if isinstance(value, int) and pa.types.is_temporal(type_):
        column = pa.chunked_array([pa.array([value, None], pa.int64()).view(type_)])
    else:
        column = pa.chunked_array([pa.array([value, None], type_)])
    assert plain_values(column) == [expected, None]


def test_what_another_program_wrote_has_no_versions(run, run_json):
    path = str(unpacked("bloscpack") / "appended.blp")
    code, out, err = run("versions", path)
    assert (code, err) == (0, "")
    assert out == f"{path} has no versions: another program wrote it\n"
    assert run_json("versions", path)["versions"] == []


def test_info_and_versions_count_the_deleted_rows(run, run_json, tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"n": range(100)}, path)
    assert "deleted" not in run("info", path)[1]
    run("delete", path, "--where", "n in (3, 50)")
    assert "deleted rows: 2" in run("info", path)[1]
    assert [one["deleted_rows"] for one in run_json("versions", path)["versions"]] == [0, 2]


def test_versions_lists_them_with_what_made_them(run, run_json, path):
    with blz.open(path, "a") as table:
        table.append(DATA, commit_id="monday")
        first, third = made(table, 1), made(table, 3)
    code, out, err = run("versions", path)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    seconds = [str(one["seconds"]) for one in run_json("versions", path)["versions"]]
    assert lines[0][3:7] == ["rows", "appended", "updated", "deleted"]
    assert lines[1] == ["1", first, "create", "1", "1", seconds[0], "1"]
    assert lines[3] == ["3", third, "append", "6", "3", seconds[2], "2", "monday"]
    newest = run_json("versions", path)["versions"][2]
    assert newest.pop("seconds") > 0
    assert newest == {
        "version": 3,
        "time": third,
        "operation": "append",
        "rows": 6,
        "columns": 3,
        "row_groups": 2,
        "deleted_rows": 0,
        "rows_appended": 3,
        "rows_updated": 0,
        "rows_deleted": 0,
        "commit_ids": ["monday"],
        "tags": [],
        "damage": None,
    }


def test_restore_commits_what_a_version_held(run, run_json, path):
    assert run("restore", path, 1) == (0, "version 3 has the contents of version 1; rows: 1\n", "")
    assert run_json("restore", path, 2) == {"path": path, "version": 4, "restored": 2, "rows": 3}
    assert blz.read_table(path)["visits"].to_pylist() == [7, 11, 2]


def test_versions_and_restore_work_beside_a_damaged_newest_version(run, run_json, path):
    damage(path, 2)
    assert run("info", path)[0] == 3
    code, out, err = run("versions", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[2].split() == ["2", "damaged"]
    assert out.splitlines()[3].startswith("version 2 is damaged: ")
    first, second = run_json("versions", path)["versions"]
    assert (first["rows"], first["damage"], second["rows"]) == (1, None, None)
    assert second["damage"]
    assert run("restore", path, 1)[0] == 0
    assert run_json("info", path)["rows"] == 1


def test_where_no_version_is_intact_versions_says_so(run, path):
    damage(path, 1)
    damage(path, 2)
    code, out, err = run("versions", path)
    assert (code, out) == (3, "")
    assert "00002: " in err


def test_compact_joins_row_groups_and_sorts(run, run_json, path):
    with blz.open(path, "a") as table:
        table.append(DATA)
    assert run("compact", path) == (0, "compacted as version 4; row groups: 1\n", "")
    assert run("compact", path) == (0, "version 4 is compact already; row groups: 1\n", "")
    assert run_json("compact", path, "--sort-by", "visits,city")["version"] == 5
    assert blz.read_table(path)["visits"].to_pylist() == [2, 2, 7, 7, 11, 11]


def test_info_shows_the_order_that_compact_sorts_by_again(run, run_json, tmp_path):
    path = str(tmp_path / "sorted.blz")
    blz.to_blz({"a": [2, 1], EVIL: [1, 2]}, path, sort_by=["a", (EVIL, "descending")])
    blz.to_blz({"a": [0], EVIL: [3]}, path, mode="a")
    found = run_json("info", path)
    assert found["sort_by"] == [["a", "ascending"], [EVIL, "descending"]]
    line = next(line for line in run("info", path)[1].split("\n") if line.startswith("sort by"))
    assert line.startswith("sort by:    a, red")
    assert line.endswith(" descending")
    assert line.isprintable()
    run("compact", path)
    assert blz.read_table(path)["a"].to_pylist() == [0, 1, 2]


def test_a_column_to_sort_by_may_have_a_comma(run, tmp_path):
    blz.to_blz({"a,b": [2, 1]}, tmp_path / "t.blz")
    assert run("compact", tmp_path / "t.blz", "--sort-by", "a,b")[0] == 0
    assert blz.read_table(tmp_path / "t.blz")["a,b"].to_pylist() == [1, 2]


def test_vacuum_says_what_went_and_what_someone_holds(run, run_json, path):
    with blz.open(path, "a") as table:
        table.configure(keep_versions=10)
    blz.to_blz(DATA, path)
    orphan = Path(path, "data/col0/__7__.bin")
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"left")
    with blz.open(path, version=1):
        out = run("vacuum", path, "--keep", 2)[1]
    assert re.fullmatch(
        r"removed: versions 2; \d+ files that no version uses \([\d,]+ bytes\)\n"
        "kept, because they are open elsewhere: versions 1\n",
        out,
    )
    assert not orphan.exists()
    found = run_json("vacuum", path, "--older-than", 0, "--wait", 0)
    assert found.pop("files") > 0
    assert found.pop("nbytes") > 0
    assert found == {"path": path, "versions": [1, 3], "pinned": [], "damaged": []}
    assert (
        run("vacuum", path)[1] == "removed: versions none; 0 files that no version uses (0 bytes)\n"
    )


def test_vacuum_waits_for_a_writer_as_long_as_it_is_told(run, path):
    with blz.open(path, "a") as table, table.transaction():
        code, out, err = run("vacuum", path, "--wait", "0.01")
    assert (code, out) == (1, "")
    assert "a writer or a transaction was active" in err
    assert "for all 0.01 seconds" in err


def test_vacuum_beside_a_damaged_version_removes_nothing_and_fails(run, path):
    damage(path, 1)
    code, out, err = run("vacuum", path)
    assert (code, err) == (3, "")
    assert out == "nothing was removed; versions with damaged manifests: 1\n"
    # The version and the files that only it names are removed after the retention time.
    assert run("vacuum", path, "--keep", 1)[0] == 0


@pytest.mark.usefixtures("own_files_here")
def test_verify_tells_what_is_wrong_by_its_exit_code_too(run, path):
    assert run("verify", path)[0] == 0
    with blz.open(path) as table:
        key = stored.key(table, "visits")
    os.unlink(os.path.join(path, key))
    for options in ([], ["--quick"]):
        code, out, err = run("verify", path, *options)
        assert (code, err) == (3, "")
        _, problem, intact = out.splitlines()
        assert problem.startswith(f"{key}, column 'visits', rows 0 to 3: the file is missing")
        assert intact == "intact in all columns: rows none"
        assert ("no chunks" in out) == bool(options)
    code, out, err = run("verify", path, "--json")
    assert (code, err) == (3, "")
    report = strictly(out)
    assert report["path"] == path
    assert not report["is_intact"]
    assert report["problems"][0]["file"] == key
    assert report["columns"][0] == {"name": "city", "intact_rows": [[0, 3]]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "nowhere"], "no table at"),
        (["info", ""], "the path is empty"),
        (["info", "PATH", "--at", "9"], "no version 9"),
        (["info", "PATH", "--at", "x"], "has no tag 'x'"),
        (["head", "PATH", "-n", "-1"], "expected a number of rows of at least 0, not '-1'"),
        (["head", "PATH", "-n", "x"], "expected a number of rows of at least 0, not 'x'"),
        (["head", "PATH", "--columns", "nope"], "no column is named 'nope'"),
        (["head", "PATH", "--nope"], "unrecognized arguments"),
        (["versions", "nowhere"], "no table at"),
        (["restore", "PATH"], "required: VERSION"),
        (["restore", "PATH", "9"], "no version 9"),
        (["restore", "PATH", "-1"], "no version -1"),
        (["compact", "PATH", "--sort-by", "visits,nope"], "no column is named 'nope'"),
        (["compact", "PATH", "--sort-by", "city,city"], "sort_by names a column twice"),
        (["compact", "PATH", "--sort-by", "\udcff"], "no column is named '\\udcff'"),
        (["vacuum", "PATH", "--keep", "0"], "expected at least 1 version, not '0'"),
        (["vacuum", "PATH", "--older-than", "nan"], "expected seconds of at least 0, not 'nan'"),
        (["vacuum", "PATH", "--wait", "-1"], "expected seconds of at least 0, not '-1'"),
        (["nope"], "invalid choice"),
        (["count", "PATH", "--where", "visits >"], "is no condition"),
        (["count", "PATH", "--where", "nope = 1"], "no column is named 'nope'"),
        (["delete", "PATH"], "required: --where"),
        (["diff", "PATH", "9"], "no version 9"),
        (["import", "nowhere.csv", "PATH"], "No such file"),
        (["import", "PATH"], "required: TABLE"),
        (["import", "-", "-", "PATH"], "standard input can be read once"),
        (["import", "-", "PATH", "--append", "--replace"], "not allowed with argument"),
        (["import", "FILE", "PATH", "--dtype", "a"], "expected COLUMN=TYPE, not 'a'"),
        (["import", "FILE", "PATH", "--dtype", "a=nope"], "no type is named 'nope'"),
        (["import", "FILE", "PATH", "--delimiter", "ab"], "expected one character"),
        (["export", "PATH"], "required: -o/--output"),
        (["cat", "PATH", "--format", "xml"], "invalid choice"),
        (["sql", "select"], "required: [NAME=]TABLE"),
        (["sql", "select nope", "PATH"], "nope"),
        (["completion", "nosh"], "invalid choice"),
        (["info", "FILE"], "is a file"),
        *(
            ([command, "a\0b"], "embedded null")
            for command in ("info", "schema", "head", "verify", "versions", "compact", "vacuum")
        ),
        (["restore", "a\0b", "1"], "embedded null"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_cannot_be_done_is_one_line(run, path, arguments, message, as_json):
    places = {"PATH": path, "FILE": __file__}
    has_json = arguments[0] not in ("export", "cat", "completion")
    arguments = [places.get(one, one) for one in arguments] + ["--json"] * (as_json and has_json)
    code, out, err = run(*arguments)
    assert (code, out) == (2 if any(word in message for word in USAGE) else 1, "")
    assert err.startswith("blz: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.usefixtures("own_files_here")
def test_names_from_a_file_cannot_speak_to_the_terminal(run, run_json, tmp_path):
    path = tmp_path / "t.blz"
    table = pa.table({EVIL: [EVIL, "b"], "zone": pa.array([1, 2], pa.timestamp("s", "x\x1b[0m"))})
    blz.to_blz(table, path, storage=blz.Storage(attrs={EVIL: EVIL}))
    with blz.open(path, "a") as opened:
        opened.append(table, commit_id=EVIL)
    commands = ("info", "schema", "head", "verify", "versions")
    outs = [run(command, path)[1] for command in commands]
    (path / "data/col0/__1__.bin").unlink()
    outs += [run("verify", path)[1], run("head", path)[2], run("head", path, "--columns", EVIL)[2]]
    outs += [run("info", tmp_path / EVIL)[2]]
    for out in outs:
        assert out.isascii()
        assert all(
            line.isprintable() and not line.startswith("blz: all") for line in out.split("\n")
        )
    assert run_json("schema", path)["columns"][0]["name"] == EVIL


def blz_process(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "blztable", *arguments],
        env=environment,
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **options},
    )


def test_without_a_command_it_shows_the_commands(run):
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "import" in err


def test_a_damaged_manifest_has_the_exit_code_of_damage(run, path):
    damage(path, 2)
    for command in ("info", "count", "verify"):
        assert run(command, path)[0] == 3


def test_it_runs_as_a_module(path):
    done = blz_process("head", path, "--columns", "city")
    assert done.communicate(timeout=60) == (b"city\nOslo\nBern\n\n", b"")
    assert done.returncode == 0
    done = blz_process("info", "nowhere", cwd=Path(path).parent)
    out, err = done.communicate(timeout=60)
    assert (out, err.count(b"\n"), done.returncode) == (b"", 1, 1)


def test_it_is_installed_as_a_command():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["blz"].partition(":")
    assert getattr(import_module(module), name) is main


def test_an_encoding_that_lacks_a_letter_is_no_error(tmp_path):
    blz.to_blz({"a": ["中"]}, tmp_path / "t.blz")
    done = blz_process("head", tmp_path / "t.blz", env={"PYTHONIOENCODING": "ascii"})
    assert done.communicate(timeout=60) == (b"a\n\\u4e2d\n", b"")


@pytest.mark.parametrize("command", ["info", "head"])
def test_a_closed_pipe_ends_it_quietly(tmp_path, command):
    blz.to_blz({"a": range(5000)}, tmp_path / "t.blz")
    read_end, write_end = os.pipe()
    os.close(read_end)
    # Python complains at its end about data left in a buffer.
    more = ["-n", "5000"] if command == "head" else []
    process = blz_process(
        command, tmp_path / "t.blz", *more, stdout=write_end, env={"PYTHONUNBUFFERED": ""}
    )
    os.close(write_end)
    assert process.communicate(timeout=60) == (None, b"")
    assert process.returncode == 1


def test_an_interrupt_ends_it_quietly(run, path, monkeypatch):
    def interrupted(self, *, full):
        raise KeyboardInterrupt

    monkeypatch.setattr(blz.CTable, "verify", interrupted)
    assert run("verify", path) == (130, "", "")


# Bug: a closed standard output ended in a traceback.
def test_a_closed_standard_output_is_one_line(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1]}, path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"exec '{sys.executable}' -m blztable info '{path}' >&-"
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (1, "blz: standard output is closed\n")


def test_streams_shows_how_each_column_is_stored(run, run_json, tmp_path):
    path = str(tmp_path / "streams.blz")
    numbers = [number * 37 % 1000 for number in range(1024)]
    blz.to_blz({"n": numbers}, path, storage=blz.Storage(encoding="auto"), compression="zstd")
    (column,) = run_json("streams", path)["columns"]
    (stream,) = column["streams"]
    assert column["name"] == "n"
    assert (stream["encodings"], stream["codecs"]) == (["numbers"], ["zstd, bit"])
    assert (stream["nbytes"], stream["nbytes_encoded"]) == (8192, 2048)
    title, line = run("streams", path)[1].splitlines()
    assert title.split() == [
        "column",
        "stream",
        "encodings",
        "codecs",
        "nbytes",
        "encoded",
        "cbytes",
    ]
    assert line.split()[:7] == ["n", "values", "numbers", "zstd,", "bit", "8,192", "2,048"]
