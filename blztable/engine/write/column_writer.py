"""A column while it is written: the numbers of its files, and the facts of its parts.

Writes nothing itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Self

import pyarrow as pa

from blztable.columns.types import stream_layouts
from blztable.engine.version.schema import digits_of
from blztable.format import layout
from blztable.format.line import ColumnParts, FactArrays
from blztable.format.statistics import Statistics
from blztable.format.superchunk import PartFacts


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The facts of a written part for the manifest."""

    k: int
    facts: PartFacts
    sizes: dict[str, int]
    statistics: Statistics
    # The first entry of the part in its bundle, from 1; 0 if it is in none.
    at: int = 0
    # True if the rows are null where the value is NaN.
    nan_is_null: bool = False


@dataclass(slots=True)
class ColumnWriter:
    """A column while it is written: its file numbers, and its written parts by row group."""

    path: layout.Path
    name: str
    type: pa.DataType
    nullable: bool = True
    # The first file number to use; above 1 if the column has files already.
    first_k: int = 1
    # The significant digits that floats are rounded to; None to keep all.
    digits: int | None = None
    parts: dict[int, WrittenPart] = field(default_factory=dict)
    numbers: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count file numbers."""
        self.numbers = count(self.first_k)

    @classmethod
    def of(cls, path: layout.Path, field: pa.Field, first_k: int = 1) -> Self:
        """Return the writer of a column with the name, type and properties of `field`."""
        name, type_, digits = field.name, field.type, digits_of(field)
        return cls(path, name, type_, field.nullable, first_k, digits)

    @property
    def file_numbers(self) -> list[int]:
        """Numbers of the files written so far."""
        return [part.k for part in self.parts.values() if part.k]

    @property
    def next_k(self) -> int:
        """The file number after the largest one used; no number is used twice."""
        return max([self.first_k, *(part.k + 1 for part in self.parts.values())])

    def finish(self) -> ColumnParts:
        """Return the parts as a line of the manifest."""
        parts = [self.parts[group] for group in sorted(self.parts)]
        names = [
            name for name in stream_layouts(self.type) if any(name in part.sizes for part in parts)
        ]
        return ColumnParts(
            self.path,
            tuple(part.k for part in parts),
            FactArrays.of([part.facts for part in parts]),
            {name: tuple(part.sizes.get(name, 0) for part in parts) for name in names},
            Statistics.joined([part.statistics for part in parts]).to_json(),
            tuple(part.at for part in parts) if any(part.at for part in parts) else (),
            tuple(int(part.nan_is_null) for part in parts)
            if any(part.nan_is_null for part in parts)
            else (),
        )
