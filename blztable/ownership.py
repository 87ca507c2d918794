"""Ownership: what is new belongs to the users of its directory, or of the file that it replaces.

Knows nothing of tables. Only root gives files away: so a table of a user stays that user's when
root changes it.
"""

import os
import stat
from contextlib import suppress


def share(fd: int, model: os.stat_result) -> None:
    """Give a new file or directory the owner and the permissions of a model.

    The model is its directory, or the file whose place it takes. So every user of the model may use
    it, whatever the umask is, and also if root writes. An error is ignored: some file systems have
    no owners or permissions.
    """
    with suppress(OSError):
        present = os.fstat(fd)
        owner, group, mode = shared_by(present, model)
        # One after the other: this user may be allowed to give the group alone.
        if group != present.st_gid:
            with suppress(OSError):
                os.fchown(fd, -1, group)
        if owner != present.st_uid:
            with suppress(OSError):
                os.fchown(fd, owner, -1)
        if mode != present.st_mode:
            os.fchmod(fd, stat.S_IMODE(mode))


def shared_by(present: os.stat_result, model: os.stat_result) -> tuple[int, int, int]:
    """Return the owner, the group and the mode that something new should have."""
    is_root = os.geteuid() == 0
    owner = model.st_uid if is_root else present.st_uid
    if not stat.S_ISDIR(model.st_mode):
        return owner, model.st_gid, stat.S_IFMT(present.st_mode) | model.st_mode & 0o777
    # A directory that hands down its group has done so already.
    group = model.st_gid if is_root else present.st_gid
    allowed = 0o777 if stat.S_ISDIR(present.st_mode) else 0o666
    # The owner keeps all of its permissions.
    return owner, group, present.st_mode & ~0o077 | model.st_mode & allowed
