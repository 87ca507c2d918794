"""Choose the encoding of a stream: by a sample, then verified on every value.

A part is encoded only if the codes are narrower than the values. The encoding that is chosen
returns the very same bits for each row that has a value; the slot of a null may come back as any
value. Knows no files.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from blztable import tuning
from blztable.arrow.types import bits_of
from blztable.block_terms import CODES, ENDS, VALID, VALUES
from blztable.columns.blocks import Block, Encoding, Stream
from blztable.columns.encodings.constant import Constant, value_width
from blztable.columns.encodings.dictionary import SAMPLED_ROWS, is_one_chunk, sample
from blztable.columns.encodings.items import MAX_MADE_BYTES, Lengths, OneLength, starts_of
from blztable.columns.encodings.numbers import (
    FORMS,
    INVERSES,
    MOST_ODD,
    NAN,
    POWERS,
    STEP_ROWS,
    Delta,
    Narrow,
    Scaled,
    Wide,
    codes_layout,
)
from blztable.columns.encodings.runs import BitmapRuns, few_runs
from blztable.columns.encodings.values import encode_few_values

# Decimals that are tried.
MOST_POWER = 6
_POWERS, _INVERSES = np.array(POWERS[: MOST_POWER + 1]), np.array(INVERSES[: MOST_POWER + 1])
# So many values of a sample are looked at first.
FEW_VALUES = 32
# Integers below this are exact as doubles.
EXACT = 1 << 53

# The dtypes of values that can be encoded.
_DTYPES = ("<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f8")
# An encoding, and the codes.
Encoded = tuple[Encoding, np.ndarray]


def encoded(block: Block) -> Block:
    """Return a tree of blocks with its streams of numbers encoded where that makes them smaller."""
    mask = None
    streams = []
    for stream in block.streams:
        if stream.layout.name == VALID:
            mask = bits_of(stream.data, 0, block.rows).view(np.bool_)
        streams.append(_encoded_stream(stream, mask, block))
    children = {name: encoded(child) for name, child in block.children.items()}
    return replace(block, streams=tuple(streams), children=children)


def _encoded_stream(stream: Stream, mask: np.ndarray | None, block: Block) -> Stream:
    name, dtype = stream.layout.name, stream.layout.dtype
    if not block.rows:
        return stream
    if name == ENDS:
        return _encoded_ends(stream, block)
    if _is_constant(stream, mask):
        width = value_width(stream.layout)
        row = 0 if mask is None or name == VALID else int(mask.argmax())
        constant = Constant(stream.layout, stream.data[row * width :][:width].tobytes())
        return _of_codes(stream, constant, stream.data[:0])
    if name == VALID and mask is not None:
        at = few_runs(stream.data, mask)
        return (
            stream
            if at is None
            else _of_codes(stream, BitmapRuns(stream.layout, at), stream.data[:0])
        )
    if name not in (VALUES, CODES) or stream.layout.bits is None:
        return stream
    found: Encoded | None = None
    if name == VALUES and dtype == "|V16":
        found = _encode_wide(name, stream.data, mask, block.page_rows)
    elif dtype in _DTYPES:
        values = stream.data.view(dtype)
        encode = encode_doubles if values.dtype.kind == "f" else encode_integers
        found = encode(name, values, mask, block.page_rows)
    if name == VALUES:
        width = stream.layout.nbytes(1) if found is None else found[1].itemsize
        found = encode_few_values(stream.layout, stream.data, mask, width) or found
    return stream if found is None else _of_codes(stream, *found)


def _encoded_ends(stream: Stream, block: Block) -> Stream:
    """Return item ends as the lengths of the items; one length for all needs no codes."""
    layout = stream.layout
    ends = stream.data.view(layout.dtype)
    lengths = np.diff(ends, prepend=ends.dtype.type(0))
    least, most = int(lengths.min()), int(lengths.max())
    if least == most and stream.data.nbytes <= MAX_MADE_BYTES:
        return _of_codes(stream, OneLength(layout, most), ends[:0])
    width = _code_width([(0, most)])
    if width >= layout.typesize or not is_one_chunk(block.rows, block.page_rows, width):
        return stream
    stored = codes_layout(layout.name, width)
    (pages,) = (one.pages for one in block.streams if one.layout.name == VALUES)
    encoding = Lengths(stored, layout.typesize, starts_of(pages), block.page_rows)
    return _of_codes(stream, encoding, lengths.astype(stored.dtype))


def _encode_wide(
    name: str, data: np.ndarray, mask: np.ndarray | None, page_rows: int
) -> Encoded | None:
    """Return integers of 128 bits as codes, if all have only 64 bits, and these are near."""
    words = data.view("<i8").reshape(-1, 2)
    for rows in (*sample(len(words)), slice(None)):
        if ((words[rows, 0] >> 63) != words[rows, 1]).any():
            return None
    low = np.ascontiguousarray(words[:, 0])
    pages = _bounds(low, mask, page_rows)
    if _code_width(pages) > 4:
        return None
    narrow, codes = _narrow(name, low, mask, pages, page_rows)
    return Wide(narrow.stored, 16, narrow.bases, page_rows), codes


def _is_constant(stream: Stream, mask: np.ndarray | None) -> bool:
    """True if all values have the same bytes, nulls aside; of a bitmap, if no row has a value."""
    width = value_width(stream.layout)
    if not width or stream.data.nbytes > MAX_MADE_BYTES:
        return False
    if stream.layout.name == VALID:
        return not stream.data.any()
    # Words are compared faster than bytes.
    word = next(size for size in (8, 4, 2, 1) if width % size == 0)
    values = stream.data.view(f"<u{word}").reshape(-1, width // word)
    first = values[0 if mask is None else int(mask.argmax())]
    for rows in (*sample(len(values)), slice(None)):
        same = (values[rows] == first).all(axis=1)
        if not (same if mask is None else same | ~mask[rows]).all():
            return False
    return True


def _of_codes(stream: Stream, encoding: Encoding, codes: np.ndarray) -> Stream:
    data = codes.view(np.uint8)
    return Stream(encoding.stored, data, stream.pages, encoding, stream.nbytes)


def encode_integers(
    name: str, values: np.ndarray, mask: np.ndarray | None, page_rows: int
) -> Encoded | None:
    """Return integers as codes; None if no encoding makes them narrower.

    Parameters
    ----------
    name
        The name of the stream.
    values
        The values, signed or unsigned, at least one; a multiple of pages but for the last page.
    mask
        True for each row that has a value; None if all have one.
    page_rows
        Rows of a page.
    """
    if len(values) > SAMPLED_ROWS and not _may_be_narrower(values, mask, page_rows):
        return None
    pages = _bounds(values, mask, page_rows)
    narrow = _code_width(pages)
    if mask is None:
        delta = _delta(name, values, page_rows, min(narrow, values.itemsize))
        if delta is not None:
            return delta
    return _narrow(name, values, mask, pages, page_rows) if narrow < values.itemsize else None


def encode_doubles(
    name: str, values: np.ndarray, mask: np.ndarray | None, page_rows: int
) -> Encoded | None:
    """Return doubles as codes of whole numbers; None unless nearly all have few decimals."""
    some = _some_of(values, mask)
    if np.isnan(some).any():
        is_number = values.view("<u8") != NAN
        some = _some_of(values, is_number if mask is None else is_number & mask)
    if not len(some):
        return None
    (enough,) = may_be_decimals(some[np.newaxis, :: -(-len(some) // FEW_VALUES)])
    for power in np.flatnonzero(enough).tolist():
        for form in FORMS if power else FORMS[:1]:
            if _is_scaled(some, power, form):
                return _scaled(name, values, mask, page_rows, power, form)
    return None


def _scaled(
    name: str,
    values: np.ndarray,
    mask: np.ndarray | None,
    page_rows: int,
    power: int,
    form: str,
) -> Encoded | None:
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.rint(values * POWERS[power])
        usual = np.abs(wide) < EXACT
    usual = usual if mask is None else usual & mask
    wide[~usual] = 0
    whole = wide.astype("<i8")
    pages = _bounds(whole, usual, page_rows)
    has_nan = not usual.all() and bool((values.view("<u8") == NAN).any())
    if has_nan:
        # Code 0, which `_narrow` gives to all rows that are not usual, stands for NaN.
        pages = [(low - 1, high) for low, high in pages]
    if _code_width(pages) > 4:
        return None
    narrow, codes = _narrow(name, whole, usual, pages, page_rows)
    nan = 0 if has_nan else None
    encoding = Scaled(narrow.stored, power, form, narrow.bases, page_rows, nan=nan)
    out = np.empty(min(STEP_ROWS, len(values)), "<f8")
    most, odd_rows, odd = min(MOST_ODD, len(values) // tuning.current.rows_per_exception), [], 0
    for start in range(0, len(values), len(out)):
        rows = slice(start, min(start + len(out), len(values)))
        found = out[: rows.stop - start]
        encoding.decode(start, codes[rows].view(np.uint8), found.view(np.uint8))
        is_odd = found.view("<u8") != values[rows].view("<u8")
        if mask is not None:
            is_odd &= mask[rows]
        if is_odd.any():
            odd_rows.append(np.flatnonzero(is_odd) + start)
            odd += len(odd_rows[-1])
            if odd > most:
                return None
    if odd:
        at = np.concatenate(odd_rows)
        encoding = replace(encoding, at=at, odd=values[at].view("<i8"))
    return encoding, codes


def _narrow(
    name: str,
    values: np.ndarray,
    mask: np.ndarray | None,
    pages: Sequence[tuple[int, int]],
    page_rows: int,
) -> tuple[Narrow, np.ndarray]:
    """Return the values as distances from one base if that is as narrow as a base for each page."""
    whole = [(min(low for low, _ in pages), max(high for _, high in pages))]
    width = _code_width(pages)
    ranges = whole if _code_width(whole) == width else pages
    bases = _words([low for low, _ in ranges])
    encoding = Narrow(codes_layout(name, width), values.itemsize, bases, page_rows)
    unsigned = values.view(f"<u{values.itemsize}")
    codes = np.empty(len(values), encoding.stored.dtype)
    for page, start in enumerate(range(0, len(values), page_rows)):
        base = bases[page if len(bases) > 1 else 0].view("<u8").astype(unsigned.dtype)
        rows = slice(start, start + page_rows)
        np.copyto(codes[rows], unsigned[rows] - base, casting="unsafe")
    if mask is not None:
        codes[~mask] = 0
    return encoding, codes


def _delta(name: str, values: np.ndarray, page_rows: int, width: int) -> Encoded | None:
    """Return the values as distances from row to row, if that is narrower than `width`."""
    if width == 1 or _code_width(_steps_of_sample(values)) >= width:
        return None
    unsigned = values.view(f"<u{values.itemsize}")
    # Page by page, so that the distances stay in the cache and need little memory.
    pages = [unsigned[start : start + page_rows] for start in range(0, len(values), page_rows)]
    bounds = _bounds_of_steps(pages) or [(0, 0)]
    least, most = min(low for low, _ in bounds), max(high for _, high in bounds)
    found = _code_width([(least, most)])
    if found >= width or not is_one_chunk(len(values), page_rows, found):
        return None
    stored = codes_layout(name, found)
    # The first row of a page has no distance.
    codes = np.zeros(len(values), stored.dtype)
    base = _words([least]).view("<u8").astype(unsigned.dtype)
    for number, page in enumerate(pages):
        place = codes[number * page_rows + 1 : number * page_rows + len(page)]
        np.copyto(place, np.diff(page) - base, casting="unsafe")
    firsts = values[::page_rows].astype("<i8" if values.dtype.kind == "i" else "<u8").view("<i8")
    return Delta(stored, values.itemsize, firsts, _words([least]), page_rows), codes


def _may_be_narrower(values: np.ndarray, mask: np.ndarray | None, page_rows: int) -> bool:
    """True unless a sample shows that values and distances both need all their bytes."""
    pages = [(0, 0)]
    for rows in sample(len(values)):
        # The rows of one page.
        rows = slice(rows.start, min(rows.stop, rows.start // page_rows * page_rows + page_rows))
        pages += _bounds(values[rows], None if mask is None else mask[rows], page_rows)
    if _code_width(pages) < values.itemsize:
        return True
    return mask is None and _code_width(_steps_of_sample(values)) < values.itemsize


def _steps_of_sample(values: np.ndarray) -> list[tuple[int, int]]:
    """Return the bounds of the distances from row to row in a sample."""
    unsigned = values.view(f"<u{values.itemsize}")
    return _bounds_of_steps([unsigned[rows] for rows in sample(len(values))])


def _bounds_of_steps(parts: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Return the bounds of the distances in each part, modulo the range of the type."""
    steps = (np.diff(part).view(f"<i{part.itemsize}") for part in parts if len(part) > 1)
    return [(int(some.min()), int(some.max())) for some in steps]


def _some_of(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return a sample of the values, nulls aside; none only if all rows are null."""
    if mask is None:
        return np.concatenate([values[rows] for rows in sample(len(values))])
    some = np.concatenate([values[rows][mask[rows]] for rows in sample(len(values))])
    return (
        some
        if len(some) >= tuning.current.sampled_values or mask.all()
        else _some_of(values[mask], None)
    )


def may_be_decimals(columns: np.ndarray) -> np.ndarray:
    """Return for each column, and each number of decimals, if half of its values may have it.

    Parameters
    ----------
    columns
        A few doubles of each column, one column in each row of the matrix.
    """
    few = columns[:, :, np.newaxis]
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.rint(few * _POWERS)
        is_decimal = (whole / _POWERS == few) | (whole * _INVERSES == few)
    enough: np.ndarray = 2 * np.count_nonzero(is_decimal, axis=1) >= few.shape[1]
    return enough


def _is_scaled(sample: np.ndarray, power: int, form: str) -> bool:
    """True if nearly every double of a sample is a whole number of 10**-power in this form."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.rint(sample * POWERS[power])
        wide[~(np.abs(wide) < EXACT)] = 0
    encoding = Scaled(codes_layout("", 4), power, form, _words([0]), len(sample))
    found = encoding.scale(wide.astype("<i8").astype("<f8"))
    odd = np.count_nonzero(found.view("<u8") != sample.view("<u8"))
    return bool(odd <= len(sample) // tuning.current.rows_per_exception)


def _bounds(values: np.ndarray, mask: np.ndarray | None, page_rows: int) -> list[tuple[int, int]]:
    """Return the least and the greatest value of each page; (0, 0) for a page of nulls."""
    result = []
    for start in range(0, len(values), page_rows):
        page = values[start : start + page_rows]
        if mask is not None:
            page = page[mask[start : start + page_rows]]
        result.append((int(page.min()), int(page.max())) if len(page) else (0, 0))
    return result


def _code_width(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the bytes of a code that counts from the lower to the upper end of each range."""
    most = max((high - low for low, high in ranges), default=0)
    return next(width for width in (1, 2, 4, 8) if most < 1 << (8 * width))


def _words(values: Sequence[int]) -> np.ndarray:
    """Return integers as 64-bit words, modulo 2**64."""
    return np.array([value & (1 << 64) - 1 for value in values], "<u8").view("<i8")
