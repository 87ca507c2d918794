"""Strategies for columns of Python objects of one kind, and an equality that sees types.

Knows nothing of blztable.
"""

import datetime
import ipaddress
import math
import zoneinfo
from collections.abc import Iterator

import numpy as np
import pandas as pd
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
ROME = zoneinfo.ZoneInfo("Europe/Rome")
INT64 = st.integers(-(2**63), 2**63 - 1)
INSTANTS = st.datetimes(
    datetime.datetime(1700, 1, 2), datetime.datetime(2250, 1, 1), timezones=st.just(datetime.UTC)
)
SIMPLE = [
    TEXT,
    INT64,
    st.booleans(),
    st.binary(max_size=3),
    st.dates(),
    st.times().map(lambda time: time.replace(fold=0)),
    st.decimals(-9, 9, allow_nan=False, places=3),
    st.datetimes().map(lambda moment: moment.replace(fold=0)),
    INSTANTS.map(lambda moment: moment.astimezone(ROME)),
    INSTANTS.map(lambda moment: pd.Timestamp(moment).tz_convert("Asia/Tokyo").as_unit("us")),
    st.integers(-(2**62), 2**62).map(lambda ticks: pd.Timestamp(ticks, unit="ns")),
    st.timedeltas(datetime.timedelta(-9999), datetime.timedelta(9999)),
    st.integers(-(2**62), 2**62).map(lambda ticks: pd.Timedelta(ticks, unit="ns")),
    st.uuids(),
    st.ip_addresses(v=4),
    st.ip_addresses(v=6),
    st.just(ipaddress.ip_network("10.0.0.0/8")),
    st.complex_numbers(allow_nan=False),
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    TEXT.map(np.str_),
]
# At the top of a column a NaN is a marker of a missing value, so floats are drawn apart.
FLOATS = [st.floats(), st.floats(width=32).map(np.float32)]
NUMBERS = ["i1", "u8", "f4", "f8", "bool", "M8[s]", "m8[ns]"]


def kinds(depth: int = 2, *, hashable: bool = False) -> st.SearchStrategy:
    """Draw a strategy for values of one kind, whose containers are at most `depth` deep."""
    inside = st.sampled_from(SIMPLE + FLOATS)
    if depth == 0:
        return inside
    inner = kinds(depth - 1, hashable=hashable)
    keys = kinds(depth - 1, hashable=True)
    tuples = inner.map(lambda one: st.lists(one | st.none(), max_size=3).map(tuple))
    records = st.tuples(inner, inner).map(lambda pair: st.tuples(*pair))
    frozen = keys.map(lambda one: st.frozensets(one, max_size=3))
    found = [inside, tuples, records, frozen]
    if not hashable:
        found += [
            inner.map(lambda one: st.lists(one | st.none(), max_size=3)),
            keys.map(lambda one: st.sets(one, max_size=3)),
            st.tuples(keys, inner).map(lambda p: st.dictionaries(*p, max_size=3)),
            st.tuples(inner, inner, inner).map(
                lambda p: st.fixed_dictionaries(
                    {"a": p[0] | st.none(), "b c": p[1]}, optional={"d": p[2]}
                )
            ),
            st.sampled_from(NUMBERS).map(arrays_of),
            inner.map(lambda one: st.lists(one | st.none(), max_size=3).map(objects)),
        ]
    return st.one_of(found)


def arrays_of(dtype: str) -> st.SearchStrategy:
    """Draw numpy arrays of one dtype, of any bits."""
    size = np.dtype(dtype).itemsize
    if dtype == "bool":
        return st.lists(st.booleans(), max_size=3).map(lambda bits: np.array(bits, bool))
    rows = st.integers(0, 3).flatmap(lambda n: st.binary(min_size=n * size, max_size=n * size))
    return rows.map(lambda data: np.frombuffer(data, dtype).copy())


def objects(values) -> np.ndarray:
    """Return values as an array of objects."""
    return np.fromiter(values, dtype=object, count=len(values))


def leaves(value: object) -> Iterator[object]:
    """Yield the values in containers, and a value that is none."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    is_many = isinstance(value, list | tuple | set | frozenset)
    if is_many or (isinstance(value, np.ndarray) and value.dtype == object):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def mixes(value: object) -> bool:
    """True for values of Python beside such of numpy, which become those of Python."""
    found = list(leaves(value))
    is_numpy = any(isinstance(one, np.generic) for one in found)
    return is_numpy and any(isinstance(one, int | float | str | complex) for one in found)


def same(one: object, other: object) -> bool:
    """True for values of one type that no program can tell apart."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype == object:
            return all(map(same, one, other))
        return one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        # Dicts of other orders are equal.
        return set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, set | frozenset):
        # Order means nothing, and NaN equals nothing.
        found = all(any(same(item, like) for like in other) for item in one)
        return len(one) == len(other) and found
    if isinstance(one, datetime.datetime):
        return one == other and (one.isoformat(), one.fold) == (other.isoformat(), other.fold)
    if isinstance(one, float | np.floating):
        return (math.isnan(one) and math.isnan(other)) or repr(one) == repr(other)
    return bool(one == other)
