"""Files that killed writers left beside a file go with the next one; those of others stay."""

import numpy as np
import pytest

import blztable as blz
from blztable.storage.files import name_beside


def leftover(path):
    """Make the file of a writer that was killed while it wrote `path` again."""
    file = path.with_name(name_beside(path.name))
    file.write_bytes(b"half")
    return file


def array(path):
    with blz.SuperChunk.create(path, "i4") as sc:
        sc.append(np.arange(9))


def table(path):
    blz.to_blz({"n": [*range(9)]}, path, storage=blz.Storage(layout="file"))


def change_array(path):
    blz.SuperChunk.open(path, "a").close()


def change_table(path):
    blz.to_blz({"n": [1]}, path, mode="w")
    with blz.open(path, mode="a") as t:
        # It copies what lives to a new file.
        t.vacuum(keep=1)


@pytest.mark.parametrize(("make", "change"), [(array, change_array), (table, change_table)])
# `t-x` may be at work: its files have the prefix of those of `t`.
@pytest.mark.parametrize("other", ["t-x", "t-" + "0" * 16, "u"])
def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_else(
    tmp_path, make, change, other
):
    path = tmp_path / "t"
    make(path)
    mine, others = leftover(path), leftover(tmp_path / other)
    user = tmp_path / ".tmp-t-mine"
    user.touch()
    change(path)
    assert set(tmp_path.iterdir()) == {path, others, user}
    assert not mine.exists()


def test_a_reader_removes_nothing(tmp_path):
    array(tmp_path / "a.blp")
    file = leftover(tmp_path / "a.blp")
    blz.SuperChunk.open(tmp_path / "a.blp").close()
    assert file.exists()


def test_a_file_of_a_long_name_is_written_again(tmp_path):
    path = tmp_path / ("n" * 250 + ".blp")
    array(path)
    left = leftover(path)
    with blz.SuperChunk.open(path, "a") as sc:
        sc.rewrite()
        assert sc[:].tolist() == [*range(9)]
    assert not left.exists()
    assert len(name_beside("é" * 127)) < 100
