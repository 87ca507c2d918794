"""A data file of a table as an array: the values of its part, as far as the file alone tells them.

A file says the numpy dtype of its values, not the Arrow type that the table has. Values that the
chunks hold as they are, are read like those of any other file; all others are decoded from their
streams. Knows nothing of tables.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from blztable.arrays.files.chunks import ByteSource, Chunks
from blztable.arrays.files.foreign import Foreign
from blztable.arrays.reading import FEWER, items_of
from blztable.columns.parts import decode, from_codes
from blztable.columns.parts import physical as texts
from blztable.columns.parts.check import check_type
from blztable.columns.parts.stream import Stream, need
from blztable.engine.run.limits import check_memory
from blztable.errors import CorruptError, FormatError
from blztable.format.bloscpack import BLOSCPACK
from blztable.format.checksums import CRC32
from blztable.format.data_file import DataFile
from blztable.format.jsontext import Json
from blztable.format.records import (
    CONSTANT,
    LENGTHS,
    NUMBERS,
    PER_ITEM,
    PLAIN,
    UNSORTED,
    VALID,
    VALUES,
    Records,
    sums,
)

# Decimals by the bytes of a value.
_DECIMALS = {16: pa.decimal128(38), 32: pa.decimal256(76)}
_FIELDS = ["name", "kind", "typesize", "flags", "power", "width", "exceptions", "nbytes", "chunk"]


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
    values = Values(chunks, file.records, text)
    starts = sums(np.array([chunks.header(number).nbytes for number in range(len(lengths))]))
    attrs: dict[str, Json] = {"uuid": file.uuid, "number": file.number, "node": list(file.nodes[0])}
    decoded = None if values.are_plain else values.read
    return Foreign(
        BLOSCPACK, chunks, starts, values.dtype, (values.rows,), "C", False, attrs, decoded
    )


@dataclass(frozen=True)
class Values:
    """The values of a part, decoded from its streams. `text` says what a value is."""

    chunks: Chunks
    records: Records
    text: str

    @property
    def rows(self) -> int:
        """Return the number of values."""
        return int(self.records.parts["rows"][0])

    @cached_property
    def dtype(self) -> np.dtype:
        """Return the dtype of the values: `object` for items, and if None may be among them."""
        if self._has_items:
            return np.dtype(object)
        if self.text == texts.LENGTHS:
            dtype = np.dtype("<i8")
        else:
            texts.type_of_text(self.text)  # Only what it knows may reach numpy.
            dtype = np.dtype(self.text)
        streams = self.records.streams
        has_nulls = VALID in streams["name"] or bool((streams["flags"] & UNSORTED).any())
        return np.dtype(object) if has_nulls and dtype.kind not in "mM" else dtype

    @property
    def are_plain(self) -> bool:
        """True if the chunks have the values, one after another."""
        streams = self.records.streams
        # Which byte is no boolean must be told.
        if len(streams) != 1 or self.dtype.kind in "Ob" or self.text == texts.LENGTHS:
            return False
        name, kind, nbytes = streams[["name", "kind", "nbytes"]][0].tolist()
        return (name, kind, nbytes) == (VALUES, PLAIN, self.rows * self.dtype.itemsize)

    def read(self, rows: slice) -> np.ndarray:
        """Return the values of some rows; CorruptError if the streams do not give them."""
        name = self.chunks.source.name
        check_memory(max(rows.stop - rows.start, self.rows) * 8, name, FEWER)
        try:
            if self.text == texts.LENGTHS:
                return self._with_nulls(self._lengths(rows), rows)
            if VALUES in self._streams and self._streams[VALUES].kind == PER_ITEM:
                return self._with_nulls(self._per_item(rows), rows)
            return self._as_numpy(self._part.array(rows))
        except CorruptError as error:
            raise CorruptError(f"{name}: {error}") from None

    @property
    def _has_items(self) -> bool:
        return self.text in (texts.STR, texts.BYTES)

    @cached_property
    def _counts(self) -> list[int]:
        """Return the number of chunks of each stream."""
        kinds = self.records.streams["kind"].tolist()
        found = zip(kinds, self.records.stream_chunks.tolist(), strict=True)
        return [self.rows if kind == PER_ITEM else count for kind, count in found]

    @cached_property
    def _streams(self) -> dict[int, Stream]:
        """Return the streams by name, decompressed but for items with a chunk each."""
        records, streams = self.records, dict[int, Stream]()
        check_memory(int(records.chunk_nbytes.sum()), self.chunks.source.name, FEWER)
        at = 0
        for number, count in enumerate(self._counts):
            name, kind, typesize, flags, power, width, exceptions, nbytes, size = records.streams[
                _FIELDS
            ][number].tolist()
            data = np.empty(0 if kind == PER_ITEM else nbytes, np.uint8)
            for chunk in range(count if len(data) else 0):
                self.chunks.decode_into(at + chunk, data[chunk * size : (chunk + 1) * size])
            first, last = records.first_word[number : number + 2]
            words = records.words[first:last]
            fields = {"flags": flags, "power": power, "width": width, "exceptions": exceptions}
            streams[name] = Stream(name, kind, data, typesize, words, **fields)
            at += count
        check_type(self._type, records)
        return streams

    @cached_property
    def _type(self) -> pa.DataType:
        """Return the type that the values are decoded as."""
        if self.text == texts.LENGTHS:
            return pa.list_(pa.null())
        streams, type_ = self.records.streams, texts.type_of_text(self.text)
        is_number = (streams["name"] == VALUES) & (streams["kind"] == NUMBERS)
        if pa.types.is_fixed_size_binary(type_) and is_number.any():
            need(type_.byte_width in _DECIMALS, "encoding of bytes")
            type_ = _DECIMALS[type_.byte_width]
        return pa.dictionary(pa.int64(), type_) if (streams["flags"] & UNSORTED).any() else type_

    @cached_property
    def _part(self) -> decode.EncodedRows:
        """Return the part as it is decoded."""
        [part] = self.records.parts
        rows, page, flags, nbytes = part[["rows", "page", "flags", "nbytes"]].tolist()
        return decode.EncodedRows(
            self._type, rows, page, flags, self.records.pages, nbytes, self._streams
        )

    def _per_item(self, rows: slice) -> np.ndarray:
        kinds = self.records.streams["kind"].tolist()
        first = sum(self._counts[: kinds.index(PER_ITEM)])
        return items_of(self.chunks, range(first + rows.start, first + rows.stop), self.text)

    def _lengths(self, rows: slice) -> np.ndarray:
        page, chosen = int(self.records.parts["page"][0]), np.arange(rows.start, rows.stop)
        begins, ends = from_codes.ends_of_rows(self._streams[LENGTHS], self.rows, page, chosen)
        return ends - begins

    def _with_nulls(self, values: np.ndarray, rows: slice) -> np.ndarray:
        """Return values with None for each null."""
        valid = self._streams.get(VALID)
        if valid is None:
            return values
        values = values.astype(object)
        if valid.kind == CONSTANT:
            values[:] = None
            return values
        need(len(valid.data) == -(-self.rows // 8), "bytes of validity")
        bits = np.unpackbits(valid.data, bitorder="little", count=self.rows)
        values[bits[rows] == 0] = None
        return values

    def _as_numpy(self, array: pa.Array) -> np.ndarray:
        """Return decoded values in the dtype of the part."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if self.dtype.kind == "V" or self.text.startswith("|V"):
            width, buffers = int(self.text[2:]), array.buffers()
            array = pa.Array.from_buffers(pa.binary(width), len(array), buffers, -1, array.offset)
            if not self.dtype.hasobject:
                return np.frombuffer(buffers[1], self.dtype, len(array), array.offset * width)
        if self.dtype.hasobject:
            values = np.empty(len(array), object)
            values[:] = array.to_pylist()
            return values
        return array.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
