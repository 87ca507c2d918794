"""Columns of text read as dictionaries have the values of the text."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.memory import MemoryStore

ROWS = 700
TYPES = ["string", "large_string", "string_view", "binary", "large_binary", "binary_view"]


def words_table(few: int = 5, type_: str = "string") -> pa.Table:
    """Return columns with few values, with few values or null, with many values, and only nulls."""
    number = np.arange(ROWS)
    words = pa.array([f"word {n * n % few}" for n in range(ROWS)])
    texts = {
        "few": words,
        "few or null": pc.if_else(pa.array(number % 7 == 3), None, words),
        "many": pa.array([f"word {n}" for n in range(ROWS)]),
        "null": pa.nulls(ROWS, pa.string()),
    }
    columns = {name: text.cast(getattr(pa, type_)()) for name, text in texts.items()}
    return pa.table({"n": number, **columns})


NAMES = ["few", "few or null", "many", "null"]


def as_text(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column of text or of a dictionary."""
    rows = [chunk.to_pylist() for chunk in column.chunks]
    return [row.decode() if isinstance(row, bytes) else row for of in rows for row in of]


@pytest.mark.parametrize("encoding", ["plain", "auto"])
@pytest.mark.parametrize("type_", TYPES)
def test_a_column_read_as_a_dictionary_has_the_values_of_the_text(type_, encoding):
    table, store = words_table(type_=type_), MemoryStore()
    blz.to_blz(
        table, store, storage=blz.Storage(encoding=encoding, row_group_rows=300, page_rows=64)
    )
    found = blz.read_table(store, dictionaries=NAMES)
    stored = table.schema.field("few").type
    shown = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
    expected = pa.dictionary(pa.int32(), shown.get(type_, stored))
    for name in NAMES:
        found[name].validate(full=True)
        assert found.schema.field(name).type == expected
        assert as_text(found[name]) == as_text(table[name])
    assert found["n"] == table["n"]
    some = blz.read_table(store, filters=pc.field("few or null").is_valid(), dictionaries=NAMES)
    for name in NAMES:
        assert some.schema.field(name).type == expected
        rows = [as_text(table[name])[row] for row in some["n"].to_pylist()]
        assert as_text(some[name]) == rows
    with blz.open(store) as opened:
        assert opened.schema.field("few").type == stored


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_after_any_changes_and_filters_dictionaries_have_the_values_of_the_text(data):
    store = MemoryStore()
    encoding = data.draw(st.sampled_from(["auto", "plain"]))
    type_ = data.draw(st.sampled_from(["string", "large_string", "string_view"]))
    table = words_table(type_=type_)
    blz.to_blz(
        table, store, storage=blz.Storage(encoding=encoding, row_group_rows=300, page_rows=64)
    )
    changes = {
        "append": lambda t: t.append(words_table(9, type_)),
        "update": lambda t: t.update({"few": "new"}, [("few or null", "==", "word 1")]),
        "clear": lambda t: t.update({"few": None}, [("n", "<", 300)]),
        "delete": lambda t: t.delete([("few", "==", "word 4")]),
        "compact": lambda t: t.compact(),
        "sort": lambda t: t.compact(sort_by=["many"]),
    }
    with blz.open(store, "a") as table:
        for name in data.draw(st.lists(st.sampled_from(sorted(changes)), max_size=4)):
            changes[name](table)
        filters = data.draw(
            st.sampled_from(
                [
                    None,
                    [("few", "==", "word 1")],
                    [("few or null", "in", ["word 1", "word 0"]), ("n", ">", 100)],
                    pc.field("few or null").is_null() | (pc.field("few") != "word 1"),
                    [("many", ">=", "word 5")],
                    [("few", "==", "missing")],
                ]
            )
        )
        names = data.draw(st.lists(st.sampled_from(NAMES), unique=True))
        columns = data.draw(st.none() | st.just([*names, "n"]))
        options = {"columns": columns, "filters": filters}
        text = table.to_arrow(**options)
        found = table.to_arrow(**options, dictionaries=names)
        batches = pa.Table.from_batches(
            list(stream := table.to_batches(**options, dictionaries=names)), stream.schema
        )
        assert found.schema == batches.schema
        assert found.column_names == text.column_names
        for name in text.column_names:
            assert pa.types.is_dictionary(found.schema.field(name).type) == (name in names)
            assert as_text(found[name]) == as_text(batches[name]) == as_text(text[name])


def test_a_frame_has_categoricals_also_in_its_index():
    frame = pd.DataFrame(
        {"kind": ["b", "a", None, "b"], "n": range(4)}, index=pd.Index(list("wxyz"), name="key")
    )
    store = MemoryStore()
    blz.to_blz(frame, store)
    found = blz.read_blz(store, dictionaries=["kind"])
    expected = frame.astype({"kind": pd.CategoricalDtype(["b", "a"])})
    pd.testing.assert_frame_equal(found, expected)
    indexed = blz.read_blz(store, columns=["n"], dictionaries=["key"])
    assert isinstance(indexed.index, pd.CategoricalIndex)
    assert indexed.index.tolist() == list("wxyz")
    pd.testing.assert_frame_equal(blz.read_blz(store), frame)


def test_a_dataset_shows_dictionaries_also_after_pickling(tmp_path):
    path, table = tmp_path / "t.blz", words_table()
    blz.to_blz(table, path, storage=blz.Storage(row_group_rows=300))
    dataset = blz.dataset(path, dictionaries=["few"])
    copy = pickle.loads(pickle.dumps(dataset))
    for one in (dataset, copy):
        assert one.schema.field("few").type == pa.dictionary(pa.int32(), pa.string())
        found = one.to_table(columns=["few", "n"], filter=pc.field("few") == "word 1")
        expected = table.filter(pc.field("few") == "word 1")
        assert as_text(found["few"]) == as_text(expected["few"])
        assert found["n"].to_pylist() == expected["n"].to_pylist()


def test_a_column_of_a_dictionary_type_is_read_as_it_is():
    store, column = MemoryStore(), pa.array(["a", "b", "a"]).dictionary_encode()
    column = column.cast(pa.dictionary(pa.int8(), pa.string()))
    blz.to_blz({"kind": column}, store)
    assert blz.read_table(store, dictionaries=["kind"])["kind"].chunk(0) == column


def test_only_text_and_binary_are_read_as_dictionaries():
    store = MemoryStore()
    blz.to_blz(words_table(), store)
    with pytest.raises(
        blz.SchemaError, match=r"column 'n' has the type int64; dictionaries= takes"
    ):
        blz.read_table(store, dictionaries=["n"])
    with pytest.raises(blz.ColumnNotFoundError, match="'other'"):
        blz.read_blz(store, dictionaries=["other"])
    with pytest.raises(TypeError, match=r"dictionaries must be .* pass \['few'\]"):
        blz.dataset(store, dictionaries="few")


@pytest.mark.parametrize("layout", ["directory", "file"])
def test_auto_reads_as_dictionaries_what_is_stored_as_such_in_every_verb(tmp_path, layout):
    path = tmp_path / "t.blz"
    words = pa.table({"few": ["a", "b"] * 5000, "many": [f"{n:x}" for n in range(10_000)]})
    blz.to_blz(words, path, storage=blz.Storage(layout=layout))
    coded = pa.dictionary(pa.int32(), pa.string())
    with blz.open(path) as table:
        assert table.to_arrow(dictionaries="auto").schema.types == [coded, pa.string()]
        assert table.to_batches(dictionaries="auto").schema.types == [coded, pa.string()]
        assert table.to_arrow(["many"], dictionaries="auto").schema.types == [pa.string()]
        assert table.to_pandas(dictionaries="auto").dtypes["few"] == "category"
    assert blz.read_table(path, dictionaries="auto").schema.types == [coded, pa.string()]
    assert blz.read_blz(path, dictionaries="auto").dtypes["few"] == "category"


def test_a_reader_of_dictionaries_ends_with_its_table():
    store = MemoryStore()
    blz.to_blz(words_table(), store)
    with blz.open(store) as table:
        dataset = table.dataset(dictionaries=["few"])
        assert dataset.count_rows() == ROWS
    with pytest.raises(blz.ClosedError):
        dataset.to_table()
