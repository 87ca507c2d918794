"""Attributes: the `attrs` of a DataFrame as JSON, and back.

Knows nothing of tables. Values that JSON lacks (numpy numbers and arrays, pandas times, NaN) are
tagged. A tuple becomes a list. Any other value that would not come back raises an error that names
its key.
"""

import base64
import binascii
import datetime
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from blztable.convert.frames.descriptor import (
    Json,
    expect_int64,
    expect_keys,
    expect_list,
    expect_text,
)
from blztable.convert.frames.labels import (
    FLOATS,
    INTEGERS,
    NUMPY_UNITS,
    decode_label,
    encode_label,
    numpy_name,
)
from blztable.convert.frames.text import check_text
from blztable.errors import FormatError, SchemaError

DEPTH_MAX = 32
# Python refuses to parse longer integers.
INTEGER_BITS_MAX = 4096

# The only key of an object that stands for a tagged value.
TAG = "blz:value"
# Levels of nesting that a tag adds.
TAG_DEPTH = 2
# Each item of a text array takes the width of the longest. These limits, in characters and as a
# multiple of the actual characters, keep a small document from taking all memory.
TEXTS_MAX = 1024
TEXTS_RATIO = 16
ARRAYS = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("bool", *INTEGERS, *FLOATS),
        *(f"{kind}8[{unit}]" for kind in "Mm" for unit in NUMPY_UNITS),
    )
}


def checked_attrs(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a deep copy of `attrs` as JSON, which `plain_attrs` turns back."""
    return {
        _key(key, "attrs"): _encode(value, f"attrs[{key!r}]", DEPTH_MAX)
        for key, value in attrs.items()
    }


def plain_attrs(attrs: Mapping[str, Json]) -> dict[str, Any]:
    """Return the attributes of untrusted JSON, as a deep copy."""
    return {key: _decode(value, f"attrs[{key!r:.60}]") for key, value in attrs.items()}


def _key(key: Any, context: str) -> str:
    if type(key) is not str:
        raise SchemaError(
            f"{context}: a key must be str; found {key!r:.60} of type {type(key).__name__}"
        )
    check_text(key, context)
    return key


def _encode(value: Any, context: str, depth: int) -> Json:
    if depth <= 0:
        raise SchemaError(f"{context:.200}: nested deeper than {DEPTH_MAX}")
    match value:
        case np.ndarray() if type(value) is np.ndarray and value.ndim == 1:
            return {TAG: _encode_array(value, context)}
        case _ if _is_labelled(value):
            try:
                return {TAG: encode_label(value)}
            except SchemaError as error:
                raise SchemaError(f"{context}: {error}") from None
        case None | bool():
            return value
        case int() if type(value) is int and value.bit_length() <= INTEGER_BITS_MAX:
            return value
        case float() if type(value) is float:
            return value
        case str() if type(value) is str:
            check_text(value, context)
            return value
        case list() | tuple():
            return [_encode(item, f"{context}[{i}]", depth - 1) for i, item in enumerate(value)]
        case dict() if TAG in value:
            return {TAG: ["object", _encode_items(value, context, depth - TAG_DEPTH)]}
        case dict():
            return _encode_items(value, context, depth)
    raise SchemaError(
        f"{context}: {value!r:.60} of type {type(value).__name__} is not JSON; remove it from attrs"
    )


def _encode_items(items: dict[Any, Any], context: str, depth: int) -> dict[str, Json]:
    return {
        _key(key, context): _encode(item, f"{context}[{key!r}]", depth - 1)
        for key, item in items.items()
    }


def _decode(value: Json, context: str) -> Any:
    match value:
        case list():
            return [_decode(item, context) for item in value]
        case dict() if TAG not in value:
            return {key: _decode(item, context) for key, item in value.items()}
        case dict():
            try:
                return _decode_tagged(expect_list(expect_keys(value, [TAG])[TAG]), context)
            except FormatError as error:
                raise FormatError(f"{context}: {error}") from None
    return value


def _decode_tagged(facts: list[Json], context: str) -> Any:
    match facts:
        case ["object", dict() as items]:
            return {key: _decode(item, context) for key, item in items.items()}
        case ["array", "str", width, texts]:
            return _decode_texts(width, texts)
        case ["array", dtype, count, data]:
            return _decode_numbers(dtype, count, data)
    return decode_label(facts)


def _is_labelled(value: Any) -> bool:
    """True for a value that JSON lacks and a label can be."""
    if type(value) is float:
        return not math.isfinite(value)
    # NaT is not a Timestamp.
    times = pd.Timestamp | pd.Timedelta | pd.Period | datetime.date
    return isinstance(value, np.generic | times) or value is pd.NaT or value is pd.NA


def _encode_array(values: np.ndarray, context: str) -> list[Json]:
    if values.dtype.kind == "U":
        width, texts = values.dtype.itemsize // 4, values.tolist()
        for text in texts:
            check_text(text, context)
        if _is_dense(width, texts):
            return ["array", "str", width, texts]
        raise SchemaError(f"{context}: {len(texts)} texts, far shorter than {width}; pass a list")
    name = numpy_name(values.dtype)
    if name not in ARRAYS:
        raise SchemaError(f"{context}: an array of dtype {values.dtype} is not JSON; pass a list")
    data = np.ascontiguousarray(values, ARRAYS[name]).tobytes()
    return ["array", name, len(values), base64.b64encode(data).decode("ascii")]


def _decode_numbers(dtype: Json, count: Json, data: Json) -> np.ndarray:
    stored = ARRAYS[expect_text(dtype, ARRAYS)]
    try:
        decoded = base64.b64decode(expect_text(data), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"an array is not base64: {error}") from None
    if len(decoded) != expect_int64(count) * stored.itemsize:
        raise FormatError(f"an array of {count} {dtype} in {len(decoded)} bytes")
    if stored == np.bool_ and decoded.strip(b"\0\1"):
        raise FormatError("an array of bool has bytes other than 0 and 1")
    # A copy, because users may write to it.
    return np.frombuffer(decoded, stored).astype(stored.newbyteorder("="))


def _decode_texts(width: Json, texts: Json) -> np.ndarray:
    items = list(map(expect_text, expect_list(texts)))
    longest = max(map(len, items), default=0)
    if longest > expect_int64(width) or not _is_dense(width, items):
        raise FormatError(f"an array of {len(items)} texts of at most {longest} in {width} each")
    return np.array(items, f"U{width}")


def _is_dense(width: int, texts: list[str]) -> bool:
    most = max(TEXTS_MAX, TEXTS_RATIO * sum(map(len, texts)))
    return width * max(len(texts), 1) <= most
