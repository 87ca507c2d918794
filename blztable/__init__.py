"""blztable: a columnar table store for users of pandas and Arrow.

``import blztable`` adds the method `to_blz` to DataFrames. ``__all__`` lists the public names. The
rooms behind them are imported at the first use of a name: a program that only imports blztable, or
passes it on, does not wait for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from blztable import accessor as accessor  # Registers `df.to_blz`.
from blztable.errors import (
    AccessError,
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
from blztable.version import VERSION

if TYPE_CHECKING:
    from blztable.api import (
        create,
        dataset,
        drop,
        exists,
        open,
        plan,
        read_blz,
        read_table,
        sql,
        vacuum,
    )
    from blztable.arrays.superchunk import SuperChunk
    from blztable.cached import set_cache
    from blztable.copying import copy
    from blztable.engine.run.threads import set_threads
    from blztable.engine.write.options import Storage
    from blztable.report import (
        Changed,
        ColumnPlan,
        Copied,
        DiskUsage,
        Erased,
        Explanation,
        Problem,
        Repaired,
        Report,
        RowGroup,
        StreamStorage,
        Vacuumed,
        VersionDiff,
        VersionInfo,
        VersionLeft,
    )
    from blztable.storage.memory import MemoryStore
    from blztable.table.attributes import Attributes
    from blztable.table.changing.appender import Appender, ColumnAppender
    from blztable.table.column import Column
    from blztable.table.parts import TablePart
    from blztable.table.table import CTable
    from blztable.table.tags import Tags
    from blztable.table.transaction import Transaction
    from blztable.workers import begin, commit, discard, write_fragment
    from blztable.writing import to_blz

__version__ = VERSION

__all__ = [
    "AccessError",
    "Appender",
    "Attributes",
    "BlzError",
    "BusyError",
    "CTable",
    "Changed",
    "ClosedError",
    "Column",
    "ColumnAppender",
    "ColumnNotFoundError",
    "ColumnPlan",
    "CommitUnknownError",
    "ConflictError",
    "Copied",
    "CorruptError",
    "DiskUsage",
    "Erased",
    "Explanation",
    "FormatError",
    "LimitError",
    "MemoryStore",
    "Problem",
    "ReadOnlyError",
    "Repaired",
    "Report",
    "RowGroup",
    "SchemaError",
    "Storage",
    "StorageError",
    "StreamStorage",
    "SuperChunk",
    "TableExistsError",
    "TableNotFoundError",
    "TablePart",
    "Tags",
    "Transaction",
    "TransactionError",
    "Vacuumed",
    "VersionDiff",
    "VersionInfo",
    "VersionLeft",
    "begin",
    "commit",
    "copy",
    "create",
    "dataset",
    "discard",
    "drop",
    "exists",
    "open",
    "plan",
    "read_blz",
    "read_table",
    "set_cache",
    "set_threads",
    "sql",
    "to_blz",
    "vacuum",
    "write_fragment",
]

# The modules of the public names that are imported at their first use.
_HOMES = {
    "api": (
        "create",
        "dataset",
        "drop",
        "exists",
        "open",
        "plan",
        "read_blz",
        "read_table",
        "sql",
        "vacuum",
    ),
    "arrays.superchunk": ("SuperChunk",),
    "cached": ("set_cache",),
    "copying": ("copy",),
    "engine.run.threads": ("set_threads",),
    "engine.write.options": ("Storage",),
    "report": (
        "Changed",
        "ColumnPlan",
        "Copied",
        "DiskUsage",
        "Erased",
        "Explanation",
        "Problem",
        "Repaired",
        "Report",
        "RowGroup",
        "StreamStorage",
        "Vacuumed",
        "VersionDiff",
        "VersionInfo",
        "VersionLeft",
    ),
    "storage.memory": ("MemoryStore",),
    "table.changing.appender": ("Appender", "ColumnAppender"),
    "table.attributes": ("Attributes",),
    "table.column": ("Column",),
    "table.parts": ("TablePart",),
    "table.table": ("CTable",),
    "table.tags": ("Tags",),
    "table.transaction": ("Transaction",),
    "workers": ("begin", "commit", "discard", "write_fragment"),
    "writing": ("to_blz",),
}


def __getattr__(name: str) -> object:
    """Import a public name, and the others of its module."""
    for home, names in _HOMES.items():
        if name in names:
            module = import_module(f"blztable.{home}")
            globals().update({each: getattr(module, each) for each in names})
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, and none of the rooms behind them."""
    return sorted({*__all__, "__version__"})
