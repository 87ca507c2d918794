"""Bucket file: an object of a bucket as a file, for a table in one file.

Knows nothing of what the bytes mean. An object is never changed, only replaced. A reader is of the
object as it was when it was looked at: each request names its content, so the bytes of two objects
are never mixed. What a writer appends is in memory, behind the bytes of the object (`Draft`), until
`replace` stores a new object in place of the one that was looked at, and of no other.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from blztable import tuning
from blztable.closing import Closing
from blztable.errors import (
    AccessError,
    BlzError,
    CommitUnknownError,
    ConflictError,
    LimitError,
    ReadOnlyError,
    StorageError,
)
from blztable.storage.files import File
from blztable.storage.remote.blocks import BlockCache
from blztable.storage.remote.bucket import Bucket, Content, Replaced
from blztable.storage.remote.fetched import Asked, Fetched
from blztable.storage.remote.uploads import created
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken
from blztable.storage.threads import Future, requested

# The object at the address of a bucket.
_ROOT = ""
# Bytes behind those of a commit that one read of an end has: its seal.
SPARE_BYTES = 1 << 10
# How often a replacement is tried without a clear answer.
_TRIES = 4
# The largest object that S3 takes by one request.
_MOST_BYTES = 5 << 30


class ObjectReader(Closing):
    """An object as it was when it was looked at."""

    def __init__(
        self, bucket: Bucket, content: Content, end: Buffer, blocks: BlockCache | None = None
    ) -> None:
        """Keep the last bytes, which have been read."""
        # Only an ETag names bytes for ever, and only a URL names a server.
        is_named = bool(content.etag) and "://" in bucket.name
        self._blocks = blocks if is_named else None
        self.size, self.content = content.size, content
        self._bucket, self._end = bucket, memoryview(end)
        self._fetched = Fetched(self._get)

    def _get(self, key: str, start: int, stop: int | None) -> Buffer:
        try:
            get = partial(self._bucket.get, key, content=self.content)
            if self._blocks is None or stop is None:
                return get(start, stop)
            value = f"{self._bucket.name}\n{self.content.etag}\n{self.size}"
            return self._blocks.read(value, start, self.size if stop is None else stop, get)
        except (Replaced, KeyNotFound):
            raise ConflictError(
                f"{self._bucket.name}: the file was replaced or removed by another writer since it "
                "was opened; open the table again"
            ) from None

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the object ends earlier."""
        stop, begin = min(offset + length, self.size), self.size - len(self._end)
        asked = self._fetched.read(_ROOT, offset, max(min(stop, begin) - offset, 0))
        return b"".join([*asked, self._end[max(offset - begin, 0) : max(stop - begin, 0)]])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        view = memoryview(buffer).cast("B")[: max(self.size - offset, 0)]
        begin = self.size - len(self._end)
        count = max(min(len(view), begin - offset), 0)
        filled = self._fetched.read_into(_ROOT, offset, view[:count]) if count else 0
        if filled == count:
            rest = self._end[max(offset - begin, 0) :][: len(view) - count]
            view[count : count + len(rest)] = rest
            filled += len(rest)
        return filled

    def fetch(self, ranges: Iterable[tuple[int, int]], gap: int) -> Asked:
        """Ask for ranges side by side; those of the last bytes are here."""
        begin = self.size - len(self._end)
        return self._fetched.ask(
            [(_ROOT, start, min(stop, begin)) for start, stop in ranges if start < begin], gap
        )

    def close(self) -> None:
        """Do nothing: there is no connection."""


class Draft(Closing):
    """What a writer sees: an object, if there is one, and what it has appended."""

    def __init__(self, base: ObjectReader | None) -> None:
        """Begin without appended bytes."""
        self.base = base
        self._begin = 0 if base is None else base.size
        self._added = bytearray()

    @property
    def size(self) -> int:
        """Length of both."""
        return self._begin + len(self._added)

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer at the end."""
        count = max(min(self._begin - offset, length), 0)
        first = self.base.read(offset, count) if self.base is not None and count else b""
        start = max(offset - self._begin, 0)
        return first + bytes(self._added[start : start + length - count])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        view = memoryview(buffer).cast("B")
        if self.base is not None and offset + len(view) <= self._begin:
            return self.base.read_into(offset, view)
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def fetch(self, ranges: Iterable[tuple[int, int]], gap: int) -> Asked | None:
        """Ask for ranges of the object; None if there is none."""
        return None if self.base is None else self.base.fetch(ranges, gap)

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Add bytes at the end."""
        for buffer in buffers:
            self._added += memoryview(buffer).cast("B") if memoryview(buffer).nbytes else b""

    def close(self) -> None:
        """Do nothing: it is memory."""


class BucketFile(File):
    """The object at the address of a bucket."""

    def __init__(self, bucket: Bucket, blocks: BlockCache | None = None) -> None:
        """Ask for nothing yet; keep bytes of objects in blocks."""
        self.bucket, self.name, self.blocks = bucket, bucket.name, blocks
        # The object as it was looked at last; False before the first look.
        self._reader: ObjectReader | bool | None = False
        self._draft: Draft | None = None
        self._probed: Future[None] | None = None

    @property
    def size(self) -> int:
        """Length of what is read, or written."""
        source = self.current()
        return 0 if source is None else source.size

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of what is read, or written."""
        source = self.current()
        return b"" if source is None else source.read(offset, length)

    def current(self) -> "ObjectReader | Draft | None":
        """Return what is written, or the object as it was looked at last; None if there is none."""
        if self._draft is not None:
            return self._draft
        return self.seen()

    def seen(self) -> ObjectReader | None:
        """Return the object as it was looked at last."""
        if isinstance(self._reader, bool):
            self._reader = self.look()
        return self._reader

    def look(self) -> ObjectReader | None:
        """Return the object as it is now: one reader as long as it is the same."""
        known = None if isinstance(self._reader, bool) else self._reader
        try:
            content = None if known is None else known.content
            found = self.bucket.end(_ROOT, tuning.current.tail_bytes + SPARE_BYTES, content)
        except KeyNotFound:
            return None
        return known if found is None else ObjectReader(self.bucket, *found, self.blocks)

    def take(self, reader: ObjectReader | None) -> None:
        """Read this object from now on."""
        self._reader = reader
        if reader is not None:
            self._draft = None

    def lock(self, timeout: float, *, shared: bool = False, at_end: bool = False) -> None:
        """Begin a draft: whoever replaces the object that was looked at comes first."""
        if not self.bucket.creates:
            raise ReadOnlyError(f"{self.name} is only read; choose another place to write to")
        if self._probed is None:
            self._probed = requested(_probe, self.bucket, self.seen() is None)
        self._draft = self._draft or Draft(self.seen())

    def unlock(self) -> None:
        """Forget the draft, unless it is all that there is."""
        if self._draft is not None and self._draft.base is not None:
            self._draft = None

    def create(self) -> bool:
        """Return True if there is nothing; a draft begins with the lock."""
        return self.current() is None

    def cut(self, size: int) -> int:
        """Keep the bytes: a replacement leaves out what nobody needs."""
        return self.size

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Add bytes to the draft."""
        assert self._draft is not None
        self._draft.append(buffers)

    @property
    def drafted(self) -> Draft:
        """What is written."""
        assert self._draft is not None
        return self._draft

    def replace(self, data: Buffer, kept: int) -> None:
        """Store a new object in place of the one that was looked at, and begin a draft on it.

        Its last bytes are kept, `kept` of them. ConflictError if another writer has replaced it.
        """
        assert self._probed is not None
        if len(data) > _MOST_BYTES:
            raise LimitError(
                f"{self.name}: one file in a bucket has at most {_MOST_BYTES:,} bytes, and this "
                f"one would have {len(data):,}; write a directory"
            )
        self._probed.result()
        base = self.drafted.base
        content = replaced(self.bucket, data, None if base is None else base.content)
        end = bytes(data[len(data) - kept :])
        reader = ObjectReader(self.bucket, content, end, self.blocks)
        self._reader, self._draft = reader, Draft(reader)


def replaced(bucket: Bucket, data: Buffer, content: Content | None) -> Content:
    """Store an object in place of one with this content, or where none is; return its content.

    ConflictError if another one is there, CommitUnknownError if it is not known whether it was
    stored.
    """
    for left in reversed(range(_TRIES)):
        try:
            return bucket.replace(_ROOT, data, content)
        except Replaced:
            found = _found(bucket, data)
            if found is not None and found[1]:
                return found[0]
            # Some servers also refuse if two requests meet, and then nothing may have changed.
            now = None if found is None else found[0]
            is_same = now is content if now is None or content is None else content.is_same(now)
            if not is_same:
                raise ConflictError(
                    f"{bucket.name}: another writer has replaced the file since this change was "
                    "begun; make the change again"
                ) from None
            if not left:
                raise StorageError(f"{bucket.name}: writing was refused again and again") from None
        except (AccessError, ReadOnlyError):
            raise
        except StorageError as error:
            if not left:
                with suppress(BlzError):
                    found = _found(bucket, data)
                    if found is not None and found[1]:
                        return found[0]
                raise CommitUnknownError(
                    f"{bucket.name}: no reply says whether the file was stored; open the table "
                    f"again and look at its version: {error}"
                ) from error
    raise AssertionError


def _found(bucket: Bucket, data: Buffer) -> tuple[Content, bool] | None:
    """Return what is there, and whether it is ours: its end has the random id of a commit."""
    try:
        found = bucket.end(_ROOT, tuning.current.tail_bytes)
    except KeyNotFound:
        return None
    assert found is not None
    content, end = found
    is_ours = content.size == len(data) and memoryview(data)[len(data) - len(end) :] == end
    return content, is_ours


def _probe(bucket: Bucket, is_new: bool) -> None:
    """Raise ReadOnlyError unless the server compares what it replaces, and what it creates."""
    key = f"meta/probe-{secrets.token_hex(16)}"
    other = Content(0, f'"{secrets.token_hex(16)}"', 0, "1")
    with ExitStack() as removed:
        if is_new:
            removed.callback(bucket.delete, [key])
            with suppress(KeyTaken):
                # A reply may have been lost.
                created(bucket, key, b"")
        is_real = not is_new or _is_refused(lambda: bucket.create(key, b""))
        if not _is_refused(lambda: bucket.replace(key, b"", other)):
            is_real = False
            removed.callback(bucket.delete, [key])
    if not is_real:
        raise ReadOnlyError(
            f"{bucket.name}: the server replaces a value without a look at its ETag, so two "
            "writers could lose rows; write to a server that keeps to If-Match and If-None-Match"
        )


def _is_refused(call: Callable[[], object]) -> bool:
    """True if the server answers that a condition does not hold."""
    for left in reversed(range(_TRIES)):
        try:
            call()
        except (KeyTaken, Replaced):
            return True
        except (AccessError, ReadOnlyError):
            raise
        except StorageError:
            if not left:
                raise
        else:
            return False
    raise AssertionError
