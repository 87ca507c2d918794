"""Dictionaries of Arrow: several arrays joined as one, and where codes have no room for more.

Dictionaries are united here and not by Arrow, because Arrow follows the codes of null rows out of
bounds, treats 0.0 and -0.0 as one value, and garbles half floats. Knows no files.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import mask_of, numbers_in, stored_type
from blztable.columns.parts.physical import NUMPY_TYPES
from blztable.errors import SchemaError


def join(chunks: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray | None:
    """Join arrays and their dictionaries; None if the index type is too small for all values."""
    type_ = chunks[0].type
    distinct, owners = _distinct([chunk.dictionary for chunk in chunks])
    values, moved = _united(distinct)
    if len(values) > room(type_):
        return None
    masks = [mask_of(chunk) for chunk in chunks]
    codes = []
    for chunk, mask, owner in zip(chunks, masks, owners, strict=True):
        before = codes_of(chunk, mask)
        check_codes(before, mask, len(distinct[owner]))
        # All rows of an array with an empty dictionary are null.
        codes.append(moved[owner][before] if len(distinct[owner]) else before.astype(np.int64))
    nulls = None
    if any(mask is not None for mask in masks):
        nulls = np.concatenate(
            [
                np.zeros(len(chunk), np.bool_) if mask is None else ~mask
                for chunk, mask in zip(chunks, masks, strict=True)
            ]
        )
    whole = np.concatenate(codes).astype(NUMPY_TYPES[type_.index_type.id])
    indices = pa.array(whole, type_.index_type, mask=nulls)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=type_.ordered, safe=False)


def changes(column: pa.ChunkedArray) -> list[int]:
    """Return the rows where a new array must begin because the index type has no more codes."""
    most = room(column.type)
    rows, row = [], 0
    distinct: list[pa.Array] = []
    for chunk in column.chunks:
        if not any(is_same(other, chunk.dictionary) for other in distinct):
            distinct.append(chunk.dictionary)
            if sum(map(len, distinct)) > most:
                distinct = [_united(distinct)[0]]
                if len(distinct[0]) > most:
                    rows.append(row)
                    distinct = [chunk.dictionary]
        row += len(chunk)
    return rows


def _distinct(dictionaries: Sequence[pa.Array]) -> tuple[list[pa.Array], list[int]]:
    """Return the distinct dictionaries, and for each input dictionary its index among them."""
    distinct: list[pa.Array] = []
    owners = []
    for dictionary in dictionaries:
        at = next((at for at, other in enumerate(distinct) if is_same(other, dictionary)), None)
        if at is None:
            at = len(distinct)
            distinct.append(dictionary)
        owners.append(at)
    return distinct, owners


def _united(dictionaries: Sequence[pa.Array]) -> tuple[pa.Array, list[np.ndarray]]:
    """Return the distinct values of all dictionaries, and for each dictionary its new codes."""
    type_ = dictionaries[0].type
    # An imported empty array may have an offset beyond its bytes, and Arrow refuses to concatenate
    # it. Arrow also refuses views as a dictionary.
    valued = [dictionary for dictionary in dictionaries if len(dictionary)]
    if pa.types.is_null(type_):
        # Nulls are one value, and any number of them takes no bytes in a file.
        places = [np.broadcast_to(np.intp(0), len(dictionary)) for dictionary in dictionaries]
        return pa.nulls(min(len(valued), 1)), places
    if len(dictionaries) == len(valued) == 1:
        return dictionaries[0], [np.arange(len(dictionaries[0]))]
    try:
        values = pa.concat_arrays(valued) if valued else pa.nulls(0, type_)
    except pa.ArrowInvalid:
        raise SchemaError(
            f"the values of {len(valued)} dictionaries do not fit into one array of {type_}"
        ) from None
    stored = _as_type(values, stored_type(type_))
    codes = numbered(stored)
    _, first = np.unique(codes, return_index=True)
    stops = np.cumsum([len(dictionary) for dictionary in dictionaries])
    return _as_type(stored.take(pa.array(first)), type_), np.split(codes, stops[:-1])


def numbered(values: pa.Array) -> np.ndarray:
    """Return a number for each stored value; values have the same if they have the same bits."""
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    if pa.types.is_dictionary(values.type):
        # A null code is the same value as the code of a null.
        type_ = stored_type(values.type.value_type)
        more = [_as_type(values.dictionary, type_), pa.nulls(1, type_)]
        marks = numbered(pa.concat_arrays(more))
        mask = mask_of(values)
        codes = codes_of(values, mask).astype(np.int64)
        return marks[codes if mask is None else np.where(mask, codes, len(marks) - 1)]
    encoded = pc.dictionary_encode(_distinguishable(values), null_encoding="encode")
    numbers: np.ndarray = encoded.indices.to_numpy()
    return numbers


def _distinguishable(values: pa.Array) -> pa.Array:
    """Return the values as a type for which Arrow distinguishes all values of different bits."""
    if pa.types.is_floating(values.type):
        return pa.array(_float_bits(values), mask=np.asarray(values.is_null()))
    if pa.types.is_decimal32(values.type) or pa.types.is_decimal64(values.type):
        return values.cast(pa.decimal128(values.type.precision, values.type.scale))
    return values


def room(type_: pa.DataType) -> int:
    """Return the largest number of values that a dictionary of this type can have."""
    return min(int(np.iinfo(NUMPY_TYPES[type_.index_type.id]).max) + 1, np.iinfo(np.int64).max)


def check_codes(codes: np.ndarray, mask: np.ndarray | None, size: int) -> None:
    """Raise SchemaError if the code of a row that is not null is out of bounds."""
    used = codes if mask is None else codes[mask]
    if len(used) and (used.min() < 0 or used.max() >= size):
        raise SchemaError(
            f"dictionary indices from {used.min()} to {used.max()}; expected 0 to {size - 1}"
        )


def _as_type(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast values to a type, unless they have it."""
    return values if values.type.id == type_.id else values.cast(type_)


def codes_of(array: pa.DictionaryArray, mask: np.ndarray | None) -> np.ndarray:
    """Return the codes; the code of a null row is 0."""
    dtype = NUMPY_TYPES[array.type.index_type.id]
    codes = numbers_in(array.buffers()[1], dtype, array.offset, len(array))
    return codes if mask is None else np.where(mask, codes, codes.dtype.type(0))


def is_same(left: pa.Array, right: pa.Array) -> bool:
    """True if two dictionaries are equal to the bit, NaN and the sign of zero included."""
    if left is right:
        return True
    if not pa.types.is_floating(left.type):
        return bool(left.equals(right))
    if len(left) != len(right):
        return False
    nulls = left.is_null().equals(right.is_null())
    return nulls and _float_bits(left).tobytes() == _float_bits(right).tobytes()


def _float_bits(array: pa.Array) -> np.ndarray:
    """Return the bits of the values as integers; a null is 0."""
    dtype = f"<u{array.type.byte_width}"
    bits = numbers_in(array.buffers()[1], dtype, array.offset, len(array))
    mask = mask_of(array)
    return bits if mask is None else np.where(mask, bits, bits.dtype.type(0))
