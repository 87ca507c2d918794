"""Attributes and metalayers of tables and columns: each change is a commit, and can conflict."""

import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.errors import BlzError
from blztable.format import layout
from blztable.format.metalayers import (
    FIXED,
    MAX_BYTES,
    MAX_FIXED_BYTES,
    VARIABLE,
    LayerKey,
    from_json,
    to_json,
)
from blztable.storage.memory import RamStore
from support.moved_first import moved_first
from support.options import arguments

DATA = {"a": [1, 2], "b": ["x", "y"], "deep": [{"k": 1}, {"k": 2}]}


@pytest.fixture
def store():
    store = RamStore()
    blz.to_blz(DATA, store, storage=blz.Storage(meta={"pet": b"cat"}))
    return store


def test_the_verbs_on_tables_and_columns(store):
    with blz.open(store, "a") as table:
        for layers in (table.vlmeta, table["a"].vlmeta):
            assert not layers.exists("pet")
            layers.add("pet", b"cat")
            layers.update("pet", b"giraffe")
            layers["other"] = memoryview(b"x")
            assert dict(layers) == {"pet": b"giraffe", "other": b"x"}
            assert layers.get("pet") == b"giraffe"
            del layers["other"]
        table.meta.update("pet", b"dog")
        assert table.version == 10
    with blz.open(store) as table:
        assert dict(table.meta) == {"pet": b"dog"}
        assert dict(table.vlmeta) == dict(table["a"].vlmeta) == {"pet": b"giraffe"}
        assert not table["b"].vlmeta
    with blz.open(store, version=1) as table:
        assert (dict(table.meta), dict(table.vlmeta)) == ({"pet": b"cat"}, {})


@pytest.mark.parametrize("sort_by", [None, "b"])
def test_fixed_ones_of_columns_come_with_the_table(sort_by):
    given = {"b": {"unit": b"kg", "pet": b"cat"}, "a": {"unit": bytearray(b"mm")}, "c.d": {}}
    place, columns = RamStore(), {"a": [3, 1], "b": ["y", "x"], "c.d": [1, 2]}
    for mode in ("x", "w"):
        options = {"meta": {"unit": b"s"}, "column_meta": given, "sort_by": sort_by}
        blz.to_blz(columns, place, **arguments(mode=mode, **options))
        with blz.open(place, "a") as table:
            assert dict(table.meta) == {"unit": b"s"}
            assert dict(table["b"].meta) == {"unit": b"kg", "pet": b"cat"}
            assert dict(table["a"].meta) == {"unit": b"mm"}
            assert not table["c.d"].meta
            table["b"].meta["unit"] = b"lb"
    blz.to_blz(
        columns,
        place,
        mode="a",
        storage=blz.Storage(columns={"b": blz.Storage(meta={"unit": b"oz"})}),
    )
    with blz.open(place) as table:
        assert table["b"].meta["unit"] == b"oz"
    with blz.create(
        RamStore(),
        {"a": "i8", "b": "f8"},
        storage=blz.Storage(columns={"b": blz.Storage(meta={"x": b"1"})}),
    ) as table:
        assert (dict(table["a"].meta), dict(table["b"].meta)) == ({}, {"x": b"1"})


def of_columns(meta):
    """Return the metalayers of columns as a value of Storage, whatever they are."""
    if not isinstance(meta, dict):
        return blz.Storage(columns=meta)
    return blz.Storage(columns={name: blz.Storage(meta=one) for name, one in meta.items()})


def test_fixed_ones_of_columns_that_do_not_fit_write_nothing():
    place = RamStore()
    for wrong, error in (
        ({"z": {"x": b"1"}}, blz.ColumnNotFoundError),
        ({"a": {"x": 1}}, TypeError),
        ({"a": 1}, TypeError),
        (["a"], TypeError),
        ({"a": {"x": bytes(70_000)}}, blz.LimitError),
    ):
        with pytest.raises(error):
            blz.to_blz({"a": [1]}, place, storage=of_columns(wrong))
        with pytest.raises(error):
            blz.create(place, {"a": "i8"}, storage=of_columns(wrong))
    assert not blz.exists(place)


def test_variable_ones_are_taken_and_cleared_in_one_commit_each(store):
    with blz.open(store, "a") as table:
        for layers in (table.vlmeta, table["a"].vlmeta):
            layers["x"], layers["y"], layers["z"] = b"1", b"2", b"3"
            before = table.version
            assert layers.pop("y") == b"2"
            assert layers.pop("y", None) is None
            with pytest.raises(KeyError, match="no metalayer 'y'"):
                layers.pop("y")
            assert table.version == before + 1
            layers.clear()
            layers.clear()
            assert table.version == before + 2
            assert not layers


def test_fixed_ones_come_with_the_table_or_the_column_and_keep_their_length(store):
    with blz.open(store, "a") as table:
        table.add_column("c", [1.5, 2.5], storage=blz.Storage(meta={"unit": b"kg"}))
        with pytest.raises(ValueError, match=r"given to create\(\) or to_blz\(\), as"):
            table.meta.add("other", b"x")
        with pytest.raises(ValueError, match=r"column 'c' .* to add_column\(\)"):
            table["c"].meta["other"] = b"x"
        with pytest.raises(ValueError, match="'unit' has 2 bytes and keeps them, not 3"):
            table["c"].meta["unit"] = b"ton"
        table["c"].meta["unit"] = b"lb"
        assert dict(table["c"].meta) == {"unit": b"lb"}
        with pytest.raises(ValueError, match="meta and how a column is stored are for columns"):
            table.add_column("deep.more", [1, 2], storage=blz.Storage(meta={"unit": b"kg"}))
        with pytest.raises(blz.SchemaError, match="metalayers are those of its column"):
            table["deep.k"].vlmeta["x"] = b""
        assert table.version == 3


def test_create_and_appends_by_path_take_fixed_ones(store):
    place = RamStore()
    with blz.create(place, {"a": "int64"}, storage=blz.Storage(meta={"pet": b"cat"})) as table:
        assert dict(table.meta) == {"pet": b"cat"}
    blz.to_blz({"a": [1]}, place, mode="a", storage=blz.Storage(meta={"pet": b"dog"}))
    assert dict(blz.open(place).meta) == {"pet": b"dog"}
    with pytest.raises(ValueError, match="'pet' has 3 bytes"):
        blz.to_blz({"a": [1]}, place, mode="a", storage=blz.Storage(meta={"pet": b"giraffe"}))
    assert len(blz.open(place)) == 1
    blz.to_blz({"a": [1]}, place)
    assert not blz.open(place).meta


def test_those_of_a_column_follow_its_id(store):
    with blz.open(store, "a") as table:
        table["b"].vlmeta["unit"] = b"kg"
        table.rename_columns({"b": "c"})
        table.alter_column("c", dtype="large_string")
        moved_first(table, ["c"])
        table.append({"a": [3], "c": ["z"]})
        table.compact(sort_by="a")
        table.update({"c": "w"}, where=[("a", "==", 1)])
        assert dict(table["c"].vlmeta) == {"unit": b"kg"}
        table.drop_columns(["c"])
        table.add_column("c", ["", "", ""])
        assert not table["c"].vlmeta
        assert dict(table.meta) == {"pet": b"cat"}
        table.restore(2)
        assert dict(table["b"].vlmeta) == {"unit": b"kg"}


def test_a_transaction_changes_them_in_one_commit_or_not_at_all(store):
    with blz.open(store, "a") as table:
        with table.transaction() as tx:
            tx.append({"a": [3]})
            tx.meta["pet"] = b"dog"
            tx["a"].vlmeta["rows"] = b"3"
            assert dict(tx["a"].vlmeta) == {"rows": b"3"}
            assert not table["a"].vlmeta
        assert (table.version, dict(table["a"].vlmeta)) == (2, {"rows": b"3"})
        with suppress(RuntimeError), table.transaction() as tx:
            tx.vlmeta["x"] = b""
            raise RuntimeError
        assert not table.vlmeta


def test_a_metalayer_that_another_changed_is_a_conflict_and_another_one_is_not(store):
    mine, theirs = blz.open(store, "a"), blz.open(store, "a")
    theirs.meta["pet"] = b"dog"
    mine.vlmeta["x"] = b"mine"
    theirs["a"].vlmeta["x"] = b"theirs"
    assert dict(mine.meta) == {"pet": b"dog"}
    stale = blz.open(store, "a")
    theirs.vlmeta["x"] = b"theirs"
    with pytest.raises(blz.ConflictError, match="metalayer 'x' was changed by version"):
        stale.vlmeta["x"] = b"stale"
    theirs.drop_columns(["a"])
    with pytest.raises(blz.ConflictError, match="a column whose metalayer was changed is gone"):
        stale["a"].vlmeta["new"] = b""
    assert dict(blz.open(store).vlmeta) == {"x": b"theirs"}


def test_two_writers_together_do_not_exceed_the_limit(store):
    with blz.open(store, "a") as table, table.transaction() as tx:
        for number in range(15):
            tx.vlmeta[f"{number}"] = b""
    mine, theirs = blz.open(store, "a"), blz.open(store, "a")
    theirs.vlmeta["theirs"] = b""
    with pytest.raises(blz.LimitError, match="17 variable metalayers"):
        mine.vlmeta["mine"] = b""
    assert len(blz.open(store).vlmeta) == 16


def test_misuse_is_a_plain_error(store):
    with blz.open(store, "a") as table:
        assert table.vlmeta.get("x") is None
        with pytest.raises(KeyError, match="no metalayer 'x'"):
            table.vlmeta["x"]
        with pytest.raises(KeyError, match="no metalayer 'x'"):
            table.meta.update("x", b"")
        with pytest.raises(TypeError, match="expected bytes"):
            table.vlmeta["x"] = "text"
        with pytest.raises(blz.LimitError, match="1 to 31 bytes"):
            table.vlmeta["x" * 32] = b""
        with pytest.raises(ValueError, match="those of the format"):
            table.vlmeta["blz.x"] = b""
        with pytest.raises(blz.LimitError, match=f"at most {MAX_BYTES} fit"):
            table.vlmeta["x"] = bytes(MAX_BYTES + 1)
        with pytest.raises(blz.ReadOnlyError):
            table[["a"]].vlmeta["x"] = b""
    for meta in ({"x": bytes(MAX_FIXED_BYTES)}, {f"{n}": b"" for n in range(17)}):
        with pytest.raises(blz.LimitError, match="fixed metalayers"):
            blz.to_blz(DATA, RamStore(), storage=blz.Storage(meta=meta))
    with blz.open(store) as table:
        for layers in (table.vlmeta, table["a"].vlmeta, table[["a"]].vlmeta):
            with pytest.raises(blz.ReadOnlyError):
                layers["x"] = b""
    assert blz.open(store).version == 1


def test_copies_keep_them(tmp_path, store):
    path, file, again = tmp_path / "t.blz", tmp_path / "one.blz", tmp_path / "again.blz"
    blz.to_blz(DATA, path, storage=blz.Storage(meta={"pet": b"cat"}))
    with blz.open(path, "a") as table:
        table["b"].vlmeta["unit"] = b"kg"
    blz.copy(path, file, layout="file")
    blz.copy(file, again)
    target = io.BytesIO()
    blz.copy(file, target, layout="file")
    for place in (file, again, target.getvalue()):
        with blz.open(place) as table:
            assert dict(table.meta) == {"pet": b"cat"}
            assert dict(table["b"].vlmeta) == {"unit": b"kg"}


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=7).filter(
    lambda name: not name.startswith("blz.")
)
KEYS = st.builds(
    LayerKey, st.sampled_from(["", "0", "12"]), st.sampled_from([FIXED, VARIABLE]), NAMES
)


@given(st.dictionaries(KEYS, st.binary(max_size=50), max_size=16))
def test_a_head_has_the_very_same_metalayers(layers):
    assert from_json(to_json(layers), {"0", "12"}) == layers


JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["", "Y2F0", "!", "0"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["", "0", "fixed", "variable", "blz.x", "x" * 32]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["", "0", "1", "x"]), JSON))
def test_strange_metalayers_of_a_head_are_refused_or_read(value):
    try:
        layers = from_json(value, {"0"})
    except BlzError:
        return
    assert all(key.owner in ("", "0") and key.name for key in layers)
    assert from_json(to_json(layers), {"0"}) == layers


# Bug: setting an attribute of a removed table created a table.
def test_attributes_of_a_table_that_is_gone_make_no_new_one():
    store = RamStore()
    blz.to_blz({"a": [1]}, store)
    with blz.open(store, "a") as table:
        store.delete([layout.manifest(1)])
        with pytest.raises(blz.TableNotFoundError):
            table.attrs["x"] = 1


# Bug: setting an attribute closed the columns and selections taken from the table.
def test_setting_attributes_leaves_columns_and_narrowed_tables_open(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2], "b": [3, 4]}, path)
    with blz.open(path, "a") as table:
        narrowed, column = table[["a"]], table["b"]
        table.attrs["x"] = 1
        assert narrowed.to_arrow().to_pydict() == {"a": [1, 2]}
        assert column[0] == 3


# Bug: 1 and True are equal in Python, so this change of another writer was no conflict.
def test_an_attribute_that_became_true_was_changed_though_it_was_1():
    store = RamStore()
    blz.to_blz({"a": [1]}, store, storage=blz.Storage(attrs={"flag": 1}))
    mine, theirs = blz.open(store, "a"), blz.open(store, "a")
    theirs.attrs["flag"] = True
    with pytest.raises(blz.ConflictError):
        mine.attrs["flag"] = 2
    assert blz.open(store).attrs["flag"] is True
