"""Categories: the dictionaries of different parts of one column.

Knows nothing of tables. The parts of an ordered column have the same categories; the parts of an
unordered one may have any. Codes need room for the categories of later parts. Categories that are
intervals are stored as texts, all of them with ends of one type.
"""

from collections.abc import Callable

import pandas as pd
import pyarrow as pa

from blztable.arrow.casts import cast_exactly, short_text_of
from blztable.arrow.extensions import check_same, registered_schema
from blztable.convert.arrays import whole
from blztable.convert.frames import compound, dtypes
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import FrameInfo, descriptor_of
from blztable.convert.objects.kinds import SIMPLE
from blztable.errors import SchemaError


def with_room(schema: pa.Schema, info: FrameInfo) -> pa.Schema:
    """Return the schema with codes wide enough for the categories of later DataFrames."""
    return pa.schema([_with_room(field, info) for field in schema], schema.metadata)


def _with_room(field: pa.Field, info: FrameInfo) -> pa.Field:
    type_ = field.type
    if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
        return field
    descriptor = descriptor_of(field, info)
    # pandas chooses the width of codes itself, except for columns of an ArrowDtype.
    if descriptor is not None and descriptor["dtype"] != "category":
        return field
    return field.with_type(pa.dictionary(pa.int32(), type_.value_type, type_.ordered))


def descriptor_of_values(descriptor: object) -> Descriptor | None:
    """Return the facts of a column's values; of a column of categories, those of the categories."""
    while isinstance(descriptor, dict) and descriptor.get("dtype") == "category":
        categories = descriptor.get("categories")
        descriptor = categories.get("values") if isinstance(categories, dict) else None
    return descriptor if isinstance(descriptor, dict) else None


def check_kind(source: pa.Field, target: pa.Field, stated: Descriptor | None, context: str) -> None:
    """Raise SchemaError if values of an extension type go to a field that means something else.

    Categories of objects are of no extension type; their descriptor says what they mean.
    """
    kind = (descriptor_of_values(stated) or {}).get("kind")
    if isinstance(kind, str) and kind in SIMPLE:
        (registered,) = registered_schema(pa.schema([source]))
        if SIMPLE[kind].holds(registered.type):
            return
    check_same(source, target, context)


def are_intervals(descriptor: object) -> bool:
    """True for intervals, and for categories that are intervals."""
    return (descriptor_of_values(descriptor) or {}).get("dtype") == "interval"


def as_interval_texts(
    column: pa.ChunkedArray, descriptor: Descriptor | None, descriptor_of_texts: Descriptor
) -> pa.ChunkedArray | None:
    """Return intervals, or categories of them, as categories that are texts with these facts.

    Return None if the ends of a category have no such values, or are not closed in the same way.
    """
    values = pd.Categorical(dtypes.decode(column, descriptor, None))
    intervals = values.categories.array
    if intervals.closed != descriptor_of_texts["closed"]:
        return None
    structs = dtypes.encode(intervals, "categories")[0]
    type_ = pa.struct([(end, compound.ends_type(descriptor_of_texts)) for end in compound.ENDS])
    exact = cast_exactly(pa.chunked_array([structs]), type_)
    if exact is None:
        return None
    texts, _ = compound.interval_texts(whole(exact), descriptor_of_texts)
    codes = pa.array(values.codes, mask=values.codes == -1)
    array = pa.DictionaryArray.from_arrays(codes, texts, ordered=values.ordered)
    return pa.chunked_array([array])


class Orders:
    """The categories of each ordered column: of the table, else the first that come."""

    def __init__(self, stored: Callable[[int], pa.Array | None], source: str = "the table") -> None:
        # Returns the categories that a column has in the table, by its index; None for none.
        self._stored = stored
        # The rows that the categories come from, in errors.
        self._source = source
        self._known: dict[int, pa.Array | None] = {}

    def check(self, table: pa.Table, context: str) -> None:
        """SchemaError where the categories of an ordered column differ from the earlier ones."""
        for index, field in enumerate(table.schema):
            if _is_ordered(field.type):
                self.check_column(index, table.column(index), f"{context}, column {field.name!r}")

    def check_column(self, index: int, column: pa.ChunkedArray, context: str) -> None:
        """SchemaError where the categories of a column differ from the earlier ones."""
        if not _is_ordered(column.type):
            return
        order = self._of(index)
        if order is None:
            order = next(filter(len, (chunk.dictionary for chunk in column.chunks)), None)
        check_order(column, order, context, self._source)
        self._known[index] = order

    def one(self, index: int, value: pa.ChunkedArray, context: str) -> pa.ChunkedArray:
        """Return one row with the codes of the earlier categories, as `one_in_order`."""
        value = one_in_order(value, self._of(index), context)
        self.check_column(index, value, context)
        return value

    def _of(self, index: int) -> pa.Array | None:
        if index not in self._known:
            self._known[index] = self._stored(index)
        return self._known[index]


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
                f"{context}: ordered categories [{_listed(categories):.200}]; {before} has "
                f"[{_listed(order):.200}]; set the same categories in the same order"
            )


def one_in_order(value: pa.ChunkedArray, order: pa.Array | None, context: str) -> pa.ChunkedArray:
    """Return one row of an ordered column with the codes of `order`.

    Raise SchemaError if its value is not one of these categories.
    """
    if order is None or value.null_count or not _is_ordered(value.type):
        return value
    (scalar,) = value
    wanted = _bits(scalar.dictionary)[scalar.index.as_py()]
    found = (code for code, category in enumerate(_bits(order)) if category.equals(wanted))
    code = next(found, None)
    if code is None:
        raise SchemaError(
            f"{context}: {short_text_of(scalar.value)} is not one of the ordered categories "
            f"[{_listed(order):.200}]"
        )
    codes = pa.array([code], value.type.index_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, order, ordered=True)])


def _listed(categories: pa.Array) -> str:
    return ", ".join(map(short_text_of, categories[:100]))


def _is_ordered(type_: pa.DataType) -> bool:
    return type_.id == pa.lib.Type_DICTIONARY and bool(type_.ordered)


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
