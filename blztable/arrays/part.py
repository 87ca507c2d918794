"""A data file of a table as an array: the values of its part, as far as the file alone tells them.

A file says the numpy dtype of its values, not the Arrow type that the table has. Values that the
chunks hold as they are, are read like those of any other file; all others are decoded as a read of
the table does it. Knows nothing of versions.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blztable.arrays.files.chunks import ByteSource, Chunks
from blztable.arrays.files.foreign import Foreign
from blztable.cached import cached_property
from blztable.columns.parts.check import check_type
from blztable.columns.parts.physical import BYTES, LENGTHS, STR, type_of_text
from blztable.engine.read.parts import Part
from blztable.errors import CorruptError, FormatError
from blztable.format.bloscpack import BLOSCPACK
from blztable.format.checksums import CRC32
from blztable.format.data_file import DataFile
from blztable.format.jsontext import Json
from blztable.format.records import (
    DICTIONARY,
    NUMBERS,
    PLAIN,
    UNSORTED,
    VALID,
    VALUES,
    Array,
    Records,
    need,
    sums,
)
from blztable.storage.store import Nothing

# Decimals by the bytes of a value, and rows of lists whose items are not there.
_DECIMALS = {16: pa.decimal128(38), 32: pa.decimal256(76)}
_LISTS = pa.large_list(pa.null())


def read_part(source: ByteSource) -> Foreign:
    """Return the part of a data file; FormatError if the file has several, or no values."""
    file, offsets = DataFile.read(source.read, source.size)
    if len(file.nodes) != 1:
        raise FormatError(
            f"{source.name} has {len(file.nodes)} parts of a table; read them with "
            "blztable.open and the path of the table"
        )
    [text] = file.dtypes
    if not text:
        raise FormatError(
            f"{source.name} has nothing but nulls of a column; read it with blztable.open and the "
            "path of the table"
        )
    lengths = np.diff(np.append(offsets, source.size)) - CRC32.size
    chunks = Chunks(source, CRC32, offsets.tolist(), lengths.tolist())
    starts = sums(np.array([chunks.header(number).nbytes for number in range(len(lengths))]))
    values = Values(source, file.records, text)
    shape = (int(file.records.parts["rows"][0]),)
    attrs: dict[str, Json] = {
        "uuid": file.uuid,
        "number": file.number,
        "node": list(file.nodes[0]),
    }
    decoded = None if values.are_plain else values.read
    return Foreign(BLOSCPACK, chunks, starts, values.dtype, shape, "C", False, attrs, decoded)


class SourceFile:
    """A file as a part reads it."""

    fetches = False

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.key = source.name

    def check(self) -> None:
        """Do nothing: the file is open."""

    def asked(self, extents: Iterable[tuple[int, int]]) -> Nothing:
        """Ask for nothing."""
        return Nothing()

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `offset`; CorruptError if the file ends before."""
        data = self._source.read(offset, len(buffer))
        if len(data) != len(buffer):
            raise CorruptError(f"the file ends at {offset + len(data)}")
        buffer[:] = data


@dataclass(frozen=True)
class Values:
    """The values of a part. `text` says what a value is."""

    source: ByteSource
    records: Records
    text: str

    @cached_property
    def type(self) -> pa.DataType:
        """Return the Arrow type that the values are decoded as."""
        streams = self.records.streams
        type_ = _LISTS if self.text == LENGTHS else type_of_text(self.text)
        if pa.types.is_fixed_size_binary(type_) and (streams["kind"] == NUMBERS).any():
            need(type_.byte_width in _DECIMALS, "encoding of bytes")
            return _DECIMALS[type_.byte_width]
        is_dictionary = (streams["kind"] == DICTIONARY) & (streams["flags"] & UNSORTED > 0)
        return pa.dictionary(pa.int64(), type_) if is_dictionary.any() else type_

    @cached_property
    def part(self) -> Part:
        """Return the part, compared with the type of its values."""
        check_type(self.type, self.records)
        file = SourceFile(self.source)
        return Part(self.type, self.records, 0, file, self.source.name)

    @cached_property
    def dtype(self) -> np.dtype:
        """Return the dtype of the values: `object` for items, and if None may be among them."""
        if self.text in (STR, BYTES):
            return np.dtype(object)
        is_dictionary = pa.types.is_dictionary(self.type)
        dtype = np.dtype("<i8" if self.text == LENGTHS else self.text)
        has_nulls = VALID in self.records.streams["name"] or is_dictionary
        return np.dtype(object) if has_nulls and dtype.kind not in "mM" else dtype

    @property
    def are_plain(self) -> bool:
        """True if the chunks have the values, one after another."""
        # Which byte is no boolean must be told.
        if len(self.records.streams) != 1 or self.dtype.kind in "Ob" or self.text == LENGTHS:
            return False
        name, kind, nbytes = self.records.streams[["name", "kind", "nbytes"]][0].tolist()
        rows = int(self.records.parts["rows"][0])
        return (name, kind, nbytes) == (VALUES, PLAIN, rows * self.dtype.itemsize)

    def read(self, rows: slice) -> np.ndarray:
        """Return the values of some rows; CorruptError if the streams do not give them."""
        if self.text != LENGTHS:
            return self._as_numpy(self.part.array(rows))
        with self.part.errors:
            ends, _, _ = self.part.ends([rows])
            return self._with_nulls(np.diff(ends), self.part.valid([rows]))

    def _with_nulls(self, values: np.ndarray, valid: Array | None) -> np.ndarray:
        values = values.astype(self.dtype)
        if valid is not None:
            values[~valid] = None
        return values

    def _as_numpy(self, array: pa.Array) -> np.ndarray:
        """Return decoded values in the dtype of the part."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if self.text.startswith("|V"):
            width, buffers = int(self.text[2:]), array.buffers()
            array = pa.Array.from_buffers(pa.binary(width), len(array), buffers)
            if not self.dtype.hasobject:
                return np.frombuffer(buffers[1], self.dtype, len(array))
        if not self.dtype.hasobject:
            return array.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
        values = np.empty(len(array), object)
        values[:] = array.to_pylist()
        return values
