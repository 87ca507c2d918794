"""A bundle: one superchunk that has the parts of several columns in one row group.

A small part costs far more time than its bytes, as a file and as a superchunk of its own. So the
streams of many parts lie one behind the other in the chunks of a bundle. Its block has the streams
`entries` and `encodings`, then streams of bytes by the size of an item. An entry says where a
stream of a part is. The entries of a part follow each other: those of its block, also of streams
that the part lacks, then those of its children. A column's line has the number of its first entry.

Knows nothing of types, and neither compresses nor decompresses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from blztable.block_terms import MIN_PAGE_ROWS, PACKED
from blztable.errors import CorruptError, LimitError
from blztable.format import jsontext
from blztable.format.jsontext import Json
from blztable.format.metadata import MAX_PAGE_ROWS, BlockInfo

# The encoding of the block of a bundle, and its first streams.
BUNDLE = "bundle"
ENTRIES, ENCODINGS = "entries", "encodings"
# Bytes of `entries` and `encodings` together, which a read of one column needs whole.
MAX_DIRECTORY_BYTES = 64 << 20
# Each stream of a part begins at a multiple of so many bytes of its chunk.
ALIGNMENT = 8

# chunk, start, nbytes: where the bytes are; `chunk` counts all chunks of the bundle.
# encoding: 0 if these bytes are the values, otherwise the line of `encodings`, from 1.
# rows, page_rows: of the block, which has one page.
# base: the base of narrow and scaled values; the bytes of items, if these are encoded.
ENTRY = np.dtype(
    [(name, "<u4") for name in ("chunk", "start", "nbytes", "encoding", "rows", "page_rows")]
    + [("base", "<i8")]
)


@dataclass(frozen=True, slots=True)
class BundleMeta:
    """A bundle in the head: its number, and what recognises the superchunk."""

    k: int
    cbytes: int
    front_length: int
    trailer_length: int
    crc: int


Bundles = tuple[BundleMeta | None, ...]


def bundles_of_groups(value: Json, groups: int) -> Bundles:
    """Return the bundle of each row group, from the head; () if there are none."""
    if not value:
        return ()
    if not isinstance(value, dict):
        raise CorruptError("the head of a manifest: 'bundles' is not an object")
    names = BundleMeta.__slots__
    arrays = (jsontext.numbers(value.get(name), "bundles", groups) for name in names)
    bundles = tuple(BundleMeta(*meta) if meta[0] else None for meta in zip(*arrays, strict=True))
    found = [bundle.k for bundle in bundles if bundle]
    if len(set(found)) != len(found):
        raise CorruptError("the head of a manifest: two row groups have the same bundle")
    return bundles if found else ()


def bundles_to_json(bundles: Bundles) -> Json:
    """Return the bundles as the head has them."""
    names = BundleMeta.__slots__
    return {name: [getattr(one, name) if one else 0 for one in bundles] for name in names}


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries of a bundle, checked, and the lines of its encodings."""

    entries: np.ndarray
    encodings: Sequence[bytes]

    @classmethod
    def decode(cls, entries: bytes, encodings: bytes, info: BlockInfo) -> Self:
        """Read the two streams; CorruptError if an entry leads out of the bundle."""
        if len(entries) % ENTRY.itemsize:
            raise CorruptError(f"entries of {len(entries)} bytes; one has {ENTRY.itemsize}")
        found = np.frombuffer(entries, ENTRY)
        if encodings.count(b"\n") > len(found):
            raise CorruptError(f"more encodings than the {len(found)} entries")
        lines = encodings.split(b"\n")[:-1]
        sizes = np.array(chunk_sizes(info), np.int64)
        first = sum(len(stream.chunks) for stream in info.streams[:2])
        held = found[found["nbytes"] > 0]
        chunks = held["chunk"].astype(np.int64)
        if len(held) and not first <= chunks.min() <= chunks.max() < len(sizes):
            raise CorruptError("an entry names a chunk that has no bytes of parts")
        if (held["start"].astype(np.int64) + held["nbytes"] > sizes[chunks]).any():
            raise CorruptError("an entry leads out of its chunk")
        if len(found) and found["encoding"].max() > len(lines):
            raise CorruptError("an entry names an encoding that the bundle does not have")
        pages = found["page_rows"]
        is_page = (pages >= MIN_PAGE_ROWS) & (pages <= MAX_PAGE_ROWS) & (pages & (pages - 1) == 0)
        if not (is_page & (found["rows"] <= pages)).all():
            raise CorruptError("an entry has no valid number of rows")
        return cls(found, lines)

    def encoding(self, number: int) -> dict[str, jsontext.Json]:
        """Return an encoding by its number, from 1, as JSON."""
        value = jsontext.loads(self.encodings[number - 1], "an encoding of a bundle")
        if not isinstance(value, dict):
            raise CorruptError("an encoding of a bundle is not an object")
        return value


def page_rows_of(rows: int) -> int:
    """Return the rows of the one page of a block with so many rows."""
    return max(MIN_PAGE_ROWS, 1 << max(rows - 1, 0).bit_length())


def chunk_sizes(info: BlockInfo) -> list[int]:
    """Return the uncompressed bytes of each chunk of a bundle.

    Raise CorruptError for another block, and LimitError if its first two streams are too large.
    """
    names = [stream.name for stream in info.streams]
    if info.encoding != BUNDLE or names[:2] != [ENTRIES, ENCODINGS] or info.children:
        raise CorruptError(f"encoding {info.encoding!r} with streams {names!r:.100}; not a bundle")
    if info.packing != PACKED:
        raise CorruptError(f"a bundle has packing {info.packing!r}; expected {PACKED!r}")
    if any(stream.pages is not None or stream.encoding is not None for stream in info.streams):
        raise CorruptError("a stream of a bundle has pages or an encoding")
    nbytes = sum(stream.nbytes for stream in info.streams[:2])
    if nbytes > MAX_DIRECTORY_BYTES:
        raise LimitError(
            f"entries and encodings have {nbytes} bytes; at most {MAX_DIRECTORY_BYTES} are read"
        )
    return [size for stream in info.streams for size in stream.chunks]
