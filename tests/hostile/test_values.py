"""Values from an attacker who computes valid checksums: Arrow never sees what is invalid.

As in `test_chunks.py`, each table lies behind valid checksums and another process reads it.
"""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.records import (
    DICTIONARY,
    ITEMS_LENGTHS,
    ITEMS_VALUES,
    LENGTHS,
    NUMBERS,
    VALID,
    VALUES,
)
from support import tamper
from support.hostile_reader import WAYS, make, outcomes

pytestmark = pytest.mark.usefixtures("own_files")

ROWS = 3000
NOISE = np.random.default_rng(4)
FEW = {
    "text": pa.array(NOISE.choice(["rail", "air", "ship"], ROWS)),
    "binary": pa.array(NOISE.choice(["rail", "air", "ship"], ROWS)).cast(pa.binary()),
    "floats": pa.array(NOISE.choice(NOISE.random(50), ROWS)),
    "categories": pa.array(NOISE.choice(["rail", "air", "ship"], ROWS)).dictionary_encode(),
}
TEXT = pa.array([f"text {row}" * (row % 5) for row in range(ROWS)])


def refused(path, ways=WAYS):
    """Check that each way of reading raises an error of ours."""
    found = outcomes(path, rows=(0, ROWS))
    assert all(found[way] and not found[way][0].startswith("!") for way in ways), found


def is_safe(path):
    """Check that each way of reading gives valid values, or an error of ours."""
    found = outcomes(path, rows=(0, ROWS))
    assert not any(one and one[0].startswith("!") for one in found.values()), found


def made(tmp_path, array, **options):
    return make(tmp_path / "t.blz", pa.table({"x": array}), **{"encoding": "auto", **options})


def coded(table):
    """Return the stream that has codes of a dictionary."""
    streams = table.part().streams
    return streams.get(LENGTHS) or streams[VALUES]


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("code", [3, 50, 255])
def test_a_code_of_no_item_is_refused(tmp_path, name, code):
    path = made(tmp_path, FEW[name])
    with tamper.editing(path) as table:
        stream = coded(table)
        assert stream.record["kind"] == DICTIONARY
        data = stream.data()
        data[5] = max(code, int(stream.words[0]))
        stream.set_data(data)
    refused(path)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("count", [0, 1, 4, 1 << 16, 1 << 31, -1, 1 << 62])
def test_another_number_of_items_is_refused(tmp_path, name, count):
    path = made(tmp_path, FEW[name])
    with tamper.editing(path) as table:
        coded(table).words[0] = count
    refused(path)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("more", [-1, 1])
def test_items_of_another_size_are_refused(tmp_path, name, more):
    path = made(tmp_path, FEW[name])
    with tamper.editing(path) as table:
        stream = table.part().streams[ITEMS_VALUES]
        data = stream.data()
        stream.set_data(np.append(data, data[:1]) if more > 0 else data[:-1])
    refused(path)


@pytest.mark.parametrize("word", [0, 1])
@pytest.mark.parametrize("value", [-1, 0, 1, 1 << 20, 1 << 43, (1 << 63) - 1, -(1 << 63)])
def test_lengths_of_items_that_do_not_add_up_are_refused(tmp_path, word, value):
    path = made(tmp_path, FEW["text"])
    with tamper.editing(path) as table:
        words = table.part().streams[ITEMS_LENGTHS].words
        if words[-1 - word] == value:
            return
        words[-1 - word] = value
    refused(path)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("position", [0, 700, -1])
def test_text_that_is_not_utf8_is_refused(tmp_path, type_, position):
    path = made(tmp_path, TEXT.cast(type_), encoding="plain")
    with tamper.editing(path) as table:
        stream = table.part().streams[VALUES]
        data = stream.data()
        data[position] = 0xFF
        stream.set_data(data)
    refused(path, ways=("table", "frame"))


def test_half_a_character_is_refused_where_an_item_ends(tmp_path):
    path = made(tmp_path, pa.array(["é" * 10] * 100), encoding="plain", row_group_rows=100)
    with tamper.editing(path) as table:
        lengths = table.part().streams[LENGTHS]
        lengths.words[-1] = 20
        codes = np.zeros(104, np.uint8)
        codes[0], lengths.record["width"] = 1, 1
        lengths.words[-1] = 19
        codes[:100] = 1
        codes[0], codes[1] = 0, 2
        lengths.set_data(codes)
    refused(path, ways=("table", "frame"))


def test_text_of_items_that_is_not_utf8_is_refused(tmp_path):
    path = made(tmp_path, FEW["text"])
    with tamper.editing(path) as table:
        stream = table.part().streams[ITEMS_VALUES]
        data = stream.data()
        data[0] = 0xC3
        stream.set_data(data)
    refused(path)


@pytest.mark.parametrize("value", [-1, 1, 1 << 20, 1 << 43, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("place", [0, 1, -2, -1])
def test_lengths_that_do_not_add_up_are_refused(tmp_path, place, value):
    path = made(tmp_path, TEXT, encoding="plain")
    with tamper.editing(path) as table:
        words = table.part().streams[LENGTHS].words
        words[place] = value
    refused(path, ways=("table", "frame"))


@pytest.mark.parametrize("seed", range(6))
def test_lengths_of_noise_are_refused_or_safe(tmp_path, seed):
    path = made(tmp_path, TEXT, encoding="plain")
    with tamper.editing(path) as table:
        stream = table.part().streams[LENGTHS]
        noise = np.random.default_rng(seed)
        stream.set_data(noise.integers(0, noise.choice([2, 256]), len(stream.data())).astype("u1"))
    is_safe(path)


@pytest.mark.parametrize("value", [2, 128, 255])
def test_a_boolean_is_0_or_1(tmp_path, value):
    path = made(tmp_path, pa.array(NOISE.random(ROWS) < 0.5), encoding="plain")
    with tamper.editing(path) as table:
        stream = table.part().streams[VALUES]
        data = stream.data()
        data[3] = value
        stream.set_data(data)
    refused(path)


@pytest.mark.parametrize("type_", [pa.decimal32(3), pa.decimal64(9), pa.decimal128(20)], ids=str)
def test_a_decimal_of_too_many_digits_is_refused(tmp_path, type_):
    path = made(
        tmp_path, pa.array(range(100)).cast(pa.decimal128(20)).cast(type_), encoding="plain"
    )
    with tamper.editing(path) as table:
        stream = table.part().streams[VALUES]
        data = stream.data()
        data[: type_.bit_width // 8] = 0x7F
        stream.set_data(data)
    refused(path)


@pytest.mark.parametrize("size", [-1, 1, 8])
def test_validity_of_another_size_is_refused(tmp_path, size):
    path = made(tmp_path, pa.array([None if row % 3 else row for row in range(ROWS)]))
    with tamper.editing(path) as table:
        stream = table.part().streams[VALID]
        data = stream.data()
        stream.set_data(data[:size] if size < 0 else np.append(data, np.zeros(size, np.uint8)))
    refused(path)


@pytest.mark.parametrize("lie", [{"width": 8}, {"width": 0}, {"width": 4}, {"kind": 0}], ids=str)
def test_codes_of_another_width_are_refused(tmp_path, lie):
    path = made(tmp_path, pa.array(NOISE.integers(1000, 1255, ROWS)))
    with tamper.editing(path) as table:
        record = table.part().streams[VALUES].record
        assert (record["kind"], record["width"]) == (NUMBERS, 1)
        for name, value in lie.items():
            record[name] = value
    refused(path)


@pytest.mark.parametrize(
    "rows", [[-1, 5], [5, 5], [7, 5], [5, ROWS], [5, 1 << 62], [-(1 << 63), 0]]
)
def test_exceptions_of_rows_that_are_not_there_are_refused(tmp_path, rows):
    values = NOISE.integers(0, 10_000, ROWS) / 100
    values[[5, 2000]] = [1 / 3, 2 / 3]
    path = made(tmp_path, pa.array(values))
    with tamper.editing(path) as table:
        stream = table.part().streams[VALUES]
        assert stream.record["exceptions"] == 2
        stream.words[-4:-2] = rows
    refused(path, ways=("table", "frame"))


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("value", [0, -1, 1 << 62, -(1 << 63), (1 << 63) - 1])
def test_any_base_of_a_page_gives_some_numbers(tmp_path, name, value):
    path = made(tmp_path, pa.array(NOISE.integers(1000, 1255, ROWS)))
    with tamper.editing(path) as table:
        table.part().pages[name][1] = value
    is_safe(path)
    with blz.open(path) as opened:
        assert not opened.verify().is_intact


@pytest.mark.parametrize(
    "array",
    [pa.array([1, 2, 3]), pa.array(["a", "b", "c"]), pa.array([True, None, False]), pa.nulls(3)],
    ids=lambda array: str(array.type),
)
def test_only_floats_have_nan(tmp_path, array):
    path = made(tmp_path, array)
    with tamper.editing(path) as table:
        table.part().record["flags"] |= 1
    refused(path)


def test_null_is_said_once(tmp_path):
    path = made(tmp_path, pa.array([1.5, None, float("nan")]))
    with tamper.editing(path) as table:
        table.part().record["flags"] |= 1
    refused(path)


def test_a_field_that_is_not_null_may_have_nulls_that_are_nan(tmp_path):
    field = pa.field("x", pa.float64(), nullable=False)
    table = pa.table({"x": [1.5, float("nan"), 2.5]}, schema=pa.schema([field]))
    path = make(tmp_path / "t.blz", table)
    with tamper.editing(path) as edited:
        edited.part().record["flags"] |= 1
    is_safe(path)
