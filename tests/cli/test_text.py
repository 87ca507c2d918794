"""Text becomes a table without a changed value: `blz import` and `blz upsert` of CSV and NDJSON."""

import io
import json
import math
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import permutations, product
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.cli import inference, main, sources
from blztable.cli.inference import check_floats

LONG = 2**53 + 1


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command that succeeds, and return what it printed; `given` is standard input."""

    def run(*arguments, given="", code=0) -> str:
        data = given.encode() if isinstance(given, str) else given
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        found = main([str(one) for one in arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return out if code == 0 else err

    return run


@pytest.fixture(params=["csv", "tsv", "ndjson", "array"])
def imported(run, request):
    """Return a function that imports one column of numbers, and returns type and values."""

    def imported(texts, *options):
        if request.param in ("csv", "tsv"):
            given, format = "\n".join(["a,b", *(f"{text},x" for text in texts), ""]), request.param
            given = given.replace(",", "\t") if format == "tsv" else given
        else:
            lines = [f'{{"a": {text}}}' for text in texts]
            array = request.param == "array"
            given, format = f"[{', '.join(lines)}]" if array else "\n".join(lines), "ndjson"
        run("import", "-", "t.blz", "--replace", "--format", format, *options, given=given)
        column = blz.read_table("t.blz")["a"]
        return str(column.type), column.to_pylist()

    return imported


@pytest.mark.parametrize(
    ("numbers", "type_"),
    [
        ([1, -(2**63), 2**63 - 1], "int64"),
        ([1, 2**63], "uint64"),
        ([LONG, 2**64 - 1], "uint64"),
        ([2**63, -1], "decimal128(38, 0)"),
        ([LONG, 2**64], "decimal128(38, 0)"),
        ([-(2**63) - 1, LONG], "decimal128(38, 0)"),
        ([10**38 - 1, 1 - 10**38], "decimal128(38, 0)"),
        ([10**38, 7], "string"),
        ([2**128 + 7, LONG], "string"),
        ([7, 2**127 + 2**126 + 1], "string"),
    ],
)
def test_every_integer_comes_back_digit_for_digit(imported, numbers, type_):
    found, values = imported(list(map(str, numbers)))
    assert found == type_
    assert list(map(str, values)) == list(map(str, numbers))


@pytest.mark.parametrize(
    ("texts", "type_", "values"),
    [
        (["1", "0.5"], "double", [1, 0.5]),
        ([str(2**53), "0.5"], "double", [2.0**53, 0.5]),
        ([str(2**80), "0.5"], "double", [2.0**80, 0.5]),
        (["1e3", "5e-1", "7"], "double", [1000, 0.5, 7]),
        ([str(LONG), "0.125"], "decimal128(38, 3)", [LONG, Decimal("0.125")]),
        (["0.125", str(LONG)], "decimal128(38, 3)", [Decimal("0.125"), LONG]),
        ([f"{LONG}.0", "1"], "decimal128(38, 0)", [LONG, 1]),
        ([str(LONG), "1e3"], "string", [str(LONG), "1e3"]),
        ([str(LONG), "0." + "1" * 37], "string", [str(LONG), "0." + "1" * 37]),
        (["1e400", "1"], "string", ["1e400", "1"]),
        (["1e300", "-2.5"], "double", [1e300, -2.5]),
        (["0.5", str(2**127)], "string", ["0.5", str(2**127)]),
    ],
)
def test_integers_beside_fractions_are_not_rounded(imported, texts, type_, values):
    assert imported(texts) == (type_, values)
    assert imported([*["7"] * 100, *texts])[0] == type_


def test_integers_within_structs_and_lists_keep_their_digits(run):
    lines = [
        {"s": {"id": 2**64 - 1, "l": [LONG, 0.5]}, "at": [{"t": "2026-01-01T01:00:00+01:00"}]},
        {"s": {"id": -1, "l": []}, "at": None},
        {"s": None, "at": []},
    ]
    run("import", "-", "t.blz", "--format", "ndjson", given="\n".join(map(json.dumps, lines)))
    table = blz.read_table("t.blz")
    assert table["s"].type == pa.struct(
        {"id": pa.decimal128(38, 0), "l": pa.list_(pa.decimal128(38, 1))}
    )
    assert table["s"].to_pylist() == [
        {"id": 2**64 - 1, "l": [LONG, Decimal("0.5")]},
        {"id": -1, "l": []},
        None,
    ]
    assert table["at"].to_pylist() == [[{"t": datetime(2026, 1, 1, tzinfo=UTC)}], None, []]


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["007", "1"], "string"),
        (["1", "-01"], "string"),
        (["0", "-0", "10"], "int64"),
        (["0.5", "00.5"], "string"),
        (["0x1F", "1"], "string"),
        (["+5", "1"], "string"),
        (["1_000", "1"], "string"),
        ([" 7 ", "8"], "int64"),
        ([" 7.5", "8\t"], "double"),
        (["nan", "inf", "-inf", "1.5"], "double"),
        (["nan(7)", "1.5"], "string"),
        (["1", "0", "true"], "string"),
        (["true", "False", "TRUE"], "bool"),
        (["2026-01-01", "0001-01-01"], "date32[day]"),
        (["2026-01-01", "2026-02-30"], "string"),
        (["2026-01-01", "2026-01-01 10:00"], "timestamp[s]"),
        (["2026-01-01", "2026-01-01T10:00:00.5"], "timestamp[ns]"),
        (["0001-01-01", "2026-01-01T10:00:00.5"], "string"),
        (["2026-01-01T10:00:00.1234567891"], "string"),
        (["2026-01-01T10:00Z", "2026-01-01 10:00:00.5+02:00"], "timestamp[ns, tz=UTC]"),
        (["2026-01-01T10:00Z", "2026-01-01T10:00"], "string"),
        (["10:30", "10:30:59"], "time32[s]"),
        (["10:30", "25:00"], "string"),
        (["10:30", "10:30:59.5"], "string"),
        (["2026-01-01", "5"], "string"),
    ],
)
def test_a_type_of_csv_is_that_of_all_its_values_in_any_order_and_block(run, texts, type_):
    for order in (texts, texts[::-1], [*texts[:1] * 100, *texts], [*texts, *texts[-1:] * 100]):
        text = "\n".join(["a,b", *(f"{value},x" for value in order), ""])
        types = set()
        for block in (tuning.current.block_bytes, 64):
            with tuning.tuned(block_bytes=block):
                run("import", "-", "t.blz", "--replace", given=text)
            column = blz.read_table("t.blz")["a"]
            types.add(str(column.type))
            if type_ == "string":
                assert column.to_pylist() == order
        assert types == {type_}


def test_times_of_ndjson_keep_their_instants(run):
    texts = ["2026-01-01T00:00:00+02:00", "2026-01-01T00:00:00Z", None]

    def read(*texts):
        lines = (json.dumps({"t": text}) for text in texts)
        run("import", "-", "t.blz", "--replace", "--format", "ndjson", given="\n".join(lines))
        return blz.read_table("t.blz")["t"]

    found = read(*texts)
    assert found.type == pa.timestamp("s", "UTC")
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    assert found.to_pylist() == [
        midnight.replace(year=2025, month=12, day=31, hour=22),
        midnight,
        None,
    ]
    assert read("2026-01-01T00:00:00.25Z").type == pa.timestamp("ns", "UTC")
    for mixed in (["2026-01-01", "2026-01-01T00:00:00Z"], [texts[0], "2026-01-01T00:00:00"]):
        assert read(*mixed).to_pylist() == mixed
    assert read("2026-01-01", "2026-01-01T10:00:00").type == pa.timestamp("s")


@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_a_time_with_an_offset_is_not_appended_to_times_without(run, format):
    blz.to_blz(pa.table({"t": pa.array([datetime(2026, 1, 1)], pa.timestamp("us"))}), "t.blz")
    given = {
        "csv": "t\n2026-01-01T12:00\n2026-01-01T12:00:00+02:00\n",
        "ndjson": '{"t": "2026-01-01T12:00"}\n{"t": "2026-01-01T12:00:00+02:00"}\n',
    }[format]
    said = run("import", "-", "t.blz", "--append", "--format", format, given=given, code=1)
    assert "row 2: " in said
    assert "zone offset" in said
    assert len(blz.open("t.blz")) == 1


@pytest.mark.parametrize(
    ("type_", "long"),
    [(pa.float64(), str(LONG)), (pa.float32(), "16777217"), (pa.float16(), "2049")],
    ids=str,
)
@pytest.mark.parametrize("format", ["csv", "ndjson"])
@pytest.mark.parametrize("verb", [["import", "--append"], ["upsert", "--on", "k"]])
def test_an_integer_that_a_float_column_would_round_is_refused(run, verb, format, type_, long):
    blz.to_blz(pa.table({"k": [1], "x": pa.array([0.5], type_)}), "t.blz")
    rows = [(2, "1.5"), (3, long), (4, "7")]
    given = {
        "csv": "k,x\n" + "".join(f"{k},{x}\n" for k, x in rows),
        "ndjson": "".join(f'{{"k": {k}, "x": {x}}}\n' for k, x in rows),
    }[format]
    command = [verb[0], "-", "t.blz", *verb[1:], "--format", format]
    said = run(*command, given=given, code=1)
    assert "standard input: " in said
    assert "row 2: " in said
    assert rows[1][1] in said
    assert "--dtype" in said
    assert blz.read_table("t.blz").num_rows == 1
    run(*command, "--dtype", f"x={type_}", given=given)
    assert blz.read_table("t.blz")["x"].to_pylist()[1] == 1.5


@pytest.mark.parametrize("format", ["csv", "ndjson"])
@pytest.mark.parametrize("verb", [["import", "--append"], ["upsert", "--on", "k"]])
def test_numbers_go_into_a_column_of_half_floats(run, verb, format):
    blz.to_blz(pa.table({"k": [1], "x": pa.array([0.5], pa.float16())}), "t.blz")

    def text(number):
        return (
            f"k,x\n2,0.25\n3,{number}\n"
            if format == "csv"
            else (f'{{"k": 2, "x": 0.25}}\n{{"k": 3, "x": {number}}}\n')
        )

    command = [verb[0], "-", "t.blz", *verb[1:], "--format", format]
    for number in ("65505", "70000", "1e5", str(LONG)):
        said = run(*command, given=text(number), code=1)
        assert "standard input: " in said
        assert "row 2" in said
        assert "halffloat" in said
    run(*command, given=text("65504"))
    assert blz.read_table("t.blz")["x"].to_pylist() == [0.5, 0.25, 65504.0]


def test_numbers_of_ndjson_become_text_by_an_option_or_in_a_column_of_text(run):
    given = '{"id": 12345678901234567890123456789012345678901}\n{"id": "007"}\n{"id": 1.50}\n'
    texts = ["12345678901234567890123456789012345678901", "007", "1.50"]
    options = ["--format", "ndjson"]
    assert "--dtype id=string" in run("import", "-", "t.blz", *options, given=given, code=1)
    run("import", "-", "t.blz", *options, "--dtype", "id=string", given=given)
    assert blz.read_table("t.blz")["id"].to_pylist() == texts
    run("import", "-", "t.blz", "--append", *options, given=given)
    assert blz.read_table("t.blz")["id"].to_pylist() == texts * 2


@pytest.mark.parametrize("number", ["18446744073709551615", "12345678901234567890123", "0.12345"])
@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_numbers_are_appended_to_columns_of_wide_types(run, number, format):
    type_ = {1: pa.decimal128(30, 5), 20: pa.uint64(), 23: pa.decimal128(38, 0)}
    schema = pa.schema({"a": type_[len(number.split(".")[0])]})
    blz.create("t.blz", schema).close()
    given = {"csv": f"a\n{number}\n", "ndjson": f'{{"a": {number}}}\n'}[format]
    run("import", "-", "t.blz", "--append", "--format", format, given=given)
    assert [str(value) for value in blz.read_table("t.blz")["a"].to_pylist()] == [number]


@pytest.mark.parametrize("size", [16, 64, 8 << 20])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("between", [0, 1, 80])
@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_a_negative_zero_has_one_type_wherever_a_file_is_cut(
    run, tuned, format, between, order, size
):
    tuned(block_bytes=size)
    numbers = [0, *[3] * between, 2**63][::order]
    texts = [str(number) if number else "-0" for number in numbers]
    form = {"csv": "{}", "ndjson": '{{"a": {}}}'}[format]
    given = "\n".join([*(["a"] if format == "csv" else []), *map(form.format, texts)])
    run("import", "-", "t.blz", "--format", format, given=given)
    found = blz.read_table("t.blz")["a"]
    assert found.type == pa.decimal128(38, 0)
    assert list(map(int, found.to_pylist())) == numbers


@pytest.mark.parametrize("type_", ["int8", "int64", "uint64", "double", "decimal(5,2)"])
def test_a_column_of_numbers_takes_a_plus_in_each_verb(run, type_):
    given = "a,k\n+1, +2\n-0,3\n"
    given = given.replace("-0", "0") if type_ == "uint64" else given
    run("import", "-", "t.blz", "--dtype", f"a={type_}", "--dtype", "k=int64", given=given)
    run("import", "-", "t.blz", "--append", given="a,k\n+5,+4\n")
    run("upsert", "-", "t.blz", "--on", "k", given="a,k\n+7,+4\n")
    assert blz.read_table("t.blz").to_pydict() == {"a": [1, 0, 7], "k": [2, 3, 4]}
    for text in ("++1", "+", "+x", "+ 1", "1+"):
        said = run("import", "-", "t.blz", "--append", given=f"a,k\n1,2\n{text},3\n", code=1)
        assert "column 'a', row 2: " in said
        assert f"'{text}'" in said
    run("import", "-", "u.blz", given="a\n+1\n")
    assert blz.read_table("u.blz")["a"].to_pylist() == ["+1"]


def test_a_decimal_takes_a_plus_and_an_error_says_what_is_no_number(run):
    command = ["import", "-", "t.blz", "--format", "csv", "--replace", "--dtype"]
    for type_ in ("decimal(5,2)", "double"):
        run(*command, f"a={type_}", given=f"a\n+1\n{'0' * 50}1\n")
        assert list(map(int, blz.read_table("t.blz")["a"].to_pylist())) == [1, 1]
        for text in ("++1", "1.2.3", "0x1", "x", "1e"):
            said = run(*command, f"a={type_}", given=f"a\n1\n{text}\n", code=1)
            assert "row 2: " in said
            assert f"'{text}'" in said
            assert "digits" not in said


@pytest.mark.parametrize("digits", [240282366920938463463374607431768211457, 10**38, 2**128])
@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_a_number_that_a_decimal_cannot_hold_is_refused(run, format, digits):
    given = {"csv": f"a\n1\n{digits}\n", "ndjson": f'{{"a": 1}}\n{{"a": {digits}}}\n'}[format]
    command = ["import", "-", "t.blz", "--format", format, "--dtype", "a=decimal(38,0)"]
    assert "row 2: " in run(*command, given=given, code=1)
    assert not blz.exists("t.blz")


@pytest.mark.parametrize(
    ("format", "first", "then", "value"),
    [
        ("csv", "n,e\n1,\n", "n,e\n2,hello\n", "hello"),
        ("csv", "n,e\n1,\n", f"n,e\n2,{2**63}\n", 2**63),
        ("ndjson", '{"n": 1, "e": null}\n', '{"n": 2, "e": "x"}\n', "x"),
        ("ndjson", '{"n": 1, "e": []}\n', '{"n": 2, "e": [{"a": 1}]}\n', [{"a": 1}]),
        ("ndjson", '{"e": {"a": null}}\n', '{"e": {"a": [1.5]}}\n', {"a": [1.5]}),
    ],
)
def test_a_column_without_values_takes_those_of_a_later_file(run, format, first, then, value):
    run("import", "-", "t.blz", "--format", format, given=first)
    before = blz.read_table("t.blz")["e"].to_pylist()
    run("import", "-", "t.blz", "--format", format, "--append", "--evolve", given=then)
    assert blz.read_table("t.blz")["e"].to_pylist() == [*before, value]


@pytest.mark.parametrize("format", ["csv", "ndjson"])
@pytest.mark.parametrize(
    ("old", "new", "type_", "values"),
    [
        ([1, 2], {"v": 2.5}, "double", [1.0, 2.5, 2.5]),
        ([None, None], {"v": 7}, "int64", [None, 7, 7]),
        ([None, None], {"v": "x"}, "string", [None, "x", "x"]),
        ([1, 2], {"v": 3, "w": "y"}, "int64", [1, 3, 3]),
    ],
    ids=["wider", "null to number", "null to text", "another column"],
)
def test_an_upsert_evolves_as_an_import_does(run, format, old, new, type_, values):
    def text(rows):
        if format == "ndjson":
            return "\n".join(map(json.dumps, rows))
        lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
        return "\n".join([",".join(rows[0]), *lines, ""])

    begun = text([{"k": key, "v": value} for key, value in zip((1, 2), old, strict=True)])
    run("import", "-", "t.blz", "--format", format, given=begun)
    given = text([{"k": key, **new} for key in (2, 3)])
    command = ["upsert", "-", "t.blz", "--on", "k", "--format", format]
    if old[0] is not None:
        run(*command, given=given, code=1)
        assert blz.open("t.blz").version == 1
    run(*command, "--evolve", given=given)
    found = blz.read_table("t.blz")
    assert (str(found["v"].type), found["v"].to_pylist()) == (type_, values)
    if "w" in new:
        assert found["w"].to_pylist() == [None, "y", "y"]


def test_an_array_of_objects_is_read_in_blocks(run, tuned):
    tuned(block_bytes=50)
    rows = [{"a": number, "t": 'x],"\n{' * (number % 5), "n": [{}]} for number in range(200)]
    for text in (json.dumps(rows), json.dumps(rows, indent=2), "\ufeff " + json.dumps(rows)):
        run("import", "-", "t.blz", "--replace", "--format", "ndjson", given=text)
        assert blz.read_table("t.blz").select(["a", "t"]).to_pylist() == [
            {"a": row["a"], "t": row["t"]} for row in rows
        ]
    run("import", "-", "by-bytes.blz", given=json.dumps(rows))
    assert len(blz.open("by-bytes.blz")) == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}, {"a": }]', "row 2: JSON parse error: Expecting value"),
        ('[{"a": 1} {"a": 2}]', "row 2: JSON parse error: Expecting ','"),
        ('[{"a": 1}, {"a": 2}', "row 3: JSON parse error"),
        ('[{"a": "', "row 1: JSON parse error: Unterminated string"),
        ('[{"a": 1}] {"a": 2}', "more follows the array"),
        ("[1, 2]", "row 1: JSON parse error"),
    ],
)
def test_an_array_that_cannot_be_read_tells_the_row(run, text, message):
    Path("x.json").write_text(text)
    said = run("import", "x.json", "t.blz", code=1)
    assert said.startswith("blz: x.json: ")
    assert message in said
    assert not blz.exists("t.blz")


def test_csv_may_have_a_decimal_comma_no_names_and_lines_to_skip(run):
    text = 'made by "us\n\n1;2,5;1.5;2026-01-01 10:00:00.5\n-3;4;x;2026-01-02\nNA;-;y;\n'
    options = ["--delimiter", ";", "--decimal", ",", "--no-header", "--skip", 2]
    options += ["--null", "NA", "--null", "-"]
    run("import", "-", "t.blz", *options, given=text)
    table = blz.read_table("t.blz")
    assert table["f0"].to_pylist() == [1, -3, None]
    assert table["f1"].to_pylist() == [2.5, 4, None]
    assert table["f2"].to_pylist() == ["1.5", "x", "y"]
    assert table["f3"].type == pa.timestamp("ns")
    run("import", "-", "d.blz", *options, "--dtype", "f1=decimal(9,2)", given=text)
    assert blz.read_table("d.blz")["f1"].to_pylist() == [Decimal("2.5"), 4, None]
    # Rows are counted without the lines before them.
    typed = [*options, "--dtype", "f2=int64"]
    assert "column 'f2', row 1: " in run("import", "-", "e.blz", *typed, given=text, code=1)
    ragged = text.replace("-3;4;", "-3;")
    assert ": row 2: Expected 4" in run("import", "-", "e.blz", *options, given=ragged, code=1)
    run("import", "-", "t.blz", "--append", *options, given="\n\n1;12,25;z;\n")
    assert blz.read_table("t.blz")["f1"].to_pylist()[-1] == 12.25


@pytest.mark.parametrize(
    ("content", "at"),
    [
        (b"caf\xe9,b\n1,2\n", "line 1"),
        (b"a,b\n1,x\n2,\xe9\n", "column 'b', row 2"),
        (b"a,b\n" + b"1,x\n" * 40_000 + b"2,\xe9\n", "column 'b', row 40,001"),
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "line 1"),
    ],
)
def test_bytes_that_are_no_utf8_are_named_with_the_remedy(run, content, at):
    Path("x.csv").write_bytes(content)
    said = run("import", "x.csv", "t.blz", code=1)
    assert said.startswith(f"blz: x.csv: {at}")
    assert "--encoding latin-1" in said
    if b"\xe9" in content:
        run("import", "x.csv", "t.blz", "--encoding", "latin-1")
        assert "é" in run("cat", "t.blz")


# A double has 15 digits at least.
DECIMALS = st.integers(-(10**15) + 1, 10**15 - 1).flatmap(
    lambda digits: st.integers(0, 15).map(lambda places: Decimal(digits).scaleb(-places))
)
INTEGERS = st.one_of(
    st.integers(-9, 99),
    st.integers(-(2**54), 2**54),
    st.integers(-(2**64), 2**65),
    st.integers(-(10**41), 10**41),
)
VALUES = st.one_of(INTEGERS, DECIMALS, st.dates(), st.datetimes(), st.none())
COLUMN = st.lists(
    st.sampled_from([INTEGERS, DECIMALS, INTEGERS | DECIMALS, st.dates(), VALUES]), min_size=1
).flatmap(lambda kinds: st.lists(st.one_of(kinds[:2]), min_size=1, max_size=12))
BLOCKS = st.sampled_from([48, 64, 200, 1 << 20])


def as_text(value):
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def read_all(path, block):
    """Read a file as an import does, and return its rows."""
    with tuning.tuned(block_bytes=block), sources.SourceFiles([str(path)]) as files:
        while True:
            try:
                return pa.Table.from_batches(list(files.batches()))
            except sources.Widened:
                continue


def is_kept(text: str, value) -> bool:
    """True if a value says what its text says, to the digit."""
    if isinstance(value, str):
        return value == text
    if isinstance(value, float):
        # Python tells a double by its first digits, but 2**55 is all of them.
        return Decimal(text) in (Decimal(repr(value)), Decimal(value))
    if isinstance(value, int | Decimal):
        return Decimal(value) == Decimal(text)
    if type(value) is date:
        return str(value) == text
    return value == datetime.fromisoformat(text)


@settings(max_examples=75, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=COLUMN, block=BLOCKS)
@example(values=[LONG, Decimal("0.5")], block=48)
@example(values=[2**63, -1], block=48)
@example(values=[-(2**70), -(2**70), Decimal("0.0")], block=48)
def test_any_csv_of_integers_decimals_and_dates_comes_back_to_the_digit(place, values, block):
    texts = ["" if value is None else as_text(value) for value in values]
    path = place / "any.csv"
    path.write_text("\n".join(["a,b", *(f"{text},x" for text in texts), ""]))
    whole, cut = read_all(path, 1 << 20), read_all(path, block)
    assert whole.schema == cut.schema
    assert whole["a"].to_pylist() == cut["a"].to_pylist()
    for text, value in zip(texts, _plain(whole["a"]), strict=True):
        assert value is None if not text else is_kept(text, value)


@settings(max_examples=75, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=COLUMN, block=BLOCKS, depth=st.integers(0, 2))
@example(values=[LONG, Decimal("0.5")], block=48, depth=1)
@example(values=[Decimal("0.0"), 191221596854237155290703727658119725056], block=48, depth=0)
@example(values=[0, 0, 0, -11018467007241650176, Decimal("0.0")], block=48, depth=1)
def test_any_ndjson_of_integers_decimals_and_dates_comes_back_to_the_digit(
    place, values, block, depth
):
    texts = [None if value is None else as_text(value) for value in values]
    is_number = [isinstance(value, int | Decimal) for value in values if value is not None]
    before, behind = ('{"a": ' * depth, "}" * depth)
    path = place / "any.ndjson"
    path.write_text(
        "".join(
            f'{{"a": {before}{_json(text, value)}{behind}}}\n'
            for text, value in zip(texts, values, strict=True)
        )
    )
    if any(is_number) and not all(is_number):
        for size in (1 << 20, block):
            with pytest.raises(ValueError, match=r"any.ndjson: row [0-9]+: .*"):
                read_all(path, size)
        return
    whole, cut = read_all(path, 1 << 20), read_all(path, block)
    assert whole.schema == cut.schema
    column = whole["a"]
    for _ in range(depth):
        column = pc.struct_field(column, "a")
    for text, value in zip(texts, _plain(column), strict=True):
        assert value is None if text is None else is_kept(text, value)


def _json(text, value):
    if text is None:
        return "null"
    return text if isinstance(value, int | Decimal) else json.dumps(text)


def _plain(column):
    values = column.to_pylist()
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return [None if value is None else value.to_pydatetime() for value in values]
    return values


def test_floats_that_are_words_are_no_numbers_that_are_too_long():
    words = pa.array(["inf", "-Infinity", "NaN", None])
    check_floats(words, words.cast(pa.float64()))
    for text in ("1e400", "nan(5)", "9007199254740993", "9007199254740993.5"):
        with pytest.raises(pa.ArrowInvalid):
            check_floats(pa.array([text]), pa.array([text]).cast(pa.float64()))
    assert math.isinf(float("1e400"))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (b"[" + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]", "row 1: JSON parse error"),
        (b'[{"a": 1}, {"a": "\xff"}]', "JSON is UTF-8"),
    ],
)
def test_an_array_that_cannot_be_read_is_an_error_with_the_file(run, given, what):
    error = run("import", "-", "t.blz", given=given, code=1)
    assert "standard input: " in error
    assert what in error
    assert "--encoding" not in error


@pytest.mark.parametrize("suffix", ["csv", "ndjson"])
def test_only_a_small_part_of_a_file_is_read_twice(tmp_path, tuned, monkeypatch, suffix):
    line, begin = ("{},x\n", "a,b\n") if suffix == "csv" else ('{{"a":{},"b":"x"}}\n', "")
    file = tmp_path / f"t.{suffix}"
    file.write_text(begin + "".join(line.format(row) for row in range(40_000)))
    tuned(block_bytes=64 << 10)
    looked, read = [], inference.TextKinds.read
    # Texts that are looked at: those of `a` in CSV, and of `b` in both.
    monkeypatch.setattr(
        inference.TextKinds,
        "read",
        lambda *args, **options: looked.append(len(args[1])) or read(*args, **options),
    )
    assert main(["import", str(file), str(tmp_path / "t.blz")]) == 0
    columns = 2 if suffix == "csv" else 1
    assert 40_000 * columns <= sum(looked) < 41_500 * columns


@pytest.mark.parametrize("text", ["007", "-007", "0x1F", "00", "-00.5", "00e5"])
def test_a_number_that_would_lose_its_begin_is_text_in_any_row(text):
    for texts in (
        ["0", "-0", "0.5", "-0.5", "0e5", None, text],
        [None, text, "12"],
    ):
        for slice_ in (pa.array(texts), pa.array(["1", *texts])[1:]):
            for before in ("1", "1.5"):
                kinds = inference.TextKinds()
                kinds.read(pa.array([before]))
                kinds.read(slice_)
                assert kinds.read(slice_).equals(slice_)
    kinds = inference.TextKinds()
    kinds.read(pa.array(["0", "-0.5", "0e5", None, "0.0"]))
    assert kinds.type == pa.float64()


DEEP = 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ' * DEEP + "1" + "}" * DEEP, "nested 20,000 deep"),
        ('{"a": ' + "[" * DEEP + "]" * DEEP + "}", "nested 20,001 deep"),
        ('{"a": "[", "b": {"\\"]": ' + "[" * DEEP + "]" * DEEP + "}}", "nested 20,002 deep"),
        ('{"a": ' * 600 + "1" + "}" * 600, "nested 600 deep"),
        ('{"a": ' * 101 + "1" + "}" * 101, "nested 101 deep, and 100 is the most"),
        ('{"a":\n' * DEEP + "1" + "}" * DEEP, ""),
    ],
    ids=["objects", "lists", "behind texts", "less deep", "least deep", "over lines"],
)
@pytest.mark.parametrize("verb", [["import", "--append"], ["upsert", "--on", "b"]])
def test_ndjson_that_is_nested_too_deep_is_an_error_with_its_row(run, verb, text, message):
    blz.to_blz(pa.table({"b": [1]}), "t.blz")
    Path("x.ndjson").write_text('{"b": 1}\n\n' + text + "\n")
    said = run(verb[0], "x.ndjson", "t.blz", *verb[1:], "--format", "ndjson", code=1)
    assert said.startswith(f"blz: x.ndjson: row 2: {message}")
    assert blz.open("t.blz").version == 1


def test_brackets_within_texts_are_no_depth(run):
    rows = [{"a": '[{\\"[' * 50, "b": [{"c": "]"}]}] * 20
    run("import", "-", "t.blz", "--format", "ndjson", given="\n".join(map(json.dumps, rows)))
    assert blz.read_table("t.blz").to_pylist() == rows


KINDS = {"numbers": ["1", str(2**70)], "booleans": ["true"], "texts": ['"x"', '"2026-01-01"']}
KINDS |= {"lists": ["[]", "[1]"], "objects": ["{}", '{"z": "x"}']}


@pytest.mark.parametrize(("before", "after"), list(permutations(KINDS, 2)))
def test_two_kinds_in_a_column_of_ndjson_are_named_with_their_row(run, tuned, before, after):
    command = ["import", "-", "t.blz", "--replace", "--format", "ndjson"]
    both = product(KINDS[before], KINDS[after])
    shapes = {'{"a": %s}': "a", '{"s": {"a": %s}}': "s.a", '{"s": [{"a": %s}]}': "s.a"}
    for case, ((one, other), (shape, place)) in enumerate(product(both, shapes.items())):
        # One block, and blocks of a line.
        tuned(block_bytes=(1 << 20, 20)[case % 2])
        values = [one, one, "null", other, other]
        given = "\n".join(shape % value for value in values)
        said = run(*command, given=given, code=1)
        begin = f"blz: standard input: row 4: column '{place}': {after} here, and {before} before; "
        assert said.startswith(begin)
        has_remedy = place == "a" and {before, after} <= {"numbers", "booleans", "texts"}
        assert ("--dtype a=string" in said) == has_remedy
        if has_remedy:
            run(*command, "--dtype", "a=string", given=given)
            found = blz.read_table("t.blz")["a"].to_pylist()
            assert found == [None if one == "null" else one.strip('"') for one in values]
