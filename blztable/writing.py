"""Writing: `to_blz` writes data of any kind and size as a table, or appends it, in one commit.

Knows nothing of files: `convert` makes streams of columns, the engine commits them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from blztable import table
from blztable.compat.taken import named
from blztable.convert.append_source import new_source
from blztable.convert.gateway import IngestOptions, Nan
from blztable.convert.objects.tagged import checked_attrs
from blztable.convert.source import is_repeatable
from blztable.engine import change
from blztable.engine.version import versions
from blztable.engine.version.begin import InOneFile, check_free, placed
from blztable.engine.version.commit import AlreadyCommitted
from blztable.engine.version.versions import RETRIES, Dropped, Version
from blztable.engine.write.options import (
    DURABILITIES,
    OBJECTS,
    Storage,
    check_choice,
    check_id,
    given_storage,
)
from blztable.errors import ConflictError, TableExistsError, TableNotFoundError
from blztable.storage.resolve import Options, StoreLike, opened_at
from blztable.storage.store import Lock, Store
from blztable.table.names import checked_count
from blztable.table.progress import ProgressOption, reporting


def to_blz(
    data: Any,
    path: StoreLike,
    *,
    mode: Literal["w", "a", "x"] = "w",
    index: bool | None = None,
    compression: Literal["lz4", "lz4hc", "zlib", "zstd"] | None = None,
    sort_by: str | Sequence[str | tuple[str, str]] | None = None,
    storage: Storage | None = None,
    evolve: bool = False,
    commit_id: str | None = None,
    durability: Literal["full", "process"] = "full",
    retries: int = RETRIES,
    progress: ProgressOption = None,
    storage_options: Options = None,
) -> None:
    """Write data as a table, in one commit: readers see the old table or the new one.

    Data larger than memory are written from a stream: a RecordBatchReader, a pyarrow Dataset, a
    ParquetFile, a LazyFrame of Polars, anything with `iter_batches`, or an iterator of DataFrames,
    tables, batches, mappings of arrays, or rows. Items are fetched while earlier ones are
    written; about two row groups are in memory, and the items that hold their rows. The first item
    decides columns and index; later items may have another order of columns. A column becomes wider
    where a later item needs it, as with `evolve` in `CTable.append`. The caller may change frames
    and arrays after they were yielded, but not Arrow data.
    An exception of the iterator is raised unchanged, and nothing is committed.

    Parameters
    ----------
    data : DataFrame, Arrow data, mapping, or an iterable of these
        A pandas DataFrame or Series, a pyarrow Table or RecordBatch, anything with the Arrow
        PyCapsule interface (polars, duckdb), a structured numpy array, a mapping of names to arrays
        of one length, a list of rows (mappings of names to values); or a stream.
    path : path-like
        Directory of the table, or its file.
    mode : {"w", "a", "x"}
        If a table exists, "w" replaces it, as a new version, "a" appends to it, as `CTable.append`
        does, and "x" fails. If none exists, all three create it.
    index : bool, optional
        Whether to store a DataFrame's index. By default, a RangeIndex is kept as start, stop and
        step, and any other index as columns; True stores a RangeIndex as a column too, False stores
        no index.
    compression : {"lz4", "lz4hc", "zlib", "zstd"}, optional
        Codec of all columns, as ``storage=blz.Storage(compression=...)``; by default a trial finds
        the best one for each column.
    sort_by : str, or sequence of str or (str, "ascending" or "descending"), optional
        Columns to sort the rows by, nulls last, as ``storage=blz.Storage(sort_by=...)``. The table
        keeps this setting for `CTable.compact`. A stored index moves with its rows; a
        RangeIndex numbers the rows as stored. A stream is written twice, and then a few columns at
        a time are in memory. Not supported with mode "a".
    storage : Storage, optional
        How the rows are stored: compression, encodings, pages, attributes and more, for all columns
        and for single ones. The table keeps these options for later changes. In mode "a" an option
        that is given goes before that of the table, which keeps its own.
    evolve : bool, optional
        If True, an append in mode "a" may bring new columns and wider types, see `CTable.append`,
        and so may the later items of a stream in any mode. A column that an item lacks is null.
    commit_id : str, optional
        The caller's name for the commit. If one of the last 1,000 named commits had this name,
        nothing is written: a job may run twice.
    durability : {"full", "process"}
        With "full", the commit survives a loss of power once the call returned; with "process", it
        survives only the end of the process, and nothing is flushed.
    retries : int
        How often an append is made again after other writers created, replaced, dropped or changed
        the table. Data that can be read only once, such as an iterator, are appended once.
    progress : bool or callable, optional
        True shows a bar (needs tqdm, the extra `progress`). A callable is called in this thread
        with the number of rows done and of all rows, None while a stream's length is unknown.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Raises
    ------
    SchemaError
        A column or value cannot be stored or sorted by, or an item of a stream does not fit the
        first one. Nothing is committed.
    TableExistsError
        A table exists and the mode is "x"; or something that is not a table exists, which is never
        replaced.
    ValueError
        An option is not one of its choices, ``retries` is negative, `sort_by` is used with mode
        "a", or `compression` or `sort_by` is given twice.
    ConflictError, BusyError, StorageError, ReadOnlyError
        The commit failed, see `CTable`; the table is as it was.
    CommitUnknownError
        The commit was published, but may not survive a loss of power, or cannot be read. Open the
        table and look at its version.

    References
    ----------
    The Arrow PyCapsule interface,
    https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

    Examples
    --------
    >>> import blztable as blz
    >>> import pandas as pd
    >>> df = pd.DataFrame({"city": ["Rome", "Oslo"], "people": [2_748_000, 717_000]})
    >>> df.to_blz("cities.blz")
    >>> blz.read_blz("cities.blz").equals(df)
    True

    An iterator, of which a part is in memory at a time:

    >>> days = (pd.DataFrame({"day": [day] * 24, "hour": range(24)}) for day in range(365))
    >>> blz.to_blz(days, "hours.blz")
    >>> len(blz.open("hours.blz"))
    8760
    """
    check_choice("mode", mode, ("w", "a", "x"))
    check_choice("durability", durability, DURABILITIES)
    given = given_storage(storage, compression=compression, sort_by=sort_by)
    check_id(commit_id)
    retries = checked_count(retries, "retries")
    attributes = checked_attrs(dict(given.attrs or {}))
    opening = opened_at(path, given.layout, options=storage_options, is_new=mode != "a")
    with opening as store, named(store):
        if mode == "x":
            check_free(store)

        def create(how: str) -> None:
            options = IngestOptions(
                Nan.of(given.nan_as_null, is_frame=False), given.objects or OBJECTS[0]
            )
            source = new_source(data, index=index, evolve=evolve, options=options)
            with reporting(progress, "writing") as callback, suppress(AlreadyCommitted):

                def make(store: Store) -> tuple[Version, Lock]:
                    return change.creation.create(
                        store,
                        source,
                        given,
                        attributes={**source.attrs, **attributes},
                        replace_existing=how == "w",
                        is_durable=durability == "full",
                        progress=callback,
                        commit_id=commit_id,
                    )

                # A file that is there is appended to in mode "a", or says that it takes no appends.
                _, lock = make(store) if mode == "a" else placed(store, given.layout, make)
                lock.close()

        def append() -> None:
            try:
                snapshot = table.snapshot.Snapshot(*versions.pin(store))
            except TableNotFoundError:
                create("x")
                return
            opened = table.table.CTable(snapshot, writable=True, durability=durability)
            with (
                # The store is not closed: that would wait for `meta/latest`.
                _released(opened),
                reporting(progress, "appending") as callback,
                opened.transaction(commit_id=commit_id) as tx,
            ):
                if given.sort_by and not tx.is_repeated:
                    raise ValueError(
                        'sort_by is not supported with mode="a"; append, then sort all rows '
                        "with CTable.compact(sort_by=...)"
                    )
                tx.append(data, index=index, evolve=evolve, storage=given, progress=callback)

        if mode != "a":
            create(mode)
            return
        left = retries if is_repeatable(data) else 0
        while True:
            try:
                append()
                return
            except InOneFile as error:
                if given.layout == "directory":
                    raise TableExistsError(str(error)) from None
                store = error.store
            except (ConflictError, TableExistsError, Dropped) as error:
                # Another writer created, replaced or dropped the table; or the path holds no table.
                if versions.newest_number(store) is None:
                    raise
                if not left:
                    raise _append_failed(store, data, retries, error) from error
                left -= 1


@contextmanager
def _released(opened: "table.table.CTable") -> Iterator[None]:
    """Release the version that a table shows at the end."""
    try:
        yield
    finally:
        opened._snapshot.release()


def _append_failed(store: Store, data: Any, retries: int, error: Exception) -> ConflictError:
    """Return the error for an append that is not made again."""
    is_repeated = retries and is_repeatable(data)
    reason = f"{retries + 1} times" if is_repeated else "while the data were read"
    return ConflictError(
        f"{store.name}: other writers created, replaced, dropped or changed the table {reason}; "
        f"nothing was appended. Repeat the call with all of the data, from a new iterator: {error}"
    )
