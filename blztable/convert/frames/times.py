"""Times: timestamps with and without a zone, durations, periods, and the frequency of an index.

Knows nothing of other dtypes. A zone is stored as Arrow's name for it. Names of zones and
frequencies may come from an untrusted file, so they must match a pattern before any lookup.
"""

import contextlib
import datetime
import importlib
import re
import warnings
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.convert.arrays import PandasArray, from_values, missing_of, values_of, whole
from blztable.convert.frames.descriptor import Descriptor, Json, expect_keys, expect_text
from blztable.errors import FormatError, SchemaError

UNITS: tuple[Any, ...] = ("s", "ms", "us", "ns")
DATETIMES = tuple(np.dtype(f"M8[{unit}]") for unit in UNITS)
TIMEDELTAS = tuple(np.dtype(f"m8[{unit}]") for unit in UNITS)
NAT = np.iinfo(np.int64).min
# Exceptions of pandas for a value that it cannot hold. NotImplementedError: a zoned time outside
# the years of Python.
REFUSALS = (ValueError, TypeError, OverflowError, NotImplementedError)

ZONE = re.compile(r"[A-Za-z0-9_+\-]{1,40}(/[A-Za-z0-9_+\-]{1,40}){0,3}")
OFFSET = re.compile(r"([+-])(\d\d):([0-5]\d)")
PERIOD_FREQ = re.compile(
    r"[1-9]?\d{0,8}((Y|Q)-[A-Z]{3}|W-(MON|TUE|WED|THU|FRI|SAT|SUN)|M|B|D|h|min|s|ms|us|ns)"
)
INDEX_FREQ = re.compile(r"-?\d{0,9}[A-Za-z]{1,5}(-[A-Z0-9]{1,5}){0,4}")


def encode_datetimes(values: np.ndarray) -> pa.Array:
    """Return timestamps without a zone, with NaT as null."""
    return _from_ticks(values, pa.timestamp(np.datetime_data(values.dtype)[0]))


def encode_timedeltas(values: np.ndarray) -> pa.Array:
    """Return durations, with NaT as null."""
    return _from_ticks(values, pa.duration(np.datetime_data(values.dtype)[0]))


def encode_zoned(values: PandasArray, context: str) -> tuple[pa.Array, Descriptor | None]:
    """Return timestamps with a zone; the descriptor names a library other than zoneinfo."""
    name, library = zone_name(values.dtype.tz, context)
    ticks = values.to_numpy(dtype=f"M8[{values.dtype.unit}]")
    array = _from_ticks(ticks, pa.timestamp(values.dtype.unit, name))
    return array, {"dtype": "zoned", "library": library} if library else None


def decode_timestamps(column: pa.ChunkedArray) -> PandasArray:
    """Return timestamps of the column's unit and zone, with null as NaT."""
    return _timestamps(column, None)


def decode_moments(column: pa.ChunkedArray, library: str | None) -> PandasArray:
    """Return timestamps whose zone, if any, is an object of this library."""
    return _timestamps(column, library)


def decode_zoned(column: pa.ChunkedArray, descriptor: Descriptor) -> PandasArray:
    """Return timestamps whose zone is an object of another library than zoneinfo."""
    library = expect_text(expect_keys(descriptor, ["dtype", "library"])["library"], LIBRARIES)
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        raise FormatError(f"expected timestamps with a zone, found {column.type}")
    return _timestamps(column, library)


def decode_durations(column: pa.ChunkedArray) -> np.ndarray:
    """Return durations of the column's unit, with null as NaT."""
    return _ticks(column).view(f"m8[{column.type.unit}]")


def encode_periods(values: PandasArray) -> tuple[pa.Array, Descriptor]:
    """Return the ordinals of periods, with NaT as null."""
    ordinals = values.asi8
    array = from_values(ordinals, ordinals == NAT, pa.int64())
    return array, {"dtype": "period", "freq": period_freq(values.dtype)}


def decode_periods(column: pa.ChunkedArray, descriptor: Descriptor) -> PandasArray:
    """Return periods from their ordinals."""
    if column.type != pa.int64():
        raise FormatError(f"expected the ordinals of periods, found {column.type}")
    dtype = period_dtype(expect_keys(descriptor, ["dtype", "freq"])["freq"])
    return pd.arrays.PeriodArray(_ticks(column), dtype=dtype, copy=False)


def period_freq(dtype: pd.PeriodDtype) -> str:
    """Return the name of a period's frequency; its offset may have another (ME for M)."""
    return str(dtype)[len("period[") : -1]


def period_dtype(freq: object) -> Any:
    """Return the dtype of periods of this frequency."""
    if not isinstance(freq, str) or not PERIOD_FREQ.fullmatch(freq):
        raise FormatError(f"expected the frequency of a period, found {freq!r:.60}")
    with warnings.catch_warnings():
        # Periods of business days are deprecated, but stored data may have them.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return pd.PeriodDtype(freq)
        except (ValueError, OverflowError):
            raise FormatError(f"expected the frequency of a period, found {freq!r:.60}") from None


def encode_freq(index: pd.Index) -> str | None:
    """Return the name of an index' frequency; None without one, or if pandas cannot read it."""
    freq = getattr(index, "freq", None)
    if freq is None or isinstance(index, pd.PeriodIndex):
        return None
    try:
        same = INDEX_FREQ.fullmatch(freq.freqstr) and pd.tseries.frequencies.to_offset(freq.freqstr)
    except ValueError:
        return None
    return freq.freqstr if same == freq else None


def decode_freq(index: Any, freq: object) -> Any:
    """Return the index with its frequency, if the rows still follow it."""
    if not isinstance(freq, str) or not INDEX_FREQ.fullmatch(freq):
        raise FormatError(f"expected the frequency of an index, found {freq!r:.60}")
    may_have_one = isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex)
    if not may_have_one:
        raise FormatError(f"an index of {index.dtype} cannot have a frequency")
    try:
        offset = pd.tseries.frequencies.to_offset(freq)
    except ValueError:
        raise FormatError(f"expected the frequency of an index, found {freq!r:.60}") from None
    with contextlib.suppress(*REFUSALS):
        if _follows(index, offset):
            index.freq = offset
    return index


def _follows(index: Any, offset: Any) -> bool:
    """True if each row is one offset after the previous row."""
    if len(index) < 2:
        return True
    # The first step is enough to reject most filtered tables, without the whole range.
    if index.hasnans or index[0] + offset != index[1]:
        return False
    # The check of pandas is not enough: it overlooks a first Monday that is skipped.
    generate = pd.date_range if index.dtype.kind == "M" else pd.timedelta_range
    expected = generate(index[0], periods=len(index), freq=offset, unit=index.unit)
    return bool(np.array_equal(expected.asi8, index.asi8))


def zoned_dtype(unit: Any, tz: datetime.tzinfo) -> Any:
    """Return the dtype of timestamps in this zone."""
    return pd.DatetimeTZDtype(unit, tz)


def zone_name(tz: datetime.tzinfo, context: str) -> tuple[str, str | None]:
    """Return Arrow's name of a zone, and its library if that is not zoneinfo."""
    if type(tz).__name__ == "tzlocal":
        raise SchemaError(f"{context}: a local time zone has no name; call tz_convert first")
    try:
        name = pa.lib.tzinfo_to_string(tz)
        usual = zone(name)
    except (ValueError, FormatError) as error:
        raise SchemaError(f"{context}: time zone {tz!r} cannot be stored: {error}") from None
    if _same_zone(usual, tz):
        return name, None
    for library in LIBRARIES:
        other = zone(name, library)
        if type(other) is type(tz) or _same_zone(other, tz):
            return name, library
    return name, None


def stated_zone(name: Json, library: Json) -> datetime.tzinfo:
    """Return the zone that a descriptor names."""
    known = None if library is None else expect_text(library, LIBRARIES)
    return zone(expect_text(name), known)


def zone(name: str, library: str | None = None) -> datetime.tzinfo:
    """Return the zone of this name."""
    if offset := OFFSET.fullmatch(name):
        delta = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if delta < datetime.timedelta(days=1):
            return datetime.timezone(delta if offset[1] == "+" else -delta)
    if not ZONE.fullmatch(name):
        raise FormatError(f"unknown time zone {name!r:.60}")
    if library is not None:
        tz = LIBRARIES[library](name)
        if tz is not None:
            return tz
    if name == "UTC":
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise FormatError(f"unknown time zone {name!r:.60}") from None


def _dateutil(name: str) -> datetime.tzinfo | None:
    # pandas installs it, as long as pandas needs it.
    try:
        tz: datetime.tzinfo | None = importlib.import_module("dateutil.tz").gettz(name)
    except ImportError:
        return None
    return tz


def _pytz(name: str) -> datetime.tzinfo | None:
    try:
        pytz = importlib.import_module("pytz")
    except ImportError:
        return None
    try:
        tz: datetime.tzinfo = pytz.timezone(name)
    except pytz.UnknownTimeZoneError:
        return None
    return tz


LIBRARIES = {"dateutil": _dateutil, "pytz": _pytz}


def same_value(value: Any, back: Any) -> bool:
    """True for equal values of one type; of times, if the clock shows the same."""
    if value is None or back is None or type(value) is not type(back):
        return value is back
    if isinstance(value, datetime.datetime):
        clocks = [moment.replace(tzinfo=None, fold=0) for moment in (value, back)]
        return clocks[0] == clocks[1] and value.fold == back.fold
    return bool(value == back) and getattr(value, "fold", 0) == getattr(back, "fold", 0)


def _same_zone(one: datetime.tzinfo, other: datetime.tzinfo) -> bool:
    return bool(pd.DatetimeTZDtype("us", one) == pd.DatetimeTZDtype("us", other))


def _from_ticks(values: np.ndarray, type_: pa.DataType) -> pa.Array:
    return from_values(values, values.view(np.int64) == NAT, type_)


def _ticks(column: pa.ChunkedArray) -> np.ndarray:
    array = whole(column)
    ticks = values_of(array, np.dtype(np.int64))
    missing = missing_of(array)
    if missing is not None:
        ticks[missing] = NAT
    return ticks


def _timestamps(column: pa.ChunkedArray, library: str | None) -> PandasArray:
    unit, tz = column.type.unit, column.type.tz
    if tz is None:
        return _ticks(column).view(f"M8[{unit}]")
    dtype = pd.DatetimeTZDtype(unit, zone(tz, library))
    # From int64, because pd.array copies datetime64.
    return pd.array(_ticks(column), dtype=dtype, copy=False)
