"""Rows of a part as requests for bytes: which bytes of which streams they are, and their sinks.

`SpanRows` are whole pages, decoded in place. `PickedRows` are single rows, picked out of the chunks
of their pages; the offsets of text items are located first, in a separate phase. Both have a method
for each phase of the reader (`columns.py`): locate the items, plan the pieces of the result, fill
them with bytes, settle the picked rows.

A child of a block (a dictionary) is read whole. Opens nothing and decodes nothing itself.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from blztable.block_terms import ENDS, VALUES
from blztable.columns.blocks import Decoder, Piece, Target
from blztable.columns.codecs.lists import ROWS
from blztable.columns.encodings.dictionary import Dictionary
from blztable.columns.encodings.numbers import Delta, Scaled
from blztable.columns.picks import Bits, Bytes, Codes, Ends, PickedItems, Sums, Words
from blztable.columns.sinks import DecodingNulls, Items, Memory, Shifted, Sink
from blztable.engine.read.chunks import ByteRequest, Run, runs
from blztable.engine.read.parts import BlockPlace, Part, StreamPlace
from blztable.engine.read.selection import RowSpan

# Takes bytes that are only checked.
_CHECKED = Sink()


class PartRows:
    """The selected rows of one part."""

    def __init__(self, part: Part) -> None:
        """Remember the part; `plan` fills the pieces."""
        self.part = part
        self.pieces: list[Piece] = []

    def locate(self) -> Iterator[Run]:
        """Yield the runs to decode before the size of the rows is known; none for whole pages."""
        return iter(())

    def plan(self) -> None:
        """Describe the rows as `pieces`."""
        raise NotImplementedError

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[Run]:
        """Yield the runs to decode; `first` is the index of the first piece in the decoder.

        Without a decoder, chunks are checked and dropped.
        """
        raise NotImplementedError

    def settle(self) -> None:
        """Copy the picked rows into the targets, and check them; pages are there already."""


class SpanRows(PartRows):
    """Whole pages of a part."""

    def __init__(self, part: Part, spans: Sequence[RowSpan]) -> None:
        """Remember the rows."""
        super().__init__(part)
        self._spans = spans

    @property
    def is_whole(self) -> bool:
        """True if these are all rows of the part."""
        return len(self._spans) == 1 and self._spans[0].count == self.part.rows

    def plan(self) -> None:
        """Describe each span as a piece."""
        root, children = self.part.root, _child_pieces(self.part.root)
        self.pieces = [_piece_of_pages(root, span, children) for span in self._spans]

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[Run]:
        """Yield the runs of every stream, in the order of the file."""
        root = self.part.root
        for name, place in root.streams.items():
            requests = []
            for number, span in enumerate(self._spans, first):
                low, high = place.range_of(span.start, span.stop)
                if place.layout.bits == 1 and span.start % 8:
                    low = span.start // 8
                    target = decoder.target(number, name) if decoder else None
                    sink = Shifted(target, span.start, span.count) if target else _CHECKED
                    requests.append(ByteRequest(low, high, place.decoding(sink)))
                elif low < high and isinstance(place.encoding, Dictionary):
                    sink = _items(place.encoding, span, decoder, number)
                    requests.append(ByteRequest(low, high, sink))
                elif low < high:
                    target = decoder.target(number, name) if decoder else None
                    first_value, _ = place.value_range(span.start, span.stop)
                    requests.append(ByteRequest(low, high, _memory(place, target, first_value)))
            yield from runs(self.part, place, requests)
        yield from _fill_children(self.part, root, decoder, first)


class PickedRows(PartRows):
    """Single rows of a part, in ascending order."""

    def __init__(self, part: Part, rows: np.ndarray, pages: Sequence[RowSpan]) -> None:
        """Remember the rows and the pages that have them."""
        super().__init__(part)
        self._rows = rows
        self._pages = pages
        self._ends: Ends | PickedItems | None = None
        # Each target, and the function that makes its bytes if they are not there already.
        self._picked: list[tuple[StreamPlace, Target, Callable[[], np.ndarray] | None]] = []

    def locate(self) -> Iterator[Run]:
        """Yield the runs of the item ends, if the rows are items."""
        root = self.part.root
        place = root.streams.get(ENDS)
        if place is not None and isinstance(place.encoding, Dictionary):
            self._ends = PickedItems(self._rows, place.encoding)
            yield from self._runs(place, self._ends)
        elif place is not None:
            values, width = root.streams[VALUES], place.layout.typesize
            bounds = (values.bound_rows, values.bounds)
            ends = self._ends = Ends(self._rows, width, root.rows, *bounds)
            yield from self._runs(place, place.decoding(ends))

    def plan(self) -> None:
        """Describe the rows as one piece, as if the part had no other rows."""
        ends, rows, sizes = self._ends, len(self._rows), {}
        if ends is not None:
            with self.part.error_context(self.part.root.streams[ENDS].name):
                ends.check()
        for name, place in self.part.root.streams.items():
            if place.layout.bits is not None:
                sizes[name] = place.layout.nbytes(rows)
            else:
                assert ends is not None
                sizes[name] = ends.nbytes
        children = _child_pieces(self.part.root)
        nan_is_null = self.part.root.nan_is_null
        self.pieces = [
            Piece(rows, sizes, page_rows=rows, children=children, nan_is_null=nan_is_null)
        ]

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[Run]:
        """Yield the runs of every stream but the item ends, which are known."""
        root = self.part.root
        yield from _fill_children(self.part, root, decoder, first)
        for name, place in root.streams.items():
            if decoder is None:
                if name != ENDS:
                    yield from self._runs(place, _CHECKED)
                continue
            target = decoder.target(first, name)
            if self._ends is not None and name == ENDS:
                self._picked.append((place, target, self._ends.encode))
                continue
            if isinstance(self._ends, PickedItems) and name == VALUES:
                self._picked.append((place, target, self._ends.items))
                continue
            if place.encoding is not None and not place.has_chunks:
                self._picked.append((place, target, None))
                place.encoding.pick(self._rows, target.buffer, target.buffer)
                continue
            aside: Bits | Codes | Sums | None = None
            if place.layout.bits == 1:
                aside = Bits(self._rows)
            elif isinstance(place.encoding, Delta):
                aside = Sums(self._rows, place.encoding)
            elif place.encoding is not None and not place.encoding.needs_pages:
                aside = Codes(self._rows, place.encoding, place.layout.nbytes(1))
            self._picked.append((place, target, aside.encode if aside else None))
            sink = aside or place.decoding(self._within(place, target))
            is_items = isinstance(self._ends, Ends) and name == VALUES
            yield from self._items_runs(place, sink) if is_items else self._runs(place, sink)

    def _within(self, place: StreamPlace, target: Target) -> Sink:
        """Return the sink that copies the rows into the target."""
        if place.layout.bits is not None:
            return Words(self._rows, place.layout.bits // 8, target.buffer)
        assert isinstance(self._ends, Ends)
        return Bytes(self._ends.starts, self._ends.ends, target.buffer)

    def settle(self) -> None:
        """Encode the picked rows of some sinks into their target, and check each target."""
        for place, target, make in self._picked:
            if make is not None:
                target.buffer[:] = make()
            if target.check is not None and len(target.buffer):
                with self.part.error_context(place.name):
                    target.check(0, len(target.buffer))

    def _runs(self, place: StreamPlace, sink: Sink) -> Iterator[Run]:
        """Yield the runs of the pages that have the rows."""
        ranges = (place.range_of(span.start, span.stop) for span in self._pages)
        requests = [ByteRequest(low, high, sink) for low, high in ranges if low < high]
        return runs(self.part, place, requests)

    def _items_runs(self, place: StreamPlace, sink: Sink) -> Iterator[Run]:
        """Yield the runs of the chunks that have the items: the rest of a page is not read."""
        assert isinstance(self._ends, Ends)
        filled = self._ends.starts < self._ends.ends
        starts, ends = self._ends.starts[filled], self._ends.ends[filled]
        if not len(starts):
            return iter(())
        bounds = np.array(place.bounds)
        if place.bound_rows > 1:
            bounds = np.cumsum([0, *place.info.chunks])
        first = np.searchsorted(bounds, starts, "right") - 1
        last = np.searchsorted(bounds, ends)
        # Items that share a chunk, or lie in adjacent ones, become one request.
        gaps = np.flatnonzero(first[1:] > last[:-1])
        lows, highs = bounds[first[[0, *(gaps + 1)]]], bounds[last[[*gaps, -1]]]
        requests = [
            ByteRequest(low, high, sink)
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
        return runs(self.part, place, requests)


def _items(encoding: Dictionary, span: RowSpan, decoder: Decoder | None, number: int) -> Items:
    """Return the sink that makes the items of whole pages, or checks how many bytes they have."""
    pages = range(span.start // encoding.page_rows, -(-span.stop // encoding.page_rows))
    targets = (decoder.target(number, name) if decoder else None for name in (ENDS, VALUES))
    return Items(encoding, pages, *targets)


def _memory(place: StreamPlace, target: Target | None, low: int) -> Sink:
    if target is None:
        return _CHECKED
    if target.valid is not None and isinstance(place.encoding, Scaled):
        one, unit = place.encoding, 8 * place.encoding.stored.nbytes(1)
        if one.has_all_nans and not any(nbytes % unit for nbytes in place.info.chunks[:-1]):
            return DecodingNulls(one, Memory(Target(target.buffer), low), target.valid, low // 8)
    if place.encoding is None or place.layout.name != ENDS:
        return place.decoding(Memory(target, low))
    # Ends that are made of lengths ascend, and fill their pages.
    return place.decoding(Memory(Target(target.buffer), low), target.shift)


def _child_pieces(block: BlockPlace) -> dict[str, Piece]:
    """Describe the children of a block, which are read whole; all pieces of a part share them."""
    return {
        name: Piece(
            child.rows,
            {stream: place.nbytes for stream, place in child.streams.items()},
            children=_child_pieces(child),
        )
        for name, child in block.children.items()
    }


def _fill_children(
    part: Part, block: BlockPlace, decoder: Decoder | None, number: int
) -> Iterator[Run]:
    """Yield the runs of all children, which the pieces of one part share."""
    for name, child in block.children.items():
        below, index = decoder.child(number, name) if decoder else (None, 0)
        for stream, place in child.streams.items():
            if place.decoded:
                target = below.target(index, stream) if below else None
                request = ByteRequest(0, place.decoded, _memory(place, target, 0))
                yield from runs(part, place, [request])
        yield from _fill_children(part, child, below, index)


def _piece_of_pages(block: BlockPlace, span: RowSpan, children: dict[str, Piece]) -> Piece:
    """Describe whole pages of a block."""
    page_rows = block.page_rows
    sizes, first_byte, items = {}, 0, 0
    pages: tuple[int, ...] = ()
    for name, place in block.streams.items():
        low, high = place.value_range(span.start, span.stop)
        if place.layout.dtype == ROWS:
            items = high - low
        elif place.layout.bits == 1:
            sizes[name] = place.layout.nbytes(span.count)
        else:
            sizes[name] = high - low
        if place.info.pages is not None:
            first_byte = low
        if place.info.pages is not None and place.bound_rows == page_rows:
            pages = place.info.pages[span.start // page_rows : -(-span.stop // page_rows)]
    return Piece(
        span.count, sizes, first_byte, page_rows, pages, children, block.nan_is_null, items
    )
