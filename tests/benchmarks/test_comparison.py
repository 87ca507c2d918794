"""A comparison asks every system the same, and times only right answers."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import clocks
import data_sets
import made_data
import measure
import pandas as pd
import pyarrow as pa
import pytest
import questions
from clocks import CLOCKS
from measure import Run, Timer, rotated
from questions import Condition, Question
from systems.registry import systems
from systems.system import System, is_installed

ROOT = Path(__file__).parents[2]
SCALE = 0.001
GROWING = ("wide", "text", "nulls", "sensor", "row_groups")
MADE = {name: getattr(made_data, name) for name in (*GROWING, "small")}
SOURCE = pa.table({"n": [1, 2, None], "s": pa.array(["a", "b", "c"], pa.large_string())})


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BLZTABLE_BENCH_DATA", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", MADE)
def test_a_seed_makes_the_same_table_each_time(name):
    assert MADE[name](SCALE).equals(MADE[name](SCALE))


@pytest.mark.parametrize("name", GROWING)
def test_a_scale_changes_the_size_of_a_table_only(name):
    small, larger = MADE[name](SCALE), MADE[name](0.01)
    assert small.nbytes < larger.nbytes
    assert set(small.schema) <= set(larger.schema)


def test_the_questions_name_columns_of_their_table():
    for name in MADE:
        table = data_sets.load(name, SCALE)
        for asked in data_sets.questions(data_sets.DATA_SETS[name], table).values():
            assert questions.answer(table, asked).num_rows <= table.num_rows


def test_a_range_of_the_clustered_column_holds_three_rows_in_a_thousand():
    table = pa.table({"key": range(10_000), "other": range(10_000)})
    wanted = data_sets.middle_of("key", table)
    assert wanted == [Condition("key", ">=", 5_000), Condition("key", "<=", 5_030)]
    assert questions.answer(table, Question(["other"], tuple(wanted))).num_rows == 31


@pytest.mark.parametrize("name", MADE)
def test_a_filter_lets_about_its_share_of_the_rows_pass(name):
    table = data_sets.load(name, 0.01)
    asked = data_sets.questions(data_sets.DATA_SETS[name], table)
    measured = table[data_sets.DATA_SETS[name].measure]
    for task, percent in questions.SHARES.items():
        rows = questions.answer(table, asked[task]).num_rows
        assert rows / (len(measured) - measured.null_count) == pytest.approx(
            percent / 100, abs=0.02
        )


def test_user_and_system_time_are_those_of_all_threads():
    found = clocks.clocked(lambda: sum(range(1_000_000)))
    assert tuple(found) == CLOCKS
    both = found["user_seconds"] + found["system_seconds"]
    assert found["processor_seconds"] == pytest.approx(both, abs=0.02)
    assert found["user_seconds"] > 0


def test_conditions_read_the_same_in_sql():
    conditions = (
        Condition("a", "==", datetime.date(2026, 1, 2)),
        Condition("b", ">", 0.5),
        Condition("c", "==", "x"),
        Condition("d", "<=", datetime.datetime(2026, 1, 2, 3, 4, 5, 6)),
    )
    assert questions.sql(conditions) == (
        "a = date '2026-01-02' and b > 0.5 and c = 'x' and "
        "d <= timestamp '2026-01-02 03:04:05.000006'"
    )


def test_an_answer_in_other_types_and_another_order_of_columns_is_right():
    found = pa.table({"s": ["a", "b", "c"], "n": pa.array([1, 2, None], pa.int16())})
    assert questions.difference(found, SOURCE, ordered=True) is None
    frame = pd.DataFrame({"n": [1.0, 2.0, None], "s": ["a", "b", "c"]})
    assert questions.difference(frame, SOURCE, ordered=True) is None


def test_rows_in_another_order_are_right_only_where_order_is_free():
    found = SOURCE.take([2, 0, 1])
    assert questions.difference(found, SOURCE, ordered=False) is None
    assert questions.difference(found, SOURCE, ordered=True) == "other values in n"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (SOURCE[:2], "2 rows instead of 3"),
        (SOURCE.select(["n"]), "columns ['n'] instead of ['n', 's']"),
        (SOURCE.set_column(0, "n", pa.array([1, 2, 0])), "other values in n"),
        (SOURCE.set_column(1, "s", pa.array(["a", "b", "d"])), "other values in s"),
    ],
)
def test_an_answer_that_differs_is_wrong(found, said):
    assert questions.difference(found, SOURCE, ordered=False) == said
    assert questions.difference(found, SOURCE, ordered=True) == said


def test_a_system_with_a_wrong_answer_cannot_do_the_task(tmp_path, monkeypatch):
    class Forgetful(System):
        def read(self, path, columns):
            return data_sets.load("sensor", SCALE).select(columns)[1:]

    monkeypatch.setattr(measure, "system_of", lambda name: Forgetful())
    tasks = {questions.TWO_COLUMNS: ["forgetful"]}
    run = Run("sensor", tasks, {"forgetful": str(tmp_path)}, SCALE, 0, 1)
    rows = made_data.LEAST_ROWS if made_data.SENSOR_ROWS * SCALE < made_data.LEAST_ROWS else 4000
    said = f"gives a wrong answer: {rows - 1:,} rows instead of {rows:,}"
    assert measure.check(run, questions.TWO_COLUMNS, "forgetful") == {"cannot": said}


@pytest.mark.parametrize("data", MADE)
@pytest.mark.parametrize(
    "name", [name for name, system in systems().items() if is_installed(system)]
)
def test_every_installed_system_answers_as_arrow_does(name, data, tmp_path):
    system = systems()[name]
    table = data_sets.load(data, SCALE)
    path = tmp_path / f"table{system.suffix}"
    data_set = data_sets.DATA_SETS[data]
    system.write(table, path, data_set.row_group_rows)
    for task, asked in data_sets.questions(data_set, table).items():
        if task in (questions.WRITE, questions.APPEND):
            continue
        try:
            call = measure.call_of(task, system, path, asked)
        except NotImplementedError:
            # Not every system keeps something open.
            assert task in questions.KEPT_OPEN
            continue
        found = call()
        ordered = not asked.conditions and asked.rows is None
        expected = questions.answer(table, asked)
        assert questions.difference(found, expected, ordered) is None, task


def test_systems_take_turns_to_be_first():
    names = ["a", "b", "c"]
    assert [rotated(names, round_) for round_ in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


@pytest.fixture
def turns(monkeypatch):
    """Time two systems that only note their turns; the second may fail."""
    noted: list[str] = []

    def timer_of(run, task, name, table):
        def call():
            noted.append(name)
            if name == "broken":
                raise OSError("the disk is gone")

        return Timer(call, end=lambda: noted.append(f"{name} ends"))

    monkeypatch.setattr(measure, "timer_of", timer_of)
    return noted


def run_of(names, rounds, patience=60.0):
    return Run("small", {questions.READ_ALL: names}, {}, SCALE, rounds, patience)


def test_each_round_begins_with_another_system(turns):
    found = measure.timed(run_of(["a", "b"], 2), questions.READ_ALL)
    assert turns == ["a", "b", "b", "a", "a ends", "b ends"]
    assert {
        name: {clock: len(values) for clock, values in of.items()} for name, of in found.items()
    } == {name: dict.fromkeys(CLOCKS, 2) for name in "ab"}


def test_a_system_that_fails_in_a_round_is_out_and_the_others_go_on(turns):
    found = measure.timed(run_of(["a", "broken"], 3), questions.READ_ALL)
    assert found["broken"] == {"cannot": "OSError: the disk is gone"}
    assert len(found["a"]["seconds"]) == 3
    assert turns.count("broken") == 1


def test_rounds_of_a_system_end_when_patience_ends(turns):
    # Without patience there is one call.
    found = measure.timed(run_of(["a"], 5, patience=0.0), questions.READ_ALL)
    assert len(found["a"]["seconds"]) == 1


# The command, with two systems.
WITH_TWO = """
import os, runpy, sys
folder = sys.path[0] = sys.argv.pop(1)
from systems import registry
known = registry.systems()
registry.systems = lambda: {name: known[name] for name in ("blztable", "blztable, durable")}
runpy.run_path(os.path.join(folder, "peers.py"), run_name="__main__")
"""


def test_the_command_measures_and_stores_what_it_was_asked_for(tmp_path):
    output = tmp_path / "results.json"
    command = [sys.executable, "-c", WITH_TWO, str(ROOT / "benchmarks"), "--here", "--peers"]
    command += ["--data", "sensor", "--tasks", "scattered filter", "write"]
    command += ["--scale", str(SCALE), "--rounds", "2", "--first", "1", "--output", str(output)]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text(encoding="utf-8"))
    runs = results["runs"]["sensor"]
    assert runs.keys() == {"scattered filter", "write"}
    assert "blztable, durable" not in runs["scattered filter"]
    assert "blztable, durable" in runs["write"]
    for systems_ in runs.values():
        for run in systems_.values():
            for clock in CLOCKS:
                assert [len(calls) for calls in run[clock]] == [1, 1]
                assert [len(calls) for calls in run["first"][clock]] == [1]
            assert min(min(calls) for calls in run["seconds"]) > 0
    # Its import alone takes more than 20 ms; the task does not.
    measured = runs["scattered filter"]["blztable"]
    assert measured["first"]["seconds"][0][0] > measured["seconds"][1][0] + 0.02
    assert "first call, with the import" in done.stdout
    assert results["data"]["sensor"]["bytes"]["blztable"] > 0
    assert not list((tmp_path / "cache").glob("peers-*")), "measured files are removed"
