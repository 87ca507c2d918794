"""OldTable: a table of another program, opened for reading; and what a writer is told about one.

Of the files of other programs it knows only the first bytes, and names in directories: they tell
what is there, and which call reads it. Reads no values.
"""

import re
from typing import Any

import pyarrow as pa

from blztable.compat import bcolz, bloscpack
from blztable.compat.arrays import OldFiles, row_bytes
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
from blztable.storage.opening import first_bytes
from blztable.storage.store import KeyNotFound, Store
from blztable.table.snapshot import Snapshot
from blztable.table.table import CTable

# The superblock of HDF5 may lie behind a block of the user: at 0, 512, 1024, 2048 ...
_HDF5, _HDF5_AT = b"\x89HDF\r\n\x1a\n", (0, 512, 1024, 2048)
_MOST = _HDF5_AT[-1] + len(_HDF5)
# What a file is called, how it begins, and the call that reads it.
_FILES: tuple[tuple[str, tuple[bytes, ...], str], ...] = (
    ("a Parquet file", (b"PAR1", b"PARE"), "pandas.read_parquet({0!r})"),
    ("a Feather file", (b"ARROW1", b"FEA1"), "pandas.read_feather({0!r})"),
    ("an ORC file", (b"ORC",), "pandas.read_orc({0!r})"),
    ("an array of Blosc2", (b"\x9e\xa8b2frame\0",), "blosc2.open({0!r})"),
    ("an array of numpy", (b"\x93NUMPY",), "numpy.load({0!r})"),
)
# What a directory is called, the names of which it has one, and the call that reads it.
_DIRECTORIES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("a Delta table", ("_delta_log",), "deltalake.DeltaTable({0!r}).to_pyarrow_table()"),
    ("a Lance dataset", ("_versions", "_latest.manifest"), "lance.dataset({0!r}).to_table()"),
    ("a zarr store", ("zarr.json", ".zarray", ".zgroup"), "zarr.open({0!r}, mode='r')"),
)
_METADATA = re.compile(r"v?(\d+)\b.*\.metadata\.json(?:\.gz)?", re.DOTALL)


def foreign_kind(store: Store) -> tuple[str, str] | None:
    """Return what is at the path of the store, and the call that reads it; None if not known."""
    path = store.name
    try:
        names = set(store.list_names(""))
    except (BlzError, KeyNotFound):
        # The root is no directory.
        return _kind_of_file(path)
    for kind, marks, call in _DIRECTORIES:
        if not names.isdisjoint(marks):
            return kind, call.format(path)
    if "metadata" in names:
        versions = [name for name in _names(store, "metadata") if _METADATA.fullmatch(name)]
        if versions:
            newest = max(versions, key=_number)
            table = f"pyiceberg.table.StaticTable.from_metadata({f'{path}/metadata/{newest}'!r})"
            return "an Iceberg table", f"{table}.scan().to_arrow()"
    if any(name.endswith(".parquet") for name in names):
        return "a directory of Parquet files", f"pandas.read_parquet({path!r})"
    return None


def _kind_of_file(path: str) -> tuple[str, str] | None:
    first = first_bytes(path, _MOST)
    if any(first.startswith(_HDF5, at) for at in _HDF5_AT):
        return "an HDF5 file", f"pandas.read_hdf({path!r})"
    for kind, starts, call in _FILES:
        if first.startswith(starts):
            return kind, call.format(path)
    return None


def _names(store: Store, prefix: str) -> list[str]:
    try:
        return store.list_names(prefix)
    except (BlzError, KeyNotFound):
        return []


def _number(name: str) -> int:
    match = _METADATA.fullmatch(name)
    return int(match[1]) if match else 0


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
        values_by_name = {}
        for column in self._files.columns:
            values = column.values
            if not isinstance(values, BlzError) and row_bytes(values) <= DEFAULT_BYTES:
                value = scalar_of(column.default, values.dtype, values.shape[1:])
                if value is not None:
                    values_by_name[column.name] = value
        return values_by_name

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
    kind_and_call = foreign_kind(store)
    if kind_and_call is not None:
        kind, call = kind_and_call
        is_missing = isinstance(error, TableNotFoundError)
        raise (TableNotFoundError if is_missing else FormatError)(
            f"{store.name} is {kind}, not a table of blztable; read it with {call}, and make a "
            "table of the result with blztable.to_blz"
        ) from None


def what_is_at(store: Store) -> tuple[str, str] | None:
    """Return what another program stored, and where a table can be made; None if unknown."""
    kind, kind_and_call = _kind_of(store), foreign_kind(store)
    if kind is not None:
        return f"a {kind}", _remedy(kind, store.name)
    return kind_and_call and (kind_and_call[0], "choose another path for the table")


def _remedy(kind: str, path: str) -> str:
    of_arrays = f"; change an array with blztable.SuperChunk.open({path!r}, 'a')"
    return (
        f"make a table of it with blztable.copy({path!r}, new), and change that"
        f"{of_arrays if kind == bloscpack.KIND else ''}"
    )


def _kind_of(store: Store) -> str | None:
    return bloscpack.KIND if bloscpack.is_file(store) else bcolz.kind_of(store)
