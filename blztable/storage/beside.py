"""Files beside another one, until they take its place.

Knows nothing of their content. Only the holder of the lock of a file makes such files, so those
that it finds belong to killed writers.
"""

import hashlib
import os
import re
import secrets
from contextlib import suppress

from blztable.storage.disk import Disk
from blztable.storage.local import TEMPORARY

_RANDOM = re.compile("[0-9a-f]{16}")
# A name has at most 255 bytes in most file systems.
_LONG = 200


def name_beside(base: str) -> str:
    """Return a name that nobody else uses, for a file that will take the place of `base`."""
    return _start(base) + secrets.token_hex(8)


def remove_leftovers(base: str, dir_fd: int, disk: Disk) -> None:
    """Remove the files that killed writers left beside `base`; only under its lock."""
    start = _start(base)
    for name in os.listdir(dir_fd):
        # `t` is not `t-x`, whose writer may be alive.
        if name.startswith(start) and _RANDOM.fullmatch(name, len(start)):
            with suppress(OSError):
                disk.unlink(name, dir_fd)


def _start(base: str) -> str:
    data = os.fsencode(base)
    if len(data) > _LONG:
        base = hashlib.sha256(data).hexdigest()
    return f"{TEMPORARY}{base}-"
