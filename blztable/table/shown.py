"""Shown: some or all columns of one version, and what is known of them without reading any."""

from collections.abc import Sequence

import pyarrow as pa

from blztable.engine.write.sort_keys import kept
from blztable.table.snapshot import Snapshot
from blztable.text import short_text, size_text

# Columns a repr shows before it says how many more there are.
SHOWN = 40


class Shown:
    """Some or all columns of a version."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[int] | None = None) -> None:
        self._snapshot = snapshot
        # Positions of the columns shown, None for all of them.
        self._columns = columns

    @property
    def nrows(self) -> int:
        """Number of rows."""
        return self._snapshot.rows

    def __len__(self) -> int:
        """Number of rows."""
        return self.nrows

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: exactly the one that was written, for data that came from Arrow."""
        snapshot, shown = self._reading()
        return snapshot.schema(shown)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns in their order; a stored index is among them."""
        snapshot, shown = self._reading()
        names = snapshot.version.schema.names
        return [names[index] for index in shown]

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, uncompressed."""
        snapshot, shown = self._reading()
        return sum(snapshot.version.head.columns.nbytes[index] for index in shown)

    @property
    def cbytes(self) -> int:
        """Bytes of the columns' files."""
        snapshot, shown = self._reading()
        return sum(snapshot.version.head.columns.cbytes[index] for index in shown)

    @property
    def sort_by(self) -> list[tuple[str, str]]:
        """The columns that `to_blz` or `compact` sorted the rows by, each with its direction.

        What was appended or changed since is where it is, until `compact` sorts again.
        """
        version = self._snapshot.version
        keys = kept(version.head.properties, version.head.columns.paths)
        return [(version.schema.names[index], way) for index, way in keys]

    @property
    def version(self) -> int:
        """Number of the version shown; it grows by one with every commit."""
        return self._snapshot.version.head.version

    @property
    def path(self) -> str:
        """Where the table is."""
        return self._snapshot.name

    def __arrow_c_schema__(self) -> object:
        """The schema as an Arrow PyCapsule, without opening a stream."""
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        names = self.column_names
        width = max(map(len, map(short_text, names[:SHOWN])), default=0)
        lines = [
            f"<{type(self).__name__} {self.path}, version {self.version}: {self.nrows:,} rows x "
            f"{len(names):,} columns, {size_text(self.nbytes)} in {size_text(self.cbytes)}>"
        ]
        types = self.schema.types
        lines += [
            f"  {short_text(name):<{width}}  {type_}"
            for name, type_ in zip(names[:SHOWN], types, strict=False)
        ]
        if len(names) > SHOWN:
            lines.append(f"  ... and {len(names) - SHOWN:,} more columns")
        return "\n".join(lines)

    def _reading(self, columns: Sequence[str] | None = None) -> tuple[Snapshot, Sequence[int]]:
        """What to read from, and the positions there of these columns, all shown by default.

        Asked once for each read: a commit in another thread puts a newer snapshot in its place.
        """
        snapshot = self._snapshot
        everything = range(len(snapshot.version.schema))
        shown = everything if self._columns is None else self._columns
        return snapshot, snapshot.positions(columns, shown)
