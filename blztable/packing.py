"""Packing: a table as one file and back, and what is whole of a file that is unfinished or damaged.

Knows nothing of files. The bytes of the parts are copied; nothing is compressed again.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from blztable.engine.change.drafts import Drafts, check_nothing_whole, recovered
from blztable.engine.run.progress import Progress
from blztable.engine.version import versions
from blztable.engine.version.begin import check_free
from blztable.engine.version.copy import copy, files, is_whole
from blztable.engine.version.versions import DAMAGED, Version
from blztable.engine.write.options import DURABILITIES, check_choice
from blztable.errors import BlzError, TableNotFoundError
from blztable.storage.resolve import Place, opened_at
from blztable.storage.store import Damaged, KeyNotFound, Store
from blztable.table.progress import ProgressOption, reporting
from blztable.table.tags import check_version, number_meant


def pack(
    source: Place,
    target: Place,
    *,
    version: int | str | None = None,
    durability: str = "full",
    progress: ProgressOption = None,
) -> None:
    """Write a version of a table as one file.

    The files of the table are copied byte for byte into one file, to mail, upload or archive it.
    `open` and the readers take the file like a directory.

    Parameters
    ----------
    source : path-like
        Directory of the table, or its file.
    target : path-like or binary file
        A path where nothing is yet, or a file object or pipe that is open for writing.
    version : int or str, optional
        Number or tag of the version to write; the newest by default. The copy begins its own
        versions, and has no tags.
    durability : {"full", "process"}
        What the copy survives, as in `to_blz`.
    progress : bool or callable, optional
        Progress in bytes, as in `to_blz`.

    Raises
    ------
    TableNotFoundError
        There is no table, or it does not have this version.
    TableExistsError
        There is something at the target.
    CorruptError
        A file of the table is missing, or a byte of it damaged; nothing is left at the target.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> blz.pack("t.blz", "t-as-one-file.blz")
    >>> blz.read_table("t-as-one-file.blz").to_pydict()
    {'a': [1, 2, 3]}
    """
    _move(source, target, "file", version, durability, progress)


def unpack(
    source: Place,
    target: Place,
    *,
    version: int | str | None = None,
    durability: str = "full",
    progress: ProgressOption = None,
) -> None:
    """Write a version of a table in one file as a directory.

    Parameters
    ----------
    source : path-like, bytes or binary file
        The file of the table, or a file object or pipe that is open for reading.
    target : path-like
        A path where nothing is yet.
    version : int or str, optional
        Number or tag of the version to write, as in `pack`.
    durability : {"full", "process"}
        What the copy survives, as in `to_blz`.
    progress : bool or callable, optional
        Progress in bytes, as in `to_blz`.

    Raises
    ------
    TableNotFoundError, TableExistsError, CorruptError
        As in `pack`.

    Examples
    --------
    >>> import io
    >>> import blztable as blz
    >>> file = io.BytesIO()
    >>> blz.to_blz({"a": [1, 2, 3]}, file)
    >>> blz.unpack(file, "t.blz")
    >>> blz.read_table("t.blz").to_pydict()
    {'a': [1, 2, 3]}
    """
    _move(source, target, "directory", version, durability, progress)


def recover(
    source: Place,
    target: Place,
    *,
    version: int | str | None = None,
    durability: str = "full",
    progress: ProgressOption = None,
) -> None:
    """Write what is whole of an unfinished or damaged file as a new table.

    If the process that wrote the file was killed before its commit, or the file was cut short on
    its way, the row groups before the first one that is not whole are recovered. If the newest
    commit of the file is damaged, or a file of the newest version, the newest version of which all
    files are whole is recovered.

    Parameters
    ----------
    source : path-like, bytes or binary file
        The file that was never finished, or is damaged.
    target : path-like
        A path where nothing is yet: a directory is made.
    version : int or str, optional
        Number or tag of the version to recover. Its damaged chunks are copied as they are.
    durability : {"full", "process"}
        What the table survives, as in `to_blz`.
    progress : bool or callable, optional
        Progress in bytes, as in `to_blz`.

    Raises
    ------
    TableNotFoundError
        The file has no whole row group, or no such version.
    TableExistsError
        There is something at the target.
    ValueError
        The newest version is whole; open or unpack it.

    Examples
    --------
    >>> import io
    >>> import blztable as blz
    >>> file = io.BytesIO()
    >>> blz.to_blz({"a": range(100)}, file, storage=blz.Storage(row_group_rows=40))
    >>> blz.recover(file.getvalue()[:-2_000], "t.blz")
    >>> blz.open("t.blz").nrows
    80
    """
    check_choice("durability", durability, DURABILITIES)
    check_version(version)
    with opened_at(source) as store:
        found = _recoverable(store, version)
        if found is None:
            what = "whole row group of a table" if version is None else f"version {version!r}"
            raise TableNotFoundError(f"{store.name} has no {what}")
        _copy(found, target, None, durability, progress, is_strict=False)
        store.close()


def _recoverable(store: Store, version: int | str | None) -> Version | None:
    """Return the version to recover; None if there is none."""
    newest, damaged = None, None
    with suppress(Damaged):
        newest = versions.checked_newest(store)
    for found in _back(store, version):
        if not is_whole(found):
            damaged = damaged or found
        elif version is None and found.head.version == newest:
            break
        else:
            return found
    if version is None and newest is not None:
        raise ValueError(
            f"{store.name} has a committed table; open it, or unpack it; read what is whole of a "
            'damaged one with on_corrupt="skip"'
        )
    if damaged is None and version is None:
        return recovered(store)
    return damaged


def _back(store: Store, version: int | str | None) -> Iterator[Version]:
    """Yield the versions of a file that can be read, or the one that is meant, newest first.

    Those that the last whole commit does not name any more, because they had expired, come last.
    """
    met: set[int] = set()
    for commit in store.earlier():
        with suppress(BlzError):
            meant = number_meant(commit, version)
            numbers = versions.numbers(commit) if meant is None else [meant]
            for number in reversed([one for one in numbers if one not in met]):
                try:
                    found = versions.read(commit, number)
                except (*DAMAGED, KeyNotFound):
                    continue
                met.add(number)
                yield found


def _move(
    source: Place,
    target: Place,
    layout: str,
    number: int | str | None,
    durability: str,
    progress: ProgressOption,
) -> None:
    check_choice("durability", durability, DURABILITIES)
    with opened_at(source) as store:
        version, pinned = versions.pin(store, number_meant(store, number))
        with pinned:
            _copy(version, target, layout, durability, progress)
        store.close()


def _copy(
    version: Version,
    target: Place,
    layout: str | None,
    durability: str,
    progress: ProgressOption,
    *,
    is_strict: bool = True,
) -> None:
    groups = range(len(version.head.row_groups))
    nbytes = sum(facts.cbytes for group in groups for _, facts in files(version, group))
    with (
        opened_at(target, layout, is_new=True) as store,
        reporting(progress, "copying") as callback,
    ):
        check_free(store)
        check_nothing_whole(store)
        counted = Progress(callback, nbytes, 1)
        head = replace(
            version.head,
            parent=0,
            durable=False,
            lasting=0,
            history=(),
            commit_ids=(),
            tags={},
        )
        _, lock = copy(
            version,
            store,
            "copy",
            counted,
            is_durable=durability == "full",
            steps=Drafts(store, head) if store.has_one_writer else None,
            is_strict=is_strict,
        )
        lock.close()
        store.close()
