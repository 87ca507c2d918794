"""Tagged: Python values as JSON and back, such as the `attrs` of a DataFrame.

Knows nothing of tables. Values that JSON lacks (numbers and arrays of numpy, times, NaN, bytes,
tuples, sets, dicts whose keys are no text) are tagged. Any other value raises an error that names
its key. A column of mixed objects is stored as the same JSON.
"""

import base64
import binascii
import datetime
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from blztable.convert.frames.descriptor import (
    Json,
    check_depth,
    expect_int64,
    expect_keys,
    expect_list,
    expect_text,
)
from blztable.convert.frames.labels import (
    FLOATS,
    INTEGERS,
    NUMPY_UNITS,
    TEXTS,
    decode_label,
    encode_label,
    numpy_name,
)
from blztable.convert.frames.text import check_text
from blztable.errors import FormatError, SchemaError
from blztable.strict_json import strict_decoder

DEPTH_MAX = 32
REMEDY = "; remove it, or make it text"
# Python refuses to parse longer integers.
INTEGER_BITS_MAX = 4096

# The only key of an object that stands for a tagged value.
TAG = "blz:value"
# Levels of nesting that a tag adds.
TAG_DEPTH = 2
# How the name of an attribute begins whose key is no text; its JSON follows.
KEY = "blz:key:"
SEQUENCES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_DECODER = strict_decoder()
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_LABELLED = (
    np.generic,
    pd.Timestamp,
    pd.Timedelta,
    pd.Period,
    pd.Interval,
    bytes,
    complex,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    *TEXTS.values(),
)
# Each item of a text array takes the width of the longest. These limits, in characters and as a
# multiple of the actual characters, keep a small document from taking all memory.
TEXTS_MAX = 1024
TEXTS_RATIO = 16
ARRAYS = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "bool",
        *INTEGERS,
        *FLOATS,
        *(f"{kind}8[{unit}]" for kind in "Mm" for unit in NUMPY_UNITS),
    )
}


def checked_attrs(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a deep copy of `attrs` as JSON, which `plain_attrs` turns back."""
    return {stored_key(key): encode_value(value, f"attrs[{key!r}]") for key, value in attrs.items()}


def plain_attrs(attrs: Mapping[str, Json]) -> dict[Any, Any]:
    """Return the attributes of untrusted JSON, as a deep copy."""
    return {
        plain_key(key): decode_value(value, f"attrs[{key!r:.60}]") for key, value in attrs.items()
    }


def stored_key(key: Any) -> str:
    """Return the name of an attribute: text itself, or the JSON of any other key."""
    if type(key) is str and not key.startswith(KEY):
        check_text(key, "attrs")
        return key
    return KEY + to_text(key, "attrs")


def plain_key(key: str) -> Any:
    """Return the key of an attribute of this name."""
    return _hashable(from_text(key[len(KEY) :], "attrs")) if key.startswith(KEY) else key


def to_text(value: Any, context: str) -> str:
    """Return a value as JSON text."""
    return _ENCODER.encode(encode_value(value, context))


def from_text(text: str, context: str) -> Any:
    """Return the value of untrusted JSON text."""
    try:
        value = _DECODER.decode(text)
        check_depth(value, 2 * DEPTH_MAX)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{context}: expected JSON, found {text!r:.60}: {error}") from None
    return decode_value(value, context)


def encode_value(value: Any, context: str, depth: int = DEPTH_MAX) -> Json:
    """Return a value as JSON; SchemaError for one that would not come back."""
    if depth <= 0:
        raise SchemaError(f"{context:.200}: nested deeper than {DEPTH_MAX}")
    match value:
        case np.ndarray() if type(value) is np.ndarray and value.ndim == 1:
            if value.dtype == object:
                return {TAG: ["array", "object", _encode_all(value, context, depth - TAG_DEPTH)]}
            return {TAG: _encode_array(value, context)}
        case _ if _is_labelled(value):
            try:
                return {TAG: encode_label(value)}
            except SchemaError as error:
                if not isinstance(value, np.generic):
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
        case list() if type(value) is list:
            return _encode_all(value, context, depth)
        case tuple() | set() | frozenset() if type(value).__name__ in SEQUENCES:
            items = _encode_all(value, context, depth - TAG_DEPTH)
            if not isinstance(value, tuple):
                items.sort(key=_ENCODER.encode)  # The order of a set changes from run to run.
            return {TAG: [type(value).__name__, items]}
        case dict() if type(value) is not dict:
            pass
        case dict() if not all(type(key) is str for key in value):
            pairs = (_encode_all(pair, context, depth - TAG_DEPTH) for pair in value.items())
            return {TAG: ["dict", list(pairs)]}
        case dict() if TAG in value:
            return {TAG: ["object", _encode_items(value, context, depth - TAG_DEPTH)]}
        case dict():
            return _encode_items(value, context, depth)
    raise SchemaError(
        f"{context}: {value!r:.60} of type {type(value).__name__} cannot be kept as JSON{REMEDY}"
    )


def _encode_all(values: Iterable[Any], context: str, depth: int) -> list[Json]:
    return [encode_value(item, f"{context:.200}[{i}]", depth - 1) for i, item in enumerate(values)]


def _encode_items(items: dict[str, Any], context: str, depth: int) -> dict[str, Json]:
    for key in items:
        check_text(key, context)
    return {
        key: encode_value(item, f"{context:.200}[{key!r}]", depth - 1)
        for key, item in items.items()
    }


def decode_value(value: Json, context: str) -> Any:
    """Return the value of untrusted JSON."""
    match value:
        case list():
            return [decode_value(item, context) for item in value]
        case dict() if TAG not in value:
            return {key: decode_value(item, context) for key, item in value.items()}
        case dict():
            try:
                return _decode_tagged(expect_list(expect_keys(value, [TAG])[TAG]), context)
            except FormatError as error:
                raise FormatError(f"{context}: {error}") from None
    return value


def _decode_tagged(value: list[Json], context: str) -> Any:
    match value:
        case ["object", dict() as items]:
            return {key: decode_value(item, context) for key, item in items.items()}
        case ["array", "object", list() as items]:
            objects = (decode_value(item, context) for item in items)
            return np.fromiter(objects, dtype=object, count=len(items))
        case ["array", "str", width, texts]:
            return _decode_texts(width, texts)
        case ["array", dtype, count, data]:
            return _decode_numbers(dtype, count, data)
        case [str() as word, list() as items] if word in SEQUENCES:
            decoded = (decode_value(item, context) for item in items)
            return SEQUENCES[word](decoded if word == "tuple" else map(_hashable, decoded))
        case ["dict", list() as pairs]:
            rows = (expect_list(pair, 2) for pair in pairs)
            return {
                _hashable(decode_value(key, context)): decode_value(item, context)
                for key, item in rows
            }
    return decode_label(value)


def _hashable(value: Any) -> Any:
    """Return a value that a set can hold, or that is a key."""
    try:
        hash(value)
    except TypeError:
        raise FormatError(f"expected a key or an item of a set, found {value!r:.60}") from None
    return value


def _is_labelled(value: Any) -> bool:
    """True for a value that JSON lacks and a label can be."""
    if type(value) is float:
        return not math.isfinite(value)
    # NaT is not a Timestamp.
    return isinstance(value, _LABELLED) or value is pd.NaT or value is pd.NA


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
