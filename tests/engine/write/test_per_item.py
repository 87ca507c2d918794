"""`packing="per_item"`: each item of text or binary is a chunk, through all changes of a table."""

import io
import struct

import blosc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.arrow.nested.nodes import Node
from blztable.columns.parts import encode
from blztable.columns.types import has_items
from blztable.engine.write import parts, reuse
from blztable.format import layout
from blztable.format.checksums import crc32
from blztable.format.chunk import EMPTY_CHUNK
from blztable.format.records import ITEM_CHUNKS, PER_ITEM, VALID, VALUES
from blztable.storage.memory import RamStore
from golden import reader
from support import tamper
from support.bit_equality import bits, same_table
from support.options import arguments
from support.recording_store import Recorded

ROWS = 40
TEXTS = [None if row % 7 == 3 else "é" * (row * 5 % 11) for row in range(ROWS)]
TABLE = pa.table(
    {
        "id": range(ROWS),
        "text": TEXTS,
        "data": pa.array([bytes(row * 400) for row in range(ROWS)], pa.large_binary()),
        "view": pa.array(TEXTS, pa.string_view()),
        "doc": [None if row % 5 == 1 else {"n": row, "body": "x" * row} for row in range(ROWS)],
        "tags": [["a" * n for n in range(row % 4)] for row in range(ROWS)],
    }
)
CUTS = {"row_group_rows": 18, "page_rows": 8}


def made(table=TABLE, **options) -> RamStore:
    store = RamStore()
    blz.to_blz(table, store, **arguments(**{"packing": "per_item", **CUTS, **options}))
    return store


def packings(store) -> dict[str, list[bool]]:
    """Return for each column with items whether those of each row group are a chunk each."""
    found = {}
    with blz.open(store) as table:
        version = table._snapshot.version
        for index, field in enumerate(version.schema):
            nodes = zip(Node.of(field.type).walk(), version.nodes(index), strict=True)
            lines = [version.parts(line) for node, line in nodes if has_items(node.flat)]
            if lines:
                found[field.name] = [
                    all(
                        one.records.parts["flags"][group] & ITEM_CHUNKS
                        for one in lines
                        if one.has_bytes(group)
                    )
                    for group in range(len(version.row_groups))
                ]
    return found


def test_every_item_is_a_chunk_at_its_offset():
    items = [b"one", b"", None, b"three" * 30]
    store = made(pa.table({"x": items}), compression="zlib")
    with tamper.editing(store) as table:
        data, key, part = store.get(table.key()), table.key(), table.part()
    assert key == "data/col0/__1__.bin"
    count = 2 + len(items)
    (first,) = [int(part.record["offset"])]
    offsets = struct.unpack_from(f"<{count}q", data, first - 8 * count)
    # The validity, the items, and their lengths.
    assert offsets[0] == first
    for offset, item in zip(offsets[1:-1], items, strict=True):
        (length,) = struct.unpack_from("<I", data, offset + 12)
        chunk = data[offset : offset + length]
        if item:
            assert blosc.decompress(chunk) == item
        else:
            assert chunk == EMPTY_CHUNK
        assert data[offset + length :][:4] == crc32(chunk).to_bytes(4, "little")
    places = np.array(offsets[1:-1], "<i8") - first
    assert part.streams[VALUES].words.tolist() == [crc32(places.data)]
    assert part.streams[VALUES].record["kind"] == PER_ITEM
    assert part.record["flags"] & ITEM_CHUNKS


@pytest.mark.parametrize("encoding", ["auto", "plain"])
def test_rows_come_back_in_every_way(encoding):
    store = made(encoding=encoding)
    places = [39, 0, 3, 3, 17, 18, 19]
    with blz.open(store) as table:
        assert same_table(table.to_arrow(), TABLE)
        taken = TABLE.drop_columns("view").take(places)
        assert same_table(table[taken.column_names].take(places), taken)
        for start, stop in ((0, 3), (3, 15), (6, 40), (17, 19), (21, 22), (9, 9)):
            assert same_table(table[start:stop], TABLE[start:stop])
        batches = pa.Table.from_batches(table.to_batches(batch_rows=7))
        assert same_table(batches, TABLE)
        for row in (0, 2, 3, 17, 39):
            assert table["text"][row] == TEXTS[row]
        wanted = TABLE.drop_columns("view")
        for condition in (
            pc.field("text") == "é" * 5,
            pc.field("text").is_null(),
            (pc.field("id") > 30) & (pc.field("data") > bytes(400)),
        ):
            found = table[wanted.column_names].to_arrow(filters=condition)
            assert same_table(found, wanted.filter(condition))
        assert table["doc.body"].to_arrow().to_pylist()[:3] == ["", None, "xx"]
        assert table.verify()


def test_the_reader_that_was_written_from_the_page_reads_items(tmp_path):
    blz.to_blz(TABLE, tmp_path / "t.blz", **arguments(packing="per_item", **CUTS))
    found = reader.read(tmp_path / "t.blz").columns
    for name, column in zip(TABLE.column_names, found, strict=True):
        assert column.rows == bits(TABLE[name]), name


def test_one_item_is_read_without_its_neighbours():
    table = pa.table({"x": [str(row) * 5000 for row in range(30)]})
    store = Recorded(made(table, row_group_rows=30, page_rows=32))
    with blz.open(store) as opened, store.recording():
        assert opened["x"][11] == "11" * 5000
        assert set(store.chunks()) == {("x", 0, 11)}


def test_statistics_of_pages_skip_items(monkeypatch):
    table = pa.table({"x": [f"{row:02} " + "text" * 500 for row in range(32)]})
    with blz.open(made(table, row_group_rows=32)) as opened:
        plan = opened.explain(filters=pc.field("x") > "24")
        (column,) = plan.columns
        assert (column.pages, column.pages_in_all) == (1, 4)
        assert "per_item" in column.encodings
        assert "per_item" in str(plan)


def test_streams_say_it():
    store = made()
    with blz.open(store) as table:
        values, lengths = table["data"].streams()
        assert (values.name, values.encodings, values.codecs) == ("values", ("per_item",), ("lz4",))
        assert lengths.name == "lengths"
        assert [one.name for one in table["doc"].streams()] == [
            "valid",
            "n.valid",
            "n.values",
            "body.valid",
            "body.values",
            "body.lengths",
        ]


def test_columns_without_items_stay_as_they_are():
    table = pa.table({"n": [1, 2], "flag": [True, None], "none": pa.nulls(2), "text": ["a", "b"]})
    table = table.append_column("category", pa.array(["a", "b"]).dictionary_encode())
    store = made(table)
    assert packings(store) == {"text": [True]}
    with blz.open(store) as opened:
        assert same_table(opened.to_arrow(), table)


def test_other_columns_of_a_small_row_group_share_a_file():
    table = TABLE.select(["id", "text"]).append_column("n", TABLE["id"])
    store = made(table, packing={"text": "per_item"}, page_rows=None)
    assert sorted(store.list_names("data/group")) == ["__1__.bin", "__3__.bin", "__5__.bin"]
    with blz.open(store) as opened:
        assert same_table(opened.to_arrow(), table)
    assert packings(store) == {"text": [True, True, True]}


def test_a_column_that_has_no_items_is_refused_by_name():
    with pytest.raises(blz.SchemaError, match="column 'id' has type int64"):
        made(packing={"id": "per_item"})
    with pytest.raises(blz.ColumnNotFoundError, match="storage: no column is named 'txt'"):
        made(packing={"txt": "per_item"})
    with pytest.raises(ValueError, match="packing must be one of None, 'packed', 'per_item'"):
        made(packing="each")
    assert packings(made(packing={"doc": "per_item", "id": "packed"}))["doc"] == [True] * 3


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows):
    for item in ("", None, "x"):
        table = pa.table({"x": pa.array([item] * rows, pa.string())})
        store = made(table)
        with blz.open(store) as opened:
            assert same_table(opened.to_arrow(), table)
            assert opened.verify()


def test_more_items_than_a_file_has_chunks_are_packed(monkeypatch):
    monkeypatch.setattr(parts, "MOST_ITEMS", 17)
    table = TABLE.select(["text"])
    store = made(table)
    # The last row group has 4 rows.
    assert packings(store) == {"text": [False, False, True]}
    with blz.open(store) as opened:
        assert same_table(opened.to_arrow(), table)


def test_an_item_above_the_largest_chunk_leaves_its_row_group_packed(monkeypatch):
    monkeypatch.setattr(encode, "LARGE_CHUNK_BYTES", 7000)
    store = made(TABLE.select(["data"]))
    assert packings(store) == {"data": [True, False, False]}
    with blz.open(store) as opened:
        assert opened["data"].to_arrow() == TABLE["data"]


def test_an_item_may_be_larger_than_other_chunks():
    item = bytes(range(256)) * (9 << 12)
    store = made(pa.table({"x": [b"small", item, b""]}))
    with blz.open(store, "a") as table:
        assert table["x"][1] == item
        assert table["x"].to_arrow().to_pylist() == [b"small", item, b""]
        assert table.verify()
        table.update({"x": b"other"}, where=pc.field("x") == b"small")
        assert table["x"][1] == item


def test_changes_keep_it():
    store = made()
    columns = ["text", "data", "view", "doc", "tags"]

    def check(rows):
        found = packings(store)
        assert set(found) == set(columns)
        assert all(all(one) for one in found.values()), found
        with blz.open(store) as table:
            assert len(table) == rows
            assert table.verify()

    with blz.open(store, "a") as table:
        table.append(TABLE.slice(0, 5))
        check(45)
        table.update({"text": "new"}, where=pc.field("id") == 20)
        table.delete(where=pc.field("id") == 21)
        check(44)
        table.compact()
        check(44)
        table.compact(sort_by="id")
        check(44)
        table.rename_columns({"text": "words"})
        columns[0] = "words"
        table.append(TABLE.slice(5, 5).rename_columns(["id", *columns]))
        check(49)
        table.alter_column("words", dtype=pa.large_string())
        check(49)
        table.append(pa.table({"id": [100], "note": ["evolved"]}), evolve=True)
        columns.append("note")
        check(50)
        table.add_column("later", ["é"] * 50)
        columns.append("later")
        check(50)
        table.drop_columns(["data"])
        columns.remove("data")
        check(50)


@pytest.mark.parametrize("packing", ["per_item", {"text": "per_item"}])
def test_changes_by_key_are_those_of_a_packed_table_and_keep_it(packing):
    table = TABLE.drop_columns("view")
    new = pa.table({"id": [3, 30, 90, 91], "text": ["new", None, "é", ""]})
    moves = {
        "upsert": lambda t: t.upsert(new, on="id"),
        "upsert by text": lambda t: t.upsert(table.slice(5, 4), on=["id", "text"]),
        "replace_where": lambda t: t.append(table.slice(4, 9), replace_where=pc.field("id") < 20),
        "deduplicate": lambda t: t.deduplicate("text", keep="last"),
        "deduplicate by data": lambda t: t.deduplicate(["data"], order_by="text"),
    }
    opened = [blz.open(made(table, packing=one), "a") for one in (packing, "packed")]
    for name, move in moves.items():
        for one in opened:
            move(one)
        chunked, packed = opened
        assert same_table(chunked.to_arrow(), packed.to_arrow()), name
        assert chunked.verify()
        store = chunked._snapshot.version.store
        assert all(packings(store)["text"]), name


def test_a_column_with_a_packing_of_its_own_keeps_it():
    store = made(TABLE.select(["id", "text"]), packing={"text": "per_item"})
    with blz.open(store, "a") as table:
        # Text is bytes of the same offsets, so the files stay.
        table.alter_column("text", dtype=pa.binary())
        assert packings(store) == {"text": [True] * 3}
        table.rename_columns({"text": "words"})
        with table.transaction() as tx, tx.appender() as columns:
            columns["id"].append([40])
            columns["words"].append([b"forty"])
        assert packings(store) == {"words": [True] * len(packings(store)["words"])}
        table.alter_column("words", dtype=pa.large_binary())
        assert all(packings(store)["words"])
        assert table["words"][40] == b"forty"
        texts = TABLE["text"].cast(pa.large_binary())
        assert table["words"].to_arrow()[:40].combine_chunks() == texts.combine_chunks()
        assert table.verify()


def test_a_field_that_joins_a_struct_is_a_chunk_an_item_too():
    store = made(TABLE.select(["id", "doc"]))
    with blz.open(store, "a") as table:
        table.add_column("doc.title", "é")
        more = pa.table({"id": [40], "doc": [{"n": 1, "body": "b", "title": "t", "note": "n"}]})
        table.append(more, evolve=True)
        assert all(packings(store)["doc"])
        assert table["doc.title"][39] == "é"
        assert table["doc"][40] == more["doc"][0].as_py()
        assert table.verify()


def test_an_update_compresses_only_items_that_changed(monkeypatch):
    store = made(TABLE.select(["id", "text"]), row_group_rows=ROWS)

    def chunks():
        with tamper.editing(store) as table:
            return table.part(1).streams[VALUES].chunks

    before, pieces, compress = chunks(), [], reuse.compressed

    def counted(piece):
        pieces.append(piece.data.tobytes())
        return compress(piece)

    monkeypatch.setattr(reuse, "compressed", counted)
    with blz.open(store, "a") as table:
        # A longer item moves no other one.
        table.update({"text": "é" * 99}, where=pc.field("id") == 4)
    empty = [text for text in TEXTS if not text]
    assert len(pieces) <= len(empty) + 2
    assert ("é" * 99).encode() in pieces
    changed = [row for row, (a, b) in enumerate(zip(before, chunks(), strict=True)) if a != b]
    assert changed == [4]


def offsets_of(path, data):
    """Return where each item begins in the file of the only column."""
    with tamper.editing(path) as opened:
        part = opened.part()
        first, stored = int(part.record["offset"]), part.streams[VALUES]
        count = len(stored.chunks) + sum(
            len(one.chunks) for name, one in part.streams.items() if name != VALUES
        )
        before = len(part.streams[VALID].chunks) if VALID in part.streams else 0
    places = struct.unpack_from(f"<{count}q", data, first - 8 * count)
    return places[before : before + len(stored.chunks)]


def test_the_rows_of_a_damaged_item_are_named_and_all_others_are_read(tmp_path):
    path = tmp_path / "t.blz"
    table = pa.table({"x": [str(row) * 3000 for row in range(64)]})
    blz.to_blz(table, path, storage=blz.Storage(packing="per_item", page_rows=32))
    file = path / layout.part((0,), 1)
    data = bytearray(file.read_bytes())
    offsets = offsets_of(path, data)
    for row in (5, 40, 41):
        data[offsets[row] + 30] ^= 1
    file.write_bytes(data)
    with blz.open(path) as opened:
        problems = opened.verify().problems
        assert [(one.start, one.stop) for one in problems] == [(5, 6), (40, 41), (41, 42)]
        assert "chunk 40" in problems[1].message
        assert not any(one.is_readable for one in problems)
        assert opened["x"][6:40].to_pylist() == table["x"].to_pylist()[6:40]
        with pytest.raises(blz.CorruptError, match="stream 'values', chunk 5"):
            opened["x"][5]
    with pytest.warns(UserWarning, match="rows (5 to 6|40 to 41|41 to 42) are left out"):
        found = blz.read_table(path, on_corrupt="skip")
    assert found["x"] == table.take([row for row in range(64) if row not in (5, 40, 41)])["x"]


def test_a_damaged_chunk_of_an_empty_item_is_found_and_loses_nothing(tmp_path):
    path = tmp_path / "t.blz"
    table = pa.table({"x": ["", "a", "", "b", ""]})
    blz.to_blz(table, path, storage=blz.Storage(packing="per_item"))
    file = path / layout.part((0,), 1)
    whole = file.read_bytes()
    offsets = offsets_of(path, whole)
    for row in (0, 2, 4):
        for position in (0, 6, 15, 16, 19):
            data = bytearray(whole)
            data[offsets[row] + position] ^= 1
            file.write_bytes(data)
            with blz.open(path) as opened:
                problems = opened.verify().problems
                # A wrong size makes the file contradict itself, too.
                assert (row, row + 1) in [(one.start, one.stop) for one in problems]
                assert all(one.is_readable for one in problems)
                assert same_table(opened.to_arrow(), table)


def test_a_table_in_one_file_keeps_it(tmp_path):
    path, one, back = tmp_path / "t.blz", tmp_path / "one.blz", tmp_path / "back.blz"
    blz.to_blz(TABLE, path, **arguments(packing="per_item", **CUTS))
    blz.copy(path, one, layout="file")
    blz.copy(one, back)
    with blz.open(one, "a") as table:
        table.append(TABLE)
        assert same_table(table.to_arrow(), pa.concat_tables([TABLE, TABLE]))
        assert table.verify()
    with blz.open(back) as table:
        assert same_table(table.to_arrow(), TABLE)


def test_a_creation_in_one_file_that_was_killed_leaves_row_groups_that_keep_it(tmp_path):
    buffer = io.BytesIO()
    blz.to_blz(TABLE, buffer, storage=blz.Storage(packing="per_item", row_group_rows=8))
    blz.copy(buffer.getvalue()[: buffer.tell() * 2 // 3], tmp_path / "t.blz", on_corrupt="skip")
    with blz.open(tmp_path / "t.blz") as table:
        assert 0 < len(table) < ROWS
        assert same_table(table.to_arrow(), TABLE[: len(table)])
        assert all(map(all, packings(tmp_path / "t.blz").values()))
        assert table.verify()


def test_older_versions_keep_what_they_were_written_with():
    store = made(TABLE.select(["text"]))
    blz.to_blz(TABLE.select(["text"]), store, **arguments(packing="packed", **CUTS))
    assert packings(store) == {"text": [False] * 3}
    with blz.open(store, version=1) as table:
        assert table["text"].to_arrow() == TABLE["text"]
    with blz.open(store, "a") as table:
        table.restore(1)
    assert packings(store) == {"text": [True] * 3}


def test_an_append_may_have_another_packing():
    store = made(TABLE.select(["text"]), packing=None)
    blz.to_blz(TABLE.select(["text"]), store, mode="a", storage=blz.Storage(packing="per_item"))
    with blz.open(store) as table:
        assert same_table(table.to_arrow(), pa.concat_tables([TABLE.select(["text"])] * 2))
    assert set(packings(store)["text"]) == {False, True}
