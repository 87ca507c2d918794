"""Every change of a table that the crash tests stop, and the versions that each makes."""

import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from blztable import tuning
from support.crash.checks import Held
from support.moved_first import moved_first

INT = pa.int32()


def rows(n, text):
    return pa.table({"n": pa.array(n, INT), "text": text})


FIRST = rows([3, 1], ["c", None])
SECOND = rows([None, 2], ["é", "b"])
BOTH = pa.concat_tables([FIRST, SECOND])
MORE = rows([5], ["e"])
# Enough row groups that one merge lifts all of them by a level.
FOUR = rows([5, 6, 7, 8], ["e"] * 4)


def two_row_groups(path):
    """Make a table: version 1 has one row group, version 2 has two."""
    blz.to_blz(FIRST, path, storage=blz.Storage(meta={"pet": b"cat"}))
    with blz.open(path, mode="a") as table:
        table.append(SECOND)


def one_damaged(path):
    """Make a table of two row groups, of which the second one is damaged."""
    two_row_groups(path)
    file = max((path / "data").glob("*/__*__.bin"), key=lambda file: int(file.stem.strip("_")))
    content = bytearray(file.read_bytes())
    # A digest of four bytes is behind the last chunk.
    content[-5] ^= 1
    file.write_bytes(content)


def feed(table):
    with table.transaction() as tx, tx.appender() as columns:
        columns["text"].append(["e"])
        columns["n"].append(pa.array([5], INT))


def several(table):
    with table.transaction() as tx:
        tx.append(MORE)
        tx.update({"n": 6}, where=pc.field("n") == 5)
        tx.delete(pc.field("n") == 1)
        tx.rename_columns({"n": "number"})
        tx.attrs["until"] = 5


def naming(change):
    """Return a change that names deleted rows, as in a row group of which few rows go."""

    def run(table):
        with tuning.tuned(rows_per_deleted=1):
            change(table)

    return run


def delete_and_compact(table):
    with table.transaction() as tx:
        tx.delete(pc.field("n") == 2)
        tx.compact()


def beside_deleted_rows(table):
    with table.transaction() as tx:
        tx.delete(pc.field("n") == 2)
        tx.update({"text": "z"}, where=pc.field("n") == 3)
        tx.delete(pc.field("n") == 1)
        tx.add_column("x", [7, 8])


def with_a_duplicate(table):
    with table.transaction() as tx:
        tx.update({"n": 3}, where=pc.field("n") == 2)
        tx.deduplicate(on="n", keep="last")


CAT = ({"pet": b"cat"}, {}, {})


def layers(table):
    with table.transaction() as tx:
        tx.meta.update("pet", b"dog")
        tx.vlmeta["pet"] = b"giraffe"
        tx["n"].vlmeta.add("unit", b"kg")


def made(change, *tables, attrs=None, layers=CAT):
    """Return a change and the versions it makes, one for each table, from version 3 on."""
    makes = {number: Held(table, attrs or {}, layers) for number, table in enumerate(tables, 3)}
    return change, makes


X = pa.array([7, 8, 9, 10])
CHANGES = {
    "append": made(lambda t: t.append(MORE), pa.concat_tables([BOTH, MORE])),
    "append and merge": made(lambda t: t.append(FOUR), *[pa.concat_tables([BOTH, FOUR])] * 2),
    "append that evolves": made(
        lambda t: t.append({"n": [1 << 40], "text": ["e"], "x": [7]}, evolve=True),
        pa.table(
            {
                "n": [3, 1, None, 2, 1 << 40],
                "text": ["c", None, "é", "b", "e"],
                "x": [None, None, None, None, 7],
            }
        ),
    ),
    "appender": made(feed, pa.concat_tables([BOTH, MORE])),
    "update": made(
        lambda t: t.update({"n": 30}, where=pc.field("n") > 2),
        rows([30, 1, None, 2], ["c", None, "é", "b"]),
    ),
    "delete": made(lambda t: t.delete(pc.field("n") == 2), BOTH.slice(0, 3)),
    "delete by name": made(naming(lambda t: t.delete(pc.field("n") == 2)), BOTH.slice(0, 3)),
    "changes of deleted rows": made(
        naming(beside_deleted_rows),
        pa.table({"n": pa.array([3, None], INT), "text": ["z", "é"], "x": [7, 8]}),
    ),
    "compact deleted rows": made(naming(delete_and_compact), BOTH.slice(0, 3)),
    "upsert": made(
        lambda t: t.upsert(rows([2, 5], ["z", "e"]), on="n"),
        pa.concat_tables([rows([3, 1, None, 2], ["c", None, "é", "z"]), MORE]),
    ),
    "upsert that moves rows": made(
        naming(lambda t: t.upsert(rows([5, 3], ["e", "z"]), on="n")),
        pa.concat_tables([BOTH.slice(1), rows([5, 3], ["e", "z"])]),
    ),
    "replace_where": made(
        lambda t: t.append(rows([2, 2], ["y", "z"]), replace_where=pc.field("n") == 2),
        rows([3, 1, None, 2, 2], ["c", None, "é", "y", "z"]),
    ),
    "deduplicate": made(with_a_duplicate, rows([1, None, 3], [None, "é", "b"])),
    "truncate": made(lambda t: t.resize(1), BOTH.slice(0, 1)),
    "resize": made(
        lambda t: t.resize(5),
        rows([3, 1, None, 2, None], ["c", None, "é", "b", None]),
    ),
    "add_column": made(lambda t: t.add_column("x", X), BOTH.append_column("x", X)),
    "alter_column": made(
        lambda t: t.alter_column("n", dtype="int64", default=7),
        BOTH.set_column(0, "n", BOTH["n"].cast("int64")),
    ),
    "alter_column in place": made(
        lambda t: t.alter_column("text", dtype="binary"),
        BOTH.set_column(1, "text", BOTH["text"].cast("binary")),
    ),
    "drop_columns": made(lambda t: t.drop_columns(["n"]), BOTH.drop_columns(["n"])),
    "rename_columns": made(
        lambda t: t.rename_columns({"n": "m"}), BOTH.rename_columns(["m", "text"])
    ),
    "reorder_columns": made(lambda t: moved_first(t, ["text"]), BOTH.select(["text", "n"])),
    "compact": made(lambda t: t.compact(), BOTH),
    "sort": made(lambda t: t.compact(sort_by="n"), BOTH.take([1, 3, 0, 2])),
    "restore": made(lambda t: t.restore(1), FIRST),
    "tag": made(lambda t: t.tags.update(first=1), BOTH),
    "settings": made(lambda t: t.configure(storage=blz.Storage(row_group_rows=9)), BOTH),
    "retention": made(lambda t: t.configure(keep_versions=9, keep_bytes=1 << 30), BOTH),
    "metalayers": made(
        layers, BOTH, layers=({"pet": b"dog"}, {"pet": b"giraffe"}, {"n": ({}, {"unit": b"kg"})})
    ),
    "transaction": made(
        several,
        pa.concat_tables([BOTH.take([0, 2, 3]), rows([6], ["e"])]).rename_columns(
            ["number", "text"]
        ),
        attrs={"until": 5},
    ),
}
