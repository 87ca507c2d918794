"""Bundles: one data file for all parts of a small row group.

A part of its own costs about as much time as 100 KB of data: a file, its metadata, and for each
stream a chunk. So the parts of a small row group share a file. A merge makes ordinary parts of them
when they are large enough. Knows nothing of how an array is encoded.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from blztable import tuning
from blztable.columns.parts.batch import EncodedBatch
from blztable.engine.run.limits import MemoryBudget
from blztable.engine.run.pool import Progress, Task
from blztable.engine.write.chunks import (
    ChunkInput,
    compressed,
    cuts_of,
    facts_of,
    inputs_of,
    records_of,
    runs_of,
)
from blztable.engine.write.column_writer import ColumnWriter, FileWriter
from blztable.engine.write.options import CompressionOptions
from blztable.engine.write.trial import compression_of
from blztable.format import layout
from blztable.format.checksums import crc32
from blztable.format.chunk import Compression
from blztable.format.records import VALID, Array, Records


def is_small(nbytes: Collection[int]) -> bool:
    """True if a row group with these bytes in each column is bundled."""
    most = min(tuning.current.bundle_bytes, tuning.current.bundled_bytes * len(nbytes))
    return len(nbytes) > 1 and 0 < sum(nbytes) <= most


class BundledBatch(NamedTuple):
    """Parts that go to a bundle, and how they are to be compressed."""

    batch: EncodedBatch
    asked: CompressionOptions


class Bundle:
    """The bundle of one row group, while its parts are made."""

    def __init__(
        self,
        columns: Mapping[int, int],
        writers: Sequence[ColumnWriter],
        group: tuple[int, int],
        files: FileWriter,
        numbers: list[int],
        target: int,
        budget: MemoryBudget,
        progress: Progress,
    ) -> None:
        """Wait for the parts of columns, given their bytes by index.

        `writers` are those of all columns, and `group` is the index of the row group and its rows.
        The number of the file is added to `numbers`.
        """
        self.columns = columns.keys()
        self._writers = writers
        self._group, self._rows = group
        self._files = files
        self._numbers = numbers
        self._target = target
        self._budget = budget
        self._progress = progress
        nbytes = sum(columns.values())
        # The bytes that the bundle releases, because it has the parts until they are compressed.
        self._held = nbytes if nbytes > tuning.current.large_bundle_bytes else 0
        self._lock = threading.Lock()
        self._unfinished = len(columns)
        self._batches: list[BundledBatch] = []
        # The number of the file, drawn in the order of the row groups; None until it is stored,
        # and 0 if no part is in it.
        self.number: int | None = None
        self._first_number = files.numbers.next()

    @property
    def is_large(self) -> bool:
        """True if the bundle releases the memory of its columns, and not the parts."""
        return self._held > 0

    def add(self, parts: int, batches: Sequence[BundledBatch]) -> list[Task]:
        """Add so many parts, of which those with bytes are in batches.

        The last ones return tasks to run.
        """
        with self._lock:
            self._batches += batches
            self._unfinished -= parts
            is_last = self._unfinished == 0
        return self._finish() if is_last else []

    def _finish(self) -> list[Task]:
        """Return the tasks that compress the chunks; the last of them stores the file."""
        # Threads add their parts in any order.
        batches = sorted(self._batches, key=lambda pending: int(pending.batch.columns[0]))
        self._batches = []
        if not batches:
            self.number = 0
            self._budget.release(self._held)
            return []
        facts, inputs = [], list[ChunkInput]()
        # The column of each part, and of each chunk.
        columns, owners = [], []
        for (batch, _), compressions in zip(batches, _compressions(batches), strict=True):
            cuts, before = cuts_of(batch, self._target), len(inputs)
            inputs += inputs_of(batch, cuts, compressions)
            facts.append(facts_of(batch, cuts))
            columns.append(batch.columns)
            each = (len(inputs) - before) // len(batch.columns)
            owners.append(batch.columns.repeat(each))
        runs, pieces = runs_of(inputs), dict(enumerate(inputs))
        inputs.clear()
        chunks: list[bytes] = [b""] * len(pieces)
        crcs = [0] * len(pieces)
        of_parts, of_chunks = np.concatenate(columns), np.concatenate(owners)
        count = self._unfinished = len(runs)

        def compress(start: int, stop: int, share: int) -> None:
            for number in range(start, stop):
                # A piece is released as soon as it is compressed.
                chunk = chunks[number] = compressed(pieces.pop(number))
                crcs[number] = crc32(chunk)
            self._budget.release(share)
            with self._lock:
                self._unfinished -= 1
                is_last = self._unfinished == 0
            if is_last:
                order = np.argsort(of_chunks, kind="stable").tolist()
                records = _in_order(records_of(facts, chunks, crcs), of_parts)
                indices = np.sort(of_parts).tolist()
                self._put(
                    indices, records, [chunks[at] for at in order], [crcs[at] for at in order]
                )

        # The shares add up to all bytes.
        shares = [self._held * (n + 1) // count - self._held * n // count for n in range(count)]
        return [partial(compress, *run, share) for run, share in zip(runs, shares, strict=True)]

    def _put(
        self,
        indices: Sequence[int],
        records: Records,
        chunks: Sequence[bytes],
        crcs: Sequence[int],
    ) -> None:
        """Store the file of the parts of these columns."""
        writers = [self._writers[index] for index in indices]
        number, placed = self._files.put(
            layout.SHARED, self._first_number, writers, records, chunks, crcs
        )
        self._numbers.append(number)
        for index, part in zip(indices, _split(placed), strict=True):
            self._writers[index].parts[self._group] = part
        # A node counts like a column, whatever rows it has.
        self._progress.add(self._rows * len(indices))
        self.number = number


def _in_order(records: Records, columns: Array) -> Records:
    """Return the records of parts, whose columns are given, in the order of these."""
    orders = [np.argsort(columns[owner], kind="stable") for owner in records.owners()]
    arrays = [array[order] for array, order in zip(records.arrays, orders, strict=True)]
    return Records(records.columns, 1, *arrays)


def _split(records: Records) -> Iterator[Records]:
    """Yield the records of each part."""
    parts, streams, chunks, pages, words, prefixes = records.arrays
    first = records.first_stream
    ends = (first, records.first_chunk[first], records.first_page, records.first_word[first])
    of_parts = zip(*(end.tolist() for end in (*ends, records.first_prefix)), strict=True)
    for part, ((s, c, g, w, p), (t, d, h, x, q)) in enumerate(pairwise(of_parts)):
        some = parts[part : part + 1], streams[s:t], chunks[c:d], pages[g:h], words[w:x]
        yield Records(1, 1, *some, prefixes[p:q])


def _compressions(batches: Sequence[BundledBatch]) -> list[list[Compression]]:
    """Return the compression of each stream of each batch: one for all streams of one form."""
    forms: dict[tuple[object, ...], list[Array]] = {}
    keys = []
    for batch, asked in batches:
        of_batch = []
        for stream, data in zip(batch.streams, batch.data, strict=True):
            key = (stream.typesize, stream.kind, stream.is_text, stream.name == VALID, id(asked))
            forms.setdefault(key, []).extend(data)
            of_batch.append((key, stream))
        keys.append(of_batch)
    known: dict[tuple[object, ...], Compression] = {}
    for (_, asked), of_batch in zip(batches, keys, strict=True):
        for key, stream in of_batch:
            if key not in known:
                known[key] = compression_of(stream, forms[key], asked)
    return [[known[key] for key, _ in of_batch] for of_batch in keys]
