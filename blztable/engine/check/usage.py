"""Usage: what takes the space of a table, and how its columns are stored.

Reads manifests and the sizes of files; of parts the fronts, the trailers and the headers of chunks.
Decodes nothing.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from blztable.arrow.nested.nodes import Node
from blztable.engine.read.parts import OpenParts, Part, StreamPlace
from blztable.engine.version import versions
from blztable.engine.version.projection import Projection
from blztable.engine.version.retention import Counted
from blztable.engine.version.versions import DAMAGED, Version
from blztable.format.chunk import (
    BIT,
    BIT_SHUFFLE,
    BYTE,
    BYTE_SHUFFLE,
    CHUNK_HEADER,
    CODEC_NAMES,
    CODEC_SHIFT,
    MEMCPYED,
    ChunkHeader,
)
from blztable.report import DiskUsage, StreamStorage
from blztable.storage.store import KeyNotFound, Store


def disk_usage(store: Store) -> DiskUsage:
    """Return the bytes of the newest version, of older ones, and of everything else.

    Raises
    ------
    CorruptError
        The newest manifest is damaged.
    """
    newest, pinned = versions.pin(store)
    with pinned:
        counted = Counted()
        own = counted.add(newest)
        names = set(newest.head.tags.values())
        tagged = _bytes(counted, store, names, newest)
        others = set(versions.numbers(store)) - names - {newest.head.version}
        older = _bytes(counted, store, others, newest)
        total = store.nbytes
    # Another process may have removed files since they were counted.
    return DiskUsage(own, tagged, older, max(total - own - tagged - older, 0))


def _bytes(counted: Counted, store: Store, numbers: Iterable[int], newest: Version) -> int:
    """Return the bytes that these versions take beside those counted."""
    nbytes = 0
    for number in sorted(numbers, reverse=True):
        # The files of a damaged version are unknown: no version names them.
        with suppress(*DAMAGED, KeyNotFound):
            nbytes += counted.add(versions.read(store, number), newest)
    return nbytes


@dataclass(slots=True)
class _Found:
    """What the parts of a column say about one stream; dicts keep the order of the parts."""

    encodings: dict[str, None] = field(default_factory=dict)
    codecs: dict[str, None] = field(default_factory=dict)
    nbytes: int = 0
    nbytes_encoded: int = 0
    cbytes: int = 0


def streams_of(projection: Projection, index: int) -> tuple[StreamStorage, ...]:
    """Return how the streams of a column are stored, node by node, in the order of the files."""
    found: dict[str, _Found] = {}
    nodes = Node.of(projection.schema.field(index).type).names("")
    for node, line in zip(nodes, projection.nodes(index), strict=True):
        # A stream of a child is named after it: "item.values".
        prefix = f"{node}.".removeprefix(".")
        for group in range(len(projection.version.head.row_groups)):
            with OpenParts(projection.version) as parts:
                part = parts.open(line, group)
                for name, place in part.streams.items():
                    _add(found.setdefault(prefix + name, _Found()), part, place)
    return tuple(
        StreamStorage(
            name,
            tuple(one.encodings),
            tuple(one.codecs),
            one.nbytes,
            one.nbytes_encoded,
            one.cbytes,
        )
        for name, one in found.items()
    )


def _add(found: _Found, part: Part, place: StreamPlace) -> None:
    found.encodings[place.kind] = None
    found.nbytes += place.nbytes
    found.nbytes_encoded += place.info.nbytes
    if not place.info.chunks:
        return
    superchunk, reader, first = part.superchunk, part.reader, place.first_chunk
    last, share = first + len(place.info.chunks), 1.0
    # An empty item has no codec.
    shown = next((chunk for chunk, size in enumerate(place.info.chunks) if size), 0)
    if part.bundle is not None:
        superchunk, reader = part.bundle.superchunk, part.bundle.reader
        first, _ = part.slots[first]
        last, share = first + 1, place.info.nbytes / part.bundle.sizes[first]
    assert superchunk is not None
    assert reader is not None
    offsets = superchunk.offsets
    found.cbytes += int((offsets[last] - offsets[first]) * share)
    with part.error_context():
        found.codecs[_codec(reader.read(offsets[first + shown], CHUNK_HEADER.size))] = None


def _codec(header: bytes) -> str:
    """Return codec and shuffle of a chunk; its header is not checked beyond its length."""
    flags = ChunkHeader.decode(header).flags
    if flags & MEMCPYED:
        return "stored"
    codec = CODEC_NAMES.get(flags >> CODEC_SHIFT, f"codec {flags >> CODEC_SHIFT}")
    shuffle = BYTE if flags & BYTE_SHUFFLE else BIT if flags & BIT_SHUFFLE else ""
    return f"{codec}, {shuffle}" if shuffle else codec
