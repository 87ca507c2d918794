"""Object bucket: S3, GCS, Azure and plain HTTP by obstore, and any store object of obstore.

Retries are those of obstore: of requests that are safe to repeat, for a minute.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import from_url

from blztable.errors import AccessError, BlzError, StorageError
from blztable.storage.remote.bucket import failures
from blztable.storage.remote.options import SCHEMES, public, settings
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
# A larger value is not read whole for a range of it.
_MOST_CUT = 16 << 20
# How often a list is asked for again.
_TRIES = 4
# A range that begins behind the end of a value.
_BEHIND = ("416 Range Not Satisfiable", "InvalidRange", "but length was", "StartTooLarge")


class ObjectBucket:
    """An object of obstore, with a prefix in it."""

    def __init__(
        self, objects: Any, name: str, reopened: tuple[Callable[..., Any], tuple[Any, ...]]
    ) -> None:
        """Take the object, and how another process opens it."""
        self._objects, self.name, self._reopened = objects, name, reopened
        self.lists = self.creates = not name.startswith(("http://", "https://"))
        self._failures = partial(failures, name, kinds=_KINDS)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reopened

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the bytes from `start` to `stop`; fewer if the value ends earlier."""
        if stop is not None and stop <= start:
            return b""
        with self._failures("reading", key):
            try:
                if stop is None and not start:
                    return memoryview(obstore.get(self._objects, key).bytes())
                some: Any = {"offset": start} if stop is None else (start, stop)
                found = obstore.get(self._objects, key, options={"range": some})
                return memoryview(found.bytes())
            except exceptions.NotSupportedError:
                return self._cut(key, start, stop)
            except exceptions.BaseError as error:
                if any(word in str(error) for word in _BEHIND):
                    return b""
                raise

    def _cut(self, key: str, start: int, stop: int | None) -> Buffer:
        """Return a range of a small value, of a server that sends only whole ones."""
        nbytes = obstore.head(self._objects, key)["size"]
        if nbytes > _MOST_CUT:
            raise StorageError(
                f"{self.name}/{key}: the server sends no ranges, and the value has {nbytes} bytes; "
                "use a server that does, or download the table"
            )
        return memoryview(obstore.get(self._objects, key).bytes())[start:stop]

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

    def delete(self, keys: Sequence[str]) -> None:
        """Remove values; keys without a value are skipped."""
        with self._failures("removing", keys[0] if keys else ""), suppress(FileNotFoundError):
            obstore.delete(self._objects, list(keys))


def _entry(found: Any) -> ListedValue:
    etag, time = found["e_tag"] or "", found["last_modified"].timestamp()
    return ListedValue(found["path"], found["size"], etag, time)


def at(url: str, name: str, scheme: str, options: Mapping[str, Any]) -> ObjectBucket:
    """Return the bucket at a URL of one of `SCHEMES`."""
    given = settings(scheme, options, name)
    client: dict[str, Any] = {"timeout": timedelta(seconds=_REQUEST_SECONDS)}
    if scheme in ("http", "https"):
        client |= given
        given = {}
    if "request_payer" in given:
        given["request_payer"] = bool(given["request_payer"])
    plain = str(given.get("endpoint", url)).startswith("http://")
    retry: Any = {"retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    with failures(name, "opening", "", _KINDS):
        open_url: Any = from_url  # Its keyword arguments depend on the scheme.
        objects = open_url(
            url,
            config=given or None,
            client_options={**client, "allow_http": plain},
            retry_config=retry,
        )
    return ObjectBucket(objects, name, (at, (url, name, scheme, public(options))))


def of(objects: Any) -> ObjectBucket:
    """Return the bucket of an object that a user made by obstore."""
    prefix = getattr(objects, "prefix", None)
    name = f"{type(objects).__name__}{f' at {prefix}' if prefix else ''}"
    return ObjectBucket(objects, name, (_refused, (name,)))


def _refused(name: str) -> ObjectBucket:
    raise TypeError(f"{name}: pass the table by its URL to another process")


assert {"s3", "gs", "az", "abfs", "http", "https"} <= SCHEMES.keys()
