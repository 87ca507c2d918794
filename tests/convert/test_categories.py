"""Categories: frames of one stream share them, or the stream is refused."""

import pandas as pd
import pytest

import blztable as blz
from blztable.storage.memory import MemoryStore


def categories(values, labels=None, ordered=False) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Categorical(values, labels, ordered=ordered)})


# Bug: later items of a stream could bring categories of another frequency.
def test_categories_of_another_frequency_do_not_fit():
    months, days = (pd.PeriodIndex(["2020-01-01"], freq=freq) for freq in "MD")
    store = MemoryStore()
    with pytest.raises(blz.SchemaError, match=r"item 1, column 'a': .*period D.*period M"):
        blz.to_blz([categories(months), categories(days)], store)
    assert store.list_names("meta/manifest") == []


# Bug: later items of a stream could bring ordered categories in another order.
def test_ordered_categories_in_another_order_do_not_fit():
    first, other = (categories(["a"], list(order), ordered=True) for order in ("abc", "cba"))
    with pytest.raises(blz.SchemaError, match=r"item 1, column 'a': ordered.*'c', 'b', 'a'"):
        blz.to_blz([first, other], MemoryStore())
    store = MemoryStore()
    blz.to_blz([first, first], store)
    assert blz.read_blz(store)["a"].cat.categories.tolist() == ["a", "b", "c"]


# Guards growth: later items of a stream may bring many more categories than the first.
def test_later_frames_may_have_many_more_categories():
    labels = [str(label) for label in range(300)]
    store = MemoryStore()
    blz.to_blz([categories(labels[:100]), categories(labels[50:])], store)
    assert blz.read_blz(store)["a"].tolist() == labels[:100] + labels[50:]
    with blz.open(store) as table:
        assert table["a"][50:150].to_pylist() == (labels[:100] + labels[50:])[50:150]
