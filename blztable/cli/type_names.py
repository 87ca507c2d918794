"""Type names: the types that options name, and which of them Arrow reads from CSV.

Knows only types.
"""

import io
import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.csv as pa_csv

from blztable.cli.arguments import UsageError

_PARAMETERS = re.compile(r"(decimal|timestamp)[(\[]\s*(\w+)\s*(?:,\s*([^)\]]+?)\s*)?[)\]]")


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
        match = _PARAMETERS.fullmatch(name)
    try:
        if match and match[1] == "decimal":
            return pa.decimal128(int(match[2]), int(match[3] or 0))
        if match and match[3]:
            return pa.timestamp(match[2], match[3])
    except ValueError:
        match = None
    raise UsageError(
        f"no type is named {name!r}; try int64, double, string, bool, date32, timestamp[us], "
        "timestamp[us,UTC], decimal(12,2), binary or category"
    )
