"""Columns of numbers that are encoded together come back as they are."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

import blztable as blz
from blztable import tuning
from blztable.block_terms import VALUES
from blztable.columns.blocks import StreamLayout
from blztable.columns.encodings.batch import encode_batch
from blztable.engine.write import bundles
from blztable.format.bundle import page_rows_of
from blztable.storage.memory import RamStore
from support.bit_equality import same_table

DTYPES = ["<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"]
# Numbers near a base, at the ends of their types, decimals, and bits that no decimal has.
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, 5e-324, 1e18, 0.1, 1 / 3, 9007199254740993.0]


def layout_of(columns):
    width = columns.itemsize
    return StreamLayout(VALUES, columns.dtype.str, width, 8 * width)


def streams_of(columns, page_rows):
    """Return the stream of each column."""
    found = {}
    for alike in encode_batch(layout_of(columns), columns, page_rows):
        found |= {int(column): alike.stream(n) for n, column in enumerate(alike.columns)}
    assert sorted(found) == list(range(len(columns)))
    return [found[column] for column in sorted(found)]


def decoded(stream, nbytes):
    """Return the values of a stream; of one that is not encoded, its own bytes."""
    if stream.encoding is None:
        return bytes(stream.data)
    out = np.empty(nbytes, np.uint8)
    stream.encoding.decode(0, np.ascontiguousarray(stream.data), out)
    return out.tobytes()


@st.composite
def matrices(draw):
    """Draw columns of one type, most of them near a base or with few decimals."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    count, rows = draw(st.integers(1, 6)), draw(st.integers(1, 300))
    columns = np.empty((count, rows), dtype)
    for column in columns:
        seed = np.random.default_rng(draw(st.integers(0, 1 << 32)))
        if dtype.kind == "f":
            power = draw(st.integers(0, 7))
            whole = seed.integers(-(10 ** draw(st.integers(0, 8))), 10**8, rows)
            is_product = draw(st.booleans())
            with np.errstate(over="ignore"):
                column[:] = whole * float(f"1e-{power}") if is_product else whole / 10.0**power
                for _ in range(draw(st.integers(0, 4))):
                    column[draw(st.integers(0, rows - 1))] = draw(st.sampled_from(SPECIAL))
        else:
            limits = np.iinfo(dtype)
            low = draw(st.integers(limits.min, limits.max))
            high = min(limits.max, low + draw(st.sampled_from([0, 1, 255, 256, 65_535, 1 << 32])))
            column[:] = seed.integers(low, high, rows, dtype, endpoint=True)
    if draw(st.booleans()):
        columns[0] = draw(np_st.arrays(dtype, rows))
    return columns


@given(matrices())
def test_columns_encoded_together_come_back_bit_for_bit(columns):
    streams = streams_of(columns, page_rows_of(columns.shape[1]))
    assert len(streams) == len(columns)
    for stream, column in zip(streams, columns, strict=True):
        assert decoded(stream, column.nbytes) == column.tobytes()
        assert stream.nbytes == column.nbytes
        assert stream.encoding is None or stream.data.nbytes < column.nbytes


@pytest.mark.parametrize("dtype", ["<i8", "<u8", "<i4", "<u2"])
def test_each_column_is_as_narrow_as_its_own_range(dtype):
    top = np.iinfo(dtype).max
    ranges = [0, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32]
    columns = np.array([[top - min(one, top), top] for one in ranges], dtype)
    streams = streams_of(columns, 8)
    widths = [stream.data.nbytes // 2 for stream in streams]
    expected = [min(width, columns.itemsize) for width in (1, 1, 2, 2, 4, 4, 8)]
    assert widths == expected


def test_doubles_of_other_decimals_are_told_apart():
    rows = np.arange(64)
    columns = np.array([rows / 1, rows / 10, rows / 1000, rows * 0.01, rows / 3, rows * np.nan])
    streams = streams_of(columns, 64)
    found = [
        stream.encoding and (stream.encoding.power, stream.encoding.form) for stream in streams
    ]
    assert found == [(0, "/"), (1, "/"), (3, "/"), (2, "*"), None, None]


def test_few_odd_doubles_are_kept_beside_the_codes():
    columns = np.array([np.arange(640) / 10] * 2)
    columns[0, [3, 600]] = np.nan, -0.0
    columns[1, :20] = np.nan
    first, second = streams_of(columns, 1024)
    assert first.encoding.at.tolist() == [3, 600]
    assert second.encoding is None
    assert decoded(first, columns[0].nbytes) == columns[0].tobytes()


LEAST = tuning.current.matrix_columns_written


@pytest.mark.parametrize("count", [LEAST - 1, LEAST, 200])
@pytest.mark.usefixtures("bundled")
def test_a_wide_table_is_the_same_whether_its_columns_are_alike_or_not(count, tuned):
    rng = np.random.default_rng(count)
    table = pa.table(
        {
            f"{kind}{n}": values
            for n in range(count)
            for kind, values in {
                "i": rng.integers(0, 10 ** (n % 9), 50),
                "f": rng.integers(-500, 500, 50) / 10.0 ** (n % 5),
                # A few columns have -0.0, which is odd.
                "o": np.round(rng.normal(size=50) / 20, 1 + n % 2),
                "r": rng.random(50),
                "t": pa.array(rng.integers(0, 1 << 40, 50), pa.timestamp("us", "UTC")),
                "m": pa.array(rng.integers(0, 9, 50), mask=rng.random(50) < n / count),
                "s": pa.array([f"{n}" for n in rng.integers(0, 9, 50)]),
            }.items()
        }
    )
    alike, apart = RamStore(), RamStore()
    blz.to_blz(table, alike)
    tuned(matrix_columns_written=1 << 30)
    blz.to_blz(table, apart)
    for store in (alike, apart):
        assert same_table(blz.read_table(store), table)
        with blz.open(store) as opened:
            assert opened.verify()
            assert opened.take([49, 0, 7]) == table.take([49, 0, 7])
    with blz.open(alike) as one, blz.open(apart) as other:
        for index in range(table.num_columns):
            facts = [it._snapshot.version.parts(index).statistics for it in (one, other)]
            assert facts[0] == facts[1]


@pytest.mark.parametrize("limit", [5_000, 40_000])
@pytest.mark.usefixtures("bundled")
def test_columns_alike_that_the_directory_has_no_room_for_have_files(limit, monkeypatch):
    monkeypatch.setattr(bundles, "MAX_DIRECTORY_BYTES", limit)
    rng = np.random.default_rng(limit)
    table = pa.table({f"{n}": np.round(rng.normal(size=64), 1 + n % 3) for n in range(200)})
    store = RamStore()
    blz.to_blz(table, store)
    with blz.open(store) as opened:
        held = [any(opened._snapshot.version.parts(n).at) for n in range(200)]
        assert any(held)
        assert not all(held)
        assert opened.verify()
        assert same_table(opened.to_arrow(), table)


@pytest.mark.usefixtures("bundled")
def test_the_same_columns_make_the_same_bundle_whichever_thread_encodes_them():
    rng = np.random.default_rng(3)
    table = pa.table(
        {f"{n}": rng.integers(0, 10 ** (1 + n % 9), 2_000) / (1 + n % 2) for n in range(500)}
    )
    stores = [RamStore() for _ in range(4)]
    for store in stores:
        blz.to_blz(table, store)
    assert len({store.get("data/group/__1__.bin") for store in stores}) == 1
