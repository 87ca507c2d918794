"""Paths and stores: the argument that names a table."""

import pytest

import blztable as blz


# Bug: an empty path was accepted as the place of a table.
def test_an_empty_path_is_no_place_for_a_table():
    with pytest.raises(ValueError, match="path is empty"):
        blz.to_blz({"a": [1]}, "")


# Bug: both were called directories.
def test_what_is_neither_file_nor_directory_is_called_so(tmp_path):
    link = tmp_path / "link.blz"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(blz.TableExistsError, match="is a symbolic link to nothing"):
        blz.to_blz({"a": [1]}, link, storage=blz.Storage(layout="file"))
    with pytest.raises(blz.TableExistsError, match="is no regular file"):
        blz.to_blz({"a": [1]}, "/dev/null", storage=blz.Storage(layout="file"))
