"""File objects: all bytes of a write or a read, though a raw file takes and gives them in parts.

Knows nothing of what the bytes mean.
"""

import io
from collections.abc import Iterator
from typing import Any

from blztable.errors import StorageError
from blztable.storage.store import Buffer


def writing(file: Any, data: Buffer, name: str) -> Iterator[memoryview]:
    """Write all bytes to a file object; yield each part that it took."""
    view = memoryview(data)
    view = view.cast("B") if view.nbytes else memoryview(b"")
    while view:
        count = file.write(view)
        if count is None and not isinstance(file, io.RawIOBase):
            # Some objects return nothing and have taken all. A raw file says that it took nothing.
            count = len(view)
        if not count:
            raise StorageError(
                f"{name}: it took none of {len(view)} bytes; a file that does not block must be "
                "made to block, os.set_blocking(file.fileno(), True)"
            )
        yield view[:count]
        view = view[count:]


def reading(file: Any, length: int) -> Iterator[bytes]:
    """Read so many bytes from a file object, fewer at its end; yield each part that it gave."""
    while length and (data := file.read(length)):
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"open the file in binary mode: it returns {type(data).__name__}")
        yield bytes(data)
        length -= len(data)
