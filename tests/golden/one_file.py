"""A table in one file as a directory, by docs/format.md and nothing else.

It imports nothing of blztable. `unpack` writes the values that the last foot names, or all whole
records of a file that was never finished.
"""

import json
import struct
import zlib
from pathlib import Path

FRONT = struct.Struct("<4sBBBBiiqII")
HEAD = struct.Struct("<4sBBHQQII")
FOOT = struct.Struct("<8sQQQII8s")
SEAL = struct.Struct("<8sQII")


def unpack(source: Path, target: Path) -> None:
    """Write each value of the file under its key."""
    data = source.read_bytes()
    values = committed(data)
    if not any(key.startswith("meta/manifest/") for key in values):
        values = recorded(data)
    for key, value in values.items():
        path = target / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)


def committed(data: bytes) -> dict[str, bytes]:
    """Return the values that the last foot names."""
    end, sealed = len(data), 0
    seal = data.rfind(b"blzseal!")
    if seal >= 0:
        _, sealed, _, crc = SEAL.unpack_from(data, seal)
        assert zlib.crc32(data[seal : seal + 20]) == crc
    while True:
        end = data.rindex(b"blzf-end", 0, end) + 8
        magic, block, index, _, front_crc, crc, _ = FOOT.unpack(data[end - FOOT.size : end])
        if magic == b"blzcomit" and zlib.crc32(data[block : end - 12]) == crc:
            assert end >= sealed, "the newest commit is damaged"
            break
        end -= 1
    *_, meta_size, _ = FRONT.unpack(data[: FRONT.size])
    assert zlib.crc32(data[: FRONT.size + meta_size]) == front_crc
    first, *lines = data[index : end - FOOT.size].split(b"\n")
    prefixes = json.loads(first)
    values = {}
    for prefix, line, nbytes in zip(prefixes["prefix"], lines, prefixes["bytes"], strict=True):
        names = json.loads(line)
        assert sum(names["length"]) == nbytes
        places = zip(names["name"], names["position"], names["length"], strict=True)
        for name, at, length in places:
            values[f"{prefix}/{name}".strip("/")] = data[at : at + length]
    return values


def recorded(data: bytes) -> dict[str, bytes]:
    """Return the values of all whole records."""
    *_, meta_size, _ = FRONT.unpack(data[: FRONT.size])
    at, values = FRONT.size + meta_size, {}
    while at + HEAD.size <= len(data):
        magic, kind, _, key_length, position, length, crc, head_crc = HEAD.unpack_from(data, at)
        key = data[at + HEAD.size : at + HEAD.size + key_length]
        if magic != b"blzr" or position != at:
            break
        value = data[at + HEAD.size + key_length : at + HEAD.size + key_length + length]
        if zlib.crc32(data[at : at + 28] + key) != head_crc or zlib.crc32(value) != crc:
            break
        at += HEAD.size + key_length + length + (FOOT.size if kind == 2 else 0)
        if kind == 2 and data[at : at + 8] == b"blzseal!":
            at += SEAL.size
        if kind == 1:
            values[key.decode()] = value
    return values
