"""Object bucket: S3, GCS, Azure and plain HTTP by obstore, and any store object of obstore.

Retries are those of obstore: of requests that are safe to repeat, for a minute.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import MemoryStore, from_url

from blztable.errors import AccessError, BlzError, ReadOnlyError, StorageError
from blztable.storage.remote.bucket import Content, Replaced, failures
from blztable.storage.remote.options import ENDPOINTS, SCHEMES, public, settings
from blztable.storage.store import Buffer, KeyTaken, ListedValue

_KINDS: dict[type[BaseException], type[BlzError]] = {
    exceptions.PermissionDeniedError: AccessError,
    exceptions.UnauthenticatedError: AccessError,
    exceptions.BaseError: StorageError,
    # obstore raises these two for an address or a setting.
    ValueError: StorageError,
    OSError: StorageError,
}
_REQUEST_SECONDS, _RETRY_SECONDS = 30, 60
# Bytes a second of a slow connection: a larger value has more time.
_SLOWEST = 500_000
# A larger value is not read whole for a range of it.
_MOST_CUT = 16 << 20
# How often a list is asked for again.
_TRIES = 4
# Begins an ETag that a server does not compare.
_WEAK = "W/"
# A range that begins behind the end of a value.
_BEHIND = ("416 Range Not Satisfiable", "InvalidRange", "but length was", "StartTooLarge")


class ObjectBucket:
    """An object of obstore, with a prefix in it."""

    def __init__(
        self,
        objects: Any,
        name: str,
        reopened: tuple[Callable[..., Any], tuple[Any, ...]],
        *,
        has_root: bool,
        opened: Callable[[float], Any] | None = None,
    ) -> None:
        """Take the object, and how another process opens it, or this one with other seconds."""
        self._objects, self.name, self._reopened = objects, name, reopened
        self.has_root, self._opened = has_root, opened
        self.lists = self.creates = not name.startswith(("http://", "https://"))
        self._failures = partial(failures, name, kinds=_KINDS)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reopened

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def get(
        self, key: str, start: int = 0, stop: int | None = None, content: Content | None = None
    ) -> Buffer:
        """Return the bytes from `start` to `stop`; fewer if the value ends earlier."""
        if stop is not None and stop <= start:
            return b""
        options: Any = {}
        if stop is not None or start:
            options["range"] = {"offset": start} if stop is None else (start, stop)
        if content is not None and content.etag and not content.etag.startswith(_WEAK):
            options["if_match"] = content.etag
        with self._failures("reading", key):
            try:
                found = obstore.get(self._objects, key, options=options or None)
                self._check(key, found.meta, content)
                return memoryview(found.bytes())
            except exceptions.NotSupportedError:
                return self._whole(key, content)[start:stop]
            except exceptions.PreconditionError:
                raise Replaced(key) from None
            except exceptions.BaseError as error:
                if _is_behind(error):
                    return b""
                raise

    def end(
        self, key: str, nbytes: int, known: Content | None = None
    ) -> tuple[Content, Buffer] | None:
        """Return the content of a value and its last bytes; None if it is the one known."""
        for left in reversed(range(_TRIES)):
            try:
                return self._end(key, nbytes, known)
            except AccessError:
                raise
            except StorageError:
                # obstore does not go on with the end of a value whose reply was cut.
                if not left:
                    raise
        raise AssertionError

    def _end(self, key: str, nbytes: int, known: Content | None) -> tuple[Content, Buffer] | None:
        options: Any = {"range": {"suffix": nbytes}}
        if known is not None and known.etag:
            options["if_none_match"] = known.etag
        data: Buffer
        with self._failures("reading", key):
            try:
                reply = obstore.get(self._objects, key, options=options)
                found, data = _content(reply.meta), memoryview(reply.bytes())
            except exceptions.NotModifiedError:
                return None
            except exceptions.NotSupportedError:
                # Azure knows no last bytes, and some web servers know no ranges at all.
                found = _content(obstore.head(self._objects, key))
                data = b""
                if known is None or not known.is_same(found):
                    data = self._last(key, nbytes, found)
            except exceptions.BaseError as error:
                if not _is_behind(error):
                    raise
                found, data = _content(obstore.head(self._objects, key)), b""
        return None if known is not None and known.is_same(found) else (found, data)

    def _last(self, key: str, nbytes: int, content: Content) -> Buffer:
        """Return the last bytes of a value of known length, or all bytes of a small one."""
        start = max(content.size - nbytes, 0)
        try:
            reply = obstore.get(self._objects, key, options={"range": (start, content.size)})
        except exceptions.NotSupportedError:
            return self._whole(key, content)
        self._check(key, reply.meta, content)
        return memoryview(reply.bytes())

    def _whole(self, key: str, content: Content | None) -> memoryview:
        """Return a small value, of a server that sends only whole ones."""
        nbytes = obstore.head(self._objects, key)["size"]
        if nbytes > _MOST_CUT:
            raise StorageError(
                f"{self.name}/{key}: the server sends no ranges, and the value has {nbytes} bytes; "
                "use a server that does, or download the table"
            )
        reply = obstore.get(self._objects, key)
        self._check(key, reply.meta, content)
        return memoryview(reply.bytes())

    @staticmethod
    def _check(key: str, meta: Any, content: Content | None) -> None:
        """Raise Replaced unless a reply is of this content, whatever the server compares."""
        if content is not None and not content.is_same(_content(meta)):
            raise Replaced(key)

    def size(self, key: str) -> int:
        """Return the bytes of a value."""
        with self._failures("looking", key):
            return obstore.head(self._objects, key)["size"]

    def entries(self, prefix: str, after: str) -> Iterator[ListedValue]:
        """Yield the values below a prefix whose keys are above `after`, ascending."""
        left = _TRIES
        while left:
            try:
                with self._failures("listing", prefix):
                    for some in obstore.list(self._objects, prefix or None, offset=after or None):
                        for one in some:
                            after = one["path"]
                            yield _entry(one)
                return
            except AccessError:
                raise
            except StorageError:
                # obstore does not go on with a list whose reply was cut.
                left -= 1
                if not left:
                    raise

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below a prefix."""
        if not self.lists:
            return []
        cut = len(prefix) + 1 if prefix else 0
        for left in reversed(range(_TRIES)):
            try:
                with self._failures("listing", prefix):
                    found = obstore.list_with_delimiter(self._objects, prefix or None)
                break
            except AccessError:
                raise
            except StorageError:
                if not left:
                    raise
        prefixes = [path[cut:].rstrip("/") for path in found["common_prefixes"]]
        return [*(one["path"][cut:] for one in found["objects"]), *prefixes]

    def create(self, key: str, data: Buffer) -> str:
        """Store a value where none is; KeyTaken if there is one."""
        with self._failures("writing", key):
            try:
                found = obstore.put(self._objects, key, data, mode="create", use_multipart=False)
            except exceptions.AlreadyExistsError:
                raise KeyTaken(key) from None
        return found["e_tag"] or ""

    def put(self, key: str, data: Buffer) -> None:
        """Store a value in place of another one."""
        with self._failures("writing", key):
            obstore.put(self._objects, key, data, use_multipart=False)

    def replace(self, key: str, data: Buffer, content: Content | None) -> Content:
        """Store a value in place of one with this content, or where none is."""
        mode: Any = "create"
        if content is not None:
            mode = {"e_tag": content.etag}
            if content.version is not None:
                mode["version"] = content.version
        objects, seconds = self._objects, len(data) / _SLOWEST
        if self._opened is not None and seconds > _REQUEST_SECONDS:
            objects = self._opened(seconds)
        with self._failures("writing", key):
            try:
                found = obstore.put(objects, key, data, mode=mode, use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                raise Replaced(key) from None
            except FileNotFoundError as error:
                if content is None or "NoSuchBucket" in str(error):
                    raise
                raise Replaced(key) from None
            except NotImplementedError:
                raise ReadOnlyError(
                    f"{self.name}: this store cannot compare the file that it replaces, so it "
                    "takes no change of a table in one file; write a directory"
                ) from None
        return Content(len(data), found["e_tag"] or "", 0, found["version"])

    def delete(self, keys: Sequence[str]) -> None:
        """Remove values; keys without a value are skipped."""
        with self._failures("removing", keys[0] if keys else ""), suppress(FileNotFoundError):
            obstore.delete(self._objects, list(keys))


def _content(meta: Any) -> Content:
    time = meta["last_modified"].timestamp()
    return Content(meta["size"], meta["e_tag"] or "", time, meta["version"])


def _is_behind(error: BaseException) -> bool:
    return any(word in str(error) for word in _BEHIND)


def _entry(found: Any) -> ListedValue:
    etag, time = found["e_tag"] or "", found["last_modified"].timestamp()
    return ListedValue(found["path"], found["size"], etag, time)


def at(url: str, name: str, scheme: str, options: Mapping[str, Any]) -> ObjectBucket:
    """Return the bucket at a URL of one of `SCHEMES`."""
    given = settings(scheme, options, name)
    client: dict[str, Any] = {}
    if scheme in ("http", "https"):
        client |= given
        given = {}
    if "request_payer" in given:
        given["request_payer"] = bool(given["request_payer"])
    of_environment = next(filter(None, map(os.environ.get, ENDPOINTS.get(scheme, ()))), url)
    plain = str(given.get("endpoint", of_environment)).startswith("http://")
    retry: Any = {"retry_timeout": timedelta(seconds=_RETRY_SECONDS)}

    def opened(seconds: float) -> Any:
        timeout = timedelta(seconds=seconds)
        with failures(name, "opening", "", _KINDS):
            open_url: Any = from_url  # Its keyword arguments depend on the scheme.
            return open_url(
                url,
                config=given or None,
                client_options={**client, "timeout": timeout, "allow_http": plain},
                retry_config=retry,
            )

    objects = opened(_REQUEST_SECONDS)
    has_root = bool(url.partition("://")[2].partition("/")[2].strip("/"))
    reopened = at, (url, name, scheme, public(options))
    return ObjectBucket(objects, name, reopened, has_root=has_root, opened=opened)


def of(objects: Any) -> ObjectBucket:
    """Return the bucket of an object that a user made by obstore."""
    prefix = getattr(objects, "prefix", None)
    name = f"{type(objects).__name__}{f' at {prefix}' if prefix else ''}"
    # That in memory takes any key, also none.
    has_root = bool(prefix) or isinstance(objects, MemoryStore)
    return ObjectBucket(objects, name, (_refused, (name,)), has_root=has_root)


def _refused(name: str) -> ObjectBucket:
    raise TypeError(f"{name}: pass the table by its URL to another process")


assert {"s3", "gs", "az", "abfs", "http", "https"} <= SCHEMES.keys()
