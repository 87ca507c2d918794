"""Fields: add, drop and rename fields of structs in a column of a nested type.

A field is a tree of nodes, and only a new one is written. The others keep their files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blztable.arrow.nested import paths
from blztable.arrow.nested.casts import masked
from blztable.arrow.nested.nodes import Node
from blztable.arrow.nested.paths import Names
from blztable.arrow.types import Portion, nulls
from blztable.columns.default import encode_nodes, nodes_to_json
from blztable.columns.types import one_array
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import with_defaults
from blztable.engine.change.reliance import ReadSet
from blztable.engine.read.columns import OpenColumns, read_nodes
from blztable.engine.read.selection import RowSpan, stored_portion
from blztable.engine.version import schema as schemas
from blztable.engine.version.schema import paths_of
from blztable.engine.version.staged import StagedColumn, StagedVersion
from blztable.engine.write.column_writer import writers_of
from blztable.errors import ColumnNotFoundError, SchemaError
from blztable.format.jsontext import Json

# The position of a child at each level, from the root of the column down.
Path = tuple[int, ...]
# Returns the field of a column that gets another type, and the frame descriptor for it.
MakeRetyped = Callable[[pa.Field, pa.DataType], tuple[pa.Field, Mapping[str, Json] | None]]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Change the nodes of a column: those at some places are kept, others are new.

    Attributes
    ----------
    index, field
        The column, and its new field.
    nodes
        The new nodes in pre-order: the place of a present one, or a written one.
    frame
        The frame descriptor that belongs to the new field.
    added
        The type of the written nodes, of which a default value has a null; None if there are none.
    """

    read_set: ReadSet
    index: int
    field: pa.Field
    nodes: Sequence[int | StagedColumn]
    frame: Mapping[str, Json] | None
    added: pa.DataType | None = None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Replace the nodes."""
        self.read_set.check(newest, "changing the fields of a column")
        lines, columns = newest.nodes(self.index), list(newest.columns)
        nodes = [columns[lines[node]] if isinstance(node, int) else node for node in self.nodes]
        columns[lines[0] : lines[-1] + 1] = nodes
        top = max(max(node.path) + 1 for node in nodes)
        return newest.with_columns(
            columns,
            schema=newest.schema.set(self.index, self.field),
            next_column=max(newest.head.next_column, top),
            properties=with_defaults(newest, self._default(newest)),
            pandas=self.frame,
        )

    def _default(self, newest: StagedVersion) -> dict[str, Json]:
        """Return the default value of the column with these nodes, by its id; empty without one."""
        name = str(newest.root(self.index).path[0])
        present = newest.defaults.get(name)
        if not isinstance(present, list) or len(present) != len(newest.nodes(self.index)):
            return {}
        empty: Iterator[Json] = iter(())
        if self.added is not None:
            null = encode_nodes(Node.of(self.added), nulls(1, self.added))
            empty = iter(nodes_to_json(null))
        nodes = [present[node] if isinstance(node, int) else next(empty) for node in self.nodes]
        return {name: nodes}


def find(staged: StagedVersion, names: Names) -> tuple[int, Path] | None:
    """Return the column and the path of a field; None if there is none with these names.

    Raises
    ------
    ColumnNotFoundError
        Several fields have these names.
    """
    if staged.is_flat:
        return None
    fields = paths.find_in(staged.schema, names)
    if len(fields) > 1:
        raise ColumnNotFoundError(
            f"{len(fields)} fields are named {names!r} in {staged.store.name}"
        )
    return fields[0] if fields else None


def by_column(fields: Iterable[tuple[int, Path]]) -> dict[int, list[Path]]:
    """Return the paths of fields, by the index of their column."""
    columns: dict[int, list[Path]] = {}
    for index, path in fields:
        columns.setdefault(index, []).append(path)
    return columns


def parent_of(staged: StagedVersion, names: Names) -> tuple[tuple[int, Path], str] | None:
    """Return the struct that a new field of this name belongs to, and the name in it.

    None if the name is that of a column: what is before its last dot is no struct.
    """
    if staged.is_flat or not isinstance(names, str | tuple):
        return None
    outer: Names
    if isinstance(names, tuple):
        outer, name = names[:-1], names[-1]
    else:
        outer, _, name = names.rpartition(".")
    columns = {field.name: index for index, field in enumerate(staged.schema)}
    column = outer[0] if isinstance(outer, tuple) and len(outer) == 1 else outer
    if isinstance(column, str) and column in columns:
        index = columns[column]
        is_struct = pa.types.is_struct(staged.schema.field(index).type)
        return ((index, ()), name) if is_struct else None
    parent = find(staged, outer)
    return (parent, name) if parent else None


def drop_fields(
    change_set: ChangeSet, index: int, gone: Sequence[Path], retyped: MakeRetyped
) -> None:
    """Drop fields of a column. Their files are removed with the last version that has them."""
    staged = change_set.staged
    type_, kept = paths.dropped(Node.of(staged.schema.field(index).type), gone)
    _reshape(change_set, "drop_columns", ReadSet.columns_of(staged), index, type_, kept, retyped)


def rename_fields(
    change_set: ChangeSet, index: int, names: Mapping[Path, str], retyped: MakeRetyped
) -> None:
    """Give fields of a column other names, all at once."""
    staged = change_set.staged
    type_ = paths.renamed(staged.schema.field(index).type, names)
    kept = range(Node.of(type_).count)
    _reshape(change_set, "rename_columns", ReadSet.columns_of(staged), index, type_, kept, retyped)


def add_field(
    change_set: ChangeSet,
    parent: tuple[int, Path],
    field: pa.Field,
    rows_of: Callable[[int], pa.Array | pa.ChunkedArray],
    retyped: MakeRetyped,
) -> None:
    """Add a field to a struct, with the present row groups. Other fields are not touched.

    `rows_of` returns the values for each row of the table; those below a null struct are dropped.
    """
    staged, (index, path) = change_set.staged, parent
    column = staged.schema.field(index)
    inner = paths.within_structs(column, path)
    if inner is None or not pa.types.is_struct(inner[0].type):
        raise SchemaError(
            f"column {column.name!r}: a field can be added to a struct that has a value for each "
            f"row, not to {inner[0].type if inner else 'one within a list'}"
        )
    type_ = paths.added(column.type, path, field)
    schemas.check(pa.schema([field]))
    lines = inner[1]
    node = staged.columns[staged.nodes(index)[lines.start]]
    (number,), *_ = change_set.commit.files.reserve_columns(Node.of(field.type).count)
    child = field.with_nullable(True)
    writers = writers_of(child, paths_of(field.type, (*node.path, number)))
    line = staged.nodes(index)[lines.start]
    with OpenColumns.whole(staged) as opened:
        _, written = change_set.write(writers, _masked(opened, line, rows_of))
    nodes = [*range(lines.stop), *written, *range(lines.stop, Node.of(column.type).count)]
    read_set = ReadSet.rows_of(staged)
    _reshape(change_set, "add_column", read_set, index, type_, nodes, retyped, field.type)


def _masked(
    opened: OpenColumns, line: int, rows_of: Callable[[int], pa.Array | pa.ChunkedArray]
) -> Iterator[Portion]:
    """Yield the values of a new field, null where its struct is."""
    version = opened.version
    for group, rows in enumerate(version.stored_rows):
        opened.forget_before(group)
        portion, _ = stored_portion(version, group, [rows_of(group)])
        array = one_array(portion.column(0))
        structs = one_array(read_nodes(opened.parts, {line: [RowSpan(group, 0, rows)]})[line])
        if structs.null_count:
            array = masked(array, np.asarray(structs.is_valid()))
        yield pa.Table.from_arrays([array], names=["field"]), rows


def _reshape(
    change_set: ChangeSet,
    operation: str,
    read_set: ReadSet,
    index: int,
    type_: pa.DataType,
    nodes: Sequence[int | StagedColumn],
    retyped: MakeRetyped,
    added: pa.DataType | None = None,
) -> None:
    """Give a column another type and other nodes."""
    field, frame = retyped(change_set.staged.schema.field(index), type_)
    schemas.check(pa.schema([field]))
    change_set.add(operation, Reshape(read_set, index, field, list(nodes), frame, added))
