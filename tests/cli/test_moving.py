"""The commands that move rows: import, export, cat, sql, and their limits."""

import gzip
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.cli import main
from blztable.engine.version import vacuum
from blztable.storage.local import LocalStore
from blztable.storage.one_file.store import OneFileStore
from support import stored

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
BLZ = [sys.executable, "-m", "blztable"]
SALES = b'id,amt,day,city\n3,2.5,2026-01-02,Oslo\n1,,2026-01-01,"a, ""b"""\n2,7,2026-01-03,\n'
ROWS = {
    "id": [3, 1, 2],
    "amt": [2.5, None, 7],
    "day": [date(2026, 1, 2), date(2026, 1, 1), date(2026, 1, 3)],
    "city": ["Oslo", 'a, "b"', None],
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Run a command that succeeds, and return what it printed; `given` is standard input."""

    def run(*arguments, given=b"", code=0) -> str:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
        found = main([str(one) for one in arguments])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        assert found == code, err
        return (out if code == 0 else err).decode()

    return run


def rows_of(path="t.blz"):
    return blz.read_table(path).to_pydict()


def types_of(path="t.blz"):
    return {field.name: str(field.type) for field in blz.read_table(path).schema}


def test_csv_becomes_a_table_and_csv_again(run):
    Path("sales.csv").write_bytes(SALES)
    said = run("import", "sales.csv", "t.blz")
    assert said == "imported rows: 3; version 1; rows in all: 3\n"
    assert rows_of() == ROWS
    assert types_of() == {"id": "int64", "amt": "double", "day": "date32[day]", "city": "string"}
    assert run("cat", "t.blz", "--where", "amt > 3 or id = 1", "--columns", "city,id") == (
        '"city","id"\n"a, ""b""",1\n,2\n'
    )


def test_what_comes_through_a_pipe_is_appended_and_sorted_in_one_commit(run):
    run("import", "-", "t.blz", given=SALES)
    said = run("import", "-", "t.blz", "--append", "--sort-by", "id", "--json", given=SALES)
    assert json.loads(said)["rows_appended"] == 3
    assert rows_of()["id"] == [1, 1, 2, 2, 3, 3]
    with blz.open("t.blz") as table:
        assert table.version == 2
        assert table.storage.sort_by == [("id", "ascending")]


@pytest.mark.parametrize("format", ["csv", "tsv", "ndjson", "parquet", "arrow", "feather"])
def test_each_format_goes_out_and_comes_in_again(run, format):
    run("import", "-", "t.blz", given=SALES)
    if format == "feather":
        feather.write_feather(blz.read_table("t.blz"), "rows.feather")
    else:
        run("export", "t.blz", "-o", f"rows.{format}")
    day = ["--dtype", "day=date32"] if format == "ndjson" else []
    run("import", f"rows.{format}", "by-name.blz", *day)
    assert rows_of("by-name.blz") == ROWS
    if format != "tsv":
        given = Path(f"rows.{format}").read_bytes()
        run("import", "-", "by-bytes.blz", *day, given=given)
        assert rows_of("by-bytes.blz") == ROWS


def test_nested_parquet_goes_out_as_ndjson_and_as_json_within_csv(run):
    nested = pa.table(
        {
            "place": [{"city": "Oslo", "at": [1.5, None]}, None],
            "bytes": [b"\x01\xff", None],
            "when": pa.array([datetime(2026, 1, 1), None], pa.timestamp("s", "UTC")),
            "price": [Decimal("1.50"), None],
            "kind": pa.array(["x", None]).dictionary_encode(),
        }
    )
    parquet.write_table(nested, "nested.parquet")
    run("import", "nested.parquet", "t.blz")
    assert [
        json.loads(line) for line in run("cat", "t.blz", "--format", "ndjson").splitlines()
    ] == [
        {
            "place": {"city": "Oslo", "at": [1.5, None]},
            "bytes": "01ff",
            "when": "2026-01-01T00:00:00.000Z",
            "price": "1.50",
            "kind": "x",
        },
        dict.fromkeys(nested.column_names),
    ]
    assert run("cat", "t.blz").splitlines()[1] == (
        '"{""city"": ""Oslo"", ""at"": [1.5, null]}","01ff",2026-01-01 00:00:00.000Z,1.50,"x"'
    )
    run("export", "t.blz", "-o", "again.parquet", "--where", "place.city = 'Oslo'")
    assert parquet.read_table("again.parquet").to_pylist() == nested.to_pylist()[:1]


def test_names_of_columns_may_have_spaces_dots_and_quotes(run):
    run("import", "-", "t.blz", given=b'a b,a.b,"say ""hi""",or\n1,2,3,4\n5,6,7,8\n')
    where = '"a b" = 1 and "a.b" = 2 and "say ""hi""" = 3 and "or" = 4'
    assert run("count", "t.blz", "--where", where) == "1\n"
    assert run("cat", "t.blz", "--columns", "a.b,or", "--format", "ndjson").splitlines() == [
        '{"a.b": 2, "or": 4}',
        '{"a.b": 6, "or": 8}',
    ]


def test_an_int_that_becomes_a_float_or_a_text_later_has_that_type_in_all_rows(run, tuned):
    tuned(block_bytes=64)
    lines = [f"{n:04},{n},{n},2026-01-01,,true" for n in range(100)]
    lines += ["0100,1.5,x,2026-01-01 10:00,7,maybe", '"1\n2",3,4,2026-01-02,,false']
    text = "\n".join(["code,amt,name,day,late,flag", *lines, ""]).encode()
    run("import", "-", "t.blz", given=text)
    assert types_of() == {
        **{"code": "string", "amt": "double", "name": "string"},
        **{"day": "timestamp[s]", "late": "int64", "flag": "string"},
    }
    rows = rows_of()
    assert rows["code"][:2] + rows["code"][-1:] == ["0000", "0001", "1\n2"]
    assert rows["name"][99:] == ["99", "x", "4"]
    assert rows["late"][98:] == [None, None, 7, None]


def test_a_line_break_within_a_text_may_be_anywhere_in_a_block(run, tuned):
    tuned(block_bytes=64)
    texts = ["x" * (number % 7) + '\n,"' for number in range(60)]
    cells = ('"' + text.replace('"', '""') + '"' for text in texts)
    run("import", "-", "t.blz", given="\n".join(["a,b", *(f"{c},1" for c in cells)]).encode())
    assert rows_of() == {"a": texts, "b": [1] * 60}


def test_a_value_that_no_wider_type_holds_makes_a_column_of_text(run, tuned):
    tuned(block_bytes=64)
    times = ["2026-01-01 00:00:00.5"] * 20 + ["0001-01-01 00:00:00"]
    run("import", "-", "t.blz", given="\n".join(["at,n", *(f"{at},1" for at in times)]).encode())
    assert rows_of()["at"] == times
    text = b"name\n" + b"x\n" * 50 + b"\xe9\n"
    said = run("import", "-", "t.blz", "--replace", given=text, code=1)
    assert "column 'name', row 51: CSV conversion error to string: invalid UTF8 data" in said


def test_a_column_that_is_left_out_may_hold_anything(run, tuned):
    tuned(block_bytes=64)
    text = b"a,bad,c\n" + b"1,\xe9,2\n" * 30 + b"1.5,\xe9,x\n"
    run("import", "-", "--columns", "c,a", "t.blz", given=text)
    assert types_of() == {"c": "string", "a": "double"}
    said = run("import", "-", "--columns", "c,d", "u.blz", given=b"c\n1\n", code=1)
    assert "no column is named 'd'; there are ['c']" in said


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    columns=st.lists(
        st.lists(
            st.none() | st.integers(-99, 99) | st.sampled_from([1.5, "x", "2026-01-01", True]),
            min_size=30,
            max_size=30,
        ),
        min_size=1,
        max_size=3,
    ),
    size=st.sampled_from([40, 200]),
)
def test_types_do_not_depend_on_the_size_of_a_block(run, tuned, columns, size):
    rows = list(zip(*columns, strict=True))
    text = "\n".join(
        [",".join(f"c{n}" for n in range(len(columns)))]
        + [",".join("" if value is None else str(value) for value in row) for row in rows]
        + [""]
    ).encode()
    found = []
    for block in (1 << 20, size):
        tuned(block_bytes=block)
        run("import", "-", "t.blz", "--replace", given=text)
        found.append((rows_of(), types_of()))
    assert found[0] == found[1]


def test_ndjson_gets_the_type_and_the_fields_of_all_its_lines(run, tuned):
    tuned(block_bytes=64)
    lines = [{"a": n, "b": {"c": [n]}} for n in range(50)]
    lines += [{"a": 1.5, "b": {"d": "2026-01-01"}, "e": "x"}, {}, {"b": {"d": "soon", "c": []}}]
    text = "\n\n".join(map(json.dumps, lines)).encode()
    run("import", "-", "t.blz", given=text)
    table = blz.read_table("t.blz")
    assert types_of()["a"] == "double"
    assert table.num_rows == 53
    assert table["b"].to_pylist()[-3:] == [
        {"c": None, "d": "2026-01-01"},
        None,
        {"c": [], "d": "soon"},
    ]
    assert table["e"].to_pylist()[-3:] == ["x", None, None]


def test_files_of_several_formats_are_one_import(run):
    Path("one.csv").write_text("id,x\n1,2\n")
    Path("two.csv.gz").write_bytes(gzip.compress(b"x,id\n2.5,2\n"))
    Path("three.jsonl").write_text('{"id": 3, "x": 3}\n')
    parquet.write_table(pa.table({"id": [4], "x": [0.5]}), "four.pq")
    run("import", "one.csv", "two.csv.gz", "three.jsonl", "four.pq", "t.blz")
    assert rows_of() == {"id": [1, 2, 3, 4], "x": [2.0, 2.5, 3.0, 0.5]}
    with blz.open("t.blz") as table:
        assert table.version == 1


def test_files_with_other_columns_need_evolve(run):
    Path("one.csv").write_text("id\n1\n")
    Path("two.csv").write_text("id,x\n2,y\n")
    said = run("import", "one.csv", "two.csv", "t.blz", code=1)
    assert "two.csv, from row 1 on: " in said
    assert "--evolve" in said
    run("info", "t.blz", code=1)
    run("import", "one.csv", "two.csv", "t.blz", "--evolve")
    assert rows_of() == {"id": [1, 2], "x": [None, "y"]}


def test_appended_rows_have_the_types_of_the_table(run):
    schema = pa.schema(
        {
            "id": pa.int16(),
            "zip": pa.string(),
            "price": pa.decimal128(9, 2),
            "kind": pa.dictionary(pa.int8(), pa.string()),
            "note": pa.string(),
        }
    )
    blz.create("t.blz", schema).close()
    run("import", "-", "t.blz", "--append", given=b"zip,id,price,kind,note\n0010,1,1.5,a,\n")
    run("import", "-", "t.blz", "--append", given=b'{"zip":"1","id":2,"price":"2.50","kind":"b"}')
    assert types_of()["id"] == "int16"
    assert rows_of() == {
        "id": [1, 2],
        "zip": ["0010", "1"],
        "price": [Decimal("1.50"), Decimal("2.50")],
        "kind": ["a", "b"],
        "note": [None, None],
    }
    said = run("import", "-", "t.blz", "--append", given=b"id,zip,price\n3,1,1\n4.5,2,2\n", code=1)
    assert said == (
        "blz: standard input: column 'id', row 2: CSV conversion error to int16: "
        "invalid value '4.5'\n"
    )
    given = b"id,zip,price,kind,note,new\n70000,3,3,a,x,1\n"
    run("import", "-", "t.blz", "--append", "--evolve", given=given)
    assert rows_of()["id"] == [1, 2, 70000]
    assert rows_of()["new"] == [None, None, 1]


def test_an_option_gives_types_to_columns_of_any_format(run):
    types = [
        "--dtype",
        "id=int8",
        "--dtype",
        "at=timestamp[us,Europe/Oslo]",
        "--dtype",
        "p=decimal(9,2)",
    ]
    types += ["--dtype", "kind=category"]
    run("import", "-", "t.blz", *types, given=b"id,at,p,kind\n1,2026-01-01T00:00Z,1.5,x\n")
    run("export", "t.blz", "-o", "rows.parquet")
    run("import", "rows.parquet", "p.blz", "--dtype", "id=string")
    assert types_of() == {
        "id": "int8",
        "at": "timestamp[us, tz=Europe/Oslo]",
        "p": "decimal128(9, 2)",
        "kind": "dictionary<values=string, indices=int32, ordered=0>",
    }
    assert rows_of("p.blz")["id"] == ["1"]
    parquet.write_table(pa.table({"x": ["1", "2", "z"]}), "bad.parquet")
    said = run("import", "bad.parquet", "n.blz", "--dtype", "x=int64", code=1)
    assert "bad.parquet: column 'x', row 3: " in said


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", "x.csv: it is empty; CSV begins with the names"),
        ("x.csv", b"a,b\n1,2\n3\n", "x.csv: row 2: Expected 2 columns, got 1"),
        (
            "x.csv",
            b"a\n\xe9t\xe9\n",
            "column 'a', row 1: CSV conversion error to string: invalid UTF8 data; pass --encoding",
        ),
        ("x.ndjson", b"\n", "no rows, and no names of columns"),
        ("x.ndjson", b'{"a": 1}\n{"a": }\n', "x.ndjson: row 2: JSON parse error"),
        ("x.ndjson", b'{"a": 1}\n{"a": "b"}\n', "row 2: column 'a': texts here, and numbers"),
        ("x.json", b'[{"a": 1}, 2]', "row 2: JSON parse error"),
        ("x.parquet", b"PAR1", "x.parquet: parquet"),
        ("x.arrow", b"ARROW1", "x.arrow: file is too small"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(run, name, content, message):
    Path(name).write_bytes(content)
    said = run("import", name, "t.blz", code=1)
    assert message.lower() in said.lower()
    assert said.count("\n") == 1
    run("info", "t.blz", code=1)


def test_a_header_alone_is_a_table_without_rows(run):
    said = run("import", "-", "t.blz", given=b"a,b\n")
    assert said == "imported rows: 0; version 1; rows in all: 0\n"
    assert run("cat", "t.blz") == '"a","b"\n'
    run("import", "-", "t.blz", "--append", "--evolve", given=b"a,b\n1,x\n")
    assert rows_of() == {"a": [1], "b": ["x"]}
    run("import", "-", "t.blz", "--append", "--format", "ndjson")
    assert rows_of() == {"a": [1], "b": ["x"]}


def test_an_empty_line_is_a_missing_value_of_a_single_column(run):
    run("import", "-", "t.blz", given=b"a\n1\n\n3\n")
    assert rows_of() == {"a": [1, None, 3]}
    assert run("cat", "t.blz") == '"a"\n1\n\n3\n'


def test_csv_may_have_other_delimiters_encodings_and_missing_values(run):
    options = ["--delimiter", ";", "--encoding", "latin1", "--null", "NA", "--columns", "b,a"]
    run("import", "-", "t.blz", *options, given="a;b;c\né;NA;1\nNA;2;2\n".encode("latin1"))
    assert rows_of() == {"b": [None, 2], "a": ["é", None]}


def test_an_option_sets_the_codec_and_the_layout(run):
    Path("x.csv").write_text("a\n" + "".join(f"{n * n}\n" for n in range(5000)))
    run("import", "x.csv", "t.blz", "--compression", "zstd", "--layout", "file")
    assert Path("t.blz").is_file()
    assert "zstd" in run("streams", "t.blz")
    run("import", "x.csv", "t.blz", "--append")
    assert run("count", "t.blz", "--where", "a < 100") == "20\n"
    assert run("tail", "t.blz", "-n", 1) == "a\n24990001\n"


def test_a_table_that_exists_is_not_replaced_unasked(run):
    Path("x.csv").write_text("a\n1\n")
    run("import", "x.csv", "t.blz")
    assert "here: --append or --replace" in run("import", "x.csv", "t.blz", code=1)
    run("import", "--replace", "x.csv", "--sort-by", "a", "x.csv", "--null", "1", "t.blz")
    assert rows_of() == {"a": [None, None]}


KILLED = """
import os, signal, sys
from blztable import tuning
from blztable.cli import main, sources
batches = sources.SourceFiles.batches

def killed(self):
    for number, batch in enumerate(batches(self)):
        yield batch
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)

tuning.current = tuning.Tuning(block_bytes=64)
sources.SourceFiles.batches = killed
main(["import", "x.csv", sys.argv[1], "--append", "--layout", sys.argv[2]])
"""


@pytest.mark.parametrize("layout", ["directory", "file"])
def test_a_killed_import_leaves_the_table_as_it_was(run, layout):
    Path("x.csv").write_text("a\n" + "".join(f"{n}\n" for n in range(5000)))
    if layout == "file":
        run("import", "-", "t.blz", "--layout", layout, given=b"a\n1\n")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "t.blz", layout], env=ENVIRONMENT, check=False
    )
    assert done.returncode == -signal.SIGKILL
    if layout == "file":
        assert rows_of() == {"a": [1]}
    else:
        assert "nothing is committed" in run("count", "t.blz", code=1)
    run("import", "x.csv", "t.blz", "--append")
    assert run("count", "t.blz") == ("5001\n" if layout == "file" else "5000\n")


@pytest.mark.usefixtures("own_files_here")
def test_an_export_is_seen_only_when_it_is_complete(run, place):
    blz.to_blz(
        pa.table({"a": [n * 37 % 101 for n in range(10)], "b": [10] * 9 + [0]}),
        "t.blz",
        storage=blz.Storage(row_group_rows=5),
    )
    Path("out.csv").write_text("old")
    os.chmod("out.csv", 0o640)
    with blz.open("t.blz") as table:
        part = Path("t.blz", stored.key(table, "a", 1))
    content = part.read_bytes()
    part.unlink()
    assert "the file is missing" in run("export", "t.blz", "-o", "out.csv", code=3)
    assert Path("out.csv").read_text() == "old"
    assert sorted(os.listdir(place)) == ["out.csv", "t.blz"]
    part.write_bytes(content)
    Path("link.csv").symlink_to("out.csv")
    run("export", "t.blz", "-o", "link.csv", "--where", "a = 37")
    assert Path("out.csv").read_text() == '"a","b"\n37,10\n'
    assert stat.S_IMODE(Path("out.csv").stat().st_mode) == 0o640
    assert Path("link.csv").is_symlink()


def test_a_named_pipe_is_read_once(run):
    os.mkfifo("pipe.csv")
    writer = threading.Thread(target=lambda: Path("pipe.csv").write_bytes(SALES))
    writer.start()
    run("import", "pipe.csv", "t.blz")
    writer.join()
    assert rows_of() == ROWS


# Python writes the one, Arrow the other.
@pytest.mark.parametrize("format", ["ndjson", "arrow"])
def test_a_pipe_that_is_closed_ends_an_export_quietly(format):
    blz.to_blz(pa.table({"a": range(300_000)}), "t.blz")
    process = subprocess.Popen(
        [*BLZ, "cat", "t.blz", "--format", format],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_sql_asks_several_tables(run):
    run("import", "-", "sales.blz", given=SALES)
    blz.to_blz({"id": [1, 2], "name": ["x", "y"]}, "names.blz")
    query = "select name, amt from sales join n using (id) order by name"
    assert run("sql", query, "sales.blz", "n=names.blz") == "name  amt\nx\ny     7.0\n"
    assert run("sql", query, "sales.blz", "n=names.blz", "--format", "csv").splitlines()[2] == (
        '"y",7'
    )
    run("sql", "from sales where id > 1", "sales.blz", "-o", "some.parquet")
    assert parquet.read_table("some.parquet")["id"].to_pylist() == [3, 2]


@pytest.mark.parametrize("type_", [pa.float16(), pa.decimal128(5, -2)], ids=str)
def test_a_type_that_duckdb_lacks_is_told_in_one_line(run, type_):
    blz.to_blz(pa.table({"h": pa.nulls(2, type_), "k": [1, 2]}), "half.blz")
    error = run("sql", "select k from half", "half.blz", code=1)
    assert error.startswith("blz: half.blz: DuckDB lacks a type of this table (")
    assert error.count("\n") == 1
    assert "blz export --columns" in error


def test_rows_of_a_condition_are_shown_counted_explained_and_deleted(run):
    run("import", "-", "t.blz", given=SALES)
    assert run("head", "t.blz", "-n", 1, "--where", "id < 3", "--columns", "id") == "id\n1\n"
    assert run("tail", "t.blz", "-n", 1, "--where", "id < 3", "--columns", "id") == "id\n2\n"
    assert json.loads(run("count", "t.blz", "--where", "amt is null", "--json"))["rows"] == 1
    assert "filter 1: (id < 3)" in run("explain", "t.blz", "--where", "id < 3")
    assert json.loads(run("explain", "t.blz", "--json"))["rows"] == 3
    assert run("delete", "t.blz", "--where", "id = 3") == "deleted rows: 1; rows left: 2\n"
    assert json.loads(run("delete", "t.blz", "--where", "id = 3", "--json"))["rows_deleted"] == 0
    said = run("diff", "t.blz", 1)
    assert said.startswith("versions 1 to 2, rows 3 to 2\n")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_sees_a_bar(run, monkeypatch, capfdbinary, is_terminal):
    Path("x.csv").write_text("a\n1\n2\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    assert main(["import", "x.csv", "t.blz"]) == main(["export", "t.blz", "-o", "y.csv"]) == 0
    err = capfdbinary.readouterr().err.decode()
    assert ("importing: 2.00 rows" in err) == ("exporting: 100%" in err) == is_terminal


TABLES = st.fixed_dictionaries(
    {
        "n": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=8, max_size=8),
        "x": st.lists(
            st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=8, max_size=8
        ),
        "s": st.lists(st.none() | st.text(st.characters(codec="utf8"), max_size=5), min_size=8),
        "b": st.lists(st.none() | st.booleans(), min_size=8, max_size=8),
        "d": st.lists(st.none() | st.dates(), min_size=8, max_size=8),
        "t": st.lists(st.none() | st.datetimes(), min_size=8, max_size=8),
    }
)
SCHEMA = pa.schema(
    {
        **{"n": pa.int64(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_()},
        **{"d": pa.date32(), "t": pa.timestamp("us")},
    }
)


@pytest.mark.parametrize("format", ["csv", "ndjson"])
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(columns=TABLES)
def test_any_rows_go_out_and_come_in_again(run, format, columns):
    table = pa.table({name: values[:8] for name, values in columns.items()}, SCHEMA)
    blz.to_blz(table, "t.blz")
    run("export", "t.blz", "-o", "rows", "--format", format)
    types = [("--dtype", f"{field.name}={field.type}") for field in SCHEMA if field.name != "d"]
    given = ["--dtype", "d=date32", *(word for pair in types for word in pair)]
    run("import", "rows", "again.blz", "--replace", *given, "--format", format)
    assert blz.read_table("again.blz") == table


def test_rows_whose_key_is_there_are_updated_and_the_others_appended(run):
    run("import", "-", "t.blz", given=SALES)
    given = b"amt,id,day\n9,3,2026-02-01\n8,4,2026-02-02\n"
    said = run("upsert", "-", "t.blz", "--on", "id", given=given)
    assert said == "version 2: 1 row appended, 1 row updated\n"
    assert rows_of()["amt"] == [9, None, 7, 8]
    assert rows_of()["city"] == ["Oslo", 'a, "b"', None, None]
    Path("one.ndjson").write_text('{"id": 1, "amt": 1}')
    Path("two.csv").write_text("id,amt\n2,2.5\n")
    said = run("upsert", "one.ndjson", "two.csv", "t.blz", "--on", "id", "--json")
    assert json.loads(said)["rows_updated"] == 2
    assert rows_of()["amt"] == [9, 1, 2.5, 8]
    assert "row 1: CSV conversion" in run(
        "upsert", "-", "t.blz", "--on", "id", given=b"id,amt\n1,x\n", code=1
    )
    run("upsert", "-", "t.blz", "--on", "id", given=b"id,amt\n7,1\n7,2\n", code=1)
    assert rows_of()["amt"] == [9, 1, 2.5, 8]


@pytest.mark.parametrize("evolve", [[], ["--evolve"]], ids=["as it is", "evolved"])
@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(20, 2)])
def test_an_upsert_of_several_files_changes_no_value(run, type_, format, evolve):
    blz.to_blz(pa.table({"k": [1], "v": pa.array([None], type_)}), "t.blz")
    data = {
        "one": pa.table({"k": [1, 2], "v": [3, 2**53 + 1]}),
        "two": pa.table({"k": [3, 4], "v": [4.0, 0.5]}),
        "three": pa.table({"k": [5], "v": pa.array([5], pa.float16())}),
    }
    write = {"parquet": parquet.write_table, "arrow": feather.write_feather}[format]
    names = [f"{name}.{format}" for name in data]
    for name, table in zip(names, data.values(), strict=True):
        write(table, name)
    said = run("upsert", *names, "t.blz", "--on", "k", *evolve, code=1)
    assert said.startswith("blz: one.")
    assert "column 'v'" in said
    assert re.search(r"is (9007199254740993|4\.0|0\.5);|(9007199254740993|0\.5) does not fit", said)
    assert blz.read_table("t.blz").num_rows == 1


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_upsert_of_files_with_other_columns_sets_no_nulls(run, format):
    blz.to_blz({"k": [1, 2], "a": [1, 2], "b": [3, 4]}, "t.blz")
    for name, data in (("one", {"k": [1], "a": [9]}), ("two", {"k": [2], "b": [9]})):
        if format == "csv":
            pacsv.write_csv(pa.table(data), f"{name}.csv")
        else:
            parquet.write_table(pa.table(data), f"{name}.parquet")
    names = [f"{name}.{format}" for name in ("one", "two")]
    said = run("upsert", *names, "t.blz", "--on", "k", code=1)
    assert f"{names[0]}, {names[1]}: item 1 has other columns" in said
    for name in names:
        run("upsert", name, "t.blz", "--on", "k")
    assert rows_of() == {"k": [1, 2], "a": [9, 2], "b": [3, 9]}


def test_an_upsert_keeps_columns_that_no_row_has_and_nulls_fields_that_a_row_lacks(run):
    """As `t.upsert` does with a DataFrame of the same rows."""
    first = {"k": [1, 2], "a": [1, 2], "b": [3, 4]}
    given = [{"k": 1, "a": 9}, {"k": 2}]
    blz.to_blz(first, "t.blz")
    blz.to_blz(first, "frame.blz")
    run("upsert", "-", "t.blz", "--on", "k", given="\n".join(map(json.dumps, given)).encode())
    with blz.open("frame.blz", "a") as t:
        t.upsert(pd.DataFrame(given).astype({"a": "Int64"}), on="k")
    assert rows_of() == {"k": [1, 2], "a": [9, None], "b": [3, 4]}
    assert blz.read_table("frame.blz").to_pydict() == rows_of()


def test_control_characters_do_not_reach_a_terminal(run, monkeypatch):
    blz.to_blz({"a": ["red\x1b[31m", "two\nlines"]}, "t.blz")
    assert "\x1b" in run("cat", "t.blz")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    said = run("cat", "t.blz")
    assert said == '"a"\n"red\\x1b[31m"\n"two\nlines"\n'
    assert "parquet is not text" in run("cat", "t.blz", "--format", "parquet", code=2)


def test_a_script_completes_commands(run):
    pytest.importorskip("shtab")
    for shell in ("bash", "zsh", "fish", "tcsh"):
        assert "import" in run("completion", shell)


def test_work_with_a_name_is_committed_once(run):
    once = ["--commit-id", "monday"]
    for verb, then in (("--append", 3), ("--replace", 3)):
        run("import", "-", "t.blz", verb, *once, given=SALES)
        said = run("import", "-", "t.blz", verb, *once, given=SALES)
        assert said == "nothing is done: 'monday' was committed before, as version 1\n"
        assert len(blz.open("t.blz")) == then
    again = json.loads(run("import", "-", "t.blz", *once, "--json", given=SALES))
    assert (again["rows_appended"], again["version"], again["is_repeated"]) == (0, 1, True)
    new = json.loads(run("import", "-", "new.blz", *once, "--json", given=SALES))
    assert (new["rows_appended"], new["is_repeated"]) == (3, False)
    run("import", "-", "t.blz", "--append", "--sort-by", "id", "--commit-id", "sorted", given=SALES)
    run("import", "-", "t.blz", "--append", "--sort-by", "id", "--commit-id", "sorted", given=SALES)
    assert len(blz.open("t.blz")) == 6
    assert blz.open("t.blz").version == 2


def test_an_upsert_with_a_name_is_committed_once(run):
    run("import", "-", "t.blz", given=SALES)
    upsert = ["upsert", "-", "t.blz", "--on", "id", "--commit-id", "tuesday"]
    assert "1 row appended" in run(*upsert, given=b"id,amt\n9,1\n")
    said = run(*upsert, given=b"id,amt\n9,2\n")
    assert said == "nothing is done: 'tuesday' was committed before, as version 2\n"
    again = json.loads(run(*upsert, "--json", given=b"id,amt\n9,2\n"))
    assert (again["rows_updated"], again["is_repeated"]) == (0, True)
    new = json.loads(run(*upsert[:-1], "friday", "--json", given=b"id,amt\n9,1\n"))
    assert (new["rows_updated"], new["is_repeated"]) == (1, False)
    assert rows_of()["amt"][-1] == 1


@pytest.mark.parametrize("command", ["export", "sql"])
@pytest.mark.parametrize("target", ["directory", "file", "link", "part", "array", "new", "folder"])
def test_no_text_takes_the_place_of_a_table_or_an_array(run, command, target):
    blz.to_blz({"a": [1]}, "source.blz")
    Path("folder").mkdir()
    blz.to_blz(
        {"a": [1, 2, 3]},
        "t.blz",
        storage=blz.Storage(layout="directory" if target != "file" else "file"),
    )
    blz.SuperChunk.create("a.blp", np.int64).close()
    Path("link.csv").symlink_to("a.blp")
    output = {
        **{"directory": "t.blz", "file": "t.blz", "link": "link.csv", "array": "a.blp"},
        **{"part": "t.blz/data/col0/__1__.bin", "new": "t.blz/data/x.csv", "folder": "folder"},
    }[target]
    before = sorted((str(path), path.read_bytes()) for path in files_below(Path()))
    source = ["source.blz"] if command == "export" else ["from source", "source.blz"]
    for path in ([output], [output, "--format", "parquet"]):
        said = run(command, *source, "-o", *path, code=1)
        assert said.startswith(f"blz: {output} is ")
        assert "it is left as it is; choose another path" in said
    assert sorted((str(path), path.read_bytes()) for path in files_below(Path())) == before
    assert blz.read_table("t.blz")["a"].to_pylist() == [1, 2, 3]


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_names_with_commas_stand_alone_in_every_command(run):
    Path("x.csv").write_text('"a,b",c\n2,2\n1,5\n')
    run("import", "x.csv", "t.blz", "--columns", "a,b", "--sort-by", "a,b")
    assert rows_of() == {"a,b": [1, 2]}
    run("import", "x.csv", "t.blz", "--append", "--columns", "a,b", "--sort-by", "a,b")
    run("import", "x.csv", "u.blz", "--dtype", "a,b=string", "--columns", "c,a,b", code=1)
    run("import", "x.csv", "u.blz")
    run("upsert", "x.csv", "u.blz", "--on", "a,b")
    for command in ("head", "tail", "explain", "cat"):
        assert "a,b" in run(command, "u.blz", "--columns", "a,b")
    run("compact", "u.blz", "--sort-by", "a,b")
    assert rows_of("u.blz") == {"a,b": [1, 2], "c": [5, 2]}


INTERRUPTED = {
    "import": ["import", "x.csv", "t.blz", "--append"],
    "sorted": ["import", "x.csv", "t.blz", "--append", "--sort-by", "a"],
    "replace": ["import", "x.csv", "t.blz", "--replace"],
    "new": ["import", "x.csv", "new.blz"],
    "upsert": ["upsert", "x.csv", "t.blz", "--on", "a"],
    "delete": ["delete", "t.blz", "--where", "a = 1"],
    "restore": ["restore", "t.blz", "1"],
    "tag": ["tag", "t.blz", "name"],
    "compact": ["compact", "t.blz", "--sort-by", "b"],
}


@pytest.mark.parametrize("layout", ["directory", "file"])
@pytest.mark.parametrize("command", INTERRUPTED)
@pytest.mark.parametrize("is_before", [True, False])
def test_ctrl_c_behind_a_commit_says_so_and_before_it_commits_nothing(
    capsys, monkeypatch, command, layout, is_before
):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    Path("x.csv").write_text("a,b\n7,1\n")
    blz.to_blz({"a": [1, 2], "b": [2, 1]}, "t.blz", storage=blz.Storage(layout=layout))
    with monkeypatch.context() as patch:
        for kind in (LocalStore, OneFileStore):

            def publish(self, *arguments, original=kind.publish, **options):
                if is_before:
                    raise KeyboardInterrupt
                original(self, *arguments, **options)
                os.kill(os.getpid(), signal.SIGINT)

            patch.setattr(kind, "publish", publish)
        code = main(INTERRUPTED[command])
    signal.signal(signal.SIGINT, handler)
    out, err = capsys.readouterr()
    path = INTERRUPTED[command][2 if "x.csv" in INTERRUPTED[command] else 1]
    version = blz.open(path).version if blz.exists(path) else 0
    if is_before:
        assert (code, out, err) == (130, "", "")
        assert version == (0 if command == "new" else 1)
    else:
        assert code == 0
        assert version == (1 if command == "new" else 2)
        assert (out, err) == ("", f"interrupted after the commit of version {version}\n")


def test_an_erase_that_ctrl_c_ends_behind_its_commit_is_no_success(capsys, monkeypatch):
    blz.to_blz({"a": [1, 2]}, "t.blz")

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(vacuum, "vacuum", interrupted)
    assert main(["erase", "t.blz", "--where", "a = 1"]) == 1
    assert "the rows may be left; erase again" in capsys.readouterr().err
    with blz.open("t.blz") as t:
        assert [one.rows for one in t.versions()] == [2, 1]
