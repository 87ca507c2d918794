"""How a column is stored: encoding, codec and sizes of its streams.

Reads fronts, trailers and the headers of chunks, and decodes nothing.
"""

from dataclasses import dataclass, field

from blztable.arrow.nested.nodes import Node
from blztable.engine.read.parts import OpenParts, Part
from blztable.engine.read.places import StreamPlace
from blztable.engine.version.projection import Projection
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
from blztable.report import StreamStorage


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
