"""Heads that claim too much: numbers that run out, invalid options and defaults.

A read of such a table succeeds if possible. A change raises our error and publishes no version that
cannot be read.
"""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.format import layout
from blztable.format.jsontext import MAX_NUMBER
from blztable.storage.memory import RamStore
from golden import reader
from support import tamper

pytestmark = pytest.mark.usefixtures("own_files")

DATA = {"a": [1, 2], "s": ["x", "y"]}


@pytest.fixture
def store() -> RamStore:
    store = RamStore()
    blz.to_blz(DATA, store)
    return store


def edit(store, key: str, value) -> None:
    with tamper.editing(store) as table:
        table.head[key] = value


def feed(t) -> None:
    with t.transaction() as tx, tx.appender() as rows:
        rows["a"].append(3)
        rows["s"].append("z")


WRITES = {
    "append": lambda t: t.append({"a": [3], "s": ["z"]}),
    "appender": feed,
    "update": lambda t: t.update({"a": 3}),
    "delete": lambda t: t.delete([("a", "==", 1)]),
    "resize": lambda t: t.resize(3),
}


def test_a_file_of_number_0_is_not_promised(store):
    edit(store, "next_file", 0)
    with pytest.raises(blz.CorruptError, match="no number"):
        blz.open(store, "a")


@pytest.mark.parametrize("key", ["next_file", "next_column"])
def test_a_number_beyond_the_last_is_damage(store, key):
    edit(store, key, layout.MAX_ID + 2)
    with pytest.raises(blz.CorruptError, match="next"):
        blz.open(store)


@pytest.mark.parametrize("number", [layout.MAX_ID + 1])
@pytest.mark.parametrize("write", WRITES)
def test_where_numbers_of_files_have_run_out_nothing_is_written(store, write, number):
    edit(store, "next_file", number)
    with blz.open(store, "a") as t:
        with pytest.raises(blz.LimitError, match="all numbers of files up to"):
            WRITES[write](t)
        t.rename_columns({"a": "b"})
    assert versions.numbers(store) == [1, 2]
    assert blz.read_table(store).to_pydict() == {"b": [1, 2], "s": ["x", "y"]}


def test_the_last_number_of_a_file_is_used(store):
    edit(store, "next_file", layout.MAX_ID - 1)
    with blz.open(store, "a") as t:
        t.append({"a": [3], "s": ["z"]})
        with pytest.raises(blz.LimitError):
            t.append({"a": [4], "s": ["w"]})
    assert blz.read_table(store)["a"].to_pylist() == [1, 2, 3]
    assert f"__{layout.MAX_ID}__.bin" in store.list_names(layout.column((1,)))


@pytest.mark.parametrize("number", [layout.MAX_ID + 1])
def test_where_ids_of_columns_have_run_out_none_is_added(store, number):
    edit(store, "next_column", number)
    with blz.open(store, "a") as t:
        with pytest.raises(blz.LimitError, match="all column ids up to"):
            t.add_column("n", 1)
        t.append({"a": [3], "s": ["z"]})
    assert blz.read_table(store)["a"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("write", WRITES)
def test_a_row_group_of_more_rows_than_any_table_has_is_damage(store, write):
    edit(store, "properties", {"row_group_rows": 10**30})
    with (
        pytest.raises(
            blz.CorruptError, match=r"row_group_rows must be an integer from 1 to 2\*\*62"
        ),
        blz.open(store, "a") as t,
    ):
        WRITES[write](t)


@pytest.mark.parametrize("write", WRITES)
def test_a_row_group_may_have_all_the_rows_there_could_be(write):
    store = RamStore()
    blz.to_blz(DATA, store, storage=blz.Storage(row_group_rows=MAX_NUMBER))
    with blz.open(store, "a") as t:
        WRITES[write](t)
        t.compact()
        assert len(t) == {"update": 2, "delete": 1}.get(write, 3)


@pytest.mark.parametrize(
    "layers",
    [
        {"9": {"fixed": {"a": "AA=="}}},
        {"x": {"fixed": {"a": "AA=="}}},
        {"": {"other": {"a": "AA=="}}},
        {"": {"fixed": {"a": "!!"}}},
        {"": {"fixed": {"a": 5}}},
        {"": {"fixed": {"": "AA=="}}},
        {"": {"fixed": {"blz.a": "AA=="}}},
        {"": {"variable": {"x" * 32: "AA=="}}},
        {"": {"variable": {str(number): "AA==" for number in range(17)}}},
        {"": {"fixed": {"a": "AAAA" * 21_845}}},
        {"": {"fixed": [1]}},
        {"": []},
        [],
    ],
    ids=lambda layers: str(layers)[:30],
)
def test_metalayers_that_cannot_be_are_told(store, layers):
    with tamper.editing(store) as table:
        table.head["metalayers"] = layers
    with pytest.raises((blz.CorruptError, blz.LimitError), match="metalayer"):
        blz.open(store)


@pytest.mark.parametrize(
    ("text", "error"),
    [("!!", blz.CorruptError), (5, blz.CorruptError), ("AA==", blz.CorruptError)],
)
def test_a_default_that_is_none_is_told_with_its_column(tmp_path, text, error):
    path = tmp_path / "t.blz"
    blz.to_blz(DATA, path)
    edit(path, "properties", {"defaults": {"0": text}})
    with (
        blz.open(path, "a") as t,
        pytest.raises(error, match=r"t\.blz: the default value of column 'a'"),
    ):
        t.append({"s": ["z"]})


# Found by the fuzzer: a zone inside of a dictionary type was not checked: UnicodeDecodeError.
@pytest.mark.parametrize(
    "type_",
    [pa.timestamp("ms", "Europe/Rome"), pa.dictionary(pa.int8(), pa.timestamp("s", "Europe/Rome"))],
    ids=str,
)
def test_a_zone_that_is_not_utf8_is_refused_in_dictionaries_too(type_):
    store = RamStore()
    blz.to_blz(pa.schema({"a": type_}).empty_table(), store)
    with tamper.editing(store) as table:
        data = table.schema
        table.schema = data.replace(b"Rome", b"Rom\xc4")
    with pytest.raises(blz.CorruptError, match="schema"):
        blz.read_blz(store)


# Found by the fuzzer: the next write committed a manifest that no reader accepts.
def test_a_column_after_the_last_id_is_refused_before_anything_is_committed():
    store = RamStore()
    blz.to_blz({"a": [1]}, store)
    for last in (10**18 - 1, 10**18):
        with tamper.editing(store) as table:
            table.head["next_column"] = last
        before = set(store._entries)
        with pytest.raises(blz.LimitError, match="all column ids up to"):
            blz.to_blz({"a": [1], "b": [2]}, store)
        assert set(store._entries) == before
    assert blz.read_table(store).num_rows == 1


# Found by the fuzzer: the next write committed a manifest that no reader accepts.
def test_a_version_after_the_last_is_refused_before_anything_is_committed():
    store = RamStore()
    blz.to_blz({"a": [1]}, store)
    last = 1 << 62
    with tamper.editing(store) as table:
        table.head["version"] = last
    store.put_new(layout.manifest(last), [store.get(layout.manifest(1))])
    store.delete([layout.manifest(1)])
    before = set(store._entries)
    with pytest.raises(blz.LimitError, match=f"version {last} is the last one"):
        blz.to_blz({"a": [1]}, store)
    with blz.open(store, "a") as table, pytest.raises(blz.LimitError):
        table.attrs["a"] = 1
    assert set(store._entries) == before
    assert blz.read_table(store).num_rows == 1


# Of 32 rows in row groups of 20 and 12, row 3 is deleted. A word is a run: its first row and its
# number of rows.
def run(first, rows):
    return (first << 24) + rows


LIES = {
    "no feature": (None, [run(3, 1)], [1, 0]),
    "a row that is not stored": ("deletions", [run(20, 1)], [1, 0]),
    "a row twice": ("deletions", [run(3, 1), run(3, 1)], [2, 0]),
    "descending": ("deletions", [run(3, 1), run(2, 1)], [2, 0]),
    "none": ("deletions", [], [0, 0]),
    "no rows": ("deletions", [run(3, 0)], [1, 0]),
    "more than the record says": ("deletions", [run(3, 2)], [1, 0]),
    "of another row group": ("deletions", [run(3, 1)], [0, 1]),
    "of a negative row": ("deletions", [-(1 << 24) + 1], [1, 0]),
    "a bomb": ("deletions", [run(0, (1 << 24) - 1)], [1, 0]),
    "the least word": ("deletions", [-(1 << 63)], [1, 0]),
}


@pytest.mark.parametrize("lie", LIES)
def test_deleted_rows_that_are_no_rows_of_the_parts_are_refused(tmp_path, lie):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": range(32)}, path, storage=blz.Storage(row_group_rows=20, encoding="plain"))
    with blz.open(path, "a") as t:
        t.delete([("a", "==", 3)])
    assert blz.read_table(path)["a"].to_pylist() == [n for n in range(32) if n != 3]
    feature, words, counts = LIES[lie]
    with tamper.editing(path) as table:
        table.leaf().deleted = np.array(words, "<i8")
        table.leaf().groups["deleted"] = counts
        table.head["requires"] = [feature] if feature else []
    with pytest.raises((blz.CorruptError, blz.LimitError)):
        blz.read_table(path)
    with pytest.raises(reader.Refused):
        reader.read(path)
