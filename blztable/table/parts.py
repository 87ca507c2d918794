"""TablePart: some rows of a version of a table, which any process can read.

A plan is a list of parts. A part is a value: it opens nothing until it is read, and says in JSON
where its table is, which version it is of, and which rows it has. It has no credentials. The table
that a process opened for a part stays open for the next ones. Knows nothing of how rows are cut.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import no_default

from blztable.engine import query
from blztable.engine.read.damage import OnCorrupt
from blztable.engine.version import versions
from blztable.engine.version.projection import Projection
from blztable.errors import ConflictError, FormatError, TableNotFoundError
from blztable.storage.resolve import Options, opened_at
from blztable.table.names import Coded
from blztable.table.reader import ColumnNames, Filters, TableReader
from blztable.table.snapshot import Snapshot

# Tables that a process keeps open for parts, those that were used last.
_KEPT_OPEN = 8

# Hosts by the beginnings of keys, or a function of a key.
Hosts: TypeAlias = (
    Mapping[str, str | Sequence[str]] | Callable[[str], str | Iterable[str] | None] | None
)


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some rows of a version of a table, for a worker to read; made by `plan` and `CTable.plan`.

    A value that pickles, and that `to_json` makes JSON of. It has neither rows nor credentials, and
    holds nothing open. The first part of a version that a process reads opens the table; it stays
    open for the parts that follow, the last 8 versions at a time.

    Attributes
    ----------
    path : str
        Where the table is: an absolute path, or a URL.
    version : int
        Number of the version.
    commit : str
        Id of the commit that made the version.
    start, stop : int
        The first row, and the row after the last one.
    nbytes : int
        Bytes that these rows take in memory, in the columns that were planned; an estimate.
    hosts : tuple of str
        Where the files of these rows are said to lie, the host with most of their bytes first.

    Raises
    ------
    ConflictError
        On a read: another table has replaced the one that was planned.
    TableNotFoundError
        On a read: the table or the version was removed.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": range(100_000)}, "t.blz")
    >>> parts = blz.plan("t.blz", part_bytes=400_000)
    >>> [(part.start, part.stop, part.nbytes) for part in parts]
    [(0, 65536, 524288), (65536, 100000, 275712)]
    >>> same = blz.TablePart.from_json(parts[1].to_json())
    >>> same == parts[1], same.to_arrow(filters="a > 99990")["a"].to_pylist()[:2]
    (True, [99991, 99992])
    """

    path: str
    version: int
    commit: str
    start: int
    stop: int
    nbytes: int = 0
    hosts: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Convert the part to values that `json.dumps` accepts.

        Returns
        -------
        dict
            The attributes.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2]}, "t.blz")
        >>> (part,) = blz.plan("t.blz")
        >>> [*part.to_json()]
        ['path', 'version', 'commit', 'start', 'stop', 'nbytes', 'hosts']
        """
        return {**asdict(self), "hosts": list(self.hosts)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the part that `to_json` made the value of.

        Parameters
        ----------
        value : mapping
            What `to_json` returned.

        Returns
        -------
        TablePart
            An equal part.

        Raises
        ------
        FormatError
            The value is of no part.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2]}, "t.blz")
        >>> (part,) = blz.plan("t.blz")
        >>> blz.TablePart.from_json(part.to_json()) == part
        True
        """
        kinds = {"path": str, "version": int, "commit": str, "start": int, "stop": int}
        kinds |= {"nbytes": int, "hosts": list}
        known = isinstance(value, Mapping) and value.keys() == kinds.keys()
        if known and all(type(value[name]) is kind for name, kind in kinds.items()):
            hosts = tuple(value["hosts"])
            is_run = 0 <= value["start"] <= value["stop"]
            if is_run and value["version"] > 0 and all(isinstance(one, str) for one in hosts):
                return cls(**{**value, "hosts": hosts})
        raise FormatError(f"{value!r:.200} is no part of a table; pass what TablePart.to_json made")

    def to_arrow(
        self,
        columns: ColumnNames | None = None,
        *,
        filters: Filters = None,
        dictionaries: Coded = None,
        on_corrupt: OnCorrupt = "raise",
        storage_options: Options = None,
    ) -> pa.Table:
        """Read the rows into an Arrow table.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns to read, as in `CTable.to_arrow`; all by default, whatever was
            planned.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet. Pass the one that was planned: a part also has rows that
            do not meet it.
        dictionaries : sequence of str or "auto", optional
            Names of columns to read as dictionary arrays, as in `CTable.to_arrow`.
        on_corrupt : {"raise", "skip", "null"}
            What is done about damaged pages, as in `CTable.to_arrow`.
        storage_options : mapping, optional
            Settings of the store of a URL, as in `open`; by default those of the environment of
            this process.

        Returns
        -------
        pyarrow.Table
            The rows that meet the condition, in stored order.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2], "b": ["x", "y"]}, "t.blz")
        >>> (part,) = blz.plan("t.blz", columns=["b"])
        >>> part.to_arrow(["b"], filters="a = 2").to_pydict()
        {'b': ['y']}
        """
        return self._table(storage_options).to_arrow(
            columns,
            filters=filters,
            rows=(self.start, self.stop),
            dictionaries=dictionaries,
            on_corrupt=on_corrupt,
        )

    def to_pandas(
        self,
        columns: ColumnNames | None = None,
        *,
        filters: Filters = None,
        dictionaries: Coded = None,
        dtype_backend: Any = no_default,
        on_corrupt: OnCorrupt = "raise",
        storage_options: Options = None,
    ) -> pd.DataFrame:
        """Read the rows into a DataFrame, with their labels of the index.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns to read, as in `to_arrow`. The index is restored too.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as in `to_arrow`.
        dictionaries : sequence of str or "auto", optional
            Names of columns to read as categoricals, as in `CTable.to_pandas`.
        dtype_backend : {"numpy_nullable", "pyarrow"}, optional
            Kind of dtypes, as in pandas.
        on_corrupt : {"raise", "skip", "null"}
            What is done about damaged pages, as in `CTable.to_pandas`.
        storage_options : mapping, optional
            Settings of the store of a URL, as in `to_arrow`.

        Returns
        -------
        pandas.DataFrame
            The rows that meet the condition, in stored order.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(100_000)}, "t.blz")
        >>> last = blz.plan("t.blz", part_bytes=100_000)[-1]
        >>> last.to_pandas()[-1:]
                   a
        99999  99999
        """
        return self._table(storage_options).to_pandas(
            columns,
            filters=filters,
            rows=(self.start, self.stop),
            dictionaries=dictionaries,
            dtype_backend=dtype_backend,
            on_corrupt=on_corrupt,
        )

    def _table(self, options: Options) -> TableReader:
        """Return the version, which stays open; an error says what became of it."""
        table = _opened(self.path, self.version, self.commit, _Settings(options), os.getpid())
        if self.stop > len(table):
            raise FormatError(
                f"{self.path}: a part of rows {self.start:,} to {self.stop:,} of version "
                f"{self.version}, which has {len(table):,} rows; plan again"
            )
        return table


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of a store, to look up what was opened with equal ones."""

    options: Options

    def __hash__(self) -> int:
        """Return the same for all: a mapping has no hash."""
        return 0


@lru_cache(maxsize=_KEPT_OPEN)
def _opened(path: str, version: int, commit: str, settings: _Settings, process: int) -> TableReader:
    """Open a version of a table; a process made by fork opens it for itself."""
    with opened_at(path, options=settings.options) as store:
        try:
            found, pinned = versions.pin(store, version)
        except TableNotFoundError as error:
            raise TableNotFoundError(
                f"{error}; the part is of version {version}: plan again, and keep the version by "
                "a tag or an open table while its parts are read"
            ) from None
        if found.head.commit != commit:
            pinned.close()
            raise ConflictError(
                f"{path}: the table was removed or replaced after it was planned; plan again"
            )
    return TableReader(Snapshot(found, pinned))


def plan(
    snapshot: Snapshot,
    columns: Sequence[int],
    filters: Filters,
    part_bytes: int,
    hosts: Hosts,
) -> list[TablePart]:
    """Return parts that have all rows that may meet a condition, of about so many bytes each."""
    store, head = snapshot.version.store, snapshot.version.head
    if store.path is None:
        raise ValueError(
            f"{store.name}: no other process can open the table; copy it with blztable.copy() to a "
            "path or a URL, and plan there"
        )
    if not head.commit:
        raise FormatError(
            f"{store.name} has no versions that a part could name; make a table of it with "
            "blztable.copy()"
        )
    runs = query.cuts.runs(snapshot.projection, columns, snapshot.scan(filters), part_bytes)
    parts = [TablePart(store.path, head.version, head.commit, *run) for run in runs]
    if hosts is None:
        return parts
    where = _FileHosts(snapshot.projection, columns, hosts)
    return [TablePart(**{**asdict(part), "hosts": where.of(part)}) for part in parts]


class _FileHosts:
    """The hosts of the files of some columns."""

    def __init__(self, projection: Projection, columns: Sequence[int], hosts: Hosts) -> None:
        self._parts = [one for index in columns for one in projection.parts(index)]
        self._firsts = np.cumsum([0, *projection.version.row_groups])
        self._hosts_of = lru_cache(maxsize=None)(_by_key(hosts))

    def of(self, part: TablePart) -> tuple[str, ...]:
        """Return the hosts of the files of a part, that with most bytes first."""
        nbytes: dict[str, int] = {}
        first = int(self._firsts.searchsorted(part.start, "right")) - 1
        last = int(self._firsts.searchsorted(part.stop, "left"))
        for group in range(first, last):
            for parts in self._parts:
                if parts.files[group]:
                    more = int(parts.records.parts["cbytes"][group])
                    for host in self._hosts_of(parts.key(group)):
                        nbytes[host] = nbytes.get(host, 0) + more
        return tuple(sorted(nbytes, key=lambda host: -nbytes[host]))


def _by_key(hosts: Hosts) -> Callable[[str], tuple[str, ...]]:
    """Return a function that gives the hosts of a key; of several prefixes the longest counts."""

    def prefixed(key: str) -> str | Iterable[str] | None:
        assert isinstance(hosts, Mapping)
        names = key.split("/")
        beginnings = ("/".join(names[:count]) for count in range(len(names), -1, -1))
        return next((hosts[one] for one in beginnings if one in hosts), None)

    def of(key: str) -> tuple[str, ...]:
        found = hosts(key) if callable(hosts) else prefixed(key)
        return (found,) if isinstance(found, str) else tuple(found or ())

    return of
