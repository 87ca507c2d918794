"""Versions: list the versions of a table, read one, and pin one.

A pin is a shared lock on the manifest. While it is held, neither the manifest nor a file that it
names is removed. Opening needs no repair: the newest manifest is the table.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import pyarrow as pa

from blztable.caller import stack_level
from blztable.engine.version import schema
from blztable.engine.version.column_tree import ColumnTree, flat_schema
from blztable.engine.version.mirrors import mirrored_number
from blztable.errors import (
    BlzError,
    CorruptError,
    FormatError,
    LimitError,
    TableNotFoundError,
)
from blztable.format import jsontext, layout, manifest
from blztable.format.jsontext import Json
from blztable.format.line import ColumnParts
from blztable.storage.store import Damaged, KeyNotFound, Lock, Store

E = TypeVar("E", bound=BlzError)

LOCK_SECONDS = 30.0
# Errors that the bytes of a file cause.
DAMAGED = (CorruptError, FormatError, LimitError)
# Bytes of the first read; it holds the whole head except for very wide tables.
_HEAD_BYTES = 64 << 10
# Bytes of lines that one read takes.
_LINES_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class Version:
    """A version whose head is read. The line of a column is read at its first use and kept."""

    store: Store
    head: manifest.Head
    schema: pa.Schema
    tree: ColumnTree = field(init=False, repr=False)
    # True if each node is a column, of the type of its own streams.
    is_flat: bool = field(default=False, kw_only=True)
    # The lines of the last columns of the schema, which show fields of nested columns.
    views: tuple[Sequence[int], ...] = field(default=(), repr=False, kw_only=True)
    # The flat version, once it is made.
    _flat: list["Version"] = field(default_factory=list, init=False, repr=False)
    _lines: dict[int, ColumnParts] = field(default_factory=dict, repr=False)
    # Lines as bytes: those that were read, also together with an earlier one, and those that this
    # process has just published. They are compared, and take few bytes beside decoded ones.
    _read_ahead: dict[int, bytes] = field(default_factory=dict, repr=False)
    # Types in the files, by index, of the columns that `schema` shows as dictionaries.
    _stored_types: Mapping[int, pa.DataType] = field(default_factory=dict, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        """Match fields with lines; raise CorruptError if nodes of a field are missing."""
        paths = self.head.columns.paths
        tree = ColumnTree(range(len(paths) + 1))
        if not self.is_flat:
            tree = ColumnTree.of(self.stored_schema, paths, self.views)
        object.__setattr__(self, "tree", tree)

    @property
    def stored_schema(self) -> pa.Schema:
        """The schema of the columns that are no views."""
        if not self.views:
            return self.schema
        return pa.schema(list(self.schema)[: -len(self.views)], self.schema.metadata)

    @property
    def flat(self) -> "Version":
        """This version with each node as a column, in the order of the lines.

        The columns of nested types are columns of flat types, whose rows may differ.
        """
        if self.tree.is_flat:
            return self
        if not self._flat:
            stored = {self.tree.nodes(index)[0]: one for index, one in self._stored_types.items()}
            nodes = flat_schema(self.stored_schema)
            flat = replace(self, schema=nodes, is_flat=True, views=(), _stored_types=stored)
            self._flat.append(flat)
        return self._flat[0]

    def column(self, index: int) -> ColumnParts:
        """Return the parts of a column; if its type is nested, the parts of its root."""
        parts = self.line_parts(self.tree.nodes(index)[0])
        if self.views and parts.facts.rows != self.head.stored_rows:
            raise self._other_rows(self.schema.field(index).name)
        return parts

    def nodes(self, index: int) -> list[ColumnParts]:
        """Return the parts of each node of a column, in pre-order."""
        return [self.line_parts(line) for line in self.tree.nodes(index)]

    def stored_type(self, index: int) -> pa.DataType:
        """Return the type of a column in its files; `schema` has the type that is shown."""
        return self._stored_types.get(index, self.schema.field(index).type)

    def shows_dictionary(self, index: int) -> bool:
        """True if the files have values that are shown as a dictionary."""
        return index in self._stored_types

    def with_dictionaries(self, types: Mapping[int, pa.DataType]) -> Self:
        """Return the version with some columns shown as these dictionary types, by index."""
        fields = list(self.schema)
        for index, type_ in types.items():
            # The metadata of the field are about its values, not about categories.
            fields[index] = pa.field(fields[index].name, type_, fields[index].nullable)
        stored = {index: self.stored_type(index) for index in types}
        return replace(self, schema=pa.schema(fields, self.schema.metadata), _stored_types=stored)

    def with_views(self, views: Sequence[tuple[pa.Field, Sequence[int]]]) -> Self:
        """Return the version with more columns: each shows nodes of others, given by their lines.

        The columns before keep their indices.
        """
        schema = pa.schema([*self.schema, *(field for field, _ in views)], self.schema.metadata)
        return replace(self, schema=schema, views=(*self.views, *(lines for _, lines in views)))

    def nbytes(self, index: int) -> int:
        """Return the uncompressed bytes of all nodes of a column."""
        return sum(self.head.columns.nbytes[line] for line in self.tree.nodes(index))

    def cbytes(self, index: int) -> int:
        """Return the bytes on disk of all nodes of a column."""
        return sum(self.head.columns.cbytes[line] for line in self.tree.nodes(index))

    def line_parts(self, line: int) -> ColumnParts:
        """Return the parts in a line of the manifest; the line is read once."""
        parts = self._lines.get(line)
        if parts is None:
            data = self._line(line)
            try:
                parts = manifest.decode_column(data, self.head, line)
            except DAMAGED as error:
                self._read_ahead.pop(line, None)
                raise type(error)(f"{self._context}: {error}") from None
            # Only a root has the rows of the table.
            if len(parts.path) == 1 and parts.facts.rows != self.head.stored_rows:
                raise self._other_rows(line)
            self._lines[line] = parts
        return parts

    def text(self, line: int) -> bytes:
        """Return the bytes of a line, after comparing its sha256."""
        data = self._line(line)
        self._check(data, line)
        return data

    def _check(self, data: bytes, line: int) -> None:
        try:
            manifest.check_line(data, self.head, line)
        except CorruptError as error:
            # A later read may find the bytes that were written.
            self._read_ahead.pop(line, None)
            raise CorruptError(f"{self._context}: {error}") from None

    def _other_rows(self, column: int | str) -> CorruptError:
        return CorruptError(
            f"{self._context}: the rows of column {column!r} differ from the table's"
        )

    def lines(self) -> list[bytes]:
        """Return the lines of all columns, unparsed and with their sha256, for a new manifest."""
        columns = self.head.columns
        if not columns.offsets:
            return []
        lines = [self._read_ahead.get(line, b"") for line in range(len(columns.lengths))]
        if b"" in lines:
            first, end = columns.offsets[0], columns.offsets[-1] + columns.lengths[-1] + 1
            lines = self._range(first, end - first).split(b"\n")[:-1]
        if [len(line) for line in lines] != list(columns.lengths):
            raise CorruptError(f"{self._context}: the lengths of the lines differ from the head's")
        for index, line in enumerate(lines):
            self._check(line, index)
        # A commit needs them again, for example to compare versions.
        self._read_ahead.update(enumerate(lines))
        return lines

    def _line(self, index: int) -> bytes:
        """Return the bytes of a column's line without its line feed; read the next lines too."""
        line = self._read_ahead.get(index)
        if line is not None:
            return line
        columns = self.head.columns
        length = columns.lengths[index]
        data = self._range(columns.offsets[index], max(length + 1, _LINES_BYTES))
        if data[length : length + 1] != b"\n":
            raise CorruptError(f"{self._context}: the line of column {index} is truncated")
        lines = data[length + 1 :].split(b"\n")[:-1]
        self._read_ahead[index] = data[:length]
        for ahead, line in zip(range(index + 1, len(columns.lengths)), lines, strict=False):
            if len(line) == columns.lengths[ahead]:
                self._read_ahead[ahead] = line
        return data[:length]

    def _range(self, start: int, length: int) -> bytes:
        try:
            return self.store.get(self.key, start, length)
        except KeyNotFound:
            raise CorruptError(f"{self._context}: the manifest is gone") from None

    @property
    def frame(self) -> dict[str, Json] | None:
        """A copy of the frame descriptor; None if the table was not made from a DataFrame."""
        return None if self.head.pandas is None else dict(self.head.pandas)

    @property
    def key(self) -> str:
        """The key of the manifest."""
        return layout.manifest(self.head.version)

    @property
    def _context(self) -> str:
        return f"{self.store.name}/{self.key}"


def numbers(store: Store) -> list[int]:
    """Return all version numbers, ascending; FormatError if the root is a file."""
    try:
        names = store.list_names(layout.MANIFESTS)
    except CorruptError:
        if can_hold_table(store):
            raise
        raise FormatError(f"{store.name} is a file that holds no table") from None
    return sorted(filter(None, map(layout.manifest_version, names)))


def newest_number(store: Store) -> int | None:
    """Return the newest version number; None if there is no version."""
    return max(numbers(store), default=None)


def checked_newest(store: Store) -> int | None:
    """Return the newest version number, None if there is none; see `checked_numbers`."""
    return max(checked_numbers(store), default=None)


def checked_numbers(store: Store) -> list[int]:
    """Return all version numbers; CorruptError if the newest one is missing, or lost in its file.

    `meta/sizes` is replaced after each publication and holds its version. It is read before the
    versions are listed, so its number is higher only if another program removed a manifest.
    """
    mirrored = mirrored_number(store)
    listed = numbers(store)
    if mirrored <= max(listed, default=0):
        return listed
    try:
        # A network file system may list an outdated directory.
        store.open(layout.manifest(mirrored)).close()
    except KeyNotFound:
        raise _missing_manifest(store, mirrored) from None
    return [*listed, mirrored]


def _missing_manifest(store: Store, number: int) -> CorruptError:
    """Return the error for a newest version whose manifest another program has removed."""
    message = f"{store.name}/{layout.manifest(number)}: {why_missing(store, number)}"
    earlier = latest(store)
    if earlier is None:
        return CorruptError(
            f'{message}; no other version can be read; write the table again with mode="w"'
        )
    intact = earlier.head.version
    error = Damaged(
        f"{message}; version {intact} is intact, open it with version={intact}, and call "
        f"restore({intact}) to continue from it"
    )
    return _with_intact(error, intact)


def _with_intact(error: E, number: int) -> E:
    """Return the error about a damaged version, which says which version is intact."""
    error.intact_version = number
    return error


def why_missing(store: Store, number: int) -> str:
    """Return why the newest version is not listed."""
    if store.lost_keys() is not None:
        return "the newest commit of the file is damaged"
    return f"the manifest is gone, although {layout.SIZES} names version {number}"


def why_behind(store: Store) -> str:
    """Return what is to be said of bytes behind the newest commit of a file; "" if none are."""
    nbytes = store.unfinished_bytes()
    if not nbytes:
        return ""
    return (
        f"{store.name}: the last {nbytes:,} bytes are of a commit that was never finished, or "
        f"damaged; version {newest_number(store)} is the newest one that is whole, and the next "
        "change removes these bytes"
    )


def warn_behind(store: Store) -> None:
    """Warn of bytes behind the newest commit of a file."""
    behind = why_behind(store)
    if behind:
        warnings.warn(behind, stacklevel=stack_level())


def load(store: Store, number: int) -> Version:
    """Read the head of a version; KeyNotFound if it is gone, CorruptError if it is damaged."""
    try:
        return read(store, number)
    except DAMAGED as error:
        message = f"{store.name}/{layout.manifest(number)}: {error}"
        earlier = latest(store, before=number)
        if earlier is None:
            raise type(error)(message) from None
        intact = earlier.head.version
        hint = f"version {intact} is intact, open it with version={intact}"
        raise _with_intact(type(error)(f"{message}; {hint}"), intact) from None


def read(store: Store, number: int) -> Version:
    """Like `load`, but errors have neither path nor hint; for loops over many versions."""
    key = layout.manifest(number)
    data = store.get(key, 0, _HEAD_BYTES)
    length = manifest.head_length(data)
    if (length is None or length > len(data)) and len(data) == _HEAD_BYTES:
        data = store.get(key, 0, jsontext.MAX_BYTES + manifest.SHA_BYTES + 1)
        length = manifest.head_length(data)
    head = manifest.decode_head(data[: length or 0])
    if head.version != number:
        raise CorruptError(f"the manifest is of version {head.version}")
    fields = schema.decode(head.schema)
    return Version(store, head, fields)


def latest(store: Store, before: int = layout.MAX_VERSION + 1) -> Version | None:
    """Return the newest version below `before` that can be read."""
    for number in reversed([other for other in numbers(store) if other < before]):
        with suppress(BlzError, KeyNotFound):
            return read(store, number)
    return None


def no_table(store: Store, hint: str = "") -> TableNotFoundError:
    """Return the error about a store without a committed table."""
    return TableNotFoundError(
        f"no table at {store.name}{hint}; write one with to_blz() or create()"
    )


def _no_version(store: Store, number: int) -> TableNotFoundError:
    existing = numbers(store)
    if not existing:
        return no_table(store)
    return TableNotFoundError(
        f"no version {number} of {store.name}; the versions are {existing!r:.500}"
    )


def pin(store: Store, number: int | None = None) -> tuple[Version, Lock]:
    """Open and pin a version, by default the newest one.

    Raises
    ------
    TableNotFoundError
        The table or this version of it does not exist.
    CorruptError
        The manifest is damaged; the message names the newest intact version, if any.
    """
    while True:
        selected = checked_newest(store) if number is None else number
        if selected is None:
            hint = ": nothing is committed there" if store.list_names("") else ""
            raise no_table(store, hint)
        if not 0 < selected <= layout.MAX_VERSION:
            raise _no_version(store, selected)
        key = layout.manifest(selected)
        try:
            lock = store.lock(key, shared=True, timeout=LOCK_SECONDS)
        except KeyNotFound:
            # The newest version was replaced and removed meanwhile: try the next one.
            if number is None and newest_number(store) != selected:
                continue
            raise _no_version(store, selected) from None
        try:
            return load(store, selected), lock
        except KeyNotFound:
            lock.close()
            raise CorruptError(f"{store.name}/{key} is not a file") from None
        except BaseException:
            lock.close()
            raise


def can_hold_table(store: Store) -> bool:
    """True if the root does not exist yet or is a directory."""
    try:
        store.list_names("")
    except CorruptError as error:
        return isinstance(error, Damaged)
    return True
