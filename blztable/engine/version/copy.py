"""Copy: the files of one version in another store, byte for byte, as a table of its own.

Nothing is compressed again. Each front and trailer is compared with its checksum on the way.
"""

from collections.abc import Iterator

from blztable.engine.run.progress import Progress
from blztable.engine.version.commit import Commit, Plan
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version
from blztable.errors import BlzError, CorruptError, TableExistsError
from blztable.format import layout
from blztable.format.bundle import BundleFacts
from blztable.format.checksum import CHECKSUMS
from blztable.format.header import FileHeader
from blztable.format.superchunk import PartFacts
from blztable.format.trailer import Trailer
from blztable.storage.store import KeyNotFound, Lock, Store


def copy(
    version: Version, target: Store, operation: str, progress: Progress, *, is_durable: bool
) -> tuple[Version, Lock]:
    """Write a version to a store without a table; return it there, pinned.

    Raises
    ------
    TableExistsError
        The target has a table, or other data.
    CorruptError
        A file is missing or damaged; nothing is committed.
    """
    staged = version if isinstance(version, StagedVersion) else StagedVersion.of(version)

    def rebased(newest: Version | None) -> StagedVersion:
        _check_absent(target, newest)
        return StagedVersion(
            target, staged.head, staged.schema, columns=staged.columns, base=staged.base
        )

    with Commit(Plan(target, is_durable, may_create=True)) as commit:
        _check_absent(target, commit.base)
        keys = []
        for key, facts in files(version):
            try:
                data = version.store.get(key)
                _check(data, facts)
            except KeyNotFound:
                raise CorruptError(f"{version.store.name}/{key}: the file is missing") from None
            except BlzError as error:
                raise type(error)(f"{version.store.name}/{key}: {error}") from None
            target.put_new(key, [data])
            keys.append(key)
            progress.add(facts.cbytes)
            progress.report()
        if is_durable:
            target.flush(keys)
        published = commit.publish(operation, rebased)
    commit.emit_warnings()
    return published


def files(version: Version) -> Iterator[tuple[str, PartFacts | BundleFacts]]:
    """Yield the key and the facts of each file that a version names, once."""
    for line, path in enumerate(version.head.columns.paths):
        parts = version.line_parts(line)
        for group, k in enumerate(parts.k):
            if k:
                yield layout.part(path, k), parts.facts[group]
    bundles = {bundle.k: bundle for bundle in version.head.bundles if bundle}
    for k, bundle in bundles.items():
        yield layout.part(layout.SHARED, k), bundle


def _check(data: bytes, facts: PartFacts | BundleFacts) -> None:
    """Raise CorruptError unless these bytes are the file that the manifest describes."""
    if len(data) != facts.cbytes:
        raise CorruptError(f"the file has {len(data)} bytes; the manifest says {facts.cbytes}")
    front, trailer = data[: facts.front_length], data[len(data) - facts.trailer_length :]
    if Trailer.stored_crc(trailer) != facts.crc:
        raise CorruptError("the trailer is not the one that the manifest describes")
    header = FileHeader.decode(front)
    Trailer.decode(front, trailer, header.nchunks, CHECKSUMS[header.checksum].size)


def _check_absent(target: Store, newest: Version | None) -> None:
    if newest is not None:
        raise TableExistsError(f"a table already exists at {target.name}; choose another path")
