"""Engines take text as dictionaries or views, and answer as over the text itself."""

import pickle

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.types import as_views
from blztable.storage.memory import MemoryStore
from golden.sets import unpacked

LEGACY = unpacked("legacy") / "bcolz"
ROWS = 4_000
FORMS = [{"dictionaries": "auto"}, {"views": True}, {"dictionaries": ["few"], "views": True}]
WORDS = ["", "a", "twelve bytes", "thirteen byte", "a long text that no view holds", "ÄÖÜ" * 5]


def words_table(type_: str = "string", rows: int = ROWS) -> pa.Table:
    """Return columns with few values, with few values or null, and with a value of each row."""
    number = np.arange(rows)
    words = pa.array(WORDS).take(pa.array(number * number % 17 % len(WORDS)))
    texts = {
        "few": words,
        "few or null": pc.if_else(pa.array(number % 7 == 3), None, words),
        "many": pa.array([f"word {n}" for n in range(rows)]),
    }
    kind = getattr(pa, type_)()
    return pa.table({"n": number, **{name: one.cast(kind) for name, one in texts.items()}})


def stored(type_: str = "string") -> MemoryStore:
    """Return a table of two row groups with dictionaries, and a small one without."""
    store, table = MemoryStore(), words_table(type_)
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=2_000))
    blz.to_blz(words_table(type_, 9), store, mode="a", storage=blz.Storage(encoding="plain"))
    return store


def plain(table: pa.Table) -> pa.Table:
    """Return a table with large text or bytes in place of dictionaries and views."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        type_ = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if column.type != pa.int64():
            large = pa.large_binary() if "binary" in str(type_) else pa.large_string()
            chunks = [chunk.cast(type_).cast(large) for chunk in column.chunks]
            column = pa.chunked_array(chunks, large)
        columns[name] = column
    return pa.table(columns)


@pytest.mark.parametrize("type_", ["string", "large_string", "string_view", "binary"])
def test_the_schema_says_which_columns_are_dictionaries_or_views(type_):
    store = stored(type_)
    text = pa.large_string() if type_ == "string_view" else getattr(pa, type_)()
    view = pa.binary_view() if type_ == "binary" else pa.string_view()
    shown = pa.dictionary(pa.int32(), text)
    for options, types in zip(
        FORMS, ([shown, shown, text], [view, view, text], [shown, view, text]), strict=True
    ):
        dataset = blz.dataset(store, **options)
        assert dataset.schema.types == [pa.int64(), *types]
        assert dataset.to_table().schema == dataset.schema
        assert all(one.schema == dataset.schema for one in dataset.to_batches())


@pytest.mark.parametrize("type_", ["string", "binary"])
@pytest.mark.parametrize("options", FORMS)
def test_every_way_to_read_gives_the_values_of_the_text(options, type_):
    store = stored(type_)
    dataset, text = blz.dataset(store, **options), plain(blz.dataset(store).to_table())
    value = b"twelve bytes" if type_ == "binary" else "twelve bytes"
    for filter_ in (None, pc.field("few") == value, pc.field("few or null").is_null()):
        expected = text if filter_ is None else text.filter(filter_)
        table = dataset.to_table(filter=filter_)
        table.validate(full=True)
        assert plain(table) == expected
        assert dataset.count_rows(filter_) == len(expected)
        assert plain(dataset.head(5, filter=filter_)) == expected.slice(0, 5)
        taken = dataset.take([3, 0, 3], filter=filter_)
        assert plain(taken) == expected.take(pa.array([3, 0, 3]))
        if filter_ is not None:
            assert plain(dataset.filter(filter_).to_table()) == expected
        pieces = [one.to_table(filter=filter_) for one in dataset.get_fragments(filter_)]
        assert plain(pa.concat_tables(pieces)) == expected
    renamed = dataset.to_table({"other": pc.field("few"), "twice": pc.field("n") * 2})
    assert plain(renamed)["other"] == text["few"]
    batches = list(dataset.to_batches(batch_size=100))
    assert max(one.num_rows for one in batches) == 100
    assert plain(pa.Table.from_batches(batches)) == text


@pytest.mark.parametrize("options", FORMS)
def test_a_pickled_dataset_shows_the_same(tmp_path, options):
    path = tmp_path / "t.blz"
    blz.to_blz(words_table(), path)
    dataset = blz.dataset(path, **options)
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.schema == dataset.schema
    assert copy.to_table() == dataset.to_table()


@pytest.mark.parametrize("options", FORMS)
def test_duckdb_and_polars_answer_as_over_the_text(options):
    store = stored()
    dataset, text = blz.dataset(store, **options), blz.dataset(store).to_table()
    connection = duckdb.connect().register("dataset", dataset).register("text", text)
    for sql in (
        "select few, count(*), sum(n) from {t} group by few order by few",
        'select "few or null", count(*) from {t} group by all order by all',
        "select n from {t} where few = 'twelve bytes' order by n",
        'select n from {t} where "few or null" is null order by n',
        "select n, few from {t} where few like 'a%' order by n",
        "select a.n from {t} a join {t} b on a.many = b.many and a.few = b.few order by 1",
        "select * from {t} order by many, n limit 9",
        "select count(*) from {t}",
    ):
        answers = [connection.sql(sql.format(t=name)).fetchall() for name in ("dataset", "text")]
        assert answers[0] == answers[1], sql
    frames = pl.scan_pyarrow_dataset(dataset), pl.DataFrame(text).lazy()
    condition = pl.col("few").is_in(["a", "thirteen byte"])
    kind = pl.String if options == {"views": True} else pl.Categorical
    assert frames[0].collect_schema()["few"] == kind
    answers = [
        frame.filter(condition).group_by("few").agg(pl.col("n").sum()).collect() for frame in frames
    ]
    rows = [sorted(one.with_columns(pl.col("few").cast(pl.String)).rows()) for one in answers]
    assert rows[0] == rows[1]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_views_of_any_dictionary_have_its_values(data):
    kind = data.draw(st.sampled_from([pa.string(), pa.large_binary()]))
    values = st.text(max_size=20) if kind == pa.string() else st.binary(max_size=20)
    items = data.draw(st.lists(st.none() | values, max_size=9))
    codes = st.none() | st.integers(0, len(items) - 1) if items else st.none()
    rows = pa.array(data.draw(st.lists(codes, max_size=30)), pa.int32())
    array = pa.DictionaryArray.from_arrays(rows, pa.array(items, kind))
    start = data.draw(st.integers(0, len(rows)))
    view = pa.string_view() if kind == pa.string() else pa.binary_view()
    found = as_views(array[start:], view)
    found.validate(full=True)
    assert found.type == view
    assert found.to_pylist() == array.to_pylist()[start:]


def test_several_tables_show_what_all_of_them_store_as_dictionaries(tmp_path):
    table = words_table()
    blz.to_blz(table, tmp_path / "a.blz")
    blz.to_blz(table.drop(["few or null"]), tmp_path / "b.blz")
    blz.to_blz(
        table,
        tmp_path / "c.blz",
        storage=blz.Storage(columns={"few": blz.Storage(encoding="plain")}),
    )
    first = [tmp_path / "a.blz", tmp_path / "b.blz"]
    shown = pa.dictionary(pa.int32(), pa.string())
    assert blz.dataset(first, dictionaries="auto").schema.field("few").type == shown
    assert blz.dataset(first, views=True).schema.field("few").type == pa.string_view()
    for options in ({"dictionaries": "auto"}, {"views": True}):
        dataset = blz.dataset(tmp_path, **options)
        assert dataset.schema.field("few").type == pa.string()
        assert dataset.schema.field("few or null").type in (shown, pa.string_view())
        for places in (first, tmp_path):
            found = blz.dataset(places, **options).to_table(filter=pc.field("n") < 99)
            expected = blz.dataset(places).to_table(filter=pc.field("n") < 99)
            assert plain(found) == plain(expected)


def test_a_damaged_table_is_shown_as_text_and_the_scan_reports_it(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(words_table(), path)
    for part in path.glob("data/**/*.bin"):
        part.write_bytes(b"?" * part.stat().st_size)
    dataset = blz.dataset(path, dictionaries="auto")
    assert pa.string() in dataset.schema.types
    with pytest.raises(blz.CorruptError):
        dataset.to_table()


@pytest.mark.parametrize("options", FORMS[:2])
def test_a_table_of_another_program_is_shown_as_it_is(options):
    with blz.open(LEGACY / "blz-0.6.2/btable_mixed") as table:
        assert table.dataset(**options).schema == table.dataset().schema
