"""Pandas metadata: the `pandas` JSON in the schemas of pyarrow and Parquet, both directions.

Knows nothing of the columns' values. The documented JSON (index_columns, column_indexes, columns,
attributes) says less than a frame descriptor. Facts that it cannot say are left out, and facts that
this file does not understand are ignored.
"""

import ast
import json
import re
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.types import is_text
from blztable.convert.frames import dtypes
from blztable.convert.frames.descriptor import FIELD_KEY, Descriptor, check_depth, expect_keys
from blztable.convert.frames.frame import FrameInfo, descriptor_of
from blztable.convert.frames.header import MASKED, decode_header, encode_header
from blztable.convert.frames.index import DEFAULT
from blztable.convert.frames.labels import decode_label
from blztable.convert.frames.numbers import DTYPES
from blztable.convert.frames.times import PERIOD_FREQ, zone, zone_name
from blztable.convert.objects.tagged import checked_attrs, plain_attrs
from blztable.errors import BlzError, FormatError

SIZE_MAX = 64 << 20
TUPLE_TEXT_MAX = 1000
# The key, beside those of pandas, of a descriptor that pandas' words do not say.
OWN = "blz:pandas"
# Errors of untrusted JSON: not a number, a number too large for its dtype, not a Python literal.
NOT_UNDERSTOOD = (
    BlzError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    RecursionError,
    MemoryError,
)
GENERATED = re.compile(r"__index_level_\d+__")

# The words of pandas for `str` labels.
USUAL_LABELS: tuple[str, str, Any] = ("unicode", "str", {"encoding": "UTF-8"})


def from_metadata(schema: pa.Schema, rows: int) -> tuple[Descriptor | None, dict[str, Any]]:
    """Return the frame descriptor and attrs in a schema's pandas metadata; None if unreadable."""
    text = (schema.metadata or {}).get(b"pandas")
    if text is None or len(text) > SIZE_MAX:
        return None, {}
    try:
        metadata = json.loads(text)
        check_depth(metadata, 100)
        frame = _facts(metadata, schema, rows).encode()
        FrameInfo.decode(frame)
        return frame, checked_attrs(plain_attrs(metadata.get("attributes") or {}))
    except NOT_UNDERSTOOD:
        return None, {}


def arrow_metadata(
    frame: Descriptor | None, schema: pa.Schema, rows: int, attrs: dict[str, Any]
) -> bytes | None:
    """Return the pandas metadata for a table with this schema.

    None without a frame, and for a descriptor of another version; an Arrow table is complete
    without it.
    """
    if frame is None:
        return None
    try:
        return _arrow_metadata(FrameInfo.decode(frame), schema, rows, attrs)
    except FormatError:
        return None


def _arrow_metadata(info: FrameInfo, schema: pa.Schema, rows: int, attrs: dict[str, Any]) -> bytes:
    hidden = [name for name in info.index_fields() if schema.names.count(name) == 1]
    fields = [field for field in schema if field.name not in hidden]
    labels, column_indexes = _labels(info.header, [field.name for field in fields])
    described = [
        _column_entry(field, descriptor_of(field, info), label)
        for field, label in zip(fields, labels, strict=True)
    ]
    index_columns: list[Any] = list(hidden)
    for level in info.levels:
        name = _label_text(decode_label(level.get("name")))
        if level["kind"] == "range":
            start, step = level["start"], level["step"]
            bounds = {"start": start, "stop": start + step * rows, "step": step}
            index_columns.append({"kind": "range", "name": name, **bounds})
        elif level["field"] in hidden:
            field = schema.field(level["field"])
            described.append(_column_entry(field, descriptor_of(field, info), name))
    metadata = {
        "index_columns": index_columns,
        "column_indexes": column_indexes,
        "columns": described,
        "attributes": attrs,
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": pd.__version__,
    }
    return json.dumps(metadata).encode()


def _facts(metadata: dict[str, Any], schema: pa.Schema, rows: int) -> FrameInfo:
    entries = {entry.get("field_name") or entry["name"]: entry for entry in metadata["columns"]}
    levels = []
    for column in metadata["index_columns"]:
        if isinstance(column, str) and schema.names.count(column) == 1:
            level: Descriptor = {"kind": "field", "field": column}
            name = entries.get(column, {}).get("name")
            if name is not None and not (name == column and GENERATED.fullmatch(name)):
                level["name"] = name
            levels.append(level)
        elif isinstance(column, dict) and column["kind"] == "range":
            start, stop, step = column["start"], column["stop"], column["step"]
            # A sliced table has another length, and pandas then counts from 0 too.
            if len(range(start, stop, step)) == rows and len(metadata["index_columns"]) == 1:
                level = {"kind": "range", "start": start, "step": step}
                levels.append(level | ({} if column["name"] is None else {"name": column["name"]}))
    hidden = {level.get("field") for level in levels}
    fields = [name for name in schema.names if name not in hidden]
    # Before pandas 3, metadata called all text objects; it is `str` now.
    modern = int(str(metadata.get("pandas_version") or "0").split(".")[0]) >= 3
    described: dict[str, Descriptor] = {}
    for field in schema:
        entry = entries.get(field.name)
        if entry is not None and FIELD_KEY not in (field.metadata or {}):
            descriptor = _own(entry, field.type) or _descriptor(
                str(entry["numpy_type"]), field.type, modern
            )
            if descriptor is not None:
                described[field.name] = descriptor
    header = _header(metadata.get("column_indexes") or [], fields, entries)
    multi = len(levels) > 1
    encoded = None if header is None else encode_header(header, fields)
    return FrameInfo(levels or [DEFAULT], multi, encoded, dtypes=described)


def _own(entry: dict[str, Any], type_: pa.DataType) -> Descriptor | None:
    """Return the descriptor that `_column_entry` left, if it describes this type."""
    info = entry.get("metadata")
    if not isinstance(info, dict) or OWN not in info:
        return None
    try:
        descriptor = expect_keys(info[OWN], ["dtype"], info[OWN])
        dtypes.decode(pa.chunked_array([], type_), descriptor, None)
    except NOT_UNDERSTOOD:
        return None
    return descriptor


def _descriptor(numpy_type: str, type_: pa.DataType, modern: bool) -> Descriptor | None:
    """Return the descriptor for pyarrow's word for a dtype; None if the Arrow type says it."""
    if numpy_type.endswith("[pyarrow]"):
        return {"dtype": "arrow"}
    if numpy_type in MASKED and type_ in DTYPES:
        return {"dtype": "masked"}
    if numpy_type == "string" and is_text(type_):
        return {"dtype": "string", "storage": "pyarrow", "na": "NA"}
    if numpy_type == "object" and modern and (is_text(type_) or pa.types.is_boolean(type_)):
        return {"dtype": "object"}
    if numpy_type.startswith("period[") and type_ == pa.int64():
        freq = numpy_type[len("period[") : -1]
        return {"dtype": "period", "freq": freq} if PERIOD_FREQ.fullmatch(freq) else None
    return None


def _header(
    levels: list[dict[str, Any]], fields: list[str], entries: dict[str, Any]
) -> pd.Index | None:
    """Return the columns Index of the labels' texts; None for plain text."""
    labels = [entries.get(field, {"name": field})["name"] for field in fields]
    names = [level["name"] for level in levels]
    if len(levels) > 1:
        rows = [_tuple(label, len(levels)) for label in labels]
        parts = [_typed([row[i] for row in rows], level) for i, level in enumerate(levels)]
        return pd.MultiIndex.from_arrays(parts, names=names)
    if not levels:
        return None
    return _typed(labels, levels[0]).rename(names[0])


def _tuple(text: str, count: int) -> tuple[Any, ...]:
    if len(text) > TUPLE_TEXT_MAX:
        raise ValueError("a label of several levels is too long")
    label = ast.literal_eval(text)
    if not isinstance(label, tuple) or len(label) != count:
        raise ValueError("a label has another number of levels")
    return label


def _typed(labels: list[Any], level: dict[str, Any]) -> pd.Index:
    """Return labels from their texts, by the dtype in the metadata."""
    dtype = str(level["numpy_type"])
    if None in labels:
        return pd.Index(labels, dtype=object)
    if dtype in INTEGERS:
        return pd.Index([int(label) for label in labels], dtype=INTEGERS[dtype])
    if dtype in ("float32", "float64"):
        return pd.Index([float(label) for label in labels], dtype=dtype)
    if match := re.fullmatch(r"datetime64\[(s|ms|us|ns)\]", dtype):
        unit: Any = match[1]
        if level["pandas_type"] != "datetimetz":
            return pd.DatetimeIndex(labels).as_unit(unit)
        tz = zone(level["metadata"]["timezone"])
        return pd.to_datetime(labels, utc=True).tz_convert(tz).as_unit(unit)
    return pd.Index([str(label) for label in labels], dtype="str")


def _label_text(label: Any) -> str | None:
    """Return a label as pyarrow writes it."""
    if isinstance(label, str):
        return str(label)
    if isinstance(label, tuple):
        return str(tuple(_label_text(item) for item in label))
    return None if pd.isna(label) else str(label)


def _entry(name: str | None, field: str | None, types: tuple[str, str, Any]) -> dict[str, Any]:
    pandas_type, numpy_type, metadata = types
    return {
        "name": name,
        "field_name": field,
        "pandas_type": pandas_type,
        "numpy_type": numpy_type,
        "metadata": metadata,
    }


def _column_entry(
    field: pa.Field, descriptor: Descriptor | None, name: str | None
) -> dict[str, Any]:
    pandas_type, numpy_type, metadata = _types_of(field.type)
    if descriptor is not None:
        numpy_type = NUMPY_TYPES.get(descriptor["dtype"], _unchanged)(
            field.type, descriptor, numpy_type
        )
        if _descriptor(numpy_type, field.type, modern=True) != descriptor:
            metadata = {**(metadata or {}), OWN: descriptor}
    return _entry(name, field.name, (pandas_type, numpy_type, metadata))


def _types_of(type_: pa.DataType) -> tuple[str, str, Any]:
    """Return the pandas_type, numpy_type and metadata of an Arrow type."""
    if type_ in DTYPES:
        return DTYPES[type_].name, DTYPES[type_].name, None
    if is_text(type_):
        return "unicode", "str", None
    if pa.types.is_dictionary(type_):
        codes = DTYPES[type_.index_type].name
        return "categorical", codes, {"num_categories": None, "ordered": type_.ordered}
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return "datetimetz", f"datetime64[{type_.unit}]", {"timezone": type_.tz}
    if pa.types.is_timestamp(type_):
        return "datetime", f"datetime64[{type_.unit}]", None
    if pa.types.is_duration(type_):
        return "object", f"timedelta64[{type_.unit}]", None
    if pa.types.is_decimal(type_):
        return "decimal", "object", {"precision": type_.precision, "scale": type_.scale}
    for holds, word in OBJECT_WORDS:
        if holds(type_):
            return word, "object", None
    return "object", "object", None


def _labels(info: Any, names: list[str]) -> tuple[list[str | None], list[dict[str, Any]]]:
    """Return the labels of the columns as text, and an entry for each of their levels.

    Default labels are the names. They need no Index, whose first use costs milliseconds.
    """
    if info is None:
        return list(names), [_entry(None, None, USUAL_LABELS)]
    header = decode_header(info, names)
    levels = header.levels if isinstance(header, pd.MultiIndex) else [header]
    entries = [_header_entry(level, name) for level, name in zip(levels, header.names, strict=True)]
    return [_label_text(label) for label in header.tolist()], entries


def _header_entry(level: pd.Index, name: Hashable) -> dict[str, Any]:
    label = _label_text(name)
    dtype = level.dtype
    if isinstance(dtype, pd.StringDtype):
        types = USUAL_LABELS
    elif isinstance(dtype, pd.DatetimeTZDtype):
        timezone = zone_name(dtype.tz, "column labels")[0]
        types = ("datetimetz", f"datetime64[{dtype.unit}]", {"timezone": timezone})
    elif isinstance(dtype, np.dtype) and dtype.kind in "iufM":
        types = (str(dtype), str(dtype), None)
    else:
        # Read back as text, the only certain form.
        types = ("mixed", "object", None)
    return _entry(label, label, types)


def _unchanged(type_: pa.DataType, descriptor: Descriptor, usual: str) -> str:
    return usual


def _masked_name(type_: pa.DataType, descriptor: Descriptor, usual: str) -> str:
    names = {name.lower(): name for name in MASKED} | {"bool": "boolean"}
    return names.get(usual, usual)


def _arrow_name(type_: pa.DataType, descriptor: Descriptor, usual: str) -> str:
    # pandas reads only the names of simple types, and fails on others.
    return f"{type_}[pyarrow]" if type_ in DTYPES or is_text(type_) else "object"


NUMPY_TYPES: dict[str, Callable[[pa.DataType, Descriptor, str], str]] = {
    "masked": _masked_name,
    "arrow": _arrow_name,
    "string": lambda type_, descriptor, usual: "string" if descriptor.get("na") == "NA" else "str",
    "period": lambda type_, descriptor, usual: f"period[{descriptor.get('freq')}]",
    "object": lambda type_, descriptor, usual: "object",
}
OBJECT_WORDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_null, "empty"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
)
INTEGERS = {name: dtype for name, dtype in ((d.name, d) for d in DTYPES.values()) if "int" in name}
