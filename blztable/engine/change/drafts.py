"""Drafts: manifests of single row groups, by which an interrupted file can be rescued.

A draft is a manifest of one row group. The creation appends it behind the parts of the row group,
so the parts of a draft that can be read are whole. No commit names drafts. A store of many writers
has none: other creations share it, and the next one removes what a killed one left.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from blztable.engine.version import schema as schemas
from blztable.engine.version.commit import WRITER
from blztable.engine.version.staged import (
    NewGroups,
    StagedColumn,
    StagedVersion,
    column_index,
    flags_of,
)
from blztable.engine.version.versions import Version, can_hold_table, newest_number
from blztable.engine.write.bundles import Bundle
from blztable.engine.write.column_writer import ColumnWriter
from blztable.errors import CorruptError, TableExistsError
from blztable.format import deletions, layout, manifest
from blztable.format.bundle import BundleMeta
from blztable.format.line import ColumnParts
from blztable.format.manifest import Head
from blztable.storage.store import KeyNotFound, Store


class Drafts:
    """Appends a draft for each row group whose parts are all written."""

    def __init__(self, store: Store, head: Head) -> None:
        """Begin; `head` has what all drafts say of the table."""
        self._store = store
        self._head = head
        self._written = 0
        # The first column that is not known to have its part of the next row group.
        self._first = 0

    def on_progress(
        self,
        columns: Sequence[ColumnWriter],
        rows: Sequence[int],
        bundles: Sequence[Bundle | None],
    ) -> None:
        """Append the drafts of the row groups that are complete by now."""
        while self._written < len(rows):
            group = self._written
            while self._first < len(columns):
                if group not in columns[self._first].parts:
                    return
                self._first += 1
            bundle = bundles[group]
            if bundle is not None and bundle.meta is None:
                return
            staged = [StagedColumn.of(one.finish([group]), one.next_k) for one in columns]
            self._append(rows[group], staged, None if bundle is None else bundle.meta)
            self._first = 0

    def copied(self, version: Version, group: int) -> None:
        """Append the draft of a row group of a version, whose files were copied."""
        index = version.head.columns
        staged = [
            StagedColumn.of(version.parts(line).of_group(group), index.next_k[line])
            for line in range(len(index.paths))
        ]
        bundles = version.bundles
        meta = bundles[group] if bundles else None
        self._append(version.row_groups[group], staged, meta, version.all_deleted[group])

    def _append(
        self,
        rows: int,
        columns: Sequence[StagedColumn],
        bundle: BundleMeta | None,
        deleted: bytes = b"",
    ) -> None:
        number = self._written + 1
        head = replace(
            self._head,
            version=number,
            row_groups=(rows,),
            columns=column_index(columns),
            bundles=() if bundle is None else (bundle,),
            deleted=deletions.compacted([deleted]),
            changed=(),
            flags=flags_of(columns),
            commit=secrets.token_hex(16),
            writer=WRITER,
            time=datetime.now(UTC).isoformat(timespec="microseconds"),
            operation="draft",
        )
        lines = [one.parts.encode() for one in columns if isinstance(one.parts, ColumnParts)]
        self._store.put_new(layout.draft(number), [manifest.encode(head, lines)])
        self._written = number

    def remove(self) -> None:
        """Take the drafts out of what the commit names."""
        self._store.delete(map(layout.draft, range(1, self._written + 1)))


def recovered(store: Store) -> StagedVersion | None:
    """Return the whole row groups of a creation that was killed; None if there is none."""
    unfinished = store.unfinished()
    if unfinished is None:
        return None
    staged: StagedVersion | None = None
    for number in count(1):
        try:
            draft = _draft(unfinished, number)
        except (KeyNotFound, CorruptError):
            break
        if staged is None:
            staged = draft
            continue
        if draft.schema != staged.schema:
            break
        columns = [
            StagedColumn.of(draft.parts(line), column.next_k)
            for line, column in enumerate(draft.columns)
        ]
        groups = NewGroups(draft.stored_rows, draft.bundles or (None,))
        staged = staged.with_row_groups(range(number), groups, columns)
        if draft.deleted:
            staged = staged.with_deleted({number - 1: draft.deleted[0]})
    return staged


def check_nothing_whole(store: Store) -> None:
    """Raise TableExistsError if a killed creation left whole row groups, which a new one cuts off.

    A creation at work leaves them too: the caller waits for its lock, and finds its table.
    """
    if not store.has_one_writer or not can_hold_table(store) or newest_number(store) is not None:
        return
    if not store.unfinished_bytes():
        return
    # Again: the creation may have ended in between.
    found = recovered(store) if newest_number(store) is None else None
    if found is not None:
        raise TableExistsError(
            f"{store.name} was never finished: {whole(found)}; copy them first with "
            'blztable.copy(source, target, on_corrupt="skip"), or remove the file'
        )


def whole(version: Version) -> str:
    """Return what is whole of a creation that was killed, as words."""
    groups = len(version.row_groups)
    return f"{groups:,} row groups with {version.head.rows:,} rows are whole"


def _draft(store: Store, number: int) -> StagedVersion:
    data = store.get(layout.draft(number))
    length = manifest.head_length(data)
    head = manifest.decode_head(data[: length or 0])
    lines = data[length:].split(b"\n")[:-1]
    index = head.columns
    if len(lines) != len(index.paths) or len(head.row_groups) != 1:
        raise CorruptError(f"{layout.draft(number)}: not a draft of one row group")
    columns = []
    for at, line in enumerate(lines):
        manifest.check_line(line, head, at)
        parts = (index.next_k[at], index.nbytes[at], index.cbytes[at], line, head.flags)
        columns.append(StagedColumn(index.paths[at], *parts))
    return StagedVersion(store, head, schemas.decode(head.schema), columns=tuple(columns))
