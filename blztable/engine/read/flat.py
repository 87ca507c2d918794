"""Rows of one node, read by tasks over its parts.

Theory of operation. A task decodes rows of one part: it reads the chunks, compares, decompresses
and decodes them (`parts.py`). Memory for values of one width is made once for the whole column, in
the caller's thread, and tasks write slices of it; long parts are several tasks. Other types become
an array a part, and small ones are joined. Which rows are null is put together at the end, because
rows of two parts may share a byte.

Tasks of few bytes are joined. A read of few bytes runs in the caller's thread alone.

Of a store that fetches, the bytes are asked for ahead of the tasks (`ahead.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import methodcaller

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import as_stored, bitmap, nulls, stored_type
from blztable.columns.dictionaries import is_same
from blztable.columns.parts.decode import Chosen, count_of
from blztable.columns.parts.physical import Form, physical
from blztable.engine.read.parts import DOUBTED_BYTES, UNCHECKED_BYTES, OpenParts, Part
from blztable.engine.read.selection import RowIndices, RowSelection
from blztable.engine.run.ahead import Ahead
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import Progress, Task, run
from blztable.engine.version.versions import DAMAGED
from blztable.format.records import VALUES, Array
from blztable.storage.store import ByteRange

# Arrays of fewer bytes, as a mean, are joined.
JOINED_BYTES = 1 << 20
# A row group, rows of it, and their number.
GroupRows = tuple[int, Chosen, int]
# What a task takes at least, in bytes, whatever it decodes.
LEAST_BYTES = 1 << 12


def read_flat(
    parts: OpenParts, reads: Sequence["FlatRead"], progress: Progress | None = None
) -> list[pa.ChunkedArray]:
    """Read the rows of each node; LimitError if the machine has not the memory for all of them."""
    nbytes = 0
    for read in reads:
        nbytes += read.nbytes
    if nbytes > UNCHECKED_BYTES:
        check_memory(nbytes, parts.version.store.name)
    if nbytes > DOUBTED_BYTES:
        run([part.prove for read in reads for part in read.parts() if part.is_doubted])
    sized = chain.from_iterable(map(methodcaller("tasks"), reads))
    report = progress.report if progress else None
    if parts.version.store.fetches:
        with Ahead[SizedTask](parts.version.store) as ahead:
            run(_fetched(ahead, sized, progress), report)
    else:
        tasks = joined(sized, progress)
        is_alone = nbytes < tuning.current.one_thread_bytes or len(tasks) < 2
        run(tasks, report, is_alone=is_alone)
    return list(map(methodcaller("finish"), reads))


def ranges_of(reads: Iterable["FlatRead"]) -> tuple[list[ByteRange], bool]:
    """Return the ranges of files that reads may need, and whether these are of single rows."""
    wanted = [demand for read in reads for demand in read.wanted()]
    is_single = any(isinstance(rows, np.ndarray) for _, rows in wanted)
    return [byte_range for part, rows in wanted for byte_range in part.ranges(rows)], is_single


def _fetched(
    ahead: Ahead["SizedTask"], sized: Iterable["SizedTask"], progress: Progress | None
) -> Iterator[Task]:
    """Yield the tasks, whose bytes are asked for window by window."""
    wanted = ((task[2].ranges(task[3]), isinstance(task[3], np.ndarray), task) for task in sized)
    for window in ahead.windows(wanted):
        yield from window.tasks(joined(window.waiting, progress))


# The bytes that a task decodes, the cells that are read then, the part and the rows, and the task.
SizedTask = tuple[int, float, Part, Chosen, Callable[[], None]]


def joined(sized: Iterable[SizedTask], progress: Progress | None) -> list[Task]:
    """Return tasks of several small ones."""
    tasks: list[Task] = []
    waiting: list[Callable[[], None]] = []
    nbytes, cells = 0, 0.0
    for size, share, _, _, task in sized:
        waiting.append(task)
        nbytes, cells = nbytes + max(size, LEAST_BYTES), cells + share
        if nbytes >= tuning.current.read_task_bytes:
            tasks.append(partial(_run_all, waiting, cells, progress))
            waiting, nbytes, cells = [], 0, 0.0
    if waiting:
        tasks.append(partial(_run_all, waiting, cells, progress))
    return tasks


def _run_all(tasks: list[Callable[[], None]], cells: float, progress: Progress | None) -> None:
    for task in tasks:
        task()
    if progress is not None:
        progress.add(cells)


class FlatRead:
    """The read of rows of one node.

    Attributes
    ----------
    type
        The type of the result.
    count, nbytes
        The rows, and the bytes that are decoded, about.
    """

    def __init__(
        self,
        parts: OpenParts,
        line: int,
        selected: Iterable[GroupRows],
        type_: pa.DataType | None = None,
        *,
        with_nans: bool = False,
    ) -> None:
        """Read rows, which ascend; with NaN where it stands for null, if asked for.

        The type of the result is `type_`, by default that of the node.
        """
        self.type = parts.version.node(line).type if type_ is None else type_
        # Of each part: the part, its rows, their number and their bytes.
        self._rows: list[tuple[Part, Chosen, int, int]] = []
        self._with_nans = with_nans
        self.count = self.nbytes = 0
        for group, rows, count in selected:
            part = parts.open(line, group)
            nbytes = int(part.row_bytes * count)
            self._rows.append((part, rows, count, nbytes))
            self.count += count
            self.nbytes += nbytes
        # Of values of one width.
        self._width = _width(self.type)
        self._buffer: pa.Buffer | None = None
        self._values: Array | None = None
        # By task: the first row, and which rows have a value.
        self._valid: list[tuple[int, Array]] = []
        self._arrays: list[pa.Array] = []

    def parts(self) -> list[Part]:
        """Return the parts that have the rows."""
        return [part for part, *_ in self._rows]

    def wanted(self) -> list[tuple[Part, Chosen]]:
        """Return the parts, and which rows of each."""
        return [(part, rows) for part, rows, *_ in self._rows]

    def tasks(self) -> list[SizedTask]:
        """Make the memory of values of one width; return the tasks.

        This is called in the caller's thread: memory that several threads allocate is returned late
        and reused rarely.
        """
        if self._width is not None:
            self._buffer = pa.allocate_buffer(self.count * self._width)
            self._values = np.frombuffer(self._buffer, np.uint8)
        tasks: list[SizedTask] = []
        first = 0
        self._arrays = [None] * len(self._rows)
        most = 2 * tuning.current.span_bytes
        for number, (part, rows, count, nbytes) in enumerate(self._rows):
            share = part.share / max(part.rows, 1)
            if self._width is None:
                make = partial(self._make, number, part, rows)
                tasks.append((nbytes, share * count, part, rows, make))
            elif nbytes <= most:
                task = partial(self._fill, part, rows, first, first + count)
                tasks.append((nbytes, share * count, part, rows, task))
                first += count
            else:
                for some in _cut(part, rows):
                    count = count_of(some)
                    task = partial(self._fill, part, some, first, first + count)
                    tasks.append((int(part.row_bytes * count), share * count, part, some, task))
                    first += count
        return tasks

    def _fill(self, part: Part, rows: Chosen, first: int, last: int) -> None:
        """Decode values of one width to their place."""
        assert self._values is not None
        assert self._width is not None
        out = self._values[first * self._width : last * self._width]
        try:
            part.fill(rows, out)
            valid = part.valid(rows, None if self._with_nans else out)
        except DAMAGED as error:
            raise part.errors.named(error) from None
        if valid is not None and not valid.all():
            self._valid.append((first, valid))

    def _make(self, number: int, part: Part, rows: Chosen) -> None:
        """Decode an array."""
        self._arrays[number] = self.array_of(part, rows)

    def array_of(self, part: Part, rows: Chosen) -> pa.Array:
        """Return rows of a part."""
        return part.array(rows)

    def finish(self) -> pa.ChunkedArray:
        """Return the rows."""
        if self._values is not None:
            validity, values = None, self._buffer
            if self._valid:
                valid = np.empty(self.count, bool)
                valid.fill(True)
                for first, some in self._valid:
                    valid[first : first + len(some)] = some
                validity = bitmap(valid)
            if self.type.id == pa.lib.Type_BOOL:
                values = bitmap(self._values)
            whole = pa.Array.from_buffers(self.type, self.count, [validity, values])
            return pa.chunked_array([whole], self.type)
        arrays = self._arrays
        if not arrays:
            return pa.chunked_array([nulls(0, self.type)], self.type)
        if arrays[0].type.id != self.type.id:
            arrays = [array.cast(self.type) for array in _together(arrays)]
            return pa.chunked_array(arrays, self.type)
        return pa.chunked_array(_together(arrays), self.type)


class CodesRead(FlatRead):
    """The read of the codes of rows of one part, as unsigned numbers; null where a row is null."""

    def __init__(self, parts: OpenParts, line: int, selected: Iterable[GroupRows]) -> None:
        """Read the codes of these rows."""
        super().__init__(parts, line, selected, pa.uint8())
        self._width = None

    def array_of(self, part: Part, rows: Chosen) -> pa.Array:
        """Return the codes."""
        try:
            codes = part.codes(rows)
            valid = part.valid(rows)
        except DAMAGED as error:
            raise part.errors.named(error) from None
        type_ = pa.from_numpy_dtype(codes.dtype)
        validity = None if valid is None or valid.all() else bitmap(valid)
        return pa.Array.from_buffers(type_, len(codes), [validity, pa.py_buffer(codes)])

    def finish(self) -> pa.ChunkedArray:
        """Return the codes."""
        type_ = self._arrays[0].type if self._arrays else self.type
        return pa.chunked_array(self._arrays, type_)


class DictionaryRead(FlatRead):
    """The read of rows as a dictionary, whose items are those of each part."""

    def array_of(self, part: Part, rows: Chosen) -> pa.Array:
        """Return rows of a part: its codes and items, or those of its values."""
        with part.errors:
            items = part.values_of_codes(part.rows)
            if items is None:
                return as_stored(part.array(rows)).dictionary_encode().cast(self.type)
            codes = part.checked_codes(rows)
            valid = part.valid(rows)
            mask = None if valid is None else ~valid
            indices = pa.array(codes.astype(np.int32), self.type.index_type, mask=mask)
            return pa.DictionaryArray.from_arrays(indices, items.cast(self.type.value_type))


def by_group(selected: Sequence[RowSelection]) -> list[GroupRows]:
    """Return the rows of each row group, and their number; spans of one are joined."""
    groups: list[GroupRows] = []
    group: int | None = None
    slices: list[slice] = []
    count = 0
    for rows in selected:
        if isinstance(rows, RowIndices):
            if len(rows.rows):
                groups.append((rows.group, rows.rows, len(rows.rows)))
                group = None
        elif rows.start < rows.stop:
            if rows.group != group:
                group, slices, count = rows.group, [], 0
            else:
                groups.pop()
            if slices and slices[-1].stop == rows.start:
                slices[-1] = slice(slices[-1].start, rows.stop)
            else:
                slices.append(slice(rows.start, rows.stop))
            count += rows.stop - rows.start
            groups.append((group, slices, count))
    return groups


@lru_cache(maxsize=1024)
def _width(type_: pa.DataType) -> int | None:
    """Return the bytes of a value as it is decoded; None for types of variable width."""
    if pa.types.is_dictionary(type_):
        return None
    form = physical(stored_type(type_))
    return None if form.form in (Form.BYTES, Form.ITEMS, Form.NOTHING) else form.width


def _cut(part: Part, rows: Chosen) -> Iterator[Chosen]:
    """Yield rows of a part in pieces of a few megabytes; chunks are not cut."""
    width = max(part.form.width, 1)
    most = tuning.current.span_bytes // width
    if isinstance(rows, np.ndarray) or count_of(rows) <= 2 * most:
        yield rows
        return
    stream = part.streams.get(VALUES)
    step = max(stream.rows_of_chunk(width), 8) if stream is not None else most
    step *= max(most // step, 1)
    for span in rows:
        start = span.start
        while start < span.stop:
            stop = min((start // step + 1) * step, span.stop)
            yield [slice(start, stop)]
            start = stop


def _together(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Return arrays of which small neighbours are joined."""
    if len(arrays) == 1:
        return list(arrays)
    if pa.types.is_dictionary(arrays[0].type):
        return _of_same_items(arrays)
    concatenated: list[pa.Array] = []
    waiting: list[pa.Array] = []
    nbytes = 0
    for array in arrays:
        waiting.append(array)
        nbytes += array.nbytes
        if nbytes >= JOINED_BYTES:
            concatenated.append(_concatenated(waiting))
            waiting, nbytes = [], 0
    return [*concatenated, _concatenated(waiting)] if waiting else concatenated


def _concatenated(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _of_same_items(arrays: Sequence[pa.DictionaryArray]) -> list[pa.Array]:
    """Return dictionary arrays of which neighbours with the same items are joined."""
    groups: list[list[pa.DictionaryArray]] = []
    for array in arrays:
        if groups and is_same(groups[-1][0].dictionary, array.dictionary):
            groups[-1].append(array)
        else:
            groups.append([array])
    joined_arrays = []
    for group in groups:
        first = group[0]
        if len(group) > 1:
            indices = pa.concat_arrays([array.indices for array in group])
            first = pa.DictionaryArray.from_arrays(
                indices, first.dictionary, ordered=first.type.ordered, safe=False
            )
        joined_arrays.append(first)
    return joined_arrays
