"""Column batches: whole columns of numbers in bundles, all of one type at once.

To open and to decode a part in Python takes longer than its few kilobytes, so a table of thousands
of narrow columns would be read slowly. Here numpy works on all columns that share a chunk.

Theory of operation. The calling thread finds the places of the columns: it compares their lines of
the manifest with the first one (`LinePattern`), and checks their entries in the bundles by a few
comparisons of whole arrays. A column that differs in anything is left to the phased reader, which
also names what is wrong with it. Then the pool runs a task for each chunk of the first bundle. A
task decompresses this chunk, and those that the same columns have in other bundles, and decodes
them into one matrix. A column is a row of the matrix, and keeps all of it; above `matrix_bytes`
each column has memory of its own.

Knows only types of which any bytes are values.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.block_terms import VALID, VALUES
from blztable.columns.blocks import VALIDITY, StreamLayout
from blztable.columns.codecs.fixed import layout
from blztable.columns.encodings.batch import decode_batch, form_of
from blztable.columns.encodings.numbers import Narrow, Scaled
from blztable.columns.encodings.parse import StreamContext
from blztable.columns.parts.physical import NUMPY_TYPES
from blztable.engine.read.parts import OpenBundle, OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import Progress, run
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError
from blztable.format.line import NAN_IS_NULL, ColumnParts, LinePattern

# Each batch is looked for among all lines that are left.
MOST_BATCHES = 4


def read_batches(
    parts: OpenParts,
    lines: Sequence[int],
    selected: Sequence[RowSpan],
    progress: Progress | None,
    with_nans: Container[int],
) -> dict[int, pa.ChunkedArray]:
    """Return those of the columns that can be read together, by line; raise as `OpenColumns`.

    In the columns `with_nans`, nulls that are stored as NaN are NaN.
    """
    version = parts.version
    groups, rows = [span.group for span in selected], version.stored_rows
    is_whole = all((span.start, span.stop) == (0, rows[span.group]) for span in selected)
    is_bundled = bool(version.bundles) and all(version.bundles[group] for group in groups)
    is_matrix = len(lines) >= tuning.current.matrix_columns_read
    if not groups or not is_whole or not is_bundled or version.deleted or not is_matrix:
        return {}
    try:
        parted = list(_parted(parts, lines, groups, with_nans))
        nbytes = sum(one.nbytes for one in parted)
        check_memory(nbytes, parts.version.store.name)
        run([one.decode for one in parted], is_alone=nbytes < tuning.current.matrix_shared_bytes)
    except DAMAGED:
        # The phased reader says what is wrong, and with which column.
        return {}
    if progress is not None:
        progress.add(sum(one.cells for one in parted))
        progress.report()
    return {line: column for one in parted for line, column in one.columns()}


def _parted(
    parts: OpenParts, lines: Sequence[int], groups: Sequence[int], with_nans: Container[int]
) -> Iterator["_ColumnsOfChunk"]:
    """Yield the columns that are decoded together."""
    version = parts.version
    kinds: dict[tuple[pa.DataType, bool], list[int]] = {}
    for line in lines:
        type_ = version.node(line).type
        # A decimal may have too many digits.
        is_number = type_.id in NUMPY_TYPES and not pa.types.is_decimal(type_)
        if is_number:
            kinds.setdefault((type_, line in with_nans), []).append(line)
    for (type_, has_nans), of_kind in kinds.items():
        for first, at in _batches_of(version, of_kind):
            yield from _of_batch(parts, first, at, groups, type_, has_nans)


def _batches_of(
    version: Version, lines: Sequence[int]
) -> Iterator[tuple[ColumnParts, dict[int, list[int]]]]:
    """Yield the first of the lines of a batch, and their places in the bundles, by line."""
    for _ in range(MOST_BATCHES):
        if len(lines) < tuning.current.matrix_columns_read:
            return
        first, at, others = version.parts(lines[0]), {}, []
        like = LinePattern(version.text(lines[0]), len(first.k))
        paths = version.paths
        for line in lines:
            entries = like.first_entries(version.text(line), paths[line])
            if entries is None:
                others.append(line)
            else:
                at[line] = entries
        if len(at) >= tuning.current.matrix_columns_read:
            yield first, at
        lines = [line for line in others if line != lines[0]]


def _of_batch(
    parts: OpenParts,
    first: ColumnParts,
    at: dict[int, list[int]],
    groups: Sequence[int],
    type_: pa.DataType,
    has_nans: bool,
) -> list["_ColumnsOfChunk"]:
    """Return the columns of each chunk of the first bundle."""
    (stream,) = layout(type_)
    flags = first.flags.keys()
    is_sound = not flags or (pa.types.is_floating(type_) and VALID not in first.streams)
    if not (is_sound and flags <= {NAN_IS_NULL} and first.streams.keys() <= {VALID, VALUES}):
        return []
    numbers = np.array(list(at.values()), np.int64)
    found = [_columns_in(parts, first, group, numbers[:, group], stream) for group in groups]
    kept = np.flatnonzero(np.logical_and.reduce([is_such for _, is_such in found]))
    kept = kept[np.argsort(found[0][0].values["chunk"][kept], kind="stable")]
    lines = np.array(list(at))[kept].tolist()
    bundle_columns = [one.of(kept) for one, _ in found]
    flagged = () if has_nans else first.flags.get(NAN_IS_NULL, ())
    null = [bool(flagged and flagged[group]) for group in groups]
    chunks = bundle_columns[0].values["chunk"]
    cuts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(chunks)]
    return [
        _ColumnsOfChunk(
            type_,
            stream,
            lines[low:high],
            [one.of(slice(low, high)) for one in bundle_columns],
            null,
        )
        for low, high in pairwise(cuts)
        if low < high
    ]


@dataclass(frozen=True, slots=True)
class _BundleColumns:
    """Where the codes of columns are in one bundle, and how they are encoded.

    Attributes
    ----------
    bundle
        The bundle.
    rows
        Rows of a column.
    valid, values
        The entries of each column.
    encodings
        The encodings of these columns, with base 0; None for values that are not encoded.
    forms
        For each of these, the index of the first one that differs in odd values only.
    which
        The encoding of each column, as an index.
    """

    bundle: OpenBundle
    rows: int
    valid: np.ndarray
    values: np.ndarray
    encodings: Sequence[Narrow | Scaled | None]
    forms: np.ndarray
    which: np.ndarray

    def of(self, columns: np.ndarray | slice) -> "_BundleColumns":
        """Return some of the columns."""
        valid, values, which = self.valid[columns], self.values[columns], self.which[columns]
        return replace(self, valid=valid, values=values, which=which)

    @property
    def has_bitmaps(self) -> bool:
        """True if the columns have a stream of validity."""
        return bool(self.valid["nbytes"].any())

    def decode(self, out: np.ndarray) -> None:
        """Make the values of each column, in a row of `out`."""
        forms = self.forms[self.which]
        for columns, contents in self._contents(self.values):
            for form in np.unique(forms[columns]).tolist():
                some = columns[forms[columns] == form]
                codes = _rows_of(contents, self.values[some])
                is_all = len(some) == len(out)
                values = out if is_all else np.empty((len(some), self.rows), out.dtype)
                decode_batch(self.encodings[form], self.values["base"][some], codes, values)
                if not is_all:
                    out[some] = values
        for column, which in enumerate(self.which.tolist()):
            encoding = self.encodings[which]
            if isinstance(encoding, Scaled) and len(encoding.at):
                out[column, encoding.at] = encoding.odd.view(out.dtype)

    def decode_validity(self, out: np.ndarray) -> None:
        """Tell of each row of each column whether it has a value."""
        for columns, contents in self._contents(self.valid):
            bits = _rows_of(contents, self.valid[columns])
            out[columns] = np.unpackbits(bits, 1, self.rows, "little")

    def _contents(self, entries: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the columns whose entries are in a chunk, as indices, and the chunk."""
        chunks = entries["chunk"]
        for chunk in np.unique(chunks).tolist():
            yield np.flatnonzero(chunks == chunk), self.bundle.contents(chunk)


def _columns_in(
    parts: OpenParts, first: ColumnParts, group: int, at: np.ndarray, stream: StreamLayout
) -> tuple[_BundleColumns, np.ndarray]:
    """Return columns in a bundle, and for each whether it is as the line says.

    `at` has the number of the first entry of each part, from 1: that of its validity.
    """
    bundle, meta = parts.bundle(group), first.meta[group]
    rows, page_rows = meta.rows, meta.page_rows
    sizes = {name: nbytes[group] for name, nbytes in first.streams.items()}
    entries = bundle.directory.entries
    if not len(entries):
        raise CorruptError("the bundle has no entries")
    is_such = at < len(entries)
    second = np.where(is_such, at, 0)
    valid, values = entries[second - 1], entries[second]
    for entry in (valid, values):
        is_such &= (entry["rows"] == rows) & (entry["page_rows"] == page_rows)
    bitmap = sizes.get(VALID, 0)
    is_such &= (valid["nbytes"] == bitmap) & (valid["encoding"] == 0)
    is_such &= bitmap in (0, VALIDITY.nbytes(rows)) and sizes.get(VALUES) == stream.nbytes(rows)
    numbers, which = np.unique(values["encoding"], return_inverse=True)
    context = StreamContext(stream, rows, page_rows)
    found = [bundle.encoding(number, context) for number in numbers.tolist()]
    encodings = [one if isinstance(one, Narrow | Scaled) else None for one in found]
    is_number = [one is other for one, other in zip(found, encodings, strict=True)]
    stored = [(one.stored if one else stream).nbytes(rows) for one in encodings]
    is_such &= (values["nbytes"] == np.array(stored)[which]) & np.array(is_number)[which]
    firsts: dict[object, int] = {}
    forms = [firsts.setdefault(form_of(one), index) for index, one in enumerate(encodings)]
    return _BundleColumns(bundle, rows, valid, values, encodings, np.array(forms), which), is_such


def _rows_of(contents: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Return the bytes of entries of one size, each in a row; they lie within the contents."""
    starts, nbytes = entries["start"].astype(np.int64), int(entries["nbytes"][0])
    steps = np.diff(starts)
    if len(steps) and (steps == steps[0]).all():
        shape, strides = (len(starts), nbytes), (int(steps[0]), 1)
        return np.lib.stride_tricks.as_strided(contents[starts[0] :], shape, strides)
    return np.stack([contents[start : start + nbytes] for start in starts.tolist()])


class _ColumnsOfChunk:
    """Columns of one type that share a chunk."""

    def __init__(
        self,
        type_: pa.DataType,
        stream: StreamLayout,
        lines: Sequence[int],
        in_bundle: Sequence[_BundleColumns],
        nan_is_null: Sequence[bool],
    ) -> None:
        """Take the columns, and for each bundle where they are, and whether NaN is null."""
        self._type = type_
        self._dtype = stream.dtype
        self._lines = lines
        self._columns_in = in_bundle
        self._nan_is_null = nan_is_null
        self._rows = sum(one.rows for one in in_bundle)
        self.cells = self._rows * len(lines)
        self.nbytes = stream.nbytes(self._rows) * len(lines)
        self._values: Sequence[np.ndarray]
        self._bits: np.ndarray | None = None
        self._nulls = [0] * len(lines)

    def decode(self) -> None:
        """Decode all columns, and find the nulls."""
        count, rows, dtype = len(self._lines), self._rows, self._dtype
        is_small = self.nbytes <= tuning.current.matrix_bytes
        matrix = np.empty((count, rows if is_small else 0), dtype)
        self._values = list(matrix) if is_small else [np.empty(rows, dtype) for _ in range(count)]
        valid, low = np.ones((count, rows if self._may_have_nulls else 0), np.bool_), 0
        for in_bundle, nan_is_null in zip(self._columns_in, self._nan_is_null, strict=True):
            high = low + in_bundle.rows
            part = matrix[:, low:high] if is_small else np.empty((count, in_bundle.rows), dtype)
            in_bundle.decode(part)
            for values, some in () if is_small else zip(self._values, part, strict=True):
                values[low:high] = some
            if nan_is_null:
                np.equal(part, part, out=valid[:, low:high])
            elif in_bundle.has_bitmaps:
                in_bundle.decode_validity(valid[:, low:high])
            low = high
        if not valid.all():
            self._nulls = (rows - valid.sum(axis=1)).tolist()
            self._bits = np.packbits(valid, axis=1, bitorder="little")

    @property
    def _may_have_nulls(self) -> bool:
        return any(self._nan_is_null) or any(one.has_bitmaps for one in self._columns_in)

    def columns(self) -> Iterator[tuple[int, pa.ChunkedArray]]:
        """Yield the columns by line."""
        type_, rows, nulls, bitmap = self._type, self._rows, self._nulls, None
        for row, line in enumerate(self._lines):
            if self._bits is not None:
                bitmap = pa.py_buffer(self._bits[row]) if nulls[row] else None
            # A slice of a buffer could not be written.
            buffers = [bitmap, pa.py_buffer(self._values[row])]
            yield line, pa.chunked_array([pa.Array.from_buffers(type_, rows, buffers, nulls[row])])
