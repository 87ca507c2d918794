"""Usage: what takes the space of a table, and how its columns are stored.

Reads manifests, leaves and the sizes of files; of parts the headers of their first chunks. Decodes
nothing.
"""

from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import Node
from blztable.columns.parts.physical import Form, physical
from blztable.engine.read.parts import ItemStream, OpenParts, StoredStream
from blztable.engine.version import versions
from blztable.engine.version.projection import Projection
from blztable.engine.version.retention import CountedVersions
from blztable.engine.version.versions import DAMAGED, Version
from blztable.format.chunk import (
    BIT,
    BIT_SHUFFLE,
    BYTE,
    BYTE_SHUFFLE,
    CODEC_NAMES,
    CODEC_SHIFT,
    MEMCPYED,
    ChunkHeader,
)
from blztable.format.records import (
    DICTIONARY,
    DIGEST_BYTES,
    ITEMS_LENGTHS,
    ITEMS_VALID,
    ITEMS_VALUES,
    LENGTHS,
    PER_ITEM,
    STREAM_NAMES,
    VALID,
    Array,
    Records,
    encoding_of,
    sums,
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
        counted = CountedVersions()
        for _ in versions.each(store, [newest.head.version]):
            own = counted.add(newest)
        names = set(newest.head.tags.values())
        tagged = _bytes(counted, store, names, newest)
        others = set(versions.numbers(store)) - names - {newest.head.version}
        older = _bytes(counted, store, others, newest)
        total = store.nbytes
    # Another process may have removed files since they were counted.
    return DiskUsage(own, tagged, older, max(total - own - tagged - older, 0))


def _bytes(counted: CountedVersions, store: Store, numbers: Iterable[int], newest: Version) -> int:
    """Return the bytes that these versions take beside those counted."""
    nbytes = 0
    for number in versions.each(store, sorted(numbers, reverse=True)):
        # The files of a damaged version are unknown: no version names them.
        with suppress(*DAMAGED, KeyNotFound):
            nbytes += counted.add(versions.read(store, number), newest)
    return nbytes


def streams_of(projection: Projection, index: int) -> tuple[StreamStorage, ...]:
    """Return how the streams of a column are stored, node by node, in the order of their names."""
    storages: list[StreamStorage] = []
    nodes = Node.of(projection.schema.field(index).type).names("")
    with OpenParts(projection.version) as parts:
        for node, line in zip(nodes, projection.nodes(index), strict=True):
            # A stream of a child is named after it: "item.values".
            prefix = f"{node}.".removeprefix(".")
            records = projection.version.records([line])
            names = np.unique(records.streams["name"]).tolist()
            storages += [_storage(prefix, number, records, parts, line) for number in names]
    return tuple(storages)


def _storage(
    prefix: str, number: int, records: Records, parts: OpenParts, line: int
) -> StreamStorage:
    """Return how the streams of one name are stored, in all row groups of a node."""
    name = STREAM_NAMES[number]
    streams = records.streams
    (chosen,) = (streams["name"] == number).nonzero()
    owner = np.repeat(np.arange(len(records.parts)), records.parts["streams"])
    stored = records.first_chunk[chosen + 1] - records.first_chunk[chosen]
    sizes = sums(records.chunks["size"].astype(np.int64) + DIGEST_BYTES)
    cbytes = sizes[records.first_chunk[chosen + 1]] - sizes[records.first_chunk[chosen]]
    # Chunks of items have no records: they are what the other streams leave of the part.
    listed = sizes[records.first_chunk[records.first_stream]]
    others = (listed[1:] - listed[:-1])[owner[chosen]]
    whole = records.parts["cbytes"].astype(np.int64)[owner[chosen]]
    cbytes = np.where(streams["kind"][chosen] == PER_ITEM, whole - others, cbytes)
    encodings = dict.fromkeys(encoding_of(streams[stream]) for stream in chosen.tolist())
    codecs: dict[str, None] = {}
    # A damaged part is reported by what is read of it.
    for group in owner[chosen[stored > 0]].tolist():
        stream = parts.open(line, group).streams[number]
        assert isinstance(stream, StoredStream)
        codecs[_codec(stream.compressed(0))] = None
    for group in owner[chosen[streams["kind"][chosen] == PER_ITEM]].tolist():
        stream = parts.open(line, group).streams[number]
        assert isinstance(stream, ItemStream)
        # An empty item says nothing of the codec.
        codecs[_codec(stream.compressed(int(np.diff(stream.places).argmax())))] = None
    return StreamStorage(
        prefix + name,
        tuple(encodings),
        tuple(codecs),
        int(_decoded(parts.version.node(line).type, records, chosen, owner[chosen]).sum()),
        int(streams["nbytes"][chosen].sum()),
        int(cbytes.sum()),
    )


def _decoded(type_: pa.DataType, records: Records, chosen: Array, owner: Array) -> Array:
    """Return the bytes of what some streams of one name stand for, as Arrow has it."""
    streams, rows = records.streams[chosen], records.parts["rows"].astype(np.int64)[owner]
    name = int(streams["name"][0])
    if name == VALID:
        return -(-rows // 8)
    if name in (ITEMS_VALID, ITEMS_VALUES):
        return streams["nbytes"].astype(np.int64)
    if pa.types.is_dictionary(type_):
        return rows * (type_.index_type.bit_width // 8)
    form = physical(type_)
    if name == ITEMS_LENGTHS:
        return streams["nbytes"].astype(np.int64)
    if name == LENGTHS:
        # Codes stand for items, otherwise only for their ends.
        whole = records.parts["nbytes"].astype(np.int64)[owner]
        return np.where(streams["kind"] == DICTIONARY, whole, rows * form.width)
    if form.form is not Form.BYTES:
        return rows * form.width
    items = streams["kind"] == PER_ITEM
    return np.where(items, records.parts["nbytes"][owner] - rows * form.width, streams["nbytes"])


def _codec(header: bytes) -> str:
    """Return codec and shuffle of a chunk; its header is not checked beyond its length."""
    flags = ChunkHeader.decode(header).flags
    if flags & MEMCPYED:
        return "stored"
    codec = CODEC_NAMES.get(flags >> CODEC_SHIFT, f"codec {flags >> CODEC_SHIFT}")
    shuffle = BYTE if flags & BYTE_SHUFFLE else BIT if flags & BIT_SHUFFLE else ""
    return f"{codec}, {shuffle}" if shuffle else codec
