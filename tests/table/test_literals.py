"""Awkward literals: each finds the same rows in `==`, sets, ranges, texts, deletes and engines."""

import uuid
import warnings
from datetime import date, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.options import arguments

DAYS = [date(2026, 1, 1), date(2026, 1, 2), None]
NOON = datetime(2026, 1, 2, 12)
FEW_NS = pd.Timestamp("2026-01-02 00:00:00.000000005")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5: "the 'generic' unit"
    WITHOUT_UNIT = np.timedelta64(1)


def stored(array, place=None, **options):
    """Return a table with a column and a field of a struct, in row groups of one row."""
    place = RamStore() if place is None else place
    struct = pa.StructArray.from_arrays([array], ["c"])
    blz.to_blz(pa.table({"c": array, "s": struct}), place, **arguments(row_group_rows=1, **options))
    return blz.open(place, "a")


def counted_by_duckdb(dataset, where):
    with duckdb.connect() as connection:
        connection.register("ours", dataset)
        return connection.execute(f"select count(*) from ours where {where}").fetchall()[0][0]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([0, 1, None], pa.int8()),
        pa.array([0, 1, None], pa.uint64()),
        pa.array([0.0, 1.5, None]),
        pa.array([Decimal(0), Decimal(1), None], pa.decimal128(38, 2)),
    ],
    ids=lambda array: str(array.type),
)
def test_every_number_differs_from_nan_and_none_equals_it(array):
    with stored(array) as t:
        for nan in (float("nan"), np.float32("nan")):
            for name in ("c", "s.c"):
                assert t.count(filters=[(name, "!=", nan)]) == 2
                for operator in ("==", "<", "<=", ">", ">="):
                    assert t.count(filters=[(name, operator, nan)]) == 0
        # In a set it stands for missing values, where the type has no NaN of its own.
        has_nan = pa.types.is_floating(array.type)
        assert t.count(filters=[("c", "in", [float("nan")])]) == (not has_nan)
        assert t.delete([("c", "!=", float("nan"))]).rows_deleted == 2


@pytest.mark.parametrize("layout", ["memory", "directory", "file"])
@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array(DAYS), NOON),
        (pa.array(DAYS), pd.Timestamp(NOON)),
        (pa.array(DAYS), np.datetime64(NOON)),
        (pa.array(DAYS, pa.date64()), NOON),
        (pa.array(DAYS).dictionary_encode(), NOON),
        (pa.array([datetime(2026, 1, 2)], pa.timestamp("us")), FEW_NS),
        (pa.array([datetime(2026, 1, 2)], pa.timestamp("s", "UTC")), FEW_NS.tz_localize("UTC")),
        (pa.array([timedelta(seconds=1)], pa.duration("us")), pd.Timedelta(10**9 + 1, "ns")),
        (pa.array([Decimal("0.10"), Decimal("0.11")]), 0.105),
        (pa.array([Decimal("0.10"), Decimal("0.11")]), Decimal("0.10000001")),
        (pa.array([Decimal(0), Decimal(1)], pa.decimal128(38, 0)), 0.5),
        (pa.array([Decimal(0), Decimal(1)], pa.decimal128(38, 0)), Decimal("1.4")),
        (pa.array([1, 2], pa.int8()), 1.5),
        (pa.array([1, 2], pa.int8()), 257),
        (pa.array([1, 2], pa.uint64()), -1),
        (pa.array([b"ab", b"cd"], pa.binary(2)), b"a"),
    ],
    ids=str,
)
def test_a_value_between_two_values_is_in_no_set_and_deletes_nothing(
    tmp_path, layout, array, value
):
    options = {} if layout == "memory" else {"layout": layout}
    with stored(array, None if layout == "memory" else tmp_path / "t.blz", **options) as t:
        valid = len(array) - array.null_count
        for name in ("c", "s.c"):
            assert t.count(filters=[(name, "==", value)]) == 0
            assert t.count(filters=[(name, "in", [value])]) == 0
            assert t.count(filters=[(name, "not in", [value])]) == len(array)
            assert t.count(filters=[(name, "in", [value, None])]) == array.null_count
            assert t.count(filters=[(name, "!=", value)]) == valid
            sides = [t.count(filters=[(name, symbol, value)]) for symbol in ("<", "<=", ">", ">=")]
            assert sides[0] == sides[1]
            assert sides[2] == sides[3]
            assert sides[0] + sides[2] == valid
            assert t.delete([(name, "in", [value])]).rows_deleted == 0
            assert t.update({"c": None}, where=[(name, "==", value)]).rows_updated == 0


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([True, False]), 2),
        (pa.array([True, False]), "true"),
        (pa.array([1, 2], pa.int8()), "1"),
        (pa.array([1, 2]), True),
        (pa.array([1, 2], pa.duration("s")), 2),
        (pa.array(["1"]), 1),
        (pa.array([1.0]), "1"),
        (pa.array(DAYS), 20_454),
        (pa.array([datetime(2026, 1, 2)], pa.timestamp("us", "UTC")), datetime(2026, 1, 2)),
        (pa.array([datetime(2026, 1, 2)], pa.timestamp("us", "UTC")), date(2026, 1, 2)),
        (pa.array([datetime(2026, 1, 2)], pa.timestamp("us")), FEW_NS.tz_localize("UTC")),
        (pa.array([[1]]), [1]),
        (pa.array([1]), np.datetime64("2026-01-02")),
        (pa.array([timedelta(1)]), np.timedelta64(1, "M")),
        (pa.array([timedelta(1)]), WITHOUT_UNIT),
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_in_a_set_as_it_is_alone(array, value):
    with stored(array) as t:
        for filters in ([("c", "==", value)], [("c", "in", [value])], [("c", "not in", [value])]):
            message = rf"column 'c' is {array.type}; the value .* is .*; ".replace("[", r"\[")
            with pytest.raises(SchemaError, match=message):
                t.delete(filters)
        assert len(t) == len(array)


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.float16()], ids=str)
def test_sets_find_both_zeros_and_each_nan(type_):
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000000], "u8").view("f8")
    array = pa.array([-0.0, 0.0, 1.0, None, *nans], pa.float64()).cast(type_)
    with stored(array) as t:
        for zero in (0, 0.0, -0.0):
            for name in ("c", "s.c"):
                field = pc.field(*name.split("."))
                assert t.count(filters=[(name, "in", [zero, 5])]) == 2
                assert t.count(filters=[(name, "not in", [zero])]) == 4
                assert t.count(filters=f"{name} in ({zero})") == 2
                assert t.count(filters=f"{name} not in ({zero}, 5)") == 3
                assert t.count(filters=field.isin([zero, 5])) == 2
                assert t.count(filters=field.isin([*map(float, range(2, 5000)), zero])) == 2
                assert t.count(filters=[(name, "in", [float("nan")])]) == 2
                assert t.count(filters=~field.isin([float("nan")])) == 4
        if type_ != pa.float16():
            lazy = pl.scan_pyarrow_dataset(t.dataset())
            assert lazy.filter(pl.col("c").is_in([0.0, 5.0])).collect().height == 2
        assert t.delete("c not in (0, 1)").rows_deleted == 2


def test_large_numbers_of_uint64_are_compared_with_any_number():
    hashes = pa.array([1, 2**63, 2**64 - 1], pa.uint64())
    with stored(hashes) as t:
        lazy, column = pl.scan_pyarrow_dataset(t.dataset()), pl.col("c")
        for condition, rows in (
            (column > 5, 2),
            (column == 1, 1),
            (column != 1, 2),
            (column.is_in([1, 5]), 1),
            (column.is_between(1, 9), 1),
        ):
            assert lazy.filter(condition).collect().height == rows, condition
        for filters, rows in (
            ([("c", ">", -1)], 3),
            ([("c", "==", -1)], 0),
            ([("c", ">", 1.5)], 2),
            ([("c", "in", [-1, 1])], 1),
            ([("c", "<", 2**64)], 3),
            ("c > -1", 3),
            (pc.field("c") > 5, 2),
            (pc.field("s", "c") >= pa.scalar(2**63, pa.uint64()), 2),
            ("c < 1e30", 3),
            (pc.field("c").isin([1, -5]), 1),
            (pc.field("c") > -1.5, 3),
        ):
            assert t.count(filters=filters) == rows, filters
        assert counted_by_duckdb(t.dataset(), f"c > 5 or c = {2**63}") == 2


def test_decimals_of_38_digits_are_compared_with_fractions():
    with stored(pa.array([Decimal(0), Decimal(1), Decimal(-5)], pa.decimal128(38, 0))) as t:
        half = Decimal("0.5")
        for filters, rows in (
            ("c > 0.5", 1),
            ("c = 0.5", 0),
            ("c between -0.5 and 1.5", 2),
            ("c in (1, 0.5)", 1),
            ([("c", ">", half)], 1),
            ([("c", "in", [half, 1])], 1),
            ([("c", "<", -0.1)], 1),
            (pc.field("c") > half, 1),
            (pc.field("c").isin([half, Decimal(1)]), 1),
        ):
            assert t.count(filters=filters) == rows, filters


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps"])
@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("s"), pa.timestamp("ns")], ids=str)
def test_a_date_of_numpy_has_any_unit(unit, type_):
    days = pa.array([date(1970, 1, 1), date(1970, 1, 2), None]).cast(type_)
    with stored(days) as t:
        value = np.datetime64(0, unit)
        assert t.count(filters=[("c", "==", value)]) == 1
        assert t.count(filters=[("c", "in", np.array([value, "NaT"], f"M8[{unit}]"))]) == 2
        assert t.count(filters=[("c", ">", value)]) == 1


def test_a_column_without_values_equals_none():
    with stored(pa.nulls(3)) as t:
        for filters in ([("c", "==", 1)], [("c", "==", None)], "c < 1", "c in (1, 'x')"):
            assert t.count(filters=filters) == 0, filters
        assert t.count(filters=[("c", "in", [1, None])]) == 3


def test_a_uuid_is_compared_through_a_dataset_too():
    known = [uuid.UUID(int=1), uuid.UUID(int=2)]
    storage = pa.array([one.bytes for one in known], pa.binary(16))
    with stored(pa.ExtensionArray.from_storage(pa.uuid(), storage)) as t:
        for value in (known[0], known[0].bytes, str(known[0])):
            assert t.count(filters=[("c", "in", [value])]) == 1
        equal = pc.field("c") == pa.scalar(known[0].bytes, pa.uuid())
        assert t.dataset().scanner(filter=equal).count_rows() == 1
        assert t.dataset().filter(pc.field("c") == str(known[0])).count_rows() == 1
        assert counted_by_duckdb(t.dataset(), f"c = '{known[0]}'") == 1


def test_the_expression_of_an_update_compares_exactly():
    with stored(pa.array([1, 2, 2**53 + 1])) as t:
        t.update({"c": pc.if_else(pc.field("c") > 1.5, 0, pc.field("c"))})
        assert t["c"][:].to_pylist() == [1, 0, 0]
