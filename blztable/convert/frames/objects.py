"""Objects: columns of Python values of one kind that has an Arrow type, or of mixed ones as JSON.

Knows nothing of other dtypes. One pass collects the types of the values, and `convert/objects`
finds their kind. Missing values are null, and the descriptor names their marker. A column with two
kinds, or with a kind that Arrow lacks, raises an error with the row, the value and what helps.
"""

import decimal
import json
import reprlib
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.types import is_text
from blztable.convert import objects
from blztable.convert.arrays import missing_of, whole
from blztable.convert.frames.arrow_objects import foreign_objects, too_many
from blztable.convert.frames.descriptor import (
    DEPTH_MAX,
    SIZE_MAX,
    Descriptor,
    check_depth,
    expect_keys,
    expect_text,
    to_bytes,
)
from blztable.convert.frames.text import REPLACED
from blztable.convert.objects.containers import Nulls, as_objects
from blztable.convert.objects.find import Anything, find, parse
from blztable.convert.objects.kinds import (
    SIMPLE,
    UNFIT,
    Kind,
    Simple,
    UnsuitableError,
    first_of,
)
from blztable.convert.objects.moments import Moments
from blztable.convert.objects.tagged import REMEDY, from_text, to_text
from blztable.errors import FormatError, LimitError, SchemaError

# As "infer", in calls without the option, whose errors cannot advise it.
NO_OPTION = "infer, without the option"
# Markers of a missing value; a column with several kinds of them comes back with None.
MARKERS: dict[str, Any] = {"none": None, "nan": np.nan, "NA": pd.NA, "NaT": pd.NaT}
MARKERS["Decimal"] = decimal.Decimal("NaN")
MARKER_NAMES = {type(None): "none", float: "nan", np.float64: "nan"}
MARKER_NAMES |= {type(pd.NA): "NA", type(pd.NaT): "NaT", decimal.Decimal: "Decimal"}
# Some values of these pandas takes for missing, although they are none of the markers.
_LIKE_MISSING = (decimal.Decimal, complex, np.generic)
# Kinds that the Arrow type says; the others are facts of the descriptor.
_UNSTATED = [SIMPLE[name] for name in ("text", "bytes", "bool", "date", "time", "decimal")]
# Of these, the kinds whose Arrow type has no other form in pandas.
_IMPLIED = _UNSTATED[1:2] + _UNSTATED[3:]
JSON = "json"
AS_BYTES = '; make the column bytes with .str.encode("utf-8", "surrogatepass")'
_NO_TEXT = 'it is no text, and only text is taken with objects="error"'


def encode_objects(
    values: np.ndarray, context: str, choice: str = "infer"
) -> tuple[pa.Array, Descriptor | None]:
    """Return an object array and its missing values as Arrow, as "infer", "json" or "error"."""
    missing = _missing_of(values)
    markers = {"none"} if missing is None else {MARKER_NAMES[type(v)] for v in values[missing]}
    present = values
    if missing is not None:
        present = values.copy()
        present[missing] = None
    descriptor: Descriptor = {"dtype": "object"}
    if len(markers) == 1 and markers != {"none"}:
        descriptor["missing"] = markers.pop()
    try:
        kind = find(present)
        if isinstance(kind, Nulls):
            kind = SIMPLE["text"]
        if choice == "json" and not isinstance(kind, Simple | Moments):
            return _as_json(values, present, context, descriptor)
        if kind not in _UNSTATED:
            descriptor["kind"] = kind.as_json
            if not _fits(descriptor):
                raise UnsuitableError(*first_of(present), "its keys and levels are too many")
        array = kind.encode(present)
        if choice == "error" and kind is not SIMPLE["text"]:
            raise UnsuitableError(*first_of(present), _NO_TEXT)
    except UnsuitableError as error:
        if choice == "json":
            return _as_json(values, present, context, descriptor)
        remedy = _remedy(values, error, choice)
        why = error.why.removesuffix(REPLACED)
        raise _refusal(context, error.row, error.value, why, remedy) from None
    needless = kind in _IMPLIED and len(descriptor) == 1
    return array, None if needless else descriptor


def decode_objects(column: pa.ChunkedArray, descriptor: Descriptor) -> np.ndarray:
    """Return the Python values, and the marker for each null."""
    expect_keys(descriptor, ["dtype"], ["missing", "kind"])
    marker = MARKERS[expect_text(descriptor.get("missing", "none"), MARKERS)]
    array = whole(column)
    if descriptor.get("kind") == JSON:
        values = _from_json(array)
    elif "kind" in descriptor:
        values = _of_kind(array, parse(descriptor["kind"]))
    elif not any(kind.holds(column.type) for kind in _UNSTATED):
        raise FormatError(f"expected an object column, found {column.type}")
    elif is_text(array.type) or pa.types.is_boolean(array.type):
        values = array.to_numpy(zero_copy_only=False).astype(object, copy=False)
    else:
        values = foreign_objects(column)
    missing = missing_of(array)
    if missing is not None and marker is not None:
        values = values if values.flags.writeable else values.copy()
        values[missing] = marker
    return values


def is_json(descriptor: Descriptor | None) -> bool:
    """True for a column of mixed objects, which are JSON text."""
    return descriptor is not None and descriptor.get("kind") == JSON


def differ(stated: Descriptor | None, given: Descriptor | None) -> TypeGuard[Descriptor]:
    """True if the values of a column must become those of another kind of objects.

    They need not if the Arrow type says all of both kinds.
    """
    if stated is None or "kind" not in stated or stated["kind"] == (given or {}).get("kind"):
        return False
    if given is not None and special_kind(given):
        return True
    kind = stated["kind"]
    return kind == JSON or not parse(kind).takes_any


def special_kind(descriptor: Descriptor) -> list[str]:
    """Return the kind of a column of objects as a word; nothing if the Arrow type says it."""
    kind = descriptor.get("kind") if descriptor.get("dtype") == "object" else None
    is_plain = kind is None or (isinstance(kind, str) and kind != JSON and parse(kind).takes_any)
    # Dicts are equal in any order of their keys.
    return [] if is_plain else [json.dumps(kind, sort_keys=True)]


def are_nested(descriptor: Descriptor | None) -> bool:
    """True for objects that an Arrow type of lists, structs or maps says all of."""
    if descriptor is None or descriptor.get("kind", JSON) == JSON:
        return False
    kind = parse(descriptor["kind"])
    return kind.takes_any and not isinstance(kind, Simple | Moments)


def are_bare(descriptor: Descriptor | None) -> bool:
    """True for objects with floats of Python and none of numpy, so that no float has a width."""
    if descriptor is None or descriptor.get("kind", JSON) == JSON:
        return False
    words = json.dumps(descriptor["kind"])
    return '"float"' in words and "float64" not in words


def are_sets(descriptor: Descriptor | None) -> bool:
    """True for a column whose objects are sets."""
    kind = (descriptor or {}).get("kind")
    return isinstance(kind, list) and kind[:1] in (["set"], ["frozenset"])


def objects_of(values: Any, missing: np.ndarray) -> np.ndarray:
    """Return values of pandas as objects, with None for missing."""
    if not isinstance(values, list):
        # numpy would make numbers of times.
        values = pd.Series(values).astype(object).to_numpy()
    result = as_objects(values).copy()
    result[missing] = None
    return result


def as_stated(
    values: np.ndarray,
    descriptor: Descriptor,
    context: str,
    evolve: bool | None,
    may_widen: Callable[[], bool],
) -> pa.Array:
    """Return objects, with None for missing, as the array of the kind in a descriptor.

    With `evolve`, dicts may lack keys. `may_widen` says whether a wider column would take the
    objects.
    """
    if descriptor.get("kind") == JSON:
        return _as_json(values, values, context, {})[0]
    kind = parse(descriptor["kind"]) if "kind" in descriptor else find(values)
    try:
        return (objects.merge.lenient(kind) if evolve else kind).encode(values)
    except UnsuitableError as error:
        helps = evolve is False and (may_widen() or _takes(objects.merge.lenient(kind), values))
        remedy = "; pass evolve=True" if helps else "; convert the data first"
        raise _refusal(context, error.row, error.value, error.why, remedy) from None


def _takes(kind: Kind, values: np.ndarray) -> bool:
    try:
        kind.encode(values)
    except UnsuitableError:
        return False
    return True


def merged(stated: Descriptor | None, given: Descriptor | None) -> Descriptor | None:
    """Return the descriptor of a column that is widened for data, if both are objects.

    Otherwise return that of the data. SchemaError if no kind has the objects of both.
    """
    kinds = [each["kind"] for each in (stated, given) if each and each.get("kind", JSON) != JSON]
    if stated is None or len(kinds) < 2:
        return given
    kind = objects.merge.merged(*map(parse, kinds))
    if kind is None:
        raise SchemaError(f"no kind of objects is both {kinds[0]!r:.60} and {kinds[1]!r:.60}")
    return {**stated, "kind": kind.as_json}


def reshaped(
    stated: Descriptor | None, old: pa.DataType, new: pa.DataType, by_place: bool
) -> Descriptor | None:
    """Return the descriptor of objects whose structs have other fields now; None if none is true.

    `by_place` says that fields keep their places, not their names.
    """
    if stated is None or stated["dtype"] != "object" or stated.get("kind", JSON) == JSON:
        return None
    try:
        decode_objects(pa.chunked_array([], old), stated)
    except FormatError:
        return None
    kind = objects.reshape.reshaped(parse(stated["kind"]), old, new, by_place)
    descriptor = {**stated, "kind": kind.as_json}
    return None if isinstance(kind, Anything) or not _fits(descriptor) else descriptor


def same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    """True if objects of one kind, which the type says, have both types."""
    return any(kind.holds(one) and kind.holds(other) for kind in _UNSTATED)


def _missing_of(values: np.ndarray) -> np.ndarray | None:
    """Return a mask that is True for each marker of a missing value; None without any."""
    types = set(map(type, values))
    if types.isdisjoint(MARKER_NAMES):
        return None
    if any(issubclass(type_, _LIKE_MISSING) for type_ in types - {np.float64}):
        missing = np.fromiter(map(_is_marker, values), np.bool_, len(values))
    else:
        missing = pd.isna(values)
    return missing if missing.any() else None


def _is_marker(value: Any) -> bool:
    """True for a missing value that comes back as it was."""
    type_ = type(value)
    if type_ is decimal.Decimal:
        return str(value) == "NaN"
    return type_ in MARKER_NAMES and not (issubclass(type_, float) and value == value)


def _as_json(
    values: np.ndarray, present: np.ndarray, context: str, descriptor: Descriptor
) -> tuple[pa.Array, Descriptor]:
    """Return objects as JSON text; of several markers of a missing value, only None is null."""
    present_values = present if "missing" in descriptor else values
    texts: list[str | None] = []
    for row, value in enumerate(present_values):
        try:
            texts.append(None if value is None else to_text(value, f"row {row}"))
        except SchemaError as error:
            why = str(error).removeprefix(f"row {row}: ").removesuffix(REMEDY)
            remedy = "; remove it, or convert it with astype(str)"
            if why.endswith(REPLACED):
                why, remedy = why.removesuffix(REPLACED), REPLACED
            raise _refusal(context, row, value, why, remedy) from None
    return pa.array(texts, pa.large_string()), {**descriptor, "kind": JSON}


def _from_json(array: pa.Array) -> np.ndarray:
    if not is_text(array.type):
        raise FormatError(f"expected JSON text, found {array.type}")
    return as_objects(
        [
            None if text is None else from_text(text, f"row {row}")
            for row, text in enumerate(array.to_pylist())
        ]
    )


def _of_kind(array: pa.Array, kind: Kind) -> np.ndarray:
    try:
        return as_objects(kind.decode(array))
    except (FormatError, LimitError):
        raise
    except UNFIT as error:
        raise SchemaError(
            f"pandas cannot hold {array.type}: {error}; read the column with to_arrow"
        ) from None
    except MemoryError:
        raise too_many(pa.chunked_array([array])) from None


def _fits(descriptor: Descriptor) -> bool:
    """True if a field can hold the descriptor."""
    try:
        check_depth(descriptor, DEPTH_MAX - 1)
        return len(to_bytes(descriptor)) <= SIZE_MAX
    except FormatError:
        return False


def _remedy(values: np.ndarray, error: UnsuitableError, choice: str) -> str:
    """Return the end of an error about a column of objects: the calls that help."""
    if error.why == _NO_TEXT:
        return '; convert it with astype(str), or pass storage=blz.Storage(objects="infer")'
    if isinstance(error.value, str) and not _is_utf8(error.value):
        # In text of lists and dicts, astype(str) would keep it.
        return AS_BYTES if error.value in values else REPLACED
    try:
        _as_json(values, values, "", {})
    except SchemaError:
        return "; convert it with astype(str)"
    if choice == NO_OPTION:
        return "; convert it with astype(str)"
    return '; pass storage=blz.Storage(objects="json"), or convert it with astype(str)'


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _refusal(context: str, row: int, value: object, why: str, remedy: str) -> SchemaError:
    text = f"{reprlib.repr(value)} of type {type(value).__name__}"
    return SchemaError(f"{context}, row {row}: {text} cannot be stored: {why}{remedy}")
