"""Verbs: every change of a table, defined once, for a table and for a transaction of it.

A table makes a transaction of a verb, and makes it again after a conflict; a transaction adds it to
its other changes. The bodies of the verbs are in `changing/`. Knows nothing of files and commits.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec

from pandas.api.extensions import no_default

from blztable.arrow.nested.paths import Names
from blztable.engine.write.options import Storage
from blztable.format.metalayers import LayerKey
from blztable.report import Changed
from blztable.table import changing
from blztable.table.names import repeatable
from blztable.table.progress import ProgressOption, reporting
from blztable.table.reader import TableReader

if TYPE_CHECKING:
    from blztable.table.changing.target import ChangeTarget

P = ParamSpec("P")


class Verbs(TableReader):
    """The reads of a table, and every change of it."""

    @abstractmethod
    def _make_named(
        self,
        commit_id: str | None,
        body: Callable[Concatenate["ChangeTarget", P], None],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Changed:
        """Make a change, in a commit of this name; return what it did."""

    def _make(
        self,
        body: Callable[Concatenate["ChangeTarget", P], None],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Changed:
        """Make a change; return what it did."""
        return self._make_named(None, body, *args, **kwargs)

    def append(
        self,
        data: Any,
        *,
        replace_where: Any = None,
        evolve: bool = False,
        commit_id: str | None = None,
        index: bool | None = None,
        storage: Storage | None = None,
        progress: ProgressOption = None,
    ) -> Changed:
        """Append rows; with `replace_where`, remove the rows that meet it in the same commit.

        Columns are matched by name, in any order. A missing column is filled with its default, or
        with nulls if it is nullable. Another type is taken where no value changes, such as whole
        floats for integers, categories for text, midnights for dates, or the same moments in
        another time zone. Floats of Python have no width: a narrower column rounds them, as
        pyarrow does. Categories may differ from those before.

        Parameters
        ----------
        data : DataFrame, Arrow data, mapping, or an iterable of these
            The rows, as in `to_blz`; iterators are streamed.
        replace_where : str, pyarrow.compute.Expression, list of tuples or of such lists, optional
            Condition of the rows to remove in the same commit, as `filters` of `read_blz`; none by
            default. All new rows must meet it. So a job that replaces a day, or a tenant, may run
            twice, also at the same time: its rows are in the table once.
        evolve : bool, optional
            If True, columns that the table lacks are added, with nulls in the existing rows, and a
            column becomes wider where the data need it, all in the same commit: integers and
            floats, decimals, dates, times and timestamps get the narrowest type that holds the old
            and new values, and a column of nulls gets the type of the data. A column of the null
            type takes any type without this option.
        commit_id : str, optional
            The caller's name for the commit, as in `transaction`: if it is known, nothing is
            written and the version of that commit is returned. Not in a transaction, which has its
            own.
        index : bool, optional
            Whether the DataFrame's index is stored, as in `to_blz`. A default RangeIndex continues
            any other. In a table with a default RangeIndex, an unnamed index of integers, such as a
            filter leaves, is left out, and the table's goes on; with True it is an error. Any other
            index is matched by name, or continues a RangeIndex.
        storage : Storage, optional
            How these rows are stored, in place of the options of the table, as in `to_blz`. What
            it says of attributes and metalayers is set.
        progress : bool or callable, optional
            Progress of the write, as in `to_blz`.

        Returns
        -------
        Changed
            Numbers of rows appended and deleted, and the number of the version.

        Raises
        ------
        SchemaError
            A column is unknown, missing or has a value that cannot be stored without loss, or the
            index does not continue the table's. The message names each such column, with a row, a
            value and a remedy. Nothing is committed.
        ConflictError
            Another commit changed the columns, or the default value of a column that the data lack.
            Another commit changed the rows, and `evolve` changes columns, or the data continue a
            RangeIndex that is not the default one. With `replace_where`: it changed the same row
            groups, or added rows that meet the condition. A plain append by another writer is no
            conflict.
        ReadOnlyError
            The table is one file in an object store, which each change writes anew.
        ValueError
            `commit_id` was given in a transaction. Or a row of the data does not meet the
            condition; the message says how many, and which is the first.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"day": [1], "sold": [7]}, "sales.blz")
        >>> with blz.open("sales.blz", mode="a") as t:
        ...     print(t.append({"sold": [9], "day": [2]}, commit_id="day 2"))
        ...     print(t.append({"sold": [9], "day": [2]}, commit_id="day 2"))
        version 2: 1 row appended
        version 2: no rows changed
        >>> with blz.open("sales.blz", mode="a") as t:
        ...     print(t.append({"day": [2], "sold": [8]}, replace_where="day = 2"))
        version 3: 1 row appended, 1 row deleted
        """
        with reporting(progress, "appending") as callback:
            how = (evolve, index, storage, callback)
            if replace_where is None:
                return self._make_named(commit_id, changing.rows.append, data, *how)
            return self._make_named(
                commit_id, changing.rows.replace_where, data, replace_where, *how
            )

    def update(
        self,
        values: Mapping[str, Any],
        where: Any = None,
        *,
        evolve: bool = False,
    ) -> Changed:
        """Set columns in the rows that meet a condition.

        Only the named columns are written, and only in row groups that have such rows.

        Parameters
        ----------
        values : mapping
            Name of a column to its new values: one scalar; an array with one value per row that
            meets the condition, in stored order; or a pyarrow expression, computed from the values
            before the update, with types as in `add_column`. Whether NaN is a missing value is
            decided as in `append`.
        where : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as `filters` of `read_blz`; all rows by default. Rows
            for which it is null are not changed.
        evolve : bool, optional
            If True, columns that the table lacks are added, with nulls in the other rows, and a
            column becomes wider, as in `append`. An expression is computed from the values before
            that, and is in memory.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of these names, and `evolve` is not set.
        SchemaError
            Values do not fit the column's type, or their number is not the number of rows.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"item": ["tea", "cup"], "price": [3.0, 8.0]}, "shop.blz")
        >>> with blz.open("shop.blz", mode="a") as t:
        ...     print(t.update({"price": pc.field("price") * 2}, where=[("item", "==", "tea")]))
        ...     print(t["price"][:].to_pylist())
        version 2: 1 row updated
        [6.0, 8.0]
        """
        return self._make(changing.rows.update, values, where, evolve)

    def delete(self, where: Any) -> Changed:
        """Remove the rows that meet a condition.

        If a row group loses few rows, the new version names them as deleted and writes no values;
        `compact` removes their values later. A row group that loses more is written again, with all
        columns. A RangeIndex numbers the remaining rows again.

        Parameters
        ----------
        where : str, pyarrow.compute.Expression, list of tuples or list of such lists
            Condition that a row must meet, as `filters` of `read_blz`. Rows for which it is null
            are kept.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "fewer.blz")
        >>> with blz.open("fewer.blz", mode="a") as t:
        ...     print(t.delete([("n", "==", 2)]), t["n"][:].to_pylist())
        version 2: 1 row deleted [1, 3]
        """
        return self._make(changing.rows.delete, where)

    def upsert(
        self,
        data: Any,
        on: str | Sequence[str],
        *,
        evolve: bool = False,
        index: bool | None = None,
        storage: Storage | None = None,
    ) -> Changed:
        """Update the rows whose key is in the table, and append the others, in one commit.

        Columns that the data lack keep their values in updated rows; new rows get their defaults.
        Keys are compared as in a merge of pandas: null equals null, and NaN equals NaN. If several
        rows of the table have a key, all of them are updated. Statistics find the row groups that
        may have a key. Where at most one of 16 rows of a row group is updated, these rows move to
        the end of the table; other row groups keep their rows in place, and only the columns of the
        data are written again there.

        Parameters
        ----------
        data : DataFrame, Arrow data, mapping, or an iterable of these
            The rows, as in `to_blz`; an iterable is read into memory.
        on : str or sequence of str
            The column of the key, or several. Each key may occur once in the data.
        evolve : bool, optional
            If True, columns that the table lacks are added, and a column becomes wider, as in
            `append`.
        index : bool, optional
            Whether the DataFrame's index is stored, as in `append`.
        storage : Storage, optional
            How these rows are stored, in place of the options of the table, as in `to_blz`. What
            it says of attributes and metalayers is set.

        Returns
        -------
        Changed
            Numbers of rows updated and appended, and the number of the version.

        Raises
        ------
        SchemaError
            A column is unknown, missing or has a value that cannot be stored without loss.
        ValueError
            Two rows of the data have the same key; the message names it.
        ConflictError
            Another commit changed the columns or the same row groups, or added one of the keys. A
            plain append by another writer is no conflict, even if it added one of the keys.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"id": [1, 2], "name": ["tea", "cup"], "price": [3.0, 8.0]}, "shop.blz")
        >>> with blz.open("shop.blz", mode="a") as t:
        ...     print(t.upsert({"id": [2, 3], "price": [9.0, 5.0]}, on="id"))
        ...     print(t.to_arrow().to_pydict())
        version 2: 1 row appended, 1 row updated
        {'id': [1, 2, 3], 'name': ['tea', 'cup', None], 'price': [3.0, 9.0, 5.0]}
        """
        return self._make(changing.keyed.upsert, data, on, evolve, index, storage)

    def deduplicate(
        self,
        on: str | Sequence[str] | None = None,
        *,
        keep: Literal["first", "last"] = "first",
        order_by: str | Sequence[str | tuple[str, str]] | None = None,
    ) -> Changed:
        """Keep one row of each key and remove the others.

        Keys are compared as `DataFrame.drop_duplicates` does: null equals null. The rows that stay
        keep their order. The columns of the key are read into memory.

        Parameters
        ----------
        on : str or sequence of str, optional
            The column of the key, or several; all columns by default.
        keep : {"first", "last"}
            Which row of each key stays.
        order_by : str, or sequence of str or (str, "ascending" or "descending"), optional
            Columns that decide which row is the first and which the last, nulls last; by default
            the order of the table.

        Returns
        -------
        Changed
            Number of rows deleted, and the number of the version.

        Raises
        ------
        SchemaError
            Rows cannot be compared by a column of this type.
        ValueError
            `keep` is not one of its choices.
        ConflictError
            Another commit changed the columns or the rows. A plain append by another writer is no
            conflict; its rows are not compared.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"id": [1, 2, 1], "at": [9, 5, 7]}, "events.blz")
        >>> with blz.open("events.blz", mode="a") as t:
        ...     print(t.deduplicate(on="id", keep="last", order_by="at"))
        ...     print(t.to_arrow().to_pydict())
        version 2: 1 row deleted
        {'id': [1, 2], 'at': [9, 5]}
        """
        return self._make(changing.keyed.deduplicate, on, keep, order_by)

    def resize(self, n: int) -> Changed:
        """Keep the first rows, or add rows, until there are `n`.

        A new row has each column's default: the default that `add_column` declared, else null if
        the column is nullable, else zero or empty, or the first of ordered categories.

        Parameters
        ----------
        n : int
            Number of rows of the new version.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Raises
        ------
        ConflictError
            Another commit changed the columns, their default values or the rows.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "sized.blz")
        >>> with blz.open("sized.blz", mode="a") as t:
        ...     print(t.resize(2), t.resize(3), t["n"][:].to_pylist())
        version 2: 1 row deleted version 3: 1 row appended [1, 2, None]
        """
        return self._make(changing.rows.resize, n)

    def add_column(
        self,
        name: Names,
        data: Any,
        *,
        default: Any = None,
        storage: Storage | None = None,
    ) -> Changed:
        """Add a column after the others, without writing any of them.

        Parameters
        ----------
        name : str or tuple of str
            Name of the new column. "address.city" or ("address", "city") is a new field of a
            struct, which has a value for each row; it is null where the struct is.
        data : array-like, scalar or pyarrow.compute.Expression
            An array with one value per row, in stored order; one value for all rows; or an
            expression of other columns. Expressions follow pyarrow's rules: cast an integer that
            meets a float, `pc.field("a").cast("double")`, or the result may be a float32.
        default : scalar, dict or list, optional
            Value of the column in rows that are appended without it; null by default.
        storage : Storage, optional
            How the column is stored: its codec, digits, metalayers and what else a column can have,
            and how NaNs and Python objects are read. The table keeps this for later rows.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Raises
        ------
        SchemaError
            The table has a column of this name, the type cannot be stored, or the number of values
            is not the number of rows.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"net": [10.0, 20.0]}, "prices.blz")
        >>> with blz.open("prices.blz", mode="a") as t:
        ...     done = t.add_column("gross", pc.field("net") * 1.5)
        ...     print(t.head().to_pydict())
        {'net': [10.0, 20.0], 'gross': [15.0, 30.0]}
        """
        return self._make(
            changing.columns.add,
            name,
            data,
            default=default,
            storage=storage,
        )

    def alter_column(
        self,
        name: str,
        *,
        dtype: Any = None,
        nullable: bool | None = None,
        default: Any = no_default,
        position: int | None = None,
        safe: bool = True,
    ) -> Changed:
        """Change the type, the nulls, the default or the position of a column.

        The other columns are not written. The column keeps its files where their bytes mean the
        same in the new type: more digits of a decimal, another time zone, text as bytes of the same
        offsets. Any other new type writes the column again.

        Parameters
        ----------
        name : str
            Name of the column.
        dtype : pyarrow.DataType, str or dtype of pandas, optional
            New type: a type, its name in the schema such as ``"int64"``, or a dtype of pandas such
            as ``"Int64"`` or ``"category"``, in which the column is also read; unchanged by
            default.
        nullable : bool, optional
            True allows nulls. False forbids them; it is an error if a row is null. Unchanged by
            default.
        default : scalar, dict or list, optional
            Value of the column in rows that are appended without it, None for null; unchanged by
            default.
        position : int, optional
            Index that the column gets among the columns, negative from the end; unchanged by
            default. The others keep their order. No data are read or written for it.
        safe : bool, optional
            If True, each value must stay the same, or it is an error. If False, values are
            converted as by `pyarrow.ChunkedArray.cast` with ``safe=False``, for example numbers to
            text and back, or 1.5 to 1; a text that is no number, and a NaN as an integer, are
            errors all the same.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Raises
        ------
        SchemaError
            A value does not fit the new type, or is null in a column that allows no nulls; the
            message names the row. Or the stored values would mean something else in pandas: periods
            of another frequency, intervals closed on the other side, numbers as periods.
        ValueError
            None of `dtype`, `nullable`, `default` and `position` was given, or there is no such
            position.
        ConflictError
            Another commit changed the columns, or the default value of a column that gets another
            type; or, if the column was written again or `nullable` became False, the rows.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"visits": [1, 2], "zip": [8000, 3001]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     done = t.alter_column("visits", dtype="int32", nullable=False, default=0)
        ...     done = t.alter_column("zip", dtype="string", safe=False)
        ...     done = t.append({"zip": ["0150"]})
        ...     done = t.alter_column("zip", position=0)
        ...     print(t.to_arrow().to_pydict())
        {'zip': ['8000', '3001', '0150'], 'visits': [1, 2, 0]}
        """
        return self._make(
            changing.columns.alter,
            name,
            dtype=dtype,
            nullable=nullable,
            default=default,
            position=position,
            safe=safe,
        )

    def drop_columns(self, columns: Iterable[Names]) -> Changed:
        """Drop columns; no data are read or written.

        Their files are removed together with the last version that has the columns.

        Parameters
        ----------
        columns : iterable of str or tuple of str
            Names of the columns to drop. "address.city" or ("address", "city") is a field of a
            struct, also of one in a list.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1], "b": [2], "c": [3]}, "columns.blz")
        >>> with blz.open("columns.blz", mode="a") as t:
        ...     t.drop_columns(["a"]), t.rename_columns({"c": "d"})
        ...     print(t.columns)
        (Changed(version=2), Changed(version=3))
        ['b', 'd']
        """
        return self._make(changing.columns.drop, repeatable(columns))

    def rename_columns(self, columns: Mapping[str, str]) -> Changed:
        """Rename columns; no data are read or written.

        Parameters
        ----------
        columns : mapping of str to str
            Old name to new name. "address.city" is a field of a struct; its new name is that within
            the struct.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Raises
        ------
        ColumnNotFoundError
            The table has no column of one of the old names.
        SchemaError
            Two columns would have the same name.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1], "b": [2]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     done = t.rename_columns({"a": "b", "b": "a"})
        ...     print(t.head().to_pydict())
        {'b': [1], 'a': [2]}
        """
        return self._make(changing.columns.rename, columns)

    def compact(
        self,
        sort_by: str | Sequence[str | tuple[str, str]] | None = None,
    ) -> Changed:
        """Merge small row groups, remove the values of deleted rows, or sort all rows.

        Appends by others may be committed meanwhile. Appends merge small row groups at the end by
        themselves; `compact` is for the small row groups that `delete` and large appends leave, and
        for row groups with deleted rows.

        Parameters
        ----------
        sort_by : str, or sequence of str or (str, "ascending" or "descending"), optional
            Columns to sort all rows by, nulls last, as in `to_blz`; by default the columns that the
            table was last sorted by, and () to sort by none. While sorting, a few columns at a time
            are in memory with all their rows.

        Returns
        -------
        Changed
            No row is changed; the number of the new version, or of the version shown if there was
            nothing to do.

        Raises
        ------
        SchemaError
            Rows cannot be sorted by a column of this type.
        ConflictError
            Another commit changed the columns, or rows that were written again.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [2, 3, 1]}, "sorted.blz")
        >>> with blz.open("sorted.blz", mode="a") as t:
        ...     done = t.compact(sort_by="n")
        ...     print(t["n"][:].to_pylist())
        [1, 2, 3]
        """
        return self._make(changing.rows.compact, sort_by)

    def configure(
        self,
        *,
        storage: Storage | None = None,
        keep_versions: int | None = None,
        keep_seconds: int | None = None,
        keep_bytes: int | None = None,
    ) -> Changed:
        """Change the settings that the table keeps: how rows are stored, and versions kept.

        A new table keeps superseded versions for one hour, at most 10 of them. A version goes when
        it exceeds any of the limits, the oldest first. Without any setting, a write with mode "w"
        keeps one version beside its own, because it shares no file with others. Versions that
        someone has open stay.

        Parameters
        ----------
        storage : Storage, optional
            How rows are stored from now on, in place of all of the options in `storage`; unchanged
            by default. Rows that are stored stay as they are until they are written again.
        keep_versions : int, optional
            Maximum number of versions, the newest included; unchanged by default.
        keep_seconds : int, optional
            Time that a version is kept after the next one was committed, in seconds; unchanged by
            default.
        keep_bytes : int, optional
            Maximum size of the files of older versions that the newest one does not use, together;
            unchanged by default, and without a limit at first. Each commit then reads the manifests
            of the versions that stay.

        Returns
        -------
        Changed
            What was done, and the number of the version.

        Raises
        ------
        ColumnNotFoundError
            `storage` names a column that the table does not have.
        ValueError
            A number is negative, the number of versions is 0, or `storage` has an option that a
            table cannot change.
        ConflictError
            Another commit changed the same setting.

        Examples
        --------
        >>> import blztable as blz
        >>> from dataclasses import replace
        >>> blz.to_blz({"n": range(100)}, "t.blz", storage=blz.Storage(row_group_rows=10))
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.configure(keep_versions=3, keep_seconds=24 * 3600)
        ...     t.configure(storage=replace(t.storage, row_group_rows=50))
        ...     t.compact()
        Changed(version=2)
        Changed(version=3)
        Changed(version=4)
        """
        limits = {
            "keep_versions": keep_versions,
            "keep_seconds": keep_seconds,
            "keep_bytes": keep_bytes,
        }
        return self._make(changing.settings.configure, storage, limits)

    def _set_attributes(self, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
        self._make(changing.settings.set_attributes, changes, removed)

    def _set_layers(self, changes: Mapping[LayerKey, bytes | None]) -> None:
        self._make(changing.settings.set_layers, changes)
