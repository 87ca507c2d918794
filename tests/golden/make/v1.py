"""Write the golden tables of format version 1, and beside each what it holds.

    cd tests && python -m golden.make.v1 DIRECTORY

`v1.zip` has what this script wrote with the first blztable that was released. Those bytes must stay
readable, so the files are never written again: a later blztable writes other bytes, which would
prove nothing. A new format, or a new way to write this one, gets a script and a folder of its own.

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
from blztable.tuning import tuned
from golden import edge_values, reader
from golden.frames import FRAMES
from golden.make import deleted, nested
from support import small_tables
from support.options import arguments
from support.samples import numbers_table

SUMS = "SHA256SUMS"
# What `versions.json` repeats of the head of each manifest.
FACTS = (
    "version",
    "time",
    "operation",
    "rows",
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

    def forget(self) -> None:
        """Note that older versions are gone."""
        self._facts = {}
        for path in self._expected.iterdir():
            path.unlink()

    def holds(self, expected: pa.Table) -> None:
        """Note that the versions made since the last call hold this table."""
        store = reader.store_of(self.place)
        for number in sorted(set(reader.versions(self.place)) - set(map(int, self._facts))):
            head, _, _ = reader.manifest(store.get(f"meta/manifest/{number:020d}"), number)
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
        options = {"compression": name, "clevel": levels, "shuffle": shuffles}
        golden.write(pa.table(columns), encoding="plain", **options)

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
    golden.write(other, compression="zstd", attrs={"other": [1.5, 10**30]})
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


# Encodings, leaves and files


def encoded(golden: Golden) -> None:
    """Numbers of every encoding, in files of their own."""
    golden.write(numbers_table(500), row_group_rows=300, page_rows=64)


def small(make: Callable[[], pa.Table]) -> Callable[[Golden], None]:
    """Every kind of encoding in pages of a few rows."""

    def write(golden: Golden) -> None:
        with tuned(**small_tables.SMALL):
            golden.write(make(), page_rows=8)

    return write


def plain(golden: Golden) -> None:
    golden.write(small_tables.plain(), encoding="plain")


def items(golden: Golden) -> None:
    """One chunk an item, changed."""
    first = edge_values.texts()
    golden.write(first, packing="per_item", row_group_rows=12)
    golden.change(lambda t: t.append(first[:3]), pa.concat_tables([first, first[:3]]))


def leaves(golden: Golden) -> None:
    """Three levels of leaves, of which later versions share some."""
    with tuned(leaf_entries=3, leaf_few=3):
        golden.write(numbered(0, 80), row_group_rows=2)
        now = golden.change(lambda t: t.append(numbered(80, 83)), numbered(0, 83))
        words = ["changed" if row == 7 else one for row, one in enumerate(now["word"].to_pylist())]
        now = golden.change(
            lambda t: t.update({"word": "changed"}, [("n", "==", 7)]), replaced(now, "word", words)
        )
        now = golden.change(
            lambda t: t.delete([("n", "in", [30, 31])]), pa.concat_tables([now[:30], now[32:]])
        )
        golden.change(lambda t: t.add_column("k", 5), now.append_column("k", pa.array([5] * 81)))


def tagged(golden: Golden) -> None:
    """Tags, and metalayers of a table and of a column."""
    golden.write(numbered(0, 5))
    golden.change(lambda t: t.tags.update(first=1, größer=1), numbered(0, 5))
    golden.change(lambda t: t.vlmeta.add("note", b"cat"), numbered(0, 5))
    golden.change(lambda t: t["n"].vlmeta.add("unit", b"mm"), numbered(0, 5))
    golden.change(lambda t: t.append(numbered(5, 9)), numbered(0, 9))


def one_file(golden: Golden) -> None:
    """A file with several commits, and bytes of a killed writer at its end."""
    golden.write(numbered(0, 20), layout="file", row_group_rows=12)
    golden.change(lambda t: t.append(numbered(20, 24)), numbered(0, 24))
    golden.change(
        lambda t: t.delete([("n", "==", 2)]), pa.concat_tables([numbered(0, 2), numbered(3, 24)])
    )
    golden.change(
        lambda t: t.attrs.update(since=1999), pa.concat_tables([numbered(0, 2), numbered(3, 24)])
    )
    with golden.place.open("ab") as file:
        file.write(b"blzr\1" + bytes(99))


def one_file_nested(golden: Golden) -> None:
    """Nested columns in a file that was written again without the bytes of older versions."""
    rows = nested.table(20, 3)
    golden.write(rows, layout="file", page_rows=8)
    with blz.open(golden.place, "a") as table:
        table.delete(pc.field("k") == 4)
        table.vacuum(keep=1)
    golden.forget()
    gone = rows["k"].to_pylist().index(4)
    golden.holds(pa.concat_tables([rows[:gone], rows[gone + 1 :]]))


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
    "encoded": encoded,
    **{
        f"small-{make.__name__}": small(make)
        for make in (small_tables.numbers, small_tables.texts, small_tables.plain)
    },
    "plain": plain,
    "items": items,
    "leaves": leaves,
    "tagged": tagged,
    **{f"nested-{name}": make for name, make in nested.CASES.items()},
    **{f"deleted-{name}": make for name, make in deleted.CASES.items()},
    "one-file": one_file,
    "one-file-nested": one_file_nested,
}
# The first bytes of a creation of a file that was killed: two row groups are whole.
UNFINISHED = "one-file-unfinished"


def unfinished(root: Path) -> pa.Table:
    """A file that was cut short, with whole row groups; return the rows that are whole."""
    rows = pa.table({"n": range(30), "x": [number / 4 for number in range(30)]})
    path = root / f"{UNFINISHED}.blz"
    blz.to_blz(rows, path, storage=blz.Storage(layout="file", row_group_rows=10, encoding="plain"))
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"meta/draft/" + b"%020d" % 3) - 8])
    return rows[:20]


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
    unfinished(root)
    lines = [f"{digest}  {path}\n" for path, digest in sums(root).items()]
    (root / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
