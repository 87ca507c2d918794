"""Pruning skips no run with a row of the filter, and takes no run whole that has another row."""

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.engine.query import expressions
from blztable.engine.query.pruning import Pruner
from blztable.errors import SchemaError
from support import arrow_strategies as own
from support.random_conditions import NAN, PRUNED, Drawn, known_of


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**40))
def test_no_row_is_passed_over_and_none_taken_that_is_not_of_the_filter(seed):
    drawn = Drawn(seed)
    table, cuts = drawn.table, drawn.cuts
    expression = drawn.condition(drawn.random.randint(0, 3))
    columns = dict(zip(table.column_names, table.columns, strict=True))
    try:
        expression = expressions.as_expression(expression, table.schema)
        expressions.check(expression, table.schema)
        kept = expressions.mask(expression, columns, len(table))
    except SchemaError:
        return
    pruner = Pruner(expression, table.schema)
    known = {
        at: known_of(table.column(at).combine_chunks(), cuts)
        for at in pruner.columns
        if drawn.random.random() < 0.9
    }
    match = pruner.evaluate(len(cuts), known)
    for (start, stop), may, must in zip(cuts, match.may, match.must, strict=True):
        assert may or not kept[start:stop].any(), (expression, table[start:stop].to_pydict())
        assert not must or kept[start:stop].all(), (expression, table[start:stop].to_pydict())


def judged(expression, **columns):
    """Return the match of each run of a table, each column given as its runs."""
    arrays = {name: pa.concat_arrays(parts) for name, parts in columns.items()}
    table = pa.table(arrays)
    ends = np.cumsum([0, *map(len, next(iter(columns.values())))]).tolist()
    cuts = list(itertools.pairwise(ends))
    pruner = Pruner(expressions.as_expression(expression, table.schema), table.schema)
    known = {at: known_of(table.column(at).combine_chunks(), cuts) for at in pruner.columns}
    match = pruner.evaluate(len(cuts), known)
    return match.may.tolist(), match.must.tolist()


def ascending(type_):
    """Return three runs of three values each, in ascending order."""
    if type_ in own.TEXTS:
        # A bound has eight bytes of those that the values of a run do not share.
        words = [chr(ord("a") + number) * 8 for number in range(9)]
        values = pa.array([word.encode() for word in words]).cast(type_)
    elif pa.types.is_floating(type_):
        values = pa.array(np.arange(9.0)).cast(type_)
    else:
        unit = 86_400_000 if type_ == pa.date64() else 1
        data = [(number * unit).to_bytes(type_.bit_width // 8, "little") for number in range(9)]
        values = pa.Array.from_buffers(type_, 9, [None, pa.py_buffer(b"".join(data))])
    return values


def check_runs_are_passed_over(values):
    runs = [values[:3], values[3:6], values[6:]]
    # The type in which it is compared, so that a literal from it fits the column.
    one = expressions.comparable(pa.chunked_array([values]))
    yes, no = True, False
    column = pc.field("a")
    assert judged(column == one[4], a=runs) == ([no, yes, no], [no, no, no])
    assert judged(column != one[4], a=runs) == ([yes, yes, yes], [yes, no, yes])
    assert judged(column < one[3], a=runs) == ([yes, no, no], [yes, no, no])
    assert judged(one[5] >= column, a=runs) == ([yes, yes, no], [yes, yes, no])
    assert judged(column > one[4], a=runs) == ([no, yes, yes], [no, no, yes])
    chosen = one.combine_chunks().take([0, 4])
    assert judged(column.isin(chosen), a=runs) == ([yes, yes, no], [no, no, no])


INTEGERS = own.INTEGERS
DATES = [pa.date32(), pa.date64()]
TIMES = [type_ for type_ in own.TIMES if pa.types.is_time(type_)]
TIMESTAMPS = [type_ for type_ in own.TIMES if pa.types.is_timestamp(type_)]
DURATIONS = [type_ for type_ in own.TIMES if pa.types.is_duration(type_)]
TEXTS = [*own.STRINGS, pa.string_view()]
BINARIES = [*own.BINARIES, pa.binary_view()]


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
def test_integer_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", own.FLOATS, ids=str)
def test_float_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", own.DECIMALS, ids=str)
def test_decimal_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", DATES, ids=str)
def test_date_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", TIMES, ids=str)
def test_time_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", TIMESTAMPS, ids=str)
def test_timestamp_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", DURATIONS, ids=str)
def test_duration_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", TEXTS, ids=str)
def test_text_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


@pytest.mark.parametrize("type_", BINARIES, ids=str)
def test_binary_bounds_pass_over_runs(type_):
    check_runs_are_passed_over(ascending(type_))


def test_bool_bounds_pass_over_runs():
    runs = [pa.array(run, pa.bool_()) for run in ([True, True], [True, False], [False], [None])]
    column = pc.field("a")
    for_true = ([True, True, False, False], [True, False, False, False])
    assert judged(column, a=runs) == for_true
    assert judged(column == True, a=runs) == for_true  # noqa: E712
    assert judged(~column, a=runs) == ([False, True, True, False], [False, False, True, False])
    assert judged(column.isin([True]), a=runs) == for_true


@pytest.mark.parametrize("type_", [type_ for type_ in PRUNED if type_ != pa.bool_()], ids=str)
def test_dictionary_bounds_pass_over_runs_by_value(type_):
    values = ascending(type_)
    # The codes descend as the values ascend.
    backwards = pa.array(range(8, -1, -1), pa.int64())
    narrow = expressions.comparable(pa.chunked_array([values])).combine_chunks()
    dictionary = narrow.take(backwards).cast(type_)
    codes = pa.array(range(8, -1, -1), pa.int8())
    check_runs_are_passed_over(pa.DictionaryArray.from_arrays(codes, dictionary))


@pytest.mark.parametrize("type_", [*PRUNED, pa.binary(3), pa.month_day_nano_interval()], ids=str)
def test_counts_pass_over_runs_of_every_type(type_):
    runs = [pa.nulls(2, type_), own_rows(type_)]
    column = pc.field("a")
    assert judged(column.is_null(), a=runs) == ([True, False], [True, False])
    assert judged(column.is_valid(), a=runs) == ([False, True], [False, True])


def own_rows(type_):
    if pa.types.is_boolean(type_):
        return pa.array([True, False])
    if type_ in PRUNED:
        return ascending(type_)
    width = type_.bit_width // 8
    return pa.Array.from_buffers(type_, 2, [None, pa.py_buffer(bytes(2 * width))])


NANS = [[1.0, 2.0], [1.0, np.nan], [np.nan, np.nan], [np.nan, None], [5.0, 6.0]]


@pytest.mark.parametrize(
    ("expression", "some", "every"),
    [
        (pc.field("a") < 3, [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]),
        (~(pc.field("a") < 3), [0, 1, 1, 1, 1], [0, 0, 1, 0, 1]),
        (pc.field("a") != 7, [1, 1, 1, 1, 1], [1, 1, 1, 0, 1]),
        (pc.field("a") == NAN, [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
        (pc.field("a") != NAN, [1, 1, 1, 1, 1], [1, 1, 1, 0, 1]),
        (pc.is_nan(pc.field("a")), [0, 1, 1, 1, 0], [0, 0, 1, 0, 0]),
        (pc.field("a").is_null(nan_is_null=True), [0, 1, 1, 1, 0], [0, 0, 1, 1, 0]),
        (pc.field("a").isin([np.nan]), [0, 1, 1, 1, 0], [0, 0, 1, 0, 0]),
        (pc.field("a").isin([2.0]), [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
        (pc.field("a") < pc.scalar(None), [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("type_", own.FLOATS, ids=str)
def test_a_nan_is_of_no_comparison_but_unequal(type_, expression, some, every):
    runs = [pa.array(run, pa.float64()).cast(type_) for run in NANS]
    found = judged(expression, a=runs)
    assert found == ([bool(flag) for flag in some], [bool(flag) for flag in every])


@pytest.mark.parametrize("zero", [0.0, -0.0, 0])
def test_a_set_with_a_zero_takes_runs_of_both_zeros_whole(zero):
    runs = [pa.array([0.0, 0.0]), pa.array([-0.0, 0.0]), pa.array([1.0, 1.0])]
    expected = ([True, True, False], [True, True, False])
    assert judged(pc.field("a").isin([zero]), a=runs) == expected
    assert judged(pc.field("a") == zero, a=runs) == expected


def test_a_long_set_is_told_from_what_lies_between_its_values():
    runs = [pa.array([start, start + 5]) for start in range(0, 1000, 10)]
    wanted = pa.array([*range(7, 1000, 10), 500, *range(2000, 20_000)])
    some, every = judged(pc.field("a").isin(wanted), a=runs)
    assert np.flatnonzero(some).tolist() == [50]
    assert not any(every)


def test_a_column_is_compared_with_another():
    a = [pa.array([1, 2]), pa.array([3, 4]), pa.array([9, 9])]
    b = [pa.array([5, 6]), pa.array([2, 5]), pa.array([0, None])]
    found = judged(pc.field("a") < pc.field("b"), a=a, b=b)
    assert found == ([True, True, False], [True, False, False])


def test_a_start_is_told_from_cut_bounds():
    words = [["a" * 50, "ab"], ["b" * 50, "b" * 51], ["c", None], ["bx", "by"]]
    runs = [pa.array(run) for run in words]
    found = judged(pc.starts_with(pc.field("a"), "b"), a=runs)
    assert found == ([False, True, False, True], [False, True, False, True])
    assert judged(pc.starts_with(pc.field("a"), "b" * 31), a=runs)[0] == [False, True, False, False]
    assert judged(pc.starts_with(pc.field("a"), "B", ignore_case=True), a=runs)[0] == [True] * 4


def test_casts_that_keep_the_order_are_seen_through():
    days = [pa.array([1, 2], pa.date32()), pa.array([30, 40], pa.date32())]
    instant = pa.scalar(5 * 86_400, pa.timestamp("s"))
    assert judged(pc.field("a").cast(pa.timestamp("us")) < instant, a=days)[0] == [True, False]
    numbers = [pa.array([1, 2], pa.int8()), pa.array([30, 40], pa.int8())]
    assert judged(pc.field("a").cast(pa.int64()) < 5, a=numbers)[0] == [True, False]
    assert judged(pc.field("a").cast(pa.float32()) < 5.5, a=numbers)[0] == [True, False]
    # Text has an order of another kind.
    text = pc.field("a").cast(pa.string())
    assert judged(text < "15", a=[pa.array([2, 10])])[0] == [True]


@pytest.mark.parametrize(
    "expression",
    [
        pc.add(pc.field("a"), 1) < 0,
        pc.coalesce(pc.field("a"), 1) < 0,
        pc.field(0) < 0,
        pc.field("a").cast(pa.int8(), safe=False) < 0,
        # Rounded in several steps, which may change the order.
        pc.field("a").cast(pa.decimal128(19, 0)) < pc.field("a").cast(pa.float64()),
    ],
    ids=str,
)
def test_of_what_is_not_understood_nothing_is_said(expression):
    runs = [pa.array([5]), pa.array([200, None])]
    pruner = Pruner(expression, pa.schema([("a", pa.int64())]))
    assert pruner.columns == ()
    assert judged(expression, a=runs) == ([True, True], [False, False])
    with_more = (pc.field("a") > 100) & expression
    assert judged(with_more, a=runs) == (
        ([True, True] if "FieldPath" in str(expression) else [False, True]),
        [False, False],
    )


def test_columns_are_those_whose_statistics_help():
    schema = pa.schema(
        [("a", pa.int8()), ("b", pa.string()), ("b", pa.string()), ("c", pa.date32())]
    )
    expression = (pc.field("c").is_valid() | (pc.field("a") > 1)) & (pc.field("b") == "x")
    assert Pruner(expression, schema).columns == (0, 3)
    assert Pruner(pc.scalar(True), schema).columns == ()


def test_of_a_column_without_statistics_nothing_is_said():
    pruner = Pruner(
        (pc.field("a") > 1) & (pc.field("b") > 1),
        pa.schema([("a", pa.int8()), ("b", pa.int8())]),
    )
    known = known_of(pa.array([0, 5, None], pa.int8()), [(0, 1), (1, 2), (2, 3)])
    match = pruner.evaluate(3, {0: known})
    assert match.may.tolist() == [False, True, False]
    assert not match.must.any()


def test_a_bound_that_is_not_known_passes_over_nothing():
    schema = pa.schema([("a", pa.string())])
    whole = known_of(pa.array(["a", "x", "b", "z"]), [(0, 2), (2, 4)])
    lowest, highest = pa.array([None, "x"]), pa.array(["b", None])
    known = replace(whole, lowest=lowest, highest=highest)
    for expression, some, every in (
        (pc.field("a") > "c", [False, True], [False, True]),
        (pc.field("a") < "a", [True, False], [False, False]),
        (pc.field("a") == "b", [True, False], [False, False]),
        (pc.field("a").isin(["c", "d"]), [False, False], [False, False]),
        (pc.field("a").isin(["a", "z"]), [True, True], [False, False]),
    ):
        match = Pruner(expression, schema).evaluate(2, {0: known})
        assert (match.may.tolist(), match.must.tolist()) == (some, every)


def test_a_filter_that_arrow_refuses_on_the_bounds_passes_over_nothing():
    huge = 1 << 60
    runs = [pa.array([huge, huge + 1]), pa.array([1, 2])]
    # No float has this value.
    assert judged(pc.field("a").cast(pa.float64()) < 0.5, a=runs) == ([True, True], [False, False])


def test_a_literal_decides_without_statistics():
    runs = [pa.array([1]), pa.array([2])]
    for literal, some, every in ((True, True, True), (False, False, False), (None, False, False)):
        expression = pc.scalar(literal) & pc.scalar(True) if literal else pc.scalar(literal)
        assert judged(expression, a=runs) == ([some] * 2, [every] * 2)


def test_a_column_may_be_known_by_larger_runs_than_the_others():
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    pruner = Pruner((pc.field("a") == 1) & (pc.field("b") == 2), schema)
    # One run of 4 rows, 3 of them null, which contains two runs of 2 rows.
    large = known_of(pa.array([None, 1, None, None]), [(0, 4)])
    small = known_of(pa.array([2, 2, 3, 3]), [(0, 2), (2, 4)])
    match = pruner.evaluate(2, {0: large.take(np.array([0, 0])), 1: small})
    assert (match.may.tolist(), match.must.tolist()) == ([True, False], [False, False])


def with_nulls_matched(expression, matching):
    """Return `is_in` with a null matching option that pyarrow cannot spell."""
    buffer = expression.__reduce__()[1][0]
    reader = pa.ipc.open_file(buffer)
    options = reader.get_batch(0).column(0)
    names = [field.name for field in options.type]
    changed = dict(zip(names, options.flatten(), strict=True))
    changed["null_matching_behavior"] = pa.array([matching], pa.uint32())
    metadata = [("call", "is_in"), ("field_ref", "a"), ("options", "0"), ("end", "is_in")]
    batch = pa.record_batch([pa.StructArray.from_arrays(list(changed.values()), names)], ["0"])
    schema = pa.schema(batch.schema, metadata=pa.KeyValueMetadata(metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return pc.Expression._deserialize(sink.getvalue())


@pytest.mark.parametrize("wanted", [[1], [1, None], [None]], ids=str)
@pytest.mark.parametrize("matching", range(4))
def test_a_set_matches_nulls_in_each_way_there_is(matching, wanted):
    runs = [pa.array(run, pa.int64()) for run in ([1, 1], [None, None], [2, 3], [7, None])]
    values = pa.array(wanted, pa.int64())
    expression = with_nulls_matched(pc.is_in(pc.field("a"), value_set=values), matching)
    for outer in (expression, ~expression, expression.is_null()):
        masks = [expressions.mask(outer, {"a": pa.chunked_array([run])}, 2) for run in runs]
        found = judged(outer, a=runs)
        assert found[0] == [mask.any() for mask in masks]
        assert found[1] == [mask.all() for mask in masks]
