"""How a column is stored: encoding, codec and sizes of its streams.

Reads fronts, trailers and the headers of chunks, and decodes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from blztable.engine.read.parts import OpenParts, Part
from blztable.engine.read.places import StreamPlace
from blztable.engine.version.versions import Version
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


def streams_of(version: Version, index: int) -> tuple[StreamStorage, ...]:
    """Return how the streams of a column are stored, in the order of the file."""
    found: dict[str, _Found] = {}
    for group in range(len(version.head.row_groups)):
        with OpenParts(version) as parts:
            part = parts.open(index, group)
            for name, place in part.streams.items():
                _add(found.setdefault(name, _Found()), part, place)
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
    if place.info.chunks:
        first, last = place.first_chunk, place.first_chunk + len(place.info.chunks)
        found.cbytes += part.offsets[last] - part.offsets[first]
        found.codecs[_codec(part.offsets, first, part)] = None


def _codec(offsets: Sequence[int], chunk: int, part: Part) -> str:
    """Return codec and shuffle of a chunk; its header is not checked beyond its length."""
    with part.error_context():
        start = offsets[chunk]
        flags = ChunkHeader.decode(part.read(start, start + CHUNK_HEADER.size)).flags
    if flags & MEMCPYED:
        return "stored"
    codec = CODEC_NAMES.get(flags >> CODEC_SHIFT, f"codec {flags >> CODEC_SHIFT}")
    shuffle = BYTE if flags & BYTE_SHUFFLE else BIT if flags & BIT_SHUFFLE else ""
    return f"{codec}, {shuffle}" if shuffle else codec
