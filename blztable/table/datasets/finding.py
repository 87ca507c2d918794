"""Finding: the tables that a list, a pattern or a directory of directories names.

Knows paths, and nothing of what is in a table. The name of a directory may say the value of a
column for all rows below it, as in `day=2026-11-22`: the form of Hive.
"""

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from blztable.arrow.types import REFUSALS
from blztable.errors import SchemaError, TableNotFoundError

# What Hive writes for null.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_SUFFIX = ".blz"


@dataclass(frozen=True)
class NamedTable:
    """A table: its place, and the values that the names of its directories say, as text."""

    place: Any
    texts: Mapping[str, str]


def find(path_like: Any, is_table: Callable[[Any], bool]) -> list[NamedTable] | None:
    """Return the tables that a place names, in the order of their paths; None if it is one table.

    Parameters
    ----------
    place : path-like, or list or tuple of places
        A list of tables, a pattern with `*`, `?` or `[...]`, or a directory without a table.
    is_table : callable
        Tells whether a table is at a path.

    Raises
    ------
    TableNotFoundError
        A list or a pattern names no table.
    """
    if isinstance(path_like, list | tuple):
        if not path_like:
            raise TableNotFoundError("the list of tables is empty")
        return _named(path_like)
    if not isinstance(path_like, str | os.PathLike) or is_table(path_like):
        return None
    path = os.fspath(path_like)
    if os.path.isdir(path):
        below = list(_below(path, is_table))
        return [NamedTable(table, _texts(table, path)) for table in below] or None
    if not isinstance(path, str) or not glob.has_magic(path):
        return None
    matches = [name for name in sorted(glob.glob(path, recursive=True)) if is_table(name)]
    if not matches:
        raise TableNotFoundError(f"no table matches {path}")
    fixed = re.split(r"[*?[]", path, maxsplit=1)[0]
    return [NamedTable(name, _texts(name, os.path.dirname(fixed))) for name in matches]


def values(
    tables: Sequence[NamedTable], partitioning: pa.Schema | None
) -> list[dict[str, pa.Scalar]]:
    """Return the values of each table in one type for each name.

    The type is that of `partitioning`, or int64, date32 or text: the first that takes all of them.

    Raises
    ------
    SchemaError
        A value is not one of the type that `partitioning` gives.
    """
    rows: list[dict[str, pa.Scalar]] = [{} for _ in tables]
    for name in dict.fromkeys(name for table in tables for name in table.texts):
        texts = [table.texts.get(name) for table in tables]
        type_ = None
        if partitioning is not None and name in partitioning.names:
            type_ = partitioning.field(name).type
        for row, value in zip(rows, _typed(name, texts, type_), strict=True):
            row[name] = value
    return rows


def _typed(name: str, texts: Sequence[str | None], type_: pa.DataType | None) -> pa.Array:
    nulls = {None, _NULL}
    known = [None if text in nulls else unquote(str(text)) for text in texts]
    array = pa.array(known, pa.string())
    if type_ is None:
        type_ = pa.string()
        if all(text is None or _is_integer(text) for text in known):
            type_ = pa.int64()
        elif all(text is None or _is_date(text) for text in known):
            type_ = pa.date32()
    try:
        return array.cast(type_)
    except REFUSALS as error:
        raise SchemaError(f"directories with {name}=: {error}") from None


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _named(tables: Sequence[Any]) -> list[NamedTable]:
    """Return these tables; their names count from the directory that all of them lie in."""
    paths = [
        os.path.abspath(table) if isinstance(table, str | os.PathLike) else "" for table in tables
    ]
    known = set(filter(None, paths))
    common = os.path.commonpath(known) if len(known) > 1 else None
    return [
        NamedTable(table, _texts(path, common) if path and common else {})
        for table, path in zip(tables, paths, strict=True)
    ]


def _below(path: str, is_table: Callable[[Any], bool]) -> Iterator[str]:
    """Yield the tables in a directory and in those below it, in the order of their names."""
    for entry in sorted(os.scandir(path), key=lambda item: item.name):
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            if is_table(entry.path):
                yield entry.path
            elif not entry.is_symlink():
                yield from _below(entry.path, is_table)
        elif entry.name.endswith(_SUFFIX) and is_table(entry.path):
            yield entry.path


def _texts(path: str, above: str) -> dict[str, str]:
    """Return what the names between two directories say."""
    parts = os.path.relpath(path, above or ".").removesuffix(_SUFFIX).split(os.sep)
    pairs = (part.partition("=") for part in parts)
    return {unquote(name): text for name, sign, text in pairs if name and sign}
