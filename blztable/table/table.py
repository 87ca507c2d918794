"""CTable: one version of a table, held open, the versions beside it, and verbs that change it.

A table shows one snapshot, which pins its version: none of its files is removed while the table is
open. After a commit of its own it shows the version it published. Knows nothing of files.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, SupportsIndex, overload
from weakref import WeakSet

import pyarrow as pa

from blztable.arrow.nested.paths import Names
from blztable.closing import Closing
from blztable.engine import change, check
from blztable.engine import version as engine_version
from blztable.engine.read.damage import DamagedRows
from blztable.engine.version import history
from blztable.engine.version.newest import check_current
from blztable.engine.version.versions import RETRIES, RETRY_SECONDS, Version, pin
from blztable.engine.write.options import check_choice, storage_of
from blztable.errors import BlzError, ConflictError, ReadOnlyError, TransactionError
from blztable.format import layout
from blztable.report import (
    Changed,
    ChangedRows,
    DiskUsage,
    Erased,
    Repaired,
    Vacuumed,
    VersionDiff,
    VersionInfo,
    VersionLeft,
)
from blztable.storage.store import KeyNotFound, Store
from blztable.table import changing
from blztable.table.column import Column
from blztable.table.names import checked_count, checked_integer
from blztable.table.parts import Hosts, TablePart, plan
from blztable.table.reader import ColumnNames, Filters, TableReader
from blztable.table.snapshot import Snapshot
from blztable.table.tags import Tags, number_of
from blztable.table.transaction import Transaction
from blztable.table.verbs import Verbs

if TYPE_CHECKING:
    from blztable.table.changing.target import ChangeTarget

P = ParamSpec("P")

# What a repair does about damage.
REPAIRS = ("skip", "null")


class CTable(Verbs, Closing):
    """One version of a table on disk, opened for reading or for changes.

    Made by `open` and `create`. A context manager: closing releases the version, so that it can be
    removed once newer versions have replaced it. Threads may share a table for reading.

    Each change is one commit. When the method returns, the change survives a loss of power; before
    that, no reader sees any of it. Changes that others committed meanwhile are kept. If a change
    relies on something that another commit changed, it is made again on the newest version, as
    often as `retries` of `open` says. After that it raises ConflictError and nothing is committed;
    open the table again and repeat the change. What each change relies on is in
    docs/how-to/several-producers.md. Each method that changes rows, columns or settings returns a
    `Changed`, which says what it did.

    A method names only the errors of its own. Each method raises:

    - ClosedError if the table was closed: open it again;
    - ColumnNotFoundError if a name, a condition or an expression is of no column of the table;
    - SchemaError if a condition compares a column with a value of a type that cannot be compared
      with it, or `dictionaries` names a column that is not text or binary;
    - ValueError if a number of rows is negative.

    Each method that reads rows raises:

    - CorruptError if a file is damaged or missing: `verify` lists all damage, and
      ``on_corrupt="skip"`` reads the rest; a stream raises it at the batch that needs the file;
    - LimitError if the result would not fit into this machine's memory: read it with `to_batches`.

    Each method that commits raises:

    - ReadOnlyError if the table was opened with mode "r": open it with mode "a";
    - TransactionError while a transaction of this table is open: use the transaction;
    - BusyError if other writers held the lock for 30 seconds: repeat the change;
    - StorageError if the disk fails or is full;
    - CommitUnknownError if the commit may not survive a loss of power: open the table again and
      look at its version.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"city": ["Rome", "Oslo"], "people": [2_748_000, 717_000]}, "cities.blz")
    >>> with blz.open("cities.blz") as t:
    ...     print(t.shape, t.columns, t.version, t.nbytes)
    ...     print(t.schema.types, t.storage, t.row_groups[0].stop)
    ...     print(t["people"][0], dict(t.attrs))
    (2, 2) ['city', 'people'] 1 32
    [DataType(string), DataType(int64)] Storage() 2
    2748000 {}
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        writable: bool,
        columns: Sequence[int] | None = None,
        durability: str = "full",
        retries: int = RETRIES,
    ) -> None:
        super().__init__(snapshot, columns)
        self._writable = writable
        self._pid = os.getpid()
        self._durability = durability
        self._retries = retries
        self._transactions: WeakSet[Transaction] = WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        # Transactions belong to this handle: a copy has none.
        return {name: value for name, value in vars(self).items() if name != "_transactions"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _transactions=WeakSet())

    def close(self) -> None:
        """Release the version; reading afterwards raises ClosedError.

        Closing twice is harmless. A table with some of the columns, `t[["a"]]`, stays open as long
        as `t`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz")
        >>> t = blz.open("t.blz")
        >>> t.close()
        >>> t.to_arrow()
        Traceback (most recent call last):
            ...
        blztable.errors.ClosedError: ...t.blz was closed; open the table again
        """
        if self._columns is None:
            self._snapshot.close()

    @overload
    def __getitem__(self, key: Names) -> Column: ...

    @overload
    def __getitem__(self, key: list[Any]) -> "CTable": ...

    @overload
    def __getitem__(self, key: slice) -> pa.Table: ...

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...

    def __getitem__(
        self, key: Names | list[Any] | slice | SupportsIndex
    ) -> "Column | TableReader | pa.Table | dict[str, Any]":
        """Return a column or a field, the table with some columns, rows of a slice, or one row.

        Parameters
        ----------
        key : str, tuple of str, list of these, slice or int
            Name of a column, names of columns, or row numbers as in a list. A field of a struct has
            the name "address.city" or ("address", "city").

        Returns
        -------
        Column, CTable, pyarrow.Table or dict
            The column or the field, unread; the table with these columns, unread and not writable,
            of a struct only the fields that are named; the rows; or one row, as Python values by
            column name.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of this name, or, for a str, more than one.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2, 3], "b": ["x", "y", "z"]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t["a"][1], t[["b"]].columns, t[1:].to_pydict(), t[-1]
        (2, ['b'], {'a': [2, 3], 'b': ['y', 'z']}, {'a': 3, 'b': 'z'})
        """
        if isinstance(key, list):
            snapshot, columns = self._reading(key)
            return type(self)(snapshot, writable=False, columns=columns)
        return super().__getitem__(key)

    def transaction(self, *, commit_id: str | None = None) -> Transaction:
        """Begin a transaction: several changes in one commit, or none of them.

        Parameters
        ----------
        commit_id : str, optional
            The caller's name for the commit. If one of the last 1,000 named commits had this name,
            nothing is written: a job may run twice.

        Returns
        -------
        Transaction
            A context manager with the methods that change a table. Reads through it see its
            changes, which nobody else sees before the `with` ends. An exception in the `with`
            discards all changes. Until the `with` ends, changes through the table itself raise
            TransactionError, because they would be commits of their own.

        Raises
        ------
        ConflictError
            At the end of the `with`: another commit changed something that the changes rely on.
            Nothing is committed; open the table again and repeat the transaction.
        BusyError
            At the end of the `with`: other writers held the lock for 30 seconds.
        CommitUnknownError
            At the end of the `with`: the commit may not survive a loss of power. Open the table
            again and look at its version.

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(attrs={"until": 1})
        >>> blz.to_blz({"day": [1], "sold": [7]}, "daily.blz", storage=storage)
        >>> with blz.open("daily.blz", mode="a") as t:
        ...     for run in range(2):
        ...         with t.transaction(commit_id="day 2") as tx:
        ...             done = tx.append({"day": [2], "sold": [9]})
        ...             tx.attrs["until"] = 2
        ...     print(len(t), t.attrs["until"], t.version)
        2 2 2
        """
        self._check_writable()
        transaction = self._new_transaction(commit_id)
        self._transactions.add(transaction)
        return transaction

    def plan(
        self,
        columns: ColumnNames | None = None,
        *,
        filters: Filters = None,
        part_bytes: int = 64_000_000,
        hosts: Hosts = None,
    ) -> list[TablePart]:
        """Cut the version into parts that other processes read.

        A part says which rows it has, and `TablePart.to_arrow` or `TablePart.to_pandas` reads them
        in any process that reaches the table. Only the manifest and the leaves are read. The parts
        keep nothing: on a disk, the version stays as long as the table is open. In a store, open
        the table with `hold`.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns that will be read; all by default. They decide how many rows make a
            part.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that the rows will have to meet, as in `read_blz`. Row groups in which no row
            meets it are in no part. Pass it to the part, too, which reads only the rows that do.
        part_bytes : int, optional
            Bytes that the columns of a part take in memory, about. Small row groups that follow one
            another make one part, and a larger one is cut between its pages.
        hosts : mapping of str to str or list of str, or callable, optional
            Where files lie: hosts by the beginnings of paths below the table, such as "data/col0";
            or a function that returns the hosts of such a path. They become `TablePart.hosts`.

        Returns
        -------
        list of TablePart
            Parts in the order of the rows, none of which is in two of them; an empty list if no row
            can meet the condition.

        Raises
        ------
        ValueError
            `part_bytes` is less than 1, or the table is in memory.
        FormatError
            The table is one of another program.

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(row_group_rows=20_000)
        >>> blz.to_blz({"a": range(100_000), "b": range(100_000)}, "t.blz", storage=storage)
        >>> with blz.open("t.blz") as t:
        ...     parts = t.plan(["a"], filters="a >= 50000", part_bytes=400_000)
        ...     [(part.start, part.stop) for part in parts]
        ...     sum(part.to_arrow(["a"], filters="a >= 50000").num_rows for part in parts)
        [(40000, 80000), (80000, 100000)]
        50000
        """
        part_bytes = checked_count(part_bytes, "part_bytes", least=1)
        snapshot, indices = self._reading(columns)
        return plan(snapshot, indices, filters, part_bytes, hosts)

    def versions(self) -> list[VersionInfo]:
        """List the versions that still exist.

        Returns
        -------
        list of VersionInfo
            One entry per version, oldest first: number, time, operation, rows, what the commit did
            to rows, and so on. The entry of a damaged version says so in `damage`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "history.blz")
        >>> with blz.open("history.blz", mode="a") as t:
        ...     done = t.append({"n": [2]}, commit_id="day 2")
        ...     [(one.number, one.operation, one.rows, one.commit_ids) for one in t.versions()]
        [(1, 'create', 1, ()), (2, 'append', 2, ('day 2',))]
        """
        self._snapshot.check_open()
        return history.list_versions(self._snapshot.version.store)

    @property
    def tags(self) -> Tags:
        """Names of versions, which are kept until their names are removed.

        The tags are those of the newest version. A table with tags cannot be opened by programs
        that do not know them, because they would remove these versions. A mutable mapping of names
        to numbers of versions. Each change is one commit. A tag that exists moves to the version
        assigned. The name of a tag has 1 to 255 printable characters, not only digits.

        Raises
        ------
        TableNotFoundError
            On a change: the version does not exist any more.
        ConflictError
            On a change: another commit changed the same tag.
        """
        return Tags(self._tags, self._set_tags)

    def refresh(self) -> bool:
        """Show the newest version from here on.

        What was read stays as it was, and so do columns and streams of the version shown before.

        Returns
        -------
        bool
            True if the table shows another version than before.

        Raises
        ------
        TableNotFoundError
            The table was removed.
        CorruptError
            The manifest of the newest version is damaged; the table shows the version as before.
        ValueError
            The table is one with a list of columns, `t[["a"]]`: refresh `t`, and select again.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> t = blz.open("t.blz")
        >>> blz.to_blz({"n": [2]}, "t.blz", mode="a")
        >>> t.refresh(), t.version, len(t)
        (True, 2, 2)
        >>> t.refresh()
        False
        """
        self._snapshot.check_open()
        if self._columns is not None:
            raise ValueError(
                f"{self.path}: a table with a list of columns shows one version; refresh the table "
                "that it was made from, and select the columns again"
            )
        before = self._snapshot.version.head
        version, pinned = pin(self._snapshot.version.store)
        if (version.head.version, version.head.commit) == (before.version, before.commit):
            pinned.close()
            return False
        self._show_version(version, pinned)
        return True

    def disk_usage(self) -> DiskUsage:
        """Return the bytes on disk: of the newest version, of older ones, and of the rest.

        Returns
        -------
        DiskUsage
            Bytes by what they are for.

        Raises
        ------
        CorruptError
            The newest manifest is damaged.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": range(100_000)}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     before = t.disk_usage()
        ...     done = t.delete([("n", "<", 10)])
        ...     t.disk_usage().older > before.older == 0
        True
        """
        self._snapshot.check_open()
        return check.usage.disk_usage(self._snapshot.version.store)

    def diff(self, old: int | str, new: int | str | None = None) -> VersionDiff:
        """Compare two versions by their manifests; `VersionDiff.rows` reads the rows that differ.

        Parameters
        ----------
        old : int or str
            Number or tag of the older version.
        new : int or str, optional
            Number or tag of the newer version; the version shown by default.

        Returns
        -------
        VersionDiff
            What the commits between the versions did to rows, the columns and row groups that were
            added and removed, and other changes of the schema.

        Raises
        ------
        TableNotFoundError
            The table has no version with this number.
        CorruptError
            The manifest of a version is damaged.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     done = t.append({"n": [2, 3]})
        ...     found = t.diff(1)
        ...     print(found.rows_appended, found.rows().added["n"].to_pylist())
        2 [2, 3]
        """
        self._snapshot.check_open()
        store = self._snapshot.version.store
        with ExitStack() as stack:
            pinned = [self._snapshot.version]
            for number in (old, new):
                if number is not None:
                    version, lock = pin(store, number_of(store, number))
                    stack.callback(lock.close)
                    check_current(version)
                    pinned.append(version)
            versions = pinned[1], pinned[-1 if new is not None else 0]
            numbers = [version.head.version for version in versions]
            difference = history.difference(*versions)
        return replace(difference, _read=partial(_rows_between, store, *numbers))

    def restore(self, version: int | str) -> Changed:
        """Commit the contents of an older version as the newest one.

        All commits after that version are undone, and their `commit_id`s forgotten: their jobs may
        run again. Tags stay. `restore` never conflicts. If the newest version is damaged, open the
        table at an older one, `open(path, "a", version=...)`, and restore that.

        Parameters
        ----------
        version : int or str
            Number or tag of the version to restore; `versions` lists them.

        Returns
        -------
        Changed
            The number of the new version. Rows are not counted.

        Raises
        ------
        TableNotFoundError
            The version does not exist any more.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2]}, "undo.blz")
        >>> with blz.open("undo.blz", mode="a") as t:
        ...     print(t.delete([("n", "==", 1)]))
        ...     print(t.restore(1), len(t), sep="; ")
        version 2: 1 row deleted
        version 3: no rows changed; 2
        """
        self._check_alone()
        store = self._snapshot.version.store
        old, pinned = pin(store, number_of(store, version))
        with pinned:
            check_current(old)
            published = change.creation.restore(old, is_durable=self._durability == "full")
        self._show_version(*published)
        return Changed(version=self.version)

    def repair(self, on_corrupt: Literal["skip", "null"] = "skip") -> Repaired:
        """Commit a new version with all that can be read of this one.

        All bytes are checked, as by `verify`. The row groups with damage are written again, and
        lose only what cannot be read. The damaged version stays as long as older versions do: tag
        it first if the lost files may be found elsewhere. A leaf that is missing or damaged is made
        again from the data files, and written to its place.

        Parameters
        ----------
        on_corrupt : {"skip", "null"}
            Leave out the rows that have a damaged value, or make the damaged values null.

        Returns
        -------
        Repaired
            The number of the new version, and what is lost. The version is the one shown if there
            was nothing to repair.

        Raises
        ------
        CorruptError
            The manifest itself is damaged; `restore` an older version. Or a leaf is lost, and
            cannot be made again; the error says which data files have rows of which column.
        SchemaError
            A value would become null in a column that allows no nulls.
        ConflictError
            Other commits changed rows each time.

        Examples
        --------
        >>> import blztable as blz
        >>> from pathlib import Path
        >>> storage = blz.Storage(row_group_rows=10, layout="directory")
        >>> blz.to_blz({"n": range(30)}, "t.blz", storage=storage)
        >>> file = sorted(Path("t.blz/data").glob("*/*.bin"))[0]
        >>> size = file.write_bytes(b"x" * file.stat().st_size)
        >>> with blz.open("t.blz", mode="a") as t:
        ...     done = t.repair()
        ...     print(done.version, len(t), t.verify().is_intact)
        2 20 True
        """
        check_choice("on_corrupt", on_corrupt, REPAIRS)
        lost: list[DamagedRows] = []
        rebuilt: list[str] = []
        version = self._make(changing.rows.repair, on_corrupt, lost, rebuilt).version
        assert version is not None, "it is committed"
        rows_lost = tuple((rows.column, rows.start, rows.stop, rows.reason) for rows in lost)
        return Repaired(version, rows_lost, tuple(rebuilt))

    def erase(self, where: Any, *, wait: float | None = None) -> Erased:
        """Remove rows for good: from the table, from its files, and with its older versions.

        Deletes the rows, writes again what has their values, and removes all other versions. A
        category that only erased rows had, or rows of older versions, is dropped from its column,
        also from an ordered one, unless it is the default value there. A version that has a tag, or
        that someone has open, stays, and is in the result if it may have the rows.

        Parameters
        ----------
        where : str, pyarrow.compute.Expression, list of tuples or list of such lists
            Condition that a row must meet, as for `delete`.
        wait : float, optional
            Maximum time to wait until no writer is active, in seconds. By default
            `Tuning.lock_seconds`.

        Returns
        -------
        Erased
            The rows, the versions removed, and the versions left that may have the rows.

        Raises
        ------
        ColumnNotFoundError, SchemaError, ConflictError
            As for `delete`; nothing was changed.
        BusyError
            Writers were active all the time. The rows are deleted, and the older versions still
            have them; call it again.
        StorageError, CommitUnknownError
            The commit failed, see `CTable`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"user": [1, 2, 3], "page": ["a", "b", "c"]}, "erased.blz")
        >>> with blz.open("erased.blz", mode="a") as t:
        ...     done = t.erase("user = 2")
        ...     print(done.rows, done.versions, done.left, len(t))
        1 (1,) () 2
        """
        done = self._make(changing.rows.erase, where)
        newest = self._snapshot.version
        store = newest.store
        vacuumed = engine_version.vacuum.vacuum(store, keep=1, wait=wait)
        versions = history.list_versions(store)
        others = [version for version in versions if version.number != self.version]
        left = [_left(newest, where, other, vacuumed.damaged) for other in others]
        gone = done.rows_deleted, self.version, vacuumed.versions
        return Erased(*gone, tuple(version for version in left if version))

    def vacuum(
        self,
        *,
        keep: int | None = None,
        older_than: float | None = None,
        wait: float | None = None,
    ) -> Vacuumed:
        """Remove versions that are no longer kept, and files that killed writers left.

        The newest version stays, and so does every version that someone holds open or that has a
        tag. By default the table's retention decides, see `configure`.

        Parameters
        ----------
        keep : int, optional
            Maximum number of versions to keep, the newest included.
        older_than : float, optional
            Time since a version was superseded, in seconds, after which it is removed.
        wait : float, optional
            Maximum time to wait until no writer is active, in seconds. By default
            `Tuning.lock_seconds`.

        Returns
        -------
        Vacuumed
            The versions removed; the number and bytes of the other files removed; and the versions
            that stay because someone holds them open or because they are damaged.

        Raises
        ------
        BusyError
            Writers were active all the time.

        Examples
        --------
        >>> import blztable as blz
        >>> for n in range(3):
        ...     blz.to_blz({"n": [n]}, "swept.blz", mode="a")
        >>> with blz.open("swept.blz", mode="a") as t:
        ...     t.vacuum(keep=1).versions
        (1, 2)
        """
        self._check_alone()
        store = self._snapshot.version.store
        keep = None if keep is None else checked_integer(keep, "keep")
        return engine_version.vacuum.vacuum(store, keep=keep, older_than=older_than, wait=wait)

    def _make_named(
        self,
        commit_id: str | None,
        body: Callable[Concatenate["ChangeTarget", P], None],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Changed:
        """Commit a change; after a conflict make it again, on the newest version."""
        self._check_alone()
        left, end = self._retries, monotonic() + RETRY_SECONDS
        before = snapshot = self._snapshot
        store, uuid = before.version.store, before.version.head.uuid
        with ExitStack() as pins:
            try:
                while True:
                    tx = self._new_transaction(commit_id, snapshot)
                    try:
                        with tx, tx._changing() as target:
                            if target is not None:
                                body(target, *args, **kwargs)
                        break
                    except ConflictError:
                        if not left or tx._change_set.only_once or monotonic() > end:
                            raise
                        version, pinned = pin(store)
                        pins.enter_context(pinned)
                        # A table that replaced this one at the same path must not be changed.
                        if version.head.uuid != uuid:
                            raise
                        left, snapshot = left - 1, Snapshot(version, None)
                if self._snapshot is before and snapshot is not before and not tx.is_repeated:
                    # The newer version had nothing to change.
                    self._show_version(*pin(store, tx.version))
            finally:
                # An exception that is kept keeps this frame, which must not pin a version.
                del before, snapshot
        return tx.changed

    def _tags(self) -> Mapping[str, int]:
        self._snapshot.check_open()
        return history.tags(self._snapshot.version.store)

    def _set_tags(self, changes: Mapping[str, int], removed: Sequence[str]) -> None:
        self._check_alone()
        # Those of the newest version, whichever one the table shows.
        newest, pinned = pin(self._snapshot.version.store)
        with pinned:
            if newest.head.uuid != self._snapshot.version.head.uuid:
                raise ConflictError(
                    f"{self.path}: the table was dropped or replaced meanwhile; open it again"
                )
            snapshot = Snapshot(newest, None)
            with self._new_transaction(None, snapshot) as tx:
                tx._make(changing.settings.set_tags, changes, removed)

    def _new_transaction(
        self, commit_id: str | None, snapshot: Snapshot | None = None
    ) -> Transaction:
        """Return a transaction on the version shown, or on another one."""
        storage = storage_of((snapshot or self._snapshot).version.head.properties)
        is_durable = self._durability == "full"
        return Transaction(self, storage, commit_id, snapshot, is_durable=is_durable)

    def _check_writable(self) -> None:
        """Raise ReadOnlyError if this handle cannot change the table."""
        self._snapshot.check_open()
        if self._columns is not None:
            raise ReadOnlyError(
                f"{self.path}: a table with a list of columns cannot be changed; change the table "
                "that it was made from"
            )
        if not self._writable:
            raise ReadOnlyError(f"{self.path} was opened for reading; open it with mode='a'")
        if os.getpid() != self._pid:
            raise ReadOnlyError(f"{self.path} was opened before a fork; open it again to write")

    def _check_alone(self) -> None:
        """Raise TransactionError while a transaction that the user began is open."""
        self._check_writable()
        if any(transaction.is_open for transaction in list(self._transactions)):
            raise TransactionError(
                f"{self.path}: a transaction of this table is open, and a change through the table "
                "would not be part of it; make the change through the transaction, the name after "
                "`as`, or after its `with`"
            )


def _rows_between(store: Store, old: int, new: int) -> ChangedRows:
    """Read the rows that only one of two versions has."""
    with (
        closing(Snapshot(*pin(store, old))) as before,
        closing(Snapshot(*pin(store, new))) as after,
    ):
        with after._guarded():
            added, removed = change.keyed.differences(before.version, after.version)
            positions, new_positions = change.keyed.common_columns(before.version, after.version)
        names = [after.version.schema.names[index] for index in new_positions]
        gone = before.take(positions, removed).rename_columns(names)
        return ChangedRows(after.take(new_positions, added), gone)


def _left(
    newest: Version, where: object, info: VersionInfo, damaged: Sequence[int]
) -> VersionLeft | None:
    """Return a version that was not removed, and may have rows of `where`; None if it has none."""
    store = newest.store
    rows, pids = None, store.holders(layout.manifest(info.number))
    with suppress(BlzError, KeyNotFound):
        version, pinned = pin(store, info.number)
        with pinned:
            rows = change.erase.rows_left(version, where, newest)
    if rows == 0:
        return None
    why = _why_left(newest, info, pids, damaged)
    return VersionLeft(info.number, rows, info.tags, tuple(pids), why)


def _why_left(
    newest: Version, info: VersionInfo, pids: Sequence[int], damaged: Sequence[int]
) -> str:
    """Return what keeps a version that was not removed, and what to do."""
    if info.tags:
        return f"it has the tags {', '.join(map(repr, info.tags))}; remove them"
    if info.number > newest.head.version:
        return "another commit made it after the rows were deleted; stop what writes such rows"
    if damaged and info.number not in damaged:
        numbers = ", ".join(map(str, damaged))
        return (
            f"no version is removed while a damaged one is kept ({numbers}), whose files are "
            "unknown; remove its tags, or close it"
        )
    if os.getpid() in pids:
        return "it is open in this process; close each table, reader and iterator of it"
    if pids:
        return f"it is open in a process ({', '.join(map(str, pids))}); close it there"
    return "it was open, in a process that ended, is unknown or runs elsewhere; close it there"
