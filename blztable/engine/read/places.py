"""The streams of a part: where their chunks are, and how values come from them.

`place` matches the blocks of a superchunk with the type of the column, and checks that they fit
together. Knows no files; its errors have no context.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

from blztable.arrow.types import is_text
from blztable.block_terms import CODES, ENDS, PER_ITEM, PLAIN, VALID, VALUES, child_prefix
from blztable.columns.blocks import Encoding, StreamLayout
from blztable.columns.codecs.lists import ROWS, Below
from blztable.columns.encodings.dictionary import Dictionary, Spelled
from blztable.columns.encodings.items import ByChunks
from blztable.columns.encodings.parse import Owner, parse
from blztable.columns.sinks import Decoding, Sink
from blztable.columns.types import layout_of
from blztable.errors import CorruptError
from blztable.format.metadata import BlockInfo, StreamInfo


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A stream of a part: its form, its chunks and its pages.

    Attributes
    ----------
    name
        The full name, as in ``dictionary.values``.
    layout, info
        The form of the stream by its type, and its description in the file.
    first_chunk
        The index of the stream's first chunk in the superchunk.
    bounds, bound_rows
        Byte offset of each page, and the end of the last one; empty if rows have a fixed size. If
        each item is a chunk, the same of each row. Rows from one offset to the next.
    nbytes
        The bytes of the values.
    encoding
        How the values come from the bytes of the file; None if these are the values.
    """

    name: str
    layout: StreamLayout
    info: StreamInfo
    first_chunk: int
    bounds: tuple[int, ...]
    bound_rows: int
    nbytes: int
    encoding: Encoding | None = None

    def decoding(self, sink: Sink, shift: int = 0) -> Sink:
        """Return the sink for the bytes of the file, given the sink for the values.

        `shift` is added to item ends that an encoding makes.
        """
        if self.encoding is None:
            return sink
        encoding = self.encoding.shifted(shift) if shift else self.encoding
        return Decoding(encoding, self.layout.typesize, sink)

    @property
    def kind(self) -> str:
        """Return the kind of the encoding, "plain" if there is none."""
        return self.encoding.kind if self.encoding else PLAIN

    @property
    def has_chunks(self) -> bool:
        """True if the bytes are in the file; False if the encoding makes them of nothing."""
        return self.encoding is None or self.encoding.has_codes

    @property
    def decoded(self) -> int:
        """Return the bytes that are decompressed, or made of nothing."""
        return self.info.nbytes if self.has_chunks else self.nbytes

    def range_of(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of bytes before decoding of these rows, from bound to bound."""
        if self.encoding is not None:
            return self.encoding.stored.nbytes(start), self.encoding.stored.nbytes(stop)
        return self.value_range(start, stop)

    def value_range(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of bytes of the values of these rows, as if they were not encoded."""
        if self.info.pages is None:
            return self.layout.nbytes(start), self.layout.nbytes(stop)
        return self.bounds[start // self.bound_rows], self.bounds[-(-stop // self.bound_rows)]


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """A node of a part's tree: its streams by their own names, and its children."""

    rows: int
    page_rows: int
    streams: Mapping[str, StreamPlace]
    children: Mapping[str, "BlockPlace"]
    # True if the rows are null where the value is NaN, as the line of the column says.
    nan_is_null: bool = False

    def walk(self) -> Iterator[StreamPlace]:
        """Yield every stream of the tree, in the order of the chunks."""
        yield from self.streams.values()
        for child in self.children.values():
            yield from child.walk()


def place(info: BlockInfo, type_: pa.DataType, prefix: str, first_chunk: int) -> BlockPlace:
    """Match a block, and its children, with the layouts of their types and encodings."""
    layout = layout_of(type_, info.encoding)
    names = [stream.name for stream in info.streams]
    if [name for name in layout.streams if name in names] != names:
        raise CorruptError(f"streams {names}; a column of {type_} has {list(layout.streams)}")
    for name in layout.streams:
        if name not in names and name != VALID:
            raise CorruptError(f"no stream {name!r} in a column of {type_}")
    if info.children.keys() != layout.children.keys():
        raise CorruptError(
            f"children {list(info.children)}; a column of {type_} has {list(layout.children)}"
        )
    streams = {}
    for stream in info.streams:
        own = stored = layout.streams[stream.name]
        encoding = None
        if stream.encoding is not None:
            items = next((one for one in info.streams if one.name == VALUES), None)
            pages = items.pages if items else None
            chunks = items.chunks if items and info.packing == PER_ITEM else None
            facts = (info.rows, info.page_rows, pages)
            owner = Owner(own, *facts, is_text(type_), bool(prefix), chunks)
            encoding = parse(stream.encoding, owner, stream.dtype)
            stored = encoding.stored
        if own.dtype == ROWS and not isinstance(encoding, Below):
            raise CorruptError("the items of a list are not rows of another part")
        rows = info.rows if encoding is None or encoding.has_codes else 0
        if (stream.pages is None) != (own.bits is not None):
            raise CorruptError(
                f"stream {prefix + stream.name!r}: pages where the bits of a row vary"
            )
        _check_stream(stream, stored, rows, prefix, type_)
        if encoding and encoding.needs_pages:
            _check_whole_pages(stream, stored.nbytes(info.page_rows))
        is_items = info.packing == PER_ITEM and stream.name == VALUES
        sizes = stream.chunks if is_items else stream.pages or ()
        bounds = () if stream.pages is None else tuple(accumulate(sizes, initial=0))
        bound_rows = 1 if is_items else info.page_rows
        nbytes = own.nbytes(info.rows) if own.bits is not None else bounds[-1]
        if own.dtype == ROWS:
            # The pages count rows, whose bytes are in another part.
            nbytes = 0
        streams[stream.name] = StreamPlace(
            prefix + stream.name,
            own,
            stream,
            first_chunk,
            bounds,
            bound_rows,
            nbytes,
            encoding,
        )
        first_chunk += len(stream.chunks)
    _check_dictionary(streams)
    _check_packing(info, streams)
    children = {}
    for name, child in info.children.items():
        children[name] = place(
            child, layout.children[name], child_prefix(prefix, name), first_chunk
        )
        first_chunk += sum(len(stream.chunks) for _, stream in child.walk())
    return BlockPlace(info.rows, info.page_rows, streams, children)


def _check_stream(
    stream: StreamInfo, layout: StreamLayout, rows: int, prefix: str, type_: pa.DataType
) -> None:
    """Raise CorruptError unless a stream has the form and the size of its layout."""
    name, bits = prefix + stream.name, layout.bits
    # A genuine Bloscpack file does not name a dtype.
    if stream.dtype not in (layout.dtype, "") or stream.typesize != layout.typesize:
        raise CorruptError(f"stream {name!r} does not have the form of a stream of {type_}")
    if bits is not None and stream.nbytes != layout.nbytes(rows):
        raise CorruptError(
            f"stream {name!r} has {stream.nbytes} bytes; {rows} rows take {layout.nbytes(rows)}"
        )
    width = (bits or 8) // 8
    is_cut = stream.encoding is not None or stream.name in (ENDS, CODES)
    if is_cut and any(size % width for size in stream.chunks):
        raise CorruptError(f"stream {name!r}: a chunk boundary lies within an entry")


def _check_whole_pages(stream: StreamInfo, page_bytes: int) -> None:
    """Raise CorruptError if a chunk, which is decoded by itself, ends within a page."""
    if any(size % page_bytes for size in stream.chunks[:-1]):
        raise CorruptError(f"stream {stream.name!r}: a chunk boundary lies within a page")


def _check_packing(info: BlockInfo, streams: Mapping[str, StreamPlace]) -> None:
    """Raise CorruptError unless ends follow from chunks if, and only if, each item is one."""
    ends, values = streams.get(ENDS), streams.get(VALUES)
    is_by_chunks = ends is not None and isinstance(ends.encoding, ByChunks)
    if is_by_chunks != (info.packing == PER_ITEM) or (is_by_chunks and values and values.encoding):
        raise CorruptError(f"packing {info.packing!r} of streams that are not encoded so")


def _check_dictionary(streams: Mapping[str, StreamPlace]) -> None:
    """Raise CorruptError if only one of the two streams of items is in a dictionary."""
    ends, values = streams.get(ENDS), streams.get(VALUES)
    is_spelled = values is not None and isinstance(values.encoding, Spelled)
    if is_spelled != (ends is not None and isinstance(ends.encoding, Dictionary)):
        raise CorruptError("encoding 'dictionary' of only one of 'ends' and 'values'")
