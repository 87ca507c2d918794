"""What a user meets when changing a table: changes of nothing, and transactions used wrongly."""

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz


@pytest.fixture
def table(tmp_path):
    blz.to_blz({"a": [1, 2, 3]}, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", "a") as table:
        yield table


def test_a_change_of_nothing_commits_nothing(table):
    table.update({})
    table.attrs.update({})
    table.set_retention()
    table.update({"a": 0}, where=[("a", ">", 3)])
    table.delete([("a", ">", 3)])
    table.truncate(3)
    table.append({"a": []})
    table.compact()
    with table.transaction():
        pass
    assert table.version == 1


def test_a_transaction_is_entered_once(table):
    with table.transaction() as transaction:
        transaction.append({"a": [4]})
        with pytest.raises(blz.BlzError, match="entered before"):
            transaction.__enter__()
        transaction.append({"a": [5]})
    with pytest.raises(blz.BlzError, match="entered before"):
        transaction.__enter__()
    assert (table.version, table.nrows) == (2, 5)


def test_a_transaction_sorts_by_names_as_a_table_does(table):
    with table.transaction() as transaction:
        transaction.append({"a": [0]})
        transaction.rename_columns({"a": "size"})
        transaction.compact("size")
        assert transaction["size"][:].to_pylist() == [0, 1, 2, 3]
        transaction.compact([("size", "descending")])
        assert transaction["size"][:].to_pylist() == [3, 2, 1, 0]
    with pytest.raises(ValueError, match="sort_by must be column names or"):
        table.compact([("a", "up")])


def test_a_default_is_as_wide_as_its_column_becomes(table):
    table.add_column("n", pa.array([1, 2, 3], "i2"), default=5)
    categories = pa.array(["x", "y", "x"]).dictionary_encode().cast(pa.dictionary("i1", "string"))
    table.add_column("word", categories, default=categories[1])
    with table.transaction() as transaction:
        many = pa.array([f"{number}" for number in range(200)]).dictionary_encode()
        row = {"a": range(200), "n": pa.array([70_000] * 200, "i4"), "word": many}
        transaction.append(row, evolve=True)
        transaction.append({"a": [4]})
        assert transaction["n"][-1] == 5
    table.append({"a": [5]})
    assert table.schema.field("n").type == pa.int32()
    assert table.schema.field("word").type.index_type == pa.int32()
    assert table["n"][:].to_pylist()[-2:] == [5, 5]
    assert table["word"][:].to_pylist()[-2:] == ["y", "y"]


def test_a_category_is_given_as_a_plain_value(tmp_path):
    pd.DataFrame({"c": pd.Categorical(["x", "y"]), "n": pd.Categorical([1, 2])}).to_blz(
        tmp_path / "c"
    )
    with blz.open(tmp_path / "c", "a") as table:
        table.update({"c": "z", "n": 7}, where=[("c", "==", "x")])
        table.add_column("d", pd.Categorical(["p", "q"]), default="r")
        table.append({"n": pd.Categorical([2])})
        with pytest.raises(blz.SchemaError, match="column 'c': type int64 cannot be stored as"):
            table.update({"c": 5})
        assert table["c"][:].to_pylist() == ["z", "y", None]
        assert table["n"][:].to_pylist() == [7, 2, 2]
        assert table["d"][:].to_pylist() == ["p", "q", "r"]
        assert table.to_pandas()["c"].dtype == "category"


def test_a_list_of_texts_goes_into_a_category(tmp_path):
    pd.DataFrame({"c": pd.Categorical(["x", "y"])}).to_blz(tmp_path / "c")
    with blz.open(tmp_path / "c", "a") as table:
        table.update({"c": ["z", None]})
        with table.appender() as rows:
            rows["c"].append(["x", "z"])
        assert table["c"][:].to_pylist() == ["z", None, "x", "z"]
        assert table.to_pandas()["c"].dtype == "category"


def test_a_default_that_is_null_is_none(table):
    table.add_column("y", [1, 2, 3], default=pa.scalar(None, pa.int64()))
    table.add_column("z", pa.nulls(3), default=pa.scalar(None))
    table.append({"a": [4]})
    assert table["y"][:].to_pylist() == [1, 2, 3, None]
    assert table["z"][:].to_pylist() == [None] * 4
    assert "defaults" not in table._snapshot.version.head.properties


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pa.array([1, None, 2**60 + 1]), id="integers"),
        pytest.param(pa.array([True, None, False]), id="booleans"),
        pytest.param(pc.if_else(pc.field("a") == 2, None, pc.field("a") + 2**60), id="expression"),
    ],
)
def test_a_column_with_nulls_that_a_frame_gets_is_of_a_nullable_dtype(tmp_path, data):
    pd.DataFrame({"a": [1, 2, 3]}).to_blz(tmp_path / "f")
    with blz.open(tmp_path / "f", "a") as table:
        table.add_column("b", data)
        table.add_column("plain", pc.field("a") + 1)
        given = table["b"][:].to_pylist()
        assert given.count(None) == 1
        frame = table.to_pandas()
        assert frame["b"].dtype in (pd.Int64Dtype(), pd.BooleanDtype())
        assert [None if value is pd.NA else value for value in frame["b"]] == given
        assert frame["plain"].dtype == "int64"
        table.append(frame)
        assert table["b"][:].to_pylist() == given * 2
