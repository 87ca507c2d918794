"""Attributes: what users pin to a DataFrame in `attrs`, as JSON keeps it, and back.

Knows JSON, and a tag for values that JSON has no word for: numbers and arrays of numpy, times of
pandas, NaN. A tuple becomes a list; anything else that would not come back is refused by the key
that leads to it.
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
# Python reads back no longer ones from text.
INTEGER_BITS_MAX = 4096

# The one key of an object that is no object of the user's.
TAG = "blz:value"
# What a tag adds to the depth.
TAG_DEPTH = 2
# An array of text takes the width of the longest for each: more than its JSON says, but not so much
# that a small document takes all memory. So many characters, or so many times those there are.
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
    """A deep copy of `attrs` as JSON, from which `plain_attrs` makes what they were."""
    return {
        _key(key, "attrs"): _encode(value, f"attrs[{key!r}]", DEPTH_MAX)
        for key, value in attrs.items()
    }


def plain_attrs(attrs: Mapping[str, Json]) -> dict[str, Any]:
    """The attributes in JSON that may be anybody's, as a deep copy."""
    return {key: _decode(value, f"attrs[{key!r:.60}]") for key, value in attrs.items()}


def _key(key: Any, place: str) -> str:
    if type(key) is not str:
        raise SchemaError(f"{place}: keys are text; found {key!r:.60} of type {type(key).__name__}")
    check_text(key, place)
    return key


def _encode(value: Any, place: str, depth: int) -> Json:
    if depth <= 0:
        raise SchemaError(f"{place:.200}: nested deeper than {DEPTH_MAX}")
    match value:
        case np.ndarray() if type(value) is np.ndarray and value.ndim == 1:
            return {TAG: _encode_array(value, place)}
        case _ if _is_labelled(value):
            try:
                return {TAG: encode_label(value)}
            except SchemaError as error:
                raise SchemaError(f"{place}: {error}") from None
        case None | bool():
            return value
        case int() if type(value) is int and value.bit_length() <= INTEGER_BITS_MAX:
            return value
        case float() if type(value) is float:
            return value
        case str() if type(value) is str:
            check_text(value, place)
            return value
        case list() | tuple():
            return [_encode(item, f"{place}[{i}]", depth - 1) for i, item in enumerate(value)]
        case dict() if TAG in value:
            return {TAG: ["object", _encode_items(value, place, depth - TAG_DEPTH)]}
        case dict():
            return _encode_items(value, place, depth)
    raise SchemaError(f"{place}: {value!r:.60} of type {type(value).__name__} is no JSON")


def _encode_items(items: dict[Any, Any], place: str, depth: int) -> dict[str, Json]:
    return {
        _key(key, place): _encode(item, f"{place}[{key!r}]", depth - 1)
        for key, item in items.items()
    }


def _decode(value: Json, place: str) -> Any:
    match value:
        case list():
            return [_decode(item, place) for item in value]
        case dict() if TAG not in value:
            return {key: _decode(item, place) for key, item in value.items()}
        case dict():
            try:
                return _decode_tagged(expect_list(expect_keys(value, [TAG])[TAG]), place)
            except FormatError as error:
                raise FormatError(f"{place}: {error}") from None
    return value


def _decode_tagged(facts: list[Json], place: str) -> Any:
    match facts:
        case ["object", dict() as items]:
            return {key: _decode(item, place) for key, item in items.items()}
        case ["array", "str", width, texts]:
            return _decode_texts(width, texts)
        case ["array", dtype, count, data]:
            return _decode_numbers(dtype, count, data)
    return decode_label(facts)


def _is_labelled(value: Any) -> bool:
    """Whether it is no JSON, but a label could be like this."""
    if type(value) is float:
        return not math.isfinite(value)
    # NaT is no Timestamp.
    times = pd.Timestamp | pd.Timedelta | pd.Period | datetime.date
    return isinstance(value, np.generic | times) or value is pd.NaT or value is pd.NA


def _encode_array(values: np.ndarray, place: str) -> list[Json]:
    if values.dtype.kind == "U":
        width, texts = values.dtype.itemsize // 4, values.tolist()
        for text in texts:
            check_text(text, place)
        if _is_dense(width, texts):
            return ["array", "str", width, texts]
        raise SchemaError(f"{place}: {len(texts)} texts, far shorter than {width}; give a list")
    name = numpy_name(values.dtype)
    if name not in ARRAYS:
        raise SchemaError(f"{place}: an array of dtype {values.dtype} is no JSON")
    data = np.ascontiguousarray(values, ARRAYS[name]).tobytes()
    return ["array", name, len(values), base64.b64encode(data).decode("ascii")]


def _decode_numbers(dtype: Json, count: Json, data: Json) -> np.ndarray:
    stored = ARRAYS[expect_text(dtype, ARRAYS)]
    try:
        found = base64.b64decode(expect_text(data), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"an array that is no base64: {error}") from None
    if len(found) != expect_int64(count) * stored.itemsize:
        raise FormatError(f"an array of {count} {dtype} in {len(found)} bytes")
    if stored == np.bool_ and found.strip(b"\0\1"):
        raise FormatError("an array of bool that has other bytes than 0 and 1")
    # A copy, for users may write to it.
    return np.frombuffer(found, stored).astype(stored.newbyteorder("="))


def _decode_texts(width: Json, texts: Json) -> np.ndarray:
    found = list(map(expect_text, expect_list(texts)))
    longest = max(map(len, found), default=0)
    if longest > expect_int64(width) or not _is_dense(width, found):
        raise FormatError(f"an array of {len(found)} texts of at most {longest} in {width} each")
    return np.array(found, f"U{width}")


def _is_dense(width: int, texts: list[str]) -> bool:
    most = max(TEXTS_MAX, TEXTS_RATIO * sum(map(len, texts)))
    return width * max(len(texts), 1) <= most
