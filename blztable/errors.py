"""Every error that blztable raises, grouped by what the caller does about it.

Errors about data, arguments and files have a builtin as second base: ``except FileNotFoundError``
works without this file. Knows nothing of how the errors come about.
"""


class BlzError(Exception):
    """Base of all errors about data, files or the state of a table.

    Attributes
    ----------
    intact_version : int or None
        If a manifest is damaged: number of the newest older version that is intact, if any.

    Examples
    --------
    >>> import blztable as blz
    >>> try:
    ...     blz.read_blz("missing.blz")
    ... except blz.BlzError as error:
    ...     print(type(error).__name__)
    TableNotFoundError
    """

    intact_version: int | None = None


class CorruptError(BlzError, ValueError):
    """The bytes are damaged: they contradict a checksum, a length or each other.

    Read the rest with ``on_corrupt="skip"``, list the damage with `CTable.verify`, or restore an
    older version with `CTable.restore`.

    Examples
    --------
    >>> import blztable as blz
    >>> from pathlib import Path
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> for file in Path("t.blz/data").glob("*/*"):
    ...     size = file.write_bytes(file.read_bytes()[:-1])
    >>> blz.read_blz("t.blz")
    Traceback (most recent call last):
        ...
    blztable.errors.CorruptError: ...
    """


class FormatError(BlzError, ValueError):
    """The bytes are intact, but in a format, version or type that this program cannot read.

    Install a newer blztable, or read the file with the program that wrote it.

    Examples
    --------
    >>> import blztable as blz
    >>> try:
    ...     raise blz.FormatError("the table needs a newer blztable")
    ... except ValueError as error:
    ...     print(error)
    the table needs a newer blztable
    """


class LimitError(BlzError, ValueError):
    """The data are legal, but larger than a limit that protects the reader or the format.

    Read fewer columns or rows, or read the table in pieces with `CTable.to_batches`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": range(10)}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     try:
    ...         rows = t.to_arrow()
    ...     except blz.LimitError:
    ...         rows = t.to_batches()
    """


class TableNotFoundError(BlzError, FileNotFoundError):
    """No table exists at this path, or it does not have this version.

    `CTable.versions` lists the versions that exist.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.open("missing.blz")
    Traceback (most recent call last):
        ...
    blztable.errors.TableNotFoundError: ...
    """


class TableExistsError(BlzError, FileExistsError):
    """A table exists at this path, or something that is not a table and is never replaced.

    Write with ``mode="w"`` to replace a table, with ``mode="a"`` to append to it.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> blz.to_blz({"a": [2]}, "t.blz", mode="x")
    Traceback (most recent call last):
        ...
    blztable.errors.TableExistsError: ...
    """


class ColumnNotFoundError(BlzError, KeyError):
    """The table has no column of this name, or several where one is needed.

    `CTable.column_names` lists the names.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> blz.read_blz("t.blz", columns=["z"])
    Traceback (most recent call last):
        ...
    blztable.errors.ColumnNotFoundError: no column 'z' in ...t.blz; its columns are ['a']
    """

    # KeyError would show the repr of the message.
    __str__ = Exception.__str__


class SchemaError(BlzError, TypeError):
    """The data do not fit: a type, a value or a shape that cannot be stored or compared.

    Nothing is written. The message names the column and what to do.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> blz.to_blz({"a": ["x"]}, "t.blz", mode="a")
    Traceback (most recent call last):
        ...
    blztable.errors.SchemaError: ...
    """


class ConflictError(BlzError):
    """Another commit changed something that this commit relies on; nothing was written.

    Open the table again and repeat the change.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2]}, "t.blz")
    >>> with blz.open("t.blz", "a") as one, blz.open("t.blz", "a") as other:
    ...     version = one.drop_columns(["a"])
    ...     try:
    ...         version = other.append({"a": [3]})
    ...     except blz.ConflictError:
    ...         print("open the table again")
    open the table again
    """


class BusyError(BlzError):
    """Other writers held the table's lock for too long; nothing was written.

    Repeat the change.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> with blz.open("t.blz", "a") as t:
    ...     try:
    ...         version = t.append({"a": [2]})
    ...     except blz.BusyError:
    ...         version = t.append({"a": [2]})
    """


class CommitUnknownError(BlzError):
    """The commit was published, but may not survive a loss of power, or cannot be read.

    Open the table again and look at its version, or repeat the change with the same `commit_id`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> with blz.open("t.blz", "a") as t:
    ...     try:
    ...         version = t.append({"a": [2]}, commit_id="day 2")
    ...     except blz.CommitUnknownError:
    ...         version = t.append({"a": [2]}, commit_id="day 2")
    """


class TransactionError(BlzError, RuntimeError):
    """A transaction or appender was used outside of its `with`, or the table inside of it.

    Make changes through the transaction, inside of its `with`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> with blz.open("t.blz", "a") as t, t.transaction() as tx:
    ...     t.append({"a": [2]})
    Traceback (most recent call last):
        ...
    blztable.errors.TransactionError: ...
    """


class ClosedError(BlzError, ValueError):
    """A table or a stream of batches was used after it was closed.

    Open the table again.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     pass
    >>> t.to_pandas()
    Traceback (most recent call last):
        ...
    blztable.errors.ClosedError: ...t.blz was closed; open the table again
    """


class ReadOnlyError(BlzError):
    """This table object, or the file system below it, does not accept changes.

    Open the table with ``mode="a"``, in the process that changes it.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     t.append({"a": [2]})
    Traceback (most recent call last):
        ...
    blztable.errors.ReadOnlyError: ...t.blz was opened for reading; open it with mode='a'
    """


class StorageError(BlzError, OSError):
    """The storage refused or failed: disk full, no permission, input or output error.

    Free space or permissions, then repeat the call; the table is as it was.

    Examples
    --------
    >>> import blztable as blz
    >>> try:
    ...     blz.to_blz({"a": [1]}, "t.blz")
    ... except blz.StorageError as error:
    ...     print(f"free some space: {error}")
    """
