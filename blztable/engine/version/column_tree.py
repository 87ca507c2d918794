"""Column tree: which lines of the manifest hold the nodes of which field.

A field of a flat type is one node. A nested type has a node for each of its child fields, at every
level (`arrow/nested`). The manifest lists the nodes of a column in pre-order. The path of a node
is the path of its parent and an id of its own. Rows are counted by node: a root has the rows of the
table, a child has its own. Knows nothing of files.
"""

from collections.abc import Sequence

import pyarrow as pa

from blztable.arrow.nested.nodes import Node, is_nested
from blztable.errors import CorruptError
from blztable.format.layout import Path


def roots_of(schema: pa.Schema, paths: Sequence[Path]) -> Sequence[int]:
    """Return the line of each field's root, and at the end the number of lines.

    They are a range if no field has a nested type. Raise CorruptError unless each field has its
    nodes.
    """
    # A table may have very many columns but few types.
    is_flat = sum(map(len, paths)) == len(paths) and not any(map(is_nested, {*schema.types}))
    if is_flat and len(paths) == len(schema):
        return range(len(paths) + 1)
    roots = [line for line, path in enumerate(paths) if len(path) == 1]
    if len(roots) != len(schema) or roots[:1] not in ([], [0]):
        raise CorruptError(f"{len(schema)} fields, {len(roots)} columns")
    starts = [*roots, len(paths)]
    for field, first, stop in zip(schema, roots, starts[1:], strict=True):
        root = Node.of(field.type)
        if not _are_nodes(root, paths[first:stop]):
            raise CorruptError(
                f"column {field.name!r} has the nodes {list(paths[first:stop])}; "
                f"its type {field.type} has {root.count}"
            )
    return starts


def node_schema(schema: pa.Schema) -> pa.Schema:
    """Return a field for each node: of a flat type, named by its path of names."""
    fields: list[pa.Field] = []
    for field in schema:
        root = Node.of(field.type)
        names = zip(root.names(field.name), root.walk(), strict=True)
        fields += [pa.field(name, node.flat) for name, node in names]
    return pa.schema(fields)


def paths_of(type_: pa.DataType, root: Path, first: int | None = None) -> list[Path]:
    """Return the path of each node of a new column, in pre-order, given the path of its root.

    The ids below the root follow its own, or begin with `first`. So no id of a table is above the
    next one in the head.
    """
    if not is_nested(type_):
        return [root]
    return _paths_of(Node.of(type_), root, root[-1] + 1 if first is None else first)


def _paths_of(node: Node, path: Path, first: int) -> list[Path]:
    paths = [path]
    for child in node.children:
        more = _paths_of(child, (*path, first), first + 1)
        paths += more
        first += len(more)
    return paths


def _are_nodes(node: Node, paths: Sequence[Path]) -> bool:
    """True if these are the paths of a tree: each node lies below its parent."""
    if len(paths) != node.count or len(set(paths)) != len(paths):
        return False
    start = 1
    for child in node.children:
        below = paths[start : start + child.count]
        if below[0][:-1] != paths[0] or not _are_nodes(child, below):
            return False
        start += child.count
    return True
