"""Several tables read as one: their rows behind each other, columns matched by name.

Knows nothing of paths. A column that a table lacks has one value in all its rows: what the name of
its directory says, or null. A condition on columns that a table stores in the very type of the
result is passed to it; one on values that are the same in all its rows is decided before it is
read; the others are applied to what was read.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.casts import widened
from blztable.arrow.types import abbreviated, no_rows
from blztable.convert.wider import common
from blztable.engine.query import expression_tree, expressions
from blztable.errors import SchemaError, no_column
from blztable.storage.store import Store
from blztable.table.batches import without_views
from blztable.table.datasets.dataset import Readable
from blztable.table.display import rows_of
from blztable.table.names import row_numbers


@dataclass(frozen=True)
class Member:
    """One of the tables.

    Attributes
    ----------
    name : str
        Its path, for messages.
    source : Readable
        Its columns and rows.
    store : Store
        Where it is. Its descriptors are closed after each read: a process may have a thousand.
    values : dict of str to pyarrow.Scalar
        What its path says of all its rows; a column of this name is read from the table instead.
    """

    name: str
    source: Readable
    store: Store
    values: Mapping[str, pa.Scalar]


@dataclass(frozen=True)
class Several:
    """The rows of several tables; each read goes through them in order."""

    members: tuple[Member, ...]
    # Of all columns, and of those shown.
    whole: pa.Schema
    schema: pa.Schema

    @classmethod
    def of(cls, members: Sequence[Member]) -> "Several":
        """Return the rows of these tables.

        Raises
        ------
        SchemaError
            No type holds the values that two tables have in columns of one name.
        """
        schema = reduce(_united, [(member.name, _schema_of(member)) for member in members])[1]
        return cls(tuple(members), schema, schema)

    def __getitem__(self, key: list[str]) -> "Several":
        if missing := [name for name in key if name not in self.whole.names]:
            raise no_column(missing[0], self.whole.names)
        fields = [self.whole.field(name) for name in key]
        return replace(self, schema=pa.schema(fields, self.whole.metadata))

    def _fragments(self) -> "list[Several]":
        """Return parts of the rows, none of which is in two tables."""
        return [
            replace(self, members=(replace(member, source=part),))
            for member in self.members
            for part in member.source._fragments()
        ]

    def to_arrow(self, *, filters: Any = None) -> pa.Table:
        """Read the rows that meet a condition into a table."""
        return pa.concat_tables(
            [no_rows(self.schema), *(self._table(member, filters) for member in self.members)]
        )

    def to_batches(
        self, *, filters: Any = None, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows that meet a condition as a stream."""
        for member in self.members:
            plan = self._plan(member, filters)
            if plan is None:
                continue
            source = member.source[plan.stored]
            with closing(member.store):
                for batch in source.to_batches(filters=plan.passed, batch_rows=batch_rows):
                    yield from self._fields_of(pa.Table.from_batches([batch]), plan).to_batches()

    def take(self, indices: Any) -> pa.Table:
        """Read rows by number."""
        ends = np.cumsum([member.source.count() for member in self.members])
        wanted = row_numbers(indices, int(ends[-1]))
        order = np.argsort(wanted, kind="stable")
        owners = np.searchsorted(ends, wanted[order], side="right")
        pieces = [no_rows(self.schema)]
        for number in np.unique(owners):
            member, first = self.members[number], int(ends[number - 1]) if number else 0
            plan = self._plan(member, None)
            assert plan is not None, "there is no condition"
            rows = wanted[order][owners == number] - first
            with closing(member.store):
                pieces.append(self._fields_of(member.source[plan.stored].take(rows), plan))
        positions = np.empty_like(order)
        positions[order] = np.arange(len(order))
        return rows_of(pa.concat_tables(pieces), positions)

    def count(self, *, filters: Any = None) -> int:
        """Count the rows that meet a condition; without one, nothing is read."""
        counted = 0
        for member in self.members:
            plan = self[[]]._plan(member, filters)
            if plan is not None and plan.remaining is None:
                with closing(member.store):
                    counted += member.source.count(filters=plan.passed)
            elif plan is not None:
                counted += self[[]]._table(member, filters).num_rows
        return counted

    def _table(self, member: Member, filters: Any) -> pa.Table:
        plan = self._plan(member, filters)
        if plan is None:
            return no_rows(self.schema)
        with closing(member.store):
            return self._fields_of(member.source[plan.stored].to_arrow(filters=plan.passed), plan)

    def _plan(self, member: Member, filters: Any) -> "_ScanPlan | None":
        """Return how a table is read; None if no row of it meets the condition."""
        stored = _stored(member)
        same = {name for name in stored if stored[name] == self.whole.field(name).type}
        passed, left, needed = None, None, set[str]()
        for condition, _ in [] if filters is None else expression_tree.parts(filters):
            columns = expressions.columns_of(condition, self.whole)
            names = {self.whole.names[index] for index in columns}
            if names and names <= same:
                passed = condition if passed is None else passed & condition
            elif names & stored.keys():
                left = condition if left is None else left & condition
                needed |= names
            else:
                values = {name: self._constant(member, name, 1) for name in names}
                if not expressions.mask(condition, values, 1)[0]:
                    return None
        read = dict.fromkeys([*self.schema.names, *sorted(needed)])
        return _ScanPlan(
            member, [name for name in read if name in stored], list(read), passed, left
        )

    def _fields_of(self, table: pa.Table, plan: "_ScanPlan") -> pa.Table:
        """Return the columns of the result, for rows that were read from one table."""
        rows, stored = table.num_rows, dict(zip(plan.stored, table.columns, strict=True))
        columns: dict[str, pa.ChunkedArray] = {}
        for name in plan.read:
            if name not in stored:
                columns[name] = self._constant(plan.member, name, rows)
            else:
                columns[name] = widened(
                    stored[name],
                    self.whole.field(name).type,
                    f"column {name!r} of {plan.member.name}",
                    "tables read as one need a common type: leave the table or the column out",
                )
        kept = None
        if plan.remaining is not None:
            names = [
                self.whole.names[i] for i in expressions.columns_of(plan.remaining, self.whole)
            ]
            needed = {name: columns[name] for name in names}
            kept = pa.array(expressions.mask(plan.remaining, needed, rows))
        if not len(self.schema):
            rows = rows if kept is None else kept.true_count
            return pa.table({"": pa.nulls(rows)}).select([])
        arrays = [columns[name] for name in self.schema.names]
        result = pa.Table.from_arrays(arrays, schema=self.schema)
        return result if kept is None else result.filter(kept)

    def _constant(self, member: Member, name: str, rows: int) -> pa.ChunkedArray:
        """Return a column with one value in all rows."""
        type_ = self.whole.field(name).type
        value = member.values.get(name)
        if value is None:
            return pa.chunked_array([pa.nulls(rows, type_)])
        return pa.chunked_array([pa.repeat(value.cast(type_), rows)])


@dataclass(frozen=True)
class _ScanPlan:
    """How a table is read: the columns it has, those wanted, and the two parts of a condition."""

    member: Member
    stored: list[str]
    read: list[str]
    passed: pc.Expression | None
    remaining: pc.Expression | None


def _stored(member: Member) -> dict[str, pa.DataType]:
    """Return the types of the columns that are read from a table; one of nulls need not be."""
    schema = without_views(member.source.schema)
    return {field.name: field.type for field in schema if not pa.types.is_null(field.type)}


def _schema_of(member: Member) -> pa.Schema:
    """Return the columns of a table, and behind them those of its path."""
    schema = without_views(member.source.schema)
    if repeated := [name for name, times in Counter(schema.names).items() if times > 1]:
        raise SchemaError(
            f"{member.name} has several columns named {repeated[0]!r}; rename one with "
            "rename_columns(), or leave the table out"
        )
    added = [pa.field(name, value.type) for name, value in member.values.items()]
    return reduce(
        pa.Schema.append, (member for member in added if member.name not in schema.names), schema
    )


def _united(ours: tuple[str, pa.Schema], theirs: tuple[str, pa.Schema]) -> tuple[str, pa.Schema]:
    """Return the name of the first table, and the columns of both."""
    (first, schema), (name, other) = ours, theirs
    metadata = schema.metadata if schema.metadata == other.metadata else None
    fields = []
    for field in schema:
        if field.name not in other.names:
            fields.append(field.with_nullable(True))
            continue
        their = other.field(field.name)
        type_ = common(field.type, their.type)
        if type_ is None:
            raise SchemaError(
                f"column {field.name!r} is {abbreviated(field.type)} in {first} and "
                f"{abbreviated(their.type)} in {name}; change one with alter_column, or leave "
                "one table out"
            )
        is_nullable = field.nullable or their.nullable
        fields.append(field.with_type(type_).with_nullable(is_nullable))
    fields += [field.with_nullable(True) for field in other if field.name not in schema.names]
    return first, pa.schema(fields, metadata)
