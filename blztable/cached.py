"""Cached: what was computed is kept, with an object or, within one bound, in the process.

`cached_property` keeps a value as long as its instance. `functools.cached_property` of Python 3.11
has a lock that all instances share: threads wait for each other, and a child made by fork may find
it locked for ever. Here two threads may compute a value twice; the last one stays.

A `Cache` keeps what one owner has parsed and checked: versions, the leaves of a table, the parts of
an open table. After a read, `trim` compares what all owners have with the bound, and the owner that
has most gives what it kept first. No lock is taken: bytes are only added to the sum of the process,
which two threads may do at once, so now and then it is computed anew from the sizes.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from operator import index
from typing import Any, Generic, Self, TypeVar, overload
from weakref import WeakValueDictionary

from blztable import tuning

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class cached_property(Generic[T]):
    """A property whose value replaces it in the instance."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def set_cache(nbytes: int) -> None:
    """Bound the memory that the process keeps to answer the next call faster.

    Each read parses and checks the description of what it reads: versions, leaves of row groups,
    and parts of columns. They are kept, up to 64 MiB in the whole process, and a read that finds
    them there is faster. Data are never kept. A lower bound frees memory at once; what a running
    read or an open table needs is not counted.

    Parameters
    ----------
    nbytes : int
        The bytes to keep, about; 0 keeps nothing.

    Raises
    ------
    ValueError
        `nbytes` is negative, or no integer.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.set_cache(256 << 20)  # A service that reads many tables again and again.
    >>> blz.set_cache(0)  # A small machine.
    >>> blz.set_cache(64 << 20)  # As at the start.
    """
    try:
        most = -1 if isinstance(nbytes, bool) else index(nbytes)
    except TypeError:
        most = -1
    if most < 0:
        raise ValueError(f"nbytes must be an integer from 0 on, found {nbytes!r}")
    tuning.current = replace(tuning.current, kept_bytes=most)
    trim()


class Cache(dict[K, V]):
    """What one owner keeps, the oldest first. It counts until it is trimmed, or its owner is gone.

    Of each value the size is noted last and forgotten first, so none is without a size for long.
    """

    def __init__(self) -> None:
        self._sizes: OrderedDict[K, int] = OrderedDict()
        _owners[id(self)] = self

    @property
    def nbytes(self) -> int:
        """Bytes of all values, about."""
        return sum(self._sizes.values())

    def keep(self, key: K, value: V, nbytes: int) -> V:
        """Return the value that is kept from now on: this one, unless there is one already."""
        # `setdefault` is atomic: of two threads, the second drops its own value.
        value = self.setdefault(key, value)
        self._sizes[key] = nbytes
        _Process.nbytes += nbytes
        return value

    def keep_all(self, values: Mapping[K, V], nbytes: int) -> None:
        """Keep values of so many bytes each, in place of those with the same keys."""
        self.update(values)
        self._sizes.update(dict.fromkeys(values, nbytes))
        _Process.nbytes += nbytes * len(values)

    def forget(self, key: K) -> V | None:
        """Return the value that was kept, if there was one; it is kept no more."""
        self._sizes.pop(key, None)
        return self.pop(key, None)

    def clear(self) -> None:
        """Forget all values."""
        self._sizes.clear()
        super().clear()

    def shrink(self, nbytes: int) -> None:
        """Forget what was kept first, at least so many bytes."""
        # Another thread may have forgotten the last one.
        with suppress(KeyError):
            while nbytes > 0:
                key, size = self._sizes.popitem(last=False)
                self.pop(key, None)
                nbytes -= size


class _Process:
    """What the process keeps: the bytes at the last look, and all that came since."""

    nbytes = 0


def trim() -> None:
    """Forget what is beyond the bound, in all of the process."""
    most = tuning.current.kept_bytes
    if _Process.nbytes <= most:
        return
    owners = [owner for reference in _owners.valuerefs() if (owner := reference()) is not None]
    sizes = [owner.nbytes for owner in owners]
    beyond = sum(sizes) - most
    for size, owner in sorted(zip(sizes, owners, strict=True), key=lambda pair: -pair[0]):
        if beyond <= 0:
            break
        owner.shrink(min(size, beyond))
        beyond -= size
    _Process.nbytes = sum(owner.nbytes for owner in owners)


_owners: WeakValueDictionary[int, Cache[Any, Any]] = WeakValueDictionary()
