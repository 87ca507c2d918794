"""Foreign: what other programs stored that is no table here, and the call that reads it.

Knows the first bytes of files, and names in directories. Reads no values.
"""

import re

from blztable.errors import BlzError
from blztable.storage.opening import first_bytes
from blztable.storage.store import KeyNotFound, Store

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
        found = [one for one in _names(store, "metadata") if _METADATA.fullmatch(one)]
        if found:
            newest = max(found, key=_number)
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
