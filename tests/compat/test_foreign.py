"""What is no table here is named, with the call that reads it, wherever a table is expected."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

import blztable as blz
from blztable.cli.command import main

TABLE = pa.table({"a": [1, 2], "b": ["x", None]})
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(88)


def orc(path):
    pyarrow.orc.write_table(TABLE, path)


def numpy_array(path):
    with path.open("wb") as file:
        np.save(file, np.arange(3))


# How each file is made, what it is called, and what its call returns.
FILES = {
    "x.parquet": (
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        "a Parquet file",
        "pandas.read_parquet",
        TABLE.to_pandas(),
    ),
    "x.feather": (
        lambda path: pyarrow.feather.write_feather(TABLE, path),
        "a Feather file",
        "pandas.read_feather",
        TABLE.to_pandas(),
    ),
    "old.feather": (
        lambda path: path.write_bytes(b"FEA1" + bytes(60)),
        "a Feather file",
        "pandas.read_feather",
        None,
    ),
    "x.orc": (orc, "an ORC file", "pandas.read_orc", TABLE.to_pandas()),
    "x.npy": (numpy_array, "an array of numpy", "numpy.load", np.arange(3)),
    "x.h5": (lambda path: path.write_bytes(HDF5), "an HDF5 file", "pandas.read_hdf", None),
    "user block.h5": (
        lambda path: path.write_bytes(bytes(512) + HDF5),
        "an HDF5 file",
        "pandas.read_hdf",
        None,
    ),
    "x.b2nd": (
        lambda path: path.write_bytes(b"\x9e\xa8b2frame\0" + bytes(99)),
        "an array of Blosc2",
        "blosc2.open",
        None,
    ),
    "no suffix 'quoted'": (
        lambda path: pyarrow.parquet.write_table(TABLE, path),
        "a Parquet file",
        "pandas.read_parquet",
        TABLE.to_pandas(),
    ),
}


def parquet_files(path):
    pyarrow.parquet.write_table(TABLE, path / "part-0.parquet")


def with_files(*names):
    def make(path):
        for name in names:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(b"{}")

    return make


METADATA = [f"metadata/{n:05}-e9d.metadata.json" for n in (2, 10, 9)]
DIRECTORIES = {
    "delta": (
        with_files("_delta_log/00000000000000000000.json", "part-0.parquet"),
        "a Delta table",
        "deltalake.DeltaTable({!r}).to_pyarrow_table()",
    ),
    "lance": (
        with_files("_versions/1.manifest", "data/0.lance"),
        "a Lance dataset",
        "lance.dataset({!r}).to_table()",
    ),
    "zarr 3": (with_files("zarr.json"), "a zarr store", "zarr.open({!r}, mode='r')"),
    "zarr 2": (with_files(".zgroup", "a/.zarray"), "a zarr store", "zarr.open({!r}, mode='r')"),
    "zarr array": (with_files(".zarray", "0.0"), "a zarr store", "zarr.open({!r}, mode='r')"),
    "iceberg": (with_files("data/0.parquet", *METADATA), "an Iceberg table", None),
    "hive": (parquet_files, "a directory of Parquet files", "pandas.read_parquet({!r})"),
}


def made(tmp_path, name):
    """Make something foreign; return its path, what it is, and the call that reads it."""
    path = tmp_path / name
    if name in FILES:
        make, kind, function, _ = FILES[name]
        make(path)
        return path, kind, f"{function}({str(path)!r})"
    path.mkdir()
    make, kind, call = DIRECTORIES[name]
    make(path)
    if call is None:
        newest = f"{path}/metadata/00010-e9d.metadata.json"
        return (
            path,
            kind,
            f"pyiceberg.table.StaticTable.from_metadata({newest!r}).scan().to_arrow()",
        )
    return path, kind, call.format(str(path))


WAYS = {
    "open": blz.open,
    "open to change": lambda path: blz.open(path, "a"),
    "open a version": lambda path: blz.open(path, version=1),
    "read_blz": blz.read_blz,
    "read_blz, skipping": lambda path: blz.read_blz(path, on_corrupt="skip"),
    "read_table": blz.read_table,
    "dataset": blz.dataset,
    "copy": lambda path: blz.copy(path, f"{path}.new"),
}
EACH = pytest.mark.parametrize("name", [*FILES, *DIRECTORIES])


@EACH
@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_table_is_named_with_the_call_that_reads_it(tmp_path, name, way):
    path, kind, call = made(tmp_path, name)
    expected = blz.TableNotFoundError if path.is_dir() else blz.FormatError
    with pytest.raises(expected) as caught:
        WAYS[way](path)
    assert str(caught.value) == (
        f"{path} is {kind}, not a table of blztable; read it with {call}, and make a table of the "
        "result with blztable.to_blz"
    )
    assert not blz.exists(path)


@pytest.mark.parametrize("name", [name for name, one in FILES.items() if one[3] is not None])
def test_the_call_reads_it_and_makes_a_table(tmp_path, name):
    _, _, call = made(tmp_path, name)
    found, expected = eval(call, {"pandas": pd, "numpy": np}), FILES[name][3]
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
        blz.to_blz(found, tmp_path / "t.blz")
        assert blz.read_table(tmp_path / "t.blz").num_rows == 2
    else:
        assert found.tolist() == expected.tolist()


def test_the_call_reads_a_directory_of_parquet_files(tmp_path):
    _, _, call = made(tmp_path, "hive")
    assert eval(call, {"pandas": pd})["a"].tolist() == [1, 2]


@EACH
@pytest.mark.parametrize("verb", ["head", "info", "verify", "vacuum", "schema"])
def test_the_command_line_names_it(tmp_path, capsys, name, verb):
    path, kind, call = made(tmp_path, name)
    assert main([verb, str(path)]) == 1
    assert f"{path} is {kind}, not a table of blztable; read it with {call}" in (
        capsys.readouterr().err
    )


@EACH
@pytest.mark.parametrize("mode", ["x", "w", "a"])
def test_a_writer_leaves_it_as_it_is_and_names_it(tmp_path, name, mode):
    path, kind, _ = made(tmp_path, name)
    before = sorted((one, one.is_file() and one.read_bytes()) for one in tmp_path.rglob("*"))
    with pytest.raises(blz.TableExistsError) as caught:
        blz.to_blz({"a": [1]}, path, mode=mode)
    assert str(caught.value) == (
        f"{path} is {kind} and is left as it is; choose another path for the table"
    )
    after = sorted((one, one.is_file() and one.read_bytes()) for one in tmp_path.rglob("*"))
    assert after == before


@pytest.mark.parametrize("content", [b"PAR", b"hello", b"\x89HDF"])
def test_what_is_not_known_is_not_named(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(blz.FormatError, match="is a file that holds no table"):
        blz.open(path)
    with pytest.raises(blz.FormatError, match="is a file that holds no table"):
        blz.open(io.BytesIO(content))
    (tmp_path / "y").mkdir()
    (tmp_path / "y/notes.txt").write_bytes(content)
    with pytest.raises(blz.TableNotFoundError, match="nothing is committed there"):
        blz.open(tmp_path / "y")
