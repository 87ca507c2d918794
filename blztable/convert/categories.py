"""Categories: the dictionaries of different parts of one column.

Knows nothing of tables. The parts of an ordered column have the same categories; the parts of an
unordered one may have any. Codes need room for the categories of later parts.
"""

from collections.abc import Callable

import pyarrow as pa

from blztable.convert.frames.frame import Facts, descriptor_of
from blztable.errors import SchemaError


def with_room(schema: pa.Schema, facts: Facts) -> pa.Schema:
    """Return the schema with codes wide enough for the categories of later DataFrames."""
    return pa.schema([_with_room(field, facts) for field in schema], schema.metadata)


def _with_room(field: pa.Field, facts: Facts) -> pa.Field:
    type_ = field.type
    if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
        return field
    descriptor = descriptor_of(field, facts)
    # pandas chooses the width of codes itself, except for columns of an ArrowDtype.
    if descriptor is not None and descriptor["dtype"] != "category":
        return field
    return field.with_type(pa.dictionary(pa.int32(), type_.value_type, type_.ordered))


def orders_of(table: pa.Table) -> dict[int, pa.Array]:
    """Return the categories of each ordered column that has any, by the column's index."""
    orders = {}
    for index in _ordered_columns(table):
        for chunk in table.column(index).chunks:
            if len(chunk.dictionary):
                orders[index] = chunk.dictionary
                break
    return orders


def check_orders(
    table: pa.Table, order_at: Callable[[int], pa.Array | None], context: str, before: str
) -> None:
    """Raise SchemaError if the categories of an ordered column differ from the earlier ones."""
    for index in _ordered_columns(table):
        name = table.schema.field(index).name
        column_context = f"{context}, column {name!r}"
        check_order(table.column(index), order_at(index), column_context, before)


def check_order(
    column: pa.ChunkedArray, order: pa.Array | None, context: str, before: str = "the table"
) -> None:
    """Raise SchemaError if the categories of an ordered column differ from `order`."""
    if order is None or not _is_ordered(column.type):
        return
    for chunk in column.chunks:
        categories = chunk.dictionary
        if len(categories) and not _bits(categories).equals(_bits(order)):
            raise SchemaError(
                f"{context}: ordered categories {categories.to_pylist()!r:.200}; {before} has "
                f"{order.to_pylist()!r:.200}; set the same categories in the same order"
            )


def one_in_order(value: pa.ChunkedArray, order: pa.Array | None, context: str) -> pa.ChunkedArray:
    """Return one row of an ordered column with the codes of `order`.

    Raise SchemaError if its value is not one of these categories.
    """
    if order is None or value.null_count or not _is_ordered(value.type):
        return value
    categories, category = order.to_pylist(), value[0].as_py()
    if category not in categories:
        raise SchemaError(
            f"{context}: {category!r:.100} is not one of the ordered categories {categories!r:.200}"
        )
    codes = pa.array([categories.index(category)], value.type.index_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, order, ordered=True)])


def _ordered_columns(table: pa.Table) -> list[int]:
    return [index for index, type_ in enumerate(table.schema.types) if _is_ordered(type_)]


def _is_ordered(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) and type_.ordered)


def _bits(values: pa.Array) -> pa.Array:
    """Return floats as integers of the same bits, so that a NaN equals itself."""
    if not pa.types.is_floating(values.type):
        return values
    return values.view(f"int{values.type.bit_width}")


def order_of(values: pa.Scalar | pa.Array | pa.ChunkedArray | None) -> pa.Array | None:
    """Return the categories of ordered values; None for any others."""
    if values is None or not pa.types.is_dictionary(values.type) or not values.type.ordered:
        return None
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0).dictionary if values.num_chunks else None
    return values.dictionary
