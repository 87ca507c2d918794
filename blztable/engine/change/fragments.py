"""Fragments: rows that many processes write, and one commit publishes.

A *job* and a *fragment* are versions that nobody published: a job has the version that is written
to, without rows; a fragment has it with the rows of one task. Both travel as text with a checksum,
and are read by the code that reads manifests, with its checks. Knows nothing of users' data.

A fragment is written as a commit is, up to step 2: its files have numbers of the clock, which are
never given out twice, so tasks and their attempts need not know of each other. Nobody removes them
but a vacuum and `discard`. Where there are locks, the process that began the job holds the lock of
files in flight, so a vacuum waits. Elsewhere files go by their age, which the commit looks at.
"""

import base64
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from blztable import tuning
from blztable.engine.change import creation
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Append
from blztable.engine.change.creation import NewTable
from blztable.engine.change.reliance import ReadSet
from blztable.engine.version import in_flight, versions
from blztable.engine.version.begin import OpenCommit
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.facts import joined
from blztable.engine.version.named_files import Files, named
from blztable.engine.version.new_files import FileNumbers, NewFiles
from blztable.engine.version.staged import NewGroups, StagedColumn, StagedVersion
from blztable.engine.version.versions import Version
from blztable.engine.write.options import Storage, storage_of
from blztable.errors import (
    ConflictError,
    CorruptError,
    FormatError,
    SchemaError,
    TableNotFoundError,
)
from blztable.format import jsontext, layout
from blztable.format.jsontext import Json
from blztable.format.version_file import Tail
from blztable.storage.store import KeyNotFound, Lock, Store

MODES = ("a", "w", "x")
# What a job and a fragment say beside their versions.
_JOB = {"job": str, "path": str, "mode": str, "commit_id": str}
_FRAGMENT = {"job": str, "task": int, "durable": bool}


@dataclass(frozen=True, slots=True)
class Job:
    """A write that many processes share.

    Attributes
    ----------
    id : str
        The name of the job.
    path : str
        Path or URL of the table.
    mode : {"a", "w", "x"}
        Whether the rows are appended, or are those of a new table, which may replace one.
    commit_id : str
        The name of the commit.
    table : StagedVersion
        The version without rows.
    """

    id: str
    path: str
    mode: str
    commit_id: str
    table: StagedVersion

    def encode(self) -> str:
        """Return the job as text."""
        facts: dict[str, Json] = {"job": self.id, "path": self.path, "mode": self.mode}
        return _text({**facts, "commit_id": self.commit_id}, self.table)

    @classmethod
    def decode(cls, text: str, store: Store) -> Self:
        """Read a job of the table in a store."""
        values, data = _parsed(text, "a job", _JOB)
        name, path, mode, commit_id = (str(values[key]) for key in _JOB)
        if mode not in MODES:
            raise FormatError(f"a job of the mode {mode!r:.50}; expected one of {MODES}")
        table = StagedVersion.of(_version(store, data, f"job {name}"))
        if table.group_count:
            raise CorruptError(f"job {name} has rows; pass what begin() returned")
        table = replace(table, base=None) if mode != "a" else table
        return cls(name, path, mode, commit_id, table)


def path_of(text: str) -> str:
    """Return the path of the table of a job."""
    return str(_parsed(text, "a job", _JOB)[0]["path"])


@dataclass(frozen=True, slots=True)
class Fragment:
    """The rows of one task, as a version that has nothing else."""

    task: int
    is_durable: bool
    version: Version

    @classmethod
    def decode(cls, text: str, job: Job, store: Store) -> Self:
        """Read a fragment of a job; CorruptError if it is none, ConflictError if of another one."""
        values, data = _parsed(text, "a fragment", _FRAGMENT)
        if values["job"] != job.id:
            raise ConflictError(
                f"{job.path}: a fragment of job {values['job']!r:.100}, found where one of job "
                f"{job.id!r} was expected; commit each job with its own fragments"
            )
        version = _version(store, data, f"a fragment of job {job.id}")
        empty, is_flat = job.table, all(run.level == 0 for run in version.facts.runs)
        is_same = version.paths == empty.paths and version.head.uuid == empty.head.uuid
        is_same = is_same and version.schema.equals(empty.schema, check_metadata=True)
        if not is_same or not is_flat or version.deleted_rows:
            raise CorruptError(f"a fragment of job {job.id} has other columns than the job")
        return cls(int(str(values["task"])), bool(values["durable"]), version)

    @property
    def files(self) -> Files:
        """The files of the fragment."""
        return named(self.version)


def _change(job: Job, fragments: Sequence[Fragment]) -> Append:
    """Return the change that adds the rows of fragments."""
    paths = job.table.paths
    runs = [run for one in fragments for run in one.version.facts.runs]
    run = joined(runs, 0, len(paths))
    records, entries = run.records(), range(len(run))
    written = [StagedColumn(path, records.of([n], entries)) for n, path in enumerate(paths)]
    groups = NewGroups(run.groups["rows"].tolist(), run.groups["file"].tolist())
    files = frozenset(key for one in fragments for key in one.files)
    return Append(ReadSet.columns_of(job.table), groups, written, files=files)


def _text(facts: Mapping[str, Json], version: StagedVersion) -> str:
    """Return some facts and an unpublished version as text with a checksum."""
    run = joined(version.facts.runs, 0, len(version.paths))
    groups = run.groups.copy()
    groups["changed"] = 0
    head = replace(
        version.head,
        version=max(version.head.version, 1),
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        requires=version.features,
        parent=0,
        lasting=0,
        changed=0,
        history=(),
        commit_ids=(),
        tags={},
        did={},
    )
    data = versions.encode(head, version.schema, [Tail(groups, run.deleted, run.records())])
    whole: dict[str, Json] = {**facts, "version": base64.b64encode(data).decode()}
    return jsontext.dumps({**whole, "sha256": _digest(whole)}).decode()


def _digest(values: Mapping[str, Json]) -> str:
    return hashlib.sha256(jsontext.dumps(dict(sorted(values.items())))).hexdigest()


def _parsed(text: str, what: str, kinds: Mapping[str, type]) -> tuple[dict[str, Json], bytes]:
    """Return the facts of a text and the bytes of its version."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a text, not {type(text).__name__}")
    values = jsontext.loads(text.encode(), what)
    data = values.get("version") if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(data, str):
        raise FormatError(f"the text is not {what}; pass what begin() or write_fragment() returned")
    if values.pop("sha256", None) != _digest(values):
        raise CorruptError(f"{what} does not match its checksum; pass the text as it was returned")
    if any(type(values.get(name)) is not kind for name, kind in kinds.items()):
        raise FormatError(f"the text is not {what}; pass what begin() or write_fragment() returned")
    return values, base64.b64decode(data)


def _version(store: Store, data: bytes, name: str) -> Version:
    return versions.decode(store, name, data)


def begin_append(store: Store, commit_id: str | None) -> tuple[Job, ExitStack]:
    """Begin a job that appends to a table; return also the lock that keeps its files."""
    held = _announced(store)
    with held:
        version, pinned = versions.pin(store)
        with pinned:
            empty = StagedVersion.of_tail(
                store, version.head, version.schema, Tail.empty(len(version.paths))
            )
            empty = replace(empty, _schema_bytes=version.schema_bytes)
            return _job(store, "a", commit_id, empty), held.pop_all()


def begin_new(
    store: Store,
    new: NewTable,
    storage: Storage,
    attributes: Mapping[str, Json],
    *,
    mode: str,
    commit_id: str | None,
    is_durable: bool,
) -> tuple[Job, ExitStack]:
    """Begin a job that makes a table; return also the lock that keeps its files."""
    keys, is_replacement = creation.checked(new, storage), mode == "w"
    plan = CommitPlan(store, is_durable, may_create=True, is_replacement=is_replacement)
    with Commit(plan) as commit:
        empty = creation.empty(
            commit, new, storage, keys, attributes, replace_existing=is_replacement
        )
        # Before the commit ends: without a manifest, another writer removes what it finds.
        held = _announced(store)
    return _job(store, mode, commit_id, empty), held


def _announced(store: Store) -> ExitStack:
    """Announce files in flight, where that keeps a vacuum away."""
    try:
        return in_flight.writing(store) if store.locks else ExitStack()
    except KeyNotFound:
        raise versions.no_table(store) from None


def _job(store: Store, mode: str, commit_id: str | None, empty: StagedVersion) -> Job:
    assert store.path is not None, "the caller has looked"
    name = secrets.token_hex(8)
    return Job(name, store.path, mode, commit_id or f"job {name}", empty)


class FragmentCommit(Commit):
    """The first two steps of a commit, whose files stay for another process to publish."""

    def __enter__(self) -> Self:
        store, base = self.plan.store, self.plan.base
        assert base is not None, "a fragment is of a job"
        locks = _announced(store)
        files = NewFiles(store, base.head.next_column)
        files.numbers = FileNumbers(base.head.next_file, by_clock=True)
        self._opened = OpenCommit(self.plan, base, None, files, False, os.getpid(), locks)
        return self


def begun(job: Job, store: Store, *, is_durable: bool) -> FragmentCommit:
    """Return the commit of one fragment."""
    return FragmentCommit(CommitPlan(store, is_durable, base=job.table))


def change_set(job: Job, commit: Commit) -> ChangeSet:
    """Return the change set of one fragment, to which rows are appended."""
    return ChangeSet(commit, storage_of(job.table.head.properties), job.table)


def finished(job: Job, changes: ChangeSet, task: int) -> str:
    """Flush a fragment, if it is to be durable; return it as text."""
    staged, commit, empty = changes.staged, changes.commit, job.table
    if staged.paths != empty.paths or not staged.schema.equals(empty.schema, check_metadata=True):
        changed = [
            field.name
            for field, other in zip(staged.schema, empty.schema, strict=False)
            if field != other
        ]
        raise SchemaError(
            f"{job.path}: columns {changed!r:.300} get another type by these rows; begin the job "
            "with schema= that has it"
        )
    if commit.plan.is_durable:
        commit.files.flush(staged.files(), None)
    staged = staged.with_head(
        next_file=commit.files.numbers.following,
        attributes={},
        properties={},
        pandas=None,
        metalayers={},
    )
    facts: dict[str, Json] = {"job": job.id, "task": task, "rows": staged.head.rows}
    return _text({**facts, "durable": commit.plan.is_durable}, staged)


def chosen(job: Job, texts: Iterable[str], store: Store) -> list[Fragment]:
    """Return the first fragment of each task, in the order of the tasks; all files are there."""
    by_task: dict[int, Fragment] = {}
    for text in texts:
        fragment = Fragment.decode(text, job, store)
        by_task.setdefault(fragment.task, fragment)
    fragments = [by_task[task] for task in sorted(by_task)]
    _check_there(store, fragments)
    return fragments


def append(changes: ChangeSet, job: Job, texts: Iterable[str], rows: int | None = None) -> None:
    """Add the rows of fragments to a transaction, or to a new table; nothing is written."""
    store = changes.staged.store
    if job.table.head.uuid != changes.staged.head.uuid:
        raise ConflictError(
            f"{store.name}: the job was begun for another table; it was removed or replaced since"
        )
    fragments = chosen(job, texts, store)
    found = sum(one.version.head.rows for one in fragments)
    if rows is not None and found != rows:
        raise ConflictError(
            f"{store.name}: {len(fragments)} fragments have {found:,} rows; expected {rows:,}: a "
            "fragment is missing, or there is one too many"
        )
    if changes.commit.plan.is_durable:
        unflushed = [key for one in fragments if not one.is_durable for key in one.files]
        if unflushed:
            store.flush(unflushed)
    if found:
        last = max(one.version.head.next_file for one in fragments)
        changes.commit.files.numbers.skip_to(last)
        changes.add("append", _change(job, fragments))
        changes.count(appended=found)


def publish_new(
    job: Job, texts: Sequence[str], store: Store, *, is_durable: bool, rows: int | None
) -> tuple[Version, Lock]:
    """Commit the fragments of a job as a new table."""
    is_replacement = job.mode == "w"
    plan = CommitPlan(
        store,
        is_durable,
        may_create=True,
        is_replacement=is_replacement,
        commit_id=job.commit_id,
    )
    with Commit(plan) as commit:
        changes = ChangeSet(commit, storage_of(job.table.head.properties), job.table)
        append(changes, job, texts, rows)
        staged = changes.staged
        published = creation.publish(
            commit, staged, lambda _: job.table.frame, replace_existing=is_replacement
        )
    commit.emit_warnings()
    return published


def _check_there(store: Store, fragments: Sequence[Fragment]) -> None:
    """Raise CorruptError unless all files are there and whole, ConflictError if they are old."""
    oldest = ("", 0.0)
    for one in fragments:
        prefixes: dict[str, Files] = {}
        for key, file in one.files.items():
            prefixes.setdefault(key.rpartition("/")[0], {})[key] = file
        for prefix, files in prefixes.items():
            found = _found(store, prefix, files)
            for key, file in files.items():
                size, time = found.get(key, (-1, 0.0))
                if size < file.size:
                    raise CorruptError(
                        f"{store.name}/{key} is gone or cut short: a vacuum removed the fragment "
                        f"of task {one.task}, because nobody held its job; write it again"
                    )
                oldest = min(oldest, (key, time), key=lambda pair: pair[1] if pair[0] else 1e99)
    if not store.locks and oldest[0]:
        age, limits = store.age(oldest[0]), tuning.current
        if age > limits.orphan_seconds - limits.orphan_margin:
            raise ConflictError(
                f"{store.name}: files of this job are {age / 86_400:.1f} days old, and a vacuum "
                "may have removed them; write the fragments again"
            )


def _found(store: Store, prefix: str, files: Files) -> dict[str, tuple[int, float]]:
    """Return the sizes and times of files below a prefix: by one list where requests take long."""
    if store.fetches:
        # Keys of the clock ascend, so what comes before the first one is not listed.
        listed = store.entries(prefix, after=min(files)[:-1])
        return {entry.key: (entry.size, entry.time) for entry in listed}
    found = {}
    for key in files:
        with suppress(KeyNotFound), store.open(key) as value:
            found[key] = (value.size, 0.0)
    return found


def discard(job: Job, texts: Iterable[str], store: Store) -> int:
    """Remove the files of fragments that no version names; return their number."""
    keys: set[str] = set()
    for text in texts:
        keys.update(Fragment.decode(text, job, store).files)
    with in_flight.writers_lock(store, durable=False) if store.locks else ExitStack():
        least = min((layout.number_of(key) for key in keys), default=0)
        for number in versions.numbers(store) if keys else ():
            with suppress(KeyNotFound, TableNotFoundError):
                keys -= named(versions.read(store, number), least=least).keys()
        store.delete(sorted(keys))
    return len(keys)
