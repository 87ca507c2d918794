"""A store without locks, as a model: its keys, its requests, and what must hold at any moment.

A request happens at one moment: a store reads what was written, in lists as well. A data file is
its number and the rows in it: a file that was removed and written anew under its number is another
one, and a version that names the first reads wrong bytes.
"""

from typing import NamedTuple, TypeGuard

from support.interleaved.explore import call

File = tuple[int, frozenset[str]]

# The times of the clock. A commit refuses new files from LATE on, and a vacuum takes files that no
# version names when they are OLD; all files that are about age are made while it is FRESH.
FRESH, LATE, OLD = range(3)


class Version(NamedTuple):
    """The manifest of a version: its table, its data files, the rows deleted in them, its tags."""

    table: int
    files: tuple[File, ...]
    deleted: frozenset[str] = frozenset()
    tags: frozenset[int] = frozenset()
    commit: str = ""


# The manifest of a version that was removed; as the newest one, the table was dropped.
TOMBSTONE = Version(0, ())


class Store(NamedTuple):
    """The keys of a table and the clock; then what was promised to callers, which is no key.

    Attributes
    ----------
    manifests : tuple of Version or None
        The manifests under the numbers from 1 on; None if there is none.
    latest : tuple of int and Version, or None
        The hint `meta/latest`: a number, and a copy of the manifest.
    leases : frozenset of tuples
        A version, and who needs it.
    marks : frozenset of tuples
        A version, and which vacuum is about to remove it.
    table : int
        The table that is meant to be here; 0 after it was dropped.
    rows, deleted : frozenset of str
        The rows whose append was acknowledged, and those whose delete was.
    """

    manifests: tuple[Version | None, ...]
    files: frozenset[File]
    latest: tuple[int, Version] | None = None
    leases: frozenset[tuple[int, str]] = frozenset()
    marks: frozenset[tuple[int, str]] = frozenset()
    clock: int = FRESH
    table: int = 1
    rows: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()

    @property
    def newest(self) -> int:
        """Return the largest number of a manifest; 0 if there is none."""
        return max((n for n, found in enumerate(self.manifests, 1) if found is not None), default=0)

    def manifest(self, number: int) -> Version | None:
        """Return the manifest under a number, or None."""
        return self.manifests[number - 1] if 0 < number <= len(self.manifests) else None

    def with_manifest(self, number: int, version: Version | None) -> "Store":
        """Return the store with a manifest under a number, or without one."""
        gap = (None,) * (number - len(self.manifests) - 1)
        old = (*self.manifests, *gap)
        return self._replace(manifests=(*old[: number - 1], version, *old[number:]))

    def versions(self) -> dict[int, Version]:
        """Return the versions that are there; a tombstone is none."""
        return {n: one for n, one in enumerate(self.manifests, 1) if is_there(one)}


# What to begin with.

A, B, ORPHAN = ((n, frozenset([row])) for n, row in enumerate("abo", 1))
FIRST = Version(1, (A,))
SECOND = Version(1, (B,))
BOTH = Version(1, (A, B))
# A table of one version; of two versions, whose rows were replaced; of one with two files; none;
# one with a file that a killed writer left.
ONE = Store((FIRST,), frozenset([A]), rows=frozenset("a"))
TWO = Store((FIRST, SECOND), frozenset([A, B]), rows=frozenset("b"))
JOINED = Store((BOTH,), frozenset([A, B]), rows=frozenset("ab"))
NONE = Store((), frozenset())
LEFT = ONE._replace(files=frozenset([A, ORPHAN]))
# A table in one object; the rows that come are no files.
OBJECT = Store((Version(1, ()),), frozenset((0, frozenset(row)) for row in "xy"))


def is_there(manifest: Version | None) -> TypeGuard[Version]:
    """Return True for the manifest of a version: not missing, and not a tombstone."""
    return manifest is not None and manifest != TOMBSTONE


def judge(store: Store) -> str | None:
    """Return what is wrong with the newest version at this moment, or None.

    lost: it has not all rows whose append was acknowledged. doubled: it has a row twice. back: it
    has a row whose delete was acknowledged. gone: a data file of it is missing, or another one.
    untrue tag: a version that it tags was removed. other table: it is of a table that was dropped.
    """
    newest = store.manifest(store.newest)
    if not is_there(newest):
        return "lost" if store.rows else None
    if newest.table != store.table:
        return "other table"
    if not store.files.issuperset(newest.files):
        return "gone"
    rows = [row for _, content in newest.files for row in content]
    if not store.rows <= set(rows):
        return "lost"
    if len(rows) > len(set(rows)):
        return "doubled"
    if store.deleted & set(rows) - newest.deleted:
        return "back"
    return None if newest.tags <= store.versions().keys() else "untrue tag"


# Manifests.


@call
def list_newest(store: Store):
    """LIST: the largest number; True if it is a tombstone, which its size tells."""
    return store, (store.newest, store.manifest(store.newest) == TOMBSTONE)


@call
def list_versions(store: Store):
    """LIST: the numbers that are no tombstones."""
    return store, tuple(store.versions())


@call
def list_etag(store: Store):
    """LIST: the largest number with its ETag, for which the manifest stands."""
    return store, (store.newest, store.manifest(store.newest))


@call
def get(store: Store, number: int):
    """GET of a manifest: None if it is not there."""
    return store, store.manifest(number)


@call
def create(store: Store, number: int, version: Version, promised: str = "", deleted: str = ""):
    """PUT of a manifest if there is none; the reply tells a caller that its change is made."""
    if store.manifest(number) is not None:
        return store, False
    return _told(store.with_manifest(number, version), promised, deleted), True


@call
def create_restored(store: Store, number: int, version: Version):
    """Do the same for a version whose rows, and no others, are to be there."""
    if store.manifest(number) is not None:
        return store, False
    rows = frozenset(row for _, content in version.files for row in content)
    return store.with_manifest(number, version)._replace(rows=rows), True


@call
def create_while_fresh(store: Store, number: int, version: Version, promised: str):
    """Do the same if the new files are not old yet; None if they are."""
    return (store, None) if store.clock else create(number, version, promised).outcomes(store)[0]


@call
def is_fresh(store: Store):
    """No request: True if files that were new at first are not old yet, by the store's clock."""
    return store, store.clock == FRESH


@call
def replace(store: Store, number: int, version: Version, old: Version | None, promised: str):
    """PUT of a value in the place of `old`: only if that is there, or if None, in any case."""
    if old is not None and store.manifest(number) != old:
        return store, False
    return _told(store.with_manifest(number, version), promised, ""), True


@call
def create_badly(store: Store, number: int, version: Version):
    """Do the same where replies are lost: True, False ("taken", perhaps by ourselves) or None."""
    if store.manifest(number) is not None:
        return [(store, False), (store, None)]
    made = store.with_manifest(number, version)
    return [(made, True), (made, False), (made, None), (store, None)]


@call
def tell(store: Store, promised: str):
    """No request: the caller of an append is told that it is made."""
    return _told(store, promised, ""), None


def _told(store: Store, promised: str, deleted: str) -> Store:
    """Return the store after a caller was told of an append, or of a delete."""
    if promised:
        store = store._replace(rows=store.rows | {promised})
    return store._replace(deleted=store.deleted | {deleted}) if deleted else store


@call
def bury(store: Store, number: int, manifest: Version | None):
    """PUT of a tombstone, or DELETE of a manifest."""
    return store.with_manifest(number, manifest), None


@call
def put_latest(store: Store, number: int, version: Version):
    """PUT of the hint, whatever it was."""
    return store._replace(latest=(number, version)), None


@call
def get_latest(store: Store):
    """GET of the hint."""
    return store, store.latest


@call
def newest_now(store: Store):
    """No request: the number of the newest version at this moment."""
    return store, store.newest


# Data files.


@call
def create_file(store: Store, number: int, content: frozenset[str]):
    """PUT of a data file if there is none with its number."""
    if any(taken == number for taken, _ in store.files):
        return store, False
    return store._replace(files=store.files | {(number, content)}), True


@call
def create_file_badly(store: Store, number: int, content: frozenset[str]):
    """Do the same where replies are lost: "taken" may be by ourselves."""
    made, is_made = create_file(number, content).outcomes(store)[0]
    return [(made, True), (made, False)] if is_made else [(store, False)]


@call
def create_file_while_fresh(store: Store, number: int, content: frozenset[str]):
    """Do the same as the first thing of a story about age; later files have none to tell."""
    return (store, False) if store.clock else create_file(number, content).outcomes(store)[0]


@call
def create_next_file(store: Store, number: int, content: frozenset[str]):
    """PUT of a data file under the first number from `number` on that no file has."""
    taken = {taken for taken, _ in store.files}
    while number in taken:
        number += 1
    return store._replace(files=store.files | {(number, content)}), number


@call
def get_file(store: Store, number: int):
    """GET of a data file: its rows, or None."""
    return store, next((content for one, content in store.files if one == number), None)


@call
def files_are_there(store: Store, version: Version):
    """GET of all data files of a version: True if they are what it names."""
    return store, store.files.issuperset(version.files)


@call
def list_files(store: Store, clock: int = FRESH):
    """LIST of data files: the numbers of those that are so old, which is all or none."""
    return store, frozenset(n for n, _ in store.files if store.clock >= clock)


@call
def delete_file(store: Store, number: int):
    """DELETE of a data file, by its name."""
    return store._replace(files=frozenset(one for one in store.files if one[0] != number)), None


# Leases and marks.


@call
def put_lease(store: Store, number: int, who: str):
    """PUT of a lease."""
    return store._replace(leases=store.leases | {(number, who)}), None


@call
def delete_lease(store: Store, number: int, who: str):
    """DELETE of a lease."""
    return store._replace(leases=store.leases - {(number, who)}), None


@call
def list_leases(store: Store):
    """LIST of leases: the versions that somebody needs."""
    return store, frozenset(number for number, _ in store.leases)


@call
def put_marks(store: Store, numbers: tuple[int, ...], who: str):
    """PUT of the marks of a vacuum."""
    return store._replace(marks=store.marks | {(number, who) for number in numbers}), None


@call
def delete_marks(store: Store, numbers: tuple[int, ...], who: str):
    """DELETE of marks of a vacuum."""
    return store._replace(marks=store.marks - {(number, who) for number in numbers}), None


@call
def list_marks(store: Store):
    """LIST of marks: the versions that some vacuum is about to remove."""
    return store, frozenset(number for number, _ in store.marks)


@call
def tick(store: Store):
    """No request: days pass."""
    return store._replace(clock=store.clock + 1), None


@call
def remove_everything(store: Store):
    """DELETE of all keys."""
    return Store((), frozenset(), clock=store.clock, table=0), True


@call
def create_tombstone(store: Store, number: int):
    """PUT of a tombstone if there is no manifest: the table is dropped, and its rows with it."""
    if store.manifest(number) is not None:
        return store, False
    return store.with_manifest(number, TOMBSTONE)._replace(table=0, rows=frozenset()), True


@call
def create_table(store: Store, number: int, version: Version, promised: str):
    """PUT of the manifest of a new table if there is none; from now on it is the one meant."""
    made, is_made = create(number, version, promised).outcomes(store)[0]
    return (made._replace(table=version.table) if is_made else store), is_made
