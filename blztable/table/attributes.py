"""What users keep beside the rows, as mappings: attributes, and metalayers of tables and columns.

Knows nothing of how they are stored.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from blztable.convert.objects.tagged import decode_value, plain_key, stored_key
from blztable.format.metalayers import FIXED, VARIABLE, LayerKey, Layers
from blztable.metalayers import FixedMetalayers, VariableMetalayers

# When fixed metalayers are added.
OF_TABLE = "given to create() or to_blz(), as storage=blz.Storage(meta=...)"
OF_COLUMN = "given to create() or to_blz(), as Storage(meta=...) of a column, or to add_column()"


class Attributes(MutableMapping[Any, Any]):
    """The attributes of a table: a mutable mapping of names to values.

    Made by `CTable.attrs` and `Transaction.attrs`. Each change of a table's attributes is one
    commit. Values are JSON, bytes, tuples, sets, dicts, and numbers, times and 1-dimensional arrays
    of numpy and pandas; each comes back as it was. A change raises ConflictError if another commit
    changed one of these attributes, TransactionError if a transaction of the table is open (use its
    `attrs`), and ReadOnlyError if the table was opened for reading.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1]}, "t.blz", storage=blz.Storage(attrs={"source": "till 7"}))
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

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(attrs={"source": "till 7", "day": 2})
        >>> blz.to_blz({"a": [1]}, "t.blz", storage=storage)
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.attrs.update({"day": 3}, checked=True)
        ...     print(t.attrs, t.version)
        {'source': 'till 7', 'day': 3, 'checked': True} 2
        """
        self._write(dict(*args, **kwargs), ())

    def clear(self) -> None:
        """Remove all attributes in one commit.

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(attrs={"source": "till 7", "day": 2})
        >>> blz.to_blz({"a": [1]}, "t.blz", storage=storage)
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

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(attrs={"source": "till 7", "day": 2})
        >>> blz.to_blz({"a": [1]}, "t.blz", storage=storage)
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


class LayerOwner(Protocol):
    """What has the metalayers of a table and its columns: a table or a transaction."""

    @property
    def path(self) -> str:
        """Path of the table."""

    def _layers(self) -> Layers:
        """Return all metalayers."""

    def _set_layers(self, changes: Mapping[LayerKey, bytes | None]) -> None:
        """Change metalayers in one change; None removes one."""


def fixed_metalayers(
    table: LayerOwner, owner: str = "", column: str | None = None
) -> FixedMetalayers:
    """Return the fixed metalayers of a table, or of its column with this id and name."""
    refusal = OF_TABLE if column is None else OF_COLUMN
    layers = _OwnLayers(table, owner, FIXED)
    return FixedMetalayers(
        _name(table, column), layers.get, layers.put, nullcontext, lambda: refusal
    )


def variable_metalayers(
    table: LayerOwner, owner: str = "", column: str | None = None
) -> VariableMetalayers:
    """Return the variable metalayers of a table, or of its column with this id and name."""
    layers = _OwnLayers(table, owner, VARIABLE)
    return VariableMetalayers(_name(table, column), layers.get, layers.put)


class _OwnLayers:
    """The metalayers of one kind and one owner."""

    def __init__(self, table: LayerOwner, owner: str, kind: str) -> None:
        self._table = table
        self._owner_and_kind = (owner, kind)

    def get(self) -> Mapping[str, bytes]:
        layers = self._table._layers()
        return {
            key.name: content for key, content in layers.items() if key[:2] == self._owner_and_kind
        }

    def put(self, changes: Mapping[str, bytes | None]) -> None:
        self._table._set_layers(
            {LayerKey(*self._owner_and_kind, name): content for name, content in changes.items()}
        )


def _name(table: LayerOwner, column: str | None) -> str:
    return table.path if column is None else f"column {column!r} of {table.path}"
