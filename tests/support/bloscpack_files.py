"""Files as Bloscpack 1, 2 and 3 and the proposals wrote them, made by hand.

Knows nothing of blztable.
"""

import hashlib
import json
import struct
import zlib

import blosc

CHECKSUMS = (
    lambda data: b"",
    lambda data: struct.pack("<I", zlib.adler32(data)),
    lambda data: struct.pack("<I", zlib.crc32(data)),
    *(
        lambda data, name=name: hashlib.new(name, data).digest()
        for name in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
    ),
)


def chunks_of(data, chunk_size, typesize=8, codec="lz4"):
    """Return the compressed chunks of `data`; an empty chunk if there are no bytes."""
    cuts = range(0, max(len(data), 1), chunk_size)
    return [blosc.compress(data[i : i + chunk_size], typesize, 5, 1, codec) for i in cuts]


def file_of(
    data,
    *,
    version=3,
    chunk_size=1000,
    checksum=0,
    has_offsets=True,
    room=0,
    metadata=None,
    codec="lz4",
    options=0,
    sizes=True,
):
    """Return the bytes of a file that holds `data`."""
    chunks = chunks_of(data, chunk_size, codec=codec)
    if version == 1:
        return struct.pack("<4sB3xq", b"blpk", 1, len(chunks)) + b"".join(chunks)
    last = len(data) - chunk_size * (len(chunks) - 1)
    options |= has_offsets | (0 if metadata is None else 2)
    text = b"" if metadata is None else json.dumps(metadata).encode()
    section = _section(text) if version == 3 and text else text
    tail = {2: 0, 3: room, 4: len(text)}[version]
    stated = (chunk_size, last) if sizes else (-1, -1)
    head = struct.pack(
        "<4sBBBBiiqq", b"blpk", version, options, checksum, 8, *stated, len(chunks), tail
    )
    at = len(head) + len(section) + 8 * (len(chunks) + room) * has_offsets
    offsets, body = [], b""
    for chunk in chunks:
        offsets.append(at + len(body))
        body += chunk + CHECKSUMS[checksum](chunk)
    offsets += [-1] * room
    table = struct.pack(f"<{len(offsets)}q", *offsets) if has_offsets else b""
    return head + section + table + body


def _section(text, room=50):
    packed = zlib.compress(text)
    head = struct.pack(
        "<8sBBBBIII8s", b"JSON", 0, 1, 1, 6, len(text), len(packed) + room, len(packed), b""
    )
    return head + packed + bytes(room) + struct.pack("<I", zlib.adler32(packed))
