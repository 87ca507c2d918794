"""Erase: no byte of an erased row stays in any file of the table."""

import os
import subprocess
import sys
from base64 import b64encode

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.cli.command import main
from blztable.engine.version import vacuum as vacuums
from blztable.format.layout import manifest
from blztable.storage.memory import RamStore
from support.options import arguments

NAMES = ["Alice Almond", "Bob Basilikum", "Zora Zucchini", "Dora Dill"]
GONE = "Zora Zucchini"
COUNT = 40
OPTIONS = {
    "parts in a bundle": {},
    "small row groups": {"row_group_rows": 7},
    "no dictionaries": {"encoding": "plain"},
    "small pages": {"page_rows": 8, "encoding": "plain"},
    "every item a chunk": {"packing": {"name": "per_item"}},
}


def rows(count=COUNT):
    """Return rows of four people; the longest name is the greatest text of all columns."""
    names = [NAMES[number % 4] for number in range(count)]
    return {
        "user": [number % 4 for number in range(count)],
        "name": names,
        "deep": [{"name": f"deep {name}", "list": [f"item {name}"]} for name in names],
    }


def bytes_of(place):
    """Return the bytes of all files of a table."""
    if place.is_file():
        return place.read_bytes()
    return b"".join(file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file())


@pytest.fixture(params=["directory", "file"])
def make(request, tmp_path):
    def make(data=None, **options):
        place = tmp_path / "t.blz"
        # Text of few bytes stays as it is in a chunk.
        options = {"layout": request.param, "clevel": 0} | options
        blz.to_blz(rows() if data is None else data, place, **arguments(**options))
        return place

    return make


def tell(place):
    """Return the names whose bytes are in the files, as they are or in base64."""
    found = bytes_of(place)
    texts = [GONE, f"deep {GONE}", f"item {GONE}"]
    return [one for one in texts if one.encode() in found or b64encode(one.encode()) in found]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    "where",
    ["user = 2", [("name", "==", GONE)], pc.field("name") == GONE],
    ids=["text", "list", "expression"],
)
def test_no_file_has_a_byte_of_an_erased_row(make, options, where):
    place = make(**options)
    assert tell(place)
    with blz.open(place, "a") as t:
        done = t.erase(where)
        assert (done.rows, done.left, done.version) == (COUNT // 4, (), t.version)
        assert t.to_arrow()["user"].to_pylist() == [0, 1, 3] * (COUNT // 4)
        assert t.verify()
        assert [one.number for one in t.versions()] == [t.version]
    assert tell(place) == []


def delete_first(t):
    t.delete("user = 2 and name = 'nobody'")
    t.delete(f"name = '{GONE}'")


def update_first(t):
    t.update({"name": "nobody"}, where="user = 2")
    t.update({"deep": None}, where="user = 2")


def drop_first(t):
    t.drop_columns(["name", "deep"])


def append_and_merge(t):
    for _ in range(9):
        t.append(rows(4))


BEFORE = [delete_first, update_first, drop_first, append_and_merge]


@pytest.mark.parametrize("before", BEFORE, ids=lambda one: one.__name__)
@pytest.mark.parametrize("options", [{}, {"row_group_rows": 7}], ids=["one row group", "several"])
def test_values_that_earlier_changes_left_in_files_go_too(make, before, options):
    place = make(**options)
    with blz.open(place, "a") as t:
        before(t)
        assert t.erase("user = 2").left == ()
    assert tell(place) == []


def test_a_row_group_that_loses_few_rows_keeps_nothing_of_them(make):
    data = {"n": list(range(2000)), "name": ["x"] * 1999 + [GONE]}
    place = make(data)
    with blz.open(place, "a") as t:
        assert t.erase("n = 1999").rows == 1
        assert t.versions()[-1].deleted_rows == 0
    assert tell(place) == []


def test_a_tagged_version_is_left_and_named_until_its_tag_is_removed(make):
    place = make()
    with blz.open(place, "a") as t:
        t.tags.update(audited=1, again=1)
        done = t.erase("user = 2")
        (left,) = done.left
        assert (left.number, left.rows, left.tags) == (1, COUNT // 4, ("audited", "again"))
        assert "it has the tags 'audited', 'again'; remove them" in str(done)
        assert tell(place)
        t.tags.clear()
        assert t.erase("user = 2").left == ()
    assert tell(place) == []


def test_a_tagged_version_without_the_rows_is_no_hindrance(make):
    place = make({"user": [1, 3], "name": NAMES[:2]})
    with blz.open(place, "a") as t:
        t.tags["empty of them"] = 1
        t.append({"user": [2], "name": [GONE]})
        assert t.erase("user = 2").left == ()
        assert t.tags == {"empty of them": 1}
    assert tell(place) == []


def test_a_version_that_cannot_be_asked_counts_as_left(make):
    place = make()
    with blz.open(place, "a") as t:
        t.tags["old names"] = 1
        t.rename_columns({"user": "person"})
        (left,) = t.erase("person = 2").left
        assert (left.number, left.rows) == (1, None)


def test_an_open_version_is_left_and_its_process_named(tmp_path):
    place = tmp_path / "t.blz"
    blz.to_blz(rows(), place)
    with blz.open(place, "a") as t:
        with blz.open(place) as reader:
            (left,) = t.erase("user = 2").left
            assert (left.number, left.rows) == (1, COUNT // 4)
            if sys.platform == "linux":
                assert left.pids == (os.getpid(),)
                assert "it is open in this process; close each table, reader" in str(left)
            assert reader.count(filters="user = 2") == COUNT // 4
        assert t.erase("user = 2").left == ()
    assert tell(place) == []


@pytest.mark.parametrize("layout", ["directory", "file"])
def test_a_version_that_an_iterator_reads_is_left_and_says_so(tmp_path, layout):
    place = tmp_path / "t.blz"
    blz.to_blz(rows(), place, storage=blz.Storage(layout=layout, row_group_rows=7))
    with blz.open(place, "a") as t:
        batches = iter(t.to_batches())
        next(batches)
        (left,) = t.erase("user = 2").left
        assert left.number == 1
        if sys.platform == "linux":
            assert "it is open in this process; close each table, reader and iterator" in str(left)
        batches.close()
        assert t.erase("user = 2").left == ()
    assert tell(place) == []


def test_rows_appended_after_the_erase_are_left_and_named_as_later_ones(make, monkeypatch):
    place = make()
    vacuum = vacuums.vacuum

    def append_first(store, **options):
        with blz.open(store, "a") as producer:
            producer.append(rows(4))
        return vacuum(store, **options)

    with blz.open(place, "a") as t:
        monkeypatch.setattr(vacuums, "vacuum", append_first)
        (left,) = t.erase("user = 2").left
        assert (left.number, left.rows) == (t.version + 1, 1)
        assert "another commit made it after the rows were deleted" in str(left)


def test_a_damaged_version_that_is_kept_is_named_as_what_keeps_the_others(tmp_path):
    place = tmp_path / "t.blz"
    blz.to_blz(rows(), place)
    with blz.open(place, "a") as t:
        t.tags["audited"] = 1
        (place / manifest(1)).write_bytes(b"{}")
        first, *others = t.erase("user = 2").left
        assert (first.number, first.rows, first.tags) == (1, None, ("audited",))
        assert others
        for one in others:
            assert "while a damaged one is kept (1)" in str(one)
        del t.tags["audited"]
        assert t.erase("user = 2").left == ()
    assert tell(place) == []


def test_a_version_that_is_only_tagged_names_no_process(tmp_path):
    for place, layout in (("d.blz", "directory"), ("f.blz", "file"), (None, None)):
        target = RamStore() if place is None else tmp_path / place
        blz.to_blz(rows(), target, storage=blz.Storage(layout=layout))
        with blz.open(target, "a") as t:
            t.tags["kept"] = 1
            (left,) = t.erase("user = 2").left
            assert (left.number, left.tags, left.pids) == (1, ("kept",), ())


def test_a_version_open_in_another_process_names_that_process(tmp_path):
    place = tmp_path / "t.blz"
    blz.to_blz(rows(), place)
    code = f"import blztable; t = blztable.open({str(place)!r}); print(1, flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as other:
        other.stdout.readline()
        with blz.open(place, "a") as t:
            (left,) = t.erase("user = 2").left
        other.communicate(b"\n")
    if sys.platform == "linux":
        assert left.pids == (other.pid,)


def test_a_store_in_memory_is_erased_too():
    store = RamStore()
    blz.to_blz(rows(), store, storage=blz.Storage(clevel=0))
    with blz.open(store, "a") as t:
        assert t.erase("user = 2").left == ()
    values = [entry.data or b"" for entry in store._entries.values()]
    assert not [one for one in values if GONE.encode() in one]


def test_a_table_without_such_rows_loses_its_older_versions_all_the_same(make):
    place = make()
    with blz.open(place, "a") as t:
        t.delete("user = 2")
        done = t.erase("user = 2")
        assert (done.rows, done.left) == (0, ())
    assert tell(place) == []


def coded(names, ordered=False, categories=(*NAMES, "Nobody")):
    """Return names as codes in a dictionary that has one category without rows."""
    codes = pa.array([categories.index(name) for name in names], pa.int16())
    return pa.DictionaryArray.from_arrays(codes, pa.array(categories), ordered=ordered)


def in_structs(names):
    return pa.StructArray.from_arrays([coded(names)], ["of"])


def in_lists(names):
    return pa.ListArray.from_arrays(pa.array(range(len(names) + 1), pa.int32()), coded(names))


def of_structs(names):
    values = pa.array([{"name": name} for name in NAMES])
    return pa.DictionaryArray.from_arrays(pa.array(list(map(NAMES.index, names))), values)


def coded_of_structs(names):
    values = pa.StructArray.from_arrays([coded(NAMES)], ["of"])
    return pa.DictionaryArray.from_arrays(pa.array(list(map(NAMES.index, names))), values)


def of_views(names):
    values = pa.array(NAMES, pa.string_view())
    return pa.DictionaryArray.from_arrays(pa.array(list(map(NAMES.index, names))), values)


CODED = {
    "unordered": coded,
    "ordered": lambda names: coded(names, ordered=True),
    "in structs": in_structs,
    "in lists": in_lists,
    "of structs": of_structs,
    "of structs of codes": coded_of_structs,
    "of views": of_views,
}


@pytest.mark.parametrize("sort_by", [None, "user"])
@pytest.mark.parametrize("row_group_rows", [None, 7])
@pytest.mark.parametrize("kind", CODED.values(), ids=CODED)
def test_a_category_that_only_erased_rows_had_is_in_no_file(make, kind, row_group_rows, sort_by):
    users = [number % 4 for number in range(COUNT)]
    column = kind([NAMES[user] for user in users])
    data = pa.table({"user": users, "name": column})
    place = make(data, row_group_rows=row_group_rows, sort_by=sort_by)
    assert tell(place)
    with blz.open(place, "a") as t:
        expected = [one for one in t.to_arrow().to_pylist() if one["user"] != 2]
        assert t.erase("user = 2").left == ()
        assert t.to_arrow().to_pylist() == expected
        assert t.to_arrow().schema.equals(data.schema)
        assert t.verify()
    assert tell(place) == []
    if kind is coded or kind is CODED["ordered"]:
        assert b"Nobody" in bytes_of(place)


def test_a_category_of_an_erased_row_stays_where_other_rows_have_it(make):
    place = make(pa.table({"user": [1, 2], "name": coded([GONE, GONE])}))
    with blz.open(place, "a") as t:
        assert t.erase("user = 2").left == ()
        assert t.to_arrow()["name"].to_pylist() == [GONE]


@pytest.mark.parametrize("row_group_rows", [None, 7])
@pytest.mark.parametrize("is_deleted", [False, True], ids=["updated", "deleted"])
def test_a_category_that_rows_had_before_is_in_no_file(make, is_deleted, row_group_rows):
    users = [number % 4 for number in range(COUNT)]
    data = pa.table({"user": users, "name": coded([NAMES[user] for user in users])})
    place = make(data, row_group_rows=row_group_rows)
    with blz.open(place, "a") as t:
        if is_deleted:
            t.delete("user = 2")
        else:
            t.update({"name": NAMES[0]}, where="user = 2")
        t.rename_columns({"name": "who"})
        assert t.erase("user = 5").left == ()
        assert "Nobody" in t.to_arrow()["who"].chunk(0).dictionary.to_pylist()
    assert tell(place) == []


def test_categories_of_pandas_lose_that_of_erased_rows_and_keep_their_order(make):
    names = pd.Categorical(NAMES * 9, categories=[*NAMES[::-1], "Nobody"], ordered=True)
    frame = pd.DataFrame({"user": [0, 1, 2, 3] * 9, "name": names})
    place = make(frame, row_group_rows=5)
    with blz.open(place, "a") as t:
        assert t.erase("user = 2").left == ()
        found = t.to_pandas()["name"].dtype
        wanted = [one for one in names.categories if one != GONE]
        assert (list(found.categories), found.ordered) == (wanted, True)
        t.append(t.to_pandas())
        with pytest.raises(blz.SchemaError, match="ordered categories"):
            t.append(frame)
    assert tell(place) == []


def test_a_store_in_memory_loses_the_category_too():
    store = RamStore()
    users = [0, 1, 2, 3]
    data = pa.table({"user": users, "name": coded(NAMES)})
    blz.to_blz(data, store, storage=blz.Storage(clevel=0))
    with blz.open(store, "a") as t:
        assert t.erase("user = 2").left == ()
    values = [entry.data or b"" for entry in store._entries.values()]
    assert not [one for one in values if GONE.encode() in one]


def test_a_tagged_version_with_the_category_and_no_such_row_is_left(make):
    place = make(pa.table({"user": [1, 3], "name": coded([NAMES[1], NAMES[3]])}))
    with blz.open(place, "a") as t:
        t.tags["empty of them"] = 1
        t.append(pa.table({"user": [2], "name": coded([GONE])}))
        for _ in range(2):
            (left,) = t.erase("user = 2").left
            assert (left.number, left.rows, left.tags) == (1, None, ("empty of them",))
        t.tags.clear()
        assert t.erase("user = 2").left == ()
    assert tell(place) == []


def test_rows_appended_during_an_erase_keep_the_ordered_categories_equal(make):
    data = pa.table({"user": [1, 2], "name": coded([NAMES[1], GONE], ordered=True)})
    place = make(data)
    other = pa.table({"user": [3], "name": coded([NAMES[3]], ordered=True)})
    with blz.open(place, "a") as t:
        with blz.open(place, "a") as producer:
            producer.append(other)
        assert t.erase("user = 2").left == ()
        assert t.to_arrow()["user"].to_pylist() == [1, 3]
    assert tell(place) == []


def test_a_table_cannot_erase_while_its_transaction_is_open(make):
    with blz.open(make(), "a") as t:
        with t.transaction() as tx:
            # No transaction can take back the loss of older versions.
            assert not hasattr(tx, "erase")
            with pytest.raises(blz.TransactionError, match="a transaction of this table is open"):
                t.erase("user = 2")
        assert t.count(filters="user = 2") == COUNT // 4


def test_a_sorted_table_stays_sorted_and_its_frame_is_as_before(make):
    frame = pd.DataFrame({"n": range(100), "name": NAMES * 25})
    place = make(frame, sort_by="n", row_group_rows=30)
    with blz.open(place, "a") as t:
        t.erase(f"name = '{GONE}'")
        assert t.storage.sort_by == [("n", "ascending")]
        expected = frame[frame["name"] != GONE].reset_index(drop=True)
        pd.testing.assert_frame_equal(t.to_pandas(), expected)
    assert tell(place) == []


def test_the_command_exits_with_1_while_anything_is_left(make, capsys):
    place = make()
    with blz.open(place, "a") as t:
        t.tags["audited"] = 1
    assert main(["erase", str(place), "--where", "user = 2"]) == 1
    assert "audited" in capsys.readouterr().out
    with blz.open(place, "a") as t:
        t.tags.clear()
    assert main(["erase", str(place), "--where", "user = 2", "--json"]) == 0
    assert tell(place) == []


@pytest.mark.parametrize("is_nested", [False, True], ids=["column", "field"])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_category_that_is_the_default_value_stays(make, ordered, is_nested):
    """Else rows without the column could not be appended any more."""
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), NAMES[:3])
    names = names.cast(pa.dictionary(pa.int8(), pa.string(), ordered=ordered))
    if is_nested:
        names = pa.StructArray.from_arrays([names], ["first"])
    place = make(pa.table({"user": [0, 1, 2], "name": names}))
    default = names[2]
    with blz.open(place, "a") as t:
        t.alter_column("name", default=default)
        assert t.erase("user > 0").left == ()
        t.append({"user": [3]})
        t.upsert({"user": [4]}, on="user")
        t.resize(4)
        assert t.to_arrow()["name"].to_pylist() == [names[0].as_py(), *[default.as_py()] * 3]
        assert t.verify()
    assert NAMES[1].encode() not in bytes_of(place)
