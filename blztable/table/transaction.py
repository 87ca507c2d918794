"""Transaction: several changes to a table in one commit, or none of them.

Each verb is added to the changes before it. Knows nothing of files and commits.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self

from blztable.engine import change
from blztable.engine.version.commit import AlreadyCommitted, Commit, CommitPlan
from blztable.engine.write.options import Storage, check_id
from blztable.errors import ReadOnlyError, TransactionError
from blztable.interrupts import DeferInterrupt
from blztable.report import Changed
from blztable.table import changing
from blztable.table.reader import TableReader
from blztable.table.snapshot import Scope, Snapshot
from blztable.table.verbs import Verbs

if TYPE_CHECKING:
    from blztable.table.changing.appender import Appender
    from blztable.table.changing.target import ChangeTarget

# Operations that may leave small row groups at the end.
GROWING = {"append", "resize", "upsert", "replace_where"}

P = ParamSpec("P")


class Transaction(Verbs):
    """Several changes to a table in one commit, and the table as they have made it so far.

    Made by `CTable.transaction`. The end of the `with` commits; an exception in it discards all
    changes. Each method that changes a table returns what it did, as a `Changed` without the number
    of a version. If it fails, the transaction is as it was before. Reads see the changes made so
    far; nobody else sees them before the commit. If another commit changed something that a change
    relies on, the end of the `with` raises ConflictError: a transaction is not made again by
    itself. A method names only the errors of its own; reads raise those that `CTable` names. Each
    method that changes a table raises:

    - TransactionError outside of the `with`;
    - ReadOnlyError in another process than the one that began the transaction.

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
    ...         added = tx.append({"day": [2], "sold": [8]})
    ...         print(removed, added, len(tx), tx.version, sep="; ")
    ...     print(t["sold"][:].to_pylist(), t.version)
    1 row deleted; 1 row appended; 2; 1
    [7, 8] 2
    """

    def __init__(
        self,
        table: TableReader,
        storage: Storage,
        commit_id: str | None,
        snapshot: Snapshot | None = None,
        *,
        is_durable: bool = True,
    ) -> None:
        super().__init__(snapshot or table._snapshot)
        check_id(commit_id)
        # Shows the version that the commit makes.
        self._table = table
        self._base: Snapshot | None = self._snapshot
        version = self._snapshot.version
        plan = CommitPlan(version.store, is_durable, base=version, commit_id=commit_id)
        self._change_set = change.change_set.ChangeSet(Commit(plan), storage)
        # Imported now: after the commit, an import that fails would seem to be its failure.
        self._merge_after = change.compact.merge_after
        self._pid = os.getpid()
        self._held = ExitStack()
        self._scope = Scope()
        self._committed: int | None = None
        self.is_repeated = False

    @property
    def version(self) -> int:
        """Number of the version committed; before the commit, of the version it started from.

        If the `commit_id` was known, the version of that commit.
        """
        return super().version if self._committed is None else self._committed

    @property
    def changed(self) -> Changed:
        """Numbers of rows that the changes made so far appended, updated and deleted.

        Its version is `version`.
        """
        done = Changed() if self.is_repeated else self._change_set.done
        return replace(done, version=self.version)

    @property
    def is_open(self) -> bool:
        """True inside of the `with`, where changes can be made."""
        return self._scope.is_open

    @contextmanager
    def appender(self, *, evolve: bool = False) -> Iterator["Appender"]:
        """Append column by column, in any order and in pieces of any size.

        Parameters
        ----------
        evolve : bool, optional
            If True, columns that the table lacks are added, and a column becomes wider, as in
            `append`.

        Yields
        ------
        Appender
            The columns by name, each with a method `append`. The end of the `with` adds the
            rows to the transaction; an exception in it discards them.

        Raises
        ------
        SchemaError
            At the end of the `with`: the columns have different numbers of new rows.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"x": [1], "y": ["a"]}, "fed.blz")
        >>> with blz.open("fed.blz", mode="a") as t:
        ...     with t.transaction() as tx, tx.appender() as a:
        ...         a["y"].append(["b", "c"])
        ...         a["x"].append([2])
        ...         a["x"].append([3])
        ...     print(t["x"][:].to_pylist(), t["y"][:].to_pylist())
        [1, 2, 3] ['a', 'b', 'c']
        """
        with self._changing() as target, changing.appender.Appender(target, evolve) as begun:
            yield begun

    def append_fragments(
        self, job: str, fragments: Iterable[str], *, rows: int | None = None
    ) -> Changed:
        """Append the rows that other processes have written for a job.

        Nothing is written: the files of the fragments become those of the table. Of several
        fragments of a task, the first one counts. Rows are in the order of the tasks.

        Parameters
        ----------
        job : str
            What `begin` returned, with the mode "a", for this table.
        fragments : iterable of str
            What `write_fragment` returned.
        rows : int, optional
            Number of rows that all fragments must have together; not compared by default.

        Returns
        -------
        Changed
            The number of rows appended.

        Raises
        ------
        ConflictError
            The job is of another table; the columns of the table were changed since the job began;
            the fragments are of another job, are in the table already, or have not `rows` rows.
        CorruptError
            A file of a fragment is missing, or a text was changed.

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(layout="directory")
        >>> blz.to_blz({"day": [4, 5], "sold": [1, 1]}, "sales.blz", storage=storage)
        >>> job = blz.begin("sales.blz")
        >>> done = [blz.write_fragment(job, {"day": [5], "sold": [n]}, task=n) for n in (7, 8)]
        >>> with blz.open("sales.blz", mode="a") as t:
        ...     with t.transaction() as tx:
        ...         print(tx.delete("day = 5"), tx.append_fragments(job, done), sep="; ")
        ...     print(t["sold"][:].to_pylist(), t.version)
        1 row deleted; 2 rows appended
        [1, 7, 8] 2
        """
        return self._make_named(None, _append_fragments, job, fragments, rows)

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
        if GROWING.intersection(self._change_set.operations):
            merged = self._merge_after(
                published[0],
                self._change_set.storage_with_given,
                is_durable=self._change_set.commit.plan.is_durable,
            )
            if merged:
                self._table._show_version(*merged)

    def _end(self, error: BaseException) -> None:
        """Discard the changes and release everything; harmless if called twice."""
        with DeferInterrupt():
            self._scope.is_open = False
            self._base = None
            self._held.__exit__(type(error), error, error.__traceback__)

    @contextmanager
    def _changing(self, commit_id: str | None = None) -> Iterator["ChangeTarget | None"]:
        if commit_id is not None:
            raise ValueError(
                f"{self.path}: commit_id={commit_id!r:.100} names the whole commit; pass it to "
                "transaction(), not to a change in it"
            )
        self._check_process()
        if not self.is_open:
            raise TransactionError(
                f"{self.path}: a transaction takes changes only inside of its `with`"
            )
        if self.is_repeated:
            yield None
            return
        change_set = self._change_set
        with change_set.attempt():
            yield changing.target.ChangeTarget(change_set, change_set.staged, self._snapshot)
        self._show()

    def _make_named(
        self,
        commit_id: str | None,
        body: Callable[Concatenate["ChangeTarget", P], None],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Changed:
        before = self._change_set.done
        with self._changing(commit_id) as target:
            if target is not None:
                body(target, *args, **kwargs)
        return self._change_set.done_since(before)

    def _show(self) -> None:
        """Let reads see the changes made so far."""
        scope = self._scope
        # The change set pins the version below.
        self._snapshot = Snapshot(self._change_set.staged, None, lambda: scope.is_open)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ReadOnlyError(
                f"{self.path}: the transaction began in another process; open the table again in "
                "this one"
            )


def _append_fragments(
    target: "ChangeTarget", job: str, fragments: Iterable[str], rows: int | None
) -> None:
    store = target.staged.store
    found = change.fragments.Job.decode(job, store)
    change.fragments.append(target.change_set, found, fragments, rows)
