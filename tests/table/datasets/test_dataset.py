"""A table as a pyarrow Dataset: pyarrow's own results, or an error that names the alternative."""

import copy
import gc
import pickle
import subprocess
import sys
import threading

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from blztable.table.batches import Batches
from support import stored
from support.samples import array
from support.stores import set_properties

pytestmark = pytest.mark.usefixtures("own_files")

field = pc.field
ROWS = 64


def table() -> pa.Table:
    """Return a table with some columns, one of views, one a dictionary."""
    words = [f"word {row % 10}" if row % 5 else None for row in range(ROWS)]
    columns = {
        "n": pa.array(range(ROWS)),
        "x": pa.array([row / 2 for row in range(ROWS)]),
        "word": pa.array(words),
        "seen": pa.array(words, pa.string_view()),
        "coded": pa.array(words).dictionary_encode(),
    }
    return pa.table(columns).replace_schema_metadata({"source": "till 7"})


def as_given(whole: pa.Table) -> pa.Table:
    """Return the table in the types that engines see."""
    at = whole.column_names.index("seen")
    return whole.set_column(at, "seen", whole["seen"].cast(pa.large_string()))


@pytest.fixture
def path(tmp_path):
    blz.to_blz(
        table(),
        tmp_path / "t.blz",
        storage=blz.Storage(row_group_rows=24, page_rows=8),
        durability="process",
    )
    return tmp_path / "t.blz"


@pytest.fixture
def d(path):
    return blz.dataset(path)


@pytest.fixture
def own():
    """Return a dataset of Arrow's own with the same rows."""
    return ds.dataset(as_given(table()))


SOME = field("n") > 40
PROJECTIONS = {
    "all": None,
    "names": ["word", "n"],
    "names twice": ["n", "n"],
    "views": ["seen"],
    "none": [],
    "expressions": {"double": field("n") * 2, "code": field("coded"), "one": pc.scalar(1)},
    "views as expressions": {"seen": field("seen"), "n": field("n") + 1},
    "expressions under names of columns": {"n": field("n") * 2},
    "names exchanged": {"x": field("n"), "n": field("x")},
    "of texts": {"upper": pc.utf8_upper(field("seen")), "long": pc.utf8_length(field("word"))},
    "no expressions": {},
}


@pytest.mark.parametrize("kept", [None, SOME, field("seen") == "word 7", field("n") < 0], ids=str)
@pytest.mark.parametrize("name", PROJECTIONS)
def test_it_gives_what_a_dataset_of_arrows_own_gives(d, own, name, kept):
    columns = PROJECTIONS[name]
    expected = own.to_table(columns=columns, filter=kept)
    assert same(d.to_table(columns=columns, filter=kept), expected)
    assert same(d.scanner(columns, kept, batch_size=7).to_reader().read_all(), expected)
    batches = list(d.to_batches(columns=columns, filter=kept, batch_size=7))
    assert all(batch.num_rows <= 7 for batch in batches)
    assert same(pa.Table.from_batches(batches, expected.schema), expected)
    assert same(pa.table(d.scanner(columns, kept)), expected)
    assert same(d.head(3, columns=columns, filter=kept), own.head(3, columns, kept))
    assert d.scanner(columns, kept).projected_schema.equals(expected.schema)
    assert d.count_rows(filter=kept) == expected.num_rows
    assert d.scanner(columns, kept).count_rows() == expected.num_rows


def same(left: pa.Table, right: pa.Table) -> bool:
    return left.equals(right) and left.num_rows == right.num_rows


def test_its_schema_is_that_of_the_table_with_its_metadata(d):
    expected = as_given(table()).schema
    assert d.schema.equals(expected, check_metadata=True)
    assert d.scanner().dataset_schema.equals(expected, check_metadata=True)


def test_views_come_as_what_every_engine_can_compare(tmp_path):
    coded = array(pa.dictionary(pa.int16(), pa.string_view()))
    views = pa.table({"text": array(pa.string_view()), "bytes": array(pa.binary_view())})
    blz.to_blz(views.append_column("coded", coded), tmp_path / "t.blz")
    d = blz.dataset(tmp_path / "t.blz")
    kinds = [pa.large_string(), pa.large_binary(), pa.dictionary(pa.int16(), pa.large_string())]
    assert d.schema.types == kinds
    assert d.to_table().to_pydict() == {**views.to_pydict(), "coded": coded.to_pylist()}


def test_a_filtered_dataset_keeps_what_all_filters_keep(d, own):
    filtered = d.filter(SOME).filter(field("n") < 50)
    assert same(filtered.to_table(), own.filter(SOME).filter(field("n") < 50).to_table())
    assert filtered.count_rows() == 9
    assert filtered.count_rows(field("n") != 45) == 8
    assert d.count_rows() == ROWS
    assert duckdb.sql("SELECT count(*) FROM filtered WHERE n > 45").fetchall() == [(4,)]
    assert [one.count_rows() for one in filtered.get_fragments()] == [9]


def test_rows_are_taken_by_their_numbers(d, own):
    assert same(d.take([3, 60, 3]), own.take([3, 60, 3]))
    assert same(d.take([3, 60, 3], ["word", "n"]), own.take([3, 60, 3], ["word", "n"]))
    found = d.take(pa.array([1, 0]), columns=["n"], filter=SOME)
    assert found["n"].to_pylist() == [42, 41]


def test_its_one_fragment_has_all_rows(d, own):
    (fragment,) = d.get_fragments(filter=SOME)
    assert fragment.physical_schema.equals(d.schema)
    assert fragment.partition_expression.equals(pc.scalar(True))
    expected = own.to_table(columns=["word"], filter=SOME)
    assert same(fragment.to_table(schema=d.schema, columns=["word"], filter=SOME), expected)
    scanner = fragment.scanner(schema=d.schema, columns=["word"], filter=SOME, batch_size=5)
    assert same(scanner.to_table(), expected)
    assert same(fragment.to_table(), own.to_table())
    assert same(fragment.head(2), own.head(2))
    assert fragment.count_rows() == ROWS
    assert fragment.count_rows(SOME) == ROWS - 41


def test_what_else_pyarrows_datasets_take_is_taken(d):
    options = {
        "batch_readahead": 4,
        "fragment_readahead": 2,
        "use_threads": False,
        "cache_metadata": False,
        "memory_pool": pa.default_memory_pool(),
        "fragment_scan_options": None,
    }
    assert d.to_table(["n"], **options).num_rows == ROWS
    assert sum(batch.num_rows for batch in d.to_batches(["n"], **options)) == ROWS
    assert d.count_rows(**options) == ROWS


def test_a_scan_can_be_read_again(d):
    scan = d.scanner(["n"], SOME)
    assert scan.to_table() == scan.to_table() == scan.to_reader().read_all()


class TestWrong:
    """Wrong arguments raise an error before any read."""

    def test_a_column_that_is_not_there(self, d):
        for ask in (
            lambda: d.scanner(["n", "z"]),
            lambda: d.scanner({"y": field("z")}),
            lambda: d.scanner(filter=field("z") > 1),
            lambda: d.filter(field("z") > 1),
            lambda: d.get_fragments(field("z") > 1),
        ):
            with pytest.raises(blz.ColumnNotFoundError, match="no column is named 'z'"):
                ask()

    def test_types_that_do_not_go_together(self, d):
        for ask in (
            lambda: d.scanner(filter=field("word") > 1),
            lambda: d.filter(field("n")),
            lambda: d.scanner({"y": field("word") + 1}),
        ):
            with pytest.raises(blz.SchemaError):
                ask()

    def test_one_name_instead_of_a_list(self, d):
        with pytest.raises(TypeError, match="list of names"):
            d.scanner("n")

    def test_a_name_that_is_there_twice(self, tmp_path):
        twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "b", "a"])
        blz.to_blz(twice, tmp_path / "t.blz")
        d = blz.dataset(tmp_path / "t.blz")
        assert d.to_table(columns=["b"]).to_pydict() == {"b": [2]}
        for columns in (None, ["a"], {"y": field("a")}):
            with pytest.raises(blz.SchemaError, match=r"(2|several) columns are named 'a'"):
                d.scanner(columns)


class TestUnsupported:
    """Calls that would reach Arrow's own code, which does not know our files."""

    @pytest.mark.parametrize(
        "ask",
        [
            lambda d: d.sort_by("n"),
            lambda d: d.join(d, "n"),
            lambda d: d.join_asof(d, "n", "word", 1),
            lambda d: d.replace_schema(d.schema),
            lambda d: ds.dataset([d, d]),
        ],
    )
    def test_what_is_not_supported_says_what_to_do(self, d, ask):
        with pytest.raises(NotImplementedError, match=r"call its to_table\(\) first"):
            ask(d)

    @pytest.mark.parametrize(
        "ask",
        [
            lambda d: ds.Scanner.from_dataset(d).to_table(),
            lambda d: ds.Scanner.from_dataset(d).count_rows(),
            lambda d: ds.FileSystemDataset.head(d, 1) and ds.Dataset.scanner(d).to_table(),
            lambda d: acero.Declaration("scan", acero.ScanNodeOptions(d)).to_table(),
        ],
    )
    def test_arrows_own_scan_says_what_to_do(self, d, ask):
        with pytest.raises(OSError, match=r"cannot scan a blztable dataset.*to_table\(\)"):
            ask(d)

    def test_arrow_writes_what_is_scanned(self, d, tmp_path):
        with pytest.raises(TypeError, match=r"expected pyarrow\._dataset\.Scanner"):
            ds.write_dataset(d, tmp_path / "out", format="feather")
        ds.write_dataset(d.scanner(["n"], SOME).to_reader(), tmp_path / "out", format="feather")
        assert ds.dataset(tmp_path / "out", format="feather").count_rows() == ROWS - 41


class TestVersion:
    """A dataset shows one version, and holds it."""

    def test_it_holds_its_version_as_long_as_it_lives(self, path):
        d = blz.dataset(path)
        store = LocalStore(path)
        set_properties(store, keep_versions=1)
        set_properties(store, keep_versions=1)
        assert 1 in versions.numbers(store)
        blz.to_blz({"n": [1]}, path)
        assert d.count_rows(SOME) == len(d.to_table(["n"], SOME)) == ROWS - 41
        del d
        gc.collect()
        blz.to_blz({"n": [1]}, path)
        assert 1 not in versions.numbers(store)

    def test_an_older_version_is_shown_on_request(self, path):
        blz.to_blz({"n": [1]}, path)
        assert blz.dataset(path).count_rows() == 1
        assert blz.dataset(path, version=1).count_rows() == ROWS
        with pytest.raises(blz.TableNotFoundError):
            blz.dataset(path, version=9)

    def test_a_table_goes_on_and_its_dataset_stays(self, path):
        with blz.open(path, "a") as opened:
            d = opened.dataset()
            opened.delete([("n", ">", 5)])
            after = opened.dataset()
            assert after.count_rows() == 6
            assert d.count_rows() == ROWS
            assert opened[["n", "word"]].dataset().schema.names == ["n", "word"]
        with pytest.raises(blz.ClosedError, match="was closed"):
            after.to_table()
        with pytest.raises(blz.ClosedError, match="was closed"):
            opened.dataset()

    def test_it_pickles_as_path_version_and_filter(self, path):
        d = blz.dataset(path).filter(SOME)
        blz.to_blz({"n": [1]}, path)
        for again in (pickle.loads(pickle.dumps(d)), copy.copy(d), copy.deepcopy(d)):
            assert type(again) is type(d)
            assert again.to_table().equals(d.to_table())
        assert len(pickle.dumps(d)) < 4000


def test_threads_scan_it_at_the_same_time(d):
    expected, found = d.to_table(filter=SOME), []

    def scan():
        found.append(d.scanner(filter=SOME).to_reader().read_all())
        found.append(pl.from_arrow(d.to_table(filter=SOME)).to_arrow()["n"])

    threads = [threading.Thread(target=scan) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one == expected for one in found if isinstance(one, pa.Table)) == 4
    assert len(found) == 8


def test_damage_reaches_engines_with_its_message(d, path):
    with blz.open(path) as table:
        key = stored.key(table, "n", 1)
    part = path / key
    part.write_bytes(part.read_bytes()[:-200])
    with pytest.raises(blz.CorruptError, match=key):
        d.to_table(columns=["n"])
    with pytest.raises(Exception, match=key):
        duckdb.sql("SELECT sum(n) FROM d").fetchall()
    with pytest.raises(Exception, match=key):
        pl.scan_pyarrow_dataset(d).select("n").collect()


@pytest.mark.parametrize("columns", [["n"], ["seen"], {"double": field("n") * 2}], ids=str)
def test_batches_are_fetched_by_who_asks_for_them(d, monkeypatch, columns):
    # A thread of Arrow would wait for the ended interpreter, and the process for the thread.
    fetched_by = set()
    fetch = Batches.__next__

    def watched(batches):
        fetched_by.add(threading.get_ident())
        return fetch(batches)

    monkeypatch.setattr(Batches, "__next__", watched)
    assert len(list(d.to_batches(columns, batch_size=8))) == ROWS / 8
    assert d.scanner(columns).to_reader().read_all().num_rows == ROWS
    assert next(d.get_fragments()).to_table(columns=columns).num_rows == ROWS
    assert fetched_by == {threading.get_ident()}


ABANDONING = {
    "batches": "scan = d.to_batches(); next(scan)",
    "reader": "scan = d.scanner().to_reader(); scan.read_next_batch()",
    "duckdb": """
import duckdb
with duckdb.connect() as connection:
    assert len(connection.execute("SELECT * FROM d LIMIT 1").fetchall()) == 1""",
    "datafusion": """
import datafusion
context = datafusion.SessionContext()
context.register_dataset("d", d)
stream = context.sql("SELECT * FROM d").execute_stream()
next(stream)""",
    "polars": """
import polars
assert polars.scan_pyarrow_dataset(d).head(1).collect(engine="streaming").height == 1""",
}


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Return the path of a table of which a scan takes a while."""
    path = tmp_path_factory.mktemp("long") / "t.blz"
    numbers = pa.array(range(1_000_000))
    whole = pa.table({"n": numbers, "word": numbers.cast(pa.string())})
    blz.to_blz(whole, path, storage=blz.Storage(row_group_rows=1 << 15), durability="process")
    return path


@pytest.mark.parametrize("abandon", ABANDONING)
def test_a_process_ends_that_leaves_a_scan_in_the_middle(long, abandon):
    opening = "import sys, blztable\nd = blztable.dataset(sys.argv[1])\n"
    command = [sys.executable, "-c", opening + ABANDONING[abandon], str(long)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_word_that_is_no_argument_is_told_and_not_taken_for_all_rows():
    store = RamStore()
    blz.to_blz({"n": range(9)}, store)
    d = blz.open(store).dataset()
    for call in (d.to_table, d.count_rows, d.scanner, d.to_batches):
        with pytest.raises(TypeError, match="unexpected keyword argument 'filters'"):
            call(filters=pc.field("n") < 3)
    assert d.to_table(use_threads=False, filter=[("n", "<", 3)]).num_rows == 3


WORDS = ["x", "x", None, "yy", "yy", "x"]
# Types of which Arrow takes no rows, or joins no two dictionaries.
OF_ANY_TYPE = {
    "view": pa.array(WORDS, pa.string_view()),
    "runs": pc.run_end_encode(pa.array(WORDS)),
    "runs of codes": pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3, 6], pa.int16()), pa.array(["x", None, "x"]).dictionary_encode()
    ),
    "runs in lists": pa.ListArray.from_arrays(
        pa.array([0, 1, 1, 2, 4, 5, 6], pa.int32()), pc.run_end_encode(pa.array(WORDS))
    ),
    "null among values": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, None, 1, 0], pa.int8()), pa.array(["x", None, "yy"])
    ),
    "codes of lists": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0, None, 1, 0], pa.int8()), pa.array([["x"], []])
    ),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1, 0, 1], pa.int8()), [pa.array(range(6)), pa.array(WORDS)]
    ),
}


@pytest.mark.parametrize("kind", OF_ANY_TYPE)
def test_rows_of_any_type_are_taken(kind):
    column = OF_ANY_TYPE[kind]
    data = pa.table({"a": column, "n": range(6)})
    stores = [blz.MemoryStore(), blz.MemoryStore()]
    for store in stores:
        blz.to_blz(data, store, storage=blz.Storage(row_group_rows=4))
    one, values = blz.dataset(stores[0]), column.to_pylist()
    computed = {"a": pc.field("a"), "b": pc.field("n") + 1}
    behind = pc.field("n") > 0
    found = {
        "all": (one.take([5, 0, 3]), [5, 0, 3]),
        "none": (one.take([]), []),
        "views": (blz.dataset(stores[0], views=True).take([5, 0]), [5, 0]),
        "filtered": (one.take([4, 0, 2], filter=behind), [5, 1, 3]),
        "computed": (one.take([5, 0], columns=computed), [5, 0]),
        "both": (one.take([4, 0], columns=computed, filter=behind), [5, 1]),
        "damaged": (blz.dataset(stores[0], on_corrupt="skip").take([5, 0]), [5, 0]),
        "several": (blz.dataset(stores).take([11, 0, 3]), [5, 0, 3]),
        "several filtered": (blz.dataset(stores).take([9, 0], filter=behind), [5, 1]),
    }
    for way, (rows, places) in found.items():
        assert rows["a"].to_pylist() == [values[place] for place in places], way
        rows.validate(full=True)
    with pytest.raises(IndexError):
        one.take([5], filter=behind)
