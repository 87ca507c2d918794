"""Dtypes: a pandas column as an Arrow column with a descriptor, and back.

Knows all dtypes, nothing of whole DataFrames. The pandas dtype chooses how to encode. The
descriptor chooses how to decode; without one, the Arrow type does, as in pandas itself. Families of
dtypes have their own files. This file has the dtypes that contain others: categories, Arrow's own,
and the index.
"""

import base64
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.extensions import plain_values
from blztable.arrow.types import REFUSALS, is_foreign, is_text, is_view, nulls, without_view
from blztable.convert.arrays import PandasArray, from_values, missing_of, values_of, whole
from blztable.convert.frames import arrow_objects, compound, numbers, objects, text, times
from blztable.convert.frames.descriptor import (
    Descriptor,
    expect_bool,
    expect_int64,
    expect_keys,
    expect_list,
    expect_text,
)
from blztable.convert.frames.labels import decode_label, encode_label
from blztable.errors import FormatError, SchemaError

BACKENDS = ("numpy_nullable", "pyarrow")
# Dtypes of any backend: what is stored means little without the descriptor, as the ordinals of
# periods without their frequency.
OPAQUE = ("period", "interval", "complex")
# Bytes of text in a descriptor, whose other facts need room too.
HELD_MAX = 3 << 14

# The keys of the facts of an index.
INDEX_KEYS = ("range", "values", "name", "freq")

PandasValues = PandasArray
Encoded = tuple[pa.Array | pa.ChunkedArray, Descriptor | None]


def encode(
    values: PandasValues, context: str, nan_as_null: bool = False, choice: str = "infer"
) -> Encoded:
    """Return a pandas array as Arrow with the descriptor that decodes it.

    `nan_as_null` says whether NaN among numpy's floats is a null, and `choice` what becomes of
    Python objects.
    """
    if type(values) is pd.arrays.NumpyExtensionArray:
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        if dtype in numbers.PLAIN:
            return numbers.encode_plain(values, nan_as_null), None
        if dtype == np.dtype(object):
            return objects.encode_objects(values, context, choice)
        if dtype in numbers.COMPLEX:
            return numbers.encode_complex(np.asarray(values), nan_as_null)
        if dtype in times.DATETIMES:
            return times.encode_datetimes(np.asarray(values)), None
        if dtype in times.TIMEDELTAS:
            return times.encode_timedeltas(np.asarray(values)), None
    if isinstance(values, pd.Categorical):
        return encode_category(values, context, choice)
    if isinstance(values, pd.arrays.IntervalArray):
        return compound.encode_intervals(values, lambda ends: encode(ends, context))
    if isinstance(values, pd.arrays.SparseArray):
        dense = partial(encode, context=context, nan_as_null=nan_as_null, choice=choice)
        return compound.encode_sparse(values, context, dense)
    for family, encode_family in FAMILIES:
        if isinstance(values, family):
            return encode_family(values, context)
    raise refusal(dtype, context)


def refusal(dtype: object, context: str) -> SchemaError:
    """Return the error for a dtype that cannot be stored, with the call that helps."""
    kind = dtype.kind if isinstance(dtype, np.dtype) else ""
    wide = {"c": "complex128", "f": "float64"}.get(kind)
    remedy = f'; use astype("{wide}")' if wide else "; convert the column with astype(str)"
    return SchemaError(f"{context}: dtype {dtype} cannot be stored{remedy}")


def decode(
    column: pa.ChunkedArray, descriptor: Descriptor | None, backend: str | None
) -> PandasValues:
    """Return the pandas array of an Arrow column, over the column's own memory if possible."""
    word = descriptor.get("dtype") if isinstance(descriptor, dict) else None
    if backend is not None and word not in OPAQUE:
        return _decode_as(backend, column, descriptor)
    if descriptor is not None:
        expect_keys(descriptor, ["dtype"], descriptor)
        return DESCRIBED[expect_text(word, DESCRIBED)](column, descriptor)
    for holds, decode_family in DEFAULTS:
        if holds(column.type):
            return decode_family(column)
    return arrow_objects.foreign_objects(column)


def encode_index(
    index: pd.Index, context: str, nan_as_null: bool = False, choice: str = "infer"
) -> tuple[pa.Array | pa.ChunkedArray, Descriptor]:
    """Return the values of an index and its facts: descriptor, name and frequency."""
    keys: Descriptor = {}
    if isinstance(index, pd.RangeIndex):
        array, descriptor = numbers.encode_plain(index.to_numpy()), None
        keys["range"] = [index.start, index.step]
    else:
        array, descriptor = encode(index.array, context, nan_as_null, choice)
    if descriptor is not None:
        keys["values"] = descriptor
    if index.name is not None:
        keys["name"] = encode_label(index.name)
    freq = times.encode_freq(index)
    if freq is not None:
        keys["freq"] = freq
    return array, keys


def decode_index(column: pa.ChunkedArray, keys: Descriptor, backend: str | None) -> pd.Index:
    """Return an index from its values and its facts."""
    expect_keys(keys, (), INDEX_KEYS)
    name = decode_label(keys.get("name"))
    values = decode(column, keys.get("values"), backend)
    if "range" in keys:
        start, step = map(expect_int64, expect_list(keys["range"], 2))
        if step != 0:
            counted = pd.RangeIndex(start, start + step * len(values), step)
            if values.dtype == np.int64 and np.array_equal(counted, values):
                return counted.rename(name)
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    index = pd.Index(values, dtype=values.dtype, copy=False)
    if "freq" in keys and backend is None:
        index = times.decode_freq(index, keys["freq"])
    return index.rename(name)


def encode_category(values: pd.Categorical, context: str, choice: str = "infer") -> Encoded:
    """Return a categorical with the codes of pandas and all categories in their order."""
    categories, keys = encode_index(values.categories, f"{context}, categories", choice=choice)
    codes = np.ascontiguousarray(values.codes)
    indices = from_values(codes, codes == -1, numbers.PLAIN[codes.dtype])
    if isinstance(categories, pa.ChunkedArray):
        categories = whole(categories)
    # A dictionary of an extension type has no type in a file of Arrow.
    categories, _ = plain_values(categories, "categories")
    if isinstance(values.categories, pd.IntervalIndex):
        categories, keys["values"] = compound.interval_texts(categories, keys["values"])
    elif categories.type.num_fields:
        has_json = values.categories.dtype == object and choice != objects.NO_OPTION
        remedy = 'pass storage=blz.Storage(objects="json"), or ' if has_json else ""
        raise SchemaError(
            f"{context}: a dictionary of Arrow cannot hold the categories, which are "
            f"{categories.type!s:.200}; {remedy}convert the column with astype(str)"
        )
    array = pa.DictionaryArray.from_arrays(indices, categories, ordered=values.ordered, safe=False)
    descriptor: Descriptor = {"dtype": "category"}
    if keys:
        descriptor["categories"] = keys
    if len(values) == 0 and len(categories):
        descriptor |= _held(categories)
    return array, descriptor if len(descriptor) > 1 else None


def decode_category(column: pa.ChunkedArray, descriptor: Descriptor | None = None) -> PandasValues:
    """Return a categorical; unite the dictionaries of the chunks."""
    keys: Descriptor = {}
    held: pa.Array | None = None
    if descriptor is not None:
        expect_keys(descriptor, ["dtype"], ["categories", "held"])
        keys = expect_keys(descriptor.get("categories", {}), (), INDEX_KEYS)
        held = _read_held(descriptor.get("held"), column.type)
    if not pa.types.is_dictionary(column.type):
        raise FormatError(f"expected categories, found {column.type}")
    chunks = column.chunks or [nulls(0, column.type)]
    if len(column) == 0 and held is not None:
        codes = pa.nulls(0, column.type.index_type)
        chunks = [pa.DictionaryArray.from_arrays(codes, held, ordered=column.type.ordered)]
    values, codes = _united(chunks, nan_is_missing="values" not in keys)
    categories = decode_index(pa.chunked_array([values]), keys, None)
    if not categories.is_unique or categories.hasnans:
        raise FormatError("the dictionary has values that are equal in pandas")
    dtype = pd.CategoricalDtype(categories, expect_bool(column.type.ordered))
    codes = codes.astype(_code_dtype(len(categories)), copy=False)
    missing = [missing_of(chunk.indices) for chunk in chunks]
    if any(part is not None for part in missing):
        first = 0
        for chunk, part in zip(chunks, missing, strict=True):
            if part is not None:
                codes[first : first + len(chunk)][part] = -1
            first += len(chunk)
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)


def _decode_dictionary(column: pa.ChunkedArray) -> PandasValues:
    """Return a categorical, or the values if they cannot be categories."""
    type_ = column.type.value_type
    if pa.types.is_nested(type_) or isinstance(type_, pa.BaseExtensionType):
        return compound.decode_coded(column, _plainly)
    return decode_category(column)


def _held(categories: pa.Array) -> Descriptor:
    """Return the categories of a column without rows, whose dictionary is not stored.

    Empty for more categories than a descriptor can hold.
    """
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([categories], ["categories"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    text = base64.b64encode(sink.getvalue()).decode("ascii")
    return {"held": text} if len(text) <= HELD_MAX else {}


def _read_held(text: object, type_: pa.DataType) -> pa.Array | None:
    if text is None:
        return None
    try:
        data = base64.b64decode(expect_text(text), validate=True)
        stream = pa.ipc.open_stream(data)
        if stream.schema.types == [getattr(type_, "value_type", None)]:
            batch = stream.read_next_batch()
            batch.validate(full=True)
            return batch.columns[0]
    except (*REFUSALS, OSError, StopIteration, ValueError) as error:
        if is_foreign(error):
            raise
        raise FormatError(f"the categories cannot be read: {error}") from None
    raise FormatError(f"the categories have another type than {type_}")


def encode_arrow(values: pd.arrays.ArrowExtensionArray, context: str) -> Encoded:
    """Return the Arrow column of an ArrowDtype."""
    return values.__arrow_array__(), {"dtype": "arrow"}


def decode_arrow(column: pa.ChunkedArray, descriptor: Descriptor) -> PandasValues:
    """Return a column of an ArrowDtype."""
    expect_keys(descriptor, ["dtype"])
    return pd.arrays.ArrowExtensionArray(column)


def _united(chunks: list[pa.DictionaryArray], nan_is_missing: bool) -> tuple[pa.Array, np.ndarray]:
    """Return one dictionary for all chunks, without nulls and duplicates, and the codes into it."""
    type_ = chunks[0].type.index_type
    dictionaries = [chunk.dictionary for chunk in chunks]
    if is_view(dictionaries[0].type):
        dictionaries = [values.cast(without_view(values.type)) for values in dictionaries]
    first = dictionaries[0]
    if all(map(_is_one_value, dictionaries)):
        kept = 0 if pa.types.is_null(first.type) else 1
        values = max(dictionaries, key=len).slice(0, kept)
        return values, np.full(sum(map(len, chunks)), len(values) - 1, np.int32)
    try:
        same = all(values is first or values.equals(first) for values in dictionaries[1:])
        every = first if same else pa.concat_arrays(dictionaries)
        distinct = pc.unique(every)
        distinct = distinct.filter(_real(distinct, nan_is_missing))
        if same and len(distinct) == len(first):
            indices = whole(pa.chunked_array([chunk.indices for chunk in chunks]))
            return first, values_of(indices, numbers.DTYPES[type_])
        codes = [
            _remapped(chunk, pc.index_in(values, value_set=distinct))
            for chunk, values in zip(chunks, dictionaries, strict=True)
        ]
    except pa.ArrowNotImplementedError:
        raise SchemaError(
            f"pandas has no categories of {first.type}; read the column with to_arrow"
        ) from None
    return distinct, np.concatenate(codes)


def _is_one_value(values: pa.Array) -> bool:
    """True if values take no bytes, so that a file can claim any number of them."""
    type_ = values.type
    is_empty = pa.types.is_fixed_size_binary(type_) and type_.byte_width == 0
    return pa.types.is_null(type_) or (is_empty and values.null_count == 0)


def _real(values: pa.Array, nan_is_missing: bool) -> pa.Array:
    """Return a mask of the values that can be a category: neither null nor a missing NaN."""
    real = values.is_valid()
    if nan_is_missing and pa.types.is_floating(values.type):
        real = pc.and_kleene(real, pc.invert(pc.fill_null(pc.is_nan(values), True)))
    return real


def _remapped(chunk: pa.DictionaryArray, new_codes: pa.Array) -> np.ndarray:
    new = np.append(new_codes.fill_null(-1).to_numpy(zero_copy_only=False), -1).astype(np.int32)
    codes = values_of(chunk.indices, numbers.DTYPES[chunk.indices.type])
    missing = missing_of(chunk.indices)
    if missing is not None:
        codes = np.where(missing, len(new) - 1, codes).astype(np.int64)
    return new[codes]


def _code_dtype(count: int) -> np.dtype:
    """Return the width of codes in pandas, which copies codes of any other width."""
    sizes = (np.int8, np.int16, np.int32)
    return np.dtype(next((size for size in sizes if count <= np.iinfo(size).max), np.int64))


def _decode_as(
    backend: str, column: pa.ChunkedArray, descriptor: Descriptor | None
) -> PandasValues:
    if backend == "pyarrow":
        return pd.arrays.ArrowExtensionArray(column)
    is_kind = descriptor is not None and "kind" in descriptor
    if is_text(column.type) and not is_kind:
        return text.decode_nullable_text(column)
    if column.type in numbers.DTYPES and column.type != pa.float16():
        return numbers.decode_masked(column, {"dtype": "masked"})
    return decode(column, descriptor, None)


def _plainly(column: pa.ChunkedArray, descriptor: Descriptor | None) -> PandasValues:
    return decode(column, descriptor, None)


def _decode_extension(column: pa.ChunkedArray) -> PandasValues:
    if column.type.extension_name == "pandas.period":
        storage = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.int64())
        return times.decode_periods(storage, {"dtype": "period", "freq": column.type.freq})
    return arrow_objects.foreign_objects(column)


def _run_ends(column: pa.ChunkedArray) -> PandasValues:
    try:
        parts = [pc.run_end_decode(chunk) for chunk in column.chunks]
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"pandas cannot hold {column.type}: {error}; read the column with to_arrow"
        ) from None
    return decode(pa.chunked_array(parts, column.type.value_type), None, None)


# Dtypes by the class of their array; numpy arrays are distinguished by their dtype in `encode`.
FAMILIES: tuple[tuple[type, Callable[..., Encoded]], ...] = (
    (pd.arrays.IntegerArray, lambda values, context: numbers.encode_masked(values)),
    (pd.arrays.FloatingArray, lambda values, context: numbers.encode_masked(values)),
    (pd.arrays.BooleanArray, lambda values, context: numbers.encode_masked(values)),
    (pd.arrays.ArrowStringArray, text.encode_text),
    (pd.arrays.StringArray, text.encode_text),
    (pd.arrays.ArrowExtensionArray, encode_arrow),
    (pd.arrays.DatetimeArray, times.encode_zoned),
    (pd.arrays.PeriodArray, lambda values, context: times.encode_periods(values)),
)

DESCRIBED: dict[str, Callable[[pa.ChunkedArray, Descriptor], PandasValues]] = {
    "masked": numbers.decode_masked,
    "string": text.decode_string,
    "arrow": decode_arrow,
    "zoned": times.decode_zoned,
    "period": times.decode_periods,
    "category": decode_category,
    "object": objects.decode_objects,
    "complex": numbers.decode_complex,
    "interval": lambda column, keys: compound.decode_intervals(column, keys, _plainly),
    "sparse": lambda column, keys: compound.decode_sparse(column, keys, _plainly),
}

DEFAULTS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.ChunkedArray], PandasValues]], ...
] = (
    (pa.types.is_boolean, numbers.decode_booleans),
    (pa.types.is_null, arrow_objects.decode_nulls),
    (pa.types.is_integer, numbers.decode_integers),
    (pa.types.is_floating, numbers.decode_floats),
    (pa.types.is_timestamp, times.decode_timestamps),
    (pa.types.is_duration, times.decode_durations),
    (is_text, text.decode_text),
    (pa.types.is_dictionary, _decode_dictionary),
    (pa.types.is_run_end_encoded, _run_ends),
    (lambda type_: isinstance(type_, pa.BaseExtensionType), _decode_extension),
)


def is_reinterpreted(descriptor: Descriptor | None) -> bool:
    """True if the values of pandas are others than those of the Arrow type."""
    return (descriptor or {}).get("dtype") in ("period", "interval", "complex")
