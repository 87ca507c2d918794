"""Header: the labels of a DataFrame's columns, by the names of their Arrow fields.

Knows nothing of the columns' values. Labels are looked up by field name, so the header stays true
when columns are selected, added, dropped or renamed.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.convert.frames.descriptor import (
    Descriptor,
    Json,
    expect_bool,
    expect_int64,
    expect_keys,
    expect_list,
    expect_text,
)
from blztable.convert.frames.labels import CLOSED, decode_label, encode_label, numpy_name
from blztable.convert.frames.text import USUAL, string_dtype
from blztable.convert.frames.times import (
    REFUSALS,
    UNITS,
    decode_freq,
    encode_freq,
    period_dtype,
    period_freq,
    stated_zone,
    zone_name,
    zoned_dtype,
)
from blztable.convert.objects.tagged import decode_value, encode_value
from blztable.errors import FormatError, SchemaError

NUMPY = (
    "object",
    "bool",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    *(f"{kind}8[{unit}]" for kind in "Mm" for unit in UNITS),
)
MASKED: dict[str, Any] = {
    dtype.name: dtype
    for dtype in (
        pd.Int8Dtype(),
        pd.Int16Dtype(),
        pd.Int32Dtype(),
        pd.Int64Dtype(),
        pd.UInt8Dtype(),
        pd.UInt16Dtype(),
        pd.UInt32Dtype(),
        pd.UInt64Dtype(),
        pd.Float32Dtype(),
        pd.Float64Dtype(),
        pd.BooleanDtype(),
    )
}


def encode_header(columns: Any, fields: Sequence[str]) -> Descriptor | None:
    """Return the labels, names and dtypes of `columns`; None for `str` labels without a name."""
    multi = isinstance(columns, pd.MultiIndex)
    if not multi and columns.dtype == USUAL and columns.name is None and not columns.hasnans:
        return None
    levels = columns.levels if multi else [columns]
    labels = zip(fields, columns.tolist(), strict=True)
    return {
        "multi": multi,
        "names": [encode_label(name) for name in columns.names],
        "levels": [_encode_level(level) for level in levels],
        "labels": [[field, encode_label(label)] for field, label in labels],
    }


def decode_header(header: Json, fields: Sequence[str]) -> pd.Index:
    """Return the columns Index of these fields."""
    if header is None:
        return pd.Index(list(fields), dtype=USUAL)
    levels, multi = _checked(header)["levels"], header["multi"]
    names = [decode_label(name) for name in header["names"]]
    labels = _labels_of(header["labels"], fields)
    try:
        if not multi:
            return _decode_level(levels[0], labels).rename(names[0])
        rows = [_padded(label, len(levels)) for label in labels]
        parts: Any = [_codes(level, [row[i] for row in rows]) for i, level in enumerate(levels)]
        return pd.MultiIndex([part[0] for part in parts], [part[1] for part in parts], names=names)
    except FormatError:
        raise
    except REFUSALS as error:
        raise FormatError(f"column labels do not match their dtypes: {error}") from None


def more_labels(header: Descriptor, other: Descriptor, fields: Collection[str]) -> Descriptor:
    """Return the header with the labels of these fields in another header of as many levels."""
    mine, theirs = _checked(header), _checked(other)
    if (mine["multi"], len(mine["levels"])) != (theirs["multi"], len(theirs["levels"])):
        return header
    more = [pair for pair in theirs["labels"] if _pair(pair)[0] in fields]
    # A new field does not inherit the label of a dropped field of the same name.
    kept = without_labels(header, fields)["labels"]
    return {**header, "labels": [*kept, *more]}


def without_labels(header: Descriptor, fields: Collection[str]) -> Descriptor:
    """Return the header without the labels of these fields."""
    labels = [pair for pair in _checked(header)["labels"] if _pair(pair)[0] not in fields]
    return {**header, "labels": labels}


def _checked(header: Json) -> Descriptor:
    """Return the header with its structure checked; its labels are not."""
    checked = expect_keys(header, ["multi", "names", "levels", "labels"])
    multi = expect_bool(header["multi"])
    levels = expect_list(header["levels"], None if multi else 1)
    expect_list(header["names"], len(levels))
    expect_list(header["labels"])
    return checked


def _pair(pair: Json) -> tuple[str, Json]:
    field, label = expect_list(pair, 2)
    return expect_text(field), label


def _labels_of(pairs: Json, fields: Sequence[str]) -> list[Any]:
    """Return a label for each field; fields of the same name take theirs in order."""
    known: dict[str, list[Any]] = {}
    for field, label in map(_pair, pairs):
        known.setdefault(field, []).append(label)
    used = dict.fromkeys(known, 0)
    labels = []
    for field in fields:
        mine = known.get(field, ())
        if used.get(field, 0) < len(mine):
            labels.append(decode_label(mine[used[field]]))
            used[field] += 1
        else:
            labels.append(field)
    return labels


def _padded(label: Any, count: int) -> tuple[Any, ...]:
    """Return a label of `count` levels, padded as pandas does for a column added later."""
    if isinstance(label, tuple) and len(label) == count:
        return label
    return (label, *[""] * (count - 1))


def _encode_level(level: pd.Index) -> Descriptor:
    described: Descriptor = {"dtype": _encode_dtype(level)}
    freq = encode_freq(level)
    if freq is not None:
        described["freq"] = freq
    return described


def _decode_level(described: Json, labels: list[Any]) -> pd.Index:
    expect_keys(described, ["dtype"], ["freq"])
    word, *arguments = expect_list(described["dtype"])
    decode = DTYPES[expect_text(word, DTYPES)]
    if word == "range":
        start, stop, step = map(expect_int64, expect_list(arguments, 3))
        if step and range(start, stop, step) == _as_range(labels):
            return pd.RangeIndex(start, stop, step)
        arguments = []
    dtype = decode(*arguments)
    objects = pd.Index(labels, dtype=object, tupleize_cols=False)
    # A column added later may be no category; pandas falls back to objects too.
    if word == "category" and not objects.dropna().isin(dtype.categories).all():
        return objects
    # A name that reads like a number or a time stays text.
    if word not in ("category", "string") and any(isinstance(label, str) for label in labels):
        return objects
    try:
        index = pd.Index(labels, dtype=dtype, tupleize_cols=False)
    except REFUSALS:
        return objects
    return decode_freq(index, described["freq"]) if "freq" in described else index


def _as_range(labels: list[Any]) -> range | None:
    if not all(type(label) is int for label in labels):
        return None
    step = labels[1] - labels[0] if len(labels) > 1 else 1
    if not labels or step == 0:
        return range(0)
    as_range = range(labels[0], labels[-1] + (1 if step > 0 else -1), step)
    return as_range if list(as_range) == labels else None


def _codes(described: Json, labels: list[Any]) -> tuple[pd.Index, list[int]]:
    """Return one level of a MultiIndex: its distinct labels and the code of each column."""
    # The type belongs to the key: 1 and True are equal, but they are two labels.
    keys = [(type(label), label) for label in labels]
    distinct = {key: key[1] for key in keys if not _is_missing(key[1])}
    values = list(distinct.values())
    if all(type(value) is type(values[0]) for value in values) and complex not in map(type, values):
        distinct = dict(sorted(distinct.items(), key=lambda item: item[0][1]))
        values = list(distinct.values())
    codes = {key: code for code, key in enumerate(distinct)}
    dtype = expect_keys(described, ["dtype"], ["freq"])["dtype"]
    return _decode_level({"dtype": dtype}, values), [codes.get(key, -1) for key in keys]


def _is_missing(label: Any) -> bool:
    return not isinstance(label, tuple) and bool(pd.isna(label))


def _encode_dtype(level: pd.Index) -> list[Json]:
    dtype = level.dtype
    if isinstance(level, pd.RangeIndex):
        return ["range", level.start, level.stop, level.step]
    match dtype:
        case np.dtype() if (name := numpy_name(dtype)) in NUMPY:
            return ["numpy", name]
        case pd.StringDtype():
            return ["string", dtype.storage, "NA" if dtype.na_value is pd.NA else "nan"]
        case pd.DatetimeTZDtype():
            return ["zoned", dtype.unit, *zone_name(dtype.tz, "column labels")]
        case pd.PeriodDtype():
            return ["period", period_freq(dtype)]
        case pd.CategoricalDtype():
            categories = [encode_label(label) for label in dtype.categories.tolist()]
            return ["category", bool(dtype.ordered), _encode_dtype(dtype.categories), categories]
        case pd.IntervalDtype():
            return ["interval", dtype.closed, _encode_dtype(pd.Index([], dtype=dtype.subtype))]
        case pd.SparseDtype():
            fill = encode_value(dtype.fill_value, "column labels")
            return ["sparse", _encode_dtype(pd.Index([], dtype=dtype.subtype)), fill]
        case pd.ArrowDtype() if _is_named(dtype.pyarrow_dtype):
            return ["arrow", str(dtype.pyarrow_dtype)]
        case _ if dtype in MASKED.values():
            return ["masked", dtype.name]
    raise SchemaError(f"column labels of dtype {dtype} cannot be stored; make them str")


def _numpy(name: Json) -> np.dtype:
    return np.dtype(expect_text(name, NUMPY))


def _zoned(unit: Json, name: Json, library: Json) -> Any:
    return zoned_dtype(expect_text(unit, UNITS), stated_zone(name, library))


def _interval(closed: Json, ends: Json) -> pd.IntervalDtype:
    sides: Any = expect_text(closed, CLOSED)
    return pd.IntervalDtype(_inner(ends), sides)


def _sparse(subtype: Json, fill: Json) -> pd.SparseDtype:
    return pd.SparseDtype(_inner(subtype), decode_value(fill, "column labels"))


def _arrow(name: Json) -> pd.ArrowDtype:
    return pd.ArrowDtype(pa.type_for_alias(expect_text(name)))


def _inner(described: Json) -> Any:
    """Return the dtype inside of another, which has no dtype inside."""
    word, *arguments = expect_list(described) or [None]
    return DTYPES[expect_text(word, ("numpy", "zoned"))](*arguments)


def _is_named(type_: pa.DataType) -> bool:
    """True for a type that Arrow finds by its name."""
    try:
        return bool(pa.type_for_alias(str(type_)) == type_)
    except ValueError:
        return False


def _category(ordered: Json, dtype: Json, categories: Json) -> pd.CategoricalDtype:
    if expect_list(dtype) and dtype[0] == "category":
        raise FormatError("categories of categories")
    labels = [decode_label(label) for label in expect_list(categories)]
    return pd.CategoricalDtype(_decode_level({"dtype": dtype}, labels), expect_bool(ordered))


DTYPES: dict[str, Callable[..., Any]] = {
    "range": lambda: np.dtype(np.int64),
    "numpy": _numpy,
    "string": string_dtype,
    "zoned": _zoned,
    "period": period_dtype,
    "masked": lambda name: MASKED[expect_text(name, MASKED)],
    "interval": _interval,
    "sparse": _sparse,
    "arrow": _arrow,
    "category": _category,
}
