"""File bucket: any file system of fsspec, such as `memory://`, `zip://` and `hf://`.

Only a file system whose `mode="create"` is one step is written: the method of the base class looks
for the file and then writes it.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import fsspec

from blztable.errors import BlzError, StorageError
from blztable.storage.remote.bucket import Content, Replaced, failures
from blztable.storage.remote.options import public
from blztable.storage.store import Buffer, KeyTaken, ListedValue

_KINDS: dict[type[BaseException], type[BlzError]] = {
    OSError: StorageError,
    ValueError: StorageError,
}
# The file systems that create in one step, together with this lock.
_CREATING = {"memory"}
_creating = threading.Lock()
# Options of all file systems, which the signatures of their classes do not name.
_COMMON = {"client_kwargs", "config_kwargs", "target_options", "target_protocol", "fo"}


class FileBucket:
    """A path in a file system."""

    lists = True

    def __init__(
        self, files: Any, root: str, name: str, reopened: tuple[Callable[..., Any], tuple[Any, ...]]
    ) -> None:
        """Take the file system, the path, and how another process opens it."""
        self._files, self._root, self.name = files, root.rstrip("/"), name
        self._reopened = reopened
        self.has_root = bool(self._root)
        self.creates = bool(_CREATING.intersection(_protocols(files)))
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
        with self._failures("reading", key):
            found: bytes = self._files.cat_file(self._path(key), start=start or None, end=stop)
            # Behind the read: what was there since the look was read.
            if content is not None and not content.is_same(self._content(key)):
                raise Replaced(key)
            return found

    def end(
        self, key: str, nbytes: int, known: Content | None = None
    ) -> tuple[Content, Buffer] | None:
        """Return the content of a value and its last bytes; None if it is the one known."""
        with self._failures("reading", key):
            found = self._content(key)
        if known is not None and known.is_same(found):
            return None
        return found, self.get(key, max(found.size - nbytes, 0), found.size, found)

    def _content(self, key: str) -> Content:
        found = self._files.info(self._path(key))
        if found["type"] != "file":
            raise FileNotFoundError(key)
        etag = found.get("ETag") or found.get("etag") or ""
        return Content(int(found["size"]), str(etag), _time(found))

    def size(self, key: str) -> int:
        """Return the bytes of a value."""
        with self._failures("looking", key):
            return self._content(key).size

    def entries(self, prefix: str, after: str) -> Iterator[ListedValue]:
        """Yield the values below a prefix whose keys are above `after`, ascending."""
        with self._failures("listing", prefix):
            found = self._files.find(self._path(prefix), detail=True)
        for path, one in sorted(found.items()):
            key = path.removeprefix(self._root).lstrip("/")
            if key > after:
                yield ListedValue(key, int(one["size"]), str(one.get("ETag", "")), _time(one))

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below a prefix."""
        with self._failures("listing", prefix):
            try:
                found = self._files.ls(self._path(prefix), detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def create(self, key: str, data: Buffer) -> str:
        """Store a value where none is; KeyTaken if there is one."""
        # The one in memory looks and stores in two steps, and no other process sees it.
        with self._failures("writing", key), _creating:
            try:
                self._files.pipe_file(self._path(key), bytes(data), mode="create")
            except FileExistsError:
                raise KeyTaken(key) from None
        return ""

    def put(self, key: str, data: Buffer) -> None:
        """Store a value in place of another one."""
        with self._failures("writing", key):
            self._files.pipe_file(self._path(key), bytes(data))

    def replace(self, key: str, data: Buffer, content: Content | None) -> Content:
        """Store a value in place of one with this content, or where none is."""
        with self._failures("writing", key), _creating:
            found = None
            with suppress(FileNotFoundError):
                found = self._content(key)
            if found is None or content is None:
                is_expected = found is content
            else:
                is_expected = content.is_same(found)
            if not is_expected:
                raise Replaced(key)
            self._files.pipe_file(self._path(key), bytes(data))
            return self._content(key)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove values; keys without a value are skipped."""
        for key in keys:
            with self._failures("removing", key), suppress(FileNotFoundError):
                self._files.rm_file(self._path(key))

    def _path(self, key: str) -> str:
        return "/".join(filter(None, (self._root, key))) or self._root


def _protocols(files: Any) -> set[str]:
    names = files.protocol
    return {names} if isinstance(names, str) else set(names)


def _time(found: Mapping[str, Any]) -> float:
    """Return when a file was written; 0 if the file system does not say it."""
    for name in ("LastModified", "last_modified", "mtime", "created"):
        value = found.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0


def at(url: str, name: str, scheme: str, options: Mapping[str, Any]) -> FileBucket:
    """Return the bucket at a URL of a file system that is installed; ValueError if it is not."""
    try:
        kind: Any = fsspec.get_filesystem_class(scheme)
    except (ValueError, ImportError) as error:
        needs = f"; {error}" if isinstance(error, ImportError) else ""
        raise ValueError(f"{name}: there is no store for {scheme}://{needs}") from None
    known = {*_COMMON, *_parameters(kind)}
    for one in options:
        if one not in known:
            raise ValueError(
                f"{name}: storage_options has no {one!r} for {scheme}; pass some of "
                f"{', '.join(sorted(known))}"
            )
    with failures(name, "opening", "", _KINDS):
        files, root = fsspec.url_to_fs(url, **options)
    return FileBucket(files, root, name, (at, (url, name, scheme, public(options))))


def _parameters(kind: type) -> set[str]:
    """Return the names of the arguments of a class of file systems."""
    found = set[str]()
    for one in kind.__mro__:
        if "__init__" in vars(one):
            parameters = inspect.signature(vars(one)["__init__"]).parameters.values()
            found |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    return found - {"self"}
