"""A part: the streams of a column in one row group, in a superchunk or in a bundle.

`OpenParts` opens the file, compares it with the manifest and with the type of the column, and
returns a `Part`: the tree of blocks, with the place of every stream. Chunks are read later
(`chunks.py`). Every error that leaves this module names the file, the column and the chunk.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.memory import bytes_of
from blztable.block_terms import CODES, DICTIONARY, PACKED, PER_ITEM, VALID, VALUES
from blztable.closing import Closing
from blztable.columns.codecs import decimals
from blztable.columns.types import layout_of
from blztable.engine.read.bundles import OpenBundle, Slot, open_bundle
from blztable.engine.read.open_files import FileGoneError, OpenFiles, PartReader
from blztable.engine.read.places import BlockPlace, StreamPlace, place
from blztable.engine.read.superchunks import open_superchunk
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError
from blztable.format import layout
from blztable.format.checksum import Checksum
from blztable.format.line import NAN_IS_NULL, PAGES_LAYER, Statistics
from blztable.format.superchunk import PartFacts, Superchunk

# What the error of a missing file says of it; all other rows can be read.
HAS_ROWS = "; it has rows {:,} to {:,}"
# A superchunk up to this size is read at once and kept until its chunks are decoded.
SMALL_PART = 64 << 10
# A read keeps so many bytes of small bundles, which may have many columns beside those it reads.
KEPT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part whose file passed all checks of front and trailer, or rows of a type without streams.

    Attributes
    ----------
    context
        The file and the column, for errors.
    facts
        The facts of the part in the manifest.
    type
        The type of its rows.
    nbytes
        The bytes of all streams that are decompressed, or made of nothing.
    root
        The tree of blocks.
    superchunk, reader
        The offsets of the chunks, and the reader of the file; None if the part has none of its own.
    bundle
        The bundle that has the part; None if it is in none.
    slots
        The chunk of the bundle, and the first byte in it, of each stream that has bytes. These
        streams have one chunk each, by whose number the slot is found.
    share
        The rows of the table that count as read with the part, for the progress; None for its own.
    """

    context: str
    facts: PartFacts
    type: pa.DataType
    nbytes: int
    root: BlockPlace
    superchunk: Superchunk | None = None
    reader: PartReader | None = None
    bundle: OpenBundle | None = None
    slots: Sequence[Slot] = ()
    share: float | None = None

    @property
    def cells(self) -> float:
        """Return the rows of the table that count as read with the part."""
        return self.rows if self.share is None else self.share

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.facts.rows

    @property
    def cbytes(self) -> int:
        """Return the bytes of the superchunk."""
        return self.facts.cbytes

    @property
    def page_rows(self) -> int:
        """Return the rows of a page."""
        return self.root.page_rows

    @property
    def rows_of_pages(self) -> list[int]:
        """Return the rows of each page."""
        step = self.page_rows
        return [min(step, self.rows - start) for start in range(0, self.rows, step)]

    @property
    def streams(self) -> dict[str, StreamPlace]:
        """Return every stream of the tree by its full name, in the order of the chunks."""
        return {place.name: place for place in self.root.walk()}

    @property
    def offsets(self) -> list[int]:
        """Return the offset of each chunk in the superchunk, and the offset of the trailer."""
        assert self.superchunk is not None
        return self.superchunk.offsets

    @property
    def digests(self) -> bytes:
        """Return the checksums of all chunks, one after another."""
        assert self.superchunk is not None
        return self.superchunk.trailer.digests

    @property
    def checksum(self) -> Checksum:
        """Return the kind of checksum of the chunks."""
        assert self.superchunk is not None
        return self.superchunk.checksum

    @property
    def is_per_item(self) -> bool:
        """True if each chunk of `values` is the item of one row."""
        return self.superchunk is not None and self.superchunk.info.packing == PER_ITEM

    @property
    def is_small(self) -> bool:
        """True if opening the part read all of it."""
        return self.cbytes <= SMALL_PART

    @property
    def nbytes_to_open(self) -> int:
        """Return the bytes that opening the part read."""
        if self.is_small:
            return self.cbytes
        return self.facts.front_length + self.facts.trailer_length

    def zone_map(self) -> Statistics | None:
        """Return the statistics of each page; None if only the manifest has statistics."""
        if self.superchunk is None or PAGES_LAYER not in self.superchunk.trailer.layers:
            return None
        with self.error_context():
            blob = self.superchunk.trailer.layers[PAGES_LAYER].decode()
            return Statistics.decode(blob, -(-self.rows // self.page_rows))

    def values_of_codes(self, most: int) -> pa.Array | None:
        """Return the values that the codes of a column stand for, in order.

        Return None if the values are not encoded, if a code has no one value, or if there are more
        than `most` codes. A dictionary type has none: its dictionary has to be read.
        """
        encoding = self.root.streams[self._coded].encoding if self._coded else None
        values = encoding.values_of_codes(self.type, most) if encoding else None
        if values is not None and self.root.nan_is_null:
            return pc.if_else(pc.is_nan(values), None, values)
        if values is not None and pa.types.is_decimal(self.type):
            # A code that no row has may stand for a value that has too many digits.
            return values if decimals.are_within(self.type, bytes_of(values.buffers()[1])) else None
        return values

    def with_nans(self) -> "Part":
        """Return the part with NaN as a value, also where it stands for null."""
        return replace(self, root=replace(self.root, nan_is_null=False))

    def dictionary(self) -> "Part":
        """Return the dictionary of a dictionary type as a part."""
        return replace(self, type=self.type.value_type, root=self.root.children[DICTIONARY])

    def as_codes(self) -> "Part":
        """Return the part with its codes as values of an unsigned type.

        The codes of a dictionary type are the indices into the dictionary. Other codes are those of
        `values_of_codes`.
        """
        name = self._coded
        place = self.root.streams[name]
        encoding = place.encoding
        if encoding is not None and (name != CODES or encoding.is_identity):
            place = replace(place, layout=encoding.stored, nbytes=place.info.nbytes, encoding=None)
            type_ = pa.from_numpy_dtype(encoding.stored.dtype)
        else:
            type_ = pa.from_numpy_dtype(f"u{place.layout.typesize}")
        # Beside the codes there is the validity, or nothing.
        streams = {key: one for key, one in self.root.streams.items() if key == VALID}
        streams = {**streams, VALUES: place}
        root = replace(self.root, streams=streams, children={}, nan_is_null=False)
        return replace(self, type=type_, root=root)

    @property
    def _coded(self) -> str:
        """The name of the stream that may have codes: the first one but the validity."""
        return next((name for name in self.root.streams if name != VALID), "")

    def forget(self) -> None:
        """Free the kept bytes of a small superchunk; they can be read again."""
        if self.reader is not None:
            self.reader.kept = None

    def error_context(self, stream: str = "", chunk: int | None = None) -> "ErrorContext":
        """Prefix errors with the file, the column, the stream and the chunk."""
        return ErrorContext(self.context, stream, chunk)


def open_part(
    reader: PartReader | None,
    facts: PartFacts,
    type_: pa.DataType,
    sizes: Mapping[str, int],
    context: str,
    claims: Set[str] = frozenset(),
) -> Part:
    """Read the front and the trailer of a superchunk, and check them.

    Parameters
    ----------
    reader
        Reads the superchunk; None for rows of a type without streams.
    facts
        The facts of the part in the manifest.
    type_
        The type of the column.
    sizes
        The bytes of the values of each stream, by full name, from the manifest.
    context
        The file and the column, for errors.
    claims
        What the line of the column claims of the part.
    """
    with ErrorContext(context):
        nan_is_null = _nan_is_null(type_, claims)
        if reader is None:
            _check_packing(claims, PACKED)
            needed = [name for name in layout_of(type_).streams if name != VALID]
            if needed and facts.rows:
                raise CorruptError(f"no stream {needed[0]!r} in a column of {type_}")
            root = BlockPlace(facts.rows, max(facts.page_rows, 1), {}, {})
            return Part(context, facts, type_, 0, root)
        superchunk = open_superchunk(reader, facts, SMALL_PART)
        _check_packing(claims, superchunk.info.packing)
        root = place(superchunk.info, type_, "", 0)
        nbytes, root = _decoded(root, sizes), _of_line(root, nan_is_null)
        return Part(context, facts, type_, nbytes, root, superchunk, reader)


def _decoded(root: BlockPlace, sizes: Mapping[str, int]) -> int:
    """Return the decoded bytes of a tree; CorruptError unless its values have these sizes."""
    places = list(root.walk())
    in_file = {one.name: one.nbytes for one in places if one.nbytes}
    if in_file != {name: size for name, size in sizes.items() if size}:
        raise CorruptError(f"streams have the sizes {in_file}, the manifest says {dict(sizes)}")
    return sum(one.decoded for one in places)


def _nan_is_null(type_: pa.DataType, claims: Set[str]) -> bool:
    """True if the line claims that NaN is null; raise CorruptError unless the type has NaN."""
    if NAN_IS_NULL in claims and not pa.types.is_floating(type_):
        raise CorruptError(f"'nan_is_null' in a column of {type_}, which has no NaN")
    return NAN_IS_NULL in claims


def _check_packing(claims: Set[str], packing: str) -> None:
    expected = PER_ITEM if PER_ITEM in claims else PACKED
    if packing != expected:
        raise CorruptError(f"packing {packing!r}; the line of the column says {expected!r}")


def _of_line(root: BlockPlace, nan_is_null: bool) -> BlockPlace:
    """Return the tree, with what the line of the column says of its nulls."""
    if nan_is_null and VALID in root.streams:
        raise CorruptError(f"'nan_is_null' and a stream {VALID!r}; expected one of them")
    return replace(root, nan_is_null=True) if nan_is_null else root


class OpenParts(Closing):
    """The parts of a read, or of several reads in a row; each part is opened once.

    A context manager: its end closes the files, even if the read failed.
    """

    def __init__(self, version: Version) -> None:
        """Open nothing yet."""
        self.version = version
        self._files = OpenFiles(version.store)
        self._parts: dict[tuple[int, int], Part] = {}
        self._bundles: dict[int, OpenBundle] = {}
        # The bytes of bundles that are kept.
        self._kept = 0

    def open(self, line: int, group: int) -> Part:
        """Return the part of a node in a row group; nodes count as lines of the manifest."""
        part = self._parts.get((line, group))
        if part is None:
            try:
                part = self._open(line, group)
            except FileGoneError as error:
                groups = self.version.head.row_groups
                start = sum(groups[:group])
                has = HAS_ROWS.format(start, start + groups[group])
                raise CorruptError(f"{error}{has}") from None
            version = self.version
            if not version.is_flat or version.head.deleted:
                # All nodes of a column together count as one column.
                nodes = version.nodes(version.field_of(line))
                part = replace(part, share=version.head.row_groups[group] / len(nodes))
            self._parts[line, group] = part
        return part

    def _open(self, line: int, group: int) -> Part:
        version, node = self.version, self.version.node(line)
        parts, type_ = version.line_parts(line), node.type
        key = parts.key(group, version.head.bundles)
        file = f"{version.store.name}/{key}" if key else version.store.name
        context = f"{file}, column {node.name!r}"
        facts = parts.facts[group]
        sizes = {name: nbytes[group] for name, nbytes in parts.streams.items()}
        claims = parts.claims_of(group)
        if not parts.is_bundled(group):
            reader = PartReader(self._files, key) if key else None
            return open_part(reader, facts, type_, sizes, context, claims)
        with ErrorContext(context):
            nan_is_null = _nan_is_null(type_, claims)
            _check_packing(claims, PACKED)
            bundle = self.bundle(group)
            root, slots = bundle.tree(parts.at[group], type_)
            if (root.rows, root.page_rows) != (facts.rows, facts.page_rows):
                raise CorruptError(
                    f"{root.rows} rows in pages of {root.page_rows}; "
                    f"the manifest says {facts.rows} in pages of {facts.page_rows}"
                )
            nbytes, root = _decoded(root, sizes), _of_line(root, nan_is_null)
        return Part(context, facts, type_, nbytes, root, bundle=bundle, slots=slots)

    def bundle(self, group: int) -> OpenBundle:
        """Return the bundle of a row group, which must have one."""
        bundle = self._bundles.get(group)
        if bundle is None:
            head = self.version.head
            facts = head.bundles[group]
            assert facts is not None
            reader = PartReader(self._files, layout.part(layout.SHARED, facts.k))
            opened = open_bundle(reader, facts, head.stored_rows[group])
            self._kept += len(reader.kept or b"")
            if self._kept > KEPT_BYTES:
                self._kept -= len(reader.kept or b"")
                reader.kept = None
            # `setdefault` is atomic: of two threads that open one bundle, the second drops its own.
            bundle = self._bundles.setdefault(group, opened)
        return bundle

    def items(self) -> Iterable[tuple[tuple[int, int], Part]]:
        """Return the opened parts by column and row group."""
        return self._parts.items()

    def forget_before(self, group: int) -> None:
        """Drop the parts of earlier row groups; a reader that has one may still use it."""
        # Iterate over a copy, because workers open parts at the same time.
        for key in list(self._parts):
            if key[1] < group:
                del self._parts[key]
        for number in list(self._bundles):
            if number < group:
                self._kept -= len(self._bundles.pop(number).reader.kept or b"")

    def close(self) -> None:
        """Close the files and drop the parts, after the last thread has finished with them."""
        self._parts.clear()
        self._bundles.clear()
        self._files.close()


class ErrorContext:
    """Prefix the message of an error with its context.

    This is a class and not a generator with `contextmanager`: since Python 3.12 the frame of such a
    generator refers to the frame of its `__exit__`. An error that is replaced by another would then
    hold itself, and all that was read, until the garbage collector runs.
    """

    __slots__ = ("_chunk", "_context", "_stream")

    def __init__(self, context: str, stream: str = "", chunk: int | None = None) -> None:
        """Remember the context."""
        self._context = context
        self._stream = stream
        self._chunk = chunk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, DAMAGED):
            return
        context = self._context + (f", stream {self._stream!r}" if self._stream else "")
        if self._chunk is not None:
            context += f", chunk {self._chunk}"
        raise type(error)(f"{context}: {error}") from None
