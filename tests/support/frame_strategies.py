"""Strategies for DataFrames of every dtype, index and kind of label that a table keeps.

`frames()` is for every room that takes a DataFrame; `rebuilt` returns a table as the store does.
"""

import datetime
import json
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

from blztable.convert.frames.frame import to_frame
from blztable.convert.gateway import ingest
from support import object_strategies

UNITS = ("s", "ms", "us", "ns")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
ZONES = st.sampled_from(
    [
        datetime.UTC,
        zoneinfo.ZoneInfo("Europe/Berlin"),
        zoneinfo.ZoneInfo("America/New_York"),
        datetime.timezone(datetime.timedelta(hours=5, minutes=30)),
    ]
)
NUMPY = [f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)]
NUMPY += ["float16", "float32", "float64", "bool"]
MASKED = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"]
MASKED += ["Float32", "Float64", "boolean"]
PERIODS = ["D", "M", "Q-DEC", "Y-DEC", "W-SUN", "h", "min", "s", "3h"]
# Years that every unit can represent.
TICKS = {"s": 2**33, "ms": 2**43, "us": 2**53, "ns": 2**62}
NAT = np.iinfo("i8").min


def rebuilt(table: pa.Table) -> pa.Table:
    """Return the same table over fresh, writable memory, as the store decodes it."""
    columns = []
    for column in table.columns:
        chunks = [_fresh(chunk) for chunk in column.chunks]
        columns.append(pa.chunked_array(chunks, column.type))
    return pa.Table.from_arrays(columns, schema=table.schema)


ATTRS = st.recursive(
    st.integers() | TEXT | st.none() | st.binary(max_size=3) | st.decimals(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(TEXT | st.integers() | st.tuples(TEXT, TEXT), inner, max_size=2)
        | st.sets(TEXT, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def frames(draw: st.DrawFn, rows_max: int = 12) -> pd.DataFrame:
    """Draw a DataFrame of any kept dtypes, index and labels, maybe without rows or columns."""
    # Casts within pandas may overflow; the result is still a DataFrame.
    with np.errstate(all="ignore"):
        rows = draw(st.integers(0, rows_max))
        values = draw(st.lists(columns(rows), max_size=5))
        data = {
            i: pd.Series(v, dtype=object) if v.dtype == object else v for i, v in enumerate(values)
        }
        frame = pd.DataFrame(data, index=pd.RangeIndex(rows))
        frame.index = draw(indexes(rows))
        frame.columns = draw(headers(len(values)))
        frame.attrs = draw(st.dictionaries(TEXT | st.integers(), ATTRS, max_size=2))
        if frame.columns.is_unique and frame.index.is_unique and draw(st.booleans()):
            frame.flags.allows_duplicate_labels = False
        return frame


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Any:
    """Draw the array of one column."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    return draw(KINDS[kind](rows))


@st.composite
def plain(draw: st.DrawFn, rows: int) -> Any:
    """Draw numbers with every bit pattern, so that NaN has payloads."""
    dtype = np.dtype(draw(st.sampled_from(NUMPY)))
    if dtype.kind == "b":
        return np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), dtype=bool)
    data = draw(st.binary(min_size=rows * dtype.itemsize, max_size=rows * dtype.itemsize))
    return np.frombuffer(data, dtype).copy()


@st.composite
def masked(draw: st.DrawFn, rows: int) -> Any:
    dtype = draw(st.sampled_from(MASKED))
    mask = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), dtype=bool)
    small = draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows))
    if dtype == "boolean":
        return pd.arrays.BooleanArray(np.array(small, dtype=bool), mask)
    values = np.array(small, dtype=dtype.lower())
    if dtype.startswith("Float"):
        values[values == 0] = np.nan
        return pd.arrays.FloatingArray(values, mask)
    return pd.arrays.IntegerArray(values, mask)


def _ticks(draw: st.DrawFn, rows: int, unit: str) -> np.ndarray:
    tick = st.just(NAT) | st.integers(-TICKS[unit], TICKS[unit])
    return np.array(draw(st.lists(tick, min_size=rows, max_size=rows)), dtype="i8")


@st.composite
def datetimes(draw: st.DrawFn, rows: int) -> Any:
    unit = draw(st.sampled_from(UNITS))
    return pd.array(_ticks(draw, rows, unit).view(f"M8[{unit}]"))


@st.composite
def zoned(draw: st.DrawFn, rows: int) -> Any:
    unit = draw(st.sampled_from(UNITS))
    dtype = pd.DatetimeTZDtype(unit, draw(ZONES))
    return pd.array(_ticks(draw, rows, unit), dtype=dtype)


@st.composite
def timedeltas(draw: st.DrawFn, rows: int) -> Any:
    unit = draw(st.sampled_from(UNITS))
    return pd.array(_ticks(draw, rows, unit).view(f"m8[{unit}]"))


@st.composite
def periods(draw: st.DrawFn, rows: int) -> Any:
    ordinal = st.just(NAT) | st.integers(-1000, 1000)
    ordinals = np.array(draw(st.lists(ordinal, min_size=rows, max_size=rows)), dtype="i8")
    return pd.arrays.PeriodArray(ordinals, dtype=pd.PeriodDtype(draw(st.sampled_from(PERIODS))))


@st.composite
def strings(draw: st.DrawFn, rows: int) -> Any:
    storage = draw(st.sampled_from(["pyarrow", "python"]))
    dtype = pd.StringDtype(storage, na_value=draw(st.sampled_from([np.nan, pd.NA])))
    return pd.array(draw(st.lists(TEXT | st.none(), min_size=rows, max_size=rows)), dtype=dtype)


@st.composite
def objects(draw: st.DrawFn, rows: int) -> Any:
    value = draw(
        st.sampled_from(
            [
                TEXT,
                st.binary(max_size=4),
                st.booleans(),
                st.dates(),
                st.times().map(lambda time: time.replace(fold=0)),
                st.decimals(
                    allow_nan=False, allow_infinity=False, places=3, min_value=-9, max_value=9
                ),
            ]
        )
    )
    marker = draw(st.sampled_from([None, np.nan, pd.NA, pd.NaT]))
    values = np.empty(rows, dtype=object)
    values[:] = draw(st.lists(value | st.just(marker), min_size=rows, max_size=rows))
    return values


@st.composite
def arrow(draw: st.DrawFn, rows: int) -> Any:
    type_, value = draw(
        st.sampled_from(
            [
                (pa.int16(), st.integers(-9, 9)),
                (pa.string(), TEXT),
                (pa.large_string(), TEXT),
                (pa.decimal128(9, 3), st.decimals(-9, 9, places=3)),
                (pa.date32(), st.dates()),
                (pa.timestamp("us", "Europe/Berlin"), st.integers(0, 2**50)),
                (pa.list_(pa.int8()), st.lists(st.integers(0, 9), max_size=2)),
                (pa.struct({"a": pa.int8()}), st.fixed_dictionaries({"a": st.integers(0, 9)})),
                (pa.dictionary(pa.int8(), pa.string()), TEXT),
                (
                    pa.map_(pa.string(), pa.list_(pa.float32())),
                    st.dictionaries(
                        TEXT, st.lists(st.floats(width=32, allow_nan=False)), max_size=2
                    ),
                ),
                (
                    pa.list_(pa.struct({"a": pa.date32(), "b": pa.list_(pa.string(), 2)})),
                    st.lists(
                        st.fixed_dictionaries(
                            {"a": st.dates(), "b": st.lists(TEXT, min_size=2, max_size=2)}
                        ),
                        max_size=2,
                    ),
                ),
            ]
        )
    )
    values = draw(st.lists(value | st.none(), min_size=rows, max_size=rows))
    return pd.arrays.ArrowExtensionArray(pa.array(values, type_))


@st.composite
def kinds_of_objects(draw: st.DrawFn, rows: int) -> Any:
    """Draw objects of one kind, maybe with others inside, with one marker of a missing value."""
    value = draw(object_strategies.kinds(1, hashable=draw(st.booleans())))
    marker = draw(st.sampled_from([None, np.nan, pd.NA, pd.NaT]))
    return object_strategies.objects(
        draw(st.lists(value | st.just(marker), min_size=rows, max_size=rows))
    )


@st.composite
def intervals(draw: st.DrawFn, rows: int) -> Any:
    dtype = draw(st.sampled_from(["i8", "f8", "M8[us]", "M8[ns]", "m8[s]"]))
    ticks = np.array(draw(st.lists(st.integers(-99, 99), min_size=rows, max_size=rows)), "i8")
    zone = draw(ZONES) if dtype == "M8[us]" and draw(st.booleans()) else None
    ends = [pd.Index(values).astype(dtype) for values in (ticks, ticks + 5)]
    if zone is not None:
        ends = [end.tz_localize(zone) for end in ends]
    closed = draw(st.sampled_from(["left", "right", "both", "neither"]))
    made = pd.arrays.IntervalArray.from_arrays(*ends, closed=closed)
    if dtype != "i8" and rows and draw(st.booleans()):
        made[0] = None
    return made


@st.composite
def sparse(draw: st.DrawFn, rows: int) -> Any:
    dtype = np.dtype(draw(st.sampled_from(["i8", "u1", "f8", "f4", "bool", "M8[ns]"])))
    small = np.array(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), "i8")
    if dtype.kind == "f":
        small = np.where(small == 1, np.nan, small)
    fill = draw(st.sampled_from([0, 1, None])) if dtype.kind in "iuf" else None
    kind = draw(st.sampled_from(["integer", "block"]))
    return pd.arrays.SparseArray(small.astype(dtype), fill_value=fill, kind=kind)


@st.composite
def complexes(draw: st.DrawFn, rows: int) -> Any:
    dtype = np.dtype(draw(st.sampled_from(["c8", "c16"])))
    data = draw(st.binary(min_size=rows * dtype.itemsize, max_size=rows * dtype.itemsize))
    return np.frombuffer(data, dtype).copy()


@st.composite
def categoricals(draw: st.DrawFn, rows: int) -> Any:
    # A dictionary of Arrow holds no dictionaries, and no nested values.
    without = {"categoricals", "kinds_of_objects", "sparse", "complexes"}
    kind = draw(st.sampled_from(sorted(set(KINDS) - without)))
    found = pd.Index(draw(KINDS[kind](draw(st.integers(0, 5))))) if kind != "plain" else None
    if found is None or found.dtype == "boolean" or isinstance(found.dtype, pd.ArrowDtype):
        found = pd.Index(["b", "a", "c"]) if draw(st.booleans()) else pd.RangeIndex(3)
    categories = found[~found.isna()].unique()
    code = st.integers(-1, len(categories) - 1)
    codes = draw(st.lists(code, min_size=rows, max_size=rows))
    dtype = pd.CategoricalDtype(categories, draw(st.booleans()))
    return pd.Categorical.from_codes(codes, dtype=dtype)


KINDS = {
    made.__name__: made
    for made in (
        plain,
        masked,
        datetimes,
        zoned,
        timedeltas,
        periods,
        strings,
        objects,
        arrow,
        kinds_of_objects,
        intervals,
        sparse,
        complexes,
        categoricals,
    )
}

NAMES = (
    st.none()
    | TEXT
    | st.integers()
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.tuples(TEXT, st.integers())
    | st.just(pd.Timestamp("2020-02-03 04:05:06.789", tz="Europe/Berlin"))
    | st.just(pd.Timedelta(days=1))
    | st.just(datetime.date(2020, 1, 1))
    | st.just(np.int16(7))
    | st.just(np.float32(1.5))
    | st.just(pd.Period("2020-01", "M"))
    | st.binary(max_size=2)
    | st.decimals(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.just(pd.Interval(0, 1.5, closed="both"))
    | st.times(timezones=st.none())
    | st.datetimes(timezones=ZONES, allow_imaginary=False)
    | st.uuids()
)


@st.composite
def indexes(draw: st.DrawFn, rows: int) -> pd.Index:
    """Draw a row index: a range, values, with a frequency, or of several levels."""
    match draw(st.sampled_from(["range", "values", "freq", "multi"])):
        case "range":
            start, step = draw(st.integers(-99, 99)), draw(st.sampled_from([1, -1, 3]))
            return pd.RangeIndex(start, start + rows * step, step, name=draw(NAMES))
        case "values":
            return pd.Index(_indexable(draw(columns(rows).filter(_hashable))), name=draw(NAMES))
        case "freq":
            freq = draw(st.sampled_from(["D", "h", "2D", "B", "MS", "W-SUN", "QE-DEC"]))
            tz = draw(st.none() | ZONES)
            return pd.date_range("2020", periods=rows, freq=freq, tz=tz, name=draw(NAMES))
    level = columns(rows).filter(_hashable).filter(_sortable)
    levels = draw(st.lists(level, min_size=1, max_size=3))
    names = draw(st.lists(NAMES, min_size=len(levels), max_size=len(levels)))
    return pd.MultiIndex.from_arrays([pd.Index(_indexable(level)) for level in levels], names=names)


@st.composite
def headers(draw: st.DrawFn, count: int) -> pd.Index:
    """Draw column labels: text, numbers, times, mixed, of several levels, with duplicates."""
    name = draw(NAMES)
    exact = {"min_size": count, "max_size": count}
    match draw(st.sampled_from(["text", "range", "int", "object", "time", "multi", "category"])):
        case "text":
            return pd.Index(draw(st.lists(TEXT, **exact)), dtype="str", name=name)
        case "range":
            return pd.RangeIndex(3, 3 + 2 * count, 2, name=name)
        case "int":
            return pd.Index(draw(st.lists(st.integers(-9, 9), **exact)), dtype="int64", name=name)
        case "time":
            tz = draw(st.none() | ZONES)
            return pd.date_range("2020", periods=count, freq="D", tz=tz, name=name)
        case "category":
            return pd.CategoricalIndex(
                draw(st.lists(st.sampled_from(["a", "b"]), **exact)), ["b", "a", "c"], name=name
            )
        case "multi" if count:
            pairs = draw(st.lists(st.tuples(TEXT, st.integers(0, 3)), **exact))
            return pd.MultiIndex.from_tuples(pairs, names=[name, draw(NAMES)])
    labels = draw(st.lists(NAMES, **exact))
    return pd.Index(labels, dtype=object, name=name, tupleize_cols=False)


def _hashable(values: Any) -> bool:
    """True if pandas can hash the values; it cannot for every Arrow type and object."""
    if values.dtype == object and isinstance(values, np.ndarray):
        return all(map(_has_hash, values))
    return not isinstance(values.dtype, pd.ArrowDtype) or values.dtype.pyarrow_dtype == pa.int16()


def _sortable(values: Any) -> bool:
    """True if pandas sorts and compares the values: not tuples, and not sets with a NaN."""
    return not any(isinstance(value, tuple | frozenset) for value in values)


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _indexable(values: Any) -> Any:
    return values.astype("f4") if values.dtype == np.float16 else values


def _fresh(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(
            _fresh(array.indices), _fresh(array.dictionary), ordered=array.type.ordered, safe=False
        )
    if array.type.num_fields or isinstance(array.type, pa.BaseExtensionType):
        return array
    buffers = []
    for buffer in array.buffers():
        if buffer is None:
            buffers.append(None)
            continue
        copied = pa.allocate_buffer(buffer.size)
        np.frombuffer(copied, np.uint8)[:] = np.frombuffer(buffer, np.uint8)
        buffers.append(copied)
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, array.offset)


def returned(frame, **options):
    """Return the DataFrame after a round trip through a store, where the descriptor is JSON."""
    stored = ingest(frame, **options)
    facts = json.loads(json.dumps(stored.frame, allow_nan=False))
    return to_frame(rebuilt(stored.table), stored.rows, facts, stored.attrs)
