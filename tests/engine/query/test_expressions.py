"""Filters keep the rows that a plain evaluation keeps, and read exactly the columns they need."""

import operator
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.engine.query import expressions
from blztable.errors import ColumnNotFoundError, SchemaError

field = pc.field
quick = settings(max_examples=60, deadline=None)

PLAIN = {
    "i": (pa.int32(), st.integers(-4, 4)),
    "f": (pa.float64(), st.sampled_from([-1.5, -0.0, 0.0, 1.0, 2.0, float("nan"), float("inf")])),
    "s": (pa.string(), st.sampled_from(["", "a", "ab", "é", "b" * 20])),
    "y": (pa.binary(), st.sampled_from([b"", b"a", b"\xff" * 20])),
    "b": (pa.bool_(), st.booleans()),
}
VIEW_OF = {"s": pa.string_view(), "y": pa.binary_view()}
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC = [operator.add, operator.sub, operator.mul]


@st.composite
def columns(draw, name, rows):
    """Draw a column of these values in any form (plain, view, dictionary) and any chunks."""
    type_, values = PLAIN[name]
    plain = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    form = draw(st.sampled_from([type_, VIEW_OF.get(name, type_)]))
    if draw(st.booleans()):
        form = pa.dictionary(pa.int8(), form)
    cuts = sorted({0, rows, *draw(st.lists(st.integers(0, rows), max_size=2))})
    chunks = [as_form(plain[start:stop], type_, form) for start, stop in pairwise(cuts)]
    return plain, pa.chunked_array(chunks, form)


def as_form(values, type_, form):
    if not pa.types.is_dictionary(form):
        return pa.array(values, type_).cast(form)
    # A dictionary with a null among its values, and with an unused value.
    known = [*dict.fromkeys(value for value in values if value is not None and value == value)]
    known += [float("nan")] if any(value != value for value in values) else []
    codes = [
        None if value is None else len(known) - 1 if value != value else known.index(value)
        for value in values
    ]
    codes = [len(known) if code is None and at % 2 else code for at, code in enumerate(codes)]
    dictionary = pa.array([*known, None], type_).cast(form.value_type)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), dictionary)


def without_null(function, *operands):
    """Return a function that is null when one of its operands is null."""

    def of_row(row):
        values = [operand(row) for operand in operands]
        return None if None in values else function(*values)

    return of_row


@st.composite
def numbers(draw, name, depth=2):
    """Draw a numeric expression, and its value for a row, computed in Python."""
    if depth and draw(st.booleans()):
        left, right = draw(numbers(name, depth - 1)), draw(numbers(name, depth - 1))
        apply = draw(st.sampled_from(ARITHMETIC))
        return apply(left[0], right[0]), without_null(apply, left[1], right[1])
    if draw(st.booleans()):
        value = draw(PLAIN[name][1])
        return pc.scalar(value), lambda row: value
    return field(name), lambda row: row[name]


@st.composite
def predicates(draw, depth=3):
    """Draw a boolean expression, and its value for a row: true, false, or None."""
    kind = draw(st.sampled_from(["and", "or", "not", "leaf"] if depth else ["leaf"]))
    if kind == "not":
        inner, of_row = draw(predicates(depth - 1))
        return ~inner, without_null(operator.not_, of_row)
    if kind in ("and", "or"):
        left, right = draw(predicates(depth - 1)), draw(predicates(depth - 1))
        decides = kind == "or"

        def kleene(row):
            values = [left[1](row), right[1](row)]
            if decides in values:
                return decides
            return None if None in values else not decides

        return (left[0] | right[0] if decides else left[0] & right[0]), kleene
    name = draw(st.sampled_from(sorted(PLAIN)))
    kind = draw(st.sampled_from(["null", "in", "compare", "column"]))
    if kind == "column":
        return field("b"), lambda row: row["b"]
    if kind == "null":
        return field(name).is_null(), lambda row: row[name] is None
    if kind == "in":
        values = [v for v in draw(st.lists(PLAIN[name][1], min_size=1, max_size=3)) if v == v]
        # Arrow's sets distinguish zero and minus zero.
        values += [-0.0, 0.0] if 0.0 in values and name == "f" else []
        values = pa.array(values, PLAIN[name][0])
        return field(name).isin(values), lambda row: row[name] in values.to_pylist()
    compare = draw(st.sampled_from(sorted(COMPARISONS)))
    of_values = COMPARISONS[compare]
    if name in ("i", "f"):
        left, right = draw(numbers(name)), draw(numbers(name))
    else:
        value = draw(PLAIN[name][1])
        left = field(name), lambda row: row[name]
        right = pc.scalar(value), lambda row: value
    return of_values(left[0], right[0]), without_null(of_values, left[1], right[1])


@quick
@given(data=st.data())
def test_a_filter_keeps_the_rows_that_python_would_keep(data):
    rows = data.draw(st.integers(0, 12))
    drawn = {name: data.draw(columns(name, rows)) for name in PLAIN}
    table = {name: column for name, (_, column) in drawn.items()}
    expression, of_row = data.draw(predicates())
    shown = [{name: plain[row] for name, (plain, _) in drawn.items()} for row in range(rows)]
    expected = [of_row(row) for row in shown]

    schema = pa.schema({name: column.type for name, column in table.items()})
    needed = {
        schema.names[at]: table[schema.names[at]] for at in expressions.check(expression, schema)
    }
    assert expressions.evaluate(expression, needed, rows).to_pylist() == expected
    chosen = expressions.mask(expression, needed, rows)
    assert chosen.dtype == np.bool_
    assert chosen.tolist() == [value is True for value in expected]

    plain = pa.table({name: pa.array(drawn[name][0], PLAIN[name][0]) for name in PLAIN})
    assert plain.filter(expression).num_rows == chosen.sum()


STRANGE = [
    "",
    " ",
    "a",
    "b",
    "ab",
    "a.b",
    "a b",
    '"',
    '"a"',
    "'a'",
    "(a == 1)",
    "true",
    "null",
    "1",
    "is_null",
    "is_in",
    "nan_is_null=false",
    "and",
    "equal",
    "FieldRef.Name(a)",
    "é",
    "\n",
    "?",
    "FieldPath(0)",
    "FieldPath(99)",
    "a\0b",
    "a) in b",
    "x" * 1000,
    "??",
]
names = st.sampled_from(STRANGE) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


@quick
@given(data=st.data(), there=st.lists(names, min_size=1, max_size=12, unique=True))
def test_the_columns_of_an_expression_are_found_whatever_their_names(data, there):
    schema = pa.schema([(name, pa.int64()) for name in there])
    used = data.draw(st.sets(st.integers(0, len(there) - 1)))
    predicates = [
        data.draw(
            st.sampled_from(
                [
                    field(name) == 1,
                    field(name).is_null(),
                    field(name).isin([1]),
                    field(name) + 1 > 2,
                ]
            )
        )
        for name in (there[position] for position in used)
    ]
    # Text that looks like a column name is still a value.
    predicates += [pc.scalar(name) == name for name in data.draw(st.lists(names, max_size=2))]
    expression = reduce(operator.and_, predicates, pc.scalar(True))
    assert expressions.check(expression, schema) == tuple(sorted(used))


@quick
@given(there=st.lists(names, min_size=1, max_size=8, unique=True), missing=names)
def test_a_column_that_is_not_there_is_named(there, missing):
    there = [name for name in there if name != missing]
    schema = pa.schema([(name, pa.int64()) for name in there])
    with pytest.raises(ColumnNotFoundError) as caught:
        expressions.check(field(missing) == 1, schema)
    assert str(caught.value) == f"no column is named {missing!r}; the columns are {there!r:.1000}"


def test_a_long_text_that_arrow_cannot_show_can_be_looked_for():
    long = "a" + "é" * 100
    expression = field("é").isin([long])
    with pytest.raises(UnicodeDecodeError):
        str(expression)
    schema = pa.schema([("e", pa.string()), ("é", pa.string())])
    assert expressions.check(expression, schema) == (1,)
    assert expressions.mask(expression, {"é": pa.chunked_array([[long, "é"]])}, 2).tolist() == [
        1,
        0,
    ]
    with pytest.raises(ColumnNotFoundError, match="no column is named 'é'"):
        expressions.check(expression, schema.remove(1))
    with pytest.raises(SchemaError, match="is_in"):
        expressions.check(expression, pa.schema([("é", pa.int8())]))


def test_an_expression_that_counts_columns_has_those_before_in_place():
    table = pa.table({name: [at, at + 1] for at, name in enumerate("abcd")})
    expression = (field(1) == 2) & (field("d") == 4)
    needed = expressions.check(expression, table.schema)
    assert needed == (0, 1, 3)
    columns = {table.schema.names[at]: table.column(at) for at in needed}
    assert expressions.mask(expression, columns, 2).tolist() == [False, True]
    with pytest.raises(ColumnNotFoundError):
        expressions.check(field(4) == 1, table.schema)


def test_an_expression_without_columns_has_as_many_values_as_there_are_rows():
    assert expressions.check(pc.scalar(1) < 2, pa.schema([("a", pa.int8())])) == ()
    assert expressions.mask(pc.scalar(1) < 2, {}, 40_000).tolist() == [True] * 40_000
    assert expressions.evaluate(pc.scalar(7), {}, 3).to_pylist() == [7, 7, 7]
    assert expressions.mask(pc.scalar(True), {}, 0).tolist() == []


def test_rows_stay_in_order():
    column = pa.chunked_array([range(start, start + 70_000) for start in (0, 70_000, 140_000)])
    assert expressions.evaluate(field("a") + 1, {"a": column}, 210_000).equals(pc.add(column, 1))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (field("i") == "x", "does not match the types"),
        (field("i") + 1, "a filter must be boolean; .* is int64"),
        (field("s"), "is large_string"),
        (pc.sum(field("i")) > 1, "non-scalar"),
        (field("twice") == 1, "several columns are named 'twice'"),
        (field(6) == 1, "several columns are named 't'"),
    ],
    ids=str,
)
def test_an_expression_that_is_no_filter_of_this_table_is_refused(expression, message):
    names = ["i", "s", "t", "t", "twice", "twice", "j"]
    schema = pa.schema([(name, pa.string_view() if name == "s" else pa.int64()) for name in names])
    with pytest.raises(SchemaError, match=message):
        expressions.check(expression, schema)
    assert expressions.check(field("i") == 1, schema) == (0,)


def test_the_type_of_a_value_is_told_before_it_is_there():
    schema = pa.schema([("i", pa.int8()), ("d", pa.dictionary(pa.int8(), pa.string_view()))])
    assert expressions.type_of(field("i") + field("i"), schema) == pa.int8()
    assert expressions.type_of(field("d"), schema) == pa.large_string()
    assert expressions.columns_of(field("i") + 1, schema) == (0,)
    with pytest.raises(ColumnNotFoundError):
        expressions.type_of(field("x"), schema)


def test_a_value_that_does_not_allow_it_is_a_value_error():
    column = pa.chunked_array([[1, 0]])
    with pytest.raises(SchemaError, match="cannot be evaluated: divide by zero"):
        expressions.evaluate(pc.scalar(1) / field("a"), {"a": column}, 2)


AB = pa.schema([("a", pa.int64()), ("b", pa.int64())])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (field("a") == 1, field("a") == 1),
        ([("a", "==", 1)], field("a") == 1),
        (("a", "==", 1), field("a") == 1),
        ([["a", "=", 1]], field("a") == 1),
        ([("a", ">", 1), ("b", "in", {2})], (field("a") > 1) & field("b").isin([2])),
        ([[("a", "!=", 1)], [("b", "<=", 2)]], (field("a") != 1) | (field("b") <= 2)),
        ([[("a", "not in", (1, 2))]], ~field("a").isin([1, 2])),
    ],
    ids=str,
)
def test_a_filter_is_an_expression_or_the_lists_that_pandas_takes(where, expected):
    assert expressions.as_expression(where, AB).equals(expected)


@pytest.mark.parametrize("where", [None, b"a == 1", {"a": 1}, 5, True], ids=repr)
def test_anything_else_is_no_filter(where):
    with pytest.raises(
        TypeError, match="a filter must be a pyarrow Expression, a text, or a list of tuples"
    ):
        expressions.as_expression(where, AB)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([], "at least one tuple"),
        ([[]], "is neither"),
        ([5], "is neither"),
        ([[("a", "==", 1)], ("a", "==", 1)], "is neither"),
        ([("a", "==", 1), [("a", "==", 1)]], r"must be \(column, operator, value\), not"),
        ([("a", 1)], r"must be \(column, operator, value\), not"),
        ([[("a", "==", 1), ("a", 1)]], r"must be \(column, operator, value\), not"),
        ([(0, "==", 1)], "must name its column as a str, not 0"),
        ([("a", "~", 1)], "operator of a filter must be one of .* not '~'"),
        ([("a", "in", "xyz")], "needs a list of values, not 'xyz'"),
        ([("a", "in", 5)], "needs a list of values, not 5"),
    ],
    ids=repr,
)
def test_tuples_that_are_no_filter_are_explained(where, message):
    with pytest.raises(ValueError, match=message):
        expressions.as_expression(where, AB)


AT = pa.timestamp("ns", "Europe/Oslo")
TYPED = {
    "n": pa.array([1, 2, None], pa.int64()),
    "u": pa.array([0, 1 << 63, None], pa.uint64()),
    "s": pa.array(["Oslo", "Bern", None]),
    "c": pa.array(["a", "b", None]).dictionary_encode(),
    "d": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(9, 2)),
    "f": pa.array([0.1, float("nan"), None], pa.float32()),
    "t": pa.array([500, 900, None], pa.timestamp("ns")),
    "at": pa.array([0, 3_600_000_000_000, None], AT),
    "day": pa.array([date(2025, 3, 1), date(2025, 3, 2), None]),
}
ONE = pd.Timestamp("1970-01-01 01:00", tz="UTC")


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (("n", ">", 1.0), [1]),
        (("n", ">", 1.5), [1]),
        (("n", "in", [1, pd.NA]), [0, 2]),
        (("n", "==", pd.NA), []),
        (("u", ">", 5), [1]),
        (("u", ">=", 1 << 63), [1]),
        (("s", "in", []), []),
        (("s", "not in", []), [0, 1, 2]),
        (("s", "in", ["Oslo", np.nan]), [0, 2]),
        (("c", "in", []), []),
        (("c", "in", pd.Categorical(["b"])), [1]),
        (("d", ">", 1), [0, 1]),
        (("d", "in", [1, 2]), [1]),
        (("f", "==", 0.1), [0]),
        (("f", "in", [0.1, float("nan")]), [0, 1]),
        (("t", ">", pd.Timestamp(500)), [1]),
        (("t", "in", pd.Series(pd.to_datetime([900]))), [1]),
        (("at", ">=", ONE), [1]),
        (("at", "in", {ONE.tz_convert("Asia/Tokyo")}), [1]),
        (("day", ">", pd.Timestamp("2025-03-01 12:00")), [1]),
    ],
    ids=str,
)
def test_a_value_of_a_tuple_is_compared_as_the_type_of_its_column(predicate, rows):
    table = pa.table(TYPED)
    expression = expressions.as_expression([predicate], table.schema)
    expressions.check(expression, table.schema)
    columns = {predicate[0]: table[predicate[0]]}
    assert np.flatnonzero(expressions.mask(expression, columns, 3)).tolist() == rows


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (("n", "==", "x"), "column 'n' is int64; the value 'x' is text; compare it with a number"),
        (("n", "in", [1, "2"]), "column 'n' is int64; the value '2' is text"),
        (("n", "in", [True]), "column 'n' is int64; the value true is a boolean"),
        (("n", "==", object()), "column 'n' is int64; the value <object .*> is of type object"),
        (("s", ">", 1), "column 's' is string; the value 1 is a number; compare it with a text"),
        (("s", "in", ["\ud800"]), "column 's' is string; .* is text that is not UTF-8"),
        (("c", "==", b"\xff"), r"column 'c' is dictionary.*; the value b'\\xff' is bytes"),
        (("at", ">", datetime(2025, 1, 1)), "2025-01-01 00:00:00 is a time without a time zone"),
        (("at", ">", np.datetime64("2025")), "is a time without a time zone; .* with a time zone"),
        (("at", ">", date(2025, 1, 1)), "2025-01-01 is a date; compare it with a time with a"),
        (("t", ">", ONE), "is a time with a time zone; compare it with a time without a time zone"),
        (("t", ">", 1), "column 't' is timestamp.ns.; the value 1 is a number"),
        (("day", "==", "soon"), "column 'day' is date32.day.; the value 'soon' is text; .* a date"),
        (("d", "in", ["1.50"]), "column 'd' is decimal128.9, 2.; the value '1.50' is text"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_column_types_and_value(predicate, message):
    schema = pa.table(TYPED).schema
    with pytest.raises(SchemaError, match=message):
        expressions.as_expression([predicate], schema)


@pytest.mark.parametrize("value", [1 << 63, 1 << 70, 10**80, 10**400, float("inf")])
def test_a_number_beyond_a_type_is_above_all_its_values(value):
    table = pa.table(TYPED)
    for operator_, rows in {"<": 2, "<=": 2, "!=": 2, "==": 0, ">": 0, ">=": 0}.items():
        for name, sign in (("n", 1), ("d", 1), ("n", -1), ("d", -1)):
            turned = operator_.translate(str.maketrans("<>", "><")) if sign < 0 else operator_
            filters = expressions.as_expression([(name, turned, sign * value)], table.schema)
            assert table.filter(filters).num_rows == rows, (name, turned)


# Found by the fuzzer: ArrowNotImplementedError, because pa.scalar makes no such null.
def test_a_null_beside_a_dictionary_of_dictionaries_of_lists_is_a_literal():
    inner = pa.dictionary(pa.int32(), pa.list_(pa.int32()))
    schema = pa.schema({"a": pa.dictionary(pa.int32(), inner)})
    made = expressions.as_expression(pc.field("a") == pa.scalar(None), schema)
    assert made.equals(pc.field("a") == pa.nulls(1, inner)[0])
