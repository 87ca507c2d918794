"""Several tables read as one dataset: lists, patterns, and directories in the form of Hive."""

import datetime as dt
import gc
import os
import pickle

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.compute import field

import blztable as blz
from blztable.storage.memory import RamStore
from blztable.table.datasets.dataset import BlzDataset
from blztable.table.datasets.several import Member, Several
from support import stored

FIRST, SECOND = dt.date(2026, 11, 21), dt.date(2026, 11, 22)


@pytest.fixture
def sales(tmp_path):
    """Tables of two days: a directory, and a file in one."""
    root = tmp_path / "sales"
    (root / f"day={SECOND}").mkdir(parents=True)
    blz.to_blz({"n": [1, 2, 3], "word": ["a", "b", "c"]}, root / f"day={FIRST}")
    blz.to_blz(
        {"n": [4, 5]}, root / f"day={SECOND}" / "more.blz", storage=blz.Storage(layout="file")
    )
    return root


ROWS = [
    {"n": 1, "word": "a", "day": FIRST},
    {"n": 2, "word": "b", "day": FIRST},
    {"n": 3, "word": "c", "day": FIRST},
    {"n": 4, "word": None, "day": SECOND},
    {"n": 5, "word": None, "day": SECOND},
]


def test_a_directory_of_tables_is_one_dataset_with_the_columns_of_its_names(sales):
    d = blz.dataset(sales)
    assert d.schema == pa.schema({"n": "i8", "word": "string", "day": "date32"})
    assert d.to_table().to_pylist() == ROWS
    assert d.count_rows() == 5
    assert [row for batch in d.to_batches() for row in batch.to_pylist()] == ROWS


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (field("day") == SECOND, [4, 5]),
        (field("n") > 2, [3, 4, 5]),
        ((field("n") > 2) & (field("day") == FIRST), [3]),
        ((field("n") == 5) | (field("day") == FIRST), [1, 2, 3, 5]),
        (field("word").is_null(), [4, 5]),
        (field("word") == "b", [2]),
        (pc.scalar(False), []),
        (pc.scalar(True), [1, 2, 3, 4, 5]),
        (field("day").is_null(), []),
        ((field("word") == "b") | field("word").is_null(), [2, 4, 5]),
    ],
    ids=str,
)
def test_conditions_on_columns_and_on_names_select_rows(sales, condition, expected):
    d = blz.dataset(sales)
    assert d.to_table(filter=condition)["n"].to_pylist() == expected
    assert d.count_rows(condition) == len(expected)
    assert d.to_table(columns=["word"], filter=condition).num_rows == len(expected)
    batches = d.filter(condition).to_batches(columns={"m": field("n") * 2})
    assert [n for batch in batches for n in batch["m"].to_pylist()] == [2 * n for n in expected]


def test_a_table_that_cannot_match_is_not_read(sales):
    for file in (sales / f"day={FIRST}" / "data").rglob("*.bin"):
        file.unlink()
    d = blz.dataset(sales)
    assert d.to_table(filter=field("day") == SECOND)["n"].to_pylist() == [4, 5]
    with pytest.raises(blz.CorruptError):
        d.to_table()
    with pytest.warns(UserWarning, match="left out"):
        assert blz.dataset(sales, on_corrupt="skip").to_table()["n"].to_pylist() == [4, 5]


def test_engines_read_it(sales):
    d = blz.dataset(sales)
    query = "select day, sum(n), count(word) from d where n <> 2 group by day order by day"
    assert duckdb.sql(query).fetchall() == [(FIRST, 4, 2), (SECOND, 9, 0)]
    found = pl.scan_pyarrow_dataset(d).filter(pl.col("day") == SECOND).select("n").collect()
    assert found["n"].to_list() == [4, 5]


def test_patterns_and_lists_name_tables(sales, monkeypatch):
    assert blz.dataset(str(sales / "day=*")).to_table()["day"].to_pylist() == [FIRST] * 3
    assert blz.dataset(sales / "**" / "*.blz").to_table()["n"].to_pylist() == [4, 5]
    paths = [sales / f"day={SECOND}" / "more.blz", sales / f"day={FIRST}"]
    assert blz.dataset(paths).to_table()["n"].to_pylist() == [4, 5, 1, 2, 3]
    assert blz.dataset(tuple(paths)).to_table()["day"].to_pylist() == [SECOND] * 2 + [FIRST] * 3
    monkeypatch.chdir(sales)
    assert blz.dataset("day=*").count_rows(field("day") == FIRST) == 3
    assert blz.dataset(".").to_table().to_pylist() == ROWS


def test_stores_and_bytes_of_files_may_be_listed(sales):
    store = blz.MemoryStore()
    blz.to_blz({"n": [6]}, store)
    data = (sales / f"day={SECOND}" / "more.blz").read_bytes()
    d = blz.dataset([store, data, sales / f"day={FIRST}"])
    assert d.to_table()["n"].to_pylist() == [6, 4, 5, 1, 2, 3]
    assert d.schema.names == ["n", "word"]


def test_the_path_of_one_table_says_nothing(sales):
    assert blz.dataset(sales / f"day={FIRST}").schema.names == ["n", "word"]
    assert blz.dataset([sales / f"day={FIRST}"]).schema.names == ["n", "word"]


def test_what_is_no_table_is_passed_over(sales):
    (sales / "_old").mkdir()
    blz.to_blz({"n": [9]}, sales / "_old" / "t.blz")
    blz.to_blz({"n": [9]}, sales / ".hidden.blz")
    (sales / "notes.blz").write_text("no table")
    (sales / "empty").mkdir()
    assert blz.dataset(sales).count_rows() == 5


def test_a_place_without_tables_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "*.blz", [], [tmp_path / "none.blz"]):
        with pytest.raises(blz.TableNotFoundError):
            blz.dataset(place)


def test_an_older_version_is_one_of_one_table(sales):
    with pytest.raises(ValueError, match="of one table"):
        blz.dataset(sales, version=1)


NAMES = {
    "integers": (["07", "-1"], [7, -1], pa.int64()),
    "dates": (["2026-11-22", "2026-11-21"], [SECOND, FIRST], pa.date32()),
    "texts": (["2026-11-22", "x"], ["2026-11-22", "x"], pa.string()),
    "null": (["__HIVE_DEFAULT_PARTITION__", "3"], [None, 3], pa.int64()),
    "quoted": (["a%2Fb", "%20"], ["a/b", " "], pa.string()),
    "no date": (["2026-02-30", "2026-01-01"], ["2026-02-30", "2026-01-01"], pa.string()),
}


@pytest.mark.parametrize(("texts", "values", "type_"), NAMES.values(), ids=NAMES)
def test_names_of_directories_have_the_first_type_that_takes_all(tmp_path, texts, values, type_):
    paths = [tmp_path / f"key={text}" for text in texts]
    for path in paths:
        blz.to_blz({"n": [1]}, path)
    d = blz.dataset(paths)
    assert d.schema.field("key").type == type_
    assert d.to_table()["key"].to_pylist() == values
    assert blz.dataset(tmp_path).count_rows() == 2


def test_the_types_of_names_can_be_given(sales):
    d = blz.dataset(sales, partitioning=pa.schema({"day": "string"}))
    assert d.to_table(filter=field("day") == str(FIRST))["n"].to_pylist() == [1, 2, 3]
    with pytest.raises(blz.SchemaError, match="day="):
        blz.dataset(sales, partitioning=pa.schema({"day": "int32"}))


def test_a_column_that_a_table_has_is_read_and_not_its_name(tmp_path):
    blz.to_blz({"day": [1, 2]}, tmp_path / "day=7")
    blz.to_blz({"n": [1]}, tmp_path / "day=8")
    assert blz.dataset(tmp_path).to_table()["day"].to_pylist() == [1, 2, 8]


def test_columns_get_the_type_that_holds_both(tmp_path):
    one = pa.table({"a": pa.array([1], "i2"), "b": pa.nulls(1), "c": pa.array([0.5], "f4")})
    other = pa.table({"a": pa.array([70000], "i8"), "b": ["x"], "c": pa.array([0.1], "f8")})
    blz.to_blz(one, tmp_path / "1.blz")
    blz.to_blz(other, tmp_path / "2.blz")
    d = blz.dataset(tmp_path)
    assert d.to_table().to_pydict() == {"a": [1, 70000], "b": [None, "x"], "c": [0.5, 0.1]}
    assert d.count_rows(field("a") > 40000) == 1
    assert d.count_rows(field("a") < 2**40) == 2
    assert d.count_rows(field("c") == 0.1) == 1


def test_types_that_no_type_holds_both_of_are_refused_with_both_paths(tmp_path):
    blz.to_blz({"a": [1]}, tmp_path / "1.blz")
    blz.to_blz({"a": ["x"]}, tmp_path / "2.blz")
    with pytest.raises(blz.SchemaError, match=r"'a' is int64 in .*1\.blz and .* in .*2\.blz"):
        blz.dataset(tmp_path)


def test_a_value_that_the_common_type_does_not_hold_is_refused(tmp_path):
    blz.to_blz({"a": [2**60 + 1]}, tmp_path / "1.blz")
    blz.to_blz({"a": [0.5]}, tmp_path / "2.blz")
    with pytest.raises(blz.SchemaError, match=r"'a' of .*1\.blz"):
        blz.dataset(tmp_path).to_table()


def test_unknown_columns_are_told(sales):
    d = blz.dataset(sales)
    for read in (
        lambda: d.to_table(columns=["z"]),
        lambda: d.to_table(filter=field("z") > 1),
        lambda: blz.dataset(sales, dictionaries=["z"]),
    ):
        with pytest.raises(blz.ColumnNotFoundError):
            read()


def test_text_comes_as_dictionaries_where_asked_for(sales):
    d = blz.dataset(sales, dictionaries=["word"])
    assert pa.types.is_dictionary(d.schema.field("word").type)
    assert d.to_table()["word"].to_pylist() == ["a", "b", "c", None, None]
    assert d.count_rows(field("word") == "b") == 1


def test_rows_are_taken_by_their_numbers_in_all_tables(sales):
    d = blz.dataset(sales)
    assert d.take([4, 0, 3, 0]).to_pylist() == [ROWS[4], ROWS[0], ROWS[3], ROWS[0]]
    assert d.take([], columns=["n"]).num_rows == 0
    for wrong in (5, -1):
        with pytest.raises(IndexError):
            d.take([wrong])


def test_it_pickles_and_keeps_its_versions(sales):
    d = blz.dataset(sales)
    copy = pickle.loads(pickle.dumps(d))
    with blz.open(sales / f"day={FIRST}", mode="a") as t:
        t.delete([("n", "==", 1)])
    assert d.to_table().to_pylist() == copy.to_table().to_pylist() == ROWS
    assert blz.dataset(sales).count_rows() == 4


@pytest.mark.parametrize(
    ("rows", "row_group_rows", "expected"),
    [
        (100, 15, [30, 30, 40]),
        (80, 40, [40, 40]),
        (200, 96, [32, 32, 32, 32, 32, 32, 8]),
        (120, 80, [40, 40, 40]),
        (0, 10, [0]),
    ],
)
def test_a_fragment_has_whole_row_groups_or_a_piece_of_one(
    tmp_path, tuned, rows, row_group_rows, expected
):
    tuned(part_bytes=40 * 8)
    numbers = pa.table({"n": pa.array(range(rows), "i8")})
    blz.to_blz(
        numbers, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=row_group_rows, page_rows=8)
    )
    fragments = list(blz.dataset(tmp_path / "t.blz").get_fragments())
    assert [one.count_rows() for one in fragments] == expected
    assert pa.concat_tables([one.to_table() for one in fragments]).equals(numbers)


def test_a_row_group_whose_file_is_away_costs_its_fragment_only(tmp_path, tuned):
    tuned(part_bytes=40 * 8)
    path = tmp_path / "t.blz"
    blz.to_blz({"n": range(90)}, path, storage=blz.Storage(row_group_rows=30, encoding="plain"))
    with blz.open(path) as table:
        (path / stored.key(table, "n", 1)).unlink()
    first, second, third = blz.dataset(path).get_fragments()
    assert first.to_table()["n"].to_pylist() == [*range(30)]
    assert third.to_table()["n"].to_pylist() == [*range(60, 90)]
    with pytest.raises(blz.CorruptError, match="the file is missing; it has rows 30 to 60"):
        second.to_table()


def test_fragments_have_a_few_row_groups_of_one_table(tmp_path, tuned):
    tuned(part_bytes=40 * 8)
    blz.to_blz({"n": range(100)}, tmp_path / "1.blz", storage=blz.Storage(row_group_rows=20))
    blz.to_blz({"n": range(100, 110)}, tmp_path / "2.blz")
    d = blz.dataset(tmp_path)
    fragments = list(d.get_fragments())
    assert [one.count_rows() for one in fragments] == [40, 40, 20, 10]
    assert [one.count_rows(field("n") > 70) for one in fragments] == [0, 9, 20, 10]
    whole = pa.concat_tables([one.to_table() for one in fragments])
    assert whole["n"].to_pylist() == list(range(110))
    filtered = d.filter(field("n") >= 95)
    assert [one.to_table().num_rows for one in filtered.get_fragments()] == [0, 0, 5, 10]
    one = next(d.get_fragments())
    assert one.take([39, 0])["n"].to_pylist() == [39, 0]
    assert one.head(2, columns=["n"])["n"].to_pylist() == [0, 1]
    with pytest.raises(IndexError):
        one.take([40])


def test_many_tables_take_one_descriptor_each_and_share_those_of_their_files(tmp_path):
    for number in range(150):
        blz.to_blz({"n": [number]}, tmp_path / f"k={number}", durability="process")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    d = blz.dataset(tmp_path)
    assert d.to_table().num_rows == d.count_rows(field("n") >= 0) == 150
    # Of more than 128 tables none keeps a file open.
    assert len(os.listdir("/proc/self/fd")) <= before + 150 + 2
    del d


VALUES = {
    "i": (pa.int64(), st.integers(-3, 3)),
    "f": (pa.float64(), st.sampled_from([-1.0, 0.0, 0.5, 2.0])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ab"])),
}
CONDITIONS = st.recursive(
    st.one_of(
        st.builds(lambda n: field("i") < n, st.integers(-3, 3)),
        st.builds(lambda n: field("i") == n, st.integers(-3, 3)),
        st.builds(lambda x: field("f") >= x, st.sampled_from([-1.0, 0.5])),
        st.builds(lambda s: field("s") == s, st.sampled_from(["a", "b"])),
        st.builds(lambda k: field("k") > k, st.integers(0, 3)),
        st.builds(lambda: field("i") < field("k")),
        st.sampled_from(["i", "f", "s", "k"]).map(lambda name: field(name).is_null()),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda both: both[0] & both[1]),
        st.tuples(inner, inner).map(lambda both: both[0] | both[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=5,
)


@given(st.data(), CONDITIONS)
@settings(max_examples=60)
def test_it_answers_what_the_tables_answer_as_one(data, condition):
    members, tables = [], []
    for number in range(data.draw(st.integers(1, 3))):
        names = data.draw(st.sets(st.sampled_from(list(VALUES)), min_size=1))
        rows = data.draw(st.integers(0, 5))
        columns = {
            name: pa.array(
                data.draw(st.lists(st.none() | VALUES[name][1], min_size=rows, max_size=rows)),
                VALUES[name][0],
            )
            for name in sorted(names)
        }
        store = RamStore()
        blz.to_blz(pa.table(columns), store)
        members.append((store, number))
        tables.append(pa.table(columns))
    d = several(members)
    keys = pa.schema({"k": "i8"})
    whole = pa.concat_tables(
        [
            one.append_column(keys.field("k"), pa.repeat(pa.scalar(key, "i8"), len(one)))
            for one, (_, key) in zip(tables, members, strict=True)
        ],
        promote_options="default",
    )
    missing = [name for name in VALUES if name not in whole.column_names]
    if any(name in str(condition) for name in missing):
        return
    expected = whole.filter(condition).to_pylist()
    by_name = [{name: row[name] for name in d.schema.names} for row in expected]
    assert d.to_table(filter=condition).to_pylist() == by_name
    assert [row for batch in d.to_batches(filter=condition) for row in batch.to_pylist()] == by_name
    assert d.count_rows(condition) == len(expected)
    only = d.to_table(columns=["k"], filter=condition)["k"].to_pylist()
    assert only == [row["k"] for row in expected]


def several(members):
    """Return the dataset of stores with a value of the column `k` each."""
    return BlzDataset(
        Several.of(
            [
                Member("store", blz.dataset(store).source, store, {"k": pa.scalar(key, "i8")})
                for store, key in members
            ]
        )
    )
