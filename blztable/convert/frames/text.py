"""Text: the `str` dtype of pandas 3 and its older relatives.

All are large_string in the store; the `str` dtype kept in Arrow memory needs no descriptor.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow_types import is_text
from blztable.convert.arrays import PandasArray
from blztable.convert.frames.descriptor import Descriptor, Json, expect_keys, expect_text
from blztable.errors import FormatError, SchemaError

STORAGES: dict[str, Any] = {"pyarrow": "pyarrow", "python": "python"}
MARKERS: dict[str, Any] = {"nan": np.nan, "NA": pd.NA}

USUAL: Any = pd.StringDtype("pyarrow", na_value=np.nan)
NULLABLE: Any = pd.StringDtype()


def encode_text(
    values: PandasArray, place: str
) -> tuple[pa.Array | pa.ChunkedArray, Descriptor | None]:
    """A string array of pandas; what is in Arrow memory is not copied."""
    dtype = values.dtype
    if dtype.storage == "pyarrow":
        array = values.__arrow_array__()
    else:
        objects = values.to_numpy(dtype=object, na_value=None)
        array = text_array(objects, place)
    if dtype.storage == USUAL.storage and dtype.na_value is USUAL.na_value:
        return array, None
    marker = "NA" if dtype.na_value is pd.NA else "nan"
    return array, {"dtype": "string", "storage": dtype.storage, "na": marker}


def decode_text(column: pa.ChunkedArray) -> PandasArray:
    """The `str` dtype over Arrow's own memory."""
    return _string_array(column, USUAL)


def decode_nullable_text(column: pa.ChunkedArray) -> PandasArray:
    """The `string` dtype, whose missing value is pd.NA."""
    return _string_array(column, NULLABLE)


def decode_string(column: pa.ChunkedArray, descriptor: Descriptor) -> PandasArray:
    """A string dtype by its storage and its missing value."""
    expect_keys(descriptor, ["dtype", "storage", "na"])
    return _string_array(column, string_dtype(descriptor["storage"], descriptor["na"]))


def string_dtype(storage: Json, na: Json) -> Any:
    """The string dtype of this storage and missing value."""
    marker = MARKERS[expect_text(na, MARKERS)]
    return pd.StringDtype(STORAGES[expect_text(storage, STORAGES)], na_value=marker)


def text_array(objects: np.ndarray, place: str) -> pa.Array:
    """Python strings as large_string; None is a null."""
    try:
        return pa.array(objects, type=pa.large_string(), from_pandas=False)
    except UnicodeEncodeError:
        for row, value in enumerate(objects):
            check_text(value, f"{place}, row {row}")
        raise


def check_text(value: object, place: str) -> None:
    """Raise for a str that has no UTF-8."""
    if not isinstance(value, str):
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{place}: {value!r:.60} has a lone surrogate and no UTF-8") from None


def _string_array(column: pa.ChunkedArray, dtype: Any) -> PandasArray:
    if not is_text(column.type):
        raise FormatError(f"strings cannot be {column.type}")
    return dtype.__from_arrow__(column.cast(pa.large_string()))
