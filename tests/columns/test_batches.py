"""Columns that are encoded as a matrix come back, and have the facts of columns one by one."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.columns.parts.batch import encode_batch
from blztable.columns.parts.check import check_type
from blztable.columns.parts.decode import EncodedRows
from blztable.columns.parts.encode import EncodedPart, encode
from blztable.columns.parts.physical import physical
from blztable.format.records import EXACT_BOUNDS, NUMBERS, PAGE, PLAIN, SUM, VALUES
from blztable.tuning import tuned
from support.encoded import records_of_parts

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
ODD = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e300, 5e-324, 1 / 3]


def parts_of(batch):
    """Return the parts of a batch by their columns."""
    for place, column in enumerate(batch.columns.tolist()):
        streams = tuple(
            replace(stream, data=data[place], words=words[place])
            for stream, data, words in zip(batch.streams, batch.data, batch.words, strict=True)
        )
        yield (
            column,
            EncodedPart(
                batch.rows, batch.page, batch.nbytes, streams, batch.pages[place], batch.flags
            ),
        )


def decoded(part, type_):
    """Return the values of a part as a reader has them."""
    records = records_of_parts([part])
    records.streams["nbytes"] = [len(stream.data) for stream in part.streams]
    check_type(type_, records)
    fields = (part.rows, part.page, part.flags, part.pages, part.nbytes)
    return EncodedRows(type_, *fields, {one.name: one for one in part.streams}).array()


@st.composite
def matrices(draw):
    """Draw columns of one dtype: near, far, equal, of few decimals, and with strange values."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rows, seed = draw(st.integers(1, 70)), draw(st.integers(0, 99))
    rng, columns = np.random.default_rng(seed), []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["near", "far", "equal", "decimals"]))
        if kind == "far":
            bits = rng.bytes(rows * dtype.itemsize)
            values = np.frombuffer(bits, dtype).copy()
        else:
            numbers = np.full(rows, 7) if kind == "equal" else rng.integers(0, 100, rows)
            values = (numbers / 4 if kind == "decimals" else numbers).astype(dtype)
        if dtype.kind == "f":
            for row in draw(st.lists(st.integers(0, rows - 1), max_size=4)):
                with np.errstate(over="ignore"):
                    values[row] = draw(st.sampled_from(ODD))
        columns.append(values)
    return np.stack(columns)


@given(matrices(), st.sampled_from([3, 14]))
def test_columns_of_a_matrix_have_the_values_and_bounds_of_columns_one_by_one(matrix, page):
    type_ = pa.from_numpy_dtype(matrix.dtype)
    with tuned(encoded_bytes=0, rows_per_exception=4, sampled_values=1):
        batches = encode_batch(matrix, physical(type_), page)
    found = dict(pair for batch in batches for pair in parts_of(batch))
    assert sorted(found) == list(range(len(matrix)))
    for column, part in found.items():
        values = matrix[column]
        array = decoded(part, type_)
        assert array.buffers()[1].to_pybytes()[: values.nbytes] == values.tobytes()
        # The bounds of plain values are those of any other encoding but that of decimals.
        with tuned(encoded_bytes=1 << 60):
            plain = encode(pa.array(values), page)
        (own,) = part.streams
        assert part.pages["nans"].tolist() == plain.pages["nans"].tolist()
        if matrix.dtype.kind != "f" or own.kind == PLAIN:
            assert part.pages.tolist() == plain.pages.tolist()
            assert part.flags == plain.flags == EXACT_BOUNDS


@pytest.mark.parametrize("dtype", ["i2", "i8", "u4", "f8"])
def test_columns_of_a_matrix_are_encoded_as_columns_one_by_one(dtype):
    matrix = (np.random.default_rng(0).integers(0, 1000, (5, 2000)) / 4).astype(dtype)
    type_ = pa.from_numpy_dtype(matrix.dtype)
    (batch,) = encode_batch(matrix, physical(type_), 14)
    for column, part in parts_of(batch):
        with tuned(rows_per_item=1 << 20):
            one = encode(pa.array(matrix[column]), 14)
        (own,), (other,) = part.streams, one.streams
        assert (own.name, own.kind, own.width, own.power) == (
            VALUES,
            NUMBERS,
            other.width,
            other.power,
        )
        assert not other.flags & SUM
        assert np.array_equal(own.data, other.data)
        assert part.pages.dtype == PAGE
        assert part.pages.tolist() == one.pages.tolist()
