"""Writing: `to_blz` writes data of any kind and size as a table, or appends it, in one commit.

Knows nothing of files: `convert` makes streams of columns, the engine commits them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from blztable.compat.table import named
from blztable.convert.gateway import Nan, Reading
from blztable.convert.objects.tagged import checked_attrs
from blztable.convert.source import is_repeatable
from blztable.convert.stream import stream
from blztable.engine.change import creation
from blztable.engine.version import versions
from blztable.engine.version.begin import check_free
from blztable.engine.version.commit import AlreadyCommitted
from blztable.engine.version.schema import check_digits, with_digits
from blztable.engine.write.options import WriteOptions, check_choice, check_id
from blztable.engine.write.sort_keys import parsed
from blztable.errors import ConflictError, TableExistsError
from blztable.metalayers import check_columns, check_fixed
from blztable.storage.resolve import LAYOUTS, Place, opened_at
from blztable.storage.store import Store
from blztable.table.names import checked_count
from blztable.table.progress import ProgressOption, reporting
from blztable.table.snapshot import Snapshot
from blztable.table.table import RETRIES, CTable


def to_blz(
    data: Any,
    path: Place,
    *,
    mode: Literal["w", "a", "x"] = "w",
    layout: Literal["directory", "file"] | None = None,
    index: bool | None = None,
    evolve: bool = False,
    optimize: str | Mapping[str, str] | None = None,
    compression: str | Mapping[str, str] | None = None,
    clevel: int | Mapping[str, int] | None = None,
    shuffle: str | Mapping[str, str | None] | None = None,
    encoding: str | Mapping[str, str] | None = None,
    packing: str | Mapping[str, str] | None = None,
    checksum: str | None = None,
    row_group_rows: int | None = None,
    expectedlen: int | None = None,
    page_rows: int | Mapping[str, int] | None = None,
    durability: Literal["full", "process"] = "full",
    attrs: Mapping[str, Any] | None = None,
    meta: Mapping[str, bytes] | None = None,
    column_meta: Mapping[str, Mapping[str, bytes]] | None = None,
    commit_id: str | None = None,
    retries: int = RETRIES,
    sort_by: str | Sequence[str | tuple[str, str]] | None = None,
    nan_as_null: bool | None = None,
    object: Literal["infer", "json", "error"] = "infer",
    truncate: Mapping[str, int] | None = None,
    progress: ProgressOption = None,
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
    layout : {"directory", "file"}, optional
        Whether a new table is a directory, the default, or one file. A table keeps its layout.
    index : bool, optional
        Whether to store a DataFrame's index. By default, a RangeIndex is kept as start, stop and
        step, and any other index as columns; True stores a RangeIndex as a column too, False stores
        no index.
    evolve : bool, optional
        If True, an append in mode "a" may bring new columns and wider types, see `CTable.append`,
        and so may the later items of a stream in any mode. A column that an item lacks is null.
    optimize : {"speed", "size"} or mapping of column names to one, optional
        What the choice of a codec aims at. By default, each column of each row group gets the codec
        and the shuffle that a trial on a small part of it finds best: lz4 for numbers, lz4hc for
        text, and zstd where it saves very much, as with UUIDs. With "speed", all are lz4; with
        "size", zstd, except where lz4 makes numbers as small.
    compression : {"lz4", "lz4hc", "zlib", "zstd"} or mapping of column names to one, optional
        Codec, in place of the choice by `optimize`.
    clevel : int or mapping of column names to int, optional
        Compression level, from 0, not compressed, to 9, smallest; by default 5, or 2 for zstd. A
        level without a codec is one of lz4.
    shuffle : {"byte", "bit", "none"} or mapping of column names to one, optional
        Filter before compression, in place of the one that the trial finds. With `compression`, it
        is by default "byte" for values wider than one byte, and "bit" for encoded values.
    encoding : {"auto", "plain"} or mapping of column names to one, optional
        Encoding of the values before compression. With "auto", the default, numbers, times,
        dictionary codes and text of few different items are stored in fewer bytes if that returns
        the very same values; each row group is decided by itself. With "plain", values are stored
        as Arrow has them, and each column of floats, or of other numbers without nulls, is a series
        of Bloscpack files; otherwise the columns of a small row group share a file.
    packing : {"packed", "per_item"} or mapping of column names to one, optional
        Whether text and binary share chunks. With "packed", the default, a chunk has about 1 MiB
        of items; with "per_item", each item is a chunk, so that one is read without its neighbours
        and an update compresses only items that changed. That is for items of 16 KiB and more: an
        item costs about 50 more bytes, and some 20 microseconds. The option applies to text and
        binary, also within structs and lists. A row group with more than a million items, or with
        an item above 256 MiB, stays packed. A column with this option shares no file with others.
    checksum : {"crc32", "adler32", "md5", "sha1", "sha224", "sha256", "sha384", "sha512"}, optional
        Checksum of each chunk; "crc32" by default.
    row_group_rows : int, optional
        Number of rows of a row group; by default as many as take 256 MB, or 64 MB in one column,
        but at least 65,536. `CTable.set_row_group_rows` changes it later.
    expectedlen : int, optional
        Number of rows that the table will have when it is complete. If these are more than a row
        group takes by default, all row groups are made equal, so that later appends leave no small
        one at the end. A number that proves wrong does no harm. The table keeps it.
    page_rows : int or mapping of column names to int, optional
        Number of rows of a page, a power of two of at least 8; by default about 1 MiB of a column.
        A column with this option shares no file with others.
    durability : {"full", "process"}
        With "full", the commit survives a loss of power once the call returned; with "process", it
        survives only the end of the process, and nothing is flushed.
    attrs : mapping, optional
        Attributes of the table: JSON values, and numbers, times and 1-dimensional arrays of numpy
        and pandas. They are added to the `attrs` of a DataFrame.
    meta : mapping of str to bytes, optional
        Fixed metalayers of the table: at most 16 named bytes, of 65,535 bytes together, that keep
        their length. An append in mode "a" changes those that the table has, see `CTable.meta`.
    column_meta : mapping of column names to mappings, optional
        Fixed metalayers of columns: a mapping as `meta` for each name, see `Column.meta`.
    commit_id : str, optional
        The caller's name for the commit. If one of the last 1,000 named commits had this name,
        nothing is written: a job may run twice.
    retries : int, optional
        How often an append in mode "a" is made again, on the newest version, if other writers
        create, replace or change the table meanwhile, before ConflictError is raised. Data that can
        be read only once, such as an iterator, are not appended again.
    sort_by : str, or sequence of str or (str, "ascending" or "descending"), optional
        Columns to sort the rows by, nulls last; ordered categories are sorted by their order. The
        table keeps this setting for `CTable.compact`. A stored index moves with its rows; a
        RangeIndex numbers the rows as stored. A stream is written twice, and then a few columns at
        a time are in memory. Not supported with mode "a".
    nan_as_null : bool, optional
        Whether NaN among floats is a missing value. By default, it is in a DataFrame, a Series or
        an Index, as in `pyarrow.Table.from_pandas`; in a numpy array or a list it is a value. True
        makes it missing in these too, and False keeps it a value everywhere. In Arrow data and in
        the nullable dtypes of pandas, which have a missing value of their own, NaN always stays a
        value. The table keeps this setting for later changes.
    object : {"infer", "json", "error"}
        How columns of Python objects are stored. With "infer", the default, values of one kind get
        the type that Arrow infers, and come back as they were: numbers, times, bytes, UUIDs, IP
        addresses, lists, tuples, sets, arrays, dicts and more, with missing values. A column of
        mixed values is refused. With "json", a column of mixed values, of lists or of dicts is
        stored as JSON text and comes back as it was. With "error", only text is taken.
    truncate : mapping of column names to int, optional
        Number of significant decimal digits to keep of columns of floats, from 1 to 17, so that
        they take fewer bytes. A value changes by at most half of a unit of the last digit kept. The
        setting is part of the schema and holds for all later changes of the table.
    progress : bool or callable, optional
        True shows a bar (needs tqdm, the extra `progress`). A callable is called in this thread
        with the number of rows done and of all rows, None while a stream's length is unknown.

    Raises
    ------
    SchemaError
        A column or value cannot be stored or sorted by, or an item of a stream does not fit the
        first one. Nothing is committed.
    TableExistsError
        A table exists and the mode is "x"; or something that is not a table exists, which is never
        replaced.
    ValueError
        An option is not one of its choices, `retries` is negative, or `sort_by` is used with mode
        "a".
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
    >>> blz.open("hours.blz").nrows
    8760
    """
    check_choice("mode", mode, ("w", "a", "x"))
    check_choice("layout", layout, (None, *LAYOUTS))
    chosen = {
        "optimize": optimize,
        "compression": compression,
        "clevel": clevel,
        "shuffle": shuffle,
        "encoding": encoding,
        "packing": packing,
        "checksum": checksum,
        "row_group_rows": row_group_rows,
        "expectedlen": expectedlen,
        "page_rows": page_rows,
        "nan_as_null": nan_as_null,
    }
    overrides: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    options = WriteOptions(**overrides, durability=durability)
    check_id(commit_id)
    retries = checked_count(retries, "retries")
    attributes = checked_attrs(dict(attrs or {}))
    layers, column_layers = check_fixed(meta or {}), check_columns(column_meta or {})
    order = [] if sort_by is None else parsed(sort_by)
    with opened_at(path, layout, is_new=mode != "a") as store, named(store):
        if mode == "x":
            check_free(store)

        def create(mode: str) -> None:
            how = Reading(Nan.of(nan_as_null, is_frame=False), object)
            source = stream(data, index=index, how=how, evolve=evolve)
            contents = creation.Contents(
                *(with_digits(source.schema, truncate), source.parts, source.frame),
                *(source.attrs | attributes, source.rows, order),
                more=source.more,
                meta=layers,
                column_meta=column_layers,
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

        def append() -> None:
            snapshot = Snapshot(*versions.pin(store))
            check_digits(snapshot.version.schema, truncate)
            with (
                CTable(
                    snapshot, writable=True, durability=durability, overrides=overrides
                ) as table,
                reporting(progress, "appending") as callback,
                table.transaction(commit_id=commit_id) as tx,
            ):
                if order and not tx.is_repeated:
                    raise ValueError(
                        'sort_by is not supported with mode="a"; append, then sort all rows '
                        "with CTable.compact(sort_by=...)"
                    )
                tx.append(data, index=index, evolve=evolve, object=object, progress=callback)
                if attributes:
                    tx.attrs.update(attrs)
                for name, content in layers.items():
                    tx.meta[name] = content
                for column, given in column_layers.items():
                    for name, content in given.items():
                        tx[column].meta[name] = content

        if mode != "a":
            create(mode)
            return
        left = retries if is_repeatable(data) else 0
        while True:
            try:
                if versions.newest_number(store) is None:
                    create("x")
                else:
                    append()
                return
            except (ConflictError, TableExistsError) as error:
                # Another writer created or replaced the table; or the path holds no table.
                if versions.newest_number(store) is None:
                    raise
                if not left:
                    raise _append_failed(store, data, retries, error) from error
                left -= 1


def _append_failed(store: Store, data: Any, retries: int, error: Exception) -> ConflictError:
    """Return the error for an append that is not made again."""
    is_repeated = retries and is_repeatable(data)
    reason = f"{retries + 1} times" if is_repeated else "while the data were read"
    return ConflictError(
        f"{store.name}: other writers created, replaced or changed the table {reason}; nothing was "
        f"appended. Repeat the call with all of the data, from a new iterator: {error}"
    )
