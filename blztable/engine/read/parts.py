"""A part that is stored: its streams, and the file that has their chunks.

Where a chunk lies, how long it is and its crc32 are in the records of the version, so no front of a
file is read. A task reads chunks that lie side by side by one call, compares each with its crc32,
decompresses it into the result, or into memory of the thread, and decodes it while it is in the
cache (`columns/parts/decode.py`).

Errors of streams say which chunk; `Part.errors` adds the file and the column.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32

from blztable import tuning
from blztable.arrow.types import allocate
from blztable.cached import Cache, cached_property, trim
from blztable.closing import Closing
from blztable.columns.parts.check import check_type
from blztable.columns.parts.decode import Chosen, EncodedRows
from blztable.columns.parts.physical import Form
from blztable.columns.parts.touched import touched
from blztable.engine.read.files import GONE, FileGoneError, OpenFiles
from blztable.engine.run.ahead import fetched
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import scratch
from blztable.engine.version.versions import DAMAGED, Version, removed_meanwhile
from blztable.errors import BlzError, CorruptError, ErrorContext
from blztable.format import layout
from blztable.format.chunk import (
    CHUNK_HEADER,
    LARGE_CHUNK_BYTES,
    MAX_CHUNK_BYTES,
    address_of,
    decompress_into,
)
from blztable.format.records import (
    CHUNK,
    DIGEST_BYTES,
    ITEMS_VALID,
    LENGTHS,
    NAN_IS_NULL,
    PER_ITEM,
    STREAM_NAMES,
    VALID,
    VALUES,
    Array,
    Records,
)
from blztable.storage.store import ByteRange, KeyNotFound, Lock, Reader

# What the error of a missing file says of it; all other rows can be read.
HAS_ROWS = "; it has rows {:,} to {:,}"
# What a part takes in memory, about, beside its words and the items of a dictionary.
PART_BYTES = 4_000
# The same of its description, beside its records.
DESCRIBED_BYTES = 500
# A part that claims so many times the bytes of its chunks is doubted: only zstd compresses that
# well, and only uniform data. If a read takes more than so many bytes, its doubted parts are
# decompressed twice, the first time before the memory of the result is made.
DOUBTED_RATIO, DOUBTED_BYTES = 1 << 10, 64 << 20
# Memory for fewer bytes is made without a look at the machine's.
UNCHECKED_BYTES = 64 << 20
# Chunks that are picked from are decompressed side by side, up to so many bytes.
PICKED_BYTES = 2 << 20
# Scratch memory of a thread: chunks as they are in the file, and from there on one for each stream.
_RAW, _ROOM = 0, 1


class ChunkFile(Protocol):
    """A file as a part reads its chunks."""

    key: str
    # True if each read takes long, however few bytes it has.
    fetches: bool

    def check(self) -> None:
        """Open the file; CorruptError if it is missing."""

    def asked(self, extents: Iterable[tuple[int, int]]) -> Lock:
        """Ask for what lies in a file that fetches, of single rows, until the result is closed."""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `offset`; CorruptError if the file ends before."""


class PartFile:
    """The data file of a part, opened at its first read."""

    __slots__ = ("_files", "_group", "_size", "_version", "fetches", "key")

    def __init__(self, files: OpenFiles, key: str, version: Version, group: int, size: int) -> None:
        """Open nothing yet; the file has at least `size` bytes."""
        self._files, self.key = files, key
        self._version, self._group, self._size = version, group, size
        self.fetches = version.store.fetches

    def check(self) -> None:
        """Open the file; CorruptError if it is missing."""
        self._open(None)

    def asked(self, extents: Iterable[tuple[int, int]]) -> Lock:
        """Ask for what lies in the file, of single rows, until the result is closed."""
        ranges = [(self.key, start, stop) for start, stop in extents]
        return fetched(self._version.store, ranges, is_single=True)

    def _open(self, size: int | None) -> Reader:
        """Return the open file; CorruptError if it is missing."""
        try:
            # Other threads may open so many files that this one is closed meanwhile.
            return self._files.open(self.key, size)
        except FileGoneError:
            raise self._missing() from None

    def _missing(self) -> BlzError:
        """Return the error about a file that is not there."""
        removed = removed_meanwhile(self._version)
        if removed is not None:
            return removed
        group = np.array([self._group])
        start = int(self._version.first_rows(group)[0])
        has = HAS_ROWS.format(start, start + int(self._version.group_records(group)["rows"][0]))
        return CorruptError(f"{GONE}{has}")

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `offset`; CorruptError if the file ends before."""
        file = self._files.readers.get(self.key) or self._open(self._size)
        try:
            count = file.read_into(offset, buffer)
        except KeyNotFound:
            # A store may look for a file only when it is read.
            raise self._missing() from None
        if count != len(buffer):
            raise CorruptError(
                f"the file has {file.size} bytes; expected {offset + len(buffer)} or more"
            )


class StoredStream:
    """A stream of a part: the fields of its record, and where its chunks are in the file."""

    def __init__(self, record: Any, words: Array, chunks: Array, offsets: Array, file: Any) -> None:
        """Take the record of the stream, its words, and the records of its chunks."""
        self.nbytes, self._chunk, _, self.name, self.kind, self.flags = record[:6]
        self.power, self.width, self.typesize, self.exceptions = record[6:]
        self.words, self._file = words, file
        self._offsets = offsets.tolist()
        self._sizes, self._crcs = chunks["size"].tolist(), chunks["crc"].tolist()

    @property
    def sizes(self) -> list[int]:
        """Return the decompressed bytes of each chunk."""
        whole, count = self._chunk, len(self._sizes)
        return [min(whole, self.nbytes - whole * number) for number in range(count)]

    @property
    def cbytes(self) -> int:
        """Return the bytes of all chunks and digests."""
        return sum(self._sizes) + DIGEST_BYTES * len(self._sizes)

    def rows_of_chunk(self, width: int) -> int:
        """Return the rows whose codes, or values of this width, a chunk has."""
        return self._chunk // (self.width or width)

    def compressed(self, number: int) -> bytes:
        """Return a chunk as it is in the file, compared with its crc32."""
        (chunk,) = self._fetched(number, number + 1)
        computed = crc32(chunk)
        if computed != self._crcs[number]:
            raise self._of_chunk(number, _changed(computed, self._crcs[number]))
        return bytes(chunk)

    def chunk(self, number: int) -> Array:
        """Return the decompressed bytes of a chunk."""
        start = number * self._chunk
        return self.data(start, min(start + self._chunk, self.nbytes))

    def data(self, start: int, stop: int) -> Array:
        """Return decompressed bytes."""
        out = np.empty(stop - start, np.uint8)
        self.read_into(start, stop, out)
        return out

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Yield the bytes from `start` to `stop`, chunk by chunk, and where each begins."""
        if start >= stop:
            return
        whole, nbytes, typesize = self._chunk, self.nbytes, self.typesize
        room, address = scratch(whole, _ROOM + self.name)
        number, last = start // whole, (stop - 1) // whole + 1
        while number < last:
            for chunk in self._fetched(number, last):
                low, crc = number * whole, self._crcs[number]
                high = min(low + whole, nbytes)
                try:
                    decompress_into(chunk, typesize, address, high - low, MAX_CHUNK_BYTES, crc)
                except BlzError as error:
                    raise self._of_chunk(number, error) from None
                first = max(start, low)
                yield first, room[first - low : min(stop, high) - low]
                number += 1

    def read_into(self, start: int, stop: int, out: Array) -> None:
        """Put the bytes from `start` to `stop` into a result."""
        for _ in self.pieces_into(start, stop, out):
            pass

    def pieces_into(self, start: int, stop: int, out: Array) -> Iterator[Array]:
        """Put the bytes from `start` to `stop` into a result; yield each piece that is there."""
        whole, typesize = self._chunk, self.typesize
        # Chunks that are needed as a whole are decompressed to their place.
        number = last = 0
        if start < stop:
            number = -(-start // whole)
            last = stop // whole if stop < self.nbytes else len(self._sizes)
        cut = [(start, stop)]
        if number < last:
            cut = [(start, number * whole), (last * whole, stop)]
        for low, high in cut:
            for at, data in self.runs(low, high) if low < high else ():
                piece = out[at - start : at - start + len(data)]
                piece[:] = data
                yield piece
        address = address_of(out) - start
        while number < last:
            for chunk in self._fetched(number, last):
                low, crc = number * whole, self._crcs[number]
                nbytes = min(whole, self.nbytes - low)
                try:
                    decompress_into(chunk, typesize, address + low, nbytes, MAX_CHUNK_BYTES, crc)
                except BlzError as error:
                    raise self._of_chunk(number, error) from None
                yield out[low - start : low - start + nbytes]
                number += 1

    def pick(self, starts: Array, stops: Array) -> Iterator[tuple[int, int, int, Array]]:
        """Yield bytes that have those of ascending ranges, of which none is empty.

        Only the Blosc blocks that have some of these bytes are decompressed.
        """
        if not len(starts):
            return
        whole, typesize, total = self._chunk, self.typesize, self.nbytes
        # The ranges of each chunk. Methods of arrays: functions of numpy make calls of Python.
        lows = np.arange(len(self._sizes)) * whole
        begins = stops.searchsorted(lows, "right")
        ends = starts.searchsorted(lows + whole)
        needed = (begins < ends).nonzero()[0].tolist()
        firsts, lasts = begins.tolist(), ends.tolist()
        most = max(PICKED_BYTES // whole, 1)
        # Of long items, the lengths had to come first.
        is_far = self._file.fetches and len(needed) > 1
        asked = self._file.asked(self.extents(starts, stops)) if is_far else None
        room, address = scratch(min(most, len(needed)) * whole, _ROOM + self.name)
        at, count = 0, len(needed)
        try:
            while at < count:
                first = number = needed[at]
                stop = at + 1
                while stop < count and stop - at < most and needed[stop] == needed[stop - 1] + 1:
                    stop += 1
                for chunk in self._fetched(first, needed[stop - 1] + 1):
                    low, crc = number * whole, self._crcs[number]
                    nbytes, some = min(whole, total - low), slice(firsts[number], lasts[number])
                    place, ranges = address + low - first * whole, (starts[some], stops[some], low)
                    try:
                        decompress_into(
                            chunk, typesize, place, nbytes, MAX_CHUNK_BYTES, crc, ranges
                        )
                    except BlzError as error:
                        raise self._of_chunk(number, error) from None
                    number += 1
                low, high = first * whole, min(number * whole, total)
                yield low, firsts[first], lasts[number - 1], room[: high - low]
                at += number - first
        finally:
            if asked is not None:
                asked.close()

    def read_items(self, rows: Array, lengths: Array, out: Array) -> None:
        """Refuse: the items are not apart."""
        raise CorruptError("the items have no chunks of their own")

    def _fetched(self, first: int, last: int) -> list[memoryview]:
        """Return chunks as they are in the file, from the first on: as many as one call reads."""
        offsets, sizes = self._offsets, self._sizes
        begin, end, stop = offsets[first], offsets[first] + sizes[first], first + 1
        while stop < last and offsets[stop] + sizes[stop] - begin <= tuning.current.span_bytes:
            end = offsets[stop] + sizes[stop]
            stop += 1
        raw = scratch(end - begin, _RAW)[0].data
        self._file.read_into(begin, raw)
        if stop - first == 1:
            return [raw]
        pieces = []
        for number in range(first, stop):
            place = offsets[number] - begin
            pieces.append(raw[place : place + sizes[number]])
        return pieces

    def extents(self, starts: Array, stops: Array) -> Iterator[tuple[int, int]]:
        """Yield where the chunks that have some bytes begin and end in the file."""
        some = starts < stops
        firsts, lasts = starts[some] // self._chunk, (stops[some] - 1) // self._chunk
        for first, last in dict.fromkeys(zip(firsts.tolist(), lasts.tolist(), strict=True)):
            yield self._offsets[first], self._offsets[last] + self._sizes[last]

    def _of_chunk(self, number: int, error: BlzError) -> BlzError:
        """Return an error that says which chunk it is about."""
        return type(error)(f", stream {STREAM_NAMES[self.name]!r}, chunk {number}: {error}")


def _changed(computed: int, expected: int) -> CorruptError:
    """Return the error about bytes whose crc32 is not the one of the record, or of the file."""
    return CorruptError(f"crc32 is {computed:08x}, expected {expected:08x}")


class ItemPlaces(NamedTuple):
    """Where the chunks of the items of a part are in its file.

    Attributes
    ----------
    rows
        Number of items.
    origin
        Where the first chunk of the part begins.
    begin, end
        Where the chunks of the items begin, and end.
    table
        Where the file has their offsets.
    """

    rows: int
    origin: int
    begin: int
    end: int
    table: int


class ItemStream(StoredStream):
    """A stream with a chunk an item: their offsets are in the file, digests behind the chunks."""

    def __init__(self, record: Any, words: Array, file: Any, places: ItemPlaces) -> None:
        """Take where the chunks of the items are."""
        super().__init__(record, words, np.zeros(0, CHUNK), words[:0], file)
        self._places = places

    @cached_property
    def places(self) -> Array:
        """Return where each chunk begins in the file, and where the last one ends."""
        rows, origin, begin, end, table = self._places
        if table < 0 or end - begin < rows * (CHUNK_HEADER.size + DIGEST_BYTES):
            raise CorruptError(f"{rows} items have {end - begin} bytes")
        check_memory(8 * rows, "the offsets of items")
        raw = np.empty(rows, "<i8")
        if rows:
            self._file.read_into(table, raw.view(np.uint8).data)
        computed = crc32((raw - origin).tobytes())
        if computed != int(self.words[0]):
            raise CorruptError(
                f"crc32 of the offsets of items is {computed:08x}, "
                f"expected {int(self.words[0]):08x}"
            )
        places = np.append(raw, end)
        sizes = np.diff(places) - DIGEST_BYTES
        if rows and (raw[0] != begin or int(sizes.min()) < CHUNK_HEADER.size):
            raise CorruptError("the offsets of items do not ascend from the first chunk on")
        return places

    def extents(self, starts: Array, stops: Array) -> Iterator[tuple[int, int]]:
        """Yield where the offsets of the items are, and all items if all are asked for."""
        places = self._places
        yield places.table, places.table + 8 * places.rows
        if len(starts) and int((stops - starts).sum()) >= self.nbytes:
            yield places.begin, places.end

    def read_items(self, rows: Array, lengths: Array, out: Array) -> None:
        """Put the items of these rows, which have these lengths, into a result."""
        places, address = self.places, address_of(out)
        some = np.flatnonzero(lengths)
        numbers = rows[some]
        begins, ends = places[numbers].tolist(), places[numbers + 1].tolist()
        sizes, at, done = lengths[some].tolist(), 0, 0
        while at < len(begins):
            stop, begin = at + 1, begins[at]
            while (
                stop < len(begins)
                and begins[stop] == ends[stop - 1]
                and ends[stop] - begin <= tuning.current.span_bytes
            ):
                stop += 1
            raw = scratch(ends[stop - 1] - begin, _RAW)[0].data
            self._file.read_into(begin, raw)
            for index in range(at, stop):
                last = ends[index] - begin - DIGEST_BYTES
                chunk = raw[begins[index] - begin : last]
                self._put_item(
                    int(numbers[index]), chunk, raw[last : last + 4], address + done, sizes[index]
                )
                done += sizes[index]
            at = stop

    def _put_item(
        self, number: int, chunk: memoryview, digest: memoryview, address: int, nbytes: int
    ) -> None:
        computed, expected = crc32(chunk), int.from_bytes(digest, "little")
        try:
            if computed != expected:
                raise _changed(computed, expected)
            if nbytes > LARGE_CHUNK_BYTES:
                raise CorruptError(f"an item has {nbytes} bytes; at most {LARGE_CHUNK_BYTES}")
            decompress_into(chunk, self.typesize, address, nbytes, LARGE_CHUNK_BYTES)
        except BlzError as error:
            raise self._of_chunk(number, error) from None

    def compressed(self, number: int) -> bytes:
        """Return the chunk of an item as it is in the file, compared with its digest."""
        begin, end = self.places[number : number + 2].tolist()
        raw = memoryview(bytearray(end - begin))
        self._file.read_into(begin, raw)
        chunk, digest = raw[:-DIGEST_BYTES], raw[-DIGEST_BYTES:]
        computed, expected = crc32(chunk), int.from_bytes(digest, "little")
        if computed != expected:
            raise self._of_chunk(number, _changed(computed, expected))
        return bytes(chunk)

    @property
    def cbytes(self) -> int:
        """Return the bytes of all chunks and digests."""
        return self._places.end - self._places.begin


class Part(EncodedRows):
    """A part of a version.

    Attributes
    ----------
    context
        The file and the column, for errors.
    cbytes
        The bytes of its chunks and digests.
    key
        The key of its file; "" if it has none.
    share
        The rows of the table that count as read with the part, for the progress.
    """

    streams: Mapping[int, StoredStream]

    def __init__(
        self,
        type_: pa.DataType,
        records: Records,
        number: int,
        file: ChunkFile | None,
        context: str,
    ) -> None:
        """Take the part of this number from records that were compared with the type."""
        record = records.parts[number].item()
        _, self.offset, rows, nbytes, self.cbytes = record[:5]
        _, page, flags, _, _ = record[5:]
        first, last = records.first_page[number : number + 2].tolist()
        streams: dict[int, StoredStream] = {}
        super().__init__(type_, rows, page, flags, records.pages[first:last], nbytes, streams)
        self.context, self.key = context, file.key if file is not None else ""
        self.share = float(rows)
        self._file = file
        first, last = records.first_stream[number : number + 2].tolist()
        items: list[tuple[Any, Array]] = []
        for place in range(first, last):
            record = records.streams[place].item()
            low, high = records.first_word[place : place + 2].tolist()
            words = records.words[low:high]
            if record[4] == PER_ITEM:
                items.append((record, words))
                continue
            low, high = records.first_chunk[place : place + 2].tolist()
            offsets = records.chunk_offset[low:high]
            if items:
                # The records have no chunks of items, which lie before these.
                offsets = offsets + self._item_bytes_of(records, number)
            streams[record[3]] = StoredStream(
                record, words, records.chunks[low:high], offsets, file
            )
        for record, words in items:
            streams[VALUES] = ItemStream(record, words, file, self._item_places(records, number))

    def _item_bytes_of(self, records: Records, number: int) -> int:
        """Return the bytes of the chunks of items and their digests."""
        low, high = records.first_chunk[records.first_stream[number : number + 2]].tolist()
        sizes = records.chunks["size"][low:high].astype(np.int64)
        return self.cbytes - int(sizes.sum()) - DIGEST_BYTES * len(sizes)

    def _item_places(self, records: Records, number: int) -> ItemPlaces:
        """Return where the chunks of items are: behind those of validity, before those of lengths.

        The offsets of all chunks of the file end where the first of them begins.
        """
        valid = self.streams.get(VALID)
        before = len(valid.sizes) if valid is not None else 0
        begin = self.offset + (valid.cbytes if valid is not None else 0)
        low, high = records.first_chunk[records.first_stream[number : number + 2]].tolist()
        table = self.offset - 8 * (high - low + self.rows - before)
        end = begin + self._item_bytes_of(records, number)
        return ItemPlaces(self.rows, self.offset, begin, end, table)

    @property
    def errors(self) -> ErrorContext:
        """Return what prefixes errors with the file and the column."""
        return ErrorContext(self.context)

    @cached_property
    def kept_nbytes(self) -> int:
        """Return the bytes that the part takes in memory while it is kept, about."""
        items = sum(stream.nbytes for stream in self.streams.values() if stream.name >= ITEMS_VALID)
        return PART_BYTES + sum(stream.words.nbytes for stream in self.streams.values()) + 2 * items

    @cached_property
    def row_bytes(self) -> float:
        """Return the bytes that a row takes when it is decoded, about."""
        nbytes = float(self.form.width)
        if self.form.form is Form.BYTES and self.rows:
            values = self.streams.get(VALUES)
            # What the record of the part says is for people.
            total = max(self.nbytes, values.nbytes if values is not None else 0)
            nbytes += max(total / self.rows - self.form.width, 0)
        has_bitmap = self.flags & NAN_IS_NULL or VALID in self.streams
        return nbytes + 1 / 8 if has_bitmap else nbytes

    @property
    def page_rows(self) -> int:
        """Return the rows of a page."""
        return 1 << self.page

    @property
    def is_doubted(self) -> bool:
        """True if its chunks claim far more bytes than they have; see DOUBTED_BYTES."""
        # Of items, each chunk is compared with its length before it is decompressed.
        streams = [stream for stream in self.streams.values() if stream.kind != PER_ITEM]
        claimed = sum([stream.nbytes for stream in streams])
        return claimed > DOUBTED_RATIO * sum([stream.cbytes for stream in streams])

    def prove(self) -> None:
        """Decompress all chunks to scratch memory; CorruptError if they claim what they lack."""
        with self.errors:
            for stream in self.streams.values():
                for _ in stream.runs(0, stream.nbytes) if stream.kind != PER_ITEM else ():
                    pass

    def ranges(self, chosen: Chosen) -> list[ByteRange]:
        """Return the ranges of the file that a decode of some rows may read."""
        return [
            (self.key, start, stop)
            for name, starts, stops in touched(self, chosen)
            for start, stop in self.streams[name].extents(starts, stops)
        ]

    def check(self) -> None:
        """Open the file; CorruptError if it is missing."""
        if self._file is not None:
            with self.errors:
                self._file.check()

    def array(self, chosen: slice | Chosen = slice(None)) -> pa.Array:
        """Return some rows as an array of the stored type; errors name the file and the chunk."""
        try:
            return super().array(chosen)
        except DAMAGED as error:
            raise self.errors.named(error) from None

    def allocate(self, nbytes: int) -> pa.Buffer:
        """Return memory; LimitError if the machine has less."""
        if nbytes > UNCHECKED_BYTES:
            check_memory(nbytes, self.context)
        return allocate(nbytes)

    def items_of_pages(self, start: int, stop: int) -> tuple[int, int]:
        """Return where the items of whole pages begin and end, as the records say."""
        stream = self.streams.get(LENGTHS)
        if stream is None or start >= stop:
            return 0, 0
        words = stream.words
        return int(words[start >> self.page]), int(words[-(-stop // self.page_rows)])


class _Described(NamedTuple):
    """A part in records that were compared with its type."""

    records: Records
    number: int
    # Live rows of the row group, and the number of its bundle, 0 for none.
    rows: int
    bundle: int


class OpenParts(Closing):
    """The parts of the reads of a version; each file is opened once.

    An open table has them as long as it is open, other readers for a read, or several in a row. A
    context manager: its end closes the files, even if the read failed.
    """

    def __init__(self, version: Version) -> None:
        """Open nothing yet."""
        self.version = version
        self.files = OpenFiles(version.store)
        self._parts: Cache[tuple[int, int], Part] = Cache()
        # By node and row group: records that were compared with its type.
        self._described: Cache[tuple[int, int], _Described] = version.made("described", Cache)

    def describe(self, lines: Sequence[int], groups: Sequence[int]) -> None:
        """Compare the records of nodes in some row groups, which ascend, with their types.

        All at once, because it costs little more than for one. Only the leaves that have these row
        groups are read.
        """
        known = self._described
        if known.keys() >= set(product(lines, groups)):
            return
        lines = [line for line in lines if any((line, group) not in known for group in groups)]
        self._describe(lines, groups)

    def _describe(
        self, lines: Sequence[int], groups: Sequence[int]
    ) -> dict[tuple[int, int], _Described]:
        version, wanted = self.version, np.asarray(groups, np.int64)
        records = version.records(lines, wanted)
        self.check_records(lines, records)
        of_groups = version.group_records(wanted)
        rows, bundles = of_groups["rows"].tolist(), of_groups["file"].tolist()
        nbytes = DESCRIBED_BYTES + records.nbytes // max(len(records.parts), 1)
        places = [(line, place) for line in lines for place in range(len(groups))]
        described = {
            (line, groups[place]): _Described(records, number, rows[place], bundles[place])
            for number, (line, place) in enumerate(places)
        }
        self._described.keep_all(described, nbytes)
        return described

    def check_records(self, lines: Sequence[int], records: Records) -> None:
        """Compare records with the types of nodes; CorruptError names the column."""
        of_type: dict[pa.DataType, list[int]] = {}
        for place, line in enumerate(lines):
            of_type.setdefault(self.version.node(line).type, []).append(place)
        entries = range(records.entries)
        for type_, places in of_type.items():
            some = records if len(places) == len(lines) else records.of(places, entries)
            try:
                check_type(type_, some)
            except CorruptError:
                for place in places:
                    name = self.version.node(lines[place]).name
                    with ErrorContext(f"{self.version.store.name}, column {name!r}"):
                        check_type(type_, records.of([place], entries))
                raise

    def open(self, line: int, group: int) -> Part:
        """Return the part of a node in a row group; it reads nothing."""
        part = self._parts.get((line, group))
        if part is None:
            known = self._described.get((line, group))
            if known is None:
                known = self._describe([line], [group])[line, group]
            version, node = self.version, self.version.node(line)
            records, number, rows, bundle = known
            key, stored = "", int(records.parts["file"][number])
            if stored:
                path = layout.SHARED if stored == bundle else version.paths[line]
                key = layout.part(path, stored)
            end = records.parts[number]["offset"] + records.parts[number]["cbytes"]
            file = PartFile(self.files, key, version, group, int(end)) if key else None
            name = f"{version.store.name}/{key}" if key else version.store.name
            part = Part(node.type, records, number, file, f"{name}, column {node.name!r}")
            # All nodes of a column together count as one column.
            part.share = (
                rows if version.is_flat else rows / len(version.nodes(version.field_of(line)))
            )
            part = self._parts.keep((line, group), part, part.kept_nbytes)
        return part

    def trim(self) -> None:
        """Give back what the process does not keep: files, and the parts that were opened first."""
        self.files.rest()
        trim()

    def forget_before(self, group: int) -> None:
        """Drop the parts of earlier row groups; a reader that has one may still use it."""
        # Iterate over a copy, because workers open parts at the same time.
        for known in (self._parts, self._described):
            for key in list(known):
                if key[1] < group:
                    known.forget(key)

    def close(self) -> None:
        """Close the files and drop the parts, after the last thread has finished with them."""
        self._parts.clear()
        self.files.close()
        trim()
