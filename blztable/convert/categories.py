"""Categories: what dictionaries of different parts of a column may differ in.

Any values where they are not ordered; where they are, all parts have the same. Codes need room for
the values of parts that come later.
"""

from collections.abc import Callable

import pyarrow as pa

from blztable.convert.frame import Facts, descriptor_of
from blztable.errors import SchemaError


def with_room(schema: pa.Schema, facts: Facts) -> pa.Schema:
    """The schema with codes that have room for the categories of later frames, too."""
    for place, field in enumerate(schema):
        type_ = field.type
        if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
            continue
        descriptor = descriptor_of(field, facts)
        # pandas chooses codes by itself, but for what is Arrow's already.
        if descriptor is None or descriptor["dtype"] == "category":
            wide = pa.dictionary(pa.int32(), type_.value_type, type_.ordered)
            schema = schema.set(place, field.with_type(wide))
    return schema


def orders_of(table: pa.Table) -> dict[int, pa.Array]:
    """The categories of the ordered columns, by their place."""
    return {
        place: column.chunk(0).dictionary
        for place, column in enumerate(table.columns)
        if _is_ordered(column.type) and column.num_chunks
    }


def check_orders(
    table: pa.Table, order_at: Callable[[int], pa.Array | None], what: str, before: str
) -> None:
    """SchemaError where ordered categories are others than those that `before` has."""
    for place, column in enumerate(table.columns):
        order = order_at(place) if _is_ordered(column.type) else None
        if order is None:
            continue
        for chunk in column.chunks:
            found = chunk.dictionary
            if len(found) and not found.equals(order):
                raise SchemaError(
                    f"{what}, column {table.schema.names[place]!r}: ordered categories "
                    f"{found.to_pylist()!r:.200}; {before} has {order.to_pylist()!r:.200}"
                )


def _is_ordered(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) and type_.ordered)
