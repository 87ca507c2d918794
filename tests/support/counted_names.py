"""Names that count their comparisons, so that a test can limit a cost.

The count tells a function that compares every pair of names from one that looks up each name.
"""


class Counted(str):
    """A name; `compared` counts the comparisons of all names since `reset`."""

    __slots__ = ()
    compared = 0

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def counted(names) -> list[Counted]:
    """Return these names as counted names, and reset the count."""
    Counted.compared = 0
    return list(map(Counted, names))
