"""Storage: one value for how rows are stored, for all columns and for single ones."""

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

import blztable as blz
from blztable.engine.write.options import properties_of, storage_of
from blztable.storage.memory import MemoryStore

DATA = {"a": [1.25, 2.5], "b": ["x", "y"]}
BY_COLUMN = blz.Storage(compression="lz4", columns={"a": blz.Storage(compression="zstd", clevel=3)})


def kept(store) -> dict:
    with blz.open(store) as table:
        return dict(table._snapshot.version.head.properties)


def test_a_column_goes_before_the_table_and_takes_the_rest_from_it():
    storage = blz.Storage(
        compression="lz4",
        clevel=9,
        columns={"a": blz.Storage(page_rows=64), "b": blz.Storage(optimize="size")},
    )
    assert storage.of("a").given() == {"compression": "lz4", "clevel": 9, "page_rows": 64}
    assert storage.of("b").given() == {"optimize": "size"}
    assert storage.of("c") is storage


@pytest.mark.parametrize(
    ("storage", "properties"),
    [
        (blz.Storage(), {}),
        (blz.Storage(clevel=3, page_rows=8), {"clevel": 3, "page_rows": 8}),
        (blz.Storage(columns={"a": blz.Storage(clevel=3)}), {"clevel": {"a": 3}}),
        (BY_COLUMN, {"compression": ["lz4", {"a": "zstd"}], "clevel": {"a": 3}}),
        (blz.Storage(expectedlen=9, nan_as_null=False), {"expectedlen": 9, "nan_as_null": False}),
    ],
)
def test_the_properties_keep_what_is_for_all_columns_and_what_is_for_one(storage, properties):
    assert properties_of(storage) == properties
    assert storage_of(properties) == storage
    store = MemoryStore()
    columns = {"columns": storage.columns} if storage.columns else {}
    blz.to_blz(DATA, store, storage=replace(storage, **columns))
    assert kept(store) == properties


@pytest.mark.parametrize(
    "properties", [{"clevel": {"a": 99}}, {"clevel": [1, 2, 3]}, {"compression": ["lz4", 5]}]
)
def test_properties_that_make_no_sense_are_damage(properties):
    with pytest.raises(blz.CorruptError, match="the properties of the table"):
        storage_of(properties)


@pytest.mark.parametrize(
    "option",
    [
        {"row_group_rows": 9},
        {"expectedlen": 9},
        {"nan_as_null": True},
        {"objects": "json"},
        {"layout": "file"},
        {"attrs": {"x": 1}},
        {"columns": {}},
    ],
    ids=str,
)
def test_an_option_that_a_column_cannot_have_is_refused_by_name(option):
    (name,) = option
    with pytest.raises(ValueError, match=f"'a' cannot have {name}"):
        blz.Storage(columns={"a": blz.Storage(**option)})


def test_a_wrong_storage_is_told_before_anything_is_written(tmp_path):
    path = tmp_path / "t.blz"
    with pytest.raises(TypeError, match=r"storage must be a blztable\.Storage, not dict"):
        blz.to_blz(DATA, path, storage={"clevel": 9})
    with pytest.raises(ValueError, match="compression was given twice"):
        blz.create(path, {"a": "i8"}, compression="lz4", storage=blz.Storage(compression="lz4"))
    with pytest.raises(ValueError, match="digits must be an integer from 1 to 17, not 0"):
        blz.Storage(digits=0)
    assert list(tmp_path.iterdir()) == []


def test_storage_is_a_value():
    copy = pickle.loads(pickle.dumps(BY_COLUMN))
    assert copy == BY_COLUMN
    assert repr(BY_COLUMN.of("a")) == "Storage(compression='zstd', clevel=3)"
    with pytest.raises(FrozenInstanceError):
        BY_COLUMN.clevel = 1


def test_digits_of_the_table_are_those_of_each_column_of_floats():
    store = MemoryStore()
    blz.to_blz(DATA, store, storage=blz.Storage(digits=3))
    with blz.open(store) as table:
        assert (table["a"].digits, table["b"].digits) == (3, None)
        assert table.storage.columns == {"a": blz.Storage(digits=3)}


def codec(store, name):
    with blz.open(store) as table:
        return table[name].streams()[0].codecs


def test_options_of_an_append_are_for_its_rows_and_are_not_kept():
    store, rows = MemoryStore(), {"a": [float(n) for n in range(3000)]}
    # Full row groups, which no merge writes again.
    blz.to_blz(rows, store, compression="lz4", storage=blz.Storage(row_group_rows=3000))
    before = kept(store)
    with blz.open(store, "a") as table:
        table.append(rows, storage=blz.Storage(compression="zstd", attrs={"day": 2}))
        assert dict(table.attrs) == {"day": 2}
    assert any("zstd" in one for one in codec(store, "a"))
    assert kept(store) == before


def test_a_new_column_keeps_options_of_its_own_under_its_new_name():
    store = MemoryStore()
    blz.to_blz(DATA, store, compression="lz4")
    with blz.open(store, "a") as table:
        table.add_column("c", [1, 2], storage=blz.Storage(compression="zstd"))
        table.rename_columns({"c": "d"})
        assert table.storage.columns == {"d": blz.Storage(compression="zstd")}
        table.drop_columns(["d"])
        assert table.storage.columns is None
        assert table.storage.compression == "lz4"


def test_the_settings_of_a_table_are_replaced_as_one_value():
    store = MemoryStore()
    blz.to_blz(DATA, store, storage=BY_COLUMN)
    with blz.open(store, "a") as table:
        table.configure(storage=replace(table.storage, row_group_rows=1))
        assert table.storage == replace(BY_COLUMN, row_group_rows=1)
        table.append(DATA)
        assert [group.stop - group.start for group in table.row_groups][-2:] == [1, 1]
        table.configure(storage=blz.Storage())
        assert table.storage == blz.Storage()
        for wrong in (blz.Storage(layout="file"), blz.Storage(attrs={"x": 1})):
            with pytest.raises(ValueError, match="configure takes no"):
                table.configure(storage=wrong)
        with pytest.raises(blz.ColumnNotFoundError, match="no column is named 'z'"):
            table.configure(storage=blz.Storage(columns={"z": blz.Storage(clevel=1)}))
        with pytest.raises(blz.SchemaError, match="digits is 3, but the table keeps all"):
            table.configure(storage=blz.Storage(columns={"a": blz.Storage(digits=3)}))
