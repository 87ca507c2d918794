"""Names that count how often any of them is compared, so that a test can bound a cost.

A function that compares every name with every other one is told from one that looks each up.
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
    """These names, and the count set to 0."""
    Counted.compared = 0
    return list(map(Counted, names))
