"""Damage in the file of any node: only the rows of its row group are lost, and all of them are."""

import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support.bit_equality import bits
from support.nested_arrays import ALL, array_of
from support.options import arguments

FORMS = [{"page_rows": 8, "row_group_rows": 12, "encoding": "plain"}, {"row_group_rows": 12}]


@pytest.mark.parametrize("form", FORMS, ids=["files", "bundles"])
@pytest.mark.parametrize("kind", ["list of struct", "map", "runs", "dense", "fixed", "view"])
def test_damage_in_any_node_loses_pages_of_its_row_group_alone(kind, form):
    array = array_of(ALL[kind], 36, 1)
    blz.to_blz(
        pa.table({"k": range(36), "x": array}), store := RamStore("shelf"), **arguments(**form)
    )
    wanted = bits(array)
    for key in [key for key in store._entries if key.endswith(".bin")]:
        data = bytes(store._entries[key].data)
        for at in (5, len(data) // 2, len(data) - 20):
            store.put(key, data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found = blz.read_table(store, on_corrupt="skip")
            found.validate(full=True)
            left = found["k"].to_pylist()
            assert bits(found["x"]) == [wanted[row] for row in left]
            with blz.open(store) as table:
                assert key in str(table.verify().problems)
            # Of the copy of a digest behind its chunk, only `verify` knows.
            lost = sorted(set(range(36)) - set(left))
            assert len({row // 12 for row in lost}) <= 1
            # Whole pages of 8 rows, of which a row group has two.
            assert len(lost) in (0, 4, 8, 12)
            store.put(key, data)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", FORMS, ids=["files", "bundles"])
@pytest.mark.parametrize("on_corrupt", ["skip", "null"])
def test_a_filter_on_a_field_reads_what_is_whole_of_a_damaged_table(on_corrupt, form):
    places = [{"city": "ab"[row % 2], "zip": row} for row in range(36)]
    data = pa.table({"k": range(36), "place": places})
    blz.to_blz(data, store := RamStore("shelf"), **arguments(**form))
    wanted = [{"k": row, "place": {"zip": row}} for row in range(0, 36, 2)]
    for key in [key for key in store._entries if key.endswith(".bin")]:
        intact = bytes(store._entries[key].data)
        store.put(key, intact[:5] + bytes([intact[5] ^ 0x55]) + intact[6:])
        found = blz.read_table(
            store,
            columns=["k", "place.zip"],
            filters=pc.field("place", "city") == "a",
            on_corrupt=on_corrupt,
        ).to_pylist()
        left = [one for one in found if None not in one.values()]
        assert all(one in wanted for one in left)
        assert len(left) >= 12
        store.put(key, intact)
