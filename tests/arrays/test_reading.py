"""SuperChunk reads files of Bloscpack 1, 2 and 3, and of the proposals."""

import hashlib
import io
import json
import mmap
import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from golden.sets import unpacked
from support.bloscpack_files import file_of
from support.bloscpack_reference import import_bloscpack

GOLDEN = unpacked("bloscpack")
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
VALUES = np.arange(1200).reshape(100, 12) * 3
DATA = VALUES.tobytes()
NDARRAY = {"dtype": "'<i8'", "shape": [100, 12], "order": "C", "container": "numpy"}


def read(data):
    with blz.SuperChunk.open(data) as array:
        return array.to_numpy()


def test_every_sample_has_an_expectation():
    assert {path.name for path in GOLDEN.glob("*.blp")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_the_real_program_is_read_exactly(name):
    expected = EXPECTED[name]
    with blz.SuperChunk.open(GOLDEN / name) as array:
        assert (array.dtype.str, list(array.shape)) == (expected["dtype"], expected["shape"])
        assert hashlib.sha256(array.tobytes()).hexdigest() == expected["sha256"]
        assert array.verify()


@pytest.mark.parametrize("checksum", range(9))
@pytest.mark.parametrize("has_offsets", [True, False])
@pytest.mark.parametrize("version", [2, 3])
def test_each_version_checksum_and_form_of_offsets_is_read(version, checksum, has_offsets):
    data = file_of(DATA, version=version, checksum=checksum, has_offsets=has_offsets)
    assert read(data).tobytes() == DATA


def test_version_1_has_neither_sizes_nor_checksums():
    assert read(file_of(DATA, version=1)).tobytes() == DATA


@pytest.mark.parametrize("room", [0, 7])
@pytest.mark.parametrize("sizes", [True, False])
def test_an_array_of_bloscpack_is_read_with_its_dtype_and_shape(room, sizes):
    data = file_of(DATA, checksum=1, room=room, metadata=NDARRAY | {"more": 1}, sizes=sizes)
    with blz.SuperChunk.open(data) as array:
        assert array.dtype == np.int64
        assert np.array_equal(array[5:91:3, 2:4], VALUES[5:91:3, 2:4])
        assert np.array_equal(array, VALUES)
        assert dict(array.attrs) == {"more": 1}


def test_an_array_in_order_f_is_read_as_it_was():
    data = file_of(VALUES.tobytes("F"), metadata=NDARRAY | {"order": "F"})
    with blz.SuperChunk.open(data) as array:
        assert np.array_equal(array.to_numpy(), VALUES)
        assert np.array_equal(array[3:50, 4], VALUES[3:50, 4])


@pytest.mark.parametrize("has_offsets", [True, False])
def test_the_arrays_of_the_proposals_are_read(has_offsets):
    floats = np.arange(1024.0)
    metadata = {"dtype": "float64", "shape": [1024], "others": []}
    data = file_of(floats.tobytes(), version=4, metadata=metadata, has_offsets=has_offsets)
    assert np.array_equal(read(data), floats)


def test_the_items_of_variable_length_of_the_proposals_are_read():
    items = b"abc" * 9
    metadata = {"dtype": "varchar", "shape": [9], "others": []}
    data = file_of(items, version=4, metadata=metadata, chunk_size=3, options=4, sizes=False)
    assert list(read(data)) == [b"abc"] * 9


DTYPES = [
    "?",
    "i1",
    ">u2",
    "<i4",
    ">f8",
    "f2",
    "c8",
    "S5",
    "U7",
    "V3",
    "M8[ns]",
    "m8[25s]",
    [("a", "<i4"), ("b", ">f8", (2, 3))],
    [("point", [("x", "f4"), ("y", "f4")]), ("name's, [or so", "U3")],
    {"names": ["a", "b"], "formats": ["i1", "i4"], "offsets": [0, 4], "itemsize": 12},
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_real_program_writes_every_dtype_that_is_read(tmp_path, dtype, order):
    dtype = np.dtype(dtype)
    noise = np.random.default_rng(1).integers(0, 2, 60 * dtype.itemsize, np.uint8)
    # No character has a larger number.
    noise[3::4] = 0
    array = noise.view(dtype).reshape((6, 10), order=order)
    bloscpack = import_bloscpack()
    path = str(tmp_path / "a.blp")
    bloscpack.pack_ndarray_to_file(array, path, chunk_size=7 * dtype.itemsize)
    found = read(path)
    # Bloscpack itself names padding.
    assert found.shape == array.shape
    assert found.dtype == dtype or dtype.names
    # In a copy, padding is what the memory held.
    for name in dtype.names or [...]:
        assert found[name].tobytes() == array[name].tobytes()


def test_an_array_without_axes_is_read(tmp_path):
    path = str(tmp_path / "a.blp")
    import_bloscpack().pack_ndarray_to_file(np.array(7.5), path)
    with blz.SuperChunk.open(path) as array:
        assert array.shape == ()
        assert array[()] == 7.5


@given(
    st.integers(0, 400),
    st.integers(1, 90),
    st.slices(410),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
)
def test_any_slice_of_a_file_is_the_slice_of_its_bytes(size, chunk_size, cut, version, has_offsets):
    data = bytes(range(256)) * 2
    made = file_of(
        data[:size], version=version, chunk_size=chunk_size, checksum=1, has_offsets=has_offsets
    )
    with blz.SuperChunk.open(made) as array:
        assert array[cut].tobytes() == data[:size][cut]


@pytest.mark.parametrize(
    "key",
    [
        3,
        -1,
        np.int64(7),
        (),
        ...,
        None,
        slice(9, 2, -3),
        (slice(2, 8), -1),
        (..., 4),
        ([3, 1, 1], 2),
        [],
        [-1, 5],
        (slice(None), [0, 3], None),
        np.arange(100) % 7 == 0,
        (slice(5, 5), 1),
        (slice(20, None, 9), slice(None, None, -5)),
        (5, ..., None, 7),
    ],
    ids=str,
)
def test_indices_select_what_numpy_selects(key):
    with blz.SuperChunk.open(file_of(DATA, metadata=NDARRAY)) as array:
        found, expected = array[key], VALUES[key]
        assert np.array_equal(found, expected)
        assert np.shape(found) == np.shape(expected)


@pytest.mark.parametrize("key", [100, -101, (0, 12), (0, 0, 0), "a", 1.5, [1.5], [100]])
def test_indices_that_numpy_refuses_are_refused(key):
    with blz.SuperChunk.open(file_of(DATA, metadata=NDARRAY)) as array, pytest.raises(IndexError):
        array[key]


def test_an_iteration_yields_the_rows():
    with blz.SuperChunk.open(file_of(DATA, metadata=NDARRAY)) as array:
        assert np.array_equal(list(array), VALUES)
        assert len(array) == 100


def test_a_file_is_read_from_bytes_a_file_object_and_a_path(tmp_path):
    data = file_of(DATA)
    path = tmp_path / "a.blp"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert read(data).tobytes() == read(io.BytesIO(data)).tobytes() == DATA
        assert read(path).tobytes() == read(str(path)).tobytes() == read(file).tobytes() == DATA


def test_a_damaged_chunk_is_named_and_the_others_are_read():
    data = bytearray(file_of(DATA, checksum=2, metadata=NDARRAY))
    data[-20] ^= 1
    with blz.SuperChunk.open(bytes(data)) as array:
        with pytest.raises(blz.CorruptError, match="chunk 9: its crc32"):
            array.to_numpy()
        assert np.array_equal(array[:80], VALUES[:80])
        report = array.verify()
        assert not report
        assert [(problem.start, problem.stop) for problem in report.problems] == [(93, 100)]


@pytest.mark.parametrize("name", ["append", "resize"])
def test_a_file_of_another_program_is_not_opened_for_changes(tmp_path, name):
    path = tmp_path / "a.blp"
    path.write_bytes(file_of(DATA))
    with pytest.raises(blz.ReadOnlyError, match="SuperChunk did not write this file"):
        blz.SuperChunk.open(path, "a")
    assert path.read_bytes() == file_of(DATA)


def test_what_is_not_there_or_no_array_is_told(tmp_path):
    with pytest.raises(blz.TableNotFoundError, match="no array exists at"):
        blz.SuperChunk.open(tmp_path / "a.blp")
    with pytest.raises(blz.CorruptError, match="expected a regular file, found a directory"):
        blz.SuperChunk.open(tmp_path)
    with pytest.raises(blz.FormatError, match="begins with b'PK"):
        blz.SuperChunk.open(b"PK\x03\x04" + bytes(60))
    with pytest.raises(
        blz.CorruptError, match="the file has 5 bytes; the shortest header takes 16"
    ):
        blz.SuperChunk.open(file_of(DATA)[:5])
    with pytest.raises(TypeError, match="expected a path, a binary file or bytes, found int"):
        blz.SuperChunk.open(3)
    with pytest.raises(ValueError, match="the path is empty"):
        blz.SuperChunk.open("")


def test_what_holds_bytes_is_read_and_let_go_of(tmp_path):
    (tmp_path / "a.blp").write_bytes(file_of(DATA))
    with (tmp_path / "a.blp").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        for place in (mapped, pa.py_buffer(file_of(DATA)), np.frombuffer(file_of(DATA), "u1")):
            assert read(place).tobytes() == DATA
            with pytest.raises(blz.ReadOnlyError, match="can only be read; pass None"):
                blz.SuperChunk.open(place, "a")
        assert read(mapped).tobytes() == DATA
        array = blz.SuperChunk.open(mapped)
        array.close()
        mapped.close()


def test_a_file_object_that_does_not_fit_is_told(tmp_path):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "i8") as array:
        array.append(range(5))
    with pa.OSFile(str(path)) as file, pa.input_stream(file, "gzip") as stream:
        for verb in (blz.SuperChunk.open, blz.SuperChunk.recover):
            with pytest.raises(
                blz.StorageError, match=r"cannot seek; .* what its read\(\) returns"
            ):
                verb(stream)
    with path.open("rb") as file:
        assert blz.SuperChunk.open(file)[:].tolist() == [0, 1, 2, 3, 4]
        for verb in (blz.SuperChunk.open, blz.SuperChunk.create):
            with pytest.raises(blz.ReadOnlyError, match=r"open the file with 'r\+b'"):
                verb(file, "a" if verb == blz.SuperChunk.open else "i8")
    with (
        (tmp_path / "b.blp").open("wb") as file,
        pytest.raises(blz.StorageError, match="only be w"),
    ):
        blz.SuperChunk.open(file)
    with path.open() as plain, tempfile.NamedTemporaryFile("w+") as wrapped:
        for file in (plain, wrapped, io.StringIO()):
            for verb in (blz.SuperChunk.open, lambda file: blz.SuperChunk.create(file, "i8")):
                with pytest.raises(TypeError, match="in text mode"):
                    verb(file)
    with (
        pa.memory_map(str(path), "r+") as file,
        blz.SuperChunk.open(file, "a") as array,
        pytest.raises(blz.StorageError, match="writing MemoryMappedFile: Write out of bounds"),
    ):
        array.append([5])


def test_a_closed_array_says_so():
    array = blz.SuperChunk.open(file_of(DATA))
    array.close()
    array.close()
    with pytest.raises(blz.ClosedError, match="was closed"):
        array[0]


SMALL = file_of(DATA[:300], chunk_size=100, checksum=1, metadata=NDARRAY | {"shape": [1, 12]})


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_each_cut_of_a_file_is_an_error_or_the_same_values(version):
    metadata = {"dtype": "int64", "shape": [15], "others": []} if version == 4 else None
    data = file_of(DATA[:120], version=version, chunk_size=50, checksum=1, metadata=metadata)
    for size in range(len(data)):
        assert_harmless(data[:size], DATA[:120])


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_each_flip_of_a_file_is_an_error_or_an_array(version):
    metadata = {"dtype": "int64", "shape": [15], "others": []} if version == 4 else None
    data = file_of(DATA[:120], version=version, chunk_size=50, checksum=1, metadata=metadata)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            # Nothing protects the header of a file of another program.
            assert_harmless(bytes(flipped), None)


def assert_harmless(data, expected):
    try:
        found = read(data)
    except blz.BlzError:
        return
    assert expected is None or found.tobytes() == expected
    assert found.nbytes < 10_000


@pytest.mark.parametrize(
    "dtype",
    [
        "object",
        "O",
        "'|O'",
        "float128",
        "__import__('os')",
        "[('a', 'O')]",
        "f8,f8",
        "f9",
        "'<f8' * 9999999",
        "[" * 70,
        "(" * 30000,
        "'S999999999'",
        "'S0'",
        "[]",
        "()",
        "1",
        "''",
        "[('a', '<f8', (99999, 99999))]",
        "[('a', '<f8'), ('a', '<f8')]",
        "[('a',)]",
        "'M8[fortnight]'",
        "'<f8",
        "-1",
        7,
        None,
        [["a", ["b"]]],
        {"names": []},
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_dtype_that_is_not_on_the_list_is_refused(dtype):
    data = file_of(DATA, metadata=NDARRAY | {"dtype": dtype})
    with pytest.raises(blz.FormatError):
        blz.SuperChunk.open(data)


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": [101, 12]},
        {"shape": [1 << 61, 1 << 61]},
        {"shape": [0, 1 << 63]},
        {"shape": [-1200]},
        {"shape": "100"},
        {"shape": [1] * 99},
        {"shape": [100, 12.0]},
        {"order": "Z"},
        {"order": None},
        {"dtype": "'<i4'"},
    ],
    ids=str,
)
def test_metadata_that_contradict_the_chunks_are_refused(lie):
    with pytest.raises(blz.BlzError):
        blz.SuperChunk.open(file_of(DATA, metadata=NDARRAY | lie))
