"""Storms over one array: processes change it and are killed, read it, or change it at once.

Each is short in the suite and long with `-m storm`; `-s` then prints the counts.
"""

import random
import time
from contextlib import ExitStack

import numpy as np
import pytest

import blztable as blz
from support.crash.array_stress import (
    FORMS,
    State,
    create,
    exchanging,
    filling,
    found,
    item_of,
    looking,
    perform,
    performed,
    racing,
    restless,
    rows_of,
    uniform,
)
from support.crash.stress import running, told


def sizes(short, long):
    """Return parameters of a test: the daily values, and the storm's."""
    return [short, pytest.param(*long, marks=[pytest.mark.storm, pytest.mark.timeout(1800)])]


def leftovers(path):
    return [file.name for file in path.parent.iterdir() if file != path]


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize(("kills", "seconds"), sizes((5, 0.1), (500, 0.3)))
def test_a_writer_that_is_killed_leaves_what_it_was_told_and_at_most_one_change_more(
    tmp_path, kills, seconds, form
):
    path = tmp_path / "a.blp"
    create(path, form)
    expected = State()
    draw = random.Random(kills)
    done, landed, cut, left, first = 0, 0, 0, 0, 0
    for kill in range(1, kills + 1):
        with running(restless, path, kill, first) as (process, pipe):
            pipe.poll(60)
            process.join(draw.uniform(0, seconds))
            assert process.exitcode is None, told(pipe)
            process.kill()
            messages = told(pipe)
        for what, step in messages:
            if what == "done":
                expected = performed(expected, step)
                done += 1
        state = found(path)
        left += bool(leftovers(path))
        if messages[-1][0] == "begin":
            cut += 1
            with_it = performed(expected, messages[-1][1])
            assert state in (expected, with_it), (kill, messages[-1])
            landed += state == with_it != expected
            expected = state
        assert state == expected, kill
        first = messages[-1][1][1] + 1
        # The next writer goes on from there, and removes what a killed one left.
        with blz.SuperChunk.open(path, "a") as array:
            assert leftovers(path) == []
            step = ("append", first, 1)
            perform(array, step)
        expected, first = performed(expected, step), first + 1
        assert found(path) == expected, kill
    print(
        f"\n{kills} kills, {done} changes acknowledged, {cut} killed in flight, {landed} of ",
        end="",
    )
    print(f"these had landed; {left} unfinished files removed, {len(expected.rows)} rows")


@pytest.mark.parametrize(("kills", "seconds"), sizes((4, 0.1), (300, 0.2)))
def test_a_writer_of_items_that_is_killed_leaves_each_old_or_new(tmp_path, kills, seconds):
    path = tmp_path / "a.blp"
    expected = [item_of(number) for number in range(12)]
    with blz.SuperChunk.create(path, "str") as array:
        array.append(expected)
    draw = random.Random(kills)
    first, landed = len(expected), 0
    for kill in range(kills):
        with running(exchanging, path, len(expected), first) as (process, pipe):
            pipe.poll(60)
            process.join(draw.uniform(0, seconds))
            assert process.exitcode is None, told(pipe)
            process.kill()
            messages = told(pipe)
        for what, number in messages:
            if what == "done":
                expected[number % len(expected)] = item_of(number)
        with blz.SuperChunk.open(path) as array:
            assert array.verify()
            items = array[:].tolist()
        what, number = messages[-1]
        if what == "begin" and items != expected:
            expected[number % len(expected)] = item_of(number)
            landed += 1
        assert items == expected, kill
        first = number + 1
    print(f"\n{kills} kills, {first} items, {landed} that were killed in flight had landed")


@pytest.mark.parametrize(("kills", "seconds"), sizes((4, 0.05), (200, 0.1)))
def test_a_new_array_whose_writer_is_killed_is_told_and_its_whole_chunks_are_recovered(
    tmp_path, kills, seconds
):
    draw = random.Random(kills)
    rows = np.concatenate([rows_of(number, 20) for number in range(100)])
    finished, recovered = 0, 0
    for kill in range(kills):
        path = tmp_path / f"{kill}.blp"
        with running(filling, path, kill) as (process, pipe):
            pipe.poll(60)
            process.join(draw.uniform(0, seconds))
            process.kill()
            messages = told(pipe)
        try:
            with blz.SuperChunk.open(path) as array:
                assert np.array_equal(array, rows[: len(array)])
                told_last = [one for one in messages if one != "closed"][-1]
                assert told_last <= len(array) <= told_last + 20
            finished += 1
        except blz.TableNotFoundError:
            assert messages == [0]
        except (blz.CorruptError, blz.FormatError):
            # Killed before the front was written, or before the end.
            if path.stat().st_size >= 32:
                with blz.SuperChunk.recover(path) as array:
                    # The last rows wait in memory for others that fill their chunk.
                    assert len(array) >= messages[-1] // 50 * 50
                    assert np.array_equal(array, rows[: len(array)])
                recovered += 1
            assert messages[-1] != "closed"
    print(f"\n{kills} kills, {finished} arrays were finished, {recovered} recovered")


@pytest.mark.parametrize(("readers", "seconds"), sizes((2, 1), (3, 60)))
def test_readers_see_whole_changes_beside_writers_that_are_killed(tmp_path, readers, seconds):
    path = tmp_path / "a.blp"
    create(path, 0)
    with blz.SuperChunk.open(path, "a") as array:
        array.resize(100)
    draw = random.Random(seconds)
    kills = changes = 0
    with ExitStack() as held:
        pipes = [held.enter_context(running(looking, path, seconds))[1] for _ in range(readers)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with running(uniform, path, kills) as (process, pipe):
                # The first message comes when the writer has its lock.
                pipe.poll(end - time.monotonic())
                process.join(draw.uniform(0, 0.1))
                assert process.exitcode is None, told(pipe)
                process.kill()
                changes += len(told(pipe))
            kills += 1
        reads = [told(pipe) for pipe in pipes]
    assert all(isinstance(facts, tuple) and facts[0] for [facts] in reads), reads
    print(f"\n{kills} writers killed in {changes} sessions; reads, and refusals: {reads}")


@pytest.mark.parametrize(("writers", "seconds"), sizes((2, 1), (3, 60)))
def test_appends_of_racing_writers_all_land_once_and_in_order(tmp_path, writers, seconds):
    path = tmp_path / "a.blp"
    create(path, 0)
    with ExitStack() as held:
        programs = [
            held.enter_context(running(racing, path, writer, seconds)) for writer in range(writers)
        ]
        said = [told(pipe) for _, pipe in programs]
        for process, _ in programs:
            process.join()
            assert process.exitcode == 0
    rows = found(path).rows
    for writer, messages in enumerate(said):
        numbers = [number for number in messages if number != "busy"]
        assert rows[rows[:, 0] == writer][:, 1].tolist() == numbers
    assert len(rows) == sum(number != "busy" for messages in said for number in messages)
    assert leftovers(path) == []
    print(f"\nappends and refusals: {[(len(m), m.count('busy')) for m in said]}")
