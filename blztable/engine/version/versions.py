"""Versions: list the versions of a table, read one, and pin one.

A pin is a shared lock on the manifest. While it is held, neither the manifest nor a file that it
names is removed. Opening needs no repair: the newest manifest is the table.
"""

import warnings
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from blztable import tuning
from blztable.caller import stack_level
from blztable.engine.version import schema
from blztable.engine.version.mirrors import mirrored_number
from blztable.engine.version.schema import node_schema, roots_of
from blztable.errors import (
    BlzError,
    CorruptError,
    FormatError,
    LimitError,
    TableNotFoundError,
)
from blztable.format import jsontext, layout, manifest
from blztable.format.bundle import Bundles
from blztable.format.deletions import Deleted
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.line import ColumnParts
from blztable.storage.store import Damaged, KeyNotFound, Lock, Store

E = TypeVar("E", bound=BlzError)

# How often a change is made again after a conflict, and the seconds after which it is not.
RETRIES, RETRY_SECONDS = 5, 30
# Errors that the bytes of a file cause.
DAMAGED = (CorruptError, FormatError, LimitError)
# Bytes of the first read; it holds the whole head except for very wide tables.
_HEAD_BYTES = 64 << 10
# Bytes of lines that one read takes.
_LINES_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class Version:
    """A version whose head is read. The line of a column is read at its first use and kept.

    Each node of a field, at every level of its type, has a line in the manifest (`schema.py`).
    """

    store: Store
    head: manifest.Head
    schema: pa.Schema
    # The schema of the nodes, once it is made.
    _nodes: list[pa.Schema] = field(default_factory=list, init=False, repr=False)
    _lines: dict[int, ColumnParts] = field(default_factory=dict, repr=False)
    # Lines as bytes: those that were read, also together with an earlier one, and those that this
    # process has just published. They are compared, and take few bytes beside decoded ones.
    _read_ahead: dict[int, bytes] = field(default_factory=dict, repr=False)
    # The line of each field's root, and at the end the number of lines; of another version with the
    # same columns, because it takes long for very many.
    _roots: Sequence[int] = field(default=(), repr=False, kw_only=True)

    def __post_init__(self) -> None:
        """Match fields with lines; raise CorruptError if nodes of a field are missing."""
        if not self._roots:
            object.__setattr__(self, "_roots", roots_of(self.schema, self.paths))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The path of each node, in pre-order."""
        return self.head.columns.paths

    @property
    def row_groups(self) -> tuple[int, ...]:
        """The live rows of each row group."""
        return self.head.row_groups

    @property
    def stored_rows(self) -> tuple[int, ...]:
        """The rows that the parts of each row group hold: the live and the deleted ones."""
        return self.head.stored_rows

    @property
    def deleted(self) -> Deleted:
        """The deleted rows of each row group; empty if there are none."""
        return self.head.deleted

    @property
    def all_deleted(self) -> Deleted:
        """`deleted` of each row group, also where there are none."""
        return self.head.all_deleted

    @property
    def deleted_rows(self) -> int:
        """Number of rows that parts hold, and that are no rows of the table."""
        return self.head.deleted_rows

    @property
    def changed(self) -> tuple[int, ...]:
        """For each row group, the newest version whose commit put rows there; see the head."""
        return self.head.changed

    @property
    def all_changed(self) -> tuple[int, ...]:
        """`changed` of each row group, also where it is left out."""
        return self.head.all_changed

    @property
    def bundles(self) -> Bundles:
        """The bundle of each row group."""
        return self.head.bundles

    @property
    def bundle_numbers(self) -> frozenset[int]:
        """The numbers of the bundles that this version names."""
        return self.head.bundle_numbers

    def nbytes(self, line: int) -> int:
        """Return the decoded bytes of a node."""
        return self.head.columns.nbytes[line]

    def cbytes(self, line: int) -> int:
        """Return the bytes on disk of a node."""
        return self.head.columns.cbytes[line]

    def with_deleted_rows(self) -> "Version":
        """Return this version with its deleted rows as rows, for checks of whole parts."""
        if not self.deleted:
            return self
        return replace(self, head=replace(self.head, row_groups=self.stored_rows, deleted=()))

    @property
    def is_flat(self) -> bool:
        """True if no field has a nested type, so that each has one line."""
        return isinstance(self._roots, range)

    def nodes(self, index: int) -> range:
        """Return the lines of a field's nodes, in pre-order; the first is the root."""
        return range(self._roots[index], self._roots[index + 1])

    def field_of(self, line: int) -> int:
        """Return the index of the field that a node belongs to."""
        return bisect_right(self._roots, line) - 1

    def node(self, line: int) -> pa.Field:
        """Return the flat type of a node, and its path of names as the name of a field."""
        if isinstance(self._roots, range):
            return self.schema.field(line)
        if not self._nodes:
            self._nodes.append(node_schema(self.schema))
        return self._nodes[0].field(line)

    def parts(self, line: int) -> ColumnParts:
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
            if len(parts.path) == 1:
                self.check_rows(parts, line)
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

    def check_rows(self, parts: ColumnParts, column: int | str) -> None:
        """Raise CorruptError unless a column has the rows of the table."""
        if parts.meta.rows != self.head.stored_rows:
            raise CorruptError(
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


def load_unless(cached: Version | None, store: Store, number: int) -> Version:
    """Return a version as `load`; a known one that has this number is not read again."""
    if cached is not None and cached.head.version == number:
        return cached
    return load(store, number)


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
            lock = store.lock(key, shared=True, timeout=tuning.current.lock_seconds)
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
