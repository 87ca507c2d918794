"""Bounds of text and binary values: the smallest and the largest item, cut to a prefix.

A bound has at most `PREFIX_BYTES`. A prefix of the smallest item is never above the item; a prefix
of the largest item is rounded up. Bounds of text are text. Knows nothing of rows and pages.
"""

PREFIX_BYTES = 32


def round_down_prefix(item: bytes, is_text: bool) -> bytes:
    """Return the item, or a prefix of it, which is never above the item."""
    if len(item) <= PREFIX_BYTES:
        return item
    prefix = item[:PREFIX_BYTES]
    return _whole_characters(prefix).encode("utf-8") if is_text else prefix


def round_up_prefix(item: bytes, is_text: bool) -> bytes | None:
    """Return the item, or a short item above all items with its prefix; None if none exists."""
    return item if len(item) <= PREFIX_BYTES else above_prefix(item[:PREFIX_BYTES], is_text)


def above_prefix(prefix: bytes, is_text: bool) -> bytes | None:
    """Return the smallest item of at most this length above all items with this prefix, or None."""
    if not is_text:
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = _whole_characters(prefix).rstrip(chr(0x10FFFF))
    if not text:
        return None
    above = ord(text[-1]) + 1
    # Surrogates are not characters.
    return (text[:-1] + chr(0xE000 if above == 0xD800 else above)).encode("utf-8")


def _whole_characters(prefix: bytes) -> str:
    """Decode a prefix; drop a character that is cut at its end."""
    return prefix.decode("utf-8", "ignore")
