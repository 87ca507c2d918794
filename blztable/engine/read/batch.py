"""Many small parts of values of one width, decoded together: wide tables, small row groups.

To describe and decode a part in Python takes longer than its few kilobytes, so thousands of them
would be read slowly. Here numpy works on all parts of one form.

Theory of operation. The calling thread finds for each part, by a few comparisons of whole arrays of
records, its form (`_FORM`), its chunks and its base. A task has parts that lie side by side in
files: it reads them by few calls, compares each chunk with its crc32, decompresses those of one
form side by side, and decodes them as a matrix, a part in each row, into the memory of the columns.
Parts of other forms are decoded one by one. If anything is wrong with a task, its parts are read
one by one, which says what and where.

A column keeps the memory of its neighbours; a block of columns has at most `matrix_bytes`.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import blosc
import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32

from blztable import tuning
from blztable.arrow.types import bitmap, stored_type, view
from blztable.cached import Cache
from blztable.columns.parts import from_codes
from blztable.columns.parts.physical import NUMPY_TYPES, Form, physical
from blztable.engine.read.parts import DOUBTED_BYTES, DOUBTED_RATIO, OpenParts, Part, PartFile
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.ahead import Ahead
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import Progress, Task, run, scratch
from blztable.engine.version.versions import DAMAGED
from blztable.errors import CorruptError
from blztable.format import layout
from blztable.format.chunk import are_sound, decompress_ptr
from blztable.format.records import (
    CONSTANT,
    NAN_IS_NULL,
    NUMBERS,
    PLAIN,
    VALID,
    VALUES,
    Array,
    Records,
)
from blztable.storage.store import ByteRange

# Larger parts are decoded as fast one by one, in bytes of their values as a mean.
MOST_BYTES = 256 << 10
# Bytes between two parts that are read and not used.
GAP_BYTES = 16 << 10
# Parts of a task, whatever they decode.
MOST_PARTS = 256
# Parts with the same numbers here are decoded as one matrix.
_FORM = np.dtype(
    [
        ("type", "<i8"),
        ("block", "<i8"),
        ("rows", "<i8"),
        ("nbytes", "<i8"),
        ("kind", "<i8"),
        ("flags", "<i8"),
        ("power", "<i8"),
        ("width", "<i8"),
        ("typesize", "<i8"),
        ("is_valid", "<i8"),
        ("nan_is_null", "<i8"),
    ]
)
_BYTES = np.dtype(f"V{_FORM.itemsize}")
# No chunk.
NONE = -1
_RAW, _CODES, _VALID = 0, 2, 1


def read_batches(
    parts: OpenParts,
    columns: Mapping[int, int],
    selected: Sequence[RowSpan],
    progress: Progress | None,
    with_nans: Container[int],
) -> dict[int, pa.ChunkedArray]:
    """Return those of the columns that can be read together, by index; raise as `OpenColumns`.

    `columns` has their lines, by index.
    """
    version = parts.version
    groups = [span.group for span in selected]
    least = tuning.current.matrix_columns_read
    if len(groups) * len(columns) < least or not groups or np.any(np.diff(groups) <= 0):
        return {}
    of_groups = version.group_records(np.array(groups, np.int64))
    stored = of_groups["stored"].astype(np.int64)
    spans = np.array([(span.start, span.stop) for span in selected])
    if (spans[:, 0] != 0).any() or (spans[:, 1] != stored).any() or 8 * stored.mean() > MOST_BYTES:
        return {}
    kinds: dict[tuple[pa.DataType, bool], list[int]] = {}
    for index, line in columns.items():
        type_ = version.node(line).type
        if not pa.types.is_decimal(type_) and (
            type_.id in NUMPY_TYPES or pa.types.is_boolean(type_)
        ):
            kinds.setdefault((type_, index in with_nans), []).append(index)
    arrays: dict[int, pa.ChunkedArray] = {}
    batches = []
    for (type_, has_nans), of_kind in kinds.items():
        if len(of_kind) * len(groups) >= least:
            lines = [columns[index] for index in of_kind]
            records = _checked(parts, lines, groups)
            batches.append(_Columns(parts, of_kind, lines, records, of_groups, type_, has_nans))
    if not batches:
        return {}
    nbytes = sum(batch.nbytes for batch in batches)
    check_memory(nbytes, version.store.name)
    if nbytes > DOUBTED_BYTES and any(batch.is_doubted for batch in batches):
        return {}
    for batch in batches:
        batch.allocate()
    reader = _MatrixReader(parts, groups, of_groups, batches, progress)
    report = progress.report if progress else None
    if version.store.fetches:
        with Ahead[_Cells](version.store) as ahead:
            run(reader.fetched(ahead), report)
    else:
        is_small = nbytes < tuning.current.matrix_shared_bytes
        run(map(reader.task, reader.cells()), report, is_alone=is_small)
    for batch in batches:
        arrays |= batch.arrays()
    return arrays


def _checked(parts: OpenParts, lines: Sequence[int], groups: Sequence[int]) -> Records:
    """Return the records of columns, compared with their types; they are kept."""
    known: Cache[tuple[tuple[int, ...], tuple[int, ...]], Records] = parts.version.made(
        "batches", Cache
    )
    key = tuple(lines), tuple(groups)
    records = known.get(key)
    if records is None:
        records = parts.version.records(lines, np.array(groups, np.int64))
        parts.check_records(lines, records)
        known.keep(key, records, records.nbytes + 8 * (len(lines) + len(groups)))
    return records


class _Columns:
    """Columns of one type in some row groups: what their records say, and the memory of the values.

    Arrays have an element for each part, in the order column, row group.
    """

    def __init__(
        self,
        parts: OpenParts,
        indices: Sequence[int],
        lines: Sequence[int],
        records: Records,
        of_groups: Array,
        type_: pa.DataType,
        has_nans: bool,
    ) -> None:
        self.type, self.form = type_, physical(stored_type(type_))
        self.indices, self.lines, self.records = indices, lines, records
        dtype = self.form.dtype
        assert dtype is not None
        self.dtype = dtype
        rows = of_groups["stored"].astype(np.int64)
        self.starts = np.append(0, np.cumsum(rows))
        self.rows = int(self.starts[-1])
        self.nbytes = self.rows * len(lines) * dtype.itemsize
        self.per_block = max(tuning.current.matrix_bytes // max(self.rows * dtype.itemsize, 1), 1)
        self._describe(has_nans)
        self.values: list[Array] = []
        self.valid: Array | None = None

    def _describe(self, has_nans: bool) -> None:
        records, parts, streams = self.records, self.records.parts, self.records.streams
        count, first = len(parts), records.first_stream[:-1]
        several = parts["streams"].astype(np.int64)
        last = np.where(several > 0, first + several - 1, 0)
        has = len(streams) > 0
        if not has:
            streams = np.zeros(1, streams.dtype)
        main, before = streams[last], streams[np.where(several > 0, first, 0)]
        chunks = records.stream_chunks if has else np.zeros(1, np.int64)
        is_valid = (several == 2) & (before["name"] == VALID)
        plain_valid = is_valid & (before["kind"] == PLAIN)
        columns = np.arange(count) // max(records.entries, 1)
        form = self.form_of = np.zeros(count, _FORM)
        form["block"], form["rows"] = columns // self.per_block, parts["rows"]
        for name in ("nbytes", "kind", "flags", "power", "width", "typesize"):
            form[name] = main[name]
        form["is_valid"] = np.where(is_valid, np.where(plain_valid, 1, 2), 0)
        null = parts["flags"] & NAN_IS_NULL
        form["nan_is_null"] = 0 if has_nans else null
        self.is_matrix = (
            (several - is_valid == 1)
            & (main["name"] == VALUES)
            & np.isin(main["kind"], (PLAIN, NUMBERS, CONSTANT))
            & (parts["pages"] <= 1)
            & (chunks[last] <= 1)
            & (~plain_valid | (chunks[np.where(several > 0, first, 0)] == 1))
        )
        self.is_empty = parts["rows"] == 0
        self.exceptions = main["exceptions"].astype(np.int64)
        self.first_word = records.first_word[last] if has else np.zeros(count, np.int64)
        self.base = self._bases(main, last)
        self.chunk = np.where(chunks[last] == 1, records.first_chunk[last] if has else 0, NONE)
        self.valid_chunk = np.where(plain_valid, records.first_chunk[first] if has else 0, NONE)

    def _bases(self, main: Array, last: Array) -> Array:
        """Return two words of each part: its base, or its first word, and the least of sums."""
        records = self.records
        base = np.zeros((len(last), 2), np.int64)
        pages = np.append(records.pages, np.zeros(1, records.pages.dtype))
        page = pages[records.first_page[:-1]]
        base[:, 0] = np.where(page["min"] <= page["max"], page["min"], 0)
        has_words = main["words"] > 0
        words = np.append(records.words, [0, 0])
        if len(records.streams):
            place = records.first_word[last]
            base[has_words, 0] = words[place[has_words]]
            base[has_words, 1] = words[place[has_words] + 1]
        return base

    @property
    def is_doubted(self) -> bool:
        """True if chunks claim far more bytes than they have: the parts are read one by one."""
        claimed, stored = self.records.chunk_nbytes, self.records.chunks["size"]
        return int(claimed.sum()) > DOUBTED_RATIO * int(stored.sum())

    def allocate(self) -> None:
        """Make the memory of the columns."""
        width, count = self.dtype.itemsize, len(self.lines)
        for first in range(0, count, self.per_block):
            some = min(self.per_block, count - first)
            block = pa.allocate_buffer(some * self.rows * width)
            self.values.append(view(block).view(self.dtype).reshape(some, self.rows))
        has_valid = (self.records.streams["name"] == VALID).any()
        if has_valid or self.form_of["nan_is_null"].any():
            self.valid = np.ones((count, self.rows), bool)

    def place(self, cells: Array) -> Array | None:
        """Return the memory of parts of one form as a matrix; None if it is none."""
        entries = self.records.entries
        columns, groups = np.divmod(cells, entries)
        rows = int(self.form_of["rows"][cells[0]])
        block, first = divmod(int(columns[0]), self.per_block)
        values = self.values[block]
        if len(cells) == 1 or ((np.diff(columns) == 1).all() and (np.diff(groups) == 0).all()):
            start = int(self.starts[groups[0]])
            return values[first : first + len(cells), start : start + rows]
        if (np.diff(columns) == 0).all() and (np.diff(self.starts[groups]) == rows).all():
            start = int(self.starts[groups[0]])
            return values[first, start : start + rows * len(cells)].reshape(len(cells), rows)
        return None

    def rows_of(self, cell: int) -> tuple[int, slice]:
        """Return the column of a part, and its rows."""
        column, group = divmod(cell, self.records.entries)
        return column, slice(int(self.starts[group]), int(self.starts[group + 1]))

    def put(self, cells: Array, values: Array) -> None:
        """Copy the rows of parts to their columns."""
        for cell, row in zip(cells.tolist(), values, strict=True):
            column, rows = self.rows_of(cell)
            block, place = divmod(column, self.per_block)
            self.values[block][place, rows] = row

    def put_exceptions(self, cells: Array, values: Array) -> None:
        """Put the values that no integer gives into the rows of parts."""
        for place in np.flatnonzero(self.exceptions[cells]).tolist():
            cell, row = int(cells[place]), values[place]
            count, first = int(self.exceptions[cell]), int(self.first_word[cell]) + 1
            words = self.records.words[first : first + 2 * count]
            rows = words[:count]
            if rows[0] < 0 or rows[-1] >= len(row) or (rows[1:] <= rows[:-1]).any():
                raise CorruptError("rows of exceptions")
            row[rows] = words[count:].view("<f8")

    def put_valid(self, cells: Array, valid: Array) -> None:
        """Say which rows of parts have a value."""
        assert self.valid is not None
        for cell, row in zip(cells.tolist(), valid, strict=True):
            column, rows = self.rows_of(cell)
            self.valid[column, rows] = row

    def arrays(self) -> Iterator[tuple[int, pa.ChunkedArray]]:
        """Yield the columns by index."""
        nulls = [0] * len(self.lines)
        if self.valid is not None:
            nulls = (self.rows - self.valid.sum(axis=1)).tolist()
        for column, index in enumerate(self.indices):
            valid = self.valid if nulls[column] else None
            validity = bitmap(valid[column]) if valid is not None else None
            block, place = divmod(column, self.per_block)
            # A slice of the block could not be written.
            values = pa.py_buffer(self.values[block][place])
            if self.form.form is Form.BOOL:
                values = bitmap(self.values[block][place])
            buffers = [validity, values]
            array = pa.Array.from_buffers(self.type, self.rows, buffers, nulls[column])
            yield index, pa.chunked_array([array])


@dataclass(frozen=True, slots=True)
class _Cells:
    """Parts that lie side by side in files: of which columns, and of which part of these."""

    which: Array
    cell: Array


class _MatrixReader:
    """Reads and decodes all parts of columns of some types."""

    def __init__(
        self,
        parts: OpenParts,
        groups: Sequence[int],
        of_groups: Array,
        columns: Sequence[_Columns],
        progress: Progress | None,
    ) -> None:
        self._parts, self._groups, self._columns = parts, groups, columns
        self._progress = progress
        self._live = of_groups["rows"].astype(np.int64)
        self._bundles = of_groups["file"].tolist()
        for number, column in enumerate(columns):
            column.form_of["type"] = number

    def task(self, cells: _Cells) -> Task:
        """Return the task that reads and decodes some parts."""
        return partial(self._decode, cells)

    def fetched(self, ahead: Ahead[_Cells]) -> Iterator[Task]:
        """Yield the tasks, whose bytes are asked for window by window."""
        wanted = ((self._ranges(cells), False, cells) for cells in self.cells())
        for window in ahead.windows(wanted):
            yield from window.tasks([*map(self.task, window.waiting)])

    def _ranges(self, cells: _Cells) -> list[ByteRange]:
        """Return the ranges of files that a task reads."""
        ranges: list[ByteRange] = []
        for number, columns in enumerate(self._columns):
            some = cells.cell[cells.which == number]
            is_matrix = columns.is_matrix[some] & ~columns.is_empty[some]
            for file, start, length in self._runs(columns, some[is_matrix])[0]:
                ranges.append((file.key, start, start + length))
            for cell in some[~is_matrix & ~columns.is_empty[some]].tolist():
                part = self._part(columns, cell)
                ranges += part.ranges([slice(0, part.rows)])
        return ranges

    def cells(self) -> Iterator[_Cells]:
        """Yield the parts of each task, in the order of the files."""
        entries = len(self._groups)
        which = np.concatenate(
            [np.full(len(column.base), number) for number, column in enumerate(self._columns)]
        )
        cell = np.concatenate([np.arange(len(column.base)) for column in self._columns])
        files = np.concatenate([column.records.parts["file"] for column in self._columns])
        offsets = np.concatenate([column.records.parts["offset"] for column in self._columns])
        sizes = np.concatenate([column.form_of["nbytes"] for column in self._columns])
        order = np.lexsort((offsets, files, cell % entries))
        which, cell = which[order], cell[order]
        ends = np.cumsum(sizes[order] + tuning.current.one_thread_bytes // MOST_PARTS)
        at = 0
        while at < len(order):
            before = int(ends[at - 1]) if at else 0
            enough = before + tuning.current.one_thread_bytes
            stop = max(int(np.searchsorted(ends, enough)), at) + 1
            yield _Cells(which[at:stop], cell[at:stop])
            at = stop

    def _decode(self, cells: _Cells) -> None:
        """Decode the parts of a task."""
        singles = []
        for number, columns in enumerate(self._columns):
            some = cells.cell[cells.which == number]
            matrix = some[columns.is_matrix[some] & ~columns.is_empty[some]]
            try:
                if len(matrix):
                    self._decode_matrix(columns, matrix)
                rest = some[~columns.is_matrix[some] & ~columns.is_empty[some]]
            except (*DAMAGED, blosc.blosc_extension.error, ValueError):
                # One by one they say what is wrong, and where.
                rest = some
            singles += [(columns, cell) for cell in rest.tolist()]
        for columns, cell in singles:
            self._decode_one(columns, cell)
        if self._progress is not None:
            live = self._live[cells.cell % len(self._groups)]
            self._progress.add(float(live.sum()))

    def _decode_one(self, columns: _Columns, cell: int) -> None:
        """Decode a part by itself."""
        column, rows = columns.rows_of(cell)
        part = self._part(columns, cell)
        place = columns.values[column // columns.per_block][column % columns.per_block, rows]
        with part.errors:
            chosen = [slice(0, part.rows)]
            part.fill(chosen, place.view(np.uint8))
            is_nan = columns.form_of["nan_is_null"][cell]
            valid = part.valid(chosen, place.view(np.uint8) if is_nan else None)
        if valid is not None:
            columns.put_valid(np.array([cell]), valid[np.newaxis])

    def _part(self, columns: _Columns, cell: int) -> Part:
        column, entry = divmod(cell, len(self._groups))
        return self._parts.open(columns.lines[column], self._groups[entry])

    def _decode_matrix(self, columns: _Columns, cells: Array) -> None:
        """Decode parts that can be rows of matrices."""
        raw, begins = self._read(columns, cells)
        # Compared as bytes: numpy makes a TypeError of an interrupt while it compares fields.
        forms, which = np.unique(columns.form_of[cells].view(_BYTES), return_inverse=True)
        for number, form in enumerate(forms.view(_FORM)):
            chosen = np.flatnonzero(which == number)
            some, places = cells[chosen], begins[chosen]
            out = columns.place(some)
            is_own = out is None
            if out is None:
                out = np.empty((len(some), int(form["rows"])), columns.dtype)
            codes = None
            if form["nbytes"]:
                chunks = columns.chunk[some]
                codes = self._chunks(columns, raw, places, some, chunks, form, _CODES)
            from_codes.fill_matrix(form, columns.form, codes, columns.base[some], out)
            if columns.form.form is Form.BOOL and int(out.max()) > 1:
                raise CorruptError("booleans")
            columns.put_exceptions(some, out)
            if is_own:
                columns.put(some, out)
            if form["nan_is_null"]:
                columns.put_valid(some, np.equal(out, out))
            elif form["is_valid"] == 2:
                columns.put_valid(some, np.zeros((len(some), int(form["rows"])), bool))
            elif form["is_valid"]:
                chunks = columns.valid_chunk[some]
                bits = self._chunks(columns, raw, places, some, chunks, None, _VALID)
                rows = np.unpackbits(bits, axis=1, count=int(form["rows"]), bitorder="little")
                columns.put_valid(some, rows.view(bool))

    def _read(self, columns: _Columns, cells: Array) -> tuple[memoryview, Array]:
        """Read the chunks of parts; return the bytes, and what to add to offsets of each part."""
        runs, begins = self._runs(columns, cells)
        raw, place = scratch(sum([length for *_, length in runs]), _RAW)[0].data, 0
        for file, start, length in runs:
            file.read_into(start, raw[place : place + length])
            place += length
        return raw, begins

    def _runs(
        self, columns: _Columns, cells: Array
    ) -> tuple[list[tuple[PartFile, int, int]], Array]:
        """Return the files of parts, and where to read how many bytes.

        Return also what to add to the offsets of each part to find its chunks in these bytes.
        """
        records, entries = columns.records, len(self._groups)
        first = np.where(
            columns.valid_chunk[cells] >= 0, columns.valid_chunk[cells], columns.chunk[cells]
        )
        last = np.where(columns.chunk[cells] >= 0, columns.chunk[cells], columns.valid_chunk[cells])
        begins = np.zeros(len(cells), np.int64)
        some = np.flatnonzero(first >= 0)
        if not len(some):
            return [], begins
        low = records.chunk_offset[first[some]]
        high = records.chunk_offset[last[some]] + records.chunks["size"][last[some]]
        files = records.parts["file"][cells[some]]
        is_new = np.ones(len(some), bool)
        is_new[1:] = (files[1:] != files[:-1]) | (low[1:] < high[:-1])
        is_new[1:] |= low[1:] > high[:-1] + GAP_BYTES
        starts = np.flatnonzero(is_new)
        stops = np.append(starts[1:], len(some))
        lengths = high[stops - 1] - low[starts]
        places = np.append(0, np.cumsum(lengths))
        runs = [
            (self._file(columns, int(cells[some[start]]), entries), int(low[start]), length)
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]
        begins[some] = np.repeat(places[:-1] - low[starts], stops - starts)
        return runs, begins

    def _file(self, columns: _Columns, cell: int, entries: int) -> PartFile:
        column, entry = divmod(cell, entries)
        number = int(columns.records.parts["file"][cell])
        is_shared = number == self._bundles[entry]
        version, line = self._parts.version, columns.lines[column]
        key = layout.part(layout.SHARED if is_shared else version.paths[line], number)
        record = columns.records.parts[cell]
        size = int(record["offset"] + record["cbytes"])
        return PartFile(self._parts.files, key, version, self._groups[entry], size)

    def _chunks(
        self,
        columns: _Columns,
        raw: memoryview,
        begins: Array,
        cells: Array,
        chunks: Array,
        form: Array | None,
        room: int,
    ) -> Array:
        """Decompress a chunk of each part, all of one size, into the rows of a matrix."""
        records = columns.records
        if form is None:
            nbytes, typesize = -(-int(columns.form_of["rows"][cells[0]]) // 8), None
        else:
            nbytes, typesize = int(form["nbytes"]), int(form["typesize"])
        at = records.chunk_offset[chunks] + begins
        sizes = records.chunks["size"][chunks].astype(np.int64)
        sound = are_sound(raw, at, sizes, nbytes, typesize)
        if not sound.all():
            raise CorruptError("a chunk header does not match")
        out, address = scratch(nbytes * len(cells), room)
        crcs = records.chunks["crc"][chunks].tolist()
        for begin, end, crc in zip(at.tolist(), (at + sizes).tolist(), crcs, strict=True):
            chunk = raw[begin:end]
            if crc32(chunk) != crc or decompress_ptr(chunk, address) != nbytes:
                raise CorruptError("a chunk does not match its crc32")
            address += nbytes
        return out.reshape(len(cells), nbytes)
