"""Labels: the names of columns and index levels as JSON, and back.

Knows nothing of the columns. pandas takes any hashable as a label; this file knows a closed list of
kinds. Text, integers, booleans and None are plain JSON. Any other kind is a list that begins with
its name.
"""

import base64
import datetime
import decimal
import ipaddress
import re
import uuid
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd

from blztable.convert.frames.descriptor import Json, expect_int64, expect_list, expect_text
from blztable.convert.frames.text import check_text
from blztable.convert.frames.times import (
    REFUSALS,
    UNITS,
    period_dtype,
    same_value,
    stated_zone,
    zone_name,
)
from blztable.errors import FormatError, SchemaError

DEPTH_MAX = 8
# Characters of a label that its text says, such as the digits of a decimal.
TEXT_MAX = 1024
CLOSED = ("left", "right", "both", "neither")
_MICROSECOND = datetime.timedelta(microseconds=1)
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
            check_text(label, f"label {label!r:.60}")
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
        case pd.Interval():
            ends = (encode_label(end, depth - 1) for end in (label.left, label.right))
            return ["interval", label.closed, *ends]
        case datetime.datetime() if type(label) is datetime.datetime:
            return _encode_datetime(label)
        case datetime.time() if type(label) is datetime.time and label.tzinfo is None:
            return ["time", label.isoformat(), label.fold]
        case datetime.timedelta() if type(label) is datetime.timedelta:
            return ["duration", label // _MICROSECOND]
        case datetime.date() if type(label) is datetime.date:
            return ["date", label.isoformat()]
        case bytes() if type(label) is bytes:
            return ["bytes", base64.b64encode(label).decode("ascii")]
        case complex() if type(label) is complex:
            return ["complex", label.real.hex(), label.imag.hex()]
        case _ if TEXTS.get(type(label).__name__) is type(label) and len(str(label)) <= TEXT_MAX:
            return [type(label).__name__, str(label)]
    raise SchemaError(
        f"label {label!r:.60} of type {type(label).__name__} cannot be stored; use str"
    )


def decode_label(value: Json, depth: int = DEPTH_MAX) -> Any:
    """Return the label of a JSON form."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if value.bit_length() > INTEGER_BITS_MAX:
            raise FormatError(f"a label of {value.bit_length()} bits")
        return value
    word, *items = expect_list(value) or [None]
    if word == "tuple" and depth > 0:
        return tuple(decode_label(item, depth - 1) for item in items)
    decode, count = KINDS.get(word if isinstance(word, str) else "", (None, 0))
    if decode is None:
        raise FormatError(f"expected a label, found {value!r:.60}")
    if word == "datetime" and len(items) == 2:
        decode, count = _folded, 2
    try:
        return decode(*expect_list(items, count))
    except FormatError:
        raise
    except (*REFUSALS, ArithmeticError) as error:
        raise FormatError(f"expected a label, found {value!r:.60}: {error}") from None


def field_name(label: Hashable) -> str:
    """Return the Arrow field name of a label, which is its text."""
    name = str(label)
    check_text(name, f"label {label!r:.60}")
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


def _encode_datetime(label: datetime.datetime) -> Json:
    if label.tzinfo is None:
        text = label.isoformat()
        return ["datetime", text, 1] if label.fold else ["datetime", text]
    zone_ = list(zone_name(label.tzinfo, f"label {label!r:.100}"))
    value = ["zoned", label.replace(tzinfo=None, fold=0).isoformat(), label.fold, zone_]
    if not same_value(_zoned(*value[1:]), label):
        raise SchemaError(f"label {label!r:.100}: its zone would come back as another")
    return value


def _zoned(text: Json, fold: Json, tz: Json) -> datetime.datetime:
    """Return a time on the clock of a zone."""
    name, library = expect_list(tz, 2)
    moment = datetime.datetime.fromisoformat(expect_text(text))
    if moment.tzinfo is not None or moment.fold:
        raise FormatError(f"expected a time without a zone, found {text!r:.60}")
    zone_ = stated_zone(name, library)
    localize = getattr(zone_, "localize", None)
    if localize is not None:  # Of pytz, whose zones are made for a time.
        return localize(moment, is_dst=not _fold(fold))
    return moment.replace(tzinfo=zone_, fold=_fold(fold))


def _fold(value: Json) -> int:
    if type(value) is not int or value not in (0, 1):
        raise FormatError(f"expected a fold of 0 or 1, found {value!r:.60}")
    return value


def _datetime(text: Json) -> datetime.datetime:
    return datetime.datetime.fromisoformat(expect_text(text))


def _folded(text: Json, fold: Json) -> datetime.datetime:
    """Return the second of two times that a clock without a zone shows."""
    return _datetime(text).replace(fold=_fold(fold))


def _time(text: Json, fold: Json) -> datetime.time:
    moment = datetime.time.fromisoformat(expect_text(text))
    return moment.replace(fold=_fold(fold))


def _interval(closed: Json, left: Json, right: Json) -> pd.Interval:
    sides: Any = expect_text(closed, CLOSED)
    return pd.Interval(decode_label(left, 0), decode_label(right, 0), sides)


def _duration(count: Json) -> datetime.timedelta:
    if type(count) is not int:
        raise FormatError(f"expected microseconds, found {count!r:.60}")
    return _MICROSECOND * count


def _bytes(text: Json) -> bytes:
    return base64.b64decode(expect_text(text), validate=True)


def _complex(real: Json, imag: Json) -> complex:
    return complex(_float(real), _float(imag))


def _text_of(type_: Callable[[str], Any]) -> Callable[[Json], Any]:
    def decode(text: Json) -> Any:
        if len(expect_text(text)) > TEXT_MAX:
            raise FormatError(f"a label of {len(text)} characters")
        return type_(text)

    return decode


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
# Values that their text says.
TEXTS: dict[str, Any] = {
    type_.__name__: type_
    for type_ in (
        decimal.Decimal,
        uuid.UUID,
        ipaddress.IPv4Address,
        ipaddress.IPv4Network,
        ipaddress.IPv4Interface,
        ipaddress.IPv6Address,
        ipaddress.IPv6Network,
        ipaddress.IPv6Interface,
    )
}
KINDS: dict[str, tuple[Callable[..., Any], int]] = {
    "float": (_float, 1),
    "NaT": (lambda: pd.NaT, 0),
    "NA": (lambda: pd.NA, 0),
    "timestamp": (_timestamp, 3),
    "timedelta": (_timedelta, 2),
    "period": (_period, 2),
    "datetime": (_datetime, 1),
    "date": (lambda text: datetime.date.fromisoformat(expect_text(text)), 1),
    "numpy": (_decode_scalar, 2),
    "interval": (_interval, 3),
    "zoned": (_zoned, 3),
    "time": (_time, 2),
    "duration": (_duration, 1),
    "bytes": (_bytes, 1),
    "complex": (_complex, 2),
    **{name: (_text_of(type_), 1) for name, type_ in TEXTS.items()},
}
