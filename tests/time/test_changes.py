"""Rows that came and went between two versions, what takes the space, and repair."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.read.columns import OpenColumns
from blztable.storage.memory import RamStore
from support import stored
from support.operations import meanwhile, opened

ROWS = pa.table({"k": range(6), "v": ["a", "b", None, "d", "e", "f"], "l": [[i] for i in range(6)]})


@pytest.fixture
def store():
    store = RamStore()
    blz.to_blz(ROWS, store, storage=blz.Storage(row_group_rows=2))
    return store


def keys(found):
    return found.added["k"].to_pylist(), found.removed["k"].to_pylist()


def test_an_append_adds_and_a_delete_removes(store):
    with blz.open(store, "a") as t:
        t.append(ROWS.slice(0, 1))
        t.delete([("k", "==", 3)])
        found = t.diff(1).rows()
        assert keys(found) == ([0], [3])
        assert found.removed.to_pylist() == [{"k": 3, "v": "d", "l": [3]}]
        assert keys(t.diff(t.version).rows()) == ([], [])


def test_an_update_removes_the_old_row_and_adds_the_new_one(store):
    with blz.open(store, "a") as t:
        t.tags["before"] = 1
        t.update({"v": "new"}, where=[("k", "==", 2)])
        t.update({"l": [[9]] * 6})
        found = t.diff("before").rows()
    assert sorted(found.added["k"].to_pylist()) == list(range(6))
    assert Counter(found.added["v"].to_pylist())["new"] == 1
    assert found.removed.equals(ROWS)


def test_rows_that_are_moved_are_no_changes(store):
    with blz.open(store, "a") as t:
        t.compact(sort_by=[("k", "desc")])
        assert keys(t.diff(1).rows()) == ([], [])
        t.compact(sort_by="k")
        t.update({"v": pc.field("v")})
        assert keys(t.diff(1).rows()) == ([], [])


def test_row_groups_that_both_versions_have_are_not_read(store, monkeypatch):
    read = []
    plain = OpenColumns.columns

    def noted(parts, indices, selected):
        read.append([one.group for one in selected])
        return plain(parts, indices, selected)

    monkeypatch.setattr(OpenColumns, "columns", noted)
    with blz.open(store, "a") as t:
        t.update({"v": "new"}, where=[("k", "==", 2)])
        read.clear()
        assert keys(t.diff(1).rows()) == ([2], [2])
    assert read == [[1], [1]]


def test_columns_that_one_version_lacks_are_left_out(store):
    with blz.open(store, "a") as t:
        t.add_column("new", 7)
        t.rename_columns({"v": "w"})
        t.delete([("k", "<", 2)])
        found = t.diff(1).rows()
        assert found.removed.column_names == ["k", "w", "l"]
        assert keys(found) == ([], [0, 1])
        t.alter_column("k", dtype=pa.int32())
        with pytest.raises(blz.SchemaError, match="'k' is int32"):
            t.diff(1).rows()
        t.drop_columns(["k", "w", "l"])
        with pytest.raises(blz.SchemaError, match="no column in common"):
            t.diff(1).rows()


def test_a_table_that_was_written_anew_is_compared_by_the_names_of_its_columns(store):
    again = pa.concat_tables([ROWS.slice(1), pa.table({"k": [9], "v": ["z"], "l": [[9]]})])
    blz.to_blz(again.select(["v", "k"]).append_column("new", pa.nulls(6)), store)
    with blz.open(store) as t:
        found = t.diff(1).rows()
        assert keys(found) == ([9], [0])
        assert found.removed.to_pylist() == [{"v": "a", "k": 0}]


ACTS = ("append", "delete", "update", "compact", "sort", "truncate")


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 4)), max_size=6), st.data())
@settings(max_examples=30)
def test_changes_are_the_difference_of_the_rows_of_two_versions(acts, data):
    store = RamStore()
    row = st.tuples(st.integers(0, 4), st.sampled_from([None, "a", "b"]))
    first = data.draw(st.lists(row, max_size=8))
    blz.to_blz(table(first), store, storage=blz.Storage(row_group_rows=3))
    with blz.open(store, "a") as t:
        t.configure(keep_versions=100)
        for act, n in acts:
            match act:
                case "append":
                    t.append(table(data.draw(st.lists(row, min_size=1, max_size=3))))
                case "delete":
                    t.delete([("k", "==", n)])
                case "update":
                    t.update({"v": "u"}, where=[("k", "==", n)])
                case "compact":
                    t.compact()
                case "sort":
                    t.compact(sort_by="k")
                case "truncate":
                    t.resize(min(n, len(t)))
        for one in t.versions():
            found = t.diff(one.number).rows()
            old = rows(blz.read_table(store, version=one.number))
            new = rows(t.to_arrow())
            assert rows(found.added) == new - old
            assert rows(found.removed) == old - new


def table(pairs):
    return pa.table(
        {"k": pa.array([k for k, _ in pairs], "i8"), "v": pa.array([v for _, v in pairs], "string")}
    )


def rows(found):
    return Counter((row["k"], row["v"]) for row in found.to_pylist())


@pytest.mark.parametrize("layout", ["directory", "file"])
def test_the_bytes_on_disk_are_those_of_all_files(tmp_path, layout):
    path = tmp_path / "t.blz"
    random = np.random.default_rng(0)
    blz.to_blz({"n": random.integers(0, 1 << 62, 50_000)}, path, storage=blz.Storage(layout=layout))
    with blz.open(path, "a") as t:
        assert t.disk_usage().tagged == t.disk_usage().older == 0
        t.tags["first"] = 1
        t.update({"n": random.integers(0, 1 << 62, 50_000)})
        t.update({"n": random.integers(0, 1 << 62, 50_000)})
        used = t.disk_usage()
        for part in (used.newest, used.tagged, used.older):
            assert 400_000 < part < 420_000
        files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        assert used.total == sum(one.stat().st_size for one in files)
        t.vacuum(keep=1)
        assert t.disk_usage().older == 0
        assert 400_000 < t.disk_usage().tagged < 420_000
    if layout == "directory":
        (path / "data/col0/__99__.bin").write_bytes(b"x" * 1000)
        with blz.open(path) as t:
            assert t.disk_usage().other >= 1000
    assert str(blz.DiskUsage(1000, 0, 0, 24)) == "1.0 kB: 1.0 kB newest, 24 bytes other"


@pytest.fixture(params=["directory", "file"])
def damaged(request, tmp_path):
    """A table of three row groups; a page of the text of the second one is damaged."""
    path = tmp_path / "t.blz"
    texts = [f"{i:06d}" * 5 for i in range(30_000)]
    data = pa.table({"n": range(30_000), "s": texts, "l": [[i] for i in range(30_000)]})
    blz.to_blz(
        data,
        path,
        storage=blz.Storage(
            row_group_rows=10_000, page_rows=512, encoding="plain", layout=request.param
        ),
    )
    file = path
    if request.param == "directory":
        file = sorted((path / "data/col1").glob("*.bin"))[1]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with blz.open(path) as t:
        assert not t.verify().is_intact
    return path, data


def test_repair_leaves_out_the_damaged_rows_only(damaged):
    path, data = damaged
    with blz.open(path, "a") as t:
        done = t.repair()
        assert (done.version, t.version) == (2, 2)
        [(column, start, stop, reason)] = done.lost
        assert column is None
        assert "crc32" in reason
        assert 0 < stop - start <= 10_000
        assert t.verify().is_intact
        expected = pa.concat_tables([data.slice(0, start), data.slice(stop)])
        assert t.to_arrow().equals(expected)
        assert str(done).startswith("version 2:\nrows ")
        assert t.repair() == blz.Repaired(2)
        # The damaged version stays.
        assert not blz.open(path, version=1).verify().is_intact


def test_repair_keeps_all_rows_with_nulls(damaged):
    path, data = damaged
    with blz.open(path, "a") as t:
        [(column, start, stop, _)] = t.repair("null").lost
        assert t.verify().is_intact
        assert len(t) == data.num_rows
        if column == "s":
            assert t["s"].null_count() == stop - start
        assert t["n"][:].equals(data["n"].combine_chunks())


def test_repair_of_a_column_without_nulls_says_what_to_do(tmp_path):
    path = tmp_path / "t.blz"
    schema = pa.schema([pa.field("n", "i8", nullable=False)])
    random = np.random.default_rng(0).integers(0, 1 << 62, 100_000)
    data = pa.table({"n": random}, schema)
    blz.to_blz(data, path, storage=blz.Storage(encoding="plain", row_group_rows=50_000))
    file = sorted((path / "data/col0").glob("*.bin"))[0]
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    with blz.open(path, "a") as t:
        with pytest.raises(blz.SchemaError, match='on_corrupt="skip"'):
            t.repair("null")
        assert t.version == 1
        assert t.repair().lost
        assert 0 < len(t) < 100_000
        with pytest.raises(ValueError, match="on_corrupt"):
            t.repair("ignore")


def test_repair_beside_an_append_loses_no_row_of_it():
    store = RamStore()
    blz.to_blz({"n": range(20)}, store, storage=blz.Storage(row_group_rows=10, encoding="plain"))
    with blz.open(store) as t:
        key = stored.key(t, "n")
    content = bytearray(store.get(key))
    content[-10] ^= 1
    store.put(key, bytes(content))

    def theirs():
        with opened(store) as t:
            t.append({"n": [99]})

    with blz.open(meanwhile(store, theirs), "a") as t:
        assert t.repair().lost
        assert t["n"][:].to_pylist() == [*range(10, 20), 99]
        assert t.verify().is_intact


def has(store, key):
    try:
        return bool(store.get(key))
    except KeyError:
        return False
