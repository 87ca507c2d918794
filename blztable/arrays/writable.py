"""An array that is written: a new one until it is closed, or an old one that is changed in place.

Knows nothing of indices of numpy.

Theory of operation. A new file has version 255 and placeholders until `close`: whole chunks are
written one after another, the last rows wait in memory. Then come the trailer and the true front,
and last the byte of the version, each flushed before the next. A file of version 255 was never
finished. In a finished file each change is one commit of the tail journal: chunks, front and
trailer change together or not at all. A caller holds the `turn` for each change and each read, so
the threads of a process take turns.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from blztable.arrays.changes import (
    Growth,
    exchanged,
    new_front,
    replaced,
    resized,
    slabs,
    with_trailer,
)
from blztable.arrays.encoding import encode_chunk
from blztable.arrays.files.front import Front
from blztable.arrays.files.grid import Box, shape_of
from blztable.arrays.files.own import Own
from blztable.arrays.files.trailer import Layer
from blztable.arrays.opened import Opened
from blztable.arrays.reading import FEWER, read_chunk
from blztable.engine.run.limits import check_memory
from blztable.errors import ConflictError, ReadOnlyError, StorageError
from blztable.format.bloscpack import VERSION_AT
from blztable.format.checksums import crc32
from blztable.format.jsontext import Json
from blztable.interrupts import DeferInterrupt
from blztable.storage import journal
from blztable.storage.files import File, LocalFile, MemoryFile
from blztable.storage.held import Turn
from blztable.storage.journal import Write

# Bytes of zeros that an array grows by at a time.
ZEROS_BYTES = 8 << 20


class Writable(Opened):
    """An open array that may be changed."""

    array: Own

    def __init__(self, file: File, own: Own, *, is_new: bool) -> None:
        super().__init__(file, file, own)
        self.is_new = is_new
        self._pid = os.getpid()
        self.turn = Turn()
        self._waiting: list[np.ndarray] = []
        self._waiting_rows = 0
        if is_new and not file.is_sequential:
            file.write(0, own.encoded_front(is_finished=False))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array, with the rows that wait in memory."""
        rows, *others = self.array.front.info.shape
        return (rows + self._waiting_rows, *others)

    @property
    def cbytes(self) -> int:
        """Bytes of the file; of a new one, until now."""
        return self.file.size

    @property
    def has_chunks(self) -> bool:
        """True if the front is fixed, because chunks lie behind it."""
        return bool(self.array.offsets or self._waiting)

    def reopened_at(self) -> str:
        """TypeError: the copy would wait for the lock of this array."""
        super().reopened_at()
        raise TypeError(
            f"{self.name}: an array that may be changed is locked, so it cannot be copied or "
            "pickled; close it, and open it for reading"
        )

    def check_open(self) -> None:
        """ClosedError after `close`; ReadOnlyError in a forked child, which holds no lock."""
        super().check_open()
        if os.getpid() != self._pid:
            raise ReadOnlyError(f"{self.name} was opened before a fork; open it again")

    def read_box(self, box: Box) -> np.ndarray:
        """Return a box of the array."""
        self.settle()
        return super().read_box(box)

    def append(self, values: np.ndarray) -> None:
        """Add rows."""
        self.check_open()
        info = resized(self.array.front.info, len(self) + len(values))
        if not info.grid.per_row:
            self.resize(info.shape[0])
        elif self.is_new:
            info = self.array.front.info
            self._waiting.append(values)
            self._waiting_rows += len(values)
            step = info.chunk_shape[0]
            if len(self) - info.shape[0] + info.shape[0] % step >= step:
                self._write_waiting(is_last=False)
            else:
                self._waiting[-1] = values.copy()
        else:
            self._grow(len(self), [values])

    def resize(self, rows: int) -> None:
        """Cut the array, or add rows of zeros, or of empty items."""
        self.check_open()
        info = resized(self.array.front.info, rows)
        if not info.grid.per_row:
            # Rows without items have no chunks.
            assert not self._waiting
            self._commit(replace(self.array, front=self.array.front.with_info(info)))
            return
        if rows > len(self) and not self.is_new and not info.items:
            # A change is in memory until it is committed.
            chunk = encode_chunk(info, np.zeros(info.chunk_shape, info.dtype))
            check_memory(len(chunk) * (len(info.grid) - self.nchunks), self.name, FEWER)
        zeros = self._zeros(rows - len(self))
        if self.is_new and rows > len(self):
            for block in zeros:
                self.append(block)
            return
        self.settle()
        self._grow(min(rows, len(self)), zeros)

    def assign(self, box: Box, values: np.ndarray) -> None:
        """Replace a box of the array by values of its shape."""
        self.settle()
        info = self.array.front.info
        changed: dict[int, np.ndarray] = {}
        for number, inside, region in info.grid.overlapping(box):
            if shape_of(inside) == shape_of(info.grid.box(number)):
                changed[number] = values[region]
            else:
                changed[number] = read_chunk(self.chunks, info, number)
                changed[number][inside] = values[region]
        if changed:
            self._commit(*replaced(self.array, changed))

    def exchange(self, items: Mapping[int, object]) -> None:
        """Replace items of any length, by their numbers."""
        self.settle()
        if items:
            self._commit(*exchanged(self.array, self.chunks, items))

    def set_attrs(self, attrs: dict[str, Json]) -> None:
        """Replace the attributes."""
        self._commit(replace(self.array, attrs=attrs))

    def set_layers(self, layers: dict[str, Layer]) -> None:
        """Replace the variable metalayers."""
        self._commit(replace(self.array, layers=layers))

    def set_meta(self, meta: Mapping[str, bytes]) -> None:
        """Replace the fixed metalayers: by such of the same lengths if there are chunks."""
        front = self.array.front
        info = replace(front.info, meta=meta)
        if self.has_chunks:
            self._commit(replace(self.array, front=front.with_info(info)))
            return
        front = new_front(front, info)
        self._commit(replace(self.array, front=front, end=front.length))
        if self.is_new and not self.file.is_sequential:
            self.file.write(0, self.array.encoded_front(is_finished=False))

    def rewrite(self, change: Callable[[Front], Front]) -> None:
        """Write the array again to a new file that takes the place of the old one."""
        self.settle()
        front = change(self.array.front)
        empty = front.with_info(replace(front.info, shape=(0, *front.info.shape[1:])))
        self._check_place()
        beside = self.file.beside()
        file = beside or MemoryFile()
        own = replace(self.array, front=empty, offsets=[], digests=[], end=empty.length)
        try:
            new = Writable(file, own, is_new=True)
            if not front.info.grid.per_row:
                new.resize(len(self))
            step = max(ZEROS_BYTES // max(self.row_bytes, 1), 1)
            for start in range(len(new), len(self), step):
                rows = slice(start, min(start + step, len(self)))
                new.append(self.read_box((rows, *(slice(0, size) for size in self.shape[1:]))))
            new.finish()
            # Ctrl-C must not come between the change of the file and that of its offsets.
            with DeferInterrupt():
                self._replace_by(beside, file, new.array)
        finally:
            if beside is not None:
                beside.discard()

    def _replace_by(self, beside: LocalFile | None, file: File, own: Own) -> None:
        """Let a finished file take the place of this one; its bytes, if it is not beside this."""
        self._check_place()
        try:
            if beside is not None:
                beside.take_place()
            else:
                data = file.read(0, file.size)
                journal.commit(self.file, [(0, data)], self.file.size, len(data), crc32)
        except BaseException:
            # The file has the old array or the new one; only opening it again tells which.
            super().close()
            raise
        self._become(own)
        self.is_new = False

    def _check_place(self) -> None:
        """ConflictError if the path leads to another file by now, or to none."""
        if not self.file.is_there():
            raise ConflictError(
                f"{self.name}: the array was removed, or replaced by another file; open it again"
            )

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row; of items of any length, the mean."""
        info = self.array.front.info
        if info.items:
            return self.nbytes // max(len(self), 1)
        return math.prod(info.shape[1:]) * info.dtype.itemsize

    def finish(self) -> None:
        """Make a new file a valid one."""
        if not self.is_new:
            return
        if self._waiting:
            self._write_waiting(is_last=True)
        own, front, trailer = with_trailer(self.array)
        file = self.file
        if file.is_sequential:
            self._begin_stream()
            file.write(own.end, trailer)
            file.flush()
        else:
            file.write(own.end, trailer)
            if file.size > (end := own.end + len(trailer)):
                # A change made the last chunks shorter.
                file.cut(end)
            # The version last: a front may be torn, a byte is not.
            unfinished = own.encoded_front(is_finished=False)[VERSION_AT : VERSION_AT + 1]
            file.write(0, front[:VERSION_AT] + unfinished + front[VERSION_AT + 1 :])
            file.flush()
            file.write(VERSION_AT, front[VERSION_AT : VERSION_AT + 1])
            file.flush()
            file.flush_name()
        self._become(own)
        self.is_new = False

    def close(self) -> None:
        """Finish a new file, and close it; closing twice is harmless."""
        try:
            # Only the process that opened the file may finish it.
            if not self.is_closed and os.getpid() == self._pid:
                self.finish()
        finally:
            super().close()

    def abandon(self) -> None:
        """Close a new file as it is, unfinished."""
        super().close()

    def __len__(self) -> int:
        return self.shape[0]

    def settle(self) -> None:
        """Write the rows that wait in memory."""
        self.check_open()
        if self.file.is_sequential:
            raise StorageError(f"{self.name} can only be written; close it, then open the file")
        if self._waiting:
            self._write_waiting(is_last=True)

    def _write_waiting(self, *, is_last: bool) -> None:
        waiting, rows = self._waiting, self._waiting_rows
        self._waiting, self._waiting_rows = [], 0
        if not is_last:
            step = self.array.front.info.chunk_shape[0]
            begun = self.array.front.info.shape[0] % step
            kept = (begun + rows) % step
            if kept:
                [block] = slabs(waiting, rows)
                waiting = [block[: rows - kept]]
                # Copied: the rest of its block must not stay in memory.
                self._waiting, self._waiting_rows = [block[rows - kept :].copy()], kept
        self._grow(self.array.front.info.shape[0], waiting)

    def _grow(self, first: int, blocks: Iterable[np.ndarray]) -> None:
        """Replace the rows from `first` on by the rows of the blocks."""
        own = self.array
        info = own.front.info
        step = info.chunk_shape[0]
        base = first - first % step
        others = tuple(slice(0, size) for size in info.shape[1:])
        before = [super().read_box((slice(base, first), *others))] if base < first else []
        growth = Growth(own, base)
        added = map(growth.add, slabs(chain(before, blocks), step))
        if not self.is_new:
            writes = list(added)
            self._commit(growth.own(), writes)
            return
        try:
            self._begin_stream()
            for write in added:
                self.file.write(*write)
            if not self.file.is_sequential and self.file.size > growth.own().end:
                self.file.cut(growth.own().end)
        except BaseException:
            # Rows are missing, so it must stay unfinished.
            super().close()
            raise
        self._become(growth.own())

    def _begin_stream(self) -> None:
        if self.file.is_sequential and not self.file.size:
            self.file.write(0, self.array.encoded_front(is_finished=True))

    def _zeros(self, rows: int) -> Iterable[np.ndarray]:
        info = self.array.front.info
        step = max(ZEROS_BYTES // max(self.row_bytes, 1), 1)
        for start in range(0, rows, step):
            shape = (min(step, rows - start), *info.shape[1:])
            if info.items:
                yield np.full(shape, "" if info.items == "str" else b"", object)
            else:
                yield np.zeros(shape, info.dtype)

    def _commit(self, own: Own, writes: Iterable[Write] = ()) -> None:
        """Make a change: at once in a new file, by the journal in a finished one."""
        self.check_open()
        if self.is_new:
            try:
                for at, data in writes if not self.file.is_sequential else ():
                    self.file.write(at, data)
            except BaseException:
                # A chunk may be torn, so it must stay unfinished.
                super().close()
                raise
            self._become(own)
            return
        own = replace(own, front=replace(own.front, is_stream=False))
        own, front, trailer = with_trailer(own)
        end = own.end + len(trailer)
        changed = [(0, front), *writes, (own.end, trailer)]
        try:
            with DeferInterrupt():
                journal.commit(self.file, changed, self.file.size, end, crc32)
        except BaseException:
            # The file has the old array or the new one; only opening it again tells which.
            super().close()
            raise
        self._become(own)

    def _become(self, own: Own) -> None:
        self.array = own
        self._chunks = None
