"""Nodes: the tree of flat columns that a column of a nested type is made of, and is stored as.

A node has a flat type: one that has no children. A node of a list has `list<null>`, which is its
validity and its item ends; a node of a struct has `struct<>`, which is its validity alone; a node
of a dictionary of nested values has the type of its codes. A leaf has its own type. The rows of a
child follow from those of its parent, see `ITEMS`, `ROWS` and `RUNS`, but for the values of a
dictionary. Knows no arrays.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

# How the rows of a node decide those of its children.
# The children have the rows of the node.
ROWS = "rows"
# Each row has as many items as it says; items lie one behind the other.
ITEMS = "items"
# Each row has the same number of items, also a null.
SIZE = "size"
# A row that begins a run has one item.
RUNS = "runs"
# Each row is the code of a value. The child has the values of the part, in the order of the codes.
CODES = "codes"

LIST, LARGE_LIST, STRUCT = pa.list_(pa.null()), pa.large_list(pa.null()), pa.struct([])
_LISTS = {
    pa.lib.Type_LIST: LIST,
    pa.lib.Type_LARGE_LIST: LARGE_LIST,
    pa.lib.Type_LIST_VIEW: LIST,
    pa.lib.Type_LARGE_LIST_VIEW: LARGE_LIST,
    pa.lib.Type_MAP: LIST,
}
_UNIONS = (pa.lib.Type_SPARSE_UNION, pa.lib.Type_DENSE_UNION)
NESTED = {
    *_LISTS,
    *_UNIONS,
    pa.lib.Type_STRUCT,
    pa.lib.Type_FIXED_SIZE_LIST,
    pa.lib.Type_RUN_END_ENCODED,
}
# Levels of a nested type that are stored.
MAX_DEPTH = 32
# Values of a dictionary of nested values in one part.
MAX_VALUES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the tree of a type, and the nodes below it.

    Attributes
    ----------
    name
        The name of the field; of a root, "".
    type
        The Arrow type of the values.
    flat
        The type of the node's own streams.
    rows
        How the rows of the node decide those of its children; "" for a leaf.
    children
        The nodes of the child fields, in the order of the type.
    """

    name: str
    type: pa.DataType
    flat: pa.DataType
    rows: str = ""
    children: tuple["Node", ...] = ()

    @classmethod
    def of(cls, type_: pa.DataType, name: str = "") -> "Node":
        """Return the tree of a type."""
        if not is_nested(type_):
            return cls(name, type_, type_)  # Most types of a wide table.
        children = tuple(cls.of(child, child_name) for child_name, child in _children(type_))
        flat, rows = type_, ""
        if type_.id in _LISTS:
            flat, rows = _LISTS[type_.id], ITEMS
        elif pa.types.is_run_end_encoded(type_):
            flat, rows = LIST, RUNS
        elif pa.types.is_struct(type_):
            flat, rows = STRUCT, ROWS
        elif pa.types.is_fixed_size_list(type_):
            flat, rows = STRUCT, SIZE
        elif pa.types.is_union(type_):
            flat, rows = pa.int8(), ROWS
        elif children:
            flat, rows = type_.index_type, CODES
        return cls(name, type_, flat, rows, children)

    def walk(self) -> Iterator["Node"]:
        """Yield the node and all nodes below it, in pre-order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def names(self, name: str) -> Iterator[str]:
        """Yield the name of each node, in pre-order, given that of the column: "a.b"."""
        yield name
        for child in self.children:
            yield from child.names(f"{name}.{child.name}")

    def share_rows(self, with_root: bool = True) -> Iterator[bool]:
        """Yield for each node, in pre-order, whether its rows are those of the root."""
        yield with_root
        for child in self.children:
            yield from child.share_rows(with_root and self.rows == ROWS)

    @property
    def has_bounds(self) -> bool:
        """False if the node's own numbers are codes, whose bounds say nothing of the values."""
        return self.rows != CODES

    @property
    def count(self) -> int:
        """Return the number of nodes."""
        return 1 + sum(child.count for child in self.children)


def is_nested(type_: pa.DataType) -> bool:
    """True if a column of this type has child nodes, or could have."""
    while type_.id == pa.lib.Type_DICTIONARY:
        type_ = type_.value_type
    return type_.id in NESTED


def counts_nulls(type_: pa.DataType) -> bool:
    """True if a row of a column is null exactly where its root is; else it may be a null value."""
    is_coded = pa.types.is_dictionary(type_) and is_nested(type_)
    return not (is_coded or pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_))


def is_nested_storable(
    type_: pa.DataType, is_flat: Callable[[pa.DataType], bool], depth: int = MAX_DEPTH
) -> bool:
    """True if all leaves of a nested type are types that `is_flat` accepts."""
    if not is_nested(type_):
        return is_flat(type_)
    if pa.types.is_run_end_encoded(type_) and pa.types.is_int16(type_.run_end_type):
        # They reach 32,767 rows; a row group that grew of many arrays may have more.
        return False
    if pa.types.is_dictionary(type_) and pa.types.is_dictionary(type_.value_type):
        # Arrow writes a schema without the inner one.
        return False
    return depth > 0 and all(
        is_nested_storable(child, is_flat, depth - 1) for _, child in _children(type_)
    )


def _children(type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the names and the types of the child nodes."""
    if pa.types.is_map(type_):
        return [("key", type_.key_type), ("value", type_.item_type)]
    if type_.id in _LISTS or pa.types.is_fixed_size_list(type_):
        return [("item", type_.value_type)]
    is_coded = pa.types.is_dictionary(type_) and is_nested(type_)
    if pa.types.is_run_end_encoded(type_) or is_coded:
        return [("value", type_.value_type)]
    if type_.id in NESTED:
        fields = [type_.field(number) for number in range(type_.num_fields)]
        return [(field.name, field.type) for field in fields]
    return []
