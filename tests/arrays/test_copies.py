"""Copies of an open array: each opens the file for itself, or says why it cannot."""

import copy
import io
import pickle

import numpy as np
import pytest

import blztable as blz

COPIES = (copy.copy, copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array)))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "i8") as array:
        array.append(range(5))
    return path


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_opens_the_file_for_itself(path, copied):
    array = blz.SuperChunk.open(path)
    other = copied(array)
    array.close()
    assert np.array_equal(other, range(5))
    other.close()
    with pytest.raises(blz.ClosedError):
        copied(other)
    with blz.SuperChunk.open(path, "a") as array:
        array.append([5])


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_recovered_array_is_recovered(tmp_path, copied):
    array = blz.SuperChunk.create(tmp_path / "b.blp", "i8", chunk_shape=(2,))
    array.append(range(5))
    with pytest.raises(OSError, match="stopped"), array:
        raise OSError("stopped")
    with blz.SuperChunk.recover(tmp_path / "b.blp") as array, copied(array) as other:
        assert np.array_equal(other, range(4))


@pytest.mark.parametrize("copied", COPIES)
def test_what_has_no_path_and_what_is_locked_cannot_be_copied(path, copied):
    data = path.read_bytes()
    for place in (data, io.BytesIO(data)):
        with blz.SuperChunk.open(place) as array, pytest.raises(TypeError, match="opened by its"):
            copied(array)
    with blz.SuperChunk.create(None, "i8") as array, pytest.raises(TypeError, match="in memory"):
        copied(array)
    with blz.SuperChunk.open(path, "a") as array:
        with pytest.raises(TypeError, match="locked, so it cannot be copied or pickled"):
            copied(array)
        array.append([5])


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_attributes_or_metalayers_is_a_dict(copied):
    options = {"attrs": {"a": [1]}, "meta": {"b": b"2"}}
    with blz.SuperChunk.create(None, "i8", **options) as array:
        array.vlmeta["c"] = b"3"
        for found, expected in zip(
            (array.attrs, array.meta, array.vlmeta),
            ({"a": [1]}, {"b": b"2"}, {"c": b"3"}),
            strict=True,
        ):
            assert type(copied(found)) is dict
            assert copied(found) == expected


@pytest.mark.parametrize("copied", COPIES)
def test_a_table_in_memory_cannot_be_copied(copied):
    with pytest.raises(TypeError, match="belongs to its process"):
        copied(blz.MemoryStore())
