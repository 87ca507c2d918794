"""Statistics of runs of rows: nulls, NaNs, and bounds of the values, as bytes and as JSON.

A run is a page (in the zone map of a trailer) or a row group (in a column's line of the manifest).
A bound is the little-endian bytes of a value; for text and binary it may be a prefix.
Knows nothing of types: `columns` decides which bytes are a bound.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Self

import numpy as np

from blztable.errors import CorruptError
from blztable.format import jsontext
from blztable.format.jsontext import Json

# Name of the metalayer with the zone map.
PAGES_LAYER = "pages"
MAX_BOUND_BYTES = 64
_NO_BOUND = 255


@dataclass(frozen=True, slots=True)
class Statistics:
    """One entry per run; an unknown bound is None. NaNs are counted but are never bounds."""

    nulls: tuple[int, ...]
    nans: tuple[int, ...]
    lowest: tuple[bytes | None, ...]
    highest: tuple[bytes | None, ...]

    KEYS: ClassVar = ("nulls", "nans", "min", "max")

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.nulls)

    @classmethod
    def joined(cls, parts: Sequence["Statistics"]) -> Self:
        """Return the statistics of all parts in one, part after part."""
        if len(parts) == 1:  # The columns of a wide table.
            return cls(parts[0].nulls, parts[0].nans, parts[0].lowest, parts[0].highest)
        return cls(
            *(
                tuple(chain.from_iterable(getattr(part, name) for part in parts))
                for name in cls.__slots__
            )
        )

    def without_bounds(self) -> "Statistics":
        """Return the counts alone."""
        unknown = (None,) * len(self)
        return Statistics(self.nulls, self.nans, unknown, unknown)

    def of_run(self, index: int) -> "Statistics":
        """Return the statistics of one run."""
        return Statistics(*((getattr(self, name)[index],) for name in self.__slots__))

    def encode(self) -> bytes:
        """Return the zone map: counts, lengths of the bounds, bounds."""
        lengths = [
            bytes(_NO_BOUND if bound is None else len(bound) for bound in bounds)
            for bounds in (self.lowest, self.highest)
        ]
        known = [bound for bound in self.lowest + self.highest if bound is not None]
        counts = np.array([self.nulls, self.nans], "<u4").tobytes()
        return b"".join([counts, *lengths, *known])

    @classmethod
    def decode(cls, data: bytes, runs: int) -> Self:
        """Read a zone map of `runs` pages."""
        head = 10 * runs
        if len(data) < head:
            raise CorruptError(
                f"a zone map has {len(data)} bytes for {runs} pages; expected at least {head}"
            )
        nulls, nans = np.frombuffer(data, "<u4", 2 * runs).reshape(2, runs).tolist()
        bounds: list[bytes | None] = []
        position = head
        for length in data[8 * runs : head]:
            if length == _NO_BOUND:
                bounds.append(None)
                continue
            if length > MAX_BOUND_BYTES:
                raise CorruptError(
                    f"a zone map has a bound of {length} bytes; at most {MAX_BOUND_BYTES} are read"
                )
            bounds.append(data[position : position + length])
            position += length
        if position != len(data):
            raise CorruptError(f"a zone map has {len(data)} bytes; its bounds end at {position}")
        return cls(tuple(nulls), tuple(nans), tuple(bounds[:runs]), tuple(bounds[runs:]))

    def to_json(self) -> dict[str, Json]:
        """Return the four arrays, all of the same length."""
        return {
            "nulls": list(self.nulls),
            "nans": list(self.nans),
            "min": _encode(self.lowest),
            "max": _encode(self.highest),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json], runs: int) -> Self:
        """Read the four arrays; CorruptError unless each has `runs` entries."""
        lists = cls.lists(value, runs)
        return cls(
            jsontext.numbers(lists["nulls"], "nulls", runs),
            jsontext.numbers(lists["nans"], "nans", runs),
            _decode(lists["min"]),
            _decode(lists["max"]),
        )

    @classmethod
    def lists(cls, value: Mapping[str, Json], runs: int) -> dict[str, list[Json]]:
        """Return the four arrays unparsed; CorruptError unless each has `runs` entries."""
        arrays = {}
        for name in cls.KEYS:
            entries = value.get(name)
            if not isinstance(entries, list) or len(entries) != runs:
                raise CorruptError(f"statistics: {name!r} is not an array of {runs} entries")
            arrays[name] = entries
        return arrays


def _encode(bounds: Sequence[bytes | None]) -> list[Json]:
    return [None if bound is None else base64.b64encode(bound).decode("ascii") for bound in bounds]


def _decode(values: list[Json]) -> tuple[bytes | None, ...]:
    decode = binascii.a2b_base64
    try:
        bounds = [
            None if value is None else decode(value, strict_mode=True)  # type: ignore[arg-type]
            for value in values
        ]
    except (binascii.Error, TypeError, ValueError):
        raise CorruptError("statistics: a bound is not valid base64") from None
    if max(map(len, filter(None, bounds)), default=0) > MAX_BOUND_BYTES:
        raise CorruptError(f"statistics: a bound has more than {MAX_BOUND_BYTES} bytes")
    return tuple(bounds)
