"""Uploads: new values on their way to a bucket, side by side and within a bound of memory.

A reply that does not come, or that says "taken", does not tell whether a value was stored. Such a
create is made again until the answer is clear, and a value that is there is compared with ours.
Only what is known to be stored by us is ever removed by us.
"""

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

from blztable import tuning
from blztable.errors import AccessError, BlzError, ConflictError, StorageError
from blztable.storage.remote.bucket import Bucket
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken
from blztable.storage.threads import Future, requested

# How often a create is made again without a clear answer.
_TRIES = 4
# Creations of one value, side by side, of which one alone may succeed.
PROBES = 2


def created(bucket: Bucket, key: str, data: Buffer) -> str:
    """Create a value; return its ETag. KeyTaken if there is one, which may be ours.

    StorageError if it is not known whether it was created.
    """
    for left in reversed(range(_TRIES)):
        try:
            return bucket.create(key, data)
        except KeyTaken:
            # Some servers say so, too, if two requests meet, and then there may be none.
            with suppress(KeyNotFound):
                bucket.size(key)
                raise
            if not left:
                raise StorageError(
                    f"{bucket.name}/{key}: writing was refused again and again"
                ) from None
        except AccessError:
            raise
        except StorageError:
            if not left:
                raise
    raise AssertionError


class Uploads:
    """The uploads of a store."""

    def __init__(self, bucket: Bucket) -> None:
        """Begin without uploads."""
        self._bucket = bucket
        self._changed = threading.Condition()
        self._nbytes = 0
        self._going: dict[str, Future[None]] = {}
        # Values that may not be ours.
        self._doubtful: set[str] = set()
        self._later: dict[str, Future[None]] = {}
        self._probe = ""
        self._probing: Sequence[Future[str]] = ()

    def begin(self, key: str, data: bytes) -> None:
        """Begin to create a value; wait first while too many bytes are on their way."""
        with self._changed:
            most = tuning.current.ahead_bytes - len(data)
            self._changed.wait_for(lambda: self._nbytes <= max(most, 0))
            self._nbytes += len(data)
        self._going[key] = requested(self._create, key, data)

    def _create(self, key: str, data: bytes) -> None:
        try:
            created(self._bucket, key, data)
        except KeyTaken:
            if bytes(self._bucket.get(key)) != data:
                raise
        finally:
            with self._changed:
                self._nbytes -= len(data)
                self._changed.notify_all()

    def arrived(self, key: str | None = None) -> None:
        """Wait for the upload of a value that this process is about to read; None: of all."""
        for one in [key] if key is not None else list(self._going):
            upload = self._going.get(one)
            if upload is not None:
                upload.exception()

    def wait(self, keys: Iterable[str]) -> None:
        """Wait for uploads; raise the first error when all have ended."""
        errors = [error for key in keys if (error := self._ended(key)) is not None]
        for error in errors:
            if isinstance(error, KeyTaken):
                # Two writers had one number in the same microsecond.
                raise ConflictError(
                    f"{self._bucket.name}/{error}: another writer has a file of this number; make "
                    "the change again"
                ) from None
            raise error

    def _ended(self, key: str) -> BaseException | None:
        upload = self._going.get(key)
        if upload is None:
            return None
        error = upload.exception()
        if error is not None:
            self._doubtful.add(key)
        self._going.pop(key, None)
        return error

    def known(self, keys: Iterable[str]) -> list[str]:
        """Return those of the keys whose values are ours, if we have uploaded them."""
        return [key for key in keys if self._ended(key) is None and key not in self._doubtful]

    def later(self, key: str, data: Buffer) -> None:
        """Replace a value in a thread; nobody is told if it fails."""
        before = self._later.get(key)
        self._later[key] = requested(self._put_after, before, key, bytes(data))

    def _put_after(self, before: "Future[None] | None", key: str, data: bytes) -> None:
        if before is not None:
            with suppress(BlzError):
                before.result()
        self._bucket.put(key, data)

    def probe(self, key: str) -> None:
        """Begin to create a value several times; it is removed when `probed` has the answers."""
        self._probe = key
        self._probing = [requested(self._bucket.create, key, b"") for _ in range(PROBES)]

    def probed(self) -> int:
        """Return how many of the creations of `probe` succeeded; 0 if none was begun."""
        probing, self._probing = self._probing, ()
        if not probing:
            return 0
        errors = [one.exception() for one in probing]
        self._later[self._probe] = requested(self._bucket.delete, [self._probe])
        for error in errors:
            if error is not None and not isinstance(error, KeyTaken):
                raise error
        return errors.count(None)

    def close(self) -> None:
        """Wait for what was to be put later."""
        with suppress(BlzError):
            self.probed()
        waiting: Sequence[Future[None]] = list(self._later.values())
        self._later.clear()
        for one in waiting:
            one.exception()
