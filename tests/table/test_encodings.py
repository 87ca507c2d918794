"""A table with encoded values answers like one with plain values, after any changes."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.columns.parts import dictionary, encode, numbers
from blztable.engine.change.creation import create
from blztable.errors import CorruptError
from blztable.format.records import (
    ITEMS_VALUES,
    LENGTHS,
    NUMBERS,
    SUM,
    VALID,
    VALUES,
    encoding_of,
)
from blztable.storage.memory import RamStore
from golden import reader
from support import tamper
from support.bit_equality import bits, same_table
from support.new_tables import Stream
from support.options import arguments, tiny
from support.samples import FLAGS, NUMBER_ROWS, numbers_table

TABLE = numbers_table()
CUTS = {"row_group_rows": 300, "page_rows": 64}


def encodings_of(store) -> dict[str, str]:
    """Return the encoding of each column's first part."""
    result = {}
    with blz.open(store) as table:
        version = table._snapshot.version
        for index, name in enumerate(version.schema.names):
            records = version.parts(index).records
            count = int(records.parts["streams"][0])
            streams = {int(one["name"]): one for one in records.streams[:count]}
            is_text = LENGTHS in streams
            result[name] = encoding_of(streams[LENGTHS if is_text else VALUES])
    return result


@pytest.fixture
def stores():
    plain, encoded = RamStore("plain"), RamStore("encoded")
    blz.to_blz(TABLE, plain, **arguments(encoding="plain", **CUTS))
    blz.to_blz(TABLE, encoded, **arguments(**CUTS))
    return plain, encoded


def test_each_column_has_the_encoding_that_suits_it(stores):
    kinds = {
        "near": "numbers",
        "rising": "numbers, sum",
        "price": "numbers, power",
        "product": "numbers, power",
        "odd": "numbers, power",
        "any": "plain",
        "day": "numbers",
        "at": "numbers, sum",
        "money": "numbers",
        "word": "dictionary",
        "unsigned": "numbers",
        "line": "numbers, sum",
        "flag": "numbers, sum",
        "mode": "dictionary",
        "same": "constant",
        "cents": "numbers",
        "few": "dictionary",
        "id": "dictionary",
    }
    found = encodings_of(stores[1])
    assert {name: found[name] for name in kinds} == kinds
    # Steps from and to a null are none of the values.
    of_nulls = {name: found[f"{name} or null"] for name in kinds}
    assert of_nulls == kinds | {"rising": "numbers", "at": "numbers"}
    found = encodings_of(stores[0])
    # Text has lengths however it is stored.
    texts = {name: "numbers, sum" for name in found if name.split()[0] in ("line", "flag", "mode")}
    coded = {"word": "dictionary", "word or null": "dictionary"}
    assert found == dict.fromkeys(found, "plain") | texts | coded


def test_a_table_with_encodings_is_smaller_and_of_the_same_size_in_memory(stores):
    with blz.open(stores[0]) as plain, blz.open(stores[1]) as encoded:
        assert encoded.nbytes == plain.nbytes
        assert encoded.cbytes < plain.cbytes
        assert encoded["near"].nbytes == 8 * NUMBER_ROWS


def check_equal(plain, encoded):
    with blz.open(plain) as one, blz.open(encoded) as other:
        assert same_table(other.to_arrow(), one.to_arrow())
        assert other.verify()
        assert other.verify(full=False)
        for filters in (
            [("near", ">", 10**12 + 100)],
            [("price", "<=", 33.25), ("word", "==", "word 3")],
            pc.field("rising or null").is_null() | (pc.field("at") > pc.field("at")),
            [("line or null", ">", "line 5"), ("flag", "<=", b"300")],
            [("mode", ">=", "rail")],
            [("same or null", ">", -1.0), ("cents", "<", 5)],
            [("odd", "<=", 0.0)],
            pc.is_nan(pc.field("odd")),
            pc.field("mode or null").is_null() | (pc.field("mode or null") == "air"),
        ):
            if {"near", "price", "word", "rising or null", "at"} <= set(one.columns):
                assert same_table(other.to_arrow(filters=filters), one.to_arrow(filters=filters))
                assert other.count(filters=filters) == one.count(filters=filters)
        if len(one):
            rows = np.arange(len(one))[::-37]
            assert same_table(other.take(rows), one.take(rows))
            middle = len(one) // 2
            assert same_table(other.to_arrow().slice(middle, 5), one.to_arrow().slice(middle, 5))
            for name in one.columns[:3]:
                assert other[name][middle : middle + 70 : 3].equals(
                    one[name][middle : middle + 70 : 3]
                )


def test_reads_filters_and_picks_are_those_of_plain_values(stores):
    check_equal(*stores)


CHANGES = {
    "append": lambda t: t.append(numbers_table(150, 7)),
    "update": lambda t: t.update({"price": 0.1, "near": 7}, where=[("near", ">", 10**12 + 150)]),
    "expression": lambda t: t.update({"rising": pc.field("rising") + 1}),
    "text": lambda t: t.update({"mode": "a new one"}, where=[("mode", "==", "air")]),
    "delete": lambda t: t.delete([("price", "<", 30)]),
    "compact": lambda t: t.compact(),
    "sort": lambda t: t.compact(sort_by=["price", ("near", "descending")]),
    "add": lambda t: t.add_column(f"new {len(t.columns)}", pc.field("near") * 2),
    "resize": lambda t: t.resize(len(t) + 100),
    "truncate": lambda t: t.resize(len(t) // 2),
}


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(list(CHANGES)), min_size=1, max_size=5), st.booleans())
def test_any_changes_of_encoded_values_are_those_of_plain_values(names, is_one_commit):
    plain, encoded = RamStore("plain"), RamStore("encoded")
    for store, options in ((plain, {"encoding": "plain"}), (encoded, {})):
        blz.to_blz(TABLE.slice(0, 600), store, **arguments(**CUTS, **options))
        with blz.open(store, "a") as table:
            if is_one_commit:
                with table.transaction() as transaction:
                    for name in names:
                        CHANGES[name](transaction)
            else:
                for name in names:
                    CHANGES[name](table)
    check_equal(plain, encoded)


def test_an_encoding_may_differ_by_column_and_is_kept_for_appends(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(
        TABLE.select(["near", "price"]),
        path,
        storage=blz.Storage(columns={"near": blz.Storage(encoding="plain")}),
    )
    assert encodings_of(path) == {"near": "plain", "price": "numbers, power"}
    blz.to_blz(TABLE.select(["near", "price"]), path, mode="a")
    with blz.open(path, "a") as table:
        table.compact()
    assert encodings_of(path) == {"near": "plain", "price": "numbers, power"}


def test_an_encoding_that_is_not_known_is_refused_as_an_option(tmp_path):
    with pytest.raises(ValueError, match="encoding must be one of None, 'auto', 'plain', not 'x'"):
        blz.to_blz(TABLE, tmp_path / "t.blz", storage=blz.Storage(encoding="x"))


@pytest.mark.parametrize(
    "change",
    [{"kind": 0}, {"kind": 2}, {"typesize": 0}, {"width": 2}, {"power": 3}, {"flags": SUM}],
)
def test_records_of_codes_that_do_not_fit_together_are_corrupt(change):
    store = RamStore()
    blz.to_blz(TABLE.select(["near"]), store)
    with tamper.editing(store) as table:
        for name, value in change.items():
            table.part(0).streams[VALUES].record[name] = value
    with pytest.raises(CorruptError):
        blz.read_table(store)


@pytest.mark.parametrize("name", ["rising", "line"])
def test_pages_of_sums_may_be_cut_by_small_chunks(name):
    store = RamStore()
    options = tiny(page_rows=512, chunk_bytes=64)
    create(store, Stream(TABLE.select([name])), options, replace_existing=True)[1].close()
    assert encodings_of(store)[name] == "numbers, sum"
    assert blz.read_table(store).equals(TABLE.select([name]))


def test_nulls_have_no_encoding_of_numbers():
    store = RamStore()
    blz.to_blz(TABLE.select(["near or null"]), store)
    with tamper.editing(store) as table:
        table.part(0).streams[VALID].record["kind"] = NUMBERS
    with pytest.raises(CorruptError, match="validity"):
        blz.read_table(store)


def test_lengths_that_do_not_fill_their_page_are_corrupt():
    store = RamStore()
    blz.to_blz(TABLE.select(["line"]), store, storage=blz.Storage(page_rows=64))
    with tamper.editing(store) as table:
        table.part(0).streams[LENGTHS].words[1] += 1
    with pytest.raises(CorruptError, match="lengths of a page"):
        blz.read_table(store)
    with blz.open(store) as table, pytest.raises(CorruptError):
        table.take([63, 127])
    with blz.open(store) as table:
        assert not table.verify()


def test_items_of_one_length_take_no_bytes_for_their_lengths():
    store = RamStore()
    empty = pa.array([""] * 1000, pa.string())
    table = pa.table({"empty": empty, "flag": FLAGS})
    blz.to_blz(table, store, storage=blz.Storage(page_rows=64))
    with blz.open(store) as opened:
        assert opened["empty"].cbytes < 700
        assert opened["empty"].nbytes == 4000
        assert opened.to_arrow().equals(table)
        assert opened.verify()
        seen = []
        opened.to_arrow(progress=lambda done, rows: seen.append(done))
        assert seen[-1] == 1000
        assert opened.take([999, 0, 3]).equals(table.take([999, 0, 3]))
        assert opened["empty"][500:700].to_pylist() == [""] * 200
    blz.to_blz(table, store, mode="w", storage=blz.Storage(page_rows=64, encoding="plain"))
    with tamper.editing(store) as edited:
        stream = edited.part(1).streams[LENGTHS]
        assert (stream.record["nbytes"], stream.words[-1]) == (0, 3)
        stream.words[-1] = 4
    with pytest.raises(CorruptError):
        blz.read_table(store, columns=["flag"])


def test_a_dictionary_without_one_of_its_streams_is_corrupt():
    for name in (LENGTHS, ITEMS_VALUES):
        store = RamStore()
        blz.to_blz(TABLE.select(["mode"]), store)
        with tamper.editing(store) as edited:
            del edited.part(0).streams[name]
        with pytest.raises(CorruptError, match="streams of the type"):
            blz.read_table(store)


@pytest.mark.parametrize(("rows", "page_rows"), [(999, 64), (99_999, 1024)])
def test_codes_that_lie_about_a_dictionary_are_corrupt(rows, page_rows):
    table = pa.table({"mode": pa.array(["a", "bc", "def"] * (rows // 3))})
    store = RamStore()
    blz.to_blz(table, store, storage=blz.Storage(page_rows=page_rows))
    with tamper.editing(store) as edited:
        stream = edited.part(0).streams[LENGTHS]
        codes = stream.data()
        codes[5] = 3
        stream.set_data(codes)
    message = "outside of a dictionary of 3 items|one numbers no item"
    with pytest.raises(CorruptError, match=message):
        blz.read_table(store)
    with blz.open(store) as opened:
        assert not opened.verify()
        names = opened.columns
        with pytest.raises(CorruptError, match=message):
            opened.to_arrow(dictionaries=names)
        with pytest.raises(CorruptError, match=message):
            opened.to_arrow(filters=pc.field(names[0]).is_valid(), dictionaries=names)
        with pytest.raises(CorruptError, match=message):
            opened.take([5])


def test_text_of_many_items_has_a_dictionary_where_that_halves_it():
    rng = np.random.default_rng(0)
    names = pa.array([rng.bytes(n % 20 + 4).hex() for n in range(300)])
    # Most of the rows are in long runs, of which lz4hc leaves less than a code of nine bits.
    in_runs = pa.array(np.arange(60_000) // 200)
    table = pa.table({"any": names.take(pa.array(rng.integers(0, 300, 60_000)))})
    table = table.append_column("runs", names.take(in_runs))
    for optimize, kinds in (
        (None, ["dictionary", "numbers, sum"]),
        ("speed", ["numbers, sum", "numbers, sum"]),
        ("size", ["dictionary", "numbers, sum"]),
    ):
        store = RamStore()
        blz.to_blz(table, store, storage=blz.Storage(encoding="auto", optimize=optimize))
        assert list(encodings_of(store).values()) == kinds
        with blz.open(store, "a") as opened:
            assert opened.to_arrow().equals(table)
            rows = [59_999, 3, 3, 20_000]
            assert opened.take(rows).equals(table.take(rows))
            filters = [("any", "==", names[7].as_py())]
            expected = table.filter(pc.equal(table["any"], names[7]))
            assert opened.to_arrow(filters=filters).equals(expected)
            assert opened.count(filters=filters) == len(expected)
            shown = opened.to_arrow(dictionaries=["any"])["any"]
            assert shown.cast(pa.string()).equals(table["any"])
            opened.update({"any": "new"}, where=filters)
            assert opened.count(filters=[("any", "==", "new")]) == len(expected)
            assert opened.verify()


def test_a_code_without_a_value_is_corrupt_however_it_is_read():
    table = pa.table({"few": pa.array([0.1, 0.7, None, 1 / 3] * 100)})
    store = RamStore()
    blz.to_blz(table, store, storage=blz.Storage(encoding="auto"))
    assert encodings_of(store) == {"few": "dictionary"}
    with tamper.editing(store) as edited:
        stream = edited.part(0).streams[VALUES]
        codes = stream.data()
        codes[5] = 3
        stream.set_data(codes)
    message = "outside of a dictionary of 3 items|one numbers no item"
    with pytest.raises(CorruptError, match=message):
        blz.read_table(store)
    with blz.open(store) as opened:
        assert not opened.verify()
        with pytest.raises(CorruptError, match=message):
            opened.take([5])
        with pytest.raises(CorruptError, match=message):
            opened.to_arrow(filters=[("few", ">", 0.2)])
        with pytest.raises(CorruptError, match=message):
            opened["few"][3:9]


@pytest.mark.parametrize("kind", [pa.float64(), pa.timestamp("ns"), pa.binary(3), pa.string()])
def test_a_dictionary_that_repeats_values_comes_back(kind, tmp_path):
    rng = np.random.default_rng(0)
    raw = np.frombuffer(rng.bytes(80), "<i8")[np.arange(200) % 10]
    if kind in (pa.string(), pa.binary(3)):
        items = pa.array([f"{n % 1000:03}".encode() for n in raw.tolist()], pa.binary(3))
        items = items.cast(pa.binary()).cast(kind)
    else:
        items = pa.Array.from_buffers(kind, 200, [None, pa.py_buffer(raw)])
    codes = pa.array(rng.integers(0, 200, 3000), pa.int16())
    table = pa.table({"a": pa.DictionaryArray.from_arrays(codes, items)})
    blz.to_blz(table, tmp_path / "t.blz", storage=blz.Storage(encoding="auto"))
    assert same_table(blz.read_table(tmp_path / "t.blz"), table)
    with blz.open(tmp_path / "t.blz") as opened:
        assert opened.verify()
        assert same_table(opened.take([2999, 5, 5]), table.take([2999, 5, 5]))
        chosen = pc.equal(table["a"].cast(kind), items[7])
        found = opened.to_arrow(filters=pc.field("a") == items[7])
        assert found["a"].cast(kind).equals(table.filter(chosen)["a"].cast(kind))
    rows = reader.read(tmp_path / "t.blz").columns[0].rows
    assert rows == bits(table["a"])


def test_a_column_of_nulls_or_of_one_value_takes_no_bytes_for_its_rows():
    rows = 100_000
    columns = {
        "null": pa.nulls(rows, pa.int64()),
        "no text": pa.nulls(rows, pa.string()),
        "one": pa.array(np.full(rows, 3)),
        "true": pa.array([True] * rows),
        "code": pa.array(["only"] * rows).dictionary_encode(),
        "three": pa.array([None, 3, 3, 3] * (rows // 4), pa.int32()),
    }
    table = pa.table(columns)
    store = RamStore()
    blz.to_blz(table, store)
    with blz.open(store) as opened:
        for name in table.column_names:
            assert opened[name].cbytes < 1300, name
        assert same_table(opened.to_arrow(), table)
        assert opened.verify()
        rows = [99_999, 5, 5, 0]
        assert opened.take(rows).equals(table.take(rows))
        assert opened.count(filters=[("one", "==", 3), ("three", "==", 3)]) == 75_000
    with blz.open(store, "a") as opened:
        opened.update({"null": 7}, where=[("three", "==", 3)])
        assert opened.count(filters=[("null", "==", 7)]) == 75_000
        assert opened.verify()


def test_another_choice_of_encodings_is_as_intact(monkeypatch):
    stores = [RamStore(name) for name in ("chosen", "other", "fewer")]
    blz.to_blz(TABLE, stores[0], **arguments(encoding="auto", **CUTS))
    # As a later blztable may choose, for one.
    monkeypatch.setattr(numbers, "decimals", lambda *arguments: None)
    monkeypatch.setattr(dictionary, "of_bytes", lambda *arguments: None)
    blz.to_blz(TABLE, stores[1], **arguments(encoding="auto", **CUTS))
    monkeypatch.setattr(dictionary, "of_values", lambda *arguments: None)
    monkeypatch.setattr(encode._PartBuilder, "_is_constant", lambda *arguments: False)
    blz.to_blz(TABLE, stores[2], **arguments(encoding="auto", **CUTS))
    monkeypatch.undo()
    kinds = [encodings_of(store) for store in stores]
    assert [one["mode"] for one in kinds] == ["dictionary", "numbers, sum", "numbers, sum"]
    assert [one["few"] for one in kinds] == ["dictionary", "dictionary", "plain"]
    for store in stores:
        with blz.open(store) as opened:
            assert opened.verify()
            assert same_table(opened.to_arrow(), TABLE)


def test_a_plan_says_how_its_columns_are_stored():
    store = RamStore()
    names = ["near", "line", "price or null", "any", "outage"]
    blz.to_blz(TABLE.select(names), store, storage=blz.Storage(encoding="auto"))
    with blz.open(store) as opened:
        plan = opened.explain(names, filters=pc.field("near") > 10**12 + 20)
    assert {one.name: one.encodings for one in plan.columns} == {
        "near": ("numbers",),
        "line": ("plain", "numbers, sum"),
        "price or null": ("plain", "numbers, power"),
        "any": ("plain",),
        "outage": ("plain",),
    }
    lines = str(plan).splitlines()
    assert lines[2].endswith("stored as")
    assert next(line for line in lines if line.startswith("line")).endswith("  plain, numbers, sum")


def test_text_of_many_items_in_some_order_has_a_dictionary():
    """As the scheduled hours of flights, which are almost sorted: their codes repeat, too."""
    rng = np.random.default_rng(0)
    hours = pd.date_range("2013-01-01", periods=6_900, freq="h").strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = np.sort(rng.integers(0, 6_900, 300_000)) + rng.integers(-3, 4, 300_000)
    table = pa.table({"t": pa.array(hours).take(pa.array(rows.clip(0, 6_899)))})
    sizes = {}
    for optimize in (None, "speed"):
        store = RamStore()
        blz.to_blz(table, store, storage=blz.Storage(optimize=optimize))
        assert blz.read_table(store).equals(table)
        kind = "numbers, sum" if optimize else "dictionary"
        assert encodings_of(store)["t"].startswith(kind)
        with blz.open(store) as opened:
            sizes[optimize] = opened.cbytes
    assert sizes[None] < sizes["speed"] / 2
