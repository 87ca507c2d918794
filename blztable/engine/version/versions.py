"""Versions of a table: which there are, the newest, and one opened and pinned.

A version is pinned by a shared lock on its manifest: while anyone holds it, neither the manifest
nor a file it names is removed. Opening is recovery: the newest manifest that is there is the table.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from blztable.engine.version import schema
from blztable.engine.version.column_tree import ColumnTree
from blztable.errors import (
    BlzError,
    CorruptError,
    FormatError,
    LimitError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from blztable.format import jsontext, layout, manifest
from blztable.format.jsontext import Json
from blztable.format.line import ColumnParts
from blztable.storage.store import KeyNotFound, Lock, Store

LOCK_SECONDS = 30.0
# What the bytes of a file can be guilty of.
DAMAGED = (CorruptError, FormatError, LimitError)
# Enough for the head of all but very wide tables in one read.
_HEAD_BYTES = 64 << 10
# Bytes of lines that are read together.
_LINES_BYTES = 32 << 10
# More than the document of sizes has.
_SIZES_BYTES = 4 << 10
# Names that desktops and file systems leave in directories by themselves.
_LITTER = {".DS_Store", ".localized", ".directory", "Thumbs.db", "desktop.ini", "lost+found"}
_LITTER_STARTS = ("._", ".nfs", ".fuse_hidden", ".Trash-", ".~lock.")
# What a root may hold at each level if it is ours.
_ROOT_NAMES = {layout.DATA, layout.META}
_META_NAMES = {
    key.partition("/")[2]
    for key in (
        layout.MANIFESTS,
        layout.LOCK,
        layout.FLIGHT,
        layout.SIZES,
        layout.STORAGE,
        layout.ATTRIBUTES,
    )
}


@dataclass(frozen=True, slots=True)
class Version:
    """One version, its head read; a column's line is read and kept when it is asked for."""

    store: Store
    head: manifest.Head
    schema: pa.Schema
    tree: ColumnTree = field(init=False, repr=False)
    _lines: dict[int, ColumnParts] = field(default_factory=dict, repr=False)
    # Lines that were read with the line before them, and not yet asked for.
    _read_ahead: dict[int, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Match the fields with the lines; raise CorruptError if a field has not its nodes."""
        tree = ColumnTree.of(self.schema, self.head.columns.paths)
        object.__setattr__(self, "tree", tree)

    def column(self, index: int) -> ColumnParts:
        """Return the parts of a column; those of its root, if its type is nested."""
        return self._node(self.tree.nodes(index)[0])

    def nodes(self, index: int) -> list[ColumnParts]:
        """Return the parts of each node of a column, in pre-order."""
        return [self._node(line) for line in self.tree.nodes(index)]

    def nbytes(self, index: int) -> int:
        """Return the uncompressed bytes of a column, all of its nodes."""
        nodes = self.tree.nodes(index)
        return sum(self.head.columns.nbytes[nodes.start : nodes.stop])

    def cbytes(self, index: int) -> int:
        """Return the bytes that a column has on disk, all of its nodes."""
        nodes = self.tree.nodes(index)
        return sum(self.head.columns.cbytes[nodes.start : nodes.stop])

    def cache_column(self, index: int, parts: ColumnParts) -> None:
        """Remember the parts of a flat column, so that its line is not read again."""
        self._lines[self.tree.nodes(index)[0]] = parts

    def _node(self, index: int) -> ColumnParts:
        """Return the parts in a line of the manifest; the line is read once."""
        parts = self._lines.get(index)
        if parts is None:
            line = self._line(index)
            try:
                parts = manifest.decode_column(line, self.head, index)
            except DAMAGED as error:
                raise type(error)(f"{self._where}: {error}") from None
            # The rows of a child are its own.
            if len(parts.path) == 1 and parts.facts.rows != self.head.row_groups:
                raise CorruptError(f"{self._where}: column {index} has other rows than the table")
            self._lines[index] = parts
        return parts

    def lines(self) -> list[bytes]:
        """The lines of all columns as they are, each with its sha256: for the next manifest."""
        columns = self.head.columns
        if not columns.offsets:
            return []
        first, end = columns.offsets[0], columns.offsets[-1] + columns.lengths[-1] + 1
        data = self._range(first, end - first)
        lines = data.split(b"\n")[:-1]
        if [len(line) for line in lines] != list(columns.lengths):
            raise CorruptError(f"{self._where}: lines of other lengths than the head says")
        for index, line in enumerate(lines):
            try:
                manifest.check_line(line, self.head, index)
            except CorruptError as error:
                raise CorruptError(f"{self._where}: {error}") from None
        return lines

    def _line(self, index: int) -> bytes:
        """Return the bytes of a column's line without its line feed; read the next lines too."""
        line = self._read_ahead.pop(index, None)
        if line is not None:
            return line
        columns = self.head.columns
        length = columns.lengths[index]
        data = self._range(columns.offsets[index], max(length + 1, _LINES_BYTES))
        if data[length : length + 1] != b"\n":
            raise CorruptError(f"{self._where}: the line of column {index} is cut")
        lines = data[length + 1 :].split(b"\n")[:-1]
        for ahead, line in zip(range(index + 1, len(columns.lengths)), lines, strict=False):
            if len(line) == columns.lengths[ahead] and ahead not in self._lines:
                self._read_ahead[ahead] = line
        return data[:length]

    def _range(self, start: int, length: int) -> bytes:
        try:
            return self.store.get(self.key, start, length)
        except KeyNotFound:
            raise CorruptError(f"{self._where} is gone") from None

    @property
    def frame(self) -> dict[str, Json] | None:
        """What a DataFrame was besides its columns, for those who read or change that."""
        return None if self.head.pandas is None else dict(self.head.pandas)

    @property
    def key(self) -> str:
        """The key of its manifest."""
        return layout.manifest(self.head.version)

    @property
    def _where(self) -> str:
        return f"{self.store.name}/{self.key}"


def numbers(store: Store) -> list[int]:
    """The versions there are, ascending; FormatError where the place is no directory at all."""
    try:
        names = store.list_names(layout.MANIFESTS)
    except CorruptError:
        if is_place(store):
            raise
        raise FormatError(f"{store.name} is a file; a table is a directory") from None
    return sorted(filter(None, map(layout.manifest_version, names)))


def newest_number(store: Store) -> int | None:
    """The newest version, None where nothing was ever committed."""
    return max(numbers(store), default=None)


def newest_told(store: Store) -> int | None:
    """The newest version, None if nothing was ever committed; see `numbers_told`."""
    return max(numbers_told(store), default=None)


def numbers_told(store: Store) -> list[int]:
    """As `numbers`; CorruptError if the newest version was published and its manifest is missing.

    `meta/sizes` is replaced after each publication and holds its version. It is read before the
    versions are listed, so it is ahead of them only if something else removed a manifest.
    """
    mirrored = mirrored_number(store)
    listed = numbers(store)
    if mirrored <= max(listed, default=0):
        return listed
    try:
        # A network file system may list an older state of the directory than it opens.
        store.open(layout.manifest(mirrored)).close()
    except KeyNotFound:
        raise _gone(store, mirrored) from None
    return [*listed, mirrored]


def mirrored_number(store: Store) -> int:
    """The version that `meta/sizes` tells; 0 where it tells none."""
    try:
        data = store.get(layout.SIZES, 0, _SIZES_BYTES)
        sizes = jsontext.loads(data, layout.SIZES)
    except (*DAMAGED, StorageError, KeyNotFound):
        return 0  # A mirror that cannot be read tells nothing, and keeps nobody from the table.
    told = sizes.get("version") if isinstance(sizes, dict) else None
    return told if type(told) is int and 0 < told <= layout.MAX_VERSION else 0


def _gone(store: Store, told: int) -> CorruptError:
    """The error for a newest version whose manifest others have removed."""
    message = (
        f"{store.name}/{layout.manifest(told)}: the manifest is gone, although {layout.SIZES} "
        f"tells of version {told}"
    )
    earlier = latest(store)
    if earlier is None:
        return CorruptError(
            f'{message}; no other version can be read; write the table anew with mode="w"'
        )
    intact = earlier.head.version
    error = CorruptError(
        f"{message}; version {intact} is intact, open it with version={intact}, and restore it "
        "to go on from there"
    )
    error.intact_version = intact
    return error


def load(store: Store, number: int) -> Version:
    """Read the head of a version; KeyNotFound where it is gone, CorruptError where damaged."""
    try:
        return read(store, number)
    except DAMAGED as error:
        message = f"{store.name}/{layout.manifest(number)}: {error}"
        earlier = latest(store, before=number)
        if earlier is None:
            raise type(error)(message) from None
        intact = earlier.head.version
        found = type(error)(f"{message}; version {intact} is intact, open it with version={intact}")
        found.intact_version = intact
        raise found from None


def read(store: Store, number: int) -> Version:
    """As `load`, for those who look at many versions: an error says neither where nor what next."""
    key = layout.manifest(number)
    data = store.get(key, 0, _HEAD_BYTES)
    length = manifest.head_length(data)
    if (length is None or length > len(data)) and len(data) == _HEAD_BYTES:
        data = store.get(key, 0, jsontext.MAX_BYTES + manifest.SHA_BYTES + 1)
        length = manifest.head_length(data)
    head = manifest.decode_head(data[: length or 0])
    if head.version != number:
        raise CorruptError(f"it is the manifest of version {head.version}")
    fields = schema.decode(head.schema)
    return Version(store, head, fields)


def latest(store: Store, before: int = layout.MAX_VERSION + 1) -> Version | None:
    """The newest version that can be read, of those before a damaged one."""
    for number in reversed([other for other in numbers(store) if other < before]):
        with suppress(BlzError, KeyNotFound):
            return read(store, number)
    return None


def pin(store: Store, number: int | None = None) -> tuple[Version, Lock]:
    """Open a version, the newest by default, and hold it.

    Raises
    ------
    TableNotFoundError
        There is no table, or not this version of it.
    CorruptError
        Its manifest is damaged; the message names the newest one that is not.
    """
    while True:
        wanted = newest_told(store) if number is None else number
        if wanted is None:
            raise TableNotFoundError(f"no table at {store.name}{_nothing(store)}")
        if not 0 < wanted <= layout.MAX_VERSION:
            raise TableNotFoundError(f"no version {wanted} of {store.name}")
        key = layout.manifest(wanted)
        try:
            lock = store.lock(key, shared=True, timeout=LOCK_SECONDS)
        except KeyNotFound:
            # The newest was just superseded and removed; a version asked for is simply gone.
            if number is None and newest_number(store) != wanted:
                continue
            raise TableNotFoundError(f"no version {wanted} of {store.name}") from None
        try:
            return load(store, wanted), lock
        except KeyNotFound:
            lock.close()
            raise CorruptError(f"{store.name}/{key} is no file") from None
        except BaseException:
            lock.close()
            raise


def is_place(store: Store) -> bool:
    """Whether a table could be there: nothing yet, or a directory."""
    try:
        store.list_names("")
    except CorruptError:
        return False
    return True


def check_ours(store: Store) -> None:
    """TableExistsError where there is anything that we did not put there."""
    if not is_place(store):
        raise TableExistsError(f"{store.name} is a file; it is left as it is")
    try:
        foreign = next(_foreign(store), None)
    except CorruptError as error:
        raise TableExistsError(f"{error}; that is not a table's and left as it is") from None
    if foreign is not None:
        where = store.name + (f"/{foreign[0]}" if foreign[0] else "")
        raise TableExistsError(
            f"{where} holds {foreign[1]!r} and is not a table's; it is left as it is"
        )


def _is_litter(name: str) -> bool:
    """True for what desktops and file systems leave in any directory: no data of anybody's."""
    return name in _LITTER or name.startswith(_LITTER_STARTS)


def _foreign(store: Store) -> Iterator[tuple[str, str]]:
    """Names, each with what it lies under, that no creation would have made."""

    def names(prefix: str) -> list[str]:
        return [name for name in store.list_names(prefix) if not _is_litter(name)]

    for prefix, known in (("", _ROOT_NAMES), (layout.META, _META_NAMES)):
        yield from ((prefix, name) for name in sorted(set(names(prefix)) - known))
    for name in names(layout.MANIFESTS):
        if layout.manifest_version(name) is None:
            yield layout.MANIFESTS, name
    above = [layout.DATA]
    for prefix in above:
        for name in names(prefix):
            if layout.column_id(name) is not None:
                above.append(f"{prefix}/{name}")
            elif prefix == layout.DATA or layout.part_number(name) is None:
                yield prefix, name


def _nothing(store: Store) -> str:
    """What is there instead of a table."""
    if store.list_names(""):
        return ": a directory is there, without a committed table"
    return ""
