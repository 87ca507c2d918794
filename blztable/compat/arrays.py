"""Stored arrays: columns of another program, cut into chunks of rows, read into numpy arrays.

Theory of operation. Chunk `i` of an array holds its rows from `i * chunk_rows`; arrays of one table
may have different chunks. A read makes the memory of its results first, and then runs one task a
chunk in the threads of the pool: each decodes the rows wanted of its chunk into their place. The
caller bounds the rows. Knows nothing of Arrow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np

from blztable.engine.run.pool import Task, run
from blztable.errors import BlzError
from blztable.format.metalayers import Layers
from blztable.storage.store import Store


class StoredArray(Protocol):
    """An array in files: its first dimension are the rows."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the items."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and the shape of each."""

    @property
    def chunk_rows(self) -> int:
        """Number of rows of each chunk but the last."""

    @property
    def cbytes(self) -> int:
        """Bytes of the files, as they say themselves."""

    def decode(self, chunk: int, start: int, stop: int, out: np.ndarray) -> None:
        """Decode the rows from `start` to `stop` of a chunk to the bytes `out`.

        CorruptError or FormatError if the chunk cannot be read.
        """


@dataclass(frozen=True)
class OldColumn:
    """A column: its values, or the error that says why they cannot be read."""

    name: str
    values: StoredArray | BlzError
    attrs: Mapping[str, Any] = field(default_factory=dict)
    # As JSON has it.
    default: Any = None


@dataclass(frozen=True)
class OldFiles:
    """A table of another program; `kind` is what to call it."""

    kind: str
    store: Store
    rows: int
    columns: Sequence[OldColumn]
    attrs: Mapping[str, Any]
    # Reads the metalayers, which may be large.
    layers: Callable[[], Layers] = dict
    # Closes what the columns hold open.
    close: Callable[[], None] = lambda: None


def row_bytes(array: StoredArray) -> int:
    """Return the bytes of a row."""
    return array.dtype.itemsize * prod(array.shape[1:])


def read_rows(arrays: Sequence[StoredArray], start: int, stop: int) -> list[np.ndarray]:
    """Return the rows from `start` to `stop` of each array."""
    results = [np.empty((stop - start) * row_bytes(array), np.uint8) for array in arrays]
    run(
        task
        for array, out in zip(arrays, results, strict=True)
        for task in _tasks(array, start, stop, out, _chunks(array, start, stop))
    )
    return [_shaped(*part, stop - start) for part in zip(arrays, results, strict=True)]


def pick_rows(arrays: Sequence[StoredArray], rows: np.ndarray) -> list[np.ndarray]:
    """Return the rows with these numbers, which ascend; a chunk is decoded once.

    There is room for all rows from the first to the last one if most chunks are needed: then each
    is decoded to its place, and the rows are chosen from all of them at once.
    """
    start, stop = int(rows[0]), int(rows[-1]) + 1
    whole = [_needs_most(array, rows) for array in arrays]
    counts = [stop - start if is_whole else len(rows) for is_whole in whole]
    results = [
        np.empty(count * row_bytes(array), np.uint8)
        for array, count in zip(arrays, counts, strict=True)
    ]
    run(
        task
        for array, out, is_whole in zip(arrays, results, whole, strict=True)
        for task in (
            _tasks(array, start, stop, out, np.unique(rows // array.chunk_rows).tolist())
            if is_whole
            else _picks(array, rows, out)
        )
    )
    shaped = [_shaped(*one) for one in zip(arrays, results, counts, strict=True)]
    if len(rows) == stop - start:
        return shaped
    return [
        array[rows - start] if is_whole else array
        for array, is_whole in zip(shaped, whole, strict=True)
    ]


def _needs_most(array: StoredArray, rows: np.ndarray) -> bool:
    """True if most of the chunks from the first of these rows to the last have such a row."""
    chunks = rows // array.chunk_rows
    return 2 * (int(np.count_nonzero(np.diff(chunks))) + 1) > int(chunks[-1] - chunks[0]) + 1


def _chunks(array: StoredArray, start: int, stop: int) -> range:
    """Return the chunks that have rows from `start` to `stop`."""
    size = array.chunk_rows
    return range(start // size, -(-stop // size)) if stop > start else range(0)


def _tasks(
    array: StoredArray, start: int, stop: int, out: np.ndarray, chunks: Iterable[int]
) -> Iterator[Task]:
    """Yield a task for each of these chunks, which decodes its rows from `start` to `stop`."""
    size, width = array.chunk_rows, row_bytes(array)
    for chunk in chunks:
        first = chunk * size
        begin, end = max(start, first), min(stop, first + size)
        target = out[(begin - start) * width : (end - start) * width]
        yield partial(array.decode, chunk, begin - first, end - first, target)


def _picks(array: StoredArray, rows: np.ndarray, out: np.ndarray) -> Iterator[Task]:
    """Yield a task for each chunk that has some of the rows."""
    chunks, firsts = np.unique(rows // array.chunk_rows, return_index=True)
    parts = np.split(rows, firsts[1:])
    targets = np.split(out.reshape(len(rows), row_bytes(array)), firsts[1:])
    for chunk, part, target in zip(chunks.tolist(), parts, targets, strict=False):
        yield partial(_pick, array, chunk, part - chunk * array.chunk_rows, target)


def _pick(array: StoredArray, chunk: int, rows: np.ndarray, target: np.ndarray) -> None:
    start, stop = int(rows[0]), int(rows[-1]) + 1
    decoded = np.empty((stop - start, target.shape[1]), np.uint8)
    array.decode(chunk, start, stop, decoded.reshape(-1))
    target[...] = decoded[rows - start]


def _shaped(array: StoredArray, data: np.ndarray, rows: int) -> np.ndarray:
    """Return bytes as rows of the array."""
    return data.view(array.dtype).reshape(rows, *array.shape[1:])
