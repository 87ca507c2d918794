"""Write the golden tables whose items are a chunk each, and beside each what it holds.

    cd tests && python -m golden.make.items DIRECTORY

`items.zip` has what this script wrote with the first blztable that had `packing="per_item"`. As
with `v1.zip`, a later blztable must read those bytes, and writes others.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from golden.make.v1 import SUMS, sums
from support.options import arguments

TEXTS = [None if row % 7 == 3 else "é" * (row * 5 % 11) for row in range(40)]
BODIES = [None if row % 5 == 1 else {"n": row, "body": "x" * row * 9} for row in range(40)]
TABLE = pa.table(
    {
        "id": range(40),
        "text": TEXTS,
        "data": pa.array([bytes([row]) * row * 40 for row in range(40)], pa.large_binary()),
        "view": pa.array(TEXTS, pa.string_view()),
        "binary": pa.array([b""] * 40),
        "doc": BODIES,
        "tags": [["a" * n for n in range(row % 4)] for row in range(40)],
        "category": pa.array(TEXTS).dictionary_encode(),
    }
)
OPTIONS = {"packing": "per_item", "row_group_rows": 18, "page_rows": 8}


def types(path: Path) -> pa.Table:
    """All types that have items, alone and within structs and lists."""
    blz.to_blz(TABLE, path, **arguments(**OPTIONS))
    return TABLE


def plain(path: Path) -> pa.Table:
    """Without encodings of the validity, with another checksum and codec."""
    blz.to_blz(
        TABLE, path, **arguments(encoding="plain", checksum="sha256", compression="zlib", **OPTIONS)
    )
    return TABLE


def mixed(path: Path) -> pa.Table:
    """Row groups of one column are packed or not, and share a file with others or not."""
    table = TABLE.select(["id", "text", "data"])
    blz.to_blz(table, path, storage=blz.Storage(columns={"data": blz.Storage(packing="per_item")}))
    blz.to_blz(table, path, mode="a", storage=blz.Storage(packing="per_item"))
    blz.to_blz(table, path, mode="a", storage=blz.Storage(packing="packed"))
    return pa.concat_tables([table] * 3)


def changed(path: Path) -> pa.Table:
    """Several versions in one file."""
    blz.to_blz(TABLE, path, **arguments(layout="file", **OPTIONS))
    with blz.open(path, "a") as table:
        table.append(TABLE.slice(0, 9))
        table.update({"text": "other"}, where=pc.field("id") == 4)
        table.delete(where=pc.field("id") == 30)
        table.compact()
        return table.to_arrow()


CASES = {"types": types, "plain": plain, "mixed": mixed, "changed": changed}


def main(root: Path) -> None:
    """Write all cases below a directory."""
    root.mkdir()
    for name, make in CASES.items():
        expected = make(root / f"{name}.blz")
        with pa.ipc.new_stream(root / f"{name}.arrows", expected.schema) as sink:
            sink.write_table(expected)
    lines = (f"{digest}  {path}\n" for path, digest in sorted(sums(root).items()))
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
