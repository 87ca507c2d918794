"""Transaction: several changes to a table in one commit, or none of them.

The user's data meet the engine's changes here: `convert` makes columns of the data, the engine
makes files of the columns. All verbs that change a table are here; the verbs of CTable are
transactions of one line. Knows nothing of files and commits.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, Literal, NoReturn, ParamSpec, Self, TypeVar

from pandas.api.extensions import no_default

from blztable.arrow.nested.paths import Names
from blztable.convert.objects.tagged import checked_attrs
from blztable.convert.source import is_repeatable
from blztable.engine.change import columns as evolving
from blztable.engine.change import compact, rows
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.erase import erase
from blztable.engine.run.progress import Callback
from blztable.engine.version.commit import AlreadyCommitted, Commit, Plan
from blztable.engine.write import sort_keys
from blztable.engine.write.options import WriteOptions, check_id
from blztable.errors import ReadOnlyError, TransactionError
from blztable.format.metalayers import LayerKey
from blztable.interrupts import DeferInterrupt
from blztable.report import Changed
from blztable.table.changing import columns, keyed
from blztable.table.changing import rows as row_verbs
from blztable.table.changing.appender import Appender
from blztable.table.changing.target import Target
from blztable.table.indices import checked_count
from blztable.table.reader import TableReader
from blztable.table.snapshot import Scope, Snapshot

# Operations that may leave small row groups at the end.
GROWING = {"append", "resize", "upsert", "replace_where"}

P = ParamSpec("P")
R = TypeVar("R")
Verb = Callable[Concatenate["Transaction", P], R]


def _verb(if_repeated: R) -> Callable[[Verb[P, R]], Verb[P, R]]:
    """Make a verb all or nothing; if the commit was made before, it does nothing."""

    def decorated(verb: Verb[P, R]) -> Verb[P, R]:
        @wraps(verb)
        def run(self: "Transaction", /, *args: P.args, **kwargs: P.kwargs) -> R:
            change_set = self._working()
            if change_set is None:
                return if_repeated
            with change_set.attempt():
                result = verb(self, *args, **kwargs)
            self._show()
            return result

        return run

    return decorated


class Transaction(TableReader):
    """Several changes to a table in one commit, and the table as they have made it so far.

    Made by `CTable.transaction`. The end of the `with` commits; an exception in it discards all
    changes. A verb that fails leaves the transaction as it was before the verb. Reads see the
    changes made so far; nobody else sees them before the commit.

    Attributes
    ----------
    is_repeated : bool
        True if a commit with this `commit_id` was made before. Nothing is written then.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"day": [1, 2], "sold": [7, 9]}, "daily.blz")
    >>> with blz.open("daily.blz", mode="a") as t:
    ...     with t.transaction() as tx:
    ...         removed = tx.delete([("day", "==", 2)])
    ...         tx.append({"day": [2], "sold": [8]})
    ...         print(tx.nrows, tx.version)
    ...     print(t["sold"][:].to_pylist(), t.version)
    2 1
    [7, 8] 2
    """

    def __init__(
        self,
        table: TableReader,
        options: WriteOptions,
        commit_id: str | None,
        snapshot: Snapshot | None = None,
    ) -> None:
        super().__init__(snapshot or table._snapshot)
        check_id(commit_id)
        # Shows the version that the commit makes.
        self._table = table
        self._base: Snapshot | None = self._snapshot
        version = self._snapshot.version
        plan = Plan(version.store, options.is_durable, base=version, commit_id=commit_id)
        self._change_set = ChangeSet(Commit(plan), options)
        self._pid = os.getpid()
        self._held = ExitStack()
        self._scope = Scope()
        self._committed: int | None = None
        self.is_repeated = False
        # True if the changes cannot be made again on another version: values or an index belong to
        # single rows, or the data can be read only once.
        self._only_once = False

    @property
    def version(self) -> int:
        """Number of the version committed; before the commit, of the version it started from.

        Returns
        -------
        int
            Number of the version. If the `commit_id` was known, the version of that commit.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.append({"n": [2]})
        ...         print(tx.version)
        ...     print(tx.version)
        1
        2
        """
        return super().version if self._committed is None else self._committed

    @property
    def changed(self) -> Changed:
        """Numbers of rows that the changes made so far appended, updated and deleted.

        Returns
        -------
        Changed
            Numbers of rows over all changes, and the number of the version as in `version`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.append({"n": [2, 3]})
        ...         tx.truncate(2)
        ...     print(tx.changed)
        version 2: 2 rows appended, 1 row deleted
        """
        done = Changed() if self.is_repeated else self._change_set.done
        return replace(done, version=self.version)

    @property
    def is_open(self) -> bool:
        """True inside of the `with`, where changes can be made.

        Returns
        -------
        bool
            False before and after the `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         print(tx.is_open)
        ...     print(tx.is_open)
        True
        False
        """
        return self._scope.is_open

    @_verb(if_repeated=None)
    def append(
        self,
        data: Any,
        *,
        evolve: bool = False,
        index: bool | None = None,
        nan_as_null: bool | None = None,
        object: Literal["infer", "json", "error"] = "infer",
        progress: Callback | None = None,
    ) -> None:
        """Add rows at the end, see `CTable.append`.

        Parameters
        ----------
        data : DataFrame, Arrow data, mapping, or an iterable of these
            The rows, as in `to_blz`; iterators are streamed.
        evolve : bool, optional
            If True, columns that the table lacks are added, with nulls in the existing rows, and a
            column becomes wider where the data needs it.
        index : bool, optional
            Whether the DataFrame's index is stored, as in `CTable.append`.
        nan_as_null : bool, optional
            Whether NaN among floats is a missing value, as in `CTable.append`.
        object : {"infer", "json", "error"}
            How columns of Python objects are stored, as in `to_blz`.
        progress : callable, optional
            Called with the number of rows done and the number of all rows, None while unknown.

        Raises
        ------
        SchemaError
            A column is unknown, missing or of a type that cannot be stored without loss, or the
            index does not continue the table's. Changes made before stay in the transaction.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.append({"n": [2]})
        ...         tx.append({"n": [3]})
        ...         print(tx.nrows, t.nrows)
        ...     print(t.nrows, t.version)
        3 1
        3 2
        """
        self._only_once |= not is_repeatable(data)
        self._only_once |= row_verbs.append(
            *(self._change_set, self._target, data),
            index=index,
            how=self._target.how(nan_as_null, object),
            evolve=evolve,
            progress=progress,
        )

    def appender(self, *, evolve: bool = False) -> Appender:
        """Append column by column, see `CTable.appender`.

        Parameters
        ----------
        evolve : bool, optional
            If True, columns that the table lacks are added, and a column becomes wider, as in
            `append`.

        Returns
        -------
        Appender
            A context manager: the columns by name, each with a method `append`. The end of its
            `with` adds the rows to the transaction.

        Raises
        ------
        SchemaError
            At the end of the appender's `with`: the columns have different numbers of new rows.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"x": [1], "y": ["a"]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         with tx.appender() as a:
        ...             a["y"].append(["b"])
        ...             a["x"].append([2])
        ...         print(tx.tail(1).to_pydict())
        {'x': [2], 'y': ['b']}
        """
        working, target = self._working(), self._target
        return Appender(working, target, evolve, self._show)

    @_verb(if_repeated=Changed())
    def update(
        self, values: Mapping[str, Any], where: Any = None, *, evolve: bool = False
    ) -> Changed:
        """Set columns in the rows that meet a condition, see `CTable.update`.

        Parameters
        ----------
        values : mapping
            Name of a column to its new values: one scalar, an array with one value per row that
            meets the condition, or a pyarrow expression of the values before the update.
        where : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as `filters` of `read_blz`; all rows by
            default. Rows for which it is null are not changed.
        evolve : bool, optional
            If True, columns that the table lacks are added, and a column becomes wider, as in
            `append`.

        Returns
        -------
        Changed
            Number of rows that meet the condition, as `rows_updated`.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of these names, and `evolve` is not set.
        SchemaError
            Values do not fit the column's type, or their number is not the number of rows.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"item": ["tea", "cup"], "price": [3.0, 8.0]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         done = tx.update({"price": 4.0}, where=[("item", "==", "tea")])
        ...         print(done.rows_updated, tx["price"][:].to_pylist())
        1 [4.0, 8.0]
        """
        done, of_rows = row_verbs.update(self._change_set, self._target, values, where, evolve)
        self._only_once |= of_rows
        return done

    @_verb(if_repeated=Changed())
    def delete(self, where: Any) -> Changed:
        """Remove the rows that meet a condition, see `CTable.delete`.

        Parameters
        ----------
        where : str, pyarrow.compute.Expression, list of tuples or list of such lists
            Condition that a row must meet, as `filters` of `read_blz`. Rows for which it is
            null are kept.

        Returns
        -------
        Changed
            Number of rows removed, as `rows_deleted`.

        Raises
        ------
        ColumnNotFoundError
            The condition names a column that the table does not have.
        SchemaError
            The condition compares a column with a value of a type that cannot be compared with it.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"day": [1, 2], "sold": [7, 9]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         done = tx.delete([("day", "==", 2)])
        ...         tx.append({"day": [2], "sold": [8]})
        ...     print(done.rows_deleted, t["sold"][:].to_pylist())
        1 [7, 8]
        """
        return Changed(rows_deleted=rows.delete(self._change_set, where))

    @_verb(if_repeated=Changed())
    def upsert(
        self,
        data: Any,
        on: str | Sequence[str],
        *,
        evolve: bool = False,
        index: bool | None = None,
        nan_as_null: bool | None = None,
        object: Literal["infer", "json", "error"] = "infer",
    ) -> Changed:
        """Update the rows whose key is there, and append the others, see `CTable.upsert`.

        Parameters
        ----------
        data : DataFrame, Arrow data, mapping, or an iterable of these
            The rows, as in `to_blz`.
        on : str or sequence of str
            The column of the key, or several.
        evolve : bool, optional
            If True, columns that the table lacks are added, and a column becomes wider, as in
            `append`.
        index : bool, optional
            Whether the DataFrame's index is stored, as in `CTable.append`.
        nan_as_null : bool, optional
            Whether NaN among floats is a missing value, as in `CTable.append`.
        object : {"infer", "json", "error"}
            How columns of Python objects are stored, as in `to_blz`.

        Returns
        -------
        Changed
            Numbers of rows, as `rows_updated` and `rows_appended`.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of these names.
        SchemaError
            A column is unknown, missing or of a type that cannot be stored without loss.
        ValueError
            Two rows of the data have the same key.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"id": [1, 2], "sold": [7, 9]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         print(tx.upsert({"id": [2, 3], "sold": [8, 1]}, on="id"))
        ...     print(t["sold"][:].to_pylist())
        1 row appended, 1 row updated
        [7, 8, 1]
        """
        target = self._target
        how = target.how(nan_as_null, object)
        self._only_once |= not is_repeatable(data)
        with self._change_set.named("upsert"):
            return keyed.put(
                self._change_set, target, data, on, index=index, how=how, evolve=evolve
            )

    @_verb(if_repeated=Changed())
    def replace_where(
        self,
        data: Any,
        where: Any,
        *,
        evolve: bool = False,
        index: bool | None = None,
        nan_as_null: bool | None = None,
        object: Literal["infer", "json", "error"] = "infer",
    ) -> Changed:
        """Replace the rows that meet a condition by other rows, see `CTable.replace_where`.

        Parameters
        ----------
        data : DataFrame, Arrow data, mapping, or an iterable of these
            The rows, as in `to_blz`; iterators are streamed.
        where : str, pyarrow.compute.Expression, list of tuples or list of such lists
            Condition of the rows to remove, which all new rows must meet.
        evolve : bool, optional
            If True, columns that the table lacks are added, and a column becomes wider, as in
            `append`.
        index : bool, optional
            Whether the DataFrame's index is stored, as in `CTable.append`.
        nan_as_null : bool, optional
            Whether NaN among floats is a missing value, as in `CTable.append`.
        object : {"infer", "json", "error"}
            How columns of Python objects are stored, as in `to_blz`.

        Returns
        -------
        Changed
            Numbers of rows, as `rows_deleted` and `rows_appended`.

        Raises
        ------
        ColumnNotFoundError
            The condition names a column that the table does not have.
        SchemaError
            A column is unknown, missing or of a type that cannot be stored without loss.
        ValueError
            A row of the data does not meet the condition.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"day": [1, 2], "sold": [7, 9]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         done = tx.replace_where({"day": [2], "sold": [8]}, [("day", "==", 2)])
        ...         tx.attrs["until"] = 2
        ...     print(done, t["sold"][:].to_pylist())
        1 row appended, 1 row deleted [7, 8]
        """
        self._only_once |= not is_repeatable(data)
        how = self._target.how(nan_as_null, object)
        with self._change_set.named("replace_where"):
            deleted, before = rows.delete(self._change_set, where), self._change_set.staged.head
            row_verbs.append(
                self._change_set, self._target, data, index=index, how=how, evolve=evolve
            )
        row_verbs.check_replacing(self._change_set, len(before.row_groups), where)
        appended = self._change_set.staged.head.rows - before.rows
        return Changed(rows_appended=appended, rows_deleted=deleted)

    @_verb(if_repeated=Changed())
    def deduplicate(
        self,
        on: str | Sequence[str] | None = None,
        *,
        keep: Literal["first", "last"] = "first",
        order_by: str | Sequence[str | tuple[str, str]] | None = None,
    ) -> Changed:
        """Keep one row of each key and remove the others, see `CTable.deduplicate`.

        Parameters
        ----------
        on : str or sequence of str, optional
            The column of the key, or several; all columns by default.
        keep : {"first", "last"}
            Which row of each key stays.
        order_by : str, or sequence of str or (str, "ascending" or "descending"), optional
            Columns that decide which row is the first and which the last; by default the order of
            the table.

        Returns
        -------
        Changed
            Number of rows removed, as `rows_deleted`.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of these names.
        SchemaError
            Rows cannot be compared by a column of this type.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"id": [1, 2, 1], "sold": [7, 9, 8]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         print(tx.deduplicate(on="id", keep="last"))
        ...     print(t["sold"][:].to_pylist())
        1 row deleted
        [9, 8]
        """
        return keyed.deduplicated(self._change_set, self._target, on, keep, order_by)

    def truncate(self, n: int) -> None:
        """Keep the first rows and remove the others.

        Parameters
        ----------
        n : int
            Maximum number of rows to keep.

        Raises
        ------
        ValueError
            The number of rows is negative.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.truncate(2)
        ...     print(t["n"][:].to_pylist())
        [1, 2]
        """
        self._change(rows.truncate, checked_count(n, "n"))

    @_verb(if_repeated=None)
    def resize(self, n: int) -> None:
        """Keep the first rows, or add rows with default values, until there are `n`.

        Parameters
        ----------
        n : int
            Number of rows to have; defaults are described in `CTable.resize`.

        Raises
        ------
        ValueError
            The number of rows is negative.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.resize(3)
        ...     print(t["n"][:].to_pylist())
        [1, 2, None]
        """
        row_verbs.resize(self._change_set, self._target, checked_count(n, "n"))

    @_verb(if_repeated=None)
    def add_column(
        self,
        name: Names,
        data: Any,
        *,
        default: Any = None,
        truncate: int | None = None,
        object: Literal["infer", "json", "error"] = "infer",
        meta: Mapping[str, bytes] | None = None,
    ) -> None:
        """Add a column after the others, see `CTable.add_column`.

        Parameters
        ----------
        name : str or tuple of str
            Name of the new column. "address.city" or ("address", "city") is a new field of a
            struct, which has a value for each row; it is null where the struct is.
        data : array-like, scalar or pyarrow.compute.Expression
            An array with one value per row, one value for all rows, or an expression of other
            columns.
        default : scalar, dict or list, optional
            Value of the column in rows that are appended without it; null by default.
        truncate : int, optional
            Number of significant decimal digits to keep of floats, as in `to_blz`.
        object : {"infer", "json", "error"}
            How Python objects are stored, as in `to_blz`.
        meta : mapping of str to bytes, optional
            Fixed metalayers of the column, see `Column.meta`.

        Raises
        ------
        SchemaError
            The table has a column of this name, the type cannot be stored, or the number of values
            is not the number of rows.
        ColumnNotFoundError
            The expression names a column that the table does not have.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"net": [10.0, 20.0]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.add_column("gross", pc.field("net") * 1.5)
        ...         tx.drop_columns(["net"])
        ...     print(t.head().to_pydict())
        {'gross': [15.0, 30.0]}
        """
        of_rows = columns.add(
            *(self._change_set, self._target, name, data),
            default=default,
            truncate=truncate,
            objects=object,
            meta=meta,
        )
        self._only_once |= of_rows

    @_verb(if_repeated=None)
    def alter_column(
        self,
        name: str,
        *,
        type: Any = None,
        nullable: bool | None = None,
        default: Any = no_default,
        safe: bool = True,
    ) -> None:
        """Change the type, the nulls or the default of a column, see `CTable.alter_column`.

        Parameters
        ----------
        name : str
            Name of the column.
        type : pyarrow.DataType, str or dtype of pandas, optional
            New type; unchanged by default.
        nullable : bool, optional
            Whether the column may be null; unchanged by default.
        default : scalar, dict or list, optional
            Value of the column in rows that are appended without it, None for null; unchanged by
            default.
        safe : bool, optional
            If True, a value that the new type cannot hold is an error; if False, it is converted.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of this name.
        SchemaError
            A value does not fit the new type, or is null in a column that allows no nulls.
        ValueError
            None of `type`, `nullable` and `default` was given.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.alter_column("n", type="double")
        ...         tx.append({"n": [0.5]})
        ...     print(t["n"][:].to_pylist())
        [1.0, 2.0, 0.5]
        """
        if type is None and nullable is None and default is no_default:
            raise ValueError("alter_column needs at least one of type, nullable and default")
        columns.alter(
            *(self._change_set, self._target, name),
            type_=type,
            nullable=nullable,
            default=default,
            safe=safe,
        )

    @_verb(if_repeated=None)
    def drop_columns(self, names: Iterable[Names]) -> None:
        """Drop columns; no data are read or written.

        Parameters
        ----------
        names : iterable of str or tuple of str
            Names of the columns to drop. "address.city" or ("address", "city") is a field of a
            struct, also of one in a list.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of these names.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1], "b": [2]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.drop_columns(["a"])
        ...     print(t.column_names)
        ['b']
        """
        columns.drop(self._change_set, names)

    @_verb(if_repeated=None)
    def reorder_columns(self, names: Iterable[str]) -> None:
        """Put some columns first; no data are read or written.

        Parameters
        ----------
        names : iterable of str
            Names of the columns to put first, in this order. The others follow in their old order.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of these names.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1], "b": [2], "c": [3]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.reorder_columns(["c"])
        ...     print(t.column_names)
        ['c', 'a', 'b']
        """
        first, found = evolving.checked_names(self._change_set.staged, names)
        if found:
            raise ValueError("names must be those of columns; fields keep their order")
        evolving.reorder_columns(self._change_set, first)

    @_verb(if_repeated=None)
    def rename_columns(self, names: Mapping[str, str]) -> None:
        """Rename columns; no data are read or written.

        Parameters
        ----------
        names : mapping of str to str
            Old name to new name. "address.city" is a field of a struct; its new name is that within
            the struct.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of the old names.
        SchemaError
            Two columns would have the same name.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1], "b": [2]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.rename_columns({"a": "c"})
        ...     print(t.column_names)
        ['c', 'b']
        """
        columns.rename(self._change_set, names)

    def compact(self, sort_by: str | Sequence[str | tuple[str, str]] | None = None) -> None:
        """Merge small row groups, or sort all rows, see `CTable.compact`.

        Parameters
        ----------
        sort_by : str, or sequence of str or (str, "ascending" or "descending"), optional
            Columns to sort all rows by, nulls last; by default the columns that the table was last
            sorted by, and () to sort by none.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of these names.
        SchemaError
            Rows cannot be sorted by a column of this type.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [2, 3]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.append({"n": [1]})
        ...         tx.compact(sort_by="n")
        ...     print(t["n"][:].to_pylist(), t.version)
        [1, 2, 3] 2
        """
        self._change(compact.compact, None if sort_by is None else sort_keys.parsed(sort_by))

    def set_retention(
        self,
        *,
        versions: int | None = None,
        seconds: int | None = None,
        bytes: int | None = None,
    ) -> None:
        """Set how long superseded versions are kept.

        Parameters
        ----------
        versions : int, optional
            Maximum number of versions, the newest included; unchanged by default.
        seconds : int, optional
            Time that a version is kept after the next one was committed, in seconds; unchanged by
            default.
        bytes : int, optional
            Maximum size of the files of older versions that the newest one does not use, together;
            unchanged by default, and without a limit at first. Each commit then reads the manifests
            of the versions that stay.

        Raises
        ------
        ValueError
            A number is negative, or the number of versions is 0.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.set_retention(versions=2)
        ...         tx.append({"n": [2]})
        ...     print(t.version)
        2
        """
        chosen = {"versions": versions, "seconds": seconds, "bytes": bytes}
        kept = {f"keep_{k}": checked_count(v, k) for k, v in chosen.items() if v is not None}
        if kept.get("keep_versions") == 0:
            raise ValueError("versions must be at least 1: the newest version is always kept")
        self._change(ChangeSet.set_keys, "properties", kept, ())

    def set_row_group_rows(self, rows: int | None) -> None:
        """Set the number of rows of new row groups, also of those that this transaction writes.

        Parameters
        ----------
        rows : int or None
            Number of rows; None for as many as `to_blz` takes by default.

        Raises
        ------
        ValueError
            The number is less than 1.
        ReadOnlyError
            Called in another process than the one that began the transaction.
        TransactionError
            Called outside of the transaction's `with`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         tx.set_row_group_rows(100_000)
        ...         tx.append({"n": [2]})
        ...     print(t.version)
        2
        """
        count = rows if rows is None else checked_count(rows, "rows", least=1)
        self._change(ChangeSet.set_row_group_rows, count)

    def __enter__(self) -> Self:
        if self._base is None or self.is_open:
            raise TransactionError(
                f"{self.path}: this transaction was entered before; begin another one"
            )
        self._base.check_open()
        try:
            with DeferInterrupt():
                try:
                    self._held.enter_context(self._change_set.commit)
                    self._change_set.begin()
                except AlreadyCommitted as known:
                    self.is_repeated, self._committed = True, known.version
                self._scope.is_open = True
                self._show()
        except BaseException as failure:
            self._end(failure)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # First: Ctrl-C may come at any line, and an ended transaction takes no more changes.
        was_open, self._scope.is_open = self.is_open, False
        try:
            if error is None:
                self._commit(was_open)
            else:  # A child made by fork that fails ends with its own exception.
                self._end(error)
        except BaseException as failure:
            # Ctrl-C may come before the lines above have released everything.
            self._end(failure)
            raise

    def _commit(self, was_open: bool) -> None:
        """Publish the changes, show the new version, and merge small row groups."""
        if not was_open:
            raise TransactionError(f"{self.path}: this transaction has ended; begin another one")
        self._check_process()
        # A reference to an ended transaction must not keep a version.
        self._base = None
        try:
            with self._held:
                published = None if self.is_repeated else self._change_set.publish()
        except AlreadyCommitted as known:
            # Another process made the commit with this commit_id at the same time.
            self.is_repeated, self._committed = True, known.version
            return
        if published is None:
            return
        self._committed = published[0].head.version
        self._table._show_version(*published)
        self._change_set.commit.emit_warnings()
        grown = GROWING.intersection(self._change_set.operations)
        if grown and (merged := compact.merge_after(published[0], self._change_set.options)):
            self._table._show_version(*merged)

    def _end(self, error: BaseException) -> None:
        """Discard the changes and release everything; harmless if called twice."""
        with DeferInterrupt():
            self._scope.is_open = False
            self._base = None
            self._held.__exit__(type(error), error, error.__traceback__)

    def _working(self) -> ChangeSet | None:
        """Return the change set; None if the commit was made before."""
        self._check_process()
        if not self.is_open:
            raise TransactionError(
                f"{self.path}: a transaction takes changes only inside of its `with`"
            )
        return None if self.is_repeated else self._change_set

    @_verb(if_repeated=None)
    def _change(self, function: Callable[..., None], *arguments: Any) -> None:
        function(self._change_set, *arguments)

    def _show(self) -> None:
        """Let reads see the changes made so far."""
        scope = self._scope
        # The change set pins the version below.
        self._snapshot = Snapshot(self._change_set.staged, None, lambda: scope.is_open)

    def erase(self, where: Any) -> NoReturn:
        """Raise TransactionError: a transaction removes no versions, so it cannot erase.

        Parameters
        ----------
        where : any
            Ignored.

        Raises
        ------
        TransactionError
            In any case. End the transaction, and call `CTable.erase`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         removed = tx.delete("n = 2")
        ...     print(t.erase("n = 2").left)
        ()
        """
        raise TransactionError(
            f"{self.path}: erase removes older versions, which no transaction can take back; end "
            "the transaction, and call erase() of the table"
        )

    @_verb(if_repeated=None)
    def _erase(self, where: Any) -> None:
        erase(self._change_set, where)

    def _set_attributes(self, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
        self._change(ChangeSet.set_keys, "attributes", checked_attrs(dict(changes)), removed)

    def _set_layers(self, changes: Mapping[LayerKey, bytes | None]) -> None:
        for key, content in changes.items():
            self._change(ChangeSet.set_layer, key, content)

    @property
    def _target(self) -> Target:
        nan_as_null = self._change_set.options.nan_as_null
        return Target(self._change_set.staged, self._snapshot, nan_as_null)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ReadOnlyError(
                f"{self.path}: the transaction began in another process; open the table again in "
                "this one"
            )
