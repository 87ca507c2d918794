"""An expression's tree evaluates as in Arrow; an expression without a tree raises nothing."""

import functools
import operator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.engine.query import expression_tree, expressions
from blztable.engine.query.expression_tree import Call, Field, Literal, parts, tree
from blztable.errors import SchemaError
from support.random_conditions import Drawn

A, B, C = map(pc.field, "abc")


def conjuncts(expression):
    return tuple(part for part, _ in parts(expression))


def strict_and(one, other):
    """Return the `and` that is null if one side is null; pyarrow's `pc.and_` has no expression."""
    return pc.Expression._call("and", [one, other])


def test_a_tree_has_calls_fields_and_literals():
    expression = (B.cast("int64") > 5) | ~C
    cast = tree(B.cast("int64"))
    greater = Call("greater", (cast, Literal(pa.scalar(5))))
    assert tree(expression) == Call("or_kleene", (greater, Call("invert", (Field("c"),))))
    assert (cast.function, cast.arguments) == ("cast", (Field("b"),))
    assert cast.options["to_type"].type == pa.int64()


def test_options_are_known_by_name():
    options = tree(pc.is_in(A, value_set=pa.array([1, None]), skip_nulls=True)).options
    assert options["value_set"].as_py() == [1, None]
    assert options["null_matching_behavior"].as_py() == 1
    assert tree(pc.starts_with(A, "ä")).options["pattern"].as_py() == "ä"


@pytest.mark.parametrize("name", ["", "call", "end", "a b\n", "中😀", "x" * 10_000])
def test_names_are_any_text(name):
    assert tree(pc.field(name)) == Field(name)
    assert tree(pc.field(name) == name).arguments == (Field(name), Literal(pa.scalar(name)))


def test_a_chain_is_one_call():
    of_three = Call("or_kleene", (Field("a"), Field("b"), Field("c")))
    assert tree((A | B) | C) == tree(A | (B | C)) == of_three
    long = functools.reduce(operator.and_, [pc.field(str(number)) for number in range(2000)])
    assert len(tree(long).arguments) == len(conjuncts(long)) == 2000
    mixed = tree(strict_and(A & B, C))
    assert mixed == Call("and", (Call("and_kleene", (Field("a"), Field("b"))), Field("c")))


@pytest.mark.parametrize("expression", [pc.field(1) > 2, pc.field("a", "b") > 2], ids=str)
def test_what_refers_otherwise_than_by_name_has_no_tree(expression):
    assert tree(expression) is None
    (one,) = conjuncts(expression & A)
    assert one.equals(expression & A)


def test_what_is_nested_deep_has_no_tree():
    def nested(times):
        return functools.reduce(lambda inner, _: ~inner, range(times), A)

    assert tree(nested(expression_tree.MAX_DEPTH)) is not None
    assert tree(nested(expression_tree.MAX_DEPTH + 1)) is None
    assert [str(each) for each in conjuncts(nested(500) & B)] == [str(nested(500)), "b"]


def test_what_is_written_otherwise_has_no_tree(monkeypatch):
    class Strange:
        """An expression of a future Arrow version."""

        def __reduce__(self):
            return (Strange, (pa.py_buffer(b"another form"),))

    strange = Strange()
    assert tree(strange) is None
    assert conjuncts(strange) == (strange,)
    monkeypatch.setattr(expression_tree, "_metadata", lambda schema: iter([("future", "a")]))
    assert tree(A) is None
    assert conjuncts(A) == (A,)


def test_conjuncts_are_in_order_and_whole():
    expression = (A > 1) & strict_and(B.isin([1, 2]), ~(A & B)) & (C | (A & B)) & True
    expected = [A > 1, B.isin([1, 2]), ~(A & B), C | (A & B), pc.scalar(True)]
    found = conjuncts(expression)
    assert len(found) == len(expected)
    assert all(one.equals(other) for one, other in zip(found, expected, strict=True))
    assert conjuncts(A | B)[0].equals(A | B)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**40))
def test_rows_are_kept_where_all_conjuncts_are_true(seed):
    drawn = Drawn(seed)
    expression = drawn.condition(2) & drawn.condition(2)
    columns = dict(zip(drawn.table.column_names, drawn.table.columns, strict=True))
    try:
        expressions.check(expression, drawn.table.schema)
        kept = expressions.mask(expression, columns, len(drawn.table))
    except SchemaError:
        return
    found = conjuncts(expression)
    assert len(found) >= 2
    masks = []
    for each in found:
        try:
            masks.append(expressions.mask(each, columns, len(kept)))
        except SchemaError:
            # Arrow has removed it from the expression, beside a part that is never true.
            assert not kept.any()
    assert functools.reduce(operator.and_, masks).tolist() == kept.tolist()


def test_a_conjunct_beside_one_that_is_never_true_need_not_have_a_value():
    columns = {"a": pa.chunked_array([[1, 0]])}
    divided = pc.scalar(4) / A > 1
    never, fails = conjuncts(pc.scalar(False) & divided)
    assert expressions.mask(pc.scalar(False) & divided, columns, 2).tolist() == [False, False]
    assert expressions.mask(never, columns, 2).tolist() == [False, False]
    with pytest.raises(SchemaError, match="divide by zero"):
        expressions.mask(fails, columns, 2)


@pytest.mark.parametrize("type_", [pa.large_string(), pa.large_binary(), pa.string_view()], ids=str)
@pytest.mark.parametrize(
    "column", [pa.date32(), pa.string(), pa.large_string(), pa.int8()], ids=str
)
def test_a_null_of_large_text_does_not_end_the_process(column, type_):
    schema = pa.schema([("a", column)])
    expression = expressions.as_expression(pc.field("a") == pa.scalar(None, type_), schema)
    assert expressions.check(expression, schema) == (0,)
    columns = {"a": pa.chunked_array([pa.nulls(2, column)])}
    assert expressions.mask(expression, columns, 2).tolist() == [False, False]


def test_a_literal_may_be_a_view():
    columns = {"a": pa.chunked_array([["a", "b"]])}
    equal = pc.field("a") == pa.scalar("b", pa.string_view())
    expression = expressions.as_expression(equal, pa.table(columns).schema)
    assert expressions.mask(expression, columns, 2).tolist() == [False, True]
