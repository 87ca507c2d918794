"""Attributes: what users pin to a table, as a mapping. Knows nothing of how it is kept."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from blztable.convert.frames.attributes import plain_attrs


class Attributes(MutableMapping[str, Any]):
    """The attributes of a table, as read with the version shown; each change is one commit."""

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

    def clear(self) -> None:
        """Remove all attributes in one commit."""
        self._write({}, tuple(self))

    def popitem(self) -> tuple[str, Any]:
        """Remove the attribute that was set last, as a dict does, and return it with its key."""
        key = next(reversed(tuple(self)), None)
        if key is None:
            raise KeyError("there are no attributes")
        return key, self.pop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self))
