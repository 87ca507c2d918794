"""New arrays: what they are made of, what the real Bloscpack reads, and what is left unfinished."""

import contextlib
import io
import json
import os
import struct
import threading

import numpy as np
import pytest

import blztable as blz
from blztable.format.checksums import BY_NAME
from support.bloscpack_reference import import_bloscpack

VALUES = np.random.default_rng(5).normal(size=(250, 4)).round(1)


def made(values=VALUES, place=None, **options):
    """Return the bytes of a file that holds the values."""
    file = io.BytesIO()
    shape = (0, *values.shape[1:])
    with blz.SuperChunk.create(place or file, values.dtype, shape, **options) as array:
        array.append(values)
    return file.getvalue()


def read(data):
    with blz.SuperChunk.open(data) as array:
        assert array.verify()
        return array.to_numpy()


def real(path):
    return import_bloscpack().unpack_ndarray_from_bytes(path.read_bytes())


@pytest.mark.parametrize("checksum", BY_NAME)
@pytest.mark.parametrize("compression", ["lz4", "lz4hc", "zlib", "zstd"])
def test_the_real_program_returns_the_array(tmp_path, checksum, compression):
    path = tmp_path / "a.blp"
    options = {"checksum": checksum, "compression": compression, "chunk_shape": (60, 4)}
    made(place=path, meta={"pet": b"cat"}, attrs={"unit": "mm"}, **options)
    assert path.read_bytes()[:5] == b"blpk\x03"
    assert np.array_equal(real(path), VALUES)
    assert np.array_equal(read(path), VALUES)


DTYPES = [
    "?",
    "i1",
    ">u2",
    "<i4",
    ">f8",
    "f2",
    "c16",
    "S5",
    "U7",
    "V3",
    "M8[ns]",
    "m8[25s]",
    "S255",
    [("a", "<i4"), ("b", ">f8", (2, 3))],
    [("point", [("x", "f4"), ("y", "f4")]), ("name's, [or so", "U3")],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_here_and_in_the_real_program(tmp_path, dtype):
    dtype = np.dtype(dtype)
    noise = np.random.default_rng(1).integers(0, 2, 30 * dtype.itemsize, np.uint8)
    # No character has a larger number.
    noise[3::4] = 0
    values = noise.view(dtype).reshape(10, 3)
    path = tmp_path / "a.blp"
    made(values, path, chunk_shape=(4, 3))
    for found in (read(path), real(path)):
        assert found.dtype == dtype
        assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "dtype", ["U64", "S256", {"names": ["a"], "formats": ["i4"], "itemsize": 400}]
)
def test_what_bloscpack_cannot_hold_is_version_4(dtype):
    values = np.zeros(7, dtype)
    data = made(values)
    assert data[4] == 4
    found = read(data)
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)
    assert bytes(len(found.tobytes())) == found.tobytes()


@pytest.mark.parametrize(
    "dtype",
    [
        object,
        "O",
        [("a", "O")],
        "S0",
        "U0",
        np.longdouble,
        "V0",
        [],
        ("f4", (2,)),
        {"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]},
    ],
    ids=str,
)
def test_a_dtype_that_cannot_be_stored_is_refused(dtype, tmp_path):
    with pytest.raises(blz.SchemaError, match="cannot be stored"):
        blz.SuperChunk.create(tmp_path / "a.blp", dtype)
    assert not (tmp_path / "a.blp").exists()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (5, 0), (0, 0, 2)])
def test_an_empty_array_comes_back(tmp_path, shape):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "f4", shape):
        pass
    assert read(path).shape == shape
    assert real(path).shape == shape


def test_a_shape_makes_rows_of_zeros():
    with blz.SuperChunk.create(None, "i2", (5, 3)) as array:
        array.append(np.ones((1, 3), "i2"))
        assert array[:].tolist() == [[0, 0, 0]] * 5 + [[1, 1, 1]]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("chunk_shape", [(2, 4, 3), (3, 9, 1), (1, 1, 1), (100, 100, 100)])
@pytest.mark.parametrize("piece", [1, 3, 7])
def test_chunks_may_be_boxes_of_several_axes(order, chunk_shape, piece):
    values = np.arange(7 * 9 * 5).reshape(7, 9, 5)
    file = io.BytesIO()
    options = {"chunk_shape": chunk_shape, "order": order}
    with blz.SuperChunk.create(file, "i8", (0, 9, 5), **options) as array:
        for start in range(0, 7, piece):
            array.append(values[start : start + piece])
        assert np.array_equal(array[1:6, ::2, 3], values[1:6, ::2, 3])
    with blz.SuperChunk.open(file.getvalue()) as array:
        assert (array.order, array.chunk_shape) == (order, chunk_shape)
        assert np.array_equal(array, values)
        assert np.array_equal(array[2:7, 3:8, 1:], values[2:7, 3:8, 1:])
        boxes = sum(chunk.size for chunk in array.chunks())
        assert boxes == values.size


def test_large_rows_are_cut_by_default():
    with blz.SuperChunk.create(None, "f8", (0, 3000, 1000)) as array:
        assert array.chunk_shape == (1, 131, 1000)
    with blz.SuperChunk.create(None, "f8", (0, 3, 1000_000)) as array:
        assert array.chunk_shape == (1, 1, 131072)


ITEMS = ["", "a", "é" * 1000, "x" * 70_000, "\0"]


@pytest.mark.parametrize("kind", ["str", "bytes", str, bytes])
def test_items_of_any_length_come_back(kind):
    items = ITEMS if kind in ("str", str) else [item.encode() for item in ITEMS]
    file = io.BytesIO()
    with blz.SuperChunk.create(file, kind) as array:
        array.append(items[:2])
        array.append(items[2:])
        assert array[3] == items[3]
    with blz.SuperChunk.open(file, "a") as array:
        array.append(items)
        array.resize(9)
        array.resize(10)
    with blz.SuperChunk.open(file.getvalue()) as array:
        assert list(array) == array.to_arrow().to_pylist() == [*items, *items[:4], items[0]]
        assert array.tobytes() == b"".join(
            item.encode() if isinstance(item, str) else item for item in list(array)
        )
        assert array.nchunks == 10


@pytest.mark.parametrize("items", ["ab", b"ab", [1], [None], ["a", b"b"], 7, ["a", "\ud800"]])
def test_other_items_are_refused_and_nothing_changes(items):
    with blz.SuperChunk.create(None, "str") as array:
        array.append(["a"])
        with pytest.raises(blz.SchemaError):
            array.append(items)
        array.append(["b"])
        assert [*array] == ["a", "b"]


def test_items_lie_in_the_file_as_proposal_002_has_them():
    file = io.BytesIO()
    with blz.SuperChunk.create(file, "bytes", expectedlen=2) as array:
        array.append([b"ab", b"cde"])
    data = file.getvalue()
    magic, version, options, checksum, typesize, size, last, nchunks, meta_size, reserved = (
        struct.unpack_from("<4sBBBBiiqII", data)
    )
    assert (magic, version, options, checksum, typesize) == (b"blpk", 4, 0b111, 2, 1)
    assert (size, last, nchunks, reserved) == (-1, -1, 2, 0)
    metadata = json.loads(data[32 : 32 + meta_size])
    assert {key: metadata[key] for key in ("dtype", "shape", "others")} == {
        "dtype": "varchar",
        "shape": [2],
        "others": [],
    }
    offsets = struct.unpack_from("<2q", data, 32 + meta_size)
    assert data[offsets[0] + 16 :][:2] == b"ab"
    assert data[offsets[1] + 16 :][:3] == b"cde"


def test_an_unfinished_file_has_placeholders_and_is_told(tmp_path):
    path = tmp_path / "a.blp"
    array = blz.SuperChunk.create(path, "f8", (0, 4), chunk_shape=(60, 4), expectedlen=240)
    array.append(VALUES)
    data = path.read_bytes()
    assert data[4] == 255
    assert struct.unpack_from("<iq", data, 12) == (-1, -1)
    first = data.index(b"\xff" * 8, 32)
    assert data[first : first + 32] == b"\xff" * 32
    array._opened.abandon()
    with pytest.raises(blz.CorruptError, match=r"never finished; 4 chunks are whole"):
        blz.SuperChunk.open(path)
    with pytest.raises(blz.CorruptError, match=r"never finished"):
        blz.SuperChunk.open(path, "a")
    with pytest.raises(Exception, match=r"version|max_app_chunks"):
        real(path)
    assert path.read_bytes() == data


def broken(path, values, **options):
    """Write an array until an error ends the block."""
    with contextlib.suppress(OSError), blz.SuperChunk.create(path, "f8", (0, 4), **options) as a:
        a.append(values)
        raise OSError("the source failed")


@pytest.mark.parametrize("chunk_shape", [(60, 4), (60, 3)])
@pytest.mark.parametrize("checksum", ["none", "md5"])
def test_the_whole_chunks_of_an_unfinished_file_are_recovered(tmp_path, chunk_shape, checksum):
    path = tmp_path / "a.blp"
    options = {"chunk_shape": chunk_shape, "checksum": checksum}
    broken(path, VALUES[:200], **options)
    with blz.SuperChunk.recover(path) as array:
        assert np.array_equal(array, VALUES[:180])
    path.write_bytes(path.read_bytes()[:-1])
    with blz.SuperChunk.recover(path) as array:
        assert np.array_equal(array, VALUES[:120])


def test_rows_that_were_read_are_recovered_too(tmp_path):
    path = tmp_path / "a.blp"
    array = blz.SuperChunk.create(path, "f8", (0, 4), chunk_shape=(60, 4))
    array.append(VALUES[:70])
    assert np.array_equal(array[:], VALUES[:70])
    array._opened.abandon()
    with blz.SuperChunk.recover(path) as found:
        assert np.array_equal(found, VALUES[:70])


def test_a_finished_file_is_not_recovered():
    with pytest.raises(blz.FormatError, match="it was finished"):
        blz.SuperChunk.recover(made())
    with pytest.raises(blz.FormatError, match="not written by SuperChunk"):
        blz.SuperChunk.recover(b"blpk" + b"\1\0\0\0" + bytes(8))


@pytest.mark.parametrize("checksum", ["none", "crc32"])
def test_a_pipe_is_written_from_its_begin_to_its_end(checksum):
    reading, writing = os.pipe()
    received = []

    def receive():
        with open(reading, "rb") as file:
            received.append(file.read())

    thread = threading.Thread(target=receive)
    thread.start()
    with (
        open(writing, "wb", buffering=0) as file,
        blz.SuperChunk.create(file, "f8", (0, 4), chunk_shape=(60, 4), checksum=checksum) as array,
    ):
        for row in VALUES:
            array.append(row[None])
        assert array.shape == VALUES.shape
    thread.join()
    [data] = received
    # As the proposals have it: no offsets, and -1 for what is not known.
    assert (data[4], data[5]) == (4, 2)
    assert struct.unpack_from("<iq", data, 12) == (-1, -1)
    assert np.array_equal(read(data), VALUES)
    with pytest.raises(blz.CorruptError, match=r"never finished; 5 chunks are whole"):
        blz.SuperChunk.open(data[:-1])
    with blz.SuperChunk.recover(data[:-1]) as array:
        assert np.array_equal(array, VALUES)
    file = io.BytesIO(data)
    with blz.SuperChunk.open(file, "a") as array:
        array.append(VALUES[:7])
    assert np.array_equal(read(file.getvalue()), np.vstack([VALUES, VALUES[:7]]))


def test_an_array_never_replaces_a_file(tmp_path):
    path = tmp_path / "a.blp"
    path.write_text("mine")
    with pytest.raises(blz.TableExistsError):
        blz.SuperChunk.create(path, "f8")
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "K"}, "order is 'K'"),
        ({"compression": "blosclz"}, "compression is 'blosclz'"),
        ({"clevel": 10}, "clevel is 10"),
        ({"shuffle": True}, "shuffle is True"),
        ({"checksum": "crc"}, "checksum is 'crc'"),
        ({"reserve": -1}, "reserve is -1"),
        ({"decimals": -1}, "decimals is -1"),
        ({"version": 2}, "version is 2"),
        ({"version": 3, "order": "F", "shape": (0, 2)}, "Bloscpack cannot describe"),
        ({"shape": ()}, "shape is"),
        ({"shape": (-1,)}, "shape is"),
        ({"shape": (1,) * 33}, "shape is"),
        ({"chunk_shape": (0,)}, "chunk_shape is"),
        ({"chunk_shape": (1, 1)}, "chunk_shape is"),
        ({"chunk_shape": (1 << 30,)}, "a chunk has at most"),
        ({"shape": (0, 1 << 40, 1 << 40)}, "a chunk has at most|cannot be kept"),
        ({"shape": (0, 0, 1 << 40, 1 << 40)}, "cannot be kept"),
        ({"reserve": float("nan")}, "reserve is nan"),
        ({"expectedlen": 1 << 60}, "at most 2097152 fit"),
        *(
            ({"expectedlen": each}, f"expectedlen is {each!r}; expected a number")
            for each in (-1, 2.5, "x")
        ),
        ({"reserve": "x"}, "reserve is 'x'"),
        ({"clevel": 9.7}, "clevel is 9.7"),
        ({"clevel": "x"}, "clevel is 'x'"),
        ({"decimals": "x"}, "decimals is 'x'"),
        ({"dtype": "str", "shape": (0, 2)}, "items of variable length have one axis"),
        ({"dtype": "str", "chunk_shape": (2,)}, "leave chunk_shape out"),
    ],
    ids=str,
)
def test_an_option_without_sense_is_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        blz.SuperChunk.create(tmp_path / "a.blp", **{"dtype": "f8"} | options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_shape": 5}, "chunk_shape is 5; expected a tuple of whole numbers"),
        ({"chunk_shape": (2.5,)}, r"chunk_shape is \(2.5,\)"),
        ({"shape": 5}, "shape is 5; expected a tuple"),
        ({"shape": None}, "shape is None; expected a tuple"),
        ({"attrs": 3}, "attrs is 3; expected a mapping"),
        ({"meta": 3}, "meta is 3; expected a mapping"),
    ],
    ids=str,
)
def test_an_option_of_another_type_is_named(tmp_path, options, message):
    with pytest.raises(TypeError, match=message):
        blz.SuperChunk.create(tmp_path / "a.blp", **{"dtype": "f8"} | options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("i1", [128]),
        ("i4", [1.5]),
        ("f4", [0.1]),
        ("U2", ["abc"]),
        ("S2", [b"abc"]),
        ("i4", ["a"]),
        ("u1", [-1]),
        ("i8", [None]),
        ("f8", ["x"]),
        ("M8[s]", [1.5]),
        ("U2", np.array(["abc"], object)),
        ([("a", "i1")], [(300,)]),
    ],
    ids=str,
)
def test_values_that_would_change_are_refused(dtype, values):
    with blz.SuperChunk.create(None, dtype) as array:
        with pytest.raises(blz.SchemaError, match="do not fit"):
            array.append(values)
        assert array.shape == (0,)


@pytest.mark.parametrize("values", [1.0, [1.0], [[1.0]], [[[1.0]]], np.zeros((2, 5))])
def test_rows_of_another_shape_are_refused(values):
    with (
        blz.SuperChunk.create(None, "f8", (0, 4)) as array,
        pytest.raises(ValueError, match="shape"),
    ):
        array.append(values)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8"])
@pytest.mark.parametrize("digits", [0, 2, 3, 5])
def test_decimals_are_the_digits_kept_after_the_point(dtype, digits):
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 6e4, -3.14159, 2.5]
    values = np.array([*edges, *np.random.default_rng(0).normal(0, 3, 5000)], dtype)
    found = read(made(values, decimals=digits))
    same = ~np.isfinite(values) | (values == 0)
    assert found[same].tobytes() == values[same].tobytes()
    with np.errstate(invalid="ignore"):
        assert (abs(found[~same] - values[~same]) <= 0.5 * 10.0**-digits).all()
    if dtype == "f8":
        assert len(made(values, decimals=2)) < len(made(values)) / 2


def test_decimals_are_for_floats():
    with pytest.raises(blz.SchemaError, match="decimals is for floats"):
        blz.SuperChunk.create(None, "i4", decimals=3)


def test_options_of_other_types_are_kept_as_numbers():
    options = {"clevel": np.int64(3), "decimals": True, "reserve": np.float32(0.5)}
    found = read(made(chunk_shape=[np.int8(7), np.int8(4)], **options))
    assert (abs(found - VALUES) <= 0.05).all()


def test_what_a_reader_would_refuse_is_refused_before_it_is_written():
    with blz.SuperChunk.create(None, "u1", (0, 0, 1 << 50)) as array:
        array.append(np.empty((4000, 0, 1 << 50), "u1"))
        with pytest.raises(blz.LimitError, match="items are kept"):
            array.append(np.empty((4000, 0, 1 << 50), "u1"))


def test_a_file_that_can_only_be_written_says_so():
    file = Pipe()
    with blz.SuperChunk.create(file, "f8", (5, 4), chunk_shape=(60, 4)) as array:
        for ask in (lambda: array[0], array.to_numpy, array.verify, lambda: array.resize(1)):
            with pytest.raises(blz.StorageError, match="can only be written"):
                ask()
        array.append(VALUES)
        array.resize(300)
    expected = np.vstack([np.zeros((5, 4)), VALUES, np.zeros((45, 4))])
    assert np.array_equal(read(file.getvalue()), expected)


class Pipe(io.BytesIO):
    """A file that can only be written."""

    def seekable(self):
        return False


def test_the_permissions_stay_when_an_array_is_rewritten(tmp_path):
    path = tmp_path / "a.blp"
    made(place=path)
    path.chmod(0o640)
    with blz.SuperChunk.open(path, "a") as array:
        array.rewrite()
    assert path.stat().st_mode & 0o777 == 0o640
