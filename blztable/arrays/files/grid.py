"""Grids: which chunks hold which part of an array.

Knows nothing of bytes. The chunks of an array are boxes of one shape, in C order; those at the
upper edges are cut.
"""

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass

Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """An array of some shape, cut into chunks of another."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the number of chunks along each axis."""
        return tuple(
            -(-size // step) for size, step in zip(self.shape, self.chunk_shape, strict=True)
        )

    def __len__(self) -> int:
        return math.prod(self.counts)

    @property
    def per_row(self) -> int:
        """Return the number of chunks that lie beside each other at one index of axis 0."""
        return math.prod(self.counts[1:])

    def box(self, number: int) -> Box:
        """Return where a chunk lies in the array."""
        indices = []
        for count in reversed(self.counts):
            number, index = divmod(number, count)
            indices.append(index)
        return tuple(
            slice(index * step, min((index + 1) * step, size))
            for index, step, size in zip(
                reversed(indices), self.chunk_shape, self.shape, strict=True
            )
        )

    def size_of(self, number: int) -> int:
        """Return the number of items in a chunk."""
        return math.prod(shape_of(self.box(number)))

    def overlapping(self, box: Box) -> Iterator[tuple[int, Box, Box]]:
        """Yield each chunk that a box touches, with the common part in the chunk and in the box."""
        if 0 in shape_of(box):
            return
        axes = [
            range(cut.start // step, -(-cut.stop // step))
            for cut, step in zip(box, self.chunk_shape, strict=True)
        ]
        counts = self.counts
        for indices in itertools.product(*axes):
            number = 0
            for index, count in zip(indices, counts, strict=True):
                number = number * count + index
            common = [
                slice(max(cut.start, index * step), min(cut.stop, (index + 1) * step))
                for cut, index, step in zip(box, indices, self.chunk_shape, strict=True)
            ]
            origin = list(map(operator.mul, indices, self.chunk_shape))
            yield number, _moved(common, origin), _moved(common, [cut.start for cut in box])


def shape_of(box: Box) -> tuple[int, ...]:
    """Return the shape of a box."""
    return tuple(cut.stop - cut.start for cut in box)


def _moved(box: list[slice], origin: list[int]) -> Box:
    return tuple(
        slice(cut.start - start, cut.stop - start) for cut, start in zip(box, origin, strict=True)
    )
