"""The versions of an open table: list, compare, name, restore and remove them.

A part of CTable. Knows nothing of how rows are read.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec

import pyarrow as pa

from blztable.engine.change import creation
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.damage.repair import repair
from blztable.engine.change.erase import rows_left
from blztable.engine.change.keyed.differences import common_columns, differences
from blztable.engine.check import usage
from blztable.engine.read.losses import Loss
from blztable.engine.version import history, vacuum
from blztable.engine.version.versions import LOCK_SECONDS, pin
from blztable.engine.write.options import WriteOptions, check_choice
from blztable.errors import BlzError
from blztable.format import layout
from blztable.report import (
    Changed,
    DiskUsage,
    Erased,
    Repaired,
    Vacuumed,
    VersionDiff,
    VersionInfo,
    VersionLeft,
)
from blztable.storage.store import KeyNotFound, Store
from blztable.table.indices import checked_integer
from blztable.table.reader import TableReader
from blztable.table.snapshot import Snapshot
from blztable.table.tags import Tags
from blztable.table.transaction import Transaction
from blztable.table.version_meant import number_of

P = ParamSpec("P")

# What a repair does about damage.
REPAIRS = ("skip", "null")
# How often a change is made again after a conflict.
RETRIES = 5


class Changes(NamedTuple):
    """Result of `CTable.changes`: the rows added and the rows removed.

    Attributes
    ----------
    added, removed : pyarrow.Table
        Rows that only the newer version has, and rows that only the older one has.
    """

    added: pa.Table
    removed: pa.Table


class VersionedTable(TableReader):
    """What a table says and does about its versions."""

    @abstractmethod
    def _check_alone(self) -> None:
        """Raise an error if this handle cannot change the table now."""

    @abstractmethod
    def _options(self) -> WriteOptions:
        """Return the options of a write."""

    @abstractmethod
    def _again(
        self,
        retries: int,
        verb: Callable[Concatenate[Transaction, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Changed:
        """Commit one verb; after a conflict make it again, on the newest version."""

    @abstractmethod
    def _set_tags(self, changes: Mapping[str, int], removed: Sequence[str]) -> None:
        """Set and remove tags, in one commit."""

    def versions(self) -> list[VersionInfo]:
        """List the versions that still exist.

        Returns
        -------
        list of VersionInfo
            One entry per version, oldest first: number, time, operation, rows and so on. The entry
            of a damaged version says so in `damage`.

        Raises
        ------
        ClosedError
            The table was closed.
        StorageError
            The disk fails.

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
        that do not know them, because they would remove these versions.

        Returns
        -------
        Tags
            A mutable mapping of names to numbers of versions. Each change is one commit. A tag that
            exists moves to the version assigned. The name of a tag has 1 to 255 printable
            characters, not only digits.

        Raises
        ------
        TableNotFoundError
            On a change: the version does not exist any more.
        ConflictError
            On a change: another commit changed the same tag.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.tags["audited"] = t.version
        ...     done = t.delete("n = 1")
        ...     print(t.tags)
        {'audited': 1}
        >>> blz.read_table("t.blz", version="audited").num_rows
        2
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
        ClosedError
            The table was closed.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> t = blz.open("t.blz")
        >>> blz.to_blz({"n": [2]}, "t.blz", mode="a")
        >>> t.refresh(), t.version, t.nrows
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
        ClosedError
            The table was closed.

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
        return usage.disk_usage(self._snapshot.version.store)

    def diff(self, old: int | str, new: int | str | None = None) -> VersionDiff:
        """Compare two versions by their manifests; no column is read.

        Parameters
        ----------
        old : int or str
            Number or tag of the older version.
        new : int or str, optional
            Number or tag of the newer version; the version shown by default.

        Returns
        -------
        VersionDiff
            Columns and row groups that were added and removed, and other changes of the schema.

        Raises
        ------
        TableNotFoundError
            The table has no version with this number.
        CorruptError
            The manifest of a version is damaged.
        ClosedError
            The table was closed.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     version = t.append({"n": [2, 3]})
        ...     t.diff(1).rows_added
        2
        """
        self._snapshot.check_open()
        store = self._snapshot.version.store
        with ExitStack() as stack:
            pinned = [self._snapshot.version]
            for number in (old, new):
                if number is not None:
                    version, lock = pin(store, number_of(store, number))
                    stack.callback(lock.close)
                    pinned.append(version)
            return history.difference(pinned[1], pinned[-1 if new is not None else 0])

    def changes(self, since: int | str) -> Changes:
        """Return the rows that the version shown has and an older one lacks, and the other way.

        A row that was updated is removed with its old values and added with the new ones. Rows that
        were only moved or written again are no changes. Row groups that both versions share are not
        read; the rows of the others are compared in memory. Columns that only one of the versions
        has are left out. If the table was written anew with mode "w" in between, columns of the
        same name are compared.

        Parameters
        ----------
        since : int or str
            Number or tag of the older version.

        Returns
        -------
        Changes
            Two tables, `added` and `removed`, each in the order of its version.

        Raises
        ------
        TableNotFoundError
            The version does not exist any more.
        SchemaError
            A column has got another type, or no column is left.
        CorruptError
            A file is damaged or missing.
        ClosedError
            The table was closed.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     done = t.update({"n": 20}, where=[("n", "==", 2)])
        ...     done = t.append({"n": [4]})
        ...     found = t.changes(since=1)
        ...     print(found.added["n"].to_pylist(), found.removed["n"].to_pylist())
        [20, 4] [2]
        """
        self._snapshot.check_open()
        new = self._snapshot
        store = new.version.store
        old = Snapshot(*pin(store, number_of(store, since)))
        with closing(old):
            with new._guarded():
                added, removed = differences(old.version, new.version)
                before, after = common_columns(old.version, new.version)
            names = [new.version.schema.names[index] for index in after]
            gone = old.take(before, removed).rename_columns(names)
            return Changes(new.take(after, added), gone)

    def restore(self, version: int | str) -> int:
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
        int
            Number of the new version.

        Raises
        ------
        TableNotFoundError
            The version does not exist any more.
        ReadOnlyError
            The table was opened with mode "r".
        BusyError, StorageError, CommitUnknownError
            The commit failed, see `CTable`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2]}, "undo.blz")
        >>> with blz.open("undo.blz", mode="a") as t:
        ...     print(t.delete([("n", "==", 1)]))
        ...     print(t.restore(1), t.nrows)
        version 2: 1 row deleted
        3 2
        """
        self._check_alone()
        store = self._snapshot.version.store
        old, pinned = pin(store, number_of(store, version))
        with pinned:
            published = creation.restore(old, is_durable=self._options().is_durable)
        self._show_version(*published)
        return self.version

    def repair(
        self, on_corrupt: Literal["skip", "null"] = "skip", *, retries: int = RETRIES
    ) -> Repaired:
        """Commit a new version with all that can be read of this one.

        All bytes are checked, as by `verify`. The row groups with damage are written again, and
        lose only what cannot be read. The damaged version stays as long as older versions do: tag
        it first if the lost files may be found elsewhere.

        Parameters
        ----------
        on_corrupt : {"skip", "null"}
            Leave out the rows that have a damaged value, or make the damaged values null.
        retries : int, optional
            How often the repair is made again if other commits change rows meanwhile.

        Returns
        -------
        Repaired
            The number of the new version, and what is lost. The version is the one shown if there
            was nothing to repair.

        Raises
        ------
        CorruptError
            The manifest itself is damaged; `restore` an older version.
        SchemaError
            A value would become null in a column that allows no nulls.
        ConflictError
            Other commits changed rows each time.
        ReadOnlyError
            The table was opened with mode "r".
        BusyError, StorageError, CommitUnknownError
            The commit failed, see `CTable`.

        Examples
        --------
        >>> import blztable as blz
        >>> from pathlib import Path
        >>> blz.to_blz({"n": range(30)}, "t.blz", row_group_rows=10)
        >>> file = sorted(Path("t.blz/data").glob("*/*.bin"))[0]
        >>> size = file.write_bytes(b"x" * file.stat().st_size)
        >>> with blz.open("t.blz", mode="a") as t:
        ...     done = t.repair()
        ...     print(done.version, t.nrows, t.verify().is_intact)
        2 20 True
        """
        check_choice("on_corrupt", on_corrupt, REPAIRS)
        lost: list[Loss] = []

        def mend(change_set: ChangeSet) -> None:
            lost[:] = repair(change_set, on_corrupt)

        version = self._again(retries, Transaction._change, mend).version
        assert version is not None, "it is committed"
        losses = tuple((one.column, one.start, one.stop, one.reason) for one in lost)
        return Repaired(version, losses)

    def erase(self, where: Any, *, retries: int = RETRIES, wait: float = LOCK_SECONDS) -> Erased:
        """Remove rows for good: from the table, from its files, and with its older versions.

        Deletes the rows, writes again what has their values, and removes all other versions. A
        version that has a tag, or that someone has open, stays, and is in the result if it may have
        the rows.

        Parameters
        ----------
        where : str, pyarrow.compute.Expression, list of tuples or list of such lists
            Condition that a row must meet, as for `delete`.
        retries : int, optional
            How often the delete is made again after a conflict, as for `delete`.
        wait : float, optional
            Maximum time to wait until no writer is active, in seconds.

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
        ReadOnlyError
            The table was opened with mode "r".
        TransactionError
            A transaction of the table is open.
        StorageError, CommitUnknownError
            The commit failed, see `CTable`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"user": [1, 2, 3], "page": ["a", "b", "c"]}, "erased.blz")
        >>> with blz.open("erased.blz", mode="a") as t:
        ...     done = t.erase("user = 2")
        ...     print(done.rows, done.versions, done.left, t.nrows)
        1 (1,) () 2
        """
        done = self._again(retries, Transaction._erase, where)
        store = self._snapshot.version.store
        removed = vacuum.vacuum(store, keep=1, wait=wait).versions
        others = [one for one in history.list_versions(store) if one.number != self.version]
        left = [one for one in (_left(store, where, other) for other in others) if one]
        return Erased(done.rows_deleted, self.version, removed, tuple(left))

    def vacuum(
        self,
        *,
        keep: int | None = None,
        older_than: float | None = None,
        wait: float = LOCK_SECONDS,
    ) -> Vacuumed:
        """Remove versions that are no longer kept, and files that killed writers left.

        The newest version stays, and so does every version that someone holds open or that has a
        tag. By default the table's retention decides, see `set_retention`.

        Parameters
        ----------
        keep : int, optional
            Maximum number of versions to keep, the newest included.
        older_than : float, optional
            Time since a version was superseded, in seconds, after which it is removed.
        wait : float, optional
            Maximum time to wait until no writer is active, in seconds.

        Returns
        -------
        Vacuumed
            The versions removed; the number and bytes of the other files removed; and the versions
            that stay because someone holds them open or because they are damaged.

        Raises
        ------
        BusyError
            Writers were active all the time.
        ReadOnlyError
            The table was opened with mode "r".
        StorageError
            The disk fails.

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
        return vacuum.vacuum(store, keep=keep, older_than=older_than, wait=wait)

    def _tags(self) -> Mapping[str, int]:
        self._snapshot.check_open()
        return history.tags(self._snapshot.version.store)


def _left(store: Store, where: object, info: VersionInfo) -> VersionLeft | None:
    """Return a version that was not removed, and may have rows of `where`; None if it has none."""
    rows, pids = None, store.holders(layout.manifest(info.number))
    with suppress(BlzError, KeyNotFound):
        version, pinned = pin(store, info.number)
        with pinned:
            rows = rows_left(version, where)
    return None if rows == 0 else VersionLeft(info.number, rows, info.tags, tuple(pids))
