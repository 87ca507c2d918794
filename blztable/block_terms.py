"""Block terms: the names that format and columns both use for a block and its streams.

Knows neither JSON nor Arrow.
"""

# The encoding of a block whose streams have the layout of Arrow.
PLAIN = "plain"

# How items are divided into chunks: several in a chunk, or one in each.
PACKED = "packed"
PER_ITEM = "per_item"
PACKINGS = (PACKED, PER_ITEM)

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
    """Return chunks of `size` bytes; the last one is smaller if `nbytes` is no multiple of it."""
    full, rest = divmod(nbytes, size)
    return (size,) * full + ((rest,) if rest else ())
