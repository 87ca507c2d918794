"""CTable: one version of a table, held open, and what users do with it.

A table shows one snapshot for its life: it pins its version, so nothing of it is removed while the
table is open. After a commit of its own it shows the version it published.
"""

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, overload
from weakref import WeakSet

import pyarrow as pa

from blztable.engine.change import creation
from blztable.engine.version import history, vacuum
from blztable.engine.version.versions import LOCK_SECONDS, Version, pin
from blztable.engine.write.options import WriteOptions
from blztable.errors import ReadOnlyError, TransactionError
from blztable.report import Vacuumed, VersionInfo
from blztable.storage.store import Lock
from blztable.table.appender import Appender
from blztable.table.attributes import Attributes
from blztable.table.column import Column
from blztable.table.progress import ProgressOption, reporting
from blztable.table.reader import TableReader
from blztable.table.snapshot import Snapshot
from blztable.table.transaction import Transaction


class CTable(TableReader):
    """One version of a table on disk, opened for reading, or for changing it too.

    Made by `open` and `create`. A context manager: closing lets go of the version, so that it can
    be removed when newer ones have taken its place. A table may be shared by threads for reading.

    Every change is one commit: after it returns the table is changed, also after a loss of power,
    and before that nobody sees any of it. What others committed meanwhile stays. Where a change
    relies on something they changed it raises ConflictError, and nothing is committed; open the
    table again and repeat it. All methods that change the table raise ReadOnlyError for a table
    opened for reading, BusyError where a lock was not got in time, StorageError where the disk
    fails, CommitUnknownError where a commit may not survive a loss of power; they return the number
    of the version they made.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"city": ["Rome", "Oslo"], "people": [2_748_000, 717_000]}, "cities.blz")
    >>> with blz.open("cities.blz") as t:
    ...     print(t.nrows, t.column_names)
    ...     print(t["people"][0])
    2 ['city', 'people']
    2748000
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        writable: bool,
        columns: Sequence[int] | None = None,
        durability: str = "full",
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(snapshot, columns)
        self._writable = writable
        self._pid = os.getpid()
        self._durability = durability
        # Options of writing that are not those the table was made with.
        self._overrides = overrides or {}
        self._transactions: WeakSet[Transaction] = WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        # Transactions belong to this handle: a copy has none.
        return {name: value for name, value in vars(self).items() if name != "_transactions"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _transactions=WeakSet())

    @property
    def attrs(self) -> Attributes:
        """The table's attributes, a mapping; an assignment is one commit.

        JSON values; numbers and times of numpy and pandas and 1-d arrays of them keep their type.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "tills.blz", attrs={"source": "till 7"})
        >>> with blz.open("tills.blz", mode="a") as t:
        ...     t.attrs["checked"] = True
        ...     print(t.attrs, t.version)
        {'source': 'till 7', 'checked': True} 2
        """
        return Attributes(lambda: self._snapshot.version.head.attributes, self._set_attributes)

    @overload
    def __getitem__(self, key: str) -> Column: ...

    @overload
    def __getitem__(self, key: list[str]) -> "CTable": ...

    @overload
    def __getitem__(self, key: slice) -> pa.Table: ...

    def __getitem__(self, key: str | list[str] | slice) -> "Column | TableReader | pa.Table":
        """One column by its name; the table narrowed to a list of columns; or a slice of rows."""
        if isinstance(key, list):
            snapshot, columns = self._reading(key)
            return CTable(snapshot, writable=False, columns=columns)
        return super().__getitem__(key)

    def transaction(self, *, commit_id: str | None = None) -> Transaction:
        """Several changes in one commit, or none of them.

        Parameters
        ----------
        commit_id : str, optional
            A name of the caller's for the commit. Where one of the last 1,000 commits that had a
            name had this one, nothing is written: a job that is run again does no harm.

        Returns
        -------
        Transaction
            A context manager with the methods that change a table. It shows what it has made of
            the table so far, which nobody else sees before the `with` ends; an exception in it
            discards all. Until it ends, a change through the table itself raises
            TransactionError: it would be a commit of its own.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"day": [1], "sold": [7]}, "daily.blz", attrs={"until": 1})
        >>> with blz.open("daily.blz", mode="a") as t:
        ...     for run in range(2):
        ...         with t.transaction(commit_id="day 2") as tx:
        ...             tx.append({"day": [2], "sold": [9]})
        ...             tx.attrs["until"] = 2
        ...     print(t.nrows, t.attrs["until"], t.version)
        2 2 2
        """
        begun = self._begin(commit_id)
        self._transactions.add(begun)
        return begun

    def _begin(self, commit_id: str | None = None) -> Transaction:
        return Transaction(self._writing(), self._options(), commit_id, self._shows)

    def _alone(self, commit_id: str | None = None) -> Transaction:
        """A transaction of one verb of the table itself."""
        self._writing()
        self._check_no_transaction()
        return self._begin(commit_id)

    def append(
        self,
        data: Any,
        *,
        evolve: bool = False,
        commit_id: str | None = None,
        index: bool | None = None,
        progress: ProgressOption = None,
    ) -> int:
        """Add rows at the end.

        Columns go by name, in any order. A column that is missing is filled with its default, or
        null where it may be; text may be longer and categories may be others than before.

        Parameters
        ----------
        data : DataFrame, Arrow data, mapping, or an iterable of these
            As in `to_blz`; iterators are streamed.
        evolve : bool, optional
            Add columns that the table does not have, null in the rows before, and make integers
            and floats as wide as those that come, in the same commit.
        commit_id : str, optional
            As in `transaction`: where it is known, nothing is written, its version is returned.
        index : bool, optional
            As in `to_blz`. A default RangeIndex goes on; one that starts where the table's stops
            does, too; an index of columns goes by their names.
        progress : bool or callable, optional
            As in `to_blz`.

        Raises
        ------
        SchemaError
            A column that is unknown, missing or of a type that would lose something, or an index
            that does not go on; nothing is committed.
        ConflictError
            Another commit changed the columns; or the rows, for an index that counts on from them,
            and where `evolve` adds or widens a column.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"day": [1], "sold": [7]}, "sales.blz")
        >>> with blz.open("sales.blz", mode="a") as t:
        ...     version = t.append({"sold": [9], "day": [2]}, commit_id="day 2")
        ...     again = t.append({"sold": [9], "day": [2]}, commit_id="day 2")
        ...     print(t.nrows, version, again)
        2 2 2
        """
        with (
            reporting(progress, "appending") as callback,
            self._alone(commit_id=commit_id) as tx,
        ):
            tx.append(data, evolve=evolve, index=index, progress=callback)
        return tx.version

    @contextmanager
    def appender(self, *, commit_id: str | None = None) -> Iterator[Appender]:
        """Feed each column by itself, in any order and pieces of any size; one commit at the end.

        Gives, to a `with`, an Appender: columns by their names, each with a method `append`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"x": [1], "y": ["a"]}, "fed.blz")
        >>> with blz.open("fed.blz", mode="a") as t:
        ...     with t.appender() as a:
        ...         a["y"].append(["b", "c"])
        ...         a["x"].append([2])
        ...         a["x"].append([3])
        ...     print(t["x"][:].to_pylist(), t["y"][:].to_pylist())
        [1, 2, 3] ['a', 'b', 'c']
        """
        with self._alone(commit_id=commit_id) as tx, tx.appender() as columns:
            yield columns

    def update(self, values: Mapping[str, Any], where: Any = None) -> int:
        """Set columns, in the rows for which `where` is true.

        Of the row groups that have such rows the columns named are written anew, the others not.

        Parameters
        ----------
        values : mapping
            By the column's name: one value, as many as rows to be set, by position, or a pyarrow
            expression, which sees the values before the update, with types as in `add_column`.
        where : pyarrow.compute.Expression or list of tuples, optional
            Which rows; all by default. Rows for which it is null are left.

        Raises
        ------
        ColumnNotFoundError
            No column has one of these names.
        SchemaError
            Values that do not fit the column's type, or not as many as rows.
        ConflictError
            Another commit changed columns or rows.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"item": ["tea", "cup"], "price": [3.0, 8.0]}, "shop.blz")
        >>> with blz.open("shop.blz", mode="a") as t:
        ...     version = t.update({"price": pc.field("price") * 2}, where=[("item", "==", "tea")])
        ...     print(t["price"][:].to_pylist())
        [6.0, 8.0]
        """
        with self._alone() as tx:
            tx.update(values, where)
        return tx.version

    def delete(self, where: Any) -> int:
        """Remove the rows for which `where` is true, a pyarrow expression or a list of tuples.

        The row groups that lose rows are written anew with all their columns; a RangeIndex counts
        the rows that are left.

        Raises
        ------
        ColumnNotFoundError, ConflictError
            As `update`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "fewer.blz")
        >>> with blz.open("fewer.blz", mode="a") as t:
        ...     version = t.delete([("n", "==", 2)])
        ...     print(t["n"][:].to_pylist())
        [1, 3]
        """
        with self._alone() as tx:
            tx.delete(where)
        return tx.version

    def truncate(self, n: int) -> int:
        """Leave the first `n` rows; ConflictError where another commit changed rows or columns."""
        with self._alone() as tx:
            tx.truncate(n)
        return tx.version

    def resize(self, n: int) -> int:
        """Leave the first `n` rows, or add rows up to `n`.

        Rows added have each column's default: the one that was declared in `add_column`, else null
        where the column may be null, else zero. Raises ConflictError as `truncate` does.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "sized.blz")
        >>> with blz.open("sized.blz", mode="a") as t:
        ...     t.truncate(2), t.resize(3)
        ...     print(t["n"][:].to_pylist())
        (2, 3)
        [1, 2, None]
        """
        with self._alone() as tx:
            tx.resize(n)
        return tx.version

    def add_column(self, name: str, data: Any, *, default: Any = None) -> int:
        """Add a column behind the others, without reading or writing any of them.

        Parameters
        ----------
        name : str
            Its name.
        data : array-like, scalar or pyarrow.compute.Expression
            A value a row, by position; or the same for all rows; or computed of other columns, by
            pyarrow's rules: cast an integer that meets a float, `pc.field("a").cast("double")`, or
            the result may be a float32.
        default : scalar, optional
            What appended rows have that come without this column; null by default.

        Raises
        ------
        SchemaError
            There is a column of this name; a type that cannot be stored; too few or many values.
        ConflictError
            Another commit changed columns or rows.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"net": [10.0, 20.0]}, "prices.blz")
        >>> with blz.open("prices.blz", mode="a") as t:
        ...     version = t.add_column("gross", pc.field("net") * 1.5)
        ...     print(t.head().to_pydict())
        {'net': [10.0, 20.0], 'gross': [15.0, 30.0]}
        """
        with self._alone() as tx:
            tx.add_column(name, data, default=default)
        return tx.version

    def drop_columns(self, names: Iterable[str]) -> int:
        """Drop columns; no data are touched, their files go with the last version that has them.

        Raises
        ------
        ColumnNotFoundError
            No column has one of these names.
        ConflictError
            Another commit changed the columns.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1], "b": [2], "c": [3]}, "columns.blz")
        >>> with blz.open("columns.blz", mode="a") as t:
        ...     t.drop_columns(["a"]), t.rename_columns({"c": "d"}), t.reorder_columns(["d"])
        ...     print(t.column_names)
        (2, 3, 4)
        ['d', 'b']
        """
        with self._alone() as tx:
            tx.drop_columns(names)
        return tx.version

    def rename_columns(self, names: Mapping[str, str]) -> int:
        """Give columns other names, `{old: new}`; no data are touched.

        Raises as `drop_columns` does, and SchemaError where two columns would have one name.
        """
        with self._alone() as tx:
            tx.rename_columns(names)
        return tx.version

    def reorder_columns(self, names: Iterable[str]) -> int:
        """Put these columns first, in this order; no data are touched. As `drop_columns`."""
        with self._alone() as tx:
            tx.reorder_columns(names)
        return tx.version

    def compact(self, sort_by: str | Sequence[str | tuple[str, str]] | None = None) -> int:
        """Write small row groups together, or all rows in another order, beside others' appends.

        Appends join small row groups at the end by themselves; this is for those that `delete`
        and a few large appends leave.

        Parameters
        ----------
        sort_by : str, or sequence of str or (str, "ascending" or "descending"), optional
            Columns to sort all rows by, nulls last, as in `to_blz`; a few of all columns at a time
            are in memory. By default those that the table was sorted by last; () for none.

        Raises
        ------
        ConflictError
            Another commit changed the rows that are written anew, or the columns.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [2, 3, 1]}, "sorted.blz")
        >>> with blz.open("sorted.blz", mode="a") as t:
        ...     version = t.compact(sort_by="n")
        ...     print(t["n"][:].to_pylist())
        [1, 2, 3]
        """
        with self._alone() as tx:
            tx.compact(sort_by)
        return tx.version

    def set_retention(self, *, versions: int | None = None, seconds: int | None = None) -> int:
        """Say how long versions are kept that were superseded: by default an hour, at most 10.

        Parameters
        ----------
        versions : int, optional
            The most versions that are there, the newest among them; as it is where not given.
        seconds : int, optional
            How long one stays after the next was committed; as it is where not given.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "kept.blz")
        >>> with blz.open("kept.blz", mode="a") as t:
        ...     t.set_retention(versions=3, seconds=24 * 3600)
        2
        """
        with self._alone() as tx:
            tx.set_retention(versions=versions, seconds=seconds)
        return tx.version

    def _set_attributes(self, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
        with self._alone() as tx:
            tx._set_attributes(changes, removed)

    def versions(self) -> list[VersionInfo]:
        """The versions that are still there, oldest first: when each was made, what by, its rows.

        Those that are damaged say so in `damage`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "history.blz")
        >>> with blz.open("history.blz", mode="a") as t:
        ...     t.append({"n": [2]}, commit_id="day 2")
        ...     [(one.number, one.operation, one.rows, one.commit_ids) for one in t.versions()]
        2
        [(1, 'create', 1, ()), (2, 'append', 2, ('day 2',))]
        """
        self._snapshot.check_open()
        return history.listed(self._snapshot.version.store)

    def restore(self, version: int) -> int:
        """Commit what an older version held, as the newest one; it relies on nothing.

        Commits since are undone, and with them the ids they had: their jobs may run again. A table
        whose newest version is damaged is opened by an older one to do so,
        `open(path, "a", version=...)`.

        Raises
        ------
        TableNotFoundError
            This version is not there any more.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2]}, "undo.blz")
        >>> with blz.open("undo.blz", mode="a") as t:
        ...     t.delete([("n", "==", 1)]), t.restore(1), t.nrows
        (2, 3, 2)
        """
        self._writing()
        self._check_no_transaction()
        store = self._snapshot.version.store
        old, pinned = pin(store, operator.index(version))
        with pinned:
            published = creation.restore(old, is_durable=self._options().is_durable)
        self._shows(*published)
        return self.version

    def vacuum(
        self,
        *,
        keep: int | None = None,
        older_than: float | None = None,
        wait: float = LOCK_SECONDS,
    ) -> Vacuumed:
        """Remove versions past keeping, and files that killed writers left.

        Versions that anyone holds open stay, and the newest. By default a version is kept for an
        hour, at most 10 are.

        Parameters
        ----------
        keep : int, optional
            How many versions to keep, with the newest.
        older_than : float, optional
            Seconds since a version was superseded, for which it is kept.
        wait : float, optional
            Seconds to wait until no writer is at work.

        Raises
        ------
        BusyError
            Writers were at work all the time.

        Examples
        --------
        >>> import blztable as blz
        >>> for n in range(3):
        ...     blz.to_blz({"n": [n]}, "swept.blz")
        >>> with blz.open("swept.blz", mode="a") as t:
        ...     t.vacuum(keep=1).versions
        (1, 2)
        """
        self._writing()
        self._check_no_transaction()
        store = self._snapshot.version.store
        return vacuum.vacuum(store, keep_versions=keep, keep_seconds=older_than, wait=wait)

    def close(self) -> None:
        """Let go of the version; reading afterwards is an error."""
        if self._columns is None:
            self._snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _writing(self) -> Snapshot:
        """The snapshot to be changed, by a handle that may."""
        self._snapshot.check_open()
        if self._columns is not None:
            raise ReadOnlyError(f"these are some columns of {self.path}; change the table itself")
        if not self._writable:
            raise ReadOnlyError(f"{self.path} was opened for reading; open it with mode='a'")
        if os.getpid() != self._pid:
            raise ReadOnlyError(f"{self.path} was opened before a fork; open it again to write")
        return self._snapshot

    def _check_no_transaction(self) -> None:
        """TransactionError while a transaction that the user began is open."""
        if any(one.is_open for one in list(self._transactions)):
            raise TransactionError(
                f"{self.path}: a transaction of this table is open, and a change through the table "
                "would not be part of it; make the change through the transaction, the name after "
                "`as`, or after its `with`"
            )

    def _options(self) -> WriteOptions:
        properties = dict(self._snapshot.version.head.properties) | dict(self._overrides)
        return WriteOptions.of(properties, self._durability)

    def _shows(self, version: Version, pinned: Lock) -> None:
        # The one before is let go, not closed: columns and threads may still read from it.
        before, self._snapshot = self._snapshot, Snapshot(version, pinned)
        if before.is_closed:
            # By the user, while a transaction was open.
            self._snapshot.close()
