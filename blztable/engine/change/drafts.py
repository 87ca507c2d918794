"""Drafts: versions of single row groups, by which an interrupted file can be rescued.

A draft is the file of a version of one row group. The creation appends it behind the parts of the
row group, so the parts of a draft that can be read are whole. No commit names drafts. A store of
many writers has none: other creations share it, and the next one removes what a killed one left.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import numpy as np
import pyarrow as pa

from blztable.engine.version import versions
from blztable.engine.version.commit import WRITER
from blztable.engine.version.copy import tail_of
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version, can_hold_table, newest_number
from blztable.engine.write.bundles import Bundle
from blztable.engine.write.column_writer import ColumnWriter
from blztable.errors import CorruptError, TableExistsError
from blztable.format import layout
from blztable.format.leaf import GROUP
from blztable.format.manifest import Head
from blztable.format.records import WORD, join, stack
from blztable.format.version_file import Tail
from blztable.storage.store import KeyNotFound, Store


class Drafts:
    """Appends a draft for each row group whose parts are all written."""

    def __init__(self, store: Store, head: Head, schema: pa.Schema) -> None:
        """Begin; `head` and `schema` are those of all drafts."""
        self._store = store
        self._head = head
        self._schema = schema
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
            if bundle is not None and bundle.number is None:
                return
            record = np.zeros(1, GROUP)
            record["rows"] = record["stored"] = rows[group]
            record["file"], record["groups"] = bundle.number if bundle else 0, 1
            records = stack([column.parts[group] for column in columns], 1)
            self._append(Tail(record, np.zeros(0, WORD), records))
            self._first = 0

    def copied(self, version: Version, group: int) -> None:
        """Append the draft of a row group of a version, whose files were copied."""
        self._append(tail_of(version, [group]))

    def _append(self, tail: Tail) -> None:
        number = self._written + 1
        head = replace(
            self._head,
            version=number,
            next_file=1 + _last_file(tail),
            commit=secrets.token_hex(16),
            writer=WRITER,
            time=datetime.now(UTC).isoformat(timespec="microseconds"),
            operation="draft",
        )
        staged = StagedVersion.of_tail(self._store, head, self._schema, tail)
        head = replace(staged.head, requires=staged.features)
        data = versions.encode(head, self._schema, [tail])
        self._store.put_new(layout.draft(number), [data])
        self._written = number

    def remove(self) -> None:
        """Take the drafts out of what the commit names."""
        self._store.delete(map(layout.draft, range(1, self._written + 1)))


def recovered(store: Store) -> StagedVersion | None:
    """Return the whole row groups of a creation that was killed; None if there is none."""
    unfinished = store.unfinished()
    if unfinished is None:
        return None
    drafts: list[Version] = []
    tails: list[Tail] = []
    for number in count(1):
        try:
            draft, tail = _draft(unfinished, number)
        except (KeyNotFound, CorruptError):
            break
        if drafts and draft.schema != drafts[0].schema:
            break
        drafts.append(draft)
        tails.append(tail)
    if not drafts:
        return None
    whole = Tail(
        np.concatenate([tail.groups for tail in tails]),
        np.concatenate([tail.deleted for tail in tails]),
        join([tail.records for tail in tails]),
    )
    next_file = max(draft.head.next_file for draft in drafts)
    head = replace(drafts[0].head, next_file=next_file)
    return StagedVersion.of_tail(unfinished, head, drafts[0].schema, whole)


def check_nothing_whole(store: Store) -> None:
    """Raise TableExistsError if a killed creation left whole row groups, which a new one cuts off.

    A creation at work leaves them too: the caller waits for its lock, and finds its table.
    """
    if not store.has_one_writer or not can_hold_table(store) or newest_number(store) is not None:
        return
    if not store.unfinished_bytes():
        return
    # Again: the creation may have ended in between.
    draft = recovered(store) if newest_number(store) is None else None
    if draft is not None:
        raise TableExistsError(
            f"{store.name} was never finished: {whole(draft)}; copy them first with "
            'blztable.copy(source, target, on_corrupt="skip"), or remove the file'
        )


def whole(version: Version) -> str:
    """Return what is whole of a creation that was killed, as words."""
    groups = version.group_count
    return f"{groups:,} row groups with {version.head.rows:,} rows are whole"


def _draft(store: Store, number: int) -> tuple[Version, Tail]:
    """Return the draft of a row group: a version, and its records."""
    version = versions.decode(store, layout.draft(number), store.get(layout.draft(number)))
    if version.group_count != 1:
        raise CorruptError(f"{store.name}/{layout.draft(number)}: not a draft of one row group")
    return version, tail_of(version)


def _last_file(tail: Tail) -> int:
    """Return the highest number of a file of a tail, 0 if there is none."""
    files = np.append(tail.groups["file"], tail.records.parts["file"])
    return int(files.max(initial=0))
