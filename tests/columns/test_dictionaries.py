"""Joined dictionaries: each value occurs once, and values are compared by their bits."""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.columns.dictionaries import changes
from blztable.columns.types import one_array
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support import arrow_strategies as types
from support.bit_equality import bits, same
from support.samples import array

SMALL = pa.dictionary(pa.int8(), pa.string())


def coded(codes, values, type_=SMALL):
    codes = pa.array(codes, type_.index_type)
    return pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered, safe=False)


def words(start, stop):
    return pa.array([f"word {n}" for n in range(start, stop)])


@pytest.mark.parametrize("type_", [type_ for type_ in types.PLAIN if type_ != pa.null()], ids=str)
def test_values_of_two_dictionaries_are_there_once(type_):
    values = array(type_, 8)
    whole = pa.dictionary(pa.int8(), type_)
    # The same values at other indices; booleans and binaries without width have few values.
    parts = [coded([0, None, 7], values, whole), coded([1, 2, None], values.slice(2), whole)]
    column = pa.chunked_array(parts)
    joined = one_array(column)
    assert same(joined, column)
    assert len(joined.dictionary) == len(set(bits(values)))


def test_zeros_of_either_sign_and_nans_of_other_bits_stay_what_they_are():
    nans = np.array([0x7FF8 << 48, 0x7FF9 << 48], "u8").view("f8")
    type_ = pa.dictionary(pa.int8(), pa.float64())
    first = coded([0, 1, 2], pa.array([0.0, *nans[:1], None], from_pandas=False), type_)
    second = coded([0, 1, 2], pa.array([-0.0, *nans], from_pandas=False), type_)
    column = pa.chunked_array([first, second])
    joined = one_array(column)
    assert same(joined, column)
    assert len(joined.dictionary) == 5


def test_categories_that_overlap_have_room_as_long_as_they_are_few():
    column = pa.chunked_array([coded([n], words(n, n + 100)) for n in range(29)])
    assert changes(column) == []
    assert len(one_array(column).dictionary) == 128
    column = pa.chunked_array([coded([n], words(n, n + 100)) for n in range(30)])
    assert changes(column) == [29]
    with pytest.raises(SchemaError, match="do not fit into one array"):
        one_array(column)


def test_rows_of_nulls_need_no_dictionary():
    column = pa.chunked_array(
        [coded([None, None], words(0, 0).cast(pa.string())), coded([1, 0], words(0, 2))]
    )
    assert one_array(column).to_pylist() == [None, None, "word 1", "word 0"]


def imported(array):
    """Return the array as another library exports it, without buffers that it does not need."""
    return pa.Array._import_from_c_capsule(*array.__arrow_c_array__())


@pytest.mark.parametrize("offset", [1, 2])
@pytest.mark.parametrize("type_", types.PLAIN, ids=str)
def test_equal_dictionaries_may_be_empty_slices_that_were_imported(type_, offset):
    empty = array(type_, 2).slice(offset, 0)
    whole = pa.dictionary(pa.int8(), type_)
    column = pa.chunked_array([imported(coded([None] * rows, empty, whole)) for rows in (2, 1)])
    joined = one_array(column)
    joined.validate(full=True)
    assert joined.equals(pa.nulls(3, whole))
    assert changes(column) == []


def test_codes_beyond_their_own_dictionary_do_not_find_a_value_of_the_next():
    column = pa.chunked_array([coded([2], words(0, 2)), coded([0], words(5, 9))])
    with pytest.raises(SchemaError, match="dictionary indices from 2 to 2; expected 0 to 1"):
        one_array(column)


def test_dictionaries_of_nulls_take_no_memory_for_them():
    """A few bytes of a file may claim any number of null values."""
    type_ = pa.dictionary(pa.int64(), pa.null())
    many = pa.Array.from_buffers(pa.null(), 1 << 50, [None])
    parts = [coded([0, (1 << 50) - 1], many, type_), coded([5, None], pa.nulls(6), type_)]
    for chunks in (parts, parts[:1] * 2):
        joined = one_array(pa.chunked_array(chunks))
        assert (len(joined), len(joined.dictionary)) == (4, 1)
        assert joined.to_pylist() == [None] * 4


# Bug: a dictionary with as many values as its index type can count was refused.
def test_a_dictionary_may_fill_its_index_type():
    values = [f"{number:03}" for number in range(256)]
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([0, 127], pa.uint8()), half)
        for half in (values[:128], values[128:])
    ]
    store = RamStore()
    blz.to_blz(pa.table({"a": pa.chunked_array(chunks)}), store)
    with blz.open(store) as table:
        assert len(table._snapshot.version.row_groups) == 1
        assert table["a"][:].to_pylist() == ["000", "127", "128", "255"]
