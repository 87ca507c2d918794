"""Attributes of an array: names and values of JSON, as a mapping that writes each change.

Knows nothing of files.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

from blztable.arrays.files.trailer import MAX_LAYER_BYTES
from blztable.errors import LimitError
from blztable.format import jsontext


class ArrayAttributes(MutableMapping[str, Any]):
    """Names and values of JSON; a change is written at once."""

    def __init__(
        self,
        get: Callable[[], dict[str, Any]],
        put: Callable[[dict[str, Any]], None],
        turn: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """`turn` is held while a change is made of what is there."""
        self._get = get
        self._put = put
        self._turn = turn

    def __getitem__(self, name: str) -> Any:
        # A change within the value would be seen here, and never written.
        return deepcopy(self._get()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        with self._turn():
            self[name]
            self._put({each: value for each, value in self._get().items() if each != name})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several attributes in one change, as `dict.update`."""
        changed = dict(*args, **kwargs)
        with self._turn():
            self._put(plain({**self._get(), **changed}))

    def clear(self) -> None:
        """Remove all attributes in one change."""
        self._put({})

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy belongs to no file.
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"ArrayAttributes({self._get()!r})"


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of values of JSON; TypeError or ValueError for others."""
    if not isinstance(values, Mapping):
        raise TypeError(f"attrs is {values!r:.80}; expected a mapping of names to values")
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"the name of an attribute is {type(name).__name__}; expected str")
    text = jsontext.dumps(dict(values))
    if len(text) > MAX_LAYER_BYTES:
        raise LimitError(f"attributes of {len(text)} bytes; at most {MAX_LAYER_BYTES} are kept")
    copy = jsontext.loads(text, "the attributes")
    assert isinstance(copy, dict)
    return copy
