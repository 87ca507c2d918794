"""Paths: fields within nested types, and types that have only some of them.

A path is the position of a child at each level, from the root down. Names are those of the nodes:
of a struct the names of its fields, of a list "item", of a map "key" and "value". Knows no arrays.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from blztable.arrow.extensions import retyped
from blztable.arrow.nested.nodes import Node, is_nested
from blztable.arrow.types import with_fields
from blztable.errors import SchemaError

Path = tuple[int, ...]
# Names from the root down, or all of them in one text: "address.city".
Names = str | tuple[str, ...]


def column_of(names: Names) -> Names:
    """Return the name of a path that is a column; any other names unchanged."""
    return names[0] if isinstance(names, tuple) and len(names) == 1 else names


def find(node: Node, names: Names) -> Iterator[Path]:
    """Yield the path of each field below a node that has these names."""
    for number, child in enumerate(node.children):
        rest = below(child.name, names)
        if rest == "":
            yield (number,)
        elif rest is not None:
            yield from ((number, *path) for path in find(child, rest))


def value_of(schema: pa.Schema, names: Names) -> tuple[tuple[str, ...], pa.DataType] | None:
    """Return the full name and the type of the only field of structs that has these names."""
    matches = find_in(schema, names)
    if len(matches) != 1:
        return None
    ((index, path),) = matches
    node = Node.of(schema.field(index).type)
    inner, full = within_structs(schema.field(index), path), [schema.field(index).name]
    for number in path:
        node = node.children[number]
        full.append(node.name)
    return inner and (tuple(full), inner[0].type)


def find_in(schema: pa.Schema, names: Names) -> list[tuple[int, Path]]:
    """Return the column and the path of each field of nested columns that has these names."""
    return [
        (index, path)
        for index, field in enumerate(schema)
        if is_nested(field.type)
        for rest in (below(field.name, names),)
        if rest
        for path in find(Node.of(field.type), rest)
    ]


def below(name: str, names: Names) -> Names | None:
    """Return the names that follow this first one, "" if none does; None if it is not the first."""
    if isinstance(names, tuple):
        return (names[1:] or "") if names[:1] == (name,) else None
    if names == name:
        return ""
    # Users also pass what is no name, such as a number.
    begins = isinstance(names, str) and names.startswith(f"{name}.")
    return names.removeprefix(f"{name}.") if begins else None


def within_structs(field: pa.Field, path: Path) -> tuple[pa.Field, range] | None:
    """Return a field and the places of its nodes, in pre-order; None if not all are structs.

    A field of structs has a value in each row of the root.
    """
    line, node = 0, Node.of(field.type)
    for number in path:
        if not pa.types.is_struct(node.type):
            return None
        line += 1 + sum(child.count for child in node.children[:number])
        field, node = node.type.field(number), node.children[number]
    return field, range(line, line + node.count)


def pruned(node: Node, paths: Sequence[Path]) -> tuple[pa.DataType, list[int]]:
    """Return the type that has only these fields, and the places of its nodes, in pre-order.

    Raises
    ------
    SchemaError
        A path leads into a union, whose type codes count all fields.
    """
    if not all(paths):
        return node.type, list(range(node.count))
    if pa.types.is_union(node.type):
        raise SchemaError(f"a field of {node.type} cannot be read without the others")
    types: dict[int, pa.DataType] = {}
    lines, line = [0], 1
    for number, child in enumerate(node.children):
        inner = [path[1:] for path in paths if path[0] == number]
        # A map is not one without its keys or its values.
        if pa.types.is_map(node.type) and not inner:
            inner = [()]
        if inner:
            types[number], more = pruned(child, inner)
            lines += [line + step for step in more]
        line += child.count
    return _with_children(node.type, types), lines


def dropped(node: Node, gone: Sequence[Path]) -> tuple[pa.DataType, list[int]]:
    """Return the type without some fields of structs, and the places of the nodes that stay.

    Raises
    ------
    SchemaError
        A path does not lead to a field of a struct.
    """
    if not gone:
        return node.type, list(range(node.count))
    here = {path[0] for path in gone if len(path) == 1}
    _check_struct(node.type, is_end=bool(here))
    types: dict[int, pa.DataType] = {}
    lines, line = [0], 1
    for number, child in enumerate(node.children):
        if number not in here:
            inner = [path[1:] for path in gone if path[0] == number]
            types[number], more = dropped(child, inner)
            lines += [line + step for step in more]
        line += child.count
    return _with_children(node.type, types), lines


def renamed(type_: pa.DataType, names: Mapping[Path, str]) -> pa.DataType:
    """Return the type with other names of fields of structs, by path; raises as `dropped` does."""
    for number in {path[0] for path in names if len(path) > 1}:
        inner = {path[1:]: name for path, name in names.items() if path[0] == number and path[1:]}
        _check_struct(type_, is_end=False)
        type_ = _with_child(type_, number, partial(renamed, names=inner))
    here = {path[0]: name for path, name in names.items() if len(path) == 1}
    if not here:
        return type_
    _check_struct(type_, is_end=True)
    fields = [field.with_name(here.get(n, field.name)) for n, field in enumerate(type_)]
    for name in here.values():
        _check_one(fields, name)
    return pa.struct(fields)


def added(type_: pa.DataType, path: Path, field: pa.Field) -> pa.DataType:
    """Return the type with one more field in the struct at a path; SchemaError if it has one."""
    if path:
        return _with_child(type_, path[0], lambda inner: added(inner, path[1:], field))
    _check_one([*type_, field], field.name)
    return pa.struct([*type_, field])


def _check_struct(type_: pa.DataType, *, is_end: bool) -> None:
    if pa.types.is_union(type_) or (is_end and not pa.types.is_struct(type_)):
        raise SchemaError(f"only fields of structs can be changed, not those of {type_}")


def _check_one(fields: Sequence[pa.Field], name: str) -> None:
    if sum(field.name == name for field in fields) > 1:
        raise SchemaError(f"the struct already has a field {name!r}; choose another name")


def _with_child(
    type_: pa.DataType, number: int, change: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    """Return a nested type with one child changed."""
    types = {number: child.type for number, child in enumerate(Node.of(type_).children)}
    return _with_children(type_, types | {number: change(types[number])})


def _with_children(type_: pa.DataType, types: dict[int, pa.DataType]) -> pa.DataType:
    """Return a nested type with these types of children; a struct has no others."""
    if pa.types.is_struct(type_):
        type_ = pa.struct([type_.field(number) for number in types])
    new_types = iter(types.values())
    return with_fields(type_, lambda field: retyped(field, next(new_types)))
