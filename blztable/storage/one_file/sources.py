"""Sources and sinks: bytes, file objects and pipes as the medium of a table in one file.

Knows nothing of records. A source is read by ranges and never changed. A sink is only written, from
its first byte on.
"""

import io
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from blztable.closing import Closing
from blztable.errors import ReadOnlyError, StorageError
from blztable.storage.file_objects import reading, writing
from blztable.storage.held import Turn
from blztable.storage.opening import failures
from blztable.storage.store import Buffer, Lock, Reader

# A source that cannot seek is copied; up to this many bytes stay in memory.
SPOOLED_BYTES = 64 << 20
_COPY_BYTES = 1 << 20


def source_of(place: Any) -> "ReadOnlyMedium":
    """Return bytes, or a binary file that is open for reading, as a medium."""
    if isinstance(place, bytes | bytearray | memoryview):
        return ReadOnlyMedium(_FileReader(io.BytesIO(place)), "bytes in memory")
    name = _name_of(place)
    if hasattr(place, "read_at"):
        return ReadOnlyMedium(_RangeReader(place), name)
    if not _can_seek(place):
        spooled = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115
        while data := b"".join(reading(place, _COPY_BYTES)):
            spooled.write(data)
        return ReadOnlyMedium(_SpooledReader(spooled), name)
    return ReadOnlyMedium(_FileReader(place), name)


def is_source(place: object) -> bool:
    """True for bytes and for an object that can be read like a file."""
    return isinstance(place, bytes | bytearray | memoryview) or hasattr(place, "read")


class ReadOnlyMedium:
    """Bytes that are read and never changed."""

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self.name = name

    def look(self) -> Reader:
        """Return the bytes."""
        return self._reader

    def rest(self) -> Lock | None:
        """Return a lock of nothing: nobody writes."""
        return _NoLock()

    def lock(self, timeout: float) -> Lock:
        """Refuse to be changed."""
        raise ReadOnlyError(f"{self.name} is open for reading; a table to change needs a path")

    def create(self) -> bool:
        """Refuse to be changed."""
        raise ReadOnlyError(f"{self.name} is open for reading; a table to change needs a path")

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Never called: nobody holds the lock."""
        raise NotImplementedError

    def written(self) -> int:
        """Never called: nobody holds the lock."""
        raise NotImplementedError

    def cut(self, size: int) -> int:
        """Never called: nobody holds the lock."""
        raise NotImplementedError

    def replace(
        self, write: Callable[[Callable[[Sequence[Buffer]], None]], None], nbytes: int
    ) -> Lock | None:
        """Never called: nobody holds the lock."""
        raise NotImplementedError

    def sync(self) -> None:
        """Do nothing: nothing was written."""

    def sync_name(self) -> None:
        """Do nothing: nothing was written."""

    def is_there(self) -> bool:
        """Never called: nobody holds the lock."""
        raise NotImplementedError

    def remove(self) -> None:
        """Never called: nobody holds the lock."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: the caller owns the file."""


class Sink:
    """A file object or a pipe that is written from its first byte on."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.name = _name_of(file)
        self._written = _Written()

    def look(self) -> Reader:
        """Return what can be read again: the front."""
        return self._written

    def rest(self) -> Lock | None:
        """Return None: whoever has the sink is its writer."""
        return None

    def lock(self, timeout: float) -> Lock:
        """Return a lock of nothing: a sink has one writer."""
        return _NoLock()

    def create(self) -> bool:
        """Begin at the first byte; ValueError where the file is at a later one.

        What a reader finds there is the table before it, or another program's bytes.
        """
        is_begun = self._written.size > 0 or not _can_seek(self._file)
        at = 0 if is_begun or not hasattr(self._file, "tell") else self._file.tell()
        if at:
            raise ValueError(
                f"{self.name} is at byte {at}, and a table begins at byte 0; pass a new file "
                "object, or call seek(0) to replace what it holds"
            )
        return True

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write the buffers. What the file has behind the first ones is cut off."""
        is_first = not self._written.size
        try:
            with failures("writing", "", self.name):
                for buffer in buffers:
                    for part in writing(self._file, buffer, self.name):
                        self._written.add(part)
        except TypeError as error:
            raise TypeError(f"{self.name}: open the file in binary mode: {error}") from None
        if is_first and _can_seek(self._file) and hasattr(self._file, "truncate"):
            # A reader looks for the last foot, which would be that of a longer table before.
            with suppress(OSError, ValueError):
                self._file.truncate()

    def written(self) -> int:
        """Return the number of bytes that were written."""
        return self._written.size

    def cut(self, size: int) -> int:
        """Keep the bytes, which may have left the process; return their number."""
        del size
        return self._written.size

    def replace(
        self, write: Callable[[Callable[[Sequence[Buffer]], None]], None], nbytes: int
    ) -> Lock | None:
        """Do nothing: a sink cannot be written again."""
        return None

    def sync(self) -> None:
        """Flush the buffers of the file object."""
        if hasattr(self._file, "flush"):
            self._file.flush()

    def sync_name(self) -> None:
        """Do nothing: the caller opened the file."""

    def is_there(self) -> bool:
        """Return True: a sink has no name that another file could take."""
        return True

    def remove(self) -> None:
        """Do nothing: the caller owns the file."""

    def close(self) -> None:
        """Do nothing: the caller owns the file."""


class _Ranges(Closing):
    """Ranges of the caller's file."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the file ends earlier."""
        raise NotImplementedError

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        view = memoryview(buffer).cast("B")
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Do nothing: the caller owns the file."""


class _FileReader(_Ranges):
    """Ranges of a file object that can seek."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._turn = Turn()
        self.size = int(file.seek(0, io.SEEK_END))

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the file ends earlier."""
        length = max(min(length, self.size - offset), 0)
        with self._turn():
            self._file.seek(offset)
            return b"".join(reading(self._file, length))

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._file, io.BytesIO):
            return _FileReader, (io.BytesIO(self._file.getvalue()),)
        raise TypeError("an open file cannot be sent to another process; pass its path")


class _SpooledReader(_FileReader):
    """A copy of a file that cannot seek; it goes with this object."""

    def __del__(self) -> None:
        self._file.close()


class _RangeReader(_Ranges):
    """Ranges of an object with `read_at`, such as the files of `pyarrow.fs`."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size = int(file.size())

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the file ends earlier."""
        length = max(min(length, self.size - offset), 0)
        return bytes(self._file.read_at(length, offset)) if length else b""


class _Written(Closing):
    """The first bytes of a sink, and the number of all."""

    def __init__(self) -> None:
        self._first = b""
        self.size = 0

    def add(self, data: memoryview) -> None:
        """Count bytes that were written."""
        if not self.size or len(self._first) == self.size < _FRONT_BYTES:
            self._first += bytes(data[:_FRONT_BYTES])
        self.size += len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the front; nothing behind it."""
        return self._first[offset : offset + length]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Refuse: what left the process cannot be read."""
        raise StorageError("a table that is being written to a stream cannot be read")

    def close(self) -> None:
        """Do nothing."""


# More than the front has.
_FRONT_BYTES = 4 << 10


class _NoLock(Closing):
    def close(self) -> None:
        """Do nothing."""


def _can_seek(file: Any) -> bool:
    return bool(file.seekable()) if hasattr(file, "seekable") else hasattr(file, "seek")


def _name_of(file: Any) -> str:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"a {type(file).__name__}"
