"""Arrays of nested types in all shapes that Arrow has: sliced, shared, hidden, out of order."""

import random
from functools import reduce

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from blztable.arrow.types import as_stored
from support import samples

LEAVES = [
    pa.int8(),
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.null(),
    pa.string(),
    pa.string_view(),
    pa.large_binary(),
    pa.decimal128(5, 2),
    pa.dictionary(pa.int8(), pa.string()),
]
# Types of more levels than are stored.
TOO_DEEP = [
    reduce(lambda inner, _: pa.list_(inner), range(40), pa.int8()),
    reduce(lambda inner, _: pa.struct([("a", inner)]), range(40), pa.int8()),
]
RUN_ENDS = [pa.int16(), pa.int32(), pa.int64()]
CODES = [pa.int8(), pa.uint8(), pa.int32(), pa.uint64()]


def _is_coded(type_):
    """True for nested types, of which there are dictionaries that are nested, too."""
    return pa.types.is_nested(type_)


def _union(types, make):
    return make([pa.field(f"u{number}", type_) for number, type_ in enumerate(types)])


def _nesting(inner):
    return (
        inner.map(pa.list_)
        | inner.map(pa.large_list)
        | inner.map(pa.list_view)
        | inner.map(pa.large_list_view)
        | st.tuples(inner, st.integers(0, 3)).map(lambda pair: pa.list_(*pair))
        | inner.map(lambda type_: pa.map_(pa.string(), type_))
        | st.lists(inner, max_size=3).map(
            lambda types: pa.struct([(f"f{number}", one) for number, one in enumerate(types)])
        )
        | st.lists(inner, min_size=1, max_size=2).map(lambda types: _union(types, pa.dense_union))
        | st.lists(inner, min_size=1, max_size=2).map(lambda types: _union(types, pa.sparse_union))
        | st.tuples(st.sampled_from(RUN_ENDS), st.sampled_from(LEAVES[:7])).map(
            lambda pair: pa.run_end_encoded(*pair)
        )
        | st.tuples(st.sampled_from(CODES), inner.filter(_is_coded)).map(
            lambda pair: pa.dictionary(*pair)
        )
    )


def types_of(leaves: list[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Draw nested types of up to three levels."""
    return _nesting(st.recursive(st.sampled_from(leaves), _nesting, max_leaves=3))


TYPES = types_of(LEAVES)

POINT = pa.struct([("x", pa.float64()), ("name", pa.string())])
UNION = [pa.field("n", pa.int16()), pa.field("s", pa.string()), pa.field("p", POINT)]
# One of each kind.
KINDS = {
    "struct": POINT,
    "no fields": pa.struct([]),
    "struct of struct": pa.struct([("a", POINT), ("b", pa.struct([("c", pa.bool_())]))]),
    "list": pa.list_(pa.int32()),
    "large list": pa.large_list(pa.large_string()),
    "view": pa.list_view(pa.string_view()),
    "large view": pa.large_list_view(pa.decimal128(5, 2)),
    "fixed": pa.list_(pa.float32(), 3),
    "fixed of none": pa.list_(pa.int8(), 0),
    "map": pa.map_(pa.string(), pa.int64()),
    "dense": pa.dense_union(UNION, [5, 0, 127]),
    "sparse": pa.sparse_union(UNION, [1, 2, 3]),
    "runs": pa.run_end_encoded(pa.int32(), pa.string()),
    "list of struct": pa.list_(pa.struct([("point", POINT), ("tags", pa.list_(pa.string()))])),
    "list of nothing": pa.list_(pa.null()),
    "struct of all": pa.struct(
        [
            ("map", pa.map_(pa.string(), pa.list_(pa.dictionary(pa.int8(), pa.string())))),
            ("runs", pa.run_end_encoded(pa.int64(), pa.float64())),
            ("union", pa.dense_union([pa.field("list", pa.list_(pa.int64()))])),
            ("fixed", pa.list_(pa.list_(pa.uint8(), 2), 2)),
        ]
    ),
}
# And those that came later than the golden tables of the others.
ALL = {
    **KINDS,
    "coded": pa.dictionary(pa.int8(), POINT),
    "list of coded": pa.list_(pa.dictionary(pa.int32(), pa.list_(POINT))),
    "short runs": pa.run_end_encoded(pa.int16(), pa.string()),
}


def table(rows: int, seed: int) -> pa.Table:
    """Return a table with a column of each kind; "k" numbers the rows."""
    columns = {
        name: array_of(type_, rows, seed + number)
        for number, (name, type_) in enumerate(KINDS.items())
    }
    return pa.table({"k": pa.array(range(rows), pa.int32()), **columns})


def array_of(type_: pa.DataType, rows: int, seed: int) -> pa.Array:
    """Return an array of so many rows, with nulls at every level."""
    return _array(type_, rows, random.Random(seed))


def _mask(rows: int, chance: random.Random) -> pa.Array:
    return pa.array([chance.random() < 0.2 for _ in range(rows)], pa.bool_())


def _array(type_: pa.DataType, rows: int, chance: random.Random) -> pa.Array:
    kinds = pa.types
    if kinds.is_run_end_encoded(type_):
        ends = sorted({chance.randint(1, rows) for _ in range(rows // 3)} | {rows}) if rows else []
        values = _array(type_.value_type, len(ends), chance)
        run_ends = pa.array(ends, type_.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(run_ends, values, type=type_)
    if kinds.is_union(type_):
        return _union_array(type_, rows, chance)
    if kinds.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        if not fields:
            return pa.array([None if chance.random() < 0.2 else {} for _ in range(rows)], type_)
        arrays = [_array(field.type, rows, chance) for field in fields]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=_mask(rows, chance))
    if kinds.is_fixed_size_list(type_):
        values = _array(type_.value_type, rows * type_.list_size, chance)
        validity = pa.py_buffer(np.packbits(~np.array(_mask(rows, chance)), bitorder="little"))
        return pa.Array.from_buffers(type_, rows, [validity], children=[values])
    if kinds.is_list_view(type_) or kinds.is_large_list_view(type_):
        return _view_array(type_, rows, chance)
    if kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_map(type_):
        ends = np.cumsum([0, *(chance.randrange(4) for _ in range(rows))])
        return _list_array(type_, ends, chance)
    if type_ in LEAVES and not kinds.is_dictionary(type_):
        return pa.array([_value(type_, chance) for _ in range(rows)], type_)
    if kinds.is_dictionary(type_):
        # Some of them null.
        values = _array(type_.value_type, 7, chance)
        codes = [None if chance.random() < 0.2 else chance.randrange(7) for _ in range(rows)]
        indices = pa.array(codes, pa.int64()).cast(type_.index_type)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=type_.ordered)
    places = pa.array([chance.randrange(samples.ROWS) for _ in range(rows)], pa.int64())
    return as_stored(samples.array(type_)).take(places).cast(type_)


def _list_array(type_: pa.DataType, ends: np.ndarray, chance: random.Random) -> pa.Array:
    """Return lists whose null rows have items, which nobody sees."""
    rows, width = len(ends) - 1, "<i8" if pa.types.is_large_list(type_) else "<i4"
    if pa.types.is_map(type_):
        keys = pa.array([f"k{number}" for number in range(ends[-1])], type_.key_type)
        entries = [keys, _array(type_.item_type, int(ends[-1]), chance)]
        fields = [type_.key_field, type_.item_field]
        values = pa.StructArray.from_arrays(entries, fields=fields)
    else:
        values = _array(type_.value_type, int(ends[-1]), chance)
    validity = pa.py_buffer(np.packbits(~np.array(_mask(rows, chance)), bitorder="little"))
    buffers = [validity, pa.py_buffer(ends.astype(width))]
    return pa.Array.from_buffers(type_, rows, buffers, children=[values])


def _view_array(type_: pa.DataType, rows: int, chance: random.Random) -> pa.Array:
    """Return views that share items, and are not in their order."""
    values = _array(type_.value_type, 20, chance)
    starts = [chance.randrange(20) for _ in range(rows)]
    sizes = [chance.randrange(min(4, 21 - start)) for start in starts]
    is_small = pa.types.is_list_view(type_)
    make = pa.ListViewArray if is_small else pa.LargeListViewArray
    numbers = [pa.array(one, pa.int32() if is_small else pa.int64()) for one in (starts, sizes)]
    return make.from_arrays(*numbers, values, type=type_, mask=_mask(rows, chance))


def _union_array(type_: pa.UnionType, rows: int, chance: random.Random) -> pa.Array:
    arrays = [_array(type_.field(one).type, rows, chance) for one in range(type_.num_fields)]
    codes = np.array([chance.choice(type_.type_codes) for _ in range(rows)], "i1")
    buffers = [None, pa.py_buffer(codes)]
    if type_.mode == "dense":
        places = np.zeros(rows, "<i4")
        for code in type_.type_codes:
            used = codes == code
            places[used] = sorted(chance.randrange(rows) for _ in range(used.sum()))
        buffers.append(pa.py_buffer(places))
    return pa.Array.from_buffers(type_, rows, buffers, children=arrays)


def _value(type_: pa.DataType, chance: random.Random) -> object:
    if pa.types.is_null(type_) or chance.random() < 0.2:
        return None
    if pa.types.is_boolean(type_):
        return chance.random() < 0.5
    if pa.types.is_decimal(type_):
        return pa.scalar(chance.randrange(100), pa.int64()).cast(pa.decimal128(19)).as_py()
    if pa.types.is_floating(type_):
        return chance.choice([0.5, -0.0, float("nan"), 1e300])
    if pa.types.is_integer(type_):
        return chance.randrange(100)
    text = f"s{chance.randrange(50)}"
    return text.encode() if pa.types.is_large_binary(type_) else text


def rows_of(column: pa.ChunkedArray | pa.Array) -> str:
    """Return the rows as text, in which 0.0 and -0.0 differ, and NaN is equal to NaN."""
    return repr(column.to_pylist())
