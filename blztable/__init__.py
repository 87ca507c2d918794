"""blztable: a columnar table store for users of pandas and Arrow.

``import blztable`` adds the method `to_blz` to DataFrames. ``__all__`` lists the public names.
"""

from blztable import accessor as accessor  # Registers `df.to_blz`.
from blztable.api import create, dataset, open, read_blz, read_table
from blztable.errors import (
    BlzError,
    BusyError,
    ClosedError,
    ColumnNotFoundError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    FormatError,
    LimitError,
    ReadOnlyError,
    SchemaError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    TransactionError,
)
from blztable.report import ColumnPlan, Explanation, Problem, Report, Vacuumed, VersionInfo
from blztable.table.appender import Appender, ColumnAppender
from blztable.table.attributes import Attributes
from blztable.table.column import Column
from blztable.table.table import CTable
from blztable.table.transaction import Transaction
from blztable.version import VERSION
from blztable.writing import to_blz

__version__ = VERSION

__all__ = [
    "Appender",
    "Attributes",
    "BlzError",
    "BusyError",
    "CTable",
    "ClosedError",
    "Column",
    "ColumnAppender",
    "ColumnNotFoundError",
    "ColumnPlan",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "Explanation",
    "FormatError",
    "LimitError",
    "Problem",
    "ReadOnlyError",
    "Report",
    "SchemaError",
    "StorageError",
    "TableExistsError",
    "TableNotFoundError",
    "Transaction",
    "TransactionError",
    "Vacuumed",
    "VersionInfo",
    "create",
    "dataset",
    "open",
    "read_blz",
    "read_table",
    "to_blz",
]
