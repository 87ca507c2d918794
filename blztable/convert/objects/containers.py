"""Containers: Python objects that hold others, as nested Arrow arrays and back.

Knows the simple kinds. Lists, tuples, sets and arrays become lists. Dicts with text as keys become
structs: a null field is None, or a key that the dict lacks, never both. Other dicts become maps.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from blztable.convert.arrays import missing_of
from blztable.convert.frames import numbers, times
from blztable.convert.frames.descriptor import Json
from blztable.convert.frames.labels import numpy_name
from blztable.convert.objects.kinds import Kind, UnsuitableError, Values, check_type, check_types

# Items that a list with offsets of 32 bits may have.
ITEMS_MAX = (1 << 31) - 1

SEQUENCES: dict[str, Any] = {made.__name__: made for made in (list, tuple, set, frozenset)}
ARRAYS = {
    numpy_name(dtype): dtype for dtype in (*numbers.PLAIN, *times.DATETIMES, *times.TIMEDELTAS)
}


@dataclass(frozen=True, slots=True)
class Nulls:
    """No values."""

    as_json: Json = "null"
    is_hashable: bool = True
    takes_any: bool = True

    def encode(self, values: Values) -> pa.Array:
        """Return nulls."""
        for row, value in enumerate(values):
            if value is not None:
                raise UnsuitableError(row, value, "other values are None")
        return pa.nulls(len(values))

    def decode(self, array: pa.Array) -> Any:
        """Return None for each row."""
        check_type(self, pa.types.is_null(array.type), array.type)
        # numpy raises for more rows than memory has, where a list would take it.
        return np.full(len(array), None, dtype=object)


@dataclass(frozen=True, slots=True)
class Items:
    """Lists, tuples or sets of one kind of items."""

    word: str
    of: Kind

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""
        return [self.word, self.of.as_json]

    @property
    def is_hashable(self) -> bool:
        """True if a set can hold the values."""
        return self.word in ("tuple", "frozenset") and self.of.is_hashable

    @property
    def takes_any(self) -> bool:
        """True if every list is one of the kind."""
        return self.word in ("list", "tuple") and self.of.takes_any

    def encode(self, values: Values) -> pa.Array:
        """Return the values as lists."""
        check_types(values, frozenset({SEQUENCES[self.word]}))
        ends = ends_of(values)
        items = inside(ends, lambda: self.of.encode(flat(values)))
        return _lists(ends, items, values)

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the lists as what they were."""
        check_type(self, is_list(array.type), array.type)
        ends, items = _opened(array)
        make, decoded = SEQUENCES[self.word], self.of.decode(items)
        return _cut(array, ends, lambda start, end: make(decoded[start:end]))


@dataclass(frozen=True, slots=True)
class Arrays:
    """Numpy arrays of one dimension and of one dtype."""

    dtype: np.dtype
    is_hashable: bool = False
    takes_any: bool = True

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""
        return ["array", numpy_name(self.dtype)]

    def encode(self, values: Values) -> pa.Array:
        """Return the arrays as lists; NaN and NaT are null, which come back as they were."""
        check_arrays(values, self.dtype)
        parts = [value for value in values if value is not None]
        data = np.concatenate(parts) if parts else np.empty(0, self.dtype)
        match self.dtype.kind:
            case "M":
                items = times.encode_datetimes(data)
            case "m":
                items = times.encode_timedeltas(data)
            case _:
                items = numbers.encode_plain(data, nan_as_null=True)
        return _lists(ends_of(values), items, values)

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the lists as arrays; nulls inside as pandas would, such as integers as floats."""
        type_ = array.type
        is_right = is_list(type_) and _arrow_of(self.dtype).equals(type_.value_type)
        check_type(self, is_right, type_)
        ends, items = _opened(array)
        column = pa.chunked_array([items])
        match self.dtype.kind:
            case "M":
                data = times.decode_moments(column, None)
            case "m":
                data = times.decode_durations(column)
            case "b":
                data = numbers.decode_booleans(column)
            case "f":
                data = numbers.decode_floats(column)
            case _:
                data = numbers.decode_integers(column)
        data = data if isinstance(data, np.ndarray) else data.to_numpy(dtype=object)
        return _cut(array, ends, lambda start, end: data[start:end])


@dataclass(frozen=True, slots=True)
class ObjectArrays:
    """Numpy arrays of one dimension that hold objects of one kind."""

    of: Kind
    is_hashable: bool = False

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""
        return ["array", "object", self.of.as_json]

    @property
    def takes_any(self) -> bool:
        """True if every list is one of the kind."""
        return self.of.takes_any

    def encode(self, values: Values) -> pa.Array:
        """Return the arrays as lists."""
        check_arrays(values, np.dtype(object))
        ends = ends_of(values)
        return _lists(ends, inside(ends, lambda: self.of.encode(flat(values))), values)

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the lists as arrays."""
        check_type(self, is_list(array.type), array.type)
        ends, items = _opened(array)
        data = as_objects(self.of.decode(items))
        return _cut(array, ends, lambda start, end: data[start:end])


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """Tuples of one length, with a kind for each item."""

    kinds: tuple[Kind, ...]

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""
        return ["record", *(kind.as_json for kind in self.kinds)]

    @property
    def is_hashable(self) -> bool:
        """True if a set can hold the values."""
        return all(kind.is_hashable for kind in self.kinds)

    @property
    def takes_any(self) -> bool:
        """True if every list is one of the kind."""
        return all(kind.takes_any for kind in self.kinds)

    def encode(self, values: Values) -> pa.Array:
        """Return the tuples as structs."""
        check_types(values, frozenset({tuple}))
        for row, value in enumerate(values):
            if value is not None and len(value) != len(self.kinds):
                raise UnsuitableError(row, value, f"other tuples have {len(self.kinds)} items")
        arrays = [kind.encode(place(values, i)) for i, kind in enumerate(self.kinds)]
        return _structs(arrays, list(map(str, range(len(arrays)))), values)

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the structs as tuples."""
        columns = _columns(self, array, list(map(str, range(len(self.kinds)))), self.kinds)
        missing = missing_of(array)
        rows: list[Any] = list(zip(*columns, strict=True))
        for row in [] if missing is None else np.flatnonzero(missing):
            rows[row] = None
        return rows


@dataclass(frozen=True, slots=True)
class Structs:
    """Dicts with text as keys: for each key its kind, and whether its null is a missing key."""

    fields: tuple[tuple[str, Kind, bool], ...]
    is_hashable: bool = False
    # True if a dict may lack any key; its null comes back as None.
    may_lack: bool = False

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""
        return {
            key: ["absent", kind.as_json] if is_absent else kind.as_json
            for key, kind, is_absent in self.fields
        }

    @property
    def takes_any(self) -> bool:
        """True if every list is one of the kind."""
        return all(kind.takes_any for _, kind, _ in self.fields)

    def encode(self, values: Values) -> pa.Array:
        """Return the dicts as structs."""
        check_types(values, frozenset({dict}))
        numbers = {key: number for number, (key, _, _) in enumerate(self.fields)}
        for row, value in enumerate(values):
            if value is not None:
                self._check(row, value, numbers)
        arrays = [
            kind.encode([None if value is None else value.get(key) for value in values])
            for key, kind, _ in self.fields
        ]
        return _structs(arrays, list(numbers), values)

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the structs as dicts."""
        keys = [key for key, _, _ in self.fields]
        columns = _columns(self, array, keys, [kind for _, kind, _ in self.fields])
        missing = missing_of(array)
        rows: list[Any] = [
            None if missing is not None and missing[row] else {} for row in range(len(array))
        ]
        for (key, _, is_absent), column in zip(self.fields, columns, strict=True):
            for row, value in zip(rows, column, strict=True):
                if row is not None and not (is_absent and value is None):
                    row[key] = value
        return rows

    def _check(self, row: int, value: dict[Any, Any], numbers: dict[str, int]) -> None:
        """UnsuitableError for a dict that would not come back as it is."""
        for key, item in value.items():
            number = numbers.get(key)
            if number is None:
                raise UnsuitableError(row, value, f"other dicts lack the key {key!r:.60}")
            if item is None and self.fields[number][2]:
                raise UnsuitableError(
                    row, value, f"the key {key!r:.60} is None, and other dicts lack it"
                )
        for key, _, is_absent in self.fields:
            if not (is_absent or self.may_lack or key in value):
                raise UnsuitableError(row, value, f"the key {key!r:.60} is missing")


@dataclass(frozen=True, slots=True)
class Maps:
    """Dicts with one kind of keys and one kind of values."""

    of_keys: Kind
    of_values: Kind
    is_hashable: bool = False

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""
        return ["map", self.of_keys.as_json, self.of_values.as_json]

    @property
    def takes_any(self) -> bool:
        """True if every list is one of the kind."""
        return self.of_keys.takes_any and self.of_values.takes_any

    def encode(self, values: Values) -> pa.Array:
        """Return the dicts as maps."""
        check_types(values, frozenset({dict}))
        ends = ends_of(values)
        for row, value in enumerate(values):
            if value is not None and None in value:
                raise UnsuitableError(row, value, "None is no key of an Arrow map")
        keys = inside(ends, lambda: self.of_keys.encode(flat(values)))
        inner = [item for value in values if value is not None for item in value.values()]
        items = inside(ends, lambda: self.of_values.encode(inner))
        if len(inner) > ITEMS_MAX:
            raise UnsuitableError(0, values[0], f"a map column has at most {ITEMS_MAX} items")
        return pa.MapArray.from_arrays(_offsets(ends, values, pa.int32()), keys, items)

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the maps as dicts."""
        check_type(self, pa.types.is_map(array.type), array.type)
        ends = array.offsets.to_numpy()
        first, count = int(ends[0]), int(ends[-1] - ends[0])
        keys = self.of_keys.decode(array.keys.slice(first, count))
        items = self.of_values.decode(array.items.slice(first, count))
        return _cut(
            array,
            ends - first,
            lambda start, end: dict(zip(keys[start:end], items[start:end], strict=True)),
        )


def as_objects(values: Values) -> np.ndarray:
    """Return values as an array of objects; never as one of more dimensions."""
    if isinstance(values, np.ndarray):
        return values
    return np.fromiter(values, dtype=object, count=len(values))


def ends_of(values: Values) -> np.ndarray:
    """Return where the items of each row begin, and where the last ones end."""
    lengths = np.fromiter((0 if value is None else len(value) for value in values), np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def flat(values: Values) -> list[Any]:
    """Return the items of all rows."""
    return list(chain.from_iterable(value for value in values if value is not None))


def inside(ends: np.ndarray, inner: Callable[[], Any]) -> Any:
    """Return what `inner` does; an item that it refuses is in the row that has the item."""
    try:
        return inner()
    except UnsuitableError as error:
        row = bisect_right(ends, error.row) - 1
        raise UnsuitableError(row, error.value, error.why) from None


def _offsets(ends: np.ndarray, values: Values, type_: pa.DataType) -> pa.Array:
    """Return the ends as offsets, null for each row without a value."""
    missing = [value is None for value in values]
    mask = np.array([*missing, False]) if any(missing) else None
    return pa.array(ends, type_, mask=mask)


def _lists(ends: np.ndarray, items: pa.Array, values: Values) -> pa.Array:
    if len(items) > ITEMS_MAX:
        return pa.LargeListArray.from_arrays(_offsets(ends, values, pa.int64()), items)
    return pa.ListArray.from_arrays(_offsets(ends, values, pa.int32()), items)


def _structs(arrays: list[pa.Array], names: list[str], values: Values) -> pa.Array:
    missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    if not arrays:
        return pa.array([None if is_missing else {} for is_missing in missing], pa.struct([]))
    return pa.StructArray.from_arrays(arrays, names, mask=pa.array(missing))


def _columns(
    kind: Kind, array: pa.Array, names: list[str], kinds: Sequence[Kind]
) -> list[Sequence[Any]]:
    """Return the values of each field of structs."""
    type_ = array.type
    is_right = pa.types.is_struct(type_) and [field.name for field in type_] == names
    check_type(kind, is_right, type_)
    return [kind.decode(array.field(index)) for index, kind in enumerate(kinds)]


def place(values: Values, index: int) -> list[Any]:
    """Return the item at one place of each row."""
    return [None if value is None else value[index] for value in values]


def is_list(type_: pa.DataType) -> bool:
    """True for the lists that objects are stored as."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _opened(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return where the items of each row begin and end, and the items of all rows."""
    ends = array.offsets.to_numpy()
    first = int(ends[0])
    return ends - first, array.values.slice(first, int(ends[-1]) - first)


def _cut(array: pa.Array, ends: np.ndarray, make: Callable[[int, int], Any]) -> list[Any]:
    """Return what `make` makes of the items of each row, and None for null."""
    missing = missing_of(array)
    bounds = ends.tolist()
    rows = [make(start, end) for start, end in pairwise(bounds)]
    for row in [] if missing is None else np.flatnonzero(missing):
        rows[row] = None
    return rows


def check_arrays(values: Values, dtype: np.dtype) -> None:
    """UnsuitableError for the first value that is no array of this dtype and one dimension."""
    check_types(values, frozenset({np.ndarray}))
    for row, value in enumerate(values):
        if value is not None and (value.ndim != 1 or value.dtype != dtype):
            shape = f"its shape is {value.shape} and its dtype {value.dtype}"
            raise UnsuitableError(row, value, f"{shape}, expected one dimension and {dtype}")


def _arrow_of(dtype: np.dtype) -> pa.DataType:
    if dtype.kind in "Mm":
        make = pa.timestamp if dtype.kind == "M" else pa.duration
        return make(np.datetime_data(dtype)[0])
    return numbers.PLAIN[dtype]
