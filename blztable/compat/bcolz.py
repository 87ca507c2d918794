"""Directories of bcolz and BLZ: tables (ctable, btable) and arrays (carray, barray).

A table is `__rootdirs__`, `__attrs__` and a directory for each column. A column is `meta/sizes`,
`meta/storage`, `__attrs__` and `data/__0.blp`, `data/__1.blp` ...: 16 bytes that no program reads,
and one chunk of Blosc. Each has the rows of one chunk; the last one has fewer. Chunks have no
checksums. A file may be longer than its chunk, and hold more rows than the table has left: a trim
cuts no file. Knows nothing of Arrow.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from blztable.compat.arrays import OldColumn, OldFiles, row_bytes
from blztable.compat.numpy_types import dtype_of
from blztable.errors import BlzError, CorruptError, FormatError, LimitError
from blztable.format.chunk import (
    CHUNK_HEADER,
    LARGE_CHUNK_BYTES,
    ChunkHeader,
    decompress_into,
)
from blztable.storage.store import KeyNotFound, Store

ROOT_DIRS = "__rootdirs__"
ATTRS = "__attrs__"
SIZES = "meta/sizes"
STORAGE = "meta/storage"
# Before the chunk in each file: a header of Bloscpack 1, which bcolz itself does not read.
FILE_HEADER_BYTES = 16
# Bytes of a document. The names of 100,000 columns take less.
JSON_BYTES = 4 << 20
MAX_ROWS = 1 << 48
MAX_DIMENSIONS = 32
# A column that claims more chunks for each file is a false one, not a damaged one.
MISSING_MOST = 8


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """A carray: an array whose chunks are files in one directory."""

    store: Store
    directory: str
    dtype: np.dtype
    shape: tuple[int, ...]
    chunk_rows: int
    cbytes: int

    def decode(self, chunk: int, start: int, stop: int, out: np.ndarray) -> None:
        """Decode rows of one chunk; raises as `StoredArray.decode`."""
        key = f"{self.directory}data/__{chunk}.blp"
        try:
            self._decode(key, chunk, start, stop, out)
        except KeyNotFound:
            raise CorruptError(f"{self.store.name}/{key}: the file is missing") from None
        except (CorruptError, FormatError) as error:
            raise type(error)(f"{self.store.name}/{key}: {error}") from None

    def _decode(self, key: str, chunk: int, start: int, stop: int, out: np.ndarray) -> None:
        width, rows = row_bytes(self), min(self.chunk_rows, self.shape[0] - chunk * self.chunk_rows)
        limit = min(self.chunk_rows * width, LARGE_CHUNK_BYTES)
        # Bytes behind the chunk are older ones: the file is overwritten in place.
        data = self.store.get(key, FILE_HEADER_BYTES, limit + CHUNK_HEADER.size)
        header = ChunkHeader.decode(data)
        nbytes = header.nbytes
        if not rows * width <= nbytes <= limit or nbytes % width:
            raise CorruptError(f"a chunk of {nbytes} bytes; expected {rows} rows of {width} bytes")
        compressed = memoryview(data)[: header.ctbytes]
        if nbytes == len(out):
            decompress_into(compressed, header.typesize, out.ctypes.data, nbytes, limit)
            return
        whole = np.empty(nbytes, np.uint8)
        ranges = np.array([start * width]), np.array([stop * width]), 0
        address = whole.ctypes.data
        decompress_into(compressed, header.typesize, address, nbytes, limit, ranges=ranges)
        out[:] = whole[start * width : stop * width]


def kind_of(store: Store) -> str | None:
    """Return what the directory is called, if it is one of bcolz or BLZ."""
    names = set[str]()
    try:
        names |= set(store.list_names(""))
        if ROOT_DIRS in names:
            document = _document(store, ROOT_DIRS)
            return "BLZ table" if "dirs" in document else "bcolz table"
        if "meta" in names and {ATTRS, "data"} & names:
            document = _document(store, STORAGE)
            # In our own document of this name, the dtype is a list of columns.
            if "chunklen" in document and isinstance(document.get("dtype"), str):
                return "BLZ array" if "bparams" in document else "bcolz array"
    except (BlzError, KeyNotFound):
        # A table whose list of columns is damaged is a table all the same.
        return "bcolz table" if ROOT_DIRS in names else None
    return None


def read_directory(store: Store) -> OldFiles:
    """Read what is stored in a directory, without values.

    Raises
    ------
    CorruptError
        The list of columns is damaged, or no column has intact documents.
    FormatError
        No column is of a dtype that can be read; or the directory is none of these.
    """
    kind = kind_of(store)
    if kind is None:
        raise FormatError(f"{store.name} is no directory of bcolz or BLZ")
    if kind.endswith("array"):
        name = store.name.rpartition("/")[2]
        columns = [_column(store, name, "")]
    else:
        names = _directories(_document(store, ROOT_DIRS), f"{store.name}/{ROOT_DIRS}")
        there = set(store.list_names(""))
        columns = [
            _column(store, name, f"{directory}/")
            if directory in there
            else OldColumn(
                name, CorruptError(f"{store.name}/{directory}: the directory is missing")
            )
            for name, directory in names.items()
        ]
    attrs = _attrs(store, "")
    lengths, errors = dict[str, int](), list[BlzError]()
    for column in columns:
        if isinstance(column.values, BlzError):
            errors.append(column.values)
        else:
            lengths[column.name] = column.values.shape[0]
    if errors and not lengths:
        raise errors[0]
    if len(set(lengths.values())) > 1:
        raise CorruptError(
            f"{store.name}: a write was cut short, and the columns have different numbers of rows: "
            f"{lengths!r:.500}; each column is an array, open {store.name}/{next(iter(lengths))}"
        )
    return OldFiles(kind, store, max(lengths.values(), default=0), columns, attrs)


def _directories(document: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the directory of each column, by its name."""
    names, directories = document.get("names"), document.get("dirs", {})
    if not isinstance(names, list) or not isinstance(directories, dict):
        raise CorruptError(f"{where}: expected a list of names")
    result = {}
    for name in names:
        if not isinstance(name, str) or name in result:
            raise CorruptError(f"{where}: {name!r:.100} is no name, or that of two columns")
        directory = directories.get(name)
        # BLZ writes the whole path that the directory once had.
        directory = directory.rstrip("/").rpartition("/")[2] if isinstance(directory, str) else name
        if directory in {"", ".", ".."} or "/" in directory or not directory.isprintable():
            raise CorruptError(f"{where}: {directory!r:.100} is no directory of a column")
        result[name] = directory
    return result


def _column(store: Store, name: str, directory: str) -> OldColumn:
    """Return one column; an error about its documents becomes that of its values."""
    where = f"{store.name}/{directory}".rstrip("/")
    try:
        storage, sizes = _document(store, directory + STORAGE), _document(store, directory + SIZES)
        values = _array(store, directory, storage, sizes, where)
        attrs = _attrs(store, directory) if directory else {}
        return OldColumn(name, values, attrs, storage.get("dflt"))
    except KeyNotFound as error:
        return OldColumn(name, CorruptError(f"{error}: the file is missing"))
    except (CorruptError, FormatError, LimitError) as error:
        return OldColumn(name, error)


def _array(
    store: Store, directory: str, storage: Mapping[str, Any], sizes: Mapping[str, Any], where: str
) -> ChunkFiles:
    dtype = dtype_of(storage.get("dtype"), where)
    shape, chunk_rows, cbytes = sizes.get("shape"), storage.get("chunklen"), sizes.get("cbytes")
    if not isinstance(shape, list) or not 1 <= len(shape) <= MAX_DIMENSIONS:
        raise CorruptError(f"{where}/{SIZES}: the shape is {shape!r:.100}")
    if any(type(length) is not int or not 0 <= length <= MAX_ROWS for length in shape):
        raise CorruptError(f"{where}/{SIZES}: the shape is {shape!r:.100}")
    if type(chunk_rows) is not int or not 1 <= chunk_rows <= MAX_ROWS:
        raise CorruptError(f"{where}/{STORAGE}: chunklen is {chunk_rows!r:.100}")
    width = dtype.itemsize * prod(shape[1:])
    if not width or min(chunk_rows, max(shape[0], 1)) * width > LARGE_CHUNK_BYTES:
        raise LimitError(
            f"{where}: chunks of {chunk_rows} rows of {width} bytes; from 1 to {LARGE_CHUNK_BYTES} "
            "bytes can be read"
        )
    chunks, files = -(-shape[0] // chunk_rows), len(store.list_names(f"{directory}data"))
    if chunks > MISSING_MOST * (files + 1):
        raise CorruptError(f"{where}: {shape[0]} rows in {chunks} chunks, but {files} files")
    nbytes = sizes.get("nbytes", shape[0] * width)
    if nbytes != shape[0] * width:
        raise CorruptError(
            f"{where}/{SIZES}: {nbytes!r:.100} bytes; the shape {shape} has {shape[0] * width}"
        )
    stated = cbytes if type(cbytes) is int and 0 <= cbytes <= MAX_ROWS else 0
    return ChunkFiles(store, directory, dtype, tuple(shape), chunk_rows, stated)


def _attrs(store: Store, directory: str) -> Mapping[str, Any]:
    try:
        return _document(store, directory + ATTRS)
    except KeyNotFound:
        return {}


def _document(store: Store, key: str) -> dict[str, Any]:
    """Return a JSON object, in which NaN is a number: these programs write it."""
    where = f"{store.name}/{key}"
    data = store.get(key, 0, JSON_BYTES + 1)
    if len(data) > JSON_BYTES:
        raise LimitError(f"{where}: more than {JSON_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{where}: no JSON: {error}; a write was cut short") from None
    if not isinstance(document, dict):
        raise CorruptError(f"{where}: expected a JSON object")
    return document
