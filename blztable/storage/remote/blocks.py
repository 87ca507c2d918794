"""Blocks: a directory that keeps bytes of values that never change, for all processes of a machine.

Knows nothing of what the bytes mean, and no library. A value is named by a text that no other value
has; a block of it is a file, whose name is the SHA-256 of that text and of the block's number. So
no address and no secret is in a name. A file has a checksum of its name and its bytes: one that
does not match counts as missing, is asked for again, and replaced.

A file is written beside and renamed, so processes need no lock. The files that were used least
lately go when there are too many bytes. Nothing here ever fails: without a directory, or without
room in it, all bytes are asked for.
"""

import hashlib
import os
import re
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from isal.isal_zlib import crc32

from blztable import tuning
from blztable.storage.store import Buffer

# The checksum of a file, of its name and its bytes.
_CRC = struct.Struct("<I")
_NAME = re.compile(r"[0-9a-f]{64}")
# A file on its way, and the seconds after which its writer was killed.
_UNFINISHED, _KILLED_SECONDS = ".new-", 3600
# After this part of all bytes, a process looks whether there are too many; it leaves so many parts.
_SHARE = 16
_LEFT = 14

# Returns bytes of a value: start, stop.
Get = Callable[[int, int], Buffer]


class BlockCache:
    """Blocks of values in a directory.

    Attributes
    ----------
    path : str
        The directory, which is made if it is missing.
    most_bytes : int
        Bytes of all files, about.
    """

    def __init__(self, path: str, most_bytes: int) -> None:
        """Look at nothing yet."""
        self.path, self.most_bytes = path, most_bytes
        self._lock = threading.Lock()
        # Bytes that were added since the last look; the first block is followed by one.
        self._added = most_bytes
        # The names of the blocks that were read from here.
        self._used: set[str] = set()

    def __reduce__(self) -> tuple[type["BlockCache"], tuple[str, int]]:
        return BlockCache, (self.path, self.most_bytes)

    def read(self, value: str, start: int, stop: int, get: Get) -> Buffer:
        """Return bytes of a value; fewer if it ends earlier. What is not here is asked for."""
        size = tuning.current.cached_block_bytes
        numbers = range(start // size, -(-stop // size))
        names = [_name(value, size, number) for number in numbers]
        found = [self._found(name) for name in names]
        for first, last in _runs(found):
            low = numbers[first] * size
            data = memoryview(get(low, numbers[last] * size + size))
            for place in range(first, last + 1):
                at = (place - first) * size
                found[place] = block = data[at : at + size]
                # A block behind the end says that nothing is there.
                self._keep(names[place], block)
        whole = b"".join(block for block in found if block is not None)
        return memoryview(whole)[start - numbers[0] * size :][: stop - start]

    def forget(self) -> bool:
        """Remove what was read from here; return False if nothing was.

        For bytes that another server, or a copy of the table from elsewhere, had under these names.
        """
        used, self._used = self._used, set()
        for name in used:
            with suppress(OSError):
                os.unlink(self._path(name))
        return bool(used)

    def _found(self, name: str) -> Buffer | None:
        """Return a block; None if it is not here, or damaged."""
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                data = memoryview(file.read())
            (crc,) = _CRC.unpack_from(data)
        except (OSError, struct.error):
            return None
        if crc != crc32(data[_CRC.size :], crc32(name.encode())):
            return None
        with suppress(OSError):
            os.utime(path)
        self._used.add(name)
        return data[_CRC.size :]

    def _keep(self, name: str, block: Buffer) -> None:
        """Write a block; do nothing if that cannot be done."""
        if len(block) > self.most_bytes // _SHARE:
            return
        path = self._path(name)
        beside = os.path.join(os.path.dirname(path), _UNFINISHED + secrets.token_hex(8))
        try:
            # What is in it may be read by whoever reads the table.
            for folder in (self.path, os.path.dirname(path)):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            try:
                with open(beside, "wb") as file:
                    file.write(_CRC.pack(crc32(block, crc32(name.encode()))))
                    file.write(block)
                os.replace(beside, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside)
                raise
        except OSError:
            return
        with self._lock:
            self._added += len(block) + _CRC.size
            is_due = self._added > self.most_bytes // _SHARE
            if is_due:
                self._added = 0
        if is_due:
            with suppress(OSError):
                self._trim()

    def _trim(self) -> None:
        """Remove the files that were used least lately, if there are too many bytes."""
        files = sorted(self._files(), key=lambda file: file[2])
        left = sum(size for _, size, _ in files)
        if left <= self.most_bytes // _SHARE * (_LEFT + 1):
            return
        for path, size, _ in files:
            if left <= self.most_bytes // _SHARE * _LEFT:
                break
            with suppress(OSError):
                os.unlink(path)
            left -= size

    def _files(self) -> Iterator[tuple[str, int, float]]:
        """Yield path, bytes and time of each file; remove those of killed writers."""
        with os.scandir(self.path) as folders:
            for folder in folders:
                if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
                    continue
                with suppress(OSError), os.scandir(folder.path) as entries:
                    for entry in entries:
                        with suppress(OSError):
                            status = entry.stat(follow_symlinks=False)
                            if _NAME.fullmatch(folder.name + entry.name):
                                yield entry.path, status.st_size, status.st_mtime
                            elif (
                                entry.name.startswith(_UNFINISHED)
                                and status.st_mtime < time.time() - _KILLED_SECONDS
                            ):
                                os.unlink(entry.path)

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name[:2], name[2:])


def _name(value: str, size: int, number: int) -> str:
    return hashlib.sha256(f"{value}\n{size}\n{number}".encode()).hexdigest()


def _runs(found: list[Buffer | None]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last place of each run of blocks that are missing."""
    first = None
    for place, block in enumerate([*found, b""]):
        if block is None and first is None:
            first = place
        elif block is not None and first is not None:
            yield first, place - 1
            first = None
