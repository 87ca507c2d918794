"""Paths and stores: the argument that names a table."""

import pytest

import blztable as blz


# Bug: an empty path was accepted as the place of a table.
def test_an_empty_path_is_no_place_for_a_table():
    with pytest.raises(ValueError, match="path is empty"):
        blz.to_blz({"a": [1]}, "")
