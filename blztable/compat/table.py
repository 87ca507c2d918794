"""OldTable: a table of another program, opened for reading; and what a writer is told about one.

Knows nothing of the files of these programs.
"""

from typing import Any

import pyarrow as pa

from blztable.compat import bcolz, bloscpack
from blztable.compat.arrays import OldFiles, row_bytes
from blztable.compat.foreign import foreign_kind
from blztable.compat.numpy_types import scalar_of
from blztable.compat.snapshot import OldSnapshot, old_snapshot
from blztable.errors import (
    BlzError,
    FormatError,
    ReadOnlyError,
    TableNotFoundError,
)
from blztable.format.metalayers import Layers, check
from blztable.report import VersionInfo
from blztable.storage.store import Store
from blztable.table.snapshot import Snapshot
from blztable.table.table import CTable

# Most bytes of a default value of a table.
DEFAULT_BYTES = 64 << 10


class OldTable(CTable):
    """A directory of BLZ or bcolz, or a file of Bloscpack, with all methods that read.

    Made by `open`. It has no versions, statistics or checksums of its own. The methods that change
    a table raise ReadOnlyError; `copy` makes a table of it that can be changed.
    """

    def __init__(self, snapshot: Snapshot, **options: Any) -> None:
        super().__init__(snapshot, **{"writable": False, **options})

    @property
    def _files(self) -> OldFiles:
        assert isinstance(self._snapshot, OldSnapshot)
        return self._snapshot.version.files

    @property
    def kind(self) -> str:
        """What stored the table, such as "bcolz table"."""
        return self._files.kind

    @property
    def defaults(self) -> dict[str, pa.Scalar]:
        """The values of rows that were added without one, by name of the column."""
        found = {}
        for one in self._files.columns:
            values = one.values
            if not isinstance(values, BlzError) and row_bytes(values) <= DEFAULT_BYTES:
                value = scalar_of(one.default, values.dtype, values.shape[1:])
                if value is not None:
                    found[one.name] = value
        return found

    def _layers(self) -> Layers:
        return self._files.layers()

    def check_metalayers(self) -> None:
        """LimitError unless a table of our own has room for the metalayers."""
        check(self._layers())

    def versions(self) -> list[VersionInfo]:
        """Return an empty list: the files hold one state, which has no number."""
        self._snapshot.check_open()
        return []

    def refresh(self) -> bool:
        """Return False: nothing here changes the files."""
        self._snapshot.check_open()
        return False

    def _tags(self) -> dict[str, int]:
        """Return no tags."""
        self._snapshot.check_open()
        return {}

    def _check_writable(self) -> None:
        self._snapshot.check_open()
        raise read_only(self.kind, self.path)


def old_table(store: Store, mode: str, version: object) -> OldTable | None:
    """Open what another program stored; None if it is nothing that is known.

    Raises
    ------
    ReadOnlyError
        It would be opened for changes.
    TableNotFoundError
        A version was asked for.
    CorruptError, FormatError
        It cannot be read.
    """
    kind = _kind_of(store)
    if kind is None:
        return None
    if mode != "r":
        raise read_only(kind, store.name)
    if version is not None:
        raise TableNotFoundError(f"{store.name} is a {kind}, which has no versions")
    return OldTable(old_snapshot(store))


def read_only(kind: str, path: str) -> ReadOnlyError:
    """Return the error about a change of what another program stored."""
    return ReadOnlyError(f"{path} is a {kind}, which can only be read; {_remedy(kind, path)}")


def raise_foreign(store: Store, error: BlzError) -> None:
    """Raise an error that says what is at a path without a table, if it is known."""
    found = foreign_kind(store)
    if found is not None:
        kind, call = found
        is_missing = isinstance(error, TableNotFoundError)
        raise (TableNotFoundError if is_missing else FormatError)(
            f"{store.name} is {kind}, not a table of blztable; read it with {call}, and make a "
            "table of the result with blztable.to_blz"
        ) from None


def what_is_at(store: Store) -> tuple[str, str] | None:
    """Return what another program stored, and where a table can be made; None if unknown."""
    kind, found = _kind_of(store), foreign_kind(store)
    if kind is not None:
        return f"a {kind}", _remedy(kind, store.name)
    return None if found is None else (found[0], "choose another path for the table")


def _remedy(kind: str, path: str) -> str:
    of_arrays = f"; change an array with blztable.SuperChunk.open({path!r}, 'a')"
    return (
        f"make a table of it with blztable.copy({path!r}, new), and change that"
        f"{of_arrays if kind == bloscpack.KIND else ''}"
    )


def _kind_of(store: Store) -> str | None:
    return bloscpack.KIND if bloscpack.is_file(store) else bcolz.kind_of(store)
