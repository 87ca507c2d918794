"""The verbs on a table at a path, but for writing data: make it, open it, read it.

Each is a few lines over the other rooms; what a user gets wrong is told before anything happens.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pandas.api.extensions import no_default

from blztable.convert.frames.attributes import checked_attrs
from blztable.engine.change import creation
from blztable.engine.version import versions
from blztable.engine.write.options import DURABILITIES, WriteOptions, check_choice
from blztable.storage.resolve import Place, opened_at
from blztable.table.dataset import BlzDataset
from blztable.table.progress import ProgressOption
from blztable.table.reader import Filters
from blztable.table.snapshot import Snapshot
from blztable.table.table import CTable


def create(
    path: Place,
    schema: pa.Schema | Mapping[str, Any],
    *,
    mode: str = "x",
    compression: str | Mapping[str, str] = "lz4",
    clevel: int | Mapping[str, int] = 5,
    shuffle: str | Mapping[str, str | None] | None = None,
    checksum: str = "crc32",
    row_group_rows: int | None = None,
    page_rows: int | Mapping[str, int] | None = None,
    durability: str = "full",
    attrs: Mapping[str, Any] | None = None,
) -> CTable:
    """Make a table without rows, and open it for writing.

    Parameters
    ----------
    path : path-like
        The table's directory.
    schema : pyarrow.Schema, or mapping of names to types
        The columns.
    mode : {"x", "w"}
        "x" fails if a table is there; "w" replaces it, as a new version.
    compression, clevel, shuffle, checksum, row_group_rows, page_rows, durability
        How it is written, as in `to_blz`.
    attrs : mapping, optional
        Attributes of the table, as in `to_blz`.

    Raises
    ------
    SchemaError
        A type that cannot be stored.
    TableExistsError
        With "x" a table is there; or something that is not a table is, which is never touched.

    Examples
    --------
    >>> import blztable as blz
    >>> import pyarrow as pa
    >>> with blz.create("log.blz", {"at": pa.timestamp("us"), "what": pa.string()}) as t:
    ...     print(t.nrows, t.column_names)
    0 ['at', 'what']
    """
    check_choice("mode", mode, ("w", "x"))
    attributes = checked_attrs(dict(attrs or {}))
    contents = creation.Contents(pa.schema(schema), (), attributes=attributes)
    options = WriteOptions(
        compression, clevel, shuffle, checksum, row_group_rows, page_rows, durability
    )
    with opened_at(path) as store:
        version, pinned = creation.create(store, contents, options, replace_existing=mode == "w")
    return CTable(Snapshot(version, pinned), writable=True, durability=durability)


def open(
    path: Place, mode: str = "r", *, version: int | None = None, durability: str = "full"
) -> CTable:
    """Open a table and hold one version of it.

    Parameters
    ----------
    path : path-like
        The table's directory.
    mode : {"r", "a"}
        "a" to change it too.
    version : int, optional
        The version to show; the newest by default. Changes to an older one are made on the newest,
        if what they rely on is as it was.
    durability : {"full", "process"}
        What commits of this handle survive, as in `to_blz`.

    Raises
    ------
    TableNotFoundError
        No table is there, or not this version of it.
    CorruptError
        The manifest of the version is damaged; the message names the newest one that is intact.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     print(t.nrows, t.version)
    3 1
    """
    check_choice("mode", mode, ("r", "a"))
    check_choice("durability", durability, DURABILITIES)
    number = None if version is None else operator.index(version)
    with opened_at(path) as store:
        opened, pinned = versions.pin(store, number)
    return CTable(Snapshot(opened, pinned), writable=mode == "a", durability=durability)


def read_blz(
    path: Place,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters = None,
    version: int | None = None,
    dtype_backend: Any = no_default,
    on_corrupt: str = "raise",
    progress: ProgressOption = None,
) -> pd.DataFrame:
    """Read a table, or some columns of it, into a DataFrame.

    The frame shares its memory with what was decoded, and is writable. One that was written by
    `to_blz` comes back as it was: index, labels, dtypes, `attrs`. A few things do not: where an
    object column mixes None, NaN and NA they all become None, decimals take one scale, foreign
    byte order becomes native, and tuples in `attrs` become lists.

    Parameters
    ----------
    path : path-like
        The table's directory.
    columns : sequence of str, optional
        The columns to read, in this order; all by default. The index is restored beside them.
    filters : pyarrow.compute.Expression, list of tuples or list of such lists, optional
        Which rows: those for which an expression is true (`pc.field("a") > 1`), or all tuples
        (column, operator, value) of a list, or all those of one of several lists; the operators are
        ==, !=, <, <=, >, >=, in and not in. Also of columns that are not returned. Rows keep their
        labels. What statistics rule out is not read: see docs/how-to/query.md.
    version : int, optional
        The version to read; the newest by default.
    dtype_backend : {"numpy_nullable", "pyarrow"}, optional
        As in pandas. By default dates and decimals become one Python object each, as in pandas;
        with "pyarrow" they stay Arrow values, which is many times faster.
    on_corrupt : {"raise", "skip"}
        "skip" leaves out the row groups that are damaged in one of these columns, warns, and says
        in `attrs["blz:missing_rows"]` which rows they are; the others keep their labels.
    progress : bool or callable, optional
        As in `to_blz`.

    Raises
    ------
    TableNotFoundError
        No table is there, or not this version of it.
    ColumnNotFoundError
        No column has one of these names.
    SchemaError
        A filter that does not go with the types of its columns.
    CorruptError
        A file is damaged or missing; the message names it, the column and the chunk. With
        `on_corrupt="skip"` only where a manifest is damaged.
    LimitError
        The result would be larger than this machine's memory.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3], "b": ["x", "y", "z"]}, "t.blz")
    >>> blz.read_blz("t.blz", columns=["b"])
       b
    0  x
    1  y
    2  z
    >>> blz.read_blz("t.blz", filters=[("a", ">", 1)])
       a  b
    1  2  y
    2  3  z
    """
    check_choice("on_corrupt", on_corrupt, ("raise", "skip"))
    with open(path, version=version) as table:
        return table.to_pandas(
            columns,
            filters=filters,
            dtype_backend=dtype_backend,
            on_corrupt=on_corrupt,
            progress=progress,
        )


def read_table(
    path: Place,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters = None,
    version: int | None = None,
    on_corrupt: str = "raise",
) -> pa.Table:
    """Read a table, or some columns of it, into an Arrow table.

    Parameters
    ----------
    path : path-like
        The table's directory.
    columns : sequence of str, optional
        The columns to read, in this order; all by default.
    filters : pyarrow.compute.Expression, list of tuples or list of such lists, optional
        Which rows, as in `read_blz`.
    version : int, optional
        The version to read; the newest by default.
    on_corrupt : {"raise", "skip"}
        "skip" leaves out the row groups that are damaged in one of these columns, warns, and says
        in the schema's metadata, as "blz:missing_rows", which rows they are.

    Raises
    ------
    TableNotFoundError, ColumnNotFoundError, CorruptError, LimitError
        As in `read_blz`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3], "b": ["x", "y", "z"]}, "t.blz")
    >>> blz.read_table("t.blz", columns=["a"]).to_pydict()
    {'a': [1, 2, 3]}
    """
    check_choice("on_corrupt", on_corrupt, ("raise", "skip"))
    with open(path, version=version) as table:
        return table.to_arrow(columns, filters=filters, on_corrupt=on_corrupt)


def dataset(path: Place, *, version: int | None = None) -> BlzDataset:
    """Open a table as a pyarrow Dataset, for query engines.

    As `CTable.dataset`, of a table of its own: the version is held as long as the dataset is used.

    Parameters
    ----------
    path : path-like
        The table's directory.
    version : int, optional
        The version to show; the newest by default.

    Raises
    ------
    TableNotFoundError, CorruptError
        As in `open`.

    Examples
    --------
    >>> import blztable as blz
    >>> import polars as pl
    >>> blz.to_blz({"n": [1, 2, 3], "word": ["a", "b", "c"]}, "words.blz")
    >>> words = pl.scan_pyarrow_dataset(blz.dataset("words.blz"))
    >>> words.filter(pl.col("n") > 1).select("word").collect().to_series().to_list()
    ['b', 'c']
    """
    return open(path, version=version).dataset()
