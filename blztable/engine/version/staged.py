"""StagedVersion: a version that is not published yet, made from another version by changes.

It can be read like any version, so a transaction sees its own changes. An unchanged column stays a
line of the base version, which is neither parsed nor written again. A changed column has parts of
its own; after an append it has a line of its own, made without parsing the line of the base. Knows
nothing of changes.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from blztable.engine.version import schema as schemas
from blztable.engine.version.versions import Version
from blztable.format import deletions, layout
from blztable.format.bundle import BundleMeta, Bundles
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.line import (
    NO_FILE,
    ColumnParts,
    PartMetaArrays,
    Statistics,
    appended,
    file_numbers,
)
from blztable.format.manifest import ColumnIndex, Head

# This key of the schema metadata holds only for the rows and columns it was written with.
PANDAS_KEY = b"pandas"
# The property with the default value of each column that has one: by column id, in base64.
DEFAULTS = "defaults"
# In `changed` of a staged head, the version that is not published yet: as a blind append, which
# becomes 0, and otherwise. Any number of a version is less.
APPENDED, CHANGED = 1 << 62, 1 << 63
# The metadata, streams and statistics of no parts.
_NOTHING = PartMetaArrays.of([]), dict[str, tuple[int, ...]](), Statistics.joined([]).to_json()
# What identifies a row group: its rows, deleted rows and bundle, and its file in each column.
GroupIdentity = tuple[int | bytes, ...]


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """One column of a staged version.

    Attributes
    ----------
    parts : ColumnParts, bytes or int
        New parts; their line, if they were appended; or the index of the column in the base
        version, if no change touched it.
    next_k : int
        The number of the next file.
    flags : frozenset of str
        What the line may claim of parts.
    """

    path: Path
    next_k: int
    nbytes: int
    cbytes: int
    parts: ColumnParts | bytes | int
    flags: frozenset[str]

    @classmethod
    def of(cls, parts: ColumnParts, next_k: int) -> Self:
        """Return a column with new parts."""
        flags = frozenset(parts.flags)
        return cls(parts.path, next_k, parts.nbytes, parts.cbytes, parts, flags)

    @classmethod
    def without_parts(cls, path: Path) -> Self:
        """Return a column of a new table without rows."""
        return cls(path, 1, 0, 0, ColumnParts(path, (), *_NOTHING), frozenset())


@dataclass(frozen=True, slots=True)
class NewGroups:
    """Row groups that were written: the rows and the bundle of each, None for no bundle."""

    rows: Sequence[int] = ()
    bundles: Sequence[BundleMeta | None] = ()

    @classmethod
    def without_bundles(cls, rows: Sequence[int]) -> Self:
        """Return row groups whose parts have files of their own."""
        return cls(rows, (None,) * len(rows))


@dataclass(frozen=True, slots=True)
class StagedVersion(Version):
    """A version that is not published; its head has the number of the version it is based on.

    Attributes
    ----------
    columns : tuple of StagedColumn
    base : Version or None
        The version whose lines are taken over; None if all columns are new.
    """

    columns: tuple[StagedColumn, ...] = field(default=(), kw_only=True)
    base: Version | None = field(default=None, kw_only=True)
    # Computed when a change first relies on it.
    _digest: list[bytes] = field(default_factory=list, repr=False, kw_only=True)

    @classmethod
    def of(cls, base: Version) -> Self:
        """Return the base version without changes."""
        index = base.head.columns
        entries = zip(index.paths, index.next_k, index.nbytes, index.cbytes, strict=True)
        # The head does not say which columns.
        flags = base.head.flags
        columns = tuple(StagedColumn(*entry, line, flags) for line, entry in enumerate(entries))
        head = replace(base.head, changed=base.head.all_changed)
        return cls(base.store, head, base.schema, columns=columns, base=base)

    def root(self, index: int) -> StagedColumn:
        """Return the root of the column at this index."""
        return self.columns[self.nodes(index)[0]]

    def parts(self, line: int) -> ColumnParts:
        """Return the parts in a line, which may be one of the base version."""
        column = self.columns[line]
        match column.parts:
            case int(base_line):
                return self._base.parts(base_line)
            case bytes(text):
                if line not in self._lines:
                    groups = len(self.head.row_groups)
                    self._lines[line] = ColumnParts.decode(text, column.path, groups)
                return self._lines[line]
            case parts:
                return parts

    def text(self, line: int) -> bytes:
        """Return the line of a column as bytes, which may be one of the base version."""
        return self._text(line, lambda kept: self._base.text(kept))

    def _text(self, line: int, text_of_base: Callable[[int], bytes]) -> bytes:
        match self.columns[line].parts:
            case int(kept):
                return text_of_base(kept)
            case bytes(text):
                return text
            case parts:
                return parts.encode()

    @property
    def _base(self) -> Version:
        assert self.base is not None, "a staged version without a base has only new columns"
        return self.base

    def lines(self) -> list[bytes]:
        """Return the manifest lines of all columns."""
        has_kept = any(isinstance(column.parts, int) for column in self.columns)
        base_lines = self._base.lines() if has_kept else []
        return [self._text(line, base_lines.__getitem__) for line in range(len(self.columns))]

    def files(self) -> dict[Path, frozenset[int]]:
        """Return the numbers of all files that the changed columns name, new and older ones."""
        groups = len(self.head.row_groups)
        named = {layout.SHARED: self.head.bundle_numbers}
        for column in self.columns:
            if isinstance(column.parts, bytes):
                named[column.path] = frozenset(file_numbers(column.parts, column.path, groups))
            elif isinstance(column.parts, ColumnParts):
                named[column.path] = frozenset(k for k in column.parts.k if k != NO_FILE)
        return named

    def published(self, head: Head) -> Version:
        """Return this version as published with `head`; it keeps the new parts and lines."""
        columns = list(enumerate(self.columns))
        parts = {line: one.parts for line, one in columns if isinstance(one.parts, ColumnParts)}
        texts = {line: one.parts for line, one in columns if isinstance(one.parts, bytes)}
        return Version(self.store, head, self.schema, parts, texts)

    def row_group_files(self, start: int = 0, stop: int | None = None) -> list[GroupIdentity]:
        """Return the identity of each row group: its rows, deleted rows, bundle and files."""
        numbers = [self.parts(line).k[start:stop] for line in range(len(self.columns))]
        lists = (self.head.row_groups, self.head.all_deleted, self._bundle_numbers)
        return list(zip(*(one[start:stop] for one in lists), *numbers, strict=True))

    def row_group_identities(self, groups: Sequence[int]) -> list[GroupIdentity]:
        """Return the rows, the deleted rows and the bundle of each of these row groups."""
        head, bundles = self.head, self._bundle_numbers
        rows, deleted = head.row_groups, head.all_deleted
        return [(rows[group], deleted[group], bundles[group]) for group in groups]

    def file_numbers(self, line: int, groups: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of the files of a column in these row groups."""
        numbers = self.parts(line).k
        return tuple(numbers[group] for group in groups)

    @property
    def _bundles(self) -> Bundles:
        """The bundle of each row group, None for none."""
        return self.head.bundles or (None,) * len(self.head.row_groups)

    @property
    def _bundle_numbers(self) -> list[int]:
        """The number of the bundle of each row group, 0 for none."""
        return [bundle.k if bundle else 0 for bundle in self._bundles]

    def row_groups_digest(self) -> bytes:
        """Return a digest of the rows and files of all row groups, 32 bytes.

        An unchanged column adds the digest of its line, so the line is not read.
        """
        if not self._digest:
            digest = hashlib.sha256(array("q", self.head.row_groups).tobytes())
            digest.update(array("q", self._bundle_numbers).tobytes())
            for deleted in self.head.deleted:
                digest.update(hashlib.sha256(deleted).digest())
            for line, column in enumerate(self.columns):
                if isinstance(column.parts, int):
                    digest.update(b"line" + self._base.head.columns.digest(column.parts))
                else:
                    files = hashlib.sha256(array("q", self.parts(line).k).tobytes())
                    digest.update(b"parts" + files.digest())
            self._digest.append(digest.digest())
        return self._digest[0]

    def with_columns(
        self,
        columns: Sequence[StagedColumn],
        *,
        schema: pa.Schema | None = None,
        **fields: Any,
    ) -> "StagedVersion":
        """Return this version with other columns; `fields` are further fields of the head.

        A bundle in which no column has a part any more is not named any more. The metalayers of a
        column go with it.
        """
        schema = self.schema if schema is None else schema
        # All rows of a new table are those that the key was written with.
        is_new = self.base is None and schema is self.schema
        if not is_new and PANDAS_KEY in (schema.metadata or {}):
            metadata = {key: text for key, text in schema.metadata.items() if key != PANDAS_KEY}
            schema = schema.with_metadata(metadata or None)
        if not schema.equals(self.schema, check_metadata=True):
            fields |= {"schema": schemas.encode(schema), "fields": schemas.readable(schema)}
        layers = fields.get("metalayers", self.head.metalayers)
        if layers:
            ids = {"", *(str(column.path[0]) for column in columns)}
            fields["metalayers"] = {key: layers[key] for key in layers if key.owner in ids}
        fields["flags"] = flags_of(columns)
        head = replace(self.head, columns=column_index(columns), **fields)
        is_same = schema is self.schema and head.columns.paths == self.paths
        roots = self._roots if is_same else ()
        staged = StagedVersion(
            self.store, head, schema, columns=tuple(columns), base=self.base, _roots=roots
        )
        # Row groups that come or go take their bundles with them.
        may_be_empty = head.bundles and "bundles" not in fields
        return staged._without_empty_bundles() if may_be_empty else staged

    def _without_empty_bundles(self) -> "StagedVersion":
        """Return this version without bundles in which no column has a part."""
        empty = {group for group, bundle in enumerate(self.head.bundles) if bundle}
        for index in range(len(self.columns)):
            at = self.parts(index).at
            empty = {group for group in empty if not (at and at[group])}
            if not empty:
                return self
        bundles = tuple(
            None if group in empty else bundle for group, bundle in enumerate(self.head.bundles)
        )
        return self.with_head(bundles=bundles if any(bundles) else ())

    def with_row_groups(
        self,
        order: Sequence[int],
        new: NewGroups,
        written: Sequence[StagedColumn],
        changed: Sequence[int] | None = None,
    ) -> "StagedVersion":
        """Return this version with other row groups.

        `order` holds indices in a list of the present row groups, followed by the new ones, whose
        parts are `written`; `changed` says of each new one what the head will say.
        """
        versions = (*self.head.all_changed, *(changed or [CHANGED] * len(new.rows)))
        rows, bundles = (*self.head.row_groups, *new.rows), (*self._bundles, *new.bundles)
        assert len(written) == len(self.columns)
        if not self.head.row_groups and order == range(len(rows)):
            columns = [
                now if now.next_k >= before.next_k else replace(now, next_k=before.next_k)
                for now, before in zip(written, self.columns, strict=True)
            ]
        elif order == range(len(rows)):
            lines = self.lines()
            columns = [
                self._appended(index, parts, line)
                for index, (parts, line) in enumerate(zip(written, lines, strict=True))
            ]
        else:
            columns = [self._arranged(index, parts, order) for index, parts in enumerate(written)]
        kept = tuple(bundles[index] for index in order)
        deleted = (*self.head.all_deleted, *[b""] * len(new.rows))
        return self.with_columns(
            columns,
            row_groups=tuple(rows[index] for index in order),
            changed=tuple(versions[index] for index in order),
            bundles=kept if any(kept) else (),
            deleted=deletions.compacted([deleted[index] for index in order]),
            next_bundle=max([self.head.next_bundle, *(one.k + 1 for one in new.bundles if one)]),
        )

    def with_deleted(self, deleted: Mapping[int, bytes]) -> "StagedVersion":
        """Return this version with other deleted rows in some row groups, by their indices."""
        rows, gone = list(self.head.stored_rows), list(self.head.all_deleted)
        for group, numbers in deleted.items():
            gone[group] = numbers
        rows = [all_rows - deletions.count(one) for all_rows, one in zip(rows, gone, strict=True)]
        head = replace(self.head, row_groups=tuple(rows), deleted=deletions.compacted(gone))
        return replace(self, head=head, _digest=[])

    def with_parts(
        self, written: Mapping[int, StagedColumn], order: Sequence[int]
    ) -> "StagedVersion":
        """Return this version with other parts in some lines; `order` as in `with_row_groups`."""
        columns = list(self.columns)
        for line, new in written.items():
            columns[line] = self._arranged(line, new, order)
        groups = zip(order, self.head.all_changed, strict=True)
        changed = tuple(CHANGED if one >= len(order) else version for one, version in groups)
        return self.with_columns(columns, changed=changed)

    def with_head(self, **fields: Any) -> "StagedVersion":
        """Return this version with other fields in the head that do not concern columns."""
        return replace(self, head=replace(self.head, **fields))

    def numbered_after(self, newest: Version) -> "StagedVersion":
        """Return this version, whose next files get numbers that the newest one has not used."""
        used = dict(zip(newest.paths, newest.head.columns.next_k, strict=True))
        columns = tuple(
            replace(column, next_k=max(column.next_k, used.get(column.path, 0)))
            for column in self.columns
        )
        return replace(self, columns=columns).with_head(
            columns=column_index(columns),
            next_column=max(self.head.next_column, newest.head.next_column),
            next_bundle=max(self.head.next_bundle, newest.head.next_bundle),
        )

    def index_of(self, name: str) -> int:
        """Return the index of the column with this name."""
        return schemas.index_of(self.schema, name, self.store.name)

    @property
    def defaults(self) -> Mapping[str, Json]:
        """The default values of columns as the property holds them, by column id."""
        defaults = self.head.properties.get(DEFAULTS)
        return defaults if isinstance(defaults, dict) else {}

    def _appended(self, index: int, written: StagedColumn, line: bytes) -> StagedColumn:
        """Return the column at this index, whose line is given, with the written parts behind."""
        mine, groups = self.columns[index], len(self.head.row_groups)
        text = appended(line, _parts_of(written).encode(like=line), groups)
        if text is None:
            return self._arranged(index, written, range(groups + len(_parts_of(written).k)))
        return StagedColumn(
            mine.path,
            max(mine.next_k, written.next_k),
            mine.nbytes + written.nbytes,
            mine.cbytes + written.cbytes,
            text,
            mine.flags | written.flags,
        )

    def _arranged(self, line: int, written: StagedColumn, order: Sequence[int]) -> StagedColumn:
        """Return the node in this line; `order` arranges its parts and the written ones."""
        parts = self.parts(line).arranged(_parts_of(written), order)
        return StagedColumn.of(parts, max(self.columns[line].next_k, written.next_k))


def _parts_of(written: StagedColumn) -> ColumnParts:
    """Return the parts of a written column; a line has one."""
    if isinstance(written.parts, bytes):
        return ColumnParts.decode(written.parts, written.path, 1)
    assert isinstance(written.parts, ColumnParts)
    return written.parts


def flags_of(columns: Iterable[StagedColumn]) -> frozenset[str]:
    """Return what the lines of these columns may claim of parts."""
    return frozenset().union(*(column.flags for column in columns))


def settled(changed: Sequence[int], number: int) -> tuple[int, ...]:
    """Return `changed` for the head of the version with this number; empty if it is all of it."""
    versions = tuple({APPENDED: 0, CHANGED: number}.get(one, one) for one in changed)
    return () if set(versions) <= {number} else versions


def column_index(columns: Sequence[StagedColumn]) -> ColumnIndex:
    """Return the entries of these columns in a head."""
    return ColumnIndex(
        tuple(column.path for column in columns),
        tuple(column.next_k for column in columns),
        tuple(column.nbytes for column in columns),
        tuple(column.cbytes for column in columns),
    )
