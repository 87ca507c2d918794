"""Changes of an array: the chunks to write, and the array that they make.

Nothing here writes. An `Own` is not changed, a change makes another. Knows nothing of files.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from blztable.arrays.encoding import encode_chunk, encode_item, in_slot, truncated
from blztable.arrays.files.chunks import Chunks
from blztable.arrays.files.front import Front
from blztable.arrays.files.info import ArrayInfo
from blztable.arrays.files.own import Own
from blztable.arrays.reading import FEWER
from blztable.engine.run.limits import check_memory
from blztable.errors import LimitError
from blztable.format import jsontext
from blztable.format.bloscpack import HEADER, MAX_CHUNKS, MAX_METADATA_BYTES
from blztable.storage.journal import Write

# A reader takes no more items.
MAX_ITEMS = jsontext.MAX_NUMBER


def resized(info: ArrayInfo, rows: int) -> ArrayInfo:
    """Return the metadata of an array with so many rows; LimitError if it cannot be kept."""
    info = replace(info, shape=(rows, *info.shape[1:]))
    if math.prod(size or 1 for size in info.shape) > MAX_ITEMS:
        raise LimitError(f"an array of shape {info.shape}; at most {MAX_ITEMS} items are kept")
    chunks = math.prod(info.grid.counts)
    if chunks > MAX_CHUNKS:
        remedy = "keep them in a table" if info.items else "make them larger, with chunk_shape="
        raise LimitError(
            f"an array of shape {info.shape} has {chunks} chunks; at most {MAX_CHUNKS} fit, "
            f"so {remedy}"
        )
    return info


def slabs(blocks: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Yield the rows of the blocks again, `rows` at a time, and the rest."""
    held: list[np.ndarray] = []
    count = 0
    for block in blocks:
        at = 0
        while at < len(block):
            piece = block[at : at + rows - count]
            held.append(piece)
            count += len(piece)
            at += len(piece)
            if count == rows:
                yield _joined(held)
                held, count = [], 0
    if held:
        yield _joined(held)


def _joined(blocks: list[np.ndarray]) -> np.ndarray:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


class Growth:
    """The rows of an array from some row on are replaced, one slab after another."""

    def __init__(self, own: Own, first: int) -> None:
        info = own.front.info
        assert first % info.chunk_shape[0] == 0
        keep = first // info.chunk_shape[0] * info.grid.per_row
        self._own = own
        self._info = replace(info, shape=(first, *info.shape[1:]))
        self._offsets = own.offsets[:keep]
        self._digests = own.digests[:keep]
        self._end = own.offsets[keep] if keep < len(own.offsets) else own.end

    def add(self, slab: np.ndarray) -> Write:
        """Encode the next rows, a whole row of chunks but for the last; return what to write."""
        rows = self._info.shape[0] + len(slab)
        self._info = info = resized(self._info, rows)
        at = self._end
        made: list[bytes] = []
        for chunk in _encoded(info, slab, len(self._offsets)):
            digest = self._own.front.checksum.digest(chunk)
            self._offsets.append(self._end)
            self._digests.append(digest)
            self._end += len(chunk) + len(digest)
            made += (chunk, digest)
        return at, b"".join(made)

    def own(self) -> Own:
        """Return the array with all rows that were added."""
        return replace(
            self._own,
            front=self._own.front.with_info(self._info),
            offsets=self._offsets,
            digests=self._digests,
            end=self._end,
        )


def _encoded(info: ArrayInfo, slab: np.ndarray, first: int) -> Iterator[bytes]:
    """Yield the chunks of the last rows of an array, the first of which has a number."""
    if info.items:
        yield from (encode_item(info, item) for item in slab)
        return
    begin = info.shape[0] - len(slab)
    slab = truncated(slab, info.decimals)
    for number in range(first, len(info.grid)):
        rows, *others = info.grid.box(number)
        piece = slab[(slice(rows.start - begin, rows.stop - begin), *others)]
        yield encode_chunk(info, piece)


def replaced(own: Own, values: Mapping[int, np.ndarray]) -> tuple[Own, list[Write]]:
    """Return the array with other items in some chunks; LimitError if they do not fit.

    A chunk keeps its place. Only the last one may become larger.
    """
    info = own.front.info
    digests, end = list(own.digests), own.end
    writes: list[Write] = []
    last = len(own.offsets) - 1
    for number, items in values.items():
        start = own.offsets[number]
        size = own.front.checksum.size
        slot = (own.offsets[number + 1] if number < last else own.end) - start - size
        items = truncated(items, info.decimals)
        if number == last:
            chunk = encode_chunk(info, items)
            end = start + len(chunk) + size
        else:
            chunk = _fitted(encode_chunk(replace(info, reserve=0), items), slot, number)
        digests[number] = own.front.checksum.digest(chunk)
        writes.append((start, chunk + digests[number]))
    return replace(own, digests=digests, end=end), writes


def exchanged(own: Own, chunks: Chunks, items: Mapping[int, object]) -> tuple[Own, list[Write]]:
    """Return the array with other items of any length.

    A chunk keeps its place if the item fits there. If one does not, those behind it move.
    """
    info = own.front.info
    digest = own.front.checksum.digest
    digests = list(own.digests)
    writes: list[Write] = []
    fixed = len(own.offsets)
    for number in sorted(items):
        plain = encode_item(replace(info, reserve=0), items[number])
        chunk = in_slot(plain, chunks.lengths[number])
        if chunk is None:
            fixed = number
            break
        digests[number] = digest(chunk)
        writes.append((own.offsets[number], chunk + digests[number]))
    if fixed == len(own.offsets):
        return replace(own, digests=digests), writes
    end = own.offsets[fixed]
    check_memory(own.end - end, chunks.source.name, FEWER)
    offsets = own.offsets[:fixed]
    moved: list[bytes] = []
    for number in range(fixed, len(own.offsets)):
        is_new = number in items
        chunk = encode_item(info, items[number]) if is_new else chunks.read(number)
        offsets.append(end)
        digests[number] = digest(chunk)
        moved += (chunk, digests[number])
        end += len(chunk) + len(digests[number])
    writes.append((offsets[fixed], b"".join(moved)))
    return replace(own, offsets=offsets, digests=digests, end=end), writes


def _fitted(chunk: bytes, slot: int, number: int) -> bytes:
    """Return the chunk in its slot."""
    fitted = in_slot(chunk, slot)
    if fitted is None:
        raise LimitError(
            f"chunk {number} needs {len(chunk)} bytes, its slot has {slot}; "
            "rewrite(reserve=...) makes room"
        )
    return fitted


def with_trailer(own: Own) -> tuple[Own, bytes, bytes]:
    """Return the array with the place of its trailer, its finished front, and the trailer.

    Offsets for which the front has no room move to the trailer.
    """
    front = own.front
    info = front.info
    if info.room and len(own.offsets) > info.room:
        if front.length - HEADER.size > MAX_METADATA_BYTES:
            raise LimitError(f"there is room for {info.room} chunks; rewrite() makes more")
        front = front.without_offsets()
    if front.is_stream:
        trailer = replace(own, front=front).trailer()
        return own, own.encoded_front(is_finished=True), trailer
    # The trailer has a checksum over the front, which states the length of the trailer.
    draft = replace(own, front=_placed(front, own.end, 0))
    own = replace(own, front=_placed(front, own.end, len(draft.trailer())))
    return own, own.encoded_front(is_finished=True), own.trailer()


def _placed(front: Front, trailer: int, length: int) -> Front:
    return front.with_info(replace(front.info, trailer=trailer, trailer_length=length))


def new_front(front: Front, info: ArrayInfo) -> Front:
    """Return the front of an array without chunks with other metadata; its length may change."""
    return Front.new(front.version, front.checksum, info, is_stream=front.is_stream)
