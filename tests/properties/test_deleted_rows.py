"""Deleted rows: a table that names them answers as one that was written again without them."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.storage.memory import RamStore
from support.arrow_strategies import arrays, types
from support.bit_equality import same_table
from support.nested_arrays import KINDS, array_of
from support.options import arguments

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
# A share that no row group reaches, and one that each does.
NAMED, WRITTEN_AGAIN = 1, 1 << 60
NESTED = st.sampled_from([kind for name, kind in KINDS.items() if name != "short runs"])


def delete(t, where, share):
    with tuning.tuned(rows_per_deleted=share):
        return t.delete(where)


@st.composite
def tables(draw, rows):
    plain = [draw(arrays(draw(types()), rows, stray_codes=False)) for _ in range(2)]
    nested = array_of(draw(NESTED), rows, draw(st.integers(0, 9)))
    texts = pa.array([None if row % 5 == 3 else "é" * (row % 4) for row in range(rows)])
    columns = {"i": pa.array(range(rows), pa.int32()), "n": nested, "t": texts}
    return pa.table({**columns, "a": plain[0], "b": plain[1]})


def twins(data, table):
    options = {
        "row_group_rows": data.draw(st.sampled_from([9, 64])),
        "page_rows": data.draw(st.sampled_from([8, 16, None])),
        "packing": data.draw(st.sampled_from(["packed", "per_item"])),
        "encoding": data.draw(st.sampled_from(["auto", "plain"])),
    }
    stores = RamStore("named"), RamStore("written again")
    for store in stores:
        blz.to_blz(table, store, **arguments(**options))
    return [blz.open(store, "a") for store in stores]


def check_alike(data, named, again):
    assert same_table(named.to_arrow(), again.to_arrow())
    count = len(again)
    assert len(named) == count == sum(one.num_rows for one in named.to_batches(batch_rows=5))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, count)] * 2)))
    assert same_table(named[start:stop], again[start:stop])
    places = data.draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=9)) if count else []
    assert same_table(named.take(places), again.take(places))
    for where in (pc.field("i") >= start, pc.field("t").is_null(), pc.field("t") == "é"):
        found = named.to_arrow(["n", "a", "i"], filters=where)
        assert same_table(found, again.to_arrow(["n", "a", "i"], filters=where))
        assert named.count(filters=where) == found.num_rows == again.count(filters=where)
        assert same_table(
            named.to_arrow(["t"], filters=where, dictionaries=["t"]),
            again.to_arrow(["t"], filters=where, dictionaries=["t"]),
        )
    for name in again.columns:
        assert named[name].null_count() == again[name].null_count(), name
    for name in "i", "t":
        assert (named[name].min(), named[name].max()) == (again[name].min(), again[name].max())
    assert named.dataset().count_rows() == count
    assert named.verify().is_intact
    assert named.verify().rows == count


@few
@given(st.data())
def test_a_table_that_names_deleted_rows_answers_as_one_written_without_them(data):
    compare(data)


@pytest.mark.storm
@pytest.mark.timeout(4 * 3600)
@settings(few, max_examples=1000)
@given(st.data())
def test_a_thousand_tables_that_name_deleted_rows_answer_as_ones_written_without_them(data):
    compare(data)


def compare(data):
    rows = data.draw(st.sampled_from([1, 9, 40]))
    table = data.draw(tables(rows))
    with tempfile.TemporaryDirectory() as folder:
        named, again = twins(data, table)
        moves = ["append", "update", "delete", "upsert", "column", "type", "compact", "sort"]
        moves = ["delete", *data.draw(st.lists(st.sampled_from(moves), max_size=4))]
        for move in moves:
            at, more = data.draw(st.integers(0, rows)), table.slice(0, 3)
            gone = data.draw(st.lists(st.integers(0, rows), max_size=12))
            for one, share in ((named, NAMED), (again, WRITTEN_AGAIN)):
                match move:
                    case "delete":
                        delete(one, pc.field("i").isin(gone), share)
                    case "append":
                        one.append(more)
                    case "update":
                        values = {"t": "new", "n": more["n"][0], "a": more["a"][0]}
                        one.update(values, where=pc.field("i") >= at)
                    case "upsert":
                        one.upsert(pa.table({"i": pa.array([at, -1], pa.int32())}), on="i")
                    case "column" if "c" in one.columns:
                        one.drop_columns(["c"])
                    case "column":
                        one.add_column("c", np.arange(len(one)))
                    case "type" if one.schema.field("t").type == pa.string():
                        one.alter_column("t", dtype="large_string")
                    case "compact":
                        one.compact()
                    case "sort":
                        one.compact(sort_by=[("i", "descending")])
            check_alike(data, named, again)
        # Columns are compared that have the same type.
        if "type" not in moves:
            found, expected = named.diff(1).rows(), again.diff(1).rows()
            assert same_table(found.removed, expected.removed)
            assert same_table(found.added, expected.added)
        named.compact()
        assert named.versions()[-1].deleted_rows == 0
        file, kept = Path(folder, "one.blz"), named.to_arrow()
        delete(named, pc.field("i").isin([0, 3]), NAMED)
        kept = named.to_arrow()
        blz.to_blz(kept, Path(folder, "t"), durability="process")
        assert same_table(blz.read_table(Path(folder, "t")), kept)
        blz.to_blz(table, file, storage=blz.Storage(layout="file"))
        with blz.open(file, "a") as one:
            delete(one, pc.field("i").isin([0, 3]), NAMED)
            expected = one.to_arrow()
            one.vacuum(keep=1)
        blz.copy(file, Path(folder, "u"))
        assert same_table(blz.read_table(Path(folder, "u")), expected)
