"""An index selects what numpy selects, to read and to assign, or raises its IndexError."""

import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import blztable as blz
from support.bloscpack_files import file_of


def result_of(call):
    """Return what a call returns, or the type of its error."""
    try:
        return call()
    except (IndexError, ValueError) as error:
        return type(error)


def same(found, expected):
    if isinstance(expected, type):
        return found is expected
    if found is IndexError:
        # Numpy forgives an index that is out of bounds if another one selects nothing.
        return np.size(expected) == 0
    return type(found) is type(expected) and np.array_equal(found, expected)


def indices(shape):
    """Return a strategy of indices of each kind, few of which are out of bounds."""
    length = st.integers(-4, 4)
    sizes = st.sampled_from([*shape, 1, 2, 3])
    masks = st.lists(sizes, min_size=1, max_size=3).flatmap(lambda of: npst.arrays("?", tuple(of)))
    whole = [npst.arrays("?", shape[at : at + n]) for at in range(4) for n in range(1, 4)]
    places = npst.arrays(
        st.sampled_from(["i1", "i8", ">i4", "u8"]),
        npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
        elements=st.integers(0, 2),
    )
    entries = st.one_of(
        st.integers(-3, 2),
        st.slices(4),
        st.builds(slice, length, length),
        st.none(),
        st.just(...),
        masks,
        st.one_of(whole),
        places,
        places.map(np.ndarray.tolist),
        st.booleans(),
        st.booleans().map(np.bool_),
        st.booleans().map(np.asarray),
        st.lists(st.integers(-3, 2), max_size=3),
        st.lists(st.booleans(), max_size=3),
        st.integers(0, 2).map(np.uint64),
        st.lists(st.integers(0, 2), max_size=2).map(tuple),
    )
    return entries | st.lists(entries, max_size=len(shape) + 1).map(tuple)


CASES = npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3).flatmap(
    lambda shape: st.tuples(st.just(shape), indices(shape))
)


@settings(max_examples=150)
@example(((3, 2), (..., np.ones(3, bool))))
@example(((3, 2), (True, np.bool_(False), None, ...)))
@example(((3,), [[]]))
@example(((3, 2), ([], [5])))
@example(((3, 2), (0, None, [1])))
@given(CASES)
def test_an_index_selects_and_assigns_what_numpy_does(case):
    shape, key = case
    expected = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    array = blz.SuperChunk.create(
        None, "i4", shape, chunk_shape=(2, 1, 2, 1)[: len(shape)], reserve=100
    )
    array[...] = expected
    selected = result_of(lambda: expected[key])
    assert same(result_of(lambda: array[key]), selected)
    if not isinstance(selected, type):
        selected = np.asarray(selected) + 100
    else:
        selected = 5
    assigned = result_of(lambda: expected.__setitem__(key, selected))
    assert result_of(lambda: array.__setitem__(key, selected)) in (assigned, IndexError)
    assert np.array_equal(array, expected)


@given(
    npst.array_shapes(min_dims=0, max_dims=3, max_side=3).flatmap(
        lambda shape: st.tuples(st.just(shape), indices(shape), st.sampled_from("CF"))
    )
)
def test_files_of_other_programs_are_selected_from_as_well(case):
    shape, key, order = case
    expected = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    about = {"dtype": "'<i4'", "shape": list(shape), "order": order, "container": "numpy"}
    array = blz.SuperChunk.open(io.BytesIO(file_of(expected.tobytes(order), metadata=about)))
    assert same(result_of(lambda: array[key]), result_of(lambda: expected[key]))


@pytest.mark.parametrize("key", ["a", ["a"], 1.0, [1.0], {}, object, [[1], [1, 2]], b"a"], ids=str)
def test_what_is_no_index_raises_an_index_error(key):
    array = blz.SuperChunk.create(None, [("a", "i4")], (3,))
    with pytest.raises(IndexError, match=r"index|fields"):
        array[key]
    with pytest.raises(IndexError, match=r"index|fields"):
        array[key] = 0
