"""Serial order: the versions explain what every acknowledged change did, one after the other.

Handles and processes change one table at random, each from the version that it happens to show. A
plain model then goes through the versions in their order. Each version must be the one before it
with the change that was acknowledged under its number; a change of rows may leave alone the rows
that blind appends brought after some version that it may have begun with, as if these had come
after it.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.change import rows as row_changes
from blztable.storage.memory import MemoryStore
from support.crash.serial_changes import Change, Done, Rows, begin, drawn, run, step


def check(place, all_done: list[Done]) -> int:
    """Explain each version by the one before it; return how many changes landed on others."""
    with blz.open(place) as t:
        versions = {one.number: one.operation for one in t.versions()}
        assert t.verify().is_intact
    contents: dict[int, Rows] = {}
    for number in versions:
        with blz.open(place, version=number) as t:
            contents[number] = t.to_arrow().to_pylist()
    made = {version: (before, change) for before, change, version in all_done if version > before}
    assert len(made) == sum(version > before for before, _, version in all_done)
    beside = 0
    for number in list(versions)[2:]:
        before, after = contents[number - 1], contents[number]
        if number not in made:
            assert versions[number] in ("merge", "tags", "properties"), (number, versions[number])
            assert same(after, before)
            continue
        base, change = made[number]
        beside += base < number - 1
        left_alone: set[int] = set()
        explained = False
        # From the newest version that it may have begun with to the oldest.
        for begun in range(number - 1, base - 1, -1):
            explained |= same(after, result(before, change, left_alone, contents))
            _, earlier = made.get(begun, (0, ("merge",)))
            if earlier[0] == "append":
                left_alone = left_alone | {one for one, _ in earlier[1]}
        assert explained, (number, base, change, before, after)
    return beside


def same(one: Rows, other: Rows) -> bool:
    """True if these are the same rows, in any order."""
    first, second = (sorted(repr(sorted(row.items())) for row in rows) for rows in (one, other))
    return first == second


def result(before: Rows, change: Change, left_alone: set[int], contents: dict[int, Rows]) -> Rows:
    """Return the rows after a change that does not see some of them."""
    columns = [*before[0]] if before else ["id", "key", "n"]

    def row(one: int | None, key: int, n: int) -> dict:
        return dict.fromkeys(columns) | {"id": one, "key": key, "n": n}

    seen = [row["id"] not in left_alone for row in before]
    pairs = list(zip(before, seen, strict=True))
    match change:
        case "append", rows:
            return before + [row(one, key, one) for one, key in rows]
        case "delete", key:
            return [row for row, is_seen in pairs if not (is_seen and row["key"] == key)]
        case "update", key, n:
            return [row | {"n": n} if ok and row["key"] == key else row for row, ok in pairs]
        case "upsert", keys, n:
            there = {row["key"] for row, is_seen in pairs if is_seen}
            left = [row | {"n": n} if ok and row["key"] in keys else row for row, ok in pairs]
            return left + [row(None, key, n) for key in keys if key not in there]
        case (("replace" | "delete then append"), key, ids):
            left = result(before, ("delete", key), left_alone, contents)
            return left + [row(one, key, one) for one in ids]
        case "deduplicate", _:
            first: dict[int, int] = {}
            places = [place for place, is_seen in enumerate(seen) if is_seen]
            # Nulls come last, in the order of the table.
            for place in sorted(places, key=lambda one: before[one]["id"] or 1 << 50):
                first.setdefault(before[place]["key"], place)
            kept = {*first.values()}
            return [one for place, one in enumerate(before) if place in kept or not seen[place]]
        case "add_column", name:
            return [row | {name: row["n"] * 2} for row in before]
        case "drop_column", name:
            return [{c: cell for c, cell in row.items() if c != name} for row in before]
        case "restore", number:
            return contents[number]
    return before


# Few rows of a row group are named as deleted, or any number of them.
SHARES = [16, 1]


@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(SHARES))
def test_handles_that_show_old_versions_make_changes_that_the_versions_explain(draw, share):
    store, ids, done = MemoryStore(), iter(range(100, 1 << 40)), []
    begin(store)
    handles = [blz.open(store, "a", durability="process") for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_changes, "LEAST_SHARE", share)
        for _ in range(15):
            which = draw.randrange(3)
            if draw.random() < 0.2:
                handles[which] = blz.open(store, "a", durability="process")
            t = handles[which]
            done += step(t, drawn(draw, ids, t), draw.choice([0, 5]))
    check(store, done)


def race(path: Path, processes: int, count: int, seed: int, share: int) -> int:
    begin(path)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        work = [
            pool.submit(run, path, seed + one, one + 1, count, share) for one in range(processes)
        ]
        done = [one for each in work for one in each.result()]
    assert len(done) > processes * count / 5
    return check(path, done)


def test_processes_that_change_a_table_at_once_are_explained_by_its_versions(tmp_path):
    assert race(tmp_path / "t.blz", 3, 10, 1, 1)


@pytest.mark.storm
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", range(10))
def test_more_processes_and_changes_are_explained_too(tmp_path, seed, share):
    assert race(tmp_path / "t.blz", 4, 100, 100 * seed, share)
