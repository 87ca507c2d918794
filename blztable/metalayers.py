"""Metalayers: named bytes of the user, as mappings: fixed ones and variable ones.

Knows nothing of files: the owner gives the contents and takes a changed one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from blztable.errors import LimitError
from blztable.format.metalayers import FIXED, MAX_LAYERS, check_name, check_size

Get = Callable[[], Mapping[str, bytes]]
# Takes names of metalayers and their new contents, None for those to remove, in one change.
Put = Callable[[Mapping[str, bytes | None]], None]
# What a thread holds while a change is made of what is there.
InTurn = Callable[[], AbstractContextManager[object]]


class Metalayers(Mapping[str, bytes]):
    """Named bytes; `add`, `get`, `exists` and `update` are the verbs of C-Blosc2."""

    def __init__(self, owner: str, get: Get, put: Put, turn: InTurn = nullcontext) -> None:
        self._owner = owner
        self._all = get
        self._put = put
        self._turn = turn

    def __getitem__(self, name: str) -> bytes:
        layers = self._all()
        if name not in layers:
            raise KeyError(f"{self._owner} has no metalayer {name!r}; there are {list(layers)}")
        return layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __setitem__(self, name: str, content: bytes) -> None:
        with self._turn():
            if name in self._all():
                self.update(name, content)
            else:
                self.add(name, content)

    def __reduce__(self) -> tuple[type, tuple[dict[str, bytes]]]:
        # A copy belongs to nobody.
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    def exists(self, name: str) -> bool:
        """Return whether there is a metalayer of this name.

        Parameters
        ----------
        name : str
            Its name.

        Returns
        -------
        bool

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz", storage=blz.Storage(meta={"unit": b"kg"}))
        >>> with blz.open("t.blz") as t:
        ...     print(t.meta.exists("unit"), t.vlmeta.exists("unit"))
        True False
        """
        return name in self._all()

    def add(self, name: str, content: bytes) -> None:
        """Add a metalayer.

        Parameters
        ----------
        name : str
            At most 31 bytes of UTF-8.
        content : bytes
            What it holds.

        Raises
        ------
        KeyError
            There is one of this name; `update` changes it.
        LimitError
            There are as many as fit, or it is too long.
        ValueError
            It is a fixed one, and too late to add it.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz")
        >>> with blz.open("t.blz", "a") as t:
        ...     t.vlmeta.add("unit", b"kg")
        ...     print(t.vlmeta["unit"])
        b'kg'
        """
        check_name(name)
        with self._turn():
            if name in self._all():
                raise KeyError(f"{self._owner} has a metalayer {name!r}; update() changes it")
            if len(self._all()) == MAX_LAYERS:
                raise LimitError(f"{self._owner} has {MAX_LAYERS} metalayers; no more fit")
            self._put({name: self._checked(name, content)})

    def update(self, name: str, content: bytes) -> None:
        """Change the content of a metalayer.

        Parameters
        ----------
        name : str
            Its name.
        content : bytes
            What it holds from now on; a fixed one keeps its length.

        Raises
        ------
        KeyError
            There is none of this name; `add` makes one.
        ValueError
            It is a fixed one of another length.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz", storage=blz.Storage(meta={"unit": b"kg"}))
        >>> with blz.open("t.blz", "a") as t:
        ...     t.meta.update("unit", b"lb")
        ...     print(t.meta["unit"])
        b'lb'
        """
        with self._turn():
            self[name]
            self._put({name: self._checked(name, content)})

    def _checked(self, name: str, content: bytes) -> bytes:
        """Return the content of a metalayer; raise an error if it cannot be this."""
        return _content(content)


class FixedMetalayers(Metalayers):
    """Metalayers that keep their length; after a time, none can be added."""

    def __init__(
        self, owner: str, get: Get, put: Put, turn: InTurn, refusal: Callable[[], str | None]
    ) -> None:
        """`refusal` says when metalayers are added, if none can be added now."""
        super().__init__(owner, get, put, turn)
        self._refusal = refusal

    def add(self, name: str, content: bytes) -> None:
        """Add a metalayer; ValueError if it is too late."""
        refusal = self._refusal()
        if name not in self._all() and refusal is not None:
            raise ValueError(
                f"{self._owner}: fixed metalayers are {refusal}; {name!r} can be a variable one, "
                "in vlmeta"
            )
        super().add(name, content)

    def _checked(self, name: str, content: bytes) -> bytes:
        content, present = _content(content), self._all()
        if name in present and len(content) != len(present[name]):
            raise ValueError(
                f"{name!r} has {len(present[name])} bytes and keeps them, not {len(content)}"
            )
        check_fixed({**present, name: content})
        return content


class VariableMetalayers(Metalayers):
    """Metalayers that may be added, resized and removed at any time."""

    def delete(self, name: str) -> None:
        """Remove a metalayer.

        Parameters
        ----------
        name : str
            Its name.

        Raises
        ------
        KeyError
            There is none of this name.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz")
        >>> with blz.open("t.blz", "a") as t:
        ...     t.vlmeta["unit"] = b"kg"
        ...     t.vlmeta.delete("unit")
        ...     print(t.vlmeta.get("unit"))
        None
        """
        with self._turn():
            self[name]
            self._put({name: None})

    def __delitem__(self, name: str) -> None:
        self.delete(name)

    def pop(self, name: str, *default: bytes | None) -> bytes | None:
        """Remove a metalayer, and return it.

        Parameters
        ----------
        name : str
            Its name.
        *default : bytes or None
            What to return if there is none of this name.

        Returns
        -------
        bytes or None
            Its content, or the default.

        Raises
        ------
        KeyError
            There is none of this name, and no default.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz")
        >>> with blz.open("t.blz", "a") as t:
        ...     t.vlmeta["unit"] = b"kg"
        ...     print(t.vlmeta.pop("unit"), t.vlmeta.pop("unit", None))
        b'kg' None
        """
        with self._turn():
            if default and name not in self._all():
                [content] = default
                return content
            content = self[name]
            self._put({name: None})
            return content

    def clear(self) -> None:
        """Remove all of them in one change.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz")
        >>> with blz.open("t.blz", "a") as t:
        ...     t.vlmeta["unit"], t.vlmeta["pet"] = b"kg", b"cat"
        ...     t.vlmeta.clear()
        ...     print(len(t.vlmeta), t.version)
        0 4
        """
        with self._turn():
            names = list(self._all())
            if names:
                self._put(dict.fromkeys(names))


def check_fixed(meta: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return fixed metalayers as bytes; raise an error unless one owner can have these."""
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta is {meta!r:.80}; expected a mapping of names to bytes")
    for name in meta:
        check_name(name)
    meta = {name: _content(content) for name, content in meta.items()}
    total = sum(len(name.encode()) + len(content) for name, content in meta.items())
    check_size(FIXED, len(meta), total)
    return meta


def _content(content: object) -> bytes:
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"a metalayer holds {type(content).__name__}; expected bytes")
    return bytes(content)
