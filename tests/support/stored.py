"""What a version stored: the compressed chunks of its parts, from their records alone."""

import blosc

from blztable.engine.version.versions import Version
from blztable.format.chunk import CODEC_NAMES, CODEC_SHIFT, ChunkHeader


def chunks(version: Version, line: int, group: int = 0) -> list[bytes]:
    """Return the compressed chunks of a node's part, without digests."""
    records = version.records([line], [group])
    if not len(records.chunks):
        return []
    data = version.store.get(version.parts(line).key(group))
    sizes = records.chunks["size"].tolist()
    starts = records.chunk_offset.tolist()
    return [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def codecs(version: Version, line: int, group: int = 0) -> set[str]:
    """Return the names of the codecs of a part's chunks."""
    flags = (ChunkHeader.decode(chunk).flags for chunk in chunks(version, line, group))
    return {CODEC_NAMES[one >> CODEC_SHIFT] for one in flags}


def contents(version: Version, line: int, group: int = 0) -> bytes:
    """Return the decompressed bytes of a part, one stream after the other."""
    return b"".join(map(blosc.decompress, chunks(version, line, group)))


def files(version: Version, line: int) -> list[int]:
    """Return the number of the file of each part of a node, of a bundle too; 0 for none."""
    return version.records([line]).parts["file"].tolist()


def kinds(version: Version, line: int, group: int = 0) -> list[tuple[int, int]]:
    """Return the name and the kind of each stream of a part."""
    streams = version.records([line], [group]).streams
    return list(zip(streams["name"].tolist(), streams["kind"].tolist(), strict=True))


def key(table, name: str, group: int = 0) -> str:
    """Return the key of the file that has a column in a row group."""
    version = table._snapshot.version
    line = version.nodes(version.schema.get_field_index(name))[0]
    return version.parts(line).key(group)
