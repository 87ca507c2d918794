"""The suites of encodings run, and each measures the encoding that it is named after."""

import inspect

import encoded
import pytest

from blztable.columns.encodings.parse import _KINDS

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
        value > 0 for key, value in tracked.items() if name not in ("Constant", "Runs") or value
    ), tracked


def test_every_kind_of_encoding_has_a_suite():
    kinds = {getattr(suite, "kind", None) for suite in SUITES.values()}
    assert set(_KINDS) <= kinds


def test_a_suite_whose_column_has_another_encoding_is_an_error(monkeypatch):
    monkeypatch.setattr(encoded.Narrow, "array", encoded.Delta.array)
    with pytest.raises(ValueError, match="Narrow has streams with encodings"):
        encoded.Narrow().setup()
