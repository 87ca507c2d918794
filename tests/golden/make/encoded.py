"""Write the golden tables of the encodings, and beside each what it holds.

    cd tests && python -m golden.make.encoded DIRECTORY

`encoded.zip` has what this script wrote with the first blztable that had these encodings. As with
`v1.zip`, a later blztable must read those bytes, and writes others. A case is named after the kind
of encoding that the first columns of its table have; `make/v1.py` describes the files. Cases that
came later are written by the blztable that had their encodings first.
"""

import sys
from pathlib import Path

import pyarrow as pa

from golden.make.v1 import SUMS, Golden, sums
from support import arrow_strategies as types
from support.samples import DICTIONARIES, floats_table, many_items, numbers_table, of

# The columns of each case; each has a second one with nulls.
CASES = {
    "narrow": ["near", "day", "unsigned", "cents", "word"],
    "scaled": ["price", "product", "odd"],
    "delta": ["rising", "at"],
    "lengths": ["line"],
    "each": ["flag"],
    "dictionary": ["mode"],
    "constant": ["same"],
    "dictionary-values": ["few", "id"],
    "runs": ["outage"],
}
# A case with a table of its own: a dictionary needs many rows for many items.
MANY = "dictionary-many"
NO_VALUES = pa.dictionary(pa.int32(), pa.null())
# Tables whose row groups are bundles.
BUNDLES = {
    "bundle": lambda: numbers_table(500),
    "bundle-types": lambda: of([*types.PLAIN, *DICTIONARIES, NO_VALUES], 250),
    "bundle-alike": lambda: pa.table(
        {f"c{n}": [n * (row - 7) / 100 for row in range(300)] for n in range(20)}
    ),
}
# Null where the value is NaN.
FLOATS = "nulls-of-floats"
CUTS = {"page_rows": 64, "row_group_rows": 300}


def main() -> None:
    root = Path(sys.argv[1])
    root.mkdir()
    table = numbers_table(500)
    for case, columns in CASES.items():
        names = columns + [f"{name} or null" for name in columns if name != "outage"]
        Golden(root, case).write(table.select(names), encoding="auto", **CUTS)
    cuts = {"page_rows": 512, "row_group_rows": 3000}
    Golden(root, MANY).write(many_items(), encoding="auto", **cuts)
    for case, make in BUNDLES.items():
        Golden(root, case).write(make(), row_group_rows=200)
    Golden(root, FLOATS).write(floats_table(), encoding="auto", page_rows=64, row_group_rows=200)
    lines = [f"{digest}  {path}\n" for path, digest in sums(root).items()]
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
