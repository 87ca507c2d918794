"""Conditions as text: what they mean, and what DuckDB answers to the same text."""

from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.query.expressions import decided
from blztable.engine.query.where import parse
from blztable.errors import ColumnNotFoundError, SchemaError

ODD = 'or "not".x'
TABLE = pa.table(
    {
        "row": pa.array(range(8)),
        "n": pa.array([1, -2, None, 2**53 + 1, 7, 0, 3, 4]),
        "small": pa.array([1, -2, None, 100, 7, 0, 3, 4], pa.int8()),
        "x": pa.array([0.1, -2.5, None, 1e300, 7, 0, 3.5, 4]),
        "price": pa.array([Decimal(f"{n}.25") for n in range(7)] + [None], pa.decimal128(9, 2)),
        "day": pa.array([date(2026, 1, n + 1) for n in range(7)] + [None]),
        "moment": pa.array([datetime(2026, 1, n + 1, n) for n in range(7)] + [None]),
        "city": pa.array(["Oslo", "it's", None, "", "os_lo", "100%", "Ünï", "a\nb"]),
        "flag": pa.array([True, False, None, True, True, False, False, None]),
        ODD: pa.array([1, 2, 3, None, 5, 6, 7, 8]),
    }
)
NAMES = {ODD: '"or ""not"".x"', **{name: name for name in TABLE.column_names if name != ODD}}
SYMBOLS = {"=": eq, "==": eq, "!=": ne, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def rows(text, table=TABLE, shown="row"):
    return table.filter(parse(text, table.schema))[shown].to_pylist()


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@st.composite
def literals(draw, name):
    """A literal for a column: as text, and as Arrow has it."""
    type_ = TABLE.schema.field(name).type
    held = [value for value in TABLE[name].to_pylist() if value is not None]
    value = draw(st.sampled_from(held))
    if isinstance(value, float):
        value = draw(st.sampled_from([value, 0.5, -1e10]))
    elif pa.types.is_integer(type_) and draw(st.booleans()):
        # A fraction, or beyond the type.
        value = draw(st.sampled_from([Decimal("1.5"), Decimal(-300), Decimal(2**53)]))
        is_exact = value == int(value) and (name != "small" or abs(value) < 128)
        return str(value), pa.scalar(int(value), type_) if is_exact else pa.scalar(value)
    if isinstance(value, bool | int | float | Decimal):
        return str(value), pa.scalar(value, type_)
    text = value if isinstance(value, str) else value.isoformat()
    return quoted(text), pa.scalar(value, type_)


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from([name for name in NAMES if name != "flag"]))
    column, field = NAMES[name], pc.field(name)
    kind = draw(st.sampled_from(["compare", "turned", "null", "in", "between", "like", "flag"]))
    word = draw(st.sampled_from(["", "not ", "NOT  "]))

    def given_or_not(found):
        return ~found if word else found

    if kind == "flag":
        return "flag", pc.field("flag")
    if kind == "null":
        return f"{column} is {word}null", field.is_valid() if word else field.is_null()
    if kind == "like":
        pattern = draw(st.sampled_from(["%s%", "_s%lo", "Os%", "", "%", "it'_"]))
        like = pc.match_like(pc.field("city"), pattern)
        if pattern in ("Os%", "%"):
            like = pc.starts_with(pc.field("city"), pattern[:-1])
        return f"city {word}like {quoted(pattern)}", given_or_not(like)
    symbol = draw(st.sampled_from(list(SYMBOLS)))
    (text, value), (text2, value2) = draw(literals(name)), draw(literals(name))
    if kind == "between":
        within = (field >= value) & (field <= value2)
        return f"{column} {word}between {text} and {text2}", given_or_not(within)
    if kind == "in":
        type_ = TABLE.schema.field(name).type
        found = field.isin(pa.array([one for one in (value, value2) if one.type == type_], type_))
        found = ~found & field.is_valid() if word else found
        return f"{column} {word}in ({text}, {text2})", found
    if kind == "turned":
        turned = SYMBOLS[symbol.translate(str.maketrans("<>", "><"))] if symbol != "<>" else ne
        return f"{text}{symbol}{column}", turned(field, value)
    return f"{column} {symbol} {text}", SYMBOLS[symbol](field, value)


def joined(parts):
    def join(word, operator):
        return lambda each: (
            f" {word} ".join(f"({text})" for text, _ in each),
            # As `where` does: in pairs.
            in_pairs([one for _, one in each], operator),
        )

    several = st.lists(parts, min_size=2, max_size=5)
    return several.map(join("or", or_)) | several.map(join("AND", and_))


def in_pairs(parts, operator):
    while len(parts) > 1:
        parts = [reduce(operator, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return parts[0]


CONDITIONS = st.recursive(comparisons(), joined, max_leaves=12)


@given(CONDITIONS)
def test_a_text_is_the_expression_that_it_was_made_from(condition):
    text, expression = condition
    assert parse(text, TABLE.schema).equals(decided(expression, TABLE.schema)), text


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as connection:
        yield connection.register("t", TABLE)


@given(condition=CONDITIONS, negated=st.booleans())
def test_a_text_selects_what_duckdb_selects(connection, condition, negated):
    text = f"not ({condition[0]})" if negated else condition[0]
    expected = connection.execute(f"select row from t where {text} order by row").fetchall()
    assert rows(text) == [row for (row,) in expected], text


def test_the_same_text_selects_rows_of_a_table_and_skips_the_others(tmp_path):
    blz.to_blz(TABLE, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=2))
    with blz.open(tmp_path / "t.blz", "a") as t:
        text = "day >= '2026-01-05' and city like 'Ü%'"
        assert t.to_arrow(["row"], filters=text)["row"].to_pylist() == [6]
        assert t.explain(filters=text).row_groups == 1
        assert t.dataset().to_table(["row"], filter=pc.field("row") > 6).num_rows == 1
        t.update({"x": 0.0}, where=text)
        t.delete("not flag or flag is null")
        assert t["row"][:].to_pylist() == [0, 3, 4]


def test_and_binds_closer_than_or_and_not_closer_than_both():
    assert rows("row = 1 or row = 2 and row = 3") == [1]
    assert rows("not row < 6 and row < 7") == [6]
    assert rows("not (row < 6 and row > 3)") == [0, 1, 2, 3, 6, 7]


def test_a_null_is_neither_true_nor_false():
    assert rows("flag") == [0, 3, 4]
    assert rows("not flag") == [1, 5, 6]
    assert rows("not (n in (1, 2))") == rows("n not in (1, 2)") == [1, 3, 4, 5, 6, 7]
    assert rows("not (n in (1) and flag)") == [1, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'2026-01-02T00:00' <= at", [1, 2]),
        ("at <= '2026-01-02T00:00:00.000000001'", [0, 1]),
        ("local > '2026-01-02'", [2]),
        ("local >= '2026-01-02'", [1, 2]),
        ("local >= '2026-01-02T00:00Z'", [2]),
        ("local in ('2026-01-02', '2026-01-02T23:00Z')", [1, 2]),
        ("clock > '02:00'", [2]),
        ("clock >= '01:00:00.5'", [1, 2]),
        ("id = '00000000-0000-0000-0000-000000000001'", [1]),
        ("data in ('b', 'c')", [1, 2]),
        ("kind in ('b')", [1]),
        ("half = 0.1", [0]),
        ("half < 1e300", [0, 1, 2]),
        ("tiny = 1.5", [1]),
        ("place.city.name = 'Oslo' and place.n > 1", [2]),
        ('"place"."n" is null', [1]),
        ("city_ü ilike 'O%'", [0]),
    ],
)
def test_a_literal_has_the_type_of_its_column(text, expected):
    days = [datetime(2026, 1, 1), datetime(2026, 1, 1, 23), datetime(2026, 1, 2, 23)]
    name = pa.array([{"name": "Oslo"}, None, {"name": "Oslo"}])
    table = pa.table(
        {
            "row": [0, 1, 2],
            "at": pa.array([datetime(2026, 1, n + 1) for n in range(3)], pa.timestamp("s")),
            "local": pa.array(days, pa.timestamp("us", "Europe/Oslo")),
            "clock": pa.array([time(n + 1) for n in range(3)], pa.time32("s")),
            "id": pa.array([bytes(15) + bytes([n]) for n in range(3)], pa.binary(16)),
            "data": pa.array([b"a", b"b", b"c"]),
            "kind": pa.array(["a", "b", "c"]).dictionary_encode(),
            "half": pa.array([0.1, 2, 3], pa.float32()),
            "tiny": pa.array([Decimal("0.5"), Decimal("1.5"), None], pa.decimal128(3, 1)),
            "place": pa.StructArray.from_arrays(
                [name, pa.array([1, None, 3])], ["city", "n"], mask=pa.array([False] * 3)
            ),
            "city_ü": ["Oslo", "Rome", None],
        }
    )
    assert rows(text, table) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column, .* found the end, at character 1"),
        ("n >", "found the end, at character 4"),
        ("n > > 1", "found '>', at character 5"),
        ("n > 1)", r"expected and, or, the end; found '\)', at character 6"),
        ("(n > 1", r"expected and, or, \); found the end"),
        ("n = null", "nothing equals null; write `is null`, at character 5"),
        ("n in (1, null)", "nothing equals null"),
        ("n in ()", r"found '\)'"),
        ("n between 1", "expected and; found the end"),
        ("n not 3", "expected in, between, like, ilike; found '3'"),
        ("city like 3", "expected a pattern in single quotes; found '3'"),
        ("city = 'x", "a text without its end, at character 8"),
        ('"city = 1', "a name without its end, at character 1"),
        ("n = 1x", "unexpected '1', at character 5"),
        ("n & 1", "unexpected '&', at character 3"),
        ("1 = 1", "one side of a comparison must be a column"),
        ("3", "a condition begins with a column"),
        ("like = 3", "found 'like', at character 1"),
        ("not " * 101 + "flag", "more than 100 levels"),
        ("(" * 100_000, "more than 100 levels"),
    ],
    ids=lambda text: text[:20],
)
def test_a_text_that_is_no_condition_is_refused_with_the_place(text, message):
    with pytest.raises(ValueError, match=f"is no condition: .*{message}"):
        parse(text, TABLE.schema)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n = 'x'", "column 'n' is int64; the value 'x' is text; compare it with a number"),
        ("city = 3", "column 'city' is string; the value 3 is a number; .* such as 'Bern'"),
        ("day = 3", "the value 3 is a number; compare it with a date, such as '2026-01-02'"),
        ("day = 'soon'", "the value 'soon' is text; compare it with a date"),
        ("day between '2026-01-02' and 'soon'", "the value 'soon' is text"),
        ("flag = 1", "column 'flag' is bool; the value 1 is a number; .* true or false"),
        ("n = true", "column 'n' is int64; the value true is a boolean"),
        ("n in (1, 'x')", "column 'n' is int64; the value 'x' is text"),
        ("n like 'x'", "like needs a column of text; column 'n' is int64"),
    ],
)
def test_a_literal_of_another_type_is_refused(text, message):
    with pytest.raises(SchemaError, match=message):
        parse(text, TABLE.schema)


def test_a_column_that_is_not_there_is_named():
    for text in ("nosuch = 1", "N = 1", "n.m = 1", '"n" = 1 and "flag " is null'):
        with pytest.raises(ColumnNotFoundError, match="no column is named"):
            parse(text, TABLE.schema)


def test_a_chain_may_be_long():
    text = " or ".join(f"row = {number % 4}" for number in range(1000))
    assert rows(text) == [0, 1, 2, 3]


@given(st.text(alphabet="n ax'\"().,=<>-+1e5andorinotulbetwlk\t\n\x00ü", max_size=40))
def test_any_text_is_a_condition_or_a_clear_error(text):
    with suppress(SchemaError, ColumnNotFoundError):
        try:
            parse(text, TABLE.schema)
        except ValueError as error:
            if "is no condition" not in str(error):
                raise
