"""Checks that page records match the rows: nulls, NaNs and bounds.

Filters skip rows because of page records, so a bound that is too narrow would silently lose rows. A
bound that is wider is correct and accepted, unless the part says that its bounds are values. Knows
nothing of files.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import as_stored, value_type
from blztable.columns.parts.bounds import empty, of_words
from blztable.columns.parts.physical import (
    Form,
    Physical,
    physical,
    upper_words,
    validity_of,
    values_of,
    words_of,
)
from blztable.columns.parts.stream import cuts
from blztable.format.bounds import (
    GREATEST,
    LEAST,
    WORD_BYTES,
    floats_of_words,
    scales,
    values_of_floats,
    word_of_bytes,
)
from blztable.format.records import EXACT_BOUNDS, WORD, Array, Records


def false_statistics(array: pa.Array, records: Records) -> Iterator[tuple[int, str]]:
    """Yield (page, message) for each statement of the records of a part that its rows belie."""
    part, pages = records.parts[0], records.pages
    log2 = int(part["page"])
    if not len(pages) or pa.types.is_null(array.type):
        return
    array = as_stored(array)
    if pa.types.is_dictionary(array.type) and not pa.types.is_nested(value_type(array.type)):
        # Arrow takes no views.
        array = as_stored(array.dictionary).take(array.indices)
    form = physical(array.type)
    valid = np.zeros(len(array), bool) if pa.types.is_null(array.type) else validity_of(array)
    first = cuts(len(array), log2)
    rows = np.diff(np.append(first, len(array)))
    nans = _nans(array, valid) if form.form is Form.FLOAT else np.zeros(len(array), bool)
    nulls = np.zeros(len(array), bool) if valid is None else ~valid
    counted = {}
    for name, which, what in (("nulls", nulls, "nulls"), ("nans", nans, "NaNs")):
        counted[name] = np.add.reduceat(which, first, dtype=np.int64)
        for page in np.flatnonzero(counted[name] != pages[name]).tolist():
            stated = int(pages[name][page])
            yield page, f"{int(counted[name][page])} {what}, the statistics say {stated}"
    has_values = counted["nulls"] + counted["nans"] < rows
    states_none = pages["min"] > pages["max"]
    for page in np.flatnonzero(has_values & states_none).tolist():
        yield page, "values, the bounds say that there are none"
    known = has_values & ~states_none
    if form.order is None or not known.any():
        return
    if form.form is Form.BYTES:
        low, high = _items(array, records, known)
    else:
        low, high = _beyond(array, form, ~(nulls | nans), records)
    for side, beyond in (("lower", low), ("upper", high)):
        for page in np.flatnonzero(beyond & known).tolist():
            word = int(pages["min" if side == "lower" else "max"][page])
            yield page, f"the {side} bound, the word {word}, does not belong to the values"


def _nans(array: pa.Array, valid: Array | None) -> Array:
    """Return which rows are NaN."""
    nans = np.isnan(values_of(array, physical(array.type)))
    return nans if valid is None else nans & valid


def _beyond(
    array: pa.Array, form: Physical, ordered: Array, records: Records
) -> tuple[Array, Array]:
    """Return for each page whether its lower bound, and its upper one, is wrong."""
    part, stated = records.parts[0], records.pages
    (whole,), (power,) = scales(records)
    values = values_of(array, form)
    is_exact = bool(part["flags"] & EXACT_BOUNDS)
    if form.form is not Form.WIDE:
        words = words_of(values, form)
    elif not is_exact:
        words = upper_words(values, form)
    else:
        words, last = values.view(WORD)[:, 0], values.view(WORD)[:, 1:]
        if (last != (words >> 63)[:, None])[ordered].any():
            every = np.ones(len(stated), bool)
            return every, every
    own = empty(len(array), int(part["page"]))
    of_words(own, words, int(part["page"]), ordered)
    pairs = [(own["min"], stated["min"]), (own["max"], stated["max"])]
    if form.form is Form.FLOAT:
        # As numbers, zeros of both signs are equal.
        many = np.full(len(stated), whole), np.full(len(stated), power)
        pairs = [(floats_of_words(bound), values_of_floats(word, *many)) for bound, word in pairs]
    (least, low), (greatest, high) = pairs
    if is_exact:
        return least != low, greatest != high
    is_number = form.form is not Form.FLOAT
    # The extreme words of an encoding say that a bound of floats is not known.
    low_known = is_number | ~whole | (stated["min"] != LEAST)
    high_known = is_number | ~whole | (stated["max"] != GREATEST)
    return (least < low) & low_known, (greatest > high) & high_known


def _items(array: pa.Array, records: Records, known: Array) -> tuple[Array, Array]:
    """Return for each page of text whether its lower bound, and its upper one, is wrong."""
    part, pages = records.parts[0], records.pages
    prefix, rows = records.prefixes.tobytes(), 1 << int(part["page"])
    is_exact = bool(part["flags"] & EXACT_BOUNDS)
    low, high = np.zeros(len(pages), bool), np.zeros(len(pages), bool)
    binary = pa.large_binary() if physical(array.type).width == 8 else pa.binary()
    for page in np.flatnonzero(known).tolist():
        extremes = pc.min_max(array.slice(page * rows, rows).cast(binary))
        for name, wrong in (("min", low), ("max", high)):
            item, stated = extremes[name].as_py(), int(pages[name][page])
            if not is_exact and name == "max" and stated == GREATEST:
                continue  # This bound is not known.
            behind = item.removeprefix(prefix)
            word = word_of_bytes(behind)
            if not item.startswith(prefix):
                wrong[page] = True
            elif is_exact:
                is_whole = len(behind) <= WORD_BYTES and not behind.endswith(b"\0")
                wrong[page] = word != stated or not is_whole
            else:
                wrong[page] = word < stated if name == "min" else word > stated
    return low, high
