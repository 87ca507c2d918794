"""OldSnapshot: a table of another program, read as a version of our own is.

The columns are read by `OldColumns`. What a table of ours tells of its parts, this file tells of
the chunks of stored arrays.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from blztable.compat.reader import OldColumns
from blztable.compat.version import OldVersion, old_version
from blztable.engine.query.expressions import text_of
from blztable.engine.read.losses import is_damage
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.projection import Projection
from blztable.errors import BlzError, LimitError
from blztable.report import ColumnPlan, Explanation, Problem, Report, StreamStorage
from blztable.storage.store import Store
from blztable.table.snapshot import Snapshot


class OldSnapshot(Snapshot):
    """The only version of a table of another program, and the columns of it that are read."""

    version: OldVersion

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self.projection
        how = (columns.schema, columns.fields, columns.dictionaries)
        return _reopened, (self.version.store, *how)

    def close(self) -> None:
        """Close the files."""
        super().close()
        self.version.files.close()

    def opened(self, projection: Projection) -> OldColumns:
        """Return a reader of a projection of the version."""
        return OldColumns(self.version, projection)

    def explain(self, positions: Sequence[int], filters: object) -> Explanation:
        """Return what a read with this filter decodes: all chunks of its columns."""
        scan = self.scan(filters)
        steps = tuple(text_of(step.expression) for step in scan.steps) if scan else ()
        column_of = (scan or self).projection.column_of
        filtered = {column_of(index) for index in scan.columns} if scan else set[int]()
        returned = {column_of(index) for index in positions}
        plans, groups = [], len(self.version.head.row_groups)
        for index in dict.fromkeys([*filtered, *returned]):
            chunks = -(-self.rows // self.version.values(index).chunk_rows)
            cbytes = sum(self.version.head.columns.cbytes[one] for one in self.version.nodes(index))
            plans.append(
                ColumnPlan(
                    self._name(index),
                    index,
                    index in filtered,
                    index in returned,
                    groups,
                    chunks,
                    chunks,
                    cbytes,
                    cbytes,
                )
            )
        return Explanation(steps, self.rows, self.rows, groups, groups, tuple(plans))

    def streams(self, position: int) -> tuple[StreamStorage, ...]:
        """Return the sizes of one column, as its files state them."""
        self.check_open()
        nbytes, cbytes = self.projection.nbytes(position), self.projection.cbytes(position)
        return (StreamStorage("values", ("plain",), (), nbytes, nbytes, cbytes),)

    def verify(self, positions: Sequence[int], *, full: bool) -> Report:
        """Decode all chunks if `full`; there are no checksums to compare them with."""
        self.check_open()
        problems, chunks, reader = [], 0, self.reader()
        for position in positions:
            found = list[tuple[BlzError, int, int]]()
            try:
                size = self.version.values(self.projection.column_of(position)).chunk_rows
            except BlzError as error:
                if not (is_damage(error) or isinstance(error, LimitError)):
                    raise
                found.append((error, 0, self.rows))
                size = 0
            for start in range(0, self.rows, size) if full and size else ():
                chunks += 1
                stop = min(start + size, self.rows)
                try:
                    reader.columns([position], [RowSpan(0, start, stop)])
                except BlzError as error:
                    if not is_damage(error):
                        raise
                    found.append((error, start, stop))
            problems += [
                Problem(str(error), self._name(position), position, None, start, stop, "", False)
                for error, start, stop in found
            ]
        names = tuple(map(self._name, positions))
        return Report(0, self.rows, names, full, chunks, chunks, 0, tuple(problems))

    def _name(self, position: int) -> str:
        return self.version.files.columns[self.projection.column_of(position)].name


def old_snapshot(store: Store) -> OldSnapshot:
    """Open what another program stored; raises as `old_version` does."""
    return OldSnapshot(old_version(store), None)


def _reopened(
    store: Store,
    schema: pa.Schema,
    fields: tuple[Sequence[int], ...],
    dictionaries: frozenset[int],
) -> OldSnapshot:
    version = old_version(store)
    return OldSnapshot(version, None, projection=Projection(version, schema, fields, dictionaries))
