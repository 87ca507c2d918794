"""What is known of runs of rows, as arrays: their bounds from bytes, of the type compared as.

Runs are judged all at once, so nothing here goes through them one by one. Knows nothing of filters,
nor where the bytes come from; whether they are true of the rows is for `soundness` to say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow_types import value_type
from blztable.columns.codecs.families import as_compared, stored_type
from blztable.columns.codecs.fixed import NUMPY_TYPES
from blztable.columns.codecs.text import TYPE_IDS as ITEM_IDS
from blztable.errors import CorruptError

Bounds = Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Runs:
    """One entry a run; a bound that is not known is null. NaNs are counted, never bounds."""

    rows: np.ndarray
    nulls: np.ndarray
    nans: np.ndarray
    lowest: pa.Array
    highest: pa.Array

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.nulls)

    def take(self, indices: np.ndarray) -> "Runs":
        """These runs, in this order, as often as they are named."""
        at = pa.array(indices)
        return Runs(
            self.rows[indices],
            self.nulls[indices],
            self.nans[indices],
            self.lowest.take(at),
            self.highest.take(at),
        )

    @classmethod
    def joined(cls, parts: Iterable["Runs"]) -> Self:
        """The runs of at least one part, one after the other."""
        all_ = list(parts)
        return cls(
            np.concatenate([part.rows for part in all_]),
            np.concatenate([part.nulls for part in all_]),
            np.concatenate([part.nans for part in all_]),
            pa.concat_arrays([part.lowest for part in all_]),
            pa.concat_arrays([part.highest for part in all_]),
        )


def runs(
    type_: pa.DataType,
    rows: Sequence[int],
    nulls: Sequence[int],
    nans: Sequence[int],
    lowest: Bounds,
    highest: Bounds,
) -> Runs:
    """What is known of runs of so many rows of a column of this type.

    Raises
    ------
    CorruptError
        Bytes that are no bound of this type, or more nulls and NaNs than a run has rows.
    """
    found = Runs(
        np.asarray(rows, np.int64),
        np.asarray(nulls, np.int64),
        np.asarray(nans, np.int64),
        decode(type_, lowest),
        decode(type_, highest),
    )
    too_many = np.flatnonzero(found.nulls + found.nans > found.rows)
    if len(too_many):
        run = too_many[0]
        raise CorruptError(f"{nulls[run]} nulls and {nans[run]} NaNs in {rows[run]} rows")
    return found


def decode(type_: pa.DataType, bounds: Bounds) -> pa.Array:
    """Bounds of values of this type, from bytes, as the type they are compared as."""
    return as_compared(_values(ordered_type(type_), bounds))


def ordered_type(type_: pa.DataType) -> pa.DataType:
    """The type whose order bounds follow, and whose bytes they are."""
    return stored_type(value_type(type_))


def _values(type_: pa.DataType, bounds: Bounds) -> pa.Array:
    if type_.id in ITEM_IDS:
        return _items(type_, bounds)
    if pa.types.is_boolean(type_):
        values = _fixed(type_, 1, bounds).view(pa.uint8())
        if pc.any(pc.greater(values, 1)).as_py():
            raise CorruptError(f"a byte that is neither 0 nor 1, of {type_}")
        return values.cast(type_)
    if type_.id in NUMPY_TYPES or pa.types.is_decimal(type_):
        values = _fixed(type_, type_.bit_width // 8, bounds).view(type_)
        if pa.types.is_floating(type_) and pc.any(pc.is_nan(values)).as_py():
            raise CorruptError(f"a NaN, which bounds no {type_}")
        return values
    if any(bound is not None for bound in bounds):
        raise CorruptError(f"values of {type_} have none")
    return pa.nulls(len(bounds), type_)


def _items(type_: pa.DataType, bounds: Bounds) -> pa.Array:
    try:
        return pa.array(bounds, pa.large_binary()).cast(type_)
    except pa.ArrowInvalid:
        raise CorruptError(f"bytes that are not UTF-8, of {type_}") from None


def _fixed(type_: pa.DataType, width: int, bounds: Bounds) -> pa.Array:
    try:
        return pa.array(bounds, pa.binary(width))
    except pa.ArrowInvalid:
        odd = next(len(bound) for bound in bounds if bound is not None and len(bound) != width)
        raise CorruptError(f"{odd} bytes, values of {type_} have {width}") from None
