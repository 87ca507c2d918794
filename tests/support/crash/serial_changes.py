"""Random changes of one table by handles and processes, and what was acknowledged of them."""

import random
from collections.abc import Iterator

import pyarrow.compute as pc

import blztable as blz
from blztable import tuning
from blztable.errors import BlzError
from support.moved_first import moved_first

# The rows of a version; a change: its name and its arguments; a change that was acknowledged: the
# version that the handle showed before, the change, and the version that it made.
Rows = list[dict]
Change = tuple
Done = tuple[int, Change, int]
ROWS = ["append", "delete", "update", "upsert", "replace", "transaction", "deduplicate"]
COLUMNS = ["add_column", "drop_column", "rename", "alter"]
VERBS = [*ROWS * 4, *COLUMNS * 2, "append", "resize", "restore", "write", "attrs"]
# These keep all rows, and may make a version of their own that is not told.
KEEPING = ["compact", "sort", "reorder", "tag", "untag", "retention", "row groups", "repair"]
# More keys than there are in the table: a change that finds nothing must be right as well.
KEYS = range(6)


def begin(place) -> None:
    rows = {"id": range(1, 7), "key": [0, 0, 1, 1, 1, 2], "n": range(6)}
    blz.to_blz(rows, place, storage=blz.Storage(row_group_rows=2), durability="process")
    with blz.open(place, "a", durability="process") as t:
        t.configure(keep_versions=10_000)


def drawn(draw: random.Random, ids: Iterator[int], t: blz.CTable) -> Change:
    """Return a random change of what a handle shows."""
    verb, key = draw.choice(VERBS + KEEPING), draw.choice(KEYS)
    if verb == "transaction":
        # Of two of them, the second one finds what the first one made.
        verbs = [draw.choice([*ROWS[:5], "attrs"]) for _ in range(draw.randint(2, 3))]
        return verb, [_drawn(draw, ids, t, one, draw.choice(KEYS)) for one in verbs]
    return _drawn(draw, ids, t, verb, key)


def _drawn(draw: random.Random, ids: Iterator[int], t: blz.CTable, verb: str, key: int) -> Change:
    more = [*(name for name in t.columns if name not in ("id", "key", "n")), "none"]
    match verb:
        case "append" | "write":
            return verb, [(next(ids), draw.choice(KEYS)) for _ in range(draw.randint(1, 3))]
        case "replace":
            return verb, key, [next(ids) for _ in range(draw.randint(1, 2))]
        case "update":
            return verb, key, draw.randint(10, 99)
        case "upsert":
            return verb, draw.sample(KEYS, draw.randint(1, 2)), draw.randint(100, 199)
        case "add_column":
            return verb, f"c{next(ids)}"
        case "drop_column" | "reorder":
            return verb, draw.choice(more)
        case "rename":
            return verb, draw.choice(more), f"c{next(ids)}"
        case "alter":
            return verb, draw.choice(more), draw.choice(["double", "int64"])
        case "resize":
            return verb, max(0, len(t) + draw.randint(-2, 1))
        case "restore":
            return verb, draw.choice([one.number for one in t.versions()])
    return verb, key


def perform(t: blz.CTable | blz.Transaction, change: Change) -> blz.Changed:
    """Make a change; return what it did."""
    match change:
        case "append", rows:
            return t.append(named(rows))
        case "delete", key:
            return t.delete([("key", "==", key)])
        case "update", key, n:
            return t.update({"n": n}, [("key", "==", key)])
        case "upsert", keys, n:
            return t.upsert({"key": keys, "n": [n] * len(keys)}, on="key")
        case "replace", key, ids:
            new = named([(one, key) for one in ids])
            return t.append(new, replace_where=[("key", "==", key)])
        case "transaction", changes:
            with t.transaction() as tx:
                for one in changes:
                    perform(tx, one)
            return tx.changed
        case "deduplicate", _:
            return t.deduplicate("key", order_by="id")
        case "resize", n:
            return t.resize(n)
        case "add_column", name:
            return t.add_column(name, pc.field("n") * 2)
        case "drop_column", name:
            return t.drop_columns([name])
        case "rename", name, other:
            return t.rename_columns({name: other})
        case "alter", name, type_:
            return t.alter_column(name, dtype=type_)
        case "attrs", key:
            t.attrs["key"] = key
            return blz.Changed(version=t.version)
        case "restore", number:
            return t.restore(number)
        case "write", rows:
            # The attribute tells which version this is.
            attrs = {"written": rows[0][0]}
            blz.to_blz(
                named(rows),
                t._snapshot.version.store,
                storage=blz.Storage(attrs=attrs),
                durability="process",
            )
            return blz.Changed(version=WRITTEN)
        case "compact", _:
            return t.compact(sort_by=())
        case "sort", _:
            return t.compact(sort_by="n")
        case "reorder", name:
            return moved_first(t, [name])
        case "tag", key:
            t.tags[f"tag {key}"] = t.version
        case "untag", key:
            t.tags.pop(f"tag {key}", None)
        case "retention", key:
            return t.configure(keep_versions=10_000, keep_bytes=(1 << 40) + key)
        case "row groups", key:
            return t.configure(storage=blz.Storage(row_group_rows=key + 1))
        case "repair", _:
            t.repair()
        case _:
            raise AssertionError(change)
    return blz.Changed()


# In the place of the number of a version that a replacement made and did not tell.
WRITTEN = 1 << 60


def named(rows: list[tuple[int, int]]) -> dict:
    """Return the columns of new rows."""
    ids, keys = zip(*rows, strict=True)
    return {"id": ids, "key": keys, "n": ids}


def run(place, seed: int, worker: int, count: int, share: int) -> list[Done]:
    """Make random changes through a handle that is opened anew now and then.

    One row in `share` of a row group may be deleted before it is written again.
    """
    tuning.current = tuning.Tuning(rows_per_deleted=share)
    draw, ids, done = random.Random(seed), iter(range(worker * 10_000, 1 << 40)), []
    t = blz.open(place, "a", durability="process")
    for _ in range(count):
        if draw.random() < 0.4:
            t.close()
            t = blz.open(place, "a", durability="process", retries=draw.choice([0, 5]))
        done += step(t, drawn(draw, ids, t))
    t.close()
    return done


def step(t: blz.CTable, change: Change) -> list[Done]:
    """Make a change; return what was acknowledged, nothing if it failed or did nothing."""
    before = t.version
    try:
        done = perform(t, change)
    except BlzError:
        return []
    did = done.rows_appended + done.rows_updated + done.rows_deleted
    is_told = change[0] in (*COLUMNS, "restore", "write", "attrs") or (
        change[0] == "transaction" and any(one[0] == "attrs" for one in change[1])
    )
    return [(before, change, done.version)] if did or is_told else []
