"""Nested columns: every Arrow array of lists, structs, maps, unions and runs comes back."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.arrow.nested.assemble import decoded, rebuilt, taken
from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import Node
from blztable.arrow.types import nulls
from blztable.columns.default import zero_of
from blztable.storage.memory import RamStore
from support.moved_first import moved_first
from support.nested_arrays import ALL, TYPES, array_of, rows_of
from support.options import arguments
from support.recording_store import Recorded

# Row groups with a file for each part, small pages and plain streams; and one bundle.
LAYOUTS = [
    {"row_group_rows": 24, "page_rows": 8, "encoding": "plain"},
    {"row_group_rows": 24, "page_rows": 8},
    {},
]
SEEDS = st.integers(0, 1 << 32)
LIST_OF_STRUCTS = pa.array([[{"p": 1, "q": "s"}], None, []])


@given(TYPES, st.integers(0, 40), SEEDS, st.data())
def test_an_array_of_flat_nodes_is_the_array_it_was_made_of(type_, rows, seed, data):
    array = array_of(type_, rows, seed)
    start = data.draw(st.integers(0, rows))
    array = array.slice(start, data.draw(st.integers(0, rows - start)))
    node = Node.of(type_)
    flats = flatten(node, array)
    for flat in flats:
        flat.validate(full=True)
    back = rebuilt(node, iter(flats))
    back.validate(full=True)
    assert back.type == type_
    assert rows_of(back) == rows_of(array)


@given(TYPES, st.integers(1, 30), SEEDS, st.lists(st.integers(0, 29), max_size=20))
def test_rows_by_index_are_those_rows(type_, rows, seed, indices):
    array = array_of(type_, rows, seed)
    indices = [index % rows for index in indices]
    found = taken(array, np.array(indices, np.int64))
    found.validate(full=True)
    assert rows_of(found) == repr([array[index].as_py() for index in indices])


@settings(max_examples=12)
@given(TYPES, st.integers(0, 80), SEEDS, st.sampled_from(LAYOUTS), st.data())
def test_a_table_reads_slices_takes_filters_and_verifies(type_, rows, seed, layout, data):
    array = array_of(type_, rows, seed)
    table = pa.table({"k": np.arange(rows), "x": array})
    blz.to_blz(table, store := RamStore("shelf"), **arguments(**layout))
    with blz.open(store) as t:
        whole = t.to_arrow()
        whole.validate(full=True)
        assert whole.schema == table.schema
        assert rows_of(whole["x"]) == rows_of(array)
        assert not t.verify().problems
        if not rows:
            return
        start = data.draw(st.integers(0, rows - 1))
        found = blz.read_table(store, filters=pc.field("k") >= start)
        assert rows_of(found["x"]) == rows_of(array.slice(start))
        indices = data.draw(st.lists(st.integers(0, rows - 1), max_size=9))
        assert rows_of(t.take(indices)["x"]) == repr([array[index].as_py() for index in indices])


# Found by the fuzzer: Arrow's own nulls of runs inside of nested types are invalid.
@given(TYPES, st.integers(0, 9))
def test_nulls_of_any_type_are_valid(type_, rows):
    array = nulls(rows, type_)
    array.validate(full=True)
    assert array.type == type_
    assert array.to_pylist() == [None] * rows


# Statistics are those of the root; rows of unions and runs are null where a child says so.
@settings(max_examples=7)
@given(TYPES, SEEDS, st.sampled_from(LAYOUTS))
def test_filters_for_nulls_find_the_rows_that_are_null(type_, seed, layout):
    array = array_of(type_, 60, seed)
    store = RamStore("shelf")
    blz.to_blz(pa.table({"k": range(60), "x": array}), store, **arguments(**layout))
    # Arrow takes runs of the null type for valid, and looks for nulls in no values of a dictionary.
    values = decoded(array) if pa.types.is_dictionary(type_) else array
    missing = {row for row, flag in enumerate(values.is_null().to_pylist()) if flag}
    is_null, behind = pc.field("x").is_null(), pc.field("k") > 30
    for condition, wanted in (
        (is_null, missing),
        (~is_null, {*range(60)} - missing),
        (pc.field("x").is_valid() & behind, {*range(31, 60)} - missing),
        (is_null | behind, missing | {*range(31, 60)}),
    ):
        found = blz.read_table(store, filters=condition)
        assert found["k"].to_pylist() == sorted(wanted)
        assert rows_of(found["x"]) == repr([array[row].as_py() for row in sorted(wanted)])


@settings(max_examples=7)
@given(TYPES, SEEDS, st.sampled_from(LAYOUTS), st.lists(st.sampled_from("audcmr"), max_size=6))
def test_changes_keep_the_rows_that_they_should(type_, seed, layout, verbs):
    rows = 30
    array = array_of(type_, rows, seed)
    expected = array.to_pylist()
    store = RamStore("shelf")
    blz.to_blz(pa.table({"k": np.arange(rows), "x": array}), store, **arguments(**layout))
    keys = list(range(rows))
    for number, verb in enumerate(verbs):
        with blz.open(store, mode="a") as t:
            if verb == "a":
                more = array_of(type_, 7, seed + number)
                t.append(pa.table({"k": np.arange(7) + 100 * (number + 1), "x": more}))
                expected += more.to_pylist()
                keys += [100 * (number + 1) + row for row in range(7)]
            elif verb == "u" and keys:
                t.update({"k": -1}, where=pc.field("k") == keys[0])
                keys = [-1 if key == keys[0] else key for key in keys]
            elif verb == "d" and keys:
                kept = [key != keys[-1] for key in keys]
                t.delete(pc.field("k") == keys[-1])
                expected = [one for one, is_kept in zip(expected, kept, strict=True) if is_kept]
                keys = [one for one, is_kept in zip(keys, kept, strict=True) if is_kept]
            elif verb == "c":
                t.compact()
            elif verb == "m":
                t.rename_columns({"x": "y"})
                t.rename_columns({"y": "x"})
            else:
                moved_first(t, ["x"])
    with blz.open(store) as t:
        assert repr(t.to_arrow()["x"].to_pylist()) == repr(expected)
        assert t.to_arrow()["k"].to_pylist() == keys
        assert not t.verify().problems


def test_the_children_of_a_column_are_in_its_directory(tmp_path):
    rows = [{"city": "Bern", "codes": [1, 2]}, None, {"city": None, "codes": []}] * 9
    blz.to_blz(
        {"id": range(27), "address": rows}, tmp_path / "t.blz", storage=blz.Storage(page_rows=8)
    )
    files = sorted(one.parent.relative_to(tmp_path).as_posix() for one in tmp_path.rglob("*.bin"))
    below = "t.blz/data/col1"
    assert files == [
        "t.blz/data/col0",
        below,
        *(f"{below}/{one}" for one in ("col2", "col3", "col3/col4")),
    ]


@pytest.mark.parametrize("size", [0, 1, 768])
def test_embeddings_come_back_and_lie_in_one_file(tmp_path, size):
    values = pa.array(np.arange(20 * size, dtype="f4"))
    array = (
        pa.FixedSizeListArray.from_arrays(values, size)
        if size
        else array_of(pa.list_(pa.float32(), 0), 20, 1)
    )
    blz.to_blz(pa.table({"emb": array}), tmp_path / "t.blz", storage=blz.Storage(page_rows=8))
    assert blz.read_table(tmp_path / "t.blz")["emb"].to_pylist() == array.to_pylist()
    if size:
        assert len(list(tmp_path.rglob("*.bin"))) == 1


@pytest.mark.parametrize("kind", ALL)
def test_one_value_fills_rows_and_another_column_sorts_them(kind):
    array = array_of(ALL[kind], 30, 1)
    rows = array.to_pylist()
    store = RamStore()
    blz.to_blz(
        pa.table({"k": range(30), "x": array}),
        store,
        storage=blz.Storage(page_rows=8, row_group_rows=12),
    )
    with blz.open(store, "a") as table:
        for place in (4, 9):
            table.update({"x": array[place]}, where=pc.field("k") < place)
            rows[:place] = [rows[place]] * place
        table.update({"x": None}, where=pc.field("k") > 27)
        rows[28:] = [None, None]
        assert repr(table.to_arrow()["x"].to_pylist()) == repr(rows)
        table.add_column("y", array[4])
        assert repr(table.to_arrow()["y"].to_pylist()) == repr([array[4].as_py()] * 30)
        table.compact(sort_by=[("k", "descending")])
        assert repr(table.to_arrow()["x"].to_pylist()) == repr(rows[::-1])
        assert table.verify()


# Arrow crashes if it sorts by a struct without fields.
@pytest.mark.parametrize("kind", ALL)
def test_rows_cannot_be_sorted_by_nested_values(kind):
    table = pa.table({"x": array_of(ALL[kind], 5, 1)})
    with pytest.raises(blz.SchemaError, match=r"'x'.*nested values have no order"):
        blz.to_blz(table, RamStore(), sort_by="x")
    blz.to_blz(table, store := RamStore())
    with (
        blz.open(store, "a") as opened,
        pytest.raises(blz.SchemaError, match="nested values have no order"),
    ):
        opened.compact(sort_by=["x"])


@pytest.mark.parametrize("kind", ALL)
def test_a_nested_column_that_is_not_null_is_filled_with_values_without_nulls(kind):
    type_ = ALL[kind]
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("x", type_, nullable=False)])
    blz.create(store := RamStore(), schema)
    with blz.open(store, "a") as table:
        with pytest.raises(blz.SchemaError, match="'x': missing, not nullable"):
            table.append({"k": [1]})
        table.resize(3)
        found = table.to_arrow()
    found.validate(full=True)
    assert found.schema.equals(schema)
    assert None not in found["x"].to_pylist()
    assert {repr(row) for row in found["x"].to_pylist()} == {repr(zero_of(type_).as_py())}


# The keys are stored by column, and were found by node.
def test_a_table_with_nested_columns_is_sorted_by_the_column_that_was_named():
    rows = pa.table({"x": LIST_OF_STRUCTS, "a": [3, 1, 2], "y": LIST_OF_STRUCTS, "b": [1, 3, 2]})
    blz.to_blz(rows, store := RamStore(), sort_by=[("b", "descending")])
    with blz.open(store, "a") as table:
        assert table.storage.sort_by == [("b", "descending")]
        assert table.versions()[-1].columns == 4
        table.append(rows)
        table.compact()
        assert table.to_arrow()["b"].to_pylist() == [3, 3, 2, 2, 1, 1]
        table.compact(sort_by="a")
        assert table.storage.sort_by == [("a", "ascending")]
        table.drop_columns(["x"])
        assert table.storage.sort_by == [("a", "ascending")]
        table.append(rows.select(["a", "y", "b"]))
        table.compact()
        assert table.to_arrow()["a"].to_pylist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        assert table.verify()


def test_runs_that_pandas_cannot_hold_are_refused_by_name():
    words = pa.array(["a", "b"]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), words)
    blz.to_blz(pa.table({"x": runs}), store := RamStore())
    with pytest.raises(blz.SchemaError, match=r"'x'.*pandas cannot hold run_end_encoded"):
        blz.read_blz(store)


@settings(max_examples=12)
@given(
    st.recursive(
        st.sampled_from([pa.int16(), pa.float32(), pa.string(), pa.bool_(), pa.null()]),
        lambda inner: (
            st.lists(inner, max_size=3).map(
                lambda types: pa.struct([(f"f{n}", one) for n, one in enumerate(types)])
            )
            | st.tuples(inner, st.integers(0, 3)).map(lambda pair: pa.list_(*pair))
        ),
        max_leaves=4,
    ),
    SEEDS,
    st.sampled_from(LAYOUTS),
    st.lists(st.integers(0, 59), max_size=5),
    st.sampled_from([1, 256]),
)
def test_single_rows_of_structs_and_lists_of_one_size_are_those_of_the_array(
    type_, seed, layout, rows, few
):
    array = array_of(type_, 60, seed)
    store = RamStore()
    blz.to_blz(pa.table({"k": range(60), "x": array}), store, **arguments(**layout))
    with tuning.tuned(rows_per_list=few), blz.open(store) as t:
        found = t.take(rows, ["x", "k"])
        found.validate(full=True)
        assert found["k"].to_pylist() == rows
        assert rows_of(found["x"]) == repr([array[row].as_py() for row in rows])
        kept = t.to_arrow(filters=pc.field("k").isin(rows))
        assert rows_of(kept["x"]) == repr([array[row].as_py() for row in sorted(set(rows))])


@pytest.mark.usefixtures("own_files_here")
def test_a_single_row_of_an_embedding_is_read_without_the_others():
    values = np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32)
    store = Recorded(RamStore())
    blz.to_blz({"emb": values}, store)
    with blz.open(store) as t:
        store.reads.clear()
        found = t.take([17], ["emb"])["emb"]
    assert found.to_pylist() == [values[17].tolist()]
    assert sum(length for _, _, length in store.reads) < values.nbytes / 4
