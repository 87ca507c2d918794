"""Query engines: they push down columns and filters, read less, and agree on the rows.

The queries are SQL conditions that DuckDB, DataFusion and Polars all understand, each with Arrow's
result on the whole table in memory.
"""

import datetime
import decimal
from collections import Counter

import datafusion
import duckdb
import hypothesis.strategies as st
import ibis
import narwhals
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings

import blztable as blz
from blztable.format import layout
from blztable.storage.memory import RamStore
from support.options import arguments

ROWS = 400
UTC = datetime.UTC
START = datetime.datetime(2026, 1, 1)
field, scalar = pc.field, pc.scalar


def some(values) -> list:
    """Return the values with every fifth one null."""
    return [None if row % 5 == 3 else value for row, value in enumerate(values)]


def table() -> pa.Table:
    """Return a table of the types that all engines accept; `n` numbers the rows."""
    hours = [START + datetime.timedelta(hours=row) for row in range(ROWS)]
    words = [f"word {row % 40:02}" for row in range(ROWS)]
    floats = [float("nan") if row % 7 == 2 else row / 4 for row in range(ROWS)]
    columns = {
        "n": pa.array(range(ROWS), "i8"),
        "small": pa.array(some(row % 100 for row in range(ROWS)), "i1"),
        "unsigned": pa.array(some(range(ROWS)), "u4"),
        "f": pa.array(some(floats), "f8"),
        "flag": pa.array(some(row % 3 == 0 for row in range(ROWS))),
        "word": pa.array(some(words), pa.string()),
        "large": pa.array(some(words), pa.large_string()),
        "seen": pa.array(some(words), pa.string_view()),
        "coded": pa.array(some(words)).dictionary_encode(),
        "day": pa.array(some(hour.date() for hour in hours), pa.date32()),
        "time": pa.array(some(hours), pa.timestamp("us")),
        "nanos": pa.array(some(hours), pa.timestamp("ns")),
        "zoned": pa.array(some(hours), pa.timestamp("us", "UTC")),
        "price": pa.array(
            some(decimal.Decimal(row) / 4 for row in range(ROWS)), pa.decimal128(9, 2)
        ),
        "nothing": pa.array([None] * ROWS, "i4"),
    }
    return pa.table(columns)


def moment(hours: int, zone=None) -> datetime.datetime:
    return (START + datetime.timedelta(hours=hours)).replace(tzinfo=zone)


NOON = "TIMESTAMP '2026-01-03 12:00:00'"
# Conditions in SQL, and as Arrow expressions.
CONDITIONS = {
    "n = 7": field("n") == 7,
    "n <> 7": field("n") != 7,
    "n < 9": field("n") < 9,
    "n >= 390": field("n") >= 390,
    "7 > n": field("n") < 7,
    "n BETWEEN 95 AND 105": (field("n") >= 95) & (field("n") <= 105),
    "n IN (1, 250, 999)": field("n").isin([1, 250, 999]),
    "n NOT IN (1, 250)": ~field("n").isin([1, 250]),
    "NOT (n < 390)": field("n") >= 390,
    "n < 0": scalar(False),
    "n < 5 OR n > 395": (field("n") < 5) | (field("n") > 395),
    "n < 50 AND small > 40": (field("n") < 50) & (field("small") > 40),
    "small = 7": field("small") == 7,
    "small IS NULL": field("small").is_null(),
    "small IS NOT NULL AND n < 10": field("small").is_valid() & (field("n") < 10),
    "small IS NULL OR small > 97": field("small").is_null() | (field("small") > 97),
    "NOT (small > 3)": field("small") <= 3,
    "unsigned > 390": field("unsigned") > 390,
    "f IS NULL": field("f").is_null(),
    "f = 1.0": field("f") == 1.0,
    "f < 2.5": field("f") < 2.5,
    "flag": field("flag"),
    "NOT flag": ~field("flag"),
    "flag IS NULL": field("flag").is_null(),
    "word = 'word 07'": field("word") == "word 07",
    "word > 'word 38'": field("word") > "word 38",
    "word IN ('word 01', 'word 02')": field("word").isin(["word 01", "word 02"]),
    "word LIKE 'word 0%'": pc.starts_with(field("word"), "word 0"),
    "large = 'word 07'": field("large") == "word 07",
    "seen = 'word 07'": field("word") == "word 07",
    "seen >= 'word 38'": field("word") >= "word 38",
    "coded = 'word 07'": field("word") == "word 07",
    "coded IN ('word 01', 'word 02')": field("word").isin(["word 01", "word 02"]),
    "day = DATE '2026-01-03'": field("day") == datetime.date(2026, 1, 3),
    "day > DATE '2026-01-16'": field("day") > datetime.date(2026, 1, 16),
    f"time < {NOON}": field("time") < moment(60),
    f"time >= {NOON} AND n < 70": (field("time") >= moment(60)) & (field("n") < 70),
    f"nanos = {NOON}": field("nanos") == moment(60),
    "price = 2.5": field("price") == decimal.Decimal("2.50"),
    "price > 99": field("price") > decimal.Decimal(99),
    "nothing IS NULL": scalar(True),
    "nothing = 1": scalar(False),
}


def by_duckdb(d, condition: str) -> list[int]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return [
            row for (row,) in connection.execute(f"SELECT n FROM d WHERE {condition}").fetchall()
        ]


def by_datafusion(d, condition: str) -> list[int]:
    context = datafusion.SessionContext()
    context.register_dataset("d", d)
    return context.sql(f"SELECT n FROM d WHERE {condition}").to_arrow_table()["n"].to_pylist()


def by_polars(d, condition: str, engine="in-memory") -> list[int]:
    query = pl.scan_pyarrow_dataset(d).filter(pl.sql_expr(condition)).select("n")
    return query.collect(engine=engine)["n"].to_list()


def by_polars_streaming(d, condition: str) -> list[int]:
    return by_polars(d, condition, "streaming")


ENGINES = [by_duckdb, by_datafusion, by_polars, by_polars_streaming]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Write the table in many row groups and pages."""
    path = tmp_path_factory.mktemp("engines") / "t.blz"
    blz.to_blz(
        table(), path, storage=blz.Storage(row_group_rows=100, page_rows=8), durability="process"
    )
    return path


@pytest.fixture(scope="module")
def dataset(path):
    return blz.dataset(path)


@pytest.fixture(scope="module")
def own_copy():
    """Return a copy of the table in DuckDB's memory."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("whole", table())
        connection.execute("CREATE TABLE own AS SELECT * FROM whole")
        yield connection


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_engines_find_the_rows_that_arrow_finds(dataset, engine, condition):
    # Without views, which Arrow cannot filter.
    whole = table().drop_columns(["seen"])
    expected = whole.filter(CONDITIONS[condition])["n"].to_pylist()
    assert sorted(engine(dataset, condition)) == expected


# Written for each engine: times with a zone, and NaN, which some engines order above all numbers.


@pytest.mark.parametrize(
    "condition",
    [
        "zoned = TIMESTAMPTZ '2026-01-03 12:00:00+00'",
        "zoned > TIMESTAMPTZ '2026-01-17 01:00:00+02'",
        "f > 90",
        "f = 'nan'",
        "f IN (1.0, 2.5)",
        "f = 1.0 OR f = 'nan'",
        "f <> 1.0",
        "isnan(f)",
        "coded > word",
        "word || 'x' = 'word 07x'",
        "n % 10 = 3",
        "small + 1 = 8",
    ],
)
def test_duckdb_finds_the_rows_that_it_finds_in_its_own_copy(dataset, own_copy, condition):
    rows = own_copy.execute(f"SELECT n FROM own WHERE {condition} ORDER BY n").fetchall()
    assert sorted(by_duckdb(dataset, condition)) == [row for (row,) in rows]


POLARS = {
    "zoned": pl.col("zoned") > moment(380, UTC),
    "is_in": pl.col("zoned").is_in([moment(5, UTC), moment(6, UTC)]),
    "text": pl.col("seen").str.starts_with("word 0"),
    "is_between": pl.col("time").is_between(moment(5), moment(9)),
    "mixed": (pl.col("price") > 1) & pl.col("word").str.ends_with("7") | (pl.col("n") == 1),
    "nan": pl.col("f").is_nan(),
    "missing": pl.col("coded").is_null() & (pl.col("n") < 50),
    "never": pl.lit(False),
}


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("name", POLARS)
def test_polars_finds_the_rows_that_it_finds_in_memory(dataset, name, engine):
    whole = pl.DataFrame(table()).filter(POLARS[name])
    found = pl.scan_pyarrow_dataset(dataset).filter(POLARS[name]).collect(engine=engine)
    assert found.select(whole.columns).equals(whole)


def test_all_columns_of_all_rows_pass_every_engine(path):
    names = [name for name in table().column_names if name != "f"]
    rows = table().select(names).to_pylist()
    with blz.open(path) as opened:
        d = opened[names].dataset()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            assert connection.sql("SELECT * FROM d").to_arrow_table().to_pylist() == rows
        assert pl.scan_pyarrow_dataset(d).collect().to_dicts() == rows
        context = datafusion.SessionContext()
        context.register_dataset("d", d)
        assert context.sql("SELECT * FROM d").to_arrow_table().to_pylist() == rows


# Less data are read


class Watched(RamStore):
    """A store that counts the bytes read of each file."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def open(self, key, size=None):
        return Reader(super().open(key), key, self.read)

    @property
    def columns(self) -> dict[str, int]:
        """Return the bytes read of each column, named as in the table below."""
        found: Counter[str] = Counter()
        for key, length in self.read.items():
            if not key.startswith(layout.DATA):
                continue
            found["kvw"[int(key.split("/")[1].removeprefix("col"))]] += length
        self.read.clear()
        return dict(found)


class Reader:
    """A reader that counts the bytes read of its file."""

    def __init__(self, reader, key: str, read: Counter[str]) -> None:
        self._reader, self._key, self._counter = reader, key, read

    def __getattr__(self, name):
        return getattr(self._reader, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._reader.close()

    def read(self, offset, length):
        self._counter[self._key] += length
        return self._reader.read(offset, length)

    def read_into(self, offset, buffer):
        self._counter[self._key] += len(buffer)
        return self._reader.read_into(offset, buffer)


@pytest.fixture(scope="module")
def watched():
    """Return a store and its dataset: 3 columns of noise, the first one sorted, 8 row groups."""
    rows = 1 << 16
    noise = np.random.default_rng(0).integers(0, 1 << 60, (3, rows))
    data = pa.table({"k": np.sort(noise[0]), "v": noise[1], "w": noise[2]})
    store = Watched()
    options = {"encoding": "plain", "durability": "process"}
    blz.to_blz(data, store, **arguments(row_group_rows=rows // 8, page_rows=1024, **options))
    return store, blz.dataset(store), data


COLUMN_BYTES = 8 << 16


def everyone(d, sql: str, polars_query) -> dict[str, list]:
    """Return the column that a query yields, from every engine."""
    context = datafusion.SessionContext()
    context.register_dataset("d", d)
    with duckdb.connect() as connection:
        connection.register("d", d)
        yield "duckdb", lambda: connection.sql(sql).to_arrow_table()["v"].to_pylist()
    yield "datafusion", lambda: context.sql(sql).to_arrow_table()["v"].to_pylist()
    lazy = polars_query(pl.scan_pyarrow_dataset(d))
    yield "polars", lambda: lazy.collect()["v"].to_list()
    yield "streaming", lambda: lazy.collect(engine="streaming")["v"].to_list()


def test_a_column_that_a_query_does_not_name_is_not_read(watched):
    store, d, data = watched
    for name, run in everyone(d, "SELECT v FROM d", lambda lazy: lazy.select("v")):
        store.read.clear()
        assert run() == data["v"].to_pylist(), name
        assert store.columns.keys() == {"v"}, name


def test_pages_without_rows_that_a_condition_keeps_are_not_read(watched):
    store, d, data = watched
    low, high = data["k"][30_000].as_py(), data["k"][30_009].as_py()
    sql = f"SELECT v FROM d WHERE k BETWEEN {low} AND {high}"
    for name, run in everyone(
        d, sql, lambda lazy: lazy.filter(pl.col("k").is_between(low, high)).select("v")
    ):
        store.read.clear()
        assert run() == data["v"][30_000:30_010].to_pylist(), name
        read = store.columns
        assert read.keys() == {"k", "v"}, name
        # Fronts and trailers, and in one row group the chunk that holds the rows.
        assert max(read.values()) < COLUMN_BYTES / 4, (name, read)


def test_rows_are_counted_without_reading_any(watched):
    store, d, data = watched
    context = datafusion.SessionContext()
    context.register_dataset("d", d)
    store.read.clear()
    assert d.count_rows() == data.num_rows
    assert context.sql("SELECT count(*) AS n FROM d").to_pydict() == {"n": [data.num_rows]}
    assert store.columns == {}


def test_the_plans_show_columns_and_conditions_in_the_scan(dataset):
    sql = "SELECT word FROM dataset WHERE n < 9 AND word = 'word 07'"
    with duckdb.connect() as connection:
        (plan,) = (text for _, text in connection.execute(f"EXPLAIN {sql}").fetchall())
        scan = plan.partition("Python Arrow Scan")[2]
        assert "Filters" in scan, plan
        assert '"n" < 9' in scan, plan
        assert "word 07" in scan, plan
        assert "Projections: word" in scan, plan
        assert "FILTER" not in plan.upper().replace("FILTERS", ""), plan
    context = datafusion.SessionContext()
    context.register_dataset("dataset", dataset)
    plan = "\n".join(context.sql(f"EXPLAIN {sql}").to_pydict()["plan"])
    assert "TableScan: dataset projection=[word], full_filters=[" in plan
    assert "DatasetExec: number_of_fragments=1, filter_expr=" in plan
    assert "FilterExec" not in plan
    query = pl.scan_pyarrow_dataset(dataset).filter(pl.col("n") < 9).select("word")
    plan = query.explain()
    assert "PROJECT 2/15 COLUMNS" in plan
    assert 'SELECTION: col("n") < 9' in plan
    assert "FILTER" not in plan


def test_a_limit_ends_the_scan(watched):
    store, d, data = watched
    for name, run in everyone(d, "SELECT v FROM d LIMIT 3", lambda lazy: lazy.select("v").head(3)):
        store.read.clear()
        assert run() == data["v"][:3].to_pylist(), name


# Objects built on a dataset


# It calls a function that DuckDB is about to drop.
@pytest.mark.filterwarnings("ignore:fetch_arrow_table")
def test_ibis_reads_what_it_needs(watched):
    store, d, data = watched
    store.read.clear()
    connection = ibis.duckdb.connect()
    connection.con.register("d", d)
    lines = connection.table("d")
    found = lines.filter(lines.k < data["k"][5].as_py()).select("v").to_pyarrow()
    connection.disconnect()
    assert found["v"].to_pylist() == data["v"][:5].to_pylist()
    read = store.columns
    assert read.keys() == {"k", "v"}
    assert max(read.values()) < COLUMN_BYTES / 4


def test_narwhals_reads_what_it_needs(watched):
    store, d, data = watched
    least = data["k"][5].as_py()
    with duckdb.connect() as connection:
        for native in (pl.scan_pyarrow_dataset(d), connection.from_arrow(d)):
            store.read.clear()
            lines = narwhals.from_native(native)
            found = lines.filter(narwhals.col("k") < least).select("v").collect()
            assert found["v"].to_list() == data["v"][:5].to_pylist()
            read = store.columns
            assert read.keys() == {"k", "v"}
            assert max(read.values()) < COLUMN_BYTES / 4


# Any condition

NUMBERS = st.sampled_from([-1, 0, 1, 3, 7, 50, 99, 100, 120, 399, 1000])
WORDS = st.sampled_from(["", "word", "word 00", "word 07", "word 39", "x"])
VALUES = {
    **dict.fromkeys(["n", "small", "unsigned", "nothing"], NUMBERS.map(str)),
    **dict.fromkeys(["word", "large", "seen", "coded"], WORDS.map("'{}'".format)),
    "f": st.sampled_from(["0.0", "-1.5", "2.25", "99.75", "50.0"]),
    "price": st.sampled_from(["0.00", "2.25", "99.75", "17.10"]),
    "time": st.integers(-1, ROWS).map(lambda hours: f"TIMESTAMP '{moment(hours)}'"),
    "day": st.integers(-1, 20).map(lambda days: f"DATE '{moment(24 * days).date()}'"),
}


@st.composite
def predicates(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    value = VALUES[name]
    match draw(st.sampled_from(["compare", "in", "null", "between"])):
        case "compare":
            return (
                f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(value)}"
            )
        case "in":
            return f"{name} IN ({', '.join(draw(st.lists(value, min_size=1, max_size=4)))})"
        case "null":
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case _:
            return f"{name} BETWEEN {draw(value)} AND {draw(value)}"


CONDITION = st.recursive(
    predicates(),
    lambda more: st.one_of(
        st.builds("({} AND {})".format, more, more),
        st.builds("({} OR {})".format, more, more),
        st.builds("(NOT {})".format, more),
    ),
    max_leaves=4,
)
thorough = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@thorough
@given(condition=CONDITION)
def test_duckdb_finds_the_same_rows_by_any_condition(dataset, own_copy, condition):
    rows = own_copy.execute(f"SELECT n FROM own WHERE {condition} ORDER BY n").fetchall()
    assert sorted(by_duckdb(dataset, condition)) == [row for (row,) in rows]


@thorough
@given(condition=CONDITION)
def test_polars_finds_the_same_rows_by_any_condition(dataset, condition):
    # On a dataset of Arrow's own, because Polars orders NaN above all numbers and Arrow does not.
    whole = table()
    view = whole.column_names.index("seen")
    whole = whole.set_column(view, "seen", whole["seen"].cast(pa.large_string()))
    assert by_polars(dataset, condition) == by_polars(ds.dataset(whole), condition)


def test_datafusion_groups_a_table_that_pandas_wrote(tmp_path):
    frame = pl.DataFrame({"shop": ["a", "b"] * 4, "sold": range(8)}).to_pandas()
    frame.to_blz(tmp_path / "t.blz")
    context = datafusion.SessionContext()
    context.register_dataset("d", blz.dataset(tmp_path / "t.blz"))
    for sql, rows in (
        ("SELECT shop, sum(sold) FROM d GROUP BY shop", 2),
        ("SELECT count(*) FROM d", 1),
    ):
        assert context.sql(sql).to_arrow_table().num_rows == rows
