"""Errors: every exception class of blztable, grouped by the reaction of the caller.

Each error except the base has a builtin as second base, so
``except FileNotFoundError`` works without an import of this file. Knows nothing of causes.
"""

from collections.abc import Iterable, Sequence

# Columns that one message names.
NAMED_ERRORS = 20


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
    """The bytes are damaged: they do not match a checksum, a length or each other.

    Read the rest with ``on_corrupt="skip"``, list the damage with `CTable.verify`, or restore an
    older version with `CTable.restore`.

    Examples
    --------
    >>> import blztable as blz
    >>> from pathlib import Path
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> for file in Path("t.blz/data").glob("*/*"):
    ...     size = file.write_bytes(file.read_bytes()[:-8])
    >>> blz.read_blz("t.blz")
    Traceback (most recent call last):
        ...
    blztable.errors.CorruptError: ...
    """


class FormatError(BlzError, ValueError):
    """The bytes are intact but have a format, version or type that this program cannot read.

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
    """The data are valid but exceed a limit that protects the reader or the format.

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
    """A table or another file exists at this path. Other files are never replaced.

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
    """The table has no column of this name, or more than one.

    `CTable.columns` lists the names.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> blz.read_blz("t.blz", columns=["z"])
    Traceback (most recent call last):
        ...
    blztable.errors.ColumnNotFoundError: no column is named 'z' in ...t.blz; the columns are ['a']
    """

    # KeyError would show the repr of the message.
    __str__ = Exception.__str__


def no_column(name: object, names: Iterable[str], path: str = "") -> ColumnNotFoundError:
    """Return the error about a name that is not among `names`, the columns of the table."""
    place = f" in {path}" if path else ""
    return ColumnNotFoundError(
        f"no column is named {name!r}{place}; the columns are {list(names)!r:.1000}"
    )


class SchemaError(BlzError, TypeError):
    """The data have a type, a value or a shape that cannot be stored or compared.

    Nothing is written. The message names the column and the remedy.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz")
    >>> blz.to_blz({"a": ["x"]}, "t.blz", mode="a")
    Traceback (most recent call last):
        ...
    blztable.errors.SchemaError: ...
    """


def check_encodes(text: str, what: str) -> None:
    """SchemaError if UTF-8 cannot encode a text; `what` begins the message."""
    if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
        raise SchemaError(
            f"{what} {text!r:.100} has a lone surrogate, which UTF-8 cannot encode; replace it, "
            'with text.encode("utf-8", "replace").decode()'
        )


def check_none(messages: Sequence[str]) -> None:
    """Raise one SchemaError with these messages, a line each; do nothing if there are none.

    The caller collects messages, not errors: a frame that keeps an error which it has caught is in
    a cycle with it, and the cycle keeps all that the frame knows.
    """
    if messages:
        more = len(messages) - NAMED_ERRORS
        rest = [f"... and {more} more columns"] if more > 0 else []
        raise SchemaError("\n".join([*messages[:NAMED_ERRORS], *rest])) from None


class ConflictError(BlzError, RuntimeError):
    """Another commit changed data that this commit relies on; nothing was committed.

    Open the table again and repeat the change.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2]}, "t.blz")
    >>> with blz.open("t.blz", "a") as one, blz.open("t.blz", "a", retries=0) as other:
    ...     done = one.drop_columns(["a"])
    ...     try:
    ...         done = other.append({"a": [3]})
    ...     except blz.ConflictError:
    ...         print("open the table again")
    open the table again
    """


class BusyError(BlzError, TimeoutError):
    """Other writers held the lock of the table for too long; nothing was committed.

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


class CommitUnknownError(BlzError, RuntimeError):
    """The commit may be published, but may not survive a loss of power or cannot be read.

    Open the table again and check its version, or repeat the change with the same `commit_id`.

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
    """A transaction or appender was used outside its `with`, or its table was changed inside it.

    Make all changes through the transaction, inside its `with`.

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


class ReadOnlyError(BlzError, PermissionError):
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
    """The storage failed, for example because the disk is full.

    Remove the cause, for example free some space, then repeat the call. The table is unchanged.

    Examples
    --------
    >>> import blztable as blz
    >>> try:
    ...     blz.to_blz({"a": [1]}, "t.blz")
    ... except blz.StorageError as error:
    ...     print(f"free some space: {error}")
    """


class AccessError(StorageError, PermissionError):
    """The system does not let this process read a file of the table.

    Ask its owner for the permission.

    Examples
    --------
    >>> import blztable as blz
    >>> try:
    ...     raise blz.AccessError(13, "Permission denied", "t.blz")
    ... except PermissionError as error:
    ...     print(error.filename)
    t.blz
    """


class ErrorContext:
    """Prefix the message of an error about stored bytes with its context, unless it has it.

    This is a class and not a generator with `contextmanager`: since Python 3.12 the frame of such a
    generator refers to the frame of its `__exit__`. An error that is replaced by another would then
    hold itself, and all that was read, until the garbage collector runs.
    """

    __slots__ = ("_context",)

    def __init__(self, context: str) -> None:
        """Remember the context."""
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, CorruptError | FormatError | LimitError):
            raise self.named(error) from None

    def named(self, error: BlzError) -> BlzError:
        """Return an error with the context; a read that calls this makes no call without one."""
        message = str(error)
        if message.startswith(self._context):
            return error
        # An error of a chunk says first which one it is.
        joint = "" if message.startswith(", ") else ": "
        return type(error)(f"{self._context}{joint}{message}")
