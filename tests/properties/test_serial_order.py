"""Serial order: the versions explain what every acknowledged change did, one after the other.

Handles and processes make every kind of change of one table at random, each from the version that
it happens to show. A plain model then goes through the versions in their order. Each version must
be the one before it with the change that was acknowledged under its number; a change of rows may
leave alone the rows that blind appends brought after some version that it may have begun with, as
if these had come after it.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.storage.memory import RamStore
from support.crash.serial_changes import WRITTEN, Change, Done, Rows, begin, drawn, run, step


@dataclass(frozen=True)
class Content:
    """What a version holds. Columns and rows have no order here."""

    columns: frozenset[str]
    rows: Rows
    attrs: dict

    def same(self, other: "Content") -> bool:
        """True if the other one holds the same."""
        texts = (sorted(repr(sorted(row.items())) for row in one.rows) for one in (self, other))
        first, second = texts
        return (first, self.columns, self.attrs) == (second, other.columns, other.attrs)


def held(place, number: int) -> Content:
    with blz.open(place, version=number) as t:
        return Content(frozenset(t.columns), t.to_arrow().to_pylist(), dict(t.attrs))


def check(place, all_done: list[Done]) -> int:
    """Explain each version by the one before it; return how many changes landed on others."""
    with blz.open(place) as t:
        versions = {one.number: one.operation for one in t.versions()}
        assert t.verify().is_intact
    contents = {number: held(place, number) for number in versions}
    written = {
        content.attrs.get("written"): number
        for number, content in contents.items()
        if versions[number] == "replace"
    }
    made: dict[int, list[tuple[int, Change]]] = {}
    for before, change, version in all_done:
        version = written[change[1][0][0]] if version == WRITTEN else version
        if version > before:
            made.setdefault(version, []).append((before, change))
    beside = 0
    for number in list(versions)[2:]:
        before, after = contents[number - 1], contents[number]
        if number not in made:
            assert versions[number] in NOT_TOLD, (number, versions[number])
            assert after.same(before), (number, versions[number])
            continue
        explained = 0
        for base, change in made[number]:
            beside += base < number - 1
            left_alone: set[int] = set()
            is_explained = False
            # From the newest version that it may have begun with to the oldest.
            for begun in range(number - 1, base - 1, -1):
                is_explained |= after.same(result(before, change, left_alone, contents))
                earlier = [one for _, one in made.get(begun, [])]
                left_alone = left_alone.union(*map(appended_blindly, earlier))
            # What was done already is acknowledged with the version that shows it.
            is_there = change[0] == "alter" and after.same(result(after, change, set(), contents))
            assert is_explained or is_there, (number, base, change, before, after)
            explained += is_explained
        assert explained == 1, (number, made[number])
    return beside


# Operations of versions that hold what the versions before them hold.
NOT_TOLD = ("merge", "compact", "sort", "tags", "properties", "alter_column")


def appended_blindly(change: Change) -> set[int]:
    """Return the ids of rows that a change appended without a look at others."""
    match change:
        case "append", rows:
            return {one for one, _ in rows}
        case "transaction", changes if all(one[0] in ("append", "attrs") for one in changes):
            return set().union(*map(appended_blindly, changes))
    return set()


def result(
    before: Content, change: Change, left_alone: set[int], contents: dict[int, Content]
) -> Content:
    """Return what a version holds after a change that does not see some of its rows."""
    rows = before.rows

    def row(one: int | None, key: int | None, n: int | None) -> dict:
        return dict.fromkeys(before.columns) | {"id": one, "key": key, "n": n}

    seen = [row["id"] not in left_alone for row in rows]
    pairs = list(zip(rows, seen, strict=True))

    def rows_are(rows: Rows) -> Content:
        return replace(before, rows=rows)

    match change:
        case "append", new:
            return rows_are(rows + [row(one, key, one) for one, key in new])
        case "delete", key:
            return rows_are([row for row, ok in pairs if not (ok and row["key"] == key)])
        case "update", key, n:
            new = [row | {"n": n} if ok and row["key"] == key else row for row, ok in pairs]
            return rows_are(new)
        case "upsert", keys, n:
            there = {row["key"] for row, is_seen in pairs if is_seen}
            left = [row | {"n": n} if ok and row["key"] in keys else row for row, ok in pairs]
            return rows_are(left + [row(None, key, n) for key in keys if key not in there])
        case "replace", key, ids:
            left = result(before, ("delete", key), left_alone, contents).rows
            return rows_are(left + [row(one, key, one) for one in ids])
        case "transaction", changes:
            for one in changes:
                before = result(before, one, left_alone, contents)
            return before
        case "deduplicate", _:
            first: dict[int, int] = {}
            places = [place for place, is_seen in enumerate(seen) if is_seen]
            # Nulls come last, in the order of the table.
            for place in sorted(places, key=lambda one: rows[one]["id"] or 1 << 50):
                first.setdefault(rows[place]["key"], place)
            kept = {*first.values()}
            return rows_are(
                [one for place, one in enumerate(rows) if place in kept or not seen[place]]
            )
        case (("truncate" | "resize"), n):
            return rows_are(rows[:n] + [row(None, None, None)] * (n - len(rows)))
        case "add_column", name:
            new = [row | {name: None if row["n"] is None else row["n"] * 2} for row in rows]
            return replace(before, columns=before.columns | {name}, rows=new)
        case "drop_column", name:
            new = [{c: cell for c, cell in row.items() if c != name} for row in rows]
            return replace(before, columns=before.columns - {name}, rows=new)
        case "rename", name, other:
            new = [{other if c == name else c: cell for c, cell in row.items()} for row in rows]
            return replace(before, columns=before.columns - {name} | {other}, rows=new)
        case "alter", name, type_:
            kind = {"double": float, "int64": int}[type_]
            new = [
                row | {name: row[name] if row[name] is None else kind(row[name])} for row in rows
            ]
            return rows_are(new)
        case "attrs", key:
            return replace(before, attrs=before.attrs | {"key": key})
        case "restore", number:
            return contents[number]
        case "write", new:
            content = Content(frozenset({"id", "key", "n"}), [], {"written": new[0][0]})
            return result(content, ("append", new), set(), contents)
    raise AssertionError(change)


# Few rows of a row group are named as deleted, or any number of them.
SHARES = [16, 1]


# Without shrinking, which takes minutes for a story of this length.
@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.randoms(use_true_random=False), st.sampled_from(SHARES))
def test_handles_that_show_old_versions_make_changes_that_the_versions_explain(draw, share):
    store, ids, done = RamStore(), iter(range(100, 1 << 40)), []
    begin(store)
    handles = [
        blz.open(store, "a", durability="process", retries=draw.choice([0, 5])) for _ in range(3)
    ]
    with tuning.tuned(rows_per_deleted=share):
        for _ in range(15):
            which = draw.randrange(3)
            if draw.random() < 0.2:
                retries = draw.choice([0, 5])
                handles[which] = blz.open(store, "a", durability="process", retries=retries)
            t = handles[which]
            done += step(t, drawn(draw, ids, t))
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
    assert race(tmp_path / "t.blz", 3, 30, 1, 1)


@pytest.mark.storm
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", range(10))
def test_more_processes_and_changes_are_explained_too(tmp_path, seed, share):
    assert race(tmp_path / "t.blz", 4, 100, 100 * seed, share)
