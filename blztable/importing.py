"""Importing: `convert` makes a table of what another program stored, and compares the two.

Knows nothing of the files of these programs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa

from blztable.api import open
from blztable.compat.table import OldTable
from blztable.engine.query import windows
from blztable.engine.write.options import Storage, check_choice
from blztable.errors import CorruptError
from blztable.storage.resolve import Place
from blztable.table.progress import ProgressOption, reporting
from blztable.table.reader import TableReader
from blztable.table.table import CTable
from blztable.writing import to_blz

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def convert(
    old: Place,
    new: Place,
    *,
    columns: Sequence[str] | None = None,
    mode: Literal["x", "w"] = "x",
    progress: ProgressOption = None,
) -> int:
    """Make a table of a directory of BLZ or bcolz, or of a file of Bloscpack.

    A few windows of about 64 MB and two row groups are in memory at a time. At the end each value
    of the new table is compared with the old one, bit by bit. Attributes, metalayers and default
    values are copied; the attributes of a column of bcolz go to the metadata of its field. The old
    files are not changed.

    Parameters
    ----------
    old : path-like
        The directory, or the file.
    new : path-like
        Directory of the new table.
    columns : sequence of str, optional
        Names of the columns to convert; all by default. Columns of pickled objects are refused: if
        the table has one, name the others.
    mode : {"x", "w"}
        If a table exists at `new`, "x" fails and "w" replaces it, as a new version.
    progress : bool or callable, optional
        Progress of the write and then of the comparison, as in `to_blz`.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    TableNotFoundError
        Nothing is stored at `old`.
    ColumnNotFoundError
        The old table has no column of one of these names.
    FormatError
        A column cannot be read, for example because its values are pickled. Nothing is written.
    CorruptError
        A file is damaged, and nothing is written; or the comparison found a difference.
    LimitError
        The metalayers of an array have more bytes than a table may have. Nothing is written.
    TableExistsError
        Something exists at `new`.
    ValueError
        The table at `old` is one of blztable, or an option is not one of its choices.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.convert("prices.bcolz", "prices.blz")
    Traceback (most recent call last):
        ...
    blztable.errors.TableNotFoundError: no table at ...prices.bcolz; ...
    """
    check_choice("mode", mode, ("x", "w"))
    with open(old) as table:
        if not isinstance(table, OldTable):
            raise ValueError(f"{table.path} is a table of blztable; copy its directory instead")
        source = table if columns is None else table[list(columns)]
        rows = source.nrows
        with reporting(progress, "importing") as callback:
            # The length of a stream is not known to the writer.
            report = None if callback is None else _with_total(callback, rows)
            # A table has less room for metalayers than an array; now, before it is written.
            table.check_metalayers()
            kept = Storage(attrs=dict(table.attrs), meta=dict(table.meta))
            to_blz(source.to_batches(), new, mode=mode, progress=report, storage=kept)
        with open(new, "a") as made:
            with reporting(progress, "comparing") as callback:
                _compare(source, made, callback)
            with made.transaction() as tx:
                for name, value in table.defaults.items():
                    if name in made.column_names:
                        types = (one.schema.field(name).type for one in (table, made))
                        tx.alter_column(name, default=_of_fields(value, *types))
                for name, content in table.vlmeta.items():
                    tx.vlmeta[name] = content
    return rows


def _of_fields(value: Any, type_: pa.DataType, narrowed: pa.DataType) -> Any:
    """Return a default value with those fields of its struct alone that were converted."""
    if type_ == narrowed:
        return value
    return pa.array([value], type_).cast(narrowed)[0]


def _with_total(
    callback: Callable[[int, int | None], object], rows: int
) -> Callable[[int, int | None], object]:
    return lambda done, _: callback(done, rows)


def _compare(
    source: TableReader, made: CTable, callback: Callable[[int, int | None], object] | None
) -> None:
    """Raise CorruptError unless both tables have the same rows."""
    rows = source.nrows
    if made.nrows != rows:
        raise CorruptError(f"{made.path} has {made.nrows} rows, and {source.path} has {rows}")
    size = max(windows.WINDOW_BYTES * max(rows, 1) // max(source.nbytes, 1), 1)
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        one, other = source[start:stop], made[start:stop]
        for name, left, right in zip(one.column_names, one.columns, other.columns, strict=True):
            if not _is_same(left, right):
                raise CorruptError(
                    f"{made.path}: column {name!r}, rows {start} to {stop}, differs from "
                    f"{source.path}; remove the new table and convert again"
                )
        if callback is not None:
            callback(stop, rows)


def _is_same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    """True if both columns have the same type and the same values, to the bit."""
    if left.type != right.type or len(left) != len(right):
        return False
    return _are_equal(left.combine_chunks(), right.combine_chunks())


def _are_equal(left: pa.Array, right: pa.Array) -> bool:
    type_ = left.type
    if isinstance(type_, pa.BaseExtensionType):
        return _are_equal(left.storage, right.storage)
    if pa.types.is_floating(type_):
        # Arrow takes NaN for unequal, and -0.0 for 0.0.
        bits = _BITS[type_.bit_width]
        return left.view(bits).equals(right.view(bits))
    if pa.types.is_fixed_size_list(type_) and not left.null_count and not right.null_count:
        return _are_equal(left.flatten(), right.flatten())
    if pa.types.is_struct(type_) and not left.null_count and not right.null_count:
        return all(map(_are_equal, left.flatten(), right.flatten()))
    return left.equals(right)
