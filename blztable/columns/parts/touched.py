"""Touched: which bytes of its streams a decode of some rows of a part may need.

It follows from the records alone, so all bytes of a read can be asked for before the first one has
come. `decode.py` never needs others, except of long items in single rows. Knows no files.
"""

from collections.abc import Iterator

import numpy as np

from blztable import tuning
from blztable.columns.parts.decode import Chosen, EncodedRows
from blztable.columns.parts.physical import Form
from blztable.format.records import ITEMS_VALID, LENGTHS, SUM, VALID, VALUES, Array


def touched(part: EncodedRows, chosen: Chosen) -> Iterator[tuple[int, Array, Array]]:
    """Yield names of streams that have bytes, and where ranges of these begin and end."""
    if isinstance(chosen, np.ndarray):
        starts, stops = chosen, chosen + 1
    else:
        rows = [(one.start, one.stop) for one in chosen if one.start < one.stop]
        starts, stops = np.array(rows, np.int64).reshape(-1, 2).T
    if not len(starts):
        return
    for name, stream in part.streams.items():
        if not stream.nbytes:
            continue
        if name >= ITEMS_VALID:
            # The items of a dictionary are read whole.
            yield name, np.zeros(1, np.int64), np.array([stream.nbytes])
        elif name == VALID:
            yield name, starts >> 3, stops + 7 >> 3
        elif name == VALUES and part.form.form is Form.BYTES:
            yield name, *_items(part, starts, stops, is_single=isinstance(chosen, np.ndarray))
        else:
            width = stream.width or part.form.width
            # Sums are counted from the beginning of a page.
            begins = starts >> part.page << part.page if stream.flags & SUM else starts
            yield name, begins * width, stops * width


def _items(
    part: EncodedRows, starts: Array, stops: Array, *, is_single: bool
) -> tuple[Array, Array]:
    """Return where the items of the pages of some rows begin and end.

    Of single rows, a page with many bytes is left out: its lengths say which of them are needed.
    """
    words = part.streams[LENGTHS].words
    begins, ends = words[starts >> part.page], words[-(-stops >> part.page)]
    if is_single:
        are_few = ends - begins <= tuning.current.spare_text_bytes
        begins, ends = begins[are_few], ends[are_few]
    return begins, ends
