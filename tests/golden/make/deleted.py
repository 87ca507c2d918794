"""The golden tables of deleted rows: named in bundles, in plain files, and beside changes."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROWS = 100
TEXTS = [None if row % 7 == 3 else "é" * (row * 5 % 11) for row in range(ROWS)]
TABLE = pa.table(
    {
        "id": range(ROWS),
        "text": TEXTS,
        "x": pa.array(
            [row / 4 for row in range(ROWS)], mask=pa.array([row % 9 == 2 for row in range(ROWS)])
        ),
        "category": pa.array(TEXTS).dictionary_encode(),
        "tags": [["a" * n for n in range(row % 4)] for row in range(ROWS)],
        "doc": [None if row % 5 == 1 else {"n": row, "body": "x" * row} for row in range(ROWS)],
    }
)
OPTIONS = {"row_group_rows": 40, "page_rows": 8}


def without(golden: Any, rows: pa.Table, *ids: int) -> pa.Table:
    """Delete rows by their id, and expect the others."""
    chosen = pc.field("id").isin(ids)
    return golden.change(lambda t: t.delete(chosen), rows.filter(~chosen))


def few(golden: Any) -> None:
    """Rows at the start, in the middle and at the end of row groups; one has none deleted."""
    golden.write(TABLE, **OPTIONS)
    without(golden, TABLE, 0, 39, 99)


def bundle(golden: Any) -> None:
    """Row groups whose parts share a file."""
    golden.write(TABLE, row_group_rows=40)
    rows = without(golden, TABLE, 17, 41)
    without(golden, rows, 18)


def plain(golden: Any) -> None:
    """Without encodings."""
    golden.write(TABLE, encoding="plain", **OPTIONS)
    without(golden, TABLE, 5, 6, 80)


def changed(golden: Any) -> None:
    """A column that was added beside deleted rows, and rows behind them, in one file."""
    golden.write(TABLE, layout="file", **OPTIONS)
    rows = without(golden, TABLE, 1, 40, 79)
    new = pc.multiply(rows["id"], 2)
    rows = rows.append_column("new", new)
    golden.change(lambda t: t.add_column("new", pc.multiply(pc.field("id"), 2)), rows)
    more = rows.take([5, 6])
    rows = golden.change(lambda t: t.append(more), pa.concat_tables([rows, more]))
    without(golden, rows, 42)


CASES = {"few": few, "bundle": bundle, "plain": plain, "changed": changed}
