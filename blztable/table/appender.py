"""Appender: columns fed one by one, in any order, and appended together."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import pyarrow as pa

from blztable.convert.categories import check_order, one_in_order, orders_of
from blztable.convert.coerce import fit_column
from blztable.convert.source import kept
from blztable.convert.values import values_of
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.column_append import Feeding
from blztable.errors import BlzError


class Appender:
    """The columns of a table by their names, each to be fed by `append`.

    At the end of the `with` all must have been given equally many rows, those of an index too; else
    it is a SchemaError that names the columns and their lengths, and nothing is committed. Rows are
    written as they come: about one row group is in memory.
    """

    def __init__(
        self,
        change_set: ChangeSet | None,
        categories: Callable[[int], pa.Array | None],
        done: Callable[[], None],
    ) -> None:
        # Without work, for a commit that was made before, what is fed goes nowhere.
        self._change_set = change_set
        self._feeding = Feeding(change_set) if change_set else None
        # Of the ordered columns, as the table or what was fed first has them.
        self._categories = categories
        self._orders: dict[int, pa.Array | None] = {}
        self._done = done
        self._is_open = False
        self._held = ExitStack()

    def __getitem__(self, name: str) -> "ColumnAppender":
        """The column of this name.

        Raises
        ------
        ColumnNotFoundError
            There is none, or more than one.
        """
        return ColumnAppender(self, name)

    def __enter__(self) -> Self:
        if self._change_set is not None:
            self._held.enter_context(self._change_set.attempt())
        self._is_open = True
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._is_open = False
        if error is not None:
            self._held.__exit__(type(error), error, error.__traceback__)
            return
        with self._held:
            if self._feeding is not None:
                self._feeding.finish()
        self._done()

    def _feed(self, name: str, values: Any) -> None:
        if not self._is_open:
            raise BlzError("an appender takes rows inside of its `with`")
        if self._change_set is None or self._feeding is None:
            return
        staged, what = self._change_set.staged, f"column {name!r}"
        index = staged.position(name)
        found, descriptor = values_of(kept(values), what)
        fit = fit_column(found, descriptor, staged.schema.field(index), staged.frame, what)
        self._feeding.add(index, self._ordered(index, fit, isinstance(found, pa.Scalar), what))

    def _ordered(
        self, index: int, column: pa.ChunkedArray, is_one: bool, what: str
    ) -> pa.ChunkedArray:
        """The column by the categories that there are; SchemaError where it has others."""
        if index not in self._orders:
            self._orders[index] = self._categories(index)
        order = self._orders[index]
        if is_one:
            column = one_in_order(column, order, what)
        else:
            check_order(column, order, what)
        first = orders_of(pa.table([column], names=[what])).get(0)
        if order is None and first is not None and len(first):
            self._orders[index] = first
        return column


class ColumnAppender:
    """One column of an appender."""

    def __init__(self, appender: Appender, name: str) -> None:
        if appender._change_set is not None:
            appender._change_set.staged.position(name)
        self._appender = appender
        self.name = name

    def append(self, values: Any) -> None:
        """Add rows to this column: an array of any kind, or one value.

        Raises
        ------
        SchemaError
            A type that would lose something; the rows fed before stay fed.
        """
        self._appender._feed(self.name, values)
