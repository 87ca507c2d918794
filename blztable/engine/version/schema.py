"""Schema: encode, decode and check the Arrow schema of a table; the lines of its nodes.

Column tree: which nodes a field has. A line is the number of a node in pre-order. A field of a flat
type is one node. A nested type has a node for each of its child fields, at every level
(`arrow/nested`). The path of a node is the path of its parent and an id of its own. Rows are
counted by node: a root has the rows of the table, a child has its own.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from blztable.arrow.extension_names import read_plain, written
from blztable.arrow.nested.nodes import MAX_DEPTH, Node, is_nested
from blztable.arrow.nested.paths import find_in
from blztable.arrow.types import UNREADABLE, abbreviated, depth_of, is_foreign, value_type
from blztable.columns.digits import MAX_DIGITS
from blztable.columns.types import is_storable
from blztable.errors import ColumnNotFoundError, CorruptError, FormatError, SchemaError, no_column
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


def depths_of(schema: pa.Schema) -> Sequence[int]:
    """Return the depth of each node below its column, in pre-order."""
    # A table may have very many columns but few types.
    if not any(map(is_nested, {*schema.types})):
        return (0,) * len(schema)
    depths: list[int] = []
    for field in schema:
        _add_depths(Node.of(field.type), 0, depths)
    return depths


def _add_depths(node: Node, depth: int, depths: list[int]) -> None:
    depths.append(depth)
    for child in node.children:
        _add_depths(child, depth + 1, depths)


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


# The significant decimal digits kept of the floats of a column.
TRUNCATE_KEY = b"blz:truncate"


def check(schema: pa.Schema) -> None:
    """Raise SchemaError if the type or name of a column cannot be stored."""
    for field in schema:
        if not is_storable(field.type):
            name = abbreviated(field.type)
            if depth_of(field.type) > MAX_DEPTH:
                raise SchemaError(
                    f"column {field.name!r}: type {name} is nested deeper than {MAX_DEPTH} levels, "
                    "which is the limit; store the inner levels as text, such as JSON"
                )
            raise SchemaError(
                f"column {field.name!r}: type {name} cannot be stored; "
                "cast it to a plain type first"
            )


def digits_of(field: pa.Field) -> int | None:
    """Return the significant decimal digits kept of the floats of a column; None for all."""
    text = (field.metadata or {}).get(TRUNCATE_KEY, b"")
    if not text:
        return None
    is_number = pa.types.is_floating(field.type) and text.isdigit() and len(text) <= 2
    return int(text) if is_number and 1 <= int(text) <= MAX_DIGITS else None


def digits_by_name(fields: Iterable[pa.Field]) -> dict[str, int]:
    """Return the digits kept of each column of which not all are kept, by its name."""
    kept = ((field.name, digits_of(field)) for field in fields)
    return {name: digits for name, digits in kept if digits is not None}


def without_false_digits(field: pa.Field) -> pa.Field:
    """Return the field; without the digits to keep, if its values are no floats."""
    if TRUNCATE_KEY not in (field.metadata or {}) or pa.types.is_floating(field.type):
        return field
    kept = {key: text for key, text in field.metadata.items() if key != TRUNCATE_KEY}
    return field.with_metadata(kept or None)


def with_digits(field: pa.Field, digits: int | None) -> pa.Field:
    """Return the field of a column of which so many digits are kept; unchanged for None."""
    if digits is None:
        return field
    assert 1 <= digits <= MAX_DIGITS, digits
    if not pa.types.is_floating(field.type):
        raise SchemaError(
            f"column {field.name!r}: only digits of floats are left out, not of {field.type}; "
            "cast the column to double, or leave digits out for it"
        )
    return field.with_metadata({**(field.metadata or {}), TRUNCATE_KEY: b"%d" % digits})


def index_of(schema: pa.Schema, name: str, context: str) -> int:
    """Return the index of the column with this name; ColumnNotFoundError unless it is unique."""
    try:
        indices = schema.get_all_field_indices(name)
    except UnicodeEncodeError:
        indices = []  # No column has a name that is not UTF-8.
    if not indices and find_in(schema, name):
        raise ColumnNotFoundError(
            f"{name!r} is a field in {context}, and a whole column is needed here; "
            f"the columns are {schema.names!r:.1000}"
        )
    if not indices:
        raise no_column(name, schema.names, context)
    if len(indices) > 1:
        raise ColumnNotFoundError(
            f"{len(indices)} columns are named {name!r} in {context}; "
            f"the columns are {schema.names!r:.1000}"
        )
    return int(indices[0])


def encode(schema: pa.Schema) -> bytes:
    """Return the schema as an Arrow IPC message; SchemaError if it does not survive this."""
    data = written(schema)
    if not decode(data).equals(schema, check_metadata=True):
        raise SchemaError("Arrow does not read the schema back as it was written")
    return data


def decode(data: bytes) -> pa.Schema:
    """Read the schema of a manifest; FormatError for a type that this version does not know.

    An extension type is read as its storage type, so no class that is registered here is called.
    """
    try:
        schema = read_plain(data)
        # A table may have very many columns but few types.
        types = set(schema.types)
        # Arrow decodes names and time zones only here; they may be invalid text.
        storable = [type_ for type_ in types if is_storable(type_)]
        _ = schema.names, *map(_texts, storable)
    except UNREADABLE as error:
        if is_foreign(error):
            raise
        raise CorruptError(f"the schema of a manifest cannot be read: {error}") from None
    for field in schema if len(storable) < len(types) else ():
        if not is_storable(field.type):
            raise FormatError(
                f"column {field.name!r} has type {field.type}, which this version cannot read"
            )
    return schema


def _texts(type_: pa.DataType) -> list[object]:
    """Return the names and the time zones of a type and of those below it."""
    nodes = list(Node.of(type_).walk())
    leaves = [value_type(node.type) for node in nodes]
    return [node.name for node in nodes] + [getattr(leaf, "tz", None) for leaf in leaves]
