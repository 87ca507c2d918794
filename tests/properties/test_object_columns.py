"""Columns of Python objects through every verb, beside a list of rows."""

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.object_strategies import kinds, mixes, objects, same
from support.options import arguments

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
OPTIONS = [{"row_group_rows": 4}, {"encoding": "plain", "page_rows": 8}, {"object": "json"}]


def frame_of(values, first):
    return pd.DataFrame(
        {"key": range(first, first + len(values)), "x": pd.Series(objects(values), dtype=object)}
    )


@few
@given(st.data(), st.sampled_from(OPTIONS))
def test_objects_are_what_they_were_after_every_verb(data, options):
    of = data.draw(kinds())
    # The first value says the kind, which later frames have as well.
    values = [data.draw(of), *data.draw(st.lists(of | st.none(), max_size=5))]
    assume(not mixes(values))
    store, choice = RamStore(), options.get("object", "infer")
    blz.to_blz(frame_of(values, 0), store, **arguments(**options))
    model = list(enumerate(values))

    def check(table):
        found = table.to_pandas()
        assert found["key"].tolist() == [key for key, _ in model]
        assert same(found["x"].tolist(), [value for _, value in model])

    with blz.open(store, "a") as table:
        check(table)
        for _ in range(data.draw(st.integers(1, 5))):
            first = 1 + max((key for key, _ in model), default=-1)
            match data.draw(st.sampled_from(["append", "arrow", "update", "delete", "compact"])):
                case "append":
                    more = data.draw(st.lists(st.sampled_from(values) | st.none(), max_size=4))
                    table.append(frame_of(more, first), storage=blz.Storage(objects=choice))
                    model += enumerate(more, first)
                case "arrow":
                    table.append(table.to_arrow().slice(0, 2))
                    model += model[:2]
                case "update" if model:
                    key, value = model[0][0], data.draw(st.sampled_from(values))
                    new = pd.Series(objects([value] * [k for k, _ in model].count(key)))
                    table.update({"x": new.astype(object)}, where=[("key", "==", key)])
                    model = [(k, value if k == key else old) for k, old in model]
                case "delete":
                    table.delete([("key", "==", 0)])
                    model = [(key, value) for key, value in model if key != 0]
                case "compact":
                    table.compact()
            check(table)
        assert table.verify()
        rows = data.draw(st.integers(0, len(model)))
        assert same(table.to_pandas()["x"][:rows].tolist(), [v for _, v in model[:rows]])
        table.vacuum()
        table.restore(table.version)
        check(table)


@pytest.mark.parametrize(
    ("first", "more", "message"),
    [
        ([[1]], [(1,)], r"row 0: \(1,\) of type tuple .*other values are list"),
        ([{1}], [[1]], "other values are set"),
        ([[1]], [["a"]], "other values are int"),
        ([{"a": 1}], [{"a": 1, "b": 2}], "other dicts lack the key 'b'"),
        ([{"a": 1}, {"b": 1}], [{"a": None}], "the key 'a' is None, and other dicts lack it"),
        ([{"a": 1, "b": 2}], [{"a": 1}], "the key 'b' is missing"),
        ([(1, "a")], [(1, "a", 2)], "other tuples have 2 items"),
    ],
)
def test_objects_of_another_kind_are_refused_and_nothing_is_appended(first, more, message):
    store = RamStore()
    frame_of(first, 0).to_blz(store)
    with blz.open(store, "a") as table:
        with pytest.raises(SchemaError, match=message):
            table.append(frame_of(more, 1))
        assert (len(table), table.version) == (len(first), 1)


def test_json_takes_what_any_source_brings():
    store = RamStore()
    frame_of(["a", 1], 0).to_blz(store, storage=blz.Storage(objects="json"))
    with blz.open(store, "a") as table:
        table.append(pd.DataFrame({"key": [2, 3], "x": ["text", None]}))
        table.append(pd.DataFrame({"key": [4], "x": pd.to_datetime(["2020-01-02"]).as_unit("ns")}))
        table.append(pa.table({"key": [5], "x": [[1, 2]]}))
        table.append({"key": [6], "x": [{"deep": [None]}]})
        table.update({"x": 7.5}, where=[("key", "==", 0)])
        assert table.to_pandas()["x"].tolist() == [
            7.5,
            1,
            "text",
            None,
            pd.Timestamp("2020-01-02").as_unit("ns"),
            [1, 2],
            {"deep": [None]},
        ]
        assert table["x"][:3].to_pylist() == ["7.5", "1", '"text"']


@pytest.mark.parametrize("values", [["a", 1], [{1}, {2}], [(1, "a")], [{"a": 1}, {}]], ids=str)
def test_objects_stay_objects_on_their_way_through_arrow(values):
    store, other = RamStore(), RamStore()
    frame_of(values, 0).to_blz(
        store, storage=blz.Storage(objects="json" if "a" in values else "infer")
    )
    with blz.open(store) as table:
        blz.to_blz(table.to_arrow(), other)
        with blz.open(other, "a") as again:
            again.append(table.to_arrow())
            again.append(table.to_batches())
            assert same(again.to_pandas()["x"].tolist(), values * 3)


def test_text_that_was_json_stays_text():
    """Arrow data keep the metadata of a column that users replaced."""
    store = RamStore()
    frame_of(["a", 1], 0).to_blz(store, storage=blz.Storage(objects="json"))
    arrow = blz.read_table(store).set_column(1, "x", pa.array(["{", "x"]))
    blz.to_blz(arrow, store)
    assert blz.read_blz(store)["x"].tolist() == ["{", "x"]
    for other in (pa.array([1, 2]), pa.array([[1], None])):
        blz.to_blz(arrow.set_column(1, "x", other), store)
        assert blz.read_table(store)["x"].to_pylist() == other.to_pylist()
        assert len(blz.read_blz(store)) == 2


MIXED = pd.Series(["a", 1], dtype=object)


def test_a_column_of_json_takes_mixed_values_from_every_verb():
    store = RamStore()
    blz.to_blz({"key": [0, 1]}, store)
    with blz.open(store, "a") as table:
        table.add_column("x", MIXED, default=b"default", storage=blz.Storage(objects="json"))
        table.update({"x": MIXED})
        table.append({"key": [2]})
        with table.transaction() as tx, tx.appender() as a:
            a["key"].append([3, 4])
            a["x"].append(MIXED)
        assert table.to_pandas()["x"].tolist() == ["a", 1, b"default", "a", 1]


def test_a_call_without_the_option_does_not_advise_it():
    store = RamStore()
    blz.to_blz({"key": [0, 1], "x": ["p", "q"]}, store)
    with blz.open(store, "a") as table:
        with pytest.raises(SchemaError, match=r'pass storage=blz.Storage\(objects="json"\)'):
            table.add_column("y", MIXED)
        for act in (
            lambda: table.update({"x": MIXED}),
            lambda: table.update({"x": pd.Categorical([(1,), (2,)])}),
        ):
            with pytest.raises(SchemaError, match=r"convert .* with astype\(str\)") as caught:
                act()
            assert "objects=" not in str(caught.value)
        table.update({"x": MIXED.astype(str)})
        assert table.to_pandas()["x"].tolist() == ["a", "1"]


def test_lists_of_a_frame_go_to_a_table_of_arrow_and_back():
    store = RamStore()
    blz.to_blz(pa.table({"key": [0], "x": [[1]]}), store)
    with blz.open(store, "a") as table:
        table.append(frame_of([[2, 3], None], 1))
        assert table.to_arrow()["x"].to_pylist() == [[1], [2, 3], None]
        with pytest.raises(SchemaError, match="dtype object"):
            table.append(frame_of([{2, 3}], 1))
