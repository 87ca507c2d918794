"""Functions for a table that several processes write: begin, write_fragment, commit, discard.

Each is a few lines over `engine/change/fragments.py`. A job that this process began keeps the lock
of files in flight until it is committed or discarded, or until the process ends.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import pyarrow as pa
from pandas.api.types import is_object_dtype

from blztable.convert.append_source import AppendSource, new_source, new_without_rows
from blztable.convert.column_type import schema_of
from blztable.convert.gateway import IngestOptions, Nan
from blztable.convert.objects.tagged import checked_attrs
from blztable.engine import change
from blztable.engine.version import versions
from blztable.engine.version.begin import check_free
from blztable.engine.version.commit import AlreadyCommitted
from blztable.engine.write.options import (
    DURABILITIES,
    OBJECTS,
    Storage,
    check_choice,
    check_id,
    given_storage,
)
from blztable.errors import SchemaError
from blztable.storage.resolve import Options, StoreLike, opened_at
from blztable.storage.store import Store
from blztable.table import changing, table
from blztable.table.names import checked_count
from blztable.table.snapshot import Snapshot

if TYPE_CHECKING:
    from blztable.engine.change.fragments import Job

# The locks of the jobs that this process has begun.
_held: dict[str, ExitStack] = {}


def begin(
    path: StoreLike,
    mode: Literal["a", "w", "x"] = "a",
    *,
    schema: Any = None,
    index: bool | None = None,
    storage: Storage | None = None,
    commit_id: str | None = None,
    durability: Literal["full", "process"] = "full",
    storage_options: Options = None,
) -> str:
    """Begin a job: rows that several processes write, and `commit` publishes as one version.

    Send the job to the processes that write. Nobody sees the rows before the commit. On a disk,
    this process keeps a lock until it commits or discards the job: a vacuum waits for it, as for
    any writer. If the process ends before, the job can be committed by another one, unless a vacuum
    came first. In an object store, the fragments can be committed for six days.

    Parameters
    ----------
    path : path-like
        Directory of the table, or a URL.
    mode : {"a", "w", "x"}
        If a table exists, "a" appends to it, "w" replaces it, and "x" fails. If none exists, all
        three create it, and `schema` is needed.
    schema : pyarrow.Schema, DataFrame or other data, optional
        The columns of a new table: a schema, or some rows, of which names, types, index and `attrs`
        are taken.
    index : bool, optional
        Whether to store the index of a DataFrame, as in `to_blz`.
    storage : Storage, optional
        How the rows of a new table are stored, as in `to_blz`.
    commit_id : str, optional
        The caller's name for the commit, as in `to_blz`. By default it is the name of the job, so
        that a job is committed once.
    durability : {"full", "process"}
        What the new directories of a table survive, as in `to_blz`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`. They are not in the job.

    Returns
    -------
    str
        The job, as JSON.

    Raises
    ------
    TableNotFoundError
        There is no table to append to, and no `schema` for a new one.
    TableExistsError
        A table exists and the mode is "x"; or something that is not a table exists.
    SchemaError
        A type cannot be stored, or the type of a column of objects cannot be told without rows.
    ValueError
        An option is not one of its choices, or the table is in memory or in one file.

    Examples
    --------
    >>> import blztable as blz
    >>> import pyarrow as pa
    >>> job = blz.begin("new.blz", "x", schema=pa.schema({"n": pa.int64()}))
    >>> done = [blz.write_fragment(job, {"n": [n, n]}, task=n) for n in range(3)]
    >>> blz.commit(job, done)
    1
    >>> blz.read_blz("new.blz")["n"].tolist()
    [0, 0, 1, 1, 2, 2]
    """
    check_choice("mode", mode, ("a", "w", "x"))
    check_choice("durability", durability, DURABILITIES)
    check_id(commit_id)
    given = given_storage(storage)
    with opened_at(path, given.layout, options=storage_options) as store:
        _check_shared(store)
        if mode == "a" and (schema is None or versions.is_table(store)):
            if storage is not None:
                raise ValueError(
                    f"{store.name}: storage= is that of a new table; the table keeps its own, "
                    "which configure() changes"
                )
            job, lock = change.fragments.begin_append(store, commit_id)
        else:
            if schema is None:
                raise ValueError(f"{store.name}: a new table needs schema=: a schema, or some rows")
            if mode != "w":
                check_free(store)
            options = IngestOptions(
                Nan.of(given.nan_as_null, is_frame=False), given.objects or OBJECTS[0]
            )
            new = _columns_of(schema, index, options)
            job, lock = change.fragments.begin_new(
                store,
                new,
                given,
                {**new.attrs, **checked_attrs(dict(given.attrs or {}))},
                mode="w" if mode == "w" else "x",
                commit_id=commit_id,
                is_durable=durability == "full",
            )
        _held[job.id] = lock
        return job.encode()


def write_fragment(
    job: str,
    data: Any,
    task: int,
    *,
    index: bool | None = None,
    durability: Literal["full", "process"] = "full",
    storage_options: Options = None,
) -> str:
    """Write the rows of one task of a job, in any process that reaches the table.

    A task may be written several times, also at the same time: the commit takes the first fragment
    that it is given, and a vacuum removes the files of the others. If the call fails, its files are
    removed.

    Parameters
    ----------
    job : str
        What `begin` returned.
    data : DataFrame, Arrow data, mapping, or an iterable of these
        The rows, as in `CTable.append`. Their columns are those of the table.
    task : int
        Number of the task from 0 on. The rows of the table are in the order of the tasks.
    index : bool, optional
        Whether a DataFrame's index is stored, as in `to_blz`.
    durability : {"full", "process"}
        With "full", the files survive a loss of power when the call returns.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    str
        The fragment, as JSON of a few kilobytes.

    Raises
    ------
    SchemaError
        The rows do not fit the columns.
    TableNotFoundError
        The table was removed.
    CorruptError, FormatError
        The job is no text that `begin` returned.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1]}, "t.blz")
    >>> job = blz.begin("t.blz")
    >>> fragment = blz.write_fragment(job, {"n": [2, 3]}, task=0)
    >>> blz.commit(job, [fragment])
    2
    """
    check_choice("durability", durability, DURABILITIES)
    task = checked_count(task, "task")
    is_durable = durability == "full"
    with (
        _opened(job, storage_options) as (found, store),
        change.fragments.begun(found, store, is_durable=is_durable) as commit,
    ):
        changes, snapshot = change.fragments.change_set(found, commit), Snapshot(found.table, None)
        target = changing.target.ChangeTarget(changes, changes.staged, snapshot)
        changing.rows.append(target, data, False, index, None, None)
        return change.fragments.finished(found, changes, task)


def commit(
    job: str,
    fragments: Iterable[str],
    *,
    rows: int | None = None,
    durability: Literal["full", "process"] = "full",
    storage_options: Options = None,
) -> int:
    """Publish the fragments of a job as one version.

    Any process may do it. A second commit of the job writes nothing. A commit that fails removes
    nothing, and can be made again. To change other rows in the same commit, use
    `Transaction.append_fragments`.

    Parameters
    ----------
    job : str
        What `begin` returned.
    fragments : iterable of str
        What `write_fragment` returned, in any order. Of several fragments of a task, the first one
        counts.
    rows : int, optional
        Number of rows that all fragments must have together; not compared by default.
    durability : {"full", "process"}
        What the commit survives, as in `to_blz`.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    int
        Number of the version.

    Raises
    ------
    ConflictError
        The table or its columns were replaced since the job began; or the fragments are of another
        job, have not `rows` rows, are in the table already, or are so old that a vacuum may have
        removed their files.
    CorruptError
        A file of a fragment is missing, or a text was changed.
    TableExistsError
        The mode is "x", and a table was created meanwhile.
    BusyError, StorageError, CommitUnknownError
        The commit failed, see `CTable`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1]}, "t.blz")
    >>> job = blz.begin("t.blz")
    >>> twice = [blz.write_fragment(job, {"n": [2]}, task=0) for attempt in range(2)]
    >>> blz.commit(job, twice, rows=1), blz.commit(job, twice)
    (2, 2)
    >>> blz.read_blz("t.blz")["n"].tolist()
    [1, 2]
    """
    check_choice("durability", durability, DURABILITIES)
    texts = list(fragments)
    with _opened(job, storage_options) as (found, store):
        if found.mode == "a":
            snapshot = Snapshot(*versions.pin(store))
            with table.CTable(snapshot, writable=True, durability=durability) as opened:
                with opened.transaction(commit_id=found.commit_id) as tx:
                    tx.append_fragments(job, texts, rows=rows)
                number = tx.version
        else:
            try:
                version, pinned = change.fragments.publish_new(
                    found, texts, store, is_durable=durability == "full", rows=rows
                )
                pinned.close()
                number = version.head.version
            except AlreadyCommitted as known:
                number = known.version
    _let_go(found.id)
    return number


def discard(job: str, fragments: Iterable[str] = (), *, storage_options: Options = None) -> int:
    """Give a job up, and remove the files of its fragments that no version names.

    Parameters
    ----------
    job : str
        What `begin` returned.
    fragments : iterable of str, optional
        What `write_fragment` returned.
    storage_options : mapping, optional
        Settings of the store of a URL, as in `open`.

    Returns
    -------
    int
        Number of files removed.

    Raises
    ------
    ConflictError
        A fragment is of another job.
    CorruptError
        A text was changed, or a version that may name the files is damaged.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1]}, "t.blz")
    >>> job = blz.begin("t.blz")
    >>> fragment = blz.write_fragment(job, {"n": [2]}, task=0)
    >>> blz.discard(job, [fragment])
    1
    """
    with _opened(job, storage_options) as (found, store):
        removed = change.fragments.discard(found, fragments, store)
    _let_go(found.id)
    return removed


@contextmanager
def _opened(job: str, options: Options) -> Iterator[tuple["Job", Store]]:
    """Yield a job and the store of its table, which is closed at the end."""
    with opened_at(change.fragments.path_of(job), options=options) as store, closing(store):
        yield change.fragments.Job.decode(job, store), store


def _let_go(job: str) -> None:
    """Release the lock of a job, if this process began it."""
    with suppress(KeyError):
        _held.pop(job).close()


def _check_shared(store: Store) -> None:
    """Raise ValueError if only one process can write there."""
    if store.path is None or store.has_one_writer:
        raise ValueError(
            f"{store.name}: several processes cannot write there; write to a directory or a URL, "
            "and make one file of it by copy() afterwards"
        )


def _columns_of(schema: Any, index: bool | None, options: IngestOptions) -> AppendSource:
    """Return the columns of a new table: those of a schema, or of some rows."""
    if isinstance(schema, pa.Schema):
        return new_without_rows(schema_of(schema, options))
    if isinstance(schema, pd.DataFrame) and not len(schema):
        unknown = [name for name, dtype in schema.dtypes.items() if is_object_dtype(dtype)]
        if unknown:
            raise SchemaError(
                f"the types of columns {unknown!r:.300} cannot be told without rows; pass some "
                "rows as schema=, or an Arrow schema"
            )
    return new_source(schema, index=index, options=options)
