"""Kinds that widen: objects of a frame that bring new keys to dicts, or lack some."""

import datetime
import uuid

import pandas as pd
import pytest

import blztable as blz
from blztable.convert.objects.find import parse
from blztable.convert.objects.merge import merged
from blztable.storage.memory import MemoryStore

DAY, ID = datetime.timedelta(1), uuid.UUID(int=1)
# The column, the appended values, and what the column then holds.
NEW_KEYS = {
    "values of a map": (
        [{1: {"a": 1}}],
        [{2: {"a": 1, "b": {3}}}],
        [{1: {"a": 1, "b": None}}, {2: {"a": 1, "b": {3}}}],
    ),
    "one more": ([{"a": 1}], [{"a": 2, "b": "x"}], [{"a": 1, "b": None}, {"a": 2, "b": "x"}]),
    "another": ([{"a": 1}], [{"b": DAY}], [{"a": 1, "b": None}, {"a": None, "b": DAY}]),
    "one less": ([{"a": 1, "b": 2}], [{"a": 3}], [{"a": 1, "b": 2}, {"a": 3, "b": None}]),
    "one that may be absent": (
        [{"a": 1, "b": 2}, {"a": 3}],
        [{"a": 4, "c": {5}}],
        [{"a": 1, "b": 2, "c": None}, {"a": 3, "c": None}, {"a": 4, "c": {5}}],
    ),
    "in a list": (
        [[{"a": 1}]],
        [[{"a": 2, "b": ID}]],
        [[{"a": 1, "b": None}], [{"a": 2, "b": ID}]],
    ),
    "in a tuple": (
        [({"a": 1}, "x")],
        [({"a": 1, "b": 2}, "y")],
        [({"a": 1, "b": None}, "x"), ({"a": 1, "b": 2}, "y")],
    ),
    "in a dict": (
        [{"p": {"x": {1}}, "q": None}],
        [{"p": {"x": {2}, "y": 0.5}, "q": [1]}],
        [
            {"p": {"x": {1}, "y": None}, "q": None},
            {"p": {"x": {2}, "y": 0.5}, "q": [1]},
        ],
    ),
    "with floats": ([{"a": 1}], [{"a": 0.5, "b": 1}], [{"a": 1.0, "b": None}, {"a": 0.5, "b": 1}]),
}


def frame(values) -> pd.DataFrame:
    return pd.DataFrame({"d": pd.Series(values, dtype=object)})


@pytest.fixture
def opened(request):
    """Return an open table with these values."""

    def table(values) -> blz.CTable:
        blz.to_blz(frame(values), store := MemoryStore(), durability="process")
        t = blz.open(store, "a", durability="process")
        request.addfinalizer(t.close)
        return t

    return table


@pytest.mark.parametrize("name", NEW_KEYS)
def test_dicts_bring_new_keys_with_evolve_and_the_error_without_it_says_so(name, opened):
    first, more, expected = NEW_KEYS[name]
    t = opened(first)
    with pytest.raises(blz.SchemaError, match=r"column 'd', row 0: .*; pass evolve=True$"):
        t.append(frame(more))
    assert t.version == 1
    t.append(frame(more), evolve=True)
    assert t.to_pandas()["d"].tolist() == expected
    assert [type(value) for value in t.to_pandas()["d"]] == list(map(type, expected))
    t.append(frame(expected[1:]))
    t.append(t.to_pandas())
    t.compact()
    assert t.to_pandas()["d"].tolist()[: len(expected)] == expected
    assert len(t) == 2 * (2 * len(expected) - 1)
    assert t.verify().is_intact


def test_new_keys_come_in_a_stream_and_beside_other_changes(opened):
    t = opened([{"a": 1}, None])
    version = t.version
    parts = [frame([{"a": 2, "b": {1}}]), frame([{"c": ID}, None]), frame([{"a": 1}])]
    t.append(iter(parts), evolve=True)
    expected = [{"a": 1}, None, {"a": 2, "b": {1}}, {"c": ID}, None, {"a": 1}]
    whole = [value and dict.fromkeys("abc") | value for value in expected]
    assert t.to_pandas()["d"].tolist() == whole
    t.alter_column("d", default={"a": None, "b": {7}, "c": None})
    t.add_column("k", range(6))
    t.append({"k": [6]})
    assert t.to_pandas()["d"].tolist() == [*whole, {"a": None, "b": {7}, "c": None}]
    t.restore(version)
    assert t.to_pandas()["d"].tolist() == expected[:2]


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ([{"a": [1]}], [{"a": {1}, "b": 3}]),
        ([{"a": {1}}], [{"a": [1], "b": 3}]),
        ([{"a": (1, "x")}], [{"a": (1, "x", 2)}]),
        ([{"a": 0.5}], [{"a": 2, "b": 1}]),
        ([{1}], [{"x"}]),
    ],
    ids=str,
)
def test_objects_of_two_kinds_are_refused_and_the_old_ones_stay_what_they_are(first, more, opened):
    # Bug: the kind of the appended objects replaced that of the column, so lists became sets.
    t = opened(first)
    for evolve in (False, True):
        with pytest.raises(blz.SchemaError, match="convert the data first"):
            t.append(frame(more), evolve=evolve)
    assert t.to_pandas()["d"].tolist() == first


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("int", "int", "int"),
        ("int", "float", "float"),
        ("float", "int", None),
        ("null", ["set", "int"], ["set", "int"]),
        (["set", "int"], "null", ["set", "int"]),
        (["set", "int"], ["list", "int"], None),
        ({"a": ["absent", "int"]}, {"b": "int"}, {"a": ["absent", "int"], "b": "int"}),
        ({"a": "int"}, {"a": ["absent", "int"]}, {"a": "int"}),
        ({"a": "int"}, {"a": "text", "b": "int"}, None),
        (["map", "int", {"a": "int"}], ["map", "text", {"a": "int"}], None),
        (
            ["array", "object", {"a": "int"}],
            ["array", "object", {}],
            ["array", "object", {"a": "int"}],
        ),
        (["record", "int", {}], ["record", "int"], None),
    ],
    ids=str,
)
def test_two_kinds_have_one_that_holds_the_objects_of_both(one, other, both):
    found = merged(parse(one), parse(other))
    assert (found and found.as_json) == (both if both is None else parse(both).as_json)


def test_text_comes_to_ordered_categories_as_the_error_says():
    sizes = pd.CategoricalDtype(["small", "large"], ordered=True)
    first = pd.DataFrame({"size": pd.Series(["small", None], dtype=sizes)})
    blz.to_blz(first, store := MemoryStore(), durability="process")
    more = pd.DataFrame({"size": ["large", "small"]})
    words = r"column 'size': .*give the data the same ordered categories, with pd\.Categorical"
    with blz.open(store, "a", durability="process") as t:
        for evolve in (False, True):
            with pytest.raises(blz.SchemaError, match=words):
                t.append(more, evolve=evolve)
        kept = pd.Categorical(more["size"], t.to_pandas()["size"].cat.categories, ordered=True)
        t.append(more.assign(size=kept))
        expected = pd.Series(["small", None, "large", "small"], dtype=sizes, name="size")
        pd.testing.assert_series_equal(t.to_pandas()["size"], expected)
