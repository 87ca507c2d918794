"""Opens the array at a place of the user: to read it, to change it, or what is whole of it.

Knows nothing of indices of numpy.
"""

from blztable.arrays.files.foreign import read_foreign
from blztable.arrays.files.front import is_ours, read_metadata
from blztable.arrays.files.header import ARRAY_HEADER, ArrayHeader
from blztable.arrays.files.own import Own
from blztable.arrays.opened import Opened
from blztable.arrays.writable import Writable
from blztable.errors import ReadOnlyError
from blztable.format.checksum import crc32
from blztable.format.jsontext import Json
from blztable.storage import journal
from blztable.storage.in_place import APPEND, READ, InPlaceFile, open_in_place


def open_for_reading(place: object) -> Opened:
    """Open the array at a place of the user; read through its journal."""
    file = open_in_place(place, READ)
    try:
        source = journal.read_through(file, crc32)
        header = ArrayHeader.decode(source.read(0, ARRAY_HEADER.size))
        _, metadata, at, _ = read_metadata(header, source.read)
        if is_ours(metadata):
            return Opened(file, source, Own.read(source, header))
        return Opened(file, source, read_foreign(source, header, metadata, at))
    except BaseException:
        file.close()
        raise


def open_recovered(place: object) -> Opened:
    """Open the whole chunks of an array that was never finished."""
    file = open_in_place(place, READ)
    try:
        source = journal.read_through(file, crc32)
        header = ArrayHeader.decode(source.read(0, ARRAY_HEADER.size))
        opened = Opened(file, source, Own.recovered(source, header))
        opened.is_recovered = True
        return opened
    except BaseException:
        file.close()
        raise


def open_for_changes(place: object) -> Writable:
    """Open an array of ours to change it; finish what a crash left."""
    file = open_in_place(place, APPEND)
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
            file.truncate(own_end)
            file.flush()
        return Writable(file, own, is_new=False)
    except BaseException:
        file.close()
        raise


def _begin_of(file: InPlaceFile) -> tuple[ArrayHeader, Json]:
    """Return header and metadata, as the journal makes them."""
    source = journal.read_through(file, crc32)
    header = ArrayHeader.decode(source.read(0, ARRAY_HEADER.size))
    return header, read_metadata(header, source.read)[1]
