"""Attributes: the user's attributes of a table, as a mapping.

Knows nothing of how they are stored.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from blztable.convert.objects.tagged import decode_value, plain_key, stored_key


class Attributes(MutableMapping[Any, Any]):
    """The attributes of a table: a mutable mapping of names to values.

    Made by `CTable.attrs` and `Transaction.attrs`. Each change of a table's attributes is one
    commit. Values are JSON, bytes, tuples, sets, dicts, and numbers, times and 1-dimensional arrays
    of numpy and pandas; each comes back as it was.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz", attrs={"source": "till 7"})
    >>> with blz.open("t.blz", mode="a") as t:
    ...     t.attrs["day"] = 2
    ...     del t.attrs["source"]
    ...     print(t.attrs, t.version)
    {'day': 2} 3
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, Any]],
        write: Callable[[Mapping[Any, Any], Sequence[str]], None],
    ) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, key: Any) -> Any:
        name = stored_key(key)
        if name not in self._read():
            raise KeyError(key)
        return decode_value(self._read()[name], f"attrs[{key!r:.60}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._write({key: value}, ())

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._write({}, (stored_key(key),))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several attributes in one commit.

        Parameters
        ----------
        *args : mapping or iterable of (name, value)
            Attributes, as for `dict.update`.
        **kwargs : Any
            More attributes, by name.

        Raises
        ------
        TypeError
            A value that cannot be kept.
        ConflictError
            Another commit changed one of these attributes.
        ReadOnlyError
            The table was opened with mode "r".
        TransactionError
            A transaction of the table is open; use its `attrs`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz", attrs={"source": "till 7", "day": 2})
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.attrs.update({"day": 3}, checked=True)
        ...     print(t.attrs, t.version)
        {'source': 'till 7', 'day': 3, 'checked': True} 2
        """
        self._write(dict(*args, **kwargs), ())

    def clear(self) -> None:
        """Remove all attributes in one commit.

        Raises
        ------
        ConflictError
            Another commit changed one of these attributes.
        ReadOnlyError
            The table was opened with mode "r".
        TransactionError
            A transaction of the table is open; use its `attrs`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz", attrs={"source": "till 7", "day": 2})
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.attrs.clear()
        ...     print(t.attrs, t.version)
        {} 2
        """
        self._write({}, tuple(self._read()))

    def popitem(self) -> tuple[Any, Any]:
        """Remove the last attribute, in one commit, and return it.

        Returns
        -------
        tuple of (Any, Any)
            Key and value.

        Raises
        ------
        KeyError
            The table has no attributes.
        ConflictError
            Another commit changed one of these attributes.
        ReadOnlyError
            The table was opened with mode "r".
        TransactionError
            A transaction of the table is open; use its `attrs`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz", attrs={"source": "till 7", "day": 2})
        >>> with blz.open("t.blz", mode="a") as t:
        ...     print(t.attrs.popitem(), t.attrs)
        ('day', 2) {'source': 'till 7'}
        """
        key = next(reversed(tuple(self)), None)
        if key is None:
            raise KeyError("the table has no attributes")
        return key, self.pop(key)

    def __iter__(self) -> Iterator[Any]:
        return map(plain_key, self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self))
