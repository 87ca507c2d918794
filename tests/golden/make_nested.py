"""Write the golden tables of nested types, and beside each what it holds.

    cd tests && python -m golden.make_nested DIRECTORY

`nested/` is what this script wrote with the first blztable that had nested types. As with `v1/`, a
later blztable must read those bytes, and writes others. Each case has all nested types in another
form on disk; `make_v1.py` describes the files.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from golden.make_v1 import SUMS, Golden, sums
from support.nested_arrays import array_of

POINT = pa.struct([("x", pa.float64()), ("name", pa.string())])
UNION = [pa.field("n", pa.int16()), pa.field("s", pa.string()), pa.field("p", POINT)]
TYPES = {
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
    "runs": pa.run_end_encoded(pa.int16(), pa.string()),
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
# Row groups with a file for each part and small pages, plain or encoded; and bundles.
FORMS = {
    "plain": {"page_rows": 8, "row_group_rows": 30, "encoding": "plain"},
    "encoded": {"page_rows": 64, "row_group_rows": 300, "encoding": "auto"},
    "bundle": {"row_group_rows": 300},
}
CHANGED = "changed"
HOLLOW = ("large list", "view", "map", "list of struct")


def table(rows: int, seed: int) -> pa.Table:
    """Return a table with a column of each type; "k" numbers the rows."""
    columns = {
        name: array_of(type_, rows, seed + number)
        for number, (name, type_) in enumerate(TYPES.items())
    }
    return pa.table({"k": pa.array(range(rows), pa.int32()), **columns})


def changed(golden: Golden) -> None:
    """Parts without rows, row groups of several writes, and columns that went."""
    first, more = table(40, 100), table(9, 200)
    # Lists without an item: their children have no rows in this row group, and no file.
    nothing = {name: pa.nulls(9, TYPES[name]) for name in HOLLOW}
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


def main() -> None:
    root = Path(sys.argv[1])
    root.mkdir()
    for form, options in FORMS.items():
        Golden(root, form).write(table(options["row_group_rows"] * 3 // 2, 0), **options)
    changed(Golden(root, CHANGED))
    lines = [f"{digest}  {path}\n" for path, digest in sums(root).items()]
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
