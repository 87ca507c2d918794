"""Encodings from metadata: each is looked up by its kind, and its parameters are checked.

The kinds are a closed list. Knows no files; its errors have no context.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from blztable.block_terms import CODES, ENDS, PER_ITEM, VALID, VALUES
from blztable.columns.blocks import Encoding, StreamLayout
from blztable.columns.codecs.lists import ROWS, Below
from blztable.columns.encodings.constant import Constant, value_from_json, value_width
from blztable.columns.encodings.dictionary import Dictionary, Spelled, items_from_json
from blztable.columns.encodings.items import MAX_MADE_BYTES, ByChunks, Lengths, OneLength, starts_of
from blztable.columns.encodings.numbers import (
    FORMS,
    MOST_ODD,
    POWERS,
    Delta,
    Narrow,
    Scaled,
    Wide,
    codes_layout,
    words_from_json,
)
from blztable.columns.encodings.runs import MOST_RUNS, BitmapRuns
from blztable.columns.encodings.values import FewValues, values_from_json
from blztable.errors import CorruptError, FormatError

# The only values but numbers that can be narrow: decimals of 128 bits, as Arrow has them.
_WIDE = "|V16"
# The bytes of a code, by the dtype of the stored stream.
_WIDTHS = {"|u1": 1, "<u2": 2, "<u4": 4}


@dataclass(frozen=True, slots=True)
class StreamContext:
    """The stream that is encoded, and its block.

    Attributes
    ----------
    layout
        The form of the values.
    rows, page_rows
        Rows of the block and of its pages.
    pages
        The bytes of the items of each page; None if the block has no items.
    items
        The bytes of each item if the items are a chunk each, otherwise None.
    is_text, is_child
        True if the items are text; True if the block is the dictionary of a dictionary type.
    """

    layout: StreamLayout
    rows: int
    page_rows: int
    pages: Sequence[int] | None = None
    is_text: bool = False
    is_child: bool = False
    items: Sequence[int] | None = None


def parse(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    """Return the encoding in the metadata of a stream, given the dtype of its codes.

    Raises
    ------
    FormatError
        A newer blztable knows the kind.
    CorruptError
        A parameter is missing or out of its range, or the kind does not suit the values.
    """
    kind = value.get("kind")
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise FormatError(f"encoding {kind!r:.100} is unknown; upgrade blztable")
    if (context.layout.dtype == ROWS) != (make is _rows_below):
        raise CorruptError(f"encoding {kind!r} of {context.layout.dtype} in {dtype!r:.100}")
    return make(value, context, dtype)


def _of_numbers(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    """Return narrow, scaled or delta."""
    kind, layout = value["kind"], context.layout
    is_wide = kind == "narrow" and layout.dtype == _WIDE
    takes = "f" if kind == "scaled" else "iu"
    is_such = layout.name in (VALUES, CODES)
    is_such = is_such and (is_wide or np.dtype(layout.dtype).kind in takes)
    stored = _codes(value, context, dtype, is_such)
    values, pages = np.dtype(layout.dtype), -(-context.rows // context.page_rows)
    if kind == "delta":
        firsts = words_from_json(value.get("firsts"), "firsts", (pages,))
        least = words_from_json(value.get("least"), "least", (1,))
        return Delta(stored, values.itemsize, firsts, least, context.page_rows)
    bases = words_from_json(value.get("bases"), "bases", (1, pages))
    if is_wide:
        return Wide(stored, values.itemsize, bases, context.page_rows)
    if kind == "narrow":
        return Narrow(stored, values.itemsize, bases, context.page_rows)
    power, form = value.get("power"), value.get("form")
    if values.itemsize != 8 or type(power) is not int or not 0 <= power < len(POWERS):
        raise CorruptError(f"encoding 'scaled' of {layout.dtype} with power {power!r:.100}")
    if form not in FORMS:
        raise CorruptError(f"encoding 'scaled' with form {form!r:.100}; expected one of {FORMS}")
    nan = value.get("nan")
    if nan is not None and (type(nan) is not int or not 0 <= nan < 256 ** stored.nbytes(1)):
        raise CorruptError(f"encoding 'scaled' with {nan!r:.100} as the code of NaN")
    at, odd = _odd_values(value, context.rows)
    return Scaled(stored, power, str(form), bases, context.page_rows, at, odd, nan)


def _odd_values(value: Mapping[str, object], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of odd values and their bits; CorruptError unless the rows ascend."""
    if "at" not in value:
        return np.empty(0, "<i8"), np.empty(0, "<i8")
    at = words_from_json(value["at"], "at", range(1, MOST_ODD + 1))
    odd = words_from_json(value.get("odd"), "odd", (len(at),))
    _check_ascend(at, rows)
    return at, odd


def _lengths(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    stored = _codes(value, context, dtype, context.layout.name == ENDS)
    return Lengths(stored, context.layout.typesize, _starts(context), context.page_rows)


def _each(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    layout, length = context.layout, value.get("length")
    if layout.name != ENDS or type(length) is not int or length < 0:
        raise CorruptError(f"encoding 'each' of stream {layout.name!r} with length {length!r:.100}")
    _check_made(layout.nbytes(context.rows))
    starts, step = _starts(context), context.page_rows
    # The last page may be short.
    if any(start != length * step * page for page, start in enumerate(starts[:-1].tolist())) or (
        int(starts[-1]) != length * context.rows
    ):
        raise CorruptError(f"the pages of items do not have items of {length} bytes each")
    return OneLength(layout, length)


def _by_chunks(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    layout = context.layout
    if layout.name != ENDS or context.items is None or context.is_child:
        raise CorruptError(f"encoding {PER_ITEM!r} of stream {layout.name!r}")
    ends = np.cumsum(np.array(context.items, np.int64))
    starts = np.append(0, ends[context.page_rows - 1 :: context.page_rows])
    if context.rows % context.page_rows:
        starts = np.append(starts, ends[-1])
    if not np.array_equal(starts, _starts(context)):
        raise CorruptError("the chunks of items do not match the end of their page")
    if int(starts[-1]) >> (8 * layout.typesize - 1):
        raise CorruptError(f"items of {starts[-1]} bytes, and ends of {layout.typesize} bytes")
    return ByChunks(layout, ends)


def _dictionary(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    layout = context.layout
    if layout.name == VALUES and layout.bits is not None:
        width = value_width(layout)
        stored = _codes(value, context, dtype, width > 1)
        return FewValues(stored, values_from_json(value.get("items"), width))
    if context.is_child:
        raise CorruptError("encoding 'dictionary' of items within a dictionary")
    if layout.name == VALUES and layout.bits is None:
        # The size of the bytes of items follows from no number of rows.
        return Spelled(replace(layout, bits=0))
    stored = _codes(value, context, dtype, layout.name == ENDS)
    items = items_from_json(value, context.is_text)
    return Dictionary(stored, layout.typesize, items, _starts(context), context.page_rows)


def _rows_below(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    return Below(replace(context.layout, bits=0))


def _constant(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    layout = context.layout
    found = value_from_json(value.get("value"), layout)
    if layout.name == ENDS:
        raise CorruptError("encoding 'constant' of item ends, which ascend")
    _check_made(layout.nbytes(context.rows))
    return Constant(layout, found)


def _runs(value: Mapping[str, object], context: StreamContext, dtype: str) -> Encoding:
    if context.layout.name != VALID:
        raise CorruptError(f"encoding 'runs' of stream {context.layout.name!r}")
    at = words_from_json(value.get("at"), "at", range(1, MOST_RUNS + 1))
    _check_ascend(at, context.rows)
    _check_made(context.layout.nbytes(context.rows))
    return BitmapRuns(context.layout, at)


def _check_ascend(at: np.ndarray, rows: int) -> None:
    """Raise CorruptError unless these are some of so many rows, ascending."""
    if at[0] < 0 or at[-1] >= rows or (at[1:] <= at[:-1]).any():
        raise CorruptError(f"places of an encoding of {rows} rows; expected rows that ascend")


_KINDS: dict[str, Callable[[Mapping[str, object], StreamContext, str], Encoding]] = {
    "narrow": _of_numbers,
    "scaled": _of_numbers,
    "delta": _of_numbers,
    "lengths": _lengths,
    "each": _each,
    PER_ITEM: _by_chunks,
    "dictionary": _dictionary,
    "constant": _constant,
    "runs": _runs,
    "rows": _rows_below,
}


def _codes(
    value: Mapping[str, object], context: StreamContext, dtype: str, is_such: bool
) -> StreamLayout:
    """Return the form of codes; CorruptError unless they are narrower than the values.

    `is_such` is True if the kind suits the stream.
    """
    layout, width = context.layout, _WIDTHS.get(dtype)
    if not is_such or width is None or width >= np.dtype(layout.dtype).itemsize:
        raise CorruptError(
            f"encoding {value['kind']!r} of stream {layout.name!r} of {layout.dtype} "
            f"in codes of {dtype!r:.100}"
        )
    return codes_layout(layout.name, width)


def _starts(context: StreamContext) -> np.ndarray:
    """Return where the items of each page begin, and where the last ones end."""
    if context.pages is None:
        raise CorruptError("item ends of a block without items")
    return starts_of(context.pages)


def _check_made(nbytes: int) -> None:
    """Raise CorruptError if a file claims many bytes of values and has none of them."""
    if nbytes > MAX_MADE_BYTES:
        raise CorruptError(f"{nbytes} bytes are made of nothing; at most {MAX_MADE_BYTES} may be")
