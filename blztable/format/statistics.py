"""What is known of runs of rows without reading them: nulls, NaNs, smallest and largest value.

A run is a page (the zone map in a trailer) or a row group (a column's line of the manifest).
Bounds are the little-endian bytes of a value; of text and binary, a prefix that is still a bound.
Knows nothing of types: which bytes are a bound is decided in `columns`.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from blztable.errors import CorruptError
from blztable.format.jsontext import Json

MAX_BOUND_BYTES = 64


@dataclass(frozen=True, slots=True)
class Statistics:
    """One entry a run; a bound that is not known is None. NaNs are counted, never bounds."""

    nulls: tuple[int, ...]
    nans: tuple[int, ...]
    lowest: tuple[bytes | None, ...]
    highest: tuple[bytes | None, ...]

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.nulls)

    def to_json(self) -> dict[str, object]:
        """Four arrays of one length."""
        return {
            "nulls": list(self.nulls),
            "nans": list(self.nans),
            "min": _encode(self.lowest),
            "max": _encode(self.highest),
        }

    @classmethod
    def from_json(cls, value: dict[str, Json], runs: int) -> Self:
        """Read the four arrays; CorruptError unless each has `runs` entries."""
        nulls, nans = value.get("nulls"), value.get("nans")
        lowest, highest = value.get("min"), value.get("max")
        arrays = (nulls, nans, lowest, highest)
        if any(not isinstance(array, list) or len(array) != runs for array in arrays):
            raise CorruptError(f"statistics that are not of {runs} runs")
        assert isinstance(nulls, list)
        assert isinstance(nans, list)
        assert isinstance(lowest, list)
        assert isinstance(highest, list)
        return cls(_counts(nulls), _counts(nans), _decode(lowest), _decode(highest))


def _counts(values: list[Json]) -> tuple[int, ...]:
    if not set(map(type, values)) <= {int} or (values and min(values) < 0):  # type: ignore[type-var,operator]
        raise CorruptError("statistics with counts that are no counts")
    return tuple(values)  # type: ignore[arg-type]


def _encode(bounds: Sequence[bytes | None]) -> list[str | None]:
    return [None if bound is None else base64.b64encode(bound).decode("ascii") for bound in bounds]


def _decode(values: list[Json]) -> tuple[bytes | None, ...]:
    try:
        bounds = tuple(
            None if value is None else base64.b64decode(value, validate=True)  # type: ignore[arg-type]
            for value in values
        )
    except (binascii.Error, TypeError, ValueError):
        raise CorruptError("statistics with bounds that are not base64") from None
    if any(bound is not None and len(bound) > MAX_BOUND_BYTES for bound in bounds):
        raise CorruptError(f"statistics with a bound of more than {MAX_BOUND_BYTES} bytes")
    return bounds
