"""Find: which kind of object a column holds, from its values or from its descriptor.

Knows all kinds. A kind is found as Arrow infers a type, except that values of two kinds are never
made one: an integer beside floats is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from blztable.convert.frames import numbers, times
from blztable.convert.frames.descriptor import Json, expect_list, expect_text
from blztable.convert.objects import moments
from blztable.convert.objects.containers import (
    ARRAYS,
    Arrays,
    Items,
    Maps,
    Nulls,
    ObjectArrays,
    RecordArrays,
    Structs,
    check_arrays,
    ends_of,
    flat,
    inside,
    place,
)
from blztable.convert.objects.kinds import SIMPLE, Kind, UnsuitableError, Values, first_of
from blztable.convert.objects.moments import Moments
from blztable.errors import FormatError

# Levels of containers.
DEPTH_MAX = 24
# Keys of a struct; dicts with more are maps.
KEYS_MAX = 256


@dataclass(frozen=True, slots=True)
class Anything:
    """What Arrow makes of the values of a type, such as that of a field that a struct gets."""

    as_json: Json = "any"
    is_hashable: bool = False
    takes_any: bool = True

    def encode(self, values: Values) -> pa.Array:
        """Return values of one kind."""
        return find(values).encode(values)

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the values of an array of any type."""
        return list(array.to_pylist())


def find(values: Values, depth: int = DEPTH_MAX) -> Kind:
    """Return the kind that all values have; UnsuitableError for the first that has another."""
    types = set(map(type, values)) - {type(None)}
    if not types:
        return Nulls()
    if len(types) == 1:
        (only,) = types
        if only in SCALARS:
            return SCALARS[only]
        if only in FINDERS:
            if depth == 0:
                raise UnsuitableError(*first_of(values), f"nested deeper than {DEPTH_MAX}")
            return FINDERS[only](values, depth - 1)
    for kind in SIMPLE.values():
        if types <= kind.types:
            return kind
    raise _mixed(values)


def parse(value: Json) -> Kind:
    """Return the kind that is described, checked."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, dict):
        return Structs(tuple((key, *_field(kind)) for key, kind in value.items()))
    word, *parts = expect_list(value) or [None]
    match word, parts:
        case "null", []:
            return Nulls()
        case "any", []:
            return Anything()
        case str(), [] if word in SIMPLE:
            return SIMPLE[word]
        case str(), [] if word in moments.WORDS:
            return Moments(word)
        case "datetime" | "Timestamp", [library]:
            return Moments(word, expect_text(library, times.LIBRARIES))
        case "list" | "tuple" | "set" | "frozenset", [of]:
            kind = parse(of)
            if word in ("set", "frozenset"):
                _expect_hashable(kind)
            return Items(word, kind)
        case "record", [_, *_]:
            return RecordArrays(tuple(map(parse, parts)))
        case "map", [of_keys, of_values]:
            return Maps(_expect_hashable(parse(of_keys)), parse(of_values))
        case "array", ["object", of]:
            return ObjectArrays(parse(of))
        case "array", [dtype]:
            return Arrays(ARRAYS[expect_text(dtype, ARRAYS)])
    raise FormatError(f"expected a kind of objects, found {value!r:.60}")


def _field(value: Json) -> tuple[Kind, bool]:
    """Return the kind of a field, and whether its null is a key that the dict lacks."""
    match value:
        case ["absent", of]:
            return parse(of), True
    return parse(value), False


def _expect_hashable(kind: Kind) -> Kind:
    if not kind.is_hashable:
        raise FormatError(f"a set or a key cannot hold {kind.as_json!r:.60}")
    return kind


def _mixed(values: Values) -> UnsuitableError:
    """Return the error for values of no kind."""
    row, first = first_of(values)
    known = [kind.types for kind in SIMPLE.values() if type(first) in kind.types]
    known += [frozenset({type_}) for type_ in FINDERS if type_ is type(first)]
    if not known:
        return UnsuitableError(row, first, "no kind of column holds it")
    others = (
        (row, value)
        for row, value in enumerate(values)
        if value is not None and not any(type(value) in types for types in known)
    )
    # Three types may fit in pairs only.
    row, value = next(others, (row, first))
    return UnsuitableError(row, value, f"the values before it are {type(first).__name__}")


def _is_name(key: Any) -> bool:
    """True for text that UTF-8 can encode."""
    return type(key) is str and not any("\ud800" <= letter <= "\udfff" for letter in key)


def _moments(word: str) -> Callable[[Values, int], Kind]:
    return lambda values, depth: moments.found(values, word)


def _items(word: str) -> Callable[[Values, int], Kind]:
    def found(values: Values, depth: int) -> Kind:
        return Items(word, inside(ends_of(values), lambda: find(flat(values), depth)))

    return found


def _tuples(values: Values, depth: int) -> Kind:
    """Return tuples as lists; if their items are of several kinds, as records of one length."""
    try:
        return _items("tuple")(values, depth)
    except UnsuitableError:
        lengths = {len(value) for value in values if value is not None}
        if len(lengths) > 1:
            raise
        return RecordArrays(tuple(find(place(values, i), depth) for i in range(lengths.pop())))


def _arrays(values: Values, depth: int) -> Kind:
    row, first = first_of(values)
    if first.dtype == object and first.ndim == 1:
        return ObjectArrays(inside(ends_of(values), lambda: find(flat(values), depth)))
    if first.dtype not in ARRAYS.values() or not first.dtype.isnative:
        raise UnsuitableError(row, first, f"an array of dtype {first.dtype} has no type in Arrow")
    check_arrays(values, first.dtype)
    return Arrays(first.dtype)


def _dicts(values: Values, depth: int) -> Kind:
    dicts = [value for value in values if value is not None]
    fields = _fields(dicts)
    if fields is not None:
        return Structs(
            tuple(
                (key, find([None if d is None else d.get(key) for d in values], depth), is_absent)
                for key, is_absent in fields.items()
            )
        )
    ends = ends_of(values)
    inner = [item for value in dicts for item in value.values()]
    try:
        keys = inside(ends, lambda: find(flat(values), depth))
        return Maps(keys, inside(ends, lambda: find(inner, depth)))
    except UnsuitableError:
        _refuse_none(values)
        raise


def _refuse_none(values: Values) -> None:
    """UnsuitableError for a dict with None for a key that another lacks, if text is all keys."""
    dicts = [value for value in values if value is not None]
    orders = set(map(tuple, dicts))
    names = set(chain.from_iterable(orders))
    if len(names) > KEYS_MAX or not all(map(_is_name, names)):
        return
    lacked = {name for name in names if any(name not in order for order in orders)}
    for row, value in enumerate(values):
        for key, item in (value or {}).items():
            if item is None and key in lacked:
                raise UnsuitableError(
                    row,
                    value,
                    f"its key {key!r:.60} is None, and other dicts lack the key, which is null in "
                    "Arrow as well; leave the key out, or give it to all of them",
                )


def _fields(dicts: Sequence[dict[Any, Any]]) -> dict[str, bool] | None:
    """Return the keys of dicts in the order of most, and whether a dict may lack each.

    Return None if no struct holds the dicts: a key that is no text, too many keys, or None for a
    key that another dict lacks.
    """
    orders = dict.fromkeys(map(tuple, dicts))
    if len(orders) > KEYS_MAX or not all(map(_is_name, chain.from_iterable(orders))):
        return None
    merged: list[str] = []
    for order in sorted(orders, key=len, reverse=True):
        last = -1
        for key in order:
            if key not in merged:
                merged.insert(last + 1, key)
            last = max(last, merged.index(key))
    if len(merged) > KEYS_MAX:
        return None
    fields = {}
    for key in merged:
        fields[key] = any(key not in order for order in orders)
        if fields[key] and any(row.get(key, key) is None for row in dicts):
            return None
    return fields


SCALARS = {dtype.type: SIMPLE[f"numpy.{dtype.name}"] for dtype in numbers.PLAIN}
SCALARS |= {
    np.str_: SIMPLE["numpy.str"],
    np.bytes_: SIMPLE["numpy.bytes"],
    np.complex64: SIMPLE["numpy.complex64"],
    np.complex128: SIMPLE["numpy.complex128"],
}
FINDERS: dict[type, Callable[[Values, int], Kind]] = {
    **{type_: _moments(word) for word, type_ in moments.WORDS.items()},
    **{type_: _items(type_.__name__) for type_ in (list, set, frozenset)},
    tuple: _tuples,
    dict: _dicts,
    np.ndarray: _arrays,
}
