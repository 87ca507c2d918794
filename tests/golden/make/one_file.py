"""Write the golden tables in one file, and beside each what it holds.

    cd tests && python -m golden.make.one_file DIRECTORY

`one_file.zip` has what this script wrote with the first blztable that had tables in one file. As
with `v1.zip`, a later blztable must read those bytes, and writes others.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from golden import edge_values
from golden.make.v1 import SUMS, sums
from support.nested_arrays import table as nested

ROWS = pa.table({"n": [1, 2, 3, None], "text": ["a", None, "", "é"]})


def first(path: Path) -> pa.Table:
    """Small row groups of texts, which are bundles."""
    texts = edge_values.texts()
    blz.to_blz(texts, path, storage=blz.Storage(layout="file", row_group_rows=12))
    return texts


def changed(path: Path) -> pa.Table:
    """Several commits, removed values, and bytes of a killed writer at the end."""
    blz.to_blz(ROWS, path, storage=blz.Storage(layout="file", encoding="plain"))
    with blz.open(path, "a") as table:
        table.append(ROWS)
        table.delete(pc.field("n") == 2)
        table.attrs["since"] = 1999
        expected = table.to_arrow()
    with path.open("ab") as file:
        file.write(b"blzr\1" + bytes(99))
    return expected


def rewritten(path: Path) -> pa.Table:
    """A file without the bytes of older versions."""
    blz.to_blz(nested(20, 3), path, storage=blz.Storage(layout="file", page_rows=8))
    with blz.open(path, "a") as table:
        table.delete(pc.field("k") == 4)
        table.vacuum(keep=1)
        return table.to_arrow()


CASES = {"first": first, "changed": changed, "rewritten": rewritten}
# The first bytes of a creation that was killed: two row groups are whole.
UNFINISHED = "unfinished"


def unfinished(path: Path) -> pa.Table:
    """A file that was cut short, with whole row groups."""
    rows = pa.table({"n": range(30), "x": [number / 4 for number in range(30)]})
    blz.to_blz(rows, path, storage=blz.Storage(layout="file", row_group_rows=10, encoding="plain"))
    path.write_bytes(path.read_bytes()[:-4000])
    return rows[:20]


def main(root: Path) -> None:
    """Write all cases below a directory."""
    for name, make in {**CASES, UNFINISHED: unfinished}.items():
        expected = make(root / f"{name}.blz")
        with pa.ipc.new_stream(root / f"{name}.arrows", expected.schema) as sink:
            sink.write_table(expected)
    lines = (f"{digest}  {path}\n" for path, digest in sorted(sums(root).items()))
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
