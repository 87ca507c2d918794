"""Every error blztable raises, grouped by what a caller would do about it.

Each has a builtin as second base, so ``except FileNotFoundError`` works without knowing this file.
Nothing here knows how the errors come about.
"""


class BlzError(Exception):
    """Base of everything that goes wrong with data, files or the state of a table."""

    # Where a manifest is damaged: the newest version before it that is not, if there is one.
    intact_version: int | None = None


class CorruptError(BlzError, ValueError):
    """The bytes are damaged: they contradict a checksum, a length or each other."""


class FormatError(BlzError, ValueError):
    """The bytes are whole but not ours to read: another format, version or type."""


class LimitError(BlzError, ValueError):
    """Legal, but larger than a limit that guards the reader or the format."""


class TableNotFoundError(BlzError, FileNotFoundError):
    """There is no committed table at this path, or not in this version."""


class TableExistsError(BlzError, FileExistsError):
    """A table, or something that is not ours, is already at this path."""


class ColumnNotFoundError(BlzError, KeyError):
    """The table has no column of that name."""

    # KeyError would show the repr of the message.
    __str__ = Exception.__str__


class SchemaError(BlzError, TypeError):
    """The data cannot be stored as it is: a type, a value or a shape does not fit."""


class ConflictError(BlzError):
    """Another writer committed something this commit cannot be placed on; nothing was written."""


class BusyError(BlzError):
    """A lock was not got in time."""


class CommitUnknownError(BlzError):
    """The commit was published but may not survive a power loss; reopen and look at the version."""


class TransactionError(BlzError, RuntimeError):
    """A transaction was used where it is not open, or the table was changed while one is."""


class ReadOnlyError(BlzError):
    """This handle, or the file system below it, does not take writes."""


class StorageError(BlzError, OSError):
    """The storage below refused or failed: disk full, permission, input or output error."""
