"""blztable: a columnar table store for people who live in pandas and Arrow.

``import blztable`` gives DataFrames a `to_blz` method. The public names are those in ``__all__``.
"""

from blztable.api import create, open, read_blz, read_table, to_blz
from blztable.column import Column
from blztable.errors import (
    BlzError,
    BusyError,
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
)
from blztable.report import Problem, Report
from blztable.table import Attributes, CTable
from blztable.version import VERSION

__version__ = VERSION

__all__ = [
    "Attributes",
    "BlzError",
    "BusyError",
    "CTable",
    "Column",
    "ColumnNotFoundError",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "FormatError",
    "LimitError",
    "Problem",
    "ReadOnlyError",
    "Report",
    "SchemaError",
    "StorageError",
    "TableExistsError",
    "TableNotFoundError",
    "create",
    "open",
    "read_blz",
    "read_table",
    "to_blz",
]
