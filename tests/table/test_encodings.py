"""A table with encoded values answers like one with plain values, after any changes."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.columns.encodings import choose
from blztable.engine.change.creation import create
from blztable.engine.read.parts import OpenParts
from blztable.engine.write import parts
from blztable.errors import CorruptError
from blztable.format.chunk import Compression
from blztable.storage.memory import RamStore
from golden import reader
from support import tamper
from support.bit_equality import bits, same_table
from support.new_tables import Stream
from support.options import arguments, tiny
from support.samples import FLAGS, NUMBER_ROWS, numbers_table

TABLE = numbers_table()
CUTS = {"row_group_rows": 300, "page_rows": 64}


def encodings_of(store) -> dict[str, str | None]:
    """Return the kind of each column's first part, None for plain values."""
    result = {}
    with blz.open(store) as table:
        version = table._snapshot.version
        for index, name in enumerate(version.schema.names):
            places = OpenParts(version).open(index, 0).root.streams
            one = places.get("ends") or places.get("values") or places["codes"]
            result[name] = one.encoding.kind if one.encoding else None
    return result


@pytest.fixture
def stores():
    plain, encoded = RamStore("plain"), RamStore("encoded")
    blz.to_blz(TABLE, plain, **arguments(encoding="plain", **CUTS))
    blz.to_blz(TABLE, encoded, **arguments(**CUTS))
    return plain, encoded


def test_each_column_has_the_encoding_that_suits_it(stores):
    kinds = {
        "near": "narrow",
        "rising": "delta",
        "price": "scaled",
        "product": "scaled",
        "odd": "scaled",
        "any": None,
        "day": "narrow",
        "at": "delta",
        "money": "narrow",
        "word": "narrow",
        "unsigned": "narrow",
        "line": "lengths",
        "flag": "each",
        "mode": "dictionary",
        "same": "constant",
        "cents": "narrow",
        "few": "dictionary",
        "id": "dictionary",
    }
    found = encodings_of(stores[1])
    assert {name: found[name] for name in kinds} == kinds
    # Steps from and to a null are none of the values.
    of_nulls = {name: found[f"{name} or null"] for name in kinds}
    steps = {"rising": "narrow", "at": "narrow", "flag": "lengths"}
    # The null of a double is NaN, which is another value.
    assert of_nulls == kinds | steps | {"same": "dictionary"}
    assert set(encodings_of(stores[0]).values()) == {None}


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
    assert encodings_of(path) == {"near": None, "price": "scaled"}
    blz.to_blz(TABLE.select(["near", "price"]), path, mode="a")
    with blz.open(path, "a") as table:
        table.compact()
    assert encodings_of(path) == {"near": None, "price": "scaled"}


def test_an_encoding_that_is_not_known_is_refused_as_an_option(tmp_path):
    with pytest.raises(ValueError, match="encoding must be one of None, 'auto', 'plain', not 'x'"):
        blz.to_blz(TABLE, tmp_path / "t.blz", storage=blz.Storage(encoding="x"))


@pytest.mark.parametrize(
    "change",
    [
        lambda stream: stream.pop("encoding"),
        lambda stream: stream.update(encoding=7),
        lambda stream: stream["encoding"].pop("bases"),
        lambda stream: stream.update(typesize=1),
        lambda stream: stream.update(dtype="<u2"),
    ],
)
def test_metadata_of_codes_that_do_not_fit_together_are_corrupt(change):
    store = RamStore()
    blz.to_blz(TABLE.select(["near"]), store)
    with tamper.editing(store) as table:
        change(table.part(0).metadata["streams"][0])
    with pytest.raises(CorruptError):
        blz.read_table(store)


def test_a_chunk_that_cuts_a_page_of_distances_is_corrupt():
    store = RamStore()
    blz.to_blz(TABLE.select(["rising"]), store, storage=blz.Storage(page_rows=64))
    with tamper.editing(store) as table:
        stream = table.part(0).metadata["streams"][0]
        assert stream["encoding"]["kind"] == "delta"
        stream["encoding"]["firsts"] = "AAAAAAAAAAA="
        table.part(0).metadata["page_rows"] = 1024
        table.lines[0]["page_rows"] = [1024]
        stream["chunk_size"] = 1000
        table.part(0).chunks = [Compression().compress(np.zeros(1000, "u1"), 4)] * 2
        table.part(0).header.update(chunk_size=1000, last_chunk=1000)
    with pytest.raises(CorruptError, match="a chunk boundary lies within a page"):
        blz.read_table(store)


def test_a_page_of_distances_that_no_chunk_can_hold_is_kept_as_it_is():
    rows = 1 << 21
    table = pa.table({"rising": np.cumsum(np.arange(rows) % 9) * 1000})
    store = RamStore()
    blz.to_blz(table, store, storage=blz.Storage(page_rows=rows))
    assert encodings_of(store) == {"rising": None}
    assert blz.read_table(store).equals(table)


@pytest.mark.parametrize("name", ["rising", "line"])
def test_a_page_that_is_decoded_at_once_is_not_cut_by_small_chunks(name):
    store = RamStore()
    options = tiny(page_rows=512, chunk_bytes=64)
    create(store, Stream(TABLE.select([name])), options, replace_existing=True)[1].close()
    assert encodings_of(store)[name] in ("delta", "lengths")
    assert blz.read_table(store).equals(TABLE.select([name]))


def test_nulls_have_no_encoding_of_numbers():
    store = RamStore()
    blz.to_blz(TABLE.select(["near or null"]), store)
    with tamper.editing(store) as table:
        stream = table.part(0).metadata["streams"][0]
        assert stream["name"] == "valid"
        stream["encoding"] = {"kind": "narrow", "bases": "AAAAAAAAAAA="}
    with pytest.raises(CorruptError, match="encoding 'narrow' of stream 'valid'"):
        blz.read_table(store)


def test_lengths_that_do_not_fill_their_page_are_corrupt():
    store = RamStore()
    blz.to_blz(TABLE.select(["line"]), store, storage=blz.Storage(page_rows=64))
    with tamper.editing(store) as table:
        pages = table.part(0).metadata["streams"][1]["pages"]
        pages[:2] = pages[0] + 1, pages[1] - 1
    with pytest.raises(CorruptError, match="'ends', chunk 0: the lengths of the items of page 0"):
        blz.read_table(store)
    with blz.open(store) as table, pytest.raises(CorruptError, match="of page 1 do not add up"):
        table.take([70])
    with blz.open(store) as table:
        assert not table.verify()


def test_items_of_one_length_take_no_bytes_for_their_ends_and_none_for_nothing():
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
    with tamper.editing(store) as edited:
        stream = edited.part(1).metadata["streams"][0]
        assert stream["chunks"] == []
        stream["encoding"]["length"] += 1
    with pytest.raises(CorruptError, match="the pages of items do not have items of 4 bytes"):
        blz.read_table(store, columns=["flag"])


def test_a_dictionary_of_only_one_of_two_streams_is_corrupt():
    for number in (0, 1):
        store = RamStore()
        blz.to_blz(TABLE.select(["mode"]), store)
        with tamper.editing(store) as edited:
            stream = edited.part(0).metadata["streams"][number]
            stream["encoding"] = {"kind": "lengths"}
            if number:
                del stream["encoding"]
                stream["pages"] = [0]
        with pytest.raises(
            CorruptError, match=r"encoding 'dictionary' of only one|has the sizes|streams have"
        ):
            blz.read_table(store)


def test_codes_and_pages_that_lie_about_a_dictionary_are_corrupt():
    for rows, page_rows in ((1000, 64), (100_000, 1024)):
        table = pa.table({"mode": pa.array(["a", "bc", "def"] * (rows // 3))})
        for lie in ("code", "pages"):
            store = RamStore()
            blz.to_blz(table, store, storage=blz.Storage(page_rows=page_rows))
            with tamper.editing(store) as edited:
                ends, values = edited.part(0).metadata["streams"]
                assert ends["encoding"]["kind"] == values["encoding"]["kind"] == "dictionary"
                if lie == "pages":
                    pages = values["pages"]
                    pages[0], pages[-1] = pages[0] - 1, pages[-1] + 1
                else:
                    codes = np.zeros(ends.get("chunk_size", ends["nbytes"]), "u1")
                    codes[5] = 3
                    edited.part(0).chunks[0] = Compression().compress(codes, 4)
            message = "of page 0 do not have" if lie == "pages" else "a dictionary of 3 items"
            with pytest.raises(CorruptError, match=message):
                blz.read_table(store)
            with blz.open(store) as opened:
                assert not opened.verify()
                if lie == "code":
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
        (None, ["dictionary", "lengths"]),
        ("speed", ["lengths", "lengths"]),
        ("size", ["dictionary", "lengths"]),
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
        codes = np.zeros(400, "u1")
        codes[5] = 4
        edited.part(0).chunks[0] = Compression().compress(codes, 4)
    # The fourth is the NaN of the nulls.
    message = "a code is outside of a dictionary of 4 items"
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
        kinds = {one.name: one.encodings for one in opened["a"].streams()}
        assert (kinds["dictionary.values"] == ("dictionary",)) == (kind != pa.string())
    rows = reader.read(tmp_path / "t.blz").columns[0].rows
    assert rows == bits(table["a"])


def test_pages_that_claim_more_than_a_dictionary_has_are_refused_before_memory_is_made():
    store = RamStore()
    blz.to_blz(TABLE.select(["mode"]), store)
    claimed = 2_000_000_000
    with tamper.editing(store) as edited:
        edited.part(0).metadata["streams"][1]["pages"] = [claimed]
        edited.lines[0]["streams"]["values"] = [claimed]
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    with pytest.raises(CorruptError, match="the items of page 0 do not have the bytes"):
        blz.read_table(store)
    assert pool.max_memory() - before < claimed // 2


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
    monkeypatch.setattr(choose, "FORMS", ())
    monkeypatch.setattr(parts, "encode_few_items", lambda *arguments: None)
    monkeypatch.setattr(choose, "few_runs", lambda *arguments: None)
    blz.to_blz(TABLE, stores[1], **arguments(encoding="auto", **CUTS))
    monkeypatch.setattr(choose, "encode_few_values", lambda *arguments: None)
    monkeypatch.setattr(choose, "_is_constant", lambda *arguments: False)
    blz.to_blz(TABLE, stores[2], **arguments(encoding="auto", **CUTS))
    monkeypatch.undo()
    kinds = [encodings_of(store) for store in stores]
    assert [one["mode"] for one in kinds] == ["dictionary", "lengths", "lengths"]
    assert [one["few"] for one in kinds] == ["dictionary", "dictionary", None]
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
        "near": ("narrow",),
        "line": ("lengths", "plain"),
        "price or null": ("scaled",),
        "any": ("plain",),
        "outage": ("runs", "plain"),
    }
    lines = str(plan).splitlines()
    assert lines[2].endswith("stored as")
    assert next(line for line in lines if line.startswith("line")).endswith("  lengths, plain")
