"""Opening: open an array to read, to change, or to rescue what is intact.

A file of a path is locked while it is open: shared by readers, exclusive by one writer. A file
object is locked only within the process, for one writer. Knows nothing of indices of numpy.
"""

import errno
import io
import os

from blztable import tuning
from blztable.arrays.files.foreign import read_foreign
from blztable.arrays.files.front import is_ours, read_metadata
from blztable.arrays.files.own import Own
from blztable.arrays.opened import Opened
from blztable.arrays.part import read_part
from blztable.arrays.writable import Writable
from blztable.errors import (
    ConflictError,
    ReadOnlyError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from blztable.format.bloscpack import HEADER, Header
from blztable.format.checksums import crc32
from blztable.format.data_file import is_data_file
from blztable.format.jsontext import Json
from blztable.storage import journal
from blztable.storage.files import File, LocalFile, MemoryFile, ObjectFile, PipeFile
from blztable.storage.store import KeyNotFound

READ, APPEND, CREATE = "r", "a", "x"


def open_for_reading(target: object) -> Opened:
    """Open the array at a place of the user; read through its journal."""
    file = file_at(target, READ)
    try:
        source = journal.read_through(file, crc32)
        header = Header.decode(source.read(0, HEADER.size))
        _, metadata, at, _ = read_metadata(header, source.read)
        if is_ours(metadata):
            return Opened(file, source, Own.read(source, header))
        if is_data_file(metadata):
            return Opened(file, source, read_part(source))
        return Opened(file, source, read_foreign(source, header, metadata, at))
    except BaseException:
        file.close()
        raise


def open_recovered(target: object) -> Opened:
    """Open the whole chunks of an array that was never finished."""
    file = file_at(target, READ)
    try:
        source = journal.read_through(file, crc32)
        header = Header.decode(source.read(0, HEADER.size))
        opened = Opened(file, source, Own.recovered(source, header))
        opened.is_recovered = True
        return opened
    except BaseException:
        file.close()
        raise


def open_for_changes(target: object) -> Writable:
    """Open an array of ours to change it; finish what a crash left."""
    file = file_at(target, APPEND)
    try:
        _, metadata = _begin_of(file)
        if not is_ours(metadata):
            raise ReadOnlyError(
                f"{file.name}: SuperChunk did not write this file and cannot change it; make a "
                "new array of it with SuperChunk.create"
            )
        journal.finish(file, crc32)
        own = Own.read(file, _begin_of(file)[0])
        own_end = own.front.info.trailer + own.front.info.trailer_length
        if 0 < own_end < file.size:
            # A journal that was never whole.
            file.cut(own_end)
            file.flush()
        return Writable(file, own, is_new=False)
    except BaseException:
        file.close()
        raise


def _begin_of(file: File) -> tuple[Header, Json]:
    """Return header and metadata, as the journal makes them."""
    source = journal.read_through(file, crc32)
    header = Header.decode(source.read(0, HEADER.size))
    return header, read_metadata(header, source.read)[1]


def file_at(target: object, mode: str) -> File:
    """Open the file at a place of the user: a path, a binary file, bytes, or None for memory."""
    if isinstance(target, File):
        return target
    data = _content(target)
    if data is not None:
        if mode != READ:
            kind = type(target).__name__
            raise ReadOnlyError(f"{kind} can only be read; pass None or a BytesIO to write")
        return MemoryFile(data, is_writable=False)
    if isinstance(target, str | os.PathLike):
        path = os.fsdecode(os.path.expanduser(target))
        if not path:
            raise ValueError("the path is empty; pass the file of the array")
        return _local(path, mode)
    if target is None and mode == CREATE:
        return MemoryFile()
    if isinstance(getattr(target, "encoding", None), str) or isinstance(target, io.TextIOBase):
        raise TypeError("a file in text mode; open it in binary mode, such as 'rb' or 'r+b'")
    if not (hasattr(target, "read") or hasattr(target, "write")):
        raise TypeError(f"expected a path, a binary file or bytes, found {type(target).__name__}")
    return _object(target, mode)


def _content(target: object) -> memoryview | None:
    """Return the bytes of an object that has them in memory, such as bytes or a memory map."""
    try:
        return memoryview(target).cast("B")  # type: ignore[arg-type]
    except TypeError:
        return None


def _local(path: str, mode: str) -> File:
    """Open and lock the file of a path."""
    file = LocalFile(path)
    try:
        if mode == CREATE and not file.create():
            raise TableExistsError(f"{file.name} exists; an array never replaces a file")
        file.lock(tuning.current.array_lock_seconds, shared=mode == READ)
        if file.current() is None or not file.is_there():
            raise ConflictError(f"{file.name} was replaced by another file; open it again")
    except KeyNotFound:
        raise TableNotFoundError(f"no array exists at {file.name}") from None
    except BaseException as error:
        file.close()
        if isinstance(error, StorageError) and error.errno == errno.ENOENT:
            raise TableNotFoundError(f"no array exists at {file.name}") from None
        raise
    if mode == APPEND:
        file.remove_leftovers()
    return file


def _object(target: object, mode: str) -> File:
    """Return a file object of the user, locked for this one if it is to be written."""
    name = str(getattr(target, "name", None) or type(target).__name__)
    can_seek, can_read = _ask(target, "seekable"), _ask(target, "readable")
    if mode != CREATE and not can_read:
        raise StorageError(f"{name} can only be written; open a file that can be read")
    if mode != CREATE and not can_seek:
        raise StorageError(
            f"{name} cannot seek; to read an array from it, pass what its read() returns"
        )
    if mode == READ:
        return ObjectFile(target, name)
    if getattr(target, "writable", lambda: True)() is False:
        raise ReadOnlyError(f"{name} was opened for reading; open the file with 'r+b'")
    is_sequential = not (can_seek and can_read)
    file = PipeFile(target, name) if is_sequential else ObjectFile(target, name, is_writable=True)
    file.lock(0)
    return file


def _ask(target: object, question: str) -> bool:
    method = getattr(target, question, None)
    return method is not None and bool(method())
