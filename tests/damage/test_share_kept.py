"""One flipped byte of a data file costs a chunk: most rows of a table of one row group are kept."""

import warnings
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.records import ITEMS_VALID
from support import places

ROWS, LEAST_KEPT = 340_000, 0.6


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return the path of a table like the flights, in which nulls are few."""
    draw = np.random.default_rng(0)
    is_null = draw.random(ROWS) < 0.02
    words = pa.array([f"N{number:05}" for number in range(4000)])
    numbers = draw.integers(0, 4000, ROWS)
    columns = {
        "late": numbers.astype(float),
        "flight": numbers,
        "price": draw.normal(size=ROWS),
        "is_held": draw.random(ROWS) < 0.5,
        "place": words[:100].take(pa.array(numbers % 100)),
        "tail": words.take(pa.array(numbers)),
        "remark": pa.array(draw.integers(0, 2**60, ROWS)).cast(pa.string()),
        "parts": pa.FixedSizeListArray.from_arrays(numbers, 1).cast(pa.list_(pa.int64())),
    }
    mask = pa.array(~is_null)
    table = pa.table(
        {name: pa.compute.if_else(mask, values, None) for name, values in columns.items()}
    )
    path = tmp_path_factory.mktemp("kept") / "t.blz"
    blz.to_blz(table, path, durability="process")
    return path


def rows_left(path, name, key, offset) -> int:
    """Return how many rows of a column a read returns if a bit of this byte is flipped."""
    places.flip_byte(path, key, offset)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return len(blz.read_table(path, columns=[name], on_corrupt="skip"))
    finally:
        places.flip_byte(path, key, offset)


def test_a_flipped_byte_of_a_chunk_costs_at_most_two_of_five_rows(stored):
    version = places.version_at(stored)
    tried = set()
    for line, node in enumerate(version.paths):
        records, name = version.parts(line).records, version.schema.names[node[0]]
        key, chunks = places.chunks_of(stored, line)
        for stream, (first, last) in zip(
            records.streams["name"].tolist(), pairwise(records.first_chunk.tolist()), strict=True
        ):
            for start, stop in chunks[first:last][:: max((last - first) // 3, 1)]:
                left = rows_left(stored, name, key, (start + stop) // 2)
                # All rows need the items of their dictionary.
                least = LEAST_KEPT * ROWS if stream < ITEMS_VALID else 0
                assert least <= left < ROWS, (name, stream)
                tried.add((line, stream))
    assert len(tried) == 21


def test_a_flipped_byte_before_the_chunks_of_a_data_file_costs_no_row(stored):
    version = places.version_at(stored)
    for line, node in enumerate(version.paths):
        key, chunks = places.chunks_of(stored, line)
        for offset in (0, 20, 32, 70, chunks[0][0] - 1):
            assert rows_left(stored, version.schema.names[node[0]], key, offset) == ROWS
