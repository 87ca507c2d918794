"""Writers, readers and vacuums of a table without locks, as agents of a model.

Each follows all rules of the protocol. Each rule is also a flag: without it, a test finds the order
of requests in which something breaks.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from support.interleaved import medium
from support.interleaved.explore import Broken, Call
from support.interleaved.medium import TOMBSTONE, File, Version, is_there

Steps = Generator[Call, Any, Any]
Agent = Callable[[], Steps]


def look() -> Steps:
    """Return the newest number and its version; None if there is no table, or it was dropped."""
    while True:
        number, is_dropped = yield medium.list_newest()
        if number == 0 or is_dropped:
            return number, None
        version = yield medium.get(number)
        if is_there(version):  # Else a vacuum removed it in between: there is a newer one.
            return number, version


def publish(
    change: "Change", number: int, version: Version | None, *, promised: str = "", deleted: str = ""
) -> Steps:
    """Create the manifest behind `version`; as long as its number is taken, look and change anew.

    Return the number and the version made; None if the change is refused, or the table is another.
    """
    while version is not None and version.table == change.table:
        made = change.of(version)
        if made is None:
            return None
        is_made = yield medium.create(number + 1, made, promised, deleted)
        if is_made:
            return number + 1, made
        number, version = yield from look()
    return None


class Change(Protocol):
    """What a writer makes of the newest version, whichever that is when it publishes."""

    table: int = 1

    def of(self, version: Version) -> Version | None:
        """Return the version that is to be published; None if the change is refused."""


@dataclass(frozen=True, slots=True)
class Naming(Change):
    """Name one more file."""

    number: int
    content: frozenset[str]

    def of(self, version: Version) -> Version:
        return version._replace(files=(*version.files, (self.number, self.content)))


@dataclass(frozen=True, slots=True)
class Deleting(Change):
    """Add a row to the deleted ones."""

    row: str

    def of(self, version: Version) -> Version:
        return version._replace(deleted=version.deleted | {self.row})


@dataclass(frozen=True, slots=True)
class Joining(Change):
    """Name one file for all files of the version `read`; with `checks`, keep newer deletes."""

    read: Version
    file: File
    checks: bool

    def of(self, version: Version) -> Version | None:
        count = len(self.read.files)
        if version.files[:count] != self.read.files:
            return None
        if self.checks and version.deleted != self.read.deleted:
            return None
        files = (self.file, *version.files[count:])
        return version._replace(files=files, deleted=self.read.deleted)


@dataclass(frozen=True, slots=True)
class Tagging(Change):
    """Tag a version."""

    number: int

    def of(self, version: Version) -> Version:
        return version._replace(tags=version.tags | {self.number})


# Writers.


def append(
    row: str, number: int, *, knows: tuple[int, Version] | None = None, hints: bool = False
) -> Agent:
    """Append a row in a file with a number of its own.

    A table that is open knows its newest version, so only the reply "taken" makes it look. With
    `hints` it puts `meta/latest`, some time afterwards.
    """

    def agent() -> Steps:
        content = frozenset([row])
        known, version = knows or (yield from look())
        yield medium.create_file(number, content)
        done = yield from publish(Naming(number, content), known, version, promised=row)
        if hints and done is not None:
            yield medium.put_latest(*done)

    return agent


def append_next_free(row: str, number: int) -> Agent:
    """Append a row in a file with the first number from `number` on that no file has."""

    def agent() -> Steps:
        content = frozenset([row])
        known, version = yield from look()
        found = yield medium.create_next_file(number, content)
        yield from publish(Naming(found, content), known, version, promised=row)

    return agent


def append_or_discard(row: str, number: int, *, only_own: bool = True) -> Agent:
    """Append a row in a file whose number another writer may have taken; if so, fail.

    A commit that fails deletes its files: with `only_own`, those whose creation it was told.
    """

    def agent() -> Steps:
        content = frozenset([row])
        known, version = yield from look()
        is_own = yield medium.create_file(number, content)
        if is_own:
            yield from publish(Naming(number, content), known, version, promised=row)
        elif not only_own:
            yield medium.delete_file(number)

    return agent


def append_late(row: str, number: int, *, looks_at_age: str = "as it creates") -> Agent:
    """Append a row in a file that is fresh at first, and perhaps old when a version names it.

    The commit looks at their age "as it creates" the manifest, "before" that, or "never".
    """

    def agent() -> Steps:
        content = frozenset([row])
        known, version = yield from look()
        is_fresh = yield medium.create_file_while_fresh(number, content)
        while is_fresh and version is not None:
            if looks_at_age == "before":
                is_fresh = yield medium.is_fresh()
                if not is_fresh:
                    return
            request = (
                medium.create_while_fresh if looks_at_age == "as it creates" else medium.create
            )
            is_made = yield request(known + 1, Naming(number, content).of(version), row)
            if is_made is not False:
                return
            known, version = yield from look()

    return agent


def append_losing_replies(
    row: str,
    number: int,
    knows: tuple[int, Version],
    *,
    compares: bool = True,
    tells_doubts: bool = True,
) -> Agent:
    """Append a row where replies are lost and the client repeats requests by itself.

    Told "taken", it compares what is there with what is its own: a data file by its content, a
    manifest by its commit. A manifest that was removed since then leaves open whose it was: the
    caller is told so.
    """

    def agent() -> Steps:
        content = frozenset([row])
        known, version = knows
        is_own = yield medium.create_file_badly(number, content)
        if not is_own:
            there = yield medium.get_file(number)
            assert there == content, "a number of a file is given out once"
        while version is not None:
            made = Naming(number, content).of(version)._replace(commit=row)
            is_own = None
            while is_own is None:  # No reply: the same bytes under the same number again.
                is_own = yield medium.create_badly(known + 1, made)
            if not is_own and compares:
                manifest = yield medium.get(known + 1)
                is_own = is_there(manifest) and manifest.commit == row
                if tells_doubts and not is_there(manifest):
                    return
            if is_own:
                yield medium.tell(row)
                return
            known, version = yield from look()

    return agent


def delete(row: str) -> Agent:
    """Add a row to the deleted rows of the newest version."""

    def agent() -> Steps:
        known, version = yield from look()
        yield from publish(Deleting(row), known, version, deleted=row)

    return agent


def compact(number: int, *, checks: bool = True) -> Agent:
    """Write all files as one; refuse to publish it if files or deleted rows have changed since."""

    def agent() -> Steps:
        known, read = yield from look()
        content = frozenset(row for _, rows in read.files for row in rows)
        yield medium.create_file(number, content)
        yield from publish(Joining(read, (number, content), checks), known, read)

    return agent


def tag(number: int, *, leases: bool = True) -> Agent:
    """Tag a version: take a lease, look for marks, publish, let go."""

    def agent() -> Steps:
        old = yield from _held(number, "tag", leases)
        if old is not None:
            known, version = yield from look()
            yield from publish(Tagging(number), known, version)
        yield medium.delete_lease(number, "tag")

    return agent


def tag_newest(*, leases: bool = True) -> Agent:
    """Tag the newest version, which needs a lease only if another version came meanwhile."""

    def agent() -> Steps:
        number, version = yield from look()
        is_made = yield medium.create(number + 1, Tagging(number).of(version))
        if not is_made:
            old = yield from _held(number, "tag", leases)
            if old is not None:
                known, version = yield from look()
                yield from publish(Tagging(number), known, version)
            yield medium.delete_lease(number, "tag")

    return agent


def restore(number: int, *, leases: bool = True) -> Agent:
    """Publish the files of an old version again: take a lease, look for marks, publish, let go."""

    def agent() -> Steps:
        old = yield from _held(number, "restore", leases)
        is_made = old is None
        while not is_made:
            known, version = yield from look()
            made = version._replace(files=old.files)
            is_made = yield medium.create_restored(known + 1, made)
        yield medium.delete_lease(number, "restore")

    return agent


def _held(number: int, who: str, leases: bool, looks_for_marks: bool = True) -> Steps:
    """Take a lease on a version, then look for marks; return the version, None if it goes."""
    if leases:
        yield medium.put_lease(number, who)
    if looks_for_marks:
        going = yield medium.list_marks()
        if number in going:
            return None
    version = yield medium.get(number)
    return version if is_there(version) else None


# Jobs: their files lie there long before a commit names them.


def job(row: str, number: int, *, looks_for_marks: bool = True) -> Agent:
    """Commit the file of a job that takes its time: it holds a lease on the file.

    It looks for the marks of vacuums and then for its file. If it is there, it stays.
    """

    def agent() -> Steps:
        content = frozenset([row])
        yield medium.create_file(number, content)
        yield medium.put_lease(number, "job")
        going = yield medium.list_marks()
        there = yield medium.get_file(number)
        if there == content and not (looks_for_marks and number in going):
            known, version = yield from look()
            yield from publish(Naming(number, content), known, version, promised=row)
        yield medium.delete_lease(number, "job")

    return agent


# Whoever removes something.


def vacuum(
    me: str,
    *,
    tombstones: bool = True,
    own_marks: bool = True,
    looks_at_leases: bool = True,
    looks_at_tags: bool = True,
    reads_again: bool = True,
    files_first: bool = True,
    orphans_at: int | None = None,
) -> Agent:
    """Remove all versions but the newest, the tagged ones and those with a lease; then orphans.

    Orphans are files that no version names when the clock is `orphans_at`. Data files are listed
    before manifests are read.
    """
    mark = me if own_marks else "any vacuum"

    def agent() -> Steps:
        orphans = frozenset()
        if files_first and orphans_at is not None:
            orphans = yield medium.list_files(orphans_at)
        expired = yield from _expired()
        yield medium.put_marks(expired, mark)
        leased = yield medium.list_leases()
        leased = leased if looks_at_leases else frozenset()
        versions = yield from _versions(reads_again)
        going, stay, go = _chosen(versions, expired, leased, looks_at_tags)
        if not files_first and orphans_at is not None:
            orphans = yield medium.list_files(orphans_at)
        files = tuple(sorted((orphans | go) - stay))
        yield from _remove(going, files, TOMBSTONE if tombstones else None)
        yield medium.delete_marks(expired, mark)

    return agent


def _expired() -> Steps:
    """Return the versions that are neither the newest nor tagged by it."""
    newest, version = yield from look()
    there = yield medium.list_versions()
    tags = version.tags if version is not None else frozenset()
    return tuple(number for number in there if number < newest and number not in tags)


def _versions(reads_again: bool = True) -> Steps:
    """Return the numbers and manifests of all versions.

    If another vacuum removed one before it was read, newer versions, which are not in the list, may
    name its files: all are listed again.
    """
    is_whole = False
    while not is_whole:
        numbers = yield medium.list_versions()
        versions: tuple[tuple[int, Version], ...] = ()
        for number in numbers:
            version = yield medium.get(number)
            if is_there(version):
                versions = (*versions, (number, version))
        is_whole = not reads_again or len(versions) == len(numbers)
    return versions


def _chosen(
    versions: tuple[tuple[int, Version], ...],
    expired: tuple[int, ...],
    leased: frozenset[int],
    looks_at_tags: bool = True,
) -> tuple[tuple[int, ...], frozenset[int], frozenset[int]]:
    """Return the versions that go, the files of those that stay, and the files of those that go."""
    newest = versions[-1][1] if versions else TOMBSTONE
    needed = leased | newest.tags if looks_at_tags else leased
    going = tuple(number for number, _ in versions if number in expired and number not in needed)
    stay: set[int] = set()
    go: set[int] = set()
    for number, version in versions:
        (go if number in going else stay).update(file for file, _ in version.files)
    return going, frozenset(stay), frozenset(go)


def _remove(versions: tuple[int, ...], files: tuple[int, ...], manifest: Version | None) -> Steps:
    """Put tombstones in the place of versions, then delete the files."""
    for number in versions:
        yield medium.bury(number, manifest)
    for number in files:
        yield medium.delete_file(number)


def sweep(number: int) -> Agent:
    """Remove an old file if no version names it."""

    def agent() -> Steps:
        there = yield medium.list_files()
        versions = yield from _versions()
        _, stay, _ = _chosen(versions, (), frozenset())
        if number in there and number not in stay:
            yield medium.delete_file(number)

    return agent


def sweep_jobs(me: str, *numbers: int, marks: bool = True) -> Agent:
    """Remove files of jobs that no version names and no job holds: mark, look at leases, read."""

    def agent() -> Steps:
        if marks:
            yield medium.put_marks(numbers, me)
        held = yield medium.list_leases()
        versions = yield from _versions()
        _, stay, _ = _chosen(versions, (), frozenset())
        yield from _remove((), tuple(n for n in numbers if n not in held | stay), None)
        yield medium.delete_marks(numbers, me)

    return agent


def drop(*, keeps_numbers: bool = True) -> Agent:
    """Drop the table: by a tombstone under the next number, or by deleting all keys."""

    def agent() -> Steps:
        is_done = False
        if not keeps_numbers:
            is_done = yield medium.remove_everything()
        while not is_done:
            number, version = yield from look()
            if version is None:
                return
            is_done = yield medium.create_tombstone(number + 1)

    return agent


def create_table(row: str, number: int) -> Agent:
    """Make another table where there is none, or where one was dropped."""

    def agent() -> Steps:
        content = frozenset([row])
        known, version = yield from look()
        while version is None:
            yield medium.create_file(number, content)
            made = Version(2, ((number, content),))
            is_made = yield medium.create_table(known + 1, made, row)
            if is_made:
                return
            known, version = yield from look()

    return agent


def begin(row: str, number: int, *, clears: bool = False) -> Agent:
    """Make the table where there is none; with `clears`, remove first what seems unfinished."""

    def agent() -> Steps:
        content = frozenset([row])
        known, version = yield from look()
        if version is None and clears:
            left = yield medium.list_files()
            yield from _remove((), tuple(sorted(left)), None)
        yield medium.create_file(number, content)
        made = Version(1, ((number, content),))
        is_made = version is None and (yield medium.create(known + 1, made, row))
        if not is_made:
            known, version = yield from look()
            yield from publish(Naming(number, content), known, version, promised=row)

    return agent


def clock() -> Agent:
    """Let days pass, twice."""

    def agent() -> Steps:
        yield medium.tick()
        yield medium.tick()

    return agent


# Readers.


def read(number: int, *, leases: bool = True, looks_for_marks: bool = True) -> Agent:
    """Read a version with a lease, which keeps its files there."""

    def agent() -> Steps:
        version = yield from _held(number, "reader", leases, looks_for_marks)
        if version is not None:
            is_whole = yield medium.files_are_there(version)
            if not is_whole:
                raise Broken("gone")
        yield medium.delete_lease(number, "reader")

    return agent


def put_hint(number: int, version: Version) -> Agent:
    """Put the hint of a version that was published before."""

    def agent() -> Steps:
        yield medium.put_latest(number, version)

    return agent


def open_newest(
    *, lists: bool = True, compares_etags: bool = True, hint_first: bool = True
) -> Agent:
    """Open the newest version in one round: LIST beside GET of `meta/latest`, in either order.

    The hint is believed if the list has its number with its ETag.
    """

    def agent() -> Steps:
        least = yield medium.newest_now()
        hint = (yield medium.get_latest()) if hint_first else None
        number, etag = yield medium.list_etag()
        if not hint_first:
            hint = yield medium.get_latest()
        opened = (number, etag)
        if hint is not None:
            is_listed = hint[0] == number and (not compares_etags or hint[1] == etag)
            opened = hint if is_listed or not lists else opened
        if opened[0] < least:
            raise Broken("stale")
        if opened[0] == number and opened[1] != etag:
            raise Broken("other table")

    return agent


# A table in one object, which a change writes as a whole.


def change_object(row: str, *, conditionally: bool = True) -> Agent:
    """Read the object, add a row, and put it, if it is the one that was read."""

    def agent() -> Steps:
        is_put = False
        while not is_put:
            version = yield medium.get(1)
            made = Naming(0, frozenset([row])).of(version)
            is_put = yield medium.replace(1, made, version if conditionally else None, row)

    return agent


def read_object(*, conditionally: bool = True) -> Agent:
    """Read two ranges of the object, the second one if it is the one that was read first."""

    def agent() -> Steps:
        first = yield medium.get(1)
        second = yield medium.get(1)
        if first != second and not conditionally:
            raise Broken("mixed")

    return agent
