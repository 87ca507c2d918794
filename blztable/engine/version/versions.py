"""Versions: list the versions of a table, read one, and pin one.

A pin is a shared lock on the manifest. While it is held, neither the manifest nor a file that it
names is removed. Opening needs no repair: the newest manifest is the table.
"""

import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.nested.nodes import Node
from blztable.arrow.types import stored_type, value_type
from blztable.cached import Cache, trim
from blztable.caller import stack_level
from blztable.columns.parts.physical import physical
from blztable.engine.version import schema, unlocked
from blztable.engine.version.facts import Facts, Leaves, Run, records_of
from blztable.engine.version.node_parts import NodeParts
from blztable.engine.version.schema import depths_of, node_schema, roots_of
from blztable.errors import (
    BlzError,
    CorruptError,
    FormatError,
    LimitError,
    StorageError,
    TableNotFoundError,
)
from blztable.format import jsontext, layout
from blztable.format.bounds import Order
from blztable.format.deletions import Deleted, DeletedIn
from blztable.format.jsontext import Json
from blztable.format.latest import MOST_BYTES
from blztable.format.layout import Path
from blztable.format.manifest import DELETIONS, UNLOCKED, Head
from blztable.format.records import PART, Records, join
from blztable.format.version_file import REMOVED, Tail, VersionFile, encode_version
from blztable.storage.store import Damaged, KeyNotFound, Lock, Nothing, Store

# What a version takes in memory, about: so many times its bytes.
KEPT_FACTOR = 4

T = TypeVar("T")
E = TypeVar("E", bound=BlzError)

# What is asked of more than one in so many row groups is read of all of them, once.
SOME = 4
# No file, in `_places`.
NOWHERE = 1

# How often a change is made again after a conflict, and the seconds after which it is not.
RETRIES, RETRY_SECONDS = 5, 30
# Errors that the bytes of a file cause.
DAMAGED = (CorruptError, FormatError, LimitError)


@dataclass(frozen=True, slots=True)
class Version:
    """A version: its head, its schema, and the facts of its parts, which are read when needed.

    Each node of a field, at every level of its type, has a line: its number in pre-order.
    """

    store: Store
    head: Head
    schema: pa.Schema
    facts: Facts
    # The schema as the version has it.
    _schema_bytes: bytes = field(default=b"", repr=False, kw_only=True)
    # What was made of the facts and the schema; versions of the same bytes may share it.
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _parts: dict[int, NodeParts] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # The line of each field's root, and at the end the number of lines; of another version with the
    # same columns, because it takes long for very many.
    roots: Sequence[int] = field(default=(), repr=False, kw_only=True)

    def __post_init__(self) -> None:
        """Match fields with lines; raise CorruptError if nodes of a field are missing."""
        if not self.roots:
            object.__setattr__(self, "roots", roots_of(self.schema, self.paths))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The path of each node, in pre-order."""
        return self.head.paths

    @property
    def group_count(self) -> int:
        """Number of row groups; no leaf is read for it."""
        return self.facts.count

    @property
    def row_groups(self) -> tuple[int, ...]:
        """The live rows of each row group."""
        return self.made("row_groups", lambda: tuple(self.facts.groups["rows"].tolist()))

    @property
    def stored_rows(self) -> tuple[int, ...]:
        """The rows that the parts of each row group hold: the live and the deleted ones."""
        return self.made("stored_rows", lambda: tuple(self.facts.groups["stored"].tolist()))

    @property
    def deleted(self) -> Deleted:
        """The deleted rows of each row group; empty if there are none."""
        if not self.facts.deleted_rows:
            return ()
        return self.made("deleted", lambda: tuple(self.facts.words()))

    def deleted_in(self, groups: Iterable[int]) -> DeletedIn:
        """Return the deleted rows of some row groups, by their indices; empty if there are none.

        Only the leaves that have these row groups are read.
        """
        chosen = sorted({*groups}) if self.deleted_rows else []
        if not chosen or "deleted" in self._made or len(chosen) * SOME > self.group_count:
            return self.deleted if chosen else ()
        return dict(zip(chosen, self.facts.words(np.array(chosen)), strict=True))

    @property
    def all_deleted(self) -> Deleted:
        """`deleted` of each row group, also where there are none."""
        return self.deleted or self.made("none deleted", lambda: (b"",) * self.group_count)

    @property
    def deleted_rows(self) -> int:
        """Number of rows that parts hold, and that are no rows of the table."""
        return self.facts.deleted_rows

    @property
    def bundles(self) -> tuple[int, ...]:
        """The number of the bundle of each row group, 0 for none."""
        return self.made("bundles", lambda: tuple(self.facts.groups["file"].tolist()))

    def made(self, name: str, make: Callable[[], T]) -> T:
        """Return what was made of this version under a name, or make it.

        It must follow from the bytes of the version alone, because other tables may get it, too.
        """
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def nbytes(self, line: int) -> int:
        """Return the decoded bytes of a node; no leaf is read for it."""
        return self.facts.total(line)[0]

    def cbytes(self, line: int) -> int:
        """Return the bytes of the chunks of a node; no leaf is read for it."""
        return self.facts.total(line)[1]

    @property
    def is_flat(self) -> bool:
        """True if no field has a nested type, so that each has one line."""
        return isinstance(self.roots, range)

    def nodes(self, index: int) -> range:
        """Return the lines of a field's nodes, in pre-order; the first is the root."""
        return range(self.roots[index], self.roots[index + 1])

    def field_of(self, line: int) -> int:
        """Return the index of the field that a node belongs to."""
        return bisect_right(self.roots, line) - 1

    def node(self, line: int) -> pa.Field:
        """Return the flat type of a node, and its path of names as the name of a field."""
        if isinstance(self.roots, range):
            return self.schema.field(line)
        nodes = self.made("nodes", lambda: node_schema(self.schema))
        return nodes.field(line)

    def parts(self, line: int) -> NodeParts:
        """Return the parts of a node in all row groups; they are read once."""
        parts = self._parts.get(line)
        if parts is None:
            groups = self.facts.groups
            parts = NodeParts(self.paths[line], self.records([line]), groups["file"])
            self._parts[line] = parts
        return parts

    def records(
        self, lines: Sequence[int], groups: Sequence[int] | np.ndarray | None = None
    ) -> Records:
        """Return the records of some nodes in some row groups, which ascend; None means all.

        Only the leaves that have these row groups are read.
        """
        wanted = None if groups is None else np.asarray(groups, np.int64)
        records = self.facts.records(lines, wanted)
        if not len(lines):
            return records
        known = self.facts.groups if wanted is None else self.facts.group_records(wanted)
        return self._compared(lines, records, known)

    def records_of(self, lines: Sequence[int], runs: Sequence[Run]) -> Records:
        """Return the records of some nodes in the row groups of some runs of `pruned`."""
        if not runs or not len(lines):
            entries = sum(map(len, runs))
            return Records(len(lines), entries, np.zeros(0, PART))
        records = join(records_of(runs, lines))
        return self._compared(lines, records, np.concatenate([run.groups for run in runs]))

    def _compared(self, lines: Sequence[int], records: Records, known: np.ndarray) -> Records:
        """Return records of some nodes if they agree with those of their row groups."""
        shared = [place for place, line in enumerate(lines) if self._shares_rows(line)]
        rows = records.parts["rows"].reshape(len(lines), records.entries)[shared]
        if (rows != known["stored"]).any():
            raise CorruptError(f"{self._context}: the rows of a column differ from the table's")
        # A small file that is named many times would fill any memory.
        places = np.sort(_places(records, known["file"]), 1)
        is_twice = (places[:, 1:] == places[:, :-1]) & (places[:, 1:] > NOWHERE)
        if is_twice.any():
            number = int(places[:, 1:][is_twice][0]) // 2
            raise CorruptError(f"{self._context}: two row groups have the same file {number}")
        return records

    def _shares_rows(self, line: int) -> bool:
        """True if a node has the rows of the table: a column, or a field of structs in one."""
        if self.is_flat:
            return True

        def make() -> list[bool]:
            nodes = (Node.of(field.type).share_rows() for field in self.schema)
            return list(chain.from_iterable(nodes))

        return self.made("shares_rows", make)[line]

    def pruned(
        self, lines: Sequence[int], keep: Callable[[Records], np.ndarray]
    ) -> Iterator[tuple[int, int, Run]]:
        """Yield the runs of row groups below the leaves that are kept; see `Facts.pruned`."""
        return self.facts.pruned(lines, keep)

    def group_records(self, groups: np.ndarray) -> np.ndarray:
        """Return the record of each of some row groups, which ascend."""
        return self.facts.group_records(groups)

    def identities(self, lines: Sequence[int], groups: Sequence[int] | None = None) -> np.ndarray:
        """Return a row of numbers for each row group: its stored rows, and the file of each line.

        Two row groups of a table are the same in these columns if their numbers are equal, but for
        the rows that are deleted.
        """
        chosen = np.arange(self.group_count) if groups is None else np.asarray(groups)
        known = self.group_records(chosen)
        places = _places(self.records(lines, chosen), known["file"])
        return np.vstack([known["stored"].astype(np.int64), places]).T

    def located(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row group of each of some live rows, which ascend, and the rows before it."""
        return self.facts.located(rows)

    def first_rows(self, groups: np.ndarray) -> np.ndarray:
        """Return the number of live rows before each of some row groups, which ascend."""
        return self.facts.first_rows(groups)

    def rows_backwards(self) -> Iterator[int]:
        """Yield the live rows of each row group, the last first; leaves are read when needed."""
        for run in self.facts.backwards():
            yield from run.groups["rows"][::-1].tolist()

    def orders(self) -> list[Order]:
        """Return how the values of each node are compared."""
        nodes = self.schema if self.is_flat else map(self.node, range(len(self.paths)))
        return [order_of(field.type) for field in nodes]

    @property
    def schema_bytes(self) -> bytes:
        """The schema as the version has it."""
        return self._schema_bytes or self.made("schema", lambda: schema.encode(self.schema))

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


def _places(records: Records, bundles: np.ndarray) -> np.ndarray:
    """Return a number for the file of each part, by node and row group; NOWHERE or less for none.

    Two writers at a time may give one number to a bundle and a file of a column.
    """
    files = records.parts["file"].reshape(records.columns, records.entries)
    return 2 * files.astype(np.int64) + (files == bundles)


@lru_cache(maxsize=256)
def order_of(type_: pa.DataType) -> Order:
    """Return how the words of a type are compared; those without an order as numbers."""
    return physical(stored_type(value_type(type_))).order or Order.NUMBER


def numbers(store: Store) -> list[int]:
    """Return all version numbers, ascending; FormatError if the root is a file."""
    if store.lists and not store.locks:
        return unlocked.numbers(store)
    if not store.lists:
        return _numbers_found(store)
    try:
        names = store.list_names(layout.MANIFESTS)
    except CorruptError:
        if can_hold_table(store):
            raise
        raise FormatError(f"{store.name} is a file that holds no table") from None
    return sorted(filter(None, map(layout.manifest_version, names)))


def newest_number(store: Store) -> int | None:
    """Return the newest version number; None if there is no version."""
    if store.lists and not store.locks:
        return checked_newest(store)
    return max(numbers(store), default=None)


def checked_newest(store: Store) -> int | None:
    """Return the newest version number, None if there is none; see `checked_numbers`."""
    if store.lists and not store.locks:
        found = unlocked.newest(store)
        return None if found is None else found.number
    return max(checked_numbers(store), default=None)


def checked_numbers(store: Store) -> list[int]:
    """Return all version numbers; CorruptError if the newest one is missing, or lost in its file.

    `meta/sizes` is replaced after each publication and holds its version. It is read before the
    versions are listed, so its number is higher only if another program removed a manifest.
    """
    if not store.lists:
        return _numbers_found(store)
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


def _numbers_found(store: Store) -> list[int]:
    """Return the versions that are there, from the one on that documents name.

    Where nothing can be listed, nobody finds the older ones.
    """
    with store.fetch([(layout.LATEST, 0, MOST_BYTES), (layout.SIZES, 0, _SIZES_BYTES)]):
        first = max(unlocked.hinted_number(store), mirrored_number(store))
    found: list[int] = []
    while first:
        try:
            store.open(layout.manifest(first)).close()
        except KeyNotFound:
            break
        found.append(first)
        first += 1
    return found


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


def load(store: Store, number: int, manifest: bytes | None = None) -> Version:
    """Read the head of a version; KeyNotFound if it is gone, CorruptError if it is damaged.

    `manifest` are its bytes, if they have been read.
    """
    try:
        return _kept(store, number, manifest)
    except DAMAGED as error:
        place = f"{store.name}/{layout.manifest(number)}: "
        message = place + str(error).removeprefix(place)
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


def each(store: Store, numbers: Iterable[int]) -> Iterator[int]:
    """Yield numbers of versions that are about to be read; a store is asked for several at once."""
    if not store.fetches:
        yield from numbers
        return
    waiting = iter(numbers)
    while some := list(islice(waiting, tuning.current.requests)):
        with store.fetch([(layout.manifest(number), 0, MOST_BYTES) for number in some]):
            yield from some


def read(store: Store, number: int, size: int | None = None) -> Version:
    """Like `load`, but nothing is kept, and errors have neither path nor hint; for loops.

    `size` are the bytes of the manifest, if they are known.
    """
    key = layout.manifest(number)
    return _decoded(store, key, store.get(key, 0, size), number)


def _decoded(store: Store, key: str, data: bytes, number: int) -> Version:
    if data == REMOVED:
        raise KeyNotFound(key)
    version = decode(store, key, data)
    if version.head.version != number:
        raise CorruptError(f"the manifest is of version {version.head.version}")
    return version


class _Nowhere(NamedTuple):
    """The name of a store."""

    name: str


class _KeptManifest(NamedTuple):
    """The bytes of a version, and what was decoded and checked of them."""

    data: bytes
    version: Version

    def opened(self, store: Store) -> Version:
        """Return the version in a store that has these bytes; leaves are read again."""
        known, facts = self.version, self.version.facts
        version = Version(
            store,
            known.head,
            known.schema,
            Facts(Leaves(store), facts.runs, facts.columns),
            _schema_bytes=known._schema_bytes,
            roots=known.roots,
        )
        # What follows from leaves is not shared: their bytes are not compared here.
        if not any(run.level for run in facts.runs):
            object.__setattr__(version, "_made", known._made)
        return version


# The versions that tables of this process were opened at, the one used last at the end.
_kept_versions: Cache[tuple[str, str], _KeptManifest] = Cache()


def _kept(store: Store, number: int, manifest: bytes | None) -> Version:
    """Read a version; bytes that were decoded before are not decoded again."""
    key = layout.manifest(number)
    data = store.get(key) if manifest is None else manifest
    place = store.name, key
    known = _kept_versions.forget(place)
    if known is None or known.data != data:
        # A store that is kept would keep its descriptors open.
        nowhere: Any = _Nowhere(store.name)
        known = _KeptManifest(data, _decoded(nowhere, key, data, number))
    _kept_versions.keep(place, known, len(data) * KEPT_FACTOR)
    trim()
    store.belongs_to(known.version.head.uuid)
    return known.opened(store)


def encode(head: Head, fields: pa.Schema, tails: Sequence[Tail]) -> bytes:
    """Return the file of a version with these tails, from level 0 on."""
    leaves = [tail.encode(level) for level, tail in enumerate(tails)]
    return encode_version(head.to_json(), schema.encode(fields), leaves)


def decode(store: Store, key: str, data: bytes) -> Version:
    """Read the file of a version, which lies under a key; its leaves are in the store."""
    file = VersionFile.decode(data)
    encoded = bytes(file.schema)
    fields = schema.decode(encoded)
    head = Head.from_json(file.head, depths_of(fields))
    columns = len(head.paths)
    if file.leaves[0].columns != columns:
        raise CorruptError(f"the tails have {file.leaves[0].columns} columns; the head {columns}")
    runs = [Run.of_leaf(leaf, f"{store.name}/{key}") for leaf in reversed(file.leaves)]
    facts = Facts(Leaves(store), runs, columns)
    facts.check_count()
    if facts.rows != head.rows:
        raise CorruptError(f"row groups of {facts.rows} rows; the head says {head.rows}")
    if any(run.groups["changed"].max() > head.version for run in facts.runs):
        raise CorruptError(f"rows changed by a later version than {head.version}")
    if facts.deleted_rows and DELETIONS not in head.requires:
        raise CorruptError("there are deleted rows, and 'requires' lacks 'deletions'")
    return Version(store, head, fields, facts, _schema_bytes=encoded)


def latest(store: Store, before: int | None = None) -> Version | None:
    """Return the newest version that can be read, or that below `before`; None if there is none.

    A table that was dropped has no newest version.
    """
    there = numbers(store)
    if before is None and there and is_removed(store, there[-1]):
        return None
    for number in reversed([other for other in there if before is None or other < before]):
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


class Dropped(TableNotFoundError):
    """The newest version is a tombstone: the table was dropped."""


def is_table(store: Store) -> bool:
    """True if there is a version, and the table was not dropped; see `checked_numbers`."""
    if store.lists and not store.locks:
        found = unlocked.newest(store)
        return found is not None and not found.is_removed
    number = checked_newest(store)
    return number is not None and not is_removed(store, number)


def is_removed(store: Store, number: int) -> bool:
    """True if a tombstone stands for a version."""
    with suppress(KeyNotFound, CorruptError):
        return store.get(layout.manifest(number), 0, len(REMOVED) + 1) == REMOVED
    return False


def removed_meanwhile(version: Version) -> TableNotFoundError | None:
    """Return the error about a version that was removed while it was read; None if it is there.

    That happens only where no lock pins it.
    """
    store, number = version.store, version.head.version
    if store.locks:
        return None
    with suppress(KeyNotFound):
        if store.get(layout.manifest(number), 0, len(REMOVED) + 1) != REMOVED:
            return None
    return TableNotFoundError(
        f"version {number} of {store.name} was removed while it was read; open the table again"
    )


def _removed(store: Store, number: int) -> TableNotFoundError:
    """Return the error about a version that a tombstone stands for."""
    if number == newest_number(store):
        return dropped(store)
    return TableNotFoundError(f"version {number} of {store.name} was removed")


def dropped(store: Store) -> Dropped:
    """Return the error about a table that was dropped."""
    return Dropped(f"{no_table(store, ': it was dropped')}")


def settle(store: Store) -> None:
    """Rely on no lock from here on if the table says so; one that was dropped still does."""
    if store.locks and is_unlocked(store):
        store.rely_on_no_lock()


def is_unlocked(store: Store) -> bool:
    """True if the writers of the table rely on no lock, also if it was dropped."""
    there: list[int] = []
    with suppress(*DAMAGED):
        there = numbers(store)
    newest = latest(store, before=there[-1] + 1) if there else None
    return newest is not None and UNLOCKED in newest.head.requires


def pin(store: Store, number: int | None = None) -> tuple[Version, Lock]:
    """Open and pin a version, by default the newest one.

    Raises
    ------
    TableNotFoundError
        The table or this version of it does not exist.
    CorruptError
        The manifest is damaged; the message names the newest intact version, if any.
    """
    if number is None and store.lists and not store.locks:
        return _newest_unlocked(store), Nothing()
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
            version = load(store, selected)
            if UNLOCKED in version.head.requires:
                store.rely_on_no_lock()
            return version, lock
        except KeyNotFound:
            # A tombstone stands under its number, or nothing.
            lock.close()
            if number is None and newest_number(store) != selected:
                continue
            raise _removed(store, selected) from None
        except BaseException:
            lock.close()
            raise


def _newest_unlocked(store: Store) -> Version:
    """Read the newest version; list again if it was removed meanwhile, so there is a newer one."""
    while True:
        found = unlocked.newest(store)
        if found is None:
            raise no_table(store)
        if found.is_removed:
            raise dropped(store)
        with suppress(KeyNotFound):
            return load(store, found.number, found.manifest)


def can_hold_table(store: Store) -> bool:
    """True if the root does not exist yet or is a directory."""
    try:
        store.list_names("")
    except CorruptError as error:
        return isinstance(error, Damaged)
    return True


# More bytes than `meta/sizes` has.
_SIZES_BYTES = 4 << 10
_UNREADABLE = (CorruptError, FormatError, LimitError, StorageError, KeyNotFound)


def mirrored_number(store: Store) -> int:
    """Return the version number in `meta/sizes`; 0 if it cannot be read.

    If the store has no such document, return the version of its newest publication if that is lost.
    """
    try:
        if store.appends_only or store.publishes_all:
            return _lost_number(store)
        if store.lists and not store.locks:
            # Nobody writes it there, and a listing is never outdated.
            return 0
        data = store.get(layout.SIZES, 0, _SIZES_BYTES)
        sizes = jsontext.loads(data, layout.SIZES)
    except _UNREADABLE:
        return 0  # The table can be read without its mirror.
    number = sizes.get("version") if isinstance(sizes, dict) else None
    return number if type(number) is int and 0 < number <= layout.MAX_VERSION else 0


def _lost_number(store: Store) -> int:
    """Return the version of the newest publication if it is damaged; 0 if it is not."""
    keys = store.lost_keys()
    if keys is None:
        return 0
    start = layout.MANIFESTS + "/"
    lost = [key.removeprefix(start) for key in keys if key.startswith(start)]
    numbers = [layout.manifest_version(name) or 0 for name in lost]
    there = map(layout.manifest_version, store.list_names(layout.MANIFESTS))
    # Also if the head of its manifest is damaged, its number is not that of an earlier version.
    return max([*numbers, 1 + max(filter(None, there), default=0)])
