"""The nine checksums of Bloscpack, by their number in the header of a file.

A checksum is a function from bytes to its digest, as the digest is stored in the file. Data files
of tables have crc32 alone. Knows nothing of which bytes are covered.
"""

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from isal import isal_zlib

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum: its number, name, digest size in bytes, and function."""

    id: int
    name: str
    size: int
    digest: Callable[[Buffer], bytes]


# Several times faster than zlib.
crc32: Callable[..., int] = isal_zlib.crc32


def _crc32_digest(data: Buffer) -> bytes:
    return crc32(data).to_bytes(4, "little")


CHECKSUMS = (
    Checksum(0, "none", 0, lambda data: b""),
    Checksum(1, "adler32", 4, lambda data: zlib.adler32(data).to_bytes(4, "little")),
    Checksum(2, "crc32", 4, _crc32_digest),
    Checksum(3, "md5", 16, lambda data: hashlib.md5(data, usedforsecurity=False).digest()),
    Checksum(4, "sha1", 20, lambda data: hashlib.sha1(data, usedforsecurity=False).digest()),
    Checksum(5, "sha224", 28, lambda data: hashlib.sha224(data).digest()),
    Checksum(6, "sha256", 32, lambda data: hashlib.sha256(data).digest()),
    Checksum(7, "sha384", 48, lambda data: hashlib.sha384(data).digest()),
    Checksum(8, "sha512", 64, lambda data: hashlib.sha512(data).digest()),
)
BY_NAME = {checksum.name: checksum for checksum in CHECKSUMS}
ADLER32, CRC32 = BY_NAME["adler32"], BY_NAME["crc32"]
