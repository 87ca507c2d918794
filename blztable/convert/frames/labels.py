"""Labels: the names of columns and index levels as JSON, and back.

Knows nothing of the columns. pandas takes any hashable as a label; this file knows a closed list of
kinds. Text, integers, booleans and None are plain JSON. Any other kind is a list that begins with
its name.
"""

import datetime
import re
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd

from blztable.convert.frames.descriptor import Json, expect_int64, expect_list, expect_text
from blztable.convert.frames.text import check_text
from blztable.convert.frames.times import REFUSALS, UNITS, period_dtype, stated_zone, zone_name
from blztable.errors import FormatError, SchemaError

DEPTH_MAX = 8
INTEGER_BITS_MAX = 1024
FLOAT = re.compile(r"-?(0x[01]\.[0-9a-f]{1,13}p[+-]\d{1,4}|inf)|nan")

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATS = ("float16", "float32", "float64")
# numpy's units of time; pandas has only UNITS.
NUMPY_UNITS = ("Y", "M", "W", "D", "h", "m", *UNITS, "ps", "fs", "as")


def encode_label(label: Hashable, depth: int = DEPTH_MAX) -> Json:
    """Return the JSON form of a label."""
    if depth == 0:
        raise SchemaError(f"label {label!r:.60}: tuples nested deeper than {DEPTH_MAX}")
    if isinstance(label, np.generic):
        return _encode_scalar(label)
    match label:
        case None | bool():
            return label
        case int() if type(label) is int and label.bit_length() <= INTEGER_BITS_MAX:
            return label
        case str() if type(label) is str:
            check_text(label, "label")
            return label
        case float():
            return ["float", label.hex()]
        case tuple():
            return ["tuple", *(encode_label(item, depth - 1) for item in label)]
    # NaT is an instance of none of the types below.
    if label is pd.NaT:
        return ["NaT"]
    if label is pd.NA:
        return ["NA"]
    match label:
        case pd.Timestamp():
            name = None if label.tz is None else list(zone_name(label.tz, f"label {label}"))
            return ["timestamp", label.unit, _ticks(label), name]
        case pd.Timedelta():
            return ["timedelta", label.unit, _ticks(label)]
        case pd.Period():
            return ["period", label.freqstr, label.ordinal]
        case datetime.datetime() if label.tzinfo is None:
            return ["datetime", label.isoformat()]
        case datetime.date() if type(label) is datetime.date:
            return ["date", label.isoformat()]
    raise SchemaError(
        f"label {label!r:.60} of type {type(label).__name__} cannot be stored; use str"
    )


def decode_label(facts: Json, depth: int = DEPTH_MAX) -> Any:
    """Return the label of a JSON form."""
    if facts is None or isinstance(facts, bool | str):
        return facts
    if isinstance(facts, int):
        if facts.bit_length() > INTEGER_BITS_MAX:
            raise FormatError(f"a label of {facts.bit_length()} bits")
        return facts
    word, *items = expect_list(facts) or [None]
    if word == "tuple" and depth > 0:
        return tuple(decode_label(item, depth - 1) for item in items)
    decode, count = KINDS.get(word if isinstance(word, str) else "", (None, 0))
    if decode is None:
        raise FormatError(f"expected a label, found {facts!r:.60}")
    try:
        return decode(*expect_list(items, count))
    except FormatError:
        raise
    except REFUSALS as error:
        raise FormatError(f"expected a label, found {facts!r:.60}: {error}") from None


def field_name(label: Hashable) -> str:
    """Return the Arrow field name of a label, which is its text."""
    name = str(label)
    check_text(name, "label")
    return name


def numpy_name(dtype: np.dtype) -> str:
    """Return the name of a numpy dtype, without its byte order."""
    return dtype.str[1:] if dtype.kind in "mM" else dtype.name


def _encode_scalar(label: np.generic) -> Json:
    match label:
        case np.bool_():
            return ["numpy", "bool", bool(label)]
        case np.str_():
            check_text(str(label), "label")
            return ["numpy", "str", str(label)]
        case np.datetime64() | np.timedelta64():
            name = numpy_name(label.dtype)
            if name in SCALARS:
                return ["numpy", name, int(label.view(np.int64))]
        case np.integer() if label.dtype.name in INTEGERS:
            return ["numpy", label.dtype.name, int(label)]
        case np.floating() if label.dtype.name in FLOATS:
            return ["numpy", label.dtype.name, float(label).hex()]
    raise SchemaError(f"label {label!r:.60} of type {type(label).__name__} cannot be stored")


def _decode_scalar(dtype: Json, value: Json) -> np.generic:
    dtype = expect_text(dtype, SCALARS)
    return SCALARS[dtype](value)


def _ticks(label: pd.Timestamp | pd.Timedelta) -> int:
    return int(label.asm8.view(np.int64))


def _float(text: Json) -> float:
    if not FLOAT.fullmatch(expect_text(text)):
        raise FormatError(f"expected a float, found {text!r:.60}")
    return float.fromhex(text)


def _scalar(kind: str, unit: Json, ticks: Json) -> Any:
    return np.int64(expect_int64(ticks)).view(f"{kind}[{expect_text(unit, UNITS)}]")


def _timestamp(unit: Any, ticks: Json, tz: Json) -> pd.Timestamp:
    stamp = pd.Timestamp(_scalar("M8", unit, ticks))
    if tz is None:
        return stamp
    name, library = expect_list(tz, 2)
    return stamp.tz_localize("UTC").tz_convert(stated_zone(name, library))


def _timedelta(unit: Json, ticks: Json) -> pd.Timedelta:
    return pd.Timedelta(_scalar("m8", unit, ticks))


def _period(freq: Json, ordinal: Json) -> pd.Period:
    with warnings.catch_warnings():
        # Business days are deprecated as a period, but the label is there.
        warnings.simplefilter("ignore", FutureWarning)
        return pd.Period(ordinal=expect_int64(ordinal), freq=period_dtype(freq).freq)


def _integer_of(dtype: str) -> Callable[[Json], np.generic]:
    def decode(value: Json) -> np.generic:
        if type(value) is not int:
            raise FormatError(f"expected {dtype}, found {value!r:.60}")
        return SCALAR_TYPES[dtype](value)

    return decode


def _bool(value: Json) -> np.generic:
    if type(value) is not bool:
        raise FormatError(f"expected bool, found {value!r:.60}")
    return np.bool_(value)


def _time_of(kind: type, unit: str) -> Callable[[Json], np.generic]:
    return lambda value: kind(expect_int64(value), unit)


def _float_of(dtype: str) -> Callable[[Json], np.generic]:
    return lambda value: SCALAR_TYPES[dtype](_float(value))


SCALAR_TYPES: dict[str, Any] = {name: getattr(np, name) for name in (*INTEGERS, *FLOATS)}
SCALARS: dict[str, Callable[[Json], np.generic]] = {
    "bool": _bool,
    "str": lambda value: np.str_(expect_text(value)),
    **{name: _integer_of(name) for name in INTEGERS},
    **{name: _float_of(name) for name in FLOATS},
    **{f"M8[{unit}]": _time_of(np.datetime64, unit) for unit in NUMPY_UNITS},
    **{f"m8[{unit}]": _time_of(np.timedelta64, unit) for unit in NUMPY_UNITS},
}
KINDS: dict[str, tuple[Callable[..., Any], int]] = {
    "float": (_float, 1),
    "NaT": (lambda: pd.NaT, 0),
    "NA": (lambda: pd.NA, 0),
    "timestamp": (_timestamp, 3),
    "timedelta": (_timedelta, 2),
    "period": (_period, 2),
    "datetime": (lambda text: datetime.datetime.fromisoformat(expect_text(text)), 1),
    "date": (lambda text: datetime.date.fromisoformat(expect_text(text)), 1),
    "numpy": (_decode_scalar, 2),
}
