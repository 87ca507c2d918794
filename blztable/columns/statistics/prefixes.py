"""The smallest and the largest of items of bytes, without comparing them one by one.

Kept is a prefix of at most `PREFIX_BYTES` that is still a bound: what comes before the smallest
item comes before all, and the largest is raised where it is cut. Knows nothing of rows or pages.
"""

from collections.abc import Callable

import numpy as np

WORD = 8
PREFIX_WORDS = 4
PREFIX_BYTES = WORD * PREFIX_WORDS

# By the number of bytes that count, from the first.
_MASKS = np.array([(1 << 64) - (1 << 64 - 8 * size) for size in range(WORD + 1)], np.uint64)


def item_extremes(
    data: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> tuple[tuple[bytes, bool], tuple[bytes, bool]]:
    """The smallest and the largest item. Their first bytes leave few that can be it."""
    has_empty = lengths.min() == 0
    if has_empty:
        filled = np.flatnonzero(lengths)
        starts, lengths = starts[filled], lengths[filled]
        if len(starts) == 0:
            return (b"", True), (b"", True)
    first = data[starts]
    least, most = first.min(), first.max()
    if lengths.max() == 1:
        low, high = (bytes([least]), True), (bytes([most]), True)
    else:
        tie_low, tie_high = np.flatnonzero(first == least), np.flatnonzero(first == most)
        low = _extreme(data, starts[tie_low], lengths[tie_low], np.min)
        high = _extreme(data, starts[tie_high], lengths[tie_high], np.max)
    return ((b"", True) if has_empty else low), high


def _extreme(
    data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    pick: Callable[[np.ndarray], np.generic],
) -> tuple[bytes, bool]:
    """The first bytes of the smallest or largest item, and whether they are all of it.

    They are compared word by word, and those that tie in a word go on to the next. Where an item
    ends within the word, those that tie differ by zero bytes at their ends only: the shortest is
    the smallest.
    """
    prefix = b""
    for _ in range(PREFIX_WORDS):
        words = _words(data, starts, lengths)
        extreme = pick(words)
        ties = np.flatnonzero(words == extreme)
        lengths = lengths[ties]
        length = int(pick(lengths))
        prefix += int(extreme).to_bytes(WORD, "big")[:length]
        if length <= WORD:
            return prefix, True
        longer = lengths > WORD
        starts, lengths = starts[ties][longer] + WORD, lengths[longer] - WORD
    return prefix, False


def _words(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Eight bytes of each item as a number that sorts like them, zeros behind its end."""
    at = np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))
    words = at[starts].byteswap()
    words &= _MASKS[np.minimum(lengths, WORD)]
    return words


def round_down_prefix(item: tuple[bytes, bool], is_text: bool) -> bytes:
    """The smallest item, or the whole characters of its prefix."""
    prefix, whole = item
    return prefix if whole or not is_text else _whole_characters(prefix).encode("utf-8")


def round_up_prefix(item: tuple[bytes, bool], is_text: bool) -> bytes | None:
    """The smallest short item above all that begin like this; None where there is none."""
    prefix, whole = item
    if whole:
        return prefix
    if not is_text:
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = _whole_characters(prefix).rstrip(chr(0x10FFFF))
    if not text:
        return None
    above = ord(text[-1]) + 1
    # The surrogates are no characters.
    return (text[:-1] + chr(0xE000 if above == 0xD800 else above)).encode("utf-8")


def _whole_characters(prefix: bytes) -> str:
    """The text of a prefix that may end inside a character."""
    return prefix.decode("utf-8", "ignore")
