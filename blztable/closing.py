"""Closing: a context manager whose end calls `close`.

Knows nothing of the objects that are closed.
"""

from typing import Self


class Closing:
    """An object with a method `close`; the end of its `with` closes it."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the resources of the object; closing twice is harmless."""
        raise NotImplementedError
