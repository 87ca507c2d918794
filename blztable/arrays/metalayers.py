"""Metalayers: named bytes of the user, in the front (fixed) or in the trailer (variable).

Knows nothing of files: the owner gives the mapping and takes a changed one.
"""

from collections.abc import Callable, Iterator, Mapping

from blztable.errors import LimitError
from blztable.format.trailer import MAX_LAYERS, MAX_NAME_BYTES, Layer

# The fixed metalayers of an array together.
MAX_FIXED_BYTES = 65_535
# Layers of this package begin so.
RESERVED = "blz."


class Metalayers(Mapping[str, bytes]):
    """Named bytes; `add`, `get`, `exists` and `update` are the verbs of C-Blosc2."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def _all(self) -> Mapping[str, bytes]:
        raise NotImplementedError

    def _set(self, name: str, content: bytes) -> None:
        raise NotImplementedError

    def __getitem__(self, name: str) -> bytes:
        found = self._all()
        if name not in found:
            raise KeyError(f"{self._owner} has no metalayer {name!r}; there are {list(found)}")
        return found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __setitem__(self, name: str, content: bytes) -> None:
        if name in self._all():
            self.update(name, content)
        else:
            self.add(name, content)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    def get(self, name: str) -> bytes:  # type: ignore[override]
        """Return the content of a metalayer; KeyError if there is none."""
        return self[name]

    def exists(self, name: str) -> bool:
        """Return whether there is a metalayer of this name."""
        return name in self._all()

    def add(self, name: str, content: bytes) -> None:
        """Add a metalayer; KeyError if there is one of this name."""
        check_name(name)
        if name in self._all():
            raise KeyError(f"{self._owner} has a metalayer {name!r}; update() changes it")
        if len(self._all()) == MAX_LAYERS:
            raise LimitError(f"{self._owner} has {MAX_LAYERS} metalayers; no more fit")
        self._set(name, _content(content))

    def update(self, name: str, content: bytes) -> None:
        """Change the content of a metalayer; KeyError if there is none."""
        old = self[name]
        self._check_update(name, old, _content(content))
        self._set(name, _content(content))

    def _check_update(self, name: str, old: bytes, content: bytes) -> None:
        """ValueError if this content cannot replace the old one."""


class FixedMetalayers(Metalayers):
    """Metalayers in the front: added before the first chunk, and never resized."""

    def __init__(
        self,
        owner: str,
        get: Callable[[], Mapping[str, bytes]],
        put: Callable[[Mapping[str, bytes]], None],
        is_fixed: Callable[[], bool],
    ) -> None:
        super().__init__(owner)
        self._all = get  # type: ignore[method-assign]
        self._put = put
        self._is_fixed = is_fixed

    def add(self, name: str, content: bytes) -> None:
        """Add a metalayer; ValueError if there is a chunk."""
        if name not in self._all() and self._is_fixed():
            raise ValueError(
                f"{self._owner}: fixed metalayers are added before the first chunk; {name!r} can "
                "be a variable one, in vlmeta"
            )
        super().add(name, content)

    def _check_update(self, name: str, old: bytes, content: bytes) -> None:
        if len(content) != len(old):
            raise ValueError(f"{name!r} has {len(old)} bytes and keeps them, not {len(content)}")

    def _set(self, name: str, content: bytes) -> None:
        changed = {**self._all(), name: content}
        check_fixed(changed)
        self._put(changed)


class VariableMetalayers(Metalayers):
    """Metalayers in the trailer: added, resized and removed at any time."""

    def __init__(
        self,
        owner: str,
        get: Callable[[], Mapping[str, Layer]],
        put: Callable[[dict[str, Layer]], None],
    ) -> None:
        super().__init__(owner)
        self._layers = get
        self._put = put

    def _all(self) -> Mapping[str, bytes]:
        return {name: layer.decode() for name, layer in self._layers().items()}

    def _set(self, name: str, content: bytes) -> None:
        self._put({**self._layers(), name: Layer.encode(content)})

    def delete(self, name: str) -> None:
        """Remove a metalayer; KeyError if there is none."""
        self[name]
        self._put({each: layer for each, layer in self._layers().items() if each != name})

    def __delitem__(self, name: str) -> None:
        self.delete(name)


def check_fixed(meta: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the fixed metalayers of an array; raise an error unless they can be these."""
    for name in meta:
        check_name(name)
    meta = {name: _content(content) for name, content in meta.items()}
    total = sum(len(name.encode()) + len(content) for name, content in meta.items())
    if len(meta) > MAX_LAYERS or total > MAX_FIXED_BYTES:
        raise LimitError(
            f"{len(meta)} fixed metalayers of {total} bytes; at most {MAX_LAYERS} of "
            f"{MAX_FIXED_BYTES} bytes fit; vlmeta has more room"
        )
    return meta


def check_name(name: object) -> None:
    """Raise an error unless this is a name that a metalayer of the user may have."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a metalayer is {type(name).__name__}; expected str")
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise LimitError(f"{name!r}: the name of a metalayer has 1 to {MAX_NAME_BYTES} bytes")
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r}: names that begin with {RESERVED!r} are those of the format")


def _content(content: object) -> bytes:
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"a metalayer holds {type(content).__name__}; expected bytes")
    return bytes(content)
