"""Names and sizes as people read them, for reprs."""

NAME_LENGTH = 40


def short_text(name: str) -> str:
    """A name that fits a line."""
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 3] + "..."


def size_text(nbytes: int) -> str:
    """A number of bytes, with the unit that suits it."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
