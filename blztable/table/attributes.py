"""Attributes: the user's attributes of a table, as a mapping.

Knows nothing of how they are stored.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from blztable.convert.frames.attributes import plain_attrs


class Attributes(MutableMapping[str, Any]):
    """The attributes of a table: a mutable mapping of str to JSON values.

    Made by `CTable.attrs` and `Transaction.attrs`. Each change of a table's attributes is one
    commit. Numbers and times of numpy and pandas, and 1-dimensional arrays of them, keep their
    type.

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
        """Set several attributes in one commit.

        Parameters
        ----------
        *args : mapping or iterable of (str, value)
            New attributes, as for `dict.update`.
        **kwargs : Any
            More attributes, by name.

        Raises
        ------
        TypeError
            A value that is not JSON, or a key that is not a str.
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
        self._write({}, tuple(self))

    def popitem(self) -> tuple[str, Any]:
        """Remove the last attribute, in one commit, and return it.

        Returns
        -------
        tuple of (str, Any)
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

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self))
