"""Column tree: which lines of the manifest hold the nodes of which field.

A field of a flat type is one node. A nested type has a node for each of Arrow's child fields, at
every level. The manifest lists the nodes of a column in pre-order. Rows are counted by node: a
root has the rows of the table, a child has its own. Knows nothing of files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from blztable.errors import CorruptError
from blztable.format.layout import Path


@dataclass(frozen=True, slots=True)
class ColumnTree:
    """The lines of the manifest that belong to each field.

    Attributes
    ----------
    starts
        The index of each field's root among the lines, and at the end the number of lines.
    """

    starts: Sequence[int]

    @classmethod
    def of(cls, schema: pa.Schema, paths: Sequence[Path]) -> "ColumnTree":
        """Match fields with paths of nodes; raise CorruptError unless each field has its nodes."""
        roots = [line for line, path in enumerate(paths) if len(path) == 1]
        if len(roots) != len(schema) or roots[:1] not in ([], [0]):
            raise CorruptError(f"{len(schema)} fields, {len(roots)} columns")
        if len(paths) == len(roots) and not any(field.type.num_fields for field in schema):
            return cls(range(len(roots) + 1))
        starts = [*roots, len(paths)]
        for field, first, stop in zip(schema, roots, starts[1:], strict=True):
            listed = [path[1:] for path in paths[first:stop]]
            ids = {path[0] for path in paths[first:stop]}
            if len(ids) != 1 or listed != list(_nodes(field.type)):
                raise CorruptError(
                    f"column {field.name!r} has the nodes {listed}; "
                    f"its type {field.type} has {list(_nodes(field.type))}"
                )
        return cls(starts)

    def nodes(self, field: int) -> range:
        """Return the lines of a field's nodes, in pre-order; the first is the root."""
        return range(self.starts[field], self.starts[field + 1])


def _nodes(type_: pa.DataType, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each node of a type below its root, in pre-order."""
    yield path
    for number in range(type_.num_fields):
        yield from _nodes(type_.field(number).type, (*path, number))
