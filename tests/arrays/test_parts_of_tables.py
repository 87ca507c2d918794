"""A data file of a table opens as an array of the values of its part, to be read."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from support.bloscpack_reference import bloscpack_bytes
from support.data_files import UUID, file_of

ROWS = 5000
NOISE = np.random.default_rng(0)


def with_nulls(values, type_=None):
    return pa.array([None if row % 3 == 0 else one for row, one in enumerate(values)], type_)


# Each with the dtype that it has here.
PARTS = {
    "integers as they are": (pa.array(NOISE.integers(-(1 << 62), 1 << 62, ROWS)), "<i8"),
    "small integers": (pa.array(NOISE.integers(0, 255, ROWS).astype("u1")), "|u1"),
    "floats": (pa.array(NOISE.random(ROWS)), "<f8"),
    "small floats": (pa.array(NOISE.random(ROWS).astype("f4")), "<f4"),
    "integers as codes": (pa.array(NOISE.integers(1000, 1255, ROWS)), "<i8"),
    "integers as sums": (pa.array(np.cumsum(NOISE.integers(0, 9, ROWS))), "<i8"),
    "decimal floats": (pa.array(NOISE.integers(0, 10_000, ROWS) / 100), "<f8"),
    "a constant": (pa.array(np.full(ROWS, 7.5)), "<f8"),
    "few floats": (pa.array(NOISE.choice(NOISE.random(100), ROWS)), "<f8"),
    "integers with nulls": (with_nulls(range(1, 1_000_000, 199)), "O"),
    "nulls": (pa.nulls(50, pa.int32()), "O"),
    "booleans": (pa.array(NOISE.random(ROWS) < 0.5), "|b1"),
    "text": (pa.array([f"text {row}" * (row % 5) for row in range(ROWS)]), "O"),
    "text with nulls": (with_nulls(map(str, range(ROWS))), "O"),
    "words": (pa.array(NOISE.choice(["rail", "air", "ship"], ROWS)), "O"),
    "words with nulls": (with_nulls(NOISE.choice(["rail", "air"], ROWS).tolist()), "O"),
    "binary": (pa.array([b"x" * (row % 9) for row in range(ROWS)]), "O"),
    "moments": (
        pa.array(NOISE.integers(0, 10**15, ROWS)).cast(pa.timestamp("us", "UTC")),
        "<M8[us]",
    ),
    "moments with nulls": (with_nulls(range(ROWS)).cast(pa.timestamp("ns")), "<M8[ns]"),
    "times that passed": (
        pa.array(NOISE.integers(0, 10**15, ROWS)).cast(pa.duration("ms")),
        "<m8[ms]",
    ),
    "days as milliseconds": (
        pa.array([row * 86_400_000 for row in range(ROWS)]).cast(pa.date64()),
        "<M8[ms]",
    ),
    "bytes of one width": (
        pa.array([bytes([row % 256, row // 256]) for row in range(ROWS)], pa.binary(2)),
        "|V2",
    ),
}


def expected(array):
    """Return the values as numpy has them."""
    if pa.types.is_fixed_size_binary(array.type):
        return np.frombuffer(array.buffers()[1], f"V{array.type.byte_width}", len(array))
    is_number = pa.types.is_integer(array.type) and not array.null_count
    if is_number or pa.types.is_temporal(array.type) or pa.types.is_floating(array.type):
        return array.to_numpy(zero_copy_only=False)
    values = np.empty(len(array), object)
    values[:] = array.to_pylist()
    return values


@pytest.mark.parametrize("name", PARTS)
def test_a_part_gives_its_values(name):
    array, dtype = PARTS[name]
    with blz.SuperChunk.open(file_of(array)) as part:
        assert (part.dtype, part.shape) == (np.dtype(dtype), (len(array),))
        np.testing.assert_array_equal(part.to_numpy(), expected(array))
        np.testing.assert_array_equal(part[7:40:3], expected(array)[7:40:3])
        assert part.verify()
        assert dict(part.attrs) == {"uuid": UUID, "number": 7, "node": [0]}


@pytest.mark.parametrize("name", PARTS)
def test_bloscpack_opens_every_part(name, tmp_path):
    path = tmp_path / "__7__.bin"
    array, dtype = PARTS[name]
    path.write_bytes(file_of(array))
    data = bloscpack_bytes(path)
    if dtype not in ("O", "|b1") and name.endswith("as they are"):
        assert np.array_equal(np.frombuffer(data, dtype), array.to_numpy())


def test_bloscpack_reads_a_plain_part_to_the_byte(tmp_path):
    for array in (PARTS["integers as they are"][0], PARTS["floats"][0]):
        path = tmp_path / "__7__.bin"
        path.write_bytes(file_of(array))
        assert bloscpack_bytes(path) == array.to_numpy().tobytes()


@pytest.mark.parametrize("kind", ["str", "bytes"])
def test_items_with_a_chunk_each_are_read_one_by_one(kind):
    texts = ["", "é" * 900, "a", None, "b" * 5000] * 4
    items = [one.encode() if one is not None and kind == "bytes" else one for one in texts]
    with blz.SuperChunk.open(file_of(pa.array(items), per_item=True)) as part:
        assert part.to_numpy().tolist() == items
        assert part[1:4].tolist() == items[1:4]
        assert part.verify()


def test_a_wide_decimal_is_the_bytes_of_its_digits():
    values = [Decimal(row).scaleb(-2) for row in range(100)]
    for type_ in (pa.decimal128(20, 2), pa.decimal256(50, 2)):
        with blz.SuperChunk.open(file_of(pa.array(values, type_))) as part:
            found = [int.from_bytes(bytes(one), "little", signed=True) for one in part]
            assert found == list(range(100))
    with blz.SuperChunk.open(file_of(pa.array(values, pa.decimal64(10, 2)))) as part:
        assert part[:].tolist() == list(range(100))


def test_a_list_gives_the_lengths_of_its_items():
    lists = [[1] * (row % 4) for row in range(100)]
    with blz.SuperChunk.open(file_of(pa.array(lists))) as part:
        assert part[:].tolist() == [len(one) for one in lists]
    with blz.SuperChunk.open(file_of(with_nulls(lists))) as part:
        assert part[:4].tolist() == [None, 1, 2, None]


def test_a_file_of_several_parts_says_what_to_open():
    data = file_of(pa.array([1, 2]), pa.array(["a", "b"]))
    with pytest.raises(blz.FormatError, match=r"2 parts of a table.*blztable\.open"):
        blz.SuperChunk.open(data)


def test_a_part_of_nothing_but_nulls_says_what_to_open():
    data = file_of(pa.array([{}, None, {}], pa.struct([])))
    with pytest.raises(blz.FormatError, match=r"nothing but nulls.*blztable\.open"):
        blz.SuperChunk.open(data)


def test_a_part_is_not_changed(tmp_path):
    path = tmp_path / "__7__.bin"
    path.write_bytes(file_of(pa.array([1, 2, 3])))
    with pytest.raises(blz.ReadOnlyError, match="make a new array of it"):
        blz.SuperChunk.open(path, "a")
    with blz.SuperChunk.open(path) as part, pytest.raises(blz.ReadOnlyError):
        part[0] = 7


def test_a_damaged_chunk_of_a_part_is_told():
    data = bytearray(file_of(PARTS["integers as codes"][0]))
    data[-20] ^= 1
    with blz.SuperChunk.open(bytes(data)) as part:
        with pytest.raises(blz.CorruptError, match="crc32"):
            part.to_numpy()
        assert not part.verify()


def test_a_part_of_times_of_day_and_of_dates_is_numbers():
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(row) for row in range(100)]
    with blz.SuperChunk.open(file_of(pa.array(days))) as part:
        assert part.dtype == np.dtype("<i4")
        assert np.array_equal(part[:].astype("M8[D]"), np.array(days, "M8[D]"))
