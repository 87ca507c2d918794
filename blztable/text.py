"""Text: shorten names and format byte sizes for reprs. Knows nothing else."""

NAME_LENGTH = 40


def short_text(name: str) -> str:
    """Return the name, cut to fit a line."""
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 3] + "..."


def size_text(nbytes: int) -> str:
    """Return a number of bytes as text with a unit."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
