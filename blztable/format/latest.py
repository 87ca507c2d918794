"""Latest: a copy of the beginning of the newest manifest, to be read beside the list of manifests.

It is a line of JSON and these bytes. It may be older than the newest version, so it is believed
only if the list has its manifest as the newest one, with the same ETag. Knows nothing of stores.
"""

from dataclasses import dataclass
from typing import Self

from blztable.errors import CorruptError
from blztable.format import jsontext

# Bytes of the manifest, and at most of the whole value. Its tails have at most about half of that.
HEAD_BYTES = 512 << 10
MOST_BYTES = HEAD_BYTES + (4 << 10)


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest version of a table, as a writer left it.

    Attributes
    ----------
    version, uuid
        Of the table.
    etag, size
        Of the manifest, as the store says.
    head
        The first bytes of the manifest.
    """

    version: int
    uuid: str
    etag: str
    size: int
    head: bytes

    @classmethod
    def of(cls, version: int, uuid: str, etag: str, manifest: bytes) -> Self:
        """Return that of a manifest."""
        return cls(version, uuid, etag, len(manifest), manifest[:HEAD_BYTES])

    def encode(self) -> bytes:
        """Return its bytes."""
        line = {one: getattr(self, one) for one in ("version", "uuid", "etag", "size")}
        return jsontext.dumps(line) + b"\n" + self.head

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what bytes say; CorruptError if they are damaged."""
        line, newline, head = data.partition(b"\n")
        known = jsontext.loads(line, "meta/latest")
        if not newline or not isinstance(known, dict):
            raise CorruptError("meta/latest has no line of facts")
        version, uuid, etag, size = (known.get(one) for one in ("version", "uuid", "etag", "size"))
        if type(version) is not int or type(size) is not int:
            raise CorruptError("meta/latest has no version")
        if not isinstance(uuid, str) or not isinstance(etag, str):
            raise CorruptError("meta/latest has no id")
        return cls(version, uuid, etag, size, head)
