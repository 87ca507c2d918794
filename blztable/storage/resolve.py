"""Resolve the user's path of a table to a store.

Knows nothing of tables. Libraries of remote stores are imported at the first URL that needs them.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from blztable import tuning
from blztable.errors import TableExistsError
from blztable.storage import one_file, remote
from blztable.storage.files import File, MemoryFile, ObjectFile, PipeFile, can_seek, spooled
from blztable.storage.local import LocalStore
from blztable.storage.store import Store

LAYOUTS = ("directory", "file")
URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)
# Of a file object that cannot seek, up to this many bytes are copied to memory, more to a disk.
SPOOLED_BYTES = 64 << 20
# A path, bytes, a binary file or a store. IO has no type that all binary files have.
StoreLike = str | os.PathLike[str] | Store | Any


# Settings of a remote store, by the names of pandas and fsspec.
Options = Mapping[str, Any] | None


@contextmanager
def opened_at(
    place: StoreLike, layout: str | None = None, *, options: Options = None, is_new: bool = False
) -> Iterator[Store]:
    """Yield the store at a place, as `store_at`; close it if the block fails."""
    store = store_at(place, layout, options=options, is_new=is_new)
    try:
        yield store
    except BaseException:
        store.close()
        raise


def store_at(
    place: StoreLike, layout: str | None = None, *, options: Options = None, is_new: bool = False
) -> Store:
    """Return the store at a place; return a store unchanged.

    Parameters
    ----------
    place : path-like, bytes, binary file or Store
        `~` in a path is expanded.
    layout : str, optional
        One of `LAYOUTS`, for a path where nothing is yet; None stands for the usual one.
    options : mapping, optional
        Settings of a remote store; ValueError for any other place.
    is_new : bool
        True if a binary file is to be written, from its first byte on.
    """
    if isinstance(place, str | os.PathLike):
        if not os.fspath(place):
            raise ValueError("the path is empty; pass the path of the table")
        if isinstance(place, str) and is_remote(place):
            return _in_bucket(_bucket(place, options or {}), layout)
        _refuse(options, os.fspath(place))
        where = os.path.expanduser(_path_of(place))
        return one_file.store.at(where) if is_file(where, layout) else LocalStore(where)
    _refuse(options, type(place).__name__)
    if type(place).__module__.startswith("obstore"):
        return _in_bucket(remote.object_bucket.of(place), layout)
    if hasattr(place, "_ram_store"):  # A MemoryStore, which few programs import.
        if layout == "file":
            raise ValueError(
                f"{place._ram_store.name}: a table in memory is no file; leave layout out, and "
                "copy() the table to a file object or a path"
            )
        return place._ram_store
    if hasattr(place, "put_new"):
        return place
    if is_new and hasattr(place, "write"):
        if layout == "directory":
            raise ValueError("a table in a directory needs a path, not a binary file")
        return one_file.store.OneFileStore(PipeFile(place, _name_of(place)))
    if not is_new and (_is_bytes(place) or hasattr(place, "read")):
        return one_file.store.OneFileStore(_file_of(place))
    several = "; dataset() takes several tables" if isinstance(place, list | tuple) else ""
    raise TypeError(
        f"expected a path, a binary file or a store, found {type(place).__name__}{several}"
    )


def _file_of(place: Any) -> File:
    """Return bytes, or a binary file that is open for reading, as a file that nobody changes."""
    if _is_bytes(place):
        return MemoryFile(bytes(place), is_writable=False, name="bytes in memory")
    name = _name_of(place)
    if not hasattr(place, "read_at") and not can_seek(place):
        return spooled(place, name, SPOOLED_BYTES)
    return ObjectFile(place, name)


def _is_bytes(place: object) -> bool:
    return isinstance(place, bytes | bytearray | memoryview)


def _name_of(file: object) -> str:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"a {type(file).__name__}"


def _path_of(place: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path that a URL of a file names; ValueError if it names none."""
    url = URL.match(place) if isinstance(place, str) else None
    if url is None:
        return place
    host, path = url["host"], unquote(url["path"])
    if host.lower() not in ("", "localhost"):
        raise ValueError(f"{place}: a URL of a file has no host; mount it, or pass file:///path")
    if not path or "\0" in path:
        raise ValueError(f"{place!r} names no path; pass the path of the table: file:///a/b.blz")
    return path


def is_remote(place: StoreLike) -> bool:
    """True for a URL of anything but a local file."""
    url = URL.match(place) if isinstance(place, str) else None
    return url is not None and url["scheme"].lower() != "file"


def _in_bucket(bucket: Any, layout: str | None) -> Store:
    """Return the store of a table in a bucket; that of a file there is found if there is one."""
    if layout != "file":
        return remote.store.RemoteStore(bucket)
    if not bucket.has_root:
        raise ValueError(
            f"{bucket.name}: a table in one file needs the URL of the file, or a store with a "
            "prefix that names it"
        )
    return remote.one_file.at(bucket)


def _bucket(place: str, options: Mapping[str, Any]) -> Any:
    """Return the bucket at a URL; ValueError if no library knows its scheme."""
    url = URL.match(place)
    assert url is not None
    scheme = url["scheme"].lower()
    # Of a chain of URLs, the last one may have a user, too.
    if "@" in url["host"] or (scheme.startswith("http") and "?" in url["path"]):
        name = f"{scheme}://{url['host'].rpartition('@')[2]}{url['path'].partition('?')[0]}"
        raise ValueError(f"{name}: the URL has credentials; pass them in storage_options")
    is_known = scheme in remote.options.SCHEMES
    needed = ("obstore", "blztable[cloud]") if is_known else ("fsspec", "fsspec")
    try:
        kind: Any = remote.object_bucket if is_known else remote.file_bucket
    except ModuleNotFoundError as error:
        if error.name != needed[0]:
            raise
        raise ValueError(
            f"{place}: tables there need {needed[0]}; pip install '{needed[1]}'"
        ) from None
    return kind.at(place, place, scheme, options)


def _refuse(options: Options, place: str) -> None:
    if options:
        raise ValueError(
            f"{place}: storage_options are of remote stores, such as s3://bucket/t.blz; leave "
            "them out"
        )


def is_file(path: str | os.PathLike[str], layout: str | None) -> bool:
    """True for a table in one file; TableExistsError if there is another layout than asked."""
    if not os.path.lexists(path):
        return (layout or tuning.current.layout) == "file"
    found = "file" if os.path.isfile(path) else "directory"
    if layout not in (None, found):
        if not os.path.isdir(path) and found == "directory":
            kind = "a symbolic link to nothing" if os.path.islink(path) else "no regular file"
            raise TableExistsError(f"{os.fspath(path)} is {kind}; choose another path")
        raise TableExistsError(
            f"{os.fspath(path)} is a {found}, and a {layout} cannot replace it at one stroke; "
            "remove it first, or choose another path"
        )
    return found == "file"
