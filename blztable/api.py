"""Functions on a table at a path: create, open and read it; `writing` has `to_blz`.

Each is a few lines over the other rooms. Wrong arguments raise before anything happens.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pandas as pd
import pyarrow as pa
from pandas.api.extensions import no_default

from blztable import compat
from blztable.compat.taken import named
from blztable.convert.append_source import new_without_rows
from blztable.convert.column_type import schema_of
from blztable.convert.gateway import IngestOptions
from blztable.convert.objects.tagged import checked_attrs
from blztable.engine import change
from blztable.engine import version as engine_version
from blztable.engine.read.damage import ON_CORRUPT, DamagedRows, OnCorrupt
from blztable.engine.version import versions
from blztable.engine.version.begin import check_free, placed
from blztable.engine.version.newest import check_current
from blztable.engine.version.versions import RETRIES, Dropped, Version
from blztable.engine.write.options import (
    DURABILITIES,
    OBJECTS,
    Storage,
    check_choice,
    given_storage,
)
from blztable.errors import BlzError, CorruptError, FormatError, TableNotFoundError, no_column
from blztable.report import Vacuumed
from blztable.storage.resolve import Options, StoreLike, is_remote, opened_at, store_at
from blztable.storage.store import Damaged, Lock, Store
from blztable.table import datasets
from blztable.table.batches import with_views
from blztable.table.names import Coded, Rows, checked_count, checked_integer
from blztable.table.parts import Hosts, TablePart
from blztable.table.progress import ProgressOption
from blztable.table.reader import ColumnNames, Filters
from blztable.table.snapshot import Snapshot
from blztable.table.table import CTable
from blztable.table.tags import At, check_version, version_number

if TYPE_CHECKING:
    from blztable.table.datasets.dataset import BlzDataset
    from blztable.table.datasets.several import Several

T = TypeVar("T")
Directory = str | os.PathLike[str] | None
# Bytes of a cache whose user does not choose.
CACHE_BYTES = 4_000_000_000


def create(
    path: StoreLike,
    schema: pa.Schema | pd.DataFrame | Mapping[str, Any],
    *,
    mode: Literal["x", "w"] = "x",
    compression: Literal["lz4", "lz4hc", "zlib", "zstd"] | None = None,
    storage: Storage | None = None,
    durability: Literal["full", "process"] = "full",
    retries: int = RETRIES,
    storage_options: Options = None,
) -> CTable:
    """Create a table without rows and open it for changes.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file.
    schema : pyarrow.Schema, DataFrame, or mapping of names to types
        Names and types of the columns. A type is one of Arrow, its name, a dtype of numpy or
        pandas, or a type of Python: bool, int, float, str, bytes, or one of `datetime`. Of a
        DataFrame, the table gets the columns, the index and the `attrs`, and no rows.
    mode : {"x", "w"}
        If a table exists, "x" fails and "w" replaces it, as a new version.
    compression : {"lz4", "lz4hc", "zlib", "zstd"}, optional
        Codec of all columns, as in `to_blz`.
    storage : Storage, optional
        How the rows will be stored, and the attributes of the table, as in `to_blz`.
    durability : {"full", "process"}
        What commits survive, as in `to_blz`.
    retries : int, optional
        How often a change of the open table is made again after a conflict, as in `open`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    CTable
        The new table, version 1 or the next one, open for changes.

    Raises
    ------
    SchemaError
        A type cannot be stored.
    TableExistsError
        A table exists and the mode is "x"; or something that is not a table exists, which is never
        replaced.
    ValueError
        An option is not one of its choices.
    BusyError, StorageError, CommitUnknownError
        The commit failed, see `CTable`.

    Examples
    --------
    >>> import blztable as blz
    >>> import pyarrow as pa
    >>> with blz.create("log.blz", {"at": pa.timestamp("us"), "what": str, "n": "Int64"}) as t:
    ...     print(len(t), t.columns)
    0 ['at', 'what', 'n']
    """
    check_choice("mode", mode, ("w", "x"))
    check_choice("durability", durability, DURABILITIES)
    retries = checked_count(retries, "retries")
    given = given_storage(storage, compression=compression)
    attributes = checked_attrs(dict(given.attrs or {}))
    columns = schema_of(schema, IngestOptions(objects=given.objects or OBJECTS[0]))
    with opened_at(path, given.layout, options=storage_options) as store, named(store):
        if mode == "x":
            check_free(store)

        def made(store: Store) -> tuple[Version, Lock]:
            return change.creation.create(
                store,
                new_without_rows(columns),
                given,
                attributes=columns.attrs | attributes,
                replace_existing=mode == "w",
                is_durable=durability == "full",
            )

        version, pinned = placed(store, given.layout, made)
    snapshot = Snapshot(version, pinned)
    return CTable(snapshot, writable=True, durability=durability, retries=retries)


def open(
    path: StoreLike,
    mode: Literal["r", "a"] = "r",
    *,
    version: int | str | None = None,
    at: At = None,
    durability: Literal["full", "process"] = "full",
    retries: int = RETRIES,
    hold: float | None = None,
    cache: Directory = None,
    cache_bytes: int = CACHE_BYTES,
    storage_options: Options = None,
) -> CTable:
    """Open a table at one version.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file; or the URL of one of these in a remote store, such as
        "s3://bucket/t.blz".
    mode : {"r", "a"}
        "r" to read, "a" to read and change.
    version : int or str, optional
        Number or tag of the version to show; the newest by default. Changes made through an older
        version are applied to the newest, if nothing that they rely on has changed since.
    at : str, datetime, date, Timestamp or datetime64, optional
        Show the version that was the newest at this time, which is the time of the commit. Text is
        ISO 8601, such as "2026-11-22T10:00". A time without a zone is in the zone of this machine,
        as `datetime.now()`; a date is its midnight. `CTable.versions` has times in UTC.
    durability : {"full", "process"}
        What commits survive, as in `to_blz`.
    retries : int, optional
        How often a change of rows, columns or settings is made again on the newest version after a
        conflict, before ConflictError is raised. It is not made again after 30 seconds, nor if it
        has values for single rows (an array in `update` or `add_column`, or an index that continues
        the table's), nor if its data can be read only once, such as an iterator.
    hold : float, optional
        In an object store: seconds for which no `vacuum` removes the version, unless the table is
        closed before. It takes a few requests, and one more every 20 minutes. Elsewhere an open
        table holds its version as long as it is open, and this does nothing.
    cache : path-like, optional
        Directory on this machine that keeps the bytes that were read of a table in a remote store,
        for all later reads of them, by any process. It is made if it is missing, and may be removed
        at any time. A table of this machine needs none: ValueError.
    cache_bytes : int, optional
        Bytes that the directory may have, about; those used least lately go first.
    storage_options : mapping, optional
        Settings of the store of a URL, by the names of pandas: `key`, `secret`, `token`, `anon`,
        `endpoint_url`, `account_name` and others. What is not given comes from the environment.

    Returns
    -------
    CTable
        The table, to be closed by its owner; best in a `with`.

    Raises
    ------
    TableNotFoundError
        No table exists at this path, or it does not have this version. For a time: the version of
        that time is not kept any more; the message names the kept versions nearest to it.
    CorruptError
        The manifest of the version is damaged; the message names the newest intact version.
    FormatError
        The table was written by a newer program, or in another format.
    ValueError
        An option is not one of its choices, `retries` is negative, or `hold` is not positive.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     print(len(t), t.version)
    3 1
    """
    check_choice("mode", mode, ("r", "a"))
    check_choice("durability", durability, DURABILITIES)
    check_version(version, at)
    retries = checked_count(retries, "retries")
    if hold is not None and not hold > 0:
        raise ValueError(f"hold must be a positive number of seconds, not {hold!r}")
    with opened_at(path, options=storage_options) as store:
        if cache is not None:
            cache_bytes = checked_count(cache_bytes, "cache_bytes")
            store.use_cache(os.path.abspath(os.path.expanduser(cache)), cache_bytes)
        try:
            try:
                snapshot = _held(store, version_number(store, version, at), hold)
            except TableNotFoundError as error:
                # Only then, so that a table in a directory costs no request more.
                file = None if isinstance(error, Dropped) else store.in_one_file()
                if file is None:
                    raise
                store = file
                snapshot = _held(store, version_number(store, version, at), hold)
        except Damaged:
            raise
        except (TableNotFoundError, CorruptError, FormatError) as error:
            # Only then: the tables of this program are recognised first, and at no cost.
            draft = change.drafts.recovered(store)
            if draft is not None:
                raise CorruptError(
                    f"{draft.store.name} was never finished: {change.drafts.whole(draft)}; read "
                    'them with on_corrupt="skip", or copy them with '
                    'blztable.copy(source, target, on_corrupt="skip")'
                ) from None
            if _is_unfinished(store):
                raise CorruptError(
                    f"{store.name} was never finished, and no row group of it is whole"
                ) from None
            old = compat.table.old_table(store, mode, version if at is None else at)
            if old is None:
                compat.table.raise_foreign(store, error)
                raise
            return old
    is_writable = mode == "a"
    table = CTable(snapshot, writable=is_writable, durability=durability, retries=retries)
    with ExitStack() as failed:
        # A filter may raise the warning.
        failed.callback(table.close)
        versions.warn_behind(store)
        failed.pop_all()
    return table


def _held(store: Store, number: int | None, hold: float | None) -> Snapshot:
    """Open and hold a version; the newest one again if it was removed before it was held."""
    while True:
        snapshot = Snapshot(*versions.pin(store, number))
        with ExitStack() as failed, suppress(*([] if number else [TableNotFoundError])):
            failed.callback(snapshot.close)
            if number is not None:
                check_current(snapshot.version)
            snapshot.keep(hold)
            failed.pop_all()
            return snapshot


def exists(path: StoreLike, *, storage_options: Options = None) -> bool:
    """True if there is a table at a path that `open` can open.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    bool
        False if nothing is there, something else is there, or nothing was committed yet.

    Raises
    ------
    CorruptError
        A table is there, and its newest manifest is missing.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.exists("visits.blz")
    False
    >>> blz.to_blz({"city": ["Paris"]}, "visits.blz")
    >>> blz.exists("visits.blz")
    True
    """
    with opened_at(path, options=storage_options) as store:
        try:
            found = versions.is_table(store)
            file = None if found else store.in_one_file()
            return found or (file is not None and versions.is_table(file))
        except FormatError:
            return False
        finally:
            store.close()


def drop(path: StoreLike, *, storage_options: Options = None) -> None:
    """Remove a table, so that no writer who has it open can bring it back.

    Whoever has the table open reads on; a change by its handle raises an error, and commits
    nothing. A table that is made at the path later has the next number as its first version. A file
    of 24 bytes stays, which keeps the number: remove the directory, or the file, when nobody uses
    the path.

    The files of the table are removed at once, but those of versions that are open. In an object
    store nobody knows these, so all files stay until `vacuum`.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Raises
    ------
    TableNotFoundError
        There is no table, or it was dropped.
    FormatError
        The table was written by a newer program.
    ReadOnlyError
        The table cannot be changed here.
    BusyError, StorageError, CommitUnknownError
        As of a commit, see `CTable`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"city": ["Paris"]}, "visits.blz")
    >>> blz.drop("visits.blz")
    >>> blz.exists("visits.blz")
    False
    """
    _change(path, storage_options, engine_version.drop.drop)


def vacuum(
    path: StoreLike,
    *,
    keep: int | None = None,
    older_than: float | None = None,
    wait: float | None = None,
    storage_options: Options = None,
) -> Vacuumed:
    """Remove versions that are no longer kept, and files that killed writers left.

    As `CTable.vacuum`, without opening the table: also if it was dropped, or its newest version is
    damaged. Nothing but its number stays of a table that was dropped, and of versions of it that
    are open.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file.
    keep : int, optional
        Maximum number of versions to keep, the newest included.
    older_than : float, optional
        Time since a version was superseded, in seconds, after which it is removed.
    wait : float, optional
        Maximum time to wait until no writer is active, in seconds. By default
        `Tuning.lock_seconds`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    Vacuumed
        What was removed, and what stays although it expired, as of `CTable.vacuum`.

    Raises
    ------
    TableNotFoundError
        Nothing was ever committed there.
    ReadOnlyError
        The table cannot be changed here.
    BusyError
        Writers were active all the time.

    Examples
    --------
    >>> import blztable as blz
    >>> for n in range(3):
    ...     blz.to_blz({"n": [n]}, "swept.blz", mode="a")
    >>> blz.vacuum("swept.blz", keep=1).versions
    (1, 2)
    """
    keep = None if keep is None else checked_integer(keep, "keep")
    made = partial(engine_version.vacuum.vacuum, keep=keep, older_than=older_than, wait=wait)
    return _change(path, storage_options, made)


def _change(path: StoreLike, options: Options, change: Callable[[Store], T]) -> T:
    """Change a table without opening it; say what else is there."""
    with closing(store_at(path, options=options)) as store:
        try:
            try:
                return change(store)
            except TableNotFoundError as error:
                file = None if isinstance(error, Dropped) else store.in_one_file()
                if file is None:
                    raise
                return change(file)
        except (TableNotFoundError, FormatError) as error:
            compat.table.old_table(store, "a", None)
            compat.table.raise_foreign(store, error)
            raise


def _is_unfinished(store: Store) -> bool:
    """True if the store has values and no version, because nothing was published."""
    with suppress(BlzError):
        return versions.newest_number(store) is None and store.unfinished() is not None
    return False


def _open_to_read(
    path: StoreLike,
    version: int | str | None,
    at: At,
    on_corrupt: str,
    options: Options,
    cache: Directory,
    cache_bytes: int,
) -> CTable:
    """Open a table; unless damage is to raise, also one that was never finished."""
    check_choice("on_corrupt", on_corrupt, ON_CORRUPT)
    try:
        return open(
            path,
            version=version,
            at=at,
            cache=cache,
            cache_bytes=cache_bytes,
            storage_options=options,
        )
    except CorruptError:
        if on_corrupt == "raise":
            raise
        with opened_at(path, options=options) as store:
            store = store.in_one_file() or store
            draft = None if versions.newest_number(store) else change.drafts.recovered(store)
            if draft is None:
                raise
            snapshot = Snapshot(draft, None)
            reason = f"{store.name} was never finished"
            snapshot.unfinished.append(DamagedRows(draft.head.rows, None, reason))
            return CTable(snapshot, writable=False)


def read_blz(
    path: StoreLike,
    *,
    columns: ColumnNames | None = None,
    filters: Filters = None,
    rows: Rows = None,
    dictionaries: Coded = None,
    version: int | str | None = None,
    at: At = None,
    dtype_backend: Any = no_default,
    on_corrupt: OnCorrupt = "raise",
    progress: ProgressOption = None,
    cache: Directory = None,
    cache_bytes: int = CACHE_BYTES,
    storage_options: Options = None,
) -> pd.DataFrame:
    """Read a table, or some columns of it, into a DataFrame.

    The frame is writable and shares its memory with the decoded columns. A frame that `to_blz`
    wrote comes back equal: index, labels, dtypes, `attrs`. The exceptions: None, NaN and NA in one
    object column all become None, decimals get one scale, and foreign byte order becomes native.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file.
    columns : sequence of str or tuple of str, optional
        Names of the columns to read, in this order; all by default. The index is restored too.
        "address.city" or ("address", "city") is one field of a struct: the column then has only the
        fields that are named, and no others are read.
    filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
        Condition that a row must meet; all rows by default. A text, "a > 1 and city = 'Bern'"; or
        an expression, `pc.field("a") > 1`; or a list of tuples (column, operator, value) that must
        all be true; or several such lists, of which one must be true. The operators of tuples are
        ==, !=, <, <=, >, >=, in and not in. The columns need not be returned. Rows keep their index
        labels. Pages that cannot hold such rows are not read, see docs/how-to/query.md.
    rows : (int, int), optional
        First row to read, and the row after the last one, as in a slice; all rows by default. Rows
        keep their index labels.
    dictionaries : sequence of str or "auto", optional
        Names of columns of text or binary to read as categoricals; with "auto", those that are
        stored as dictionaries. No text is made of these.
    version : int or str, optional
        Number or tag of the version to read; the newest by default.
    at : str, datetime, date, Timestamp or datetime64, optional
        Read the version that was the newest at this time, as in `open`.
    dtype_backend : {"numpy_nullable", "pyarrow"}, optional
        Kind of dtypes, as in pandas. By default, dates and decimals become one Python object each;
        with "pyarrow" they stay Arrow values, which is many times faster.
    on_corrupt : {"raise", "skip", "null"}
        With "skip", the rows of pages that are damaged in one of the columns read are left out;
        the others keep their labels. With "null", all rows are kept, and a column is missing where
        its pages are damaged; rows for which the filter needs damaged pages are left out. A warning
        names the rows. `attrs` lists them under "blz:missing_rows" and "blz:missing_values".
    progress : bool or callable, optional
        Progress of the read, as in `to_blz`.
    cache, cache_bytes : path-like and int, optional
        A directory that keeps bytes of a remote table, as in `open`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    pandas.DataFrame
        The rows that meet the condition, in stored order; one column per name.

    Raises
    ------
    TableNotFoundError
        No table exists at this path, or it does not have this version.
    ColumnNotFoundError
        The table has no column of one of these names.
    SchemaError
        A filter compares a column with a value of a type that cannot be compared with it, or
        `dictionaries` names a column of another type.
    CorruptError
        A file is damaged or missing; the message names the file, the column and the chunk. With
        another `on_corrupt` than "raise", only if a manifest is damaged.
    LimitError
        The result would not fit into this machine's memory; read it with `CTable.to_batches`.
    ValueError
        An option is not one of its choices.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3], "b": ["x", "y", "z"]}, "t.blz")
    >>> blz.read_blz("t.blz", columns=["b"])
       b
    0  x
    1  y
    2  z
    >>> blz.read_blz("t.blz", filters=[("a", ">", 1)])
       a  b
    1  2  y
    2  3  z
    """
    with _open_to_read(path, version, at, on_corrupt, storage_options, cache, cache_bytes) as table:
        return table.to_pandas(
            columns,
            filters=filters,
            rows=rows,
            dictionaries=dictionaries,
            dtype_backend=dtype_backend,
            on_corrupt=on_corrupt,
            progress=progress,
        )


def read_table(
    path: StoreLike,
    *,
    columns: ColumnNames | None = None,
    filters: Filters = None,
    rows: Rows = None,
    dictionaries: Coded = None,
    version: int | str | None = None,
    at: At = None,
    on_corrupt: OnCorrupt = "raise",
    cache: Directory = None,
    cache_bytes: int = CACHE_BYTES,
    storage_options: Options = None,
) -> pa.Table:
    """Read a table, or some columns of it, into an Arrow table.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file.
    columns : sequence of str or tuple of str, optional
        Names of the columns to read, in this order; all by default.
        "address.city" or ("address", "city") is one field of a struct: the column then has only the
        fields that are named, and no others are read.
    filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
        Condition that a row must meet, as in `read_blz`; all rows by default.
    rows : (int, int), optional
        First row to read, and the row after the last one, as in `read_blz`.
    dictionaries : sequence of str or "auto", optional
        Names of columns of text or binary to read as dictionary arrays of int32 indices. Where the
        files have dictionaries, no text is made of them.
    version : int or str, optional
        Number or tag of the version to read; the newest by default.
    at : str, datetime, date, Timestamp or datetime64, optional
        Read the version that was the newest at this time, as in `open`.
    on_corrupt : {"raise", "skip", "null"}
        With "skip", the rows of pages that are damaged in one of the columns read are left out.
        With "null", all rows are kept, and a column is null where its pages are damaged; rows for
        which the filter needs damaged pages are left out. A warning names the rows. The schema's
        metadata list them under "blz:missing_rows" and "blz:missing_values".
    cache, cache_bytes : path-like and int, optional
        A directory that keeps bytes of a remote table, as in `open`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    pyarrow.Table
        The rows that meet the condition, in stored order; one column per name. A table that was
        written from Arrow data comes back identical.

    Raises
    ------
    TableNotFoundError, ColumnNotFoundError, SchemaError, CorruptError, LimitError, ValueError
        As in `read_blz`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3], "b": ["x", "y", "z"]}, "t.blz")
    >>> blz.read_table("t.blz", columns=["a"]).to_pydict()
    {'a': [1, 2, 3]}
    """
    check_choice("on_corrupt", on_corrupt, ON_CORRUPT)
    with _open_to_read(path, version, at, on_corrupt, storage_options, cache, cache_bytes) as table:
        return table.to_arrow(
            columns, filters=filters, rows=rows, dictionaries=dictionaries, on_corrupt=on_corrupt
        )


def plan(
    path: StoreLike,
    *,
    columns: ColumnNames | None = None,
    filters: Filters = None,
    part_bytes: int = 64_000_000,
    version: int | str | None = None,
    at: At = None,
    hosts: Hosts = None,
    storage_options: Options = None,
) -> list[TablePart]:
    """Cut a table into parts that other processes read; see `CTable.plan`.

    Parameters
    ----------
    path : path-like
        Directory of the table, or its file, or a URL.
    columns : sequence of str or tuple of str, optional
        Names of the columns that will be read; all by default. They decide how many rows make a
        part.
    filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
        Condition that the rows will have to meet, as in `read_blz`. Row groups in which no row
        meets it are in no part. Pass it to the part, too.
    part_bytes : int, optional
        Bytes that the columns of a part take in memory, about.
    version : int or str, optional
        Number or tag of the version; the newest by default.
    at : str, datetime, date, Timestamp or datetime64, optional
        The version that was the newest at this time, as in `open`.
    hosts : mapping of str to str or list of str, or callable, optional
        Where files lie, as in `CTable.plan`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`. They are in no part: a process that reads one
        takes them from its environment, or gets them with the call.

    Returns
    -------
    list of TablePart
        Parts in the order of the rows, none of which is in two of them; an empty list if no row can
        meet the condition.

    Raises
    ------
    TableNotFoundError, ColumnNotFoundError, SchemaError, CorruptError
        As in `read_blz`.
    FormatError
        The table is one of another program.
    ValueError
        `part_bytes` is less than 1, or the table is in memory.

    Examples
    --------
    >>> import blztable as blz
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> blz.to_blz({"a": range(100_000), "b": range(100_000)}, "t.blz")
    >>> def added(part):
    ...     return part.to_pandas(["a"])["a"].sum()
    >>> with ThreadPoolExecutor() as workers:  # Or processes, of one machine or of many.
    ...     print(sum(workers.map(added, blz.plan("t.blz", columns=["a"], part_bytes=400_000))))
    4999950000
    """
    with open(path, version=version, at=at, storage_options=storage_options) as table:
        return table.plan(columns, filters=filters, part_bytes=part_bytes, hosts=hosts)


def dataset(
    path: StoreLike | Sequence[StoreLike],
    *,
    dictionaries: Sequence[str] | Literal["auto"] | None = None,
    views: bool = False,
    version: int | str | None = None,
    at: At = None,
    on_corrupt: OnCorrupt = "raise",
    partitioning: pa.Schema | None = None,
    cache: Directory = None,
    cache_bytes: int = CACHE_BYTES,
    storage_options: Options = None,
) -> "BlzDataset":
    """Open a table, or several as one, as a pyarrow Dataset for query engines.

    The dataset keeps its versions as long as it exists; `CTable.dataset` ends with its table.

    Several tables are read one after the other, with columns matched by name. A column that a table
    lacks is null in its rows. The name of a table or a directory can give a column and its value,
    as in `day=2026-11-22`. A condition skips tables, and row groups in them.

    Parameters
    ----------
    path : path-like, or list or tuple of path-like
        Directory of a table, or its file; a list of these; a pattern with `*`, `?` or `[...]`, also
        `**`; or a directory with tables somewhere below it.
    dictionaries : sequence of str or "auto", optional
        Names of columns of text or binary to show as dictionary arrays of int32 indices; with
        "auto", those that nearly all rows of the largest row groups store as dictionaries, in all
        tables with such a column. DuckDB shows them as text, Polars as Categorical. Most queries
        with such a column are faster.
    views : bool, optional
        If True, show other text and bytes that are stored as dictionaries as views, string_view or
        binary_view. Polars takes these without a copy, as String. DuckDB then passes no conditions,
        and few functions of pyarrow take views.
    version : int or str, optional
        Number or tag of the version to show; the newest by default. Only for one table.
    at : str, datetime, date, Timestamp or datetime64, optional
        Show the version that was the newest at this time, as in `open`, of each table.
    on_corrupt : {"raise", "skip", "null"}
        What a scan does with damaged pages, as in `CTable.to_batches`.
    partitioning : pyarrow.Schema, optional
        Types of columns that directories name. By default a column has int64, date32 or text, the
        first of these that takes all its values.
    cache, cache_bytes : path-like and int, optional
        A directory that keeps bytes of a remote table, as in `open`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`; of a list, of all its URLs.

    Returns
    -------
    BlzDataset
        A pyarrow.dataset.Dataset that DuckDB, Polars and DataFusion can scan.

    Raises
    ------
    TableNotFoundError, CorruptError, FormatError
        As in `open`.
    ColumnNotFoundError, SchemaError
        `dictionaries` names a column that does not exist, or one of another type; or no type holds
        the values that a column has in two tables.

    Examples
    --------
    >>> import blztable as blz
    >>> from pathlib import Path
    >>> Path("sales").mkdir()
    >>> blz.to_blz({"n": [1, 2]}, "sales/day=2026-11-21.blz")
    >>> blz.to_blz({"n": [3]}, "sales/day=2026-11-22.blz")
    >>> import pyarrow.compute as pc
    >>> from datetime import date
    >>> sales = blz.dataset("sales")
    >>> sales.to_table(filter=pc.field("day") == date(2026, 11, 22)).to_pylist()
    [{'n': 3, 'day': datetime.date(2026, 11, 22)}]

    >>> import polars as pl
    >>> blz.to_blz({"n": [1, 2, 3], "word": ["a", "b", "c"]}, "words.blz")
    >>> words = pl.scan_pyarrow_dataset(blz.dataset("words.blz"))
    >>> words.filter(pl.col("n") > 1).select("word").collect().to_series().to_list()
    ['b', 'c']
    """
    entries = None if is_remote(path) else datasets.finding.find(path, exists)
    if entries is None:
        table = _open_to_read(path, version, at, on_corrupt, storage_options, cache, cache_bytes)
        return table.dataset(dictionaries=dictionaries, views=views, on_corrupt=on_corrupt)
    if version is not None:
        raise ValueError("version= names a version of one table, not of several")
    tables, coded = [], []
    for entry in entries:
        table = _open_to_read(
            entry.place, None, at, on_corrupt, storage_options, cache, cache_bytes
        )
        tables.append(table)
        coded.append(
            datasets.text.coded_types(*table._reading()) if views or dictionaries == "auto" else {}
        )
        # Only the pin of the version stays open.
        table._snapshot.version.store.close()
    known = _coded(tables, coded)
    as_dictionary = known if dictionaries == "auto" else list(dictionaries or ())

    def several(names: Collection[str]) -> "Several":
        members = []
        all_values = datasets.finding.values(entries, partitioning)
        for table, values in zip(tables, all_values, strict=True):
            named = [name for name in names if name in table]
            source = table.dataset(dictionaries=named, on_corrupt=on_corrupt).source
            members.append(
                datasets.several.Member(table.path, source, table._snapshot.version.store, values)
            )
        return datasets.several.Several.of(members)

    whole = several(as_dictionary)
    for name in as_dictionary:
        if name not in whole.schema.names:
            raise no_column(name, whole.schema.names)
    if not views:
        return datasets.dataset.BlzDataset(whole)
    made = several({*as_dictionary, *known})
    return datasets.dataset.BlzDataset(made, schema=with_views(whole.schema, made.schema))


def sql(query: str, /, **tables: StoreLike | CTable) -> Any:
    """Query tables by SQL; needs DuckDB.

    Text that is stored as dictionaries is grouped and compared by its codes.

    Parameters
    ----------
    query : str
        A query in the dialect of DuckDB.
    **tables : path-like or CTable
        The tables by their names in the query: an open table, or what `dataset` takes. The newest
        version of a path is kept until the result is gone.

    Returns
    -------
    duckdb.DuckDBPyRelation
        The result, which is computed when it is read: with ``fetchall()``, ``df()`` or ``arrow()``.

    Raises
    ------
    TableNotFoundError, CorruptError, FormatError
        As in `open`.
    ImportError
        DuckDB is not installed.
    SchemaError
        DuckDB lacks a type of a table: pass the other columns, ``s=t[["a", "b"]]``.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"shop": [1, 1, 2], "sold": [7, 9, 4]}, "sales.blz")
    >>> blz.to_blz({"shop": [1, 2], "city": ["Rome", "Oslo"]}, "shops.blz")
    >>> query = "select city, sum(sold) from s join c using (shop) group by city order by city"
    >>> blz.sql(query, s="sales.blz", c="shops.blz").fetchall()
    [('Oslo', 4), ('Rome', 16)]
    """
    registered = {}
    for name, one in tables.items():
        if isinstance(one, CTable):
            registered[name] = one.path, one.dataset(dictionaries="auto")
        else:
            registered[name] = str(one), dataset(one, dictionaries="auto")
    return datasets.sql.query(query, registered)


def _coded(tables: Sequence[CTable], coded: Sequence[Mapping[str, pa.DataType]]) -> list[str]:
    """Return the columns that are stored as dictionaries of one type in all tables with them."""
    names = dict.fromkeys(name for table in tables for name in table)
    types = {
        name: {of.get(name) for table, of in zip(tables, coded, strict=True) if name in table}
        for name in names
    }
    return [name for name in names if None not in types[name] and len(types[name]) == 1]
