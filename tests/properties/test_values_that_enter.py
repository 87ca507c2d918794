"""Values that enter a column: what was given is there exactly, or there is an error and no change.

Pairs of a column and new data, of any two types and containers, go through each verb and form. Only
floats of Python are rounded, to the float of a narrower column.
"""

import datetime
import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.memory import RamStore
from support.options import arguments

UTC = datetime.UTC
ZONES = [None, "UTC", "Etc/UTC", "+00:00", "Asia/Tokyo", "America/New_York"]
SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86400

INTEGERS = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    2**24 + 1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
]
FLOATS = [0.0, -0.0, 0.1, 0.5, 1.0, 65504.0, 65520.0, 2.0**24 + 1, 2.0**53, 1e39, 5e-324, math.inf]
DECIMALS = [Decimal(text) for text in ("0", "1.00", "0.1", "-12.345", "99999999999999999999")]
DAYS = [0, 1, -1, 20454, 106751, 200000, -719162]
TEXTS = ["", "a", "1", "2026-01-01", "é"]
INTEGER_TYPES = [
    pa.int8(),
    pa.uint8(),
    pa.int16(),
    pa.int32(),
    pa.uint32(),
    pa.int64(),
    pa.uint64(),
]
FLOAT_TYPES = [pa.float16(), pa.float32(), pa.float64()]
KINDS = ["integer", "float", "decimal", "date", "time", "stamp", "text", "bool", "null", "category"]


@st.composite
def plain_arrays(draw, rows, kinds=tuple(KINDS)):
    """Return an array of a plain type with awkward values."""
    kind = draw(st.sampled_from(kinds))
    missing = draw(st.booleans())

    def values(strategy):
        one = st.none() | strategy if missing else strategy
        return draw(st.lists(one, min_size=rows, max_size=rows))

    match kind:
        case "integer":
            type_ = draw(st.sampled_from(INTEGER_TYPES))
            low = -(2 ** (type_.bit_width - 1)) if pa.types.is_signed_integer(type_) else 0
            high = low + 2**type_.bit_width - 1
            found = values(st.sampled_from([one for one in INTEGERS if low <= one <= high]))
        case "float":
            type_ = draw(st.sampled_from(FLOAT_TYPES))
            width = np.dtype(f"f{type_.bit_width // 8}").type
            with np.errstate(over="ignore"):
                usual = [float(width(one)) for one in FLOATS]
            found = values(st.sampled_from(usual))
            # Arrow takes no Python floats for half floats in all versions.
            found = [None if one is None else width(one) for one in found]
        case "decimal":
            type_ = draw(st.sampled_from([pa.decimal128(38, 3), pa.decimal128(24, 3)]))
            found = values(st.sampled_from(DECIMALS))
        case "date":
            type_ = draw(st.sampled_from([pa.date32(), pa.date64()]))
            found = values(st.sampled_from(DAYS))
            if type_ == pa.date64():
                found = [None if one is None else one * DAY * 1000 for one in found]
        case "stamp":
            unit = draw(st.sampled_from(list(SECONDS)))
            type_ = pa.timestamp(unit, draw(st.sampled_from(ZONES)))
            moments = st.sampled_from([0, 1, DAY, -DAY, 20454 * DAY, 20454 * DAY + 43200])
            found = values(st.tuples(moments, st.sampled_from([0, 0, 1])))
            found = [None if one is None else one[0] * SECONDS[unit] + one[1] for one in found]
        case "time":
            type_ = draw(st.sampled_from([pa.time32("s"), pa.time64("us"), pa.time64("ns")]))
            found = values(st.sampled_from([0, 1, 3600]))
        case "text":
            type_ = draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
            found = values(st.sampled_from(TEXTS))
        case "category":
            return pa.array(values(st.sampled_from(TEXTS)), pa.string()).dictionary_encode()
        case "bool":
            type_, found = pa.bool_(), values(st.booleans())
        case _:
            return pa.nulls(rows)
    if kind in ("date", "stamp", "time"):
        bits = pa.int32() if type_.bit_width == 32 else pa.int64()
        return pa.array(found, bits).cast(type_)
    return pa.array(found, type_)


def wrapped(array, form):
    """Return the values as they are, as the field of structs, or as the items of lists."""
    if form == "struct":
        return pa.StructArray.from_arrays([array], ["f"])
    if form == "list":
        offsets = pa.array(range(len(array) + 1), pa.int32())
        return pa.ListArray.from_arrays(offsets, array)
    return array


def known(value):
    """Return a value of Arrow so that equal ones of any types are equal."""
    type_ = value.type
    if isinstance(value, pa.DictionaryScalar):
        return known(value.value) if value.is_valid else None
    if not value.is_valid:
        return None
    if pa.types.is_struct(type_):
        pairs = ((field.name, known(value[field.name])) for field in type_)
        return tuple((name, one) for name, one in pairs if one is not None)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return tuple(known(one) for one in value.values)
    if pa.types.is_boolean(type_) or pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return value.as_py()
    if pa.types.is_string_view(type_):
        return value.as_py()
    if pa.types.is_date32(type_):
        return "naive", Fraction(value.value) * DAY
    if pa.types.is_date64(type_):
        return "naive", Fraction(value.value, 1000)
    if pa.types.is_timestamp(type_):
        how = "naive" if type_.tz is None else "moment"
        return how, Fraction(value.value, SECONDS[type_.unit])
    if pa.types.is_time(type_):
        return "time", Fraction(value.value, SECONDS[type_.unit])
    number = value.as_py()
    if isinstance(number, float) and not math.isfinite(number):
        return "float", str(number)
    return "number", Fraction(number)


def all_known(column):
    return [known(one) for one in column]


def rounded(value, type_):
    """Return a known value whose floats are those of a narrower float type; None as it is."""
    if pa.types.is_struct(type_):
        types = {field.name: field.type for field in type_}
        return value and tuple((name, rounded(one, types[name])) for name, one in value)
    if pa.types.is_list(type_):
        return value and tuple(rounded(one, type_.value_type) for one in value)
    if value is None or value[0] != "number" or not pa.types.is_floating(type_):
        return value
    width = np.dtype(f"f{type_.bit_width // 8}").type
    with np.errstate(over="ignore", under="ignore"):
        return "number", Fraction(float(width(float(value[1])))) if abs(value[1]) < 1e300 else value


def bare(array):
    """Return an array as values of Python, without any type."""
    return [one.item() if isinstance(one, np.generic) else one for one in array.to_pylist()]


def has_python_form(array):
    """True if the values of Python say the same as the array."""
    try:
        back = pa.array(array.to_pylist())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
        return False
    return all_known(back) == all_known(array)


def contained(array, container):
    """Return a column of new data in a container."""
    match container:
        case "python":
            return bare(array)
        case "pandas":
            return pd.Series(array, dtype=pd.ArrowDtype(array.type))
        case "numpy":
            return array.to_numpy(zero_copy_only=False)
    return array


class Refused(Exception):
    """The verb raised an error of ours."""


def tried(verb):
    try:
        return verb()
    except blz.BlzError as error:
        raise Refused from error


VERBS = ["append", "stream", "upsert", "update", "replace_where", "appender", "several"]


def enter(verb, store, old, keys, new, evolve, in_transaction):
    """Let new values enter a table; return the old and the new values as they are then."""
    count = len(old)
    if verb in ("stream", "several"):
        first = pa.table({"k": range(count), "v": old})
        second = {"k": keys, "v": new}
        if verb == "stream":
            tried(lambda: blz.to_blz(iter([first, second]), store, mode="w"))
            found = blz.read_table(store)["v"]
        else:
            blz.to_blz(first, one := RamStore("one"))
            try:
                blz.to_blz(second, two := RamStore("two"))
            except blz.BlzError as error:
                raise Refused from error
            with tempfile.TemporaryDirectory() as folder:
                paths = [Path(folder, name) for name in ("one.blz", "two.blz")]
                for path, place in zip(paths, (one, two), strict=True):
                    with blz.open(place) as t:
                        blz.to_blz(t.to_arrow(), path)
                found = tried(lambda: blz.dataset(paths).to_table())["v"]
        return found[:count], found[count:]
    with blz.open(store, "a") as t:

        def change(tx):
            if verb == "append":
                tx.append({"k": keys, "v": new}, evolve=evolve)
            elif verb == "upsert":
                tx.upsert({"k": keys, "v": new}, on="k", evolve=evolve)
            elif verb == "update":
                tx.update({"v": new}, where=f"k >= {count}", evolve=evolve)
            elif verb == "replace_where":
                tx.append({"k": keys, "v": new}, replace_where=f"k >= {count}", evolve=evolve)
            else:
                with tx.appender(evolve=evolve) as a:
                    a["k"].append(keys)
                    a["v"].append(new)

        if verb == "update":
            t.append({"k": keys})
        before, version = t.to_arrow(), t.version
        try:
            if in_transaction or verb == "appender":
                with t.transaction() as tx:
                    change(tx)
            else:
                change(t)
        except blz.BlzError as error:
            assert t.version == version
            assert t.to_arrow().equals(before)
            assert t.verify()
            raise Refused from error
        found = t.to_arrow()["v"]
        assert t.verify()
        return found[:count], found[count:]


@given(data=st.data())
def test_values_enter_exactly_or_not_at_all(data):
    rows = data.draw(st.integers(1, 3))
    form = data.draw(st.sampled_from(["plain", "plain", "struct", "list"]))
    # Kinds that have something in common, as often as any.
    near = data.draw(
        st.sampled_from(
            [KINDS, ["integer", "float", "decimal"], ["date", "stamp"], ["stamp"], ["float"]]
        )
    )
    old = wrapped(data.draw(plain_arrays(data.draw(st.integers(1, 3)), tuple(near))), form)
    new = wrapped(data.draw(plain_arrays(rows, tuple(near))), form)
    container = data.draw(st.sampled_from(["arrow", "python", "pandas", "numpy"]))
    # numpy has none of the others.
    is_number = pa.types.is_integer(new.type) or pa.types.is_floating(new.type)
    if container == "numpy" and (form != "plain" or new.null_count or not is_number):
        container = "arrow"
    if container == "pandas" and pa.types.is_dictionary(new.type):
        container = "arrow"
    if container == "python" and not has_python_form(new):
        container = "arrow"
    given_ = contained(new, container)
    given_known = all_known(new)
    if container == "numpy" and new.type == pa.float16():
        given_known = all_known(pa.array(given_))
    verb = data.draw(st.sampled_from(VERBS))
    evolve = data.draw(st.booleans())
    in_transaction = data.draw(st.booleans())
    layout = data.draw(st.sampled_from([None, "directory", "file"]))
    table = pa.table({"k": range(len(old)), "v": old})
    keys = list(range(len(old), len(old) + rows))
    with tempfile.TemporaryDirectory() as folder:
        place = RamStore("t") if layout is None else Path(folder, "t.blz")
        more = {} if layout is None else {"layout": layout}
        blz.to_blz(table, place, **arguments(durability="process", **more))
        try:
            before, after = enter(verb, place, old, keys, given_, evolve, in_transaction)
        except Refused:
            return
    assert all_known(before) == all_known(old)
    found = all_known(after)
    if found != given_known:
        assert container == "python"
        assert found == [rounded(one, after.type) for one in given_known]
