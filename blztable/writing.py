"""Writing: data of any kind and size as a table, or as more rows of one, in one commit."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from blztable.convert.frames.attributes import checked_attrs
from blztable.convert.source import is_repeatable
from blztable.convert.stream import stream
from blztable.engine.change import creation
from blztable.engine.version import versions
from blztable.engine.version.commit import AlreadyCommitted
from blztable.engine.write.options import WriteOptions, check_choice, check_id
from blztable.engine.write.sort_keys import parsed
from blztable.errors import ConflictError, TableExistsError
from blztable.storage.resolve import Place, opened_at
from blztable.storage.store import Store
from blztable.table.progress import ProgressOption, reporting
from blztable.table.snapshot import Snapshot
from blztable.table.table import CTable

# An append that meets a table that is being made or replaced is made again on the new one.
APPEND_TRIES = 5


def to_blz(
    data: Any,
    path: Place,
    *,
    mode: str = "w",
    index: bool | None = None,
    compression: str | Mapping[str, str] | None = None,
    clevel: int | Mapping[str, int] | None = None,
    shuffle: str | Mapping[str, str | None] | None = None,
    checksum: str | None = None,
    row_group_rows: int | None = None,
    page_rows: int | Mapping[str, int] | None = None,
    durability: str = "full",
    attrs: Mapping[str, Any] | None = None,
    commit_id: str | None = None,
    sort_by: str | Sequence[str | tuple[str, str]] | None = None,
    progress: ProgressOption = None,
) -> None:
    """Write a table, in one commit: readers see the old one or the new one, whole.

    Data larger than memory come as a stream: a RecordBatchReader, a pyarrow Dataset, or an iterator
    of DataFrames, tables, batches or mappings, fetched while what came before is written. About two
    row groups are held at a time, and the items that their rows came in. The first item decides on
    columns, types and index; the others may have their columns in another order and types whose
    values fit. Frames and arrays may be changed once they were given; Arrow data may not. What the
    iterator raises passes unchanged, and nothing is committed then.

    Parameters
    ----------
    data : DataFrame, Arrow data, mapping, or an iterable of these
        A pandas DataFrame, a pyarrow Table or RecordBatch, anything with the Arrow PyCapsule
        interface (polars, duckdb), a mapping of names to arrays of one length; or a stream.
    path : path-like
        The table's directory.
    mode : {"w", "a", "x"}
        "w" replaces a table that is there, as a new version; "a" appends to it, as
        `CTable.append` does, and makes it where it is missing; "x" fails if there is one.
    index : bool, optional
        Whether to store a DataFrame's index. By default a RangeIndex is kept as a fact and any
        other index as columns; True stores a RangeIndex as a column too, False none.
    compression : {"lz4", "lz4hc", "zlib", "zstd"} or mapping of column names to one
        The codec.
    clevel : int or mapping of column names to int
        From 0, stored as it is, to 9, smallest.
    shuffle : {"byte", "bit", "none"} or mapping of column names to one, optional
        What is done to values before compression; "byte" for values wider than a byte by default.
    checksum : {"crc32", "adler32", "md5", "sha1", "sha224", "sha256", "sha384", "sha512"}
        What guards every chunk.
    row_group_rows : int, optional
        Rows written together in all columns; by default some 256 MB of them, at most 64 MB of a
        column, and more where 65,536 rows take more.
    page_rows : int or mapping of column names to int, optional
        Rows of a page, a power of two from 8; by default about 1 MiB of a column.
    durability : {"full", "process"}
        "full" survives a loss of power once the call returned; "process" survives the end of the
        process only, and costs no flush.
    attrs : mapping, optional
        Attributes of the table: JSON values, and numbers, times and 1-d arrays of numpy and pandas;
        added to those of a DataFrame.
    commit_id : str, optional
        A name of the caller's for the commit: where one of the last 1,000 commits that had a name
        had this one, nothing is written, so that a job may be run again.
    sort_by : str, or sequence of str or (str, "ascending" or "descending"), optional
        Columns to sort the rows by, nulls last; ordered categories go by their order. The table
        keeps this order for `CTable.compact`, which sorts one that is there: with "a" it is a
        ValueError. A stored index goes along with its rows, a RangeIndex counts them as they are
        stored. A stream is written twice, and then a few columns at a time are in memory.
    progress : bool or callable, optional
        True shows a bar (with tqdm: the extra `progress`); a callable is called in this thread with
        the rows done and the rows in all, None where the end of a stream is not known.

    Raises
    ------
    SchemaError
        A column or value that cannot be stored or sorted by, an item of a stream that does not fit
        the first; nothing is committed then.
    TableExistsError
        With "x" a table is there; or something that is not a table is, which is never touched.
    ConflictError, BusyError, StorageError, ReadOnlyError
        The commit did not happen; the table is as it was.
    CommitUnknownError
        The commit was published, but may not survive a loss of power, or cannot be opened.

    Examples
    --------
    >>> import blztable as blz
    >>> import pandas as pd
    >>> df = pd.DataFrame({"city": ["Rome", "Oslo"], "people": [2_748_000, 717_000]})
    >>> df.to_blz("cities.blz")
    >>> blz.read_blz("cities.blz").equals(df)
    True

    An iterator, of which only a part is in memory at a time:

    >>> days = (pd.DataFrame({"day": [day] * 24, "hour": range(24)}) for day in range(365))
    >>> blz.to_blz(days, "hours.blz")
    >>> blz.open("hours.blz").nrows
    8760
    """
    check_choice("mode", mode, ("w", "a", "x"))
    chosen = {
        "compression": compression,
        "clevel": clevel,
        "shuffle": shuffle,
        "checksum": checksum,
        "row_group_rows": row_group_rows,
        "page_rows": page_rows,
    }
    overrides: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    options = WriteOptions(**overrides, durability=durability)
    check_id(commit_id)
    attributes = checked_attrs(dict(attrs or {}))
    order = [] if sort_by is None else parsed(sort_by)
    with opened_at(path) as store:
        create_with = partial(
            _create, store, data, index, options, attributes, order, commit_id, progress
        )
        if mode == "a":
            tries = APPEND_TRIES if is_repeatable(data) else 1
            while True:
                try:
                    if versions.newest_number(store) is None:
                        return create_with("x")
                    snapshot = Snapshot(*versions.pin(store))
                    with (
                        CTable(
                            snapshot, writable=True, durability=durability, overrides=overrides
                        ) as table,
                        reporting(progress, "appending") as callback,
                        table.transaction(commit_id=commit_id) as tx,
                    ):
                        if order and not tx.is_repeated:
                            raise ValueError(
                                "an append leaves rows as they come; compact() sorts all"
                            )
                        tx.append(data, index=index, progress=callback)
                        if attributes:
                            tx.attrs.update(attrs)
                    return None
                except (ConflictError, TableExistsError) as error:
                    # Another writer made the table or replaced it meanwhile; or it is no table.
                    tries -= 1
                    if versions.newest_number(store) is None:
                        raise
                    if not tries:
                        raise _not_again(store, data, error) from error
        return create_with(mode)


def _not_again(store: Store, data: Any, error: Exception) -> ConflictError:
    """The error for an append that is not tried again."""
    reason = f"{APPEND_TRIES} times" if is_repeatable(data) else "while the data were drawn"
    return ConflictError(
        f"{store.name}: other writers made, replaced or changed the table {reason}; nothing was "
        f"appended. Repeat the call with all of the data, drawn anew: {error}"
    )


def _create(
    store: Store,
    data: Any,
    index: bool | None,
    options: WriteOptions,
    attributes: dict[str, Any],
    sort_by: Sequence[tuple[str, str]],
    commit_id: str | None,
    progress: ProgressOption,
    mode: str,
) -> None:
    """Write a table of these data, in place of one that is there unless the mode is "x"."""
    given = stream(data, index=index)
    contents = creation.Contents(
        given.schema, given.parts, given.frame, given.attrs | attributes, given.rows, sort_by
    )
    with reporting(progress, "writing") as callback, suppress(AlreadyCommitted):
        _, lock = creation.create(
            store,
            contents,
            options,
            replace_existing=mode == "w",
            progress=callback,
            commit_id=commit_id,
        )
        lock.close()
