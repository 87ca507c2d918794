"""StagedVersion: a version that is not published yet, made from another version by changes.

It can be read like any version, so a transaction sees its own changes. Leaves that no change
touched are kept as they are, and are not read. Knows nothing of changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa

from blztable.columns.default import from_json
from blztable.engine.version import schema as schemas
from blztable.engine.version.facts import Facts, Leaves, Run
from blztable.engine.version.named_files import Files, files_of_run
from blztable.engine.version.packing import Put, packed
from blztable.engine.version.versions import Version
from blztable.errors import CorruptError, LimitError
from blztable.format.deletions import MOST_IN_RUN
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.leaf import GROUP, Leaf
from blztable.format.manifest import ENCODINGS, Head, encodings_of
from blztable.format.records import PART, WORD, Array, Records, stack, take
from blztable.format.version_file import Tail
from blztable.storage.store import Store

# This key of the schema metadata holds only for the rows and columns it was written with.
PANDAS_KEY = b"pandas"
# The property with the default value of each column that has one: by column id, in base64.
DEFAULTS = "defaults"
# In `changed` of a staged row group, the version that is not published yet: as a blind append,
# which becomes 0, and otherwise. Any number of a version is less.
APPENDED, CHANGED = 1 << 62, 1 << 63


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """One node of a staged version.

    Attributes
    ----------
    parts : Records or int
        Its records in all row groups, or in those that were written; or its line in the version
        that is changed, if no change touched it.
    """

    path: Path
    parts: Records | int

    @property
    def records(self) -> Records:
        """The records, which the column must have."""
        assert isinstance(self.parts, Records), "a line of the base has no records of its own"
        return self.parts


@dataclass(frozen=True, slots=True)
class NewGroups:
    """Row groups that were written: the rows and the number of the bundle of each, 0 for none."""

    rows: Sequence[int] = ()
    bundles: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class StagedVersion(Version):
    """A version that is not published; its head has the number of the version it is based on.

    Attributes
    ----------
    base : Version or None
        The version that was changed; None for a new table.
    """

    base: Version | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, base: Version) -> Self:
        """Return the base version without changes."""
        return cls(
            base.store,
            replace(base.head, did={}),
            base.schema,
            base.facts,
            base=base,
            _schema_bytes=base.schema_bytes,
            roots=base.roots,
        )

    @classmethod
    def of_tail(cls, store: Store, head: Head, schema: pa.Schema, tail: Tail) -> Self:
        """Return a new table with these row groups."""
        facts = Facts(Leaves(store), [Run.of_tail(tail)], len(head.paths))
        requires = head.requires | encodings_of(tail.records)
        return cls(store, replace(head, rows=facts.rows, requires=requires), schema, facts)

    @property
    def columns(self) -> tuple[StagedColumn, ...]:
        """Each node with its line, for `with_columns`."""

        def make() -> tuple[StagedColumn, ...]:
            return tuple([StagedColumn(path, line) for line, path in enumerate(self.paths)])

        return self.made("columns", make)

    def root(self, index: int) -> StagedColumn:
        """Return the root of the column at this index."""
        line = self.nodes(index)[0]
        return StagedColumn(self.paths[line], line)

    def files(self) -> Files:
        """Return the files that the row groups outside of kept leaves name, new and older ones."""
        files: Files = {}
        for run in self.facts.runs:
            if run.level == 0:
                files |= files_of_run(run, self.paths)
        return files

    def packed(self, number: int, put: Put) -> list[Run]:
        """Write new leaves by `put`; return the tails of the version with this number."""
        self.facts.check_count()

        def settled(run: Run) -> Run:
            groups = run.groups.copy()
            groups["changed"][groups["changed"] == APPENDED] = 0
            groups["changed"][groups["changed"] == CHANGED] = number
            return run.with_groups(groups)

        runs = [
            settled(run) if run.level == 0 and (run.groups["changed"] >= APPENDED).any() else run
            for run in self.facts.runs
        ]
        leaves = self.facts.leaves

        def kept(leaf: Leaf) -> int:
            number = put(leaf)
            leaves.keep(number, leaf)
            return number

        return packed(runs, self.orders(), kept, self.facts.below)

    def published(self, head: Head, tails: Sequence[Run]) -> Version:
        """Return this version as published with a head and tails."""
        facts = Facts(self.facts.leaves, reversed(tails), len(self.paths))
        return Version(
            self.store,
            head,
            self.schema,
            facts,
            _schema_bytes=self.schema_bytes,
            roots=self.roots,
        )

    def with_leaves_unread(self) -> "StagedVersion":
        """Return the same version, which reads its leaves from the store again."""
        facts = Facts(Leaves(self.store), self.facts.runs, self.facts.columns)
        return replace(self, facts=facts)

    def with_appends_changed(self) -> "StagedVersion":
        """Return this version, whose appended row groups count as changed by the commit."""

        def changed(run: Run) -> Run:
            groups = run.groups.copy()
            groups["changed"][groups["changed"] == APPENDED] = CHANGED
            return run.with_groups(groups)

        runs = [
            changed(run) if run.level == 0 and (run.groups["changed"] == APPENDED).any() else run
            for run in self.facts.runs
        ]
        return self._with(Facts(self.facts.leaves, runs, self.facts.columns))

    def changed_after(self, number: int) -> list[int]:
        """Return the row groups with rows of a commit after this version, no blind append."""
        if number < self.head.changed < APPENDED:
            return list(range(self.group_count))
        groups = np.array(self.facts.changed_after(number), np.int64)
        changed = self.facts.group_records(groups)["changed"]
        # Those from there on are changes of this commit.
        return groups[changed < APPENDED].tolist()

    def with_columns(
        self,
        columns: Sequence[StagedColumn],
        *,
        schema: pa.Schema | None = None,
        is_changed: bool = False,
        **fields: Any,
    ) -> "StagedVersion":
        """Return this version with other columns; `fields` are further fields of the head.

        If `is_changed`, all rows count as changed by the commit. A column that is new has records
        of all row groups. A bundle in which no column has a part any more is not named any more.
        The metalayers of a column go with it.
        """
        schema = self.schema if schema is None else schema
        # All rows of a new table are those that the key was written with.
        is_new = self.base is None and schema is self.schema
        if not is_new and PANDAS_KEY in (schema.metadata or {}):
            metadata = {key: text for key, text in schema.metadata.items() if key != PANDAS_KEY}
            schema = schema.with_metadata(metadata or None)
        is_same_schema = schema is self.schema or schema.equals(self.schema, check_metadata=True)
        encoded = self.schema_bytes if is_same_schema else schemas.encode(schema)
        paths = tuple(column.path for column in columns)
        layers = fields.get("metalayers", self.head.metalayers)
        if layers:
            ids = {"", *(str(path[0]) for path in paths)}
            fields["metalayers"] = {key: layers[key] for key in layers if key.owner in ids}
        lines = [column.parts for column in columns]
        facts, requires = self.facts, self.head.requires
        if lines != list(range(len(self.paths))):
            facts, new = self._arranged(lines)
            requires |= encodings_of(new)
        if is_changed:
            fields["changed"] = CHANGED
        head = replace(self.head, paths=paths, rows=facts.rows, requires=requires, **fields)
        roots = self.roots if paths == self.paths and schema.types == self.schema.types else ()
        return StagedVersion(
            self.store, head, schema, facts, base=self.base, _schema_bytes=encoded, roots=roots
        )

    def _arranged(self, lines: Sequence[Records | int]) -> tuple[Facts, Records]:
        """Return the facts of other nodes, and the records of those that are new."""
        kept = [line for line in lines if isinstance(line, int)]
        records = [line for line in lines if isinstance(line, Records)]
        new = stack(records) if records else Records(0, self.group_count, np.zeros(0, PART))
        assert new.entries == self.group_count, "a new column has a part in each row group"
        # The place of each node among the kept and then the new ones.
        of_kept, of_new = iter(range(len(kept))), iter(range(len(kept), len(lines)))
        chosen = np.array([next(of_kept if isinstance(line, int) else of_new) for line in lines])

        def edit(first: int, run: Run) -> Run:
            both = [run.records(kept), new.of(range(new.columns), range(first, first + len(run)))]
            parts = chosen[:, None].astype(np.int64) * len(run) + np.arange(len(run))
            return _without_empty_bundles(
                run.groups, run.deleted, take(both, parts.ravel(), len(lines))
            )

        return self.facts.mapped(edit, len(lines)), new

    def with_row_groups(
        self,
        order: Sequence[int] | Array | None,
        new: NewGroups,
        written: Sequence[StagedColumn],
        changed: Sequence[int] | None = None,
    ) -> "StagedVersion":
        """Return this version with other row groups.

        `order` holds indices in a list of the present row groups, followed by the new ones, whose
        parts are `written`; None means all of them. `changed` says of each new one which version
        changed it.
        """
        added = len(new.rows)
        run = None
        if added:
            assert len(written) == len(self.paths)
            groups = np.zeros(added, GROUP)
            groups["rows"] = groups["stored"] = new.rows
            groups["file"], groups["groups"] = new.bundles, 1
            groups["changed"] = CHANGED if changed is None else np.array(changed, np.uint64)
            records = stack([column.records for column in written], added)
            assert records.entries == added
            run = Run(0, groups, np.zeros(0, WORD), records)
        if order is None:
            facts = self.facts if run is None else self.facts.followed_by(run)
        else:
            facts = Facts(self.facts.leaves, self._in_order(order, run), self.facts.columns)
        more = encodings_of(run.records()) if run is not None else frozenset()
        return self._with(facts, requires=self.head.requires | more)._without_pandas_key()

    def _in_order(self, order: Sequence[int] | Array, new: Run | None) -> list[Run]:
        """Return runs of the present row groups and those of `new`, in this order."""
        indices, count = np.asarray(order, np.int64), self.group_count
        if not len(indices):
            return []
        # Ranges of neighbours, each of present or of new ones.
        is_cut = (np.diff(indices) != 1) | (indices[1:] == count)
        starts = [0, *(np.flatnonzero(is_cut) + 1).tolist(), len(indices)]
        runs: list[Run] = []
        for start, stop in pairwise(starts):
            first, last = int(indices[start]), int(indices[stop - 1]) + 1
            if first < count:
                runs += self.facts.between(first, last)
            else:
                assert new is not None
                runs.append(new.cut(first - count, last - count))
        return runs

    def _with(self, facts: Facts, **fields: Any) -> "StagedVersion":
        """Return this version with other facts of the same columns."""
        return replace(self, facts=facts, head=replace(self.head, rows=facts.rows, **fields))

    def _without_pandas_key(self) -> "StagedVersion":
        """Return this version without the key of a schema that holds for other rows only."""
        if self.base is None or PANDAS_KEY not in (self.schema.metadata or {}):
            return self
        return self.with_columns(self.columns)

    def with_deleted(self, deleted: Mapping[int, bytes]) -> "StagedVersion":
        """Return this version with other deleted rows in some row groups, by their indices."""
        if not deleted:
            return self

        def edit(first: int, run: Run) -> Run:
            words, groups = run.words(), run.groups.copy()
            for group in range(len(run)):
                words[group] = deleted.get(first + group, words[group])
            rows = np.frombuffer(b"".join(words), WORD)
            groups["deleted"] = [len(run_words) // WORD.itemsize for run_words in words]
            owner = np.repeat(np.arange(len(run)), groups["deleted"])
            gone = np.bincount(owner, rows & MOST_IN_RUN, len(run)).astype(np.uint64)
            groups["rows"] = groups["stored"] - gone
            return run.with_groups(groups, rows)

        return self._with(self.facts.edited(np.array(sorted(deleted), np.int64), edit))

    def with_parts(
        self, written: Mapping[int, StagedColumn], groups: Sequence[int]
    ) -> "StagedVersion":
        """Return this version with other parts in some lines, those of these row groups."""
        indices = np.asarray(groups, np.int64)
        if not len(indices) or not written:
            return self
        by_group = np.argsort(indices)
        touched = indices[by_group]
        lines = list(written)
        new = stack([written[line].records for line in lines])

        def edit(first: int, run: Run) -> Run:
            size = len(run)
            low, high = np.searchsorted(touched, [first, first + size])
            within = touched[low:high] - first
            parts = np.arange(len(self.paths) * size).reshape(len(self.paths), size)
            behind, taken = parts.size, by_group[low:high]
            for number, line in enumerate(lines):
                parts[line, within] = behind + number * new.entries + taken
            records = take([run.records(), new], parts.ravel(), len(self.paths))
            group_records = run.groups.copy()
            group_records["changed"][within] = CHANGED
            return _without_empty_bundles(group_records, run.deleted, records)

        facts = self.facts.edited(touched, edit)
        return self._with(facts, requires=self.head.requires | encodings_of(new))

    def with_head(self, **fields: Any) -> "StagedVersion":
        """Return this version with other fields in the head that do not concern columns."""
        return replace(self, head=replace(self.head, **fields))

    def index_of(self, name: str) -> int:
        """Return the index of the column with this name."""
        return schemas.index_of(self.schema, name, self.store.name)

    @property
    def defaults(self) -> Mapping[str, Json]:
        """The default values of columns as the property holds them, by column id."""
        defaults = self.head.properties.get(DEFAULTS)
        return defaults if isinstance(defaults, dict) else {}

    def default_values(self) -> dict[int, pa.Scalar]:
        """Return the declared default values, by index of the column."""
        values, defaults = {}, self.defaults
        for index, column in enumerate(self.schema) if defaults else ():
            stored = defaults.get(str(self.root(index).path[0]))
            if stored is None:
                continue
            try:
                values[index] = from_json(stored, column.type)
            except (CorruptError, LimitError) as error:
                context = f"{self.store.name}: the default value of column {column.name!r}"
                raise type(error)(f"{context}: {error}") from None
        return values

    @property
    def features(self) -> frozenset[str]:
        """What a program must know to read this version."""
        encodings = self.head.requires & {*ENCODINGS.values()}
        return encodings | self.head.used(has_deleted=self.deleted_rows > 0)


def _without_empty_bundles(groups: Array, deleted: Array, records: Records) -> Run:
    """Return a run whose row groups name no bundle in which no node has a part."""
    if groups["file"].any():
        files = records.parts["file"].reshape(records.columns, records.entries)
        is_empty = ~(files == groups["file"]).any(0)
        if (groups["file"][is_empty] != 0).any():
            groups = groups.copy()
            groups["file"][is_empty] = 0
    return Run(0, groups, deleted, records)
