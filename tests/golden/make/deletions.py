"""Write the golden tables that name deleted rows, and beside each what it holds.

    cd tests && python -m golden.make.deletions DIRECTORY

`deletions.zip` has what this script wrote with the first blztable that named deleted rows. As with
`v1.zip`, a later blztable must read those bytes, and writes others.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from golden.make.v1 import SUMS, sums
from support.options import arguments

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


def without(t: blz.CTable, *rows: int) -> None:
    """Delete rows by their id."""
    t.delete(pc.field("id").isin(rows))


def few(path: Path) -> None:
    """Rows at the start, in the middle and at the end of row groups; one has none deleted."""
    blz.to_blz(TABLE, path, **arguments(**OPTIONS))
    with blz.open(path, "a") as table:
        without(table, 0, 39, 99)


def bundle(path: Path) -> None:
    """Row groups whose parts share a file."""
    blz.to_blz(TABLE, path, storage=blz.Storage(row_group_rows=40))
    with blz.open(path, "a") as table:
        without(table, 17, 41)
        without(table, 18)


def plain(path: Path) -> None:
    """Without encodings."""
    blz.to_blz(TABLE, path, **arguments(encoding="plain", checksum="md5", **OPTIONS))
    with blz.open(path, "a") as table:
        without(table, 5, 6, 80)


def changed(path: Path) -> None:
    """Columns that were added and changed beside deleted rows, in one file."""
    blz.to_blz(TABLE, path, **arguments(layout="file", **OPTIONS))
    with blz.open(path, "a") as table:
        without(table, 1, 40, 79)
        table.update({"text": "other"}, where=pc.field("id") == 2)
        table.add_column("new", pc.multiply(pc.field("id"), 2))
        table.append(table.take([5, 6]))
        without(table, 42)


CASES = {"few": few, "bundle": bundle, "plain": plain, "changed": changed}


def main(root: Path) -> None:
    """Write all cases below a directory."""
    root.mkdir()
    for name, make in CASES.items():
        make(root / f"{name}.blz")
        expected = blz.read_table(root / f"{name}.blz")
        with pa.ipc.new_stream(root / f"{name}.arrows", expected.schema) as sink:
            sink.write_table(expected)
    lines = (f"{digest}  {path}\n" for path, digest in sorted(sums(root).items()))
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
