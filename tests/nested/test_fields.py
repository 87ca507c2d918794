"""Fields of nested columns: read alone, and filtered by."""

import pickle
import re
import uuid

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.nested.nodes import Node
from blztable.errors import ColumnNotFoundError, CorruptError, SchemaError
from blztable.storage.memory import RamStore
from support import tamper
from support.nested_arrays import TYPES, array_of
from support.options import arguments
from support.recording_store import Recorded

ROWS = 4000


def addresses() -> pa.Table:
    """Return structs in a struct, with nulls at both levels."""
    rng = np.random.default_rng(7)
    place = pa.StructArray.from_arrays(
        [
            pa.array(np.repeat(["Basel", "Bern", "Chur", "Davos"], ROWS // 4)),
            pa.array(rng.integers(0, 99, ROWS), mask=rng.random(ROWS) < 0.2),
        ],
        ["city", "zip"],
        mask=pa.array(rng.random(ROWS) < 0.2),
    )
    tags = pa.array([["x", None][: row % 3] for row in range(ROWS)])
    address = pa.StructArray.from_arrays(
        [place, tags], ["place", "tags"], mask=pa.array(rng.random(ROWS) < 0.2)
    )
    return pa.table({"id": range(ROWS), "address": address})


TABLE = addresses()
LAYOUTS = [{"row_group_rows": ROWS}, {"row_group_rows": 700}, {"encoding": "plain"}]


@pytest.fixture(params=LAYOUTS, ids=str)
def table(request):
    store = RamStore()
    blz.to_blz(TABLE, store, **arguments(**request.param))
    with blz.open(store, "a") as opened:
        yield opened


CITY = pc.field("address", "place", "city")
ZIP = pc.field("address", "place", "zip")
CONDITIONS = [
    CITY == "Bern",
    CITY.is_null(),
    ~(CITY == "Bern"),
    (CITY > "Bern") & (ZIP == 17),
    (CITY == "Chur") | (pc.field("id") < 5),
    (ZIP == 3) & (pc.field("id") > 2000) & (CITY != "Davos"),
    (CITY == "Bern") & pc.field("address").is_valid(),
    pc.field("address", "place").is_null() & (ZIP == 1),
    pc.struct_field(pc.field("address"), ["place", "city"]) == "Bern",
    CITY.isin(["Basel", "Davos"]) & (ZIP.is_valid() | (pc.field("id") == 7)),
    pc.field("address", "tags").is_null(),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_a_filter_on_fields_keeps_the_rows_that_arrow_keeps(table, condition):
    wanted = TABLE.filter(condition)
    assert table.to_arrow(filters=condition).equals(wanted)
    assert table.count(filters=condition) == wanted.num_rows
    ids = table.to_arrow(["id", "address.place.zip"], filters=condition)
    assert ids["id"].equals(wanted["id"])
    batches = table.to_batches(["id"], filters=condition, batch_rows=100)
    assert sum(len(batch) for batch in batches) == wanted.num_rows


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_rows_are_deleted_and_updated_where_a_field_meets_a_condition(table, condition):
    wanted = TABLE.filter(~pc.coalesce(condition, pc.scalar(False)))
    table.delete(condition)
    assert table.to_arrow().equals(wanted)
    table.update({"id": -1}, CITY == "Chur")
    flags = np.asarray(pc.fill_null(pc.equal(table["address.place.city"][:], "Chur"), False))
    ids = table["id"][:].to_numpy()
    assert (ids[flags] == -1).all()
    assert (ids[~flags] >= 0).all()


@pytest.mark.parametrize(
    ("predicates", "condition"),
    [
        ([("address.place.city", "==", "Bern")], CITY == "Bern"),
        (
            [(("address", "place", "city"), "in", ["Bern", "Chur"]), ("id", "<", 2500)],
            CITY.isin(["Bern", "Chur"]) & (pc.field("id") < 2500),
        ),
        (
            [[("address.place.zip", "==", 3.0)], [("address.place.zip", ">", 97)]],
            (ZIP == 3) | (ZIP > 97),
        ),
    ],
    ids=str,
)
def test_tuples_of_a_filter_name_fields_with_dots_or_as_a_tuple(table, predicates, condition):
    assert table.to_arrow(filters=predicates).equals(TABLE.filter(condition))


def test_a_filter_on_a_field_skips_row_groups_by_the_statistics_of_the_field():
    store = RamStore()
    blz.to_blz(TABLE, store, storage=blz.Storage(row_group_rows=500, page_rows=64))
    with blz.open(store) as opened:
        plan = opened.explain(["id"], filters=CITY == "Davos")
    assert [one.name for one in plan.columns] == ["address.place.city", "id"]
    assert (plan.row_groups, plan.row_groups_in_all) == (2, 8)


def test_a_filter_on_a_field_skips_pages_by_the_statistics_of_the_field():
    store = RamStore()
    blz.to_blz(TABLE, store, storage=blz.Storage(page_rows=64))
    with blz.open(store) as opened:
        plan = opened.explain(["id"], filters=CITY == "Davos")
    assert 0 < plan.columns[1].pages <= plan.columns[1].pages_in_all / 4 + 2


def directories(store) -> set[str]:
    return {key.rpartition("/")[0] for key in store.data}


@pytest.mark.parametrize(
    ("read", "columns"),
    [
        (lambda t: t.to_arrow(["address.place.city"]), "1 1/2 1/2/3"),
        (lambda t: t.to_pandas(["address.place.city"]), "1 1/2 1/2/3"),
        (lambda t: t.take([7, 5], ["address.place.city"]), "1 1/2 1/2/3"),
        (lambda t: t["address.place.city"][:], "1/2/3"),
        (lambda t: t["address", "tags"][5:7], "1/5 1/5/6"),
        (lambda t: t.to_arrow(["id"], filters=ZIP == 17), "0 1/2/4"),
        (lambda t: t.count(filters=(ZIP == 17) & (CITY == "Bern")), "1/2/3 1/2/4"),
        (lambda t: t.to_arrow(["address.tags.item", "id"]), "0 1 1/5 1/5/6"),
    ],
)
@pytest.mark.usefixtures("own_files_here")
def test_a_field_is_read_from_its_own_files_and_those_of_what_it_lies_in(read, columns):
    store = Recorded(RamStore())
    # Numbers that ascend by one have no bytes.
    rows = np.random.default_rng(1).permutation(ROWS)
    blz.to_blz(TABLE.set_column(0, "id", pa.array(rows)), store)
    with blz.open(store) as opened:
        store.reads.clear()
        read(opened)
    wanted = {"data/" + "/".join(f"col{n}" for n in one.split("/")) for one in columns.split()}
    assert directories(store) == wanted


def test_a_column_of_which_fields_are_named_has_these_fields_alone_in_the_order_of_the_schema():
    store = RamStore()
    blz.to_blz(TABLE, store)
    names = ["address.tags", "id", ("address", "place", "zip"), "id"]
    with blz.open(store) as opened:
        found = opened.to_arrow(names)
        frame = opened.to_pandas(names)
        view = opened[names[:3]]
        assert view.to_arrow().equals(opened.to_arrow(names[:3]))
        whole = opened.to_arrow(["address.tags", "address"])
    assert found.column_names == list(frame.columns) == ["address", "id", "id"]
    place = pa.struct([("zip", pa.int64())])
    assert found.schema.types[0] == pa.struct([("place", place), ("tags", pa.list_(pa.string()))])
    assert found["address"].to_pylist() == [
        row and {"place": row["place"] and {"zip": row["place"]["zip"]}, "tags": row["tags"]}
        for row in TABLE["address"].to_pylist()
    ]
    assert whole.equals(TABLE.select(["address"]))


def test_some_fields_of_the_dicts_of_a_frame_are_dicts_with_these_keys():
    people = [
        {"name": "Ann", "home": {"city": "Bern", "zip": 1}},
        None,
        {"name": "Bob", "home": None},
    ]
    frame = pd.DataFrame({"p": people, "id": uuid_list(3)}, index=[5, 6, 7])
    store = RamStore()
    frame.to_blz(store)
    found = blz.read_blz(store, columns=["id", "p.home.city"])
    wanted = [{"home": {"city": "Bern"}}, None, {"home": None}]
    pd.testing.assert_frame_equal(
        found, pd.DataFrame({"id": frame["id"], "p": pd.Series(wanted, frame.index)})
    )
    with blz.open(store) as opened:
        assert opened["p.name"].to_pandas().tolist()[::2] == ["Ann", "Bob"]
        assert opened.to_pandas(["p"]).equals(frame[["p"]])


def uuid_list(count: int) -> list[uuid.UUID]:
    return [uuid.UUID(int=number) for number in range(count)]


def test_the_values_of_a_field_are_a_column(table):
    column = table["address.place.zip"]
    wanted = pc.struct_field(TABLE["address"], ["place", "zip"])
    assert column.name == "address.place.zip"
    assert column.type == pa.int64()
    assert column[:].equals(wanted.combine_chunks())
    assert column[17] == wanted[17].as_py()
    assert column.to_arrow().equals(wanted)
    assert {one.name for one in column.streams()} >= {"valid", "values"}


def test_a_view_of_fields_is_checked_in_the_columns_that_have_them(table):
    view = table[["address.place.zip", "address.tags", "id"]]
    report = view.verify()
    assert report.columns == ("address", "id")
    assert report.is_intact
    assert table[["address.place"]].verify(full=False).columns == ("address",)


def test_a_view_of_fields_and_the_column_of_a_field_can_be_pickled(tmp_path):
    blz.to_blz(TABLE, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz") as opened:
        for read in (
            lambda: opened[["address.tags", "id"]],
            lambda: opened["address.place.city"],
            # Bug: the fields of a view were counted as those of the table.
            lambda: opened[["address.place", "id"]][["address.place.city"]],
            lambda: opened[["address.place"]]["address.place.zip"],
        ):
            again = pickle.loads(pickle.dumps(read()))
            assert again.to_arrow().equals(read().to_arrow())


def test_streams_of_a_nested_column_have_the_names_of_their_nodes(table):
    names = {one.name for one in table["address"].streams()}
    assert names > {
        "valid",
        "place.valid",
        "place.city.lengths",
        "place.zip.values",
        "tags.lengths",
    }
    assert names & {"tags.item.values", "tags.item.items.values"}


@pytest.mark.parametrize("name", ["address.street", "id.x", ("address", "place.zip")])
def test_a_field_that_does_not_exist_is_told_as_a_column_is(table, name):
    for read in (lambda: table[name], lambda: table.to_arrow([name]), lambda: table[[name]]):
        with pytest.raises(ColumnNotFoundError, match=re.escape(repr(name))):
            read()


@pytest.mark.parametrize("name", [1, None, ("address", 1), ()])
def test_what_is_no_name_is_told_as_a_column_that_does_not_exist_is(table, name):
    reads = (table.to_arrow, table.to_pandas, table.describe, lambda names: table[names])
    for read in reads:
        with pytest.raises(ColumnNotFoundError, match=re.escape(f"named {name!r} in")):
            read([name])


def test_a_field_below_a_list_has_no_column_of_its_own(table):
    with pytest.raises(SchemaError, match="not one value for each row; read it within its column"):
        table["address.tags.item"]
    with pytest.raises(SchemaError):
        table.to_arrow(filters=pc.field("address", "tags", "item") == "x")


def test_a_column_whose_name_has_a_dot_comes_before_a_field():
    data = pa.table({"a": [{"b": 1}], "a.b": [2]})
    store = RamStore()
    blz.to_blz(data, store)
    with blz.open(store) as opened:
        assert opened.to_arrow(["a.b"]).to_pydict() == {"a.b": [2]}
        assert opened["a.b"][0] == 2
        assert opened["a", "b"][0] == 1
        assert opened.to_arrow(filters=[("a.b", "==", 1)]).num_rows == 0
        assert opened.to_arrow(filters=(pc.field("a", "b") == 1) & (pc.field("a.b") == 2)).num_rows


def test_fields_of_the_same_name_are_told_apart_by_nobody():
    both = pa.struct([("b", pa.int8()), ("b", pa.int16()), ("c", pa.int8())])
    data = pa.table({"a": pa.nulls(3, both)})
    store = RamStore()
    blz.to_blz(data, store)
    with blz.open(store) as opened:
        for read in (lambda: opened.to_arrow(["a.b"]), lambda: opened["a.b"]):
            with pytest.raises(SchemaError, match="2 fields are named 'a\\.b'"):
                read()
        with pytest.raises(SchemaError):
            opened.to_arrow(filters=pc.field("a", "b") == 1)
        assert opened.to_arrow().equals(data)
        assert opened.to_arrow(filters=pc.field("a", "c").is_null()).equals(data)


def test_a_field_of_a_union_is_read_with_the_others():
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array("xy")]
    )
    store = RamStore()
    blz.to_blz(pa.table({"u": union}), store)
    with blz.open(store) as opened, pytest.raises(SchemaError, match="without the others"):
        opened.to_arrow([("u", union.type.field(0).name)])


def test_a_field_with_other_rows_than_the_table_is_damage():
    store = RamStore()
    blz.to_blz(pa.table({"a": [{"b": 1}, {"b": 2}]}), store)
    with tamper.editing(store) as table:
        table.part(1).record["rows"] = 1
    with blz.open(store) as opened:
        for read in (
            lambda: opened["a.b"][:],
            lambda: opened.to_arrow(["a.b"]),
            lambda: opened.to_arrow(filters=pc.field("a", "b") == 1),
        ):
            with pytest.raises(CorruptError):
                read()


def test_an_engine_passes_conditions_on_fields(table):
    answers = []
    for data in (table.dataset(), TABLE):
        with duckdb.connect() as engine:
            engine.register("data", data)
            engine.execute("select count(*), sum(id) from data where address.place.city > 'Bern'")
            answers += engine.fetchall()
    assert answers[0] == answers[1]


def paths(type_) -> list[tuple[str, ...]]:
    """Return the names of each field that can be read without others."""
    if pa.types.is_union(type_):
        return []
    return [
        path
        for child in Node.of(type_).children
        for path in ((child.name,), *((child.name, *more) for more in paths(child.type)))
    ]


def pruned(value, type_, names):
    """Return a Python value with one field alone."""
    if value is None or not names:
        return value
    name, *rest = names
    if pa.types.is_struct(type_):
        return {name: pruned(value[name], type_.field(name).type, rest)}
    if pa.types.is_map(type_):
        rest = rest if name == "value" else []
        return [(key, pruned(item, type_.item_type, rest)) for key, item in value]
    if pa.types.is_run_end_encoded(type_) or pa.types.is_dictionary(type_):
        return pruned(value, type_.value_type, rest)
    return [pruned(item, type_.value_type, rest) for item in value]


@given(st.data(), st.integers(0, 2**32))
@settings(max_examples=12)
def test_a_field_of_any_nested_type_is_that_of_the_whole(data, seed):
    type_ = data.draw(TYPES.filter(paths))
    rows = data.draw(st.integers(0, 20))
    table = pa.table({"a": array_of(type_, rows, seed)})
    names = data.draw(st.sampled_from(paths(type_)))
    store = RamStore()
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=7))
    wanted = [pruned(value, type_, names) for value in table["a"].to_pylist()]
    with blz.open(store) as opened:
        found = opened.to_arrow([("a", *names)])["a"]
        found.validate(full=True)
        assert repr(found.to_pylist()) == repr(wanted)
        taken = opened.take(list(reversed(range(rows))), [("a", *names)])["a"]
        assert repr(taken.to_pylist()) == repr(wanted[::-1])
