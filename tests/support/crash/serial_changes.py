"""Random changes of one table by handles and processes, and what was acknowledged of them."""

import random
from collections.abc import Iterator

import pyarrow.compute as pc

import blztable as blz
from blztable.engine.change import rows as row_changes
from blztable.errors import BlzError

# The rows of a version; a change: its name and its arguments; a change that was acknowledged: the
# version that the handle showed before, the change, and the version that it made.
Rows = list[dict]
Change = tuple
Done = tuple[int, Change, int]
ROWS = ["append", "delete", "update", "upsert", "replace", "delete then append", "deduplicate"]
VERBS = [*ROWS * 3, "append", "add_column", "drop_column", "compact", "sort", "restore"]
# These keep all rows, and make versions of their own that are not told.
KEEPING = ["tag", "untag", "retention", "repair"]
# More keys than there are in the table: a change that finds nothing must be right as well.
KEYS = range(6)


def begin(place) -> None:
    rows = {"id": range(1, 7), "key": [0, 0, 1, 1, 1, 2], "n": range(6)}
    blz.to_blz(rows, place, row_group_rows=2, durability="process")
    with blz.open(place, "a", durability="process") as t:
        t.set_retention(versions=10_000)


def drawn(draw: random.Random, ids: Iterator[int], t: blz.CTable) -> Change:
    """Return a random change of what a handle shows."""
    verb, key = draw.choice(VERBS + KEEPING), draw.choice(KEYS)
    match verb:
        case "append":
            return verb, [(next(ids), draw.choice(KEYS)) for _ in range(draw.randint(1, 3))]
        case "replace" | "delete then append":
            return verb, key, [next(ids) for _ in range(draw.randint(1, 2))]
        case "update":
            return verb, key, draw.randint(10, 99)
        case "upsert":
            return verb, draw.sample(KEYS, draw.randint(1, 2)), draw.randint(100, 199)
        case "add_column":
            return verb, f"c{next(ids)}"
        case "drop_column":
            return verb, draw.choice([*t.column_names[3:], "none"])
        case "restore":
            return verb, draw.choice([one.number for one in t.versions()])
    return verb, key


def perform(t: blz.CTable, change: Change, retries: int) -> blz.Changed:
    """Make a change; return what it did."""
    again = {"retries": retries}
    match change:
        case "append", rows:
            ids, keys = zip(*rows, strict=True)
            return t.append({"id": ids, "key": keys, "n": ids})
        case "delete", key:
            return t.delete([("key", "==", key)], **again)
        case "update", key, n:
            return t.update({"n": n}, [("key", "==", key)], **again)
        case "upsert", keys, n:
            return t.upsert({"key": keys, "n": [n] * len(keys)}, on="key", **again)
        case "replace", key, ids:
            new = {"id": ids, "key": [key] * len(ids), "n": ids}
            return t.replace_where(new, [("key", "==", key)], **again)
        case "delete then append", key, ids:
            with t.transaction() as tx:
                tx.delete([("key", "==", key)])
                tx.append({"id": ids, "key": [key] * len(ids), "n": ids})
            return tx.changed
        case "deduplicate", _:
            return t.deduplicate("key", order_by="id", **again)
        case "add_column", name:
            return t.add_column(name, pc.field("n") * 2, **again)
        case "drop_column", name:
            return t.drop_columns([name])
        case "compact", _:
            return t.compact(sort_by=())
        case "sort", _:
            return t.compact(sort_by="n")
        case "restore", number:
            return blz.Changed(version=t.restore(number))
        case "tag", key:
            t.tags[f"tag {key}"] = t.version
            return blz.Changed()
        case "untag", key:
            t.tags.pop(f"tag {key}", None)
            return blz.Changed()
        case "retention", key:
            t.set_retention(versions=10_000, bytes=(1 << 40) + key)
            return blz.Changed()
        case "repair", _:
            t.repair()
            return blz.Changed()
    raise AssertionError(change)


def run(place, seed: int, worker: int, count: int, share: int) -> list[Done]:
    """Make random changes through a handle that is opened anew now and then.

    One row in `share` of a row group may be deleted before it is written again.
    """
    row_changes.LEAST_SHARE = share
    draw, ids, done = random.Random(seed), iter(range(worker * 10_000, 1 << 40)), []
    t = blz.open(place, "a", durability="process")
    for _ in range(count):
        if draw.random() < 0.4:
            t.close()
            t = blz.open(place, "a", durability="process")
        done += step(t, drawn(draw, ids, t), draw.choice([0, 5]))
    t.close()
    return done


def step(t: blz.CTable, change: Change, retries: int) -> list[Done]:
    """Make a change; return what was acknowledged, nothing if it failed or did nothing."""
    before = t.version
    try:
        done = perform(t, change, retries)
    except BlzError:
        return []
    did = done.rows_appended + done.rows_updated + done.rows_deleted
    no_rows = change[0] in ("add_column", "drop_column", "compact", "sort", "restore")
    return [(before, change, done.version)] if did or no_rows else []
