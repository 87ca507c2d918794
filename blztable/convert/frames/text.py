"""Text: the `str` dtype of pandas 3 and its older relatives.

Knows nothing of other dtypes. All are stored as large_string. The `str` dtype over Arrow memory
needs no descriptor.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.types import is_text
from blztable.convert.arrays import PandasArray
from blztable.convert.frames.descriptor import Descriptor, Json, expect_keys, expect_text
from blztable.errors import FormatError, SchemaError

STORAGES: dict[str, Any] = {"pyarrow": "pyarrow", "python": "python"}
MARKERS: dict[str, Any] = {"nan": np.nan, "NA": pd.NA}

# Advice about text that UTF-8 cannot encode.
REPLACED = '; replace it, with text.encode("utf-8", "replace").decode()'
USUAL: Any = pd.StringDtype("pyarrow", na_value=np.nan)
NULLABLE: Any = pd.StringDtype()


def encode_text(
    values: PandasArray, context: str
) -> tuple[pa.Array | pa.ChunkedArray, Descriptor | None]:
    """Return a string array of pandas as Arrow, without a copy of Arrow memory."""
    dtype = values.dtype
    if dtype.storage == "pyarrow":
        array = values.__arrow_array__()
    else:
        objects = values.to_numpy(dtype=object, na_value=None)
        array = text_array(objects, context)
    if dtype.storage == USUAL.storage and dtype.na_value is USUAL.na_value:
        return array, None
    marker = "NA" if dtype.na_value is pd.NA else "nan"
    return array, {"dtype": "string", "storage": dtype.storage, "na": marker}


def decode_text(column: pa.ChunkedArray) -> PandasArray:
    """Return text as the `str` dtype, over Arrow's own memory."""
    return _string_array(column, USUAL)


def decode_nullable_text(column: pa.ChunkedArray) -> PandasArray:
    """Return text as the `string` dtype, whose missing value is pd.NA."""
    return _string_array(column, NULLABLE)


def decode_string(column: pa.ChunkedArray, descriptor: Descriptor) -> PandasArray:
    """Return text as the string dtype of a descriptor."""
    expect_keys(descriptor, ["dtype", "storage", "na"])
    return _string_array(column, string_dtype(descriptor["storage"], descriptor["na"]))


def string_dtype(storage: Json, na: Json) -> Any:
    """Return the string dtype with this storage and missing value."""
    marker = MARKERS[expect_text(na, MARKERS)]
    return pd.StringDtype(STORAGES[expect_text(storage, STORAGES)], na_value=marker)


def text_array(objects: np.ndarray, context: str) -> pa.Array:
    """Return Python strings as large_string, with None as null."""
    try:
        return pa.array(objects, type=pa.large_string(), from_pandas=False)
    except UnicodeEncodeError:
        for row, value in enumerate(objects):
            check_text(value, f"{context}, row {row}")
        raise


def check_text(value: object, context: str) -> None:
    """SchemaError for a str that cannot be encoded as UTF-8."""
    if not isinstance(value, str):
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(
            f"{context}: {value!r:.60} has a lone surrogate, which UTF-8 cannot encode{REPLACED}"
        ) from None


def _string_array(column: pa.ChunkedArray, dtype: Any) -> PandasArray:
    if not is_text(column.type):
        raise FormatError(f"expected strings, found {column.type}")
    return dtype.__from_arrow__(column.cast(pa.large_string()))
