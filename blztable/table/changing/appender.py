"""Appender: append column by column, in any order, as one change.

Knows nothing of files: `convert` coerces the values, the engine writes them.
"""

from typing import Any, Self

import pyarrow as pa

from blztable.convert.categories import Orders
from blztable.convert.source import kept
from blztable.engine import change
from blztable.errors import TransactionError
from blztable.table.changing.target import ChangeTarget


class Appender:
    """The columns of a table by name, each with a method `append`.

    Made by `Transaction.appender`. At the end of the `with`, all columns must have the same number
    of new rows, also the columns of a stored index; else SchemaError names the columns and their
    lengths, and nothing is added. Rows are written as they come: about one row group is in memory.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"x": [1], "y": ["a"]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     with t.transaction() as tx, tx.appender() as a:
    ...         a["y"].append(["b", "c"])
    ...         a["x"].append([2, 3])
    ...     print(len(t))
    3
    """

    def __init__(self, target: ChangeTarget | None, evolve: bool) -> None:
        # None if a commit with this commit_id exists already: values are ignored.
        self._target = target
        self._evolve = evolve
        if target is not None:
            target.check_appends()
            self._append = change.column_append.ColumnwiseAppend(target.change_set)
            # Categories of the ordered columns, from the table or from the first values appended.
            self._orders = Orders(target.categories)
        # The columns that have got values.
        self._valued: set[str] = set()
        self._is_open = False

    def __getitem__(self, name: str) -> "ColumnAppender":
        """Return the column of this name, to append to.

        Parameters
        ----------
        name : str
            Name of a column.

        Returns
        -------
        ColumnAppender
            The column, with a method `append`.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of this name and `evolve` is not set, or it has more than one.
        """
        return ColumnAppender(self, name)

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._is_open = False
        if error is None and self._target is not None:
            self._append.finish()

    def _append_values(self, name: str, values: Any) -> None:
        if not self._is_open:
            raise TransactionError("the appender is closed; append inside of its `with`")
        if self._target is None:
            return
        target, context = self._target.renewed(), f"column {name!r}"
        self._check(name)
        given = target.given(name, kept(values))
        wide = target.widened(name, given, self._evolve, has_values=name in self._valued)
        if wide is not None:
            self._append.widen(wide.schema, wide.frame)
            target = target.renewed()
        index = target.staged.index_of(name)
        column = target.coerced(index, given, self._evolve)
        if isinstance(given.values, pa.Scalar):
            column = self._orders.one(index, column, context)
        else:
            self._orders.check_column(index, column, context)
        self._append.add(index, column)
        if column.null_count < len(column):
            self._valued.add(name)

    def _check(self, name: str) -> None:
        """Raise ColumnNotFoundError for a name that is no column and makes none."""
        if self._target is not None:
            change.columns.check_target(self._target.change_set.staged, name, self._evolve)


class ColumnAppender:
    """One column of an `Appender`, made by ``appender["name"]``.

    Attributes
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"x": [1]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     with t.transaction() as tx, tx.appender() as a:
    ...         column = a["x"]
    ...         column.append([2, 3])
    ...     print(column.name, t["x"][:].to_pylist())
    x [1, 2, 3]
    """

    def __init__(self, appender: Appender, name: str) -> None:
        appender._check(name)
        self._appender = appender
        self.name = name

    def append(self, values: Any) -> None:
        """Append values to this column.

        Parameters
        ----------
        values : array-like or scalar
            An array of any kind, with shape (rows,), or one value.

        Raises
        ------
        SchemaError
            The type cannot be stored without loss. Values appended before are kept.
        TransactionError
            Called outside of the appender's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"x": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx, tx.appender() as a:
        ...         a["x"].append([2, 3])
        ...         a["x"].append(4)
        ...     print(t["x"][:].to_pylist())
        [1, 2, 3, 4]
        """
        self._appender._append_values(self.name, values)
