"""Small operations make few Python calls and few kinds of objects: counts, never times.

The limits are a little above the counts of today, so that a change that makes more of them is seen.
"""

import data_sets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import questions

import blztable as blz
from support.counted_calls import classes_made, files_passed, python_calls

ROWS = 200_000

# What other tests keep open makes some calls more.
pytestmark = pytest.mark.usefixtures("own_process")


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """Return the flights, and a table of them that is open."""
    table = data_sets.flights(1)
    path = tmp_path_factory.mktemp("calls") / "flights.blz"
    blz.to_blz(table, path, durability="process")
    with blz.open(path) as opened:
        yield table, opened


@pytest.fixture
def asked(flights):
    table, _ = flights
    return data_sets.questions(data_sets.DATA_SETS["flights"], table)


def test_two_columns_are_read_with_few_calls(flights, asked):
    table, opened = flights
    columns = asked[questions.TWO_COLUMNS].columns
    assert opened.to_arrow(columns=columns).equals(table.select(columns))
    assert python_calls(lambda: opened.to_arrow(columns=columns)) <= 185


@pytest.mark.parametrize("task", [questions.CLUSTERED, questions.SCATTERED])
def test_a_filter_is_answered_with_few_calls(flights, asked, task):
    table, opened = flights
    question = asked[task]
    where = questions.expression(question.conditions, table.schema)
    found = opened.to_arrow(columns=question.columns, filters=where)
    assert found.equals(questions.answer(table, question))
    calls = python_calls(lambda: opened.to_arrow(columns=question.columns, filters=where))
    assert calls <= 360


def test_ten_rows_are_taken_with_few_calls(flights, asked):
    table, opened = flights
    question, rows = asked[questions.TAKE_FEW], np.sort(asked[questions.TAKE_FEW].rows)
    found = opened.take(rows, columns=question.columns)
    assert found.equals(table.select(question.columns).take(rows))
    assert python_calls(lambda: opened.take(rows, columns=question.columns)) <= 160


def test_rows_of_sixteen_columns_are_appended_with_few_calls(tmp_path):
    draw = np.random.default_rng(0)
    words = pa.array([f"item {number}" for number in range(1000)])
    rows = pa.table(
        {f"count_{n}": draw.integers(0, 10**6, 1000) for n in range(6)}
        | {f"price_{n}": draw.integers(0, 10**4, 1000) / 100 for n in range(6)}
        | {f"item_{n}": words.take(pa.array(draw.integers(0, 1000, 1000))) for n in range(4)}
    )
    path = tmp_path / "appended.blz"
    blz.to_blz(rows, path, durability="process")
    with blz.open(path, "a", durability="process") as opened:
        assert python_calls(lambda: opened.append(rows)) <= 3_000
        assert len(opened) == 8 * len(rows)


@pytest.fixture
def stored(tmp_path):
    """Return the path of a table of three columns; all that is imported late is imported."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "i": np.arange(ROWS),
            "f": draw.normal(size=ROWS),
            "s": draw.choice(["a", "bb", "ccc"], ROWS),
        }
    )
    for path in (tmp_path / "warm.blz", tmp_path / "table.blz"):
        blz.to_blz(frame, path)
    blz.read_blz(tmp_path / "warm.blz", filters=[("f", ">", 2.0)])
    with blz.open(tmp_path / "warm.blz", "a") as warm:
        warm.append(frame[:10])
    return tmp_path / "table.blz"


def test_a_read_of_two_columns_makes_few_kinds_of_objects(stored):
    assert len(classes_made(lambda: blz.read_blz(stored, columns=["i", "s"]))) <= 35


def test_a_filter_makes_few_kinds_of_objects(stored):
    filters = [("f", ">", 2.0)]
    read = classes_made(lambda: blz.read_blz(stored, columns=["i", "s"], filters=filters))
    assert len(read) <= 55


def test_an_append_makes_few_kinds_of_objects(stored):
    more = pd.DataFrame({"i": range(1000), "f": np.ones(1000), "s": ["a"] * 1000})
    with blz.open(stored, "a") as opened:
        assert len(classes_made(lambda: opened.append(more))) <= 60


def test_small_operations_pass_few_files(stored):
    filters, columns = [("f", ">", 2.0)], ["i", "s"]
    assert len(files_passed(lambda: blz.read_blz(stored, columns=columns))) <= 61
    assert len(files_passed(lambda: blz.read_blz(stored, columns=columns, filters=filters))) <= 68
    more = pd.DataFrame({"i": range(1000), "f": np.ones(1000), "s": ["a"] * 1000})
    with blz.open(stored, "a") as opened:
        assert len(files_passed(lambda: opened.append(more))) <= 97
