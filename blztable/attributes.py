"""Attributes: what users pin to a table, as a mapping. Knows nothing of how it is kept."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from blztable.convert.attributes import plain_attrs


class Attributes(MutableMapping[str, Any]):
    """The attributes of a table, as read with the version shown; each assignment is one commit."""

    def __init__(
        self,
        read: Callable[[], Mapping[str, Any]],
        write: Callable[[Mapping[str, Any], Sequence[str]], None],
    ) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, key: str) -> Any:
        return plain_attrs({key: self._read()[key]})[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._write({key: value}, ())

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._write({}, (key,))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several attributes in one commit."""
        self._write(dict(*args, **kwargs), ())

    def change(self, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
        """Set some attributes and remove others in one commit."""
        self._write(changes, removed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self))
