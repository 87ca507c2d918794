"""Findings of the fuzzer (`support/fuzzer.py`), made as small as possible, with valid checksums."""

import base64
import contextlib
import json
import tracemalloc

import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.convert.frames.descriptor import FIELD_KEY
from blztable.format import layout
from blztable.format.chunk import Compression
from blztable.storage.memory import MemoryStore
from support import fuzzer, tamper
from support.worker_process import Captive


def claiming(rows, table) -> MemoryStore:
    """The table, with another number of rows in its manifest."""
    store = MemoryStore()
    blz.to_blz(table, store)
    with tamper.editing(store) as edited:
        edited.head |= {"row_groups": [rows], "rows": rows}
        for line in edited.lines:
            line["rows"] = [rows]
    return store


def test_rows_of_nothing_take_no_memory():
    store = claiming(1 << 61, pa.table({"a": pa.nulls(3)}))
    before = pa.total_allocated_bytes()
    assert blz.read_table(store).num_rows == 1 << 61
    with blz.open(store) as table:
        assert table.to_arrow([]).num_rows == 1 << 61
        assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("rows", [1 << 50, 1 << 61])
def test_rows_of_nothing_that_pandas_has_no_memory_for_are_refused(rows):
    store = claiming(rows, pa.table({"a": pa.nulls(3)}))
    with pytest.raises(blz.LimitError, match=r"'a'.*\d{16,} rows"):
        blz.read_blz(store)


def test_rows_of_nothing_become_frames_at_one_pointer_each():
    store = claiming(1 << 20, pa.table({"a": pa.nulls(3)}))
    tracemalloc.start()
    assert blz.read_blz(store)["a"].iloc[-1] is None
    assert tracemalloc.get_traced_memory()[1] < 9 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "type_",
    [pa.timestamp("ms", "Europe/Rome"), pa.dictionary(pa.int8(), pa.timestamp("s", "Europe/Rome"))],
    ids=str,
)
def test_a_zone_that_is_not_utf8_is_refused_in_dictionaries_too(type_):
    store = MemoryStore()
    blz.to_blz(pa.schema({"a": type_}).empty_table(), store)
    with tamper.editing(store) as table:
        data = base64.b64decode(table.head["schema"])
        table.head["schema"] = base64.b64encode(data.replace(b"Rome", b"Rom\xc4")).decode()
    with pytest.raises(blz.CorruptError, match="schema"):
        blz.read_blz(store)


def test_decimals_of_a_scale_that_python_does_not_know_are_refused_by_pandas_alone():
    type_ = pa.decimal128(38, 1 << 30)
    column = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(bytes([1] * 16))])
    store = MemoryStore()
    blz.to_blz(pa.table({"a": column}), store)
    assert blz.read_table(store)["a"].type == type_
    with pytest.raises(blz.SchemaError, match="'a': pandas cannot hold decimal128"):
        blz.read_blz(store)


FAR = pd.Timestamp(1 << 40, unit="s")  # in the year 36812


def test_a_frequency_is_dropped_where_zoned_times_leave_the_years_of_python():
    days = pd.date_range("2026", periods=3, tz="Europe/Berlin", unit="s", name="day")
    store = MemoryStore()
    blz.to_blz(pd.DataFrame({"a": [1, 2, 3]}, days), store)
    far = pd.DatetimeIndex([FAR] * 3).as_unit("s").asi8
    with tamper.editing(store) as table:
        table.part(column=1).chunks = [Compression().compress(far, 8)]
    index = blz.read_blz(store).index
    assert index.freq is None
    assert index.asi8.tolist() == [1 << 40] * 3


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_labels_that_are_zoned_times_outside_of_the_years_of_python_are_refused(zone):
    store = MemoryStore()
    column = pd.DatetimeIndex([pd.Timestamp("2026")], tz="Europe/Berlin").as_unit("s")
    blz.to_blz(pd.DataFrame([[1]], columns=column), store)
    with tamper.editing(store) as table:
        label = ["timestamp", "s", 1 << 40, [zone, None]]
        table.head["pandas"]["columns"]["labels"][0][1] = label
    with contextlib.suppress(blz.FormatError):
        assert blz.read_blz(store).columns[0] == FAR.tz_localize("UTC")


def test_a_label_of_business_days_is_read_without_a_warning():
    store = MemoryStore()
    blz.to_blz(pd.DataFrame({"a": [1]}), store)
    with tamper.editing(store) as table:
        labels = [["a", ["period", "B", 14_600]]]
        level = {"dtype": ["numpy", "object"]}
        header = {"multi": False, "names": [None], "levels": [level], "labels": labels}
        table.head["pandas"]["columns"] = header
    assert str(blz.read_blz(store).columns[0]) == "2025-12-18"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("value_type", [pa.null(), pa.binary(0)], ids=str)
def test_a_dictionary_of_values_without_bytes_may_claim_any_number_of_them(value_type):
    values = pa.array([b"", b""]).cast(value_type) if value_type != pa.null() else pa.nulls(2)
    codes = pa.array([0, 1, None, 1] * 5)
    column = pa.DictionaryArray.from_arrays(codes, values)
    store = MemoryStore()
    blz.to_blz(pa.table({"a": column}), store, row_group_rows=10)
    expected = blz.read_blz(store)
    for rows in (1 << 40, 1 << 62):
        with tamper.editing(store) as table:
            for group in (0, 1):
                block = table.part(group=group).metadata["dictionary"]
                block |= {"rows": rows, "page_rows": 1 << 30}
        assert blz.read_table(store)["a"].to_pylist() == column.to_pylist()
        pd.testing.assert_frame_equal(blz.read_blz(store), expected)
        with blz.open(store) as table:
            assert table["a"][5:15].to_pylist() == column[5:15].to_pylist()


@pytest.mark.parametrize("rows", [1 << 40, 1 << 61])
def test_empty_bytes_that_pandas_has_no_memory_for_are_refused(rows):
    store = claiming(rows, pa.table({"a": pa.array([b"", b""], pa.binary(0))}))
    assert blz.read_table(store).num_rows == rows
    with pytest.raises(blz.BlzError, match=r"'a'.*read the column with to_arrow"):
        blz.read_blz(store)


def test_a_column_after_the_last_id_is_refused_before_anything_is_committed():
    store = MemoryStore()
    blz.to_blz({"a": [1]}, store)
    for last in (10**18 - 1, 1 << 62):
        with tamper.editing(store) as table:
            table.head["next_column"] = last
        before = set(store._entries)
        with pytest.raises(blz.LimitError, match="ids of columns"):
            blz.to_blz({"a": [1], "b": [2]}, store)
        assert set(store._entries) == before
    assert blz.read_table(store).num_rows == 1


def test_a_version_after_the_last_is_refused_before_anything_is_committed():
    store = MemoryStore()
    blz.to_blz({"a": [1]}, store)
    last = 1 << 62
    with tamper.editing(store) as table:
        table.head["version"] = last
    store.put_new(layout.manifest(last), [store.get(layout.manifest(1))])
    store.delete([layout.manifest(1)])
    before = set(store._entries)
    with pytest.raises(blz.LimitError, match=f"no version after {last}"):
        blz.to_blz({"a": [1]}, store)
    with blz.open(store, "a") as table, pytest.raises(blz.LimitError):
        table.attrs["a"] = 1
    assert set(store._entries) == before
    assert blz.read_table(store).num_rows == 1


@pytest.mark.parametrize("where", ["block", "dictionary"])
def test_streams_of_more_chunks_than_the_file_has_take_no_memory(where):
    store = MemoryStore()
    blz.to_blz(pa.table({"a": pa.array(["x", "y"]).dictionary_encode()}), store)
    with tamper.editing(store) as table:
        block = table.part().metadata
        block = block if where == "block" else block["dictionary"]
        many = {"dtype": "|u1", "typesize": 1, "nbytes": 1 << 21, "chunk_size": 1}
        block["streams"] = [{"name": str(number), **many} for number in range(100)]
    tracemalloc.start()
    with pytest.raises(blz.CorruptError, match="2097152 bytes in chunks of 1"):
        blz.read_table(store)
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("value_type", [pa.string_view(), pa.binary_view()], ids=str)
def test_a_column_of_a_dictionary_of_views_becomes_a_numpy_array(value_type):
    values = pa.array([b"a", b"b"]).cast(value_type)
    store = MemoryStore()
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), values)
    blz.to_blz(pa.table({"a": column}), store)
    with blz.open(store) as table:
        assert table["a"].to_numpy().tolist() == column.to_pylist()


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (pa.time32("s"), b"\x7f" * 4),
        (pa.time64("ns"), b"\x7f" * 8),
        (pa.decimal128(38, 500), b"\x01" * 16),
    ],
)
def test_values_that_python_does_not_know_are_refused_by_numpy_with_their_column(type_, data):
    column = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(data)])
    store = MemoryStore()
    blz.to_blz(pa.table({"a": column}), store)
    with blz.open(store) as table, pytest.raises(blz.SchemaError, match="column 'a': numpy"):
        table["a"].to_numpy()


def test_a_column_that_is_a_level_of_an_index_is_that_level_alone():
    days = pd.date_range("2026", periods=4, tz="Europe/Berlin", name="day")
    index = pd.MultiIndex.from_arrays([days, list("aabb")], names=["day", None])
    store = MemoryStore()
    blz.to_blz(pd.DataFrame({"x": range(4)}, index), store)
    with blz.open(store) as table:
        pd.testing.assert_series_equal(table["day"].to_pandas(), pd.Series(days))
        assert table["__index_level_1__"].to_pandas().tolist() == list("aabb")


def test_held_categories_with_a_name_that_is_not_utf8_are_refused():
    empty = pd.DataFrame({"a": pd.Categorical([], categories=["x", "y"])})
    store = MemoryStore()
    blz.to_blz(empty, store)
    with tamper.editing(store) as table:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(table.head["schema"])))
        descriptor = json.loads(schema.field(0).metadata[FIELD_KEY])
        held = base64.b64decode(descriptor["held"]).replace(b"categories", b"categorie\xff")
        descriptor["held"] = base64.b64encode(held).decode()
        field = schema.field(0).with_metadata({FIELD_KEY: json.dumps(descriptor)})
        data = pa.schema([field]).serialize().to_pybytes()
        table.head["schema"] = base64.b64encode(data).decode()
    with pytest.raises(blz.FormatError, match="categories cannot be read"):
        blz.read_blz(store)


def test_the_fuzzer_finds_nothing_in_its_first_cases():
    with Captive(fuzzer.worker, 0, growth=600 << 20) as worker:
        for case in range(300):
            assert worker.ask(case)[1] == "", f"seed 0, case {case}"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "table", [pa.table({"a": pa.nulls(3)}), pa.table({"a": pa.array([b""] * 3, pa.binary(0))})]
)
def test_a_stream_of_rows_of_nothing_has_an_end(table):
    with blz.open(claiming(1 << 61, table)) as opened:
        assert sum(batch.num_rows for batch in opened.to_batches()) == 1 << 61
        assert sum(batch.num_rows for batch in opened.to_batches([])) == 1 << 61


def test_a_frequency_of_an_index_that_cannot_have_one_is_refused():
    store = MemoryStore()
    days = pd.date_range("2026-01-01", periods=4, freq="D", name="day")
    blz.to_blz(pd.DataFrame({"a": range(4)}, index=days), store)
    with tamper.editing(store) as edited:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(edited.head["schema"])))
        place = schema.get_field_index("day")
        field = schema.field(place).with_metadata({b"blz:pandas": b'{"dtype":"arrow"}'})
        changed = schema.set(place, field).serialize().to_pybytes()
        edited.head["schema"] = base64.b64encode(changed).decode()
    with pytest.raises(blz.FormatError, match="cannot have a frequency"):
        blz.read_blz(store)


@pytest.mark.parametrize("facts", ["false", "0", "[]", '"values"', '{"other":1}'])
def test_categories_described_by_anything_else_are_refused(facts):
    store = MemoryStore()
    blz.to_blz(pd.DataFrame({"a": pd.Categorical([1, 2])}), store)
    with tamper.editing(store) as edited:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(edited.head["schema"])))
        text = f'{{"dtype":"category","categories":{facts}}}'.encode()
        field = schema.field(0).with_metadata({b"blz:pandas": text})
        changed = schema.set(0, field).serialize().to_pybytes()
        edited.head["schema"] = base64.b64encode(changed).decode()
    with pytest.raises(blz.FormatError):
        blz.read_blz(store)


def test_an_index_in_a_zone_that_is_not_known_here_is_read_by_its_backend():
    type_ = pa.timestamp("ns", "no/zone")
    index = pd.Index(pd.arrays.ArrowExtensionArray(pa.array([1, 2], type_)), name="when")
    frame = pd.DataFrame({"a": [1, 2]}, index=index)
    store = MemoryStore()
    blz.to_blz(frame, store)
    with tamper.editing(store) as edited:
        edited.head["pandas"]["allows_duplicate_labels"] = False
    found = blz.read_blz(store, dtype_backend="pyarrow")
    assert found["a"].tolist() == [1, 2]
    assert found.index.dtype == pd.ArrowDtype(type_)
