"""Encodings from metadata: each is looked up by its kind, and its parameters are checked.

The kinds are a closed list. Knows no files; its errors have no context.
"""

from collections.abc import Mapping

import numpy as np

from blztable.columns.blocks import Encoding, StreamLayout
from blztable.columns.encodings.numbers import FORMS, POWERS, Delta, Narrow, Scaled, codes_layout
from blztable.columns.encodings.words import words_from_json
from blztable.errors import CorruptError, FormatError

# The bytes of a code, by the dtype of the stored stream.
_WIDTHS = {"|u1": 1, "<u2": 2, "<u4": 4}


def parse(
    value: Mapping[str, object], layout: StreamLayout, dtype: str, rows: int, page_rows: int
) -> Encoding:
    """Return the encoding in the metadata of a stream.

    Parameters
    ----------
    value
        The encoding as JSON.
    layout
        The form of the values.
    dtype
        The dtype of the codes.
    rows, page_rows
        Rows of the block and of its pages.

    Raises
    ------
    FormatError
        A newer blztable knows the kind.
    CorruptError
        A parameter is missing or out of its range, or the kind does not suit the values.
    """
    kind, width = value.get("kind"), _WIDTHS.get(dtype)
    if kind not in ("narrow", "scaled", "delta"):
        raise FormatError(f"encoding {kind!r:.100} is unknown; upgrade blztable")
    values, pages = np.dtype(layout.dtype), -(-rows // page_rows)
    takes = "f" if kind == "scaled" else "iu"
    if values.kind not in takes or width is None or width >= values.itemsize:
        raise CorruptError(f"encoding {kind!r} of {layout.dtype} in codes of {dtype!r:.100}")
    stored = codes_layout(layout.name, width)
    if kind == "delta":
        firsts = words_from_json(value.get("firsts"), "firsts", (pages,))
        least = words_from_json(value.get("least"), "least", (1,))
        return Delta(stored, values.itemsize, firsts, least, page_rows)
    bases = words_from_json(value.get("bases"), "bases", (1, pages))
    if kind == "narrow":
        return Narrow(stored, values.itemsize, bases, page_rows)
    power, form = value.get("power"), value.get("form")
    if values.itemsize != 8 or type(power) is not int or not 0 <= power < len(POWERS):
        raise CorruptError(f"encoding 'scaled' of {layout.dtype} with power {power!r:.100}")
    if form not in FORMS:
        raise CorruptError(f"encoding 'scaled' with form {form!r:.100}; expected one of {FORMS}")
    return Scaled(stored, power, str(form), bases, page_rows)
