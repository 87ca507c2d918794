"""Write the golden tables of format version 1, and beside each what it holds.

    cd tests && python -m golden.make.v1 DIRECTORY

`v1.zip` has what this script wrote with the first blztable that had format version 1. Those bytes
must stay readable, so the files are never written again: a later blztable writes other bytes, which
would prove nothing. A new format, or a new way to write this one, gets a script and a folder of its
own.

A case is a table, `NAME.blz`, and a folder, `NAME.expected`, of files that need no blztable to be
read: for each version an Arrow IPC stream with the table, and `versions.json` with the facts that
are no rows. What a table must hold is what this script gave to blztable, not what blztable gave
back; the Arrow form of a frame is the exception, written once the frame itself had come back equal.
`SHA256SUMS` lists every file in the form of `sha256sum`.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from golden import edge_values
from golden.frames import FRAMES
from support.options import arguments

SUMS = "SHA256SUMS"
# What `versions.json` repeats of the head of each manifest.
FACTS = (
    "version",
    "time",
    "operation",
    "rows",
    "row_groups",
    "attributes",
    "properties",
    "commit_ids",
    "pandas",
)
SMALL = {"page_rows": 8, "row_group_rows": 12}


class Golden:
    """A case as it is written: the table's place, and what its versions must hold."""

    def __init__(self, root: Path, name: str) -> None:
        self.place = root / f"{name}.blz"
        self._expected = root / f"{name}.expected"
        self._expected.mkdir()
        self._facts: dict[str, Any] = {}

    def write(self, data: Any, **options: Any) -> None:
        """Write `data`, an Arrow table, by `to_blz`, and expect it back."""
        blz.to_blz(data, self.place, **arguments(**options))
        self.holds(data)

    def change(self, make: Callable[[Any], Any], expected: pa.Table) -> pa.Table:
        """Change the table, and expect this one since."""
        with blz.open(self.place, "a") as table:
            make(table)
        self.holds(expected)
        return expected

    def holds(self, expected: pa.Table) -> None:
        """Note that the versions made since the last call hold this table."""
        manifests = {int(path.name): path for path in (self.place / "meta/manifest").iterdir()}
        for number in sorted(manifests.keys() - set(map(int, self._facts))):
            head = json.loads(manifests[number].read_bytes().partition(b"\n")[0])
            self._facts[str(number)] = {key: head[key] for key in FACTS}
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            path = self._expected / f"{number}.arrows"
            with pa.ipc.new_stream(path, expected.schema, options=options) as sink:
                sink.write_table(expected)
        text = json.dumps(self._facts, indent=1, ensure_ascii=False, sort_keys=True)
        (self._expected / "versions.json").write_text(text + "\n", encoding="utf-8")


# Types


def of_types(make: Callable[[], pa.Table]) -> Callable[[Golden], None]:
    """Two row groups, of two pages and of one."""
    return lambda golden: golden.write(make(), **SMALL)


def no_rows(golden: Golden) -> None:
    golden.write(edge_values.everything()[:0])


def one_row(golden: Golden) -> None:
    golden.write(edge_values.texts()[3:4])


def no_columns(golden: Golden) -> None:
    golden.write(pa.table({}))


def long_columns(golden: Golden) -> None:
    """Streams of several chunks, whose rows all have one width."""
    rows = 140_000
    count = np.arange(rows) // 100
    columns = {
        "n": count,
        "n, nulls": pa.array(count.astype("i4"), mask=count % 500 > 490),
        "flag": count % 3 == 0,
    }
    chosen = {"n": "zstd", "n, nulls": "lz4"}
    golden.write(pa.table(columns), compression=chosen, shuffle={"n, nulls": "bit"})


def long_texts(golden: Golden) -> None:
    """Streams of several chunks of text, of a dictionary, and of rows wider than 255 bytes."""
    rows = 12_000
    words = [None if row % 70 == 0 else f"{row // 1000} word " * (row % 60) for row in range(rows)]
    columns = {
        "word": pa.array([word or "" for word in words], pa.large_string()),
        "word, nulls": pa.array(words),
        "dictionary": pa.array(words * 3).dictionary_encode()[:rows],
        "wide": pa.array([b"%300d" % (row // 100) for row in range(rows)], pa.binary(300)),
    }
    chosen = {"word": "zlib", "word, nulls": "lz4hc", "dictionary": "zstd", "wide": "zstd"}
    golden.write(pa.table(columns), compression=chosen, row_group_rows=8000)


def long_items(golden: Golden) -> None:
    """Items longer than a chunk, and pages of different sizes beside pages without bytes."""
    items = [None] * 8 + [b"y" * 3_000_000, b"z"] + [b""] * 16 + [b"x" * 1_500_000] * 2
    column = pa.array(items, pa.large_binary())
    golden.write(pa.table({"item": column}), page_rows=8, compression="zstd")


# Options


def compressible(rows: int = 400) -> tuple[np.ndarray, list[str]]:
    """Numbers and words that every codec makes smaller."""
    return np.arange(rows, dtype="i4") % 50, [f"word {row % 20}" for row in range(rows)]


def codec(name: str) -> Callable[[Golden], None]:
    """Every shuffle at several levels; level 0 stores the bytes as they are."""

    def write(golden: Golden) -> None:
        numbers, words = compressible()
        columns, levels, shuffles = {}, {}, {}
        for level in (0, 1, 9):
            for shuffle in ("none", "byte", "bit"):
                for kind, cells in (("n", numbers), ("s", words)):
                    key = f"{kind} {level} {shuffle}"
                    columns[key], levels[key], shuffles[key] = cells, level, shuffle
        golden.write(pa.table(columns), compression=name, clevel=levels, shuffle=shuffles)

    return write


def checksum(name: str) -> Callable[[Golden], None]:
    def write(golden: Golden) -> None:
        numbers, words = compressible()
        golden.write(pa.table({"n": numbers, "s": words}), checksum=name)

    return write


def page_rows(golden: Golden) -> None:
    """Pages of different rows in each column, in a row group that is no multiple of them."""
    table = pa.table(
        {
            f"{kind}{rows}": cells
            for rows in (8, 64, 1024)
            for kind, cells in zip("ns", compressible(), strict=True)
        }
    )
    chosen = {name: int(name[1:]) for name in table.column_names}
    golden.write(table, page_rows=chosen, row_group_rows=250)


def sort_by(golden: Golden) -> None:
    """Rows that the writer sorted, nulls and NaN last."""
    table = pa.table({"day": [3, 1, None, 2, 1], "x": [0.5, float("nan"), 1.0, -0.0, 7.0]})
    blz.to_blz(table, golden.place, sort_by=[("day", "descending"), "x"])
    golden.holds(table.take([0, 3, 4, 1, 2]))


def durability(golden: Golden) -> None:
    """Commits without a flush, one with a flush behind them, and one more without."""
    golden.write(numbered(0, 5), durability="process")
    for stop, how in ((6, "process"), (7, "full"), (8, "process")):
        blz.to_blz(numbered(stop - 1, stop), golden.place, mode="a", durability=how)
        golden.holds(numbered(0, stop))


def commit_ids(golden: Golden) -> None:
    """Commits with names, of which one was made twice."""
    golden.write(numbered(0, 5), commit_id="day 1")
    for name in ("day 2", "Tag 3, größer", "day 2"):
        rows = {"day 2": range(5, 7)}.get(name, range(7, 9))
        blz.to_blz(numbered(rows.start, rows.stop), golden.place, mode="a", commit_id=name)
        golden.holds(numbered(0, rows.stop))


# Changes


def numbered(start: int, stop: int) -> pa.Table:
    """Rows that say which they are."""
    rows = range(start, stop)
    return pa.table(
        {
            "n": pa.array(rows, pa.int32()),
            "word": [None if row % 5 == 3 else f"row {row}" for row in rows],
            "x": pa.array([row / 2 for row in rows], pa.float32()),
            "kind": pa.array(
                ["even" if row % 2 == 0 else f"{row}" for row in rows]
            ).dictionary_encode(),
        }
    )


def replaced(table: pa.Table, name: str, values: Sequence) -> pa.Table:
    """The table with other values in a column."""
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.array(values, table.schema.field(name).type))


def changed_rows(golden: Golden) -> None:
    """Rows appended, changed, deleted and added."""
    golden.write(numbered(0, 16), row_group_rows=5, page_rows=8)
    now = golden.change(lambda t: t.append(numbered(16, 20)), numbered(0, 20))
    words = [
        "changed" if row in (2, 12) else word for row, word in enumerate(now["word"].to_pylist())
    ]
    now = golden.change(
        lambda t: t.update({"word": "changed"}, [("n", "in", [2, 12])]),
        replaced(now, "word", words),
    )
    now = golden.change(
        lambda t: t.update({"x": pc.field("x") * 3}),
        replaced(now, "x", [row * 1.5 for row in range(20)]),
    )
    kept = [row for row in range(20) if row not in (4, 11, 17)]
    now = golden.change(lambda t: t.delete([("n", "in", [4, 11, 17])]), now.take(kept))
    now = golden.change(lambda t: t.resize(10), now[:10])
    nulls = pa.table([pa.nulls(4, field.type) for field in now.schema], now.schema)
    golden.change(lambda t: t.resize(14), pa.concat_tables([now, nulls]))


def changed_columns(golden: Golden) -> None:
    """Columns added, renamed, ordered, dropped and made wider."""
    first = numbered(0, 10)
    golden.write(first, row_group_rows=6, page_rows=8, sort_by="n")
    now = first.append_column("twice", pa.array([2 * row for row in range(10)], pa.int32()))
    golden.change(lambda t: t.add_column("twice", now["twice"]), now)
    now = now.append_column("half", pc.divide(now["x"], pa.scalar(2, pa.float32())))
    golden.change(lambda t: t.add_column("half", pc.field("x") / pa.scalar(2, pa.float32())), now)
    now = now.append_column("country", pa.array(["NO"] * 10))
    golden.change(lambda t: t.add_column("country", "NO", default="SE"), now)
    more = numbered(10, 12)
    rows = pa.concat_tables([first, more])
    now = (
        rows.append_column("twice", pa.array([*now["twice"].to_pylist(), None, None], pa.int32()))
        .append_column("half", pa.array([*now["half"].to_pylist(), None, None], pa.float32()))
        .append_column("country", pa.array(["NO"] * 10 + ["SE"] * 2))
    )
    golden.change(lambda t: t.append(more), now)
    names = {"n": "number", "word": "größer"}
    now = now.rename_columns([names.get(name, name) for name in now.column_names])
    golden.change(lambda t: t.rename_columns(names), now)
    now = now.select(["x", "number", "größer", "kind", "twice", "half", "country"])
    golden.change(lambda t: t.alter_column("x", position=0), now)
    now = now.drop_columns(["größer", "half"])
    golden.change(lambda t: t.drop_columns(["größer", "half"]), now)
    wider = pa.table({"number": [1 << 40], "x": [0.1], "extra": ["new"]})
    now = pa.table(
        {
            "x": pa.array([*now["x"].to_pylist(), 0.1], pa.float64()),
            "number": pa.array([*now["number"].to_pylist(), 1 << 40], pa.int64()),
            "kind": pa.array([*now["kind"].to_pylist(), None]).dictionary_encode(),
            "twice": pa.array([*now["twice"].to_pylist(), None], pa.int32()),
            "country": [*now["country"].to_pylist(), "SE"],
            "extra": [None] * 12 + ["new"],
        }
    )
    golden.change(lambda t: t.append(wider, evolve=True), now)


def merged(golden: Golden) -> None:
    """Appends of one row, which are merged as they come."""
    golden.write(numbered(0, 3), row_group_rows=10)
    golden.change(lambda t: t.configure(keep_versions=100), numbered(0, 3))
    for stop in range(4, 18):
        golden.change(lambda t, stop=stop: t.append(numbered(stop - 1, stop)), numbered(0, stop))


def ordered(golden: Golden) -> None:
    """Row groups joined, rows sorted, and rows appended behind them."""
    golden.write(numbered(0, 14), row_group_rows=4)
    kept = numbered(0, 14).take([row for row in range(14) if row not in (1, 4, 7, 8, 9, 10)])
    golden.change(lambda t: t.delete([("n", "in", [1, 4, 7, 8, 9, 10])]), kept)
    golden.change(lambda t: t.compact(), kept)
    down = kept.take(list(reversed(range(8))))
    golden.change(lambda t: t.compact([("n", "descending")]), down)
    golden.change(lambda t: t.append(numbered(50, 52)), pa.concat_tables([down, numbered(50, 52)]))


def changed_tables(golden: Golden) -> None:
    """A table replaced, restored, and given attributes; several changes in one commit."""
    first = numbered(0, 6)
    golden.write(first, attrs={"source": "till 7", "n": -5})
    other = pa.table({"word": ["a", "b"], "d": pa.array([1, 2], pa.decimal128(5, 2))})
    golden.write(other, compression="zstd", checksum="sha256", attrs={"other": [1.5, 10**30]})
    golden.change(lambda t: t.restore(1), first)
    golden.change(lambda t: t.attrs.update(source="till 8", more={"deep": [None, True]}), first)
    golden.change(lambda t: t.attrs.pop("n"), first)
    golden.change(lambda t: t.configure(keep_versions=50, keep_seconds=10**9), first)

    def several(t: Any) -> None:
        with t.transaction(commit_id="several") as tx:
            tx.append(numbered(6, 9))
            tx.delete([("n", "==", 0)])
            tx.drop_columns(["x"])
            tx.attrs["until"] = 9

    now = pa.concat_tables([first, numbered(6, 9)])[1:].drop_columns(["x"])
    golden.change(several, now)

    def feed(t: Any) -> None:
        with t.transaction() as tx, tx.appender() as fed:
            fed["kind"].append(["odd", "even"])
            fed["n"].append([9])
            fed["word"].append([None, "row 10"])
            fed["n"].append([10])

    fed = pa.table(
        {
            "n": pa.array([9, 10], pa.int32()),
            "word": [None, "row 10"],
            "kind": pa.array(["odd", "even"]).dictionary_encode(),
        }
    )
    golden.change(feed, pa.concat_tables([now, fed]))


# Frames


def of_frame(name: str) -> Callable[[Golden], None]:
    """A frame; as a table it must be what blztable reads, once the frame comes back equal."""

    def write(golden: Golden) -> None:
        blz.to_blz(FRAMES[name](), golden.place, **arguments(**{} if "no-col" in name else SMALL))
        pd.testing.assert_frame_equal(blz.read_blz(golden.place), FRAMES[name]())
        golden.holds(without_pandas(blz.read_table(golden.place)))

    return write


def appended_frames(golden: Golden) -> None:
    """A frame that grew, whose index counts on, and got a column."""
    for stop in (3, 5):
        rows = pd.RangeIndex(0 if stop == 3 else 3, stop)
        frame = pd.DataFrame(
            {"n": rows.to_numpy(), "m": pd.array([None] * len(rows), "Int8")}, rows
        )
        blz.to_blz(frame, golden.place, mode="a")
        golden.holds(without_pandas(blz.read_table(golden.place)))
    with blz.open(golden.place, "a") as table:
        table.add_column("word", pd.Series(list("abcde")))
    golden.holds(without_pandas(blz.read_table(golden.place)))


def arrow_of_frame(golden: Golden) -> None:
    """An Arrow table that pyarrow made of a frame, with pandas' metadata in its schema."""
    frame = FRAMES["index-days"]().assign(m=pd.array([None, 1, 2] * 4, "Int8"))
    golden.write(pa.Table.from_pandas(frame), **SMALL)


def without_pandas(table: pa.Table) -> pa.Table:
    """The table without the metadata that says which pandas read it."""
    kept = {key: value for key, value in (table.schema.metadata or {}).items() if key != b"pandas"}
    return table.replace_schema_metadata(kept or None)


CASES: dict[str, Callable[[Golden], None]] = {
    "types-numbers": of_types(edge_values.numbers),
    "types-decimals": of_types(edge_values.decimals),
    "types-times": of_types(edge_values.times),
    "types-binaries": of_types(edge_values.binaries),
    "types-texts": of_types(edge_values.texts),
    "types-dictionaries": of_types(edge_values.dictionaries),
    "schemas": of_types(edge_values.schemas),
    "no-rows": no_rows,
    "one-row": one_row,
    "no-columns": no_columns,
    "long-columns": long_columns,
    "long-texts": long_texts,
    "long-items": long_items,
    **{f"codec-{name}": codec(name) for name in ("lz4", "lz4hc", "zlib", "zstd")},
    **{
        f"checksum-{name}": checksum(name)
        for name in ("adler32", "crc32", "md5", "sha1", "sha224", "sha256", "sha384", "sha512")
    },
    "page-rows": page_rows,
    "sort-by": sort_by,
    "durability": durability,
    "commit-ids": commit_ids,
    "changed-rows": changed_rows,
    "changed-columns": changed_columns,
    "merged": merged,
    "ordered": ordered,
    "changed-tables": changed_tables,
    **{f"frame-{name}": of_frame(name) for name in FRAMES},
    "frames-appended": appended_frames,
    "arrow-of-frame": arrow_of_frame,
}


def sums(root: Path) -> dict[str, str]:
    """The sha256 of every file below `root` but the list itself, by its path."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != SUMS
    }


def main() -> None:
    root = Path(sys.argv[1])
    root.mkdir()
    for name, write in CASES.items():
        write(Golden(root, name))
    lines = [f"{digest}  {path}\n" for path, digest in sums(root).items()]
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
