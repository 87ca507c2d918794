"""The terms of a block that its bytes (format) and its arrays (columns) share.

Knows neither JSON nor Arrow.
"""

# The encoding of a block whose streams are the values as Arrow has them.
PLAIN = "plain"

# Names of streams.
VALID = "valid"
ENDS = "ends"
VALUES = "values"
CODES = "codes"

# Names of children.
DICTIONARY = "dictionary"

# A page has a power of two rows, at least this many: then each page of a bitmap is whole bytes.
MIN_PAGE_ROWS = 8


def child_prefix(prefix: str, child: str) -> str:
    """Return the prefix of the names of a child's streams, as in ``dictionary.values``."""
    return f"{prefix}{child}."


def split_evenly(nbytes: int, size: int) -> tuple[int, ...]:
    """Return chunks of `size` bytes; the last one is smaller where `nbytes` is no multiple."""
    full, rest = divmod(nbytes, size)
    return (size,) * full + ((rest,) if rest else ())
