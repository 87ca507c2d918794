"""Handle: a version of a table held open by whoever may change it, and the versions beside it.

Knows nothing of what a change is: which versions there are, how long each stays, and how one comes
back. The handle shows another version after a commit of its own.
"""

import operator
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self
from weakref import WeakSet

from blztable.engine.change import creation
from blztable.engine.version import history, vacuum
from blztable.engine.version.versions import LOCK_SECONDS, Version, pin
from blztable.engine.write.options import WriteOptions
from blztable.errors import ReadOnlyError, TransactionError
from blztable.report import Vacuumed, VersionInfo
from blztable.storage.store import Lock
from blztable.table.snapshot import Snapshot
from blztable.table.view import View


class _Transaction(Protocol):
    @property
    def is_open(self) -> bool:
        """True inside of its `with`."""


class Handle(View):
    """A version held open, to be closed by its owner."""

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
        self._transactions: WeakSet[_Transaction] = WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        # Transactions belong to this handle: a copy has none.
        return {name: value for name, value in vars(self).items() if name != "_transactions"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _transactions=WeakSet())

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
