"""Arrays of earlier versions of blztable are read bit for bit; `make/arrays.py` wrote them."""

import pytest

import blztable as blz
from golden.make.arrays import EXPECTED, FILES, OTHERS, VALUES
from golden.sets import unpacked
from support.bloscpack_reference import import_bloscpack

ROOT = unpacked("arrays")


def test_every_file_is_there_and_no_other():
    assert {path.name for path in ROOT.iterdir()} == FILES.keys() | OTHERS.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_an_array_is_read_as_it_was_written(name):
    expected = EXPECTED[name]
    with blz.SuperChunk.open(ROOT / name) as array:
        assert array.verify()
        found = array.to_numpy()
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tolist() == expected.tolist()
        if name in FILES:
            assert dict(array.attrs) == {"unit": "mm"}
            assert dict(array.meta) == {"pet": b"cat"}
            assert dict(array.vlmeta) == {"note": b"n" * 300}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_array_is_changed_after_years(name, tmp_path):
    path = tmp_path / name
    path.write_bytes((ROOT / name).read_bytes())
    expected = EXPECTED[name]
    with blz.SuperChunk.open(path, "a") as array:
        array.append(expected[:2])
    with blz.SuperChunk.open(path) as array:
        assert array.to_numpy().tolist() == [*expected.tolist(), *expected[:2].tolist()]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_real_program_reads_the_genuine_ones(name):
    data = (ROOT / name).read_bytes()
    if data[4] == 3:
        real = import_bloscpack().unpack_ndarray_from_bytes(data)
        assert real.tolist() == EXPECTED[name].tolist()
    else:
        others = {"grid.blp", "fortran.blp", "wide.blp", "str.blp", "bytes.blp", "full.blp"}
        assert name in others | {"stream.blp"}


def test_the_whole_chunks_of_the_unfinished_one_are_recovered():
    with blz.SuperChunk.recover(ROOT / "unfinished.blp") as array:
        assert array.to_numpy().tolist() == VALUES[:10].tolist()
