"""The suites of encodings and bundles run, and each measures what it is named after."""

import inspect

import bundles
import encoded
import pytest

import nested
from blztable.format.records import CONSTANT, DICTIONARY, NUMBERS, PER_ITEM, PLAIN

SUITES = {
    name: suite
    for name, suite in vars(encoded).items()
    if inspect.isclass(suite) and suite.__module__ == "encoded" and not name.startswith("_")
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(encoded, "ROWS", 40_000)


def runs(suite):
    """Call each benchmark once; return their names and results."""
    results = {}
    for param in getattr(suite, "params", [None]):
        one, arguments = suite(), () if param is None else (param,)
        one.setup(*arguments)
        for name in dir(one):
            if name.startswith(("time_", "track_")):
                results[name, param] = getattr(one, name)(*arguments)
        if hasattr(one, "teardown"):
            one.teardown(*arguments)
    return results


@pytest.mark.parametrize("name", SUITES)
def test_each_benchmark_of_a_suite_runs(name):
    results = runs(SUITES[name])
    tracked = {key: value for key, value in results.items() if key[0].startswith("track_")}
    assert results
    assert all(
        value > 0 for key, value in tracked.items() if name not in ("Constant", "Sums") or value
    ), tracked


def test_every_kind_of_encoding_has_a_suite():
    kinds = {getattr(suite, "kind", "").split(",")[0] for suite in SUITES.values()} - {""}
    assert len(kinds) == len({PLAIN, NUMBERS, DICTIONARY, CONSTANT, PER_ITEM})


def test_a_suite_whose_column_has_another_encoding_is_an_error(monkeypatch):
    monkeypatch.setattr(encoded.Numbers, "array", encoded.Sums.array)
    with pytest.raises(ValueError, match="Numbers has streams with encodings"):
        encoded.Numbers().setup()


def test_each_benchmark_of_bundles_runs(monkeypatch):
    monkeypatch.setitem(bundles.TABLES, "2,000 x 5,000", lambda: bundles.table(50, 20))
    monkeypatch.setattr(bundles.Bundles, "params", list(bundles.TABLES))
    results = runs(bundles.Bundles)
    assert {name for name, _ in results} == {
        "time_write",
        "time_append",
        "time_read",
        "time_read_frame",
        "time_read_one_column",
        "time_take",
        "track_bytes",
    }
    assert all(results["track_bytes", name] > 0 for name in bundles.TABLES)


@pytest.mark.parametrize("table", nested.TABLES)
def test_each_benchmark_of_nested_columns_runs(monkeypatch, table):
    monkeypatch.setattr(nested, "ROWS", 200)
    read = set()
    for system in nested.SYSTEMS:
        suite = nested.Nested()
        suite.setup(table, system)
        read.add(suite.time_read(table, system).equals(suite.table))
        suite.time_write(table, system)
        assert suite.track_bytes(table, system) > 0
        suite.teardown(table, system)
    assert read == {True}


def test_each_benchmark_of_nested_rows_runs(monkeypatch):
    monkeypatch.setattr(nested, "ROWS", 2000)
    assert set(runs(nested.NestedRows)) == {
        (f"time_{name}", None)
        for name in ("take_of_lists", "take_of_structs", "one_field", "filter_on_a_field")
    }


def test_a_table_that_is_in_no_bundle_is_an_error(monkeypatch):
    monkeypatch.setitem(bundles.TABLES, "one row x 100", lambda: bundles.table(1, 1))
    with pytest.raises(ValueError, match="one row x 100 is not in a bundle"):
        bundles.Bundles().setup("one row x 100")
