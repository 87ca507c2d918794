"""Values of the user as an array of a dtype: the very same values, or SchemaError.

Knows nothing of files.

Theory of operation. An array is converted, and compared with what it was. Numpy chooses no dtype
for Python's objects, because that may round numbers and cut text before anything is compared: they
are converted as objects. Numbers become numbers, times become times, text becomes text, and bytes
are taken for text, and text for bytes, if they are ASCII. Records become records by the names of
their fields.
"""

import numbers
from array import array as packed
from datetime import date, timedelta
from typing import Any

import numpy as np

from blztable.arrays.files.dtypes import is_text
from blztable.errors import SchemaError

# What a value is, by the kind of its dtype: a number never becomes a text or a time.
_NUMBER, _TEXT, _MOMENT, _DURATION, _VOID = range(5)
_FAMILIES = {
    **dict.fromkeys("biufc", _NUMBER),
    **dict.fromkeys("SU", _TEXT),
    "M": _MOMENT,
    "m": _DURATION,
    "V": _VOID,
}
_NO_UNIT = "generic"


def exactly(values: object, dtype: np.dtype) -> np.ndarray:
    """Return values as an array of the dtype; SchemaError if one of them would change."""
    try:
        # Whatever overflows is compared.
        with np.errstate(all="ignore"):
            return _exactly(values, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the values do not fit into dtype {dtype}: {error}") from None


def _exactly(values: Any, dtype: np.dtype) -> np.ndarray:
    if np.ma.is_masked(values):
        raise ValueError("some are masked")
    if isinstance(values, list | tuple) and dtype.names:
        return _of_records(values, dtype)
    if _holds_arrays(values):
        return np.stack([_exactly(each, dtype) for each in values])
    if hasattr(values, "__array__") or isinstance(values, bytearray | memoryview | packed):
        return _of_array(np.asarray(values), dtype)
    return _of_array(np.asarray(values, object), dtype)


def _holds_arrays(values: object) -> bool:
    if not isinstance(values, list | tuple):
        return False
    kinds = set(map(type, values))
    if any(hasattr(kind, "__array__") and not issubclass(kind, np.generic) for kind in kinds):
        return True
    return any(issubclass(kind, list | tuple) for kind in kinds) and any(map(_holds_arrays, values))


def _of_array(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    kind = array.dtype.kind
    if not is_text(array):
        raise ValueError("a number in a text is no character")
    if array.dtype == dtype:
        return array.astype(dtype, copy=False)
    if not array.size:
        return np.empty(array.shape, dtype)
    if dtype.names:
        return _of_fields(array, dtype)
    if kind not in _FAMILIES:
        return _of_objects(array.astype(object), dtype)
    if array.dtype.names or _FAMILIES[kind] != _FAMILIES[dtype.kind]:
        raise TypeError(f"they have dtype {array.dtype}")
    if _FAMILIES[kind] == _NUMBER:
        return _of_numbers(array, dtype)
    if kind in "mM" and np.isnat(array).all():
        return np.full(array.shape, "NaT", dtype)
    if kind == "V" or (kind in "mM" and not _have_like_units(array.dtype, dtype)):
        raise TypeError(f"they have dtype {array.dtype}")
    result = array.astype(dtype)
    is_missing = np.isnat(array) & np.isnat(result) if kind in "mM" else False
    return _compared(array, result, (result.astype(array.dtype) == array) | is_missing)


def _have_like_units(source: np.dtype, dtype: np.dtype) -> bool:
    """False if numpy gave times another meaning: months as days, or numbers without a unit."""
    units = {np.datetime_data(source)[0], np.datetime_data(dtype)[0]}
    has_units = _NO_UNIT not in units or len(units) == 1
    return has_units and np.can_cast(source, dtype, "same_kind")


def _of_numbers(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    kinds = array.dtype.kind, dtype.kind
    if array.dtype.kind == "c" and dtype.kind != "c":
        # NaN is not 0 either.
        _compared(array, array.real, array.imag == 0)
        return _of_numbers(array.real, dtype)
    if dtype.kind == "c":
        # Each part: a NaN in one must not hide what the other becomes.
        part = np.dtype(f"f{dtype.itemsize // 2}")
        result = np.empty(array.shape, dtype)
        result.real, result.imag = _of_numbers(array.real, part), _of_numbers(array.imag, part)
        return result
    if dtype.kind == "b":
        return _compared(array, array != 0, (array == 0) | (array == 1))
    result = array.astype(dtype)
    if kinds[0] == "b" or (kinds[0] == kinds[1] and np.can_cast(array.dtype, dtype, "safe")):
        return result
    is_kept = result.astype(array.dtype) == array
    match kinds:
        case ("f", "f"):
            is_kept |= np.isnan(array) & np.isnan(result)
        case ("f", _):
            is_kept &= _is_within(array, dtype)
        case (_, "f"):
            is_kept &= _is_within(result, array.dtype)
        case _:
            # A number that wraps around comes back as it was.
            is_kept &= (array < 0) == (result < 0)
    return _compared(array, result, is_kept)


def _is_within(floats: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Tell which floats integers of a dtype may be; a cast of others gives any number."""
    bounds = np.iinfo(dtype)
    wide = floats.astype(np.result_type(floats, "f8"), copy=False)
    return (wide >= float(bounds.min)) & (wide < float(bounds.max + 1))


def _of_fields(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return records: each field from that of the same name."""
    if array.dtype == object:
        return _of_records(array.tolist(), dtype)
    assert dtype.names is not None
    if set(array.dtype.names or ()) != set(dtype.names):
        raise TypeError(f"they have dtype {array.dtype}")
    result = np.zeros(array.shape, dtype)
    for name in dtype.names:
        _fill(result[name], _of_array(array[name], result[name].dtype), name)
    return result


def _of_records(values: Any, dtype: np.dtype) -> np.ndarray:
    """Return records: a tuple is one, a list holds several."""
    if isinstance(values, tuple):
        return _of_records([values], dtype).reshape(())
    if not isinstance(values, list):
        raise TypeError(f"expected a tuple for each record, found {type(values).__name__}")
    if not all(isinstance(each, tuple) for each in values):
        return np.stack([_exactly(each, dtype) for each in values])
    assert dtype.names is not None
    result = np.zeros(len(values), dtype)
    columns = list(zip(*values, strict=True)) if values else [()] * len(dtype.names)
    for name, column in zip(dtype.names, columns, strict=True):
        _fill(result[name], _exactly(list(column), result[name].dtype), name)
    return result


def _fill(field: np.ndarray, values: np.ndarray, name: str) -> None:
    # Numpy would repeat the values of a smaller shape.
    if field.shape != values.shape:
        raise ValueError(f"field {name!r} has the shape {field.shape}, its values {values.shape}")
    field[...] = values


def _of_objects(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array of objects of Python, or of scalars of numpy."""
    if dtype.kind in "mM":
        return _of_times(array, dtype)
    given = array.flatten()
    if any(issubclass(kind, np.generic) for kind in set(map(type, given))):
        given[:] = [_pythonic(each) for each in given]
    kinds: tuple[type, ...] = (numbers.Number,)
    if dtype.kind in "SUV":
        kinds = (bytes,) if dtype.kind == "V" else (bytes, str)
    for kind in set(map(type, given)):
        if not issubclass(kind, kinds) or issubclass(kind, np.timedelta64):
            raise TypeError(f"one of them is {kind.__name__}")
    if dtype.kind == "S":
        given[:] = [each.encode("ascii") if isinstance(each, str) else each for each in given]
    elif dtype.kind == "U":
        given[:] = [each.decode("ascii") if isinstance(each, bytes) else each for each in given]
    result = given.astype(dtype)
    kept = result.astype(object)
    is_kept = kept == given
    for index in np.flatnonzero(~is_kept):
        is_kept[index] = _are_nan(given[index], kept[index])
    return _compared(given, result, is_kept).reshape(array.shape)


def _pythonic(value: object) -> object:
    """Return a scalar of numpy as Python's, which is compared without rounding."""
    # For numpy a duration is an integer, and some times become numbers.
    is_time = isinstance(value, np.datetime64 | np.timedelta64)
    return value.item() if isinstance(value, np.generic) and not is_time else value


def _are_nan(given: Any, kept: Any) -> bool:
    """True if two numbers that are not equal are the same NaN."""
    if isinstance(given, complex) and isinstance(kept, complex):
        parts = (given.real, kept.real), (given.imag, kept.imag)
        return all(part == other or _are_nan(part, other) for part, other in parts)
    return all(isinstance(each, float | np.floating) and each != each for each in (given, kept))


def _of_times(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return times, each converted from the unit that it has."""
    times = [_as_time(each, dtype.kind) for each in array.flat]
    result = np.empty(len(times), dtype)
    for unit in {time.dtype for time in times}:
        positions = [position for position, time in enumerate(times) if time.dtype == unit]
        result[positions] = _of_array(
            np.array([times[position] for position in positions], unit), dtype
        )
    return result.reshape(array.shape)


def _as_time(value: Any, kind: str) -> np.generic:
    is_moment = kind == "M"
    numpy_type = np.datetime64 if is_moment else np.timedelta64
    # Those of pandas have nanoseconds.
    own = getattr(value, "to_datetime64" if is_moment else "to_timedelta64", None)
    if getattr(value, "tzinfo", None) is not None:
        raise TypeError(f"{value} has a time zone")
    if own is not None:
        value = own()
    elif isinstance(value, date if is_moment else timedelta):
        value = numpy_type(value)
    if not isinstance(value, numpy_type):
        raise TypeError(f"one of them is {type(value).__name__}")
    return value


def _compared(array: np.ndarray, result: np.ndarray, is_kept: np.ndarray | bool) -> np.ndarray:
    """Return the result; ValueError that names the first value that would change."""
    if not np.all(is_kept):
        position = int(np.argmin(is_kept))
        given, became = array.reshape(-1)[position], result.reshape(-1)[position]
        raise ValueError(f"{given!s:.80} would become {became!s:.80}")
    return result
