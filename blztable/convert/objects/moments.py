"""Moments: points in time and durations of Python and pandas as a kind of object.

Knows nothing of other kinds. All values of a column have one zone and one unit.
"""

import datetime
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from blztable.convert.frames import times
from blztable.convert.frames.descriptor import Json
from blztable.convert.objects.kinds import (
    UNFIT,
    UnsuitableError,
    Values,
    check_type,
    check_types,
    first_of,
)
from blztable.errors import SchemaError

WORDS: dict[str, type] = {
    "datetime": datetime.datetime,
    "Timestamp": pd.Timestamp,
    "Timedelta": pd.Timedelta,
}


@dataclass(frozen=True, slots=True)
class Moments:
    """Values of `WORDS[word]`; `library` made their zone, if that is not zoneinfo."""

    word: str
    library: str | None = None
    is_hashable: bool = True
    takes_any: bool = True

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""
        return self.word if self.library is None else [self.word, self.library]

    def encode(self, values: Values) -> pa.Array:
        """Return the values as an array of their unit and zone."""
        check_types(values, frozenset({WORDS[self.word]}))
        try:
            array = pa.array(map(_ticks, values), pa.int64()).view(self.type_of(values))
        except UNFIT as error:
            raise UnsuitableError(*first_of(values), str(error)) from None
        for row, (value, back) in enumerate(zip(values, self.decode(array), strict=True)):
            if not times.same_value(value, back):
                raise UnsuitableError(row, value, f"it would come back as {back!r:.60}")
        return array

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the values of an array."""
        type_ = array.type
        if self.word == "Timedelta":
            check_type(self, pa.types.is_duration(type_), type_)
            values = pd.array(times.decode_durations(pa.chunked_array([array])))
        else:
            # Python has no nanoseconds.
            is_right = pa.types.is_timestamp(type_) and (
                self.word == "Timestamp" or type_.unit != "ns"
            )
            check_type(self, is_right and (self.library is None or type_.tz is not None), type_)
            values = pd.array(times.decode_moments(pa.chunked_array([array]), self.library))
        objects = [None if value is pd.NaT else value for value in values.astype(object)]
        if self.word == "datetime":
            return [None if value is None else value.to_pydatetime() for value in objects]
        return objects

    def type_of(self, values: Values) -> pa.DataType:
        """Return the type of the first value, if the others have the same."""
        types: dict[Any, pa.DataType] = {}
        first: pa.DataType | None = None
        for row, value in enumerate(values):
            if value is None:
                continue
            key = getattr(value, "unit", "us"), getattr(value, "tzinfo", None)
            if key not in types:
                types[key] = self._type(*key)
            first = first or types[key]
            if types[key] != first:
                raise UnsuitableError(row, value, f"its type is {types[key]}, before it {first}")
        return first or self._type("us", None)

    def _type(self, unit: Any, tz: datetime.tzinfo | None) -> pa.DataType:
        if self.word == "Timedelta":
            return pa.duration(unit)
        name, library = (None, None) if tz is None else times.zone_name(tz, "its zone")
        if library != self.library:
            raise SchemaError(f"its zone is one of {library or 'zoneinfo'}")
        return pa.timestamp(unit, name)


def found(values: Values, word: str) -> Moments:
    """Return the kind of values of one type, by the first of them."""
    row, value = first_of(values)
    tz = getattr(value, "tzinfo", None)
    try:
        kind = Moments(word, None if tz is None else times.zone_name(tz, "its zone")[1])
        kind.type_of(values)
        return kind
    except SchemaError as error:
        raise UnsuitableError(row, value, str(error)) from None


def _ticks(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, pd.Timestamp | pd.Timedelta):
        # Not through pandas, whose Timestamp forgets the fold of a zone of pytz.
        since = value.replace(tzinfo=None) - (value.utcoffset() or _ZERO) - _EPOCH
        return since // _MICROSECOND
    return int(value.asm8.view("i8"))


_EPOCH = datetime.datetime(1970, 1, 1)
_ZERO = datetime.timedelta()
_MICROSECOND = datetime.timedelta(microseconds=1)
