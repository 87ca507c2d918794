"""The public face: the calls that users make, their results, and the error messages."""

import copy
import datetime
import gc
import importlib
import inspect
import json
import os
import pickle
import re
import tempfile
import threading
import typing
import warnings

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import blztable as blz
import blztable.accessor
from blztable.engine.read.columns import OpenColumns
from blztable.engine.version import versions
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support import stored
from support.bit_equality import assert_same
from support.frame_strategies import frames
from support.options import arguments

DATA = pa.table(
    {
        "n": pa.array([1, 2, None, 4, 5], "i8"),
        "x": [0.5, 1.5, 2.5, 3.5, 4.5],
        "text": ["a", None, "c", "ä", "e"],
    }
)
FRAME = pd.DataFrame({"n": [1, 2, 3], "x": [0.5, 1.5, 2.5], "text": ["a", None, "c"]})


@pytest.fixture
def path(tmp_path):
    """Make a table of two row groups and three columns."""
    blz.to_blz(DATA, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=3, attrs={"till": 7}))
    return tmp_path / "t.blz"


# The functions


def test_every_public_name_is_there_and_documented():
    for name in blz.__all__:
        assert getattr(blz, name).__doc__, name
    for kind in (blz.CTable, blz.Column, blz.Attributes):
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                assert member.__doc__, f"{kind.__name__}.{name}"


def test_a_frame_goes_in_and_comes_back(tmp_path):
    assert FRAME.to_blz(tmp_path / "t.blz") is None
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz"), FRAME)
    assert blz.to_blz(FRAME, str(tmp_path / "u.blz")) is None
    pd.testing.assert_frame_equal(blz.read_blz(str(tmp_path / "u.blz")), FRAME)


def test_a_store_is_a_place_too():
    store = RamStore("shelf")
    blz.to_blz(DATA, store)
    assert blz.read_table(store) == DATA
    with blz.open(store) as table:
        assert table.path == "shelf"


def test_a_path_begins_at_home_where_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    blz.to_blz(DATA, "~/t.blz")
    assert blz.read_table(tmp_path / "t.blz") == DATA


def test_a_path_of_bytes_is_taken_for_the_bytes_of_a_table():
    with pytest.raises(TypeError, match="a path, a binary file or a store, found bytes"):
        blz.to_blz(DATA, b"t.blz")
    with pytest.raises(blz.FormatError, match="bytes in memory is a file that holds no table"):
        blz.read_blz(b"t.blz")


@pytest.mark.parametrize("place", [7, None, ["t.blz"]])
def test_what_is_no_path_is_told(place):
    for action in (lambda: blz.to_blz(DATA, place), lambda: blz.read_blz(place)):
        with pytest.raises(
            TypeError,
            match="expected a path, a binary file or a store, found " + type(place).__name__,
        ):
            action()


def test_mode_x_refuses_and_mode_w_replaces(path):
    with pytest.raises(blz.TableExistsError, match=f"a table already exists at {path}") as caught:
        FRAME.to_blz(path, mode="x")
    assert isinstance(caught.value, FileExistsError)
    assert blz.read_table(path) == DATA
    FRAME.to_blz(path)
    pd.testing.assert_frame_equal(blz.read_blz(path), FRAME)
    assert blz.read_table(path, version=1) == DATA
    pd.testing.assert_frame_equal(blz.read_blz(path, version=2), FRAME)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "r"}, "mode must be one of 'w', 'a', 'x', not 'r'"),
        ({"compression": "blosclz"}, "compression must be one of None, 'lz4', .*, not 'blosclz'"),
        ({"compression": {"n": "gzip"}}, "compression must be one of .*, not 'gzip'"),
        ({"optimize": "space"}, "optimize must be one of None, 'speed', 'size', not 'space'"),
        ({"optimize": {"n": 1}}, "optimize must be one of None, 'speed', 'size', not 1"),
        ({"clevel": 10}, "clevel must be an integer from 0 to 9, not 10"),
        ({"clevel": True}, "clevel must be an integer from 0 to 9, not True"),
        ({"shuffle": "bits"}, "shuffle must be one of .*, not 'bits'"),
        ({"durability": "some"}, "durability must be one of 'full', 'process', not 'some'"),
        ({"page_rows": 1000}, "page_rows must be a power of two from 8.*, not 1000"),
        ({"row_group_rows": 0}, "row_group_rows must be an integer from 1 to 2..62, not 0"),
    ],
)
def test_an_option_that_makes_no_sense_is_told_before_anything_is_written(
    tmp_path, options, message
):
    with pytest.raises(ValueError, match=message) as caught:
        blz.to_blz(DATA, tmp_path / "t.blz", **arguments(**options))
    assert not isinstance(caught.value, blz.BlzError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.int64])
def test_a_number_of_numpy_is_a_number_as_an_option(kind):
    store = RamStore()
    options = {"clevel": {"n": kind(9)}, "row_group_rows": kind(2), "page_rows": kind(64)}
    blz.to_blz(DATA, store, **arguments(**options))
    with blz.open(store) as table:
        kept = table._snapshot.version.head.properties
        assert {name: kept[name] for name in options} == {
            "clevel": {"n": 9},
            "row_group_rows": 2,
            "page_rows": 64,
        }
    assert blz.read_table(store) == DATA


@pytest.mark.parametrize("value", [np.bool_(True), np.float64(5), 5.0, "5", [5], np.arange(2)])
@pytest.mark.parametrize("option", ["clevel", "row_group_rows", "page_rows"])
def test_what_is_no_integer_is_refused_as_an_option(option, value):
    with pytest.raises(ValueError, match=f"{option} must be a"):
        blz.to_blz(DATA, RamStore(), **arguments(**{option: value}))


@pytest.mark.parametrize("commit_id", ["\udcff", "day \ud800 2"])
def test_a_commit_id_that_is_not_utf_8_is_refused_before_anything_is_written(commit_id):
    store = RamStore()
    message = "commit_id .* has a lone surrogate"
    with pytest.raises(blz.SchemaError, match=message):
        blz.to_blz(DATA, store, commit_id=commit_id)
    blz.to_blz(DATA, store, commit_id="day \N{GREEK SMALL LETTER ALPHA}")
    with blz.open(store, "a") as table, pytest.raises(blz.SchemaError, match=message):
        table.append(DATA, commit_id=commit_id)
    assert blz.open(store).version == 1


@pytest.mark.parametrize(
    "give",
    [
        lambda series, store: blz.to_blz(series, store, mode="a"),
        lambda series, store: blz.open(store, "a").append(series),
        lambda series, store: blz.open(store, "a").append(iter([series])),
    ],
    ids=["to_blz", "append", "append of a stream"],
)
def test_a_series_is_appended_to_the_column_of_its_name(give):
    store = RamStore()
    blz.to_blz(pd.Series([1, 2], name="n"), store)
    give(pd.Series([3], name="n"), store)
    assert blz.read_blz(store).equals(pd.DataFrame({"n": [1, 2, 3]}))
    with pytest.raises(blz.SchemaError, match=r"expected the columns \['n'\], found \['0'\]"):
        give(pd.Series([3]), store)
    assert blz.open(store).version == 2


def test_an_option_for_a_column_that_is_not_there_is_told(tmp_path):
    with pytest.raises(blz.ColumnNotFoundError, match="storage: no column is named 'z'; the"):
        blz.to_blz(
            DATA,
            tmp_path / "t.blz",
            storage=blz.Storage(columns={"z": blz.Storage(compression="zstd")}),
        )
    assert list(tmp_path.iterdir()) == []


def codecs(path) -> dict[str, set[str]]:
    """Return the codecs in the chunk headers on disk, by column."""
    version, pinned = versions.pin(LocalStore(path))
    with pinned:
        names = enumerate(version.schema.names)
        return {name: stored.codecs(version, index) for index, name in names}


def test_compression_of_single_columns_is_applied(tmp_path):
    rows = np.random.default_rng(0).integers(0, 1000, 10_000)
    table = pa.table({"a": rows, "b": rows, "c": rows})
    blz.to_blz(
        table,
        tmp_path / "t.blz",
        storage=blz.Storage(
            columns={"a": blz.Storage(compression="zstd"), "b": blz.Storage(compression="zlib")}
        ),
    )
    assert codecs(tmp_path / "t.blz") == {"a": {"zstd"}, "b": {"zlib"}, "c": {"lz4"}}
    blz.to_blz(table, tmp_path / "t.blz", compression="zstd")
    assert codecs(tmp_path / "t.blz") == {"a": {"zstd"}, "b": {"zstd"}, "c": {"zstd"}}
    assert blz.read_table(tmp_path / "t.blz") == table


def test_levels_and_shuffles_of_single_columns_are_applied(tmp_path):
    rows = range(10_000)
    blz.to_blz(
        pa.table({"a": rows, "b": rows, "c": rows}),
        tmp_path / "t.blz",
        storage=blz.Storage(
            encoding="plain", columns={"a": blz.Storage(clevel=0), "c": blz.Storage(shuffle="none")}
        ),
    )
    with blz.open(tmp_path / "t.blz") as table:
        assert table["a"].cbytes > table["a"].nbytes
        assert table["b"].cbytes < table["c"].cbytes < table["a"].cbytes


@pytest.mark.parametrize(
    ("verb", "option", "words"),
    [
        (blz.to_blz, "mode", {"w", "a", "x"}),
        (blz.create, "mode", {"x", "w"}),
        (blz.open, "mode", {"r", "a"}),
        (blz.open, "durability", {"full", "process"}),
        (blz.read_blz, "on_corrupt", {"raise", "skip", "null"}),
        (blz.CTable.to_batches, "on_corrupt", {"raise", "skip", "null"}),
        (blz.CTable.repair, "on_corrupt", {"skip", "null"}),
        (blz.CTable.deduplicate, "keep", {"first", "last"}),
    ],
)
def test_a_type_checker_knows_the_words_of_an_option(verb, option, words):
    annotation = inspect.signature(verb).parameters[option].annotation
    assert set(typing.get_args(annotation)) == words


def test_create_makes_an_empty_table_open_for_writing(tmp_path):
    schema = {"at": pa.timestamp("us"), "what": pa.string()}
    with blz.create(
        tmp_path / "t.blz", schema, storage=blz.Storage(attrs={"a": 1}), compression="zstd"
    ) as table:
        assert (len(table), table.version, table.columns) == (0, 1, ["at", "what"])
        assert table.schema == pa.schema(schema)
        table.attrs["b"] = 2
        assert table.attrs == {"a": 1, "b": 2}
    with pytest.raises(blz.TableExistsError):
        blz.create(tmp_path / "t.blz", schema)
    with blz.create(tmp_path / "t.blz", pa.schema({"x": pa.int8()}), mode="w") as table:
        assert (table.version, table.columns) == (3, ["x"])
        assert table.attrs == {}
    assert blz.read_blz(tmp_path / "t.blz").shape == (0, 1)


def test_create_names_every_column_whose_type_it_does_not_know(tmp_path):
    with pytest.raises(blz.SchemaError, match=r"column 'a': .*\n.*column 'c': "):
        blz.create(tmp_path / "t.blz", {"a": object, "b": int, "c": "banana"})


TYPES = {
    **{bool: pa.bool_(), int: pa.int64(), float: pa.float64(), complex: None},
    **{str: pa.large_string(), bytes: pa.large_binary(), "string": pa.string()},
    **{datetime.datetime: pa.timestamp("us"), datetime.date: pa.date32()},
    **{datetime.time: pa.time64("us"), datetime.timedelta: pa.duration("us")},
    **{np.int8: pa.int8(), np.dtype("<f4"): pa.float32(), "u2": pa.uint16(), ">i4": pa.int32()},
    **{"M8[D]": pa.date32(), "M8[ns]": pa.timestamp("ns"), "U5": pa.string(), "S3": pa.binary()},
    **{pd.Int16Dtype(): pa.int16(), "Int64": pa.int64(), "boolean": pa.bool_()},
    **{pd.DatetimeTZDtype("s", "UTC"): pa.timestamp("s", "UTC"), "period[M]": pa.int64()},
    **{"category": pa.dictionary(pa.int32(), pa.large_string()), "interval[int64, left]": None},
    **{pd.ArrowDtype(pa.decimal128(9, 2)): pa.decimal128(9, 2), pa.list_(pa.int8()): None},
}


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_create_takes_types_of_python_numpy_pandas_and_arrow(type_):
    with blz.create(RamStore(), {"x": type_}) as table:
        stored = table.schema.field("x").type
        assert stored == TYPES[type_] or TYPES[type_] is None
        dtype = table.to_pandas()["x"].dtype
        if isinstance(type_, pd.api.extensions.ExtensionDtype):
            assert dtype == type_
            table.append(pd.DataFrame({"x": pd.array([None], dtype=type_)}))
            assert table.to_pandas()["x"].dtype == type_
        table.append({"x": [None]})
        table.append(table.to_pandas())
        assert table.to_pandas()["x"].isna().all()


def test_create_takes_an_example():
    frame = pd.DataFrame(
        {"a": [1], "b": pd.Categorical(["x"], ["x", "y"]), 3: [{"k": 1}]},
        index=pd.Index([7], dtype="Int8", name="key"),
    )
    frame.attrs = {"source": ("till", 7)}
    with blz.create(RamStore(), frame, storage=blz.Storage(attrs={"more": 1})) as table:
        table.append(frame)
        table.append(frame)
        expected = pd.concat([frame, frame])
        expected.attrs = {"source": ("till", 7), "more": 1}
        assert_same(table.to_pandas(), expected)
    with blz.create(
        RamStore(), pd.DataFrame({"a": [1, "x"]}), storage=blz.Storage(objects="json")
    ) as table:
        table.append(pd.DataFrame({"a": ["y", 2]}), storage=blz.Storage(objects="json"))
        assert table.to_pandas()["a"].tolist() == ["y", 2]


@pytest.mark.parametrize("wrong", ["banana", pa.int64, 5, None, object, list, "O", "m8"])
def test_create_names_the_column_whose_type_it_does_not_know(tmp_path, wrong):
    message = "column 'b': expected a type such as pa.int64(), \"int64\", int or a dtype of pandas"
    for schema in ({"a": "int64", "b": wrong}, [("a", "int64"), ("b", wrong)]):
        with pytest.raises(blz.SchemaError, match=re.escape(message)) as caught:
            blz.create(tmp_path / "t.blz", schema)
        assert f"found {wrong!r:.60}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_open_says_what_is_not_possible(path, tmp_path):
    with pytest.raises(ValueError, match="mode must be one of 'r', 'a', not 'w'"):
        blz.open(path, "w")
    with pytest.raises(ValueError, match="durability must be one of 'full', 'process', not 'some'"):
        blz.open(path, "a", durability="some")
    with pytest.raises(blz.TableNotFoundError, match=f"no version 2 of {path}") as caught:
        blz.open(path, version=2)
    assert isinstance(caught.value, FileNotFoundError)
    for version in (None, 3):
        with pytest.raises(FileNotFoundError, match=r"no table at .*; write one with to_blz"):
            blz.read_blz(tmp_path / "none.blz", version=version)
    assert not (tmp_path / "none.blz").exists()


@pytest.mark.parametrize("data", [7, "text", None, [1, 2], np.zeros(2), pd.Index([1])])
def test_data_that_is_no_table_is_told(tmp_path, data):
    with pytest.raises((TypeError, blz.SchemaError)):
        blz.to_blz(data, tmp_path / "t.blz")
    assert list(tmp_path.iterdir()) == []


CODES_OF_CODES = pa.DictionaryArray.from_arrays(
    pa.array([0], pa.int8()), pa.array(["x"]).dictionary_encode()
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pd.DataFrame({"a": ["x", "y", 3]}), ["'a'", "3"]),
        (pa.table({"a": CODES_OF_CODES}), ["'a'", "dictionary of dictionaries"]),
        (pd.DataFrame({"deep": [[1], ["x"]]}), ["'deep'", "row 1", "'x'"]),
        ({"a": [1, 2], "b": [1]}, ["different lengths", "'b': 1"]),
        ({"a": np.zeros((2, 2), complex)}, ["'a'", "complex128"]),
        ({1: [1]}, ["name must be str", "1"]),
        ({"a": "text"}, ["'a'", "expected an array", "str", "[data]"]),
    ],
)
def test_data_that_cannot_be_stored_is_told_with_its_column(tmp_path, data, words):
    with pytest.raises(blz.SchemaError) as caught:
        blz.to_blz(data, tmp_path / "t.blz")
    assert isinstance(caught.value, TypeError)
    assert [word for word in words if word not in str(caught.value)] == []
    assert list(tmp_path.iterdir()) == []


def test_errors_are_what_callers_would_catch():
    pairs = {
        blz.CorruptError: ValueError,
        blz.FormatError: ValueError,
        blz.LimitError: ValueError,
        blz.TableNotFoundError: FileNotFoundError,
        blz.TableExistsError: FileExistsError,
        blz.ColumnNotFoundError: KeyError,
        blz.SchemaError: TypeError,
        blz.StorageError: OSError,
        blz.AccessError: PermissionError,
        blz.ReadOnlyError: PermissionError,
        blz.BusyError: TimeoutError,
        blz.ConflictError: RuntimeError,
        blz.CommitUnknownError: RuntimeError,
        blz.TransactionError: RuntimeError,
        blz.ClosedError: ValueError,
    }
    for error, builtin in pairs.items():
        assert issubclass(error, blz.BlzError)
        assert issubclass(error, builtin)
        assert str(error("what it says")) == "what it says"
        assert str(pickle.loads(pickle.dumps(error("what it says")))) == "what it says"
    public = {getattr(blz, name) for name in blz.__all__ if name.endswith("Error")}
    assert public == {blz.BlzError, *pairs}


def test_the_method_of_frames_survives_a_reload_without_a_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(blztable.accessor)
    FRAME.to_blz(tmp_path / "t.blz")
    assert len(blz.read_blz(tmp_path / "t.blz")) == 3


# Data in


def test_named_arrays_go_in(tmp_path):
    data = {
        "numbers": np.arange(3, dtype="i2"),
        "list": [1, None, 3],
        "text": ["a", "b", None],
        "arrow": pa.array([1.5, None, 2.5]),
        "series": pd.Series(["x", "y", "x"], dtype="category"),
        "when": np.array(["2020-01-01"] * 3, dtype="M8[s]"),
    }
    blz.to_blz(data, tmp_path / "t.blz")
    table = blz.read_table(tmp_path / "t.blz")
    assert table.column_names == list(data)
    assert table["numbers"].type == pa.int16()
    assert table["list"].to_pylist() == [1, None, 3]
    assert table["arrow"].to_pylist() == [1.5, None, 2.5]
    assert table["series"].to_pylist() == ["x", "y", "x"]
    assert table["when"].to_pylist() == [datetime.datetime(2020, 1, 1)] * 3


def test_anything_arrow_goes_in(tmp_path):
    connection = duckdb.connect()
    sources = {
        "table": DATA,
        "batch": DATA.combine_chunks().to_batches()[0],
        "reader": DATA.to_reader(2),
        "polars": polars.from_arrow(DATA),
        "duckdb": connection.sql("SELECT * FROM DATA"),
    }
    for name, data in sources.items():
        blz.to_blz(data, tmp_path / name)
        assert blz.read_table(tmp_path / name).to_pydict() == DATA.to_pydict(), name
    connection.close()


class Capsule:
    """Arrow data of an unknown library."""

    def __init__(self, data, method):
        setattr(type(self), method, lambda self, requested_schema=None: getattr(data, method)())


def test_a_capsule_of_any_library_goes_in(tmp_path):
    class Stream(Capsule):
        pass

    class Array(Capsule):
        pass

    blz.to_blz(Stream(DATA, "__arrow_c_stream__"), tmp_path / "t.blz")
    assert blz.read_table(tmp_path / "t.blz") == DATA
    batch = DATA.combine_chunks().to_batches()[0]
    blz.to_blz(Array(batch, "__arrow_c_array__"), tmp_path / "u.blz")
    assert blz.read_table(tmp_path / "u.blz") == DATA


# Data out


def test_a_table_is_a_stream_for_others(path):
    with blz.open(path) as table:
        assert pa.table(table) == DATA
        assert pa.schema(table) == DATA.schema
        assert polars.DataFrame(table).to_dict(as_series=False) == DATA.to_pydict()
        reader = pa.RecordBatchReader.from_stream(table)
        assert sum(batch.num_rows for batch in reader) == 5
        narrowed = table[["x", "n"]]
        assert pa.table(narrowed) == DATA.select(["x", "n"])
        with duckdb.connect() as connection:
            stream = pa.RecordBatchReader.from_stream(table)
            rows = connection.execute("SELECT sum(n), max(text) FROM stream").fetchall()
            del stream
        assert rows == [(12, "ä")]


def test_duckdb_reads_an_open_table_by_its_name(path):
    with blz.open(path) as opened, duckdb.connect() as connection:
        assert len(opened) == 5
        assert connection.execute("SELECT sum(x) FROM opened").fetchall() == [(12.5,)]


def test_a_stream_into_another_schema_is_cast(path):
    with blz.open(path) as table:
        wanted = pa.schema({"n": pa.int64(), "x": pa.float64(), "text": pa.large_string()})
        reader = pa.RecordBatchReader.from_stream(table, schema=wanted)
        assert reader.read_all() == DATA.cast(wanted)


def test_columns_come_in_the_order_asked_for(path):
    for names in (["text", "n"], ["x"], [], ["n", "n"]):
        assert blz.read_table(path, columns=names).column_names == names
        assert list(blz.read_blz(path, columns=names).columns) == names
    assert blz.read_table(path, columns=["text", "n"]) == DATA.select(["text", "n"])
    assert blz.read_table(path, columns=[]).num_rows == 5
    assert len(blz.read_blz(path, columns=[])) == 5


def test_a_column_that_is_not_there_is_told_with_those_that_are(path):
    message = f"no column is named 'z' in {path}; the columns are ['n', 'x', 'text']"
    with blz.open(path) as table:
        for action in (
            lambda: blz.read_blz(path, columns=["n", "z"]),
            lambda: blz.read_table(path, columns=["z"]),
            lambda: table["z"],
            lambda: table[["z"]],
            lambda: table.to_arrow(["z"]),
            lambda: table.to_pandas(["z"]),
        ):
            with pytest.raises(blz.ColumnNotFoundError) as caught:
                action()
            assert isinstance(caught.value, KeyError)
            assert str(caught.value) == message


def test_one_name_where_a_list_is_expected_is_told(path):
    for action in (blz.read_blz, blz.read_table):
        with pytest.raises(TypeError, match=r"columns must be a list of names.*\['n'\]"):
            action(path, columns="n")


def test_the_index_comes_back_beside_the_columns_asked_for(tmp_path):
    frame = FRAME.set_index("text")
    frame.to_blz(tmp_path / "t.blz")
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz"), frame)
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz", columns=["x"]), frame[["x"]])
    with blz.open(tmp_path / "t.blz") as table:
        assert table.columns == ["n", "x", "text"]
        pd.testing.assert_series_equal(table["x"].to_pandas(), frame["x"])
        pd.testing.assert_frame_equal(table[["x", "n"]].to_pandas(), frame[["x", "n"]])


def test_a_counted_index_comes_back_as_it_was(tmp_path):
    frame = FRAME.set_axis(pd.RangeIndex(10, 16, 2, name="i"))
    frame.to_blz(tmp_path / "t.blz")
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz"), frame)
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz", columns=["x"]), frame[["x"]])
    frame.to_blz(tmp_path / "t.blz", index=False)
    assert blz.read_blz(tmp_path / "t.blz").index.equals(pd.RangeIndex(3))
    frame.to_blz(tmp_path / "t.blz", index=True)
    pd.testing.assert_index_equal(blz.read_blz(tmp_path / "t.blz").index, frame.index, exact=False)
    assert len(blz.read_table(tmp_path / "t.blz").column_names) == 4


def test_columns_that_share_a_name_all_come(tmp_path):
    table = pa.table([[1], [2], [3]], names=["a", "b", "a"])
    blz.to_blz(table, tmp_path / "t.blz")
    assert blz.read_table(tmp_path / "t.blz") == table
    assert blz.read_table(tmp_path / "t.blz", columns=["a"]).columns == [
        table.column(0),
        table.column(2),
    ]
    frame = blz.read_blz(tmp_path / "t.blz")
    assert list(frame.columns) == ["a", "b", "a"]
    assert frame.to_numpy().tolist() == [[1, 2, 3]]
    with blz.open(tmp_path / "t.blz") as opened:
        with pytest.raises(blz.ColumnNotFoundError, match="2 columns are named 'a'"):
            opened["a"]
        assert opened[["a"]].to_arrow().num_columns == 2


def test_odd_names_are_names(tmp_path):
    names = ["", "../x", "a/b", "🐢", "n" * 10_000, "\n", "None"]
    table = pa.table([[i] for i in range(len(names))], names=names)
    blz.to_blz(table, tmp_path / "t.blz")
    assert blz.read_table(tmp_path / "t.blz") == table
    assert blz.read_table(tmp_path / "t.blz", columns=["../x", ""]).to_pylist() == [
        {"../x": 1, "": 0}
    ]
    with blz.open(tmp_path / "t.blz") as opened:
        assert "n" * 37 + "..." in repr(opened)


def owner(array):
    """Return the memory that an array points to."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def test_a_frame_is_writable_and_shares_the_memory_that_was_decoded(tmp_path, monkeypatch):
    rows = 50_000
    data = {"i": np.arange(rows), "f": np.linspace(0, 1, rows), "small": np.zeros(rows, "i2")}
    blz.to_blz(data, tmp_path / "t.blz")
    decoded = []
    plain = OpenColumns.columns

    def watched(*args):
        arrays = plain(*args)
        for array in arrays:
            buffer = array.chunk(0).buffers()[1]
            decoded.append((buffer.address, buffer.address + buffer.size))
        return arrays

    monkeypatch.setattr(OpenColumns, "columns", watched)
    frame = blz.read_blz(tmp_path / "t.blz")
    assert len(decoded) == 3
    for name, (start, stop) in zip(data, decoded, strict=True):
        values = frame[name].to_numpy()
        assert start <= values.ctypes.data < values.ctypes.data + values.nbytes <= stop
    frame.loc[0, "i"] = 99
    frame["f"] += 1.0
    frame.iloc[-1, 2] = 7
    assert (frame.loc[0, "i"], frame.loc[0, "f"], frame["small"].iloc[-1]) == (99, 1.0, 7)
    again = blz.read_blz(tmp_path / "t.blz")
    assert again["i"].to_list() == data["i"].tolist()


def test_numpy_arrays_of_columns_are_writable(path):
    with blz.open(path) as table:
        values = table["x"].to_numpy()
        assert values.flags.writeable
        values[0] = 99
        assert table["x"].to_numpy()[0] == 0.5
        with_nulls = table["n"].to_numpy()
        assert np.isnan(with_nulls[2])
        assert with_nulls[[0, 1]].tolist() == [1, 2]


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_the_backend_of_dtypes_is_as_in_pandas(tmp_path, backend):
    blz.to_blz(DATA, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as table:
        for frame in (
            blz.read_blz(tmp_path / "t.blz", dtype_backend=backend),
            table.to_pandas(dtype_backend=backend),
        ):
            kind = pd.ArrowDtype if backend == "pyarrow" else pd.api.extensions.ExtensionDtype
            assert all(isinstance(dtype, kind) for dtype in frame.dtypes)
            assert frame["n"].isna().to_list() == [False, False, True, False, False]
            assert frame["n"].to_list()[3] == 4
        assert isinstance(table["n"].to_pandas(dtype_backend=backend).dtype, kind)


def test_a_backend_that_pandas_does_not_know_is_told(path):
    with pytest.raises(ValueError, match="dtype_backend"):
        blz.read_blz(path, dtype_backend="rust")


def test_dates_are_objects_by_default_and_arrow_values_on_request(tmp_path):
    days = [datetime.date(2020, 1, 1), None]
    blz.to_blz(pa.table({"d": pa.array(days, pa.date32())}), tmp_path / "t.blz")
    assert blz.read_blz(tmp_path / "t.blz")["d"].to_list() == days
    frame = blz.read_blz(tmp_path / "t.blz", dtype_backend="pyarrow")
    assert frame["d"].dtype == pd.ArrowDtype(pa.date32())


def test_attrs_of_a_frame_are_attributes_of_the_table(tmp_path):
    frame = FRAME.copy()
    frame.attrs = {"source": "till 7", "tags": ["a", 1]}
    frame.to_blz(tmp_path / "t.blz", storage=blz.Storage(attrs={"tags": None, "more": 1.5}))
    expected = {"source": "till 7", "tags": None, "more": 1.5}
    assert blz.read_blz(tmp_path / "t.blz").attrs == expected
    with blz.open(tmp_path / "t.blz") as table:
        assert table.attrs == expected
    frame.attrs = {"bad": object()}
    with pytest.raises(blz.SchemaError, match=r"attrs\['bad'\].*cannot be kept"):
        frame.to_blz(tmp_path / "t.blz")


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
@given(frames())
def test_any_frame_comes_back_from_a_disk_exactly(frame):
    with tempfile.TemporaryDirectory() as directory:
        frame.to_blz(f"{directory}/t.blz", durability="process")
        assert_same(blz.read_blz(f"{directory}/t.blz"), frame)


def test_a_frame_without_rows_comes_back(tmp_path):
    frame = FRAME.set_index("n").iloc[:0]
    frame.to_blz(tmp_path / "t.blz")
    assert_same(blz.read_blz(tmp_path / "t.blz"), frame)


@pytest.mark.parametrize("categories", [["b", "a"], [2, 1], pd.to_datetime(["2020-01-02"])])
def test_categories_come_back_without_rows(tmp_path, categories):
    frame = pd.DataFrame({"c": pd.Categorical([], categories=categories, ordered=True)})
    frame.to_blz(tmp_path / "t.blz")
    assert_same(blz.read_blz(tmp_path / "t.blz"), frame)


# The table


def test_a_table_tells_what_it_is(path):
    with blz.open(path) as table:
        assert isinstance(table, blz.CTable)
        assert (len(table), len(table), table.version) == (5, 5, 1)
        assert table.path == str(path)
        assert table.schema == DATA.schema
        assert table.columns == ["n", "x", "text"]
        bundles = [file.stat().st_size for file in path.glob("data/group/*.bin")]
        assert 0 < table.cbytes < sum(bundles)
        assert table.nbytes == sum(table[name].nbytes for name in table.columns)
        assert table.nbytes >= 5 * 16
        assert table.to_arrow() == DATA
        pd.testing.assert_frame_equal(table.to_pandas(), blz.read_blz(path))
        assert table.to_arrow(["x"]) == DATA.select(["x"])


def test_a_table_shows_itself(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(
        {"n": pa.array([1, 2], "i4"), "a longer name": [True, None]},
        path,
        storage=blz.Storage(attrs={"a": 1}),
    )
    with blz.open(path) as table:
        column = table["n"]
        assert repr(table) == (
            f"<CTable {path}, version 1: 2 rows x 2 columns, 11 bytes in {table.cbytes} bytes>\n"
            "  n              int32\n"
            "  a longer name  bool"
        )
        assert repr(column) == (
            f"<Column 'n' of {path}: int32, 2 rows, 8 bytes in {column.cbytes} bytes>"
        )
        assert repr(table[["n"]]).splitlines()[1:] == ["  n  int32"]
        assert repr(table.attrs) == "{'a': 1}"


def test_a_wide_table_shows_its_first_columns(tmp_path):
    blz.to_blz({f"c{i}": [i] for i in range(1050)}, tmp_path / "t.blz", durability="process")
    with blz.open(tmp_path / "t.blz") as table:
        lines = repr(table).splitlines()
    assert "1 row x 1,050 columns" in lines[0]
    assert len(lines) == 42
    assert lines[-1] == "  ... and 1,010 more columns"


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 6, 10**30])
def test_head_is_the_first_rows(path, n):
    with blz.open(path) as table:
        assert table.head(n) == DATA.slice(0, min(n, 5))
        assert table[["x"]].head(n) == DATA.select(["x"]).slice(0, min(n, 5))


def test_head_says_what_is_not_possible(path):
    with blz.open(path) as table:
        assert table.head() == DATA
        with pytest.raises(ValueError, match="at least 0, not -1"):
            table.head(-1)


def test_a_narrowed_table_is_the_same_snapshot(path):
    with blz.open(path) as table:
        narrowed = table[["text", "x"]]
        FRAME.to_blz(path)
        assert narrowed.version == 1
        assert narrowed.columns == ["text", "x"]
        assert narrowed.to_arrow() == DATA.select(["text", "x"])
        assert list(narrowed.to_pandas().columns) == ["text", "x"]
        assert narrowed.nbytes == table["text"].nbytes + table["x"].nbytes
        assert narrowed[["x"]].columns == ["x"]
        assert narrowed["x"][0] == 0.5
        with pytest.raises(blz.ColumnNotFoundError, match=r"the columns are \['text', 'x'\]"):
            narrowed["n"]
        with pytest.raises(blz.ReadOnlyError):
            narrowed.attrs["a"] = 1


@pytest.mark.parametrize("key", [True, 1.5, None, b"n", {"n"}])
def test_a_key_that_is_no_name_is_told(path, key):
    with blz.open(path) as table, pytest.raises(TypeError, match=type(key).__name__):
        table[key]


def test_a_closed_table_says_so(path):
    table = blz.open(path)
    with table as same:
        assert same is table
        column, narrowed = table["n"], table[["n"]]
    table.close()
    for action in (
        table.to_arrow,
        table.to_pandas,
        table.head,
        lambda: pa.table(table),
        lambda: table.attrs.update(a=1),
        lambda: column[0],
        column.to_numpy,
        narrowed.to_arrow,
    ):
        with pytest.raises(blz.ClosedError, match=f"{path} was closed"):
            action()
    assert "version 1" in repr(table)


def test_what_was_taken_of_a_closed_table_is_closed_and_its_store_goes_on(path):
    store = LocalStore(path)
    table = blz.open(store)
    column, narrowed, data = table["n"], table[["n"]], table.dataset()
    batches = table.to_batches(batch_rows=3)
    assert next(batches).num_rows == 3
    table.close()
    for action in (column.to_arrow, narrowed.to_arrow, lambda: next(batches), data.to_table):
        with pytest.raises(blz.ClosedError, match="closed"):
            action()
    assert store.list_names("") != []
    with blz.open(store) as again:
        assert again.to_arrow() == DATA


def test_tables_that_were_closed_leave_no_descriptor_open(path):
    gc.collect()  # Descriptors that other tests left would be closed meanwhile.
    before = len(os.listdir("/dev/fd"))
    tables = [blz.open(path, "a", durability="process") for _ in range(20)]
    for number, table in enumerate(tables):
        assert table.to_arrow().num_rows == len(DATA)
        table.attrs[f"table {number}"] = 1
        table.vacuum()
    for table in tables:
        table.close()
    assert len(os.listdir("/dev/fd")) == before


def test_an_open_table_keeps_its_version_until_it_is_closed(path):
    def replace():
        for _ in range(11):
            FRAME.to_blz(path, durability="process")

    table = blz.open(path)
    replace()
    assert table.to_arrow() == DATA
    assert blz.read_table(path, version=1) == DATA
    table.close()
    replace()
    with pytest.raises(blz.TableNotFoundError):
        blz.read_table(path, version=1)


def test_a_table_that_nobody_holds_lets_go(path):
    blz.open(path)
    LocalStore(path).lock(layout.manifest(1), shared=False, timeout=0).close()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_copy_opens_the_same_version_for_itself(path, copied):
    with blz.open(path) as table:
        assert table.to_arrow() == DATA
        FRAME.iloc[:1].to_blz(path)
        assert copied(table).to_arrow() == DATA
        gc.collect()
        assert table.to_arrow() == DATA


def test_a_table_is_shared_by_threads(path):
    found = []
    with blz.open(path) as table:
        threads = [
            threading.Thread(target=lambda: found.append(table.to_arrow())) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [DATA] * 6


# Attributes


def test_attributes_keep_the_type_of_numbers_of_numpy(path):
    with blz.open(path, mode="a") as table:
        table.attrs["seen"] = np.datetime64("2020-01-02", "us")
        table.attrs.update(counts=np.array([1, 2], "u2"), total=np.int64(7))
        for attrs in (table.attrs, blz.read_blz(path).attrs):
            assert attrs["seen"].dtype == "M8[us]"
            assert attrs["counts"].dtype == "u2"
            assert attrs["counts"].tolist() == [1, 2]
            assert type(attrs["total"]) is np.int64
        with pytest.raises(KeyError):
            table.attrs["absent"]


def test_attributes_are_a_mapping_and_each_assignment_is_a_commit(path):
    with blz.open(path, "a") as table:
        attrs = table.attrs
        assert dict(attrs) == {"till": 7}
        attrs["deep"] = {"list": [1, 2.5, None, True], "tuple": (1,)}
        assert table.version == 2
        assert attrs["deep"] == {"list": [1, 2.5, None, True], "tuple": (1,)}
        attrs.update(a=1, b=2)
        assert table.version == 3
        del attrs["till"]
        assert attrs.pop("a") == 1
        assert attrs.setdefault("b", 5) == 2
        assert (table.version, len(attrs), sorted(attrs)) == (5, 2, ["b", "deep"])
        assert table.to_arrow() == DATA
    with blz.open(path) as table:
        assert dict(table.attrs) == {"deep": {"list": [1, 2.5, None, True], "tuple": (1,)}, "b": 2}
    assert json.loads((path / "meta/attributes").read_bytes())["b"] == 2
    with blz.open(path, version=1) as table:
        assert dict(table.attrs) == {"till": 7}


ATTRIBUTES = {"a": 1, "b": [2], "c": "three"}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda attrs: attrs.clear(), {}),
        (lambda attrs: attrs.popitem(), {"a": 1, "b": [2]}),
        (lambda attrs: attrs.pop("a"), {"b": [2], "c": "three"}),
        (lambda attrs: attrs.update({"a": 5, "d": 6}, e=7), ATTRIBUTES | {"a": 5, "d": 6, "e": 7}),
        (lambda attrs: attrs.update([("a", 5), ("d", 6)]), ATTRIBUTES | {"a": 5, "d": 6}),
        (lambda attrs: attrs.setdefault("d", 6), ATTRIBUTES | {"d": 6}),
    ],
    ids=["clear", "popitem", "pop", "update", "update by pairs", "setdefault"],
)
@pytest.mark.parametrize("is_within", [False, True], ids=["table", "transaction"])
def test_any_change_of_attributes_is_one_commit_with_the_result_of_a_dict(change, left, is_within):
    store, same = RamStore(), dict(ATTRIBUTES)
    blz.to_blz(DATA, store, storage=blz.Storage(attrs=ATTRIBUTES))
    with blz.open(store, "a") as table:
        if is_within:
            with table.transaction() as tx:
                result = change(tx.attrs)
        else:
            result = change(table.attrs)
        assert result == change(same)
        assert table.version == 2
        assert dict(table.attrs) == left == same


@pytest.mark.parametrize(
    "change",
    [
        lambda attrs: attrs.update(),
        lambda attrs: attrs.setdefault("a", 5),
        lambda attrs: attrs.pop("none", 5),
    ],
    ids=["update", "setdefault", "pop"],
)
def test_what_changes_no_attribute_commits_nothing(change):
    store = RamStore()
    blz.to_blz(DATA, store, storage=blz.Storage(attrs=ATTRIBUTES))
    with blz.open(store, "a") as table:
        change(table.attrs)
        assert (table.version, dict(table.attrs)) == (1, ATTRIBUTES)
        table.attrs.clear()
        table.attrs.clear()
        assert (table.version, dict(table.attrs)) == (2, {})
        with pytest.raises(KeyError):
            table.attrs.popitem()
        assert table.version == 2


def test_a_truth_value_is_the_number_of_no_row():
    store = RamStore()
    blz.to_blz({"a": [1, 2]}, store)
    with blz.open(store) as table:
        for key in (True, False, np.bool_(True)):
            with pytest.raises(TypeError):
                table["a"][key]
        assert (table["a"][np.int8(1)], table["a"][-1]) == (2, 2)


@pytest.mark.parametrize(
    "names", [["a", "a"], ["a", "b", "a"], ["b", "a", "a", "b"], ["b"], []], ids=str
)
@pytest.mark.parametrize(
    "columns", [["a", "b"], ["a", "b", "a"], ["b", "a", "a"]], ids=lambda names: "".join(names)
)
def test_a_column_shown_twice_is_read_twice_into_arrow_and_pandas(columns, names):
    """Each of two columns with the same name is read."""
    store = RamStore()
    blz.to_blz(pa.table([[number] for number in range(len(columns))], names=columns), store)
    with blz.open(store) as table:
        narrowed = table[names]
        expected = narrowed.to_arrow()
        assert expected.schema.names == narrowed.columns
        assert expected == table.to_arrow(names)
        frame = narrowed.to_pandas()
        assert list(frame.columns) == expected.schema.names
        assert frame.to_numpy().tolist() == [[column[0].as_py() for column in expected.columns]]
        pd.testing.assert_frame_equal(frame, table.to_pandas(names))
        if columns == ["a", "b"] and "a" in names:
            # A column that is shown twice is still requested as one column.
            assert narrowed["a"][:].to_pylist() == [0]
            assert narrowed.to_arrow(["a"]) == table.to_arrow(["a"])
            pd.testing.assert_frame_equal(narrowed.to_pandas(["a"]), table.to_pandas(["a"]))


def test_an_attribute_that_is_not_there_is_a_key_error(path):
    with blz.open(path, "a") as table:
        with pytest.raises(KeyError):
            table.attrs["none"]
        with pytest.raises(KeyError):
            del table.attrs["none"]
        assert table.attrs.get("none") is None
        assert "none" not in table.attrs
        assert table.version == 1


@pytest.mark.parametrize("value", [object(), np.complex64(1), {1: object()}, {"a": {object()}}])
def test_an_attribute_that_is_no_json_is_told_by_its_key(path, value):
    with blz.open(path, "a") as table:
        with pytest.raises(blz.SchemaError, match=r"attrs\['bad'\]"):
            table.attrs["bad"] = value
        assert table.version == 1


def test_a_table_opened_for_reading_takes_no_attributes(path):
    with blz.open(path) as table:
        for action in (
            lambda: table.attrs.update(a=1),
            lambda: table.attrs.clear(),
            lambda: table.attrs.__setitem__("a", 1),
        ):
            with pytest.raises(
                blz.ReadOnlyError, match="opened for reading; open it with mode='a'"
            ):
                action()
    assert versions.numbers(LocalStore(path)) == [1]


def test_attributes_that_were_changed_elsewhere_conflict(path):
    with blz.open(path, "a") as one, blz.open(path, "a") as other:
        one.attrs["till"] = 8
        with pytest.raises(blz.ConflictError, match="attribute 'till' was changed by version 2"):
            other.attrs["till"] = 9
        other.attrs["more"] = 1
        assert dict(other.attrs) == {"till": 8, "more": 1}
        assert dict(one.attrs) == {"till": 8}


# The column


def test_a_column_tells_what_it_is(path):
    with blz.open(path) as table:
        column = table["text"]
        assert isinstance(column, blz.Column)
        assert (column.name, column.type, len(column)) == ("text", pa.string(), 5)
        assert column.nbytes > 0
        assert 0 < column.cbytes < table.cbytes
        assert column.to_arrow() == DATA["text"]
        pd.testing.assert_series_equal(column.to_pandas(), blz.read_blz(path)["text"])
        assert column.to_numpy().tolist() == ["a", None, "c", "ä", "e"]


@pytest.mark.parametrize("name", DATA.column_names)
def test_rows_of_a_column_are_as_in_a_list(path, name):
    values = DATA[name].to_pylist()
    with blz.open(path) as table:
        column = table[name]
        assert [column[row] for row in range(-5, 5)] == [values[row] for row in range(-5, 5)]
        for start in (None, -9, -2, 0, 2, 3, 5, 9):
            for stop in (None, -9, -2, 0, 2, 3, 5, 9):
                for step in (None, 1, 2, 3, -1, -2):
                    found = column[start:stop:step]
                    assert isinstance(found, pa.Array)
                    assert found.to_pylist() == values[start:stop:step]
        for row in (5, -6):
            with pytest.raises(
                IndexError, match=f"row {row} is out of range for a column of 5 rows"
            ):
                column[row]
        assert column[np.int64(1)] == values[1]


def test_a_column_that_is_the_index_comes_as_its_values(tmp_path):
    FRAME.set_index("x").to_blz(tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as table:
        assert table["x"].to_pandas().to_list() == [0.5, 1.5, 2.5]
        assert table["x"].to_numpy().tolist() == [0.5, 1.5, 2.5]


def test_iterating_a_column_ends(path):
    with blz.open(path) as table:
        assert list(table["n"]) == DATA["n"].to_pylist()


# Bug: `columns` was drawn twice, so an iterator selected no column.
@pytest.mark.parametrize("columns", [iter, tuple, lambda names: (name for name in names)])
def test_columns_may_come_from_an_iterator(columns):
    store = RamStore()
    blz.to_blz({"a": [1], "b": [2], "c": [3]}, store)
    assert blz.read_table(store, columns=columns(["c", "a"])).column_names == ["c", "a"]
    with blz.open(store) as table:
        assert table.to_arrow(columns(["b"])).column_names == ["b"]
        assert next(table.to_batches(columns(["b"]))).schema.names == ["b"]
        with pytest.raises(blz.ColumnNotFoundError, match="'d'"):
            table.to_arrow(columns(["a", "d"]))


# Guards `columns`: any iterable of names is accepted, a single text is refused.
def test_columns_may_be_any_iterable_of_names(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1], "b": [2]}, path)
    assert list(blz.read_blz(path, columns=iter(["b", "a"])).columns) == ["b", "a"]
    with pytest.raises(TypeError, match=r"\['a'\]"):
        blz.read_blz(path, columns="a")
