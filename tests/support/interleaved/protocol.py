"""The protocol of tables on stores without locks, as a model: a store, and agents that use it.

Each agent follows the rules of `docs/crash-safety.md` for tables without locks. Each rule is a
flag, so that a test can show what goes wrong without it. A call is one request, and happens at one
moment: stores read what they wrote, in lists as well. `judge` says what must hold at any moment;
readers raise `Broken` if they find what must not be.

A data file is its number and its content: a file that was removed and written anew under the same
number is another file, and whoever names the first one reads wrong bytes.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

from support.interleaved.explore import Call, call

File = tuple[int, frozenset[str]]  # its number, and the rows in it
Steps = Generator[Call, Any, Any]

# The clock has three times: before the age at which commits refuse new files, before the age at
# which vacuums take files that no version names, and after both.
FRESH, LATE, OLD = range(3)


class Version(NamedTuple):
    """A manifest."""

    table: int
    files: frozenset[File]
    deleted: frozenset[str] = frozenset()
    tags: frozenset[int] = frozenset()
    # Who made it, as far as anybody asks.
    commit: str = ""

    def with_file(self, file: File, commit: str = "") -> "Version":
        return self._replace(files=self.files | {file}, commit=commit)


# The manifest of a version that was removed, or, as the newest one, of a table that was dropped.
TOMBSTONE = Version(0, frozenset())


class Store(NamedTuple):
    """The keys of a table, the clock, and what is promised, which no agent can read.

    Attributes
    ----------
    manifests : tuple of Version or None
        The manifest of each number from 1 on; None if the key is not there.
    latest : tuple of int and Version, or None
        The hint `meta/latest`: a number, and the manifest under it.
    leases : frozenset
        A version, and who needs it.
    marks : frozenset
        A version, and which vacuum is about to remove it.
    table : int
        The table that is meant to be here; 0 after it was dropped.
    rows, gone : frozenset of str
        The rows whose append was acknowledged; those whose delete was.
    """

    manifests: tuple[Version | None, ...]
    files: frozenset[File]
    latest: tuple[int, Version] | None = None
    leases: frozenset[tuple[int, str]] = frozenset()
    marks: frozenset[tuple[int, str]] = frozenset()
    clock: int = FRESH
    table: int = 1
    rows: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

    @property
    def newest(self) -> int:
        """Return the largest number of a manifest; 0 if there is none."""
        return max((n for n, found in enumerate(self.manifests, 1) if found is not None), default=0)

    def manifest(self, number: int) -> Version | None:
        return self.manifests[number - 1] if 0 < number <= len(self.manifests) else None

    def with_manifest(self, number: int, version: Version | None) -> "Store":
        gap: tuple[None, ...] = (None,) * (number - len(self.manifests) - 1)
        before = (*self.manifests, *gap)
        return self._replace(manifests=(*before[: number - 1], version, *before[number:]))

    def versions(self) -> dict[int, Version]:
        """Return the versions that are there: no tombstones."""
        pairs = enumerate(self.manifests, 1)
        return {n: one for n, one in pairs if one is not None and one != TOMBSTONE}


def judge(store: Store) -> str | None:
    """Return what is wrong with a store at this moment.

    lost: an acknowledged row is not in the newest version; doubled: a row is in it twice; back: a
    row whose delete was acknowledged is in it again; gone: a file of the newest version is missing;
    untrue tag: a tag of the newest version names a version that was removed; other table: the
    newest version is one of a table that was dropped.
    """
    newest = store.manifest(store.newest)
    if newest is None or newest == TOMBSTONE:
        return "lost" if store.rows else None
    if newest.table != store.table:
        return "other table"
    if not newest.files <= store.files:
        return "gone"
    rows = [row for _, content in newest.files for row in content]
    if not store.rows <= set(rows):
        return "lost"
    if len(rows) > len(set(rows)):
        return "doubled"
    if store.gone & set(rows) - newest.deleted:
        return "back"
    if not newest.tags <= store.versions().keys():
        return "untrue tag"
    return None


# Calls of the store.


@call
def list_newest(store: Store) -> tuple[Store, tuple[int, Version | None]]:
    """LIST of manifests: the largest number, and the ETag, which is the manifest here."""
    return store, (store.newest, store.manifest(store.newest))


@call
def get(store: Store, number: int) -> tuple[Store, Version | None]:
    return store, store.manifest(number)


@call
def create(
    store: Store, number: int, version: Version, row: str = "", gone: str = ""
) -> tuple[Store, bool]:
    """Create a manifest; with it, an append or delete of a row counts as acknowledged."""
    if store.manifest(number) is not None:
        return store, False
    return _promised(store.with_manifest(number, version), row, gone), True


def _promised(store: Store, row: str = "", gone: str = "") -> Store:
    return store._replace(
        rows=store.rows | ({row} if row else frozenset()) - ({gone} if gone else frozenset()),
        gone=store.gone | ({gone} if gone else frozenset()),
    )
