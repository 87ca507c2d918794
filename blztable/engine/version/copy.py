"""Copy: the files of one version in another store, byte for byte, as a table of its own.

Nothing is compressed again. Each front, chunk and trailer is compared with its checksum on the way.
The files of a row group follow each other, so memory has no more than one of them.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from blztable.engine.run.pool import Progress
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import BlzError, CorruptError, TableExistsError
from blztable.format import layout
from blztable.format.bundle import BundleMeta
from blztable.format.header import CHECKSUMS, FileHeader, Trailer
from blztable.format.superchunk import PartMeta, chunk_offsets
from blztable.storage.store import KeyNotFound, Lock, Store


class Steps(Protocol):
    """What is done between the files of a copy."""

    def copied(self, version: Version, group: int) -> None:
        """Called behind the files of each row group."""

    def remove(self) -> None:
        """Called before the commit."""


def copy(
    version: Version,
    target: Store,
    operation: str,
    progress: Progress,
    *,
    is_durable: bool,
    steps: Steps | None = None,
    is_strict: bool = True,
) -> tuple[Version, Lock]:
    """Write a version to a store without a table; return it there, pinned.

    Unless `is_strict`, damaged chunks are copied as they are.

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
            target,
            replace(staged.head, tags={}),
            staged.schema,
            columns=staged.columns,
            base=staged.base,
        )

    with Commit(CommitPlan(target, is_durable, may_create=True)) as commit:
        _check_absent(target, commit.base)
        keys = []
        for group in range(len(version.head.row_groups)):
            for key, meta in files(version, group):
                try:
                    data = version.store.get(key)
                    _check(data, meta, is_strict)
                except KeyNotFound:
                    raise CorruptError(f"{version.store.name}/{key}: the file is missing") from None
                except BlzError as error:
                    raise type(error)(f"{version.store.name}/{key}: {error}") from None
                target.put_new(key, [data])
                keys.append(key)
                progress.add(meta.cbytes)
                progress.report()
            if steps is not None:
                steps.copied(version, group)
        if steps is not None:
            steps.remove()
        if is_durable:
            target.flush(keys)
        published = commit.publish(operation, rebased)
    commit.emit_warnings()
    return published


def is_whole(version: Version) -> bool:
    """True if all files of a version are there, with the bytes that the manifest describes."""
    try:
        for group in range(len(version.head.row_groups)):
            for key, meta in files(version, group):
                _check(version.store.get(key), meta, True)
    except (*DAMAGED, KeyNotFound):
        return False
    return True


def files(version: Version, group: int) -> Iterator[tuple[str, PartMeta | BundleMeta]]:
    """Yield the key and the metadata of each file of a row group."""
    for line, path in enumerate(version.paths):
        parts = version.parts(line)
        if parts.k[group]:
            yield layout.part(path, parts.k[group]), parts.meta[group]
    bundle = version.head.bundles[group] if version.head.bundles else None
    if bundle is not None:
        yield layout.part(layout.SHARED, bundle.k), bundle


def _check(data: bytes, meta: PartMeta | BundleMeta, is_strict: bool) -> None:
    """Raise CorruptError unless these bytes are the file that the manifest describes."""
    if len(data) != meta.cbytes:
        raise CorruptError(f"the file has {len(data)} bytes; the manifest says {meta.cbytes}")
    front, trailer = data[: meta.front_length], data[len(data) - meta.trailer_length :]
    if Trailer.stored_crc(trailer) != meta.crc:
        raise CorruptError("the trailer is not the one that the manifest describes")
    header = FileHeader.decode(front)
    checksum = CHECKSUMS[header.checksum]
    digests = Trailer.decode(front, trailer, header.nchunks, checksum.size).digests
    offsets = chunk_offsets(front, header, meta)
    for index, (start, stop) in enumerate(pairwise(offsets) if is_strict else ()):
        end = stop - checksum.size
        expected = digests[index * checksum.size : (index + 1) * checksum.size]
        if not checksum.digest(data[start:end]) == data[end:stop] == expected:
            raise CorruptError(f"chunk {index}: {checksum.name} is not {expected.hex()}")


def _check_absent(target: Store, newest: Version | None) -> None:
    if newest is not None:
        raise TableExistsError(f"a table already exists at {target.name}; choose another path")
