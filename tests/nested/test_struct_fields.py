"""Fields of structs of every type: Arrow cannot make all of them null where a struct is."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.nested.casts import fields_of
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.nested_arrays import TYPES, array_of, rows_of

CODES = pa.array([0, 1, 0], pa.int8())
VALUES = {
    "sparse union": pa.UnionArray.from_sparse(
        CODES, [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    ),
    "dense union": pa.UnionArray.from_dense(
        CODES, pa.array([0, 0, 1], pa.int32()), [pa.array([1, 3]), pa.array(["b"])]
    ),
    "runs": pc.run_end_encode(pa.array(["x", "x", "y"])),
    "text view": pa.array(["x", "yy", "z"], pa.string_view()),
    "list": pa.array([[1], [2, 3], []]),
}


@pytest.fixture(params=VALUES)
def value(request):
    return VALUES[request.param]


def structs(*fields, null=1):
    """Return structs with fields a, b, ..., one of which is null."""
    mask = pa.array([row == null for row in range(len(fields[0]))])
    return pa.StructArray.from_arrays(fields, list("abc")[: len(fields)], mask=mask)


def opened(column):
    store = RamStore()
    blz.to_blz(pa.table({"id": range(len(column)), "s": column}), store)
    return blz.open(store, "a")


@given(TYPES, st.integers(1, 5), st.integers(0, 99), st.integers(0, 4))
def test_a_field_is_null_where_its_struct_is(type_, rows, seed, null):
    array = array_of(type_, rows, seed)
    # A slice, whose null may be before its first row.
    (field,) = fields_of(structs(array, null=null)[1:])
    field.validate(full=True)
    wanted = ["[None]" if row == null else rows_of(array[row : row + 1]) for row in range(1, rows)]
    assert [rows_of(field[row : row + 1]) for row in range(rows - 1)] == wanted
    assert field.type == type_


def test_a_filter_sees_its_nulls(value):
    with opened(structs(value, pa.array([1, 2, 3]))) as table:
        assert table.count(filters=pc.field("s", "a").is_null()) == 1
        assert table.count(filters=pc.field("s", "a").is_valid() & (pc.field("s", "b") > 1)) == 1
        found = table.dataset().to_table(columns={"x": pc.field("s", "a")})
        assert found["x"].to_pylist() == [value[0].as_py(), None, value[2].as_py()]
        table.add_column("y", pc.field("s", "a"))
        assert table["y"][:].to_pylist() == [value[0].as_py(), None, value[2].as_py()]
        table.update({"id": 7}, where=pc.field("s", "a").is_null())
        assert table["id"][:].to_pylist() == [0, 7, 2]
        table.delete(pc.field("s", "a").is_null())
        left = [row for row in structs(value, pa.array([1, 2, 3])).to_pylist() if row]
        assert table["s"][:].to_pylist() == left


def test_it_is_added_to_structs_that_are_null(value):
    with opened(structs(pa.array([1, 2, 3]))) as table:
        table.add_column("s.b", value)
        assert table["s"][:].to_pylist() == structs(pa.array([1, 2, 3]), value).to_pylist()
        assert table.verify()


def test_appended_structs_may_lack_it_or_have_another(value):
    column, numbers = structs(value), pa.array([1, 2, 3])
    with opened(column) as table:
        other = pa.StructArray.from_arrays([numbers], ["b"], mask=pa.array([True, False, False]))
        table.append(pa.table({"id": numbers, "s": other}), evolve=True)
        table.append(pa.table({"id": numbers, "s": column}))
        wanted = [
            *[row and {**row, "b": None} for row in column.to_pylist()],
            *[row and {"a": None, **row} for row in other.to_pylist()],
            *[row and {**row, "b": None} for row in column.to_pylist()],
        ]
        assert table["s"][:].to_pylist() == wanted
        type_ = pa.struct([("a", value.type), ("b", pa.int32())])
        table.alter_column("s", dtype=type_)
        assert (table["s"].type, table["s"][:].to_pylist()) == (type_, wanted)
        assert table.verify()


@pytest.mark.parametrize("kind", ["sparse union", "dense union", "runs"])
def test_a_function_of_arrow_that_would_end_the_process_is_refused(kind):
    column = structs(structs(VALUES[kind], pa.array([1, 2, 3])))
    with opened(column) as table:
        field = pc.struct_field(pc.struct_field(pc.field("s"), [0]), [0])
        with pytest.raises(SchemaError, match="must be named by its path"):
            table.count(filters=field.is_null())
        assert table.count(filters=pc.field("s", "a", "a").is_null()) == 1


def test_text_views_within_structs_are_compared_as_text():
    with opened(structs(VALUES["text view"])) as table:
        assert table.count(filters=[("s.a", "==", "z")]) == 1
        assert table.count(filters=[(("s", "a"), "in", ["x", "yy"])]) == 1
        assert table.count(filters=pc.starts_with(pc.field("s", "a"), "z")) == 1
        found = table.dataset().to_table(filter=pc.field("s", "a") > "x")
        assert found["id"].to_pylist() == [2]
