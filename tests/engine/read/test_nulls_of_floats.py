"""Nulls of float columns: no stream says them, and NaN beside them stays a value."""

import blosc
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.columns.parts.decode import EncodedRows
from blztable.columns.statistics import bounds
from blztable.engine.read.parts import OpenParts
from blztable.format.records import NAN_IS_NULL, VALUES
from blztable.storage.local import LocalStore
from golden import reader
from support.bit_equality import bits, same, same_table
from support.options import arguments
from support.stores import write

ROWS = 500
NUMBER = np.arange(ROWS)
NOISE = np.random.default_rng(3).normal(size=ROWS)
TABLE = pa.table(
    {
        "any": pa.array(NOISE, mask=NUMBER % 5 == 2),
        "price": pa.array(np.round(NOISE * 100, 2), mask=NUMBER % 7 < 3),
        "few": pa.array(NUMBER % 5 / 7, mask=NUMBER % 3 == 1),
        "single": pa.array(NOISE.astype("f4"), mask=NUMBER % 9 == 0),
        "half": pa.array(NOISE.astype("f2"), mask=NUMBER % 2 == 0),
        "lost": pa.nulls(ROWS, pa.float64()),
        # No row is null in its second row group, and all are in the third.
        "turns": pa.array(NOISE, mask=(NUMBER < 9) | (NUMBER >= 400)),
    }
)
# Null and NaN in one column.
BOTH = pa.array(np.where(NUMBER % 11 == 4, np.nan, NOISE), mask=NUMBER % 5 == 2, from_pandas=False)
CUTS = {"row_group_rows": 200, "page_rows": 64}


@pytest.fixture(params=["auto", "plain"])
def path(request, tmp_path):
    blz.to_blz(
        TABLE.append_column("both", BOTH),
        tmp_path / "t.blz",
        **arguments(encoding=request.param, **CUTS),
    )
    return tmp_path / "t.blz"


def flagged(table):
    """Return for each row group whether NaN stands for null, by name."""
    version = table._snapshot.version
    return {
        name: tuple((version.parts(index).records.parts["flags"] & NAN_IS_NULL > 0).tolist())
        for index, name in enumerate(version.schema.names)
    }


def test_a_part_with_nulls_and_no_nan_has_no_stream_of_validity(path):
    """Codes of few values and of one value cannot say null, so their parts have one."""
    with blz.open(path) as table:
        told = flagged(table)
        assert told["any"] == told["single"] == told["half"] == (True, True, True)
        assert told["turns"][:2] == (True, False)
        assert told["both"] == (False, False, False)
        names = {name: [one.name for one in table[name].streams()] for name in told}
        assert names["any"] == names["single"] == names["half"] == ["values"]
        assert names["both"] == ["valid", "values"]


def test_null_and_nan_are_read_as_they_were(path):
    whole = TABLE.append_column("both", BOTH)
    rows = np.array([3, 499, 2, 2, 250, 199, 200])
    with blz.open(path) as table:
        assert same_table(table.to_arrow(), whole)
        assert same_table(table.take(rows), whole.take(pa.array(rows)))
        assert same_table(table[37:411], whole[37:411])
        assert table.verify()
    found = reader.read(path)
    for name, column in zip(whole.column_names, found.columns, strict=True):
        assert column.rows == bits(whole[name]), name


CONDITIONS = [
    pc.field("any").is_null(),
    pc.field("price").is_valid(),
    pc.field("both").is_null(),
    pc.field("both").is_null(nan_is_null=True),
    pc.field("few").is_nan(),
    pc.field("price") > 0.5,
    pc.field("few") != 0,
    ~(pc.field("turns") < 0),
    (pc.field("few") < 0.2) | (pc.field("any") > 0),
    (pc.field("lost") > 0) | (pc.field("single") > 0),
    pc.field("lost").is_null() & (pc.field("both") > 0),
    pc.field("few").isin([0.0, 1 / 7]),
    pc.field("few").isin([0.0, None]),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_conditions_see_null(path, condition):
    whole = TABLE.append_column("both", BOTH)
    wanted = whole.drop_columns("half").filter(condition)
    with blz.open(path) as table:
        assert same_table(table[wanted.column_names].to_arrow(filters=condition), wanted)
        assert table.count(filters=condition) == len(wanted)


def test_statistics_count_nulls_and_have_bounds(path):
    with blz.open(path) as table:
        version = table._snapshot.version
        zones = bounds.zones_of_groups(pa.float64(), version.records([0]))
        assert zones.nulls.tolist() == [TABLE["any"][n : n + 200].null_count for n in (0, 200, 400)]
        assert zones.nans.tolist() == [0, 0, 0]
        assert zones.lowest.null_count == zones.highest.null_count == 0
        plan = table.explain(["turns"], filters=pc.field("turns").is_null())
        # The second row group has no null.
        assert plan.columns[0].row_groups == 2
        assert table.explain(filters=pc.field("any") > NOISE.max()).pages == 0


def test_a_plain_file_is_one_of_bloscpack_with_the_bytes_of_the_values(tmp_path):
    path, values = tmp_path / "t.blz", np.where(NUMBER % 5 == 2, np.nan, NOISE)
    blz.to_blz(
        pa.table({"x": pa.array(values, from_pandas=True)}),
        path,
        storage=blz.Storage(encoding="plain"),
    )
    (file,) = path.glob("data/**/*.bin")
    data = file.read_bytes()
    assert data[:5] == b"blpk\x03"
    with blz.open(path) as table, OpenParts(table._snapshot.version) as parts:
        begin = parts.open(0, 0).streams[VALUES]._offsets[0]
    size = int.from_bytes(data[begin + 12 : begin + 16], "little")
    assert blosc.decompress(data[begin : begin + size]) == values.tobytes()


@pytest.mark.parametrize("kinds", ["null", "nan", "none", "both"])
@pytest.mark.parametrize("first", ["null", "nan", "none", "both"])
def test_appended_parts_may_differ(tmp_path, first, kinds):
    made = {
        "null": pa.array([1.5, None, 2.5]),
        "nan": pa.array([1.5, float("nan"), 2.5]),
        "none": pa.array([1.5, 3.5, 2.5]),
        "both": pa.array([None, float("nan"), 2.5]),
    }
    path = tmp_path / "t.blz"
    blz.to_blz(pa.table({"x": made[first]}), path)
    with blz.open(path, "a") as table:
        for _ in range(2):
            table.append(pa.table({"x": made[kinds]}))
        wanted = pa.chunked_array([made[first], made[kinds], made[kinds]])
        assert same(table["x"][:], wanted)
        assert table.verify()
        table.compact()
        assert same(table["x"][:], wanted)
        assert table.verify()


def test_a_read_into_floats_of_numpy_makes_no_bitmap(path, monkeypatch):
    def made(_, __, values=None):
        if values is not None:
            raise AssertionError("a bitmap is made")

    names = ["any", "single"]
    wanted = TABLE.select(names).to_pandas()
    monkeypatch.setattr(EncodedRows, "valid", made)
    found = blz.read_blz(path, columns=names)
    assert found.equals(wanted)
    with pytest.raises(AssertionError, match="a bitmap is made"):
        blz.read_blz(path, columns=names, dtype_backend="pyarrow")
    with pytest.raises(AssertionError, match="a bitmap is made"):
        blz.read_table(path, columns=names)


def test_a_frame_of_nullable_floats_is_read_with_its_missing_values(tmp_path):
    masked = pd.arrays.FloatingArray(np.array([1.5, np.nan, 2.5]), np.array([False, False, True]))
    arrow = pd.arrays.ArrowExtensionArray(pa.chunked_array([[1.5, None, 2.5]]))
    frame = pd.DataFrame({"both": masked, "arrow": arrow, "null": pd.array([None, 1, 2.5])})
    frame.to_blz(tmp_path / "t.blz")
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz"), frame)


@pytest.mark.parametrize("chunk_bytes", [8, 16, 32, 64, 1 << 20])
@pytest.mark.usefixtures("own_files_here")
def test_chunks_may_end_between_any_two_codes(tmp_path, chunk_bytes):
    # A chunk of 4 codes ends within a byte of the bitmap.
    column, path = TABLE["price"].combine_chunks(), tmp_path / "t.blz"
    write(LocalStore(path), pa.table({"price": column}), page_rows=64, chunk_bytes=chunk_bytes)
    with blz.open(path) as table:
        assert table["price"].streams()[-1].encodings == ("numbers, power",)
        assert same(table["price"][:], pa.chunked_array([column]))
        assert same(table["price"][70:130], pa.chunked_array([column[70:130]]))


@pytest.mark.parametrize("odd", [float("inf"), -float("inf"), 1e17, -0.0, 5e-324])
@pytest.mark.parametrize("place", [2, 3003])
def test_odd_values_beside_nulls_are_values(tmp_path, odd, place):
    # Bug: the code of an odd value is that of NaN, so it was read as null.
    values = [0.25, np.nan, 0.5] + [0.5] * 3000 + [0.75] * 3000
    values[place] = odd
    column = pa.chunked_array([pa.array(values, from_pandas=True)])
    blz.to_blz(pa.table({"x": column}), tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", "a") as table:
        assert table["x"].streams()[-1].encodings == ("numbers, power",)
        assert same(table["x"][:], column)
        assert table.count(filters=pc.field("x").is_null()) == 1
        assert table.count(filters=pc.field("x") == odd) == 1
        assert table.verify()
        table.append(pa.table({"x": [1.5, None]}))
        table.compact()
        assert same(table["x"][:6003], column)
