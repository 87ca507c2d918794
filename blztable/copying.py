"""Copying: a table from one path to another, in any layout.

Theory of operation. A version of ours is copied file by file, byte for byte; nothing is compressed
again. What another program stored, and a selection of columns, is written again by `to_blz`. Each
value of a copy of old files, which have no checksums, is then compared with the old one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from warnings import catch_warnings, simplefilter

import pyarrow as pa

from blztable import tuning
from blztable.api import open
from blztable.compat.snapshot import OldVersion
from blztable.compat.table import OldTable
from blztable.engine.change.drafts import Drafts, check_nothing_whole, recovered
from blztable.engine.check.rebuild import rebuild, told
from blztable.engine.run.pool import Progress
from blztable.engine.version import versions
from blztable.engine.version.begin import check_free
from blztable.engine.version.copy import copy as copy_files
from blztable.engine.version.copy import is_whole
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import DAMAGED, Version
from blztable.engine.write.options import DURABILITIES, check_choice
from blztable.errors import CorruptError, FormatError, TableNotFoundError
from blztable.report import Copied
from blztable.storage.resolve import LAYOUTS, Options, StoreLike, is_remote, opened_at
from blztable.storage.store import Damaged, KeyNotFound, Store
from blztable.table.progress import ProgressOption, reporting
from blztable.table.reader import TableReader
from blztable.table.snapshot import Snapshot
from blztable.table.table import CTable
from blztable.table.tags import check_version, version_number
from blztable.writing import to_blz

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_LIMITS = ("keep_versions", "keep_seconds", "keep_bytes")
_ReportLosses = Callable[[int, int | None], object] | None


def copy(
    source: StoreLike,
    target: StoreLike,
    *,
    layout: Literal["directory", "file"] | None = None,
    columns: Sequence[str] | None = None,
    version: int | str | None = None,
    mode: Literal["x", "w"] = "x",
    on_corrupt: Literal["raise", "skip"] = "raise",
    durability: Literal["full", "process"] = "full",
    progress: ProgressOption = None,
    storage_options: Options = None,
) -> Copied:
    """Copy a version of a table, as a directory or as one file.

    The files of the table are copied byte for byte; nothing is compressed again. With `columns` or
    mode "w" the rows are written again, with the settings of the table. The copy begins its own
    versions, and has no tags.

    A directory of BLZ or bcolz, or a file of Bloscpack, becomes a table: at the end each value is
    compared with the old one, bit by bit. Attributes, metalayers and default values are copied; the
    attributes of a column of bcolz go to the metadata of its field. The old files are not changed.

    Parameters
    ----------
    source : path-like, bytes or binary file
        Directory of the table, or its file; or a file object or pipe that is open for reading.
    target : path-like or binary file
        A path; or a file object or pipe that is open for writing, which gets one file.
    layout : {"directory", "file"}, optional
        Layout of the copy at a path; a directory by default.
    columns : sequence of str, optional
        Names of the columns to copy; all by default. Columns of pickled objects are refused: if an
        old table has one, name the others.
    version : int or str, optional
        Number or tag of the version to copy; the newest by default.
    mode : {"x", "w"}
        If a table exists at the target, "x" fails and "w" replaces it, as a new version.
    on_corrupt : {"raise", "skip"}
        With "skip", copy what is whole. If the writer of a file was killed before its commit, or
        the file was cut short, these are the row groups before the first one that is not whole. If
        the newest commit is damaged, or a file of the newest version, it is the newest version of
        which all files are whole. If no version is whole, or `version` names one that is not, its
        damaged chunks are copied as they are. If rows are written again, those of damaged pages are
        left out. A leaf that is missing or damaged is made again from the data files.
    durability : {"full", "process"}
        What the copy survives, as in `to_blz`.
    progress : bool or callable, optional
        Progress in bytes; if rows are written again, in rows, first of the write and then of the
        comparison.
    storage_options : mapping, optional
        Settings of the stores of source and target that are URLs, as in `open`.

    Returns
    -------
    Copied
        The number of rows and the version that were copied, and what was not.

    Raises
    ------
    TableNotFoundError
        There is no table, or it does not have this version.
    TableExistsError
        There is something at the target.
    ColumnNotFoundError
        The table has no column of one of these names.
    CorruptError
        A file is missing or damaged, and there is no table at the target; or the values of the copy
        differ from those of the old table.
    FormatError
        A column of an old table cannot be read, for example because its values are pickled.
    LimitError
        The metalayers of an array have more bytes than a table may have.
    ValueError
        An option is not one of its choices.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> print(blz.copy("t.blz", "t-as-one-file.blz", layout="file"))
    version 1: 3 rows
    >>> blz.read_table("t-as-one-file.blz").to_pydict()
    {'a': [1, 2, 3]}

    >>> import io
    >>> file = io.BytesIO()
    >>> blz.to_blz({"a": range(100)}, file, storage=blz.Storage(row_group_rows=40))
    >>> blz.copy(file.getvalue()[:-2_000], "whole.blz", on_corrupt="skip").rows
    80
    """
    check_choice("layout", layout, (None, *LAYOUTS))
    check_choice("mode", mode, ("x", "w"))
    check_choice("on_corrupt", on_corrupt, ("raise", "skip"))
    check_choice("durability", durability, DURABILITIES)
    check_version(version)
    to_target = storage_options if is_remote(target) else None
    # Where neither is a URL, they are refused.
    of_source = storage_options if is_remote(source) or to_target is None else None
    with opened_at(source, options=of_source) as store:
        table, lost, rebuilt = _opened(store, version, on_corrupt)
    with table:
        if not isinstance(table, OldTable) and columns is None and mode == "x":
            _copy_files(table, target, layout, to_target, durability, progress, is_strict=not lost)
            return _copied(table, len(table), lost, rebuilt)
        chosen = table if columns is None else table[list(columns)]
        if hasattr(target, "write"):
            # Only a path can be read again, and changed.
            with TemporaryDirectory() as folder:
                path = Path(folder, "t.blz")
                rows = _copy_rows(
                    table, chosen, path, None, None, "x", on_corrupt, "process", progress
                )
                with open(path) as made:
                    _copy_files(made, target, layout, None, durability, None)
        else:
            rows = _copy_rows(
                table, chosen, target, layout, to_target, mode, on_corrupt, durability, progress
            )
        if rows < len(table):
            lost += (f"{len(table) - rows:,} rows of damaged pages are left out",)
        return _copied(table, rows, lost, rebuilt)


def _copied(table: CTable, rows: int, lost: tuple[str, ...], rebuilt: tuple[str, ...]) -> Copied:
    version = table._snapshot.version
    has_number = not isinstance(version, OldVersion | StagedVersion)
    return Copied(rows, version.head.version if has_number else None, lost, rebuilt)


def _opened(
    store: Store, version: int | str | None, on_corrupt: str
) -> tuple[CTable, tuple[str, ...], tuple[str, ...]]:
    """Return the table to copy, what of it is lost, and what is rebuilt."""
    if on_corrupt == "raise":
        return open(store, version=version), (), ()
    try:
        return _intact(store, version)
    except CorruptError as error:
        if versions.latest(store) is None:
            raise CorruptError(f"{error}; {told(store)}") from None
        raise


def _intact(
    store: Store, version: int | str | None
) -> tuple[CTable, tuple[str, ...], tuple[str, ...]]:
    """Return what is whole of a table, what of it is lost, and what is rebuilt."""
    base = None
    with suppress(FormatError):
        base, lost, rebuilt = _whole(store, version)
    if base is not None:
        return CTable(Snapshot(base, None), writable=False), lost, rebuilt
    table = open(store, version=version)
    if isinstance(table, OldTable):
        return table, (), ()
    try:
        return table, (), tuple(map(str, rebuild(table._snapshot.version)))
    except BaseException:
        table.close()
        raise


def _whole(
    store: Store, number: int | str | None
) -> tuple[Version | None, tuple[str, ...], tuple[str, ...]]:
    """Return the version that is whole, what is lost, and what is rebuilt.

    Return None if it is what `open` finds.
    """
    newest, damaged = None, list[tuple[Version, tuple[str, ...]]]()
    unreadable: CorruptError | None = None
    with suppress(Damaged):
        newest = versions.checked_newest(store)
    for version in _back(store, number):
        try:
            rebuilt = tuple(map(str, rebuild(version)))
        except CorruptError as error:
            unreadable = unreadable or error
            continue
        if not is_whole(version):
            damaged.append((version, rebuilt))
        elif number is None and version.head.version == newest and not rebuilt:
            return None, (), ()
        else:
            lost = [f"version {version.head.version} is damaged" for version, _ in damaged]
            if unreadable is not None:
                lost.insert(0, str(unreadable))
            return version, tuple(lost), rebuilt
    if damaged:
        first, rebuilt = damaged[0]
        at = f"version {first.head.version}"
        return first, (f"{at} is damaged: its damaged chunks are copied as they are",), rebuilt
    if unreadable is not None:
        raise unreadable
    unfinished = recovered(store) if number is None and newest is None else None
    if unfinished is None:
        return None, (), ()
    lost = [f"the rows from {unfinished.head.rows:,} on, which were never finished"]
    return unfinished, tuple(lost), ()


def _back(store: Store, version: int | str | None) -> Iterator[Version]:
    """Yield the versions of a file that can be read, or the one of this name, newest first.

    Those that the last whole commit does not name any more, because they had expired, come last.
    """
    met: set[int] = set()
    for commit in store.earlier():
        with suppress(*DAMAGED, TableNotFoundError):
            named = version_number(commit, version)
            numbers = versions.numbers(commit) if named is None else [named]
            for number in reversed([number for number in numbers if number not in met]):
                try:
                    earlier = versions.read(commit, number)
                except (*DAMAGED, KeyNotFound):
                    continue
                met.add(number)
                yield earlier


def _copy_files(
    table: CTable,
    target: StoreLike,
    layout: str | None,
    options: Options,
    durability: str,
    progress: ProgressOption,
    *,
    is_strict: bool = True,
) -> None:
    """Write the files of a version to a new table, byte for byte."""
    version = table._snapshot.version
    nbytes = sum(map(version.cbytes, range(len(version.paths))))
    with (
        opened_at(target, layout, options=options, is_new=True) as store,
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
        _, lock = copy_files(
            version,
            store,
            "copy",
            counted,
            is_durable=durability == "full",
            steps=Drafts(store, head, version.schema) if store.has_one_writer else None,
            is_strict=is_strict,
        )
        lock.close()
        store.close()


def _copy_rows(
    table: CTable,
    source: TableReader,
    target: StoreLike,
    layout: Literal["directory", "file"] | None,
    options: Options,
    mode: Literal["x", "w"],
    on_corrupt: Literal["raise", "skip"],
    durability: Literal["full", "process"],
    progress: ProgressOption,
) -> int:
    """Write the rows of some columns to a table; return their number."""
    if isinstance(table, OldTable):
        # A table has less room for metalayers than an array; now, before it is written.
        table.check_metalayers()
    names = set(source.columns)
    by_column = {name: own for name, own in (table.storage.columns or {}).items() if name in names}
    storage = replace(
        table.storage,
        columns=by_column or None,
        sort_by=None,
        layout=layout,
        attrs=dict(table.attrs),
        meta=dict(table.meta),
    )
    with reporting(progress, "copying") as callback:
        # The length of a stream is not known to the writer.
        report = None if callback is None else _with_total(callback, len(source))
        rows = source.to_batches(on_corrupt=on_corrupt)
        to_blz(
            rows,
            target,
            mode=mode,
            durability=durability,
            progress=report,
            storage=storage,
            storage_options=options,
        )
    with open(target, "a", durability=durability, storage_options=options) as made:
        if isinstance(table, OldTable):
            with reporting(progress, "comparing") as callback:
                _compare(source, made, on_corrupt, callback)
        with made.transaction() as tx:
            for name, value in _defaults(table).items():
                if name in names:
                    types = (table.schema.field(name).type for table in (table, made))
                    tx.alter_column(name, default=_of_fields(value, *types))
            for name, content in table.vlmeta.items():
                tx.vlmeta[name] = content
            properties = table._snapshot.version.head.properties
            limits: dict[str, Any] = {key: properties[key] for key in _LIMITS if key in properties}
            if limits:
                tx.configure(**limits)
        return len(made)


def _defaults(table: CTable) -> dict[str, Any]:
    if isinstance(table, OldTable):
        return dict(table.defaults)
    version = table._snapshot.version
    declared = StagedVersion.of(version).default_values()
    return {version.schema.names[index]: value for index, value in declared.items()}


def _of_fields(value: Any, type_: pa.DataType, narrowed: pa.DataType) -> Any:
    """Return a default value with those fields of its struct alone that were copied."""
    if type_ == narrowed:
        return value
    return pa.array([value], type_).cast(narrowed)[0]


def _with_total(callback: Callable[[int, int | None], object], rows: int) -> _ReportLosses:
    return lambda done, _: callback(done, rows)


def _compare(
    source: TableReader, made: CTable, on_corrupt: Literal["raise", "skip"], callback: _ReportLosses
) -> None:
    """Raise CorruptError unless both tables have the same rows."""
    rows, start = len(source), 0
    size = max(tuning.current.window_bytes * max(rows, 1) // max(source.nbytes, 1), 1)
    with catch_warnings(), source.to_batches(batch_rows=size, on_corrupt=on_corrupt) as batches:
        # The write has warned of damage.
        simplefilter("ignore", UserWarning)
        for batch in batches:
            stop = start + len(batch)
            names, other = batch.schema.names, made[start:stop]
            columns = pa.Table.from_batches([batch]).columns
            for name, left, right in zip(names, columns, other.columns, strict=True):
                if not _is_same(left, right):
                    raise CorruptError(
                        f"{made.path}: column {name!r}, rows {start} to {stop}, differs from "
                        f"{source.path}; remove the new table and copy again"
                    )
            start = stop
            if callback is not None:
                callback(stop, rows)
    if len(made) != start:
        raise CorruptError(f"{made.path} has {len(made)} rows, and {source.path} has {start}")


def _is_same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    """True if both columns have the same type and the same values, to the bit."""
    if left.type != right.type or len(left) != len(right):
        return False
    return _are_equal(left.combine_chunks(), right.combine_chunks())


def _are_equal(left: pa.Array, right: pa.Array) -> bool:
    type_ = left.type
    if isinstance(type_, pa.BaseExtensionType):
        return _are_equal(left.storage, right.storage)
    if pa.types.is_floating(type_):
        # Arrow takes NaN for unequal, and -0.0 for 0.0.
        bits = _BITS[type_.bit_width]
        return left.view(bits).equals(right.view(bits))
    if pa.types.is_fixed_size_list(type_) and not left.null_count and not right.null_count:
        return _are_equal(left.flatten(), right.flatten())
    if pa.types.is_struct(type_) and not left.null_count and not right.null_count:
        return all(map(_are_equal, left.flatten(), right.flatten()))
    return left.equals(right)
