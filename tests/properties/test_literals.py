"""A literal means the same in every form of a filter, and what exact arithmetic says.

The model compares values of Python exactly: fractions, nanoseconds, texts. So it knows the rows of
each type, operator and awkward literal. pandas, DuckDB and Polars answer over the same rows.
"""

import datetime as dt
import itertools
import math
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.query import expressions
from blztable.engine.query.pruning import Pruner
from blztable.storage.memory import RamStore
from support.options import arguments
from support.random_conditions import known_of

NAN, INF = math.nan, math.inf
UTC, TOKYO = dt.UTC, dt.timezone(dt.timedelta(hours=9))
OPERATORS = {
    **{"==": operator.eq, "!=": operator.ne, "<": operator.lt},
    **{"<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9


class Literal(NamedTuple):
    """A value of Python, numpy or pandas, its text, and the nanoseconds or the text that it is."""

    value: Any
    text: str | None = None
    exact: Any = None


def number(value):
    is_written = type(value) in (int, float, Decimal) and math.isfinite(value)
    return Literal(value, str(value) if is_written else None)


def moment(text, zone=None):
    """Yield the same time as Python, pandas and numpy know it, and as text."""
    ns = int(np.datetime64(text, "ns").astype(np.int64))
    aware = "" if not zone else "Z" if "T" in text else "T00:00Z"
    at = pd.Timestamp(text, tz=zone and "UTC")
    yield Literal(at.as_unit("ns"), f"'{text}{aware}'", ns)
    if ns % 1000 == 0:
        yield Literal(at.as_unit("us").to_pydatetime().astimezone(zone) if zone else at, None, ns)
        yield Literal(at.as_unit("us").to_pydatetime(), f"'{text}{aware}'", ns)
    if zone is None:
        units = ["ns", *(unit for unit in ("us", "s", "m", "h", "D") if _is_whole(text, unit))]
        yield from (Literal(np.datetime64(text, unit), None, ns) for unit in units)


def _is_whole(text, unit):
    return np.datetime64(text, "ns") == np.datetime64(text, "ns").astype(f"M8[{unit}]")


NUMBERS = [
    *map(number, (0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 2**24 + 1, 2**53, 2**53 + 1)),
    *map(number, (2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**20, -(10**80))),
    *map(number, (0.0, -0.0, 0.5, -1.5, 0.1, 0.105, 2.0**53, 1e300, -1e300, NAN, INF, -INF)),
    *map(number, map(Decimal, ("0.5", "0.10", "0.105", "1.00", "1E+3", "-0.05", "1e-10", "150"))),
    *map(number, (np.int8(1), np.uint64(2**63), np.float32(0.1), np.float64(0.1), np.float16(0.5))),
]
TEXTS_OF_TIMES = [
    "2026-01-02",
    "2026-01-02T12:00",
    "2026-01-02T00:00:00.5",
    "1969-12-31T23:59:59.999999999",
    "1970-01-01T00:00",
    "2026-01-02T00:00:00.000000005",
    "2026-01-01T23:59:59.999",
]
DATES = [dt.date(2026, 1, 2), dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
TIMES = [
    *(one for text in TEXTS_OF_TIMES for one in moment(text)),
    *(Literal(day, f"'{day}'", (day - dt.date(1970, 1, 1)).days * DAY) for day in DATES),
    Literal(np.datetime64("2026-01"), None, int(np.datetime64("2026-01", "ns").astype(int))),
]
INSTANTS = [
    *(one for text in TEXTS_OF_TIMES for one in moment(text, UTC)),
    *(one for text in TEXTS_OF_TIMES for one in moment(text, TOKYO)),
]
DURATIONS = [
    *(Literal(dt.timedelta(microseconds=us), None, us * 1000) for us in (0, 1, -1, 10**6, 1500)),
    *(Literal(pd.Timedelta(ns, "ns"), None, ns) for ns in (5, -5, 10**9, 10**9 + 1)),
    *(Literal(np.timedelta64(1, u), None, ns) for u, ns in {"D": DAY, **UNITS}.items()),
]
CLOCKS = [
    Literal(
        dt.time(hour, 0, 1, us), f"'{hour:02}:00:01.{us:06}'", (hour * 3600 + 1) * 10**9 + us * 1000
    )
    for hour in (0, 10, 23)
    for us in (0, 1, 500_000)
]
WORDS = [Literal(w, "'" + w.replace("'", "''") + "'", w) for w in ("", "a", "b", "it's", "é" * 40)]
FLAGS = [Literal(True, "true", True), Literal(np.False_, None, False)]

UNSIGNED = [pa.uint8(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal32(5, 2),
    pa.decimal128(3, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 10),
    pa.decimal128(5, -2),
    pa.decimal256(60, 5),
]
LITERALS = {
    **dict.fromkeys([pa.int8(), pa.int32(), pa.int64(), *UNSIGNED, *FLOATS, *DECIMALS], NUMBERS),
    **dict.fromkeys([pa.date32(), pa.date64(), *map(pa.timestamp, UNITS)], TIMES),
    **dict.fromkeys([pa.timestamp(u, "UTC") for u in UNITS], INSTANTS),
    pa.timestamp("us", "Europe/Oslo"): INSTANTS,
    **dict.fromkeys(map(pa.duration, UNITS), DURATIONS),
    **dict.fromkeys([pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], CLOCKS),
    **dict.fromkeys([pa.string(), pa.large_string(), pa.string_view()], WORDS),
    pa.dictionary(pa.int8(), pa.string()): WORDS,
    pa.bool_(): FLAGS,
}


def unit_of(type_):
    """Return what 1 in the integers of a type counts; None for floats, texts and booleans."""
    if pa.types.is_integer(type_):
        return Fraction(1)
    if pa.types.is_decimal(type_):
        return Fraction(10) ** -type_.scale
    if pa.types.is_date(type_):
        return Fraction(DAY)
    return Fraction(UNITS[type_.unit]) if pa.types.is_temporal(type_) else None


def exact_of(literal, type_, is_typed):
    """Return a literal as an exact number or text; None for a missing value."""
    value = literal.value
    if literal.exact is not None:
        return literal.exact
    is_float = isinstance(value, float | np.floating)
    if is_float and value != value:
        return NAN if is_typed or pa.types.is_floating(type_) else None
    if pa.types.is_floating(type_):
        wide = as_float(value)
        with np.errstate(over="ignore"):
            nearest = float(np.dtype(f"f{type_.bit_width // 8}").type(wide))
        is_rounded = not (is_typed and is_float) and (math.isinf(wide) or math.isfinite(nearest))
        return nearest if is_rounded else wide
    if is_float and math.isfinite(value):
        written = str(value if is_typed else float(value))
        return Fraction(written) if pa.types.is_decimal(type_) else Fraction(float(value))
    return (
        float(value) if is_float else Fraction(int(value) if type(value) is not Decimal else value)
    )


def as_float(value):
    try:
        return float(value)
    except OverflowError:
        return INF if value > 0 else -INF


def typed(literal):
    """Return a literal as a scalar of Arrow with a type of its own; None without one."""
    value = literal.value
    if isinstance(value, pd.Timestamp | pd.Timedelta):
        scalar = pa.scalar(value.asm8)
        has_zone = isinstance(value, pd.Timestamp) and value.tzinfo
        return scalar.cast(pa.timestamp(scalar.type.unit, "UTC")) if has_zone else scalar
    if isinstance(value, np.datetime64 | np.timedelta64):
        return pa.scalar(value) if np.datetime_data(value.dtype)[0] in UNITS else None
    if type(value) is int and not -(2**63) <= value < 2**63:
        return pa.scalar(Decimal(value)) if abs(value) < 10**76 else None
    return pa.scalar(value)


@st.composite
def listed(draw, values):
    """Draw rows in any order, or in order, so that statistics of row groups and pages decide."""
    rows = draw(st.lists(values, min_size=1, max_size=24))
    is_sorted = draw(st.booleans())
    return sorted(rows, key=lambda one: (one is None, one)) if is_sorted else rows


@st.composite
def rows_of(draw, type_, literals):
    """Draw exact values of rows, most of them near a literal, and the array of them."""
    near = [exact_of(one, type_, True) for one in literals]
    if pa.types.is_floating(type_):
        known = [0.0, -0.0, 1.0, float(np.float32(0.1)), float(np.float16(0.1)), 0.1, NAN, INF]
        dtype = np.dtype(f"f{type_.bit_width // 8}")
        with np.errstate(over="ignore"):
            known = [float(dtype.type(one)) for one in [*known, *map(as_float, near)]]
        values = draw(listed(st.none() | st.sampled_from(known)))
        return values, pa.array(values, pa.float64()).cast(type_)
    unit = unit_of(type_)
    if unit is None:
        values = draw(listed(st.none() | st.sampled_from(near)))
        return values, pa.array(values, pa.string() if WORDS[0].exact in near else None).cast(type_)
    counts = {0, 1} | {
        math.floor(one / unit) + step for one in near if abs(one) < INF for step in (-1, 0, 1)
    }
    counts = sorted(one for one in counts if fits(one, type_))
    drawn = draw(listed(st.none() | st.sampled_from(counts)))
    return [one if one is None else one * unit for one in drawn], array_of(drawn, type_)


def fits(count, type_):
    if pa.types.is_decimal(type_):
        return abs(count) < 10**type_.precision
    if pa.types.is_time(type_):
        return 0 <= count * unit_of(type_) < DAY
    if pa.types.is_date64(type_):
        return abs(count) < 10**7
    bits = type_.bit_width - (type_ not in UNSIGNED)
    return (0 if type_ in UNSIGNED else -(2**bits)) <= count < 2**bits


def array_of(counts, type_):
    if pa.types.is_integer(type_):
        return pa.array(counts, type_)
    if pa.types.is_decimal(type_):
        scaled = [
            c if c is None else Decimal((int(c < 0), tuple(map(int, str(abs(c)))), -type_.scale))
            for c in counts
        ]
        return pa.array(scaled, type_)
    if pa.types.is_date64(type_):
        counts = [one if one is None else one * 86_400_000 for one in counts]
    return pa.array(counts, pa.int32() if type_.bit_width == 32 else pa.int64()).cast(type_)


def compared(row, operator_, value):
    """Return whether a comparison is true."""
    return row is not None and value is not None and OPERATORS[operator_](row, value)


def is_among(row, values):
    """Return whether a value is in a set: a null and a NaN match themselves."""
    if row is None or row != row:
        return any((one is None) if row is None else one != one for one in values)
    return any(row == one for one in values if one is not None)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("literals")
    return {
        "memory": lambda: (RamStore(), {}),
        "directory": lambda: (folder / "t.blz", {}),
        "file": lambda: (folder / "f.blz", {"layout": "file"}),
    }


def stored(place, table, row_group_rows=4):
    target, options = place()
    options |= {"row_group_rows": row_group_rows, "page_rows": 8, "durability": "process"}
    blz.to_blz(table, target, **arguments(mode="w", **options))
    return blz.open(target, "a")


@st.composite
def cases(draw):
    """Draw a type, some literals for it, and rows near them."""
    type_ = draw(st.sampled_from(list(LITERALS)))
    literals = draw(st.lists(st.sampled_from(LITERALS[type_]), min_size=1, max_size=4))
    return type_, literals, *draw(rows_of(type_, literals))


def conditions(name, path, type_, literals, symbol, rows):
    """Yield each form of a comparison and of a set, with the rows that it must find."""
    first, field = literals[0], pc.field(*path)
    value, scalar = exact_of(first, type_, False), typed(first)
    found = [compared(row, symbol, value) for row in rows]
    yield [(path if len(path) > 1 else name, symbol, first.value)], found
    if first.text:
        yield f"{name} {symbol} {first.text}", found
        yield f"{first.text} {MIRRORED[symbol]} {name}", found
        yield (
            f"not {name} {symbol} {first.text}",
            [row is not None and not one for row, one in zip(rows, found, strict=True)],
        )
    if scalar is not None:
        value = exact_of(first, type_, True)
        found = [compared(row, symbol, value) for row in rows]
        yield OPERATORS[symbol](field, scalar), found
        yield OPERATORS[MIRRORED[symbol]](pc.scalar(scalar), field), found
        same = [
            one for one in literals if typed(one) is not None and typed(one).type == scalar.type
        ]
        among = [*(exact_of(one, type_, True) for one in same), None]
        values = pa.array([*map(typed, same), None], scalar.type)
        yield field.isin(values), [is_among(row, among) for row in rows]
        yield ~field.isin(values), [not is_among(row, among) for row in rows]
    members = [one.value for one in literals]
    among = [exact_of(one, type_, False) for one in literals]
    found = [is_among(row, among) for row in rows]
    yield [(name, "in", members)], found
    yield [(name, "not in", members)], [not one for one in found]
    yield (
        [(name, "in", [*members, None])],
        [one or row is None for one, row in zip(found, rows, strict=True)],
    )
    texts = [one for one in literals if one.text]
    if texts:
        among = [exact_of(one, type_, False) for one in texts]
        listed = ", ".join(one.text for one in texts)
        yield f"{name} in ({listed})", [is_among(row, among) for row in rows]
        yield (
            f"{name} not in ({listed})",
            [row is not None and not is_among(row, among) for row in rows],
        )


@given(
    case=cases(),
    symbol=st.sampled_from(list(OPERATORS)),
    is_field=st.booleans(),
    cuts=st.lists(st.integers(1, 23)),
)
def test_rows_and_statistics_answer_as_exact_arithmetic_does(case, symbol, is_field, cuts):
    type_, literals, rows, array = case
    table = pa.table({"c": array, "s": pa.StructArray.from_arrays([array], ["c"])})
    name, path = ("s.c", ("s", "c")) if is_field else ("c", ("c",))
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    runs = list(itertools.pairwise(ends))
    for filters, expected in conditions(name, path, type_, literals, symbol, rows):
        expression = expressions.as_expression(filters, table.schema)
        told = (str(type_), filters, rows)
        columns = dict(zip(table.column_names, table.columns, strict=True))
        assert expressions.mask(expression, columns, len(rows)).tolist() == expected, told
        assert expressions.as_expression(expression, table.schema).equals(expression), told
        pruner = Pruner(expression, table.schema)
        assert is_field or pruner.columns == (0,), told
        known = {at: known_of(table.column(at).combine_chunks(), runs) for at in pruner.columns}
        match = pruner.evaluate(len(runs), known)
        for (start, stop), may, must in zip(runs, match.may, match.must, strict=True):
            assert may or not any(expected[start:stop]), told
            assert not must or all(expected[start:stop]), told


@given(
    case=cases(),
    symbol=st.sampled_from(list(OPERATORS)),
    place=st.sampled_from(["memory", "memory", "memory", "directory", "file"]),
    form=st.sampled_from(["column", "field", "transaction", "dataset", "delete"]),
    group=st.sampled_from([3, 24]),
)
def test_a_filter_finds_what_exact_arithmetic_finds(places, case, symbol, place, form, group):
    type_, literals, rows, array = case
    inner = pa.StructArray.from_arrays([array], ["c"])
    table = pa.table({"row": range(len(rows)), "c": array, "s": inner})
    name, path = ("s.c", ("s", "c")) if form == "field" else ("c", ("c",))
    with stored(places[place], table, group) as t:
        for filters, expected in conditions(name, path, type_, literals, symbol, rows):
            wanted = [row for row, one in enumerate(expected) if one]
            told = (str(type_), filters, rows)
            if form == "transaction":
                with t.transaction() as tx:
                    assert tx.to_arrow(["row"], filters=filters)["row"].to_pylist() == wanted, told
            elif form == "dataset" and isinstance(filters, pc.Expression):
                scan = t.dataset().scanner(["row"], filter=filters)
                assert scan.to_table()["row"].to_pylist() == wanted, told
            elif form == "delete":
                assert t.count(filters=filters) == len(wanted), told
            else:
                assert t.to_arrow(["row"], filters=filters)["row"].to_pylist() == wanted, told
        if form == "delete":
            assert t.delete(filters).rows_deleted == len(wanted), told
            assert t["row"][:].to_pylist() == [row for row in range(len(rows)) if row not in wanted]


ENGINE_TYPES = [
    type_
    for type_ in LITERALS
    if type_ not in (pa.float16(), pa.decimal128(5, -2), pa.decimal256(60, 5), pa.date64())
    and getattr(type_, "tz", None) in (None, "UTC")
]


def is_nan(value):
    return isinstance(value, float) and value != value


@given(data=st.data(), symbol=st.sampled_from(list(OPERATORS)))
def test_an_engine_finds_in_a_dataset_what_it_finds_in_its_own_table(places, data, symbol):
    type_ = data.draw(st.sampled_from(ENGINE_TYPES))
    literals = data.draw(st.lists(st.sampled_from(LITERALS[type_]), min_size=1, max_size=3))
    literals = [one for one in literals if not is_nan(one.value)] or [LITERALS[type_][0]]
    rows, array = data.draw(rows_of(type_, literals))
    # Through Arrow, NaN has no order.
    table = pa.table({"row": range(len(rows)), "c": array})
    if any(map(is_nan, rows)):
        table = table.filter(pa.array([not is_nan(row) for row in rows]))
    with stored(places["memory"], table) as t:
        polars_finds(table, t.dataset(), literals, symbol)
        duckdb_finds(table, t.dataset(), literals, symbol, type_)


def polars_finds(table, dataset, literals, symbol):
    own, ours = pl.from_arrow(table), pl.scan_pyarrow_dataset(dataset)
    values = [one.value for one in literals]
    column = pl.col("c")
    for make in (
        lambda: OPERATORS[symbol](column, values[0]),
        lambda: column.is_in(values),
        # Arrow's sets are false for nulls, not null.
        lambda: column.is_not_null() & ~column.is_in(values),
        lambda: column.is_between(values[0], values[-1]),
    ):
        try:
            wanted = own.filter(make())["row"].to_list()
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
            continue
        got = ours.filter(make()).collect()["row"].to_list()
        assert got == wanted, (str(make()), str(table))


def duckdb_finds(table, dataset, literals, symbol, type_):
    casts = {"date": "date ", "time": "time ", "timestamp": "timestamp "}
    prefix = next((sql for word, sql in casts.items() if word in str(type_).split("[")[0]), "")
    if pa.types.is_timestamp(type_):
        prefix = "timestamptz " if type_.tz else "timestamp_ns " if type_.unit == "ns" else prefix
    texts = [prefix + one.text for one in literals if one.text]
    if not texts:
        return
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("arrow", table)
        connection.execute("create table own as select * from arrow")
        connection.register("ours", dataset)
        for where in (
            f"c {symbol} {texts[0]}",
            f"c in ({', '.join(texts)})",
            f"c not in ({texts[0]}, {texts[-1]})",
            f"c between {texts[0]} and {texts[-1]}",
        ):
            try:
                wanted = connection.execute(
                    f"select row from own where {where} order by row"
                ).fetchall()
            except duckdb.Error:
                continue
            got = connection.execute(f"select row from ours where {where} order by row").fetchall()
            assert got == wanted, (where, str(table))


PANDAS_TYPES = [pa.int8(), pa.int64(), pa.float32(), pa.float64(), *map(pa.timestamp, UNITS)]


@given(data=st.data(), symbol=st.sampled_from(list(OPERATORS)))
def test_a_tuple_finds_what_pandas_finds(places, data, symbol):
    type_ = data.draw(st.sampled_from(PANDAS_TYPES))
    known = [one for one in LITERALS[type_] if as_pandas_compares(one.value)]
    if type_ == pa.float32():
        # To numpy, its own floats have a width.
        known = [one for one in known if not isinstance(one.value, np.generic)]
    literals = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    rows, array = data.draw(rows_of(type_, literals))
    table = pa.table({"row": range(len(rows)), "c": array}).filter(array.is_valid())
    series = table["c"].to_pandas()
    values = [one.value for one in literals]
    with stored(places["memory"], table) as t:
        wanted = table.filter(pa.array(OPERATORS[symbol](series, values[0])))
        got = t.to_arrow(["row"], filters=[("c", symbol, values[0])])
        assert got["row"].to_pylist() == wanted["row"].to_pylist(), (values, series.tolist())
        if type_ != pa.float32():
            # pandas looks for floats of 32 bits as floats of 64.
            wanted = table.filter(pa.array(series.isin(values)))
            got = t.to_arrow(["row"], filters=[("c", "in", values)])
            assert got["row"].to_pylist() == wanted["row"].to_pylist(), (values, series.tolist())


def as_pandas_compares(value):
    """Leave out what pandas refuses or rounds: dates, decimals, and numbers beyond 2**24."""
    if isinstance(value, int | float):
        return is_nan(value) or abs(value) <= 2**24
    return isinstance(value, pd.Timestamp | dt.datetime | np.datetime64)
