"""Categories: what dictionaries of different parts of a column may differ in.

Any values where they are not ordered; where they are, all parts have the same. Codes need room for
the values of parts that come later.
"""

from collections.abc import Callable

import pyarrow as pa

from blztable.convert.frames.frame import Facts, descriptor_of
from blztable.errors import SchemaError


def with_room(schema: pa.Schema, facts: Facts) -> pa.Schema:
    """The schema with codes that have room for the categories of later frames, too."""
    return pa.schema([_with_room(field, facts) for field in schema], schema.metadata)


def _with_room(field: pa.Field, facts: Facts) -> pa.Field:
    type_ = field.type
    if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
        return field
    descriptor = descriptor_of(field, facts)
    # pandas chooses codes by itself, but for what is Arrow's already.
    if descriptor is not None and descriptor["dtype"] != "category":
        return field
    return field.with_type(pa.dictionary(pa.int32(), type_.value_type, type_.ordered))


def orders_of(table: pa.Table) -> dict[int, pa.Array]:
    """The categories of each ordered column that has any, by the place of the column."""
    orders = {}
    for place, column in enumerate(table.columns):
        if _is_ordered(column.type):
            found = (chunk.dictionary for chunk in column.chunks if len(chunk.dictionary))
            orders[place] = next(found, None)
    return {place: order for place, order in orders.items() if order is not None}


def check_orders(
    table: pa.Table, order_at: Callable[[int], pa.Array | None], what: str, before: str
) -> None:
    """SchemaError where ordered categories are others than those that `before` has."""
    names = table.schema.names
    for place, column in enumerate(table.columns):
        if _is_ordered(column.type):
            where = f"{what}, column {names[place]!r}"
            check_order(column, order_at(place), where, before)


def check_order(
    column: pa.ChunkedArray, order: pa.Array | None, what: str, before: str = "the table"
) -> None:
    """SchemaError where the categories of an ordered column are others than `order`."""
    if order is None or not _is_ordered(column.type):
        return
    for chunk in column.chunks:
        found = chunk.dictionary
        if len(found) and not _bits(found).equals(_bits(order)):
            raise SchemaError(
                f"{what}: ordered categories {found.to_pylist()!r:.200}; "
                f"{before} has {order.to_pylist()!r:.200}"
            )


def one_in_order(value: pa.ChunkedArray, order: pa.Array | None, what: str) -> pa.ChunkedArray:
    """One row of an ordered column, its value by its place among the categories there are.

    SchemaError where it is none of them.
    """
    if order is None or value.null_count or not _is_ordered(value.type):
        return value
    categories, found = order.to_pylist(), value[0].as_py()
    if found not in categories:
        raise SchemaError(f"{what}: {found!r:.100} is none of its ordered categories {categories}")
    codes = pa.array([categories.index(found)], value.type.index_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, order, ordered=True)])


def _is_ordered(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) and type_.ordered)


def _bits(values: pa.Array) -> pa.Array:
    """Values that are equal to the bit where they are the same: a NaN is, to itself."""
    if not pa.types.is_floating(values.type):
        return values
    return values.view(f"int{values.type.bit_width}")


def order_of(values: pa.Scalar | pa.Array | pa.ChunkedArray | None) -> pa.Array | None:
    """The categories of values that are ordered."""
    if values is None or not pa.types.is_dictionary(values.type) or not values.type.ordered:
        return None
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0).dictionary if values.num_chunks else None
    return values.dictionary
