"""Widening: the type that holds the values of two inferred types, and types by name.

Knows only types.
"""

import io
import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.csv as pa_csv

from blztable.cli.arguments import UsageError

UNITS = ("s", "ms", "us", "ns")
_PARAMETERS = re.compile(r"(decimal|timestamp)[(\[]\s*(\w+)\s*(?:,\s*([^)\]]+?)\s*)?[)\]]")


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a type for the values of both, as they would be inferred together; None without one.

    Both are types that Arrow infers from CSV or JSON.
    """
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if _are(one, other, types.is_integer, types.is_floating):
        return pa.float64()
    if types.is_timestamp(one) and types.is_timestamp(other) and one.tz == other.tz:
        return max(one, other, key=lambda type_: UNITS.index(type_.unit))
    if _are(one, other, types.is_date, types.is_timestamp):
        moment = one if types.is_timestamp(one) else other
        return moment if moment.tz is None else None
    if _are(one, other, types.is_string, types.is_timestamp):
        # JSON infers a time from a text.
        return pa.string()
    if types.is_list(one) and types.is_list(other):
        item = wider(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            wide = wider(fields.get(field.name, pa.null()), field.type)
            if wide is None:
                return None
            fields[field.name] = wide
        return pa.struct(list(fields.items()))
    return None


def _are(one: pa.DataType, other: pa.DataType, is_first: object, is_second: object) -> bool:
    """True if one type is of the first kind and the other one of the second."""
    assert callable(is_first)
    assert callable(is_second)
    return bool((is_first(one) and is_second(other)) or (is_first(other) and is_second(one)))


def type_of_text(value: str) -> pa.DataType:
    """Return the type that Arrow infers from one value of CSV."""
    text = '"' + value.replace('"', '""') + '"\n'
    read = pa_csv.ReadOptions(column_names=["value"], block_size=len(text.encode()) + 1)
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    table = pa_csv.read_csv(io.BytesIO(text.encode()), read_options=read, parse_options=parse)
    return table.schema.types[0]


@lru_cache
def csv_type(type_: pa.DataType) -> pa.DataType | None:
    """Return the type as which values of CSV are read for a column; None if Arrow cannot."""
    if pa.types.is_dictionary(type_):
        return csv_type(type_.value_type)
    options = pa_csv.ConvertOptions(column_types={"a": type_})
    try:
        pa_csv.read_csv(io.BytesIO(b"a,b\n,\n"), convert_options=options)
    except pa.ArrowNotImplementedError:
        return None
    return type_


def type_named(name: str) -> pa.DataType:
    """Return a type by its name: of Arrow, `decimal(9,2)`, `timestamp[us,UTC]`, `category`."""
    if name == "category":
        return pa.dictionary(pa.int32(), pa.string())
    try:
        return pa.type_for_alias(name)
    except ValueError:
        found = _PARAMETERS.fullmatch(name)
    try:
        if found and found[1] == "decimal":
            return pa.decimal128(int(found[2]), int(found[3] or 0))
        if found and found[3]:
            return pa.timestamp(found[2], found[3])
    except ValueError:
        found = None
    raise UsageError(
        f"no type is named {name!r}; try int64, double, string, bool, date32, timestamp[us], "
        "timestamp[us,UTC], decimal(12,2), binary or category"
    )
