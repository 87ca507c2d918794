"""The golden tables of nested types: each case has all of them in another form on disk."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from support.nested_arrays import KINDS, array_of, table

# Row groups with a file for each part and small pages, plain or encoded; and bundles.
FORMS = {
    "plain": {"page_rows": 8, "row_group_rows": 30, "encoding": "plain"},
    "encoded": {"page_rows": 64, "row_group_rows": 300, "encoding": "auto"},
    "bundle": {"row_group_rows": 300},
}
HOLLOW = ("large list", "view", "map", "list of struct")


def changed(golden: Any) -> None:
    """Parts without rows, row groups of several writes, and columns that went."""
    first, more = table(40, 100), table(9, 200)
    # Lists without an item: their children have no rows in this row group, and no file.
    nothing = {name: pa.nulls(9, KINDS[name]) for name in HOLLOW}
    more = more.set_column(0, "k", pa.array(range(100, 109), pa.int32()))
    for name, nulls in nothing.items():
        more = more.set_column(more.schema.get_field_index(name), name, nulls)
    golden.write(first, page_rows=8, row_group_rows=16)
    rows = pa.concat_tables([first, more])
    golden.change(lambda table: table.append(more), rows)
    rows = pa.concat_tables([rows[:20], rows[23:]])
    golden.change(lambda table: table.delete(pc.field("k").isin([20, 21, 22])), rows)
    rows = rows.drop_columns(["list", "struct"])
    golden.change(lambda table: table.drop_columns(["list", "struct"]), rows)
    golden.change(lambda table: table.compact(), rows)


def extended(golden: Any) -> None:
    """Extension types that pyarrow has, and one that nobody has, at two levels."""
    storage = pa.array([bytes([row] * 16) if row % 5 else None for row in range(30)], pa.binary(16))
    ids = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    shapes = pa.array(
        [[row, -row, 1] if row % 7 else None for row in range(30)], pa.list_(pa.int32(), 3)
    )
    name = {"ARROW:extension:name": "golden.nobody", "ARROW:extension:metadata": "parameters"}
    point = pa.struct([pa.field("x", pa.float64(), metadata=name), pa.field("id", pa.uuid())])
    points = pa.StructArray.from_arrays(
        [pa.array(range(30), pa.float64()), ids], fields=list(point)
    )
    columns = {
        pa.field("id", pa.uuid(), metadata={"k": "v"}): ids,
        pa.field("json", pa.json_()): pa.array(["{}", None, "[1]"] * 10),
        pa.field("flag", pa.bool8()): pa.array([1, None, 0] * 10, pa.int8()),
        pa.field("shape", pa.fixed_shape_tensor(pa.int32(), [3])): shapes,
        pa.field("nobody", pa.int16(), metadata=name): pa.array(range(30), pa.int16()),
        pa.field("point", point): points,
        pa.field("ids", pa.list_(pa.uuid())): pa.ListArray.from_arrays(
            pa.array([0, 3, 3, 30] + [30] * 27, pa.int32()), ids
        ),
    }
    arrays = [
        array if array.type == field.type else pa.ExtensionArray.from_storage(field.type, array)
        for field, array in columns.items()
    ]
    golden.write(pa.table(arrays, schema=pa.schema(list(columns))), row_group_rows=16, page_rows=8)


def coded(golden: Any) -> None:
    """Dictionaries of nested values: with nulls at both levels, unused values, below lists."""
    points = pa.array([{"x": 1.5, "name": "a"}, None, {"x": None, "name": "b"}, {"x": -0.0}])
    codes = [2, None, 0, 1, 0, 2, 2, None, 1, 0, 0, 2] * 3
    runs = array_of(KINDS["runs"], 9, 300)

    def one(values: pa.Array, index: pa.DataType, *, ordered: bool = False) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, index), values, ordered=ordered)

    below = one(pa.array([[1, None], [], None]), pa.uint8())
    deep = pa.StructArray.from_arrays([below[:4]], ["d"])
    columns = {
        "struct": one(points, pa.int8()),
        "ordered": one(pa.array([{"x": 2}, {"x": 1}, {"x": 3}]), pa.int64(), ordered=True),
        "union": one(array_of(KINDS["dense"], 5, 301), pa.uint16()),
        "runs": one(runs, pa.int32()),
        "list": pa.ListArray.from_arrays(pa.array([0, 2, 2, 2, *range(3, 36)], pa.int32()), below),
        "deep": one(deep, pa.int16()),
    }
    first = pa.table(columns)
    golden.write(first, row_group_rows=20, page_rows=8)
    more = first.slice(1, 3)
    golden.change(lambda table: table.append(more), pa.concat_tables([first, more]))


def of_form(options: dict[str, Any]) -> Any:
    """One and a half row groups of a form."""
    return lambda golden: golden.write(table(options["row_group_rows"] * 3 // 2, 0), **options)


CASES = {
    **{name: of_form(options) for name, options in FORMS.items()},
    "changed": changed,
    "extended": extended,
    "coded": coded,
}
